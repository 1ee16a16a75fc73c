/* Fences and removal: the floor (lowest accepted epoch) of each inode, and the request behind
 * disk_fence and disk_remove.
 *
 * Threads: the loop's. Memory: a floor (about 110 bytes) stays in memory until it is merged into
 * the base (fence_base.c). A merge begins at disk->max_floors; at twice as many, fences of new
 * inodes wait. A floor is kept, in memory or in the base, while its inode has objects, and for
 * TOMBSTONE_NS at least. Errors: a fence that could not be made durable fails, but its floor stays
 * raised in memory; a repeated fence writes it again. Truncation and removal are on disk before the
 * request continues. */
#include <stdlib.h>

#include "disk/disk_impl.h"

#define EXPIRE_STEP 8 /* expired floors freed per removal, at most */

/* ---------------------------------------------------------------- floors */

static struct floor *floor_find(const struct disk *d, uint64_t ino)
{
	for (struct hnode *n = htab_first(&d->floors, hash_u64(ino)); n; n = htab_next(n)) {
		struct floor *f = container_of(n, struct floor, node);

		if (f->ino == ino)
			return f;
	}
	return NULL;
}

uint64_t floor_known(const struct disk *d, uint64_t ino)
{
	const struct floor *f = floor_find(d, ino);

	return f ? f->epoch : 0;
}

uint64_t disk_floor(const struct disk *d, uint64_t ino)
{
	uint64_t epoch = floor_known(d, ino);

	for (struct hnode *n = htab_first(&d->table, hash_u64(ino)); n; n = htab_next(n)) {
		const struct object *o = container_of(n, struct object, node);

		if (o->id.ino == ino)
			epoch = MAX(epoch, o->floor);
	}
	return epoch;
}

struct floor *floor_raise(struct disk *d, uint64_t ino, uint64_t epoch)
{
	struct floor *f = floor_find(d, ino);

	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f || htab_insert(&d->floors, &f->node, hash_u64(ino)) < 0) {
			free(f);
			return NULL;
		}
		f->ino = ino;
		list_init(&f->expiring);
	}
	f->epoch = MAX(f->epoch, epoch);
	return f;
}

bool fence_time_is_old(uint64_t time, uint64_t now)
{
	return time < now && now - time > TOMBSTONE_NS;
}

void floor_free(struct disk *d, struct floor *f)
{
	htab_remove(&d->floors, &f->node);
	list_del(&f->expiring);
	free(f);
}

/* The inode was removed: its floor must only outlive its capabilities. Also frees a few floors of
 * inodes removed earlier that have expired. */
static void floor_expire(struct disk *d, uint64_t ino)
{
	uint64_t now = d->env->clock->wall(d->env);
	struct floor *f = floor_find(d, ino);

	if (f && list_empty(&f->expiring))
		list_push(&d->expiring, &f->expiring);
	for (int i = 0; i < EXPIRE_STEP; i++) {
		f = list_first(&d->expiring, struct floor, expiring);
		if (!f || !fence_time_is_old(f->time, now))
			return;
		if (f->durable >= f->epoch) {
			floor_free(d, f);
		} else { /* the log may refer to it */
			list_del(&f->expiring);
			list_push(&d->expiring, &f->expiring);
		}
	}
}

/* ---------------------------------------------------------------- the request */

/* RAISE -> OPEN -> TURN -> CHANGE -> CHANGED -> TAIL -> REPLY; no object: OPEN -> TAIL */
enum { F_RAISE, F_OPEN, F_TURN, F_CHANGE, F_CHANGED, F_TAIL, F_REPLY };
static const char *const fence_names[] = {
	[F_RAISE] = "raise",	 [F_OPEN] = "open", [F_TURN] = "turn",	[F_CHANGE] = "change",
	[F_CHANGED] = "changed", [F_TAIL] = "tail", [F_REPLY] = "reply"
};

struct fence_op {
	struct req req;
	struct disk *disk;
	struct object_id id;
	uint64_t epoch, truncate_to;
	bool remove, cut;
	struct req *parent;
	struct object_stat *st;
	int *error; /* NULL: the error goes to the parent */
	struct floor *floor;
	struct log_wait log;
	struct object *object;
	struct turn turn;
	struct io io;
};

static void fence_raise(struct fence_op *f)
{
	struct disk *d = f->disk;
	struct req *q = &f->req;

	if (!f->epoch)
		return;
	if (!floor_find(d, f->id.ino) && merge_wait(d, &f->log, q)) {
		req_goto(q, F_RAISE); /* again after the merge */
		return;
	}
	f->floor = floor_raise(d, f->id.ino, f->epoch);
	if (!f->floor) {
		req_hold(q);
		req_done(q, -ENOMEM, 0);
		return;
	}
	for (struct hnode *n = htab_first(&d->table, hash_u64(f->id.ino)); n; n = htab_next(n)) {
		struct object *o = container_of(n, struct object, node);

		if (o->id.ino != f->id.ino)
			continue;
		o->floor = MAX(o->floor, f->floor->epoch);
		turn_refuse(o, o->floor);
	}
	if (f->floor->durable >= f->floor->epoch)
		return;
	f->log = (struct log_wait){ .floor = f->floor };
	fence_log_add(d, &f->log, q);
}

static void unlink_done(struct io *io)
{
	struct fence_op *f = io->arg;
	int error = io->error == -ENOENT ? 0 : io->error;

	object_remove_end(f->object, error);
	req_done(&f->req, error, 0);
}

/* True if the object has anything past `to`: data, or blocks allocated past its end. */
static bool has_more(struct object *o, uint64_t to)
{
	return to < o->end || (to == o->end && object_blocks(o) * 512 > to + LEAST_PAGE - 1);
}

/* This request has the whole object: all earlier turns have ended. */
static void fence_change(struct fence_op *f)
{
	struct object *o = f->object;

	if (o->state == OBJECT_GONE)
		return; /* another remove was first */
	if (f->remove) {
		object_remove_begin(o);
		f->io = (struct io){ .kind = IO_UNLINK,
				     .fd = object_dir(o)->fd,
				     .path = o->name,
				     .arg = f,
				     .q = &f->req,
				     .done = unlink_done };
		io_submit(f->disk->loop, &f->io);
	} else if (has_more(o, f->truncate_to)) {
		f->cut = true;
		f->io = (struct io){
			.kind = IO_TRUNCATE, .fd = o->fd, .off = f->truncate_to, .q = &f->req
		};
		io_submit(f->disk->loop, &f->io);
	}
}

/* An earlier attempt at this truncate may have cut the object, before a restart or a failed
 * sync. */
static bool cut_before(const struct fence_op *f)
{
	const struct object *o = f->object;

	return o->state != OBJECT_GONE && o->end == f->truncate_to && !o->sync_succeeded;
}

/* Data that were cut off must not reappear after a power failure: sync the file. */
static void fence_changed(struct fence_op *f)
{
	struct object *o = f->object;

	if (f->cut) {
		o->end = f->truncate_to;
		o->mtime = (int64_t)f->disk->env->clock->wall(f->disk->env);
		o->gs.changed++;
	}
	if (f->cut || cut_before(f))
		group_sync_add(&o->gs, &f->req);
}

/* A removed file must not reappear either: sync the directory, also if there was no object, since
 * an earlier attempt may have unlinked it without a sync. Clears -ENOENT first: a request keeps its
 * first error, which would hide an error of this sync. */
static void fence_tail(struct fence_op *f)
{
	struct disk_dir *dir = &f->disk->dirs[object_dir_index(f->id.ino)];

	if (f->req.error == -ENOENT && !f->object)
		f->req.error = 0;
	if (f->remove && !f->req.error && dir->fd >= 0 && dir->gs.changed > dir->gs.synced)
		group_sync_add(&dir->gs, &f->req);
}

static void fence_reply(struct fence_op *f)
{
	struct object *o = f->object;
	int error = f->req.error;
	bool there = o && o->state == OBJECT_OPEN;

	if (f->cut)
		object_forget_resident(o);
	if (f->st && there)
		*f->st = (struct object_stat){ o->end, object_blocks(o), o->mtime };
	else if (f->st)
		*f->st = (struct object_stat){ 0 };
	turn_end(&f->turn);
	object_put(o);
	if (f->remove && !error)
		floor_expire(f->disk, f->id.ino);
	if (f->error)
		*f->error = error;
	req_done(f->parent, f->error ? 0 : error, 0);
}

static bool fence_step(struct req *q)
{
	struct fence_op *f = container_of(q, struct fence_op, req);

	switch (q->state) {
	case F_RAISE:
		req_goto(q, F_OPEN);
		fence_raise(f);
		break;
	case F_OPEN:
		req_goto(q, F_TURN);
		object_get(f->disk, f->id, EPOCH_ANY, false, &f->object, q);
		break;
	case F_TURN:
		req_goto(q, F_CHANGE);
		turn_begin_whole(f->object, &f->turn, q);
		break;
	case F_CHANGE:
		req_goto(q, F_CHANGED);
		fence_change(f);
		break;
	case F_CHANGED:
		req_goto(q, F_TAIL);
		fence_changed(f);
		break;
	case F_TAIL:
		req_goto(q, F_REPLY);
		fence_tail(f);
		break;
	default: /* F_REPLY */
		fence_reply(f);
		f->disk->busy--;
		req_fini(q);
		free(f);
		return false;
	}
	return true;
}

static const struct req_ops fence_ops = REQ_OPS("disk_fence", fence_step, F_TAIL, fence_names);

static struct fence_op *fence_new(struct disk *d, struct object_id id, uint64_t epoch,
				  struct req *q)
{
	struct fence_op *f = calloc(1, sizeof(*f));

	req_hold(q);
	if (!f) {
		req_done(q, -ENOMEM, 0);
		return NULL;
	}
	f->disk = d;
	f->id = id;
	f->epoch = epoch;
	f->truncate_to = UINT64_MAX;
	f->parent = q;
	req_init(&f->req, d->loop, &fence_ops, F_RAISE);
	f->req.trace = q->trace;
	d->busy++;
	return f;
}

void disk_fence(struct disk *d, struct object_id id, uint64_t epoch, uint64_t truncate_to,
		struct object_stat *st, struct req *q)
{
	struct fence_op *f = fence_new(d, id, epoch, q);

	if (!f)
		return;
	f->truncate_to = truncate_to;
	f->st = st;
	req_run(&f->req);
}

void disk_remove(struct disk *d, struct object_id id, uint64_t epoch, int *error, struct req *q)
{
	struct fence_op *f = fence_new(d, id, epoch, q);

	if (!f)
		return;
	f->remove = true;
	f->error = error;
	req_run(&f->req);
}
