/* net_tcp: one framed stream per link. Receiving, stall detection and closing; net_tcp_send.c
 * sends.
 *
 * Bulk is read with readv straight into its destination. If a client's pieces are so small that the
 * kernel takes longer over them than a copy does (net_choose), they go through a buffer. Memory
 * that is not mapped ends its request with -EFAULT and affects nothing else.
 *
 * Threads: the loop's. Buffers: those of a transfer are lent until it ends. Errors: any socket
 * error or broken rule closes the link, which ends its transfers with -ECONNRESET. */
#include <stdlib.h>

#include "net/net_tcp.h"
#include "net/peer.h"
#include "net/rdma.h"

#define READS_PER_TURN 16

void tcp_watch(struct tcp_link *t, unsigned events)
{
	struct env *e = env_of(t);

	if (t->src.events != events)
		e->sock->watch(e, t->l.net->loop, &t->src, events);
}

/* ---- stalls: a link with bytes due in either direction must progress by whole frames ----
 *
 * Gets progress when GET_STEP bytes of them have come, or all gets that were due at the last
 * progress are done. Single bytes, other frames and small DATA frames in place of a large one do
 * not count: a peer that trickles, or sends only control frames while data is due, times out like a
 * silent one. */
#define GET_STEP CHUNK_MAX /* one full frame */

/* Gets have progressed, or the first one begins. */
static void gets_progressed(struct tcp_link *t)
{
	t->get_at = t->l.net->loop->now;
	t->got = 0;
	t->get_mark = t->next_id;
}

/* Bytes of gets, or the end of one, have arrived. */
static void gets_received(struct tcp_link *t, uint64_t bytes)
{
	const struct xfer *first = list_first(&t->gets, struct xfer, link);

	t->got += bytes;
	if (t->got >= GET_STEP || (first && first->id > t->get_mark))
		gets_progressed(t);
}

/* Time of the oldest progress of sending, gets and receiving; UINT64_MAX: nothing is due. */
static uint64_t stuck_since(const struct tcp_link *t)
{
	uint64_t since = UINT64_MAX;

	if (!tcp_is_idle(t))
		since = t->out_at;
	if (!list_empty(&t->gets))
		since = MIN(since, t->get_at);
	if (frame_partial(&t->in))
		since = MIN(since, t->in_at);
	return since;
}

static void stalled(struct timer *tm)
{
	struct tcp_link *t = container_of(tm, struct tcp_link, l.timeout);
	struct loop *lp = t->l.net->loop;
	uint64_t limit = t->l.net->id.timeout_ms * NSEC_PER_MSEC, since = stuck_since(t);

	if (since == UINT64_MAX)
		return;
	if (lp->now >= since + limit)
		link_close(&t->l, t->l.dialled ? -ETIMEDOUT : -ETIME);
	else
		timer_set(lp, tm, since + limit);
}

void tcp_watch_stalls(struct tcp_link *t)
{
	struct timer *tm = &t->l.timeout;
	struct loop *lp = t->l.net->loop;
	uint64_t since = stuck_since(t);

	if (t->l.state != LINK_UP || tm->when || since == UINT64_MAX)
		return;
	tm->fire = stalled;
	timer_set(lp, tm, since + t->l.net->id.timeout_ms * NSEC_PER_MSEC);
}

void tcp_get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
	     size_t n, struct net_direct *direct, struct req *q)
{
	struct tcp_link *t = tcp_of(l);
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
	x->asked = t->l.net->loop->now;
	x->is_alone = list_empty(&t->gets);
	t->pace.bulk_at = t->l.net->loop->now;
	if (list_empty(&t->gets))
		gets_progressed(t);
	list_push(&t->gets, &x->link);
	h.want = (uint32_t)x->len;
	h.id = x->id;
	frame_head_encode(m->head, &h);
	tcp_send(l, m);
	tcp_watch_stalls(t);
}

/* Only this process moves the bytes: the memory is safe at once. */
bool tcp_retract(struct link *l, struct net_desc *d)
{
	struct tcp_link *t = tcp_of(l);
	int r;

	if (t->rx_desc == d)
		t->rx_desc = NULL;
	r = tcp_send_retract(t, d);
	if (r) {
		list_del(&d->link); /* it ends here, not with the link */
		list_del(&t->deferred.link); /* nothing of the frame without a body is sent */
		link_close(l, r);
	}
	return true;
}

/* The server requests bytes of exposed memory. */
static int on_pull(struct tcp_link *t, const struct wire_frame_head *h)
{
	struct net_desc *d = link_desc(&t->l, h->tag);
	struct xfer *x;

	if (d &&
	    (d->access != CAP_READ || h->at > d->view->length || h->want > d->view->length - h->at))
		return link_fault(&t->l, "a PULL of memory that it may not read");
	if (t->n_pulled >= QUEUE_MAX * (1 + t->l.peer->by_channel.count))
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
	tcp_send_bulk(t, x);
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
			return link_fault(&t->l, "data for memory that it may not write");
		t->rx_desc = d; /* NULL: retracted, the bytes are dropped */
		if (d)
			d->moved = t->l.net->loop->now;
		return 0;
	}
	t->rx_get = find_get(t, h->id);
	if (!t->rx_get || h->at != t->rx_get->at + t->rx_get->done ||
	    h->length > t->rx_get->len - t->rx_get->done)
		return link_fault(&t->l, "data that were not asked for");
	if (!t->rx_get->done)
		link_note_delay(&t->l, t->rx_get);
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

/* Destination of bytes of a get. */
static size_t place_of_get(struct tcp_link *t, uint64_t at, uint64_t len, struct iovec *out,
			   size_t max, uint64_t *got)
{
	const struct xfer *x = t->rx_get;
	struct net_direct *d = x->direct;
	size_t n, sum;

	len = MIN(len, pace_chunk(&t->l));
	t->is_direct = d && d->done == x->done + at && d->done < d->len && d->may(d);
	if (t->is_direct)
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

	t->is_unpacking = t->is_direct = false;
	if (t->rx_desc) {
		if (tcp_look(t, t->rx_desc, t->rx_at + at, len, out, max, &n, got) &&
		    net_scratch(t->l.net)) {
			t->is_unpacking = true;
			*got = MIN(len, NET_SCRATCH);
			out[0] = (struct iovec){ t->l.net->scratch, *got };
			n = 1;
		}
		return n;
	}
	return t->rx_get ? place_of_get(t, at, len, out, max, got) : 0;
}

static bool sink_stored(void *arg, uint64_t at, uint64_t n, int error)
{
	struct tcp_link *t = arg;

	if (t->is_direct) {
		if (error) /* use the buffers from now on */
			t->rx_get->direct = NULL;
		else
			t->rx_get->direct->done += n;
		return !error;
	}
	if (!t->rx_desc)
		return true;
	if (!error && t->is_unpacking)
		error = view_copy_in(t->rx_desc->view, t->rx_at + at, t->l.net->scratch, n);
	tcp_moved(t, n, t->is_unpacking);
	if (error) { /* drop the rest */
		t->rx_desc->error = -EFAULT;
		t->rx_desc = NULL;
	}
	return true;
}

static int sink_data_end(void *arg, int32_t status)
{
	struct tcp_link *t = arg;
	struct xfer *x = t->rx_get;
	struct net_desc *d = t->rx_desc;

	t->in_at = t->l.net->loop->now;
	t->rx_get = NULL;
	t->rx_desc = NULL;
	if (d && status && !d->error) /* a put that failed: its reply may have been ready before */
		d->error = status > 0 && status < 4096 ? -status : -EIO;
	if (!x)
		return 0;
	x->done += t->in.h.length;
	/* data in its final place needs no quick handling */
	t->got_bulk = (status || x->done == x->len) && !(x->direct && x->direct->done);
	if (status)
		xfer_end(x, status > 0 && status < 4096 ? -status : -EIO);
	else if (x->done == x->len)
		xfer_end(x, 0);
	else if (t->in.h.length == 0)
		return link_fault(&t->l, "a part of data without a byte");
	gets_received(t, t->in.h.length);
	return 0;
}

static int sink_message(void *arg, const struct wire_frame_head *h, struct msg *m)
{
	struct tcp_link *t = arg;

	t->in_at = t->l.net->loop->now;
	if (h->kind != FRAME_PULL && h->kind != FRAME_WORKING)
		return link_message(&t->l, h->kind, h->tag, m);
	msg_free(m);
	if (h->kind == FRAME_PULL)
		return on_pull(t, h);
	rdma_working(&t->l, h);
	return 0;
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

static const struct frame_sink sink = { sink_head,     sink_place,   sink_stored,
					sink_data_end, sink_message, sink_bulk };

/* Reads until the socket is empty, but not beyond the end of a transfer: its data are used while
 * they are in the processor's cache and more arrive. */
static void receive(struct tcp_link *t)
{
	struct env *e = env_of(t);
	struct iovec iov[IOV_CALL];
	int error = 0;

	t->got_bulk = false;
	for (int i = 0; i < READS_PER_TURN && !error && !t->got_bulk && t->l.state < LINK_CLOSING &&
			!pace_over(&t->l, &t->pace.receive);
	     i++) {
		size_t n = frame_want(&t->in, iov, IOV_CALL), want = iov_total(iov, n);
		ssize_t r = n ? e->sock->readv(e, t->src.fd, iov, (int)n) : -ENOMEM;

		count_calls(t, 1);
		if (r == -EAGAIN)
			break;
		if (r == -EFAULT &&
		    (t->rx_desc || t->is_direct)) { /* the bytes are still in the socket */
			sink_stored(t, 0, 0, (int)r);
			continue;
		}
		if (r <= 0) {
			error = r < 0 ? (int)r : -ECONNRESET;
			break;
		}
		pace_use(&t->l, &t->pace, &t->pace.receive, (size_t)r);
		tcp_note_inflow(t, (size_t)r);
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
		tcp_watch_stalls(t);
}

static void tcp_ready(struct source *s, unsigned events)
{
	struct tcp_link *t = container_of(s, struct tcp_link, src);
	struct env *e = env_of(t);
	int r;

	pace_note_work(&t->l, &t->pace, !list_empty(&t->bulk) || !list_empty(&t->gets));
	link_ref(&t->l);
	if (t->connecting) {
		r = e->sock->connect_result(e, s->fd);
		t->connecting = false;
		if (r) {
			link_close(&t->l, r);
		} else {
			tcp_watch(t, EV_IN);
			link_connected(&t->l);
		}
		events = 0;
	}
	if (events & (EV_IN | EV_ERR))
		receive(t);
	if ((events & EV_OUT) && t->l.state < LINK_CLOSING) {
		if (t->l.dialled || list_empty(&t->bulk))
			tcp_flush(t);
		else
			loop_defer_last(t->l.net->loop, &t->deferred);
	}
	link_unref(&t->l);
}

/* ---- life ---- */

static void end_all(struct list *xfers, int error)
{
	struct xfer *x;

	while ((x = list_first(xfers, struct xfer, link)))
		xfer_end(x, error);
}

static void tcp_shut(struct link *l, int error, bool now)
{
	struct tcp_link *t = tcp_of(l);
	struct env *e = env_of(t);

	(void)now; /* a socket does not touch memory after a call */
	tcp_send_last(t); /* flush delayed messages first */
	tcp_watch(t, 0);
	e->sock->close(e, t->src.fd);
	frame_fini(&t->in);
	t->rx_get = NULL;
	t->rx_desc = NULL;
	tcp_drop_control(t);
	end_all(&t->bulk, error);
	end_all(&t->gets, error);
	link_shut(l);
}

static void tcp_destroy(struct link *l)
{
	struct tcp_link *t = tcp_of(l);

	free(t->packed);
	free(t);
}

const struct net_ops tcp_ops = {
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
	list_init(&t->deferred.link);
	t->deferred.run = tcp_send_deferred;
	t->src.fd = fd;
	t->src.ready = tcp_ready;
	t->connecting = p != NULL;
	frame_init(&t->in, n, &sink, t);
	link_init(&t->l, n, &tcp_ops, p, target);
	tcp_watch(t, p ? EV_OUT : EV_IN);
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
	if (sock_is_local(address))
		link_set_local(&t->l, e->sock->user(e, -1));
	*out = &t->l;
	return 0;
}

struct link *tcp_accepted(struct net *n, int fd)
{
	struct tcp_link *t = tcp_new(n, fd, NULL, 0);

	return t ? &t->l : NULL;
}
