/* Sorting and grouping of pieces, and sets of address ranges. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reg/reg_impl.h"
#include "test.h"

#define MAX_LEN (UINT64_C(1) << 40)
#define P ((uintptr_t)65536) /* a multiple of every page size */

static void pieces_are_sorted_and_empty_ones_left_out(void)
{
	struct iovec v[] = { { (void *)(3 * P), 10 },
			     { (void *)P, 0 },
			     { (void *)(2 * P), 20 },
			     { (void *)P, 30 } };
	struct group_piece p[4];
	size_t n;

	CHECK_EQ(group_sort(p, v, 4, &n), 0);
	CHECK_EQ(n, 3);
	CHECK(p[0].index == 3 && p[1].index == 2 && p[2].index == 0);
	CHECK_EQ(p[0].at.end, P + 30);
	v[0] = (struct iovec){ (void *)(UINTPTR_MAX - 10), 5 };
	CHECK_EQ(group_sort(p, v, 4, &n), -EFAULT);
	v[0] = (struct iovec){ (void *)P, SIZE_MAX };
	CHECK_EQ(group_sort(p, v, 4, &n), -EFAULT);
}

static void gaps_up_to_the_limit_are_joined(void)
{
	struct group_piece p[] = { { { P, P + 10 }, 0 },
				   { { P + 20, P + 30 }, 1 },
				   { { 3 * P, 4 * P }, 2 },
				   { { 9 * P, 10 * P }, 3 } };
	uintptr_t page = page_size();
	struct span s;

	CHECK_EQ(group_next(p, 4, 2 * P, MAX_LEN, &s), 3);
	CHECK(s.start == P && s.end == 4 * P);
	CHECK_EQ(group_next(p, 4, 5 * P, MAX_LEN, &s), 4);
	CHECK_EQ(group_next(p, 4, 0, MAX_LEN, &s), 2); /* the same page */
	CHECK(s.start == P && s.end == P + page);
	CHECK_EQ(group_next(p, 4, 5 * P, 3 * P, &s), 3);
	CHECK_EQ(group_bytes(p, 4, 0, MAX_LEN), page + 2 * P);
	CHECK_EQ(group_bytes(p, 4, 2 * P, MAX_LEN), 4 * P);
}

static void the_cost_decides_on_a_gap(void)
{
	struct reg_costs c = { .page_ns = 100, .call_ns = 550 };

	CHECK_EQ(costs_max_gap(&c), 5 * page_size());
	c = (struct reg_costs){ .page_ns = 0 }; /* not measured */
	CHECK_EQ(costs_max_gap(&c), 0);
}

/* Against a map of bytes. A full set may hold more than was added, never less. */
static void sets_of_spans_hold_what_was_added(void)
{
	enum { N = 400 };
	static struct spans set;
	bool has[N] = { false };
	uint64_t seed = 1;

	for (int i = 0; i < 20000; i++) {
		uint64_t start = test_random(&seed) % N, len = 1 + test_random(&seed) % 4;
		struct span s = { start, MIN(start + len, (uint64_t)N) };
		bool add = test_random(&seed) % 3;

		if (add)
			spans_add(&set, s);
		else
			spans_remove(&set, s);
		for (uintptr_t k = s.start; k < s.end; k++)
			has[k] = add;
		CHECK(set.n <= SPANS_MAX);
		for (uintptr_t k = 0; k < N; k++)
			CHECK(!has[k] || spans_overlap(&set, (struct span){ k, k + 1 }));
		for (size_t k = 0; k < set.n; k++) {
			CHECK(set.of[k].start < set.of[k].end);
			CHECK(!k || set.of[k - 1].end < set.of[k].start ||
			      set.of[k - 1].end == set.of[k].start);
		}
	}
	spans_remove(&set, (struct span){ 0, N });
	CHECK_EQ(set.n, 0);
}

struct found {
	int n;
	struct mapping of[16];
};

static bool keep(void *arg, const struct mapping *m)
{
	struct found *f = arg;

	f->of[f->n++] = *m;
	return f->n < 16;
}

/* The parts of the mappings within s; others may join a mapping from outside. */
static bool is_same(const struct mapping *a, const struct mapping *b, struct span s)
{
	return MAX(a->at.start, s.start) == MAX(b->at.start, s.start) &&
	       MIN(a->at.end, s.end) == MIN(b->at.end, s.end) && a->is_readable == b->is_readable &&
	       a->is_writable == b->is_writable && a->is_private_memory == b->is_private_memory;
}

static void mappings_are_found_in_both_ways(void)
{
	uintptr_t page = page_size();
	char *p = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct span s = { (uintptr_t)p, (uintptr_t)p + 8 * page };
	struct found a = { 0 }, b = { 0 };
	int fd = maps_open();

	CHECK(p != MAP_FAILED && fd >= 0);
	CHECK_EQ(munmap(p + page, page), 0);
	CHECK_EQ(mprotect(p + 3 * page, page, PROT_READ), 0);
	CHECK(mmap(p + 5 * page, page, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	      MAP_FAILED);
	CHECK_EQ(maps_walk(fd, s, keep, &a), 0);
	CHECK_EQ(maps_walk_text(fd, s, keep, &b), 0);
	CHECK_EQ(a.n, 6);
	CHECK_EQ(b.n, 6);
	for (int i = 0; i < a.n; i++)
		CHECK(is_same(&a.of[i], &b.of[i], s));
	CHECK_EQ(a.of[1].at.start, s.start + 2 * page);
	CHECK(a.of[1].is_writable && a.of[1].is_private_memory);
	CHECK(a.of[2].is_readable && !a.of[2].is_writable);
	CHECK(!a.of[4].is_private_memory);
	munmap(p, 8 * page);
	close(fd);
}

TEST_MAIN(TEST(pieces_are_sorted_and_empty_ones_left_out), TEST(gaps_up_to_the_limit_are_joined),
	  TEST(the_cost_decides_on_a_gap), TEST(sets_of_spans_hold_what_was_added),
	  TEST(mappings_are_found_in_both_ways))
