/* The device io_uring: regions are fixed buffers of a ring. It pins memory on any host, so group
 * registration can be tested and measured without a network card.
 *
 * Threads: any; a mutex protects the free slots and the ring. Buffers: pinned by the kernel, which
 * counts them against RLIMIT_MEMLOCK. Errors: -errno of io_uring_register(). */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "reg/reg_impl.h"

#define MAX_SLOTS 16384

struct reg_iouring {
	struct io_uring ring;
	pthread_mutex_t lock;
	unsigned n_free;
	unsigned free[]; /* stack of slots */
};

int reg_iouring_open(struct reg_iouring **out, unsigned slots)
{
	struct reg_iouring *d;
	int r;

	slots = MIN(slots, MAX_SLOTS);
	d = calloc(1, sizeof(*d) + slots * sizeof(d->free[0]));
	if (!d)
		return -ENOMEM;
	r = io_uring_queue_init(4, &d->ring, 0);
	if (r) {
		free(d);
		return r;
	}
	r = io_uring_register_buffers_sparse(&d->ring, slots);
	if (r) {
		io_uring_queue_exit(&d->ring);
		free(d);
		return r;
	}
	for (unsigned i = 0; i < slots; i++)
		d->free[d->n_free++] = slots - 1 - i;
	pthread_mutex_init(&d->lock, NULL);
	*out = d;
	return 0;
}

void reg_iouring_close(struct reg_iouring *d)
{
	if (!d)
		return;
	io_uring_queue_exit(&d->ring);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static int set_slot(struct reg_iouring *d, unsigned slot, const struct iovec *iov)
{
	__u64 tag = 0;
	int r;

	do {
		r = io_uring_register_buffers_update_tag(&d->ring, slot, iov, &tag, 1);
	} while (r == -EINTR || r == -EAGAIN);
	return r < 0 ? r : 0;
}

/* The kernel pins for writing in any case. */
static int iouring_make(void *device, void *addr, size_t len, bool writable, struct reg_memory *out)
{
	struct reg_iouring *d = device;
	struct iovec iov = { addr, len };
	unsigned slot;
	int r;

	(void)writable;
	pthread_mutex_lock(&d->lock);
	if (!d->n_free) {
		pthread_mutex_unlock(&d->lock);
		return -ENOMEM;
	}
	slot = d->free[--d->n_free];
	pthread_mutex_unlock(&d->lock);
	r = set_slot(d, slot, &iov);
	if (r) {
		pthread_mutex_lock(&d->lock);
		d->free[d->n_free++] = slot;
		pthread_mutex_unlock(&d->lock);
		return r == -EOPNOTSUPP ? -EFAULT : r; /* a mapping that cannot be pinned */
	}
	*out = (struct reg_memory){ .addr = addr, .len = len, .handle = slot };
	return 0;
}

static void iouring_drop(void *device, struct reg_memory *m)
{
	struct reg_iouring *d = device;
	struct iovec none = { NULL, 0 };

	if (set_slot(d, (unsigned)m->handle, &none))
		return; /* the slot stays in use until the ring is closed */
	pthread_mutex_lock(&d->lock);
	d->free[d->n_free++] = (unsigned)m->handle;
	pthread_mutex_unlock(&d->lock);
}

const struct reg_ops reg_iouring_ops = {
	.name = "iouring",
	.max_len = GIB,
	.make = iouring_make,
	.drop = iouring_drop,
};

ssize_t reg_iouring_move(struct reg_iouring *d, const struct reg_memory *m, void *addr, size_t len,
			 int fd, uint64_t off, bool to_file)
{
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	ssize_t r;

	pthread_mutex_lock(&d->lock);
	sqe = io_uring_get_sqe(&d->ring);
	if (to_file)
		io_uring_prep_write_fixed(sqe, fd, addr, (unsigned)len, off, (int)m->handle);
	else
		io_uring_prep_read_fixed(sqe, fd, addr, (unsigned)len, off, (int)m->handle);
	do {
		r = io_uring_submit_and_wait(&d->ring, 1);
	} while (r == -EINTR);
	if (r >= 0)
		r = io_uring_wait_cqe(&d->ring, &cqe);
	if (r == 0) {
		r = cqe->res;
		io_uring_cqe_seen(&d->ring, cqe);
	}
	pthread_mutex_unlock(&d->lock);
	return r;
}
