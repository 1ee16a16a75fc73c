/* RDMA between a server and a client: what an access costs, counted in messages, work requests,
 * doorbells and registrations; what a client keeps pinned; shares of clients; wakeups.
 *
 * Needs SHEAF_TEST_RDMA with the devices of servers and clients, as tests/vm has them, and
 * SHEAF_NET=rdma. No test judges time. */
#include <dirent.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/base.h"
#include "cluster.h"
#include "shares.h"

#define PIECES 128
#define PIECE 2048
#define TOTAL (PIECES * PIECE)
#define SGES_LEAST 27 /* pieces of a work request of Soft-RoCE */

static struct cluster c;
static struct sheaf *fs;
static struct sheaf_file *file;

/* ---- counts ---- */

struct counts {
	struct sheaf_net_counts own, server;
	uint64_t requests;
	uint64_t writes; /* write(2) of the server: Soft-RoCE posts a chain with one */
};

static uint64_t writes_of(pid_t pid)
{
	char path[64], *text, *at;
	uint64_t n;

	snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
	text = read_text(path);
	at = strstr(text, "syscw:");
	CHECK(at);
	n = strtoull(at + strlen("syscw:"), NULL, 10);
	free(text);
	return n;
}

/* Of server 0. The question itself counts, see cost_of(). */
static struct counts look(void)
{
	struct sheaf_server_net net = { .size = sizeof(net) };
	struct sheaf_server s;

	CHECK_EQ(sheaf_server_net(fs, 0, PATIENCE_S * 1000, &s, &net), 0);
	for (uint32_t i = 0; i < net.n_routes; i++)
		if (net.routes[i].used)
			CHECK_STR(net.routes[i].name, "rdma");
	return (struct counts){ net.own, net.server, s.requests, writes_of(c.pid[0]) };
}

#define LESS(field) d.field -= a->field
static struct counts since(const struct counts *a)
{
	struct counts d = look();

	LESS(own.messages_sent);
	LESS(own.messages_received);
	LESS(own.work_requests);
	LESS(own.doorbells);
	LESS(own.registrations);
	LESS(server.messages_sent);
	LESS(server.messages_received);
	LESS(server.work_requests);
	LESS(server.doorbells);
	LESS(server.registrations);
	LESS(requests);
	LESS(writes);
	return d;
}

/* What the function costs, without the question for it. */
static struct counts cost_of(void (*access)(void))
{
	struct counts a = look(), idle = since(&a), d;

	a = look();
	access();
	d = since(&a);
	d.own.messages_sent -= idle.own.messages_sent;
	d.own.messages_received -= idle.own.messages_received;
	d.own.work_requests -= idle.own.work_requests;
	d.own.doorbells -= idle.own.doorbells;
	d.server.messages_sent -= idle.server.messages_sent;
	d.server.messages_received -= idle.server.messages_received;
	d.server.work_requests -= idle.server.work_requests;
	d.server.doorbells -= idle.server.doorbells;
	d.requests -= idle.requests;
	d.writes -= MIN(d.writes, idle.writes);
	printf("  client: %d sent, %d received, %d work requests, %d doorbells, %d registrations\n"
	       "  server: %d sent, %d received, %d work requests, %d doorbells, %d registrations, "
	       "%d calls of write\n",
	       (int)d.own.messages_sent, (int)d.own.messages_received, (int)d.own.work_requests,
	       (int)d.own.doorbells, (int)d.own.registrations, (int)d.server.messages_sent,
	       (int)d.server.messages_received, (int)d.server.work_requests,
	       (int)d.server.doorbells, (int)d.server.registrations, (int)d.writes);
	return d;
}

/* ---- accesses ---- */

static struct iovec pieces[PIECES];
static struct sheaf_extent extents[PIECES];
static size_t n_extents;

/* Every other 2 KiB of memory; in the file one extent, or every other 2 KiB as well. */
static void scatter(bool in_file)
{
	static uint8_t *memory;

	if (!memory) /* static memory may have a page of the program's file, which is not cached */
		memory = malloc(2 * TOTAL);
	CHECK(memory);
	for (size_t i = 0; i < PIECES; i++) {
		pieces[i] = (struct iovec){ memory + 2 * i * PIECE, PIECE };
		extents[i] = (struct sheaf_extent){ 2 * i * PIECE, PIECE };
	}
	n_extents = in_file ? PIECES : 1;
	if (!in_file)
		extents[0] = (struct sheaf_extent){ 0, TOTAL };
}

static void fill(uint64_t seed)
{
	for (size_t i = 0; i < PIECES; i++)
		fill_pattern(pieces[i].iov_base, PIECE, seed, i * PIECE);
}

static void check(uint64_t seed)
{
	for (size_t i = 0; i < PIECES; i++)
		CHECK(is_pattern(pieces[i].iov_base, PIECE, seed, i * PIECE));
}

static void list_write(void)
{
	CHECK_EQ(sheaf_write_list(file, pieces, PIECES, extents, n_extents), TOTAL);
}

static void list_read(void)
{
	CHECK_EQ(sheaf_read_list(file, pieces, PIECES, extents, n_extents), TOTAL);
}

static struct counts one_write(uint64_t seed)
{
	fill(seed);
	return cost_of(list_write);
}

static struct counts one_read(uint64_t seed)
{
	struct counts d;

	fill(0);
	d = cost_of(list_read);
	check(seed);
	return d;
}

static void connect_to(const char *path)
{
	static const struct sheaf_layout one = { .size = sizeof(one), .width = 1 };

	cluster_start(&c);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_RDWR, 0644, &one, &file), 0);
}

static void begin(const char *path)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 1, .timeout = 120, .lease = 120 });
	connect_to(path);
}

static void end(void)
{
	CHECK_EQ(sheaf_close(file), 0);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

/* ---- tests of counts ---- */

static void is_one_exchange(const struct counts *d, uint64_t invitations)
{
	CHECK_EQ(d->requests, 1);
	CHECK_EQ(d->own.messages_sent, 1);
	CHECK_EQ(d->own.messages_received, 1);
	CHECK_EQ(d->server.messages_received, 1);
	CHECK_EQ(d->server.messages_sent, 1 + invitations);
}

static void a_list_read_is_one_request_and_one_chain(void)
{
	struct counts d;

	begin("/read");
	for (int in_file = 0; in_file < 2; in_file++) {
		scatter(in_file);
		CHECK_EQ(sheaf_set_mover(fs, SHEAF_MOVER_GATHER), 0);
		one_write(7);
		one_read(7);
		d = one_read(7);
		is_one_exchange(&d, 0);
		CHECK_EQ(d.own.work_requests, 1);
		CHECK_EQ(d.own.doorbells, 1);
		CHECK(d.server.work_requests <= PIECES + 2);
		CHECK_EQ(d.server.doorbells, 1); /* only its last work request is signalled */
		CHECK(3 * d.writes <= d.server.work_requests); /* with one post each: as many */
		CHECK_EQ(d.server.registrations, 0);
		CHECK_EQ(sheaf_set_mover(fs, SHEAF_MOVER_PACK), 0);
		one_read(7);
		d = one_read(7);
		is_one_exchange(&d, 0);
		CHECK(d.server.work_requests <= 3);
		CHECK_EQ(d.server.doorbells, 1);
		CHECK_EQ(d.own.registrations, 0);
	}
	end();
}

static void a_list_write_is_filled_by_the_client(void)
{
	struct counts d;

	begin("/write");
	for (int in_file = 0; in_file < 2; in_file++) {
		scatter(in_file);
		CHECK_EQ(sheaf_set_mover(fs, SHEAF_MOVER_GATHER), 0);
		one_write(1);
		d = one_write(2);
		is_one_exchange(&d, 1); /* one window */
		CHECK(d.own.work_requests <= (PIECES + SGES_LEAST - 1) / SGES_LEAST + 2);
		CHECK(d.server.work_requests <= 2);
		one_read(2);
	}
	end();
}

/* Does the kernel report that memory is unmapped? Otherwise every access registers anew. */
static bool registrations_stay(void)
{
	struct sheaf_link_costs l = { .size = sizeof(l) };

	CHECK_EQ(sheaf_link_costs(fs, 0, &l), 0);
	CHECK_STR(l.route, "rdma");
	return l.registration == 0;
}

static void memory_that_is_used_again_stays_registered(void)
{
	struct counts d;

	begin("/again");
	scatter(true);
	CHECK_EQ(sheaf_set_mover(fs, SHEAF_MOVER_GATHER), 0);
	one_write(3);
	one_read(3);
	if (!registrations_stay()) {
		printf("  not on this kernel: userfaultfd does not report unmapped memory\n");
		end();
		return;
	}
	for (uint64_t i = 4; i < 8; i++) {
		d = one_write(i);
		CHECK_EQ(d.own.registrations, 0);
		d = one_read(i);
		CHECK_EQ(d.own.registrations, 0);
	}
	end();
}

/* A forked child sees the memory that its parent has registered, and what it writes there stays its
 * own; the parent's registrations still mean the parent's pages. */
static void a_child_has_its_own_copy_of_registered_memory(void)
{
	static uint8_t all[2 * TOTAL];
	struct iovec whole = { all, sizeof(all) };
	struct sheaf_extent e = { 0, sizeof(all) };
	int status;
	pid_t pid;

	begin("/fork");
	CHECK_EQ(sheaf_set_mover(fs, SHEAF_MOVER_GATHER), 0);
	scatter(true);
	one_write(9);
	fill_pattern(all, sizeof(all), 5, 0);
	CHECK_EQ(sheaf_write_list(file, &whole, 1, &e, 1), sizeof(all));
	one_write(9);
	for (int i = 0; i < 3; i++) {
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			check(9);
			fill(99);
			_exit(is_pattern(all, sizeof(all), 5, 0) ? 0 : 3);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
		one_read(9);
		one_write(9);
		pid = child_start("nothing", c.conf, c.dir, NULL);
		CHECK_EQ(process_wait(pid), 0);
	}
	end();
}

/* The mover that the library chooses by itself moves the same bytes. */
static void any_mover_moves_the_same_bytes(void)
{
	begin("/any");
	for (int how = 0; how < SHEAF_MOVERS; how++) {
		printf("  %s\n", sheaf_mover_name((enum sheaf_mover)how));
		CHECK_EQ(sheaf_set_mover(fs, (enum sheaf_mover)how), 0);
		scatter(how % 2);
		one_write((uint64_t)how + 20);
		one_read((uint64_t)how + 20);
	}
	end();
}

/* Where clients must not write into a server's memory, the server reads theirs. */
static void a_server_that_must_not_be_filled_reads(void)
{
	struct counts d;

	cluster_create(&c, &(struct cluster_opts){ .servers = 1, .timeout = 120, .lease = 120 });
	edit_file(c.conf, "[rdma]\n", "[rdma]\nclient_driven = never\n");
	connect_to("/never");
	scatter(false);
	CHECK_EQ(sheaf_set_mover(fs, SHEAF_MOVER_GATHER), 0);
	one_write(1);
	d = one_write(2);
	is_one_exchange(&d, 0);
	CHECK_EQ(d.own.work_requests, 1);
	CHECK(d.server.work_requests > PIECES && d.server.work_requests <= PIECES + 5);
	CHECK_EQ(d.server.registrations, 0);
	one_read(2);
	end();
}

/* ---- a server with many clients ---- */

#define CLIENTS 8
#define BLOCK ((size_t)256 << 10)
#define SHARE 40 /* blocks of each client that are compared */
#define TRIES 5

static struct board {
	atomic_int leave;
	_Atomic uint64_t blocks[CLIENTS];
} * board;

static void board_open(const char *dir)
{
	char path[CLUSTER_PATH];
	int fd;

	snprintf(path, sizeof(path), "%s/board", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, sizeof(*board)) == 0);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(board != MAP_FAILED);
	close(fd);
}

/* A client that writes or reads blocks, DEPTH at a time, until told to leave. Arguments: CONF DIR
 * NUMBER DEPTH WRITE */
static int child(const char *name, char **arg)
{
	int me = atoi(arg[2]), depth = atoi(arg[3]), left = depth;
	bool write = atoi(arg[4]);
	char *b = calloc((size_t)depth, BLOCK), path[32];
	struct sheaf *mine = client_connect(arg[0]);
	struct sheaf_op *op[16] = { NULL };
	struct sheaf_file *f;

	(void)name;
	CHECK(b);
	board_open(arg[1]);
	snprintf(path, sizeof(path), "/f%d", me);
	f = open_file(mine, path, O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_pwrite(f, b, BLOCK, 0), BLOCK);
	for (int i = 0; left; i = (i + 1) % depth) {
		if (op[i]) {
			CHECK_EQ(sheaf_wait(op[i]), BLOCK);
			atomic_fetch_add(&board->blocks[me], 1);
			op[i] = NULL;
		}
		if (atomic_load(&board->leave)) {
			left--;
			continue;
		}
		CHECK_EQ((write ? sheaf_pwrite_start(f, b + (size_t)i * BLOCK, BLOCK, 0, &op[i]) :
				  sheaf_pread_start(f, b + (size_t)i * BLOCK, BLOCK, 0, &op[i])),
			 0);
	}
	for (int i = 0; i < depth; i++)
		CHECK(!op[i] || sheaf_wait(op[i]) == (ssize_t)BLOCK);
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(mine);
	return 0;
}

static void look_at_blocks(uint64_t *to)
{
	for (int i = 0; i < CLIENTS; i++)
		to[i] = atomic_load(&board->blocks[i]);
}

static bool have_moved(const uint64_t *since, uint64_t all, uint64_t each)
{
	uint64_t to[CLIENTS], sum = 0, least = UINT64_MAX;

	look_at_blocks(to);
	for (int i = 0; i < CLIENTS; i++) {
		sum += to[i] - since[i];
		least = to[i] - since[i] < least ? to[i] - since[i] : least;
	}
	return sum >= all && least >= each;
}

/* While all clients together move a number of blocks, each moves at least half of its share, also
 * if others have four times as many requests under way. Few blocks vary: up to TRIES times more of
 * them count. */
static void share(const char *what, int greedy, bool write)
{
	uint64_t from[CLIENTS] = { 0 }, to[CLIENTS];
	struct shares is = { 0 };
	char number[16];
	pid_t pid[CLIENTS];

	memset(board, 0, sizeof(*board));
	for (int i = 0; i < CLIENTS; i++) {
		snprintf(number, sizeof(number), "%d", i);
		pid[i] = child_start("mover", c.conf, c.dir, number, i < greedy ? "16" : "4",
				     write ? "1" : "0", NULL);
	}
	CHECK(WITHIN(4 * PATIENCE_S, have_moved(from, 0, 16)));
	look_at_blocks(from);
	for (int i = 1; i <= TRIES && is.least < 0.5; i++) {
		CHECK(WITHIN(4 * PATIENCE_S, have_moved(from, (uint64_t)i * CLIENTS * SHARE, 0)));
		look_at_blocks(to);
		is = shares_between(from, to, CLIENTS);
	}
	printf("  %s: of %d blocks a client had at least %.2f, at most %.2f of its share, the last %.2f\n",
	       what, (int)is.all, is.least, is.most,
	       (double)(to[CLIENTS - 1] - from[CLIENTS - 1]) * CLIENTS / (double)is.all);
	atomic_store(&board->leave, 1);
	for (int i = 0; i < CLIENTS; i++)
		CHECK_EQ(process_wait(pid[i]), 0);
	CHECK(is.least >= 0.5);
}

static void every_client_has_its_share(void)
{
	begin("/share");
	board_open(c.dir);
	share("reads", 0, false);
	share("writes", 0, true);
	share("reads, one client with fewer at once", CLIENTS - 1, false);
	share("writes, one client with fewer at once", CLIENTS - 1, true);
	end();
}

/* A number in /proc/PID/status of the server, or of one of its threads. */
static uint64_t in_status(const char *path, const char *field)
{
	char *text = read_text(path), *at = strstr(text, field);
	uint64_t n;

	CHECK(at);
	n = strtoull(at + strlen(field), NULL, 10);
	free(text);
	return n;
}

static uint64_t pinned_kib(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)c.pid[0]);
	return in_status(path, "VmPin:");
}

static struct sheaf *working_client(int i)
{
	struct sheaf *one = client_connect(c.conf);
	struct sheaf_file *f;
	char path[32];

	snprintf(path, sizeof(path), "/w%d", i);
	f = open_file(one, path, O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_write_list(f, pieces, PIECES, extents, n_extents), TOTAL);
	CHECK_EQ(sheaf_read_list(f, pieces, PIECES, extents, n_extents), TOTAL);
	CHECK_EQ(sheaf_close(f), 0);
	return one;
}

static void a_client_costs_little_pinned_memory(void)
{
	struct sheaf *more[8];
	uint64_t before, after;

	begin("/pinned");
	scatter(true);
	one_write(1);
	one_read(1);
	before = pinned_kib();
	for (int i = 0; i < 8; i++)
		more[i] = working_client(i);
	after = pinned_kib();
	printf("  pinned by the server: %d KiB for one client, %d KiB for nine\n", (int)before,
	       (int)after);
	CHECK(before > 0);
	CHECK(after - before <= 8 * 256);
	for (int i = 0; i < 8; i++)
		sheaf_disconnect(more[i]);
	end();
}

/* How often the server's threads waited. */
static uint64_t waits(void)
{
	char dir[64], path[400];
	struct dirent *e;
	uint64_t sum = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/task", (int)c.pid[0]);
	d = opendir(dir);
	CHECK(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s/status", dir, e->d_name);
			sum += in_status(path, "\nvoluntary_ctxt_switches:");
		}
	closedir(d);
	return sum;
}

static bool rests(void)
{
	uint64_t before = waits(), after;

	pause_ms(3000);
	after = waits();
	printf("  the server woke up %d times in 3 s\n", (int)(after - before));
	return after - before <= 1; /* a timer of the servers: leases, statistics */
}

static void an_idle_server_sleeps(void)
{
	struct sheaf *more[4];
	int tries = 0;

	begin("/idle");
	scatter(true);
	for (int i = 0; i < 4; i++)
		more[i] = working_client(i);
	while (!rests()) /* background work may not have ended */
		CHECK(++tries < 10);
	for (int i = 0; i < 4; i++)
		sheaf_disconnect(more[i]);
	end();
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(a_list_read_is_one_request_and_one_chain),
		TEST(a_list_write_is_filled_by_the_client),
		TEST(memory_that_is_used_again_stays_registered),
		TEST(a_child_has_its_own_copy_of_registered_memory),
		TEST(any_mover_moves_the_same_bytes),
		TEST(a_server_that_must_not_be_filled_reads),
		TEST(every_client_has_its_share),
		TEST(a_client_costs_little_pinned_memory),
		TEST(an_idle_server_sleeps),
	};

	if (argc > 2 && strcmp(argv[1], "--child") == 0)
		return strcmp(argv[2], "nothing") == 0 ? 0 : child(argv[2], argv + 3);
	if (!getenv("SHEAF_TEST_RDMA") || !getenv("SHEAF_NET"))
		SKIP_ALL("no two RDMA devices: make check-vm has them");
	return test_run(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
