/* Limits for one key of one user at a server: at its limit it gets an error, the log names the
 * limit, another user can open, lock and connect meanwhile, and the resources are freed when
 * sessions end. */
#include <pthread.h>
#include <sys/resource.h>

#include "raw_link.h"

#define ALICE 4242
#define BOB 4243
#define TIMEOUT_S 20
#define SOON_S 15 /* shorter than the timeout of clients that owe data */
#define LEASE_S 20
#define FILES 1024 /* the server's descriptors: half for links, 64 for a key */
#define KEY_LINKS (FILES / 2 / 8)
#define SESSION_OPENS (1 << 16)
#define KEY_OPENS (1 << 17)
#define SESSION_LOCKS 8192
#define BATCH 60 /* requests in flight */

static struct cluster c;
static struct sheaf *fs; /* reads the server's status */

/* Connects and opens a session: 0, or the error of the refusal. */
static int try_up(struct raw *r, const char *key, uint32_t uid)
{
	int e;

	raw_open_with(r, &c, 0, key);
	e = raw_greet(r, 0);
	r->uid = r->gid = NOBODY;
	e = e ? e : raw_session(r);
	r->uid = r->gid = uid;
	return e;
}

static void up(struct raw *r, const char *key, uint32_t uid)
{
	CHECK_EQ(try_up(r, key, uid), 0);
}

static void bye(struct raw *r)
{
	CHECK_EQ(raw_call(r, OP_BYE, SESSION_SLOTS - 1, 1u << 30, XDR_ANY(xdr_wire_void_args),
			  &(struct wire_void_args){ 0 }, NULL, NULL),
		 0);
	raw_close(r);
}

static struct wire_open_args open_args(const char *name, uint64_t id, uint32_t flags)
{
	struct sheaf_handle root = sheaf_root(fs);

	return (struct wire_open_args){ .where = { { root.ino, root.gen }, wire_text(name), false },
					.id = id,
					.flags = OPEN_READ | flags,
					.mode = 0600 };
}

static int open_status(struct raw *r, const char *name, uint32_t slot, uint32_t seq, uint64_t id,
		       struct wire_open_res *res)
{
	struct wire_open_args a = open_args(name, id, OPEN_WRITE | OPEN_CREATE);

	return raw_call(r, OP_OPEN, slot, seq, XDR_ANY(xdr_wire_open_args), &a,
			XDR_ANY(xdr_wire_open_res), res);
}

static struct wire_lock_args lock_args(const struct wire_open_res *f, uint64_t at)
{
	return (struct wire_lock_args){
		.h = { f->at.ino, f->at.gen },
		.open = 1,
		.want = { .owner = 1, .start = 2 * at, .last = 2 * at, .kind = LOCK_EXCLUSIVE }
	};
}

static int lock_status(struct raw *r, const struct wire_open_res *f, uint32_t seq, uint64_t at)
{
	struct wire_lock_args a = lock_args(f, at);

	return raw_call(r, OP_LOCK, 1, seq, XDR_ANY(xdr_wire_lock_args), &a, NULL, NULL);
}

/* Another user connects, opens a file and locks it. */
static void bob_gets_on(void)
{
	static struct raw r;
	struct wire_open_res f;
	double t = now_s();

	up(&r, "bob", BOB);
	CHECK_EQ(open_status(&r, "bobs", 0, 1, 1, &f), 0);
	CHECK_EQ(lock_status(&r, &f, 1, 7), 0);
	bye(&r);
	CHECK(now_s() - t < SOON_S);
}

/* A session whose lease keep_idle() renews. */
static struct raw *idle;

static void keep_idle(void)
{
	static uint32_t seq;

	if (idle)
		CHECK_EQ(raw_call(idle, OP_PING, 62, ++seq, XDR_ANY(xdr_wire_void_args),
				  &(struct wire_void_args){ 0 }, NULL, NULL),
			 0);
}

/* Opens a file n times, with ids from `id` on; returns how many opens succeeded, and the error of
 * the others. */
static uint32_t open_many(struct raw *r, uint64_t id, uint32_t n, int *error)
{
	uint32_t good = 0, done = 0;
	static uint32_t seq;

	for (; done < n; done += BATCH) {
		seq++;
		if (seq % 64 == 0)
			keep_idle();
		for (uint32_t i = 0; i < BATCH; i++) {
			struct wire_open_args a = open_args("alices", id++, 0);

			CHECK(raw_request(r, OP_OPEN, i, seq, XDR_ANY(xdr_wire_open_args), &a));
		}
		for (uint32_t i = 0; i < BATCH; i++) {
			int e = raw_reply(r, NULL, NULL);

			CHECK(e >= 0);
			good += e == 0;
			*error = e ? e : *error;
		}
	}
	return good;
}

static uint32_t opens_of_many(struct raw *r, uint32_t n, int *error)
{
	*error = 0;
	return open_many(r, 1000, n, error);
}

static void a_key_at_its_open_files_leaves_room_for_others(void)
{
	static struct raw r[4];
	struct wire_open_res f;
	uint32_t sum = 0;
	int error;

	up(&r[0], "alice", ALICE);
	CHECK_EQ(open_status(&r[0], "alices", 63, 1, 1, &f), 0);
	bye(&r[0]);
	for (int i = 0; i < 3; i++) {
		up(&r[i], "alice", ALICE);
		idle = i ? &r[0] : NULL; /* many opens may take longer than the lease */
		sum += opens_of_many(&r[i], i < 2 ? SESSION_OPENS + BATCH : BATCH, &error);
		CHECK_EQ(error, EMFILE);
		CHECK_EQ(sum, MIN((i + 1) * SESSION_OPENS, KEY_OPENS));
	}
	CHECK(server_logged(&c, 0, "open files: 65536 is the limit of one session"));
	CHECK(server_logged(&c, 0, "open files: 131072 is the limit of a key of one user"));
	bob_gets_on();
	idle = &r[1];
	bye(&r[0]); /* frees half of the limit */
	CHECK(WITHIN(PATIENCE_S, (keep_idle(), opens_of_many(&r[2], BATCH, &error) == BATCH)));
	CHECK_EQ(opens_of_many(&r[2], SESSION_OPENS + BATCH, &error), SESSION_OPENS);
	keep_idle();
	up(&r[3], "alice", ALICE);
	CHECK_EQ(opens_of_many(&r[3], BATCH, &error), 0);
	idle = NULL;
	raw_close(&r[1]); /* frees the other half when the lease ends */
	CHECK(WITHIN(PATIENCE_S, opens_of_many(&r[3], BATCH, &error) == BATCH));
	raw_close(&r[2]);
	bye(&r[3]);
}

static void a_session_at_its_locks_leaves_room_for_others(void)
{
	static struct raw r;
	struct wire_open_res f;
	uint32_t good = 0, seq = 0;

	up(&r, "alice", ALICE);
	CHECK_EQ(open_status(&r, "alices-locks", 63, 1, 1, &f), 0);
	for (seq = 1; good <= SESSION_LOCKS && lock_status(&r, &f, seq, seq) == 0; seq++)
		good++;
	CHECK_EQ(good, SESSION_LOCKS);
	CHECK_EQ(lock_status(&r, &f, seq + 1, seq), ENOLCK);
	CHECK(server_logged(&c, 0, "locks: 8192 is the limit of one session"));
	bob_gets_on();
	raw_close(&r);
}

static void a_key_at_its_connections_leaves_room_for_others(void)
{
	static struct raw r[KEY_LINKS + 8];
	int n = 0, e = 0;

	for (; n < KEY_LINKS + 7; n++)
		if ((e = try_up(&r[n], "alice", ALICE)))
			break;
	CHECK_EQ(e, EUSERS);
	CHECK(raw_closed(r[n].fd));
	CHECK(n > KEY_LINKS - 8 && n <= KEY_LINKS); /* earlier links may not be closed yet */
	CHECK(server_logged(&c, 0, "connections: 64 is the limit of a key of one user"));
	bob_gets_on();
	/* a client whose key is for any user is not refused, either */
	CHECK(server_status(fs, 0).links > 0);
	for (int i = 0; i <= n; i++)
		raw_close(&r[i]);
	CHECK(WITHIN(PATIENCE_S, (e = try_up(&r[0], "alice", ALICE), raw_close(&r[0]), e == 0)));
}

/* ---- memory of requests ---- */

#define HOGS 8
static struct raw hog[HOGS];

/* Announces data in every slot and never sends them; returns how many requests were refused. */
static int promise(struct raw *r, const char *name)
{
	struct wire_extent e = { 0, 64 << 20 };
	struct wire_write_args wr = { .n_list = 1,
				      .list = &e,
				      .mem = { .tag = 77, .length = 64 << 20 } };
	struct wire_open_res f;
	struct timeval soon = { .tv_usec = 500000 }, later = { .tv_sec = PATIENCE_S };
	int busy = 0, status;

	status = try_up(r, "alice", ALICE);
	if (!status)
		status = open_status(r, name, 0, 1, 1, &f);
	if (status) /* the session or the open was refused */
		return status == EBUSY ? BATCH : -1;
	wr.at.cap = f.cap;
	for (uint32_t i = 1; i <= BATCH; i++)
		CHECK(raw_request(r, OP_WRITE, i, 1, XDR_ANY(xdr_wire_write_args), &wr));
	setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	while ((status = raw_reply(r, NULL, NULL)) == EBUSY)
		busy++;
	CHECK_EQ(status, -1); /* the other requests wait */
	setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &later, sizeof(later));
	return busy;
}

static void *let_go_soon(void *arg)
{
	(void)arg;
	pause_ms(700);
	for (int i = 0; i < HOGS; i++)
		shutdown(hog[i].fd, SHUT_RDWR);
	return NULL;
}

/* A program with the same key waits until there is room, and gets no error. */
static void memory_of_requests_is_bounded_and_programs_wait_for_it(void)
{
	struct sheaf_cred me = { .uid = ALICE, .gid = ALICE };
	struct sheaf_handle h;
	struct sheaf *mine;
	struct stat st;
	pthread_t thread;
	int busy = 0, n = 0;
	char name[32];

	setenv("SHEAF_KEY", "alice", 1);
	mine = client_connect(c.conf);
	unsetenv("SHEAF_KEY");
	CHECK_EQ(sheaf_h_lookup(mine, &me, sheaf_root(mine), "alices", &h, &st), 0);
	for (; n < HOGS; n++) {
		int turned_away;

		snprintf(name, sizeof(name), "hog%d", n);
		turned_away = promise(&hog[n], name);
		CHECK(turned_away >= 0);
		busy += turned_away;
	}
	CHECK(busy > 0);
	CHECK(server_logged(
		&c, 0, "bytes of requests in service: 33554432 is the limit of a key of one user"));
	CHECK(SANITIZED || server_status(fs, 0).anon_bytes < (200u << 20));
	bob_gets_on();
	CHECK_EQ(pthread_create(&thread, NULL, let_go_soon, NULL), 0);
	for (int i = 0; i < 50; i++)
		CHECK_EQ(sheaf_h_lookup(mine, &me, sheaf_root(mine), "alices", &h, &st), 0);
	pthread_join(thread, NULL);
	for (int i = 0; i < n; i++)
		raw_close(&hog[i]);
	sheaf_disconnect(mine);
	CHECK(WITHIN(PATIENCE_S, server_status(fs, 0).in_service <= 1));
}

/* ---- replies that are not read ---- */

static void unread_answers_are_bounded_for_a_key(void)
{
	static struct raw r[24];
	struct timeval soon = { .tv_usec = 100000 };
	struct sheaf_handle root = sheaf_root(fs);
	struct wire_readdir_args a = { .dir = { root.ino, root.gen }, .max = 1024 };
	uint64_t anon = server_status(fs, 0).anon_bytes, before = server_status(fs, 0).refused;
	int small = 4096;
	char path[300];

	for (int i = 0; i < 200; i++) {
		snprintf(path, sizeof(path), "/%0220d", i);
		CHECK_EQ(sheaf_mkdir(fs, path, 0755), 0);
	}
	for (size_t k = 0; k < ARRAY_LEN(r); k++) {
		up(&r[k], "alice", ALICE);
		setsockopt(r[k].fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
		setsockopt(r[k].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		for (uint32_t i = 0; i < 1200; i++)
			if (!raw_request(&r[k], OP_READDIR, i % SESSION_SLOTS,
					 i / SESSION_SLOTS + 1, XDR_ANY(xdr_wire_readdir_args), &a))
				break;
	}
	CHECK(WITHIN(PATIENCE_S, server_status(fs, 0).refused > before));
	CHECK(SANITIZED || server_status(fs, 0).anon_bytes < anon + (48 << 20));
	bob_gets_on();
	for (size_t k = 0; k < ARRAY_LEN(r); k++)
		raw_close(&r[k]);
}

static void begin(void)
{
	struct cluster_opts o = {
		.servers = 1, .timeout = TIMEOUT_S, .lease = LEASE_S, .more = "pool = 16M\n"
	};
	static const char *const names[] = { "alice", "bob" };
	struct rlimit files = { FILES, FILES };
	char key[CLUSTER_PATH], err[256], *text, *all;

	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	unsetenv("SHEAF_KEY");
	cluster_create(&c, &o);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(key, sizeof(key), "%s/%s.key", c.dir, names[i]);
		CHECK_EQ(key_create(key, err, sizeof(err)), 0);
	}
	text = read_text(c.conf);
	all = calloc(1, 70000);
	CHECK(all);
	snprintf(all, 70000,
		 "%s\n[key.alice]\nrole = uid %d gid %d\n[key.bob]\nrole = uid %d gid %d\n", text,
		 ALICE, ALICE, BOB, BOB);
	write_text(c.conf, all);
	free(text);
	free(all);
	cluster_start(&c);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_chmod(fs, "/", 0777), 0);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(a_key_at_its_open_files_leaves_room_for_others),
	 TEST(a_session_at_its_locks_leaves_room_for_others),
	 TEST(a_key_at_its_connections_leaves_room_for_others),
	 TEST(memory_of_requests_is_bounded_and_programs_wait_for_it),
	 TEST(unread_answers_are_bounded_for_a_key))
