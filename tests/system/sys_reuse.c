/* Memory that is used again at once after a transfer has timed out. The servers are stopped in the
 * middle of the transfers of many clients. When their calls have failed, the clients write other
 * data there, and the servers continue. None of the servers' data may land there then, and nothing
 * of the new contents may reach a file. */
#include <pthread.h>

#include "base/base.h"
#include "cluster.h"

#define CLIENTS_MAX 20
#define CLIENTS MIN(CLIENTS_MAX, scaled(50))
#define ROUNDS 10
#define BYTES ((size_t)4 << 20)
#define REUSED 0xee /* the files never have it */
#define TIMEOUT patient(1) /* seconds */

static struct cluster c;
static pthread_barrier_t barrier;
static int early; /* transfers that timed out */

struct user {
	pthread_t thread;
	int number;
	uint8_t *memory;
	struct sheaf *fs;
	struct sheaf_file *file;
};

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .timeout = (uint32_t)TIMEOUT,
						   .lease = (uint32_t)patient(10) });
	cluster_start(&c);
}

static void end(void)
{
	cluster_stop(&c);
}

static void check_memory(const struct user *u)
{
	for (size_t i = 0; i < BYTES; i++)
		CHECK_EQ(u->memory[i], REUSED);
}

/* One transfer, during which the main thread stops the servers. */
static void transfer(struct user *u, int round)
{
	bool write = (u->number + round) % 2;
	ssize_t r;

	memset(u->memory, 1 + round, BYTES);
	pthread_barrier_wait(&barrier);
	if (write)
		r = sheaf_pwrite(u->file, u->memory, BYTES, 0);
	else
		r = sheaf_pread(u->file, u->memory, BYTES, 0);
	CHECK(r == (ssize_t)BYTES || r < 0);
	if (r < 0)
		__atomic_fetch_add(&early, 1, __ATOMIC_RELAXED);
	for (size_t i = 0; r > 0 && !write && i < BYTES; i++)
		CHECK(u->memory[i] != REUSED);
	memset(u->memory, REUSED, BYTES);
	pthread_barrier_wait(&barrier); /* the servers continue */
	pthread_barrier_wait(&barrier);
	check_memory(u);
}

static void *run(void *arg)
{
	struct user *u = arg;

	for (int i = 0; i < ROUNDS; i++)
		transfer(u, i);
	return NULL;
}

static void user_start(struct user *u, int number)
{
	char path[32];

	u->number = number;
	u->memory = malloc(BYTES);
	CHECK(u->memory);
	memset(u->memory, 99, BYTES);
	snprintf(path, sizeof(path), "/file%d", number);
	CHECK_EQ(sheaf_connect(c.conf, &u->fs), 0);
	CHECK_EQ(sheaf_open(u->fs, path, O_CREAT | O_RDWR, 0644, NULL, &u->file), 0);
	CHECK_EQ(sheaf_pwrite(u->file, u->memory, BYTES, 0), BYTES);
}

static void user_end(struct user *u)
{
	CHECK_EQ(pthread_join(u->thread, NULL), 0);
	CHECK_EQ(sheaf_pread(u->file, u->memory, BYTES, 0), BYTES);
	for (size_t i = 0; i < BYTES; i++)
		CHECK(u->memory[i] != REUSED);
	sheaf_close(u->file);
	sheaf_disconnect(u->fs);
	free(u->memory);
}

static void signal_servers(int sig)
{
	for (int i = 0; i < c.n; i++)
		CHECK_EQ(kill(c.pid[i], sig), 0);
}

static void memory_of_a_transfer_that_timed_out_is_left_alone(void)
{
	static struct user users[CLIENTS_MAX];
	uint64_t rnd = 1;

	CHECK_EQ(pthread_barrier_init(&barrier, NULL, (unsigned)CLIENTS + 1), 0);
	for (int i = 0; i < CLIENTS; i++)
		user_start(&users[i], i);
	for (int i = 0; i < CLIENTS; i++)
		CHECK_EQ(pthread_create(&users[i].thread, NULL, run, &users[i]), 0);
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&barrier);
		usleep((useconds_t)(test_random(&rnd) % (uint64_t)patient(15000)));
		signal_servers(SIGSTOP);
		pthread_barrier_wait(&barrier);
		signal_servers(SIGCONT);
		usleep(30000); /* time for a wrong byte to arrive */
		pthread_barrier_wait(&barrier);
	}
	for (int i = 0; i < CLIENTS; i++)
		user_end(&users[i]);
	printf("  %d of %d transfers timed out\n", early, CLIENTS * ROUNDS);
	CHECK(early > 0);
}

SYS_MAIN(NULL, begin, end, TEST(memory_of_a_transfer_that_timed_out_is_left_alone))
