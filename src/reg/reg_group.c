/* The first step of optimistic group registration: sorts the pieces of a request and groups those
 * whose distance costs less than another registration. The cost T = a * pages + b is a sum over the
 * groups, so each gap is decided by itself. Pure functions.
 *
 * Threads: any. Buffers: the caller's. Errors: -errno. */
#include <errno.h>
#include <stdlib.h>

#include "reg/reg_impl.h"

static int by_start(const void *a, const void *b)
{
	const struct group_piece *x = a, *y = b;

	return (x->at.start > y->at.start) - (x->at.start < y->at.start);
}

int group_sort(struct group_piece *out, const struct iovec *pieces, size_t n, size_t *n_out)
{
	const uintptr_t last = UINTPTR_MAX - page_size();
	bool is_sorted = true;
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		uintptr_t start = (uintptr_t)pieces[i].iov_base;

		if (!pieces[i].iov_len)
			continue;
		if (start > last || pieces[i].iov_len > last - start)
			return -EFAULT;
		out[k] = (struct group_piece){ { start, start + pieces[i].iov_len }, (uint32_t)i };
		is_sorted &= !k || out[k - 1].at.start <= start;
		k++;
	}
	if (!is_sorted)
		qsort(out, k, sizeof(*out), by_start);
	*n_out = k;
	return 0;
}

size_t group_next(const struct group_piece *p, size_t n, uint64_t max_gap, uint64_t max_len,
		  struct span *span)
{
	size_t i = 1;

	*span = span_of_pages(p[0].at);
	for (; i < n; i++) {
		struct span next = span_of_pages(p[i].at);
		uintptr_t end = MAX(span->end, next.end);

		if (next.start > span->end && next.start - span->end > max_gap)
			break;
		if (end - span->start > max_len)
			break;
		span->end = end;
	}
	return i;
}

uint64_t group_bytes(const struct group_piece *p, size_t n, uint64_t max_gap, uint64_t max_len)
{
	struct span s;
	uint64_t sum = 0;

	for (size_t i = 0; i < n; sum += s.end - s.start)
		i += group_next(p + i, n - i, max_gap, max_len, &s);
	return sum;
}
