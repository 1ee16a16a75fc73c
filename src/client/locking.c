/* Advisory locks of open files. The metadata server has them; the client remembers what it holds, to claim it
 * after a restart of that server.
 *
 *   ASK -> ANSWER (-> ASK, after a pause when the server says so) -> END
 *
 * A wait is asked for again and again under one ticket, which keeps its place in the server's line; no call
 * of it takes longer than others. A flock that changes its kind and may wait lets go of the old one first, as
 * flock(2) does.
 *
 * When the session was lost, so were its locks: they move to `lost_locks`, and the file neither reads nor writes until their
 * owner has heard of it: its next lock or unlock there says -EIO and takes them off. */
#include <stdlib.h>

#include "client/cli_priv.h"

enum { ASK, ANSWER, END };
static const char *const names[] = { "ask", "answer", "end" };

struct locking {
	struct list link; /* of the client, while it may wait */
	struct cop *op;
	struct range want;
	uint32_t kind; /* what is wanted in the end */
	bool test, pausing, cancelled;
	struct timer pause;
	uint64_t patience; /* of those that do not wait, when the server cannot decide */
};

static struct list *set_of(struct list sets[LOCK_SETS], const struct wire_lock *l)
{
	return &sets[l->whole];
}

bool file_locks_lost(const struct cfile *f)
{
	return !list_empty(&f->lost_locks[0]) || !list_empty(&f->lost_locks[1]);
}

void file_lose_locks(struct cfile *f)
{
	struct list *it;
	int grown;

	for (int i = 0; i < LOCK_SETS; i++)
		while ((it = list_pop(&f->locks[i]))) {
			struct range *r = list_entry(it, struct range, link);

			if (!ranges_own(&f->lost_locks[i], r)) {
				list_push(&f->lost_locks[i], &r->link);
				continue;
			}
			ranges_hold(&f->lost_locks[i], r, &grown); /* lost twice */
			free(r);
		}
}

void file_locks_init(struct cfile *f)
{
	for (int i = 0; i < LOCK_SETS; i++) {
		list_init(&f->locks[i]);
		list_init(&f->lost_locks[i]);
	}
}

void file_locks_free(struct cfile *f)
{
	for (int i = 0; i < LOCK_SETS; i++) {
		ranges_free(&f->locks[i]);
		ranges_free(&f->lost_locks[i]);
	}
}

size_t locks_list(const struct list sets[LOCK_SETS], struct wire_lock *out, size_t skip, size_t max)
{
	const struct range *r;
	size_t n = 0;

	for (int i = 0; i < LOCK_SETS; i++)
		list_for_each(r, &sets[i], link) {
			if (n >= skip && n - skip < max && out)
				out[n - skip] = (struct wire_lock){ .owner = r->owner,
								    .start = r->start,
								    .last = r->last,
								    .kind = r->exclusive ?
										    LOCK_EXCLUSIVE :
										    LOCK_SHARED,
								    .whole = i,
								    .pid = r->pid };
			n++;
		}
	return n;
}

/* Takes what is lost of this owner there off the list; whether there was something. */
static bool hear_of_loss(struct cfile *f, const struct wire_lock *l, const struct range *want)
{
	struct list *lost = set_of(f->lost_locks, l);
	int grown;

	return ranges_own(lost, want) && !ranges_release(lost, want, &grown);
}

/* ---- one operation ---- */

static void pause_over(struct timer *t)
{
	struct locking *l = container_of(t, struct locking, pause);

	l->pausing = false;
	req_done(&l->op->q, 0, 0);
}

static int pause_for(struct locking *l, uint32_t ms)
{
	struct loop *lp = l->op->c->loop;
	int e = timer_set(lp, &l->pause, lp->now + MAX(ms, 1u) * NSEC_PER_MSEC);

	if (e)
		return e;
	l->pausing = true;
	req_hold(&l->op->q);
	return 0;
}

static int not_decided(struct locking *l)
{
	struct cop *op = l->op;
	const struct wire_lock_args *a = &op->args.lock;

	if (!(a->flags & LOCK_WAIT) && op->q.loop->now >= l->patience)
		return -ETIMEDOUT;
	req_goto(&op->q, ASK);
	return l->cancelled ? 0 : pause_for(l, op->res.lock.pause_ms);
}

/* The server has done it: remembers it. Then there may be the second half of a change of kind. */
static int decided(struct locking *l)
{
	struct cop *op = l->op;
	struct wire_lock *w = &op->args.lock.want;
	struct list *held = set_of(op->file->locks, w);
	int e, grown;

	if (l->test)
		return 0;
	l->want.exclusive = w->kind == LOCK_EXCLUSIVE;
	e = w->kind == LOCK_NOTHING ? ranges_release(held, &l->want, &grown) :
				      ranges_hold(held, &l->want, &grown);
	if (w->kind != l->kind) {
		w->kind = l->kind;
		req_goto(&op->q, ASK);
	} else if (w->kind == LOCK_NOTHING && hear_of_loss(op->file, w, &l->want)) {
		e = -EIO;
	}
	return e;
}

static void answered(struct locking *l)
{
	struct cop *op = l->op;
	struct req *q = &op->q;

	req_goto(q, END);
	call_fini(&op->call);
	if (q->error == -EBADF) /* it is not open there any more */
		q->error = -EIO;
	if (q->error)
		return;
	if (op->args.lock.flags & LOCK_CANCEL)
		q->error = -EINTR;
	else
		q->error = op->res.lock.again ? not_decided(l) : decided(l);
	if (q->error)
		req_goto(q, END);
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct locking *l = op->state;

	switch (q->state) {
	case ASK:
		req_goto(q, ANSWER);
		if (!l->patience)
			l->patience = q->loop->now + op->c->timeout_ns;
		if (l->cancelled)
			op->args.lock.flags |= LOCK_CANCEL;
		op->call = call_make(op, l->test ? OP_LOCK_TEST : OP_LOCK,
				     XDR_ANY(xdr_wire_lock_args), &op->args,
				     XDR_ANY(xdr_wire_lock_res), &op->res);
		peer_call(peer_of(op->c, op->file->h.ino), &op->call, q);
		break;
	case ANSWER:
		answered(l);
		break;
	case END:
		if (l)
			list_del(&l->link);
		return cop_end(op, q->error);
	}
	return true;
}

static const struct req_ops lock_ops = { "lock", step, ANSWER, 3, names };
/* What cannot even begin. */
static const struct req_ops refuse_ops = { "lock", step, END, 3, names };

static int check(struct cop *op, const struct locking *l)
{
	const struct wire_lock *w = &op->args.lock.want;
	static const uint32_t need[] = { 0, OPEN_READ, OPEN_WRITE };
	struct cfile *f = op->file;

	if (!l)
		return -ENOMEM;
	if (!f->unsynced)
		return -EISDIR;
	if (w->kind > LOCK_EXCLUSIVE || w->start > w->last)
		return -EINVAL;
	if (!l->test && !w->whole && (f->flags & need[w->kind]) != need[w->kind])
		return -EBADF;
	if (!l->test && w->kind != LOCK_NOTHING && hear_of_loss(f, w, &l->want))
		return -EIO;
	return 0;
}

/* A flock of another kind that waits: what is held goes first. */
static bool lets_go_first(const struct cop *op, const struct locking *l)
{
	const struct wire_lock_args *a = &op->args.lock;
	const struct range *r = ranges_own(&op->file->locks[LOCK_SETS - 1], &l->want);

	return a->want.whole && (a->flags & LOCK_WAIT) && r &&
	       r->exclusive != (a->want.kind == LOCK_EXCLUSIVE);
}

static void start(struct cop *op, struct cfile *f, const struct wire_lock *want, bool wait,
		  bool test)
{
	struct locking *l = arena_alloc(&op->arena, sizeof(*l));
	struct wire_lock_args *a = &op->args.lock;
	int e;

	wait = wait && want->kind != LOCK_NOTHING;
	op->file = f;
	op->state = l;
	*a = (struct wire_lock_args){
		.h = f->h, .open = f->id, .want = *want, .flags = wait ? LOCK_WAIT : 0
	};
	if (l) {
		*l = (struct locking){ .op = op,
				       .kind = want->kind,
				       .test = test,
				       .pause.fire = pause_over,
				       .want = { .start = want->start,
						 .last = want->last,
						 .owner = want->owner,
						 .pid = want->pid } };
		list_init(&l->link);
	}
	e = check(op, l);
	if (!e && wait) {
		a->ticket = ++op->c->n_tickets;
		list_push(&op->c->lockings, &l->link);
		if (lets_go_first(op, l))
			a->want.kind = LOCK_NOTHING;
	}
	cop_start(op, e ? &refuse_ops : &lock_ops, e);
}

void client_lock(struct cop *op, struct cfile *f, const struct wire_lock *want, bool wait)
{
	start(op, f, want, wait, false);
}

void client_lock_test(struct cop *op, struct cfile *f, const struct wire_lock *want)
{
	start(op, f, want, false, true);
}

void client_lock_cancel(struct client *c, uint64_t owner)
{
	struct locking *l;

	list_for_each(l, &c->lockings, link) {
		if (l->want.owner != owner || l->cancelled)
			continue;
		l->cancelled = true;
		if (l->pausing) {
			timer_del(c->loop, &l->pause);
			pause_over(&l->pause);
		} else {
			peer_hurry(&l->op->call);
		}
	}
}
