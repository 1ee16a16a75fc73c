/* Open or active inodes: locks in order, opens and closes, and removal of names while a file is
 * open. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;
static struct arena arena;
static struct wire_open_res file;

static void begin(void)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
}

static void end(void)
{
	pipe_free(p);
	arena_destroy(&arena);
	world_end(&w);
}

static struct wire_handle handle_of(const struct wire_open_res *r)
{
	return (struct wire_handle){ r->at.ino, r->at.gen };
}

/* ---- locks ---- */

struct locker {
	struct req q;
	struct inode_wait lock;
	struct inode *inode;
	unsigned order; /* position among all granted locks */
};

static unsigned granted;

static bool locker_step(struct req *q)
{
	struct locker *l = container_of(q, struct locker, q);

	if (q->state == 0) {
		req_goto(q, 1);
		inode_lock(l->inode, &l->lock, q);
		return true;
	}
	l->order = ++granted;
	req_fini(q);
	return false;
}

static const char *const names[] = { "lock", "held" };
static const struct req_ops locker_ops = REQ_OPS("locker", locker_step, 1, names);

static void locks_are_granted_one_by_one_in_order(void)
{
	struct wire_handle h = { 1234, 1 };
	struct locker l[5] = { 0 };
	struct inode *i;

	begin();
	granted = 0;
	i = inode_get(w.srv, &h);
	CHECK(inode_get(w.srv, &h) == i);
	inode_put(i);
	for (int k = 0; k < 5; k++) {
		l[k].inode = i;
		req_init(&l[k].q, &w.loop, &locker_ops, 0);
		req_run(&l[k].q);
	}
	inode_put(i); /* the locks hold references */
	for (unsigned k = 0; k < 5; k++) {
		CHECK_EQ(granted, k + 1);
		CHECK_EQ(l[k].order, k + 1);
		CHECK(l[k].lock.held);
		inode_unlock(&l[k].lock);
		inode_unlock(&l[k].lock); /* unlocking twice is harmless */
		world_settle(&w);
	}
	CHECK(!inode_find(w.srv, 1234));
	end();
}

/* ---- opens ---- */

static int open_as(const char *path, uint64_t id, uint32_t flags)
{
	return pipe_open(&w, p, path, id, flags, &file, &arena);
}

static int close_it(uint64_t id, const struct wire_wrote *wrote)
{
	struct wire_close_args a = { handle_of(&file), id, *wrote };
	struct wire_void_res r;

	return pipe_do(&w, p, OP_CLOSE, XDR_ANY(xdr_wire_close_args), &a,
		       XDR_ANY(xdr_wire_void_res), &r, NULL);
}

static const struct wire_wrote nothing = { 0 };
static const struct wire_wrote hello = { .epoch = 1, .end = 5, .mtime = 1 };

static void opens_and_writers_are_counted(void)
{
	struct inode *i;

	begin();
	CHECK_EQ(open_as("f", 1, OPEN_WRITE | OPEN_CREATE), 0);
	i = inode_find(w.srv, file.at.ino);
	CHECK_EQ(i->opens, 1);
	CHECK_EQ(i->writers, 1);
	CHECK(i->row_durable);
	CHECK_EQ(open_as("f", 2, OPEN_READ), 0);
	CHECK_EQ(open_as("f", 3, OPEN_WRITE | OPEN_READ), 0);
	CHECK_EQ(i->opens, 3);
	CHECK_EQ(i->writers, 2);
	CHECK_EQ(close_it(1, &nothing), 0);
	CHECK_EQ(close_it(1, &nothing), 0); /* an earlier execution has closed it */
	CHECK_EQ(close_it(99, &nothing), 0);
	CHECK_EQ(i->opens, 2);
	CHECK(meta_unsettled(w.srv->meta, file.at.ino));
	CHECK_EQ(close_it(3, &nothing), 0);
	/* the close of the last writer settled it */
	CHECK(!meta_unsettled(w.srv->meta, file.at.ino));
	CHECK_EQ(i->writers, 0);
	CHECK_EQ(close_it(2, &nothing), 0);
	CHECK(!inode_find(w.srv, file.at.ino));
	end();
}

static void the_number_of_an_open_means_one_thing(void)
{
	begin();
	CHECK_EQ(open_as("f", 1, OPEN_READ | OPEN_CREATE), 0);
	CHECK_EQ(open_as("f", 1, OPEN_READ), 0);
	CHECK_EQ(inode_find(w.srv, file.at.ino)->opens, 1);
	/* the server would not count the writer */
	CHECK_EQ(open_as("f", 1, OPEN_READ | OPEN_WRITE), -EINVAL);
	end();
}

/* The reply was lost, and when the open is retransmitted the name refers to another file. */
static void a_repeated_open_may_find_another_file(void)
{
	uint64_t first;

	begin();
	CHECK_EQ(open_as("f", 1, OPEN_WRITE | OPEN_CREATE), 0);
	first = file.at.ino;
	CHECK_EQ(open_as("g", 1, OPEN_WRITE | OPEN_CREATE), 0);
	CHECK_EQ(inode_find(w.srv, file.at.ino)->opens, 1);
	world_settle(&w);
	CHECK(!inode_find(w.srv, first)); /* closed, and settled as after the death of a writer */
	CHECK(!meta_unsettled(w.srv->meta, first));
	end();
}

/* Two concurrent closes of one open, on two slots. */
static void a_double_close_is_harmless(void)
{
	struct wire_close_args a = { .id = 1, .w = { .epoch = 1, .end = 4096, .mtime = 77 } };

	begin();
	CHECK_EQ(open_as("f", 1, OPEN_WRITE | OPEN_CREATE), 0);
	a.h = handle_of(&file);
	for (uint32_t i = 0; i < 3; i++)
		pipe_call(&w, p, OP_CLOSE, i, 1, XDR_ANY(xdr_wire_close_args), &a);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->replies, p->sent);
	CHECK_EQ(p->head.status, 0);
	CHECK(!inode_find(w.srv, file.at.ino));
	end();
}

static int claim(const struct wire_handle *h, uint64_t id, uint32_t flags)
{
	struct wire_reclaim_args a = { .h = *h, .id = id, .flags = flags };
	struct wire_void_res r;

	return pipe_do(&w, p, OP_RECLAIM, XDR_ANY(xdr_wire_reclaim_args), &a,
		       XDR_ANY(xdr_wire_void_res), &r, NULL);
}

static void only_files_are_claimed_again(void)
{
	struct wire_handle h = { META_ROOT_INO, META_ROOT_GEN };

	begin();
	CHECK_EQ(claim(&h, 5, OPEN_READ), -EINVAL);
	CHECK_EQ(open_as("f", 1, OPEN_READ | OPEN_CREATE), 0);
	h = handle_of(&file);
	CHECK_EQ(claim(&h, 5, OPEN_READ), 0);
	CHECK_EQ(inode_find(w.srv, file.at.ino)->opens, 2);
	/* it was settled meanwhile: the writer restores its row */
	CHECK(!meta_unsettled(w.srv->meta, file.at.ino));
	CHECK_EQ(claim(&h, 6, OPEN_WRITE), 0);
	CHECK(meta_unsettled(w.srv->meta, file.at.ino));
	CHECK_EQ(inode_find(w.srv, file.at.ino)->writers, 1);
	end();
}

/* Without access flags the open would not be checked. */
static void an_open_says_what_it_is_for(void)
{
	struct wire_handle h;

	begin();
	CHECK_EQ(open_as("f", 1, OPEN_READ | OPEN_CREATE), 0);
	h = handle_of(&file);
	CHECK_EQ(open_as("f", 2, 0), -EINVAL);
	CHECK_EQ(open_as("f", 2, OPEN_APPEND), -EINVAL);
	CHECK_EQ(claim(&h, 2, 0), -EINVAL);
	CHECK_EQ(claim(&h, 2, OPEN_CREATE), -EINVAL);
	CHECK_EQ(inode_find(w.srv, h.ino)->opens, 1);
	end();
}

/* A claim restores a writer beside the close of another writer: the unsettled row stays, in either
 * order. */
static void a_claim_beside_a_close_is_a_writer_with_a_row(void)
{
	struct wire_close_args cl = { .id = 1 };
	struct wire_reclaim_args a = { .id = 5, .flags = OPEN_WRITE };

	for (int order = 0; order < 2; order++) {
		begin();
		CHECK_EQ(open_as("f", 1, OPEN_WRITE | OPEN_CREATE), 0);
		a.h = cl.h = handle_of(&file);
		if (order)
			pipe_call(&w, p, OP_CLOSE, 0, 1, XDR_ANY(xdr_wire_close_args), &cl);
		pipe_call(&w, p, OP_RECLAIM, 1, 1, XDR_ANY(xdr_wire_reclaim_args), &a);
		if (!order)
			pipe_call(&w, p, OP_CLOSE, 0, 1, XDR_ANY(xdr_wire_close_args), &cl);
		CHECK(world_quiet(&w));
		CHECK_EQ(p->replies, p->sent);
		CHECK_EQ(inode_find(w.srv, file.at.ino)->writers, 1);
		CHECK(meta_unsettled(w.srv->meta, file.at.ino));
		end();
	}
}

/* All requests of a client wait behind its claim, so a claim does not wait for a truncate, which
 * may take long. */
static void a_claim_does_not_wait_for_a_truncate(void)
{
	struct inode_wait held = { 0 };
	struct inode *i;
	struct wire_handle h;

	begin();
	CHECK_EQ(open_as("f", 1, OPEN_READ | OPEN_CREATE), 0);
	h = handle_of(&file);
	i = inode_find(w.srv, h.ino);
	inode_lock(i, &held, NULL);
	CHECK_EQ(claim(&h, 5, OPEN_WRITE), 0);
	CHECK_EQ(i->writers, 1);
	inode_unlock(&held);
	end();
}

static int open_handle(struct pipe_link *l, const struct wire_handle *h, uint64_t id,
		       uint32_t flags)
{
	struct wire_open_args a = { .where.dir = *h, .id = id, .flags = flags };
	struct wire_open_res r;

	return pipe_do(&w, l, OP_OPEN, XDR_ANY(xdr_wire_open_args), &a, XDR_ANY(xdr_wire_open_res),
		       &r, &arena);
}

/* A write must not give its author the rights of a set-id program's owner. */
static void set_id_bits_go_with_the_first_writer_but_root(void)
{
	struct wire_setattr_args a = { .which = SET_MODE, .mode = 06777 };
	struct wire_attr_res at;

	begin();
	CHECK_EQ(open_as("f", 1, OPEN_READ | OPEN_CREATE), 0);
	a.h = handle_of(&file);
	for (uint64_t id = 10; id < 12; id++) { /* the second open finds the row of the first */
		p->uid = p->gid = 0;
		CHECK_EQ(pipe_do(&w, p, OP_SETATTR, XDR_ANY(xdr_wire_setattr_args), &a,
				 XDR_ANY(xdr_wire_attr_res), &at, NULL),
			 0);
		CHECK_EQ(open_as("f", 20 + id, OPEN_WRITE), 0);
		CHECK_EQ(file.at.mode & 07777, 06777);
		p->uid = p->gid = 1000;
		CHECK_EQ(open_as("f", 30 + id, OPEN_READ), 0);
		CHECK_EQ(file.at.mode & 07777, 06777);
		CHECK_EQ(open_as("f", id, OPEN_WRITE), 0);
		CHECK_EQ(file.at.mode & 07777, 0777);
	}
	p->uid = p->gid = 0;
	end();
}

/* ---- removed names ---- */

static int unlink_it(const char *path)
{
	struct wire_unlink_args a = { pipe_place(path) };
	struct wire_dirs_after r;

	return pipe_do(&w, p, OP_UNLINK, XDR_ANY(xdr_wire_unlink_args), &a,
		       XDR_ANY(xdr_wire_dirs_after), &r, NULL);
}

static int write_it(void)
{
	struct wire_extent e = { 0, 5 };
	struct wire_write_args a = {
		.at.cap = file.cap, .list = &e, .n_list = 1, .data = wire_text("hello")
	};
	struct wire_write_res r;

	return pipe_do(&w, p, OP_WRITE, XDR_ANY(xdr_wire_write_args), &a,
		       XDR_ANY(xdr_wire_write_res), &r, NULL);
}

/* The end of its object; 0 if there is none. */
static uint64_t object_ends(void)
{
	struct wire_objstat_args st = { { file.cap, 0, 0 } };
	struct wire_object_res r;

	CHECK_EQ(pipe_do(&w, p, OP_OBJSTAT, XDR_ANY(xdr_wire_objstat_args), &st,
			 XDR_ANY(xdr_wire_object_res), &r, NULL),
		 0);
	return r.end;
}

static void an_unlinked_file_lives_until_its_last_close(void)
{
	begin();
	CHECK_EQ(open_as("f", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE), 0);
	CHECK_EQ(write_it(), 0);
	CHECK_EQ(unlink_it("f"), 0);
	world_pass(&w, 5 * NSEC_PER_SEC);
	CHECK_EQ(write_it(), 0);
	CHECK_EQ(object_ends(), 5);
	CHECK_EQ(close_it(1, &hello), 0);
	world_pass(&w, 5 * NSEC_PER_SEC);
	CHECK(list_empty(&w.srv->tasks));
	CHECK_EQ(object_ends(), 0);
	CHECK(!inode_find(w.srv, file.at.ino));
	end();
}

/* ESTALE tells a client with an old handle that the name refers to another file now. */
static void an_unlinked_file_can_be_opened_by_its_holder(void)
{
	struct pipe_link *other;
	struct wire_handle h;

	begin();
	other = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, other);
	CHECK_EQ(open_as("f", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE), 0);
	h = handle_of(&file);
	CHECK_EQ(open_handle(other, &h, 1, OPEN_READ), 0);
	CHECK_EQ(write_it(), 0);
	CHECK_EQ(unlink_it("f"), 0);
	CHECK_EQ(open_handle(p, &h, 2, OPEN_READ), 0);
	CHECK_EQ(open_handle(other, &h, 2, OPEN_WRITE), 0);
	pipe_free(other); /* its session still has the file open */
	other = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, other);
	CHECK_EQ(open_handle(other, &h, 1, OPEN_READ), -ESTALE);
	CHECK_EQ(open_handle(other, &h, 1, OPEN_WRITE), -ESTALE);
	CHECK_EQ(open_handle(other, &h, 1, OPEN_WRITE | OPEN_TRUNC), -ESTALE);
	CHECK_EQ(object_ends(), 5);
	pipe_free(other);
	end();
}

static void an_unlinked_file_without_opens_is_removed_at_once(void)
{
	begin();
	CHECK_EQ(open_as("f", 1, OPEN_WRITE | OPEN_CREATE), 0);
	CHECK_EQ(write_it(), 0);
	CHECK_EQ(close_it(1, &hello), 0);
	CHECK_EQ(unlink_it("f"), 0);
	world_pass(&w, NSEC_PER_SEC);
	CHECK(list_empty(&w.srv->tasks));
	CHECK_EQ(object_ends(), 0);
	CHECK_EQ(w.srv->op_times[OP_REMOVE].count, 1);
	end();
}

static void no_object_is_removed_of_a_file_that_was_never_written(void)
{
	begin();
	CHECK_EQ(open_as("f", 1, OPEN_WRITE | OPEN_CREATE), 0);
	CHECK_EQ(close_it(1, &nothing), 0);
	CHECK_EQ(unlink_it("f"), 0);
	world_pass(&w, NSEC_PER_SEC);
	CHECK(list_empty(&w.srv->tasks));
	CHECK_EQ(w.srv->op_times[OP_REMOVE].count, 0);
	end();
}

/* ---- batched removals ---- */

static bool count_row(void *arg, const struct meta_row *r)
{
	(void)r;
	++*(size_t *)arg;
	return true;
}

static size_t rows_left(void)
{
	size_t n = 0;

	meta_each_row(w.srv->meta, ROWS_REMOVE, count_row, &n);
	return n;
}

/* The path of the object of the file opened last. */
static const char *path_of_object(void)
{
	static char path[160];
	char name[OBJECT_PATH];

	object_path(name, &(struct object_id){ file.at.ino, 1, 0 });
	snprintf(path, sizeof(path), "%s/s0/objects/%s", w.dir, name);
	return path;
}

/* Makes files "0", "1", ... with one object each, and closes them. */
static void make_files(unsigned n)
{
	char name[16];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%u", i);
		CHECK_EQ(open_as(name, i + 1, OPEN_WRITE | OPEN_CREATE), 0);
		CHECK_EQ(write_it(), 0);
		CHECK_EQ(close_it(i + 1, &hello), 0);
	}
	CHECK_EQ(access(path_of_object(), F_OK), 0);
}

static void unlink_files(unsigned n)
{
	char name[16];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%u", i);
		CHECK_EQ(unlink_it(name), 0);
	}
}

static void objects_are_removed_together(void)
{
	begin();
	make_files(2 * REMOVE_MAX);
	unlink_files(2 * REMOVE_MAX);
	world_pass(&w, NSEC_PER_SEC / 10);
	CHECK_EQ(rows_left(), 0);
	CHECK(access(path_of_object(), F_OK) < 0);
	CHECK(w.srv->op_times[OP_REMOVE].count <= 3);
	CHECK(list_empty(&w.srv->tasks));
	end();
}

/* More removals than tasks: the others follow at once instead of waiting for a timer of seconds. */
static void removals_in_their_rows_follow_at_once(void)
{
	begin();
	make_files(600);
	unlink_files(600);
	CHECK(rows_left() > 256);
	world_pass(&w, NSEC_PER_SEC / 2);
	CHECK_EQ(rows_left(), 0);
	end();
}

/* A directory is in the place of the object. */
static void an_object_that_cannot_be_removed_keeps_no_other(void)
{
	begin();
	make_files(20);
	CHECK_EQ(unlink(path_of_object()), 0);
	CHECK_EQ(mkdir(path_of_object(), 0700), 0);
	server_abandon(w.srv); /* no client has it open after this */
	world_start_server(&w);
	pipe_free(p);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	unlink_files(20);
	world_pass(&w, 120 * NSEC_PER_SEC); /* includes the grace period */
	CHECK_EQ(rows_left(), 1);
	CHECK_EQ(access(path_of_object(), F_OK), 0);
	CHECK_EQ(rmdir(path_of_object()), 0);
	world_pass(&w, 60 * NSEC_PER_SEC);
	CHECK_EQ(rows_left(), 0);
	end();
}

/* ---- */

/* A writer that did not close the file may still write: a tombstone refuses its writes. */
static void a_dead_writers_file_is_removed_behind_a_fence(void)
{
	begin();
	CHECK_EQ(open_as("f", 1, OPEN_WRITE | OPEN_CREATE), 0);
	CHECK_EQ(write_it(), 0);
	CHECK_EQ(unlink_it("f"), 0);
	link_close(&p->l, -ECONNRESET);
	pipe_free(p);
	world_pass(&w, 40 * NSEC_PER_SEC); /* its lease expires */
	CHECK(list_empty(&w.srv->tasks));
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(write_it(), -EKEYEXPIRED);
	end();
}

/* A caller that starts a task may have work left to do and must not find the task ended. */
static void a_task_never_ends_within_its_start(void)
{
	struct wire_handle nothing_there = { 4711, 1 };

	begin();
	CHECK_EQ(task_start(w.srv, TASK_SETTLE, &nothing_there, 0, 0), 0);
	CHECK(!list_empty(&w.srv->tasks));
	world_settle(&w);
	CHECK(list_empty(&w.srv->tasks));
	end();
}

/* A server that is stopped or abandoned with work in flight leaves nothing on its loop. */
static void an_abandoned_server_leaves_the_loop_empty(void)
{
	struct wire_mkdir_args mk = { .where = pipe_place("d"), .mode = 0755 };
	struct wire_truncate_args t = { .size = 100 };

	begin();
	CHECK_EQ(open_as("f", 1, OPEN_WRITE | OPEN_CREATE), 0);
	t.h = handle_of(&file);
	CHECK_EQ(write_it(), 0);
	CHECK_EQ(unlink_it("f"), 0);
	pipe_call(&w, p, OP_MKDIR, 0, 1, XDR_ANY(xdr_wire_mkdir_args), &mk);
	pipe_call(&w, p, OP_TRUNCATE, 1, 1, XDR_ANY(xdr_wire_truncate_args), &t);
	task_start(w.srv, TASK_SETTLE, &t.h, 0, 0);
	link_close(&p->l, -ESHUTDOWN);
	task_end_session(w.srv, list_first(&w.srv->sessions.all, struct session, all));
	world_turn(&w);
	CHECK(!list_empty(&w.srv->tasks));
	link_unref(&p->l);
	list_init(&w.jobs); /* a crash: operations in flight never complete */
	server_abandon(w.srv);
	CHECK(list_empty(&w.loop.all));
	CHECK(list_empty(&w.loop.runnable));
	CHECK_EQ(w.loop.n_reqs, 0);
	world_start_server(&w);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	end();
}

TEST_MAIN(TEST(locks_are_granted_one_by_one_in_order), TEST(opens_and_writers_are_counted),
	  TEST(the_number_of_an_open_means_one_thing), TEST(a_repeated_open_may_find_another_file),
	  TEST(a_double_close_is_harmless), TEST(only_files_are_claimed_again),
	  TEST(an_open_says_what_it_is_for), TEST(a_claim_beside_a_close_is_a_writer_with_a_row),
	  TEST(a_claim_does_not_wait_for_a_truncate),
	  TEST(set_id_bits_go_with_the_first_writer_but_root),
	  TEST(an_unlinked_file_can_be_opened_by_its_holder),
	  TEST(an_unlinked_file_lives_until_its_last_close),
	  TEST(an_unlinked_file_without_opens_is_removed_at_once),
	  TEST(no_object_is_removed_of_a_file_that_was_never_written),
	  TEST(objects_are_removed_together), TEST(removals_in_their_rows_follow_at_once),
	  TEST(an_object_that_cannot_be_removed_keeps_no_other),
	  TEST(a_dead_writers_file_is_removed_behind_a_fence),
	  TEST(a_task_never_ends_within_its_start), TEST(an_abandoned_server_leaves_the_loop_empty))
