/* The plan of a copy between two files, compared with a model that works byte by byte. */
#include "layout/layout.h"

#include "test.h"

#define LEN 3000
#define PIECES 16

static uint64_t rng = 99;

static uint64_t below(uint64_t n)
{
	return test_random(&rng) % n;
}

/* For each byte of the copy, the source byte that was copied to it. */
static uint8_t seen[LEN];

static void check_piece(const struct copy *k, uint32_t index, uint32_t source,
			const struct copy_piece *p)
{
	for (uint64_t i = 0; i < p->length; i++) {
		uint64_t to = layout_file_offset(&k->out, index, p->to + i);
		uint64_t from = layout_file_offset(&k->in, source, p->from + i);

		CHECK(to >= k->to && to < k->to + k->length);
		CHECK_EQ(to - k->to, from - k->from);
		CHECK_EQ(seen[to - k->to]++, 0);
	}
}

static void check_copy(const struct copy *k, uint64_t max_bytes)
{
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < k->out.width; i++) {
		struct copy_cursor c = { 0 };
		struct copy_piece p[PIECES];
		size_t n, max = below(PIECES) + 1;

		while ((n = copy_plan(k, i, &c, p, max, max_bytes))) {
			uint64_t sum = 0;

			CHECK(n <= max);
			for (size_t j = 0; j < n; j++) {
				check_piece(k, i, c.source, &p[j]);
				sum += p[j].length;
			}
			CHECK(sum && sum <= max_bytes);
		}
		CHECK_EQ(copy_plan(k, i, &c, p, max, max_bytes), 0);
	}
	for (uint64_t i = 0; i < k->length; i++)
		CHECK_EQ(seen[i], 1);
}

static struct layout some_layout(void)
{
	struct layout l = { (uint32_t)below(4) * 32 + 32, (uint32_t)below(5) + 1, 0 };

	l.start = (uint32_t)below(l.width);
	return l;
}

static void every_byte_is_copied_once_and_to_its_place(void)
{
	for (int i = 0; i < 3000; i++) {
		struct copy k = { .from = below(700), .to = below(700), .length = below(LEN + 1) };

		k.in = some_layout();
		k.out = below(3) ? some_layout() : k.in;
		check_copy(&k, below(2) ? UINT64_MAX : below(500) + 1);
	}
}

static void stripes_that_match_are_one_piece_an_object(void)
{
	struct copy k = { { 64, 4, 1 }, { 64, 4, 3 }, 0, 0, 64 * 4 * 100 };

	for (uint32_t i = 0; i < 4; i++) {
		struct copy_cursor c = { 0 };
		struct copy_piece p[PIECES];

		CHECK_EQ(copy_plan(&k, i, &c, p, PIECES, UINT64_MAX), 1);
		CHECK_EQ(p[0].length, 6400);
		CHECK_EQ(c.source, (i + 2) % 4);
		CHECK_EQ(copy_plan(&k, i, &c, p, PIECES, UINT64_MAX), 0);
	}
}

static void offsets_near_the_end_of_all_offsets_work(void)
{
	struct copy k = { { 4096, 3, 0 }, { 8192, 2, 1 }, INT64_MAX - 2000, INT64_MAX - 1000, 1000 };

	check_copy(&k, UINT64_MAX);
}

TEST_MAIN(TEST(every_byte_is_copied_once_and_to_its_place),
	  TEST(stripes_that_match_are_one_piece_an_object),
	  TEST(offsets_near_the_end_of_all_offsets_work))
