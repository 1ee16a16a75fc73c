/* Appends of several clients to one file: each record is in the file once and in one piece, the
 * size never includes an unfinished record, also when servers and clients are killed. */
#include <pthread.h>
#include <signal.h>
#include <sys/sysmacros.h>

#include "cluster.h"

#define WRITERS 4
#define RECORDS 150
#define RECORD_MAX 3000

static struct cluster c;
static struct sheaf *fs;

/* A record: writer, number, length, then a pattern made of these. */
struct record {
	uint32_t magic, writer, number, length;
};
#define MAGIC 0x41505044u

static size_t record_make(uint8_t *out, uint32_t writer, uint32_t number)
{
	uint32_t len = (uint32_t)sizeof(struct record) +
		       (writer * 7919 + number * 104729) % (RECORD_MAX - 64);
	struct record r = { MAGIC, writer, number, len };

	memcpy(out, &r, sizeof(r));
	fill_pattern(out + sizeof(r), len - sizeof(r), writer * 100000u + number, 0);
	return len;
}

/* Reads the whole file and checks every record. Zeros are the ranges of appends that never
 * completed. */
static void check_log(const char *path, uint32_t seen[WRITERS][RECORDS])
{
	struct sheaf_file *f = open_file(fs, path, O_RDONLY);
	struct stat st;
	uint8_t *b;
	size_t at = 0;

	CHECK_EQ(sheaf_fstat(f, &st), 0);
	b = malloc((size_t)st.st_size + 1);
	CHECK_EQ(sheaf_pread(f, b, (size_t)st.st_size, 0), st.st_size);
	while (at < (size_t)st.st_size) {
		struct record r = { 0 };

		if (!b[at]) {
			at++;
			continue;
		}
		CHECK((size_t)st.st_size - at >= sizeof(r));
		memcpy(&r, b + at, sizeof(r));
		CHECK_EQ(r.magic, MAGIC);
		CHECK(r.writer < WRITERS && r.number < RECORDS);
		CHECK(r.length <= (size_t)st.st_size - at);
		CHECK(is_pattern(b + at + sizeof(r), r.length - sizeof(r),
				 r.writer * 100000u + r.number, 0));
		seen[r.writer][r.number]++;
		at += r.length;
	}
	free(b);
	CHECK_EQ(sheaf_close(f), 0);
}

struct writer {
	pthread_t thread;
	uint32_t number;
	const char *path;
};

static void *write_log(void *arg)
{
	struct writer *w = arg;
	struct sheaf *mine = client_connect(c.conf);
	struct sheaf_file *f = open_file(mine, w->path, O_WRONLY | O_APPEND);
	uint8_t b[RECORD_MAX];
	int closed;

	for (uint32_t i = 0; i < RECORDS; i++) {
		size_t n = record_make(b, w->number, i);

		CHECK_EQ(sheaf_pwrite(f, b, n, 0), (ssize_t)n);
	}
	closed = sheaf_close(f);
	CHECK(closed == 0 || closed == -EIO); /* -EIO: killed before the data were synced */
	sheaf_disconnect(mine);
	return NULL;
}

static void start_writers(struct writer *w, const char *path)
{
	struct sheaf_file *f = open_file(fs, path, O_CREAT | O_WRONLY);

	CHECK_EQ(sheaf_close(f), 0);
	for (uint32_t i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ .number = i, .path = path };
		CHECK_EQ(pthread_create(&w[i].thread, NULL, write_log, &w[i]), 0);
	}
}

static void all_are_there_once(const char *path)
{
	static uint32_t seen[WRITERS][RECORDS];

	memset(seen, 0, sizeof(seen));
	check_log(path, seen);
	for (int i = 0; i < WRITERS; i++)
		for (int k = 0; k < RECORDS; k++)
			CHECK_EQ(seen[i][k], 1);
}

static void records_of_many_clients_stay_whole(void)
{
	const char *path = path_in(fresh_dir(fs), "log");
	struct writer w[WRITERS];
	static uint32_t seen[WRITERS][RECORDS];

	start_writers(w, path);
	/* a concurrent reader sees only whole records */
	for (int i = 0; i < 20; i++) {
		pause_ms(20);
		check_log(path, seen);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(w[i].thread, NULL);
	all_are_there_once(path);
}

static void a_restart_in_between_moves_no_append(void)
{
	const char *path = path_in(fresh_dir(fs), "log");
	struct writer w[WRITERS];

	start_writers(w, path);
	for (int i = 0; i < 4; i++) {
		pause_ms(150);
		server_kill(&c, i);
		pause_ms(30);
		CHECK_EQ(server_up(&c, i), 0);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(w[i].thread, NULL);
	all_are_there_once(path);
}

static void appends_go_behind_what_others_wrote(void)
{
	const char *path = path_in(fresh_dir(fs), "f");
	struct sheaf *other = client_connect(c.conf);
	struct sheaf_file *w = open_file(other, path, O_CREAT | O_RDWR);
	struct sheaf_file *a = open_file(fs, path, O_WRONLY | O_APPEND);
	struct stat st;
	char b[8];

	CHECK_EQ(sheaf_pwrite(a, "one", 3, 0), 3);
	CHECK_EQ(sheaf_pwrite(w, "x", 1, 200000), 1);
	CHECK_EQ(sheaf_pwrite(a, "two", 3, 0), 3);
	CHECK_EQ(sheaf_pread(w, b, 4, 200000), 4);
	CHECK(!memcmp(b, "xtwo", 4));
	CHECK_EQ(sheaf_ftruncate(w, 2), 0);
	CHECK_EQ(sheaf_pwrite(a, "four", 4, 99), 4);
	CHECK_EQ(sheaf_pread(w, b, 8, 0), 6);
	CHECK(!memcmp(b, "onfour", 6));
	CHECK_EQ(sheaf_pwrite(a, "", 0, 0), 0);
	CHECK_EQ(sheaf_close(a), 0);
	CHECK_EQ(sheaf_close(w), 0);
	CHECK_EQ(sheaf_stat(other, path, &st), 0);
	CHECK_EQ(st.st_size, 6);
	CHECK_EQ(open_error(fs, path, O_RDONLY | O_APPEND), 0);
	sheaf_disconnect(other);
}

static off_t size_of(const char *path)
{
	struct stat st;

	CHECK_EQ(sheaf_stat(fs, path, &st), 0);
	return st.st_size;
}

/* fallocate through a file opened for appends grows the file, and later appends go behind it. */
static void appends_go_behind_room_that_was_made(void)
{
	const char *path = path_in(fresh_dir(fs), "f");
	struct sheaf *other = client_connect(c.conf);
	struct sheaf_file *a = open_file(fs, path, O_CREAT | O_RDWR | O_APPEND);
	struct sheaf_file *b = open_file(other, path, O_WRONLY | O_APPEND);
	char text[8];

	CHECK_EQ(sheaf_pwrite(a, "one", 3, 0), 3);
	CHECK_EQ(sheaf_fallocate(a, 0, 0, 10000), 0);
	CHECK_EQ(size_of(path), 10000);
	CHECK_EQ(sheaf_pwrite(b, "two", 3, 0), 3);
	CHECK_EQ(size_of(path), 10003);
	CHECK_EQ(sheaf_pread(a, text, 4, 9999), 4);
	CHECK(!memcmp(text, "\0two", 4));
	CHECK_EQ(sheaf_fallocate(b, FALLOC_FL_ZERO_RANGE, 1, 20000), 0);
	CHECK_EQ(size_of(path), 20001);
	CHECK_EQ(sheaf_fallocate(a, FALLOC_FL_KEEP_SIZE, 0, 100000), 0);
	CHECK_EQ(sheaf_fallocate(a, 0, 10, 10), 0);
	CHECK_EQ(size_of(path), 20001);
	CHECK_EQ(sheaf_pwrite(a, "end", 3, 0), 3);
	CHECK_EQ(size_of(path), 20004);
	CHECK_EQ(sheaf_pread(a, text, 8, 20000), 4);
	CHECK(!memcmp(text, "\0end", 4));
	CHECK_EQ(sheaf_pread(a, text, 3, 0), 3);
	CHECK(!memcmp(text, "o\0\0", 3));
	CHECK_EQ(sheaf_fallocate(a, 0, INT64_MAX, 1), -EFBIG);
	CHECK_EQ(sheaf_close(a), 0);
	CHECK_EQ(sheaf_close(b), 0);
	CHECK_EQ(size_of(path), 20004);
	sheaf_disconnect(other);
}

static int appender(const char *name, char **arg)
{
	struct sheaf *mine = client_connect(arg[0]);
	struct sheaf_file *f = open_file(mine, arg[1], O_WRONLY | O_APPEND);
	static uint8_t b[4 * 1024 * 1024];

	(void)name;
	memset(b, 'z', sizeof(b));
	for (;;)
		if (sheaf_pwrite(f, b, sizeof(b), 0) != sizeof(b))
			return 1;
}

/* The range of its last append has zeros or its bytes, never part of another client's record. */
static void a_killed_client_leaves_zeros_at_most(void)
{
	const char *path = path_in(fresh_dir(fs), "f");
	struct sheaf_file *f = open_file(fs, path, O_CREAT | O_RDWR);
	pid_t pid = child_start("appender", c.conf, path, NULL);
	struct stat st;
	char b[3];

	CHECK(WITHIN(PATIENCE_S, sheaf_stat(fs, path, &st) == 0 && st.st_size > 0));
	kill(pid, SIGKILL);
	process_wait(pid);
	CHECK_EQ(sheaf_close(f), 0);
	f = open_file(fs, path, O_RDWR | O_APPEND);
	CHECK_EQ(sheaf_pwrite(f, "end", 3, 0), 3);
	CHECK_EQ(sheaf_close(f), 0);
	/* until the lease has ended and the size is settled */
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(sheaf_stat(fs, path, &st), 0);
		pause_ms(50);
	}
	f = open_file(fs, path, O_RDONLY);
	CHECK(st.st_size >= 3);
	CHECK_EQ(sheaf_pread(f, b, 3, st.st_size - 3), 3);
	CHECK(!memcmp(b, "end", 3));
	CHECK_EQ(sheaf_close(f), 0);
}

static void special_files_are_names(void)
{
	const char *d = fresh_dir(fs);
	struct stat st;

	CHECK_EQ(sheaf_mknod(fs, path_in(d, "pipe"), S_IFIFO | 0600, 0), 0);
	CHECK_EQ(sheaf_mknod(fs, path_in(d, "null"), S_IFCHR | 0666, makedev(1, 3)), 0);
	CHECK_EQ(sheaf_mknod(fs, path_in(d, "plain"), 0644, 0), 0);
	CHECK_EQ(sheaf_mknod(fs, path_in(d, "plain"), S_IFSOCK, 0), -EEXIST);
	CHECK_EQ(sheaf_mknod(fs, path_in(d, "dir"), S_IFDIR | 0755, 0), -EINVAL);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "null"), &st), 0);
	CHECK(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) && st.st_nlink == 1);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "pipe"), &st), 0);
	CHECK(S_ISFIFO(st.st_mode));
	CHECK_EQ(open_error(fs, path_in(d, "pipe"), O_RDONLY), -ENXIO);
	CHECK_EQ(sheaf_link(fs, path_in(d, "pipe"), path_in(d, "pipe2")), 0);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "pipe")), 0);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "pipe2"), &st), 0);
	CHECK_EQ(st.st_nlink, 1);
}

static void begin(void)
{
	cluster_create(&c,
		       &(struct cluster_opts){ .servers = 4, .stripe_unit = 4096, .timeout = 20 });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(appender, begin, end, TEST(records_of_many_clients_stay_whole),
	 TEST(appends_go_behind_what_others_wrote), TEST(appends_go_behind_room_that_was_made),
	 TEST(a_restart_in_between_moves_no_append), TEST(a_killed_client_leaves_zeros_at_most),
	 TEST(special_files_are_names))
