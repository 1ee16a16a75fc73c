/* The event loop: waits for sources and timers, then steps the runnable requests. One thread turns
 * a loop; only loop_wake() may be called from other threads. */
#include <stdlib.h>

#include "core/core.h"

int loop_init(struct loop *l, struct env *e)
{
	memset(l, 0, sizeof(*l));
	l->env = e;
	list_init(&l->runnable);
	list_init(&l->deferred);
	list_init(&l->deferred_last);
	list_init(&l->all);
	l->now = e->clock->now(e);
	return e->sock->loop_init(e, l);
}

void loop_fini(struct loop *l)
{
	if (!l->env)
		return;
	l->env->sock->loop_fini(l->env, l);
	free(l->heap);
	memset(l, 0, sizeof(*l));
}

uint64_t loop_wait_ns(struct loop *l)
{
	uint64_t now;

	if (!list_empty(&l->runnable) || !list_empty(&l->deferred) ||
	    !list_empty(&l->deferred_last))
		return 0;
	if (!l->n_heap)
		return UINT64_MAX;
	now = l->env->clock->now(l->env);
	return l->heap[0]->when > now ? l->heap[0]->when - now : 0;
}

#define ROUNDS 8 /* of requests that make each other runnable, before the next poll */

/* Fires due timers, then runs the runnable requests and those that become runnable meanwhile. */
void loop_run_reqs(struct loop *l)
{
	struct list batch = LIST_INIT(batch), later = LIST_INIT(later);
	struct list *it;

	l->turns++;
	l->now = l->env->clock->now(l->env);
	while (l->n_heap && l->heap[0]->when <= l->now) {
		struct timer *t = l->heap[0];

		timer_del(l, t);
		t->fire(t);
	}
	for (int i = 0; i < ROUNDS && !list_empty(&l->runnable); i++) {
		list_splice(&batch, &l->runnable);
		while ((it = list_pop(&batch)))
			if (i && list_entry(it, struct req, link)->yields)
				list_push(&later, it); /* once per turn */
			else
				req_run(list_entry(it, struct req, link));
	}
	list_splice(&l->runnable, &later);
}

void loop_run_ready(struct loop *l)
{
	loop_run_reqs(l);
	loop_run_deferred(l);
}

void loop_defer(struct loop *l, struct deferred *d)
{
	if (list_empty(&d->link))
		list_push(&l->deferred, &d->link);
}

void loop_defer_last(struct loop *l, struct deferred *d)
{
	list_del(&d->link);
	list_push(&l->deferred_last, &d->link);
}

void loop_run_deferred(struct loop *l)
{
	struct list *it;

	while ((it = list_pop(&l->deferred)) || (it = list_pop(&l->deferred_last)))
		list_entry(it, struct deferred, link)->run(list_entry(it, struct deferred, link));
}

void loop_turn(struct loop *l, uint64_t max_ns)
{
	const struct sock_ops *s = l->env->sock;
	uint64_t ns;

	loop_run_deferred(l);
	ns = loop_wait_ns(l);
	l->calls++;
	if (s->poll(l->env, l, MIN(ns, max_ns)) > 0) {
		l->now = l->env->clock->now(l->env);
		s->dispatch(l->env, l);
	}
	loop_run_ready(l);
}

void loop_wake(struct loop *l)
{
	l->env->sock->wake(l->env, l);
}
