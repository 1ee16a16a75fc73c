/* Long requests. The client keeps such a request in registered memory and sends a FETCH, which
 * names it; the server reads it with one RDMA READ into a message of its own, and goes on as if it
 * had arrived. Requests up to the eager size, and long replies, are cut into parts (rdma_send.c).
 *
 * Threads: the loop's. Buffers: the client's request stays until its reply, or the end of the link;
 * a server reads one request of a link at a time. Errors: a wrong FETCH closes its link; a request
 * that cannot be registered is sent in parts. After a link has closed with a request that was named
 * and not answered, requests to that server are sent in parts for a while: the server closes a link
 * when it has no memory that it can register. */
#include <stdlib.h>

#include "net/frame.h"
#include "net/peer.h"
#include "net/rdma.h"

#define PARTS_NS (60 * NSEC_PER_SEC) /* after a link closed with an offer */

/* ---- client ---- */

/* A request that the server may read. */
struct offer {
	struct list link;
	struct msg *m;
	bool is_registered; /* by mem, for this request alone; else with its slab */
	struct fabric_mem mem;
};

/* Requests up to this size are sent in parts: copying and posting the parts at both ends takes less
 * time than the round trip of a READ, and the server has granted receives for all of them. */
static uint32_t eager_bytes(const struct rdma_link *r)
{
	const struct net_costs *c = r->l->costs;
	double part_byte = 2 * (c->copy + c->work_request / MSG_SHORT);
	uint64_t by_cost = (uint64_t)((double)r->l->peer->round / part_byte);
	uint64_t by_credit = (uint64_t)credits_left(&r->credits) * MSG_SHORT;

	return (uint32_t)MIN(MIN(by_cost, by_credit), (uint64_t)MSG_MAX);
}

static void offer_end(struct rdma_link *r, struct offer *o)
{
	list_del(&o->link);
	if (o->is_registered)
		r->dev->ops->mem_drop(r->dev->fabric, &o->mem);
	msg_free(o->m);
	free(o);
}

/* Makes the request readable: 0, or -errno. */
static int offer_register(struct rdma_link *r, struct offer *o)
{
	const struct fabric_mem *slab = rdma_message_mem(r->dev, o->m);
	int e;

	if (slab) {
		o->mem = *slab;
		return 0;
	}
	e = rdma_make(r->dev, o->m->head, FRAME_HEAD + o->m->len, FABRIC_REMOTE_READ, &o->mem);
	r->l->account->registrations += !e;
	o->is_registered = !e;
	return e;
}

static struct msg *fetch_message(struct rdma_link *r, const struct offer *o)
{
	struct wire_rdma_segment s = { (uintptr_t)o->m->body, o->m->len, o->mem.rkey };
	struct wire_frame_head h = { .kind = FRAME_FETCH, .tag = o->m->tag };
	struct msg *m = msg_encode(r->l->net, XDR_ANY(xdr_wire_rdma_segment), &s, NULL, NULL);

	if (!m)
		return NULL;
	m->tag = o->m->tag;
	h.length = m->len;
	frame_head_encode(m->head, &h);
	return m;
}

bool rdma_offer(struct rdma_link *r, struct msg *m)
{
	struct msg *fetch = NULL;
	struct offer *o;

	if (!r->l->dialled || !r->l->peer_fetches ||
	    r->l->net->loop->now < r->l->peer->parts_until || m->len <= eager_bytes(r))
		return false;
	o = calloc(1, sizeof(*o));
	if (!o)
		return false;
	o->m = m;
	list_push(&r->offers, &o->link);
	if (!offer_register(r, o))
		fetch = fetch_message(r, o);
	if (!fetch) {
		o->m = NULL;
		offer_end(r, o);
		return false;
	}
	rdma_message(r, fetch);
	return true;
}

void rdma_answered(struct rdma_link *r, uint64_t tag)
{
	struct offer *o, *next;

	list_for_each_safe(o, next, &r->offers, link)
		if (o->m->tag == tag)
			offer_end(r, o);
}

void rdma_end_offers(struct rdma_link *r)
{
	struct offer *o;

	if (!list_empty(&r->offers)) /* the server, or its card, may not be able to read them */
		r->l->peer->parts_until = r->l->net->loop->now + PARTS_NS;
	while ((o = list_first(&r->offers, struct offer, link)))
		offer_end(r, o);
}

/* ---- server ---- */

/* Begins to read the next request. 0 or -ENOMEM. */
static int fetch_next(struct rdma_link *r)
{
	struct rdma_unit *u = list_first(&r->fetches, struct rdma_unit, link);

	if (!u || r->fetching)
		return 0;
	u->m = msg_new(r->l->net, (uint32_t)u->len);
	if (!u->m)
		return -ENOMEM;
	u->m->len = (uint32_t)u->len;
	u->m->tag = u->tag;
	u->local[0] = (struct rdma_range){ (uintptr_t)u->m->body, u->len, 0 };
	r->fetching = u;
	list_del(&u->link);
	rdma_queue_control(r, u);
	return 0;
}

int rdma_fetch(struct rdma_link *r, const struct wire_frame_head *h, struct msg *m)
{
	struct wire_rdma_segment s;
	struct rdma_unit *u;
	struct xdr x;

	xdr_decoder(&x, m->body, m->len, NULL);
	if (!xdr_wire_rdma_segment(&x, &s) || xdr_left(&x) || !s.length || s.length > MSG_MAX ||
	    s.addr + s.length < s.addr ||
	    r->n_fetches >= SESSION_SLOTS * MAX(r->l->by_channel.count, (size_t)1))
		return link_fault(r->l, "a wrong FETCH");
	u = rdma_unit_new(RDMA_FETCH, 1, 1);
	if (!u)
		return -ENOMEM;
	u->tag = h->tag;
	u->len = s.length;
	u->remote[0] = (struct rdma_range){ s.addr, s.length, s.key };
	r->n_fetches++;
	list_push(&r->fetches, &u->link);
	return fetch_next(r);
}

bool rdma_cancel_fetch(struct rdma_link *r, uint64_t tag)
{
	struct rdma_unit *u = r->fetching;

	if (u && u->tag == tag) {
		u->is_cancelled = true;
		return true;
	}
	list_for_each(u, &r->fetches, link) {
		if (u->tag != tag)
			continue;
		u->is_cancelled = true;
		return true;
	}
	return false;
}

void rdma_fetched(struct rdma_link *r, struct msg *m, bool is_cancelled)
{
	uint64_t tag = m->tag;
	int e;

	r->n_fetches--;
	r->fetching = NULL;
	e = fetch_next(r);
	if (e) {
		msg_free(m);
		link_close(r->l, e);
		return;
	}
	rdma_deliver(r, FRAME_REQUEST, tag, m);
	if (is_cancelled && !r->is_closing)
		link_message(r->l, FRAME_CANCEL, tag, NULL);
}
