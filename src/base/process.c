/* What a process asks the kernel about itself: monotonic time and the limit of descriptors. */
#include "base/base.h"

#include <sys/resource.h>
#include <time.h>

uint64_t time_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

uint64_t file_limit(void)
{
	struct rlimit l;

	return getrlimit(RLIMIT_NOFILE, &l) == 0 ? l.rlim_cur : UINT64_MAX;
}

void raise_file_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}
