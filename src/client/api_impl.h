/* Shared by the files of the public interface. Private to src/client. */
#ifndef SHEAF_API_IMPL_H
#define SHEAF_API_IMPL_H

#include <pthread.h>

#include "client/file_impl.h"

/* Shared by the connections on one loop: the thread that drives it, and those that wait. */
struct driver {
	struct loop *loop;
	struct list all; /* struct sheaf */
	pthread_mutex_t lock;
	pthread_cond_t help;
	pthread_t helper;
	bool has_helper;
	struct list waiters; /* threads in blocking calls that do not lead */
	bool driving; /* there is a leader */
	const struct sheaf_tasks *tasks; /* of a thread that leads permanently, or NULL */
	struct source source; /* what this thread waits for besides the servers */
	bool source_ready;
	bool helping; /* the leader is the helper */
	uint64_t lead_until; /* when the leader's wait ends by itself */
	uint64_t help_until; /* when the helper checks by itself */
	bool stop;
};

struct sheaf {
	struct sheaf_backing b;
	struct driver *d;
	struct list link; /* in d->all */
	struct cop refused; /* the operation of a call for which there is no memory */
	struct tracer *tracer; /* for $SHEAF_TRACE, or NULL */
	int done_fd; /* eventfd: `done` has operations; -1: not wanted */
	struct list done; /* started operations that have ended and were not listed */
};

struct sheaf_op { /* in the arena of its cop */
	struct sheaf *fs;
	struct cop *op;
	struct list link; /* in fs->done */
};

struct sheaf_file {
	struct sheaf *fs;
	struct cfile *f;
};

/* A blocking call is api_begin(), client_x(op), api_finish(). A call that needs more than the
 * result of its operation reads it between api_wait() and api_release(). */

/* An operation, with the connection's lock; c NULL: our credential. Without memory it ends with
 * -ENOMEM as soon as it is started, before the lock is released. */
struct cop *api_begin(struct sheaf *fs, const struct sheaf_cred *c);
/* The same for an operation that is waited for later; the lock is held until api_unlock(). NULL:
 * no memory, no lock. */
struct cop *api_begin_op(struct sheaf *fs, struct sheaf_op **out);
/* For operations on data, which need no credential: the capability of the open file grants them. */
extern const struct sheaf_cred api_no_cred;
/* Sends what was started and waits until op is done, as the leader, a follower or a parked task;
 * returns its result. */
int64_t api_wait(struct sheaf *fs, struct cop *op);
/* Frees op, passes the lead on and releases the lock. */
void api_release(struct sheaf *fs, struct cop *op);
/* api_wait(), then api_release(). */
int64_t api_finish(struct sheaf *fs, struct cop *op);
/* The counters of the cache bank as JSON, as an extended attribute is read. -ENODATA: no bank. */
ssize_t api_bank_text(struct sheaf *fs, char *out, size_t size);
/* Instead of a wait: sends what was started, passes the lead on and releases the lock. */
void api_unlock(struct sheaf *fs);

/* One turn of the loop, by its leader; waits at most max_ns, and releases the lock meanwhile. */
void api_turn(struct driver *d, uint64_t max_ns);
/* Sleeps until the lead may be free. */
void api_follow(struct driver *d);
/* Detects links that broke since the last turn of the loop. */
void api_poll_links(struct sheaf *fs);

/* Why server i is not up, after a call to it ended with r (-errno); the connection is locked.
 * Returns an enum sheaf_down. */
int api_explain_down(struct sheaf *fs, int i, int r, char *why, size_t n);

/* Sets what sheaf_h_dir_after() returns from now on; NULL: nothing. */
void api_set_dirs_after(const struct wire_dirs_after *a);

/* Ends the connection without telling the servers. */
void api_free(struct sheaf *fs);

/* Describes both sides of a typed access as patterns. */
int api_describe(struct typed *t, const void *mem, const struct sheaf_type *mem_type,
		 uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type,
		 uint64_t skip);

/* ---- api_events.c ---- */
/* A started operation has ended; the connection is locked. */
void api_note_done(struct sheaf_op *o);
/* The caller waits for it, or frees it: it is not listed any more. */
void api_unlist(struct sheaf_op *o);

/* ---- api_direct.c ---- */
/* -EAGAIN: ask the servers. */
ssize_t api_read_direct(struct sheaf_file *f, void *buf, size_t len, uint64_t off);

/* ---- api_trace.c: a log of transfers ---- */
int tracer_open(struct tracer **out); /* *out NULL: no trace is wanted; -errno: see sheaf_why() */
void tracer_close(struct tracer *t); /* t may be NULL */
/* The start time of a call that is logged at its end; 0: no trace is wanted. */
static inline uint64_t trace_begin(const struct sheaf *fs)
{
	return fs->tracer ? time_now() : 0;
}
/* What is logged besides the access itself. */
struct traced {
	bool write, append;
	uint64_t began; /* by trace_begin(); 0: started only, its end is not logged */
	int64_t result;
};
/* Only with f->fs->tracer. */
void trace_list(struct sheaf_file *f, const struct traced *how, const struct iovec *mem,
		size_t n_mem, const struct sheaf_extent *ext, size_t n_ext);
void trace_typed(struct sheaf_file *f, const struct traced *how, const struct typed *t);

/* Resolves a path, following symbolic links; h and st may be NULL. */
int api_stat(struct sheaf *fs, const char *path, struct sheaf_handle *h, struct stat *st);

#endif
