/* Every operation of the table, sent with the slot and sequence of an earlier request: an identical
 * request gets the same reply or is executed again without harm, any other request is refused. Also
 * flag values that no client sends.
 *
 * Each operation has a trial: its arguments, and other arguments for the same operation. A new row
 * of op_table.c needs a trial, too. */
#include "pipe_link.h"

#define SLOT 0
#define SEQUENCE 7
#define OPS 128
#define ARGS_MAX 1024

enum caller { USER, ROOT, SERVER, CALLERS };

enum {
	STORED = 1, /* the reply is stored in the transaction of the change */
	ANY_STATUS = 2, /* may fail, because the test lacks what it needs */
	GOODBYE = 4, /* the operation ends the session */
};

struct trial {
	size_t size;
	unsigned flags;
	_Alignas(16) uint8_t args[2][ARGS_MAX]; /* arguments of the request; other arguments */
};

struct answer {
	struct wire_rep_head head;
	uint32_t len;
	uint8_t body[MSG_MAX];
};

static struct world w;
static struct pipe_link *me, *admin;
/* the link that makes files: the caller's, except for server sessions */
static struct pipe_link *maker;
static struct arena arena;
static struct trial trials[OPS];
/* two files of the caller; one of root, mode 0600 */
static struct wire_open_res file, other, theirs;
static struct wire_capability no_right; /* for `theirs`, as the caller gets it */
static enum caller caller;

static const struct wire_handle root = { META_ROOT_INO, META_ROOT_GEN };

static struct wire_handle handle_of(const struct wire_open_res *r)
{
	return (struct wire_handle){ r->at.ino, r->at.gen };
}

/* ---- the world ---- */

static void login(void)
{
	me = pipe_new(&w, caller == SERVER ? LINK_SERVER : LINK_CLIENT);
	if (caller != USER)
		return;
	strcpy(me->l.key, "user");
	me->l.acts_for = (struct key_role){ .uid = 1000, .n_gids = 1, .gids = { 1000 } };
	me->uid = me->gid = 1000;
}

static int run(struct pipe_link *l, uint32_t op, void *args, void *res)
{
	const struct op_row *row = op_row(op);

	return pipe_do(&w, l, op, row->wire->args, args, row->wire->res, res, &arena);
}

static void write_text(struct pipe_link *l, const struct wire_open_res *f)
{
	struct wire_extent e = { 0, 5 };
	struct wire_write_args a = {
		.at.cap = f->cap, .n_list = 1, .list = &e, .data = wire_text("hello")
	};
	struct wire_write_res r;

	CHECK_EQ(run(l, OP_WRITE, &a, &r), 0);
}

static void make_file(const char *path, uint64_t id, struct wire_open_res *f)
{
	CHECK_EQ(pipe_open(&w, maker, path, id, OPEN_READ | OPEN_WRITE | OPEN_CREATE, f, &arena),
		 0);
	write_text(maker, f);
}

static void make_names(void)
{
	struct wire_mkdir_args dir = { .where = pipe_place("dir"), .mode = 0755 };
	struct wire_symlink_args link = { .where = pipe_place("sym"), .target = wire_text("dir") };
	struct wire_setxattr_args xattr;
	struct wire_open_res unused;
	struct wire_made_res made;
	struct wire_void_res none;

	make_file("file", 1, &file);
	make_file("other", 2, &other);
	make_file("from", 3, &unused);
	make_file("gone", 4, &unused);
	CHECK_EQ(run(maker, OP_MKDIR, &dir, &made), 0);
	dir.where = pipe_place("dir2");
	CHECK_EQ(run(maker, OP_MKDIR, &dir, &made), 0);
	CHECK_EQ(run(maker, OP_SYMLINK, &link, &made), 0);
	xattr = (struct wire_setxattr_args){ handle_of(&file), wire_text("user.x"), wire_text("1"),
					     0 };
	CHECK_EQ(run(maker, OP_SETXATTR, &xattr, &none), 0);
	xattr.name = wire_text("user.y");
	CHECK_EQ(run(maker, OP_SETXATTR, &xattr, &none), 0);
}

static void set_mode(const struct wire_handle *h, uint32_t mode)
{
	struct wire_setattr_args a = { .h = *h, .which = SET_MODE, .mode = mode };
	struct wire_attr_res r;

	CHECK_EQ(run(admin, OP_SETATTR, &a, &r), 0);
}

static void begin(enum caller who)
{
	struct wire_getattr_args look = { .with_layout = true };
	struct wire_getattr_res seen;
	struct wire_handle h;

	caller = who;
	log_set_level(LOG_ERROR);
	world_start(&w);
	arena_init(&arena, 0);
	admin = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, admin);
	set_mode(&root, 0777);
	CHECK_EQ(pipe_open(&w, admin, "theirs", 100, OPEN_READ | OPEN_WRITE | OPEN_CREATE, &theirs,
			   &arena),
		 0);
	write_text(admin, &theirs);
	h = handle_of(&theirs);
	set_mode(&h, 0600);
	login();
	pipe_session(&w, me);
	maker = who == SERVER ? admin : me;
	make_names();
	look.h = h;
	CHECK_EQ(run(me, OP_GETATTR, &look, &seen), 0);
	no_right = seen.cap;
}

static void end(void)
{
	pipe_free(me);
	pipe_free(admin);
	arena_destroy(&arena);
	world_end(&w);
}

static void resume(uint64_t id, bool must)
{
	struct wire_session_args a = { .id = id, .client = wire_text("pipe") };
	struct wire_session_res r;

	login();
	CHECK_EQ(run(me, OP_SESSION, &a, &r), 0);
	CHECK(r.resumed || !must);
}

static void new_link(bool must)
{
	uint64_t id = session_on(&me->l, 0) ? session_on(&me->l, 0)->id : 1;

	pipe_free(me);
	world_settle(&w);
	resume(id, must);
}

static void restart(bool must)
{
	uint64_t id = session_on(&me->l, 0) ? session_on(&me->l, 0)->id : 1;

	pipe_free(me);
	pipe_free(admin);
	world_settle(&w);
	list_init(&w.jobs);
	server_abandon(w.srv);
	world_start_server(&w);
	admin = pipe_new(&w, LINK_CLIENT);
	pipe_session(&w, admin);
	resume(id, must);
}

/* ---- what is stored ---- */

static uint64_t hash_rows(uint64_t h, uint32_t kind)
{
	struct wire_scan_args a = { .kind = kind, .max = SCAN_MAX };
	struct wire_scan_res r;

	CHECK_EQ(run(admin, kind == SCAN_OBJECT ? OP_OBJECTS : OP_SCAN, &a, &r), 0);
	CHECK(r.end);
	return hash_bytes(admin->body + admin->body_at, admin->body_len - admin->body_at, h);
}

/* Hashes the bytes of an object, with a capability as for root. */
static uint64_t hash_object(uint64_t h, const struct wire_open_res *f)
{
	struct wire_extent e = { 0, 100 };
	struct wire_read_args a = { .at.cap = f->cap, .n_list = 1, .list = &e };
	struct wire_read_res r = { 0 };
	int error;

	a.at.cap.epoch = MAX(a.at.cap.epoch, disk_floor(w.srv->disk, f->at.ino));
	a.at.cap.expires = world_wall(&w.env) + CAP_LIFE_NS;
	cap_sign(w.srv, "", &a.at.cap);
	error = run(admin, OP_READ, &a, &r);
	h = hash_bytes(&error, sizeof(error), h);
	return hash_bytes(r.data.p, r.data.len, h);
}

/* A hash of all rows, objects, opens and locks. It changes if a request was executed. */
static uint64_t fingerprint(void)
{
	uint64_t h = 0;
	const struct session *s = session_on(&me->l, 0);

	CHECK(world_quiet(&w));
	for (uint32_t kind = SCAN_INODE; kind <= SCAN_LOCK; kind++)
		h = hash_rows(h, kind);
	h = hash_object(h, &file);
	h = hash_object(h, &other);
	h = hash_object(h, &theirs);
	if (s)
		h = hash_bytes(&s->held.used[LIMIT_OPENS], 3 * sizeof(s->held.used[0]), h);
	return h;
}

/* ---- the trials ---- */

static void trial(uint32_t op, unsigned flags, const void *args, size_t size)
{
	struct trial *t = &trials[op];

	CHECK(op < OPS && op_row(op));
	CHECK_EQ(size, wire_op_rows[op].args_size);
	CHECK(size <= ARGS_MAX);
	t->size = size;
	t->flags = flags;
	memcpy(t->args[0], args, size);
	memcpy(t->args[1], (const uint8_t *)args + size, size);
}

/* args: an array of two. */
#define TRIAL(op, flags, args) trial(op, flags, args, sizeof((args)[0]))

static void trials_of_the_server(void)
{
	struct wire_void_args none[2] = { { 0 }, { 1 } };
	struct wire_session_args session[2] = { { .client = wire_text("a") },
						{ .client = wire_text("b") } };
	struct wire_backup_args backup[2] = { { 0, 0 }, { 1, 0 } };
	struct wire_tally_args tally[2] = { { TALLY_USERS }, { TALLY_JOBS } };
	struct wire_add_target_args add[2] = {
		{ { 1, ROLE_DATA, wire_text("x"), wire_text("loop:1"), 0 }, false },
		{ { 1, ROLE_DATA, wire_text("y"), wire_text("loop:2"), 0 }, false }
	};
	struct wire_scan_args scan[2] = { { .kind = SCAN_INODE, .max = 9 },
					  { .kind = SCAN_ENTRY, .max = 9 } };
	struct wire_scan_args objects[2] = { { .kind = SCAN_OBJECT, .max = 9 },
					     { .kind = SCAN_OBJECT, .max = 8 } };
	struct wire_repair_args repair[2] = {
		{ .kind = REPAIR_NEXT, .h = { file.at.ino + 1000, 1 } },
		{ .kind = REPAIR_NEXT, .h = { file.at.ino + 2000, 1 } }
	};

	TRIAL(OP_PING, 0, none);
	TRIAL(OP_SESSION, 0, session);
	TRIAL(OP_BYE, GOODBYE, none);
	TRIAL(OP_STATUS, 0, none);
	TRIAL(OP_REQUESTS, 0, none);
	TRIAL(OP_TALLY, 0, tally);
	TRIAL(OP_MAP, 0, none);
	TRIAL(OP_BACKUP, ANY_STATUS, backup);
	TRIAL(OP_ADD_TARGET, ANY_STATUS, add);
	TRIAL(OP_SCAN, 0, scan);
	TRIAL(OP_OBJECTS, 0, objects);
	TRIAL(OP_REPAIR, STORED, repair);
	TRIAL(OP_CALIBRATE, 0, none);
}

static void trials_of_reads(void)
{
	struct wire_handle h = handle_of(&file), h2 = handle_of(&other);
	struct wire_lookup_args lookup[2] = { { pipe_place("file") }, { pipe_place("other") } };
	struct wire_getattr_args getattr[2] = { { h, false }, { h2, true } };
	struct wire_readdir_args readdir[2] = { { .dir = root, .max = 9 },
						{ .dir = root, .max = 8, .attrs = true } };
	struct wire_readlink_args readlink[2] = { { pipe_place("sym") }, { pipe_place("file") } };
	struct wire_getxattr_args getxattr[2] = { { h, wire_text("user.x"), 9 },
						  { h, wire_text("user.y"), 9 } };
	struct wire_listxattr_args listxattr[2] = { { h, 99 }, { h2, 99 } };

	TRIAL(OP_LOOKUP, 0, lookup);
	TRIAL(OP_GETATTR, 0, getattr);
	TRIAL(OP_READDIR, 0, readdir);
	TRIAL(OP_READLINK, 0, readlink);
	TRIAL(OP_GETXATTR, 0, getxattr);
	TRIAL(OP_LISTXATTR, 0, listxattr);
}

static void trials_of_names(void)
{
	static struct wire_new_attr mine = { .which = SET_UID };
	struct wire_mkdir_args mkdir[2] = { { .where = pipe_place("a"), .mode = 0755 },
					    { .where = pipe_place("b"), .mode = 0755 } };
	struct wire_mknod_args mknod[2] = {
		{ .where = pipe_place("a"), .mode = S_IFREG | 0600 },
		{ .where = pipe_place("a"), .mode = S_IFREG | 0600, .n_set = 1, .set = &mine }
	};
	struct wire_unlink_args unlink[2] = { { pipe_place("gone") }, { pipe_place("from") } };
	struct wire_unlink_args rmdir[2] = { { pipe_place("dir") }, { pipe_place("dir2") } };
	struct wire_rename_args rename[2] = { { pipe_place("from"), pipe_place("to"), 0 },
					      { pipe_place("gone"), pipe_place("to"), 0 } };
	struct wire_link_args link[2] = { { handle_of(&file), pipe_place("a") },
					  { handle_of(&file), pipe_place("b") } };
	struct wire_symlink_args symlink[2] = {
		{ .where = pipe_place("a"), .target = wire_text("x") },
		{ .where = pipe_place("a"), .target = wire_text("y") }
	};

	TRIAL(OP_MKDIR, STORED, mkdir);
	TRIAL(OP_MKNOD, STORED, mknod);
	TRIAL(OP_UNLINK, STORED, unlink);
	TRIAL(OP_RMDIR, STORED, rmdir);
	TRIAL(OP_RENAME, STORED, rename);
	TRIAL(OP_LINK, STORED, link);
	TRIAL(OP_SYMLINK, STORED, symlink);
}

static void trials_of_inodes(void)
{
	struct wire_handle h = handle_of(&file);
	struct wire_setattr_args setattr[2] = { { .h = h, .which = SET_MODE, .mode = 0640 },
						{ .h = h, .which = SET_MODE, .mode = 0666 } };
	struct wire_setxattr_args setxattr[2] = { { h, wire_text("user.z"), wire_text("1"), 0 },
						  { h, wire_text("user.z"), wire_text("2"), 0 } };
	struct wire_removexattr_args removexattr[2] = { { h, wire_text("user.x") },
							{ h, wire_text("user.y") } };
	struct wire_record_args record[2] = {
		{ h, { .epoch = file.cap.epoch, .end = 5, .mtime = 1000 } },
		{ h, { .epoch = file.cap.epoch, .end = 50, .mtime = 2000 } }
	};
	struct wire_open_args open[2] = {
		{ .where = pipe_place("a"), .id = 8, .flags = OPEN_WRITE | OPEN_CREATE },
		{ .where = pipe_place("b"), .id = 9, .flags = OPEN_WRITE | OPEN_CREATE }
	};
	struct wire_close_args close[2] = { { h, 1, record[0].w },
					    { handle_of(&other), 2, record[1].w } };
	struct wire_truncate_args truncate[2] = { { h, 3, 1 }, { h, 1, 1 } };

	TRIAL(OP_SETATTR, STORED, setattr);
	TRIAL(OP_SETXATTR, STORED, setxattr);
	TRIAL(OP_REMOVEXATTR, STORED, removexattr);
	TRIAL(OP_RECORD, STORED, record);
	TRIAL(OP_OPEN, STORED, open);
	TRIAL(OP_CLOSE, STORED, close);
	TRIAL(OP_TRUNCATE, STORED, truncate);
}

static void trials_of_open_files(void)
{
	struct wire_handle h = handle_of(&file);
	struct wire_append_args append[2] = { { h, 1, 1, 10, 0 }, { h, 1, 2, 10, 0 } };
	struct wire_appended_args appended[2] = { { h, 1, 1 }, { h, 1, 2 } };
	struct wire_cap_args cap[2] = { { h, CAP_READ }, { h, CAP_READ | CAP_WRITE } };
	struct wire_reclaim_args reclaim[2] = { { .h = h, .id = 1, .flags = OPEN_READ },
						{ .h = h, .id = 9, .flags = OPEN_WRITE } };
	struct wire_kept_args kept[2] = { { false }, { true } };
	struct wire_lock_args lock[2] = {
		{ h, 1, 1, { .owner = 1, .last = 9, .kind = LOCK_EXCLUSIVE }, 0 },
		{ h, 1, 1, { .owner = 1, .last = 19, .kind = LOCK_EXCLUSIVE }, 0 }
	};
	struct wire_durable_args fsync_[2] = { { h, false }, { h, true } };

	TRIAL(OP_APPEND, 0, append);
	TRIAL(OP_APPENDED, 0, appended);
	TRIAL(OP_CAP, 0, cap);
	TRIAL(OP_FSYNC, 0, fsync_);
	TRIAL(OP_RECLAIM, ANY_STATUS, reclaim);
	TRIAL(OP_LOCK, 0, lock);
	TRIAL(OP_LOCK_TEST, 0, lock);
	TRIAL(OP_KEPT, 0, kept);
}

static void trials_of_data(void)
{
	static struct wire_extent here = { 0, 5 }, there = { 5, 5 };
	static struct wire_copy_piece piece[2] = { { 0, 0, 5 }, { 0, 5, 5 } };
	struct wire_access at = { file.cap, 0, 0 }, from = { other.cap, 0, 0 };
	struct wire_read_args read[2] = { { .at = at, .n_list = 1, .list = &here },
					  { .at = from, .n_list = 1, .list = &here } };
	struct wire_write_args write[2] = {
		{ .at = at, .n_list = 1, .list = &here, .data = wire_text("HELLO") },
		{ .at = at, .n_list = 1, .list = &there, .data = wire_text("world") }
	};
	struct wire_allocate_args allocate[2] = { { at, 0, 1, &there },
						  { at, ALLOC_PUNCH | ALLOC_KEEP_SIZE, 1, &here } };
	struct wire_copy_args copy[2] = { { at, from, 0, 1, &piece[0] },
					  { at, from, 0, 1, &piece[1] } };
	struct wire_seek_args seek[2] = { { at, 0, WHENCE_DATA }, { at, 0, WHENCE_HOLE } };
	struct wire_sync_args sync[2] = { { at, 0, 0 }, { from, 0, 0 } };
	struct wire_objstat_args objstat[2] = { { at }, { from } };

	TRIAL(OP_READ, 0, read);
	TRIAL(OP_WRITE, 0, write);
	TRIAL(OP_ALLOCATE, 0, allocate);
	TRIAL(OP_COPY, 0, copy);
	TRIAL(OP_SEEK, 0, seek);
	TRIAL(OP_SYNC, 0, sync);
	TRIAL(OP_OBJSTAT, 0, objstat);
}

static void trials_between_servers(void)
{
	static struct wire_removal removal[2] = { { 999, 1, 0, 9 }, { 998, 1, 0, 9 } };
	static uint8_t bytes[PART_MAX];
	struct wire_record part = { .kind = PART_ADD,
				    .dir = root,
				    .name = wire_text("part"),
				    .h = { UINT64_C(1) << 48 | 5, 1 },
				    .mode = S_IFDIR };
	struct wire_fence_args fence[2] = { { file.at.ino, 1, 0, 9, FENCE_KEEP },
					    { file.at.ino, 1, 0, 99, 0 } };
	struct wire_remove_args remove[2] = { { 1, &removal[0] }, { 1, &removal[1] } };
	struct wire_prepare_args prepare[2] = { { .id = 77 }, { .id = 78 } };
	struct wire_finish_args finish[2] = { { 77, false }, { 77, true } };
	struct wire_durable_args durable[2] = { { handle_of(&file), false },
						{ handle_of(&other), true } };
	struct wire_outcome_args outcome[2] = { { 77 }, { 78 } };
	struct wire_climb_args climb[2] = { { root, 5 }, { root, META_ROOT_INO } };
	struct xdr x;

	xdr_encoder(&x, bytes, sizeof(bytes));
	CHECK(xdr_wire_record(&x, &part));
	prepare[0].part = prepare[1].part = (struct wire_bytes){ (uint32_t)xdr_used(&x), bytes };
	TRIAL(OP_FENCE, 0, fence);
	TRIAL(OP_REMOVE, 0, remove);
	TRIAL(OP_PREPARE, 0, prepare);
	TRIAL(OP_FINISH, 0, finish);
	TRIAL(OP_DURABLE, 0, durable);
	TRIAL(OP_OUTCOME, 0, outcome);
	TRIAL(OP_CLIMB, 0, climb);
}

static void fill_trials(void)
{
	CHECK(N_OPS <= OPS);
	memset(trials, 0, sizeof(trials));
	trials_of_the_server();
	trials_of_reads();
	trials_of_names();
	trials_of_inodes();
	trials_of_open_files();
	trials_of_data();
	trials_between_servers();
}

/* ---- one request ---- */

static bool takes_a_slot(uint32_t op)
{
	return !(wire_op_rows[op].flags & OPF_NO_SESSION);
}

/* The status of the first execution; -1 if several are possible. */
static int expected(uint32_t op)
{
	unsigned flags = wire_op_rows[op].flags;

	if ((flags & OPF_SERVERS) && caller != SERVER)
		return EPERM;
	if ((flags & OPF_ADMIN) && caller == USER)
		return EPERM;
	if (caller == SERVER && !(flags & OPF_SERVERS))
		return -1;
	return trials[op].flags & ANY_STATUS ? -1 : 0;
}

static bool is_stored(uint32_t op)
{
	return (trials[op].flags & STORED) && expected(op) == 0;
}

static void send_args(uint32_t op, uint32_t slot, uint32_t sequence, void *args, struct answer *a)
{
	unsigned before = me->replies;

	pipe_call(&w, me, op, slot, sequence, wire_op_rows[op].args, args);
	CHECK(world_quiet(&w));
	CHECK(!me->closed);
	CHECK_EQ(me->replies, before + 1);
	a->head = me->head;
	a->len = me->body_len - me->body_at;
	memcpy(a->body, me->body + me->body_at, a->len);
}

static void send_trial(uint32_t op, int variant, struct answer *a)
{
	send_args(op, SLOT, SEQUENCE, trials[op].args[variant], a);
}

/* As after a restart: only the stored answer of the slot is known. */
static void forget_slot(void)
{
	session_on(&me->l, 0)->slots[SLOT] = (struct slot){ 0 };
}

/* ---- replays ---- */

/* A stored answer equals the first one except for the directory attributes, which a replay does not
 * contain. */
static void check_answer(uint32_t op, const struct answer *first, const struct answer *again)
{
	CHECK_EQ(again->head.status, first->head.status);
	/* the reply to OPEN has a new capability */
	if (!is_stored(op) || first->head.status || op == OP_OPEN)
		return;
	CHECK(again->len >= 4 && again->len <= first->len);
	CHECK_EQ(memcmp(first->body, again->body, again->len - 4), 0);
}

/* After a restart there are no open files: only stored answers are the same as before. */
static void check_restart(uint32_t op, const struct answer *first)
{
	static struct answer again;
	uint64_t before;

	restart(caller != SERVER);
	before = fingerprint();
	send_trial(op, 0, &again);
	if (!is_stored(op))
		return;
	check_answer(op, first, &again);
	if (op != OP_OPEN) /* the replay opens the file again */
		CHECK_EQ(fingerprint(), before);
}

static void replay(uint32_t op)
{
	static struct answer first, again;
	uint64_t then;

	send_trial(op, 0, &first);
	if (expected(op) >= 0)
		CHECK_EQ(first.head.status, expected(op));
	if (trials[op].flags & GOODBYE) {
		send_trial(op, 0, &again);
		CHECK_EQ(again.head.status, ESTALE);
		return;
	}
	then = fingerprint();
	send_trial(op, 0, &again);
	check_answer(op, &first, &again);
	CHECK_EQ(fingerprint(), then);
	new_link(takes_a_slot(op));
	send_trial(op, 0, &again);
	check_answer(op, &first, &again);
	CHECK_EQ(fingerprint(), then);
	check_restart(op, &first);
}

static void each_operation(void (*fn)(uint32_t op))
{
	for (uint32_t op = 0; op < N_OPS; op++) {
		if (!op_row(op))
			continue;
		for (int who = 0; who < CALLERS; who++) {
			struct wire_void_args none = { 0 };
			static struct answer a;

			begin(who);
			fill_trials();
			if (!trials[op].size) {
				fprintf(stderr, "operation %s has no trial here\n",
					wire_op_rows[op].name);
				exit(1);
			}
			printf("%s as %d\n", wire_op_rows[op].name, who);
			fflush(stdout);
			fn(op);
			if (session_on(&me->l, 0)) {
				send_args(OP_PING, 2, 1, &none, &a); /* the session still exists */
				CHECK_EQ(a.head.status, 0);
			}
			end();
		}
	}
}

static void a_replay_of_any_operation_is_answered_or_harmless(void)
{
	each_operation(replay);
}

/* ---- other requests with the same numbers ---- */

static uint64_t refused(void)
{
	return w.srv->net.refused[REFUSED_REPLAY];
}

static void check_refused(uint32_t op, int variant)
{
	static struct answer a;
	uint64_t before = refused();

	send_trial(op, variant, &a);
	CHECK_EQ(a.head.status, EBADMSG);
	CHECK_EQ(refused(), before + 1);
}

static void others_are_refused(uint32_t op)
{
	for (uint32_t k = 0; k < N_OPS; k++)
		if (op_row(k) && k != op && takes_a_slot(k))
			check_refused(k, 0);
}

/* Only the stored answer tells which request the numbers belong to. */
static void stored_ones_are_refused(uint32_t op)
{
	for (uint32_t k = 0; k < N_OPS; k++) {
		if (!op_row(k) || !is_stored(k))
			continue;
		forget_slot();
		check_refused(k, k == op);
	}
}

/* The identity of the user is part of the request. CLOSE of a closed file has no effect for any
 * user. */
static void another_user_is_refused(uint32_t op)
{
	if (caller != ROOT || (wire_op_rows[op].flags & OPF_ADMIN) || op == OP_CLOSE)
		return;
	me->uid = 1000;
	check_refused(op, 0);
	me->uid = 0;
}

static void foreign_requests(uint32_t op)
{
	static struct answer first, again;
	uint64_t then;

	if (!takes_a_slot(op) || (trials[op].flags & GOODBYE))
		return;
	send_trial(op, 0, &first);
	then = fingerprint();
	others_are_refused(op);
	CHECK_EQ(fingerprint(), then);
	if (is_stored(op)) {
		check_refused(op, 1);
		another_user_is_refused(op);
		stored_ones_are_refused(op);
		CHECK_EQ(fingerprint(), then);
		forget_slot();
	}
	send_trial(op, 0, &again); /* no refused request replaced the first one */
	check_answer(op, &first, &again);
	CHECK_EQ(fingerprint(), then);
}

static void another_request_under_the_same_numbers_is_refused(void)
{
	each_operation(foreign_requests);
}

/* ---- the two attacks that these checks prevent ---- */

static int open_theirs(uint32_t flags, struct wire_open_res *r)
{
	struct wire_open_args open = { .where = { handle_of(&theirs), { 0 }, false },
				       .id = 50,
				       .flags = flags };
	static struct answer a;
	struct xdr x;

	send_args(OP_OPEN, SLOT, SEQUENCE, &open, &a);
	if (a.head.status)
		return -a.head.status;
	xdr_decoder(&x, a.body, a.len, &arena);
	CHECK(xdr_wire_open_res(&x, r));
	return 0;
}

/* The stored answer of a change that any user may make is not accepted as that of an OPEN. */
static void an_empty_setattr_opens_nothing(void)
{
	struct wire_setattr_args nothing = { 0 };
	struct wire_open_res r;
	static struct answer a;
	uint64_t before, then;

	begin(USER);
	nothing.h = handle_of(&theirs);
	send_args(OP_SETATTR, SLOT, SEQUENCE, &nothing, &a);
	CHECK_EQ(a.head.status, 0);
	before = refused();
	then = fingerprint();
	CHECK_EQ(open_theirs(OPEN_READ | OPEN_WRITE, &r), -EBADMSG);
	CHECK_EQ(refused(), before + 1);
	CHECK_EQ(fingerprint(), then);
	restart(true);
	CHECK_EQ(open_theirs(OPEN_READ | OPEN_WRITE, &r), -EACCES);
	end();
}

static int create_again(struct wire_open_res *r)
{
	struct wire_open_args open = { .where = pipe_place("new"),
				       .id = 51,
				       .flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE,
				       .mode = 0444 };
	static struct answer a;
	struct xdr x;

	send_args(OP_OPEN, SLOT, SEQUENCE, &open, &a);
	if (a.head.status)
		return -a.head.status;
	xdr_decoder(&x, a.body, a.len, &arena);
	CHECK(xdr_wire_open_res(&x, r));
	return 0;
}

/* Until the change, the creator has all rights, whatever the mode says. */
static void a_replayed_create_asks_again_after_a_change_of_rights(void)
{
	static const struct wire_setattr_args changes[] = {
		{ .which = SET_MODE, .mode = 0 },
		{ .which = SET_MODE, .mode = 0400 },
		{ .which = SET_UID, .uid = 0 },
		{ .which = SET_UID | SET_GID | SET_MODE, .mode = 0600 },
	};

	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		struct wire_setattr_args change = changes[i];
		struct wire_attr_res at;
		struct wire_open_res r;

		begin(USER);
		CHECK_EQ(create_again(&r), 0);
		CHECK_EQ(r.cap.rights, CAP_READ | CAP_WRITE);
		CHECK_EQ(create_again(&r), 0);
		CHECK_EQ(r.cap.rights, CAP_READ | CAP_WRITE);
		change.h = handle_of(&r);
		CHECK_EQ(run(admin, OP_SETATTR, &change, &at), 0);
		CHECK_EQ(create_again(&r), -EACCES);
		restart(true);
		CHECK_EQ(create_again(&r), -EACCES);
		end();
	}
}

/* ---- flag fields ---- */

/* Operations with flags, kinds or modes. */
static const struct {
	uint32_t op;
	size_t at;
} flag_fields[] = {
	{ OP_SETATTR, offsetof(struct wire_setattr_args, which) },
	{ OP_OPEN, offsetof(struct wire_open_args, flags) },
	{ OP_CAP, offsetof(struct wire_cap_args, flags) },
	{ OP_RECLAIM, offsetof(struct wire_reclaim_args, flags) },
	{ OP_RENAME, offsetof(struct wire_rename_args, flags) },
	{ OP_SETXATTR, offsetof(struct wire_setxattr_args, flags) },
	{ OP_LOCK, offsetof(struct wire_lock_args, flags) },
	{ OP_LOCK, offsetof(struct wire_lock_args, want.kind) },
	{ OP_LOCK_TEST, offsetof(struct wire_lock_args, flags) },
	{ OP_LOCK_TEST, offsetof(struct wire_lock_args, want.kind) },
	{ OP_ALLOCATE, offsetof(struct wire_allocate_args, mode) },
	{ OP_SEEK, offsetof(struct wire_seek_args, whence) },
	{ OP_MKNOD, offsetof(struct wire_mknod_args, mode) },
	{ OP_REPAIR, offsetof(struct wire_repair_args, kind) },
	{ OP_SCAN, offsetof(struct wire_scan_args, kind) },
	{ OP_OBJECTS, offsetof(struct wire_scan_args, kind) },
	{ OP_ADD_TARGET, offsetof(struct wire_add_target_args, target.roles) },
};

/* Changes the request to name root's file, for which the user has no rights. */
static void aim_at_theirs(uint32_t op, void *args)
{
	struct wire_handle h = handle_of(&theirs);

	if (op == OP_SETATTR)
		((struct wire_setattr_args *)args)->h = h;
	else if (op == OP_OPEN)
		((struct wire_open_args *)args)->where = (struct wire_place){ .dir = h };
	else if (op == OP_CAP)
		((struct wire_cap_args *)args)->h = h;
	else if (op == OP_RECLAIM)
		((struct wire_reclaim_args *)args)->h = h;
	else if (op == OP_RENAME)
		((struct wire_rename_args *)args)->to = pipe_place("dir/none/none");
	else if (op == OP_SETXATTR)
		((struct wire_setxattr_args *)args)->h = h;
	else if (op == OP_LOCK || op == OP_LOCK_TEST)
		((struct wire_lock_args *)args)->h = h;
	else if (op == OP_ALLOCATE)
		((struct wire_allocate_args *)args)->at.cap = no_right;
	else if (op == OP_SEEK)
		((struct wire_seek_args *)args)->at.cap = no_right;
	else if (op == OP_MKNOD)
		((struct wire_mknod_args *)args)->where = pipe_place("theirs");
}

/* Checks that a capability in this reply gives no rights. */
static void check_no_right(uint32_t op, const struct answer *a)
{
	struct wire_open_res open = { 0 };
	struct wire_cap_res cap = { 0 };
	struct xdr x;

	if (a->head.status)
		return;
	xdr_decoder(&x, (uint8_t *)a->body, a->len, &arena);
	if (op == OP_OPEN)
		CHECK(xdr_wire_open_res(&x, &open));
	if (op == OP_CAP)
		CHECK(xdr_wire_cap_res(&x, &cap));
	CHECK_EQ(open.cap.rights, 0);
	CHECK_EQ(cap.cap.rights, 0);
}

static void each_flag(uint32_t op, size_t at, bool at_theirs)
{
	uint64_t then = fingerprint();
	static struct answer a;

	for (int bit = -1; bit <= 32; bit++) { /* no bit, each bit alone, all bits */
		_Alignas(16) uint8_t args[ARGS_MAX];
		uint32_t value = bit < 0 ? 0 : bit == 32 ? UINT32_MAX : UINT32_C(1) << bit;

		memcpy(args, trials[op].args[0], sizeof(args));
		if (at_theirs)
			aim_at_theirs(op, args);
		memcpy(args + at, &value, sizeof(value));
		send_args(op, 1, (uint32_t)(bit + 2), args, &a);
		if (at_theirs)
			check_no_right(op, &a);
	}
	if (at_theirs)
		CHECK_EQ(fingerprint(), then);
}

static void flags_give_no_right_and_do_no_harm(void)
{
	struct wire_void_args none = { 0 };
	static struct answer a;

	for (size_t i = 0; i < ARRAY_LEN(flag_fields); i++) {
		for (int k = 0; k < CALLERS + 1; k++) { /* the user also with root's file */
			begin(k < CALLERS ? k : USER);
			fill_trials();
			each_flag(flag_fields[i].op, flag_fields[i].at, k == CALLERS);
			send_args(OP_PING, 2, 1, &none, &a);
			CHECK_EQ(a.head.status, 0);
			end();
		}
	}
}

/* The capability that stat() of another user's file needs does not give access to its data. */
static void the_right_to_ask_objects_moves_no_data(void)
{
	static const uint32_t refused_ops[] = { OP_READ, OP_WRITE, OP_ALLOCATE, OP_COPY };
	static struct answer a;
	uint64_t then;

	begin(USER);
	fill_trials();
	then = fingerprint();
	CHECK_EQ(no_right.rights, 0);
	for (uint32_t i = 0; i < ARRAY_LEN(refused_ops); i++) {
		_Alignas(16) uint8_t args[ARGS_MAX];

		memcpy(args, trials[refused_ops[i]].args[0], sizeof(args));
		/* struct wire_access is the first member */
		memcpy(args, &no_right, sizeof(no_right));
		send_args(refused_ops[i], 1, i + 1, args, &a);
		CHECK_EQ(a.head.status, EACCES);
	}
	CHECK_EQ(fingerprint(), then);
	end();
}

TEST_MAIN(TEST(a_replay_of_any_operation_is_answered_or_harmless),
	  TEST(another_request_under_the_same_numbers_is_refused),
	  TEST(an_empty_setattr_opens_nothing),
	  TEST(a_replayed_create_asks_again_after_a_change_of_rights),
	  TEST(flags_give_no_right_and_do_no_harm), TEST(the_right_to_ask_objects_moves_no_data))
