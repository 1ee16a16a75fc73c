/* Object files of servers on this host: what is in memory is read past the server.
 *
 * The server tells where these files are when a session begins over a Unix socket
 * (session_res.objects); the host decides whether this process may open them. A descriptor lives no
 * longer than that link: only a client that the server knows reads here, and no client keeps the
 * server's disk busy after the server has ended. The guarantees are those of a read that the server
 * answers: data are in the file when their write is answered, and a file is truncated, never
 * replaced, while it is open. Only locks need more: a client that was stopped for longer than a
 * lease may have lost its locks, and would see what their next owner writes. So data count only if
 * the lease was still young after the read.
 *
 * Threads: the client's. Buffers: none. Errors: none; what cannot be read here is asked of the
 * server. */
#include <assert.h>
#include <stdlib.h>

#include "client/cli_priv.h"

#define NEAR_FILES 256 /* most that are open at once */

static const struct file_ops *files_of(const struct client *c)
{
	return c->loop->env->file;
}

static void home_leave(struct client *c, struct home *h)
{
	if (h->visited)
		files_of(c)->close(c->loop->env, h->dir);
	free(h->path);
	*h = (struct home){ 0 };
}

void near_met(struct peer *p, const struct wire_session_res *r)
{
	const struct wire_bytes *path = &r->objects.path;
	struct client *c = p->owner;
	struct home *h = &c->homes[p->target];

	home_leave(c, h);
	if (!peer_is_local(p) || !path->len || !files_of(c)->open_dir_cached)
		return;
	*h = (struct home){ .path = strndup((const char *)path->p, path->len),
			    .dev = r->objects.dev,
			    .ino = r->objects.ino };
}

/* Is the directory known, and can this process open it? */
static bool home_visit(struct client *c, struct home *h)
{
	int dir;

	if (h->visited || !h->path)
		return h->visited;
	dir = files_of(c)->open_dir_cached(c->loop->env, h->path, h->dev, h->ino, &h->memory);
	h->visited = dir >= 0;
	h->dir = dir;
	if (dir < 0 && dir != -EAGAIN)
		home_leave(c, h);
	return h->visited;
}

static bool lease_is_young(const struct peer *p)
{
	struct env *e = p->net->loop->env;

	return p->state == PEER_UP &&
	       e->clock->now(e) < p->renewed + p->lease_ms * NSEC_PER_MSEC / 2;
}

static void close_near(struct client *c, struct near *n)
{
	list_del(&n->lru);
	files_of(c)->close(c->loop->env, n->fd);
	c->n_near--;
	*n = (struct near){ 0 };
	list_init(&n->lru);
}

/* Closes the file, now or with its last user. */
static void drop(struct cfile *f, struct near *n)
{
	n->gone = n->users > 0;
	if (n->open && !n->users)
		close_near(f->c, n);
}

void near_parted(struct peer *p)
{
	struct client *c = p->owner;
	struct cfile *f;

	home_leave(c, &c->homes[p->target]);
	list_for_each(f, &c->files, link)
		for (uint32_t i = 0; f->near && i < f->layout.width; i++)
			if (f->targets[i] == p->target || peer_of(c, f->h.ino) == p)
				drop(f, &f->near[i]);
}

void near_free(struct cfile *f)
{
	for (uint32_t i = 0; f->near && i < f->layout.width; i++) {
		assert(!f->near[i].users);
		drop(f, &f->near[i]);
	}
	free(f->near);
	f->near = NULL;
}

static void make_room(struct client *c)
{
	struct near *n, *tmp;

	list_for_each_safe(n, tmp, &c->near_lru, lru) {
		if (c->n_near < NEAR_FILES)
			break;
		if (!n->users)
			close_near(c, n);
	}
}

static bool open_near(struct cfile *f, uint32_t index, struct near *n)
{
	struct client *c = f->c;
	struct home *h = &c->homes[f->targets[index]];
	char path[OBJECT_PATH];
	int fd;

	make_room(c);
	object_path(path, &(struct object_id){ f->cap.ino, f->cap.obj_gen, index });
	fd = files_of(c)->open_cached(c->loop->env, h->dir, path);
	if (fd < 0 && fd != -ENOENT && fd != -EAGAIN) /* not permitted, or not supported */
		home_leave(c, h);
	if (fd < 0)
		return false;
	n->fd = fd;
	n->open = true;
	c->n_near++;
	return true;
}

/* Takes a reference to the file of an object; NULL: ask the server. */
static struct near *take(struct cfile *f, uint32_t index)
{
	const struct peer *p = &f->c->peers[f->targets[index]];
	struct near *n = &f->near[index];

	if (!home_visit(f->c, &f->c->homes[p->target]) || p->state != PEER_UP || n->gone ||
	    (!n->open && !open_near(f, index, n)))
		return NULL;
	list_del(&n->lru);
	list_push(&f->c->near_lru, &n->lru);
	n->users++;
	return n;
}

static bool prepare(struct cfile *f)
{
	if (f->near)
		return true;
	f->near = calloc(f->layout.width, sizeof(*f->near));
	for (uint32_t i = 0; f->near && i < f->layout.width; i++)
		list_init(&f->near[i].lru);
	return f->near != NULL;
}

static bool may(const struct cfile *f)
{
	return f->unsynced && (f->flags & OPEN_READ) && f->c->mover == MOVER_AUTO &&
	       !file_locks_lost(f);
}

static void give_back(struct cfile *f, const struct lent *lent, int n)
{
	for (int i = 0; i < n; i++) {
		struct near *file = &f->near[lent[i].index];

		if (!--file->users && file->gone)
			close_near(f->c, file);
	}
}

int near_lend(struct cfile *f, uint64_t off, uint64_t len, struct lent *out, int max)
{
	const struct layout *l = &f->layout;
	int n = 0;

	if (!may(f) || !len || off > INT64_MAX || len > INT64_MAX - off || !prepare(f) ||
	    (l->width > 1 && len / l->unit + 2 > (uint64_t)max))
		return 0;
	for (; len; n++) {
		struct lent *p = &out[n];
		const struct near *file;

		layout_locate(l, off, &p->index, &p->offset);
		file = take(f, p->index);
		if (!file) {
			give_back(f, out, n);
			return 0;
		}
		p->fd = file->fd;
		p->memory = f->c->homes[f->targets[p->index]].memory;
		p->length = l->width == 1 ? len : MIN(len, l->unit - p->offset % l->unit);
		off += p->length;
		len -= p->length;
	}
	f->c->n_ops++;
	return n;
}

bool near_return(struct cfile *f, const struct lent *lent, int n, int error)
{
	struct client *c = f->c;

	give_back(f, lent, n);
	c->n_ops--;
	if (error == -EOPNOTSUPP) /* this file system cannot tell what is in memory */
		home_leave(c, &c->homes[f->targets[lent[0].index]]);
	return !error && !file_locks_lost(f) && lease_is_young(peer_of(c, f->h.ino));
}
