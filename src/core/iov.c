/* iovec arithmetic. */
#include "core/core.h"

size_t iov_total(const struct iovec *iov, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

size_t iov_slice(const struct iovec *iov, size_t n, size_t skip, size_t len, struct iovec *out,
		 size_t max, size_t *got)
{
	size_t used = 0;

	*got = 0;
	for (size_t i = 0; i < n && len && used < max; i++) {
		size_t take;

		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		take = MIN(iov[i].iov_len - skip, len);
		out[used].iov_base = (char *)iov[i].iov_base + skip;
		out[used++].iov_len = take;
		*got += take;
		len -= take;
		skip = 0;
	}
	return used;
}
