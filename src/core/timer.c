/* Timers: a binary heap of pointers; ties fire in the order in which they were set. */
#include <stdlib.h>

#include "core/core.h"

static bool earlier(const struct timer *a, const struct timer *b)
{
	return a->when != b->when ? a->when < b->when : a->order < b->order;
}

static void place(struct loop *l, size_t at, struct timer *t)
{
	l->heap[at] = t;
	t->at = at;
}

static void sift_up(struct loop *l, size_t at)
{
	struct timer *t = l->heap[at];

	while (at > 0 && earlier(t, l->heap[(at - 1) / 2])) {
		place(l, at, l->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	place(l, at, t);
}

static void sift_down(struct loop *l, size_t at)
{
	struct timer *t = l->heap[at];

	for (;;) {
		size_t c = 2 * at + 1;

		if (c >= l->n_heap)
			break;
		if (c + 1 < l->n_heap && earlier(l->heap[c + 1], l->heap[c]))
			c++;
		if (!earlier(l->heap[c], t))
			break;
		place(l, at, l->heap[c]);
		at = c;
	}
	place(l, at, t);
}

int timer_set(struct loop *l, struct timer *t, uint64_t when_ns)
{
	timer_del(l, t);
	if (l->n_heap == l->cap_heap) {
		size_t cap = l->cap_heap ? 2 * l->cap_heap : 64;
		struct timer **h = realloc(l->heap, cap * sizeof(*h));

		if (!h)
			return -ENOMEM;
		l->heap = h;
		l->cap_heap = cap;
	}
	t->when = when_ns ? when_ns : 1;
	t->order = ++l->timer_order;
	l->heap[l->n_heap] = t;
	l->n_heap++;
	sift_up(l, l->n_heap - 1);
	return 0;
}

void timer_del(struct loop *l, struct timer *t)
{
	size_t at = t->at;

	if (!t->when)
		return;
	t->when = 0;
	l->n_heap--;
	if (at == l->n_heap)
		return;
	place(l, at, l->heap[l->n_heap]);
	sift_up(l, at);
	sift_down(l, at);
}
