/* Accesses to unmapped memory, and the signal state after a fault. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "base/base.h"
#include "test.h"

static char *nothing; /* pages without access rights */

static void begin(void)
{
	nothing = mmap(NULL, 4 * LEAST_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(nothing != MAP_FAILED);
	pieces_guard();
}

/* Each access function returns an error, and no additional signal stays blocked. */
static void faults_are_errors(void)
{
	char flat[64] = { 0 };
	struct iovec bad = { nothing + 8, sizeof(flat) };
	sigset_t mask;

	CHECK_EQ(pieces_pack(flat, &bad, 1), -EFAULT);
	CHECK_EQ(pieces_unpack(&bad, 1, flat), -EFAULT);
	CHECK_EQ(pieces_touch(&bad, 1), -EFAULT);
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
	CHECK(!sigismember(&mask, SIGTERM) && !sigismember(&mask, SIGSEGV));
}

static void a_bad_address_is_an_error(void)
{
	begin();
	faults_are_errors();
}

static struct sigaction ours;
static volatile sig_atomic_t passed_on;

static void in_front(int sig, siginfo_t *info, void *context)
{
	passed_on++;
	ours.sa_sigaction(sig, info, context);
}

/* Some signal handlers block all signals while they run and expect to return. */
static void a_handler_in_front_may_pass_faults_on(void)
{
	struct sigaction a = { .sa_sigaction = in_front, .sa_flags = SA_SIGINFO };

	begin();
	sigfillset(&a.sa_mask);
	CHECK_EQ(sigaction(SIGSEGV, &a, &ours), 0);
	faults_are_errors();
	CHECK_EQ(passed_on, 3);
}

TEST_MAIN(TEST(a_bad_address_is_an_error), TEST(a_handler_in_front_may_pass_faults_on))
