/* Databases of older schemas, built byte by byte and not by the code under test; and a database of
 * the next schema. */
#include <endian.h>
#include <lmdb.h>

#include "acl_list.h"
#include "meta/meta_schema.h"
#include "metadb.h"

static struct metadb f;
static MDB_env *env;
static MDB_txn *txn;

/* ---- bytes ---- */

struct bytes {
	size_t n;
	uint8_t b[256];
};

static void put(struct bytes *to, const void *p, size_t n)
{
	CHECK(to->n + n <= sizeof(to->b));
	memcpy(to->b + to->n, p, n);
	to->n += n;
}

static void le32(struct bytes *to, uint32_t v)
{
	v = htole32(v);
	put(to, &v, sizeof(v));
}

static void le64(struct bytes *to, uint64_t v)
{
	v = htole64(v);
	put(to, &v, sizeof(v));
}

static struct bytes key_of(uint64_t id)
{
	struct bytes k = { 0 };

	id = htobe64(id);
	put(&k, &id, sizeof(id));
	return k;
}

static void row(const char *table, const struct bytes *key, const struct bytes *value)
{
	MDB_val k = { key->n, (void *)(uintptr_t)key->b },
		v = { value->n, (void *)(uintptr_t)value->b };
	MDB_dbi t;

	CHECK_EQ(mdb_dbi_open(txn, table, MDB_CREATE, &t), 0);
	CHECK_EQ(mdb_put(txn, t, &k, &v, 0), 0);
}

/* ---- rows of schema 1 ---- */

static void head(uint32_t version)
{
	struct bytes k = { 0 }, v = { 0 };

	put(&k, "head", 4);
	put(&v, "SHEAFMD", 8);
	le32(&v, version);
	le32(&v, 0); /* target */
	put(&v, f.o.fs.b, 16);
	le32(&v, 0); /* partition */
	le32(&v, 0);
	CHECK_EQ(v.n, 40);
	row("sys", &k, &v);
}

static void next_ino(uint64_t n)
{
	struct bytes k = { 0 }, v = { 0 };

	put(&k, "next\0\0", 6);
	le64(&v, n);
	row("sys", &k, &v);
}

static struct bytes inode(uint32_t mode, uint32_t nlink, uint64_t size, uint64_t entries,
			  uint64_t cookie)
{
	struct bytes v = { 0 };

	le32(&v, mode);
	le32(&v, nlink);
	le32(&v, 17); /* uid */
	le32(&v, 18); /* gid */
	le32(&v, 0);
	le32(&v, 1); /* generation */
	le64(&v, size);
	le64(&v, 5); /* change */
	for (uint64_t t = 1; t <= 4; t++)
		le64(&v, t * 1000000000); /* times */
	le64(&v, 1); /* epoch */
	le64(&v, 1); /* parent */
	le32(&v, 1);
	le32(&v, 0);
	le64(&v, entries);
	le64(&v, cookie);
	CHECK_EQ(v.n, 112);
	return v;
}

static void entry(uint64_t dir, const char *name, uint64_t ino, uint32_t type, uint64_t cookie)
{
	struct bytes by_name = key_of(dir), by_cookie = key_of(dir), e = { 0 }, x = { 0 };
	struct bytes number = key_of(cookie);

	put(&by_name, name, strlen(name));
	put(&by_cookie, number.b, number.n);
	le64(&e, ino);
	le64(&e, cookie);
	le32(&e, 1);
	le32(&e, type);
	le64(&x, ino);
	le32(&x, 1);
	le32(&x, type);
	put(&x, name, strlen(name));
	row("dirent", &by_name, &e);
	row("dirindex", &by_cookie, &x);
}

/* Writes the root with a directory "d", and in it a file "file" with a layout over targets 3 and
 * 1. */
static void write_database(uint32_t version)
{
	static const char *const empty[] = { "unsettled", "remove", "intent", "session", "slot" };
	struct bytes root = key_of(1), dir = key_of(2), file = key_of(3), v;
	MDB_dbi t;

	metadb_prepare(&f);
	CHECK_EQ(mdb_env_create(&env), 0);
	CHECK_EQ(mdb_env_set_maxdbs(env, 16), 0);
	CHECK_EQ(mdb_env_set_mapsize(env, 64 * MIB), 0);
	CHECK_EQ(mdb_env_open(env, f.dir, 0, 0600), 0);
	CHECK_EQ(mdb_txn_begin(env, NULL, 0, &txn), 0);
	for (size_t i = 0; i < ARRAY_LEN(empty); i++)
		CHECK_EQ(mdb_dbi_open(txn, empty[i], MDB_CREATE, &t), 0);
	head(version);
	next_ino(4);
	v = inode(S_IFDIR | 01777, 3, 0, 1, 4);
	row("inode", &root, &v);
	v = inode(S_IFDIR | 0755, 2, 0, 1, 4);
	row("inode", &dir, &v);
	v = inode(S_IFREG | 0640, 1, 12345, 0, 0);
	le32(&v, 1); /* layout version */
	le32(&v, 0);
	le32(&v, 65536);
	le32(&v, 1); /* start */
	le32(&v, 1); /* object generation */
	le32(&v, 0);
	le32(&v, 2);
	le32(&v, 3);
	le32(&v, 1);
	row("inode", &file, &v);
	entry(1, "d", 2, S_IFDIR, 3);
	entry(2, "file", 3, S_IFREG, 3);
	CHECK_EQ(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

/* ---- */

static void check_content(void)
{
	struct wire_handle dir = { 2, 1 }, file;
	struct meta_node n;

	CHECK_EQ(metadb_lookup(&f, metadb_root, "d", &dir), 0);
	CHECK_EQ(metadb_lookup(&f, dir, "file", &file), 0);
	n = metadb_node(&f, file);
	CHECK_EQ(n.attr.ino, 3);
	CHECK_EQ(n.attr.mode, S_IFREG | 0640);
	CHECK_EQ(n.attr.size, 12345);
	CHECK_EQ(n.attr.uid, 17);
	CHECK_EQ(n.attr.mtime, 2000000000);
	CHECK_EQ(n.epoch, 1);
	CHECK(!n.objects_within_size); /* the earlier writes to it are not known */
	CHECK_EQ(n.layout.n_targets, 2);
	CHECK_EQ(n.layout.start, 1);
	CHECK_EQ(n.layout.targets[0], 3);
}

static void goes_on(uint32_t version)
{
	struct acl_bytes list = acl_sample();
	struct wire_handle made, link;
	struct wire_record r;

	write_database(version);
	CHECK_EQ(metadb_open(&f), 0);
	check_content();
	made = metadb_make(&f, REC_CREATE, (struct wire_handle){ 2, 1 }, "new");
	CHECK_EQ(made.ino, 4); /* the next number of its counter */
	CHECK(metadb_node(&f, made).objects_within_size);
	/* uses a table that the old schema did not have */
	r = rec_name(&f, REC_SYMLINK, metadb_root, "link");
	r.new_ino = meta_new_ino(f.m);
	r.data = wire_text("d/file");
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	CHECK(!metadb_node(&f, made).acl.len &&
	      !metadb_node(&f, (struct wire_handle){ 2, 1 }).acl.len);
	r = rec_on(&f, REC_SETXATTR, made);
	r.name = wire_text(ACCESS_ACL);
	r.data = (struct wire_bytes){ list.len, list.b };
	CHECK_EQ(metadb_apply(&f, &r).status, 0);
	metadb_reopen(&f);
	check_content();
	CHECK_EQ(metadb_lookup(&f, metadb_root, "link", &link), 0);
	CHECK_EQ(metadb_node(&f, made).acl.len, list.len);
	metadb_end(&f);
}

static void older_schemas_are_read_and_upgraded(void)
{
	for (uint32_t v = SCHEMA_OLDEST; v < SCHEMA_VERSION; v++)
		goes_on(v);
}

/* The open returns an error and does not change the database. */
static void the_next_schema_is_refused_and_left_alone(void)
{
	char want[64];

	write_database(SCHEMA_VERSION + 1);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(metadb_open(&f), -EPROTONOSUPPORT);
		snprintf(want, sizeof(want), "newer Sheaf (schema %u, this one reads up to %u)",
			 SCHEMA_VERSION + 1, SCHEMA_VERSION);
		CHECK(strstr(f.err, want));
		CHECK(strstr(f.err, "install that version"));
	}
	metadb_sweep();
	loop_fini(&f.loop);
	arena_destroy(&f.arena);
}

static void a_schema_before_the_first_is_refused(void)
{
	write_database(0);
	CHECK_EQ(metadb_open(&f), -EPROTONOSUPPORT);
	CHECK(strstr(f.err, "too old"));
	metadb_sweep();
	loop_fini(&f.loop);
	arena_destroy(&f.arena);
}

TEST_MAIN(TEST(older_schemas_are_read_and_upgraded),
	  TEST(the_next_schema_is_refused_and_left_alone),
	  TEST(a_schema_before_the_first_is_refused))
