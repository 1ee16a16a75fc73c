#include "toy_server.h"

/* ---- identities ---- */

struct net_identity net_id(uint8_t key, uint8_t server_key)
{
	struct net_identity id = { .fs = { { 1, 2, 3 } },
				   .verifier = 99,
				   .lease_ms = 30000,
				   .timeout_ms = 5000,
				   .has_server_key = server_key != 0,
				   .host = "test" };

	memset(id.client_key, key, KEY_BYTES);
	memset(id.server_key, server_key, KEY_BYTES);
	return id;
}

/* ---- the server ---- */

/* READ puts a pattern into all of the client's memory, WRITE gets it, in pieces of `piece`
 * bytes. */
struct moving {
	struct req q;
	struct list link;
	struct toy_server *f;
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

uint8_t *moving_direct;
uint64_t moving_direct_len;
int moving_direct_may;
uint64_t moving_direct_done;

size_t moving_piece = 65536;
int moving_file = -1;
const char *moving_map;
int moving_result;
bool moving_over;
uint64_t moving_sum;
uint64_t moving_strange;

uint8_t pattern_byte(uint64_t at)
{
	return (uint8_t)(at * 131 + (at >> 8) * 17 + 1);
}

static uint8_t other_byte(uint8_t b)
{
	return (uint8_t)(b + 1);
}

void toy_server_reply(struct toy_server *f, struct link *l, uint64_t tag, int status,
		      uint32_t slots, xdr_any filter, void *res)
{
	struct wire_rep_head h = { .status = status,
				   .slot = tag_slot(tag),
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

void toy_server_zeros(struct toy_server *f, struct link *l, uint64_t tag, uint32_t op, int status)
{
	uint64_t res[512] = { 0 };

	CHECK(wire_op_rows[op].res_size <= sizeof(res));
	toy_server_reply(f, l, tag, status, SESSION_SLOTS, wire_op_rows[op].res, res);
}

static void toy_server_session(struct toy_server *f, struct link *l, uint64_t tag,
			       struct wire_session_args *a)
{
	struct wire_session_res r = { .resumed = a->id && a->id <= f->session && !f->forget,
				      .slots = SESSION_SLOTS,
				      .lease_ms = 30000,
				      .boot = f->boot };

	if (f->deny && a->id) {
		toy_server_reply(f, l, tag, EACCES, SESSION_SLOTS, NULL, NULL);
		return;
	}
	if (!r.resumed)
		f->session++;
	f->forget = false;
	r.id = r.resumed ? a->id : f->session;
	f->n_sessions++;
	f->link = l;
	toy_server_reply(f, l, tag, 0, SESSION_SLOTS, XDR_ANY(xdr_wire_session_res), &r);
}

static bool moving_may(struct net_direct *d)
{
	(void)d;
	return moving_direct_may-- > 0;
}

static void moving_get(struct moving *v, struct req *q)
{
	v->there = (struct iovec){ moving_direct, MOVING_DIRECT };
	v->direct = (struct net_direct){ .may = moving_may,
					 .iov = &v->there,
					 .n = 1,
					 .len = MIN(moving_direct_len, v->mem.length) };
	net_get(v->l, &v->mem, 0, v->iov, v->n, moving_direct ? &v->direct : NULL, q);
}

static bool moving_step(struct req *q)
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
		moving_sum += v->bytes[i] != pattern_byte(i);
	moving_strange = 0;
	for (uint64_t i = 0; v->write && i < v->mem.length; i++)
		moving_strange += v->bytes[i] != pattern_byte(i) &&
				  v->bytes[i] != other_byte(pattern_byte(i));
	if (v->write)
		toy_server_reply(v->f, v->l, v->tag, -q->error, SESSION_SLOTS,
				 XDR_ANY(xdr_wire_write_res), &wr);
	else
		toy_server_reply(v->f, v->l, v->tag, -q->error, SESSION_SLOTS,
				 XDR_ANY(xdr_wire_read_res), &rr);
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

void toy_server_move(struct toy_server *f, struct link *l, uint64_t tag,
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
		v->bytes[i] = write ? other_byte(pattern_byte(i)) : pattern_byte(i);
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

static void toy_server_data(struct toy_server *f, struct link *l, uint64_t tag, struct xdr *x,
			    bool write)
{
	struct wire_read_args r;
	struct wire_write_args wr;

	if (write)
		CHECK(xdr_wire_write_args(x, &wr));
	else
		CHECK(xdr_wire_read_args(x, &r));
	toy_server_move(f, l, tag, write ? &wr.mem : &r.mem, write);
}

static void toy_server_request(void *owner, struct link *l, uint64_t tag, struct msg *m)
{
	struct toy_server *f = owner;
	struct wire_session_args session;
	struct wire_req_head h;
	struct arena a;
	struct xdr x;

	arena_init(&a, 0);
	xdr_decoder(&x, m->body, m->len, &a);
	CHECK(xdr_wire_req_head(&x, &h));
	CHECK_EQ(tag, tag_make(tag_channel(tag), h.slot, h.sequence));
	if (h.op == OP_SESSION) {
		CHECK(xdr_wire_session_args(&x, &session));
		if (!f->mute)
			toy_server_session(f, l, tag, &session);
	} else {
		struct seen *s = &f->seen[f->n_seen++ % TOY_SERVER_SEEN];

		if (s->held) /* the old request is never answered */
			link_unref(s->link);
		*s = (struct seen){ .link = l, .tag = tag, .head = h, .held = f->hold };
		if (f->hold)
			link_ref(l);
		else if (h.op == OP_READ || h.op == OP_WRITE)
			toy_server_data(f, l, tag, &x, h.op == OP_WRITE);
		else
			toy_server_zeros(f, l, tag, h.op, f->status);
	}
	arena_destroy(&a);
	msg_free(m);
}

void toy_server_release(struct toy_server *f, int status)
{
	for (unsigned i = 0; i < MIN(f->n_seen, (unsigned)TOY_SERVER_SEEN); i++) {
		struct seen *s = &f->seen[i];

		if (!s->held)
			continue;
		s->held = false;
		toy_server_zeros(f, s->link, s->tag, s->head.op, status);
		link_unref(s->link);
	}
}

void toy_server_drop(struct toy_server *f)
{
	for (unsigned i = 0; i < TOY_SERVER_SEEN; i++) {
		if (f->seen[i].held)
			link_unref(f->seen[i].link);
		f->seen[i].held = false;
	}
	f->n_seen = 0;
}

static void toy_server_cancel(void *owner, struct link *l, uint64_t tag)
{
	struct toy_server *f = owner;

	(void)l;
	f->n_cancels++;
	f->cancelled = tag;
}

static void toy_server_down(void *owner, struct link *l)
{
	struct toy_server *f = owner;

	f->n_downs++;
	if (f->link == l)
		f->link = NULL;
}

static const struct net_server_ops toy_server_ops = { toy_server_request, toy_server_cancel,
						      toy_server_down };

void toy_server_start(struct toy_server *f, struct net_world *w, const char *address,
		      struct net_identity id)
{
	char err[256] = "";

	memset(f, 0, sizeof(*f));
	f->w = w;
	f->boot = 1;
	list_init(&f->xfers);
	net_init(&f->net, &w->loop, &id);
	f->net.hub = &w->hub;
	f->net.server = &toy_server_ops;
	f->net.owner = f;
	if (address)
		CHECK_EQ(net_listen(&f->net, address, err, sizeof(err)), 0);
}

void toy_server_stop(struct toy_server *f)
{
	toy_server_drop(f);
	net_fini(&f->net);
	while (!list_empty(&f->w->loop.runnable))
		loop_run_ready(&f->w->loop);
	CHECK(list_empty(&f->xfers));
	net_fini(&f->net); /* frees messages that were returned meanwhile */
}
