/* Objects: reads, writes, ends, syncs, latched errors, the descriptor cache, and turns. */
#include "disk/disk_impl.h"

#include "disk_fixture.h"

static void zero_is(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK_EQ(p[i], 0);
}

static void holes_and_what_is_behind_the_end_read_as_zeros(const char *parent)
{
	char buf[300];
	struct object *o;

	disk_fixture_start(parent);
	CHECK_EQ(get_object(7, 1, false, &o), -ENOENT);
	o = get_object_ok(7, 1);
	CHECK_EQ(object_end(o), 0);
	memset(buf, 1, sizeof(buf));
	CHECK_EQ(read_bytes(o, 0, buf, 100), 0);
	zero_is(buf, 100);
	CHECK_EQ(write_bytes(o, 10000, "abc", 3), 0);
	CHECK_EQ(object_end(o), 10003);
	CHECK_EQ(object_mtime(o), 77);
	memset(buf, 1, sizeof(buf));
	CHECK_EQ(read_bytes(o, 9990, buf, 300), 0);
	zero_is(buf, 10);
	CHECK(memcmp(buf + 10, "abc", 3) == 0);
	zero_is(buf + 13, 287);
	CHECK_EQ(write_bytes(o, 0, "xyz", 3), 0);
	CHECK_EQ(object_end(o), 10003);
	CHECK_EQ(write_bytes(o, UINT64_MAX - 1, "xyz", 3), -EFBIG);
	object_put(o);
	disk_fixture_reopen(true);
	CHECK_EQ(get_object(7, 2, false, &o),
		 -ENOENT); /* another generation names another object */
	CHECK_EQ(get_object(7, 1, false, &o), 0);
	CHECK_EQ(object_end(o), 10003);
	CHECK_EQ(read_bytes(o, 0, buf, 3), 0);
	CHECK(memcmp(buf, "xyz", 3) == 0);
	object_put(o);
	object_put(NULL);
	disk_fixture_end();
}

static void sparse_objects_read_as_zeros_in_memory_and_here(void)
{
	holes_and_what_is_behind_the_end_read_as_zeros("/dev/shm");
	holes_and_what_is_behind_the_end_read_as_zeros(".");
}

static void gets_at_the_same_time_share_one_open(void)
{
	struct disk_args a[4];
	struct test_req t[4];
	struct disk_counters c;

	disk_fixture_start("/dev/shm");
	for (int i = 0; i < 4; i++) {
		a[i] = (struct disk_args){ .ino = 8, .gen = 1, .create = i >= 2 };
		test_req_start(&t[i], &loop, start_get, &a[i]);
	}
	for (int i = 0; i < 4; i++)
		test_req_wait(&t[i]);
	for (int i = 0; i < 2; i++) /* these opens may run before the object is created */
		CHECK(t[i].error == -ENOENT || a[i].object == a[3].object);
	CHECK(a[2].object && a[2].object == a[3].object);
	disk_counters(disk, &c);
	CHECK_EQ(c.opens, 1);
	for (int i = 0; i < 4; i++)
		object_put(a[i].object);
	disk_fixture_end();
}

static void a_sync_covers_new_directory_entries_once(void)
{
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(9, 1);
	CHECK_EQ(write_bytes(o, 0, "a", 1), 0);
	faulty.n_sync = 0;
	CHECK_EQ(sync_object(o), 0);
	CHECK_EQ(faulty.n_sync, 3); /* file, objects/XX, objects */
	faulty.n_sync = 0;
	CHECK_EQ(sync_object(o), 0);
	CHECK_EQ(faulty.n_sync, 1);
	object_put(o);
	disk_fixture_end();
}

static void nosync_never_syncs(void)
{
	struct object *o;

	disk_fixture_start("/dev/shm");
	CHECK_EQ(disk_close(disk, true), 0);
	CHECK_EQ(disk_open(&loop, disk_path, &test_fs, 3, true, 0, &disk, disk_err,
			   sizeof(disk_err)),
		 0);
	o = get_object_ok(9, 1);
	faulty.n_sync = 0;
	faulty.fail_sync = faulty.fail_fsync = -EIO;
	CHECK_EQ(write_bytes(o, 0, "a", 1), 0);
	CHECK_EQ(sync_object(o), 0);
	object_put(o);
	CHECK_EQ(fence_object(9, 5, 0, NULL), 0);
	CHECK_EQ(remove_object(9, 6), 0);
	CHECK_EQ(faulty.n_sync, 0);
	disk_fixture_end();
}

static void a_failed_sync_is_reported_once_to_all_waiters(void)
{
	struct object *o;
	struct test_req a, b;
	struct disk_counters c;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(10, 1);
	CHECK_EQ(write_bytes(o, 0, "a", 1), 0);
	faulty.fail_sync = -EIO;
	test_req_start(&a, &loop, start_sync, o);
	test_req_start(&b, &loop, start_sync, o);
	test_req_wait(&a);
	test_req_wait(&b);
	CHECK_EQ(a.error, -EIO);
	CHECK_EQ(b.error, -EIO);
	faulty.fail_sync = 0;
	CHECK_EQ(sync_object(o), 0);
	disk_counters(disk, &c);
	CHECK(c.latched >= 1);
	object_put(o);
	disk_fixture_end();
}

static void a_failed_write_tells_the_truth_about_the_end(void)
{
	char data[100] = "data";
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(11, 1);
	CHECK_EQ(write_bytes(o, 0, data, 10), 0);
	faulty.fail_write = -ENOSPC;
	CHECK_EQ(write_bytes(o, 10, data, 100), -ENOSPC);
	CHECK_EQ(object_end(o), 10);
	faulty.half_write = true;
	CHECK_EQ(write_bytes(o, 10, data, 100), -ENOSPC);
	CHECK_EQ(object_end(o), 60);
	faulty.fail_write = 0;
	CHECK_EQ(write_bytes(o, 10, data, 100), 0);
	CHECK_EQ(object_end(o), 110);
	object_put(o);
	disk_fixture_end();
}

/* ---- the cache ---- */

static void touch_many(uint64_t from, uint64_t n)
{
	for (uint64_t i = from; i < from + n; i++) {
		struct object *o = get_object_ok(i, 1);

		CHECK_EQ(write_bytes(o, 0, &i, sizeof(i)), 0);
		object_put(o);
	}
	disk_fixture_settle();
}

static void the_cache_is_bounded_and_loses_nothing(void)
{
	disk_fixture_start("/dev/shm");
	touch_many(100, DISK_MAX_OPEN + 200);
	CHECK(disk->n_open <= DISK_MAX_OPEN);
	CHECK_EQ(disk->n_evicting, 0);
	CHECK(faulty.n_sync >= 200); /* dirty objects were synced before they left the cache */
	CHECK_EQ(disk->table.count, disk->n_open);
	for (uint64_t i = 100; i < 100 + DISK_MAX_OPEN + 200; i++) {
		struct object *o;
		uint64_t v = 0;

		CHECK_EQ(get_object(i, 1, false, &o), 0);
		CHECK_EQ(object_end(o), sizeof(v));
		CHECK_EQ(read_bytes(o, 0, &v, sizeof(v)), 0);
		CHECK_EQ(v, i);
		object_put(o);
	}
	disk_fixture_settle();
	CHECK(disk->n_open <= DISK_MAX_OPEN);
	disk_fixture_end();
}

static void an_error_at_eviction_is_reported_by_the_next_sync(void)
{
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(12, 1);
	CHECK_EQ(write_bytes(o, 0, "a", 1), 0);
	object_put(o);
	faulty.fail_sync = -EIO;
	touch_many(100, DISK_MAX_OPEN);
	faulty.fail_sync = 0;
	CHECK(disk->n_open <= DISK_MAX_OPEN);
	CHECK_EQ(get_object(12, 1, false, &o), 0);
	CHECK_EQ(sync_object(o), -EIO);
	CHECK_EQ(sync_object(o), 0);
	object_put(o);
	disk_fixture_end();
}

static void an_unreported_error_makes_a_stop_unclean(void)
{
	uint64_t verifier;
	struct object *o;

	disk_fixture_start("/dev/shm");
	verifier = disk_verifier(disk);
	o = get_object_ok(12, 1);
	CHECK_EQ(write_bytes(o, 0, "a", 1), 0);
	object_put(o);
	faulty.fail_sync = -EIO;
	touch_many(100, DISK_MAX_OPEN);
	faulty.fail_sync = 0;
	CHECK_EQ(disk_close(disk, true), -EIO);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
	CHECK(disk_verifier(disk) != verifier);
	disk_fixture_end();
}

/* ---- turns ---- */

static void writers_exclude_in_their_range_in_order_of_asking(void)
{
	struct turn_req r1, r2, w1, w2, r3, far;
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(13, 1);
	turn_ask(&r1, o, 1, 0, 100, false);
	turn_ask(&r2, o, 1, 50, 150, false);
	turn_ask(&w1, o, 1, 90, 200, true);
	turn_ask(&r3, o, 1, 150, 160, false);
	turn_ask(&w2, o, 1, 0, 10, true);
	turn_ask(&far, o, 1, 1000, 1001, true);
	loop_turn(&loop, 0);
	CHECK(r1.req.over && r2.req.over && far.req.over);
	CHECK(!w1.req.over && !w2.req.over);
	CHECK(!r3.req.over); /* w1 asked first */
	turn_end(&r1.turn);
	loop_turn(&loop, 0);
	CHECK(w2.req.over && !w1.req.over);
	turn_end(&r2.turn);
	loop_turn(&loop, 0);
	CHECK(w1.req.over && !r3.req.over);
	turn_end(&w1.turn);
	turn_end(&w1.turn);
	loop_turn(&loop, 0);
	CHECK(r3.req.over);
	turn_end(&r3.turn);
	turn_end(&w2.turn);
	turn_end(&far.turn);
	turn_end(&(struct turn){ 0 });
	CHECK(list_empty(&o->turns));
	CHECK_EQ(o->n_waiting, 0);
	object_put(o);
	disk_fixture_end();
}

static void a_mapping_stays_while_it_is_used_and_then_grows(void)
{
	struct object *o;
	const char *old, *far;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(11, 1);
	CHECK(!object_map(o, 0, 1)); /* the object is empty */
	CHECK_EQ(write_bytes(o, 4000, "near", 4), 0);
	old = object_map(o, 4000, 4);
	CHECK(old && memcmp(old, "near", 4) == 0);
	CHECK_EQ(write_bytes(o, OBJECT_MAP + 5, "far", 3), 0);
	CHECK(!object_map(o, OBJECT_MAP, 8)); /* the old mapping is still in use */
	CHECK(memcmp(old, "near", 4) == 0);
	object_unmap(o);
	far = object_map(o, OBJECT_MAP, 8);
	CHECK(far && memcmp(far + 5, "far", 3) == 0);
	CHECK(!object_map(o, OBJECT_MAP, 9)); /* behind the end of the object */
	object_unmap(o);
	CHECK_EQ(o->map_users, 0);
	object_put(o);
	disk_fixture_end();
}

/* Writes a byte at the largest possible offset of a file. */
static void a_huge_object_is_mapped_in_part_or_not_at_all(void)
{
	const uint64_t end = INT64_MAX - 4096;
	struct object *o;
	const char *near;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(12, 1);
	CHECK_EQ(write_bytes(o, 0, "near", 4), 0);
	if (write_bytes(o, end - 1, "x", 1) == 0) { /* not every file system supports it */
		CHECK_EQ(object_end(o), end);
		near = object_map(o, 0, 4);
		CHECK(!near || memcmp(near, "near", 4) == 0);
		CHECK(!object_map(o, end - 4, 4));
		if (near)
			object_unmap(o);
		CHECK(!object_map(o, end - 4, 4));
	}
	object_put(o);
	disk_fixture_end();
}

TEST_MAIN(TEST(a_mapping_stays_while_it_is_used_and_then_grows),
	  TEST(a_huge_object_is_mapped_in_part_or_not_at_all),
	  TEST(sparse_objects_read_as_zeros_in_memory_and_here),
	  TEST(gets_at_the_same_time_share_one_open),
	  TEST(a_sync_covers_new_directory_entries_once), TEST(nosync_never_syncs),
	  TEST(a_failed_sync_is_reported_once_to_all_waiters),
	  TEST(a_failed_write_tells_the_truth_about_the_end),
	  TEST(the_cache_is_bounded_and_loses_nothing),
	  TEST(an_error_at_eviction_is_reported_by_the_next_sync),
	  TEST(an_unreported_error_makes_a_stop_unclean),
	  TEST(writers_exclude_in_their_range_in_order_of_asking))
