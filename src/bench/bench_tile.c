/* sheaf bench tile: 2 x 2 tiles of 1024 x 768 elements, one for each of 4 clients, in the ways of
 * bench_strided.c (after the tiled access tests of the papers in docs/performance.md: with elements
 * of 3 bytes, the InfiniBand paper, figures 8 and 9; with elements of 32 bytes, the Quadrics paper,
 * figure 10, and the scatter/gather paper, figure 6).
 * Overlapping tiles share 270 columns and 128 rows, as on the display walls of mpi-tile-io. */
#include "bench/bench_impl.h"

#define WIDTH 1024
#define HEIGHT 768
#define OVERLAP_X 270
#define OVERLAP_Y 128
#define SLICE_NS (30 * NSEC_PER_MSEC)

static const uint32_t elements[] = { 3, 24, 32 };
#define LARGEST 32
static const char *const ways[] = { "read", "write" };

static struct bench_strided tiles(uint32_t element, bool overlap, bool cold)
{
	uint64_t across = WIDTH - (overlap ? OVERLAP_X : 0);
	uint64_t down = HEIGHT - (overlap ? OVERLAP_Y : 0);
	uint64_t stride = (across + WIDTH) * element;

	return (struct bench_strided){ .name = overlap ? "overlapping" : "",
				       .size = WIDTH * (uint64_t)element,
				       .stride = stride,
				       .step = { across * element, down * stride },
				       .columns = 2,
				       .rows = HEIGHT,
				       .clients = BENCH_SHARERS,
				       .ns = SLICE_NS,
				       .cold = cold };
}

/* As the papers do with elements of 32 bytes: gathered and packed. */
static struct bench_strided moved(enum sheaf_mover how)
{
	struct bench_strided s = tiles(LARGEST, false, false);

	s.name = how == SHEAF_MOVER_GATHER ? "gathered" : "packed";
	s.mover = how;
	return s;
}

static bool has_cold(const struct bench *b)
{
	return b->place.own && b->place.on_disk;
}

static void add(struct bench *b, const struct bench_strided *s)
{
	for (int out = 0; out < 2; out++)
		for (int way = 0; way < BENCH_WAYS; way++)
			bench_strided_case(b, s, way, out);
}

static void add_moved(struct bench *b)
{
	struct bench_strided gather = moved(SHEAF_MOVER_GATHER), pack = moved(SHEAF_MOVER_PACK);

	for (int out = 0; out < 2; out++) {
		bench_strided_case(b, &gather, BENCH_LIST_SIEVE, out);
		bench_strided_case(b, &pack, BENCH_LIST_SIEVE, out);
	}
}

static int setup(struct bench *b)
{
	struct bench_strided s = tiles(LARGEST, false, false);
	int e = bench_strided_setup(b, 2 * s.rows * s.stride, s.rows * s.size);

	for (size_t i = 0; i < ARRAY_LEN(elements); i++)
		for (int overlap = 0; overlap < 2; overlap++) {
			s = tiles(elements[i], overlap, false);
			if (!e && i == 0)
				e = bench_strided_verify(b, &s, true);
			add(b, &s);
		}
	add_moved(b);
	if (has_cold(b)) {
		s = tiles(elements[0], false, true);
		add(b, &s);
	}
	return e;
}

/* ---- judging ---- */

/* Of tiles of 3-byte elements that do not overlap: figure 8; cold: figure 9. */
static const char *paper_of(int way, int out, bool cold)
{
	static const char *const papers[BENCH_LIST_SIEVE][2] = {
		[BENCH_MULTIPLE] = { "8.8", "5.7" },
		[BENCH_CLIENT_SIEVE] = { "1.18", "5.7" },
		[BENCH_LIST] = { "1.45", "1.084" },
	};

	if (!cold)
		return papers[way][out];
	if (out)
		return "more than 1";
	return way == BENCH_CLIENT_SIEVE ? "less than 1" : NULL;
}

static const struct bench_row *ratio(struct bench *b, uint32_t element, bool overlap, bool cold,
				     int way, int out)
{
	struct bench_strided s = tiles(element, overlap, cold);
	const struct bench_row *r;
	char name[64];

	snprintf(name, sizeof(name), "tile_%s%s_%u%s_vs_%s", cold ? "cold_" : "", ways[out],
		 element, overlap ? "_overlap" : "", bench_ways[way].id);
	r = bench_ratio(b, name, bench_strided_find(b, &s, BENCH_LIST_SIEVE, out),
			bench_strided_find(b, &s, way, out));
	if (element == elements[0] && !overlap)
		bench_paper(b, r, paper_of(way, out, cold));
	return r;
}

/* The papers have the ratios of 3-byte elements. */
static void judge_ways(struct bench *b, int out)
{
	const struct bench_row *multiple[ARRAY_LEN(elements) * 2];
	int n = 0;

	for (int way = 0; way < BENCH_LIST_SIEVE; way++) {
		for (size_t i = 0; i < ARRAY_LEN(elements); i++)
			for (int overlap = 0; overlap < 2; overlap++) {
				const struct bench_row *r =
					ratio(b, elements[i], overlap, false, way, out);

				if (way == BENCH_MULTIPLE)
					multiple[n++] = r;
			}
		ratio(b, elements[0], false, true, way, out);
	}
	bench_bar(b, bench_worst_point(b, out ? "tile_write_3" : "tile_read_3", multiple, 2, false),
		  BENCH_AT_LEAST, out ? 5 : 8);
	bench_bar(b, bench_worst_point(b, out ? "tile_write" : "tile_read", multiple, n, false),
		  BENCH_AT_LEAST, out ? 5 : 8);
}

static void judge_moved(struct bench *b, int out)
{
	struct bench_strided gather = moved(SHEAF_MOVER_GATHER), pack = moved(SHEAF_MOVER_PACK);

	bench_paper(b,
		    bench_ratio(b, out ? "tile_write_32_gather" : "tile_read_32_gather",
				bench_strided_find(b, &gather, BENCH_LIST_SIEVE, out),
				bench_strided_find(b, &pack, BENCH_LIST_SIEVE, out)),
		    out ? "1.66" : "2.13");
}

static void plot(struct bench *b, const char *name, const char *title, int out)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	p->x_label = "size of an element; tiles that overlap, or not";
	for (int way = 0; way < BENCH_WAYS; way++)
		bench_plot_series(p, "%s", bench_ways[way].name);
	for (size_t i = 0; i < ARRAY_LEN(elements); i++)
		for (int overlap = 0; overlap < 2; overlap++) {
			struct bench_strided s = tiles(elements[i], overlap, false);
			int g = bench_plot_group(p, "%u B%s", elements[i],
						 overlap ? ", overlap" : "");

			for (int way = 0; way < BENCH_WAYS; way++)
				p->cell[g][way] = bench_strided_find(b, &s, way, out);
		}
}

static void judge(struct bench *b)
{
	for (int out = 0; out < 2; out++) {
		judge_ways(b, out);
		judge_moved(b, out);
	}
	plot(b, "tile-read", "4 clients read tiles of 1024 x 768 elements", 0);
	plot(b, "tile-write", "4 clients write tiles of 1024 x 768 elements", 1);
}

static const char about[] =
	"The image is one file that 4 clients share. A tile has 1024 x 768 elements (pixels) of 3,\n"
	"24 or 32 bytes: 768 pieces of 1024 elements in the file. Tiles that overlap share 270\n"
	"columns and 128 rows, as on a wall of displays. The memory of a client is contiguous. A\n"
	"case is named after its way, the number of pieces and their size. The ways:\n" BENCH_WAYS_ABOUT
	"Gathered, packed: list + sieving that always travels in this way. Cold: the pages of the\n"
	"file were dropped before, so that the servers read them from the disk.\n"
	"tile_read_BYTES_vs_WAY is the speed of list + sieving / that of WAY; tile_read_32_gather\n"
	"is gathered / packed. PAPER is the same ratio, where the paper gives one: for 3 bytes in\n"
	"\"Supporting Efficient Noncontiguous Access in PVFS over InfiniBand\" (figure 8; cold:\n"
	"figure 9), for 32 bytes in the paper on Quadrics scatter/gather for PVFS2 (figure 6).\n";

const struct bench_kind bench_tile = {
	.name = "tile",
	.summary =
		"each of 4 clients accesses one of the 2 x 2 tiles of an image that is stored by rows",
	.about = about,
	.clients = { BENCH_SHARERS },
	.setup = setup,
	.judge = judge,
	.cleanup = bench_strided_cleanup,
};
