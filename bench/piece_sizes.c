/* The cost of accessing data in pieces: every eighth part of a file of 64 MiB, in pieces of 8 bytes
 * to 32 KiB at equal distances, read by a type and by a list, and written by a type. Each result is
 * the best of some rounds; the cases take turns.
 *
 *     piece_sizes [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "sheaf.h"

#define FILE_BYTES (64 * MIB)
#define APART 8 /* one piece in eight is accessed */
#define MOVED (FILE_BYTES / APART)
#define ROUNDS 5

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "piece_sizes: %s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

static void note(double *best, uint64_t *since)
{
	uint64_t now = time_now();

	*best = MIN(*best, (double)(now - *since) / 1e6);
	*since = now;
}

static void measure(struct sheaf_file *f, char *mem, struct sheaf_extent *ext, uint64_t piece)
{
	struct iovec flat = { mem, MOVED };
	uint64_t n = MOVED / piece, t;
	struct sheaf_type *cell, *every;
	double read = 1e9, list = 1e9, write = 1e9;

	for (uint64_t i = 0; i < n; i++)
		ext[i] = (struct sheaf_extent){ i * piece * APART, piece };
	must("type", sheaf_type_bytes(piece, &cell));
	must("type", sheaf_type_vector(n, 1, (int64_t)piece * APART, cell, &every));
	for (int i = 0; i < ROUNDS; i++) {
		t = time_now();
		must("read", sheaf_read_typed(f, mem, cell, n, 0, every));
		note(&read, &t);
		must("read", sheaf_read_list(f, &flat, 1, ext, n));
		note(&list, &t);
		must("write", sheaf_write_typed(f, mem, cell, n, 0, every));
		note(&write, &t);
	}
	printf("%8llu pieces of %6llu bytes: typed read %7.1f ms, list read %7.1f ms, typed write %7.1f ms\n",
	       (unsigned long long)n, (unsigned long long)piece, read, list, write);
	sheaf_type_free(cell);
	sheaf_type_free(every);
}

int main(int argc, char **argv)
{
	char *mem = calloc(1, FILE_BYTES);
	struct sheaf_extent *ext = calloc(MOVED / 8, sizeof(*ext));
	struct sheaf *fs;
	struct sheaf_file *f;

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &fs) < 0) {
		fprintf(stderr, "piece_sizes: %s\n", sheaf_why());
		return 1;
	}
	must("memory", mem && ext ? 0 : -ENOMEM);
	must("open", sheaf_open(fs, "/piece_sizes", O_RDWR | O_CREAT | O_TRUNC, 0600, NULL, &f));
	must("write", sheaf_pwrite(f, mem, FILE_BYTES, 0));
	for (uint64_t piece = 8; piece <= 32 * KIB; piece *= 8)
		measure(f, mem, ext, piece);
	must("close", sheaf_close(f));
	must("remove", sheaf_unlink(fs, "/piece_sizes"));
	sheaf_disconnect(fs);
	free(mem);
	free(ext);
	return 0;
}
