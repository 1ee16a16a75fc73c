/* The program sheaf-mount: connects, mounts, serves, unmounts.
 *
 *   command ---- fork ----> daemon ---- fork ----> watcher
 *      waits for "ready" or the reason       removes the mount if the daemon dies
 *
 * Threads of the daemon: this one, which waits for signals, for the end of the crew and for
 * connections to the control socket; the crew (workers.c); the library's helper. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "mount/mount.h"
#include "mount/mount_priv.h"

#define STOP_SECONDS 5 /* that requests in progress get at the end */

static int notify = -1; /* pipe to the waiting command, or -1 */
static char fuse_said[256]; /* messages of libfuse from before `serving` */
static atomic_bool serving;

/* ---- messages to the command ---- */

/* Reports why it failed to the command, or on stderr if there is none. */
static int failed(const char *fmt, ...)
{
	char text[PATH_MAX + 512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (notify < 0 || dprintf(notify, "%s\n", text) < 0)
		fprintf(stderr, "sheaf mount: %s\n", text);
	return 1;
}

/* Takes messages of libfuse, which come in pieces: for our own message, or for the log. Any thread,
 * once the daemon serves. */
static void on_fuse_says(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[sizeof(fuse_said)];
	size_t n = strlen(fuse_said);

	(void)level;
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = 0;
	if (serving)
		log_warn("mount", "%s", text);
	else
		snprintf(fuse_said + n, sizeof(fuse_said) - n, "%s",
			 text + (strncmp(text, "fuse: ", 6) == 0 ? 6 : 0));
}

static void ready(struct mount *m)
{
	int null;

	serving = true;
	if (notify < 0) {
		fprintf(stderr, "%s is mounted; Ctrl-C unmounts it\n", m->o.dir);
		return;
	}
	prctl(PR_SET_PDEATHSIG, 0);
	dprintf(notify, "ready\n");
	close(notify);
	notify = -1;
	log_open(m->o.log[0] ? m->o.log : NULL, LOG_INFO);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	if (null > 2)
		close(null);
}

/* In the command: waits for the daemon's message. */
static int wait_ready(int fd)
{
	char text[PATH_MAX + 512];
	size_t n = 0;
	ssize_t r;

	while ((r = read(fd, text + n, sizeof(text) - 1 - n)) != 0) {
		if (r < 0 && errno != EINTR)
			break;
		n += (size_t)MAX(r, 0);
	}
	text[n] = 0;
	if (strcmp(text, "ready\n") == 0)
		return 0;
	fprintf(stderr, "sheaf mount: %s",
		n ? text : "the daemon ended without an error message\n");
	return 1;
}

/* ---- signals ---- */

/* Blocks the signals in all threads; one thread reads them from the descriptor. Until there is a
 * mount they end the process as usual. */
static int catch_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* ---- start ---- */

/* Escapes the text of an option, in which a comma would end it. */
static void escape(char *out, size_t room, const char *in)
{
	size_t n = 0;

	for (; *in && n + 3 < room; in++) {
		if (*in == ',' || *in == '\\')
			out[n++] = '\\';
		out[n++] = *in;
	}
	out[n] = 0;
}

struct fuse_session *mount_session(struct mount *m)
{
	char name[PATH_MAX + 256], options[sizeof(name) + 1200];
	char *argv[] = { "sheaf", "-o", options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *se;

	escape(name, sizeof(name), m->o.conf);
	snprintf(options, sizeof(options), "default_permissions,subtype=sheaf,fsname=%s%s%s%s",
		 name, geteuid() == 0 && !strstr(m->o.fuse, "allow_") ? ",allow_other" : "",
		 m->o.read_only ? ",ro" : "", m->o.fuse);
	se = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), m);
	fuse_opt_free_args(&args); /* libfuse has copied them */
	return se;
}

static bool kernel_can_resend(void)
{
	struct utsname u;
	int major = 0, minor = 0;

	return uname(&u) == 0 && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 9));
}

/* The kernel's default read-ahead is 128 KiB; only root may change it. */
static void set_read_ahead(const char *dev)
{
	char path[64 + MOUNT_DEV];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", dev);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (dprintf(fd, "%zu", READ_AHEAD / KIB) < 0)
		log_info("mount", "the read-ahead could not be set: %s", error_text(errno));
	close(fd);
}

/* Connects, and checks that the servers answer. */
static int connect_fs(struct mount *m)
{
	const uint64_t end = time_now() + STOP_SECONDS * NSEC_PER_SEC;
	struct stat st;
	int r;

	mount_switch_direct(&m->o);
	/* A daemon whose mount was just removed may still have local:DIR open. */
	while ((r = sheaf_connect(m->o.conf, &m->fs)) == -EBUSY && time_now() < end)
		usleep(50000);
	if (r)
		return failed("%s", sheaf_why());
	r = sheaf_h_getattr(m->fs, NULL, sheaf_root(m->fs), &st);
	return r ? failed("%s: %s ('sheaf status' shows which servers are up)", m->o.conf,
			  sheaf_strerror(r)) :
		   0;
}

/* Why mounting failed; "": fusermount3 has printed the reason. */
static const char *fuse_lack(void)
{
	if (access("/dev/fuse", F_OK))
		return "there is no /dev/fuse here; 'modprobe fuse' makes it";
	if (access("/dev/fuse", R_OK | W_OK))
		return "this user may not open /dev/fuse; 'chmod 666 /dev/fuse' permits it to all users";
	return fuse_said;
}

static int attach(struct mount *m)
{
	if (fuse_session_mount(m->se, m->o.dir)) {
		const char *why = fuse_lack();

		return failed("%s could not be mounted%s%s", m->o.dir, why[0] ? ": " : "", why);
	}
	m->fd = fuse_session_fd(m->se);
	fcntl(m->fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

static int begin(struct mount *m)
{
	struct stat st;
	int r;

	if (files_init(m))
		return failed("out of memory");
	m->can_resend = kernel_can_resend();
	m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!m->o.takeover)
		m->watch = watcher_start(m->o.dir); /* before any thread starts */
	if (m->watch < 0 && !m->o.takeover)
		log_warn("mount",
			 "the watcher could not be started: if this daemon dies, unmount by hand");
	r = m->o.takeover ? takeover_receive(m, failed) : connect_fs(m);
	m->read_only = m->o.read_only;
	m->signals = catch_signals();
	if (!r && !m->o.takeover)
		r = attach(m);
	if (r)
		return r;
	if (mount_find(m->o.dir, m->dev) == 0 && !m->o.takeover)
		watcher_tell(m->watch, m->dev);
	r = crew_init(m);
	if (!r && m->o.takeover && !takeover_commit())
		return failed("%s: the running daemon has kept the mount", m->o.dir);
	if (m->o.takeover)
		crew_resend(m); /* before the crew starts: else its requests would come twice */
	if (!r)
		r = crew_start(m);
	if (r)
		return failed("threads cannot be started: %s", error_text(r));
	if (!m->o.takeover && stat(m->o.dir, &st))
		return failed("%s does not answer: %s", m->o.dir, error_text(errno));
	set_read_ahead(m->dev);
	return 0;
}

/* ---- serving and stopping ---- */

#define LOOK_MS 1000 /* between two looks for servers that requests wait for */

/* Serves until a signal, an unmount or a successor; true: a successor has the mount. */
static bool serve(struct mount *m, int control)
{
	struct pollfd p[] = { { .fd = m->signals, .events = POLLIN },
			      { .fd = m->wake, .events = POLLIN },
			      { .fd = control, .events = POLLIN } };
	bool gone = false;

	while (!gone) {
		int n = poll(p, ARRAY_LEN(p), LOOK_MS);

		if (n <= 0) {
			waits_look(m);
			continue;
		}
		if (p[0].revents || p[1].revents)
			break;
		if (p[2].revents)
			gone = control_serve(m, control);
	}
	return gone;
}

static void *sync_pages(void *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		syncfs(fd);
		close(fd);
	}
	return NULL;
}

/* Makes the kernel write back what programs wrote through mappings, for STOP_SECONDS at most. */
static void write_back(struct mount *m)
{
	struct timespec end;
	pthread_t t;

	if (pthread_create(&t, NULL, sync_pages, m->o.dir))
		return;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += STOP_SECONDS;
	if (pthread_timedjoin_np(t, NULL, &end)) {
		log_warn("mount", "some data of shared mappings could not be written back");
		pthread_detach(t);
	}
}

/* Unmounts if the mount is still this daemon's; false: that failed. Leaves it to libfuse only if
 * the device is unknown: libfuse closes descriptors that the crew still uses. */
static bool take_away(struct mount *m)
{
	char dev[MOUNT_DEV];
	int r = 0;

	if (m->fd >= 0 && m->dev[0] && mount_find(m->o.dir, dev) == 0 && strcmp(dev, m->dev) == 0)
		r = mount_remove(m->o.dir, true, true);
	else if (m->fd >= 0 && !m->dev[0] && m->se)
		fuse_session_unmount(m->se);
	if (r)
		log_warn("mount", "%s is still mounted: %s", m->o.dir, error_text(r));
	return !r;
}

static int run(struct mount *m)
{
	int r, control;

	signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	r = begin(m);
	if (!r) {
		control = control_listen(m->o.dir, m->o.takeover);
		if (control < 0)
			log_warn("mount", "no control socket, so a takeover is not possible: %s",
				 error_text(control));
		ready(m); /* not before: the next command may be a takeover */
		if (serve(m, control))
			_exit(0); /* the successor has the sessions: send nothing more */
		if (!crew_ended(m))
			write_back(m);
	}
	if (r && m->o.takeover)
		_exit(r); /* the old daemon continues */
	if (take_away(m))
		watcher_tell(m->watch, "end");
	if (!r && crew_stop(m, STOP_SECONDS) == 0)
		sheaf_disconnect(m->fs);
	return r;
}

int mount_main(int argc, char **argv)
{
	static struct mount m = { .fd = -1, .watch = -1 };
	int r = mount_opts_parse(argc, argv, &m.o), p[2];
	pid_t pid, command = getpid();

	if (r)
		return MAX(r, 0);
	if (m.o.remount)
		return remount_run(&m.o);
	setenv("SHEAF_JOB", "", 1); /* a mount serves programs of any job */
	fuse_set_log_func(on_fuse_says);
	if (!m.o.takeover && !(m.se = mount_session(&m))) {
		failed("-o: %s", fuse_said[0] ? fuse_said : "out of memory");
		return 2;
	}
	if (m.o.foreground)
		return run(&m);
	if (pipe2(p, O_CLOEXEC))
		return failed("a pipe cannot be made: %s", error_text(errno));
	pid = fork();
	if (pid < 0)
		return failed("a process cannot be started: %s", error_text(errno));
	if (pid) {
		close(p[1]);
		return wait_ready(p[0]);
	}
	close(p[0]);
	notify = p[1];
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* if the command is killed, no mount is wanted */
	if (getppid() != command)
		return 1;
	if (chdir("/"))
		return failed("cannot change to the directory /: %s", error_text(errno));
	return run(&m);
}
