/* Times of files and their `change` numbers. An overwrite in place sets the time of the write, also
 * if that is earlier than the file's, and a change number that the file never had before; over
 * restarts, a restore and wrong clocks. */
#include <sys/mman.h>

#include "cluster.h"

#define SERVERS 2
#define HOUR 3600
#define FAR 1200 /* seconds; clocks of servers differ by less than an hour */
#define SLACK 60 /* seconds of delay on a busy machine */

static struct cluster c;
static struct sheaf *fs;
static struct sheaf *other; /* a second client */

/* ---- servers with shifted clocks ---- */

static void build_clock(const char *lib)
{
	const char *source = getenv("SHEAF_SOURCE");
	char file[CLUSTER_PATH];
	const char *argv[] = { "/usr/bin/env", "cc", "-shared", "-fPIC", "-O2",
			       "-o",	       lib,  file,	NULL };

	CHECK(source || !"SHEAF_SOURCE must name the source directory");
	snprintf(file, sizeof(file), "%s/tests/system/clock_shift.c", source);
	CHECK_EQ(process_wait(process_start(argv, -1)), 0);
}

static void start_server(int i)
{
	char path[CLUSTER_PATH + 16];

	snprintf(path, sizeof(path), "%s/clock%d", c.dir, i);
	setenv("CLOCK_SHIFT_FILE", path, 1);
	snprintf(path, sizeof(path), "%s/clock.so", c.dir);
	if (!SANITIZED) /* a sanitizer must be the first library */
		setenv("LD_PRELOAD", path, 1);
	CHECK_EQ(server_up(&c, i), 0);
	unsetenv("LD_PRELOAD");
}

static int64_t *map_clock(int i)
{
	char path[CLUSTER_PATH + 16];
	int64_t *p;
	int fd;

	snprintf(path, sizeof(path), "%s/clock%d", c.dir, i);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, sizeof(*p)), 0);
	p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	close(fd);
	return p;
}

static int64_t *clocks[SERVERS];

static void set_clock(int i, int64_t seconds)
{
	__atomic_store_n(clocks[i], seconds * 1000000000, __ATOMIC_SEQ_CST);
}

static void begin(void)
{
	char lib[CLUSTER_PATH + 16];

	cluster_create(&c,
		       &(struct cluster_opts){ .servers = SERVERS, .timeout = 30, .lease = 30 });
	snprintf(lib, sizeof(lib), "%s/clock.so", c.dir);
	build_clock(lib);
	for (int i = 0; i < SERVERS; i++) {
		clocks[i] = map_clock(i);
		start_server(i);
	}
	fs = client_connect(c.conf);
	other = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	sheaf_disconnect(other);
	cluster_stop(&c);
}

/* ---- attributes ---- */

static uint64_t change_of(struct sheaf *of, const char *path)
{
	struct sheaf_file *f = open_file(of, path, O_RDONLY);
	uint64_t change = sheaf_file_change(f);

	CHECK_EQ(sheaf_close(f), 0);
	return change;
}

static void set_times(const char *path, time_t at)
{
	struct timespec ts[2] = { { .tv_sec = at }, { .tv_sec = at } };
	struct stat st;

	CHECK_EQ(sheaf_utimens(fs, path, ts), 0);
	st = stat_of(fs, path);
	CHECK_EQ(st.st_mtime, at);
}

static bool is_about(time_t t, time_t then)
{
	return t >= then - SLACK && t <= then + SLACK;
}

/* Checks the times that the other client sees. */
static void check_times(const char *path, time_t written)
{
	struct stat st;

	CHECK_EQ(sheaf_stat(other, path, &st), 0);
	CHECK(is_about(st.st_mtime, written));
	CHECK(is_about(st.st_ctime, written));
}

/* ---- tests ---- */

enum { BEFORE_CLOSE, AFTER_FSYNC, AFTER_CLOSE, MOMENTS };

/* touch -d '+1 hour', then an overwrite in place: mtime goes back to the time of the write. */
static void an_overwrite_has_the_time_of_the_write(void)
{
	const char *dir = fresh_dir(fs);

	for (int moment = 0; moment < MOMENTS; moment++) {
		const char *path = path_in(dir, moment == 0 ? "a" : moment == 1 ? "b" : "c");
		struct sheaf_file *f;
		uint64_t before;

		make_file(fs, path, 200000, 1);
		set_times(path, time(NULL) + HOUR);
		before = change_of(other, path);
		f = open_file(fs, path, O_RDWR);
		CHECK_EQ(sheaf_pwrite(f, "x", 1, 70000), 1);
		if (moment == BEFORE_CLOSE)
			check_times(path, time(NULL));
		CHECK_EQ(moment == AFTER_FSYNC ? sheaf_fsync(f) : 0, 0);
		if (moment == AFTER_FSYNC) {
			check_times(path, time(NULL));
			CHECK(change_of(other, path) > before);
		}
		CHECK_EQ(sheaf_close(f), 0);
		check_times(path, time(NULL));
		CHECK(change_of(other, path) > before);
	}
}

/* A time that is set after the write stays, as cp -p and tar need. */
static void a_time_that_was_set_stays(void)
{
	const char *path = path_in(fresh_dir(fs), "f");
	struct timespec ts[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	struct sheaf_file *f = open_file(fs, path, O_CREAT | O_RDWR);
	struct stat st;

	CHECK_EQ(sheaf_pwrite(f, "x", 1, 0), 1);
	CHECK_EQ(sheaf_utimens(fs, path, ts), 0);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_stat(other, path, &st), 0);
	CHECK_EQ(st.st_mtime, 1000);
	CHECK(is_about(st.st_ctime, time(NULL)));
}

static uint64_t write_more(const char *path, uint64_t last)
{
	struct sheaf_file *f = open_file(fs, path, O_RDWR);
	uint64_t change;

	CHECK_EQ(sheaf_pwrite(f, "y", 1, 0), 1);
	CHECK_EQ(sheaf_close(f), 0);
	change = change_of(other, path);
	CHECK(change > last);
	return change;
}

static int sheaf_cli(const char *a, const char *b, const char *more)
{
	char exe[CLUSTER_PATH], out[CLUSTER_PATH + 8];
	const char *argv[] = {
		"/bin/sh", "-c",   "exec \"$0\" --conf \"$1\" \"$2\" \"$3\" $4 >\"$5\"",
		exe,	   c.conf, a,
		b,	   more,   out,
		NULL
	};

	snprintf(exe, sizeof(exe), "%s/bin/sheaf", getenv("SHEAF_BUILD"));
	snprintf(out, sizeof(out), "%s/cli.out", c.dir);
	return process_wait(process_start(argv, -1));
}

static void restart(bool clean)
{
	for (int i = 0; i < SERVERS; i++) {
		if (clean)
			server_down(&c, i);
		else
			server_kill(&c, i);
	}
	for (int i = 0; i < SERVERS; i++)
		start_server(i);
}

static void a_number_of_a_change_never_comes_again(void)
{
	const char *path = path_in(fresh_dir(fs), "f");
	char backup[CLUSTER_PATH + 16];
	uint64_t last;

	make_file(fs, path, 100, 1);
	last = write_more(path, change_of(other, path) - 1);
	for (int i = 0; i < 4; i++) {
		restart(i % 2);
		CHECK(change_of(other, path) >= last);
		last = write_more(path, last);
	}
	snprintf(backup, sizeof(backup), "%s/backup", c.dir);
	CHECK_EQ(sheaf_cli("backup", backup, ""), 0);
	for (int i = 0; i < 10; i++)
		last = write_more(path, last);
	for (int i = 0; i < SERVERS; i++)
		server_down(&c, i);
	CHECK_EQ(sheaf_cli("restore", backup, "--force"), 0);
	for (int i = 0; i < SERVERS; i++)
		start_server(i);
	CHECK(change_of(other, path) > last); /* the restore brought older attributes back */
	last = write_more(path, last);
	restart(false);
	CHECK(change_of(other, path) >= last);
}

/* A client sees by the change number that another client has closed the file since, whatever the
 * clocks show. */
static void clocks_that_are_wrong_hide_no_write(void)
{
	static const int64_t steps[] = { -20, -20, 0, -FAR, FAR, -FAR, 0 };
	const char *dir = fresh_dir(fs);

	if (SANITIZED)
		return;
	for (int server = 0; server < SERVERS; server++) {
		const char *path = path_in(dir, server ? "one" : "zero");
		uint64_t last;

		make_file(fs, path, 200000, 1); /* objects on both servers */
		last = change_of(other, path);
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
			struct sheaf_file *f;
			char byte = 0;

			set_clock(server, steps[i]);
			f = open_file(fs, path, O_RDWR);
			CHECK_EQ(sheaf_pwrite(f, &(char){ (char)('a' + i) }, 1, 70000), 1);
			CHECK_EQ(sheaf_close(f), 0);
			CHECK(change_of(other, path) > last);
			last = change_of(other, path);
			f = open_file(other, path, O_RDONLY);
			CHECK_EQ(sheaf_pread(f, &byte, 1, 70000), 1);
			CHECK_EQ(byte, 'a' + (int)i);
			CHECK_EQ(sheaf_close(f), 0);
			CHECK_EQ(change_of(other, path), last); /* reads change nothing */
		}
		set_clock(server, 0);
	}
}

SYS_MAIN(NULL, begin, end, TEST(an_overwrite_has_the_time_of_the_write),
	 TEST(a_time_that_was_set_stays), TEST(clocks_that_are_wrong_hide_no_write),
	 TEST(a_number_of_a_change_never_comes_again))
