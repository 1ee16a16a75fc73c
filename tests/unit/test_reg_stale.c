/* The cache of registered memory never hands out a region whose pages are no longer those of the
 * program. Every transfer goes through pages that io_uring has pinned. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "reg_fixture.h"
#include "test.h"
#include "test_process.h"

static struct pinned x;
static size_t page;

static void begin(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	if (!pinned_start(&x, 0, 0))
		SKIP_ALL("there is no io_uring");
}

static struct reg_counts counts(void)
{
	struct reg_counts c;

	reg_get_counts(x.reg, &c);
	return c;
}

static void repeated_requests_register_once(void)
{
	char *p = pages_map(4);
	uint64_t before;

	begin();
	before = counts().registrations;
	CHECK_EQ(pinned_check(&x, p + 100, 2 * page), 0);
	CHECK_EQ(counts().registrations, before + 1);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(pinned_check(&x, p + 200, page), 0);
	CHECK_EQ(counts().registrations, before + (counts().is_caching ? 1 : 11));
	CHECK(counts().is_caching || counts().why_not);
	munmap(p, 4 * page);
	pinned_end(&x);
}

/* Each way to replace the pages below a registered region. The pages before and after stay mapped:
 * no other thread's stack or heap fits into a hole of these four. */
static void unmap_and_map(char *p)
{
	CHECK_EQ(munmap(p, 4 * page), 0);
	CHECK_EQ(pinned_check(&x, p, page), -EFAULT);
	CHECK(mmap(p, 4 * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p);
}

static void map_over(char *p)
{
	CHECK(mmap(p, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == p);
}

static void discard(char *p)
{
	CHECK_EQ(madvise(p, 2 * page, MADV_DONTNEED), 0);
}

static void move_away(char *p)
{
	char *q = mremap(p, 4 * page, 8 * page, MREMAP_MAYMOVE);

	CHECK(q != MAP_FAILED);
	CHECK_EQ(pinned_check(&x, q, 4 * page), 0);
	if (q != p)
		CHECK(mmap(p, 4 * page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
}

/* glibc 2.36 does not pass the address that the kernel wants for MREMAP_DONTUNMAP. */
static void leave_without_pages(char *p)
{
	char *q = (char *)syscall(SYS_mremap, p, 4 * page, 4 * page,
				  MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

	CHECK(q != MAP_FAILED);
	CHECK_EQ(pinned_check(&x, q, 4 * page), 0);
	munmap(q, 4 * page);
}

static void move_over(char *p)
{
	char *q = pages_map(4);

	CHECK(mremap(q, 4 * page, 4 * page, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
}

static void replaced_pages_are_registered_anew(void)
{
	static void (*const change[])(char *p) = {
		unmap_and_map, map_over, discard, move_away, leave_without_pages, move_over
	};

	begin();
	for (size_t i = 0; i < ARRAY_LEN(change); i++) {
		char *around = pages_map(6), *p = around + page;
		struct iovec piece = { p, 4 * page };
		struct reg_use held;

		CHECK_EQ(reg_acquire(x.reg, &piece, 1, true, &held), 0);
		CHECK_EQ(pinned_check(&x, p, 4 * page), 0);
		change[i](p); /* during a request ... */
		CHECK_EQ(pinned_check(&x, p, 4 * page), 0);
		reg_release(x.reg, &held);
		change[i](p); /* ... and between requests */
		CHECK_EQ(pinned_check(&x, p, 4 * page), 0);
		munmap(around, 6 * page);
	}
	pinned_end(&x);
}

static void shared_files_are_not_cached(void)
{
	int fd = memfd_create("shared", MFD_CLOEXEC);
	char *p;

	begin();
	CHECK_EQ(ftruncate(fd, (off_t)(4 * page)), 0);
	p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	for (int i = 0; i < 10; i++) { /* a hole punched by any process would not be reported */
		CHECK_EQ(pinned_check(&x, p, 4 * page), 0);
		CHECK_EQ(counts().pinned_bytes, 0);
		CHECK_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)page),
			 0);
	}
	munmap(p, 4 * page);
	close(fd);
	pinned_end(&x);
}

/* ---- random changes and requests ---- */

#define AREAS 12
#define AREA 12 /* pages */
#define WINDOW (AREAS * AREA) /* pages */
#define HELD 4
#define BLOCKS 6

enum page_is { HOLE, ANON, READ_ONLY, SHARED_FILE, PRIVATE_FILE };

static struct {
	char *base;
	uint8_t is[WINDOW];
	uint32_t version[WINDOW]; /* of the mapping */
	int file;
	uint64_t seed;
	struct held {
		bool any;
		struct iovec piece;
		struct reg_use use;
		uint32_t versions[WINDOW];
	} held[HELD];
	char *block[BLOCKS];
	size_t block_len[BLOCKS];
} m;

static size_t pick(size_t n)
{
	return test_random(&m.seed) % n;
}

static void pick_run(size_t *at, size_t *n)
{
	*at = pick(WINDOW);
	*n = 1 + pick(MIN(AREA, WINDOW - *at));
}

static void set(size_t at, size_t n, enum page_is is)
{
	for (size_t i = at; i < at + n; i++) {
		m.is[i] = (uint8_t)is;
		m.version[i]++;
	}
}

static char *addr(size_t at)
{
	return m.base + at * page;
}

/* A hole under the thread sanitizer is memory without rights: another thread might map there. */
static void do_unmap(size_t at, size_t n)
{
	if (SANITIZED)
		CHECK(mmap(addr(at), n * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			   -1, 0) != MAP_FAILED);
	else
		CHECK_EQ(munmap(addr(at), n * page), 0);
	set(at, n, HOLE);
}

static void do_map(size_t at, size_t n)
{
	CHECK(mmap(addr(at), n * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == addr(at));
	set(at, n, ANON);
	if (pick(2))
		pages_fill(addr(at), n * page, test_random(&m.seed));
}

static void do_map_file(size_t at, size_t n)
{
	bool shared = pick(2);

	CHECK(mmap(addr(at), n * page, PROT_READ | PROT_WRITE,
		   MAP_FIXED | (shared ? MAP_SHARED : MAP_PRIVATE), m.file,
		   (off_t)(at * page)) == addr(at));
	set(at, n, shared ? SHARED_FILE : PRIVATE_FILE);
}

static bool all_are(size_t at, size_t n, enum page_is is)
{
	for (size_t i = at; i < at + n; i++)
		if (m.is[i] != is)
			return false;
	return true;
}

static void do_discard(size_t at, size_t n)
{
	static const int how[] = { MADV_DONTNEED, MADV_DONTNEED, MADV_FREE };

	if (!all_are(at, n, ANON))
		return;
	CHECK_EQ(madvise(addr(at), n * page, how[pick(ARRAY_LEN(how))]), 0);
	pages_fill(addr(at), page, test_random(&m.seed)); /* MADV_FREE leaves the rest open */
	memset(addr(at) + page, 7, (n - 1) * page);
	set(at, n, ANON);
}

static void do_move(size_t at, size_t n)
{
	size_t to = pick(WINDOW - n + 1), left = 1 + pick(n);

	if (!all_are(at, n, ANON) || (to < at + n && at < to + n))
		return;
	if (mremap(addr(at), n * page, left * page, MREMAP_MAYMOVE | MREMAP_FIXED, addr(to)) ==
	    MAP_FAILED) { /* several mappings: the kernel may have moved some of them */
		do_unmap(at, n);
		do_unmap(to, left);
		return;
	}
	set(at, n, HOLE);
	if (SANITIZED)
		do_unmap(at, n);
	set(to, left, ANON);
}

static void do_protect(size_t at, size_t n)
{
	bool lock = all_are(at, n, ANON);

	if (!lock && !all_are(at, n, READ_ONLY))
		return;
	CHECK_EQ(mprotect(addr(at), n * page, lock ? PROT_READ : PROT_READ | PROT_WRITE), 0);
	for (size_t i = at; i < at + n; i++)
		m.is[i] = lock ? READ_ONLY : ANON; /* the same pages */
}

static void do_store(size_t at, size_t n)
{
	for (size_t i = at; i < at + n; i++)
		if (m.is[i] == ANON || m.is[i] == PRIVATE_FILE)
			pages_fill(addr(i) + pick(page - 64), 64, test_random(&m.seed));
}

static void do_file_hole(size_t at, size_t n)
{
	CHECK_EQ(fallocate(m.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(at * page),
			   (off_t)(n * page)),
		 0);
}

/* Is the piece all of pages of that kind? any: is one of them? */
static bool piece_is(const struct iovec *p, enum page_is is, bool any)
{
	size_t first = (size_t)((char *)p->iov_base - m.base) / page;
	size_t last = ((size_t)((char *)p->iov_base - m.base) + p->iov_len - 1) / page;

	for (size_t i = first; i <= last; i++)
		if ((m.is[i] == is) == any)
			return any;
	return !any;
}

static size_t pick_pieces(struct iovec *p)
{
	size_t n = 1 + pick(12), at = pick(WINDOW - 1) * page + pick(page), len;

	for (size_t i = 0; i < n; i++) {
		len = 1 + pick(pick(2) ? 300 : 3 * page);
		len = MIN(len, WINDOW * page - at);
		p[i] = (struct iovec){ m.base + at, len };
		at += len + pick(pick(3) ? page : 4 * page);
		if (at >= WINDOW * page)
			at = pick((WINDOW - 1) * page);
	}
	return n;
}

static void check_error(int e, const struct iovec *p, size_t n)
{
	bool may_fail = false;

	for (size_t i = 0; i < n; i++)
		may_fail |= !piece_is(&p[i], ANON, false) && !piece_is(&p[i], PRIVATE_FILE, false);
	CHECK_EQ(e, -EFAULT);
	CHECK(may_fail);
}

static void check_pieces(const struct reg_use *u, const struct iovec *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		CHECK(!piece_is(&p[i], HOLE, true));
		pinned_check_out(&x, u, i, &p[i]);
		if (pick(2) && !piece_is(&p[i], READ_ONLY, true))
			pinned_check_in(&x, u, i, &p[i], &m.seed);
	}
}

static void do_request(size_t at, size_t n)
{
	struct iovec p[12];
	struct reg_use u;
	size_t k = pick_pieces(p);
	int e = reg_acquire(x.reg, p, k, true, &u);

	(void)at;
	(void)n;
	if (e) {
		check_error(e, p, k);
		return;
	}
	check_pieces(&u, p, k);
	reg_release(x.reg, &u);
}

/* A request that takes some steps: its memory is right as long as no page was replaced. */
static void do_hold(size_t at, size_t n)
{
	struct held *h = &m.held[pick(HELD)];

	if (!h->any) {
		h->piece = (struct iovec){ addr(at), n * page - 10 };
		h->any = reg_acquire(x.reg, &h->piece, 1, true, &h->use) == 0;
		memcpy(h->versions, m.version, sizeof(m.version));
		return;
	}
	at = (size_t)((char *)h->piece.iov_base - m.base) / page;
	n = h->piece.iov_len / page + 1;
	if (memcmp(&h->versions[at], &m.version[at], n * sizeof(m.version[0])) == 0 &&
	    piece_is(&h->piece, ANON, false))
		pinned_check_out(&x, &h->use, 0, &h->piece);
	reg_release(x.reg, &h->use);
	h->any = false;
}

/* Blocks of the heap: freed and allocated again, with requests between. */
static void do_block(size_t at, size_t n)
{
	size_t i = pick(BLOCKS);

	(void)at;
	(void)n;
	if (m.block[i] && pick(3)) {
		pages_fill(m.block[i], MIN(40, m.block_len[i]), test_random(&m.seed));
		CHECK_EQ(pinned_check(&x, m.block[i], m.block_len[i]), 0);
		return;
	}
	free(m.block[i]);
	m.block_len[i] = 1 + pick(pick(4) ? 2 * page : 90 * page);
	m.block[i] = malloc(m.block_len[i]);
	CHECK(m.block[i]);
	memset(m.block[i], (int)pick(256), m.block_len[i]);
}

static const struct {
	unsigned share; /* of 100 steps */
	void (*run)(size_t at, size_t n);
} steps[] = { { 45, do_request }, { 10, do_hold },     { 9, do_block },	  { 6, do_unmap },
	      { 11, do_map },	  { 2, do_map_file },  { 5, do_discard }, { 4, do_move },
	      { 3, do_protect },  { 1, do_file_hole }, { 4, do_store } };

static void one_step(void)
{
	unsigned share = (unsigned)pick(100);
	size_t at, n, i = 0;

	pick_run(&at, &n);
	for (; share >= steps[i].share; i++)
		share -= steps[i].share;
	steps[i].run(at, n);
}

static void start_model(void)
{
	void *where = SANITIZED ? NULL : (void *)(uintptr_t)UINT64_C(0x200000000000);

	m.file = memfd_create("mapped", MFD_CLOEXEC);
	CHECK_EQ(ftruncate(m.file, (off_t)(WINDOW * page)), 0);
	m.base = mmap(where, WINDOW * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(m.base != MAP_FAILED);
	do_unmap(0, WINDOW);
}

static void random_changes_never_leave_stale_pages(void)
{
	const int n = getenv("SHEAF_TEST_LONG") ? 2000000 : 100000;

	begin();
	m.seed = 20260117;
	start_model();
	for (int i = 0; i < n; i++)
		one_step();
	for (size_t i = 0; i < HELD; i++)
		if (m.held[i].any)
			reg_release(x.reg, &m.held[i].use);
	printf("  %" PRIu64 " registrations, %" PRIu64 " failed, %" PRIu64 " hits, %" PRIu64
	       " invalidations\n",
	       counts().registrations, counts().failed, counts().hits, counts().invalidations);
	CHECK(!counts().is_caching || (counts().hits > 1000 && counts().invalidations > 1000));
	for (size_t i = 0; i < BLOCKS; i++)
		free(m.block[i]);
	if (munmap(m.base, WINDOW * page) == 0)
		m.base = NULL;
	reg_flush(x.reg);
	CHECK_EQ(counts().pinned_bytes, 0);
	pinned_end(&x);
}

/* ---- threads ---- */

#define THREADS 4

/* The kernel gives an address to one thread while another is still in munmap() of it. */
static void *map_use_unmap(void *arg)
{
	int n = getenv("SHEAF_TEST_LONG") ? 20000 : 1000;
	uint64_t seed = (uintptr_t)arg;

	for (int i = 0; i < n; i++) {
		struct pinned own = x;
		size_t k = 1 + test_random(&seed) % 3;
		char *p = mmap(NULL, k * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		CHECK(p != MAP_FAILED);
		pages_fill(p, 64, seed);
		own.fd = memfd_create("own", MFD_CLOEXEC);
		CHECK_EQ(ftruncate(own.fd, (off_t)(k * page)), 0);
		CHECK_EQ(pinned_check(&own, p, k * page), 0);
		close(own.fd);
		munmap(p, k * page);
	}
	return NULL;
}

static void in_threads(void *(*run)(void *arg), int n)
{
	pthread_t t[THREADS];

	for (int i = 0; i < n; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, run, (void *)(uintptr_t)(i + 1)), 0);
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static void threads_reuse_addresses_of_each_other(void)
{
	begin();
	in_threads(map_use_unmap, THREADS);
	reg_flush(x.reg);
	CHECK_EQ(counts().pinned_bytes, 0);
	pinned_end(&x);
}

static char *shared_pages; /* thread 1 has page 1 for itself, the others use pages 0 and 2 */
static atomic_bool discarder_ended;

static void *group_around(void)
{
	struct iovec around[2] = { { shared_pages, page }, { shared_pages + 2 * page, page } };
	struct reg_use u;

	while (!discarder_ended) {
		CHECK_EQ(reg_acquire(x.reg, around, 2, true, &u), 0);
		reg_release(x.reg, &u);
	}
	return NULL;
}

/* Keeps the lock of the address space busy, so that madvise() waits for it. */
static void *map_much(void)
{
	while (!discarder_ended) {
		void *p = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		CHECK(p != MAP_FAILED);
		munmap(p, 2 * MIB);
	}
	return NULL;
}

static void *group_or_discard(void *arg)
{
	struct sched_param none = { 0 };
	int n = getenv("SHEAF_TEST_LONG") ? 10000 : 300;
	struct pinned own = x;

	if ((uintptr_t)arg != 1)
		return (uintptr_t)arg == 2 ? map_much() : group_around();
	CHECK_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0); /* the others come between */
	own.fd = memfd_create("own", MFD_CLOEXEC);
	CHECK_EQ(ftruncate(own.fd, (off_t)page), 0);
	for (int i = 0; i < n; i++) {
		CHECK_EQ(madvise(shared_pages + page, page, MADV_DONTNEED), 0);
		pages_fill(shared_pages + page, 64, (uint64_t)i);
		CHECK_EQ(pinned_check(&own, shared_pages + page, page), 0);
		if (i % 10 == 0) /* new memory may be cached again */
			CHECK(mmap(shared_pages + page, page, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
				   0) == shared_pages + page);
	}
	close(own.fd);
	discarder_ended = true;
	return NULL;
}

/* The kernel reports MADV_DONTNEED before it discards the pages: a region that another thread
 * registers between the two must not stay. */
static void pages_that_are_being_discarded_are_not_cached(void)
{
	begin();
	shared_pages = pages_map(3);
	in_threads(group_or_discard, THREADS);
	munmap(shared_pages, 3 * page);
	pinned_end(&x);
}

TEST_MAIN(TEST(repeated_requests_register_once), TEST(replaced_pages_are_registered_anew),
	  TEST(shared_files_are_not_cached), TEST(random_changes_never_leave_stale_pages),
	  TEST(threads_reuse_addresses_of_each_other),
	  TEST(pages_that_are_being_discarded_are_not_cached))
