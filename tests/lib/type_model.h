/* Random nested types, each with a model that holds the offset of every byte, computed from the
 * definition of the type. */
#ifndef SHEAF_TEST_TYPE_MODEL_H
#define SHEAF_TEST_TYPE_MODEL_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout/layout.h"
#include "test.h"

extern uint64_t type_rng;

/* A random number below n; 0 if n is 0. */
uint64_t random_below(uint64_t n);

/* A type by its definition: the offset of every byte, in order. */
struct model {
	int64_t lb, ub;
	size_t n;
	int64_t *off;
};

extern size_t pooled;

/* A random count up to `most`, for elements of this size within TYPE_MAX_BYTES; sometimes 0. */
uint64_t random_count(uint64_t most, size_t size);

/* A random type of this depth, and its model. The caller frees the type. */
struct type *random_type(unsigned depth, struct model *m);

/* ---- cases ---- */

extern uint64_t case_seed;

/* Runs the case of the environment variable SEED, or cases 1 to n. */
void random_cases(void (*one)(void), uint64_t n);

/* ---- sides of an access ---- */

/* One side of a random access with types, and the offsets of its bytes according to the model. */
struct side {
	struct type *type;
	struct model model;
};

/* The offset of byte i of a stream of consecutive copies of the type. */
uint64_t side_offset(const struct side *s, uint64_t base, uint64_t i);

/* A side with a random type that has bytes. The caller frees the type. */
struct side random_side(void);

#endif
