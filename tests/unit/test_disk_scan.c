/* Scans of objects by pages: each object is listed once, with its end and its floor; other files
 * are skipped. */
#include <fcntl.h>

#include "disk/disk_impl.h"

#include "disk_fixture.h"

#define OBJECTS 300

static void start_scan(struct test_req *t, struct req *q)
{
	disk_scan(disk, t->arg, q);
}

/* Reads all pages of `max` rows. Each object must be listed once. */
static unsigned scan_all(uint32_t max, uint64_t only, bool *seen)
{
	struct disk_object rows[OBJECTS + 10];
	struct disk_scan s = { .only = only, .rows = rows, .max = max };
	unsigned n = 0;

	memset(seen, 0, OBJECTS + 1);
	while (!s.end) {
		CHECK_EQ(test_req_run(&loop, start_scan, &s), 0);
		CHECK(s.n <= max && (s.n || s.end));
		for (uint32_t i = 0; i < s.n; i++, n++) {
			CHECK(rows[i].id.ino >= 1 && rows[i].id.ino <= OBJECTS &&
			      !seen[rows[i].id.ino]);
			seen[rows[i].id.ino] = true;
			CHECK_EQ(rows[i].id.gen, 1);
			CHECK_EQ(rows[i].end, rows[i].id.ino);
			CHECK_EQ(rows[i].floor, rows[i].id.ino == 7 ? 5 : 0);
		}
		if (!s.n)
			continue;
		s.begun = true;
		s.dir = rows[s.n - 1].dir;
		s.last.ino = rows[s.n - 1].id.ino;
		s.last.gen = rows[s.n - 1].id.gen;
	}
	return n;
}

static void every_object_is_seen_once(void)
{
	static const uint32_t pages[] = { 1, 7, OBJECTS, OBJECTS + 10 };
	bool seen[OBJECTS + 1];
	char path[600];

	disk_fixture_start("/dev/shm");
	CHECK_EQ(scan_all(10, 0, seen), 0);
	for (uint64_t i = 1; i <= OBJECTS; i++) {
		struct object *o = get_object_ok(i, 1);

		CHECK_EQ(write_bytes(o, i - 1, "x", 1), 0);
		object_put(o);
	}
	CHECK_EQ(fence_object(7, 5, UINT64_MAX, NULL), 0);
	snprintf(path, sizeof(path), "%s/objects/%02x/no-object", disk_path, object_dir_index(1));
	CHECK_EQ(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
	snprintf(path, sizeof(path), "%s/objects/%02x/%016x.%08xff", disk_path, object_dir_index(1),
		 1, 1);
	CHECK_EQ(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
	for (size_t i = 0; i < ARRAY_LEN(pages); i++)
		CHECK_EQ(scan_all(pages[i], 0, seen), OBJECTS);
	CHECK_EQ(scan_all(10, 7, seen), 1);
	CHECK(seen[7]);
	CHECK_EQ(scan_all(10, OBJECTS + 1, seen), 0);
	CHECK_EQ(remove_object(7, 6), 0);
	CHECK_EQ(scan_all(10, 7, seen), 0);
	disk_fixture_end();
}

TEST_MAIN(TEST(every_object_is_seen_once))
