/* `sheaf check` finds nothing wrong on a busy file system and after kill -9 of servers and clients.
 * It finds damage that the test makes in the databases and object files of stopped servers, reports
 * each in one line, repairs it, and keeps every intact byte. */
#include "acl_list.h"
#include "meta/meta_schema.h"
#include "names_model.h"
#include "sheaf_admin.h"

#define BYTES 300000

static struct cluster c;
static struct sheaf *fs;
static char out[1 << 20]; /* output of the last check */

static int check(const char *options)
{
	char cmd[2 * CLUSTER_PATH];
	size_t n;
	FILE *p;
	int st;

	snprintf(cmd, sizeof(cmd), "%s/bin/sheaf --conf %s check %s 2>&1", getenv("SHEAF_BUILD"),
		 c.conf, options);
	p = popen(cmd, "re");
	CHECK(p);
	n = fread(out, 1, sizeof(out) - 1, p);
	out[n] = 0;
	st = pclose(p);
	CHECK(WIFEXITED(st));
	return WEXITSTATUS(st);
}

/* Runs a check that must find nothing wrong, and prints its output when it does. */
static void check_clean_with(const char *options)
{
	int r = check(options);

	if (r)
		fprintf(stderr, "%s", out);
	CHECK_EQ(r, 0);
	CHECK(strstr(out, "nothing is wrong") && !strstr(out, "repaired"));
}

static void check_clean(void)
{
	check_clean_with("");
}

static bool said(const char *start, const char *path, const char *what)
{
	char line[1024];

	for (char *p = out, *end; (end = strchr(p, '\n')); p = end + 1) {
		snprintf(line, sizeof(line), "%.*s", (int)MIN((size_t)(end - p), sizeof(line) - 1),
			 p);
		if (strncmp(line, start, strlen(start)) == 0 && strstr(line, path) &&
		    strstr(line, what))
			return true;
	}
	fprintf(stderr, "not said: %s %s %s, but:\n%s", start, path, what, out);
	return false;
}

/* ---- healthy file systems ---- */

static int child(const char *name, char **arg)
{
	struct sheaf *mine = client_connect(arg[0]);
	struct names m = { .fs = mine, .rnd = (uint64_t)atoi(arg[1]) };
	double end = now_s() + atof(arg[2]);
	struct acl_bytes list = acl_sample();
	char path[64], other[64];

	snprintf(m.dir, sizeof(m.dir), "/%s", name);
	CHECK_EQ(sheaf_mkdir(mine, m.dir, 0755), 0);
	CHECK_EQ(sheaf_setxattr(mine, m.dir, DEFAULT_ACL, list.b, list.len, 0), 0);
	snprintf(path, sizeof(path), "/%s/data", name);
	for (unsigned n = 0; now_s() < end; n++) {
		struct sheaf_file *f;
		int r;

		names_change(&m);
		if (n % 4)
			continue;
		r = sheaf_open(mine, path, O_CREAT | O_RDWR, 0644, NULL, &f);
		CHECK_EQ(r, 0);
		CHECK_EQ(sheaf_pwrite(f, "some bytes", 10, (off_t)(n % 64 * 9000)), 10);
		if (n % 3 == 0)
			CHECK_EQ(sheaf_ftruncate(f, n % 7 * 30000), 0);
		r = sheaf_close(f);
		CHECK(r == 0 || r == -EIO);
		snprintf(other, sizeof(other), "/shared/%s-%u", name, n % 2);
		if (n % 3 == 1) /* may be a directory of another server */
			CHECK_EQ(sheaf_rename(mine, path, other), 0);
		else if (n % 5 == 0)
			CHECK_EQ(sheaf_unlink(mine, path), 0);
		else if (n % 5 == 1)
			r = sheaf_link(mine, path, other);
		if (n % 7 == 0)
			r = sheaf_unlink(mine, other);
	}
	sheaf_disconnect(mine);
	return 0;
}

static void nothing_is_wrong_while_clients_are_busy(void)
{
	pid_t p[3] = { child_start("busy-a", c.conf, "1", "6", NULL),
		       child_start("busy-b", c.conf, "2", "6", NULL),
		       child_start("busy-c", c.conf, "3", "6", NULL) };
	double end = now_s() + 6;
	int n = 0;

	for (; now_s() < end; n++)
		check_clean_with(n % 3 ? "" : "--repair");
	for (int i = 0; i < 3; i++)
		CHECK_EQ(process_wait(p[i]), 0);
	printf("  %d checks\n", n);
	check_clean();
}

static void nothing_is_wrong_after_kills(void)
{
	pid_t p[2] = { child_start("killed-a", c.conf, "4", "60", NULL),
		       child_start("killed-b", c.conf, "5", "60", NULL) };

	for (int i = 0; i < 6; i++) {
		pause_ms(250);
		server_kill(&c, i % c.n);
		CHECK_EQ(server_up(&c, i % c.n), 0);
		check_clean();
	}
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(kill(p[i], SIGKILL), 0);
		CHECK_EQ(process_wait(p[i]), 256 + SIGKILL);
	}
	check_clean(); /* their files are not settled yet */
	CHECK(WITHIN(PATIENCE_S, check("") == 0 && !strstr(out, "pending")));
}

static void a_server_that_is_down_is_said(void)
{
	server_down(&c, 1);
	CHECK_EQ(check(""), 1);
	CHECK(strstr(out, "does not answer"));
	CHECK_EQ(server_up(&c, 1), 0);
	CHECK_EQ(check("--what"), 2);
	CHECK_EQ(check("--json"), 0);
	CHECK(strstr(out, "\"clean\":true"));
}

static void only_root_may_look_and_repair(void)
{
	struct sheaf_repair r = { .kind = SHEAF_REPAIR_NEXT, .h = { 1 << 20, 0 } };
	struct sheaf_scan scan = { 0 };
	struct sheaf_row row;

	if (geteuid() != 0 || seteuid(65534) != 0)
		return;
	CHECK_EQ(sheaf_scan(fs, 0, SHEAF_SCAN_INODE, &scan, &row, 1), -EPERM);
	CHECK_EQ(sheaf_scan(fs, 1, SHEAF_SCAN_OBJECT, &scan, &row, 1), -EPERM);
	CHECK_EQ(sheaf_repair(fs, 0, &r), -EPERM);
	CHECK_EQ(seteuid(0), 0);
	CHECK_EQ(sheaf_scan(fs, 0, SHEAF_SCAN_INODE, &scan, &row, 1), 1);
	CHECK_EQ(row.h.ino, 1);
}

/* ---- damage ---- */

/* The databases of the metadata servers, which are stopped; server i has partition i. */
static struct db dbs[CLUSTER_MAX];
static MDB_txn *txns[CLUSTER_MAX];

static void db_open(int i)
{
	char path[CLUSTER_PATH];

	snprintf(path, sizeof(path), "%s/server%d/meta", c.dir, i);
	CHECK_EQ(mdb_env_create(&dbs[i].env), 0);
	CHECK_EQ(mdb_env_set_mapsize(dbs[i].env, GIB), 0);
	CHECK_EQ(mdb_env_set_maxdbs(dbs[i].env, N_TABLES), 0);
	CHECK_EQ(mdb_env_open(dbs[i].env, path, MDB_NOTLS, 0600), 0);
	CHECK_EQ(mdb_txn_begin(dbs[i].env, NULL, 0, &txns[i]), 0);
	for (int t = 0; t < N_TABLES; t++)
		CHECK_EQ(mdb_dbi_open(txns[i], table_names[t], 0, &dbs[i].t[t]), 0);
}

static void db_close(int i)
{
	CHECK_EQ(mdb_txn_commit(txns[i]), 0);
	mdb_env_close(dbs[i].env);
}

static uint64_t ino_of(const char *path)
{
	struct stat st;

	CHECK_EQ(sheaf_lstat(fs, path, &st), 0);
	return st.st_ino;
}

static struct node get(uint64_t ino)
{
	struct node n;

	CHECK_EQ(node_get(&dbs[ino >> 48], txns[ino >> 48], ino, &n), 0);
	return n;
}

static void put(uint64_t ino, const struct node *n)
{
	CHECK_EQ(node_put(&dbs[ino >> 48], txns[ino >> 48], ino, n), 0);
}

/* Deletes a row whose key begins with an inode number. */
static void del(enum table t, struct key k)
{
	uint64_t i = be64_load(k.b) >> 48;

	CHECK_EQ(row_del(&dbs[i], txns[i], t, &k), 0);
}

static void set(enum table t, struct key k, const void *p, size_t n)
{
	uint64_t i = be64_load(k.b) >> 48;

	CHECK_EQ(row_put(&dbs[i], txns[i], t, &k, p, n), 0);
}

static struct disk_entry entry(uint64_t dir, const char *name)
{
	struct wire_bytes n = wire_text(name);
	struct disk_entry e;

	CHECK_EQ(entry_get(&dbs[dir >> 48], txns[dir >> 48], dir, &n, &e), 0);
	return e;
}

static struct key entry_key(uint64_t dir, const char *name)
{
	struct wire_bytes n = wire_text(name);

	return key_entry(dir, &n);
}

/* Removes a name and keeps the directory's own row consistent. */
static void drop_name(uint64_t dir, const char *name)
{
	struct disk_entry e = entry(dir, name);
	struct node n = get(dir);

	del(T_DIRENT, entry_key(dir, name));
	del(T_DIRINDEX, key_pair(dir, e.cookie));
	n.i.entries--;
	n.i.nlink -= e.type == S_IFDIR;
	put(dir, &n);
}

static void add_name(uint64_t dir, const char *name, uint64_t ino, uint32_t type)
{
	struct wire_bytes b = wire_text(name);
	struct node n = get(dir);
	struct disk_entry e = { .ino = ino, .gen = 1, .type = type, .cookie = n.i.next_cookie++ };

	CHECK_EQ(entry_put(&dbs[dir >> 48], txns[dir >> 48], dir, &b, &e), 0);
	n.i.entries++;
	n.i.nlink += type == S_IFDIR;
	put(dir, &n);
}

/* The files that each damage is applied to: a directory of its own with a file, a subdirectory with
 * a file in it, and a link. */
struct place {
	uint64_t dir, file, sub, inner, link;
};

static void nlink_too_high(const struct place *p)
{
	struct node n = get(p->file);

	n.i.nlink = 5;
	put(p->file, &n);
}

static void inode_of_empty_file_gone(const struct place *p)
{
	del(T_INODE, key_u64(p->inner));
}

static void inode_of_file_gone(const struct place *p)
{
	del(T_INODE, key_u64(p->file));
}

static void inode_of_file_unreadable(const struct place *p)
{
	set(T_INODE, key_u64(p->file), "damaged", 7);
}

static void inode_of_directory_gone(const struct place *p)
{
	del(T_INODE, key_u64(p->sub));
}

static void inode_of_link_gone(const struct place *p)
{
	del(T_INODE, key_u64(p->link));
}

static void name_gone(const struct place *p)
{
	drop_name(p->dir, "file");
}

static void directory_without_name(const struct place *p)
{
	drop_name(p->dir, "sub");
}

static void entry_gone_but_not_its_index(const struct place *p)
{
	del(T_DIRENT, entry_key(p->dir, "file"));
}

static void index_row_gone(const struct place *p)
{
	struct disk_entry e = entry(p->dir, "file");

	del(T_DIRINDEX, key_pair(p->dir, e.cookie));
}

static void index_row_too_many(const struct place *p)
{
	struct disk_index x = { .ino = p->file, .gen = 1, .type = S_IFREG };
	struct node n = get(p->dir);
	char row[sizeof(x) + 5];

	memcpy(row, &x, sizeof(x));
	memcpy(row + sizeof(x), "ghost", 5);
	set(T_DIRINDEX, key_pair(p->dir, 100), row, sizeof(row));
	n.i.next_cookie = 101;
	put(p->dir, &n);
}

static void entry_count_wrong(const struct place *p)
{
	struct node n = get(p->dir);

	n.i.entries = 77;
	put(p->dir, &n);
}

static void directory_nlink_wrong(const struct place *p)
{
	struct node n = get(p->dir);

	n.i.nlink = 9;
	put(p->dir, &n);
}

static void parent_wrong(const struct place *p)
{
	struct node n = get(p->sub);

	n.i.parent_ino = META_ROOT_INO;
	put(p->sub, &n);
}

static void entry_type_wrong(const struct place *p)
{
	struct disk_entry e = entry(p->dir, "file");
	struct wire_bytes n = wire_text("file");

	e.type = S_IFLNK;
	CHECK_EQ(entry_put(&dbs[p->dir >> 48], txns[p->dir >> 48], p->dir, &n, &e), 0);
}

static void directory_with_two_names(const struct place *p)
{
	add_name(p->dir, "again", p->sub, S_IFDIR);
	add_name(META_ROOT_INO, "second", p->sub, S_IFDIR);
}

static void cookie_twice(const struct place *p)
{
	struct disk_entry e = entry(p->dir, "file"), f = entry(p->dir, "link");

	del(T_DIRINDEX, key_pair(p->dir, f.cookie));
	f.cookie = e.cookie;
	set(T_DIRENT, entry_key(p->dir, "link"), &f, sizeof(f));
}

static void next_cookie_too_low(const struct place *p)
{
	struct node n = get(p->dir);

	n.i.next_cookie = COOKIE_FIRST;
	put(p->dir, &n);
}

static void impossible_name(const struct place *p)
{
	drop_name(p->dir, "file");
	add_name(p->dir, "a/b", p->file, S_IFREG);
}

static void doomed_but_named(const struct place *p)
{
	struct disk_remove row = { .gen = 1 };

	set(T_REMOVE, key_pair32(p->file, 1), &row, sizeof(row));
}

static void removal_of_nothing(const struct place *p)
{
	struct disk_remove row = { .gen = 1 };

	set(T_REMOVE, key_pair32(p->file + 100000, 1), &row, sizeof(row));
}

static void unsettled_nothing(const struct place *p)
{
	struct disk_unsettled row = { .gen = 1, .epoch = 1 };

	set(T_UNSETTLED, key_u64(p->file + 200000), &row, sizeof(row));
}

static void unsettled_directory(const struct place *p)
{
	struct disk_unsettled row = { .gen = 1, .epoch = 1 };

	set(T_UNSETTLED, key_u64(p->sub), &row, sizeof(row));
}

static void truncate_of_nothing(const struct place *p)
{
	struct disk_intent row = { .gen = 1, .epoch = 2, .size = 1 };

	set(T_INTENT, key_u64(p->file + 300000), &row, sizeof(row));
}

static void xattr_of_nothing(const struct place *p)
{
	set(T_XATTR, entry_key(p->file + 400000, "user.x"), "value", 5);
}

static void acl_unreadable(const struct place *p)
{
	struct node n = get(p->file);

	n.i.has = HAS_ACL;
	put(p->file, &n);
	set(T_XATTR, entry_key(p->file, ACCESS_ACL), "rubbish", 7);
}

static void acl_gone(const struct place *p)
{
	struct node n = get(p->sub);

	n.i.has = HAS_DEFAULT_ACL;
	put(p->sub, &n);
}

static void acl_unknown(const struct place *p)
{
	struct acl_bytes list = acl_sample();

	set(T_XATTR, entry_key(p->sub, ACCESS_ACL), list.b, list.len);
}

static void acl_of_another_mode(const struct place *p)
{
	struct node n = get(p->file);

	acl_unknown(&(struct place){ .sub = p->file });
	n.i.has = HAS_ACL;
	put(p->file, &n);
}

static void link_without_text(const struct place *p)
{
	del(T_SYMLINK, key_u64(p->link));
}

static void link_size_wrong(const struct place *p)
{
	struct node n = get(p->link);

	n.i.size = 2000;
	put(p->link, &n);
}

static void layout_with_unknown_server(const struct place *p)
{
	struct node n = get(p->file);

	n.targets[1] = 77;
	put(p->file, &n);
}

static void layout_with_wrong_server(const struct place *p)
{
	struct node n = get(p->file);

	n.targets[1] = 3 - n.targets[0] - n.targets[1]; /* of 0, 1, 2, the one it does not have */
	put(p->file, &n);
}

static void size_too_small(const struct place *p)
{
	struct node n = get(p->file);

	n.i.size = 1000;
	put(p->file, &n);
}

static void epoch_too_low(const struct place *p)
{
	struct node n = get(p->file);

	CHECK(n.i.epoch > 1); /* the file was truncated once */
	n.i.epoch = 1;
	put(p->file, &n);
}

static void object_without_file(const struct place *p)
{
	char path[CLUSTER_PATH + 64], name[OBJECT_PATH];
	uint64_t ino = p->file + 500000;

	snprintf(path, sizeof(path), "%s/server1/objects/%02x", c.dir,
		 (unsigned)(hash_u64(ino) % 256));
	mkdir(path, 0700);
	object_path(name, &(struct object_id){ ino, 1, 0 });
	snprintf(path, sizeof(path), "%s/server1/objects/%s", c.dir, name);
	write_text(path, "bytes that belong to nobody");
}

static void loop_of_directories(const struct place *p)
{
	struct node n = get(p->sub);
	uint64_t deep = p->inner;

	n.i.parent_ino = deep;
	put(p->sub, &n);
	drop_name(p->dir, "sub");
	add_name(deep, "sub", p->sub, S_IFDIR);
}

static void lock_without_owner(const struct place *p)
{
	uint64_t pair = 4711;

	set(T_LOCK, entry_key(p->dir, "file"), &pair, sizeof(pair));
}

static void counter_too_low(const struct place *p)
{
	struct key k = key_next(0);
	uint64_t next = 3;

	(void)p;
	CHECK_EQ(row_put(&dbs[0], txns[0], T_SYS, &k, &next, sizeof(next)), 0);
}

enum { FILE_STAYS, FILE_IN_LOST };

static const struct damage {
	const char *name;
	void (*make)(const struct place *p);
	const char *path, *what; /* parts of the expected line; %s: the directory */
	int file; /* where the file's data are after the repair */
} damages[] = {
#define DAMAGE(f, path, what, file) \
	{ \
#f, f, path, what, file \
	}
	DAMAGE(nlink_too_high, "%s/file", "link count is 5, but it has 1 name", FILE_STAYS),
	DAMAGE(inode_of_empty_file_gone, "%s/sub/inner", "refers to an inode that does not exist",
	       FILE_STAYS),
	DAMAGE(inode_of_file_gone, "%s/file", "300000 bytes of data belong to it", FILE_IN_LOST),
	DAMAGE(inode_of_file_unreadable, "%s/file", "inode cannot be read", FILE_IN_LOST),
	DAMAGE(inode_of_directory_gone, "%s/sub", "entries, but its inode is missing", FILE_STAYS),
	DAMAGE(inode_of_link_gone, "%s/link", "a text, but its inode is missing", FILE_STAYS),
	DAMAGE(name_gone, "", "this regular file has no name", FILE_IN_LOST),
	DAMAGE(directory_without_name, "", "this directory has no name", FILE_STAYS),
	DAMAGE(entry_gone_but_not_its_index, "%s/file", "the index of the directory still has it",
	       FILE_STAYS),
	DAMAGE(index_row_gone, "%s", "1 of its entries are missing in its index", FILE_STAYS),
	DAMAGE(index_row_too_many, "%s", "1 rows of its index have no entry (ghost)", FILE_STAYS),
	DAMAGE(entry_count_wrong, "%s", "says that it has 77 entries, but it has 3", FILE_STAYS),
	DAMAGE(directory_nlink_wrong, "%s", "link count is 9", FILE_STAYS),
	DAMAGE(parent_wrong, "%s/sub", "'..' is not the directory", FILE_STAYS),
	DAMAGE(entry_type_wrong, "%s/file", "says that it is a symbolic link", FILE_STAYS),
	DAMAGE(directory_with_two_names, "/second", "more than one name", FILE_STAYS),
	DAMAGE(cookie_twice, "%s", "the cookie of another one", FILE_STAYS),
	DAMAGE(next_cookie_too_low, "%s", "next cookie is not above those of its entries",
	       FILE_STAYS),
	DAMAGE(impossible_name, "%s", "has an invalid name", FILE_IN_LOST),
	DAMAGE(doomed_but_named, "%s/file", "remove-list", FILE_STAYS),
	DAMAGE(removal_of_nothing, "", "(remove-list) but no inode", FILE_STAYS),
	DAMAGE(unsettled_nothing, "", "(unsettled) but no inode", FILE_STAYS),
	DAMAGE(unsettled_directory, "%s/sub", "a directory cannot have", FILE_STAYS),
	DAMAGE(truncate_of_nothing, "", "(truncate) but no inode", FILE_STAYS),
	DAMAGE(xattr_of_nothing, "", "(extended attribute) but no inode", FILE_STAYS),
	DAMAGE(acl_unreadable, "%s/file", "list is gone or cannot be read", FILE_STAYS),
	DAMAGE(acl_gone, "%s/sub", "list is gone or cannot be read", FILE_STAYS),
	DAMAGE(acl_unknown, "%s/sub", "wrong about which attributes", FILE_STAYS),
	DAMAGE(acl_of_another_mode, "%s/file", "not those of its access control list", FILE_STAYS),
	DAMAGE(link_without_text, "%s/link", "has no text", FILE_STAYS),
	DAMAGE(link_size_wrong, "%s/link", "not the length of its text", FILE_STAYS),
	DAMAGE(layout_with_unknown_server, "%s/file", "names an unknown server", FILE_STAYS),
	DAMAGE(layout_with_wrong_server, "%s/file", "its layout does not name", FILE_STAYS),
	DAMAGE(size_too_small, "%s/file", "size is 1000, but its objects reach to 300000",
	       FILE_STAYS),
	DAMAGE(epoch_too_low, "%s/file", "refuse epochs below", FILE_STAYS),
	DAMAGE(object_without_file, "", "27 bytes of data belong to it", FILE_STAYS),
	DAMAGE(loop_of_directories, "sub", "inside itself", FILE_STAYS),
	DAMAGE(lock_without_owner, "%s/file", "a change over two servers that does not exist",
	       FILE_STAYS),
	DAMAGE(counter_too_low, "", "which is taken", FILE_STAYS),
};
#define N_DAMAGES ARRAY_LEN(damages)

static const char *at(size_t i, const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "/x%zu%s%s", i, name[0] ? "/" : "", name);
	return path;
}

static void populate(size_t i, struct place *p)
{
	struct sheaf_layout two = { .size = sizeof(two), .width = 2 };
	bool nested = damages[i].make == loop_of_directories;
	struct sheaf_file *f;

	CHECK_EQ(sheaf_mkdir(fs, at(i, ""), 0755), 0);
	CHECK_EQ(sheaf_open(fs, at(i, "file"), O_CREAT | O_RDWR, 0644, &two, &f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	make_file(fs, at(i, "file"), BYTES, i);
	CHECK_EQ(sheaf_truncate(fs, at(i, "file"), BYTES), 0);
	CHECK_EQ(sheaf_mkdir(fs, at(i, "sub"), 0755), 0);
	if (nested)
		CHECK_EQ(sheaf_mkdir(fs, at(i, "sub/inner"), 0755), 0);
	else
		make_file(fs, at(i, "sub/inner"), 0, i);
	CHECK_EQ(sheaf_symlink(fs, "file", at(i, "link")), 0);
	*p = (struct place){ ino_of(at(i, "")), ino_of(at(i, "file")), ino_of(at(i, "sub")),
			     ino_of(at(i, "sub/inner")), ino_of(at(i, "link")) };
}

static void verify(size_t i, const struct place *p)
{
	char path[64];

	snprintf(path, sizeof(path), "/lost+found/#%ju", (uintmax_t)p->file);
	check_file(fs, damages[i].file == FILE_IN_LOST ? path : at(i, "file"), BYTES, i);
}

static void every_damage_is_found_and_repaired(void)
{
	static struct place p[N_DAMAGES];
	char path[64];

	for (size_t i = 0; i < N_DAMAGES; i++)
		populate(i, &p[i]);
	CHECK(WITHIN(PATIENCE_S, check("") == 0 && !strstr(out, "pending")));
	cluster_stop(&c);
	for (int i = 0; i < c.n; i++)
		db_open(i);
	for (size_t i = 0; i < N_DAMAGES; i++)
		damages[i].make(&p[i]);
	for (int i = 0; i < c.n; i++)
		db_close(i);
	cluster_start(&c);
	CHECK_EQ(check(""), 1);
	for (size_t i = 0; i < N_DAMAGES; i++) {
		snprintf(path, sizeof(path), damages[i].path, at(i, ""));
		CHECK(said("wrong: ", path, damages[i].what));
	}
	CHECK_EQ(check("--json"), 1);
	CHECK(strstr(out, "\"clean\":false"));
	if (check("--repair"))
		fprintf(stderr, "%s", out);
	CHECK(said("repaired: ", "/file", "link count is 5"));
	CHECK(!strstr(out, "\nwrong: "));
	check_clean();
	for (size_t i = 0; i < N_DAMAGES; i++)
		verify(i, &p[i]);
}

static void what_was_repaired_works(void)
{
	struct sheaf_file *f;
	struct stat st;
	char text[64];

	for (size_t i = 0; i < N_DAMAGES; i++) {
		make_file(fs, at(i, "new"), 1000, 7);
		check_file(fs, at(i, "new"), 1000, 7);
		CHECK_EQ(sheaf_unlink(fs, at(i, "new")), 0);
	}
	snprintf(text, sizeof(text), "/x%d/sub/inner", 4); /* in a directory that was recreated */
	CHECK_EQ(sheaf_stat(fs, text, &st), 0);
	CHECK_EQ(sheaf_stat(fs, "/x5/link", &st), 0); /* a recreated link has its old target */
	CHECK_EQ(st.st_size, BYTES);
	f = open_file(fs, "/x0/file", O_RDWR);
	CHECK_EQ(sheaf_pwrite(f, "x", 1, BYTES), 1);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(sheaf_unlink(fs, "/x0/file"), 0);
	CHECK(WITHIN(PATIENCE_S, check("") == 0 && !strstr(out, "pending")));
	cluster_stop(&c);
	cluster_start(&c);
	check_clean();
}

/* The path of an object on the server that the file's layout does not name. A client that may write
 * to the file can create such an object. */
static void stray_path(char *path, size_t n, const char *name)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };
	uint64_t ino = ino_of(name);
	char object[OBJECT_NAME];

	CHECK_EQ(sheaf_get_layout(fs, name, &l), 0);
	CHECK_EQ(l.width, 2);
	snprintf(path, n, "%s/server%u/objects/%02x", c.dir, 3 - l.servers[0] - l.servers[1],
		 (unsigned)(hash_u64(ino) % 256));
	mkdir(path, 0700);
	object_name(object, &(struct object_id){ ino, 1, 0 });
	snprintf(path + strlen(path), n - strlen(path), "/%s", object);
}

static void a_stray_object_changes_no_layout(void)
{
	struct sheaf_layout two = { .size = sizeof(two), .width = 2 };
	struct sheaf_layout_info before = { .size = sizeof(before) }, after = before;
	char path[2][CLUSTER_PATH];
	static const char *const names[] = { "/stray", "/sparse" };
	struct sheaf_file *f;

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(sheaf_open(fs, names[i], O_CREAT | O_RDWR, 0644, &two, &f), 0);
		CHECK_EQ(sheaf_close(f), 0);
		make_file(fs, names[i], BYTES, 7);
		stray_path(path[i], sizeof(path[i]), names[i]);
	}
	/* the objects of a sparse file do not tell whether it is complete */
	CHECK_EQ(sheaf_truncate(fs, "/sparse", 2 * BYTES), 0);
	CHECK_EQ(sheaf_get_layout(fs, names[0], &before), 0);
	CHECK(WITHIN(PATIENCE_S, check("") == 0 && !strstr(out, "pending")));
	cluster_stop(&c);
	write_text(path[0], "not of this file");
	write_text(path[1], "nor of this one");
	cluster_start(&c);
	CHECK_EQ(check("--repair"), 1);
	CHECK(said("wrong: ", "/stray", "has 16 bytes of it, but the file is complete without"));
	CHECK(said("wrong: ", "/sparse", "its layout does not name"));
	CHECK_EQ(sheaf_get_layout(fs, names[0], &after), 0);
	CHECK_EQ(memcmp(&before, &after, sizeof(before)), 0);
	check_file(fs, names[0], BYTES, 7);
	cluster_stop(&c);
	CHECK_EQ(unlink(path[0]) | unlink(path[1]), 0);
	cluster_start(&c);
	check_clean();
	check_file(fs, names[0], BYTES, 7);
}

static void begin(void)
{
	cluster_create(&c, &(struct cluster_opts){ .servers = 3, .timeout = 20, .lease = 2 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	CHECK_EQ(sheaf_mkdir(fs, "/shared", 0755), 0);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(nothing_is_wrong_while_clients_are_busy),
	 TEST(nothing_is_wrong_after_kills), TEST(a_server_that_is_down_is_said),
	 TEST(only_root_may_look_and_repair), TEST(every_damage_is_found_and_repaired),
	 TEST(what_was_repaired_works), TEST(a_stray_object_changes_no_layout))
