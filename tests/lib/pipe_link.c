#include "pipe_link.h"

/* ---- the link whose other end is the test ---- */

/* A transfer that waits for the test. */
struct pipe_xfer {
	struct list link;
	struct req *q;
	uint64_t len;
};

static struct pipe_link *pipe_of(struct link *l)
{
	return container_of(l, struct pipe_link, l);
}

static void pipe_send(struct link *l, struct msg *m)
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
	CHECK_EQ(h.tag, tag_make(tag_channel(h.tag), p->head.slot, p->head.sequence));
	p->tag = h.tag;
	p->body_at = (uint32_t)xdr_used(&x);
	p->body_len = m->len;
	p->replies++;
	msg_free(m);
}

static void pipe_copy(struct pipe_link *p, uint64_t at, const struct iovec *iov, size_t n, bool get)
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

static void pipe_transfer(struct link *l, uint64_t at, const struct iovec *iov, size_t n,
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

static void pipe_put(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		     const struct iovec *src, size_t n, struct req *q)
{
	CHECK(at <= d->length && iov_total(src, n) <= d->length - at);
	pipe_transfer(l, at, src, n, q, false);
}

static void pipe_get(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		     const struct iovec *dst, size_t n, struct net_direct *direct, struct req *q)
{
	(void)direct;
	CHECK(at <= d->length && iov_total(dst, n) <= d->length - at);
	pipe_transfer(l, at, dst, n, q, true);
}

/* Used by pipe_ops_file only: sends from a file, as net_tcp does where it can. */
static void pipe_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
			  const struct extent *ext, const struct iovec *mapped, size_t n,
			  struct req *q)
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

void pipe_release(struct pipe_link *p, int error)
{
	struct list *it;

	while ((it = list_pop(&p->deferred))) {
		struct pipe_xfer *x = list_entry(it, struct pipe_xfer, link);

		req_done(x->q, error, error ? 0 : x->len);
		free(x);
	}
}

static void pipe_shut(struct link *l, int error, bool now)
{
	(void)now;
	pipe_of(l)->closed = true;
	pipe_release(pipe_of(l), error);
	link_shut(l);
}

static void pipe_destroy(struct link *l)
{
	arena_destroy(&pipe_of(l)->arena);
	free(pipe_of(l));
}

const struct net_ops pipe_ops = {
	.name = "pipe",
	.send = pipe_send,
	.put = pipe_put,
	.get = pipe_get,
	.shut = pipe_shut,
	.destroy = pipe_destroy,
};

const struct net_ops pipe_ops_file = {
	.name = "pipe",
	.send = pipe_send,
	.put = pipe_put,
	.put_file = pipe_put_file,
	.get = pipe_get,
	.shut = pipe_shut,
	.destroy = pipe_destroy,
};

struct pipe_link *pipe_new(struct world *w, uint32_t role)
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

void pipe_free(struct pipe_link *p)
{
	link_close(&p->l, -ESHUTDOWN);
	link_unref(&p->l);
}

void pipe_message(struct world *w, struct pipe_link *p, uint64_t tag, const void *body, size_t len)
{
	struct msg *m = msg_new(&w->srv->net, (uint32_t)len);

	CHECK(m);
	memcpy(m->body, body, len);
	m->len = (uint32_t)len;
	p->sent++;
	w->loop.now = w->now;
	link_message(&p->l, FRAME_REQUEST, tag, m);
}

void pipe_call(struct world *w, struct pipe_link *p, uint32_t op, uint32_t slot, uint32_t sequence,
	       xdr_any filter, void *args)
{
	struct wire_req_head h = { .op = op,
				   .slot = slot,
				   .sequence = sequence,
				   .session = session_on(&p->l, p->channel) ?
						      session_on(&p->l, p->channel)->id :
						      0,
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
	pipe_message(w, p, tag_make(p->channel, slot, sequence), body, xdr_used(&x));
}

int pipe_do(struct world *w, struct pipe_link *p, uint32_t op, xdr_any put, void *args, xdr_any get,
	    void *res, struct arena *a)
{
	struct session *s = session_on(&p->l, p->channel);
	uint32_t slot = s ? SESSION_SLOTS - 1 : NO_SLOT;
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

void pipe_session(struct world *w, struct pipe_link *p)
{
	struct wire_session_args a = { .client = wire_text("pipe") };
	struct wire_session_res r;

	CHECK_EQ(pipe_do(w, p, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
			 XDR_ANY(xdr_wire_session_res), &r, NULL),
		 0);
	CHECK(session_on(&p->l, p->channel) && session_on(&p->l, p->channel)->id == r.id &&
	      !r.resumed);
}

struct wire_place pipe_place(const char *path)
{
	return (struct wire_place){ .dir = { META_ROOT_INO, META_ROOT_GEN },
				    .path = wire_text(path) };
}

int pipe_open(struct world *w, struct pipe_link *p, const char *path, uint64_t id, uint32_t flags,
	      struct wire_open_res *r, struct arena *a)
{
	struct wire_open_args args = {
		.where = pipe_place(path), .id = id, .flags = flags, .mode = 0644
	};

	return pipe_do(w, p, OP_OPEN, XDR_ANY(xdr_wire_open_args), &args,
		       XDR_ANY(xdr_wire_open_res), r, a);
}
