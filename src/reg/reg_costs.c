/* What registration costs on a device: measured once when it is opened, on small touched pages.
 *
 * Threads: that of reg_open(). Buffers: 256 pages, or fewer where memlock is small. Errors: where
 * nothing can be registered, the costs permit no gaps. */
#include <sys/mman.h>

#include "reg/reg_impl.h"

#define MOST_PAGES 256
#define ROUNDS 9

static double least_ns(const struct reg_ops *ops, void *device, void *p, size_t len)
{
	struct reg_memory m;
	double least = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = time_now();
		double ns;

		if (ops->make(device, p, len, true, &m))
			return 0;
		ops->drop(device, &m);
		ns = (double)(time_now() - start);
		if (!i || ns < least)
			least = ns;
	}
	return least;
}

static bool count_mapping(void *arg, const struct mapping *m)
{
	(void)m;
	++*(int *)arg;
	return true;
}

static double query_ns(int maps_fd, void *p, size_t len)
{
	struct span s = { (uintptr_t)p, (uintptr_t)p + len };
	double least = 0;
	int n = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = time_now();
		double ns;

		if (maps_walk(maps_fd, s, count_mapping, &n))
			return 0;
		ns = (double)(time_now() - start);
		if (!i || ns < least)
			least = ns;
	}
	return least;
}

void costs_measure(struct reg_costs *c, const struct reg_ops *ops, void *device, int maps_fd)
{
	size_t page = page_size(), len = MOST_PAGES * page;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double one, many = 0;
	size_t n = MOST_PAGES;

	*c = (struct reg_costs){ .page_ns = 0 };
	if (p == MAP_FAILED)
		return;
	madvise(p, len, MADV_NOHUGEPAGE);
	memset(p, 1, len);
	c->query_ns = query_ns(maps_fd, p, len);
	one = least_ns(ops, device, p, page);
	for (; one > 0 && n >= 8 && !many; n /= 4)
		many = least_ns(ops, device, p, n * page);
	n *= 4; /* the number that `many` is of */
	if (many > one) {
		c->page_ns = (many - one) / (double)(n - 1);
		c->call_ns = MAX(one - c->page_ns, 0);
	}
	munmap(p, len);
}

uint64_t costs_max_gap(const struct reg_costs *c)
{
	if (c->page_ns <= 0)
		return 0;
	return (uint64_t)MIN(c->call_ns / c->page_ns, 1e6) * page_size();
}
