/* Types: their nodes and the constructors that bring them into the normal form (type.h).
 *
 * Threads: any; a type is immutable. Buffers: one allocation per type. A constructor copies the
 * nodes of `of`; type_indexed() and type_struct() temporarily allocate memory in proportion to
 * their arrays. Errors: see layout.h. Every node is checked when it is added (size, offsets,
 * depth), so no existing node overflows, and no check expands a type. */
#include "layout/type.h"

#include <assert.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- nodes */

static uint64_t sat_mul(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint64_t sat_add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t node_segs(const struct type_node *nd, uint64_t n)
{
	bool touch = nd->el.last == nd->stride; /* each repetition touches the one before */

	if (node_is_leaf(nd))
		return 1;
	if (node_is_list(nd))
		return nd->el.segs;
	return sat_add(sat_mul(n, nd->el.segs - touch), touch);
}

bool node_bounds(const struct type_node *nd, uint64_t n, struct type_bounds *b)
{
	wide reach, lo, hi;

	if (node_is_list(nd)) {
		*b = nd->el;
		return true;
	}
	if (n > OFFSET_MAX)
		return false;
	if (node_is_leaf(nd)) {
		*b = (struct type_bounds){ 0, (int64_t)n, (int64_t)n, 1, true };
		return true;
	}
	reach = (wide)(n - 1) * nd->stride;
	lo = nd->el.lo + MIN(reach, 0);
	hi = nd->el.hi + MAX(reach, 0);
	if (!wide_fits((wide)n * nd->unit) || !wide_fits(lo) || !wide_fits(hi) ||
	    !wide_fits(hi - lo))
		return false;
	*b = (struct type_bounds){ .lo = (int64_t)lo,
				   .hi = (int64_t)hi,
				   .last = (int64_t)(reach + nd->el.last),
				   .segs = node_segs(nd, n),
				   .ascends = node_ascends(nd, n) };
	return true;
}

size_t type_wire_length(size_t n_nodes, size_t n_entries)
{
	if (n_nodes > TYPE_WIRE_MAX || n_entries > TYPE_WIRE_MAX)
		return TYPE_WIRE_MAX + 1;
	return WIRE_HEAD + WIRE_NODE * n_nodes + WIRE_ENTRY * n_entries;
}

int type_alloc(size_t n_nodes, size_t n_entries, struct type **t)
{
	struct type *new = calloc(1, sizeof(*new) + (n_nodes + 1) * sizeof(new->nodes[0]) +
					     n_entries * sizeof(new->entries[0]));

	if (!new)
		return -ENOMEM;
	new->n_nodes = 1;
	new->entries = (struct type_entry *)&new->nodes[n_nodes + 1];
	*t = new;
	return 0;
}

void type_free(struct type *t)
{
	free(t);
}

int type_add_vector(struct type *t, const struct type_form *f, int64_t stride)
{
	const struct type_node *child = &t->nodes[f->node];
	struct type_node *nd = &t->nodes[t->n_nodes];

	if (child->depth >= TYPE_DEPTH_MAX)
		return -E2BIG;
	*nd = (struct type_node){ .depth = child->depth + 1,
				  .child = f->node,
				  .n = f->n,
				  .stride = stride,
				  .unit = node_size(child, f->n) };
	if (!wide_fits(stride) || !node_bounds(child, f->n, &nd->el))
		return -EINVAL;
	t->n_nodes++;
	return 0;
}

/* Appends entry e, whose data have bounds b, to the list. */
static int list_append(struct type_node *nd, struct type_entry *e, uint64_t size,
		       const struct type_bounds *b)
{
	wide lo = (wide)e->displ + b->lo, hi = (wide)e->displ + b->hi;
	struct type_bounds *all = &nd->el;
	bool first = !nd->unit;

	if (size > OFFSET_MAX - nd->unit || !wide_fits(lo) || !wide_fits(hi))
		return -EINVAL;
	e->before = nd->unit;
	nd->unit += size;
	all->segs = sat_add(all->segs - (!first && all->last == e->displ), b->segs);
	all->ascends = (first || (all->ascends && e->displ >= all->hi)) && b->ascends;
	all->last = e->displ + b->last;
	all->lo = first ? (int64_t)lo : MIN(all->lo, (int64_t)lo);
	all->hi = first ? (int64_t)hi : MAX(all->hi, (int64_t)hi);
	return wide_fits((wide)all->hi - all->lo) ? 0 : -EINVAL;
}

int type_add_list(struct type *t, const struct type_entry *e, size_t n)
{
	struct type_node *nd = &t->nodes[t->n_nodes];
	struct type_entry *own = &t->entries[t->n_entries];

	*nd = (struct type_node){ .depth = 1, .n_entries = (uint32_t)n, .first = t->n_entries };
	for (size_t i = 0; i < n; i++) {
		const struct type_node *child = &t->nodes[e[i].child];
		struct type_bounds b;

		own[i] = e[i];
		if (child->depth >= TYPE_DEPTH_MAX)
			return -E2BIG;
		nd->depth = MAX(nd->depth, child->depth + 1);
		if (!node_bounds(child, e[i].n, &b) ||
		    list_append(nd, &own[i], node_size(child, e[i].n), &b))
			return -EINVAL;
	}
	t->n_entries += (uint32_t)n;
	t->n_nodes++;
	return 0;
}

bool entries_even(const struct type_entry *e, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		if (e[i].child != e[0].child || e[i].n != e[0].n ||
		    (wide)e[i].displ - e[i - 1].displ != (wide)e[1].displ - e[0].displ)
			return false;
	}
	return true;
}

int type_finish(struct type *t, const struct type_form *f, wide lb, wide ub)
{
	if (!wide_fits(lb) || !wide_fits(ub) || ub < lb || !wide_fits(ub - lb))
		return -EINVAL;
	t->lb = (int64_t)lb;
	t->ub = (int64_t)ub;
	if (!f->n)
		return 0;
	assert(f->node == t->n_nodes - 1);
	if (!node_bounds(type_root(t), f->n, &t->data) || !wide_fits((wide)f->at + t->data.lo) ||
	    !wide_fits((wide)f->at + t->data.hi))
		return -EINVAL;
	if (type_wire_length(t->n_nodes - 1, t->n_entries) > TYPE_WIRE_MAX)
		return -E2BIG;
	t->at = f->at;
	t->n = f->n;
	t->size = node_size(type_root(t), f->n);
	return 0;
}

/* ---------------------------------------------------------------- from one type */

/* Appends the nodes of `of` to t; returns the index of its root there. */
static uint32_t copy_nodes(struct type *t, const struct type *of)
{
	uint32_t shift = t->n_nodes - 1; /* the leaf is shared */

	for (uint32_t i = 1; i < of->n_nodes; i++) {
		struct type_node *nd = &t->nodes[t->n_nodes++];

		*nd = of->nodes[i];
		nd->first += t->n_entries;
		nd->child += nd->child ? shift : 0;
	}
	for (uint32_t i = 0; i < of->n_entries; i++) {
		struct type_entry *e = &t->entries[t->n_entries++];

		*e = of->entries[i];
		e->child += e->child ? shift : 0;
	}
	return of->n_nodes > 1 ? shift + of->n_nodes - 1 : 0;
}

/* Begins a type as a copy of `of` with space for `more` nodes; without data if not `any`. */
static int begin_with(const struct type *of, size_t more, bool any, struct type_form *f,
		      struct type **t)
{
	int r;

	*f = (struct type_form){ 0 };
	if (!any || !of->n)
		return type_alloc(0, 0, t);
	r = type_alloc(of->n_nodes - 1 + more, of->n_entries, t);
	if (!r)
		*f = (struct type_form){ of->at, copy_nodes(*t, of), of->n };
	return r;
}

/* Repeats f `count` times, `stride` apart. */
static int repeat(struct type *t, struct type_form *f, uint64_t count, int64_t stride)
{
	wide more = (wide)f->n * count;
	int r;

	if (!f->n || count == 1)
		return 0;
	if (node_continues(&t->nodes[f->node], f->n, stride)) {
		f->n = (uint64_t)more;
		return wide_fits(more) ? 0 : -EINVAL;
	}
	r = type_add_vector(t, f, stride);
	f->node = t->n_nodes - 1;
	f->n = count;
	return r;
}

/* Ends a constructor: sets *out, or frees t after an error. */
static int end_with(struct type *t, int r, const struct type_form *f, wide lb, wide ub,
		    struct type **out)
{
	if (!r)
		r = type_finish(t, f, lb, ub);
	if (r)
		type_free(t);
	else
		*out = t;
	return r;
}

int type_bytes(uint64_t n, struct type **t)
{
	struct type_form f = { 0, 0, n };
	struct type *new;
	int r;

	if (n > OFFSET_MAX)
		return -EINVAL;
	r = type_alloc(0, 0, &new);
	return r ? r : end_with(new, 0, &f, 0, n, t);
}

int type_vector(uint64_t count, uint64_t block, int64_t stride, const struct type *of,
		struct type **t)
{
	int64_t extent = of->ub - of->lb;
	bool any = count && block;
	wide reach = 0, lb = 0, ub = 0;
	struct type_form f;
	struct type *new;
	int r;

	if (count > OFFSET_MAX || block > OFFSET_MAX || !wide_fits(stride))
		return -EINVAL;
	if (any) {
		reach = (wide)(count - 1) * stride;
		lb = of->lb + MIN(reach, 0);
		ub = of->ub + MAX(reach, 0) + (wide)(block - 1) * extent;
	}
	r = begin_with(of, 2, any, &f, &new);
	if (r)
		return r;
	r = repeat(new, &f, block, extent);
	if (!r)
		r = repeat(new, &f, count, stride);
	return end_with(new, r, &f, lb, ub, t);
}

int type_resized(const struct type *of, int64_t lower, int64_t upper, struct type **t)
{
	struct type_form f;
	struct type *new;
	int r = begin_with(of, 0, true, &f, &new);

	return r ? r : end_with(new, 0, &f, lower, upper, t);
}

int type_subarray(int nd, const uint64_t *sizes, const uint64_t *subsizes, const uint64_t *starts,
		  const struct type *of, struct type **t)
{
	wide stride = of->ub - of->lb, at = of->at;
	struct type_form f;
	struct type *new;
	bool any = true;
	int r;

	if (nd < 1)
		return -EINVAL;
	if (nd > TYPE_DEPTH_MAX)
		return -E2BIG;
	for (int d = 0; d < nd; d++) {
		if (sizes[d] > OFFSET_MAX || subsizes[d] > sizes[d] ||
		    starts[d] > sizes[d] - subsizes[d])
			return -EINVAL;
		any = any && subsizes[d];
	}
	r = begin_with(of, (size_t)nd, any, &f, &new);
	if (r)
		return r;
	for (int d = nd - 1; !r && d >= 0; d--) {
		at += (wide)starts[d] * stride;
		r = wide_fits(at) ? repeat(new, &f, subsizes[d], (int64_t)stride) : -EINVAL;
		stride *= sizes[d];
		if (!r && !wide_fits(stride))
			r = -EINVAL;
	}
	if (f.n)
		f.at = (int64_t)at;
	return end_with(new, r, &f, 0, stride, t);
}

/* ---------------------------------------------------------------- from several types */

/* An element type of a list. */
struct part {
	struct hnode node;
	const struct type *of;
	uint32_t root; /* index of its root in the new type */
	uint32_t vector; /* index of the vector of its blocks; first: whether it needs one */
};

/* A list under construction. The child of an entry is 0 for the leaf, 2i + 2 for part i, or 2i + 3
 * for the vector of its blocks; displacements count from the type's origin. */
struct draft {
	struct type_entry *entries;
	struct part *parts;
	struct htab by_type;
	size_t n, n_parts;
	size_t n_nodes, n_old; /* needed by the parts: nodes without the leaf, entries */
	bool any;
	wide lb, ub;
};

static struct part *part_find(const struct draft *d, const struct type *of, uint64_t hash)
{
	struct hnode *h = htab_first(&d->by_type, hash);

	while (h && container_of(h, struct part, node)->of != of)
		h = htab_next(h);
	return h ? container_of(h, struct part, node) : NULL;
}

/* The part for `of`. Parts are in the order of first use, whatever the addresses are. */
static int part_of(struct draft *d, const struct type *of, struct part **out)
{
	uint64_t hash;
	int r;

	if (d->n_parts && d->parts[d->n_parts - 1].of == of) {
		*out = &d->parts[d->n_parts - 1];
		return 0;
	}
	hash = hash_u64((uintptr_t)of);
	*out = part_find(d, of, hash);
	if (*out)
		return 0;
	*out = &d->parts[d->n_parts];
	(*out)->of = of;
	r = htab_insert(&d->by_type, &(*out)->node, hash);
	if (r)
		return r;
	d->n_parts++;
	d->n_nodes += of->n_nodes - 1;
	d->n_old += of->n_entries;
	return type_wire_length(d->n_nodes, d->n_old) > TYPE_WIRE_MAX ? -E2BIG : 0;
}

#define NO_STEP INT64_MIN

/* Adds an entry or extends the last one. `step`: the distance at which one more of its child
 * continues, or NO_STEP. */
static int draft_entry(struct draft *d, const struct type_entry *e, int64_t step)
{
	struct type_entry *last = d->n ? &d->entries[d->n - 1] : NULL;

	if (last && step != NO_STEP && last->child == e->child &&
	    (wide)last->displ + (wide)last->n * step == e->displ) {
		last->n += e->n;
		return last->n > OFFSET_MAX ? -EINVAL : 0;
	}
	d->entries[d->n++] = *e;
	return 0;
}

static void draft_bounds(struct draft *d, wide lb, wide ub)
{
	d->lb = d->any ? MIN(d->lb, lb) : lb;
	d->ub = d->any ? MAX(d->ub, ub) : ub;
	d->any = true;
}

/* Sets the child and n of an entry for `block` elements of `of`; *step as in draft_entry(). */
static int draft_child(struct draft *d, uint64_t block, const struct type *of, struct type_entry *e,
		       int64_t *step)
{
	const struct type_node *root = type_root(of);
	int64_t extent = of->ub - of->lb;
	bool longer = block > 1 && node_continues(root, of->n, extent);
	bool vector = block > 1 && !longer;
	wide n = longer ? (wide)of->n * block : vector ? block : of->n;
	struct part *p;
	int r;

	if (!wide_fits(n))
		return -EINVAL;
	e->n = (uint64_t)n;
	*step = vector		   ? extent :
		node_is_leaf(root) ? 1 :
		node_is_list(root) ? NO_STEP :
				     root->stride;
	e->child = 0;
	if (node_is_leaf(root) && !vector)
		return 0;
	r = part_of(d, of, &p);
	if (r)
		return r;
	e->child = 2 * (uint32_t)(p - d->parts + 1) + vector;
	d->n_nodes += vector && !p->vector;
	p->vector |= vector;
	return 0;
}

/* Adds `block` elements of `of` at displ. */
static int draft_add(struct draft *d, uint64_t block, int64_t displ, const struct type *of)
{
	struct type_entry e;
	int64_t step;
	wide at;
	int r;

	if (block > OFFSET_MAX || !wide_fits(displ))
		return -EINVAL;
	if (!block)
		return 0;
	draft_bounds(d, (wide)displ + of->lb,
		     (wide)displ + of->ub + (wide)(block - 1) * (of->ub - of->lb));
	if (!of->n)
		return 0;
	at = (wide)displ + of->at;
	r = wide_fits(at) ? draft_child(d, block, of, &e, &step) : -EINVAL;
	if (r)
		return r;
	e.displ = (int64_t)at;
	return draft_entry(d, &e, step);
}

/* Adds the nodes of the parts, and sets the final children of the entries and their displacements
 * from the first entry. */
static int draft_place(struct draft *d, struct type *t)
{
	int64_t first = d->n ? d->entries[0].displ : 0;

	for (struct part *p = d->parts; p < d->parts + d->n_parts; p++) {
		struct type_form f = { p->of->at, copy_nodes(t, p->of), p->of->n };
		int r = p->vector ? type_add_vector(t, &f, p->of->ub - p->of->lb) : 0;

		if (r)
			return r;
		p->root = f.node;
		p->vector = t->n_nodes - 1;
	}
	for (struct type_entry *e = d->entries; e < d->entries + d->n; e++) {
		const struct part *p = e->child ? &d->parts[e->child / 2 - 1] : NULL;
		wide displ = (wide)e->displ - first;

		if (!wide_fits(displ))
			return -EINVAL;
		e->displ = (int64_t)displ;
		e->child = !p ? 0 : e->child % 2 ? p->vector : p->root;
	}
	return 0;
}

/* Adds the root. */
static int draft_top(const struct draft *d, struct type *t, struct type_form *f)
{
	int r;

	if (d->n <= 1)
		return 0;
	if (entries_even(d->entries, d->n))
		return repeat(t, f, d->n, d->entries[1].displ);
	r = type_add_list(t, d->entries, d->n);
	f->node = t->n_nodes - 1;
	f->n = 1;
	return r;
}

static int draft_type(struct draft *d, struct type **out)
{
	struct type_form f = { 0 };
	struct type *t;
	size_t listed = 0;
	int r;

	if (d->n > 1 && !entries_even(d->entries, d->n))
		listed = d->n;
	if (type_wire_length(d->n_nodes, d->n_old + listed) > TYPE_WIRE_MAX)
		return -E2BIG;
	r = type_alloc(d->n_nodes + (d->n > 1), d->n_old + listed, &t);
	if (r)
		return r;
	f.at = d->n ? d->entries[0].displ : 0;
	r = draft_place(d, t);
	f.node = d->n ? d->entries[0].child : 0;
	f.n = d->n ? d->entries[0].n : 0;
	if (!r)
		r = draft_top(d, t, &f);
	return end_with(t, r, &f, d->lb, d->ub, out);
}

/* of[0] for all blocks, or of[i] for block i. */
static int make_list(size_t n, const uint64_t *blocks, const int64_t *displ,
		     const struct type *const *of, bool each, struct type **t)
{
	struct draft d = { 0 };
	int r = htab_init(&d.by_type);

	if (r)
		return r;
	d.entries = calloc(MAX(n, 1), sizeof(*d.entries));
	d.parts = calloc(each ? MAX(n, 1) : 1, sizeof(*d.parts));
	if (!d.entries || !d.parts)
		r = -ENOMEM;
	for (size_t i = 0; !r && i < n; i++)
		r = draft_add(&d, blocks[i], displ[i], of[each ? i : 0]);
	if (!r)
		r = draft_type(&d, t);
	htab_destroy(&d.by_type);
	free(d.entries);
	free(d.parts);
	return r;
}

int type_indexed(size_t n, const uint64_t *blocks, const int64_t *displ, const struct type *of,
		 struct type **t)
{
	return make_list(n, blocks, displ, &of, false, t);
}

int type_struct(size_t n, const uint64_t *blocks, const int64_t *displ,
		const struct type *const *of, struct type **t)
{
	return make_list(n, blocks, displ, of, true, t);
}

/* ---------------------------------------------------------------- queries */

uint64_t type_size(const struct type *t)
{
	return t->size;
}

int64_t type_lower(const struct type *t)
{
	return t->lb;
}

int64_t type_upper(const struct type *t)
{
	return t->ub;
}

uint64_t type_extent(const struct type *t)
{
	return (uint64_t)(t->ub - t->lb);
}

unsigned type_depth(const struct type *t)
{
	return type_root(t)->depth;
}
