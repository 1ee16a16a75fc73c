/* Changes over several servers, as servers that do not coordinate them see them; requests that met
 * such a change and wait for its end; and the background work that brings each change to its end.
 *
 *   RESOLVE  a part was prepared long ago: ask its coordinator for the outcome, and finish the part
 *   TELL     this server decided: make all participants finish, then forget the decision
 *
 *   ASK -> ANSWER -> END, and after an error or "not yet" once more after a pause
 *
 * Both are safe to repeat. A coordinator without a record of a change never decided it, so the
 * change did not happen. */
#include <stdlib.h>

#include "server/pair.h"

#define SCAN_NS \
	(2 * NSEC_PER_SEC) /* after two scans, ask about a part; after one, tell a decision */
#define AGAIN_NS NSEC_PER_SEC
#define PARK_NS (5 * NSEC_PER_MSEC) /* plus a random time of up to as much */

/* ---- parked requests ---- */

static void unpark_timer(struct timer *t)
{
	requests_unpark(container_of(t, struct server, unpark));
}

bool sreq_park(struct sreq *s)
{
	struct server *srv = s->srv;
	uint64_t end = s->deadline ? s->deadline : s->q.born + srv->conf->timeout_s * NSEC_PER_SEC;

	if (s->row->wire->flags & OPF_SERVERS) /* the coordinator retries by itself */
		return false;
	if (srv->stopping || srv->loop->now >= end) {
		s->q.error = srv->stopping ? -ESHUTDOWN : -ETIMEDOUT;
		return false;
	}
	arena_reset(&s->arena); /* start again as if the request had just arrived */
	s->change = (struct change){ .arena = &s->arena };
	s->q.error = sreq_decode(s);
	if (!s->q.error)
		s->q.error = sreq_identify(s); /* the message has the credential before squashing */
	if (s->q.error)
		return false;
	req_goto(&s->q, 0);
	req_hold(&s->q);
	list_push(&srv->parked, &s->node);
	if (!srv->unpark.when) {
		srv->unpark.fire = unpark_timer;
		timer_set(srv->loop, &srv->unpark,
			  srv->loop->now + PARK_NS +
				  env_random_u64(srv->loop->env) % (uint64_t)PARK_NS);
	}
	return true;
}

void requests_unpark(struct server *srv)
{
	struct list woken = LIST_INIT(woken), *it;

	timer_del(srv->loop, &srv->unpark);
	list_splice(&woken, &srv->parked);
	while ((it = list_pop(&woken))) {
		struct sreq *s = list_entry(it, struct sreq, node);

		list_init(&s->node);
		req_done(&s->q, 0, 0);
	}
}

/* ---- calls from coordinators ---- */

/* An entry that is added or removed here must not be under a lease. */
static int part_free(struct sreq *s, const struct wire_prepare_args *a)
{
	struct wire_record part = { 0 };
	struct xdr x;

	xdr_decoder(&x, a->part.p, a->part.len, &s->arena);
	if (!xdr_wire_record(&x, &part))
		return -EINVAL;
	if (part.kind != PART_ADD && part.kind != PART_DEL)
		return 0;
	return lease_block(s, 0, part.dir.ino, &part.name);
}

int prepare_part(struct sreq *s)
{
	struct wire_prepare_args *a = s->args;
	struct wire_record *r = &s->change.rec;

	int e;

	if (a->index >= PARTS_MAX)
		return -EINVAL;
	e = part_free(s, a);
	if (e)
		return e;
	sreq_record(s, REC_PREPARE);
	r->session = 0;
	r->pair = a->id;
	r->which = a->index;
	r->owner = a->coordinator;
	r->data = a->part;
	r->new_ino = meta_new_ino(s->srv->meta);
	return 0;
}

int finish_prepared(struct sreq *s)
{
	struct wire_prepare_res *r = s->res;

	r->at = s->change.res.at;
	r->old = s->change.res.removed;
	return 0;
}

int prepare_finish(struct sreq *s)
{
	struct wire_finish_args *a = s->args;

	sreq_record(s, REC_FINISH);
	s->change.rec.session = 0;
	s->change.rec.pair = a->id;
	s->change.rec.flags = a->commit ? REC_COMMIT : 0;
	return 0;
}

int finish_finish(struct sreq *s)
{
	int e = finish_removed(s);

	requests_unpark(s->srv);
	return e;
}

static bool under_way(const struct server *srv, uint64_t id)
{
	const struct pair_state *st;

	list_for_each(st, &srv->pairs, link)
		if (st->id == id)
			return true;
	return false;
}

int do_outcome(struct sreq *s)
{
	struct wire_outcome_args *a = s->args;
	struct wire_outcome_res *r = s->res;
	int e;

	r->outcome = OUTCOME_OPEN;
	if (under_way(s->srv, a->id))
		return 0;
	e = meta_decided(s->srv->meta, a->id);
	r->outcome = e ? OUTCOME_ABORT : OUTCOME_COMMIT;
	return e == -ENOENT ? 0 : e;
}

int do_climb(struct sreq *s)
{
	struct wire_climb_args *a = s->args;
	struct wire_climb_res *r = s->res;
	int e;

	r->at = a->at;
	e = meta_climb(s->srv->meta, a->ino, &r->at);
	r->end = e < 0 ? 0 : (uint32_t)e;
	return MIN(e, 0);
}

/* ---- background work ---- */

enum { ASK, ANSWER, END };
static const char *const names[] = { [ASK] = "ask", [ANSWER] = "answer", [END] = "end" };

struct pair_task {
	struct req q;
	struct list link;
	struct server *srv;
	struct meta_pair p;
	bool told;
	struct call calls[PARTS_MAX];
	struct wire_finish_args finish_args;
	struct wire_outcome_args outcome_args;
	struct wire_outcome_res outcome;
	struct wire_void_res none;
	struct change change;
	struct arena arena;
	struct timer again;
};

static const struct req_ops resolve_ops, tell_ops;

static void call_target(struct pair_task *t, uint32_t i, struct call c)
{
	uint32_t target = t->p.targets[i];

	if (target >= t->srv->n_peers) {
		req_fail(&t->q, -EIO);
		return;
	}
	t->calls[i] = c;
	peer_call(&t->srv->peers[target], &t->calls[i], &t->q);
}

static void ask_outcome(struct pair_task *t)
{
	t->outcome_args.id = t->p.id;
	call_target(t, 0,
		    server_call(t->srv, t->q.trace, OP_OUTCOME, &t->outcome_args, &t->outcome));
}

static void tell_all(struct pair_task *t)
{
	t->finish_args = (struct wire_finish_args){ t->p.id, true };
	for (uint32_t i = 0; !t->told && i < t->p.n; i++)
		call_target(t, i,
			    server_call(t->srv, t->q.trace, OP_FINISH, &t->finish_args, &t->none));
}

static void record(struct pair_task *t, uint32_t kind, uint32_t flags)
{
	struct env *e = t->srv->loop->env;

	t->change.arena = &t->arena;
	t->change.rec = (struct wire_record){
		.kind = kind, .time = (int64_t)e->clock->wall(e), .pair = t->p.id, .flags = flags
	};
	meta_submit(t->srv->meta, &t->change, &t->q);
}

static void pair_task_free(struct pair_task *t)
{
	for (uint32_t i = 0; i < PARTS_MAX; i++)
		call_fini(&t->calls[i]);
	timer_del(t->srv->loop, &t->again);
	list_del(&t->link);
	arena_destroy(&t->arena);
	free(t);
}

static void again(struct timer *tm)
{
	req_done(&container_of(tm, struct pair_task, again)->q, 0, 0);
}

static bool finish_task(struct pair_task *t)
{
	struct req *q = &t->q;
	struct server *srv = t->srv;
	const struct wire_handle *removed = &t->change.res.removed;

	if (q->error && !srv->stopping) {
		q->error = 0;
		for (uint32_t i = 0; i < PARTS_MAX; i++)
			call_fini(&t->calls[i]);
		arena_reset(&t->arena);
		req_goto(q, ASK);
		req_hold(q);
		timer_set(srv->loop, &t->again, srv->loop->now + AGAIN_NS);
		return true;
	}
	if (!q->error && removed->ino)
		file_removed(srv, removed);
	req_fini(q);
	pair_task_free(t);
	if (!srv->stopping)
		requests_unpark(srv);
	return false;
}

static bool step(struct req *q)
{
	struct pair_task *t = container_of(q, struct pair_task, q);
	bool tells = q->ops == &tell_ops;

	if (t->srv->stopping && q->state != END) { /* its row restarts it */
		req_goto(q, END);
		q->error = -ESHUTDOWN;
		return true;
	}
	switch (q->state) {
	case ASK:
		req_goto(q, ANSWER);
		if (tells)
			tell_all(t);
		else
			ask_outcome(t);
		break;
	case ANSWER:
		req_goto(q, END);
		if (tells)
			record(t, REC_TOLD, 0);
		else if (t->outcome.outcome == OUTCOME_OPEN)
			q->error = -EAGAIN;
		else
			record(t, REC_FINISH,
			       t->outcome.outcome == OUTCOME_COMMIT ? REC_COMMIT : 0);
		break;
	case END:
		return finish_task(t);
	}
	return true;
}

static const struct req_ops resolve_ops = REQ_OPS("resolve-change", step, END, names);
static const struct req_ops tell_ops = REQ_OPS("tell-decision", step, END, names);

static void pair_task_start(struct server *srv, const struct req_ops *ops,
			    const struct meta_pair *p, bool told)
{
	struct pair_task *t;

	if (srv->stopping)
		return;
	list_for_each(t, &srv->pair_tasks, link)
		if (t->p.id == p->id && t->q.ops == ops)
			return;
	t = calloc(1, sizeof(*t));
	if (!t) /* the next scan or start finds it */
		return;
	t->srv = srv;
	t->p = *p;
	t->told = told;
	t->again.fire = again;
	arena_init(&t->arena, 0);
	list_push(&srv->pair_tasks, &t->link);
	req_init(&t->q, srv->loop, ops, ASK);
	t->q.trace = env_random_u64(srv->loop->env);
	req_run(&t->q);
}

void pair_tell(struct server *srv, const struct meta_pair *p, bool told)
{
	pair_task_start(srv, &tell_ops, p, told);
}

/* ---- the scan ---- */

struct found {
	struct meta_pair *p;
	size_t n, cap;
};

static void found_one(void *arg, const struct meta_pair *p)
{
	struct found *f = arg;

	if (f->n && f->p[f->n - 1].id == p->id) /* another part of the same change */
		return;
	if (f->n == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 16;
		struct meta_pair *more = realloc(f->p, cap * sizeof(*more));

		if (!more)
			return;
		f->p = more;
		f->cap = cap;
	}
	f->p[f->n++] = *p;
}

static bool seen_before(const struct server *srv, uint64_t id)
{
	for (size_t i = 0; i < srv->n_old_pairs; i++)
		if (srv->old_pairs[i] == id)
			return true;
	return false;
}

/* Continues every decided change, except those whose request still tells its participants. */
static void scan_decided(struct server *srv)
{
	struct found f = { 0 };

	meta_each_decided(srv->meta, found_one, &f);
	for (size_t i = 0; i < f.n; i++)
		if (!under_way(srv, f.p[i].id))
			pair_tell(srv, &f.p[i], false);
	free(f.p);
}

/* Resolves every part that the last scan saw as well; at the start: all of them. */
static void scan(struct server *srv, bool all)
{
	struct found f = { 0 };
	uint64_t *ids;

	scan_decided(srv);
	meta_each_prepared(srv->meta, found_one, &f);
	for (size_t i = 0; i < f.n; i++)
		if (all || seen_before(srv, f.p[i].id))
			pair_task_start(srv, &resolve_ops, &f.p[i], false);
	ids = f.n ? calloc(f.n, sizeof(*ids)) : NULL;
	for (size_t i = 0; ids && i < f.n; i++)
		ids[i] = f.p[i].id;
	free(srv->old_pairs);
	srv->old_pairs = ids;
	srv->n_old_pairs = ids ? f.n : 0;
	free(f.p);
	timer_set(srv->loop, &srv->pair_scan, srv->loop->now + SCAN_NS);
}

static void scan_timer(struct timer *t)
{
	struct server *srv = container_of(t, struct server, pair_scan);

	if (!srv->stopping)
		scan(srv, false);
}

void pairs_recover(struct server *srv)
{
	if (srv->map.n_meta < 2)
		return;
	srv->pair_scan.fire = scan_timer;
	scan(srv, true);
}

void pairs_abandon(struct server *srv)
{
	struct list *it;

	timer_del(srv->loop, &srv->pair_scan);
	timer_del(srv->loop, &srv->unpark);
	free(srv->old_pairs);
	while ((it = list_pop(&srv->pair_tasks))) {
		struct pair_task *t = list_entry(it, struct pair_task, link);

		req_abandon(&t->q);
		list_init(&t->link);
		pair_task_free(t);
	}
}
