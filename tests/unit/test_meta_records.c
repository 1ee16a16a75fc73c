/* The effect of each kind of record, and the errors it returns. */
#include "metadb.h"

static struct metadb f;

static struct wire_record_res as(uint32_t uid, uint32_t gid, struct wire_record r)
{
	r.uid = uid;
	r.gid = gid;
	return metadb_apply(&f, &r);
}

static void a_new_database_has_a_root(void)
{
	struct meta_node n;

	metadb_start(&f);
	n = metadb_node(&f, metadb_root);
	CHECK_EQ(n.attr.mode, S_IFDIR | 01777);
	CHECK_EQ(n.attr.nlink, 2);
	CHECK_EQ(n.attr.uid, 0);
	CHECK_EQ(n.parent.ino, META_ROOT_INO);
	CHECK_EQ(n.layout.n_targets, 0);
	metadb_end(&f);
}

static void create_makes_a_file_and_touches_its_directory(void)
{
	struct wire_record_res res;
	struct meta_node before, after, n;

	metadb_start(&f);
	before = metadb_node(&f, metadb_root);
	res = metadb_name(&f, REC_CREATE, metadb_root, "file");
	CHECK_EQ(res.status, 0);
	CHECK(res.created);
	CHECK_EQ(res.at.mode, S_IFREG | 0755);
	CHECK_EQ(res.at.nlink, 1);
	CHECK_EQ(res.layout.n_targets, 3);
	CHECK_EQ(res.layout.targets[0], 3);
	CHECK_EQ(res.epoch, 1);
	CHECK(!res.at.unsettled);
	after = metadb_node(&f, metadb_root);
	CHECK_EQ(after.attr.nlink, 2);
	CHECK_EQ(after.attr.size, before.attr.size + 1);
	CHECK_EQ(after.attr.change, before.attr.change + 1);
	CHECK_EQ(after.attr.mtime, res.at.btime);
	n = metadb_node(&f, attr_handle(&res.at));
	CHECK_EQ(n.layout.unit, 65536);
	CHECK_EQ(n.layout.targets[2], 2);
	metadb_end(&f);
}

static void create_of_an_existing_name(void)
{
	struct wire_record r;
	struct wire_record_res first, res;

	metadb_start(&f);
	first = metadb_name(&f, REC_CREATE, metadb_root, "file");
	r = rec_name(&f, REC_CREATE, metadb_root, "file");
	res = metadb_apply(&f, &r);
	CHECK_EQ(res.status, 0);
	CHECK(!res.created);
	CHECK_EQ(res.at.ino, first.at.ino);
	CHECK_EQ(res.layout.n_targets, 3);
	CHECK(!meta_unsettled(f.m, first.at.ino));
	r.flags = REC_WRITER;
	res = metadb_apply(&f, &r);
	CHECK(res.at.unsettled);
	CHECK(meta_unsettled(f.m, first.at.ino));
	r.flags = REC_EXCL;
	CHECK_EQ(metadb_apply(&f, &r).status, EEXIST);
	metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	CHECK_EQ(metadb_name(&f, REC_CREATE, metadb_root, "dir").status, EISDIR);
	/* The caller has no write permission on the file. */
	r.flags = REC_WRITER;
	CHECK_EQ(as(5, 5, r).status, EACCES);
	r.flags = 0;
	CHECK_EQ(as(5, 5, r).status, 0);
	metadb_end(&f);
}

static void create_for_a_writer_is_unsettled_at_once(void)
{
	struct wire_record r;
	struct wire_record_res res;

	metadb_start(&f);
	r = rec_name(&f, REC_CREATE, metadb_root, "file");
	r.flags = REC_WRITER;
	res = metadb_apply(&f, &r);
	CHECK(res.created && res.at.unsettled);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), 1);
	/* only files with objects are ever settled */
	r = rec_name(&f, REC_MKNOD, metadb_root, "pipe");
	r.mode = S_IFIFO | 0644;
	r.new_ino = meta_new_ino(f.m);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = rec_name(&f, REC_CREATE, metadb_root, "pipe");
	r.flags = REC_WRITER;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), 1);
	metadb_end(&f);
}

/* A name with a trailing '/' must be, or become, a directory. */
static void slashes_are_for_directories(void)
{
	static const uint32_t makers[] = { REC_SYMLINK, REC_LINK, REC_MKNOD };
	struct wire_record r;

	metadb_start(&f);
	metadb_make(&f, REC_CREATE, metadb_root, "file");
	for (size_t i = 0; i < ARRAY_LEN(makers); i++) {
		r = rec_name(&f, makers[i], metadb_root, "new");
		r.flags = REC_SLASH;
		r.mode = S_IFIFO;
		r.data = wire_text("text");
		CHECK_EQ(metadb_apply(&f, &r).status, ENOENT);
		r.name = wire_text("file");
		CHECK_EQ(metadb_apply(&f, &r).status, EEXIST);
	}
	r = rec_name(&f, REC_UNLINK, metadb_root, "file");
	r.flags = REC_SLASH;
	CHECK_EQ(metadb_apply(&f, &r).status, ENOTDIR);
	CHECK_EQ(metadb_rename(&f, metadb_root, "file", metadb_root, "x", REC_SLASH), ENOTDIR);
	CHECK_EQ(metadb_rename(&f, metadb_root, "file", metadb_root, "x", REC_SLASH2), ENOTDIR);
	r = rec_name(&f, REC_MKDIR, metadb_root, "dir");
	r.flags = REC_SLASH;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_rename(&f, metadb_root, "dir", metadb_root, "d", REC_SLASH | REC_SLASH2),
		 0);
	CHECK_EQ(metadb_rename(&f, metadb_root, "file", metadb_root, "d", REC_EXCHANGE | REC_SLASH),
		 ENOTDIR);
	CHECK_EQ(metadb_rename(&f, metadb_root, "d", metadb_root, "file",
			       REC_EXCHANGE | REC_SLASH2),
		 ENOTDIR);
	CHECK_EQ(metadb_rename(&f, metadb_root, "file", metadb_root, "d",
			       REC_EXCHANGE | REC_SLASH2),
		 0);
	r = rec_name(&f, REC_RMDIR, metadb_root, "file");
	r.flags = REC_SLASH;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	metadb_end(&f);
}

static void bad_names_are_refused(void)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "/" };
	char longest[257];
	struct wire_record r;

	metadb_start(&f);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_EQ(metadb_name(&f, REC_CREATE, metadb_root, bad[i]).status, EINVAL);
		CHECK_EQ(metadb_name(&f, REC_MKDIR, metadb_root, bad[i]).status, EINVAL);
		CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, bad[i]).status, EINVAL);
		CHECK_EQ(metadb_rename(&f, metadb_root, "x", metadb_root, bad[i], 0), EINVAL);
	}
	r = rec_name(&f, REC_CREATE, metadb_root, "");
	r.name = (struct wire_bytes){ 3, (const uint8_t *)"a\0b" };
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	memset(longest, 'x', 256);
	longest[256] = 0;
	CHECK_EQ(metadb_name(&f, REC_CREATE, metadb_root, longest).status, ENAMETOOLONG);
	longest[255] = 0;
	metadb_make(&f, REC_CREATE, metadb_root, longest);
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, longest).status, 0);
	metadb_end(&f);
}

static void the_parent_must_be_a_directory_that_grants_it(void)
{
	struct wire_handle dir, file, gone = { 12345, 1 }, far = { UINT64_C(3) << 48 | 9, 1 };
	struct wire_record r;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	CHECK_EQ(metadb_name(&f, REC_CREATE, file, "x").status, ENOTDIR);
	CHECK_EQ(metadb_name(&f, REC_CREATE, gone, "x").status, ESTALE);
	CHECK_EQ(metadb_name(&f, REC_CREATE, far, "x").status, EXDEV);
	gone = (struct wire_handle){ dir.ino, dir.gen + 1 };
	CHECK_EQ(metadb_name(&f, REC_MKDIR, gone, "x").status, ESTALE);
	CHECK_EQ(as(5, 5, rec_name(&f, REC_CREATE, dir, "x")).status, EACCES);
	CHECK_EQ(as(5, 5, rec_name(&f, REC_MKDIR, dir, "x")).status, EACCES);
	CHECK_EQ(as(5, 5, rec_name(&f, REC_CREATE, metadb_root, "y")).at.uid, 5);
	/* The inode number must be new and in this partition. */
	r = rec_name(&f, REC_CREATE, dir, "z");
	r.new_ino = file.ino;
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	r.new_ino = far.ino;
	CHECK_EQ(metadb_apply(&f, &r).status, EXDEV);
	metadb_end(&f);
}

static void setgid_directories_give_their_group(void)
{
	struct wire_record r;
	struct wire_record_res res;
	struct wire_handle dir;

	metadb_start(&f);
	r = rec_name(&f, REC_MKDIR, metadb_root, "dir");
	r.mode = 02777;
	r.gid = 40;
	res = metadb_apply(&f, &r);
	dir = attr_handle(&res.at);
	res = as(5, 5, rec_name(&f, REC_CREATE, dir, "file"));
	CHECK_EQ(res.at.gid, 40);
	CHECK_EQ(res.at.mode & S_ISGID, 0);
	res = as(5, 5, rec_name(&f, REC_MKDIR, dir, "sub"));
	CHECK_EQ(res.at.gid, 40);
	CHECK_EQ(res.at.mode & S_ISGID, S_ISGID);
	metadb_end(&f);
}

static void mkdir_and_rmdir_count_links(void)
{
	struct wire_handle dir, sub;
	struct wire_record_res res;
	struct meta_node n;

	metadb_start(&f);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	CHECK_EQ(metadb_node(&f, metadb_root).attr.nlink, 3);
	CHECK_EQ(metadb_node(&f, dir).attr.nlink, 2);
	CHECK_EQ(metadb_node(&f, dir).parent.ino, META_ROOT_INO);
	CHECK_EQ(metadb_name(&f, REC_MKDIR, metadb_root, "dir").status, EEXIST);
	sub = metadb_make(&f, REC_CREATE, dir, "file");
	CHECK_EQ(metadb_name(&f, REC_RMDIR, metadb_root, "dir").status, ENOTEMPTY);
	CHECK_EQ(metadb_name(&f, REC_RMDIR, dir, "file").status, ENOTDIR);
	CHECK_EQ(metadb_name(&f, REC_RMDIR, dir, "none").status, ENOENT);
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, "dir").status, EISDIR);
	CHECK_EQ(metadb_name(&f, REC_UNLINK, dir, "file").status, 0);
	res = metadb_name(&f, REC_RMDIR, metadb_root, "dir");
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.at.nlink, 0);
	CHECK_EQ(res.removed.ino, 0);
	CHECK_EQ(metadb_node(&f, metadb_root).attr.nlink, 2);
	CHECK_EQ(meta_get(f.m, &dir, &n, &f.arena), -ESTALE);
	CHECK_EQ(metadb_name(&f, REC_CREATE, dir, "x").status, ESTALE);
	CHECK_EQ(metadb_node(&f, sub).attr.nlink, 0);
	metadb_end(&f);
}

static void unlink_keeps_the_inode_until_its_objects_are_gone(void)
{
	struct wire_record r;
	struct wire_record_res res;
	struct wire_handle h;
	struct meta_node n;

	metadb_start(&f);
	r = rec_name(&f, REC_CREATE, metadb_root, "file");
	r.flags = REC_WRITER;
	res = metadb_apply(&f, &r);
	h = attr_handle(&res.at);
	r = rec_on(&f, REC_REMOVED, h);
	r.obj_gen = 1;
	CHECK_EQ(metadb_apply(&f, &r).status, EBUSY);
	res = metadb_name(&f, REC_UNLINK, metadb_root, "file");
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.at.nlink, 0);
	CHECK_EQ(res.layout.n_targets, 3);
	CHECK_EQ(res.removed.ino, h.ino);
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, "file").status, ENOENT);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 1);
	CHECK_EQ(metadb_node(&f, h).attr.nlink, 0);
	metadb_reopen(&f);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 1);
	r.obj_gen = 7; /* objects of another generation */
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 1);
	r.obj_gen = 1;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 0);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), 0);
	CHECK_EQ(meta_get(f.m, &h, &n, &f.arena), -ESTALE);
	CHECK_EQ(metadb_apply(&f, &r).status, ESTALE);
	metadb_end(&f);
}

static void sticky_directories_protect_their_entries(void)
{
	metadb_start(&f);
	CHECK_EQ(as(5, 5, rec_name(&f, REC_CREATE, metadb_root, "five")).status, 0);
	CHECK_EQ(as(6, 6, rec_name(&f, REC_UNLINK, metadb_root, "five")).status, EPERM);
	CHECK_EQ(as(5, 5, rec_name(&f, REC_UNLINK, metadb_root, "five")).status, 0);
	CHECK_EQ(as(5, 5, rec_name(&f, REC_MKDIR, metadb_root, "five")).status, 0);
	CHECK_EQ(as(6, 6, rec_name(&f, REC_RMDIR, metadb_root, "five")).status, EPERM);
	CHECK_EQ(as(0, 0, rec_name(&f, REC_RMDIR, metadb_root, "five")).status, 0);
	metadb_end(&f);
}

static struct wire_record_res chmod_as(uint32_t uid, uint32_t gid, struct wire_handle h,
				       uint32_t mode)
{
	struct wire_record r = rec_on(&f, REC_SETATTR, h);

	r.which = SET_MODE;
	r.mode = mode;
	return as(uid, gid, r);
}

static void chmod_is_for_owners(void)
{
	struct wire_record_res made, res;
	struct wire_handle h;

	metadb_start(&f);
	made = as(5, 50, rec_name(&f, REC_CREATE, metadb_root, "file"));
	h = attr_handle(&made.at);
	CHECK_EQ(chmod_as(6, 50, h, 0600).status, EPERM);
	res = chmod_as(5, 50, h, 06711);
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.at.mode, S_IFREG | 06711);
	CHECK_EQ(res.at.change, made.at.change + 1);
	CHECK(res.at.ctime > made.at.ctime);
	CHECK_EQ(res.at.mtime, made.at.mtime);
	/* the caller is not in the file's group: setgid is dropped */
	res = chmod_as(5, 51, h, 06711);
	CHECK_EQ(res.at.mode, S_IFREG | 04711);
	res = chmod_as(0, 0, h, S_IFDIR | 02755); /* the file type does not change */
	CHECK_EQ(res.at.mode, S_IFREG | 02755);
	metadb_end(&f);
}

static void chown_is_for_root_and_for_ones_own_groups(void)
{
	uint32_t gids[] = { 60, 61 };
	struct wire_record r;
	struct wire_record_res res;
	struct wire_handle h;

	metadb_start(&f);
	r = rec_name(&f, REC_CREATE, metadb_root, "file");
	r.mode = 06755;
	res = as(5, 50, r);
	h = attr_handle(&res.at);
	r = rec_on(&f, REC_SETATTR, h);
	r.which = SET_GID;
	r.group = 61;
	CHECK_EQ(as(5, 50, r).status, EPERM);
	r.n_gids = 2;
	r.gids = gids;
	CHECK_EQ(as(6, 50, r).status, EPERM);
	res = as(5, 50, r);
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.at.gid, 61);
	CHECK_EQ(res.at.mode, S_IFREG | 0755); /* suid and sgid are gone */
	r.which = SET_UID;
	r.owner = 6;
	CHECK_EQ(as(5, 50, r).status, EPERM);
	r.owner = 5;
	CHECK_EQ(as(5, 50, r).status, 0);
	r.owner = 6;
	CHECK_EQ(as(0, 0, r).at.uid, 6);
	metadb_end(&f);
}

/* A record that makes "new" with these attributes. */
static struct wire_record making(uint32_t kind, struct wire_new_attr *set)
{
	struct wire_record r = rec_name(&f, REC_CREATE, metadb_root, "new"); /* with a layout */

	r.kind = kind;
	r.data = wire_text("target");
	r.mode = kind == REC_MKNOD ? S_IFREG | 06755 : 0755;
	r.n_set = 1;
	r.set = set;
	return r;
}

static void remove_new(uint32_t kind)
{
	struct wire_record r =
		rec_name(&f, kind == REC_MKDIR ? REC_RMDIR : REC_UNLINK, metadb_root, "new");

	CHECK_EQ(metadb_apply(&f, &r).status, 0);
}

/* A new inode and its owner, group, size and times are one record: refused, it leaves nothing. */
static void a_new_inode_gets_its_attributes_or_is_not_made(void)
{
	static const uint32_t kinds[] = { REC_MKNOD, REC_MKDIR, REC_SYMLINK };
	uint32_t gids[] = { 60, 61 };
	struct wire_record_res res;

	metadb_start(&f);
	CHECK_EQ(chmod_as(0, 0, metadb_root, 0777).status, 0);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct wire_new_attr set = { .which = SET_UID | SET_GID | SET_ATIME | SET_MTIME,
					     .uid = 7,
					     .gid = 61,
					     .atime = -5,
					     .mtime = 6 };
		struct wire_record r = making(kinds[i], &set);

		r.n_gids = 2;
		r.gids = gids;
		CHECK_EQ(as(5, 50, r).status, EPERM); /* of another user */
		set.uid = 5;
		set.gid = 62;
		CHECK_EQ(as(5, 50, r).status, EPERM); /* of a group of others */
		set.gid = 61;
		res = as(5, 50, r);
		CHECK_EQ(res.status, 0);
		CHECK(res.at.uid == 5 && res.at.gid == 61);
		remove_new(kinds[i]);
		set.uid = 7;
		set.size = 1000;
		set.which |= kinds[i] == REC_MKNOD ? SET_SIZE : 0;
		r = making(kinds[i], &set);
		res = metadb_apply(&f, &r);
		CHECK_EQ(res.status, 0);
		CHECK(res.at.uid == 7 && res.at.gid == 61 && !res.at.unsettled);
		CHECK(res.at.atime == -5 && res.at.mtime == 6 && res.at.ctime == r.time);
		CHECK(kinds[i] != REC_MKNOD || res.at.size == 1000);
		CHECK(kinds[i] != REC_MKNOD || res.at.mode == (S_IFREG | 06755));
		remove_new(kinds[i]);
	}
	metadb_end(&f);
}

static void utimens_follows_posix(void)
{
	struct wire_record r;
	struct wire_record_res res;
	struct wire_handle h;

	metadb_start(&f);
	r = rec_name(&f, REC_CREATE, metadb_root, "file");
	r.mode = 0622;
	res = as(5, 5, r);
	h = attr_handle(&res.at);
	r = rec_on(&f, REC_SETATTR, h);
	r.which = SET_ATIME | SET_MTIME;
	r.atime = -7;
	r.mtime = 8;
	CHECK_EQ(as(6, 6, r).status, EPERM);
	res = as(5, 5, r);
	CHECK_EQ(res.at.atime, -7);
	CHECK_EQ(res.at.mtime, 8);
	CHECK_EQ(res.at.ctime, r.time);
	r.which = SET_ATIME_NOW | SET_MTIME_NOW;
	CHECK_EQ(as(6, 6, r).at.mtime, r.time); /* users with write permission may, too */
	r.which = SET_MTIME_NOW;
	CHECK_EQ(as(6, 6, r).status, EPERM);
	CHECK_EQ(chmod_as(5, 5, h, 0600).status, 0);
	r.which = SET_ATIME_NOW | SET_MTIME_NOW;
	CHECK_EQ(as(6, 6, r).status, EACCES);
	metadb_end(&f);
}

static struct wire_record_res record(struct wire_handle h, uint64_t epoch, uint64_t size,
				     int64_t mtime, uint32_t flags)
{
	struct wire_record r = rec_on(&f, REC_RECORD, h);

	r.epoch = epoch;
	r.size = size;
	r.mtime = mtime;
	r.flags = flags;
	return metadb_apply(&f, &r);
}

static void writers_grow_size_and_mtime_and_the_last_one_settles(void)
{
	struct wire_handle h;
	struct wire_record r;
	struct wire_record_res res;
	int64_t later;
	uint64_t change;

	metadb_start(&f);
	h = metadb_make(&f, REC_CREATE, metadb_root, "file");
	r = rec_on(&f, REC_UNSETTLE, h);
	CHECK(metadb_apply(&f, &r).at.unsettled);
	r.h = metadb_root;
	CHECK_EQ(metadb_apply(&f, &r).status, EISDIR);
	later = (int64_t)f.clock + 5000;
	res = record(h, 1, 100, later, 0);
	CHECK_EQ(res.at.size, 100);
	CHECK_EQ(res.at.mtime, later);
	change = res.at.change;
	res = record(h, 1, 50, later - 9, 0); /* a write counts even if the clock went back */
	CHECK_EQ(res.at.size, 100);
	CHECK_EQ(res.at.mtime, later - 9);
	CHECK_EQ(res.at.ctime, later - 9);
	CHECK(res.at.change > change);
	change = res.at.change;
	res = record(h, 1, 0, 0, REC_LAST_WRITER);
	CHECK_EQ(res.at.size, 100);
	CHECK_EQ(res.at.change, change); /* nothing was written */
	CHECK(!res.at.unsettled);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), 0);
	/* A report under an older epoch is ignored: only the objects know what its writer wrote. */
	r = rec_on(&f, REC_UNSETTLE, h);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = rec_on(&f, REC_SETTLE_BEGIN, h);
	CHECK_EQ(metadb_apply(&f, &r).epoch, 2);
	res = record(h, 1, 900, later + 9, REC_LAST_WRITER);
	CHECK_EQ(res.at.size, 100);
	CHECK(res.at.unsettled);
	metadb_end(&f);
}

/* The size bounds which objects can exist, from the creation until a fence or a report beyond
 * it. */
static void a_new_file_is_within_its_size_until_a_fence_or_a_report(void)
{
	static const uint32_t fences[] = { REC_SETTLE_BEGIN, REC_TRUNC_BEGIN };
	struct wire_handle h, dir;
	struct wire_record r;

	metadb_start(&f);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	CHECK(!metadb_node(&f, dir).objects_within_size &&
	      !metadb_node(&f, metadb_root).objects_within_size);
	h = metadb_make(&f, REC_CREATE, dir, "told");
	CHECK(metadb_node(&f, h).objects_within_size);
	CHECK_EQ(record(h, 1, 100, 7, REC_LAST_WRITER).at.size, 100);
	CHECK_EQ(record(h, 1, 0, 0, REC_LAST_WRITER).at.size, 100);
	metadb_reopen(&f);
	CHECK(metadb_node(&f, h).objects_within_size);
	CHECK_EQ(record(h, 0, 0, 0, REC_BEYOND).at.size, 100);
	CHECK(!metadb_node(&f, h).objects_within_size);
	CHECK_EQ(record(h, 1, 200, 7, REC_BEYOND | REC_LAST_WRITER).at.size, 200);
	metadb_reopen(&f);
	CHECK(!metadb_node(&f, h).objects_within_size);
	for (int i = 0; i < 2; i++) {
		h = metadb_make(&f, REC_CREATE, dir, i ? "truncated" : "settled");
		CHECK(metadb_node(&f, h).objects_within_size);
		r = rec_on(&f, fences[i], h);
		CHECK_EQ(metadb_apply(&f, &r).status, 0);
		CHECK(!metadb_node(&f, h).objects_within_size);
	}
	metadb_end(&f);
}

static struct wire_record_res settle_end(struct wire_handle h, uint64_t epoch, uint64_t size)
{
	struct wire_record r = rec_on(&f, REC_SETTLE_END, h);

	r.epoch = epoch;
	r.size = size;
	return metadb_apply(&f, &r);
}

static void settling_counts_only_when_nothing_came_between(void)
{
	struct wire_handle h;
	struct wire_record begin, unsettle;

	metadb_start(&f);
	h = metadb_make(&f, REC_CREATE, metadb_root, "file");
	unsettle = rec_on(&f, REC_UNSETTLE, h);
	begin = rec_on(&f, REC_SETTLE_BEGIN, h);
	metadb_apply(&f, &unsettle);
	CHECK_EQ(metadb_apply(&f, &begin).epoch, 2);
	CHECK_EQ(metadb_apply(&f, &begin).epoch, 3);
	CHECK_EQ(settle_end(h, 2, 10).status, EAGAIN);
	CHECK_EQ(settle_end(h, 4, 10).status, EAGAIN);
	CHECK(meta_unsettled(f.m, h.ino));
	metadb_apply(&f, &unsettle); /* a writer opens after the fence: its row stays */
	CHECK_EQ(settle_end(h, 3, 10).status, EAGAIN);
	CHECK(meta_unsettled(f.m, h.ino));
	CHECK_EQ(metadb_apply(&f, &begin).epoch, 4);
	CHECK_EQ(settle_end(h, 4, 10).at.size, 10);
	CHECK(!meta_unsettled(f.m, h.ino));
	metadb_end(&f);
}

static bool keep_row(void *arg, const struct meta_row *r)
{
	*(struct meta_row *)arg = *r;
	return true;
}

static void truncates_are_intents_until_they_end(void)
{
	struct wire_handle h;
	struct wire_record begin, end;
	struct wire_record_res res;
	struct meta_row row = { .size = 0 };

	metadb_start(&f);
	h = metadb_make(&f, REC_CREATE, metadb_root, "file");
	record(h, 1, 1000, 0, 0);
	begin = rec_on(&f, REC_TRUNC_BEGIN, h);
	begin.size = 10;
	res = metadb_apply(&f, &begin);
	CHECK_EQ(res.epoch, 2);
	CHECK_EQ(res.at.size, 1000);
	CHECK_EQ(res.layout.n_targets, 3);
	begin.size = 20;
	CHECK_EQ(metadb_apply(&f, &begin).epoch, 3);
	metadb_reopen(&f);
	CHECK_EQ(meta_each_row(f.m, ROWS_TRUNCATE, keep_row, &row), 0);
	CHECK_EQ(row.h.ino, h.ino);
	CHECK_EQ(row.h.gen, h.gen);
	CHECK_EQ(row.epoch, 3);
	CHECK_EQ(row.size, 20);
	end = rec_on(&f, REC_TRUNC_END, h);
	end.epoch = 2;
	end.size = 10;
	res = metadb_apply(&f, &end); /* an older epoch than the intent: ignored */
	CHECK_EQ(res.status, 0);
	CHECK_EQ(res.at.size, 1000);
	end.epoch = 4;
	CHECK_EQ(metadb_apply(&f, &end).status, EINVAL);
	end.epoch = 3;
	end.size = 20;
	res = metadb_apply(&f, &end);
	CHECK_EQ(res.at.size, 20);
	CHECK_EQ(res.at.mtime, end.time);
	CHECK_EQ(res.at.ctime, end.time);
	CHECK_EQ(metadb_rows(&f, ROWS_TRUNCATE), 0);
	res = metadb_apply(&f, &end);
	CHECK_EQ(res.status, 0); /* a repetition has no effect */
	/* The report of a writer under an older epoch refers to data that were cut off. */
	CHECK_EQ(record(h, 2, 1000, 0, 0).at.size, 20);
	CHECK_EQ(record(h, 3, 1000, 0, 0).at.size, 1000);
	begin.h = end.h = metadb_root;
	CHECK_EQ(metadb_apply(&f, &begin).status, EISDIR);
	CHECK_EQ(metadb_apply(&f, &end).status, EISDIR);
	metadb_end(&f);
}

static void the_map_has_versions(void)
{
	struct wire_record r;
	struct wire_bytes blob;
	uint32_t version;

	metadb_start(&f);
	CHECK_EQ(meta_map(f.m, &version, &blob, &f.arena), 0);
	CHECK_EQ(version, 0);
	CHECK_EQ(blob.len, 0);
	r = rec_on(&f, REC_MAP, metadb_root);
	r.data = wire_text("first");
	CHECK_EQ(metadb_apply(&f, &r).epoch, 1);
	r.epoch = 5;
	r.data = wire_text("fifth!");
	CHECK_EQ(metadb_apply(&f, &r).epoch, 5);
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	metadb_reopen(&f);
	CHECK_EQ(meta_map(f.m, &version, &blob, &f.arena), 0);
	CHECK_EQ(version, 5);
	CHECK_EQ(blob.len, 6);
	CHECK(!memcmp(blob.p, "fifth!", 6));
	metadb_end(&f);
}

static void a_report_names_as_many_objects_as_there_may_be_targets(void)
{
	struct wire_object_note notes[CONF_MAX_TARGETS];
	struct wire_record r;

	metadb_start(&f);
	r = rec_on(&f, REC_RECORD, metadb_make(&f, REC_CREATE, metadb_root, "file"));
	for (uint32_t i = 0; i < CONF_MAX_TARGETS; i++)
		notes[i] = (struct wire_object_note){ .index = i, .end = 4096, .blocks = 8 };
	r.objects = notes;
	r.n_objects = CONF_MAX_TARGETS;
	r.epoch = 1;
	r.size = 12288;
	r.mtime = r.time;
	CHECK_EQ(metadb_apply(&f, &r).at.size, 12288);
	metadb_end(&f);
}

static void unknown_kinds_and_stale_handles_are_answers(void)
{
	static const uint32_t on_handles[] = { REC_SETATTR,	REC_UNSETTLE,  REC_RECORD,
					       REC_TRUNC_BEGIN, REC_TRUNC_END, REC_SETTLE_BEGIN,
					       REC_SETTLE_END,	REC_REMOVED };
	struct wire_handle gone = { 99, 1 };
	struct wire_record r;

	metadb_start(&f);
	for (size_t i = 0; i < ARRAY_LEN(on_handles); i++) {
		r = rec_on(&f, on_handles[i], gone);
		CHECK_EQ(metadb_apply(&f, &r).status, ESTALE);
	}
	r = rec_on(&f, 0, gone);
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	r = rec_on(&f, 4711, gone);
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	metadb_end(&f);
}

TEST_MAIN(TEST(a_new_database_has_a_root), TEST(create_makes_a_file_and_touches_its_directory),
	  TEST(create_of_an_existing_name), TEST(create_for_a_writer_is_unsettled_at_once),
	  TEST(slashes_are_for_directories), TEST(bad_names_are_refused),
	  TEST(the_parent_must_be_a_directory_that_grants_it),
	  TEST(setgid_directories_give_their_group), TEST(mkdir_and_rmdir_count_links),
	  TEST(unlink_keeps_the_inode_until_its_objects_are_gone),
	  TEST(sticky_directories_protect_their_entries), TEST(chmod_is_for_owners),
	  TEST(chown_is_for_root_and_for_ones_own_groups),
	  TEST(a_new_inode_gets_its_attributes_or_is_not_made), TEST(utimens_follows_posix),
	  TEST(writers_grow_size_and_mtime_and_the_last_one_settles),
	  TEST(a_new_file_is_within_its_size_until_a_fence_or_a_report),
	  TEST(settling_counts_only_when_nothing_came_between),
	  TEST(truncates_are_intents_until_they_end), TEST(the_map_has_versions),
	  TEST(a_report_names_as_many_objects_as_there_may_be_targets),
	  TEST(unknown_kinds_and_stale_handles_are_answers))
