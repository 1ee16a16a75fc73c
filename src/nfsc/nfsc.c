/* A client of NFSv3: it encodes calls, sends them as records over TCP, and decodes the replies.
 *
 * Threads: none; all calls block. Buffers: one message each way; data are sent from the caller's
 * memory. Errors: -errno, also for a status of NFS or RPC. */
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nfsc/nfsc.h"

#define MESSAGE_MAX (NFS3_DATA_MAX + 64 * KIB)
#define ARENA_MAX (256 * KIB)
#define MARK 4 /* bytes before a fragment */
#define LIMIT_S 60 /* for a server that does not answer */
#define FIRST_STATUS_NO_ERRNO 10000

#define CALL(c, procedure, args, a, res, r) \
	call(c, NFS3_PROGRAM, NFS3_VERSION, procedure, XDR_ANY(xdr_wire_##args), a, \
	     XDR_ANY(xdr_wire_##res), r)

/* ---- connections ---- */

static int connect_to(const struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, e;

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)at, sizeof(*at))) {
		e = -errno;
		close(fd);
		return e;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

int nfsc_dial(struct nfsc_conn *c, const struct sockaddr_in *at)
{
	struct timeval limit = { .tv_sec = LIMIT_S };
	int r;

	*c = (struct nfsc_conn){ .fd = connect_to(at),
				 .out = malloc(MESSAGE_MAX),
				 .in = malloc(MESSAGE_MAX) };
	arena_init(&c->arena, ARENA_MAX);
	r = c->fd < 0 ? c->fd : c->out && c->in ? 0 : -ENOMEM;
	if (!r && setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)))
		r = -errno;
	if (r)
		nfsc_hang_up(c);
	c->xid = (uint32_t)hash_u64((uint64_t)getpid() << 32 ^ time_now());
	return r;
}

void nfsc_hang_up(struct nfsc_conn *c)
{
	if (c->fd > 0)
		close(c->fd);
	free(c->out);
	free(c->in);
	arena_destroy(&c->arena);
	*c = (struct nfsc_conn){ 0 };
}

/* ---- records ---- */

static int send_parts(struct nfsc_conn *c, struct iovec *parts, size_t n)
{
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = n };

	while (m.msg_iovlen) {
		ssize_t r = sendmsg(c->fd, &m, MSG_NOSIGNAL);

		if (r < 0 && errno != EINTR)
			return -errno;
		for (size_t k = (size_t)MAX(r, 0); m.msg_iovlen; m.msg_iov++, m.msg_iovlen--) {
			size_t part = MIN(k, m.msg_iov->iov_len);

			m.msg_iov->iov_base = (char *)m.msg_iov->iov_base + part;
			m.msg_iov->iov_len -= part;
			k -= part;
			if (m.msg_iov->iov_len)
				break;
		}
	}
	return 0;
}

static int receive_all(struct nfsc_conn *c, void *p, size_t n)
{
	while (n) {
		ssize_t r = recv(c->fd, p, n, MSG_WAITALL);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r ? -errno : -ECONNRESET;
		p = (char *)p + r;
		n -= (size_t)r;
	}
	return 0;
}

/* Receives a reply of any number of fragments into c->in. */
static int receive(struct nfsc_conn *c)
{
	uint32_t mark = 0;
	int r = 0;

	c->in_len = 0;
	while (!r && !(mark & RPC_FRAGMENT_LAST)) {
		r = receive_all(c, &mark, sizeof(mark));
		mark = ntohl(mark);
		if (!r && (mark & ~(uint32_t)RPC_FRAGMENT_LAST) > MESSAGE_MAX - c->in_len)
			r = -EMSGSIZE;
		if (!r)
			r = receive_all(c, c->in + c->in_len, mark & ~(uint32_t)RPC_FRAGMENT_LAST);
		c->in_len += mark & ~(uint32_t)RPC_FRAGMENT_LAST;
	}
	return r;
}

/* ---- calls ---- */

/* Encodes the head of a call by root, behind the record mark. */
static bool put_head(struct nfsc_conn *c, struct xdr *x, uint32_t program, uint32_t version,
		     uint32_t procedure)
{
	struct wire_auth_sys root = { .machine = wire_text("bench") };
	struct wire_rpc_call head = { .xid = ++c->xid,
				      .kind = RPC_CALL,
				      .rpc_version = RPC_VERSION,
				      .program = program,
				      .version = version,
				      .procedure = procedure,
				      .credential.flavor = AUTH_SYS };
	uint8_t body[64];

	xdr_encoder(x, body, sizeof(body));
	if (!xdr_wire_auth_sys(x, &root))
		return false;
	head.credential.body = (struct wire_bytes){ (uint32_t)xdr_used(x), body };
	xdr_encoder(x, c->out + MARK, MESSAGE_MAX - MARK);
	return xdr_wire_rpc_call(x, &head);
}

/* Sends the encoded call, and `n` bytes of data behind it (a multiple of 4). */
static int send_call(struct nfsc_conn *c, const struct xdr *x, const void *data, size_t n)
{
	size_t head = xdr_used(x);
	struct iovec parts[] = { { c->out, head + MARK }, { (void *)(uintptr_t)data, n } };
	uint32_t mark = htonl((uint32_t)(head + n) | RPC_FRAGMENT_LAST);

	memcpy(c->out, &mark, MARK);
	return send_parts(c, parts, n ? 2 : 1);
}

/* Receives and decodes a reply; calls in progress may be answered in any order. */
static int take_reply(struct nfsc_conn *c, xdr_any res, void *out)
{
	struct wire_rpc_reply reply;
	struct xdr x;
	int r = receive(c);

	if (r)
		return r;
	arena_reset(&c->arena);
	xdr_decoder(&x, c->in, c->in_len, &c->arena);
	if (!xdr_wire_rpc_reply(&x, &reply) || reply.kind != RPC_REPLY ||
	    reply.answer.code != RPC_ACCEPTED || reply.answer.accepted.result.code != RPC_SUCCESS ||
	    (res && !res(&x, out)))
		return -EPROTO;
	return 0;
}

static int call(struct nfsc_conn *c, uint32_t program, uint32_t version, uint32_t procedure,
		xdr_any args, void *a, xdr_any res, void *out)
{
	struct xdr x;
	int r;

	if (!put_head(c, &x, program, version, procedure) || (args && !args(&x, a)))
		return -EMSGSIZE;
	r = send_call(c, &x, NULL, 0);
	return r ? r : take_reply(c, res, out);
}

/* The numbers of NFS below 10,000 are those of errno that every system has. */
static int status_error(uint32_t status)
{
	return status < FIRST_STATUS_NO_ERRNO ? -(int)status : -EPROTO;
}

static struct wire_bytes bytes_of(const struct nfsc_handle *h)
{
	return (struct wire_bytes){ h->len, h->bytes };
}

static int keep(const struct wire_bytes *b, struct nfsc_handle *h)
{
	if (b->len > sizeof(h->bytes))
		return -EPROTO;
	h->len = b->len;
	memcpy(h->bytes, b->p, b->len);
	return 0;
}

/* ---- procedures ---- */

int nfsc_null(struct nfsc_conn *c)
{
	return call(c, NFS3_PROGRAM, NFS3_VERSION, NFS3_NULL, NULL, NULL, NULL, NULL);
}

int nfsc_mnt(struct nfsc_conn *c, const char *path, struct nfsc_handle *h)
{
	struct wire_mount_path a = { wire_text(path) };
	struct wire_mount_result res;
	int r = call(c, MOUNT_PROGRAM, MOUNT_VERSION, MOUNT_MNT, XDR_ANY(xdr_wire_mount_path), &a,
		     XDR_ANY(xdr_wire_mount_result), &res);

	if (r || res.status != MOUNT_OK)
		return r ? r : status_error(res.status);
	return keep(&res.root.handle, h);
}

int nfsc_getattr(struct nfsc_conn *c, const struct nfsc_handle *h)
{
	struct wire_handle3_args a = { bytes_of(h) };
	struct wire_getattr3_res res;
	int r = CALL(c, NFS3_GETATTR, handle3_args, &a, getattr3_res, &res);

	return r ? r : status_error(res.status);
}

int nfsc_lookup(struct nfsc_conn *c, const struct nfsc_handle *dir, const char *name)
{
	struct wire_lookup3_args a = { { bytes_of(dir), wire_text(name) } };
	struct wire_lookup3_res res;
	int r = CALL(c, NFS3_LOOKUP, lookup3_args, &a, lookup3_res, &res);

	return r ? r : status_error(res.status);
}

static int made(const struct wire_create3_res *res, struct nfsc_handle *h)
{
	if (res->status != NFS3_OK)
		return status_error(res->status);
	return res->created.object ? keep(&res->created.object->object, h) : -EPROTO;
}

int nfsc_mkdir(struct nfsc_conn *c, const struct nfsc_handle *dir, const char *name,
	       struct nfsc_handle *h)
{
	uint32_t mode = 0700;
	struct wire_mkdir3_args a = { { bytes_of(dir), wire_text(name) }, { .mode = &mode } };
	struct wire_create3_res res;
	int r = CALL(c, NFS3_MKDIR, mkdir3_args, &a, create3_res, &res);

	return r ? r : made(&res, h);
}

int nfsc_create(struct nfsc_conn *c, const struct nfsc_handle *dir, const char *name,
		struct nfsc_handle *h)
{
	uint32_t mode = 0600;
	struct wire_create3_args a = { .where = { bytes_of(dir), wire_text(name) },
				       .how.mode = CREATE3_GUARDED };
	struct wire_create3_res res;
	int r;

	a.how.guarded.mode = &mode;
	r = CALL(c, NFS3_CREATE, create3_args, &a, create3_res, &res);
	return r ? r : made(&res, h);
}

int nfsc_remove(struct nfsc_conn *c, const struct nfsc_handle *dir, const char *name)
{
	struct wire_remove3_args a = { { bytes_of(dir), wire_text(name) } };
	struct wire_change3_res res;
	int r = CALL(c, NFS3_REMOVE, remove3_args, &a, change3_res, &res);

	return r ? r : status_error(res.status);
}

int nfsc_commit(struct nfsc_conn *c, const struct nfsc_handle *h)
{
	struct wire_commit3_args a = { bytes_of(h), 0, 0 };
	struct wire_commit3_res res;
	int r = CALL(c, NFS3_COMMIT, commit3_args, &a, commit3_res, &res);

	return r ? r : status_error(res.status);
}

/* ---- bulk ---- */

static int ask_read(struct nfsc_conn *c, const struct nfsc_bulk *k, uint64_t at)
{
	struct wire_read3_args a = { bytes_of(k->file), at, k->size };
	struct xdr x;

	if (!put_head(c, &x, NFS3_PROGRAM, NFS3_VERSION, NFS3_READ) || !xdr_wire_read3_args(&x, &a))
		return -EMSGSIZE;
	return send_call(c, &x, NULL, 0);
}

/* The data are sent from the caller's memory: they are encoded as empty, then get their length. */
static int ask_write(struct nfsc_conn *c, const struct nfsc_bulk *k, uint32_t call, uint64_t at)
{
	struct wire_write3_args a = { bytes_of(k->file), at, k->size, STABLE3_NOT, { 0, NULL } };
	uint32_t length = htonl(k->size);
	struct xdr x;

	if (!put_head(c, &x, NFS3_PROGRAM, NFS3_VERSION, NFS3_WRITE) ||
	    !xdr_wire_write3_args(&x, &a))
		return -EMSGSIZE;
	memcpy(x.p - sizeof(length), &length, sizeof(length));
	return send_call(c, &x, (const char *)k->data + call * k->apart, k->size);
}

static int take_one(struct nfsc_conn *c, const struct nfsc_bulk *k)
{
	struct wire_write3_res written;
	struct wire_read3_res read;
	int r;

	if (k->data) {
		r = take_reply(c, XDR_ANY(xdr_wire_write3_res), &written);
		if (r || written.status != NFS3_OK)
			return r ? r : status_error(written.status);
		return written.written.count == k->size ? 0 : -EIO;
	}
	r = take_reply(c, XDR_ANY(xdr_wire_read3_res), &read);
	if (r || read.status != NFS3_OK)
		return r ? r : status_error(read.status);
	return read.read.count == k->size && c->in_len >= k->size ? 0 : -EIO;
}

int nfsc_bulk(struct nfsc_conn *c, const struct nfsc_bulk *k)
{
	uint32_t asked = 0;
	int r = 0;

	for (uint32_t taken = 0; !r && taken < k->n;) {
		uint64_t at = k->at + (uint64_t)asked * k->size;

		if (asked < k->n && asked - taken < k->ahead) {
			r = k->data ? ask_write(c, k, asked, at) : ask_read(c, k, at);
			asked++;
		} else {
			r = take_one(c, k);
			taken++;
		}
	}
	return r;
}
