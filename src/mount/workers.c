/* Requests of the kernel, and who works on them.
 *
 * One thread, the reactor, takes requests and drives the connection to the servers. It begins each request on a fiber; where
 * that has to wait for servers it stops, and the reactor goes on with others: no switch of threads in a request. What would
 * hold up the others (large copies, waiting for locks or for the kernel's pages) asks for a thread, with on_thread(), and
 * begins anew there.
 *
 * A request of a process that is being killed is answered at once, by the reaper: the kernel says that a signal came,
 * and /proc whether it will end the process (others do not interrupt files, as on a local file system). The work itself
 * goes on and what it gives is dropped.
 *
 * Stopping: a flag; the reactor takes no more and ends when nothing is under way. A request is taken whole or not
 * at all, so nothing is lost between two daemons.
 *
 * Buffers: a worker has one for what comes and one for what is read, each allocated when first needed. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mount/mount_priv.h"

#define KEEP 16 /* threads without work, and workers without a request that keep their memory */
#define BATCH 16 /* requests that are taken before answers of servers are looked at */
#define STACK (256 * KIB)
#define FUSE_INIT_OPCODE 26
#define NOTIFY_RESEND 7

static __thread struct worker *self; /* what this thread works on */

/* ---- answers ---- */

static void on_interrupt(fuse_req_t req, void *arg)
{
	struct worker *w = arg;
	struct crew *c = &w->m->crew;

	(void)req;
	pthread_mutex_lock(&c->lock);
	if (!w->interrupted)
		c->n_interrupted++;
	w->interrupted = true;
	pthread_cond_signal(&c->interrupt);
	pthread_mutex_unlock(&c->lock);
}

struct worker *req_begin(fuse_req_t req)
{
	struct worker *w = self;

	pthread_mutex_lock(&w->lock);
	w->req = req;
	w->serial++;
	w->looks = false;
	w->ctx = *fuse_req_ctx(req);
	fuse_req_interrupt_func(req, on_interrupt, w); /* before the reaper may take it */
	pthread_mutex_unlock(&w->lock);
	return w;
}

static void step_aside(struct worker *w);

/* Under both locks: its answer will be dropped. */
static void abandon(struct worker *w)
{
	w->abandoned = true;
	w->m->crew.n_abandoned += w->modifies != 0;
	step_aside(w);
}

/* The request, if it is this one and not answered. Who works on it ends only after it has looked here, so before that
 * it is known to be abandoned. */
static fuse_req_t take(struct worker *w, uint64_t serial, bool abandoned)
{
	struct crew *c = &w->m->crew;
	fuse_req_t req = NULL;

	pthread_mutex_lock(&w->lock);
	if (w->serial == serial) {
		req = w->req;
		w->req = NULL;
		w->m->acts += req && !w->looks;
	}
	if (req) {
		pthread_mutex_lock(&c->lock);
		if (w->interrupted)
			c->n_interrupted--;
		w->interrupted = false;
		if (abandoned)
			abandon(w);
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&w->lock);
	if (req)
		fuse_req_interrupt_func(req, NULL, NULL);
	return req;
}

fuse_req_t req_take(struct worker *w)
{
	return take(w, w->serial, false);
}

bool is_lost(int r)
{
	return r == -ETIMEDOUT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EHOSTUNREACH ||
	       r == -ENETUNREACH || r == -EPIPE || r == -ENOTCONN || r == -ESHUTDOWN;
}

bool answer(struct worker *w, int r)
{
	fuse_req_t req = req_take(w);

	if (req) /* programs expect no errors of a network from files */
		fuse_reply_err(req, is_lost(r) ? EIO : -r);
	return req;
}

void answer_bytes(struct worker *w, ssize_t n, const char *buf)
{
	fuse_req_t req = n < 0 ? NULL : req_take(w);

	if (n < 0)
		answer(w, (int)n);
	else if (req)
		fuse_reply_buf(req, buf, (size_t)n);
}

void answer_written(struct worker *w, ssize_t n)
{
	fuse_req_t req = n < 0 ? NULL : req_take(w);

	if (n < 0)
		answer(w, (int)n);
	else if (req)
		fuse_reply_write(req, (size_t)n);
}

/* ---- waiting ---- */

/* Under the lock: there may be room for another request. */
static void made_room(struct mount *m)
{
	if (m->crew.full || m->crew.stop)
		sheaf_drive_wake(m->fs);
}

/* Under the lock: another may take its place. */
static void step_aside(struct worker *w)
{
	struct crew *c = &w->m->crew;

	if (!w->aside)
		c->n_aside++;
	w->aside = true;
	made_room(w->m);
}

void worker_await(struct worker *w, pthread_cond_t *cond, pthread_mutex_t *lock)
{
	struct crew *c = &w->m->crew;

	if (w->threaded) {
		pthread_cond_wait(cond, lock);
		return;
	}
	c->n_paused++; /* whoever changes it under the lock sees this and wakes the reactor */
	pthread_mutex_unlock(lock);
	list_push(&c->paused, &w->link);
	fiber_switch(&w->fiber, &c->main);
	c->n_paused--;
	pthread_mutex_lock(lock);
}

void worker_changed(struct mount *m, pthread_cond_t *cond)
{
	pthread_cond_broadcast(cond);
	if (m->crew.n_paused)
		sheaf_drive_wake(m->fs);
}

bool on_thread(struct worker *w)
{
	fuse_req_t req;

	if (w->threaded)
		return true;
	w->moves = true;
	pthread_mutex_lock(&w->lock);
	req = w->req;
	w->req = NULL;
	pthread_mutex_unlock(&w->lock);
	if (req) {
		fuse_req_interrupt_func(req, NULL, NULL);
		fuse_reply_none(req); /* it is not answered by that: it begins anew */
	}
	return false;
}

static bool is_after_abandoned(const struct crew *c, const struct worker *w, uint64_t ino)
{
	for (size_t i = 0; c->n_abandoned && i < ARRAY_LEN(c->workers); i++)
		if (c->workers[i].abandoned && c->workers[i].modifies == ino && &c->workers[i] != w)
			return true;
	return false;
}

void worker_modifies(struct worker *w, uint64_t ino, bool changes)
{
	struct crew *c = &w->m->crew;

	pthread_mutex_lock(&c->lock);
	while (is_after_abandoned(c, w, ino))
		worker_await(w, &c->changed, &c->lock);
	if (changes && !w->abandoned)
		w->modifies = ino;
	pthread_mutex_unlock(&c->lock);
}

int worker_waits(struct worker *w, uint64_t owner)
{
	struct crew *c = &w->m->crew;
	bool room;

	if (w->waiting)
		return 0;
	free(w->in.mem); /* a request about a lock has nothing left in it */
	free(w->out);
	w->in = (struct fuse_buf){ 0 };
	w->out = NULL;
	pthread_mutex_lock(&c->lock);
	room = c->n_waiting < WAITING_MAX;
	if (room) {
		w->waiting = true;
		w->owner = owner;
		c->n_waiting++;
		step_aside(w);
	}
	pthread_mutex_unlock(&c->lock);
	return room ? 0 : -ENOLCK;
}

bool worker_interrupted(struct worker *w)
{
	struct crew *c = &w->m->crew;
	bool yes;

	pthread_mutex_lock(&c->lock);
	yes = w->interrupted;
	pthread_mutex_unlock(&c->lock);
	return yes;
}

/* At a stop, waits are given up last: only when nothing else is under way will they surely be asked for again. */
static bool stops_waits(const struct crew *c)
{
	return c->stop && c->n == c->n_waiting;
}

bool worker_gives_up(struct worker *w)
{
	struct crew *c = &w->m->crew;
	bool yes;

	pthread_mutex_lock(&c->lock);
	yes = w->interrupted || stops_waits(c);
	pthread_mutex_unlock(&c->lock);
	return yes;
}

/* Under the lock, given up meanwhile: a wait that has not begun yet is not ended, so this is said again until it is. */
static void cancel_wait(struct worker *w)
{
	struct crew *c = &w->m->crew;
	uint64_t owner = w->owner;

	if (!w->waiting)
		return;
	pthread_mutex_unlock(&c->lock);
	sheaf_lock_cancel(w->m->fs, owner);
	pthread_mutex_lock(&c->lock);
}

void req_again(struct worker *w)
{
	fuse_req_t req = req_take(w);

	if (!req)
		return;
	if (w->m->can_resend)
		fuse_reply_none(req);
	else
		fuse_reply_err(req, EINTR);
}

char *worker_out(struct worker *w)
{
	if (!w->out)
		w->out = malloc(REQUEST_MAX);
	return w->out;
}

/* ---- the reaper ---- */

static uint64_t mask_in(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? strtoull(line + strlen(name), NULL, 16) : 0;
}

/* Will a signal that came end this thread? */
static bool is_dying(pid_t pid)
{
	const uint64_t harmless = UINT64_C(1) << (SIGCHLD - 1) | UINT64_C(1) << (SIGCONT - 1) |
				  UINT64_C(1) << (SIGURG - 1) | UINT64_C(1) << (SIGWINCH - 1) |
				  UINT64_C(1) << (SIGSTOP - 1) | UINT64_C(1) << (SIGTSTP - 1) |
				  UINT64_C(1) << (SIGTTIN - 1) | UINT64_C(1) << (SIGTTOU - 1);
	char text[16384];
	uint64_t pending;

	if (proc_status(pid, text, sizeof(text)))
		return pid > 0; /* no such process: nobody waits */
	pending = mask_in(text, "SigPnd:") | mask_in(text, "ShdPnd:");
	if (pending & UINT64_C(1) << (SIGKILL - 1))
		return true;
	return pending & ~(mask_in(text, "SigBlk:") | mask_in(text, "SigIgn:") |
			   mask_in(text, "SigCgt:") | harmless);
}

/* The one request, if its process is dying. */
static void reap_one(struct worker *w)
{
	fuse_req_t req;
	uint64_t serial;
	pid_t pid;

	pthread_mutex_lock(&w->lock);
	serial = w->serial;
	pid = w->ctx.pid;
	pthread_mutex_unlock(&w->lock);
	if (!is_dying(pid))
		return;
	req = take(w, serial, true);
	if (req)
		fuse_reply_err(req, EINTR);
}

/* Under the lock: until something is said, or for so long. */
static void nap(struct crew *c, pthread_cond_t *cond, long ms)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_nsec += ms * (long)NSEC_PER_MSEC;
	ts.tv_sec += ts.tv_nsec / (long)NSEC_PER_SEC;
	ts.tv_nsec %= (long)NSEC_PER_SEC;
	pthread_cond_timedwait(cond, &c->lock, &ts);
}

/* Ends with the process. */
static void *reaper(void *arg)
{
	struct mount *m = arg;
	struct crew *c = &m->crew;

	pthread_mutex_lock(&c->lock);
	for (;;) {
		if (!c->n_interrupted) {
			pthread_cond_wait(&c->interrupt, &c->lock);
			continue;
		}
		for (size_t i = 0; i < ARRAY_LEN(c->workers); i++) {
			if (!c->workers[i].interrupted)
				continue;
			cancel_wait(&c->workers[i]);
			pthread_mutex_unlock(&c->lock);
			reap_one(&c->workers[i]);
			pthread_mutex_lock(&c->lock);
		}
		nap(c, &c->interrupt, 20); /* another signal may follow: look again */
	}
	return NULL;
}

/* ---- work on a request ---- */

static void free_memory(struct worker *w)
{
	free(w->in.mem);
	free(w->out);
	w->in = (struct fuse_buf){ 0 };
	w->out = NULL;
	fiber_fini(&w->fiber);
}

/* Under the lock: it has ended its request, whoever answered it. */
static void worker_done(struct worker *w)
{
	struct crew *c = &w->m->crew;

	c->n_waiting -= w->waiting;
	c->n_aside -= w->aside;
	c->n_abandoned -= w->abandoned && w->modifies;
	w->waiting = w->aside = w->abandoned = w->threaded = false;
	w->modifies = 0;
	c->n--;
	if (c->n_kept < KEEP) {
		c->n_kept++;
		w->kept = true;
		list_push_front(&c->idle, &w->link);
	} else {
		free_memory(w);
		list_push(&c->idle, &w->link);
	}
	worker_changed(w->m, &c->changed);
}

static void dismiss(struct worker *w)
{
	struct crew *c = &w->m->crew;

	pthread_mutex_lock(&c->lock);
	worker_done(w);
	pthread_mutex_unlock(&c->lock);
}

/* The kernel's first request is kept: a successor needs it. */
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

/* Works on what is queued; many that have nothing to do are too many. */
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
		self = list_entry(list_pop(&c->queue), struct worker, link);
		c->n_queued--;
		c->n_free--;
		pthread_mutex_unlock(&c->lock);
		fuse_session_process_buf(m->se, &self->in);
		pthread_mutex_lock(&c->lock);
		worker_done(self);
		made_room(m);
		c->n_free++;
	}
	c->n_free--;
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Under the lock: one more thread. */
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

/* A thread goes on with it. */
static void enqueue(struct worker *w)
{
	struct crew *c = &w->m->crew;

	pthread_mutex_lock(&c->lock);
	w->moves = false;
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

/* Until it waits or ends. */
static void run(struct worker *w)
{
	struct crew *c = &w->m->crew;

	self = w;
	fiber_switch(&c->main, &w->fiber);
	self = NULL;
	if (!w->ended)
		return;
	w->ended = false;
	if (w->moves) {
		enqueue(w);
		return;
	}
	dismiss(w);
}

/* Those that need not wait any more, and those that look again whether they must. */
static void run_ready(struct crew *c)
{
	struct list batch = LIST_INIT(batch), *it;

	pthread_mutex_lock(&c->lock);
	list_splice(&batch, &c->ready);
	list_splice(&batch, &c->paused);
	pthread_mutex_unlock(&c->lock);
	while ((it = list_pop(&batch)))
		run(list_entry(it, struct worker, link));
}

static void *task_current(void)
{
	return self && !self->threaded ? self : NULL;
}

static void task_park(void *task)
{
	struct worker *w = task;

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

/* Under the lock: may there be one more request? */
static bool has_room(struct crew *c)
{
	c->full = c->n >= c->max + c->n_aside || list_empty(&c->idle);
	return !c->full && !c->stop && !c->ended;
}

/* One for the next request, if there may be one more. */
static struct worker *recruit(struct crew *c)
{
	struct worker *w = NULL;

	pthread_mutex_lock(&c->lock);
	if (has_room(c)) {
		w = list_entry(list_pop(&c->idle), struct worker, link);
		c->n_kept -= w->kept;
		w->kept = false;
		c->n++;
	}
	pthread_mutex_unlock(&c->lock);
	return w;
}

static void end(struct mount *m, int error)
{
	struct crew *c = &m->crew;
	uint64_t one = 1;

	if (error < 0 && error != -ENODEV)
		log_error("mount", "reading from the kernel: %s", error_text(error));
	pthread_mutex_lock(&c->lock);
	c->ended = true;
	pthread_mutex_unlock(&c->lock);
	if (write(m->wake, &one, sizeof(one)) < 0)
		log_error("mount", "nobody hears that the mount has ended");
}

/* Takes a request, if there is one, and works on it until it waits. */
static bool take_one(struct mount *m)
{
	struct worker *w = recruit(&m->crew);
	int n = w ? fuse_session_receive_buf(m->se, &w->in) : -EAGAIN;

	if (n == -ENOMEM)
		sheaf_drive(m->fs, 0, 10); /* no room for the next request yet */
	else if (n <= 0 && n != -EINTR && n != -EAGAIN)
		end(m, n);
	if (n <= 0) {
		if (w)
			dismiss(w);
		return false;
	}
	keep_init(m, &w->in);
	if (w->fiber.run || fiber_init(&w->fiber, STACK, fiber_main, w) == 0)
		run(w);
	else
		enqueue(w);
	return true;
}

/* What to wait for now, and how long; false: nothing any more. */
static bool plan(struct mount *m, bool *room, int *ms)
{
	struct crew *c = &m->crew;
	bool more;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	while (c->n_queued > c->n_free && !r)
		r = spawn(m);
	if (r)
		log_warn("mount", "no further thread: %s", error_text(r));
	*room = has_room(c);
	*ms = !list_empty(&c->ready) ? 0 : r ? 100 : -1;
	more = c->n || !(c->stop || c->ended);
	pthread_mutex_unlock(&c->lock);
	return more;
}

/* The reactor waits for servers, too, so its reads do not wait. Other daemons, which the descriptor is given to, may like to. */
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
			for (int i = 0; i < BATCH && take_one(m); i++)
				;
		run_ready(c);
	}
	sheaf_drive_end(m->fs);
	set_waiting(m->fd, true);
	pthread_mutex_lock(&c->lock);
	c->reacting = false;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- all of them ---- */

void crew_resend(struct mount *m)
{
	const struct {
		uint32_t len;
		int32_t notice;
		uint64_t unique;
	} resend = { sizeof(resend), NOTIFY_RESEND, 0 };

	if (m->can_resend && write(m->fd, &resend, sizeof(resend)) < 0)
		log_warn("mount", "unanswered requests do not come again: %s", error_text(errno));
}

int crew_init(struct mount *m)
{
	struct crew *c = &m->crew;

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
	/* what one may have in memory: a request that comes, an answer that goes */
	c->max = (unsigned)MAX(MIN(m->o.memory / (2 * REQUEST_MAX), WORKERS_MAX), 2);
	return -pthread_create(&(pthread_t){ 0 }, NULL, reaper, m);
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
	bool reacting;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	c->stop = false;
	reacting = c->reacting;
	c->reacting = true;
	pthread_mutex_unlock(&c->lock);
	sheaf_drive_wake(m->fs);
	if (!reacting)
		r = start_reactor(m);
	if (r) {
		pthread_mutex_lock(&c->lock);
		c->reacting = false;
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

/* Under the lock: those that wait for locks give up, once nothing else is under way. */
static void rouse(struct mount *m)
{
	struct crew *c = &m->crew;

	sheaf_drive_wake(m->fs);
	for (size_t i = 0; i < ARRAY_LEN(c->workers); i++)
		if (stops_waits(c))
			cancel_wait(&c->workers[i]);
}

int crew_stop(struct mount *m, unsigned seconds)
{
	struct crew *c = &m->crew;
	uint64_t end = time_now() + seconds * NSEC_PER_SEC;
	bool late;

	pthread_mutex_lock(&c->lock);
	c->stop = true;
	while (c->reacting &&
	       (!c->n || time_now() <= end)) { /* with nothing under way it ends by itself */
		rouse(m); /* again and again: one may have been about to wait */
		nap(c, &c->changed, 5);
	}
	late = c->reacting;
	c->stop = !late;
	pthread_mutex_unlock(&c->lock);
	if (!late)
		return 0;
	sheaf_drive_wake(m->fs);
	return -ETIMEDOUT;
}
