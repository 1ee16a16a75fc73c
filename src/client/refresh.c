/* Fresh capabilities: asked of the metadata server when one was fenced or has expired.
 *
 * Threads: the loop's. Buffers: in the arena of the operation. Errors: those of the call; then the
 * file keeps its capability. */
#include "client/file_impl.h"

struct refresh {
	struct wire_cap_args args;
	struct wire_cap_res res;
	struct wire_open_args open_args;
	struct wire_open_res open_res;
};

void cap_ask(struct cop *op, struct cfile *f, struct call *c, struct req *q)
{
	struct refresh *r = arena_alloc(&op->arena, sizeof(*r));
	uint32_t rights = f->flags & (OPEN_READ | OPEN_WRITE);

	req_hold(q);
	if (r && f->is_guest) {
		r->open_args = (struct wire_open_args){ .where = { .dir = f->h },
							.id = f->id,
							.flags = rights };
		*c = call_make(op, OP_OPEN, &r->open_args, &r->open_res);
		c->cred = &f->cred;
		f->may_be_open = true;
	} else if (r) {
		r->args = (struct wire_cap_args){ f->h, rights };
		*c = call_make(op, OP_CAP, &r->args, &r->res);
	}
	if (r)
		peer_call(meta_peer(op->c, f->h.ino), c, q);
	req_done(q, r ? 0 : -ENOMEM, 0);
}

static void take(struct cfile *f, const struct wire_capability *cap,
		 const struct wire_layout_rec *layout)
{
	if (cap->epoch < f->cap.epoch)
		return;
	file_recorded(f, cap->epoch, layout);
	f->cap = *cap;
}

void cap_take(struct cfile *f, struct call *c)
{
	const struct wire_cap_res *r = c->res;
	const struct wire_open_res *opened = c->res;

	if (c->op == OP_CAP && !c->status)
		take(f, &r->cap, &r->layout);
	if (c->op == OP_OPEN && !c->status) {
		take(f, &opened->cap, &opened->layout);
		f->is_guest = false;
		f->wrote.doubt |= f->flags & OPEN_WRITE; /* what it wrote before was not reported */
	}
	call_fini(c);
}
