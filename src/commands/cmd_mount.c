/* sheaf mount, sheaf umount: mount the file system at a directory. The program sheaf-mount does the
 * work, so that only hosts that mount need libfuse. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commands/commands.h"

#define END_SECONDS 30 /* time for the daemon to write back data and close its session */

enum { FOREGROUND, OPTIONS, TAKEOVER };

static int run_mount(struct cli *c)
{
	char program[CLI_PATH_MAX];
	const char *argv[2 * CLI_MAX_MANY + 8] = { "sheaf-mount" };
	int n = 1;

	if (c->opt[TAKEOVER])
		argv[n++] = "--takeover";
	if (c->conf) {
		argv[n++] = "--conf";
		argv[n++] = c->conf;
	}
	if (c->opt[FOREGROUND])
		argv[n++] = "-f";
	for (int i = 0; i < c->n_many; i++) {
		argv[n++] = "-o";
		argv[n++] = c->many[i];
	}
	argv[n++] = "--";
	argv[n++] = c->args[0];
	cli_find_program("sheaf-mount", program);
	execvp(program, (char **)(uintptr_t)argv);
	return cli_error(c, "%s cannot be run: %s%s", program, error_text(errno),
			 errno == ENOENT ? "; it is part of the package sheaf-mount" : "");
}

const struct cli_command cmd_mount = {
	.name = "mount",
	.usage = "[-f] [-o OPTIONS] DIR | --takeover DIR",
	.summary = "mount the file system on a directory, for every program",
	.run = run_mount,
	.min_args = 1,
	.max_args = 1,
	.options = { { 'f', "foreground", NULL, "stay; Ctrl-C unmounts" },
		     { 'o', "options", "OPTIONS...", "as for mount(8), separated by commas" },
		     { 0, "takeover", NULL,
		       "a new daemon takes the mount over, with open files and locks" } },
	.more = "Returns when the mount answers. OPTIONS: ro, noatime, relatime, strictatime, nodiratime,\n"
		"allow_other, remount (with ro or rw), entry=S and attr=S (seconds that the kernel caches\n"
		"names and attributes), memory=SIZE, writeback (files of one mount only), nodirect, log=FILE, and\n"
		"those of mount(8). See sheaf-mount(8).\n",
	.examples = "  sheaf mount /mnt\n"
		    "  sheaf --conf local:/data/fs mount -f -o noatime /mnt\n",
};

/* ---- umount ---- */

/* Connects to the daemon; the connection ends when the daemon exits, or breaks if the daemon exits
 * before it reads the message. -1: no connection. */
static int reach_daemon(const char *dir)
{
	uid_t who;
	int fd = mount_reach(dir, END_SECONDS, &who);

	if (fd < 0)
		return -1;
	if ((who == 0 || who == geteuid() || geteuid() == 0) &&
	    send(fd, "wait", 4, MSG_NOSIGNAL) == 4)
		return fd;
	close(fd);
	return -1;
}

static int run_umount(struct cli *c)
{
	char dir[CLI_PATH_MAX], dev[MOUNT_DEV], byte;
	bool lazy = c->opt[0];
	int daemon, r;

	if (!realpath(c->args[0], dir)) {
		if (errno != ENOTCONN)
			return cli_fail_host(c, c->args[0], -errno);
		snprintf(dir, sizeof(dir), "%s", c->args[0]); /* the daemon died */
		lazy = true;
	}
	if (mount_find(dir, dev))
		return cli_error(c, "%s is not a mounted Sheaf file system", dir);
	daemon = reach_daemon(dir);
	r = mount_remove(dir, lazy, false);
	if (r) {
		if (daemon >= 0)
			close(daemon);
		if (r == -EBUSY)
			return cli_error(
				c,
				"%s is in use ('fuser -vm %s' lists the processes); --lazy "
				"unmounts it now and ends it with the last use",
				dir, dir);
		return cli_fail_host(c, dir, r);
	}
	if (daemon >= 0) {
		if (!lazy && recv(daemon, &byte, 1, 0) < 0 && errno == EAGAIN)
			return cli_error(c, "%s is unmounted, but its daemon still runs", dir);
		close(daemon);
	}
	return CLI_OK;
}

const struct cli_command cmd_umount = {
	.name = "umount",
	.usage = "[--lazy] DIR",
	.summary = "unmount a directory, and wait until its daemon has ended",
	.run = run_umount,
	.min_args = 1,
	.max_args = 1,
	.options = { { 'z', "lazy", NULL, "also when it is in use; it ends with the last use" } },
	.examples = "  sheaf umount /mnt\n",
};
