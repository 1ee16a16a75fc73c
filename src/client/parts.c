/* Parts of a transfer: how much of an access goes into one request to one object, by which mover,
 * and in which form (a list of extents or a pattern).
 *
 * Threads: the loop's. Buffers: a part is planned in the client's scratch memory, then kept in the
 * arena of the operation; the user's memory is not touched. Errors: -ENOMEM. */
#include <assert.h>

#include "client/transfer.h"

/* to encode and decode an extent of a list; measured with 1,024 x 64 B as list and as pattern */
#define LISTED_NS 25

static_assert(PART_BYTES <= ALLOC_MAX, "a part is a request");

/* Copies n items of this size, planned in the client's scratch memory, into the lane. */
static int keep_list(struct lane *l, size_t n, size_t size)
{
	if (n * size > l->cap_list) {
		l->list = arena_alloc(&l->op->arena, n * size);
		l->cap_list = l->list ? n * size : 0;
		if (!l->list)
			return -ENOMEM;
	}
	memcpy(l->list, l->op->c->scratch, n * size);
	l->n = n;
	return 0;
}

static int take_copy(struct lane *l)
{
	struct cop *op = l->op;
	struct copy_cursor *next = &l->object->next_copy;
	size_t n = copy_plan(&op->transfer->copy, l->index, next, op->c->scratch_copy, LIST_MAX,
			     COPY_MAX);

	l->source_index = next->source;
	return n ? keep_list(l, n, sizeof(*l->pieces)) : 1;
}

/* Bytes of data that a message to this lane's server may carry. */
static uint64_t inline_max(const struct lane *l)
{
	const struct cfile *f = l->op->file;

	return MIN(f->c->peers[f->targets[l->index]].eager_bytes, (uint32_t)INLINE_MAX);
}

static struct net_costs costs_of(const struct lane *l)
{
	const struct cfile *f = l->op->file;

	return peer_costs(&f->c->peers[f->targets[l->index]]);
}

static bool fits_inline(const struct lane *l, uint64_t bytes)
{
	const struct transfer *t = l->op->transfer;
	struct net_costs c = costs_of(l);

	if (t->mover != METHOD_AUTO)
		return t->mover == METHOD_INLINE && bytes <= inline_max(l);
	return net_choose(&c, t->kind == WRITE, 1, bytes, inline_max(l)) == METHOD_INLINE;
}

/* Bytes of one request; fewer when many clients share the server. */
static uint64_t part_bytes(const struct lane *l)
{
	const struct cfile *f = l->op->file;

	return MIN(PART_BYTES, peer_outstanding_max(&f->c->peers[f->targets[l->index]]));
}

/* The same, within the limits of the mover. */
static uint64_t most_bytes(const struct lane *l)
{
	const struct transfer *t = l->op->transfer;
	uint64_t most = inline_max(l);

	if (t->kind == ALLOCATE)
		return t->mode & ALLOC_PUNCH ? INT64_MAX : PART_BYTES;
	return t->mover == METHOD_INLINE && most ? most : part_bytes(l);
}

/* Takes the n planned extents as the part; l->view is their memory. */
static int take_list(struct lane *l, size_t n)
{
	l->small = fits_inline(l, l->view.length);
	return keep_list(l, n, sizeof(*l->ext));
}

/* Takes all that is left, or as much as a request may have, as a pattern; sets no view. */
static void take_pattern(struct lane *l)
{
	struct cop *op = l->op;
	const struct transfer *t = op->transfer;
	const struct layout *lay = &op->file->layout;
	uint64_t next = l->object->next.pos, left = op->access.total - next;
	uint64_t upto = next + MIN(left, part_bytes(l) * lay->width);

	l->pattern = (struct wire_pattern){
		.type = t->shape.type,
		.base = t->shape.base,
		.unit = lay->unit,
		.width = lay->width,
		.start = lay->start,
		.index = l->index,
		.begin = next + op->access.skip,
		.upto = upto + op->access.skip,
	};
	l->upto = upto;
	l->typed = true;
	l->n = 0;
	l->small = false;
}

/* Most extents of a part that are sent as a list although there is a pattern. Data inside a message
 * need a list, so a longer list pays while its extents take less time than that saves. */
static size_t max_list_extents(const struct lane *l)
{
	const struct cop *op = l->op;
	const struct transfer *t = op->transfer;
	struct net_costs c = costs_of(l);
	uint64_t bytes = op->access.total / op->file->layout.width;
	double saved;

	if (t->mover != METHOD_AUTO || bytes > inline_max(l))
		return op->c->max_list_extents;
	saved = net_cost(&c, METHOD_GATHER, t->kind == WRITE, 1, bytes) -
		net_cost(&c, METHOD_INLINE, t->kind == WRITE, 1, bytes);
	return MIN(MAX(op->c->max_list_extents, (size_t)(MAX(saved, 0) / LISTED_NS)),
		   (size_t)LIST_MAX);
}

/* Takes a part of a typed access: as a list when that is short or the type is too long, else as a
 * pattern, which may have no bytes of this object. */
static int take_typed(struct lane *l)
{
	struct cop *op = l->op;
	const struct transfer *t = op->transfer;
	const struct layout *lay = &op->file->layout;
	struct cursor from = l->object->next;
	uint64_t total = op->access.total;
	bool list = !t->shape.type.len || t->mover == METHOD_INLINE;
	size_t n;

	if (!l->view.pattern_view)
		l->view.pattern_view = arena_alloc(&op->arena, sizeof(*l->view.pattern_view));
	if (!l->view.pattern_view)
		return -ENOMEM;
	do {
		n = view_plan(&l->view, &op->access, lay, l->index, &from, op->c->scratch,
			      list ? LIST_MAX : max_list_extents(l), most_bytes(l));
	} while (!n && list && from.pos < total);
	l->typed = false;
	if (!list && from.pos < total) {
		take_pattern(l);
		view_init_pattern(&l->view, &op->access, lay, l->index, l->object->next.pos,
				  l->upto);
		l->object->next.pos = l->upto;
		return 0;
	}
	l->object->next = from;
	return n ? take_list(l, n) : 1;
}

/* Takes a part of a regular list, in the same way. */
static int take_regular(struct lane *l)
{
	struct cop *op = l->op;
	const struct layout *lay = &op->file->layout;
	struct cursor *next = &l->object->next, from = *next;
	size_t n = view_plan(&l->view, &op->access, lay, l->index, &from, op->c->scratch,
			     max_list_extents(l), PART_BYTES);

	l->typed = false;
	if (from.pos == op->access.total) {
		*next = from;
		return n ? take_list(l, n) : 1;
	}
	do {
		take_pattern(l);
		view_span(&l->view, &op->access, lay, l->index, next, l->upto);
	} while (!l->view.length && next->pos < op->access.total);
	return l->view.length ? 0 : 1;
}

int part_take(struct lane *l)
{
	struct cop *op = l->op;
	const struct transfer *t = op->transfer;
	size_t n;

	if (t->kind == COPY)
		return take_copy(l);
	if (t->typed)
		return take_typed(l);
	if (t->shape.type.len && t->mover != METHOD_INLINE)
		return take_regular(l);
	n = view_plan(&l->view, &op->access, &op->file->layout, l->index, &l->object->next,
		      op->c->scratch, LIST_MAX, most_bytes(l));
	return n ? take_list(l, n) : 1;
}
