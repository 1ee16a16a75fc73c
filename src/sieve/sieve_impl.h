/* The costs of single accesses, for the plan. Private to src/sieve. */
#ifndef SHEAF_SIEVE_IMPL_H
#define SHEAF_SIEVE_IMPL_H

#include "sieve/sieve.h"

double sieve_separate(const struct sieve_want *w, const struct extent *p); /* one piece, alone */
double sieve_copy(const struct sieve_want *w, const struct extent *p); /* to or from a cover */
double sieve_cover(const struct sieve_want *w, uint64_t size); /* the covering access itself */

#endif
