/* Address ranges, and small sorted sets of them.
 *
 * Threads: the caller's. Buffers, errors: none. */
#include <unistd.h>

#include "reg/reg_impl.h"

uintptr_t page_size(void)
{
	static atomic_ulong size;
	uintptr_t s = atomic_load_explicit(&size, memory_order_relaxed);

	if (!s) {
		s = (uintptr_t)sysconf(_SC_PAGESIZE);
		atomic_store_explicit(&size, s, memory_order_relaxed);
	}
	return s;
}

struct span span_of_pages(struct span s)
{
	uintptr_t mask = page_size() - 1;

	return (struct span){ s.start & ~mask, (s.end + mask) & ~mask };
}

static void delete_at(struct spans *set, size_t i, size_t n)
{
	memmove(&set->of[i], &set->of[i + n], (set->n - i - n) * sizeof(set->of[0]));
	set->n -= n;
}

static void insert_at(struct spans *set, size_t i, struct span s)
{
	memmove(&set->of[i + 1], &set->of[i], (set->n - i) * sizeof(set->of[0]));
	set->of[i] = s;
	set->n++;
}

/* Joins the two neighbours with the smallest distance. */
static void make_room(struct spans *set)
{
	size_t best = 0;

	for (size_t i = 1; i + 1 < set->n; i++)
		if (set->of[i + 1].start - set->of[i].end <
		    set->of[best + 1].start - set->of[best].end)
			best = i;
	set->of[best].end = set->of[best + 1].end;
	delete_at(set, best + 1, 1);
}

void spans_add(struct spans *set, struct span s)
{
	size_t i = 0, n = 0;

	if (s.start >= s.end)
		return;
	if (set->n == SPANS_MAX)
		make_room(set);
	while (i < set->n && set->of[i].end < s.start)
		i++;
	for (; i + n < set->n && set->of[i + n].start <= s.end; n++) {
		s.start = MIN(s.start, set->of[i + n].start);
		s.end = MAX(s.end, set->of[i + n].end);
	}
	delete_at(set, i, n);
	insert_at(set, i, s);
}

void spans_remove(struct spans *set, struct span s)
{
	for (size_t i = 0; i < set->n && set->of[i].start < s.end;) {
		struct span *o = &set->of[i];
		struct span rest = { s.end, o->end };

		if (!span_overlaps(*o, s)) {
			i++;
		} else if (o->start < s.start) {
			if (s.end < o->end && set->n == SPANS_MAX)
				return; /* no room for two parts: keep all */
			o->end = MIN(o->end, s.start);
			i++;
			if (rest.start < rest.end)
				insert_at(set, i++, rest);
		} else if (rest.start < rest.end) {
			o->start = s.end;
			i++;
		} else {
			delete_at(set, i, 1);
		}
	}
}

bool spans_overlap(const struct spans *set, struct span s)
{
	for (size_t i = 0; i < set->n; i++)
		if (span_overlaps(set->of[i], s))
			return true;
	return false;
}
