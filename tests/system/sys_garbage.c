/* Garbage and false messages close their link, cost bounded memory, and harm no other client. While
 * each test runs, an honest client writes and reads on the same servers and must not notice. */
#include <pthread.h>

#include "raw_link.h"

static struct cluster c;
static struct sheaf *fs; /* reads the servers' status */

/* ---- the honest client ---- */

static struct {
	pthread_t thread;
	bool stop;
	int rounds;
	double slowest;
} honest;

static void *be_honest(void *arg)
{
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, "/honest", O_CREAT | O_RDWR);
	static uint8_t b[500000], r[500000];

	(void)arg;
	while (!__atomic_load_n(&honest.stop, __ATOMIC_SEQ_CST)) {
		uint64_t seed = (uint64_t)honest.rounds;
		size_t n = honest.rounds % 2 ? sizeof(b) : 700;
		double t = now_s();

		fill_pattern(b, n, seed, 0);
		CHECK_EQ(sheaf_pwrite(f, b, n, (off_t)seed * 11), (ssize_t)n);
		CHECK_EQ(sheaf_pread(f, r, n, (off_t)seed * 11), (ssize_t)n);
		CHECK(memcmp(b, r, n) == 0);
		t = now_s() - t;
		honest.slowest = t > honest.slowest ? t : honest.slowest;
		__atomic_add_fetch(&honest.rounds, 1, __ATOMIC_SEQ_CST);
		pause_ms(3);
	}
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(mine);
	return NULL;
}

static int rounds(void)
{
	return __atomic_load_n(&honest.rounds, __ATOMIC_SEQ_CST);
}

/* Waits until the honest client has completed three more rounds. */
static void life_goes_on(void)
{
	int before = rounds();

	CHECK(WITHIN(PATIENCE_S, rounds() >= before + 3));
}

static uint64_t bad_links(int server)
{
	return server_status(fs, server).bad_links;
}

/* ---- before the handshake ---- */

static void random_bytes_close_the_link(void)
{
	uint64_t before = bad_links(0), rss = server_status(fs, 0).rss_bytes, rnd = 1;
	static uint8_t b[20000];

	for (int i = 0; i < 100; i++) {
		size_t n = 40 + test_random(&rnd) % (sizeof(b) - 40);
		int fd = raw_connect(&c, 0);

		for (size_t k = 0; k < n; k++)
			b[k] = (uint8_t)test_random(&rnd);
		raw_write(fd, b, n);
		CHECK(raw_closed(fd));
		close(fd);
	}
	CHECK_EQ(bad_links(0) - before, 100);
	CHECK(SANITIZED || server_status(fs, 0).rss_bytes < rss + (16 << 20));
	life_goes_on();
}

/* Frames of every kind with false lengths: too long for the kind, or longer than the data that
 * follow. */
static void frame_heads_that_lie_close_the_link(void)
{
	uint64_t before = bad_links(0);
	static const uint32_t lengths[] = {
		0, 1, 40, 1024, 1025, 131072, 131073, 262145, UINT32_MAX
	};
	int open_ended = 0;

	for (uint32_t kind = 0; kind < 12; kind++) {
		for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
			struct wire_frame_head h = { .kind = kind,
						     .length = lengths[i],
						     .want = UINT32_MAX,
						     .tag = UINT64_MAX,
						     .at = UINT64_MAX - 3,
						     .id = 7 };
			int fd = raw_connect(&c, 0);

			raw_frame(fd, h, "abc", 3);
			if (kind == FRAME_HELLO && lengths[i] > 3 && lengths[i] <= HELLO_MAX)
				open_ended++; /* incomplete, but may become a valid HELLO */
			else
				CHECK(raw_closed(fd));
			close(fd);
		}
	}
	CHECK_EQ(bad_links(0) - before, 12 * ARRAY_LEN(lengths) - (size_t)open_ended);
	life_goes_on();
}

static int refused(struct raw *r, struct wire_hello h)
{
	int e;

	CHECK(raw_send_hello(r, &h));
	e = raw_welcome(r);
	if (e != -1)
		CHECK(raw_closed(r->fd));
	raw_close(r);
	return e;
}

static void wrong_names_are_refused_with_a_reason(void)
{
	static struct raw r;
	uint64_t before = bad_links(0);
	struct wire_hello h;

	raw_open(&r, &c, 0);
	h = raw_hello(&r, 0);
	h.fs_id[3] ^= 1;
	CHECK_EQ(refused(&r, h), EXDEV);
	raw_open(&r, &c, 0);
	CHECK_EQ(refused(&r, raw_hello(&r, 1)), EXDEV);
	raw_open(&r, &c, 0);
	h = raw_hello(&r, 0);
	h.version_min = h.version_max = SHEAF_VERSION + 1;
	CHECK_EQ(refused(&r, h), EPROTONOSUPPORT);
	raw_open(&r, &c, 0);
	h = raw_hello(&r, 0);
	h.role = 3;
	CHECK_EQ(refused(&r, h), -1);
	CHECK_EQ(bad_links(0) - before, 4);
	life_goes_on();
}

static void a_wrong_key_is_refused(void)
{
	char dir[CLUSTER_PATH - 64], path[CLUSTER_PATH], key[CLUSTER_PATH], old[CLUSTER_PATH],
		new[CLUSTER_PATH];
	uint64_t before = bad_links(0);
	struct sheaf *other;
	struct stat st;
	char err[256], *text;
	double t;

	temp_dir(dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/sheaf.conf", dir);
	snprintf(key, sizeof(key), "%s/key", dir);
	CHECK_EQ(key_create(key, err, sizeof(err)), 0);
	text = read_text(c.conf);
	write_text(path, text);
	free(text);
	(void)old, (void)new;
	other = client_connect(path);
	t = now_s();
	CHECK_EQ(sheaf_stat(other, "/", &st), -EKEYREJECTED);
	CHECK(now_s() - t < 20); /* before the timeout: retries cannot help */
	sheaf_disconnect(other);
	/* may be equal: the client is first to see a wrong proof, the server's */
	CHECK(bad_links(0) >= before);
	life_goes_on();
}

static void a_wrong_proof_and_a_replayed_one_are_refused(void)
{
	static struct raw good, r;
	uint64_t before = bad_links(0);
	struct wire_hello h;

	raw_open(&r, &c, 0); /* a key that the server does not have */
	memset(r.key, 9, sizeof(r.key));
	h = raw_hello(&r, 0);
	CHECK(raw_send_hello(&r, &h) && raw_recv(&r) && raw_respond(&r));
	CHECK_EQ(raw_welcome(&r), EKEYREJECTED);
	CHECK(raw_closed(r.fd));
	raw_close(&r);

	raw_up(&good, &c, 0); /* its handshake is recorded, for a replay */
	raw_open(&r, &c, 0);
	CHECK(raw_send(&r, FRAME_HELLO, 0, good.hello, good.hello_len));
	CHECK(raw_recv(&r));
	CHECK_EQ(r.head.kind, FRAME_CHALLENGE);
	CHECK(raw_send(&r, FRAME_RESPONSE, 0, good.response, good.response_len));
	CHECK_EQ(raw_welcome(&r), EKEYREJECTED);
	CHECK(raw_closed(r.fd));
	raw_close(&r);
	raw_close(&good);
	CHECK_EQ(bad_links(0) - before, 2);
	life_goes_on();
}

/* The server accepts no requests, data or second handshakes before the proof of the key. */
static void nothing_passes_before_the_proof(void)
{
	static struct raw r;
	uint64_t before = server_status(fs, 0).requests;
	struct wire_hello h;

	raw_open(&r, &c, 0);
	CHECK(raw_request(&r, OP_STATUS, UINT32_MAX, 0, XDR_ANY(xdr_wire_void_args),
			  &(struct wire_void_args){ 0 }));
	CHECK(raw_closed(r.fd));
	raw_close(&r);
	raw_open(&r, &c, 0);
	h = raw_hello(&r, 0);
	CHECK(raw_send_hello(&r, &h) && raw_recv(&r));
	CHECK(raw_request(&r, OP_STATUS, UINT32_MAX, 0, XDR_ANY(xdr_wire_void_args),
			  &(struct wire_void_args){ 0 }));
	CHECK(raw_closed(r.fd));
	raw_close(&r);
	raw_open(&r, &c, 0);
	h = raw_hello(&r, 0);
	CHECK(raw_send_hello(&r, &h) && raw_recv(&r));
	CHECK(raw_send_hello(&r, &h));
	CHECK(raw_closed(r.fd));
	raw_close(&r);
	(void)before;
	life_goes_on();
}

/* Silent connections are limited in number and in time, and do not keep others out. */
static void silent_connections_are_dropped(void)
{
	int fd[400], links = (int)server_status(fs, 0).links;
	struct sheaf *late;
	struct stat st;

	for (int i = 0; i < 400; i++)
		fd[i] = raw_connect(&c, 0);
	late = client_connect(c.conf);
	CHECK_EQ(sheaf_stat(late, "/", &st), 0);
	CHECK((int)server_status(fs, 0).links <= links + 1 + 257);
	sheaf_disconnect(late);
	CHECK(WITHIN(PATIENCE_S, (int)server_status(fs, 0).links <= links));
	for (int i = 0; i < 400; i++)
		close(fd[i]);
	life_goes_on();
}

/* ---- slow senders, during all other tests ---- */

static void *send_slowly(void *arg)
{
	static struct raw r;
	struct wire_hello h;
	uint8_t head[FRAME_HEAD];
	struct wire_frame_head fh = { .kind = FRAME_HELLO };
	struct xdr x;

	(void)arg;
	raw_open(&r, &c, 0);
	h = raw_hello(&r, 0);
	xdr_encoder(&x, r.hello, sizeof(r.hello));
	CHECK(xdr_wire_hello(&x, &h));
	fh.length = (uint32_t)xdr_used(&x);
	frame_head_encode(head, &fh);
	for (int i = 0; i < 60; i++) { /* for 3 seconds */
		const uint8_t *p = i < FRAME_HEAD ? head + i : r.hello + i - FRAME_HEAD;

		if (!raw_write(r.fd, p, 1))
			break; /* closed to make room for silent connections */
		pause_ms(50);
	}
	raw_close(&r);
	return NULL;
}

/* ---- after the handshake ---- */

static void *mkdir_args(const char *path)
{
	static struct wire_mkdir_args a;
	struct sheaf_handle root = sheaf_root(fs);

	a = (struct wire_mkdir_args){ .where = { { root.ino, root.gen }, wire_text(path), false },
				      .mode = 0755 };
	return &a;
}

static void broken_requests_close_the_link(void)
{
	static struct raw r;
	static struct raw_body m;
	struct wire_void_args none = { 0 };
	uint64_t before = bad_links(0);
	int n = 0;

	raw_up_session(&r, &c, 0); /* unknown operation */
	raw_request(&r, 999, 0, 1, XDR_ANY(xdr_wire_void_args), &none);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0); /* arguments of another operation */
	raw_request(&r, OP_OPEN, 0, 1, XDR_ANY(xdr_wire_void_args), &none);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0); /* slot out of range */
	raw_request(&r, OP_PING, SESSION_SLOTS, 1, XDR_ANY(xdr_wire_void_args), &none);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0);
	raw_request(&r, OP_PING, UINT32_MAX - 7, 1, XDR_ANY(xdr_wire_void_args), &none);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0); /* sequence goes backwards */
	CHECK_EQ(raw_call(&r, OP_PING, 0, 9, XDR_ANY(xdr_wire_void_args), &none, NULL, NULL), 0);
	raw_request(&r, OP_PING, 0, 8, XDR_ANY(xdr_wire_void_args), &none);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0); /* longer than the largest message */
	raw_send(&r, FRAME_REQUEST, 0, m.b, MSG_MAX + 4);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0); /* all zeros */
	raw_send(&r, FRAME_REQUEST, 0, m.b, MSG_MAX);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0); /* data that were not requested */
	raw_send(&r, FRAME_DATA, 5, m.b, 100);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0); /* frames that only servers send */
	raw_send(&r, FRAME_REPLY, 5, m.b, 100);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	raw_up_session(&r, &c, 0);
	raw_send(&r, FRAME_PULL, 5, m.b, 0);
	CHECK(raw_closed(r.fd));
	raw_close(&r), n++;
	CHECK_EQ(bad_links(0) - before, n);
	life_goes_on();
}

static void a_slot_in_use_closes_the_link_and_the_change_stays_single(void)
{
	static struct raw r;
	struct stat st;

	raw_up_session(&r, &c, 0);
	CHECK(raw_request(&r, OP_MKDIR, 3, 1, XDR_ANY(xdr_wire_mkdir_args),
			  mkdir_args("slot-used")));
	raw_request(&r, OP_MKDIR, 3, 2, XDR_ANY(xdr_wire_mkdir_args), mkdir_args("slot-used2"));
	CHECK(raw_closed(r.fd) || true); /* open if the first request had ended before */
	close(r.fd);
	/* retransmitted over another link: answered from the slot */
	r.fd = raw_connect(&c, 0);
	{
		struct wire_hello h = raw_hello(&r, 0);

		CHECK(raw_send_hello(&r, &h) && raw_recv(&r) && raw_respond(&r));
		CHECK_EQ(raw_welcome(&r), 0);
		CHECK_EQ(raw_session(&r), 0);
	}
	if (sheaf_stat(fs, "/slot-used2", &st) == -ENOENT)
		CHECK_EQ(raw_call(&r, OP_MKDIR, 3, 1, XDR_ANY(xdr_wire_mkdir_args),
				  mkdir_args("slot-used"), NULL, NULL),
			 0);
	CHECK_EQ(sheaf_stat(fs, "/slot-used", &st), 0);
	raw_close(&r);
	life_goes_on();
}

/* A cancel of any request at any time is harmless. */
static void cancels_of_nothing_are_harmless(void)
{
	static struct raw r;
	struct wire_void_args none = { 0 };

	raw_up_session(&r, &c, 0);
	for (uint64_t i = 0; i < 200; i++)
		CHECK(raw_send(&r, FRAME_CANCEL, i * UINT64_C(0x123456789abcdef), NULL, 0));
	CHECK(raw_send(&r, FRAME_CANCEL, raw_tag(UINT32_MAX, UINT32_MAX), NULL, 0));
	CHECK_EQ(raw_call(&r, OP_PING, 0, 1, XDR_ANY(xdr_wire_void_args), &none, NULL, NULL), 0);
	raw_close(&r);
}

static void sessions_of_others_stay_closed(void)
{
	static struct raw victim, thief;
	struct wire_void_args none = { 0 };

	raw_up_session(&victim, &c, 0);
	raw_up(&thief, &c, 0);
	thief.session = victim.session;
	memset(thief.secret, 1, sizeof(thief.secret));
	CHECK_EQ(raw_session(&thief), EACCES);
	CHECK_EQ(raw_call(&thief, OP_PING, 0, 1, XDR_ANY(xdr_wire_void_args), &none, NULL, NULL),
		 ESTALE);
	CHECK_EQ(raw_call(&victim, OP_PING, 0, 1, XDR_ANY(xdr_wire_void_args), &none, NULL, NULL),
		 0);
	raw_close(&victim);
	raw_close(&thief);
}

/* Many sessions, one after another, on one link: the last one is in use, and none stays on the dead
 * link. */
static void many_sessions_on_one_link(void)
{
	static struct raw r;
	struct wire_void_args none = { 0 };
	uint32_t before = server_status(fs, 0).sessions;

	raw_up_session(&r, &c, 0);
	for (int i = 0; i < 20; i++) {
		r.session = 0;
		CHECK_EQ(raw_session(&r), 0);
		CHECK_EQ(raw_call(&r, OP_PING, 0, 1, XDR_ANY(xdr_wire_void_args), &none, NULL,
				  NULL),
			 0);
	}
	raw_close(&r);
	/* sessions end with their leases */
	CHECK(WITHIN(PATIENCE_S, server_status(fs, 0).sessions <= before));
	life_goes_on();
}

/* Requests after a goodbye do not find a session that is partly destroyed. */
static void requests_behind_a_goodbye_are_turned_away(void)
{
	static struct raw r;
	struct wire_void_args none = { 0 };

	for (int round = 0; round < 10; round++) {
		char name[64];
		int e, answers = 0;

		raw_up_session(&r, &c, 0);
		for (uint32_t i = 1; i < 20; i++) {
			snprintf(name, sizeof(name), "bye-%d-%u", round, i);
			CHECK(raw_request(&r, OP_MKDIR, i, 1, XDR_ANY(xdr_wire_mkdir_args),
					  mkdir_args(name)));
			if (i == 3)
				CHECK(raw_request(&r, OP_BYE, 0, 1, XDR_ANY(xdr_wire_void_args),
						  &none));
			if (i > 3)
				pause_ms(round % 3);
		}
		while (answers < 20 && (e = raw_reply(&r, NULL, NULL)) >= 0) {
			CHECK(e == 0 || e == ESTALE || e == EEXIST);
			answers++;
		}
		CHECK_EQ(answers, 20);
		raw_close(&r);
	}
	life_goes_on();
}

/* ---- data ---- */

static struct wire_capability cap_of(struct raw *r, const char *path, uint32_t *seq)
{
	struct wire_open_args a = { .where = { .path = wire_text(path) },
				    .id = 1,
				    .flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE,
				    .mode = 0644,
				    .unit = 4096,
				    .width = 1 };
	struct wire_open_res res;
	struct sheaf_handle root = sheaf_root(fs);

	a.where.dir = (struct wire_handle){ root.ino, root.gen };
	CHECK_EQ(raw_call(r, OP_OPEN, 0, ++*seq, XDR_ANY(xdr_wire_open_args), &a,
			  XDR_ANY(xdr_wire_open_res), &res),
		 0);
	return res.cap;
}

/* Asks both servers, since either may have the only object; the capability is valid at both. */
static int read_status(struct raw *r, struct wire_read_args *a, uint32_t *seq)
{
	struct wire_read_res res;

	return raw_call(r, OP_READ, 1, ++*seq, XDR_ANY(xdr_wire_read_args), a,
			XDR_ANY(xdr_wire_read_res), &res);
}

static int write_status(struct raw *r, struct wire_write_args *a, uint32_t *seq)
{
	struct wire_write_res res;

	return raw_call(r, OP_WRITE, 1, ++*seq, XDR_ANY(xdr_wire_write_args), a,
			XDR_ANY(xdr_wire_write_res), &res);
}

static void lists_that_lie_are_refused(void)
{
	static struct raw r;
	struct wire_extent e[3] = { { 0, 4 } };
	struct wire_read_args rd = { .n_list = 1, .list = e };
	struct wire_write_args wr = { .n_list = 1, .list = e, .data = wire_text("four") };
	uint32_t seq = 0;

	raw_up_session(&r, &c, 0);
	rd.at.cap = wr.at.cap = cap_of(&r, "liar", &seq);
	CHECK_EQ(write_status(&r, &wr, &seq), 0);
	CHECK_EQ(read_status(&r, &rd, &seq), 0);
	e[0].length = 5; /* the extent has 5 bytes, the data 4 */
	CHECK_EQ(write_status(&r, &wr, &seq), EINVAL);
	e[0] = (struct wire_extent){ UINT64_MAX - 1, 4 };
	CHECK_EQ(write_status(&r, &wr, &seq), EFBIG);
	CHECK_EQ(read_status(&r, &rd, &seq), EFBIG);
	e[0] = (struct wire_extent){ INT64_MAX, 4 };
	CHECK_EQ(read_status(&r, &rd, &seq), EFBIG);
	for (int i = 0; i < 3; i++)
		e[i] = (struct wire_extent){ 0, INT64_MAX };
	rd.n_list = 3; /* the sum of the lengths overflows */
	CHECK_EQ(read_status(&r, &rd, &seq), EINVAL);
	rd.n_list = 1;
	e[0].length = INLINE_MAX + 1; /* too long to be sent inline */
	CHECK_EQ(read_status(&r, &rd, &seq), EINVAL);
	e[0].length = 100; /* memory longer or shorter than the list */
	rd.mem = (struct wire_mem_desc){ .tag = 5, .length = 101 };
	CHECK_EQ(read_status(&r, &rd, &seq), EINVAL);
	wr.mem = (struct wire_mem_desc){ .tag = 5, .length = UINT64_MAX };
	CHECK_EQ(write_status(&r, &wr, &seq), EINVAL);
	raw_close(&r);
	life_goes_on();
}

static void forged_capabilities_are_refused(void)
{
	static struct raw r;
	struct wire_extent e = { 0, 4 };
	struct wire_write_args wr = { .n_list = 1, .list = &e, .data = wire_text("four") };
	struct wire_fence_args fence = { .ino = 1, .obj_gen = 1, .epoch = UINT64_MAX };
	struct wire_removal one = { .ino = 1, .obj_gen = 1, .epoch = UINT64_MAX };
	struct wire_remove_args rm = { 1, &one };
	struct wire_capability good;
	uint32_t seq = 0;

	raw_up_session(&r, &c, 0);
	good = cap_of(&r, "forged", &seq);
	for (int i = 0; i < 8; i++) {
		wr.at.cap = good;
		wr.at.cap.ino += i == 0;
		wr.at.cap.epoch += i == 1 ? 1000 : 0;
		wr.at.cap.expires += i == 2 ? NSEC_PER_SEC : 0;
		wr.at.cap.client += i == 3;
		wr.at.cap.obj_gen += i == 4;
		wr.at.cap.mac[31] ^= i == 5;
		if (i == 6)
			memset(&wr.at.cap, 0, sizeof(wr.at.cap));
		if (i == 7)
			wr.at.cap.rights = 0xffffffff;
		CHECK_EQ(write_status(&r, &wr, &seq), EKEYREJECTED);
	}
	wr.at.cap = good;
	CHECK_EQ(write_status(&r, &wr, &seq), 0);
	CHECK_EQ(raw_call(&r, OP_FENCE, 2, 1, XDR_ANY(xdr_wire_fence_args), &fence, NULL, NULL),
		 EPERM);
	CHECK_EQ(raw_call(&r, OP_REMOVE, 2, 2, XDR_ANY(xdr_wire_remove_args), &rm, NULL, NULL),
		 EPERM);
	raw_close(&r);
	life_goes_on();
}

/* A client that announces data in every slot and never sends them must not take the pool from
 * others. */
static void promised_data_that_never_come_do_not_starve_others(void)
{
	static struct raw r;
	struct wire_extent e = { 0, 64 << 20 };
	struct wire_write_args wr = { .n_list = 1,
				      .list = &e,
				      .mem = { .tag = 77, .length = 64 << 20 } };
	uint32_t seq = 0;
	struct sheaf_server s;

	raw_up_session(&r, &c, 0);
	wr.at.cap = cap_of(&r, "never", &seq);
	for (uint32_t i = 1; i < SESSION_SLOTS; i++)
		CHECK(raw_request(&r, OP_WRITE, i, 1, XDR_ANY(xdr_wire_write_args), &wr));
	CHECK(raw_recv(&r));
	CHECK_EQ(r.head.kind, FRAME_PULL);
	pause_ms(300);
	life_goes_on();
	s = server_status(fs, 0);
	CHECK(s.pool_free >= s.pool_bytes / 2);
	raw_close(&r);
	CHECK(WITHIN(20, server_status(fs, 0).pool_free > s.pool_bytes - (8 << 20)));
	life_goes_on();
}

/* A client that sends requests without end and never reads a reply. */
static void unread_answers_cost_bounded_memory(void)
{
	static struct raw r;
	struct timeval soon = { .tv_usec = 200000 };
	struct sheaf_handle root = sheaf_root(fs);
	struct wire_readdir_args a = { { root.ino, root.gen }, 0, 1024, false };
	uint64_t rss = server_status(fs, 0).rss_bytes;
	double end;

	for (int i = 0; i < 300; i++) {
		char path[300];

		snprintf(path, sizeof(path), "/%0200d", i);
		CHECK_EQ(sheaf_mkdir(fs, path, 0755), 0);
	}
	raw_up_session(&r, &c, 0);
	setsockopt(r.fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
	end = now_s() + 1.5;
	for (uint32_t i = 0; now_s() < end; i++)
		if (!raw_request(&r, OP_READDIR, i % SESSION_SLOTS, i / SESSION_SLOTS + 1,
				 XDR_ANY(xdr_wire_readdir_args), &a))
			break; /* the server reads no more requests: right */
	CHECK(SANITIZED || server_status(fs, 0).rss_bytes < rss + (64 << 20));
	raw_close(&r);
	life_goes_on();
}

/* Requests on an authenticated link, each with one byte of a valid request changed. */
static void corrupted_requests_harm_no_other_client(void)
{
	static struct raw r;
	static struct raw_body m;
	struct wire_read_args a = { .n_list = 1, .list = &(struct wire_extent){ 0, 100 } };
	struct wire_req_head h = { .op = OP_READ, .slot = 1, .sequence = 1 };
	uint64_t rnd = 7;
	struct xdr x;

	for (int i = 0; i < 250; i++) {
		uint32_t len, at;

		raw_up_session(&r, &c, i % 2);
		h.session = r.session;
		xdr_encoder(&x, m.b, sizeof(m.b));
		CHECK(xdr_wire_req_head(&x, &h) && xdr_wire_read_args(&x, &a));
		len = (uint32_t)xdr_used(&x);
		for (int k = 0; k < 3; k++) {
			at = (uint32_t)(test_random(&rnd) % len);
			m.b[at] = (uint8_t)test_random(&rnd);
		}
		raw_send(&r, FRAME_REQUEST, raw_tag(1, 1), m.b, test_random(&rnd) % 4 ? len : at);
		raw_close(&r);
	}
	life_goes_on();
}

static void run_all(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(random_bytes_close_the_link),
		TEST(frame_heads_that_lie_close_the_link),
		TEST(wrong_names_are_refused_with_a_reason),
		TEST(a_wrong_key_is_refused),
		TEST(a_wrong_proof_and_a_replayed_one_are_refused),
		TEST(nothing_passes_before_the_proof),
		TEST(silent_connections_are_dropped),
		TEST(broken_requests_close_the_link),
		TEST(a_slot_in_use_closes_the_link_and_the_change_stays_single),
		TEST(cancels_of_nothing_are_harmless),
		TEST(sessions_of_others_stay_closed),
		TEST(many_sessions_on_one_link),
		TEST(requests_behind_a_goodbye_are_turned_away),
		TEST(lists_that_lie_are_refused),
		TEST(forged_capabilities_are_refused),
		TEST(promised_data_that_never_come_do_not_starve_others),
		TEST(unread_answers_cost_bounded_memory),
		TEST(corrupted_requests_harm_no_other_client),
	};

	test_run(tests, ARRAY_LEN(tests), argc, argv);
}

int main(int argc, char **argv)
{
	pthread_t slow;

	signal(SIGPIPE, SIG_IGN);
	cluster_create(&c, NULL);
	cluster_start(&c);
	fs = client_connect(c.conf);
	CHECK_EQ(pthread_create(&honest.thread, NULL, be_honest, NULL), 0);
	CHECK_EQ(pthread_create(&slow, NULL, send_slowly, NULL), 0);
	run_all(argc, argv);
	pthread_join(slow, NULL);
	__atomic_store_n(&honest.stop, true, __ATOMIC_SEQ_CST);
	pthread_join(honest.thread, NULL);
	CHECK(honest.slowest < 20); /* no request waited for a timeout */
	sheaf_disconnect(fs);
	cluster_stop(&c); /* must be a clean stop */
	return 0;
}
