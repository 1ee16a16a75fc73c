/* Advisory locks of open files. The metadata server keeps them; the client remembers what it holds,
 * to claim it after a restart of that server.
 *
 *   ASK -> ANSWER (-> ASK, after a pause when the server says so) -> END
 *
 * A wait repeats its request under one ticket, which keeps its place in the server's line; none of
 * its calls takes longer than others. A flock that changes its kind and may wait releases the old
 * lock first, as flock(2) does.
 *
 * When the session is lost, so are its locks: they move to `lost`. From then on no open of this
 * client reads or writes the file until the owner has been told: its next lock or unlock there
 * returns -EIO and removes them. A read or write does not name its owner, so an owner that lost a
 * lock and continues through another open cannot be told from other owners. All of them are refused
 * rather than given wrong data. */
#include <stdlib.h>

#include "client/banked.h"
#include "client/file_impl.h"

enum { ASK, ANSWER, END };
static const char *const names[] = { [ASK] = "ask", [ANSWER] = "answer", [END] = "end" };

struct locking {
	struct list link; /* in c->lockings, while it may wait */
	struct cop *op;
	struct range want;
	uint32_t kind; /* the kind wanted in the end */
	bool test, pausing, cancelled;
	struct timer pause;
	uint64_t decide_by; /* without a wait: the deadline for the server to decide */
};

static struct list *set_of(struct list sets[LOCK_SETS], const struct wire_lock *l)
{
	return &sets[l->whole];
}

bool file_locks_lost(const struct cfile *f)
{
	return !list_empty(&f->holding->lost[0]) || !list_empty(&f->holding->lost[1]);
}

bool file_lost_own_locks(const struct cfile *f)
{
	const struct range *r;

	for (int i = 0; i < LOCK_SETS; i++)
		list_for_each(r, &f->holding->lost[i], link)
			if (r->open == f->id)
				return true;
	return false;
}

void file_lose_locks(struct cfile *f)
{
	struct range *r, *tmp;
	int grown;

	for (int i = 0; i < LOCK_SETS; i++)
		list_for_each_safe(r, tmp, &f->holding->locks[i], link) {
			struct list *lost = &f->holding->lost[i];

			if (r->open != f->id)
				continue;
			list_del(&r->link);
			if (!ranges_own(lost, r)) {
				list_push(lost, &r->link);
				continue;
			}
			ranges_hold(lost, r, &grown); /* lost a second time */
			free(r);
		}
}

struct holding *holding_find(const struct client *c, uint64_t ino)
{
	for (struct hnode *n = htab_first(&c->holdings, hash_u64(ino)); n; n = htab_next(n)) {
		struct holding *h = container_of(n, struct holding, node);

		if (h->ino == ino)
			return h;
	}
	return NULL;
}

int file_locks_init(struct cfile *f)
{
	struct holding *h = holding_find(f->c, f->h.ino);

	if (!h) {
		h = calloc(1, sizeof(*h));
		if (!h || htab_insert(&f->c->holdings, &h->node, hash_u64(f->h.ino))) {
			free(h);
			return -ENOMEM;
		}
		h->ino = f->h.ino;
		h->leaves_bank = true; /* file_use_bank() decides */
		for (int i = 0; i < LOCK_SETS; i++) {
			list_init(&h->locks[i]);
			list_init(&h->lost[i]);
		}
	}
	h->opens++;
	f->holding = h;
	return 0;
}

void file_locks_free(struct cfile *f)
{
	struct holding *h = f->holding;

	if (!h)
		return;
	for (int i = 0; i < LOCK_SETS; i++) {
		ranges_drop(&h->locks[i], 0, f->id);
		ranges_drop(&h->lost[i], 0, f->id);
	}
	if (--h->opens)
		return;
	if (h->leaves_bank) /* it may have been written */
		attrs_changed(f->c, h->ino);
	htab_remove(&f->c->holdings, &h->node);
	free(h);
}

size_t locks_list(const struct list sets[LOCK_SETS], uint64_t open, struct wire_lock *out,
		  size_t skip, size_t max)
{
	const struct range *r;
	size_t n = 0;

	for (int i = 0; i < LOCK_SETS; i++)
		list_for_each(r, &sets[i], link) {
			if (r->open != open)
				continue;
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

/* Removes the lost locks of this owner in the range; true: there were some. */
static bool forget_lost_locks(struct cfile *f, const struct wire_lock *l, const struct range *want)
{
	struct list *lost = set_of(f->holding->lost, l);
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
	const struct wire_lock_args *a = &op->args.LOCK;

	if (!(a->flags & LOCK_WAIT) && op->q.loop->now >= l->decide_by)
		return -ETIMEDOUT;
	req_goto(&op->q, ASK);
	return l->cancelled ? 0 : pause_for(l, op->res.lock.pause_ms);
}

/* The server has executed the request: remembers it. A change of kind may have a second half. */
static int decided(struct locking *l)
{
	struct cop *op = l->op;
	struct wire_lock *w = &op->args.LOCK.want;
	int e = 0, grown;

	if (l->test)
		return 0;
	l->want.exclusive = w->kind == LOCK_EXCLUSIVE;
	if (w->kind != LOCK_NOTHING)
		e = ranges_hold(set_of(op->file->holding->locks, w), &l->want, &grown);
	if (w->kind != l->kind) {
		w->kind = l->kind;
		req_goto(&op->q, ASK);
	} else if (w->kind == LOCK_NOTHING && forget_lost_locks(op->file, w, &l->want)) {
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
	if (q->error == -EBADF) /* the server has closed the file */
		q->error = -EIO;
	if (q->error)
		return;
	if (op->args.LOCK.flags & LOCK_CANCEL)
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
		if (!l->decide_by)
			l->decide_by = q->loop->now + op->c->timeout_ns;
		if (l->cancelled)
			op->args.LOCK.flags |= LOCK_CANCEL;
		op->call = call_make(op, l->test ? OP_LOCK_TEST : OP_LOCK, &op->args, &op->res);
		peer_call(meta_peer(op->c, op->file->h.ino), &op->call, q);
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

static const struct req_ops lock_ops = REQ_OPS("lock", step, ANSWER, names);
/* For an operation that cannot begin. */
static const struct req_ops refuse_ops = REQ_OPS("lock", step, END, names);

static int check(struct cop *op, const struct locking *l)
{
	const struct wire_lock *w = &op->args.LOCK.want;
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
	if (!l->test && w->kind != LOCK_NOTHING && forget_lost_locks(f, w, &l->want))
		return -EIO;
	return 0;
}

/* A flock of another kind that waits: the lock that is held is released first. */
static bool releases_first(const struct cop *op, const struct locking *l)
{
	const struct wire_lock_args *a = &op->args.LOCK;
	const struct range *r = ranges_own(&op->file->holding->locks[LOCK_SETS - 1], &l->want);

	return a->want.whole && (a->flags & LOCK_WAIT) && r &&
	       r->exclusive != (a->want.kind == LOCK_EXCLUSIVE);
}

static void start(struct cop *op, struct cfile *f, const struct wire_lock *want, bool wait,
		  bool test)
{
	struct locking *l = arena_alloc(&op->arena, sizeof(*l));
	struct wire_lock_args *a = &op->args.LOCK;
	int e, grown;

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
						 .open = f->id,
						 .pid = want->pid } };
		list_init(&l->link);
	}
	e = check(op, l);
	if (!e && wait) {
		a->ticket = ++op->c->n_tickets;
		list_push(&op->c->lockings, &l->link);
		if (releases_first(op, l))
			a->want.kind = LOCK_NOTHING;
	}
	if (!e && !test && a->want.kind == LOCK_NOTHING) /* no claim has it from now on */
		e = ranges_release(set_of(f->holding->locks, want), &l->want, &grown);
	cop_start(op, e ? &refuse_ops : &lock_ops, e);
}

void client_lock(struct cop *op, struct cfile *f, const struct wire_lock *want, bool wait)
{
	f->holding->leaves_bank = true; /* what others wrote before they gave it up is wanted */
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
			peer_cancel_remote(&l->op->call);
		}
	}
}
