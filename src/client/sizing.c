/* The attributes of a file that has writers: the metadata server knows a lower bound of the size,
 * the objects know the rest.
 *
 *   ATTR -> OBJECTS -> ENDS (-> ATTR when it was fenced meanwhile) -> END
 *
 * While appends are under way, the size ends before the first one that was unfinished, or not
 * begun, when the attributes were read: what the objects have behind it may be a part of an
 * append. */
#include <stdlib.h>

#include "client/file_impl.h"

#define MAX_TRIES 100

enum { ATTR, OBJECTS, ENDS, END };
static const char *const names[] = {
	[ATTR] = "attr", [OBJECTS] = "objects", [ENDS] = "ends", [END] = "end"
};

struct sizing {
	struct req q;
	struct cop *op;
	struct wire_handle h;
	struct call attr_call;
	struct wire_getattr_args attr_args;
	struct wire_getattr_res attr_res;
	struct object_stat {
		struct call call;
		struct wire_objstat_args args;
		struct wire_object_res res;
	} * objects;
	uint32_t n, tries;
};

static void ask_attr(struct sizing *z)
{
	struct cop *op = z->op;

	z->attr_args = (struct wire_getattr_args){ z->h, true };
	z->attr_call = call_make(op, OP_GETATTR, &z->attr_args, &z->attr_res);
	peer_call(meta_peer(op->c, z->h.ino), &z->attr_call, &z->q);
}

static int ask_objects(struct sizing *z)
{
	struct cop *op = z->op;
	const struct wire_layout_rec *l = &z->attr_res.layout;

	if (!l->unit || l->start >= l->n_targets)
		return -EBADMSG;
	for (uint32_t i = 0; i < l->n_targets; i++)
		if (l->targets[i] >= op->c->n_peers)
			return -EBADMSG;
	z->objects = arena_alloc(&op->arena, l->n_targets * sizeof(*z->objects));
	if (!z->objects)
		return -ENOMEM;
	z->n = l->n_targets;
	for (uint32_t i = 0; i < z->n; i++) {
		struct object_stat *o = &z->objects[i];

		o->args.at = (struct wire_access){ z->attr_res.cap, i, 0 };
		o->call = call_make(op, OP_OBJSTAT, &o->args, &o->res);
		peer_call(&op->c->peers[l->targets[i]], &o->call, &z->q);
	}
	return 0;
}

static void add_up(struct sizing *z)
{
	struct wire_attr *a = &z->op->attr;
	const struct wire_layout_rec *l = &z->attr_res.layout;
	struct layout lay = { l->unit, l->n_targets, l->start };
	uint64_t end = 0, blocks = 0;
	int64_t mtime = 0;

	for (uint32_t i = 0; i < z->n; i++) {
		end = MAX(end, layout_file_end(&lay, i, z->objects[i].res.end));
		blocks += z->objects[i].res.blocks;
		mtime = MAX(mtime, z->objects[i].res.mtime);
	}
	a->blocks = blocks;
	if (mtime > a->written || end > a->size) /* written since; its record will add 2 */
		a->change++;
	if (mtime > a->written)
		a->mtime = a->ctime = mtime;
	a->size = MAX(a->size, MIN(end, z->attr_res.limit));
}

/* Gives open files the ends of their objects that are recorded now. */
static void update_open_files(struct sizing *z)
{
	struct cfile *f;

	list_for_each(f, &z->op->c->files, link)
		if (f->h.ino == z->h.ino && f->objects && z->attr_res.cap.epoch == f->cap.epoch)
			file_recorded(f, f->cap.epoch, &z->attr_res.layout);
}

static void free_calls(struct sizing *z)
{
	for (uint32_t i = 0; i < z->n; i++)
		call_fini(&z->objects[i].call);
	z->n = 0;
	call_fini(&z->attr_call);
}

static bool step(struct req *q)
{
	struct sizing *z = container_of(q, struct sizing, q);
	struct req *parent = &z->op->q;

	switch (q->state) {
	case ATTR:
		req_goto(q, OBJECTS);
		ask_attr(z);
		break;
	case OBJECTS:
		req_goto(q, ENDS);
		if (q->error)
			break;
		z->op->attr = z->attr_res.at;
		update_open_files(z);
		if (!z->attr_res.at.unsettled || !z->attr_res.layout.n_targets)
			break;
		if (layout_learn(z->op, &z->attr_res.layout, z->h.ino, q))
			req_goto(q, OBJECTS);
		else
			req_fail(q, ask_objects(z));
		break;
	case ENDS:
		req_goto(q, END);
		if (q->error == -EKEYEXPIRED && ++z->tries < MAX_TRIES) {
			free_calls(z);
			q->error = 0;
			req_goto(q, ATTR);
		} else if (!q->error && z->n) { /* n is 0: settled meanwhile, attr is exact */
			add_up(z);
		}
		break;
	case END:
		free_calls(z);
		req_fini(q);
		req_done(parent, q->error, 0);
		return false;
	}
	return true;
}

static const struct req_ops sizing_ops = REQ_OPS("size", step, ENDS, names);

void sizing_start(struct cop *op, const struct wire_handle *h)
{
	struct sizing *z = arena_alloc(&op->arena, sizeof(*z));

	req_hold(&op->q);
	if (!z) {
		req_done(&op->q, -ENOMEM, 0);
		return;
	}
	z->op = op;
	z->h = *h;
	req_init(&z->q, op->c->loop, &sizing_ops, ATTR);
	z->q.trace = op->q.trace;
	req_run(&z->q);
}
