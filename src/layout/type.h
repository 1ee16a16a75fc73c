/* Private to layout: what a type is made of.
 *
 * A type is an array of nodes, children before parents, the root last; node 0 is the leaf of all of them. Nodes that
 * are used in several places stand once. The normal form:
 *   - a node's first byte is at its offset 0; where that is in the type is the type's `at`
 *   - empty parts are gone; a vector has 2 elements or more, a list 2 entries or more
 *   - whatever continues what comes before it (bytes that touch, elements of a vector one stride further) is part
 *     of it: a vector's stride is not where its element would go on, nor is an entry where the one before would
 *   - a list of equal entries at equal distances is a vector
 * Bounds that differ from those of the data (`lb`, `ub`) matter only to who places the type, so nodes have none: every
 * distance is a stride or a displacement. */
#ifndef SHEAF_LAYOUT_TYPE_H
#define SHEAF_LAYOUT_TYPE_H

#include "layout/layout.h"

#define OFFSET_MAX ((uint64_t)INT64_MAX)

/* Lengths on the wire. */
#define WIRE_HEAD 40
#define WIRE_NODE 24
#define WIRE_ENTRY 20

/* Sums and products of a few offsets and counts; what is kept of them must fit. */
typedef __int128 wide;

struct type_entry {
	int64_t displ;
	uint64_t before; /* bytes of the list before it */
	uint64_t n;
	uint32_t child;
};

struct type {
	int64_t lb, ub, at;
	uint64_t n; /* of the root; 0: no data */
	uint64_t size;
	struct type_bounds data; /* of the root: its offsets count from `at` */
	uint32_t n_nodes, n_entries;
	struct type_entry *entries; /* behind the nodes */
	struct type_node nodes[];
};

static inline bool wide_fits(wide v)
{
	return v <= INT64_MAX && v >= -INT64_MAX;
}

static inline bool node_is_leaf(const struct type_node *nd)
{
	return !nd->depth;
}

static inline bool node_is_list(const struct type_node *nd)
{
	return nd->n_entries;
}

static inline uint64_t node_size(const struct type_node *nd, uint64_t n)
{
	return node_is_leaf(nd) ? n : node_is_list(nd) ? nd->unit : n * nd->unit;
}

/* Is `stride` where n of this node would go on, so that more of it there makes it longer? */
static inline bool node_continues(const struct type_node *nd, uint64_t n, int64_t stride)
{
	if (node_is_list(nd))
		return false;
	return (wide)n * (node_is_leaf(nd) ? 1 : nd->stride) == stride;
}

static inline const struct type_node *type_root(const struct type *t)
{
	return &t->nodes[t->n_nodes - 1];
}

/* Does every run begin at or behind the end of the one before? */
static inline bool node_ascends(const struct type_node *nd, uint64_t n)
{
	if (node_is_leaf(nd))
		return true;
	return nd->el.ascends && (node_is_list(nd) || n == 1 || nd->stride >= nd->el.hi);
}

uint64_t node_segs(const struct type_node *nd, uint64_t n); /* saturates */
/* Bounds, or false where they or the size do not fit. */
bool node_bounds(const struct type_node *nd, uint64_t n, struct type_bounds *b);

/* ---- making one: allocate, add nodes from the leaves up, finish ---- */

/* With the leaf as its only node and room for so many nodes beside it; 0 or -ENOMEM. */
int type_alloc(size_t n_nodes, size_t n_entries, struct type **t);
size_t type_wire_length(size_t n_nodes, size_t n_entries); /* saturates above TYPE_WIRE_MAX */
/* So much of a node, and where its first byte is: what a type is while it is being made. */
struct type_form {
	int64_t at;
	uint32_t node;
	uint64_t n;
};
/* The next node becomes a vector of f, or a list of n entries, which are copied. -EINVAL, -E2BIG */
int type_add_vector(struct type *t, const struct type_form *f, int64_t stride);
int type_add_list(struct type *t, const struct type_entry *e, size_t n);
/* Are they equal and at equal distances? */
bool entries_even(const struct type_entry *e, size_t n);
int type_finish(struct type *t, const struct type_form *f, wide lb, wide ub);

/* ---- cursors ---- */

/* What is left of the leaf it is in, or of the next one; 0: at the end. */
uint64_t pattern_leaf(struct pattern_cursor *c);
/* Over n bytes, which that leaf has. */
static inline void pattern_skip(struct pattern_cursor *c, uint64_t n)
{
	c->pos += n;
	c->left -= n;
	c->off += n;
}

#endif
