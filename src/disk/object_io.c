/* Accesses to an open object: mappings, attributes, reads, writes, allocation and holes.
 *
 * Threads: the loop's, except functions named *_call(), which run on a worker and see only their
 * arguments. Buffers: the caller's, until its request continues. Errors: those of the file are
 * passed on. */
#include <fcntl.h>
#include <unistd.h>

#include "disk/disk_impl.h"

/* ---------------------------------------------------------------- mappings and attributes */

int object_file(const struct object *o)
{
	return o->fd;
}

/* The old mapping must have no users. */
static void map_again(struct object *o)
{
	struct env *e = o->disk->env;
	uint64_t len = OBJECT_MAP;

	while (len < OBJECT_MAP_MAX && len / 2 < o->end) /* leave room: in use it cannot grow */
		len *= 2;
	if (o->map)
		e->file->unmap(e, o->map, o->map_len);
	o->map = e->file->map(e, o->fd, len, o->disk->loop->on_tmpfs);
	o->map_len = o->map ? len : 0;
	o->no_map = !o->map;
}

const char *object_map(struct object *o, uint64_t off, uint64_t len)
{
	if (!o->disk->env->file->map || o->no_map || off + len > o->end)
		return NULL;
	if (off + len > o->map_len && o->map_len < OBJECT_MAP_MAX && !o->map_users)
		map_again(o);
	if (off + len > o->map_len)
		return NULL;
	o->map_users++;
	return o->map + off;
}

void object_unmap(struct object *o)
{
	o->map_users--;
}

void object_forget_resident(struct object *o)
{
	o->resident_lo = o->resident_hi = 0;
	o->blocks_stale = true;
}

/* A file on tmpfs keeps its pages until it is truncated or punched, which only this server does:
 * the kernel need not be asked again. (Swapped-out pages block, as in any access to the file.) */
static void note_resident(struct object *o, uint64_t lo, uint64_t hi)
{
	if (o->resident_lo < o->resident_hi && lo <= o->resident_hi && hi >= o->resident_lo) {
		lo = MIN(lo, o->resident_lo);
		hi = MAX(hi, o->resident_hi);
	}
	o->resident_lo = lo;
	o->resident_hi = hi;
}

bool object_cached(struct object *o, uint64_t off, uint64_t len)
{
	struct loop *l = o->disk->loop;
	struct env *e = o->disk->env;
	bool yes;

	if (off >= o->resident_lo && off + len <= o->resident_hi)
		return true;
	yes = e->file->cached && e->file->cached(e, l, o->fd, off, len);
	if (yes && l->on_tmpfs)
		note_resident(o, off / LEAST_PAGE * LEAST_PAGE,
			      (off + len + LEAST_PAGE - 1) / LEAST_PAGE * LEAST_PAGE);
	return yes;
}

uint64_t object_end(const struct object *o)
{
	return o->end;
}

int64_t object_mtime(const struct object *o)
{
	return o->mtime;
}

/* True if no block before the end is missing: a write that leaves no gap then adds the blocks that
 * it covers, and no fstat is needed. */
static bool is_dense(const struct object *o)
{
	return !o->blocks_stale && o->blocks * 512 >= o->end;
}

/* Updates o->blocks for a write of [off, end). */
static void blocks_written(struct object *o, uint64_t off, uint64_t end)
{
	if (is_dense(o) && off <= o->end)
		o->blocks =
			MAX(o->blocks, (end + LEAST_PAGE - 1) / LEAST_PAGE * (LEAST_PAGE / 512));
	else
		o->blocks_stale = true;
}

uint64_t object_blocks(struct object *o)
{
	struct env *e = o->disk->env;
	struct stat st;

	if (o->blocks_stale && e->file->fstat(e, o->fd, &st) == 0) {
		o->blocks = (uint64_t)st.st_blocks;
		o->blocks_stale = false;
	}
	return o->blocks;
}

static void zero_from(const struct iovec *iov, int n, uint64_t from)
{
	for (int i = 0; i < n; i++) {
		size_t skip = MIN(from, iov[i].iov_len);

		memset((char *)iov[i].iov_base + skip, 0, iov[i].iov_len - skip);
		from -= skip;
	}
}

static void read_done(struct io *io)
{
	if (!io->error) {
		zero_from(io->iov, io->n, io->bytes);
		io->bytes = iov_total(io->iov, (size_t)io->n);
	}
	req_done(io->q, io->error, io->error ? 0 : io->bytes);
}

static void try_read_done(struct io *io)
{
	int error = io->error;

	io->error = 0;
	if (error)
		req_done(io->q, 0, 0);
	else
		read_done(io);
	io->error = error;
}

static bool is_beyond_max(uint64_t off, size_t len)
{
	return off > INT64_MAX || len > INT64_MAX - off;
}

/* Offsets and buffers come from the caller's ios, everything else from `how`. */
static void submit_ios(struct object *o, struct io *ios, size_t n, const struct io *how,
		       struct req *q)
{
	for (size_t i = 0; i < n; i++) {
		struct io io = *how;

		io.fd = o->fd;
		io.iov = ios[i].iov;
		io.n = ios[i].n;
		io.off = ios[i].off;
		io.arg = o;
		io.q = q;
		ios[i] = io;
	}
	if (how->kind == IO_READ || how->kind == IO_WRITE)
		io_queue_submit(&o->queue, o->disk->loop, ios, n);
	else
		io_submit_all(o->disk->loop, ios, n);
}

static void submit_reads(struct object *o, struct io *ios, size_t n, void (*done)(struct io *io),
			 struct req *q)
{
	o->disk->counters.reads += n;
	object_count(o, 0, n);
	submit_ios(o, ios, n, &(struct io){ .kind = IO_READ, .done = done }, q);
}

void object_read(struct object *o, struct io *ios, size_t n, struct req *q)
{
	submit_reads(o, ios, n, read_done, q);
}

void object_try_read(struct object *o, struct io *ios, size_t n, struct req *q)
{
	submit_reads(o, ios, n, try_read_done, q);
}

/* Runs on a worker. */
static int stat_call(struct env *e, struct io *io)
{
	struct stat st;
	int r = e->file->fstat(e, io->fd, &st);

	if (r == 0)
		io->bytes = (uint64_t)st.st_size;
	return r;
}

static void restat_done(struct io *io)
{
	struct object *o = io->arg;

	if (!io->error)
		o->end = MAX(o->end, io->bytes);
	io->bytes = 0;
	io->error = io->flags;
	req_done(io->q, io->error, 0);
}

/* A failed write may have moved the end, but not back: asks the file for its size. */
static void write_failed(struct object *o, struct io *io)
{
	struct req *q = io->q;

	io->flags = io->error;
	io->kind = IO_CALL;
	io->call = stat_call;
	io->done = restat_done;
	io_submit(o->disk->loop, io); /* holds q again */
	req_done(q, 0, 0);
}

static void write_done(struct io *io)
{
	struct object *o = io->arg;

	o->gs.changed++;
	if (io->error) {
		o->blocks_stale = true;
		write_failed(o, io);
		return;
	}
	if (io->bytes) {
		blocks_written(o, io->off, io->off + io->bytes);
		o->end = MAX(o->end, io->off + io->bytes);
	}
	req_done(io->q, 0, io->bytes);
}

/* Checks, counts and submits changes of the contents. */
static void submit_changes(struct object *o, struct io *ios, size_t n, const struct io *how,
			   int64_t now, struct req *q)
{
	for (size_t i = 0; i < n; i++)
		if (is_beyond_max(ios[i].off, iov_total(ios[i].iov, (size_t)ios[i].n))) {
			req_hold(q);
			req_done(q, -EFBIG, 0);
			return;
		}
	o->disk->counters.writes += n;
	o->mtime = now;
	if (how->kind == IO_CALL)
		o->queue.allocations += (uint32_t)n;
	submit_ios(o, ios, n, how, q);
}

void object_write(struct object *o, struct io *ios, size_t n, int64_t now, struct req *q)
{
	object_count(o, 0, n);
	submit_changes(o, ios, n, &(struct io){ .kind = IO_WRITE, .done = write_done }, now, q);
}

void object_count(struct object *o, uint64_t requested, uint64_t performed)
{
	o->disk->counters.requested += requested;
	o->disk->counters.performed += performed;
}

void object_count_cover(struct object *o, const struct extent *pieces, const struct sieve_part *p,
			bool write)
{
	struct disk_counters *c = &o->disk->counters;

	if (!p->covers)
		return;
	c->read_modify_writes += write;
	c->vain_bytes += p->hi - p->lo;
	for (uint32_t i = p->first; i < p->first + p->n; i++)
		c->vain_bytes -= pieces[i].length;
}

/* ---------------------------------------------------------------- room and holes */

#define ROUND_UP (1 * MIB) /* a multiple of every block size */

static int allocate(struct env *e, const struct io *io, int mode, uint64_t len)
{
	if (!e->file->fallocate)
		return -EOPNOTSUPP;
	return e->file->fallocate(e, io->fd, mode, (off_t)io->off, (off_t)len);
}

/* Punches up to the end of the file, rounded up so that its last block is freed as a whole. */
static int punch(struct env *e, const struct io *io, uint64_t len)
{
	struct stat st;
	int r = e->file->fstat(e, io->fd, &st);
	uint64_t size = r ? 0 : (uint64_t)st.st_size;

	if (r || size <= io->off)
		return r;
	len = MIN(len, size + ROUND_UP - size % ROUND_UP - io->off);
	return allocate(e, io, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, len);
}

/* Without preallocation, at least moves the end: writes a zero to the last byte of the range. That
 * byte has no data yet: the caller has the turn at the range, and the file is shorter. Writers of
 * other ranges may extend the file meanwhile. */
static int extend(struct env *e, const struct io *io, uint64_t len)
{
	char byte = 0;
	struct iovec zero = { &byte, 1 };
	struct stat st;
	int r = e->file->fstat(e, io->fd, &st);
	ssize_t n;

	if (r || (uint64_t)st.st_size >= io->off + len)
		return r;
	n = e->file->pwritev(e, io->fd, &zero, 1, (off_t)(io->off + len - 1));
	return n < 0 ? (int)n : n ? 0 : -ENOSPC;
}

/* Runs on a worker. Sets io->bytes to the length of the range if the end may move, else to 0. */
static int allocate_call(struct env *e, struct io *io)
{
	uint64_t len = iov_total(io->iov, (size_t)io->n);
	int keep = io->flags & FALLOC_FL_KEEP_SIZE, r = 0;

	if (!len)
		return 0;
	if (io->flags & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		r = punch(e, io, len);
	if (r || io->flags & FALLOC_FL_PUNCH_HOLE)
		return r;
	r = allocate(e, io, keep, len);
	if (r == -EOPNOTSUPP)
		r = keep ? 0 : extend(e, io, len);
	if (!r && !keep)
		io->bytes = len;
	return r;
}

static void allocate_done(struct io *io)
{
	struct object *o = io->arg;

	o->queue.allocations--;
	object_forget_resident(o);
	write_done(io);
}

void object_allocate(struct object *o, struct io *ios, size_t n, int mode, int64_t now,
		     struct req *q)
{
	submit_changes(o, ios, n,
		       &(struct io){ .kind = IO_CALL,
				     .call = allocate_call,
				     .flags = mode,
				     .done = allocate_done },
		       now, q);
}

/* Runs on a worker. If the file system cannot report holes, there are none. */
static int seek_call(struct env *e, struct io *io)
{
	bool hole = io->flags == SEEK_HOLE;
	off_t r = e->file->seek ? e->file->seek(e, io->fd, (off_t)io->off, io->flags) : -EINVAL;

	if (r == -EINVAL) {
		int error = stat_call(e, io);

		if (error)
			return error;
		if (io->off >= io->bytes)
			r = -ENXIO;
		else
			r = (off_t)(hole ? io->bytes : io->off);
	}
	if (r < 0 && r != -ENXIO)
		return (int)r;
	if (r == -ENXIO)
		io->bytes = hole ? io->off : UINT64_MAX;
	else
		io->bytes = (uint64_t)r;
	return 0;
}

static void seek_done(struct io *io)
{
	req_done(io->q, io->error, 0);
}

void object_seek(struct object *o, struct io *io, int whence, struct req *q)
{
	submit_ios(o, io, 1,
		   &(struct io){
			   .kind = IO_CALL, .call = seek_call, .flags = whence, .done = seek_done },
		   q);
}
