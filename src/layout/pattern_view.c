/* Trails: the part of an access with patterns that belongs to one object, planned into requests and
 * walked.
 *
 * The file side finds stretches of the object's bytes that are contiguous in the access. The memory
 * side is moved to each stretch and tells where its bytes are. Moving forward costs what is passed.
 * Moving back costs at most the way from the nearest remembered place.
 *
 * Threads: one at a time per view. Buffers: none; patterns are borrowed. Errors: none. */
#include "layout/pattern_view.h"

#define BATCH 64 /* extents and runs looked up at once */

/* pos: of the file pattern, which is access->skip ahead of the memory pattern. */
static void place_begin(const struct view *v, struct pattern_view_pos *p, uint64_t pos, uint64_t at)
{
	extent_iter_init(&p->file, v->access->file_pattern, &v->layout, v->index, pos);
	pattern_seek(&p->mem, v->access->mem_pattern, pos - v->access->skip);
	p->at = at;
}

void view_init_pattern(struct view *v, const struct access *a, const struct layout *l,
		       uint32_t index, uint64_t begin, uint64_t upto)
{
	struct pattern_view *s = v->pattern_view;

	*v = (struct view){
		.access = a, .layout = *l, .index = index, .length = upto - begin, .pattern_view = s
	};
	s->begin = begin + a->skip;
	s->upto = upto + a->skip;
	s->n_saved = 0;
	s->ahead = BATCH;
	place_begin(v, &s->here, s->begin, 0);
	s->last = s->here;
}

size_t pattern_view_plan(struct view *v, const struct access *a, const struct layout *l,
			 uint32_t index, struct cursor *from, struct extent *out, size_t max,
			 uint64_t max_bytes)
{
	struct extent_iter p;
	size_t n;

	view_init_pattern(v, a, l, index, from->pos, a->total);
	p = v->pattern_view->here.file;
	n = extent_iter_next(&p, out, NULL, max, max_bytes);
	v->length = 0;
	for (size_t i = 0; i < n; i++)
		v->length += out[i].length;
	v->pattern_view->upto = p.c.pos;
	from->pos = p.c.pos - a->skip;
	return n;
}

/* The next stretch of the object's bytes, at most `most`, that is contiguous in the access: its
 * length, and its position *begin; 0: none. Looks up as many extents as the last call could use. */
static uint64_t next_contiguous(struct pattern_view *s, struct extent_iter *p, uint64_t most,
				uint64_t *begin)
{
	struct extent e[BATCH];
	uint64_t pos[BATCH], len;
	size_t n = 0, i;

	while (!n && p->c.pos < s->upto)
		n = extent_iter_next(p, e, pos, s->ahead, most);
	if (!n || pos[0] >= s->upto)
		return 0;
	*begin = pos[0];
	len = e[0].length;
	for (i = 1; i < n && pos[i] == *begin + len; i++)
		len += e[i].length;
	s->ahead = i < n ? i : MIN(2 * n, (size_t)BATCH);
	len = MIN(len, s->upto - *begin);
	if (i < n || p->c.pos > *begin + len) /* the portion moved further */
		extent_iter_init(p, p->c.p, &p->layout, p->index, *begin + len);
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
static void restore_saved(struct view *v, uint64_t at)
{
	struct pattern_view *s = v->pattern_view;
	const struct pattern_view_pos *best = NULL;

	for (unsigned i = 0; i < MIN(s->n_saved, (unsigned)PATTERN_VIEW_SAVED); i++)
		if (s->saved[i].at <= at && (!best || s->saved[i].at > best->at))
			best = &s->saved[i];
	if (s->last.at <= at && (!best || s->last.at > best->at))
		best = &s->last;
	if (best)
		s->here = *best;
	else
		place_begin(v, &s->here, s->begin, 0);
}

static void seek(struct view *v, uint64_t at)
{
	struct pattern_view *s = v->pattern_view;
	uint64_t pos, n;

	if (at < s->here.at)
		restore_saved(v, at);
	else if (at > s->here.at)
		s->saved[s->n_saved++ % PATTERN_VIEW_SAVED] = s->here;
	while (s->here.at < at && (n = next_contiguous(s, &s->here.file, at - s->here.at, &pos)))
		s->here.at += n;
	s->last = s->here;
}

size_t pattern_view_iov(struct view *v, uint64_t at, uint64_t len, struct iovec *out, size_t max,
			uint64_t *got)
{
	struct pattern_view *s = v->pattern_view;
	struct pattern_view_pos *h = &s->here;
	uint64_t left = len, pos, run;
	size_t n = 0;

	seek(v, at);
	while (h->at == at + (len - left) && left && n < max &&
	       (run = next_contiguous(s, &h->file, left, &pos))) {
		uint64_t done;

		if (h->mem.pos != pos - v->access->skip)
			pattern_seek(&h->mem, v->access->mem_pattern, pos - v->access->skip);
		done = gather(&h->mem, run, out, &n, max);
		h->at += done;
		left -= done;
		if (done < run)
			extent_iter_init(&h->file, h->file.c.p, &v->layout, v->index, pos + done);
	}
	*got = len - left;
	v->at = h->at;
	return n;
}
