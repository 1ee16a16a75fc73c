/* Replaces a server's metadata by a backup copy, while that server does not run.
 *
 * Threads: none; blocks. Errors: 0 or -errno with one line that says what to do. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "server/sreq.h"

/* Locks the storage against a running server. Formats it when there is none (a new disk). */
static int hold(struct env *e, const struct conf *c, uint32_t target, struct stamp *stamp,
		char *err, size_t n)
{
	const char *path = c->targets[target].storage;
	int fd = disk_hold(e, path, &c->fs_id, target, stamp, err, n);

	if (fd != -ENOENT)
		return fd;
	fd = disk_format(e, path, &c->fs_id, target, err, n);
	return fd ? fd : disk_hold(e, path, &c->fs_id, target, stamp, err, n);
}

static void when(char out[32], time_t t)
{
	struct tm tm;

	localtime_r(&t, &tm);
	strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm);
}

/* Refuses a database that changed after the copy was made. */
static int older(const char *dir, int64_t time, char *err, size_t n)
{
	char path[CONF_PATH_MAX + 32], theirs[32], ours[32];
	struct stat st;

	snprintf(path, sizeof(path), "%s/data.mdb", dir);
	if (stat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if ((int64_t)st.st_mtim.tv_sec * (int64_t)NSEC_PER_SEC + st.st_mtim.tv_nsec <= time)
		return 0;
	when(theirs, st.st_mtim.tv_sec);
	when(ours, (time_t)(time / (int64_t)NSEC_PER_SEC));
	snprintf(err, n,
		 "the metadata in %s changed at %s, after this backup (%s): --force replaces them",
		 dir, theirs, ours);
	return -EEXIST;
}

int server_restore(struct env *e, const struct conf *c, uint32_t target,
		   const struct server_part *p, bool force, char *err, size_t err_len)
{
	const struct meta_part part = { p->fd, p->off, p->size, p->crc, p->time };
	char dir[CONF_PATH_MAX + 8];
	struct meta_opts m = { .dir = dir,
			       .fs = c->fs_id,
			       .target = target,
			       .partition = partition_of(c, target),
			       .nosync = c->nosync };
	int held, r;

	if (!(c->targets[target].roles & ROLE_META)) {
		snprintf(err, err_len, "%s keeps no metadata", c->targets[target].name);
		return -EINVAL;
	}
	held = hold(e, c, target, &m.stamp, err, err_len);
	if (held < 0)
		return held;
	snprintf(dir, sizeof(dir), "%s/meta", c->targets[target].storage);
	err[0] = 0;
	r = force ? 0 : older(dir, p->time, err, err_len);
	if (!r)
		r = meta_restore(&m, &part, err, err_len);
	if (r && !err[0])
		snprintf(err, err_len, "metadata in %s: %s", dir, error_text(r));
	e->file->close(e, held);
	return r;
}
