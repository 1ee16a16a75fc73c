/* Byte ranges held by owners, as in a lock table. A set is a list by start; the ranges of one owner
 * never overlap, and equal neighbours are merged. Callers enforce exclusion. */
#include <stdlib.h>

#include "base/base.h"

bool range_same_owner(const struct range *a, const struct range *b)
{
	return a->session == b->session && a->owner == b->owner;
}

bool range_overlaps(const struct range *a, const struct range *b)
{
	return a->start <= b->last && b->start <= a->last;
}

bool range_conflicts(const struct range *a, const struct range *b)
{
	return range_overlaps(a, b) && !range_same_owner(a, b) && (a->exclusive || b->exclusive);
}

static bool touches(const struct range *a, const struct range *b)
{
	return range_overlaps(a, b) || (a->start && b->last == a->start - 1) ||
	       (b->start && a->last == b->start - 1);
}

static bool alike(const struct range *a, const struct range *b)
{
	return a->exclusive == b->exclusive && a->open == b->open && a->pid == b->pid;
}

static void insert(struct list *set, struct range *r)
{
	struct range *at;

	list_for_each(at, set, link)
		if (at->start > r->start)
			break;
	list_insert_before(&at->link, &r->link);
}

static void drop(struct range *r)
{
	list_del(&r->link);
	free(r);
}

/* Cuts [start, last] of `cut` out of r, which overlaps it; if two parts remain, the second goes
 * into *tail. Returns by how many ranges the set grew. */
static int cut_out(struct list *set, struct range *r, const struct range *cut, struct range **tail)
{
	bool left = r->start<cut->start, right = r->last> cut->last;

	if (!left && !right) {
		drop(r);
		return -1;
	}
	if (left && right) {
		**tail = *r;
		(*tail)->start = cut->last + 1;
		insert(set, *tail);
		*tail = NULL;
	}
	if (left) {
		r->last = cut->start - 1;
		return right;
	}
	list_del(&r->link);
	r->start = cut->last + 1;
	insert(set, r);
	return 0;
}

static int change(struct list *set, const struct range *want, bool hold, int *grown)
{
	struct range *r, *tmp, *new = malloc(sizeof(*new)), *tail = malloc(sizeof(*tail));

	*grown = 0;
	if (!new || !tail) {
		free(new);
		free(tail);
		return -ENOMEM;
	}
	*new = *want;
	list_for_each_safe(r, tmp, set, link) {
		if (!range_same_owner(r, want) || !touches(r, want))
			continue;
		if (hold && alike(r, want)) {
			new->start = MIN(new->start, r->start);
			new->last = MAX(new->last, r->last);
			drop(r);
			--*grown;
		} else if (range_overlaps(r, want)) {
			*grown += cut_out(set, r, want, &tail);
		}
	}
	if (hold) {
		insert(set, new);
		new = NULL;
		++*grown;
	}
	free(new);
	free(tail);
	return 0;
}

int ranges_hold(struct list *set, const struct range *want, int *grown)
{
	return change(set, want, true, grown);
}

int ranges_release(struct list *set, const struct range *want, int *grown)
{
	return change(set, want, false, grown);
}

const struct range *ranges_own(const struct list *set, const struct range *want)
{
	const struct range *r;

	list_for_each(r, set, link)
		if (range_same_owner(r, want) && range_overlaps(r, want))
			return r;
	return NULL;
}

const struct range *ranges_conflict(const struct list *set, const struct range *want)
{
	const struct range *r;

	list_for_each(r, set, link)
		if (range_conflicts(r, want))
			return r;
	return NULL;
}

size_t ranges_drop(struct list *set, uint64_t session, uint64_t open)
{
	struct range *r, *tmp;
	size_t n = 0;

	list_for_each_safe(r, tmp, set, link) {
		if (r->session != session || r->open != open)
			continue;
		drop(r);
		n++;
	}
	return n;
}

void ranges_free(struct list *set)
{
	struct list *it;

	while ((it = list_pop(set)))
		free(list_entry(it, struct range, link));
}
