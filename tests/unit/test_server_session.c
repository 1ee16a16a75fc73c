/* Sessions of a server: admission, replays, resuming, goodbye, and the end of a lease. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;
static struct arena arena;

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

static void call_ping(uint32_t slot, uint32_t sequence)
{
	struct wire_void_args none = { 0 };

	pipe_call(&w, p, OP_PING, slot, sequence, XDR_ANY(xdr_wire_void_args), &none);
	world_settle(&w);
}

static void call_mkdir(uint32_t slot, uint32_t sequence, const char *path)
{
	struct wire_mkdir_args a = { .where = pipe_place(path), .mode = 0755 };

	pipe_call(&w, p, OP_MKDIR, slot, sequence, XDR_ANY(xdr_wire_mkdir_args), &a);
}

static int session(uint64_t id, uint8_t secret, struct wire_session_res *r)
{
	struct wire_session_args a = { .id = id, .client = wire_text("pipe") };

	memset(a.secret, secret, sizeof(a.secret));
	return pipe_do(&w, p, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
		       XDR_ANY(xdr_wire_session_res), r, NULL);
}

/* ---- admission ---- */

static void a_malformed_message_closes_its_link_and_no_other(void)
{
	static const uint8_t rubbish[200] = { 0, 0, 0, 21, 0xff };
	struct pipe_link *other;

	begin();
	other = p;
	for (size_t len = 0; len < sizeof(rubbish); len += 3) {
		p = pipe_new(&w, LINK_CLIENT);
		pipe_message(&w, p, 0, rubbish, len);
		CHECK(p->closed);
		CHECK_EQ(p->replies, 0);
		pipe_free(p);
	}
	p = other;
	CHECK_EQ(w.srv->in_service, 0);
	call_ping(0, 1);
	CHECK(!p->closed);
	CHECK_EQ(p->head.status, 0);
	end();
}

static void a_request_without_a_session_is_turned_away(void)
{
	struct wire_void_args none = { 0 };
	struct pipe_link *stranger;

	begin();
	stranger = pipe_new(&w, LINK_CLIENT);
	pipe_call(&w, stranger, OP_PING, 0, 1, XDR_ANY(xdr_wire_void_args), &none);
	CHECK(!stranger->closed);
	CHECK_EQ(stranger->head.status, ESTALE);
	CHECK_EQ(stranger->head.slots, 0);
	pipe_call(&w, stranger, OP_STATUS, 0, 2, XDR_ANY(xdr_wire_void_args), &none);
	CHECK_EQ(stranger->head.status, 0); /* this request needs no session */
	pipe_free(stranger);
	end();
}

static void lies_about_slots_close_the_link(void)
{
	static const struct {
		uint32_t slot, sequence;
	} lies[] = { { SESSION_SLOTS, 1 }, { UINT32_MAX, 1 }, { 0, 4 } };

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		begin();
		call_ping(0, 5);
		CHECK_EQ(p->head.status, 0);
		call_ping(lies[i].slot, lies[i].sequence);
		CHECK(p->closed);
		end();
	}
	begin();
	call_mkdir(0, 1, "d"); /* in service: waits for the writer thread */
	CHECK_EQ(w.srv->in_service, 1);
	call_mkdir(0, 2, "e");
	CHECK(p->closed);
	CHECK(world_quiet(&w));
	end();
}

static void what_is_for_servers_is_refused_to_clients(void)
{
	struct wire_fence_args f = { 5, 1, 0, 9, FENCE_KEEP };
	struct wire_removal one = { 5, 1, 0, 9 };
	struct wire_remove_args rm = { 1, &one };
	struct wire_remove_res gone;
	struct wire_object_res r;

	begin();
	CHECK_EQ(pipe_do(&w, p, OP_FENCE, XDR_ANY(xdr_wire_fence_args), &f,
			 XDR_ANY(xdr_wire_object_res), &r, NULL),
		 -EPERM);
	CHECK_EQ(pipe_do(&w, p, OP_REMOVE, XDR_ANY(xdr_wire_remove_args), &rm,
			 XDR_ANY(xdr_wire_remove_res), &gone, NULL),
		 -EPERM);
	p->l.role = LINK_SERVER;
	CHECK_EQ(pipe_do(&w, p, OP_FENCE, XDR_ANY(xdr_wire_fence_args), &f,
			 XDR_ANY(xdr_wire_object_res), &r, NULL),
		 0);
	CHECK_EQ(disk_floor(w.srv->disk, 5), 9);
	end();
}

/* ---- exactly once ---- */

static void a_change_that_is_repeated_gives_its_first_answer(void)
{
	struct wire_made_res first, again;
	struct xdr x;

	begin();
	call_mkdir(3, 1, "d");
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, 0);
	xdr_decoder(&x, p->body + p->body_at, p->body_len - p->body_at, &p->arena);
	CHECK(xdr_wire_made_res(&x, &first));
	CHECK_EQ(first.after.n_dirs, 1);
	call_mkdir(3, 1, "d");
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, 0); /* a replay, not EEXIST */
	xdr_decoder(&x, p->body + p->body_at, p->body_len - p->body_at, NULL);
	CHECK(xdr_wire_made_res(&x, &again));
	CHECK_EQ(again.after.n_dirs, 0); /* a replay does not look up the directory */
	CHECK_EQ(first.at.ino, again.at.ino);
	call_mkdir(3, 2, "d");
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, EEXIST);
	call_mkdir(3, 2, "d"); /* an error is stored as well, */
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, EEXIST);
	call_mkdir(3, 2, "other"); /* but is not the answer to another request */
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, EBADMSG);
	end();
}

static uint64_t truncated(const struct wire_handle *h, uint32_t slot, uint64_t size)
{
	struct wire_truncate_args a = { .h = *h, .size = size };
	struct wire_attr_res r;
	struct xdr x;

	pipe_call(&w, p, OP_TRUNCATE, slot, 1, XDR_ANY(xdr_wire_truncate_args), &a);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, 0);
	xdr_decoder(&x, p->body + p->body_at, p->body_len - p->body_at, NULL);
	CHECK(xdr_wire_attr_res(&x, &r));
	return r.at.size;
}

/* A replay reports success, and later changes are preserved. */
static void a_truncate_that_is_repeated_happens_once(void)
{
	struct wire_open_res file;
	struct wire_handle h;

	begin();
	CHECK_EQ(pipe_open(&w, p, "f", 1, OPEN_WRITE | OPEN_CREATE, &file, &arena), 0);
	h = (struct wire_handle){ file.at.ino, file.at.gen };
	CHECK_EQ(truncated(&h, 3, 100), 100);
	CHECK_EQ(truncated(&h, 4, 200), 200);
	CHECK_EQ(truncated(&h, 3, 100), 200);
	CHECK_EQ(truncated(&h, 5, 50), 50);
	CHECK_EQ(truncated(&h, 4, 200), 50);
	end();
}

static void a_change_survives_a_restart_exactly_once(void)
{
	struct wire_session_res r;
	uint64_t id;

	begin();
	id = session_on(&p->l, 0)->id;
	call_mkdir(3, 1, "d");
	CHECK(world_quiet(&w));
	pipe_free(p);
	CHECK_EQ(server_stop(w.srv), 0);
	world_start_server(&w);
	p = pipe_new(&w, LINK_CLIENT);
	CHECK_EQ(session(id, 0, &r), 0);
	CHECK(r.resumed);
	call_mkdir(3, 1, "d");
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, 0);
	end();
}

static struct exec_ops usual;

static int slow_worker(struct env *e, struct loop *l, const char *name, struct worker **out)
{
	w.now += 60 * NSEC_PER_SEC;
	return usual.worker_start(e, l, name, out);
}

static void a_start_that_takes_long_ends_no_lease(void)
{
	uint64_t id;

	begin();
	id = session_on(&p->l, 0)->id;
	pipe_free(p);
	CHECK_EQ(server_stop(w.srv), 0);
	usual = w.exec;
	w.exec.worker_start = slow_worker;
	world_start_server(&w);
	w.exec = usual;
	world_pass(&w, 20 * NSEC_PER_SEC);
	CHECK(session_find(&w.srv->sessions, id));
	world_pass(&w, 20 * NSEC_PER_SEC);
	CHECK(!session_find(&w.srv->sessions, id));
	p = pipe_new(&w, LINK_CLIENT);
	end();
}

/* ---- resuming ---- */

static void a_session_is_resumed_by_its_secret_only(void)
{
	struct wire_session_res r;
	struct pipe_link *old;
	uint64_t id;

	begin();
	old = p;
	id = session_on(&p->l, 0)->id;
	p = pipe_new(&w, LINK_CLIENT);
	CHECK_EQ(session(id, 1, &r), -EACCES);
	CHECK(!old->closed);
	CHECK_EQ(session(id, 0, &r), 0);
	CHECK(r.resumed && r.id == id);
	CHECK(old->closed); /* a session has one link at a time */
	CHECK(session_on(&p->l, 0) && session_on(&p->l, 0)->id == id);
	CHECK_EQ(session(id ^ 1, 0, &r), 0);
	CHECK(!r.resumed && r.id != id); /* unknown session: a new one is made */
	pipe_free(old);
	end();
}

static void resuming_waits_until_the_old_requests_have_ended(void)
{
	struct wire_session_args a = { .client = wire_text("pipe") };
	struct wire_extent e = { 0, MIB };
	struct wire_write_args wr = { .list = &e, .n_list = 1, .mem = { .tag = 1, .length = MIB } };
	struct wire_open_res file;
	struct pipe_link *old;

	begin();
	CHECK_EQ(pipe_open(&w, p, "f", 1, OPEN_WRITE | OPEN_CREATE, &file, &arena), 0);
	old = p;
	wr.at.cap = file.cap;
	pipe_call(&w, old, OP_WRITE, 0, 1, XDR_ANY(xdr_wire_write_args), &wr);
	CHECK_EQ(w.srv->in_service, 1); /* its object is being opened */
	a.id = session_on(&old->l, 0)->id;
	p = pipe_new(&w, LINK_CLIENT);
	pipe_call(&w, p, OP_SESSION, NO_SLOT, 0, XDR_ANY(xdr_wire_session_args), &a);
	CHECK(old->closed);
	CHECK_EQ(p->replies, 0);
	CHECK(!session_on(&p->l, 0));
	CHECK(world_quiet(&w));
	CHECK_EQ(p->replies, 1);
	CHECK_EQ(p->head.status, 0);
	CHECK(session_on(&p->l, 0));
	CHECK_EQ(session_on(&p->l, 0)->in_service, 0);
	pipe_free(old);
	end();
}

static void ping(uint32_t slot, uint32_t sequence)
{
	struct wire_void_args none = { 0 };

	pipe_call(&w, p, OP_PING, slot, sequence, XDR_ANY(xdr_wire_void_args), &none);
	CHECK(world_quiet(&w));
}

/* The same on channel 0 in any session. */
static void ping_in(uint64_t id)
{
	struct wire_req_head h = { .op = OP_PING, .slot = 3, .sequence = 2, .session = id };
	struct wire_void_args none = { 0 };
	uint8_t body[256];
	struct xdr x;

	xdr_encoder(&x, body, sizeof(body));
	CHECK(xdr_wire_req_head(&x, &h) && xdr_wire_void_args(&x, &none));
	pipe_message(&w, p, tag_make(0, 3, 2), body, xdr_used(&x));
	CHECK(world_quiet(&w));
}

static void sessions_share_a_link_by_their_channels(void)
{
	struct wire_session_res r;
	uint64_t first;

	begin();
	first = session_on(&p->l, 0)->id;
	p->channel = CHANNEL_MAX;
	CHECK_EQ(session(0, 0, &r), 0);
	CHECK(!r.resumed && r.id != first);
	CHECK_EQ(session_on(&p->l, 0)->id, first);
	CHECK_EQ(session_on(&p->l, CHANNEL_MAX)->id, r.id);
	ping(3, 1); /* each has its slots */
	CHECK_EQ(p->head.status, 0);
	p->channel = 0;
	ping(3, 1);
	CHECK_EQ(p->head.status, 0);
	CHECK_EQ(p->tag, tag_make(0, 3, 1));
	ping_in(r.id); /* the other one's session, although both are on this link */
	CHECK_EQ(p->head.status, ESTALE);
	p->channel = CHANNEL_MAX;
	CHECK_EQ(session(0, 0, &r), 0); /* a channel has one session at a time */
	CHECK_EQ(session_on(&p->l, CHANNEL_MAX)->id, r.id);
	CHECK_EQ(session_on(&p->l, 0)->id, first);
	link_close(&p->l, -ECONNRESET);
	CHECK(list_empty(&p->l.sessions));
	CHECK(session_find(&w.srv->sessions, first) && session_find(&w.srv->sessions, r.id));
	end();
}

static void a_session_that_moves_leaves_its_channel(void)
{
	struct pipe_link *old;
	struct wire_session_res r;

	begin();
	p->channel = 1;
	CHECK_EQ(session(0, 0, &r), 0);
	p->channel = 2;
	CHECK_EQ(session(r.id, 0, &r), 0); /* on the same link */
	CHECK(r.resumed && !p->closed);
	CHECK(!session_on(&p->l, 1) && session_on(&p->l, 0));
	CHECK_EQ(session_on(&p->l, 2)->id, r.id);
	old = p;
	p = pipe_new(&w, LINK_CLIENT);
	p->channel = 7;
	CHECK_EQ(session(r.id, 0, &r), 0);
	CHECK(r.resumed && old->closed);
	CHECK_EQ(session_on(&p->l, 7)->id, r.id);
	world_pass(&w, 40 * NSEC_PER_SEC); /* its lease ends without closing the link */
	CHECK(!session_find(&w.srv->sessions, r.id));
	CHECK(!p->closed);
	pipe_free(old);
	end();
}

/* The first session of the link must not keep a pointer to it. */
static void a_second_session_on_a_link_replaces_the_first(void)
{
	struct wire_session_res r;
	uint64_t id;

	begin();
	id = session_on(&p->l, 0)->id;
	CHECK_EQ(session(0, 0, &r), 0);
	CHECK(r.id != id && session_on(&p->l, 0)->id == r.id);
	pipe_free(p);
	world_pass(&w, NSEC_PER_SEC); /* it ends at once; the second session ends with its lease */
	CHECK(!session_find(&w.srv->sessions, id));
	CHECK(session_find(&w.srv->sessions, r.id));
	world_pass(&w, 40 * NSEC_PER_SEC);
	CHECK(!session_find(&w.srv->sessions, r.id));
	p = pipe_new(&w, LINK_CLIENT);
	end();
}

/* ---- the end ---- */

static void after_goodbye_nothing_is_taken(void)
{
	struct wire_void_args none = { 0 };
	uint64_t id;

	begin();
	id = session_on(&p->l, 0)->id;
	pipe_call(&w, p, OP_BYE, 0, 1, XDR_ANY(xdr_wire_void_args), &none);
	CHECK_EQ(p->head.status, 0);
	CHECK(session_find(&w.srv->sessions, id)); /* the record of its end is not committed yet */
	call_mkdir(1, 1, "late");
	CHECK_EQ(p->head.status, ESTALE);
	CHECK_EQ(p->head.slots, 0);
	CHECK(world_quiet(&w));
	CHECK(!session_find(&w.srv->sessions, id));
	CHECK(!session_on(&p->l, 0));
	CHECK_EQ(p->replies, p->sent);
	end();
}

static void goodbye_waits_for_what_is_in_service(void)
{
	struct wire_void_args none = { 0 };

	begin();
	call_mkdir(1, 1, "d");
	pipe_call(&w, p, OP_BYE, 0, 1, XDR_ANY(xdr_wire_void_args), &none);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->replies, p->sent);
	CHECK(!session_on(&p->l, 0));
	end();
}

static void the_end_of_a_lease_closes_files_and_settles_them(void)
{
	struct wire_open_res file;
	struct wire_extent e = { 0, 5000 };
	static const uint8_t bytes[5000];
	struct wire_write_args wr = { .list = &e, .n_list = 1, .data = { 5000, bytes } };
	struct wire_write_res written;
	struct wire_getattr_args g = { .with_layout = false };
	struct wire_getattr_res at;

	begin();
	CHECK_EQ(pipe_open(&w, p, "f", 1, OPEN_WRITE | OPEN_CREATE, &file, &arena), 0);
	wr.at.cap = file.cap;
	CHECK_EQ(pipe_do(&w, p, OP_WRITE, XDR_ANY(xdr_wire_write_args), &wr,
			 XDR_ANY(xdr_wire_write_res), &written, NULL),
		 0);
	CHECK(meta_unsettled(w.srv->meta, file.at.ino));
	world_pass(&w, 40 * NSEC_PER_SEC);
	CHECK(p->closed);
	CHECK(!meta_unsettled(w.srv->meta, file.at.ino));
	CHECK_EQ(w.srv->inodes.count, 0);
	CHECK_EQ(w.srv->opens.count, 0);
	pipe_free(p);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	g.h = (struct wire_handle){ file.at.ino, file.at.gen };
	CHECK_EQ(pipe_do(&w, p, OP_GETATTR, XDR_ANY(xdr_wire_getattr_args), &g,
			 XDR_ANY(xdr_wire_getattr_res), &at, &arena),
		 0);
	CHECK_EQ(at.at.size, 5000); /* the size came from the objects */
	end();
}

/* The answer to the first SESSION was lost, so the client asks again, with a new secret. */
static void a_session_that_is_made_again_on_its_channel_has_its_locks(void)
{
	struct wire_session_args a = { .client = wire_text("gateway"),
				       .name = { SESSION_NAME, (uint8_t *)"0123456789abcdef" },
				       .inherits = true };
	struct wire_session_res first, again;
	struct wire_lock_args lock = { .open = 1,
				       .ticket = 1,
				       .want = { .owner = 1, .last = 9, .kind = LOCK_EXCLUSIVE } };
	struct wire_open_res file;
	struct wire_lock_res got;

	begin();
	CHECK_EQ(pipe_do(&w, p, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
			 XDR_ANY(xdr_wire_session_res), &first, NULL),
		 0);
	CHECK_EQ(pipe_open(&w, p, "f", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &file, &arena), 0);
	lock.h = (struct wire_handle){ file.at.ino, file.at.gen };
	CHECK_EQ(pipe_do(&w, p, OP_LOCK, XDR_ANY(xdr_wire_lock_args), &lock,
			 XDR_ANY(xdr_wire_lock_res), &got, NULL),
		 0);
	a.inherits = false;
	a.secret[0] = 1;
	CHECK_EQ(pipe_do(&w, p, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
			 XDR_ANY(xdr_wire_session_res), &again, NULL),
		 0);
	CHECK(again.id != first.id);
	CHECK_EQ(again.inherited, 1);
	CHECK(world_quiet(&w));
	CHECK_EQ(session_on(&p->l, 0)->id, again.id);
	CHECK_EQ(session_on(&p->l, 0)->held.used[LIMIT_LOCKS], 1);
	CHECK(!session_find(&w.srv->sessions, first.id));
	end();
}

TEST_MAIN(TEST(a_malformed_message_closes_its_link_and_no_other),
	  TEST(a_request_without_a_session_is_turned_away), TEST(lies_about_slots_close_the_link),
	  TEST(what_is_for_servers_is_refused_to_clients),
	  TEST(a_change_that_is_repeated_gives_its_first_answer),
	  TEST(a_truncate_that_is_repeated_happens_once),
	  TEST(a_change_survives_a_restart_exactly_once),
	  TEST(a_start_that_takes_long_ends_no_lease),
	  TEST(a_session_is_resumed_by_its_secret_only),
	  TEST(resuming_waits_until_the_old_requests_have_ended),
	  TEST(a_second_session_on_a_link_replaces_the_first),
	  TEST(a_session_that_is_made_again_on_its_channel_has_its_locks),
	  TEST(sessions_share_a_link_by_their_channels),
	  TEST(a_session_that_moves_leaves_its_channel), TEST(after_goodbye_nothing_is_taken),
	  TEST(goodbye_waits_for_what_is_in_service),
	  TEST(the_end_of_a_lease_closes_files_and_settles_them))
