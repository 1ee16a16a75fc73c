/* The request step machine. core.h has the contract. */
#include <assert.h>

#include "core/core.h"

void req_init(struct req *q, struct loop *l, const struct req_ops *ops, uint16_t state)
{
	memset(q, 0, sizeof(*q));
	q->ops = ops;
	q->loop = l;
	q->state = state;
	q->born = q->since = l->now;
	list_init(&q->link);
	list_push(&l->all, &q->all);
	l->n_reqs++;
}

/* Steps until something is pending or the request is freed. */
void req_run(struct req *q)
{
	bool alive;

	if (q->yields) {
		q->yields = false;
		if (--q->pending)
			return;
	}
	assert(q->pending == 0 && !q->stepping);
	do {
		if (q->error && q->state < q->ops->on_error)
			req_goto(q, q->ops->on_error);
		q->stepping = true;
		alive = q->ops->step(q);
		if (alive)
			q->stepping = false;
	} while (alive && q->pending == 0);
}

void req_goto(struct req *q, uint16_t state)
{
	uint64_t now = q->loop->now;

	if (q->hists)
		hist_add(&q->hists[q->state], now > q->since ? now - q->since : 0);
	q->since = now;
	q->state = state;
}

void req_hold(struct req *q)
{
	assert(q->pending < UINT16_MAX);
	q->pending++;
}

void req_done(struct req *q, int error, uint64_t bytes)
{
	assert(q->pending > 0);
	if (error && !q->error)
		q->error = error;
	q->bytes += bytes;
	if (--q->pending == 0 && !q->stepping)
		list_push(&q->loop->runnable, &q->link);
}

void req_yield(struct req *q)
{
	assert(q->stepping && !q->yields);
	q->yields = true;
	q->pending++;
	list_push(&q->loop->runnable, &q->link);
}

void req_fail(struct req *q, int error)
{
	if (error && !q->error)
		q->error = error;
}

void req_fini(struct req *q)
{
	assert(q->pending == 0);
	req_abandon(q);
}

void req_abandon(struct req *q)
{
	list_del(&q->link);
	list_del(&q->all);
	q->loop->n_reqs--;
}
