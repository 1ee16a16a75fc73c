#include "lock_wait.h"

int range_lock(struct sheaf_file *f, uint64_t owner, short type, uint64_t start, uint64_t length,
	       int wait)
{
	struct sheaf_lock l = { .size = sizeof(l),
				.type = (uint32_t)type,
				.start = start,
				.length = length,
				.owner = owner,
				.pid = (uint32_t)getpid() };

	return sheaf_lock(f, &l, wait);
}

uint32_t conflicting_lock(struct sheaf_file *f, short type)
{
	struct sheaf_lock l = { .size = sizeof(l), .type = (uint32_t)type, .owner = 1234567 };

	CHECK_EQ(sheaf_lock_test(f, &l), 0);
	return l.type;
}

static void *wait_for_lock(void *arg)
{
	struct waiter *w = arg;

	w->result = range_lock(w->f, w->owner, w->type, w->start, w->length, 1);
	__atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
	return NULL;
}

void waiter_start(struct waiter *w, struct sheaf_file *f, uint64_t owner, short type,
		  uint64_t start, uint64_t length)
{
	*w = (struct waiter){
		.f = f, .owner = owner, .type = type, .start = start, .length = length
	};
	CHECK_EQ(pthread_create(&w->thread, NULL, wait_for_lock, w), 0);
}

bool waiter_is_done(struct waiter *w)
{
	return __atomic_load_n(&w->done, __ATOMIC_ACQUIRE);
}

int waiter_join(struct waiter *w)
{
	CHECK(WITHIN(PATIENCE_S, waiter_is_done(w)));
	pthread_join(w->thread, NULL);
	return w->result;
}
