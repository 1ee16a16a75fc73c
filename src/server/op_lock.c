/* OP_LOCK and OP_LOCK_TEST: advisory locks of open files, held in memory by the server that owns
 * the inode.
 *
 *   ASK -> REPLY, with a wait for the lock between them
 *
 * A wait is a place in the line of its file (struct lock_wait) and outlives the request that made
 * it. The request is parked for a while; then it is answered with "ask again", and the client
 * repeats it under the same ticket. A lock is granted only to a wait whose request is parked here,
 * so every grant has an answer. Only a few requests of a session are parked at a time, those of its
 * oldest waits, so that its slots stay free for other requests. The answers to the others say when
 * to ask again. A place is given up when no request has asked about it for PLACE_NS.
 *
 * No lock is granted in the grace period; nor, on a file of which a writer died, before a fence has
 * made sure that none of its writes will still arrive.
 *
 * Threads: the loop's. Buffers: none; a parked request keeps its message and its arena. Errors:
 * EAGAIN, EDEADLK, ENOLCK (too many), EBADF (not open with this right). */
#include <stdlib.h>

#include "server/op_state.h"
#include "server/task.h"

#define PARK_NS (2 * NSEC_PER_SEC)
#define PARKED_MAX 4 /* fewer than BUSY_SLOTS, the slots of a client when buffers are short */
#define PLACE_NS (5 * NSEC_PER_SEC)
#define PAUSE_MAX_MS 1000u
#define GRACE_PAUSE_MS 100

enum { ASK, REPLY };
static const char *const names[] = { [ASK] = "ask", [REPLY] = "wait" };

/* The range, with its session and owner, of a lock on the wire. */
static struct range range_of(const struct session *ss, uint64_t open, const struct wire_lock *l)
{
	return (struct range){ .start = l->whole ? 0 : l->start,
			       .last = l->whole ? UINT64_MAX : l->last,
			       .session = ss->id,
			       .owner = l->owner,
			       .open = open,
			       .exclusive = l->kind == LOCK_EXCLUSIVE,
			       .pid = l->pid };
}

static int sane(const struct wire_lock *l)
{
	return l->kind > LOCK_EXCLUSIVE || l->start > l->last ? -EINVAL : 0;
}

/* Does `want` lie inside a lock of the same owner, so that this lock becomes two? */
static bool splits(const struct lock_space *sp, const struct range *want)
{
	const struct range *r = ranges_own(&sp->held, want);

	return r && r->start < want->start && r->last > want->last;
}

static int hold(struct sreq *s, struct lock_space *sp, const struct range *want)
{
	struct usage *h = &s->session->held;
	int grown, most = 1 + splits(sp, want), e = sreq_take(s, h, LIMIT_LOCKS, (uint64_t)most);

	if (e)
		return e;
	e = ranges_hold(&sp->held, want, &grown);
	usage_give(h, LIMIT_LOCKS, (uint64_t)(most - grown));
	return e;
}

/* Are grants on this file held back? Starts the fence that ends this, where one is needed. */
static bool held_back(struct inode *i)
{
	if (!i->srv->in_grace && i->orphaned && !i->fencing) {
		i->fencing = true;
		if (task_start(i->srv, TASK_SETTLE, &i->h, 0, 0))
			i->fencing = false; /* the next request tries again */
	}
	return i->srv->in_grace || i->fencing || i->orphaned;
}

/* ---- waits ---- */

/* Answers the parked request of a wait; the wait keeps its place in the line. */
static void answer(struct lock_wait *w, int error, bool again, uint32_t pause_ms)
{
	struct sreq *s = w->asking;
	struct wire_lock_res *r;

	if (!s)
		return;
	r = s->res;
	r->again = again;
	r->pause_ms = pause_ms;
	((struct lock_state *)s->op)->wait = NULL;
	w->asking = NULL;
	list_del(&w->parked);
	timer_set(w->srv->loop, &w->timer, w->srv->loop->now + PLACE_NS);
	req_done(&s->q, error, 0);
}

static void wait_end(struct lock_wait *w, int error)
{
	answer(w, error, false, 0);
	timer_del(w->srv->loop, &w->timer);
	lock_wait_del(&w->srv->locks, w);
	usage_give(&w->session->held, LIMIT_LOCK_WAITS, 1);
	free(w);
}

static void wait_timer(struct timer *t)
{
	struct lock_wait *w = container_of(t, struct lock_wait, timer);
	struct inode *i = w->inode;

	if (w->asking) {
		answer(w, 0, true, 0);
		return;
	}
	wait_end(w, 0);
	lock_released(i); /* it may have blocked later waits */
}

static int wait_new(struct sreq *s, struct inode *i, struct lock_space *sp,
		    const struct range *want, struct lock_wait **out)
{
	const struct wire_lock_args *a = s->args;
	struct usage *h = &s->session->held;
	struct lock_wait *w;
	int e = sreq_take(s, h, LIMIT_LOCK_WAITS, 1);

	if (e)
		return e;
	w = calloc(1, sizeof(*w));
	if (!w) {
		usage_give(h, LIMIT_LOCK_WAITS, 1);
		return -ENOMEM;
	}
	*w = (struct lock_wait){ .want = *want,
				 .whole = a->want.whole,
				 .ticket = a->ticket,
				 .srv = s->srv,
				 .inode = i,
				 .session = s->session,
				 .since = s->srv->loop->now,
				 .uid = s->head.uid,
				 .timer.fire = wait_timer };
	list_init(&w->parked);
	if (lock_wait_add(&s->srv->locks, sp, w)) {
		usage_give(h, LIMIT_LOCK_WAITS, 1);
		free(w);
		return -ENOMEM;
	}
	*out = w;
	return 0;
}

/* Parks the request. If the session has too many parked, its youngest wait is answered. */
static int park(struct sreq *s, struct lock_wait *w)
{
	struct session *ss = s->session;
	struct lock_wait *p, *youngest = w;
	uint32_t n = 0, n_waits = (uint32_t)ss->held.used[LIMIT_LOCK_WAITS];
	uint32_t pause_ms = MIN(PAUSE_MAX_MS, 10 + 10 * n_waits);
	uint64_t now = s->srv->loop->now, until = now + PARK_NS;

	list_for_each(p, &ss->parked, parked) {
		n++;
		if (p->number > youngest->number)
			youngest = p;
	}
	if (s->deadline)
		until = MIN(until, now + (s->deadline - now) / 2);
	if (timer_set(s->srv->loop, &w->timer, until))
		return -ENOMEM;
	w->asking = s;
	((struct lock_state *)s->op)->wait = w;
	list_push(&ss->parked, &w->parked);
	req_hold(&s->q);
	if (n >= PARKED_MAX)
		answer(youngest, 0, true, pause_ms);
	return 0;
}

static int wait_for(struct sreq *s, struct inode *i, struct lock_space *sp,
		    const struct range *want)
{
	const struct wire_lock_args *a = s->args;
	struct lock_table *t = &s->srv->locks;
	struct lock_wait *w = lock_wait_find(sp, s->session->id, a->ticket);
	int e = 0;

	if (!w)
		e = wait_new(s, i, sp, want, &w);
	else if (w->want.start != want->start || w->want.last != want->last ||
		 w->want.exclusive != want->exclusive || w->want.open != want->open ||
		 !range_same_owner(&w->want, want))
		return -EINVAL; /* a ticket belongs to one lock request */
	if (e)
		return e;
	answer(w, 0, true, 0); /* an earlier request of this wait that is still parked */
	if (!w->whole && lock_deadlock(t, w)) {
		e = -EDEADLK;
	} else if (lock_grantable(t, w) && !held_back(i)) {
		e = hold(s, sp, want);
	} else {
		e = park(s, w);
		if (!e)
			return 0;
	}
	wait_end(w, 0);
	lock_released(i);
	return e;
}

void lock_released(struct inode *i)
{
	struct lock_table *t = &i->srv->locks;
	struct lock_wait *w, *tmp;
	bool changed;

	/* else the same request, or the end of the same session, has begun the searches */
	if (t->turn != i->srv->loop->now)
		lock_searches_begin(t, i->srv->loop->now);
	for (int k = 0; k < LOCK_SPACES; k++) {
		do {
			changed = false;
			list_for_each_safe(w, tmp, &i->locks[k].line, link) {
				if (!w->asking || !lock_grantable(t, w) || held_back(i))
					continue;
				wait_end(w, hold(w->asking, w->space, &w->want));
				changed = true;
			}
		} while (changed);
	}
}

void lock_closed(struct open_file *o)
{
	struct lock_wait *w, *tmp;

	for (int k = 0; k < LOCK_SPACES; k++) {
		struct lock_space *sp = &o->inode->locks[k];

		usage_give(&o->session->held, LIMIT_LOCKS,
			   ranges_drop(&sp->held, o->session->id, o->id));
		list_for_each_safe(w, tmp, &sp->line, link)
			if (w->session == o->session && w->want.open == o->id)
				wait_end(w, -EBADF);
	}
}

/* ---- locks that pass to another session ---- */

/* Locks without an open: their session got them from an older one. They end with it, or when their
 * owner unlocks or locks anew. */
struct kept_locks {
	struct list link;
	struct inode *inode;
};

/* The locks that belong to this open, or to none (0), get the new session and no open. */
static uint32_t pass(struct inode *i, uint64_t open, struct session *from, struct session *to)
{
	uint32_t n = 0;
	struct range *r;

	for (int k = 0; k < LOCK_SPACES; k++)
		list_for_each(r, &i->locks[k].held, link) {
			if (r->session != from->id || r->open != open)
				continue;
			r->session = to->id;
			r->open = 0;
			n++;
		}
	usage_give(&from->held, LIMIT_LOCKS, n);
	usage_add(&to->held, LIMIT_LOCKS, n);
	return n;
}

static void keep(struct session *ss, struct inode *i)
{
	struct kept_locks *k;

	list_for_each(k, &ss->kept, link)
		if (k->inode == i)
			return;
	k = malloc(sizeof(*k));
	if (!k) {
		log_warn("server", "out of memory: locks of %s are lost", ss->client);
		for (int n = 0; n < LOCK_SPACES; n++)
			usage_give(&ss->held, LIMIT_LOCKS,
				   ranges_drop(&i->locks[n].held, ss->id, 0));
		return;
	}
	i->refs++;
	k->inode = i;
	list_push(&ss->kept, &k->link);
}

uint32_t locks_pass(struct session *from, struct session *to)
{
	uint32_t all = 0, n;
	struct kept_locks *k;
	struct open_file *o;

	list_for_each(k, &from->kept, link)
		all += pass(k->inode, 0, from, to);
	list_splice(&to->kept, &from->kept);
	list_for_each(o, &from->opens, in_session) {
		n = pass(o->inode, o->id, from, to);
		all += n;
		if (n)
			keep(to, o->inode);
	}
	return all;
}

static uint32_t count_kept(const struct session *ss, const struct inode *i)
{
	const struct range *r;
	uint32_t n = 0;

	for (int k = 0; k < LOCK_SPACES; k++)
		list_for_each(r, &i->locks[k].held, link)
			n += r->session == ss->id && !r->open;
	return n;
}

uint32_t locks_kept(struct session *ss, bool drops)
{
	struct kept_locks *k, *tmp;
	uint32_t all = 0, n;

	list_for_each_safe(k, tmp, &ss->kept, link) {
		for (int i = 0; drops && i < LOCK_SPACES; i++)
			usage_give(&ss->held, LIMIT_LOCKS,
				   ranges_drop(&k->inode->locks[i].held, ss->id, 0));
		n = count_kept(ss, k->inode);
		all += n;
		if (n)
			continue;
		lock_released(k->inode);
		inode_put(k->inode);
		list_del(&k->link);
		free(k);
	}
	return all;
}

void locks_kept_free(struct server *srv)
{
	struct session *ss;
	struct list *it;

	list_for_each(ss, &srv->sessions.all, all)
		while ((it = list_pop(&ss->kept)))
			free(list_entry(it, struct kept_locks, link));
}

/* ---- */

void lock_waits_answer(struct server *srv, struct session *ss)
{
	struct lock_wait *w;

	list_for_each(w, &srv->locks.all, all)
		if (!ss || w->session == ss)
			answer(w, 0, true, 0);
}

void lock_waits_free(struct server *srv)
{
	struct lock_wait *w, *tmp;

	list_for_each_safe(w, tmp, &srv->locks.all, all) {
		timer_del(srv->loop, &w->timer);
		free(w);
	}
	list_init(&srv->locks.all);
}

bool lock_parked(const struct sreq *s)
{
	return s->row->ops == &lock_ops && ((const struct lock_state *)s->op)->wait;
}

void lock_wait_end(struct sreq *s)
{
	if (lock_parked(s))
		answer(((struct lock_state *)s->op)->wait, 0, true, 0);
}

/* ---- the operations ---- */

static int again_later(struct sreq *s)
{
	struct wire_lock_res *r = s->res;

	r->again = true;
	r->pause_ms = GRACE_PAUSE_MS;
	return 0;
}

static int test(struct sreq *s, const struct lock_space *sp, const struct range *want)
{
	const struct wire_lock_args *a = s->args;
	struct wire_lock_res *r = s->res;
	const struct range *in_way = ranges_conflict(&sp->held, want);

	if (s->srv->in_grace)
		return again_later(s);
	if (in_way)
		r->found = (struct wire_lock){ .owner = in_way->owner,
					       .start = in_way->start,
					       .last = in_way->last,
					       .kind = in_way->exclusive ? LOCK_EXCLUSIVE :
									   LOCK_SHARED,
					       .whole = a->want.whole,
					       .pid = in_way->pid };
	return 0;
}

static int let_go(struct sreq *s, struct inode *i, struct lock_space *sp, const struct range *want)
{
	struct usage *h = &s->session->held;
	int grown, most = splits(sp, want), e = most ? sreq_take(s, h, LIMIT_LOCKS, 1) : 0;

	if (e)
		return e;
	e = ranges_release(&sp->held, want, &grown);
	usage_give(h, LIMIT_LOCKS, (uint64_t)(most - grown));
	lock_released(i);
	return e;
}

static int take(struct sreq *s, struct inode *i, struct lock_space *sp, const struct range *want)
{
	int e;

	if (ranges_conflict(&sp->held, want) && !s->srv->in_grace)
		return -EAGAIN;
	if (held_back(i))
		return again_later(s);
	e = hold(s, sp, want);
	lock_released(i); /* it may have downgraded or shortened a lock */
	return e;
}

static int cancel(struct sreq *s, struct inode *i, struct lock_space *sp)
{
	const struct wire_lock_args *a = s->args;
	struct lock_wait *w = lock_wait_find(sp, s->session->id, a->ticket);

	if (w) {
		wait_end(w, -EINTR);
		lock_released(i);
	}
	return 0;
}

static int ask(struct sreq *s)
{
	const struct wire_lock_args *a = s->args;
	static const uint32_t need[] = { 0, OPEN_READ, OPEN_WRITE };
	struct open_file *o = open_find(s->session, a->open);
	struct lock_space *sp;
	struct range want;
	int e = sane(&a->want);

	lock_searches_begin(&s->srv->locks, s->srv->loop->now);
	s->ino = a->h.ino;
	if (e)
		return e;
	if (!o || o->inode->h.ino != a->h.ino || o->inode->h.gen != a->h.gen)
		return -EBADF;
	sp = &o->inode->locks[a->want.whole ? LOCKS_OF_WHOLE : LOCKS_OF_RANGES];
	want = range_of(s->session, a->open, &a->want);
	if (s->head.op == OP_LOCK_TEST)
		return test(s, sp, &want);
	if (a->flags & LOCK_CANCEL)
		return cancel(s, o->inode, sp);
	if (a->want.kind == LOCK_NOTHING)
		return let_go(s, o->inode, sp, &want);
	if (!a->want.whole && !(o->flags & need[a->want.kind]))
		return -EBADF;
	return a->flags & LOCK_WAIT ? wait_for(s, o->inode, sp, &want) :
				      take(s, o->inode, sp, &want);
}

static bool step(struct req *q)
{
	struct sreq *s = sreq_of(q);

	if (q->state == REPLY)
		return sreq_reply(s);
	req_goto(q, REPLY);
	req_fail(q, ask(s));
	return true;
}

const struct req_ops lock_ops = REQ_OPS("lock", step, REPLY, names);

int lock_claim(struct sreq *s, struct inode *i)
{
	const struct wire_reclaim_args *a = s->args;
	int e = 0;

	if (a->n_locks && !claims_own(s))
		return -ESTALE;
	for (uint32_t k = 0; k < a->n_locks && !e; k++) {
		const struct wire_lock *l = &a->locks[k];
		struct lock_space *sp = &i->locks[l->whole ? LOCKS_OF_WHOLE : LOCKS_OF_RANGES];
		struct range want = range_of(s->session, a->id, l);

		e = l->kind == LOCK_NOTHING ? -EINVAL : sane(l);
		if (!e && ranges_conflict(&sp->held, &want))
			e = -EAGAIN;
		if (!e)
			e = hold(s, sp, &want);
	}
	return e;
}
