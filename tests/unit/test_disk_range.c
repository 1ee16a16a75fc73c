/* Preallocation, zeroed ranges, holes, and seeks over them, on file systems with and without
 * support. */
#include <fcntl.h>
#include <unistd.h>

#include "disk/disk_impl.h"

#include "disk_fixture.h"

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

static int mode, whence;

static void start_allocate(struct test_req *t, struct req *q)
{
	struct disk_args *a = t->arg;

	a->io = (struct io){ .off = a->off, .iov = &a->iov, .n = 1 };
	object_allocate(a->object, &a->io, 1, mode, 99, q);
}

static int allocate(struct object *o, int how, uint64_t off, uint64_t len)
{
	struct disk_args a = { .object = o, .off = off, .iov = { NULL, len } };

	mode = how;
	return test_req_run(&loop, start_allocate, &a);
}

static void start_seek(struct test_req *t, struct req *q)
{
	struct disk_args *a = t->arg;

	a->io.off = a->off;
	object_seek(a->object, &a->io, whence, q);
}

static uint64_t seek(struct object *o, int how, uint64_t off)
{
	struct disk_args a = { .object = o, .off = off };

	whence = how;
	CHECK_EQ(test_req_run(&loop, start_seek, &a), 0);
	return a.io.bytes;
}

static void check_bytes(struct object *o, uint64_t off, size_t n, char want)
{
	static char b[1 << 20];

	memset(b, ~want, n);
	CHECK_EQ(read_bytes(o, off, b, n), 0);
	for (size_t i = 0; i < n; i++)
		CHECK_EQ(b[i], want);
}

static void fill(struct object *o, size_t n)
{
	char *b = malloc(n);

	CHECK(b);
	memset(b, 'x', n);
	CHECK_EQ(write_bytes(o, 0, b, n), 0);
	free(b);
}

static void ends(const char *parent)
{
	struct object *o;

	disk_fixture_start(parent);
	o = get_object_ok(7, 1);
	CHECK_EQ(allocate(o, FALLOC_FL_KEEP_SIZE, 0, 100000), 0);
	CHECK_EQ(object_end(o), 0);
	CHECK_EQ(allocate(o, 0, 1000, 2000), 0);
	CHECK_EQ(object_end(o), 3000);
	CHECK_EQ(object_mtime(o), 99);
	CHECK(object_dirty(o));
	CHECK_EQ(allocate(o, 0, 0, 10), 0);
	CHECK_EQ(object_end(o), 3000);
	check_bytes(o, 0, 3000, 0);
	fill(o, 3000);
	CHECK_EQ(allocate(o, PUNCH, 100, 200), 0);
	CHECK_EQ(allocate(o, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 2900, 5000), 0);
	CHECK_EQ(object_end(o), 3000);
	check_bytes(o, 0, 100, 'x');
	check_bytes(o, 100, 200, 0);
	check_bytes(o, 300, 2600, 'x');
	check_bytes(o, 2900, 100, 0);
	CHECK_EQ(allocate(o, FALLOC_FL_ZERO_RANGE, 2800, 5000), 0);
	CHECK_EQ(object_end(o), 7800);
	check_bytes(o, 2800, 5000, 0);
	CHECK_EQ(allocate(o, 0, UINT64_MAX - 10, 5), -EFBIG);
	CHECK_EQ(allocate(o, 0, 9000, 0), 0);
	CHECK_EQ(object_end(o), 7800);
	/* preallocated space behind the end reads as zeros */
	CHECK_EQ(write_bytes(o, 20000, "a", 1), 0);
	check_bytes(o, 7800, 12200, 0);
	object_put(o);
	disk_fixture_end();
}

static void allocating_moves_the_end_only_when_asked(void)
{
	ends("/dev/shm");
	ends(".");
}

static void holes(const char *parent)
{
	struct object *o;

	disk_fixture_start(parent);
	o = get_object_ok(7, 1);
	CHECK_EQ(seek(o, SEEK_DATA, 0), UINT64_MAX);
	CHECK_EQ(seek(o, SEEK_HOLE, 5), 5);
	fill(o, 500000);
	CHECK_EQ(seek(o, SEEK_DATA, 77), 77);
	CHECK_EQ(seek(o, SEEK_HOLE, 77), 500000);
	CHECK_EQ(allocate(o, PUNCH, 65536, 65536), 0);
	CHECK_EQ(seek(o, SEEK_HOLE, 77), 65536);
	CHECK_EQ(seek(o, SEEK_DATA, 70000), 131072);
	CHECK_EQ(seek(o, SEEK_HOLE, 500000), 500000);
	CHECK_EQ(seek(o, SEEK_DATA, 500000), UINT64_MAX);
	CHECK_EQ(allocate(o, PUNCH, 0, INT64_MAX),
		 0); /* the length may exceed the object; the last block is punched, too */
	CHECK_EQ(seek(o, SEEK_DATA, 0), UINT64_MAX);
	CHECK_EQ(object_end(o), 500000);
	check_bytes(o, 0, 500000, 0);
	object_put(o);
	disk_fixture_end();
}

static void holes_are_made_and_found(void)
{
	holes("/dev/shm");
	holes(".");
}

static int no_fallocate(struct env *e, int fd, int how, off_t off, off_t len)
{
	(void)e, (void)fd, (void)how, (void)off, (void)len;
	return -EOPNOTSUPP;
}

/* A missing table entry and a system call that is not supported have the same effect. */
static void a_file_system_without_room_or_holes_does_what_it_can(void)
{
	struct object *o;

	disk_fixture_start("/dev/shm");
	for (uint64_t i = 0; i < 2; i++) {
		faulty.file.fallocate = i ? no_fallocate : NULL;
		faulty.file.seek = NULL;
		o = get_object_ok(7 + i, 1);
		CHECK_EQ(allocate(o, FALLOC_FL_KEEP_SIZE, 0, 5000), 0);
		CHECK_EQ(object_end(o), 0);
		CHECK_EQ(allocate(o, 0, 1000, 2000), 0);
		CHECK_EQ(object_end(o), 3000);
		fill(o, 3000);
		CHECK_EQ(allocate(o, 0, 0, 2000), 0);
		check_bytes(o, 0, 3000, 'x');
		CHECK_EQ(allocate(o, PUNCH, 0, 10), -EOPNOTSUPP);
		CHECK_EQ(allocate(o, FALLOC_FL_ZERO_RANGE, 0, 10), -EOPNOTSUPP);
		check_bytes(o, 0, 3000, 'x');
		CHECK_EQ(seek(o, SEEK_DATA, 10), 10);
		CHECK_EQ(seek(o, SEEK_HOLE, 10), 3000);
		CHECK_EQ(seek(o, SEEK_HOLE, 4000), 4000);
		CHECK_EQ(seek(o, SEEK_DATA, 3000), UINT64_MAX);
		object_put(o);
	}
	disk_fixture_end();
}

static int full_fallocate(struct env *e, int fd, int how, off_t off, off_t len)
{
	CHECK_EQ(env_real()->file->fallocate(e, fd, how, off, len / 2), 0);
	return -ENOSPC;
}

static void a_failed_allocation_leaves_the_end_where_the_file_has_it(void)
{
	struct object *o;

	disk_fixture_start("/dev/shm");
	o = get_object_ok(7, 1);
	faulty.file.fallocate = full_fallocate;
	CHECK_EQ(allocate(o, 0, 0, 8000), -ENOSPC);
	CHECK_EQ(object_end(o), 4000);
	object_put(o);
	disk_fixture_end();
}

/* On tmpfs the object remembers which pages exist, until a punch or a cut may have removed some. */
static void pages_that_went_are_asked_for_again(void)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), all = 16 * page;
	struct object *o;

	disk_fixture_start("/dev/shm");
	CHECK(loop.on_tmpfs);
	o = get_object_ok(7, 1);
	fill(o, all);
	if (!object_cached(o, 0, all)) { /* this kernel does not tell which pages exist */
		object_put(o);
		disk_fixture_end();
		return;
	}
	CHECK(object_cached(o, page + 1, 100));
	CHECK_EQ(allocate(o, PUNCH, 2 * page, page), 0);
	CHECK(!object_cached(o, 0, all) && !object_cached(o, 2 * page, 1));
	CHECK(object_cached(o, 0, 2 * page) && object_cached(o, 3 * page, all - 3 * page));
	CHECK_EQ(write_bytes(o, 2 * page, "x", 1), 0);
	CHECK(object_cached(o, 0, all));
	CHECK_EQ(fence_object(7, 5, 2 * page + 10, NULL), 0);
	CHECK_EQ(write_bytes(o, all - 1, "x", 1), 0); /* leaves a hole before it */
	CHECK(!object_cached(o, 0, all) && object_cached(o, 0, 2 * page + 10));
	object_put(o);
	disk_fixture_end();
}

TEST_MAIN(TEST(allocating_moves_the_end_only_when_asked), TEST(holes_are_made_and_found),
	  TEST(a_file_system_without_room_or_holes_does_what_it_can),
	  TEST(a_failed_allocation_leaves_the_end_where_the_file_has_it),
	  TEST(pages_that_went_are_asked_for_again))
