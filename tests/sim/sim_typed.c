/* Reads and writes by types: the same accesses as others, described as patterns instead of
 * lists, by any mover. The expected result stays the same. */
#include <stdlib.h>

#include "sim_world.h"

/* Makes a type of pieces of single bytes, with these lengths and places. */
static struct type *indexed(size_t n, const uint64_t *lengths, const int64_t *places)
{
	struct type *one, *all;

	if (type_bytes(1, &one) || type_indexed(n, lengths, places, one, &all))
		abort();
	type_free(one);
	return all;
}

static void op_types(struct op *op)
{
	uint64_t lengths[MAX(MAX_EXT, MAX_IOV)];
	int64_t places[MAX(MAX_EXT, MAX_IOV)];

	for (size_t i = 0; i < op->n_ext; i++) {
		lengths[i] = op->ext[i].length;
		places[i] = (int64_t)op->ext[i].offset;
	}
	op->types[0] = indexed(op->n_ext, lengths, places);
	for (size_t i = 0; i < op->n_iov; i++) {
		lengths[i] = op->iov[i].iov_len;
		places[i] = (uint8_t *)op->iov[i].iov_base - op->mem;
	}
	op->types[1] = indexed(op->n_iov, lengths, places);
	if (pattern_init(&op->typed.mem, op->types[1], (int64_t)(uintptr_t)op->mem, 1) ||
	    pattern_tile(&op->typed.file, op->types[0], 0, op->total))
		abort();
}

void op_move(struct op *op, struct cop *c)
{
	bool write = op->kind == DO_WRITE;

	client_set_mover(op->a->client, (enum net_method)(op->number % N_METHODS));
	if (!write && direct_begin(op, c))
		return;
	if (op->total && op->number % 3 == 0) {
		op_types(op);
		client_typed(c, op->h->cf, &op->typed, write);
	} else if (write) {
		client_write(c, op->h->cf, op->iov, op->n_iov, op->ext, op->n_ext);
	} else {
		client_read(c, op->h->cf, op->iov, op->n_iov, op->ext, op->n_ext);
	}
}
