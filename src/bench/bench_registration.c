/* sheaf bench registration: what it costs to register scattered memory before a transfer, after
 * table 4 of "Supporting Efficient Noncontiguous Access in PVFS over InfiniBand". An array of
 * 2048 x 2048 integers is distributed over 2 x 2 processes, so one process writes 1,024 rows of
 * 4 KiB, 8 KiB apart in memory, to a contiguous range of a file. Memory is registered with an
 * io_uring, which pins it on any host; the data travel by TCP.
 *
 * Each access registers the rows, writes them, and deregisters them: row by row, in groups, and in
 * groups where ten pages between the rows are not mapped. The ideal is one buffer that is
 * registered before. A last case caches the registration. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "bench/bench_impl.h"

#define ROWS 1024
#define ROW (4 * KIB)
#define STRIDE (8 * KIB)
#define BLOCK (ROWS * ROW)
#define HOLES 10

enum { IDEAL, INDIVIDUAL, GROUPED, HOLED, CACHED, WAYS };
enum { SPEED, OVERHEAD, MADE, FAILED, FIGURES }; /* MADE: for CACHED of a whole measurement */
_Static_assert((int)FIGURES <= BENCH_MORE, "what a client tells");

static const char *const ways[WAYS] = {
	[IDEAL] = "registered before",	  [INDIVIDUAL] = "row by row", [GROUPED] = "groups",
	[HOLED] = "groups with 10 holes", [CACHED] = "groups, cached",
};
static const struct {
	const char *name, *unit;
} figures[FIGURES] = { [OVERHEAD] = { "overhead", "us" },
		       [MADE] = { "registrations", "count" },
		       [FAILED] = { "failed registrations", "count" } };

/* ---- the client ---- */

static struct {
	struct sheaf_registration *plain, *cached;
	struct sheaf_registered *ideal; /* of whole */
	struct iovec whole, rows[ROWS], holed[ROWS];
	uint64_t ops, overhead_ns;
	struct sheaf_registration_counts before;
} my;

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	memset(p, 1, len);
	return p;
}

static bool map_rows(struct iovec *rows, int holes)
{
	char *p = map(ROWS * STRIDE);

	for (size_t i = 0; p && i < ROWS; i++)
		rows[i] = (struct iovec){ p + i * STRIDE, ROW };
	for (int i = 1; p && i <= holes; i++)
		munmap(p + (size_t)i * (ROWS / (HOLES + 1)) * STRIDE + ROW, STRIDE - ROW);
	return p;
}

/* Connects by TCP, and prepares file and memory. */
static int lay_out(struct bench_worker *w)
{
	int r;

	setenv("SHEAF_NET", "tcp", 1);
	sheaf_disconnect(w->fs);
	r = bench_do_connect(w);
	if (!r)
		r = bench_do_make(w);
	if (!r)
		r = bench_why(w, "registration", sheaf_registration_open(0, &my.plain));
	if (r)
		return r;
	my.whole = (struct iovec){ map(BLOCK), BLOCK };
	if (!my.whole.iov_base || !map_rows(my.rows, 0) || !map_rows(my.holed, HOLES))
		return bench_why(w, "memory", -ENOMEM);
	return bench_why(w, "registration",
			 sheaf_registration_acquire(my.plain, &my.whole, 1, &my.ideal));
}

static int prepare(struct bench_worker *w)
{
	int r = 0;

	my.ops = my.overhead_ns = 0;
	if (w->job->way == CACHED)
		r = sheaf_registration_open(1, &my.cached);
	sheaf_registration_counts(my.plain, &my.before);
	return bench_why(w, "registration", r);
}

static int finish(struct bench_worker *w)
{
	(void)w;
	sheaf_registration_close(my.cached);
	my.cached = NULL;
	return 0;
}

/* The figures so far; those of the last operation count. */
static void tell_figures(struct bench_worker *w, struct sheaf_registration *r)
{
	struct sheaf_registration_counts c;
	double n = (double)my.ops;

	sheaf_registration_counts(r, &c);
	w->more[OVERHEAD] = (double)my.overhead_ns / n / 1e3;
	w->more[MADE] = (double)(c.registrations - my.before.registrations) / n;
	w->more[FAILED] = (double)(c.failed - my.before.failed) / n;
	if (my.cached)
		w->more[MADE] = c.why_not ? 0 : (double)c.registrations;
}

/* Registers the pieces, in `calls` calls. */
static int acquire(struct sheaf_registration *r, const struct iovec *v, size_t n, size_t calls,
		   struct sheaf_registered **u)
{
	int e = 0;

	for (size_t i = 0; !e && i < calls; i++)
		e = sheaf_registration_acquire(r, v + i * (n / calls), n / calls, &u[i]);
	return e;
}

static int once(struct bench_worker *w)
{
	static struct sheaf_registered *u[ROWS];
	struct sheaf_registration *reg = my.cached ? my.cached : my.plain;
	int way = (int)w->job->way, r = 0;
	const struct iovec *v = way == HOLED ? my.holed : way == IDEAL ? &my.whole : my.rows;
	size_t n = way == IDEAL ? 1 : ROWS, calls = way == INDIVIDUAL ? ROWS : 1;
	uint64_t start = time_now(), moved, end;

	memset(u, 0, sizeof(u));
	if (way != IDEAL)
		r = acquire(reg, v, n, calls, u);
	moved = time_now();
	if (!r) {
		ssize_t got = sheaf_write_list(w->f, v, n, &(struct sheaf_extent){ 0, BLOCK }, 1);

		r = bench_moved(w, "write", got, BLOCK);
	} else {
		bench_why(w, "registration", r);
	}
	end = time_now();
	for (size_t i = 0; way != IDEAL && i < calls; i++)
		sheaf_registration_release(reg, u[i]);
	my.overhead_ns += time_now() - end + (moved - start);
	my.ops++;
	tell_figures(w, reg);
	return r;
}

/* ---- the command ---- */

static struct {
	double of[FIGURES];
} told[WAYS]; /* of the current round */

static int measure(struct bench *b, struct bench_case *c, double *value)
{
	struct bench_result r;
	int e = bench_clients_run(b, &c->job, 1, &r);

	if (e)
		return e;
	memcpy(told[c->job.way].of, r.more, sizeof(told[0].of));
	*value = (double)(r.ops * BLOCK) / (double)r.ns;
	return 0;
}

static int tell(struct bench *b, struct bench_case *c, double *value)
{
	(void)b;
	*value = told[c->job.way].of[c->job.count];
	return 0;
}

static void add_figure(struct bench *b, uint32_t way, uint32_t figure)
{
	struct bench_case c = { .job = { .way = way, .count = figure },
				.unit = figures[figure].unit,
				.bytes = ROW,
				.pieces = ROWS,
				.custom = tell };

	bench_case_add(b, c, "%s: %s", figures[figure].name, ways[way]);
}

static int setup(struct bench *b)
{
	int r = bench_once(b, 1, lay_out, BLOCK, 0);

	for (uint32_t way = 0; way < WAYS; way++) {
		struct bench_case c = { .job = { .prepare = prepare,
						 .once = once,
						 .finish = finish,
						 .out = true,
						 .way = way,
						 .ns = b->slice_ns },
					.bytes = ROW,
					.pieces = ROWS,
					.figure = BENCH_BANDWIDTH,
					.custom = measure };

		bench_case_add(b, c, "write: %s", ways[way]);
		if (way != IDEAL) {
			add_figure(b, way, OVERHEAD);
			add_figure(b, way, MADE);
		}
		if (way == HOLED)
			add_figure(b, way, FAILED);
	}
	return r;
}

static const struct bench_row *row(struct bench *b, uint32_t figure, int way)
{
	char what[64];

	snprintf(what, sizeof(what), "%s: %s", figure == SPEED ? "write" : figures[figure].name,
		 ways[way]);
	return bench_find(b, what, 1, ROW, ROWS);
}

static void bar_count(struct bench *b, const char *name, const struct bench_row *r,
		      enum bench_sense sense, double need)
{
	if (r)
		bench_bar(b, bench_scaled(b, name, r, 1, r->unit), sense, need);
}

static void bar_ratio(struct bench *b, const char *name, const struct bench_row *a,
		      const struct bench_row *c, enum bench_sense sense, double need,
		      const char *paper)
{
	const struct bench_row *r = bench_ratio(b, name, a, c);

	bench_paper(b, r, paper);
	bench_bar(b, r, sense, need);
}

static void judge(struct bench *b)
{
	const struct bench_row *ideal = row(b, SPEED, IDEAL);
	const struct bench_row *each = row(b, OVERHEAD, INDIVIDUAL);
	const struct bench_row *cached = row(b, MADE, CACHED);

	bar_count(b, "registration_groups", row(b, MADE, GROUPED), BENCH_EXACTLY, 1);
	bar_count(b, "registration_holes", row(b, MADE, HOLED), BENCH_AT_MOST, HOLES + 1);
	bar_count(b, "registration_holes_failed", row(b, FAILED, HOLED), BENCH_AT_MOST, HOLES + 2);
	bar_ratio(b, "registration_speed", row(b, SPEED, GROUPED), ideal, BENCH_AT_LEAST, 0.75,
		  "0.94");
	bar_ratio(b, "registration_speed_holes", row(b, SPEED, HOLED), ideal, BENCH_AT_LEAST, 0.65,
		  "0.87");
	bench_paper(b, bench_ratio(b, "registration_speed_rows", row(b, SPEED, INDIVIDUAL), ideal),
		    "0.42");
	bar_ratio(b, "registration_overhead", row(b, OVERHEAD, GROUPED), each, BENCH_AT_MOST,
		  1.0 / 3, "0.04");
	bench_paper(b, bench_ratio(b, "registration_overhead_holes", row(b, OVERHEAD, HOLED), each),
		    "0.09");
	if (cached && cached->median > 0) /* else this kernel permits no cache */
		bar_count(b, "registration_cached", cached, BENCH_EXACTLY, 1);
}

static int cleanup(struct bench *b)
{
	return bench_drop_files(b);
}

const struct bench_kind bench_registration = {
	.name = "registration",
	.summary =
		"memory registered row by row, in groups, with holes; writes of 1,024 rows of 4 KiB",
	.about =
		"  row by row      a registration for each row of 4 KiB\n"
		"  groups          rows that are close together are one registration\n"
		"  with 10 holes   ten pages between the rows are not mapped\n"
		"  cached          the memory stays registered for the next access\n"
		"Each access registers, writes and deregisters, except if the memory was registered\n"
		"before, or is cached. Overhead is the time of both per access. Memory is registered\n"
		"with an io_uring.\n",
	.clients = { 1 },
	.setup = setup,
	.judge = judge,
	.cleanup = cleanup,
};
