/* The reactor, and the fibers and threads that execute requests of the kernel.
 *
 * One thread, the reactor, takes requests and drives the connection to the servers. It starts each
 * request on a fiber. Where that must wait for servers it is parked, and the reactor continues with
 * others: a request needs no thread switch. What would hold up other requests (large copies, waits
 * for locks or for the kernel's pages) asks for a thread with runs_on_thread(), and restarts there.
 *
 * Stopping: a flag; the reactor takes no more requests and ends when none is in progress. A request
 * is received whole or not at all, so none is lost between two daemons.
 *
 * Locks: the crew's lock may be taken while the connection's is held, never the other way round. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "mount/mount_priv.h"

#define KEEP 16 /* idle threads, and idle workers that keep their stack */
#define BATCH 16 /* requests taken before answers of servers are processed */
#define STACK (256 * KIB)
#define FUSE_INIT_OPCODE 26
#define NOTIFY_RESEND 7

/* ---- work on a request ---- */

/* Under the lock: the work has ended, whether the worker or the reaper answered the request. */
static void worker_done(struct worker *w)
{
	struct crew *c = &w->m->crew;

	c->n_waiting -= w->waiting;
	c->n_uncounted -= w->uncounted;
	c->n_abandoned -= w->abandoned && w->modifies;
	w->waiting = w->uncounted = w->abandoned = w->threaded = false;
	w->modifies = 0;
	c->n--;
	memory_give(w);
	if (c->n_with_stack < KEEP) {
		c->n_with_stack++;
		w->has_stack = true;
		list_push_front(&c->idle, &w->link);
	} else {
		fiber_fini(&w->fiber);
		list_push(&c->idle, &w->link);
	}
	worker_changed(w->m, &c->changed);
}

static void worker_release(struct worker *w)
{
	struct crew *c = &w->m->crew;

	pthread_mutex_lock(&c->lock);
	worker_done(w);
	pthread_mutex_unlock(&c->lock);
}

/* Keeps the kernel's first request: a successor needs it. */
static void keep_init(struct mount *m, const struct fuse_buf *b)
{
	uint32_t opcode;

	if (m->init_len || b->size < 8 || b->size > INIT_MAX)
		return;
	memcpy(&opcode, (const char *)b->mem + 4, sizeof(opcode));
	if (opcode != FUSE_INIT_OPCODE)
		return;
	memcpy(m->init, b->mem, b->size);
	m->init_len = b->size;
}

/* ---- threads ---- */

/* Executes queued requests; surplus idle threads exit. */
static void *work(void *arg)
{
	struct mount *m = arg;
	struct crew *c = &m->crew;

	pthread_mutex_lock(&c->lock);
	for (;;) {
		while (list_empty(&c->queue) && c->n_free <= KEEP)
			pthread_cond_wait(&c->queued, &c->lock);
		if (list_empty(&c->queue))
			break;
		worker_self = list_entry(list_pop(&c->queue), struct worker, link);
		c->n_queued--;
		c->n_free--;
		pthread_mutex_unlock(&c->lock);
		fuse_session_process_buf(m->se, &worker_self->in);
		pthread_mutex_lock(&c->lock);
		worker_done(worker_self);
		crew_made_room(m);
		c->n_free++;
	}
	c->n_free--;
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Under the lock: starts one more thread. */
static int spawn(struct mount *m)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &attr, work, m);
	pthread_attr_destroy(&attr);
	m->crew.n_free += !r;
	return -r;
}

/* Passes the request to a thread. */
static void enqueue(struct worker *w)
{
	struct crew *c = &w->m->crew;

	pthread_mutex_lock(&c->lock);
	w->wants_thread = false;
	w->threaded = true;
	list_push(&c->queue, &w->link);
	c->n_queued++;
	pthread_cond_signal(&c->queued);
	pthread_mutex_unlock(&c->lock);
}

/* ---- fibers ---- */

static void fiber_main(void *arg)
{
	struct worker *w = arg;
	struct mount *m = w->m;

	for (;;) {
		fuse_session_process_buf(m->se, &w->in);
		w->ended = true;
		fiber_switch(&w->fiber, &m->crew.main);
	}
}

/* Runs it until it waits, moves to a thread or ends. True: it has ended, and the caller owns w. */
static bool run(struct worker *w)
{
	struct crew *c = &w->m->crew;

	worker_self = w;
	fiber_switch(&c->main, &w->fiber);
	worker_self = NULL;
	if (!w->ended)
		return false;
	w->ended = false;
	if (!w->wants_thread)
		return true;
	enqueue(w); /* the worker belongs to the thread now */
	return false;
}

/* Runs resumed fibers, and paused ones, which check again whether they must wait. */
static void run_ready(struct crew *c)
{
	struct list batch = LIST_INIT(batch), *it;

	pthread_mutex_lock(&c->lock);
	list_splice(&batch, &c->ready);
	list_splice(&batch, &c->paused);
	pthread_mutex_unlock(&c->lock);
	while ((it = list_pop(&batch))) {
		struct worker *w = list_entry(it, struct worker, link);

		if (run(w))
			worker_release(w);
	}
}

static void *task_current(void)
{
	return worker_self && !worker_self->threaded ? worker_self : NULL;
}

static void task_park(void *task)
{
	struct worker *w = task;

	worker_enable_interrupts(w);
	fiber_switch(&w->fiber, &w->m->crew.main);
}

static void task_resume(void *task)
{
	struct worker *w = task;
	struct crew *c = &w->m->crew;

	pthread_mutex_lock(&c->lock);
	list_push(&c->ready, &w->link);
	pthread_mutex_unlock(&c->lock);
	if (!pthread_equal(pthread_self(), c->reactor))
		sheaf_drive_wake(w->m->fs);
}

static const struct sheaf_tasks tasks = { task_current, task_park, task_resume };

/* ---- the reactor ---- */

/* Under the lock: true if one more request may be taken. */
static bool has_room(struct crew *c)
{
	c->full = c->n >= c->max + c->n_uncounted || list_empty(&c->idle);
	return !c->full && !c->stop && !c->ended;
}

/* A worker for the next request, or NULL: there is no room. */
static struct worker *worker_take(struct crew *c)
{
	struct worker *w = NULL;

	pthread_mutex_lock(&c->lock);
	if (has_room(c)) {
		w = list_entry(list_pop(&c->idle), struct worker, link);
		c->n_with_stack -= w->has_stack;
		w->has_stack = false;
		c->n++;
		memory_take(w);
	}
	pthread_mutex_unlock(&c->lock);
	return w;
}

static void end(struct mount *m, int error)
{
	struct crew *c = &m->crew;
	uint64_t one = 1;

	if (error < 0 && error != -ENODEV)
		log_error("mount", "cannot read requests of the kernel: %s", error_text(error));
	pthread_mutex_lock(&c->lock);
	c->ended = true;
	pthread_mutex_unlock(&c->lock);
	if (write(m->wake, &one, sizeof(one)) < 0)
		log_error("mount", "the main thread could not be told that the mount has ended");
}

/* True if the worker can take another request as it is: no request waits for its end, it has no
 * state of the last request, and it is counted already. */
static bool is_free(const struct worker *w)
{
	return !w->uncounted && !w->waiting && !w->abandoned && !w->modifies;
}

/* Takes a request, if there is one, and runs it until it waits. The worker is reused for the next
 * request if possible. */
static bool take_one(struct mount *m, struct worker **next)
{
	struct worker *w = *next ? *next : worker_take(&m->crew);
	int n = w ? -ENOMEM : -EAGAIN;

	*next = NULL;
	if (w && w->in.mem)
		n = fuse_session_receive_buf(m->se, &w->in);
	if (n == -ENOMEM)
		sheaf_drive(m->fs, 0, 10); /* no buffer yet */
	else if (n <= 0 && n != -EINTR && n != -EAGAIN)
		end(m, n);
	if (n <= 0) {
		if (w)
			worker_release(w);
		return false;
	}
	keep_init(m, &w->in);
	if (!w->fiber.run && fiber_init(&w->fiber, STACK, fiber_main, w)) {
		enqueue(w);
	} else if (run(w)) {
		if (is_free(w) && !m->crew.stop)
			*next = w;
		else
			worker_release(w);
	}
	return true;
}

static void take_some(struct mount *m)
{
	struct worker *next = NULL;

	for (int i = 0; i < BATCH && take_one(m, &next); i++)
		;
	if (next)
		worker_release(next);
}

/* Decides what to wait for now, and how long; false: everything has ended. */
static bool plan(struct mount *m, bool *room, int *ms)
{
	struct crew *c = &m->crew;
	bool more;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	while (c->n_queued > c->n_free && !r)
		r = spawn(m);
	if (r && !c->thread_failed)
		log_warn("mount", "another thread could not be started: %s", error_text(r));
	c->thread_failed = r;
	*room = has_room(c);
	*ms = !list_empty(&c->ready) ? 0 : r ? 100 : -1;
	more = c->n || !(c->stop || c->ended);
	pthread_mutex_unlock(&c->lock);
	return more;
}

/* The reactor also waits for servers, so it reads without blocking. Other daemons, to which the
 * descriptor may be passed, may want to block. */
static int set_waiting(int fd, bool waits)
{
	int flags = fcntl(fd, F_GETFL);

	flags = waits ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
	return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

static void *react(void *arg)
{
	struct mount *m = arg;
	struct crew *c = &m->crew;
	bool room;
	int ms;

	c->reactor = pthread_self();
	fiber_of_thread(&c->main);
	while (plan(m, &room, &ms)) {
		if (sheaf_drive(m->fs, room, ms))
			take_some(m);
		run_ready(c);
	}
	sheaf_drive_end(m->fs);
	set_waiting(m->fd, true);
	pthread_mutex_lock(&c->lock);
	c->reactor_runs = false;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- start and stop ---- */

void crew_resend(struct mount *m)
{
	const struct {
		uint32_t len;
		int32_t notice;
		uint64_t unique;
	} resend = { sizeof(resend), NOTIFY_RESEND, 0 };

	if (m->can_resend && write(m->fd, &resend, sizeof(resend)) < 0)
		log_warn("mount", "the kernel does not resend unanswered requests: %s",
			 error_text(errno));
}

int crew_init(struct mount *m)
{
	struct crew *c = &m->crew;
	int r;

	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	pthread_cond_init(&c->interrupt, NULL);
	pthread_cond_init(&c->queued, NULL);
	list_init(&c->idle);
	list_init(&c->ready);
	list_init(&c->paused);
	list_init(&c->queue);
	for (size_t i = 0; i < ARRAY_LEN(c->workers); i++) {
		c->workers[i].m = m;
		pthread_mutex_init(&c->workers[i].lock, NULL);
		list_push(&c->idle, &c->workers[i].link);
	}
	c->max = (unsigned)MAX(MIN(m->o.memory / WORKER_MEMORY, WORKERS_MAX), 2);
	r = memory_init(c);
	return r ? r : reaper_start(m);
}

static int start_reactor(struct mount *m)
{
	pthread_t reactor;
	int r = set_waiting(m->fd, false);

	if (!r)
		r = sheaf_drive_begin(m->fs, &tasks, m->fd);
	if (r)
		return r;
	r = -pthread_create(&reactor, NULL, react, m);
	if (r)
		sheaf_drive_end(m->fs);
	else
		pthread_detach(reactor);
	return r;
}

int crew_start(struct mount *m)
{
	struct crew *c = &m->crew;
	bool reactor_runs;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	c->stop = false;
	reactor_runs = c->reactor_runs;
	c->reactor_runs = true;
	pthread_mutex_unlock(&c->lock);
	sheaf_drive_wake(m->fs);
	if (!reactor_runs)
		r = start_reactor(m);
	if (r) {
		pthread_mutex_lock(&c->lock);
		c->reactor_runs = false;
		pthread_mutex_unlock(&c->lock);
	}
	return r;
}

bool crew_ended(struct mount *m)
{
	bool yes;

	pthread_mutex_lock(&m->crew.lock);
	yes = m->crew.ended;
	pthread_mutex_unlock(&m->crew.lock);
	return yes;
}

/* Under the lock: ends waits for locks, once nothing else is in progress. */
static void end_waits(struct mount *m)
{
	struct crew *c = &m->crew;

	sheaf_drive_wake(m->fs);
	for (size_t i = 0; i < ARRAY_LEN(c->workers); i++)
		if (crew_must_end_waits(c))
			worker_cancel_wait(&c->workers[i]);
}

int crew_stop(struct mount *m, unsigned seconds)
{
	struct crew *c = &m->crew;
	uint64_t end = time_now() + seconds * NSEC_PER_SEC;
	bool late;

	pthread_mutex_lock(&c->lock);
	c->stop = true;
	/* With nothing in progress the reactor ends by itself. */
	while (c->reactor_runs && (!c->n || time_now() <= end)) {
		end_waits(m); /* repeated: a request may have been about to wait */
		crew_timedwait(c, &c->changed, 5);
	}
	late = c->reactor_runs;
	c->stop = !late;
	pthread_mutex_unlock(&c->lock);
	if (!late)
		return 0;
	sheaf_drive_wake(m->fs);
	return -ETIMEDOUT;
}
