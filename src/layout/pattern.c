/* Patterns: copies of a type one extent after another, and a cursor over their stream.
 *
 * The copies are one more vector over the type's root, or a longer root if the copies continue each
 * other; so the code that walks nodes walks patterns. Offsets are added without overflow checks:
 * pattern_tile() has checked that all offsets of the stream are between 0 and 2^63 - 1, and the
 * missing part of an incomplete last copy is never reached.
 *
 * Threads: one at a time per cursor. Buffers: none; nothing here allocates or recurses. Errors:
 * only those of pattern_init() and pattern_tile(). */
#include "layout/type.h"

#include <assert.h>

/* ---------------------------------------------------------------- children of a placed node */

static inline uint64_t spot_children(const struct pattern_spot *s)
{
	return node_is_list(s->node) ? s->node->n_entries : s->n;
}

static inline struct pattern_spot spot_child(const struct type *t, const struct pattern_spot *s,
					     uint64_t i)
{
	const struct type_node *nd = s->node;
	const struct type_entry *e;

	if (!node_is_list(nd))
		return (struct pattern_spot){ &t->nodes[nd->child], nd->n,
					      s->base + i * (uint64_t)nd->stride };
	e = &t->entries[nd->first + i];
	return (struct pattern_spot){ &t->nodes[e->child], e->n, s->base + (uint64_t)e->displ };
}

/* Bytes of s before its child i. */
static inline uint64_t spot_before(const struct type *t, const struct pattern_spot *s, uint64_t i)
{
	const struct type_node *nd = s->node;

	return node_is_list(nd) ? t->entries[nd->first + i].before : i * nd->unit;
}

/* The child that holds byte `at` of a node. */
static uint64_t node_find(const struct type *t, const struct type_node *nd, uint64_t at)
{
	const struct type_entry *e = t->entries + nd->first;
	size_t lo = 0, hi = nd->n_entries;

	if (!node_is_list(nd))
		return at / nd->unit;
	while (hi - lo > 1) { /* the child is in [lo, hi) */
		size_t mid = lo + (hi - lo) / 2;

		if (e[mid].before <= at)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* End of entry e, relative to the base of its list; only if its data ascend. */
static inline int64_t entry_end(const struct type *t, const struct type_entry *e)
{
	const struct type_node *nd = &t->nodes[e->child];
	uint64_t reach = node_is_leaf(nd) ? e->n : (uint64_t)nd->el.hi;

	if (!node_is_leaf(nd) && !node_is_list(nd))
		reach += (e->n - 1) * (uint64_t)nd->stride;
	return e->displ + (int64_t)reach;
}

/* The first child that ends behind offset `off`, before the end of s; only if s ascends. */
static uint64_t spot_reach(const struct type *t, const struct pattern_spot *s, uint64_t off)
{
	const struct type_node *nd = s->node;
	const struct type_entry *e = t->entries + nd->first;
	uint64_t i, rel = off - s->base;
	size_t lo = 0, hi = nd->n_entries;

	if (off <= s->base)
		return 0;
	if (!node_is_list(nd)) {
		i = s->n > 1 ? rel / (uint64_t)nd->stride : 0;
		return i + (rel - i * (uint64_t)nd->stride >= (uint64_t)nd->el.hi);
	}
	while (lo < hi) { /* the first child is in [lo, hi] */
		size_t mid = lo + (hi - lo) / 2;

		if (entry_end(t, &e[mid]) > (int64_t)rel)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* ---------------------------------------------------------------- patterns */

struct range_found {
	wide lo, hi;
	bool any;
};

static void found(struct range_found *f, wide lo, wide hi)
{
	f->lo = f->any ? MIN(f->lo, lo) : lo;
	f->hi = f->any ? MAX(f->hi, hi) : hi;
	f->any = true;
}

/* The range of offsets of the first `bytes` bytes (not 0); base is the offset of the first one. */
static struct range_found bounds_of(const struct pattern *p, wide base, uint64_t bytes)
{
	const struct type *t = p->type;
	const struct type_node *nd = &p->top;
	struct range_found f = { 0 };

	while (bytes && !node_is_leaf(nd)) {
		const struct type_entry *e = t->entries + nd->first;
		uint64_t i = node_find(t, nd, bytes);
		struct type_bounds b;

		if (!node_is_list(nd)) {
			wide last = base + (wide)(i - 1) * nd->stride;

			if (i)
				found(&f, MIN(base, last) + nd->el.lo, MAX(base, last) + nd->el.hi);
			bytes -= i * nd->unit;
			base += (wide)i * nd->stride;
			nd = &t->nodes[nd->child];
		} else if (bytes == nd->unit) {
			found(&f, base + nd->el.lo, base + nd->el.hi);
			bytes = 0;
		} else {
			for (; e < t->entries + nd->first + i; e++) {
				(void)node_bounds(&t->nodes[e->child], e->n, &b); /* they fit */
				found(&f, base + e->displ + b.lo, base + e->displ + b.hi);
			}
			bytes -= e->before;
			base += e->displ;
			nd = &t->nodes[e->child];
		}
	}
	if (bytes)
		found(&f, base, base + bytes);
	return f;
}

/* Sets the node that holds all bytes: the root, a longer root, or a vector of the root. */
static void set_top(struct pattern *p, const struct type *t)
{
	const struct type_node *root = type_root(t);
	int64_t extent = t->ub - t->lb;

	p->top = *root;
	p->n = t->n;
	if (p->total > t->size && !node_continues(root, t->n, extent)) {
		p->top = (struct type_node){ .depth = root->depth + 1,
					     .child = t->n_nodes - 1,
					     .n = t->n,
					     .stride = extent,
					     .unit = t->size,
					     .el = t->data };
		p->n = (p->total - 1) / p->top.unit + 1;
	} else if (node_is_leaf(root)) {
		p->n = p->total;
	} else if (!node_is_list(root)) {
		p->n = (p->total - 1) / p->top.unit + 1;
	}
}

int pattern_tile(struct pattern *p, const struct type *t, int64_t base, uint64_t bytes)
{
	struct range_found f;

	*p = (struct pattern){ .type = t, .total = bytes, .ascends = true };
	if (!bytes)
		return 0;
	if (bytes > OFFSET_MAX || !t->size)
		return -EINVAL;
	set_top(p, t);
	f = bounds_of(p, (wide)base + t->at, bytes);
	if (f.lo < 0 || f.hi > INT64_MAX)
		return -EINVAL;
	p->first = (uint64_t)(base + t->at);
	p->begin = (uint64_t)f.lo;
	p->end = (uint64_t)f.hi;
	p->segs = node_segs(&p->top, p->n);
	p->ascends = node_ascends(&p->top, p->n);
	return 0;
}

int pattern_init(struct pattern *p, const struct type *t, int64_t base, uint64_t count)
{
	wide bytes = (wide)t->size * count;

	return wide_fits(bytes) ? pattern_tile(p, t, base, (uint64_t)bytes) : -EINVAL;
}

/* ---------------------------------------------------------------- cursors */

static inline void push(struct pattern_cursor *c, const struct pattern_spot *s, uint64_t i)
{
	c->frame[c->depth].spot = *s;
	c->frame[c->depth++].i = i;
}

/* Descends to byte `rest` of s. */
static inline void descend(struct pattern_cursor *c, struct pattern_spot s, uint64_t rest)
{
	const struct type *t = c->p->type;

	while (!node_is_leaf(s.node)) {
		uint64_t i = rest ? node_find(t, s.node, rest) : 0;

		push(c, &s, i);
		rest -= rest ? spot_before(t, &s, i) : 0;
		s = spot_child(t, &s, i);
	}
	c->off = s.base + rest;
	c->left = s.n - rest;
}

/* Moves to the next leaf, which exists; the current one is used up. */
static inline void step(struct pattern_cursor *c)
{
	uint32_t d = c->depth;

	assert(d);
	while (++c->frame[d - 1].i == spot_children(&c->frame[d - 1].spot)) {
		d--;
		assert(d);
	}
	c->depth = d;
	descend(c, spot_child(c->p->type, &c->frame[d - 1].spot, c->frame[d - 1].i), 0);
}

void pattern_seek(struct pattern_cursor *c, const struct pattern *p, uint64_t pos)
{
	assert(pos <= p->total);
	c->p = p;
	c->pos = pos;
	c->depth = 0;
	c->off = c->left = 0;
	if (pos < p->total)
		descend(c, (struct pattern_spot){ &p->top, p->n, p->first }, pos);
}

/* Stream position of the first byte at or behind off; moves c there unless NULL. */
static uint64_t find_offset(const struct pattern *p, uint64_t off, struct pattern_cursor *c)
{
	const struct type *t = p->type;
	struct pattern_spot s = { &p->top, p->n, p->first };
	uint64_t pos = 0, in;

	assert(p->ascends);
	if (off >= p->end)
		return p->total;
	while (!node_is_leaf(s.node)) {
		uint64_t i = spot_reach(t, &s, off);

		if (c)
			push(c, &s, i);
		pos += spot_before(t, &s, i);
		s = spot_child(t, &s, i);
	}
	in = off > s.base ? off - s.base : 0;
	if (c) {
		c->off = s.base + in;
		c->left = s.n - in;
	}
	return pos + in;
}

uint64_t pattern_position(const struct pattern *p, uint64_t off)
{
	return find_offset(p, off, NULL);
}

void pattern_seek_offset(struct pattern_cursor *c, const struct pattern *p, uint64_t off)
{
	c->p = p;
	c->depth = 0;
	c->off = c->left = 0;
	c->pos = find_offset(p, off, c);
}

uint64_t pattern_leaf(struct pattern_cursor *c)
{
	uint64_t rest = c->p->total - c->pos;

	if (!rest)
		return 0;
	if (!c->left)
		step(c);
	return MIN(c->left, rest);
}

/* Takes the next leaves of the same vector or list, after the current leaf is used up: those that
 * fit into `bytes` whole, at most max. None of them touches the one before. */
static inline size_t take_runs(struct pattern_cursor *c, struct extent *out, size_t max,
			       uint64_t bytes)
{
	const struct pattern_spot *s = &c->frame[c->depth - 1].spot;
	const struct type_node *nd = s->node;
	uint64_t i = c->frame[c->depth - 1].i, at, m;
	size_t n = 0;

	if (node_is_list(nd)) {
		const struct type_entry *e = c->p->type->entries + nd->first;

		while (n < max && i + 1 < nd->n_entries && !e[i + 1].child && e[i + 1].n <= bytes) {
			i++;
			out[n++] = (struct extent){ s->base + (uint64_t)e[i].displ, e[i].n };
			bytes -= e[i].n;
		}
	} else if (!nd->child) {
		m = MIN(s->n - i - 1, max);
		if (m * nd->unit > bytes)
			m = bytes / nd->unit;
		at = s->base + i * (uint64_t)nd->stride;
		i += m;
		while (n < m)
			out[n++] = (struct extent){ at += (uint64_t)nd->stride, nd->unit };
	}
	c->frame[c->depth - 1].i = i;
	return n;
}

size_t pattern_runs(struct pattern_cursor *c, struct extent *out, size_t max, uint64_t max_bytes)
{
	uint64_t left = MIN(max_bytes, c->p->total - c->pos), take;
	size_t n = 0, more;

	assert(max && max_bytes);
	c->pos += left;
	while (left) {
		if (!c->left)
			step(c);
		take = MIN(c->left, left);
		if (n && out[n - 1].offset + out[n - 1].length == c->off)
			out[n - 1].length += take;
		else if (n == max)
			break;
		else
			out[n++] = (struct extent){ c->off, take };
		c->off += take;
		c->left -= take;
		left -= take;
		if (c->left || !c->depth)
			continue; /* no more is wanted, or there is no more */
		more = take_runs(c, out + n, max - n, left);
		for (; more; more--)
			left -= out[n++].length;
	}
	c->pos -= left;
	return n;
}
