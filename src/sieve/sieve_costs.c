/* The cost model: what separate and covering accesses take (sieve.h). Pure functions. */
#include "sieve/sieve_impl.h"

const uint32_t sieve_sizes[SIEVE_SIZES] = { 64, 1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB };

double sieve_time(const struct sieve_times *t, uint64_t size)
{
	int i = 1;

	while (i < SIEVE_SIZES - 1 && size > sieve_sizes[i])
		i++;
	return t->ns[i - 1] + (t->ns[i] - t->ns[i - 1]) *
				      ((double)size - (double)sieve_sizes[i - 1]) /
				      (double)(sieve_sizes[i] - sieve_sizes[i - 1]);
}

/* ---- one piece ---- */

static const struct sieve_times *read_times(const struct sieve_want *w)
{
	return w->cached ? &w->costs->read : &w->costs->cold;
}

/* A page that a write changes only in part is read first. */
static double edges_time(const struct sieve_want *w, const struct extent *p)
{
	uint64_t end = p->offset + p->length;
	bool first = p->offset % LEAST_PAGE, last = end % LEAST_PAGE;
	bool same = p->offset / LEAST_PAGE == (end - 1) / LEAST_PAGE;

	if (w->cached || !(first || last))
		return 0;
	return (first && last && !same ? 2 : 1) * sieve_time(&w->costs->cold, LEAST_PAGE);
}

double sieve_separate(const struct sieve_want *w, const struct extent *p)
{
	if (w->write)
		return sieve_time(&w->costs->write, p->length) + edges_time(w, p);
	return sieve_time(read_times(w), p->length) / (w->cached ? 1 : w->costs->parallel);
}

double sieve_copy(const struct sieve_want *w, const struct extent *p)
{
	return w->costs->piece + w->costs->copy * (double)p->length;
}

double sieve_cover(const struct sieve_want *w, uint64_t size)
{
	return sieve_time(read_times(w), size) +
	       (w->write ? sieve_time(&w->costs->write, size) : 0);
}

/* ---- many pieces ---- */

double sieve_part_time(const struct sieve_want *w, const struct extent *pieces,
		       const struct sieve_part *p)
{
	double ns = p->covers ? sieve_cover(w, p->hi - p->lo) : 0;

	for (uint32_t i = p->first; i < p->first + p->n; i++)
		ns += p->covers ? sieve_copy(w, &pieces[i]) : sieve_separate(w, &pieces[i]);
	return ns;
}
