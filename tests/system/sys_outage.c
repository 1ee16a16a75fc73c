/* Clients that work while the path to their servers is interrupted. Each client continues, every
 * change of names happens once, every record that was appended is in its file once, and every write
 * that was answered is there.
 *
 *     sys_outage                                  the servers are stopped for some seconds
 *     sys_outage --over CONF CUT MEND SECONDS...  running servers; the shell commands CUT and MEND
 *                                                 interrupt and restore the path, each time for so
 *                                                 many seconds
 * SHEAF_TEST_RDMA is set: connections begin with RDMA.
 *
 * Threads: the main thread, and those of the library in each client. */
#include <stdatomic.h>
#include <sys/mman.h>

#include "block_model.h"
#include "names_model.h"

#define SERVERS 4 /* the layouts of block_model.h need as many */
#define BULK ((size_t)2 << 20)
#define RECORD_MAX 900

/* ---- a client that writes all of a large file and reads it again ---- */

struct bulk {
	struct sheaf_file *file;
	char path[32];
	uint64_t version;
	uint8_t data[BULK];
};

static void *bulk_make(struct sheaf *fs, int number)
{
	struct bulk *b = calloc(1, sizeof(*b));

	CHECK(b);
	snprintf(b->path, sizeof(b->path), "/bulk%d", number);
	b->file = open_file(fs, b->path, O_CREAT | O_EXCL | O_RDWR);
	return b;
}

static void bulk_step(void *arg)
{
	struct bulk *b = arg;

	fill_pattern(b->data, BULK, ++b->version, 0);
	CHECK_EQ(sheaf_pwrite(b->file, b->data, BULK, 0), BULK);
	memset(b->data, 0, BULK);
	CHECK_EQ(sheaf_pread(b->file, b->data, BULK, 0), BULK);
	CHECK(is_pattern(b->data, BULK, b->version, 0));
}

static void bulk_verify(void *arg, struct sheaf *other)
{
	struct bulk *b = arg;

	CHECK_EQ(sheaf_close(b->file), 0);
	check_file(other, b->path, BULK, b->version);
}

/* ---- a client that changes blocks of several files ---- */

static void *writer_make(struct sheaf *fs, int number)
{
	char dir[32];
	struct data *m;

	snprintf(dir, sizeof(dir), "/data%d", number);
	CHECK_EQ(sheaf_mkdir(fs, dir, 0755), 0);
	m = data_make(dir, (uint32_t)number, (uint64_t)number);
	m->fs = fs;
	m->round = m->era = 1;
	m->lane = (uint32_t)number;
	return m;
}

static void writer_step(void *arg)
{
	struct data *m = arg;
	struct logged_op d;
	int r;

	data_pick(m, &d);
	data_begin(m, &d);
	r = data_do(m, &d);
	CHECK(data_right(m, &d, r));
	data_end(m, &d, r);
}

static void writer_verify(void *arg, struct sheaf *other)
{
	struct data *m = arg;
	char why[512] = "";

	CHECK_EQ(m->eio, 0); /* no server has restarted, so no sync reports a loss */
	for (uint32_t i = 0; i <= DATA_SHARED; i++)
		CHECK_EQ(data_let_go(m, i), 0);
	m->fs = other;
	if (!data_same(m, why, sizeof(why)))
		printf("  %s\n", why);
	CHECK_STR(why, "");
}

/* ---- a client that changes names ---- */

static void *namer_make(struct sheaf *fs, int number)
{
	struct names *m = calloc(1, sizeof(*m));

	CHECK(m);
	m->fs = fs;
	m->rnd = (uint64_t)number;
	snprintf(m->dir, sizeof(m->dir), "/names%d", number);
	CHECK_EQ(sheaf_mkdir(fs, m->dir, 0755), 0);
	return m;
}

static void namer_step(void *m)
{
	names_change(m);
}

static void namer_verify(void *arg, struct sheaf *other)
{
	struct names *m = arg;

	m->fs = other;
	names_verify(m);
}

/* ---- a client that appends records to a file of its kind ---- */

#define MAGIC 0x5245434fu /* no byte of it is 0 */
struct record {
	uint32_t magic, writer, number, length; /* of the whole record */
};

struct appender {
	struct sheaf_file *file;
	uint32_t me, records;
};

static void *appender_make(struct sheaf *fs, int number)
{
	struct appender *a = calloc(1, sizeof(*a));

	CHECK(a);
	a->me = (uint32_t)number;
	a->file = open_file(fs, "/log", O_CREAT | O_WRONLY | O_APPEND);
	return a;
}

static void appender_step(void *arg)
{
	struct appender *a = arg;
	struct record r = { MAGIC, a->me, a->records++, 0 };
	uint8_t b[RECORD_MAX];

	r.length = (uint32_t)sizeof(r) + r.number * 7919 % (RECORD_MAX - sizeof(r));
	memcpy(b, &r, sizeof(r));
	fill_pattern(b + sizeof(r), r.length - sizeof(r), r.number, 0);
	CHECK_EQ(sheaf_append(a->file, b, r.length), r.length);
}

/* Each of this client's records is there, whole, in its order and once. Zeros are an append of the
 * other client that has not ended yet. */
static void appender_verify(void *arg, struct sheaf *other)
{
	struct appender *a = arg;
	struct sheaf_file *f = open_file(other, "/log", O_RDONLY);
	uint32_t found = 0;
	struct record r;
	struct stat st;
	uint8_t *b;

	CHECK_EQ(sheaf_close(a->file), 0);
	CHECK_EQ(sheaf_fstat(f, &st), 0);
	b = malloc((size_t)st.st_size);
	CHECK(b);
	CHECK_EQ(sheaf_pread(f, b, (size_t)st.st_size, 0), st.st_size);
	for (size_t at = 0; at < (size_t)st.st_size; at += r.length) {
		r = (struct record){ .length = 1 };
		if (!b[at])
			continue;
		CHECK((size_t)st.st_size - at >= sizeof(r));
		memcpy(&r, b + at, sizeof(r));
		CHECK_EQ(r.magic, MAGIC);
		CHECK(r.length >= sizeof(r) && r.length <= (size_t)st.st_size - at);
		if (r.writer != a->me)
			continue;
		CHECK_EQ(r.number, found);
		CHECK(is_pattern(b + at + sizeof(r), r.length - sizeof(r), found++, 0));
	}
	CHECK_EQ(found, a->records);
	free(b);
	CHECK_EQ(sheaf_close(f), 0);
}

/* ---- clients, each a process ---- */

static const struct kind {
	const char *name;
	void *(*make)(struct sheaf *fs, int number);
	void (*step)(void *state);
	void (*verify)(void *state, struct sheaf *other);
} kinds[] = {
	{ "bulk", bulk_make, bulk_step, bulk_verify },
	{ "writer", writer_make, writer_step, writer_verify },
	{ "namer", namer_make, namer_step, namer_verify },
	{ "appender", appender_make, appender_step, appender_verify },
};
#define CLIENTS (2 * (int)ARRAY_LEN(kinds))

static struct board {
	atomic_int leave;
	_Atomic uint64_t steps[CLIENTS];
} * board;

static void board_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && ftruncate(fd, sizeof(*board)) == 0);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(board != MAP_FAILED);
	close(fd);
}

static bool uses_rdma(struct sheaf *fs)
{
	struct sheaf_server_net net = { .size = sizeof(net) };
	struct sheaf_server s;

	CHECK_EQ(sheaf_server_net(fs, 0, PATIENCE_S * 1000, &s, &net), 0);
	for (uint32_t i = 0; i < net.n_routes; i++)
		if (net.routes[i].used)
			return strcmp(net.routes[i].name, "rdma") == 0;
	return false;
}

/* A busy server may not answer in time when a client asks for RDMA. */
static struct sheaf *connect_by_route(const char *conf)
{
	struct sheaf *fs = client_connect(conf);
	double end = now_s() + patient(PATIENCE_S);

	while (getenv("SHEAF_TEST_RDMA") && !uses_rdma(fs)) {
		CHECK(now_s() < end);
		sheaf_disconnect(fs);
		pause_ms(1000);
		fs = client_connect(conf);
	}
	return fs;
}

/* Arguments: CONF BOARD NUMBER. At the end a fresh connection verifies what was done. */
static int client_main(const char *name, char **arg)
{
	int number = atoi(arg[2]);
	const struct kind *k = &kinds[number % (int)ARRAY_LEN(kinds)];
	struct sheaf *fs = connect_by_route(arg[0]), *other;
	void *state;

	(void)name;
	board_open(arg[1]);
	state = k->make(fs, number);
	while (!atomic_load(&board->leave)) {
		k->step(state);
		atomic_fetch_add(&board->steps[number], 1);
	}
	other = client_connect(arg[0]);
	k->verify(state, other);
	sheaf_disconnect(other);
	sheaf_disconnect(fs);
	free(state);
	return 0;
}

/* ---- the run ---- */

static pid_t pid[CLIENTS];

static void clients_start(const char *conf, const char *path)
{
	static const struct sheaf_layout striped = { sizeof(striped), 4096, SERVERS };
	struct sheaf *fs = client_connect(conf);
	struct sheaf_file *f;
	char number[16];

	CHECK_EQ(sheaf_mkdir(fs, "/shared", 0777), 0); /* see block_model.h */
	CHECK_EQ(sheaf_open(fs, "/shared/e1", O_CREAT | O_RDWR, 0644, &striped, &f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(fs);
	board_open(path);
	memset(board, 0, sizeof(*board));
	for (int i = 0; i < CLIENTS; i++) {
		snprintf(number, sizeof(number), "%d", i);
		pid[i] = child_start("client", conf, path, number, NULL);
	}
}

static bool all_have(const uint64_t *steps)
{
	for (int i = 0; i < CLIENTS; i++) {
		CHECK_EQ(waitpid(pid[i], NULL, WNOHANG), 0); /* it has not failed */
		if (atomic_load(&board->steps[i]) < steps[i])
			return false;
	}
	return true;
}

/* Waits until every client has done this many steps more. */
static void all_work(uint64_t steps)
{
	uint64_t until[CLIENTS];

	for (int i = 0; i < CLIENTS; i++)
		until[i] = atomic_load(&board->steps[i]) + steps;
	CHECK(WITHIN(patient(2 * PATIENCE_S), all_have(until)));
}

/* Interrupts the path while all clients work. */
static void one_outage(void (*set)(bool up), int seconds)
{
	double begin;

	all_work(3);
	set(false);
	pause_ms(1000 * seconds);
	set(true);
	begin = now_s();
	all_work(1);
	printf("  %d s without a path: after %.1f s more every client has made progress\n", seconds,
	       now_s() - begin);
	fflush(stdout);
	all_work(3);
}

static void clients_end(void)
{
	atomic_store(&board->leave, 1);
	for (int i = 0; i < CLIENTS; i++) {
		CHECK_EQ(process_wait(pid[i]), 0);
		printf("  %s: %d steps\n", kinds[i % (int)ARRAY_LEN(kinds)].name,
		       (int)atomic_load(&board->steps[i]));
	}
}

static const char *cut, *mend;

static void by_command(bool up)
{
	CHECK_EQ(system(up ? mend : cut), 0);
}

/* Arguments: CONF CUT MEND SECONDS... */
static int over(char **arg)
{
	char dir[256], path[300];

	cut = arg[1];
	mend = arg[2];
	temp_dir(dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/board", dir);
	clients_start(arg[0], path);
	for (char **s = arg + 3; *s; s++)
		one_outage(by_command, atoi(*s));
	clients_end();
	return 0;
}

static struct cluster c;

static void servers_run(bool up)
{
	for (int i = 0; i < c.n; i++)
		CHECK_EQ(kill(c.pid[i], up ? SIGCONT : SIGSTOP), 0);
}

static void clients_continue_when_the_servers_do(void)
{
	char path[CLUSTER_PATH];

	cluster_create(&c, &(struct cluster_opts){ .servers = SERVERS,
						   .timeout = (uint32_t)patient(30),
						   .lease = (uint32_t)patient(30) });
	cluster_start(&c);
	snprintf(path, sizeof(path), "%s/board", c.dir);
	clients_start(c.conf, path);
	one_outage(servers_run, 2);
	one_outage(servers_run, 2);
	clients_end();
	cluster_stop(&c);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(clients_continue_when_the_servers_do) };

	if (argc > 5 && strcmp(argv[1], "--over") == 0)
		return over(argv + 2);
	return sys_run(client_main, NULL, NULL, tests, 1, argc, argv);
}
