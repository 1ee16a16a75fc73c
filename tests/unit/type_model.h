/* Random nested types, each with a model that holds the offset of every byte, computed from the
 * definition of the type. */
#ifndef SHEAF_TYPE_MODEL_H
#define SHEAF_TYPE_MODEL_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout/layout.h"
#include "test.h"

#define MAX_BYTES 384 /* largest size of a random type */
#define POOL 16384

static uint64_t rng;

static uint64_t below(uint64_t n)
{
	return n ? test_random(&rng) % n : 0;
}

static int64_t between(int64_t lo, int64_t hi)
{
	return lo + (int64_t)below((uint64_t)(hi - lo + 1));
}

/* A type by its definition: the offset of every byte, in order. */
struct model {
	int64_t lb, ub;
	size_t n;
	int64_t *off;
};

static int64_t pool[POOL];
static size_t pooled;

static struct model model_new(void)
{
	return (struct model){ .off = pool + pooled };
}

/* Adds a copy of an element. The first copy sets the bounds. */
static void model_place(struct model *m, const struct model *of, int64_t at, bool *any)
{
	m->lb = *any ? MIN(m->lb, at + of->lb) : at + of->lb;
	m->ub = *any ? MAX(m->ub, at + of->ub) : at + of->ub;
	*any = true;
	for (size_t i = 0; i < of->n; i++) {
		CHECK(pooled < POOL);
		pool[pooled++] = at + of->off[i];
	}
	m->n += of->n;
}

static void model_block(struct model *m, const struct model *of, int64_t at, uint64_t block,
			bool *any)
{
	for (uint64_t j = 0; j < block; j++)
		model_place(m, of, at + (int64_t)j * (of->ub - of->lb), any);
}

/* A random count up to `most`, for elements of this size within MAX_BYTES; sometimes 0. */
static uint64_t some(uint64_t most, size_t size)
{
	most = size ? MIN(most, MAX_BYTES / size) : most;
	return below(24) ? 1 + below(most) : 0;
}

static struct type *random_type(unsigned depth, struct model *m);

static struct type *random_vector(unsigned depth, struct model *m)
{
	struct model of;
	struct type *t, *child = random_type(depth - 1, &of);
	uint64_t block = some(below(3) ? 2 : 4, of.n);
	uint64_t count = some(below(4) ? 4 : 12, of.n * block);
	int64_t extent = of.ub - of.lb, stride = between(-40, 60);
	bool any = false;

	if (below(3) == 0) /* extent equals size, or nearly */
		stride = extent * (int64_t)block + (below(3) ? 0 : between(-2, 2));
	else if (below(3) == 0)
		stride = (int64_t)of.n * (int64_t)block;
	else if (below(8) == 0)
		stride = 0;
	CHECK_EQ(type_vector(count, block, stride, child, &t), 0);
	*m = model_new();
	for (uint64_t i = 0; i < count; i++)
		model_block(m, &of, (int64_t)i * stride, block, &any);
	type_free(child);
	return t;
}

/* A random indexed type, or a struct of up to three types. */
static struct type *random_list(unsigned depth, struct model *m, bool each)
{
	uint64_t blocks[8], kinds = each ? 1 + below(3) : 1, left = MAX_BYTES;
	struct type *t, *child[3];
	const struct type *of[8];
	int64_t displ[8], at = between(-20, 20);
	size_t n = some(below(4) ? 4 : 8, 0), which[8];
	struct model models[3];
	bool any = false, even = below(3) == 0, up = below(2);

	for (uint64_t k = 0; k < kinds; k++)
		child[k] = random_type(depth - 1, &models[k]);
	for (size_t i = 0; i < n; i++) {
		const struct model *c;

		which[i] = below(kinds);
		c = &models[which[i]];
		of[i] = child[which[i]];
		blocks[i] = even ? 1 : below(3) ? 1 + below(2) : below(4);
		if (blocks[i] * c->n > left)
			blocks[i] = 0;
		left -= blocks[i] * c->n;
		displ[i] = at;
		at += (c->ub - c->lb) * (int64_t)blocks[i] + (even ? 3 : up ? between(0, 6) : 0);
		if (!up && !even && below(2))
			at = below(4) ? between(-60, 60) : displ[i];
	}
	CHECK_EQ(each ? type_struct(n, blocks, displ, of, &t) :
			type_indexed(n, blocks, displ, child[0], &t),
		 0);
	*m = model_new();
	for (size_t i = 0; i < n; i++)
		model_block(m, &models[which[i]], displ[i], blocks[i], &any);
	for (uint64_t k = 0; k < kinds; k++)
		type_free(child[k]);
	return t;
}

static struct type *random_subarray(unsigned depth, struct model *m)
{
	uint64_t sizes[3], sub[3], starts[3], at[3] = { 0 }, most = 1;
	struct model of;
	struct type *t, *child = random_type(depth - 1, &of);
	int nd = 1 + (int)below(3);
	bool any = false;

	for (int d = nd - 1; d >= 0; d--) {
		sizes[d] = some(5, 0);
		sub[d] = below(3) && sizes[d] ? some(sizes[d], 0) : sizes[d];
		if (of.n * most * MAX(sub[d], 1) > MAX_BYTES)
			sub[d] = MIN(sizes[d], 1);
		most *= MAX(sub[d], 1);
		starts[d] = below(sizes[d] - sub[d] + 1);
	}
	CHECK_EQ(type_subarray(nd, sizes, sub, starts, child, &t), 0);
	*m = model_new();
	while (at[0] < sub[0]) { /* every index tuple, the last index fastest */
		int64_t place = 0;
		int d = nd - 1;
		bool inside = true;

		for (int k = 0; k < nd; k++) {
			place = place * (int64_t)sizes[k] + (int64_t)(starts[k] + at[k]);
			inside = inside && at[k] < sub[k];
		}
		if (inside)
			model_place(m, &of, place * (of.ub - of.lb), &any);
		while (++at[d] >= sub[d] && d > 0)
			at[d--] = 0;
	}
	m->lb = 0;
	m->ub = of.ub - of.lb;
	for (int d = 0; d < nd; d++)
		m->ub *= (int64_t)sizes[d];
	type_free(child);
	return t;
}

static struct type *random_type(unsigned depth, struct model *m)
{
	struct type *t = NULL;

	switch (depth ? below(17) % 9 : 0) {
	case 1:
	case 2:
	case 3:
		return random_vector(depth, m);
	case 4:
	case 5:
		return random_list(depth, m, false);
	case 6:
	case 7:
		return random_list(depth, m, true);
	case 8:
		return random_subarray(depth, m);
	default:
		*m = model_new();
		m->n = some(8, 0);
		m->ub = (int64_t)m->n;
		for (size_t i = 0; i < m->n; i++)
			pool[pooled++] = (int64_t)i;
		CHECK_EQ(type_bytes(m->n, &t), 0);
		return t;
	}
}

/* ---- cases ---- */

static uint64_t seed;
static bool running;

static void say_seed(void)
{
	if (running)
		fprintf(stderr, "run this case again with SEED=%" PRIu64 "\n", seed);
}

/* Runs the case of the environment variable SEED, or cases 1 to n. */
static void random_cases(void (*one)(void), uint64_t n)
{
	const char *given = getenv("SEED");

	atexit(say_seed);
	running = true;
	seed = given ? strtoull(given, NULL, 10) : 1;
	for (uint64_t end = given ? seed + 1 : n + 1; seed < end; seed++) {
		pooled = 0;
		rng = seed * UINT64_C(0x2545f4914f6cdd1d);
		one();
	}
	running = false;
}

#endif
