/* Opens and symbolic links: what the server answers to an open of a link. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;

static void begin(void)
{
	world_start(&w);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
}

static void end(void)
{
	pipe_free(p);
	world_end(&w);
}

static struct wire_open_args creates(const char *path)
{
	struct wire_open_args a = { .where = pipe_place(path),
				    .id = 1,
				    .flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE,
				    .mode = 0644 };

	a.where.follow = true;
	return a;
}

static void call_open(struct wire_open_args *a, uint32_t sequence)
{
	pipe_call(&w, p, OP_OPEN, 1, sequence, XDR_ANY(xdr_wire_open_args), a);
}

static void check_sent_back_to_the_beginning(void)
{
	struct wire_referral r;
	struct xdr x;

	CHECK_EQ(p->head.slot, 1);
	CHECK_EQ(p->head.status, EREMOTE);
	xdr_decoder(&x, p->body + p->body_at, p->body_len - p->body_at, NULL);
	CHECK(xdr_wire_referral(&x, &r));
	CHECK_EQ(r.at.ino, META_ROOT_INO);
	CHECK_EQ(r.consumed, 0);
	CHECK(!r.linked);
}

static void a_link_that_comes_after_the_walk_sends_the_open_back(void)
{
	struct wire_symlink_args ln = { .where = pipe_place("x"), .target = wire_text("target") };
	struct wire_open_args a = creates("x");
	struct wire_lookup_args look = { pipe_place("target") };
	struct wire_lookup_res found;
	unsigned before;

	begin();
	before = p->replies;
	pipe_call(&w, p, OP_SYMLINK, 0, 1, XDR_ANY(xdr_wire_symlink_args), &ln);
	call_open(&a, 1); /* walks before the link exists; both changes are in one transaction */
	CHECK(world_quiet(&w));
	CHECK_EQ(p->replies, before + 2);
	check_sent_back_to_the_beginning();
	call_open(&a, 1); /* the stored answer says the same */
	CHECK(world_quiet(&w));
	check_sent_back_to_the_beginning();
	call_open(&a, 2);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, 0);
	CHECK_EQ(pipe_do(&w, p, OP_LOOKUP, XDR_ANY(xdr_wire_lookup_args), &look,
			 XDR_ANY(xdr_wire_lookup_res), &found, NULL),
		 0);
	CHECK_EQ(found.at.mode, S_IFREG | 0644);
	end();
}

static void an_exclusive_open_sees_the_link_itself(void)
{
	struct wire_symlink_args ln = { .where = pipe_place("x"), .target = wire_text("target") };
	struct wire_open_args a = creates("x");

	begin();
	a.flags |= OPEN_EXCL;
	a.where.follow = false;
	pipe_call(&w, p, OP_SYMLINK, 0, 1, XDR_ANY(xdr_wire_symlink_args), &ln);
	call_open(&a, 1);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.slot, 1);
	CHECK_EQ(p->head.status, EEXIST);
	a.flags &= ~(uint32_t)OPEN_EXCL;
	call_open(&a, 2);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, ELOOP);
	end();
}

static void a_link_is_not_opened_by_its_handle(void)
{
	struct wire_symlink_args ln = { .where = pipe_place("x"), .target = wire_text("target") };
	struct wire_open_args a = { .id = 1, .flags = OPEN_READ };
	struct wire_reclaim_args claim = { .id = 1, .flags = OPEN_READ };
	struct wire_truncate_args cut = { .size = 1 };
	struct wire_open_res opened;
	struct wire_made_res made;
	struct wire_attr_res at;
	struct wire_void_res none;

	begin();
	CHECK_EQ(pipe_do(&w, p, OP_SYMLINK, XDR_ANY(xdr_wire_symlink_args), &ln,
			 XDR_ANY(xdr_wire_made_res), &made, NULL),
		 0);
	a.where.dir = claim.h = cut.h = (struct wire_handle){ made.at.ino, made.at.gen };
	CHECK_EQ(pipe_do(&w, p, OP_OPEN, XDR_ANY(xdr_wire_open_args), &a,
			 XDR_ANY(xdr_wire_open_res), &opened, NULL),
		 -ELOOP);
	CHECK_EQ(pipe_do(&w, p, OP_RECLAIM, XDR_ANY(xdr_wire_reclaim_args), &claim,
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 -EINVAL);
	CHECK_EQ(pipe_do(&w, p, OP_TRUNCATE, XDR_ANY(xdr_wire_truncate_args), &cut,
			 XDR_ANY(xdr_wire_attr_res), &at, NULL),
		 -EINVAL);
	end();
}

/* The objects of a file are removed with its last name only. */
static void a_file_with_a_name_left_is_not_removed(void)
{
	struct wire_unlink_args a = { pipe_place("a") }, b = { pipe_place("b") };
	struct wire_link_args ln = { .where = pipe_place("b") };
	struct wire_open_res file;
	struct wire_made_res made;
	struct wire_dirs_after gone;
	struct wire_void_res none;
	struct meta_node n;
	struct arena arena;

	begin();
	arena_init(&arena, 0);
	CHECK_EQ(pipe_open(&w, p, "a", 1, OPEN_READ | OPEN_CREATE, &file, &arena), 0);
	ln.h = (struct wire_handle){ file.at.ino, file.at.gen };
	CHECK_EQ(pipe_do(&w, p, OP_LINK, XDR_ANY(xdr_wire_link_args), &ln,
			 XDR_ANY(xdr_wire_made_res), &made, NULL),
		 0);
	CHECK_EQ(made.at.nlink, 2);
	CHECK_EQ(pipe_do(&w, p, OP_CLOSE, XDR_ANY(xdr_wire_close_args),
			 &(struct wire_close_args){ .h = ln.h, .id = 1 },
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 0);
	CHECK_EQ(pipe_do(&w, p, OP_UNLINK, XDR_ANY(xdr_wire_unlink_args), &a,
			 XDR_ANY(xdr_wire_dirs_after), &gone, NULL),
		 0);
	CHECK(list_empty(&w.srv->tasks));
	CHECK_EQ(meta_get(w.srv->meta, &ln.h, &n, &arena), 0);
	CHECK_EQ(pipe_do(&w, p, OP_UNLINK, XDR_ANY(xdr_wire_unlink_args), &b,
			 XDR_ANY(xdr_wire_dirs_after), &gone, NULL),
		 0);
	world_settle(&w);
	world_pass(&w, 5 * NSEC_PER_SEC);
	CHECK_EQ(meta_get(w.srv->meta, &ln.h, &n, &arena), -ESTALE);
	arena_destroy(&arena);
	end();
}

TEST_MAIN(TEST(a_link_that_comes_after_the_walk_sends_the_open_back),
	  TEST(an_exclusive_open_sees_the_link_itself), TEST(a_link_is_not_opened_by_its_handle),
	  TEST(a_file_with_a_name_left_is_not_removed))
