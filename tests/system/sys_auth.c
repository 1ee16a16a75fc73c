/* Access control of a server: keys and the users they speak for, root from an untrusted network,
 * sessions and capabilities of other clients, operations reserved for servers, and clients that
 * hold resources. Each refusal is counted under its reason, and an honest client is served
 * meanwhile. */
#include "raw_link.h"

#define ALICE 4242
#define TIMEOUT_S 20
#define SOON_S 15 /* shorter than the timeout of clients that owe data */

static struct cluster c;
static struct sheaf *fs; /* reads the server's status; an honest client */
static uint32_t metrics_port;

/* ---- counters, as an administrator sees them ---- */

static char *metrics(void)
{
	static const char ask[] = "GET /metrics HTTP/1.0\r\n\r\n";
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)metrics_port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *text = calloc(1, 1 << 20);
	size_t n = 0;
	ssize_t r;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(text && fd >= 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK(raw_write(fd, ask, sizeof(ask) - 1));
	while ((r = recv(fd, text + n, (1 << 20) - 1 - n, 0)) > 0)
		n += (size_t)r;
	close(fd);
	return text;
}

static uint64_t refused(const char *reason)
{
	char *text = metrics(), want[64], *at;
	uint64_t n;

	snprintf(want, sizeof(want), "sheaf_refused_total{reason=\"%s\"} ", reason);
	at = strstr(text, want);
	CHECK(at);
	n = strtoull(at + strlen(want), NULL, 10);
	free(text);
	return n;
}

static void honest_client_gets_on(void)
{
	double t = now_s();

	make_file(fs, "/honest", 300000, 7);
	check_file(fs, "/honest", 300000, 7);
	CHECK(now_s() - t < SOON_S);
}

/* ---- links spoken by hand ---- */

static void up_as(struct raw *r, const char *key, uint32_t uid, uint32_t gid)
{
	raw_open_with(r, &c, 0, key);
	CHECK_EQ(raw_greet(r, 0), 0);
	r->uid = r->gid = NOBODY;
	CHECK_EQ(raw_session(r), 0);
	r->uid = uid;
	r->gid = gid;
}

static int mkdir_status(struct raw *r, const char *name, uint32_t seq, struct wire_made_res *res)
{
	struct sheaf_handle root = sheaf_root(fs);
	struct wire_mkdir_args a = { .where = { { root.ino, root.gen }, wire_text(name), false },
				     .mode = 0755 };

	return raw_call(r, OP_MKDIR, 0, seq, XDR_ANY(xdr_wire_mkdir_args), &a,
			XDR_ANY(xdr_wire_made_res), res);
}

static struct wire_open_res open_by_hand(struct raw *r, const char *name, uint32_t seq)
{
	struct sheaf_handle root = sheaf_root(fs);
	struct wire_open_args a = { .where = { { root.ino, root.gen }, wire_text(name), false },
				    .id = seq,
				    .flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE,
				    .mode = 0600 };
	struct wire_open_res res = { 0 };

	CHECK_EQ(raw_call(r, OP_OPEN, 0, seq, XDR_ANY(xdr_wire_open_args), &a,
			  XDR_ANY(xdr_wire_open_res), &res),
		 0);
	return res;
}

static int write_status(struct raw *r, const struct wire_capability *cap, uint32_t slot,
			uint32_t seq)
{
	struct wire_extent e = { 0, 4 };
	struct wire_write_args a = {
		.at.cap = *cap, .n_list = 1, .list = &e, .data = wire_text("four")
	};

	return raw_call(r, OP_WRITE, slot, seq, XDR_ANY(xdr_wire_write_args), &a, NULL, NULL);
}

static int ping_status(struct raw *r, uint32_t seq)
{
	return raw_call(r, OP_PING, 63, seq, XDR_ANY(xdr_wire_void_args),
			&(struct wire_void_args){ 0 }, NULL, NULL);
}

/* ---- keys ---- */

static void a_users_key_speaks_for_that_user_only(void)
{
	static struct raw r;
	struct wire_made_res res;
	uint64_t before = refused("credential");

	up_as(&r, "alice", ALICE, ALICE);
	CHECK_EQ(mkdir_status(&r, "alices", 1, &res), 0);
	CHECK_EQ(res.at.uid, ALICE);
	r.uid = r.gid = 0;
	CHECK_EQ(mkdir_status(&r, "roots", 2, &res), EPERM);
	r.uid = ALICE;
	CHECK_EQ(mkdir_status(&r, "roots", 3, &res), EPERM); /* not the key's group */
	r.uid = ALICE + 1;
	r.gid = ALICE;
	CHECK_EQ(mkdir_status(&r, "bobs", 4, &res), EPERM);
	CHECK_EQ(refused("credential") - before, 3);
	CHECK(server_logged(&c, 0, "with key alice"));
	raw_close(&r);
}

/* A program selects its key by name and acts for the user that runs it. */
static void a_program_picks_its_key_by_name(void)
{
	struct sheaf_cred me = { .uid = ALICE, .gid = ALICE }, root = { 0 };
	struct sheaf_handle h;
	struct sheaf *mine;
	struct stat st;

	setenv("SHEAF_KEY", "alice", 1);
	mine = client_connect(c.conf);
	CHECK_EQ(sheaf_h_lookup(mine, &me, sheaf_root(mine), "alices", &h, &st), 0);
	CHECK_EQ(sheaf_h_lookup(mine, &root, sheaf_root(mine), "alices", &h, &st), -EPERM);
	sheaf_disconnect(mine);
	setenv("SHEAF_KEY", "nobody-has-it", 1);
	CHECK_EQ(sheaf_connect(c.conf, &mine), -ENOENT);
	CHECK(strstr(sheaf_why(), "SHEAF_KEY"));
	unsetenv("SHEAF_KEY");
}

static void wrong_keys_are_refused(void)
{
	static struct raw r, good;
	uint64_t before = refused("key");

	raw_open(&r, &c, 0); /* a key name that does not exist */
	r.key_name = "carol";
	CHECK_EQ(raw_greet(&r, 0), EKEYREJECTED);
	CHECK(raw_closed(r.fd));
	raw_close(&r);
	raw_open_with(&r, &c, 0, "alice"); /* a key under the name of another */
	r.key_name = "host";
	CHECK_EQ(raw_greet(&r, 0), EKEYREJECTED);
	raw_close(&r);
	raw_open(&r, &c, 0);
	memset(r.key, 0, sizeof(r.key));
	CHECK_EQ(raw_greet(&r, 0), EKEYREJECTED);
	raw_close(&r);
	raw_open_with(&good, &c, 0, "alice"); /* a replay of an earlier handshake */
	CHECK_EQ(raw_greet(&good, 0), 0);
	raw_open(&r, &c, 0);
	CHECK(raw_send(&r, FRAME_HELLO, 0, good.hello, good.hello_len) && raw_recv(&r));
	CHECK_EQ(r.head.kind, FRAME_CHALLENGE);
	CHECK(raw_send(&r, FRAME_RESPONSE, 0, good.response, good.response_len));
	CHECK_EQ(raw_welcome(&r), EKEYREJECTED);
	raw_close(&r);
	raw_close(&good);
	CHECK_EQ(refused("key") - before, 4);
	before = refused("key");
	/* a client that finds the server's proof wrong hangs up: the server counts that, too */
	raw_open(&r, &c, 0);
	{
		struct wire_hello h = raw_hello(&r, 0);

		CHECK(raw_send_hello(&r, &h) && raw_recv(&r));
	}
	raw_close(&r);
	CHECK(WITHIN(PATIENCE_S, refused("key") == before + 1));
}

static void failed_handshakes_are_counted(void)
{
	uint64_t before = refused("handshake");
	int fd[300];

	for (int i = 0; i < 300; i++)
		fd[i] = raw_connect(&c, 0);
	/* 256 handshakes may be pending; the oldest are closed */
	CHECK(WITHIN(PATIENCE_S, refused("handshake") - before >= 44));
	honest_client_gets_on();
	for (int i = 0; i < 300; i++)
		close(fd[i]);
}

/* ---- sessions, capabilities, operations of servers ---- */

static void anothers_session_stays_closed(void)
{
	static struct raw victim, thief;
	uint64_t before = refused("session");

	up_as(&victim, "alice", ALICE, ALICE);
	raw_open_with(&thief, &c, 0, "host");
	CHECK_EQ(raw_greet(&thief, 0), 0);
	thief.session = victim.session;
	memset(thief.secret, 1, sizeof(thief.secret));
	CHECK_EQ(raw_session(&thief), EACCES); /* with the id only */
	memcpy(thief.secret, victim.secret, sizeof(thief.secret));
	CHECK_EQ(raw_session(&thief), EACCES); /* with the secret too, as seen on the wire */
	CHECK_EQ(ping_status(&thief, 1), ESTALE);
	CHECK_EQ(refused("session") - before, 3);
	CHECK_EQ(ping_status(&victim, 1), 0);
	raw_close(&victim);
	raw_close(&thief);
}

static void capabilities_are_refused_one_by_one(void)
{
	static struct raw r, other;
	struct wire_open_res f;
	struct wire_truncate_args t = { .size = 1 };
	struct wire_capability bad;
	uint8_t text[128];
	uint64_t forged = refused("forged_capability"), stale = refused("stale_capability");
	uint32_t seq = 0, len;
	struct xdr x;

	up_as(&r, "alice", ALICE, ALICE);
	f = open_by_hand(&r, "alices-file", 1);
	CHECK_EQ(write_status(&r, &f.cap, 1, ++seq), 0);
	xdr_encoder(&x, text, sizeof(text));
	CHECK(xdr_wire_capability(&x, &f.cap));
	len = (uint32_t)xdr_used(&x);
	for (uint32_t bit = 0; bit < 8 * len; bit++) { /* every bit of it */
		text[bit / 8] ^= (uint8_t)(1 << bit % 8);
		xdr_decoder(&x, text, len, NULL);
		CHECK(xdr_wire_capability(&x, &bad));
		CHECK_EQ(write_status(&r, &bad, 1, ++seq), EKEYREJECTED);
		text[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	CHECK_EQ(refused("forged_capability") - forged, 8 * len);
	raw_open_with(&other, &c, 0, "host"); /* a capability stolen from another key */
	CHECK_EQ(raw_greet(&other, 0), 0);
	CHECK_EQ(raw_session(&other), 0);
	CHECK_EQ(write_status(&other, &f.cap, 1, 1), EKEYREJECTED);
	CHECK_EQ(refused("forged_capability") - forged, 8 * len + 1);
	t.h = (struct wire_handle){ f.at.ino, f.at.gen }; /* a fence makes it invalid */
	CHECK_EQ(raw_call(&r, OP_TRUNCATE, 0, 2, XDR_ANY(xdr_wire_truncate_args), &t, NULL, NULL),
		 0);
	CHECK_EQ(write_status(&r, &f.cap, 1, ++seq), EKEYEXPIRED);
	CHECK_EQ(refused("stale_capability") - stale, 1);
	raw_close(&r);
	raw_close(&other);
}

static void what_is_for_servers_is_not_for_clients(void)
{
	static struct raw r;
	struct wire_fence_args fence = { .ino = 1, .obj_gen = 1, .epoch = UINT64_MAX };
	struct wire_removal one = { .ino = 1, .obj_gen = 1, .epoch = UINT64_MAX };
	struct wire_remove_args rm = { 1, &one };
	uint64_t before = refused("servers_only"), sum = server_status(fs, 0).refused;

	raw_up_session(&r, &c, 0);
	CHECK_EQ(raw_call(&r, OP_FENCE, 2, 1, XDR_ANY(xdr_wire_fence_args), &fence, NULL, NULL),
		 EPERM);
	CHECK_EQ(raw_call(&r, OP_REMOVE, 2, 2, XDR_ANY(xdr_wire_remove_args), &rm, NULL, NULL),
		 EPERM);
	CHECK_EQ(refused("servers_only") - before, 2);
	CHECK_EQ(server_status(fs, 0).refused - sum, 2);
	raw_close(&r);
}

/* ---- clients that hold resources ---- */

#define HOGS 10

/* Sends a write in every slot and does not answer the server's PULLs. */
static void promise(struct raw *r, const char *name)
{
	struct wire_extent e = { 0, 64 << 20 };
	struct wire_write_args wr = { .n_list = 1,
				      .list = &e,
				      .mem = { .tag = 77, .length = 64 << 20 } };

	raw_up_session(r, &c, 0);
	wr.at.cap = open_by_hand(r, name, 1).cap;
	for (uint32_t i = 1; i < SESSION_SLOTS - 1; i++)
		CHECK(raw_request(r, OP_WRITE, i, 1, XDR_ANY(xdr_wire_write_args), &wr));
	do
		CHECK(raw_recv(r));
	while (r->head.kind != FRAME_PULL);
}

static bool closed_now(const struct raw *r)
{
	uint8_t b[4096];
	ssize_t n;

	do
		n = recv(r->fd, b, sizeof(b), MSG_DONTWAIT);
	while (n > 0);
	return n == 0 || (errno != EAGAIN && errno != EINTR);
}

/* Sends one more byte of the promised data, as a frame of its own. */
static void trickle(struct raw *r, uint32_t nth)
{
	struct wire_frame_head h = {
		.kind = FRAME_DATA, .length = 1, .id = r->head.id, .at = r->head.at + nth
	};
	uint8_t body[1 + FRAME_TAIL] = { 'x' };

	raw_frame(r->fd, h, body, sizeof(body));
}

/* Ten clients have promised all the data they can. One sends single bytes of a large frame, one
 * sends frames of one byte, one sends other requests, the others are silent. */
static void a_client_that_owes_data_is_cut_off_and_starves_no_other(void)
{
	static struct raw hog[HOGS];
	struct wire_frame_head h = { .kind = FRAME_DATA };
	uint64_t before = refused("stalled");
	double end = now_s() + TIMEOUT_S + PATIENCE_S;
	uint8_t head[FRAME_HEAD];
	int gone = 0;

	for (int i = 0; i < HOGS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "hog%d", i);
		promise(&hog[i], name);
	}
	honest_client_gets_on();
	CHECK(server_status(fs, 0).pool_free > 0);
	h.at = hog[0].head.at;
	h.id = hog[0].head.id;
	h.length = hog[0].head.want;
	frame_head_encode(head, &h);
	CHECK(raw_write(hog[0].fd, head, sizeof(head)));
	for (uint32_t seq = 1; gone < HOGS && now_s() < end; seq++) {
		raw_write(hog[0].fd, "x", 1);
		trickle(&hog[2], seq - 1);
		raw_request(&hog[1], OP_PING, 63, seq, XDR_ANY(xdr_wire_void_args),
			    &(struct wire_void_args){ 0 });
		honest_client_gets_on();
		pause_ms(100);
		gone = 0;
		for (int i = 0; i < HOGS; i++)
			gone += closed_now(&hog[i]);
	}
	CHECK_EQ(gone, HOGS);
	CHECK_EQ(refused("stalled") - before, HOGS);
	for (int i = 0; i < HOGS; i++)
		raw_close(&hog[i]);
	CHECK(WITHIN(PATIENCE_S,
		     server_status(fs, 0).pool_free == server_status(fs, 0).pool_bytes));
}

/* Many clients request long replies and read none. */
static void unread_answers_are_bounded_in_bytes(void)
{
	static struct raw r[24];
	struct timeval soon = { .tv_usec = 100000 };
	struct sheaf_handle root = sheaf_root(fs);
	struct wire_readdir_args a = { .dir = { root.ino, root.gen }, .max = 1024 };
	uint64_t anon = server_status(fs, 0).anon_bytes, before = refused("limit");
	int small = 4096;

	for (int i = 0; i < 200; i++) {
		char path[300];

		snprintf(path, sizeof(path), "/%0220d", i);
		CHECK_EQ(sheaf_mkdir(fs, path, 0755), 0);
	}
	for (size_t k = 0; k < ARRAY_LEN(r); k++) {
		raw_up_session(&r[k], &c, 0);
		setsockopt(r[k].fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
		setsockopt(r[k].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		for (uint32_t i = 0; i < 1200; i++)
			if (!raw_request(&r[k], OP_READDIR, i % SESSION_SLOTS,
					 i / SESSION_SLOTS + 1, XDR_ANY(xdr_wire_readdir_args), &a))
				break;
	}
	CHECK(WITHIN(PATIENCE_S, refused("limit") > before));
	CHECK(SANITIZED || server_status(fs, 0).anon_bytes < anon + (100 << 20));
	honest_client_gets_on();
	for (size_t k = 0; k < ARRAY_LEN(r); k++)
		raw_close(&r[k]);
}

static void ten_thousand_open_files_are_nothing_special(void)
{
	struct sheaf *mine = client_connect(c.conf);
	static struct sheaf_file *f[10000];
	uint8_t b[4];

	make_file(mine, "/often", 100, 3);
	for (size_t i = 0; i < ARRAY_LEN(f); i++)
		f[i] = open_file(mine, "/often", O_RDONLY);
	CHECK_EQ(sheaf_pread(f[9999], b, 4, 96), 4);
	honest_client_gets_on();
	for (size_t i = 0; i < ARRAY_LEN(f); i++)
		CHECK_EQ(sheaf_close(f[i]), 0);
	sheaf_disconnect(mine);
}

static void a_thousand_sessions_leave_room_for_others(void)
{
	static struct raw r;

	for (int i = 0; i < 1000; i++) { /* each session lasts until its lease ends */
		raw_up_session(&r, &c, 0);
		raw_close(&r);
	}
	honest_client_gets_on();
}

/* ---- a newer cluster file ---- */

static void keys_come_and_go_without_a_restart(void)
{
	static struct raw r, old;
	char key[CLUSTER_PATH], err[256];
	uint64_t before = refused("revoked");

	raw_open_with(&old, &c, 0, "alice");
	CHECK_EQ(raw_greet(&old, 0), 0);
	snprintf(key, sizeof(key), "%s/dora.key", c.dir);
	CHECK_EQ(key_create(key, err, sizeof(err)), 0);
	edit_file(c.conf, "[key.alice]", "[key.dora]\nrole = any\n[key.nurse]");
	/* a key file is missing: the old configuration stays */
	CHECK_EQ(kill(c.pid[0], SIGHUP), 0);
	CHECK(WITHIN(PATIENCE_S, server_logged(&c, 0, "keys and networks stay as they were")));
	CHECK(!closed_now(&old));
	edit_file(c.conf, "[key.nurse]", "[key.nurse]\nfile = alice.key");
	CHECK_EQ(kill(c.pid[0], SIGHUP), 0);
	CHECK(raw_closed(old.fd)); /* the key alice was removed */
	CHECK_EQ(refused("revoked") - before, 1);
	raw_close(&old);
	raw_open_with(&r, &c, 0, "dora");
	CHECK_EQ(raw_greet(&r, 0), 0);
	raw_close(&r);
	raw_open(&r, &c, 0);
	r.key_name = "alice";
	CHECK_EQ(raw_greet(&r, 0), EKEYREJECTED);
	raw_close(&r);
	honest_client_gets_on();
}

static void root_is_squashed_where_the_file_says_so(void)
{
	static struct raw r;
	struct wire_made_res res;

	raw_up_session(&r, &c, 0);
	CHECK_EQ(mkdir_status(&r, "by-root", 1, &res), 0);
	CHECK(res.at.uid == 0 && res.at.gid == 0); /* this host is trusted */
	edit_file(c.conf, "[server.0]", "squash = 127.0.0.0/8\n[server.0]");
	CHECK_EQ(kill(c.pid[0], SIGHUP), 0);
	for (uint32_t seq = 2; res.at.uid == 0 && seq < 6000; seq++) {
		char name[32];

		pause_ms(10);
		snprintf(name, sizeof(name), "by-root%u", seq);
		CHECK_EQ(mkdir_status(&r, name, seq, &res), 0);
	}
	CHECK(res.at.uid == NOBODY && res.at.gid == NOBODY);
	raw_close(&r);
	edit_file(c.conf, "squash = 127.0.0.0/8\n", ""); /* for the next start */
}

static void a_key_open_to_others_stops_a_start(void)
{
	char key[CLUSTER_PATH];

	server_down(&c, 0);
	snprintf(key, sizeof(key), "%s/dora.key", c.dir);
	CHECK_EQ(chmod(key, 0644), 0);
	CHECK_EQ(server_up(&c, 0), 1); /* the log says: chmod 600 .../dora.key */
	CHECK_EQ(chmod(key, 0600), 0);
	CHECK_EQ(server_up(&c, 0), 0);
	honest_client_gets_on();
}

static void begin(void)
{
	struct cluster_opts o = {
		.servers = 1, .timeout = TIMEOUT_S, .lease = 20, .more = "pool = 16M\n"
	};
	static const char *const names[] = { "alice", "host" };
	char key[CLUSTER_PATH], err[256], old[64], new[64], *text, *all;

	unsetenv("SHEAF_KEY");
	cluster_create(&c, &o);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(key, sizeof(key), "%s/%s.key", c.dir, names[i]);
		CHECK_EQ(key_create(key, err, sizeof(err)), 0);
	}
	text = read_text(c.conf);
	all = calloc(1, 70000);
	CHECK(all);
	snprintf(all, 70000, "%s\n[key.alice]\nrole = uid %d gid %d\n[key.host]\nrole = any\n",
		 text, ALICE, ALICE);
	write_text(c.conf, all);
	free(text);
	free(all);
	metrics_port = free_ports(1);
	snprintf(old, sizeof(old), "metrics = 127.0.0.1:%u", c.port + METRICS_OFFSET);
	snprintf(new, sizeof(new), "metrics = 127.0.0.1:%u", metrics_port);
	edit_file(c.conf, old, new);
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(a_users_key_speaks_for_that_user_only),
	 TEST(a_program_picks_its_key_by_name), TEST(wrong_keys_are_refused),
	 TEST(failed_handshakes_are_counted), TEST(anothers_session_stays_closed),
	 TEST(capabilities_are_refused_one_by_one), TEST(what_is_for_servers_is_not_for_clients),
	 TEST(a_client_that_owes_data_is_cut_off_and_starves_no_other),
	 TEST(unread_answers_are_bounded_in_bytes),
	 TEST(ten_thousand_open_files_are_nothing_special),
	 TEST(a_thousand_sessions_leave_room_for_others), TEST(keys_come_and_go_without_a_restart),
	 TEST(root_is_squashed_where_the_file_says_so), TEST(a_key_open_to_others_stops_a_start))
