/* Types on the wire. All numbers are big-endian:
 *
 *   head     u32 nodes (without the leaf), u32 entries, i64 lower bound, i64 upper bound,
 *            i64 first byte, u64 n
 *   node     u32 child, u32 entries, i64 stride, u64 n     a vector; in a list all else is 0
 *   entry    u32 child, i64 displacement, u64 n            of all lists, in the order of the lists
 *
 * Nodes are in the order of the type: children come first, and a node that is used twice is there
 * once. The decoder adds nodes with the functions of the constructors and requires the normal form,
 * so it makes only types that they would make.
 *
 * Threads: any. Buffers: the caller's. Errors: -EBADMSG for everything that no encoder wrote.
 * Decoding costs time and memory in proportion to the length of the message, and no memory before
 * the length was checked. */
#include "layout/type.h"

#include <endian.h>

static uint8_t *put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint8_t *put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint32_t get32(const uint8_t **p)
{
	uint32_t v;

	memcpy(&v, *p, sizeof(v));
	*p += sizeof(v);
	return be32toh(v);
}

static uint64_t get64(const uint8_t **p)
{
	uint64_t v;

	memcpy(&v, *p, sizeof(v));
	*p += sizeof(v);
	return be64toh(v);
}

size_t type_wire_size(const struct type *t)
{
	return type_wire_length(t->n_nodes - 1, t->n_entries);
}

void type_encode(const struct type *t, void *buf)
{
	uint8_t *p = buf;

	p = put32(p, t->n_nodes - 1);
	p = put32(p, t->n_entries);
	p = put64(p, (uint64_t)t->lb);
	p = put64(p, (uint64_t)t->ub);
	p = put64(p, (uint64_t)t->at);
	p = put64(p, t->n);
	for (const struct type_node *nd = t->nodes + 1; nd < t->nodes + t->n_nodes; nd++) {
		p = put32(p, nd->child);
		p = put32(p, nd->n_entries);
		p = put64(p, (uint64_t)nd->stride);
		p = put64(p, nd->n);
	}
	for (const struct type_entry *e = t->entries; e < t->entries + t->n_entries; e++) {
		p = put32(p, e->child);
		p = put64(p, (uint64_t)e->displ);
		p = put64(p, e->n);
	}
}

/* Is n valid for this node? */
static bool node_allows(const struct type *t, uint32_t node, uint64_t n)
{
	const struct type_node *nd;

	if (node >= t->n_nodes)
		return false;
	nd = &t->nodes[node];
	return node_is_leaf(nd) ? n >= 1 : node_is_list(nd) ? n == 1 : n >= 2;
}

static bool take_vector(struct type *t, const struct type_form *f, int64_t stride)
{
	return node_allows(t, f->node, f->n) && !node_continues(&t->nodes[f->node], f->n, stride) &&
	       !type_add_vector(t, f, stride);
}

/* Decodes a list of n entries at p; the length was checked. */
static bool take_list(struct type *t, const uint8_t *p, size_t n)
{
	struct type_entry *e = &t->entries[t->n_entries];

	for (size_t i = 0; i < n; i++) {
		e[i].child = get32(&p);
		e[i].displ = (int64_t)get64(&p);
		e[i].n = get64(&p);
		if (!node_allows(t, e[i].child, e[i].n) || !wide_fits(e[i].displ))
			return false;
		if (i && e[i].child == e[i - 1].child &&
		    wide_fits((wide)e[i].displ - e[i - 1].displ) &&
		    node_continues(&t->nodes[e[i].child], e[i - 1].n, e[i].displ - e[i - 1].displ))
			return false;
	}
	return n >= 2 && !e[0].displ && !entries_even(e, n) && !type_add_list(t, e, n);
}

/* Decodes the nodes at p and the entries behind them; the length was checked. */
static bool take_nodes(struct type *t, const uint8_t *p, uint32_t n_nodes, uint32_t n_entries)
{
	const uint8_t *entries = p + (size_t)n_nodes * WIRE_NODE;

	for (uint32_t i = 0; i < n_nodes; i++) {
		struct type_form f = { .node = get32(&p) };
		uint32_t n = get32(&p);
		int64_t stride = (int64_t)get64(&p);

		f.n = get64(&p);
		if (!n) {
			if (!take_vector(t, &f, stride))
				return false;
			continue;
		}
		if (f.node || f.n || stride || n > n_entries - t->n_entries ||
		    !take_list(t, entries + (size_t)t->n_entries * WIRE_ENTRY, n))
			return false;
	}
	return t->n_entries == n_entries;
}

int type_decode(const void *buf, size_t len, struct type **out)
{
	const uint8_t *p = buf;
	uint32_t n_nodes, n_entries;
	struct type_form f;
	int64_t lb, ub;
	struct type *t;
	int r;

	if (len < WIRE_HEAD || len > TYPE_WIRE_MAX)
		return -EBADMSG;
	n_nodes = get32(&p);
	n_entries = get32(&p);
	lb = (int64_t)get64(&p);
	ub = (int64_t)get64(&p);
	f.at = (int64_t)get64(&p);
	f.n = get64(&p);
	f.node = n_nodes;
	if (type_wire_length(n_nodes, n_entries) != len)
		return -EBADMSG;
	r = type_alloc(n_nodes, n_entries, &t);
	if (r)
		return r;
	if (!take_nodes(t, p, n_nodes, n_entries) || !wide_fits(f.at) ||
	    (f.n ? !node_allows(t, f.node, f.n) : n_nodes || f.at) || type_finish(t, &f, lb, ub)) {
		type_free(t);
		return -EBADMSG;
	}
	*out = t;
	return 0;
}
