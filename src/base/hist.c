/* Log-linear histogram: values below 16 have one bucket each, every octave above has 16. The last
 * bucket holds everything from about 39 hours on. */
#include "base/base.h"

#define HIST_BITS 4
#define HIST_SUB (1u << HIST_BITS)

static unsigned hist_bucket(uint64_t v)
{
	unsigned octave, i;

	if (v < HIST_SUB)
		return (unsigned)v;
	octave = 63 - (unsigned)__builtin_clzll(v) - HIST_BITS;
	i = (octave + 1) * HIST_SUB + (unsigned)((v >> octave) & (HIST_SUB - 1));
	return MIN(i, HIST_BUCKETS - 1u);
}

/* The largest value of a bucket. */
static uint64_t hist_edge(unsigned i)
{
	unsigned octave;

	if (i < HIST_SUB)
		return i;
	octave = i / HIST_SUB - 1;
	return ((uint64_t)(HIST_SUB + i % HIST_SUB + 1) << octave) - 1;
}

void hist_add(struct hist *h, uint64_t ns)
{
	uint32_t *b = &h->buckets[hist_bucket(ns)];

	h->count++;
	h->sum += ns;
	h->max = MAX(h->max, ns);
	if (*b < UINT32_MAX)
		++*b;
}

uint64_t hist_quantile(const struct hist *h, double q)
{
	uint64_t rank = (uint64_t)(q * (double)h->count + 0.5), seen = 0;

	if (h->count == 0)
		return 0;
	rank = MIN(MAX(rank, 1), h->count);
	for (unsigned i = 0; i < HIST_BUCKETS - 1; i++) {
		seen += h->buckets[i];
		if (seen >= rank)
			return MIN(hist_edge(i), h->max); /* never above the maximum */
	}
	return h->max;
}

uint64_t hist_below(const struct hist *h, uint64_t ns)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < HIST_BUCKETS - 1 && hist_edge(i) <= ns; i++)
		sum += h->buckets[i];
	return sum;
}
