/* Walks, permissions, and readdir with stable cookies. */
#include "metadb.h"

static struct metadb f;
static const struct cred root = { 0, 0, 0, NULL };

struct walked {
	int rc;
	struct wire_handle at;
	uint32_t consumed;
	char leaf[300];
	bool slash;
};

static struct walked walk_as(const struct cred *c, struct wire_handle dir, const char *path,
			     bool leaf)
{
	struct wire_place p = { .dir = dir, .path = wire_text(path) };
	struct meta_leaf l = { { 0, NULL }, false };
	struct walked w = { .rc = 0 };
	struct wire_referral end;

	w.rc = meta_walk(f.m, c, &p, leaf ? &l : NULL, &end, &f.arena);
	w.at = end.at;
	w.consumed = end.consumed;
	if (leaf && l.name.p)
		memcpy(w.leaf, l.name.p, MIN(l.name.len, sizeof(w.leaf) - 1));
	w.slash = l.slash;
	return w;
}

static struct walked walk(struct wire_handle dir, const char *path)
{
	return walk_as(&root, dir, path, false);
}

static struct walked walk_leaf(struct wire_handle dir, const char *path)
{
	return walk_as(&root, dir, path, true);
}

static void walks_follow_paths(void)
{
	struct wire_handle a, b, file;

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	b = metadb_make(&f, REC_MKDIR, a, "b");
	file = metadb_make(&f, REC_CREATE, b, "file");
	CHECK_EQ(walk(metadb_root, "a/b/file").at.ino, file.ino);
	CHECK_EQ(walk(metadb_root, "/a//b///file").at.ino, file.ino);
	CHECK_EQ(walk(metadb_root, "a/./b/../b/file").at.ino, file.ino);
	CHECK_EQ(walk(metadb_root, "").at.ino, META_ROOT_INO);
	CHECK_EQ(walk(metadb_root, "/").at.ino, META_ROOT_INO);
	CHECK_EQ(walk(metadb_root, "../..").at.ino, META_ROOT_INO);
	CHECK_EQ(walk(b, "..").at.ino, a.ino);
	CHECK_EQ(walk(file, "").at.ino, file.ino);
	CHECK_EQ(walk(metadb_root, "a/b/").rc, 0);
	CHECK_EQ(walk(metadb_root, "a/b/file/").rc, -ENOTDIR);
	CHECK_EQ(walk(metadb_root, "a/b/file/x").rc, -ENOTDIR);
	CHECK_EQ(walk(file, "x").rc, -ENOTDIR);
	CHECK_EQ(walk(metadb_root, "a/none/x").rc, -ENOENT);
	CHECK_EQ(walk((struct wire_handle){ 4711, 1 }, "").rc, -ESTALE);
	CHECK_EQ(walk((struct wire_handle){ a.ino, 9 }, "b").rc, -ESTALE);
	metadb_end(&f);
}

static void walks_stop_before_the_leaf(void)
{
	struct wire_handle a;
	struct walked w;
	char longer[300];

	metadb_start(&f);
	a = metadb_make(&f, REC_MKDIR, metadb_root, "a");
	w = walk_leaf(metadb_root, "a/new");
	CHECK_EQ(w.rc, 0);
	CHECK_EQ(w.at.ino, a.ino);
	CHECK_STR(w.leaf, "new");
	CHECK(!w.slash);
	w = walk_leaf(metadb_root, "a/new//");
	CHECK_EQ(w.rc, 0);
	CHECK_STR(w.leaf, "new");
	CHECK(w.slash);
	w = walk_leaf(metadb_root, "x");
	CHECK_EQ(w.at.ino, META_ROOT_INO);
	CHECK_EQ(walk_leaf(metadb_root, "").rc, -EINVAL);
	CHECK_EQ(walk_leaf(metadb_root, "/").rc, -EINVAL);
	CHECK_EQ(walk_leaf(metadb_root, "a/.").rc, -EINVAL);
	CHECK_EQ(walk_leaf(metadb_root, "a/..").rc, -EINVAL);
	CHECK_EQ(walk_leaf(metadb_root, "a/.../x").rc, -ENOENT);
	CHECK_EQ(walk_leaf(metadb_root, "none/x").rc, -ENOENT);
	memset(longer, 'y', sizeof(longer));
	longer[256] = 0;
	CHECK_EQ(walk_leaf(metadb_root, longer).rc, -ENAMETOOLONG);
	CHECK_EQ(walk(metadb_root, longer).rc, -ENAMETOOLONG);
	longer[255] = 0;
	CHECK_EQ(walk(metadb_root, longer).rc, -ENOENT);
	metadb_end(&f);
}

static void walks_need_x_on_the_way(void)
{
	uint32_t gids[] = { 70 };
	const struct cred other = { 9, 9, 0, NULL }, member = { 9, 9, 1, gids },
			  owner = { 5, 5, 0, NULL };
	struct wire_record r;
	struct wire_handle dir;

	metadb_start(&f);
	r = rec_name(&f, REC_MKDIR, metadb_root, "dir");
	r.mode = 0710;
	r.uid = 5;
	r.gid = 70;
	dir = (struct wire_handle){ metadb_apply(&f, &r).at.ino, 1 };
	metadb_make(&f, REC_CREATE, dir, "file");
	CHECK_EQ(walk_as(&other, metadb_root, "dir/file", false).rc, -EACCES);
	CHECK_EQ(walk_as(&other, metadb_root, "dir/new", true).rc, -EACCES);
	CHECK_EQ(walk_as(&other, metadb_root, "dir", false).rc, 0);
	CHECK_EQ(walk_as(&member, metadb_root, "dir/file", false).rc, 0);
	CHECK_EQ(walk_as(&owner, metadb_root, "dir/file", false).rc, 0);
	CHECK_EQ(walk_as(&root, metadb_root, "dir/file", false).rc, 0);
	metadb_end(&f);
}

static void walks_refer_to_other_partitions(void)
{
	struct wire_handle far = { UINT64_C(4) << 48 | 8, 3 };
	struct walked w;

	metadb_start(&f);
	w = walk(far, "a/b");
	CHECK_EQ(w.rc, -EREMOTE);
	CHECK_EQ(w.at.ino, far.ino);
	CHECK_EQ(w.at.gen, 3);
	CHECK_EQ(w.consumed, 0);
	CHECK(!meta_owns(f.m, far.ino));
	CHECK(meta_owns(f.m, META_ROOT_INO));
	metadb_end(&f);
}

static void permission_classes_do_not_add_up(void)
{
	uint32_t gids[] = { 1, 2 };
	struct cred c = { 5, 50, 2, gids };
	struct meta_node n = { .attr = { .mode = 0047, .uid = 5, .gid = 2 } };

	CHECK_EQ(meta_may(&n, &c, MAY_READ), -EACCES); /* the owner class has no rights */
	n.attr.uid = 6;
	CHECK_EQ(meta_may(&n, &c, MAY_READ), 0);
	/* the group class may only read */
	CHECK_EQ(meta_may(&n, &c, MAY_READ | MAY_WRITE), -EACCES);
	n.attr.gid = 3;
	CHECK_EQ(meta_may(&n, &c, MAY_READ | MAY_WRITE | MAY_EXEC), 0);
	n.attr.mode = 0;
	CHECK_EQ(meta_may(&n, &c, MAY_EXEC), -EACCES);
	c.uid = 0;
	CHECK_EQ(meta_may(&n, &c, MAY_READ | MAY_WRITE | MAY_EXEC), 0);
}

/* ---- readdir ---- */

static void readdir_bounds_its_answer(void)
{
	struct wire_readdir_res res;
	struct wire_handle file;

	metadb_start(&f);
	CHECK_EQ(metadb_readdir(&f, metadb_root, 0, 10, 4096, &res), 0);
	CHECK_EQ(res.n_entries, 0);
	CHECK(res.end);
	metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	file = metadb_make(&f, REC_CREATE, metadb_root, "abcde");
	CHECK_EQ(metadb_readdir(&f, file, 0, 10, 4096, &res), -ENOTDIR);
	CHECK_EQ(metadb_readdir(&f, metadb_root, 0, 10, 44, &res), -EINVAL);
	CHECK_EQ(metadb_readdir(&f, metadb_root, 0, 10, 48, &res), 0);
	CHECK_EQ(res.n_entries, 1);
	CHECK(!res.end);
	CHECK_EQ(res.entries[0].name.len, 5);
	CHECK(!memcmp(res.entries[0].name.p, "abcde", 5));
	CHECK_EQ(res.entries[0].h.ino, file.ino);
	CHECK_EQ(res.entries[0].type, S_IFREG);
	CHECK_EQ(metadb_readdir(&f, metadb_root, res.entries[0].cookie, 1, 4096, &res), 0);
	CHECK_EQ(res.n_entries, 1);
	CHECK(res.end);
	CHECK_EQ(res.entries[0].type, S_IFDIR);
	CHECK_EQ(metadb_readdir(&f, metadb_root, res.entries[0].cookie, 10, 4096, &res), 0);
	CHECK(res.end && res.n_entries == 0);
	CHECK_EQ(metadb_readdir(&f, metadb_root, 1, 10, 4096, &res), 0);
	CHECK(res.end && res.n_entries == 0);
	CHECK_EQ(metadb_readdir(&f, metadb_root, UINT64_MAX, 10, 4096, &res), 0);
	CHECK(res.end && res.n_entries == 2);
	metadb_end(&f);
}

#define ENTRIES 100000
static uint8_t seen[ENTRIES];

static void make_entries(struct wire_handle dir)
{
	static struct call calls[1000];
	static char names[1000][16];

	for (int i = 0; i < ENTRIES; i += 1000) {
		for (int j = 0; j < 1000; j++) {
			struct wire_record r;

			snprintf(names[j], sizeof(names[j]), "e%d", i + j);
			r = rec_name(&f, REC_CREATE, dir, names[j]);
			call_submit(&f, &calls[j], &r);
		}
		metadb_pump(&f);
		metadb_reset(&f);
	}
}

/* Between two pages: adds an entry and renames it, and removes an entry that may have been
 * listed. */
static void disturb(struct wire_handle dir, int page, uint8_t *gone)
{
	char name[32], to[32];
	int victim = (page * 7919) % ENTRIES;

	snprintf(name, sizeof(name), "new%d", page);
	metadb_make(&f, REC_CREATE, dir, name);
	snprintf(to, sizeof(to), "renamed%d", page);
	CHECK_EQ(metadb_rename(&f, dir, name, dir, to, 0), 0);
	snprintf(name, sizeof(name), "e%d", victim);
	if (!gone[victim])
		CHECK_EQ(metadb_name(&f, REC_UNLINK, dir, name).status, 0);
	gone[victim] = 1;
}

static void readdir_pages_are_stable_while_entries_come_and_go(void)
{
	static uint8_t gone[ENTRIES];
	struct wire_readdir_res res = { 0 };
	uint64_t cookie = 0;
	struct wire_handle dir;
	int page = 0, once = 0;

	metadb_start(&f);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	metadb_make(&f, REC_CREATE, metadb_root, "neighbour");
	make_entries(dir);
	CHECK_EQ(metadb_node(&f, dir).attr.size, ENTRIES);
	while (!res.end) {
		CHECK_EQ(metadb_readdir(&f, dir, cookie, 1000, 65536, &res), 0);
		for (uint32_t i = 0; i < res.n_entries; i++) {
			struct wire_bytes n = res.entries[i].name;
			char name[16] = { 0 };
			int at = 0;

			CHECK(!cookie || res.entries[i].cookie < cookie);
			cookie = res.entries[i].cookie;
			memcpy(name, n.p, MIN(n.len, 15));
			if (sscanf(name, "e%d", &at) == 1)
				seen[at]++;
		}
		disturb(dir, page++, gone);
		metadb_reset(&f);
		CHECK(page < 1000);
	}
	for (int i = 0; i < ENTRIES; i++) {
		CHECK(seen[i] <= 1);
		CHECK(seen[i] == 1 || gone[i]);
		once += seen[i];
	}
	CHECK(page >= 100 && once > ENTRIES - page);
	metadb_end(&f);
}

/* One change that a reader makes after each listed entry. */
static void rename_entry(struct wire_handle dir, const char *name, int n)
{
	char to[32];

	snprintf(to, sizeof(to), "renamed%d", n);
	CHECK_EQ(metadb_rename(&f, dir, name, dir, to, 0), 0);
}

static void move_out_and_back(struct wire_handle dir, const char *name, int n)
{
	char to[32];

	snprintf(to, sizeof(to), "back%d", n);
	CHECK_EQ(metadb_rename(&f, dir, name, metadb_root, to, 0), 0);
	CHECK_EQ(metadb_rename(&f, metadb_root, to, dir, to, 0), 0);
}

static void create_entry(struct wire_handle dir, const char *name, int n)
{
	char to[32];

	(void)name;
	snprintf(to, sizeof(to), "created%d", n);
	metadb_make(&f, REC_CREATE, dir, to);
}

/* Counts the entries of a listing that continues by cookie only, with `act` called after each
 * entry. Stops when there are more than `most`. */
static int scan(struct wire_handle dir, int most,
		void (*act)(struct wire_handle dir, const char *name, int n))
{
	struct wire_readdir_res res = { 0 };
	char name[32];
	int n = 0;

	while (!res.end && n <= most) {
		struct wire_dir_entry *e;

		CHECK_EQ(metadb_readdir(&f, dir, n ? res.entries[0].cookie : 0, 1, 4096, &res), 0);
		if (!res.n_entries)
			break;
		e = &res.entries[0];
		snprintf(name, sizeof(name), "%.*s", (int)e->name.len, (const char *)e->name.p);
		act(dir, name, n++);
	}
	return n;
}

static void readdir_ends_while_the_reader_changes_the_directory(void)
{
	struct wire_handle dir;
	char name[32];

	metadb_start(&f);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "e%d", i);
		metadb_make(&f, REC_CREATE, dir, name);
	}
	CHECK_EQ(scan(dir, 400, rename_entry), 200);
	CHECK_EQ(scan(dir, 400, move_out_and_back), 200);
	CHECK_EQ(scan(dir, 400, create_entry), 200);
	CHECK_EQ(metadb_node(&f, dir).attr.size, 400);
	metadb_end(&f);
}

/* An entry that is renamed within its directory before it was listed is listed under its new
 * name. */
static void a_rename_keeps_the_place_in_listings(void)
{
	static const char *const want[] = { "c", "z", "a" };
	struct wire_readdir_res res;
	uint64_t cookie = 0;

	metadb_start(&f);
	for (const char *n = "a\0b\0c\0"; *n; n += 2)
		metadb_make(&f, REC_CREATE, metadb_root, n);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(metadb_readdir(&f, metadb_root, cookie, 1, 4096, &res), 0);
		CHECK(res.n_entries == 1 && *res.entries[0].name.p == *want[i]);
		cookie = res.entries[0].cookie;
		if (i == 0)
			CHECK_EQ(metadb_rename(&f, metadb_root, "b", metadb_root, "z", 0), 0);
	}
	CHECK(res.end);
	metadb_end(&f);
}

static void lookup_says_what_it_found(void)
{
	struct wire_handle dir, file, at;
	struct wire_bytes n = wire_text("file");
	uint32_t type;

	metadb_start(&f);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	file = metadb_make(&f, REC_CREATE, dir, "file");
	CHECK_EQ(meta_lookup(f.m, &dir, &n, &at, &type), 0);
	CHECK_EQ(at.ino, file.ino);
	CHECK_EQ(type, S_IFREG);
	CHECK_EQ(meta_lookup(f.m, &file, &n, &at, &type), -ENOTDIR);
	CHECK_EQ(metadb_lookup(&f, dir, "..", &at), 0);
	CHECK_EQ(at.ino, META_ROOT_INO);
	CHECK_EQ(metadb_lookup(&f, dir, "", &at), -ENOENT);
	CHECK_EQ(meta_slow_reads(f.m), 0);
	metadb_end(&f);
}

TEST_MAIN(TEST(walks_follow_paths), TEST(walks_stop_before_the_leaf), TEST(walks_need_x_on_the_way),
	  TEST(walks_refer_to_other_partitions), TEST(permission_classes_do_not_add_up),
	  TEST(readdir_bounds_its_answer), TEST(readdir_pages_are_stable_while_entries_come_and_go),
	  TEST(readdir_ends_while_the_reader_changes_the_directory),
	  TEST(a_rename_keeps_the_place_in_listings), TEST(lookup_says_what_it_found))
