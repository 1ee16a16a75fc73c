/* core: the event loop, the request step machine, timers, the buffer pool, and the tables of
 * functions for time, randomness, sockets, files and threads (struct env). The simulation replaces
 * these tables and runs the same code otherwise.
 *
 * Threads: a loop, and every object on it, belongs to the thread that turns it. Only loop_wake()
 * and worker_submit() may be called from other threads. */
#ifndef SHEAF_CORE_H
#define SHEAF_CORE_H

#include <sys/stat.h>
#include <sys/uio.h>

#include "base/base.h"

struct env;
struct loop;
struct req;
struct io;
struct job;
struct source;

/* ---------------------------------------------------------------- the environment */

struct clock_ops {
	uint64_t (*now)(struct env *e); /* monotonic nanoseconds */
	uint64_t (*wall)(struct env *e); /* nanoseconds since 1970 */
	void (*random)(struct env *e, void *p, size_t n); /* fit for secrets */
	/* A number that changes when the host boots: while it is the same, the page cache was not
	 * lost. 0 or NULL: not known. */
	uint64_t (*host_start)(struct env *e);
};

/* "@HOST:PORT" names the Unix socket of the server that listens at HOST:PORT on this host. */
static inline bool sock_is_local(const char *address)
{
	return *address == '@';
}

/* Non-blocking stream sockets and readiness. Descriptors are small integers of this table. An
 * address is HOST:PORT, or "@HOST:PORT": -EOPNOTSUPP if Unix sockets are switched off. */
/* Data that arrive on a TCP connection; 0: not known. */
struct sock_inflow {
	uint32_t out_of_order; /* segments so far: an earlier one was lost, or overtaken */
	uint32_t segment; /* bytes of a segment */
	uint64_t round_ns; /* the shortest round trip */
};

struct sock_ops {
	/* fd or -errno */
	int (*listen)(struct env *e, const char *address, char *err, size_t err_len);
	int (*accept)(struct env *e, int fd); /* fd, -EAGAIN, or another -errno */
	/* Origin of an accepted connection; not local if unknown. NULL: all are local. */
	void (*origin)(struct env *e, int fd, struct origin *out);
	/* Origin of connections over an address's Unix socket. May block. NULL: no Unix sockets. */
	void (*origin_local)(struct env *e, const char *address, struct origin *out);
	/* Uid of the peer of an accepted Unix connection; fd -1: the uid of this process. */
	uint32_t (*user)(struct env *e, int fd);
	int (*connect)(struct env *e, const char *address); /* fd; connects or breaks later */
	int (*connect_result)(struct env *e, int fd); /* 0 or -errno, once fd is writable */
	ssize_t (*readv)(struct env *e, int fd, const struct iovec *iov, int n); /* 0: closed */
	ssize_t (*writev)(struct env *e, int fd, const struct iovec *iov, int n);
	/* Sends head, then bytes of a file; like writev() it may stop anywhere. 0 after a short
	 * call: the file ends there. NULL: not supported. */
	ssize_t (*send_file)(struct env *e, int fd, const struct iovec *head, int n, int file,
			     uint64_t off, size_t len);
	/* Both NULL: not supported. */
	void (*inflow)(struct env *e, int fd, struct sock_inflow *out);
	void (*limit_window)(struct env *e, int fd, uint32_t bytes); /* 0: no limit */
	void (*close)(struct env *e, int fd);
	/* Creates and destroys the loop's poll state. */
	int (*loop_init)(struct env *e, struct loop *l);
	void (*loop_fini)(struct env *e, struct loop *l);
	/* events 0: stop watching */
	int (*watch)(struct env *e, struct loop *l, struct source *s, unsigned events);
	/* Waits at most `ns` (UINT64_MAX: without limit) and returns the number of events. Other
	 * threads may call watch() meanwhile, under the driver's lock. */
	int (*poll)(struct env *e, struct loop *l, uint64_t ns);
	/* Calls ready() of found sources that are still watched, and done() of jobs. */
	void (*dispatch)(struct env *e, struct loop *l);
	void (*wake)(struct env *e, struct loop *l); /* ends a wait; any thread */
};

/* Files. Calls other than submit() may block unless stated: for start, stop and worker threads. */
struct file_ops {
	int (*openat)(struct env *e, int dir, const char *path, int flags, mode_t mode);
	void (*close)(struct env *e, int fd);
	ssize_t (*preadv)(struct env *e, int fd, const struct iovec *iov, int n, off_t off);
	ssize_t (*pwritev)(struct env *e, int fd, const struct iovec *iov, int n, off_t off);
	int (*fsync)(struct env *e, int fd); /* of a directory, too */
	int (*syncfs)(struct env *e, int fd); /* its whole file system; may be NULL */
	int (*ftruncate)(struct env *e, int fd, off_t size);
	int (*fstat)(struct env *e, int fd, struct stat *st);
	/* As fallocate(2), and lseek(2) with SEEK_DATA or SEEK_HOLE. NULL: not supported. */
	int (*fallocate)(struct env *e, int fd, int mode, off_t off, off_t len);
	off_t (*seek)(struct env *e, int fd, off_t off, int whence);
	int (*unlinkat)(struct env *e, int dir, const char *path, int flags);
	int (*mkdirat)(struct env *e, int dir, const char *path, mode_t mode);
	int (*renameat)(struct env *e, int dir, const char *from, const char *to);
	/* Calls fn for every name in an open directory, in a stable order. */
	int (*list)(struct env *e, int dir, void (*fn)(void *arg, const char *name), void *arg);
	/* id: identifies the host and the file system; 0: not known */
	int (*statfs)(struct env *e, int fd, uint64_t *total, uint64_t *avail, uint64_t *id);
	/* Locks the file while fd is open. -EWOULDBLOCK: another process holds the lock. */
	int (*lock)(struct env *e, int fd);
	/* Performs those of n reads or n writes of one file that cannot block, and sets is_done in
	 * each. May be NULL. */
	void (*perform_now)(struct env *e, struct loop *l, struct io *ios, size_t n);
	/* Performs io and all that follow by `next` without blocking the loop, and reports each:
	 * inline if that cannot block, else through io_uring or a worker. */
	void (*submit)(struct env *e, struct loop *l, struct io *io);
	/* True: reading this range now does not block and finds no hole. May be NULL. */
	bool (*cached)(struct env *e, struct loop *l, int fd, uint64_t off, uint64_t len);
	/* As posix_fadvise(2), for a file system on a disk. May block. NULL: not supported. */
	void (*advise)(struct env *e, int fd, uint64_t off, uint64_t len, int advice);
	/* Maps the file's first `len` bytes, for system calls and guarded copies, which report
	 * -EFAULT for pages that the file does not hold. NULL: it cannot. May be NULL. */
	const char *(*map)(struct env *e, int fd, uint64_t len, bool writable);
	void (*unmap)(struct env *e, const char *map, uint64_t len);
	/* For direct reads (direct/direct.h), by another process of this host; never wait for a
	 * disk. May be NULL. dir_path: the path of an open directory for that process; its length,
	 * or -errno. */
	ssize_t (*dir_path)(struct env *e, int dir, char *path, size_t n);
	/* Opens that directory if it still has this dev and ino. *on_tmpfs: its file system is in
	 * memory. -EAGAIN: the path is not cached. */
	int (*open_dir_cached)(struct env *e, const char *path, uint64_t dev, uint64_t ino,
			       bool *on_tmpfs);
	/* Opens a file in it for reading. -EAGAIN: its name is not cached. */
	int (*open_cached)(struct env *e, int dir, const char *path);
	/* -EAGAIN: it would block. Short if only a part is cached. */
	ssize_t (*read_cached)(struct env *e, int fd, const struct iovec *iov, int n, off_t off,
			       bool on_tmpfs);
	/* Finds out what this file system can do inline; 0 or -errno. text: for the log. */
	int (*probe)(struct env *e, struct loop *l, int dir, char *text, size_t n);
};

/* A worker runs jobs one after another off the loop; job->done() is called on the loop. */
struct worker;
struct exec_ops {
	int (*worker_start)(struct env *e, struct loop *l, const char *name, struct worker **w);
	/* Any thread; j is lent until done(). */
	void (*worker_submit)(struct worker *w, struct job *j);
	void (*worker_stop)(struct worker *w); /* completes queued jobs, with done() */
};

struct env {
	const struct clock_ops *clock;
	const struct sock_ops *sock;
	const struct file_ops *file;
	const struct exec_ops *exec;
	const struct fabric_ops *fabric; /* RDMA: core/fabric.h; NULL: none */
	const struct bank_ops *bank; /* memcached: core/bank.h; NULL: none */
};

struct env *env_real(void); /* the kernel's; one per process, never freed */

struct job {
	struct list link;
	void (*run)(struct job *j); /* on the worker */
	void (*done)(struct job *j); /* on the loop */
};

static inline uint64_t env_random_u64(struct env *e)
{
	uint64_t x;

	e->clock->random(e, &x, sizeof(x));
	return x;
}

/* ---------------------------------------------------------------- event loop */

enum { EV_IN = 1, EV_OUT = 4, EV_ERR = 8 };

struct source {
	int fd;
	unsigned events; /* currently watched */
	void (*ready)(struct source *s, unsigned events);
	void *impl; /* private to the sock_ops */
};

struct timer {
	uint64_t when; /* 0: not set */
	uint64_t order; /* breaks ties by age */
	size_t at; /* heap index */
	void (*fire)(struct timer *t);
};

struct loop {
	struct env *env;
	struct list runnable; /* requests to step */
	struct list deferred; /* run after the runnable requests ... */
	struct list deferred_last; /* ... and after all of `deferred` */
	struct timer **heap;
	size_t n_heap, cap_heap;
	uint64_t timer_order;
	uint64_t now; /* refreshed once per turn */
	struct list all; /* every live request, oldest first: `sheaf requests` */
	size_t n_reqs;
	uint64_t turns;
	void *impl; /* private to the sock_ops: epoll state */
	void *file_impl; /* private to the file_ops: io_uring state */
	uint64_t calls; /* system calls of this loop: sockets, waiting, files */
	uint64_t io_inlined, io_handed; /* file accesses inline and handed over */
	uint64_t io_stalls, io_longest_stall; /* inline writes that blocked; the longest, in ns */
	bool sends_files; /* found by probe(): sendfile works */
	bool no_cachestat; /* the kernel does not tell what is cached */
	bool on_tmpfs; /* found by probe(): stores into a mapped file wait for no disk */
};

int loop_init(struct loop *l, struct env *e);
void loop_fini(struct loop *l); /* no request, timer or source may remain on it */
/* One turn: waits at most max_ns for an event, then runs what is ready. */
void loop_turn(struct loop *l, uint64_t max_ns);
/* The parts of a turn, for a driver that drops its lock while it waits. loop_wait_ns(): how long
 * this turn may wait (0: there is work). */
uint64_t loop_wait_ns(struct loop *l);
/* Runs expired timers and runnable requests, then deferred callbacks; does not wait. */
void loop_run_ready(struct loop *l);
void loop_run_reqs(struct loop *l); /* without deferred callbacks */
/* Calls run() once, after the runnable requests have run: so their messages leave together. */
struct deferred {
	struct list link;
	void (*run)(struct deferred *d);
};
void loop_defer(struct loop *l, struct deferred *d);
void loop_defer_last(struct loop *l, struct deferred *d); /* moves it from `deferred`, too */
void loop_run_deferred(struct loop *l);
void loop_wake(struct loop *l); /* any thread */
/* Of the real environment: readable while the loop has events to dispatch. */
int loop_descriptor(const struct loop *l);

/* Sets a timer, or moves one that is set. 0 or -ENOMEM. */
int timer_set(struct loop *l, struct timer *t, uint64_t when_ns);
void timer_del(struct loop *l, struct timer *t); /* no effect if not set */

/* ---------------------------------------------------------------- request step machine */

/* A request is a state and a step function. A state first names its successor with req_goto(), then
 * starts operations. Each operation holds the request (req_hold) when it starts and releases it
 * (req_done) when it ends, inline or later. When nothing is pending, the loop steps the request
 * again. The first error wins: the next step is then ops->on_error, unless that state was reached
 * before. */
struct req_ops {
	const char *name;
	bool (*step)(struct req *q); /* false: q is freed */
	uint16_t on_error; /* the state that replies; states are numbered in order */
	uint16_t n_states;
	const char *const *state_names; /* a state is printed as what the request waits for in it */
	void (*cancel)(struct req *q); /* its client gave up: ends its waits; or NULL */
	void (*abandon)(struct req *q); /* releases what it holds, as a crash would; or NULL */
};
/* Further arguments: .cancel or .abandon. */
#define REQ_OPS(name_, step_, on_error_, names_, ...) \
	{ \
		.name = name_, .step = step_, .on_error = on_error_, \
		.n_states = ARRAY_LEN(names_), .state_names = names_, ##__VA_ARGS__ \
	}

struct req {
	struct list link; /* on a run or wait queue */
	struct list all;
	const struct req_ops *ops;
	struct loop *loop;
	uint16_t state;
	uint16_t pending;
	bool stepping; /* its step function is on the stack */
	bool yields; /* waits only for its next turn */
	int error; /* the first one, -errno */
	uint64_t bytes; /* sum of the operations since it was last zeroed */
	uint64_t since; /* when it entered this state */
	struct hist *hists; /* one per state, or NULL: counts the time spent in each */
	uint64_t born;
	uint64_t trace;
};

void req_init(struct req *q, struct loop *l, const struct req_ops *ops, uint16_t state);
void req_goto(struct req *q, uint16_t state);
void req_hold(struct req *q);
void req_done(struct req *q, int error, uint64_t bytes);
/* From a step: the next step comes after other requests have run. */
void req_yield(struct req *q);
/* Sets the error of a step, if not 0; an earlier error of an operation is kept. */
void req_fail(struct req *q, int error);
/* Steps the request until something is pending. Called to start it, then by the loop. */
void req_run(struct req *q);
/* Removes the request from the loop; the caller owns the memory. The last call of step(). */
void req_fini(struct req *q);
/* The same although operations are pending, which never end: a server's memory is freed as if it
 * had crashed. */
void req_abandon(struct req *q);

/* ---------------------------------------------------------------- buffer pool */

/* All bulk memory of a target: equal units of one mapping. A grant is all or nothing; else the
 * request waits. Each client has a share of at most an eighth of the pool; the last quarter of the
 * pool is for shares that hold nothing. So a client that is slow to return buffers does not delay
 * the others. Grants are in order within a share; shares take turns. */
#define BUF_UNIT (64 * KIB)
#define BUF_MAX_UNITS 16

struct pool_share {
	struct list line; /* waiting struct buf */
	struct list turn; /* in pool->waiting, while the share waits for memory */
	size_t held; /* units */
	bool is_wide; /* see pool_share_widen() */
};

struct pool {
	struct loop *loop;
	void *base;
	size_t n_units, n_free;
	uint32_t *free; /* stack of unit numbers */
	struct list waiting; /* struct pool_share */
	struct pool_share common; /* for operations that are never slow: bounded only by the pool */
	uint32_t n_holders; /* other shares that hold units */
	uint64_t n_waits; /* waits of shares below their limit */
};

struct buf {
	struct list link;
	struct pool *pool;
	struct pool_share *share;
	struct req *q; /* the waiting request */
	size_t len; /* requested bytes */
	uint32_t n; /* units held */
	struct iovec iov[BUF_MAX_UNITS]; /* sums to len */
};

int pool_init(struct pool *p, struct loop *l, size_t bytes);
void pool_fini(struct pool *p);
void pool_share_init(struct pool_share *s); /* needs no fini, must end empty */
/* Lets the share hold a quarter of the pool instead of an eighth, or no longer. */
void pool_share_widen(struct pool *p, struct pool_share *s, bool is_wide);
/* Holds q until b has len bytes (at most BUF_MAX_UNITS units). NULL: the common share. */
void buf_get(struct pool *p, struct pool_share *s, struct buf *b, size_t len, struct req *q);
/* Returns the units; no effect on an empty b. */
void buf_put(struct buf *b);
/* Copies bytes [from, from + len) of b to [to, to + len); the ranges must not overlap. */
void buf_copy(struct buf *b, size_t to, size_t from, size_t len);

/* ---------------------------------------------------------------- file accesses */

enum io_kind { IO_READ, IO_WRITE, IO_SYNC, IO_OPEN, IO_TRUNCATE, IO_UNLINK, IO_CALL };

/* One file access; lent to the engine from submit to req_done. Reads and writes are complete or
 * fail, except that a read may be short at the end of the file (io->bytes has its length). */
struct io {
	enum io_kind kind;
	int fd; /* for a path: its directory */
	const char *path; /* IO_OPEN, IO_UNLINK */
	int flags; /* IO_OPEN: open flags; the new fd is stored in `bytes` */
	const struct iovec *iov;
	int n;
	uint64_t off; /* IO_TRUNCATE: the new size */
	/* IO_CALL: any blocking call, on a worker */
	int (*call)(struct env *e, struct io *io);
	void *arg;
	struct req *q;
	uint64_t bytes; /* result */
	int error; /* result: 0 or -errno */
	void (*done)(struct io *io); /* optional: called instead of req_done(q, error, bytes) */
	/* private to the engine */
	struct io_queue *queue; /* where it was queued, or NULL */
	struct io *next; /* submitted together */
	struct io *joined; /* performed with it: the access that begins where this one ends */
	bool is_alone; /* must not be joined */
	bool is_done; /* by perform_now() */
	struct list link;
	struct job job;
	struct loop *loop;
	uint64_t len, total; /* bytes of iov; together with those joined */
	uint64_t so_far;
};

void io_submit(struct loop *l, struct io *io); /* holds io->q if set */
void io_submit_all(struct loop *l, struct io *ios, size_t n); /* n > 0; performed in any order */
void io_perform(struct env *e, struct io *io); /* blocking; fills error and bytes */
/* For engines: reports the result; the next part of the buffers, also of joined accesses, from
 * so_far on; prepares an access that is submitted, and one that is repeated. */
void io_finish(struct io *io);
size_t io_slice(const struct io *io, struct iovec *out, size_t max);
void io_begin(struct loop *l, struct io *io);
void io_reset(struct io *io);

/* The reads and writes of one file that may block: they are queued while others are in progress,
 * and adjacent ones are joined. */
struct io_queue {
	struct list reads, writes; /* struct io that wait */
	uint32_t reads_away, writes_away; /* in progress */
	uint32_t allocations; /* in progress: the file system locks the file for them */
	uint64_t *joined; /* counts accesses that became part of another one */
};
void io_queue_init(struct io_queue *f, uint64_t *joined);
/* As io_submit_all(), for reads and writes that do not overlap unless both are reads, or of one
 * call. The queue must live until they have ended. */
void io_queue_submit(struct io_queue *f, struct loop *l, struct io *ios, size_t n);
void io_queue_ended(struct io *io); /* for io_finish() */
/* Accesses that the loop performed inline, and those handed to io_uring or a worker. */
void file_counters(struct loop *l, uint64_t *inlined, uint64_t *handed);

/* ---------------------------------------------------------------- iovec helpers */

size_t iov_total(const struct iovec *iov, size_t n);
/* Writes the part [skip, skip+len) of iov into out (at most max entries); returns entries used and
 * the bytes they hold in *got. */
size_t iov_slice(const struct iovec *iov, size_t n, size_t skip, size_t len, struct iovec *out,
		 size_t max, size_t *got);

#endif
