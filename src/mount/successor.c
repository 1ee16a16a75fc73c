/* A new daemon takes over a mount from an old one, with its open files and locks; programs do not
 * notice.
 *
 *   new: "takeover" ---->  old: takes no more requests, waits for those in progress, exports
 *   new: imports    <----  old: the mount, the watcher's pipe, its state (four descriptors)
 *   new: "ready"    ---->  old: "go", and exits without sending anything more
 *   new: serves
 *
 * If the new daemon fails before "ready", the old one continues; without a "go" the new one exits.
 * The socket is named after the mount's device; each side checks the user id of the other. The
 * state contains the secrets of the sessions, so it is in anonymous memory. Requests that wait for
 * locks are not answered; the kernel sends them again. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mount/mount_priv.h"

#define PATIENCE_S 60 /* for requests in progress, and for the successor to start */
#define N_FDS 4

/* ---- the socket ---- */

int control_listen(const char *dir, bool waits)
{
	uint64_t end = time_now() + (waits ? PATIENCE_S : 1) * NSEC_PER_SEC;
	struct sockaddr_un a;
	socklen_t len;
	int fd = mount_control(dir, &a, &len), r;

	if (fd < 0)
		return fd;
	do
		r = bind(fd, (struct sockaddr *)&a, len) || listen(fd, 16) ? -errno : 0;
	while (r == -EADDRINUSE && time_now() < end && usleep(10000) == 0);
	if (!r)
		return fd;
	close(fd);
	return r;
}

/* True if the peer is root or the user of this process. */
static bool is_trusted_peer(int fd)
{
	struct ucred u;
	socklen_t len = sizeof(u);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &len) == 0 &&
	       (u.uid == 0 || u.uid == geteuid());
}

static int control_connect(const char *dir)
{
	uid_t who;
	int fd = mount_reach(dir, 2 * PATIENCE_S, &who);

	if (fd < 0 || who == 0 || who == geteuid())
		return fd;
	close(fd);
	return -EPERM;
}

/* ---- the state that is passed on ---- */

static void put_file(struct hnode *n, void *arg)
{
	struct mfile *f = container_of(n, struct mfile, node);

	fprintf(arg, "file %llu %llu %d %d\n", (unsigned long long)f->fh,
		(unsigned long long)sheaf_file_id(f->f), f->flags, (int)f->sets_atime);
}

static void put_holder(struct hnode *n, void *arg)
{
	struct holder *h = container_of(n, struct holder, node);

	fprintf(arg, "holder %llu %llu\n", (unsigned long long)h->ino,
		(unsigned long long)h->owner);
}

static void put_hex(FILE *out, const char *name, const void *p, size_t n)
{
	const uint8_t *b = p;

	fprintf(out, "%s ", name);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%02x", b[i]);
	fputc('\n', out);
}

/* Lines of text: a reader ignores lines that it does not know. */
static int write_state(struct mount *m, int fd)
{
	FILE *out = fdopen(dup(fd), "w");
	const struct mount_opts *o = &m->o;

	if (!out)
		return -errno;
	put_hex(out, "init", m->init, m->init_len);
	put_hex(out, "conf", o->conf, strlen(o->conf));
	put_hex(out, "log", o->log, strlen(o->log));
	put_hex(out, "fuse", o->fuse, strlen(o->fuse));
	fprintf(out, "opts %d %d %g %g %llu %d %d %d\n", o->writeback, o->atime, o->entry_s,
		o->attr_s, (unsigned long long)o->memory, o->no_direct, o->no_dir_atime,
		m->read_only);
	fprintf(out, "next %llu\n", (unsigned long long)m->next_fh);
	htab_walk(&m->files, put_file, out);
	htab_walk(&m->holders, put_holder, out);
	fputs("end\n", out);
	return fclose(out) ? -errno : 0;
}

static size_t get_hex(const char *hex, void *out, size_t room)
{
	size_t n = strspn(hex, "0123456789abcdef") / 2;

	if (n > room)
		return 0;
	for (size_t i = 0; i < n; i++) {
		unsigned b;

		sscanf(hex + 2 * i, "%2x", &b);
		((uint8_t *)out)[i] = (uint8_t)b;
	}
	return n;
}

/* Takes over an open file of the old daemon, under the same number. */
static int take_file(struct mount *m, uint64_t fh, uint64_t id, int flags, int touch)
{
	struct sheaf_file *sf;
	struct mfile *f;
	int r = sheaf_import_file(m->fs, id, &sf);

	if (!r)
		r = file_add(m, sf, flags, fh, &f);
	if (!r)
		f->sets_atime = touch;
	return r;
}

/* Reads options before there is a connection, and files after that. 1: it was the last line. */
static int read_line(struct mount *m, const char *line)
{
	struct mount_opts *o = &m->o;
	unsigned long long a, b;
	int flags, touch, writeback, atime, no_direct = 0, no_dir = 0, ro = 0;

	if (strncmp(line, "end", 3) == 0)
		return 1;
	if (m->fs) {
		if (sscanf(line, "file %llu %llu %d %d", &a, &b, &flags, &touch) == 4)
			return take_file(m, a, b, flags, touch);
		if (sscanf(line, "holder %llu %llu", &a, &b) == 2)
			return holder_add(m, a, b);
		return 0;
	}
	if (strncmp(line, "init ", 5) == 0)
		m->init_len = get_hex(line + 5, m->init, sizeof(m->init));
	else if (strncmp(line, "conf ", 5) == 0)
		o->conf[get_hex(line + 5, o->conf, sizeof(o->conf) - 1)] = 0;
	else if (strncmp(line, "log ", 4) == 0 && !o->log[0])
		o->log[get_hex(line + 4, o->log, sizeof(o->log) - 1)] = 0;
	else if (strncmp(line, "fuse ", 5) == 0)
		o->fuse[get_hex(line + 5, o->fuse, sizeof(o->fuse) - 1)] = 0;
	else if (sscanf(line, "next %llu", &a) == 1)
		m->next_fh = a;
	else if (sscanf(line, "opts %d %d %lg %lg %llu %d %d %d", &writeback, &atime, &o->entry_s,
			&o->attr_s, &a, &no_direct, &no_dir,
			&ro) >= 5) { /* the last three are newer */
		o->no_dir_atime = no_dir;
		o->read_only = ro;
		o->no_direct = no_direct;
		o->writeback = writeback;
		o->atime = (unsigned)atime;
		o->memory = a;
	}
	return 0;
}

static int read_state(struct mount *m, int fd)
{
	FILE *in = fdopen(dup(fd), "r");
	char *line = NULL;
	size_t room = 0;
	int r = 0;

	if (!in)
		return -errno;
	rewind(in);
	while (!r && getline(&line, &room, in) > 0)
		r = read_line(m, line);
	free(line);
	fclose(in);
	return r == 1 ? 0 : r ? r : -EBADMSG;
}

/* ---- the old daemon ---- */

static int send_fds(int to, const int fds[N_FDS])
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(N_FDS * sizeof(int))];
	} c = { .head = { .cmsg_level = SOL_SOCKET,
			  .cmsg_type = SCM_RIGHTS,
			  .cmsg_len = CMSG_LEN(N_FDS * sizeof(int)) } };
	struct iovec text = { "here", 4 };
	struct msghdr h = {
		.msg_iov = &text, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)
	};

	memcpy(CMSG_DATA(&c.head), fds, N_FDS * sizeof(int));
	return sendmsg(to, &h, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Exports and sends everything; nothing is in progress. */
static int hand_over(struct mount *m, int to)
{
	int fds[N_FDS] = { m->fd, m->watch, memfd_create("sheaf-mount", MFD_CLOEXEC),
			   memfd_create("sheaf-export", MFD_CLOEXEC) };
	int r = fds[2] < 0 || fds[3] < 0 ? -errno : write_state(m, fds[2]);

	if (!r)
		r = sheaf_export(m->fs, fds[3]);
	if (!r)
		r = lseek(fds[3], 0, SEEK_SET) < 0 ? -errno : send_fds(to, fds);
	close(fds[2]);
	close(fds[3]);
	return r;
}

static bool receives_word(int fd, const char *word)
{
	char text[16] = "";

	return recv(fd, text, sizeof(text) - 1, 0) > 0 && strcmp(text, word) == 0;
}

/* True: the successor serves. */
static bool try_takeover(struct mount *m, int to)
{
	struct timeval patience = { .tv_sec = PATIENCE_S };
	bool stopped = false, exported = false;
	int r = -EOPNOTSUPP;

	if (m->watch >= 0) {
		r = crew_stop(m, PATIENCE_S);
		stopped = !r;
	}
	setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (stopped) {
		r = hand_over(m, to);
		exported = !r;
	}
	if (exported && receives_word(to, "ready") && send(to, "go", 2, MSG_NOSIGNAL) == 2)
		return true;
	dprintf(to, "%s", error_text(r ? r : -ETIMEDOUT));
	log_warn("mount", "a takeover failed: %s; this daemon continues",
		 error_text(r ? r : -EPIPE));
	if (stopped) {
		r = sheaf_resume(m->fs);
		if (r)
			log_error("mount", "cannot resume the connection: %s", error_text(r));
		crew_resend(m); /* before the crew starts: else its requests would come twice */
		r = crew_start(m);
		if (r)
			log_error("mount", "requests are not served any more: %s", error_text(r));
	}
	return false;
}

bool control_serve(struct mount *m, int listener)
{
	struct timeval soon = { .tv_sec = 1 };
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	char word[16] = "";
	bool gone = false;

	if (fd < 0) {
		usleep(100000); /* out of descriptors, perhaps: do not spin */
		return false;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	if (!is_trusted_peer(fd) || recv(fd, word, sizeof(word) - 1, 0) <= 0)
		word[0] = 0;
	if (strcmp(word, "takeover") == 0)
		gone = try_takeover(m, fd);
	if (strcmp(word, "ro") == 0 || strcmp(word, "rw") == 0) {
		m->read_only = word[1] == 'o';
		send(fd, "ok", 2, MSG_NOSIGNAL);
	}
	if (strcmp(word, "waits") == 0)
		waits_tell(m, fd);
	if (strcmp(word, "wait") != 0) /* a waiting peer sees our exit as a close */
		close(fd);
	return gone;
}

/* ---- the new daemon ---- */

static int receive_fds(int from, int fds[N_FDS], char *why, size_t room)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(N_FDS * sizeof(int))];
	} c;
	struct iovec text = { why, room - 1 };
	struct msghdr h = {
		.msg_iov = &text, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)
	};
	ssize_t n = recvmsg(from, &h, MSG_CMSG_CLOEXEC);

	why[MAX(n, 0)] = 0;
	if (n <= 0 || strcmp(why, "here") != 0)
		return -EIO;
	if (h.msg_controllen < CMSG_LEN(N_FDS * sizeof(int)) || c.head.cmsg_type != SCM_RIGHTS)
		return -EBADMSG;
	memcpy(fds, CMSG_DATA(&c.head), N_FDS * sizeof(int));
	return 0;
}

static bool replaying; /* drop the answer to the kernel's first request */

static ssize_t io_writev(int fd, struct iovec *iov, int n, void *user)
{
	ssize_t sum = 0;

	(void)user;
	if (!replaying)
		return writev(fd, iov, n);
	for (int i = 0; i < n; i++)
		sum += (ssize_t)iov[i].iov_len;
	return sum;
}

static ssize_t io_read(int fd, void *buf, size_t len, void *user)
{
	(void)user;
	return read(fd, buf, len);
}

/* Makes a session with what was negotiated with the kernel when it was mounted. */
static int take_session(struct mount *m)
{
	static const struct fuse_custom_io io = { .writev = io_writev, .read = io_read };
	struct fuse_buf init = { .size = m->init_len, .mem = m->init };

	m->se = mount_session(m);
	if (!m->se || fuse_session_custom_io(m->se, &io, m->fd))
		return -EINVAL;
	replaying = true;
	fuse_session_process_buf(m->se, &init);
	replaying = false;
	return 0;
}

static int control = -1; /* to the old daemon, until takeover_commit() */

int takeover_receive(struct mount *m, int (*failed)(const char *fmt, ...))
{
	int fds[N_FDS], r;
	char why[256];

	control = control_connect(m->o.dir);
	if (control < 0)
		return failed(control == -ENOENT ? "%s is not a mounted sheaf file system" :
						   "%s: its daemon does not answer",
			      m->o.dir);
	if (send(control, "takeover", 8, MSG_NOSIGNAL) < 0 ||
	    receive_fds(control, fds, why, sizeof(why)))
		return failed("%s: the running daemon refused the takeover: %s", m->o.dir, why);
	m->watch = fds[1];
	r = read_state(m, fds[2]);
	if (!r) {
		mount_switch_direct(&m->o);
		r = sheaf_import(m->o.conf, fds[3], &m->fs);
	}
	if (!r)
		r = read_state(m, fds[2]); /* now the files */
	close(fds[2]);
	close(fds[3]);
	if (r)
		return failed("%s: the state of the old daemon cannot be used: %s", m->o.dir,
			      error_text(r));
	m->fd = fds[0];
	r = take_session(m);
	return r ? failed("%s: no session with the kernel: %s", m->o.dir, error_text(r)) : 0;
}

bool takeover_commit(void)
{
	bool ours = send(control, "ready", 5, MSG_NOSIGNAL) == 5 && receives_word(control, "go");

	close(control);
	return ours;
}
