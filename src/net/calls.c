/* The calls of a peer: queue, slots, transmission, replies, timeouts.
 *
 * A call takes a slot and a sequence number when it is first sent and keeps both until it is
 * answered. After a break it is retransmitted with the same numbers, so the server can tell it from
 * a new request. If the session itself is lost (lease expired, server forgot it), reads and writes
 * of data start over under the new session; a metadata change with an unknown outcome ends with
 * -EIO.
 *
 * A call with exposed memory ends when the peer can no longer access that memory: its reply says
 * so, also that to a CANCEL; otherwise the link has closed. A call whose memory is not safe within
 * the timeout closes the link.
 *
 * Threads: the loop's. Memory: calls and their arguments are the caller's until their request
 * continues. */
#include "net/peer_private.h"

#define DEFER_NS (NSEC_PER_MSEC / 2) /* how long a deferred call waits for another call */
#define RETRY_MIN_MS 2
#define RETRY_MAX_MS 200
#define RATE_BYTES (64 * KIB) /* a call with less data tells nothing about the rate of a link */
#define ROOM_MAX (128 * MIB) /* outstanding bytes at a server without other clients */
#define ROOM_MIN (4 * MIB)

/* ---- ends of calls ---- */

/* The memory of the call is no longer outstanding. */
static void uncount_memory(struct call *c)
{
	c->peer->outstanding -= c->counted_bytes;
	c->counted_bytes = 0;
}

void call_finish(struct call *c, int error)
{
	struct req *q = c->q;
	struct peer *p = c->peer;
	bool last = c->front && --p->n_front == 0;

	list_del(&c->link);
	timer_del(loop_of(p), &c->timer);
	uncount_memory(c);
	c->status = error;
	c->q = NULL;
	req_done(q, error, 0);
	if (last && p->state == PEER_UP) { /* the other calls have waited for this one */
		peer_resend(p);
		peer_pump(p);
	}
}

/* The memory is safe: ends the call, or makes it ready to be sent again. */
static void retracted(struct net_desc *d)
{
	struct call *c = container_of(d, struct call, desc);
	struct peer *p = c->peer;

	c->is_retracting = false;
	if (c->sends_again) {
		c->sends_again = false;
		timer_set(loop_of(p), &c->timer, c->deadline); /* cannot fail: it was set before */
		if (!p->retry_timer.when)
			peer_resend(p);
		return;
	}
	call_finish(c, c->status ? c->status : d->error);
}

/* Starts the timeout for the memory of a call to become safe; see call_timeout(). */
static void await_memory(struct call *c)
{
	struct loop *l = loop_of(c->peer);

	/* cannot fail: the timer is set already, or was until now */
	timer_set(l, &c->timer, l->now + c->peer->net->id.timeout_ms * NSEC_PER_MSEC);
}

/* Withdraws the memory of a call that was answered, if it has any. False: that takes time. */
static bool retract(struct call *c)
{
	if (!c->desc.tag || net_retract(c->peer->link, &c->desc, retracted))
		return true;
	c->is_retracting = true;
	await_memory(c);
	return false;
}

/* Ends a call that the peer has answered or never saw, when its memory is safe. */
static void retract_and_finish(struct call *c, int error)
{
	c->status = error;
	if (retract(c))
		call_finish(c, error ? error : c->desc.error);
}

void call_fini(struct call *c)
{
	msg_free(c->in);
	c->in = NULL;
}

static void release_slot(struct peer *p, uint32_t slot)
{
	p->slots[slot].call = NULL;
	p->slots[slot].busy = false;
}

/* Asks the server to answer the request of this tag soon. */
static void send_cancel(struct peer *p, uint64_t tag)
{
	struct msg *m = p->link ? msg_new(p->net, 0) : NULL;

	if (m)
		link_send(p->link, FRAME_CANCEL, tag, m);
}

static uint64_t tag_of(const struct call *c)
{
	return tag_make(c->peer->channel, c->slot, c->sequence);
}

/* The tag that was sent: the same, and whether the call moves over TCP beside RDMA. */
static uint64_t sent_tag(const struct call *c)
{
	return c->desc.tag ? c->desc.tag : tag_of(c);
}

bool peer_awaits_cancelled(const struct peer *p)
{
	for (uint32_t i = 0; i < SESSION_SLOTS; i++)
		if (p->slots[i].busy && (!p->slots[i].call || p->slots[i].call->is_cancelled))
			return true;
	return false;
}

void peer_cancel_remote(struct call *c)
{
	if (c->q && c->sent && c->slot != NO_SLOT)
		send_cancel(c->peer, sent_tag(c));
}

void peer_cancel(struct call *c, int error)
{
	struct peer *p = c->peer;
	uint64_t tag = sent_tag(c);

	if (!c->q)
		return;
	if (c->is_retracting || c->is_cancelled) { /* the memory decides when it ends */
		if (c->sends_again) {
			c->sends_again = false;
			c->status = error;
			release_slot(p, c->slot);
		}
		return;
	}
	if (c->sent && c->slot != NO_SLOT && c->desc.tag && net_peer_moves(p->link)) {
		c->is_cancelled = true;
		c->status = error;
		await_memory(c);
		send_cancel(p, tag); /* may close the link and end the call */
		return;
	}
	if (c->sent && c->slot != NO_SLOT) {
		p->slots[c->slot].call = NULL; /* busy until the reply comes or the link breaks */
		retract_and_finish(c, error);
		send_cancel(p, tag);
		return;
	}
	if (c->slot != NO_SLOT) /* it was sent over a link that broke: the outcome is unknown */
		release_slot(p, c->slot);
	call_finish(c, error);
}

/* When bytes of this call, or of the calls that it waits for, last moved; 0: never. */
static uint64_t moved_at(const struct call *c)
{
	const struct peer *p = c->peer;

	if (!c->mem || !p->link)
		return 0;
	if (c->sent)
		return c->desc.moved;
	return c->slot == NO_SLOT && p->outstanding ? p->link->progress : 0;
}

void call_timeout(struct timer *t)
{
	struct call *c = container_of(t, struct call, timer);
	struct peer *p = c->peer;
	bool session_call = c == &p->session_call, ping = c == &p->ping;
	uint64_t timeout_ns = p->net->id.timeout_ms * NSEC_PER_MSEC;
	uint64_t moved = moved_at(c);
	bool asked = c->sent, is_shared = p->through || !list_empty(&p->users);

	if (c->is_cancelled || c->is_retracting) { /* the peer does not confirm, or the device */
		link_close(p->link, -ETIMEDOUT);
		return;
	}
	/* bulk in motion does not time out, however large, nor do calls that wait for it */
	if (moved && moved + timeout_ns > loop_of(p)->now) {
		timer_set(loop_of(p), t, moved + timeout_ns);
		return;
	}
	peer_cancel(c, p->state == PEER_UP || !p->last_error ? -ETIMEDOUT : p->last_error);
	if (session_call && p->through) /* it may wait for requests of the old session */
		return;
	if ((session_call || ping) && is_shared && p->link &&
	    p->link->progress > c->sent_at) /* other sessions of the link are answered */
		return;
	if ((session_call || ping) && asked && p->link) /* no answer: try another link */
		link_close(p->link, -ETIMEDOUT);
}

/* ---- sending ---- */

void peer_map(struct peer *p, uint32_t version)
{
	if (version <= p->map_version)
		return;
	p->map_version = version;
	if (p->on_map_change)
		p->on_map_change(p);
}

static struct msg *encode_call(struct peer *p, struct call *c)
{
	static const struct cred_wire nobody = { .uid = 65534, .gid = 65534 };
	const struct cred_wire *cr = c->cred ? c->cred : &nobody;
	uint64_t now = loop_of(p)->now;
	uint64_t left = c->deadline > now ? (c->deadline - now) / NSEC_PER_MSEC : 0;
	struct wire_req_head h = {
		.op = c->op,
		.slot = c->slot,
		.sequence = c->sequence,
		.session = c->slot == NO_SLOT ? 0 : p->session,
		.uid = cr->uid,
		.gid = cr->gid,
		.n_gids = cr->n_gids,
		.gids = (uint32_t *)(uintptr_t)cr->gids,
		.map_version = p->map_version,
		.time_left_ms = (uint32_t)MIN(left, (uint64_t)UINT32_MAX),
		.trace = c->trace,
	};

	uint8_t id[CALL_ID_BYTES];

	if (cr->has_call_id) { /* a call may make several changes, each by another operation */
		memcpy(id, cr->call_id, sizeof(id));
		id[0] ^= (uint8_t)c->op;
		h.call_id = (struct wire_bytes){ sizeof(id), id };
	}
	c->map_version = p->map_version;
	return msg_encode(p->net, XDR_ANY(xdr_wire_req_head), &h, wire_op_rows[c->op].args,
			  c->args);
}

void call_transmit(struct peer *p, struct call *c)
{
	uint64_t tag = tag_of(c);
	struct msg *m;
	int r;

	list_del(&c->link);
	if (c->mem) {
		r = net_expose(p->link, c->mem, c->mem_access, c->method, c->is_whole, tag,
			       &c->desc);
		if (r) {
			if (c->slot != NO_SLOT)
				release_slot(p, c->slot);
			call_finish(c, r);
			return;
		}
		tag = c->desc.tag;
		c->mem_wire->tag = tag;
		c->mem_wire->length = c->mem->length;
		c->mem_wire->keys = c->desc.keys;
	}
	m = encode_call(p, c);
	if (!m) {
		if (c->slot != NO_SLOT)
			release_slot(p, c->slot);
		retract_and_finish(c, -EMSGSIZE);
		return;
	}
	c->sent = true;
	c->sent_at = p->last_traffic = loop_of(p)->now;
	p->n_sent++;
	link_send(p->link, FRAME_REQUEST, tag, m); /* may break the link and free c */
}

uint64_t peer_outstanding_max(const struct peer *p)
{
	return MAX(ROOM_MAX / MAX(p->load, 1u), ROOM_MIN);
}

static bool has_room(const struct peer *p, const struct call *c)
{
	return !p->outstanding || p->outstanding + c->mem->length <= peer_outstanding_max(p);
}

/* On a link that closes nothing is sent: calls get slots on the next one. */
static bool may_send(const struct peer *p)
{
	return p->state == PEER_UP && p->link->state == LINK_UP;
}

/* The next call to send, or NULL. A call with too much memory waits on `bulk`, and
 * so do all later calls with memory; calls without memory pass them. */
static struct call *next_call(struct peer *p)
{
	struct call *c, *first = list_first(&p->bulk, struct call, link);

	if (p->n_front) {
		list_for_each(c, &p->queue, link)
			if (c->front)
				return c;
		return NULL;
	}
	if (first && has_room(p, first))
		return first;
	while ((c = list_first(&p->queue, struct call, link)) && c->mem &&
	       (!list_empty(&p->bulk) || !has_room(p, c))) {
		list_del(&c->link);
		list_push(&p->bulk, &c->link);
	}
	return c;
}

/* The last slot is for calls with `front`. */
void peer_pump(struct peer *p)
{
	uint32_t slot = 0, limit;
	struct call *c;

	while (may_send(p) && (c = next_call(p))) {
		if (c->front) /* beyond the granted slots: calls in those may wait for this one */
			limit = SESSION_SLOTS;
		else
			limit = p->n_slots == 1 ? 1 : MIN(p->n_slots, SESSION_SLOTS - 1u);
		while (slot < limit && p->slots[slot].busy)
			slot++;
		if (slot >= limit)
			return;
		p->slots[slot].busy = true;
		p->slots[slot].call = c;
		c->slot = slot;
		c->sequence = ++p->slots[slot].sequence;
		c->counted_bytes = c->mem ? c->mem->length : 0;
		p->outstanding += c->counted_bytes;
		call_transmit(p, c);
	}
}

static void defer_over(struct timer *t)
{
	peer_pump(container_of(t, struct peer, defer_timer));
}

static bool defer_calls(struct peer *p)
{
	struct loop *l = loop_of(p);

	return p->defer_timer.when || timer_set(l, &p->defer_timer, l->now + DEFER_NS) == 0;
}

void peer_call(struct peer *p, struct call *c, struct req *q)
{
	c->peer = p;
	c->q = q;
	c->slot = NO_SLOT;
	c->queued_at = loop_of(p)->now;
	c->counted_bytes = 0;
	c->sent = c->is_cancelled = c->is_retracting = c->sends_again = false;
	c->status = 0;
	c->desc = (struct net_desc){ 0 };
	c->in = NULL;
	list_init(&c->link);
	c->timer.when = 0;
	c->timer.fire = call_timeout;
	req_hold(q);
	if (!p->net || p->state == PEER_HALTED) { /* the caller is about to be stopped, too */
		c->q = NULL;
		c->status = -ESHUTDOWN;
		req_done(q, -ESHUTDOWN, 0);
		return;
	}
	p->n_front += c->front;
	if (timer_set(loop_of(p), &c->timer, c->deadline)) {
		call_finish(c, -ENOMEM);
		return;
	}
	if (c->front)
		list_push_front(&p->queue, &c->link);
	else
		list_push(&p->queue, &c->link);
	if (p->state == PEER_IDLE)
		peer_dial(p);
	else if (!c->is_deferred || !defer_calls(p))
		peer_pump(p);
}

/* ---- replies ---- */

/* Finds the call of a reply (NULL: it was cancelled) and frees its slot. -EPROTO: no such request
 * was sent over this link. */
static int call_of_reply(struct peer *p, const struct wire_rep_head *h, uint64_t tag,
			 struct call **out)
{
	uint32_t slot = tag_slot(tag);
	struct peer_slot *s;

	*out = NULL;
	if (h->slot != slot || h->sequence != (uint32_t)tag)
		return -EPROTO;
	if (slot == NO_SLOT) {
		if (p->session_call.q && p->session_call.sequence == h->sequence)
			*out = &p->session_call;
		return 0;
	}
	if (slot >= SESSION_SLOTS)
		return -EPROTO;
	s = &p->slots[slot];
	if (!s->busy || s->sequence != h->sequence || (s->call && !s->call->sent))
		return -EPROTO;
	*out = s->call;
	release_slot(p, slot);
	return 0;
}

/* The server no longer knows the session. */
static bool session_gone(struct peer *p, const struct wire_rep_head *h)
{
	return h->status == ESTALE && h->slots == 0 && p->state == PEER_UP;
}

/* The call keeps its slot and sequence, and is sent again when its memory is safe. */
static void send_again(struct call *c)
{
	struct peer_slot *s = &c->peer->slots[c->slot];

	s->call = c;
	s->busy = true;
	c->sent = false;
	c->sends_again = !retract(c);
}

/* The server refused the call without executing it: the client's map was too old. The call is
 * retransmitted under the same numbers (it may have been executed over an earlier link), after the
 * calls that on_map_change() put in front. */
static void resend_with_map(struct peer *p, struct call *c, const struct wire_rep_head *h)
{
	send_again(c);
	peer_map(p, h->map_version);
	/* while calls are in front, those alone; this one may be such a call (a claim) */
	peer_resend(p);
	peer_pump(p);
}

static bool map_too_old(const struct call *c, const struct wire_rep_head *h)
{
	return c && c->slot != NO_SLOT && h->status == EREMCHG && h->map_version > c->map_version;
}

/* The server refused the call without executing it, for lack of room. It is retransmitted under the
 * same numbers after a delay. */
static bool no_room(const struct call *c, const struct wire_rep_head *h)
{
	return c && c->slot != NO_SLOT && h->status == EBUSY && h->slots == 0;
}

static void retry_over(struct timer *t)
{
	struct peer *p = container_of(t, struct peer, retry_timer);

	peer_resend(p);
	peer_pump(p);
}

static void retry_later(struct peer *p, struct call *c)
{
	struct loop *l = loop_of(p);
	uint32_t jitter;

	p->n_slots = MIN(p->n_slots, (uint32_t)BUSY_SLOTS);
	send_again(c);
	if (p->retry_timer.when)
		return;
	p->retry_ms = MIN(MAX(2 * p->retry_ms, (uint32_t)RETRY_MIN_MS), (uint32_t)RETRY_MAX_MS);
	l->env->clock->random(l->env, &jitter, sizeof(jitter));
	timer_set(l, &p->retry_timer,
		  l->now + (p->retry_ms + jitter % p->retry_ms) * NSEC_PER_MSEC / 2);
}

/* The time of a byte over this link: that of the fastest large call without others beside it. */
static void note_byte(struct peer *p, const struct call *c, uint64_t took)
{
	uint64_t all = 0, moved;
	double ns;

	if (p->through || !list_empty(&p->users)) /* the link has data of others, too */
		return;
	for (int i = 0; i < N_METHODS; i++)
		all += p->account.bytes[i];
	moved = all - p->bytes_before;
	p->bytes_before = all;
	if (moved < RATE_BYTES || c->sent_at < p->answered_at ||
	    p->outstanding != c->counted_bytes || link_has_rdma(p->link)) /* counted later */
		return;
	ns = (double)(took - MIN(took, p->round)) / (double)moved;
	p->byte_ns = p->byte_ns > 0 ? MIN(p->byte_ns, ns) : ns;
}

/* Records the response time. A call without memory measures the distance to the server, a call with
 * much data the rate of the link. */
static void record_latency(struct peer *p, const struct call *c)
{
	uint64_t now = loop_of(p)->now, took = now - c->sent_at;

	if (c->mem)
		note_byte(p, c, took);
	else
		p->round = p->round ? MIN(p->round, took) : took;
	if (p->through && p->round)
		p->through->round = p->through->round ? MIN(p->through->round, p->round) : p->round;
	p->account.busy += now - MAX(c->sent_at, p->answered_at);
	p->answered_at = now;
}

/* The reply of a call has arrived: decodes it and ends the call. x is behind the head; takes m. */
static int answered(struct call *c, const struct wire_rep_head *h, struct xdr *x, struct msg *m)
{
	struct peer *p = c->peer;
	int error = -h->status;
	bool is_garbage;

	p->renewed = MAX(p->renewed, c->sent_at);
	x->arena = c->arena;
	is_garbage = error == -EREMOTE ?
			     !xdr_wire_referral(x, &c->referral) :
			     !error && (!wire_op_rows[c->op].res(x, c->res) || xdr_left(x));
	if (is_garbage)
		error = -EBADMSG;
	if (error)
		peer_note_failure(p, error);
	c->head = *h;
	c->in = m;
	c->verifier = h->verifier;
	record_latency(p, c);
	c->desc.is_whole = !error && c->is_whole && c->is_whole(c);
	retract_and_finish(c, error);
	return is_garbage ? -EPROTO : 0; /* a server may also answer with EBADMSG */
}

int peer_reply(struct peer *owner, uint64_t tag, struct msg *m)
{
	struct peer *p = peer_on(owner, tag_channel(tag));
	struct wire_rep_head h;
	struct call *c;
	struct xdr x;
	int error;

	if (!p || p->state == PEER_HALTED) { /* this peer has ended, or has another channel */
		msg_free(m);
		return owner->last_channel ? 0 : -EPROTO;
	}
	xdr_decoder(&x, m->body, m->len, NULL);
	if (!xdr_wire_rep_head(&x, &h) || h.status < 0 || h.status >= 4096) {
		msg_free(m);
		return -EPROTO;
	}
	if (session_gone(p, &h)) {
		p->session = 0;
		msg_free(m);
		return -ESTALE; /* closes the link; the next one gets a new session */
	}
	error = call_of_reply(p, &h, tag, &c);
	if (error) {
		msg_free(m);
		return error;
	}
	if (h.slots)
		p->n_slots = MIN(h.slots, (uint32_t)SESSION_SLOTS);
	p->eager_bytes = h.eager_bytes;
	p->load = h.load;
	p->verifier = h.verifier;
	p->last_traffic = loop_of(p)->now;
	if (c && c->is_cancelled) {
		msg_free(m);
		c->is_cancelled = false;
		retract_and_finish(c, c->status);
		peer_pump(p);
		return 0;
	}
	if (map_too_old(c, &h)) {
		msg_free(m);
		resend_with_map(p, c, &h);
		return 0;
	}
	if (no_room(c, &h)) {
		msg_free(m);
		retry_later(p, c);
		return 0;
	}
	p->retry_ms = 0;
	peer_map(p, h.map_version);
	if (!c) { /* cancelled before */
		msg_free(m);
		peer_pump(p);
		return 0;
	}
	error = answered(c, &h, &x, m);
	peer_pump(p);
	return error;
}

/* ---- the peer loses or changes its link or session ---- */

void peer_unsend(struct peer *p)
{
	for (uint32_t i = 0; i < SESSION_SLOTS; i++) {
		struct call *c = p->slots[i].call;

		if (!c)
			continue;
		c->sent = false;
		call_fini(c);
		if (c->is_cancelled) {
			release_slot(p, i);
			call_finish(c, c->status);
		}
	}
}

void peer_resend(struct peer *p)
{
	for (uint32_t i = 0; i < SESSION_SLOTS && may_send(p); i++) {
		struct call *c = p->slots[i].call;

		if (!c || c->sent || c->is_retracting || (p->n_front && !c->front))
			continue;
		p->n_resent++;
		call_transmit(p, c);
	}
}

void peer_release_cancelled(struct peer *p)
{
	for (uint32_t i = 0; i < SESSION_SLOTS; i++)
		if (!p->slots[i].call)
			p->slots[i].busy = false;
}

void peer_forget_session(struct peer *p)
{
	struct list again = LIST_INIT(again);

	for (uint32_t i = 0; i < SESSION_SLOTS; i++) {
		struct call *c = p->slots[i].call;

		p->slots[i] = (struct peer_slot){ 0 };
		if (!c)
			continue;
		c->slot = NO_SLOT;
		uncount_memory(c);
		if (c->once)
			call_finish(c, -EIO);
		else
			list_push(&again, &c->link);
	}
	list_splice(&again, &p->bulk);
	list_splice(&again, &p->queue);
	list_splice(&p->queue, &again);
}

void peer_fail_queued(struct peer *p, int error)
{
	struct list now = LIST_INIT(now);
	struct call *c;

	list_splice(&now, &p->queue);
	list_splice(&now, &p->bulk);
	while ((c = list_first(&now, struct call, link)))
		call_finish(c, error);
}

void peer_fail_all(struct peer *p, int error)
{
	for (uint32_t i = 0; i < SESSION_SLOTS; i++) {
		struct call *c = p->slots[i].call;

		release_slot(p, i);
		if (c)
			call_finish(c, error);
	}
	peer_fail_queued(p, error);
}

void peer_calls_init(struct peer *p)
{
	list_init(&p->queue);
	list_init(&p->bulk);
	p->defer_timer.fire = defer_over;
	p->retry_timer.fire = retry_over;
}
