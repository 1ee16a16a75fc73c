/* core: the event loop, the request step machine, timers, the buffer pool, and the tables behind
 * which time, randomness, sockets, files and threads hide (struct env), so that the simulation
 * runs the very code that ships.
 *
 * Threads: a loop, and everything that hangs on it, belongs to the thread that turns it. Only
 * loop_wake() and worker_submit() may be called from elsewhere. */
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

/* ---------------------------------------------------------------- the world outside */

struct clock_ops {
	uint64_t (*now)(struct env *e); /* monotonic nanoseconds */
	uint64_t (*wall)(struct env *e); /* nanoseconds since 1970 */
	void (*random)(struct env *e, void *p, size_t n); /* fit for secrets */
	/* A number of this start of the host: while it is the same, page caches are. 0, or no
	 * such call: not known. */
	uint64_t (*host_start)(struct env *e);
};

/* "@HOST:PORT" is a shorter way to who listens at HOST:PORT, if that is on this host. */
static inline bool sock_is_local(const char *address)
{
	return *address == '@';
}

/* Non-blocking stream sockets and readiness. Descriptors are small integers of this table. An address is HOST:PORT, or
 * the shorter way to it; where that is not used, listen and connect say -EOPNOTSUPP. */
struct sock_ops {
	/* fd or -errno */
	int (*listen)(struct env *e, const char *address, char *err, size_t err_len);
	int (*accept)(struct env *e, int fd); /* fd, -EAGAIN, or another -errno */
	/* Where an accepted connection comes from; what cannot be told is not local. NULL: all is local. */
	void (*origin)(struct env *e, int fd, struct origin *out);
	/* Where those come from who come by the shorter way. May block. NULL: there is no such way. */
	void (*origin_local)(struct env *e, const char *address, struct origin *out);
	/* The user who dialled an accepted connection of that way, as the kernel knows; fd -1: whom it knows us as. */
	uint32_t (*user)(struct env *e, int fd);
	int (*connect)(struct env *e, const char *address); /* fd; writable or broken later */
	int (*connect_result)(struct env *e, int fd); /* 0 or -errno, once it is writable */
	ssize_t (*readv)(struct env *e, int fd, const struct iovec *iov, int n); /* 0: closed */
	ssize_t (*writev)(struct env *e, int fd, const struct iovec *iov, int n);
	/* head, then bytes of a file; like writev() it may end anywhere. Less than head and len, and 0 the
	 * next time: the file is shorter. NULL: this world cannot. */
	ssize_t (*send_file)(struct env *e, int fd, const struct iovec *head, int n, int file,
			     uint64_t off, size_t len);
	void (*close)(struct env *e, int fd);
	/* Per loop: a place to wait. */
	int (*loop_init)(struct env *e, struct loop *l);
	void (*loop_fini)(struct env *e, struct loop *l);
	/* events 0: forget */
	int (*watch)(struct env *e, struct loop *l, struct source *s, unsigned events);
	/* Waits at most `ns` (UINT64_MAX: for ever) and returns how many things happened. Touches nothing
	 * that watch() touches: others may call watch(), under the driver's lock, while one waits. */
	int (*poll)(struct env *e, struct loop *l, uint64_t ns);
	/* Calls ready() of each source that poll() found and that is still watched, and done() of jobs. */
	void (*dispatch)(struct env *e, struct loop *l);
	void (*wake)(struct env *e, struct loop *l); /* ends a wait; any thread */
};

/* Files. All calls but submit() may block: they are for start, stop and worker threads. */
struct file_ops {
	int (*openat)(struct env *e, int dir, const char *path, int flags, mode_t mode);
	void (*close)(struct env *e, int fd);
	ssize_t (*preadv)(struct env *e, int fd, const struct iovec *iov, int n, off_t off);
	ssize_t (*pwritev)(struct env *e, int fd, const struct iovec *iov, int n, off_t off);
	int (*fsync)(struct env *e, int fd); /* a directory too */
	int (*syncfs)(struct env *e, int fd); /* all of its file system; may be NULL */
	int (*ftruncate)(struct env *e, int fd, off_t size);
	int (*fstat)(struct env *e, int fd, struct stat *st);
	/* As fallocate(2), and lseek(2) with SEEK_DATA or SEEK_HOLE. NULL: this world cannot. */
	int (*fallocate)(struct env *e, int fd, int mode, off_t off, off_t len);
	off_t (*seek)(struct env *e, int fd, off_t off, int whence);
	int (*unlinkat)(struct env *e, int dir, const char *path, int flags);
	int (*mkdirat)(struct env *e, int dir, const char *path, mode_t mode);
	int (*renameat)(struct env *e, int dir, const char *from, const char *to);
	/* Calls fn for every name of an open directory, in a stable order. */
	int (*list)(struct env *e, int dir, void (*fn)(void *arg, const char *name), void *arg);
	/* id: the same for all of one file system of one host; 0: not known */
	int (*statfs)(struct env *e, int fd, uint64_t *total, uint64_t *avail, uint64_t *id);
	/* Locks the file for as long as the descriptor is open: 0, or -EWOULDBLOCK when another has it. */
	int (*lock)(struct env *e, int fd);
	/* Performs io, and all behind its `next`, without blocking the loop, and reports each: inline where
	 * that cannot block, through io_uring or a worker where it may. */
	void (*submit)(struct env *e, struct loop *l, struct io *io);
	/* Would reading this range now not block, and is it no hole? May be NULL: nobody knows. */
	bool (*cached)(struct env *e, struct loop *l, int fd, uint64_t off, uint64_t len);
	/* The file's first `len` bytes as memory, for system calls and guarded copies: they report -EFAULT for
	 * what the file does not hold, where a program would be killed. NULL: cannot. May itself be NULL. */
	const char *(*map)(struct env *e, int fd, uint64_t len, bool writable);
	void (*unmap)(struct env *e, const char *map, uint64_t len);
	/* For another process of this host that has the files open, too; never waits for a disk. May be NULL: it cannot.
	 * The path of an open directory, by which it is reached from there; its length, or -errno. */
	ssize_t (*where)(struct env *e, int dir, char *path, size_t n);
	/* That directory, if it is still this one; *memory: its files are nowhere else. -EAGAIN:
	 * not in memory. */
	int (*visit)(struct env *e, const char *path, uint64_t dev, uint64_t ino, bool *memory);
	/* A file of it, to be read; -EAGAIN: its name is not in memory. */
	int (*open_now)(struct env *e, int dir, const char *path);
	/* -EAGAIN: it would wait. May be short where only a part is in memory. */
	ssize_t (*read_now)(struct env *e, int fd, const struct iovec *iov, int n, off_t off,
			    bool memory);
	/* Learns what the file system of this directory can do inline; 0 or -errno. Text for the log. */
	int (*probe)(struct env *e, struct loop *l, int dir, char *text, size_t n);
};

/* A worker runs jobs one after another off the loop; job->done() is called back on the loop. */
struct worker;
struct exec_ops {
	int (*worker_start)(struct env *e, struct loop *l, const char *name, struct worker **w);
	/* Any thread; j is lent until done(). */
	void (*worker_submit)(struct worker *w, struct job *j);
	void (*worker_stop)(struct worker *w); /* finishes what is queued, done() included */
};

struct env {
	const struct clock_ops *clock;
	const struct sock_ops *sock;
	const struct file_ops *file;
	const struct exec_ops *exec;
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
	unsigned events; /* what is watched now */
	void (*ready)(struct source *s, unsigned events);
	void *impl; /* of the sock_ops */
};

struct timer {
	uint64_t when; /* 0: not set */
	uint64_t order; /* breaks ties by age */
	size_t at; /* heap index */
	void (*fire)(struct timer *t);
};

/* Nanoseconds of an access to a cached file, whatever its length, and of a byte of it. */
struct file_costs {
	double read, write, byte;
};

struct loop {
	struct env *env;
	struct list runnable; /* requests to step */
	struct list late; /* what is done when all that has run ... */
	struct list last; /* ... and when all of that has */
	struct timer **heap;
	size_t n_heap, cap_heap;
	uint64_t timer_order;
	uint64_t now; /* refreshed once a turn */
	struct list all; /* every live request, oldest first: `sheaf requests` */
	size_t n_reqs;
	uint64_t turns;
	void *impl; /* of the sock_ops: epoll and its like */
	void *file_impl; /* of the file_ops: io_uring and its like */
	uint64_t calls; /* of the system, on this loop's account: sockets, waiting, files */
	uint64_t io_inlined, io_handed; /* file accesses done on the loop, and handed over */
	struct file_costs file_costs; /* as probe() measured them; else what is usual */
	bool sends_files; /* as probe() found: sendfile works */
	bool in_memory; /* as probe() found: storing into a mapping of a file waits for no disk */
};

int loop_init(struct loop *l, struct env *e);
void loop_fini(struct loop *l); /* nothing may hang on it any more */
/* One turn: wait at most max_ns for anything to happen, run what is ready. */
void loop_turn(struct loop *l, uint64_t max_ns);
/* Like it in two halves, for a driver that gives up its lock while it waits: loop_wait_ns() says how
 * long a turn may wait now (0: there is work). */
uint64_t loop_wait_ns(struct loop *l);
/* Expired timers and runnable requests, no waiting; and then what is late. */
void loop_run_ready(struct loop *l);
void loop_run_reqs(struct loop *l); /* without that */
/* Calls run() once, when the requests that are runnable have run: what they want to say goes out together. */
struct late {
	struct list link;
	void (*run)(struct late *l);
};
void loop_late(struct loop *l, struct late *late);
void loop_last(struct loop *l, struct late *late); /* also when it is late already */
void loop_run_late(struct loop *l);
void loop_wake(struct loop *l); /* any thread */

/* Set again: moves it. 0 or -ENOMEM. */
int timer_set(struct loop *l, struct timer *t, uint64_t when_ns);
void timer_del(struct loop *l, struct timer *t); /* harmless when not set */

/* ---------------------------------------------------------------- request step machine */

/* A request is a state and a step function. A state first names its successor with req_goto(), then
 * starts operations; each of them holds the request (req_hold) when it starts and lets it go
 * (req_done) when it ends, inline or later. When nothing is pending the loop steps it again. The
 * first error wins; with an error the next step is ops->on_error, unless that was reached before. */
struct req_ops {
	const char *name;
	bool (*step)(struct req *q); /* false: q is gone */
	uint16_t on_error; /* state that answers; states are numbered in the order of life */
	uint16_t n_states;
	const char *const *state_names;
};

struct req {
	struct list link; /* on a run or wait queue */
	struct list all;
	const struct req_ops *ops;
	struct loop *loop;
	uint16_t state;
	uint16_t pending;
	bool stepping; /* its step function is on the stack */
	bool yields; /* it waits only for its next turn */
	int error; /* first one, -errno */
	uint64_t bytes; /* of what ended since it was last zeroed */
	uint64_t since; /* entered this state */
	struct hist *hists; /* one a state, or NULL: where the time spent in each is counted */
	uint64_t born;
	uint64_t trace;
};

void req_init(struct req *q, struct loop *l, const struct req_ops *ops, uint16_t state);
void req_start(struct req *q); /* first step, now */
void req_goto(struct req *q, uint16_t state);
void req_hold(struct req *q);
void req_done(struct req *q, int error, uint64_t bytes);
/* From a step: the next one comes after others had their turn. */
void req_yield(struct req *q);
/* A step fails (or not, with 0) without undoing what an operation that it started has said already. */
void req_fail(struct req *q, int error);
/* Steps it until something is pending; for the loop. */
void req_run(struct req *q);
/* Takes it off the loop's books; the memory is the caller's. Call it last, from step(). */
void req_fini(struct req *q);

/* ---------------------------------------------------------------- buffer pool */

/* All bulk memory of a target: equal units carved from one mapping. A grant is all or nothing; when there is
 * none the request waits. Those who may be slow to give theirs back, each client one, have a share: at most an
 * eighth of the pool each, and the last quarter of the pool is for those who have nothing. So no client keeps
 * the others waiting, however slow it is. Within a share it is first come first served; shares take turns. */
#define BUF_UNIT (64 * KIB)
#define BUF_MAX_UNITS 16

struct pool_share {
	struct list line; /* struct buf that wait */
	struct list turn; /* in the pool's, while it waits for others */
	size_t held; /* units */
};

struct pool {
	struct loop *loop;
	void *base;
	size_t n_units, n_free;
	uint32_t *free; /* stack of unit numbers */
	struct list waiting; /* struct pool_share */
	struct pool_share common; /* of those that are quick: no limit but the pool's */
	uint32_t n_holders; /* other shares of which something is held */
	uint64_t n_waits; /* of those who had not all of their share */
};

struct buf {
	struct list link;
	struct pool *pool;
	struct pool_share *share;
	struct req *q; /* who waits */
	size_t len; /* asked for */
	uint32_t n; /* units held */
	struct iovec iov[BUF_MAX_UNITS]; /* sums to len */
};

int pool_init(struct pool *p, struct loop *l, size_t bytes);
void pool_fini(struct pool *p);
void pool_share_init(struct pool_share *s); /* it ends empty: nothing to do then */
/* Holds q until len bytes (at most BUF_MAX_UNITS units) are in b. NULL: the common share. */
void buf_get(struct pool *p, struct pool_share *s, struct buf *b, size_t len, struct req *q);
/* Gives them back; harmless on an empty one. */
void buf_put(struct buf *b);
/* Copies bytes [from, from + len) of it to [to, to + len); they do not overlap. */
void buf_copy(struct buf *b, size_t to, size_t from, size_t len);

/* ---------------------------------------------------------------- file accesses */

enum io_kind { IO_READ, IO_WRITE, IO_SYNC, IO_OPEN, IO_TRUNCATE, IO_UNLINK, IO_CALL };

/* One file access; lent to the engine from submit to req_done. Reads and writes are complete or an
 * error, except that a read may be short at the end of the file (io->bytes says how far it came). */
struct io {
	enum io_kind kind;
	int fd; /* or the directory of a path */
	const char *path; /* IO_OPEN, IO_UNLINK */
	int flags; /* IO_OPEN: open flags; the new fd is in `bytes` */
	const struct iovec *iov;
	int n;
	uint64_t off; /* IO_TRUNCATE: the new size */
	/* IO_CALL: anything that may block, on a worker */
	int (*call)(struct env *e, struct io *io);
	void *arg;
	struct req *q;
	uint64_t bytes; /* result */
	int error; /* result: 0 or -errno */
	void (*done)(struct io *io); /* optional: instead of req_done(q, error, bytes) */
	/* of the engine */
	struct io *next; /* submitted with it */
	struct list link;
	struct job job;
	struct loop *loop;
	uint64_t so_far;
};

void io_submit(struct loop *l, struct io *io); /* holds io->q when there is one */
void io_submit_all(struct loop *l, struct io *ios, size_t n); /* n > 0, in any order */
void io_perform(struct env *e, struct io *io); /* blocking; fills error and bytes */
void io_finish(struct io *io); /* engines: report it */
/* Accesses that the loop did itself and that it handed to io_uring or a worker. */
void file_counters(struct loop *l, uint64_t *inlined, uint64_t *handed);

/* ---------------------------------------------------------------- iovec helpers */

size_t iov_total(const struct iovec *iov, size_t n);
/* Writes the part [skip, skip+len) of iov into out (at most max entries); returns entries used and
 * the bytes they hold in *got. */
size_t iov_slice(const struct iovec *iov, size_t n, size_t skip, size_t len, struct iovec *out,
		 size_t max, size_t *got);

#endif
