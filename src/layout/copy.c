/* A copy between two striped files: maps object ranges of the source to object ranges of the
 * destination.
 *
 * Pure; any thread; cannot fail. Costs a few divisions for each stripe and each object of the
 * source. */
#include "layout/layout.h"

#include <assert.h>

/* A file offset in a layout: its object, the offset there, and the bytes to the end of its
 * stripe. */
struct spot {
	uint32_t index;
	uint64_t off, rest;
};

static struct spot spot_of(const struct layout *l, uint64_t off)
{
	struct spot s;

	layout_locate(l, off, &s.index, &s.off);
	s.rest = l->unit - off % l->unit;
	return s;
}

/* Adds a piece or extends the last one; false: no space. */
static bool add(struct copy_piece *out, size_t *n, size_t max, const struct copy_piece *p)
{
	struct copy_piece *last = *n ? &out[*n - 1] : NULL;

	if (last && last->from + last->length == p->from && last->to + last->length == p->to) {
		last->length += p->length;
		return true;
	}
	if (*n == max)
		return false;
	out[(*n)++] = *p;
	return true;
}

/* Collects pieces that come from object c->source, from c->pos on. */
static size_t collect(const struct copy *k, uint32_t index, struct copy_cursor *c,
		      struct copy_piece *out, size_t max, uint64_t max_bytes)
{
	uint64_t bytes = 0;
	size_t n = 0;

	while (c->pos < k->length && bytes < max_bytes) {
		struct spot to = spot_of(&k->out, k->to + c->pos);
		struct spot from = spot_of(&k->in, k->from + c->pos);
		uint64_t run = MIN(MIN(to.rest, from.rest), k->length - c->pos);

		if (to.index != index) { /* skip to the object's next stripe */
			uint32_t d = (index + k->out.width - to.index) % k->out.width;

			c->pos += to.rest + (uint64_t)(d - 1) * k->out.unit;
			continue;
		}
		if (from.index == c->source) {
			run = MIN(run, max_bytes - bytes);
			if (!add(out, &n, max, &(struct copy_piece){ from.off, to.off, run }))
				break;
			bytes += run;
		}
		c->pos += run;
	}
	return n;
}

size_t copy_plan(const struct copy *k, uint32_t index, struct copy_cursor *c,
		 struct copy_piece *out, size_t max, uint64_t max_bytes)
{
	assert(index < k->out.width && max && max_bytes);
	for (; c->round < k->in.width; c->round++, c->pos = 0) {
		size_t n;

		/* requests for different objects begin with different sources */
		c->source = (index + c->round) % k->in.width;
		n = collect(k, index, c, out, max, max_bytes);
		if (n)
			return n;
	}
	return 0;
}
