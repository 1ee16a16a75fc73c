/* Trails: the part of an access with patterns that belongs to one object, planned into requests and
 * walked.
 *
 * The file side finds stretches of the object's bytes that are contiguous in the access. The memory
 * side is moved to each stretch and tells where its bytes are. Moving forward costs what is passed.
 * Moving back costs at most the way from the nearest remembered place.
 *
 * Threads: one at a time per view. Buffers: none; patterns are borrowed. Errors: none. */
#include "layout/trail.h"

#define BATCH 64 /* extents and runs looked up at once */

static const struct pattern *file_of(const struct view *v)
{
	return v->access->file_pattern;
}

static void place_begin(const struct view *v, struct trail_place *p, uint64_t pos, uint64_t at)
{
	portion_init(&p->file, file_of(v), &v->layout, v->index, pos);
	pattern_seek(&p->mem, v->access->mem_pattern, pos);
	p->at = at;
}

void view_trail(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
		uint64_t begin, uint64_t upto)
{
	struct trail *s = v->trail;

	*v = (struct view){
		.access = a, .layout = *l, .index = index, .length = upto - begin, .trail = s
	};
	s->begin = begin;
	s->upto = upto;
	s->n_left = 0;
	s->ahead = BATCH;
	place_begin(v, &s->here, begin, 0);
	s->last = s->here;
}

size_t trail_plan(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
		  struct cursor *from, struct extent *out, size_t max, uint64_t max_bytes)
{
	struct portion p;
	size_t n;

	view_trail(v, a, l, index, from->pos, a->total);
	p = v->trail->here.file;
	n = portion_next(&p, out, NULL, max, max_bytes);
	v->length = 0;
	for (size_t i = 0; i < n; i++)
		v->length += out[i].length;
	from->pos = v->trail->upto = p.c.pos;
	return n;
}

/* The next stretch of the object's bytes, at most `most`, that is contiguous in the access: its
 * length, and its position *begin; 0: none. Looks up as many extents as the last call could use. */
static uint64_t stretch(struct trail *s, struct portion *p, uint64_t most, uint64_t *begin)
{
	struct extent e[BATCH];
	uint64_t pos[BATCH], len;
	size_t n = 0, i;

	while (!n && p->c.pos < s->upto)
		n = portion_next(p, e, pos, s->ahead, most);
	if (!n || pos[0] >= s->upto)
		return 0;
	*begin = pos[0];
	len = e[0].length;
	for (i = 1; i < n && pos[i] == *begin + len; i++)
		len += e[i].length;
	s->ahead = i < n ? i : MIN(2 * n, (size_t)BATCH);
	len = MIN(len, s->upto - *begin);
	if (i < n || p->c.pos > *begin + len) /* the portion moved further */
		portion_init(p, p->c.p, &p->layout, p->index, *begin + len);
	return len;
}

/* Appends the memory of the next `run` bytes of the access to out[*n]; returns how many bytes
 * fit. */
static uint64_t gather(struct pattern_cursor *c, uint64_t run, struct iovec *out, size_t *n,
		       size_t max)
{
	struct extent e[BATCH];
	uint64_t left = run;
	size_t k = *n;

	while (left && k < max) {
		size_t m = pattern_runs(c, e, MIN(max - k, (size_t)BATCH), left);

		for (size_t i = 0; i < m; i++) {
			char *p = (char *)(uintptr_t)e[i].offset;

			if (k && (char *)out[k - 1].iov_base + out[k - 1].iov_len == p)
				out[k - 1].iov_len += e[i].length;
			else
				out[k++] = (struct iovec){ p, e[i].length };
			left -= e[i].length;
		}
	}
	*n = k;
	return run - left;
}

/* Moves to the nearest remembered place at or before `at`. */
static void go_back(struct view *v, uint64_t at)
{
	struct trail *s = v->trail;
	const struct trail_place *best = NULL;

	for (unsigned i = 0; i < MIN(s->n_left, (unsigned)TRAIL_LEFT); i++)
		if (s->left[i].at <= at && (!best || s->left[i].at > best->at))
			best = &s->left[i];
	if (s->last.at <= at && (!best || s->last.at > best->at))
		best = &s->last;
	if (best)
		s->here = *best;
	else
		place_begin(v, &s->here, s->begin, 0);
}

static void seek(struct view *v, uint64_t at)
{
	struct trail *s = v->trail;
	uint64_t pos, n;

	if (at < s->here.at)
		go_back(v, at);
	else if (at > s->here.at)
		s->left[s->n_left++ % TRAIL_LEFT] = s->here;
	while (s->here.at < at && (n = stretch(s, &s->here.file, at - s->here.at, &pos)))
		s->here.at += n;
	s->last = s->here;
}

size_t trail_iov(struct view *v, uint64_t at, uint64_t len, struct iovec *out, size_t max,
		 uint64_t *got)
{
	struct trail *s = v->trail;
	struct trail_place *h = &s->here;
	uint64_t left = len, pos, run;
	size_t n = 0;

	seek(v, at);
	while (h->at == at + (len - left) && left && n < max &&
	       (run = stretch(s, &h->file, left, &pos))) {
		uint64_t done;

		if (h->mem.pos != pos)
			pattern_seek(&h->mem, v->access->mem_pattern, pos);
		done = gather(&h->mem, run, out, &n, max);
		h->at += done;
		left -= done;
		if (done < run)
			portion_init(&h->file, file_of(v), &v->layout, v->index, pos + done);
	}
	*got = len - left;
	v->at = h->at;
	return n;
}
