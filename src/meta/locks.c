/* Advisory locks of files and the waits for them. See locks.h.
 *
 * A space is a set of locks that can conflict: the ranges of one file, or its whole-file locks. It
 * has the ranges held and a line of waits, in order of arrival. A wait is granted when it conflicts
 * with no held lock and with no earlier wait in the line. There is one exception: an earlier wait
 * that depends, directly or through other waits, on the owner of this wait is overtaken, because
 * waiting for it would be a deadlock that the locks themselves do not cause. An owner that would
 * close a cycle of held locks gets EDEADLK instead of a place, so some wait can always be granted.
 *
 * The graph is searched breadth first from one wait, each wait once. All searches since
 * lock_searches_begin() share SEARCH_STEPS. When these are used up, progress comes before order: no
 * cycle is reported, and earlier waits are overtaken. Errors: -ENOMEM only. */
#include "meta/locks.h"

#define SEARCH_STEPS 100000

int lock_table_init(struct lock_table *t)
{
	list_init(&t->all);
	list_init(&t->todo);
	return htab_init(&t->by_owner);
}

void lock_space_init(struct lock_space *sp)
{
	list_init(&sp->held);
	list_init(&sp->line);
}

static uint64_t hash_of(const struct range *r, bool whole)
{
	return hash_u64(r->session ^ hash_u64(r->owner + whole));
}

int lock_wait_add(struct lock_table *t, struct lock_space *sp, struct lock_wait *w)
{
	if (htab_insert(&t->by_owner, &w->node, hash_of(&w->want, w->whole)))
		return -ENOMEM;
	w->space = sp;
	w->number = ++t->last_number;
	list_push(&sp->line, &w->link);
	list_push(&t->all, &w->all);
	return 0;
}

void lock_wait_del(struct lock_table *t, struct lock_wait *w)
{
	htab_remove(&t->by_owner, &w->node);
	list_del(&w->link);
	list_del(&w->all);
}

struct lock_wait *lock_wait_find(const struct lock_space *sp, uint64_t session, uint64_t ticket)
{
	struct lock_wait *w;

	list_for_each(w, &sp->line, link)
		if (w->want.session == session && w->ticket == ticket)
			return w;
	return NULL;
}

/* ---- the graph of waits ---- */

struct search {
	struct lock_table *t;
	const struct range *target; /* the owner to search for */
	bool by_line; /* dependence on an earlier wait in the line counts, too */
};

void lock_searches_begin(struct lock_table *t, uint64_t now)
{
	t->steps = SEARCH_STEPS;
	t->turn = now;
}

/* Takes one step from the budget. False: none is left. */
static bool go_on(struct lock_table *t)
{
	if (!t->steps)
		return false;
	t->steps--;
	return true;
}

static void visit(struct search *s, struct lock_wait *w)
{
	if (w->seen == s->t->round)
		return;
	w->seen = s->t->round;
	list_push(&s->t->todo, &w->todo);
}

/* Visits all waits of the owner of r. */
static void visit_owner(struct search *s, const struct range *r, bool whole)
{
	for (struct hnode *n = htab_first(&s->t->by_owner, hash_of(r, whole)); n && go_on(s->t);
	     n = htab_next(n)) {
		struct lock_wait *w = container_of(n, struct lock_wait, node);

		if (range_same_owner(&w->want, r) && w->whole == whole)
			visit(s, w);
	}
}

/* Does w wait for the target's owner directly? If not, queues what w waits for. */
static bool look_at(struct search *s, const struct lock_wait *w)
{
	const struct range *r;
	struct lock_wait *before;

	list_for_each(r, &w->space->held, link) {
		if (!go_on(s->t))
			return false;
		if (!range_conflicts(r, &w->want))
			continue;
		if (range_same_owner(r, s->target))
			return true;
		visit_owner(s, r, w->whole);
	}
	if (!s->by_line)
		return false;
	list_for_each(before, &w->space->line, link) {
		if (before == w || !go_on(s->t))
			break;
		if (!range_conflicts(&before->want, &w->want))
			continue;
		if (range_same_owner(&before->want, s->target))
			return true;
		visit(s, before);
	}
	return false;
}

/* Does `from` depend, directly or through other waits, on the owner of `target`? Out of steps, the
 * answer is the one that delays no wait. */
static bool waits_for(struct lock_table *t, struct lock_wait *from, const struct range *target,
		      bool by_line)
{
	struct search s = { .t = t, .target = target, .by_line = by_line };
	bool found = false;
	struct list *it;

	t->round++;
	visit(&s, from);
	while ((it = list_pop(&t->todo)))
		if (!found)
			found = look_at(&s, list_entry(it, struct lock_wait, todo));
	return found || (by_line && !t->steps);
}

bool lock_deadlock(struct lock_table *t, struct lock_wait *w)
{
	return waits_for(t, w, &w->want, false);
}

bool lock_grantable(struct lock_table *t, struct lock_wait *w)
{
	struct lock_wait *before;

	if (ranges_conflict(&w->space->held, &w->want))
		return false;
	list_for_each(before, &w->space->line, link) {
		if (before == w)
			break;
		if (range_conflicts(&before->want, &w->want) &&
		    !waits_for(t, before, &w->want, true))
			return false;
	}
	return true;
}
