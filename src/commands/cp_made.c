/* The directories that sheaf cp -r fills for its arguments, by inode number: paths do not tell,
 * since links and mounts give a directory many.
 *
 * Threads: any; the lock guards the table. */
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>

#include "commands/cp_made.h"
#include "sheaf_handle.h"

struct made_dir {
	struct hnode node;
	uint64_t ino;
};

int made_init(struct made_dirs *m)
{
	pthread_mutex_init(&m->lock, NULL);
	return htab_init(&m->inodes);
}

static void free_dir(struct hnode *n, void *arg)
{
	(void)arg;
	free(container_of(n, struct made_dir, node));
}

void made_destroy(struct made_dirs *m)
{
	htab_walk(&m->inodes, free_dir, NULL);
	htab_destroy(&m->inodes);
	pthread_mutex_destroy(&m->lock);
}

int made_add(struct made_dirs *m, uint64_t ino)
{
	struct made_dir *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	d->ino = ino;
	pthread_mutex_lock(&m->lock);
	r = htab_insert(&m->inodes, &d->node, hash_u64(ino));
	pthread_mutex_unlock(&m->lock);
	if (r)
		free(d);
	return r;
}

bool made_has(struct made_dirs *m, uint64_t ino)
{
	struct hnode *n;

	pthread_mutex_lock(&m->lock);
	n = htab_first(&m->inodes, hash_u64(ino));
	while (n && container_of(n, struct made_dir, node)->ino != ino)
		n = htab_next(n);
	pthread_mutex_unlock(&m->lock);
	return n != NULL;
}

/* A mount shows the inode numbers of the servers. That the number does not belong to another file
 * system is told by the time of the last change, which is exact to the nanosecond. */
bool made_is_ours(struct cli *c, const struct place *p, const struct stat *st)
{
	struct sheaf_handle h = { st->st_ino, SHEAF_GEN };
	struct statfs fs;
	struct stat own;

	if (p->inside)
		return true;
	if (statfs(p->path, &fs) < 0 ||
	    (fs.f_type != FUSE_SUPER_MAGIC && fs.f_type != NFS_SUPER_MAGIC))
		return false;
	return sheaf_h_getattr(c->fs, NULL, h, &own) == 0 && S_ISDIR(own.st_mode) &&
	       own.st_ctim.tv_sec == st->st_ctim.tv_sec &&
	       own.st_ctim.tv_nsec == st->st_ctim.tv_nsec;
}
