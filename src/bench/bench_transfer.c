/* sheaf bench transfer: transfer of scattered memory, by segment size (after "Supporting
 * Efficient Noncontiguous Access in PVFS over InfiniBand", figures 3 and 4, and the scatter/gather
 * paper, figures 4 and 5, see docs/performance.md).
 *
 * A client moves 128 or 1,024 segments: with one call per segment; with one call that packs them,
 * that lets the kernel gather them, or that lets the library choose; and, as the ideal, the same
 * number of bytes in one piece. The segments are apart in memory only, or in the file as well. The
 * file exists before and is cached by the servers. Where RDMA is required (SHEAF_NET=rdma), a
 * write may also be driven by the client. One client also has typed access (bench_typed.c). Several
 * clients move 128 segments, or 4 of 1 MiB, at the same time, each in its own range of one file.
 *
 * The movers of a point, and the ideal, of one client take turns in one measurement, call by call:
 * what a server did before, the processors on which it runs and the pages that its sockets get
 * change the time of a call more than the mover does, and last longer than a short measurement. */
#include <assert.h>
#include <fcntl.h>

#include "bench/bench_impl.h"

#define SLICE_NS (8 * NSEC_PER_MSEC) /* short, since there are some 300 cases */
#define MANY_NS (20 * NSEC_PER_MSEC) /* of several clients: they share the processors */
#define LEAST_TURNS 3 /* in one measurement: the median of one call is no median */
#define MAX_TURNS 1024
/* Size of the file and of the memory: for the largest list with its gaps, and for typed access. */
#define ROOM MAX(2 * 1024 * 64 * KIB, (uint64_t)BENCH_TYPED_PIECES * 2 * BENCH_TYPED_PIECE)

/* The range of one of several clients: for the largest list with its gaps. */
#define RANGE (2 * 128 * 64 * KIB)

#define CLIENTS_COUNT 128 /* of several clients */

static const uint64_t all_counts[] = { 128, 1024 };
static const uint64_t all_sizes[] = { 64, 256, 512, KIB, 2 * KIB, 4 * KIB, 16 * KIB, 64 * KIB };
static uint64_t counts[ARRAY_LEN(all_counts)]; /* these, or those of --pieces */
static uint64_t sizes[ARRAY_LEN(all_sizes)]; /* these, or those of --sizes */
static size_t n_counts, n_sizes;
static const char *const ways[] = { "read", "write" };
#define POINTS (ARRAY_LEN(all_counts) * ARRAY_LEN(all_sizes) * ARRAY_LEN(ways))

static const struct pattern {
	const char *name, *id;
	uint32_t stride; /* in the file, in units of segments */
} patterns[] = { { "scattered in memory", "memory", 1 },
		 { "scattered in memory and file", "both", 2 } };

enum { MULTIPLE, PACK, GATHER, DRIVEN, CHOICE, IDEAL, ALTERNATIVES };
#define TURNS (ALTERNATIVES - PACK) /* the alternatives from PACK on take turns */
static_assert(TURNS <= BENCH_MORE, "a measurement has a result for each of them");
static const struct alternative {
	const char *name;
	enum sheaf_mover mover;
} alternatives[ALTERNATIVES] = {
	[MULTIPLE] = { "multiple calls", SHEAF_MOVER_AUTO },
	[PACK] = { "pack", SHEAF_MOVER_PACK },
	[GATHER] = { "gather", SHEAF_MOVER_GATHER },
	[DRIVEN] = { "driven", SHEAF_MOVER_DRIVEN },
	[CHOICE] = { "our choice", SHEAF_MOVER_AUTO },
	[IDEAL] = { "contiguous", SHEAF_MOVER_AUTO },
};

struct point {
	uint32_t count;
	uint64_t size;
	int way, clients;
};

/* ---- measuring ---- */

/* One call, as the alternative says; stores its time. */
static int do_turn(struct bench_worker *w, int a, uint64_t *took)
{
	const struct bench_job *j = w->job;
	uint64_t start, all = j->count * j->size;
	int r = bench_why(w, "mover", sheaf_set_mover(w->fs, alternatives[a].mover));

	if (r)
		return r;
	start = time_now();
	if (a != IDEAL)
		r = bench_do_list(w);
	else
		r = bench_moved(w, "contiguous",
				j->out ? sheaf_pwrite(w->f, w->buf, all, 0) :
					 sheaf_pread(w->f, w->buf, all, 0),
				all);
	*took = time_now() - start;
	return r;
}

/* Brings the turns into another order, the same in each run. */
static void shuffle(int *order, int n)
{
	static uint32_t state = 1;

	for (int i = n - 1; i > 0; i--) {
		int other, was = order[i];

		state = state * 1664525 + 1013904223;
		other = (int)((state >> 16) % (uint32_t)(i + 1));
		order[i] = order[other];
		order[other] = was;
	}
}

/* Does this alternative take part in a measurement of one client? The ideal needs a contiguous
 * file; only a write over RDMA can be driven by the client. */
static bool takes_part(int a, bool writes, bool is_contiguous)
{
	const char *net = getenv("SHEAF_NET");

	if (a == DRIVEN)
		return writes && net && strcmp(net, "rdma") == 0;
	return a != IDEAL || is_contiguous;
}

/* Calls of all alternatives in turn. Stores the median times. */
static int do_turns(struct bench_worker *w)
{
	static uint64_t took[TURNS][MAX_TURNS];
	uint64_t end = time_now() + TURNS * SLICE_NS;
	int order[TURNS], n = 0, r = 0;
	size_t turns = 0;

	for (int a = PACK; a < ALTERNATIVES; a++)
		if (takes_part(a, w->job->out, w->job->stride == w->job->size))
			order[n++] = a;
	do {
		shuffle(order, n);
		for (int i = 0; !r && i < n; i++)
			r = do_turn(w, order[i], &took[order[i] - PACK][turns]);
	} while (!r && ++turns < MAX_TURNS && (turns < LEAST_TURNS || time_now() < end));
	for (int i = 0; !r && i < n; i++) {
		int k = order[i] - PACK;

		w->more[k] = (double)bench_median(took[k], turns);
	}
	sheaf_set_mover(w->fs, SHEAF_MOVER_AUTO);
	return r;
}

static double turn_ns[TURNS]; /* results of the last do_turns() */

static double turn_speed(const struct bench_case *c, int a)
{
	return (double)(c->job.count * c->job.size) / turn_ns[a - PACK];
}

/* The first of the alternatives measures all. */
static int measure_pack(struct bench *b, struct bench_case *c, double *value)
{
	struct bench_result result;
	int r = bench_clients_run(b, &c->job, 1, &result);

	if (r)
		return r;
	memcpy(turn_ns, result.more, sizeof(turn_ns));
	*value = turn_speed(c, PACK);
	return 0;
}

static int measure_gather(struct bench *b, struct bench_case *c, double *value)
{
	(void)b;
	*value = turn_speed(c, GATHER);
	return 0;
}

static int measure_driven(struct bench *b, struct bench_case *c, double *value)
{
	(void)b;
	*value = turn_speed(c, DRIVEN);
	return 0;
}

static int measure_choice(struct bench *b, struct bench_case *c, double *value)
{
	(void)b;
	*value = turn_speed(c, CHOICE);
	return 0;
}

static int measure_ideal(struct bench *b, struct bench_case *c, double *value)
{
	(void)b;
	*value = turn_speed(c, IDEAL);
	return 0;
}

/* A call of several clients. */
static int prepare(struct bench_worker *w)
{
	int r = w->job->count ? bench_lay_out(w) : 0;

	return r ? r : bench_why(w, "mover", sheaf_set_mover(w->fs, w->job->mover));
}

/* All clients use the file of the first. */
static int open_shared(struct bench_worker *w)
{
	int r = w->index ? sheaf_open(w->fs, bench_path(w, "file.0"), O_RDWR, 0, NULL, &w->f) : 0;

	return r ? bench_why(w, "open", r) : bench_do_room(w);
}

static void name_row(char *out, size_t n, int way, const struct pattern *p, int a)
{
	if (a == IDEAL)
		snprintf(out, n, "%s: %s", ways[way], alternatives[a].name);
	else
		snprintf(out, n, "%s %s: %s", ways[way], p->name, alternatives[a].name);
}

static void add(struct bench *b, const struct point *pt, const struct pattern *p, int a)
{
	static int (*const measure[ALTERNATIVES])(struct bench * b, struct bench_case * c,
						  double *value) = { [PACK] = measure_pack,
								     [GATHER] = measure_gather,
								     [DRIVEN] = measure_driven,
								     [CHOICE] = measure_choice,
								     [IDEAL] = measure_ideal };
	bool many = pt->clients > 1, whole = many && a == IDEAL;
	struct bench_case c = { .job = { .prepare = many ? prepare : bench_lay_out,
					 .once = a == MULTIPLE ? bench_do_singles :
						 whole	       ? bench_do_transfer :
						 many	       ? bench_do_list :
								 do_turns,
					 .max_ops = !many && a != MULTIPLE,
					 .out = pt->way == 1,
					 .count = whole ? 0 : pt->count,
					 .size = whole ? pt->count * pt->size : pt->size,
					 .stride = whole ? 0 : p->stride * pt->size,
					 .apart = RANGE,
					 .typical = !many,
					 .mover = alternatives[a].mover },
				.pieces = pt->count,
				.bytes = pt->size,
				.workers = pt->clients,
				.figure = BENCH_BANDWIDTH,
				.ns = many ? MANY_NS : SLICE_NS,
				.custom = many ? NULL : measure[a] };
	char what[sizeof(c.row->what)];

	name_row(what, sizeof(what), pt->way, p, a);
	bench_case_add(b, c, "%s", what);
}

/* The i-th combination of count, size and direction, for this number of clients. */
static bool point_at(size_t i, int clients, struct point *pt)
{
	size_t way = i % 2, size = i / 2 % n_sizes, count = i / 2 / n_sizes;

	if (clients > 1 ? count > 1 || (count && size) : count >= n_counts)
		return false;
	*pt = (struct point){ clients > 1 ? CLIENTS_COUNT : (uint32_t)counts[count], sizes[size],
			      (int)way, clients };
	if (clients > 1 && count) { /* the last point of several clients */
		pt->count = 4;
		pt->size = MIB;
	}
	return true;
}

static void add_point(struct bench *b, const struct point *pt)
{
	for (size_t p = 0; p < ARRAY_LEN(patterns); p++)
		for (int a = 0; a < ALTERNATIVES; a++)
			if (takes_part(a, pt->way == 1, patterns[p].stride == 1))
				add(b, pt, &patterns[p], a);
}

static bool is_given(const int *given, int n, uint64_t value)
{
	for (int i = 0; i < n; i++)
		if ((uint64_t)given[i] == value)
			return true;
	return n == 0;
}

/* Stores which of all values are given; all, if none is. Their number; 0: one is not known. */
static size_t choose(const uint64_t *all, size_t n_all, const int *given, int n, uint64_t *out)
{
	size_t found = 0;

	for (size_t i = 0; i < n_all; i++)
		if (is_given(given, n, all[i]))
			out[found++] = all[i];
	return n && found != (size_t)n ? 0 : found;
}

/* 0, or -EINVAL after a message. */
static int choose_points(struct bench *b)
{
	n_sizes = choose(all_sizes, ARRAY_LEN(all_sizes), b->sizes, b->n_sizes, sizes);
	n_counts = choose(all_counts, ARRAY_LEN(all_counts), b->counts, b->n_counts, counts);
	if (n_sizes && n_counts)
		return 0;
	cli_error(
		b->c,
		n_sizes ?
			"--pieces: there are 128 or 1024 segments" :
			"--sizes: segments have 64, 256, 512, 1024, 2048, 4096, 16384 or 65536 bytes");
	return -EINVAL;
}

/* Typed access is measured with all points only. */
static bool is_whole(const struct bench *b)
{
	return !b->n_sizes && !b->n_counts;
}

static int setup(struct bench *b)
{
	int most = b->most_clients, r = choose_points(b);
	uint64_t room = RANGE;
	struct point pt;

	if (r)
		return r;
	for (int k = 0; k < b->n_clients; k++) {
		for (size_t i = 0; point_at(i, b->clients[k], &pt); i++)
			add_point(b, &pt);
		if (b->clients[k] == 1) {
			if (is_whole(b))
				bench_typed_add(b);
			room = is_whole(b) ?
				       ROOM :
				       MAX(RANGE, 2 * counts[n_counts - 1] * sizes[n_sizes - 1]);
		}
	}
	r = bench_once(b, 1, bench_do_make, MAX(room, (uint64_t)most * RANGE), 0);
	if (!r)
		r = bench_once(b, 1, bench_do_room, room, 0);
	return r ? r : bench_once(b, most, open_shared, RANGE, 0);
}

/* ---- judging ---- */

static const struct bench_row *find(struct bench *b, const struct point *pt,
				    const struct pattern *p, int a)
{
	char what[sizeof(((struct bench_row *)0)->what)];

	name_row(what, sizeof(what), pt->way, p, a);
	return bench_find(b, what, (uint32_t)pt->clients, pt->size, pt->count);
}

/* Ratios per point; the worst is judged. */
struct ratios {
	const struct bench_row *row[POINTS * ARRAY_LEN(patterns)];
	int n;
};

/* Rows of several clients have names of their own. */
static const char *name_of(char out[64], const char *name, int clients)
{
	int n = snprintf(out, 64, "%s", name);

	if (clients > 1)
		snprintf(out + n, 64 - (size_t)n, "_%dc", clients);
	return out;
}

static const struct bench_row *put(struct bench *b, struct ratios *r, const char *name,
				   const struct point *pt, const struct pattern *p,
				   const struct bench_row *of, const struct bench_row *to)
{
	bool mib = pt->size >= MIB, kib = pt->size >= KIB;
	uint64_t unit = mib ? MIB : kib ? KIB : 1;
	char id[64], full[64];

	snprintf(id, sizeof(id), "%s_%s_%s_%ux%u%s", name, ways[pt->way], p->id, pt->count,
		 (unsigned)(pt->size / unit),
		 mib ? "M" :
		 kib ? "K" :
		       "");
	return r->row[r->n++] = bench_ratio(b, name_of(full, id, pt->clients), of, to);
}

static const struct bench_row *worst(struct bench *b, const char *name, int clients,
				     const struct ratios *r, bool highest)
{
	char full[64];

	return bench_worst_point(b, name_of(full, name, clients), r->row, r->n, highest);
}

static const struct bench_row *faster(const struct bench_row *a, const struct bench_row *b)
{
	return !b || (a && a->median > b->median) ? a : b;
}

/* Time of the library's choice to that of the best mover. All other ratios are of speeds. */
static void judge_choice(struct bench *b, int clients)
{
	const struct bench_row *row;
	struct ratios r = { .n = 0 };
	struct point pt;

	for (size_t i = 0; point_at(i, clients, &pt); i++)
		for (size_t k = 0; k < ARRAY_LEN(patterns); k++) {
			const struct pattern *p = &patterns[k];
			const struct bench_row *best =
				faster(find(b, &pt, p, PACK), find(b, &pt, p, GATHER));

			best = faster(best, find(b, &pt, p, DRIVEN));
			put(b, &r, "choice", &pt, p, best, find(b, &pt, p, CHOICE));
		}
	row = worst(b, "transfer_choice", clients, &r, true);
	if (clients == 1)
		bench_bar(b, row, BENCH_AT_MOST, 1.15);
}

static void judge_multiple(struct bench *b, int clients)
{
	const struct pattern *p = &patterns[0];
	const struct bench_row *row;
	struct ratios r = { .n = 0 };
	struct point pt;

	for (size_t i = 0; point_at(i, clients, &pt); i++)
		if (pt.size <= 2 * KIB)
			put(b, &r, "multiple", &pt, p, find(b, &pt, p, CHOICE),
			    find(b, &pt, p, MULTIPLE));
	row = worst(b, "transfer_multiple", clients, &r, false);
	if (clients == 1)
		bench_bar(b, row, BENCH_AT_LEAST, 15);
}

/* Both sides of the ratio use a contiguous file. With a strided file the ratio includes the
 * servers' accesses, and several clients share the processors: rows, but no bars. */
static void judge_ideal(struct bench *b, int clients, const struct pattern *p, const char *from_512,
			const char *from_4k)
{
	struct ratios all = { .n = 0 }, large = { .n = 0 };
	const struct bench_row *low[2], *r;
	struct point pt;

	for (size_t i = 0; point_at(i, clients, &pt); i++) {
		if (pt.size < 512)
			continue;
		r = put(b, &all, "ideal", &pt, p, find(b, &pt, p, CHOICE), find(b, &pt, p, IDEAL));
		if (pt.size >= 4 * KIB)
			large.row[large.n++] = r;
	}
	low[0] = worst(b, from_512, clients, &all, false);
	low[1] = worst(b, from_4k, clients, &large, false);
	if (p->stride > 1 || clients > 1)
		return;
	bench_bar(b, low[0], BENCH_AT_LEAST, 0.6);
	bench_bar(b, low[1], BENCH_AT_LEAST, 0.85);
}

/* Gather to pack, and its best point: the papers' gain of zero-copy lists. */
static void judge_gather(struct bench *b, int clients, int way, const char *name, const char *paper)
{
	const struct pattern *p = &patterns[0];
	struct ratios r = { .n = 0 };
	struct point pt;

	for (size_t i = 0; point_at(i, clients, &pt); i++)
		if (pt.way == way)
			put(b, &r, "gather", &pt, p, find(b, &pt, p, GATHER),
			    find(b, &pt, p, PACK));
	bench_paper(b, worst(b, name, clients, &r, true), paper);
}

static void judge_clients(struct bench *b, int clients)
{
	judge_choice(b, clients);
	judge_multiple(b, clients);
	judge_ideal(b, clients, &patterns[0], "transfer_ideal_512", "transfer_ideal_4k");
	judge_ideal(b, clients, &patterns[1], "transfer_ideal_512_strided",
		    "transfer_ideal_4k_strided");
	if (clients == 1)
		return;
	judge_gather(b, clients, 0, "transfer_gather_read", "up to 1.89");
	judge_gather(b, clients, 1, "transfer_gather_write", "up to 1.52");
}

/* ---- plots ---- */

static void plot(struct bench *b, const char *name, const char *title, int clients, uint32_t count,
		 int way, const struct pattern *pattern)
{
	const struct point first = { count, sizes[0], way, clients };
	struct bench_plot *p;

	if (!find(b, &first, pattern, CHOICE))
		return; /* --pieces has another number */
	p = bench_plot_add(b, name, title);
	p->line = p->log = true;
	p->x_label = "bytes of a segment";
	p->n_groups = (int)n_sizes;
	for (int g = 0; g < p->n_groups; g++)
		bench_size_text(p->groups[g], sizeof(p->groups[g]), sizes[g]);
	for (int a = 0; a < ALTERNATIVES; a++) {
		int s = p->n_series;

		if (a == DRIVEN && !takes_part(a, way == 1, true))
			continue;
		bench_plot_series(p, "%s", alternatives[a].name);
		for (int g = 0; g < p->n_groups; g++) {
			struct point pt = { count, sizes[g], way, clients };

			p->cell[g][s] = find(b, &pt, pattern, a);
		}
	}
}

static void plot_one(struct bench *b)
{
	plot(b, "transfer-read", "128 segments into scattered memory", 1, 128, 0, &patterns[0]);
	plot(b, "transfer-write", "128 segments of scattered memory", 1, 128, 1, &patterns[0]);
	plot(b, "transfer-read-both", "128 segments into scattered memory from a strided file", 1,
	     128, 0, &patterns[1]);
	plot(b, "transfer-write-both", "128 segments of scattered memory into a strided file", 1,
	     128, 1, &patterns[1]);
	plot(b, "transfer-read-1024", "1,024 segments into scattered memory", 1, 1024, 0,
	     &patterns[0]);
	plot(b, "transfer-write-1024", "1,024 segments of scattered memory", 1, 1024, 1,
	     &patterns[0]);
}

static void judge(struct bench *b)
{
	bool one = false;

	for (int i = 0; i < b->n_clients; i++) {
		one |= b->clients[i] == 1;
		judge_clients(b, b->clients[i]);
	}
	if (one && is_whole(b))
		bench_typed_judge(b);
	if (one)
		plot_one(b);
	if (b->most_clients == 1)
		return;
	plot(b, "transfer-read-clients", "Clients together: 128 segments into scattered memory",
	     b->most_clients, 128, 0, &patterns[0]);
	plot(b, "transfer-write-clients", "Clients together: 128 segments of scattered memory",
	     b->most_clients, 128, 1, &patterns[0]);
}

const struct bench_kind bench_transfer = {
	.name = "transfer",
	.summary =
		"scattered memory by single calls, packed, gathered and by our choice against one piece; typed access; GB/s of all clients together",
	.clients = { 1 },
	.setup = setup,
	.judge = judge,
	.cleanup = bench_drop_files,
};
