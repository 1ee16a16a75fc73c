/* A file that another process of this host has open: small pieces of it are read now, or not at all.
 *
 * Where the file is in memory they are copied out of a mapping, which needs no system call. It is as long as such a file may
 * become: what it does not hold yet is -EAGAIN (pieces_guard), and what lies beyond the mapping is read.
 *
 * Threads: none. Buffers: the caller's. */
#include <sys/uio.h>

#include "core/core.h"

#define MAP_BYTES (4096 * MIB) /* of addresses */

ssize_t file_home(struct env *e, int fd, char *path, size_t n, uint64_t *dev, uint64_t *ino)
{
	struct stat st;
	int r = e->file->where ? e->file->fstat(e, fd, &st) : -EOPNOTSUPP;

	if (r)
		return r;
	*dev = st.st_dev;
	*ino = st.st_ino;
	return e->file->where(e, fd, path, n);
}

/* Is it the one, and can its file system tell what is in memory? */
static int check(struct env *e, int fd, bool memory, uint64_t dev, uint64_t ino)
{
	char first;
	struct iovec mem = { &first, 1 };
	struct stat st;
	int r = ino ? e->file->fstat(e, fd, &st) : 0;

	if (!r && ino && (st.st_dev != dev || st.st_ino != ino))
		r = -ENOENT;
	if (!r && e->file->read_now(e, fd, &mem, 1, 0, memory) == -EOPNOTSUPP)
		r = -EOPNOTSUPP;
	return r;
}

int near_file_open(struct near_file *f, struct env *e, int dir, const char *path, bool memory,
		   uint64_t dev, uint64_t ino)
{
	int fd = e->file->open_now(e, dir, path);
	int r = fd < 0 ? fd : check(e, fd, memory, dev, ino);

	if (r) {
		if (fd >= 0)
			e->file->close(e, fd);
		return r;
	}
	*f = (struct near_file){ .env = e, .fd = fd, .memory = memory };
	pieces_guard();
	if (memory && e->file->map)
		f->map = e->file->map(e, fd, MAP_BYTES, false);
	return 0;
}

void near_file_close(struct near_file *f)
{
	if (f->map)
		f->env->file->unmap(f->env, f->map, MAP_BYTES);
	f->env->file->close(f->env, f->fd);
}

int near_file_read(const struct near_file *f, void *buf, size_t n, uint64_t off)
{
	struct iovec mem = { buf, n };

	if (f->map && off < MAP_BYTES && n <= MAP_BYTES - off) {
		mem.iov_base = (void *)(uintptr_t)(f->map + off);
		return pieces_pack(buf, &mem, 1) ? -EAGAIN : 0;
	}
	return f->env->file->read_now(f->env, f->fd, &mem, 1, (off_t)off, f->memory) == (ssize_t)n ?
		       0 :
		       -EAGAIN;
}
