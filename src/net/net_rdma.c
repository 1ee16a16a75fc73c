/* RDMA on a TCP link: attaching, the table of operations, arriving messages, closing.
 *
 * A client that has a card asks for a queue pair as soon as its link is up, before anything else;
 * the server answers with its own, or with the reason why there is none. Both go by TCP, which both
 * ends have authenticated. From then on all messages go by the queue pair, except those of requests
 * whose tag has TAG_STREAM. A queue pair that fails closes the link, and the client dials again.
 *
 * Threads: the loop's. Buffers: see rdma_send.c and rdma_mem.c. Errors: as far as possible the link
 * stays on TCP; the peer of a server knows the reason. */
#include <stdio.h>
#include <stdlib.h>

#include "net/frame.h"
#include "net/net_tcp.h"
#include "net/peer_private.h"
#include "net/rdma.h"

#define ATTACH_MIN_NS (5 * NSEC_PER_SEC) /* for the answer to ATTACH: a quarter of the timeout */
#define ATTACH_MAX_NS (60 * NSEC_PER_SEC)
#define RETRY_NS (30 * NSEC_PER_SEC) /* on TCP, after RDMA failed */
#define RETRY_LATER_NS (120 * NSEC_PER_SEC) /* the same, after a further failure */
/* Until a host is tried again whose address did not answer: doubles, and is the shortest again
 * after the longest has passed without another failure. */
#define PAUSE_MIN_NS NSEC_PER_SEC
#define ASK_MAX_NS (600 * NSEC_PER_SEC) /* longest pause of a client */
#define PAUSE_MAX_NS (60 * NSEC_PER_SEC)
#define FLUSH_NS (10 * NSEC_PER_SEC) /* until a card has flushed all work; then it is cut off */

/* ---- the table of operations ---- */

static void rdma_send(struct link *l, struct msg *m)
{
	if (l->rdma->is_connected && !(m->tag & TAG_STREAM))
		rdma_message(l->rdma, m);
	else
		tcp_send(l, m);
}

static void put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
		size_t n, struct req *q)
{
	(d->tag & TAG_STREAM ? tcp_put : rdma_put)(l, d, at, src, n, q);
}

static void get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
		size_t n, struct net_direct *direct, struct req *q)
{
	(d->tag & TAG_STREAM ? tcp_get : rdma_get)(l, d, at, dst, n, direct, q);
}

/* Nothing is in flight any more: the queue pair goes, then the connection. */
static void finish_close(struct rdma_link *r)
{
	struct link *l = r->l;

	timer_del(l->net->loop, &r->stall);
	r->dev->ops->qp_drop(r->qp);
	r->qp = NULL;
	list_del(&r->in_device);
	rdma_note_lost(r);
	rdma_end_units(r, r->close_error);
	rdma_share_leave(r);
	msg_free(r->partial);
	r->partial = NULL;
	l->net->slab_msgs_max -= MSG_PER_SLAB;
	rdma_promise(r);
	tcp_ops.shut(l, r->close_error, false);
}

static void flush_over(struct timer *t)
{
	finish_close(container_of(t, struct rdma_link, stall));
}

void rdma_closing(struct rdma_link *r)
{
	if (r->qp && r->n_completed >= r->n_posted)
		finish_close(r);
}

static void rdma_shut(struct link *l, int error, bool now)
{
	struct rdma_link *r = l->rdma;

	if (!r->is_closing) {
		r->is_closing = true;
		r->close_error = error;
		list_del(&r->deferred.link);
		tcp_watch(tcp_of(l), 0);
		r->dev->ops->qp_abort(r->qp);
	}
	r->stall.fire = flush_over;
	if (now || r->dev->ops->is_dead(r->dev->fabric) ||
	    timer_set(l->net->loop, &r->stall, l->net->loop->now + FLUSH_NS))
		finish_close(r);
	else
		rdma_closing(r);
}

static void rdma_destroy(struct link *l)
{
	free(l->rdma);
	tcp_ops.destroy(l);
}

static const struct net_ops rdma_ops = {
	.name = "rdma",
	.send = rdma_send,
	.expose = rdma_expose,
	.retract = rdma_retract,
	.put = put,
	.get = get,
	.shut = rdma_shut,
	.destroy = rdma_destroy,
	.peer_moves = true,
};

/* ---- messages ---- */

void rdma_deliver(struct rdma_link *r, uint32_t kind, uint64_t tag, struct msg *m)
{
	if (kind == FRAME_REPLY)
		rdma_answered(r, tag);
	if (kind == FRAME_REQUEST)
		rdma_begin_moved(r, tag);
	if (kind == FRAME_CANCEL && rdma_cancel_fetch(r, tag)) {
		msg_free(m);
		return;
	}
	link_message(r->l, kind, tag, m);
}

/* A part of a long message. 0, or -errno: the link is closed. */
static int join(struct rdma_link *r, struct msg *part, uint32_t len)
{
	struct msg *m = r->partial;

	if (!m || !len || len > r->partial_head.length - m->len) {
		msg_free(part);
		return link_fault(r->l, "a part that does not fit its message");
	}
	memcpy(m->body + m->len, part->body, len);
	r->l->account->copied += len;
	m->len += len;
	msg_free(part);
	if (m->len < r->partial_head.length)
		return 0;
	r->partial = NULL;
	rdma_deliver(r, r->partial_head.kind, r->partial_head.tag, m);
	return 0;
}

static int begin_long(struct rdma_link *r, const struct wire_frame_head *h, struct msg *part,
		      uint32_t len)
{
	int e = r->partial ? link_fault(r->l, "a long message before the end of another") : 0;

	if (!e) {
		r->partial = msg_own(r->l->net, h->length);
		e = r->partial ? 0 : -ENOMEM;
	}
	if (e) {
		msg_free(part);
		return e;
	}
	rdma_watch(r);
	r->partial->len = 0;
	r->partial_at = r->l->net->loop->now;
	r->partial_head = *h;
	return join(r, part, len);
}

/* Takes m, whose body has len bytes. 0 or -errno, which closes the link. */
static int take_message(struct rdma_link *r, struct msg *m, uint32_t len)
{
	struct wire_frame_head h;
	struct xdr x;
	int e;

	xdr_decoder(&x, m->head, FRAME_HEAD, NULL);
	e = xdr_wire_frame_head(&x, &h) && h.magic == SHEAF_MAGIC ?
		    link_check_rdma(r->l, &h) :
		    link_fault(r->l, "a message by RDMA without the head of a frame");
	if (!e && h.length != len && (len > h.length || h.kind == FRAME_MORE))
		e = link_fault(r->l, "a message of another length than it says");
	if (e) {
		msg_free(m);
		return e;
	}
	credits_told(&r->credits, h.want);
	if (h.kind != FRAME_INVITE)
		r->peer_load = (uint32_t)MIN(h.id, (uint64_t)UINT32_MAX);
	r->l->account->frames++;
	if (len < h.length)
		return begin_long(r, &h, m, len);
	switch (h.kind) {
	case FRAME_MORE:
		return join(r, m, len);
	case FRAME_INVITE:
		e = rdma_invited(r, &h, m);
		break;
	case FRAME_FETCH:
		e = rdma_fetch(r, &h, m);
		break;
	case FRAME_CREDIT:
		break;
	default:
		rdma_deliver(r, h.kind, h.tag, m);
		return 0;
	}
	msg_free(m);
	return e;
}

void rdma_received(struct rdma_link *r, struct msg *m, uint32_t len)
{
	int e;

	rdma_promise(r); /* other links may have taken what was spare */
	e = credits_receive(&r->credits) ? link_fault(r->l, "a message without a credit") : 0;
	m = msg_spare_slab(m); /* a request may stay for long, and receives need slabs */

	if (!e && len < FRAME_HEAD)
		e = link_fault(r->l, "a message by RDMA that is too short");
	if (e) {
		msg_free(m);
	} else {
		m->len = len - FRAME_HEAD;
		e = take_message(r, m, m->len);
	}
	if (e)
		link_close(r->l, e);
	rdma_promise(r);
	if (!r->is_closing) /* messages may wait for credits that it brought */
		loop_defer_last(r->l->net->loop, &r->deferred);
}

/* ---- attaching ---- */

static bool has_work(const struct rdma_link *r)
{
	return !list_empty(&r->control) || !list_empty(&r->bulk) || !list_empty(&r->posted);
}

/* Since when the link waits without progress; UINT64_MAX: it waits for nothing. The peer writes
 * into its grants in their order. */
static uint64_t waits_since(const struct rdma_link *r)
{
	uint64_t since = has_work(r) ? r->moved_at : UINT64_MAX;

	if (!list_empty(&r->grants))
		since = MIN(since, r->granted_at);
	return r->partial ? MIN(since, r->partial_at) : since;
}

/* The peer or its card has stopped, or the peer sends everything but what it owes. */
static void stalled(struct timer *t)
{
	struct rdma_link *r = container_of(t, struct rdma_link, stall);
	uint64_t limit = r->l->net->id.timeout_ms * NSEC_PER_MSEC, since = waits_since(r);
	struct loop *l = r->l->net->loop;

	if (since == UINT64_MAX)
		return;
	if (l->now >= since + limit)
		link_close(r->l, r->l->dialled ? -ETIMEDOUT : -ETIME);
	else
		timer_set(l, t, since + limit);
}

void rdma_watch(struct rdma_link *r)
{
	struct loop *l = r->l->net->loop;

	if (r->is_closing)
		return;
	if (!has_work(r))
		r->moved_at = l->now;
	if (!r->stall.when)
		timer_set(l, &r->stall, l->now + r->l->net->id.timeout_ms * NSEC_PER_MSEC);
}

static struct rdma_link *rdma_link_alloc(struct link *l, struct rdma_device *d)
{
	struct rdma_link *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->l = l;
	r->dev = d;
	list_init(&r->control);
	list_init(&r->bulk);
	list_init(&r->posted);
	list_init(&r->grants);
	list_init(&r->offers);
	list_init(&r->fetches);
	list_init(&r->deferred.link);
	r->deferred.run = rdma_flush_deferred;
	credits_init(&r->credits);
	return r;
}

static void tell_no_qp(struct rdma_device *d, int error)
{
	struct net_rdma *n = &d->net->rdma;

	snprintf(n->why, sizeof(n->why), "%.80s: no further queue pair: %s", d->caps->name,
		 error == -ENOMEM ? "raise the limit of locked memory (ulimit -l)" :
				    error_text(error));
}

/* A queue pair for the link, not connected. NULL: net->rdma.why says why. */
static struct rdma_link *rdma_new(struct link *l, struct wire_attach *a)
{
	struct net *n = l->net;
	struct rdma_device *d = rdma_device_get(n);
	struct rdma_link *r = d ? rdma_link_alloc(l, d) : NULL;
	struct fabric_addr us;
	int e;

	if (!r)
		return NULL;
	n->slab_msgs_max += MSG_PER_SLAB;
	rdma_promise(r);
	e = d->n_wanted > d->caps->receive_depth ? -ENOSPC : rdma_receives_post(d);
	if (!e)
		e = d->ops->qp_make(d->fabric, rdma_sends(d), r, &r->qp, &us);
	if (e) {
		tell_no_qp(d, e);
		d->n_wanted -= r->promised;
		n->slab_msgs_max -= MSG_PER_SLAB;
		free(r);
		return NULL;
	}
	*a = (struct wire_attach){ .lid = us.lid,
				   .qpn = us.qpn,
				   .psn = us.psn,
				   .mtu = us.mtu,
				   .read_depth = us.read_depth,
				   .receives = r->credits.granted };
	memcpy(a->gid, us.gid, sizeof(a->gid));
	list_push(&d->links, &r->in_device);
	l->rdma = r;
	l->ops = &rdma_ops;
	l->costs = &d->costs;
	return r;
}

/* The link goes on without RDMA. */
static void detach(struct rdma_link *r)
{
	struct link *l = r->l;

	timer_del(l->net->loop, &r->stall);
	r->is_closing = true;
	r->dev->ops->qp_drop(r->qp);
	list_del(&r->in_device);
	rdma_share_leave(r);
	rdma_promise(r);
	l->net->slab_msgs_max -= MSG_PER_SLAB;
	l->costs = &l->net->costs[MEDIUM_TCP];
	l->ops = &tcp_ops;
	l->rdma = NULL;
	free(r);
}

static int connect_to(struct rdma_link *r, const struct wire_attach *a)
{
	struct fabric_addr peer = { .lid = a->lid,
				    .qpn = a->qpn,
				    .psn = a->psn,
				    .mtu = a->mtu,
				    .read_depth = a->read_depth };
	int e;

	memcpy(peer.gid, a->gid, sizeof(peer.gid));
	e = r->dev->ops->qp_connect(r->qp, &peer);
	if (e)
		return e;
	credits_told(&r->credits, a->receives);
	timer_del(r->l->net->loop, &r->stall);
	r->stall.fire = stalled;
	return 0;
}

/* Client: RDMA cannot be used, for this reason. */
static int go_without(struct link *l, const char *why, size_t len)
{
	struct peer *p = l->peer;
	char text[RDMA_WHY_MAX];
	bool is_news;

	snprintf(text, sizeof(text), "%.*s", (int)len, why);
	is_news = strcmp(text, p->rdma_why) != 0;
	strcpy(p->rdma_why, text);
	if (l->rdma)
		detach(l->rdma);
	if (p->rdma_retry_at &&
	    p->rdma_retry_at <= l->net->loop->now) /* a retry was due, and has failed, too */
		p->rdma_retry_at = l->net->loop->now + RETRY_LATER_NS;
	if (l->net->rdma.is_required) {
		if (is_news)
			log_error("net", "%s: RDMA is required (SHEAF_NET=rdma): %s", p->address,
				  text);
		return -ENONET;
	}
	peer_link_up(p, l);
	return 0;
}

void rdma_failed(struct link *l, const char *why)
{
	struct peer *p = l->peer;

	if (!p)
		return;
	snprintf(p->rdma_why, sizeof(p->rdma_why), "%s", why);
	p->rdma_retry_at = l->net->loop->now + RETRY_NS;
}

bool rdma_is_due(const struct peer *p)
{
	return p->link && p->link->ops == &tcp_ops && p->rdma_retry_at &&
	       p->net->loop->now >= p->rdma_retry_at;
}

/* Calls wait meanwhile: most of the cluster file's timeout is left for TCP. */
static uint64_t attach_ns(const struct net *n)
{
	return MIN(MAX(n->id.timeout_ms * NSEC_PER_MSEC / 4, ATTACH_MIN_NS), ATTACH_MAX_NS);
}

static void attach_over(struct timer *t)
{
	struct rdma_link *r = container_of(t, struct rdma_link, stall);

	rdma_failed(r->l, "the server did not answer to it");
	link_close(r->l, -ETIMEDOUT);
}

int rdma_attach(struct link *l)
{
	struct peer *p = l->peer;
	struct wire_attach a;
	struct rdma_link *r;
	struct msg *m;
	bool must = l->net->rdma.is_required;

	if (l->ops != &tcp_ops || l->local_label[0] || l->role != LINK_CLIENT ||
	    (l->net->rdma.is_off && !must)) {
		peer_link_up(p, l);
		return 0;
	}
	if (l->net->rdma.is_off)
		return go_without(l, "the cluster file switches it off (device = none)",
				  RDMA_WHY_MAX);
	if (l->net->loop->now < p->rdma_retry_at && !must)
		return go_without(l, p->rdma_why, RDMA_WHY_MAX);
	if (!l->peer_has_rdma)
		return go_without(l, must ? "the server has no RDMA" : "", RDMA_WHY_MAX);
	r = rdma_new(l, &a);
	if (!r)
		return go_without(l, l->net->rdma.why, RDMA_WHY_MAX);
	rdma_reg_open(r->dev);
	m = msg_encode(l->net, XDR_ANY(xdr_wire_attach), &a, NULL, NULL);
	r->stall.fire = attach_over;
	if (!m || timer_set(l->net->loop, &r->stall, l->net->loop->now + attach_ns(l->net))) {
		msg_free(m);
		return -ENOMEM;
	}
	link_send(l, FRAME_ATTACH, 0, m);
	return 0;
}

static bool decode_attach(struct msg *m, struct wire_attach *a)
{
	struct xdr x;

	xdr_decoder(&x, m->body, m->len, NULL);
	return xdr_wire_attach(&x, a) && xdr_left(&x) == 0;
}

/* Connecting to an address that does not answer holds up the loop for a second, so it is tried
 * once in a while for each client host. NULL: it has not failed. */
static struct unreachable *find_unreachable(const struct link *l)
{
	struct net_rdma *n = &l->net->rdma;

	for (size_t i = 0; i < ARRAY_LEN(n->unreachable); i++)
		if (n->unreachable[i].until &&
		    !memcmp(n->unreachable[i].addr, l->from.addr, sizeof(l->from.addr)))
			return &n->unreachable[i];
	return NULL;
}

static bool is_unreachable(const struct link *l)
{
	const struct unreachable *u = find_unreachable(l);

	if (!u || l->net->loop->now >= u->until)
		return false;
	snprintf(l->net->rdma.why, sizeof(l->net->rdma.why),
		 "it could not reach this host's RDMA address before");
	return true;
}

static void note_unreachable(const struct link *l)
{
	struct net_rdma *n = &l->net->rdma;
	struct unreachable *u = find_unreachable(l);
	struct env *e = l->net->loop->env;
	uint64_t now = e->clock->now(e); /* the attempt may have taken long */

	if (!u) {
		u = &n->unreachable[n->next_unreachable];
		n->next_unreachable = (n->next_unreachable + 1) % ARRAY_LEN(n->unreachable);
		*u = (struct unreachable){ 0 };
		memcpy(u->addr, l->from.addr, sizeof(u->addr));
	}
	u->pause = now < u->until + PAUSE_MAX_NS ? MIN(2 * u->pause, PAUSE_MAX_NS) : 0;
	u->pause = MAX(u->pause, PAUSE_MIN_NS);
	u->until = now + u->pause;
}

/* The client's queue pair cannot be reached. Returns the error that the client is told. */
static int give_up(struct rdma_link *r, int error)
{
	struct link *l = r->l;

	snprintf(l->net->rdma.why, sizeof(l->net->rdma.why),
		 "%s: cannot reach the client's queue pair: %s", r->dev->caps->name,
		 error_text(error));
	detach(r);
	if (error == -EINVAL) /* the address was refused before its host was asked */
		return error;
	note_unreachable(l);
	return -EHOSTUNREACH;
}

int rdma_asked(struct link *l, struct msg *m)
{
	struct wire_attach peer, a = { 0 };
	bool is_wrong = !decode_attach(m, &peer) || l->asked_rdma || !list_empty(&l->sessions) ||
			l->role != LINK_CLIENT || l->local_label[0];
	bool must_wait = !is_wrong && is_unreachable(l);
	struct rdma_link *r = is_wrong || must_wait ? NULL : rdma_new(l, &a);
	int e = r ? connect_to(r, &peer) : must_wait ? -EHOSTUNREACH : -ENODEV;

	msg_free(m);
	if (is_wrong)
		return link_fault(l, "a wrong ATTACH");
	l->asked_rdma = true;
	if (e) {
		if (r)
			e = give_up(r, e);
		a = (struct wire_attach){ .status = -e, .why = wire_text(l->net->rdma.why) };
		r = NULL;
	}
	m = msg_encode(l->net, XDR_ANY(xdr_wire_attach), &a, NULL, NULL);
	if (!m)
		return -ENOMEM;
	link_send(l, FRAME_ATTACHED, 0, m);
	if (r)
		r->is_connected = true;
	return 0;
}

/* The server could not reach this client's card: a later link asks again, since the network may be
 * repaired. */
static void ask_again(struct peer *p)
{
	p->rdma_pause = MIN(MAX(2 * p->rdma_pause, 2 * PAUSE_MIN_NS), ASK_MAX_NS);
	p->rdma_retry_at = p->net->loop->now + p->rdma_pause;
}

int rdma_attached(struct link *l, struct msg *m)
{
	struct rdma_link *r = l->rdma;
	struct wire_attach a;
	char why[RDMA_WHY_MAX];
	int e = decode_attach(m, &a) && r && !r->is_connected ? 0 :
								link_fault(l, "a wrong ATTACHED");

	if (!e && a.status) {
		snprintf(why, sizeof(why), "the server: %.*s", (int)a.why.len,
			 (const char *)a.why.p);
		if (a.status == EHOSTUNREACH)
			ask_again(l->peer);
		e = go_without(l, why, strlen(why));
	} else if (!e) {
		e = connect_to(r, &a);
		if (e)
			rdma_failed(l, "the server's queue pair cannot be reached");
		else
			r->is_connected = true;
	}
	msg_free(m);
	if (!e && l->rdma) {
		l->peer->rdma_why[0] = 0;
		l->peer->rdma_retry_at = l->peer->rdma_pause = 0;
		peer_link_up(l->peer, l);
	}
	return e;
}
