/* The log of fences: 32-byte records appended in batches. One batch is in flight at a time, and its
 * fences are acknowledged together after one sync.
 *
 * A record can only raise a floor, so extra records do no harm: at start every valid record counts,
 * at any position. A torn end was never acknowledged and is cut off. Zeros behind the end reserve
 * space for fences on a full disk.
 *
 * The log is rewritten when it is much longer than its floors need, at start and between two
 * batches, and after every merge into the base (fence_base.c). A new file is written, synced and
 * renamed. It has the generation of the base, as a first record with inode 0, and the floors in
 * memory. Until the next batch syncs the directory, a crash may leave either file: both have
 * everything that was acknowledged and is not in the base.
 *
 * Threads: the loop's, and a worker for rewrites; fence_log_load() blocks. Buffers: the batch
 * belongs to the log and is lent to the I/O engine while `busy`. Errors: a failed batch is
 * overwritten by the next one; after a failed rewrite the old log stays in use. */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>

#include "disk/disk_impl.h"

#define LOG_NAME "fences"
#define LOG_NEW "fences.new"
#define REC_MAGIC 0x31434e46 /* "FNC1" */
#define REC_SIZE sizeof(struct fence_rec)
#define LOAD_FLOORS \
	8 /* times max_floors: limit while loading, so that a long log is merged in few steps */

static const uint8_t zeros[64 * KIB];

static uint32_t rec_crc(const struct fence_rec *r)
{
	return crc32c(0, r, offsetof(struct fence_rec, crc));
}

void fence_rec_seal(struct fence_rec *r)
{
	r->magic = htole32(REC_MAGIC);
	r->crc = htole32(rec_crc(r));
}

void fence_rec_encode(struct fence_rec *r, const struct floor *f)
{
	r->ino = htole64(f->ino);
	r->epoch = htole64(f->epoch);
	r->time = htole64(f->time);
	fence_rec_seal(r);
}

bool fence_rec_ok(const struct fence_rec *r)
{
	return le32toh(r->magic) == REC_MAGIC && le32toh(r->crc) == rec_crc(r);
}

/* ---------------------------------------------------------------- rewriting */

static void encode_one(struct hnode *n, void *arg)
{
	struct log_rewrite *w = arg;

	fence_rec_encode(&w->recs[w->n++], container_of(n, struct floor, node));
}

static int rewrite_make(struct disk *d)
{
	struct log_rewrite *w = &d->log.rewrite;

	*w = (struct log_rewrite){ .dir = d->dir, .nosync = d->nosync };
	w->recs = calloc(d->floors.count + 1, REC_SIZE);
	if (!w->recs)
		return -ENOMEM;
	if (d->base)
		fence_rec_encode(&w->recs[w->n++], &(struct floor){ .epoch = d->base->generation });
	htab_walk(&d->floors, encode_one, w);
	return 0;
}

/* Writes zeros behind the records, for fences on a full disk. */
static int reserve(struct env *e, int fd, uint64_t size, uint64_t *reserved)
{
	int r = 0;

	while (!r && *reserved - size < LOG_RESERVE) {
		r = disk_write_all(e, fd, zeros, sizeof(zeros), *reserved);
		*reserved += r ? 0 : sizeof(zeros);
	}
	return r;
}

/* Blocks. */
static int rewrite_write(struct env *e, struct log_rewrite *w)
{
	uint64_t size = w->n * REC_SIZE;
	int r;

	w->fd = e->file->openat(e, w->dir, LOG_NEW, O_RDWR | O_CREAT | O_TRUNC, 0600);
	r = w->fd < 0 ? w->fd : disk_write_all(e, w->fd, w->recs, size, 0);
	w->reserved = size;
	/* On a full disk this fails, and the old log stays with its reserve. */
	if (!r)
		r = reserve(e, w->fd, size, &w->reserved);
	if (r == 0 && !w->nosync)
		r = e->file->fsync(e, w->fd);
	if (r == 0)
		r = e->file->renameat(e, w->dir, LOG_NEW, LOG_NAME);
	if (r < 0) {
		disk_fd_close(e, w->fd);
		e->file->unlinkat(e, w->dir, LOG_NEW, 0);
	}
	return r;
}

static int rewrite_call(struct env *e, struct io *io)
{
	struct disk *d = io->arg;

	return rewrite_write(e, &d->log.rewrite);
}

/* error: result of the rewrite. */
static void rewrite_end(struct disk *d, int error)
{
	struct fence_log *g = &d->log;
	struct log_rewrite *w = &g->rewrite;

	free(w->recs);
	w->recs = NULL;
	if (error) {
		log_warn("disk", "%s/%s was not compacted: %s", d->path, LOG_NAME,
			 strerror(-error));
		g->retry_size = 2 * g->size;
		return;
	}
	d->env->file->close(d->env, g->fd);
	g->fd = w->fd;
	g->size = w->n * REC_SIZE;
	g->reserved = w->reserved;
	g->rename_unsynced = !d->nosync;
	g->retry_size = 0;
	d->counters.compacted++;
}

/* ---------------------------------------------------------------- appending */

static void batch_start(struct disk *d);

static void rewritten(struct io *io)
{
	struct disk *d = io->arg;

	rewrite_end(d, io->error);
	d->log.busy = false;
	d->busy--;
	if (!list_empty(&d->log.waiting))
		batch_start(d);
}

/* Starts a rewrite if it is worthwhile; fences wait for it. */
static bool rewrite_start(struct disk *d)
{
	struct fence_log *g = &d->log;
	bool is_long = g->size / REC_SIZE > 2 * d->floors.count + d->log_slack;

	if ((!is_long && !g->needs_rewrite) || g->size < g->retry_size || rewrite_make(d))
		return false;
	g->needs_rewrite = false;
	g->busy = true;
	d->busy++;
	g->io = (struct io){ .kind = IO_CALL, .call = rewrite_call, .arg = d, .done = rewritten };
	io_submit(d->loop, &g->io);
	return true;
}

/* Completes the batch. The next one starts before the completed requests can add fences. */
static void batch_end(struct disk *d, int error)
{
	struct fence_log *g = &d->log;
	struct list done = LIST_INIT(done);
	struct list *it;

	list_splice(&done, &g->running);
	g->busy = false;
	d->busy--;
	if (!rewrite_start(d) && !list_empty(&g->waiting))
		batch_start(d);
	while ((it = list_pop(&done))) {
		struct log_wait *w = list_entry(it, struct log_wait, link);

		if (!error)
			w->floor->durable = MAX(w->floor->durable, w->epoch);
		w->floor->waits--;
		req_done(w->q, error, 0);
	}
	merge_start(d);
}

static void extended(struct io *io)
{
	struct disk *d = io->arg;

	if (!io->error) /* else no space: go on with what is reserved */
		d->log.reserved += io->bytes;
	batch_end(d, 0);
}

/* The batch is durable. Extends the reserve, if needed, before it is acknowledged. */
static void batch_safe(struct disk *d)
{
	struct fence_log *g = &d->log;
	size_t n = 0;

	while (n < LOG_BATCH && g->batch[n].magic)
		n++;
	g->size += n * REC_SIZE;
	g->reserved = MAX(g->reserved, g->size);
	if (g->reserved - g->size >= LOG_RESERVE / 2) {
		batch_end(d, 0);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(g->iov); i++)
		g->iov[i] = (struct iovec){ (void *)zeros, sizeof(zeros) };
	g->io = (struct io){ .kind = IO_WRITE,
			     .fd = g->fd,
			     .iov = g->iov,
			     .n = ARRAY_LEN(g->iov),
			     .off = g->reserved,
			     .arg = d,
			     .done = extended };
	io_submit(d->loop, &g->io);
}

static void batch_sync(struct disk *d, int fd);

static void batch_synced(struct io *io)
{
	struct disk *d = io->arg;

	if (io->error) {
		batch_end(d, io->error);
		return;
	}
	if (io->fd == d->dir)
		d->log.rename_unsynced = false;
	if (d->log.rename_unsynced)
		batch_sync(d, d->dir);
	else
		batch_safe(d);
}

static void batch_sync(struct disk *d, int fd)
{
	d->counters.syncs++;
	d->log.io = (struct io){ .kind = IO_SYNC, .fd = fd, .arg = d, .done = batch_synced };
	io_submit(d->loop, &d->log.io);
}

static void batch_written(struct io *io)
{
	struct disk *d = io->arg;

	if (io->error)
		batch_end(d, io->error);
	else if (d->nosync)
		batch_safe(d);
	else
		batch_sync(d, d->log.fd);
}

static void batch_start(struct disk *d)
{
	struct fence_log *g = &d->log;
	uint64_t now = d->env->clock->wall(d->env);
	size_t n = 0;
	struct list *it;

	memset(g->batch, 0, sizeof(g->batch));
	while (n < LOG_BATCH && (it = list_pop(&g->waiting))) {
		struct log_wait *w = list_entry(it, struct log_wait, link);

		w->epoch = w->floor->epoch;
		w->floor->time = now;
		fence_rec_encode(&g->batch[n++], w->floor);
		list_push(&g->running, &w->link);
	}
	g->busy = true;
	d->busy++;
	g->iov[0] = (struct iovec){ g->batch, n * REC_SIZE };
	g->io = (struct io){ .kind = IO_WRITE,
			     .fd = g->fd,
			     .iov = g->iov,
			     .n = 1,
			     .off = g->size,
			     .arg = d,
			     .done = batch_written };
	io_submit(d->loop, &g->io);
}

/* Holds q until the floor of w is on disk. */
void fence_log_add(struct disk *d, struct log_wait *w, struct req *q)
{
	w->q = q;
	w->floor->waits++;
	req_hold(q);
	list_push(&d->log.waiting, &w->link);
	if (!d->log.busy)
		batch_start(d);
}

void fence_log_cut(struct disk *d)
{
	d->log.needs_rewrite = true;
	if (!d->log.busy)
		rewrite_start(d);
}

/* ---------------------------------------------------------------- start */

struct load {
	uint64_t records, torn, damaged; /* valid; invalid after the last valid; invalid before */
	uint64_t end; /* offset after the last valid record */
	bool lost_base; /* the log needs a newer base than there is */
};

static int load_rec(struct disk *d, const struct fence_rec *r, uint64_t at, struct load *l)
{
	struct floor *f;

	if (memcmp(r, zeros, REC_SIZE) == 0)
		return 0;
	if (!fence_rec_ok(r)) {
		l->torn++;
		return 0;
	}
	if (!r->ino) {
		l->lost_base |= le64toh(r->epoch) > (d->base ? d->base->generation : 0);
	} else {
		f = floor_raise(d, le64toh(r->ino), le64toh(r->epoch));
		if (!f)
			return -ENOMEM;
		f->durable = f->epoch;
		f->time = MAX(f->time, le64toh(r->time));
		l->records++;
	}
	l->damaged += l->torn;
	l->torn = 0;
	l->end = at + REC_SIZE;
	return 0;
}

static int load_all(struct disk *d, struct load *l)
{
	struct fence_rec buf[256];
	uint64_t at = 0;

	for (;;) {
		ssize_t got = disk_read_at(d->env, d->log.fd, buf, sizeof(buf), at);
		size_t have = (size_t)MAX(got, 0);

		if (got < 0)
			return (int)got;
		for (size_t i = 0; i < have / REC_SIZE; i++) {
			int r = load_rec(d, &buf[i], at + i * REC_SIZE, l);

			if (r < 0)
				return r;
		}
		if (l->lost_base)
			return -EUCLEAN;
		if (d->floors.count >= LOAD_FLOORS * (size_t)d->max_floors)
			merge_now(d);
		at += have;
		if (have % REC_SIZE)
			l->torn++;
		if (have < sizeof(buf))
			break;
	}
	d->log.reserved = at;
	merge_now(d);
	return 0;
}

static void mark_floors_in_use(void *arg, const char *name)
{
	struct disk *d = arg;
	uint64_t ino = strtoull(name, NULL, 16);

	if (floor_known(d, ino))
		floor_raise(d, ino, 0)->has_objects = true;
}

struct old_scan {
	uint64_t now;
	bool dirs[OBJECT_DIRS];
	struct disk *disk;
};

static void find_old(struct hnode *n, void *arg)
{
	struct floor *f = container_of(n, struct floor, node);
	struct old_scan *s = arg;

	if (fence_time_is_old(f->time, s->now))
		s->dirs[object_dir_index(f->ino)] = true;
}

static void forget_old(struct hnode *n, void *arg)
{
	struct floor *f = container_of(n, struct floor, node);
	struct old_scan *s = arg;

	if (fence_time_is_old(f->time, s->now) && !f->has_objects)
		floor_free(s->disk, f);
}

/* Drops tombstones older than any capability. Lists only directories with candidates. */
static int expire(struct disk *d)
{
	struct env *e = d->env;
	struct old_scan s = { .now = e->clock->wall(e), .disk = d };

	htab_walk(&d->floors, find_old, &s);
	for (unsigned i = 0; i < OBJECT_DIRS; i++) {
		int fd, r;

		if (!s.dirs[i])
			continue;
		fd = disk_dir_open(e, d->objects.fd, i);
		if (fd == -ENOENT)
			continue;
		if (fd < 0)
			return fd;
		r = e->file->list(e, fd, mark_floors_in_use, d);
		e->file->close(e, fd);
		if (r < 0)
			return r;
	}
	htab_walk(&d->floors, forget_old, &s);
	return 0;
}

static int cut_tail(struct disk *d, const struct load *l)
{
	struct env *e = d->env;
	int r = e->file->ftruncate(e, d->log.fd, (off_t)l->end);

	if (r == 0 && !d->nosync)
		r = e->file->fsync(e, d->log.fd);
	d->log.reserved = l->end;
	return r;
}

int fence_log_load(struct disk *d, char *err, size_t err_len)
{
	struct env *e = d->env;
	struct load l = { 0 };
	int r;

	d->log.fd = e->file->openat(e, d->dir, LOG_NAME, O_RDWR, 0);
	if (d->log.fd == -ENOENT)
		return error_explain(
			err, err_len, -EUCLEAN,
			"%s/%s is missing: restore it, or make it an empty file after all "
			"clients were stopped",
			d->path, LOG_NAME);
	r = d->log.fd < 0 ? d->log.fd : load_all(d, &l);
	if (l.lost_base)
		return error_explain(err, err_len, -EUCLEAN,
				     "%s/fences.base is missing or older than %s: restore both, or "
				     "make %s an empty file after all clients were stopped",
				     d->path, LOG_NAME, LOG_NAME);
	if (r == 0)
		r = expire(d);
	d->log.size = l.end;
	if (r == 0 && l.torn)
		r = cut_tail(d, &l);
	if (r < 0)
		return error_explain(err, err_len, r, "%s/%s cannot be read: %s: check the disk",
				     d->path, LOG_NAME, strerror(-r));
	if (l.damaged)
		log_error("disk", "%s/%s: %ju damaged records were skipped: check the disk",
			  d->path, LOG_NAME, (uintmax_t)l.damaged);
	if (l.records > d->floors.count || l.damaged) {
		r = rewrite_make(d);
		rewrite_end(d, r ? r : rewrite_write(e, &d->log.rewrite));
	}
	if (reserve(e, d->log.fd, d->log.size, &d->log.reserved) < 0)
		log_warn("disk", "%s is full: no room could be reserved for fences", d->path);
	else if (!d->nosync && (r = e->file->fsync(e, d->log.fd)) < 0)
		return error_explain(err, err_len, r, "%s/%s cannot be synced: %s: check the disk",
				     d->path, LOG_NAME, strerror(-r));
	return 0;
}
