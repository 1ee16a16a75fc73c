/* A request of the kernel from its beginning to its answer: what may answer it, what it may wait
 * for, and what happens when its process is killed.
 *
 * The reaper answers such a request at once: the kernel reports that a signal came, and /proc tells
 * whether it will end the process (other signals do not interrupt file accesses, as on a local file
 * system). The work itself continues, and its result is dropped. A request that is answered without
 * waiting does not look for signals.
 *
 * Threads: the reactor's and others (reactor.c), and the reaper. Locks: a worker's, then the
 * crew's. Buffers: those of memory.c. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mount/mount_priv.h"

__thread struct worker *worker_self;

/* ---- room for requests ---- */

void crew_made_room(struct mount *m)
{
	if (m->crew.full || m->crew.stop)
		sheaf_drive_wake(m->fs);
}

/* Under the lock: the worker does not count any more, so another request may be taken. */
static void worker_uncount(struct worker *w)
{
	struct crew *c = &w->m->crew;

	if (!w->uncounted)
		c->n_uncounted++;
	w->uncounted = true;
	crew_made_room(w->m);
}

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

/* Under the worker's lock. */
static void enable_interrupts(struct worker *w)
{
	if (w->interruptible || !w->req)
		return;
	w->interruptible = true;
	fuse_req_interrupt_func(w->req, on_interrupt, w); /* also reports an earlier one */
}

void worker_enable_interrupts(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	enable_interrupts(w);
	pthread_mutex_unlock(&w->lock);
}

struct worker *req_begin(fuse_req_t req)
{
	struct worker *w = worker_self;

	pthread_mutex_lock(&w->lock);
	w->req = req;
	w->serial++;
	w->is_lookup = false;
	w->ctx = *fuse_req_ctx(req);
	w->interruptible = false;
	if (w->threaded)
		enable_interrupts(w);
	pthread_mutex_unlock(&w->lock);
	return w;
}

/* Under both locks: the result of the work will be dropped. */
static void abandon(struct worker *w)
{
	w->abandoned = true;
	w->m->crew.n_abandoned += w->modifies != 0;
	worker_uncount(w);
}

/* Takes the request if it is still this one and not answered. A worker ends only after it has
 * called this, so an abandoned request is marked before its worker ends. */
static fuse_req_t take(struct worker *w, uint64_t serial, bool abandoned)
{
	struct crew *c = &w->m->crew;
	fuse_req_t req = NULL;

	pthread_mutex_lock(&w->lock);
	if (w->serial == serial && (w->interruptible || !abandoned)) {
		req = w->req;
		w->req = NULL;
		w->m->n_answered += req && !w->is_lookup;
	}
	if (req && w->interruptible) {
		fuse_req_interrupt_func(req, NULL, NULL); /* first: none for the next request */
		pthread_mutex_lock(&c->lock);
		if (w->interrupted)
			c->n_interrupted--;
		w->interrupted = false;
		if (abandoned)
			abandon(w);
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return req;
}

fuse_req_t req_take(struct worker *w)
{
	return take(w, w->serial, false);
}

bool is_network_error(int r)
{
	static const int errors[] = { ETIMEDOUT,   ECONNREFUSED, ECONNRESET,   EHOSTUNREACH,
				      ENETUNREACH, EPIPE,	 ENOTCONN,     ESHUTDOWN,
				      EHOSTDOWN,   EDESTADDRREQ, EKEYREJECTED, EREMCHG };

	for (size_t i = 0; i < ARRAY_LEN(errors); i++)
		if (r == -errors[i])
			return true;
	return false;
}

bool req_answer(struct worker *w, int r)
{
	fuse_req_t req = req_take(w);

	if (req) /* programs expect no network errors from files */
		fuse_reply_err(req, is_network_error(r) ? EIO : -r);
	return req;
}

fuse_req_t req_take_result(struct worker *w, ssize_t r)
{
	if (r >= 0)
		return req_take(w);
	req_answer(w, (int)r);
	return NULL;
}

void req_answer_bytes(struct worker *w, ssize_t n, const char *buf)
{
	fuse_req_t req = req_take_result(w, n);

	if (req)
		fuse_reply_buf(req, buf, (size_t)n);
}

void req_answer_written(struct worker *w, ssize_t n)
{
	fuse_req_t req = req_take_result(w, n);

	if (req)
		fuse_reply_write(req, (size_t)n);
}

/* ---- waiting ---- */

void worker_await(struct worker *w, pthread_cond_t *cond, pthread_mutex_t *lock)
{
	struct crew *c = &w->m->crew;

	if (w->threaded) {
		pthread_cond_wait(cond, lock);
		return;
	}
	c->n_paused++; /* worker_changed() sees this, under the lock, and wakes the reactor */
	pthread_mutex_unlock(lock);
	worker_enable_interrupts(w);
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

bool runs_on_thread(struct worker *w)
{
	fuse_req_t req;

	if (w->threaded)
		return true;
	w->wants_thread = true;
	pthread_mutex_lock(&w->lock);
	req = w->req;
	w->req = NULL;
	pthread_mutex_unlock(&w->lock);
	if (req) {
		if (w->interruptible)
			fuse_req_interrupt_func(req, NULL, NULL);
		fuse_reply_none(req); /* frees it without an answer: the request restarts */
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

bool worker_begin_change(struct worker *w, uint64_t ino, bool changes)
{
	struct crew *c = &w->m->crew;
	bool goes_on;

	pthread_mutex_lock(&c->lock);
	while (is_after_abandoned(c, w, ino))
		worker_await(w, &c->changed, &c->lock);
	goes_on = !changes || !w->abandoned;
	if (changes && goes_on)
		w->modifies = ino;
	pthread_mutex_unlock(&c->lock);
	return goes_on;
}

int worker_begin_wait(struct worker *w, uint64_t owner)
{
	struct crew *c = &w->m->crew;
	bool room;

	if (w->waiting)
		return 0;
	pthread_mutex_lock(&c->lock);
	memory_give(w); /* a lock request does not need it any more */
	room = c->n_waiting < WAITING_MAX;
	if (room) {
		w->waiting = true;
		w->owner = owner;
		c->n_waiting++;
		worker_uncount(w);
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

bool crew_must_end_waits(const struct crew *c)
{
	return c->stop && c->n == c->n_waiting;
}

bool worker_was_cancelled(struct worker *w)
{
	struct crew *c = &w->m->crew;
	bool yes;

	pthread_mutex_lock(&c->lock);
	yes = w->interrupted || crew_must_end_waits(c);
	pthread_mutex_unlock(&c->lock);
	return yes;
}

void worker_cancel_wait(struct worker *w)
{
	struct crew *c = &w->m->crew;
	uint64_t owner = w->owner;

	if (!w->waiting)
		return;
	pthread_mutex_unlock(&c->lock);
	sheaf_lock_cancel(w->m->fs, owner);
	pthread_mutex_lock(&c->lock);
}

void req_resend(struct worker *w)
{
	fuse_req_t req = req_take(w);

	if (!req)
		return;
	if (w->m->can_resend)
		fuse_reply_none(req);
	else
		fuse_reply_err(req, EINTR);
}

/* ---- the reaper ---- */

static uint64_t mask_in(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? strtoull(line + strlen(name), NULL, 16) : 0;
}

/* True if a pending signal will end this thread. */
static bool is_dying(pid_t pid)
{
	const uint64_t harmless = UINT64_C(1) << (SIGCHLD - 1) | UINT64_C(1) << (SIGCONT - 1) |
				  UINT64_C(1) << (SIGURG - 1) | UINT64_C(1) << (SIGWINCH - 1) |
				  UINT64_C(1) << (SIGSTOP - 1) | UINT64_C(1) << (SIGTSTP - 1) |
				  UINT64_C(1) << (SIGTTIN - 1) | UINT64_C(1) << (SIGTTOU - 1);
	char text[16384];
	uint64_t pending;

	if (proc_status(pid, text, sizeof(text)))
		return pid > 0; /* no such process: nothing waits for the answer */
	pending = mask_in(text, "SigPnd:") | mask_in(text, "ShdPnd:");
	if (pending & UINT64_C(1) << (SIGKILL - 1))
		return true;
	return pending & ~(mask_in(text, "SigBlk:") | mask_in(text, "SigIgn:") |
			   mask_in(text, "SigCgt:") | harmless);
}

/* Answers this worker's request if its process is dying. */
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

void crew_timedwait(struct crew *c, pthread_cond_t *cond, long ms)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_nsec += ms * (long)NSEC_PER_MSEC;
	ts.tv_sec += ts.tv_nsec / (long)NSEC_PER_SEC;
	ts.tv_nsec %= (long)NSEC_PER_SEC;
	pthread_cond_timedwait(cond, &c->lock, &ts);
}

/* Runs until the process exits. */
static void *reap(void *arg)
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
			worker_cancel_wait(&c->workers[i]);
			pthread_mutex_unlock(&c->lock);
			reap_one(&c->workers[i]);
			pthread_mutex_lock(&c->lock);
		}
		crew_timedwait(c, &c->interrupt, 20); /* another signal may follow: check again */
	}
	return NULL;
}

int reaper_start(struct mount *m)
{
	return -pthread_create(&(pthread_t){ 0 }, NULL, reap, m);
}
