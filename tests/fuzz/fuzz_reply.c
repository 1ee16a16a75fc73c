/* A hostile server: a real client (peer, link, net_tcp, list I/O) on a socket whose other end is
 * the fuzzer.
 *
 * The input is a script. Some of its steps are honest (the handshake, a valid reply), so that the
 * code behind them is reached. The other steps send any frame, any result, DATA and PULL for memory
 * that may or may not be exposed, break the link, or let time pass. In all cases no byte outside of
 * the user's memory is touched (each buffer is a heap block of its own, freed when its operation
 * ends), and every operation ends. With SHEAF_WRITE_CORPUS=DIR it writes its seeds there. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/client.h"
#include "net/frame.h"
#include "base/mac.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STREAM_MAX (4 * MIB)
#define OPS 8
#define PENDING 64

enum {
	S_HELPFUL, /* an honest reply to the oldest request, or an honest step of the handshake */
	S_RESULT, /* status 0 and the given result */
	S_STATUS,
	S_RAW, /* raw bytes of the stream */
	S_DATA, /* DATA for the memory of a request */
	S_PULL,
	S_BREAK,
	S_TIME,
	S_WRONG, /* a reply with numbers from the script */
	S_START, /* the client starts an operation */
	S_CANCEL_OLD, /* an honest reply to the newest request */
	S_FRAME, /* any frame with a valid head */
	S_COUNT,
};

struct op_state {
	struct cop *cop;
	uint8_t *buf[3];
	struct iovec mem[3];
	struct extent ext[3];
	struct cfile *file; /* opened by this operation */
	bool busy;
};

struct request {
	uint64_t tag;
	uint32_t op;
	bool mem;
	uint64_t mem_len;
	uint64_t bytes; /* total bytes of its list */
	bool resumes;
};

static struct {
	struct env env;
	struct clock_ops clock;
	struct sock_ops sock;
	struct loop loop;
	struct conf *conf;
	struct client *client;
	uint64_t now, rng;
	struct source *src; /* source of the connection, or NULL */
	bool connected, broken;
	uint8_t *in; /* to the client */
	size_t n_in, at_in;
	uint8_t *out; /* from the client */
	size_t n_out;
	const uint8_t *cuts;
	unsigned turn;
	struct wire_hello hello;
	struct msg *hello_msg;
	unsigned shaken; /* honest steps of the handshake so far */
	struct request pending[PENDING];
	size_t n_pending;
	struct op_state ops[OPS];
	struct cfile *file;
} g;

/* ---- the world ---- */

static uint64_t now(struct env *e)
{
	(void)e;
	return g.now;
}

static void fill_random(struct env *e, void *p, size_t n)
{
	(void)e;
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)hash_u64(g.rng++);
}

static void forget_connection(void)
{
	g.src = NULL;
	g.connected = g.broken = false;
	g.n_in = g.at_in = g.n_out = g.n_pending = 0;
	g.shaken = 0;
}

static int metadb_connect(struct env *e, const char *address)
{
	(void)e;
	(void)address;
	assert(!g.src);
	return 3;
}

static int metadb_connect_result(struct env *e, int fd)
{
	(void)e;
	(void)fd;
	g.connected = true;
	return 0;
}

static size_t cut(void)
{
	size_t c = g.cuts[g.turn++ % 4];

	return c * c * c + 1;
}

static ssize_t metadb_readv(struct env *e, int fd, const struct iovec *iov, int n)
{
	size_t left = MIN(g.n_in - g.at_in, cut()), done = 0;

	(void)e;
	(void)fd;
	if (!left)
		return g.broken ? -ECONNRESET : -EAGAIN;
	for (int i = 0; i < n && done < left; i++) {
		size_t k = MIN(iov[i].iov_len, left - done);

		memcpy(iov[i].iov_base, g.in + g.at_in + done, k);
		done += k;
	}
	assert(done);
	g.at_in += done;
	return (ssize_t)done;
}

static ssize_t metadb_writev(struct env *e, int fd, const struct iovec *iov, int n)
{
	size_t room = MIN(STREAM_MAX - g.n_out, cut()), done = 0;

	(void)e;
	(void)fd;
	if (g.broken)
		return -EPIPE;
	for (int i = 0; i < n && done < room; i++) {
		size_t k = MIN(iov[i].iov_len, room - done);

		memcpy(g.out + g.n_out + done, iov[i].iov_base, k);
		done += k;
	}
	g.n_out += done;
	return done ? (ssize_t)done : -EAGAIN;
}

static void metadb_close(struct env *e, int fd)
{
	(void)e;
	(void)fd;
	forget_connection();
}

static int metadb_loop_init(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
	return 0;
}

static void metadb_loop_fini(struct env *e, struct loop *l)
{
	(void)e;
	(void)l;
}

static int metadb_watch(struct env *e, struct loop *l, struct source *s, unsigned events)
{
	(void)e;
	(void)l;
	s->events = events;
	g.src = events ? s : NULL;
	return 0;
}

/* ---- requests of the client ---- */

static void note_request(const struct wire_frame_head *h, const uint8_t *body)
{
	struct request r = { .tag = h->tag };
	union {
		struct wire_read_args read;
		struct wire_write_args write;
		struct wire_session_args session;
	} a = { 0 };
	struct wire_req_head rh;
	struct arena arena;
	struct xdr x;

	arena_init(&arena, 0);
	xdr_decoder(&x, body, h->length, &arena);
	assert(xdr_wire_req_head(&x, &rh)); /* the client sends only well-formed requests */
	r.op = rh.op;
	if (r.op == OP_READ) {
		assert(xdr_wire_read_args(&x, &a.read));
		for (uint32_t i = 0; i < a.read.n_list; i++)
			r.bytes += a.read.list[i].length;
		r.mem = a.read.mem.tag;
		r.mem_len = a.read.mem.length;
	} else if (r.op == OP_WRITE) {
		assert(xdr_wire_write_args(&x, &a.write));
		r.mem = a.write.mem.tag;
		r.mem_len = a.write.mem.length;
	} else if (r.op == OP_SESSION) {
		assert(xdr_wire_session_args(&x, &a.session));
		r.resumes = a.session.id;
	}
	arena_destroy(&arena);
	if (g.n_pending == PENDING)
		memmove(g.pending, g.pending + 1, --g.n_pending * sizeof(r));
	g.pending[g.n_pending++] = r;
}

static void note_hello(const uint8_t *body, uint32_t len)
{
	struct xdr x;

	xdr_decoder(&x, body, len, NULL);
	assert(xdr_wire_hello(&x, &g.hello));
	g.hello_msg->len = len;
	memcpy(g.hello_msg->body, body, len);
}

static void listen_to_client(void)
{
	size_t at = 0;

	while (g.n_out - at >= FRAME_HEAD) {
		struct wire_frame_head h;
		struct xdr x;
		size_t whole;

		xdr_decoder(&x, g.out + at, FRAME_HEAD, NULL);
		assert(xdr_wire_frame_head(&x, &h) && h.magic == SHEAF_MAGIC);
		whole = FRAME_HEAD + h.length + (h.kind == FRAME_DATA ? FRAME_TAIL : 0);
		if (g.n_out - at < whole)
			break;
		if (h.kind == FRAME_HELLO)
			note_hello(g.out + at + FRAME_HEAD, h.length);
		else if (h.kind == FRAME_REQUEST)
			note_request(&h, g.out + at + FRAME_HEAD);
		at += whole;
	}
	memmove(g.out, g.out + at, g.n_out - at);
	g.n_out -= at;
}

static bool idle(void)
{
	return list_empty(&g.loop.runnable) &&
	       !(g.loop.n_heap && g.loop.heap[0]->when <= g.now + 1000) &&
	       !(g.src && ((g.src->events & EV_OUT) || g.at_in < g.n_in || g.broken));
}

static void turn(void)
{
	g.now += 1000;
	g.loop.now = g.now;
	if (g.src && (g.src->events & EV_OUT))
		g.src->ready(g.src, EV_OUT);
	if (g.src && (g.src->events & EV_IN) && (g.at_in < g.n_in || g.broken))
		g.src->ready(g.src, EV_IN);
	loop_run_ready(&g.loop);
	listen_to_client();
	if (g.at_in == g.n_in)
		g.at_in = g.n_in = 0;
}

static void settle(void)
{
	for (int i = 0; !idle(); i++) {
		assert(i < 200000);
		turn();
	}
}

static void pass(uint64_t ns)
{
	uint64_t end = g.now + ns;

	settle();
	while (g.now < end) {
		g.now = g.loop.n_heap ? MIN(end, MAX(g.now, g.loop.heap[0]->when)) : end;
		turn();
		settle();
	}
}

/* ---- replies of the server ---- */

static void say(const void *p, size_t n)
{
	if (!g.connected || n > STREAM_MAX - g.n_in)
		return;
	memcpy(g.in + g.n_in, p, n);
	g.n_in += n;
}

static void say_frame(struct wire_frame_head h, const void *body, size_t n)
{
	uint8_t head[FRAME_HEAD];

	h.length = (uint32_t)n;
	frame_head_encode(head, &h);
	say(head, FRAME_HEAD);
	say(body, n);
}

static void say_reply(uint64_t tag, int32_t status, const void *body, size_t n)
{
	struct wire_rep_head h = { .status = status,
				   .slot = tag_slot(tag),
				   .sequence = (uint32_t)tag,
				   .verifier = 9,
				   .slots = SESSION_SLOTS,
				   .eager_bytes = INLINE_MAX };
	static uint8_t buf[MSG_MAX];
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	xdr_wire_rep_head(&x, &h);
	n = MIN(n, xdr_left(&x));
	memcpy(x.p, body, n);
	say_frame((struct wire_frame_head){ .kind = FRAME_REPLY, .tag = tag }, buf,
		  xdr_used(&x) + n);
}

static void shake_hands(void)
{
	static const uint8_t key[KEY_BYTES] = { 5 };
	struct wire_challenge c = { .version = SHEAF_VERSION };
	struct wire_welcome wl = { .verifier = 9, .lease_ms = 30000 };
	uint8_t buf[HELLO_MAX];
	struct xdr x;

	xdr_encoder(&x, buf, sizeof(buf));
	if (g.shaken == 0) {
		mac_make(c.mac, key,
			 (struct mac_part[]){ { "server", 6 },
					      { c.nonce, sizeof(c.nonce) },
					      { g.hello_msg->body, g.hello_msg->len },
					      { NULL, 0 } });
		xdr_wire_challenge(&x, &c);
		say_frame((struct wire_frame_head){ .kind = FRAME_CHALLENGE }, buf, xdr_used(&x));
	} else {
		xdr_wire_welcome(&x, &wl);
		say_frame((struct wire_frame_head){ .kind = FRAME_WELCOME }, buf, xdr_used(&x));
	}
	g.shaken++;
}

/* Sends an honest result. The data of reads that are not inline are not sent. */
static void help(const struct request *r, uint32_t unit, unsigned twist)
{
	static uint8_t buf[MSG_MAX];
	static const uint8_t bytes[INLINE_MAX];
	uint32_t targets[2] = { 0, 0 };
	struct wire_attr at = {
		.ino = 5, .gen = 1, .mode = S_IFREG | 0644, .nlink = 1, .unsettled = true
	};
	struct wire_layout_rec lay = {
		.version = 1, .unit = unit, .obj_gen = 1, .n_targets = 2, .targets = targets
	};
	struct wire_capability cap = { .ino = 5, .rights = 3, .epoch = 1 };
	struct wire_session_res session = { .id = 7,
					    .resumed = r->resumes && !(twist & 2),
					    .slots = SESSION_SLOTS,
					    .lease_ms = 30000,
					    .boot = 1 + (twist & 1) };
	struct wire_dirs_after after = { 1, &at };
	struct wire_open_res open = { at, lay, cap, twist & 1, twist & 2, twist & 3, after };
	struct wire_getattr_res getattr = { at, lay, cap, twist, twist & 3 };
	struct wire_cap_res fresh = { cap, lay, at };
	struct wire_read_res read_ = { UINT64_C(1) << 40,
				       twist & 1,
				       { (uint32_t)MIN(r->bytes, INLINE_MAX), bytes } };
	struct wire_write_res write_ = { 1 << 20, 2048, 5 };
	struct wire_seek_res seek = { 4096, 70000 };
	struct wire_object_res object = { 70000, 8, 5 };
	struct wire_dir_entry entry = { 3, { 5, 1 }, S_IFREG, wire_text("name") };
	struct wire_readdir_res readdir_ = { 1, &entry, 0, NULL, true };
	struct wire_attr_res attr = { at };
	struct wire_lookup_res lookup = { .at = at };
	struct wire_recorded_res recorded = { .at = at };
	struct wire_made_res made = { at, after };
	struct wire_readlink_res link = { wire_text("a/b") };
	struct wire_xattr_res xattr = { 5, wire_text("value") };
	struct wire_lock_res lock = { twist & 4, twist, { .kind = twist & 8 ? 1 : 0 } };
	struct wire_status_res status = { .space_total = 10, .space_avail = 5 };
	struct wire_map_target more = { 1, ROLE_DATA, wire_text("more"), wire_text("loop:1"), 7 };
	struct wire_map_res map = { .version = 2, .n_targets = 1, .targets = &more };
	const struct {
		xdr_any filter;
		void *value;
	} results[] = {
		/* zeros for all others */
		{ XDR_ANY(xdr_wire_session_res), &session },
		{ XDR_ANY(xdr_wire_open_res), &open },
		{ XDR_ANY(xdr_wire_getattr_res), &getattr },
		{ XDR_ANY(xdr_wire_cap_res), &fresh },
		{ XDR_ANY(xdr_wire_lookup_res), &lookup },
		{ XDR_ANY(xdr_wire_read_res), &read_ },
		{ XDR_ANY(xdr_wire_write_res), &write_ },
		{ XDR_ANY(xdr_wire_seek_res), &seek },
		{ XDR_ANY(xdr_wire_object_res), &object },
		{ XDR_ANY(xdr_wire_readdir_res), &readdir_ },
		{ XDR_ANY(xdr_wire_readlink_res), &link },
		{ XDR_ANY(xdr_wire_xattr_res), &xattr },
		{ XDR_ANY(xdr_wire_lock_res), &lock },
		{ XDR_ANY(xdr_wire_map_res), &map },
		{ XDR_ANY(xdr_wire_status_res), &status },
		{ XDR_ANY(xdr_wire_made_res), &made },
		{ XDR_ANY(xdr_wire_dirs_after), &after },
		{ XDR_ANY(xdr_wire_attr_res), &attr },
		{ XDR_ANY(xdr_wire_recorded_res), &recorded },
	};
	static uint64_t zeros[512];
	const struct wire_op_row *row = wire_op_row(r->op);
	void *result = zeros;
	struct xdr x;

	static_assert(sizeof(zeros) >= sizeof(struct wire_status_res), "the largest result");
	if (r->mem)
		read_.data.len = 0;
	for (size_t i = 0; i < ARRAY_LEN(results) && row; i++)
		if (results[i].filter == row->res)
			result = results[i].value;
	xdr_encoder(&x, buf, sizeof(buf));
	if (row)
		row->res(&x, result);
	say_reply(r->tag, 0, buf, xdr_used(&x));
}

static struct request take_request(bool newest)
{
	struct request r = { .tag = 1 };

	if (!g.n_pending)
		return r;
	if (newest)
		return g.pending[--g.n_pending];
	r = g.pending[0];
	memmove(g.pending, g.pending + 1, --g.n_pending * sizeof(r));
	return r;
}

/* ---- operations of the client ---- */

static void op_done(struct cop *cop)
{
	struct op_state *o = cop->user;

	if (cop->file && !cop->result && !o->mem[0].iov_base && !g.file)
		g.file = cop->file; /* the operation was an open */
	for (int i = 0; i < 3; i++) {
		free(o->buf[i]);
		o->buf[i] = NULL;
	}
	o->busy = false;
	cop_free(cop);
}

static void start_transfer(struct op_state *o, bool write, unsigned big)
{
	static const size_t sizes[][3] = { { 100, 1, 7 },
					   { 9000, 50, 1 },
					   { 70000, 4096, 300000 } };
	uint64_t off = 0;

	for (int i = 0; i < 3; i++) {
		size_t n = sizes[big % 3][i];

		o->buf[i] = malloc(n);
		assert(o->buf[i]);
		memset(o->buf[i], 'u', n);
		o->mem[i] = (struct iovec){ o->buf[i], n };
		o->ext[i] = (struct extent){ off, n };
		off += n + 1000;
	}
	if (write)
		client_write(o->cop, g.file, o->mem, 3, o->ext, 3);
	else
		client_read(o->cop, g.file, o->mem, 3, o->ext, 3);
}

/* Lock operations: the upper quarter of the numbers. */
static bool start_lock(struct op_state *o, unsigned what)
{
	struct wire_lock l = { .owner = 1, .start = 5, .last = 9, .kind = LOCK_EXCLUSIVE };

	if ((what & 0xc0) != 0xc0 || what % 16 > 4)
		return false;
	o->mem[0].iov_base = o; /* it is not an open */
	l.whole = what & 0x10;
	l.kind = what & 0x20 ? LOCK_SHARED : LOCK_EXCLUSIVE;
	if (what % 16 == 2)
		l.kind = LOCK_NOTHING;
	if (what % 16 == 3)
		client_lock_test(o->cop, g.file, &l);
	else
		client_lock(o->cop, g.file, &l, what % 16 != 1);
	if (what % 16 == 4)
		client_lock_cancel(g.client, 1);
	return true;
}

/* Operations that were added later: the upper half of the numbers, so that old inputs keep their
 * meaning. */
static bool start_later_op(struct cop *c, unsigned what)
{
	static const struct sheaf_handle root = { 1, 1 }, h = { 5, 1 };

	if (!(what & 0x80))
		return false;
	switch (what % 16) {
	case 0:
		client_allocate(c, g.file, 0, 0, 200000);
		return true;
	case 1:
		client_seek(c, g.file, 70000, what & 0x40);
		return true;
	case 2:
		client_copy(c, g.file, 0, g.file, 100000, 70000);
		return true;
	case 9:
		client_readlink(c, root, "a/l");
		return true;
	case 10:
		client_listxattr(c, h, 100);
		return true;
	case 11:
		client_getxattr(c, h, "user.a", 100);
		return true;
	case 12:
		client_setxattr(c, h, "user.a", "value", 5, 0);
		return true;
	case 13:
		client_statfs(c);
		return true;
	case 14:
		client_symlink(c, "/a/b", root, "l");
		return true;
	case 15:
		client_link(c, h, root, "a/b");
		return true;
	default:
		return false;
	}
}

static void start_op(unsigned what)
{
	static const struct sheaf_handle root = { 1, 1 };
	struct op_state *o = NULL;
	struct cfile *f;

	for (int i = 0; i < OPS && !o; i++)
		o = g.ops[i].busy ? NULL : &g.ops[i];
	if (!o || (!g.file && what % 16 < 8))
		return;
	*o = (struct op_state){ .busy = true };
	o->cop = cop_new(g.client, &(struct sheaf_cred){ 0 });
	assert(o->cop);
	o->cop->done = op_done;
	o->cop->user = o;
	if (start_lock(o, what) || start_later_op(o->cop, what))
		return;
	switch (what % 16) {
	case 0:
	case 1:
	case 2:
		start_transfer(o, false, what);
		break;
	case 3:
	case 4:
	case 5:
		start_transfer(o, true, what);
		break;
	case 6:
		client_fsync(o->cop, g.file);
		break;
	case 7:
		f = g.file;
		for (int i = 0; i < OPS; i++) /* a file in use is not closed */
			if (g.ops[i].busy && &g.ops[i] != o)
				f = NULL;
		g.file = f ? NULL : g.file;
		o->mem[0].iov_base = o;
		if (f)
			client_close(o->cop, f);
		else
			client_stat(o->cop, root, "x");
		break;
	case 8:
		client_open(o->cop, root, "file", O_RDWR | O_CREAT, 0644, NULL);
		break;
	case 9:
		client_stat(o->cop, root, "a/b");
		break;
	case 10:
		client_readdir(o->cop, root, 0, 100, false);
		break;
	case 11:
		client_getattr(o->cop, (struct sheaf_handle){ 5, 1 });
		break;
	case 12:
		client_truncate(o->cop, (struct sheaf_handle){ 5, 1 }, 100);
		break;
	case 13:
		client_ask(o->cop, OP_STATUS, 0, 3 * NSEC_PER_SEC);
		break;
	case 14:
		client_mkdir(o->cop, root, "d", 0755);
		break;
	default:
		client_rename(o->cop, root, "a", root, "b", 0);
		break;
	}
}

/* ---- the script ---- */

static uint32_t word(const uint8_t *p, size_t n, size_t at)
{
	uint32_t v = 0;

	for (size_t i = at; i < at + 3; i++)
		v = v << 8 | (i < n ? p[i] : 0);
	return v;
}

static void bulk_step(unsigned kind, const uint8_t *p, size_t n)
{
	static uint8_t zeros[512 * KIB];
	struct request r = g.n_pending ? g.pending[n ? p[0] % g.n_pending : 0] :
					 (struct request){ .tag = 3 };
	struct wire_frame_head h = { .kind = kind == S_DATA ? FRAME_DATA : FRAME_PULL,
				     .tag = r.tag,
				     .at = word(p, n, 1) % (r.mem_len + 2),
				     .id = 1 };
	uint32_t len = word(p, n, 4);
	int32_t status = 0;

	if (n && (p[0] & 0x80) == 0) /* mostly within the exposed memory */
		len = (uint32_t)(len % (r.mem_len - MIN(h.at, r.mem_len) + 1));
	if (kind == S_PULL) {
		h.want = len;
		say_frame(h, zeros, 0);
		return;
	}
	say_frame(h, zeros, MIN(len, (uint32_t)CHUNK_MAX + 1));
	say(&status, FRAME_TAIL);
}

static void step(unsigned kind, const uint8_t *p, size_t n)
{
	struct request r;

	switch (kind) {
	case S_HELPFUL:
	case S_CANCEL_OLD:
		if (g.shaken < 2) {
			shake_hands();
		} else {
			r = take_request(kind == S_CANCEL_OLD);
			help(&r, n ? 4096u * p[0] : 65536, n > 1 ? p[1] : 0);
		}
		break;
	case S_RESULT:
		say_reply(take_request(false).tag, 0, p, n);
		break;
	case S_STATUS:
		say_reply(take_request(false).tag, (int32_t)word(p, n, 0), p, n > 3 ? n - 3 : 0);
		break;
	case S_RAW:
		say(p, n);
		break;
	case S_DATA:
	case S_PULL:
		bulk_step(kind, p, n);
		break;
	case S_BREAK:
		g.broken = g.connected;
		break;
	case S_TIME:
		pass(NSEC_PER_SEC * (n ? p[0] % 40 : 1));
		break;
	case S_WRONG:
		say_reply((uint64_t)(word(p, n, 0) % 70) << 32 | word(p, n, 3) % 4, 0, p, n);
		break;
	case S_START:
		for (size_t i = 0; i < MIN(n, 4); i++)
			start_op(p[i]);
		break;
	case S_FRAME:
		say_frame((struct wire_frame_head){ .kind = n ? p[0] % 10 : 0,
						    .tag = g.n_pending ? g.pending[0].tag : 0 },
			  p, n);
		break;
	}
	settle();
}

/* ---- start and stop ---- */

static void start(void)
{
	static const char text[] =
		"[cluster]\nid = 00000000-0000-4000-8000-000000000001\nkey = key\n"
		"server_key = server.key\ntimeout = 5\nlease = 30\n"
		"[server.0]\nname = server0\naddress = 127.0.0.1:1\n"
		"roles = meta data\nstorage = s0\n";
	struct client_opts o = { .loop = &g.loop, .key = { 5 } };
	char err[256];

	g.env = *env_real();
	g.clock = (struct clock_ops){ .now = now, .wall = now, .random = fill_random };
	g.sock = (struct sock_ops){ .connect = metadb_connect,
				    .connect_result = metadb_connect_result,
				    .readv = metadb_readv,
				    .writev = metadb_writev,
				    .close = metadb_close,
				    .loop_init = metadb_loop_init,
				    .loop_fini = metadb_loop_fini,
				    .watch = metadb_watch };
	g.env.clock = &g.clock;
	g.env.sock = &g.sock;
	g.now = NSEC_PER_SEC;
	g.rng = 1;
	g.turn = 0;
	forget_connection();
	if (!g.in) {
		log_set_level(LOG_ERROR);
		g.in = malloc(STREAM_MAX);
		g.out = malloc(STREAM_MAX);
		g.hello_msg = malloc(sizeof(struct msg) + HELLO_MAX);
		assert(g.in && g.out && g.hello_msg);
	}
	g.hello_msg->len = 0;
	assert(loop_init(&g.loop, &g.env) == 0);
	assert(conf_parse(text, sizeof(text) - 1, "/c/sheaf.conf", &g.conf, err, sizeof(err)) == 0);
	o.conf = g.conf;
	assert(client_new(&o, &g.client) == 0);
	g.file = NULL;
}

/* All operations end without a further reply from the server. */
static void stop(void)
{
	struct op_state *last = NULL;

	pass(600 * NSEC_PER_SEC);
	for (int i = 0; i < OPS; i++)
		assert(!g.ops[i].busy);
	if (g.file) {
		start_op(7);
		pass(600 * NSEC_PER_SEC);
	}
	for (int i = 0; i < OPS; i++)
		last = g.ops[i].busy ? &g.ops[i] : last;
	assert(!last);
	client_free(g.client);
	assert(!g.loop.n_reqs);
	conf_free(g.conf);
	loop_fini(&g.loop);
}

/* ---- seeds ---- */

struct seed {
	uint8_t bytes[4096];
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

/* A script up to an open file. */
static struct seed opened(void)
{
	struct seed s = { { 200, 200, 200, 200 }, 4 };

	add(&s, S_START, "\10", 1);
	for (int i = 0; i < 4; i++)
		add(&s, S_HELPFUL, "\1", 1);
	return s;
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

static void write_corpus(void)
{
	static const uint8_t whole[] = { 0, 0, 0, 0, 0, 0x20, 0 },
			     beyond[] = { 0x80, 0, 0, 9, 9, 0, 0 };
	char name[32];

	for (uint8_t what = 128; what < 128 + 16; what++) { /* refused, referred, answered */
		static const uint8_t refer[] =
			"\0\0\102"
			"\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\3xyz";
		struct seed s = opened();

		if (what % 16 > 2 && what % 16 < 9)
			continue;
		add(&s, S_START, &what, 1);
		for (int i = 0; i < (what % 16 < 3 ? 8 : 1); i++)
			add(&s, S_HELPFUL, "\1", 1);
		add(&s, S_START, &what, 1);
		add(&s, S_STATUS, refer, sizeof(refer)); /* the terminating NUL serves as padding */
		add(&s, S_HELPFUL, "\1", 1);
		snprintf(name, sizeof(name), "later%u", what % 16);
		write_seed(name, &s);
	}
	for (uint8_t what = 0xc0; what < 0xc5; what++) { /* granted; asked again, then a restart */
		struct seed s = opened();

		add(&s, S_START, &what, 1);
		add(&s, S_HELPFUL, "\1", 1);
		add(&s, S_START, &what, 1);
		add(&s, S_HELPFUL, "\1\4", 2);
		add(&s, S_TIME, "\1", 1);
		add(&s, S_BREAK, "", 0);
		add(&s, S_TIME, "\2", 1);
		for (int i = 0; i < 8; i++)
			add(&s, S_HELPFUL, "\1\1", 2);
		add(&s, S_BREAK, "", 0); /* then the session is lost */
		add(&s, S_TIME, "\2", 1);
		for (int i = 0; i < 8; i++)
			add(&s, S_HELPFUL, "\1\2", 2);
		add(&s, S_START, "\3", 1);
		snprintf(name, sizeof(name), "lock%u", what % 16);
		write_seed(name, &s);
	}
	for (uint8_t what = 0; what < 16; what++) {
		struct seed s = opened();

		add(&s, S_START, &what, 1);
		add(&s, what < 3 ? S_DATA : S_PULL, whole, sizeof(whole));
		for (int i = 0; i < 8; i++)
			add(&s, S_HELPFUL, "\1", 1);
		snprintf(name, sizeof(name), "op%u", what);
		write_seed(name, &s);
		s = opened();
		add(&s, S_START, &what, 1);
		add(&s, what % 2 ? S_PULL : S_DATA, what < 6 ? beyond : whole, sizeof(whole));
		add(&s, S_BREAK, "", 0);
		add(&s, S_TIME, "\2", 1);
		for (int i = 0; i < 8; i++)
			add(&s, S_HELPFUL, i < 3 ? "\1\3" : "\1", i < 3 ? 2 : 1);
		add(&s, S_STATUS, "\0\0\177", 3);
		add(&s, S_WRONG, "\0\0\0\0\0\1", 6);
		add(&s, S_TIME, "\47", 1);
		snprintf(name, sizeof(name), "broken%u", what);
		write_seed(name, &s);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool seeded;

	if (!seeded && getenv("SHEAF_WRITE_CORPUS"))
		write_corpus();
	seeded = true;
	if (size < 4)
		return 0;
	g.cuts = data;
	data += 4;
	size -= 4;
	start();
	for (int i = 0; i < 40 && size >= 3; i++) {
		size_t n = MIN((size_t)data[1] << 8 | data[2], size - 3);

		step(data[0] % S_COUNT, data + 3, n);
		data += 3 + n;
		size -= 3 + n;
	}
	stop();
	return 0;
}
