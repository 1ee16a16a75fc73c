/* Copies between flat memory and pieces of a caller's memory, which may be unmapped: a bad address
 * is reported as an error, as by a system call, and does not kill the process.
 *
 * Threads: any. Signals: pieces_guard() installs handlers for SIGSEGV and SIGBUS; faults outside of
 * a copy go to the handlers that were installed before. If the program installs its own handlers
 * later, those get the signal and no error is reported. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <ucontext.h>

#include "base/base.h"

/* Where a fault of this thread continues. Static TLS: a signal handler must not allocate. */
static _Thread_local sigjmp_buf *volatile guard __attribute__((tls_model("initial-exec")));
static struct sigaction before_segv, before_bus;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *b = sig == SIGSEGV ? &before_segv : &before_bus;

	if (guard && info->si_code > 0) { /* a real fault, not sent by a process */
		/* a wrapper that called this handler may have blocked signals */
		pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
		siglongjmp(*guard, 1);
	}
	if (b->sa_flags & SA_SIGINFO) {
		b->sa_sigaction(sig, info, context);
	} else if (b->sa_handler == SIG_DFL || b->sa_handler == SIG_IGN) {
		sigaction(sig, b, NULL);
		if (info->si_code <= 0) /* else it recurs and kills the process */
			raise(sig);
	} else {
		b->sa_handler(sig);
	}
}

/* A fault whose signal is blocked kills the process in spite of a handler; a thread that drives the
 * loop may have blocked all signals. */
static void unblock(void)
{
	static _Thread_local bool done __attribute__((tls_model("initial-exec")));
	sigset_t faults;

	if (done)
		return;
	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
	done = true;
}

static void install(void)
{
	struct sigaction a = { .sa_sigaction = on_fault,
			       .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };

	sigemptyset(&a.sa_mask);
	sigaction(SIGSEGV, &a, &before_segv);
	sigaction(SIGBUS, &a, &before_bus);
}

void pieces_guard(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

/* memcpy without a call for the most frequent small size */
static inline void copy(void *dst, const void *src, size_t n)
{
	if (n == 8)
		memcpy(dst, src, 8);
	else
		memcpy(dst, src, n);
}

static void pack(char *flat, const struct iovec *iov, size_t n)
{
	for (size_t i = 0; i < n; flat += iov[i++].iov_len)
		copy(flat, iov[i].iov_base, iov[i].iov_len);
}

static void unpack(char *flat, const struct iovec *iov, size_t n)
{
	for (size_t i = 0; i < n; flat += iov[i++].iov_len)
		copy(iov[i].iov_base, flat, iov[i].iov_len);
}

static void zero(char *flat, const struct iovec *iov, size_t n)
{
	(void)flat;
	for (size_t i = 0; i < n; i++)
		memset(iov[i].iov_base, 0, iov[i].iov_len);
}

static void touch(char *flat, const struct iovec *iov, size_t n)
{
	(void)flat;
	for (size_t i = 0; i < n; i++) {
		const volatile char *p = iov[i].iov_base;
		size_t len = iov[i].iov_len;

		for (size_t at = 0; at < len; at += LEAST_PAGE)
			(void)p[at];
		if (len)
			(void)p[len - 1];
	}
}

static int guarded(void (*move)(char *, const struct iovec *, size_t), void *flat,
		   const struct iovec *iov, size_t n)
{
	sigjmp_buf here;

	unblock();
	if (sigsetjmp(here, 0)) {
		guard = NULL;
		return -EFAULT;
	}
	guard = &here;
	atomic_signal_fence(memory_order_seq_cst);
	move(flat, iov, n);
	atomic_signal_fence(memory_order_seq_cst);
	guard = NULL;
	return 0;
}

int pieces_pack(void *flat, const struct iovec *iov, size_t n)
{
	return guarded(pack, flat, iov, n);
}

int pieces_unpack(const struct iovec *iov, size_t n, const void *flat)
{
	return guarded(unpack, (void *)(uintptr_t)flat, iov, n);
}

int pieces_zero(const struct iovec *iov, size_t n)
{
	return guarded(zero, NULL, iov, n);
}

int pieces_touch(const struct iovec *iov, size_t n)
{
	return guarded(touch, NULL, iov, n);
}
