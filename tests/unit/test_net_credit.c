/* Receive credits of a link: what each end may send, and how many buffers the receiver keeps. */
#include <errno.h>

#include "net/credit.h"
#include "test.h"

#define PERIOD 64 /* as in credit.c */

static struct credits c;

static void begin(void)
{
	credits_init(&c);
	credits_told(&c, CREDIT_FIRST); /* as the peer says when RDMA is attached */
}

/* The peer sends n messages, and hears nothing meanwhile. */
static void receive(uint32_t n)
{
	while (n--)
		CHECK_EQ(credits_receive(&c), 0);
}

/* The peer uses all it has, and hears of more, until the depth no longer grows. */
static void grow(void)
{
	for (int i = 0; i < 3; i++) {
		receive(c.granted - c.received);
		credits_send(&c);
	}
	CHECK_EQ(c.depth, CREDIT_MAX);
}

static void the_last_credit_is_for_credits(void)
{
	begin();
	for (int i = 0; i < CREDIT_FIRST - 1; i++) {
		CHECK(credits_may_send(&c, false));
		CHECK_EQ(credits_left(&c), CREDIT_FIRST - 1 - i);
		credits_send(&c);
	}
	CHECK(!credits_may_send(&c, false));
	CHECK_EQ(credits_left(&c), 0);
	CHECK(credits_may_send(&c, true));
	credits_send(&c);
	CHECK(!credits_may_send(&c, true));
	CHECK_EQ(credits_left(&c), 0);
}

static void nothing_is_sent_before_the_peer_has_granted_it(void)
{
	credits_init(&c);
	CHECK(!credits_may_send(&c, false) && !credits_may_send(&c, true));
	credits_told(&c, 2);
	CHECK(credits_may_send(&c, false));
}

static void a_peer_that_returns_no_credits_gets_no_more_messages(void)
{
	uint32_t n = 0;

	begin();
	for (int i = 0; i < 1000; i++) {
		while (credits_may_send(&c, true)) {
			credits_send(&c);
			n++;
		}
		if (i % 2 == 0 && c.granted != c.received)
			receive(1); /* it sends, and its messages grant nothing new */
		credits_told(&c, CREDIT_FIRST);
	}
	CHECK_EQ(n, CREDIT_FIRST);
}

static void older_numbers_take_nothing_back(void)
{
	begin();
	credits_told(&c, 10);
	credits_told(&c, 9);
	credits_told(&c, 0);
	CHECK_EQ(c.may_send, 10);
}

static void immediate_data_use_a_credit_and_grant_none(void)
{
	begin();
	receive(3);
	for (int i = 0; i < CREDIT_FIRST - 1; i++)
		credits_use(&c);
	CHECK(!credits_may_send(&c, false));
	CHECK_EQ(c.granted, CREDIT_FIRST);
	CHECK_EQ(credits_send(&c), 3 + c.depth);
}

static void more_messages_than_granted_are_an_error(void)
{
	begin();
	receive(CREDIT_FIRST);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(credits_receive(&c), -EPROTO);
	CHECK_EQ(c.received, CREDIT_FIRST);
	credits_send(&c);
	receive(c.depth);
	CHECK_EQ(credits_receive(&c), -EPROTO);
}

static void a_peer_that_uses_all_gets_more_up_to_the_limit(void)
{
	begin();
	receive(2);
	CHECK_EQ(c.depth, CREDIT_FIRST);
	receive(1); /* one is left */
	CHECK_EQ(c.depth, 2 * CREDIT_FIRST);
	CHECK_EQ(credits_send(&c), 3 + 2 * CREDIT_FIRST);
	grow();
	for (int i = 0; i < 10; i++) {
		receive(CREDIT_MAX);
		CHECK_EQ(credits_send(&c), c.received + CREDIT_MAX);
	}
}

/* Request and reply: all credits but one are unused. */
static void a_peer_that_leaves_most_free_gets_fewer_and_never_too_few(void)
{
	begin();
	grow();
	do { /* the busy period ends */
		receive(1);
		credits_send(&c);
	} while (c.n_seen);
	for (uint32_t depth = CREDIT_MAX; depth > CREDIT_FIRST; depth--) {
		for (uint32_t i = 0; i < PERIOD; i++) {
			CHECK_EQ(c.depth, depth);
			receive(1);
			credits_send(&c);
		}
	}
	for (uint32_t i = 0; i < 10 * PERIOD; i++) {
		CHECK_EQ(c.depth, CREDIT_FIRST);
		receive(1);
		credits_send(&c);
	}
}

/* Each burst uses more than half of the credits. */
static void a_peer_that_sends_in_bursts_keeps_its_credits(void)
{
	begin();
	grow();
	for (int i = 0; i < 1000; i++) {
		receive(CREDIT_MAX / 2 + 1);
		credits_send(&c);
	}
	CHECK_EQ(c.depth, CREDIT_MAX);
}

static void half_of_the_depth_is_due(void)
{
	begin();
	grow();
	receive(CREDIT_MAX / 2 - 1);
	CHECK(!credits_are_due(&c));
	receive(1);
	CHECK(credits_are_due(&c));
	credits_send(&c);
	CHECK(!credits_are_due(&c));
}

/* ---- two ends ---- */

#define WIRE 64

enum { CREDITS_ONLY, MESSAGE, IMMEDIATE };

struct end {
	struct credits c;
	struct {
		int kind;
		uint32_t grant;
	} wire[WIRE]; /* to the other end, in order */
	uint32_t n_sent, n_taken; /* as places on the wire */
	uint32_t n_messages, n_credits; /* that it sent */
	uint32_t told; /* the highest grant that it has sent */
};

static struct end ends[2];

/* The numbers are as if the link had moved so many messages before. */
static void ends_begin(uint32_t moved)
{
	for (int i = 0; i < 2; i++) {
		struct end *e = &ends[i];

		*e = (struct end){ 0 };
		credits_init(&e->c);
		credits_told(&e->c, CREDIT_FIRST);
		e->c.sent += moved;
		e->c.may_send += moved;
		e->c.received += moved;
		e->c.granted += moved;
		e->told = e->c.granted;
	}
}

/* What holds at all times: the peer never sends more than there are buffers. */
static void check_end(const struct end *e)
{
	CHECK(e->c.depth >= CREDIT_FIRST && e->c.depth <= CREDIT_MAX);
	CHECK(e->c.granted - e->c.received <= e->c.depth);
	CHECK(e->c.may_send - e->c.sent <= CREDIT_MAX);
	CHECK(e->n_sent - e->n_taken <= CREDIT_MAX);
}

static bool send_one(struct end *e, int kind)
{
	uint32_t at = e->n_sent % WIRE;

	if (!credits_may_send(&e->c, kind == CREDITS_ONLY) ||
	    (kind == CREDITS_ONLY && !credits_are_due(&e->c)))
		return false;
	e->wire[at].kind = kind;
	if (kind == IMMEDIATE) {
		credits_use(&e->c);
	} else {
		e->wire[at].grant = credits_send(&e->c);
		CHECK((int32_t)(e->wire[at].grant - e->told) >= 0); /* none is taken back */
		e->told = e->wire[at].grant;
	}
	e->n_sent++;
	e->n_messages += kind != CREDITS_ONLY;
	e->n_credits += kind == CREDITS_ONLY;
	check_end(e);
	return true;
}

static bool take_one(struct end *e, struct end *from)
{
	uint32_t at = from->n_taken % WIRE;

	if (from->n_taken == from->n_sent)
		return false;
	CHECK_EQ(credits_receive(&e->c), 0);
	if (from->wire[at].kind != IMMEDIATE)
		credits_told(&e->c, from->wire[at].grant);
	from->n_taken++;
	check_end(e);
	return true;
}

/* Everything arrives, and no end has more to say. */
static void settle(void)
{
	bool moved = true;

	for (int rounds = 0; moved; rounds++) {
		CHECK(rounds < 100);
		moved = false;
		for (int i = 0; i < 2; i++) {
			while (take_one(&ends[i], &ends[!i]))
				moved = true;
			moved |= send_one(&ends[i], CREDITS_ONLY);
		}
	}
}

/* Both ends send when they like, and hear of it at any time later. */
static void two_ends_keep_the_rules(uint64_t seed, uint32_t moved)
{
	uint64_t rnd = seed;

	ends_begin(moved);
	for (int i = 0; i < 20000; i++) {
		uint64_t x = test_random(&rnd);
		struct end *e = &ends[x & 1], *other = &ends[!(x & 1)];
		uint32_t bias = (uint32_t)i / 2000; /* from much sending to much receiving */

		if ((x >> 8) % 16 < 3 + bias)
			take_one(e, other);
		else if ((x >> 16) % 8 < 7)
			send_one(e, (x >> 24) % 4 ? MESSAGE : IMMEDIATE);
		else
			send_one(e, CREDITS_ONLY);
		if ((x >> 32) % 500 == 0) {
			settle();
			CHECK(credits_may_send(&ends[0].c, false));
			CHECK(credits_may_send(&ends[1].c, false));
		}
	}
	CHECK(ends[0].n_messages > 1000 && ends[1].n_messages > 1000);
}

static void two_ends_never_run_into_each_other(void)
{
	for (uint64_t seed = 1; seed <= 50; seed++)
		two_ends_keep_the_rules(seed, 0);
}

static void the_numbers_may_wrap_around(void)
{
	for (uint64_t seed = 1; seed <= 50; seed++)
		two_ends_keep_the_rules(seed, UINT32_MAX - 100 * (uint32_t)seed);
}

/* One end only sends and the other only receives: the credits come back alone, at most one message
 * for half of the smallest depth. */
static void a_stream_in_one_direction_does_not_stop(void)
{
	ends_begin(0);
	for (int i = 0; i < 10000; i++) {
		while (send_one(&ends[0], i % 3 ? MESSAGE : IMMEDIATE))
			;
		settle();
	}
	CHECK(ends[0].n_messages >= 10000 * (CREDIT_FIRST - 1));
	CHECK_EQ(ends[1].n_messages, 0);
	CHECK(ends[1].n_credits <= ends[0].n_sent / (CREDIT_FIRST / 2));
	CHECK(ends[0].n_credits <= ends[1].n_sent / (CREDIT_FIRST / 2));
}

TEST_MAIN(TEST(the_last_credit_is_for_credits),
	  TEST(nothing_is_sent_before_the_peer_has_granted_it),
	  TEST(a_peer_that_returns_no_credits_gets_no_more_messages),
	  TEST(older_numbers_take_nothing_back), TEST(immediate_data_use_a_credit_and_grant_none),
	  TEST(more_messages_than_granted_are_an_error),
	  TEST(a_peer_that_uses_all_gets_more_up_to_the_limit),
	  TEST(a_peer_that_leaves_most_free_gets_fewer_and_never_too_few),
	  TEST(a_peer_that_sends_in_bursts_keeps_its_credits), TEST(half_of_the_depth_is_due),
	  TEST(two_ends_never_run_into_each_other), TEST(the_numbers_may_wrap_around),
	  TEST(a_stream_in_one_direction_does_not_stop))
