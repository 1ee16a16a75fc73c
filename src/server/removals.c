/* Batches the removal of objects on each target: removals that arrive within GATHER_NS, or while
 * earlier ones are in progress, form one request of at most REMOVE_MAX. No caller needs the space
 * at once, so waiting for a batch is harmless.
 *
 *   SEND -> ANSWER -> (GATHER_NS later, or at once when there are enough) SEND ...
 *
 * Each object has its own status, so one that cannot be removed does not delay others. When the
 * target does not answer, all removals that wait for it fail. Threads: the loop's. Buffers: a
 * removal belongs to its caller, and is borrowed until q goes on. */
#include <stdlib.h>

#include "server/fan.h"

#define GATHER_NS (20 * NSEC_PER_MSEC)

enum { SEND, ANSWER };
static const char *const names[] = { [SEND] = "send", [ANSWER] = "answer" };

/* Exists while removals wait or are in progress. */
struct removals {
	struct req q;
	struct server *srv;
	uint32_t target;
	struct list waiting; /* struct removal, n_waiting of them */
	uint32_t n_waiting;
	struct timer gather;
	struct removal *sent[REMOVE_MAX];
	struct wire_removal list[REMOVE_MAX];
	struct wire_remove_args args;
	struct wire_remove_res res;
	struct call call;
	struct arena arena;
};

static void gathered(struct timer *t)
{
	req_done(&container_of(t, struct removals, gather)->q, 0, 0);
}

static void gather(struct removals *r)
{
	struct loop *l = r->srv->loop;

	req_hold(&r->q);
	r->gather.fire = gathered;
	if (r->n_waiting >= REMOVE_MAX || timer_set(l, &r->gather, l->now + GATHER_NS))
		req_done(&r->q, 0, 0);
}

static void send(struct removals *r)
{
	struct list *it;
	uint32_t n = 0;

	while (n < REMOVE_MAX && (it = list_pop(&r->waiting))) {
		r->sent[n] = list_entry(it, struct removal, link);
		r->list[n] = r->sent[n]->what;
		n++;
	}
	r->n_waiting -= n;
	r->args = (struct wire_remove_args){ n, r->list };
	r->call = server_call(r->srv, r->q.trace, OP_REMOVE, &r->args, &r->res);
	r->call.arena = &r->arena;
	peer_call(&r->srv->peers[r->target], &r->call, &r->q);
}

static void answer(struct removals *r)
{
	struct list *it;
	int e = r->q.error;

	if (!e && r->res.n_status != r->args.n_list)
		e = -EPROTO;
	for (uint32_t i = 0; i < r->args.n_list; i++)
		req_done(r->sent[i]->q, e ? e : -r->res.status[i], 0);
	while (e && (it = list_pop(&r->waiting))) {
		r->n_waiting--;
		req_done(list_entry(it, struct removal, link)->q, e, 0);
	}
	call_fini(&r->call);
	arena_reset(&r->arena);
	r->args.n_list = 0;
	r->q.error = 0;
}

static void removals_free(struct removals *r)
{
	r->srv->removals[r->target] = NULL;
	timer_del(r->srv->loop, &r->gather);
	call_fini(&r->call);
	arena_destroy(&r->arena);
	free(r);
}

static bool step(struct req *q)
{
	struct removals *r = container_of(q, struct removals, q);

	if (q->state == SEND) {
		req_goto(q, ANSWER);
		if (r->srv->stopping) /* their rows restart them after the server's restart */
			q->error = -ESHUTDOWN;
		else
			send(r);
		return true;
	}
	req_goto(q, SEND);
	answer(r);
	if (r->n_waiting) {
		gather(r);
		return true;
	}
	req_fini(q);
	removals_free(r);
	return false;
}

static const struct req_ops removals_ops = REQ_OPS("remove-together", step, ANSWER, names);

static struct removals *removals_new(struct server *srv, uint32_t target)
{
	struct removals *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->srv = srv;
	r->target = target;
	list_init(&r->waiting);
	arena_init(&r->arena, 0);
	req_init(&r->q, srv->loop, &removals_ops, SEND);
	r->q.trace = env_random_u64(srv->loop->env);
	srv->removals[target] = r;
	gather(r);
	return r;
}

void removal_add(struct server *srv, uint32_t target, struct removal *r)
{
	struct removals *all;

	req_hold(r->q);
	if (target >= srv->n_peers) {
		req_done(r->q, -EIO, 0);
		return;
	}
	all = srv->removals[target] ? srv->removals[target] : removals_new(srv, target);
	if (!all) {
		req_done(r->q, -ENOMEM, 0);
		return;
	}
	list_push(&all->waiting, &r->link);
	all->n_waiting++;
}

void removals_abandon(struct server *srv)
{
	for (uint32_t i = 0; i < TARGETS_MAX; i++) {
		struct removals *r = srv->removals[i];

		if (!r)
			continue;
		req_abandon(&r->q);
		removals_free(r);
	}
}
