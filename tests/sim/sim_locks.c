/* Locks under all faults: each client takes and releases one lock of one file, and writes and reads
 * while it holds the lock.
 *
 *   OPEN -> LOCK -> WRITE -> READ (-> WRITE) -> UNLOCK (-> LOCK) -> CLOSE;
 *   after an error CLOSE, then OPEN again
 *
 * Two clients hold the lock at the same time only if both locks are shared (such holders only
 * read), or if one of them was cut off for longer than its lease. Then nothing that this client
 * begins through that file succeeds any more. What a holder writes stays until it releases the
 * lock, even if writes of earlier holders were still in flight. */
#include <fcntl.h>

#include "sim_priv.h"
#include "sim_world.h"

enum { OPEN, LOCK, WRITE, READ, UNLOCK, CLOSE };
static const char *const names[] = { [OPEN] = "open", [LOCK] = "lock",	   [WRITE] = "write",
				     [READ] = "read", [UNLOCK] = "unlock", [CLOSE] = "close" };

#define PATH "shared/lock"
#define OWNER 1
#define REST_NS (10 * NSEC_PER_SEC)

static const struct sheaf_handle root = { 1, 1 };
static const struct sheaf_cred root_cred = { 0 };

static void begin(struct locker *l);

static struct sim *sim_of(const struct locker *l)
{
	return &l->a->w->sim;
}

static void resume(void *arg)
{
	struct locker *l = arg;

	if (!l->resting || l->a->dead || l->a->w->failed)
		return; /* scheduled before the client died */
	if (!l->a->client) {
		sim_after(sim_of(l), NSEC_PER_MSEC, resume, l);
		return;
	}
	l->resting = false;
	begin(l);
}

static void rest(struct locker *l, uint64_t ns)
{
	l->resting = true;
	sim_after(sim_of(l), ns, resume, l);
}

static void give_up(void *arg)
{
	struct locker *l = arg;

	if (!l->busy || l->step != LOCK || l->a->dead || l->a->w->failed)
		return;
	l->gave_up = true;
	client_lock_cancel(l->a->client, OWNER);
}

/* ---- the judge ---- */

/* Its session may have ended. */
static bool cut_off(const struct locker *l)
{
	return l->a->isolations != l->isolations;
}

static uint32_t losses(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		n += w->targets[i].losses;
	return n;
}

static bool allowed(const struct locker *l, int64_t e)
{
	const struct world *w = l->a->w;

	switch (e) {
	case -EIO:
	case -ESTALE:
		return cut_off(l) || w->enabled[FAULT_DISK] ||
		       (l->step == CLOSE && l->unclean != w->n_unclean) ||
		       (l->step == READ && l->shared && losses(w)) || /* data of others are lost */
		       (l->step == READ && losses(w) != l->losses); /* its own data are lost */
	case -EINTR:
		return l->gave_up;
	case -ENOSPC:
		return w->enabled[FAULT_FULL] && l->step == WRITE;
	default: /* network errors */
		return e == -ETIMEDOUT || e == -ECONNREFUSED || e == -ECONNRESET ||
		       e == -EHOSTUNREACH;
	}
}

/* The target that has the lock. */
static struct target *home_of(const struct locker *l)
{
	struct world *w = l->a->w;
	uint64_t partition = cfile_handle(l->f).ino >> 48;

	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		if ((w->conf.targets[i].roles & ROLE_META) && !partition--)
			return &w->targets[i];
	return &w->targets[0];
}

/* Another client got a lock that conflicts with this client's. */
static void note_lock_lost(struct locker *l, struct locker *other)
{
	struct world *w = l->a->w;

	if (!cut_off(other))
		world_fail(w, 0, "c%u got the lock that c%u holds", l->a->id, other->a->id);
	other->lock_lost = w->sim.now;
	other->reads = false;
	if (w->lock_holder == other)
		w->lock_holder = NULL;
	w->count->lock_lost++;
}

static void went_in(struct locker *l)
{
	struct world *w = l->a->w;
	uint32_t readers = 0;

	if (w->lock_holder)
		note_lock_lost(l, w->lock_holder);
	for (uint32_t i = 0; i < w->n_actors; i++) {
		struct locker *k = &w->actors[i].locker;

		if (k != l && k->reads && !l->shared)
			note_lock_lost(l, k);
		readers += k != l && k->reads;
	}
	if (l->shared)
		l->reads = true;
	else
		w->lock_holder = l;
	w->count->locks++;
	w->count->shared_locks += l->shared && readers;
	if (!sim_chance(&w->sim, w->enabled[FAULT_ISOLATED] ? 300000 : 50000))
		return;
	/* holds the lock for a minute or two, sometimes cut off from its server */
	l->writes_left = (uint32_t)sim_between(&w->sim, 1, 60);
	if (w->enabled[FAULT_ISOLATED] && w->armed && !w->healing && sim_chance(&w->sim, 600000))
		faults_isolate(l->a, home_of(l));
}

static void judge(struct locker *l, int64_t result)
{
	struct world *w = l->a->w;

	if (l->lock_lost && l->began >= l->lock_lost && l->step != CLOSE)
		world_fail(w, 0, "c%u lost the lock, and its %s succeeded", l->a->id,
			   names[l->step]);
	else if (l->step == LOCK)
		went_in(l);
	else if (l->step == READ && !l->shared && !l->lock_lost && losses(w) == l->losses &&
		 (result != sizeof(l->read_back) || l->read_back != l->value))
		world_fail(w, 0, "c%u holds the lock and read %llx (%lld bytes), not %llx",
			   l->a->id, (unsigned long long)l->read_back, (long long)result,
			   (unsigned long long)l->value);
}

static void done(struct cop *cop)
{
	struct locker *l = cop->user;
	struct world *w = l->a->w;
	int64_t r = cop->result;

	sim_trace(&w->sim, SIM_TEST + 3 * DO_KINDS + l->step, l->a->node->id, (uint64_t)r);
	world_note(w, NO_FILE, "c%u %s of the lock = %lld", l->a->id, names[l->step], (long long)r);
	l->busy = false;
	if (l->step == OPEN)
		l->f = cop->file;
	cop_free(cop);
	if (r >= 0)
		judge(l, r);
	else if (!allowed(l, r))
		world_fail(w, 0, "c%u: %s of the lock: %s (%lld)", l->a->id, names[l->step],
			   error_text((int)r), (long long)r);
	if (w->failed)
		return;
	if (l->step == CLOSE) {
		l->f = NULL;
		l->step = OPEN;
	} else if (r < 0) {
		l->left -= l->left > 0;
		l->step = l->f ? CLOSE : OPEN;
	} else if (l->step == READ && l->writes_left) {
		l->writes_left--;
		l->step = l->shared ? READ : WRITE;
	} else if (l->step == LOCK && l->shared) {
		l->step = READ;
	} else if (l->step == UNLOCK && l->left) {
		l->left--;
		l->step = LOCK;
	} else {
		l->step++;
	}
	if (l->step == OPEN && !l->left)
		return;
	rest(l, r < 0 ? REST_NS :
			sim_between(&w->sim, 1000,
				    l->writes_left ? 2 * NSEC_PER_SEC : 20 * NSEC_PER_MSEC));
}

/* ---- one step ---- */

static void begin(struct locker *l)
{
	struct world *w = l->a->w;
	struct cop *c = cop_new(l->a->client, &root_cred);
	static const struct extent place = { 0, 8 };
	struct wire_lock want = { .owner = OWNER, .last = 99, .kind = LOCK_EXCLUSIVE };

	c->done = done;
	c->user = l;
	l->busy = true;
	l->began = w->sim.now;
	if ((l->step == UNLOCK || l->step == CLOSE) && w->lock_holder == l)
		w->lock_holder = NULL; /* other clients may get it from now on */
	if (l->step == UNLOCK || l->step == CLOSE)
		l->reads = false;
	switch (l->step) {
	case OPEN:
		l->isolations = l->a->isolations;
		l->unclean = w->n_unclean;
		l->lock_lost = l->writes_left = 0;
		client_open(c, root, PATH, O_RDWR, 0, NULL);
		break;
	case LOCK:
		l->gave_up = false;
		l->losses = losses(w);
		l->shared = sim_chance(&w->sim, 300000);
		if (l->shared)
			want.kind = LOCK_SHARED;
		if (sim_chance(&w->sim, 100000))
			sim_after(&w->sim, sim_between(&w->sim, 1000, NSEC_PER_SEC), give_up, l);
		client_lock(c, l->f, &want, true);
		break;
	case WRITE:
		l->value = ++w->n_ops;
		l->losses = losses(w);
		l->mem = (struct iovec){ &l->value, sizeof(l->value) };
		client_write(c, l->f, &l->mem, 1, &place, 1);
		break;
	case READ:
		l->mem = (struct iovec){ &l->read_back, sizeof(l->read_back) };
		client_read(c, l->f, &l->mem, 1, &place, 1);
		break;
	case UNLOCK:
		want.kind = LOCK_NOTHING;
		client_lock(c, l->f, &want, false);
		break;
	default:
		client_close(c, l->f);
		break;
	}
}

/* ---- start, death, setup and cleanup ---- */

void locker_start(struct actor *a, uint32_t rounds)
{
	a->locker = (struct locker){ .a = a, .left = rounds };
	if (rounds)
		rest(&a->locker, sim_between(&a->w->sim, 1000, NSEC_PER_SEC));
}

bool locker_idle(const struct actor *a)
{
	return !a->locker.busy && !a->locker.resting;
}

void locker_died(struct actor *a)
{
	uint32_t left = a->locker.left;
	bool idle = locker_idle(a);

	if (a->w->lock_holder == &a->locker)
		a->w->lock_holder = NULL;
	a->locker = (struct locker){ .a = a, .left = left, .resting = !idle };
}

void locker_revived(struct actor *a)
{
	if (a->locker.resting)
		rest(&a->locker, REST_NS);
}

/* A call of the caretaker, before or after the run. */
struct errand {
	bool ended;
	int64_t result;
	struct cfile *f;
};

static void finished(struct cop *cop)
{
	*(struct errand *)cop->user = (struct errand){ true, cop->result, cop->file };
	cop_free(cop);
}

static bool has_ended(void *arg)
{
	return ((struct errand *)arg)->ended;
}

static struct cop *errand_start(struct world *w, struct errand *e)
{
	struct cop *c = cop_new(caretaker(w)->client, &root_cred);

	*e = (struct errand){ .result = -ETIMEDOUT };
	c->done = finished;
	c->user = e;
	return c;
}

static bool errand_end(struct world *w, struct errand *e, const char *what)
{
	sim_run(&w->sim, has_ended, e, 400 * NSEC_PER_SEC);
	if (e->result)
		world_fail(w, 0, "%s %s: %lld", what, PATH, (long long)e->result);
	return !e->result;
}

bool locks_setup(struct world *w)
{
	struct cfile *f;
	struct errand e;

	client_open(errand_start(w, &e), root, PATH, O_RDWR | O_CREAT | O_EXCL, 0644, NULL);
	if (!errand_end(w, &e, "make"))
		return false;
	f = e.f;
	client_close(errand_start(w, &e), f);
	return errand_end(w, &e, "close");
}

bool locks_cleanup(struct world *w)
{
	struct errand e;

	client_unlink(errand_start(w, &e), root, PATH);
	return errand_end(w, &e, "remove");
}
