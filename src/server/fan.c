/* One call to each target of a layout, side by side: fences and removals. */
#include "server/srv.h"

int fan_init(struct fan *f, const struct wire_layout_rec *l, struct arena *a)
{
	uint32_t n = l->n_targets;

	memset(f, 0, sizeof(*f));
	f->calls = arena_alloc(a, MAX(n, 1u) * sizeof(*f->calls));
	f->fence = arena_alloc(a, MAX(n, 1u) * sizeof(*f->fence));
	f->removals = arena_alloc(a, MAX(n, 1u) * sizeof(*f->removals));
	f->object = arena_alloc(a, MAX(n, 1u) * sizeof(*f->object));
	if (!f->calls || !f->fence || !f->removals || !f->object)
		return -ENOMEM;
	f->n = n;
	return 0;
}

struct call server_call(struct server *srv, uint64_t trace, uint32_t op, xdr_any put, void *args,
			xdr_any get, void *res)
{
	static const struct cred_wire root = { 0 };

	return (struct call){ .op = op,
			      .put_args = put,
			      .args = args,
			      .get_res = get,
			      .res = res,
			      .cred = &root,
			      .trace = trace,
			      .deadline = srv->loop->now + srv->conf->timeout_s * NSEC_PER_SEC };
}

static void call(struct server *srv, struct fan *f, uint32_t i, uint32_t target, struct call c,
		 struct req *q)
{
	if (target >= srv->n_peers) {
		req_hold(q);
		req_done(q, -EIO, 0);
		return;
	}
	f->calls[i] = c;
	peer_call(&srv->peers[target], &f->calls[i], q);
}

void fan_fence(struct server *srv, struct fan *f, const struct wire_layout_rec *l, uint64_t ino,
	       uint64_t epoch, uint64_t truncate_to, struct req *q)
{
	struct layout lay = layout_of(l);

	for (uint32_t i = 0; i < f->n; i++) {
		f->fence[i] = (struct wire_fence_args){
			.ino = ino,
			.obj_gen = l->obj_gen,
			.index = i,
			.epoch = epoch,
			.truncate_to = truncate_to == FENCE_KEEP ?
					       FENCE_KEEP :
					       layout_object_size(&lay, i, truncate_to),
		};
		call(srv, f, i, l->targets[i],
		     server_call(srv, q->trace, OP_FENCE, XDR_ANY(xdr_wire_fence_args),
				 &f->fence[i], XDR_ANY(xdr_wire_object_res), &f->object[i]),
		     q);
	}
}

int fan_sync(struct sreq *s, struct fan *f, const struct meta_node *n)
{
	const struct wire_layout_rec *l = &n->layout;
	struct wire_capability cap = cap_own(s->srv, n, CAP_READ);

	f->sync = arena_alloc(&s->arena, MAX(f->n, 1u) * sizeof(*f->sync));
	if (!f->sync)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->n; i++) {
		if (!n->attr.unsettled && !n->unsynced[i].verifier)
			continue;
		f->sync[i].at = (struct wire_access){ cap, i, l->ends[i] };
		if (n->unsynced) {
			f->sync[i].unsynced = n->unsynced[i].verifier;
			f->sync[i].written = n->unsynced[i].left;
		}
		call(s->srv, f, i, l->targets[i],
		     server_call(s->srv, s->q.trace, OP_SYNC, XDR_ANY(xdr_wire_sync_args),
				 &f->sync[i], XDR_ANY(xdr_wire_object_res), &f->object[i]),
		     &s->q);
	}
	return 0;
}

void fan_remove(struct server *srv, struct fan *f, const struct wire_layout_rec *l, uint64_t ino,
		uint64_t epoch, uint64_t size, struct req *q)
{
	struct layout lay = layout_of(l);

	for (uint32_t i = 0; i < f->n; i++) {
		if (!layout_object_size(&lay, i, size))
			continue;
		f->removals[i] = (struct removal){ .what = { ino, l->obj_gen, i, epoch }, .q = q };
		removal_add(srv, l->targets[i], &f->removals[i]);
	}
}

void fan_fini(struct fan *f)
{
	for (uint32_t i = 0; i < f->n; i++)
		call_fini(&f->calls[i]);
}

uint64_t fan_end(const struct fan *f, const struct wire_layout_rec *l, int64_t *mtime)
{
	struct layout lay = layout_of(l);
	uint64_t end = 0;

	*mtime = 0;
	for (uint32_t i = 0; i < f->n; i++) {
		end = MAX(end, layout_file_end(&lay, i, f->object[i].end));
		*mtime = MAX(*mtime, f->object[i].mtime);
	}
	return end;
}

int fan_notes(const struct fan *f, const struct wire_layout_rec *l, uint64_t cut_to,
	      struct arena *a, struct wire_record *r)
{
	struct layout lay = layout_of(l);

	r->objects = arena_alloc(a, MAX(f->n, 1u) * sizeof(*r->objects));
	if (!r->objects)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->n; i++) {
		uint64_t end = f->object[i].end, known = i < l->n_ends ? l->ends[i] : 0;

		if (cut_to != FENCE_KEEP) /* what is lost stays lost */
			end = MAX(end, MIN(known, layout_object_size(&lay, i, cut_to)));
		/* the writer has not told which of it is on disk */
		r->objects[i] =
			(struct wire_object_note){ .index = i,
						   .end = end,
						   .blocks = f->object[i].blocks,
						   .unsynced = end ? f->calls[i].verifier : 0 };
	}
	r->n_objects = f->n;
	return 0;
}
