/* Memory for the copies of pages: slots of one size, a bounded number of them, and as many again
 * for writers that the checkpoint itself waits for. It lies in mappings of its own, since a thread
 * that serves a fault must not meet a protected page.
 *
 * Threads: any, also in a signal handler. Errors: -ENOMEM, explained. */
#include <sched.h>
#include <sys/mman.h>

#include "ckpt/ckpt_impl.h"

#define SLOTS_MIN 16

void *ckpt_own_alloc(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void ckpt_own_free(void *p, size_t bytes)
{
	if (p)
		munmap(p, bytes);
}

int ckpt_pool_make(struct ckpt_pool *p, uint64_t bound, size_t slot_bytes)
{
	size_t n = (size_t)(bound / slot_bytes);

	n = MIN(MAX(n, (size_t)SLOTS_MIN), UINT32_MAX / 4);
	p->slot_bytes = slot_bytes;
	p->n_slots = 2 * n;
	p->reserve = n;
	atomic_flag_clear(&p->lock);
	p->unused = ckpt_own_alloc(p->n_slots * sizeof(*p->unused));
	p->mem = ckpt_own_alloc(p->n_slots * slot_bytes);
	if (!p->unused || !p->mem)
		return ckpt_fail(-ENOMEM, "out of memory");
	for (size_t i = 0; i < p->n_slots; i++)
		p->unused[p->n_unused++] = (uint32_t)(p->n_slots - 1 - i);
	return 0;
}

void ckpt_pool_free(struct ckpt_pool *p)
{
	ckpt_own_free(p->mem, p->n_slots * p->slot_bytes);
	ckpt_own_free(p->unused, p->n_slots * sizeof(*p->unused));
}

char *ckpt_pool_slot(const struct ckpt_pool *p, uint32_t slot)
{
	return p->mem + (size_t)slot * p->slot_bytes;
}

static void enter(struct ckpt_pool *p)
{
	while (atomic_flag_test_and_set(&p->lock))
		sched_yield();
}

bool ckpt_pool_get(struct ckpt_pool *p, bool beyond, uint32_t *slot)
{
	bool found;

	enter(p);
	if (beyond && p->reserve && p->n_unused <= p->reserve)
		p->reserve--;
	found = p->n_unused > p->reserve;
	if (found)
		*slot = p->unused[--p->n_unused];
	atomic_flag_clear(&p->lock);
	return found;
}

void ckpt_pool_put(struct ckpt_pool *p, uint32_t slot)
{
	enter(p);
	p->unused[p->n_unused++] = slot;
	if (p->n_unused == p->n_slots)
		p->reserve = p->n_slots / 2;
	atomic_flag_clear(&p->lock);
}
