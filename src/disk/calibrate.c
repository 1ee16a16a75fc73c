/* What accesses to the files of a storage directory cost: measured at its first start, or by `sheaf
 * calibrate`, and kept in its file `costs`. Accesses of each size are timed at random places of a
 * scratch file, first while it is cached, then after it was dropped from the cache.
 *
 * Threads: the loop's; at start it blocks, for a second on a slow disk. Later a worker measures,
 * which sees only struct disk_measure. Errors: of the scratch file; the costs stay as they are. A
 * file `costs` that is damaged or has values that cannot be true counts as none. */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>

#include "disk/disk_impl.h"

#define COSTS_NAME "costs"
#define SCRATCH_NAME "costs.scratch"
#define SCRATCH_BYTES (16 * MIB)
#define WRITTEN \
	(256 * KIB) /* at a time, like most objects: the cost of later writes depends on it */
#define LEAST_FREE (16 * SCRATCH_BYTES) /* with less space free nothing is measured */
#define ROUNDS 16 /* of one size; each has a part of the scratch file for itself */
#define PART (SCRATCH_BYTES / ROUNDS)
#define COLD_NS (20 * NSEC_PER_MSEC) /* for the reads of one size from the disk */
#define COLD_LEAST 3 /* but at least this many */

static const uint8_t costs_magic[8] = { 'S', 'H', 'C', 'O', 'S', 'T', 'S', 2 };

struct probe {
	struct env *e;
	int fd;
	char *buf; /* of the largest size */
};

/* A place in the part of the file that belongs to this round. */
static uint64_t place(const struct probe *p, int round, uint32_t size)
{
	uint32_t r;

	p->e->clock->random(p->e, &r, sizeof(r));
	return (uint64_t)round * PART + r % (PART - size + 1) / LEAST_PAGE * LEAST_PAGE;
}

/* The time of one access, in *ns. */
static int timed(const struct probe *p, uint64_t off, uint32_t size, bool write, double *ns)
{
	struct env *e = p->e;
	struct iovec iov = { p->buf, size };
	uint64_t began = e->clock->now(e);
	ssize_t n = write ? e->file->pwritev(e, p->fd, &iov, 1, (off_t)off) :
			    e->file->preadv(e, p->fd, &iov, 1, (off_t)off);

	*ns = (double)(e->clock->now(e) - began);
	return n < 0 ? (int)n : (size_t)n == size ? 0 : -EIO;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median time of accesses of one size; the lower quartile of cached ones, whose times are short
 * and often disturbed. Two cold reads are in progress at a time, like the windows of a request. */
static int measure_size(const struct probe *p, uint32_t size, bool write, uint64_t limit,
			double *typical)
{
	bool cold = limit != UINT64_MAX;
	double ns[ROUNDS], sum = 0;
	uint64_t next = place(p, 0, size);
	int n = 0, r = 0;

	while (!r && n < ROUNDS && (n < COLD_LEAST || sum < (double)limit)) {
		uint64_t off = next;

		next = place(p, (n + 1) % ROUNDS, size);
		if (cold)
			p->e->file->advise(p->e, p->fd, next, size, POSIX_FADV_WILLNEED);
		r = timed(p, off, size, write, &ns[n]);
		sum += ns[n++];
	}
	qsort(ns, (size_t)n, sizeof(ns[0]), by_value);
	*typical = MAX(ns[cold ? n / 2 : n / 4], 1.0);
	return r;
}

/* A longer access never takes less time, nor more time per byte: the plan relies on it.
 * Disturbances only add time, so the larger value is the one that is corrected. */
static void smooth(struct sieve_times *t)
{
	for (int i = SIEVE_SIZES - 1; i > 0; i--)
		t->ns[i - 1] = MIN(t->ns[i - 1], t->ns[i]);
	for (int i = 1; i < SIEVE_SIZES; i++)
		t->ns[i] = MIN(t->ns[i],
			       t->ns[i - 1] * (double)sieve_sizes[i] / (double)sieve_sizes[i - 1]);
}

/* The first pass is not counted: the first write to a range of pages takes many times as long. */
static int measure_cached(const struct probe *p, bool write, struct sieve_times *t)
{
	int r = measure_size(p, sieve_sizes[0], write, UINT64_MAX, &t->ns[0]);

	for (int i = 0; !r && i < SIEVE_SIZES; i++)
		r = measure_size(p, sieve_sizes[i], write, UINT64_MAX, &t->ns[i]);
	smooth(t);
	return r;
}

static void drop(const struct probe *p)
{
	p->e->file->advise(p->e, p->fd, 0, SCRATCH_BYTES, POSIX_FADV_DONTNEED);
}

static int measure_cold(const struct probe *p, struct sieve_times *t)
{
	int r = 0;

	p->e->file->advise(p->e, p->fd, 0, SCRATCH_BYTES, POSIX_FADV_RANDOM);
	for (int i = 0; !r && i < SIEVE_SIZES; i++) {
		drop(p);
		r = measure_size(p, sieve_sizes[i], false, COLD_NS, &t->ns[i]);
	}
	smooth(t);
	return r;
}

/* How many reads the disk serves at a time: all are announced, then awaited. */
static int measure_parallel(const struct probe *p, double one, double *parallel)
{
	uint64_t at[ROUNDS], began;
	double ns;
	int r = 0;

	drop(p);
	began = p->e->clock->now(p->e);
	for (int i = 0; i < ROUNDS; i++) {
		at[i] = place(p, i, LEAST_PAGE);
		p->e->file->advise(p->e, p->fd, at[i], LEAST_PAGE, POSIX_FADV_WILLNEED);
	}
	for (int i = 0; !r && i < ROUNDS; i++)
		r = timed(p, at[i], LEAST_PAGE, false, &ns);
	ns = (double)(p->e->clock->now(p->e) - began);
	*parallel = MAX(1.0, MIN(SIEVE_PARALLEL_MAX, ROUNDS * one / MAX(ns, 1.0)));
	return r;
}

static int fill(const struct probe *p)
{
	int r = 0;

	p->e->clock->random(p->e, p->buf, MIB); /* nothing that a disk could compress */
	for (uint64_t off = 0; !r && off < SCRATCH_BYTES; off += WRITTEN)
		r = disk_write_all(p->e, p->fd, p->buf, WRITTEN, off);
	return r;
}

static int measure(const struct probe *p, bool on_tmpfs, struct sieve_costs *c)
{
	int r = fill(p);

	if (!r)
		r = measure_cached(p, false, &c->read);
	if (!r)
		r = measure_cached(p, true, &c->write);
	c->cold = c->read;
	c->parallel = 1;
	if (r || on_tmpfs || !p->e->file->advise)
		return r;
	r = p->e->file->fsync(p->e, p->fd);
	if (!r)
		r = measure_cold(p, &c->cold);
	return r ? r : measure_parallel(p, sieve_time(&c->cold, LEAST_PAGE), &c->parallel);
}

/* ---- measuring, and the file `costs` ---- */

/* -ENOSPC: too little space is free. */
static int check_space(struct env *e, int dir)
{
	uint64_t total, avail, id;
	int r = e->file->statfs(e, dir, &total, &avail, &id);

	return r ? r : avail < LEAST_FREE ? -ENOSPC : 0;
}

int disk_measure_costs(struct env *e, int dir, bool on_tmpfs, struct sieve_costs *out)
{
	struct sieve_costs costs = *out;
	struct probe p = { .e = e, .fd = -ENOMEM };
	int r = check_space(e, dir);

	if (r)
		return r;
	p.buf = malloc(MIB);
	if (p.buf)
		p.fd = e->file->openat(e, dir, SCRATCH_NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
	r = p.fd < 0 ? p.fd : measure(&p, on_tmpfs, &costs);
	disk_fd_close(e, p.fd);
	free(p.buf);
	e->file->unlinkat(e, dir, SCRATCH_NAME, 0);
	if (!r)
		*out = costs;
	return r;
}

int disk_store_costs(struct env *e, int dir, const struct sieve_costs *c)
{
	struct disk_costs file = { .zero = 0 };

	sieve_costs_pack(c, file.values);
	for (int i = 0; i < SIEVE_VALUES; i++)
		file.values[i] = htole64(file.values[i]);
	disk_seal(&file, sizeof(file), costs_magic);
	return disk_write_file(e, dir, COSTS_NAME, &file, sizeof(file), false);
}

int disk_load_costs(struct env *e, int dir, struct sieve_costs *out)
{
	struct disk_costs file;
	int r = disk_read_file(e, dir, COSTS_NAME, &file, sizeof(file), costs_magic);

	for (int i = 0; !r && i < SIEVE_VALUES; i++)
		file.values[i] = le64toh(file.values[i]);
	if (!r && !sieve_costs_unpack(file.values, out))
		r = -ENOENT;
	if (r)
		*out = sieve_defaults;
	return r;
}

/* ---- at start ---- */

struct sieve_costs *disk_costs(struct disk *d)
{
	return &d->costs;
}

static void warn_of_store(const struct disk *d, int error)
{
	if (error)
		log_warn("disk",
			 "%s: the measured costs of accesses cannot be stored (%s): the next start "
			 "measures again",
			 d->path, strerror(-error));
}

void disk_find_costs(struct disk *d)
{
	struct env *e = d->env;
	int r;

	e->file->unlinkat(e, d->dir, SCRATCH_NAME, 0); /* left over by a crash */
	if (d->costs_known)
		return;
	r = disk_measure_costs(e, d->dir, d->loop->on_tmpfs, &d->costs);
	d->costs_known = !r;
	if (!r)
		warn_of_store(d, disk_store_costs(e, d->dir, &d->costs));
	else if (r == -ENOSPC)
		log_warn("disk",
			 "%s: little space is free: the costs of accesses are not measured, uses "
			 "defaults",
			 d->path);
	else
		log_warn("disk", "%s: measuring the costs of accesses failed (%s): uses defaults",
			 d->path, strerror(-r));
}

/* ---- while the server runs ---- */

static void measure_run(struct job *j)
{
	struct disk_measure *m = container_of(j, struct disk_measure, job);

	m->error = disk_measure_costs(m->env, m->dir, m->on_tmpfs, &m->costs);
	m->store_error = m->error ? 0 : disk_store_costs(m->env, m->dir, &m->costs);
}

static void measure_end(struct disk *d)
{
	struct disk_measure *m = &d->measure;
	struct list *it;

	d->busy--;
	if (!m->error) {
		d->costs = m->costs;
		d->costs_known = true;
		warn_of_store(d, m->store_error);
	}
	while ((it = list_pop(&m->waiting))) {
		struct disk_calibration *c = list_entry(it, struct disk_calibration, link);

		c->is_stored = !m->store_error;
		req_done(c->q, m->error, 0);
	}
}

static void measure_done(struct job *j)
{
	measure_end(container_of(j, struct disk, measure.job));
}

void disk_calibrate(struct disk *d, struct disk_calibration *c, struct req *q)
{
	struct disk_measure *m = &d->measure;
	const struct exec_ops *x = d->env->exec;
	bool is_first = list_empty(&m->waiting);

	c->q = q;
	req_hold(q);
	list_push(&m->waiting, &c->link);
	if (!is_first)
		return;
	d->busy++;
	m->env = d->env;
	m->dir = d->dir;
	m->on_tmpfs = d->loop->on_tmpfs;
	m->costs = d->costs;
	m->job = (struct job){ .run = measure_run, .done = measure_done };
	m->error = m->worker ? 0 : x->worker_start(d->env, d->loop, "calibrate", &m->worker);
	if (m->error)
		measure_end(d);
	else
		x->worker_submit(m->worker, &m->job);
}
