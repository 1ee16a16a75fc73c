/* Objects: finding, opening, removing, and the cache of their descriptors.
 *
 *   CLOSED -> OPENING -> OPEN -> CLOSED            the cache
 *                        OPEN -> REMOVING -> GONE  disk_remove
 *
 * Threads: the loop's, except functions named *_call(), which run on a worker and see only their
 * arguments. Errors: those of open are passed on; those of a sync without a waiting request are
 * latched (sync.c). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "disk/disk_impl.h"

struct get_wait {
	struct list link;
	struct object **out;
	struct req *q;
	uint64_t epoch;
	bool create;
};

struct disk_dir *object_dir(const struct object *o)
{
	return &o->disk->dirs[object_dir_index(o->id.ino)];
}

static struct object *object_find(struct disk *d, const struct object_id *id)
{
	for (struct hnode *n = htab_first(&d->table, hash_u64(id->ino)); n; n = htab_next(n)) {
		struct object *o = container_of(n, struct object, node);

		if (o->id.ino == id->ino && o->id.gen == id->gen && o->id.index == id->index)
			return o;
	}
	return NULL;
}

static struct object *object_new(struct disk *d, const struct object_id *id)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o || htab_insert(&d->table, &o->node, hash_u64(id->ino)) < 0) {
		free(o);
		return NULL;
	}
	o->disk = d;
	o->id = *id;
	o->fd = -1;
	o->floor = floor_known(d, id->ino);
	list_init(&o->lru);
	list_init(&o->turns);
	io_queue_init(&o->queue, &d->counters.merged);
	list_init(&o->waiters);
	object_gs_init(o);
	object_name(o->name, id);
	return o;
}

static void object_drop_unused(struct object *o)
{
	if (o->state != OBJECT_CLOSED || o->refs || o->latched || !list_empty(&o->waiters))
		return;
	htab_remove(&o->disk->table, &o->node);
	free(o);
}

static void object_lend(struct object *o, struct object **out)
{
	list_del(&o->lru);
	o->refs++;
	*out = o;
}

/* ---------------------------------------------------------------- opening */

static int open_dir(struct env *e, struct object_open *p)
{
	const struct file_ops *f = e->file;
	int fd = f->openat(e, p->objects_fd, p->dir_name, O_RDONLY | O_DIRECTORY, 0);

	if (fd == -ENOENT && p->create) {
		int r = f->mkdirat(e, p->objects_fd, p->dir_name, 0700);

		if (r < 0 && r != -EEXIST)
			return r;
		p->made_dir = true;
		fd = f->openat(e, p->objects_fd, p->dir_name, O_RDONLY | O_DIRECTORY, 0);
	}
	if (fd >= 0)
		p->dir_fd = fd;
	return fd < 0 ? fd : 0;
}

/* Opens the file if it exists. Storage format 1 had at most one object of a file on a server, so
 * its names have no index. */
static int open_file(struct env *e, struct object_open *p, const char *name)
{
	int fd = e->file->openat(e, p->dir_fd, name, O_RDWR | O_NOFOLLOW, 0);

	if (fd != -ENOENT || !p->old_name[0])
		return fd;
	if (!p->renames)
		return e->file->openat(e, p->dir_fd, p->old_name, O_RDWR | O_NOFOLLOW, 0);
	if (e->file->renameat(e, p->dir_fd, p->old_name, name) < 0)
		return fd;
	p->made_file = true; /* the new name needs a sync, like that of a new file */
	return e->file->openat(e, p->dir_fd, name, O_RDWR | O_NOFOLLOW, 0);
}

/* Runs on a worker. Makes no file for epochs below the floor; later waiters may still create it. */
static int open_call(struct env *e, struct io *io)
{
	struct object_open *p = io->arg;
	int r = base_find(e, p->base, p->ino, &p->floor);

	p->create = p->create && p->epoch >= p->floor;
	if (r == 0 && p->dir_fd < 0)
		r = open_dir(e, p);
	if (r < 0)
		return r;
	p->fd = open_file(e, p, io->path);
	if (p->fd == -ENOENT && p->create) {
		p->fd = e->file->openat(e, p->dir_fd, io->path, O_RDWR | O_CREAT | O_NOFOLLOW,
					0600);
		p->made_file = true;
	}
	if (p->fd < 0)
		return p->fd;
	r = e->file->fstat(e, p->fd, &p->st);
	if (r < 0) {
		e->file->close(e, p->fd);
		p->fd = -1;
	}
	return r;
}

/* Takes over what the worker changed and opened. */
static void adopt_dir(struct object *o)
{
	struct disk *d = o->disk;
	struct disk_dir *dir = object_dir(o);
	struct object_open *p = &o->open;

	if (p->made_dir)
		d->objects.gs.changed++;
	if (p->made_file)
		dir->gs.changed++;
	if (p->dir_fd < 0 || p->dir_fd == dir->fd)
		return;
	if (dir->fd < 0) {
		dir->fd = dir->gs.fd = p->dir_fd;
	} else { /* two workers opened it at the same time */
		d->env->file->close(d->env, p->dir_fd);
	}
}

static void object_opened(struct object *o)
{
	const struct object_open *p = &o->open;

	o->state = OBJECT_OPEN;
	o->fd = o->gs.fd = p->fd;
	o->end = (uint64_t)p->st.st_size;
	o->blocks = (uint64_t)p->st.st_blocks;
	o->blocks_stale = false;
	o->mtime = (int64_t)p->st.st_mtim.tv_sec * (int64_t)NSEC_PER_SEC + p->st.st_mtim.tv_nsec;
	/* Also for an existing entry: it is not recorded whether that was synced. */
	o->entry = object_dir(o)->gs.changed;
	o->disk->n_open++;
	o->disk->counters.opens++;
}

static void serve_waiters(struct object *o)
{
	struct list *it;

	while ((it = list_pop(&o->waiters))) {
		struct get_wait *w = list_entry(it, struct get_wait, link);

		if (w->epoch >= o->floor)
			object_lend(o, w->out);
		req_done(w->q, w->epoch < o->floor ? -ESTALE : 0, 0);
		free(w);
	}
	if (!o->refs) /* a fence has refused all waiters */
		list_push(&o->disk->lru, &o->lru);
}

/* Fails the waiters that the error concerns. Waiters that create stay for another try after -ENOENT
 * of an open without create; waiters that do not create stay after a failed creation. A waiter
 * below the floor gets -ESTALE in any case. */
static void fail_waiters(struct object *o, int error)
{
	struct get_wait *w, *tmp;

	list_for_each_safe(w, tmp, &o->waiters, link) {
		bool stale = w->epoch < o->floor;

		if (!stale && error == -ENOENT && w->create && !o->open.create)
			continue;
		if (!stale && !w->create && o->open.create)
			continue;
		list_del(&w->link);
		req_done(w->q, stale ? -ESTALE : error, 0);
		free(w);
	}
}

static void object_open_start(struct object *o);

static void open_done(struct io *io)
{
	struct object *o = container_of(io, struct object, io);
	struct disk *d = o->disk;

	d->busy--;
	adopt_dir(o);
	base_put(d, o->open.base);
	o->floor = MAX(o->floor, o->open.floor);
	if (io->error) {
		o->state = OBJECT_CLOSED;
		fail_waiters(o, io->error);
		if (list_empty(&o->waiters))
			object_drop_unused(o);
		else
			object_open_start(o);
		return;
	}
	object_opened(o);
	serve_waiters(o);
	object_shrink(d);
}

static void object_open_start(struct object *o)
{
	struct disk *d = o->disk;
	const struct get_wait *w;

	o->state = OBJECT_OPENING;
	o->open = (struct object_open){ .ino = o->id.ino,
					.floor = o->floor,
					.base = base_hold(d),
					.objects_fd = d->objects.fd,
					.dir_fd = object_dir(o)->fd };
	o->open.fd = -1;
	snprintf(o->open.dir_name, sizeof(o->open.dir_name), "%02x",
		 object_dir_index(o->id.ino) & 0xff);
	if (d->id_flags & ID_OLD_NAMES)
		object_old_name(o->open.old_name, &o->id);
	list_for_each(w, &o->waiters, link) {
		o->open.create |= w->create;
		o->open.renames |= w->epoch == EPOCH_ANY; /* a metadata server knows the index */
		if (w->create)
			o->open.epoch = MAX(o->open.epoch, w->epoch);
	}
	o->io = (struct io){ .kind = IO_CALL,
			     .call = open_call,
			     .arg = &o->open,
			     .path = o->name,
			     .done = open_done };
	d->busy++;
	io_submit(d->loop, &o->io);
}

void object_get(struct disk *d, struct object_id id, uint64_t epoch, bool create,
		struct object **out, struct req *q)
{
	struct object *o = object_find(d, &id);
	struct get_wait *w;

	req_hold(q);
	if (!o)
		o = object_new(d, &id);
	if (o && o->state == OBJECT_OPEN) {
		if (epoch >= o->floor)
			object_lend(o, out);
		req_done(q, epoch < o->floor ? -ESTALE : 0, 0);
		return;
	}
	w = o ? malloc(sizeof(*w)) : NULL;
	if (!w) {
		if (o)
			object_drop_unused(o);
		req_done(q, -ENOMEM, 0);
		return;
	}
	*w = (struct get_wait){ .out = out, .q = q, .epoch = epoch, .create = create };
	list_push(&o->waiters, &w->link);
	if (o->state == OBJECT_CLOSED)
		object_open_start(o);
}

/* ---------------------------------------------------------------- closing */

/* A descriptor and a mapping that are being closed. */
struct closing {
	struct io io;
	struct disk *disk;
	const char *map;
	uint64_t map_len;
};

static int close_call(struct env *e, struct io *io)
{
	struct closing *c = io->arg;

	if (c->map)
		e->file->unmap(e, c->map, c->map_len);
	e->file->close(e, io->fd);
	return 0;
}

static void close_done(struct io *io)
{
	struct closing *c = io->arg;

	c->disk->busy--;
	free(c);
}

/* Closes on a worker where it takes time: the last close of an unlinked file frees its blocks,
 * unmapping frees page tables. If there is no memory for that, closes at once. */
static void close_file(struct object *o)
{
	struct disk *d = o->disk;
	struct closing now = { .disk = d, .map = o->map, .map_len = o->map_len };
	struct closing *c = o->map || o->state == OBJECT_GONE ? malloc(sizeof(*c)) : NULL;

	now.io =
		(struct io){ .kind = IO_CALL, .call = close_call, .fd = o->fd, .done = close_done };
	d->n_open--;
	o->fd = o->gs.fd = -1;
	o->map = NULL;
	o->map_len = 0;
	if (!c) {
		now.io.arg = &now;
		close_call(d->env, &now.io);
		return;
	}
	*c = now;
	c->io.arg = c;
	d->busy++;
	io_submit(d->loop, &c->io);
}

/* The object must be clean and still linked. */
static void object_close(struct object *o)
{
	list_del(&o->lru);
	o->disk->counters.evicted++;
	close_file(o);
	o->state = OBJECT_CLOSED;
	object_drop_unused(o);
}

/* Closes the least recently used objects until the limit holds; dirty ones are synced first. */
void object_shrink(struct disk *d)
{
	while (d->n_open - d->n_evicting > d->max_open && !list_empty(&d->lru)) {
		struct object *o = list_first(&d->lru, struct object, lru);

		if (!object_dirty(o)) {
			object_close(o);
			continue;
		}
		list_del(&o->lru);
		o->refs++;
		d->n_evicting++;
		object_sync_quietly(o);
	}
}

void object_put(struct object *o)
{
	if (!o || --o->refs)
		return;
	if (o->state == OBJECT_GONE) {
		close_file(o);
		free(o);
		return;
	}
	list_push(&o->disk->lru, &o->lru);
	object_shrink(o->disk);
}

/* The sync has ended: the object is the next to be closed, unless it is in use again. */
void object_evicted(struct object *o)
{
	struct disk *d = o->disk;

	d->n_evicting--;
	if (o->refs > 1 || o->state == OBJECT_GONE) {
		object_put(o);
		return;
	}
	o->refs = 0;
	list_push_front(&d->lru, &o->lru);
	object_shrink(d);
}

/* ---------------------------------------------------------------- removing */

void object_remove_begin(struct object *o)
{
	o->state = OBJECT_REMOVING;
	turn_refuse(o, UINT64_MAX);
}

/* error 0: the file is unlinked, and waiting requests get a new object. Else all is as before. */
void object_remove_end(struct object *o, int error)
{
	struct disk *d = o->disk;
	struct object *n = NULL;

	if (error) {
		o->state = OBJECT_OPEN;
		serve_waiters(o);
		return;
	}
	o->state = OBJECT_GONE;
	object_dir(o)->gs.changed++;
	htab_remove(&d->table, &o->node);
	if (list_empty(&o->waiters))
		return;
	n = object_new(d, &o->id);
	if (!n) {
		fail_waiters(o, -ENOMEM);
		return;
	}
	list_splice(&n->waiters, &o->waiters);
	object_open_start(n);
}

static void free_one(struct hnode *n, void *arg)
{
	struct object *o = container_of(n, struct object, node);
	struct disk *d = arg;

	if (o->map)
		d->env->file->unmap(d->env, o->map, o->map_len);
	if (o->fd >= 0)
		d->env->file->close(d->env, o->fd);
	htab_remove(&d->table, n);
	free(o);
}

void object_free_all(struct disk *d)
{
	if (d->table.slots)
		htab_walk(&d->table, free_one, d);
}
