#include "nfs_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

void nfs_exports(const struct cluster *c, const char *text)
{
	FILE *f = fopen(c->conf, "a");

	CHECK(f);
	CHECK(fputs(text, f) >= 0);
	CHECK_EQ(fclose(f), 0);
}

pid_t nfs_gateway_start(const struct cluster *c, uint32_t port)
{
	const char *build = getenv("SHEAF_BUILD");
	char program[CLUSTER_PATH], address[64], fd_text[16], line[512] = "";
	const char *argv[] = { program,	      "--conf", c->conf,       "--address", address,
			       "--log-level", "error",	"--notify-fd", fd_text,	    NULL };
	int ends[2];
	pid_t pid;

	CHECK(build);
	snprintf(program, sizeof(program), "%s/bin/sheaf-nfsd", build);
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
	snprintf(fd_text, sizeof(fd_text), "%d", ends[1]);
	pid = process_start(argv, ends[1]);
	close(ends[1]);
	CHECK(read(ends[0], line, sizeof(line) - 1) > 0);
	CHECK_STR(line, "ready\n");
	close(ends[0]);
	return pid;
}

void nfs_dial(struct nfs_client *c, uint32_t port, uint32_t uid)
{
	nfs_dial_from(c, port, uid, "127.0.0.1");
}

void nfs_dial_from(struct nfs_client *c, uint32_t port, uint32_t uid, const char *address)
{
	nfs_dial_at(c, port, uid, address, 0);
}

void nfs_dial_at(struct nfs_client *c, uint32_t port, uint32_t uid, const char *address,
		 uint16_t own_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(own_port) };
	struct timeval limit = { .tv_sec = PATIENCE_S };
	int one = 1;

	memset(c, 0, sizeof(*c));
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c->uid = c->gid = uid;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	c->out = malloc(NFS_MESSAGE_MAX);
	c->in = malloc(NFS_MESSAGE_MAX);
	CHECK(c->fd >= 0 && c->out && c->in);
	CHECK_EQ(inet_pton(AF_INET, address, &own.sin_addr), 1);
	setsockopt(c->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	CHECK_EQ(bind(c->fd, (struct sockaddr *)&own, sizeof(own)), 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	CHECK_EQ(connect(c->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	arena_init(&c->arena, 8 * MIB);
	c->xid = (uint32_t)getpid() << 12 ^ (uint32_t)c->fd << 24;
}

void nfs_hang_up(struct nfs_client *c)
{
	close(c->fd);
	free(c->out);
	free(c->in);
	arena_destroy(&c->arena);
}

void nfs_encode(struct nfs_client *c, uint32_t program, uint32_t version, uint32_t procedure,
		xdr_any args, void *a)
{
	struct wire_auth_sys sys = { .stamp = c->stamp,
				     .machine = wire_text("test"),
				     .uid = c->uid,
				     .gid = c->gid,
				     .n_gids = c->n_gids,
				     .gids = c->gids };
	struct wire_rpc_call call = { .xid = ++c->xid,
				      .kind = RPC_CALL,
				      .rpc_version = RPC_VERSION,
				      .program = program,
				      .version = version,
				      .procedure = procedure };
	uint8_t body[RPC_AUTH_MAX];
	struct xdr x;

	xdr_encoder(&x, body, sizeof(body));
	CHECK(xdr_wire_auth_sys(&x, &sys));
	call.credential.flavor = AUTH_SYS;
	call.credential.body = (struct wire_bytes){ (uint32_t)xdr_used(&x), body };
	xdr_encoder(&x, c->out + 4, NFS_MESSAGE_MAX - 4);
	CHECK(xdr_wire_rpc_call(&x, &call));
	if (args)
		CHECK(args(&x, a));
	c->out_len = xdr_used(&x) + 4;
}

static void send_all(int fd, const uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t r = send(fd, p, n, MSG_NOSIGNAL);

		CHECK(r > 0);
		p += r;
		n -= (size_t)r;
	}
}

void nfs_send(struct nfs_client *c)
{
	uint32_t mark = htonl((uint32_t)(c->out_len - 4) | RPC_FRAGMENT_LAST);

	memcpy(c->out, &mark, 4);
	send_all(c->fd, c->out, c->out_len);
}

static bool receive_all(int fd, uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t r = recv(fd, p, n, 0);

		if (r <= 0)
			return false;
		p += r;
		n -= (size_t)r;
	}
	return true;
}

bool nfs_receive(struct nfs_client *c)
{
	uint32_t mark;

	if (!receive_all(c->fd, (uint8_t *)&mark, 4))
		return false;
	mark = ntohl(mark);
	CHECK(mark & RPC_FRAGMENT_LAST);
	c->in_len = mark & ~(uint32_t)RPC_FRAGMENT_LAST;
	CHECK(c->in_len <= NFS_MESSAGE_MAX);
	return receive_all(c->fd, c->in, c->in_len);
}

int nfs_decode(struct nfs_client *c, xdr_any res, void *r, const uint8_t **data)
{
	struct wire_rpc_reply reply;
	struct xdr x;

	arena_reset(&c->arena);
	xdr_decoder(&x, c->in, c->in_len, &c->arena);
	CHECK(xdr_wire_rpc_reply(&x, &reply));
	CHECK_EQ(reply.xid, c->xid);
	CHECK_EQ(reply.kind, RPC_REPLY);
	if (reply.answer.code != RPC_ACCEPTED)
		return -1;
	if (reply.answer.accepted.result.code == RPC_SUCCESS && res)
		CHECK(res(&x, r));
	if (data)
		*data = x.p;
	return (int)reply.answer.accepted.result.code;
}

const uint8_t *nfs_call(struct nfs_client *c, uint32_t program, uint32_t version,
			uint32_t procedure, xdr_any args, void *a, xdr_any res, void *r)
{
	const uint8_t *data;

	nfs_encode(c, program, version, procedure, args, a);
	nfs_send(c);
	CHECK(nfs_receive(c));
	CHECK_EQ(nfs_decode(c, res, r, &data), RPC_SUCCESS);
	return data;
}

/* ---- common calls ---- */

static void keep(const struct wire_bytes *b, struct nfs_handle *h)
{
	CHECK(b->len <= sizeof(h->bytes));
	h->len = b->len;
	memcpy(h->bytes, b->p, b->len);
}

uint32_t nfs_mount(struct nfs_client *c, const char *path, struct nfs_handle *h)
{
	struct wire_mount_path a = { wire_text(path) };
	struct wire_mount_result r;

	nfs_call(c, MOUNT_PROGRAM, MOUNT_VERSION, MOUNT_MNT, XDR_ANY(xdr_wire_mount_path), &a,
		 XDR_ANY(xdr_wire_mount_result), &r);
	if (r.status == MOUNT_OK)
		keep(&r.root.handle, h);
	return r.status;
}

uint32_t nfs_lookup(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    struct nfs_handle *h)
{
	struct wire_lookup3_args a = { { nfs_bytes(dir), wire_text(name) } };
	struct wire_lookup3_res r;

	NFS3(c, NFS3_LOOKUP, lookup3_args, &a, lookup3_res, &r);
	if (r.status == NFS3_OK)
		keep(&r.found.object, h);
	return r.status;
}

uint32_t nfs_getattr(struct nfs_client *c, const struct nfs_handle *h, struct wire_attr3 *a)
{
	struct wire_handle3_args args = { nfs_bytes(h) };
	struct wire_getattr3_res r;

	NFS3(c, NFS3_GETATTR, handle3_args, &args, getattr3_res, &r);
	if (r.status == NFS3_OK)
		*a = r.attributes;
	return r.status;
}

static uint32_t made(const struct wire_create3_res *r, struct nfs_handle *h)
{
	if (r->status == NFS3_OK) {
		CHECK(r->created.object && r->created.attributes && r->created.dir.after);
		if (h)
			keep(&r->created.object->object, h);
	}
	return r->status;
}

uint32_t nfs_create(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    uint32_t how, uint32_t mode, struct nfs_handle *h)
{
	struct wire_create3_args a = { .where = { nfs_bytes(dir), wire_text(name) } };
	struct wire_create3_res r;

	a.how.mode = how;
	if (how == CREATE3_EXCLUSIVE)
		memset(a.how.verifier, (int)mode, sizeof(a.how.verifier));
	else
		a.how.unchecked.mode = &mode;
	NFS3(c, NFS3_CREATE, create3_args, &a, create3_res, &r);
	return made(&r, h);
}

uint32_t nfs_mkdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		   struct nfs_handle *h)
{
	struct wire_mkdir3_args a = { .where = { nfs_bytes(dir), wire_text(name) } };
	struct wire_create3_res r;

	NFS3(c, NFS3_MKDIR, mkdir3_args, &a, create3_res, &r);
	return made(&r, h);
}

static uint32_t removed(struct nfs_client *c, uint32_t procedure, const struct nfs_handle *dir,
			const char *name)
{
	struct wire_remove3_args a = { { nfs_bytes(dir), wire_text(name) } };
	struct wire_change3_res r;

	NFS3(c, procedure, remove3_args, &a, change3_res, &r);
	return r.status;
}

uint32_t nfs_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name)
{
	return removed(c, NFS3_REMOVE, dir, name);
}

uint32_t nfs_rmdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name)
{
	return removed(c, NFS3_RMDIR, dir, name);
}

uint32_t nfs_write(struct nfs_client *c, const struct nfs_handle *h, uint64_t at, const void *p,
		   uint32_t n, uint32_t stable, uint8_t verifier[8])
{
	struct wire_write3_args a = { nfs_bytes(h), at, n, stable, { n, p } };
	struct wire_write3_res r;

	NFS3(c, NFS3_WRITE, write3_args, &a, write3_res, &r);
	if (r.status == NFS3_OK) {
		CHECK_EQ(r.written.count, n);
		CHECK(r.written.stable >= stable);
		if (verifier)
			memcpy(verifier, r.written.verifier, 8);
	}
	return r.status;
}

uint32_t nfs_read(struct nfs_client *c, const struct nfs_handle *h, uint64_t at, void *p,
		  uint32_t *n, bool *eof)
{
	struct wire_read3_args a = { nfs_bytes(h), at, *n };
	struct wire_read3_res r;
	const uint8_t *data = NFS3(c, NFS3_READ, read3_args, &a, read3_res, &r);

	if (r.status != NFS3_OK)
		return r.status;
	CHECK(r.read.count <= *n && r.read.count == r.read.length);
	CHECK_EQ(c->in + c->in_len - data, (r.read.count + 3) & ~3u);
	memcpy(p, data, r.read.count);
	*n = r.read.count;
	if (eof)
		*eof = r.read.eof;
	return NFS3_OK;
}

uint32_t nfs_commit(struct nfs_client *c, const struct nfs_handle *h, uint8_t verifier[8])
{
	struct wire_commit3_args a = { nfs_bytes(h), 0, 0 };
	struct wire_commit3_res r;

	NFS3(c, NFS3_COMMIT, commit3_args, &a, commit3_res, &r);
	if (r.status == NFS3_OK)
		memcpy(verifier, r.committed.verifier, 8);
	return r.status;
}
