#include <netinet/tcp.h>

#include "raw_link.h"

int raw_connect(const struct cluster *c, int server)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct timeval patience = { .tv_sec = PATIENCE_S };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	a.sin_port = htons((uint16_t)(c->port + (uint32_t)server));
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

bool raw_write(int fd, const void *p, size_t n)
{
	while (n) {
		ssize_t r = send(fd, p, n, MSG_NOSIGNAL);

		if (r <= 0)
			return false;
		p = (const uint8_t *)p + r;
		n -= (size_t)r;
	}
	return true;
}

static bool raw_read(int fd, void *p, size_t n)
{
	while (n) {
		ssize_t r = recv(fd, p, n, 0);

		if (r <= 0)
			return false;
		p = (uint8_t *)p + r;
		n -= (size_t)r;
	}
	return true;
}

bool raw_closed(int fd)
{
	uint8_t b[4096];
	ssize_t r;

	do
		r = recv(fd, b, sizeof(b), 0);
	while (r > 0);
	return r == 0 || errno == ECONNRESET || errno == EPIPE;
}

bool raw_frame(int fd, struct wire_frame_head h, const void *body, size_t n)
{
	uint8_t head[FRAME_HEAD];

	frame_head_encode(head, &h);
	return raw_write(fd, head, sizeof(head)) && raw_write(fd, body, n);
}

bool raw_send(struct raw *r, uint32_t kind, uint64_t tag, const void *body, uint32_t n)
{
	return raw_frame(r->fd, (struct wire_frame_head){ .kind = kind, .length = n, .tag = tag },
			 body, n);
}

bool raw_recv(struct raw *r)
{
	uint8_t head[FRAME_HEAD];
	struct xdr x;

	if (!raw_read(r->fd, head, sizeof(head)))
		return false;
	xdr_decoder(&x, head, sizeof(head), NULL);
	CHECK(xdr_wire_frame_head(&x, &r->head) && r->head.magic == SHEAF_MAGIC);
	CHECK(r->head.length <= sizeof(r->body));
	return raw_read(r->fd, r->body, r->head.length);
}

struct wire_hello raw_hello(const struct raw *r, uint32_t target)
{
	struct wire_hello h = { .version_min = SHEAF_VERSION,
				.version_max = SHEAF_VERSION,
				.role = LINK_CLIENT,
				.backends = BACKEND_TCP,
				.target = target,
				.host = wire_text("by hand"),
				.key = wire_text(r->key_name) };

	memcpy(h.fs_id, r->conf->fs_id.b, sizeof(h.fs_id));
	CHECK_EQ(getrandom(h.nonce, sizeof(h.nonce), 0), (ssize_t)sizeof(h.nonce));
	return h;
}

bool raw_send_hello(struct raw *r, struct wire_hello *h)
{
	struct xdr x;

	xdr_encoder(&x, r->hello, sizeof(r->hello));
	CHECK(xdr_wire_hello(&x, h));
	r->hello_len = (uint32_t)xdr_used(&x);
	return raw_send(r, FRAME_HELLO, 0, r->hello, r->hello_len);
}

bool raw_respond(struct raw *r)
{
	struct wire_challenge ch;
	struct wire_response resp;
	struct xdr x;

	xdr_decoder(&x, r->body, r->head.length, NULL);
	if (r->head.kind != FRAME_CHALLENGE || !xdr_wire_challenge(&x, &ch))
		return false;
	mac_make(resp.mac, r->key,
		 (struct mac_part[]){ { "client", 6 },
				      { ch.nonce, 32 },
				      { r->hello, r->hello_len },
				      { NULL, 0 } });
	xdr_encoder(&x, r->response, sizeof(r->response));
	CHECK(xdr_wire_response(&x, &resp));
	r->response_len = (uint32_t)xdr_used(&x);
	return raw_send(r, FRAME_RESPONSE, 0, r->response, r->response_len);
}

/* The status of the WELCOME in body: 0 or a positive errno; -1: another frame. */
static int raw_welcome_status(struct raw *r)
{
	struct wire_welcome w;
	struct xdr x;

	if (r->head.kind != FRAME_WELCOME)
		return -1;
	xdr_decoder(&x, r->body, r->head.length, NULL);
	CHECK(xdr_wire_welcome(&x, &w));
	return w.status;
}

int raw_welcome(struct raw *r)
{
	return raw_recv(r) ? raw_welcome_status(r) : -1;
}

void raw_open_with(struct raw *r, const struct cluster *c, int server, const char *key_name)
{
	const struct client_key *k;
	char err[512];

	memset(r, 0, offsetof(struct raw, body));
	arena_init(&r->arena, 0);
	CHECK_EQ(conf_load(c->conf, &r->conf, err, sizeof(err)), 0);
	k = conf_key_find(r->conf, key_name);
	CHECK_EQ(key_load(k ? k->file : r->conf->key_file, r->key, err, sizeof(err)), 0);
	r->key_name = key_name;
	r->fd = raw_connect(c, server);
}

void raw_open(struct raw *r, const struct cluster *c, int server)
{
	raw_open_with(r, c, server, "");
}

void raw_close(struct raw *r)
{
	close(r->fd);
	conf_free(r->conf);
	arena_destroy(&r->arena);
}

int raw_greet(struct raw *r, int server)
{
	struct wire_hello h = raw_hello(r, (uint32_t)server);

	if (!raw_send_hello(r, &h) || !raw_recv(r))
		return -1;
	if (r->head.kind == FRAME_CHALLENGE)
		return raw_respond(r) ? raw_welcome(r) : -1;
	return raw_welcome_status(r);
}

void raw_up(struct raw *r, const struct cluster *c, int server)
{
	raw_open(r, c, server);
	CHECK_EQ(raw_greet(r, server), 0);
}

uint64_t raw_tag(uint32_t slot, uint32_t sequence)
{
	return (uint64_t)slot << 32 | sequence;
}

bool raw_request(struct raw *r, uint32_t op, uint32_t slot, uint32_t sequence, xdr_any put,
		 void *args)
{
	static struct raw_body m;
	struct wire_req_head h = { .op = op,
				   .slot = slot,
				   .sequence = sequence,
				   .session = r->session,
				   .uid = r->uid,
				   .gid = r->gid,
				   .time_left_ms = 10000,
				   .trace = 1 };
	struct xdr x;

	xdr_encoder(&x, m.b, sizeof(m.b));
	CHECK(xdr_wire_req_head(&x, &h));
	CHECK(!put || put(&x, args));
	return raw_send(r, FRAME_REQUEST, raw_tag(slot, sequence), m.b, (uint32_t)xdr_used(&x));
}

int raw_reply(struct raw *r, xdr_any get, void *res)
{
	struct wire_rep_head h;
	struct xdr x;

	do
		if (!raw_recv(r))
			return -1;
	while (r->head.kind != FRAME_REPLY);
	arena_reset(&r->arena);
	xdr_decoder(&x, r->body, r->head.length, &r->arena);
	CHECK(xdr_wire_rep_head(&x, &h));
	if (h.status == 0 && get)
		CHECK(get(&x, res));
	return h.status;
}

int raw_call(struct raw *r, uint32_t op, uint32_t slot, uint32_t sequence, xdr_any put, void *args,
	     xdr_any get, void *res)
{
	return raw_request(r, op, slot, sequence, put, args) ? raw_reply(r, get, res) : -1;
}

int raw_session(struct raw *r)
{
	struct wire_session_args a = { .id = r->session, .client = wire_text("by hand") };
	struct wire_session_res res;
	int e;

	if (!r->session)
		CHECK_EQ(getrandom(r->secret, sizeof(r->secret), 0), (ssize_t)sizeof(r->secret));
	memcpy(a.secret, r->secret, sizeof(a.secret));
	e = raw_call(r, OP_SESSION, NO_SLOT, 0, XDR_ANY(xdr_wire_session_args), &a,
		     XDR_ANY(xdr_wire_session_res), &res);
	if (e == 0)
		r->session = res.id;
	return e;
}

void raw_up_session(struct raw *r, const struct cluster *c, int server)
{
	raw_up(r, c, server);
	CHECK_EQ(raw_session(r), 0);
}
