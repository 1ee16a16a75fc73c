/* Fences, removal, tombstones and the fence log. */
#include "disk/disk_impl.h"

#include "core/env_real.h"
#include "disk_fixture.h"

static void fences_path(char *out, size_t n)
{
	snprintf(out, n, "%s/fences", disk_path);
}

static bool object_file_exists(uint64_t ino)
{
	char path[700], name[OBJECT_PATH];

	object_path(name, &(struct object_id){ ino, 1, 0 });
	snprintf(path, sizeof(path), "%s/objects/%s", disk_path, name);
	return access(path, F_OK) == 0;
}

static void a_fence_refuses_older_epochs_now_and_after_a_restart(void)
{
	struct turn_req t;
	struct object *o;
	uint64_t end = 1;

	disk_fixture_start(".");
	CHECK_EQ(fence_object(20, 5, UINT64_MAX, &end), 0); /* fencing a missing object succeeds */
	CHECK_EQ(end, 0);
	CHECK_EQ(disk_floor(disk, 20), 5);
	CHECK_EQ(fence_object(20, 3, UINT64_MAX, NULL), 0); /* a lower epoch changes nothing */
	CHECK_EQ(disk_floor(disk, 20), 5);
	for (int i = 0; i < 2; i++) {
		o = get_object_ok(20, 1);
		turn_ask(&t, o, 4, 0, 1, false);
		test_req_wait(&t.req);
		CHECK_EQ(t.req.error, -ESTALE);
		turn_end(&t.turn);
		turn_ask(&t, o, 5, 0, 1, false);
		test_req_wait(&t.req);
		CHECK_EQ(t.req.error, 0);
		turn_end(&t.turn);
		object_put(o);
		disk_fixture_reopen(i == 0);
		CHECK_EQ(disk_floor(disk, 20), 5);
		CHECK_EQ(disk_floor(disk, 21), 0);
	}
	disk_fixture_end();
}

static void a_fence_refuses_to_open_and_makes_no_object(void)
{
	struct disk_args a[3];
	struct test_req t[3];

	disk_fixture_start("/dev/shm");
	CHECK_EQ(fence_object(28, 5, UINT64_MAX, NULL), 0);
	CHECK_EQ(get_object_with(28, 4, false),
		 -ESTALE); /* not -ENOENT, although there is no object */
	CHECK_EQ(get_object_with(28, 4, true), -ESTALE);
	CHECK(!object_file_exists(28));
	CHECK_EQ(get_object_with(28, 5, false), -ENOENT);
	for (int i = 0; i < 3; i++) { /* each open has its own result */
		a[i] = (struct disk_args){ .ino = 28, .gen = 1, .epoch = 4, .create = i != 1 };
		a[i].epoch += i != 0;
		test_req_start(&t[i], &loop, start_get, &a[i]);
	}
	for (int i = 0; i < 3; i++)
		test_req_wait(&t[i]);
	CHECK_EQ(t[0].error, -ESTALE);
	CHECK_EQ(t[1].error, -ENOENT); /* the object did not exist yet */
	CHECK_EQ(t[2].error, 0);
	object_put(a[2].object);
	CHECK(object_file_exists(28));
	CHECK_EQ(get_object_with(28, 4, true), -ESTALE); /* also while the object is open */
	disk_fixture_reopen(true);
	CHECK_EQ(get_object_with(28, 4, true), -ESTALE);
	CHECK_EQ(get_object_with(28, 5, true), 0);
	disk_fixture_end();
}

static void a_fence_waits_for_turns_in_flight_and_refuses_those_that_wait(void)
{
	struct turn_req flying, waiting, fresh;
	struct disk_args a = { .ino = 22, .gen = 1, .epoch = 5, .off = 2 };
	struct test_req f;
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(22, 1);
	turn_ask(&flying, o, 4, 0, 100, true);
	turn_ask(&waiting, o, 4, 50, 60, true);
	test_req_wait(&flying.req);
	CHECK_EQ(write_bytes(o, 0, "abcd", 4), 0);
	test_req_start(&f, &loop, start_fence, &a);
	disk_fixture_settle();
	CHECK(waiting.req.over);
	CHECK_EQ(waiting.req.error, -ESTALE);
	CHECK(!f.over);
	CHECK_EQ(object_end(o), 4);
	turn_ask(&fresh, o, 5, 0, 10, true); /* asked for after the fence */
	disk_fixture_settle();
	CHECK(!fresh.req.over);
	turn_end(&flying.turn);
	test_req_wait(&f);
	CHECK_EQ(f.error, 0);
	CHECK_EQ(a.st.end, 2);
	CHECK(a.st.mtime > 77); /* set by the cut */
	CHECK_EQ(object_end(o), 2);
	test_req_wait(&fresh.req);
	CHECK_EQ(fresh.req.error, 0);
	turn_end(&fresh.turn);
	turn_end(&waiting.turn);
	object_put(o);
	disk_fixture_end();
}

/* A direct store is refused beside a conflicting turn, behind the end, with an epoch below the
 * floor, and in a removed object. */
static void a_store_without_a_turn_needs_a_grantable_turn(void)
{
	struct turn_req reader, other, behind;
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(24, 1);
	CHECK(!object_may_store(o, 4, 0, 1, 4242));
	CHECK_EQ(write_bytes(o, 0, "0123456789", 10), 0);
	CHECK(object_may_store(o, 4, 0, 10, 4242));
	CHECK(!object_may_store(o, 4, 0, 11, 4242));
	turn_ask(&reader, o, 4, 2, 4, false);
	test_req_wait(&reader.req);
	CHECK(!object_may_store(o, 4, 3, 5, 4242));
	CHECK(object_may_store(o, 4, 4, 8, 4242));
	/* waits for the reader; later accesses queue behind it */
	turn_ask(&other, o, 4, 0, 6, true);
	disk_fixture_settle();
	CHECK(!other.req.over);
	CHECK(!object_may_store(o, 4, 5, 6, 4242));
	CHECK(object_may_store(o, 4, 6, 8, 4242));
	turn_end(&reader.turn);
	test_req_wait(&other.req);
	turn_end(&other.turn);
	CHECK(object_may_store(o, 4, 0, 10, 4242));
	CHECK_EQ(fence_object(24, 5, 8, NULL), 0);
	CHECK(!object_may_store(o, 4, 0, 1, 4242));
	CHECK(object_may_store(o, 5, 0, 8, 4242));
	CHECK(!object_may_store(o, 5, 0, 9, 4242));
	turn_ask(&behind, o, 5, 8, 20, true);
	test_req_wait(&behind.req);
	CHECK(object_may_store(o, 5, 0, 8, 4242));
	turn_end(&behind.turn);
	CHECK_EQ(object_mtime(o), 4242);
	CHECK_EQ(remove_object(24, 6), 0);
	CHECK(!object_may_store(o, 6, 0, 1, 4242));
	object_put(o);
	disk_fixture_end();
}

static void a_fence_cuts_but_never_extends(void)
{
	struct object *o;
	uint64_t end;
	char buf[8];

	disk_fixture_start(".");
	o = get_object_ok(23, 1);
	CHECK_EQ(write_bytes(o, 0, "12345678", 8), 0);
	CHECK_EQ(fence_object(23, 2, 100, &end), 0);
	CHECK_EQ(end, 8);
	faulty.n_sync = 0;
	CHECK_EQ(fence_object(23, 3, 3, &end), 0);
	CHECK_EQ(end, 3);
	CHECK_EQ(faulty.n_sync, 2); /* the log and the object */
	CHECK_EQ(fence_object(23, 3, 2, &end), 0); /* same epoch again: does the remaining work */
	CHECK_EQ(end, 2);
	CHECK_EQ(read_bytes(o, 0, buf, 8), 0);
	CHECK(memcmp(buf, "12\0\0\0\0\0\0", 8) == 0);
	object_put(o);
	disk_fixture_end();
}

/* The cut is in the page cache after a kill: its repetition finds nothing to cut, and syncs it. */
static void a_repeated_cut_is_synced(void)
{
	struct object *o;
	uint64_t end;

	disk_fixture_start(".");
	o = get_object_ok(30, 1);
	CHECK_EQ(write_bytes(o, 0, "12345678", 8), 0);
	object_put(o);
	CHECK_EQ(fence_object(30, 5, 3, &end), 0);
	disk_fixture_reopen(false);
	faulty.n_sync = 0;
	CHECK_EQ(fence_object(30, 5, 3, &end), 0);
	CHECK_EQ(end, 3);
	CHECK_EQ(faulty.n_sync, 1);
	CHECK_EQ(fence_object(30, 5, 3, &end), 0);
	CHECK_EQ(faulty.n_sync, 1); /* it is known to be synced */
	disk_fixture_end();
}

static void fences_at_the_same_time_share_syncs(void)
{
	enum { N = 100 };
	static struct disk_args a[N];
	static struct test_req t[N];

	disk_fixture_start(".");
	/* on tmpfs a sync completes at once, so there is nothing to share */
	engine_forbid(&loop, ENGINE_NO_INLINE);
	faulty.n_sync = 0;
	for (uint64_t i = 0; i < N; i++) {
		a[i] = (struct disk_args){
			.ino = 1000 + i, .gen = 1, .epoch = 9, .off = UINT64_MAX
		};
		test_req_start(&t[i], &loop, start_fence, &a[i]);
	}
	for (int i = 0; i < N; i++) {
		test_req_wait(&t[i]);
		CHECK_EQ(t[i].error, 0);
	}
	CHECK(faulty.n_sync <= 4);
	disk_fixture_reopen(false);
	for (uint64_t i = 0; i < N; i++)
		CHECK_EQ(disk_floor(disk, 1000 + i), 9);
	disk_fixture_end();
}

static void a_fence_that_is_not_durable_fails_and_can_be_repeated(void)
{
	disk_fixture_start("/dev/shm");
	faulty.fail_sync = -EIO;
	CHECK_EQ(fence_object(24, 5, UINT64_MAX, NULL), -EIO);
	CHECK_EQ(disk_floor(disk, 24), 5);
	faulty.fail_sync = 0;
	faulty.fail_write = -ENOSPC;
	CHECK_EQ(fence_object(24, 5, UINT64_MAX, NULL), -ENOSPC);
	faulty.fail_write = 0;
	CHECK_EQ(fence_object(24, 5, UINT64_MAX, NULL), 0);
	disk_fixture_reopen(false);
	CHECK_EQ(disk_floor(disk, 24), 5);
	disk_fixture_end();
}

/* ---- removal ---- */

static void removal_leaves_a_tombstone_over_restarts(void)
{
	struct turn_req t;
	struct object *o, *other;

	disk_fixture_start(".");
	o = get_object_ok(30, 1);
	CHECK_EQ(write_bytes(o, 0, "data", 4), 0);
	CHECK(object_file_exists(30));
	CHECK_EQ(remove_object(30, 7), 0);
	CHECK(!object_file_exists(30));
	turn_ask(&t, o, 8, 0, 1, true); /* a holder of the removed object gets no turn */
	test_req_wait(&t.req);
	CHECK_EQ(t.req.error, -ESTALE);
	CHECK_EQ(get_object(30, 1, false, &other), -ENOENT);
	object_put(o);
	CHECK_EQ(remove_object(30, 7), 0); /* repeating a removal succeeds */
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(disk_floor(disk, 30), 7);
		disk_fixture_reopen(i == 1);
	}
	disk_fixture_end();
}

static void removals_and_gets_at_the_same_time_end_well(void)
{
	struct disk_args r[2], g[3];
	struct test_req tr[2], tg[3];
	struct object *o;

	disk_fixture_start(".");
	o = get_object_ok(31, 1);
	CHECK_EQ(write_bytes(o, 0, "data", 4), 0);
	for (int i = 0; i < 2; i++) {
		r[i] = (struct disk_args){ .ino = 31, .gen = 1, .epoch = 7 };
		test_req_start(&tr[i], &loop, start_remove, &r[i]);
	}
	for (int i = 0; i < 3; i++) {
		g[i] = (struct disk_args){
			.ino = 31, .gen = 1, .epoch = EPOCH_ANY, .create = i == 2
		};
		test_req_start(&tg[i], &loop, start_get, &g[i]);
		loop_turn(&loop, 0);
	}
	for (int i = 0; i < 2; i++) {
		test_req_wait(&tr[i]);
		CHECK_EQ(tr[i].error | r[i].error, 0);
	}
	for (int i = 0; i < 3; i++) {
		test_req_wait(&tg[i]);
		CHECK(tg[i].error == 0 || tg[i].error == -ENOENT);
		object_put(g[i].object);
	}
	object_put(o);
	disk_fixture_end();
}

static void removal_waits_for_turns_in_flight(void)
{
	struct disk_args a = { .ino = 32, .gen = 1, .epoch = 7 };
	struct turn_req t;
	struct test_req r;
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(32, 1);
	turn_ask(&t, o, 1, 0, 10, true);
	test_req_wait(&t.req);
	test_req_start(&r, &loop, start_remove, &a);
	disk_fixture_settle();
	CHECK(!r.over);
	CHECK(object_file_exists(32));
	turn_end(&t.turn);
	test_req_wait(&r);
	CHECK_EQ(r.error | a.error, 0);
	CHECK(!object_file_exists(32));
	object_put(o);
	disk_fixture_end();
}

/* ---- the log ---- */

static uint64_t records_in_log(void)
{
	char path[600];
	struct fence_rec r;
	uint64_t n = 0;
	int fd;

	fences_path(path, sizeof(path));
	fd = open(path, O_RDONLY);
	while (read(fd, &r, sizeof(r)) == sizeof(r))
		n += r.magic != 0;
	close(fd);
	return n;
}

static void a_torn_tail_is_cut(void)
{
	char path[600];
	int fd;

	disk_fixture_start("/dev/shm");
	for (uint64_t i = 1; i <= 5; i++)
		CHECK_EQ(fence_object(40 + i, i, UINT64_MAX, NULL), 0);
	CHECK_EQ(disk_close(disk, false), 0);
	CHECK_EQ(records_in_log(), 5);
	fences_path(path, sizeof(path));
	fd = open(path, O_WRONLY);
	CHECK_EQ(pwrite(fd, "torn", 4, 4 * 32 + 8), 4); /* damages the last record */
	CHECK_EQ(pwrite(fd, "more", 4, 5 * 32), 4);
	close(fd);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	CHECK_EQ(records_in_log(), 4);
	CHECK_EQ(disk_floor(disk, 44), 4);
	CHECK_EQ(disk_floor(disk, 45), 0);
	CHECK_EQ(fence_object(45, 6, UINT64_MAX, NULL), 0);
	disk_fixture_reopen(false);
	CHECK_EQ(disk_floor(disk, 44), 4);
	CHECK_EQ(disk_floor(disk, 45), 6);
	CHECK_EQ(disk_close(disk, false), 0);
	CHECK_EQ(truncate(path, 4 * 32 + 10), 0); /* leaves half a record at the end of the file */
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	CHECK_EQ(disk_floor(disk, 44), 4);
	CHECK_EQ(disk_floor(disk, 45), 0);
	disk_fixture_end();
}

static void damage_in_the_middle_costs_one_record(void)
{
	char path[600];
	int fd;

	disk_fixture_start("/dev/shm");
	for (uint64_t i = 1; i <= 5; i++)
		CHECK_EQ(fence_object(40 + i, i, UINT64_MAX, NULL), 0);
	CHECK_EQ(disk_close(disk, false), 0);
	fences_path(path, sizeof(path));
	fd = open(path, O_WRONLY);
	CHECK_EQ(pwrite(fd, "x", 1, 2 * 32 + 8), 1);
	close(fd);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	CHECK_EQ(disk_floor(disk, 43), 0);
	CHECK_EQ(disk_floor(disk, 45), 5);
	CHECK_EQ(records_in_log(), 4);
	disk_fixture_end();
}

static void the_log_is_compacted_and_old_tombstones_go(void)
{
	struct object *o;

	disk_fixture_start("/dev/shm");
	for (uint64_t i = 1; i <= 20; i++)
		CHECK_EQ(fence_object(50, i, UINT64_MAX, NULL), 0);
	o = get_object_ok(51, 1);
	object_put(o);
	CHECK_EQ(fence_object(51, 3, UINT64_MAX, NULL), 0);
	CHECK_EQ(records_in_log(), 21);
	disk_fixture_reopen(true);
	CHECK_EQ(records_in_log(), 2);
	faulty.skew = TOMBSTONE_NS - 60 * NSEC_PER_SEC;
	disk_fixture_reopen(true);
	CHECK_EQ(disk_floor(disk, 50), 20);
	faulty.skew = TOMBSTONE_NS + 60 * NSEC_PER_SEC;
	disk_fixture_reopen(true);
	CHECK_EQ(disk_floor(disk, 50), 0); /* its object is gone */
	CHECK_EQ(disk_floor(disk, 51), 3); /* its object still exists */
	CHECK_EQ(records_in_log(), 1);
	disk_fixture_end();
}

static void a_long_log_keeps_a_reserve_ahead(void)
{
	enum { N = 5000 };
	static struct disk_args a[N];
	static struct test_req t[N];

	disk_fixture_start("/dev/shm");
	for (uint64_t i = 0; i < N; i++) {
		a[i] = (struct disk_args){ .ino = i + 1, .gen = 1, .epoch = 9, .off = UINT64_MAX };
		test_req_start(&t[i], &loop, start_fence, &a[i]);
	}
	for (int i = 0; i < N; i++) {
		test_req_wait(&t[i]);
		CHECK_EQ(t[i].error, 0);
	}
	CHECK_EQ(disk->log.size, N * 32);
	CHECK(disk->log.reserved - disk->log.size >= LOG_RESERVE / 2);
	disk_fixture_reopen(false);
	CHECK_EQ(disk->floors.count, N);
	CHECK_EQ(disk->log.size, N * 32);
	disk_fixture_end();
}

static void fence_often(uint64_t ino, uint64_t from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		CHECK_EQ(fence_object(ino, from + i, UINT64_MAX, NULL), 0);
	while (disk->log.busy)
		loop_turn(&loop, NSEC_PER_MSEC);
}

static void a_log_that_says_the_same_again_and_again_is_written_anew(void)
{
	disk_fixture_start("/dev/shm");
	CHECK_EQ(fence_object(60, 4, UINT64_MAX, NULL), 0);
	faulty.fail_fsync = -EIO; /* the log cannot be rewritten, so the old one stays */
	fence_often(61, 1, LOG_SLACK + 10);
	CHECK_EQ(disk->log.size, (LOG_SLACK + 11) * 32);
	faulty.fail_fsync = 0;
	fence_often(61, LOG_SLACK + 11, LOG_SLACK + 10); /* the rewrite is not retried at once */
	CHECK(disk->log.size < LOG_SLACK * 32);
	CHECK(records_in_log() <= LOG_SLACK);
	CHECK(disk->log.reserved - disk->log.size >= LOG_RESERVE / 2);
	faulty.n_sync = 0;
	disk->log.rename_unsynced = true;
	CHECK_EQ(fence_object(62, 9, UINT64_MAX, NULL), 0);
	/* the log, and its directory entry before a caller relies on it */
	CHECK_EQ(faulty.n_sync, 2);
	CHECK_EQ(fence_object(62, 10, UINT64_MAX, NULL), 0);
	CHECK_EQ(faulty.n_sync, 3);
	disk_fixture_reopen(false);
	CHECK_EQ(disk_floor(disk, 60), 4);
	CHECK_EQ(disk_floor(disk, 61), 2 * LOG_SLACK + 20);
	CHECK_EQ(disk_floor(disk, 62), 10);
	disk_fixture_end();
}

static void old_tombstones_go_while_it_runs(void)
{
	enum { N = 100 };
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(69, 1);
	object_put(o);
	CHECK_EQ(fence_object(69, 3, UINT64_MAX, NULL), 0);
	for (uint64_t i = 0; i < N; i++)
		CHECK_EQ(remove_object(70 + i, 7), 0);
	CHECK_EQ(disk->floors.count, N + 1);
	faulty.skew = TOMBSTONE_NS - 60 * NSEC_PER_SEC;
	for (uint64_t i = 0; i < N; i++)
		CHECK_EQ(remove_object(70, 7), 0);
	CHECK_EQ(disk->floors.count, N + 1);
	faulty.skew = TOMBSTONE_NS + 60 * NSEC_PER_SEC;
	for (uint64_t i = 0; i < N; i++)
		CHECK_EQ(remove_object(300, 7), 0);
	CHECK_EQ(disk->floors.count, 2);
	CHECK_EQ(disk_floor(disk, 69), 3); /* its object still exists */
	CHECK_EQ(disk_floor(disk, 300), 7); /* a recent tombstone */
	disk_fixture_end();
}

TEST_MAIN(TEST(a_fence_refuses_older_epochs_now_and_after_a_restart),
	  TEST(a_fence_refuses_to_open_and_makes_no_object),
	  TEST(a_fence_waits_for_turns_in_flight_and_refuses_those_that_wait),
	  TEST(a_store_without_a_turn_needs_a_grantable_turn), TEST(a_fence_cuts_but_never_extends),
	  TEST(a_repeated_cut_is_synced), TEST(fences_at_the_same_time_share_syncs),
	  TEST(a_fence_that_is_not_durable_fails_and_can_be_repeated),
	  TEST(removal_leaves_a_tombstone_over_restarts),
	  TEST(removals_and_gets_at_the_same_time_end_well),
	  TEST(removal_waits_for_turns_in_flight), TEST(a_torn_tail_is_cut),
	  TEST(damage_in_the_middle_costs_one_record),
	  TEST(the_log_is_compacted_and_old_tombstones_go), TEST(a_long_log_keeps_a_reserve_ahead),
	  TEST(a_log_that_says_the_same_again_and_again_is_written_anew),
	  TEST(old_tombstones_go_while_it_runs))
