/* Changes over several servers, seen by one of them: requests that wait for a held name and their
 * identity afterwards, decisions whose answers or senders are lost, and promises on names that are
 * about to change. The other server is the same server or the test. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p, *coordinator;
static struct arena arena;
static uint32_t owners[2]; /* owners of the partitions: all this server */

static const struct wire_handle root = { META_ROOT_INO, META_ROOT_GEN };

static void begin(void)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	w.srv->map.n_meta = 2;
	w.srv->map.meta = owners;
	pairs_recover(w.srv);
	p = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, p);
	coordinator = pipe_new(&w, LINK_SERVER);
	pipe_session(&w, coordinator);
	world_pass(&w, NSEC_PER_SEC); /* promises of an earlier server have expired */
}

static void end(void)
{
	pipe_free(p);
	pipe_free(coordinator);
	arena_destroy(&arena);
	world_end(&w);
}

/* ---- client operations ---- */

static int mkdir_at(const char *path, struct wire_attr *at)
{
	struct wire_mkdir_args a = { .where = pipe_place(path), .mode = 0755 };
	struct wire_made_res r = { 0 };
	int e = pipe_do(&w, p, OP_MKDIR, XDR_ANY(xdr_wire_mkdir_args), &a,
			XDR_ANY(xdr_wire_made_res), &r, NULL);

	*at = r.at;
	return e;
}

static int lookup(const char *path)
{
	struct wire_lookup_args a = { pipe_place(path) };
	struct wire_lookup_res r;

	return pipe_do(&w, p, OP_LOOKUP, XDR_ANY(xdr_wire_lookup_args), &a,
		       XDR_ANY(xdr_wire_lookup_res), &r, NULL);
}

static void rename_start(const char *from, const char *to)
{
	static uint32_t sequence;
	struct wire_rename_args a = { pipe_place(from), pipe_place(to), 0 };

	if (!session_on(&p->l, 0)->slots[0].sequence)
		sequence = 0;
	pipe_call(&w, p, OP_RENAME, 0, ++sequence, XDR_ANY(xdr_wire_rename_args), &a);
}

static void chmod_root(uint32_t mode)
{
	struct wire_setattr_args a = { root, SET_MODE, mode, 0, 0, 0, 0, 0 };
	struct wire_attr_res r;

	CHECK_EQ(pipe_do(&w, p, OP_SETATTR, XDR_ANY(xdr_wire_setattr_args), &a,
			 XDR_ANY(xdr_wire_attr_res), &r, NULL),
		 0);
}

/* ---- operations of another server ---- */

static int prepare(uint32_t kind, const char *name, const struct wire_handle *h)
{
	struct wire_record part = {
		.kind = kind, .dir = root, .name = wire_text(name), .h = *h, .mode = S_IFDIR
	};
	struct wire_prepare_args a = { .id = 77, .coordinator = 0 };
	struct wire_prepare_res r;
	uint8_t bytes[PART_MAX];
	struct xdr x;

	xdr_encoder(&x, bytes, sizeof(bytes));
	CHECK(xdr_wire_record(&x, &part));
	a.part = (struct wire_bytes){ (uint32_t)xdr_used(&x), bytes };
	return pipe_do(&w, coordinator, OP_PREPARE, XDR_ANY(xdr_wire_prepare_args), &a,
		       XDR_ANY(xdr_wire_prepare_res), &r, NULL);
}

static int finish(bool commit)
{
	struct wire_finish_args a = { 77, commit };
	struct wire_void_res r;

	return pipe_do(&w, coordinator, OP_FINISH, XDR_ANY(xdr_wire_finish_args), &a,
		       XDR_ANY(xdr_wire_void_res), &r, NULL);
}

/* ---- waiting ---- */

/* Root from a remote host is squashed to nobody, also when its request had to start again. */
static void a_parked_request_keeps_its_identity(void)
{
	static const uint8_t far[16] = { [10] = 0xff, [11] = 0xff, 198, 51, 100, 1 };
	struct wire_mkdir_args a = { .where = pipe_place("x"), .mode = 0755 };
	struct wire_handle elsewhere = { UINT64_C(1) << 48 | 5, 1 };
	unsigned before;

	begin();
	chmod_root(0755);
	CHECK_EQ(prepare(PART_ADD, "x", &elsewhere), 0);
	p->l.from.local = false;
	memcpy(p->l.from.addr, far, sizeof(far));
	before = p->replies;
	pipe_call(&w, p, OP_MKDIR, 0, 1, XDR_ANY(xdr_wire_mkdir_args), &a);
	world_settle(&w);
	CHECK_EQ(p->replies, before);
	CHECK(!list_empty(&w.srv->parked));
	CHECK_EQ(finish(false), 0);
	CHECK_EQ(p->replies, before + 1);
	CHECK_EQ(p->head.status, EACCES);
	p->l.from.local = true;
	CHECK_EQ(lookup("x"), -ENOENT);
	end();
}

static void a_listing_waits_for_a_name_that_is_about_to_come(void)
{
	struct wire_readdir_args a = { .dir = root, .max = 10 };
	struct wire_handle elsewhere = { UINT64_C(1) << 48 | 5, 1 };
	struct wire_readdir_res r;
	unsigned before;
	struct xdr x;

	begin();
	CHECK_EQ(prepare(PART_ADD, "x", &elsewhere), 0);
	before = p->replies;
	pipe_call(&w, p, OP_READDIR, 0, 1, XDR_ANY(xdr_wire_readdir_args), &a);
	world_settle(&w);
	CHECK_EQ(p->replies, before);
	CHECK_EQ(finish(true), 0);
	CHECK_EQ(p->replies, before + 1);
	CHECK_EQ(p->head.status, 0);
	xdr_decoder(&x, p->body + p->body_at, p->body_len - p->body_at, &arena);
	CHECK(xdr_wire_readdir_res(&x, &r));
	CHECK_EQ(r.n_entries, 1);
	CHECK_EQ(r.entries[0].h.ino, elsewhere.ino);
	end();
}

/* ---- decisions ---- */

static struct sreq *request(void)
{
	return session_on(&p->l, 0)->slots[0].request;
}

static bool is_in(const struct sreq *s, const char *state)
{
	return s && strcmp(s->q.ops->state_names[s->q.state], state) == 0;
}

/* Like world_turn(), but the answer to a decision arrives unreadable. */
static bool turn_and_lose_the_answer(void)
{
	bool lost = false;
	struct list *it;

	w.now += 1000;
	while ((it = list_pop(&w.jobs))) {
		struct job *j = list_entry(it, struct job, link);

		j->run(j);
		if (is_in(request(), "decided")) {
			CHECK(request()->change.answer);
			request()->change.n_answer = 0;
			lost = true;
		}
		j->done(j);
	}
	loop_run_ready(&w.loop);
	return lost;
}

/* A directory moves: no other directory may move meanwhile. The server of the root is notified, and
 * must hear the decision. */
static void a_decision_counts_when_its_answer_is_lost(void)
{
	struct wire_dirs_after after;
	struct wire_attr at;
	unsigned before;
	struct xdr x;
	uint64_t id;

	begin();
	CHECK_EQ(mkdir_at("a", &at), 0);
	CHECK_EQ(mkdir_at("b", &at), 0);
	before = p->replies;
	rename_start("a", "b/a");
	for (int i = 0; !turn_and_lose_the_answer(); i++)
		CHECK(i < WORLD_TURNS);
	id = ((struct pair_state *)request()->op)->id;
	CHECK_EQ(meta_decided(w.srv->meta, id), 0);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->replies, before + 1);
	CHECK_EQ(p->head.status, 0);
	CHECK_EQ(lookup("b/a"), 0);
	CHECK_EQ(lookup("a"), -ENOENT);
	/* all participants have received the decision */
	CHECK_EQ(meta_decided(w.srv->meta, id), -ENOENT);
	rename_start("b/a", "a");
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, 0);
	xdr_decoder(&x, p->body + p->body_at, p->body_len - p->body_at, NULL);
	CHECK(xdr_wire_dirs_after(&x, &after));
	CHECK_EQ(after.n_dirs, 0); /* another server may have changed one of the directories */
	end();
}

struct decider {
	struct req q;
	struct change change;
};

static bool decider_step(struct req *q)
{
	struct decider *d = container_of(q, struct decider, q);

	if (q->state == 0) {
		req_goto(q, 1);
		meta_submit(w.srv->meta, &d->change, q);
		return true;
	}
	req_fini(q);
	return false;
}

static const char *const decider_names[] = { "submit", "end" };
static const struct req_ops decider_ops = REQ_OPS("decider", decider_step, 1, decider_names);

/* Without memory for the task that sends a decision, the next periodic check sends it. */
static void a_decision_without_a_message_is_found(void)
{
	struct wire_decision decision = { .n_targets = 1, .targets = (uint32_t[]){ 0 } };
	struct decider d = { .change.rec = { .kind = REC_DECIDE, .pair = 99 } };
	uint8_t bytes[1024];
	struct xdr x;

	begin();
	xdr_encoder(&x, bytes, sizeof(bytes));
	CHECK(xdr_wire_decision(&x, &decision));
	d.change.rec.data = (struct wire_bytes){ (uint32_t)xdr_used(&x), bytes };
	d.change.arena = &arena;
	req_init(&d.q, &w.loop, &decider_ops, 0);
	req_run(&d.q);
	world_settle(&w);
	CHECK_EQ(d.change.res.status, 0);
	CHECK_EQ(meta_decided(w.srv->meta, 99), 0);
	world_pass(&w, 3 * NSEC_PER_SEC);
	CHECK_EQ(meta_decided(w.srv->meta, 99), -ENOENT);
	end();
}

/* ---- promises ---- */

static uint32_t lease(const char *name)
{
	struct wire_bytes b = wire_text(name);

	w.loop.now = w.now;
	return lease_grant(w.srv, 4711, META_ROOT_INO, &b);
}

/* However long the commit of the change takes. */
static void no_lease_is_given_on_what_is_being_changed(void)
{
	struct wire_setattr_args chmod = { root, SET_MODE, 0700, 0, 0, 0, 0, 0 };
	struct wire_attr at;

	begin();
	CHECK_EQ(mkdir_at("a", &at), 0);
	CHECK_EQ(mkdir_at("b", &at), 0);
	rename_start("a", "c");
	w.now += 10 * NSEC_PER_SEC;
	CHECK_EQ(lease("a"), 0);
	CHECK_EQ(lease("c"), 0);
	CHECK(lease("b") > 0);
	CHECK(world_quiet(&w));
	CHECK_EQ(p->head.status, 0);
	CHECK(lease("c") > 0);
	world_pass(&w, NSEC_PER_SEC);
	pipe_call(&w, p, OP_SETATTR, 1, 1, XDR_ANY(xdr_wire_setattr_args), &chmod);
	w.now += 10 * NSEC_PER_SEC;
	CHECK_EQ(lease("b"), 0);
	CHECK(world_quiet(&w));
	CHECK(lease("b") > 0);
	end();
}

/* A waiting change proceeds before new promises are given. */
static void a_change_waits_for_leases_and_keeps_new_ones_away(void)
{
	struct wire_attr at;
	unsigned before;

	begin();
	CHECK_EQ(mkdir_at("a", &at), 0);
	CHECK(lease("a") > 0);
	before = p->replies;
	rename_start("a", "c");
	world_settle(&w);
	CHECK_EQ(p->replies, before);
	CHECK_EQ(lease("a"), 0);
	world_pass(&w, NSEC_PER_SEC);
	CHECK_EQ(p->replies, before + 1);
	CHECK_EQ(p->head.status, 0);
	for (int i = 0; i < LEASES; i++)
		CHECK_EQ(w.srv->leases[i].changes, 0);
	end();
}

TEST_MAIN(TEST(a_parked_request_keeps_its_identity),
	  TEST(a_listing_waits_for_a_name_that_is_about_to_come),
	  TEST(a_decision_counts_when_its_answer_is_lost),
	  TEST(a_decision_without_a_message_is_found),
	  TEST(no_lease_is_given_on_what_is_being_changed),
	  TEST(a_change_waits_for_leases_and_keeps_new_ones_away))
