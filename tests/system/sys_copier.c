/* The copier of cp and cat copies all bytes in order, for any size, on one thread or two; also with
 * sources that change, and with targets that fail, block or are cancelled. */
#include <pthread.h>

#include "cli/cli.h"
#include "cluster.h"

#define SIZE_MAX_TESTED (20 * MIB)

static struct cluster c;
static struct sheaf *fs;
static uint8_t *data, *back; /* SIZE_MAX_TESTED each */

/* One copy, on a thread of its own. */
struct copy {
	struct cli_stream from, to;
	uint64_t size;
	struct cli_progress progress;
	bool source;
	int result;
	atomic_bool done;
	pthread_t thread;
};

static void *copy_run(void *arg)
{
	struct copy *y = arg;
	struct cli_copier *k = cli_copier_new();

	CHECK(k);
	y->result = cli_copier_run(k, &y->from, &y->to, y->size, &y->progress, &y->source);
	cli_copier_free(k);
	y->done = true;
	return NULL;
}

static int host_file(size_t n)
{
	char path[CLUSTER_PATH];
	int fd;

	snprintf(path, sizeof(path), "%s/host", c.dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && unlink(path) == 0);
	CHECK_EQ(pwrite(fd, data, n, 0), (ssize_t)n);
	return fd;
}

static struct sheaf_file *inside_file(size_t n)
{
	struct sheaf_file *f = open_file(fs, "/f", O_RDWR | O_CREAT | O_TRUNC);

	CHECK_EQ(sheaf_pwrite(f, data, n, 0), (ssize_t)n);
	return f;
}

static void check_inside(struct sheaf_file *f, size_t n)
{
	CHECK_EQ(sheaf_pread(f, back, SIZE_MAX_TESTED, 0), (ssize_t)n);
	CHECK(memcmp(back, data, n) == 0);
}

static void every_size_arrives_whole(void)
{
	static const size_t sizes[] = {
		0,	     1,	      MIB - 1,	   MIB,		 MIB + 1,      4 * MIB,
		4 * MIB + 1, 5 * MIB, 8 * MIB - 1, 9 * MIB + 77, 12 * MIB + 1, SIZE_MAX_TESTED
	};
	struct cli_copier *k = cli_copier_new(); /* one copier for all copies, as in cp */
	struct cli_progress p = { 0 };
	uint64_t total = 0;
	bool source;

	CHECK(k);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct cli_stream host = { .fd = host_file(sizes[i]) },
				  out = { .fd = host_file(0) };
		struct cli_stream a = { .f = open_file(fs, "/a", O_RDWR | O_CREAT | O_TRUNC) };
		struct cli_stream b = { .f = open_file(fs, "/b", O_RDWR | O_CREAT | O_TRUNC) };

		CHECK_EQ(lseek(host.fd, 0, SEEK_SET), 0);
		CHECK_EQ(cli_copier_run(k, &host, &a, sizes[i], &p, &source), 0);
		check_inside(a.f, sizes[i]);
		CHECK_EQ(cli_copier_run(k, &a, &b, sizes[i], &p, &source), 0);
		check_inside(b.f, sizes[i]);
		CHECK_EQ(cli_copier_run(k, &b, &out, sizes[i], &p, &source), 0);
		CHECK_EQ(pread(out.fd, back, SIZE_MAX_TESTED, 0), (ssize_t)sizes[i]);
		CHECK(memcmp(back, data, sizes[i]) == 0);
		total += 3 * sizes[i];
		CHECK_EQ(p.done, total);
		CHECK_EQ(sheaf_close(a.f) | sheaf_close(b.f) | close(host.fd) | close(out.fd), 0);
	}
	cli_copier_free(k);
}

/* The size given before is only a hint: the whole file is copied. */
static void a_host_file_of_another_size_is_copied_to_its_end(void)
{
	static const size_t said[] = { 0, 9 * MIB, SIZE_MAX_TESTED };

	for (size_t i = 0; i < ARRAY_LEN(said); i++) {
		struct copy y = { .from.fd = host_file(11 * MIB + 5), .size = said[i] };

		y.to.f = open_file(fs, "/a", O_RDWR | O_CREAT | O_TRUNC);
		CHECK_EQ(lseek(y.from.fd, 0, SEEK_SET), 0);
		copy_run(&y);
		CHECK_EQ(y.result, 0);
		check_inside(y.to.f, 11 * MIB + 5);
		CHECK_EQ(sheaf_close(y.to.f) | close(y.from.fd), 0);
	}
}

/* Starts a copy into a pipe that has no reader yet: the copy blocks with 8 blocks in flight. */
static void begin_stuck(struct copy *y, size_t size, int *reader)
{
	struct pollfd ready;
	int p[2];

	CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
	*y = (struct copy){ .from.f = inside_file(size), .to.fd = p[1], .size = size };
	CHECK_EQ(pthread_create(&y->thread, NULL, copy_run, y), 0);
	ready = (struct pollfd){ .fd = p[0], .events = POLLIN };
	CHECK_EQ(poll(&ready, 1, PATIENCE_S * 1000), 1);
	*reader = p[0];
}

/* Waits for the copy and closes its end of the pipe. */
static void end_stuck(struct copy *y)
{
	CHECK_EQ(pthread_join(y->thread, NULL), 0);
	CHECK_EQ(sheaf_close(y->from.f), 0);
	CHECK_EQ(close(y->to.fd), 0);
}

static void read_pipe(int fd, size_t n)
{
	size_t have = 0;
	ssize_t r;

	while (have < n && (r = read(fd, back + have, n - have)) > 0)
		have += (size_t)r;
	CHECK_EQ(have, n);
	CHECK(memcmp(back, data, n) == 0);
}

static void a_file_inside_that_is_cut_ends_where_it_was_cut(void)
{
	struct copy y;
	char more;
	int fd;

	begin_stuck(&y, SIZE_MAX_TESTED, &fd);
	CHECK_EQ(sheaf_ftruncate(y.from.f, 12 * MIB + 12345), 0);
	read_pipe(fd, 12 * MIB + 12345);
	end_stuck(&y);
	CHECK_EQ(y.result, 0);
	CHECK_EQ(read(fd, &more, 1), 0);
	close(fd);
}

static void a_reader_that_leaves_is_an_error_of_the_target(void)
{
	struct copy y;
	int fd;

	begin_stuck(&y, SIZE_MAX_TESTED, &fd);
	read_pipe(fd, MIB + 1);
	close(fd);
	end_stuck(&y);
	CHECK_EQ(y.result, -EPIPE);
	CHECK(!y.source);
}

static void a_cancelled_copy_ends_without_a_reader(void)
{
	static const size_t sizes[] = { 2 * MIB, SIZE_MAX_TESTED };
	struct copy y;
	int fd;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		begin_stuck(&y, sizes[i], &fd);
		y.progress.stop = true;
		CHECK(WITHIN(PATIENCE_S, pthread_kill(y.thread, CLI_INTERRUPT_SIGNAL) || y.done));
		end_stuck(&y);
		CHECK_EQ(y.result, -EINTR);
		close(fd);
	}
}

static void errors_say_whose_they_are(void)
{
	static const size_t sizes[] = { 3 * MIB, SIZE_MAX_TESTED };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct copy full = { .size = sizes[i] }, dir = { .size = sizes[i] };

		full.from.f = dir.to.f = inside_file(sizes[i]);
		full.to.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
		copy_run(&full);
		CHECK_EQ(full.result, -ENOSPC);
		CHECK(!full.source);
		dir.from.fd = open(c.dir, O_RDONLY | O_CLOEXEC);
		copy_run(&dir);
		CHECK_EQ(dir.result, -EISDIR);
		CHECK(dir.source);
		CHECK_EQ(sheaf_close(full.from.f) | close(full.to.fd) | close(dir.from.fd), 0);
	}
}

static void on_poke(int sig)
{
	(void)sig;
}

static void begin(void)
{
	struct sigaction sa = { .sa_handler = on_poke };

	CHECK_EQ(sigaction(CLI_INTERRUPT_SIGNAL, &sa, NULL), 0);
	signal(SIGPIPE, SIG_IGN);
	data = malloc(SIZE_MAX_TESTED);
	back = malloc(SIZE_MAX_TESTED);
	CHECK(data && back);
	fill_pattern(data, SIZE_MAX_TESTED, 7, 0);
	cluster_create(&c, &(struct cluster_opts){ .servers = 2 });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
	free(data);
	free(back);
}

SYS_MAIN(NULL, begin, end, TEST(every_size_arrives_whole),
	 TEST(a_host_file_of_another_size_is_copied_to_its_end),
	 TEST(a_file_inside_that_is_cut_ends_where_it_was_cut),
	 TEST(a_reader_that_leaves_is_an_error_of_the_target),
	 TEST(a_cancelled_copy_ends_without_a_reader), TEST(errors_say_whose_they_are))
