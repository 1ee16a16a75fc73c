/* Inside core: what the files of the real environment share. Nobody else includes this, except tests
 * that want a certain engine. */
#ifndef SHEAF_ENV_REAL_H
#define SHEAF_ENV_REAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "core/core.h"

extern const struct sock_ops sock_real_ops;
extern const struct file_ops file_real_ops;
extern const struct exec_ops exec_real_ops;

#define POLL_BATCH 64

/* A watched source has a slot; the kernel is given its number and age, never the address, so an event
 * of a source that was forgotten (and freed) since finds nobody. */
struct poll_slot {
	struct source *source; /* NULL: free */
	uint32_t age; /* goes up when the slot is given back */
	uint32_t next_free;
};

/* loop->impl. `events`, `n_events` and `at` belong to whoever polls, `lock` guards `completed`, everything
 * else belongs to the thread that turns the loop (or holds its driver's lock). */
struct loop_real {
	int epoll, event;
	atomic_bool woken; /* event was written and not read yet */
	struct epoll_event events[POLL_BATCH];
	int n_events, at; /* found, delivered */
	struct poll_slot *slots;
	uint32_t n_slots, free_slot; /* UINT32_MAX: none */
	pthread_mutex_t lock;
	struct list completed; /* struct job, from workers */
	struct list running; /* those whose done() is being called */
};

/* The waiting half of sock_real_ops, in poll_real.c. */
int poll_loop_init(struct env *e, struct loop *l);
void poll_loop_fini(struct env *e, struct loop *l);
int poll_watch(struct env *e, struct loop *l, struct source *s, unsigned events);
int poll_poll(struct env *e, struct loop *l, uint64_t ns);
void poll_dispatch(struct env *e, struct loop *l);
void poll_wake(struct env *e, struct loop *l);

/* Any thread: lets the loop call done(). */
void loop_real_complete(struct loop *l, struct job *j);
/* Calls done() of every job completed so far. */
void loop_real_run_completed(struct loop *l);

/* The asynchronous half of file_real_ops, in engine_real.c. */
void engine_submit(struct env *e, struct loop *l, struct io *io);
int engine_probe(struct env *e, struct loop *l, int dir, char *text, size_t n);
bool file_in_memory(int fd); /* the files of its file system are nowhere else */
bool engine_cached(struct env *e, struct loop *l, int fd, uint64_t off, uint64_t len);
/* Frees loop->file_impl: waits for what io_uring has, stops the worker. */
void engine_fini(struct loop *l);

/* For tests and for finding faults: forbid ways of doing accesses, for this loop. */
enum { ENGINE_NO_INLINE = 1, ENGINE_NO_RING = 2 };
int engine_forbid(struct loop *l, unsigned ways);

#endif
