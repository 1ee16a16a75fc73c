/* kill -9 of a client in mid-transfer: what it held is free at once, its session goes with its lease, its
 * file's size is settled, and others go on. */
#include "cluster.h"

#define BIG (64 << 20)

static struct cluster c;
static struct sheaf *fs;

/* ---- children ---- */

/* Every other 16 bytes, again and again. */
static void write_pieces(struct sheaf_file *f, const uint8_t *b)
{
	struct sheaf_type *piece, *all, *flat;

	CHECK_EQ(sheaf_type_bytes(16, &piece), 0);
	CHECK_EQ(sheaf_type_vector(BIG / 16, 1, 32, piece, &all), 0);
	CHECK_EQ(sheaf_type_bytes(BIG, &flat), 0);
	CHECK_EQ(sheaf_pwrite(f, b, 1, 0), 1);
	CHECK_EQ(sheaf_fsync(f), 0); /* it is seen */
	while (sheaf_write_typed(f, b, flat, 1, 0, all) == BIG)
		;
}

static int child(const char *name, char **arg)
{
	struct sheaf *mine = client(arg[0]);
	struct sheaf_file *f = open_file(mine, arg[1], O_CREAT | O_RDWR);
	uint8_t *b = malloc(BIG);

	CHECK(b);
	memset(b, 0x5a, BIG);
	if (strcmp(name, "once") == 0) { /* a few bytes without a report, then silence */
		CHECK_EQ(sheaf_pwrite(f, b, 300001, 0), 300001);
		pause_ms(60000);
	}
	if (strcmp(name, "typed") == 0)
		write_pieces(f, b);
	for (ssize_t r = 0; r >= 0;)
		r = strcmp(name, "write") == 0 ? sheaf_pwrite(f, b, BIG, 0) :
						 sheaf_pread(f, b, BIG, 0);
	return 1;
}

/* ---- what a server holds ---- */

static uint64_t pool_held(void)
{
	uint64_t held = 0;

	for (int i = 0; i < c.n; i++) {
		struct sheaf_server s = server_status(fs, i);

		held += s.pool_bytes - s.pool_free;
	}
	return held;
}

static uint32_t sessions(void)
{
	uint32_t n = 0;

	for (int i = 0; i < c.n; i++)
		n += server_status(fs, i).sessions;
	return n;
}

static uint32_t links(void)
{
	uint32_t n = 0;

	for (int i = 0; i < c.n; i++)
		n += server_status(fs, i).links;
	return n;
}

/* Our own question is the only thing in service. */
static bool quiet(void)
{
	for (int i = 0; i < c.n; i++)
		if (server_status(fs, i).in_service > 1)
			return false;
	return true;
}

/* Were its buffers and links given back while its session was still there, not with the lease? */
static bool kill_and_look(const char *what, const char *path)
{
	uint32_t sessions_before = sessions(), links_before = links();
	pid_t pid = child_start(what, c.conf, path, NULL);
	struct stat st;
	bool early;

	/* it is past its open, and in the middle of it; cached data leave without buffers */
	CHECK(WITHIN(PATIENCE_S, sheaf_stat(fs, path, &st) == 0 && st.st_size > 0));
	CHECK(WITHIN(PATIENCE_S, pool_held() > 0 || !quiet()));
	pause_ms(100);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(reap(pid), 256 + SIGKILL);
	CHECK(WITHIN(PATIENCE_S, pool_held() == 0 && quiet() && links() <= links_before));
	early = sessions() > sessions_before;
	CHECK(WITHIN(PATIENCE_S, sessions() <= sessions_before)); /* with the lease */
	return early;
}

/* A busy machine may let the lease pass before this process looks: then once more. */
static void kill_in_mid_transfer(const char *what, const char *path)
{
	int tries = 0;

	while (!kill_and_look(what, path))
		CHECK(++tries < 5);
}

static void a_killed_reader_leaves_nothing(void)
{
	struct sheaf_file *f = open_file(fs, "/read", O_CREAT | O_RDWR);
	uint8_t *b = calloc(1, BIG);

	CHECK(b);
	CHECK_EQ(sheaf_pwrite(f, b, BIG, 0), BIG);
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
	kill_in_mid_transfer("read", "/read");
	CHECK_EQ(sheaf_unlink(fs, "/read"), 0);
}

/* Everybody sees the same size, and it does not change any more. */
static off_t settled_size(const char *path)
{
	struct sheaf *other = client(c.conf);
	struct stat a, b;

	CHECK_EQ(sheaf_stat(fs, path, &a), 0);
	pause_ms(300);
	CHECK_EQ(sheaf_stat(other, path, &b), 0);
	CHECK_EQ(a.st_size, b.st_size);
	CHECK(a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec);
	sheaf_disconnect(other);
	return a.st_size;
}

/* A settled file needs one question, an unsettled one asks its objects too. */
static uint64_t questions(const char *path)
{
	uint64_t before = 0, after = 0;
	struct stat st;

	for (int i = 0; i < c.n; i++)
		before += server_status(fs, i).requests;
	CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	for (int i = 0; i < c.n; i++)
		after += server_status(fs, i).requests;
	return after - before - (uint64_t)c.n;
}

static void a_killed_writer_leaves_a_settled_file(void)
{
	struct sheaf_file *f;
	uint8_t b[1000];
	struct stat st;
	off_t size;

	kill_in_mid_transfer("write", "/written");
	CHECK(WITHIN(PATIENCE_S, questions("/written") <= 2)); /* settled in the background */
	size = settled_size("/written");
	CHECK(size > 0 && size <= BIG);
	f = open_file(fs, "/written", O_RDWR);
	CHECK_EQ(sheaf_pread(f, b, 1, size - 1), 1);
	CHECK_EQ(b[0], 0x5a);
	CHECK_EQ(sheaf_pread(f, b, 1, size), 0);
	CHECK_EQ(sheaf_ftruncate(f, 500), 0);
	CHECK_EQ(sheaf_pwrite(f, "new", 3, 700), 3);
	CHECK_EQ(sheaf_pread(f, b, sizeof(b), 0), 703);
	CHECK(b[499] != 1 && b[500] == 0 && memcmp(b + 700, "new", 3) == 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_stat(fs, "/written", &st), 0);
	CHECK_EQ(st.st_size, 703);
	CHECK_EQ(sheaf_unlink(fs, "/written"), 0);
}

/* A pattern of small pieces, which the servers sieve. Each piece is there or not, and what lies between is as it was. */
static void a_killed_writer_of_pieces_leaves_whole_pieces(void)
{
	static uint8_t got[1 << 20];
	struct sheaf_file *f;
	ssize_t n;

	kill_in_mid_transfer("typed", "/pieces");
	f = open_file(fs, "/pieces", O_RDWR);
	n = sheaf_pread(f, got, sizeof(got), 0);
	CHECK(n > 0);
	for (ssize_t i = 0; i < n; i++)
		CHECK(got[i] == 0 || (got[i] == 0x5a && i % 32 < 16));
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_unlink(fs, "/pieces"), 0);
}

/* What was acknowledged before the death counts, although nobody reported it. */
static void an_unreported_size_is_found(void)
{
	const char *p = "/silent";
	struct stat st = { 0 };
	pid_t pid = child_start("once", c.conf, p, NULL);

	CHECK(WITHIN(PATIENCE_S, sheaf_stat(fs, p, &st) == 0 && st.st_size == 300001));
	CHECK(questions(p) > 2); /* a writer is about */
	CHECK_EQ(kill(pid, SIGKILL), 0);
	reap(pid);
	CHECK_EQ(sheaf_stat(fs, p, &st), 0);
	CHECK_EQ(st.st_size, 300001);
	CHECK(WITHIN(PATIENCE_S, questions(p) <= 2));
	CHECK_EQ(settled_size(p), 300001);
}

static void a_file_unlinked_under_a_killed_writer_goes(void)
{
	const char *p = "/doomed";
	struct stat st = { 0 };
	struct sheaf_handle h;
	pid_t pid = child_start("once", c.conf, p, NULL);

	CHECK(WITHIN(PATIENCE_S, sheaf_stat(fs, p, &st) == 0 && st.st_size == 300001));
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), "doomed", &h, &st), 0);
	CHECK_EQ(sheaf_unlink(fs, p), 0);
	CHECK_EQ(sheaf_h_getattr(fs, NULL, h, &st), 0); /* still open */
	CHECK_EQ(kill(pid, SIGKILL), 0);
	reap(pid);
	CHECK(WITHIN(PATIENCE_S, sheaf_h_getattr(fs, NULL, h, &st) == -ESTALE));
}

/* A client that only stopped for longer than its lease comes back to an error, not to silent loss. */
static void a_client_that_sleeps_through_its_lease_leaves_room(void)
{
	const char *p = "/asleep";
	struct stat st = { 0 };
	pid_t pid = child_start("once", c.conf, p, NULL);

	CHECK(WITHIN(PATIENCE_S, sheaf_stat(fs, p, &st) == 0 && st.st_size == 300001));
	CHECK_EQ(kill(pid, SIGSTOP), 0);
	CHECK(WITHIN(PATIENCE_S, questions(p) <= 2)); /* the lease is over: settled without it */
	CHECK_EQ(sheaf_truncate(fs, p, 10), 0);
	CHECK_EQ(kill(pid, SIGCONT), 0);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	reap(pid);
	CHECK_EQ(sheaf_stat(fs, p, &st), 0);
	CHECK_EQ(st.st_size, 10);
}

static void begin(void)
{
	cluster_make(&c, NULL);
	cluster_up(&c);
	fs = client(c.conf);
	make_file(fs, "/warm", 1000, 1);
	CHECK_EQ(sheaf_truncate(fs, "/warm", 10),
		 0); /* the servers have sessions with each other, too */
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_down(&c);
}

SYS_MAIN(child, begin, end, TEST(a_killed_reader_leaves_nothing),
	 TEST(a_killed_writer_leaves_a_settled_file),
	 TEST(a_killed_writer_of_pieces_leaves_whole_pieces), TEST(an_unreported_size_is_found),
	 TEST(a_file_unlinked_under_a_killed_writer_goes),
	 TEST(a_client_that_sleeps_through_its_lease_leaves_room))
