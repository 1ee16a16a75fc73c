/* What the files of the public interface share. Private to src/client. */
#ifndef SHEAF_API_PRIV_H
#define SHEAF_API_PRIV_H

#include <pthread.h>

#include "client/cli_priv.h"

struct sheaf {
	struct sheaf_backing b;
	pthread_mutex_t lock;
	pthread_cond_t help;
	pthread_t helper;
	struct list waiters; /* threads in a blocking call that do not lead */
	bool driving; /* somebody is the leader */
	const struct sheaf_tasks *tasks; /* of a thread that leads for good, or NULL */
	struct source driver; /* what it waits for beside the servers */
	bool driver_ready;
	bool helping; /* and it is the helper */
	uint64_t lead_until; /* when its wait ends by itself */
	uint64_t help_until; /* when the helper looks by itself */
	bool stop;
	struct tracer *tracer; /* of $SHEAF_TRACE, or NULL */
};

struct sheaf_file {
	struct sheaf *fs;
	struct cfile *f;
};

/* An operation, with the lock of its connection; NULL (and no lock): out of memory. cred NULL: our own. */
struct cop *api_begin(struct sheaf *fs, const struct sheaf_cred *c);
/* One that somebody will wait for later; the lock is held until api_give(). */
struct cop *api_begin_op(struct sheaf *fs, struct sheaf_op **out);
/* For data: they are guarded by the capability of the open file, not by who asks now. */
extern const struct sheaf_cred api_nobody;
/* It was started: what it made runnable runs, and a leader that would sleep too long wakes. */
void api_started(struct sheaf *fs);
/* One turn of the loop, by its leader; waits at most so long. The lock is held before and after, not while waiting. */
void api_turn(struct sheaf *fs, uint64_t max_ns);
/* Sleeps until the lead may be free. */
void api_follow(struct sheaf *fs);
/* Waits for it: leads, or follows who does. */
int64_t api_finish(struct sheaf *fs, struct cop *op);
/* Frees it, passes the lead on and lets go of the lock. */
void api_leave(struct sheaf *fs, struct cop *op);
/* All three: started, waited for, left. */
int64_t api_end(struct sheaf *fs, struct cop *op);

/* What sheaf_h_dir_after() tells from now on; NULL: nothing. */
void api_after(const struct wire_dirs_after *a);

/* Ends the connection without a word to the servers. */
void api_free(struct sheaf *fs);

/* Started and not waited for: passes the lead on and lets go of the lock; 0. */
int api_give(struct sheaf *fs);

/* Both sides of a typed access as patterns. */
int api_describe(struct typed *t, const void *mem, const struct sheaf_type *mem_type,
		 uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type);

/* ---- api_near.c ---- */
/* Past the servers; -EAGAIN: ask them. */
ssize_t api_read_near(struct sheaf_file *f, void *buf, size_t len, uint64_t off);

/* ---- api_trace.c: transfers are written down ---- */
int tracer_open(struct tracer **out); /* *out NULL: nobody wants it; or -errno and sheaf_why() */
void tracer_close(struct tracer *t); /* or NULL */
/* When a call begins whose end will be told; 0: nobody wants it. */
static inline uint64_t trace_begin(const struct sheaf *fs)
{
	return fs->tracer ? time_now() : 0;
}
/* What is to be said beside the access itself. */
struct traced {
	bool write, append;
	uint64_t began; /* by trace_begin(); 0: it was started and nobody waits here */
	int64_t result;
};
/* Only with f->fs->tracer. */
void trace_list(struct sheaf_file *f, const struct traced *how, const struct iovec *mem,
		size_t n_mem, const struct sheaf_extent *ext, size_t n_ext);
void trace_typed(struct sheaf_file *f, const struct traced *how, const struct typed *t);

/* What a path means, symbolic links followed; h and st may be NULL. */
int api_stat(struct sheaf *fs, const char *path, struct sheaf_handle *h, struct stat *st);

#endif
