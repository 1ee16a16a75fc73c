/* The public interface: how an access would be cut into requests and pieces of memory, computed by
 * the code that does it. Nothing is sent and nothing moves.
 *
 * Threads: any; the connection's lock is held only while requests are cut. Buffers: none but its
 * own. Errors: -errno. */
#include <stdlib.h>

#include "client/api_impl.h"
#include "sheaf_admin.h"

#define PIECES_MAX ((uint64_t)64 << 20) /* of patterns: each piece is visited */
#define SLICE 2048

/* An access, as lists or as types. */
struct sides {
	struct access access;
	struct typed typed;
	bool is_typed;
	struct layout layout;
};

struct slice {
	struct pattern_view pattern_view;
	struct extent ext[SLICE];
	struct iovec iov[SLICE];
};

static int shape_init(struct sides *s, const struct sheaf_stripes *where,
		      const struct sheaf_access *a)
{
	int r;

	if (!where->unit || !where->n_targets || where->n_targets > SHEAF_MAX_TARGETS ||
	    where->start >= where->n_targets)
		return -EINVAL;
	s->layout = (struct layout){ where->unit, where->n_targets, where->start };
	s->is_typed = a->file_type;
	if (!s->is_typed)
		return access_init(&s->access, a->mem, a->n_mem, (const struct extent *)a->ext,
				   a->n_ext);
	r = api_describe(&s->typed, a->base, a->mem_type, a->mem_count, a->file_off, a->file_type,
			 0);
	if (!r && MAX(s->typed.mem.segs, s->typed.file.segs) > PIECES_MAX)
		r = -E2BIG;
	return r ? r : access_typed(&s->access, &s->typed.mem, &s->typed.file, 0);
}

static void find_ends(const struct sides *s, struct sheaf_plan *out)
{
	out->bytes = s->access.total;
	out->begin = s->is_typed ? s->typed.file.begin : UINT64_MAX;
	out->end = s->is_typed ? s->typed.file.end : 0;
	for (size_t i = 0; !s->is_typed && i < s->access.n_file; i++) {
		const struct extent *e = &s->access.file[i];

		if (!e->length)
			continue;
		out->begin = MIN(out->begin, e->offset);
		out->end = MAX(out->end, e->offset + e->length);
	}
	out->begin = MIN(out->begin, out->end);
}

/* ---- the share of each object ---- */

/* Counts the pieces of memory behind a view. *end: the end of the previous view's last piece. */
static uint64_t count_pieces(struct view *v, struct iovec *iov, uintptr_t *end)
{
	uint64_t n = 0, at = 0, got;
	size_t k;

	for (; at < v->length; at += got) {
		k = view_iov(v, at, v->length - at, iov, SLICE, &got);
		if (!k)
			break;
		n += k - ((uintptr_t)iov[0].iov_base == *end);
		*end = (uintptr_t)iov[k - 1].iov_base + iov[k - 1].iov_len;
	}
	return n;
}

static void count_object(const struct sides *s, uint32_t index, struct slice *k, sheaf_touch touch,
			 void *arg, struct sheaf_share *out)
{
	struct view v = { .pattern_view = &k->pattern_view };
	struct cursor from = { 0 };
	uint64_t next = UINT64_MAX;
	uintptr_t mem = 0;
	size_t n;

	while ((n = view_plan(&v, &s->access, &s->layout, index, &from, k->ext, SLICE,
			      INT64_MAX)) ||
	       (s->is_typed && from.pos < s->access.total)) {
		if (!n)
			continue;
		out->bytes += v.length;
		out->extents += n - (k->ext[0].offset == next);
		next = k->ext[n - 1].offset + k->ext[n - 1].length;
		out->segments += count_pieces(&v, k->iov, &mem);
		if (touch)
			touch(arg, index, (const struct sheaf_extent *)k->ext, n);
	}
}

/* ---- requests ---- */

static enum sheaf_mover mover_of(const struct net_costs *link, enum sheaf_mover how, bool write,
				 const struct parts *p, const struct sheaf_share *s)
{
	if (p->inlined)
		return SHEAF_MOVER_INLINE;
	if (how == SHEAF_MOVER_AUTO)
		return (enum sheaf_mover)net_choose(link, write, s->segments, s->bytes, 0);
	if (how == SHEAF_MOVER_DRIVEN && write && link->work_request > 0) /* there is RDMA */
		return how;
	return how == SHEAF_MOVER_PACK ? how : SHEAF_MOVER_GATHER;
}

/* Called with the lock; f was not opened, it has only a layout. */
static int plan_requests(struct client *c, struct cop *op, struct cfile *f, const struct sides *s,
			 enum sheaf_mover how, bool write, struct sheaf_share *out)
{
	struct parts *parts = arena_alloc(&op->arena, f->layout.width * sizeof(*parts));
	int r;

	if (!parts)
		return -ENOMEM;
	op->access = s->access;
	r = client_plan(op, f, s->is_typed ? &s->typed : NULL, write, (enum net_method)how, parts);
	for (uint32_t i = 0; !r && i < f->layout.width; i++) {
		struct net_costs link = peer_costs(&c->peers[f->targets[i]]);

		out[i].requests = parts[i].requests;
		out[i].mover = mover_of(&link, how, write, &parts[i], &out[i]);
	}
	return r;
}

static int plan_locked(struct sheaf *fs, const struct sheaf_stripes *where, const struct sides *s,
		       enum sheaf_mover how, bool write, struct sheaf_share *out)
{
	const struct wire_layout_rec rec = { .unit = where->unit,
					     .start = where->start,
					     .n_targets = where->n_targets,
					     .targets = (uint32_t *)(uintptr_t)where->targets };
	struct cop *op = api_begin(fs, &api_no_cred);
	struct cfile *f;
	int r;

	r = file_new(fs->b.client, &(struct wire_handle){ 0, 0 }, 0, &rec, &f);
	if (!r) {
		r = plan_requests(fs->b.client, op, f, s, how, write, out);
		file_free(f);
	}
	api_release(fs, op);
	return r;
}

int sheaf_plan(struct sheaf *fs, const struct sheaf_stripes *where, enum sheaf_mover how,
	       const struct sheaf_access *a, sheaf_touch touch, void *arg, struct sheaf_plan *out)
{
	struct sides *s = calloc(1, sizeof(*s));
	struct slice *k = calloc(1, sizeof(*k));
	int r = s && k ? 0 : -ENOMEM;

	memset(out, 0, sizeof(*out));
	if (!r && (unsigned)how >= SHEAF_ALL_MOVERS)
		r = -EINVAL;
	if (!r)
		r = shape_init(s, where, a);
	if (!r) {
		find_ends(s, out);
		for (uint32_t i = 0; i < where->n_targets; i++)
			count_object(s, i, k, touch, arg, &out->shares[i]);
		r = plan_locked(fs, where, s, how, a->write, out->shares);
	}
	free(s);
	free(k);
	return r;
}
