/* Threads that take requests from the kernel and work on them, one request each.
 *
 * A thread that takes a request sees to it that another one waits for the next, up to a limit that the memory for
 * buffers sets; when many wait, some end. A request of a process that is being killed is answered at once, by the
 * reaper: the kernel says that a signal came, and /proc whether it will end the process (others do not
 * interrupt files, as on a local file system). The work itself goes on and what it gives is dropped.
 *
 * Stopping: a flag, and a signal to those that wait for a request until none does. A request is taken whole or not
 * at all, so nothing is lost between two daemons.
 *
 * Buffers: a worker has one for what comes and one for what is read, each allocated when first needed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mount/mount_priv.h"

#define KEEP_READING \
	16 /* threads that may wait for requests: making one costs more than keeping it */
#define STACK (256 * KIB)
#define FUSE_INIT_OPCODE 26
#define NOTIFY_RESEND 7

static __thread struct worker *self;

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

/* The request, if it is this one and not answered. */
static fuse_req_t take(struct worker *w, uint64_t serial)
{
	struct crew *c = &w->m->crew;
	fuse_req_t req = NULL;

	pthread_mutex_lock(&w->lock);
	if (w->serial == serial) {
		req = w->req;
		w->req = NULL;
		w->m->acts += req && !w->looks;
	}
	pthread_mutex_unlock(&w->lock);
	if (!req)
		return NULL;
	fuse_req_interrupt_func(req, NULL, NULL);
	pthread_mutex_lock(&c->lock);
	if (w->interrupted)
		c->n_interrupted--;
	w->interrupted = false;
	pthread_mutex_unlock(&c->lock);
	return req;
}

fuse_req_t req_take(struct worker *w)
{
	lane_give(w); /* before the answer: the next request may come at once */
	return take(w, w->serial);
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

/* ---- waiting for locks ---- */

static void refill(struct mount *m);

/* Under the lock: another may take its place. */
static void step_aside(struct worker *w)
{
	struct crew *c = &w->m->crew;

	if (!w->aside)
		c->n_aside++;
	w->aside = true;
	refill(w->m);
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
		pthread_cond_wait(&c->changed, &c->lock);
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
	struct crew *c = &w->m->crew;
	fuse_req_t req;
	uint64_t serial;
	pid_t pid;

	pthread_mutex_lock(&w->lock);
	serial = w->serial;
	pid = w->ctx.pid;
	pthread_mutex_unlock(&w->lock);
	if (!is_dying(pid))
		return;
	req = take(w, serial);
	if (!req)
		return;
	pthread_mutex_lock(&c->lock);
	w->abandoned = true;
	c->n_abandoned += w->modifies != 0;
	step_aside(w);
	pthread_mutex_unlock(&c->lock);
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

/* ---- workers ---- */

static void *work(void *arg);

/* Under the lock: one more thread. */
static int spawn(struct mount *m)
{
	struct crew *c = &m->crew;
	struct worker *w = c->workers;
	pthread_attr_t attr;
	int r;

	while (w->used)
		w++;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&w->thread, &attr, work, w);
	pthread_attr_destroy(&attr);
	if (r)
		return -r;
	w->used = true;
	w->reading = true;
	c->n++;
	c->n_reading++;
	return 0;
}

/* Under the lock: a thread waits for requests, if there may be one more. */
static int see_to_reader(struct mount *m)
{
	struct crew *c = &m->crew;

	return c->n_reading || c->n - c->n_aside >= c->max || c->stop || c->ended ? 0 : spawn(m);
}

static void refill(struct mount *m)
{
	int r = see_to_reader(m);

	if (r)
		log_warn("mount", "no further thread: %s", error_text(r));
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

/* Waits for a request and works on it; false: no more of them. */
static bool serve_one(struct worker *w)
{
	struct mount *m = w->m;
	struct crew *c = &m->crew;
	int n = fuse_session_receive_buf(m->se, &w->in);

	pthread_mutex_lock(&c->lock);
	w->reading = false;
	c->n_reading--;
	if (n > 0)
		refill(m);
	pthread_mutex_unlock(&c->lock);
	if (n == -ENOMEM)
		usleep(10000); /* no room for the next request yet */
	if (n == -EINTR || n == -EAGAIN || n == -ENOMEM)
		return true;
	if (n <= 0) {
		if (n < 0 && n != -ENODEV)
			log_error("mount", "reading from the kernel: %s", error_text(n));
		return false;
	}
	keep_init(m, &w->in);
	fuse_session_process_buf(m->se, &w->in);
	return true;
}

/* Under the lock: it has ended its request, whoever answered it. */
static void worker_done(struct worker *w)
{
	struct crew *c = &w->m->crew;

	c->n_waiting -= w->waiting;
	c->n_aside -= w->aside;
	if (w->abandoned) {
		c->n_abandoned -= w->modifies != 0;
		pthread_cond_broadcast(&c->changed);
	}
	w->waiting = w->aside = w->abandoned = false;
	w->modifies = 0;
}

/* Begins with `reading` set. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct mount *m = w->m;
	struct crew *c = &m->crew;
	uint64_t one = 1;
	bool more = true;

	self = w;
	while (more) {
		more = serve_one(w);
		lane_give(w);
		pthread_mutex_lock(&c->lock);
		worker_done(w);
		if (!more)
			c->ended = true;
		more = more && !c->stop && !c->ended && c->n_reading < KEEP_READING &&
		       c->n - c->n_aside <= c->max;
		if (more) {
			w->reading = true;
			c->n_reading++;
		}
		pthread_mutex_unlock(&c->lock);
	}
	free(w->in.mem);
	free(w->out);
	pthread_mutex_lock(&c->lock);
	w->in = (struct fuse_buf){ 0 };
	w->out = NULL;
	w->used = false;
	c->n--;
	if (c->ended && write(m->wake, &one, sizeof(one)) < 0)
		log_error("mount", "nobody hears that the mount has ended");
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
	for (size_t i = 0; i < ARRAY_LEN(c->workers); i++) {
		c->workers[i].m = m;
		pthread_mutex_init(&c->workers[i].lock, NULL);
	}
	/* what one may have in memory: a request that comes, an answer that goes */
	c->max = (unsigned)MAX(MIN(m->o.memory / (2 * REQUEST_MAX), WORKERS_MAX), 2);
	return -pthread_create(&(pthread_t){ 0 }, NULL, reaper, m);
}

int crew_start(struct mount *m)
{
	struct crew *c = &m->crew;
	int r;

	pthread_mutex_lock(&c->lock);
	c->stop = false;
	r = see_to_reader(m);
	pthread_mutex_unlock(&c->lock);
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

/* Under the lock: those that wait for a request or a lock look up. */
static void rouse(struct crew *c)
{
	for (size_t i = 0; i < ARRAY_LEN(c->workers); i++) {
		if (c->workers[i].used && c->workers[i].reading)
			pthread_kill(c->workers[i].thread, SIGUSR1);
		if (stops_waits(c))
			cancel_wait(&c->workers[i]);
	}
}

int crew_stop(struct mount *m, unsigned seconds)
{
	struct crew *c = &m->crew;
	uint64_t end = time_now() + seconds * NSEC_PER_SEC;
	bool late;

	pthread_mutex_lock(&c->lock);
	c->stop = true;
	do {
		rouse(c); /* again and again: one may have been about to wait */
		if (c->n)
			nap(c, &c->changed, 5);
	} while (c->n && time_now() <= end);
	late = c->n > 0;
	pthread_mutex_unlock(&c->lock);
	if (!late)
		return 0;
	crew_start(m);
	return -ETIMEDOUT;
}
