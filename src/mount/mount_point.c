/* The watcher: a process that removes the mount when the daemon dies, because accesses to the
 * directory would fail with "transport endpoint is not connected".
 *
 * The watcher has one end of a pipe. The daemon writes the device number of the mount to the other
 * end, and "end" when it exits normally; a successor gets the write end together with the mount. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mount/mount_priv.h"

/* Reads the last line that the daemon wrote; "" if there was none. */
static void listen_to(int fd, char last[MOUNT_DEV])
{
	char c;
	size_t n = 0;
	ssize_t r;

	last[0] = 0;
	while ((r = read(fd, &c, 1)) != 0) {
		if (r < 0 && errno != EINTR)
			return;
		if (r < 0)
			continue;
		if (c == '\n')
			n = 0;
		else if (n < MOUNT_DEV - 1) {
			last[n++] = c;
			last[n] = 0;
		}
	}
}

static void watch(const char *dir, int fd)
{
	char last[MOUNT_DEV], dev[MOUNT_DEV];
	int null = open("/dev/null", O_RDWR);

	for (int i = 0; i < 3; i++)
		dup2(null, i);
	for (int i = 3; i < 64; i++)
		if (i != fd)
			close(i);
	setsid();
	if (chdir("/"))
		_exit(1);
	listen_to(fd, last);
	if (last[0] && strcmp(last, "end") != 0 && mount_find(dir, dev) == 0 &&
	    strcmp(dev, last) == 0)
		mount_remove(dir, true, true);
	_exit(0);
}

int watcher_start(const char *dir)
{
	static const int all[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	int p[2];
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0) {
		close(p[0]);
		close(p[1]);
		return -errno;
	}
	if (pid == 0) {
		for (size_t i = 0; i < ARRAY_LEN(all); i++)
			signal(all[i], SIG_IGN); /* the watcher ends with the daemon */
		close(p[1]);
		watch(dir, p[0]);
	}
	close(p[0]);
	return p[1];
}

void watcher_tell(int fd, const char *what)
{
	if (fd >= 0 && dprintf(fd, "%s\n", what) < 0)
		log_warn("mount", "the watcher does not run any more: %s", error_text(errno));
}
