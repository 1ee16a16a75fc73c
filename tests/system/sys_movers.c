/* Movers: which one a transfer uses, what it costs in messages and copies, and memory that cannot
 * be accessed. */
#include <setjmp.h>
#include <sys/mman.h>

#include "cluster.h"
#include "sheaf_admin.h"

#define SERVERS 4
#define UNIT 65536
#define PAGE 65536 /* a multiple of the page size */

static struct sheaf *fs;
static struct sheaf_file *file;
static struct cluster cluster;

static void begin(void)
{
	cluster_create(&cluster, &(struct cluster_opts){ .servers = SERVERS, .stripe_unit = UNIT });
	cluster_start(&cluster);
	fs = client_connect(cluster.conf);
	file = open_file(fs, "/moved", O_CREAT | O_RDWR);
}

static void end(void)
{
	CHECK_EQ(sheaf_close(file), 0);
	sheaf_disconnect(fs);
	cluster_stop(&cluster);
}

static struct sheaf_account account(void)
{
	struct sheaf_account sum = { 0 }, one;

	for (int i = 0; i < SERVERS; i++) {
		CHECK_EQ(sheaf_account(fs, i, &one), 0);
		/* "tcp" or "rdma"; without it, a slow server may be dialled by TCP, too */
		if (getenv("SHEAF_NET"))
			CHECK(!one.medium || strcmp(one.medium, getenv("SHEAF_NET")) == 0);
		sum.requests += one.requests;
		sum.frames += one.frames;
		sum.sent += one.sent;
		sum.copied += one.copied;
		for (int k = 0; k < SHEAF_MOVERS; k++)
			sum.bytes[k] += one.bytes[k];
	}
	return sum;
}

static struct sheaf_account since(struct sheaf_account before)
{
	struct sheaf_account d = account();

	d.requests -= before.requests;
	d.frames -= before.frames;
	d.sent -= before.sent;
	d.copied -= before.copied;
	for (int k = 0; k < SHEAF_MOVERS; k++)
		d.bytes[k] -= before.bytes[k];
	return d;
}

/* ---- counts ---- */

#define PIECES 4096
#define PIECE 64

static struct iovec pieces[PIECES];
static struct sheaf_extent extents[PIECES];
static uint8_t heap[2 * PIECES * PIECE];

static void make_list(bool regular)
{
	for (size_t i = 0; i < PIECES; i++) {
		pieces[i] = (struct iovec){ heap + 2 * i * PIECE, PIECE };
		extents[i] = (struct sheaf_extent){ 2 * i * PIECE + (regular ? 0 : i % 7), PIECE };
	}
	for (size_t i = 0; i < sizeof(heap); i++)
		heap[i] = (uint8_t)(i * 31 + i / 977);
}

static void one_round(enum sheaf_mover how, size_t n, struct sheaf_account *w,
		      struct sheaf_account *r)
{
	static uint8_t copy[sizeof(heap)];
	struct sheaf_account before;

	CHECK_EQ(sheaf_set_mover(fs, how), 0);
	memcpy(copy, heap, sizeof(heap));
	before = account();
	CHECK_EQ(sheaf_write_list(file, pieces, n, extents, n), n * PIECE);
	*w = since(before);
	for (size_t i = 0; i < n; i++)
		memset(pieces[i].iov_base, 0, PIECE);
	before = account();
	CHECK_EQ(sheaf_read_list(file, pieces, n, extents, n), n * PIECE);
	*r = since(before);
	CHECK(memcmp(copy, heap, sizeof(heap)) == 0);
}

static bool by_rdma(void)
{
	const char *net = getenv("SHEAF_NET");

	return net && strcmp(net, "rdma") == 0;
}

/* By RDMA, requests that are long are copied as well; and a server may write less than all, so that
 * a buffer for reads has the old contents before. */
static void check_copied(const struct sheaf_account *w, const struct sheaf_account *r,
			 uint64_t packed)
{
	CHECK(w->copied >= packed && w->copied <= packed + (by_rdma() ? w->sent : 0));
	if (packed)
		CHECK(r->copied >= packed && r->copied <= packed + (by_rdma() ? r->sent : 0));
}

/* One request and one reply for each server, for any number of segments. Data are frames as well,
 * and written data need a PULL. */
static void one_request_and_one_reply_for_each_server(void)
{
	const uint64_t total = PIECES * PIECE;
	struct sheaf_account w, r;

	begin();
	for (int regular = 0; regular < 2; regular++) {
		make_list(regular);
		for (int how = SHEAF_MOVER_PACK; how <= SHEAF_MOVER_GATHER; how++) {
			/* connects to all servers */
			one_round((enum sheaf_mover)how, PIECES, &w, &r);
			one_round((enum sheaf_mover)how, PIECES, &w, &r);
			CHECK_EQ(w.requests, SERVERS);
			CHECK_EQ(r.requests, SERVERS);
			/* requests without data: a vector is short, a list takes at least a byte
			 * for each extent; by RDMA the request also has all pieces of memory */
			if (!regular || (how == SHEAF_MOVER_GATHER && by_rdma()))
				CHECK(r.sent > PIECES && r.sent < total);
			else
				CHECK(r.sent < 1024 * SERVERS);
			CHECK_EQ(w.bytes[how], total);
			CHECK_EQ(r.bytes[how], total);
			check_copied(&w, &r, how == SHEAF_MOVER_PACK ? total : 0);
			CHECK(r.frames <= 2 * SERVERS + 64);
			printf("  %s %s: %llu frames to write, %llu to read\n",
			       regular ? "vector" : "list", sheaf_mover_name((enum sheaf_mover)how),
			       (unsigned long long)w.frames, (unsigned long long)r.frames);
		}
	}
	end();
}

static void what_is_small_travels_in_the_message(void)
{
	struct sheaf_account w, r;

	begin();
	make_list(false);
	one_round(SHEAF_MOVER_AUTO, 16, &w, &r);
	one_round(SHEAF_MOVER_AUTO, 16, &w, &r);
	CHECK_EQ(w.bytes[SHEAF_MOVER_INLINE], 16 * PIECE);
	CHECK_EQ(r.bytes[SHEAF_MOVER_INLINE], 16 * PIECE);
	CHECK(w.sent > 16 * PIECE);
	CHECK_EQ(w.frames, 2); /* one server: request and reply */
	CHECK_EQ(r.frames, 2);
	one_round(SHEAF_MOVER_INLINE, PIECES, &w, &r); /* connects to all servers */
	one_round(SHEAF_MOVER_INLINE, PIECES, &w, &r); /* as many requests as needed */
	CHECK_EQ(w.bytes[SHEAF_MOVER_INLINE], PIECES * PIECE);
	CHECK_EQ(r.bytes[SHEAF_MOVER_INLINE], PIECES * PIECE);
	if (by_rdma()) /* long messages are cut, and credits may need one of their own */
		CHECK(w.frames >= 2 * w.requests && w.frames <= 6 * w.requests);
	else
		CHECK_EQ(w.frames, 2 * w.requests);
	end();
}

static void a_whole_program_is_told_by_its_environment(void)
{
	struct sheaf_account w, r;

	setenv("SHEAF_MOVER", "pack", 1);
	begin();
	make_list(false);
	CHECK_EQ(sheaf_write_list(file, pieces, PIECES, extents, PIECES), PIECES * PIECE);
	CHECK_EQ(account().bytes[SHEAF_MOVER_PACK], PIECES * PIECE);
	one_round(SHEAF_MOVER_GATHER, PIECES, &w, &r);
	CHECK_EQ(w.bytes[SHEAF_MOVER_GATHER], PIECES * PIECE);
	setenv("SHEAF_MOVER", "carry", 1);
	CHECK_EQ(sheaf_connect(cluster.conf, &fs), -EINVAL);
	CHECK(strstr(sheaf_why(), "SHEAF_MOVER is 'carry'"));
	unsetenv("SHEAF_MOVER");
	fs = client_connect(cluster.conf);
	CHECK_EQ(sheaf_set_mover(fs, (enum sheaf_mover)SHEAF_ALL_MOVERS), -EINVAL);
	sheaf_disconnect(fs);
	cluster_stop(&cluster);
}

/* ---- sieving ---- */

static int64_t blocks_found;

static int count_blocks(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type == FTW_F && strstr(path, "/objects/"))
		blocks_found += st->st_blocks;
	return 0;
}

/* Bytes allocated on all disks. */
static int64_t stored(void)
{
	blocks_found = 0;
	CHECK_EQ(nftw(cluster.dir, count_blocks, 16, FTW_PHYS), 0);
	return blocks_found * 512;
}

/* Many pieces in one page and one far away: the pages between are not written, so they stay a
 * hole. */
static void sieved_writes_fill_no_holes(void)
{
	int64_t before;

	begin();
	CHECK_EQ(sheaf_pwrite(file, "x", 1, 60 * 1024), 1);
	CHECK_EQ(sheaf_ftruncate(file, SERVERS * UNIT), 0);
	CHECK_EQ(sheaf_fsync(file), 0);
	before = stored();
	for (size_t i = 0; i < 120; i++) {
		pieces[i] = (struct iovec){ heap + i, 1 };
		extents[i] = (struct sheaf_extent){ i < 119 ? 30 * i : 50 * 1024, 1 };
	}
	CHECK_EQ(sheaf_set_mover(fs, SHEAF_MOVER_GATHER), 0);
	CHECK_EQ(sheaf_write_list(file, pieces, 120, extents, 120), 120);
	CHECK_EQ(sheaf_fsync(file), 0);
	CHECK(stored() - before <= 16384);
	end();
}

/* ---- inaccessible memory ---- */

enum hole { UNMAPPED, NO_ACCESS, READ_ONLY, HOLES };

/* An address so low that no other mapping is placed in the hole: a read would overwrite that
 * mapping. */
#define LOW ((void *)0x20000000)

/* Maps three blocks of memory; the middle one is inaccessible in the given way. */
static uint8_t *some_memory(size_t block, enum hole hole)
{
	uint8_t *m = mmap(LOW, 3 * block, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	CHECK(m != MAP_FAILED);
	memset(m, 'm', 3 * block);
	if (hole == UNMAPPED)
		CHECK_EQ(munmap(m + block, block), 0);
	else
		CHECK_EQ(mprotect(m + block, block, hole == NO_ACCESS ? PROT_NONE : PROT_READ), 0);
	return m;
}

/* The result of a write of n bytes. Before Linux 6.2, a card may read memory that the program may
 * not. */
static void check_written(ssize_t r, size_t n, enum hole hole)
{
	if (hole != READ_ONLY && !(by_rdma() && hole == NO_ACCESS && r == (ssize_t)n))
		CHECK_EQ(r, -EFAULT);
	else
		CHECK_EQ(r, n);
}

static void bad_access(size_t block, enum hole hole, bool typed)
{
	uint8_t *m = some_memory(block, hole);
	struct iovec v[3] = { { m, block }, { m + block, block }, { m + 2 * block, block } };
	struct sheaf_extent e = { 0, 3 * block };

	if (typed) {
		struct sheaf_type *flat, *piece;

		CHECK_EQ(sheaf_type_bytes(32, &piece), 0);
		CHECK_EQ(sheaf_type_bytes(3 * block, &flat), 0);
		check_written(sheaf_write_typed(file, m, piece, 3 * block / 32, 0, flat), 3 * block,
			      hole);
		CHECK_EQ(sheaf_read_typed(file, m, piece, 3 * block / 32, 0, flat), -EFAULT);
		sheaf_type_free(flat);
		sheaf_type_free(piece);
	} else {
		/* inline transfers */
		CHECK_EQ(sheaf_pread(file, m + block - 10, 20, 0), -EFAULT);
		check_written(sheaf_pwrite(file, m + block - 10, 20, 0), 20, hole);
		check_written(sheaf_write_list(file, v, 3, &e, 1), 3 * block, hole);
		CHECK_EQ(sheaf_read_list(file, v, 3, &e, 1), -EFAULT);
	}
	munmap(m, block);
	if (hole != UNMAPPED)
		munmap(m + block, block);
	munmap(m + 2 * block, block);
}

/* Concurrent transfers over the same links are not affected. */
static void memory_that_is_not_there_is_an_error_and_nothing_more(void)
{
	static const size_t blocks[] = { PAGE, 4 * PAGE, 32 * PAGE };
	static uint8_t good[1 << 20], back[1 << 20];
	struct sheaf_file *other;
	struct sheaf_op *op;
	uint64_t links;

	begin();
	CHECK_EQ(sheaf_ftruncate(file, 3 * 32 * PAGE), 0);
	memset(good, 'g', sizeof(good));
	other = open_file(fs, "/other", O_CREAT | O_RDWR);
	CHECK_EQ(sheaf_pwrite(other, good, sizeof(good), 0), sizeof(good));
	links = server_status(fs, 0).bad_links;
	for (int how = 0; how < SHEAF_ALL_MOVERS; how++)
		for (size_t b = 0; b < 3; b++)
			for (int h = 0; h < HOLES; h++) {
				CHECK_EQ(sheaf_set_mover(fs, (enum sheaf_mover)how), 0);
				CHECK_EQ(sheaf_pread_start(other, back, sizeof(back), 0, &op), 0);
				bad_access(blocks[b], (enum hole)h, false);
				bad_access(blocks[b], (enum hole)h, true);
				CHECK_EQ(sheaf_wait(op), sizeof(back));
				CHECK(memcmp(good, back, sizeof(good)) == 0);
				memset(back, 0, sizeof(back));
			}
	for (int i = 0; i < SERVERS; i++)
		CHECK_EQ(server_status(fs, i).bad_links,
			 i ? server_status(fs, i).bad_links : links);
	CHECK_EQ(sheaf_close(other), 0);
	end();
}

#define MUCH_MAX ((size_t)768 * PAGE) /* several windows at each server */
#define MUCH ((size_t)scaled(256) * 3 * PAGE)

static void fill_with(uint8_t byte)
{
	static uint8_t b[MUCH_MAX];

	memset(b, byte, MUCH);
	CHECK_EQ(sheaf_pwrite(file, b, MUCH, 0), MUCH);
}

static bool holds_only(uint8_t one, uint8_t other)
{
	static uint8_t b[MUCH_MAX];
	bool yes = sheaf_pread(file, b, MUCH, 0) == (ssize_t)MUCH;

	for (size_t i = 0; yes && i < MUCH; i++)
		yes = b[i] == one || b[i] == other;
	return yes;
}

/* A failed write may have written some of its own bytes, and no others. */
static void a_write_that_fails_leaves_bytes_of_before_or_of_its_own(void)
{
	const size_t sizes[] = { MUCH, 64, 1000 };

	begin();
	for (int how = 0; how < SHEAF_MOVERS; how++)
		for (size_t i = 0; i < 3; i++) {
			uint8_t *m = some_memory(MUCH / 3, UNMAPPED);
			struct sheaf_type *flat, *piece;

			fill_with('o');
			CHECK_EQ(sheaf_set_mover(fs, (enum sheaf_mover)how), 0);
			CHECK_EQ(sheaf_pwrite(file, m, MUCH, 0), -EFAULT);
			CHECK_EQ(sheaf_type_bytes(sizes[i], &piece), 0);
			CHECK_EQ(sheaf_type_bytes(MUCH / sizes[i] * sizes[i], &flat), 0);
			CHECK_EQ(sheaf_write_typed(file, m, piece, MUCH / sizes[i], 0, flat),
				 -EFAULT);
			CHECK(holds_only('o', 'm'));
			sheaf_type_free(flat);
			sheaf_type_free(piece);
			munmap(m, MUCH / 3);
			munmap(m + MUCH / 3 * 2, MUCH / 3);
		}
	end();
}

/* The client itself writes zeros for holes of the file into the caller's memory. */
static void nor_can_zeros_be_put_there(void)
{
	uint8_t *m;

	begin();
	CHECK_EQ(sheaf_ftruncate(file, 16 * PAGE), 0);
	m = some_memory(PAGE, READ_ONLY);
	CHECK_EQ(sheaf_pread(file, m, 3 * PAGE, 0), -EFAULT);
	CHECK_EQ(sheaf_pread(file, m, PAGE, 0), PAGE);
	munmap(m, 3 * PAGE);
	end();
}

/* Another thread unmaps the memory during a transfer: what was transferred counts, the rest is an
 * error. */
static void memory_may_go_in_mid_transfer(void)
{
	const size_t block = MUCH / 3;
	const struct sheaf_extent e = { 0, 3 * block };
	struct sheaf_op *op;

#ifdef __SANITIZE_THREAD__
	return; /* a deliberate data race */
#endif
	begin();
	for (int i = 0; i < 24; i++) {
		uint8_t *m = mmap(NULL, 3 * block, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct iovec v = { m, 3 * block };
		ssize_t r;

		CHECK(m != MAP_FAILED);
		memset(m, 'm', 3 * block);
		fill_with('o');
		CHECK_EQ(sheaf_set_mover(fs, i % 2 ? SHEAF_MOVER_PACK : SHEAF_MOVER_GATHER), 0);
		CHECK_EQ(i % 3 ? sheaf_write_list_start(file, &v, 1, &e, 1, &op) :
				 sheaf_read_list_start(file, &v, 1, &e, 1, &op),
			 0);
		pause_ms(i / 2);
		/* inaccessible, but still reserved: a read would overwrite a new mapping at these
		 * addresses */
		CHECK(mmap(m + block, 2 * block, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			   -1, 0) == m + block);
		r = sheaf_wait(op);
		CHECK(r == -EFAULT || r == (ssize_t)(3 * block));
		CHECK(holds_only('o', 'm'));
		CHECK_EQ(munmap(m, 3 * block), 0);
	}
	for (int i = 0; i < SERVERS; i++)
		CHECK(WITHIN(PATIENCE_S,
			     server_status(fs, i).pool_free == server_status(fs, i).pool_bytes));
	end();
}

static sigjmp_buf theirs_begins;
static volatile sig_atomic_t theirs_expects;

static void theirs(int sig)
{
	if (theirs_expects)
		siglongjmp(theirs_begins, 1);
	signal(sig, SIG_DFL);
}

/* Faults outside of the library go to the program's own handler. */
static void a_programs_fault_handler_stays_in_place(void)
{
	struct sigaction a = { .sa_handler = theirs, .sa_flags = SA_NODEFER };
	uint8_t *m = some_memory(PAGE, NO_ACCESS);
	volatile uint8_t *bad = m + PAGE;

	CHECK_EQ(sigaction(SIGSEGV, &a, NULL), 0);
	begin(); /* the library's handler is called before the program's */
	theirs_expects = 1;
	if (sigsetjmp(theirs_begins, 1) == 0) {
		*bad = 1;
		CHECK(!"a fault");
	}
	theirs_expects = 0;
	CHECK_EQ(sheaf_pwrite(file, m + PAGE, PAGE, 0), -EFAULT);
	end();
	munmap(m, 3 * PAGE);
}

TEST_MAIN(TEST(a_programs_fault_handler_stays_in_place),
	  TEST(one_request_and_one_reply_for_each_server),
	  TEST(what_is_small_travels_in_the_message),
	  TEST(a_whole_program_is_told_by_its_environment), TEST(sieved_writes_fill_no_holes),
	  TEST(a_write_that_fails_leaves_bytes_of_before_or_of_its_own),
	  TEST(memory_that_is_not_there_is_an_error_and_nothing_more),
	  TEST(nor_can_zeros_be_put_there), TEST(memory_may_go_in_mid_transfer))
