/* sheaf bench incast: many servers answer one client at the same time, over a link that is slower
 * than theirs together and has a short queue. The client reads blocks of 4 MiB that are striped
 * over 8 and 16 servers; a raw stream over the same link is the baseline. The servers' links have
 * no limit. */
#include <fcntl.h>

#include "bench/bench_impl.h"

#define CASE_NS (500 * NSEC_PER_MSEC) /* a block takes 34 ms at 1 Gbit/s */
#define LINK "the link"
#define ROW_NAME "read, %u servers"

static const struct {
	uint32_t width;
	const char *bar, *of_link;
} points[] = { { 8, "incast_8", "incast_8_link" }, { 16, "incast_16", "incast_16_link" } };

static int open_wide(struct bench_worker *w)
{
	uint32_t width = w->job->width;
	struct sheaf_layout l = { .size = sizeof(l), .stripe_unit = BENCH_UNIT, .width = width };
	int r = sheaf_open(w->fs, bench_path(w, "wide.%u", width), O_RDWR | O_CREAT, 0600, &l,
			   &w->f);

	return bench_why(w, "open", r);
}

static int close_wide(struct bench_worker *w)
{
	int r = w->f ? sheaf_close(w->f) : 0;

	w->f = NULL;
	return bench_why(w, "close", r);
}

static int make_wide(struct bench_worker *w)
{
	int r = open_wide(w);
	ssize_t n = 0;

	for (uint64_t at = 0; !r && n >= 0 && at < BENCH_FILE; at += BENCH_BLOCK)
		n = sheaf_pwrite(w->f, w->buf, BENCH_BLOCK, (off_t)at);
	if (!r)
		r = bench_why(w, "fill a file", n);
	return r ? r : close_wide(w);
}

static int link_rate(struct bench *b, struct bench_case *c, double *value)
{
	(void)c;
	*value = bench_hosts_bits(b) / 8e9;
	return 0;
}

static int setup(struct bench *b)
{
	struct bench_case stream = bench_stream_case(b->delay_ns);
	struct bench_case link = { .figure = BENCH_BANDWIDTH, .custom = link_rate };
	int r = 0;

	stream.ns = CASE_NS;
	bench_case_add(b, link, LINK);
	bench_case_add(b, stream, BENCH_STREAM);
	for (size_t i = 0; !r && i < ARRAY_LEN(points); i++) {
		struct bench_case c = { .job = { .prepare = open_wide,
						 .once = bench_do_transfer,
						 .finish = close_wide,
						 .size = BENCH_BLOCK,
						 .stride = BENCH_BLOCK,
						 .width = points[i].width },
					.bytes = BENCH_BLOCK,
					.figure = BENCH_BANDWIDTH,
					.ns = CASE_NS };

		if (points[i].width > (uint32_t)b->servers)
			continue;
		r = bench_once(b, 1, make_wide, 0, points[i].width);
		bench_case_add(b, c, ROW_NAME, points[i].width);
	}
	return r;
}

static void judge(struct bench *b)
{
	const struct bench_row *stream = bench_find(b, BENCH_STREAM, 1, BENCH_BLOCK, 0);
	const struct bench_row *link = bench_find(b, LINK, 1, 0, 0);
	struct bench_plot *p = bench_plot_add(b, "incast", "4 MiB reads over a slow link");
	char name[64];

	p->n_series = 1;
	p->ref = link;
	p->cell[bench_plot_group(p, BENCH_STREAM)][0] = stream;
	for (size_t i = 0; i < ARRAY_LEN(points); i++) {
		const struct bench_row *r;

		snprintf(name, sizeof(name), ROW_NAME, points[i].width);
		r = bench_find(b, name, 1, BENCH_BLOCK, 0);
		if (r)
			p->cell[bench_plot_group(p, "%s", name)][0] = r;
		bench_bar_ratio(b, points[i].bar, r, stream, BENCH_AT_LEAST, 0.9);
		bench_ratio(b, points[i].of_link, r, link);
	}
	bench_ratio(b, "incast_stream_link", stream, link);
}

const struct bench_kind bench_incast = {
	.name = "incast",
	.summary = "4 MiB from many servers at once over a slow link with a queue of 100 packets",
	.clients = { 1 },
	.setup = setup,
	.judge = judge,
	.servers = 16,
	.slow_client = true,
};
