/* One side of a random access with types, and the offsets of its bytes according to the model. */
#ifndef SHEAF_TYPE_SIDE_H
#define SHEAF_TYPE_SIDE_H

#include "type_model.h"

struct side {
	struct type *type;
	struct model model;
};

/* The offset of byte i of a stream of consecutive copies of the type. */
static uint64_t place(const struct side *s, uint64_t base, uint64_t i)
{
	uint64_t copy = i / s->model.n;

	return base + copy * (uint64_t)(s->model.ub - s->model.lb) +
	       (uint64_t)s->model.off[i % s->model.n];
}

static struct side some_side(void)
{
	struct side s;

	do
		s.type = random_type((unsigned)below(4), &s.model);
	while (!s.model.n && (type_free(s.type), true));
	return s;
}

#endif
