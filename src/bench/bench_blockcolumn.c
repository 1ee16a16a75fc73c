/* sheaf bench blockcolumn: an array of N x N integers of 4 bytes, distributed over 4 clients by
 * blocks of columns, so that each accesses one unit in four of the file: N pieces of N bytes (after
 * "Supporting Efficient Noncontiguous Access in PVFS over InfiniBand", figures 5 to 7).
 * On a disk also cold, for a part of the large arrays.
 *
 * And one column of 8 bytes of a million records of 64 bytes: one typed read, lists, and a copy
 * loop in the memory of one client. */
#include "bench/bench_impl.h"

#define RECORDS 1000000
#define RECORD 64 /* bytes */
#define COLUMN 8 /* bytes */
#define LISTED 62500 /* records that are read by lists in one operation */
#define SLICE_NS (60 * NSEC_PER_MSEC)

static const uint32_t sizes[] = { 512, 1024, 2048, 4096, 8192 };
#define LARGEST 8192
#define COUNTED_UP_TO 2048 /* accesses are judged up to this N */
static const char *const ways[] = { "read", "write" };
static const char copied[] = "column: copy loop in memory";

static struct bench_strided array(uint32_t n, bool cold)
{
	return (struct bench_strided){ .name = "",
				       .size = n,
				       .stride = 4 * (uint64_t)n,
				       .step = { n, 0 },
				       .columns = BENCH_SHARERS,
				       .rows = n,
				       .clients = BENCH_SHARERS,
				       .ns = SLICE_NS,
				       .cold = cold };
}

/* ---- the column ---- */

static const struct bench_strided column = { .name = "column",
					     .size = COLUMN,
					     .stride = RECORD,
					     .columns = 1,
					     .rows = RECORDS,
					     .clients = 1,
					     .ns = SLICE_NS };

static int copy_column(struct bench_worker *w)
{
	char *to = w->buf, *from = w->buf + (size_t)RECORDS * COLUMN;

	for (size_t i = 0; i < RECORDS; i++)
		memcpy(to + i * COLUMN, from + i * RECORD, COLUMN);
	return 0;
}

static void add_column(struct bench *b)
{
	struct bench_case c = { .job = { .once = copy_column, .size = COLUMN, .count = RECORDS },
				.pieces = RECORDS,
				.bytes = COLUMN,
				.figure = BENCH_BANDWIDTH,
				.ns = SLICE_NS };

	bench_strided_case(b, &column, BENCH_TYPED_SIEVE, 0);
	bench_strided_case(b, &column, BENCH_LISTS, 0);
	b->cases[b->n_cases - 1].job.count = LISTED;
	bench_case_add(b, c, "%s", copied);
}

static void judge_column(struct bench *b)
{
	const struct bench_row *typed = bench_strided_find(b, &column, BENCH_TYPED_SIEVE, 0);

	bench_bar_ratio(b, "column_vs_lists", typed, bench_strided_find(b, &column, BENCH_LISTS, 0),
			BENCH_AT_LEAST, 20);
	bench_bar_ratio(b, "column_vs_copy", typed, bench_find(b, copied, 1, COLUMN, RECORDS),
			BENCH_AT_LEAST, 0.3);
}

/* ---- measuring ---- */

static void add(struct bench *b, const struct bench_strided *s)
{
	for (int out = 0; out < 2; out++) {
		for (int way = 0; way < BENCH_WAYS; way++)
			bench_strided_case(b, s, way, out);
		if (s->cold && s->rows <= COUNTED_UP_TO)
			bench_strided_count(b, s, out);
	}
}

static bool has_cold(const struct bench *b)
{
	return b->place.own && b->place.on_disk;
}

static int setup(struct bench *b)
{
	struct bench_strided s = array(LARGEST, false);
	int e = bench_strided_setup(b, s.rows * s.stride,
				    MAX(s.rows * s.size, (uint64_t)RECORDS * (RECORD + COLUMN)));

	if (!e)
		e = bench_strided_verify(b, &column, false);
	bench_add_stream(b);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		s = array(sizes[i], false);
		if (!e)
			e = bench_strided_verify(b, &s, false);
		add(b, &s);
	}
	add_column(b);
	for (size_t i = 0; has_cold(b) && i < ARRAY_LEN(sizes); i++) {
		s = array(sizes[i], true);
		add(b, &s);
	}
	return e;
}

/* ---- judging ---- */

/* Figure 6: writes; figure 7: reads. */
static const char *paper_of(uint32_t n, int way, int out)
{
	if (way == BENCH_LIST)
		return n < 2048 ? "1.3 to 1.9" : "1";
	if (out)
		return "3.5 to 12.1";
	return way == BENCH_CLIENT_SIEVE ? "1 or more" : NULL;
}

/* The speed with sieving to that of another way. */
static const struct bench_row *ratio(struct bench *b, const struct bench_strided *s, int way,
				     int out)
{
	const struct bench_row *r;
	char name[64];

	snprintf(name, sizeof(name), "blockcolumn_%s%s_%u_vs_%s", s->cold ? "cold_" : "", ways[out],
		 s->rows, bench_ways[way].id);
	r = bench_ratio(b, name, bench_strided_find(b, s, BENCH_LIST_SIEVE, out),
			bench_strided_find(b, s, way, out));
	bench_paper(b, r, paper_of(s->rows, way, out));
	return r;
}

struct ratios {
	const struct bench_row *row[ARRAY_LEN(sizes) * 2 * BENCH_LIST_SIEVE];
	int n;
};

static void put(struct ratios *r, const struct bench_row *row)
{
	if (row)
		r->row[r->n++] = row;
}

/* "At most 15 % slower" is a speed of at least 1 / 1.15. */
static void judge_ways(struct bench *b, bool cold)
{
	struct ratios all = { .n = 0 }, small = { .n = 0 }, large = { .n = 0 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct bench_strided s = array(sizes[i], cold);

		for (int out = 0; out < 2; out++)
			for (int way = 0; way < BENCH_LIST_SIEVE; way++) {
				const struct bench_row *r = ratio(b, &s, way, out);

				put(&all, r);
				if (out && way != BENCH_LIST)
					put(sizes[i] <= 2048 ? &small : &large, r);
			}
	}
	bench_bar(b,
		  bench_worst_point(b, cold ? "blockcolumn_cold_choice" : "blockcolumn_choice",
				    all.row, all.n, false),
		  BENCH_AT_LEAST, 0.87);
	if (cold)
		return;
	bench_bar(b, bench_worst_point(b, "blockcolumn_write_small", small.row, small.n, false),
		  BENCH_AT_LEAST, 3.5);
	bench_bar(b, bench_worst_point(b, "blockcolumn_write_large", large.row, large.n, false),
		  BENCH_AT_LEAST, 2);
}

/* The slower of reading and writing N = 1024. */
static void judge_stream(struct bench *b)
{
	const struct bench_row *stream = bench_find(b, BENCH_STREAM, 1, BENCH_BLOCK, 0), *r[2];
	struct bench_strided s = array(1024, false);
	char name[64];

	for (int out = 0; out < 2; out++) {
		snprintf(name, sizeof(name), "blockcolumn_%s_1024_vs_stream", ways[out]);
		r[out] = bench_ratio(b, name, bench_strided_find(b, &s, BENCH_LIST_SIEVE, out),
				     stream);
	}
	bench_bar(b, bench_worst(b, "blockcolumn_stream", r, 2, false), BENCH_AT_LEAST,
		  b->place.on_disk ? 0.2 : 0.3);
}

static void judge_accesses(struct bench *b)
{
	struct ratios all = { .n = 0 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (int out = 0; out < 2; out++)
			put(&all,
			    bench_find(b, out ? "cold write: accesses" : "cold read: accesses",
				       BENCH_SHARERS, sizes[i], sizes[i]));
	bench_bar(b, bench_worst(b, "blockcolumn_accesses", all.row, all.n, true), BENCH_AT_MOST,
		  1.0 / 16);
}

static void plot(struct bench *b, const char *name, const char *title, bool cold, int out)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	p->line = p->log = true;
	p->x_label = "N: rows and columns of the array";
	for (int way = 0; way < BENCH_WAYS; way++)
		bench_plot_series(p, "%s", bench_ways[way].name);
	for (size_t g = 0; g < ARRAY_LEN(sizes); g++) {
		struct bench_strided s = array(sizes[g], cold);

		bench_plot_group(p, "%u", sizes[g]);
		for (int way = 0; way < BENCH_WAYS; way++)
			p->cell[g][way] = bench_strided_find(b, &s, way, out);
	}
}

static void judge(struct bench *b)
{
	judge_ways(b, false);
	judge_stream(b);
	judge_column(b);
	plot(b, "blockcolumn-read", "4 clients read blocks of columns of N x N integers", false, 0);
	plot(b, "blockcolumn-write", "4 clients write blocks of columns of N x N integers", false,
	     1);
	if (!has_cold(b))
		return;
	judge_ways(b, true);
	judge_accesses(b);
	plot(b, "blockcolumn-cold-read", "Cold: 4 clients read blocks of columns of N x N integers",
	     true, 0);
	plot(b, "blockcolumn-cold-write",
	     "Cold: 4 clients write blocks of columns of N x N integers", true, 1);
}

static const char about[] =
	"The array has N x N integers of 4 bytes, in one file that 4 clients share. A quarter of the\n"
	"columns is N pieces of N bytes in the file, one of each row of the array. The memory of a\n"
	"client is contiguous. A case is named after its way, N and the size of a piece. The ways:\n" BENCH_WAYS_ABOUT
	"Cold: the pages of the file were dropped before, so that the servers read them from the\n"
	"disk; \"accesses\" counts the servers' accesses to their files for each piece. A column is\n"
	"one field of 8 bytes of a million records of 64 bytes, read by one client.\n"
	"blockcolumn_read_N_vs_WAY is the speed of list + sieving / that of WAY. PAPER is the same\n"
	"ratio in \"Supporting Efficient Noncontiguous Access in PVFS over InfiniBand\" (figure 6:\n"
	"writes, figure 7: reads), where its text gives one.\n";

const struct bench_kind bench_blockcolumn = {
	.name = "blockcolumn",
	.summary =
		"each of 4 clients accesses a quarter of the columns of an array that is stored by rows",
	.about = about,
	.clients = { BENCH_SHARERS },
	.setup = setup,
	.judge = judge,
	.cleanup = bench_strided_cleanup,
};
