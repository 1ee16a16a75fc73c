/* Workers and the file engine: inline, io_uring and worker give the same results on tmpfs and on
 * the file system of the current directory. */
#include <fcntl.h>

#include "core/env_real.h"

#include "test_req.h"

static struct loop loop;
static int dir;

/* ---- worker ---- */

struct count_job {
	struct job job;
	int number;
	struct worker *again; /* if set, done() submits the job once more */
};

static int ran[64], n_ran, n_done;

static void count_run(struct job *j)
{
	/* there is one worker, so no race */
	ran[n_ran++] = container_of(j, struct count_job, job)->number;
}

static void count_done(struct job *j)
{
	struct count_job *c = container_of(j, struct count_job, job);
	struct worker *w = c->again;

	n_done++;
	c->again = NULL;
	if (w)
		env_real()->exec->worker_submit(w, j);
}

static void start_jobs(struct worker **w, struct count_job *jobs, int n)
{
	const struct exec_ops *x = env_real()->exec;

	n_ran = n_done = 0;
	CHECK_EQ(x->worker_start(env_real(), &loop, "test", w), 0);
	for (int i = 0; i < n; i++) {
		jobs[i] = (struct count_job){ .job.run = count_run,
					      .job.done = count_done,
					      .number = i };
		jobs[i].again = i == n - 1 ? *w : NULL;
		x->worker_submit(*w, &jobs[i].job);
	}
}

static void a_worker_runs_jobs_in_order_and_reports_on_the_loop(void)
{
	struct count_job jobs[20];
	struct worker *w;

	CHECK_EQ(loop_init(&loop, env_real()), 0);
	start_jobs(&w, jobs, 20);
	while (n_done < 21)
		loop_turn(&loop, NSEC_PER_SEC);
	for (int i = 0; i < 20; i++)
		CHECK_EQ(ran[i], i);
	CHECK_EQ(ran[20], 19);
	env_real()->exec->worker_stop(w);
	loop_fini(&loop);
}

static void stopping_a_worker_finishes_what_is_queued(void)
{
	struct count_job jobs[20];
	struct worker *w;

	CHECK_EQ(loop_init(&loop, env_real()), 0);
	start_jobs(&w, jobs, 20);
	env_real()->exec->worker_stop(w);
	CHECK_EQ(n_done, 21);
	CHECK_EQ(n_ran, 21);
	loop_fini(&loop);
}

/* ---- engine ---- */

static void submit(struct test_req *t, struct req *q)
{
	struct io *io = t->arg;

	io->q = q;
	io_submit(&loop, io);
}

static int run(struct io *io)
{
	return test_req_run(&loop, submit, io);
}

static int make_file(const char *name)
{
	struct io io = { .kind = IO_OPEN, .fd = dir, .path = name, .flags = O_RDWR | O_CREAT };

	CHECK_EQ(run(&io), 0);
	return (int)io.bytes;
}

#define PIECES 700
#define PIECE 1000

/* More pieces than one system call takes; the read uses them in reverse order. */
static void scattered_pieces_come_back(int fd)
{
	static uint8_t out[PIECES * PIECE], in[PIECES * PIECE + 50];
	static struct iovec iov[PIECES], back[PIECES];
	struct io w = { .kind = IO_WRITE, .fd = fd, .iov = iov, .n = PIECES, .off = 123 };
	struct io r = { .kind = IO_READ, .fd = fd, .iov = back, .n = PIECES, .off = 123 };
	uint64_t seed = 3;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)test_random(&seed);
	for (size_t i = 0; i < PIECES; i++) {
		iov[i] = (struct iovec){ out + i * PIECE, PIECE };
		back[PIECES - 1 - i] = (struct iovec){ in + i * PIECE, PIECE };
	}
	CHECK_EQ(run(&w), 0);
	CHECK_EQ(w.bytes, sizeof(out));
	CHECK_EQ(run(&r), 0);
	CHECK_EQ(r.bytes, sizeof(out));
	for (size_t i = 0; i < PIECES; i++)
		CHECK(memcmp(out + i * PIECE, back[i].iov_base, PIECE) == 0);
}

static void a_read_stops_at_the_end(int fd)
{
	char buf[100];
	struct iovec iov = { buf, sizeof(buf) };
	struct io r = { .kind = IO_READ, .fd = fd, .iov = &iov, .n = 1 };

	r.off = 123 + PIECES * PIECE - 40;
	CHECK_EQ(run(&r), 0);
	CHECK_EQ(r.bytes, 40);
	r.off += 1000;
	CHECK_EQ(run(&r), 0);
	CHECK_EQ(r.bytes, 0);
}

static void errors_are_reported(int fd)
{
	char buf[10] = "";
	struct iovec iov = { buf, sizeof(buf) };
	struct io r = { .kind = IO_READ, .fd = 9999, .iov = &iov, .n = 1 };
	struct io w = { .kind = IO_WRITE, .fd = 9999, .iov = &iov, .n = 1 };
	struct io u = { .kind = IO_UNLINK, .fd = dir, .path = "nobody" };
	struct io o = { .kind = IO_OPEN, .fd = dir, .path = "nobody", .flags = O_RDONLY };

	(void)fd;
	CHECK_EQ(run(&r), -EBADF);
	CHECK_EQ(run(&w), -EBADF);
	CHECK_EQ(run(&u), -ENOENT);
	CHECK_EQ(run(&o), -ENOENT);
}

static int call_me(struct env *e, struct io *io)
{
	(void)e;
	io->bytes = 42;
	return *(int *)io->arg;
}

static void the_other_kinds_work(int fd)
{
	struct io s = { .kind = IO_SYNC, .fd = fd }, d = { .kind = IO_SYNC, .fd = dir };
	struct io t = { .kind = IO_TRUNCATE, .fd = fd, .off = 10 };
	struct io u = { .kind = IO_UNLINK, .fd = dir, .path = "file" };
	int want = 0;
	struct io c = { .kind = IO_CALL, .call = call_me, .arg = &want };
	struct stat st;

	CHECK_EQ(run(&s), 0);
	CHECK_EQ(run(&d), 0);
	CHECK_EQ(run(&t), 0);
	CHECK_EQ(fstat(fd, &st), 0);
	CHECK_EQ(st.st_size, 10);
	CHECK_EQ(run(&u), 0);
	CHECK_EQ(run(&c), 0);
	CHECK_EQ(c.bytes, 42);
	want = -EDOM;
	CHECK_EQ(run(&c), -EDOM);
}

/* More accesses at once than the ring has entries. */
static void many_at_once(struct test_req *t, struct req *q)
{
	static struct io ios[1000];
	static uint64_t words[1000];
	static struct iovec iov[1000];
	int fd = *(int *)t->arg;

	for (size_t i = 0; i < 1000; i++) {
		words[i] = i;
		iov[i] = (struct iovec){ &words[i], 8 };
		ios[i] = (struct io){ .kind = IO_WRITE, .fd = fd, .iov = &iov[i], .n = 1, .q = q };
		ios[i].off = i * 8;
		io_submit(&loop, &ios[i]);
	}
}

static void a_flood_is_served(int fd)
{
	struct test_req t;
	uint64_t words[1000];

	test_req_start(&t, &loop, many_at_once, &fd);
	test_req_wait(&t);
	CHECK_EQ(t.error, 0);
	CHECK_EQ(t.bytes, 8000);
	CHECK_EQ(pread(fd, words, sizeof(words), 0), sizeof(words));
	for (size_t i = 0; i < 1000; i++)
		CHECK_EQ(words[i], i);
}

static void engine_works(const char *parent, unsigned forbidden)
{
	const char *path = scratch_dir_make(parent);
	char text[200];
	int fd;

	CHECK_EQ(loop_init(&loop, env_real()), 0);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(dir >= 0);
	CHECK_EQ(engine_forbid(&loop, forbidden), 0);
	CHECK_EQ(env_real()->file->probe(env_real(), &loop, dir, text, sizeof(text)), 0);
	printf("  %s: %s\n", parent, text);
	fd = make_file("file");
	scattered_pieces_come_back(fd);
	a_read_stops_at_the_end(fd);
	a_flood_is_served(fd);
	errors_are_reported(fd);
	the_other_kinds_work(fd);
	close(fd);
	close(dir);
	scratch_dir_remove(path);
}

static void in_memory_everything_is_inline(void)
{
	uint64_t inlined, handed;

	engine_works("/dev/shm", 0);
	file_counters(&loop, &inlined, &handed);
	CHECK(inlined > 1000);
	CHECK(handed < 20); /* opens and calls go to the worker */
	loop_fini(&loop);
}

static void on_the_current_file_system_it_works(void)
{
	engine_works(".", 0);
	loop_fini(&loop);
}

static void without_inline_it_works_in_memory_and_here(void)
{
	engine_works("/dev/shm", ENGINE_NO_INLINE);
	loop_fini(&loop);
	engine_works(".", ENGINE_NO_INLINE);
	loop_fini(&loop);
}

static void without_io_uring_a_worker_does_it_all(void)
{
	uint64_t inlined, handed;

	engine_works(".", ENGINE_NO_INLINE | ENGINE_NO_RING);
	file_counters(&loop, &inlined, &handed);
	CHECK_EQ(inlined, 0);
	CHECK(handed > 1000);
	loop_fini(&loop);
	engine_works("/dev/shm", ENGINE_NO_INLINE | ENGINE_NO_RING);
	loop_fini(&loop);
}

static void add_name(void *arg, const char *name)
{
	strcat(arg, name);
}

static void a_listing_is_sorted(void)
{
	const char *path = scratch_dir_make("/dev/shm");
	const char *const names[] = { "c", "a", "d", "b" };
	struct env *e = env_real();
	char all[64] = "";
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; i < 4; i++)
		CHECK_EQ(e->file->mkdirat(e, fd, names[i], 0700), 0);
	for (int i = 0; i < 2; i++) /* the second read starts at the same offset */
		CHECK_EQ(e->file->list(e, fd, add_name, all), 0);
	CHECK_STR(all, "abcdabcd");
	close(fd);
	scratch_dir_remove(path);
}

static void locks_exclude_each_other(void)
{
	const char *path = scratch_dir_make("/dev/shm");
	struct env *e = env_real();
	char file[600];
	int a, b;

	snprintf(file, sizeof(file), "%s/lock", path);
	a = e->file->openat(e, AT_FDCWD, file, O_RDWR | O_CREAT, 0600);
	b = e->file->openat(e, AT_FDCWD, file, O_RDWR, 0);
	CHECK(a >= 0 && b >= 0);
	CHECK_EQ(e->file->lock(e, a), 0);
	CHECK_EQ(e->file->lock(e, b), -EWOULDBLOCK);
	e->file->close(e, a);
	CHECK_EQ(e->file->lock(e, b), 0);
	e->file->close(e, b);
	scratch_dir_remove(path);
}

TEST_MAIN(TEST(a_worker_runs_jobs_in_order_and_reports_on_the_loop),
	  TEST(stopping_a_worker_finishes_what_is_queued), TEST(in_memory_everything_is_inline),
	  TEST(on_the_current_file_system_it_works),
	  TEST(without_inline_it_works_in_memory_and_here),
	  TEST(without_io_uring_a_worker_does_it_all), TEST(a_listing_is_sorted),
	  TEST(locks_exclude_each_other))
