/* The directory attributes in the reply to a change of names: equal to those of a following
 * GETATTR, or absent. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;
static struct arena arena;
static struct wire_dirs_after after; /* from the last reply */

static const struct wire_handle root = { META_ROOT_INO, META_ROOT_GEN };
static struct wire_handle d, e; /* two directories */

static int made(uint32_t op, xdr_any put, void *args, struct wire_handle *h)
{
	struct wire_made_res r = { 0 };
	int error = pipe_do(&w, p, op, put, args, XDR_ANY(xdr_wire_made_res), &r, &arena);

	after = r.after;
	if (h)
		*h = (struct wire_handle){ r.at.ino, r.at.gen };
	return error;
}

static int mkdir_at(const char *path, struct wire_handle *h)
{
	struct wire_mkdir_args a = { .where = pipe_place(path), .mode = 0755 };

	return made(OP_MKDIR, XDR_ANY(xdr_wire_mkdir_args), &a, h);
}

static int link_at(const struct wire_handle *h, const char *path)
{
	struct wire_link_args a = { *h, pipe_place(path) };

	return made(OP_LINK, XDR_ANY(xdr_wire_link_args), &a, NULL);
}

static int open_at(const char *path, uint64_t id, uint32_t flags, struct wire_handle *h)
{
	struct wire_open_res r = { 0 };
	int error = pipe_open(&w, p, path, id, flags | OPEN_READ, &r, &arena);

	after = r.after;
	*h = (struct wire_handle){ r.at.ino, r.at.gen };
	return error;
}

static int remove_at(uint32_t op, const char *path)
{
	struct wire_unlink_args a = { pipe_place(path) };

	after.n_dirs = 0;
	return pipe_do(&w, p, op, XDR_ANY(xdr_wire_unlink_args), &a, XDR_ANY(xdr_wire_dirs_after),
		       &after, &arena);
}

static int rename_at(const char *from, const char *to, uint32_t flags)
{
	struct wire_rename_args a = { pipe_place(from), pipe_place(to), flags };

	after.n_dirs = 0;
	return pipe_do(&w, p, OP_RENAME, XDR_ANY(xdr_wire_rename_args), &a,
		       XDR_ANY(xdr_wire_dirs_after), &after, &arena);
}

static void begin(void)
{
	world_start(&w);
	arena_init(&arena, 0);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(mkdir_at("d", &d), 0);
	CHECK_EQ(mkdir_at("e", &e), 0);
	world_pass(&w, NSEC_PER_SEC);
}

static void end(void)
{
	pipe_free(p);
	arena_destroy(&arena);
	world_end(&w);
}

/* Checks that entry i of the reply equals the current attributes of the directory. Returns their
 * `change`. */
static uint64_t told(uint32_t i, const struct wire_handle *dir)
{
	struct wire_getattr_args a = { *dir, false };
	struct wire_getattr_res r;
	uint8_t said[256], is[256];
	struct xdr x, y;

	CHECK(i < after.n_dirs);
	CHECK_EQ(pipe_do(&w, p, OP_GETATTR, XDR_ANY(xdr_wire_getattr_args), &a,
			 XDR_ANY(xdr_wire_getattr_res), &r, &arena),
		 0);
	xdr_encoder(&x, said, sizeof(said));
	xdr_encoder(&y, is, sizeof(is));
	CHECK(xdr_wire_attr(&x, &after.dirs[i]) && xdr_wire_attr(&y, &r.at));
	CHECK_EQ(after.dirs[i].ino, dir->ino);
	CHECK_EQ(memcmp(said, is, xdr_used(&x)), 0);
	return r.at.change;
}

/* Checks that the reply has one directory, and that this was its next change. */
static void told_one(const struct wire_handle *dir, uint64_t *change)
{
	CHECK_EQ(after.n_dirs, 1);
	CHECK_EQ(told(0, dir), ++*change);
}

static void a_change_tells_what_its_directory_has(void)
{
	struct wire_mknod_args fifo = { .where = pipe_place("d/fifo"), .mode = S_IFIFO | 0644 };
	struct wire_symlink_args ln = { .where = pipe_place("d/l"), .target = wire_text("f") };
	struct wire_handle h;
	uint64_t n;

	begin();
	CHECK_EQ(open_at("d/f", 1, OPEN_WRITE | OPEN_CREATE, &h), 0);
	n = told(0, &d);
	CHECK_EQ(after.n_dirs, 1);
	CHECK_EQ(after.dirs[0].size, 1);
	CHECK_EQ(mkdir_at("d/sub", NULL), 0);
	told_one(&d, &n);
	CHECK_EQ(after.dirs[0].nlink, 3);
	CHECK_EQ(made(OP_MKNOD, XDR_ANY(xdr_wire_mknod_args), &fifo, NULL), 0);
	told_one(&d, &n);
	CHECK_EQ(made(OP_SYMLINK, XDR_ANY(xdr_wire_symlink_args), &ln, NULL), 0);
	told_one(&d, &n);
	CHECK_EQ(link_at(&h, "d/g"), 0);
	told_one(&d, &n);
	CHECK_EQ(rename_at("d/g", "d/i", 0), 0);
	told_one(&d, &n);
	CHECK_EQ(remove_at(OP_UNLINK, "d/i"), 0);
	told_one(&d, &n);
	CHECK_EQ(remove_at(OP_RMDIR, "d/sub"), 0);
	told_one(&d, &n);
	CHECK_EQ(after.dirs[0].nlink, 2);
	CHECK_EQ(after.dirs[0].size, 3);
	CHECK_EQ(mkdir_at("top", NULL), 0);
	told(0, &root);
	end();
}

static void a_rename_tells_of_both_directories(void)
{
	struct wire_handle h;

	begin();
	CHECK_EQ(open_at("d/f", 1, OPEN_CREATE, &h), 0);
	CHECK_EQ(mkdir_at("d/sub", NULL), 0);
	CHECK_EQ(mkdir_at("e/sub", NULL), 0);
	CHECK_EQ(rename_at("d/f", "e/f", 0), 0);
	CHECK_EQ(after.n_dirs, 2);
	told(0, &d);
	told(1, &e);
	CHECK_EQ(rename_at("e/sub", "d/sub", 0), 0); /* replaces a directory */
	CHECK_EQ(after.n_dirs, 2);
	told(0, &e);
	told(1, &d);
	CHECK_EQ(after.dirs[0].nlink, 2);
	CHECK_EQ(after.dirs[1].nlink, 3);
	CHECK_EQ(rename_at("e/f", "d/sub", RENAME_EXCHANGE), 0);
	CHECK_EQ(after.n_dirs, 2);
	told(0, &e);
	told(1, &d);
	CHECK_EQ(after.dirs[0].nlink, 3);
	end();
}

static void what_changed_nothing_tells_nothing(void)
{
	struct wire_handle h, again;

	begin();
	CHECK_EQ(open_at("d/f", 1, OPEN_CREATE, &h), 0);
	CHECK_EQ(link_at(&h, "d/g"), 0);
	CHECK_EQ(rename_at("d/f", "d/g", 0), 0); /* two names of one file */
	CHECK_EQ(after.n_dirs, 0);
	CHECK_EQ(open_at("d/f", 2, OPEN_CREATE, &again), 0);
	CHECK_EQ(again.ino, h.ino);
	CHECK_EQ(after.n_dirs, 0);
	CHECK_EQ(open_at("d/f", 3, OPEN_WRITE | OPEN_CREATE | OPEN_TRUNC, &again), 0);
	CHECK_EQ(after.n_dirs, 0);
	CHECK_EQ(mkdir_at("d/f", NULL), -EEXIST);
	end();
}

/* Two changes in one transaction: each reply has the state right after its own change. */
static void each_change_of_a_transaction_tells_its_own(void)
{
	struct wire_mkdir_args x = { .where = pipe_place("d/x"), .mode = 0755 };
	struct wire_mkdir_args y = { .where = pipe_place("d/y"), .mode = 0755 };
	struct wire_made_res r;
	unsigned before;
	struct xdr in;

	begin();
	before = p->replies;
	pipe_call(&w, p, OP_MKDIR, 0, 1, XDR_ANY(xdr_wire_mkdir_args), &x);
	pipe_call(&w, p, OP_MKDIR, 1, 1, XDR_ANY(xdr_wire_mkdir_args), &y);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->replies, before + 2);
	CHECK_EQ(p->head.slot, 1);
	xdr_decoder(&in, p->body + p->body_at, p->body_len - p->body_at, &arena);
	CHECK(xdr_wire_made_res(&in, &r));
	after = r.after;
	told(0, &d);
	CHECK_EQ(after.dirs[0].nlink, 4);
	end();
}

TEST_MAIN(TEST(a_change_tells_what_its_directory_has), TEST(a_rename_tells_of_both_directories),
	  TEST(what_changed_nothing_tells_nothing),
	  TEST(each_change_of_a_transaction_tells_its_own))
