/* The cost model: what separate and covering accesses take (sieve.h); its numbers in files and
 * messages. Pure functions. */
#include "sieve/sieve_impl.h"

const uint32_t sieve_sizes[SIEVE_SIZES] = { 64,	      1 * KIB,	 4 * KIB, 16 * KIB,
					    64 * KIB, 256 * KIB, 1 * MIB };

/* A call of half a microsecond, some GB/s; a disk that finds data in 100 us and reads 1 GB/s. */
const struct sieve_costs sieve_defaults = {
	.read = { .ns = { 500, 650, 1000, 2500, 9000, 36000, 145000 } },
	.write = { .ns = { 800, 1000, 1400, 3200, 11000, 42000, 170000 } },
	.cold = { .ns = { 100000, 100000, 100000, 115000, 165000, 360000, 1150000 } },
	.parallel = 4,
	.copy = 0.1,
	.piece = 5,
};

double sieve_time(const struct sieve_times *t, uint64_t size)
{
	int i = 1;

	while (i < SIEVE_SIZES - 1 && size > sieve_sizes[i])
		i++;
	return t->ns[i - 1] + (t->ns[i] - t->ns[i - 1]) *
				      ((double)size - (double)sieve_sizes[i - 1]) /
				      (double)(sieve_sizes[i] - sieve_sizes[i - 1]);
}

/* ---- as whole numbers ---- */

#define UNITS 1000.0 /* in a ns, and in a read of `parallel` */
#define TIME_MAX (3600 * NSEC_PER_SEC * 1000) /* ps */

static void times_pack(const struct sieve_times *t, uint64_t *out)
{
	for (int i = 0; i < SIEVE_SIZES; i++)
		out[i] = (uint64_t)(t->ns[i] * UNITS + 0.5);
}

static bool times_unpack(const uint64_t *in, struct sieve_times *t)
{
	for (int i = 0; i < SIEVE_SIZES; i++) {
		if (!in[i] || in[i] > TIME_MAX || (i && in[i] < in[i - 1]))
			return false;
		t->ns[i] = (double)in[i] / UNITS;
	}
	return true;
}

void sieve_costs_pack(const struct sieve_costs *c, uint64_t out[SIEVE_VALUES])
{
	times_pack(&c->read, out);
	times_pack(&c->write, out + SIEVE_SIZES);
	times_pack(&c->cold, out + 2 * SIEVE_SIZES);
	out += 3 * SIEVE_SIZES;
	out[0] = (uint64_t)(c->parallel * UNITS + 0.5);
	out[1] = (uint64_t)(c->copy * KIB * UNITS + 0.5);
	out[2] = (uint64_t)(c->piece * UNITS + 0.5);
}

bool sieve_costs_unpack(const uint64_t in[SIEVE_VALUES], struct sieve_costs *out)
{
	const uint64_t *last = in + 3 * SIEVE_SIZES;

	out->parallel = (double)last[0] / UNITS;
	out->copy = (double)last[1] / UNITS / KIB;
	out->piece = (double)last[2] / UNITS;
	return times_unpack(in, &out->read) && times_unpack(in + SIEVE_SIZES, &out->write) &&
	       times_unpack(in + 2 * SIEVE_SIZES, &out->cold) && out->parallel >= 1 &&
	       out->parallel <= SIEVE_PARALLEL_MAX && last[1] <= TIME_MAX && last[2] <= TIME_MAX;
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

double sieve_gain(const struct sieve_want *w, uint32_t n, uint64_t len, uint64_t size)
{
	struct extent mean = { 0, MAX(len / n, 1) };

	return n * (sieve_separate(w, &mean) - sieve_copy(w, &mean)) - sieve_cover(w, size);
}
