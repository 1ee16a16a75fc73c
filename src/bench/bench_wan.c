/* sheaf bench wan: how far away servers may be. One client reads and overwrites 64 MiB in one call,
 * and reads one byte, while a delay is added to each round trip. With --hosts the links delay
 * packets; otherwise all connections pass through a proxy (bench_proxy.c), also without a delay. */
#include "bench/bench_impl.h"

#define READ "read"
#define WRITE "overwrite"

static const struct delay {
	uint64_t ns;
	const char *text, *id;
} delays[] = {
	{ 0, "no delay", "0" },	    { 10000, "0.01 ms", "10us" },  { 100000, "0.1 ms", "100us" },
	{ 1000000, "1 ms", "1ms" }, { 10000000, "10 ms", "10ms" },
};

static const char *missing(struct bench *b)
{
	if (!b->dir)
		return "it needs --dir, for servers behind a delay";
	if (b->delay)
		return "it sets the delays itself: leave --delay out";
	return NULL;
}

static int open_proxy(struct bench *b)
{
	return b->hosts.n ? 0 : bench_proxy_open(b);
}

static void add(struct bench *b, const struct delay *d, uint64_t size, bool out)
{
	struct bench_case c = { .job = { .once = bench_do_transfer,
					 .size = size,
					 .stride = size == 1 ? BENCH_UNIT : size,
					 .typical = true,
					 .out = out },
				.bytes = size,
				.figure = size == 1 ? BENCH_LATENCY : BENCH_BANDWIDTH,
				.delay = &d->ns };

	bench_case_add(b, c, "%s, %s", out ? WRITE : READ, d->text);
}

static int setup(struct bench *b)
{
	int r = bench_once(b, 1, bench_do_make, BENCH_FILE, 0);

	if (!r)
		r = bench_once(b, 1, bench_do_room, BENCH_FILE, 0);
	for (size_t i = 0; i < ARRAY_LEN(delays); i++) {
		const struct delay *d = &delays[i];
		struct bench_case stream = bench_stream_case(d->ns), ping = bench_ping_case(1);

		stream.delay = ping.delay = &d->ns;
		ping.job.typical = true;
		bench_case_add(b, ping, BENCH_PINGPONG ", %s", d->text);
		add(b, d, 1, false);
		bench_case_add(b, stream, BENCH_STREAM ", %s", d->text);
		add(b, d, BENCH_FILE, false);
		add(b, d, BENCH_FILE, true);
	}
	return r;
}

static const struct bench_row *find(struct bench *b, const char *what, size_t i, uint64_t bytes)
{
	char name[64];

	snprintf(name, sizeof(name), "%s, %s", what, delays[i].text);
	return bench_find(b, name, 1, bytes, 0);
}

/* Speed with a delay / without. Only a delay of 1 ms is judged. */
static void judge_speed(struct bench *b, const char *way, const char *what, uint64_t bytes,
			bool judged)
{
	char name[64];

	for (size_t i = 1; i < ARRAY_LEN(delays); i++) {
		const struct bench_row *r;

		snprintf(name, sizeof(name), "wan_%s_%s", way, delays[i].id);
		r = bench_ratio(b, name, find(b, what, i, bytes), find(b, what, 0, bytes));
		if (judged && delays[i].ns == NSEC_PER_MSEC)
			bench_bar(b, r, BENCH_AT_LEAST, 0.8);
	}
}

static void judge_latency(struct bench *b, const char *way, const char *what, uint64_t bytes,
			  bool judged)
{
	char name[64];

	for (size_t i = 1; i < ARRAY_LEN(delays); i++) {
		const struct bench_row *r;

		snprintf(name, sizeof(name), "wan_%s_%s", way, delays[i].id);
		r = bench_growth(b, name, find(b, what, i, bytes), find(b, what, 0, bytes),
				 (double)delays[i].ns / 1e3);
		if (judged && delays[i].ns == NSEC_PER_MSEC)
			bench_bar(b, r, BENCH_AT_MOST, 1.2);
	}
}

static void judge(struct bench *b)
{
	static const struct {
		const char *what;
		uint64_t bytes;
	} lines[] = { { READ, BENCH_FILE }, { WRITE, BENCH_FILE }, { BENCH_STREAM, BENCH_BLOCK } };
	struct bench_plot *p = bench_plot_add(b, "wan", "64 MiB in one call, by added delay");

	judge_speed(b, "read", READ, BENCH_FILE, true);
	judge_speed(b, "write", WRITE, BENCH_FILE, true);
	judge_latency(b, "latency", READ, 1, true);
	judge_speed(b, "stream", BENCH_STREAM, BENCH_BLOCK, false);
	judge_latency(b, "ping", BENCH_PINGPONG, BENCH_PING, false);
	p->line = true;
	p->x_label = "added to a round trip";
	for (size_t i = 0; i < ARRAY_LEN(delays); i++) {
		bench_plot_group(p, "%s", delays[i].text);
		for (size_t s = 0; s < ARRAY_LEN(lines); s++)
			p->cell[i][s] = find(b, lines[s].what, i, lines[s].bytes);
	}
	for (size_t s = 0; s < ARRAY_LEN(lines); s++)
		bench_plot_series(p, "%s", lines[s].what);
}

const struct bench_kind bench_wan = {
	.name = "wan",
	.summary =
		"64 MiB in one call, and a 1-byte read, with up to 10 ms added to a round trip to the servers",
	.clients = { 1 },
	.missing = missing,
	.open = open_proxy,
	.setup = setup,
	.judge = judge,
	.cleanup = bench_drop_files,
	.delays = true,
};
