/* Locks of sessions: waits that outlive their requests, the limit on parked requests, fences after
 * the death of a holder, grace period and claims after a restart, and false claims. */
#include "pipe_link.h"

enum { A, B, LINKS };

static struct world w;
static struct pipe_link *p[LINKS];
static struct arena arena;
static struct wire_open_res file[LINKS];
static uint32_t next_sequence[LINKS][SESSION_SLOTS];

static void begin(void)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	memset(next_sequence, 0, sizeof(next_sequence));
	for (int i = 0; i < LINKS; i++) {
		p[i] = pipe_new(&w, LINK_CLIENT);
		pipe_session(&w, p[i]);
		CHECK_EQ(pipe_open(&w, p[i], "f", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &file[i],
				   &arena),
			 0);
	}
}

static void end(void)
{
	for (int i = 0; i < LINKS; i++)
		pipe_free(p[i]);
	CHECK(list_empty(&w.srv->locks.all) || w.srv->sessions.count);
	arena_destroy(&arena);
	world_end(&w);
}

static struct wire_lock_args wish(uint64_t owner, uint64_t byte, uint32_t kind, uint32_t flags)
{
	return (struct wire_lock_args){
		.h = { file[A].at.ino, file[A].at.gen },
		.open = 1,
		.ticket = owner,
		.want = { .owner = owner, .start = byte, .last = byte, .kind = kind },
		.flags = flags
	};
}

static struct wire_lock_res res;

/* Sends a request on a slot without waiting for the reply. */
static void ask(int i, uint32_t slot, struct wire_lock_args a)
{
	pipe_call(&w, p[i], OP_LOCK, slot, ++next_sequence[i][slot], XDR_ANY(xdr_wire_lock_args),
		  &a);
	world_settle(&w);
}

/* The status of the last reply on this link: 0 or -errno; 1 means ask again. */
static int said(int i)
{
	struct xdr x;

	if (p[i]->head.status)
		return -p[i]->head.status;
	xdr_decoder(&x, p[i]->body + p[i]->body_at, p[i]->body_len - p[i]->body_at, NULL);
	CHECK(xdr_wire_lock_res(&x, &res) && !xdr_left(&x));
	return res.again;
}

/* Sends a request. Returns the immediate reply, or -EINPROGRESS if there is none. */
static int lock(int i, struct wire_lock_args a)
{
	unsigned before = p[i]->replies;

	ask(i, 40 + (uint32_t)a.ticket % 16, a);
	return p[i]->replies == before ? -EINPROGRESS : said(i);
}

static int write_with(int i, const struct wire_capability *cap)
{
	struct wire_extent e = { 0, 5 };
	struct wire_write_args a = {
		.at.cap = *cap, .list = &e, .n_list = 1, .data = wire_text("hello")
	};
	struct wire_write_res r;

	return pipe_do(&w, p[i], OP_WRITE, XDR_ANY(xdr_wire_write_args), &a,
		       XDR_ANY(xdr_wire_write_res), &r, NULL);
}

static int fresh_cap(int i, struct wire_cap_res *r)
{
	struct wire_cap_args a = { { file[i].at.ino, file[i].at.gen }, OPEN_READ | OPEN_WRITE };

	return pipe_do(&w, p[i], OP_CAP, XDR_ANY(xdr_wire_cap_args), &a, XDR_ANY(xdr_wire_cap_res),
		       r, &arena);
}

/* ---- waits ---- */

static void a_parked_request_is_answered_by_the_grant(void)
{
	unsigned before;

	begin();
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_SHARED, 0)), -EAGAIN);
	before = p[B]->replies;
	ask(B, 0, wish(2, 0, LOCK_SHARED, LOCK_WAIT));
	CHECK_EQ(p[B]->replies, before);
	CHECK_EQ(session_on(&p[B]->l, 0)->held.used[LIMIT_LOCK_WAITS], 1);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_NOTHING, 0)), 0);
	CHECK_EQ(p[B]->replies, before + 1);
	CHECK_EQ(said(B), 0);
	CHECK_EQ(session_on(&p[B]->l, 0)->held.used[LIMIT_LOCK_WAITS], 0);
	CHECK_EQ(session_on(&p[B]->l, 0)->held.used[LIMIT_LOCKS], 1);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), -EAGAIN);
	end();
}

static void a_place_in_the_line_outlives_its_request(void)
{
	begin();
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT)), -EINPROGRESS);
	world_pass(&w, 2 * NSEC_PER_SEC);
	CHECK_EQ(said(B), 1);
	CHECK_EQ(res.pause_ms, 0);
	CHECK_EQ(session_on(&p[B]->l, 0)->held.used[LIMIT_LOCK_WAITS], 1);
	/* queued behind B's wait */
	CHECK_EQ(lock(A, wish(3, 0, LOCK_EXCLUSIVE, LOCK_WAIT)), -EINPROGRESS);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_NOTHING, 0)), 0);
	CHECK_EQ(session_on(&p[A]->l, 0)->held.used[LIMIT_LOCKS], 0);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT)), 0);
	end();
}

static void a_place_without_requests_expires(void)
{
	unsigned before;

	begin();
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT)), -EINPROGRESS);
	world_pass(&w, 2 * NSEC_PER_SEC);
	CHECK_EQ(said(B), 1);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_NOTHING, 0)), 0);
	world_pass(&w, 4 * NSEC_PER_SEC);
	before = p[A]->replies;
	/* B may still ask again */
	CHECK_EQ(lock(A, wish(3, 0, LOCK_EXCLUSIVE, LOCK_WAIT)), -EINPROGRESS);
	world_pass(&w, 1500 * NSEC_PER_MSEC);
	CHECK_EQ(p[A]->replies, before + 1);
	CHECK_EQ(said(A), 0);
	/* queued at the end again */
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT)), -EINPROGRESS);
	end();
}

static void few_requests_of_a_session_are_parked_the_oldest_first(void)
{
	unsigned before;

	begin();
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	before = p[B]->replies;
	for (uint32_t i = 0; i < 10; i++)
		ask(B, i, wish(10 + i, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	CHECK_EQ(p[B]->replies, before + 6);
	CHECK_EQ(said(B), 1);
	CHECK_EQ(res.pause_ms, 10 + 10 * 10);
	CHECK_EQ(session_on(&p[B]->l, 0)->in_service, 4);
	ask(B, 20, wish(10, 0, LOCK_EXCLUSIVE, LOCK_WAIT)); /* repeats the first wait */
	CHECK_EQ(session_on(&p[B]->l, 0)->in_service, 4);
	world_pass(&w, 3 * NSEC_PER_SEC);
	ask(B, 0, wish(19, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	ask(B, 1, wish(18, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	for (uint32_t i = 0; i < 4; i++)
		ask(B, 2 + i, wish(10 + i, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	CHECK_EQ(session_on(&p[B]->l, 0)->in_service,
		 4); /* these replaced the younger parked requests */
	CHECK_EQ(session_on(&p[B]->l, 0)->slots[0].request != NULL, 0);
	CHECK_EQ(session_on(&p[B]->l, 0)->slots[1].request != NULL, 0);
	CHECK_EQ(session_on(&p[B]->l, 0)->held.used[LIMIT_LOCK_WAITS], 10);
	end();
}

static void a_broken_link_ends_requests_and_keeps_places(void)
{
	struct session *ss;

	begin();
	ss = session_on(&p[B]->l, 0);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	ask(B, 0, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	CHECK_EQ(ss->in_service, 1);
	link_close(&p[B]->l, -ECONNRESET);
	world_settle(&w);
	CHECK_EQ(ss->in_service, 0);
	CHECK_EQ(ss->held.used[LIMIT_LOCK_WAITS], 1);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_NOTHING, 0)), 0);
	CHECK_EQ(ss->held.used[LIMIT_LOCKS], 0); /* the session has no link to answer on */
	/* its place in the line is kept */
	CHECK_EQ(lock(A, wish(1, 0, LOCK_SHARED, LOCK_WAIT)), -EINPROGRESS);
	end();
}

static void a_wait_is_cancelled_once_and_hurried_at_will(void)
{
	unsigned before;

	begin();
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	ask(B, 0, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	before = p[B]->replies;
	srv_cancel(w.srv, &p[B]->l, UINT64_C(0) << 32 | 1);
	world_settle(&w);
	CHECK_EQ(p[B]->replies, before + 1);
	CHECK_EQ(said(B), 1);
	ask(B, 0, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	/* the answer to the wait */
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, LOCK_CANCEL)), -EINTR);
	CHECK_EQ(p[B]->replies, before + 3);
	CHECK_EQ(session_on(&p[B]->l, 0)->held.used[LIMIT_LOCK_WAITS], 0);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, LOCK_CANCEL)), 0);
	CHECK_EQ(w.srv->in_service, 0);
	end();
}

static void a_close_ends_locks_and_waits(void)
{
	struct wire_close_args a = { .id = 1 };
	unsigned before;

	begin();
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(lock(B, wish(2, 5, LOCK_EXCLUSIVE, 0)), 0);
	ask(B, 0, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	ask(A, 0, wish(3, 5, LOCK_EXCLUSIVE, LOCK_WAIT));
	a.h = (struct wire_handle){ file[A].at.ino, file[A].at.gen };
	before = p[B]->replies;
	pipe_call(&w, p[B], OP_CLOSE, 60, 1, XDR_ANY(xdr_wire_close_args), &a);
	world_settle(&w);
	CHECK_EQ(p[B]->replies, before + 2);
	CHECK_EQ(session_on(&p[B]->l, 0)->held.used[LIMIT_LOCK_WAITS] +
			 session_on(&p[B]->l, 0)->held.used[LIMIT_LOCKS],
		 0);
	CHECK_EQ(said(A), 0); /* the waiting owner has the lock, without a fence */
	CHECK_EQ(lock(B, wish(2, 7, LOCK_EXCLUSIVE, 0)), -EBADF);
	end();
}

static void liars_get_errors(void)
{
	struct wire_lock_args a;

	begin();
	a = wish(1, 0, 3, 0);
	CHECK_EQ(lock(A, a), -EINVAL);
	a = wish(1, 5, LOCK_SHARED, 0);
	a.want.last = 4;
	CHECK_EQ(lock(A, a), -EINVAL);
	a = wish(1, 5, LOCK_SHARED, 0);
	a.open = 2;
	CHECK_EQ(lock(A, a), -EBADF);
	a = wish(1, 5, LOCK_SHARED, 0);
	a.h.gen++;
	CHECK_EQ(lock(A, a), -EBADF);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	ask(B, 0, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	a = wish(2, 1, LOCK_EXCLUSIVE, LOCK_WAIT); /* the same ticket for another lock */
	CHECK_EQ(lock(B, a), -EINVAL);
	for (uint32_t i = 0; i < 3; i++) /* the same lock, in concurrent requests */
		ask(B, 1 + i, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	CHECK_EQ(session_on(&p[B]->l, 0)->in_service, 1);
	end();
}

/* An unlock in the middle of a range splits it: the second part counts as one more lock. */
static void unlocks_that_split_are_within_the_limit(void)
{
	enum { MAX_LOCKS = 8192 };
	struct wire_lock_args a;
	int r = 0;

	begin();
	a = wish(1, 0, LOCK_EXCLUSIVE, 0);
	a.want.last = UINT64_MAX;
	CHECK_EQ(lock(A, a), 0);
	for (uint64_t i = 1; !r && i <= 2 * MAX_LOCKS; i++)
		r = lock(A, wish(1, 2 * i, LOCK_NOTHING, 0));
	CHECK_EQ(r, -ENOLCK);
	CHECK_EQ(session_on(&p[A]->l, 0)->held.used[LIMIT_LOCKS], MAX_LOCKS);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_SHARED, 0)), -ENOLCK);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_NOTHING, 0)), 0); /* at the edge of a range, so no split */
	a.want.kind = LOCK_NOTHING;
	CHECK_EQ(lock(A, a), 0);
	CHECK_EQ(session_on(&p[A]->l, 0)->held.used[LIMIT_LOCKS], 0);
	end();
}

/* ---- the death of a holder ---- */

static void a_dead_holder_is_fenced_before_the_next_is_served(void)
{
	struct session *dead;
	struct wire_cap_res cap;
	struct wire_getattr_args g = { .with_layout = false };
	struct wire_getattr_res at;
	unsigned before;
	uint64_t ino;

	begin();
	ino = file[A].at.ino;
	dead = session_on(&p[A]->l, 0);
	CHECK_EQ(write_with(A, &file[A].cap), 0);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	before = p[B]->replies;
	ask(B, 0, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	link_close(&p[A]->l, -ECONNRESET);
	task_end_session(w.srv, dead);
	for (int i = 0; p[B]->replies == before; i++) {
		CHECK(i < WORLD_TURNS);
		world_turn(&w);
	}
	CHECK_EQ(said(B), 0);
	CHECK(disk_floor(w.srv->disk, ino) > file[A].cap.epoch);
	world_settle(&w);
	/* refuses writes that were in flight */
	CHECK_EQ(write_with(B, &file[A].cap), -EKEYEXPIRED);
	CHECK_EQ(write_with(B, &file[B].cap), -EKEYEXPIRED);
	CHECK_EQ(fresh_cap(B, &cap), 0);
	CHECK_EQ(write_with(B, &cap.cap), 0);
	CHECK(meta_unsettled(w.srv->meta, ino)); /* B is still writing */
	g.h = (struct wire_handle){ ino, file[A].at.gen };
	CHECK_EQ(pipe_do(&w, p[B], OP_GETATTR, XDR_ANY(xdr_wire_getattr_args), &g,
			 XDR_ANY(xdr_wire_getattr_res), &at, &arena),
		 0);
	CHECK_EQ(at.at.size, 5); /* the size from the dead writer's data is recorded */
	CHECK(!inode_find(w.srv, ino)->orphaned);
	end();
}

/* A reader leaves no writes in flight; neither does a client that closes its files and says
 * goodbye. */
static void a_dead_reader_needs_no_fence(void)
{
	struct wire_open_res r;
	struct pipe_link *c;
	struct session *dead;
	struct wire_lock_args a;

	begin();
	c = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, c);
	dead = session_on(&c->l, 0);
	CHECK_EQ(pipe_open(&w, c, "f", 1, OPEN_READ, &r, &arena), 0);
	a = wish(9, 0, LOCK_SHARED, 0);
	CHECK_EQ(pipe_do(&w, c, OP_LOCK, XDR_ANY(xdr_wire_lock_args), &a,
			 XDR_ANY(xdr_wire_lock_res), &res, NULL),
		 0);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, 0)), -EAGAIN);
	link_close(&c->l, -ECONNRESET);
	task_end_session(w.srv, dead);
	world_settle(&w);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(disk_floor(w.srv->disk, file[B].at.ino), 0);
	CHECK_EQ(write_with(B, &file[B].cap), 0);
	pipe_free(c);
	end();
}

/* ---- restarts ---- */

/* Kills and restarts the server, then resumes both sessions with the secret of pipe_session(). */
static void crash(void)
{
	uint64_t ids[LINKS];

	for (int i = 0; i < LINKS; i++)
		ids[i] = session_on(&p[i]->l, 0)->id;
	for (int i = 0; i < LINKS; i++)
		pipe_free(p[i]);
	world_settle(&w);
	list_init(&w.jobs);
	server_abandon(w.srv);
	world_start_server(&w);
	for (int i = 0; i < LINKS; i++) {
		struct wire_session_args a = { .id = ids[i], .client = wire_text("pipe") };
		struct wire_session_res r;

		p[i] = pipe_new(&w, LINK_CLIENT);
		memset(next_sequence[i], 0, sizeof(next_sequence[i]));
		CHECK_EQ(pipe_do(&w, p[i], OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
				 XDR_ANY(xdr_wire_session_res), &r, NULL),
			 0);
		CHECK(r.resumed);
	}
}

static int claim(int i, uint32_t n, struct wire_lock *locks)
{
	struct wire_reclaim_args a = { .h = { file[i].at.ino, file[i].at.gen },
				       .id = 1,
				       .flags = OPEN_READ | OPEN_WRITE,
				       .n_locks = n,
				       .locks = locks };
	struct wire_void_res none;

	return pipe_do(&w, p[i], OP_RECLAIM, XDR_ANY(xdr_wire_reclaim_args), &a,
		       XDR_ANY(xdr_wire_void_res), &none, NULL);
}

static void locks_are_claimed_in_the_grace_period_only(void)
{
	struct wire_lock mine = { .owner = 1, .last = 9, .kind = LOCK_EXCLUSIVE };
	struct wire_lock his = { .owner = 2, .start = 10, .last = 19, .kind = LOCK_SHARED };

	begin();
	crash();
	CHECK(w.srv->in_grace);
	CHECK_EQ(claim(A, 1, &mine), 0);
	CHECK_EQ(claim(A, 1, &mine), 0); /* a repeated claim */
	CHECK_EQ(session_on(&p[A]->l, 0)->held.used[LIMIT_LOCKS], 1);
	CHECK_EQ(lock(A, wish(1, 100, LOCK_EXCLUSIVE, 0)), 1); /* new locks must wait */
	CHECK_EQ(res.pause_ms, 100);
	CHECK_EQ(lock(A, wish(1, 3, LOCK_NOTHING, 0)), 0); /* unlocks need not */
	CHECK_EQ(claim(A, 1, &mine), -ESTALE); /* A has ended its claims */
	CHECK_EQ(claim(B, 1, &mine), -EAGAIN); /* a false claim, or the lock was lost */
	CHECK_EQ(claim(B, 1, &his), 0);
	CHECK(w.srv->in_grace);
	/* B was the last client with claims missing */
	CHECK_EQ(lock(B, wish(2, 10, LOCK_NOTHING, 0)), 0);
	CHECK(!w.srv->in_grace);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_SHARED, 0)), -EAGAIN);
	CHECK_EQ(lock(B, wish(2, 3, LOCK_EXCLUSIVE, 0)), 1); /* needs a fence first */
	CHECK_EQ(lock(B, wish(2, 3, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(claim(B, 1, &his), -ESTALE);
	end();
}

/* A client that did not return may have held any lock: locks of files with writers wait for a
 * fence. */
static void after_a_restart_the_missing_are_fenced(void)
{
	uint64_t epoch;
	int r;

	begin();
	epoch = file[A].cap.epoch;
	crash();
	CHECK_EQ(claim(B, 0, NULL), 0);
	link_close(&p[A]->l, -ECONNRESET); /* A does not return and loses its lock */
	for (int i = 0; i < 14; i++) { /* B renews its lease */
		r = lock(B, wish(2, 0, LOCK_NOTHING, 0));
		CHECK_EQ(r, 0);
		world_pass(&w, 2 * NSEC_PER_SEC);
	}
	CHECK_EQ(lock(B, wish(2, 0, LOCK_EXCLUSIVE, 0)), 1);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(lock(B, wish(2, 0, LOCK_NOTHING, 0)), 0);
		world_pass(&w, 1 * NSEC_PER_SEC);
	}
	CHECK(!w.srv->in_grace);
	ask(B, 0, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	world_settle(&w);
	CHECK_EQ(said(B), 0);
	CHECK(disk_floor(w.srv->disk, file[A].at.ino) > epoch);
	end();
}

static void a_crash_with_waits_leaves_nothing(void)
{
	begin();
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	ask(B, 0, wish(2, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	ask(B, 1, wish(3, 0, LOCK_EXCLUSIVE, LOCK_WAIT));
	crash();
	CHECK_EQ(w.srv->in_service, 0);
	end();
}

/* ---- sessions with a name ---- */

/* Another link of A, the next process, with a session of that name; it opens the file. */
static struct pipe_link *next_process(const char *name, bool inherits)
{
	struct wire_session_args a = { .client = wire_text("pipe"),
				       .name = { SESSION_NAME, (const uint8_t *)name },
				       .inherits = inherits };
	struct pipe_link *next = pipe_new(&w, LINK_CLIENT);
	struct wire_session_res r;

	CHECK_EQ(pipe_do(&w, next, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
			 XDR_ANY(xdr_wire_session_res), &r, NULL),
		 0);
	CHECK_EQ(pipe_open(&w, next, "f", 1, OPEN_READ | OPEN_WRITE, &file[A], &arena), 0);
	return next;
}

/* Replaces link A. */
static void go_on(const char *name, bool inherits)
{
	struct pipe_link *next = next_process(name, inherits);

	pipe_free(p[A]);
	p[A] = next;
	memset(next_sequence[A], 0, sizeof(next_sequence[A]));
}

/* The same as lock(), after the fence against the writers of the older session. */
static int insist(int i, struct wire_lock_args a)
{
	int r = lock(i, a);

	for (int n = 0; n < 100 && r == 1; n++) {
		world_pass(&w, 100 * NSEC_PER_MSEC);
		r = lock(i, a);
	}
	return r;
}

static void locks_pass_to_the_next_session_of_the_name(void)
{
	struct wire_void_args none = { 0 };

	begin();
	go_on("0123456789abcdef", true);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(lock(A, wish(1, 7, LOCK_EXCLUSIVE, 0)), 0);
	for (int i = 0; i < 3; i++) { /* also what was passed before */
		go_on("0123456789abcdef", true);
		world_settle(&w);
		CHECK_EQ(lock(B, wish(2, 0, LOCK_SHARED, 0)), -EAGAIN);
	}
	CHECK_EQ(w.srv->sessions.count, LINKS + 1); /* and the first of A, which has no name */
	/* the owner has its lock again, and can end what it did not take again */
	CHECK_EQ(insist(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(lock(A, wish(1, 7, LOCK_NOTHING, 0)), 0);
	CHECK_EQ(lock(B, wish(2, 7, LOCK_SHARED, 0)), 0);
	CHECK_EQ(lock(A, wish(1, 9, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(session_on(&p[A]->l, 0)->held.used[LIMIT_LOCKS], 2);
	go_on("0123456789abcdef", true);
	world_settle(&w);
	CHECK_EQ(lock(B, wish(2, 9, LOCK_SHARED, 0)), -EAGAIN);
	CHECK_EQ(pipe_do(&w, p[A], OP_BYE, XDR_ANY(xdr_wire_void_args), &none,
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 0);
	world_settle(&w);
	CHECK_EQ(insist(B, wish(2, 9, LOCK_SHARED, 0)), 0);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_SHARED, 0)), 0);
	end();
}

static void a_wait_gets_a_lock_that_was_passed(void)
{
	begin();
	go_on("0123456789abcdef", true);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	CHECK_EQ(lock(B, wish(2, 0, LOCK_SHARED, LOCK_WAIT)), -EINPROGRESS);
	go_on("0123456789abcdef", true);
	world_settle(&w);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_NOTHING, 0)), 0);
	for (int n = 0; n < 100 && lock(B, wish(2, 0, LOCK_SHARED, LOCK_WAIT)); n++)
		world_pass(&w, 100 * NSEC_PER_MSEC);
	CHECK_EQ(said(B), 0);
	end();
}

static void others_inherit_nothing(void)
{
	struct pipe_link *other[3];
	uint8_t unlike[SESSION_NAME] = { 1 };

	begin();
	go_on("0123456789abcdef", true);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	other[0] = next_process((const char *)unlike, true);
	other[1] = next_process("0123456789abcdef", false);
	other[2] = next_process("0123456789abcde", true); /* ends with its NUL */
	for (size_t i = 0; i < ARRAY_LEN(other); i++) {
		struct wire_lock_args a = wish(1, 0, LOCK_EXCLUSIVE, 0);

		CHECK_EQ(pipe_do(&w, other[i], OP_LOCK, XDR_ANY(xdr_wire_lock_args), &a,
				 XDR_ANY(xdr_wire_lock_res), &res, NULL),
			 -EAGAIN);
	}
	CHECK_EQ(lock(A, wish(1, 0, LOCK_NOTHING, 0)), 0);
	for (size_t i = 0; i < ARRAY_LEN(other); i++)
		pipe_free(other[i]);
	end();
}

static void a_crash_with_passed_locks_leaves_nothing(void)
{
	begin();
	go_on("0123456789abcdef", true);
	CHECK_EQ(lock(A, wish(1, 0, LOCK_EXCLUSIVE, 0)), 0);
	go_on("0123456789abcdef", true);
	crash();
	end();
}

TEST_MAIN(TEST(a_parked_request_is_answered_by_the_grant),
	  TEST(a_place_in_the_line_outlives_its_request), TEST(a_place_without_requests_expires),
	  TEST(few_requests_of_a_session_are_parked_the_oldest_first),
	  TEST(a_broken_link_ends_requests_and_keeps_places),
	  TEST(a_wait_is_cancelled_once_and_hurried_at_will), TEST(a_close_ends_locks_and_waits),
	  TEST(liars_get_errors), TEST(unlocks_that_split_are_within_the_limit),
	  TEST(a_dead_holder_is_fenced_before_the_next_is_served),
	  TEST(a_dead_reader_needs_no_fence), TEST(locks_are_claimed_in_the_grace_period_only),
	  TEST(after_a_restart_the_missing_are_fenced), TEST(a_crash_with_waits_leaves_nothing),
	  TEST(locks_pass_to_the_next_session_of_the_name),
	  TEST(a_wait_gets_a_lock_that_was_passed), TEST(others_inherit_nothing),
	  TEST(a_crash_with_passed_locks_leaves_nothing))
