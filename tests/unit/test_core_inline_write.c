/* When the loop writes to ext4 itself: the state of the system is a text file of the test, and the
 * pages that are cached are those that the test names. */
#include <sys/mman.h>
#include <unistd.h>

#include "core/inline_write.h"

#include "test_req.h"

static struct {
	struct env env;
	struct file_ops file;
	struct clock_ops clock;
	struct loop loop;
	struct inline_writes w;
	uint64_t now;
	uint64_t lo, hi; /* cached */
	int fd;
} t;

static bool is_cached(struct env *e, struct loop *l, int fd, uint64_t off, uint64_t len)
{
	(void)e, (void)l, (void)fd;
	return off >= t.lo && off + len <= t.hi;
}

static uint64_t now(struct env *e)
{
	(void)e;
	return t.now;
}

/* What the system says, in pages. */
static void set_state(int dirty, int threshold, int writeback)
{
	char text[256];
	int n = snprintf(text, sizeof(text),
			 "nr_free_pages 1\nnr_dirty %d\nnr_writeback %d\nnr_writeback_temp 0\n"
			 "nr_dirty_threshold 9\nnr_dirty_background_threshold %d\n",
			 dirty, writeback, threshold);

	CHECK_EQ(ftruncate(t.w.vmstat, 0), 0);
	CHECK_EQ(pwrite(t.w.vmstat, text, (size_t)n, 0), n);
	t.now += NSEC_PER_SEC; /* read it again */
}

static void begin(void)
{
	memset(&t, 0, sizeof(t));
	t.env = *env_real();
	t.file = *env_real()->file;
	t.clock = *env_real()->clock;
	t.file.cached = is_cached;
	t.clock.now = now;
	t.env.file = &t.file;
	t.env.clock = &t.clock;
	t.loop.env = &t.env;
	t.w.vmstat = memfd_create("vmstat", MFD_CLOEXEC);
	t.fd = memfd_create("file", MFD_CLOEXEC);
	CHECK(t.w.vmstat > 0 && t.fd > 0);
	CHECK_EQ(ftruncate(t.fd, 100 * LEAST_PAGE), 0);
	t.w.on = true;
	t.now = NSEC_PER_SEC;
	t.hi = 10 * LEAST_PAGE;
	set_state(100, 100000, 0);
}

static void end(void)
{
	close(t.fd);
	inline_writes_fini(&t.w);
}

static bool may(uint64_t off, uint64_t len)
{
	struct io io = { .kind = IO_WRITE, .fd = t.fd, .off = off, .len = len };

	return inline_writes_begin(&t.w, &t.env, &t.loop, &io, 1) &&
	       inline_writes_may(&t.w, &t.env, &t.loop, &io);
}

static void pages_that_change_in_part_must_be_cached_or_new(void)
{
	uint64_t page = LEAST_PAGE;

	begin();
	CHECK(may(10, 100)); /* cached */
	CHECK(!may(20 * page + 10, 100)); /* not cached */
	CHECK(may(20 * page, page)); /* not cached, but replaced as a whole */
	CHECK(may(20 * page, 4 * page));
	CHECK(!may(20 * page, 4 * page + 1));
	CHECK(!may(9 * page + 1, 2 * page)); /* the last page is not cached */
	CHECK(may(100 * page, 10)); /* beyond the end */
	CHECK(may(9 * page + 1, page - 1));
	CHECK(may(10, 0));
	end();
}

static void no_write_while_the_disk_is_behind(void)
{
	begin();
	set_state(100000, 100000, 0); /* too much is dirty */
	CHECK(!may(0, 100));
	set_state(100, 100000, 5000); /* much is on its way to the disk */
	CHECK(!may(0, 100));
	set_state(100, 100000, 10);
	CHECK(may(0, 100));
	CHECK_EQ(ftruncate(t.w.vmstat, 0), 0); /* unknown */
	t.now += NSEC_PER_SEC;
	CHECK(!may(0, 100));
	end();
}

static void only_a_part_of_the_free_memory_is_used_until_it_is_read_again(void)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	begin();
	set_state(0, 16,
		  0); /* a quarter of 16 pages; a write may touch one page more than it has */
	CHECK(may(0, page));
	CHECK(may(0, page));
	CHECK(!may(0, page));
	t.now += NSEC_PER_SEC;
	CHECK(may(0, page));
	CHECK(!may(0, 2 * MIB)); /* too long for the loop */
	end();
}

static void a_stall_is_counted_and_stops_inline_writes_for_a_while(void)
{
	begin();
	CHECK(may(0, 100));
	t.now += NSEC_PER_MSEC;
	inline_writes_performed(&t.w, &t.loop);
	CHECK_EQ(t.loop.io_stalls, 0);
	CHECK(may(0, 100) && !t.w.stalled);
	t.now += 15 * NSEC_PER_MSEC;
	inline_writes_performed(&t.w, &t.loop);
	CHECK(t.w.stalled); /* the rest of the batch is handed over */
	CHECK_EQ(t.loop.io_stalls, 1);
	CHECK_EQ(t.loop.io_longest_stall, 15 * NSEC_PER_MSEC);
	t.now += NSEC_PER_SEC;
	CHECK(!may(0, 100));
	t.now += NSEC_PER_SEC;
	CHECK(may(0, 100));
	end();
}

TEST_MAIN(TEST(pages_that_change_in_part_must_be_cached_or_new),
	  TEST(no_write_while_the_disk_is_behind),
	  TEST(only_a_part_of_the_free_memory_is_used_until_it_is_read_again),
	  TEST(a_stall_is_counted_and_stops_inline_writes_for_a_while))
