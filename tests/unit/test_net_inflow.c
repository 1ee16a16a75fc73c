/* The receive windows of a client that many servers answer at once. */
#include "net/backend.h"
#include "test.h"

#define PERIOD (5 * NSEC_PER_MSEC)

static const struct sock_inflow seen = { .segment = 1448, .round_ns = 100000 };
static struct inflow f;
static uint64_t now;

/* A period in which n links receive `bytes` each, `lossy` of them with losses; the last window. */
static uint32_t period(uint32_t n, uint64_t bytes, uint32_t lossy)
{
	uint32_t window = 0;

	now += PERIOD;
	for (uint32_t i = 0; i < n; i++) {
		inflow_turn(&f, now);
		f.bytes += bytes;
		f.n_links++;
		window = inflow_window(&f, &seen, i < lossy, now);
	}
	return window;
}

static uint32_t periods(int times, uint32_t n, uint64_t bytes, uint32_t lossy)
{
	uint32_t window = 0;

	while (times--)
		window = period(n, bytes, lossy);
	return window;
}

static void begin(void)
{
	f = (struct inflow){ 0 };
	now = 1000 * PERIOD;
}

static void without_losses_there_is_no_limit(void)
{
	begin();
	CHECK_EQ(periods(100, 16, 40000, 0), 0);
}

static void a_single_link_is_left_to_tcp(void)
{
	begin();
	CHECK_EQ(periods(100, 1, 600000, 1), 0);
}

static void losses_shrink_the_windows_of_all_links(void)
{
	uint32_t first, later;

	begin();
	periods(2, 16, 40000, 0);
	first = period(16, 40000, 1);
	CHECK_EQ(first, 16 * KIB);
	CHECK_EQ(period(16, 40000, 16), first); /* the losses of 20 ms are one event */
	later = periods(4, 16, 40000, 1);
	CHECK(later < first && later >= first / 2);
	CHECK_EQ(periods(1000, 16, 40000, 1), 4u * 1448u); /* never below some segments */
}

/* 16 links with 8 MB in 5 ms and a round trip of 0.1 ms have 160 KB on their way. */
static void the_budget_holds_twice_what_is_on_its_way(void)
{
	begin();
	CHECK_EQ(periods(1000, 16, 500000, 1), 20000);
}

static void the_limit_grows_slowly_and_ends(void)
{
	uint32_t low, later;

	begin();
	low = periods(1000, 16, 40000, 1);
	later = periods(60, 16, 40000, 0); /* 0.3 s */
	CHECK(later > low && later < low + low / 4);
	CHECK_EQ(periods(60 * 60, 16, 40000, 0), 0);
}

static void links_that_rest_give_their_share_away(void)
{
	uint32_t many, few;

	begin();
	many = periods(1000, 16, 40000, 1);
	few = periods(3, 2, 300000, 0);
	CHECK(few >= 8 * many);
}

TEST_MAIN(TEST(without_losses_there_is_no_limit), TEST(a_single_link_is_left_to_tcp),
	  TEST(losses_shrink_the_windows_of_all_links),
	  TEST(the_budget_holds_twice_what_is_on_its_way), TEST(the_limit_grows_slowly_and_ends),
	  TEST(links_that_rest_give_their_share_away))
