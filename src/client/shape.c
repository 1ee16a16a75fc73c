/* The file side of an access as a pattern for the wire: a type, or a list of equal blocks at equal
 * distances.
 *
 * Threads: the loop's. Buffers: in the arena of the operation. Errors: none; without memory, or
 * when the pattern would be too long, the shape is empty and lists are sent. */
#include "client/transfer.h"

void shape_of_type(struct cop *op, const struct type *type, struct shape *out)
{
	size_t n = type_wire_size(type);
	uint8_t *p = n <= PATTERN_TYPE_MAX ? arena_alloc(&op->arena, n) : NULL;

	if (!p)
		return;
	type_encode(type, p);
	out->type = (struct wire_bytes){ (uint32_t)n, p };
}

void shape_of_list(struct cop *op, struct shape *out)
{
	const struct access *a = &op->access;
	const struct extent *e = a->file;
	struct type *block = NULL, *vector = NULL;

	if (!a->even || a->n_file <= op->c->max_list_extents)
		return;
	if (!type_bytes(e->length, &block) &&
	    !type_vector(a->n_file, 1, a->stride, block, &vector)) {
		shape_of_type(op, vector, out);
		out->base = (int64_t)e->offset;
		out->end = MAX(e->offset, e[a->n_file - 1].offset) + e->length;
	}
	type_free(vector);
	type_free(block);
}
