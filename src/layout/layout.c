/* Dense striping: the object and offset of a file's byte, and the sizes of file and objects.
 *
 * Pure arithmetic; any thread; cannot fail. Offsets go up to 2^63 - 1. An object offset that is too
 * large for any file (received from a peer) saturates at UINT64_MAX instead of wrapping around. */
#include "layout/layout.h"

#include <assert.h>

#include "layout/walk.h"

void layout_locate(const struct layout *l, uint64_t off, uint32_t *index, uint64_t *obj_off)
{
	uint64_t s = layout_div(off, l->unit);
	uint64_t row = layout_div(s, l->width);

	assert(l->unit && l->width);
	*index = (uint32_t)((s - row * l->width + l->start) % l->width);
	*obj_off = row * l->unit + (off - s * l->unit);
}

uint64_t layout_file_offset(const struct layout *l, uint32_t index, uint64_t obj_off)
{
	uint64_t row = layout_div(obj_off, l->unit);
	uint64_t rest = obj_off - row * l->unit;
	uint64_t s, off;

	if (__builtin_mul_overflow(row, (uint64_t)l->width, &s) ||
	    __builtin_add_overflow(s, (uint64_t)layout_column(l, index), &s) ||
	    __builtin_mul_overflow(s, (uint64_t)l->unit, &off) ||
	    __builtin_add_overflow(off, rest, &off))
		return UINT64_MAX;
	return off;
}

uint64_t layout_object_size(const struct layout *l, uint32_t index, uint64_t size)
{
	uint64_t s = layout_div(size, l->unit);
	uint64_t row = layout_div(s, l->width);
	uint32_t next = (uint32_t)(s - row * l->width); /* column of the first incomplete stripe */
	uint32_t col = layout_column(l, index);

	if (col < next)
		return (row + 1) * l->unit;
	return row * l->unit + (col == next ? size - s * l->unit : 0);
}

uint64_t layout_file_end(const struct layout *l, uint32_t index, uint64_t obj_end)
{
	uint64_t last;

	if (!obj_end)
		return 0;
	last = layout_file_offset(l, index, obj_end - 1);
	return last == UINT64_MAX ? last : last + 1;
}

void layout_targets(uint64_t ino, const uint32_t *data, uint32_t n, uint32_t *out, uint32_t width)
{
	uint32_t first = (uint32_t)(hash_u64(ino) % n);

	for (uint32_t i = 0; i < width; i++)
		out[i] = data[(first + i) % n];
}
