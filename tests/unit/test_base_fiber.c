/* Fibers: switching, separate stacks, and reuse. */
#include <errno.h>

#include "base/base.h"

#include "test.h"

#define FIBERS 50
#define STEPS 200
#define STACK (64 * 1024)

static struct fiber home;

struct walker {
	struct fiber f;
	unsigned steps, sum;
};

static void walk(void *arg)
{
	struct walker *w = arg;
	volatile unsigned own[256]; /* must keep its values while other fibers run */

	for (;;) {
		for (unsigned i = 0; i < 256; i++)
			own[i] = w->steps * i;
		fiber_switch(&w->f, &home);
		for (unsigned i = 0; i < 256; i++)
			w->sum += own[i] == w->steps * i;
		w->steps++;
	}
}

static void they_take_turns(void)
{
	static struct walker w[FIBERS];

	fiber_of_thread(&home);
	for (unsigned i = 0; i < FIBERS; i++)
		CHECK_EQ(fiber_init(&w[i].f, STACK, walk, &w[i]), 0);
	for (unsigned k = 0; k <= STEPS; k++)
		for (unsigned i = 0; i < FIBERS; i++)
			fiber_switch(&home, &w[i].f);
	for (unsigned i = 0; i < FIBERS; i++) {
		CHECK_EQ(w[i].steps, STEPS);
		CHECK_EQ(w[i].sum, STEPS * 256);
		fiber_fini(&w[i].f);
		CHECK(!w[i].f.run);
		fiber_fini(&w[i].f); /* all fibers have ended */
	}
}

static void deep(unsigned n, char *out)
{
	volatile char room[1024];

	room[n % sizeof(room)] = (char)n;
	if (n)
		deep(n - 1, out);
	else
		*out = 1;
	*out = (char)(*out + room[n % sizeof(room)] - (char)n);
}

static void call_deep(void *arg)
{
	struct walker *w = arg;
	char done = 0;

	deep(100, &done);
	w->steps = (unsigned char)done;
	fiber_switch(&w->f, &home);
}

static void their_stacks_have_the_size_that_was_asked_for(void)
{
	static struct walker w;

	fiber_of_thread(&home);
	CHECK_EQ(fiber_init(&w.f, 256 * 1024, call_deep, &w), 0);
	fiber_switch(&home, &w.f);
	CHECK_EQ(w.steps, 1);
	fiber_fini(&w.f);
}

static void one_that_cannot_be_made_says_so(void)
{
	struct fiber f;

	CHECK_EQ(fiber_init(&f, (size_t)1 << 60, walk, NULL), -ENOMEM);
	fiber_fini(&f);
}

TEST_MAIN(TEST(they_take_turns), TEST(their_stacks_have_the_size_that_was_asked_for),
	  TEST(one_that_cannot_be_made_says_so))
