/* kill -9 of either side in mid-transfer, in turn: a server under two clients, and one of the two
 * clients. Both clients write and read scattered memory without a pause and compare every byte.
 * Neither sees an error while a server is dead, and the other continues when one is killed; what a
 * killed client wrote last is there completely or not at all in each piece, and the servers free
 * what they held for it.
 *
 *     sys_kill_transfer [--rounds N]
 *
 * Threads: the main thread of each process. */
#include <sys/mman.h>

#include "base/base.h"
#include "cluster.h"

#define CLIENTS 2
#define PIECES 128
#define PIECE 4096
#define BYTES ((size_t)PIECES * PIECE)
#define LEASE patient(3)

static struct cluster c;
static struct sheaf *fs;

/* What a client says while it works; in memory that it shares with this process. */
static struct progress {
	_Atomic uint64_t done; /* writes that were read back and compared */
	_Atomic uint64_t version; /* of the write in progress, or the last one */
} * progress;

/* ---- a client ---- */

/* The first bytes of a piece. */
struct mark {
	uint64_t version, piece;
};

/* The pieces are apart in memory, so that each is a range of its own. */
static uint8_t *place(uint8_t *memory, size_t piece)
{
	return memory + piece * (PIECE + 4096);
}

static void fill(uint8_t *memory, uint64_t version)
{
	for (size_t i = 0; i < PIECES; i++) {
		memset(place(memory, i), (int)(version * 7 + i), PIECE);
		memcpy(place(memory, i), &(struct mark){ version, i }, sizeof(struct mark));
	}
}

/* All bytes of a piece are those of one version, which is returned. */
static uint64_t version_of(const uint8_t *piece, size_t i)
{
	uint8_t expected[PIECE];
	struct mark m;

	memcpy(&m, piece, sizeof(m));
	CHECK_EQ(m.piece, i);
	memset(expected, (int)(m.version * 7 + i), PIECE);
	CHECK(memcmp(piece + sizeof(m), expected, PIECE - sizeof(m)) == 0);
	return m.version;
}

static void list_of(uint8_t *memory, struct iovec *mem, struct sheaf_extent *ext)
{
	for (size_t i = 0; i < PIECES; i++) {
		mem[i] = (struct iovec){ place(memory, i), PIECE };
		ext[i] = (struct sheaf_extent){ i * 2 * PIECE, PIECE }; /* every other one */
	}
}

static void open_progress(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, CLIENTS * sizeof(*progress)), 0);
	progress =
		mmap(NULL, CLIENTS * sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(progress != MAP_FAILED);
	close(fd);
}

/* Works until it is killed. Arguments: the cluster file, the shared memory, its number. */
static int child(const char *name, char **arg)
{
	struct progress *p;
	struct sheaf_extent ext[PIECES];
	struct iovec out[PIECES], in[PIECES];
	uint8_t *written = malloc(PIECES * (PIECE + 4096)), *got = malloc(PIECES * (PIECE + 4096));
	struct sheaf *mine = client_connect(arg[0]);
	struct sheaf_file *f;
	char path[32];

	(void)name;
	open_progress(arg[1]);
	p = &progress[atoi(arg[2])];
	snprintf(path, sizeof(path), "/file%s", arg[2]);
	f = open_file(mine, path, O_CREAT | O_RDWR);
	CHECK(written && got);
	list_of(written, out, ext);
	list_of(got, in, ext);
	while (true) {
		p->version++;
		fill(written, p->version);
		CHECK_EQ(sheaf_write_list(f, out, PIECES, ext, PIECES), BYTES);
		memset(got, 0, PIECES * (PIECE + 4096));
		CHECK_EQ(sheaf_read_list(f, in, PIECES, ext, PIECES), BYTES);
		for (size_t i = 0; i < PIECES; i++)
			CHECK_EQ(version_of(place(got, i), i), p->version);
		p->done++;
	}
	return 0;
}

/* ---- rounds ---- */

static pid_t client[CLIENTS];
static char shared[CLUSTER_PATH];

static void client_begin(int i)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", i);
	client[i] = child_start("work", c.conf, shared, number, NULL);
}

/* Each client has written and read more often than before. */
static void all_work(int times)
{
	for (int i = 0; i < CLIENTS; i++) {
		uint64_t before = progress[i].done;

		CHECK(WITHIN(PATIENCE_S, progress[i].done >= before + (uint64_t)times));
	}
}

/* What the killed client was writing is there piece by piece, in the last version or the one before
 * it. */
static void look_at_file(int i)
{
	static uint8_t got[PIECES * (PIECE + 4096)];
	struct sheaf_extent ext[PIECES];
	struct iovec in[PIECES];
	uint64_t last = progress[i].version;
	struct sheaf_file *f;
	char path[32];

	snprintf(path, sizeof(path), "/file%d", i);
	f = open_file(fs, path, O_RDONLY);
	list_of(got, in, ext);
	CHECK_EQ(sheaf_read_list(f, in, PIECES, ext, PIECES), BYTES);
	for (size_t k = 0; k < PIECES; k++) {
		uint64_t v = version_of(place(got, k), k);

		CHECK(v == last || v + 1 == last);
	}
	CHECK_EQ(sheaf_close(f), 0);
}

static void kill_client(int i)
{
	CHECK_EQ(kill(client[i], SIGKILL), 0);
	CHECK_EQ(process_wait(client[i]), 256 + SIGKILL);
	look_at_file(i);
	client_begin(i);
}

static void kill_server(int i)
{
	server_kill(&c, i);
	CHECK_EQ(server_up(&c, i), 0);
}

static bool is_free(void)
{
	for (int i = 0; i < c.n; i++) {
		struct sheaf_server s = server_status(fs, i);

		if (s.in_service > 1 || s.pool_free != s.pool_bytes)
			return false;
	}
	return true;
}

static int rounds;

static void either_side_may_die_in_mid_transfer(void)
{
	uint64_t rnd = 1;

	snprintf(shared, sizeof(shared), "%s/progress", c.dir);
	open_progress(shared);
	for (int i = 0; i < CLIENTS; i++)
		client_begin(i);
	for (int i = 0; i < rounds; i++) {
		all_work(1);
		pause_ms((int)(test_random(&rnd) % (uint64_t)patient(50)));
		if (i % 2)
			kill_server(i / 2 % c.n);
		else
			kill_client(i / 2 % CLIENTS);
		if (i % 20 == 19)
			printf("  %d of %d rounds\n", i + 1, rounds);
		fflush(stdout);
	}
	all_work(1);
	for (int i = 0; i < CLIENTS; i++) {
		CHECK_EQ(kill(client[i], SIGKILL), 0);
		CHECK_EQ(process_wait(client[i]), 256 + SIGKILL);
	}
	CHECK(WITHIN(PATIENCE_S, is_free()));
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .stripe_unit = 65536,
						   .lease = (uint32_t)LEASE,
						   .timeout = (uint32_t)patient(30) });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { TEST(either_side_may_die_in_mid_transfer) };

	rounds = getenv("SHEAF_TEST_LONG") ? 200 : 20;
	if (argc == 3 && strcmp(argv[1], "--rounds") == 0) {
		rounds = atoi(argv[2]);
		argc = 1;
	}
	return sys_run(child, begin, end, tests, ARRAY_LEN(tests), argc, argv);
}
