/* How a server places appends: in order, behind allocated ranges, and under the epoch that the
 * reply names; which places a truncate revokes and a claim does not restore; and the state of the
 * file when its objects cannot be asked. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;
static struct arena arena;
static struct wire_open_res file;
static struct wire_append_res place;

static void begin(void)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	CHECK_EQ(pipe_open(&w, p, "f", 1, OPEN_WRITE | OPEN_APPEND | OPEN_CREATE, &file, &arena),
		 0);
}

static void end(void)
{
	pipe_free(p);
	arena_destroy(&arena);
	world_end(&w);
}

static struct wire_handle handle(void)
{
	return (struct wire_handle){ file.at.ino, file.at.gen };
}

static int append(uint64_t id, uint64_t length, uint64_t upto)
{
	struct wire_append_args a = { handle(), 1, id, length, upto };

	return pipe_do(&w, p, OP_APPEND, XDR_ANY(xdr_wire_append_args), &a,
		       XDR_ANY(xdr_wire_append_res), &place, NULL);
}

static void appended(uint64_t id)
{
	struct wire_appended_args a = { handle(), 1, id };
	struct wire_void_res none;

	CHECK_EQ(pipe_do(&w, p, OP_APPENDED, XDR_ANY(xdr_wire_appended_args), &a,
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 0);
}

static void truncate_to(uint64_t size)
{
	struct wire_truncate_args a = { handle(), size, 1 };
	struct wire_attr_res at;

	CHECK_EQ(pipe_do(&w, p, OP_TRUNCATE, XDR_ANY(xdr_wire_truncate_args), &a,
			 XDR_ANY(xdr_wire_attr_res), &at, NULL),
		 0);
}

/* The upper limit of a size that a client may see. */
static uint64_t limit(void)
{
	struct wire_getattr_args a = { handle(), true };
	struct wire_getattr_res r;

	CHECK_EQ(pipe_do(&w, p, OP_GETATTR, XDR_ANY(xdr_wire_getattr_args), &a,
			 XDR_ANY(xdr_wire_getattr_res), &r, &arena),
		 0);
	return r.limit;
}

static void a_place_names_its_epoch(void)
{
	uint64_t epoch;

	begin();
	CHECK_EQ(append(1, 10, 0), 0);
	CHECK_EQ(place.offset, 0);
	epoch = place.epoch;
	CHECK(epoch > file.cap.epoch); /* the first append fences */
	CHECK_EQ(append(1, 10, 0), 0);
	CHECK_EQ(place.offset, 0);
	CHECK_EQ(append(2, 5, 0), 0);
	CHECK_EQ(place.offset, 10);
	CHECK_EQ(place.epoch, epoch);
	truncate_to(100);
	CHECK_EQ(append(1, 10, 0), 0); /* the old place was revoked */
	CHECK_EQ(place.offset, 100);
	CHECK(place.epoch > epoch);
	end();
}

static void room_is_placed_like_an_append(void)
{
	begin();
	CHECK_EQ(append(1, 10, 0), 0);
	appended(1);
	CHECK_EQ(limit(), 10);
	CHECK_EQ(append(2, 0, 1000), 0); /* fallocate: from the end of the file to 1000 */
	CHECK_EQ(place.offset, 10);
	CHECK_EQ(limit(), 10); /* unchanged until the range is allocated */
	CHECK_EQ(append(3, 7, 0), 0);
	CHECK_EQ(place.offset, 1000);
	appended(2);
	CHECK_EQ(limit(), 1000);
	appended(3);
	CHECK_EQ(limit(), 1007);
	CHECK_EQ(append(4, 0, 500), 0); /* within the file: the end stays */
	appended(4);
	CHECK_EQ(limit(), 1007);
	CHECK_EQ(append(5, 0, UINT64_MAX), -EFBIG);
	CHECK_EQ(limit(), 1007);
	end();
}

/* Kills and restarts the server, then resumes the session with the secret of pipe_session(). */
static void crash(void)
{
	struct wire_session_args a = { .id = session_on(&p->l, 0)->id,
				       .client = wire_text("pipe") };
	struct wire_session_res r;

	pipe_free(p);
	world_settle(&w);
	list_init(&w.jobs);
	server_abandon(w.srv);
	world_start_server(&w);
	p = pipe_new(&w, LINK_CLIENT);
	CHECK_EQ(pipe_do(&w, p, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
			 XDR_ANY(xdr_wire_session_res), &r, NULL),
		 0);
	CHECK(r.resumed);
}

static int claim(struct wire_append_claim *c)
{
	struct wire_reclaim_args a = { .h = handle(),
				       .id = 1,
				       .flags = OPEN_WRITE | OPEN_APPEND,
				       .n_appends = 1,
				       .appends = c };
	struct wire_void_res none;

	return pipe_do(&w, p, OP_RECLAIM, XDR_ANY(xdr_wire_reclaim_args), &a,
		       XDR_ANY(xdr_wire_void_res), &none, NULL);
}

static void a_place_is_claimed_again(void)
{
	struct wire_append_claim c = { .id = 1, .length = 500 };

	begin();
	CHECK_EQ(append(1, 500, 0), 0);
	c.epoch = place.epoch;
	crash();
	CHECK_EQ(claim(&c), 0);
	CHECK_EQ(append(2, 10, 0), 0);
	CHECK_EQ(place.offset, 500);
	CHECK_EQ(append(1, 500, 0), 0);
	CHECK_EQ(place.offset, 0);
	CHECK(place.epoch > c.epoch);
	end();
}

static void a_claim_does_not_bring_back_what_a_truncate_took(void)
{
	struct wire_append_claim c = { .id = 1, .length = 500 };

	begin();
	CHECK_EQ(append(1, 500, 0), 0);
	c.epoch = place.epoch;
	truncate_to(20);
	crash();
	CHECK_EQ(claim(&c), 0);
	CHECK_EQ(inode_find(w.srv, file.at.ino)->writers, 1);
	CHECK_EQ(append(2, 10, 0), 0);
	CHECK_EQ(place.offset, 20);
	appended(2);
	CHECK_EQ(limit(), 30);
	CHECK_EQ(append(1, 500, 0), 0);
	CHECK_EQ(place.offset, 30);
	end();
}

/* The append took a new epoch but could not ask the objects for their ends: the file is settled
 * after its last writer closes. */
static void an_append_that_cannot_ask_leaves_the_file_orphaned(void)
{
	uint32_t n;

	begin();
	n = w.srv->n_peers;
	w.srv->n_peers = 0; /* no peer can be asked */
	CHECK_EQ(append(1, 10, 0), -EIO);
	CHECK(inode_find(w.srv, file.at.ino)->orphaned);
	w.srv->n_peers = n;
	end();
}

/* A writer reports a write from before a fence: the objects are asked for the size. */
static void a_report_from_before_a_fence_loses_no_size(void)
{
	struct wire_extent e = { 0, 5 };
	struct wire_write_args wr = { .list = &e, .n_list = 1, .data = wire_text("hello") };
	struct wire_close_args cl = { .id = 1 };
	struct wire_getattr_args g = { .with_layout = false };
	struct wire_getattr_res at;
	struct wire_write_res wrote;
	struct wire_open_res plain;
	struct wire_void_res none;

	begin();
	CHECK_EQ(pipe_open(&w, p, "f", 2, OPEN_WRITE, &plain, &arena), 0);
	wr.at.cap = plain.cap;
	CHECK_EQ(pipe_do(&w, p, OP_WRITE, XDR_ANY(xdr_wire_write_args), &wr,
			 XDR_ANY(xdr_wire_write_res), &wrote, NULL),
		 0);
	CHECK_EQ(append(1, 10, 0), 0); /* fences */
	CHECK_EQ(place.offset, 5);
	cl.h = g.h = handle();
	for (; cl.id <= 2; cl.id++) {
		CHECK_EQ(pipe_do(&w, p, OP_CLOSE, XDR_ANY(xdr_wire_close_args), &cl,
				 XDR_ANY(xdr_wire_void_res), &none, NULL),
			 0);
		cl.w = (struct wire_wrote){ .epoch = plain.cap.epoch, .end = 5, .mtime = 77 };
	}
	world_settle(&w);
	CHECK(!meta_unsettled(w.srv->meta, g.h.ino));
	CHECK_EQ(pipe_do(&w, p, OP_GETATTR, XDR_ANY(xdr_wire_getattr_args), &g,
			 XDR_ANY(xdr_wire_getattr_res), &at, &arena),
		 0);
	CHECK_EQ(at.at.size, 5);
	end();
}

TEST_MAIN(TEST(a_place_names_its_epoch), TEST(room_is_placed_like_an_append),
	  TEST(a_place_is_claimed_again), TEST(a_claim_does_not_bring_back_what_a_truncate_took),
	  TEST(an_append_that_cannot_ask_leaves_the_file_orphaned),
	  TEST(a_report_from_before_a_fence_loses_no_size))
