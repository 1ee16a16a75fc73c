/* Registration where the host limits it: little or no memlock, no userfaultfd; and in processes
 * that fork and execute. Each case is a process of its own, because it gives up rights. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reg_fixture.h"
#include "test.h"

#define RING_PAGES 4 /* that the kernel may count for the ring */

static size_t page;

/* Runs the case in a forked child. */
static void in_child(void (*run)(void))
{
	pid_t pid;
	int status;

	page = (size_t)sysconf(_SC_PAGESIZE);
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		alarm(120);
		run();
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static void start(struct pinned *x)
{
	if (!pinned_start(x, 0, 0)) {
		puts("  there is no io_uring");
		fflush(stdout);
		_exit(0);
	}
}

static struct reg_counts counts(struct pinned *x)
{
	struct reg_counts c;

	reg_get_counts(x->reg, &c);
	return c;
}

static void set_memlock(uint64_t bytes)
{
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ bytes, bytes }), 0);
}

/* The kernel counts per user: as root, this becomes a user that no other test is. */
static void limit_memlock(uint64_t bytes)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	if (!getuid())
		CHECK_EQ(setuid(100000 + (uid_t)getpid()), 0);
	CHECK_EQ(syscall(SYS_capget, &head, caps), 0);
	caps[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	CHECK_EQ(syscall(SYS_capset, &head, caps), 0);
	set_memlock(bytes);
}

static void run_memlock_0(void)
{
	struct pinned x;
	char *p = pages_map(1);

	limit_memlock(64 * KIB); /* newer kernels count the ring itself */
	start(&x);
	reg_close(x.reg);
	set_memlock(0);
	CHECK_EQ(reg_open(&x.reg, &reg_iouring_ops, x.device, 0, 0), 0);
	CHECK_EQ(counts(&x).limit_bytes, 0);
	CHECK_EQ(pinned_check(&x, p, page), -ENOBUFS);
	reg_close(x.reg);
	CHECK_EQ(reg_open(&x.reg, &reg_iouring_ops, x.device, MIB, 0), 0); /* too much */
	CHECK_EQ(pinned_check(&x, p, page), -ENOBUFS);
	CHECK_EQ(counts(&x).pinned_bytes, 0);
	pinned_end(&x);
}

static void without_memlock_every_request_fails(void)
{
	in_child(run_memlock_0);
}

static void run_memlock_64k(void)
{
	size_t n = 64 * KIB / page;
	struct pinned x;
	char *p = pages_map(10 * n);

	limit_memlock(64 * KIB);
	start(&x);
	CHECK_EQ(counts(&x).limit_bytes, 64 * KIB);
	for (size_t i = 0; i < 10 * n; i++)
		CHECK_EQ(pinned_check(&x, p + i * page, page), 0);
	CHECK_EQ(pinned_check(&x, p, (n - RING_PAGES) * page), 0);
	CHECK_EQ(pinned_check(&x, p, (n + 1) * page), -ENOBUFS);
	CHECK(counts(&x).pinned_bytes <= 64 * KIB);
	pinned_end(&x);
}

static void little_memlock_is_used_in_turn(void)
{
	in_child(run_memlock_64k);
}

/* Another ring of the same user has what reg believes to be free. */
static void run_exhausted(void)
{
	struct reg_memory m[64];
	int n = 0;
	struct pinned x;
	char *p = pages_map(32);

	limit_memlock((32 + RING_PAGES) * page);
	start(&x);
	CHECK_EQ(pinned_check(&x, p, 16 * page), 0);
	reg_flush(x.reg);
	while (n < 64 && !reg_iouring_ops.make(x.device, p, page, true, &m[n])) /* past reg */
		n++;
	CHECK(n >= 32 && n < 64);
	CHECK_EQ(pinned_check(&x, p, page), -ENOBUFS);
	CHECK(counts(&x).failed > 0 && counts(&x).pinned_bytes == 0);
	for (int i = 0; i < 16; i++)
		reg_iouring_ops.drop(x.device, &m[i]);
	for (size_t i = 0; i < 32; i++) /* 16 pages are left: the cache gives way */
		CHECK_EQ(pinned_check(&x, p + i * page, page), 0);
	pinned_end(&x);
}

static void exhausted_memlock_is_an_error_that_passes(void)
{
	in_child(run_exhausted);
}

/* From now on this system call fails; a second argument of another value than arg is allowed. */
static void refuse(uint32_t call, uint32_t arg, int error)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arg, 0, call == __NR_ioctl),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_LEN(f), f };

	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
}

static void check_uncached(const char *why)
{
	struct pinned x;
	char *p = pages_map(4);

	start(&x);
	CHECK(!counts(&x).is_caching);
	CHECK_STR(counts(&x).why_not, why);
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(pinned_check(&x, p, 4 * page), 0);
		CHECK_EQ(counts(&x).pinned_bytes, 0);
		CHECK(mmap(p, 2 * page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	}
	CHECK_EQ(counts(&x).registrations, 10);
	pinned_end(&x);
}

static void run_no_userfaultfd(void)
{
	refuse(__NR_userfaultfd, 0, ENOSYS);
	check_uncached("the kernel has no userfaultfd");
}

static void run_not_permitted(void)
{
	refuse(__NR_userfaultfd, 0, EPERM);
	check_uncached("userfaultfd is not permitted");
}

static void run_no_write_protect(void)
{
	refuse(__NR_ioctl, (uint32_t)UFFDIO_REGISTER, EINVAL); /* as 6.1 on arm64 does */
	check_uncached("userfaultfd has no write-protect mode");
}

static void run_no_events(void)
{
	refuse(__NR_ioctl, (uint32_t)UFFDIO_API, EINVAL);
	check_uncached("userfaultfd does not report unmapped memory");
}

static void without_reports_of_the_kernel_nothing_is_cached(void)
{
	in_child(run_no_userfaultfd);
	in_child(run_not_permitted);
	in_child(run_no_write_protect);
	in_child(run_no_events);
}

static void run_unprivileged(void)
{
	struct pinned x;
	char *p = pages_map(4);

	CHECK_EQ(setuid(65534), 0);
	start(&x);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pinned_check(&x, p, 4 * page), 0);
	CHECK(!counts(&x).is_caching || counts(&x).registrations == 1);
	pinned_end(&x);
}

static void an_unprivileged_user_has_a_cache(void)
{
	in_child(run_unprivileged);
}

/* ---- fork and exec ---- */

static void child_of_fork(struct pinned *x, char *p, struct reg_use *held)
{
	struct pinned own;

	CHECK_EQ(pinned_check(x, p, 2 * page), -ENOBUFS);
	reg_release(x->reg, held);
	memset(p, 1, 8 * page); /* the parent's pages stay as they are */
	CHECK_EQ(madvise(p, page, MADV_DONTNEED), 0); /* nobody waits for an event */
	CHECK_EQ(munmap(p + 4 * page, 4 * page), 0);
	reg_close(x->reg);
	CHECK(pinned_start(&own, 0, 0)); /* a cache of its own */
	CHECK_EQ(pinned_check(&own, p, 2 * page), 0);
	CHECK_EQ(pinned_check(&own, p, 2 * page), 0);
	CHECK(!counts(&own).is_caching || counts(&own).registrations == 1);
	pinned_end(&own);
	_exit(0);
}

static void run_fork(void)
{
	char *p = pages_map(8), *copy = malloc(8 * page);
	struct iovec piece = { p, 8 * page };
	struct reg_use held;
	struct pinned x;
	uint64_t before;
	int status;
	pid_t pid;

	start(&x);
	CHECK_EQ(reg_acquire(x.reg, &piece, 1, true, &held), 0);
	memcpy(copy, p, 8 * page);
	before = counts(&x).registrations;
	pid = fork();
	if (!pid)
		child_of_fork(&x, p, &held);
	memset(p, 2, page); /* while the child may share the page */
	memset(copy, 2, page);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(memcmp(p, copy, 8 * page) == 0);
	pinned_check_out(&x, &held, 0, &piece);
	CHECK_EQ(pinned_check(&x, p, 8 * page), 0);
	CHECK(!counts(&x).is_caching || counts(&x).registrations == before);
	reg_release(x.reg, &held);
	munmap(p, 8 * page);
	free(copy);
	pinned_end(&x);
}

/* ThreadSanitizer cannot start threads in a child of fork(). */
static void a_forked_child_does_not_use_the_cache(void)
{
#ifndef __SANITIZE_THREAD__
	in_child(run_fork);
#else
	(void)run_fork;
#endif
}

/* The new program sees no descriptor of ours: neither ring nor userfaultfd. */
static void run_exec(void)
{
	char *argv[] = { "sh", "-c", "! ls -l /proc/self/fd | grep -q 'userfaultfd\\|io_uring'",
			 NULL };
	struct pinned x;
	char *p = pages_map(8);

	start(&x);
	CHECK_EQ(pinned_check(&x, p, 8 * page), 0);
	execv("/bin/sh", argv);
	CHECK(!"exec");
}

static void an_executed_program_inherits_nothing(void)
{
	in_child(run_exec);
}

TEST_MAIN(TEST(without_memlock_every_request_fails), TEST(little_memlock_is_used_in_turn),
	  TEST(exhausted_memlock_is_an_error_that_passes),
	  TEST(without_reports_of_the_kernel_nothing_is_cached),
	  TEST(an_unprivileged_user_has_a_cache), TEST(a_forked_child_does_not_use_the_cache),
	  TEST(an_executed_program_inherits_nothing))
