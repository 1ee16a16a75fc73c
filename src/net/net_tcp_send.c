/* net_tcp, the sending half.
 *
 * Control frames (messages, pulls) overtake bulk at chunk borders, so a small reply waits for at
 * most one chunk. The reply to a request that has data to send leaves with the last of them, in the
 * same system call. A turn of a server's loop sends bulk last: a reply on a link without bulk does
 * not wait for the bulk of other links. Transfers take turns chunk by chunk, and so do the links of
 * a server (pace.c). Bulk is sent with writev straight from the pool (puts) or from the user's
 * pieces (answers to pulls), at most IOV_CALL pieces a call, or with sendfile from an object's
 * file. A frame of user memory is begun only after its pages were touched, since the receiver may
 * use each byte as it arrives. If the memory is unmapped under the frame all the same, the link is
 * closed.
 *
 * Threads: the loop's. Buffers: those of a transfer are lent until it ends. Errors: any socket
 * error closes the link. */
#include <stdlib.h>

#include "net/net_tcp.h"

#define CONTROL_IOV 64 /* messages in one call */
#define DELAYED_MAX (64 * KIB) /* bytes of messages that are delayed to the end of a turn */
/* Bounds of the send queue: frames of one link, their memory, and the memory of all links. Slots
 * and windows keep a correct peer below them; a peer that requests without reading the replies must
 * not fill the server's memory, and the bound is lower while many peers do so. */

static struct xfer *first_bulk(struct tcp_link *t)
{
	return list_first(&t->bulk, struct xfer, link);
}

/* A transfer of this request that has data to send, other than x; NULL: there is none. */
static struct xfer *bulk_of(struct tcp_link *t, uint64_t tag, const struct xfer *x)
{
	struct xfer *y, *last = NULL;

	list_for_each(y, &t->bulk, link)
		if (y != x && y->q && y->tag == tag)
			last = y;
	return last;
}

static void set_status(struct tcp_link *t, struct xfer *x, int32_t status)
{
	struct xdr w;

	x->status = status;
	xdr_encoder(&w, t->tail, FRAME_TAIL);
	xdr_i32(&w, &x->status);
}

/* ---- a client's pieces ---- */

#define BOUNCE (64 * KIB) /* packed at once: stays in the processor's cache */
#define PROBE 64 /* pieces to look at, to decide whether packing continues */

bool tcp_look(struct tcp_link *t, struct net_desc *d, uint64_t at, uint64_t len, struct iovec *out,
	      size_t max, size_t *n, uint64_t *got)
{
	size_t most = d->packs ? MIN(max, (size_t)PROBE) : max;

	for (;; most = max) {
		*n = view_iov(d->view, at, len, out, most, got);
		if (d->method == METHOD_AUTO)
			d->packs = net_choose(t->l.costs, d->access == CAP_READ, *n, *got, 0) ==
				   METHOD_PACK;
		if (d->packs || most == max || *got == len)
			return d->packs;
	}
}

void tcp_moved(struct tcp_link *t, uint64_t n, bool packed)
{
	struct net_account *a = t->l.account;

	a->bytes[packed ? METHOD_PACK : METHOD_GATHER] += n;
	if (packed)
		a->copied += n;
}

/* Memory to pack len bytes. */
static bool room_for(struct tcp_link *t, uint64_t len)
{
	if (len > BOUNCE) {
		free(t->packed);
		t->packed = NULL;
	}
	if (!t->packed)
		t->packed = malloc(MAX(len, BOUNCE));
	return t->packed;
}

/* Copies the rest of the body, from byte `from` on, into private memory. */
static int pack_body(struct tcp_link *t, const struct xfer *x, uint64_t from)
{
	uint64_t len = t->frame_len - from;
	int r = view_copy_out(x->desc->view, x->at + x->done + from, t->packed, len);

	t->packed_at = from;
	t->packed_len = r ? 0 : len;
	return r;
}

/* Prepares the body of the next frame and shortens t->frame_len to what is packed at once or sent
 * in one call. */
static int find_body(struct tcp_link *t, struct xfer *x)
{
	struct iovec iov[IOV_CALL];
	uint64_t got;
	size_t n;

	if (tcp_look(t, x->desc, x->at + x->done, t->frame_len, iov, IOV_CALL, &n, &got) &&
	    room_for(t, BOUNCE)) {
		t->frame_len = MIN(t->frame_len, (uint32_t)BOUNCE);
		return pack_body(t, x, 0);
	}
	t->frame_len = (uint32_t)got;
	return n ? pieces_touch(iov, n) :
		   -EFAULT; /* never more than the memory has, whatever the peer requested */
}

/* ---- frames ---- */

static void begin_frame(struct tcp_link *t, struct xfer *x)
{
	struct wire_frame_head h = { .kind = FRAME_DATA, .tag = x->tag, .id = x->id };

	t->frame_len = (uint32_t)MIN(x->len - x->done, pace_chunk(&t->l));
	t->frame_sent = 0;
	t->pace.bulk_at = t->l.net->loop->now;
	t->packed_len = 0;
	t->in_frame = true;
	t->l.account->frames++;
	if (x->desc && t->frame_len && find_body(t, x)) {
		t->frame_len = 0;
		x->len = x->done;
		x->status = EFAULT;
		x->desc->error = -EFAULT;
	}
	h.length = t->frame_len;
	h.at = x->at + x->done;
	frame_head_encode(t->head, &h);
	set_status(t, x, x->status);
}

/* Pieces of the body from byte `skip` on. */
static size_t body_iov(struct tcp_link *t, struct xfer *x, uint64_t skip, struct iovec *out,
		       size_t max, uint64_t *got)
{
	uint64_t left = t->frame_len - skip, at = x->done + skip;
	struct net *n = t->l.net;
	size_t k, sum;

	if (x->iov) {
		k = iov_slice(x->iov, x->n, at, left, out, max, &sum);
		*got = sum;
		return k;
	}
	if (t->packed_len) {
		*got = left;
		out[0] = (struct iovec){ t->packed + (skip - t->packed_at), left };
		return 1;
	}
	if (x->desc)
		return view_iov(x->desc->view, x->at + at, left, out, max, got);
	if (!net_scratch(n))
		return 0;
	memset(n->scratch, 0, NET_SCRATCH);
	if (x->ext)
		left = MIN(left, x->zero_to - at);
	*got = MIN(left, NET_SCRATCH);
	out[0] = (struct iovec){ n->scratch, *got };
	return 1;
}

static struct iovec message_iov(const struct msg *m)
{
	return (struct iovec){ (uint8_t *)m + offsetof(struct msg, head) + m->sent,
			       FRAME_HEAD + m->len - m->sent };
}

/* The reply that leaves with the current frame, or NULL. */
static const struct msg *reply_behind(struct tcp_link *t, const struct xfer *x)
{
	bool last = x->reply && x->done + t->frame_len == x->len;

	return last && !bulk_of(t, x->tag, x) ? x->reply : NULL;
}

/* The unsent rest of the current frame, and a reply behind it. *all: the pieces reach its end. */
static size_t frame_iov(struct tcp_link *t, struct iovec *iov, size_t max, bool *all)
{
	uint64_t s = t->frame_sent, got = 0;
	const struct msg *m;
	size_t n = 0;

	*all = false;
	if (s < FRAME_HEAD) {
		iov[n++] = (struct iovec){ t->head + s, FRAME_HEAD - s };
		s = FRAME_HEAD;
	}
	s -= FRAME_HEAD;
	if (s < t->frame_len) {
		n += body_iov(t, first_bulk(t), s, iov + n, max - n - 2, &got);
		if (s + got < t->frame_len)
			return n;
		s = t->frame_len;
	}
	s -= t->frame_len;
	iov[n++] = (struct iovec){ t->tail + s, FRAME_TAIL - s };
	m = reply_behind(t, first_bulk(t));
	if (m)
		iov[n++] = message_iov(m);
	*all = true;
	return n;
}

static size_t control_iov(struct tcp_link *t, struct iovec *iov, size_t max)
{
	struct msg *m;
	size_t n = 0;

	list_for_each(m, &t->control, link) {
		if (n == max)
			break;
		iov[n++] = message_iov(m);
	}
	return n;
}

/* Counts a message that is now queued in `control`, or no longer. */
static void count_message(struct tcp_link *t, const struct msg *m, bool queued)
{
	size_t bytes = queued ? msg_memory(m) : -msg_memory(m);

	t->n_control += queued ? 1 : -1u;
	t->queued += bytes;
	t->l.net->queued += bytes;
}

static void free_message(struct tcp_link *t, struct msg *m)
{
	usage_give(&t->l.held, LIMIT_REPLY_BYTES, msg_memory(m));
	list_del(&m->link);
	msg_free(m);
}

static void drop_message(struct tcp_link *t, struct msg *m)
{
	count_message(t, m, false);
	free_message(t, m);
}

/* r bytes of control frames were sent. */
static void sent_control(struct tcp_link *t, size_t r)
{
	while (r) {
		struct msg *m = list_first(&t->control, struct msg, link);
		size_t left = FRAME_HEAD + m->len - m->sent;

		if (r < left) {
			m->sent += (uint32_t)r;
			return;
		}
		r -= left;
		t->out_at = t->l.net->loop->now;
		drop_message(t, m);
	}
}

static uint64_t frame_left(const struct tcp_link *t)
{
	return t->in_frame ? FRAME_HEAD + (uint64_t)t->frame_len + FRAME_TAIL - t->frame_sent : 0;
}

/* Data of its request have left: the reply waits for others, or is the next message. */
static void queue_reply(struct tcp_link *t, struct msg *m)
{
	struct xfer *x = bulk_of(t, m->behind, NULL);

	if (x && !x->reply) {
		x->reply = m;
		return;
	}
	list_push_front(&t->control, &m->link);
	count_message(t, m, true);
}

/* r bytes of the current frame were sent, at most the rest of it. */
static void sent_frame(struct tcp_link *t, size_t r)
{
	struct xfer *x = first_bulk(t);
	struct msg *reply = x->reply;

	t->frame_sent += r;
	if (frame_left(t))
		return;
	t->in_frame = false;
	t->out_at = t->l.net->loop->now;
	x->done += t->frame_len;
	if (x->desc)
		x->desc->moved = t->l.net->loop->now;
	if (x->desc)
		tcp_moved(t, t->frame_len, t->packed_len);
	if (x->done == x->len) {
		t->n_pulled -= !x->q;
		xfer_end(x, -x->status);
		if (reply)
			queue_reply(t, reply);
	} else { /* the next transfer's turn */
		list_del(&x->link);
		list_push(&t->bulk, &x->link);
	}
}

/* Sent bytes of the current frame's body. */
static uint64_t body_sent(const struct tcp_link *t)
{
	return t->frame_sent > FRAME_HEAD ? t->frame_sent - FRAME_HEAD : 0;
}

static bool in_file(const struct tcp_link *t, const struct xfer *x)
{
	uint64_t body = body_sent(t);

	return t->in_frame && x->ext && !x->iov && body < t->frame_len &&
	       x->done + body >= x->zero_to;
}

/* The file range at the current position of the frame, within one piece. */
static struct extent file_part(const struct tcp_link *t, const struct xfer *x)
{
	uint64_t body = body_sent(t);
	uint64_t skip = x->done + body, left = t->frame_len - body;
	const struct extent *e = x->ext;

	for (; skip >= e->length; e++)
		skip -= e->length;
	return (struct extent){ e->offset + skip, MIN(e->length - skip, left) };
}

/* Sends iov, the rest of the frame's head, and a part of the file. Bytes that the file no longer
 * holds are sent as zeros; after a read error zeros are sent and the tail carries the error. */
static ssize_t send_file_part(struct tcp_link *t, struct xfer *x, struct iovec *iov, size_t n,
			      size_t *want)
{
	struct env *e = env_of(t);
	struct extent part = file_part(t, x);
	ssize_t got;

	if (t->frame_sent < FRAME_HEAD)
		iov[n++] = (struct iovec){ t->head + t->frame_sent, FRAME_HEAD - t->frame_sent };
	*want = iov_total(iov, n) + part.length;
	count_calls(t, 1 + (n > 0));
	got = e->sock->send_file(e, t->src.fd, iov, (int)n, x->file, part.offset, part.length);
	if (got == 0 || got == -EIO || got == -EINVAL || got == -EOVERFLOW) {
		if (got == 0) { /* truncated meanwhile: zeros are its content */
			x->zero_to = x->done + body_sent(t) + part.length;
		} else {
			x->ext = NULL;
			set_status(t, x, EIO);
		}
		*want = 0;
		return 0;
	}
	return got;
}

/* Makes one system call that sends what is due. 0, -EAGAIN, or the error that breaks the link. */
static int send_some(struct tcp_link *t)
{
	struct env *e = env_of(t);
	struct iovec iov[IOV_CALL];
	bool frame_first = t->in_frame && t->frame_sent > 0, all = true;
	size_t n = 0, want, control = 0, sent = 0, r;
	ssize_t got;

	if (!frame_first)
		n = control_iov(t, iov, CONTROL_IOV);
	control = iov_total(iov, n);
	if (!t->in_frame && !list_empty(&t->bulk))
		begin_frame(t, first_bulk(t));
	if (t->in_frame && in_file(t, first_bulk(t))) {
		got = send_file_part(t, first_bulk(t), iov, n, &want);
	} else {
		if (t->in_frame)
			n += frame_iov(t, iov + n, IOV_CALL - CONTROL_IOV - n, &all);
		if (frame_first && all)
			n += control_iov(t, iov + n, CONTROL_IOV);
		want = iov_total(iov, n);
		count_calls(t, 1);
		got = want ? e->sock->writev(e, t->src.fd, iov, (int)n) : -ENOMEM;
	}
	if (got == -EFAULT && t->in_frame && first_bulk(t)->ext && first_bulk(t)->iov) {
		first_bulk(t)->iov = NULL; /* truncated meanwhile: sendfile tells its end */
		return 0;
	}
	if (got < 0)
		return (int)got;
	t->l.progress = t->l.net->loop->now;
	pace_use(&t->l, &t->pace, &t->pace.send, (size_t)got);
	if (!frame_first) {
		control = MIN(control, (size_t)got);
		sent_control(t, control);
		sent = control;
	}
	r = (size_t)MIN(frame_left(t), (uint64_t)got - sent);
	if (r)
		sent_frame(t, r); /* may put a reply in front of the messages */
	sent_control(t, (size_t)got - sent - r);
	return (size_t)got < want ? -EAGAIN : 0;
}

void tcp_flush(struct tcp_link *t)
{
	int r = 0;

	if (t->connecting || t->l.state >= LINK_CLOSING)
		return;
	while (r == 0 && !tcp_is_idle(t))
		r = frame_left(t) != FRAME_TAIL && pace_over(&t->l, &t->pace.send) ? -EAGAIN :
										     send_some(t);
	if (r && r != -EAGAIN) {
		link_close(&t->l, r);
		return;
	}
	tcp_watch(t, r == -EAGAIN ? EV_IN | EV_OUT : EV_IN);
	tcp_watch_stalls(t);
}

/* Sends after something was queued; was_idle: nothing was queued before. */
static void flush_queued(struct tcp_link *t, bool was_idle)
{
	if (was_idle)
		t->out_at = t->l.net->loop->now;
	if (was_idle || !list_empty(&t->deferred.link)) {
		list_del(&t->deferred.link);
		tcp_flush(t);
	}
}

void tcp_send_deferred(struct deferred *d)
{
	struct tcp_link *t = container_of(d, struct tcp_link, deferred);

	link_ref(&t->l);
	tcp_flush(t);
	link_unref(&t->l);
}

void tcp_send(struct link *l, struct msg *m)
{
	struct tcp_link *t = tcp_of(l);
	bool was_idle = tcp_is_idle(t);
	struct xfer *x = m->behind ? bulk_of(t, m->behind, NULL) : NULL;

	usage_add(&l->held, LIMIT_REPLY_BYTES, msg_memory(m));
	if (x && !x->reply) { /* it leaves with them; the pool bounds their number */
		x->reply = m;
		return;
	}
	list_push(&t->control, &m->link);
	count_message(t, m, true);
	link_ref(l);
	if (was_idle)
		t->out_at = l->net->loop->now;
	if (was_idle && l->state == LINK_UP && t->queued <= DELAYED_MAX)
		loop_defer(l->net->loop, &t->deferred);
	else if (list_empty(&t->deferred.link) || t->n_control == CONTROL_IOV ||
		 t->queued > DELAYED_MAX)
		flush_queued(t, was_idle); /* may close the link */
	if (l->state < LINK_CLOSING && link_queue_is_over(l, t->n_control, t->queued))
		link_close(l, -ENOBUFS);
	link_unref(l);
}

void tcp_send_bulk(struct tcp_link *t, struct xfer *x)
{
	bool was_idle = tcp_is_idle(t);

	list_push(&t->bulk, &x->link);
	if (t->l.dialled) {
		flush_queued(t, was_idle);
		return;
	}
	if (was_idle)
		t->out_at = t->l.net->loop->now;
	if (was_idle || !list_empty(&t->deferred.link))
		loop_defer_last(t->l.net->loop, &t->deferred);
}

void tcp_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	     size_t n, struct req *q)
{
	struct xfer *x = xfer_new(l->net, d->tag, at, src, n, q);

	if (!x) {
		req_done(q, -ENOMEM, 0);
		return;
	}
	tcp_send_bulk(tcp_of(l), x);
}

void tcp_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
		  const struct extent *ext, const struct iovec *mapped, size_t n, struct req *q)
{
	struct xfer *x = xfer_new(l->net, d->tag, at, mapped, mapped ? n : 0, q);

	if (!x) {
		req_done(q, -ENOMEM, 0);
		return;
	}
	x->file = file;
	x->ext = ext;
	x->len = 0;
	for (size_t i = 0; i < n; i++)
		x->len += ext[i].length;
	tcp_send_bulk(tcp_of(l), x);
}

/* The memory of the frame in progress is about to be withdrawn: copies its unsent part, since the
 * receiver expects the length in the head. */
static int keep_body(struct tcp_link *t, const struct xfer *x)
{
	uint64_t sent = MIN(body_sent(t), t->frame_len);

	if (t->packed_len || sent == t->frame_len)
		return 0;
	return room_for(t, t->frame_len - sent) ? pack_body(t, x, sent) : -ENOMEM;
}

int tcp_send_retract(struct tcp_link *t, struct net_desc *d)
{
	struct xfer *x;
	int r = 0;

	list_for_each(x, &t->bulk, link) {
		bool sending = x == first_bulk(t) && t->in_frame;

		if (x->desc != d)
			continue;
		if (sending)
			r = keep_body(t, x);
		x->desc = NULL;
		x->len = x->done + (sending ? t->frame_len : 0);
		if (sending) /* below 256: correct even if a part of the tail is already sent */
			set_status(t, x, ECANCELED);
		else
			x->status = ECANCELED;
	}
	return r;
}

void tcp_send_last(struct tcp_link *t)
{
	if (!list_empty(&t->deferred.link))
		while (!list_empty(&t->control) && send_some(t) == 0)
			;
	list_del(&t->deferred.link);
}

void tcp_drop_control(struct tcp_link *t)
{
	struct xfer *x;
	struct msg *m;

	list_for_each(x, &t->bulk, link) {
		if (x->reply)
			free_message(t, x->reply);
		x->reply = NULL;
	}
	while ((m = list_first(&t->control, struct msg, link)))
		drop_message(t, m);
}
