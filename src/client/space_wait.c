/* Waiting for space. Removed files free theirs in the background, so a server may refuse with
 * -ENOSPC what it has space for a moment later.
 *
 *   ASK -> COUNT -> END		nothing is being removed
 *   ASK -> COUNT -> (PAUSE_NS) -> END	otherwise
 *
 * After a refusal every metadata server is asked how many files it is removing, and the refused
 * request is sent again: once if there are none, since the last removal may have ended in between;
 * else until it succeeds or SPACE_WAIT_NS have passed. Threads: the loop's. Buffers: in the arena
 * of the question. Errors: a server that does not answer counts as removing nothing. */
#include "client/client_impl.h"

#define SPACE_WAIT_NS (5 * NSEC_PER_SEC)
#define PAUSE_NS (50 * NSEC_PER_MSEC)

enum { ASK, COUNT, END };
static const char *const names[] = { [ASK] = "ask", [COUNT] = "count", [END] = "pause" };

struct removals_query {
	struct cop *op;
	struct call *calls; /* one for each metadata server */
	struct wire_status_res *res;
	uint32_t n;
	struct timer pause;
};

static int ask(struct removals_query *k)
{
	struct cop *op = k->op;
	struct client *c = op->c;

	k->calls = arena_alloc(&op->arena, c->n_meta * sizeof(*k->calls));
	k->res = arena_alloc(&op->arena, c->n_meta * sizeof(*k->res));
	if (!k->calls || !k->res)
		return -ENOMEM;
	k->n = c->n_meta;
	for (uint32_t i = 0; i < k->n; i++) {
		k->calls[i] = call_make(op, OP_STATUS, &op->args, &k->res[i]);
		k->calls[i].deadline = c->loop->now + MIN(c->timeout_ns, NSEC_PER_SEC);
		peer_call(&c->peers[c->meta[i]], &k->calls[i], &op->q);
	}
	return 0;
}

/* Files that are being removed at the servers that answered. */
static int64_t count(struct removals_query *k)
{
	int64_t n = 0;

	for (uint32_t i = 0; i < k->n; i++) {
		n += k->calls[i].status ? 0 : k->res[i].removals;
		call_fini(&k->calls[i]);
	}
	return n;
}

static void paused(struct timer *t)
{
	req_done(&container_of(t, struct removals_query, pause)->op->q, 0, 0);
}

static void pause_for(struct removals_query *k, uint64_t ns)
{
	struct loop *l = k->op->c->loop;

	req_hold(&k->op->q);
	k->pause.fire = paused;
	if (timer_set(l, &k->pause, l->now + ns))
		req_done(&k->op->q, 0, 0);
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct removals_query *k = op->state;

	switch (q->state) {
	case ASK:
		req_goto(q, COUNT);
		req_fail(q, ask(k));
		break;
	case COUNT:
		req_goto(q, END);
		q->error = 0; /* from servers that did not answer */
		op->result = count(k);
		if (op->result)
			pause_for(k, PAUSE_NS);
		break;
	case END:
		return cop_end(op, op->result);
	}
	return true;
}

static const struct req_ops space_wait_ops = REQ_OPS("wait-space", step, COUNT, names);

static void asked(struct cop *op)
{
	req_done(op->user, 0, 0);
}

bool space_wait_begin(struct client *c, struct space_wait *r, struct req *q)
{
	struct removals_query *k;

	if (r->until && (r->is_last || c->loop->now >= r->until))
		return false;
	if (!r->until)
		r->until = c->loop->now + SPACE_WAIT_NS;
	r->ask = cop_new(c, NULL);
	k = r->ask ? arena_alloc(&r->ask->arena, sizeof(*k)) : NULL;
	if (!k) {
		if (r->ask)
			cop_free(r->ask);
		r->ask = NULL;
		return false;
	}
	k->op = r->ask;
	r->ask->state = k;
	r->ask->user = q;
	r->ask->done = asked;
	req_hold(q);
	cop_start(r->ask, &space_wait_ops, 0);
	return true;
}

void space_wait_end(struct space_wait *r)
{
	r->is_last = r->ask->result == 0;
	cop_free(r->ask);
	r->ask = NULL;
}
