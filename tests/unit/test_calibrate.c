/* The costs of accesses: measured and stored, also where that fails, and files `costs` that count
 * as none. */
#include <endian.h>

#include "disk/disk_impl.h"

#include "disk_fixture.h"
#include "test_files.h"

static const char log_name[] = "log";

static const char *in_dir(const char *name)
{
	static char path[2][600];
	static int next;

	next = !next;
	snprintf(path[next], sizeof(path[next]), "%s/%s", disk_path, name);
	return path[next];
}

static void start_with_log(const char *parent)
{
	disk_fixture_start(parent);
	log_open(in_dir(log_name), LOG_WARN);
}

static void end_with_log(void)
{
	log_open(NULL, LOG_ERROR);
	disk_fixture_end();
}

/* The log has one line, with this text. */
static void check_log(const char *text)
{
	char *log = read_text(in_dir(log_name)), *end = strchr(log, '\n');

	if (!strstr(log, text))
		fprintf(stderr, "%s\n", log);
	CHECK(strstr(log, text));
	CHECK(end && !end[1]);
	free(log);
}

static bool exists(const char *name)
{
	return access(in_dir(name), F_OK) == 0;
}

static bool is_same(const struct sieve_costs *a, const struct sieve_costs *b)
{
	uint64_t x[SIEVE_VALUES], y[SIEVE_VALUES];

	sieve_costs_pack(a, x);
	sieve_costs_pack(b, y);
	return memcmp(x, y, sizeof(x)) == 0;
}

static void check_defaults(void)
{
	CHECK(!disk->costs_known);
	CHECK(is_same(&disk->costs, &sieve_defaults));
	CHECK(!exists("costs.scratch"));
}

/* ---- measuring ---- */

static void measure_and_reopen(const char *parent)
{
	struct sieve_costs measured;
	uint64_t values[SIEVE_VALUES];

	disk_fixture_start(parent);
	check_defaults();
	CHECK(!exists("costs"));
	disk_find_costs(disk);
	CHECK(disk->costs_known);
	CHECK(!is_same(&disk->costs, &sieve_defaults));
	CHECK(!exists("costs.scratch"));
	measured = disk->costs;
	sieve_costs_pack(&measured, values);
	CHECK(sieve_costs_unpack(values, &measured));
	disk_fixture_reopen(true);
	CHECK(disk->costs_known);
	CHECK(is_same(&disk->costs, &measured));
	disk_find_costs(disk); /* nothing is measured again */
	CHECK(is_same(&disk->costs, &measured));
	disk_fixture_end();
}

static void costs_are_measured_once_and_stored(void)
{
	measure_and_reopen("/dev/shm");
	measure_and_reopen(".");
}

static int little_space(struct env *e, int fd, uint64_t *total, uint64_t *avail, uint64_t *id)
{
	int r = env_real()->file->statfs(e, fd, total, avail, id);

	*avail = 128 * MIB - 1;
	return r;
}

static void a_disk_with_little_space_is_not_measured(void)
{
	start_with_log("/dev/shm");
	faulty.file.statfs = little_space;
	disk_find_costs(disk);
	check_defaults();
	CHECK(!exists("costs"));
	check_log("little space is free");
	end_with_log();
}

static ssize_t fail_preadv(struct env *e, int fd, const struct iovec *iov, int n, off_t off)
{
	(void)e;
	(void)fd;
	(void)iov;
	(void)n;
	(void)off;
	return -EIO;
}

/* A failed measurement leaves the defaults and no file; the next start tries again. */
static void a_failed_measurement_leaves_the_defaults(void)
{
	start_with_log("/dev/shm");
	faulty.file.preadv = fail_preadv;
	disk_find_costs(disk);
	check_defaults();
	CHECK(!exists("costs"));
	check_log("measuring the costs of accesses failed (Input/output error)");
	faulty.file.preadv = env_real()->file->preadv;
	disk_find_costs(disk);
	CHECK(disk->costs_known);
	end_with_log();
}

static ssize_t half_pwritev(struct env *e, int fd, const struct iovec *iov, int n, off_t off)
{
	(void)n;
	if (iov[0].iov_len < 256 * KIB) { /* the file is filled with pieces of 256 KiB */
		struct iovec half = { iov[0].iov_base, iov[0].iov_len / 2 };

		return env_real()->file->pwritev(e, fd, &half, 1, off);
	}
	return env_real()->file->pwritev(e, fd, iov, n, off);
}

static void a_short_write_is_no_measurement(void)
{
	start_with_log("/dev/shm");
	faulty.file.pwritev = half_pwritev;
	disk_find_costs(disk);
	check_defaults();
	check_log("measuring the costs of accesses failed");
	faulty.file.pwritev = env_real()->file->pwritev;
	end_with_log();
}

static int fail_renameat(struct env *e, int dir, const char *from, const char *to)
{
	(void)e;
	(void)dir;
	(void)from;
	(void)to;
	return -EROFS;
}

static void costs_that_cannot_be_stored_are_used(void)
{
	start_with_log("/dev/shm");
	faulty.file.renameat = fail_renameat;
	disk_find_costs(disk);
	CHECK(disk->costs_known);
	CHECK(!is_same(&disk->costs, &sieve_defaults));
	CHECK(!exists("costs"));
	check_log("cannot be stored (Read-only file system): the next start measures again");
	faulty.file.renameat = env_real()->file->renameat;
	end_with_log();
}

static void a_scratch_file_that_a_crash_left_is_removed(void)
{
	disk_fixture_start("/dev/shm");
	disk_find_costs(disk);
	write_text(in_dir("costs.scratch"), "left over");
	disk_fixture_reopen(false);
	CHECK(disk->costs_known);
	disk_find_costs(disk);
	CHECK(!exists("costs.scratch"));
	disk_fixture_end();
}

/* ---- while the server runs ---- */

static void start_calibrate(struct test_req *t, struct req *q)
{
	disk_calibrate(disk, t->arg, q);
}

static unsigned n_scratch;

static int count_openat(struct env *e, int dir, const char *path, int flags, mode_t mode)
{
	n_scratch += strcmp(path, "costs.scratch") == 0;
	return env_real()->file->openat(e, dir, path, flags, mode);
}

static void calls_at_the_same_time_share_a_measurement(void)
{
	struct disk_calibration c[3] = { 0 };
	struct test_req t[3];
	struct sieve_costs before;

	disk_fixture_start("/dev/shm");
	*disk_costs(disk) = (struct sieve_costs){ .copy = 0.5, .piece = 7 };
	faulty.file.openat = count_openat;
	n_scratch = 0;
	for (int i = 0; i < 3; i++)
		test_req_start(&t[i], &loop, start_calibrate, &c[i]);
	for (int i = 0; i < 3; i++) {
		test_req_wait(&t[i]);
		CHECK_EQ(t[i].error, 0);
		CHECK(c[i].is_stored);
	}
	CHECK_EQ(n_scratch, 1);
	CHECK(disk_costs(disk)->read.ns[0] > 0); /* used at once, with the times of copies */
	CHECK(disk_costs(disk)->copy == 0.5 && disk_costs(disk)->piece == 7);
	CHECK_EQ(test_req_run(&loop, start_calibrate, &c[0]), 0);
	CHECK_EQ(n_scratch, 2);
	before = disk->costs;
	disk_fixture_reopen(true);
	CHECK(is_same(disk_costs(disk), &before));
	disk_fixture_end();
}

static void a_measurement_that_fails_keeps_the_costs(void)
{
	struct disk_calibration c = { 0 };
	struct sieve_costs before;

	start_with_log("/dev/shm");
	disk_find_costs(disk);
	before = disk->costs;
	faulty.file.statfs = little_space;
	CHECK_EQ(test_req_run(&loop, start_calibrate, &c), -ENOSPC);
	CHECK(is_same(disk_costs(disk), &before));
	faulty.file.statfs = env_real()->file->statfs;
	faulty.file.renameat = fail_renameat;
	CHECK_EQ(test_req_run(&loop, start_calibrate, &c), 0);
	CHECK(!c.is_stored);
	check_log("cannot be stored");
	faulty.file.renameat = env_real()->file->renameat;
	disk_fixture_reopen(true);
	CHECK(is_same(disk_costs(disk), &before));
	end_with_log();
}

static void closing_waits_for_a_measurement(void)
{
	struct disk_calibration c = { 0 };
	struct test_req t;

	disk_fixture_start("/dev/shm");
	test_req_start(&t, &loop, start_calibrate, &c);
	loop_run_ready(&loop);
	CHECK_EQ(disk_close(disk, true), 0);
	disk = NULL;
	CHECK(t.over);
	CHECK_EQ(t.error, 0);
	disk_fixture_end();
}

/* ---- the file `costs` ---- */

static void write_costs(const void *p, size_t n)
{
	CHECK_EQ(disk_write_file(loop.env, disk->dir, "costs", p, n, false), 0);
	CHECK_EQ(truncate(in_dir("costs"), (off_t)n), 0);
}

static void read_costs(struct disk_costs *file)
{
	int fd = open(in_dir("costs"), O_RDONLY);

	CHECK_EQ(read(fd, file, sizeof(*file)), sizeof(*file));
	close(fd);
}

/* These bytes are no costs. */
static void check_refused(const void *p, size_t n)
{
	struct sieve_costs c = { .parallel = -1 };

	write_costs(p, n);
	CHECK_EQ(disk_load_costs(loop.env, disk->dir, &c), -ENOENT);
	CHECK(is_same(&c, &sieve_defaults));
}

static void a_damaged_or_truncated_file_counts_as_none(void)
{
	struct disk_costs good, bad;

	disk_fixture_start("/dev/shm");
	CHECK_EQ(disk_store_costs(loop.env, disk->dir, &sieve_defaults), 0);
	read_costs(&good);
	for (size_t i = 0; i < sizeof(good); i++) {
		bad = good;
		((uint8_t *)&bad)[i] ^= 0x10;
		check_refused(&bad, sizeof(bad));
		check_refused(&good, i);
	}
	disk_fixture_reopen(true); /* with the last of them */
	check_defaults();
	disk_find_costs(disk); /* replaces it */
	disk_fixture_reopen(true);
	CHECK(disk->costs_known);
	disk_fixture_end();
}

static void a_foreign_file_counts_as_none(void)
{
	static const uint8_t old_magic[8] = { 'S', 'H', 'C', 'O', 'S', 'T', 'S', 1 };
	struct disk_costs file;
	struct sieve_costs c;
	char text[4096];

	disk_fixture_start("/dev/shm");
	memset(text, 'x', sizeof(text));
	check_refused(text, sizeof(text));
	memset(&file, 0, sizeof(file));
	check_refused(&file, sizeof(file));
	CHECK_EQ(disk_store_costs(loop.env, disk->dir, &sieve_defaults), 0);
	read_costs(&file);
	disk_seal(&file, sizeof(file), old_magic);
	check_refused(&file, sizeof(file));
	CHECK_EQ(unlink(in_dir("costs")), 0);
	CHECK_EQ(mkdir(in_dir("costs"), 0700), 0);
	CHECK(disk_load_costs(loop.env, disk->dir, &c) < 0);
	CHECK(is_same(&c, &sieve_defaults));
	disk_find_costs(disk); /* measures, but cannot replace a directory */
	CHECK(disk->costs_known);
	disk_fixture_end();
}

/* A valid file, but for one value. */
static void check_value_refused(const struct disk_costs *good, int at, uint64_t value)
{
	static const uint8_t magic[8] = { 'S', 'H', 'C', 'O', 'S', 'T', 'S', 2 };
	struct disk_costs file = *good;

	file.values[at] = htole64(value);
	disk_seal(&file, sizeof(file), magic);
	check_refused(&file, sizeof(file));
}

static void values_that_cannot_be_true_are_refused(void)
{
	struct disk_costs good;
	const int parallel = 3 * SIEVE_SIZES;

	disk_fixture_start("/dev/shm");
	CHECK_EQ(disk_store_costs(loop.env, disk->dir, &sieve_defaults), 0);
	read_costs(&good);
	for (int i = 0; i < 3 * SIEVE_SIZES; i++) {
		check_value_refused(&good, i, 0);
		check_value_refused(&good, i, UINT64_MAX);
		if (i % SIEVE_SIZES) /* less time for more bytes */
			check_value_refused(&good, i, le64toh(good.values[i - 1]) - 1);
	}
	check_value_refused(&good, parallel, 0);
	check_value_refused(&good, parallel, 999);
	check_value_refused(&good, parallel, 32001);
	check_value_refused(&good, parallel + 1, UINT64_MAX);
	check_value_refused(&good, parallel + 2, UINT64_MAX);
	disk_fixture_end();
}

TEST_MAIN(TEST(costs_are_measured_once_and_stored), TEST(a_disk_with_little_space_is_not_measured),
	  TEST(a_failed_measurement_leaves_the_defaults), TEST(a_short_write_is_no_measurement),
	  TEST(costs_that_cannot_be_stored_are_used),
	  TEST(a_scratch_file_that_a_crash_left_is_removed),
	  TEST(calls_at_the_same_time_share_a_measurement),
	  TEST(a_measurement_that_fails_keeps_the_costs), TEST(closing_waits_for_a_measurement),
	  TEST(a_damaged_or_truncated_file_counts_as_none), TEST(a_foreign_file_counts_as_none),
	  TEST(values_that_cannot_be_true_are_refused))
