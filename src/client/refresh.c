/* Fresh capabilities: asked of the metadata server when one was fenced or has expired.
 *
 * Threads: the loop's. Buffers: in the arena of the operation. Errors: those of the call; then the
 * file keeps its capability. */
#include "client/file_impl.h"

struct refresh {
	struct wire_cap_args args;
	struct wire_cap_res res;
};

void cap_ask(struct cop *op, struct cfile *f, struct call *c, struct req *q)
{
	struct refresh *r = arena_alloc(&op->arena, sizeof(*r));

	req_hold(q);
	if (r) {
		r->args = (struct wire_cap_args){ f->h, f->flags & (OPEN_READ | OPEN_WRITE) };
		*c = call_make(op, OP_CAP, &r->args, &r->res);
		peer_call(meta_peer(op->c, f->h.ino), c, q);
	}
	req_done(q, r ? 0 : -ENOMEM, 0);
}

void cap_take(struct cfile *f, struct call *c)
{
	const struct wire_cap_res *r = c->res;

	if (c->op == OP_CAP && !c->status && r->cap.epoch >= f->cap.epoch) {
		file_recorded(f, r->cap.epoch, &r->layout);
		f->cap = r->cap;
	}
	call_fini(c);
}
