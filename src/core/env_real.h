/* Private to core: shared by the real environment's files, and by tests of a certain engine. */
#ifndef SHEAF_ENV_REAL_H
#define SHEAF_ENV_REAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "core/core.h"

extern const struct sock_ops sock_real_ops;
extern const struct file_ops file_real_ops;
extern const struct exec_ops exec_real_ops;
extern const struct bank_ops bank_memcached_ops; /* open() fails where there is no libmemcached */
extern const struct fabric_ops fabric_verbs_ops; /* open() fails where there is no RDMA */

#define POLL_BATCH 64

/* Each watched source has a slot. The kernel is given the slot's number and age, never the address,
 * so a late event of a source that is no longer watched (and may be freed) finds no source. */
struct poll_slot {
	struct source *source; /* NULL: free */
	uint32_t age; /* increases when the slot is freed */
	uint32_t next_free;
};

/* loop->impl. `events`, `n_events` and `at` belong to the polling thread, `lock` guards
 * `completed`, all else belongs to the thread that turns the loop (or holds its driver's lock). */
struct loop_real {
	int epoll, event;
	atomic_bool woken; /* event was written and not yet read */
	struct epoll_event events[POLL_BATCH];
	int n_events, at; /* found, delivered */
	struct poll_slot *slots;
	uint32_t n_slots, free_slot; /* UINT32_MAX: none */
	pthread_mutex_t lock;
	struct list completed; /* struct job, from workers */
	struct list running; /* jobs whose done() is being called */
};

/* Of sock_real_ops, in sock_inflow.c. */
void sock_inflow(struct env *e, int fd, struct sock_inflow *out);
void sock_limit_window(struct env *e, int fd, uint32_t bytes);

/* The polling half of sock_real_ops, in poll_real.c. */
int poll_loop_init(struct env *e, struct loop *l);
void poll_loop_fini(struct env *e, struct loop *l);
int poll_watch(struct env *e, struct loop *l, struct source *s, unsigned events);
int poll_poll(struct env *e, struct loop *l, uint64_t ns);
void poll_dispatch(struct env *e, struct loop *l);
void poll_wake(struct env *e, struct loop *l);

/* Any thread: queues the job for done() on the loop. */
void loop_real_complete(struct loop *l, struct job *j);
/* Calls done() of every completed job. */
void loop_real_run_completed(struct loop *l);

/* The asynchronous half of file_real_ops, in engine_real.c. */
void engine_perform_now(struct env *e, struct loop *l, struct io *ios, size_t n);
void engine_submit(struct env *e, struct loop *l, struct io *io);
int engine_probe(struct env *e, struct loop *l, int dir, char *text, size_t n);
bool engine_cached(struct env *e, struct loop *l, int fd, uint64_t off, uint64_t len);
/* Frees loop->file_impl: waits for accesses in io_uring, stops the workers. */
void engine_fini(struct loop *l);

/* For tests and debugging: excludes ways of access for this loop. */
enum { ENGINE_NO_INLINE = 1, ENGINE_NO_RING = 2 };
int engine_forbid(struct loop *l, unsigned ways);

#endif
