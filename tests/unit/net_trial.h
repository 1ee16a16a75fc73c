/* Networks inside one test: a virtual clock for net_loopback, a small server that answers,
 * holds or forgets requests as the test says, and a client call with scattered memory. */
#ifndef SHEAF_NET_TRIAL_H
#define SHEAF_NET_TRIAL_H

#include "net/backend.h"
#include "net/frame.h"
#include "net/peer.h"
#include "net/session.h"

#include "test.h"

/* ---- a world ---- */

struct networld {
	struct env env;
	struct clock_ops clock;
	struct loop loop;
	struct loopback_hub hub;
	uint64_t now, rng;
	bool real; /* use the kernel's clock and sockets */
};

static inline uint64_t networld_now(struct env *e)
{
	return container_of(e, struct networld, env)->now;
}

static inline void networld_random(struct env *e, void *p, size_t n)
{
	struct networld *w = container_of(e, struct networld, env);

	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)test_random(&w->rng);
}

static inline void networld_start(struct networld *w, bool real)
{
	memset(w, 0, sizeof(*w));
	w->env = *env_real();
	w->real = real;
	w->now = NSEC_PER_SEC;
	w->clock = (struct clock_ops){ .now = networld_now,
				       .wall = networld_now,
				       .random = networld_random };
	if (!real)
		w->env.clock = &w->clock;
	list_init(&w->hub.acceptors);
	log_set_level(LOG_ERROR);
	CHECK_EQ(loop_init(&w->loop, &w->env), 0);
}

static inline void networld_end(struct networld *w)
{
	CHECK_EQ(w->loop.n_reqs, 0);
	loop_fini(&w->loop);
}

static inline void networld_turn(struct networld *w)
{
	if (w->real) {
		loop_turn(&w->loop, NSEC_PER_SEC / 100);
		return;
	}
	w->now += 1000;
	loop_run_ready(&w->loop);
}

static inline bool networld_idle(const struct networld *w)
{
	return list_empty(&w->loop.runnable) &&
	       !(w->loop.n_heap && w->loop.heap[0]->when <= w->now + 1000);
}

/* Runs the loop for `ns`. A virtual clock skips idle time. */
static inline void networld_pass(struct networld *w, uint64_t ns)
{
	uint64_t end = w->env.clock->now(&w->env) + ns;

	while (w->env.clock->now(&w->env) < end) {
		if (!w->real && networld_idle(w))
			w->now = w->loop.n_heap ? MIN(end, w->loop.heap[0]->when) : end;
		networld_turn(w);
	}
}

/* Runs the loop until *flag is set. Fails after 60 s. */
static inline void networld_until(struct networld *w, const bool *flag)
{
	uint64_t end = w->env.clock->now(&w->env) + 60 * NSEC_PER_SEC;

	while (!*flag) {
		CHECK(w->env.clock->now(&w->env) < end);
		if (!w->real && networld_idle(w))
			w->now = w->loop.n_heap ? MIN(end, w->loop.heap[0]->when) : end;
		networld_turn(w);
	}
}

/* ---- identities ---- */

static inline struct net_identity net_id(uint8_t key, uint8_t server_key)
{
	struct net_identity id = { .fs = { { 1, 2, 3 } },
				   .verifier = 99,
				   .lease_ms = 30000,
				   .timeout_ms = 5000,
				   .has_server_key = server_key != 0,
				   .host = "trial" };

	memset(id.client_key, key, KEY_BYTES);
	memset(id.server_key, server_key, KEY_BYTES);
	return id;
}

/* ---- the server ---- */

#define FSRV_SEEN 256

struct seen {
	struct link *link; /* holds a reference while `held` */
	uint64_t tag;
	struct wire_req_head head;
	bool held;
};

struct fsrv {
	struct networld *w;
	struct net net;
	struct seen seen[FSRV_SEEN]; /* all requests except OP_SESSION, in order */
	unsigned n_seen, n_sessions, n_cancels, n_downs;
	uint64_t cancelled; /* tag of the last cancelled request */
	struct link *link; /* the last link that got a session */
	bool hold; /* answer only OP_SESSION */
	bool mute; /* answer nothing, not even OP_SESSION */
	bool forget; /* sessions cannot be resumed */
	bool deny; /* refuse the secrets of sessions */
	int status;
	uint32_t load; /* the `load` in replies */
	uint64_t session, boot;
	size_t reply_bytes; /* pad replies to OP_STATUS to this size */
	struct list xfers; /* struct moving: active READs and WRITEs */
};

/* READ puts a pattern into all of the client's memory, WRITE gets it, in pieces of `piece`
 * bytes. */
struct moving {
	struct req q;
	struct list link;
	struct fsrv *f;
	struct link *l;
	uint64_t tag;
	struct wire_req_head head;
	struct wire_mem_desc mem;
	uint8_t *bytes;
	struct iovec *iov;
	struct extent *ext; /* the same pieces as ranges of a file */
	size_t n;
	bool write;
	struct net_direct direct;
	struct iovec there; /* iovec of `direct` */
};

/* Received data may go directly to this memory of MOVING_DIRECT bytes, from the first byte on. It
 * accepts `may` times, then refuses. */
#define MOVING_DIRECT (4 * MIB)
static uint8_t *moving_direct;
static uint64_t moving_direct_len; /* most bytes to place there */
static int moving_direct_may;
static uint64_t moving_direct_done;

static size_t moving_piece = 65536; /* size of the server's buffers */
static int moving_file = -1; /* READ puts straight from this file */
static const char *moving_map; /* and from this mapping of the file */
static int moving_result; /* result of the last transfer */
static bool moving_over;
static uint64_t moving_sum; /* received bytes that differ from the pattern */
static uint64_t moving_strange; /* bytes in that memory that no peer sent */

static inline uint8_t pattern(uint64_t at)
{
	return (uint8_t)(at * 131 + (at >> 8) * 17 + 1);
}

static inline uint8_t unlike(uint8_t b)
{
	return (uint8_t)(b + 1);
}

static inline void fsrv_reply(struct fsrv *f, struct link *l, uint64_t tag, int status,
			      uint32_t slots, xdr_any filter, void *res)
{
	struct wire_rep_head h = { .status = status,
				   .slot = (uint32_t)(tag >> 32),
				   .sequence = (uint32_t)tag,
				   .verifier = f->net.id.verifier,
				   .map_version = f->net.id.map_version,
				   .slots = slots,
				   .eager_bytes = INLINE_MAX,
				   .load = f->load };
	struct msg *m =
		msg_encode(&f->net, XDR_ANY(xdr_wire_rep_head), &h, status ? NULL : filter, res);

	CHECK(m);
	link_send(l, FRAME_REPLY, tag, m);
}

/* The result has zeros only. */
static inline void fsrv_zeros(struct fsrv *f, struct link *l, uint64_t tag, uint32_t op, int status)
{
	uint64_t res[512] = { 0 };

	CHECK(wire_op_rows[op].res_size <= sizeof(res));
	fsrv_reply(f, l, tag, status, SESSION_SLOTS, wire_op_rows[op].res, res);
}

static inline void fsrv_session(struct fsrv *f, struct link *l, uint64_t tag,
				struct wire_session_args *a)
{
	struct wire_session_res r = { .resumed = a->id && a->id == f->session && !f->forget,
				      .slots = SESSION_SLOTS,
				      .lease_ms = 30000,
				      .boot = f->boot };

	if (f->deny && a->id) {
		fsrv_reply(f, l, tag, EACCES, SESSION_SLOTS, NULL, NULL);
		return;
	}
	if (!r.resumed)
		f->session++;
	f->forget = false;
	r.id = f->session;
	f->n_sessions++;
	f->link = l;
	fsrv_reply(f, l, tag, 0, SESSION_SLOTS, XDR_ANY(xdr_wire_session_res), &r);
}

static inline bool moving_may(struct net_direct *d)
{
	(void)d;
	return moving_direct_may-- > 0;
}

static inline void moving_get(struct moving *v, struct req *q)
{
	v->there = (struct iovec){ moving_direct, MOVING_DIRECT };
	v->direct = (struct net_direct){ .may = moving_may,
					 .iov = &v->there,
					 .n = 1,
					 .len = MIN(moving_direct_len, v->mem.length) };
	net_get(v->l, &v->mem, 0, v->iov, v->n, moving_direct ? &v->direct : NULL, q);
}

static inline bool moving_step(struct req *q)
{
	struct moving *v = container_of(q, struct moving, q);
	struct wire_read_res rr = { .end = UINT64_MAX };
	struct wire_write_res wr = { 0 };

	if (q->state == 0) {
		req_goto(q, 1);
		if (v->write)
			moving_get(v, q);
		else if (moving_file >= 0)
			net_put_file(v->l, &v->mem, 0, moving_file, v->ext,
				     moving_map ? v->iov : NULL, v->n, q);
		else
			net_put(v->l, &v->mem, 0, v->iov, v->n, q);
		return true;
	}
	moving_result = q->error;
	moving_over = true;
	moving_sum = 0;
	moving_direct_done = v->direct.done;
	if (moving_direct && v->direct.done)
		memcpy(v->bytes, moving_direct, v->direct.done);
	for (uint64_t i = 0; v->write && !q->error && i < v->mem.length; i++)
		moving_sum += v->bytes[i] != pattern(i);
	moving_strange = 0;
	for (uint64_t i = 0; v->write && i < v->mem.length; i++)
		moving_strange += v->bytes[i] != pattern(i) && v->bytes[i] != unlike(pattern(i));
	if (v->write)
		fsrv_reply(v->f, v->l, v->tag, -q->error, SESSION_SLOTS,
			   XDR_ANY(xdr_wire_write_res), &wr);
	else
		fsrv_reply(v->f, v->l, v->tag, -q->error, SESSION_SLOTS, XDR_ANY(xdr_wire_read_res),
			   &rr);
	link_unref(v->l);
	list_del(&v->link);
	req_fini(q);
	free(v->bytes);
	free(v->iov);
	free(v->ext);
	free(v);
	return false;
}

static const char *const moving_names[] = { "move", "end" };
static const struct req_ops moving_ops = REQ_OPS("moving", moving_step, 1, moving_names);

static inline void fsrv_move(struct fsrv *f, struct link *l, uint64_t tag,
			     const struct wire_mem_desc *mem, bool write)
{
	struct moving *v = calloc(1, sizeof(*v));
	size_t len = mem->length, at = 0;

	CHECK(v && len);
	v->f = f;
	v->l = l;
	link_ref(l);
	v->tag = tag;
	v->mem = *mem;
	v->write = write;
	v->bytes = malloc(len);
	v->iov = calloc(len / moving_piece + 1, sizeof(*v->iov));
	v->ext = calloc(len / moving_piece + 1, sizeof(*v->ext));
	CHECK(v->bytes && v->iov && v->ext);
	for (size_t i = 0; i < len; i++)
		v->bytes[i] = write ? unlike(pattern(i)) : pattern(i);
	for (; at < len; at += moving_piece) {
		v->ext[v->n] = (struct extent){ at, MIN(moving_piece, len - at) };
		v->iov[v->n++] = (struct iovec){ moving_map && !write ?
							 (char *)(uintptr_t)(moving_map + at) :
							 (char *)v->bytes + at,
						 MIN(moving_piece, len - at) };
	}
	moving_over = false;
	list_push(&f->xfers, &v->link);
	req_init(&v->q, l->net->loop, &moving_ops, 0);
	req_run(&v->q);
}

static inline void fsrv_data(struct fsrv *f, struct link *l, uint64_t tag, struct xdr *x,
			     bool write)
{
	struct wire_read_args r;
	struct wire_write_args wr;

	if (write)
		CHECK(xdr_wire_write_args(x, &wr));
	else
		CHECK(xdr_wire_read_args(x, &r));
	fsrv_move(f, l, tag, write ? &wr.mem : &r.mem, write);
}

static inline void fsrv_request(void *owner, struct link *l, uint64_t tag, struct msg *m)
{
	struct fsrv *f = owner;
	struct wire_session_args session;
	struct wire_req_head h;
	struct arena a;
	struct xdr x;

	arena_init(&a, 0);
	xdr_decoder(&x, m->body, m->len, &a);
	CHECK(xdr_wire_req_head(&x, &h));
	CHECK_EQ(tag, (uint64_t)h.slot << 32 | h.sequence);
	if (h.op == OP_SESSION) {
		CHECK(xdr_wire_session_args(&x, &session));
		if (!f->mute)
			fsrv_session(f, l, tag, &session);
	} else {
		struct seen *s = &f->seen[f->n_seen++ % FSRV_SEEN];

		if (s->held) /* the old request is never answered */
			link_unref(s->link);
		*s = (struct seen){ .link = l, .tag = tag, .head = h, .held = f->hold };
		if (f->hold)
			link_ref(l);
		else if (h.op == OP_READ || h.op == OP_WRITE)
			fsrv_data(f, l, tag, &x, h.op == OP_WRITE);
		else
			fsrv_zeros(f, l, tag, h.op, f->status);
	}
	arena_destroy(&a);
	msg_free(m);
}

/* Answers all held requests whose links are still open. */
static inline void fsrv_release(struct fsrv *f, int status)
{
	for (unsigned i = 0; i < MIN(f->n_seen, (unsigned)FSRV_SEEN); i++) {
		struct seen *s = &f->seen[i];

		if (!s->held)
			continue;
		s->held = false;
		fsrv_zeros(f, s->link, s->tag, s->head.op, status);
		link_unref(s->link);
	}
}

/* Forgets all requests seen so far. */
static inline void fsrv_drop(struct fsrv *f)
{
	for (unsigned i = 0; i < FSRV_SEEN; i++) {
		if (f->seen[i].held)
			link_unref(f->seen[i].link);
		f->seen[i].held = false;
	}
	f->n_seen = 0;
}

static inline void fsrv_cancel(void *owner, struct link *l, uint64_t tag)
{
	struct fsrv *f = owner;

	(void)l;
	f->n_cancels++;
	f->cancelled = tag;
}

static inline void fsrv_down(void *owner, struct link *l)
{
	struct fsrv *f = owner;

	f->n_downs++;
	if (f->link == l)
		f->link = NULL;
}

static const struct net_server_ops fsrv_ops = { fsrv_request, fsrv_cancel, fsrv_down };

static inline void fsrv_start(struct fsrv *f, struct networld *w, const char *address,
			      struct net_identity id)
{
	char err[256] = "";

	memset(f, 0, sizeof(*f));
	f->w = w;
	f->boot = 1;
	list_init(&f->xfers);
	net_init(&f->net, &w->loop, &id);
	f->net.hub = &w->hub;
	f->net.server = &fsrv_ops;
	f->net.owner = f;
	if (address)
		CHECK_EQ(net_listen(&f->net, address, err, sizeof(err)), 0);
}

static inline void fsrv_stop(struct fsrv *f)
{
	fsrv_drop(f);
	net_fini(&f->net);
	while (!list_empty(&f->w->loop.runnable))
		loop_run_ready(&f->w->loop);
	CHECK(list_empty(&f->xfers));
	net_fini(&f->net); /* frees messages that were returned meanwhile */
}

/* ---- the client ---- */

/* One call and its result. */
struct ask {
	struct req q;
	struct call call;
	uint64_t args[512], res[512]; /* zeros, and a result, of any operation */
	struct wire_read_args read;
	struct wire_read_res read_res;
	struct wire_write_args write;
	struct wire_write_res write_res;
	struct access access;
	struct extent file, plan[4];
	struct view view;
	bool over;
	int error;
	unsigned order; /* position among all completed calls */
};

static unsigned asks_ended;

static inline bool ask_step(struct req *q)
{
	struct ask *a = container_of(q, struct ask, q);

	CHECK(!a->over);
	a->over = true;
	a->error = q->error;
	a->order = ++asks_ended;
	call_fini(&a->call);
	req_fini(q);
	return false;
}

static const char *const ask_names[] = { "wait" };
static const struct req_ops ask_ops = REQ_OPS("ask", ask_step, 0, ask_names);

static inline void ask_init(struct ask *a, struct peer *p, uint32_t op, uint64_t timeout_ns)
{
	struct loop *l = p->net->loop;

	CHECK(wire_op_rows[op].args_size <= sizeof(a->args));
	CHECK(wire_op_rows[op].res_size <= sizeof(a->res));
	memset(a, 0, sizeof(*a));
	l->now = l->env->clock->now(l->env);
	a->call = (struct call){
		.op = op, .args = a->args, .res = a->res, .deadline = l->now + timeout_ns
	};
	req_init(&a->q, l, &ask_ops, 0);
}

static inline void ask(struct ask *a, struct peer *p, uint32_t op, bool change)
{
	ask_init(a, p, op, 10 * NSEC_PER_SEC);
	a->call.once = change;
	peer_call(p, &a->call, &a->q);
}

/* Starts a READ into this memory, or a WRITE from it. */
static inline void ask_move(struct ask *a, struct peer *p, const struct iovec *mem, size_t n,
			    bool write)
{
	static const struct layout one = { 1u << 30, 1, 0 };
	struct cursor from = { 0 };

	ask_init(a, p, write ? OP_WRITE : OP_READ, 20 * NSEC_PER_SEC);
	a->file.length = iov_total(mem, n);
	CHECK_EQ(access_init(&a->access, mem, n, &a->file, 1), 0);
	CHECK_EQ(view_plan(&a->view, &a->access, &one, 0, &from, a->plan, 4, UINT64_MAX), 1);
	CHECK_EQ(a->view.length, a->file.length);
	a->call.mem = &a->view;
	a->call.mem_access = write ? CAP_READ : CAP_WRITE;
	a->call.mem_wire = write ? &a->write.mem : &a->read.mem;
	a->call.args = write ? (void *)&a->write : &a->read;
	a->call.res = write ? (void *)&a->write_res : &a->read_res;
	peer_call(p, &a->call, &a->q);
}

struct fclient {
	struct networld *w;
	struct net net;
	struct peer peer;
};

static inline void fclient_start(struct fclient *c, struct networld *w, const char *address,
				 struct net_identity id, uint32_t role)
{
	memset(c, 0, sizeof(*c));
	c->w = w;
	net_init(&c->net, &w->loop, &id);
	c->net.hub = &w->hub;
	peer_init(&c->peer, &c->net, role, 0, address);
}

static inline void fclient_stop(struct fclient *c)
{
	peer_fini(&c->peer);
	while (!list_empty(&c->w->loop.runnable))
		loop_run_ready(&c->w->loop);
	net_fini(&c->net);
}

/* Scattered memory: n pieces whose sizes cycle through a list, with a guard byte behind each
 * piece. */
struct scatter {
	uint8_t *base;
	size_t bytes; /* size of base */
	struct iovec *iov;
	size_t n, total;
};
#define GUARD 0xee

static inline void scatter_make(struct scatter *s, size_t n, const size_t *sizes, size_t n_sizes)
{
	size_t at = 0;

	s->n = n;
	s->total = 0;
	s->iov = calloc(n, sizeof(*s->iov));
	for (size_t i = 0; i < n; i++)
		s->total += sizes[i % n_sizes];
	s->bytes = s->total + n;
	s->base = malloc(s->bytes);
	CHECK(s->iov && s->base);
	memset(s->base, GUARD, s->bytes);
	for (size_t i = 0; i < n; i++) {
		s->iov[i] = (struct iovec){ s->base + at, sizes[i % n_sizes] };
		at += sizes[i % n_sizes] + 1;
	}
}

static inline void scatter_fill(struct scatter *s)
{
	uint64_t at = 0;

	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 0; k < s->iov[i].iov_len; k++)
			((uint8_t *)s->iov[i].iov_base)[k] = pattern(at++);
}

/* Checks that all data are in place and no guard byte changed. */
static inline void scatter_check(const struct scatter *s)
{
	uint64_t at = 0, wrong = 0;

	for (size_t i = 0; i < s->n; i++) {
		const uint8_t *p = s->iov[i].iov_base;

		for (size_t k = 0; k < s->iov[i].iov_len; k++)
			wrong += p[k] != pattern(at++);
		wrong += p[s->iov[i].iov_len] != GUARD;
	}
	CHECK_EQ(wrong, 0);
}

static inline void scatter_free(struct scatter *s)
{
	free(s->base);
	free(s->iov);
}

#endif
