/* Fibers: started with ucontext, switched with sigsetjmp and siglongjmp. Needs no assembly, and a
 * switch makes no system call, unlike swapcontext().
 *
 * Buffers: a stack is mapped, its pages are allocated on first use. An unmapped guard lies below
 * it, so a stack overflow kills the process and corrupts nothing. Threads: one at a time. */
#undef _FORTIFY_SOURCE /* its longjmp() knows only one stack */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

#define GUARD ((size_t)(64 * KIB)) /* whole pages, and more than any stack frame */

/* ---- the sanitizers track stacks: these functions report fibers and switches to them ---- */

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>

static __thread struct fiber *previous; /* switched from */
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

static void before_switch(struct fiber *from, struct fiber *to)
{
	(void)from;
	(void)to;
#if defined(__SANITIZE_ADDRESS__)
	previous = from;
	__sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->size);
#elif defined(__SANITIZE_THREAD__)
	__tsan_switch_to_fiber(to->sanitizer, 0);
#endif
}

static void after_switch(struct fiber *here)
{
	(void)here;
#if defined(__SANITIZE_ADDRESS__)
	const void *stack;
	size_t size;

	__sanitizer_finish_switch_fiber(here->sanitizer, &stack, &size);
	if (!previous->stack) { /* a thread's own stack: known only now */
		previous->stack = (void *)(uintptr_t)stack;
		previous->size = size;
	}
#endif
}

static void after_init(struct fiber *f)
{
	(void)f;
#if defined(__SANITIZE_THREAD__)
	f->sanitizer = f->run ? __tsan_create_fiber(0) : __tsan_get_current_fiber();
#endif
}

static void before_fini(struct fiber *f)
{
	(void)f;
#if defined(__SANITIZE_THREAD__)
	__tsan_destroy_fiber(f->sanitizer);
#endif
}

/* ---- fibers ---- */

#ifdef __SANITIZE_THREAD__ /* it reports jumps to another stack */
static void jump(struct fiber *from, struct fiber *to)
{
	swapcontext(&from->context, &to->context);
}
#else
static void jump(struct fiber *from, struct fiber *to)
{
	if (sigsetjmp(from->here, 0))
		return;
	if (to->begun)
		siglongjmp(to->here, 1);
	to->begun = true;
	setcontext(&to->context);
}
#endif

/* makecontext() passes ints: a pointer takes two. */
static void begin(unsigned high, unsigned low)
{
	struct fiber *f = (struct fiber *)(uintptr_t)((uint64_t)high << 32 | low);

	after_switch(f);
	f->run(f->arg);
	abort(); /* no return address */
}

void fiber_of_thread(struct fiber *f)
{
	memset(f, 0, sizeof(*f));
	f->begun = true;
	after_init(f);
}

int fiber_init(struct fiber *f, size_t stack, void (*run)(void *arg), void *arg)
{
	uint64_t self = (uint64_t)(uintptr_t)f;
	char *p = mmap(NULL, GUARD + stack, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	memset(f, 0, sizeof(*f));
	if (p == MAP_FAILED)
		return -ENOMEM;
	if (mprotect(p, GUARD, PROT_NONE) || getcontext(&f->context)) {
		munmap(p, GUARD + stack);
		return -ENOMEM;
	}
	f->stack = p + GUARD;
	f->size = stack;
	f->run = run;
	f->arg = arg;
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = stack;
	makecontext(&f->context, (void (*)(void))begin, 2, (unsigned)(self >> 32), (unsigned)self);
	after_init(f);
	return 0;
}

void fiber_fini(struct fiber *f)
{
	if (!f->run)
		return;
	before_fini(f);
	munmap((char *)f->stack - GUARD, GUARD + f->size);
	memset(f, 0, sizeof(*f));
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
	before_switch(from, to);
	jump(from, to);
	after_switch(from);
}
