/* sheaf bench checkpoint: a solver that takes checkpoints, on each storage there is.
 *
 * Parts, in each round:
 *   runs     with 1, 4 and 8 processes, without checkpoints and with one every few steps; on all
 *            storages with 4
 *   rates    images, plain writes of the same bytes, and both back, in turn and without computing
 *   changed  full and incremental checkpoints, of which a tenth has changed
 *   slow     blocking and asynchronous, on servers behind a limit of the rate; one process
 * A case either runs the program (job.out), or takes another figure of the run before it. */
#include <sys/statvfs.h>
#include <unistd.h>

#include "bench/bench_checkpoint.h"

#define MAX_SPECS 128
#define STEPS 8
#define CHANGED 10 /* percent */
#define TAKES 6 /* full and incremental ones in a run */
#define SLOW_EVERY 2
#define COMPARED 3 /* images, and the same bytes by plain calls */

enum { TIME, BLOCKED, IMAGE, RAW, RESTORE, RAW_READ, BYTES, TAKE, FIGURES };
static const char *const figure_names[FIGURES] = {
	[TIME] = "run time",	  [BLOCKED] = "time blocked", [IMAGE] = "images",
	[RAW] = "plain writes",	  [RESTORE] = "restores",     [RAW_READ] = "plain reads",
	[BYTES] = "bytes of one", [TAKE] = "time of one"
};
static const char *const units[FIGURES] = {
	[TIME] = "s",	    [BLOCKED] = "s",	 [IMAGE] = "GB/s", [RAW] = "GB/s",
	[RESTORE] = "GB/s", [RAW_READ] = "GB/s", [BYTES] = "MB",   [TAKE] = "ms"
};

static const int intervals[] = { 2, 4 }; /* steps; the first one on all storages */

static struct spec {
	struct bench_ckpt_run run;
	bool later; /* figures without the first checkpoint */
} specs[MAX_SPECS];
static uint32_t n_specs;
static struct bench_ckpt_result last;
static int grid, larger; /* of the runs, and where nothing is computed */
static bool can_overlap, can_depend; /* modes of the library that work */

/* ---- measuring ---- */

static double rate(double bytes, double s)
{
	return s > 0 ? bytes / s / 1e9 : 0;
}

static double figure(const struct bench_ckpt_result *r, const struct spec *s, uint32_t which)
{
	switch (which) {
	case TIME:
		return r->total_s;
	case BLOCKED:
		return r->blocked_s;
	case IMAGE:
		return rate(r->image, r->take_s);
	case RAW:
		return rate(r->image, r->raw_write_s);
	case RESTORE:
		return rate(r->image, r->restore_s);
	case RAW_READ:
		return rate(r->image, r->raw_read_s);
	case BYTES:
		return (s->later ? r->later_bytes : r->take_bytes) / 1e6;
	default:
		return (s->later ? r->later_s : r->take_s) * 1e3;
	}
}

static int measure(struct bench *b, struct bench_case *c, double *value)
{
	const struct spec *s = &specs[c->job.way];
	int r = c->job.out ? bench_ckpt_run(b, &s->run, &last) : 0;

	*value = r ? 0 : figure(&last, s, c->job.seed);
	return r;
}

/* The program warms up by itself: with this, the warm-up round leaves its cases out. */
static int no_warm_up(struct bench *b, struct bench_case *c)
{
	(void)b;
	(void)c;
	return 0;
}

/* ---- cases ---- */

/* Adds the run and its figures, whose rows are named "name: figure". */
static void add(struct bench *b, const struct spec *s, const char *name, const int *which, int n)
{
	for (int i = 0; i < n; i++)
		bench_case_add(b,
			       (struct bench_case){ .job = { .way = n_specs,
							     .seed = (uint32_t)which[i],
							     .out = i == 0 },
						    .workers = s->run.processes,
						    .unit = units[which[i]],
						    .wait_idle = i == 0,
						    .before = no_warm_up,
						    .custom = measure },
			       "%s: %s", name, figure_names[which[i]]);
	specs[n_specs++] = *s;
}

static void run_name(char *out, size_t n, enum bench_ckpt_storage s, int every)
{
	if (every)
		snprintf(out, n, "%s, every %d steps", bench_ckpt_names[s], every);
	else
		snprintf(out, n, "%s", bench_ckpt_names[s]);
}

static void add_run(struct bench *b, enum bench_ckpt_storage storage, int processes, int every)
{
	static const int which[] = { TIME, BLOCKED, IMAGE, RAW };
	bool compares = every == intervals[0];
	const struct spec s = { .run = { .storage = storage,
					 .processes = processes,
					 .grid = grid,
					 .steps = STEPS,
					 .every = every,
					 .compare = compares } };
	char name[64];

	run_name(name, sizeof(name), storage, every);
	add(b, &s, name, which, compares ? 4 : every ? 2 : 1);
}

/* The number of processes in the middle of the list, of those that there may be. */
static int middle(const struct bench *b)
{
	int usable[BENCH_MAX_LIST] = { 1 }, n = 0;

	for (int i = 0; i < b->n_clients; i++)
		if (b->clients[i] <= bench_ckpt_most())
			usable[n++] = b->clients[i];
	return usable[n / 2];
}

static void add_runs(struct bench *b, int processes)
{
	add_run(b, BENCH_CKPT_NONE, processes, 0);
	for (int s = BENCH_CKPT_NONE + 1; s < BENCH_CKPT_STORAGES; s++) {
		bool all = s == BENCH_CKPT_SHEAF || b->long_form;

		if (!all && processes != middle(b))
			continue;
		for (size_t i = 0; i < (all ? ARRAY_LEN(intervals) : 1); i++)
			if (bench_ckpt_there(s) && s != BENCH_CKPT_SLOW)
				add_run(b, s, processes, intervals[i]);
	}
}

static void add_rates(struct bench *b, int processes)
{
	static const int which[] = { IMAGE, RAW, RESTORE, RAW_READ };
	const struct spec s = { .run = { .storage = BENCH_CKPT_SHEAF,
					 .processes = processes,
					 .grid = larger,
					 .compare = b->rounds == 1 ? 1 : COMPARED } };

	add(b, &s, "rates", which, ARRAY_LEN(which));
}

static void add_changed(struct bench *b, int processes, bool incremental)
{
	static const int which[] = { BYTES, TAKE };
	const struct spec s = { .run = { .storage = BENCH_CKPT_SHEAF,
					 .processes = processes,
					 .grid = larger,
					 .steps = TAKES + 1,
					 .every = 1,
					 .active = CHANGED,
					 .incremental = incremental },
				.later = true };

	add(b, &s, incremental ? "incremental" : "full", which, ARRAY_LEN(which));
}

enum { SLOW_NONE, SLOW_BLOCKING, SLOW_ASYNC };
static const char *const slow_names[] = {
	[SLOW_NONE] = "slow, none", [SLOW_BLOCKING] = "slow, blocking", [SLOW_ASYNC] = "slow, asynchronous"
};

static void add_slow(struct bench *b, int how)
{
	static const int which[] = { TIME, BLOCKED };
	const struct spec s = { .run = { .storage = how ? BENCH_CKPT_SLOW : BENCH_CKPT_NONE,
					 .processes = 1,
					 .grid = grid,
					 .steps = STEPS,
					 .every = how ? SLOW_EVERY : 0,
					 .async = how == SLOW_ASYNC } };

	add(b, &s, slow_names[how], which, how ? 2 : 1);
}

/* ---- preparing ---- */

static double image_bytes(int n)
{
	return 4.0 * 5 * sizeof(double) * n * n * n;
}

/* Grids like the classes W, A, B and C of the NAS benchmarks, by the number of processors; smaller
 * ones if the storage has no room for several images. */
static void choose_grids(struct bench *b)
{
	static const int grids[] = { 24, 32, 48, 64, 96, 128, 160 };
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int k = b->rounds == 1 ? 0 : cores >= 32 ? 5 : cores >= 8 ? 4 : 3;
	struct statvfs s;
	double room = 1e18;

	if (b->rounds > 1 && b->long_form && k < 5)
		k++;
	if (statvfs(b->place.dir, &s) == 0)
		room = (double)s.f_bavail * (double)s.f_frsize;
	while (k > 0 && 12 * image_bytes(grids[k + 1]) > room)
		k--;
	grid = grids[k];
	larger = grids[k + 1];
}

/* Half of the time between two checkpoints is enough to write one on the slow servers. */
static int choose_rate(struct bench *b)
{
	const struct bench_ckpt_run run = {
		.storage = BENCH_CKPT_NONE, .processes = 1, .grid = grid, .steps = 4
	};
	struct bench_ckpt_result r;
	int e = bench_ckpt_run(b, &run, &r);

	if (!e)
		bench_proxy_rate(b, (uint64_t)(image_bytes(grid) /
					       (0.5 * SLOW_EVERY * r.total_s / run.steps)));
	return e;
}

/* Takes some checkpoints to see which modes of the library work. */
static int try_modes(struct bench *b)
{
	struct bench_ckpt_run run = { .storage = BENCH_CKPT_SHEAF,
				      .processes = 1,
				      .grid = 32,
				      .steps = 4,
				      .every = 1,
				      .active = CHANGED,
				      .async = true };
	struct bench_ckpt_result r;
	int e = bench_ckpt_run(b, &run, &r);

	can_overlap = !e && r.overlapped;
	if (!e) {
		run.async = false;
		run.incremental = true;
		e = bench_ckpt_run(b, &run, &r);
	}
	can_depend = !e && r.depend > 0;
	return e;
}

static void say_refused(void)
{
	if (!can_overlap)
		fprintf(stderr,
			"sheaf bench: checkpoint: no rows of asynchronous checkpoints: the library "
			"wrote them while the program waited\n");
	if (!can_depend)
		fprintf(stderr,
			"sheaf bench: checkpoint: no rows of incremental checkpoints: the library "
			"wrote full ones\n");
}

static int setup(struct bench *b)
{
	int most = 0, r = bench_ckpt_open(b);

	n_specs = 0;
	choose_grids(b);
	if (!r)
		r = choose_rate(b);
	if (!r)
		r = try_modes(b);
	if (r)
		return r;
	say_refused();
	for (int i = 0; i < b->n_clients; i++) {
		if (b->clients[i] > bench_ckpt_most())
			continue;
		add_runs(b, b->clients[i]);
		add_rates(b, b->clients[i]);
		most = MAX(most, MIN(b->clients[i], BENCH_RANKS));
	}
	for (int k = 0; most && k < 1 + can_depend; k++)
		add_changed(b, most, k);
	for (int k = 0; bench_ckpt_there(BENCH_CKPT_SLOW) && k <= SLOW_BLOCKING + can_overlap; k++)
		add_slow(b, k);
	return 0;
}

/* ---- judging ---- */

static const struct bench_row *row_of(struct bench *b, const char *name, int which, int processes)
{
	char what[64];

	snprintf(what, sizeof(what), "%.40s: %s", name, figure_names[which]);
	return bench_find(b, what, (uint32_t)processes, 0, 0);
}

static const struct bench_row *run_row(struct bench *b, enum bench_ckpt_storage s, int every,
				       int which, int processes)
{
	char name[64];

	run_name(name, sizeof(name), s, every);
	return row_of(b, name, which, processes);
}

/* Run times / that without checkpoints, and images / plain writes, on each storage; not judged. */
static void compare_runs(struct bench *b, enum bench_ckpt_storage s, int processes)
{
	char name[64], id[32];

	snprintf(id, sizeof(id), "%s", bench_ckpt_names[s]);
	for (char *c = id; *c; c++)
		*c = *c == ' ' ? '_' : *c;
	for (size_t i = 0; i < ARRAY_LEN(intervals); i++) {
		snprintf(name, sizeof(name), "checkpoint_time_%s_%d_every%d", id, processes,
			 intervals[i]);
		bench_ratio(b, name, run_row(b, s, intervals[i], TIME, processes),
			    run_row(b, BENCH_CKPT_NONE, 0, TIME, processes));
	}
	snprintf(name, sizeof(name), "checkpoint_rate_%s_%d", id, processes);
	bench_ratio(b, name, run_row(b, s, intervals[0], IMAGE, processes),
		    run_row(b, s, intervals[0], RAW, processes));
}

/* The worst ratio of any number of processes. */
static void judge_rates(struct bench *b, const char *name, int which, int to)
{
	const struct bench_row *rows[BENCH_MAX_LIST];
	char each[64];
	int n = 0;

	for (int i = 0; i < b->n_clients; i++) {
		const struct bench_row *a = row_of(b, "rates", which, b->clients[i]);

		snprintf(each, sizeof(each), "%s_%d", name, b->clients[i]);
		if (a)
			rows[n++] = bench_ratio(b, each, a, row_of(b, "rates", to, b->clients[i]));
	}
	bench_bar(b, bench_worst_point(b, name, rows, n, false), BENCH_AT_LEAST, 0.8);
}

static const struct bench_row *changed_row(struct bench *b, const char *name, int which)
{
	const struct bench_row *found = NULL, *r;

	for (int i = 0; i < b->n_clients; i++) {
		r = row_of(b, name, which, MIN(b->clients[i], BENCH_RANKS));
		found = r ? r : found;
	}
	return found;
}

static void judge_modes(struct bench *b)
{
	const struct bench_row *total[3], *blocked[3], *more[3];

	for (int k = 0; k < 3; k++) {
		char name[64];

		total[k] = row_of(b, slow_names[k], TIME, 1);
		blocked[k] = row_of(b, slow_names[k], BLOCKED, 1);
		snprintf(name, sizeof(name), "%.40s - none", slow_names[k]);
		more[k] = k ? bench_growth(b, name, total[k], total[SLOW_NONE], 1) : NULL;
	}
	bench_bar_ratio(b, "checkpoint_async_overhead", more[SLOW_ASYNC], more[SLOW_BLOCKING],
			BENCH_AT_MOST, 0.5);
	bench_bar_ratio(b, "checkpoint_async_blocked", blocked[SLOW_ASYNC], blocked[SLOW_BLOCKING],
			BENCH_AT_MOST, 0.1);
	bench_bar_ratio(b, "checkpoint_incremental_bytes", changed_row(b, "incremental", BYTES),
			changed_row(b, "full", BYTES), BENCH_AT_MOST, 0.25);
	bench_bar_ratio(b, "checkpoint_incremental_time", changed_row(b, "incremental", TAKE),
			changed_row(b, "full", TAKE), BENCH_AT_MOST, 0.25);
}

/* ---- plots ---- */

/* Figure 8.1: storages. */
static void plot_storages(struct bench *b, const char *name, const int *which, int n)
{
	static char titles[4][96]; /* a plot refers to its own */
	static int next;
	char *title = titles[next++ % (int)ARRAY_LEN(titles)];
	struct bench_plot *p = bench_plot_add(b, name, title);
	int processes = middle(b);

	snprintf(title, sizeof(titles[0]), "%s by storage, %d process%s, every %d steps",
		 figure_names[which[0]], processes, processes == 1 ? "" : "es", intervals[0]);
	for (int k = 0; k < n; k++)
		bench_plot_series(p, "%s", figure_names[which[k]]);
	for (int s = 0; s < BENCH_CKPT_STORAGES; s++) {
		int every = s == BENCH_CKPT_NONE ? 0 : intervals[0];

		if (!run_row(b, s, every, which[0], processes))
			continue;
		for (int k = 0; k < n; k++)
			p->cell[p->n_groups][k] = run_row(b, s, every, which[k], processes);
		bench_plot_group(p, "%s", bench_ckpt_names[s]);
	}
}

/* Figures 8.2 to 8.4: by the number of processes and the interval. */
static void plot_intervals(struct bench *b)
{
	struct bench_plot *p = bench_plot_add(b, "checkpoint-intervals",
					      "run time by processes and interval, on Sheaf");

	bench_plot_series(p, "no checkpoints");
	for (size_t k = 0; k < ARRAY_LEN(intervals); k++)
		bench_plot_series(p, "every %d steps", intervals[ARRAY_LEN(intervals) - 1 - k]);
	for (int i = 0; i < b->n_clients; i++) {
		int g = bench_plot_group(p, "%d process%s", b->clients[i],
					 b->clients[i] == 1 ? "" : "es");

		p->cell[g][0] = run_row(b, BENCH_CKPT_NONE, 0, TIME, b->clients[i]);
		for (size_t k = 0; k < ARRAY_LEN(intervals); k++)
			p->cell[g][1 + k] = run_row(b, BENCH_CKPT_SHEAF,
						    intervals[ARRAY_LEN(intervals) - 1 - k], TIME,
						    b->clients[i]);
	}
}

static void judge(struct bench *b)
{
	static const int times[] = { TIME, BLOCKED }, rates[] = { IMAGE, RAW };

	for (int i = 0; i < b->n_clients; i++)
		for (int s = BENCH_CKPT_NONE + 1; s < BENCH_CKPT_STORAGES; s++)
			compare_runs(b, s, b->clients[i]);
	judge_rates(b, "checkpoint_rate", IMAGE, RAW);
	judge_rates(b, "checkpoint_restore", RESTORE, RAW_READ);
	judge_modes(b);
	plot_storages(b, "checkpoint-storages", times, 1);
	plot_storages(b, "checkpoint-blocked", times + 1, 1);
	plot_storages(b, "checkpoint-rates", rates, 2);
	plot_intervals(b);
}

static const char about[] =
	"A solver of block-tridiagonal systems on a cubic grid (bench/ckpt), its 4 arrays divided\n"
	"among the processes. A run has 8 steps; \"every 2 steps\": 3 checkpoints.\n"
	"  none                 without checkpoints\n"
	"  sheaf                by libsheaf-ckpt, on all servers; 1 server, 2 servers: on that number\n"
	"  mount, local         a new file for each process, synced, then renamed: on a `sheaf\n"
	"                       mount`, and in a directory beside the storage\n"
	"  nfs, ganesha         the same by a client in user space: at sheaf-nfsd, and at NFS-Ganesha\n"
	"                       with a directory beside the storage, if it is there\n"
	"  images, plain writes, restores, plain reads: bytes of the arrays / time of the slowest\n"
	"                       process; plain: a new file for each process by sheaf_pwrite and\n"
	"                       sheaf_fsync (mount, local: write and fsync), read by sheaf_pread\n"
	"  rates                the same in turn, on a larger grid, without computing\n"
	"  full, incremental    a tenth of the rows of each plane changes between checkpoints\n"
	"  slow                 all bytes to the servers pass a limit of the rate: writing a\n"
	"                       checkpoint takes half of the time between two\n"
	"The paper's figures 8.1 to 8.4 have the same comparisons, with larger grids and intervals.\n";

const struct bench_kind bench_checkpoint = {
	.name = "checkpoint",
	.summary = "a solver that takes checkpoints on Sheaf, a mount, NFS and a local directory",
	.about = about,
	.clients = { 1, 4, 8 },
	.missing = bench_ckpt_missing,
	.open = bench_ckpt_choose,
	.setup = setup,
	.judge = judge,
	.end = bench_ckpt_end,
	.rounds = 3,
};
