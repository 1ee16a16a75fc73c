/* Direct reads: the object directories of servers on this host, and the object files that are open.
 * The invariants, threads and errors are described in direct.h. */
#include "direct/direct.h"
#include "net/peer.h"

#include <assert.h>
#include <stdlib.h>

#define FILES_MAX 256 /* object files that are open at once */

/* The object directory of a server on this host. */
struct object_dir {
	char *path; /* NULL: not known, or this process has no access */
	uint64_t dev, ino;
	bool open; /* fd and in_memory are valid */
	bool in_memory;
	int fd;
};

struct object_file {
	struct list lru;
	bool open;
	bool gone; /* the last user closes it */
	int fd;
	uint32_t users; /* direct reads in progress */
};

struct direct_file {
	struct list link; /* in d->files */
	struct direct *d;
	struct direct_where where;
	struct object_file objects[];
};

int direct_init(struct direct *d, struct env *e, const struct peer *peers)
{
	d->env = e;
	d->peers = peers;
	list_init(&d->files);
	list_init(&d->lru);
	d->dirs = calloc(CONF_MAX_TARGETS, sizeof(*d->dirs)); /* untouched pages cost no memory */
	return d->dirs ? 0 : -ENOMEM;
}

void direct_fini(struct direct *d)
{
	assert(!d->n_open);
	free(d->dirs);
}

/* ---- object directories ---- */

static void dir_forget(struct direct *d, struct object_dir *o)
{
	if (o->open)
		d->env->file->close(d->env, o->fd);
	free(o->path);
	*o = (struct object_dir){ 0 };
}

void direct_session_up(struct direct *d, struct peer *p, const struct wire_session_res *r)
{
	const struct wire_bytes *path = &r->objects.path;
	struct object_dir *o = &d->dirs[p->target];

	dir_forget(d, o);
	if (!peer_is_local(p) || !path->len || !d->env->file->open_dir_cached)
		return;
	*o = (struct object_dir){ .path = strndup((const char *)path->p, path->len),
				  .dev = r->objects.dev,
				  .ino = r->objects.ino };
}

/* Is the directory known, and can this process open it? */
static bool dir_open(struct direct *d, struct object_dir *o)
{
	int fd;

	if (o->open || !o->path)
		return o->open;
	fd = d->env->file->open_dir_cached(d->env, o->path, o->dev, o->ino, &o->in_memory);
	o->open = fd >= 0;
	o->fd = fd;
	if (fd < 0 && fd != -EAGAIN)
		dir_forget(d, o);
	return o->open;
}

/* ---- object files ---- */

static void object_close(struct direct *d, struct object_file *o)
{
	list_del(&o->lru);
	d->env->file->close(d->env, o->fd);
	d->n_open--;
	*o = (struct object_file){ 0 };
	list_init(&o->lru);
}

/* Closes the file now, or with its last user. */
static void object_drop(struct direct *d, struct object_file *o)
{
	o->gone = o->users > 0;
	if (o->open && !o->users)
		object_close(d, o);
}

void direct_link_down(struct direct *d, const struct peer *p)
{
	struct direct_file *f;

	dir_forget(d, &d->dirs[p->target]);
	list_for_each(f, &d->files, link)
		for (uint32_t i = 0; i < f->where.layout->width; i++)
			if (f->where.targets[i] == p->target || f->where.keeper == p->target)
				object_drop(d, &f->objects[i]);
}

struct direct_file *direct_file_new(struct direct *d, const struct direct_where *w)
{
	struct direct_file *f = calloc(1, sizeof(*f) + w->layout->width * sizeof(f->objects[0]));

	if (!f)
		return NULL;
	f->d = d;
	f->where = *w;
	for (uint32_t i = 0; i < w->layout->width; i++)
		list_init(&f->objects[i].lru);
	list_push(&d->files, &f->link);
	return f;
}

void direct_file_free(struct direct_file *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; i < f->where.layout->width; i++) {
		assert(!f->objects[i].users);
		object_drop(f->d, &f->objects[i]);
	}
	list_del(&f->link);
	free(f);
}

static void make_room(struct direct *d)
{
	struct object_file *o, *tmp;

	list_for_each_safe(o, tmp, &d->lru, lru) {
		if (d->n_open < FILES_MAX)
			break;
		if (!o->users)
			object_close(d, o);
	}
}

static bool object_open(struct direct_file *f, uint32_t index)
{
	struct direct *d = f->d;
	struct object_dir *dir = &d->dirs[f->where.targets[index]];
	struct object_file *o = &f->objects[index];
	char path[OBJECT_PATH];
	int fd;

	make_room(d);
	object_path(path, &(struct object_id){ f->where.ino, f->where.obj_gen, index });
	fd = d->env->file->open_cached(d->env, dir->fd, path);
	if (fd < 0 && fd != -ENOENT && fd != -EAGAIN) /* not permitted, or not supported */
		dir_forget(d, dir);
	if (fd < 0)
		return false;
	o->fd = fd;
	o->open = true;
	d->n_open++;
	return true;
}

/* Takes a reference to the file of an object; NULL: ask the server. */
static struct object_file *object_take(struct direct_file *f, uint32_t index)
{
	struct direct *d = f->d;
	uint32_t target = f->where.targets[index];
	struct object_file *o = &f->objects[index];

	if (!dir_open(d, &d->dirs[target]) || d->peers[target].state != PEER_UP || o->gone ||
	    (!o->open && !object_open(f, index)))
		return NULL;
	list_del(&o->lru);
	list_push(&d->lru, &o->lru);
	o->users++;
	return o;
}

static void put_all(struct direct_file *f, const struct direct_piece *p, int n)
{
	for (int i = 0; i < n; i++) {
		struct object_file *o = &f->objects[p[i].index];

		if (!--o->users && o->gone)
			object_close(f->d, o);
	}
}

/* ---- reads ---- */

int direct_read_begin(struct direct_file *f, uint64_t off, uint64_t len,
		      struct direct_piece out[DIRECT_PIECES])
{
	const struct layout *l = f->where.layout;
	int n = 0;

	if (!f->d->on || !len || off > INT64_MAX || len > INT64_MAX - off ||
	    (l->width > 1 && len / l->unit + 2 > DIRECT_PIECES))
		return 0;
	for (; len; n++) {
		struct direct_piece *p = &out[n];
		const struct object_file *o;

		layout_locate(l, off, &p->index, &p->offset);
		o = object_take(f, p->index);
		if (!o) {
			put_all(f, out, n);
			return 0;
		}
		p->fd = o->fd;
		p->in_memory = f->d->dirs[f->where.targets[p->index]].in_memory;
		p->length = l->width == 1 ? len : MIN(len, l->unit - p->offset % l->unit);
		off += p->length;
		len -= p->length;
	}
	return n;
}

int direct_read(struct env *e, const struct direct_piece *p, int n, void *buf)
{
	char *to = buf;

	for (int i = 0; i < n; i++) {
		struct iovec mem = { to, p[i].length };
		ssize_t r = e->file->read_cached(e, p[i].fd, &mem, 1, (off_t)p[i].offset,
						 p[i].in_memory);

		if (r < 0)
			return (int)r;
		if ((uint64_t)r < p[i].length)
			return -EAGAIN;
		to += r;
	}
	return 0;
}

static bool lease_is_young(struct env *e, const struct peer *p)
{
	return p->state == PEER_UP &&
	       e->clock->now(e) < p->renewed + p->lease_ms * NSEC_PER_MSEC / 2;
}

bool direct_read_end(struct direct_file *f, const struct direct_piece *p, int n, int error)
{
	struct direct *d = f->d;

	put_all(f, p, n);
	if (error == -EOPNOTSUPP) /* this file system cannot tell what is cached */
		dir_forget(d, &d->dirs[f->where.targets[p[0].index]]);
	return !error && lease_is_young(d->env, &d->peers[f->where.keeper]);
}
