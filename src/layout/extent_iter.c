/* Portions: the part of a pattern that belongs to one object of a striped file.
 *
 * The object's bytes of a leaf are one range that is computed, however many stripes the leaf
 * covers. If the pattern ascends and a stripe holds many of its runs, the stream position of the
 * stripe's end tells how many bytes are inside, and all of them are taken at once (burst). If there
 * are many runs between two stripes of the object, the cursor jumps to the next stripe (jump).
 * Otherwise the leaves are examined one by one.
 *
 * Threads: one at a time per portion. Buffers: none; the pattern is borrowed. Errors: none. */
#include "layout/type.h"

#include <assert.h>

#include "layout/walk.h"

/* From this many runs on, passing them at once is cheaper than one by one
 * (bench/layout_bench.c). */
#define MANY_RUNS 4

/* The caller's arrays for extents. */
struct out {
	struct extent *e;
	uint64_t *pos; /* or NULL */
	size_t n, max;
	uint64_t left, end; /* bytes still wanted; stream position behind the last extent */
};

static bool fuses(const struct out *o, uint64_t obj, uint64_t pos)
{
	const struct extent *last = o->n ? &o->e[o->n - 1] : NULL;

	return last && last->offset + last->length == obj && (!o->pos || o->end == pos);
}

/* Appends an extent. The caller has checked that there is space or that it fuses. */
static void add(struct out *o, uint64_t obj, uint64_t len, uint64_t pos)
{
	if (fuses(o, obj, pos)) {
		o->e[o->n - 1].length += len;
	} else {
		if (o->pos)
			o->pos[o->n] = pos;
		o->e[o->n++] = (struct extent){ obj, len };
	}
	o->end = pos + len;
	o->left -= len;
}

void extent_iter_init(struct extent_iter *s, const struct pattern *p, const struct layout *l,
		      uint32_t index, uint64_t pos)
{
	uint64_t apart = p->segs ? (p->end - p->begin) / p->segs + 1 : 1;
	uint64_t others = (uint64_t)(l->width - 1) * l->unit;

	assert(l->unit && l->width && l->start < l->width && index < l->width);
	pattern_seek(&s->c, p, pos);
	s->layout = *l;
	s->index = index;
	s->by_stripe = l->width == 1 || (p->ascends && l->unit / apart >= MANY_RUNS);
	s->skips_gaps = p->ascends && others / apart >= MANY_RUNS;
	s->steps = 0;
}

/* Takes everything up to stream position `to`: it is in one stripe, whose file offset is `shift`
 * above its object offset. */
static void take_stripe(struct extent_iter *s, struct out *o, uint64_t to, uint64_t shift)
{
	uint64_t pos = s->c.pos, len = MIN(to - pos, o->left);
	struct extent one;
	size_t n;

	(void)pattern_runs(&s->c, &one, 1, len); /* the first run may fuse with the last extent */
	add(o, one.offset - shift, one.length, pos);
	pos += one.length;
	len -= one.length;
	if (!len || o->n == o->max)
		return;
	n = pattern_runs(&s->c, o->e + o->n, o->max - o->n, len);
	for (struct extent *e = o->e + o->n; e < o->e + o->n + n; e++) {
		e->offset -= shift;
		if (o->pos)
			o->pos[e - o->e] = pos;
		pos += e->length;
	}
	o->n += n;
	o->left -= s->c.pos - o->end;
	o->end = s->c.pos;
}

/* Takes the object's part of a leaf of `len` bytes: `own` bytes at `obj`. */
static void take_leaf(struct extent_iter *s, struct out *o, const struct walk *w, uint64_t len,
		      uint64_t own, uint64_t obj)
{
	uint64_t off = s->c.off, take = MIN(own, o->left);

	if (o->pos && w->l->width > 1)
		take = MIN(take, w->l->unit - obj % w->l->unit);
	add(o, obj, take, s->c.pos);
	pattern_skip(&s->c, take < own ? walk_span(w, off, obj, take) : len);
}

size_t extent_iter_next(struct extent_iter *s, struct extent *out, uint64_t *pos, size_t max,
			uint64_t max_bytes)
{
	struct out o = { .e = out, .pos = pos, .max = max, .left = max_bytes };
	const struct pattern *p = s->c.p;
	uint64_t len, own, obj = 0, lead = 0;
	struct walk w;

	assert(max && max_bytes);
	walk_init(&w, &s->layout, s->index);
	for (s->steps = 0; s->steps < EXTENT_ITER_STEPS && o.left && (len = pattern_leaf(&s->c));
	     s->steps++) {
		uint64_t off = s->c.off;

		own = walk_own(&w, off, len, &obj, &lead);
		if (!own) {
			if (s->skips_gaps)
				pattern_seek_offset(&s->c, p, off + walk_gap(&w, off - w.lo));
			else
				pattern_skip(&s->c, len);
			continue;
		}
		pattern_skip(&s->c, lead);
		if (o.n == max && !fuses(&o, obj, s->c.pos))
			break;
		if (s->layout.width == 1 && s->by_stripe)
			take_stripe(s, &o, p->total, 0);
		else if (s->by_stripe && own == len)
			take_stripe(s, &o, pattern_position(p, w.lo + w.span), off - obj);
		else
			take_leaf(s, &o, &w, len - lead, own, obj);
	}
	return o.n;
}
