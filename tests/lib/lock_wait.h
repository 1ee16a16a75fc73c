/* Helpers for lock tests: one call to lock a range, one that tests for a conflict, and a thread
 * that waits for a lock. */
#ifndef SHEAF_TEST_LOCK_WAIT_H
#define SHEAF_TEST_LOCK_WAIT_H

#include <pthread.h>

#include "cluster.h"

/* Locks or unlocks a range. Returns 0 or -errno. */
int range_lock(struct sheaf_file *f, uint64_t owner, short type, uint64_t start, uint64_t length,
	       int wait);

/* The type of a lock that conflicts with a lock on the whole file: F_UNLCK (none), F_RDLCK,
 * F_WRLCK. */
uint32_t conflicting_lock(struct sheaf_file *f, short type);

struct waiter {
	pthread_t thread;
	struct sheaf_file *f;
	uint64_t owner, start, length;
	short type;
	int result;
	bool done;
};

/* Starts a thread that waits for a lock. */
void waiter_start(struct waiter *w, struct sheaf_file *f, uint64_t owner, short type,
		  uint64_t start, uint64_t length);

/* Has the lock been granted or refused? */
bool waiter_is_done(struct waiter *w);

/* Waits for the end of the thread and returns the result of the lock. */
int waiter_join(struct waiter *w);

#endif
