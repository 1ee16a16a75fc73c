/* Looks into the database's file past its server: what they say is true for a moment during the call, or they leave it to
 * the server; whatever the file holds, and whatever happens to it meanwhile. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "acl_text.h"
#include "meta/meta_state.h"
#include "meta_fake.h"

static struct fake f;
static const struct cred root = { 0, 0, 0, NULL };
static uint64_t seed;

static unsigned pick(unsigned n)
{
	return (unsigned)(test_random(&seed) % n);
}

/* The file itself; something may happen before one of the reads. */
struct view {
	struct meta_file file;
	int fd, lock;
	unsigned reads; /* of the latest look */
	unsigned at; /* before this one (the first is 0): */
	int (*then)(void); /* not 0: the read fails */
};

static int view_read(const struct meta_file *file, enum meta_of part, void *buf, size_t n,
		     uint64_t off)
{
	struct view *v = (struct view *)(uintptr_t)container_of(file, struct view, file);

	if (v->reads++ == v->at && v->then && v->then())
		return -EIO;
	return pread(part == META_LOCK ? v->lock : v->fd, buf, n, (off_t)off) == (ssize_t)n ? 0 :
											      -EIO;
}

static struct view view_open(void)
{
	struct view v = { .file = { view_read } };
	char path[128];

	snprintf(path, sizeof(path), "%s/data.mdb", f.dir);
	v.fd = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/lock.mdb", f.dir);
	v.lock = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(v.fd >= 0 && v.lock >= 0);
	return v;
}

static void view_close(struct view *v)
{
	close(v->fd);
	close(v->lock);
}

/* ---- answers ---- */

struct answer {
	int rc;
	uint8_t attr[128]; /* encoded: all that others get to know */
};

static struct answer answer_of(int rc, struct wire_attr *a)
{
	struct answer out = { .rc = rc };
	struct xdr x;

	xdr_encoder(&x, out.attr, sizeof(out.attr));
	CHECK(rc || xdr_wire_attr(&x, a));
	return out;
}

static bool same(const struct answer *a, const struct answer *b)
{
	return a->rc == b->rc && memcmp(a->attr, b->attr, sizeof(a->attr)) == 0;
}

static struct wire_place place(struct wire_handle dir, const char *name)
{
	return (struct wire_place){ .dir = dir, .path = wire_text(name) };
}

static struct answer peek_as(const struct meta_file *file, const struct cred *c,
			     struct wire_place p)
{
	struct wire_attr a = { 0 };
	int rc = meta_peek(file, c, &p, &a);

	return answer_of(rc, &a);
}

static struct answer peek(struct view *v, struct wire_place p)
{
	v->reads = 0;
	return peek_as(&v->file, &root, p);
}

/* What the server would answer. */
static struct answer served(struct wire_place p)
{
	struct wire_referral end;
	struct meta_node n;
	int rc = meta_walk(f.m, &root, &p, NULL, &end, &f.arena);

	if (!rc)
		rc = meta_get(f.m, &end.at, &n, &f.arena);
	return answer_of(rc, &n.attr);
}

static void agree(struct view *v, struct wire_place p)
{
	struct answer a = peek(v, p), b = served(p);

	CHECK_EQ(a.rc, b.rc);
	CHECK(same(&a, &b));
}

/* ---- changes ---- */

static int apply_on(uint32_t kind, struct wire_handle h)
{
	struct wire_record r = rec_on(&f, kind, h);

	return fake_apply(&f, &r).status;
}

static int chmod_to(struct wire_handle h, uint32_t mode)
{
	struct wire_record r = rec_on(&f, REC_SETATTR, h);

	r.which = SET_MODE;
	r.mode = mode;
	return fake_apply(&f, &r).status;
}

static void acl_set(struct wire_handle h, const char *name)
{
	struct list_acl a = { .n = 0 };
	struct wire_record r = rec_on(&f, REC_SETXATTR, h);
	struct acl_bytes b;

	acl_add(&a, A_OWNER, 7, UINT32_MAX);
	acl_add(&a, A_USER, 7, 55);
	acl_add(&a, A_GROUP_OBJ, 5, UINT32_MAX);
	acl_add(&a, A_MASK, 7, UINT32_MAX);
	acl_add(&a, A_OTHER, 5, UINT32_MAX);
	b = acl_bytes(&a);
	r.name = wire_text(name);
	r.data = (struct wire_bytes){ b.len, b.b };
	CHECK_EQ(fake_apply(&f, &r).status, 0);
}

static struct wire_handle dir_of(uint32_t uid, uint32_t mode, const char *name)
{
	struct wire_record r = rec_name(&f, REC_MKDIR, fake_root, name);
	struct wire_record_res res;

	r.uid = uid;
	r.mode = mode;
	res = fake_apply(&f, &r);
	CHECK_EQ(res.status, 0);
	return attr_handle(&res.at);
}

static struct wire_handle make_symlink(struct wire_handle dir, const char *name)
{
	struct wire_record r = rec_name(&f, REC_SYMLINK, dir, name);
	struct wire_record_res res;

	r.new_ino = meta_new_ino(f.m);
	r.data = wire_text("where/it/points");
	res = fake_apply(&f, &r);
	CHECK_EQ(res.status, 0);
	return attr_handle(&res.at);
}

/* ---- a tree of some depth ---- */

#define DIRS 8
#define NAMES 400

static struct wire_handle dirs[DIRS];

/* Each another, of all lengths. */
static void name_of(int i, char name[NAME_MAX_LEN + 1])
{
	int len = snprintf(name, NAME_MAX_LEN + 1, "%x", (unsigned)i);

	while (len < 1 + i % NAME_MAX_LEN)
		name[len++] = '-';
	name[len] = 0;
}

static void tree_make(void)
{
	char name[NAME_MAX_LEN + 1];
	struct wire_handle h;

	for (int d = 0; d < DIRS; d++) {
		snprintf(name, sizeof(name), "dir%d", d);
		dirs[d] = fake_make(&f, REC_MKDIR, fake_root, name);
		for (int i = 0; i < NAMES; i++) {
			name_of(i, name);
			if (i % 10 == 1) {
				make_symlink(dirs[d], name);
				continue;
			}
			h = fake_make(&f, i % 10 == 2 ? REC_MKDIR : REC_CREATE, dirs[d], name);
			if (i % 10 == 3)
				CHECK_EQ(apply_on(REC_UNSETTLE, h), 0);
			if (i % 10 == 4)
				CHECK_EQ(chmod_to(h, 04711), 0);
		}
		fake_reset(&f);
	}
}

static unsigned depth_of(enum table t)
{
	MDB_stat st;
	MDB_txn *txn;

	CHECK_EQ(mdb_txn_begin(f.m->db.env, NULL, MDB_RDONLY, &txn), 0);
	CHECK_EQ(mdb_stat(txn, f.m->db.t[t], &st), 0);
	mdb_txn_abort(txn);
	return st.ms_depth;
}

static void whatever_is_there_is_seen_as_the_server_sees_it(void)
{
	char name[NAME_MAX_LEN + 1];
	struct wire_handle h;
	struct view v;

	fake_start(&f);
	v = view_open();
	tree_make();
	CHECK(depth_of(T_DIRENT) >= 3);
	CHECK(depth_of(T_INODE) >= 2);
	CHECK(depth_of(T_UNSETTLED) >= 2);
	for (int d = 0; d < DIRS; d++) {
		agree(&v, place(dirs[d], ""));
		for (int i = 0; i < NAMES; i++) {
			name_of(i, name);
			agree(&v, place(dirs[d], name));
			CHECK_EQ(fake_lookup(&f, dirs[d], name, &h), 0);
			agree(&v, place(h, ""));
			CHECK_EQ(peek(&v, place(h, "")).rc, 0);
		}
		fake_reset(&f);
	}
	agree(&v, place(fake_root, ""));
	view_close(&v);
	fake_end(&f);
}

static void what_is_not_there_is_known_not_to_be(void)
{
	char name[NAME_MAX_LEN + 1];
	struct wire_handle empty;
	struct view v;

	fake_start(&f);
	v = view_open();
	CHECK_EQ(peek(&v, place(fake_root, "x")).rc, -ENOENT); /* the table is empty yet */
	tree_make();
	empty = fake_make(&f, REC_MKDIR, fake_root, "empty");
	for (int i = 0; i < 2 * NAMES; i++) {
		name_of(i, name);
		name[0] = 'x'; /* behind all others */
		CHECK_EQ(peek(&v, place(dirs[i % DIRS], name)).rc, -ENOENT);
		name[0] = '!'; /* before them */
		CHECK_EQ(peek(&v, place(dirs[i % DIRS], name)).rc, -ENOENT);
		name_of(i + NAMES, name); /* among them */
		CHECK_EQ(peek(&v, place(dirs[i % DIRS], name)).rc, -ENOENT);
		CHECK_EQ(peek(&v, place(empty, name)).rc, -ENOENT);
	}
	view_close(&v);
	fake_end(&f);
}

/* ---- what is left to the server ---- */

static void names_that_are_none_are_left_to_the_server(void)
{
	static const char *const odd[] = { ".", "..", "/", "a/b", "/file", "file/", "dir/file" };
	char longer[NAME_MAX_LEN + 2];
	struct view v;

	fake_start(&f);
	v = view_open();
	fake_make(&f, REC_CREATE, fake_root, "file");
	fake_make(&f, REC_CREATE, fake_make(&f, REC_MKDIR, fake_root, "dir"), "file");
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		CHECK_EQ(peek(&v, place(fake_root, odd[i])).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place(fake_root, "...")).rc, -ENOENT);
	memset(longer, 'y', sizeof(longer));
	longer[NAME_MAX_LEN + 1] = 0;
	CHECK_EQ(peek(&v, place(fake_root, longer)).rc, -EAGAIN);
	longer[NAME_MAX_LEN] = 0;
	CHECK_EQ(peek(&v, place(fake_root, longer)).rc, -ENOENT);
	view_close(&v);
	fake_end(&f);
}

static void handles_of_nothing_are_left_to_the_server(void)
{
	struct wire_handle file, dir, far = { UINT64_C(4) << 48 | 8, 1 };
	struct view v;

	fake_start(&f);
	v = view_open();
	file = fake_make(&f, REC_CREATE, fake_root, "file");
	dir = fake_make(&f, REC_MKDIR, fake_root, "dir");
	CHECK_EQ(peek(&v, place(file, "")).rc, 0);
	CHECK_EQ(peek(&v, place(file, "x")).rc, -EAGAIN); /* ENOTDIR */
	CHECK_EQ(peek(&v, place((struct wire_handle){ file.ino, 2 }, "")).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place((struct wire_handle){ META_ROOT_INO, 2 }, "file")).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place((struct wire_handle){ 4711, 1 }, "")).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place(far, "x")).rc, -EAGAIN);
	CHECK_EQ(fake_name(&f, REC_RMDIR, fake_root, "dir").status, 0);
	CHECK_EQ(peek(&v, place(dir, "")).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place(dir, "x")).rc, -EAGAIN);
	view_close(&v);
	fake_end(&f);
}

static void a_server_without_inodes_knows_more_than_its_file(void)
{
	struct view v;

	fake_prepare(&f);
	f.o.root = false;
	f.o.partition = 3;
	CHECK_EQ(fake_open(&f), 0);
	v = view_open();
	CHECK_EQ(peek(&v, place((struct wire_handle){ UINT64_C(3) << 48 | 8, 1 }, "")).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place(fake_root, "x")).rc, -EAGAIN);
	view_close(&v);
	fake_end(&f);
}

static void who_may_not_pass_learns_nothing(void)
{
	static const struct cred owner = { 5, 5, 0, NULL }, other = { 9, 9, 0, NULL };
	struct wire_handle dir;
	struct view v;

	fake_start(&f);
	v = view_open();
	dir = dir_of(5, 0700, "private");
	fake_make(&f, REC_CREATE, dir, "file");
	CHECK_EQ(peek_as(&v.file, &owner, place(dir, "file")).rc, 0);
	CHECK_EQ(peek_as(&v.file, &root, place(dir, "file")).rc, 0);
	CHECK_EQ(peek_as(&v.file, &owner, place(dir, "none")).rc, -ENOENT);
	CHECK_EQ(peek_as(&v.file, &other, place(dir, "file")).rc, -EAGAIN);
	CHECK_EQ(peek_as(&v.file, &other, place(dir, "none")).rc, -EAGAIN);
	CHECK_EQ(peek_as(&v.file, &other, place(dir, "")).rc, 0);
	CHECK_EQ(chmod_to(dir, 0701), 0);
	CHECK_EQ(peek_as(&v.file, &other, place(dir, "file")).rc, 0);
	CHECK_EQ(chmod_to(dir, 0677), 0); /* the owner's bits are his only ones */
	CHECK_EQ(peek_as(&v.file, &owner, place(dir, "file")).rc, -EAGAIN);
	view_close(&v);
	fake_end(&f);
}

static void access_lists_are_the_servers(void)
{
	struct wire_handle dir, heir;
	struct view v;

	fake_start(&f);
	v = view_open();
	dir = dir_of(5, 0755, "dir");
	heir = dir_of(5, 0755, "heir");
	fake_make(&f, REC_CREATE, dir, "file");
	acl_set(heir, DEFAULT_ACL); /* which forbids nobody to pass */
	fake_make(&f, REC_CREATE, heir, "file");
	agree(&v, place(dir, "file"));
	agree(&v, place(heir, "file"));
	acl_set(dir, ACCESS_ACL);
	CHECK_EQ(peek(&v, place(dir, "file")).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place(dir, "none")).rc, -EAGAIN);
	agree(&v, place(dir, ""));
	agree(&v, place(fake_root, "dir"));
	view_close(&v);
	fake_end(&f);
}

static void links_that_are_followed_are_left_to_the_server(void)
{
	struct wire_place p;
	struct view v;

	fake_start(&f);
	v = view_open();
	make_symlink(fake_root, "link");
	fake_make(&f, REC_CREATE, fake_root, "file");
	p = place(fake_root, "link");
	agree(&v, p);
	p.follow = true;
	CHECK_EQ(peek(&v, p).rc, -EAGAIN);
	p.path = wire_text("file");
	agree(&v, p);
	view_close(&v);
	fake_end(&f);
}

static void nobody_looks_during_a_change_over_two_servers(void)
{
	struct wire_record part = rec_on(&f, PART_ADD, (struct wire_handle){ 0, 1 });
	struct view v;

	fake_start(&f);
	v = view_open();
	fake_make(&f, REC_CREATE, fake_root, "file");
	part.h.ino = UINT64_C(4) << 48 | 8;
	part.dir = fake_root;
	part.name = wire_text("far");
	part.mode = S_IFREG;
	fake_hold(&f, 7, &part);
	CHECK_EQ(peek(&v, place(fake_root, "far")).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place(fake_root, "file")).rc, -EAGAIN);
	CHECK_EQ(peek(&v, place(fake_root, "")).rc, -EAGAIN);
	fake_finish(&f, 7, REC_COMMIT);
	CHECK_EQ(peek(&v, place(fake_root, "far")).rc, -EAGAIN); /* its inode is elsewhere */
	agree(&v, place(fake_root, "file"));
	agree(&v, place(fake_root, ""));
	view_close(&v);
	fake_end(&f);
}

/* ---- changes ---- */

#define FEW_DIRS 3
#define FEW_NAMES 8
#define CHANGES 600

static void random_change(void)
{
	static const uint32_t kinds[] = { REC_CREATE, REC_MKDIR, REC_UNLINK, REC_RMDIR };
	char name[] = { (char)('a' + pick(FEW_NAMES)), 0 },
	     other[] = { (char)('a' + pick(FEW_NAMES)), 0 };
	struct wire_handle dir = dirs[pick(FEW_DIRS)], h;

	switch (pick(4)) {
	case 0:
		fake_rename(&f, dir, name, dirs[pick(FEW_DIRS)], other, 0);
		break;
	case 1:
		if (fake_lookup(&f, dir, name, &h) == 0)
			chmod_to(h, pick(01000));
		break;
	case 2:
		if (fake_lookup(&f, dir, name, &h) == 0)
			apply_on(REC_UNSETTLE, h);
		break;
	default:
		fake_name(&f, kinds[pick(4)], dir, name); /* some fail */
	}
}

static void each_change_is_seen_at_once(void)
{
	struct view v;

	fake_start(&f);
	v = view_open();
	for (int d = 0; d < FEW_DIRS; d++)
		dirs[d] = fake_make(&f, REC_MKDIR, fake_root, (char[]){ (char)('0' + d), 0 });
	seed = 5;
	for (int i = 0; i < CHANGES; i++) {
		random_change();
		for (int d = 0; d < FEW_DIRS; d++) {
			agree(&v, place(dirs[d], ""));
			for (int n = 0; n < FEW_NAMES; n++)
				agree(&v, place(dirs[d], (char[]){ (char)('a' + n), 0 }));
		}
		fake_reset(&f);
		if (i % 200 == 199)
			fake_reopen(&f);
	}
	view_close(&v);
	fake_end(&f);
}

/* ---- a look that is held up ---- */

static struct {
	struct wire_handle other;
	unsigned changes; /* while it is */
	struct answer seen[8]; /* what would have been right since it began */
	unsigned n;
	bool held_up;
} story;

/* One transaction that succeeds, and often one that changes the answer. */
static void story_turn(void)
{
	bool there = story.seen[story.n - 1].rc == 0;
	struct wire_handle h;

	switch (there ? pick(4) : 2 + pick(2)) {
	case 0:
		CHECK_EQ(fake_lookup(&f, dirs[0], "watched", &h), 0);
		CHECK_EQ(chmod_to(h, pick(01000)), 0);
		break;
	case 1:
		CHECK_EQ(fake_name(&f, REC_UNLINK, dirs[0], "watched").status, 0);
		break;
	case 2:
		CHECK_EQ(chmod_to(story.other, pick(01000)), 0);
		break;
	default:
		if (there)
			CHECK_EQ(chmod_to(dirs[0], 0700 | pick(0100)), 0);
		else
			fake_make(&f, REC_CREATE, dirs[0], "watched");
	}
	story.seen[story.n++] = served(place(dirs[0], "watched"));
}

static int story_goes_on(void)
{
	story.held_up = true;
	for (unsigned i = 0; i < story.changes; i++)
		story_turn();
	return 0;
}

static bool was_right(const struct answer *a)
{
	for (unsigned i = 0; i < story.n; i++)
		if (same(a, &story.seen[i]))
			return true;
	return false;
}

/* Before its k-th read; false: it has not as many. */
static bool look_held_up(struct view *v, unsigned k, unsigned changes)
{
	struct answer a;

	story.seen[0] = served(place(dirs[0], "watched"));
	story.n = 1;
	story.changes = changes;
	story.held_up = false;
	v->at = k;
	v->then = story_goes_on;
	a = peek(v, place(dirs[0], "watched"));
	v->then = NULL;
	fake_reset(&f);
	CHECK(a.rc == -EAGAIN || was_right(&a));
	if (changes < 2) /* its state is still there */
		CHECK(a.rc != -EAGAIN);
	else if (story.held_up && k >= 3) /* its head was read before */
		CHECK_EQ(a.rc, -EAGAIN);
	return story.held_up;
}

static void a_look_that_is_held_up_is_right_or_in_vain(void)
{
	struct view v;

	fake_start(&f);
	v = view_open();
	tree_make();
	story.other = fake_make(&f, REC_CREATE, dirs[1], "other");
	seed = 6;
	for (int round = 0; round < 16; round++)
		for (unsigned changes = 0; changes < 6; changes++) {
			unsigned k = 0;

			while (look_held_up(&v, k, changes))
				k++;
			CHECK(k > 6); /* heads, tables, trees */
		}
	view_close(&v);
	fake_end(&f);
}

/* ---- a look beside a writer ---- */

#define STABLE 200
#define RACE_CHANGES 15000
#define RACE_LOOKS 20000

static struct {
	struct view v;
	struct wire_handle dir, flips, moves;
	struct answer stable[STABLE];
	atomic_bool over;
	atomic_ulong looks, answered;
} race;

static void race_name(char name[16], const char *kind, unsigned i)
{
	snprintf(name, 16, "%s%u", kind, i);
}

static void look_at_stable(unsigned i)
{
	struct answer a;
	char name[16];

	race_name(name, "stable", i);
	a = peek(&race.v, place(race.dir, name));
	race.looks++;
	if (a.rc == -EAGAIN)
		return;
	CHECK_EQ(a.rc, 0);
	CHECK(same(&a, &race.stable[i]));
	race.answered++;
}

/* Its mode is one of two, whatever else happens. */
static void look_at_flips(void)
{
	struct wire_place p = place(race.dir, "flips");
	struct wire_attr a;
	int rc = meta_peek(&race.v.file, &root, &p, &a);

	CHECK(rc == 0 || rc == -EAGAIN);
	CHECK(rc || (a.ino == race.flips.ino && a.size == 0 && a.nlink == 1));
	CHECK(rc || a.mode == (S_IFREG | 0600) || a.mode == (S_IFREG | 0644));
}

/* Here or there; who looks twice may miss it, but it is nothing else. */
static void look_at_moves(const char *name)
{
	struct wire_place p = place(race.dir, name);
	struct wire_attr a;
	int rc = meta_peek(&race.v.file, &root, &p, &a);

	CHECK(rc == 0 || rc == -EAGAIN || rc == -ENOENT);
	CHECK(rc || (a.ino == race.moves.ino && a.mode == (S_IFDIR | 0755) && a.nlink == 2));
}

static void *looker(void *arg)
{
	while (!race.over) {
		for (unsigned i = 0; i < STABLE; i++)
			look_at_stable(i);
		look_at_flips();
		look_at_moves("here");
		look_at_moves("there");
	}
	return arg;
}

/* Rows of what changes lie between those of what does not. */
static void race_begin(void)
{
	char name[16];

	fake_start(&f);
	race.v = view_open();
	race.over = false;
	race.looks = race.answered = 0;
	race.dir = fake_make(&f, REC_MKDIR, fake_root, "race");
	race.flips = fake_make(&f, REC_CREATE, race.dir, "flips");
	CHECK_EQ(chmod_to(race.flips, 0600), 0);
	race.moves = fake_make(&f, REC_MKDIR, race.dir, "here");
	for (unsigned i = 0; i < STABLE; i++) {
		race_name(name, "churn", i);
		fake_make(&f, REC_CREATE, race.dir, name);
		race_name(name, "stable", i);
		fake_make(&f, REC_CREATE, race.dir, name);
		race.stable[i] = served(place(race.dir, name));
	}
}

static void race_change(unsigned i)
{
	bool even = i / 4 % 2 == 0;
	char name[16];

	switch (i % 4) {
	case 0:
		CHECK_EQ(chmod_to(race.flips, even ? 0644 : 0600), 0);
		break;
	case 1:
		CHECK_EQ(fake_rename(&f, race.dir, even ? "here" : "there", race.dir,
				     even ? "there" : "here", 0),
			 0);
		break;
	case 2:
		race_name(name, "churn", i / 8 % STABLE);
		fake_name(&f, even ? REC_UNLINK : REC_CREATE, race.dir, name);
		break;
	default:
		race_name(name, "more", i / 4 % 1000);
		fake_name(&f, i / 4000 % 2 ? REC_UNLINK : REC_CREATE, race.dir, name);
	}
	fake_reset(&f);
}

static void looks_beside_a_writer_are_right(void)
{
	pthread_t thread;

	race_begin();
	CHECK_EQ(pthread_create(&thread, NULL, looker, NULL), 0);
	for (unsigned i = 0; i < RACE_CHANGES || race.looks < RACE_LOOKS; i++)
		race_change(i);
	race.over = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(race.answered > race.looks / 2);
	for (unsigned i = 0; i < STABLE; i++)
		look_at_stable(i);
	view_close(&race.v);
	fake_end(&f);
}

/* ---- bad files ---- */

/* The file, copied. */
struct copy {
	struct meta_file file;
	uint8_t *p, lock[256];
	size_t n;
	uint64_t pages[32]; /* that the latest look read */
	unsigned reads;
};

#define PAGE 4096

static int copy_read(const struct meta_file *file, enum meta_of part, void *buf, size_t n,
		     uint64_t off)
{
	struct copy *c = (struct copy *)(uintptr_t)container_of(file, struct copy, file);

	if (part == META_LOCK) {
		memcpy(buf, c->lock + off, n);
		return 0;
	}
	c->pages[c->reads++ % ARRAY_LEN(c->pages)] = off / PAGE;
	if (off > c->n || n > c->n - off)
		return -EIO;
	memcpy(buf, c->p + off, n);
	return 0;
}

static struct copy copy_make(void)
{
	struct copy c = { .file = { copy_read } };
	struct view v = view_open();
	struct stat st;

	CHECK_EQ(fstat(v.fd, &st), 0);
	c.n = (size_t)st.st_size;
	c.p = malloc(c.n);
	CHECK(c.p);
	CHECK_EQ(pread(v.fd, c.p, c.n, 0), (ssize_t)c.n);
	CHECK_EQ(pread(v.lock, c.lock, sizeof(c.lock), 0), (ssize_t)sizeof(c.lock));
	view_close(&v);
	return c;
}

/* All that it points to is itself. */
static void circle(uint8_t *page)
{
	uint16_t lower, at;

	memcpy(&lower, page + 12, sizeof(lower));
	for (size_t i = 16; i + 2 <= MIN(lower, PAGE); i += 2) {
		memcpy(&at, page + i, sizeof(at));
		if (at <= PAGE - 6) {
			memcpy(page + at, page, 4);
			memset(page + at + 4, 0, 2);
		}
	}
}

/* One of its nodes moves to the end, which cuts its value off. */
static void slide(uint8_t *page)
{
	uint16_t lower, at, key_bytes, to;

	memcpy(&lower, page + 12, sizeof(lower));
	if (lower <= 16 || lower > PAGE)
		return;
	lower = (uint16_t)(16 + 2 * pick((lower - 16u) / 2)); /* where its offset is */
	memcpy(&at, page + lower, sizeof(at));
	if (at > PAGE - 8)
		return;
	memcpy(&key_bytes, page + at + 6, sizeof(key_bytes));
	to = (uint16_t)(PAGE - 8 - key_bytes - pick(16));
	if (key_bytes < PAGE / 2 && at + 8 + key_bytes <= PAGE) {
		memmove(page + to, page + at, 8u + key_bytes);
		memcpy(page + lower, &to, sizeof(to));
	}
}

static void damage(const struct copy *c, uint8_t *page)
{
	uint16_t word = (uint16_t)(pick(2) ? pick(PAGE + 64) : pick(65536));
	size_t other = pick((unsigned)(c->n / PAGE)), skip = pick(2) ? 16 : 0;

	switch (pick(8)) {
	case 0: /* its head, and the first offsets */
		memcpy(page + (size_t)2 * pick(24), &word, sizeof(word));
		break;
	case 1:
		memcpy(page + (size_t)2 * pick(PAGE / 2), &word, sizeof(word));
		break;
	case 2:
		for (unsigned n = pick(200); n; n--)
			page[pick(PAGE)] ^= (uint8_t)(1 << pick(8));
		break;
	case 3:
		for (size_t i = skip; i < PAGE; i += 8)
			memcpy(page + i, &(uint64_t){ test_random(&seed) }, 8);
		break;
	case 4: /* what was written before, or will be: its number may be right */
		memmove(page + skip, c->p + other * PAGE + skip, PAGE - skip);
		break;
	case 5:
		circle(page);
		break;
	case 6:
		slide(page);
		break;
	default:
		memset(page + 16, (int)pick(256), pick(PAGE - 16));
	}
}

static void look_at_damage(struct copy *c, struct wire_place p)
{
	uint8_t before[PAGE], *page;
	unsigned n;
	int rc;

	c->reads = 0;
	CHECK_EQ(peek_as(&c->file, &root, p).rc, 0);
	n = MIN(c->reads, (unsigned)ARRAY_LEN(c->pages));
	page = c->p + c->pages[pick(n)] * PAGE;
	memcpy(before, page, PAGE);
	damage(c, page);
	rc = peek_as(&c->file, &root, p).rc;
	CHECK(rc == 0 || rc == -ENOENT || rc == -EAGAIN);
	memcpy(page, before, PAGE);
}

static void nothing_in_a_damaged_file_does_harm(void)
{
	char name[NAME_MAX_LEN + 1];
	struct copy c;

	fake_start(&f);
	tree_make();
	c = copy_make();
	seed = 8;
	for (int i = 0; i < 40000; i++) {
		name_of((int)pick(NAMES), name);
		look_at_damage(&c, place(dirs[pick(DIRS)], name));
	}
	free(c.p);
	fake_end(&f);
}

static void a_file_that_is_cut_off_is_left_to_the_server(void)
{
	struct answer right, a;
	struct copy c;
	size_t whole;

	fake_start(&f);
	tree_make();
	c = copy_make();
	whole = c.n;
	right = peek_as(&c.file, &root, place(dirs[3], "0"));
	CHECK_EQ(right.rc, 0);
	for (c.n = 0; c.n < whole; c.n += 1000) {
		a = peek_as(&c.file, &root, place(dirs[3], "0"));
		CHECK(a.rc == -EAGAIN || same(&a, &right));
		CHECK(c.n > 2 * PAGE || a.rc == -EAGAIN);
	}
	free(c.p);
	fake_end(&f);
}

static int fail(void)
{
	return -EIO;
}

static void a_read_that_fails_is_left_to_the_server(void)
{
	struct answer a = { .rc = -EAGAIN };
	struct view v;
	unsigned k;

	fake_start(&f);
	v = view_open();
	tree_make();
	v.then = fail;
	for (k = 0; a.rc; k++) {
		v.at = k;
		a = peek(&v, place(dirs[3], "0"));
		CHECK_EQ(a.rc, v.reads > k ? -EAGAIN : 0);
	}
	CHECK(k > 10);
	view_close(&v);
	fake_end(&f);
}

TEST_MAIN(TEST(whatever_is_there_is_seen_as_the_server_sees_it),
	  TEST(what_is_not_there_is_known_not_to_be),
	  TEST(names_that_are_none_are_left_to_the_server),
	  TEST(handles_of_nothing_are_left_to_the_server),
	  TEST(a_server_without_inodes_knows_more_than_its_file),
	  TEST(who_may_not_pass_learns_nothing), TEST(access_lists_are_the_servers),
	  TEST(links_that_are_followed_are_left_to_the_server),
	  TEST(nobody_looks_during_a_change_over_two_servers), TEST(each_change_is_seen_at_once),
	  TEST(a_look_that_is_held_up_is_right_or_in_vain), TEST(looks_beside_a_writer_are_right),
	  TEST(nothing_in_a_damaged_file_does_harm),
	  TEST(a_file_that_is_cut_off_is_left_to_the_server),
	  TEST(a_read_that_fails_is_left_to_the_server))
