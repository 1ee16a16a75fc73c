/* Concurrency: threads on one connection, threads with their own connections, two clients on one
 * file. */
#include <pthread.h>

#include "cluster.h"

#define THREADS 8

static struct cluster c;
static struct sheaf *shared;

struct worker {
	pthread_t thread;
	struct sheaf *fs;
	int id;
};

/* Uses a file and names of its own, and lists across stripes; every result is checked. */
static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t seed = (uint64_t)w->id + 100;
	uint8_t *b = malloc(300000), *r = malloc(300000);
	char path[64], to[64];
	struct sheaf_file *f;
	struct stat st;

	CHECK(b && r);
	snprintf(path, sizeof(path), "/w%d", w->id);
	snprintf(to, sizeof(to), "/w%d-moved", w->id);
	f = open_file(w->fs, path, O_CREAT | O_EXCL | O_RDWR);
	for (int round = 0; round < 12; round++) {
		size_t n = 1000 + (size_t)round * 25000;
		struct iovec v[2] = { { b, n / 3 }, { b + n / 3, n - n / 3 } };
		struct sheaf_extent e = { (uint64_t)round * 777, n };

		fill_pattern(b, n, seed + (uint64_t)round, 0);
		CHECK_EQ(sheaf_write_list(f, v, 2, &e, 1), (ssize_t)n);
		CHECK_EQ(sheaf_pread(f, r, n, (off_t)e.offset), (ssize_t)n);
		CHECK(memcmp(b, r, n) == 0);
		CHECK_EQ(sheaf_rename(w->fs, path, to), 0);
		CHECK_EQ(sheaf_stat(w->fs, to, &st), 0);
		CHECK_EQ(st.st_size, (off_t)(e.offset + n));
		CHECK_EQ(sheaf_rename(w->fs, to, path), 0);
	}
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_unlink(w->fs, path), 0);
	free(b);
	free(r);
	return NULL;
}

static void *work_alone(void *arg)
{
	struct worker *w = arg;

	w->fs = client_connect(c.conf);
	work(w);
	sheaf_disconnect(w->fs);
	return NULL;
}

static void run(void *(*fn)(void *), struct sheaf *fs)
{
	struct worker w[THREADS];

	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .fs = fs, .id = i };
		CHECK_EQ(pthread_create(&w[i].thread, NULL, fn, &w[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
}

static void eight_threads_share_a_connection(void)
{
	run(work, shared);
}

static void eight_threads_have_connections_of_their_own(void)
{
	run(work_alone, NULL);
}

static void eight_threads_share_an_embedded_file_system(void)
{
	char dir[CLUSTER_PATH - 16], conf[CLUSTER_PATH];
	struct sheaf *fs;

	temp_dir(dir, sizeof(dir));
	snprintf(conf, sizeof(conf), "local:%s", dir);
	fs = client_connect(conf);
	run(work, fs);
	sheaf_disconnect(fs);
}

/* Data written by one client are read by the other at once, and are in the size. */
static void two_clients_see_each_other(void)
{
	struct sheaf *other = client_connect(c.conf);
	struct sheaf_file *a = open_file(shared, "/both", O_CREAT | O_RDWR);
	struct sheaf_file *b = open_file(other, "/both", O_RDWR);
	uint8_t out[5000], in[5000];
	struct stat st;

	for (int i = 0; i < 100; i++) {
		struct sheaf_file *from = i % 2 ? a : b, *to = i % 2 ? b : a;
		off_t off = (off_t)i * 4000;

		fill_pattern(out, sizeof(out), (uint64_t)i, 0);
		CHECK_EQ(sheaf_pwrite(from, out, sizeof(out), off), (ssize_t)sizeof(out));
		CHECK_EQ(sheaf_pread(to, in, sizeof(in), off), (ssize_t)sizeof(in));
		CHECK(memcmp(in, out, sizeof(in)) == 0);
		CHECK_EQ(sheaf_fstat(to, &st), 0);
		CHECK_EQ(st.st_size, off + (off_t)sizeof(out));
	}
	CHECK_EQ(sheaf_ftruncate(a, 100), 0); /* fences b's capability; b gets a new one */
	CHECK_EQ(sheaf_fstat(b, &st), 0);
	CHECK_EQ(st.st_size, 100);
	CHECK_EQ(sheaf_pwrite(b, "z", 1, 150), 1);
	CHECK_EQ(sheaf_pread(a, in, 200, 0), 151);
	CHECK(in[100] == 0 && in[149] == 0 && in[150] == 'z');
	CHECK_EQ(sheaf_close(b), 0);
	CHECK_EQ(sheaf_fstat(a, &st), 0);
	CHECK_EQ(st.st_size, 151);
	CHECK_EQ(sheaf_close(a), 0);
	CHECK_EQ(sheaf_stat(other, "/both", &st), 0);
	CHECK_EQ(st.st_size, 151);
	sheaf_disconnect(other);
}

struct extender {
	pthread_t thread;
	int id;
	off_t end;
};

static void *extend(void *arg)
{
	struct extender *x = arg;
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_file *f = open_file(fs, "/grown", O_WRONLY);
	uint8_t b[3000];

	for (int i = 0; i < 100; i++) { /* interleaved records */
		off_t off = ((off_t)i * 4 + x->id) * (off_t)sizeof(b);

		fill_pattern(b, sizeof(b), 50, (uint64_t)off);
		CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), off), (ssize_t)sizeof(b));
		x->end = off + (off_t)sizeof(b);
	}
	CHECK_EQ(x->id % 2 ? sheaf_fsync(f) : 0, 0);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	return NULL;
}

static void concurrent_extension_leaves_the_largest_size(void)
{
	struct extender x[4];
	struct stat st;
	off_t end = 0;

	CHECK_EQ(sheaf_close(open_file(shared, "/grown", O_CREAT | O_RDWR)), 0);
	for (int i = 0; i < 4; i++) {
		x[i].id = i;
		CHECK_EQ(pthread_create(&x[i].thread, NULL, extend, &x[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(x[i].thread, NULL);
		end = x[i].end > end ? x[i].end : end;
	}
	CHECK_EQ(sheaf_stat(shared, "/grown", &st), 0);
	CHECK_EQ(st.st_size, end);
	check_file(shared, "/grown", (size_t)end, 50);
}

static int winners;

static void *race(void *arg)
{
	struct worker *w = arg;
	struct sheaf_file *f;

	for (int i = 0; i < 20; i++) {
		char path[64];
		int r;

		snprintf(path, sizeof(path), "/race-%d", i);
		r = sheaf_open(w->fs, path, O_CREAT | O_EXCL | O_RDWR, 0644, NULL, &f);
		CHECK(r == 0 || r == -EEXIST);
		if (r)
			continue;
		__atomic_add_fetch(&winners, 1, __ATOMIC_SEQ_CST);
		CHECK_EQ(sheaf_close(f), 0);
	}
	return NULL;
}

static void one_of_many_wins_an_exclusive_create(void)
{
	run(race, shared);
	CHECK_EQ(winners, 20);
}

/* Starts, tests and waits for operations from several threads, with and without a thread that
 * drives. */
static void *flights(void *arg)
{
	struct worker *w = arg;
	struct sheaf_op *op[40];
	struct sheaf_file *f;
	static __thread uint8_t b[40][2000];
	char path[64];

	snprintf(path, sizeof(path), "/flight-%d", w->id);
	f = open_file(w->fs, path, O_CREAT | O_RDWR);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 40; i++) {
			fill_pattern(b[i], sizeof(b[i]), (uint64_t)round, (uint64_t)i * 2000);
			CHECK_EQ(sheaf_pwrite_start(f, b[i], 2000, i * 2000, &op[i]), 0);
		}
		if (w->id % 2)
			pause_ms(5); /* a program that computes meanwhile */
		for (int i = 0; i < 40; i++) {
			ssize_t r = 0;

			if (i % 2 == 0 || !sheaf_test(op[i], &r))
				r = sheaf_wait(op[i]);
			CHECK_EQ(r, 2000);
		}
		memset(b, 0, sizeof(b));
		CHECK_EQ(sheaf_pread(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
		CHECK(is_pattern(b, sizeof(b), (uint64_t)round, 0));
	}
	CHECK_EQ(sheaf_close(f), 0);
	return NULL;
}

static void threads_start_and_wait_on_one_connection(void)
{
	run(flights, shared);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 3 });
	cluster_start(&c);
	shared = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(shared);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(eight_threads_share_a_connection),
	 TEST(eight_threads_have_connections_of_their_own),
	 TEST(eight_threads_share_an_embedded_file_system), TEST(two_clients_see_each_other),
	 TEST(concurrent_extension_leaves_the_largest_size),
	 TEST(one_of_many_wins_an_exclusive_create), TEST(threads_start_and_wait_on_one_connection))
