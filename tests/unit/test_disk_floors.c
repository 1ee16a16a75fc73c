/* Floors that do not fit into memory: found again on disk, after restarts, crashes, damage, and
 * expiry. */
#include <sys/stat.h>

#include "disk/disk_impl.h"

#include "disk_fixture.h"

#define LIMIT 4
#define MANY 60

static void begin_small(void)
{
	disk_max_floors = LIMIT;
	disk_fixture_start("/dev/shm");
}

static void end_small(void)
{
	disk_fixture_end();
	disk_max_floors = 0;
}

/* Waits until no merge and no follow-up work is active. */
static void quiet(void)
{
	while (!disk_idle(disk))
		loop_turn(&loop, NSEC_PER_MSEC);
}

static void fence_all(uint64_t first, uint64_t n, uint64_t epoch)
{
	for (uint64_t i = first; i < first + n; i++)
		CHECK_EQ(fence_object(i, epoch, UINT64_MAX, NULL), 0);
	quiet();
}

/* True if the floor is `epoch`: lower epochs are refused, `epoch` itself is accepted. */
static bool has_floor(uint64_t ino, uint64_t epoch)
{
	int r = get_object_with(ino, epoch, false);

	return (r == 0 || r == -ENOENT) &&
	       (!epoch || get_object_with(ino, epoch - 1, false) == -ESTALE);
}

static void have_floors(uint64_t first, uint64_t n, uint64_t epoch)
{
	for (uint64_t i = first; i < first + n; i++)
		CHECK(has_floor(i, epoch));
}

static void file_path(char *out, size_t n, const char *name)
{
	snprintf(out, n, "%s/%s", disk_path, name);
}

static off_t file_size(const char *name)
{
	char path[600];
	struct stat st;

	file_path(path, sizeof(path), name);
	return stat(path, &st) ? -1 : st.st_size;
}

static void floors_beyond_the_limit_are_found_again(void)
{
	begin_small();
	fence_all(100, MANY, 7);
	CHECK(disk->base);
	CHECK(disk->floors.count <= 2 * LIMIT);
	CHECK(disk->base->count + disk->floors.count >= MANY);
	CHECK(disk->log.size / 32 <= 2 * LIMIT + 1); /* the log was cut */
	for (int i = 0; i < 3; i++) {
		have_floors(100, MANY, 7);
		CHECK(has_floor(99, 0));
		CHECK(has_floor(100 + MANY, 0));
		disk_fixture_reopen(i == 1);
		CHECK(disk->floors.count <= LIMIT);
	}
	end_small();
}

static void the_higher_floor_of_memory_and_disk_counts(void)
{
	begin_small();
	fence_all(100, MANY, 7);
	CHECK_EQ(fence_object(100, 9, UINT64_MAX, NULL), 0);
	CHECK_EQ(fence_object(101, 5, UINT64_MAX, NULL), 0); /* repeats an old fence */
	for (int i = 0; i < 3; i++) {
		CHECK(has_floor(100, 9));
		CHECK(has_floor(101, 7));
		if (i == 1)
			fence_all(300, 2 * LIMIT, 3); /* merges both */
		disk_fixture_reopen(true);
	}
	end_small();
}

static void an_open_object_keeps_its_floor(void)
{
	struct turn_req t;
	struct object *o, *other;

	begin_small();
	o = get_object_ok(50, 1);
	CHECK_EQ(fence_object(50, 8, UINT64_MAX, NULL), 0);
	fence_all(100, MANY, 7);
	CHECK_EQ(floor_known(disk, 50), 0);
	CHECK_EQ(disk_floor(disk, 50), 8);
	turn_ask(&t, o, 7, 0, 1, true);
	test_req_wait(&t.req);
	CHECK_EQ(t.req.error, -ESTALE);
	object_put(o);
	other = get_object_ok(101, 1); /* an object opened now finds its floor */
	CHECK_EQ(disk_floor(disk, 101), 7);
	CHECK(!object_may_store(other, 6, 0, 0, 1));
	object_put(other);
	end_small();
}

/* Floors are merged into the base while objects of the same inodes are opened. */
static void opens_beside_merges_miss_no_floor(void)
{
	enum { N = 200 };
	static struct disk_args f[N], g[N];
	static struct test_req tf[N], tg[N];

	begin_small();
	for (uint64_t i = 0; i < N; i++) {
		f[i] = (struct disk_args){ .ino = 100 + i, .gen = 1, .epoch = 7, .off = UINT64_MAX };
		g[i] = (struct disk_args){ .ino = 100 + i, .gen = 1, .epoch = 6, .create = true };
		test_req_start(&tf[i], &loop, start_fence, &f[i]);
		test_req_start(&tg[i], &loop, start_get, &g[i]);
		if (i % 7 == 0)
			loop_turn(&loop, 0);
	}
	for (int i = 0; i < N; i++) {
		test_req_wait(&tf[i]);
		test_req_wait(&tg[i]);
		CHECK_EQ(tf[i].error, 0);
		CHECK(tg[i].error == 0 || tg[i].error == -ESTALE);
		object_put(g[i].object);
		CHECK_EQ(get_object_with(100 + (uint64_t)i, 6, true), -ESTALE);
	}
	quiet();
	have_floors(100, N, 7);
	end_small();
}

/* ---- crashes ---- */

/* The disk is killed after `steps` changes of files: the next start must know every fence that was
 * answered. */
static bool survives(int steps)
{
	bool answered[MANY];
	bool died;

	begin_small();
	faulty.steps = steps;
	faulty.mortal = true;
	for (uint64_t i = 0; i < MANY; i++)
		answered[i] = fence_object(100 + i, 7, UINT64_MAX, NULL) == 0;
	quiet();
	died = faulty.steps < 0;
	CHECK_EQ(disk_close(disk, false), 0);
	faulty.mortal = false;
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	for (uint64_t i = 0; i < MANY; i++)
		if (answered[i])
			CHECK(has_floor(100 + i, 7));
	end_small();
	return died;
}

static void no_crash_between_two_steps_loses_a_floor(void)
{
	int n = 0;

	while (survives(n))
		n++;
	CHECK(n > 2 * MANY);
}

static void a_crash_while_a_start_merges_loses_no_floor(void)
{
	bool died = true;

	for (int n = 0; died; n++) {
		disk_fixture_start("/dev/shm");
		fence_all(100, MANY, 7); /* all floors are in the log, as before a base existed */
		CHECK_EQ(file_size("fences.base"), -1);
		CHECK_EQ(disk_close(disk, false), 0);
		disk = NULL;
		disk_max_floors = LIMIT;
		faulty.steps = n;
		faulty.mortal = true;
		if (disk_fixture_open(&test_fs, 3) == 0)
			CHECK_EQ(disk_close(disk, false), 0);
		died = faulty.steps < 0;
		faulty.mortal = false;
		CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
		CHECK(disk->floors.count <= LIMIT);
		have_floors(100, MANY, 7);
		end_small();
	}
}

static void a_merge_that_fails_forgets_nothing_and_is_repeated(void)
{
	begin_small();
	faulty.fail_fsync = -EIO;
	fence_all(100, 2 * LIMIT, 7);
	CHECK(!disk->base);
	CHECK_EQ(disk->floors.count, 2 * LIMIT);
	have_floors(100, 2 * LIMIT, 7);
	faulty.fail_fsync = 0;
	fence_all(200, LIMIT, 7);
	CHECK(disk->base);
	CHECK(disk->floors.count <= LIMIT);
	have_floors(100, 2 * LIMIT, 7);
	have_floors(200, LIMIT, 7);
	end_small();
}

/* ---- age ---- */

static void old_floors_without_objects_are_forgotten_by_a_merge(void)
{
	begin_small();
	object_put(get_object_ok(51, 1));
	CHECK_EQ(fence_object(51, 7, UINT64_MAX, NULL), 0);
	fence_all(100, MANY, 7);
	faulty.skew = TOMBSTONE_NS - 60 * NSEC_PER_SEC;
	fence_all(200, 2 * LIMIT, 7);
	have_floors(100, MANY, 7);
	faulty.skew = TOMBSTONE_NS + 2 * 24 * 3600 * NSEC_PER_SEC;
	fence_all(300, 2 * LIMIT, 7);
	CHECK(has_floor(51, 7)); /* its object still exists */
	have_floors(300, 2 * LIMIT, 7); /* recent floors */
	have_floors(200, 2 * LIMIT, 7);
	have_floors(100, MANY, 0);
	CHECK(disk->base->count <= 1 + 4 * LIMIT);
	disk_fixture_reopen(true);
	CHECK(has_floor(51, 7));
	end_small();
}

static void removals_move_to_the_base_too(void)
{
	begin_small();
	for (uint64_t i = 0; i < MANY; i++) {
		object_put(get_object_ok(100 + i, 1));
		CHECK_EQ(remove_object(100 + i, 7), 0);
	}
	quiet();
	CHECK(disk->floors.count <= 2 * LIMIT);
	for (uint64_t i = 0; i < MANY; i++)
		CHECK_EQ(get_object_with(100 + i, 6, true), -ESTALE);
	end_small();
}

/* ---- scans ---- */

static void start_scan(struct test_req *t, struct req *q)
{
	disk_scan(disk, t->arg, q);
}

static void scans_tell_floors_of_the_base(void)
{
	static struct disk_object rows[2 * MANY];
	struct disk_scan s = { .rows = rows, .max = 2 * MANY };

	begin_small();
	for (uint64_t i = 0; i < MANY; i++)
		object_put(get_object_ok(100 + i, 1));
	fence_all(100, MANY, 7);
	disk_fixture_reopen(true);
	CHECK_EQ(test_req_run(&loop, start_scan, &s), 0);
	CHECK_EQ(s.n, MANY);
	for (uint32_t i = 0; i < s.n; i++)
		CHECK_EQ(rows[i].floor, 7);
	end_small();
}

/* A merge ends after the scan has read the directories and before it answers. */
static void a_scan_beside_a_merge_misses_no_floor(void)
{
	static struct disk_object rows[2 * MANY];
	struct disk_scan s = { .rows = rows, .max = 2 * MANY };
	struct disk_args a = { .gen = 1, .epoch = 7, .off = UINT64_MAX };
	struct test_req scan, f;

	begin_small();
	for (uint64_t i = 0; i < MANY; i++)
		object_put(get_object_ok(100 + i, 1));
	for (uint64_t i = 0; i < MANY; i++) {
		a.ino = 100 + i;
		s.begun = false;
		test_req_start(&f, &loop, start_fence, &a);
		test_req_wait(&f); /* the fence may have started a merge */
		test_req_start(&scan, &loop, start_scan, &s);
		test_req_wait(&scan);
		for (uint32_t k = 0; k < s.n; k++)
			CHECK_EQ(rows[k].floor, rows[k].id.ino <= a.ino ? 7 : 0);
	}
	end_small();
}

/* ---- damage ---- */

static void spoil(const char *name, off_t at)
{
	char path[600];
	int fd;

	file_path(path, sizeof(path), name);
	fd = open(path, O_WRONLY);
	CHECK_EQ(pwrite(fd, "xx", 2, at), 2);
	close(fd);
}

static void a_damaged_record_costs_one_floor(void)
{
	struct fence_rec rec;
	uint64_t lost = 0;
	char path[600];
	int fd;

	begin_small();
	fence_all(100, MANY, 7);
	CHECK_EQ(disk_close(disk, true), 0);
	file_path(path, sizeof(path), "fences.base");
	fd = open(path, O_RDONLY);
	CHECK_EQ(pread(fd, &rec, sizeof(rec), 64 + MANY / 2 * 32), 32);
	close(fd);
	spoil("fences.base", 64 + MANY / 2 * 32 + 8);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	for (uint64_t i = 0; i < MANY; i++)
		lost += !has_floor(100 + i, 7);
	CHECK_EQ(lost, 1);
	CHECK(has_floor(rec.ino, 0));
	fence_all(300, 2 * LIMIT, 7); /* the merge drops the damaged record */
	CHECK(has_floor(rec.ino, 0));
	have_floors(300, 2 * LIMIT, 7);
	end_small();
}

static void a_base_that_is_missing_or_spoilt_is_refused(void)
{
	char path[600], other[600];

	begin_small();
	fence_all(100, MANY, 7);
	CHECK_EQ(disk_close(disk, true), 0);
	disk = NULL;
	file_path(path, sizeof(path), "fences.base");
	file_path(other, sizeof(other), "away");
	CHECK_EQ(rename(path, other), 0);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), -EUCLEAN);
	CHECK(strstr(disk_err, "fences.base is missing"));
	CHECK_EQ(rename(other, path), 0);
	spoil("fences.base", 16);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), -EUCLEAN);
	CHECK(strstr(disk_err, "fences.base cannot be used"));
	scratch_dir_remove(disk_path);
	loop_fini(&loop);
	disk_max_floors = 0;
}

static void what_a_broken_merge_left_is_removed(void)
{
	char path[600];

	begin_small();
	fence_all(100, MANY, 7);
	CHECK_EQ(disk_close(disk, false), 0);
	file_path(path, sizeof(path), "fences.base.new");
	close(open(path, O_WRONLY | O_CREAT, 0600));
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	CHECK_EQ(file_size("fences.base.new"), -1);
	have_floors(100, MANY, 7);
	end_small();
}

TEST_MAIN(TEST(floors_beyond_the_limit_are_found_again),
	  TEST(the_higher_floor_of_memory_and_disk_counts), TEST(an_open_object_keeps_its_floor),
	  TEST(opens_beside_merges_miss_no_floor), TEST(no_crash_between_two_steps_loses_a_floor),
	  TEST(a_crash_while_a_start_merges_loses_no_floor),
	  TEST(a_merge_that_fails_forgets_nothing_and_is_repeated),
	  TEST(old_floors_without_objects_are_forgotten_by_a_merge),
	  TEST(removals_move_to_the_base_too), TEST(scans_tell_floors_of_the_base),
	  TEST(a_scan_beside_a_merge_misses_no_floor), TEST(a_damaged_record_costs_one_floor),
	  TEST(a_base_that_is_missing_or_spoilt_is_refused),
	  TEST(what_a_broken_merge_left_is_removed))
