/* sheaf bench lists: one list call compared with as many single calls, and the requests it needs.
 *
 * The pieces have equal distances in the file, so that they are spread evenly over the servers, and
 * are not adjacent in memory either. The servers count the requests: the increase of their counters
 * by one list call, minus the requests that read the counters. */
#include "bench/bench_impl.h"

static const struct pattern {
	uint32_t pieces;
	uint64_t size;
	const char *name, *id;
	const char *bar; /* bar for reading and writing, in ping-pong times */
	double need;
} patterns[] = { { 128, 2 * KIB, "128 x 2 KiB", "128x2K", "list_128x2k", 8 },
		 { 128, 128, "128 x 128 B", "128x128", "list_128x128", 4 },
		 { 1024, 64, "1,024 x 64 B", "1024x64", "list_1024x64", 8 } };
static const char *const ways[] = { "read list", "write list" };
static const char *const single[] = { "single reads", "single writes" };
static const char *const counted[] = { "requests of a read list", "requests of a write list" };

static int measure_requests(struct bench *b, struct bench_case *c, double *value)
{
	double all;

	return bench_count_requests(b, &c->job, 1, value, &all);
}

static void add(struct bench *b, const struct pattern *p, int way)
{
	uint64_t stride = MAX((uint64_t)b->servers * BENCH_UNIT / p->pieces, 2 * p->size);
	struct bench_case c = { .job = { .prepare = bench_lay_out,
					 .once = bench_do_list,
					 .out = way == 1,
					 .count = p->pieces,
					 .size = p->size,
					 .stride = stride },
				.pieces = p->pieces,
				.bytes = p->size,
				.figure = BENCH_LATENCY };

	bench_case_add(b, c, "%s", ways[way]);
	c.job.once = bench_do_singles;
	bench_case_add(b, c, "%s", single[way]);
	c.job.once = bench_do_list;
	c.job.max_ops = 1;
	c.custom = measure_requests;
	c.unit = "requests per server";
	bench_case_add(b, c, "%s", counted[way]);
}

static int setup(struct bench *b)
{
	int r = bench_once(b, 1, bench_do_make, MAX((uint64_t)b->servers * BENCH_UNIT, BENCH_BLOCK),
			   0);

	bench_add_ping(b, 1);
	for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
		for (int way = 0; way < 2; way++)
			add(b, &patterns[i], way);
	return r;
}

static void plot(struct bench *b, const char *name, const char *title, const char *const *series,
		 int n, const struct bench_row *ref)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	p->ref = ref;
	for (int s = 0; s < n; s++)
		bench_plot_series(p, "%s", series[s]);
	for (size_t g = 0; g < ARRAY_LEN(patterns); g++) {
		bench_plot_group(p, "%s", patterns[g].name);
		for (int s = 0; s < n; s++)
			p->cell[g][s] =
				bench_find(b, series[s], 1, patterns[g].size, patterns[g].pieces);
	}
}

static void plot_gain(struct bench *b, const struct bench_row *const *gain)
{
	struct bench_plot *p = bench_plot_add(
		b, "lists-gain", "How many times faster one list call is than single calls");

	bench_plot_series(p, "read");
	bench_plot_series(p, "write");
	for (size_t g = 0; g < ARRAY_LEN(patterns); g++) {
		bench_plot_group(p, "%s", patterns[g].name);
		for (size_t s = 0; s < 2; s++)
			p->cell[g][s] = gain[2 * g + s];
	}
}

/* One bar judges reads only; the others judge the worst of reads and writes. */
static void judge(struct bench *b)
{
	const struct bench_row *ping = bench_find(b, BENCH_PINGPONG, 1, BENCH_PING, 0);
	const struct bench_row *gain[2 * ARRAY_LEN(patterns)], *cost[2 * ARRAY_LEN(patterns)];
	const struct bench_row *requests[2 * ARRAY_LEN(patterns)];
	char name[64];
	int n = 0;

	for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
		for (int way = 0; way < 2; way++, n++) {
			const struct pattern *p = &patterns[i];
			const struct bench_row *list =
				bench_find(b, ways[way], 1, p->size, p->pieces);

			snprintf(name, sizeof(name), "%s_%s", way ? "write" : "read", p->id);
			cost[n] = bench_ratio(b, name, list, ping);
			snprintf(name, sizeof(name), "%s_%s_gain", way ? "write" : "read", p->id);
			gain[n] = bench_ratio(
				b, name, bench_find(b, single[way], 1, p->size, p->pieces), list);
			requests[n] = bench_find(b, counted[way], 1, p->size, p->pieces);
		}
	bench_bar(b, cost[0], BENCH_AT_MOST, 10);
	for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
		bench_bar(b, bench_worst(b, patterns[i].bar, &cost[2 * i], 2, true), BENCH_AT_MOST,
			  patterns[i].need);
	bench_bar(b, bench_worst(b, "list_vs_single", gain, n, false), BENCH_AT_LEAST, 10);
	bench_bar(b, bench_worst(b, "requests_per_server", requests, n, true), BENCH_EXACTLY, 1);
	plot(b, "lists", "One list call over all servers", ways, 2, ping);
	plot_gain(b, gain);
}

const struct bench_kind bench_lists = {
	.name = "lists",
	.summary = "strided lists over all servers against single calls and a blocking ping-pong",
	.clients = { 1 },
	.setup = setup,
	.judge = judge,
	.cleanup = bench_drop_files,
};
