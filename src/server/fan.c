/* One call to each target of a layout, side by side: fences, syncs and removals. */
#include "server/cap.h"
#include "server/fan.h"

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

struct call server_call(struct server *srv, uint64_t trace, uint32_t op, void *args, void *res)
{
	static const struct cred_wire root = { 0 };

	return (struct call){ .op = op,
			      .args = args,
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
		     server_call(srv, q->trace, OP_FENCE, &f->fence[i], &f->object[i]), q);
	}
}

bool fan_doubts(const struct server *srv, const struct meta_node *n, uint32_t index)
{
	uint64_t mark = n->unsynced ? n->unsynced[index].verifier : 0;
	uint32_t target = n->layout.targets[index];
	const struct peer *p = target < srv->n_peers ? &srv->peers[target] : NULL;

	if (!mark || mark == MARK_LOST || !p)
		return false;
	if (target == srv->target)
		return mark != disk_verifier(srv->disk);
	return p->state == PEER_UP ? mark != p->verifier : p->state != PEER_WAITING;
}

static bool is_synced(const struct server *srv, const struct meta_node *n, uint32_t index,
		      enum fan_sync which)
{
	if (which == SYNC_DOUBTFUL)
		return fan_doubts(srv, n, index);
	return which == SYNC_ALL || n->attr.unsettled || n->unsynced[index].verifier;
}

int fan_sync(struct server *srv, struct fan *f, const struct meta_node *n, enum fan_sync which,
	     bool brief, struct arena *a, struct req *q)
{
	const struct wire_layout_rec *l = &n->layout;
	struct wire_capability cap = cap_own(srv, n, CAP_READ);
	struct call c;

	f->sync = arena_alloc(a, MAX(f->n, 1u) * sizeof(*f->sync));
	if (!f->sync)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->n; i++) {
		if (!is_synced(srv, n, i, which))
			continue;
		f->sync[i] = (struct wire_sync_args){ .at = { cap, i, 0 } };
		if (which != SYNC_ALL)
			f->sync[i].at.recorded = l->ends[i];
		if (which != SYNC_ALL && n->unsynced) {
			f->sync[i].unsynced = n->unsynced[i].verifier;
			f->sync[i].written = n->unsynced[i].last_write;
		}
		c = server_call(srv, q->trace, OP_SYNC, &f->sync[i], &f->object[i]);
		if (brief)
			c.deadline = MIN(c.deadline, srv->loop->now + LOOK_NS);
		call(srv, f, i, l->targets[i], c, q);
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

		if (cut_to != FENCE_KEEP) /* the recorded end of lost data is kept */
			end = MAX(end, MIN(known, layout_object_size(&lay, i, cut_to)));
		r->objects[i] = (struct wire_object_note){ .index = i,
							   .end = end,
							   .blocks = f->object[i].blocks };
	}
	r->n_objects = f->n;
	return 0;
}
