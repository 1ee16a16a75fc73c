/* The plan: which pieces are covered together. The best plan of the first k pieces ends with a
 * separate piece, or with a covering access that begins with one of them. For times that are linear
 * in the size, one pass over the pieces finds it. Real times are not linear, so the pass is made
 * with the slopes of short and of long accesses, and the plan that is cheaper by the real times
 * wins. For few pieces all plans are compared. */
#include <assert.h>
#include <math.h>

#include "sieve/sieve_impl.h"

bool sieve_skips_page(uint64_t end, uint64_t next)
{
	return next / LEAST_PAGE > (end - 1) / LEAST_PAGE + 1;
}

/* ---- the plan ---- */

/* A covering access as a straight line: base + slope * size. */
struct line {
	double base, slope;
};

static struct line line_between(const struct sieve_want *w, uint64_t a, uint64_t b)
{
	double at_a = sieve_cover(w, a), at_b = sieve_cover(w, b);
	double slope = MAX((at_b - at_a) / (double)(b - a), 0);

	return (struct line){ .base = at_a - slope * (double)a, .slope = slope };
}

#define COVERS 0x8000U
static_assert(SIEVE_PIECES <= COVERS, "a number of a piece leaves room for COVERS");
#define FEW 32 /* pieces for which all covering accesses are compared */

/* The pieces with which a covering access to the present piece may begin, by ascending number and
 * descending merit: the first one makes it the cheapest. */
struct starts {
	uint32_t head, tail;
	uint16_t at[SIEVE_PIECES];
	double merit[SIEVE_PIECES];
};

static void starts_add(struct starts *s, uint32_t i, double merit)
{
	while (s->tail > s->head && s->merit[s->tail - 1] <= merit)
		s->tail--;
	s->at[s->tail] = (uint16_t)i;
	s->merit[s->tail++] = merit;
}

/* Sets from[i]: the piece with which the access that ends with piece i begins, with COVERS if that
 * is a covering one. The cost of a covering access from piece a to piece b is
 *     base + slope * (end of b - offset of a) + copies up to b - copies before a */
static void choose(const struct sieve_want *w, const struct line *l, const struct extent *pieces,
		   uint32_t n, struct starts *s, uint16_t *from)
{
	double best = 0, copies = 0; /* of all pieces so far */
	uint64_t end = 0;

	s->head = s->tail = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct extent *p = &pieces[i];
		double alone = best + sieve_separate(w, p), cover;

		if (i && w->write && sieve_skips_page(end, p->offset))
			s->head = s->tail;
		end = p->offset + p->length;
		starts_add(s, i, l->slope * (double)p->offset + copies - best);
		while (s->at[s->head] < i && end - pieces[s->at[s->head]].offset > w->most)
			s->head++;
		copies += sieve_copy(w, p);
		cover = l->base + l->slope * (double)end + copies - s->merit[s->head];
		from[i] = (uint16_t)(alone <= cover ? i : s->at[s->head] | COVERS);
		best = MIN(alone, cover);
	}
}

/* The same for few pieces, by the real times of all covering accesses. */
static void choose_exactly(const struct sieve_want *w, const struct extent *pieces, uint32_t n,
			   uint16_t *from)
{
	double best[FEW + 1] = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		uint64_t end = pieces[i].offset + pieces[i].length;
		double copies = 0;

		best[i + 1] = best[i] + sieve_separate(w, &pieces[i]);
		from[i] = (uint16_t)i;
		for (uint32_t a = i + 1; a-- > 0;) {
			const struct extent *p = &pieces[a];
			double cover;

			if (a < i &&
			    (end - p->offset > w->most ||
			     (w->write && sieve_skips_page(p->offset + p->length, p[1].offset))))
				break;
			copies += sieve_copy(w, p);
			cover = best[a] + sieve_cover(w, end - p->offset) + copies;
			if (cover < best[i + 1]) {
				best[i + 1] = cover;
				from[i] = (uint16_t)(a | COVERS);
			}
		}
	}
}

/* One access, by its real times: covering it must not cost more than its pieces do. */
static struct sieve_part part(const struct sieve_want *w, const struct extent *pieces,
			      uint32_t first, uint32_t n, bool covers, double *ns)
{
	const struct extent *last = &pieces[first + n - 1];
	struct sieve_part p = { .first = first,
				.n = n,
				.lo = pieces[first].offset,
				.hi = last->offset + last->length };
	double cover;

	*ns = sieve_part_time(w, pieces, &p);
	if (!covers)
		return p;
	p.covers = true;
	cover = sieve_part_time(w, pieces, &p);
	p.covers = cover < *ns;
	*ns = MIN(cover, *ns);
	return p;
}

/* The parts of the choice, and their time. */
static uint32_t collect(const struct sieve_want *w, const struct extent *pieces, uint32_t n,
			const uint16_t *from, struct sieve_part *parts, double *ns)
{
	uint32_t k = n; /* they are found from the last to the first, at the end of `parts` */
	double time;

	*ns = 0;
	for (uint32_t first, end = n; end > 0; end = first) {
		struct sieve_part p;

		first = from[end - 1] & ~COVERS;
		p = part(w, pieces, first, end - first, from[end - 1] & COVERS, &time);
		*ns += time;
		if (!p.covers && k < n && !parts[k].covers) {
			parts[k].first = p.first;
			parts[k].lo = p.lo;
			parts[k].n += p.n;
		} else {
			parts[--k] = p;
		}
	}
	memmove(parts, parts + k, (n - k) * sizeof(*parts));
	return n - k;
}

/* Accesses the pieces of covering ranges that exceed the room separately. Returns the time that
 * this costs. */
static double fit(const struct sieve_want *w, const struct extent *pieces, struct sieve_part *parts,
		  uint32_t n)
{
	uint64_t used = 0;
	double more = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct sieve_part *p = &parts[i];

		if (p->covers && p->hi - p->lo > w->room - used) {
			more -= sieve_part_time(w, pieces, p);
			p->covers = false;
			more += sieve_part_time(w, pieces, p);
		}
		used += p->covers ? p->hi - p->lo : 0;
	}
	return more;
}

/* The best plan for many pieces: `parts` has it, and its time is returned in *ns. */
static uint32_t plan_many(const struct sieve_want *w, const struct extent *pieces, uint32_t n,
			  struct sieve_part *parts, double *ns)
{
	const uint64_t spans[][2] = { { 64, 4 * KIB },
				      { 1 * KIB, 16 * KIB },
				      { 4 * KIB, 64 * KIB } };
	uint16_t from[ARRAY_LEN(spans)][SIEVE_PIECES];
	struct starts starts;
	double best = HUGE_VAL;
	size_t winner = 0;

	for (size_t s = 0; s < ARRAY_LEN(spans); s++) {
		struct line l = line_between(w, spans[s][0], spans[s][1]);

		choose(w, &l, pieces, n, &starts, from[s]);
		collect(w, pieces, n, from[s], parts, ns);
		if (*ns < best) {
			best = *ns;
			winner = s;
		}
	}
	return collect(w, pieces, n, from[winner], parts, ns);
}

uint32_t sieve_plan(const struct sieve_want *w, const struct extent *pieces, uint32_t n,
		    struct sieve_part *parts, double *ns)
{
	uint16_t from[FEW];
	uint32_t n_parts;

	assert(n && n <= SIEVE_PIECES);
	if (n <= FEW) {
		choose_exactly(w, pieces, n, from);
		n_parts = collect(w, pieces, n, from, parts, ns);
	} else {
		n_parts = plan_many(w, pieces, n, parts, ns);
	}
	*ns += fit(w, pieces, parts, n_parts);
	return n_parts;
}
