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

/* ---- pieces that are all close together, or all far apart: planning takes time, too ---- */

struct shape {
	uint64_t len_min, len_max, gap_min, gap_max;
	bool skips_page;
};

static struct shape shape_of(const struct extent *pieces, uint32_t n)
{
	struct shape s = { pieces[0].length, pieces[0].length, UINT64_MAX, 0, false };

	for (uint32_t i = 1; i < n; i++) {
		uint64_t end = pieces[i - 1].offset + pieces[i - 1].length;
		uint64_t gap = pieces[i].offset - end;

		s.len_min = MIN(s.len_min, pieces[i].length);
		s.len_max = MAX(s.len_max, pieces[i].length);
		s.gap_min = MIN(s.gap_min, gap);
		s.gap_max = MAX(s.gap_max, gap);
		s.skips_page |= sieve_skips_page(end, pieces[i].offset);
	}
	return s;
}

/* The smallest and the largest time of one more byte of a covering access. */
static void slopes(const struct sieve_want *w, double *least, double *most)
{
	*least = HUGE_VAL;
	*most = 0;
	for (int i = 1; i < SIEVE_SIZES; i++) {
		double slope = line_between(w, sieve_sizes[i - 1], sieve_sizes[i]).slope;

		*least = MIN(*least, slope);
		*most = MAX(*most, slope);
	}
}

/* True: all pieces have one part. Covered, if every piece costs less as a part of the covering
 * access than separately; separate, if every gap costs more than the access that it would save. */
static bool plan_alike(const struct sieve_want *w, const struct extent *pieces, uint32_t n,
		       struct sieve_part *out)
{
	struct shape s = shape_of(pieces, n);
	struct extent shortest = { 0, s.len_min }, longest = { 0, s.len_max };
	uint64_t lo = pieces[0].offset, hi = pieces[n - 1].offset + pieces[n - 1].length;
	double least, most, alone = sieve_separate(w, &shortest), copy = sieve_copy(w, &longest);

	slopes(w, &least, &most);
	*out = (struct sieve_part){ .n = n, .lo = lo, .hi = hi };
	out->covers = hi - lo <= MIN(w->most, w->room) && !(w->write && s.skips_page) &&
		      most * (double)(s.gap_max + s.len_max) + copy <= alone &&
		      sieve_cover(w, hi - lo) + n * copy <= n * alone;
	if (w->write && !w->cached) /* the edges of the pages decide */
		return out->covers;
	return out->covers || least * (double)s.gap_min > sieve_separate(w, &longest);
}

uint32_t sieve_plan(const struct sieve_want *w, const struct extent *pieces, uint32_t n,
		    struct sieve_part *parts, double *ns)
{
	uint16_t from[FEW];
	uint32_t n_parts;

	assert(n && n <= SIEVE_PIECES);
	if (n > 2 && plan_alike(w, pieces, n, parts)) {
		*ns = sieve_part_time(w, pieces, parts);
		return 1;
	}
	if (n <= FEW) {
		choose_exactly(w, pieces, n, from);
		n_parts = collect(w, pieces, n, from, parts, ns);
	} else {
		n_parts = plan_many(w, pieces, n, parts, ns);
	}
	*ns += fit(w, pieces, parts, n_parts);
	return n_parts;
}
