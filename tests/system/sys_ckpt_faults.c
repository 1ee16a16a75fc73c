/* Checkpoints while processes, servers and all of it are killed, and on full disks: a restart gets
 * the newest complete checkpoint, bit for bit. SHEAF_TEST_LONG=1: 200 rounds. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include "base/base.h"
#include "ckpt_ranks.h"
#include "small_disk.h"

#define RANKS 3
#define PAGES 150
#define WORDS (4096 / 8) /* of a page */

/* A sanitizer of threads ends processes that forked with several. */
#ifdef __SANITIZE_THREAD__
#define FORKED SHEAF_CKPT_ASYNC
#else
#define FORKED (SHEAF_CKPT_ASYNC | SHEAF_CKPT_FORK)
#endif

static struct cluster c;

/* ---- a job whose memory is determined by its step ---- */

/* What the job tells the test, in shared memory. */
struct told {
	atomic_ullong begun, complete; /* steps: of which a checkpoint was begun, and returned 0 */
	atomic_uint restored; /* processes */
	uint32_t flags;
};

static struct told *told;
static uint64_t memory[PAGES * WORDS] __attribute__((aligned(4096)));
static uint64_t step;

static bool changes_in(unsigned page, uint64_t s)
{
	return s == 1 || hash_u64(page * 1000003ULL + s) % 5 == 0;
}

static uint64_t word_of(int rank, unsigned page, unsigned word, uint64_t s)
{
	return s * 1000000007ULL + page * 4099ULL + word * 17ULL + (unsigned)rank;
}

static void compute(int rank)
{
	step++;
	for (unsigned p = 0; p < PAGES; p++)
		for (unsigned w = 0; changes_in(p, step) && w < WORDS; w++)
			memory[p * WORDS + w] = word_of(rank, p, w, step);
}

static void check_memory(int rank)
{
	for (unsigned p = 0; p < PAGES; p++) {
		uint64_t last = step;

		while (last && !changes_in(p, last))
			last--;
		for (unsigned w = 0; w < WORDS; w++)
			CHECK_EQ(memory[p * WORDS + w], last ? word_of(rank, p, w, last) : 0);
	}
}

static struct sheaf_ckpt *begin_job(const struct sheaf_ckpt_comm *comm, struct sheaf *fs)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o),
					      .flags = told->flags,
					      .timeout_ms = 40000,
					      .chain = 4,
					      .signal_end = SIGUSR2 };
	uint64_t before = atomic_load(&told->complete), most = atomic_load(&told->begun);
	struct sheaf_ckpt *k;
	int r;

	CHECK_EQ(sheaf_ckpt_open(fs, "job", comm, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "step", &step, NULL, sizeof(step)), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "memory", memory, NULL, sizeof(memory)), 0);
	r = sheaf_ckpt_restore(k, NULL);
	if (r)
		printf("restore: %s\n", sheaf_ckpt_why());
	CHECK(r == 0 || (r == -ENOENT && !before));
	CHECK(step >= before && step <= most);
	check_memory(comm->rank);
	return k;
}

static void begin_step(int rank)
{
	compute(rank);
	if (!rank)
		atomic_store(&told->begun, MAX(step, atomic_load(&told->begun)));
}

/* Takes checkpoints until it is warned or killed; those that fail while servers are down are
 * followed by others. */
static int job(const struct sheaf_ckpt_comm *comm, void *arg)
{
	bool async = told->flags & SHEAF_CKPT_ASYNC;
	struct sheaf *fs = client_connect(c.conf);
	struct sheaf_ckpt *k = begin_job(comm, fs);
	int r, failed = 0;

	(void)arg;
	atomic_fetch_add(&told->restored, 1);
	while (!sheaf_ckpt_ending(k)) {
		uint64_t taken;

		begin_step(comm->rank);
		taken = step;
		r = sheaf_ckpt_take(k);
		if (async && !r) {
			begin_step(comm->rank); /* memory changes while it is written */
			r = sheaf_ckpt_wait(k);
		}
		if (!comm->rank && !r)
			atomic_store(&told->complete, taken);
		if (r && ++failed > 20)
			return 1; /* a server was away for a moment only */
		r = sheaf_ckpt_poll(k);
		if (!comm->rank && r == 1)
			atomic_store(&told->complete, step);
	}
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
	return 0;
}

/* ---- kills ---- */

enum { ONE_PROCESS, ALL_PROCESSES, A_SERVER, EVERYTHING, KINDS };

static void kill_ranks(struct ckpt_ranks *r)
{
	for (int i = 0; i < r->n; i++)
		if (r->pid[i])
			kill(r->pid[i], SIGKILL);
	ckpt_ranks_wait(r);
}

static void do_round(uint64_t *seed, int kind)
{
	int server = (int)(test_random(seed) % 2), which = (int)(test_random(seed) % RANKS);
	uint64_t before = atomic_load(&told->complete);
	struct ckpt_ranks r;

	atomic_store(&told->restored, 0);
	ckpt_ranks_start(&r, RANKS, job, NULL);
	CHECK(WITHIN(PATIENCE_S, atomic_load(&told->restored) == RANKS));
	/* sometimes with others complete before, sometimes in the first one */
	if (test_random(seed) % 2)
		CHECK(WITHIN(PATIENCE_S, atomic_load(&told->complete) >= before + 2));
	pause_ms((int)(test_random(seed) % 400));
	if (kind == ONE_PROCESS) {
		kill(r.pid[which], SIGKILL);
		pause_ms((int)(test_random(seed) % 200)); /* until the launcher ends the job */
		kill_ranks(&r);
	} else if (kind == ALL_PROCESSES) {
		kill_ranks(&r);
	} else if (kind == A_SERVER) {
		server_kill(&c, server);
		CHECK_EQ(server_up(&c, server), 0);
		before = atomic_load(&told->complete);
		kill(r.pid[which], SIGUSR2);
		CHECK_EQ(ckpt_ranks_wait(&r), 0);
		CHECK(atomic_load(&told->complete) > before);
	} else {
		for (int i = 0; i < 2; i++)
			server_kill(&c, i);
		kill_ranks(&r);
		cluster_start(&c);
	}
}

static void restarts_get_the_newest_complete_checkpoint(void)
{
	static const uint32_t modes[] = { 0,
					  SHEAF_CKPT_ASYNC | SHEAF_CKPT_INCREMENTAL,
					  SHEAF_CKPT_ONE_FILE,
					  SHEAF_CKPT_INCREMENTAL,
					  SHEAF_CKPT_ASYNC,
					  FORKED,
					  FORKED | SHEAF_CKPT_INCREMENTAL };
	const struct cluster_opts o = { .servers = 2, .timeout = 20, .lease = 1 };
	int rounds = getenv("SHEAF_TEST_LONG") ? 200 : 12;
	uint64_t seed = (uint64_t)getpid();
	struct sheaf *fs;
	struct sheaf_ckpt_info info[16];

	if (getenv("SHEAF_TEST_SEED"))
		seed = strtoull(getenv("SHEAF_TEST_SEED"), NULL, 10);
	printf("    seed %" PRIu64 "\n", seed);
	cluster_create(&c, &o);
	cluster_start(&c);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < rounds; i++) {
		told->flags = modes[i % (int)ARRAY_LEN(modes)];
		do_round(&seed, i % KINDS);
		if (i % 20 == 19) {
			printf("    %d rounds\n", i + 1);
			fflush(stdout);
		}
	}
	printf("    %llu steps, %llu complete\n", (unsigned long long)atomic_load(&told->begun),
	       (unsigned long long)atomic_load(&told->complete));
	do_round(&seed, A_SERVER);
	fs = client_connect(c.conf);
	/* two stay, and what they depend on */
	CHECK(sheaf_ckpt_list(fs, NULL, "job", info, 16) <= 2 + 4);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

/* ---- full disks ---- */

static char data[2 << 20];

static bool may_mount;

static void begin(void)
{
	may_mount = !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static void a_full_disk_leaves_the_previous_checkpoint(void)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o), .keep = 3 };
	struct sheaf_ckpt_info info[8];
	uint64_t number, complete = 0;
	struct cluster small;
	struct sheaf_ckpt *k;
	struct sheaf *fs;
	int r = 0;

	if (!may_mount) {
		puts("    left out: mounting a small tmpfs is not permitted here");
		return;
	}
	small_disk_start(&small, 1, "8m");
	fs = client_connect(small.conf);
	CHECK_EQ(sheaf_ckpt_open(fs, "full", NULL, &o, &k), 0);
	CHECK_EQ(sheaf_ckpt_add(k, "data", data, NULL, sizeof(data)), 0);
	for (char i = 1; !r && i < 6; i++) {
		memset(data, i, sizeof(data));
		r = sheaf_ckpt_take(k);
		complete += !r;
	}
	CHECK_EQ(r, -ENOSPC);
	CHECK(complete >= 2);
	memset(data, 77, sizeof(data));
	CHECK_EQ(sheaf_ckpt_restore(k, &number), 0);
	CHECK_EQ(data[0], (char)complete);
	CHECK_EQ(data[sizeof(data) - 1], (char)complete);
	CHECK_EQ(sheaf_ckpt_list(fs, NULL, "full", info, 8), (int)complete);
	CHECK_EQ(sheaf_ckpt_keep(fs, NULL, "full", 1), (int)complete - 1);
	memset(data, 50, sizeof(data));
	CHECK(WITHIN(PATIENCE_S, sheaf_ckpt_take(k) == 0));
	memset(data, 0, sizeof(data));
	CHECK_EQ(sheaf_ckpt_restore(k, &number), 0);
	CHECK_EQ(data[12345], 50);
	CHECK_EQ(sheaf_ckpt_close(k), 0);
	sheaf_disconnect(fs);
	small_disk_stop(&small);
}

SYS_MAIN(NULL, begin, NULL, TEST(restarts_get_the_newest_complete_checkpoint),
	 TEST(a_full_disk_leaves_the_previous_checkpoint))
