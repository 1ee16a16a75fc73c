#include "type_model.h"

#define TYPE_MAX_BYTES 384 /* largest size of a random type */
#define POOL 16384

uint64_t type_rng;

uint64_t random_below(uint64_t n)
{
	return n ? test_random(&type_rng) % n : 0;
}

static int64_t random_between(int64_t lo, int64_t hi)
{
	return lo + (int64_t)random_below((uint64_t)(hi - lo + 1));
}

static int64_t pool[POOL];
size_t pooled;

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

uint64_t random_count(uint64_t most, size_t size)
{
	most = size ? MIN(most, TYPE_MAX_BYTES / size) : most;
	return random_below(24) ? 1 + random_below(most) : 0;
}

static struct type *random_vector(unsigned depth, struct model *m)
{
	struct model of;
	struct type *t, *child = random_type(depth - 1, &of);
	uint64_t block = random_count(random_below(3) ? 2 : 4, of.n);
	uint64_t count = random_count(random_below(4) ? 4 : 12, of.n * block);
	int64_t extent = of.ub - of.lb, stride = random_between(-40, 60);
	bool any = false;

	if (random_below(3) == 0) /* extent equals size, or nearly */
		stride = extent * (int64_t)block + (random_below(3) ? 0 : random_between(-2, 2));
	else if (random_below(3) == 0)
		stride = (int64_t)of.n * (int64_t)block;
	else if (random_below(8) == 0)
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
	uint64_t blocks[8], kinds = each ? 1 + random_below(3) : 1, left = TYPE_MAX_BYTES;
	struct type *t, *child[3];
	const struct type *of[8];
	int64_t displ[8], at = random_between(-20, 20);
	size_t n = random_count(random_below(4) ? 4 : 8, 0), which[8];
	struct model models[3];
	bool any = false, even = random_below(3) == 0, up = random_below(2);

	for (uint64_t k = 0; k < kinds; k++)
		child[k] = random_type(depth - 1, &models[k]);
	for (size_t i = 0; i < n; i++) {
		const struct model *c;

		which[i] = random_below(kinds);
		c = &models[which[i]];
		of[i] = child[which[i]];
		blocks[i] = even ? 1 : random_below(3) ? 1 + random_below(2) : random_below(4);
		if (blocks[i] * c->n > left)
			blocks[i] = 0;
		left -= blocks[i] * c->n;
		displ[i] = at;
		at += (c->ub - c->lb) * (int64_t)blocks[i] + (even ? 3 :
							      up   ? random_between(0, 6) :
								     0);
		if (!up && !even && random_below(2))
			at = random_below(4) ? random_between(-60, 60) : displ[i];
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
	int nd = 1 + (int)random_below(3);
	bool any = false;

	for (int d = nd - 1; d >= 0; d--) {
		sizes[d] = random_count(5, 0);
		sub[d] = random_below(3) && sizes[d] ? random_count(sizes[d], 0) : sizes[d];
		if (of.n * most * MAX(sub[d], 1) > TYPE_MAX_BYTES)
			sub[d] = MIN(sizes[d], 1);
		most *= MAX(sub[d], 1);
		starts[d] = random_below(sizes[d] - sub[d] + 1);
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

struct type *random_type(unsigned depth, struct model *m)
{
	struct type *t = NULL;

	switch (depth ? random_below(17) % 9 : 0) {
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
		m->n = random_count(8, 0);
		m->ub = (int64_t)m->n;
		for (size_t i = 0; i < m->n; i++)
			pool[pooled++] = (int64_t)i;
		CHECK_EQ(type_bytes(m->n, &t), 0);
		return t;
	}
}

/* ---- cases ---- */

uint64_t case_seed;
static bool running;

static void say_seed(void)
{
	if (running)
		fprintf(stderr, "run this case again with SEED=%" PRIu64 "\n", case_seed);
}

void random_cases(void (*one)(void), uint64_t n)
{
	const char *given = getenv("SEED");

	atexit(say_seed);
	running = true;
	case_seed = given ? strtoull(given, NULL, 10) : 1;
	for (uint64_t end = given ? case_seed + 1 : n + 1; case_seed < end; case_seed++) {
		pooled = 0;
		type_rng = case_seed * UINT64_C(0x2545f4914f6cdd1d);
		one();
	}
	running = false;
}

/* ---- sides of an access ---- */

uint64_t side_offset(const struct side *s, uint64_t base, uint64_t i)
{
	uint64_t copy = i / s->model.n;

	return base + copy * (uint64_t)(s->model.ub - s->model.lb) +
	       (uint64_t)s->model.off[i % s->model.n];
}

struct side random_side(void)
{
	struct side s;

	do
		s.type = random_type((unsigned)random_below(4), &s.model);
	while (!s.model.n && (type_free(s.type), true));
	return s;
}
