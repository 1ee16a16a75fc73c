/* Private to layout: division that is cheap for small numbers, and a walker over file extents that
 * keeps its current stripe, so that extents within one stripe need no division. */
#ifndef SHEAF_LAYOUT_WALK_H
#define SHEAF_LAYOUT_WALK_H

#include "layout/layout.h"

static inline uint64_t layout_div(uint64_t a, uint32_t b)
{
	if (!(a >> 32))
		return (uint32_t)a / b;
	if (!(b & (b - 1)))
		return a >> __builtin_ctz(b);
	return a / b;
}

/* The column of this object: which stripe of each row it holds. */
static inline uint32_t layout_column(const struct layout *l, uint32_t index)
{
	if (index >= l->start) /* both are below width */
		return index - l->start;
	return index + l->width - l->start;
}

struct walk {
	const struct layout *l;
	uint32_t index, col;
	uint64_t lo; /* file offset of the current stripe */
	uint64_t span; /* unit, or 0: no current stripe */
	uint64_t row; /* row of the current stripe */
	uint32_t at; /* column of the current stripe */
};

static inline void walk_init(struct walk *w, const struct layout *l, uint32_t index)
{
	*w = (struct walk){ .l = l, .index = index, .col = layout_column(l, index) };
}

/* Makes the stripe of `off` the current one; returns off's offset in it. */
static inline uint64_t walk_enter(struct walk *w, uint64_t off)
{
	uint64_t s;

	if (off - w->lo < w->span)
		return off - w->lo;
	s = layout_div(off, w->l->unit);
	w->row = layout_div(s, w->l->width);
	w->at = (uint32_t)(s - w->row * w->l->width);
	w->lo = s * w->l->unit;
	w->span = w->l->unit;
	return off - w->lo;
}

/* Bytes from offset `in` of the current stripe to the object's next stripe; 0 inside one of its
 * stripes. */
static inline uint64_t walk_gap(const struct walk *w, uint64_t in)
{
	uint64_t d = w->col >= w->at ? w->col - w->at : w->col + (uint64_t)w->l->width - w->at;

	return d ? d * w->l->unit - in : 0;
}

/* The object's own bytes among the `len` at file offset `off`: returns their number; *obj is their
 * object offset, *lead the number of other objects' bytes before them. They are always one range of
 * the object. */
static inline uint64_t walk_own(struct walk *w, uint64_t off, uint64_t len, uint64_t *obj,
				uint64_t *lead)
{
	uint64_t in = walk_enter(w, off);
	uint64_t gap = walk_gap(w, in);
	uint64_t unit = w->l->unit;

	if (gap >= len)
		return 0;
	*lead = gap;
	*obj = (w->row + (gap && w->col < w->at)) * unit + (gap ? 0 : in);
	if (!gap && len <= unit - in)
		return len;
	return layout_object_size(w->l, w->index, off + len) - *obj;
}

/* File bytes from `off` to behind the first `take` own bytes, which begin at `obj`. */
static inline uint64_t walk_span(const struct walk *w, uint64_t off, uint64_t obj, uint64_t take)
{
	return layout_file_offset(w->l, w->index, obj + take - 1) + 1 - off;
}

#endif
