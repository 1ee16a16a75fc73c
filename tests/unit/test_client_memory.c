/* Operations of a client for which there is no memory: they end with -ENOMEM as soon as they are
 * started, send nothing and leave nothing behind. No server runs here. */
#include <fcntl.h>

#include "client_fixture.h"

static struct client_fixture t;
static struct client *c;
static struct cop op;

static void done(struct cop *o)
{
	(void)o;
}

static struct cop *refused(void)
{
	cop_refuse(&op, c);
	op.done = done;
	return &op;
}

static void check_ended(void)
{
	CHECK(op.finished);
	CHECK_EQ(op.result, -ENOMEM);
	cop_free(&op);
	CHECK_EQ(c->n_ops, 0);
	CHECK_EQ(t.loop.n_reqs, 0);
}

static void begin(void)
{
	client_fixture_start(&t);
	c = client_fixture_new(&t);
}

static void end(void)
{
	client_free(c);
	client_fixture_end(&t);
}

static void operations_on_names_and_servers_end_at_once(void)
{
	const struct sheaf_handle h = { 1, 1 };

	begin();
	client_stat(refused(), h, "f");
	check_ended();
	client_open(refused(), h, "f", O_RDWR | O_CREAT, 0644, NULL);
	check_ended();
	client_rename(refused(), h, "f", h, "g", 0);
	check_ended();
	client_setattr(refused(), h, SHEAF_SET_MTIME, &(struct stat){ 0 });
	check_ended();
	client_readdir(refused(), h, 0, 10, true);
	check_ended();
	client_getxattr(refused(), h, "user.x", 10);
	check_ended();
	client_ask(refused(), OP_STATUS, 0, NSEC_PER_SEC);
	check_ended();
	client_statfs(refused());
	check_ended();
	client_bye(refused());
	check_ended();
	end();
}

static void operations_on_a_file_end_at_once(void)
{
	const struct wire_lock all = { .last = UINT64_MAX, .kind = LOCK_EXCLUSIVE };
	struct iovec mem = { &mem, 8 };
	struct extent ext = { 0, 8 };
	struct cfile *f;

	begin();
	f = client_fixture_file(c, 1, 2);
	client_read(refused(), f, &mem, 1, &ext, 1);
	check_ended();
	client_write(refused(), f, &mem, 1, &ext, 1);
	check_ended();
	client_append(refused(), f, &mem, 1, &ext, 1);
	check_ended();
	CHECK(list_empty(&f->appends));
	client_allocate(refused(), f, 0, 0, 8);
	check_ended();
	client_seek(refused(), f, 0, false);
	check_ended();
	client_lock(refused(), f, &all, true);
	check_ended();
	CHECK(list_empty(&c->lockings));
	client_flush(refused(), f);
	check_ended();
	client_fsync(refused(), f);
	check_ended();
	end();
}

static void a_close_frees_the_file(void)
{
	begin();
	client_close(refused(), client_fixture_file(c, 1, 2));
	check_ended();
	CHECK(list_empty(&c->files));
	end();
}

TEST_MAIN(TEST(operations_on_names_and_servers_end_at_once), TEST(operations_on_a_file_end_at_once),
	  TEST(a_close_frees_the_file))
