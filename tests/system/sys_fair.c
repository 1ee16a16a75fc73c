/* Clients of a server share it fairly: eight clients that move large blocks, greedy ones beside
 * modest ones, and small reads beside large transfers.
 *
 * The clients are processes that count the bytes they have moved in a page shared with this one,
 * which reads the counters while all clients work, so that starts and ends do not count. The tests
 * always check that every client makes progress, with the right number of bytes. They judge shares
 * and latencies only with SHEAF_JUDGE_SPEED=1, and repeat a measurement some times before it is a
 * failure: other work on the machine changes both.
 *
 * Threads: one in each process; it sleeps in the library or for some milliseconds. */
#include <stdatomic.h>
#include <sys/mman.h>

#include "cluster.h"
#include "shares.h"

#define CLIENTS 8
#define MIB_ (1 << 20)
#define BLOCK (4 * MIB_)
#define SPAN (32 * MIB_) /* size of each client's file */
#define LARGE (64 * MIB_) /* size of the file used by small and large accesses */
#define PIECE 16384 /* of strided accesses, which skip every other piece */
#define DEPTH_MAX 16
#define TRIES 5

enum { REST, WORK, LEAVE };
static struct board {
	atomic_int phase;
	struct {
		_Atomic uint64_t bytes;
		atomic_int rests;
	} row[CLIENTS];
} * board;

/* The access pattern of a client: one block per request, `depth` requests in flight. */
struct habit {
	enum { CONTIG, LIST, TYPED } form;
	bool write;
	int depth;
	size_t block;
	const char *path; /* NULL: a file of its own */
};

static struct cluster c;
static struct sheaf *fs;

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

/* ---- a client ---- */

struct mover {
	struct habit h;
	struct sheaf_file *f;
	char *mem; /* of all its requests; the contents do not matter */
	struct iovec iov;
	struct sheaf_extent ext[BLOCK / PIECE];
	struct sheaf_type *all, *strided;
	uint64_t at, size;
};

static void mover_init(struct mover *m)
{
	struct sheaf_type *piece;
	struct stat st;

	CHECK_EQ(sheaf_fstat(m->f, &st), 0);
	m->size = (uint64_t)st.st_size;
	m->mem = calloc(1, m->h.block);
	CHECK(m->mem);
	m->iov = (struct iovec){ m->mem, m->h.block };
	for (size_t i = 0; i < BLOCK / PIECE; i++)
		m->ext[i] = (struct sheaf_extent){ 2 * i * PIECE, PIECE };
	CHECK_EQ(sheaf_type_bytes(m->h.block, &m->all), 0);
	CHECK_EQ(sheaf_type_bytes(PIECE, &piece), 0);
	CHECK_EQ(sheaf_type_vector(m->h.block / PIECE, 1, 2 * PIECE, piece, &m->strided), 0);
	sheaf_type_free(piece);
}

static struct sheaf_op *begin(struct mover *m)
{
	uint64_t reach = m->h.form == CONTIG ? m->h.block : 2 * m->h.block;
	uint64_t at = m->at + reach <= m->size ? m->at : 0;
	bool wr = m->h.write;
	struct sheaf_op *op = NULL;
	int r;

	m->at = at + reach;
	switch (m->h.form) {
	case CONTIG:
		r = wr ? sheaf_pwrite_start(m->f, m->mem, m->h.block, (off_t)at, &op) :
			 sheaf_pread_start(m->f, m->mem, m->h.block, (off_t)at, &op);
		break;
	case LIST:
		r = (wr ? sheaf_write_list_start : sheaf_read_list_start)(m->f, &m->iov, 1, m->ext,
									  BLOCK / PIECE, &op);
		break;
	default:
		r = wr ? sheaf_write_typed_start(m->f, m->mem, m->all, 1, at, m->strided, &op) :
			 sheaf_read_typed_start(m->f, m->mem, m->all, 1, at, m->strided, &op);
	}
	CHECK_EQ(r, 0);
	return op;
}

static void move_until_told(struct mover *m, int me)
{
	struct sheaf_op *ops[DEPTH_MAX];
	int left = m->h.depth;

	for (int i = 0; i < m->h.depth; i++)
		ops[i] = begin(m);
	for (int i = 0; left; i = (i + 1) % m->h.depth) {
		if (!ops[i])
			continue;
		CHECK_EQ(sheaf_wait(ops[i]), (ssize_t)m->h.block);
		atomic_fetch_add(&board->row[me].bytes, m->h.block);
		ops[i] = atomic_load(&board->phase) == WORK ? begin(m) : NULL;
		left -= !ops[i];
	}
}

/* Arguments: NUMBER PATH FORM WRITE DEPTH BLOCK, in DIR with CONF */
static int child(const char *name, char **arg)
{
	struct mover m = { .h = { .form = (unsigned)atoi(arg[4]),
				  .write = atoi(arg[5]),
				  .depth = atoi(arg[6]),
				  .block = (size_t)atol(arg[7]) } };
	int me = atoi(arg[2]), phase;
	struct sheaf *conn = client_connect(arg[1]);

	(void)name;
	board_open(arg[0]);
	m.f = open_file(conn, arg[3], O_RDWR);
	mover_init(&m);
	while ((phase = atomic_load(&board->phase)) != LEAVE) {
		atomic_store(&board->row[me].rests, phase == REST);
		if (phase == WORK)
			move_until_told(&m, me);
		else
			pause_ms(2);
	}
	CHECK_EQ(sheaf_close(m.f), 0);
	sheaf_disconnect(conn);
	return 0;
}

/* ---- the observer ---- */

static pid_t pids[CLIENTS];

static bool all_rest(int n)
{
	for (int i = 0; i < n; i++)
		if (!atomic_load(&board->row[i].rests))
			return false;
	return true;
}

static void look(int n, uint64_t *bytes)
{
	for (int i = 0; i < n; i++)
		bytes[i] = atomic_load(&board->row[i].bytes);
}

static bool all_moved(int n, const uint64_t *since)
{
	uint64_t now[CLIENTS];

	look(n, now);
	for (int i = 0; i < n; i++)
		if (now[i] == since[i])
			return false;
	return true;
}

static void rest(int n)
{
	atomic_store(&board->phase, REST);
	CHECK(WITHIN(PATIENCE_S, all_rest(n)));
}

/* Starts the clients and waits until all of them have moved data; they continue. */
static void work(int n)
{
	uint64_t before[CLIENTS];

	look(n, before);
	atomic_store(&board->phase, WORK);
	CHECK(WITHIN(PATIENCE_S, all_moved(n, before)));
}

static void clients_start(const struct habit *h, int n)
{
	char own[32], text[5][32];

	memset(board, 0, sizeof(*board));
	for (int i = 0; i < n; i++) {
		snprintf(own, sizeof(own), "/f%d", i);
		snprintf(text[0], sizeof(text[0]), "%d", i);
		snprintf(text[1], sizeof(text[1]), "%d", h[i].form);
		snprintf(text[2], sizeof(text[2]), "%d", h[i].write);
		snprintf(text[3], sizeof(text[3]), "%d", h[i].depth);
		snprintf(text[4], sizeof(text[4]), "%zu", h[i].block);
		pids[i] = child_start("mover", c.dir, c.conf, text[0], h[i].path ? h[i].path : own,
				      text[1], text[2], text[3], text[4], NULL);
	}
	rest(n);
}

static void clients_end(int n)
{
	atomic_store(&board->phase, LEAVE);
	for (int i = 0; i < n; i++)
		CHECK_EQ(process_wait(pids[i]), 0);
}

/* ---- shares ---- */

/* The first `greedy` clients have one access pattern, the rest another: each must get at least half
 * of an eighth. A mix of readers and writers may get less, since a written byte takes more time. */
static void share(const char *what, int greedy, struct habit g, struct habit m)
{
	double need = g.write == m.write ? 0.5 : 0.4, began;
	struct habit h[CLIENTS];
	struct shares is = { 0 };
	uint64_t from[CLIENTS], to[CLIENTS];

	for (int i = 0; i < CLIENTS; i++)
		h[i] = i < greedy ? g : m;
	clients_start(h, CLIENTS);
	work(CLIENTS);
	look(CLIENTS, from);
	began = now_s();
	for (int i = 0; i < (judges_speed() ? TRIES : 1) && is.least < need; i++) {
		pause_ms(1000);
		look(CLIENTS, to);
		is = shares_between(from, to, CLIENTS);
	}
	printf("  %s: %.0f MiB/s; least %.2f, most %.2f of an eighth\n", what,
	       (double)is.all / MIB_ / (now_s() - began), is.least, is.most);
	clients_end(CLIENTS);
	CHECK(!judges_speed() || is.least >= need);
}

static void clients_that_do_the_same_get_the_same(void)
{
	struct habit one = { .form = CONTIG, .depth = 1, .block = BLOCK };
	struct habit eight = { .form = CONTIG, .depth = 8, .block = BLOCK };
	struct habit list = { .form = LIST, .depth = 8, .block = BLOCK };
	struct habit typed = { .form = TYPED, .write = true, .depth = 8, .block = BLOCK };

	share("one read at a time", 0, one, one);
	share("8 reads in flight", 0, eight, eight);
	eight.write = true;
	share("8 writes in flight", 0, eight, eight);
	share("8 strided lists in flight", 0, list, list);
	share("8 typed writes in flight", 0, typed, typed);
}

static void greedy_clients_leave_modest_ones_their_share(void)
{
	struct habit r16 = { .form = CONTIG, .depth = 16, .block = BLOCK }, w16 = r16, r1 = r16, w1;

	r1.depth = 1;
	w16.write = true;
	w1 = r1;
	w1.write = true;
	share("7 with 16 reads, 1 with a read", 7, r16, r1);
	share("7 with 16 reads, 1 with a write", 7, r16, w1);
	share("4 with 16 reads, 4 with a read", 4, r16, r1);
	share("4 with 16 writes, 4 with a write", 4, w16, w1);
	share("4 with 16 writes, 4 with a read", 4, w16, r1);
}

/* ---- small accesses beside large ones ---- */

#define READS 400

/* How long a process has waited for a processor, in seconds; 0 if the kernel does not tell. */
static double waited(pid_t pid)
{
	unsigned long long run = 0, wait = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &run, &wait) != 2)
		wait = 0;
	fclose(f);
	return (double)wait * 1e-9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The 99th percentile of small reads: without the time that this process or the server waited for a
 * processor, since a real large client has processors of its own; and, in by_clock, with it. */
static double p99(struct sheaf_file *f, size_t len, int server, double *by_clock)
{
	double t[READS], clock[READS];
	char b[4096];

	for (int i = 0; i < READS; i++) {
		double idle = waited(getpid()) + waited(c.pid[server]), at = now_s();

		CHECK_EQ(sheaf_pread(f, b, len, i % 256 * 4096L), (ssize_t)len);
		t[i] = clock[i] = now_s() - at;
		idle = waited(getpid()) + waited(c.pid[server]) - idle;
		if (idle > 20e-6) /* a wake-up, too, takes some microseconds of waiting */
			t[i] = t[i] > idle + 10e-6 ? t[i] - idle : 10e-6;
	}
	qsort(t, READS, sizeof(t[0]), by_value);
	qsort(clock, READS, sizeof(clock[0]), by_value);
	*by_clock = clock[READS * 99 / 100];
	return t[READS * 99 / 100];
}

static uint64_t moved_by(int server)
{
	struct sheaf_server s = server_status(fs, server);

	return s.bytes_read + s.bytes_written;
}

/* Measures alone and beside the large client in turns; judges the median of the ratios. */
static void beside(const char *what, struct habit h, size_t len)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };
	struct sheaf_file *f = open_file(fs, "/large", O_RDONLY);
	double ratio[2 * TRIES], a = 0, b = 0, clock_a = 0, clock_b = 0, median = 1e9;
	uint64_t moved;
	int server;

	CHECK_EQ(sheaf_get_layout(fs, "/large", &l), 0);
	CHECK_EQ(l.width, 1);
	server = (int)l.servers[0];
	h.path = "/large";
	clients_start(&h, 1);
	for (int n = 0; n < (judges_speed() ? 2 * TRIES : 1) && (n < 3 || median > 5); n++) {
		rest(1);
		a = p99(f, len, server, &clock_a);
		work(1);
		moved = moved_by(server);
		b = p99(f, len, server, &clock_b);
		CHECK(moved_by(server) > moved + READS * len); /* a transfer was active */
		ratio[n] = b / a;
		qsort(ratio, (size_t)n + 1, sizeof(ratio[0]), by_value);
		median = ratio[n / 2];
	}
	printf("  %zu bytes beside %s: p99 without waits for a processor %.0f us (alone %.0f), median of ratios %.1f; by the clock %.0f (%.0f)\n",
	       len, what, b * 1e6, a * 1e6, median, clock_b * 1e6, clock_a * 1e6);
	clients_end(1);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK(!judges_speed() || median <= 5);
}

static void small_reads_do_not_wait_for_large_transfers(void)
{
	struct habit one = { .form = CONTIG, .depth = 1, .block = BLOCK };
	struct habit many = { .form = CONTIG, .depth = 8, .block = LARGE };

	beside("reads of 4 MiB", one, 1);
	beside("8 reads of 64 MiB", many, 4096);
	one.write = many.write = true;
	beside("writes of 4 MiB", one, 4096);
	beside("8 writes of 64 MiB", many, 1);
}

/* ---- */

static void fill(const char *path, size_t n, uint32_t width)
{
	struct sheaf_layout lay = { .size = sizeof(lay), .width = width };
	char *b = calloc(1, n);
	struct sheaf_file *f;

	CHECK(b);
	CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_RDWR, 0644, &lay, &f), 0);
	CHECK_EQ(sheaf_pwrite(f, b, n, 0), (ssize_t)n);
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

static void begin_all(void)
{
	char path[32];

	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	cluster_create(&c,
		       &(struct cluster_opts){
			       .servers = 4, .stripe_unit = 262144, .timeout = 20, .lease = 20 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	board_open(c.dir);
	for (int i = 0; i < CLIENTS; i++) {
		snprintf(path, sizeof(path), "/f%d", i);
		fill(path, SPAN, 0);
	}
	fill("/large", LARGE, 1);
}

static void end_all(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin_all, end_all, TEST(clients_that_do_the_same_get_the_same),
	 TEST(greedy_clients_leave_modest_ones_their_share),
	 TEST(small_reads_do_not_wait_for_large_transfers))
