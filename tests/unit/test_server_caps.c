/* Capabilities: which accesses to the objects of a file they permit. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;
static struct wire_open_res file;
static struct arena arena;

static void begin(void)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(pipe_open(&w, p, "file", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &file, &arena),
		 0);
}

static void end(void)
{
	pipe_free(p);
	arena_destroy(&arena);
	world_end(&w);
}

static int read_with(const struct wire_capability *c)
{
	struct wire_extent e = { 0, 10 };
	struct wire_read_args a = { .at.cap = *c, .list = &e, .n_list = 1 };
	struct wire_read_res r;

	return pipe_do(&w, p, OP_READ, XDR_ANY(xdr_wire_read_args), &a, XDR_ANY(xdr_wire_read_res),
		       &r, NULL);
}

static int write_with(const struct wire_capability *c)
{
	struct wire_extent e = { 0, 10 };
	struct wire_write_args a = {
		.at.cap = *c, .list = &e, .n_list = 1, .data = wire_text("0123456789")
	};
	struct wire_write_res r;

	return pipe_do(&w, p, OP_WRITE, XDR_ANY(xdr_wire_write_args), &a,
		       XDR_ANY(xdr_wire_write_res), &r, NULL);
}

static int stat_with(const struct wire_capability *c, uint32_t op)
{
	struct wire_sync_args a = { { *c, 0, 0 }, 0, 0 };
	struct wire_object_res r;

	if (op == OP_SYNC)
		return pipe_do(&w, p, op, XDR_ANY(xdr_wire_sync_args), &a,
			       XDR_ANY(xdr_wire_object_res), &r, NULL);
	return pipe_do(&w, p, op, XDR_ANY(xdr_wire_access), &a.at, XDR_ANY(xdr_wire_object_res), &r,
		       NULL);
}

static int seek_with(const struct wire_capability *c)
{
	struct wire_seek_args a = { { *c, 0, 0 }, 0, WHENCE_DATA };
	struct wire_seek_res r;

	return pipe_do(&w, p, OP_SEEK, XDR_ANY(xdr_wire_seek_args), &a, XDR_ANY(xdr_wire_seek_res),
		       &r, NULL);
}

static int fresh(struct wire_capability *c, uint32_t flags)
{
	struct wire_cap_args a = { { file.at.ino, file.at.gen }, flags };
	struct wire_cap_res r;
	int e = pipe_do(&w, p, OP_CAP, XDR_ANY(xdr_wire_cap_args), &a, XDR_ANY(xdr_wire_cap_res),
			&r, &arena);

	if (!e)
		*c = r.cap;
	return e;
}

static void what_was_issued_is_honoured(void)
{
	begin();
	CHECK_EQ(write_with(&file.cap), 0);
	CHECK_EQ(read_with(&file.cap), 0);
	CHECK_EQ(stat_with(&file.cap, OP_OBJSTAT), 0);
	CHECK_EQ(stat_with(&file.cap, OP_SYNC), 0);
	end();
}

static void every_changed_field_is_a_forgery(void)
{
	struct wire_capability c;

	begin();
	CHECK_EQ(write_with(&file.cap), 0); /* now in the cache of verified capabilities */
	for (int i = 0; i < 8; i++) {
		c = file.cap;
		c.ino ^= i == 0;
		c.obj_gen ^= i == 1;
		c.rights ^= i == 2 ? 4 : 0;
		c.epoch += i == 3;
		c.client ^= i == 4;
		c.expires += i == 5;
		c.mac[0] ^= i == 6;
		c.mac[31] ^= i == 7 ? 0x80 : 0;
		CHECK_EQ(read_with(&c), -EKEYREJECTED);
		CHECK_EQ(write_with(&c), -EKEYREJECTED);
		CHECK_EQ(stat_with(&c, OP_OBJSTAT), -EKEYREJECTED);
	}
	memset(&c, 0, sizeof(c)); /* equals an empty slot of the cache */
	CHECK_EQ(read_with(&c), -EKEYREJECTED);
	end();
}

static void another_key_does_not_sign(void)
{
	struct wire_capability c;
	struct mac_key *own;

	begin();
	c = file.cap;
	c.client = 0;
	cap_sign(w.srv, "", &c);
	CHECK_EQ(read_with(&c), 0);
	own = w.srv->signer;
	w.srv->signer = mac_key(w.client_key); /* sign with the key that clients have */
	CHECK(w.srv->signer);
	c.client = 1;
	cap_sign(w.srv, "", &c);
	mac_key_free(w.srv->signer);
	w.srv->signer = own;
	CHECK_EQ(read_with(&c), -EKEYREJECTED);
	end();
}

static void rights_are_checked(void)
{
	struct wire_open_res r;
	struct wire_getattr_args g = { { 0, 0 }, true };
	struct wire_getattr_res at;

	begin();
	CHECK_EQ(pipe_open(&w, p, "file", 2, OPEN_READ, &r, &arena), 0);
	CHECK_EQ(read_with(&r.cap), 0);
	CHECK_EQ(write_with(&r.cap), -EACCES);
	CHECK_EQ(pipe_open(&w, p, "file", 3, OPEN_WRITE, &r, &arena), 0);
	CHECK_EQ(write_with(&r.cap), 0);
	CHECK_EQ(read_with(&r.cap), -EACCES);
	CHECK_EQ(seek_with(&r.cap), 0); /* a writer may ask where its data are, and sync them */
	CHECK_EQ(stat_with(&r.cap, OP_SYNC), 0);
	/* the capability from GETATTR may only ask objects for their ends */
	g.h = (struct wire_handle){ file.at.ino, file.at.gen };
	CHECK_EQ(pipe_do(&w, p, OP_GETATTR, XDR_ANY(xdr_wire_getattr_args), &g,
			 XDR_ANY(xdr_wire_getattr_res), &at, &arena),
		 0);
	CHECK_EQ(stat_with(&at.cap, OP_OBJSTAT), 0);
	CHECK_EQ(read_with(&at.cap), -EACCES);
	CHECK_EQ(write_with(&at.cap), -EACCES);
	CHECK_EQ(seek_with(&at.cap), -EACCES);
	CHECK_EQ(stat_with(&at.cap, OP_SYNC), -EACCES);
	end();
}

static void a_capability_ages(void)
{
	struct wire_capability c;

	begin();
	CHECK_EQ(read_with(&file.cap), 0);
	/* as after a suspend: no timer fires before the next request */
	w.now += 3601 * NSEC_PER_SEC;
	w.srv->sessions.lease_ns = 7200 * NSEC_PER_SEC;
	CHECK_EQ(read_with(&file.cap), -EKEYEXPIRED);
	CHECK_EQ(fresh(&c, 3), 0);
	CHECK_EQ(read_with(&c), 0);
	end();
}

static void a_fence_ends_older_ones_and_a_fresh_one_works(void)
{
	struct wire_truncate_args t = { .size = 5 };
	struct wire_attr_res at;
	struct wire_capability c;

	begin();
	CHECK_EQ(write_with(&file.cap), 0);
	t.h = (struct wire_handle){ file.at.ino, file.at.gen };
	CHECK_EQ(pipe_do(&w, p, OP_TRUNCATE, XDR_ANY(xdr_wire_truncate_args), &t,
			 XDR_ANY(xdr_wire_attr_res), &at, NULL),
		 0);
	CHECK_EQ(at.at.size, 5);
	CHECK_EQ(write_with(&file.cap), -EKEYEXPIRED);
	CHECK_EQ(read_with(&file.cap), -EKEYEXPIRED);
	CHECK_EQ(fresh(&c, 3), 0);
	CHECK(c.epoch > file.cap.epoch);
	CHECK_EQ(write_with(&c), 0);
	end();
}

static void a_new_capability_needs_an_open(void)
{
	struct wire_close_args cl = { { 0, 0 }, 1, { 0 } };
	struct wire_void_res none;
	struct wire_capability c;
	struct pipe_link *other;

	begin();
	CHECK_EQ(fresh(&c, OPEN_READ), 0);
	CHECK_EQ(fresh(&c, 0), -EBADF);
	other = p;
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(fresh(&c, OPEN_READ), -EBADF);
	pipe_free(p);
	p = other;
	cl.h = (struct wire_handle){ file.at.ino, file.at.gen };
	CHECK_EQ(pipe_do(&w, p, OP_CLOSE, XDR_ANY(xdr_wire_close_args), &cl,
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 0);
	CHECK_EQ(fresh(&c, OPEN_READ), -EBADF);
	end();
}

TEST_MAIN(TEST(what_was_issued_is_honoured), TEST(every_changed_field_is_a_forgery),
	  TEST(another_key_does_not_sign), TEST(rights_are_checked), TEST(a_capability_ages),
	  TEST(a_fence_ends_older_ones_and_a_fresh_one_works), TEST(a_new_capability_needs_an_open))
