/* An authenticated client that sends anything: a real server with links whose other end is the
 * fuzzer.
 *
 * The input is a list of messages, each preceded by two bytes of flags and a length. Fields that a
 * hostile client can always get right are corrected (session, slot, sequence, tag, the signature of
 * a capability, matching lengths), so that the code behind these checks is reached. In all cases
 * every request is answered or its link is closed, no request stays in service, and all buffers
 * return to the pool. One server serves many inputs and is replaced now and then. With
 * SHEAF_WRITE_CORPUS=DIR it writes its seeds there. */
#include "acl_list.h"
#include "pipe_link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUTS_PER_SERVER 64
#define FILES 4
#define MESSAGES 12
#define FIX_TOTAL (2 * MIB)

enum { /* first byte of flags */
       F_OTHER_LINK = 1,
       F_REPLAY = 2,
       F_NO_WAIT = 4, /* the next message comes while this one is in service */
       F_REFUSE = 8,
       F_DEFER = 16,
       F_CANCEL = 32,
       F_CLOSE = 64, /* the link breaks after it */
       F_RAW = 128,
};
enum { /* second byte of flags */
       G_LEASE = 1, /* the time of a lease passes after it */
       G_WRONG_SESSION = 2,
       G_SERVER = 4, /* over a link of a server */
       G_INLINE = 8,
       G_RESTART = G_LEASE | G_WRONG_SESSION, /* both flags: the server is killed and restarted */
       G_TURNS = 0xf0,
};

static struct world w;
static struct pipe_link *links[2];
static struct wire_handle files[FILES];
static bool running;

static void stop(void)
{
	if (!running)
		return;
	running = false;
	for (int i = 0; i < 2; i++)
		pipe_free(links[i]);
	world_end(&w);
}

/* Completes all transfers that the server waits for. */
static void release_all(void)
{
	for (int k = 0; k < 100 && (k == 0 || w.srv->in_service); k++) {
		for (int i = 0; i < 2; i++) {
			if (!links[i])
				continue;
			links[i]->mode = PIPE_ANSWER;
			pipe_release(links[i], 0);
		}
		world_settle(&w);
	}
}

static void fresh_link(int i, uint32_t role)
{
	release_all();
	if (links[i])
		pipe_free(links[i]);
	links[i] = pipe_new(&w, role);
	if (i)
		links[i]->l.ops = &pipe_ops_file;
	pipe_session(&w, links[i]);
}

static void start(void)
{
	struct wire_mkdir_args mk = { .where = pipe_place("d"), .mode = 0755 };
	struct wire_symlink_args ln;
	struct wire_setxattr_args xa;
	struct wire_made_res made;
	struct wire_void_res none;
	struct arena a;

	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&a, 0);
	links[0] = links[1] = NULL;
	fresh_link(0, LINK_CLIENT);
	fresh_link(1, LINK_CLIENT);
	CHECK_EQ(pipe_do(&w, links[0], OP_MKDIR, XDR_ANY(xdr_wire_mkdir_args), &mk,
			 XDR_ANY(xdr_wire_made_res), &made, NULL),
		 0);
	for (int i = 0; i < FILES; i++) {
		struct wire_open_res r;
		char name[16];

		snprintf(name, sizeof(name), "d/f%d", i);
		CHECK_EQ(pipe_open(&w, links[0], name, (uint64_t)i + 1,
				   OPEN_READ | OPEN_WRITE | OPEN_CREATE, &r, &a),
			 0);
		files[i] = (struct wire_handle){ r.at.ino, r.at.gen };
	}
	ln = (struct wire_symlink_args){ .where = pipe_place("d/link"),
					 .target = wire_text("../d") };
	CHECK_EQ(pipe_do(&w, links[0], OP_SYMLINK, XDR_ANY(xdr_wire_symlink_args), &ln,
			 XDR_ANY(xdr_wire_made_res), &made, NULL),
		 0);
	xa = (struct wire_setxattr_args){ files[1], wire_text("user.a"), wire_text("a"), 0 };
	CHECK_EQ(pipe_do(&w, links[0], OP_SETXATTR, XDR_ANY(xdr_wire_setxattr_args), &xa,
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 0);
	arena_destroy(&a);
	running = true;
}

/* ---- corrections of messages ---- */

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Signs the capability as a metadata server would. */
static void sign_again(struct wire_capability *c)
{
	uint64_t ino = files[c->ino % FILES].ino;

	c->epoch = MAX(c->epoch % 8, disk_floor(w.srv->disk, ino));
	c->ino = ino;
	c->obj_gen = 1;
	c->rights = 3;
	c->expires = world_wall(&w.env) + CAP_LIFE_NS;
	cap_sign(w.srv, "", c);
}

static uint64_t clip(struct wire_extent *e, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		e[i].offset %= 4 * MIB;
		e[i].length %= 600 * KIB;
		e[i].length = MIN(e[i].length, FIX_TOTAL - sum);
		sum += e[i].length;
	}
	return sum;
}

static void fix_read(struct wire_read_args *a, bool small)
{
	uint64_t sum = clip(a->list, a->n_list);

	sign_again(&a->at.cap);
	a->mem.tag = small && sum <= INLINE_MAX ? 0 : 1;
	a->mem.length = sum;
}

static void fix_write(struct wire_write_args *a, bool small)
{
	static const uint8_t bytes[INLINE_MAX];
	uint64_t sum = clip(a->list, a->n_list);

	sign_again(&a->at.cap);
	a->mem.tag = small && sum <= INLINE_MAX ? 0 : 1;
	a->mem.length = sum;
	if (!a->mem.tag)
		a->data = (struct wire_bytes){ (uint32_t)sum, bytes };
}

static void fix_copy(struct wire_copy_args *a)
{
	uint64_t sum = 0;

	sign_again(&a->at.cap);
	sign_again(&a->from.cap);
	a->source = 0;
	for (uint32_t i = 0; i < a->n_list; i++) {
		struct wire_copy_piece *p = &a->list[i];

		p->from %= 4 * MIB;
		p->to %= 4 * MIB;
		p->length %= 600 * KIB;
		p->length = MIN(p->length, FIX_TOTAL - sum);
		sum += p->length;
	}
}

/* Corrects the arguments of data operations. Returns false if the operation is another one or the
 * arguments cannot be decoded. */
static bool fix_args(uint32_t op, struct xdr *in, struct xdr *out, bool small)
{
	union {
		struct wire_read_args read;
		struct wire_write_args write;
		struct wire_sync_args sync;
		struct wire_allocate_args allocate;
		struct wire_seek_args seek;
		struct wire_copy_args copy;
	} a;

	memset(&a, 0, sizeof(a));
	switch (op) {
	case OP_READ:
		if (!xdr_wire_read_args(in, &a.read))
			return false;
		fix_read(&a.read, small);
		return xdr_wire_read_args(out, &a.read);
	case OP_WRITE:
		if (!xdr_wire_write_args(in, &a.write))
			return false;
		fix_write(&a.write, small);
		return xdr_wire_write_args(out, &a.write);
	case OP_OBJSTAT:
		if (!xdr_wire_access(in, &a.sync.at))
			return false;
		sign_again(&a.sync.at.cap);
		return xdr_wire_access(out, &a.sync.at);
	case OP_SYNC:
		if (!xdr_wire_sync_args(in, &a.sync))
			return false;
		sign_again(&a.sync.at.cap);
		return xdr_wire_sync_args(out, &a.sync);
	case OP_ALLOCATE:
		if (!xdr_wire_allocate_args(in, &a.allocate))
			return false;
		clip(a.allocate.list, a.allocate.n_list);
		sign_again(&a.allocate.at.cap);
		return xdr_wire_allocate_args(out, &a.allocate);
	case OP_SEEK:
		if (!xdr_wire_seek_args(in, &a.seek))
			return false;
		sign_again(&a.seek.at.cap);
		return xdr_wire_seek_args(out, &a.seek);
	case OP_COPY:
		if (!xdr_wire_copy_args(in, &a.copy))
			return false;
		fix_copy(&a.copy);
		return xdr_wire_copy_args(out, &a.copy);
	default:
		return false;
	}
}

/* True for lengths that no honest client sends and that would legitimately take very long: these
 * are skipped. */
static bool endless(uint32_t op, struct xdr *in)
{
	struct wire_write_args a;
	uint64_t sum = 0;

	if (op == OP_ALLOCATE || op == OP_COPY)
		return true;
	if (op != OP_WRITE || !xdr_wire_write_args(in, &a))
		return false;
	for (uint32_t i = 0; i < a.n_list; i++)
		if (__builtin_add_overflow(sum, a.list[i].length, &sum))
			return false;
	return sum > FIX_TOTAL;
}

static size_t repair(uint8_t *body, size_t len, const uint8_t flags[2])
{
	static uint8_t fixed[MSG_MAX];
	struct wire_req_head h;
	struct arena a;
	struct xdr in, out;

	arena_init(&a, 4 * MIB);
	xdr_decoder(&in, body, len, &a);
	xdr_encoder(&out, fixed, sizeof(fixed));
	if (!xdr_wire_req_head(&in, &h)) {
		arena_destroy(&a);
		return len;
	}
	h.map_version = 0;
	if (flags[0] & F_RAW) {
		len = endless(h.op, &in) ? 0 : len;
	} else if (xdr_wire_req_head(&out, &h) && fix_args(h.op, &in, &out, flags[1] & G_INLINE)) {
		len = xdr_used(&out);
		memcpy(body, fixed, len);
	}
	arena_destroy(&a);
	return len;
}

static uint64_t address_it(struct pipe_link *p, uint8_t *body, size_t len, const uint8_t flags[2])
{
	struct session *s = session_on(&p->l, 0);
	uint32_t slot, seq;

	if (len < 20)
		return 0;
	if (s && !(flags[1] & G_WRONG_SESSION)) {
		slot = get32(body + 4) % 4;
		seq = s->slots[slot].sequence + !(flags[0] & F_REPLAY);
		put32(body + 4, slot);
		put32(body + 8, seq);
		put32(body + 12, (uint32_t)(s->id >> 32));
		put32(body + 16, (uint32_t)s->id);
	}
	return (uint64_t)get32(body + 4) << 32 | get32(body + 8);
}

/* ---- one message ---- */

static void turn_some(unsigned n)
{
	for (unsigned i = 0; i < n && !world_idle(&w); i++)
		world_turn(&w);
}

static void restart_server(void)
{
	if (!disk_idle(w.srv->disk)) /* an active disk would keep the lock of its directory */
		world_settle(&w);
	list_init(&w.jobs); /* a crash: operations in flight never complete */
	server_abandon(w.srv);
	CHECK(list_empty(&w.loop.all));
	for (int i = 0; i < 2; i++) {
		pipe_free(links[i]);
		links[i] = NULL;
	}
	world_start_server(&w);
	for (int i = 0; i < 2; i++)
		fresh_link(i, LINK_CLIENT);
}

static void send_one(const uint8_t flags[2], const uint8_t *from, size_t len)
{
	static uint8_t body[MSG_MAX];
	int i = flags[0] & F_OTHER_LINK;
	struct pipe_link *p = links[i];
	uint64_t tag;

	if (p->closed || !session_on(&p->l, 0)) {
		fresh_link(i, flags[1] & G_SERVER ? LINK_SERVER : LINK_CLIENT);
		p = links[i];
	}
	p->l.role = flags[1] & G_SERVER ? LINK_SERVER : LINK_CLIENT;
	p->mode = flags[0] & F_REFUSE ? PIPE_REFUSE : flags[0] & F_DEFER ? PIPE_DEFER : PIPE_ANSWER;
	memcpy(body, from, len);
	len = repair(body, len, flags);
	tag = address_it(p, body, len, flags);
	if (len)
		pipe_message(&w, p, tag, body, len);
	if ((flags[0] & F_CANCEL) && !p->closed)
		srv_cancel(w.srv, &p->l, tag);
	turn_some(flags[1] >> 4);
	if (flags[0] & F_CLOSE)
		link_close(&p->l, -ECONNRESET);
	if ((flags[1] & G_RESTART) == G_RESTART)
		restart_server();
	else if (flags[1] & G_LEASE)
		world_pass(&w, 31 * NSEC_PER_SEC);
	if (!(flags[0] & F_NO_WAIT))
		world_settle(&w);
}

static void check_rest(void)
{
	struct session *s;

	release_all();
	CHECK(world_quiet(&w));
	for (int i = 0; i < 2; i++)
		CHECK(links[i]->closed || links[i]->sent == links[i]->replies);
	CHECK_EQ(w.srv->pool.n_free, w.srv->pool.n_units);
	CHECK(list_empty(&w.srv->pool.waiting));
	CHECK_EQ(w.srv->copies.n_free, w.srv->copies.n_units);
	CHECK(list_empty(&w.srv->copies.waiting));
	list_for_each(s, &w.srv->sessions.all, all)
		CHECK_EQ(s->in_service, 0);
	CHECK(w.srv->sessions.count < 1000);
}

/* ---- seeds ---- */

static void write_seed(const char *name, const uint8_t *p, size_t n)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", getenv("SHEAF_WRITE_CORPUS"), name);
	f = fopen(path, "w");
	CHECK(f && fwrite(p, 1, n, f) == n);
	fclose(f);
}

static size_t seed_message(uint8_t *out, uint8_t f, uint8_t g, uint32_t op, uint32_t slot,
			   void *args)
{
	struct wire_req_head h = { .op = op, .slot = slot, .time_left_ms = 1000 };
	struct xdr x;
	size_t n;

	xdr_encoder(&x, out + 4, 8192);
	CHECK(xdr_wire_req_head(&x, &h) && wire_op_rows[op].args(&x, args));
	n = xdr_used(&x);
	out[0] = f;
	out[1] = g;
	out[2] = (uint8_t)(n >> 8);
	out[3] = (uint8_t)n;
	return n + 4;
}

/* A lock and two waits for it, followed by each possible event: unlock, cancels, time, the loss of
 * the link or of the server. */
static void write_lock_seeds(uint8_t *buf)
{
	static const uint8_t ends[][2] = { { 0, 0 },	    { F_NO_WAIT, 0 }, { F_CLOSE, 0 },
					   { F_CANCEL, 0 }, { 0, G_LEASE },   { 0, G_RESTART } };
	struct wire_lock_args a = { .h = files[1], .open = 2, .ticket = 1 };
	char name[32];
	size_t n;

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		a.flags = 0;
		a.want = (struct wire_lock){ .owner = 1, .last = 9, .kind = LOCK_EXCLUSIVE };
		n = seed_message(buf, 0, 0, OP_LOCK, 0, &a);
		a.flags = LOCK_WAIT;
		for (uint32_t k = 1; k < 3; k++) {
			a.ticket = a.want.owner = k + 1;
			n += seed_message(buf + n, F_NO_WAIT, 0x10, OP_LOCK, k, &a);
		}
		a.want = (struct wire_lock){ .owner = 1, .start = 3, .last = 20 };
		n += seed_message(buf + n, ends[i][0], ends[i][1], OP_LOCK, 3, &a);
		a.want.owner = 2;
		n += seed_message(buf + n, ends[i][0], ends[i][1], OP_LOCK, 3, &a);
		snprintf(name, sizeof(name), "lock_line%zu", i);
		write_seed(name, buf, n);
	}
}

/* Three rows of 20 elements of 8 bytes, encoded. */
static struct wire_bytes some_type(void)
{
	static uint8_t text[256];
	struct type *cell, *row, *t;
	struct wire_bytes b = { 0, text };

	if (type_bytes(8, &cell) || type_vector(20, 1, 32, cell, &row) ||
	    type_vector(3, 1, 5000, row, &t))
		abort();
	b.len = (uint32_t)type_wire_size(t);
	type_encode(t, text);
	type_free(cell);
	type_free(row);
	type_free(t);
	return b;
}

static void write_corpus(void)
{
	static uint8_t buf[32768];
	struct wire_extent list[3] = { { 0, 5000 }, { 100000, 300000 }, { 70000, 100 } };
	struct wire_extent little[2] = { { 10, 100 }, { 5, 50 } };
	struct wire_place root = pipe_place("d/f1");
	struct wire_place fresh = pipe_place("d/new");
	struct wire_capability cap = { .ino = 1, .rights = 3, .epoch = 1 };
	struct wire_mem_desc mem = { .tag = 1, .length = 305100 };
	struct wire_wrote wrote = { .epoch = 1, .end = 4096, .mtime = 77 };
	struct wire_void_args none = { 0 };
	struct wire_session_args session = { .client = wire_text("again") };
	struct wire_lookup_args lookup = { root };
	struct wire_getattr_args getattr = { files[1], true };
	struct wire_setattr_args setattr = { .h = files[1],
					     .which = SET_MODE | SET_MTIME,
					     .mode = 0600 };
	struct wire_open_args open = {
		.where = fresh, .id = 9, .flags = 7, .mode = 0644, .umask = 022
	};
	struct wire_open_args retrunc = { .where = root, .id = 10, .flags = 19 };
	struct wire_close_args close_ = { files[1], 2, wrote };
	struct wire_record_args record = { files[1], wrote };
	struct wire_cap_args cap_ = { files[1], 3 };
	struct wire_new_attr set = { .which = SET_UID | SET_MTIME, .uid = 7, .mtime = 8 };
	struct wire_mkdir_args mkdir_ = { fresh, 0755, 022, 1, &set };
	struct wire_unlink_args unlink_ = { root };
	struct wire_readdir_args readdir_ = { { META_ROOT_INO, META_ROOT_GEN }, 0, 100, true };
	struct wire_rename_args rename_ = { root, fresh, 0 };
	struct wire_truncate_args truncate_ = { files[1], 1000, 12 };
	struct wire_link_args link_ = { files[1], fresh };
	struct wire_symlink_args symlink_ = { fresh, wire_text("../d/f1"), 1, &set };
	struct wire_readlink_args readlink_ = { pipe_place("d/link") };
	struct wire_lookup_args through = {
		{ { META_ROOT_INO, META_ROOT_GEN }, wire_text("d/link/f2"), true }
	};
	struct wire_getxattr_args getxattr_ = { files[1], wire_text("user.a"), 100 };
	struct wire_listxattr_args listxattr_ = { files[1], 100 };
	struct wire_setxattr_args setxattr_ = { files[1], wire_text("user.b"), wire_text("b"), 0 };
	struct acl_bytes list_ = acl_sample();
	struct wire_setxattr_args setacl_ = {
		files[2], wire_text("system.posix_acl_access"), { list_.len, list_.b }, 0
	};
	struct wire_setxattr_args setdefault_ = { { META_ROOT_INO + 1, 1 },
						  wire_text("system.posix_acl_default"),
						  { list_.len, list_.b },
						  0 };
	struct wire_removexattr_args removexattr_ = { files[1], wire_text("user.a") };
	struct wire_append_claim claim = { 5, 100, 10, 1 };
	struct wire_append_args append = { files[1], 12, 6, 1000, 0 };
	struct wire_append_args room = { files[1], 12, 7, 0, 5000 };
	struct wire_appended_args appended = { files[1], 12, 5 };
	struct wire_durable_args fsync_ = { files[1], false }, durable = { files[1], true };
	struct wire_kept_args kept = { true };
	struct wire_mknod_args mknod_ = { fresh, S_IFIFO, 0, 022, 0, NULL };
	struct wire_mknod_args create = { fresh, S_IFREG | 0644, 0, 022, 1, &set };
	struct wire_prepare_args prepare = { 77, 0, 0, { 0, NULL } };
	struct wire_finish_args finish = { 77, true };
	struct wire_outcome_args outcome = { 77 };
	struct wire_climb_args climb = { files[0], 5 };
	struct wire_lock range = { .owner = 7, .start = 100, .last = 199, .kind = LOCK_EXCLUSIVE };
	struct wire_lock whole = { .owner = 7, .kind = LOCK_SHARED, .whole = true };
	struct wire_lock_args lock_ = { files[1], 2, 1, range, 0 };
	struct wire_lock_args flock_ = { files[1], 2, 2, whole, 0 };
	struct wire_lock_args lock_wait_ = { files[1], 2, 3, range, LOCK_WAIT };
	struct wire_lock_args lock_cancel_ = { files[1], 2, 3, range, LOCK_CANCEL };
	struct wire_lock_args unlock_ = { files[1], 2, 0, { .owner = 7, .last = UINT64_MAX }, 0 };
	struct wire_reclaim_args reclaim = { files[1], 12,    OPEN_WRITE | OPEN_APPEND, 1, &claim,
					     1,	       &range };
	struct wire_backup_args backup_ = { 0, 0 };
	struct wire_add_target_args add_target = { .target = { 0, ROLE_DATA, wire_text("more"),
							       wire_text("loop:9"), 7 } };
	struct wire_read_args read_ = { .at.cap = cap, .n_list = 3, .list = list, .mem = mem };
	struct wire_write_args write_ = { .at.cap = cap, .n_list = 3, .list = list, .mem = mem };
	struct wire_read_args read_small = { .at.cap = cap, .n_list = 2, .list = little };
	struct wire_write_args write_small = { .at.cap = cap, .n_list = 2, .list = little };
	struct wire_pattern rows_of = { .type = some_type(),
					.base = 100,
					.unit = 4096,
					.width = 2,
					.index = 1,
					.begin = 64,
					.upto = 64 + mem.length };
	struct wire_read_args read_typed = {
		.at.cap = cap, .n_part = 1, .part = &rows_of, .mem = mem
	};
	struct wire_write_args write_typed = {
		.at.cap = cap, .n_part = 1, .part = &rows_of, .mem = mem
	};
	struct wire_sync_args sync_ = { { cap, 0, 0 }, 7, 8 };
	struct wire_copy_piece pieces[2] = { { 0, 100000, 300000 }, { 5, 70000, 100 } };
	struct wire_capability other = { .ino = 2, .rights = 3, .epoch = 1 };
	struct wire_allocate_args allocate = { { cap, 0, 0 }, 0, 3, list };
	struct wire_allocate_args punch = { { cap, 0, 0 }, ALLOC_PUNCH | ALLOC_KEEP_SIZE, 3, list };
	struct wire_seek_args seek = { { cap, 0, 0 }, 100, WHENCE_DATA };
	struct wire_copy_args copy = { { cap, 0, 0 }, { other, 0, 0 }, 0, 2, pieces };
	struct wire_fence_args fence = { files[1].ino, 1, 0, 3, 500 };
	struct wire_removal gone[2] = { { files[2].ino, 1, 0, 4 }, { files[2].ino, 2, 1, 0 } };
	struct wire_remove_args remove_ = { 2, gone };
	struct wire_scan_args scan = { .kind = SCAN_ENTRY, .max = 3 };
	struct wire_scan_args objects = { .kind = SCAN_OBJECT, .max = 2 };
	struct wire_repair_args nlink = {
		.kind = REPAIR_NLINK, .h = files[1], .change = 1, .value = 2
	};
	struct wire_repair_args drop = { .kind = REPAIR_ENTRY_DROP,
					 .h = files[2],
					 .dir = { META_ROOT_INO + 1, 1 },
					 .name = wire_text("f2") };
	struct wire_repair_args anew = { .kind = REPAIR_DIRECTORY, .h = { META_ROOT_INO + 1, 1 } };
	const struct {
		const char *name;
		uint32_t op;
		void *args;
		uint8_t g;
	} rows[] = {
		{ "kept", OP_KEPT, &kept, 0 },
		{ "ping", OP_PING, &none, 0 },
		{ "session", OP_SESSION, &session, 0 },
		{ "bye", OP_BYE, &none, 0 },
		{ "status", OP_STATUS, &none, 0 },
		{ "requests", OP_REQUESTS, &none, 0 },
		{ "map", OP_MAP, &none, 0 },
		{ "backup", OP_BACKUP, &backup_, 0 },
		{ "add_target", OP_ADD_TARGET, &add_target, 0 },
		{ "lookup", OP_LOOKUP, &lookup, 0 },
		{ "getattr", OP_GETATTR, &getattr, 0 },
		{ "setattr", OP_SETATTR, &setattr, 0 },
		{ "open", OP_OPEN, &open, 0 },
		{ "retrunc", OP_OPEN, &retrunc, 0 },
		{ "close", OP_CLOSE, &close_, 0 },
		{ "record", OP_RECORD, &record, 0 },
		{ "cap", OP_CAP, &cap_, 0 },
		{ "mkdir", OP_MKDIR, &mkdir_, 0 },
		{ "unlink", OP_UNLINK, &unlink_, 0 },
		{ "rmdir", OP_RMDIR, &unlink_, 0 },
		{ "readdir", OP_READDIR, &readdir_, 0 },
		{ "rename", OP_RENAME, &rename_, 0 },
		{ "truncate", OP_TRUNCATE, &truncate_, 0 },
		{ "link", OP_LINK, &link_, 0 },
		{ "symlink", OP_SYMLINK, &symlink_, 0 },
		{ "readlink", OP_READLINK, &readlink_, 0 },
		{ "through", OP_LOOKUP, &through, 0 },
		{ "getxattr", OP_GETXATTR, &getxattr_, 0 },
		{ "listxattr", OP_LISTXATTR, &listxattr_, 0 },
		{ "setxattr", OP_SETXATTR, &setxattr_, 0 },
		{ "setacl", OP_SETXATTR, &setacl_, 0 },
		{ "setdefault", OP_SETXATTR, &setdefault_, 0 },
		{ "removexattr", OP_REMOVEXATTR, &removexattr_, 0 },
		{ "lock", OP_LOCK, &lock_, 0 },
		{ "flock", OP_LOCK, &flock_, 0 },
		{ "lock_wait", OP_LOCK, &lock_wait_, 0 },
		{ "lock_cancel", OP_LOCK, &lock_cancel_, 0 },
		{ "unlock", OP_LOCK, &unlock_, 0 },
		{ "lock_test", OP_LOCK_TEST, &lock_, 0 },
		{ "reclaim", OP_RECLAIM, &reclaim, 0 },
		{ "append", OP_APPEND, &append, 0 },
		{ "append_room", OP_APPEND, &room, 0 },
		{ "appended", OP_APPENDED, &appended, 0 },
		{ "fsync", OP_FSYNC, &fsync_, 0 },
		{ "durable", OP_DURABLE, &durable, G_SERVER },
		{ "mknod", OP_MKNOD, &mknod_, 0 },
		{ "create", OP_MKNOD, &create, 0 },
		{ "prepare", OP_PREPARE, &prepare, G_SERVER },
		{ "finish", OP_FINISH, &finish, G_SERVER },
		{ "outcome", OP_OUTCOME, &outcome, G_SERVER },
		{ "climb", OP_CLIMB, &climb, G_SERVER },
		{ "read_typed", OP_READ, &read_typed, 0 },
		{ "write_typed", OP_WRITE, &write_typed, 0 },
		{ "read", OP_READ, &read_, 0 },
		{ "write", OP_WRITE, &write_, 0 },
		{ "read_small", OP_READ, &read_small, G_INLINE },
		{ "write_small", OP_WRITE, &write_small, G_INLINE },
		{ "sync", OP_SYNC, &sync_, 0 },
		{ "objstat", OP_OBJSTAT, &sync_.at, 0 },
		{ "fence", OP_FENCE, &fence, G_SERVER },
		{ "scan", OP_SCAN, &scan, 0 },
		{ "objects", OP_OBJECTS, &objects, 0 },
		{ "repair_nlink", OP_REPAIR, &nlink, 0 },
		{ "repair_drop", OP_REPAIR, &drop, 0 },
		{ "repair_anew", OP_REPAIR, &anew, 0 },
		{ "remove", OP_REMOVE, &remove_, G_SERVER },
		{ "allocate", OP_ALLOCATE, &allocate, 0 },
		{ "punch", OP_ALLOCATE, &punch, 0 },
		{ "seek", OP_SEEK, &seek, 0 },
		{ "copy", OP_COPY, &copy, 0 },
	};
	char name[64];
	size_t n = 0;

	write_lock_seeds(buf);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		n = seed_message(buf, 0, rows[i].g, rows[i].op, 0, rows[i].args);
		write_seed(rows[i].name, buf, n);
		/* two concurrent requests, on two slots */
		n = seed_message(buf, F_NO_WAIT, rows[i].g, rows[i].op, 0, rows[i].args);
		n += seed_message(buf + n, 0, rows[i].g, rows[i].op, 1, rows[i].args);
		n += seed_message(buf + n, 0, i % 3 ? rows[i].g : G_RESTART, rows[i].op, 2,
				  rows[i].args);
		snprintf(name, sizeof(name), "twice_%s", rows[i].name);
		write_seed(name, buf, n);
	}
}

static void send_all(const uint8_t *data, size_t size)
{
	for (int i = 0; i < MESSAGES && size > 4; i++) {
		size_t len = MIN((size_t)data[2] << 8 | data[3], size - 4);

		send_one(data, data + 4, len);
		data += 4 + len;
		size -= 4 + len;
	}
	check_rest();
}

/* Every operation with arguments of zeros: also one that no seed has. */
static void send_zeros(void)
{
	static uint64_t zeros[512];
	static uint8_t buf[8192 + 4];

	for (uint32_t op = 0; op < N_OPS; op++) {
		bool of_servers = wire_op_rows[op].flags & OPF_SERVERS;

		if (!wire_op_row(op))
			continue;
		CHECK(wire_op_rows[op].args_size <= sizeof(zeros));
		send_all(buf, seed_message(buf, 0, of_servers ? G_SERVER : 0, op, 0, zeros));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned count;
	static bool first = true;

	if (first) {
		first = false;
		atexit(stop);
		if (getenv("SHEAF_WRITE_CORPUS")) {
			start();
			write_corpus();
		}
		if (!running)
			start();
		send_zeros();
	}
	if (count++ % INPUTS_PER_SERVER == 0)
		stop();
	if (!running)
		start();
	send_all(data, size);
	return 0;
}
