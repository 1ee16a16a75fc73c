/* Memory stays bounded: however many files and clients came and went, servers and clients use as
 * much memory as before. An idle client costs a server little. A request like earlier ones
 * allocates nothing, in the client and in the server.
 *
 * SHEAF_TEST_LONG=1 runs 200,000 rounds and 10,000 clients. Under a sanitizer, whose allocator
 * delays frees, the same code runs a few times and nothing is measured. */
#include <grp.h>
#include <pthread.h>
#include <sys/mman.h>

#include "cluster.h"

#define MIB_ (1 << 20)
#define THREADS 8
#define IDLE_CLIENTS 200
#define INLINE_BYTES 8192 /* the largest inline transfer */
#define COUNTED 4 /* servers in the allocation tests, so that stripes are wide */

static struct cluster c;

static long rounds_of(long brief, long full, long sanitized)
{
	return SANITIZED ? sanitized : getenv("SHEAF_TEST_LONG") ? full : brief;
}

/* ---- anonymous memory ---- */

struct memory {
	long server[CLUSTER_MAX], client; /* KiB */
};

static long anon_kib(pid_t pid)
{
	char path[64], line[256];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1)
			break;
	fclose(f);
	CHECK(kib >= 0);
	return kib;
}

/* Measures when no server has other requests in service. */
static struct memory memory_now(struct sheaf *fs)
{
	struct memory m = { .client = anon_kib(getpid()) };

	for (int i = 0; i < c.n; i++) {
		CHECK(WITHIN(PATIENCE_S, server_status(fs, i).in_service <= 1));
		m.server[i] = anon_kib(c.pid[i]);
	}
	return m;
}

static void check_flat(const struct memory *was, const struct memory *is, long bound)
{
	for (int i = 0; i < c.n; i++)
		printf("  server %d: %ld KiB, then %ld KiB\n", i, was->server[i], is->server[i]);
	printf("  client:   %ld KiB, then %ld KiB\n", was->client, is->client);
	for (int i = 0; i < c.n; i++)
		CHECK(SANITIZED || is->server[i] <= was->server[i] + bound);
	CHECK(SANITIZED || is->client <= was->client + bound);
}

/* ---- files ---- */

static void one_file(struct sheaf *fs, int id)
{
	char path[64], b[4000] = "";
	struct sheaf_file *f;

	snprintf(path, sizeof(path), "/file-%d", id);
	f = open_file(fs, path, O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_unlink(fs, path), 0);
}

struct crew {
	pthread_t thread;
	struct sheaf *fs;
	int id;
	long rounds;
};

static void *crew_work(void *arg)
{
	struct crew *w = arg;

	for (long i = 0; i < w->rounds; i++)
		one_file(w->fs, w->id);
	return NULL;
}

static void many_files(struct sheaf *fs, long rounds)
{
	struct crew w[THREADS];

	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct crew){ .fs = fs, .id = i, .rounds = rounds / THREADS };
		CHECK_EQ(pthread_create(&w[i].thread, NULL, crew_work, &w[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
}

static void files_that_come_and_go_leave_nothing(void)
{
	const long n = rounds_of(10000, 200000, 80);
	struct sheaf *fs = client_connect(c.conf);
	struct memory was, is;

	many_files(fs, rounds_of(10000, 10000, 80)); /* fills caches and free lists */
	was = memory_now(fs);
	many_files(fs, n);
	is = memory_now(fs);
	/* up to 256 removals of 3 KiB are pending at once; the first measurement may have fewer */
	check_flat(&was, &is, 1024);
	sheaf_disconnect(fs);
}

/* ---- clients ---- */

static void many_clients(long n)
{
	for (long i = 0; i < n; i++) {
		struct sheaf *fs = client_connect(c.conf);

		one_file(fs, 0);
		sheaf_disconnect(fs);
	}
}

static void clients_that_come_and_go_leave_nothing(void)
{
	struct sheaf *watch = client_connect(c.conf);
	struct memory was, is;

	many_clients(rounds_of(100, 100, 4));
	was = memory_now(watch);
	many_clients(rounds_of(500, 10000, 4));
	is = memory_now(watch);
	check_flat(&was, &is, 512);
	sheaf_disconnect(watch);
}

static void an_idle_client_costs_a_server_little(void)
{
	const int n = SANITIZED ? 8 : IDLE_CLIENTS;
	struct sheaf *watch = client_connect(c.conf), *fs[IDLE_CLIENTS];
	struct memory was = memory_now(watch), is;

	for (int i = 0; i < n; i++) {
		fs[i] = client_connect(c.conf);
		for (int k = 0; k < c.n; k++)
			server_status(fs[i], k); /* connects to the server */
	}
	is = memory_now(watch);
	for (int k = 0; k < c.n; k++) {
		double each = (double)(is.server[k] - was.server[k]) / n;

		printf("  server %d: %.1f KiB for each of %d clients\n", k, each, n);
		CHECK(server_status(watch, k).links >= (uint32_t)n);
		CHECK(SANITIZED || each <= 64);
	}
	for (int i = 0; i < n; i++)
		sheaf_disconnect(fs[i]);
	sheaf_disconnect(watch);
}

/* ---- allocations: a child that counts its own and those of the servers ---- */

struct counted {
	const _Atomic uint64_t *calls[CLUSTER_MAX + 1]; /* of the servers, then of this process */
	int n;
};

static const _Atomic uint64_t *calls_of(const char *dir, int pid)
{
	char path[CLUSTER_PATH + 16];
	const _Atomic uint64_t *p;
	int fd;

	snprintf(path, sizeof(path), "%s/%d", dir, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	p = mmap(NULL, sizeof(*p), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && *p > 0); /* a running process has allocated */
	close(fd);
	return p;
}

struct scene {
	struct sheaf *fs;
	struct sheaf_file *file; /* of 1 MiB */
	uint8_t *data;
};

static void read_byte(struct scene *s, long i)
{
	CHECK_EQ(sheaf_pread(s->file, s->data, 1, (i * 4099) % MIB_), 1);
}

static void write_page(struct scene *s, long i)
{
	CHECK_EQ(sheaf_pwrite(s->file, s->data, 4096, (i % 256) * 4096), 4096);
}

static void read_inline(struct scene *s, long i)
{
	CHECK_EQ(sheaf_pread(s->file, s->data, INLINE_BYTES, (i % 128) * INLINE_BYTES),
		 INLINE_BYTES);
}

static void write_inline(struct scene *s, long i)
{
	CHECK_EQ(sheaf_pwrite(s->file, s->data, INLINE_BYTES, (i % 128) * INLINE_BYTES),
		 INLINE_BYTES);
}

static void read_all(struct scene *s, long i)
{
	(void)i;
	CHECK_EQ(sheaf_pread(s->file, s->data, MIB_, 0), MIB_);
}

static void write_all(struct scene *s, long i)
{
	(void)i;
	CHECK_EQ(sheaf_pwrite(s->file, s->data, MIB_, 0), MIB_);
}

static void stat_it(struct scene *s, long i)
{
	struct stat st;

	(void)i;
	CHECK_EQ(sheaf_stat(s->fs, "/file", &st), 0);
	CHECK_EQ(st.st_size, MIB_);
}

/* Did no process allocate? A few calls are allowed: timers, leases, and tables that grow once. */
static bool count_kind(struct scene *s, const struct counted *who, const char *name,
		       void (*one)(struct scene *s, long i), long n)
{
	uint64_t was[CLUSTER_MAX + 1], worst = 0;

	for (long i = 0; i < n / 10; i++)
		one(s, i);
	for (int k = 0; k < who->n; k++)
		was[k] = *who->calls[k];
	for (long i = 0; i < n; i++)
		one(s, i);
	printf("  %-14s", name);
	for (int k = 0; k < who->n; k++) {
		uint64_t calls = *who->calls[k] - was[k];

		printf("  %s %7.4f", k < who->n - 1 ? "server" : "client",
		       (double)calls / (double)n);
		worst = calls > worst ? calls : worst;
	}
	printf("  allocations each\n");
	return worst <= (uint64_t)n / 100;
}

/* ARG: the cluster file, the directory of the counters, and the servers' process ids. */
static int count_child(const char *name, char **arg)
{
	struct counted who = { 0 };
	struct scene s = { .fs = client_connect(arg[0]), .data = malloc(MIB_) };
	bool ok = true;

	(void)name;
	for (int i = 2; arg[i]; i++)
		who.calls[who.n++] = calls_of(arg[1], atoi(arg[i]));
	who.calls[who.n++] = calls_of(arg[1], getpid());
	CHECK(s.data);
	(void)!setgroups(2, (gid_t[]){ 1, 2 }); /* as users have them; needs root */
	make_file(s.fs, "/file", MIB_, 1);
	s.file = open_file(s.fs, "/file", O_RDWR);
	ok &= count_kind(&s, &who, "1-byte reads", read_byte, 10000);
	ok &= count_kind(&s, &who, "4-KiB writes", write_page, 10000);
	ok &= count_kind(&s, &who, "8-KiB reads", read_inline, 10000);
	ok &= count_kind(&s, &who, "8-KiB writes", write_inline, 10000);
	ok &= count_kind(&s, &who, "1-MiB reads", read_all, 1000);
	ok &= count_kind(&s, &who, "1-MiB writes", write_all, 1000);
	/* reported, not judged: libcrypto allocates to sign a capability */
	count_kind(&s, &who, "stats, open", stat_it, 10000);
	CHECK_EQ(sheaf_close(s.file), 0);
	ok &= count_kind(&s, &who, "stats, closed", stat_it, 10000);
	sheaf_disconnect(s.fs);
	free(s.data);
	CHECK(ok || !"requests allocate");
	return 0;
}

/* Builds the counting library, to be preloaded. */
static void build_counter(const char *lib)
{
	const char *source = getenv("SHEAF_SOURCE");
	char file[CLUSTER_PATH];
	const char *argv[] = { "/usr/bin/env", "cc", "-shared", "-fPIC", "-O2",
			       "-o",	       lib,  file,	NULL };

	CHECK(source || !"SHEAF_SOURCE must name the source directory");
	snprintf(file, sizeof(file), "%s/tests/system/count_alloc.c", source);
	CHECK_EQ(process_wait(process_start(argv, -1)), 0);
}

static void requests_allocate_nothing(void)
{
	struct cluster own;
	char lib[CLUSTER_PATH + 16], pids[COUNTED][16];

	if (SANITIZED) {
		printf("  skipped: a sanitizer has an allocator of its own\n");
		return;
	}
	cluster_create(&own,
		       &(struct cluster_opts){ .servers = COUNTED, .timeout = 30, .lease = 30 });
	snprintf(lib, sizeof(lib), "%s/count_alloc.so", own.dir);
	build_counter(lib);
	setenv("COUNT_ALLOC_DIR", own.dir, 1);
	setenv("LD_PRELOAD", lib, 1);
	cluster_start(&own);
	for (int i = 0; i < COUNTED; i++)
		snprintf(pids[i], sizeof(pids[i]), "%d", (int)own.pid[i]);
	CHECK_EQ(process_wait(child_start("count", own.conf, own.dir, pids[0], pids[1], pids[2],
					  pids[3], NULL)),
		 0);
	unsetenv("LD_PRELOAD");
	cluster_stop(&own);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .timeout = 30, .lease = 30 });
	cluster_start(&c);
}

static void end(void)
{
	cluster_stop(&c);
}

SYS_MAIN(count_child, begin, end, TEST(files_that_come_and_go_leave_nothing),
	 TEST(clients_that_come_and_go_leave_nothing), TEST(an_idle_client_costs_a_server_little),
	 TEST(requests_allocate_nothing))
