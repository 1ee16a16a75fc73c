/* Sheaf mounts of this host, as the kernel lists them: how to find, reach and unmount them. */
#include "base/base.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Decodes a path of mountinfo: "\040" is a space. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = 0;
}

int mount_find(const char *dir, char dev[MOUNT_DEV])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, at[PATH_MAX], found[MOUNT_DEV];
	size_t room = 0;
	int r = -ENOENT;

	if (!f)
		return -errno;
	while (getline(&line, &room, f) > 0) { /* the last match is the topmost mount */
		if (sscanf(line, "%*d %*d %31s %*s %4095s", found, at) != 2 ||
		    !strstr(line, " - fuse.sheaf "))
			continue;
		unescape(at);
		if (strcmp(at, dir) != 0)
			continue;
		strcpy(dev, found);
		r = 0;
	}
	free(line);
	fclose(f);
	return r;
}

bool mount_of_path(const char *path, char *dir, char *source)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, *rest, at[PATH_MAX], from[PATH_MAX];
	size_t room = 0, n, best = 0;

	*dir = 0;
	while (f && getline(&line, &room, f) > 0) { /* of two mounts there, the last one is seen */
		if (sscanf(line, "%*d %*d %*s %*s %4095s", at) != 1)
			continue;
		unescape(at);
		n = strlen(at) == 1 ? 0 : strlen(at);
		if (n < best || strncmp(path, at, n) != 0 || (path[n] && path[n] != '/'))
			continue;
		best = n;
		rest = strstr(line, " - fuse.sheaf ");
		*dir = 0;
		if (!rest || sscanf(rest, " - fuse.sheaf %4095s", from) != 1)
			continue; /* another file system hides it, or has it */
		unescape(from);
		strcpy(dir, at);
		strcpy(source, from);
	}
	free(line);
	if (f)
		fclose(f);
	return f && *dir;
}

int mount_control(const char *dir, struct sockaddr_un *a, unsigned *len)
{
	char dev[MOUNT_DEV];
	int r = mount_find(dir, dev);

	if (r)
		return r;
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	*len = (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 +
			  (size_t)snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1,
					   "sheaf-mount:%s", dev));
	r = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return r < 0 ? -errno : r;
}

int mount_reach(const char *dir, unsigned seconds, uid_t *who)
{
	struct timeval patience = { .tv_sec = (time_t)seconds };
	struct ucred u;
	struct sockaddr_un a;
	socklen_t len, n = sizeof(u);
	int fd = mount_control(dir, &a, &len), r;

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	/* of connect(), too */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&a, len) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n)) {
		r = -errno;
		close(fd);
		return r;
	}
	*who = u.uid;
	return fd;
}

/* fusermount3 may unmount for the user that mounted it. */
static int ask_fusermount(const char *dir, bool lazy, bool quiet)
{
	const char *argv[8] = { "fusermount3", "-u" };
	int n = 2, status;
	pid_t pid;

	if (lazy)
		argv[n++] = "-z";
	if (quiet)
		argv[n++] = "-q";
	argv[n++] = "--";
	argv[n++] = dir;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		execvp(argv[0], (char **)(uintptr_t)argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

int mount_remove(const char *dir, bool lazy, bool quiet)
{
	if (umount2(dir, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	return errno == EPERM ? ask_fusermount(dir, lazy, quiet) : -errno;
}
