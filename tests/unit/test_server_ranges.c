/* ALLOCATE, SEEK and COPY at one target: rights, fences, invalid arguments, and copies whose client
 * disconnects. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;
static struct wire_open_res file, other;
static struct arena arena;

static void begin(void)
{
	uint32_t flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE;

	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(pipe_open(&w, p, "file", 1, flags, &file, &arena), 0);
	CHECK_EQ(pipe_open(&w, p, "other", 2, flags, &other, &arena), 0);
}

static void end(void)
{
	CHECK_EQ(w.srv->pool.n_free, w.srv->pool.n_units);
	CHECK_EQ(w.srv->copies.n_free, w.srv->copies.n_units);
	pipe_free(p);
	arena_destroy(&arena);
	world_end(&w);
}

static int put(const struct wire_capability *c, uint64_t off, const char *text)
{
	struct wire_extent e = { off, strlen(text) };
	struct wire_write_args a = {
		.at.cap = *c, .list = &e, .n_list = 1, .data = wire_text(text)
	};
	struct wire_write_res r;

	return pipe_do(&w, p, OP_WRITE, XDR_ANY(xdr_wire_write_args), &a,
		       XDR_ANY(xdr_wire_write_res), &r, NULL);
}

static void check_text(const struct wire_capability *c, uint64_t off, const char *text, size_t n)
{
	struct wire_extent e = { off, n };
	struct wire_read_args a = { .at.cap = *c, .list = &e, .n_list = 1 };
	struct wire_read_res r;

	CHECK_EQ(pipe_do(&w, p, OP_READ, XDR_ANY(xdr_wire_read_args), &a,
			 XDR_ANY(xdr_wire_read_res), &r, NULL),
		 0);
	CHECK_EQ(r.data.len, n);
	CHECK(memcmp(r.data.p, text, n) == 0);
}

static int allocate(const struct wire_capability *c, uint32_t mode, uint64_t off, uint64_t len,
		    uint64_t *end_of)
{
	struct wire_extent e = { off, len };
	struct wire_allocate_args a = { { *c, 0, 0 }, mode, 1, &e };
	struct wire_write_res r = { 0 };
	int error = pipe_do(&w, p, OP_ALLOCATE, XDR_ANY(xdr_wire_allocate_args), &a,
			    XDR_ANY(xdr_wire_write_res), &r, NULL);

	if (end_of)
		*end_of = r.end;
	if (!error)
		CHECK(r.mtime != 0);
	return error;
}

static int seek(const struct wire_capability *c, uint32_t whence, uint64_t off,
		struct wire_seek_res *r)
{
	struct wire_seek_args a = { { *c, 0, 0 }, off, whence };

	return pipe_do(&w, p, OP_SEEK, XDR_ANY(xdr_wire_seek_args), &a, XDR_ANY(xdr_wire_seek_res),
		       r, NULL);
}

static int copy(const struct wire_capability *to, const struct wire_capability *from,
		uint32_t source, struct wire_copy_piece piece)
{
	struct wire_copy_args a = { { *to, 0, 0 }, { *from, 0, 0 }, source, 1, &piece };
	struct wire_write_res r;

	return pipe_do(&w, p, OP_COPY, XDR_ANY(xdr_wire_copy_args), &a, XDR_ANY(xdr_wire_write_res),
		       &r, NULL);
}

static int stat_end(const struct wire_capability *c, uint64_t *end_of)
{
	struct wire_objstat_args a = { { *c, 0, 0 } };
	struct wire_object_res r;
	int error = pipe_do(&w, p, OP_OBJSTAT, XDR_ANY(xdr_wire_objstat_args), &a,
			    XDR_ANY(xdr_wire_object_res), &r, NULL);

	*end_of = r.end;
	return error;
}

/* The same capability with fewer rights, signed as by a metadata server. */
static struct wire_capability weaker(const struct wire_open_res *f, uint32_t rights)
{
	struct wire_capability c = f->cap;

	c.rights = rights;
	cap_sign(w.srv, "", &c);
	return c;
}

static void ranges_need_the_rights_of_reads_and_writes(void)
{
	struct wire_copy_piece piece = { 0, 0, 5 };
	struct wire_capability r, wr, forged;
	struct wire_seek_res s;

	begin();
	r = weaker(&file, CAP_READ);
	wr = weaker(&file, CAP_WRITE);
	forged = file.cap;
	forged.mac[3] ^= 1;
	CHECK_EQ(allocate(&r, 0, 0, 10, NULL), -EACCES);
	CHECK_EQ(allocate(&forged, 0, 0, 10, NULL), -EKEYREJECTED);
	CHECK_EQ(seek(&forged, WHENCE_DATA, 0, &s), -EKEYREJECTED);
	CHECK_EQ(copy(&r, &other.cap, 0, piece), -EACCES);
	CHECK_EQ(copy(&other.cap, &wr, 0, piece), -EACCES);
	CHECK_EQ(copy(&other.cap, &forged, 0, piece), -EKEYREJECTED);
	CHECK_EQ(copy(&forged, &other.cap, 0, piece), -EKEYREJECTED);
	CHECK_EQ(copy(&wr, &other.cap, 0, piece), 0);
	end();
}

static void lies_about_ranges_are_refused(void)
{
	struct wire_seek_res s;

	begin();
	CHECK_EQ(allocate(&file.cap, 4, 0, 10, NULL), -EOPNOTSUPP);
	CHECK_EQ(allocate(&file.cap, ALLOC_PUNCH, 0, 10, NULL), -EOPNOTSUPP);
	CHECK_EQ(allocate(&file.cap, 0, INT64_MAX, 10, NULL), -EFBIG);
	CHECK_EQ(allocate(&file.cap, 0, 0, ALLOC_MAX + 1, NULL), -EINVAL);
	CHECK_EQ(seek(&file.cap, 0, 0, &s), -EINVAL);
	CHECK_EQ(seek(&file.cap, WHENCE_HOLE, UINT64_MAX, &s), -EINVAL);
	CHECK_EQ(copy(&file.cap, &other.cap, 1, (struct wire_copy_piece){ 0, 0, 5 }), -EINVAL);
	CHECK_EQ(copy(&file.cap, &other.cap, 0, (struct wire_copy_piece){ 0, 0, COPY_MAX + 1 }),
		 -EINVAL);
	CHECK_EQ(copy(&file.cap, &other.cap, UINT32_MAX, (struct wire_copy_piece){ 0, 0, 5 }),
		 -EINVAL);
	CHECK_EQ(copy(&file.cap, &other.cap, 0, (struct wire_copy_piece){ INT64_MAX, 0, 5 }),
		 -EFBIG);
	CHECK_EQ(copy(&file.cap, &other.cap, 0, (struct wire_copy_piece){ 0, INT64_MAX, 5 }),
		 -EFBIG);
	end();
}

static void a_fence_stands_before_changes_of_ranges(void)
{
	struct wire_truncate_args t = { .size = 100 };
	struct wire_attr_res at;

	begin();
	t.h = (struct wire_handle){ file.at.ino, file.at.gen };
	CHECK_EQ(put(&file.cap, 0, "hello"), 0);
	CHECK_EQ(pipe_do(&w, p, OP_TRUNCATE, XDR_ANY(xdr_wire_truncate_args), &t,
			 XDR_ANY(xdr_wire_attr_res), &at, NULL),
		 0);
	CHECK_EQ(allocate(&file.cap, 0, 0, 10, NULL), -EKEYEXPIRED);
	CHECK_EQ(allocate(&file.cap, ALLOC_PUNCH | ALLOC_KEEP_SIZE, 0, 10, NULL), -EKEYEXPIRED);
	CHECK_EQ(copy(&file.cap, &other.cap, 0, (struct wire_copy_piece){ 0, 0, 5 }), -EKEYEXPIRED);
	CHECK_EQ(copy(&other.cap, &file.cap, 0, (struct wire_copy_piece){ 0, 0, 5 }), -EKEYEXPIRED);
	end();
}

static void an_object_that_is_not_there_is_a_hole_and_stays_one(void)
{
	struct wire_seek_res s;
	uint64_t e;

	begin();
	CHECK_EQ(allocate(&file.cap, ALLOC_PUNCH | ALLOC_KEEP_SIZE, 0, 10000, &e), 0);
	CHECK_EQ(seek(&file.cap, WHENCE_DATA, 5, &s), 0);
	CHECK_EQ(s.offset, SEEK_NONE);
	CHECK_EQ(seek(&file.cap, WHENCE_HOLE, 5, &s), 0);
	CHECK_EQ(s.offset, 5);
	CHECK_EQ(w.srv->loop->n_reqs, 0);
	CHECK_EQ(copy(&other.cap, &file.cap, 0, (struct wire_copy_piece){ 7, 10, 5 }), 0);
	check_text(&other.cap, 10, "\0\0\0\0", 5);
	CHECK_EQ(stat_end(&file.cap, &e), 0);
	CHECK_EQ(e, 0);
	CHECK_EQ(allocate(&file.cap, 0, 0, 10000, &e), 0);
	CHECK_EQ(e, 10000);
	end();
}

static void a_copy_reads_zeros_behind_the_end_of_its_source(void)
{
	begin();
	CHECK_EQ(put(&other.cap, 0, "xxxxxxxxxxxx"), 0);
	CHECK_EQ(put(&file.cap, 100, "hello"), 0);
	CHECK_EQ(copy(&other.cap, &file.cap, 0, (struct wire_copy_piece){ 102, 1, 6 }), 0);
	check_text(&other.cap, 0, "xllo\0\0\0xxxxx", 12);
	CHECK_EQ(copy(&file.cap, &file.cap, 0, (struct wire_copy_piece){ 100, 0, 5 }), 0);
	check_text(&file.cap, 0, "hello", 5);
	end();
}

/* Copies have their own buffers: a client that holds all other buffers does not block a copy. */
static void a_copy_waits_for_no_buffer_of_reads_and_writes(void)
{
	struct buf all[2];
	struct req idle;

	begin();
	CHECK_EQ(put(&file.cap, 0, "hello"), 0);
	CHECK_EQ(w.srv->pool.n_units, ARRAY_LEN(all) * BUF_MAX_UNITS);
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		buf_get(&w.srv->pool, NULL, &all[i], BUF_MAX_UNITS * BUF_UNIT, &idle);
	CHECK_EQ(w.srv->pool.n_free, 0);
	CHECK_EQ(copy(&other.cap, &file.cap, 0, (struct wire_copy_piece){ 0, 0, 5 }), 0);
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		buf_put(&all[i]);
	check_text(&other.cap, 0, "hello", 5);
	end();
}

/* Blocks copies that read `file`, each of the largest size, until turn_end(). */
static void hold_copies(struct turn *t)
{
	static struct req idle = { .stepping = true };
	struct object *o = NULL;

	CHECK_EQ(put(&file.cap, COPY_MAX - 1, "x"), 0);
	object_get(w.srv->disk, (struct object_id){ file.cap.ino, file.cap.obj_gen, 0 }, EPOCH_ANY,
		   false, &o, &idle);
	CHECK(o);
	turn_begin(o, t, file.cap.epoch, 0, UINT64_MAX, true, &idle);
	CHECK(t->granted);
	object_put(o);
}

static void ask_copy(struct pipe_link *from, uint32_t slot)
{
	struct wire_copy_piece piece = { 0, 0, COPY_MAX };
	struct wire_copy_args a = { { other.cap, 0, 0 }, { file.cap, 0, 0 }, 0, 1, &piece };

	pipe_call(&w, from, OP_COPY, slot, 1, XDR_ANY(xdr_wire_copy_args), &a);
	world_settle(&w);
}

static void many_copies_of_one_client_leave_buffers_for_another(void)
{
	struct pipe_link *second;
	struct turn t;

	begin();
	second = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, second);
	hold_copies(&t);
	for (uint32_t i = 0; i < 40; i++)
		ask_copy(p, i);
	CHECK_EQ(session_on(&p->l, 0)->copy_share.held, w.srv->copies.n_units / 8);
	ask_copy(second, 0);
	CHECK_EQ(session_on(&second->l, 0)->copy_share.held, WINDOWS * WINDOW_BYTES / BUF_UNIT);
	link_close(&p->l, -ECONNRESET);
	link_close(&second->l, -ECONNRESET);
	turn_end(&t);
	CHECK(world_quiet(&w));
	pipe_free(second);
	end();
}

static void a_copy_from_here_ends_with_its_link(void)
{
	struct pipe_link *first;
	struct turn t;
	uint64_t e;

	begin();
	hold_copies(&t);
	first = p;
	ask_copy(first, 0);
	link_close(&first->l, -ECONNRESET);
	turn_end(&t);
	CHECK(world_quiet(&w));
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(stat_end(&other.cap, &e), 0);
	CHECK_EQ(e, 0); /* fetched data are not written, and no more are fetched */
	pipe_free(first);
	end();
}

TEST_MAIN(TEST(ranges_need_the_rights_of_reads_and_writes), TEST(lies_about_ranges_are_refused),
	  TEST(a_fence_stands_before_changes_of_ranges),
	  TEST(an_object_that_is_not_there_is_a_hole_and_stays_one),
	  TEST(a_copy_reads_zeros_behind_the_end_of_its_source),
	  TEST(a_copy_waits_for_no_buffer_of_reads_and_writes),
	  TEST(many_copies_of_one_client_leave_buffers_for_another),
	  TEST(a_copy_from_here_ends_with_its_link))
