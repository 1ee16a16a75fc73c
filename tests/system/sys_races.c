/* Races: an idle client and its lease; a reader and a file that grows or is overwritten; an fsync
 * and concurrent writes; many opens that create and truncate one file; a truncate and a server that
 * is down; a failed write whose memory is reused. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "cluster.h"

static struct cluster c;
static struct sheaf *fs;

static void a_client_that_computes_for_two_leases_keeps_its_files(void)
{
	struct sheaf_file *f = open_file(fs, "/idle", O_CREAT | O_RDWR);
	char b[6] = "";

	CHECK_EQ(sheaf_pwrite(f, "hello", 5, 0), 5);
	pause_ms(7000); /* the lease is 3 s */
	CHECK_EQ(sheaf_pwrite(f, "again", 5, 5), 5);
	CHECK_EQ(sheaf_pread(f, b, 5, 0), 5);
	CHECK(memcmp(b, "hello", 5) == 0);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

#define BLOCK 4096
#define BLOCKS (SANITIZED ? 400 : 3000)
static atomic_bool grown;

static void *grow(void *arg)
{
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, "/grows", O_WRONLY);
	char b[BLOCK];

	(void)arg;
	memset(b, 'A', sizeof(b));
	for (int i = 0; i < BLOCKS; i++)
		CHECK_EQ(sheaf_pwrite(f, b, BLOCK, (off_t)i * BLOCK), BLOCK);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(mine);
	atomic_store(&grown, true);
	return NULL;
}

/* A reader of a file that is written in order, from the beginning, gets only written bytes. */
static void a_reader_of_a_growing_file_sees_no_zeros(void)
{
	struct sheaf_file *f = open_file(fs, "/grows", O_CREAT | O_RDONLY);
	static char b[16 * BLOCK];
	pthread_t t;
	off_t at = 0;

	CHECK_EQ(pthread_create(&t, NULL, grow, NULL), 0);
	while (at < (off_t)BLOCKS * BLOCK) {
		ssize_t n = sheaf_pread(f, b, sizeof(b), at);

		CHECK(n >= 0);
		for (ssize_t i = 0; i < n; i++)
			CHECK_EQ(b[i], 'A');
		at += n;
		CHECK(n || !atomic_load(&grown) || at == (off_t)BLOCKS * BLOCK ||
		      sheaf_pread(f, b, 1, at) == 1);
	}
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

#define FLAT (3 * 1024 * 1024 + 77)
#define COATS (SANITIZED ? 20 : 250)
static atomic_int coat_begun, coat_done;

/* Overwrites the whole file in a loop; each pass writes its own number into every byte. */
static void *paint(void *arg)
{
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, "/painted", O_WRONLY);
	char *b = malloc(FLAT);

	(void)arg;
	CHECK(b);
	for (int i = 1; i <= COATS; i++) {
		memset(b, i, FLAT);
		atomic_store(&coat_begun, i);
		CHECK_EQ(sheaf_pwrite(f, b, FLAT, 0), FLAT);
		atomic_store(&coat_done, i);
	}
	free(b);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(mine);
	return NULL;
}

/* Each byte that a reader gets was in the file during the read, also when the server sends it from
 * the page cache. */
static void a_reader_beside_a_writer_gets_nothing_older_nor_newer(void)
{
	static const size_t lens[] = { FLAT, 1, 100000, 4096, 300000 };
	struct sheaf_file *f = open_file(fs, "/painted", O_CREAT | O_RDWR);
	uint8_t *b = calloc(1, FLAT);
	pthread_t t;

	CHECK(b);
	CHECK_EQ(sheaf_pwrite(f, b, FLAT, 0), FLAT);
	CHECK_EQ(pthread_create(&t, NULL, paint, NULL), 0);
	for (size_t i = 0; atomic_load(&coat_done) < COATS; i++) {
		int least = atomic_load(&coat_done), most;
		size_t n = lens[i % 5];

		CHECK_EQ(sheaf_pread(f, b, n, (off_t)(FLAT - n)), (ssize_t)n);
		most = atomic_load(&coat_begun);
		for (size_t k = 0; k < n; k++)
			if (b[k] < least || b[k] > most)
				CHECK_EQ(b[k], least);
	}
	CHECK_EQ(pthread_join(t, NULL), 0);
	free(b);
	CHECK_EQ(sheaf_close(f), 0);
}

#define STOPPED_READ (1024 * 1024)

/* CONF: requests data, is stopped, and then checks what it received. */
static int child(const char *name, char **arg)
{
	struct sheaf *mine = client_connect(arg[0]);
	struct sheaf_file *f = open_file(mine, "/stopped", O_RDONLY);
	char *b = malloc(STOPPED_READ);
	struct sheaf_op *op;

	(void)name;
	CHECK(b);
	CHECK_EQ(sheaf_pread_start(f, b, STOPPED_READ, 0, &op), 0);
	raise(SIGSTOP);
	CHECK_EQ(sheaf_wait(op), STOPPED_READ);
	for (size_t i = 0; i < STOPPED_READ; i++)
		CHECK_EQ(b[i], 'B');
	free(b);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(mine);
	return 0;
}

/* Its locks may have passed to another client meanwhile, so data received before the stop are
 * invalid. */
static void a_client_stopped_for_half_a_lease_reads_again(void)
{
	struct sheaf_file *f = open_file(fs, "/stopped", O_CREAT | O_RDWR);
	char *b = malloc(STOPPED_READ);
	pid_t pid;

	CHECK(b);
	memset(b, 'A', STOPPED_READ);
	CHECK_EQ(sheaf_pwrite(f, b, STOPPED_READ, 0), STOPPED_READ);
	pid = child_start("reader", c.conf, NULL);
	process_await_stop(pid);
	pause_ms(300); /* the data reach the client's socket */
	memset(b, 'B', STOPPED_READ);
	CHECK_EQ(sheaf_ftruncate(f, 0), 0);
	CHECK_EQ(sheaf_pwrite(f, b, STOPPED_READ, 0), STOPPED_READ);
	pause_ms(2000); /* the lease is 3 s */
	CHECK_EQ(kill(pid, SIGCONT), 0);
	CHECK_EQ(process_wait(pid), 0);
	free(b);
	CHECK_EQ(sheaf_close(f), 0);
}

static atomic_bool synced;

static void *sync_it(void *arg)
{
	CHECK_EQ(sheaf_fsync(arg), 0);
	atomic_store(&synced, true);
	return NULL;
}

/* An fsync does not cover writes that are answered while it runs: their loss is reported later. */
static void an_fsync_does_not_vouch_for_writes_beside_it(void)
{
	struct sheaf_file *f = open_file(fs, "/beside", O_CREAT | O_RDWR);
	size_t n = 8 << 20;
	char *b = calloc(1, n);
	int beside = 0;
	pthread_t t;

	CHECK(b);
	for (int round = 0; round < 20 && !beside; round++) {
		atomic_store(&synced, false);
		CHECK_EQ(sheaf_pwrite(f, b, n, 0), (ssize_t)n);
		CHECK_EQ(pthread_create(&t, NULL, sync_it, f), 0);
		while (!atomic_load(&synced)) {
			CHECK_EQ(sheaf_pwrite(f, b, 100, 0), 100);
			beside += !atomic_load(&synced);
		}
		CHECK_EQ(pthread_join(t, NULL), 0);
	}
	if (beside) {
		for (int i = 0; i < c.n; i++)
			server_kill(&c, i);
		cluster_start(&c);
		CHECK_EQ(sheaf_fsync(f), -EIO);
	}
	free(b);
	sheaf_close(f);
}

#define FILES 20

static void *make_all(void *arg)
{
	struct sheaf *mine = client_connect(c.conf);
	char path[32], b[100];

	memset(b, 'x', sizeof(b));
	for (int i = 0; i < FILES; i++) {
		struct sheaf_file *f;

		snprintf(path, sizeof(path), "/made/%d", i);
		pthread_barrier_wait(arg);
		f = open_file(mine, path, O_CREAT | O_TRUNC | O_WRONLY);
		pthread_barrier_wait(arg); /* all truncates are complete */
		CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
		CHECK_EQ(sheaf_fsync(f), 0);
		CHECK_EQ(sheaf_close(f), 0);
	}
	sheaf_disconnect(mine);
	return NULL;
}

static void many_that_create_and_truncate_a_file_leave_nothing_behind(void)
{
	pthread_barrier_t barrier;
	pthread_t t[4];
	char path[32], b[100];

	CHECK_EQ(sheaf_mkdir(fs, "/made", 0755), 0);
	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, make_all, &barrier), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	cluster_stop(&c);
	cluster_start(&c); /* no truncate is executed again */
	for (int i = 0; i < FILES; i++) {
		struct sheaf_file *f;

		snprintf(path, sizeof(path), "/made/%d", i);
		f = open_file(fs, path, O_RDONLY);
		CHECK_EQ(sheaf_pread(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
		CHECK_EQ(b[0], 'x');
		CHECK_EQ(sheaf_close(f), 0);
	}
}

/* A truncate that waits for a server does not truncate data written after it. */
static void a_late_truncate_cuts_nothing_newer(void)
{
	struct sheaf_file *f = open_file(fs, "/late", O_CREAT | O_RDWR);
	size_t n = 512 << 10; /* on all servers */
	char *b = malloc(n), *r = malloc(n);

	CHECK(b && r);
	fill_pattern(b, n, 1, 0);
	CHECK_EQ(sheaf_pwrite(f, b, n, 0), (ssize_t)n);
	CHECK_EQ(sheaf_fsync(f), 0);
	server_kill(&c, 1);
	CHECK(sheaf_ftruncate(f, 0) < 0); /* its intent is committed */
	/* no server accepts a write before the truncate is complete */
	for (off_t at = 0; at < 3 << 16; at += 1 << 16)
		CHECK(sheaf_pwrite(f, b, 100, at) < 0);
	CHECK_EQ(server_up(&c, 1), 0);
	fill_pattern(b, n, 2, 0);
	CHECK(WITHIN(PATIENCE_S, sheaf_pwrite(f, b, n, 0) == (ssize_t)n));
	CHECK_EQ(sheaf_fsync(f), 0);
	pause_ms(3000); /* time for a late truncate that must not happen */
	CHECK_EQ(sheaf_pread(f, r, n, 0), (ssize_t)n);
	CHECK(memcmp(b, r, n) == 0);
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
	free(r);
}

#define GIVEN_UP (1024 * 1024)

/* The server is stopped when the request arrives, and continues when the caller has reused the
 * memory. */
static void what_memory_becomes_after_a_write_failed_is_not_written(void)
{
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, "/given-up", O_CREAT | O_RDWR), *g;
	char *b = malloc(GIVEN_UP);

	CHECK(b);
	memset(b, 'A', GIVEN_UP);
	CHECK_EQ(sheaf_pwrite(f, b, GIVEN_UP, 0), GIVEN_UP);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < c.n; i++)
			CHECK_EQ(kill(c.pid[i], SIGSTOP), 0);
		memset(b, 'B', GIVEN_UP);
		sheaf_set_timeout(mine, 300);
		CHECK(sheaf_pwrite(f, b, GIVEN_UP, 0) < 0);
		memset(b, 'Z', GIVEN_UP);
		for (int i = 0; i < c.n; i++)
			CHECK_EQ(kill(c.pid[i], SIGCONT), 0);
		sheaf_set_timeout(mine, 10000);
		pause_ms(100);
		memset(b, 0, GIVEN_UP);
		g = open_file(fs, "/given-up", O_RDONLY);
		CHECK_EQ(sheaf_pread(g, b, GIVEN_UP, 0), GIVEN_UP);
		for (size_t i = 0; i < GIVEN_UP; i++)
			CHECK(b[i] == 'A' || b[i] == 'B');
		CHECK_EQ(sheaf_close(g), 0);
	}
	sheaf_close(f);
	sheaf_disconnect(mine);
	free(b);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 3, .timeout = 4 });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(a_client_that_computes_for_two_leases_keeps_its_files),
	 TEST(a_reader_of_a_growing_file_sees_no_zeros),
	 TEST(a_reader_beside_a_writer_gets_nothing_older_nor_newer),
	 TEST(a_client_stopped_for_half_a_lease_reads_again),
	 TEST(an_fsync_does_not_vouch_for_writes_beside_it),
	 TEST(many_that_create_and_truncate_a_file_leave_nothing_behind),
	 TEST(a_late_truncate_cuts_nothing_newer),
	 TEST(what_memory_becomes_after_a_write_failed_is_not_written))
