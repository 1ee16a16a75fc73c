/* Writes an N x N matrix of doubles by rows, then reads one column with one request.
 *
 *     matrix [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include <sheaf.h>

#define N 512
#define COLUMN 7

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

int main(int argc, char **argv)
{
	static double row[N], column[N];
	static struct sheaf_extent place[N];
	struct iovec mem = { column, sizeof(column) };
	struct sheaf *fs;
	struct sheaf_file *f;

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &fs) < 0) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	must("open", sheaf_open(fs, "/matrix", O_RDWR | O_CREAT | O_TRUNC, 0644, NULL, &f));
	for (int i = 0; i < N; i++) {
		for (int j = 0; j < N; j++)
			row[j] = i * 1000.0 + j;
		must("write", sheaf_pwrite(f, row, sizeof(row), (off_t)(i * sizeof(row))));
		place[i].offset = i * sizeof(row) + COLUMN * sizeof(double);
		place[i].length = sizeof(double);
	}
	/* 512 places in the file, one piece of memory, one call */
	must("read", sheaf_read_list(f, &mem, 1, place, N));
	for (int i = 0; i < N; i++) {
		if (column[i] != i * 1000.0 + COLUMN) {
			fprintf(stderr, "row %d: %g is wrong\n", i, column[i]);
			return 1;
		}
	}
	must("close", sheaf_close(f));
	sheaf_disconnect(fs);
	printf("column %d of a %d x %d matrix: %g ... %g, as written\n", COLUMN, N, N, column[0],
	       column[N - 1]);
	return 0;
}
