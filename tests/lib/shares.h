/* What clients of one server have moved, compared with equal parts. */
#ifndef SHEAF_TEST_SHARES_H
#define SHEAF_TEST_SHARES_H

#include <stddef.h>
#include <stdint.h>

struct shares {
	uint64_t all; /* of all n clients */
	double least, most; /* of one client, relative to an n-th of all */
};
/* From counters of n clients at two times. */
struct shares shares_between(const uint64_t *from, const uint64_t *to, size_t n);

#endif
