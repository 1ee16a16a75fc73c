/* A client that appends, against a server in the same process: how it uses a place that was given
 * under an epoch, and what it does when the file was truncated meanwhile. */
#include <fcntl.h>

#include "client/append.h"

#include "pipe_link.h"

static struct world w;
static struct client *c;
static struct cfile *f;

static void done(struct cop *op)
{
	(void)op;
}

static struct cop *op_new(void)
{
	struct cop *op = cop_new(c, NULL);

	CHECK(op);
	op->done = done;
	return op;
}

/* Runs the world until the operation has finished. */
static void wait_for(const struct cop *op)
{
	for (int i = 0; !op->finished; i++) {
		CHECK(i < WORLD_TURNS);
		if (world_idle(&w) && w.loop.n_heap)
			w.now = MAX(w.now, w.loop.heap[0]->when);
		world_turn(&w);
	}
}

static int64_t end_op(struct cop *op)
{
	int64_t r;

	wait_for(op);
	r = op->result;
	cop_free(op);
	return r;
}

static void begin(void)
{
	struct client_opts o = { .loop = &w.loop, .hub = &w.hub, .name = "test" };
	struct sheaf_handle root = { META_ROOT_INO, META_ROOT_GEN };
	struct cop *op;

	log_set_level(LOG_ERROR);
	world_start(&w);
	o.conf = w.conf;
	memcpy(o.key, w.client_key, KEY_BYTES);
	CHECK_EQ(client_new(&o, &c), 0);
	op = op_new();
	client_open(op, root, "f", O_RDWR | O_CREAT | O_APPEND, 0644, NULL);
	wait_for(op);
	f = op->file;
	CHECK_EQ(end_op(op), 0);
}

static void end(void)
{
	struct cop *op = op_new();

	client_close(op, f);
	CHECK_EQ(end_op(op), 0);
	client_free(c);
	world_end(&w);
}

static void truncate_to(uint64_t size)
{
	struct cop *op = op_new();

	client_truncate(op, cfile_handle(f), size);
	CHECK_EQ(end_op(op), 0);
}

static int64_t append(const char *text)
{
	struct iovec mem = { (void *)(uintptr_t)text, strlen(text) };
	struct extent anywhere = { 0, strlen(text) };
	struct cop *op = op_new();

	client_write(op, f, &mem, 1, &anywhere, 1);
	return end_op(op);
}

/* Writes at a place of an append, as if the server had given it under this epoch. */
static int64_t write_at(uint64_t offset, uint64_t epoch)
{
	struct iovec mem = { "hello", 5 };
	struct append a = { .mem = &mem, .n_mem = 1, .ext = { offset, 5 }, .epoch = epoch };
	struct cop *op = op_new();

	append_there(op, f, &a);
	return end_op(op);
}

static int64_t size(void)
{
	struct cop *op = op_new();
	int64_t r;

	client_getattr(op, cfile_handle(f));
	wait_for(op);
	r = op->result ? op->result : (int64_t)op->attr.size;
	cop_free(op);
	return r;
}

/* The file got a fresh capability for another reason. The place still belongs to the older
 * epoch. */
static void nothing_is_written_to_a_place_of_an_older_epoch(void)
{
	uint64_t before;

	begin();
	CHECK_EQ(append("first"), 5);
	before = f->cap.epoch;
	truncate_to(0);
	CHECK_EQ(append("second"), 6); /* fetches a fresh capability */
	CHECK(f->cap.epoch > before);
	CHECK_EQ(size(), 6);
	CHECK_EQ(write_at(1000, before), -EAGAIN);
	CHECK_EQ(size(), 6);
	CHECK_EQ(write_at(6, f->cap.epoch), 5);
	end();
}

/* A place of a newer epoch than that of the capability is written with a fresh capability. */
static void a_place_of_a_newer_epoch_needs_a_fresh_capability(void)
{
	uint64_t before;

	begin();
	before = f->cap.epoch;
	truncate_to(0);
	CHECK_EQ(f->cap.epoch, before);
	CHECK_EQ(write_at(0, before + 1), 5);
	CHECK_EQ(f->cap.epoch, before + 1);
	CHECK_EQ(write_at(5, before), -EAGAIN);
	end();
}

static void room_makes_the_file_longer_and_appends_go_behind_it(void)
{
	struct cop *op;

	begin();
	CHECK_EQ(append("one"), 3);
	op = op_new();
	client_allocate(op, f, 0, 1, 5000);
	CHECK(end_op(op) >= 0);
	CHECK_EQ(size(), 5001);
	CHECK_EQ(append("two"), 3);
	CHECK_EQ(size(), 5004);
	op = op_new();
	client_allocate(op, f, ALLOC_KEEP_SIZE, 0, 100000);
	CHECK(end_op(op) >= 0);
	CHECK_EQ(append("end"), 3);
	CHECK_EQ(size(), 5007);
	end();
}

TEST_MAIN(TEST(nothing_is_written_to_a_place_of_an_older_epoch),
	  TEST(a_place_of_a_newer_epoch_needs_a_fresh_capability),
	  TEST(room_makes_the_file_longer_and_appends_go_behind_it))
