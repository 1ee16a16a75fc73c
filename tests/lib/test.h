/* A minimal test framework. A test is a function named after the behaviour that it checks.
 *
 *     static void lists_keep_their_order(void) { CHECK_EQ(1 + 1, 2); }
 *     TEST_MAIN(TEST(lists_keep_their_order), TEST(...))
 *
 * A failed check prints its location and ends the program, because later results would not be
 * reliable. */
#ifndef SHEAF_TEST_H
#define SHEAF_TEST_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(cond) test_check(!!(cond), #cond, __FILE__, __LINE__)
/* Compares integers of any type as 64-bit values. */
#define CHECK_EQ(a, b) test_check_eq((intmax_t)(a), (intmax_t)(b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_STR(a, b) test_check_str(a, b, #a " == " #b, __FILE__, __LINE__)
/* clang-format off */
#define TEST(fn) { #fn, fn }
/* clang-format on */
/* Ends a program that cannot run on this host. It must not print anything afterwards. */
#define SKIP_ALL(reason) \
	do { \
		puts(reason); \
		exit(77); \
	} while (0)

struct test {
	const char *name;
	void (*fn)(void);
};

/* The functions behind the macros: print and exit if the check fails. */
void test_check(int ok, const char *what, const char *file, int line);

void test_check_eq(intmax_t a, intmax_t b, const char *what, const char *file, int line);

void test_check_str(const char *a, const char *b, const char *what, const char *file, int line);

/* Runs the tests whose names contain argv[1], or all. */
int test_run(const struct test *tests, size_t n, int argc, char **argv);

/* With an argument, the program runs only the tests whose names contain it. */
#define TEST_MAIN(...) \
	int main(int argc, char **argv) \
	{ \
		static const struct test tests[] = { __VA_ARGS__ }; \
		return test_run(tests, sizeof(tests) / sizeof(tests[0]), argc, argv); \
	}

/* Returns random numbers that are the same in every run. */
uint64_t test_random(uint64_t *state);

#endif
