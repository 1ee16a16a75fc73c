/* What a work request of this card costs. Two queue pairs of the card write to each other: many
 * short pieces with one doorbell against one piece of the same length. Takes some milliseconds,
 * once, when a process opens its card.
 *
 * Threads: the loop's. Errors: the cost stays as it was. */
#include <stdlib.h>

#include "net/rdma.h"

#define REQUESTS 64
#define PIECE 64
#define ROUNDS 4
#define LIMIT_NS (20 * NSEC_PER_MSEC) /* of one round */

struct probe {
	struct rdma_device *d;
	struct fabric_qp *qp[2];
	struct fabric_mem mem;
	uint8_t *bytes; /* what is sent, then where it goes */
};

static bool connect_both(struct probe *p)
{
	const struct fabric_ops *ops = p->d->ops;
	struct fabric_addr at[2];

	for (int i = 0; i < 2; i++)
		if (ops->qp_make(p->d->fabric, REQUESTS, p, &p->qp[i], &at[i]))
			return false;
	return !ops->qp_connect(p->qp[0], &at[1]) && !ops->qp_connect(p->qp[1], &at[0]);
}

/* Time to write `len` bytes with each of n requests; UINT64_MAX: it failed. */
static uint64_t time_writes(struct probe *p, size_t n, uint32_t len)
{
	struct rdma_device *d = p->d;
	uint64_t begin = time_now();
	struct fabric_completion c;

	for (size_t i = 0; i < n; i++) {
		d->sge[i] = (struct fabric_sge){ p->bytes + i * len, len, p->mem.lkey };
		d->wr[i] = (struct fabric_wr){ .op = FABRIC_WRITE,
					       .is_signalled = i == n - 1,
					       .sge = &d->sge[i],
					       .n_sge = 1,
					       .remote = (uintptr_t)p->bytes + (REQUESTS + i) * len,
					       .rkey = p->mem.rkey };
	}
	if (d->ops->post(p->qp[0], d->wr, n))
		return UINT64_MAX;
	while (time_now() - begin < LIMIT_NS)
		if (d->ops->poll(d->fabric, &c, 1))
			return c.error ? UINT64_MAX : time_now() - begin;
	return UINT64_MAX;
}

static void measure(struct probe *p)
{
	uint64_t many = UINT64_MAX, one = UINT64_MAX;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t m = time_writes(p, REQUESTS, PIECE);
		uint64_t o = m == UINT64_MAX ? m : time_writes(p, 1, REQUESTS * PIECE);

		if (o == UINT64_MAX) /* late completions would be taken for others */
			return;
		many = MIN(many, m);
		one = MIN(one, o);
	}
	if (many > one)
		p->d->costs.work_request = (double)(many - one) / (REQUESTS - 1);
}

void rdma_costs_measure(struct rdma_device *d)
{
	struct probe p = { .d = d, .bytes = calloc(2 * REQUESTS, REQUESTS * PIECE) };
	size_t len = (size_t)2 * REQUESTS * REQUESTS * PIECE;

	if (p.bytes && !d->ops->mem_make(d->fabric, p.bytes, len,
					 FABRIC_LOCAL_WRITE | FABRIC_REMOTE_WRITE, &p.mem)) {
		if (connect_both(&p))
			measure(&p);
		for (int i = 0; i < 2; i++)
			if (p.qp[i])
				d->ops->qp_drop(p.qp[i]);
		d->ops->mem_drop(d->fabric, &p.mem);
	}
	free(p.bytes);
}
