/* Tallies: counts by name in a table of fixed size, whose sum never decreases. */
#include <stdio.h>

#include "net/tally.h"
#include "test.h"

static struct tally t;

static uint64_t sum(void)
{
	const struct tally_row *r;
	uint64_t n = 0;

	for (uint32_t i = 0; (r = tally_row_at(&t, i)); i++)
		n += r->requests;
	return n;
}

static struct tally_row *join(int number, uint64_t now)
{
	char name[32];

	snprintf(name, sizeof(name), "job %d", number);
	return tally_join(&t, NULL, name, now);
}

/* A session of this job makes a number of requests and ends. */
static void run(int number, uint64_t requests, uint64_t now)
{
	struct tally_row *r = join(number, now);

	r->requests += requests;
	tally_leave(r, now);
}

static const struct tally_row *row(const char *name)
{
	const struct tally_row *r;

	for (uint32_t i = 0; (r = tally_row_at(&t, i)); i++)
		if (strcmp(r->name, name) == 0)
			return r;
	return NULL;
}

static void sessions_of_a_name_share_a_row(void)
{
	struct tally_row *a, *b;

	tally_init(&t);
	a = join(1, 1);
	b = join(1, 2);
	CHECK(a == b);
	CHECK_EQ(a->sessions, 2);
	CHECK(join(2, 3) != a);
	tally_leave(a, 4);
	tally_leave(b, 4);
	CHECK_EQ(row("job 1")->sessions, 0);
	tally_leave(NULL, 5);
}

static void a_session_that_resumes_under_another_name_moves(void)
{
	struct tally_row *a, *b;

	tally_init(&t);
	a = join(1, 1);
	CHECK(tally_join(&t, a, "job 1", 2) == a);
	CHECK_EQ(a->sessions, 1);
	b = tally_join(&t, a, "job 2", 3);
	CHECK(b != a);
	CHECK_EQ(a->sessions, 0);
	CHECK_EQ(b->sessions, 1);
}

static void the_row_unused_for_longest_makes_room(void)
{
	tally_init(&t);
	for (int i = 0; i < TALLY_ROWS; i++)
		run(i, 10, 100 + (uint64_t)i);
	CHECK(row("job 0") && row("job 255"));
	run(0, 10, 1000); /* now job 1 is the oldest */
	run(1000, 5, 1001);
	CHECK(row("job 0") && row("job 1000"));
	CHECK(!row("job 1"));
	CHECK_EQ(row("(other)")->requests, 10);
	CHECK_EQ(sum(), 10 * TALLY_ROWS + 10 + 5);
	run(1, 1, 1002); /* it comes back, from 0 */
	CHECK_EQ(row("job 1")->requests, 1);
	CHECK(!row("job 2"));
}

static void names_beyond_a_table_in_use_are_counted_together(void)
{
	struct tally_row *rows[TALLY_ROWS], *a, *b;

	tally_init(&t);
	for (int i = 0; i < TALLY_ROWS; i++)
		rows[i] = join(i, 1);
	a = join(2000, 2);
	b = join(2001, 2);
	CHECK(a == b && strcmp(a->name, "(other)") == 0);
	CHECK_EQ(a->sessions, 2);
	a->requests += 7;
	tally_leave(a, 3);
	tally_leave(b, 3);
	for (int i = 0; i < TALLY_ROWS; i++)
		CHECK(strcmp(rows[i]->name, "(other)") != 0);
	CHECK_EQ(sum(), 7);
}

static void many_names_lose_no_count(void)
{
	tally_init(&t);
	for (int i = 0; i < 5000; i++)
		run(i % 700, 1, (uint64_t)i);
	CHECK_EQ(sum(), 5000);
	CHECK_EQ(t.n, TALLY_ROWS);
}

static void users_are_found_by_their_number(void)
{
	tally_init(&t);
	for (uint32_t i = 0; i < 4000; i++) {
		uint32_t uid = i % 5 * TALLY_RECENT; /* they share a recent row */
		struct tally_row *r = tally_user(&t, uid, i);
		char name[16];

		snprintf(name, sizeof(name), "%u", uid);
		CHECK_STR(r->name, name);
		r->requests++;
	}
	CHECK_EQ(row("0")->requests, 800);
	CHECK_EQ(row("256")->requests, 800);
	for (uint32_t uid = 10000; uid < 10000 + 2 * TALLY_ROWS; uid++)
		tally_user(&t, uid, uid)->requests++;
	CHECK(!row("0"));
	CHECK_STR(tally_user(&t, 0, 99999)->name, "0"); /* not the row that it had */
	CHECK_EQ(sum(), 4000 + 2 * TALLY_ROWS);
}

static void names_become_labels(void)
{
	tally_init(&t);
	CHECK_STR(tally_join(&t, NULL, "", 1)->name, TALLY_NONE);
	CHECK_STR(tally_join(&t, NULL, "(other)", 1)->name, "_other)");
	CHECK_STR(tally_join(&t, NULL, "\033]0;x\a\n", 1)->name, "_]0;x__");
	CHECK(tally_join(&t, NULL, "a\tb", 1) == tally_join(&t, NULL, "a_b", 1));
}

TEST_MAIN(TEST(sessions_of_a_name_share_a_row),
	  TEST(a_session_that_resumes_under_another_name_moves),
	  TEST(the_row_unused_for_longest_makes_room),
	  TEST(names_beyond_a_table_in_use_are_counted_together), TEST(many_names_lose_no_count),
	  TEST(users_are_found_by_their_number), TEST(names_become_labels))
