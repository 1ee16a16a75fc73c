/* sheaf bench transfer: transfer of scattered memory, by segment size (after Wu et al., "Supporting
 * Efficient Noncontiguous Access in PVFS over InfiniBand", figures 3 and 4).
 *
 * One client moves 128 or 1,024 segments: with one call per segment; with one call that packs them,
 * that lets the kernel gather them, or that lets the library choose; and, as the ideal, the same
 * number of bytes in one piece. The segments are apart in memory only, or in the file as well. All
 * cases of a point run one after the other, so that ratios compare neighbours. The file exists
 * before and is cached by the servers. Also includes typed access (bench_typed.c). */
#include "bench/bench_impl.h"

#define SLICE_NS (8 * NSEC_PER_MSEC) /* short, since there are some 300 cases */
/* Size of the file and of the memory: for the largest list with its gaps, and for typed access. */
#define ROOM MAX(2 * 1024 * 64 * KIB, (uint64_t)BENCH_TYPED_PIECES * 2 * BENCH_TYPED_PIECE)

static const uint32_t counts[] = { 128, 1024 };
static const uint64_t sizes[] = { 64, 256, 512, KIB, 2 * KIB, 4 * KIB, 16 * KIB, 64 * KIB };
static const char *const ways[] = { "read", "write" };
#define POINTS (ARRAY_LEN(counts) * ARRAY_LEN(sizes) * ARRAY_LEN(ways))

static const struct pattern {
	const char *name, *id;
	uint32_t stride; /* in the file, in units of segments */
} patterns[] = { { "scattered in memory", "memory", 1 },
		 { "scattered in memory and file", "both", 2 } };

enum { MULTIPLE, PACK, GATHER, CHOICE, ALTERNATIVES };
static const struct alternative {
	const char *name;
	bench_fn *once;
	enum sheaf_mover mover;
} alternatives[ALTERNATIVES] = {
	[MULTIPLE] = { "multiple calls", bench_do_singles, SHEAF_MOVER_AUTO },
	[PACK] = { "pack", bench_do_list, SHEAF_MOVER_PACK },
	[GATHER] = { "gather", bench_do_list, SHEAF_MOVER_GATHER },
	[CHOICE] = { "our choice", bench_do_list, SHEAF_MOVER_AUTO },
};
static const char ideal[] = "contiguous";

struct point {
	uint32_t count;
	uint64_t size;
	int way;
};

/* ---- measuring ---- */

static int prepare(struct bench_worker *w)
{
	int r = w->job->count ? bench_lay_out(w) : 0;

	return r ? r : bench_why(w, "mover", sheaf_set_mover(w->fs, w->job->mover));
}

static void name_row(char *out, size_t n, int way, const struct pattern *p,
		     const struct alternative *a)
{
	if (p)
		snprintf(out, n, "%s %s: %s", ways[way], p->name, a->name);
	else
		snprintf(out, n, "%s: %s", ways[way], ideal);
}

static void add(struct bench *b, const struct point *pt, const struct pattern *p,
		const struct alternative *a)
{
	struct bench_case c = { .job = { .prepare = prepare,
					 .once = a ? a->once : bench_do_transfer,
					 .out = pt->way == 1,
					 .count = p ? pt->count : 0,
					 .size = p ? pt->size : pt->count * pt->size,
					 .stride = p ? p->stride * pt->size : 0,
					 .typical = true,
					 .mover = a ? a->mover : SHEAF_MOVER_AUTO },
				.pieces = pt->count,
				.bytes = pt->size,
				.figure = BENCH_BANDWIDTH,
				.ns = SLICE_NS };
	char what[sizeof(c.row->what)];

	name_row(what, sizeof(what), pt->way, p, a);
	bench_case_add(b, c, "%s", what);
}

/* The i-th combination of count, size and direction. */
static bool point_at(size_t i, struct point *pt)
{
	size_t way = i % 2, size = i / 2 % ARRAY_LEN(sizes), count = i / 2 / ARRAY_LEN(sizes);

	if (count >= ARRAY_LEN(counts))
		return false;
	*pt = (struct point){ counts[count], sizes[size], (int)way };
	return true;
}

static void add_point(struct bench *b, const struct point *pt)
{
	add(b, pt, NULL, NULL);
	for (size_t p = 0; p < ARRAY_LEN(patterns); p++)
		for (int a = 0; a < ALTERNATIVES; a++)
			add(b, pt, &patterns[p], &alternatives[a]);
}

static int setup(struct bench *b)
{
	int r = bench_once(b, 1, bench_do_make, ROOM, 0);
	struct point pt;

	if (!r)
		r = bench_once(b, 1, bench_do_room, ROOM, 0);
	for (size_t i = 0; point_at(i, &pt); i++)
		add_point(b, &pt);
	bench_typed_add(b);
	return r;
}

/* ---- judging ---- */

static const struct bench_row *find(struct bench *b, const struct point *pt,
				    const struct pattern *p, int a)
{
	char what[sizeof(((struct bench_row *)0)->what)];

	name_row(what, sizeof(what), pt->way, p, &alternatives[a]);
	return bench_find(b, what, 1, pt->size, pt->count);
}

/* Ratios per point; the worst is judged. */
struct ratios {
	const struct bench_row *row[POINTS * ARRAY_LEN(patterns)];
	int n;
};

static const struct bench_row *put(struct bench *b, struct ratios *r, const char *name,
				   const struct point *pt, const struct pattern *p,
				   const struct bench_row *of, const struct bench_row *to)
{
	bool kib = pt->size >= KIB;
	char id[64];

	snprintf(id, sizeof(id), "%s_%s_%s_%ux%u%s", name, ways[pt->way], p->id, pt->count,
		 (unsigned)(kib ? pt->size / KIB : pt->size), kib ? "K" : "");
	return r->row[r->n++] = bench_ratio(b, id, of, to);
}

/* Time of the library's choice to that of the better mover. All other ratios are of speeds. */
static void judge_choice(struct bench *b)
{
	struct ratios r = { .n = 0 };
	struct point pt;

	for (size_t i = 0; point_at(i, &pt); i++)
		for (size_t k = 0; k < ARRAY_LEN(patterns); k++) {
			const struct pattern *p = &patterns[k];
			const struct bench_row *pack = find(b, &pt, p, PACK);
			const struct bench_row *gather = find(b, &pt, p, GATHER);
			bool packs = pack && gather && pack->median > gather->median;

			put(b, &r, "choice", &pt, p, packs ? pack : gather,
			    find(b, &pt, p, CHOICE));
		}
	bench_bar(b, bench_worst_point(b, "transfer_choice", r.row, r.n, true), BENCH_AT_MOST,
		  1.15);
}

static void judge_multiple(struct bench *b)
{
	const struct pattern *p = &patterns[0];
	struct ratios r = { .n = 0 };
	struct point pt;

	for (size_t i = 0; point_at(i, &pt); i++)
		if (pt.size <= 2 * KIB)
			put(b, &r, "multiple", &pt, p, find(b, &pt, p, CHOICE),
			    find(b, &pt, p, MULTIPLE));
	bench_bar(b, bench_worst_point(b, "transfer_multiple", r.row, r.n, false), BENCH_AT_LEAST,
		  15);
}

/* Both sides of the ratio use a contiguous file. With a strided file the ratio includes the
 * servers' accesses: rows, but no bars. */
static void judge_ideal(struct bench *b, const struct pattern *p, const char *from_512,
			const char *from_4k)
{
	struct ratios all = { .n = 0 }, large = { .n = 0 };
	const struct bench_row *worst[2], *r;
	struct point pt;

	for (size_t i = 0; point_at(i, &pt); i++) {
		if (pt.size < 512)
			continue;
		r = put(b, &all, "ideal", &pt, p, find(b, &pt, p, CHOICE), find(b, &pt, NULL, 0));
		if (pt.size >= 4 * KIB)
			large.row[large.n++] = r;
	}
	worst[0] = bench_worst_point(b, from_512, all.row, all.n, false);
	worst[1] = bench_worst_point(b, from_4k, large.row, large.n, false);
	if (p->stride > 1)
		return;
	bench_bar(b, worst[0], BENCH_AT_LEAST, 0.6);
	bench_bar(b, worst[1], BENCH_AT_LEAST, 0.85);
}

/* ---- plots ---- */

static void plot(struct bench *b, const char *name, const char *title, uint32_t count, int way,
		 const struct pattern *pattern)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	p->line = p->log = true;
	p->x_label = "bytes of a segment";
	p->n_groups = (int)ARRAY_LEN(sizes);
	for (int s = 0; s < ALTERNATIVES; s++)
		bench_plot_series(p, "%s", alternatives[s].name);
	bench_plot_series(p, ideal);
	for (int g = 0; g < p->n_groups; g++) {
		struct point pt = { count, sizes[g], way };

		bench_size_text(p->groups[g], sizeof(p->groups[g]), sizes[g]);
		for (int s = 0; s < p->n_series; s++)
			p->cell[g][s] = s < ALTERNATIVES ? find(b, &pt, pattern, s) :
							   find(b, &pt, NULL, 0);
	}
}

static void judge(struct bench *b)
{
	judge_choice(b);
	judge_multiple(b);
	judge_ideal(b, &patterns[0], "transfer_ideal_512", "transfer_ideal_4k");
	judge_ideal(b, &patterns[1], "transfer_ideal_512_strided", "transfer_ideal_4k_strided");
	bench_typed_judge(b);
	plot(b, "transfer-read", "128 segments into scattered memory", 128, 0, &patterns[0]);
	plot(b, "transfer-write", "128 segments of scattered memory", 128, 1, &patterns[0]);
	plot(b, "transfer-read-both", "128 segments into scattered memory from a strided file", 128,
	     0, &patterns[1]);
	plot(b, "transfer-write-both", "128 segments of scattered memory into a strided file", 128,
	     1, &patterns[1]);
	plot(b, "transfer-read-1024", "1,024 segments into scattered memory", 1024, 0,
	     &patterns[0]);
	plot(b, "transfer-write-1024", "1,024 segments of scattered memory", 1024, 1, &patterns[0]);
}

const struct bench_kind bench_transfer = {
	.name = "transfer",
	.summary =
		"scattered memory by single calls, packed, gathered and by our choice against one piece; typed access",
	.clients = { 1 },
	.setup = setup,
	.judge = judge,
	.cleanup = bench_drop_files,
};
