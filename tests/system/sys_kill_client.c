/* kill -9 of a client in the middle of a transfer: its buffers and links are freed at once, its
 * session ends with its lease, its file's size is settled, and other clients continue. */
#include "cluster.h"

#define BIG (64 << 20)

static struct cluster c;
static struct sheaf *fs;

/* ---- children ---- */

/* Writes every other 16 bytes, in an endless loop. */
static void write_pieces(struct sheaf_file *f, const uint8_t *b)
{
	struct sheaf_type *piece, *all, *flat;

	CHECK_EQ(sheaf_type_bytes(16, &piece), 0);
	CHECK_EQ(sheaf_type_vector(BIG / 16, 1, 32, piece, &all), 0);
	CHECK_EQ(sheaf_type_bytes(BIG, &flat), 0);
	CHECK_EQ(sheaf_pwrite(f, b, 1, 0), 1);
	CHECK_EQ(sheaf_fsync(f), 0); /* makes the file's size visible to others */
	while (sheaf_write_typed(f, b, flat, 1, 0, all) == BIG)
		;
}

static int child(const char *name, char **arg)
{
	struct sheaf *mine = client_connect(arg[0]);
	struct sheaf_file *f = open_file(mine, arg[1], O_CREAT | O_RDWR);
	uint8_t *b = malloc(BIG);

	CHECK(b);
	memset(b, 0x5a, BIG);
	/* writes some bytes without a report, then sleeps */
	if (strcmp(name, "once") == 0) {
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

/* ---- resources of a server ---- */

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

/* Is this status request the only one in service? */
static bool quiet(void)
{
	for (int i = 0; i < c.n; i++)
		if (server_status(fs, i).in_service > 1)
			return false;
	return true;
}

/* Were the client's buffers and links freed before its session ended? */
static bool kill_and_look(const char *what, const char *path)
{
	uint32_t sessions_before = sessions(), links_before = links();
	pid_t pid = child_start(what, c.conf, path, NULL);
	struct stat st;
	bool early;

	/* the client is in the middle of its transfer; cached data leave without buffers */
	CHECK(WITHIN(PATIENCE_S, sheaf_stat(fs, path, &st) == 0 && st.st_size > 0));
	CHECK(WITHIN(PATIENCE_S, pool_held() > 0 || !quiet()));
	pause_ms(100);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(process_wait(pid), 256 + SIGKILL);
	CHECK(WITHIN(PATIENCE_S, pool_held() == 0 && quiet() && links() <= links_before));
	early = sessions() > sessions_before;
	CHECK(WITHIN(PATIENCE_S, sessions() <= sessions_before)); /* when the lease ends */
	return early;
}

/* On a busy machine the lease may end before this process looks: try again. */
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

/* Two clients see the same size, and it does not change any more. */
static off_t settled_size(const char *path)
{
	struct sheaf *other = client_connect(c.conf);
	struct stat a, b;

	CHECK_EQ(sheaf_stat(fs, path, &a), 0);
	pause_ms(300);
	CHECK_EQ(sheaf_stat(other, path, &b), 0);
	CHECK_EQ(a.st_size, b.st_size);
	CHECK(a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec);
	sheaf_disconnect(other);
	return a.st_size;
}

/* The requests that a stat takes: one for a settled file; more for an unsettled one, whose objects
 * are asked, too. */
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

/* Servers sieve a pattern of small pieces. Each piece is written completely or not at all, and the
 * bytes between are unchanged. */
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

/* Acknowledged data count in the size, although the writer died before it reported the size. */
static void an_unreported_size_is_found(void)
{
	const char *p = "/silent";
	struct stat st = { 0 };
	pid_t pid = child_start("once", c.conf, p, NULL);

	CHECK(WITHIN(PATIENCE_S, sheaf_stat(fs, p, &st) == 0 && st.st_size == 300001));
	CHECK(questions(p) > 2); /* the file is unsettled while open for writing */
	CHECK_EQ(kill(pid, SIGKILL), 0);
	process_wait(pid);
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
	CHECK_EQ(sheaf_h_getattr(fs, NULL, h, &st), 0); /* the client still has the file open */
	CHECK_EQ(kill(pid, SIGKILL), 0);
	process_wait(pid);
	CHECK(WITHIN(PATIENCE_S, sheaf_h_getattr(fs, NULL, h, &st) == -ESTALE));
}

/* A client that was stopped for longer than its lease gets an error, so the loss is not silent. */
static void a_client_that_sleeps_through_its_lease_leaves_room(void)
{
	const char *p = "/asleep";
	struct stat st = { 0 };
	pid_t pid = child_start("once", c.conf, p, NULL);

	CHECK(WITHIN(PATIENCE_S, sheaf_stat(fs, p, &st) == 0 && st.st_size == 300001));
	CHECK_EQ(kill(pid, SIGSTOP), 0);
	/* the lease has ended: the size is settled without the client */
	CHECK(WITHIN(PATIENCE_S, questions(p) <= 2));
	CHECK_EQ(sheaf_truncate(fs, p, 10), 0);
	CHECK_EQ(kill(pid, SIGCONT), 0);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	process_wait(pid);
	CHECK_EQ(sheaf_stat(fs, p, &st), 0);
	CHECK_EQ(st.st_size, 10);
}

static void begin(void)
{
	cluster_create(&c, NULL);
	cluster_start(&c);
	fs = client_connect(c.conf);
	make_file(fs, "/warm", 1000, 1);
	/* opens the sessions between servers, so that they are in the counts */
	CHECK_EQ(sheaf_truncate(fs, "/warm", 10), 0);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(a_killed_reader_leaves_nothing),
	 TEST(a_killed_writer_leaves_a_settled_file),
	 TEST(a_killed_writer_of_pieces_leaves_whole_pieces), TEST(an_unreported_size_is_found),
	 TEST(a_file_unlinked_under_a_killed_writer_goes),
	 TEST(a_client_that_sleeps_through_its_lease_leaves_room))
