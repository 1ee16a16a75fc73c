/* sheaf bench contig: large blocks. Each client reads and overwrites 4 MiB blocks of its own file,
 * striped over all servers and cached there, compared with one raw TCP stream. */
#include "bench/bench_impl.h"

static int setup(struct bench *b)
{
	int r = bench_once(b, b->most_clients, bench_do_make, BENCH_FILE, 0);

	bench_add_stream(b);
	for (int i = 0; i < b->n_clients; i++)
		for (int out = 0; out < 2; out++) {
			struct bench_case c = { .job = { .once = bench_do_transfer,
							 .size = BENCH_BLOCK,
							 .stride = BENCH_BLOCK,
							 .out = out },
						.workers = b->clients[i],
						.bytes = BENCH_BLOCK,
						.figure = BENCH_BANDWIDTH };

			bench_case_add(b, c, out ? "overwrite" : "read");
		}
	return r;
}

static void plot(struct bench *b, const struct bench_row *stream)
{
	struct bench_plot *p = bench_plot_add(b, "contig", "4 MiB blocks, by number of clients");

	p->ref = stream;
	bench_plot_series(p, "read");
	bench_plot_series(p, "overwrite");
	for (int i = 0; i < b->n_clients; i++) {
		bench_plot_group(p, "%d client%s", BENCH_CLIENTS(b->clients[i]));
		for (int s = 0; s < 2; s++)
			p->cell[i][s] = bench_find(b, p->series[s], (uint32_t)b->clients[i],
						   BENCH_BLOCK, 0);
	}
}

static void judge(struct bench *b)
{
	const struct bench_row *stream = bench_find(b, BENCH_STREAM, 1, BENCH_BLOCK, 0);
	const struct bench_row *rd1 = bench_find(b, "read", 1, BENCH_BLOCK, 0);
	const struct bench_row *wr1 = bench_find(b, "overwrite", 1, BENCH_BLOCK, 0);
	const struct bench_row *rd4 = bench_find(b, "read", 4, BENCH_BLOCK, 0);
	const struct bench_row *wr4 = bench_find(b, "overwrite", 4, BENCH_BLOCK, 0);

	bench_bar_ratio(b, "read1", rd1, stream, BENCH_AT_LEAST, 0.75);
	bench_bar_ratio(b, "write1", wr1, stream, BENCH_AT_LEAST, 0.55);
	bench_bar_ratio(b, "read1_stream", rd1, stream, BENCH_AT_LEAST, 0.8);
	bench_bar_ratio(b, "write1_stream", wr1, stream, BENCH_AT_LEAST, 0.6);
	bench_bar_ratio(b, "read4", rd4, rd1, BENCH_AT_LEAST, 0.9);
	bench_bar_ratio(b, "write4", wr4, wr1, BENCH_AT_LEAST, 0.9);
	plot(b, stream);
}

const struct bench_kind bench_contig = {
	.name = "contig",
	.summary = "large blocks over all servers against one raw TCP stream",
	.clients = { 1, 4 },
	.setup = setup,
	.judge = judge,
	.cleanup = bench_drop_files,
};
