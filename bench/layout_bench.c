/* The cost of planning and walking a list access: ns per plan, per file extent and per memory
 * segment; and of the same accesses as types: ns per run, per seek and per extent of an object.
 * Each case is the best of some rounds; no I/O. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "layout/layout.h"

#define SEGMENTS ((size_t)1000000)
#define ROUNDS 5
#define WIDTH 4

static const struct layout striping = { 64 * KIB, WIDTH, 1 };

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "layout_bench: %s\n", what);
	exit(1);
}

/* Plans requests of at most `max` extents for every target and walks their memory. */
static void run_all(const struct access *a, size_t max, bool walk, uint64_t *n_plans,
		    uint64_t *n_extents, uint64_t *n_pieces)
{
	static struct extent out[2048];
	struct iovec iov[1024];

	for (uint32_t t = 0; t < WIDTH; t++) {
		struct cursor c = { 0 };
		struct view v;
		size_t n;

		while ((n = view_plan(&v, a, &striping, t, &c, out, max, UINT64_MAX))) {
			++*n_plans;
			*n_extents += n;
			for (uint64_t at = 0, got; walk && at < v.length; at += got)
				*n_pieces += view_iov(&v, at, v.length - at, iov, 1024, &got);
		}
	}
}

static void measure(const char *name, const struct access *a, size_t max, bool walk, int repeat)
{
	double best = 1e30;
	uint64_t plans = 0, extents = 0, pieces = 0;

	for (int r = 0; r < ROUNDS; r++) {
		double t = now_ns();

		plans = extents = pieces = 0;
		for (int i = 0; i < repeat; i++)
			run_all(a, max, walk, &plans, &extents, &pieces);
		t = now_ns() - t;
		best = MIN(best, t);
	}
	printf("%-44s %10.1f ns/plan %8.2f ns/extent", name, best / (double)plans,
	       best / (double)extents);
	if (pieces)
		printf(" %8.2f ns/piece", best / (double)pieces);
	printf("\n");
}

static void contiguous(void)
{
	static char one;
	struct iovec m = { &one, 4 * MIB };
	struct extent e = { 0, 4 * MIB };
	struct access a;

	if (access_init(&a, &m, 1, &e, 1))
		die("access_init");
	measure("4 MiB contiguous, plan", &a, 2048, false, 100000);
	measure("4 MiB contiguous, plan and walk", &a, 2048, true, 20000);
}

static void scattered_memory(struct iovec *mem)
{
	struct extent e = { 0, SEGMENTS * 8 };
	struct access a;

	if (access_init(&a, mem, SEGMENTS, &e, 1))
		die("access_init");
	measure("10^6 x 8 B in memory, plan", &a, 2048, false, 10);
	measure("10^6 x 8 B in memory, plan and walk", &a, 2048, true, 1);
}

static void scattered_file(struct iovec *mem, struct extent *ext)
{
	struct iovec all = { mem[0].iov_base, SEGMENTS * 8 };
	struct access a;

	if (access_init(&a, &all, 1, ext, SEGMENTS))
		die("access_init");
	measure("10^6 x 8 B in the file, stride 8 KiB, plan", &a, 2048, false, 1);
	measure("the same, plan and walk", &a, 2048, true, 1);
	if (access_init(&a, mem, SEGMENTS, ext, SEGMENTS))
		die("access_init");
	measure("10^6 x 8 B on both sides, plan and walk", &a, 2048, true, 1);
}

static void copying(struct iovec *mem)
{
	struct extent e = { 0, SEGMENTS * 8 }, out[4];
	struct layout l = { 4096, 1, 0 };
	struct cursor c = { 0 };
	struct access a;
	struct view v;
	char *buf = malloc(SEGMENTS * 8);
	double best = 1e30;

	if (!buf || access_init(&a, mem, SEGMENTS, &e, 1) ||
	    view_plan(&v, &a, &l, 0, &c, out, 4, UINT64_MAX) != 1)
		die("copying");
	memset(buf, 0, SEGMENTS * 8);
	for (int r = 0; r < ROUNDS; r++) {
		double t = now_ns();

		view_copy_out(&v, 0, buf, v.length);
		t = now_ns() - t;
		best = MIN(best, t);
	}
	printf("%-44s %10.2f ns/segment\n", "view_copy_out of 10^6 x 8 B", best / (double)SEGMENTS);
	free(buf);
}

/* ---------------------------------------------------------------- types */

static struct extent runs[2048];

static struct type *vector(uint64_t count, int64_t stride, struct type *of)
{
	struct type *t = NULL;

	if (type_vector(count, 1, stride, of, &t))
		die("type_vector");
	type_free(of);
	return t;
}

static struct type *eight_bytes(void)
{
	struct type *t = NULL;

	if (type_bytes(8, &t))
		die("type_bytes");
	return t;
}

/* A type of short pieces every 24 to 39 bytes. */
static struct type *irregular(size_t n)
{
	uint64_t *blocks = calloc(n, sizeof(*blocks));
	int64_t *displ = calloc(n, sizeof(*displ));
	struct type *of = eight_bytes(), *t = NULL;

	if (!blocks || !displ)
		die("out of memory");
	for (size_t i = 0; i < n; i++) {
		blocks[i] = 1;
		displ[i] = (int64_t)(i * 32 + i * 7 % 8);
	}
	if (type_indexed(n, blocks, displ, of, &t))
		die("type_indexed");
	type_free(of);
	free(blocks);
	free(displ);
	return t;
}

static void time_runs(const char *name, const struct pattern *p)
{
	double best = 1e30;
	uint64_t n_runs = 0;

	for (int r = 0; r < ROUNDS; r++) {
		struct pattern_cursor c;
		double t = now_ns();

		n_runs = 0;
		pattern_seek(&c, p, 0);
		for (size_t n; (n = pattern_runs(&c, runs, ARRAY_LEN(runs), UINT64_MAX));)
			n_runs += n;
		t = now_ns() - t;
		best = MIN(best, t);
	}
	printf("%-44s %10.2f ns/run\n", name, best / (double)n_runs);
}

static void time_seeks(const char *name, const struct pattern *p, bool by_offset)
{
	const int n = 100000;
	double best = 1e30;

	for (int r = 0; r < ROUNDS; r++) {
		uint64_t at = 0, step = (by_offset ? p->end : p->total) / 7919 * 311;
		uint64_t end = by_offset ? p->end : p->total;
		struct pattern_cursor c;
		double t = now_ns();

		for (int i = 0; i < n; i++) {
			if (by_offset)
				pattern_seek_offset(&c, p, at);
			else
				pattern_seek(&c, p, at);
			at = at + step < end ? at + step : at + step - end;
		}
		t = now_ns() - t;
		best = MIN(best, t);
	}
	printf("%-44s %10.2f ns/seek\n", name, best / n);
}

/* Walks all objects, with and without bursts and jumps. */
static void time_extent_iter(const char *name, const struct pattern *p, bool plain)
{
	static uint64_t pos[ARRAY_LEN(runs)];
	double best = 1e30;
	uint64_t extents = 0;

	for (int r = 0; r < ROUNDS; r++) {
		struct extent_iter s;
		double t = now_ns();

		extents = 0;
		for (uint32_t i = 0; i < WIDTH; i++) {
			extent_iter_init(&s, p, &striping, i, 0);
			if (plain)
				s.by_stripe = s.skips_gaps = false;
			while (s.c.pos < p->total)
				extents += extent_iter_next(&s, runs, pos, ARRAY_LEN(runs),
							    UINT64_MAX);
		}
		t = now_ns() - t;
		best = MIN(best, t);
	}
	printf("%-44s %10.2f ns/extent%s\n", name, best / (double)extents,
	       plain ? ", leaf by leaf" : "");
}

static void time_type(const char *name, struct type *t, uint64_t count)
{
	char text[80];
	struct pattern p;

	if (pattern_init(&p, t, 0, count))
		die("pattern_init");
	snprintf(text, sizeof(text), "%s, %zu bytes", name, type_wire_size(t));
	time_runs(text, &p);
	time_seeks("    a position", &p, false);
	time_seeks("    an offset", &p, true);
	time_extent_iter("    of 4 objects", &p, false);
	time_extent_iter("    of 4 objects", &p, true);
	type_free(t);
}

static void types(void)
{
	time_type("vector 10^6 x 8 B, stride 64", vector(1000000, 64, eight_bytes()), 1);
	time_type("vector 10^6 x 8 B, stride 8 KiB", vector(1000000, 8192, eight_bytes()), 1);
	time_type("vector 10^6 x 8 B, stride 64 KiB", vector(1000000, 65536, eight_bytes()), 1);
	time_type("vector 1000 x vector 1000 x 8 B",
		  vector(1000, 1 << 17, vector(1000, 64, eight_bytes())), 1);
	time_type("vector 250000 x vector 4 x 8 B",
		  vector(250000, 1024, vector(4, 64, eight_bytes())), 1);
	time_type("indexed 50000 x 8 B, 20 copies", irregular(50000), 20);
	time_type("indexed 4 x 8 B, 250000 copies", irregular(4), 250000);
}

int main(void)
{
	char *area = calloc(SEGMENTS, 16);
	struct iovec *mem = calloc(SEGMENTS, sizeof(*mem));
	struct extent *ext = calloc(SEGMENTS, sizeof(*ext));

	if (!area || !mem || !ext)
		die("out of memory");
	for (size_t i = 0; i < SEGMENTS; i++) {
		mem[i] = (struct iovec){ area + 16 * i, 8 };
		ext[i] = (struct extent){ i * 8192, 8 };
	}
	contiguous();
	scattered_memory(mem);
	scattered_file(mem, ext);
	copying(mem);
	types();
	free(area);
	free(mem);
	free(ext);
	return 0;
}
