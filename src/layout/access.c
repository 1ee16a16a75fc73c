/* A list access as a whole: its totals and its end.
 *
 * Pure; any thread; the lists stay the caller's. */
#include "layout/layout.h"

#define OFFSET_MAX ((uint64_t)INT64_MAX)

int access_init(struct access *a, const struct iovec *mem, size_t n_mem, const struct extent *file,
		size_t n_file)
{
	uint64_t in_mem = 0, in_file = 0;

	for (size_t i = 0; i < n_mem; i++) {
		if (mem[i].iov_len > OFFSET_MAX - in_mem)
			return -EINVAL;
		in_mem += mem[i].iov_len;
	}
	for (size_t i = 0; i < n_file; i++) {
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
	*a = (struct access){ mem, n_mem, file, n_file, in_mem };
	return 0;
}

uint64_t access_before(const struct access *a, uint64_t size)
{
	uint64_t before = 0;

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
