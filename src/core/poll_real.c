/* Polling on the real kernel: level-triggered epoll, an eventfd to end a wait, and the list of jobs
 * that workers have completed.
 *
 * Threads: poll may run without the driver's lock while other threads call watch and dispatch under
 * it, so poll uses only its own event buffer; wake and complete: any thread, also while the loop is
 * being destroyed. Errors: watch returns -errno; a failed wait finds no events. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/env_real.h"

#define WAKE_KEY UINT64_MAX
#define NO_SLOT UINT32_MAX

/* Held for reading by wake, for writing by fini: a late wake finds no loop, not freed memory. */
static pthread_rwlock_t fini_lock = PTHREAD_RWLOCK_INITIALIZER;

static void loop_real_free(struct loop_real *r)
{
	if (!r)
		return;
	if (r->epoll >= 0)
		close(r->epoll);
	if (r->event >= 0)
		close(r->event);
	pthread_mutex_destroy(&r->lock);
	free(r->slots);
	free(r);
}

int poll_loop_init(struct env *e, struct loop *l)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = WAKE_KEY };
	struct loop_real *r = calloc(1, sizeof(*r));
	int error;

	(void)e;
	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	list_init(&r->completed);
	list_init(&r->running);
	r->free_slot = NO_SLOT;
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	r->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->epoll < 0 || r->event < 0 || epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->event, &ev) < 0) {
		error = -errno;
		loop_real_free(r);
		return error;
	}
	l->impl = r;
	return 0;
}

int loop_descriptor(const struct loop *l)
{
	return ((const struct loop_real *)l->impl)->epoll;
}

void poll_loop_fini(struct env *e, struct loop *l)
{
	struct loop_real *r = l->impl;

	(void)e;
	if (!r)
		return;
	engine_fini(l);
	loop_real_run_completed(l);
	pthread_rwlock_wrlock(&fini_lock);
	l->impl = NULL;
	pthread_rwlock_unlock(&fini_lock);
	loop_real_free(r);
}

static int slot_take(struct loop_real *r, struct source *s, uint32_t *out)
{
	uint32_t at = r->free_slot;

	if (at == NO_SLOT) {
		uint32_t n = r->n_slots ? 2 * r->n_slots : 64;
		struct poll_slot *more = realloc(r->slots, n * sizeof(*more));

		if (!more)
			return -ENOMEM;
		for (uint32_t i = r->n_slots; i < n; i++)
			more[i] = (struct poll_slot){ .next_free = i + 1 < n ? i + 1 : NO_SLOT };
		at = r->n_slots;
		r->slots = more;
		r->n_slots = n;
	}
	r->free_slot = r->slots[at].next_free;
	r->slots[at].source = s;
	*out = at;
	return 0;
}

static void slot_give(struct loop_real *r, uint32_t at)
{
	r->slots[at].source = NULL;
	r->slots[at].age++;
	r->slots[at].next_free = r->free_slot;
	r->free_slot = at;
}

static uint64_t slot_key(const struct loop_real *r, uint32_t at)
{
	return (uint64_t)r->slots[at].age << 32 | at;
}

/* s->impl is the slot number plus one, as a pointer; NULL: not watched. */
static uint32_t source_slot(const struct source *s)
{
	return (uint32_t)((uintptr_t)s->impl - 1);
}

static int watch_first(struct loop_real *r, struct source *s, struct epoll_event *ev)
{
	uint32_t at;
	int error = slot_take(r, s, &at);

	if (error < 0)
		return error;
	ev->data.u64 = slot_key(r, at);
	if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, s->fd, ev) < 0) {
		error = -errno;
		slot_give(r, at);
		return error;
	}
	s->impl = (void *)((uintptr_t)at + 1);
	return 0;
}

int poll_watch(struct env *e, struct loop *l, struct source *s, unsigned events)
{
	struct loop_real *r = l->impl;
	struct epoll_event ev = { 0 };
	int error = 0;

	(void)e;
	if (!events) {
		if (s->impl) {
			epoll_ctl(r->epoll, EPOLL_CTL_DEL, s->fd, &ev);
			slot_give(r, source_slot(s));
		}
		s->impl = NULL;
		s->events = 0;
		return 0;
	}
	if (s->impl && s->events == events)
		return 0;
	if (events & EV_IN)
		ev.events |= EPOLLIN;
	if (events & EV_OUT)
		ev.events |= EPOLLOUT;
	if (!s->impl) {
		error = watch_first(r, s, &ev);
	} else {
		ev.data.u64 = slot_key(r, source_slot(s));
		if (epoll_ctl(r->epoll, EPOLL_CTL_MOD, s->fd, &ev) < 0)
			error = -errno;
	}
	if (!error)
		s->events = events;
	return error;
}

/* epoll_pwait2 takes nanoseconds; kernels before 5.11 and some sandboxes lack it. */
static int epoll_ns(struct loop_real *r, uint64_t ns)
{
	static atomic_bool no_pwait2;
	struct timespec ts = { (time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC) };
	bool forever = ns / NSEC_PER_SEC > 1000000;
	int ms = -1, n;

	if (ns && !forever && !atomic_load_explicit(&no_pwait2, memory_order_relaxed)) {
		n = epoll_pwait2(r->epoll, r->events, POLL_BATCH, &ts, NULL);
		if (n >= 0 || (errno != ENOSYS && errno != EPERM))
			return n;
		atomic_store_explicit(&no_pwait2, true, memory_order_relaxed);
	}
	if (!forever) {
		uint64_t up = (ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;

		ms = (int)MIN(up, (uint64_t)INT32_MAX);
	}
	return epoll_wait(r->epoll, r->events, POLL_BATCH, ms);
}

int poll_poll(struct env *e, struct loop *l, uint64_t ns)
{
	struct loop_real *r = l->impl;
	int n = epoll_ns(r, ns);

	(void)e;
	r->at = 0;
	r->n_events = MAX(n, 0); /* EINTR: no events, the loop polls again */
	return r->n_events;
}

/* Clears the flag before completed jobs are processed: a later completion wakes again. */
static void wake_seen(struct loop_real *r)
{
	uint64_t count;

	while (read(r->event, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	atomic_store(&r->woken, false);
}

static void deliver(struct loop_real *r, const struct epoll_event *ev)
{
	uint32_t at = (uint32_t)ev->data.u64, age = (uint32_t)(ev->data.u64 >> 32);
	struct source *s;
	unsigned events = 0;

	if (at >= r->n_slots || r->slots[at].age != age || !r->slots[at].source)
		return; /* not watched any more */
	s = r->slots[at].source;
	if (ev->events & (EPOLLIN | EPOLLRDHUP))
		events |= EV_IN;
	if (ev->events & EPOLLOUT)
		events |= EV_OUT;
	events &= s->events;
	if (ev->events & (EPOLLERR | EPOLLHUP)) /* the next read or write reports the error */
		events |= EV_ERR | (s->events & (EV_IN | EV_OUT));
	if (events)
		s->ready(s, events);
}

/* A callback may turn the loop: its poll replaces undelivered events and finds them again. */
void poll_dispatch(struct env *e, struct loop *l)
{
	struct loop_real *r = l->impl;

	(void)e;
	while (r->at < r->n_events) {
		const struct epoll_event ev = r->events[r->at++];

		if (ev.data.u64 == WAKE_KEY)
			wake_seen(r);
		else
			deliver(r, &ev);
	}
	loop_real_run_completed(l);
}

static void wake_write(struct loop_real *r)
{
	uint64_t one = 1;

	if (atomic_exchange(&r->woken, true))
		return;
	while (write(r->event, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void poll_wake(struct env *e, struct loop *l)
{
	(void)e;
	pthread_rwlock_rdlock(&fini_lock);
	if (l->impl)
		wake_write(l->impl);
	pthread_rwlock_unlock(&fini_lock);
}

/* No fini_lock: fini stops the workers before it frees the loop. */
void loop_real_complete(struct loop *l, struct job *j)
{
	struct loop_real *r = l->impl;

	pthread_mutex_lock(&r->lock);
	list_push(&r->completed, &j->link);
	pthread_mutex_unlock(&r->lock);
	wake_write(r);
}

/* May nest (a done() that stops a worker): `running` is shared, so that no job is left out. */
void loop_real_run_completed(struct loop *l)
{
	struct loop_real *r = l->impl;
	struct list *it;

	pthread_mutex_lock(&r->lock);
	list_splice(&r->running, &r->completed);
	pthread_mutex_unlock(&r->lock);
	while ((it = list_pop(&r->running))) {
		struct job *j = list_entry(it, struct job, link);

		j->done(j);
	}
}
