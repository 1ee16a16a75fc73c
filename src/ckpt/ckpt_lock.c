/* One job of a name at a time: process 0 holds a lock on DIR/JOB/lock, which ends with its session.
 *
 * Threads: that of the call. Errors: -EBUSY: another job has it, named by the text of the file. */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"

#define HOST 256
#define TEXT (HOST + 64) /* bytes of the file, always: the former text goes without a truncate */

static int try_lock(struct sheaf_ckpt *c)
{
	/* the owner is this job, so that a second job of the same connection conflicts, too */
	const struct sheaf_lock l = { .size = sizeof(l), .type = F_WRLCK, .owner = (uintptr_t)c };

	return sheaf_lock(c->lock, &l, 0);
}

/* The process that holds the lock. */
struct holder {
	char host[HOST];
	int pid;
	unsigned long long started; /* tells it from a later process of this number */
};

/* When a process of this host started, in ticks; 0: there is none. */
static unsigned long long start_of(int pid)
{
	unsigned long long started = 0;
	char path[32], text[1024] = "", *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (f && fread(text, 1, sizeof(text) - 1, f) && (end = strrchr(text, ')')))
		sscanf(end,
		       ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
		       "%*s %*s %llu",
		       &started);
	if (f)
		fclose(f);
	return started;
}

static bool find_holder(struct sheaf_ckpt *c, struct holder *h)
{
	char text[TEXT + 1] = "";
	ssize_t n = sheaf_pread(c->lock, text, sizeof(text) - 1, 0);

	return n > 0 && sscanf(text, "%255s %d %llu", h->host, &h->pid, &h->started) == 3;
}

static bool lives_here(const struct holder *h)
{
	char here[HOST] = "";

	gethostname(here, sizeof(here) - 1);
	return strcmp(h->host, here) == 0 && start_of(h->pid) == h->started;
}

/* The servers keep the lock of a process that died for their lease; a job that is restarted waits
 * as long. A process of this host that lives is told from it at once. */
static int wait_for_lock(struct sheaf_ckpt *c)
{
	uint64_t end = time_now() + c->o.timeout_ms * NSEC_PER_MSEC;
	struct holder h = { .host = "?" };
	bool told = false;
	int r;

	while ((r = try_lock(c)) == -EAGAIN && time_now() < end) {
		if (find_holder(c, &h) && lives_here(&h))
			break;
		if (!told)
			ckpt_say(c,
				 "waiting for the servers to drop the lock of process %d of "
				 "host %s, which may have died",
				 h.pid, h.host);
		told = true;
		usleep(100000);
	}
	if (r == -EAGAIN)
		return ckpt_fail(
			-EBUSY,
			"a job '%s' is running: process %d of host %s; end it, or give this "
			"job another name",
			c->store.job, h.pid, h.host);
	return r ? ckpt_fail(r, "the lock of job '%s': %s", c->store.job, sheaf_strerror(r)) : 0;
}

/* The directory of all jobs is for all users, as /tmp; that of a job for its user. */
static int make_dirs(struct sheaf_ckpt *c)
{
	char path[sizeof(c->store.path)];
	int r = 0;

	snprintf(path, sizeof(path), "%s", c->store.path);
	for (char *s = path + 1; !r && s;) {
		s = strchr(s, '/');
		if (s)
			*s = '\0';
		r = sheaf_mkdir(c->fs, path, !s ? 0700 : strchr(s + 1, '/') ? 0755 : 01777);
		r = r == -EEXIST ? 0 : r;
		if (s)
			*s++ = '/';
	}
	return r ? ckpt_fail(r, "%s: %s", path, sheaf_strerror(r)) : 0;
}

/* A user who may change a checkpoint decides what the restarted program computes. What root makes
 * belongs to NOBODY where the servers squash it. */
static int check_owner(struct sheaf_ckpt *c)
{
	struct stat st;
	int r = sheaf_lstat(c->fs, c->store.path, &st);
	uid_t me = geteuid();

	if (r)
		return ckpt_fail(r, "%s: %s", c->store.path, sheaf_strerror(r));
	if (!S_ISDIR(st.st_mode))
		return ckpt_fail(-ENOTDIR, "%s is no directory: give the job another name",
				 c->store.path);
	if (st.st_uid != me && st.st_uid && st.st_uid != NOBODY)
		return ckpt_fail(-EPERM,
				 "%s belongs to user %u, this is user %u: give the job another "
				 "name, or another directory (`dir`)",
				 c->store.path, (unsigned)st.st_uid, (unsigned)me);
	if (st.st_mode & S_IWOTH)
		return ckpt_fail(-EPERM,
				 "%s may be written by all users: 'sheaf chmod o-w %s', if its "
				 "checkpoints are yours",
				 c->store.path, c->store.path);
	return 0;
}

int ckpt_lock(struct sheaf_ckpt *c)
{
	char path[CKPT_PATH], text[TEXT + 1], host[HOST] = "?";
	ssize_t put;
	int r = make_dirs(c);

	if (!r)
		r = check_owner(c);
	if (r)
		return r;
	snprintf(path, sizeof(path), "%s/lock", c->store.path);
	r = sheaf_open(c->fs, path, O_RDWR | O_CREAT, 0600, NULL, &c->lock);
	if (r) {
		c->lock = NULL;
		return ckpt_fail(r, "%s: %s", path, sheaf_strerror(r));
	}
	r = wait_for_lock(c);
	if (r)
		return r;
	gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text), "%s %d %llu", host, (int)getpid(), start_of(getpid()));
	memset(text + strlen(text), ' ', TEXT - strlen(text));
	text[TEXT - 1] = '\n';
	text[TEXT] = '\0';
	put = sheaf_pwrite(c->lock, text, strlen(text), 0);
	return put < 0 ? ckpt_fail((int)put, "%s: %s", path, sheaf_strerror((int)put)) : 0;
}

int ckpt_lock_check(struct sheaf_ckpt *c)
{
	char path[CKPT_PATH];
	int r = c->lock ? try_lock(c) : -EIO;

	if (r == -EIO || r == -EBADF ||
	    r == -ESTALE) { /* lost with its session: may another job have it? */
		ckpt_unlock(c);
		snprintf(path, sizeof(path), "%s/lock", c->store.path);
		r = sheaf_open(c->fs, path, O_RDWR, 0, NULL, &c->lock);
		if (r)
			c->lock = NULL;
		else
			r = try_lock(c);
	}
	if (r == -EAGAIN)
		return ckpt_fail(
			-ESTALE,
			"another job '%s' has begun while the servers did not hear of this "
			"one: this one takes no more checkpoints",
			c->store.job);
	return r ? ckpt_fail(r, "the lock of job '%s': %s", c->store.job, sheaf_strerror(r)) : 0;
}

void ckpt_unlock(struct sheaf_ckpt *c)
{
	if (c->lock)
		sheaf_close(c->lock);
	c->lock = NULL;
}
