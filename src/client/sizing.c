/* The attributes of a file whose writers are about: the metadata server knows a lower bound of the size,
 * the objects know the rest.
 *
 *   ATTR -> OBJECTS -> ENDS (-> ATTR when it was fenced meanwhile) -> END
 *
 * Where appends are under way the size ends before the first that was unfinished, or not begun, when the
 * attributes were read: what the objects have behind it may be a part of one. */
#include <stdlib.h>

#include "client/cli_priv.h"

#define MAX_TRIES 100

enum { ATTR, OBJECTS, ENDS, END };
static const char *const names[] = { "attr", "objects", "ends", "end" };

static struct sizing *sizing_of(struct req *q)
{
	return container_of(q, struct sizing, q);
}

static void ask_attr(struct sizing *z)
{
	struct cop *op = z->op;

	z->attr_args = (struct wire_getattr_args){ z->h, true };
	z->attr_call = call_make(op, OP_GETATTR, XDR_ANY(xdr_wire_getattr_args), &z->attr_args,
				 XDR_ANY(xdr_wire_getattr_res), &z->attr_res);
	peer_call(peer_of(op->c, z->h.ino), &z->attr_call, &z->q);
}

static int ask_objects(struct sizing *z)
{
	struct cop *op = z->op;
	const struct wire_layout_rec *l = &z->attr_res.layout;

	if (!l->unit || l->start >= l->n_targets)
		return -EBADMSG;
	z->n = l->n_targets;
	z->calls = arena_alloc(&op->arena, z->n * sizeof(*z->calls));
	z->ends = arena_alloc(&op->arena, z->n * sizeof(*z->ends));
	z->stat_args = arena_alloc(&op->arena, z->n * sizeof(*z->stat_args));
	if (!z->calls || !z->ends || !z->stat_args) {
		z->n = 0;
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < z->n; i++)
		if (l->targets[i] >= op->c->n_peers) {
			z->n = 0;
			return -EBADMSG;
		}
	for (uint32_t i = 0; i < z->n; i++) {
		z->stat_args[i].cap = z->attr_res.cap;
		z->calls[i] = call_make(op, OP_OBJSTAT, XDR_ANY(xdr_wire_objstat_args),
					&z->stat_args[i], XDR_ANY(xdr_wire_object_res),
					&z->ends[i]);
		peer_call(&op->c->peers[l->targets[i]], &z->calls[i], &z->q);
	}
	return 0;
}

/* Up to here the objects' times are those of writes before the time was set by hand. */
static int64_t fixed_mtime(const struct client *c, uint64_t ino)
{
	const struct cfile *f;
	int64_t fixed = 0;

	list_for_each(f, &c->files, link)
		if (f->h.ino == ino)
			fixed = MAX(fixed, f->fixed_mtime);
	return fixed;
}

static void add_up(struct sizing *z)
{
	struct wire_attr *a = &z->op->attr;
	const struct wire_layout_rec *l = &z->attr_res.layout;
	struct layout lay = { l->unit, l->n_targets, l->start };
	uint64_t end = 0;

	for (uint32_t i = 0; i < z->n; i++) {
		end = MAX(end, layout_file_end(&lay, i, z->ends[i].end));
		if (z->ends[i].mtime > z->fixed_mtime)
			a->mtime = MAX(a->mtime, z->ends[i].mtime);
		a->ctime = MAX(a->ctime, z->ends[i].mtime);
	}
	a->size = MAX(a->size, MIN(end, z->attr_res.limit));
}

static void let_go(struct sizing *z)
{
	for (uint32_t i = 0; i < z->n; i++)
		call_fini(&z->calls[i]);
	z->n = 0;
	call_fini(&z->attr_call);
}

static bool step(struct req *q)
{
	struct sizing *z = sizing_of(q);
	struct req *parent = &z->op->q;

	switch (q->state) {
	case ATTR:
		req_goto(q, OBJECTS);
		z->fixed_mtime = fixed_mtime(z->op->c, z->h.ino); /* it may be closed meanwhile */
		ask_attr(z);
		break;
	case OBJECTS:
		req_goto(q, ENDS);
		if (q->error)
			break;
		z->op->attr = z->attr_res.at;
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
			let_go(z);
			q->error = 0;
			req_goto(q, ATTR);
		} else if (!q->error) {
			add_up(z);
		}
		break;
	case END:
		let_go(z);
		req_fini(q);
		req_done(parent, q->error, 0);
		return false;
	}
	return true;
}

static const struct req_ops sizing_ops = { "size", step, ENDS, 4, names };

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
	req_start(&z->q);
}
