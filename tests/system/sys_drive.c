/* One thread that serves many tasks: the tasks make calls on a connection that their thread drives,
 * beside threads that make blocking calls. Messages of one turn leave together; servers restart
 * meanwhile. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "cluster.h"

#define TASKS 48
#define ROUNDS 12
#define THREADS 3
#define STACK (256 * 1024)

static struct cluster c;
static struct sheaf *fs;

struct task {
	struct fiber f;
	int number;
	const char *dir;
	int rounds;
	bool ready, over;
};

static struct fiber home;
static struct task tasks[TASKS];
static __thread struct task *running;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int parks;

static void *task_current(void)
{
	return running;
}

static void task_park(void *task)
{
	struct task *t = task;

	parks++;
	fiber_switch(&t->f, &home);
}

/* The driver runs ready tasks after each turn; a wake-up from another thread has to end its
 * wait. */
static void task_resume(void *task)
{
	pthread_mutex_lock(&lock);
	((struct task *)task)->ready = true;
	pthread_mutex_unlock(&lock);
	sheaf_drive_wake(fs);
}

static const struct sheaf_tasks ops = { task_current, task_park, task_resume };

static bool take_ready(struct task *t)
{
	bool yes;

	pthread_mutex_lock(&lock);
	yes = t->ready && !t->over;
	t->ready = false;
	pthread_mutex_unlock(&lock);
	return yes;
}

/* Creates, writes, reads and removes a file. */
static void one_round(const char *dir, int number, int k)
{
	char path[400], new[400];
	uint8_t in_file[5000], out[5000];
	uint64_t seed = (uint64_t)number << 16 | (uint64_t)k;
	struct sheaf_file *f;
	struct stat st;

	snprintf(path, sizeof(path), "%s/t%d.%d", dir, number, k);
	snprintf(new, sizeof(new), "%s/n%d.%d", dir, number, k);
	f = open_file(fs, path, O_RDWR | O_CREAT | O_EXCL);
	fill_pattern(in_file, sizeof(in_file), seed, 0);
	CHECK_EQ(sheaf_pwrite(f, in_file, sizeof(in_file), 0), (ssize_t)sizeof(in_file));
	CHECK_EQ(sheaf_pread(f, out, sizeof(out), 0), (ssize_t)sizeof(out));
	CHECK(is_pattern(out, sizeof(out), seed, 0));
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	CHECK_EQ(st.st_size, (off_t)sizeof(in_file));
	CHECK_EQ(sheaf_rename(fs, path, new), 0);
	CHECK_EQ(sheaf_stat(fs, path, &st), -ENOENT);
	CHECK_EQ(sheaf_unlink(fs, new), 0);
}

static void task_main(void *arg)
{
	struct task *t = arg;

	for (int k = 0; k < t->rounds; k++)
		one_round(t->dir, t->number, k);
	t->over = true;
	fiber_switch(&t->f, &home);
}

static void tasks_begin(const char *dir, int n, int rounds)
{
	for (int i = 0; i < n; i++) {
		tasks[i] =
			(struct task){ .number = i, .dir = dir, .rounds = rounds, .ready = true };
		CHECK_EQ(fiber_init(&tasks[i].f, STACK, task_main, &tasks[i]), 0);
	}
}

/* Runs the tasks that are ready; returns how many have not finished. */
static int run_ready(int n)
{
	int left = 0;

	for (int i = 0; i < n; i++) {
		if (take_ready(&tasks[i])) {
			running = &tasks[i];
			fiber_switch(&home, &tasks[i].f);
			running = NULL;
		}
		left += !tasks[i].over;
	}
	return left;
}

static void drive(int n)
{
	while (run_ready(n))
		CHECK_EQ(sheaf_drive(fs, 0, -1), 0);
	for (int i = 0; i < n; i++)
		fiber_fini(&tasks[i].f);
}

static void drive_begin(int fd)
{
	fiber_of_thread(&home);
	CHECK_EQ(sheaf_drive_begin(fs, &ops, fd), 0);
}

static const char *thread_dir;

static void *blocking(void *arg)
{
	for (int k = 0; k < ROUNDS; k++)
		one_round(thread_dir, 1000 + (int)(intptr_t)arg, k);
	return NULL;
}

static void tasks_of_one_thread_work_side_by_side(void)
{
	int fds[2];

	CHECK_EQ(pipe(fds), 0);
	tasks_begin(fresh_dir(fs), TASKS, ROUNDS);
	drive_begin(fds[0]);
	parks = 0;
	drive(TASKS);
	sheaf_drive_end(fs);
	CHECK(parks > TASKS * ROUNDS * 5);
	close(fds[0]);
	close(fds[1]);
	one_round(fresh_dir(fs), 1, 1); /* blocking calls work again */
}

static void other_threads_wait_beside_them(void)
{
	pthread_t t[THREADS];
	int fds[2];

	CHECK_EQ(pipe(fds), 0);
	thread_dir = fresh_dir(fs);
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, blocking, (void *)i), 0);
	drive_begin(fds[0]); /* while the threads make calls */
	tasks_begin(thread_dir, TASKS / 2, ROUNDS);
	drive(TASKS / 2);
	sheaf_drive_end(fs); /* the threads continue without a driver */
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	close(fds[0]);
	close(fds[1]);
}

static void *write_soon(void *arg)
{
	pause_ms(50);
	CHECK_EQ(write(*(int *)arg, "x", 1), 1);
	return NULL;
}

static void *wake_soon(void *arg)
{
	(void)arg;
	pause_ms(50);
	sheaf_drive_wake(fs);
	return NULL;
}

static void a_wait_ends_with_the_descriptor_a_wake_or_the_time(void)
{
	pthread_t t;
	double began;
	int fds[2];

	CHECK_EQ(pipe(fds), 0);
	drive_begin(fds[0]);
	began = now_s();
	CHECK_EQ(sheaf_drive(fs, 1, 0), 0);
	CHECK(now_s() - began < 30);
	CHECK_EQ(pthread_create(&t, NULL, write_soon, &fds[1]), 0);
	began = now_s();
	while (!sheaf_drive(fs, 1, 60000))
		CHECK(now_s() - began < 30);
	CHECK(now_s() - began < 30);
	pthread_join(t, NULL);
	CHECK_EQ(sheaf_drive(fs, 1, 60000), 1); /* the descriptor is still readable */
	CHECK_EQ(sheaf_drive(fs, 0, 0), 0); /* not reported unless asked for */
	CHECK_EQ(pthread_create(&t, NULL, wake_soon, NULL), 0);
	began = now_s();
	CHECK_EQ(sheaf_drive(fs, 0, 60000), 0);
	CHECK(now_s() - began < 30);
	pthread_join(t, NULL);
	close(fds[1]);
	CHECK_EQ(sheaf_drive(fs, 1, 60000), 1);
	sheaf_drive_end(fs);
	close(fds[0]);
}

static void what_cannot_be_waited_for_is_refused(void)
{
	fiber_of_thread(&home);
	CHECK_EQ(sheaf_drive_begin(fs, &ops, 1 << 20), -EBADF); /* -1: no descriptor */
	one_round(fresh_dir(fs), 2, 2);
}

static void *drive_all(void *dir)
{
	int fds[2];

	CHECK_EQ(pipe(fds), 0);
	drive_begin(fds[0]);
	tasks_begin(dir, TASKS, ROUNDS);
	drive(TASKS);
	sheaf_drive_end(fs);
	close(fds[0]);
	close(fds[1]);
	return NULL;
}

/* A planned restart loses nothing. */
static void servers_may_go_and_come_back(void)
{
	char dir[32];
	pthread_t t;

	snprintf(dir, sizeof(dir), "%s", fresh_dir(fs));
	CHECK_EQ(pthread_create(&t, NULL, drive_all, dir), 0);
	/* in the main thread: servers die with the thread that started them */
	for (int i = 0; i < 4; i++) {
		server_down(&c, i);
		CHECK_EQ(server_up(&c, i), 0);
	}
	pthread_join(t, NULL);
}

static void begin(void)
{
	cluster_create(&c,
		       &(struct cluster_opts){ .servers = 4, .stripe_unit = 4096, .timeout = 30 });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(tasks_of_one_thread_work_side_by_side),
	 TEST(other_threads_wait_beside_them),
	 TEST(a_wait_ends_with_the_descriptor_a_wake_or_the_time),
	 TEST(what_cannot_be_waited_for_is_refused), TEST(servers_may_go_and_come_back))
