/* Routes: which of them a dial tries, why the others are not used, and when they are used again. */
#include "net/route.h"
#include "test.h"

static int no_dial(struct net *n, struct peer *p, const char *address, uint32_t target,
		   struct link **out)
{
	(void)n, (void)p, (void)address, (void)target, (void)out;
	return -EOPNOTSUPP;
}

/* Three routes: a later table may have as many. */
static struct routes three(void)
{
	static const struct route_kind kinds[] = { { "rdma", no_dial },
						   { "unix", no_dial },
						   { "tcp", no_dial } };
	struct routes r = { .n = ARRAY_LEN(kinds) };

	for (uint32_t i = 0; i < r.n; i++)
		r.row[i].kind = &kinds[i];
	return r;
}

static const char *selected(const struct routes *r)
{
	return r->row[r->at].kind->name;
}

static void an_address_has_the_routes_of_its_form(void)
{
	struct routes r;

	routes_init(&r, "127.0.0.1:7430");
	CHECK_EQ(r.n, 2);
	CHECK_STR(r.row[0].kind->name, "unix");
	CHECK_STR(r.row[1].kind->name, "tcp");
	routes_init(&r, "loop:s");
	CHECK_EQ(r.n, 1);
	CHECK_STR(r.row[0].kind->name, "loop");
}

static void a_dial_tries_the_routes_in_order_and_records_why_they_fail(void)
{
	struct routes r = three();

	routes_begin(&r, 1);
	CHECK_STR(selected(&r), "rdma");
	CHECK(routes_failed(&r, -EOPNOTSUPP, 1));
	CHECK_STR(selected(&r), "unix");
	CHECK(routes_failed(&r, -ECONNREFUSED, 1));
	CHECK_STR(selected(&r), "tcp");
	routes_succeeded(&r);
	CHECK_EQ(r.row[0].error, -EOPNOTSUPP);
	CHECK_EQ(r.row[1].error, -ECONNREFUSED);
	CHECK_EQ(r.row[2].error, 0);
	CHECK_STR(route_reason(r.row[0].error), "switched off");
	CHECK_STR(route_reason(r.row[1].error), "connection refused");
	CHECK_STR(route_reason(0), "");
	CHECK(route_reason(-EHOSTUNREACH)[0]);
}

static void a_route_that_failed_is_skipped_until_its_retry_time(void)
{
	struct routes r = three();
	uint64_t now = NSEC_PER_SEC, pause = ROUTE_PAUSE_NS;

	for (int i = 0; i < 6; i++) {
		routes_begin(&r, now);
		CHECK_STR(selected(&r), "rdma");
		CHECK(routes_failed(&r, -ETIMEDOUT, now));
		routes_succeeded(&r);
		routes_begin(&r, now + pause - 1);
		CHECK_STR(selected(&r), "unix");
		now += pause;
		pause = MIN(2 * pause, ROUTE_PAUSE_MAX_NS);
	}
	routes_begin(&r, now);
	CHECK_STR(selected(&r), "rdma");
	routes_succeeded(&r);
	CHECK_EQ(r.row[0].error, 0);
	routes_begin(&r, now);
	CHECK(routes_failed(&r, -ETIMEDOUT, now)); /* the pause begins anew */
	CHECK_EQ(r.row[0].retry_at, now + ROUTE_PAUSE_NS);
}

static void the_next_route_is_one_that_is_not_skipped(void)
{
	struct routes r = three();

	routes_begin(&r, 0);
	routes_failed(&r, -EOPNOTSUPP, 0);
	routes_failed(&r, -EREMCHG, 0);
	r.row[0].retry_at = 0;
	routes_begin(&r, 1);
	CHECK_STR(selected(&r), "rdma");
	CHECK(routes_failed(&r, -EOPNOTSUPP, 1));
	CHECK_STR(selected(&r), "tcp");
}

static void when_all_routes_have_failed_all_are_tried_again(void)
{
	struct routes r = three();

	routes_begin(&r, 5);
	CHECK(routes_failed(&r, -EOPNOTSUPP, 5));
	CHECK(routes_failed(&r, -EREMCHG, 5));
	CHECK(!routes_has_next(&r));
	CHECK(!routes_failed(&r, -EHOSTUNREACH, 5));
	CHECK_EQ(r.row[0].error, -EOPNOTSUPP); /* the reasons stay */
	CHECK_EQ(r.row[2].error, -EHOSTUNREACH);
	routes_begin(&r, 5);
	CHECK_STR(selected(&r), "rdma");
	routes_succeeded(&r);
	for (uint32_t i = 0; i < r.n; i++)
		CHECK_EQ(r.row[i].error, 0); /* none was needed */
}

static void a_single_route_is_never_skipped(void)
{
	struct routes r;

	routes_init(&r, "loop:s");
	for (int i = 0; i < 3; i++) {
		routes_begin(&r, 7);
		CHECK_EQ(r.at, 0);
		CHECK(!routes_failed(&r, -ECONNREFUSED, 7));
	}
}

TEST_MAIN(TEST(an_address_has_the_routes_of_its_form),
	  TEST(a_dial_tries_the_routes_in_order_and_records_why_they_fail),
	  TEST(a_route_that_failed_is_skipped_until_its_retry_time),
	  TEST(the_next_route_is_one_that_is_not_skipped),
	  TEST(when_all_routes_have_failed_all_are_tried_again),
	  TEST(a_single_route_is_never_skipped))
