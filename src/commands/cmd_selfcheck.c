/* sheaf selfcheck: writes a matrix by rows, reads it back as a whole and by columns, compares every
 * byte, and reports the speed.
 *
 * Rounds of growing size until the time is used up. The content depends on a seed of the run, so
 * that an old file cannot pass. Memory: two matrices, at most 256 MiB. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "commands/commands.h"

#define N_FIRST 1024
#define N_LAST 4096
#define COLUMNS 16 /* columns read at once: pieces of 128 bytes */
#define DEFAULT_SECONDS 5

enum { OPT_SECONDS };

struct check {
	struct cli *c;
	struct sheaf_file *f;
	uint64_t n, seed; /* n x n doubles */
	uint64_t *want, *got; /* as bit patterns */
	uint64_t write_ns, read_ns, column_ns, column_bytes;
	uint64_t column_budget_ns;
};

static uint64_t matrix_bytes(const struct check *k)
{
	return k->n * k->n * sizeof(double);
}

static int failed(struct check *k, const char *what, ssize_t r)
{
	return cli_fail(k->c, what, r < 0 ? (int)r : -EIO);
}

static int compare(struct check *k, const char *what, const uint64_t *a, const uint64_t *b,
		   uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return cli_error(
				k->c, "MISMATCH: %s: element %llu is %016llx, written was %016llx",
				what, (unsigned long long)i, (unsigned long long)a[i],
				(unsigned long long)b[i]);
	return CLI_OK;
}

/* Each write is a number of whole rows, about 1 MiB; several are in flight. */
static int write_rows(struct check *k)
{
	enum { DEPTH = 4 };
	struct sheaf_op *op[DEPTH] = { NULL };
	uint64_t rows = MAX(MIB / (k->n * sizeof(double)), 1), step = rows * k->n * sizeof(double),
		 start;
	uint64_t n_ops = (matrix_bytes(k) + step - 1) / step;
	ssize_t r = 0;

	start = time_now();
	for (uint64_t i = 0; i < n_ops + DEPTH; i++) {
		struct sheaf_op **o = &op[i % DEPTH];
		ssize_t done = *o ? sheaf_wait(*o) : 0;

		*o = NULL;
		if (r >= 0 && done < 0)
			r = done;
		if (i < n_ops && r >= 0)
			r = sheaf_pwrite_start(k->f, (char *)k->want + i * step,
					       MIN(step, matrix_bytes(k) - i * step),
					       (off_t)(i * step), o);
	}
	if (r >= 0)
		r = sheaf_fsync(k->f);
	k->write_ns = time_now() - start;
	return r < 0 ? failed(k, "write", r) : CLI_OK;
}

static int read_whole(struct check *k)
{
	uint64_t start = time_now(), at = 0;
	ssize_t r;

	while (at < matrix_bytes(k)) {
		r = sheaf_pread(k->f, (char *)k->got + at, MIN(CLI_BLOCK, matrix_bytes(k) - at),
				(off_t)at);
		if (r <= 0)
			return failed(k, "read", r);
		at += (uint64_t)r;
	}
	k->read_ns = time_now() - start;
	return compare(k, "contiguous read", k->got, k->want, k->n * k->n);
}

/* Reads COLUMNS columns from `col` in one request of n pieces; k->got becomes n x COLUMNS. */
static int read_block_column(struct check *k, struct sheaf_extent *ext, uint64_t col)
{
	const size_t piece = COLUMNS * sizeof(double);
	struct iovec mem = { k->got, k->n * piece };
	uint64_t start;
	ssize_t r;
	int status = CLI_OK;

	for (uint64_t i = 0; i < k->n; i++)
		ext[i] = (struct sheaf_extent){ (i * k->n + col) * sizeof(double), piece };
	start = time_now();
	r = sheaf_read_list(k->f, &mem, 1, ext, k->n);
	k->column_ns += time_now() - start;
	if (r != (ssize_t)mem.iov_len)
		return failed(k, "column read", r);
	k->column_bytes += mem.iov_len;
	for (uint64_t i = 0; i < k->n && !status; i++)
		status = compare(k, "column read", k->got + i * COLUMNS, k->want + i * k->n + col,
				 COLUMNS);
	return status;
}

/* Reads all block columns, or as many as the time allows, spread over the matrix. */
static int read_columns(struct check *k)
{
	struct sheaf_extent *ext = calloc(k->n, sizeof(*ext));
	uint64_t blocks = k->n / COLUMNS;
	int status = ext ? CLI_OK : cli_error(k->c, "out of memory");

	k->column_ns = k->column_bytes = 0;
	for (uint64_t i = 0; i < blocks && !status && !cli_signal; i++) {
		if (i && k->column_ns > k->column_budget_ns)
			break;
		status = read_block_column(k, ext, i * 37 % blocks * COLUMNS);
	}
	free(ext);
	return status;
}

static int round_of(struct check *k)
{
	int status;

	k->want = malloc(matrix_bytes(k));
	k->got = malloc(matrix_bytes(k));
	if (!k->want || !k->got) {
		status = cli_error(k->c, "out of memory");
	} else {
		for (uint64_t i = 0; i < k->n * k->n; i++)
			k->want[i] = hash_u64(k->seed + i);
		status = write_rows(k);
		if (!status && !cli_signal)
			status = read_whole(k);
		if (!status && !cli_signal)
			status = read_columns(k);
	}
	free(k->want);
	free(k->got);
	return status;
}

/* ---- the command ---- */

static void print_results(const struct check *k)
{
	char size[32], w[40], r[40], col[40];

	format_size(size, sizeof(size), matrix_bytes(k));
	cli_speed(w, sizeof(w), matrix_bytes(k), k->write_ns);
	cli_speed(r, sizeof(r), matrix_bytes(k), k->read_ns);
	cli_speed(col, sizeof(col), k->column_bytes, k->column_ns);
	printf("%llu x %llu doubles (%s) over %d servers: every byte as it was written\n",
	       (unsigned long long)k->n, (unsigned long long)k->n, size,
	       sheaf_server_count(k->c->fs));
	printf("  write by rows, with fsync        %s\n", w);
	printf("  read, contiguous                 %s\n", r);
	printf("  read by columns (128-byte lists) %s\n", col);
}

static void print_next(struct cli *c)
{
	const char *conf = c->conf ? c->conf : "", *option = c->conf ? "--conf " : "";
	const char *space = c->conf ? " " : "";

	printf("what to try next:\n");
	printf("  sheaf %s%s%sstatus\n", option, conf, space);
	printf("  sheaf %s%s%scp -r DIR sheaf:/DIR\n", option, conf, space);
	printf("  sheaf %s%s%sls -lR\n", option, conf, space);
}

/* Each round has four times the bytes of the last; the next runs while it seems to fit. */
static int run_rounds(struct check *k, uint64_t budget_ns)
{
	uint64_t start = time_now(), last, took;
	int status = CLI_OK;

	for (k->n = N_FIRST;; k->n *= 2) {
		last = time_now();
		k->column_budget_ns = budget_ns / 4;
		status = round_of(k);
		took = time_now() - last;
		if (status || cli_signal || k->n == N_LAST ||
		    time_now() - start + 4 * took > budget_ns)
			return status;
	}
}

static int run_selfcheck(struct cli *c)
{
	struct check k = { .c = c, .seed = hash_u64(time_now() ^ (uint64_t)getpid() << 40) };
	uint64_t seconds = DEFAULT_SECONDS;
	char path[64];
	int status, r;

	if (c->opt[OPT_SECONDS] && cli_number(c->opt[OPT_SECONDS], 1, 3600, &seconds))
		return cli_usage(c, "--seconds %s: not a number from 1 to 3600",
				 c->opt[OPT_SECONDS]);
	status = cli_connect(c);
	if (status)
		return status;
	snprintf(path, sizeof(path), "/.sheaf-selfcheck-%d", getpid());
	cli_catch_signals();
	r = sheaf_open(c->fs, path, O_RDWR | O_CREAT | O_TRUNC, 0600, NULL, &k.f);
	if (r)
		return cli_fail(c, path, r);
	status = run_rounds(&k, seconds * NSEC_PER_SEC);
	r = sheaf_close(k.f);
	if (r && !status)
		status = cli_fail(c, path, r);
	r = sheaf_unlink(c->fs, path);
	if (r && !status)
		status = cli_fail(c, path, r);
	if (cli_signal)
		return CLI_FAILED;
	if (!status) {
		print_results(&k);
		print_next(c);
	}
	return status;
}

const struct cli_command cmd_selfcheck = {
	.name = "selfcheck",
	.usage = "[--seconds N]",
	.summary = "write a matrix by rows, read it back by columns, compare, measure",
	.run = run_selfcheck,
	.options = { { 0, "seconds", "N", "approximate duration (5)" } },
	.more = "Uses a file of its own in the root directory and removes it.\n",
	.examples = "  sheaf selfcheck --seconds 10\n",
};
