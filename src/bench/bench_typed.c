/* Typed access in sheaf bench transfer: 8 bytes of every 16 of a file, ten million times, to and
 * from contiguous memory. Measures the time until the first byte moves, the size of the request,
 * the total time, and the memory that the client and the servers need.
 *
 * One job per round and direction measures everything; each row takes its figure. The client reads
 * its counters between steps of the operation: "the first byte" is seen late, never early. */
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/bench_impl.h"

enum { FIRST, REQUEST, CLIENT_BEFORE, CLIENT_AFTER, WHOLE, SERVER_BEFORE, SERVER_AFTER, FIGURES };
_Static_assert(CLIENT_AFTER < BENCH_MORE, "what a client tells");

static const struct {
	const char *name, *unit;
} figures[FIGURES] = {
	[FIRST] = { "first byte", "ms" },
	[REQUEST] = { "request", "bytes per server" },
	[CLIENT_BEFORE] = { "client's memory before", "MiB" },
	[CLIENT_AFTER] = { "client's memory, peak", "MiB" },
	[WHOLE] = { "all", "ms" },
	[SERVER_BEFORE] = { "a server's memory before", "MiB" },
	[SERVER_AFTER] = { "a server's memory after", "MiB" },
};
static const char *const ways[] = { "typed read", "typed write" };
static double last[2][FIGURES]; /* of the current round */

/* ---- what the client does ---- */

static void forget_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return; /* the peak of the whole process life is used */
	if (write(fd, "5", 1) < 0)
		errno = 0;
	close(fd);
}

/* Peak memory of this process, without the buffer that is read into. */
static double peak_mib(const struct bench_worker *w)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_maxrss / 1024 - (double)w->room / (double)MIB;
}

/* Bytes of data moved so far; sent: bytes of messages to each server. */
static uint64_t moved(struct bench_worker *w, uint64_t sent[SHEAF_MAX_SERVERS])
{
	struct sheaf_account a;
	uint64_t sum = 0;

	for (int i = 0; i < sheaf_server_count(w->fs) && i < SHEAF_MAX_SERVERS; i++) {
		if (sheaf_account(w->fs, i, &a))
			continue;
		sent[i] = a.sent;
		for (int k = 0; k < SHEAF_MOVERS; k++)
			sum += a.bytes[k];
	}
	return sum;
}

static ssize_t access_all(struct bench_worker *w, const struct sheaf_type *all,
			  const struct sheaf_type *every)
{
	uint64_t before[SHEAF_MAX_SERVERS], after[SHEAF_MAX_SERVERS], start, bytes;
	struct sheaf_op *op;
	ssize_t n = 0;
	int r;

	bytes = moved(w, before);
	start = time_now();
	r = w->job->out ? sheaf_write_typed_start(w->f, w->buf, all, 1, 0, every, &op) :
			  sheaf_read_typed_start(w->f, w->buf, all, 1, 0, every, &op);
	if (r)
		return r;
	do
		r = sheaf_test(op, &n);
	while (!r && moved(w, after) == bytes);
	w->more[FIRST] = (double)(time_now() - start) / 1e6;
	if (!r)
		n = sheaf_wait(op);
	moved(w, after);
	w->more[REQUEST] = 0;
	for (int i = 0; i < sheaf_server_count(w->fs) && i < SHEAF_MAX_SERVERS; i++)
		w->more[REQUEST] = MAX(w->more[REQUEST], (double)(after[i] - before[i]));
	return n;
}

static int typed_once(struct bench_worker *w)
{
	const uint64_t bytes = (uint64_t)BENCH_TYPED_PIECES * BENCH_TYPED_PIECE;
	struct sheaf_type *piece = NULL, *every = NULL, *all = NULL;
	ssize_t r = sheaf_type_bytes(BENCH_TYPED_PIECE, &piece);

	if (!r)
		r = sheaf_type_vector(BENCH_TYPED_PIECES, 1, 2 * BENCH_TYPED_PIECE, piece, &every);
	if (!r)
		r = sheaf_type_bytes(bytes, &all);
	forget_peak();
	w->more[CLIENT_BEFORE] = peak_mib(w);
	if (!r)
		r = access_all(w, all, every);
	w->more[CLIENT_AFTER] = peak_mib(w);
	sheaf_type_free(piece);
	sheaf_type_free(every);
	sheaf_type_free(all);
	return bench_moved(w, ways[w->job->out], r, bytes);
}

/* ---- the command ---- */

/* Memory of the server that uses most. */
static double server_mib(struct bench *b)
{
	struct sheaf_server s;
	double most = 0;

	for (int i = 0; i < b->servers; i++)
		if (sheaf_server_status(b->c->fs, i, 5 * CLI_STATUS_MS, &s) == 0 && s.up)
			most = MAX(most, (double)s.anon_bytes / (double)MIB);
	return most;
}

/* The first figure runs the job; the others use its results. */
static int figure(struct bench *b, struct bench_case *c, double *value)
{
	double *of = last[c->job.out];
	struct bench_result r;
	int e;

	if (c->job.count == FIRST) {
		of[SERVER_BEFORE] = server_mib(b);
		e = bench_clients_run(b, &c->job, 1, &r);
		if (e)
			return e;
		memcpy(of, r.more, sizeof(r.more));
		of[WHOLE] = (double)r.ns / 1e6;
		of[SERVER_AFTER] = server_mib(b);
	}
	*value = of[c->job.count];
	return 0;
}

#define ROW_NAME "%s: %s" /* way, figure */

void bench_typed_add(struct bench *b)
{
	for (int way = 0; way < 2; way++)
		for (int f = 0; f < FIGURES; f++) {
			struct bench_case c = { .job = { .once = typed_once,
							 .max_ops = 1,
							 .out = way == 1,
							 .count = (uint32_t)f },
						.unit = figures[f].unit,
						.pieces = BENCH_TYPED_PIECES,
						.bytes = BENCH_TYPED_PIECE,
						.custom = figure };

			bench_case_add(b, c, ROW_NAME, ways[way], figures[f].name);
		}
}

/* The worse of reading and writing. */
static const struct bench_row *worse(struct bench *b, const char *name, int f)
{
	const struct bench_row *rows[2];
	char what[sizeof(rows[0]->what)];

	for (int way = 0; way < 2; way++) {
		snprintf(what, sizeof(what), ROW_NAME, ways[way], figures[f].name);
		rows[way] = bench_find(b, what, 1, BENCH_TYPED_PIECE, BENCH_TYPED_PIECES);
	}
	return bench_worst(b, name, rows, 2, true);
}

void bench_typed_judge(struct bench *b)
{
	bench_bar(b, worse(b, "typed_first", FIRST), BENCH_AT_MOST, 1);
	bench_bar(b, worse(b, "typed_request", REQUEST), BENCH_AT_MOST, 1023);
}
