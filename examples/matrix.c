/* A matrix of doubles, stored by rows, read by columns: one call for a column, one for all of them
 * in turn.
 *
 *     matrix [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include <sheaf.h>

#define N 512
#define COLUMN 7

static double matrix[N][N], turned[N][N], column[N];

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

static void wrong(int i, int j, double found)
{
	fprintf(stderr, "row %d, column %d: %g is wrong\n", i, j, found);
	exit(1);
}

static void read_column(struct sheaf_file *f)
{
	struct sheaf_type *cell, *down;

	/* N blocks of one cell each, a row of the matrix apart */
	must("type", sheaf_type_bytes(sizeof(double), &cell));
	must("type", sheaf_type_vector(N, 1, N * sizeof(double), cell, &down));
	must("read", sheaf_read_typed(f, column, cell, N, COLUMN * sizeof(double), down));
	sheaf_type_free(cell);
	sheaf_type_free(down);
}

static void read_turned(struct sheaf_file *f)
{
	struct sheaf_type *cell, *down, *all;

	/* N columns, each beginning a cell behind the one before */
	must("type", sheaf_type_bytes(sizeof(double), &cell));
	must("type", sheaf_type_vector(N, 1, N * sizeof(double), cell, &down));
	must("type", sheaf_type_vector(N, 1, sizeof(double), down, &all));
	must("read", sheaf_read_typed(f, turned, cell, N * N, 0, all));
	sheaf_type_free(cell);
	sheaf_type_free(down);
	sheaf_type_free(all);
}

int main(int argc, char **argv)
{
	struct sheaf *fs;
	struct sheaf_file *f;

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &fs) < 0) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++)
			matrix[i][j] = i * 1000.0 + j;
	must("open", sheaf_open(fs, "/matrix", O_RDWR | O_CREAT | O_TRUNC, 0644, NULL, &f));
	must("write", sheaf_pwrite(f, matrix, sizeof(matrix), 0));
	read_column(f);
	read_turned(f);
	for (int i = 0; i < N; i++) {
		if (column[i] != matrix[i][COLUMN])
			wrong(i, COLUMN, column[i]);
		for (int j = 0; j < N; j++)
			if (turned[j][i] != matrix[i][j])
				wrong(i, j, turned[j][i]);
	}
	must("close", sheaf_close(f));
	sheaf_disconnect(fs);
	printf("column %d of a %d x %d matrix: %g ... %g, as written\n", COLUMN, N, N, column[0],
	       column[N - 1]);
	printf("all columns in turn: the matrix turned around its diagonal, as it must be\n");
	return 0;
}
