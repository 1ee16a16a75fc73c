/* The blocking interface: connections, and how threads wait for the operations that they start on
 * the client's step machines. The calls themselves are in the other api_*.c files.
 *
 * Threads: one lock guards the loop and all that belongs to it; it is released only while the
 * leader waits for sockets. A thread that waits for an operation drives the loop for all waiters
 * (leader); other waiting threads sleep until their operation is done or the lead is free
 * (followers). So a blocking call of a single thread costs no hand-over. A helper thread, otherwise
 * asleep, drives when operations are under way and no thread waits for them, and when a timer is
 * due (leases). A thread that drives permanently (api_drive.c) always leads: all others follow, and
 * its own calls park the task that makes them. */
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/api_impl.h"

#define HELPER_GRACE_NS NSEC_PER_MSEC /* the application may take the lead within this */
#define HELPER_NAP_NS (100 * NSEC_PER_MSEC) /* until the helper checks a loop that has a leader */

struct waiter {
	struct list link;
	pthread_cond_t cond;
	const struct sheaf_tasks *tasks; /* of `task` */
	void *task; /* the waiting task; NULL: a thread waits */
};

static __thread char why[512];

void why_set(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
}

const char *sheaf_why(void)
{
	return why;
}

const char *sheaf_strerror(int err)
{
	return error_text(err);
}

/* ---- driving ---- */

static uint64_t now_of(struct sheaf *fs)
{
	struct env *e = fs->b.loop->env;

	return e->clock->now(e);
}

/* When the loop's next timer is due. */
static uint64_t next_timer(const struct loop *l)
{
	return l->n_heap ? l->heap[0]->when : UINT64_MAX;
}

void api_turn(struct sheaf *fs, uint64_t max_ns)
{
	struct loop *l = fs->b.loop;
	struct env *e = l->env;
	uint64_t ns;
	int n;

	loop_run_deferred(l); /* flushes what tasks have started */
	ns = MIN(loop_wait_ns(l), max_ns);
	fs->lead_until = MIN(next_timer(l), max_ns == UINT64_MAX ? max_ns : now_of(fs) + max_ns);
	pthread_mutex_unlock(&fs->lock);
	n = e->sock->poll(e, l, ns);
	pthread_mutex_lock(&fs->lock);
	l->calls++;
	l->now = e->clock->now(e);
	if (n > 0)
		e->sock->dispatch(e, l);
	loop_run_ready(l);
}

/* Runs one turn of the loop as its leader. */
static void lead(struct sheaf *fs, uint64_t max_ns)
{
	fs->driving = true;
	api_turn(fs, max_ns);
	fs->driving = false;
}

static bool has_work(struct sheaf *fs)
{
	return fs->b.loop->n_reqs > 0 || fs->b.client->net.n_dialling > 0 ||
	       loop_wait_ns(fs->b.loop) == 0;
}

/* When the helper must drive if no other thread does. */
static uint64_t help_due(struct sheaf *fs)
{
	return has_work(fs) ? now_of(fs) + HELPER_GRACE_NS : next_timer(fs->b.loop);
}

/* The lead may be free: wakes a waiting thread to take it, or the helper if none waits and there is
 * work. A helper that will check in time by itself is not woken: that would cost every blocking
 * call two context switches. */
static void hand_over(struct sheaf *fs)
{
	struct waiter *w = list_first(&fs->waiters, struct waiter, link);

	if (fs->driving)
		return;
	if (w)
		pthread_cond_signal(&w->cond);
	else if (help_due(fs) < fs->help_until)
		pthread_cond_signal(&fs->help);
}

/* After a start: runs what became runnable, and wakes a leader that would sleep too long. */
static void submit(struct sheaf *fs)
{
	struct loop *l = fs->b.loop;

	do {
		while (!list_empty(&l->runnable))
			loop_run_reqs(l);
		if (fs->tasks && fs->tasks->current())
			return; /* sent before the next turn, together with what other tasks send */
		loop_run_deferred(l);
	} while (!list_empty(&l->runnable)); /* sending may find a link broken */
	if (fs->driving && next_timer(l) < fs->lead_until)
		loop_wake(l);
}

static void op_done(struct cop *op)
{
	struct waiter *w = op->user;

	if (w && w->task)
		w->tasks->resume(w->task);
	else if (w)
		pthread_cond_signal(&w->cond);
}

/* Parks the task, which belongs to the driving thread, until op is done. */
static void park(struct sheaf *fs, struct cop *op, void *task)
{
	struct waiter w = { .tasks = fs->tasks, .task = task };

	op->user = &w;
	pthread_mutex_unlock(&fs->lock);
	w.tasks->park(task);
	pthread_mutex_lock(&fs->lock);
	assert(op->finished);
	op->user = NULL;
}

/* Sleeps until the lead may be free, or the operation of this waiter is done. */
static void follow(struct sheaf *fs, struct waiter *w)
{
	if (fs->helping)
		loop_wake(fs->b.loop); /* the helper gives up the lead */
	list_push(&fs->waiters, &w->link);
	pthread_cond_wait(&w->cond, &fs->lock);
	list_del(&w->link);
}

void api_follow(struct sheaf *fs)
{
	struct waiter w = { .task = NULL };

	list_init(&w.link);
	pthread_cond_init(&w.cond, NULL);
	follow(fs, &w);
	pthread_cond_destroy(&w.cond);
}

int64_t api_wait(struct sheaf *fs, struct cop *op)
{
	void *task = fs->tasks ? fs->tasks->current() : NULL;
	struct waiter w = { .task = NULL };

	submit(fs);
	if (!op->finished && task)
		park(fs, op, task);
	if (op->finished)
		return op->result;
	list_init(&w.link);
	pthread_cond_init(&w.cond, NULL);
	op->user = &w;
	while (!op->finished) {
		if (!fs->driving) {
			lead(fs, UINT64_MAX);
			continue;
		}
		follow(fs, &w);
	}
	op->user = NULL;
	pthread_cond_destroy(&w.cond);
	return op->result;
}

void api_release(struct sheaf *fs, struct cop *op)
{
	cop_free(op);
	hand_over(fs);
	pthread_mutex_unlock(&fs->lock);
}

void api_unlock(struct sheaf *fs)
{
	submit(fs);
	hand_over(fs);
	pthread_mutex_unlock(&fs->lock);
}

void api_poll_links(struct sheaf *fs)
{
	if (!fs->driving)
		lead(fs, 0);
}

static void abs_time(struct timespec *ts, uint64_t ns)
{
	ts->tv_sec = (time_t)(ns / NSEC_PER_SEC);
	ts->tv_nsec = (long)(ns % NSEC_PER_SEC);
}

static void *helper(void *arg)
{
	struct sheaf *fs = arg;
	struct timespec ts;

	pthread_mutex_lock(&fs->lock);
	while (!fs->stop) {
		fs->help_until = help_due(fs);
		if (fs->driving) /* hand_over() wakes the helper earlier if needed */
			fs->help_until = MAX(fs->help_until, now_of(fs) + HELPER_NAP_NS);
		abs_time(&ts, fs->help_until);
		if (pthread_cond_timedwait(&fs->help, &fs->lock, &ts) == 0 || fs->driving)
			continue; /* something changed: check again */
		fs->helping = true;
		while (!fs->stop && !fs->driving && list_empty(&fs->waiters) && has_work(fs))
			lead(fs, NSEC_PER_SEC);
		fs->helping = false;
		hand_over(fs);
	}
	pthread_mutex_unlock(&fs->lock);
	return NULL;
}

/* ---- connections ---- */

const struct sheaf_cred api_no_cred = { .uid = 65534, .gid = 65534 };

int sheaf_wrap(const struct sheaf_backing *b, struct sheaf **out)
{
	struct sheaf *fs = calloc(1, sizeof(*fs));
	pthread_condattr_t monotonic;
	sigset_t all, old;
	int r;

	if (!fs)
		return -ENOMEM;
	r = tracer_open(&fs->tracer);
	if (r) {
		free(fs);
		return r;
	}
	fs->b = *b;
	list_init(&fs->waiters);
	pthread_mutex_init(&fs->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&fs->help, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sigfillset(&all); /* signals are for the application's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&fs->helper, NULL, helper, fs);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		tracer_close(fs->tracer);
		free(fs);
		return -r;
	}
	*out = fs;
	return 0;
}

struct cop *api_begin(struct sheaf *fs, const struct sheaf_cred *c)
{
	struct cop *op;

	pthread_mutex_lock(&fs->lock);
	op = cop_new(fs->b.client, c);
	if (!op) {
		op = &fs->refused;
		cop_refuse(op, fs->b.client);
	}
	op->done = op_done;
	return op;
}

int64_t api_finish(struct sheaf *fs, struct cop *op)
{
	int64_t r = api_wait(fs, op);

	api_release(fs, op);
	return r;
}

void sheaf_set_timeout(struct sheaf *fs, int timeout_ms)
{
	pthread_mutex_lock(&fs->lock);
	fs->b.client->timeout_ns = (uint64_t)MAX(timeout_ms, 1) * NSEC_PER_MSEC;
	pthread_mutex_unlock(&fs->lock);
}

void sheaf_disconnect(struct sheaf *fs)
{
	struct cop *op;

	if (!fs)
		return;
	op = api_begin(fs, NULL);
	client_bye(op);
	api_finish(fs, op);
	api_free(fs);
}

void api_free(struct sheaf *fs)
{
	pthread_mutex_lock(&fs->lock);
	fs->stop = true;
	pthread_cond_signal(&fs->help);
	loop_wake(fs->b.loop);
	pthread_mutex_unlock(&fs->lock);
	pthread_join(fs->helper, NULL);
	client_free(fs->b.client);
	fs->b.teardown(fs->b.owner);
	pthread_mutex_destroy(&fs->lock);
	pthread_cond_destroy(&fs->help);
	tracer_close(fs->tracer);
	free(fs);
}
