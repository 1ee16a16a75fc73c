/* Opens userfaultfd(2) for write protection. Threads: any. Errors: -1. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

static int open_uffd(bool *is_user_only)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), dev;

	*is_user_only = false;
	if (fd >= 0)
		return fd;
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev >= 0) {
		fd = ioctl(dev, _IO(0xAA, 0), O_CLOEXEC | O_NONBLOCK); /* USERFAULTFD_IOC_NEW */
		close(dev);
	}
	if (fd >= 0)
		return fd;
	*is_user_only = true;
	return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1); /* UFFD_USER_MODE_ONLY */
}

/* A descriptor is asked once for features, so the caller may need two. */
int ckpt_uffd_open(bool unpopulated, bool *is_user_only)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP |
					      (unpopulated ? UFFD_FEATURE_WP_UNPOPULATED : 0) };
	int fd = open_uffd(is_user_only);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		fd = -1;
	}
	return fd;
}
