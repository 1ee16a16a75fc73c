/* The queue of accesses to one file: what is joined, what waits, and what an error fails. The
 * engine is a stub that keeps what is submitted, so that the test decides when it ends. */
#include "test_req.h"

#define MOST 80

static struct {
	struct env env;
	struct file_ops file;
	struct loop loop;
	struct io_queue queue;
	struct io *away[MOST]; /* submitted, in order */
	int n_away, n_calls;
	uint64_t joined;
	char bytes[4096];
} t;

struct asker {
	struct req q;
	struct io ios[8];
	struct iovec iov[8];
	bool ended;
	int error;
};

static bool step(struct req *q)
{
	struct asker *a = container_of(q, struct asker, q);

	a->ended = true;
	a->error = q->error;
	req_fini(q);
	return false;
}

static const char *const names[] = { "wait", "end" };
static const struct req_ops asker_ops = REQ_OPS("asker", step, 1, names);

static void keep(struct env *e, struct loop *l, struct io *io)
{
	(void)e, (void)l;
	t.n_calls++;
	for (; io; io = io->next)
		t.away[t.n_away++] = io;
}

static void setup(void)
{
	memset(&t, 0, sizeof(t));
	t.env = *env_real();
	t.file = *env_real()->file;
	t.file.perform_now = NULL;
	t.file.submit = keep;
	t.env.file = &t.file;
	CHECK_EQ(loop_init(&t.loop, &t.env), 0);
	io_queue_init(&t.queue, &t.joined);
}

static void teardown(void)
{
	loop_fini(&t.loop);
}

/* Asks for n ranges of `len` bytes at the given offsets. */
static void ask(struct asker *a, enum io_kind kind, int n, const uint64_t *offs, uint64_t len)
{
	memset(a, 0, sizeof(*a));
	req_init(&a->q, &t.loop, &asker_ops, 0);
	for (int i = 0; i < n; i++) {
		a->iov[i] = (struct iovec){ t.bytes + offs[i], len };
		a->ios[i] = (struct io){
			.kind = kind, .fd = -1, .iov = &a->iov[i], .n = 1, .off = offs[i], .q = &a->q
		};
	}
	io_queue_submit(&t.queue, &t.loop, a->ios, (size_t)n);
}

/* Ends the oldest access in progress. */
static struct io *end(int error, uint64_t bytes)
{
	struct io *io = t.away[0];

	CHECK(t.n_away > 0);
	memmove(t.away, t.away + 1, sizeof(t.away[0]) * (size_t)--t.n_away);
	io->error = error;
	io->bytes = bytes;
	io_finish(io);
	loop_turn(&t.loop, 0);
	return io;
}

static void writes_of_two_clients_that_wait_become_one(void)
{
	struct asker first, a, b;

	setup();
	ask(&first, IO_WRITE, 1, (uint64_t[]){ 3000 }, 10);
	CHECK_EQ(t.n_away, 1); /* at once */
	ask(&a, IO_WRITE, 3, (uint64_t[]){ 0, 200, 400 }, 100);
	ask(&b, IO_WRITE, 3, (uint64_t[]){ 300, 100, 500 }, 100);
	CHECK_EQ(t.n_away, 1); /* the others wait */
	end(0, 10);
	CHECK(first.ended && !a.ended && !b.ended);
	CHECK_EQ(t.n_away, 1);
	CHECK_EQ(t.away[0]->off, 0);
	CHECK_EQ(t.away[0]->total, 600);
	CHECK_EQ(t.joined, 5);

	struct iovec part[MOST];

	t.away[0]->so_far = 250; /* the rest of it */
	CHECK_EQ(io_slice(t.away[0], part, MOST), 4);
	CHECK(part[0].iov_base == t.bytes + 250 && part[0].iov_len == 50);
	CHECK(part[3].iov_base == t.bytes + 500 && part[3].iov_len == 100);
	CHECK_EQ(io_slice(t.away[0], part, 2), 2);
	end(0, 600);
	CHECK(a.ended && b.ended);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(b.error, 0);
	CHECK_EQ(a.q.bytes, 300);
	CHECK_EQ(t.n_away, 0);
	teardown();
}

static void an_error_fails_only_the_request_that_needs_the_bytes(void)
{
	struct asker first, a, b;

	setup();
	ask(&first, IO_WRITE, 1, (uint64_t[]){ 3000 }, 10);
	ask(&a, IO_WRITE, 1, (uint64_t[]){ 0 }, 100);
	ask(&b, IO_WRITE, 1, (uint64_t[]){ 100 }, 100);
	end(0, 10);
	CHECK_EQ(t.n_away, 1);
	end(-EIO, 0);
	CHECK(!a.ended && !b.ended);
	CHECK_EQ(t.n_away, 2); /* each alone */
	CHECK_EQ(t.away[0]->total, 100);
	CHECK(!t.away[0]->joined);
	end(-EIO, 0);
	end(0, 100);
	CHECK(a.ended && b.ended);
	CHECK_EQ(a.error, -EIO);
	CHECK_EQ(b.error, 0);
	teardown();
}

static void a_short_read_is_divided(void)
{
	struct asker a;

	setup();
	ask(&a, IO_READ, 3, (uint64_t[]){ 0, 100, 200 }, 100);
	CHECK_EQ(t.n_away, 1);
	CHECK_EQ(t.away[0]->total, 300);
	end(0, 150); /* the file ends there */
	CHECK(a.ended);
	CHECK_EQ(a.ios[0].bytes, 100);
	CHECK_EQ(a.ios[1].bytes, 50);
	CHECK_EQ(a.ios[2].bytes, 0);
	teardown();
}

static void ranges_that_are_apart_or_overlap_are_not_joined(void)
{
	struct asker a;

	setup();
	ask(&a, IO_READ, 4, (uint64_t[]){ 0, 150, 200, 400 }, 100);
	CHECK_EQ(t.n_away, 4);
	CHECK_EQ(t.n_calls, 1);
	CHECK_EQ(t.joined, 0);
	for (int i = 0; i < 4; i++)
		end(0, 100);
	CHECK(a.ended);
	teardown();
}

static void reads_start_beside_a_write_up_to_a_limit(void)
{
	struct asker w, a[16];

	setup();
	ask(&w, IO_WRITE, 1, (uint64_t[]){ 0 }, 10);
	for (int i = 0; i < 16; i++)
		ask(&a[i], IO_READ, 8, (uint64_t[]){ 100, 300, 500, 700, 900, 1100, 1300, 1500 },
		    10);
	CHECK_EQ(t.n_away, 1 + 64);
	teardown();
}

TEST_MAIN(TEST(writes_of_two_clients_that_wait_become_one),
	  TEST(an_error_fails_only_the_request_that_needs_the_bytes), TEST(a_short_read_is_divided),
	  TEST(ranges_that_are_apart_or_overlap_are_not_joined),
	  TEST(reads_start_beside_a_write_up_to_a_limit))
