/* The status page: the rings of the last hour, the tables of requests and clients, and who may
 * ask. */
#include "test.h"
#include "web/web_impl.h"

static struct web_history h;
static struct web_seen seen;

static void quantiles_lie_in_their_octave(void)
{
	uint64_t octaves[SHEAF_TIME_OCTAVES] = { 0 };

	CHECK(web_quantile(octaves, 0.5) == 0);
	octaves[3] = 98; /* 16 to 32 us */
	octaves[10] = 2; /* 2 to 4 ms */
	CHECK(web_quantile(octaves, 0.5) >= 16384 && web_quantile(octaves, 0.5) <= 32768);
	CHECK(web_quantile(octaves, 0.99) >= 2097152 && web_quantile(octaves, 0.99) <= 4194304);
	CHECK(web_quantile(octaves, 1) <= 4194304);
}

static void an_hour_is_kept_and_no_more(void)
{
	uint64_t now = 100000 * WEB_POINT_NS;

	CHECK_EQ(web_history_init(&h), 0);
	web_history_advance(&h, now);
	for (int i = 0; i < 2 * WEB_POINTS; i++) {
		web_history_advance(&h, now += WEB_POINT_NS);
		h.points[h.point % WEB_POINTS].seconds = i + 1;
		h.minutes[0][h.minute % WEB_MINUTES].seen++;
	}
	for (uint64_t k = 0; k < WEB_POINTS; k++)
		CHECK(h.points[(h.point - k) % WEB_POINTS].seconds == (double)(2 * WEB_POINTS - k));
	for (int k = 1; k < WEB_MINUTES; k++)
		CHECK_EQ(h.minutes[0][(h.minute - (uint64_t)k) % WEB_MINUTES].seen, 12);
	web_history_advance(&h, now += 100 * WEB_HOUR_NS); /* a host that slept */
	for (int i = 0; i < WEB_POINTS; i++)
		CHECK(h.points[i].seconds == 0);
	for (int i = 0; i < WEB_MINUTES; i++)
		CHECK_EQ(h.minutes[SHEAF_MAX_SERVERS - 1][i].seen + h.minutes[0][i].seen, 0);
	web_history_free(&h);
}

static struct sheaf_request request(const char *op, const char *client, uint64_t age_ms,
				    uint64_t trace)
{
	struct sheaf_request q = { .age_ns = age_ms * NSEC_PER_MSEC, .trace = trace };

	snprintf(q.op, sizeof(q.op), "%s", op);
	snprintf(q.client, sizeof(q.client), "%s", client);
	return q;
}

static void the_slowest_requests_stay_for_an_hour(void)
{
	uint64_t now = 10 * WEB_HOUR_NS, least = UINT64_MAX;
	struct sheaf_request q;

	memset(&seen, 0, sizeof(seen));
	web_seen_begin(&seen, now);
	for (uint64_t i = 1; i <= 1000; i++) {
		q = request(i % 2 ? "read" : "lock", "a", i * 7919 % 1000, i);
		web_seen_add(&seen, "s", &q, now);
	}
	CHECK_EQ(seen.in_service, 1000);
	CHECK_EQ(seen.waiting, 500);
	CHECK_EQ(seen.n_now, WEB_SHOWN);
	for (uint32_t i = 1; i < WEB_SHOWN; i++)
		CHECK(seen.now[i - 1].q.age_ns >= seen.now[i].q.age_ns);
	for (int i = 0; i < WEB_SHOWN; i++) {
		least = MIN(least, seen.slowest[i].q.age_ns);
		CHECK_EQ(strcmp(seen.slowest[i].q.op, "read"), 0);
	}
	CHECK_EQ(least, (1000 - 2 * WEB_SHOWN + 1) * NSEC_PER_MSEC); /* odd i have odd ages */

	/* the same request again: one row, with its new age */
	web_seen_begin(&seen, now += NSEC_PER_SEC);
	q = request("write", "a", 5000, 7);
	web_seen_add(&seen, "s", &q, now);
	q.age_ns = 6000 * NSEC_PER_MSEC;
	web_seen_add(&seen, "s", &q, now);
	for (int i = 0; i < WEB_SHOWN; i++)
		CHECK(seen.slowest[i].q.age_ns != 5000 * NSEC_PER_MSEC);
	web_seen_begin(&seen, now + WEB_HOUR_NS + 1);
	for (int i = 0; i < WEB_SHOWN; i++)
		CHECK_EQ(seen.slowest[i].seen, 0);
}

static void many_clients_push_out_the_ones_not_seen_for_longest(void)
{
	uint64_t now = WEB_HOUR_NS;
	struct sheaf_request q;
	char name[32];
	int found = 0;

	memset(&seen, 0, sizeof(seen));
	for (int i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "client%d", i);
		web_seen_begin(&seen, ++now);
		q = request("read", name, 1, (uint64_t)i);
		web_seen_add(&seen, "s", &q, now);
		q = request("read", "constant", 1, (uint64_t)i);
		web_seen_add(&seen, "s", &q, now);
		q = request("window", "", 1, (uint64_t)i);
		web_seen_add(&seen, "s", &q, now);
	}
	for (int i = 0; i < WEB_CLIENTS; i++) {
		CHECK(now - seen.clients[i].seen <= WEB_CLIENTS);
		if (strcmp(seen.clients[i].name, "constant") == 0) {
			CHECK_EQ(seen.clients[i].samples, 5000);
			found++;
		}
	}
	CHECK_EQ(found, 1);
	CHECK_EQ(seen.in_service, 2);
}

static void tokens_are_compared_as_a_whole(void)
{
	struct web_guard g = { .token = "0123456789abcdef" };
	char long_one[WEB_TOKEN_MAX + 50];

	CHECK(web_token_is(&g, "0123456789abcdef"));
	CHECK(!web_token_is(&g, "0123456789abcde"));
	CHECK(!web_token_is(&g, "0123456789abcdef0"));
	CHECK(!web_token_is(&g, "0123456789abcdeF"));
	CHECK(!web_token_is(&g, ""));
	CHECK(!web_token_is(&g, NULL));
	memset(long_one, 'x', sizeof(long_one));
	long_one[sizeof(long_one) - 1] = 0;
	CHECK(!web_token_is(&g, long_one));
	memset(g.token, 'x', WEB_TOKEN_MAX);
	CHECK(!web_token_is(&g, long_one));
	long_one[WEB_TOKEN_MAX] = 0;
	CHECK(web_token_is(&g, long_one));
	g.token[0] = 0; /* none: nothing is right */
	CHECK(!web_token_is(&(struct web_guard){ 0 }, ""));
}

static void only_names_of_this_host_are_local(void)
{
	static const char *const local[] = { "localhost",	"LocalHost:1", "127.0.0.1",
					     "127.9.9.9:65535", "[::1]",       "[::1]:7480" };
	static const char *const others[] = {
		"",	   ":7480",	  "localhost.", "localhost:x",
		"::1",	   "[::1",	  "[::1]x",	"[]",
		"0.0.0.0", "1.2.3.4",	  "128.0.0.1",	"127.0.0.1.example",
		"127.1",   "127.0.0.1 x", "a@127.0.0.1"
	};

	for (size_t i = 0; i < ARRAY_LEN(local); i++)
		CHECK(web_host_is_local(local[i]));
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		CHECK(!web_host_is_local(others[i]));
	CHECK(!web_host_is_local(NULL));
}

TEST_MAIN(TEST(quantiles_lie_in_their_octave), TEST(an_hour_is_kept_and_no_more),
	  TEST(the_slowest_requests_stay_for_an_hour),
	  TEST(many_clients_push_out_the_ones_not_seen_for_longest),
	  TEST(tokens_are_compared_as_a_whole), TEST(only_names_of_this_host_are_local))
