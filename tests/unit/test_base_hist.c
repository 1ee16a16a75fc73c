/* Histograms. */
#include "base/base.h"

#include "test.h"

static void small_values_are_exact(void)
{
	struct hist h = { 0 };

	CHECK_EQ(hist_quantile(&h, 0.5), 0);
	for (uint64_t v = 0; v < 16; v++)
		hist_add(&h, v);
	CHECK_EQ(h.count, 16);
	CHECK_EQ(h.sum, 120);
	CHECK_EQ(h.max, 15);
	CHECK_EQ(hist_quantile(&h, 0), 0);
	CHECK_EQ(hist_quantile(&h, 0.5), 7);
	CHECK_EQ(hist_quantile(&h, 1), 15);
}

/* A value is never below its bucket's edge and at most a sixteenth under it. */
static void a_bucket_is_six_percent_wide(void)
{
	for (unsigned bits = 4; bits < 47; bits++) {
		for (int sign = -1; sign <= 1; sign++) {
			uint64_t v = (UINT64_C(1) << bits) + (uint64_t)sign, q;
			struct hist h = { 0 };

			hist_add(&h, v);
			hist_add(&h, UINT64_MAX / 4); /* keeps max from hiding the edge */
			q = hist_quantile(&h, 0.5);
			CHECK(q >= v && q - v <= v / 16 + 1);
		}
	}
}

static void buckets_do_not_overlap_or_leave_gaps(void)
{
	uint64_t last = 0, edges = 0;

	for (uint64_t v = 1; v < 5000; v++) {
		struct hist h = { 0 };
		uint64_t q;

		hist_add(&h, v);
		h.max = UINT64_MAX;
		q = hist_quantile(&h, 1);
		CHECK(q >= v && q >= last);
		if (q != last)
			CHECK(last < v); /* a new bucket begins right after the previous edge */
		edges += q != last;
		last = q;
	}
	CHECK(edges < 16 + 16 * 9);
}

static void enormous_values_land_in_the_last_bucket(void)
{
	struct hist h = { 0 };

	hist_add(&h, UINT64_MAX);
	CHECK_EQ(h.buckets[HIST_BUCKETS - 1], 1);
	CHECK_EQ(hist_quantile(&h, 0.5), UINT64_MAX);
}

static void quantiles_follow_the_distribution(void)
{
	static struct hist h;

	for (uint64_t v = 1; v <= 100000; v++)
		hist_add(&h, v);
	for (int p = 1; p <= 100; p++) {
		uint64_t q = hist_quantile(&h, p / 100.0), want = (uint64_t)p * 1000;

		CHECK(q >= want && q <= want + want / 15);
	}
	CHECK_EQ(hist_quantile(&h, 2.0), 100000);
}

TEST_MAIN(TEST(small_values_are_exact), TEST(a_bucket_is_six_percent_wide),
	  TEST(buckets_do_not_overlap_or_leave_gaps), TEST(enormous_values_land_in_the_last_bucket),
	  TEST(quantiles_follow_the_distribution))
