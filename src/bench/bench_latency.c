/* sheaf bench latency: small reads and overwrites by size. The latency of an operation at the
 * client, compared with the blocking ping-pong of one pair, also with several clients. */
#include "bench/bench_impl.h"

static const uint64_t sizes[] = { 1, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB };
static const char *const ways[] = { "read", "overwrite" };

/* Each access goes to the next server and another page; none crosses a stripe boundary. */
#define STRIDE (BENCH_UNIT + 4 * KIB)
static uint64_t stride_of(uint64_t size)
{
	return size <= 4 * KIB ? STRIDE : BENCH_UNIT + 64 * KIB;
}

static void add(struct bench *b, uint64_t size, int way, int clients)
{
	struct bench_case c = { .job = { .once = bench_do_transfer,
					 .size = size,
					 .stride = stride_of(size),
					 .out = way == 1 },
				.workers = clients,
				.bytes = size,
				.figure = BENCH_LATENCY };

	bench_case_add(b, c, "%s", ways[way]);
}

/* The sizes that a bar judges follow directly after their baseline. */
static int setup(struct bench *b)
{
	int r = bench_once(b, b->most_clients, bench_do_make, BENCH_FILE, 0);

	bench_add_ping(b, 1);
	for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
		for (int way = 0; way < 2; way++)
			for (int i = 0; i < b->n_clients; i++)
				add(b, sizes[s], way, b->clients[i]);
	return r;
}

static void plot(struct bench *b, const struct bench_row *ping)
{
	struct bench_plot *p = bench_plot_add(b, "latency", "Small reads and overwrites, by size");

	p->line = true;
	p->ref = ping;
	p->x_label = "bytes of one operation";
	p->n_groups = (int)ARRAY_LEN(sizes);
	for (int way = 0; way < 2; way++)
		for (int i = 0; i < b->n_clients && p->n_series < BENCH_PLOT_MAX; i++) {
			int s = bench_plot_series(p, "%s, %d client%s", ways[way],
						  BENCH_CLIENTS(b->clients[i]));

			for (int g = 0; g < p->n_groups; g++)
				p->cell[g][s] = bench_find(b, ways[way], (uint32_t)b->clients[i],
							   sizes[g], 0);
		}
	for (int g = 0; g < p->n_groups; g++)
		bench_size_text(p->groups[g], sizeof(p->groups[g]), sizes[g]);
}

static void judge(struct bench *b)
{
	const struct bench_row *ping = bench_find(b, BENCH_PINGPONG, 1, BENCH_PING, 0);
	const struct bench_row *one = bench_find(b, "read", 1, 1, 0);
	const struct bench_row *four = bench_find(b, "read", 4, 1, 0);

	bench_bar_ratio(b, "read_1B_1", one, ping, BENCH_AT_MOST, 1.6);
	bench_bar_ratio(b, "read_1B_4", four, ping, BENCH_AT_MOST, 2.8);
	bench_ratio(b, "write_1B_1", bench_find(b, "overwrite", 1, 1, 0), ping);
	bench_ratio(b, "write_1B_4", bench_find(b, "overwrite", 4, 1, 0), ping);
	plot(b, ping);
}

const struct bench_kind bench_latency = {
	.name = "latency",
	.summary = "small reads and overwrites by size against a blocking TCP ping-pong",
	.clients = { 1, 4 },
	.setup = setup,
	.judge = judge,
	.cleanup = bench_drop_files,
};
