/* The real environment: the kernel's clocks and random numbers; sockets, files and threads are in
 * sock_real.c, file_real.c and worker.c, RDMA in fabric_verbs.c.
 *
 * Threads: any, there is no state. Errors: clocks and getrandom cannot fail on supported
 * kernels. */
#include <assert.h>
#include <fcntl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/env_real.h"

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static uint64_t clock_now(struct env *e)
{
	(void)e;
	return read_clock(CLOCK_MONOTONIC);
}

static uint64_t clock_wall(struct env *e)
{
	(void)e;
	return read_clock(CLOCK_REALTIME);
}

static void clock_random(struct env *e, void *p, size_t n)
{
	uint8_t *b = p;

	(void)e;
	while (n) {
		ssize_t r = getrandom(b, n, 0);

		if (r < 0) {
			assert(errno == EINTR);
			continue;
		}
		b += r;
		n -= (size_t)r;
	}
}

static uint64_t clock_host_start(struct env *e)
{
	char text[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	(void)e;
	if (fd >= 0)
		close(fd);
	return n > 0 ? hash_bytes(text, (size_t)n, 1) : 0;
}

static const struct clock_ops clock_real_ops = {
	.now = clock_now,
	.wall = clock_wall,
	.random = clock_random,
	.host_start = clock_host_start,
};

struct env *env_real(void)
{
	static struct env real = {
		.clock = &clock_real_ops,
		.sock = &sock_real_ops,
		.file = &file_real_ops,
		.exec = &exec_real_ops,
		.fabric = &fabric_verbs_ops,
		.bank = &bank_memcached_ops,
	};

	return &real;
}
