/* How much of a server's card one link may use while other links move data, too.
 *
 * A card serves its queue pairs in turns, but a turn may be all that a queue pair has posted, and a
 * client with few requests in flight waits for the turns of all others at each of its steps. So
 * while several links of a server move bulk, a link has no more than about one window posted or
 * granted; its other units wait in its queue. Units begin in turn and are posted whole, so a window
 * and the reply behind it stay one chain. A distant link may have as many windows as it needs in
 * flight (depth.c). A link that is alone has no bound, nor has a dialled one: the client has no
 * other links to share its card with.
 *
 * Threads: the loop's. A unit that must wait has another one outstanding before it, whose
 * completion continues the queue: no timer is needed. */
#include "net/rdma.h"

#define SHARE_BYTES (256 * KIB)
#define RECENT_NS (10 * NSEC_PER_MSEC) /* a link that moved bulk since then takes part */

static void note_mover(struct rdma_link *r)
{
	struct rdma_mover *m = r->dev->movers;

	if (m[0].link != r)
		m[1] = m[0];
	m[0] = (struct rdma_mover){ r, r->l->net->loop->now };
}

static bool has_others(const struct rdma_link *r)
{
	const struct rdma_mover *m = r->dev->movers;

	m += m->link == r;
	return m->link && r->l->net->loop->now < m->at + RECENT_NS;
}

bool rdma_may_begin(struct rdma_link *r)
{
	uint64_t most = SHARE_BYTES * MAX(r->l->depth.windows, 1u);

	if (r->l->dialled)
		return true;
	note_mover(r);
	return r->outstanding < most || !has_others(r);
}

void rdma_note_begin(struct rdma_link *r, uint64_t bytes)
{
	r->outstanding += bytes;
}

void rdma_note_end(struct rdma_link *r, uint64_t bytes)
{
	r->outstanding -= bytes;
	note_mover(r);
}

void rdma_share_leave(struct rdma_link *r)
{
	struct rdma_mover *m = r->dev->movers;

	if (m[1].link == r)
		m[1].link = NULL;
	if (m[0].link == r) {
		m[0] = m[1];
		m[1].link = NULL;
	}
}
