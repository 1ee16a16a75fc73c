/* The engine behind io_submit() on real files: performs each access in the cheapest way that cannot
 * block the loop. In order of preference:
 *
 *   memory file systems      plain preadv/pwritev/fsync, inline
 *   NOWAIT if supported      preadv2/pwritev2 with RWF_NOWAIT, inline; if that would block:
 *   writes on ext4           plain pwritev, inline while nothing blocks (inline_write.c)
 *   io_uring                 one ring per loop, its descriptor a source of the loop
 *   a worker                 open, truncate, unlink and calls; everything if there is no io_uring
 *
 * Threads: the loop's; a worker accesses only its struct io. Buffers: the caller's iovecs until
 * io_finish(). Errors: in io->error; what io_uring cannot do is repeated by the worker. */
#include <assert.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/env_real.h"
#include "core/inline_write.h"

#define RING_ENTRIES 256
#define RING_PARTS 256 /* iovecs of one access in the ring; the rest continues */
#define INLINE_PARTS 64
#define CLOSE_BYTES \
	(32 * KIB) /* distance of writes for which the pages between them are read, too */

/* loop->file_impl */
struct engine {
	struct loop *loop;
	bool probed, on_tmpfs, nowait_read, nowait_write;
	unsigned forbidden;
	struct inline_writes writes;
	bool have_ring;
	struct io_uring ring;
	struct source source; /* the ring's descriptor */
	unsigned in_ring; /* at most RING_ENTRIES, so completions never overflow */
	struct list pending; /* struct io that wait because the ring was full */
	struct worker *worker;
	struct worker *writer; /* for chains of writes, so that opens do not wait behind them */
};

static struct engine *engine_of(struct loop *l)
{
	struct engine *g = l->file_impl;

	if (g)
		return g;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->loop = l;
	list_init(&g->pending);
	l->file_impl = g;
	return g;
}

int engine_forbid(struct loop *l, unsigned ways)
{
	struct engine *g = engine_of(l);

	if (!g)
		return -ENOMEM;
	g->forbidden = ways;
	return 0;
}

/* ---------------------------------------------------------------- the worker */

/* Writes that change pages in part read these first, each on its own. Where they are close together
 * the disk reads them at once. */
static void read_pages(struct env *e, const struct io *io)
{
	uint64_t lo = io->off, hi = 0, n = 0;
	bool in_part = false;
	int fd = io->fd;

	for (; io && io->kind == IO_WRITE && io->fd == fd; io = io->next) {
		lo = MIN(lo, io->off);
		hi = MAX(hi, io->off + io->total);
		in_part |= io->off % LEAST_PAGE || (io->off + io->total) % LEAST_PAGE;
		n++;
	}
	if (n > 1 && in_part && hi - lo <= n * CLOSE_BYTES)
		e->file->advise(e, fd, lo, hi - lo, POSIX_FADV_WILLNEED);
}

static void job_run(struct job *j)
{
	read_pages(container_of(j, struct io, job)->loop->env, container_of(j, struct io, job));
	for (struct io *io = container_of(j, struct io, job); io; io = io->next)
		io_perform(io->loop->env, io);
}

/* Finishing the last one may free their memory. */
static void job_done(struct job *j)
{
	for (struct io *next, *io = container_of(j, struct io, job); io; io = next) {
		next = io->next;
		io_finish(io);
	}
}

/* Submits the chain as one job, to wake the worker once. Each io continues at its so_far. */
static void hand_to(struct engine *g, struct worker **w, struct io *io)
{
	struct env *e = g->loop->env;
	int r = 0;

	if (!*w)
		r = e->exec->worker_start(e, g->loop, w == &g->writer ? "sheaf-write" : "sheaf-io",
					  w);
	if (r < 0) {
		for (struct io *i = io; i; i = i->next)
			i->error = r;
		job_done(&io->job);
		return;
	}
	io->job = (struct job){ .run = job_run, .done = job_done };
	e->exec->worker_submit(*w, &io->job);
}

/* ---------------------------------------------------------------- io_uring */

static bool ring_usable(const struct engine *g)
{
	return g->have_ring && !(g->forbidden & ENGINE_NO_RING);
}

/* `part` must live until io_uring_submit() copies it (IORING_FEAT_SUBMIT_STABLE). */
static void ring_prepare(struct io_uring_sqe *sqe, struct io *io, struct iovec *part)
{
	size_t k;

	if (io->kind == IO_SYNC) {
		io_uring_prep_fsync(sqe, io->fd, 0);
	} else {
		k = io_slice(io, part, RING_PARTS);
		if (io->kind == IO_READ)
			io_uring_prep_readv(sqe, io->fd, part, (unsigned)k, io->off + io->so_far);
		else
			io_uring_prep_writev(sqe, io->fd, part, (unsigned)k, io->off + io->so_far);
	}
	io_uring_sqe_set_data(sqe, io);
}

static void ring_start(struct engine *g, struct io *io)
{
	struct iovec part[RING_PARTS];
	struct io_uring_sqe *sqe;
	int r;

	if (g->in_ring >= RING_ENTRIES || !(sqe = io_uring_get_sqe(&g->ring))) {
		list_push(&g->pending, &io->link);
		return;
	}
	ring_prepare(sqe, io, part);
	do {
		r = io_uring_submit(&g->ring);
	} while (r == -EINTR);
	if (r < 0) { /* not submitted: turn the entry into a no-op */
		io_uring_prep_nop(sqe);
		io_uring_sqe_set_data(sqe, NULL);
		hand_to(g, &g->worker, io);
		return;
	}
	g->in_ring++;
}

static void ring_completed(struct engine *g, struct io *io, int res)
{
	if (res == -EINTR || res == -EAGAIN || res == -EOPNOTSUPP || res == -ECANCELED) {
		hand_to(g, &g->worker, io);
		return;
	}
	if (res < 0) {
		io->error = res;
	} else if (io->kind != IO_SYNC) {
		io->so_far += (uint64_t)res;
		io->bytes = io->so_far;
		if (res == 0 && io->kind == IO_WRITE)
			io->error = -ENOSPC;
		else if (res && io->so_far < io->total) {
			ring_start(g, io);
			return;
		}
	}
	io_finish(io);
}

static void ring_ready(struct source *s, unsigned events)
{
	struct engine *g = container_of(s, struct engine, source);
	struct io_uring_cqe *cqe;
	struct list *it;

	(void)events;
	while (io_uring_peek_cqe(&g->ring, &cqe) == 0) {
		struct io *io = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&g->ring, cqe);
		if (!io)
			continue;
		g->in_ring--;
		ring_completed(g, io, res);
	}
	for (unsigned room = RING_ENTRIES - g->in_ring; room && (it = list_pop(&g->pending));
	     room--)
		ring_start(g, list_entry(it, struct io, link));
}

/* A missing ring is no error: sandboxes forbid io_uring, old kernels lack it. */
static void ring_open(struct engine *g)
{
	struct env *e = g->loop->env;
	struct io_uring_params p = { .flags = IORING_SETUP_CLAMP };

	if (io_uring_queue_init_params(RING_ENTRIES, &g->ring, &p) < 0)
		return;
	g->source = (struct source){ .fd = g->ring.ring_fd, .ready = ring_ready };
	if (!(p.features & IORING_FEAT_SUBMIT_STABLE) || !(p.features & IORING_FEAT_NODROP) ||
	    e->sock->watch(e, g->loop, &g->source, EV_IN) < 0) {
		io_uring_queue_exit(&g->ring);
		return;
	}
	g->have_ring = true;
}

/* ---------------------------------------------------------------- inline */

/* One non-blocking piece of a transfer; -EAGAIN: it would block. */
static ssize_t inline_piece(struct io *io, int flags)
{
	struct iovec part[INLINE_PARTS];
	size_t k = io_slice(io, part, INLINE_PARTS);
	off_t off = (off_t)(io->off + io->so_far);
	ssize_t r = io->kind == IO_READ ? preadv2(io->fd, part, (int)k, off, flags) :
					  pwritev2(io->fd, part, (int)k, off, flags);

	return r < 0 ? -errno : r;
}

/* False: not finished, the rest has to go where it may block. */
static bool inline_transfer(struct engine *g, struct io *io)
{
	bool *nowait = io->kind == IO_READ ? &g->nowait_read : &g->nowait_write;

	while (io->so_far < io->total) {
		ssize_t r = inline_piece(io, *nowait ? RWF_NOWAIT : 0);

		if (r == -EINTR)
			continue;
		if (r == -EOPNOTSUPP && *nowait) { /* the probe's result no longer holds */
			*nowait = false;
			return false;
		}
		if (r == -EAGAIN && *nowait)
			return false;
		if (r == 0 && io->kind == IO_WRITE)
			r = -ENOSPC;
		if (r < 0)
			io->error = (int)r;
		if (r <= 0)
			break;
		io->so_far += (uint64_t)r;
	}
	io->bytes = io->so_far;
	return true;
}

static bool try_inline(struct engine *g, struct io *io)
{
	bool done = false;

	if (g->forbidden & ENGINE_NO_INLINE)
		return false;
	if (io->kind == IO_READ)
		done = (g->on_tmpfs || g->nowait_read) && inline_transfer(g, io);
	else if (io->kind == IO_WRITE)
		done = (g->on_tmpfs || g->nowait_write) && inline_transfer(g, io);
	else if (io->kind == IO_SYNC)
		done = g->on_tmpfs; /* nothing to do */
	g->loop->io_inlined += done;
	return done;
}

/* Writes on a file system that cannot tell whether they block. */
static void write_now(struct engine *g, struct io *ios, size_t n)
{
	struct loop *l = g->loop;

	if (g->forbidden & ENGINE_NO_INLINE || !inline_writes_begin(&g->writes, l->env, l, ios, n))
		return;
	for (size_t i = 0; i < n && !g->writes.stalled; i++) {
		if (!inline_writes_may(&g->writes, l->env, l, &ios[i]))
			continue;
		l->calls++;
		ios[i].is_done = inline_transfer(g, &ios[i]);
		l->io_inlined += ios[i].is_done;
		inline_writes_performed(&g->writes, l);
	}
}

void engine_perform_now(struct env *e, struct loop *l, struct io *ios, size_t n)
{
	struct engine *g = engine_of(l);

	(void)e;
	if (g && g->writes.on && ios[0].kind == IO_WRITE) {
		write_now(g, ios, n);
		return;
	}
	for (size_t i = 0; g && i < n; i++) {
		l->calls++;
		ios[i].is_done = try_inline(g, &ios[i]);
	}
}

/* Reads of one chain run in parallel; writes to one file would only wait for each other. */
static bool for_ring(const struct engine *g, const struct io *io, bool alone)
{
	return ring_usable(g) &&
	       (io->kind == IO_READ || io->kind == IO_SYNC || (io->kind == IO_WRITE && alone));
}

void engine_submit(struct env *e, struct loop *l, struct io *io)
{
	struct engine *g = engine_of(l);
	struct io *writes = NULL, **tail = &writes;
	bool alone = !io->next;

	(void)e;
	for (struct io *next; io; io = next) {
		next = io->next;
		io->next = NULL;
		l->calls++;
		if (!g) {
			io->error = -ENOMEM;
			io_finish(io);
		} else if (!io->queue && try_inline(g, io)) {
			io_finish(io);
		} else if (for_ring(g, io, alone)) {
			l->io_handed++;
			ring_start(g, io);
		} else if (alone) {
			l->io_handed++;
			hand_to(g, &g->worker, io);
		} else {
			l->io_handed++;
			*tail = io;
			tail = &io->next;
		}
	}
	if (writes)
		hand_to(g, &g->writer, writes);
}

/* ---------------------------------------------------------------- probe */

static int scratch_file(int dir)
{
	static const char name[] = ".probe";
	int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0) {
		fd = openat(dir, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		unlinkat(dir, name, 0);
	}
	return fd;
}

/* Reads and overwrites a cached page. EAGAIN means that NOWAIT is supported. */
static int probe_nowait(int fd, bool *can_read, bool *can_write)
{
	char page[4096] = { 0 };
	struct iovec iov = { page, sizeof(page) };

	*can_read = *can_write = false;
	if (pwrite(fd, page, sizeof(page), 0) < 0)
		return -errno;
	*can_read = preadv2(fd, &iov, 1, 0, RWF_NOWAIT) > 0 || errno == EAGAIN;
	*can_write = pwritev2(fd, &iov, 1, 0, RWF_NOWAIT) > 0 || errno == EAGAIN;
	return 0;
}

/* Can sendfile send from this file system? */
static bool probe_sending(int fd)
{
	int s[2];
	bool yes;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s) < 0)
		return false;
	yes = pwrite(fd, "", 1, 0) == 1 && sendfile(s[0], fd, &(off_t){ 0 }, 1) == 1;
	close(s[0]);
	close(s[1]);
	return yes;
}

/* A loop that serves several directories does inline only what all of them support. */
int engine_probe(struct env *e, struct loop *l, int dir, char *text, size_t n)
{
	struct engine *g = engine_of(l);
	bool on_tmpfs = is_on_tmpfs(dir, NULL), can_read = true, can_write = true;
	int fd, r = 0;

	(void)e;
	if (!g)
		return -ENOMEM;
	fd = scratch_file(dir);
	if (!on_tmpfs)
		r = fd < 0 ? fd : probe_nowait(fd, &can_read, &can_write);
	g->on_tmpfs = l->on_tmpfs = on_tmpfs && (!g->probed || g->on_tmpfs);
	g->nowait_read = can_read && !on_tmpfs && (!g->probed || g->nowait_read);
	g->nowait_write = can_write && !on_tmpfs && (!g->probed || g->nowait_write);
	l->sends_files = fd >= 0 && probe_sending(fd) && (!g->probed || l->sends_files);
	inline_writes_add(&g->writes, dir);
	g->probed = true;
	if (fd >= 0)
		close(fd);
	if (!g->have_ring && !g->on_tmpfs)
		ring_open(g);
	snprintf(text, n, "reads %s, writes %s, the rest %s",
		 g->on_tmpfs	? "in memory" :
		 g->nowait_read ? "inline when cached" :
				  "handed over",
		 g->on_tmpfs	 ? "in memory" :
		 g->nowait_write ? "inline when cached" :
		 g->writes.on	 ? "inline while the disk keeps up" :
				   "handed over",
		 g->have_ring ? "by io_uring" : "by a worker thread");
	return r;
}

void engine_fini(struct loop *l)
{
	struct engine *g = l->file_impl;
	struct env *e = l->env;
	struct io_uring_cqe *cqe;

	if (!g)
		return;
	while (g->in_ring || g->worker ||
	       g->writer) { /* no request waits any more, but the kernel may still write */
		struct worker *w = g->worker, *writer = g->writer;

		g->worker = g->writer = NULL;
		if (w)
			e->exec->worker_stop(w);
		if (writer)
			e->exec->worker_stop(writer);
		if (g->in_ring && io_uring_wait_cqe(&g->ring, &cqe) == 0)
			ring_ready(&g->source, EV_IN);
	}
	if (g->have_ring) {
		e->sock->watch(e, l, &g->source, 0);
		io_uring_queue_exit(&g->ring);
	}
	inline_writes_fini(&g->writes);
	l->file_impl = NULL;
	free(g);
}

/* ---------------------------------------------------------------- page cache */

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

/* Uses cachestat of Linux 6.5, declared here. On older kernels only RWF_NOWAIT tells, page by
 * page. */
bool engine_cached(struct env *e, struct loop *l, int fd, uint64_t off, uint64_t len)
{
	struct engine *g = l->file_impl;
	struct {
		uint64_t off, len;
	} range = { off, len };
	struct {
		uint64_t cache, dirty, writeback, evicted, recently_evicted;
	} stat;
	char byte;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t pages = (off + len + page - 1) / page - off / page;

	(void)e;
	if (!g || !g->probed || g->forbidden & ENGINE_NO_INLINE)
		return false;
	if (l->no_cachestat && (pages > 1 || !g->nowait_read))
		return false;
	l->calls++;
	if (l->no_cachestat)
		return preadv2(fd, &(struct iovec){ &byte, 1 }, 1, (off_t)off, RWF_NOWAIT) == 1;
	if (syscall(SYS_cachestat, fd, &range, &stat, 0) == 0)
		return stat.cache >= pages;
	l->no_cachestat = errno == ENOSYS;
	return false;
}
