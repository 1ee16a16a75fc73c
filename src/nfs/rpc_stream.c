/* RPC over streams of bytes: records of fragments. The streams are those of the loop's environment:
 * of TCP, or of the simulation.
 *
 * Buffers: bytes are received into the buffer of a large record that is under way, and what follows
 * into one buffer for all connections, from which records are copied to buffers of their own. A
 * connection is read only while it has few calls in progress and there is memory for one more
 * record; else it is paused. So it is while one of its READs waits for memory. Errors: what is no
 * record closes the connection. One that takes nothing of its replies for STUCK_NS is closed,
 * paused or not, since its replies keep memory from others; so is one that is in the middle of a
 * record, unless its other calls hold it up. Calls outlive their connection; their replies are
 * then dropped. */
#include <stdlib.h>
#include <sys/uio.h>

#include "nfs/nfs_priv.h"

#define STASH (64 * KIB)
#define CONN_CALLS_MAX 64 /* of one connection, until their replies are sent */
#define FRAGMENTS_MAX 1024 /* of one record */
#define SEND_BATCH 16 /* replies in one system call */
#define STUCK_NS (60 * NSEC_PER_SEC)

struct stream {
	struct nfs_source source;
	struct list link; /* in g->conns, or in g->dead_conns */
	struct list wait; /* in g->paused */
	struct list unsent; /* in g->unsent: has replies to send */
	struct origin from, to;
	uint16_t port;
	uint8_t mark[RECORD_MARK];
	unsigned n_mark; /* bytes of it */
	uint32_t left; /* bytes of the fragment that are still to come */
	bool last; /* it is the last of its record */
	unsigned n_fragments;
	struct nfs_call *call; /* whose record is being received */
	struct list held; /* received calls that wait until fewer are running */
	struct list replies;
	unsigned n_calls; /* including `call` and those in `held` and `replies` */
	unsigned n_running; /* those that were passed to tasks */
	size_t data_used; /* bytes of data that are reserved for them */
	uint64_t received_at; /* when bytes came, or its pause ended */
	uint64_t sent_at; /* when bytes of replies left, or the first of `replies` came */
	bool closed;
};

static uint8_t stash[STASH];

/* ---- the end of a connection ---- */

static void conn_close(struct stream *t)
{
	struct gateway *g = t->source.g;
	struct list *it;

	if (t->closed)
		return;
	t->closed = true;
	source_close(&t->source);
	list_del(&t->wait);
	list_del(&t->unsent);
	list_del(&t->link);
	g->n_conns--;
	g->n_receiving -= t->call != NULL;
	t->n_calls++; /* so that the last call does not free it here */
	if (t->call)
		call_free(t->call);
	t->call = NULL;
	list_splice(&t->replies, &t->held);
	while ((it = list_pop(&t->replies)))
		call_free(list_entry(it, struct nfs_call, link));
	if (--t->n_calls == 0)
		list_push(&t->source.g->dead_conns, &t->link);
}

/* A connection that cannot be waited for would hang, so it ends; the client makes a new one. */
static void stream_want(struct stream *t, unsigned events)
{
	int r = source_want(&t->source, events);

	if (!r)
		return;
	log_error("nfs", "a connection ends, because it cannot be waited for: %s", error_text(r));
	conn_close(t);
}

static void stream_forget(struct nfs_call *c)
{
	struct stream *t = c->conn;

	t->n_running -= c->running;
	t->data_used -= c->data_room;
	if (--t->n_calls == 0 && t->closed)
		list_push(&t->source.g->dead_conns, &t->link);
}

/* ---- sending ---- */

/* Pieces of a reply from its byte `sent` on; at most 3. */
static int reply_pieces(const struct nfs_call *c, struct iovec iov[3])
{
	static const uint8_t zeros[4];
	struct iovec all[3] = { { c->out->p, c->out_len },
				{ c->data ? c->data->p : NULL, c->data_len },
				{ (void *)(uintptr_t)zeros, -c->data_len & 3 } };
	size_t skip = c->sent;
	int n = 0;

	for (int i = 0; i < 3; i++) {
		size_t cut = MIN(skip, all[i].iov_len);

		skip -= cut;
		if (cut < all[i].iov_len)
			iov[n++] = (struct iovec){ (char *)all[i].iov_base + cut,
						   all[i].iov_len - cut };
	}
	return n;
}

static size_t reply_bytes(const struct nfs_call *c)
{
	return c->out_len + ((c->data_len + 3) & ~(size_t)3);
}

/* Removes n sent bytes from the replies. */
static void sent(struct stream *t, size_t n)
{
	struct nfs_call *c;

	t->sent_at = gateway_now(t->source.g);
	while (n > 0 && (c = list_first(&t->replies, struct nfs_call, link))) {
		size_t part = MIN(n, reply_bytes(c) - c->sent);

		c->sent += part;
		n -= part;
		if (c->sent == reply_bytes(c))
			call_free(c);
	}
}

/* Sends what the socket takes. */
static void conn_flush(struct stream *t)
{
	while (!list_empty(&t->replies) && !t->closed) {
		struct iovec iov[3 * SEND_BATCH];
		struct env *e = t->source.g->loop->env;
		int n_iov = 0;
		struct nfs_call *c;
		ssize_t n;

		list_for_each(c, &t->replies, link) {
			n_iov += reply_pieces(c, iov + n_iov);
			if (n_iov > (int)ARRAY_LEN(iov) - 3)
				break;
		}
		n = e->sock->writev(e, t->source.fd, iov, n_iov);
		if (n == -EAGAIN) {
			stream_want(t, t->source.events | EV_OUT);
			return;
		}
		if (n < 0)
			conn_close(t);
		else
			sent(t, (size_t)n);
	}
	if (!t->closed)
		stream_want(t, t->source.events & ~(uint32_t)EV_OUT);
}

static void stream_send(struct nfs_call *c)
{
	struct stream *t = c->conn;
	uint32_t mark;

	if (t->closed) {
		call_free(c);
		return;
	}
	mark = htonl((uint32_t)(reply_bytes(c) - RECORD_MARK) | RPC_FRAGMENT_LAST);
	memcpy(c->out->p, &mark, RECORD_MARK);
	buf_give(c->g, c->in); /* the arguments are not needed any more */
	c->in = NULL;
	if (list_empty(&t->replies))
		t->sent_at = gateway_now(c->g);
	list_push(&t->replies, &c->link);
	if (list_empty(&t->unsent))
		list_push(&c->g->unsent, &t->unsent);
}

/* Bytes that are no call: the connection cannot be trusted any more. Without memory for a reply it
 * is closed too, and the client sends the call again. */
static void stream_drop(struct nfs_call *c)
{
	struct stream *t = c->conn;

	t->n_calls++;
	call_free(c);
	conn_close(t);
	if (--t->n_calls == 0)
		list_push(&t->source.g->dead_conns, &t->link);
}

static const struct rpc_transport streams = { "tcp", stream_send, stream_drop, stream_forget };

/* ---- receiving ---- */

/* Makes room for the next `more` bytes of the record; 0 or -errno. */
static int record_grow(struct stream *t, size_t more)
{
	struct gateway *g = t->source.g;
	struct nfs_call *c = t->call;
	struct nfs_buf *b;

	if (!c) {
		c = t->call = call_new(g, &streams, t);
		if (!c)
			return -ENOMEM;
		t->n_calls++;
		g->n_receiving++;
		c->from = t->from;
		c->to = t->to;
		c->port = t->port;
	}
	if (more > RECORD_MAX - c->in_len)
		return -EMSGSIZE;
	if (c->in && c->in->size >= c->in_len + more)
		return 0;
	b = buf_take(g, c->in_len + more);
	if (!b)
		return -ENOMEM;
	if (c->in)
		memcpy(b->p, c->in->p, c->in_len);
	buf_give(g, c->in);
	c->in = b;
	return 0;
}

static void pause_conn(struct stream *t)
{
	stream_want(t, t->source.events & ~(uint32_t)EV_IN);
	list_del(&t->wait);
	if (!t->closed)
		list_push(&t->source.g->paused, &t->wait);
}

/* Reserves room for the data of a READ. */
static bool reserve(struct stream *t, struct nfs_call *c)
{
	size_t n = c->data_wanted;

	if (n && !data_reserve(c->g, t->data_used, n))
		return false;
	t->data_used += n;
	c->data_room = n;
	return true;
}

/* Passes a call to a task; false: not now. May close the connection. */
static bool run(struct stream *t, struct nfs_call *c)
{
	if (t->n_running >= CONN_CALLS_MAX || !reserve(t, c))
		return false;
	list_del(&c->link);
	c->running = true;
	t->n_running++;
	nfs_task_submit(c);
	return true;
}

/* Passes a call to a task, or keeps it until the connection has fewer of them, or there is room. */
static void submit(struct stream *t, struct nfs_call *c)
{
	c->data_wanted = nfs3_read_wants(c);
	if (list_empty(&t->held) && run(t, c))
		return;
	list_push(&t->held, &c->link);
	pause_conn(t);
}

/* A fragment has ended. */
static int fragment_end(struct stream *t)
{
	struct nfs_call *c = t->call;

	t->n_mark = 0;
	if (!t->last)
		return ++t->n_fragments > FRAGMENTS_MAX ? -EMSGSIZE : 0;
	t->n_fragments = 0;
	t->call = NULL;
	t->source.g->n_receiving--;
	c->began = gateway_now(t->source.g);
	submit(t, c);
	return 0;
}

/* Takes some of the n bytes at p: how many, or -errno. */
static ssize_t feed_some(struct stream *t, const uint8_t *p, size_t n)
{
	size_t part;
	uint32_t mark;
	int r;

	if (t->n_mark < RECORD_MARK) {
		part = MIN(n, RECORD_MARK - t->n_mark);
		memcpy(t->mark + t->n_mark, p, part);
		t->n_mark += (unsigned)part;
		if (t->n_mark < RECORD_MARK)
			return (ssize_t)part;
		memcpy(&mark, t->mark, sizeof(mark));
		mark = ntohl(mark);
		t->last = mark & RPC_FRAGMENT_LAST;
		t->left = mark & ~(uint32_t)RPC_FRAGMENT_LAST;
		r = record_grow(t, t->left);
	} else {
		part = MIN(n, t->left);
		memcpy(t->call->in->p + t->call->in_len, p, part);
		t->call->in_len += part;
		t->left -= (uint32_t)part;
		r = 0;
	}
	if (!r && t->left == 0)
		r = fragment_end(t);
	return r ? r : (ssize_t)part;
}

static int feed(struct stream *t, const uint8_t *p, size_t n)
{
	while (n > 0 && !t->closed) {
		ssize_t r = feed_some(t, p, n);

		if (r < 0)
			return (int)r;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

static bool may_receive(const struct stream *t)
{
	bool has_buffer = t->call && t->call->in && t->n_mark == RECORD_MARK;

	return !t->source.g->stopping && t->n_calls < CONN_CALLS_MAX &&
	       (has_buffer || memory_has_room(t->source.g));
}

/* One read: into the record that is under way, and what follows into the stash. 1: the socket may
 * have more; 0: it had no more; or -errno. */
static int receive(struct stream *t)
{
	struct nfs_call *c = t->n_mark == RECORD_MARK ? t->call : NULL;
	struct env *e = t->source.g->loop->env;
	struct iovec iov[2] = { { NULL, 0 }, { stash, sizeof(stash) } };
	size_t direct;
	ssize_t n;
	int r = 0;

	if (c)
		iov[0] = (struct iovec){ c->in->p + c->in_len, t->left };
	n = e->sock->readv(e, t->source.fd, iov, 2);
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	t->received_at = gateway_now(t->source.g);
	direct = MIN((size_t)n, iov[0].iov_len);
	if (direct) {
		c->in_len += direct;
		t->left -= (uint32_t)direct;
		if (t->left == 0)
			r = fragment_end(t);
	}
	if (!r)
		r = feed(t, stash, (size_t)n - direct);
	if (!r)
		r = (size_t)n == iov[0].iov_len + sizeof(stash);
	return r;
}

static void stream_ready(struct nfs_source *s, unsigned events)
{
	struct stream *t = container_of(s, struct stream, source);
	int r = 1;

	if (events & EV_OUT)
		conn_flush(t);
	for (int i = 0; i < 4 && r > 0 && !t->closed && events & (EV_IN | EV_ERR); i++) {
		if (!may_receive(t)) {
			pause_conn(t);
			break;
		}
		r = receive(t);
	}
	if (r < 0 && r != -EAGAIN && r != -EINTR)
		conn_close(t);
}

/* ---- connections ---- */

void stream_start(struct gateway *g, int fd, const struct origin *from, const struct origin *to,
		  uint16_t port)
{
	struct stream *t = calloc(1, sizeof(*t));

	if (!t || source_add(g, &t->source, fd, EV_IN, stream_ready)) {
		g->loop->env->sock->close(g->loop->env, fd);
		free(t);
		return;
	}
	t->from = *from;
	t->to = *to;
	t->port = port;
	list_init(&t->wait);
	list_init(&t->unsent);
	list_init(&t->held);
	list_init(&t->replies);
	t->received_at = gateway_now(g);
	list_push(&g->conns, &t->link);
	g->n_conns++;
}

/* ---- once in each turn ---- */

void streams_flush(struct gateway *g)
{
	struct list *it;

	while ((it = list_pop(&g->unsent)))
		conn_flush(list_entry(it, struct stream, unsent));
	while ((it = list_pop(&g->dead_conns)))
		free(list_entry(it, struct stream, link));
}

/* Runs held calls as far as it may; true: none is left, and the connection may be read. */
static bool resume(struct stream *t)
{
	while (!t->closed && !list_empty(&t->held) &&
	       run(t, list_first(&t->held, struct nfs_call, link)))
		;
	return !t->closed && list_empty(&t->held) && may_receive(t);
}

void streams_resume(struct gateway *g)
{
	struct list batch = LIST_INIT(batch), *it;

	g->data_is_awaited =
		false; /* the connections ask again, the one that waited longest first */
	list_splice(&batch, &g->paused);
	while ((it = list_pop(&batch))) {
		struct stream *t = list_entry(it, struct stream, wait);

		if (resume(t)) {
			t->received_at = gateway_now(g);
			stream_want(t, t->source.events | EV_IN);
		} else if (!t->closed) {
			pause_conn(t);
		}
	}
}

/* A connection that is paused until its own calls end is not to blame for an incomplete record. One
 * that is paused for lack of memory, without other calls, is part of that lack. */
static bool is_stuck(const struct stream *t, uint64_t now)
{
	bool waits_for_calls = !list_empty(&t->wait) && t->n_calls > 1;

	return (!list_empty(&t->replies) && now - t->sent_at > STUCK_NS) ||
	       (t->call && !waits_for_calls && now - t->received_at > STUCK_NS);
}

void streams_sweep(struct gateway *g, uint64_t now)
{
	struct stream *t, *next;

	list_for_each_safe(t, next, &g->conns, link)
		if (is_stuck(t, now))
			conn_close(t);
}

void streams_end(struct gateway *g)
{
	struct list *it;

	while (!list_empty(&g->conns))
		conn_close(list_first(&g->conns, struct stream, link));
	while ((it = list_pop(&g->dead_conns)))
		free(list_entry(it, struct stream, link));
}
