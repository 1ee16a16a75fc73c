/* Fibers: ucontext makes their stacks, sigsetjmp and siglongjmp switch between them. No assembly, the same on every processor,
 * and no system call in a switch, as swapcontext() has one.
 *
 * Buffers: a stack is mapped, its pages come when they are touched; what is below it is not mapped, so that too deep a call
 * ends the process and harms nothing else. Threads: one at a time. */
#undef _FORTIFY_SOURCE /* its longjmp() knows of one stack only */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/base.h"

#define GUARD \
	((size_t)64 * \
	 KIB) /* more than any function steps over at once; of whole pages everywhere */

/* ---- the sanitizers follow stacks; they have to be told ---- */

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>

static __thread struct fiber *left; /* that was switched from */

static void leaving(struct fiber *from, struct fiber *to)
{
	left = from;
	__sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->size);
}

static void arrived(struct fiber *here)
{
	const void *stack;
	size_t size;

	__sanitizer_finish_switch_fiber(here->sanitizer, &stack, &size);
	if (!left->stack) { /* a thread's own: now it is known */
		left->stack = (void *)(uintptr_t)stack;
		left->size = size;
	}
}

static void made(struct fiber *f)
{
	(void)f;
}

static void unmade(struct fiber *f)
{
	(void)f;
}
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

static void leaving(struct fiber *from, struct fiber *to)
{
	(void)from;
	__tsan_switch_to_fiber(to->sanitizer, 0);
}

static void arrived(struct fiber *here)
{
	(void)here;
}

static void made(struct fiber *f)
{
	f->sanitizer = f->run ? __tsan_create_fiber(0) : __tsan_get_current_fiber();
}

static void unmade(struct fiber *f)
{
	__tsan_destroy_fiber(f->sanitizer);
}
#else
static void leaving(struct fiber *from, struct fiber *to)
{
	(void)from;
	(void)to;
}

static void arrived(struct fiber *here)
{
	(void)here;
}

static void made(struct fiber *f)
{
	(void)f;
}

static void unmade(struct fiber *f)
{
	(void)f;
}
#endif

/* ---- fibers ---- */

/* makecontext() passes ints: pointers are two of them. Stops when it has a place to go on from. */
static void begin(unsigned high, unsigned low, unsigned maker_high, unsigned maker_low)
{
	struct fiber *f = (struct fiber *)(uintptr_t)((uint64_t)high << 32 | low);
	ucontext_t *maker = (ucontext_t *)(uintptr_t)((uint64_t)maker_high << 32 | maker_low);

	if (!sigsetjmp(f->here, 0))
		setcontext(maker);
	arrived(f);
	f->run(f->arg);
	abort(); /* there is nothing to return to */
}

/* Runs it as far as begin() goes by itself. */
static int prepare(struct fiber *f)
{
	uint64_t self = (uint64_t)(uintptr_t)f;
	ucontext_t first, maker;
	uint64_t back = (uint64_t)(uintptr_t)&maker;

	if (getcontext(&first))
		return -ENOMEM;
	first.uc_stack.ss_sp = f->stack;
	first.uc_stack.ss_size = f->size;
	makecontext(&first, (void (*)(void))begin, 4, (unsigned)(self >> 32), (unsigned)self,
		    (unsigned)(back >> 32), (unsigned)back);
	return swapcontext(&maker, &first) ? -ENOMEM : 0;
}

void fiber_of_thread(struct fiber *f)
{
	memset(f, 0, sizeof(*f));
	made(f);
}

int fiber_init(struct fiber *f, size_t stack, void (*run)(void *arg), void *arg)
{
	char *p = mmap(NULL, GUARD + stack, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	memset(f, 0, sizeof(*f));
	if (p == MAP_FAILED)
		return -ENOMEM;
	f->stack = p + GUARD;
	f->size = stack;
	f->arg = arg;
	if (mprotect(p, GUARD, PROT_NONE) || prepare(f)) {
		munmap(p, GUARD + stack);
		return -ENOMEM;
	}
	f->run = run;
	made(f);
	return 0;
}

void fiber_fini(struct fiber *f)
{
	if (!f->run)
		return;
	unmade(f);
	munmap((char *)f->stack - GUARD, GUARD + f->size);
	memset(f, 0, sizeof(*f));
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
	leaving(from, to);
	if (!sigsetjmp(from->here, 0))
		siglongjmp(to->here, 1);
	arrived(from);
}
