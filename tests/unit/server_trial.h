/* One server (metadata and data) on a scratch directory, in a world without threads and with a
 * virtual clock: jobs wait in a list until the world turns, and timers fire when the clock is
 * moved. The test is the other end of the links: it answers transfers as it is told and counts
 * replies. */
#ifndef SHEAF_SERVER_TRIAL_H
#define SHEAF_SERVER_TRIAL_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/env_real.h"
#include "net/backend.h"
#include "server/cap.h"
#include "server/op_state.h"
#include "server/pair.h"
#include "server/task.h"
#include "server/window.h"

#include "test.h"

#define WORLD_TURNS 20000 /* more turns than this mean an endless loop */

struct worker {
	struct list *jobs;
};

struct world {
	struct env env;
	struct clock_ops clock;
	struct exec_ops exec;
	struct loop loop;
	struct loopback_hub hub;
	struct conf *conf;
	struct server *srv;
	struct worker worker;
	struct list jobs;
	uint64_t now, rng;
	char dir[64];
	uint8_t client_key[KEY_BYTES], server_key[KEY_BYTES];
};

static inline struct world *world_of(struct env *e)
{
	return container_of(e, struct world, env);
}

static inline uint64_t world_now(struct env *e)
{
	return world_of(e)->now;
}

static inline uint64_t world_wall(struct env *e)
{
	return world_of(e)->now + UINT64_C(1700000000) * NSEC_PER_SEC;
}

static inline void world_random(struct env *e, void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)test_random(&world_of(e)->rng);
}

static inline int world_worker_start(struct env *e, struct loop *l, const char *name,
				     struct worker **w)
{
	(void)l;
	(void)name;
	*w = &world_of(e)->worker;
	return 0;
}

static inline void world_worker_submit(struct worker *w, struct job *j)
{
	list_push(w->jobs, &j->link);
}

static inline void world_worker_stop(struct worker *w)
{
	struct list *it;

	while (w && (it = list_pop(w->jobs))) {
		struct job *j = list_entry(it, struct job, link);

		j->run(j);
		j->done(j);
	}
}

/* ---- turning ---- */

static inline void world_turn(struct world *w)
{
	w->now += 1000;
	world_worker_stop(&w->worker);
	loop_run_ready(&w->loop);
}

static inline bool world_idle(const struct world *w)
{
	return list_empty(&w->jobs) && list_empty(&w->loop.runnable) &&
	       !(w->loop.n_heap && w->loop.heap[0]->when <= w->now + 1000);
}

/* Turns until nothing is left to do without moving the clock. */
static inline void world_settle(struct world *w)
{
	for (int i = 0; !world_idle(w); i++) {
		CHECK(i < WORLD_TURNS);
		world_turn(w);
	}
}

/* Turns for `ns` of virtual time. */
static inline void world_pass(struct world *w, uint64_t ns)
{
	uint64_t end = w->now + ns;

	for (int i = 0; w->now < end; i++) {
		CHECK(i < WORLD_TURNS);
		if (world_idle(w))
			w->now = w->loop.n_heap ? MIN(end, w->loop.heap[0]->when) : end;
		world_turn(w);
	}
}

/* Turns, and moves the clock where needed, until no request is in service. Returns false if
 * requests are still in service after 10 minutes. */
static inline bool world_quiet(struct world *w)
{
	uint64_t end = w->now + 600 * NSEC_PER_SEC;

	world_settle(w);
	for (int i = 0; w->srv->in_service && w->now < end; i++) {
		CHECK(i < WORLD_TURNS);
		if (world_idle(w))
			w->now = w->loop.n_heap ? MAX(w->now, w->loop.heap[0]->when) : end;
		world_turn(w);
	}
	world_settle(w);
	return !w->srv->in_service;
}

/* ---- start and end ---- */

static inline const char *world_parent(void)
{
	return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

static inline void world_conf(struct world *w)
{
	static const char text[] =
		"[cluster]\nid = 00000000-0000-4000-8000-000000000001\nkey = key\n"
		"server_key = server.key\nstripe_unit = 65536\ntimeout = 5\nlease = 30\n"
		"[server.0]\nname = server0\naddress = 127.0.0.1:1\nroles = meta data\nstorage = s0\n";
	char path[128], err[256];

	snprintf(path, sizeof(path), "%s/sheaf.conf", w->dir);
	if (conf_parse(text, sizeof(text) - 1, path, &w->conf, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	strcpy(w->conf->targets[0].address, "loop:0");
	w->conf->nosync = true;
	w->conf->pool_bytes = 2 * MIB;
}

static inline void world_start_server(struct world *w)
{
	struct server_opts o = { .loop = &w->loop, .conf = w->conf, .hub = &w->hub };
	char err[512];
	int r;

	o.meta_map_bytes = 64 * MIB;
	memcpy(o.client_key, w->client_key, KEY_BYTES);
	memcpy(o.server_key, w->server_key, KEY_BYTES);
	r = server_start(&o, &w->srv, err, sizeof(err));
	if (r)
		fprintf(stderr, "%s\n", err);
	CHECK_EQ(r, 0);
}

static inline void world_start(struct world *w)
{
	char err[512];

	memset(w, 0, sizeof(*w));
	w->env = *env_real();
	w->clock =
		(struct clock_ops){ .now = world_now, .wall = world_wall, .random = world_random };
	w->exec = (struct exec_ops){ world_worker_start, world_worker_submit, world_worker_stop };
	w->env.clock = &w->clock;
	w->env.exec = &w->exec;
	w->now = NSEC_PER_SEC;
	list_init(&w->jobs);
	list_init(&w->hub.acceptors);
	w->worker.jobs = &w->jobs;
	memset(w->client_key, 1, KEY_BYTES);
	memset(w->server_key, 2, KEY_BYTES);
	snprintf(w->dir, sizeof(w->dir), "%s/sheaf-trial-XXXXXX", world_parent());
	CHECK(mkdtemp(w->dir));
	CHECK_EQ(loop_init(&w->loop, &w->env), 0);
	CHECK_EQ(engine_forbid(&w->loop, ENGINE_NO_RING), 0);
	world_conf(w);
	CHECK_EQ(server_format(&w->env, w->conf, 0, err, sizeof(err)), 0);
	world_start_server(w);
	world_settle(w);
}

static inline void world_end(struct world *w)
{
	char cmd[128];

	if (w->srv)
		CHECK_EQ(server_stop(w->srv), 0);
	w->srv = NULL;
	loop_fini(&w->loop);
	conf_free(w->conf);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", w->dir);
	CHECK_EQ(system(cmd), 0);
}

/* ---- the link whose other end is the test ---- */

enum pipe_mode { PIPE_ANSWER, PIPE_REFUSE, PIPE_DEFER };

/* A transfer that waits for the test. */
struct pipe_xfer {
	struct list link;
	struct req *q;
	uint64_t len;
};

struct pipe_link {
	struct link l;
	enum pipe_mode mode;
	struct list deferred;
	unsigned sent, replies; /* requests to the server, replies from it */
	bool closed;
	uint32_t uid, gid, n_gids; /* identity in requests; root unless set */
	uint32_t *gids;
	/* the client's memory for all transfers, and how often each byte was moved; may be NULL */
	uint8_t *mem, *moved;
	/* the last reply: */
	uint64_t tag;
	struct wire_rep_head head;
	uint8_t body[MSG_MAX];
	uint32_t body_at, body_len; /* position and length of the body behind the head */
	struct arena arena; /* for results, if the caller passes no arena */
};

static inline struct pipe_link *pipe_of(struct link *l)
{
	return container_of(l, struct pipe_link, l);
}

static inline void pipe_send(struct link *l, struct msg *m)
{
	struct pipe_link *p = pipe_of(l);
	struct wire_frame_head h;
	struct xdr x;

	xdr_decoder(&x, m->head, FRAME_HEAD, NULL);
	CHECK(xdr_wire_frame_head(&x, &h));
	CHECK_EQ(h.kind, FRAME_REPLY);
	CHECK_EQ(h.length, m->len);
	CHECK(m->len <= MSG_MAX);
	memcpy(p->body, m->body, m->len);
	xdr_decoder(&x, p->body, m->len, NULL);
	CHECK(xdr_wire_rep_head(&x, &p->head));
	CHECK(p->head.status >= 0 && p->head.status < 4096);
	CHECK_EQ(h.tag, (uint64_t)p->head.slot << 32 | p->head.sequence);
	p->tag = h.tag;
	p->body_at = (uint32_t)xdr_used(&x);
	p->body_len = m->len;
	p->replies++;
	msg_free(m);
}

static inline void pipe_copy(struct pipe_link *p, uint64_t at, const struct iovec *iov, size_t n,
			     bool get)
{
	for (size_t i = 0; i < n; at += iov[i++].iov_len) {
		if (get && !p->mem)
			memset(iov[i].iov_base, 0x5a, iov[i].iov_len);
		else if (get)
			memcpy(iov[i].iov_base, p->mem + at, iov[i].iov_len);
		else if (p->mem)
			memcpy(p->mem + at, iov[i].iov_base, iov[i].iov_len);
		for (size_t k = 0; p->moved && k < iov[i].iov_len; k++)
			p->moved[at + k]++;
	}
}

static inline void pipe_transfer(struct link *l, uint64_t at, const struct iovec *iov, size_t n,
				 struct req *q, bool get)
{
	struct pipe_link *p = pipe_of(l);
	struct pipe_xfer *x;

	if (p->mode != PIPE_REFUSE)
		pipe_copy(p, at, iov, n, get);
	if (p->mode == PIPE_ANSWER) {
		req_done(q, 0, iov_total(iov, n));
		return;
	}
	if (p->mode == PIPE_REFUSE) {
		req_done(q, -ECANCELED, 0);
		return;
	}
	x = malloc(sizeof(*x));
	CHECK(x);
	*x = (struct pipe_xfer){ .q = q, .len = iov_total(iov, n) };
	list_push(&p->deferred, &x->link);
}

static inline void pipe_put(struct link *l, const struct wire_mem_desc *d, uint64_t at,
			    const struct iovec *src, size_t n, struct req *q)
{
	CHECK(at <= d->length && iov_total(src, n) <= d->length - at);
	pipe_transfer(l, at, src, n, q, false);
}

static inline void pipe_get(struct link *l, const struct wire_mem_desc *d, uint64_t at,
			    const struct iovec *dst, size_t n, struct net_direct *direct,
			    struct req *q)
{
	(void)direct;
	CHECK(at <= d->length && iov_total(dst, n) <= d->length - at);
	pipe_transfer(l, at, dst, n, q, true);
}

/* Used by pipe_ops_file only: sends from a file, as net_tcp does where it can. */
static inline void pipe_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at,
				 int file, const struct extent *ext, const struct iovec *mapped,
				 size_t n, struct req *q)
{
	static uint8_t bytes[WINDOW_BYTES];
	uint64_t total = 0;
	struct iovec iov;

	for (size_t i = 0; i < n; total += ext[i++].length) {
		ssize_t got;

		CHECK(ext[i].length && total + ext[i].length <= sizeof(bytes));
		memset(bytes + total, 0, ext[i].length);
		got = pread(file, bytes + total, ext[i].length, (off_t)ext[i].offset);
		CHECK(got >= 0);
		if (mapped) {
			CHECK_EQ(mapped[i].iov_len, ext[i].length);
			CHECK_EQ(memcmp(mapped[i].iov_base, bytes + total, (size_t)got), 0);
		}
	}
	CHECK(at <= d->length && total <= d->length - at);
	iov = (struct iovec){ bytes, total };
	pipe_transfer(l, at, &iov, 1, q, false);
}

static inline void pipe_release(struct pipe_link *p, int error)
{
	struct list *it;

	while ((it = list_pop(&p->deferred))) {
		struct pipe_xfer *x = list_entry(it, struct pipe_xfer, link);

		req_done(x->q, error, error ? 0 : x->len);
		free(x);
	}
}

static inline void pipe_shut(struct link *l, int error)
{
	pipe_of(l)->closed = true;
	pipe_release(pipe_of(l), error);
}

static inline void pipe_destroy(struct link *l)
{
	arena_destroy(&pipe_of(l)->arena);
	free(pipe_of(l));
}

static const struct net_ops pipe_ops = {
	.name = "pipe",
	.send = pipe_send,
	.put = pipe_put,
	.get = pipe_get,
	.shut = pipe_shut,
	.destroy = pipe_destroy,
};

static const struct net_ops pipe_ops_file = {
	.name = "pipe",
	.send = pipe_send,
	.put = pipe_put,
	.put_file = pipe_put_file,
	.get = pipe_get,
	.shut = pipe_shut,
	.destroy = pipe_destroy,
};

/* Makes an authenticated link. The caller gets its own reference. */
static inline struct pipe_link *pipe_new(struct world *w, uint32_t role)
{
	struct pipe_link *p = calloc(1, sizeof(*p));

	CHECK(p);
	list_init(&p->deferred);
	arena_init(&p->arena, 0);
	link_init(&p->l, &w->srv->net, &pipe_ops, NULL, 0);
	timer_del(&w->loop, &p->l.timeout);
	p->l.state = LINK_UP;
	w->srv->net.n_unproven--;
	list_del(&p->l.in_net);
	list_push(&w->srv->net.links, &p->l.in_net);
	p->l.acts_for.any = true;
	p->l.role = role;
	strcpy(p->l.host, "pipe");
	link_ref(&p->l);
	return p;
}

static inline void pipe_free(struct pipe_link *p)
{
	link_close(&p->l, -ESHUTDOWN);
	link_unref(&p->l);
}

/* Passes a message to the server as if it came from the wire. */
static inline void pipe_message(struct world *w, struct pipe_link *p, uint64_t tag,
				const void *body, size_t len)
{
	struct msg *m = msg_new(&w->srv->net, (uint32_t)len);

	CHECK(m);
	memcpy(m->body, body, len);
	m->len = (uint32_t)len;
	p->sent++;
	w->loop.now = w->now;
	link_message(&p->l, FRAME_REQUEST, tag, m);
}

/* Sends a well-formed request on a slot in the session of the link. */
static inline void pipe_call(struct world *w, struct pipe_link *p, uint32_t op, uint32_t slot,
			     uint32_t sequence, xdr_any filter, void *args)
{
	struct wire_req_head h = { .op = op,
				   .slot = slot,
				   .sequence = sequence,
				   .session = p->l.session ? p->l.session->id : 0,
				   .uid = p->uid,
				   .gid = p->gid,
				   .n_gids = p->n_gids,
				   .gids = p->gids,
				   .time_left_ms = 5000 };
	static uint8_t body[MSG_MAX];
	struct xdr x;

	if (!p->l.held.key) /* the handshake would have set it */
		usage_move(&p->l.held, link_key_account(&p->l));
	xdr_encoder(&x, body, sizeof(body));
	CHECK(xdr_wire_req_head(&x, &h) && filter(&x, args));
	pipe_message(w, p, (uint64_t)slot << 32 | sequence, body, xdr_used(&x));
}

/* Sends a request with the next sequence of slot 63 and runs it to its end. Returns 0 or -errno,
 * the result is in *res. Without an arena, the memory of the result is valid until the next
 * call. */
static inline int pipe_do(struct world *w, struct pipe_link *p, uint32_t op, xdr_any put,
			  void *args, xdr_any get, void *res, struct arena *a)
{
	struct session *s = p->l.session;
	uint32_t slot = s ? SESSION_SLOTS - 1 : UINT32_MAX;
	unsigned before = p->replies;
	struct xdr x;

	pipe_call(w, p, op, slot, s ? s->slots[slot].sequence + 1 : 0, put, args);
	CHECK(world_quiet(w));
	CHECK_EQ(p->replies, before + 1);
	if (p->head.status)
		return -p->head.status;
	arena_reset(&p->arena);
	xdr_decoder(&x, p->body + p->body_at, p->body_len - p->body_at, a ? a : &p->arena);
	CHECK(get(&x, res) && !xdr_left(&x));
	return 0;
}

/* Makes a new session on a link. */
static inline void pipe_session(struct world *w, struct pipe_link *p)
{
	struct wire_session_args a = { .client = wire_text("pipe") };
	struct wire_session_res r;

	CHECK_EQ(pipe_do(w, p, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
			 XDR_ANY(xdr_wire_session_res), &r, NULL),
		 0);
	CHECK(p->l.session && p->l.session->id == r.id && !r.resumed);
}

/* A path from the root. */
static inline struct wire_place pipe_place(const char *path)
{
	return (struct wire_place){ .dir = { META_ROOT_INO, META_ROOT_GEN },
				    .path = wire_text(path) };
}

/* Opens a file below the root. The layout is in the arena. */
static inline int pipe_open(struct world *w, struct pipe_link *p, const char *path, uint64_t id,
			    uint32_t flags, struct wire_open_res *r, struct arena *a)
{
	struct wire_open_args args = {
		.where = pipe_place(path), .id = id, .flags = flags, .mode = 0644
	};

	return pipe_do(w, p, OP_OPEN, XDR_ANY(xdr_wire_open_args), &args,
		       XDR_ANY(xdr_wire_open_res), r, a);
}

#endif
