/* The public interface: reads past servers of this host (near.c).
 *
 * Threads: any; data are read without the connection's lock. Buffers: the caller's. Errors: none of
 * a read; what fails here is asked of the servers. */
#include "client/api_priv.h"

#define PIECES 64

void sheaf_set_near(struct sheaf *fs, int on)
{
	pthread_mutex_lock(&fs->lock);
	client_set_near(fs->b.client, on);
	pthread_mutex_unlock(&fs->lock);
}

/* 0, or the reason why not everything was read. */
static int read_pieces(struct env *e, const struct lent *lent, int n, char *buf)
{
	for (int i = 0; i < n; i++) {
		struct iovec mem = { buf, lent[i].length };
		ssize_t r = e->file->read_cached(e, lent[i].fd, &mem, 1, (off_t)lent[i].offset,
						 lent[i].memory);

		if (r < 0)
			return (int)r;
		if ((uint64_t)r < lent[i].length)
			return -EAGAIN;
		buf += r;
	}
	return 0;
}

ssize_t api_read_near(struct sheaf_file *f, void *buf, size_t len, uint64_t off)
{
	struct sheaf *fs = f->fs;
	struct lent lent[PIECES];
	bool good;
	int n, error;

	if (!fs->b.client->near_reads)
		return -EAGAIN;
	pthread_mutex_lock(&fs->lock);
	n = near_lend(f->f, off, len, lent, PIECES);
	pthread_mutex_unlock(&fs->lock);
	if (!n)
		return -EAGAIN;
	error = read_pieces(fs->b.loop->env, lent, n, buf);
	pthread_mutex_lock(&fs->lock);
	good = near_return(f->f, lent, n, error);
	pthread_mutex_unlock(&fs->lock);
	return good ? (ssize_t)len : -EAGAIN;
}
