#include "reg_fixture.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

static int fake_make(void *device, void *addr, size_t len, bool writable, struct reg_memory *out)
{
	struct fake_device *d = device;
	unsigned char *vec = malloc(len / LEAST_PAGE + 1);
	int mapped;

	(void)writable;
	CHECK(vec);
	mapped = mincore(addr, len, vec) == 0;
	free(vec);
	if (!mapped || (d->fails_above && d->live_bytes + len > d->fails_above)) {
		d->refused++;
		return mapped ? -ENOMEM : -EFAULT;
	}
	*out = (struct reg_memory){ .addr = addr, .len = len, .lkey = ++d->made };
	d->live++;
	d->live_bytes += len;
	return 0;
}

static void fake_drop(void *device, struct reg_memory *m)
{
	struct fake_device *d = device;

	CHECK(d->live > 0);
	d->live--;
	d->dropped++;
	d->live_bytes -= m->len;
}

const struct reg_ops fake_ops = { .name = "fake", .make = fake_make, .drop = fake_drop };

bool pinned_start(struct pinned *x, uint64_t limit, unsigned flags)
{
	*x = (struct pinned){ .fd = -1 };
	if (reg_iouring_open(&x->device, 1024))
		return false;
	x->fd = memfd_create("scratch", MFD_CLOEXEC);
	CHECK(x->fd >= 0);
	CHECK_EQ(ftruncate(x->fd, (off_t)PINNED_FILE), 0);
	CHECK_EQ(reg_open(&x->reg, &reg_iouring_ops, x->device, limit, flags), 0);
	return true;
}

void pinned_end(struct pinned *x)
{
	reg_close(x->reg);
	reg_iouring_close(x->device);
	close(x->fd);
}

static const struct reg_memory *region_of(const struct reg_use *u, size_t i,
					  const struct iovec *piece)
{
	const struct reg_memory *m = u->regions[u->region_of[i]];
	const char *at = piece->iov_base, *start = m->addr;

	CHECK(start <= at && at + piece->iov_len <= start + m->len);
	return m;
}

void pinned_check_out(struct pinned *x, const struct reg_use *u, size_t i,
		      const struct iovec *piece)
{
	const struct reg_memory *m = region_of(u, i, piece);
	size_t len = piece->iov_len;
	char *seen = malloc(len);

	CHECK(seen);
	CHECK_EQ(reg_iouring_move(x->device, m, piece->iov_base, len, x->fd, 0, true), len);
	CHECK_EQ(pread(x->fd, seen, len, 0), len);
	CHECK(memcmp(seen, piece->iov_base, len) == 0);
	free(seen);
}

void pinned_check_in(struct pinned *x, const struct reg_use *u, size_t i, const struct iovec *piece,
		     uint64_t *seed)
{
	const struct reg_memory *m = region_of(u, i, piece);
	size_t len = piece->iov_len;
	char *sent = malloc(len);

	CHECK(sent);
	pages_fill(sent, len, test_random(seed));
	CHECK_EQ(pwrite(x->fd, sent, len, 0), len);
	CHECK_EQ(reg_iouring_move(x->device, m, piece->iov_base, len, x->fd, 0, false), len);
	CHECK(memcmp(sent, piece->iov_base, len) == 0);
	free(sent);
}

int pinned_check(struct pinned *x, void *addr, size_t len)
{
	struct iovec piece = { addr, len };
	uint64_t seed = (uintptr_t)addr;
	struct reg_use u;
	int e = reg_acquire(x->reg, &piece, 1, true, &u);

	if (e)
		return e;
	pinned_check_out(x, &u, 0, &piece);
	pinned_check_in(x, &u, 0, &piece, &seed);
	reg_release(x->reg, &u);
	return 0;
}

void pages_fill(char *p, size_t len, uint64_t seed)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (char)(x >> 32);
	}
}

char *pages_map(size_t n)
{
	size_t len = n * (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	pages_fill(p, len, (uintptr_t)p);
	return p;
}
