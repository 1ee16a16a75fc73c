/* Turns: range locks on the bytes of an object. One list per object in order of arrival; a turn is
 * granted when no earlier one in the list overlaps it, unless both only read.
 *
 * Threads: the loop's. Memory: the turns belong to the requests; nothing is allocated. */
#include "disk/disk_impl.h"

static bool turns_conflict(const struct turn *a, const struct turn *b)
{
	return (a->write || b->write) && a->lo < b->hi && b->lo < a->hi;
}

static bool turn_is_grantable(const struct object *o, const struct turn *t)
{
	const struct turn *u;

	list_for_each(u, &o->turns, link) {
		if (u == t)
			return true;
		if (turns_conflict(u, t))
			return false;
	}
	return true;
}

static void turn_enqueue(struct object *o, struct turn *t)
{
	t->object = o;
	t->granted = turn_is_grantable(o, t);
	list_push(&o->turns, &t->link);
	if (t->granted)
		req_done(t->q, 0, 0);
	else
		o->n_waiting++;
}

void turn_begin(struct object *o, struct turn *t, uint64_t epoch, uint64_t lo, uint64_t hi,
		bool write, struct req *q)
{
	*t = (struct turn){ .lo = lo, .hi = hi, .epoch = epoch, .write = write, .q = q };
	list_init(&t->link);
	req_hold(q);
	if (o->state != OBJECT_OPEN || epoch < o->floor)
		req_done(q, -ESTALE, 0);
	else
		turn_enqueue(o, t);
}

bool object_may_store(struct object *o, uint64_t epoch, uint64_t lo, uint64_t hi, int64_t now)
{
	const struct turn t = { .lo = lo, .hi = hi, .write = true };

	if (o->state != OBJECT_OPEN || epoch < o->floor || hi > o->end || !turn_is_grantable(o, &t))
		return false;
	o->gs.changed++;
	o->mtime = now;
	if (o->blocks * 512 < o->end) /* the store may fill a hole */
		o->blocks_stale = true;
	return true;
}

/* Takes the whole object after all accesses in flight; no fence refuses this turn. */
void turn_begin_whole(struct object *o, struct turn *t, struct req *q)
{
	*t = (struct turn){ .hi = UINT64_MAX, .epoch = UINT64_MAX, .write = true, .q = q };
	list_init(&t->link);
	req_hold(q);
	turn_enqueue(o, t);
}

static void grant_waiting(struct object *o)
{
	struct turn *t;

	if (!o->n_waiting)
		return;
	list_for_each(t, &o->turns, link) {
		if (t->granted || !turn_is_grantable(o, t))
			continue;
		t->granted = true;
		o->n_waiting--;
		req_done(t->q, 0, 0);
	}
}

static void turn_remove(struct turn *t, int error)
{
	struct object *o = t->object;

	list_del(&t->link);
	t->object = NULL;
	if (t->granted)
		return;
	o->n_waiting--;
	req_done(t->q, error, 0);
}

void turn_end(struct turn *t)
{
	struct object *o = t->object;

	if (!o)
		return;
	turn_remove(t, -ECANCELED);
	t->granted = false;
	grant_waiting(o);
}

/* Refuses waiting turns whose epoch is below the floor. */
void turn_refuse(struct object *o, uint64_t floor)
{
	struct turn *t, *tmp;

	list_for_each_safe(t, tmp, &o->turns, link) {
		if (t->granted || t->epoch >= floor)
			continue;
		o->disk->counters.refused++;
		turn_remove(t, -ESTALE);
	}
	grant_waiting(o);
}
