/* Extended attributes: what is stored, permissions, limits; and older databases without the
 * tables. */
#include "meta/meta_schema.h"
#include "metadb.h"

static struct metadb f;
static const struct cred root = { 0, 0, 0, NULL }, user = { 5, 5, 0, NULL };

static int set_as(const struct cred *c, struct wire_handle h, const char *name, const void *value,
		  size_t len, uint32_t flags)
{
	struct wire_record r = rec_on(&f, REC_SETXATTR, h);

	r.uid = c->uid;
	r.gid = c->gid;
	r.name = wire_text(name);
	r.data = (struct wire_bytes){ (uint32_t)len, value };
	r.flags = flags;
	return metadb_apply(&f, &r).status;
}

static int set(struct wire_handle h, const char *name, const char *value)
{
	return set_as(&root, h, name, value, strlen(value), 0);
}

static int drop_as(const struct cred *c, struct wire_handle h, const char *name)
{
	struct wire_record r = rec_on(&f, REC_REMOVEXATTR, h);

	r.uid = c->uid;
	r.gid = c->gid;
	r.name = wire_text(name);
	return metadb_apply(&f, &r).status;
}

static int get_as(const struct cred *c, struct wire_handle h, const char *name,
		  struct wire_xattr_res *res)
{
	struct wire_bytes n = wire_text(name);

	return meta_getxattr(f.m, c, &h, &n, XATTR_VALUE_LEN, res, &f.arena);
}

static bool is(struct wire_handle h, const char *name, const char *value)
{
	struct wire_xattr_res res;

	CHECK_EQ(get_as(&root, h, name, &res), 0);
	CHECK_EQ(res.size, res.data.len);
	return res.size == strlen(value) && (!res.size || !memcmp(res.data.p, value, res.size));
}

static bool lists(const struct cred *c, struct wire_handle h, const char *names, size_t len)
{
	struct wire_xattr_res res;

	CHECK_EQ(meta_listxattr(f.m, c, &h, XATTR_VALUE_LEN, &res, &f.arena), 0);
	CHECK_EQ(res.size, res.data.len);
	return res.size == len && (!len || !memcmp(res.data.p, names, len));
}

static void values_are_kept_replaced_and_removed(void)
{
	struct wire_handle file, dir, near;
	struct wire_xattr_res res;
	struct meta_node before, n;
	struct wire_bytes name = wire_text("user.b");

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	near = metadb_make(&f, REC_CREATE, metadb_root, "neighbour");
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	CHECK(lists(&root, file, "", 0));
	before = metadb_node(&f, file);
	CHECK_EQ(set(file, "user.b", "value"), 0);
	CHECK_EQ(set(file, "user.a", ""), 0);
	CHECK_EQ(set(dir, "user.d", "of a directory"), 0);
	CHECK_EQ(set(near, "user.n", "n"), 0);
	n = metadb_node(&f, file);
	CHECK_EQ(n.attr.change, before.attr.change + 2);
	CHECK(n.attr.ctime > before.attr.ctime);
	CHECK_EQ(n.attr.mtime, before.attr.mtime);
	CHECK(is(file, "user.b", "value"));
	CHECK(is(file, "user.a", ""));
	CHECK(is(dir, "user.d", "of a directory"));
	CHECK(lists(&root, file, "user.a\0user.b", 14));
	CHECK_EQ(get_as(&root, file, "user.none", &res), -ENODATA);
	CHECK_EQ(set(file, "user.b", "another"), 0);
	metadb_reopen(&f);
	CHECK(is(file, "user.b", "another"));
	/* the buffer is too small: only the size is returned */
	CHECK_EQ(meta_getxattr(f.m, &root, &file, &name, 6, &res, &f.arena), 0);
	CHECK_EQ(res.size, 7);
	CHECK_EQ(res.data.len, 0);
	CHECK_EQ(meta_listxattr(f.m, &root, &file, 13, &res, &f.arena), 0);
	CHECK_EQ(res.size, 14);
	CHECK_EQ(res.data.len, 0);
	CHECK_EQ(drop_as(&root, file, "user.b"), 0);
	CHECK_EQ(drop_as(&root, file, "user.b"), ENODATA);
	CHECK(lists(&root, file, "user.a", 7));
	CHECK(lists(&root, near, "user.n", 7));
	metadb_end(&f);
}

static void create_and_replace_are_strict(void)
{
	struct wire_handle file;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	CHECK_EQ(set_as(&root, file, "user.a", "1", 1, REC_REPLACE), ENODATA);
	CHECK_EQ(set_as(&root, file, "user.a", "1", 1, REC_EXCL), 0);
	CHECK_EQ(set_as(&root, file, "user.a", "2", 1, REC_EXCL), EEXIST);
	CHECK(is(file, "user.a", "1"));
	CHECK_EQ(set_as(&root, file, "user.a", "3", 1, REC_REPLACE), 0);
	CHECK(is(file, "user.a", "3"));
	metadb_end(&f);
}

static void names_have_a_form(void)
{
	static const struct {
		const char *name;
		int status;
	} bad[] = { { "", ERANGE },	    { "user.", EINVAL },     { "trusted.", EINVAL },
		    { "user", EOPNOTSUPP }, { "security.", EINVAL }, { "system.x", EOPNOTSUPP },
		    { "x.y", EOPNOTSUPP } };
	struct wire_handle file, far = { UINT64_C(3) << 48 | 9, 1 };
	struct wire_xattr_res res;
	struct wire_record r;
	char longest[256];

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_EQ(set(file, bad[i].name, "x"), bad[i].status);
		CHECK_EQ(drop_as(&root, file, bad[i].name), bad[i].status);
		CHECK_EQ(get_as(&root, file, bad[i].name, &res), -bad[i].status);
	}
	r = rec_on(&f, REC_SETXATTR, file);
	r.name = (struct wire_bytes){ 8, (const uint8_t *)"user.a\0b" };
	CHECK_EQ(metadb_apply(&f, &r).status, EINVAL);
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "user.", 5);
	longest[255] = 0;
	CHECK_EQ(set(file, longest, "x"), 0);
	CHECK(is(file, longest, "x"));
	CHECK_EQ(set(far, "user.a", "x"), EXDEV);
	CHECK_EQ(set((struct wire_handle){ file.ino, 7 }, "user.a", "x"), ESTALE);
	CHECK_EQ(get_as(&root, far, "user.a", &res), -EREMOTE);
	metadb_end(&f);
}

static void permissions_are_those_of_linux(void)
{
	struct wire_handle file, dir, link;
	struct wire_xattr_res res;
	struct wire_record r;

	metadb_start(&f);
	r = rec_name(&f, REC_CREATE, metadb_root, "file");
	r.mode = 0644;
	file = (struct wire_handle){ metadb_apply(&f, &r).at.ino, 1 };
	CHECK_EQ(set(file, "user.a", "a"), 0);
	CHECK_EQ(set(file, "trusted.t", "t"), 0);
	CHECK_EQ(get_as(&user, file, "user.a", &res), 0);
	CHECK_EQ(set_as(&user, file, "user.a", "b", 1, 0), EACCES);
	CHECK_EQ(drop_as(&user, file, "user.a"), EACCES);
	CHECK_EQ(get_as(&user, file, "trusted.t", &res), -ENODATA);
	CHECK_EQ(set_as(&user, file, "trusted.t", "b", 1, 0), EPERM);
	CHECK_EQ(drop_as(&user, file, "trusted.t"), EPERM);
	CHECK(lists(&root, file, "trusted.t\0user.a", 17));
	CHECK(lists(&user, file, "user.a", 7));
	r = rec_on(&f, REC_SETATTR, file);
	r.which = SET_MODE;
	r.mode = 0600;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(get_as(&user, file, "user.a", &res), -EACCES);
	/* in a sticky directory that everyone may write, only its owner may */
	CHECK_EQ(set_as(&user, metadb_root, "user.a", "b", 1, 0), EPERM);
	CHECK_EQ(set(metadb_root, "user.a", "b"), 0);
	r = rec_name(&f, REC_MKDIR, metadb_root, "dir");
	r.mode = 0777;
	dir = (struct wire_handle){ metadb_apply(&f, &r).at.ino, 1 };
	CHECK_EQ(set_as(&user, dir, "user.a", "b", 1, 0), 0);
	/* symbolic links have no user.* attributes */
	r = rec_name(&f, REC_SYMLINK, metadb_root, "link");
	r.new_ino = meta_new_ino(f.m);
	r.data = wire_text("x");
	link = (struct wire_handle){ metadb_apply(&f, &r).at.ino, 1 };
	CHECK_EQ(set(link, "user.a", "b"), EPERM);
	CHECK_EQ(get_as(&root, link, "user.a", &res), -ENODATA);
	CHECK_EQ(set(link, "trusted.a", "b"), 0);
	metadb_end(&f);
}

static void there_is_a_most_of_everything(void)
{
	static uint8_t big[XATTR_VALUE_LEN];
	struct wire_handle file;
	struct wire_xattr_res res;
	char name[256];
	int n;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	memset(big, 'b', sizeof(big));
	for (n = 0; n < 20; n++) {
		snprintf(name, sizeof(name), "user.v%d", n);
		if (set_as(&root, file, name, big, sizeof(big), 0))
			break;
		metadb_reset(&f);
	}
	CHECK_EQ(n, 15); /* 16 values and their names are more than 1 MiB */
	CHECK_EQ(set_as(&root, file, name, big, sizeof(big), 0), ENOSPC);
	/* replaces the value in place */
	CHECK_EQ(set_as(&root, file, "user.v3", big, sizeof(big), 0), 0);
	CHECK_EQ(get_as(&root, file, "user.v3", &res), 0);
	CHECK_EQ(res.size, XATTR_VALUE_LEN);
	CHECK(!memcmp(res.data.p, big, sizeof(big)));
	CHECK_EQ(drop_as(&root, file, "user.v3"), 0);
	CHECK_EQ(set_as(&root, file, name, big, sizeof(big), 0), 0);
	/* many names: a listing must fit */
	file = metadb_make(&f, REC_CREATE, metadb_root, "other");
	memset(name, 'x', sizeof(name));
	for (n = 0; n < 300; n++) {
		snprintf(name, sizeof(name), "user.%04d", n);
		memset(name + 9, 'x', 246);
		name[255] = 0;
		if (set(file, name, ""))
			break;
		metadb_reset(&f);
	}
	CHECK_EQ(n, 256);
	CHECK_EQ(meta_listxattr(f.m, &root, &file, XATTR_VALUE_LEN, &res, &f.arena), 0);
	CHECK_EQ(res.size, 65536);
	metadb_end(&f);
}

static unsigned rows_left(void)
{
	struct wire_xattr_res res;
	unsigned n = 0;

	/* inode numbers are sequential: check all that were used */
	for (uint64_t i = 1; i < 50; i++) {
		struct wire_handle h = { i, 1 };

		if (meta_listxattr(f.m, &root, &h, 0, &res, &f.arena) == 0)
			n += res.size;
	}
	return n;
}

static void they_go_with_the_inode(void)
{
	struct wire_handle file, dir, link;
	struct wire_record r;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	r = rec_name(&f, REC_SYMLINK, metadb_root, "link");
	r.new_ino = meta_new_ino(f.m);
	r.data = wire_text("x");
	link = (struct wire_handle){ metadb_apply(&f, &r).at.ino, 1 };
	CHECK_EQ(set(file, "user.a", "1"), 0);
	CHECK_EQ(set(file, "user.b", "2"), 0);
	CHECK_EQ(set(dir, "user.c", "3"), 0);
	CHECK_EQ(set(link, "trusted.d", "4"), 0);
	CHECK_EQ(metadb_name(&f, REC_RMDIR, metadb_root, "dir").status, 0);
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, "link").status, 0);
	CHECK_EQ(metadb_name(&f, REC_UNLINK, metadb_root, "file").status, 0);
	CHECK(is(file, "user.b", "2")); /* open files keep their attributes */
	r = rec_on(&f, REC_REMOVED, file);
	r.obj_gen = 1;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(rows_left(), 0);
	metadb_end(&f);
}

static void a_retry_gets_the_answer_of_the_first_time(void)
{
	struct wire_handle file;
	struct wire_record r;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	r = rec_on(&f, REC_SESSION_NEW, metadb_root);
	r.session = 7;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r = rec_on(&f, REC_SETXATTR, file);
	r.name = wire_text("user.a");
	r.data = wire_text("x");
	r.flags = REC_EXCL;
	r.session = 7;
	r.sequence = 1;
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	r.sequence = 2;
	CHECK_EQ(metadb_apply(&f, &r).status, EEXIST);
	metadb_end(&f);
}

/* ---- a database of schema 1 ---- */

static void make_old(void)
{
	struct disk_head h;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi sys, t;
	MDB_val k = { 4, "head" }, v;

	meta_close(f.m);
	f.m = NULL;
	CHECK_EQ(mdb_env_create(&env), 0);
	CHECK_EQ(mdb_env_set_maxdbs(env, 16), 0);
	CHECK_EQ(mdb_env_set_mapsize(env, 1 << 30), 0);
	CHECK_EQ(mdb_env_open(env, f.dir, 0, 0600), 0);
	CHECK_EQ(mdb_txn_begin(env, NULL, 0, &txn), 0);
	CHECK_EQ(mdb_dbi_open(txn, "sys", 0, &sys), 0);
	CHECK_EQ(mdb_get(txn, sys, &k, &v), 0);
	memcpy(&h, v.mv_data, sizeof(h));
	h.version = 1;
	v = (MDB_val){ sizeof(h), &h };
	CHECK_EQ(mdb_put(txn, sys, &k, &v, 0), 0);
	CHECK_EQ(mdb_dbi_open(txn, "symlink", 0, &t), 0);
	CHECK_EQ(mdb_drop(txn, t, 1), 0);
	CHECK_EQ(mdb_dbi_open(txn, "xattr", 0, &t), 0);
	CHECK_EQ(mdb_drop(txn, t, 1), 0);
	CHECK_EQ(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

static void an_older_database_is_brought_up_to_date(void)
{
	struct wire_handle file;

	metadb_start(&f);
	file = metadb_make(&f, REC_CREATE, metadb_root, "file");
	make_old();
	CHECK_EQ(metadb_open(&f), 0);
	CHECK_EQ(metadb_node(&f, file).layout.n_targets, 3);
	CHECK_EQ(set(file, "user.a", "x"), 0);
	metadb_reopen(&f);
	CHECK(is(file, "user.a", "x"));
	metadb_end(&f);
}

static void what_the_bank_has_is_inherited(void)
{
	struct wire_handle dir, below, file, old;
	struct wire_xattr_res res;

	metadb_start(&f);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	old = metadb_make(&f, REC_CREATE, dir, "old");
	CHECK_EQ(set(dir, "sheaf.cache", "some"), EINVAL);
	CHECK_EQ(set_as(&user, dir, "sheaf.cache", "none", 4, 0), EPERM);
	CHECK_EQ(drop_as(&root, dir, "sheaf.cache"), ENODATA);
	CHECK_EQ(set_as(&root, dir, "sheaf.cache", "none", 4, REC_REPLACE), ENODATA);
	CHECK_EQ(set(dir, "sheaf.cache", "blocks"), 0);
	CHECK_EQ(set_as(&root, dir, "sheaf.cache", "none", 4, REC_EXCL), EEXIST);
	CHECK(is(dir, "sheaf.cache", "blocks"));
	CHECK(lists(&root, dir, "", 0));
	below = metadb_make(&f, REC_MKDIR, dir, "below");
	file = metadb_make(&f, REC_CREATE, below, "file");
	metadb_reopen(&f);
	CHECK(is(file, "sheaf.cache", "blocks"));
	CHECK_EQ(metadb_node(&f, file).cache, CACHE_CHOSEN | CACHE_BLOCKS);
	CHECK_EQ(get_as(&root, old, "sheaf.cache", &res), -ENODATA);
	CHECK_EQ(metadb_node(&f, old).cache, 0);
	CHECK_EQ(set(file, "sheaf.cache", "all"), 0);
	CHECK_EQ(set(below, "sheaf.cache", "attributes"), 0);
	CHECK(is(file, "sheaf.cache", "all") && is(below, "sheaf.cache", "attributes"));
	CHECK_EQ(drop_as(&root, file, "sheaf.cache"), 0);
	CHECK_EQ(metadb_node(&f, file).cache, 0);
	metadb_end(&f);
}

TEST_MAIN(TEST(values_are_kept_replaced_and_removed), TEST(create_and_replace_are_strict),
	  TEST(names_have_a_form), TEST(permissions_are_those_of_linux),
	  TEST(there_is_a_most_of_everything), TEST(they_go_with_the_inode),
	  TEST(a_retry_gets_the_answer_of_the_first_time), TEST(what_the_bank_has_is_inherited),
	  TEST(an_older_database_is_brought_up_to_date))
