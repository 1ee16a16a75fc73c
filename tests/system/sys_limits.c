/* The resources of a server: memory with many clients, processor time when idle; neither grows with
 * the number of files and clients the server has seen. */
#include <pthread.h>

#include "cluster.h"

#define MIB_ (1 << 20)
#define CLIENTS 64

static struct cluster c;

static long ticks_of(pid_t pid)
{
	char path[64], line[1024] = "", *p;
	unsigned long user = 0, sys = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	CHECK(f && fgets(line, sizeof(line), f));
	fclose(f);
	p = strrchr(line, ')');
	CHECK(p);
	CHECK_EQ(sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys),
		 2);
	return (long)(user + sys);
}

static uint64_t anon_of(struct sheaf *fs, int i)
{
	return server_status(fs, i).anon_bytes;
}

static void small_work(struct sheaf *fs, int id, int rounds)
{
	char path[64], b[4000];
	struct sheaf_file *f;
	struct stat st;

	for (int i = 0; i < rounds; i++) {
		snprintf(path, sizeof(path), "/small-%d-%d", id, i);
		f = open_file(fs, path, O_CREAT | O_RDWR);
		fill_pattern(b, sizeof(b), (uint64_t)id, 0);
		CHECK_EQ(sheaf_pwrite(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
		CHECK_EQ(sheaf_pread(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
		CHECK(is_pattern(b, sizeof(b), (uint64_t)id, 0));
		CHECK_EQ(sheaf_close(f), 0);
		CHECK_EQ(sheaf_stat(fs, path, &st), 0);
		CHECK_EQ(sheaf_unlink(fs, path), 0);
	}
}

struct one {
	pthread_t thread;
	struct sheaf *fs;
	int id;
};

static void *one_client(void *arg)
{
	struct one *o = arg;

	o->fs = client_connect(c.conf);
	for (int i = 0; i < c.n; i++)
		server_status(o->fs, i); /* connects to the server */
	small_work(o->fs, o->id, SANITIZED ? 2 : 8);
	return NULL;
}

static void sixty_four_clients_fit_the_memory(void)
{
	static struct one o[CLIENTS];

	for (int i = 0; i < CLIENTS; i++) {
		o[i].id = i;
		CHECK_EQ(pthread_create(&o[i].thread, NULL, one_client, &o[i]), 0);
	}
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(o[i].thread, NULL);
	for (int i = 0; i < c.n; i++) { /* all of them are still connected */
		struct sheaf_server s = server_status(o[0].fs, i);

		printf("  server %d: %llu KiB anonymous, %u links\n", i,
		       (unsigned long long)s.anon_bytes / 1024, s.links);
		CHECK(s.links >= CLIENTS);
		CHECK(SANITIZED || s.anon_bytes <= 24 * MIB_ + s.pool_bytes);
	}
	for (int i = 0; i < CLIENTS; i++)
		sheaf_disconnect(o[i].fs);
}

/* Do the servers use no processor time for three seconds? */
static bool servers_rest(void)
{
	long before[CLUSTER_MAX], used, most = 0;

	for (int i = 0; i < c.n; i++)
		before[i] = ticks_of(c.pid[i]);
	pause_ms(3000);
	for (int i = 0; i < c.n; i++) {
		used = ticks_of(c.pid[i]) - before[i];
		printf("  server %d: %ld ticks in 3 s\n", i, used);
		most = used > most ? used : most;
	}
	return most <= (SANITIZED ? 5 : 1);
}

/* Four clients have worked and now only renew their leases. */
static void an_idle_server_uses_no_processor(void)
{
	struct sheaf *fs[4];
	int tries = 0;

	for (int i = 0; i < 4; i++) {
		fs[i] = client_connect(c.conf);
		small_work(fs[i], i, 3);
	}
	/* background work may not have ended yet */
	while (!servers_rest())
		CHECK(++tries < 15);
	for (int i = 0; i < 4; i++)
		sheaf_disconnect(fs[i]);
}

static void clients_that_come_and_go_leave_no_memory(void)
{
	const int n = SANITIZED ? 40 : 200;
	struct sheaf *watch = client_connect(c.conf), *fs;
	uint64_t before[CLUSTER_MAX] = { 0 }, now;
	uint32_t sessions = 0;

	for (int i = 0; i < n + 50; i++) {
		if (i == 50) { /* the first clients fill caches and free lists */
			for (int k = 0; k < c.n; k++)
				before[k] = anon_of(watch, k);
			sessions = server_status(watch, 0).sessions;
		}
		fs = client_connect(c.conf);
		small_work(fs, i, 1);
		sheaf_disconnect(fs);
	}
	for (int k = 0; k < c.n; k++) {
		now = anon_of(watch, k);
		printf("  server %d: %llu KiB, then %llu KiB\n", k,
		       (unsigned long long)before[k] / 1024, (unsigned long long)now / 1024);
		CHECK(SANITIZED || now < before[k] + MIB_);
	}
	CHECK(WITHIN(PATIENCE_S, server_status(watch, 0).sessions <= sessions + 1));
	sheaf_disconnect(watch);
}

struct churn {
	pthread_t thread;
	struct sheaf *fs;
	int id, rounds;
};

static void *churn(void *arg)
{
	struct churn *x = arg;

	small_work(x->fs, 1000 + x->id, x->rounds);
	return NULL;
}

static void churn_all(struct sheaf *fs, int rounds)
{
	struct churn x[16];

	for (int i = 0; i < 16; i++) {
		x[i] = (struct churn){ .fs = fs, .id = i, .rounds = rounds / 16 };
		CHECK_EQ(pthread_create(&x[i].thread, NULL, churn, &x[i]), 0);
	}
	for (int i = 0; i < 16; i++)
		pthread_join(x[i].thread, NULL);
}

static void files_that_come_and_go_leave_no_memory(void)
{
	const int n = SANITIZED ? 400 : 20000;
	struct sheaf *fs = client_connect(c.conf);
	uint64_t before[CLUSTER_MAX] = { 0 }, now;

	churn_all(fs, n / 10); /* fills caches and free lists */
	pause_ms(300);
	for (int k = 0; k < c.n; k++)
		before[k] = anon_of(fs, k);
	churn_all(fs, n);
	CHECK(WITHIN(PATIENCE_S, server_status(fs, 0).in_service <= 1));
	pause_ms(300);
	for (int k = 0; k < c.n; k++) {
		now = anon_of(fs, k);
		printf("  server %d: %llu KiB, then %llu KiB\n", k,
		       (unsigned long long)before[k] / 1024, (unsigned long long)now / 1024);
		CHECK(SANITIZED || now < before[k] + 4 * MIB_);
	}
	sheaf_disconnect(fs);
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

SYS_MAIN(NULL, begin, end, TEST(sixty_four_clients_fit_the_memory),
	 TEST(an_idle_server_uses_no_processor), TEST(clients_that_come_and_go_leave_no_memory),
	 TEST(files_that_come_and_go_leave_no_memory))
