/* The identity of requests: keys of one user, root from remote hosts, state bound to a key, claims
 * after a restart, and the limits of each client. */
#include "pipe_link.h"

static struct world w;
static struct pipe_link *p;
static struct arena arena;

/* A link that counts as authenticated with the key `name` of this role. */
static struct pipe_link *link_with(const char *name, uint32_t uid, uint32_t gid)
{
	struct pipe_link *l = pipe_new(&w, LINK_CLIENT);

	strcpy(l->l.key, name);
	if (name[0])
		l->l.acts_for = (struct key_role){ .uid = uid, .n_gids = 1, .gids = { gid } };
	l->uid = uid;
	l->gid = gid;
	return l;
}

/* The same with a session. */
static struct pipe_link *client_with(const char *name, uint32_t uid, uint32_t gid)
{
	struct pipe_link *l = link_with(name, uid, gid);

	pipe_session(&w, l);
	return l;
}

static void begin(void)
{
	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	p = client_with("", 0, 0);
}

static void end(void)
{
	pipe_free(p);
	arena_destroy(&arena);
	world_end(&w);
}

static uint64_t refused(enum refusal why)
{
	return w.srv->net.refused[why];
}

/* MKDIR as this user. Returns 0 or -errno, and the attributes of the directory. */
static int mkdir_as(struct pipe_link *l, const char *path, uint32_t uid, uint32_t gid,
		    struct wire_attr *at)
{
	struct wire_mkdir_args a = { .where = pipe_place(path), .mode = 0755 };
	struct wire_made_res r = { 0 };
	int e;

	l->uid = uid;
	l->gid = gid;
	e = pipe_do(&w, l, OP_MKDIR, XDR_ANY(xdr_wire_mkdir_args), &a, XDR_ANY(xdr_wire_made_res),
		    &r, NULL);
	if (!e)
		*at = r.at;
	return e;
}

static void chmod_root(uint32_t mode)
{
	struct wire_setattr_args a = {
		{ META_ROOT_INO, META_ROOT_GEN }, SET_MODE, mode, 0, 0, 0, 0, 0
	};
	struct wire_attr_res r;

	p->uid = p->gid = 0;
	CHECK_EQ(pipe_do(&w, p, OP_SETATTR, XDR_ANY(xdr_wire_setattr_args), &a,
			 XDR_ANY(xdr_wire_attr_res), &r, NULL),
		 0);
}

static void a_key_of_one_user_is_refused_for_others(void)
{
	struct pipe_link *one;
	struct wire_attr at;

	begin();
	chmod_root(0777);
	one = client_with("one", 1000, 100);
	CHECK_EQ(mkdir_as(one, "a", 1000, 100, &at), 0);
	CHECK(at.uid == 1000 && at.gid == 100);
	CHECK_EQ(mkdir_as(one, "b", 0, 0, &at), -EPERM);
	CHECK_EQ(mkdir_as(one, "b", 1001, 100, &at), -EPERM);
	CHECK_EQ(mkdir_as(one, "b", 1000, 0, &at), -EPERM);
	CHECK_EQ(refused(REFUSED_CREDENTIAL), 3);
	CHECK_EQ(mkdir_as(one, "b", NOBODY, NOBODY, &at), 0);
	CHECK(!one->closed);
	CHECK_EQ(mkdir_as(p, "c", 7, 8, &at), 0); /* the default key may act as any user */
	CHECK_EQ(at.uid, 7);
	pipe_free(one);
	end();
}

static void groups_that_the_key_does_not_have_are_taken_away(void)
{
	uint32_t gids[] = { 0, 50, 100 };
	struct pipe_link *one;
	struct wire_attr at;

	begin();
	chmod_root(0777);
	CHECK_EQ(mkdir_as(p, "d", 7, 50, &at), 0); /* mode 0755: only the owner may add names */
	{
		struct wire_setattr_args a = { { at.ino, at.gen }, SET_MODE, 0770, 0, 0, 0, 0, 0 };
		struct wire_attr_res r;

		CHECK_EQ(pipe_do(&w, p, OP_SETATTR, XDR_ANY(xdr_wire_setattr_args), &a,
				 XDR_ANY(xdr_wire_attr_res), &r, NULL),
			 0);
	}
	p->n_gids = 3;
	p->gids = gids;
	CHECK_EQ(mkdir_as(p, "d/x", 1000, 100, &at), 0); /* any key: as a member of group 50 */
	p->n_gids = 0;
	one = client_with("one", 1000, 100);
	one->n_gids = 3;
	one->gids = gids;
	CHECK_EQ(mkdir_as(one, "d/y", 1000, 100, &at), -EACCES);
	pipe_free(one);
	end();
}

static void remote_root_is_squashed(void)
{
	static const uint8_t far[16] = { [10] = 0xff, [11] = 0xff, 198, 51, 100, 1 };
	uint32_t gids[] = { 0, 50 };
	struct wire_attr at;

	begin();
	chmod_root(0755);
	CHECK_EQ(mkdir_as(p, "a", 0, 0, &at), 0);
	p->l.from.local = false;
	memcpy(p->l.from.addr, far, sizeof(far));
	p->n_gids = 2;
	p->gids = gids;
	CHECK_EQ(mkdir_as(p, "b", 0, 0, &at), -EACCES);
	p->l.from.local = true;
	chmod_root(0777);
	p->l.from.local = false;
	CHECK_EQ(mkdir_as(p, "b", 0, 0, &at), 0);
	CHECK(at.uid == NOBODY && at.gid == NOBODY);
	CHECK_EQ(mkdir_as(p, "c", 1000, 0, &at), 0); /* the group is squashed, too */
	CHECK(at.uid == 1000 && at.gid == NOBODY);
	CHECK_EQ(ip_net_parse(&w.conf->trust[w.conf->n_trust++], "198.51.100.0/24"), 0);
	CHECK_EQ(mkdir_as(p, "d", 0, 0, &at), 0);
	CHECK(at.uid == 0 && at.gid == 0);
	CHECK_EQ(ip_net_parse(&w.conf->squash[w.conf->n_squash++], "198.51.100.1"), 0);
	CHECK_EQ(mkdir_as(p, "e", 0, 0, &at), 0);
	CHECK_EQ(at.uid, NOBODY);
	end();
}

/* ---- state that is bound to a key ---- */

static int read_with(struct pipe_link *l, const struct wire_capability *c)
{
	struct wire_extent e = { 0, 10 };
	struct wire_read_args a = { .at.cap = *c, .list = &e, .n_list = 1 };
	struct wire_read_res r;

	return pipe_do(&w, l, OP_READ, XDR_ANY(xdr_wire_read_args), &a, XDR_ANY(xdr_wire_read_res),
		       &r, NULL);
}

static void a_capability_is_good_for_its_key_only(void)
{
	struct wire_copy_piece piece = { 0, 0, 5 };
	struct pipe_link *one, *same, *other;
	struct wire_open_res r, r2;
	struct wire_copy_args a;
	struct wire_write_res done;

	begin();
	chmod_root(0777);
	one = client_with("one", 1000, 100);
	same = client_with("one", 1000, 100);
	other = client_with("two", 1001, 100);
	CHECK_EQ(pipe_open(&w, one, "f", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &r, &arena), 0);
	CHECK_EQ(read_with(other, &r.cap), -EKEYREJECTED);
	CHECK_EQ(read_with(one, &r.cap), 0); /* the capability is in the cache now */
	CHECK_EQ(read_with(same, &r.cap), 0); /* another client with the same key may use it */
	CHECK_EQ(read_with(other, &r.cap), -EKEYREJECTED);
	CHECK_EQ(read_with(p, &r.cap), -EKEYREJECTED);
	CHECK_EQ(refused(REFUSED_FORGED), 3);
	CHECK_EQ(pipe_open(&w, other, "g", 1, OPEN_WRITE | OPEN_CREATE, &r2, &arena), 0);
	a = (struct wire_copy_args){
		.at.cap = r2.cap, .from.cap = r.cap, .n_list = 1, .list = &piece
	};
	CHECK_EQ(pipe_do(&w, other, OP_COPY, XDR_ANY(xdr_wire_copy_args), &a,
			 XDR_ANY(xdr_wire_write_res), &done, NULL),
		 -EKEYREJECTED); /* a copied capability is not accepted */
	pipe_free(one);
	pipe_free(same);
	pipe_free(other);
	end();
}

static int resume(struct pipe_link *l, uint64_t id, uint8_t secret, struct wire_session_res *r)
{
	struct wire_session_args a = { .id = id, .client = wire_text("pipe") };

	memset(a.secret, secret, sizeof(a.secret));
	return pipe_do(&w, l, OP_SESSION, XDR_ANY(xdr_wire_session_args), &a,
		       XDR_ANY(xdr_wire_session_res), r, NULL);
}

static void a_session_is_resumed_with_its_key_only(void)
{
	struct pipe_link *one, *other;
	struct wire_session_res made, r;

	begin();
	one = pipe_new(&w, LINK_CLIENT);
	strcpy(one->l.key, "one");
	CHECK_EQ(resume(one, 0, 7, &made), 0);
	other = pipe_new(&w, LINK_CLIENT);
	strcpy(other->l.key, "two");
	CHECK_EQ(resume(other, made.id, 8, &r), -EACCES);
	CHECK_EQ(resume(other, made.id, 7, &r), -EACCES); /* although it knows the secret */
	CHECK_EQ(refused(REFUSED_SESSION), 2);
	CHECK(!one->closed);
	strcpy(other->l.key, "one");
	CHECK_EQ(resume(other, made.id, 7, &r), 0);
	CHECK(r.resumed && one->closed);
	pipe_free(one);
	pipe_free(other);
	end();
}

/* After a restart the server does not know which files were open: a client may claim only what it
 * could open. */
static void a_claim_after_a_restart_is_not_a_way_in(void)
{
	struct wire_session_res made, r;
	struct wire_open_res f;
	struct wire_reclaim_args claim = { .id = 5, .flags = OPEN_READ };
	struct wire_void_res none;
	struct pipe_link *one;

	begin();
	CHECK_EQ(pipe_open(&w, p, "secret", 1, OPEN_WRITE | OPEN_CREATE, &f, &arena), 0);
	{
		struct wire_setattr_args a = {
			{ f.at.ino, f.at.gen }, SET_MODE, 0600, 0, 0, 0, 0, 0
		};
		struct wire_attr_res at;

		CHECK_EQ(pipe_do(&w, p, OP_SETATTR, XDR_ANY(xdr_wire_setattr_args), &a,
				 XDR_ANY(xdr_wire_attr_res), &at, NULL),
			 0);
	}
	one = link_with("one", 1000, 100);
	CHECK_EQ(resume(one, 0, 7, &made), 0);
	pipe_free(one);
	pipe_free(p);
	server_abandon(w.srv);
	world_start_server(&w);
	one = link_with("one", 1000, 100);
	CHECK_EQ(resume(one, made.id, 7, &r), 0);
	CHECK(r.resumed);
	claim.h = (struct wire_handle){ f.at.ino, f.at.gen };
	CHECK_EQ(pipe_do(&w, one, OP_RECLAIM, XDR_ANY(xdr_wire_reclaim_args), &claim,
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 -EACCES);
	pipe_free(one);
	p = pipe_new(&w, LINK_CLIENT);
	end();
}

static void what_servers_do_is_not_for_clients(void)
{
	static uint8_t zeros[4096];
	uint64_t n = 0;

	begin();
	for (uint32_t op = 0; op < N_OPS; op++) {
		const struct op_row *row = op_row(op);

		if (!row || !(row->wire->flags & OPF_SERVERS))
			continue;
		CHECK(row->wire->args_size <= sizeof(zeros));
		CHECK_EQ(pipe_do(&w, p, op, row->wire->args, zeros, NULL, NULL, NULL), -EPERM);
		CHECK_EQ(refused(REFUSED_SERVERS_ONLY), ++n);
	}
	CHECK(n >= 2);
	end();
}

/* ---- limits ---- */

static void sessions_and_open_files_have_limits(void)
{
	struct wire_session_res r;
	struct wire_open_res f;
	struct pipe_link *l[8];

	begin();
	w.srv->net.limits.most[LIMIT_SESSIONS] = 6; /* one session exists */
	w.srv->net.limits.most_session[LIMIT_OPENS] = 3;
	w.srv->net.limits.most[LIMIT_OPENS] = 4;
	for (int i = 0; i < 8; i++) {
		l[i] = pipe_new(&w, LINK_CLIENT);
		CHECK_EQ(resume(l[i], 0, 1, &r), i < 5 ? 0 : -EUSERS);
	}
	CHECK_EQ(refused(REFUSED_LIMIT), 3);
	for (uint64_t id = 1; id <= 4; id++)
		CHECK_EQ(pipe_open(&w, p, "f", id, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &f,
				   &arena),
			 id <= 3 ? 0 : -EMFILE);
	CHECK_EQ(pipe_open(&w, p, "f", 2, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &f, &arena), 0);
	CHECK_EQ(pipe_open(&w, p, "new", 9, OPEN_WRITE | OPEN_CREATE, &f, &arena), -EMFILE);
	w.srv->net.limits.most_session[LIMIT_OPENS] = 100;
	/* the file was not created */
	CHECK_EQ(pipe_open(&w, p, "new", 9, OPEN_WRITE, &f, &arena), -ENOENT);
	CHECK_EQ(pipe_open(&w, p, "f", 4, OPEN_READ, &f, &arena), 0);
	CHECK_EQ(pipe_open(&w, l[0], "f", 1, OPEN_READ, &f, &arena), -ENFILE);
	for (int i = 0; i < 8; i++)
		pipe_free(l[i]);
	end();
}

/* A key of one user has an eighth of the sessions, so that other keys can make sessions. */
static void one_users_key_does_not_take_all_sessions(void)
{
	struct wire_session_res r;
	struct pipe_link *l[4];

	begin();
	w.srv->net.limits.most[LIMIT_SESSIONS] = 16;
	for (int i = 0; i < 4; i++) {
		l[i] = pipe_new(&w, LINK_CLIENT);
		strcpy(l[i]->l.key, i < 3 ? "one" : "two");
		l[i]->l.acts_for = (struct key_role){ .uid = 1000 };
		l[i]->uid = l[i]->gid = NOBODY;
		CHECK_EQ(resume(l[i], 0, 1, &r), i == 2 ? -EUSERS : 0);
	}
	for (int i = 0; i < 4; i++)
		pipe_free(l[i]);
	end();
}

/* Opens a file and keeps the identity of the link's following requests. */
static int open_of(struct pipe_link *l, const char *name, uint64_t id)
{
	struct wire_open_res f;

	return pipe_open(&w, l, name, id, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &f, &arena);
}

static void one_users_key_does_not_take_all_open_files(void)
{
	struct pipe_link *one, *same, *other;
	struct wire_session_res r;
	uint64_t id, limits;

	begin();
	chmod_root(0777);
	w.srv->net.limits.most[LIMIT_OPENS] = 64;
	one = client_with("one", 1000, 100);
	same = client_with("one", 1000, 100);
	other = client_with("two", 1001, 100);
	for (id = 1; id <= 5; id++)
		CHECK_EQ(open_of(one, "f", id), 0);
	for (; id <= 8; id++)
		CHECK_EQ(open_of(same, "f", id), 0);
	limits = refused(REFUSED_LIMIT);
	CHECK_EQ(open_of(one, "new", 9), -EMFILE);
	CHECK_EQ(open_of(same, "new", 9), -EMFILE);
	CHECK_EQ(refused(REFUSED_LIMIT), limits + 2);
	CHECK_EQ(open_of(one, "f", 1), 0); /* the same open again */
	CHECK_EQ(open_of(other, "g", 1), 0);
	CHECK_EQ(open_of(p, "f", 1), 0);
	CHECK_EQ(resume(one, 0, 9, &r), 0);
	world_settle(&w);
	CHECK_EQ(session_on(&same->l, 0)->held.key->used[LIMIT_OPENS], 3);
	CHECK_EQ(open_of(same, "new", 9), 0);
	pipe_free(one);
	pipe_free(same);
	pipe_free(other);
	end();
}

static int lock_of(struct pipe_link *l, const struct wire_handle *h, uint64_t at, uint32_t flags)
{
	struct wire_lock_args a = {
		.h = *h,
		.open = 1,
		.flags = flags,
		.ticket = at,
		.want = { .start = 2 * at, .last = 2 * at, .owner = 7, .kind = LOCK_EXCLUSIVE }
	};
	struct wire_lock_res r;

	return pipe_do(&w, l, OP_LOCK, XDR_ANY(xdr_wire_lock_args), &a, XDR_ANY(xdr_wire_lock_res),
		       &r, NULL);
}

static void one_users_key_does_not_take_all_locks(void)
{
	struct pipe_link *one, *same, *other;
	struct wire_handle h;
	struct wire_open_res f;

	begin();
	chmod_root(0777);
	w.srv->net.limits.most[LIMIT_LOCKS] = 32;
	one = client_with("one", 1000, 100);
	same = client_with("one", 1000, 100);
	other = client_with("two", 1000, 100);
	CHECK_EQ(pipe_open(&w, one, "f", 1, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &f, &arena), 0);
	h = (struct wire_handle){ f.at.ino, f.at.gen };
	CHECK_EQ(open_of(same, "f", 1), 0);
	CHECK_EQ(open_of(other, "f", 1), 0);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQ(lock_of(i < 2 ? one : same, &h, i, 0), 0);
	CHECK_EQ(lock_of(one, &h, 5, 0), -ENOLCK);
	CHECK_EQ(lock_of(one, &h, 5, LOCK_WAIT), -ENOLCK);
	CHECK_EQ(lock_of(other, &h, 6, 0), 0);
	CHECK_EQ(session_on(&one->l, 0)->held.key->used[LIMIT_LOCK_WAITS], 0);
	pipe_free(one);
	pipe_free(same);
	pipe_free(other);
	end();
}

static void unreported_appends_are_bounded(void)
{
	struct wire_append_args a = { .open = 1, .length = 10 };
	struct wire_appended_args done = { .open = 1, .id = 1 };
	struct wire_append_res r;
	struct wire_void_res none;
	struct wire_open_res f;
	struct pipe_link *one;

	begin();
	chmod_root(0777);
	w.srv->net.limits.most[LIMIT_APPENDS] = 32;
	one = client_with("one", 1000, 100);
	CHECK_EQ(pipe_open(&w, one, "f", 1, OPEN_WRITE | OPEN_APPEND | OPEN_CREATE, &f, &arena), 0);
	done.h = a.h = (struct wire_handle){ f.at.ino, f.at.gen };
	for (a.id = 1; a.id <= 5; a.id++)
		CHECK_EQ(pipe_do(&w, one, OP_APPEND, XDR_ANY(xdr_wire_append_args), &a,
				 XDR_ANY(xdr_wire_append_res), &r, NULL),
			 a.id <= 4 ? 0 : -ENOBUFS);
	CHECK_EQ(pipe_do(&w, one, OP_APPENDED, XDR_ANY(xdr_wire_appended_args), &done,
			 XDR_ANY(xdr_wire_void_res), &none, NULL),
		 0);
	CHECK_EQ(pipe_do(&w, one, OP_APPEND, XDR_ANY(xdr_wire_append_args), &a,
			 XDR_ANY(xdr_wire_append_res), &r, NULL),
		 0);
	pipe_free(one);
	end();
}

/* Requests of a key that wait for their data hold memory: requests of other keys are accepted,
 * those of this key are refused. */
static void memory_of_requests_is_bounded_for_a_key(void)
{
	struct wire_extent e = { 0, 64 << 20 };
	struct wire_write_args wr = { .n_list = 1,
				      .list = &e,
				      .mem = { .tag = 77, .length = 64 << 20 } };
	struct wire_mkdir_args dir = { .where = pipe_place("d"), .mode = 0755 };
	struct pipe_link *one, *other;
	struct wire_open_res f;
	uint64_t *used;
	uint32_t slot = 0;

	begin();
	chmod_root(0777);
	w.srv->net.limits.most[LIMIT_REQUEST_BYTES] = 16 * MIB; /* 2 MiB per key */
	one = client_with("one", 1000, 100);
	other = client_with("two", 1001, 100);
	CHECK_EQ(pipe_open(&w, one, "f", 1, OPEN_WRITE | OPEN_CREATE, &f, &arena), 0);
	used = &one->l.held.key->used[LIMIT_REQUEST_BYTES];
	CHECK_EQ(*used, 0);
	wr.at.cap = f.cap;
	one->mode = PIPE_DEFER;
	one->replies = 0;
	for (; slot < SESSION_SLOTS && !one->replies; slot++) {
		pipe_call(&w, one, OP_WRITE, slot, 100, XDR_ANY(xdr_wire_write_args), &wr);
		world_settle(&w);
	}
	CHECK(slot > 8 && slot < SESSION_SLOTS);
	CHECK_EQ(one->head.status, EBUSY);
	CHECK_EQ(one->head.slots, 0); /* refused: retry with the same numbers */
	CHECK_EQ(one->head.sequence, 100);
	CHECK(*used > MIB && *used <= 2 * MIB);
	CHECK(!one->closed);
	pipe_call(&w, other, OP_MKDIR, 0, 1, XDR_ANY(xdr_wire_mkdir_args), &dir);
	world_settle(&w);
	CHECK_EQ(other->replies, 2);
	CHECK_EQ(other->head.status, 0);
	CHECK_EQ(other->head.slots, SESSION_SLOTS);
	one->mode = PIPE_REFUSE;
	pipe_release(one, -ECANCELED);
	CHECK(world_quiet(&w));
	CHECK_EQ(*used, 0);
	CHECK_EQ(one->l.held.used[LIMIT_REQUEST_BYTES], 0);
	CHECK_EQ(open_of(one, "f", 2), 0); /* below the limit again */
	pipe_free(one);
	pipe_free(other);
	end();
}

/* All sessions of a key of one user share one line for buffers. */
static void one_users_key_has_one_share_of_the_buffers(void)
{
	struct pipe_link *one, *same;

	begin();
	one = client_with("one", 1000, 100);
	same = client_with("one", 1000, 100);
	CHECK(session_share(session_on(&one->l, 0), false) ==
	      session_share(session_on(&same->l, 0), false));
	CHECK(session_share(session_on(&one->l, 0), true) ==
	      session_share(session_on(&same->l, 0), true));
	CHECK(session_share(session_on(&p->l, 0), false) == &session_on(&p->l, 0)->share);
	pipe_free(one);
	pipe_free(same);
	end();
}

/* Sessions from before a restart count for their key when they are resumed. */
static void a_session_that_comes_back_counts_for_its_key(void)
{
	struct wire_session_res made, r;
	struct pipe_link *one;

	begin();
	one = link_with("one", 1000, 100);
	CHECK_EQ(resume(one, 0, 7, &made), 0);
	pipe_free(one);
	pipe_free(p);
	server_abandon(w.srv);
	world_start_server(&w);
	CHECK_EQ(w.srv->net.limits.used[LIMIT_SESSIONS], w.srv->sessions.count);
	one = link_with("one", 1000, 100);
	CHECK_EQ(resume(one, made.id, 7, &r), 0);
	CHECK(r.resumed);
	CHECK_EQ(one->l.held.key->used[LIMIT_SESSIONS], 1);
	CHECK_EQ(w.srv->net.limits.used[LIMIT_SESSIONS], w.srv->sessions.count);
	pipe_free(one);
	p = pipe_new(&w, LINK_CLIENT);
	end();
}

static void one_question_for_a_session_at_a_time(void)
{
	struct wire_session_args a = { .client = wire_text("pipe") };
	struct pipe_link *l;
	uint32_t before;

	begin();
	before = w.srv->sessions.count;
	l = pipe_new(&w, LINK_CLIENT);
	for (int i = 0; i < 10; i++)
		pipe_call(&w, l, OP_SESSION, NO_SLOT, 0, XDR_ANY(xdr_wire_session_args), &a);
	CHECK(world_quiet(&w));
	CHECK_EQ(l->replies, 10);
	CHECK_EQ(w.srv->sessions.count, before + 1);
	pipe_free(l);
	end();
}

/* ---- a newer cluster file ---- */

static void keys_of_a_newer_file_count_at_once(void)
{
	struct client_key k = { .name = "one", .loaded = true };
	struct conf newer;
	struct pipe_link *one;

	begin();
	memcpy(p->l.secret, w.client_key, KEY_BYTES);
	one = client_with("one", 1000, 100);
	k.role = one->l.acts_for;
	newer = *w.conf;
	newer.n_keys = 1;
	newer.keys = &k;
	server_reread(w.srv, &newer, w.client_key);
	CHECK(!one->closed && !p->closed);
	newer.n_keys = 0;
	server_reread(w.srv, &newer, w.client_key);
	CHECK(one->closed && !p->closed);
	CHECK_EQ(refused(REFUSED_REVOKED), 1);
	server_reread(w.srv, w.conf, w.client_key);
	pipe_free(one);
	end();
}

TEST_MAIN(TEST(a_key_of_one_user_is_refused_for_others),
	  TEST(groups_that_the_key_does_not_have_are_taken_away), TEST(remote_root_is_squashed),
	  TEST(a_capability_is_good_for_its_key_only), TEST(a_session_is_resumed_with_its_key_only),
	  TEST(a_claim_after_a_restart_is_not_a_way_in), TEST(what_servers_do_is_not_for_clients),
	  TEST(sessions_and_open_files_have_limits), TEST(one_users_key_does_not_take_all_sessions),
	  TEST(one_users_key_does_not_take_all_open_files),
	  TEST(one_users_key_does_not_take_all_locks), TEST(unreported_appends_are_bounded),
	  TEST(memory_of_requests_is_bounded_for_a_key),
	  TEST(one_users_key_has_one_share_of_the_buffers),
	  TEST(a_session_that_comes_back_counts_for_its_key),
	  TEST(one_question_for_a_session_at_a_time), TEST(keys_of_a_newer_file_count_at_once))
