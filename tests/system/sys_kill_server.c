/* kill -9 and restart of servers: synced data and metadata are intact, lost data are never silent,
 * clients continue by themselves; a clean restart is invisible; calls to a dead server fail after
 * the timeout. */
#include <pthread.h>

#include "names_model.h"

#define BYTES 1500001

static struct cluster c;
static struct sheaf *fs;
static uint8_t data[BYTES], back[BYTES];

static void kill_all(void)
{
	for (int i = 0; i < c.n; i++)
		server_kill(&c, i);
	cluster_start(&c);
}

static void write_data(struct sheaf_file *f, uint64_t seed)
{
	fill_pattern(data, BYTES, seed, 0);
	CHECK_EQ(sheaf_pwrite(f, data, BYTES, 0), BYTES);
}

static void check_data(struct sheaf_file *f)
{
	memset(back, 0, BYTES);
	CHECK_EQ(sheaf_pread(f, back, BYTES, 0), BYTES);
	CHECK(memcmp(data, back, BYTES) == 0);
}

static void synced_data_survive_a_kill(void)
{
	struct sheaf_file *f = open_file(fs, "/synced", O_CREAT | O_RDWR);
	struct stat st;

	write_data(f, 1);
	CHECK_EQ(sheaf_fsync(f), 0);
	kill_all();
	check_data(f); /* through the file that was open before */
	CHECK_EQ(sheaf_fstat(f, &st), 0);
	CHECK_EQ(st.st_size, BYTES);
	CHECK_EQ(sheaf_fsync(f), 0); /* no writes since the last fsync */
	CHECK_EQ(sheaf_pwrite(f, "more", 4, BYTES), 4);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_stat(fs, "/synced", &st), 0);
	CHECK_EQ(st.st_size, BYTES + 4);
}

static void fsync_tells_once_of_data_that_a_kill_may_have_lost(void)
{
	struct sheaf_file *f = open_file(fs, "/unsynced", O_CREAT | O_RDWR);

	write_data(f, 2);
	kill_all();
	CHECK_EQ(sheaf_fsync(f), -EIO);
	CHECK_EQ(sheaf_fsync(f), 0);
	write_data(f, 3);
	CHECK_EQ(sheaf_fsync(f), 0);
	check_data(f);
	CHECK_EQ(sheaf_close(f), 0);
}

static void close_tells_of_data_that_a_kill_may_have_lost(void)
{
	struct sheaf_file *f = open_file(fs, "/unclosed", O_CREAT | O_RDWR);

	write_data(f, 4);
	kill_all();
	CHECK_EQ(sheaf_close(f), -EIO);
	f = open_file(fs, "/unclosed", O_RDWR);
	write_data(f, 5);
	CHECK_EQ(sheaf_close(f), 0);
}

/* Also when the loss lies between two writes, and the later write reached the new server. */
static void a_later_write_does_not_hide_the_loss(void)
{
	struct sheaf_file *f = open_file(fs, "/hidden", O_CREAT | O_RDWR);

	write_data(f, 6);
	kill_all();
	write_data(f, 7);
	CHECK_EQ(sheaf_fsync(f), -EIO);
	write_data(f, 8);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

static void a_clean_restart_is_invisible(void)
{
	struct sheaf_file *f = open_file(fs, "/planned", O_CREAT | O_RDWR);
	struct sheaf_file *gone = open_file(fs, "/unlinked", O_CREAT | O_RDWR);
	struct stat st;

	write_data(f, 9);
	CHECK_EQ(sheaf_pwrite(gone, "here", 4, 0), 4);
	CHECK_EQ(sheaf_unlink(fs, "/unlinked"), 0);
	cluster_stop(&c);
	cluster_start(&c);
	CHECK_EQ(sheaf_fsync(f), 0);
	check_data(f);
	write_data(f, 10);
	cluster_stop(&c);
	cluster_start(&c);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_stat(fs, "/planned", &st), 0);
	CHECK_EQ(st.st_size, BYTES);
	/* open files without a name also survive a restart */
	CHECK_EQ(sheaf_pread(gone, back, 10, 0), 4);
	CHECK(memcmp(back, "here", 4) == 0);
	CHECK_EQ(sheaf_close(gone), 0);
}

/* ---- metadata ---- */

static void metadata_survive_exactly(void)
{
	const int n = 200;
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	struct stat st, was[200];
	char path[64];
	int k = 0;

	CHECK_EQ(sheaf_mkdir(fs, "/meta", 0750), 0);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/meta/f%d", i);
		make_file(fs, path, (size_t)i * 3, 1);
		CHECK_EQ(sheaf_chmod(fs, path, (mode_t)(0400 + i)), 0);
		if (i % 3 == 0)
			CHECK_EQ(sheaf_unlink(fs, path), 0);
		else
			CHECK_EQ(sheaf_stat(fs, path, &was[i]), 0);
	}
	kill_all();
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/meta/f%d", i);
		if (i % 3 == 0) {
			CHECK_EQ(sheaf_stat(fs, path, &st), -ENOENT);
			continue;
		}
		CHECK_EQ(sheaf_stat(fs, path, &st), 0);
		CHECK(memcmp(&st, &was[i], sizeof(st)) == 0);
	}
	CHECK_EQ(sheaf_opendir(fs, "/meta", &d), 0);
	while (sheaf_readdir(d, &e) == 1)
		k++;
	sheaf_closedir(d);
	CHECK_EQ(k, n - (n + 2) / 3);
}

/* ---- clients continue ---- */

static struct {
	bool stop;
	int rounds;
} mover;

static void *keep_moving(void *arg)
{
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, "/moving", O_CREAT | O_RDWR);
	uint8_t *b = malloc(BYTES), *r = malloc(BYTES);

	(void)arg;
	CHECK(b && r);
	while (!__atomic_load_n(&mover.stop, __ATOMIC_SEQ_CST)) {
		size_t n = mover.rounds % 2 ? BYTES : 5000;

		fill_pattern(b, n, (uint64_t)mover.rounds, 0);
		CHECK_EQ(sheaf_pwrite(f, b, n, 0), (ssize_t)n);
		CHECK_EQ(sheaf_pread(f, r, n, 0), (ssize_t)n);
		CHECK(memcmp(b, r, n) == 0);
		__atomic_add_fetch(&mover.rounds, 1, __ATOMIC_SEQ_CST);
	}
	CHECK_EQ(sheaf_fsync(f) == 0 || true, 1); /* may be -EIO: servers were killed */
	sheaf_close(f);
	sheaf_disconnect(mine);
	free(b);
	free(r);
	return NULL;
}

static int moved(void)
{
	return __atomic_load_n(&mover.rounds, __ATOMIC_SEQ_CST);
}

static void reads_and_writes_go_on_over_kills(void)
{
	pthread_t t;
	int before;

	CHECK_EQ(pthread_create(&t, NULL, keep_moving, NULL), 0);
	for (int i = 0; i < 6; i++) {
		before = moved();
		CHECK(WITHIN(PATIENCE_S, moved() >= before + 4));
		server_kill(&c, i % c.n);
		pause_ms(50 * i);
		CHECK_EQ(server_up(&c, i % c.n), 0);
	}
	before = moved();
	CHECK(WITHIN(PATIENCE_S, moved() >= before + 4));
	__atomic_store_n(&mover.stop, true, __ATOMIC_SEQ_CST);
	pthread_join(t, NULL);
}

/* ---- names: each client's model holds exactly ---- */

static int child(const char *name, char **arg)
{
	struct sheaf *mine = client_connect(arg[0]);
	struct names m = { .fs = mine, .rnd = (uint64_t)atoi(arg[1]) };
	double end = now_s() + atof(arg[2]);
	int n = 0;

	snprintf(m.dir, sizeof(m.dir), "/%s", name);
	CHECK_EQ(sheaf_mkdir(mine, m.dir, 0755), 0);
	for (; now_s() < end; n++)
		names_change(&m);
	names_verify(&m);
	printf("  %s: %d changes\n", name, n);
	sheaf_disconnect(mine);
	return 0;
}

static void every_change_happens_once_over_ten_kills(void)
{
	uint64_t rnd = (uint64_t)getpid();
	pid_t a = child_start("load-a", c.conf, "11", SANITIZED ? "14" : "9", NULL);
	pid_t b = child_start("load-b", c.conf, "22", SANITIZED ? "14" : "9", NULL);

	for (int i = 0; i < 10; i++) {
		pause_ms(200 + (int)(test_random(&rnd) % 400));
		server_kill(&c, i % 4 == 3); /* usually the one that has the names */
		CHECK_EQ(server_up(&c, i % 4 == 3), 0);
	}
	CHECK_EQ(process_wait(a), 0);
	CHECK_EQ(process_wait(b), 0);
}

/* ---- a server that stays dead ---- */

static void a_dead_server_is_an_error_after_the_timeout(void)
{
	enum { N = 8 };
	struct cluster small;
	struct sheaf *mine;
	struct sheaf_file *f[N];
	struct sheaf_op *op[N];
	struct sheaf_layout one = { .size = sizeof(one), .width = 1 };
	int failed = 0, fine = 0;
	char path[32];
	double t;

	cluster_create(&small, &(struct cluster_opts){ .timeout = 10, .lease = 20 });
	cluster_start(&small);
	mine = client_connect(small.conf);
	for (int i = 0; i < N; i++) {
		snprintf(path, sizeof(path), "/f%d", i);
		CHECK_EQ(sheaf_open(mine, path, O_CREAT | O_RDWR, 0644, &one, &f[i]), 0);
		CHECK_EQ(sheaf_pwrite(f[i], "x", 1, 0), 1);
		CHECK_EQ(sheaf_fsync(f[i]), 0);
	}
	server_kill(&small, 1);
	t = now_s();
	for (int i = 0; i < N; i++)
		CHECK_EQ(sheaf_pwrite_start(f[i], "y", 1, 0, &op[i]), 0);
	CHECK_EQ(sheaf_mknod(mine, "/alive", 0644, 0), 0); /* the other server still serves */
	CHECK(now_s() - t < 8);
	for (int i = 0; i < N; i++) {
		ssize_t r = sheaf_wait(op[i]);

		fine += r == 1;
		failed += r < 0;
		CHECK(r == 1 || r == -ETIMEDOUT || r == -ECONNREFUSED || r == -ECONNRESET);
	}
	t = now_s() - t;
	CHECK(fine > 0 && failed > 0);
	CHECK(t > 9 && t < 25); /* one timeout in all, not one for each file */
	cluster_start(&small);
	for (int i = 0; i < N; i++) {
		CHECK_EQ(sheaf_pwrite(f[i], "z", 1, 0), 1);
		CHECK_EQ(sheaf_close(f[i]), 0);
	}
	sheaf_disconnect(mine);
	cluster_stop(&small);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .timeout = 20 });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(synced_data_survive_a_kill),
	 TEST(fsync_tells_once_of_data_that_a_kill_may_have_lost),
	 TEST(close_tells_of_data_that_a_kill_may_have_lost),
	 TEST(a_later_write_does_not_hide_the_loss), TEST(a_clean_restart_is_invisible),
	 TEST(metadata_survive_exactly), TEST(reads_and_writes_go_on_over_kills),
	 TEST(every_change_happens_once_over_ten_kills),
	 TEST(a_dead_server_is_an_error_after_the_timeout))
