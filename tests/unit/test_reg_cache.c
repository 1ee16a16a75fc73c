/* The cache and group registration, on a device that pins nothing: what is registered, how often,
 * and what happens at a limit. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reg/reg_impl.h"
#include "reg_fixture.h"
#include "test.h"

static struct fake_device dev;
static struct reg *r;
static size_t page;

/* With known costs: a gap of up to 4 pages is joined. */
static void begin(uint64_t limit, unsigned flags)
{
	page = page_size();
	dev = (struct fake_device){ 0 };
	CHECK_EQ(reg_open(&r, &fake_ops, &dev, limit, flags), 0);
	r->costs = (struct reg_costs){ .page_ns = 100, .call_ns = 400, .query_ns = 1000 };
	dev.made = dev.dropped = dev.refused = 0;
}

static void end(void)
{
	reg_close(r);
	CHECK_EQ(dev.live, 0);
}

static struct reg_counts counts(void)
{
	struct reg_counts c;

	reg_get_counts(r, &c);
	return c;
}

/* Rows of half a page, one in every second page. */
static void rows(struct iovec *v, size_t n, char *base)
{
	for (size_t i = 0; i < n; i++)
		v[i] = (struct iovec){ base + 2 * i * page, page / 2 };
}

static void check_use(const struct reg_use *u, const struct iovec *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct reg_memory *m = u->regions[u->region_of[i]];
		const char *at = v[i].iov_base, *start = m->addr;

		CHECK(u->region_of[i] < u->n_regions);
		CHECK(start <= at && at + v[i].iov_len <= start + m->len);
	}
}

static void rows_of_one_array_are_one_registration(void)
{
	struct iovec v[100];
	struct reg_use u;
	char *p = pages_map(200);

	begin(GIB, REG_NO_CACHE);
	rows(v, 100, p);
	CHECK_EQ(reg_acquire(r, v, 100, true, &u), 0);
	check_use(&u, v, 100);
	CHECK(dev.made == 1 && counts().groups == 1 && u.n_made == 1);
	reg_release(r, &u);
	CHECK_EQ(dev.live, 0);
	r->costs.call_ns = 50; /* less than the page between two rows */
	CHECK_EQ(reg_acquire(r, v, 100, true, &u), 0);
	check_use(&u, v, 100);
	CHECK_EQ(dev.made, 101);
	reg_release(r, &u);
	munmap(p, 200 * page);
	end();
}

static void holes_cost_one_failure(void)
{
	struct iovec v[100];
	struct reg_use u;
	char *p = pages_map(200);

	begin(GIB, REG_NO_CACHE);
	rows(v, 100, p);
	for (size_t i = 1; i <= 10; i++) /* between two rows */
		munmap(p + (18 * i + 1) * page, page);
	CHECK_EQ(reg_acquire(r, v, 100, true, &u), 0);
	check_use(&u, v, 100);
	CHECK_EQ(dev.made, 11);
	CHECK_EQ(dev.refused, 1);
	reg_release(r, &u);
	munmap(p + 20 * page, page); /* a row itself */
	CHECK_EQ(reg_acquire(r, v, 100, true, &u), -EFAULT);
	CHECK(!u.regions && !u.n_regions);
	CHECK_EQ(dev.live, 0);
	munmap(p, 200 * page);
	end();
}

static void few_pieces_around_a_hole_are_registered_one_by_one(void)
{
	struct iovec v[2];
	struct reg_use u;
	char *p = pages_map(4);

	begin(GIB, REG_NO_CACHE);
	rows(v, 2, p);
	munmap(p + page, page);
	CHECK_EQ(reg_acquire(r, v, 2, true, &u), 0);
	check_use(&u, v, 2);
	CHECK(dev.made == 2 && dev.refused == 1);
	reg_release(r, &u);
	munmap(p, 4 * page);
	end();
}

static void read_only_pieces_may_be_sent_but_not_filled(void)
{
	char *p = pages_map(8);
	struct iovec v[4];
	struct reg_use u;

	begin(GIB, REG_NO_CACHE);
	rows(v, 4, p);
	munmap(p + page, page); /* so that the mappings are looked up */
	CHECK_EQ(mprotect(p + 2 * page, page, PROT_READ), 0);
	CHECK_EQ(reg_acquire(r, v, 4, false, &u), 0);
	reg_release(r, &u);
	CHECK_EQ(reg_acquire(r, v, 4, true, &u), -EFAULT);
	munmap(p, 8 * page);
	end();
}

static void acquire_one(char *p, size_t n, struct reg_use *u, int want)
{
	struct iovec v = { p, n * page };

	CHECK_EQ(reg_acquire(r, &v, 1, true, u), want);
}

static void touch(char *p, size_t n)
{
	struct reg_use u;

	acquire_one(p, n, &u, 0);
	reg_release(r, &u);
}

static void the_least_recently_used_goes_first(void)
{
	char *p = pages_map(16);
	struct reg_use u;

	begin(4 * page, 0);
	if (!counts().is_caching) {
		end();
		return;
	}
	for (size_t i = 0; i < 4; i++)
		touch(p + 3 * i * page, 1);
	touch(p, 1); /* now the second is the oldest */
	CHECK(dev.made == 4 && dev.dropped == 0);
	touch(p + 12 * page, 1);
	CHECK(dev.made == 5 && dev.dropped == 1);
	touch(p, 1);
	CHECK_EQ(dev.made, 5);
	touch(p + 3 * page, 1);
	CHECK_EQ(dev.made, 6);
	CHECK(counts().pinned_bytes <= 4 * page);
	acquire_one(p, 4, &u, 0); /* needs all of it */
	acquire_one(p + 12 * page, 1, &(struct reg_use){ 0 }, -ENOBUFS);
	reg_release(r, &u);
	acquire_one(p, 5, &u, -ENOBUFS);
	munmap(p, 16 * page);
	end();
}

static void gaps_are_left_out_where_the_limit_is_small(void)
{
	struct iovec v[10];
	struct reg_use u;
	char *p = pages_map(20);

	begin(12 * page, REG_NO_CACHE);
	rows(v, 10, p);
	CHECK_EQ(reg_acquire(r, v, 10, true, &u), 0);
	CHECK_EQ(u.n_regions, 10);
	reg_release(r, &u);
	munmap(p, 20 * page);
	end();
}

static void a_device_at_its_limit_gets_space_from_the_cache(void)
{
	char *p = pages_map(16);
	struct reg_use u;

	begin(GIB, 0);
	dev.fails_above = 4 * page;
	for (size_t i = 0; i < 8; i++)
		touch(p + 2 * i * page, 1);
	acquire_one(p, 4, &u, 0);
	acquire_one(p + 8 * page, 1, &(struct reg_use){ 0 }, -ENOBUFS);
	reg_release(r, &u);
	touch(p + 8 * page, 1);
	munmap(p, 16 * page);
	end();
}

static void larger_regions_replace_the_smaller_ones_in_them(void)
{
	char *p = pages_map(8);

	begin(GIB, 0);
	touch(p, 1);
	touch(p + 4 * page, 1);
	touch(p, 8);
	if (counts().is_caching)
		CHECK(dev.live == 1 || dev.live == 3); /* deregistered by the next call */
	touch(p + 6 * page, 2);
	if (counts().is_caching)
		CHECK_EQ(dev.made, 3);
	munmap(p, 8 * page);
	end();
}

/* Without any further request: the memory of a freed buffer is not kept. */
static void unmapped_regions_are_deregistered_at_once(void)
{
	char *p = pages_map(8);

	begin(GIB, 0);
	if (counts().is_caching) {
		touch(p, 8);
		munmap(p, 8 * page);
		while (dev.live) /* by the sweeper */
			usleep(100);
		CHECK_EQ(counts().invalidations, 1);
	}
	end();
}

static void nothing_is_acquired_for_nothing(void)
{
	struct iovec v = { NULL, 0 };
	struct reg_use u;

	begin(GIB, 0);
	CHECK_EQ(reg_acquire(r, NULL, 0, true, &u), 0);
	reg_release(r, &u);
	CHECK_EQ(reg_acquire(r, &v, 1, true, &u), 0);
	CHECK_EQ(u.region_of[0], 0);
	reg_release(r, &u);
	end();
}

TEST_MAIN(TEST(rows_of_one_array_are_one_registration), TEST(holes_cost_one_failure),
	  TEST(few_pieces_around_a_hole_are_registered_one_by_one),
	  TEST(read_only_pieces_may_be_sent_but_not_filled),
	  TEST(the_least_recently_used_goes_first),
	  TEST(gaps_are_left_out_where_the_limit_is_small),
	  TEST(a_device_at_its_limit_gets_space_from_the_cache),
	  TEST(larger_regions_replace_the_smaller_ones_in_them),
	  TEST(unmapped_regions_are_deregistered_at_once), TEST(nothing_is_acquired_for_nothing))
