/* sheaf mount -o remount: switches between read-only and writable, and allows or forbids set-id
 * bits, devices and program execution.
 *
 * The kernel does it, for root only. Then the daemon is told, because it sets no access times while
 * the mount is read-only. All other options are fixed when the daemon starts. Runs in the command,
 * not in the daemon. */
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "mount/mount_priv.h"

#define DAEMON_SECONDS 5 /* for an answer of the daemon */

static int complain(const char *dir, const char *what)
{
	fprintf(stderr, "sheaf mount: %s %s\n", dir, what);
	return 1;
}

/* The current flags of the mount: a remount drops those that are not given again. */
static unsigned long flags_of(const struct statvfs *v)
{
	static const struct {
		unsigned long has, flag;
	} table[] = { { ST_RDONLY, MS_RDONLY },
		      { ST_NOSUID, MS_NOSUID },
		      { ST_NODEV, MS_NODEV },
		      { ST_NOEXEC, MS_NOEXEC },
		      { ST_SYNCHRONOUS, MS_SYNCHRONOUS } };
	unsigned long flags = 0;

	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (v->f_flag & table[i].has)
			flags |= table[i].flag;
	return flags;
}

static int tell_daemon(const char *dir, bool read_only)
{
	char word[8] = "";
	uid_t who;
	int fd = mount_reach(dir, DAEMON_SECONDS, &who);
	bool heard = fd >= 0 && send(fd, read_only ? "ro" : "rw", 2, MSG_NOSIGNAL) == 2 &&
		     recv(fd, word, sizeof(word) - 1, 0) > 0 && strcmp(word, "ok") == 0;

	if (fd >= 0)
		close(fd);
	return heard ? 0 : complain(dir, "is remounted, but its daemon does not answer");
}

static int refused(const char *dir)
{
	char text[PATH_MAX + 128];

	if (errno == EPERM)
		return complain(dir,
				"can be remounted by root only; 'sheaf umount' and 'sheaf mount "
				"-o ro' do the same");
	if (errno == EBUSY) {
		snprintf(text, sizeof(text),
			 "has files that are open for writing ('fuser -vm %s' lists the processes)",
			 dir);
		return complain(dir, text);
	}
	return complain(dir, error_text(errno));
}

int remount_run(const struct mount_opts *o)
{
	const char *dir = o->dir;
	char dev[MOUNT_DEV];
	unsigned long flags;
	struct statvfs v;

	if (mount_find(dir, dev))
		return complain(dir, "is not a mounted Sheaf file system");
	if (statvfs(dir, &v))
		return complain(dir, error_text(errno));
	flags = (flags_of(&v) & ~o->flags_off) | o->flags_on;
	if (mount(NULL, dir, NULL, MS_REMOUNT | flags, NULL))
		return refused(dir);
	if (o->fixed[0])
		fprintf(stderr,
			"sheaf mount: %s: a remount does not change '%s'; unmount and mount for that\n",
			dir, o->fixed);
	return tell_daemon(dir, flags & MS_RDONLY);
}
