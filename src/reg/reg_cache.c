/* The pin-down cache: regions that stay registered for later requests, found by address, and
 * removed when their memory changes or when the space is needed (the least recently used first).
 *
 * Threads: any, with the cache's lock; cache_bury() without it. Buffers: none of its own. Errors:
 * -ENOMEM. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "reg/reg_impl.h"

#define SYNC_TRIES 64

/* ---- the index ---- */

/* The number of regions that start below `at`. */
static size_t count_below(const struct region_index *x, uintptr_t at)
{
	size_t lo = 0, hi = x->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (x->of[mid]->at.start < at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void update_furthest(struct region_index *x, size_t i)
{
	for (; i < x->n; i++)
		x->furthest[i] = MAX(i ? x->furthest[i - 1] : 0, x->of[i]->at.end);
}

static int make_room(struct region_index *x)
{
	size_t room = x->room ? 2 * x->room : 64;
	struct region **of;
	uintptr_t *furthest;

	if (x->n < x->room)
		return 0;
	of = realloc(x->of, room * sizeof(*of));
	if (!of)
		return -ENOMEM;
	x->of = of;
	furthest = realloc(x->furthest, room * sizeof(*furthest));
	if (!furthest)
		return -ENOMEM;
	x->furthest = furthest;
	x->room = room;
	return 0;
}

int cache_insert(struct reg *r, struct region *g)
{
	struct region_index *x = &r->index;
	size_t i;

	if (make_room(x))
		return -ENOMEM;
	i = count_below(x, g->at.start);
	memmove(&x->of[i + 1], &x->of[i], (x->n - i) * sizeof(x->of[0]));
	x->of[i] = g;
	x->n++;
	update_furthest(x, i);
	return 0;
}

static void remove_at(struct reg *r, size_t i)
{
	struct region_index *x = &r->index;

	x->of[i]->state = REGION_PRIVATE;
	x->n--;
	memmove(&x->of[i], &x->of[i + 1], (x->n - i) * sizeof(x->of[0]));
	update_furthest(x, i);
}

void cache_remove(struct reg *r, struct region *g)
{
	for (size_t i = count_below(&r->index, g->at.start); i < r->index.n; i++)
		if (r->index.of[i] == g) {
			remove_at(r, i);
			return;
		}
}

struct region *cache_find(struct reg *r, struct span s, bool writable)
{
	const struct region_index *x = &r->index;

	for (size_t i = count_below(x, s.start + 1); i && x->furthest[i - 1] >= s.end; i--) {
		struct region *g = x->of[i - 1];

		if (g->state == REGION_CACHED && span_contains(g->at, s) &&
		    (g->is_writable || !writable))
			return g;
	}
	return NULL;
}

/* ---- uses ---- */

/* Takes a cached region out; its uses, if any, keep it until they end. */
static void retire_at(struct reg *r, size_t i)
{
	struct region *g = r->index.of[i];

	remove_at(r, i);
	if (!g->uses) {
		list_del(&g->link);
		list_push(&r->dead, &g->link);
	}
}

void cache_use(struct reg *r, struct region *g)
{
	(void)r;
	if (!g->uses++)
		list_del(&g->link);
}

void cache_unuse(struct reg *r, struct region *g)
{
	if (!--g->uses)
		list_push(g->state == REGION_CACHED ? &r->lru : &r->dead, &g->link);
}

bool cache_evict(struct reg *r)
{
	struct region *g = list_first(&r->lru, struct region, link);

	if (!g)
		return false;
	list_del(&g->link);
	cache_remove(r, g);
	list_push(&r->dead, &g->link);
	return true;
}

void cache_publish(struct reg *r, struct region *g)
{
	const struct region_index *x = &r->index;

	for (size_t i = count_below(x, g->at.end); i && x->furthest[i - 1] > g->at.start; i--) {
		const struct region *o = x->of[i - 1];

		if (o->state == REGION_CACHED && !o->uses && span_contains(g->at, o->at) &&
		    (g->is_writable || !o->is_writable))
			retire_at(r, i - 1);
	}
	g->state = REGION_CACHED;
}

void cache_bury(struct reg *r)
{
	struct list dead;
	struct region *g;

	list_init(&dead);
	pthread_mutex_lock(&r->burying);
	pthread_mutex_lock(&r->lock);
	list_splice(&dead, &r->dead);
	pthread_mutex_unlock(&r->lock);
	while ((g = list_first(&dead, struct region, link))) {
		list_del(&g->link);
		r->ops->drop(r->device, &g->m);
		pthread_mutex_lock(&r->lock);
		r->counts.pinned_bytes -= g->at.end - g->at.start;
		r->counts.deregistrations++;
		pthread_mutex_unlock(&r->lock);
		free(g);
	}
	pthread_mutex_unlock(&r->burying);
}

/* ---- changes of the address space ---- */

static void invalidate(struct reg *r, struct span s)
{
	const struct region_index *x = &r->index;

	for (size_t i = count_below(x, s.end); i && x->furthest[i - 1] > s.start; i--) {
		struct region *g = x->of[i - 1];

		if (!span_overlaps(g->at, s))
			continue;
		if (g->state == REGION_PENDING) {
			g->is_stale = true;
		} else {
			r->counts.invalidations++;
			retire_at(r, i - 1);
		}
	}
}

bool cache_sync(struct reg *r)
{
	const struct span everything = { 0, UINTPTR_MAX };
	struct watch_event e;
	bool is_idle, more;
	unsigned lost;

	if (!r->line)
		return true;
	is_idle = watch_is_idle(); /* before the events are taken */
	do {
		more = watch_next(r->line, &e, &lost);
		if (lost)
			invalidate(r, everything);
		if (lost & WATCH_LOST_DISCARDED)
			spans_add(&r->discarded, everything);
		if (!more)
			continue;
		invalidate(r, e.at);
		if (e.kind == WATCH_DISCARDED)
			spans_add(&r->discarded, e.at);
		else
			spans_remove(&r->discarded, e.at);
	} while (more);
	return is_idle;
}

bool cache_lock_synced(struct reg *r)
{
	for (int i = 0;; i++) {
		pthread_mutex_lock(&r->lock);
		if (cache_sync(r))
			return true;
		if (i == SYNC_TRIES)
			return false;
		pthread_mutex_unlock(&r->lock);
		sched_yield();
	}
}
