/* A library to preload into a process. It shifts the process's wall clock by the number of
 * nanoseconds that the file $CLOCK_SHIFT_FILE holds as an int64_t. The process maps the file, so a
 * test that maps it too can move the clock at any time. sys_times.c and mount_times.sh build and
 * use this library.
 *
 * Threads: any. Errors: without the variable, or when the file cannot be mapped, the clock is not
 * shifted. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000

static _Atomic int64_t right, *shift = &right;

static __attribute__((constructor)) void clock_shift_init(void)
{
	const char *path = getenv("CLOCK_SHIFT_FILE");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p;

	if (fd < 0)
		return;
	p = mmap(NULL, sizeof(*shift), PROT_READ, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED)
		shift = p;
	close(fd);
}

int clock_gettime(clockid_t which, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, which, ts);
	int64_t ns = which == CLOCK_REALTIME ? atomic_load(shift) : 0;

	if (r || !ns)
		return r;
	ns += (int64_t)ts->tv_sec * SECOND + ts->tv_nsec;
	ts->tv_sec = ns / SECOND;
	ts->tv_nsec = ns % SECOND;
	return 0;
}
