/* Connections are cut after any number of bytes: every change happens exactly once, every read and
 * write completes with the right bytes, and the caller notices only the delay. */
#include "names_model.h"
#include "proxy.h"

/* Makes one call of every kind; checks the results over a connection that is not cut. */
static void conversation(struct sheaf *fs, struct sheaf *direct, int n)
{
	char dir[64], a[80], b[80];
	struct sheaf_dirent e[4];
	struct sheaf_handle h;
	struct sheaf_file *f;
	uint8_t out[9000], in[9000];
	struct stat st;

	snprintf(dir, sizeof(dir), "/c%d", n);
	snprintf(a, sizeof(a), "/c%d/a", n);
	snprintf(b, sizeof(b), "/c%d/b", n);
	fill_pattern(out, sizeof(out), (uint64_t)n, 0);
	CHECK_EQ(sheaf_mkdir(fs, dir, 0755), 0);
	CHECK_EQ(sheaf_open(fs, a, O_CREAT | O_EXCL | O_RDWR, 0644, NULL, &f), 0);
	CHECK_EQ(sheaf_pwrite(f, out, 500, 0), 500); /* inside the request */
	CHECK_EQ(sheaf_pwrite(f, out + 500, 8500, 500), 8500); /* pulled by the server */
	CHECK_EQ(sheaf_rename(fs, a, b), 0);
	CHECK_EQ(sheaf_pread(f, in, 9000, 0), 9000);
	CHECK(memcmp(in, out, 9000) == 0);
	CHECK_EQ(sheaf_ftruncate(f, 8800), 0);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_stat(fs, b, &st), 0);
	CHECK_EQ(st.st_size, 8800);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), dir + 1, &h, &st), 0);
	CHECK_EQ(sheaf_h_readdir(fs, NULL, h, 0, e, 4), 1);
	CHECK_EQ(sheaf_stat(direct, a, &st), -ENOENT);
	check_file(direct, b, 8800, (uint64_t)n);
	CHECK_EQ(sheaf_unlink(fs, b), 0);
	CHECK_EQ(sheaf_rmdir(fs, dir), 0);
	CHECK_EQ(sheaf_stat(direct, dir, &st), -ENOENT);
}

/* Cuts at every multiple of `step` bytes of a whole conversation, from the first byte of the
 * handshake. */
static void a_cut_anywhere_in_a_conversation_changes_nothing(void)
{
	static struct proxy x;
	struct cluster c;
	struct sheaf *direct, *fs;
	uint64_t total = UINT64_MAX, step = SANITIZED ? 499 : 149;
	int n = 0, made = 0;

	cluster_create(&c, &(struct cluster_opts){ .servers = 1, .lease = 10 });
	cluster_start(&c);
	direct = client_connect(c.conf);
	proxy_start(&x, &c);
	while (n < 3) { /* the shortest of three: a slow one may include pings */
		uint64_t bytes;

		proxy_plan(&x, 0, 0, 0);
		fs = client_connect(x.conf);
		conversation(fs, direct, n++);
		sheaf_disconnect(fs);
		bytes = __atomic_load_n(&x.bytes, __ATOMIC_SEQ_CST);
		total = bytes < total ? bytes : total;
	}
	for (uint64_t at = 1; at < total; at += at < 1200 ? step / 4 : step) {
		proxy_plan(&x, 1, at, 0);
		fs = client_connect(x.conf);
		conversation(fs, direct, n++);
		sheaf_disconnect(fs);
		made += x.made;
	}
	printf("  %llu bytes, %d conversations, %d cuts\n", (unsigned long long)total, n, made);
	CHECK(made >= n - 3 - 4);
	proxy_stop(&x);
	sheaf_disconnect(direct);
	cluster_stop(&c);
}

static void every_change_happens_once_over_random_cuts(void)
{
	static struct proxy x;
	struct cluster c;
	struct names m = { .rnd = 5, .dir = "/names" };
	double end;
	int n = 0;

	cluster_create(&c, NULL);
	cluster_start(&c);
	proxy_start(&x, &c);
	m.fs = client_connect(x.conf);
	CHECK_EQ(sheaf_mkdir(m.fs, m.dir, 0755), 0);
	sheaf_disconnect(m.fs);
	proxy_plan(&x, -1, 700, 15000);
	m.fs = client_connect(x.conf);
	for (end = now_s() + 5; now_s() < end; n++)
		names_change(&m);
	names_verify(&m);
	printf("  %d changes over %d cuts\n", n, x.made);
	CHECK(x.made >= 5);
	proxy_plan(&x, 0, 0, 0);
	sheaf_disconnect(m.fs);
	m.fs = client_connect(c.conf);
	names_verify(&m);
	sheaf_disconnect(m.fs);
	proxy_stop(&x);
	cluster_stop(&c);
}

/* Large transfers: cuts fall into bulk data, in both directions. */
static void bulk_arrives_whole_over_random_cuts(void)
{
	enum { BIG = 3 << 20 };
	static uint8_t out[BIG], in[BIG];
	static struct proxy x;
	struct cluster c;
	struct sheaf *fs, *direct;
	struct sheaf_file *f, *g;
	double end;
	int n = 0;

	cluster_create(&c, NULL);
	cluster_start(&c);
	direct = client_connect(c.conf);
	proxy_start(&x, &c);
	proxy_plan(&x, -1, 2000, 8 << 20);
	fs = client_connect(x.conf);
	f = open_file(fs, "/bulk", O_CREAT | O_RDWR);
	g = open_file(direct, "/bulk", O_RDONLY);
	for (end = now_s() + 6; now_s() < end; n++) {
		size_t len = 100000 + (size_t)n * 77777 % (BIG - 100000);

		fill_pattern(out, len, (uint64_t)n, 0);
		CHECK_EQ(sheaf_pwrite(f, out, len, n % 100), (ssize_t)len);
		memset(in, 0, len);
		CHECK_EQ(sheaf_pread(n % 2 ? f : g, in, len, n % 100), (ssize_t)len);
		CHECK(memcmp(out, in, len) == 0);
	}
	printf("  %d rounds over %d cuts\n", n, x.made);
	CHECK(x.made >= 3);
	proxy_plan(&x, 0, 0, 0);
	CHECK_EQ(sheaf_fsync(f), 0); /* links broke, servers did not: no data were lost */
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_close(g), 0);
	sheaf_disconnect(fs);
	sheaf_disconnect(direct);
	proxy_stop(&x);
	cluster_stop(&c);
}

SYS_MAIN(NULL, NULL, NULL, TEST(a_cut_anywhere_in_a_conversation_changes_nothing),
	 TEST(every_change_happens_once_over_random_cuts),
	 TEST(bulk_arrives_whole_over_random_cuts))
