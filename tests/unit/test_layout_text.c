/* Patterns as text. */
#include "layout/layout.h"
#include "test.h"

static char text[1 << 16];

/* Checks the text of `count` copies. */
static void says(const struct type *t, uint64_t count, const char *want)
{
	struct pattern p;
	int n;

	CHECK_EQ(pattern_init(&p, t, 4096, count), 0);
	n = pattern_text(&p, text, sizeof(text) - 1);
	CHECK(n > 0);
	text[n] = 0;
	CHECK_STR(text, want);
	/* a buffer that is too small is refused, and nothing is written behind it */
	for (int i = 0; i <= n; i += 7)
		CHECK_EQ(pattern_text(&p, text, (size_t)i), -E2BIG);
	CHECK_EQ(pattern_text(&p, text, (size_t)n + 1), n);
}

static void a_pattern_is_its_nodes_from_the_outermost_on(void)
{
	struct type *b, *v, *s;
	const uint64_t blocks[] = { 1, 1, 2 };
	const int64_t displ[] = { 0, 100, -50 };

	CHECK_EQ(type_bytes(8, &b), 0);
	says(b, 1, "{\"bytes\":8}");
	says(b, 3, "{\"bytes\":24}");
	CHECK_EQ(type_vector(3, 1, 16, b, &v), 0);
	says(v, 1, "{\"vector\":{\"count\":3,\"stride\":16,\"of\":{\"bytes\":8}}}");
	says(v, 2,
	     "{\"vector\":{\"count\":2,\"stride\":40,\"of\":{\"vector\":{\"count\":3,\"stride\":16,"
	     "\"of\":{\"bytes\":8}}}}}");
	CHECK_EQ(type_indexed(3, blocks, displ, b, &s), 0);
	says(s, 1, "{\"struct\":[[0,{\"bytes\":8}],[100,{\"bytes\":8}],[-50,{\"bytes\":16}]]}");
	type_free(b);
	type_free(v);
	type_free(s);
}

/* Each list contains the previous one twice: the text would double 30 times. */
static void a_text_that_would_be_too_long_ends_soon(void)
{
	struct type *t, *next;
	struct pattern p;
	int64_t far = 3;

	CHECK_EQ(type_bytes(1, &t), 0);
	for (int i = 0; i < 30; i++, far *= 4) {
		const int64_t displ[] = { 0, far, 3 * far + 1 };
		const uint64_t ones[] = { 1, 1, 1 };

		CHECK_EQ(type_indexed(3, ones, displ, t, &next), 0);
		type_free(t);
		t = next;
	}
	CHECK_EQ(pattern_init(&p, t, 0, 1), 0);
	CHECK_EQ(pattern_text(&p, text, sizeof(text)), -E2BIG);
	type_free(t);
}

TEST_MAIN(TEST(a_pattern_is_its_nodes_from_the_outermost_on),
	  TEST(a_text_that_would_be_too_long_ends_soon))
