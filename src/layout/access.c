/* A list access as a whole: its totals and its end.
 *
 * Pure; any thread; the lists stay the caller's. */
#include "layout/layout.h"

#define OFFSET_MAX ((uint64_t)INT64_MAX)

int access_init(struct access *a, const struct iovec *mem, size_t n_mem, const struct extent *file,
		size_t n_file)
{
	uint64_t in_mem = 0, in_file = 0, stride = n_file > 1 ? file[1].offset - file[0].offset : 0;
	bool even = n_file > 1;

	for (size_t i = 0; i < n_mem; i++) {
		if (mem[i].iov_len > OFFSET_MAX - in_mem)
			return -EINVAL;
		in_mem += mem[i].iov_len;
	}
	for (size_t i = 0; i < n_file; i++) {
		even &= file[i].length == file[0].length &&
			(!i || file[i].offset - file[i - 1].offset == stride);
		if (!file[i].length)
			continue;
		if (file[i].offset > OFFSET_MAX || file[i].length > OFFSET_MAX - file[i].offset)
			return -EFBIG;
		if (file[i].length > OFFSET_MAX - in_file)
			return -EINVAL;
		in_file += file[i].length;
	}
	if (in_mem != in_file)
		return -EINVAL;
	*a = (struct access){ .mem = mem,
			      .n_mem = n_mem,
			      .file = file,
			      .n_file = n_file,
			      .total = in_mem,
			      .even = even && in_file,
			      .stride = (int64_t)stride };
	return 0;
}

int access_typed(struct access *a, const struct pattern *mem, const struct pattern *file,
		 uint64_t skip)
{
	if (file->total < skip || mem->total != file->total - skip)
		return -EINVAL;
	*a = (struct access){
		.total = mem->total, .mem_pattern = mem, .file_pattern = file, .skip = skip
	};
	return 0;
}

/* The position of the first byte from `from` on that is at or behind file offset `size`. */
static uint64_t pattern_before(const struct pattern *p, uint64_t from, uint64_t size)
{
	struct pattern_cursor c;
	struct extent e;

	if (p->end <= size)
		return p->total;
	if (p->ascends)
		return MAX(pattern_position(p, size), from);
	pattern_seek(&c, p, from);
	while (pattern_runs(&c, &e, 1, UINT64_MAX) && e.offset < size)
		if (e.length > size - e.offset)
			return c.pos - e.length + (size - e.offset);
	return c.pos - e.length; /* the pattern ends beyond `size`, so a run there ended the loop */
}

uint64_t access_before(const struct access *a, uint64_t size)
{
	uint64_t before = 0;

	if (a->file_pattern)
		return pattern_before(a->file_pattern, a->skip, size) - a->skip;
	for (size_t i = 0; i < a->n_file; i++) {
		const struct extent *e = &a->file[i];

		if (!e->length)
			continue;
		if (e->offset >= size)
			break;
		if (e->length > size - e->offset)
			return before + (size - e->offset);
		before += e->length;
	}
	return before;
}
