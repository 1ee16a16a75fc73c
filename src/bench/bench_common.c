/* sheaf bench common: one file that all clients share, by number of servers and clients (after
 * figures 8 and 9 of the Quadrics paper, see docs/performance.md).
 *
 * One client creates the file; all write 4 MiB each, side by side; all flush; all read their
 * 4 MiB; one removes the file. The clients wait for each other between these steps. "1 server"
 * means that the file is striped over one of the servers: all of them run, and a file is created
 * with the width that is asked for. So one run can compare them, and the other servers are idle.
 *
 * The time of a step is from the start of the first client to the end of the last: "GB/s" is
 * what all clients move together. The paper averages the time of the clients, which gives a
 * higher figure where clients do not run all the time. */
#include <fcntl.h>

#include "bench/bench_impl.h"

#define REPEAT 3 /* files per measurement; their times are added up */
#define PIECE BENCH_BLOCK

static const uint32_t widths[] = { 1, 2, 4 };

enum { CREATE, WRITE, FLUSH, READ, REMOVE, STEPS };
static const struct {
	const char *name;
	enum bench_figure figure;
} steps[STEPS] = {
	[CREATE] = { "create", BENCH_LATENCY }, [WRITE] = { "write", BENCH_BANDWIDTH },
	[FLUSH] = { "flush", BENCH_LATENCY },	[READ] = { "read", BENCH_BANDWIDTH },
	[REMOVE] = { "remove", BENCH_LATENCY },
};
static double spent[STEPS]; /* seconds of each step, of the current measurement */

/* ---- what a client does; the start of the step is in more[0] ---- */

static const char *shared_path(struct bench_worker *w)
{
	return bench_path(w, "common");
}

static int open_file(struct bench_worker *w, int flags)
{
	struct sheaf_layout l = { .size = sizeof(l),
				  .stripe_unit = BENCH_UNIT,
				  .width = w->job->width };

	return sheaf_open(w->fs, shared_path(w), O_RDWR | flags, 0600, &l, &w->f);
}

static int create_once(struct bench_worker *w)
{
	w->more[0] = (double)time_now();
	return bench_why(w, "create", open_file(w, O_CREAT | O_EXCL));
}

/* Client 0 has the file open since it created it. */
static int open_rest(struct bench_worker *w)
{
	return w->index ? bench_why(w, "open", open_file(w, 0)) : 0;
}

static int move_once(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	off_t at = (off_t)((uint64_t)w->index * j->size);
	ssize_t r;

	w->more[0] = (double)time_now();
	r = j->out ? sheaf_pwrite(w->f, w->buf, j->size, at) :
		     sheaf_pread(w->f, w->buf, j->size, at);
	return bench_moved(w, j->out ? "write" : "read", r, j->size);
}

static int flush_once(struct bench_worker *w)
{
	w->more[0] = (double)time_now();
	return bench_why(w, "flush", sheaf_fsync(w->f));
}

static int close_file(struct bench_worker *w)
{
	int r = w->f ? sheaf_close(w->f) : 0;

	w->f = NULL;
	return bench_why(w, "close", r);
}

static int remove_once(struct bench_worker *w)
{
	w->more[0] = (double)time_now();
	return bench_why(w, "remove", sheaf_unlink(w->fs, shared_path(w)));
}

/* ---- the command ---- */

static const struct {
	bench_fn *prepare, *once, *finish;
	bool one; /* only the first client */
} jobs[STEPS] = {
	[CREATE] = { .once = create_once, .one = true },
	[WRITE] = { .prepare = open_rest, .once = move_once },
	[FLUSH] = { .once = flush_once },
	[READ] = { .once = move_once, .finish = close_file },
	[REMOVE] = { .once = remove_once, .one = true },
};

/* Runs one step and adds the time from the first start to the last end. */
static int run_step(struct bench *b, struct bench_job j, int step, int clients)
{
	struct bench_result r[BENCH_MAX_CLIENTS];
	int n = jobs[step].one ? 1 : clients, e;
	double first = 0, last = 0;

	j.prepare = jobs[step].prepare;
	j.once = jobs[step].once;
	j.finish = jobs[step].finish;
	j.out = step == WRITE;
	e = bench_clients_run(b, &j, n, r);
	for (int i = 0; !e && i < n; i++) {
		first = i && first < r[i].more[0] ? first : r[i].more[0];
		last = MAX(last, r[i].more[0] + (double)r[i].ns);
	}
	spent[step] += (last - first) / 1e9;
	return e;
}

/* The first step of a combination measures all of them; the others use its results. */
static int measure(struct bench *b, struct bench_case *c, double *value)
{
	int step = (int)c->job.count, r = 0;

	if (step == CREATE)
		memset(spent, 0, sizeof(spent));
	for (int k = 0; !r && step == CREATE && k < REPEAT; k++)
		for (int s = 0; !r && s < STEPS; s++)
			r = run_step(b, c->job, s, c->workers);
	if (steps[step].figure == BENCH_BANDWIDTH)
		*value = REPEAT * (double)PIECE * c->workers / 1e9 / MAX(spent[step], 1e-9);
	else
		*value = spent[step] * 1e6 / REPEAT;
	return r;
}

#define ROW_NAME "%s, %u server%s" /* step, servers, plural */

static void add(struct bench *b, uint32_t width, int clients)
{
	for (int s = 0; s < STEPS; s++) {
		struct bench_case c = { .job = { .max_ops = 1,
						 .size = PIECE,
						 .width = width,
						 .count = (uint32_t)s },
					.workers = clients,
					.bytes = PIECE,
					.figure = steps[s].figure,
					.wait_idle = s == CREATE,
					.custom = measure };

		bench_case_add(b, c, ROW_NAME, steps[s].name, width, width == 1 ? "" : "s");
	}
}

static int setup(struct bench *b)
{
	bench_add_stream(b);
	for (int i = 0; i < b->n_clients; i++)
		for (size_t k = 0; k < ARRAY_LEN(widths); k++)
			if (widths[k] <= (uint32_t)b->servers)
				add(b, widths[k], b->clients[i]);
	return 0;
}

static const struct bench_row *find(struct bench *b, int step, uint32_t width, int clients)
{
	char what[sizeof(((struct bench_row *)0)->what)];

	snprintf(what, sizeof(what), ROW_NAME, steps[step].name, width, width == 1 ? "" : "s");
	return bench_find(b, what, (uint32_t)clients, PIECE, 0);
}

static void ratio(struct bench *b, const char *way, uint32_t width, const char *to_what,
		  const struct bench_row *of, const struct bench_row *to, const char *paper)
{
	char name[64];

	snprintf(name, sizeof(name), "%s_%us_%s", way, width, to_what);
	bench_paper(b, bench_ratio(b, name, of, to), paper);
}

/* All clients against a raw stream, against one server, and against the fewest clients. `bound`:
 * what the paper's file system cannot have exceeded with four servers. The paper does not print
 * its values: the axes of its figures end at 1,500 MB/s for reads and 1,250 MB/s for writes, and
 * its network moves 910.1 MB/s (table 2). */
static void judge_step(struct bench *b, int step, const char *bound)
{
	const struct bench_row *stream = bench_find(b, BENCH_STREAM, 1, BENCH_BLOCK, 0);
	int most = b->most_clients, few = b->clients[0];
	const char *way = steps[step].name;

	for (size_t k = 0; k < ARRAY_LEN(widths); k++) {
		const struct bench_row *row = find(b, step, widths[k], most);
		uint32_t n = widths[k];

		ratio(b, way, n, "stream", row, stream, n == 4 ? bound : NULL);
		if (n > 1)
			ratio(b, way, n, "servers", row, find(b, step, 1, most), NULL);
		if (most != few)
			ratio(b, way, n, "clients", row, find(b, step, n, few), NULL);
	}
}

static void plot(struct bench *b, int step, const char *name, const char *title)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	p->line = true;
	p->x_label = "clients";
	p->ref = bench_find(b, BENCH_STREAM, 1, BENCH_BLOCK, 0);
	for (size_t s = 0; s < ARRAY_LEN(widths); s++)
		if (widths[s] <= (uint32_t)b->servers)
			bench_plot_series(p, "%u server%s", BENCH_CLIENTS(widths[s]));
	for (int g = 0; g < b->n_clients; g++) {
		bench_plot_group(p, "%d", b->clients[g]);
		for (int s = 0; s < p->n_series; s++)
			p->cell[g][s] = find(b, step, widths[s], b->clients[g]);
	}
}

static void judge(struct bench *b)
{
	judge_step(b, READ, "below 1.65");
	judge_step(b, WRITE, "below 1.37");
	plot(b, READ, "common-read", "One shared file, 4 MiB of each client: reads");
	plot(b, WRITE, "common-write", "One shared file, 4 MiB of each client: writes");
}

const struct bench_kind bench_common = {
	.name = "common",
	.summary =
		"one file shared by all clients, 4 MiB each, over 1, 2 and 4 of the servers; a time is of all clients together",
	.clients = { 1, 2, 3, 4, 5, 6, 7 },
	.setup = setup,
	.judge = judge,
};
