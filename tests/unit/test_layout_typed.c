/* Views of accesses with patterns on both sides, compared with a model that holds the offset of
 * every byte: plans of requests, and the memory of any part of their streams, in and out of order.
 * A failure prints the case_seed of its case. */
#include "type_model.h"

#define CASES 30000
#define BASE 4096 /* large enough that no offset is negative */

struct trial {
	struct side mem, file;
	struct pattern pm, pf;
	struct access a;
	struct layout l;
	uint32_t index;
	uint64_t own[8192]; /* positions of the access that are in this object */
	size_t n_own;
};

static void find_own(struct trial *t)
{
	t->n_own = 0;
	for (uint64_t i = 0; i < t->a.total; i++) {
		uint32_t index;
		uint64_t obj;

		layout_locate(&t->l, side_offset(&t->file, BASE, i), &index, &obj);
		if (index == t->index)
			t->own[t->n_own++] = i;
	}
}

/* Checks bytes [at, at + len) of a view whose first byte is number `first` of the object's own
 * bytes. */
static void check_iov(struct trial *t, struct view *v, size_t first, uint64_t at, uint64_t len)
{
	struct iovec iov[64];
	uint64_t got;
	size_t max = 1 + random_below(64), n = view_iov(v, at, len, iov, max, &got), k = first + at;

	CHECK(n <= max && got <= len && (got || first + at == t->n_own));
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < iov[i].iov_len; j++, k++)
			CHECK_EQ((uintptr_t)iov[i].iov_base + j,
				 side_offset(&t->mem, 2 * BASE, t->own[k]));
	CHECK_EQ(k, first + at + got);
}

static void check_walks(struct trial *t, struct view *v, size_t first, uint64_t len)
{
	uint64_t at = 0;

	for (int i = 0; i < 6 && len; i++) {
		at = random_below(3) ? v->at : random_below(len);
		if (at >= len)
			at = 0;
		check_iov(t, v, first, at, 1 + random_below(len - at));
	}
}

static void check_plans(struct trial *t)
{
	struct cursor from = { 0 };
	struct pattern_view pattern_view;
	struct view v = { .pattern_view = &pattern_view };
	struct extent e[32];
	size_t done = 0, n;

	while (from.pos < t->a.total) {
		n = view_plan(&v, &t->a, &t->l, t->index, &from, e, 1 + random_below(32),
			      1 + random_below(400));
		check_walks(t, &v, done, v.length);
		for (size_t i = 0; i < n; i++)
			for (uint64_t j = 0; j < e[i].length; j++, done++) {
				uint32_t index;
				uint64_t obj;

				CHECK(done < t->n_own);
				layout_locate(&t->l, side_offset(&t->file, BASE, t->own[done]),
					      &index, &obj);
				CHECK_EQ(obj, e[i].offset + j);
			}
	}
	CHECK_EQ(done, t->n_own);
}

/* Checks the whole access, as a pattern on the wire describes it. */
static void check_whole(struct trial *t)
{
	uint64_t begin = random_below(t->a.total),
		 upto = begin + random_below(t->a.total - begin + 1);
	size_t first = 0, end;
	struct pattern_view pattern_view;
	struct view v = { .pattern_view = &pattern_view };

	while (first < t->n_own && t->own[first] < begin)
		first++;
	for (end = first; end < t->n_own && t->own[end] < upto;)
		end++;
	view_init_pattern(&v, &t->a, &t->l, t->index, begin, upto);
	check_walks(t, &v, first, end - first);
}

static void check_before(struct trial *t)
{
	uint64_t size = random_below(2 * BASE), want = 0;

	while (want < t->a.total && side_offset(&t->file, BASE, want) < size)
		want++;
	CHECK_EQ(access_before(&t->a, size), want);
}

static void one_case(void)
{
	static struct trial t;
	uint64_t count;

	t.mem = random_side();
	t.file = random_side();
	count = 1 + random_below(MIN(8192 / t.mem.model.n, 1 + random_below(20)));
	t.l = (struct layout){ .unit = 1 + (uint32_t)random_below(random_below(2) ? 8 : 200),
			       .width = 1 + (uint32_t)random_below(5) };
	t.l.start = (uint32_t)random_below(t.l.width);
	t.index = (uint32_t)random_below(t.l.width);
	if (pattern_init(&t.pm, t.mem.type, 2 * BASE, count) == 0 &&
	    pattern_tile(&t.pf, t.file.type, BASE, t.pm.total) == 0) {
		CHECK_EQ(access_typed(&t.a, &t.pm, &t.pf, 0), 0);
		find_own(&t);
		check_plans(&t);
		check_whole(&t);
		check_before(&t);
	}
	type_free(t.mem.type);
	type_free(t.file.type);
}

static void views_of_patterns_are_what_their_definition_says(void)
{
	random_cases(one_case, CASES);
}

static void totals_must_be_equal(void)
{
	struct type *t;
	struct pattern a, b;
	struct access acc;

	CHECK_EQ(type_bytes(8, &t), 0);
	CHECK_EQ(pattern_init(&a, t, 0, 2), 0);
	CHECK_EQ(pattern_init(&b, t, 0, 3), 0);
	CHECK_EQ(access_typed(&acc, &a, &b, 0), -EINVAL);
	type_free(t);
}

TEST_MAIN(TEST(views_of_patterns_are_what_their_definition_says), TEST(totals_must_be_equal))
