/* Helpers for lock tests: one call to lock a range, one that tests for a conflict, and a thread
 * that waits for a lock. */
#ifndef SHEAF_LOCK_TRIAL_H
#define SHEAF_LOCK_TRIAL_H

#include <pthread.h>

#include "cluster.h"

static inline int range_lock(struct sheaf_file *f, uint64_t owner, short type, uint64_t start,
			     uint64_t length, int wait)
{
	struct sheaf_lock l = { .size = sizeof(l),
				.type = (uint32_t)type,
				.start = start,
				.length = length,
				.owner = owner,
				.pid = (uint32_t)getpid() };

	return sheaf_lock(f, &l, wait);
}

/* The type of a lock that conflicts with a lock on the whole file: F_UNLCK (none), F_RDLCK,
 * F_WRLCK. */
static inline uint32_t in_the_way(struct sheaf_file *f, short type)
{
	struct sheaf_lock l = { .size = sizeof(l), .type = (uint32_t)type, .owner = 1234567 };

	CHECK_EQ(sheaf_lock_test(f, &l), 0);
	return l.type;
}

struct waiter {
	pthread_t thread;
	struct sheaf_file *f;
	uint64_t owner, start, length;
	short type;
	int result;
	bool done;
};

static inline void *wait_for_lock(void *arg)
{
	struct waiter *w = arg;

	w->result = range_lock(w->f, w->owner, w->type, w->start, w->length, 1);
	__atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static inline void wait_start(struct waiter *w, struct sheaf_file *f, uint64_t owner, short type,
			      uint64_t start, uint64_t length)
{
	*w = (struct waiter){
		.f = f, .owner = owner, .type = type, .start = start, .length = length
	};
	CHECK_EQ(pthread_create(&w->thread, NULL, wait_for_lock, w), 0);
}

static inline bool done(struct waiter *w)
{
	return __atomic_load_n(&w->done, __ATOMIC_ACQUIRE);
}

static inline int joined(struct waiter *w)
{
	CHECK(WITHIN(PATIENCE_S, done(w)));
	pthread_join(w->thread, NULL);
	return w->result;
}

#endif
