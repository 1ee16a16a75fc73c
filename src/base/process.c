/* What a process asks the kernel: monotonic time, the limit of descriptors, whole files, the type
 * of a file system. */
#include "base/base.h"

#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

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

ssize_t read_to_end(int fd, void *buf, size_t n)
{
	size_t got = 0;
	ssize_t rc = 1;

	while (got < n && rc) {
		rc = read(fd, (char *)buf + got, n - got);
		if (rc < 0 && errno != EINTR)
			return -errno;
		got += (size_t)MAX(rc, 0);
	}
	return (ssize_t)got;
}

bool is_on_tmpfs(int fd, const char *path)
{
	struct statfs s;

	if (path ? statfs(path, &s) : fstatfs(fd, &s))
		return false;
	return s.f_type == TMPFS_MAGIC || s.f_type == (__typeof__(s.f_type))RAMFS_MAGIC;
}
