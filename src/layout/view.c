/* Views: the part of a list access that belongs to one object, planned into requests and walked.
 *
 * This is the hot path of every transfer. The object's bytes of a file extent are one range that is
 * computed, never stepped through stripe by stripe. Memory entries of other objects are summed and
 * skipped. Planning reads the memory list only to find where a request begins.
 *
 * Threads: one at a time per view. Buffers: none; lists are borrowed. Errors: none, access_init()
 * has checked the access. */
#include "layout/layout.h"

#include <assert.h>

#include "layout/pattern_view.h"
#include "layout/walk.h"

/* Moves the memory side of c over n list bytes. The entry it ends in is not empty, unless it is the
 * end of the list. */
static void mem_skip(const struct access *a, struct cursor *c, uint64_t n)
{
	const struct iovec *m = a->mem;
	size_t i = c->i_mem;

	n += c->o_mem;
	while (i + 4 <= a->n_mem) { /* no overflow: the total is below 2^63 */
		uint64_t four = (uint64_t)m[i].iov_len + m[i + 1].iov_len + m[i + 2].iov_len +
				m[i + 3].iov_len;

		if (four > n)
			break;
		n -= four;
		i += 4;
	}
	while (i < a->n_mem && m[i].iov_len <= n)
		n -= m[i++].iov_len;
	c->i_mem = i;
	c->o_mem = n;
}

static void file_advance(struct cursor *c, uint64_t n)
{
	c->o_file += n;
	c->pos += n;
}

/* Moves over the rest of the current extent. */
static void file_next(struct cursor *c, uint64_t rest)
{
	c->pos += rest;
	c->i_file++;
	c->o_file = 0;
}

/* Moves over the next extents that end at or before file offset `end`, at most n. The first one
 * must do so. If the list is even and nothing overlaps, the others are not read. Returns how many
 * were passed. */
static uint64_t file_pass(const struct access *a, struct cursor *c, uint64_t end, uint64_t n)
{
	const struct extent *e = &a->file[c->i_file];
	uint64_t k = 1;

	if (a->even && a->stride > 0 && (uint64_t)a->stride >= e->length)
		k = MIN((end - e->offset - e->length) / (uint64_t)a->stride + 1, n);
	k = MIN(k, a->n_file - c->i_file);
	c->pos += k * e->length - c->o_file;
	c->i_file += k;
	c->o_file = 0;
	return k;
}

/* The extent at `off`, w's current stripe, is not the object's: moves over all extents up to its
 * next stripe, at most n. */
static void file_leave(const struct access *a, struct cursor *c, const struct walk *w, uint64_t off,
		       uint64_t n)
{
	file_pass(a, c, off + walk_gap(w, off - w->lo), n);
}

/* Moves the memory side of c, which is at list position `from`, to its file side. */
static void mem_follow(const struct access *a, struct cursor *c, uint64_t from)
{
	if (c->pos == a->total) {
		c->i_mem = a->n_mem;
		c->o_mem = 0;
	} else {
		mem_skip(a, c, c->pos - from);
	}
}

/* Begins the view at the object's first byte, `lead` bytes behind c; moves the memory side of c,
 * which is at list position *mem, there, too. */
static void view_begin(struct view *v, struct cursor *c, uint64_t lead, uint64_t *mem)
{
	v->begin = *c;
	file_advance(&v->begin, lead);
	mem_follow(v->access, &v->begin, *mem);
	v->cur = v->last = v->begin;
	c->i_mem = v->begin.i_mem;
	c->o_mem = v->begin.o_mem;
	*mem = v->begin.pos;
}

size_t view_plan(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
		 struct cursor *from, struct extent *out, size_t max, uint64_t max_bytes)
{
	struct cursor c = *from; /* its memory side stays at list position `mem` */
	uint64_t mem = c.pos;
	struct walk w;
	size_t n = 0;

	assert(l->unit && l->width && l->start < l->width && index < l->width && max && max_bytes);
	if (a->file_pattern)
		return pattern_view_plan(v, a, l, index, from, out, max, max_bytes);
	*v = (struct view){ .access = a, .layout = *l, .index = index };
	walk_init(&w, l, index);
	while (c.i_file < a->n_file && v->length < max_bytes) {
		const struct extent *e = &a->file[c.i_file];
		uint64_t off = e->offset + c.o_file, rest = e->length - c.o_file;
		uint64_t obj = 0, lead = 0, own, take;

		own = rest ? walk_own(&w, off, rest, &obj, &lead) : 0;
		if (own) {
			bool fuse = n && out[n - 1].offset + out[n - 1].length == obj;

			if (!fuse && n == max)
				break;
			if (!n)
				view_begin(v, &c, lead, &mem);
			take = MIN(own, max_bytes - v->length);
			if (fuse)
				out[n - 1].length += take;
			else
				out[n++] = (struct extent){ obj, take };
			v->length += take;
			if (take < own) {
				file_advance(&c, walk_span(&w, off, obj, take));
				break;
			}
		}
		if (own || !rest)
			file_next(&c, rest);
		else
			file_leave(a, &c, &w, off, UINT64_MAX);
	}
	mem_follow(a, &c, mem);
	*from = c;
	return n;
}

void view_span(struct view *v, const struct access *a, const struct layout *l, uint32_t index,
	       struct cursor *from, uint64_t upto)
{
	struct cursor c = *from; /* as in view_plan() */
	uint64_t mem = c.pos;
	struct walk w;

	*v = (struct view){ .access = a, .layout = *l, .index = index };
	walk_init(&w, l, index);
	while (c.pos < upto) {
		const struct extent *e = &a->file[c.i_file];
		uint64_t off = e->offset + c.o_file, skip = c.o_file, rest = e->length - skip;
		uint64_t n = MIN(rest, upto - c.pos), whole, obj, lead = 0;
		uint64_t own = n ? walk_own(&w, off, n, &obj, &lead) : 0;

		if (own && !v->length)
			view_begin(v, &c, lead, &mem);
		if (n < rest || !rest) {
			v->length += own;
			c.o_file += n;
			c.pos += n;
			c.i_file += !rest;
			continue;
		}
		whole = (upto - c.pos + skip) / e->length; /* how many may be passed */
		if (!own) {
			file_leave(a, &c, &w, off, whole);
		} else if (off + rest <= w.lo + w.span) { /* all equal ones in this stripe */
			whole = file_pass(a, &c, w.lo + w.span, whole);
			v->length += whole * e->length - skip;
		} else {
			v->length += own;
			file_next(&c, rest);
		}
	}
	mem_follow(a, &c, mem);
	*from = c;
}

/* Moves v->cur to stream position `at`. */
static void view_seek(struct view *v, uint64_t at)
{
	const struct access *a = v->access;
	struct cursor c;
	struct walk w;
	uint64_t d;

	if (at < v->at) {
		bool far = at < v->last_at;

		v->cur = far ? v->begin : v->last;
		v->at = far ? 0 : v->last_at;
	}
	c = v->cur;
	walk_init(&w, &v->layout, v->index);
	for (d = at - v->at; d;) {
		const struct extent *e = &a->file[c.i_file];
		uint64_t off = e->offset + c.o_file, rest = e->length - c.o_file;
		uint64_t obj = 0, lead = 0, own;

		own = rest ? walk_own(&w, off, rest, &obj, &lead) : 0;
		if (own > d) {
			file_advance(&c, walk_span(&w, off, obj, d));
			break;
		}
		d -= own;
		if (own || !rest)
			file_next(&c, rest);
		else
			file_leave(a, &c, &w, off, UINT64_MAX);
	}
	mem_follow(a, &c, v->cur.pos);
	v->cur = c;
	v->at = at;
}

/* Moves c over other objects' bytes to the object's next byte, which must exist. Returns the length
 * of the run of the object's bytes there, within one extent and one stripe. */
static uint64_t next_run(struct walk *w, const struct access *a, struct cursor *c)
{
	uint64_t mem = c->pos, run;

	for (;;) {
		const struct extent *e = &a->file[c->i_file];
		uint64_t off = e->offset + c->o_file, rest = e->length - c->o_file;
		uint64_t in, gap;

		if (w->l->width == 1 && rest) {
			run = rest;
			break;
		}
		in = walk_enter(w, off);
		gap = walk_gap(w, in);
		if (gap < rest) {
			file_advance(c, gap);
			run = MIN(rest - gap, w->l->unit - (gap ? 0 : in));
			break;
		}
		if (rest)
			file_leave(a, c, w, off, UINT64_MAX);
		else
			file_next(c, rest);
	}
	if (c->pos != mem)
		mem_skip(a, c, c->pos - mem);
	return run;
}

/* Appends the memory of the next `run` list bytes to out[*n]; returns how many bytes fit. */
static uint64_t gather(const struct access *a, struct cursor *c, uint64_t run, struct iovec *out,
		       size_t *n, size_t max)
{
	const struct iovec *m = &a->mem[c->i_mem];
	uint64_t left = run, o = c->o_mem;
	size_t k = *n;
	char *end = k ? (char *)out[k - 1].iov_base + out[k - 1].iov_len : NULL;

	while (left) {
		uint64_t take = MIN(m->iov_len - o, left);
		char *p = (char *)m->iov_base + o;

		if (take) {
			if (k && p == end) {
				out[k - 1].iov_len += take;
			} else {
				if (k == max)
					break;
				out[k++] = (struct iovec){ p, take };
			}
			end = p + take;
			left -= take;
			o += take;
		}
		if (o == m->iov_len) {
			m++;
			o = 0;
		}
	}
	*n = k;
	c->i_mem = (size_t)(m - a->mem);
	c->o_mem = o;
	return run - left;
}

size_t view_iov(struct view *v, uint64_t at, uint64_t len, struct iovec *out, size_t max,
		uint64_t *got)
{
	struct walk w;
	uint64_t left = len;
	size_t n = 0;

	assert(at <= v->length && len <= v->length - at);
	if (v->pattern_view)
		return pattern_view_iov(v, at, len, out, max, got);
	if (at != v->at)
		view_seek(v, at);
	v->last = v->cur;
	v->last_at = at;
	walk_init(&w, &v->layout, v->index);
	while (left) {
		uint64_t run = next_run(&w, v->access, &v->cur);
		uint64_t want = MIN(run, left);
		uint64_t done = gather(v->access, &v->cur, want, out, &n, max);

		file_advance(&v->cur, done);
		left -= done;
		if (done < want)
			break;
	}
	*got = len - left;
	v->at = at + *got;
	return n;
}

#define BATCH 256 /* pieces looked up at once */

/* What to do with the pieces of a stream; `flat` is the contiguous side. */
enum deed { OUT, IN, ZERO };

static int each_batch(struct view *v, uint64_t at, uint64_t len, char *flat, enum deed deed)
{
	struct iovec iov[BATCH];
	int r = 0;

	while (len && !r) {
		uint64_t got;
		size_t n = view_iov(v, at, len, iov, BATCH, &got);

		if (deed == OUT)
			r = pieces_pack(flat, iov, n);
		else if (deed == IN)
			r = pieces_unpack(iov, n, flat);
		else
			r = pieces_zero(iov, n);
		flat = flat ? flat + got : NULL;
		at += got;
		len -= got;
		if (n)
			continue;
		if (deed == OUT) /* the length is a bound: do not leak old memory */
			memset(flat, 0, len);
		break;
	}
	return r;
}

int view_copy_out(struct view *v, uint64_t at, void *dst, uint64_t len)
{
	return each_batch(v, at, len, dst, OUT);
}

int view_copy_in(struct view *v, uint64_t at, const void *src, uint64_t len)
{
	return each_batch(v, at, len, (char *)(uintptr_t)src, IN);
}

int view_zero(struct view *v, uint64_t at, uint64_t len)
{
	return each_batch(v, at, len, NULL, ZERO);
}
