/* Direct reads (direct/direct.h): which files they are for, and the call that uses them.
 *
 * Threads: any; data are read without the connection's lock. Buffers: the caller's. Errors: none of
 * a read; what fails here is asked of the servers. */
#include "client/api_impl.h"

#include <stdlib.h>

int direct_switch(struct client *c)
{
	const char *wish = getenv("SHEAF_DIRECT");
	bool on = wish && strcmp(wish, "on") == 0;

	if (wish && !on && strcmp(wish, "off") != 0) {
		why_set("$SHEAF_DIRECT is '%s', but must be on or off; unset it, or take one of "
			"them",
			wish);
		return -EINVAL;
	}
	client_set_direct(c, on);
	return 0;
}

void client_set_direct(struct client *c, bool on)
{
	c->direct.on = on;
}

static bool may_read(const struct cfile *f)
{
	return f->unsynced && (f->flags & OPEN_READ) && f->c->mover == METHOD_AUTO &&
	       !file_locks_lost(f);
}

static struct direct_file *direct_of(struct cfile *f)
{
	if (!f->direct)
		f->direct = direct_file_new(
			&f->c->direct,
			&(struct direct_where){ .layout = &f->layout,
						.targets = f->targets,
						.ino = f->cap.ino,
						.obj_gen = f->cap.obj_gen,
						.keeper = client_meta_of(f->c, f->h.ino) });
	return f->direct;
}

int client_direct_begin(struct cfile *f, uint64_t off, uint64_t len,
			struct direct_piece out[DIRECT_PIECES])
{
	int n = may_read(f) && direct_of(f) ? direct_read_begin(f->direct, off, len, out) : 0;

	f->c->n_ops += n > 0;
	return n;
}

bool client_direct_end(struct cfile *f, const struct direct_piece *p, int n, int error)
{
	bool valid = direct_read_end(f->direct, p, n, error);

	f->c->n_ops--;
	return valid && !file_locks_lost(f);
}

ssize_t api_read_direct(struct sheaf_file *f, void *buf, size_t len, uint64_t off)
{
	struct sheaf *fs = f->fs;
	struct direct_piece p[DIRECT_PIECES];
	bool valid;
	int n, error;

	if (!fs->b.client->direct.on)
		return -EAGAIN;
	pthread_mutex_lock(&fs->d->lock);
	n = client_direct_begin(f->f, off, len, p);
	pthread_mutex_unlock(&fs->d->lock);
	if (!n)
		return -EAGAIN;
	error = direct_read(fs->b.loop->env, p, n, buf);
	pthread_mutex_lock(&fs->d->lock);
	valid = client_direct_end(f->f, p, n, error);
	pthread_mutex_unlock(&fs->d->lock);
	return valid ? (ssize_t)len : -EAGAIN;
}
