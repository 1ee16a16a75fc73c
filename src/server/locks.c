/* Advisory locks of files and those who wait for them. See locks.h.
 *
 * A space is what can conflict: the ranges of one file, or its whole-file locks. It has the ranges held and a line
 * of those who wait, in order of arrival. A wait is granted when nothing held conflicts with it and nobody
 * before it in the line does. With one exception: who is before it but itself waits, over however many
 * others, for the very owner of the wait, is overtaken; waiting for it would be a deadlock that the locks do
 * not ask for. Since an owner that closes a circle of held locks alone gets EDEADLK instead of a place, somebody
 * can always go on.
 *
 * The graph is searched breadth first from one wait, each wait once. All searches since lock_searches_begin() share
 * SEARCH_STEPS. When these are used up, progress comes before order: nobody is found to close a circle, and whoever
 * is before a wait in the line is overtaken. Errors: -ENOMEM only. */
#include "server/locks.h"

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

/* ---- who waits for whom ---- */

struct search {
	struct lock_table *t;
	const struct range *target; /* whose owner is looked for */
	bool by_line; /* waiting for somebody earlier in a line counts, too */
};

void lock_searches_begin(struct lock_table *t, uint64_t now)
{
	t->steps = SEARCH_STEPS;
	t->turn = now;
}

/* One step more? */
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

/* Everything that the owner of r waits for is part of it. */
static void visit_owner(struct search *s, const struct range *r, bool whole)
{
	for (struct hnode *n = htab_first(&s->t->by_owner, hash_of(r, whole)); n && go_on(s->t);
	     n = htab_next(n)) {
		struct lock_wait *w = container_of(n, struct lock_wait, node);

		if (range_same_owner(&w->want, r) && w->whole == whole)
			visit(s, w);
	}
}

/* Does w wait for the owner we look for? If not, whom it waits for is looked at later. */
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

/* Does `from` wait, over however many others, for the owner of `target`? Without steps: what keeps nobody waiting. */
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
