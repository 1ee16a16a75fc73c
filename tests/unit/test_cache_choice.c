/* Whether clients ask the cache bank: only where that pays, measured without delaying reads. */
#include "cache/cache.h"
#include "test.h"

#define US 1000u

static struct bank_choice k;
static uint32_t n_asked, n_probed;

/* `n` accesses of a class; part_found: the percentage that finds what it wants. */
static void run(unsigned class, int n, uint64_t plain_ns, uint64_t ask_ns, unsigned part_found)
{
	n_asked = n_probed = 0;
	for (int i = 0; i < n; i++) {
		if (choice_asks(&k, class)) {
			bool is_found = (unsigned)i * 37 % 100 < part_found;

			n_asked++;
			choice_note_ask(&k, class, ask_ns, false);
			choice_note_asked(&k, class, ask_ns + (is_found ? 0 : plain_ns), ask_ns);
			continue;
		}
		choice_note_plain(&k, class, plain_ns);
		if (choice_probes(&k, class)) {
			n_probed++;
			choice_note_ask(&k, class, ask_ns, false);
		}
	}
}

static void begin(void)
{
	k = (struct bank_choice){ 0 };
}

static void a_bank_that_is_slower_is_probed_and_not_asked(void)
{
	begin();
	run(12, 10000, 60 * US, 100 * US, 100);
	CHECK_EQ(n_asked, 0);
	CHECK(n_probed >= 30);
	CHECK(n_probed <= 70); /* a hundredth of the time */
	run(12, 10000, 60 * US, 50 * US, 100); /* as fast, within noise */
	CHECK_EQ(n_asked, 0);
}

static void a_bank_that_is_faster_is_asked(void)
{
	begin();
	run(12, 10000, 1000 * US, 100 * US, 100);
	CHECK(n_asked > 9900);
	CHECK(n_asked < 9990); /* others measure the servers ... */
	begin();
	run(12, 10000, 15000 * US, 100 * US, 100);
	CHECK(n_asked > 9950); /* ... for a thirty-second of the time */
	CHECK(n_asked < 9995);
}

static void a_bank_that_has_nothing_costs_a_tenth_at_most(void)
{
	begin();
	run(12, 10000, 1000 * US, 300 * US, 0);
	CHECK(n_asked * 300 <= 10000 * 100);
	CHECK(n_asked > 0); /* it is filled, and then asked more */
	run(12, 10000, 1000 * US, 300 * US, 95);
	CHECK(n_asked > 9000);
}

static void what_changes_is_noticed(void)
{
	begin();
	run(12, 1000, 60 * US, 100 * US, 100);
	CHECK_EQ(n_asked, 0);
	run(12, 1000, 2000 * US, 100 * US, 100); /* the servers are busy now */
	CHECK(n_asked > 900);
	run(12, 1000, 2000 * US, 20000 * US, 100); /* the daemons are stopped */
	CHECK(n_asked < 20);
	run(12, 20000, 2000 * US, 100 * US, 100);
	CHECK(n_asked > 10000);
}

static void daemons_that_are_skipped_do_not_count_as_fast(void)
{
	begin();
	run(12, 1000, 60 * US, 100 * US, 100);
	for (int i = 0; i < 1000; i++)
		choice_note_ask(&k, 12, 1 * US, true);
	run(12, 100, 60 * US, 100 * US, 100);
	CHECK_EQ(n_asked, 0);
}

static void each_size_is_judged_by_itself(void)
{
	begin();
	CHECK(choice_class(2048) != choice_class(65536));
	CHECK_EQ(choice_class(UINT64_MAX), BANK_SIZES - 1);
	run(choice_class(2048), 1000, 1000 * US, 100 * US, 100);
	CHECK(n_asked > 900);
	run(choice_class(65536), 1000, 100 * US, 300 * US, 100);
	CHECK_EQ(n_asked, 0);
}

/* Clients of one host whose processors are busy: the servers' answers take the longer the more
 * clients wait for them, and so do the daemons', but an answer of these takes twice the processor
 * time. */
#define CROWD 32
static struct crowd {
	struct bank_choice k;
	bool asks;
	uint64_t at; /* when its access ends */
	uint64_t ns;
} crowd[CROWD];

static struct crowd *next_of_crowd(int *n_asking)
{
	struct crowd *next = crowd;

	*n_asking = 0;
	for (int i = 0; i < CROWD; i++) {
		*n_asking += crowd[i].asks;
		if (crowd[i].at < next->at)
			next = &crowd[i];
	}
	return next;
}

static void start_of_crowd(struct crowd *c, unsigned class, int n_asking)
{
	uint64_t plain_ns = (100 + 80u * (unsigned)(CROWD - n_asking)) * US;
	uint64_t ask_ns = (300 + 160u * (unsigned)n_asking) * US;

	c->asks = choice_asks(&c->k, class);
	c->ns = c->asks ? ask_ns : plain_ns;
	c->at += c->ns;
	if (!c->asks && choice_probes(&c->k, class))
		choice_note_ask(&c->k, class, ask_ns, false);
}

static void clients_of_a_busy_host_do_not_all_ask(void)
{
	const uint64_t end = 10000000 * (uint64_t)US;
	uint64_t n = 0, n_asks = 0;
	int n_asking;

	memset(crowd, 0, sizeof(crowd));
	for (int i = 0; i < CROWD; i++)
		crowd[i].at = (uint64_t)i * 10 * US;
	for (;;) {
		struct crowd *c = next_of_crowd(&n_asking);

		if (c->at > end)
			break;
		if (c->ns && c->asks) {
			choice_note_ask(&c->k, 12, c->ns, false);
			choice_note_asked(&c->k, 12, c->ns, c->ns);
		} else if (c->ns) {
			choice_note_plain(&c->k, 12, c->ns);
		}
		n += c->ns != 0;
		n_asks += c->ns && c->asks;
		start_of_crowd(c, 12, n_asking - c->asks);
	}
	CHECK(n_asks * 3 < n);
}

static void patience_follows_what_fills_take(void)
{
	uint64_t before;

	begin();
	before = choice_patience(&k, 12);
	CHECK_EQ(before, 8000 * US);
	for (int i = 0; i < 20; i++) /* waited in vain: each wait may be a bit longer */
		choice_note_fill(&k, choice_patience(&k, 12));
	CHECK(choice_patience(&k, 12) > before);
	CHECK(choice_patience(&k, 12) <= 500000 * US);
	for (int i = 0; i < 100; i++)
		choice_note_fill(&k, 500 * US);
	CHECK_EQ(choice_patience(&k, 12), 8000 * US);
}

TEST_MAIN(TEST(a_bank_that_is_slower_is_probed_and_not_asked), TEST(a_bank_that_is_faster_is_asked),
	  TEST(a_bank_that_has_nothing_costs_a_tenth_at_most), TEST(what_changes_is_noticed),
	  TEST(daemons_that_are_skipped_do_not_count_as_fast), TEST(each_size_is_judged_by_itself),
	  TEST(clients_of_a_busy_host_do_not_all_ask), TEST(patience_follows_what_fills_take))
