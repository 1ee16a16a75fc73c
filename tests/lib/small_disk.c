#include "small_disk.h"

#include <sys/mount.h>

static char mounted[CLUSTER_PATH]; /* empty: nothing is mounted */

/* A failed test leaves its servers to cluster_clean(), which runs later. */
static void unmount(int status, void *arg)
{
	(void)status, (void)arg;
	if (mounted[0])
		umount2(mounted, MNT_DETACH);
}

/* Moves the storage of server i to a tmpfs of this size. */
static void move_to_tmpfs(struct cluster *c, int i, const char *size)
{
	char mnt[CLUSTER_PATH], opts[64], cmd[3 * CLUSTER_PATH], old[64], new[64];

	snprintf(mnt, sizeof(mnt), "%s/small%d", c->dir, i);
	snprintf(opts, sizeof(opts), "size=%s", size);
	CHECK_EQ(mkdir(mnt, 0700), 0);
	CHECK_EQ(mount("tmpfs", mnt, "tmpfs", 0, opts), 0);
	snprintf(mounted, sizeof(mounted), "%s", mnt);
	CHECK_EQ(on_exit(unmount, NULL), 0);
	snprintf(cmd, sizeof(cmd), "cp -a '%s/server%d/.' '%s/'", c->dir, i, mnt);
	CHECK_EQ(system(cmd), 0);
	snprintf(old, sizeof(old), "storage = server%d\n", i);
	snprintf(new, sizeof(new), "storage = small%d\n", i);
	edit_file(c->conf, old, new);
}

void small_disk_start(struct cluster *c, int full, const char *size)
{
	cluster_create(c, &(struct cluster_opts){ .servers = 2 });
	edit_file(c->conf, "roles = meta data\n", "roles = meta\n"); /* server 0 */
	edit_file(c->conf, "roles = meta data\n", "roles = data\n"); /* server 1 */
	move_to_tmpfs(c, full, size);
	cluster_start(c);
}

void small_disk_stop(struct cluster *c)
{
	cluster_stop(c);
	CHECK_EQ(umount(mounted), 0);
	mounted[0] = 0;
}
