/* Hard links and symbolic links: their records, and walks that follow them. */
#include "meta/meta_state.h"
#include "metadb.h"

static struct metadb f;
static const struct cred root = { 0, 0, 0, NULL };

static struct wire_record rec_link(struct wire_handle h, struct wire_handle dir, const char *name)
{
	struct wire_record r = rec_name(&f, REC_LINK, dir, name);

	r.h = h;
	return r;
}

static int link_to(struct wire_handle h, struct wire_handle dir, const char *name)
{
	struct wire_record r = rec_link(h, dir, name);

	return metadb_apply(&f, &r).status;
}

static struct wire_record_res symlink_to(const char *target, struct wire_handle dir,
					 const char *name)
{
	struct wire_record r = rec_name(&f, REC_SYMLINK, dir, name);

	r.new_ino = meta_new_ino(f.m);
	r.data = wire_text(target);
	return metadb_apply(&f, &r);
}

static struct wire_handle link_made(const char *target, struct wire_handle dir, const char *name)
{
	struct wire_record_res res = symlink_to(target, dir, name);

	CHECK_EQ(res.status, 0);
	CHECK(res.created);
	return attr_handle(&res.at);
}

static void as_user(struct wire_record *r, uint32_t uid)
{
	r->uid = r->gid = uid;
}

/* ---- hard links ---- */

static void a_file_has_as_many_names_as_it_is_given(void)
{
	struct wire_handle file, dir, at;
	struct meta_node before, n;
	struct wire_record_res res;
	struct wire_record r;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	before = metadb_node(&f, file);
	r = rec_link(file, dir, "second");
	res = metadb_apply(&f, &r);
	CHECK_EQ(res.status, 0);
	CHECK(!res.created);
	CHECK_EQ(res.at.nlink, 2);
	CHECK_EQ(res.layout.n_targets, 3);
	n = metadb_node(&f, file);
	CHECK_EQ(n.attr.nlink, 2);
	CHECK_EQ(n.attr.ctime, r.time);
	CHECK_EQ(n.attr.change, before.attr.change + 1);
	CHECK_EQ(n.attr.mtime, before.attr.mtime);
	CHECK_EQ(metadb_node(&f, dir).attr.mtime, r.time);
	CHECK_EQ(metadb_node(&f, dir).attr.size, 1);
	CHECK_EQ(metadb_node(&f, dir).attr.nlink, 2);
	CHECK_EQ(metadb_lookup(&f, dir, "second", &at), 0);
	CHECK_EQ(at.ino, file.ino);
	metadb_reopen(&f);
	CHECK_EQ(metadb_node(&f, file).attr.nlink, 2);
	metadb_end(&f);
}

static void a_file_is_removed_with_its_last_name(void)
{
	struct wire_handle file;
	struct wire_record_res res;
	struct wire_record r;
	struct meta_node n;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "a");
	CHECK_EQ(link_to(file, metadb_root, "b"), 0);
	res = metadb_name(&f, REC_UNLINK, metadb_root, "a");
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.at.nlink, 1);
	CHECK_EQ(res.removed.ino, 0);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 0);
	r = rec_on(&f, REC_REMOVED, file);
	r.obj_gen = 1;
	CHECK_EQ(metadb_apply(&f, &r).status, EBUSY);
	res = metadb_name(&f, REC_UNLINK, metadb_root, "b");
	CHECK_EQ(res.removed.ino, file.ino);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 1);
	/* the last name is gone, even if the file is open */
	CHECK_EQ(link_to(file, metadb_root, "c"), ENOENT);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(meta_get(f.m, &file, &n, &f.arena), -ESTALE);
	CHECK_EQ(link_to(file, metadb_root, "c"), ESTALE);
	metadb_end(&f);
}

static void links_are_refused_where_they_may_not_be(void)
{
	struct wire_handle file, dir, closed, far = { UINT64_C(3) << 48 | 9, 1 };
	struct wire_record r;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	closed = metadb_make(&f, REC_MKDIR, dir, "closed");
	CHECK_EQ(link_to(dir, metadb_root, "other"), EPERM);
	CHECK_EQ(link_to(file, metadb_root, "file"), EEXIST);
	CHECK_EQ(link_to(file, metadb_root, "dir"), EEXIST);
	CHECK_EQ(link_to(file, file, "x"), ENOTDIR);
	CHECK_EQ(link_to(file, metadb_root, ".."), EINVAL);
	CHECK_EQ(link_to(far, metadb_root, "x"), EXDEV);
	CHECK_EQ(link_to(file, far, "x"), EXDEV);
	CHECK_EQ(link_to((struct wire_handle){ file.ino, 9 }, metadb_root, "x"), ESTALE);
	r = rec_link(file, closed, "x");
	as_user(&r, 5);
	CHECK_EQ(metadb_apply(&f, &r).status, EACCES);
	CHECK_EQ(metadb_node(&f, file).attr.nlink, 1);
	metadb_end(&f);
}

static void there_is_a_most_of_names(void)
{
	static struct call calls[1000];
	static char names[1000][16];
	struct wire_handle file;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	for (int i = 0; i < 65000; i += 1000) {
		for (int j = 0; j < 1000; j++) {
			struct wire_record r;

			snprintf(names[j], sizeof(names[j]), "l%d", i + j);
			r = rec_link(file, metadb_root, names[j]);
			call_submit(&f, &calls[j], &r);
		}
		metadb_pump(&f);
		for (int j = 0; j < 1000; j++)
			CHECK_EQ(calls[j].c.res.status, i + j < 64999 ? 0 : EMLINK);
		metadb_reset(&f);
	}
	CHECK_EQ(metadb_node(&f, file).attr.nlink, 65000);
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, "l7").status, 0);
	CHECK_EQ(link_to(file, metadb_root, "again"), 0);
	metadb_end(&f);
}

static void renames_know_two_names_of_one_file(void)
{
	struct wire_handle a, b, at;
	struct wire_record_res res;
	struct wire_record r;

	metadb_start(&f);
	a = metadb_make(&f, REC_CREATE, metadb_root, "a");
	b = metadb_make(&f, REC_CREATE, metadb_root, "b");
	CHECK_EQ(link_to(a, metadb_root, "a2"), 0);
	/* two names of one file: no change */
	CHECK_EQ(metadb_rename(&f, metadb_root, "a", metadb_root, "a2", 0), 0);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "a", &at), 0);
	CHECK_EQ(metadb_node(&f, a).attr.nlink, 2);
	r = rec_name(&f, REC_RENAME, metadb_root, "b");
	r.dir2 = metadb_root;
	r.name2 = wire_text("a2");
	res = metadb_apply(&f, &r);
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.removed.ino, 0); /* the file has another name */
	CHECK_EQ(metadb_node(&f, a).attr.nlink, 1);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "a2", &at), 0);
	CHECK_EQ(at.ino, b.ino);
	metadb_end(&f);
}

static void a_link_is_made_once_however_often_it_is_asked_for(void)
{
	struct wire_handle file;
	struct wire_record r;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	r = rec_on(&f, REC_SESSION_NEW, metadb_root);
	r.session = 7;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = rec_link(file, metadb_root, "second");
	r.session = 7;
	r.slot = 3;
	r.sequence = 1;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_apply(&f, &r).at.nlink, 2);
	metadb_reopen(&f);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_node(&f, file).attr.nlink, 2);
	metadb_end(&f);
}

/* ---- symbolic links ---- */

static void a_symbolic_link_keeps_its_text(void)
{
	struct wire_record_res res;
	struct wire_handle link, file;
	struct wire_bytes text;
	char longest[4097];

	metadb_start(&f);
	res = symlink_to("any/../text \xff", metadb_root, "link");
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.at.mode, S_IFLNK | 0777);
	CHECK_EQ(res.at.nlink, 1);
	CHECK_EQ(res.at.size, 13);
	CHECK_EQ(res.layout.n_targets, 0);
	link = attr_handle(&res.at);
	CHECK_EQ(meta_readlink(f.m, &link, &text, &f.arena), 0);
	CHECK_EQ(text.len, 13);
	CHECK(!memcmp(text.p, "any/../text \xff", 13));
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	CHECK_EQ(meta_readlink(f.m, &file, &text, &f.arena), -EINVAL);
	CHECK_EQ(meta_readlink(f.m, &metadb_root, &text, &f.arena), -EINVAL);
	memset(longest, 'x', sizeof(longest));
	longest[4096] = 0;
	CHECK_EQ(symlink_to(longest, metadb_root, "long").status, ENAMETOOLONG);
	longest[4095] = 0;
	link = link_made(longest, metadb_root, "long");
	metadb_reopen(&f);
	CHECK_EQ(meta_readlink(f.m, &link, &text, &f.arena), 0);
	CHECK_EQ(text.len, 4095);
	CHECK_EQ(symlink_to("", metadb_root, "none").status, ENOENT);
	CHECK_EQ(symlink_to("x", metadb_root, "file").status, EEXIST);
	CHECK_EQ(symlink_to("x", file, "y").status, ENOTDIR);
	metadb_end(&f);
}

static void what_is_for_files_is_refused_to_symbolic_links(void)
{
	static const uint32_t kinds[] = { REC_UNSETTLE,	    REC_RECORD,	   REC_TRUNC_BEGIN,
					  REC_SETTLE_BEGIN, REC_TRUNC_END, REC_REMOVED };
	struct wire_handle link;
	struct wire_record r;

	metadb_start(&f);
	link = link_made("x", metadb_root, "link");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		r = rec_on(&f, kinds[i], link);
		r.size = 999;
		CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	}
	r = rec_on(&f, REC_SETATTR, link);
	r.which = SET_MODE;
	CHECK_EQ(metadb_apply(&f, &r).status, EOPNOTSUPP);
	r.which = SET_UID | SET_MTIME;
	r.owner = 12;
	CHECK_EQ(metadb_apply(&f, &r).at.uid, 12);
	CHECK_EQ(metadb_name(&f, REC_CREATE, metadb_root, "link").status, ELOOP);
	r = rec_name(&f, REC_CREATE, metadb_root, "link");
	r.flags = REC_EXCL;
	CHECK_EQ(metadb_apply(&f, &r).status, EEXIST);
	CHECK_EQ(metadb_name(&f, REC_RMDIR, metadb_root, "link").status, ENOTDIR);
	CHECK_EQ(metadb_node(&f, link).attr.size, 1);
	metadb_end(&f);
}

static void a_symbolic_link_is_removed_at_once(void)
{
	struct wire_handle link, other;
	struct wire_record_res res;
	struct wire_bytes text;
	struct meta_node n;

	metadb_start(&f);
	link = link_made("x", metadb_root, "link");
	CHECK_EQ(link_to(link, metadb_root, "second"), 0);
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, "link").status, 0);
	CHECK_EQ(meta_readlink(f.m, &link, &text, &f.arena), 0);
	res = metadb_name(&f, REC_UNLINK, metadb_root, "second");
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.removed.ino, 0); /* a symbolic link has no objects to remove */
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 0);
	CHECK_EQ(meta_get(f.m, &link, &n, &f.arena), -ESTALE);
	/* a rename may replace it, too */
	link = link_made("x", metadb_root, "link");
	other = metadb_make(&f, REC_CREATE, metadb_root, "file");
	CHECK_EQ(metadb_rename(&f, metadb_root, "file", metadb_root, "link", 0), 0);
	CHECK_EQ(meta_get(f.m, &link, &n, &f.arena), -ESTALE);
	CHECK_EQ(metadb_node(&f, other).attr.nlink, 1);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 0);
	metadb_end(&f);
}

/* ---- walks ---- */

struct walked {
	int rc;
	struct wire_referral end;
	char leaf[300];
	bool slash;
};

static struct walked walk_place(const char *path, bool follow, bool leaf)
{
	struct wire_place p = { .dir = metadb_root, .path = wire_text(path), .follow = follow };
	struct meta_leaf l = { { 0, NULL }, false };
	struct walked w = { .rc = 0 };

	w.rc = meta_walk(f.m, &root, &p, leaf ? &l : NULL, &w.end, &f.arena);
	if (l.name.p)
		memcpy(w.leaf, l.name.p, MIN(l.name.len, sizeof(w.leaf) - 1));
	w.slash = l.slash;
	return w;
}

static uint64_t walked_to(const char *path, bool follow)
{
	struct walked w = walk_place(path, follow, false);

	CHECK_EQ(w.rc, 0);
	return w.end.at.ino;
}

static void walks_go_through_symbolic_links(void)
{
	struct wire_handle a, b, file, up, abs, end;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	b = metadb_make(&f, REC_MKDIR, a, "b");
	file = metadb_make(&f, REC_CREATE, b, "file");
	up = link_made("../a/b", a, "up"); /* relative to the directory of the link */
	abs = link_made("/a/up", b, "abs");
	end = link_made("b/abs/file", a, "end");
	CHECK_EQ(walked_to("a/up/file", false), file.ino);
	CHECK_EQ(walked_to("a/b/abs/file", false), file.ino);
	CHECK_EQ(walked_to("a/end", true), file.ino);
	CHECK_EQ(walked_to("a/end", false), end.ino);
	CHECK_EQ(walked_to("a/up", true), b.ino);
	CHECK_EQ(walked_to("a/up", false), up.ino);
	/* the slash requires a directory, so the link is followed */
	CHECK_EQ(walked_to("a/up/", false), b.ino);
	CHECK_EQ(walked_to("a/up/..", false), a.ino); /* the parent of the link's target */
	CHECK_EQ(walked_to("a/b/abs", false), abs.ino);
	CHECK_EQ(walk_place("a/end/", true, false).rc, -ENOTDIR);
	CHECK_EQ(walk_place("a/end/x", true, false).rc, -ENOTDIR);
	link_made("/", metadb_root, "top");
	CHECK_EQ(walked_to("top", true), META_ROOT_INO);
	CHECK_EQ(walked_to("top/a", false), a.ino);
	link_made("nowhere/x", metadb_root, "dangling");
	CHECK_EQ(walk_place("dangling", true, false).rc, -ENOENT);
	CHECK_EQ(walk_place("dangling", false, false).rc, 0);
	metadb_end(&f);
}

static void circles_end(void)
{
	char name[16], target[16];

	metadb_start(&f);
	link_made("self", metadb_root, "self");
	link_made("b", metadb_root, "a");
	link_made("a/x", metadb_root, "b");
	CHECK_EQ(walk_place("self", true, false).rc, -ELOOP);
	CHECK_EQ(walk_place("self", true, true).rc, -ELOOP);
	CHECK_EQ(walk_place("self/x", false, false).rc, -ELOOP);
	CHECK_EQ(walk_place("a", true, false).rc, -ELOOP);
	CHECK_EQ(walk_place("self", false, false).rc, 0);
	metadb_make(&f, REC_CREATE, metadb_root, "l0");
	for (int i = 1; i <= 41; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		snprintf(target, sizeof(target), "l%d", i - 1);
		link_made(target, metadb_root, name);
	}
	CHECK_EQ(walk_place("l40", true, false).rc, 0);
	CHECK_EQ(walk_place("l41", true, false).rc, -ELOOP);
	metadb_end(&f);
}

static void paths_do_not_grow_without_a_bound(void)
{
	char target[4096], path[3000];

	metadb_start(&f);
	for (size_t i = 0; i < sizeof(target); i++)
		target[i] = i % 2 ? '/' : '.';
	target[4000] = 0;
	link_made(target, metadb_root, "long");
	memset(path, '/', sizeof(path));
	memcpy(path, "long", 4);
	path[90] = 0;
	CHECK_EQ(walk_place(path, true, false).rc, 0);
	path[90] = '/';
	path[2999] = 0;
	CHECK_EQ(walk_place(path, true, false).rc, -ENAMETOOLONG);
	metadb_end(&f);
}

static void the_leaf_may_be_what_a_link_points_to(void)
{
	struct wire_handle d;
	struct walked w;

	metadb_start(&f);
	d = metadb_make(&f, REC_MKDIR, metadb_root, "d");
	link_made("d/new", metadb_root, "link");
	link_made("/link", d, "twice");
	link_made("..", d, "dots");
	w = walk_place("link", true, true); /* open with O_CREAT */
	CHECK_EQ(w.rc, 0);
	CHECK_EQ(w.end.at.ino, d.ino);
	CHECK_STR(w.leaf, "new");
	w = walk_place("d/twice", true, true);
	CHECK_EQ(w.end.at.ino, d.ino);
	CHECK_STR(w.leaf, "new");
	w = walk_place("d/twice", false, true); /* unlink, rename, O_EXCL */
	CHECK_EQ(w.end.at.ino, d.ino);
	CHECK_STR(w.leaf, "twice");
	CHECK(!w.slash);
	w = walk_place("d/twice/", false, true); /* a trailing '/' follows the link */
	CHECK_EQ(w.end.at.ino, d.ino);
	CHECK_STR(w.leaf, "new");
	CHECK(w.slash);
	w = walk_place("d/plain", true, true);
	CHECK_STR(w.leaf, "plain");
	CHECK(!w.slash);
	link_made("d/none/", metadb_root, "slash");
	w = walk_place("slash", true, true);
	CHECK_STR(w.leaf, "none");
	CHECK(w.slash);
	CHECK_EQ(walk_place("d/dots", true, true).rc, -EINVAL);
	metadb_end(&f);
}

/* A directory in partition 5 whose parent is not on this server. No record makes one yet. */
static struct wire_handle far_dir(void)
{
	struct node n = { .i = { .mode = S_IFDIR | 0755,
				 .nlink = 2,
				 .gen = 1,
				 .parent_ino = META_ROOT_INO,
				 .parent_gen = META_ROOT_GEN,
				 .next_cookie = COOKIE_FIRST } };
	struct wire_handle h = { INO_MAKE(5, 1000000), 1 };
	MDB_txn *txn;

	reader_reset(f.m);
	CHECK_EQ(mdb_txn_begin(f.m->db.env, NULL, 0, &txn), 0);
	CHECK_EQ(node_put(&f.m->db, txn, h.ino, &n), 0);
	CHECK_EQ(mdb_txn_commit(txn), 0);
	return h;
}

static void walks_that_leave_our_partition_say_what_is_left(void)
{
	struct wire_referral end;
	struct wire_place p;

	metadb_prepare(&f);
	f.o.root = false;
	f.o.partition = 5;
	CHECK_EQ(metadb_open(&f), 0);
	p = (struct wire_place){ .dir = far_dir(), .path = wire_text("x/link/c//d") };
	metadb_make(&f, REC_MKDIR, p.dir, "x");
	CHECK_EQ(metadb_lookup(&f, p.dir, "x", &end.at), 0);
	link_made("/a/b", end.at, "link");
	CHECK_EQ(meta_walk(f.m, &root, &p, NULL, &end, &f.arena), -EREMOTE);
	CHECK(end.linked);
	CHECK_EQ(end.at.ino, META_ROOT_INO);
	CHECK_EQ(end.consumed, p.path.len);
	CHECK_EQ(end.rest.len, 9);
	CHECK(!memcmp(end.rest.p, "/a/b/c//d", 9));
	/* without a link, the rest of the path itself is referred */
	p.path = wire_text("x/../../y");
	CHECK_EQ(meta_walk(f.m, &root, &p, NULL, &end, &f.arena), -EREMOTE);
	CHECK(!end.linked);
	CHECK_EQ(end.at.ino, META_ROOT_INO);
	CHECK_EQ(end.consumed, 7);
	p.path = wire_text("x/link"); /* not followed: the link itself is on this server */
	CHECK_EQ(meta_walk(f.m, &root, &p, NULL, &end, &f.arena), 0);
	metadb_end(&f);
}

TEST_MAIN(TEST(a_file_has_as_many_names_as_it_is_given), TEST(a_file_is_removed_with_its_last_name),
	  TEST(links_are_refused_where_they_may_not_be), TEST(there_is_a_most_of_names),
	  TEST(renames_know_two_names_of_one_file),
	  TEST(a_link_is_made_once_however_often_it_is_asked_for),
	  TEST(a_symbolic_link_keeps_its_text),
	  TEST(what_is_for_files_is_refused_to_symbolic_links),
	  TEST(a_symbolic_link_is_removed_at_once), TEST(walks_go_through_symbolic_links),
	  TEST(circles_end), TEST(paths_do_not_grow_without_a_bound),
	  TEST(the_leaf_may_be_what_a_link_points_to),
	  TEST(walks_that_leave_our_partition_say_what_is_left))
