/* net_tcp: one framed stream per link.
 *
 * Sending: control frames (messages, pulls) overtake bulk at chunk borders, so a small reply waits for at
 * most one chunk; transfers take turns chunk by chunk, and so do the links of a server (pace.c). Bulk goes out with
 * writev straight from the pool (puts) or from the user's pieces (answers to pulls), at most IOV_CALL pieces a call.
 * Receiving: bulk is read with readv straight into its place.
 * Where a client's pieces are so small that the system takes longer over them than a copy does (net_choose), they are packed
 * into a buffer of the link before, or unpacked behind. Memory that is not there ends its request with -EFAULT, and
 * nothing else: a frame begins with what was found to be there, and its other end may use each byte as it comes. If it goes away
 * under the frame all the same, the link is closed.
 *
 * Threads: the loop's. Buffers: those of a transfer are lent until it ends. Errors: any socket error or
 * broken rule closes the link, which ends its transfers with -ECONNRESET. */
#include <stdlib.h>

#include "net/backend.h"
#include "net/frame.h"

#define IOV_CALL 1024
#define CONTROL_IOV 64 /* messages in one call */
#define TOGETHER (64 * KIB) /* of messages that wait for others of the same turn */
#define READS_PER_TURN 16
/* What waits to be sent: frames of one link, their memory, and that of all links together. Slots and windows
 * keep an honest peer below; one that asks and asks and does not read what it gets is not allowed to fill our
 * memory, and less so when many do. */
#define QUEUE_MAX 1024
#define QUEUE_BYTES ((size_t)SESSION_SLOTS * MSG_MAX)
#define QUEUE_ALL (8 * QUEUE_BYTES)
#define QUEUE_CROWDED (256 * KIB) /* of one link, beyond QUEUE_ALL */

struct tcp_link {
	struct link l;
	struct source src;
	struct frame_in in;
	struct list control; /* messages to send */
	struct list bulk; /* transfers to send, the first one is being sent */
	struct list gets; /* transfers whose data are to come */
	struct pace pace;
	struct late late; /* messages of this turn wait for each other */
	uint32_t n_control, n_pulled; /* messages, and answers to pulls, that wait to be sent */
	size_t queued; /* memory of the messages */
	uint64_t in_at, out_at, get_at; /* when each last got on; see stalled() */
	uint64_t got,
		get_mark; /* since get_at: bytes that came; the last transfer that was due then */
	/* the DATA frame being sent: that of the first transfer of bulk */
	bool in_frame;
	uint8_t head[FRAME_HEAD], tail[FRAME_TAIL];
	uint32_t frame_len; /* of its body */
	uint64_t frame_sent; /* of head, body and tail */
	uint8_t *packed; /* BOUNCE bytes or more; or NULL until they are needed */
	uint64_t packed_at; /* from this byte of the body on it is there, if packed_len; to its end */
	uint64_t packed_len;
	/* the DATA frame being received */
	struct xfer *rx_get;
	struct net_desc *rx_desc;
	uint64_t rx_at; /* its place in the stream or the transfer */
	bool unpacks; /* what was last asked for comes through the scratch memory ... */
	bool directly; /* ... or goes to the better place of a get */
	uint64_t next_id;
	bool connecting;
	bool got_bulk; /* a transfer has all its data in buffers: whoever waits for them goes first */
};

static struct tcp_link *tcp(struct link *l)
{
	return container_of(l, struct tcp_link, l);
}

static struct env *env_of(struct tcp_link *t)
{
	return t->l.net->loop->env;
}

static void count_calls(struct tcp_link *t, unsigned n)
{
	t->l.net->loop->calls += n;
	t->l.account->calls += n;
}

static void watch(struct tcp_link *t, unsigned events)
{
	struct env *e = env_of(t);

	if (t->src.events != events)
		e->sock->watch(e, t->l.net->loop, &t->src, events);
}

/* ---- stalls: a link that owes or is owed bytes must make progress, a whole frame at a time ----
 *
 * Single bytes do not count, nor frames of another kind, nor small ones in the place of a large one: what is owed to us
 * gets on when GET_STEP bytes of it have come, or all that was due when it last did. Who trickles, or chats while it
 * owes us data, holds our buffers no longer than who is silent. */
#define GET_STEP CHUNK_MAX /* a frame of one who sends what it has */

static bool idle(const struct tcp_link *t)
{
	return list_empty(&t->control) && list_empty(&t->bulk);
}

/* What is owed to us has got on, or begins to be owed. */
static void got_on(struct tcp_link *t)
{
	t->get_at = t->l.net->loop->now;
	t->got = 0;
	t->get_mark = t->next_id;
}

/* So many bytes of transfers, or the end of one, have come. */
static void got_some(struct tcp_link *t, uint64_t bytes)
{
	const struct xfer *first = list_first(&t->gets, struct xfer, link);

	t->got += bytes;
	if (t->got >= GET_STEP || (first && first->id > t->get_mark))
		got_on(t);
}

/* Since when the slowest of the three has not got on; UINT64_MAX: nothing is due. */
static uint64_t stuck_since(const struct tcp_link *t)
{
	uint64_t since = UINT64_MAX;

	if (!idle(t))
		since = t->out_at;
	if (!list_empty(&t->gets))
		since = MIN(since, t->get_at);
	if (frame_partial(&t->in))
		since = MIN(since, t->in_at);
	return since;
}

static void stalled(struct timer *tm)
{
	struct tcp_link *t = container_of(tm, struct tcp_link, l.patience);
	struct loop *lp = t->l.net->loop;
	uint64_t limit = t->l.net->id.timeout_ms * NSEC_PER_MSEC, since = stuck_since(t);

	if (since == UINT64_MAX)
		return;
	if (lp->now >= since + limit)
		link_close(&t->l, t->l.dialled ? -ETIMEDOUT : -ETIME);
	else
		timer_set(lp, tm, since + limit);
}

static void mind_stalls(struct tcp_link *t)
{
	struct timer *tm = &t->l.patience;
	struct loop *lp = t->l.net->loop;
	uint64_t since = stuck_since(t);

	if (t->l.state != LINK_UP || tm->when || since == UINT64_MAX)
		return;
	tm->fire = stalled;
	timer_set(lp, tm, since + t->l.net->id.timeout_ms * NSEC_PER_MSEC);
}

/* ---- sending ---- */

static struct xfer *first_bulk(struct tcp_link *t)
{
	return list_first(&t->bulk, struct xfer, link);
}

static void set_status(struct tcp_link *t, struct xfer *x, int32_t status)
{
	struct xdr w;

	x->status = status;
	xdr_encoder(&w, t->tail, FRAME_TAIL);
	xdr_i32(&w, &x->status);
}

/* ---- a client's pieces ---- */

#define BOUNCE (64 * KIB) /* packed at once: it stays in the processor's cache */
#define PROBE 64 /* pieces tell whether packing goes on */

/* The pieces of stream bytes [at, at + len), some of them; true: they had better be copied than given to the
 * system. */
static bool look(struct tcp_link *t, struct net_desc *d, uint64_t at, uint64_t len,
		 struct iovec *out, size_t max, size_t *n, uint64_t *got)
{
	if (d->mover == MOVER_PACK || d->packs)
		max = MIN(max, (size_t)PROBE);
	*n = view_iov(d->view, at, len, out, max, got);
	if (d->mover == MOVER_AUTO)
		d->packs = net_choose(&t->l.net->costs, d->access == CAP_READ, *n, *got, 0) ==
			   MOVER_PACK;
	else
		d->packs = d->mover == MOVER_PACK;
	return d->packs;
}

/* So many bytes of a client's data went through its link. */
static void moved(struct tcp_link *t, uint64_t n, bool packed)
{
	struct net_account *a = t->l.account;

	a->bytes[packed ? MOVER_PACK : MOVER_GATHER] += n;
	if (packed)
		a->copied += n;
}

/* Room to pack so many bytes. */
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

/* Copies the rest of the body, from its byte `from` on, to where nobody takes it away. */
static int pack_body(struct tcp_link *t, const struct xfer *x, uint64_t from)
{
	uint64_t len = t->frame_len - from;
	int r = view_copy_out(x->desc->view, x->at + x->done + from, t->packed, len);

	t->packed_at = from;
	t->packed_len = r ? 0 : len;
	return r;
}

/* How much of the next frame is there, at most t->frame_len: as much as is packed at once, or goes in one call. */
static int find_body(struct tcp_link *t, struct xfer *x)
{
	struct iovec iov[IOV_CALL];
	uint64_t got;
	size_t n;

	if (look(t, x->desc, x->at + x->done, t->frame_len, iov, IOV_CALL, &n, &got) &&
	    room_for(t, BOUNCE)) {
		t->frame_len = MIN(t->frame_len, (uint32_t)BOUNCE);
		return pack_body(t, x, 0);
	}
	t->frame_len = (uint32_t)got;
	return n ? pieces_touch(iov, n) :
		   -EFAULT; /* no more than there is, whatever was asked for */
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
		x->desc->bad = true;
	}
	h.length = t->frame_len;
	h.at = x->at + x->done;
	frame_head_encode(t->head, &h);
	set_status(t, x, x->status);
}

/* Pieces of the body from its byte `skip` on. */
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

/* What is left of the frame being sent; *all when that is everything. */
static size_t frame_iov(struct tcp_link *t, struct iovec *iov, size_t max, bool *all)
{
	uint64_t s = t->frame_sent, got = 0;
	size_t n = 0;

	*all = false;
	if (s < FRAME_HEAD) {
		iov[n++] = (struct iovec){ t->head + s, FRAME_HEAD - s };
		s = FRAME_HEAD;
	}
	s -= FRAME_HEAD;
	if (s < t->frame_len) {
		n += body_iov(t, first_bulk(t), s, iov + n, max - n - 1, &got);
		if (s + got < t->frame_len)
			return n;
		s = t->frame_len;
	}
	s -= t->frame_len;
	iov[n++] = (struct iovec){ t->tail + s, FRAME_TAIL - s };
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
		iov[n++] = (struct iovec){ (uint8_t *)m + offsetof(struct msg, head) + m->sent,
					   FRAME_HEAD + m->len - m->sent };
	}
	return n;
}

static size_t memory_of(const struct msg *m)
{
	return sizeof(*m) + m->cap;
}

static void drop_control(struct tcp_link *t, struct msg *m)
{
	t->n_control--;
	t->queued -= memory_of(m);
	t->l.net->queued -= memory_of(m);
	list_del(&m->link);
	msg_free(m);
}

/* r bytes of control went out. */
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
		drop_control(t, m);
	}
}

static uint64_t frame_left(const struct tcp_link *t)
{
	return t->in_frame ? FRAME_HEAD + (uint64_t)t->frame_len + FRAME_TAIL - t->frame_sent : 0;
}

/* r bytes of the frame went out, at most what was left of it. */
static void sent_frame(struct tcp_link *t, size_t r)
{
	struct xfer *x = first_bulk(t);

	t->frame_sent += r;
	if (frame_left(t))
		return;
	t->in_frame = false;
	t->out_at = t->l.net->loop->now;
	x->done += t->frame_len;
	if (x->desc)
		x->desc->moved = t->l.net->loop->now;
	if (x->desc)
		moved(t, t->frame_len, t->packed_len);
	if (x->done == x->len) {
		t->n_pulled -= !x->q;
		xfer_end(x, -x->status);
	} else { /* the next transfer's turn */
		list_del(&x->link);
		list_push(&t->bulk, &x->link);
	}
}

/* Bytes of the current frame's body that went out. */
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

/* The file's bytes at the current place of the frame: of one piece at a time. */
static struct extent file_part(const struct tcp_link *t, const struct xfer *x)
{
	uint64_t body = body_sent(t);
	uint64_t skip = x->done + body, left = t->frame_len - body;
	const struct extent *e = x->ext;

	for (; skip >= e->length; e++)
		skip -= e->length;
	return (struct extent){ e->offset + skip, MIN(e->length - skip, left) };
}

/* Sends what iov holds, the rest of the frame's head, and a part of the file behind them. What the
 * file does not hold any more is sent as zeros; when it cannot be read there is an error behind them. */
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
		if (got == 0) { /* cut meanwhile: zeros are what is there */
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

/* One call that sends what is due; 0, -EAGAIN, or what broke. */
static int send_some(struct tcp_link *t)
{
	struct env *e = env_of(t);
	struct iovec iov[IOV_CALL];
	bool frame_first = t->in_frame && t->frame_sent > 0, all = true;
	size_t n = 0, want, control = 0, r;
	uint64_t left;
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
		first_bulk(t)->iov = NULL; /* cut meanwhile: the file itself tells how much */
		return 0;
	}
	if (got < 0)
		return (int)got;
	t->l.progress = t->l.net->loop->now;
	pace_use(&t->l, &t->pace, &t->pace.send, (size_t)got);
	left = frame_left(t);
	if (frame_first) {
		r = (size_t)MIN(left, (uint64_t)got);
		sent_frame(t, r);
		sent_control(t, (size_t)got - r);
	} else {
		r = MIN(control, (size_t)got);
		sent_control(t, r);
		if ((size_t)got > r)
			sent_frame(t, (size_t)got - r);
	}
	return (size_t)got < want ? -EAGAIN : 0;
}

static void flush(struct tcp_link *t)
{
	int r = 0;

	if (t->connecting || t->l.state == LINK_CLOSED)
		return;
	while (r == 0 && !idle(t))
		r = pace_over(&t->l, &t->pace.send) ? -EAGAIN : send_some(t);
	if (r && r != -EAGAIN) {
		link_close(&t->l, r);
		return;
	}
	watch(t, r == -EAGAIN ? EV_IN | EV_OUT : EV_IN);
	mind_stalls(t);
}

/* Is more waiting for this client than an honest one can be owed? */
static bool too_much(const struct tcp_link *t)
{
	size_t most = t->l.net->queued > QUEUE_ALL ? QUEUE_CROWDED : QUEUE_BYTES;

	return !t->l.dialled && (t->n_control > QUEUE_MAX || t->queued > most);
}

/* Something was added to what is to be sent, which was idle before or not. */
static void added(struct tcp_link *t, bool was_idle)
{
	if (was_idle || !list_empty(&t->late.link)) {
		list_del(&t->late.link);
		t->out_at = t->l.net->loop->now;
		flush(t);
	}
}

static void send_late(struct late *late)
{
	struct tcp_link *t = container_of(late, struct tcp_link, late);

	link_ref(&t->l);
	added(t, true);
	link_unref(&t->l);
}

static void tcp_send(struct link *l, struct msg *m)
{
	struct tcp_link *t = tcp(l);
	bool was_idle = idle(t);

	list_push(&t->control, &m->link);
	t->n_control++;
	t->queued += memory_of(m);
	l->net->queued += memory_of(m);
	link_ref(l);
	if (was_idle)
		t->out_at = l->net->loop->now;
	if (was_idle && l->state == LINK_UP && t->queued <= TOGETHER)
		loop_late(l->net->loop, &t->late);
	else if (list_empty(&t->late.link) || t->n_control == CONTROL_IOV || t->queued > TOGETHER)
		added(t, was_idle); /* may break it */
	if (l->state != LINK_CLOSED && too_much(t))
		link_close(l, -ENOBUFS);
	link_unref(l);
}

static void send_bulk(struct tcp_link *t, struct xfer *x)
{
	bool was_idle = idle(t);

	list_push(&t->bulk, &x->link);
	added(t, was_idle);
}

static void tcp_put(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		    const struct iovec *src, size_t n, struct req *q)
{
	struct xfer *x = xfer_new(l->net, d->tag, at, src, n, q);

	if (!x) {
		req_done(q, -ENOMEM, 0);
		return;
	}
	send_bulk(tcp(l), x);
}

static void tcp_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
			 const struct extent *ext, const struct iovec *mapped, size_t n,
			 struct req *q)
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
	send_bulk(tcp(l), x);
}

static void tcp_get(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		    const struct iovec *dst, size_t n, struct net_direct *direct, struct req *q)
{
	struct tcp_link *t = tcp(l);
	struct xfer *x = xfer_new(l->net, 0, at, dst, n, q);
	struct msg *m = msg_new(l->net, 0);
	struct wire_frame_head h = { .kind = FRAME_PULL, .tag = d->tag, .at = at };

	if (!x || !m) {
		msg_free(m);
		if (x)
			xfer_end(x, -ENOMEM);
		else
			req_done(q, -ENOMEM, 0);
		return;
	}
	x->id = ++t->next_id;
	x->direct = direct;
	t->pace.bulk_at = t->l.net->loop->now;
	if (list_empty(&t->gets))
		got_on(t);
	list_push(&t->gets, &x->link);
	h.want = (uint32_t)x->len;
	h.id = x->id;
	frame_head_encode(m->head, &h);
	tcp_send(l, m);
	mind_stalls(t);
}

/* The memory of the frame that is being sent is about to go: its other end waits for all that the head said. */
static int keep_body(struct tcp_link *t, const struct xfer *x)
{
	uint64_t sent = MIN(body_sent(t), t->frame_len);

	if (t->packed_len || sent == t->frame_len)
		return 0;
	return room_for(t, t->frame_len - sent) ? pack_body(t, x, sent) : -ENOMEM;
}

static void tcp_retract(struct link *l, struct net_desc *d, struct req *q)
{
	struct tcp_link *t = tcp(l);
	struct xfer *x;
	int r = 0;

	(void)q; /* only we touch our memory: it is safe at once */
	if (t->rx_desc == d)
		t->rx_desc = NULL;
	list_for_each(x, &t->bulk, link) {
		bool sending = x == first_bulk(t) && t->in_frame;

		if (x->desc != d)
			continue;
		if (sending)
			r = keep_body(t, x);
		x->desc = NULL;
		x->len = x->done + (sending ? t->frame_len : 0);
		if (sending) /* below 256: right even when a part of the tail is on its way */
			set_status(t, x, ECANCELED);
		else
			x->status = ECANCELED;
	}
	if (r)
		link_close(l, r);
}

/* ---- receiving ---- */

/* The server asks for memory of ours. */
static int on_pull(struct tcp_link *t, const struct wire_frame_head *h)
{
	struct net_desc *d = link_desc(&t->l, h->tag);
	struct xfer *x;

	if (d &&
	    (d->access != CAP_READ || h->at > d->view->length || h->want > d->view->length - h->at))
		return -EPROTO;
	if (t->n_pulled >= QUEUE_MAX)
		return -EBADMSG;
	x = xfer_new(t->l.net, h->tag, h->at, NULL, 0, NULL);
	if (!x)
		return -ENOMEM;
	t->n_pulled++;
	if (d)
		d->moved = t->l.net->loop->now;
	x->id = h->id;
	x->desc = d;
	x->len = d ? h->want : 0;
	x->status = d ? 0 : ECANCELED;
	send_bulk(t, x);
	return 0;
}

static struct xfer *find_get(struct tcp_link *t, uint64_t id)
{
	struct xfer *x;

	list_for_each(x, &t->gets, link)
		if (x->id == id)
			return x;
	return NULL;
}

static int on_data_head(struct tcp_link *t, const struct wire_frame_head *h)
{
	t->rx_at = h->at;
	t->rx_get = NULL;
	t->rx_desc = NULL;
	if (t->l.dialled) {
		struct net_desc *d = link_desc(&t->l, h->tag);

		if (d && (d->access != CAP_WRITE || h->at > d->view->length ||
			  h->length > d->view->length - h->at))
			return -EPROTO;
		t->rx_desc = d; /* NULL: retracted, the bytes are dropped */
		if (d)
			d->moved = t->l.net->loop->now;
		return 0;
	}
	t->rx_get = find_get(t, h->id);
	if (!t->rx_get || h->at != t->rx_get->at + t->rx_get->done ||
	    h->length > t->rx_get->len - t->rx_get->done)
		return -EPROTO;
	return 0;
}

static int sink_head(void *arg, const struct wire_frame_head *h)
{
	struct tcp_link *t = arg;
	int r = link_check_head(&t->l, h);

	t->l.account->frames++;
	if (!r && h->kind == FRAME_DATA)
		r = on_data_head(t, h);
	return r;
}

/* Of a get. */
static size_t place_of_get(struct tcp_link *t, uint64_t at, uint64_t len, struct iovec *out,
			   size_t max, uint64_t *got)
{
	const struct xfer *x = t->rx_get;
	struct net_direct *d = x->direct;
	size_t n, sum;

	len = MIN(len, pace_chunk(&t->l));
	t->directly = d && d->done == x->done + at && d->done < d->len && d->may(d);
	if (t->directly)
		n = iov_slice(d->iov, d->n, d->done, MIN(len, d->len - d->done), out, max, &sum);
	else
		n = iov_slice(x->iov, x->n, x->done + at, len, out, max, &sum);
	*got = sum;
	return n;
}

static size_t sink_place(void *arg, uint64_t at, uint64_t len, struct iovec *out, size_t max,
			 uint64_t *got)
{
	struct tcp_link *t = arg;
	size_t n;

	t->unpacks = t->directly = false;
	if (t->rx_desc) {
		if (look(t, t->rx_desc, t->rx_at + at, len, out, max, &n, got) &&
		    net_scratch(t->l.net)) {
			t->unpacks = true;
			*got = MIN(len, NET_SCRATCH);
			out[0] = (struct iovec){ t->l.net->scratch, *got };
			n = 1;
		}
		return n;
	}
	return t->rx_get ? place_of_get(t, at, len, out, max, got) : 0;
}

static bool sink_came(void *arg, uint64_t at, uint64_t n, int error)
{
	struct tcp_link *t = arg;

	if (t->directly) {
		if (error) /* then to the buffers */
			t->rx_get->direct = NULL;
		else
			t->rx_get->direct->done += n;
		return !error;
	}
	if (!t->rx_desc)
		return true;
	if (!error && t->unpacks)
		error = view_copy_in(t->rx_desc->view, t->rx_at + at, t->l.net->scratch, n);
	moved(t, n, t->unpacks);
	if (error) { /* the rest is dropped */
		t->rx_desc->bad = true;
		t->rx_desc = NULL;
	}
	return true;
}

static int sink_data_end(void *arg, int32_t status)
{
	struct tcp_link *t = arg;
	struct xfer *x = t->rx_get;

	t->in_at = t->l.net->loop->now;
	t->rx_get = NULL;
	t->rx_desc = NULL;
	if (!x)
		return 0; /* a put: an error in it comes with the reply */
	x->done += t->in.h.length;
	/* what is in its place already is in no hurry */
	t->got_bulk = (status || x->done == x->len) && !(x->direct && x->direct->done);
	if (status)
		xfer_end(x, status > 0 && status < 4096 ? -status : -EIO);
	else if (x->done == x->len)
		xfer_end(x, 0);
	else if (t->in.h.length == 0)
		return -EPROTO;
	got_some(t, t->in.h.length);
	return 0;
}

static int sink_message(void *arg, const struct wire_frame_head *h, struct msg *m)
{
	struct tcp_link *t = arg;

	t->in_at = t->l.net->loop->now;
	if (h->kind != FRAME_PULL)
		return link_message(&t->l, h->kind, h->tag, m);
	msg_free(m);
	return on_pull(t, h);
}

static bool sink_bulk(void *arg)
{
	struct tcp_link *t = arg;
	struct net_desc *d;

	list_for_each(d, &t->l.descs, link)
		if (d->access == CAP_WRITE)
			return true;
	return !list_empty(&t->gets);
}

static const struct frame_sink sink = { sink_head,     sink_place,   sink_came,
					sink_data_end, sink_message, sink_bulk };

/* Until the socket is empty, but not beyond the end of a transfer: its data are used while they are in
 * the processor's cache, and while more come in. */
static void receive(struct tcp_link *t)
{
	struct env *e = env_of(t);
	struct iovec iov[IOV_CALL];
	int error = 0;

	t->got_bulk = false;
	for (int i = 0; i < READS_PER_TURN && !error && !t->got_bulk && t->l.state != LINK_CLOSED &&
			!pace_over(&t->l, &t->pace.receive);
	     i++) {
		size_t n = frame_want(&t->in, iov, IOV_CALL), want = iov_total(iov, n);
		ssize_t r = n ? e->sock->readv(e, t->src.fd, iov, (int)n) : -ENOMEM;

		count_calls(t, 1);
		if (r == -EAGAIN)
			break;
		if (r == -EFAULT &&
		    (t->rx_desc || t->directly)) { /* the bytes are still there to be read */
			sink_came(t, 0, 0, (int)r);
			continue;
		}
		if (r <= 0) {
			error = r < 0 ? (int)r : -ECONNRESET;
			break;
		}
		pace_use(&t->l, &t->pace, &t->pace.receive, (size_t)r);
		t->l.progress = t->l.net->loop->now;
		if (!frame_partial(&t->in))
			t->in_at = t->l.progress;
		error = frame_got(&t->in, (size_t)r);
		if ((size_t)r < want)
			break;
	}
	if (error)
		link_close(&t->l, error);
	else
		mind_stalls(t);
}

static void tcp_ready(struct source *s, unsigned events)
{
	struct tcp_link *t = container_of(s, struct tcp_link, src);
	struct env *e = env_of(t);
	int r;

	pace_heard(&t->l, &t->pace, !list_empty(&t->bulk) || !list_empty(&t->gets));
	link_ref(&t->l);
	if (t->connecting) {
		r = e->sock->connect_result(e, s->fd);
		t->connecting = false;
		if (r) {
			link_close(&t->l, r);
		} else {
			watch(t, EV_IN);
			link_connected(&t->l);
		}
		events = 0;
	}
	if (events & (EV_IN | EV_ERR))
		receive(t);
	if ((events & EV_OUT) && t->l.state != LINK_CLOSED)
		flush(t);
	link_unref(&t->l);
}

/* ---- life ---- */

static void end_all(struct list *xfers, int error)
{
	struct xfer *x;

	while ((x = list_first(xfers, struct xfer, link)))
		xfer_end(x, error);
}

static void tcp_shut(struct link *l, int error)
{
	struct tcp_link *t = tcp(l);
	struct env *e = env_of(t);
	struct msg *m;

	if (!list_empty(&t->late.link)) /* what was said before goes first */
		while (!idle(t) && send_some(t) == 0)
			;
	list_del(&t->late.link);
	watch(t, 0);
	e->sock->close(e, t->src.fd);
	frame_fini(&t->in);
	t->rx_get = NULL;
	t->rx_desc = NULL;
	end_all(&t->bulk, error);
	end_all(&t->gets, error);
	while ((m = list_first(&t->control, struct msg, link)))
		drop_control(t, m);
}

static void tcp_destroy(struct link *l)
{
	struct tcp_link *t = tcp(l);

	free(t->packed);
	free(t);
}

static const struct net_ops tcp_ops = {
	.name = "tcp",
	.send = tcp_send,
	.retract = tcp_retract,
	.put = tcp_put,
	.put_file = tcp_put_file,
	.get = tcp_get,
	.shut = tcp_shut,
	.destroy = tcp_destroy,
};

static struct tcp_link *tcp_new(struct net *n, int fd, struct peer *p, uint32_t target)
{
	struct tcp_link *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	list_init(&t->control);
	list_init(&t->bulk);
	list_init(&t->gets);
	list_init(&t->late.link);
	t->late.run = send_late;
	t->src.fd = fd;
	t->src.ready = tcp_ready;
	t->connecting = p != NULL;
	frame_init(&t->in, n, &sink, t);
	link_init(&t->l, n, &tcp_ops, p, target);
	watch(t, p ? EV_OUT : EV_IN);
	return t;
}

int tcp_dial(struct net *n, struct peer *p, const char *address, uint32_t target, struct link **out)
{
	struct env *e = n->loop->env;
	int fd = e->sock->connect(e, address);
	struct tcp_link *t;

	if (fd < 0)
		return fd;
	t = tcp_new(n, fd, p, target);
	if (!t) {
		e->sock->close(e, fd);
		return -ENOMEM;
	}
	*out = &t->l;
	return 0;
}

struct link *tcp_accepted(struct net *n, int fd)
{
	struct tcp_link *t = tcp_new(n, fd, NULL, 0);

	return t ? &t->l : NULL;
}
