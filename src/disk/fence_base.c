/* The base of fences: floors that do not fit into memory, in a sorted file that lookups search.
 *
 * The floor of an inode is the higher one of two: that in disk->floors, which is also in the log
 * `fences`, and that in `fences.base`. A floor leaves memory in these steps; a crash between any
 * two of them loses no floor:
 *   1. The records of the base and the durable floors in memory are merged into fences.base.new,
 *      which is synced. Nothing reads that name, and the log still has all merged floors.
 *   2. It is renamed to fences.base, and the directory is synced. Before that a crash may leave
 *      either base, and the log completes the old one.
 *   3. Only now the merged floors leave memory, except those that were raised meanwhile.
 *   4. The log is rewritten from memory, and so without them (fence_log.c). Its first record names
 *      the base that it needs: a start without that base is refused.
 * All this is synced in mode nosync, too: it is rare, and the next start depends on it. A merge
 * drops records that are older than any capability and whose inode has no object; it looks for them
 * once a day at most.
 *
 * Threads: the loop's; base_find() and merge_write() block, on a worker or at start. Buffers: a
 * merge has two of MERGE_RECORDS, a copy of the floors in memory, and the inodes of one directory
 * of objects. Errors: a failed merge changes nothing and is repeated when the table has grown by
 * half of max_floors; until then memory exceeds its limit. If a lookup cannot read, the open fails.
 * Damaged records are skipped, as in the log. */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>

#include "disk/disk_impl.h"

#define BASE_NAME "fences.base"
#define BASE_NEW "fences.base.new"
#define BASE_VERSION 1
#define REC_SIZE sizeof(struct fence_rec)
#define MERGE_RECORDS 512
#define SWEEP_NS (UINT64_C(24) * 3600 * NSEC_PER_SEC) /* minimum time between two sweeps */

static const uint8_t base_magic[8] = { 'S', 'H', 'F', 'F', 'B', 'A', 'S', 'E' };

/* Ordered by directory first, so that a merge needs the names of one directory at a time. */
static int order(uint64_t a, uint64_t b)
{
	unsigned x = object_dir_index(a), y = object_dir_index(b);

	if (x != y)
		return x < y ? -1 : 1;
	return (a > b) - (a < b);
}

/* ---------------------------------------------------------------- lookups */

struct fence_base *base_hold(struct disk *d)
{
	if (d->base)
		d->base->refs++;
	return d->base;
}

void base_put(struct disk *d, struct fence_base *b)
{
	if (!b || --b->refs)
		return;
	d->env->file->close(d->env, b->fd);
	free(b);
}

/* Finds the first valid record in [*at, end): 1, and *at is its position; 0: none; or -errno. */
static int probe(struct env *e, const struct fence_base *b, uint64_t *at, uint64_t end,
		 struct fence_rec *rec)
{
	for (; *at < end; (*at)++) {
		ssize_t got = disk_read_at(e, b->fd, rec, REC_SIZE,
					   sizeof(struct base_head) + *at * REC_SIZE);

		if (got != (ssize_t)REC_SIZE)
			return got < 0 ? (int)got : -EIO;
		if (fence_rec_ok(rec))
			return 1;
	}
	return 0;
}

int base_find(struct env *e, const struct fence_base *b, uint64_t ino, uint64_t *epoch)
{
	uint64_t lo = 0, hi = b ? b->count : 0;
	struct fence_rec rec;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2, at = mid;
		int r = probe(e, b, &at, hi, &rec);
		int way = r > 0 ? order(ino, le64toh(rec.ino)) : -1;

		if (r < 0)
			return r;
		if (way < 0) {
			hi = mid;
		} else if (way > 0) {
			lo = at + 1;
		} else {
			*epoch = MAX(*epoch, le64toh(rec.epoch));
			return 0;
		}
	}
	return 0;
}

/* ---------------------------------------------------------------- merging: on a worker, or at
 * start */

struct merge_run {
	struct env *env;
	struct fence_merge *m;
	bool sweep;
	/* input: the old base, and the position in it */
	struct fence_rec in[MERGE_RECORDS], next;
	uint64_t read;
	size_t in_at, n_in;
	bool has_next;
	/* output */
	struct fence_rec out[MERGE_RECORDS];
	size_t n_out;
	uint64_t written;
	/* sorted inodes that have objects in one directory */
	unsigned dir; /* OBJECT_DIRS: none listed yet */
	uint64_t *live;
	size_t n_live, cap_live;
	int error;
};

static int compare_recs(const void *a, const void *b)
{
	const struct fence_rec *x = a, *y = b;

	return order(le64toh(x->ino), le64toh(y->ino));
}

static int compare_inos(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void note_live(void *arg, const char *name)
{
	struct merge_run *r = arg;
	size_t cap = r->cap_live ? 2 * r->cap_live : 256;
	uint64_t *v;

	if (r->error)
		return;
	if (r->n_live == r->cap_live) {
		v = realloc(r->live, cap * sizeof(*v));
		if (!v) {
			r->error = -ENOMEM;
			return;
		}
		r->live = v;
		r->cap_live = cap;
	}
	r->live[r->n_live++] = strtoull(name, NULL, 16);
}

static int list_live(struct merge_run *r, unsigned dir)
{
	struct env *e = r->env;
	int fd = disk_dir_open(e, r->m->objects_fd, dir), error;

	r->dir = dir;
	r->n_live = 0;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	error = e->file->list(e, fd, note_live, r);
	e->file->close(e, fd);
	if (r->n_live)
		qsort(r->live, r->n_live, sizeof(*r->live), compare_inos);
	return error < 0 ? error : r->error;
}

/* 1: older than any capability, and the inode has no object; 0: keep the record; or -errno. */
static int is_expired(struct merge_run *r, const struct fence_rec *rec)
{
	uint64_t ino = le64toh(rec->ino);
	int error = 0;

	if (!r->sweep || !fence_time_is_old(le64toh(rec->time), r->m->now))
		return 0;
	if (r->dir != object_dir_index(ino))
		error = list_live(r, object_dir_index(ino));
	if (error)
		return error;
	return !r->n_live || !bsearch(&ino, r->live, r->n_live, sizeof(ino), compare_inos);
}

static int out_flush(struct merge_run *r)
{
	size_t n = r->n_out * REC_SIZE;
	int error = disk_write_all(r->env, r->m->made->fd, r->out, n,
				   sizeof(struct base_head) + r->written * REC_SIZE);

	r->written += r->n_out;
	r->n_out = 0;
	return error;
}

static int out_put(struct merge_run *r, const struct fence_rec *rec)
{
	int go = is_expired(r, rec);

	if (go < 0)
		return go;
	r->m->forgotten += (uint64_t)go;
	if (go)
		return 0;
	r->out[r->n_out++] = *rec;
	return r->n_out == MERGE_RECORDS ? out_flush(r) : 0;
}

static int in_fill(struct merge_run *r)
{
	const struct fence_base *b = r->m->old;
	size_t n = (size_t)MIN((uint64_t)MERGE_RECORDS, b->count - r->read);
	ssize_t got;

	if (atomic_load(&r->m->stop))
		return -ECANCELED;
	got = disk_read_at(r->env, b->fd, r->in, n * REC_SIZE,
			   sizeof(struct base_head) + r->read * REC_SIZE);
	if (got != (ssize_t)(n * REC_SIZE))
		return got < 0 ? (int)got : -EIO;
	r->in_at = 0;
	r->n_in = n;
	r->read += n;
	return 0;
}

/* Reads the next valid record of the old base into r->next, unless r->next is still unused. */
static int in_next(struct merge_run *r)
{
	while (!r->has_next) {
		if (r->in_at == r->n_in) {
			int error;

			if (!r->m->old || r->read == r->m->old->count)
				return 0;
			error = in_fill(r);
			if (error)
				return error;
		}
		r->next = r->in[r->in_at++];
		r->has_next = fence_rec_ok(&r->next);
		r->m->damaged += !r->has_next;
	}
	return 0;
}

/* Merges `old` into rec; both are of the same inode. */
static void combine(struct fence_rec *rec, const struct fence_rec *old)
{
	rec->epoch = htole64(MAX(le64toh(rec->epoch), le64toh(old->epoch)));
	rec->time = htole64(MAX(le64toh(rec->time), le64toh(old->time)));
	fence_rec_seal(rec);
}

static int merge_records(struct merge_run *r)
{
	struct fence_merge *m = r->m;
	size_t i = 0;
	int error = in_next(r);

	while (!error && (i < m->n || r->has_next)) {
		int way = i == m->n ? 1 : r->has_next ? compare_recs(&m->recs[i], &r->next) : -1;

		if (way == 0)
			combine(&m->recs[i], &r->next);
		error = out_put(r, way > 0 ? &r->next : &m->recs[i]);
		i += way <= 0;
		r->has_next = r->has_next && way < 0;
		if (!error)
			error = in_next(r);
	}
	return error ? error : out_flush(r);
}

static int write_head(struct merge_run *r)
{
	const struct fence_base *b = r->m->made;
	struct base_head h = { .version = htole32(BASE_VERSION),
			       .generation = htole64(b->generation),
			       .count = htole64(b->count),
			       .swept = htole64(b->swept) };

	disk_seal(&h, sizeof(h), base_magic);
	return disk_write_all(r->env, b->fd, &h, sizeof(h), 0);
}

static int write_base(struct merge_run *r)
{
	struct fence_merge *m = r->m;
	struct fence_base *b = m->made;
	struct env *e = r->env;
	int error = merge_records(r);

	b->count = r->written;
	if (!error)
		error = write_head(r);
	if (!error)
		error = e->file->fsync(e, b->fd);
	if (!error)
		error = e->file->renameat(e, m->dir, BASE_NEW, BASE_NAME);
	if (!error)
		error = e->file->fsync(e, m->dir);
	return error;
}

/* Sets m->made to the new base on success, else to NULL. */
static int merge_write(struct env *e, struct fence_merge *m)
{
	struct merge_run *r = calloc(1, sizeof(*r));
	uint64_t swept = m->old ? m->old->swept : 0;
	int error = -ENOMEM;

	m->made = calloc(1, sizeof(*m->made));
	if (!r || !m->made)
		goto out;
	r->env = e;
	r->m = m;
	r->dir = OBJECT_DIRS;
	r->sweep = m->now > swept && m->now - swept > SWEEP_NS;
	*m->made = (struct fence_base){ .refs = 1,
					.generation = m->old ? m->old->generation + 1 : 1,
					.swept = r->sweep ? m->now : swept };
	qsort(m->recs, m->n, REC_SIZE, compare_recs);
	m->made->fd = e->file->openat(e, m->dir, BASE_NEW, O_RDWR | O_CREAT | O_TRUNC, 0600);
	error = m->made->fd < 0 ? m->made->fd : write_base(r);
	if (error && m->made->fd >= 0)
		e->file->close(e, m->made->fd);
	if (error)
		e->file->unlinkat(e, m->dir, BASE_NEW, 0);
out:
	if (error) {
		free(m->made);
		m->made = NULL;
	}
	if (r)
		free(r->live);
	free(r);
	return error;
}

/* ---------------------------------------------------------------- merging: its beginning and
 * its end */

static void take_floor(struct hnode *n, void *arg)
{
	struct floor *f = container_of(n, struct floor, node);
	struct fence_merge *m = arg;

	if (f->durable < f->epoch) /* the log does not have this epoch and its time yet */
		return;
	f->merged = f->epoch;
	fence_rec_encode(&m->recs[m->n++], f);
}

static int merge_make(struct disk *d)
{
	struct fence_merge *m = &d->merge;

	m->dir = d->dir;
	m->objects_fd = d->objects.fd;
	m->now = d->env->clock->wall(d->env);
	m->old = d->base;
	m->n = 0;
	m->damaged = m->forgotten = 0;
	m->recs = calloc(d->floors.count + 1, REC_SIZE);
	if (!m->recs)
		return -ENOMEM;
	htab_walk(&d->floors, take_floor, m);
	return 0;
}

static void drop_merged(struct hnode *n, void *arg)
{
	struct floor *f = container_of(n, struct floor, node);

	if (f->merged >= f->epoch && f->merged && !f->waits)
		floor_free(arg, f);
}

/* error: result of the merge. On success the base is on disk, and its floors leave memory. */
static void merge_end(struct disk *d, int error)
{
	struct fence_merge *m = &d->merge;

	free(m->recs);
	m->recs = NULL;
	if (m->damaged)
		log_error("disk", "%s/%s: %ju damaged records were skipped: check the disk",
			  d->path, BASE_NAME, (uintmax_t)m->damaged);
	if (error) {
		if (error != -ECANCELED)
			log_warn("disk", "%s/%s was not written: %s: fences stay in memory",
				 d->path, BASE_NAME, strerror(-error));
		m->retry_count = d->floors.count + (d->max_floors + 1) / 2;
		return;
	}
	base_put(d, d->base);
	d->base = m->made;
	m->made = NULL;
	m->retry_count = 0;
	htab_walk(&d->floors, drop_merged, d);
	log_info("disk", "%s/%s has %ju floors, %ju are forgotten, %zu in memory", d->path,
		 BASE_NAME, (uintmax_t)d->base->count, (uintmax_t)m->forgotten, d->floors.count);
}

static int merge_call(struct env *e, struct io *io)
{
	struct disk *d = io->arg;

	return merge_write(e, &d->merge);
}

static void merge_done(struct io *io)
{
	struct disk *d = io->arg;
	struct list *it;

	d->busy--;
	d->merge.busy = false;
	merge_end(d, io->error);
	if (!io->error)
		fence_log_cut(d);
	while ((it = list_pop(&d->merge.waiting)))
		req_done(list_entry(it, struct log_wait, link)->q, 0, 0);
}

static bool merge_due(const struct disk *d)
{
	return !d->merge.busy && d->floors.count >= d->max_floors &&
	       d->floors.count >= d->merge.retry_count;
}

void merge_start(struct disk *d)
{
	struct fence_merge *m = &d->merge;

	if (!merge_due(d) || merge_make(d))
		return;
	m->busy = true;
	d->busy++;
	m->io = (struct io){ .kind = IO_CALL, .call = merge_call, .arg = d, .done = merge_done };
	io_submit(d->loop, &m->io);
}

void merge_now(struct disk *d)
{
	int error;

	if (!merge_due(d))
		return;
	error = merge_make(d);
	merge_end(d, error ? error : merge_write(d->env, &d->merge));
}

bool merge_wait(struct disk *d, struct log_wait *w, struct req *q)
{
	if (!d->merge.busy || d->floors.count < 2 * (size_t)d->max_floors)
		return false;
	w->q = q;
	req_hold(q);
	list_push(&d->merge.waiting, &w->link);
	return true;
}

/* ---------------------------------------------------------------- start */

static int read_head(struct env *e, struct fence_base *b)
{
	struct base_head h;
	struct stat st;
	ssize_t got = disk_read_at(e, b->fd, &h, sizeof(h), 0);
	int r = got < 0 ? (int)got : e->file->fstat(e, b->fd, &st);

	if (r < 0)
		return r;
	if (got != (ssize_t)sizeof(h) || !disk_is_sealed(&h, sizeof(h), base_magic))
		return -EUCLEAN;
	if (le32toh(h.version) > BASE_VERSION)
		return -EPROTONOSUPPORT;
	b->generation = le64toh(h.generation);
	b->count = le64toh(h.count);
	b->swept = le64toh(h.swept);
	if (b->count > ((uint64_t)st.st_size - sizeof(h)) / REC_SIZE)
		return -EUCLEAN;
	return 0;
}

int base_open(struct disk *d, char *err, size_t n)
{
	struct env *e = d->env;
	int fd, r;

	e->file->unlinkat(e, d->dir, BASE_NEW, 0); /* left by a merge that did not finish */
	fd = e->file->openat(e, d->dir, BASE_NAME, O_RDONLY, 0);
	if (fd == -ENOENT)
		return 0;
	d->base = fd < 0 ? NULL : calloc(1, sizeof(*d->base));
	if (!d->base) {
		r = fd < 0 ? fd : -ENOMEM;
		disk_fd_close(e, fd);
	} else {
		d->base->fd = fd;
		d->base->refs = 1;
		r = read_head(e, d->base);
		if (r == 0) /* the log will refer to this base: its name must be on disk */
			r = e->file->fsync(e, d->dir);
	}
	if (r < 0)
		return error_explain(err, n, r,
				     "%s/%s cannot be used: %s: restore it, or remove it and make "
				     "%s/fences an empty file after all clients were stopped",
				     d->path, BASE_NAME, strerror(-r), d->path);
	return 0;
}
