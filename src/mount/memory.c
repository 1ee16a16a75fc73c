/* Buffers of requests in progress: for the request itself, and for its answer.
 *
 * A request has a buffer of its own from its beginning to its end; -o memory= limits their number.
 * Some are huge pages, and these are taken first: the kernel copies from and to them a tenth
 * faster, because it need not look up every 4 KiB. Used buffers are not returned to the system. An
 * abandoned request keeps its buffer and does not count; if such requests have all buffers, one is
 * mapped and unmapped for each further request.
 *
 * Locks: the crew's, which the caller holds. */
#include <sys/mman.h>

#include "mount/mount_priv.h"

#define HUGE_ONES 16 /* even a small request uses 2 MiB of these */

_Static_assert(WORKERS_MAX == 64, "a bit each");

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int memory_init(struct crew *c)
{
	char *p = map((c->max + (size_t)1) * WORKER_MEMORY);

	if (!p)
		return -ENOMEM;
	c->memory = p + -(uintptr_t)p % WORKER_MEMORY;
	c->free_buffers = UINT64_MAX >> (WORKERS_MAX - c->max);
	madvise(c->memory, MIN(c->max, HUGE_ONES) * WORKER_MEMORY, MADV_HUGEPAGE); /* best effort */
	return 0;
}

void memory_take(struct worker *w)
{
	struct crew *c = &w->m->crew;

	if (c->free_buffers) {
		w->in.mem = c->memory + (size_t)__builtin_ctzll(c->free_buffers) * WORKER_MEMORY;
		c->free_buffers &= c->free_buffers - 1;
	} else {
		w->in.mem = map(WORKER_MEMORY);
	}
}

void memory_give(struct worker *w)
{
	struct crew *c = &w->m->crew;
	size_t at = (uintptr_t)w->in.mem - (uintptr_t)c->memory;

	if (w->in.mem && at < c->max * WORKER_MEMORY)
		c->free_buffers |= UINT64_C(1) << at / WORKER_MEMORY;
	else if (w->in.mem)
		munmap(w->in.mem, WORKER_MEMORY);
	w->in = (struct fuse_buf){ 0 };
}
