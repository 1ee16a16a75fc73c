/* Syncs. group_sync: one fsync at a time per descriptor, shared by all requests that came before it
 * began. object_sync: the file and, where they are new, its directory entries, as a request of two
 * states.
 *
 * Threads: the loop's. Errors: the kernel reports a writeback error once per descriptor, so every
 * request that waits at that moment gets it, and an object latches it until an object_sync has
 * reported it. */
#include <stdlib.h>

#include "disk/disk_impl.h"

struct sync_wait {
	struct list link;
	struct req *q;
};

static void release(struct list *waits, int error)
{
	struct list *it;

	while ((it = list_pop(waits))) {
		struct sync_wait *w = list_entry(it, struct sync_wait, link);

		req_done(w->q, error, 0);
		free(w);
	}
}

static void group_synced(struct group_sync *g, int error)
{
	if (!error)
		g->synced = g->covers;
	if (g->ended)
		g->ended(g, error);
}

static void group_sync_start(struct group_sync *g);

static void group_sync_done(struct io *io)
{
	struct group_sync *g = io->arg;
	struct disk *d = g->disk;
	struct list waits = LIST_INIT(waits);

	g->busy = false;
	d->busy--;
	group_synced(g, io->error);
	list_splice(&waits, &g->now);
	if (io->error) /* the kernel does not report it again: fail the next group, too */
		list_splice(&waits, &g->next);
	if (!list_empty(&g->next))
		group_sync_start(g);
	release(&waits, io->error);
}

static void group_sync_start(struct group_sync *g)
{
	g->busy = true;
	g->disk->busy++;
	g->disk->counters.syncs++;
	list_splice(&g->now, &g->next);
	g->covers = g->changed;
	g->io = (struct io){ .kind = IO_SYNC, .fd = g->fd, .arg = g, .done = group_sync_done };
	io_submit(g->disk->loop, &g->io);
}

void group_sync_init(struct group_sync *g, struct disk *d)
{
	*g = (struct group_sync){ .disk = d, .fd = -1 };
	list_init(&g->now);
	list_init(&g->next);
}

void group_sync_add(struct group_sync *g, struct req *q)
{
	struct sync_wait *w;

	if (g->disk->nosync) {
		g->covers = g->changed;
		group_synced(g, 0);
		return;
	}
	req_hold(q);
	w = malloc(sizeof(*w));
	if (!w) {
		req_done(q, -ENOMEM, 0);
		return;
	}
	w->q = q;
	list_push(&g->next, &w->link);
	if (!g->busy)
		group_sync_start(g);
}

/* ---------------------------------------------------------------- directories */

/* Version 1 is the directory as found at start: known to be on disk only after a clean stop. */
void disk_dir_init(struct disk *d, struct disk_dir *dir, bool synced)
{
	dir->fd = -1;
	group_sync_init(&dir->gs, d);
	dir->gs.changed = 1;
	dir->gs.synced = synced ? 1 : 0;
}

/* ---------------------------------------------------------------- objects */

/* After an error the kernel marks the pages clean: the latch keeps the error. */
static void object_ended(struct group_sync *g, int error)
{
	struct object *o = container_of(g, struct object, gs);

	g->synced = g->covers;
	o->sync_succeeded = !error;
	if (error) {
		o->latched = true;
		o->disk->verifier = env_random_u64(o->disk->env);
		history_note_loss(o->disk);
		o->disk->counters.latched++;
		log_error("disk", "%s/objects/%s: writing back failed: %s", o->disk->path, o->name,
			  strerror(-error));
	}
}

void object_gs_init(struct object *o)
{
	group_sync_init(&o->gs, o->disk);
	o->gs.ended = object_ended;
}

bool object_dirty(const struct object *o)
{
	if (o->disk->nosync)
		return false;
	return o->gs.changed > o->gs.synced;
}

/* FILES -> END */
enum { SYNC_FILES, SYNC_END };
static const char *const sync_names[] = { [SYNC_FILES] = "files", [SYNC_END] = "end" };

struct sync_op {
	struct req req;
	struct object *object;
	struct req *parent; /* NULL: started by the descriptor cache */
};

static bool sync_step(struct req *q)
{
	struct sync_op *s = container_of(q, struct sync_op, req);
	struct object *o = s->object;
	struct disk *d = o->disk;
	int error;

	if (q->state == SYNC_FILES) {
		req_goto(q, SYNC_END);
		group_sync_add(&o->gs, q);
		if (s->parent && o->entry > object_dir(o)->gs.synced)
			group_sync_add(&object_dir(o)->gs, q);
		/* Tested separately: an earlier sync of only one of the two may have failed. */
		if (s->parent && d->objects.gs.changed > d->objects.gs.synced)
			group_sync_add(&d->objects.gs, q);
		return true;
	}
	error = q->error == -ENOMEM ? -ENOMEM : q->error || o->latched ? -EIO : 0;
	if (s->parent) {
		if (error == -EIO)
			o->latched = false;
		req_done(s->parent, error, 0);
	} else if (q->error) { /* any error: the next object_sync reports it */
		o->latched = true;
		o->gs.synced = o->gs.changed;
	}
	req_fini(q);
	d->busy--;
	if (s->parent)
		object_put(o);
	else
		object_evicted(o);
	free(s);
	return false;
}

static const struct req_ops sync_ops = REQ_OPS("disk_sync", sync_step, SYNC_END, sync_names);

/* Takes over the caller's reference to o. */
static int sync_start(struct object *o, struct req *parent)
{
	struct sync_op *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->object = o;
	s->parent = parent;
	o->disk->busy++;
	req_init(&s->req, o->disk->loop, &sync_ops, SYNC_FILES);
	s->req.trace = parent ? parent->trace : 0;
	req_run(&s->req);
	return 0;
}

void object_sync(struct object *o, struct req *q)
{
	req_hold(q);
	o->refs++;
	if (sync_start(o, q) < 0) {
		o->refs--;
		req_done(q, -ENOMEM, 0);
	}
}

void object_sync_quietly(struct object *o)
{
	if (sync_start(o, NULL) < 0) {
		o->latched = true;
		o->gs.synced = o->gs.changed;
		object_evicted(o);
	}
}
