/* Types, patterns and extent iterators: known examples, errors and normal forms, then random nested
 * types, compared with a model that expands the definition byte by byte. SEED=n repeats one random
 * case. */
#include "layout/layout.h"

#include <time.h>

#include "layout/type.h"
#include "test.h"
#include "type_model.h"

#define CASES 200000
#define MAX_STREAM 1200 /* longest stream of a random pattern */

/* ---------------------------------------------------------------- calls of malloc */

static uint64_t allocations;
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(SANITIZED)
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);

void *malloc(size_t n)
{
	allocations++;
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	allocations++;
	return __libc_calloc(n, size);
}
#endif

/* ---------------------------------------------------------------- known examples */

static struct type *bytes(uint64_t n)
{
	struct type *t = NULL;

	CHECK_EQ(type_bytes(n, &t), 0);
	return t;
}

static struct type *vector(uint64_t count, uint64_t block, int64_t stride, struct type *of)
{
	struct type *t = NULL;

	CHECK_EQ(type_vector(count, block, stride, of, &t), 0);
	type_free(of);
	return t;
}

static struct type *indexed(size_t n, const uint64_t *blocks, const int64_t *displ, struct type *of)
{
	struct type *t = NULL;

	CHECK_EQ(type_indexed(n, blocks, displ, of, &t), 0);
	type_free(of);
	return t;
}

/* Encodes and decodes a type; the result must encode to the same bytes. */
static struct type *through_the_wire(const struct type *t)
{
	static uint8_t buf[TYPE_WIRE_MAX], again[TYPE_WIRE_MAX];
	size_t len = type_wire_size(t);
	struct type *u = NULL;

	CHECK(len <= TYPE_WIRE_MAX);
	type_encode(t, buf);
	CHECK_EQ(type_decode(buf, len, &u), 0);
	CHECK_EQ(type_wire_size(u), len);
	type_encode(u, again);
	CHECK(!memcmp(buf, again, len));
	CHECK_EQ(type_lower(u), type_lower(t));
	CHECK_EQ(type_upper(u), type_upper(t));
	CHECK_EQ(type_size(u), type_size(t));
	return u;
}

/* Checks size, bounds, depth and number of runs of one copy. */
static void is(struct type *t, uint64_t size, int64_t lb, int64_t ub, unsigned depth, uint64_t segs)
{
	CHECK_EQ(type_size(t), size);
	CHECK_EQ(type_lower(t), lb);
	CHECK_EQ(type_upper(t), ub);
	CHECK_EQ(type_extent(t), (uint64_t)(ub - lb));
	CHECK_EQ(type_depth(t), depth);
	CHECK_EQ(t->data.segs, segs);
	type_free(t);
}

static void contiguous_parts_are_fused(void)
{
	static const uint64_t ones[3] = { 1, 1, 1 }, mixed[4] = { 2, 0, 3, 1 };
	static const int64_t even[3] = { 5, 25, 45 }, touching[4] = { 8, 3, 10, 13 };
	static const int64_t back[3] = { 8, 4, 0 }, same[3] = { 0, 0, 8 };

	is(bytes(0), 0, 0, 0, 0, 0);
	is(bytes(7), 7, 0, 7, 0, 1);
	is(vector(10, 1, 8, bytes(8)), 80, 0, 80, 0, 1);
	is(vector(10, 2, 16, bytes(8)), 160, 0, 160, 0, 1);
	is(vector(1, 5, -77, bytes(8)), 40, 0, 40, 0, 1);
	is(vector(10, 1, 16, bytes(8)), 80, 0, 152, 1, 10);
	is(vector(3, 1, 160, vector(10, 1, 16, bytes(8))), 240, 0, 472, 1, 30); /* copies tile */
	is(vector(3, 1, 161, vector(10, 1, 16, bytes(8))), 240, 0, 474, 2, 30);
	/* runs of neighbouring copies are adjacent */
	is(vector(3, 2, 160, vector(2, 1, 16, bytes(8))), 96, 0, 368, 3, 9);
	is(vector(4, 1, -8, bytes(8)), 32, -24, 8, 1, 4);
	is(indexed(3, ones, even, bytes(4)), 12, 5, 49, 1, 3);
	is(indexed(4, mixed, touching, bytes(1)), 6, 8, 14, 0, 1);
	is(indexed(3, ones, back, bytes(4)), 12, 0, 12, 1, 3);
	/* 4 runs at 0, 2 at 8 */
	is(indexed(3, ones, same, vector(2, 1, 0, bytes(4))), 24, 0, 12, 2, 6);
	is(indexed(1, ones, even, bytes(4)), 4, 5, 9, 0, 1);
	is(indexed(0, ones, even, bytes(4)), 0, 0, 0, 0, 0);
	is(vector(0, 1, 100, bytes(4)), 0, 0, 0, 0, 0);
	is(vector(5, 0, 100, bytes(4)), 0, 0, 0, 0, 0);
	is(vector(5, 1, 100, bytes(0)), 0, 0, 400, 0, 0); /* empty elements count for the bounds */
}

static void rows_of_subarrays_are_fused(void)
{
	static const uint64_t sizes[3] = { 4, 6, 8 }, all[3] = { 4, 6, 8 }, none[3] = { 0, 0, 0 };
	static const uint64_t rows[3] = { 2, 6, 8 }, part[3] = { 2, 3, 4 }, cols[3] = { 4, 6, 1 };
	static const uint64_t empty[3] = { 2, 0, 4 }, from[3] = { 1, 2, 3 }, at[3] = { 1, 0, 0 };
	struct type *of = bytes(8), *t;

	CHECK_EQ(type_subarray(3, sizes, all, none, of, &t), 0);
	is(t, 1536, 0, 1536, 0, 1);
	CHECK_EQ(type_subarray(3, sizes, rows, at, of, &t), 0);
	CHECK_EQ(t->at, 384);
	is(t, 768, 0, 1536, 0, 1);
	CHECK_EQ(type_subarray(3, sizes, part, from, of, &t), 0);
	CHECK_EQ(t->at, 384 + 128 + 24);
	is(t, 192, 0, 1536, 2, 6);
	CHECK_EQ(type_subarray(3, sizes, cols, none, of, &t), 0);
	is(t, 192, 0, 1536, 1, 24);
	CHECK_EQ(type_subarray(3, sizes, empty, none, of, &t), 0);
	is(t, 0, 0, 1536, 0, 0);
	type_free(of);
}

static void one_type_used_often_stands_once(void)
{
	static const uint64_t blocks[5] = { 1, 2, 1, 3, 1 };
	static const int64_t displ[5] = { 0, 100, 300, 1000, 2000 };
	struct type *a = vector(3, 1, 16, bytes(8)), *b = vector(4, 1, 32, bytes(8)), *t;
	const struct type *of[5] = { a, b, a, b, a };

	CHECK_EQ(type_struct(5, blocks, displ, of, &t), 0);
	CHECK_EQ(t->n_nodes, 5); /* leaf, a, b, blocks of b, list */
	CHECK_EQ(t->n_entries, 5);
	CHECK_EQ(type_wire_size(t), 40 + 4 * 24 + 5 * 20);
	type_free(a);
	type_free(b);
	is(t, 9 * 8 + 20 * 8, 0, 2040, 3, 26); /* copies of b are adjacent */
}

static void an_empty_element_moves_a_bound(void)
{
	static const uint64_t blocks[2] = { 1, 1 };
	static const int64_t displ[2] = { 8, 64 };
	struct type *data = bytes(8), *mark = bytes(0), *t;
	const struct type *of[2] = { data, mark };

	CHECK_EQ(type_struct(2, blocks, displ, of, &t), 0);
	type_free(data);
	type_free(mark);
	is(vector(3, 1, 112, t), 24, 8, 288, 1, 3);
}

/* ---------------------------------------------------------------- errors */

#define HUGE (UINT64_C(1) << 63)

static void amounts_beyond_63_bits_are_refused(void)
{
	struct type *of = bytes(8), *vec = vector(2, 1, 16, bytes(8)), *t = NULL;
	struct type *far = vector(2, 1, INT64_MAX - 8, bytes(8));
	uint64_t one[2] = { 1, 1 }, big[2] = { HUGE, 1 };
	int64_t near[2] = { 0, 8 }, ends[2] = { INT64_MIN + 1, INT64_MAX - 9 };
	int64_t least[2] = { INT64_MIN, 0 };
	const struct type *each[2] = { of, far };

	CHECK_EQ(type_bytes(HUGE, &t), -EINVAL);
	CHECK_EQ(type_vector(HUGE, 1, 0, of, &t), -EINVAL);
	CHECK_EQ(type_vector(1, HUGE, 0, of, &t), -EINVAL);
	CHECK_EQ(type_vector(1, HUGE / 8, 0, of, &t), -EINVAL);
	CHECK_EQ(type_vector(HUGE / 8, 1, 0, of, &t), -EINVAL); /* all copies at one place */
	CHECK_EQ(type_vector(2, 1, INT64_MAX - 7, of, &t), -EINVAL);
	CHECK_EQ(type_vector(2, 1, INT64_MIN, of, &t), -EINVAL);
	CHECK_EQ(type_vector(3, 1, INT64_MIN / 2, of, &t), -EINVAL);
	CHECK_EQ(type_vector(2, 1, 8, far, &t), -EINVAL);
	CHECK_EQ(type_vector(UINT64_C(1) << 61, 1, UINT64_C(1) << 61, vec, &t), -EINVAL);
	CHECK_EQ(type_indexed(2, big, near, of, &t), -EINVAL);
	/* the displacements are too far apart */
	CHECK_EQ(type_indexed(2, one, ends, of, &t), -EINVAL);
	CHECK_EQ(type_indexed(2, one, least, of, &t), -EINVAL);
	CHECK_EQ(type_struct(2, one, near, each, &t), -EINVAL);
	CHECK(!t);
	type_free(of);
	type_free(vec);
	is(far, 16, 0, INT64_MAX, 1, 2);
}

static void subarrays_stay_in_their_array(void)
{
	uint64_t sizes[2] = { 4, 5 }, sub[2] = { 2, 2 }, at[2] = { 2, 3 },
		 huge[2] = { HUGE / 4, 4 };
	struct type *of = bytes(8), *t = NULL;

	CHECK_EQ(type_subarray(0, sizes, sub, at, of, &t), -EINVAL);
	CHECK_EQ(type_subarray(-1, sizes, sub, at, of, &t), -EINVAL);
	CHECK_EQ(type_subarray(TYPE_DEPTH_MAX + 1, sizes, sub, at, of, &t), -E2BIG);
	at[1] = 4;
	CHECK_EQ(type_subarray(2, sizes, sub, at, of, &t), -EINVAL);
	at[1] = UINT64_MAX;
	CHECK_EQ(type_subarray(2, sizes, sub, at, of, &t), -EINVAL);
	at[1] = 3;
	sub[0] = 5;
	CHECK_EQ(type_subarray(2, sizes, sub, at, of, &t), -EINVAL);
	sub[0] = 2;
	CHECK_EQ(type_subarray(2, huge, sub, at, of, &t), -EINVAL); /* the array is too large */
	CHECK(!t);
	CHECK_EQ(type_subarray(2, sizes, sub, at, of, &t), 0);
	type_free(of);
	is(t, 32, 0, 160, 1, 2);
}

static void what_is_too_deep_is_refused_at_once(void)
{
	struct type *t = bytes(2), *u;
	int64_t displ[2] = { 0, 1 };
	uint64_t blocks[2] = { 1, 1 };
	const struct type *each[2];
	int r = 0;

	for (unsigned d = 0; d < TYPE_DEPTH_MAX; d++)
		t = vector(2, 1, 1, t); /* 2^32 bytes within few offsets */
	CHECK_EQ(type_depth(t), TYPE_DEPTH_MAX);
	CHECK_EQ(type_vector(2, 1, 1, t, &u), -E2BIG);
	CHECK_EQ(type_indexed(2, blocks, displ, t, &u), -E2BIG);
	CHECK_EQ(type_indexed(3, (uint64_t[]){ 1, 1, 1 }, (int64_t[]){ 0, 1, 5 }, t, &u), -E2BIG);
	is(t, UINT64_C(1) << 33, 0, 34, TYPE_DEPTH_MAX, UINT64_C(1) << 32);

	t = vector(2, 1, 3, bytes(2));
	for (unsigned d = 0; !r;
	     d++) { /* the type and an equal copy, so that no node is shared: 2^d nodes */
		struct type *twin = through_the_wire(t);

		CHECK(d < 20);
		each[0] = t;
		each[1] = twin;
		r = type_struct(2, blocks, displ, each, &u);
		type_free(twin);
		if (!r) {
			type_free(t);
			t = u;
		}
	}
	CHECK_EQ(r, -E2BIG);
	type_free(t);
}

static void what_is_too_long_is_refused(void)
{
	size_t n = (TYPE_WIRE_MAX - 40 - 24) / 20;
	uint64_t *blocks = calloc(n + 1, sizeof(*blocks));
	int64_t *displ = calloc(n + 1, sizeof(*displ));
	struct type *of = bytes(1), *t, *u = NULL;

	CHECK(blocks && displ);
	for (size_t i = 0; i <= n; i++) {
		blocks[i] = 1;
		displ[i] = (int64_t)(3 * i + i % 2);
	}
	CHECK_EQ(type_indexed(n + 1, blocks, displ, of, &t), -E2BIG);
	CHECK_EQ(type_indexed(n, blocks, displ, of, &t), 0);
	CHECK(type_wire_size(t) <= TYPE_WIRE_MAX);
	CHECK_EQ(type_vector(2, 1, 7, t, &u), -E2BIG);
	CHECK_EQ(type_vector(1, 1, 7, t, &u), 0);
	type_free(u);
	is(t, n, 0, displ[n - 1] + 1, 1, n);
	for (size_t i = 0; i <= n; i++)
		displ[i] = (int64_t)(3 * i);
	/* equals a vector */
	is(indexed(n + 1, blocks, displ, of), n + 1, 0, displ[n] + 1, 1, n + 1);
	free(blocks);
	free(displ);
}

static void patterns_stay_between_0_and_63_bits(void)
{
	struct type *t = vector(3, 1, -10, bytes(4)), *none = bytes(0);
	struct pattern p;

	CHECK_EQ(pattern_init(&p, t, 19, 1), -EINVAL);
	CHECK_EQ(pattern_init(&p, t, 20, 1), 0);
	CHECK_EQ(p.begin, 0);
	CHECK_EQ(p.end, 24);
	CHECK_EQ(p.total, 12);
	CHECK(!p.ascends);
	/* more bytes would be out of range, but are not asked for */
	CHECK_EQ(pattern_tile(&p, t, 0, 4), 0);
	CHECK_EQ(pattern_tile(&p, t, 0, 5), -EINVAL);
	CHECK_EQ(pattern_tile(&p, t, 10, 7), 0);
	CHECK_EQ(p.begin, 0);
	CHECK_EQ(pattern_tile(&p, t, INT64_MAX - 4, 12), 0);
	CHECK_EQ(pattern_tile(&p, t, INT64_MAX - 4, 13), -EINVAL); /* the next copy does not fit */
	CHECK_EQ(pattern_tile(&p, t, INT64_MAX - 3, 3), 0);
	CHECK_EQ(pattern_tile(&p, t, INT64_MAX - 3, 4), -EINVAL);
	CHECK_EQ(pattern_init(&p, t, 20, UINT64_MAX), -EINVAL);
	CHECK_EQ(pattern_init(&p, none, -20, UINT64_MAX), 0);
	CHECK_EQ(p.total, 0);
	CHECK_EQ(pattern_tile(&p, none, 0, 1), -EINVAL);
	CHECK_EQ(pattern_tile(&p, t, 20, HUGE), -EINVAL);
	type_free(t);
	type_free(none);
}

/* ---------------------------------------------------------------- comparing */

/* The stream of a pattern. */
static uint64_t stream[MAX_STREAM];
static size_t n_stream;

static bool stream_ascends(void)
{
	for (size_t i = 1; i < n_stream; i++) {
		if (stream[i] <= stream[i - 1])
			return false;
	}
	return true;
}

static size_t stream_runs(void)
{
	size_t n = 0;

	for (size_t i = 0; i < n_stream; i++)
		n += !i || stream[i] != stream[i - 1] + 1;
	return n;
}

/* Checks the extents from position *at on, and advances *at. */
static void check_runs(const struct extent *out, size_t n, size_t *at)
{
	for (size_t i = 0; i < n; i++) {
		CHECK(out[i].length > 0);
		if (i)
			CHECK(out[i - 1].offset + out[i - 1].length != out[i].offset);
		for (uint64_t k = 0; k < out[i].length; k++) {
			CHECK(*at < n_stream);
			CHECK(stream[(*at)++] == out[i].offset + k);
		}
	}
}

/* Walks from the cursor's position to the end, in random steps. */
static void check_walk(struct pattern_cursor *c, size_t at)
{
	struct extent out[MAX_STREAM];

	CHECK_EQ(c->pos, at);
	for (;;) {
		size_t max = random_below(2) ? 1 + random_below(5) : MAX_STREAM, begin = at;
		uint64_t bytes = random_below(2) ? 1 + random_below(30) : UINT64_MAX;
		size_t n = pattern_runs(c, out, max, bytes);

		CHECK(n <= max);
		check_runs(out, n, &at);
		CHECK_EQ(c->pos, at);
		CHECK(at - begin <= bytes);
		if (!n)
			break;
		if (at < n_stream && at - begin < bytes) { /* ended early only because of a limit */
			CHECK_EQ(n, max);
			CHECK(stream[at] != out[n - 1].offset + out[n - 1].length);
		}
		if (random_below(8) == 0)
			return;
	}
	CHECK_EQ(at, n_stream);
}

static void check_seeks(const struct pattern *p)
{
	struct pattern_cursor c;

	pattern_seek(&c, p, 0);
	check_walk(&c, 0);
	for (int i = 0; i < 4; i++) {
		size_t at = random_below(n_stream + 1);

		pattern_seek(&c, p, at);
		check_walk(&c, at);
	}
	for (int i = 0; p->ascends && i < 4; i++) {
		uint64_t off = p->begin + random_below(p->end - p->begin + 4) -
			       MIN(p->begin, random_below(3));
		size_t at = 0;

		while (at < n_stream && stream[at] < off)
			at++;
		CHECK_EQ(pattern_position(p, off), at);
		pattern_seek_offset(&c, p, off);
		check_walk(&c, at);
	}
}

static uint32_t model_locate(const struct layout *l, uint64_t off, uint64_t *obj)
{
	uint64_t stripe = off / l->unit;

	*obj = stripe / l->width * l->unit + off % l->unit;
	return (uint32_t)((stripe + l->start) % l->width);
}

/* The first position from `at` on that is in the object. */
static size_t next_own(const struct layout *l, uint32_t index, size_t at, uint64_t *obj)
{
	while (at < n_stream && model_locate(l, stream[at], obj) != index)
		at++;
	return at;
}

static void check_extent_iter(const struct pattern *p, const struct layout *l, uint32_t index)
{
	struct extent out[MAX_STREAM];
	uint64_t pos[MAX_STREAM], obj = 0;
	struct extent_iter s;
	size_t at = random_below(3) ? 0 : random_below(n_stream + 1), n;

	extent_iter_init(&s, p, l, index, at);
	if (p->ascends && random_below(2)) {
		s.by_stripe = random_below(2);
		s.skips_gaps = random_below(2);
	}
	for (;;) {
		size_t max = random_below(2) ? 1 + random_below(4) : MAX_STREAM;
		uint64_t bytes = random_below(2) ? 1 + random_below(30) : UINT64_MAX, done = 0;
		bool whole = random_below(2);

		n = extent_iter_next(&s, out, whole ? NULL : pos, max, bytes);
		CHECK(n <= max);
		for (size_t i = 0; i < n; i++) {
			const struct extent *last = i ? &out[i - 1] : NULL;

			if (last && last->offset + last->length == out[i].offset)
				CHECK(!whole && pos[i - 1] + last->length != pos[i]);
			for (uint64_t k = 0; k < out[i].length; k++, done++) {
				at = next_own(l, index, at, &obj);
				CHECK(at < n_stream && obj == out[i].offset + k);
				CHECK(whole || pos[i] + k == at);
				at++;
			}
		}
		CHECK(done <= bytes && s.c.pos >= at);
		at = next_own(l, index, at, &obj);
		CHECK(s.c.pos <= at);
		if (!n)
			break;
		if (at < n_stream && done < bytes) {
			CHECK_EQ(n, max);
			CHECK(!(out[n - 1].offset + out[n - 1].length == obj &&
				(whole || pos[n - 1] + out[n - 1].length == at)));
		}
	}
	CHECK_EQ(at, n_stream);
	CHECK_EQ(s.c.pos, n_stream);
}

static void check_extent_iters(const struct pattern *p)
{
	struct layout l = { .unit = 1 + (uint32_t)random_below(random_below(2) ? 12 : 80),
			    .width = 1 + (uint32_t)random_below(random_below(8) ? 5 : 40) };

	l.start = (uint32_t)random_below(l.width);
	for (uint32_t i = 0; i < l.width; i++)
		check_extent_iter(p, &l, i);
}

/* Patterns of whole and cut copies of the type at a base where they fit; then at one where they do
 * not. */
static void check_pattern(const struct type *t, const struct model *m)
{
	size_t most = m->n ? MAX_STREAM / m->n : 0, count = random_count(MIN(most, 5), 0);
	int64_t extent = m->ub - m->lb, lo = 0, hi = 0, base;
	bool whole = random_below(2);
	struct pattern p;

	n_stream = count * m->n - (whole ? 0 : random_below(MIN(count, 1) * m->n));
	for (size_t i = 0; i < n_stream; i++) {
		int64_t off = (int64_t)(i / m->n) * extent + m->off[i % m->n];

		lo = i ? MIN(lo, off) : off;
		hi = i ? MAX(hi, off + 1) : off + 1;
		stream[i] = (uint64_t)off;
	}
	base = hi <= 0 || random_below(8) ? -lo + (int64_t)random_below(50) : INT64_MAX - hi;
	for (size_t i = 0; i < n_stream; i++)
		stream[i] += (uint64_t)base;
	CHECK_EQ(whole ? pattern_init(&p, t, base, count) : pattern_tile(&p, t, base, n_stream), 0);
	CHECK_EQ(p.total, n_stream);
	if (n_stream) {
		CHECK_EQ(p.begin, (uint64_t)(base + lo));
		CHECK_EQ(p.end, (uint64_t)(base + hi));
	}
	if (whole) {
		CHECK_EQ(p.segs, stream_runs());
		CHECK_EQ(p.ascends, stream_ascends());
	} else {
		CHECK(p.segs >= stream_runs());
		CHECK(!p.ascends || stream_ascends());
	}
	check_seeks(&p);
	check_extent_iters(&p);
	if (n_stream) {
		CHECK_EQ(pattern_tile(&p, t, -lo - 1, n_stream), -EINVAL);
		if (hi > 0)
			CHECK_EQ(pattern_tile(&p, t, INT64_MAX - hi + 1, n_stream), -EINVAL);
	}
}

static void random_case(void)
{
	struct type *t, *u;
	struct model m;

	t = random_type(1 + (unsigned)random_below(5), &m);
	CHECK_EQ(type_size(t), m.n);
	CHECK_EQ(type_lower(t), m.lb);
	CHECK_EQ(type_upper(t), m.ub);
	u = through_the_wire(t);
	check_pattern(random_below(2) ? t : u, &m);
	type_free(t);
	type_free(u);
}

static void random_types_agree_with_the_model(void)
{
	random_cases(random_case, CASES);
}

/* ---------------------------------------------------------------- garbage */

/* Every byte of a message is changed in turn: the message is refused, or it is a type that encodes
 * to the same bytes. */
static void changed_messages_are_refused_or_mean_what_they_say(void)
{
	static uint8_t buf[4096], again[4096];

	for (case_seed = 1; case_seed <= 400; case_seed++) {
		struct type *t, *u;
		struct model m;
		size_t len;

		pooled = 0;
		type_rng = case_seed;
		t = random_type(3, &m);
		len = type_wire_size(t);
		CHECK(len <= sizeof(buf));
		type_encode(t, buf);
		type_free(t);
		CHECK_EQ(type_decode(buf, len - 1, &u), -EBADMSG);
		CHECK_EQ(type_decode(buf, len + 1, &u), -EBADMSG);
		for (size_t i = 0; i < len; i++) {
			uint8_t was = buf[i];
			int r;

			buf[i] = random_below(2) ? (uint8_t)(was + 1) :
						   (uint8_t)test_random(&type_rng);
			r = type_decode(buf, len, &u);
			CHECK(r == 0 || r == -EBADMSG);
			if (!r) {
				CHECK_EQ(type_wire_size(u), len);
				type_encode(u, again);
				CHECK(!memcmp(buf, again, len));
				type_free(u);
			}
			buf[i] = was;
		}
	}
}

/* Writes a message of numbers with the given sizes. */
static size_t message(uint8_t *buf, const char *sizes, const int64_t *values)
{
	size_t n = 0;

	for (; *sizes; sizes++, values++) {
		for (int bits = *sizes == '4' ? 24 : 56; bits >= 0; bits -= 8)
			buf[n++] = (uint8_t)((uint64_t)*values >> bits);
	}
	return n;
}

#define FAR (INT64_C(1) << 62)

/* nodes, entries, lb, ub, at, n; nodes: child, entries, stride, n; entries: child, displacement,
 * n */
static void what_no_encoder_writes_is_refused(void)
{
	static const struct {
		const char *why, *sizes;
		int64_t v[24];
	} row[] = {
		{ NULL, "448888", { 0, 0, 0, 8, 0, 8 } },
		{ "bounds the wrong way round", "448888", { 0, 0, 8, 0, 0, 8 } },
		{ "bounds too far apart", "448888", { 0, 0, -FAR, FAR, 0, 8 } },
		{ "no data somewhere", "448888", { 0, 0, 0, 8, 8, 0 } },
		{ "too much", "448888", { 0, 0, 0, 8, 0, -1 } },
		{ "data beyond the end", "448888", { 0, 0, 0, 8, INT64_MAX - 7, 8 } },
		{ "the lowest of all places", "448888", { 0, 0, 0, 8, INT64_MIN, 8 } },
		{ NULL, "4488884488", { 1, 0, 0, 8, 0, 2, 0, 0, 9, 8 } },
		{ "an empty type with nodes", "4488884488", { 1, 0, 0, 8, 0, 0, 0, 0, 9, 8 } },
		{ "a vector of one", "4488884488", { 1, 0, 0, 8, 0, 1, 0, 0, 9, 8 } },
		{ "a vector of nothing", "4488884488", { 1, 0, 0, 8, 0, 2, 0, 0, 9, 0 } },
		{ "a vector that continues", "4488884488", { 1, 0, 0, 8, 0, 2, 0, 0, 8, 8 } },
		{ "a child of its own", "4488884488", { 1, 0, 0, 8, 0, 2, 1, 0, 9, 8 } },
		{ "a stride too far", "4488884488", { 1, 0, 0, 8, 0, 2, 0, 0, INT64_MIN, 8 } },
		{ "too many", "4488884488", { 1, 0, 0, 8, 0, FAR, 0, 0, 1, 8 } },
		{ NULL, "44888844884488", { 2, 0, 0, 8, 0, 2, 0, 0, FAR - 9, 8, 1, 0, -FAR, 2 } },
		{ "data too far apart",
		  "44888844884488",
		  { 2, 0, 0, 8, 0, 3, 0, 0, FAR - 9, 8, 1, 0, -FAR / 3 * 2, 3 } },
		{ NULL, "4488884488488488", { 1, 2, 0, 8, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 9, 2 } },
		{ "two lists",
		  "4488884488488488",
		  { 1, 2, 0, 8, 0, 2, 0, 2, 0, 0, 0, 0, 1, 0, 9, 2 } },
		{ "even entries",
		  "4488884488488488",
		  { 1, 2, 0, 8, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 9, 1 } },
		{ "entries that touch",
		  "4488884488488488",
		  { 1, 2, 0, 8, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 1, 2 } },
		{ "an empty entry",
		  "4488884488488488",
		  { 1, 2, 0, 8, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 9, 0 } },
		{ "a list that begins elsewhere",
		  "4488884488488488",
		  { 1, 2, 0, 8, 0, 1, 0, 2, 0, 0, 0, 4, 1, 0, 9, 2 } },
		{ "a list with a stride",
		  "4488884488488488",
		  { 1, 2, 0, 8, 0, 1, 0, 2, 7, 0, 0, 0, 1, 0, 9, 2 } },
		{ "fewer entries than there are",
		  "4488884488488488488",
		  { 1, 3, 0, 8, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 9, 2, 0, 30, 1 } },
		{ "a list of one", "4488884488488", { 1, 1, 0, 8, 0, 1, 0, 1, 0, 0, 0, 0, 1 } },
		{ "entries of a list to come",
		  "4488884488488488",
		  { 1, 2, 0, 8, 0, 1, 0, 2, 0, 0, 0, 0, 1, 1, 9, 1 } },
		{ "entries too far apart",
		  "4488884488488488488",
		  { 1, 3, 0, 8, 0, 1, 0, 3, 0, 0, 0, 0, 1, 0, FAR, 2, 0, -FAR - 1, 1 } },
	};
	uint8_t buf[256];

	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		size_t len = message(buf, row[i].sizes, row[i].v);
		struct type *t = NULL;
		int r = type_decode(buf, len, &t);

		if (r != (row[i].why ? -EBADMSG : 0))
			printf("row %zu: %s\n", i, row[i].why ? row[i].why : "right");
		CHECK_EQ(r, row[i].why ? -EBADMSG : 0);
		type_free(t);
	}
}

/* A chain of vectors: of the largest depth, and one deeper. */
static void deep_messages_are_refused(void)
{
	uint8_t buf[40 + 24 * (TYPE_DEPTH_MAX + 1)];

	for (int depth = TYPE_DEPTH_MAX; depth <= TYPE_DEPTH_MAX + 1; depth++) {
		size_t n = message(buf, "448888", (int64_t[]){ depth, 0, 0, 8, 0, 2 });
		struct type *t = NULL;

		for (int i = 0; i < depth; i++)
			n += message(buf + n, "4488", (int64_t[]){ i, 0, 1, 2 });
		CHECK_EQ(type_decode(buf, n, &t), depth > TYPE_DEPTH_MAX ? -EBADMSG : 0);
		type_free(t);
	}
}

/* ---------------------------------------------------------------- ten million segments */

/* Processor time of this process, so that other load on the machine does not count. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void ten_million_segments_are_a_short_message(void)
{
	const struct layout l = { 65536, 4, 1 };
	struct type *made = vector(10000, 1, 1 << 20, vector(1000, 1, 64, bytes(8)));
	struct type *t = through_the_wire(made);
	static struct extent out[4096];
	static struct extent_iter s;
	struct pattern_cursor c;
	struct pattern p;
	uint64_t sum = 0, before, began, x = 7;

	CHECK(type_wire_size(t) < 200);
	CHECK(sizeof(c) < 2048);
	CHECK_EQ(t->data.segs, 10000000);
	before = allocations;
	CHECK_EQ(pattern_init(&p, t, 12345, 1), 0);
	CHECK(p.ascends);
	CHECK_EQ(p.total, 80000000);
	CHECK_EQ(p.end, 12345 + (UINT64_C(9999) << 20) + 999 * 64 + 8);
	began = cpu_ns();
	for (int i = 0; i < 100000; i++) {
		uint64_t at = test_random(&x) % p.total, e = at / 8;

		pattern_seek(&c, &p, at);
		CHECK_EQ(c.off, 12345 + (e / 1000 << 20) + e % 1000 * 64 + at % 8);
		pattern_seek_offset(&c, &p, c.off - at % 8 - 1);
		CHECK_EQ(c.pos, e * 8);
	}
	CHECK(cpu_ns() - began < UINT64_C(1000000000)); /* 200,000 seeks: 5,000 ns each */
	for (uint32_t i = 0; i < l.width; i++) {
		extent_iter_init(&s, &p, &l, i, 0);
		for (size_t n; (n = extent_iter_next(&s, out, NULL, 4096, UINT64_MAX));) {
			for (size_t k = 0; k < n; k++)
				sum += out[k].length;
		}
	}
	CHECK_EQ(sum, p.total);
	CHECK_EQ(allocations, before);
	type_free(made);
	type_free(t);
}

/* 2^62 bytes over many stripes: the cost of a leaf does not depend on its length. */
static void huge_leaves_cost_nothing(void)
{
	const struct layout l = { 4096, 3, 1 };
	struct type *made = vector(2, 1, INT64_C(1) << 62, bytes((UINT64_C(1) << 62) - 4096));
	struct extent out[4];
	struct extent_iter s;
	struct pattern p;
	uint64_t sum = 0;

	CHECK_EQ(pattern_init(&p, made, 0, 1), 0);
	for (uint32_t i = 0; i < l.width; i++) {
		size_t n;

		extent_iter_init(&s, &p, &l, i, 0);
		n = extent_iter_next(&s, out, NULL, 4, UINT64_MAX);
		CHECK(n == 1 || n == 2);
		for (size_t k = 0; k < n; k++)
			sum += out[k].length;
		CHECK_EQ(s.c.pos, p.total);
	}
	CHECK_EQ(sum, p.total);
	type_free(made);
}

/* Runs of one stripe are taken at once; the last one continues in the next stripe of the object. */
static void extents_fuse_from_stripe_to_stripe(void)
{
	static const uint64_t ones[4] = { 4, 4, 4, 8 }, pos_want[3] = { 0, 4, 8 };
	static const int64_t displ[4] = { 0, 6, 12, 32 };
	const struct layout l = { 16, 2, 0 };
	struct type *made = indexed(4, ones, displ, bytes(1));
	uint64_t pos[4];
	struct extent out[4];
	struct extent_iter s;
	struct pattern p;

	CHECK_EQ(pattern_init(&p, made, 0, 1), 0);
	for (int by_stripe = 0; by_stripe < 2; by_stripe++) {
		extent_iter_init(&s, &p, &l, 0, 0);
		s.by_stripe = by_stripe;
		CHECK_EQ(extent_iter_next(&s, out, pos, 4, UINT64_MAX), 3);
		CHECK_EQ(out[2].offset, 12);
		CHECK_EQ(out[2].length, 12);
		CHECK(!memcmp(pos, pos_want, sizeof(pos_want)));
	}
	type_free(made);
}

/* All runs are in stripes of one object: for other objects the search finds nothing and takes
 * bounded time. */
static void patterns_of_other_objects_cost_bounded_time(void)
{
	const struct layout l = { 4096, 4, 0 };
	struct type *made = vector(UINT64_C(1) << 40, 1, 4 * 4096, bytes(4096));
	struct extent out[4];
	struct extent_iter s;
	struct pattern p;

	CHECK_EQ(pattern_init(&p, made, 0, 1), 0);
	extent_iter_init(&s, &p, &l, 0, 0);
	CHECK_EQ(extent_iter_next(&s, out, NULL, 4, MIB), 1);
	CHECK_EQ(out[0].length, MIB);
	CHECK_EQ(s.c.pos, MIB);
	extent_iter_init(&s, &p, &l, 1, 0);
	CHECK_EQ(extent_iter_next(&s, out, NULL, 4, MIB), 0);
	CHECK_EQ(s.c.pos, UINT64_C(4096) * EXTENT_ITER_STEPS);
	extent_iter_init(&s, &p, &l, 1, p.total - MIB);
	CHECK_EQ(extent_iter_next(&s, out, NULL, 4, MIB), 0);
	CHECK_EQ(s.c.pos, p.total);
	type_free(made);
}

TEST_MAIN(TEST(contiguous_parts_are_fused), TEST(rows_of_subarrays_are_fused),
	  TEST(one_type_used_often_stands_once), TEST(an_empty_element_moves_a_bound),
	  TEST(amounts_beyond_63_bits_are_refused), TEST(subarrays_stay_in_their_array),
	  TEST(what_is_too_deep_is_refused_at_once), TEST(what_is_too_long_is_refused),
	  TEST(patterns_stay_between_0_and_63_bits), TEST(random_types_agree_with_the_model),
	  TEST(changed_messages_are_refused_or_mean_what_they_say),
	  TEST(what_no_encoder_writes_is_refused), TEST(deep_messages_are_refused),
	  TEST(extents_fuse_from_stripe_to_stripe), TEST(ten_million_segments_are_a_short_message),
	  TEST(huge_leaves_cost_nothing), TEST(patterns_of_other_objects_cost_bounded_time))
