/* Private to layout: the parts of a type.
 *
 * A type is an array of nodes, children before parents, the root last; node 0 is the common leaf. A
 * node that is used several times is stored once. The normal form:
 *   - a node's first byte is at its offset 0; its offset in the type is the type's `at`
 *   - there are no empty parts; a vector has at least 2 elements, a list at least 2 entries
 *   - data that continue the data before them (adjacent bytes, elements of a vector one stride
 *     further) are part of them: a vector's stride is never where its element would continue,
 *     nor does an entry begin where the one before would continue
 *   - a list of equal entries at equal distances is a vector
 * Bounds that differ from those of the data (`lb`, `ub`) matter only where the type is placed, so
 * nodes have none: every distance is a stride or a displacement. */
#ifndef SHEAF_LAYOUT_TYPE_H
#define SHEAF_LAYOUT_TYPE_H

#include "layout/layout.h"

#define OFFSET_MAX ((uint64_t)INT64_MAX)

/* Lengths on the wire. */
#define WIRE_HEAD 40
#define WIRE_NODE 24
#define WIRE_ENTRY 20

/* For sums and products of a few offsets and counts; stored results must fit into 64 bits. */
typedef __int128 wide;

struct type_entry {
	int64_t displ;
	uint64_t before; /* bytes of the list before the entry */
	uint64_t n;
	uint32_t child;
};

struct type {
	int64_t lb, ub, at;
	uint64_t n; /* of the root; 0: no data */
	uint64_t size;
	struct type_bounds data; /* of the root: offsets count from `at` */
	uint32_t n_nodes, n_entries;
	struct type_entry *entries; /* allocated behind the nodes */
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

/* Would n of this node continue at `stride`, so that a repetition there only increases n? */
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

/* Does every run begin at or behind the end of the previous one? */
static inline bool node_ascends(const struct type_node *nd, uint64_t n)
{
	if (node_is_leaf(nd))
		return true;
	return nd->el.ascends && (node_is_list(nd) || n == 1 || nd->stride >= nd->el.hi);
}

uint64_t node_segs(const struct type_node *nd, uint64_t n); /* saturates */
/* Computes the bounds; false if they or the size do not fit. */
bool node_bounds(const struct type_node *nd, uint64_t n, struct type_bounds *b);

/* ---- construction: allocate, add nodes from the leaves up, finish ---- */

/* Allocates a type that has only the leaf, with space for n_nodes more; 0 or -ENOMEM. */
int type_alloc(size_t n_nodes, size_t n_entries, struct type **t);
size_t type_wire_length(size_t n_nodes, size_t n_entries); /* saturates above TYPE_WIRE_MAX */
/* A type under construction: n of a node, and the offset of its first byte. */
struct type_form {
	int64_t at;
	uint32_t node;
	uint64_t n;
};
/* Adds a node: a vector of f, or a list of n entries, which are copied. -EINVAL, -E2BIG */
int type_add_vector(struct type *t, const struct type_form *f, int64_t stride);
int type_add_list(struct type *t, const struct type_entry *e, size_t n);
/* Are the entries equal and at equal distances? */
bool entries_even(const struct type_entry *e, size_t n);
int type_finish(struct type *t, const struct type_form *f, wide lb, wide ub);

/* ---- cursors ---- */

/* Bytes left of the current leaf, or of the next one if none; 0: at the end. */
uint64_t pattern_leaf(struct pattern_cursor *c);
/* Skips n bytes, which the current leaf has. */
static inline void pattern_skip(struct pattern_cursor *c, uint64_t n)
{
	c->pos += n;
	c->left -= n;
	c->off += n;
}

#endif
