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
#include <unistd.h>

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

static uint64_t now_of(struct driver *d)
{
	struct env *e = d->loop->env;

	return e->clock->now(e);
}

/* When the loop's next timer is due. */
static uint64_t next_timer(const struct loop *l)
{
	return l->n_heap ? l->heap[0]->when : UINT64_MAX;
}

void api_turn(struct driver *d, uint64_t max_ns)
{
	struct loop *l = d->loop;
	struct env *e = l->env;
	uint64_t ns;
	int n;

	loop_run_deferred(l); /* flushes what tasks have started */
	ns = MIN(loop_wait_ns(l), max_ns);
	d->lead_until = MIN(next_timer(l), max_ns == UINT64_MAX ? max_ns : now_of(d) + max_ns);
	pthread_mutex_unlock(&d->lock);
	n = e->sock->poll(e, l, ns);
	pthread_mutex_lock(&d->lock);
	l->calls++;
	l->now = e->clock->now(e);
	if (n > 0)
		e->sock->dispatch(e, l);
	loop_run_ready(l);
}

/* Runs one turn of the loop as its leader. */
static void lead(struct driver *d, uint64_t max_ns)
{
	d->driving = true;
	api_turn(d, max_ns);
	d->driving = false;
}

static bool has_work(struct driver *d)
{
	const struct sheaf *fs = list_first(&d->all, struct sheaf, link); /* all have one net */

	return d->loop->n_reqs > 0 || (fs && fs->b.client->net->n_dialling > 0) ||
	       loop_wait_ns(d->loop) == 0;
}

/* When the helper must drive if no other thread does. */
static uint64_t help_due(struct driver *d)
{
	return has_work(d) ? now_of(d) + HELPER_GRACE_NS : next_timer(d->loop);
}

/* The lead may be free: wakes a waiting thread to take it, or the helper if none waits and there is
 * work. A helper that will check in time by itself is not woken: that would cost every blocking
 * call two context switches. */
static void hand_over(struct driver *d)
{
	struct waiter *w = list_first(&d->waiters, struct waiter, link);

	if (d->driving)
		return;
	if (w)
		pthread_cond_signal(&w->cond);
	else if (help_due(d) < d->help_until)
		pthread_cond_signal(&d->help);
}

/* After a start: runs what became runnable, and wakes a leader that would sleep too long. */
static void submit(struct driver *d)
{
	struct loop *l = d->loop;

	do {
		while (!list_empty(&l->runnable))
			loop_run_reqs(l);
		if (d->tasks && d->tasks->current())
			return; /* sent before the next turn, together with what other tasks send */
		loop_run_deferred(l);
	} while (!list_empty(&l->runnable)); /* sending may find a link broken */
	if (d->driving && next_timer(l) < d->lead_until)
		loop_wake(l);
}

static void op_done(struct cop *op)
{
	struct waiter *w = op->user;

	if (op->handle)
		api_note_done(op->handle);
	if (w && w->task)
		w->tasks->resume(w->task);
	else if (w)
		pthread_cond_signal(&w->cond);
}

/* Parks the task, which belongs to the driving thread, until op is done. */
static void park(struct driver *d, struct cop *op, void *task)
{
	struct waiter w = { .tasks = d->tasks, .task = task };

	op->user = &w;
	pthread_mutex_unlock(&d->lock);
	w.tasks->park(task);
	pthread_mutex_lock(&d->lock);
	assert(op->finished);
	op->user = NULL;
}

/* Sleeps until the lead may be free, or the operation of this waiter is done. */
static void follow(struct driver *d, struct waiter *w)
{
	if (d->helping)
		loop_wake(d->loop); /* the helper gives up the lead */
	list_push(&d->waiters, &w->link);
	pthread_cond_wait(&w->cond, &d->lock);
	list_del(&w->link);
}

void api_follow(struct driver *d)
{
	struct waiter w = { .task = NULL };

	list_init(&w.link);
	pthread_cond_init(&w.cond, NULL);
	follow(d, &w);
	pthread_cond_destroy(&w.cond);
}

int64_t api_wait(struct sheaf *fs, struct cop *op)
{
	void *task = fs->d->tasks ? fs->d->tasks->current() : NULL;
	struct waiter w = { .task = NULL };

	submit(fs->d);
	if (!op->finished && task)
		park(fs->d, op, task);
	if (op->finished)
		return op->result;
	list_init(&w.link);
	pthread_cond_init(&w.cond, NULL);
	op->user = &w;
	while (!op->finished) {
		if (!fs->d->driving) {
			lead(fs->d, UINT64_MAX);
			continue;
		}
		follow(fs->d, &w);
	}
	op->user = NULL;
	pthread_cond_destroy(&w.cond);
	return op->result;
}

void api_release(struct sheaf *fs, struct cop *op)
{
	cop_free(op);
	hand_over(fs->d);
	pthread_mutex_unlock(&fs->d->lock);
}

void api_unlock(struct sheaf *fs)
{
	submit(fs->d);
	hand_over(fs->d);
	pthread_mutex_unlock(&fs->d->lock);
}

void api_poll_links(struct sheaf *fs)
{
	if (!fs->d->driving)
		lead(fs->d, 0);
}

static void abs_time(struct timespec *ts, uint64_t ns)
{
	ts->tv_sec = (time_t)(ns / NSEC_PER_SEC);
	ts->tv_nsec = (long)(ns % NSEC_PER_SEC);
}

static void *helper(void *arg)
{
	struct driver *d = arg;
	struct timespec ts;

	pthread_mutex_lock(&d->lock);
	while (!d->stop) {
		d->help_until = help_due(d);
		if (d->driving) /* hand_over() wakes the helper earlier if needed */
			d->help_until = MAX(d->help_until, now_of(d) + HELPER_NAP_NS);
		abs_time(&ts, d->help_until);
		if (pthread_cond_timedwait(&d->help, &d->lock, &ts) == 0 || d->driving)
			continue; /* something changed: check again */
		d->helping = true;
		while (!d->stop && !d->driving && list_empty(&d->waiters) && has_work(d))
			lead(d, NSEC_PER_SEC);
		d->helping = false;
		hand_over(d);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* ---- connections ---- */

const struct sheaf_cred api_no_cred = { .uid = 65534, .gid = 65534 };

static int start_helper(struct driver *d)
{
	sigset_t all, old;
	int r;

	sigfillset(&all); /* signals are for the application's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&d->helper, NULL, helper, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

static int driver_new(const struct sheaf_backing *b, struct driver **out)
{
	struct driver *d = calloc(1, sizeof(*d));
	pthread_condattr_t monotonic;
	int r;

	if (!d)
		return -ENOMEM;
	d->loop = b->loop;
	d->has_helper = !b->is_turned;
	list_init(&d->all);
	list_init(&d->waiters);
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&d->help, &monotonic);
	pthread_condattr_destroy(&monotonic);
	r = d->has_helper ? start_helper(d) : 0;
	if (r)
		free(d);
	else
		*out = d;
	return r;
}

/* After its last connection. */
static void driver_stop(struct driver *d)
{
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_signal(&d->help);
	loop_wake(d->loop);
	pthread_mutex_unlock(&d->lock);
	if (d->has_helper)
		pthread_join(d->helper, NULL);
}

static void driver_free(struct driver *d)
{
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->help);
	free(d);
}

/* d NULL: makes a driver. */
static int wrap(const struct sheaf_backing *b, struct driver *d, struct sheaf **out)
{
	struct sheaf *fs = calloc(1, sizeof(*fs));
	int r = fs ? 0 : -ENOMEM;

	if (!r && !d)
		r = tracer_open(&fs->tracer);
	if (!r && !d)
		r = driver_new(b, &d);
	if (r) {
		tracer_close(fs ? fs->tracer : NULL);
		free(fs);
		return r;
	}
	fs->b = *b;
	fs->d = d;
	fs->done_fd = -1;
	list_init(&fs->done);
	pthread_mutex_lock(&d->lock);
	list_push(&d->all, &fs->link);
	pthread_mutex_unlock(&d->lock);
	*out = fs;
	return 0;
}

int sheaf_wrap(const struct sheaf_backing *b, struct sheaf **out)
{
	return wrap(b, NULL, out);
}

struct cop *api_begin(struct sheaf *fs, const struct sheaf_cred *c)
{
	struct cop *op;

	pthread_mutex_lock(&fs->d->lock);
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
	pthread_mutex_lock(&fs->d->lock);
	fs->b.client->timeout_ns = (uint64_t)MAX(timeout_ms, 1) * NSEC_PER_MSEC;
	pthread_mutex_unlock(&fs->d->lock);
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

/* Asks one metadata server for the locks that the client got there. */
static int64_t ask_kept(struct sheaf *fs, uint32_t target, bool drops)
{
	struct client *c = fs->b.client;
	struct cop *op = api_begin(fs, NULL);
	int64_t r;

	op->args.KEPT.drops = drops;
	client_ask(op, OP_KEPT, target, c->timeout_ns);
	r = api_wait(fs, op);
	if (!r)
		r = c->peers[target].inherited = op->res.kept.n;
	api_release(fs, op);
	return r;
}

int64_t sheaf_inherited(struct sheaf *fs, int what)
{
	const struct client *c = fs->b.client;
	int64_t all = 0, n;

	for (uint32_t i = 0; i < c->n_meta; i++) {
		const struct peer *p = &c->peers[c->meta[i]];

		pthread_mutex_lock(&fs->d->lock);
		n = p->boot ? (int64_t)p->inherited : -EAGAIN;
		pthread_mutex_unlock(&fs->d->lock);
		if (n && what != SHEAF_INHERITED_KNOWN)
			n = ask_kept(fs, c->meta[i], what == SHEAF_INHERITED_DROP);
		if (n < 0)
			return n;
		all += n;
	}
	return all;
}

int sheaf_was_lost(struct sheaf *fs)
{
	const struct client *c = fs->b.client;
	bool lost = false;

	pthread_mutex_lock(&fs->d->lock);
	for (uint32_t i = 0; i < c->n_meta; i++)
		lost |= c->peers[c->meta[i]].was_lost;
	pthread_mutex_unlock(&fs->d->lock);
	return lost;
}

static void no_teardown(void *owner)
{
	(void)owner;
}

int sheaf_connect_more(struct sheaf *fs, const struct sheaf_more *m, struct sheaf **out)
{
	struct sheaf_backing b = { .loop = fs->d->loop,
				   .owner = fs->b.owner,
				   .teardown = no_teardown,
				   .again = fs->b.again };
	int r;

	if (m->size < sizeof(*m))
		return -EINVAL;
	pthread_mutex_lock(&fs->d->lock);
	r = client_fork(fs->b.client, m->name, m->host, &b.client);
	pthread_mutex_unlock(&fs->d->lock);
	if (r)
		return r;
	r = wrap(&b, fs->d, out);
	if (r)
		client_free(b.client);
	return r;
}

int sheaf_connect_again(const struct sheaf *fs, struct sheaf **out)
{
	*out = NULL;
	return fs->b.again ? fs->b.again(fs->b.owner, out) : -EOPNOTSUPP;
}

void api_free(struct sheaf *fs)
{
	struct driver *d = fs->d;
	bool last;

	pthread_mutex_lock(&d->lock);
	list_del(&fs->link);
	last = list_empty(&d->all);
	if (!last)
		client_free(fs->b.client);
	pthread_mutex_unlock(&d->lock);
	if (last) {
		driver_stop(d);
		client_free(fs->b.client);
	}
	fs->b.teardown(fs->b.owner);
	if (last)
		driver_free(d);
	tracer_close(fs->tracer);
	if (fs->done_fd >= 0)
		close(fs->done_fd);
	free(fs);
}
