/* What a column of a matrix costs, taken in a loop, by a list and by a type: requests and time.
 *
 *     cost [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sheaf.h>
#include <sheaf_admin.h>

#define N 2048
#define COLUMN 7

static double row[N], column[N];
static struct sheaf *fs;

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

static void by_loop(struct sheaf_file *f)
{
	for (int i = 0; i < N; i++)
		must("read", sheaf_pread(f, &column[i], sizeof(double),
					 (off_t)(i * sizeof(row) + COLUMN * sizeof(double))));
}

static void by_list(struct sheaf_file *f)
{
	static struct sheaf_extent place[N];
	struct iovec mem = { column, sizeof(column) };

	for (int i = 0; i < N; i++)
		place[i] = (struct sheaf_extent){ i * sizeof(row) + COLUMN * sizeof(double),
						  sizeof(double) };
	must("read", sheaf_read_list(f, &mem, 1, place, N));
}

static void by_type(struct sheaf_file *f)
{
	struct sheaf_type *cell, *down;

	must("type", sheaf_type_bytes(sizeof(double), &cell));
	must("type", sheaf_type_vector(N, 1, sizeof(row), cell, &down));
	must("read", sheaf_read_typed(f, column, cell, N, COLUMN * sizeof(double), down));
	sheaf_type_free(cell);
	sheaf_type_free(down);
}

/* That this connection has sent so far, to all servers. */
static unsigned long requests(void)
{
	struct sheaf_account a;
	unsigned long sum = 0;

	for (int i = 0; i < sheaf_server_count(fs); i++) {
		must("account", sheaf_account(fs, i, &a));
		sum += a.requests;
	}
	return sum;
}

static void measure(const char *how, void (*get)(struct sheaf_file *), struct sheaf_file *f)
{
	struct timespec begin, end;
	unsigned long before;
	double ms;

	memset(column, 0, sizeof(column));
	before = requests();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	get(f);
	clock_gettime(CLOCK_MONOTONIC, &end);
	ms = (end.tv_sec - begin.tv_sec) * 1e3 + (end.tv_nsec - begin.tv_nsec) / 1e6;
	printf("%-22s %5lu requests %8.2f ms\n", how, requests() - before, ms);
	for (int i = 0; i < N; i++)
		if (column[i] != i * 1000.0 + COLUMN) {
			fprintf(stderr, "row %d: %g is wrong\n", i, column[i]);
			exit(1);
		}
}

int main(int argc, char **argv)
{
	struct sheaf_file *f;

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &fs) < 0) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	must("open", sheaf_open(fs, "/cost", O_RDWR | O_CREAT | O_TRUNC, 0644, NULL, &f));
	for (int i = 0; i < N; i++) {
		for (int j = 0; j < N; j++)
			row[j] = i * 1000.0 + j;
		must("write", sheaf_pwrite(f, row, sizeof(row), (off_t)(i * sizeof(row))));
	}
	printf("a column of %d x %d doubles, %d servers\n", N, N, sheaf_server_count(fs));
	measure("a loop of sheaf_pread", by_loop, f);
	measure("sheaf_read_list", by_list, f);
	measure("sheaf_read_typed", by_type, f);
	must("close", sheaf_close(f));
	must("remove", sheaf_unlink(fs, "/cost"));
	sheaf_disconnect(fs);
	return 0;
}
