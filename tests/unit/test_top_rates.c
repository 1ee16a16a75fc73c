/* Rates of `sheaf top`: from two answers of a server, also when it gave up rows or restarted. */
#include <stdio.h>

#include "commands/top_rates.h"
#include "test.h"

static struct top_sample s;
static struct top_row rows[2 * SHEAF_TALLY_ROWS];

static void begin(uint64_t boot, uint64_t seconds)
{
	struct sheaf_tally *t = top_next(&s);

	t->n = 0;
	t->boot = boot;
	t->uptime_ns = seconds * NSEC_PER_SEC;
}

static void tell(const char *name, uint64_t requests, uint64_t bytes)
{
	struct sheaf_tally *t = top_next(&s);
	struct sheaf_tally_row *r = &t->rows[t->n++];

	*r = (struct sheaf_tally_row){ .requests = requests,
				       .bytes_read = bytes,
				       .bytes_written = 2 * bytes };
	snprintf(r->name, sizeof(r->name), "%s", name);
}

static const struct top_row *row(const char *name)
{
	size_t n = top_rows(&s, rows);

	for (size_t i = 0; i < n; i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	CHECK(!"a row of this name");
	return &rows[0];
}

static void two_answers_make_rates(void)
{
	memset(&s, 0, sizeof(s));
	begin(1, 10);
	tell("wave", 100, 1000);
	tell("(other)", 0, 0);
	top_take(&s);
	CHECK(!s.has_rates);
	CHECK_EQ(row("wave")->requests, 100);
	CHECK_EQ(row("wave")->requests_per_s, 0);
	begin(1, 12);
	tell("wave", 110, 1600);
	tell("arrived", 8, 0);
	tell("(other)", 0, 0);
	top_take(&s);
	CHECK(s.has_rates);
	CHECK_EQ(row("wave")->requests_per_s, 5);
	CHECK_EQ(row("wave")->read_per_s, 300);
	CHECK_EQ(row("wave")->written_per_s, 600);
	CHECK_EQ(row("arrived")->requests_per_s, 4);
}

static void a_restarted_server_has_no_rates_at_first(void)
{
	two_answers_make_rates();
	begin(2, 13);
	tell("wave", 3, 3);
	top_take(&s);
	CHECK(!s.has_rates);
	CHECK_EQ(row("wave")->requests_per_s, 0);
	begin(2, 14);
	tell("wave", 4, 3);
	top_take(&s);
	CHECK_EQ(row("wave")->requests_per_s, 1);
}

/* The counts of a row that is given up are old, though "(other)" grows by them. */
static void rows_that_are_given_up_make_no_rate(void)
{
	memset(&s, 0, sizeof(s));
	begin(1, 10);
	tell("old", 1000, 1000000);
	tell("back", 500, 5000);
	tell("(other)", 70, 7);
	top_take(&s);
	begin(1, 11);
	tell("new", 2, 20);
	tell("back", 3, 30); /* given up, and taken anew */
	tell("(other)", 70 + 1000 + 500 + 4, 7 + 1000000 + 5000 + 40);
	top_take(&s);
	CHECK_EQ(row("(other)")->requests_per_s, 4);
	CHECK_EQ(row("(other)")->read_per_s, 40);
	CHECK_EQ(row("back")->requests_per_s, 3);
	CHECK_EQ(row("new")->read_per_s, 20);
}

static void rows_of_several_servers_are_added_up(void)
{
	size_t n;

	two_answers_make_rates();
	n = top_rows(&s, rows);
	n += top_rows(&s, rows + n);
	n = top_join(rows, n);
	CHECK_EQ(n, 3);
	CHECK_STR(rows[0].name, "(other)");
	CHECK_STR(rows[1].name, "arrived");
	CHECK_STR(rows[2].name, "wave");
	CHECK_EQ(rows[2].requests, 220);
	CHECK_EQ(rows[2].requests_per_s, 10);
	CHECK_EQ(rows[2].written_per_s, 1200);
}

TEST_MAIN(TEST(two_answers_make_rates), TEST(a_restarted_server_has_no_rates_at_first),
	  TEST(rows_that_are_given_up_make_no_rate), TEST(rows_of_several_servers_are_added_up))
