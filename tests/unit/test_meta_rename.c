/* The rules of rename within one server. */
#include "metadb.h"

static struct metadb f;

static void a_file_moves_with_its_attributes(void)
{
	struct wire_handle a, b, h, at;
	struct meta_node before, after;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	b = metadb_make(&f, REC_MKDIR, metadb_root, "b");
	h = metadb_make(&f, REC_CREATE, a, "x");
	before = metadb_node(&f, h);
	CHECK_EQ(metadb_rename(&f, a, "x", b, "y", 0), 0);
	CHECK_EQ(metadb_lookup(&f, a, "x", &at), -ENOENT);
	CHECK_EQ(metadb_lookup(&f, b, "y", &at), 0);
	CHECK_EQ(at.ino, h.ino);
	after = metadb_node(&f, h);
	CHECK_EQ(after.attr.mtime, before.attr.mtime);
	CHECK_EQ(after.attr.change, before.attr.change + 1);
	CHECK_EQ(metadb_node(&f, a).attr.size, 0);
	CHECK_EQ(metadb_node(&f, b).attr.size, 1);
	CHECK_EQ(metadb_node(&f, a).attr.nlink, 2);
	CHECK_EQ(metadb_rename(&f, b, "y", b, "z", 0), 0);
	CHECK_EQ(metadb_node(&f, b).attr.size, 1);
	CHECK_EQ(metadb_rename(&f, b, "none", b, "q", 0), ENOENT);
	metadb_end(&f);
}

static void a_file_replaces_a_file(void)
{
	struct wire_handle x, y, at;
	struct wire_record r;
	struct wire_record_res res;

	metadb_start(&f);
	x = metadb_make(&f, REC_CREATE, metadb_root, "x");
	y = metadb_make(&f, REC_CREATE, metadb_root, "y");
	CHECK_EQ(metadb_rename(&f, metadb_root, "x", metadb_root, "y", REC_NOREPLACE), EEXIST);
	r = rec_name(&f, REC_RENAME, metadb_root, "x");
	r.dir2 = metadb_root;
	r.name2 = wire_text("y");
	res = metadb_apply(&f, &r);
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.at.ino, x.ino);
	CHECK_EQ(res.removed.ino, y.ino);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "x", &at), -ENOENT);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "y", &at), 0);
	CHECK_EQ(at.ino, x.ino);
	CHECK_EQ(metadb_node(&f, y).attr.nlink, 0);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 1);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, 1);
	/* Onto itself: no change. */
	CHECK_EQ(metadb_rename(&f, metadb_root, "y", metadb_root, "y", 0), 0);
	CHECK_EQ(metadb_node(&f, x).attr.nlink, 1);
	CHECK_EQ(metadb_rename(&f, metadb_root, "y", metadb_root, "y", REC_NOREPLACE), EEXIST);
	CHECK_EQ(metadb_rename(&f, metadb_root, "y", metadb_root, "z", REC_NOREPLACE), 0);
	metadb_end(&f);
}

static void directories_replace_empty_directories_only(void)
{
	struct wire_handle a, b, sub, file, at;
	struct meta_node n;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	b = metadb_make(&f, REC_MKDIR, metadb_root, "b");
	sub = metadb_make(&f, REC_MKDIR, a, "sub");
	file = metadb_make(&f, REC_CREATE, a, "file");
	CHECK_EQ(metadb_rename(&f, a, "file", metadb_root, "b", 0), EISDIR);
	CHECK_EQ(metadb_rename(&f, metadb_root, "b", a, "file", 0), ENOTDIR);
	CHECK_EQ(metadb_rename(&f, metadb_root, "b", metadb_root, "a", 0), ENOTEMPTY);
	/* over its own parent directory */
	CHECK_EQ(metadb_rename(&f, a, "sub", metadb_root, "a", 0), ENOTEMPTY);
	CHECK_EQ(metadb_rename(&f, metadb_root, "a", metadb_root, "b", 0), 0);
	CHECK_EQ(meta_get(f.m, &b, &n, &f.arena), -ESTALE);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.nlink, 3);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.size, 1);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "b", &at), 0);
	CHECK_EQ(at.ino, a.ino);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 0);
	/* Moves a directory up, over an empty directory in another parent. */
	b = metadb_make(&f, REC_MKDIR, metadb_root, "empty");
	CHECK_EQ(metadb_rename(&f, a, "sub", metadb_root, "empty", 0), 0);
	CHECK_EQ(metadb_node(&f, sub).parent.ino, META_ROOT_INO);
	CHECK_EQ(metadb_node(&f, a).attr.nlink, 2);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.nlink, 4);
	CHECK_EQ(metadb_node(&f, file).attr.nlink, 1);
	metadb_end(&f);
}

static void a_directory_never_moves_below_itself(void)
{
	struct wire_handle a, b, c, other;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	b = metadb_make(&f, REC_MKDIR, a, "b");
	c = metadb_make(&f, REC_MKDIR, b, "c");
	other = metadb_make(&f, REC_MKDIR, metadb_root, "other");
	CHECK_EQ(metadb_rename(&f, metadb_root, "a", a, "x", 0), EINVAL);
	CHECK_EQ(metadb_rename(&f, metadb_root, "a", c, "x", 0), EINVAL);
	CHECK_EQ(metadb_rename(&f, a, "b", c, "x", 0), EINVAL);
	CHECK_EQ(metadb_rename(&f, metadb_root, "other", c, "x", 0), 0);
	CHECK_EQ(metadb_node(&f, other).parent.ino, c.ino);
	CHECK_EQ(metadb_rename(&f, b, "c", metadb_root, "c", 0), 0);
	CHECK_EQ(metadb_rename(&f, metadb_root, "a", other, "a", 0), 0);
	/* a is below c at this point */
	CHECK_EQ(metadb_rename(&f, metadb_root, "c", b, "c", 0), EINVAL);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.nlink, 3);
	metadb_end(&f);
}

static void rename_needs_permission_on_both_sides(void)
{
	struct wire_handle a, b;
	struct wire_record r;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a"); /* owned by root, mode 0755 */
	r = rec_name(&f, REC_MKDIR, metadb_root, "b");
	r.mode = 0777;
	r.uid = 5;
	b = (struct wire_handle){ metadb_apply(&f, &r).at.ino, 1 };
	metadb_make(&f, REC_CREATE, a, "x");
	metadb_make(&f, REC_CREATE, b, "y");
	metadb_make(&f, REC_CREATE, metadb_root, "roots");
	metadb_make(&f, REC_MKDIR, b, "dir"); /* owned by root */
	r = rec_name(&f, REC_RENAME, a, "x");
	r.dir2 = b;
	r.name2 = wire_text("z");
	r.uid = 6;
	CHECK_EQ(metadb_apply(&f, &r).status, EACCES);
	r.dir = b;
	r.name = wire_text("y");
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r.dir2 = a;
	r.name = wire_text("z");
	CHECK_EQ(metadb_apply(&f, &r).status, EACCES);
	/* The root is sticky: other users can neither move entries from it nor replace entries in
	 * it. */
	r.dir2 = metadb_root;
	r.name2 = wire_text("roots");
	CHECK_EQ(metadb_apply(&f, &r).status, EPERM);
	r.dir = metadb_root;
	r.name = wire_text("roots");
	r.dir2 = b;
	CHECK_EQ(metadb_apply(&f, &r).status, EPERM);
	/* A move changes the ".." of a directory, which needs write permission on it. */
	r.dir = b;
	r.name = wire_text("dir");
	r.dir2 = metadb_root;
	r.name2 = wire_text("dir");
	CHECK_EQ(metadb_apply(&f, &r).status, EACCES);
	r.uid = 0;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	metadb_end(&f);
}

static void other_partitions_are_exdev(void)
{
	struct wire_handle far = { UINT64_C(2) << 48 | 5, 1 };

	metadb_start(&f);
	metadb_make(&f, REC_CREATE, metadb_root, "x");
	CHECK_EQ(metadb_rename(&f, metadb_root, "x", far, "y", 0), EXDEV);
	CHECK_EQ(metadb_rename(&f, far, "x", metadb_root, "y", 0), EXDEV);
	metadb_end(&f);
}

static uint64_t at(struct wire_handle dir, const char *name)
{
	struct wire_handle h;

	return metadb_lookup(&f, dir, name, &h) ? 0 : h.ino;
}

static void an_exchange_swaps_what_two_names_mean(void)
{
	struct wire_handle a, b, x, y, d, link;
	struct wire_record r;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	b = metadb_make(&f, REC_MKDIR, metadb_root, "b");
	x = metadb_make(&f, REC_CREATE, a, "x");
	y = metadb_make(&f, REC_CREATE, b, "y");
	d = metadb_make(&f, REC_MKDIR, b, "d");
	CHECK_EQ(metadb_rename(&f, a, "x", b, "none", REC_EXCHANGE), ENOENT);
	CHECK_EQ(metadb_rename(&f, a, "x", b, "y", REC_EXCHANGE), 0);
	CHECK(at(a, "x") == y.ino && at(b, "y") == x.ino);
	CHECK_EQ(metadb_node(&f, x).attr.nlink, 1);
	CHECK_EQ(metadb_node(&f, y).attr.nlink, 1);
	/* A file and a directory are exchanged: the directory gets another parent, and the link
	 * counts follow. */
	CHECK_EQ(metadb_rename(&f, a, "x", b, "d", REC_EXCHANGE), 0);
	CHECK(at(a, "x") == d.ino && at(b, "d") == y.ino);
	CHECK_EQ(metadb_node(&f, a).attr.nlink, 3);
	CHECK_EQ(metadb_node(&f, b).attr.nlink, 2);
	CHECK_EQ(metadb_node(&f, a).attr.size, 1);
	CHECK_EQ(metadb_node(&f, b).attr.size, 2);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 0);
	/* Neither directory may move into itself, whichever is named first. */
	CHECK_EQ(metadb_rename(&f, metadb_root, "a", a, "x", REC_EXCHANGE), EINVAL);
	CHECK_EQ(metadb_rename(&f, a, "x", metadb_root, "a", REC_EXCHANGE), EINVAL);
	CHECK_EQ(metadb_rename(&f, metadb_root, "a", metadb_root, "b", REC_EXCHANGE), 0);
	CHECK(at(metadb_root, "a") == b.ino && at(metadb_root, "b") == a.ino);
	/* Two names of one file. */
	r = rec_name(&f, REC_LINK, a, "again");
	r.h = x;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_rename(&f, a, "again", b, "y", REC_EXCHANGE), 0);
	CHECK_EQ(metadb_lookup(&f, a, "again", &link), 0);
	CHECK_EQ(link.ino, x.ino);
	CHECK_EQ(metadb_node(&f, x).attr.nlink, 2);
	metadb_end(&f);
}

TEST_MAIN(TEST(an_exchange_swaps_what_two_names_mean), TEST(a_file_moves_with_its_attributes),
	  TEST(a_file_replaces_a_file), TEST(directories_replace_empty_directories_only),
	  TEST(a_directory_never_moves_below_itself), TEST(rename_needs_permission_on_both_sides),
	  TEST(other_partitions_are_exdev))
