/* See shares.h. */
#include "shares.h"

struct shares shares_between(const uint64_t *from, const uint64_t *to, size_t n)
{
	uint64_t least = UINT64_MAX, most = 0, all = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t moved = to[i] - from[i];

		all += moved;
		least = moved < least ? moved : least;
		most = moved > most ? moved : most;
	}
	if (!all)
		return (struct shares){ 0 };
	return (struct shares){ all, (double)least * (double)n / (double)all,
				(double)most * (double)n / (double)all };
}
