/* The sieving plan: compared with the best of all plans for few pieces, and the shape of plans for
 * known patterns. */
#include "sieve/sieve.h"

#include "test.h"

#define MANY 150

static uint64_t rng = 23;

static uint64_t below(uint64_t n)
{
	return test_random(&rng) % n;
}

/* A machine: a call of some hundred ns, some GB/s, a disk with a seek of up to 10 ms. */
static struct sieve_costs any_costs(void)
{
	struct sieve_costs c = { .parallel = 1 + (double)below(16),
				 .copy = 0.02 + 0.001 * (double)below(300),
				 .piece = (double)(1 + below(20)) };
	double read = 200 + (double)below(3000), write = 300 + (double)below(4000);
	double byte = 0.05 + 0.001 * (double)below(400);
	double seek = (double)(20000 + below(10000000)), disk = 0.3 + 0.01 * (double)below(1000);

	for (int i = 0; i < SIEVE_SIZES; i++) {
		double size = sieve_sizes[i], small = 1 + 8 * KIB / (8 * KIB + size);

		c.read.ns[i] = read + byte * size * small;
		c.write.ns[i] = write + 1.3 * byte * size * small;
		c.cold.ns[i] = seek + disk * MAX(size, LEAST_PAGE);
	}
	return c;
}

static uint32_t any_pieces(struct extent *p, uint32_t n)
{
	uint64_t at = below(100000), far = 1 + below(3) * below(100000);

	for (uint32_t i = 0; i < n; i++) {
		at += below(4) ? below(2000) : below(far);
		p[i] = (struct extent){ at, 1 + (below(4) ? below(1000) : below(40000)) };
		at += p[i].length;
	}
	return n;
}

static struct sieve_part part_of(const struct extent *p, uint32_t first, uint32_t n)
{
	struct sieve_part s = { .first = first, .n = n, .lo = p[first].offset, .covers = n > 1 };

	for (uint32_t i = first; i < first + n; i++)
		s.hi = MAX(s.hi, p[i].offset + p[i].length);
	return s;
}

static bool is_allowed(const struct sieve_want *w, const struct extent *p,
		       const struct sieve_part *s)
{
	uint64_t end = p[s->first].offset + p[s->first].length;

	for (uint32_t i = s->first + 1; i < s->first + s->n; i++) {
		if (w->write && sieve_skips_page(end, p[i].offset))
			return false;
		end = MAX(end, p[i].offset + p[i].length);
	}
	return s->n == 1 || s->hi - s->lo <= w->most;
}

/* The least time of all plans. */
static double brute_force(const struct sieve_want *w, const struct extent *p, uint32_t n)
{
	double least[MANY + 1] = { 0 }; /* for pieces [i, n) */

	for (uint32_t i = n; i-- > 0;) {
		least[i] = 1e300;
		for (uint32_t k = 1; i + k <= n; k++) {
			struct sieve_part s = part_of(p, i, k);

			if (!is_allowed(w, p, &s))
				break;
			least[i] = MIN(least[i], sieve_part_time(w, p, &s) + least[i + k]);
			s.covers = true;
			least[i] = MIN(least[i], sieve_part_time(w, p, &s) + least[i + k]);
		}
	}
	return least[0];
}

/* The parts have every piece once, in order, and each is allowed. */
static void check_parts(const struct sieve_want *w, const struct extent *p, uint32_t n,
			const struct sieve_part *parts, uint32_t n_parts, double ns)
{
	uint32_t next = 0;
	double sum = 0;

	for (uint32_t i = 0; i < n_parts; i++) {
		struct sieve_part s = part_of(p, parts[i].first, parts[i].n);

		CHECK_EQ(parts[i].first, next);
		CHECK(parts[i].n > 0);
		CHECK_EQ(parts[i].lo, s.lo);
		CHECK_EQ(parts[i].hi, s.hi);
		if (parts[i].covers)
			CHECK(is_allowed(w, p, &s));
		sum += sieve_part_time(w, p, &parts[i]);
		next += parts[i].n;
	}
	CHECK_EQ(next, n);
	CHECK(sum > 0.999 * ns && sum < 1.001 * ns);
}

static double worst_plan(uint32_t most, int rounds)
{
	struct extent p[MANY];
	struct sieve_part parts[MANY];
	double worst = 1;

	for (int round = 0; round < rounds; round++) {
		struct sieve_costs c = any_costs();
		struct sieve_want w = { .costs = &c,
					.write = below(2),
					.cached = below(2),
					.most = below(4) ? MIB : 1 + below(20000),
					.room = UINT64_MAX };
		uint32_t n = any_pieces(p, (uint32_t)(1 + below(most)));
		double ns;
		uint32_t k = sieve_plan(&w, p, n, parts, &ns);

		check_parts(&w, p, n, parts, k, ns);
		worst = MAX(worst, ns / brute_force(&w, p, n));
	}
	printf("  up to %u pieces, worst of %d plans: %.3f of the best\n", most, rounds, worst);
	return worst;
}

static void plans_cost_at_most_a_twentieth_more_than_the_best(void)
{
	CHECK(worst_plan(10, 20000) < 1.0001);
	CHECK(worst_plan(MANY, 500) < 1.05);
}

static const struct sieve_costs usual = {
	.read = { .ns = { 400, 450, 600, 1500, 6000, 24000 } },
	.write = { .ns = { 700, 800, 1100, 2600, 9000, 36000 } },
	.cold = { .ns = { 90000, 90000, 90000, 110000, 150000, 300000 } },
	.parallel = 4,
	.copy = 0.1,
	.piece = 5,
};

static void dense_clusters_are_covered_and_sparse_pieces_are_not(void)
{
	struct sieve_want w = { .costs = &usual, .cached = true, .most = MIB, .room = MIB };
	struct extent p[40];
	struct sieve_part parts[40];
	double ns;
	uint32_t n = 0;

	for (uint32_t i = 0; i < 16; i++)
		p[n++] = (struct extent){ i * 128, 64 };
	for (uint32_t i = 0; i < 8; i++)
		p[n++] = (struct extent){ MIB + i * MIB, 64 };
	for (uint32_t i = 0; i < 16; i++)
		p[n++] = (struct extent){ 10 * MIB + i * 128, 64 };
	for (int write = 0; write < 2; write++) {
		w.write = write;
		CHECK_EQ(sieve_plan(&w, p, n, parts, &ns), 3);
		CHECK(parts[0].covers && !parts[1].covers && parts[2].covers);
		CHECK_EQ(parts[0].n, 16);
		CHECK_EQ(parts[1].n, 8);
	}
}

static void data_on_the_disk_are_covered_over_larger_gaps(void)
{
	struct sieve_want w = { .costs = &usual, .most = MIB, .room = MIB };
	struct extent p[32];
	struct sieve_part parts[32];
	double ns;

	for (uint32_t i = 0; i < 32; i++)
		p[i] = (struct extent){ i * 16 * KIB, 64 };
	CHECK_EQ(sieve_plan(&w, p, 32, parts, &ns), 1);
	CHECK(parts[0].covers);
	w.cached = true;
	CHECK_EQ(sieve_plan(&w, p, 32, parts, &ns), 1);
	CHECK(!parts[0].covers);
}

static void covering_ranges_have_room_together(void)
{
	struct sieve_want w = { .costs = &usual, .cached = true, .most = MIB, .room = 4000 };
	struct extent p[48];
	struct sieve_part parts[48];
	double ns;

	for (uint32_t i = 0; i < 48; i++)
		p[i] = (struct extent){ i / 16 * MIB + i % 16 * 128, 64 };
	CHECK_EQ(sieve_plan(&w, p, 48, parts, &ns), 3);
	CHECK(parts[0].covers && parts[1].covers && !parts[2].covers);
	check_parts(&w, p, 48, parts, 3, ns);
}

static void a_full_window_is_planned(void)
{
	static struct extent p[SIEVE_PIECES];
	static struct sieve_part parts[SIEVE_PIECES];
	struct sieve_want w = { .costs = &usual, .cached = true, .most = 256 * KIB, .room = MIB };
	double ns;

	for (uint32_t i = 0; i < SIEVE_PIECES; i++)
		p[i] = (struct extent){ i * 256, 64 };
	CHECK_EQ(sieve_plan(&w, p, SIEVE_PIECES, parts, &ns), 2);
	check_parts(&w, p, SIEVE_PIECES, parts, 2, ns);
}

TEST_MAIN(TEST(plans_cost_at_most_a_twentieth_more_than_the_best),
	  TEST(dense_clusters_are_covered_and_sparse_pieces_are_not),
	  TEST(data_on_the_disk_are_covered_over_larger_gaps),
	  TEST(covering_ranges_have_room_together), TEST(a_full_window_is_planned))
