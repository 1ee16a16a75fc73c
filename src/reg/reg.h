/* reg: registration of user memory with a device that accesses it by itself (a network card, or
 * io_uring's fixed buffers). A cache keeps regions registered for later requests; pieces that are
 * close together are registered as one region (optimistic group registration, OGR).
 *
 * Threads: any, except reg_open() and reg_close(). Buffers: pinned while they are registered.
 * Errors: -errno; after any error of reg_acquire() the caller copies the data instead. */
#ifndef SHEAF_REG_H
#define SHEAF_REG_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

/* A registered range. */
struct reg_memory {
	void *addr;
	size_t len;
	uint32_t lkey, rkey; /* set by the device; the same for handle */
	uint64_t handle;
};

/* A device that can register memory. Any thread may call it, several at the same time. */
struct reg_ops {
	const char *name;
	size_t max_len; /* of one range */
	/* addr and len are whole pages, except with REG_EXACT. -EFAULT: a hole or missing rights;
	 * -ENOMEM: a limit. */
	int (*make)(void *device, void *addr, size_t len, bool writable, struct reg_memory *out);
	void (*drop)(void *device, struct reg_memory *m);
};

struct reg; /* one per device and process */

enum {
	REG_NO_CACHE = 1, /* register for each request */
	REG_EXACT = 2, /* each piece by itself, exactly its bytes; costs are not measured */
};
/* limit_bytes: most memory that is registered at a time; 0: as RLIMIT_MEMLOCK permits. Measures the
 * costs of the device, which takes some milliseconds. */
int reg_open(struct reg **out, const struct reg_ops *ops, void *device, uint64_t limit_bytes,
	     unsigned flags);
/* No use may be left. Deregisters everything; not in a forked child, where it only frees memory. */
void reg_close(struct reg *r);

/* Registered memory for one request. */
struct reg_use {
	size_t n_regions;
	const struct reg_memory **regions; /* valid until reg_release(); may name one twice */
	uint32_t *region_of; /* of each piece: the region that contains it */
	size_t n_made; /* regions that were registered for this request, also if it failed */
};
/* Registers what of the pieces is not registered. A piece without bytes has region 0. -EFAULT: a
 * piece is not mapped, or not writable; -ENOBUFS: a limit, or this is a forked child. */
int reg_acquire(struct reg *r, const struct iovec *pieces, size_t n, bool writable,
		struct reg_use *out);
/* The device must not access the memory any more. Also for a reg_use of zeros. */
void reg_release(struct reg *r, struct reg_use *u);
/* Deregisters the cached regions that are not in use. */
void reg_flush(struct reg *r);

struct reg_counts {
	uint64_t registrations, failed, deregistrations;
	uint64_t hits; /* pieces that were registered before */
	uint64_t invalidations; /* regions whose memory was unmapped or discarded */
	uint64_t groups; /* of pieces; each was to be one registration */
	uint64_t pinned_bytes, limit_bytes;
	double page_ns, call_ns; /* of a registration and its deregistration, as measured */
	bool is_caching;
	const char *why_not; /* not caching: the reason; else NULL */
};
void reg_get_counts(struct reg *r, struct reg_counts *out);

/* ---- the device io_uring: fixed buffers of a ring of its own ---- */

struct reg_iouring;
/* slots: most regions at a time, at most 16384. -ENOSYS, -EPERM: there is no io_uring. */
int reg_iouring_open(struct reg_iouring **out, unsigned slots);
void reg_iouring_close(struct reg_iouring *d);
extern const struct reg_ops reg_iouring_ops;
/* Moves bytes between a file and the pages that were registered; for tests. Bytes or -errno. */
ssize_t reg_iouring_move(struct reg_iouring *d, const struct reg_memory *m, void *addr, size_t len,
			 int fd, uint64_t off, bool to_file);

#endif
