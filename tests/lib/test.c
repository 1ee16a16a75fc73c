#include "test.h"

/* clang-format on */

void test_check(int ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	fflush(stdout); /* output printed before */
	fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
	exit(1);
}

void test_check_eq(intmax_t a, intmax_t b, const char *what, const char *file, int line)
{
	if (a == b)
		return;
	fflush(stdout); /* output printed before */
	fprintf(stderr, "%s:%d: not true: %s (%jd and %jd)\n", file, line, what, a, b);
	exit(1);
}

void test_check_str(const char *a, const char *b, const char *what, const char *file, int line)
{
	if (strcmp(a, b) == 0)
		return;
	fflush(stdout); /* output printed before */
	fprintf(stderr, "%s:%d: not true: %s\n    \"%s\"\n    \"%s\"\n", file, line, what, a, b);
	exit(1);
}

int test_run(const struct test *tests, size_t n, int argc, char **argv)
{
	for (size_t i = 0; i < n; i++) {
		if (argc > 1 && !strstr(tests[i].name, argv[1]))
			continue;
		printf("%s\n", tests[i].name);
		fflush(stdout);
		tests[i].fn();
	}
	return 0;
}

uint64_t test_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}
