/* A volume that is written and read in slabs across its rows, four of them under way while the
 * program computes.
 *
 *     overlap [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include <sheaf.h>

enum { ROWS = 64 * 64, WIDTH = 256, SLAB = 16, SLABS = WIDTH / SLAB, AHEAD = 4 };

static float slab[AHEAD][ROWS][SLAB];
static struct sheaf_op *op[AHEAD];

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

static double sum(float (*v)[SLAB])
{
	double s = 0;

	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < SLAB; j++)
			s += v[i][j];
	return s;
}

static void fill(float (*v)[SLAB], int n)
{
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < SLAB; j++)
			v[i][j] = (float)(i + n * SLAB + j);
}

/* The memory of a slab is free again when the write that was started from it has ended. */
static void write_all(struct sheaf_file *f, const struct sheaf_type *across,
		      const struct sheaf_type *dense)
{
	for (int n = 0; n < SLABS + AHEAD; n++) {
		int i = n % AHEAD;

		if (n >= AHEAD)
			must("write", sheaf_wait(op[i]));
		if (n >= SLABS)
			continue;
		fill(slab[i], n);
		must("start", sheaf_write_typed_start(f, slab[i], dense, 1,
						      n * SLAB * sizeof(float), across, &op[i]));
	}
}

/* The next slabs travel while this one is summed up. */
static double read_all(struct sheaf_file *f, const struct sheaf_type *across,
		       const struct sheaf_type *dense)
{
	double total = 0;

	for (int n = 0; n < SLABS + AHEAD; n++) {
		int i = n % AHEAD;

		if (n >= AHEAD) {
			must("read", sheaf_wait(op[i]));
			total += sum(slab[i]);
		}
		if (n < SLABS)
			must("start",
			     sheaf_read_typed_start(f, slab[i], dense, 1, n * SLAB * sizeof(float),
						    across, &op[i]));
	}
	return total;
}

int main(int argc, char **argv)
{
	struct sheaf_type *cell, *across, *dense;
	struct sheaf *fs;
	struct sheaf_file *f;
	double want = 0, total;

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &fs) < 0) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	must("open", sheaf_open(fs, "/volume", O_RDWR | O_CREAT | O_TRUNC, 0644, NULL, &f));
	/* SLAB cells of every row: one type for all slabs, which begin at different offsets */
	must("type", sheaf_type_bytes(sizeof(float), &cell));
	must("type", sheaf_type_vector(ROWS, SLAB, WIDTH * sizeof(float), cell, &across));
	must("type", sheaf_type_bytes(sizeof(slab[0]), &dense));
	write_all(f, across, dense);
	total = read_all(f, across, dense);
	for (int n = 0; n < SLABS; n++) {
		fill(slab[0], n);
		want += sum(slab[0]);
	}
	sheaf_type_free(cell);
	sheaf_type_free(across);
	sheaf_type_free(dense);
	must("close", sheaf_close(f));
	sheaf_disconnect(fs);
	if (total != want) {
		fprintf(stderr, "the sum is %.0f instead of %.0f\n", total, want);
		return 1;
	}
	printf("%d slabs written and read, %d at a time: their sum is %.0f, as it must be\n", SLABS,
	       AHEAD, total);
	return 0;
}
