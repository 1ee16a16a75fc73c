/* What planning and walking a list access costs: ns per plan, per file extent and per memory segment.
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
	free(area);
	free(mem);
	free(ext);
	return 0;
}
