/* The papers' ways to access rows of equal size at equal distances in one file that several clients
 * share: multiple calls, sieving by the client, lists, lists with sieving by the servers, typed
 * access with sieving. The memory of a client is contiguous.
 *
 * Client-side sieving is that of ROMIO: a read covers rows by blocks of 4 MiB and copies them out;
 * a write locks, reads, modifies, writes and unlocks blocks of 512 KiB.
 *
 * Processes: a client keeps its lists and types in `mine`, which exists once in each client.
 * Cold: the file is made anew before each measurement, and the servers' host drops its pages. Only
 * temporary servers are measured cold, and without sieving. */
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define COVER_READ (4 * MIB) /* ROMIO's ind_rd_buffer_size */
#define COVER_WRITE (512 * KIB) /* ROMIO's ind_wr_buffer_size */
#define COLD_BYTES (16 * MIB) /* part of the file that is accessed cold, and verified */
#define SINGLE_CALLS 512 /* of one operation; more are not measured */
#define COVERED_BYTES (16 * MIB) /* part of the file that one client covers in one operation */
#define LIST_ROWS 64 /* of BENCH_LISTS */

static struct {
	struct sheaf_extent *ext;
	struct sheaf_type *whole, *every;
	char *cover; /* COVER_READ bytes */
} mine;

/* ---- what a client does ---- */

static uint64_t row_at(const struct bench_worker *w, uint64_t row)
{
	const struct bench_job *j = w->job;
	uint64_t i = (uint64_t)w->index;

	return i % j->columns * j->step[0] + i / j->columns * j->step[1] + row * j->stride;
}

static int multiple(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	char *at = w->buf;
	ssize_t r;
	int e = 0;

	for (uint64_t k = 0; !e && k < j->count; k++, at += j->size) {
		off_t off = (off_t)row_at(w, k);

		r = j->out ? sheaf_pwrite(w->f, at, j->size, off) :
			     sheaf_pread(w->f, at, j->size, off);
		e = bench_moved(w, "multiple calls", r, j->size);
	}
	return e;
}

/* Copies n rows between the covering buffer and the client's memory. */
static void copy_rows(struct bench_worker *w, uint64_t first, uint64_t n)
{
	const struct bench_job *j = w->job;
	char *mem = w->buf + first * j->size, *cover = mine.cover;

	for (uint64_t k = 0; k < n; k++, mem += j->size, cover += j->stride)
		memcpy(j->out ? cover : mem, j->out ? mem : cover, j->size);
}

static int write_cover(struct bench_worker *w, uint64_t first, uint64_t n, uint64_t len)
{
	struct sheaf_lock l = { .size = sizeof(l),
				.type = F_WRLCK,
				.start = row_at(w, first),
				.length = len,
				.owner = (uint64_t)w->index + 1 };
	int e = bench_why(w, "lock", sheaf_lock(w->f, &l, 1)), e2;
	off_t off = (off_t)l.start;

	if (e)
		return e;
	e = bench_moved(w, "covering read", sheaf_pread(w->f, mine.cover, len, off), len);
	if (!e) {
		copy_rows(w, first, n);
		e = bench_moved(w, "write back", sheaf_pwrite(w->f, mine.cover, len, off), len);
	}
	l.type = F_UNLCK;
	e2 = bench_why(w, "unlock", sheaf_lock(w->f, &l, 1));
	return e ? e : e2;
}

static int read_cover(struct bench_worker *w, uint64_t first, uint64_t n, uint64_t len)
{
	ssize_t r = sheaf_pread(w->f, mine.cover, len, (off_t)row_at(w, first));
	int e = bench_moved(w, "covering read", r, len);

	if (!e)
		copy_rows(w, first, n);
	return e;
}

static int client_sieve(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	uint64_t most = MAX((j->out ? COVER_WRITE : COVER_READ) / j->stride, 1), n;
	int e = 0;

	for (uint64_t first = 0; !e && first < j->count; first += n) {
		n = MIN(most, j->count - first);
		e = (j->out ? write_cover : read_cover)(w, first, n, (n - 1) * j->stride + j->size);
	}
	return e;
}

static int list_of(struct bench_worker *w, uint64_t first, uint64_t n)
{
	const struct bench_job *j = w->job;
	struct iovec mem = { w->buf + first * j->size, n * j->size };
	ssize_t r = j->out ? sheaf_write_list(w->f, &mem, 1, mine.ext + first, n) :
			     sheaf_read_list(w->f, &mem, 1, mine.ext + first, n);

	return bench_moved(w, "list", r, mem.iov_len);
}

static int one_list(struct bench_worker *w)
{
	return list_of(w, 0, w->job->count);
}

static int small_lists(struct bench_worker *w)
{
	int e = 0;

	for (uint64_t k = 0; !e && k < w->job->count; k += LIST_ROWS)
		e = list_of(w, k, MIN(w->job->count - k, LIST_ROWS));
	return e;
}

static int typed(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	uint64_t at = row_at(w, 0);
	ssize_t r = j->out ? sheaf_write_typed(w->f, w->buf, mine.whole, 1, at, mine.every) :
			     sheaf_read_typed(w->f, w->buf, mine.whole, 1, at, mine.every);

	return bench_moved(w, "typed access", r, j->count * j->size);
}

const struct bench_way bench_ways[] = {
	[BENCH_MULTIPLE] = { "multiple calls", "multiple", multiple },
	[BENCH_CLIENT_SIEVE] = { "client-side sieving", "client", client_sieve },
	[BENCH_LIST] = { "list", "list", one_list },
	[BENCH_LIST_SIEVE] = { "list + sieving", "sieve", one_list },
	[BENCH_TYPED_SIEVE] = { "typed + sieving", "typed", typed },
	[BENCH_LISTS] = { "lists of 64", "lists", small_lists },
};

/* ---- preparation ---- */

static const char *file_name(const struct bench_job *j)
{
	return j->cold ? "cold" : "file.0";
}

static int open_shared(struct bench_worker *w)
{
	int r = 0;

	if (!w->f)
		r = sheaf_open(w->fs, bench_path(w, "%s", file_name(w->job)), O_RDWR, 0, NULL,
			       &w->f);
	return bench_why(w, "open", r);
}

static int close_shared(struct bench_worker *w)
{
	int r = w->f ? sheaf_close(w->f) : 0;

	w->f = NULL;
	return bench_why(w, "close", r);
}

static int finish(struct bench_worker *w)
{
	free(mine.ext);
	mine.ext = NULL;
	sheaf_type_free(mine.whole);
	sheaf_type_free(mine.every);
	mine.whole = mine.every = NULL;
	return w->job->cold ? close_shared(w) : 0;
}

static int prepare(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	struct sheaf_type *row = NULL;
	int r;

	if (j->cold)
		close_shared(w);
	r = open_shared(w);
	if (r)
		return r;
	if (!mine.cover)
		mine.cover = malloc(COVER_READ);
	mine.ext = malloc(j->count * sizeof(*mine.ext));
	if (!mine.ext || !mine.cover || j->count * j->size > w->room)
		return bench_why(w, "memory", -ENOMEM);
	for (uint64_t i = 0; i < j->count; i++)
		mine.ext[i] = (struct sheaf_extent){ row_at(w, i), j->size };
	r = sheaf_type_bytes(j->size, &row);
	if (!r)
		r = sheaf_type_vector(j->count, 1, (int64_t)j->stride, row, &mine.every);
	if (!r)
		r = sheaf_type_bytes(j->count * j->size, &mine.whole);
	sheaf_type_free(row);
	if (!r)
		r = sheaf_set_mover(w->fs, j->mover);
	return bench_why(w, "types", r);
}

/* ---- verification, and the cold file ---- */

/* The byte at an offset, in the file's version `seed`. */
static char byte_at(uint64_t off, uint32_t seed)
{
	return (char)((off * 0x9e3779b97f4a7c15u >> 56) ^ seed);
}

/* Fills n bytes with those of the file from off on, or compares them. */
static int use_bytes(struct bench_worker *w, char *p, uint64_t off, uint64_t n, bool fill)
{
	uint32_t seed = w->job->seed;

	for (uint64_t i = 0; i < n; i++)
		if (fill)
			p[i] = byte_at(off + i, seed);
		else if (p[i] != byte_at(off + i, seed))
			return bench_why(w, "wrong data", -EIO);
	return 0;
}

/* The same for the client's rows. */
static int use_rows(struct bench_worker *w, bool fill)
{
	const struct bench_job *j = w->job;
	int e = 0;

	for (uint64_t k = 0; !e && k < j->count; k++)
		e = use_bytes(w, w->buf + k * j->size, row_at(w, k), j->size, fill);
	return e;
}

static int check_read(struct bench_worker *w)
{
	int e;

	memset(w->buf, 0, w->job->count * w->job->size);
	e = bench_ways[w->job->way].once(w);
	return e ? e : use_rows(w, false);
}

static int check_write(struct bench_worker *w)
{
	use_rows(w, true);
	return bench_ways[w->job->way].once(w);
}

/* Writes the first bytes of the file by plain calls, or reads and compares them. */
static int plain(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	uint64_t n;
	ssize_t r;
	int e = open_shared(w);

	for (uint64_t at = 0; !e && at < j->bytes; at += n) {
		n = MIN(j->bytes - at, BENCH_BLOCK);
		if (j->out)
			use_bytes(w, w->buf, at, n, true);
		r = j->out ? sheaf_pwrite(w->f, w->buf, n, (off_t)at) :
			     sheaf_pread(w->f, w->buf, n, (off_t)at);
		e = bench_moved(w, j->out ? "fill a file" : "read a file", r, n);
		if (!e && !j->out)
			e = use_bytes(w, w->buf, at, n, false);
	}
	return e;
}

/* Makes a file of `bytes` that no server has read or mapped, on the disk. */
static int make_cold(struct bench_worker *w)
{
	struct sheaf_layout l = { .size = sizeof(l), .stripe_unit = BENCH_UNIT };
	uint64_t n;
	int e, r;

	close_shared(w);
	r = sheaf_open(w->fs, bench_path(w, "%s", file_name(w->job)), O_RDWR | O_CREAT | O_TRUNC,
		       0600, &l, &w->f);
	e = bench_why(w, "make a file", r);
	for (uint64_t at = 0; !e && at < w->job->bytes; at += n) {
		n = MIN(w->job->bytes - at, BENCH_BLOCK);
		e = bench_moved(w, "fill a file", sheaf_pwrite(w->f, w->buf, n, (off_t)at), n);
	}
	if (!e)
		e = bench_why(w, "fsync", sheaf_fsync(w->f));
	r = close_shared(w);
	return e ? e : r;
}

static int drop_pages(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = fdatasync(fd) < 0 ? -errno : -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	return r;
}

int bench_drop_cached(struct bench *b, const char *file)
{
	char pattern[CONF_PATH_MAX + 64];
	struct stat st;
	glob_t found;
	int r = sheaf_stat(b->c->fs, file, &st);

	for (int i = 0; !r && i < b->servers; i++) {
		snprintf(pattern, sizeof(pattern), "%s/objects/%02x/%016jx.*",
			 b->place.conf->targets[i].storage, object_dir_index(st.st_ino) & 0xff,
			 (uintmax_t)st.st_ino);
		if (glob(pattern, 0, NULL, &found))
			continue;
		for (size_t k = 0; !r && k < found.gl_pathc; k++)
			r = drop_pages(found.gl_pathv[k]);
		globfree(&found);
	}
	if (r)
		cli_fail(b->c, file, r);
	return r;
}

static int before_cold(struct bench *b, struct bench_case *c)
{
	struct bench_job j = c->job;
	char file[CLI_PATH_MAX];
	struct bench_result r;
	int e;

	j.prepare = j.finish = NULL;
	j.once = make_cold;
	e = bench_clients_run(b, &j, 1, &r);
	snprintf(file, sizeof(file), "%s/%s", j.path, file_name(&j));
	return e ? e : bench_drop_cached(b, file);
}

/* ---- cases ---- */

static uint64_t file_bytes(const struct bench_strided *s, uint32_t rows)
{
	uint64_t last = BENCH_SHARERS - 1;

	return last % s->columns * s->step[0] + last / s->columns * s->step[1] +
	       (rows - 1) * s->stride + s->size;
}

static uint32_t rows_within(const struct bench_strided *s, uint64_t bytes)
{
	return (uint32_t)MIN(s->rows, MAX(bytes / s->stride, 1));
}

static struct bench_job job_of(struct bench *b, const struct bench_strided *s, int way, int out)
{
	struct bench_job j = { .prepare = prepare,
			       .once = bench_ways[way].once,
			       .finish = finish,
			       .out = out == 1,
			       .size = s->size,
			       .stride = s->stride,
			       .count = s->rows,
			       .columns = s->columns,
			       .step = { s->step[0], s->step[1] },
			       .way = (uint32_t)way,
			       .mover = s->mover ? s->mover : b->mover,
			       .cold = s->cold };

	if (s->cold)
		j.count = rows_within(s, COLD_BYTES);
	if (way == BENCH_MULTIPLE)
		j.count = MIN(j.count, SINGLE_CALLS);
	if (way == BENCH_CLIENT_SIEVE)
		j.count = rows_within(s, s->cold ? COLD_BYTES : COVERED_BYTES);
	j.bytes = file_bytes(s, s->cold ? rows_within(s, COLD_BYTES) : s->rows);
	j.max_ops = s->cold ? 1 : 0;
	return j;
}

void bench_strided_name(char *out, size_t n, const struct bench_strided *s, int way, int write)
{
	snprintf(out, n, "%s%s%s%s: %s", s->cold ? "cold " : "", write ? "write" : "read",
		 s->name[0] ? " " : "", s->name, bench_ways[way].name);
}

void bench_strided_case(struct bench *b, const struct bench_strided *s, int way, int out)
{
	struct bench_case c = { .job = job_of(b, s, way, out),
				.workers = s->clients,
				.pieces = s->rows,
				.bytes = s->size,
				.figure = BENCH_BANDWIDTH,
				.ns = s->ns,
				.before = s->cold ? before_cold : NULL,
				.never_sieve = way == BENCH_LIST };
	char what[sizeof(c.row->what)];

	if (way == BENCH_LIST && !b->place.own)
		return;
	bench_strided_name(what, sizeof(what), s, way, out);
	bench_case_add(b, c, "%s", what);
}

const struct bench_row *bench_strided_find(struct bench *b, const struct bench_strided *s, int way,
					   int out)
{
	char what[sizeof(((struct bench_row *)0)->what)];

	bench_strided_name(what, sizeof(what), s, way, out);
	return bench_find(b, what, (uint32_t)s->clients, s->size, s->rows);
}

/* ---- accesses to the object files, counted by the servers ---- */

static double accesses(struct bench *b)
{
	struct sheaf_server s;
	double sum = 0;

	for (int i = 0; i < b->servers; i++)
		if (sheaf_server_status(b->c->fs, i, 5 * CLI_STATUS_MS, &s) == 0 && s.up)
			sum += (double)(s.disk_inline + s.disk_handed);
	return sum;
}

static int count_accesses(struct bench *b, struct bench_case *c, double *value)
{
	struct bench_result r[BENCH_SHARERS];
	double before = accesses(b);
	int e = bench_clients_run(b, &c->job, c->workers, r);

	*value = (accesses(b) - before) / ((double)c->job.count * c->workers);
	return e;
}

void bench_strided_count(struct bench *b, const struct bench_strided *s, int out)
{
	struct bench_case c = { .job = job_of(b, s, BENCH_LIST_SIEVE, out),
				.workers = s->clients,
				.pieces = s->rows,
				.bytes = s->size,
				.unit = "accesses per piece",
				.before = before_cold,
				.custom = count_accesses };

	bench_case_add(b, c, "cold %s: accesses", out ? "write" : "read");
}

/* ---- setup ---- */

static int verify_way(struct bench *b, const struct bench_strided *s, int way, uint32_t rows)
{
	struct bench_result r[BENCH_SHARERS];
	struct bench_job read = job_of(b, s, way, 0), write = job_of(b, s, way, 1), all;
	int e;

	read.count = write.count = rows;
	read.max_ops = write.max_ops = 1;
	snprintf(read.path, sizeof(read.path), "%s", b->place.scratch);
	snprintf(write.path, sizeof(write.path), "%s", b->place.scratch);
	read.seed = 2 * (uint32_t)way;
	write.seed = 2 * (uint32_t)way + 1;
	read.once = check_read;
	write.once = check_write;
	all = read;
	all.prepare = all.finish = NULL;
	all.once = plain;
	all.bytes = file_bytes(s, rows);
	all.out = true;
	e = bench_clients_run(b, &all, 1, r);
	if (!e)
		e = bench_place_sieve(b, way != BENCH_LIST);
	if (!e)
		e = bench_clients_run(b, &read, s->clients, r);
	if (!e)
		e = bench_clients_run(b, &write, s->clients, r);
	all.seed = write.seed;
	all.out = false;
	return e || s->clients < BENCH_SHARERS ? e : bench_clients_run(b, &all, 1, r);
}

int bench_strided_verify(struct bench *b, const struct bench_strided *s, bool whole)
{
	uint32_t rows = whole ? s->rows : rows_within(s, COVER_READ);
	int e = 0;

	for (int way = 0; !e && way <= BENCH_TYPED_SIEVE; way++)
		if (way != BENCH_LIST || b->place.own)
			e = verify_way(b, s, way, rows);
	return e;
}

int bench_strided_setup(struct bench *b, uint64_t file, uint64_t memory)
{
	int e = bench_once(b, 1, bench_do_make, file, 0);

	return e ? e : bench_once(b, BENCH_SHARERS, bench_do_room, memory, 0);
}

static int drop_cold(struct bench_worker *w)
{
	int r = sheaf_unlink(w->fs, bench_path(w, "cold"));

	return bench_why(w, "remove a file", r == -ENOENT ? 0 : r);
}

int bench_strided_cleanup(struct bench *b)
{
	int e = bench_once(b, 1, drop_cold, 0, 0);

	return e ? e : bench_once(b, BENCH_SHARERS, bench_do_drop, 0, 0);
}
