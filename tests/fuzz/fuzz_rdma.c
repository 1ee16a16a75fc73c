/* RDMA links whose other ends are the fuzzer: a server's and a client's, on a card that does what
 * the input says. The input is a script of FRAME_ATTACH and FRAME_ATTACHED, messages, immediate
 * data, descriptors of puts and gets, and invitations. In all cases work requests use registered
 * local memory, and only the ranges of the peer that its descriptor or invitation names; and every
 * transfer ends, every receive is replaced, and no key is left. With SHEAF_WRITE_CORPUS=DIR it
 * writes its seeds there. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "net/frame.h"
#include "net/peer_private.h"
#include "net/rdma.h"
#include "net_world.h"
#include "test_req.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS 40
#define MEMS 256
#define EVENTS 4096
#define RECEIVES 256
#define REQS 8
#define BULK (256 * KIB)
#define USER (64 * KIB)
#define TAG 77 /* of the client's exposed memory */

enum {
	S_ATTACH, /* to the server */
	S_ATTACHED, /* to the client */
	S_MESSAGE, /* any bytes; see flags */
	S_IMM,
	S_PUT,
	S_GET,
	S_EXPOSE,
	S_RETRACT,
	S_INVITE,
	S_COMPLETE, /* the card has done its work */
	S_FAIL, /* a work request fails */
	S_TIME,
	S_WORKING, /* to the client */
	S_COUNT
};

/* A card; the server and the client have one each. */
struct fabric {
	struct fabric_caps caps;
	void (*ready)(void *arg);
	void *arg;
	struct fabric_receive receives[RECEIVES];
	size_t n_receives;
	struct fabric_completion events[EVENTS];
	size_t n_events;
	struct mem {
		uint8_t *addr;
		uint64_t len;
		unsigned rights;
		bool is_used;
	} mems[MEMS];
	struct fabric_qp *qp;
};

struct fabric_qp {
	struct fabric *f;
	void *owner;
	uint64_t ids[EVENTS]; /* of posted work requests */
	bool is_signalled[EVENTS];
	size_t n_posted;
	bool is_connected, has_failed;
};

static struct {
	struct net_world w;
	struct sock_ops sock;
	struct net server, client;
	struct link *accepted, *dialled; /* referenced */
	struct peer peer;
	struct test_req reqs[REQS];
	struct iovec at[REQS]; /* in the server's bulk memory */
	struct wire_mem_desc desc[REQS];
	uint64_t from[REQS];
	uint8_t *bulk, *user;
	struct access access;
	struct view view;
	struct extent file, plan[4];
	struct iovec mem;
	struct net_desc exposed;
	bool is_exposed;
	const uint8_t *segments; /* of the last descriptor or invitation ... */
	size_t n_segments; /* ... of each side; NULL: not checked */
	struct wire_rdma_segment fetches[STEPS]; /* named to the server */
	size_t n_fetches;
} g;

/* ---- sockets: what is sent is lost ---- */

static int toy_connect(struct env *e, const char *address)
{
	(void)e;
	(void)address;
	return 3;
}

static ssize_t toy_readv(struct env *e, int fd, const struct iovec *iov, int n)
{
	(void)e;
	(void)fd;
	(void)iov;
	(void)n;
	return -EAGAIN;
}

static ssize_t toy_writev(struct env *e, int fd, const struct iovec *iov, int n)
{
	(void)e;
	(void)fd;
	return (ssize_t)iov_total(iov, (size_t)n);
}

static void toy_close(struct env *e, int fd)
{
	(void)e;
	(void)fd;
}

static int toy_loop_init(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
	return 0;
}

static void toy_loop_fini(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
}

static int toy_watch(struct env *e, struct loop *l, struct source *s, unsigned events)
{
	(void)e;
	(void)l;
	s->events = events;
	return 0;
}

static void toy_wake(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
}

/* ---- the card ---- */

static int card_open(struct env *e, struct loop *l, const struct fabric_want *want,
		     void (*ready)(void *arg), void *arg, struct fabric **out, char *why,
		     size_t why_len)
{
	struct fabric *f = calloc(1, sizeof(*f));

	(void)e;
	(void)l;
	(void)want;
	(void)why;
	(void)why_len;
	assert(f);
	f->ready = ready;
	f->arg = arg;
	f->caps = (struct fabric_caps){ .name = "toy",
					.sge_max = 4,
					.send_depth = 256,
					.receive_depth = RECEIVES,
					.read_depth = 16,
					.message_max = 32 * KIB,
					.is_ordered = true };
	*out = f;
	return 0;
}

static void card_close(struct fabric *f)
{
	assert(!f->qp);
	for (int i = 0; i < MEMS; i++)
		assert(!f->mems[i].is_used);
	free(f);
}

static const struct fabric_caps *card_caps(const struct fabric *f)
{
	return &f->caps;
}

static const char *card_trouble(struct fabric *f)
{
	(void)f;
	return NULL;
}

static bool card_is_dead(const struct fabric *f)
{
	(void)f;
	return false;
}

static int mem_make(struct fabric *f, void *addr, size_t len, unsigned rights,
		    struct fabric_mem *out)
{
	uint32_t i = 0;

	while (i < MEMS && f->mems[i].is_used)
		i++;
	if (i == MEMS)
		return -ENOMEM;
	f->mems[i] = (struct mem){ addr, len, rights, true };
	*out = (struct fabric_mem){ .lkey = i + 1, .rkey = i + 1 };
	return 0;
}

static void mem_drop(struct fabric *f, struct fabric_mem *m)
{
	assert(m->lkey && f->mems[m->lkey - 1].is_used);
	f->mems[m->lkey - 1].is_used = false;
}

static int qp_make(struct fabric *f, uint32_t sends, void *owner, struct fabric_qp **out,
		   struct fabric_addr *ours)
{
	assert(sends <= f->caps.send_depth);
	if (f->qp)
		return -ENOMEM;
	f->qp = calloc(1, sizeof(*f->qp));
	assert(f->qp);
	f->qp->f = f;
	f->qp->owner = owner;
	*ours = (struct fabric_addr){ .qpn = 1 };
	*out = f->qp;
	return 0;
}

static int qp_connect(struct fabric_qp *q, const struct fabric_addr *peer)
{
	if (peer->mtu == 1) /* an address that it refuses */
		return -EINVAL;
	q->is_connected = true;
	return 0;
}

static void complete(struct fabric *f, struct fabric_completion c)
{
	assert(f->n_events < EVENTS);
	f->events[f->n_events++] = c;
}

/* The first n posted work requests have ended. */
static void end_posted(struct fabric_qp *q, size_t n, int error)
{
	for (size_t i = 0; i < n; i++)
		if (q->is_signalled[i] || error)
			complete(q->f, (struct fabric_completion){ .event = FABRIC_SENT,
								   .error = error,
								   .id = q->ids[i],
								   .owner = q->owner });
	q->n_posted -= n;
	memmove(q->ids, q->ids + n, q->n_posted * sizeof(q->ids[0]));
	memmove(q->is_signalled, q->is_signalled + n, q->n_posted * sizeof(q->is_signalled[0]));
}

static uint64_t be(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | *p++;
	return v;
}

/* Is the range in a segment of these keys: a count, then segments? */
static bool names(const uint8_t *keys, size_t n, uint64_t at, uint64_t len, uint32_t key)
{
	for (size_t i = 4; i + SEGMENT_BYTES <= n; i += SEGMENT_BYTES) {
		uint64_t from = be(keys + i, 8), length = be(keys + i + 8, 8);

		if (be(keys + i + 16, 4) == key && at >= from && at - from <= length &&
		    len <= length - (at - from))
			return true;
	}
	return false;
}

/* The descriptor of some request of the server, or the last invitation of the client. */
static bool is_named(const struct fabric *f, uint64_t at, uint64_t len, uint32_t key)
{
	bool by_server = g.server.rdma.device && f == g.server.rdma.device->fabric;

	if (!by_server)
		return names(g.segments, g.n_segments, at, len, key);
	for (size_t i = 0; i < g.n_fetches; i++)
		if (key == g.fetches[i].key && at >= g.fetches[i].addr &&
		    at - g.fetches[i].addr <= g.fetches[i].length &&
		    len <= g.fetches[i].length - (at - g.fetches[i].addr))
			return true;
	for (int i = 0; i < REQS; i++)
		if (g.desc[i].keys.p && names(g.desc[i].keys.p, g.desc[i].keys.len, at, len, key))
			return true;
	return false;
}

static void check_wr(const struct fabric *f, const struct fabric_wr *wr)
{
	uint64_t sum = 0;

	assert(wr->n_sge <= f->caps.sge_max);
	for (uint32_t i = 0; i < wr->n_sge; i++) {
		const struct fabric_sge *s = &wr->sge[i];
		const struct mem *m = s->lkey && s->lkey <= MEMS ? &f->mems[s->lkey - 1] : NULL;
		uintptr_t at = (uintptr_t)s->addr, from = m ? (uintptr_t)m->addr : 0;

		assert(m && m->is_used && at >= from && at - from <= m->len &&
		       s->len <= m->len - (at - from));
		sum += s->len;
	}
	assert(sum <= f->caps.message_max);
	if (wr->op != FABRIC_SEND && sum)
		assert(is_named(f, wr->remote, sum, wr->rkey));
}

static int post(struct fabric_qp *q, const struct fabric_wr *wr, size_t n)
{
	assert(q->is_connected);
	if (q->n_posted + n > EVENTS / 4)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		check_wr(q->f, &wr[i]);
		q->ids[q->n_posted] = wr[i].id;
		q->is_signalled[q->n_posted++] = wr[i].is_signalled;
	}
	if (q->has_failed)
		end_posted(q, q->n_posted, -ECANCELED);
	return 0;
}

static void qp_abort(struct fabric_qp *q)
{
	q->has_failed = true;
	end_posted(q, q->n_posted, -ECANCELED);
}

static void qp_drop(struct fabric_qp *q)
{
	struct fabric *f = q->f;

	for (size_t i = 0; i < f->n_events; i++)
		if (f->events[i].owner == q->owner)
			f->events[i].owner = NULL;
	f->qp = NULL;
	free(q);
}

static int receive(struct fabric *f, const struct fabric_receive *r, size_t n)
{
	assert(n == 1 && f->n_receives < RECEIVES);
	f->receives[f->n_receives++] = *r;
	return 0;
}

static size_t poll_card(struct fabric *f, struct fabric_completion *out, size_t max)
{
	size_t n = MIN(max, f->n_events);

	memcpy(out, f->events, n * sizeof(*out));
	f->n_events -= n;
	memmove(f->events, f->events + n, f->n_events * sizeof(*out));
	return n;
}

static bool arm(struct fabric *f)
{
	return f->n_events > 0;
}

static const struct fabric_ops card = { .open = card_open,
					.close = card_close,
					.caps = card_caps,
					.trouble = card_trouble,
					.is_dead = card_is_dead,
					.mem_make = mem_make,
					.mem_drop = mem_drop,
					.qp_make = qp_make,
					.qp_connect = qp_connect,
					.post = post,
					.qp_abort = qp_abort,
					.qp_drop = qp_drop,
					.receive = receive,
					.poll = poll_card,
					.arm = arm };

/* ---- both ends ---- */

static void on_request(void *owner, struct link *l, uint64_t tag, struct msg *m)
{
	struct msg *reply = msg_new(l->net, 0);

	(void)owner;
	msg_free(m);
	assert(reply);
	link_send(l, FRAME_REPLY, tag, reply);
}

static void on_cancel(void *owner, struct link *l, uint64_t tag)
{
	(void)owner;
	(void)l;
	(void)tag;
}

static void on_down(void *owner, struct link *l)
{
	(void)owner;
	(void)l;
}

static const struct net_server_ops server_ops = { on_request, on_cancel, on_down };

static struct fabric *fabric_of(const struct link *l)
{
	return l->net->rdma.device ? l->net->rdma.device->fabric : NULL;
}

/* The card rings; everything that is ready runs. */
static void settle(void)
{
	for (int i = 0; i < 20; i++) {
		for (int k = 0; k < 2; k++) {
			struct fabric *f = fabric_of(k ? g.dialled : g.accepted);

			if (f && f->n_events)
				f->ready(f->arg);
		}
		net_world_turn(&g.w);
	}
}

/* The handshake is over. */
static void make_up(struct link *l)
{
	timer_del(l->net->loop, &l->timeout);
	--*(l->dialled ? &l->net->n_dialling : &l->net->n_unproven);
	l->state = LINK_UP;
	l->role = LINK_CLIENT;
	l->acts_for.any = true;
	l->peer_has_rdma = true;
	link_ref(l);
}

static void start(void)
{
	static const struct net_identity id = { .timeout_ms = 5000, .lease_ms = 30000 };

	memset(&g, 0, sizeof(g));
	net_world_start(&g.w, false);
	loop_fini(&g.w.loop);
	g.sock = (struct sock_ops){ .connect = toy_connect,
				    .readv = toy_readv,
				    .writev = toy_writev,
				    .close = toy_close,
				    .loop_init = toy_loop_init,
				    .loop_fini = toy_loop_fini,
				    .watch = toy_watch,
				    .wake = toy_wake };
	g.w.env.sock = &g.sock;
	g.w.env.fabric = &card;
	assert(loop_init(&g.w.loop, &g.w.env) == 0);
	net_init(&g.server, &g.w.loop, &id);
	net_init(&g.client, &g.w.loop, &id);
	g.server.server = &server_ops;
	g.bulk = malloc(BULK);
	g.user = malloc(USER);
	assert(g.bulk && g.user);
	memset(g.bulk, 1, BULK);
	memset(g.user, 2, USER);
	g.server.rdma.bulk = (struct iovec){ g.bulk, BULK };
	g.accepted = tcp_accepted(&g.server, 4);
	peer_init(&g.peer, &g.client, LINK_CLIENT, 0, "server:1");
	assert(g.accepted && tcp_dial(&g.client, &g.peer, "server:1", 0, &g.dialled) == 0);
	make_up(g.accepted);
	make_up(g.dialled);
	g.peer.link = g.dialled;
	g.peer.state = PEER_SESSION;
	assert(rdma_attach(g.dialled) == 0);
}

static void retract(void)
{
	if (g.is_exposed && net_retract(g.dialled, &g.exposed, NULL))
		g.is_exposed = false;
	g.is_exposed &= g.exposed.tag != 0;
}

static void stop(void)
{
	peer_halt(&g.peer);
	net_world_pass(&g.w, 60 * NSEC_PER_SEC);
	link_close_now(g.accepted, -ESHUTDOWN);
	link_close_now(g.dialled, -ESHUTDOWN);
	settle();
	for (int i = 0; i < REQS; i++) {
		assert(!g.reqs[i].start || g.reqs[i].over);
		free((void *)(uintptr_t)g.desc[i].keys.p);
	}
	link_unref(g.accepted);
	link_unref(g.dialled);
	peer_fini(&g.peer);
	net_fini(&g.server);
	net_fini(&g.client);
	net_world_end(&g.w);
	free(g.bulk);
	free(g.user);
	free((void *)(uintptr_t)g.segments);
}

/* ---- steps ---- */

static struct msg *message(struct net *n, const uint8_t *p, size_t len)
{
	struct msg *m = msg_new(n, (uint32_t)len);

	assert(m);
	memcpy(m->body, p, len);
	m->len = (uint32_t)len;
	return m;
}

/* As link.c takes it from a connection. */
static void by_tcp(struct link *l, uint32_t kind, const uint8_t *p, size_t len)
{
	struct wire_frame_head h = { .kind = kind, .length = (uint32_t)len };

	if (l->state != LINK_UP || link_check_head(l, &h))
		return;
	link_message(l, kind, 0, message(l->net, p, len));
}

/* If the message is a FETCH, the server may read this memory. */
static void note_fetch(const uint8_t *p, size_t len)
{
	struct wire_frame_head h;
	struct xdr x;

	xdr_decoder(&x, (void *)(uintptr_t)p, len, NULL);
	if (xdr_wire_frame_head(&x, &h) && h.kind == FRAME_FETCH &&
	    xdr_wire_rdma_segment(&x, &g.fetches[g.n_fetches]))
		g.n_fetches++;
}

/* Eight bytes: how much of its memory has moved. */
static void working(const uint8_t *p, size_t len)
{
	struct wire_frame_head h = { .kind = FRAME_WORKING, .tag = TAG };
	uint64_t before = g.exposed.moved;

	if (len < 8 || link_check_head(g.dialled, &h))
		return;
	h.at = be(p, 8);
	rdma_working(g.dialled, &h);
	assert(g.exposed.moved == before || (h.at && h.at <= USER));
}

/* A completion of the link's first receive. */
static void arrives(struct link *l, enum fabric_event event, const uint8_t *p, size_t len,
		    uint32_t imm)
{
	struct fabric *f = fabric_of(l);
	struct fabric_receive r;

	if (!f || !f->qp || !f->qp->is_connected || f->qp->has_failed || !f->n_receives)
		return;
	r = f->receives[0];
	f->n_receives--;
	memmove(f->receives, f->receives + 1, f->n_receives * sizeof(r));
	len = MIN(len, (size_t)r.len);
	memcpy(r.addr, p, len);
	if (l == g.accepted)
		note_fetch(r.addr, len);
	complete(f, (struct fabric_completion){ .event = event,
						.id = r.id,
						.owner = f->qp->owner,
						.len = (uint32_t)len,
						.imm = imm });
}

/* flags 1: to the client; 2: any head; else a head with the right magic and length, the kind of
 * the flags and tag TAG. */
static void arrive_message(uint8_t flags, const uint8_t *p, size_t len)
{
	static uint8_t bytes[FRAME_HEAD + 65536];
	struct link *l = flags & 1 ? g.dialled : g.accepted;
	struct wire_frame_head h = { .kind = flags >> 4,
				     .length = (uint32_t)len + 1000 * (flags >> 2 & 3),
				     .want = 1000,
				     .tag = TAG };

	if (flags & 2) {
		arrives(l, FABRIC_RECEIVED, p, len, 0);
		return;
	}
	frame_head_encode(bytes, &h);
	memcpy(bytes + FRAME_HEAD, p, len);
	arrives(l, FABRIC_RECEIVED, bytes, FRAME_HEAD + len, 0);
}

static void start_put(struct test_req *t, struct req *q)
{
	size_t i = (size_t)(t - g.reqs);

	net_put(g.accepted, &g.desc[i], g.from[i], &g.at[i], 1, q);
}

static void start_get(struct test_req *t, struct req *q)
{
	size_t i = (size_t)(t - g.reqs);

	net_get(g.accepted, &g.desc[i], g.from[i], &g.at[i], 1, NULL, q);
}

/* A request with this descriptor: two bytes of position, two of length, then its keys. */
static void transfer(bool put, const uint8_t *p, size_t len)
{
	uint8_t *keys;
	size_t i = 0;

	while (i < REQS && g.reqs[i].start)
		i++;
	if (i == REQS || len < 4 || !g.accepted->rdma)
		return;
	keys = malloc(len - 4 + 1);
	assert(keys);
	memcpy(keys, p + 4, len - 4);
	g.from[i] = be(p, 2);
	g.at[i] = (struct iovec){ g.bulk + i * 1000, 1 + be(p + 2, 2) };
	g.desc[i] = (struct wire_mem_desc){ .tag = i + 1, .keys = { (uint32_t)(len - 4), keys } };
	test_req_start(&g.reqs[i], &g.w.loop, put ? start_put : start_get, NULL);
}

static void expose(bool write, size_t pieces)
{
	static const struct layout one = { 1u << 30, 1, 0 };
	struct cursor from = { 0 };

	(void)pieces;
	if (g.is_exposed || !g.dialled->rdma || !g.dialled->rdma->is_connected ||
	    g.dialled->state != LINK_UP)
		return;
	g.mem = (struct iovec){ g.user, USER };
	g.file = (struct extent){ 0, USER };
	assert(access_init(&g.access, &g.mem, 1, &g.file, 1) == 0);
	assert(view_plan(&g.view, &g.access, &one, 0, &from, g.plan, 4, UINT64_MAX) == 1);
	g.is_exposed = net_expose(g.dialled, &g.view, write ? CAP_READ : CAP_WRITE, METHOD_AUTO,
				  false, TAG, &g.exposed) == 0;
}

/* Two bytes of position, then a count and segments. */
static void invite(const uint8_t *p, size_t len)
{
	static uint8_t bytes[FRAME_HEAD + 65536];
	struct wire_frame_head h = {
		.kind = FRAME_INVITE, .length = (uint32_t)len - 2, .want = 1000, .tag = TAG, .id = 5
	};
	uint8_t *copy;

	if (len < 6)
		return;
	settle(); /* what uses the last invitation is posted */
	h.at = be(p, 2);
	copy = malloc(len - 2);
	assert(copy);
	memcpy(copy, p + 2, len - 2);
	free((void *)(uintptr_t)g.segments);
	g.segments = copy;
	g.n_segments = len - 2;
	frame_head_encode(bytes, &h);
	memcpy(bytes + FRAME_HEAD, copy, g.n_segments);
	arrives(g.dialled, FABRIC_RECEIVED, bytes, FRAME_HEAD + g.n_segments, 0);
}

/* Ends work of both cards. */
static void end_work(int error)
{
	for (int k = 0; k < 2; k++) {
		struct fabric *f = fabric_of(k ? g.dialled : g.accepted);

		if (f && f->qp && !error)
			end_posted(f->qp, f->qp->n_posted, 0);
		if (f && f->qp && error && f->qp->n_posted) {
			f->qp->has_failed = true;
			end_posted(f->qp, 1, error);
		}
	}
}

static void step(unsigned kind, const uint8_t *p, size_t n)
{
	uint8_t first = n ? p[0] : 0;

	switch (kind) {
	case S_ATTACH:
		by_tcp(g.accepted, FRAME_ATTACH, p, n);
		break;
	case S_ATTACHED:
		by_tcp(g.dialled, FRAME_ATTACHED, p, n);
		break;
	case S_MESSAGE:
		arrive_message(first, p + (n > 0), n - (n > 0));
		break;
	case S_IMM:
		arrives(g.accepted, FABRIC_RECEIVED_IMM, p, 0, first);
		break;
	case S_PUT:
	case S_GET:
		transfer(kind == S_PUT, p, n);
		break;
	case S_EXPOSE:
		expose(first & 1, 1);
		break;
	case S_RETRACT:
		retract();
		break;
	case S_INVITE:
		invite(p, n);
		break;
	case S_COMPLETE:
		end_work(0);
		break;
	case S_FAIL:
		end_work(first & 1 ? -EACCES : -ETIMEDOUT);
		break;
	case S_WORKING:
		working(p, n);
		break;
	case S_TIME:
		net_world_pass(&g.w, first % 8 * NSEC_PER_SEC);
		break;
	}
	settle();
}

/* ---- seeds ---- */

struct seed {
	uint8_t bytes[256 * KIB];
	size_t n;
};

static void add(struct seed *s, unsigned kind, const void *p, size_t n)
{
	s->bytes[s->n++] = (uint8_t)kind;
	s->bytes[s->n++] = (uint8_t)(n >> 8);
	s->bytes[s->n++] = (uint8_t)n;
	memcpy(s->bytes + s->n, p, n);
	s->n += n;
}

static void add_attach(struct seed *s, unsigned kind, struct wire_attach a)
{
	uint8_t b[512];
	struct xdr x;

	xdr_encoder(&x, b, sizeof(b));
	assert(xdr_wire_attach(&x, &a));
	add(s, kind, b, xdr_used(&x));
}

/* Both links have RDMA. */
static struct seed *attached(void)
{
	static struct seed s;

	s.n = 0;
	add_attach(&s, S_ATTACH, (struct wire_attach){ .qpn = 2, .mtu = 4096, .receives = 8 });
	add_attach(&s, S_ATTACHED, (struct wire_attach){ .qpn = 3, .mtu = 4096, .receives = 8 });
	return &s;
}

/* A step with a number, and n segments of `len` bytes. */
static void add_segments(struct seed *s, unsigned kind, const uint8_t *before, size_t n_before,
			 uint32_t n, uint64_t addr, uint64_t len)
{
	static uint8_t b[64 * KIB];
	struct xdr x;

	memcpy(b, before, n_before);
	xdr_encoder(&x, b + n_before, sizeof(b) - n_before);
	assert(xdr_u32(&x, &n));
	for (uint32_t i = 0; i < n; i++) {
		struct wire_rdma_segment g1 = { addr + i * 10 * len, len, 7 };

		assert(xdr_wire_rdma_segment(&x, &g1));
	}
	add(s, kind, b, n_before + xdr_used(&x));
}

static void write_seed(const char *name, const struct seed *s)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", getenv("SHEAF_WRITE_CORPUS"), name);
	f = fopen(path, "w");
	assert(f && fwrite(s->bytes, 1, s->n, f) == s->n);
	fclose(f);
}

static void write_attach_seeds(void)
{
	struct seed *s = attached();

	add_attach(s, S_ATTACH, (struct wire_attach){ .qpn = 2 });
	write_seed("attach_twice", s);
	s->n = 0;
	add_attach(s, S_ATTACH, (struct wire_attach){ .mtu = 1, .read_depth = UINT32_MAX });
	add_attach(s, S_ATTACHED,
		   (struct wire_attach){ .status = ENODEV, .why = wire_text("no such device") });
	write_seed("attach_refused", s);
	s->n = 0;
	add(s, S_ATTACH, "garbage", 7);
	add(s, S_ATTACHED, "garbage", 7);
	write_seed("attach_garbage", s);
}

static void write_transfer_seeds(void)
{
	static const uint8_t at[] = { 0, 0, 0x1f, 0xff }, behind[] = { 0, 10, 0, 200 };
	static const struct {
		const char *name;
		unsigned kind;
		uint32_t n;
		uint64_t addr, len;
	} rows[] = {
		{ "put", S_PUT, 2, 4096, 5000 },
		{ "put_many", S_PUT, 2048, 4096, 5 },
		{ "put_short", S_PUT, 3, 4096, 5 },
		{ "put_wraps", S_PUT, 1, UINT64_MAX - 5, 10000 },
		{ "get", S_GET, 1, 4096, 10000 },
		{ "get_granted", S_GET, 40, 4096, 1000 },
		{ "get_empty", S_GET, 100, 4096, 0 },
		{ "get_too_many", S_GET, 2049, 4096, 20 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct seed *s = attached();

		add_segments(s, rows[i].kind, at, 4, rows[i].n, rows[i].addr, rows[i].len);
		add_segments(s, rows[i].kind, behind, 4, rows[i].n, rows[i].addr, rows[i].len);
		add(s, S_COMPLETE, "", 0);
		add(s, S_IMM, "\1", 1);
		add(s, S_IMM, "\2", 1);
		add(s, S_IMM, "\3", 1);
		add(s, S_COMPLETE, "", 0);
		write_seed(rows[i].name, s);
	}
}

static void write_invite_seeds(void)
{
	static const uint8_t start_at[] = { 0, 0 }, later[] = { 0x10, 0 }, end[] = { 0xff, 0xff };
	struct seed *s = attached();

	add(s, S_EXPOSE, "\1", 1);
	add_segments(s, S_INVITE, start_at, 2, 4, 4096, 1000);
	add_segments(s, S_INVITE, later, 2, 32, 4096, 1500);
	add(s, S_RETRACT, "", 0);
	add(s, S_COMPLETE, "", 0);
	write_seed("invited", s);
	s = attached();
	add(s, S_EXPOSE, "\1", 1);
	add_segments(s, S_INVITE, end, 2, 1, 4096, 2);
	write_seed("invited_behind_the_end", s);
	s = attached();
	add(s, S_EXPOSE, "\0", 1);
	add_segments(s, S_INVITE, start_at, 2, 1, 4096, 2);
	write_seed("invited_to_write", s);
	s = attached();
	add(s, S_EXPOSE, "\1", 1);
	add_segments(s, S_INVITE, start_at, 2, 33, 4096, 2);
	write_seed("invited_by_too_many", s);
	s = attached();
	add(s, S_EXPOSE, "\1", 1);
	add_segments(s, S_INVITE, start_at, 2, 4, 4096, 1000);
	add(s, S_FAIL, "\1", 1);
	add(s, S_RETRACT, "", 0);
	write_seed("invited_and_failed", s);
	s = attached();
	add(s, S_EXPOSE, "\0", 1);
	add(s, S_WORKING, "\0\0\0\0\0\0\x10\0", 8);
	add(s, S_WORKING, "\0\0\0\0\0\0\x10\0", 8);
	add(s, S_WORKING, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
	add(s, S_RETRACT, "", 0);
	write_seed("working", s);
}

/* A message that names a request of `len` bytes to the server. */
static void add_fetch(struct seed *s, uint64_t addr, uint64_t len)
{
	struct wire_rdma_segment g1 = { addr, len, 7 };
	uint8_t b[1 + SEGMENT_BYTES];
	struct xdr x;

	b[0] = FRAME_FETCH << 4;
	xdr_encoder(&x, b + 1, SEGMENT_BYTES);
	assert(xdr_wire_rdma_segment(&x, &g1));
	add(s, S_MESSAGE, b, sizeof(b));
}

static void write_fetch_seeds(void)
{
	struct seed *s = attached();

	for (int i = 0; i < 3; i++)
		add_fetch(s, 4096, 20000 + (uint64_t)i * 50000);
	for (int i = 0; i < 4; i++)
		add(s, S_COMPLETE, "", 0);
	write_seed("fetches", s);
	s = attached();
	add_fetch(s, 4096, 131072);
	add_fetch(s, 4096, 10);
	add(s, S_FAIL, "\1", 1);
	write_seed("fetch_refused", s);
	s = attached();
	add_fetch(s, 4096, 131073);
	write_seed("fetch_too_long", s);
	s = attached();
	add_fetch(s, UINT64_MAX - 5, 20000);
	write_seed("fetch_wraps", s);
	s = attached();
	add_fetch(s, 4096, 0);
	write_seed("fetch_of_nothing", s);
}

static void write_message_seeds(void)
{
	static uint8_t body[1 + 9000];
	struct seed *s = attached();

	body[0] = FRAME_REQUEST << 4 | 1 << 2;
	add(s, S_MESSAGE, body, sizeof(body));
	body[0] = FRAME_MORE << 4;
	add(s, S_MESSAGE, body, 401);
	add(s, S_MESSAGE, body, 601);
	body[0] = FRAME_REQUEST << 4;
	for (int i = 0; i < 10; i++)
		add(s, S_MESSAGE, body, 100);
	add(s, S_COMPLETE, "", 0);
	body[0] = FRAME_CREDIT << 4;
	add(s, S_MESSAGE, body, 1);
	add(s, S_MESSAGE, body, 2);
	write_seed("messages", s);
	s = attached();
	body[0] = FRAME_REQUEST << 4 | 3 << 2;
	add(s, S_MESSAGE, body, 500);
	add(s, S_TIME, "\7", 1);
	write_seed("never_complete", s);
	s = attached();
	body[0] = 2;
	add(s, S_MESSAGE, body, 30);
	add(s, S_MESSAGE, body, 300);
	write_seed("any_bytes", s);
	s = attached();
	body[0] = FRAME_REPLY << 4 | 1;
	add(s, S_MESSAGE, body, 80);
	write_seed("reply", s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool seeded;

	if (!seeded && getenv("SHEAF_WRITE_CORPUS")) {
		write_attach_seeds();
		write_transfer_seeds();
		write_invite_seeds();
		write_message_seeds();
		write_fetch_seeds();
	}
	seeded = true;
	start();
	for (int i = 0; i < STEPS && size >= 3; i++) {
		size_t n = MIN((size_t)data[1] << 8 | data[2], size - 3);

		step(data[0] % S_COUNT, data + 3, n);
		data += 3 + n;
		size -= 3 + n;
	}
	retract();
	stop();
	return 0;
}
