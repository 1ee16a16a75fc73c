/* The identity for which a request of the kernel is executed.
 *
 * The kernel passes uid and gid, and has checked permissions itself with all groups of the process
 * (option default_permissions); the servers check again. Most calls need no supplementary groups
 * for that, and reading them from /proc costs time: they are read only after a server refused a
 * call without them.
 *
 * Calls that need no permission carry no credential and run as the daemon itself: root, or the one
 * user of its key. What the kernel has permitted and the servers cannot know about is done as root;
 * a daemon with the key of one user is refused then. */
#include <stdio.h>
#include <stdlib.h>

#include "mount/mount_priv.h"

const struct sheaf_cred cred_root = { 0 };

int proc_status(pid_t pid, char *text, size_t size)
{
	char path[32];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	n = fread(text, 1, size - 1, f);
	fclose(f);
	text[n] = 0;
	return 0;
}

void caller_init(struct caller *c, const struct worker *w)
{
	c->cred = (struct sheaf_cred){
		.uid = w->ctx.uid, .gid = w->ctx.gid, .gids = c->gids, .umask = w->ctx.umask
	};
	c->pid = w->ctx.pid;
	c->full = w->ctx.uid == 0;
}

void caller_groups(struct caller *c)
{
	char text[16384], *p, *end;
	unsigned long gid;

	if (c->full)
		return;
	c->full = true;
	if (proc_status(c->pid, text, sizeof(text)))
		return;
	p = strstr(text, "\nGroups:");
	for (p = p ? p + strlen("\nGroups:") : text; c->cred.n_gids < ARRAY_LEN(c->gids); p = end) {
		gid = strtoul(p, &end, 10);
		if (end == p || *p == '\n')
			break;
		c->gids[c->cred.n_gids++] = (uint32_t)gid;
	}
}

bool caller_should_retry(struct caller *c, int r)
{
	if ((r != -EACCES && r != -EPERM) || c->full)
		return false;
	caller_groups(c);
	return c->cred.n_gids > 0;
}
