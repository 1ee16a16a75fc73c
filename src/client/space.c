/* Space: how much the servers have, and waiting for it.
 *
 * Removed files free their space in the background, so a server may refuse with -ENOSPC what it has
 * space for a moment later.
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

/* What several servers say of themselves. */
struct statuses {
	struct cop *op;
	struct timer pause;
	uint32_t n;
	struct {
		struct call call;
		struct wire_status_res res;
	} of[]; /* by target; zeros if it was not asked */
};

static struct statuses *statuses_new(struct cop *op)
{
	struct statuses *k =
		arena_alloc(&op->arena, sizeof(*k) + op->c->n_peers * sizeof(k->of[0]));

	op->state = k;
	if (k)
		*k = (struct statuses){ .op = op, .n = op->c->n_peers };
	return k;
}

static void ask(struct statuses *k, unsigned role, uint64_t timeout_ns)
{
	struct client *c = k->op->c;

	for (uint32_t i = 0; i < k->n; i++) {
		struct call *call = &k->of[i].call;

		if (!(c->targets[i].roles & role))
			continue;
		*call = call_make(k->op, OP_STATUS, &k->op->args, &k->of[i].res);
		call->deadline = c->loop->now + timeout_ns;
		peer_call(&c->peers[i], call, &k->op->q);
	}
}

/* ---- how much there is ---- */

/* Does an earlier target have its storage on the same disk? */
static bool counted(const struct statuses *k, uint32_t i)
{
	for (uint32_t other = 0; other < i; other++)
		if (k->of[i].res.storage && k->of[other].res.storage == k->of[i].res.storage)
			return true;
	return false;
}

static bool statfs_step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct statuses *k = op->state;

	if (q->state == ASK) {
		req_goto(q, COUNT);
		ask(k, ROLE_DATA, op->c->timeout_ns);
		return true;
	}
	for (uint32_t i = 0; k && i < k->n; i++) {
		if (!counted(k, i)) {
			op->space_total += k->of[i].res.space_total;
			op->space_avail += k->of[i].res.space_avail;
		}
		call_fini(&k->of[i].call);
	}
	return cop_end(op, q->error);
}

static const struct req_ops statfs_ops = REQ_OPS("statfs", statfs_step, COUNT, names);

void client_statfs(struct cop *op)
{
	cop_start(op, &statfs_ops, statuses_new(op) ? 0 : -ENOMEM);
}

/* ---- waiting for it ---- */

/* Files that are being removed at the servers that answered. */
static int64_t count(struct statuses *k)
{
	int64_t n = 0;

	for (uint32_t i = 0; i < k->n; i++) {
		n += k->of[i].call.status ? 0 : k->of[i].res.removals;
		call_fini(&k->of[i].call);
	}
	return n;
}

static void paused(struct timer *t)
{
	req_done(&container_of(t, struct statuses, pause)->op->q, 0, 0);
}

static void pause_for(struct statuses *k, uint64_t ns)
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
	struct statuses *k = op->state;

	switch (q->state) {
	case ASK:
		req_goto(q, COUNT);
		ask(k, ROLE_META, MIN(op->c->timeout_ns, NSEC_PER_SEC));
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
	if (r->until && (r->is_last || c->loop->now >= r->until))
		return false;
	if (!r->until)
		r->until = c->loop->now + SPACE_WAIT_NS;
	r->ask = cop_new(c, NULL);
	if (!r->ask || !statuses_new(r->ask)) {
		if (r->ask)
			cop_free(r->ask);
		r->ask = NULL;
		return false;
	}
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
