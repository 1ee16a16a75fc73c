/* Arenas. */
#include "base/base.h"

#include "test.h"

static void memory_is_zeroed_aligned_and_apart(void)
{
	struct arena a;
	uint8_t *p[500];

	arena_init(&a, 0);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_LEN(p); i++) {
			p[i] = arena_alloc(&a, i);
			CHECK(p[i] && (uintptr_t)p[i] % 16 == 0);
			for (size_t k = 0; k < i; k++)
				CHECK_EQ(p[i][k], 0);
			memset(p[i], (int)i | 1, i);
		}
		for (size_t i = 0; i < ARRAY_LEN(p); i++)
			for (size_t k = 0; k < i; k++)
				CHECK_EQ(p[i][k], (i | 1) & 0xff);
		arena_reset(&a);
	}
	arena_destroy(&a);
}

static void the_limit_holds(void)
{
	struct arena a;
	size_t got = 0;

	arena_init(&a, 10000);
	CHECK(!arena_alloc(&a, 10001));
	CHECK_EQ(a.held, 0);
	while (arena_alloc(&a, 160))
		got += 160;
	CHECK(got > 9000 && got <= 10000);
	CHECK(a.held <= 10000);
	arena_reset(&a);
	CHECK(a.held > 0 && a.held <= 4096);
	CHECK(arena_alloc(&a, 5000));
	arena_destroy(&a);
	CHECK_EQ(a.held, 0);
	CHECK(arena_alloc(&a, 10000)); /* exactly the limit; a destroyed arena is usable again */
	CHECK(!arena_alloc(&a, 1));
	arena_destroy(&a);
}

static void absurd_sizes_are_refused(void)
{
	struct arena a;

	arena_init(&a, 0);
	CHECK(!arena_alloc(&a, SIZE_MAX));
	CHECK(!arena_alloc(&a, SIZE_MAX - 15));
	CHECK(!arena_alloc(&a, SIZE_MAX / 2));
	arena_destroy(&a);
}

static void a_reset_keeps_only_a_small_block(void)
{
	struct arena a;

	arena_init(&a, 0);
	CHECK(arena_alloc(&a, MIB));
	arena_reset(&a);
	CHECK_EQ(a.held, 0);
	CHECK(arena_alloc(&a, 10));
	CHECK(arena_alloc(&a, MIB));
	arena_reset(&a);
	CHECK(a.held > 0 && a.held <= 4096);
	arena_destroy(&a);
}

static void strings_are_copied_and_terminated(void)
{
	struct arena a;

	arena_init(&a, 0);
	CHECK_STR(arena_strndup(&a, "hello", 3), "hel");
	CHECK_STR(arena_strndup(&a, "hello", 99), "hello");
	CHECK_STR(arena_strndup(&a, "", 0), "");
	arena_destroy(&a);
}

TEST_MAIN(TEST(memory_is_zeroed_aligned_and_apart), TEST(the_limit_holds),
	  TEST(absurd_sizes_are_refused), TEST(a_reset_keeps_only_a_small_block),
	  TEST(strings_are_copied_and_terminated))
