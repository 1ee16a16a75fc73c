/* Pages of rows, and repairs: each repair changes one row, and nothing if the row has changed since
 * the decision. */
#include "meta/meta_state.h"
#include "metadb.h"

static struct metadb f;
static struct wire_handle dir, file;

static void start(void)
{
	metadb_start(&f);
	dir = metadb_make(&f, REC_MKDIR, metadb_root, "dir");
	file = metadb_make(&f, REC_CREATE, dir, "file");
}

static struct wire_record rec_repair(uint32_t kind, struct wire_handle h)
{
	struct wire_record r = rec_on(&f, REC_REPAIR, h);
	struct meta_node n;

	r.which = kind;
	if (meta_get(f.m, &h, &n, &f.arena) == 0)
		r.size = n.attr.change;
	return r;
}

static int repair(struct wire_record *r)
{
	return metadb_apply(&f, r).status;
}

static struct wire_scan_res scan(uint32_t kind, uint64_t only, struct wire_bytes after,
				 uint32_t max)
{
	struct wire_scan_args a = { kind, only, after, max };
	struct wire_scan_res res;

	CHECK_EQ(meta_scan(f.m, &a, 64 * KIB, &res, &f.arena), 0);
	return res;
}

static struct wire_scan_res scan_all(uint32_t kind, uint64_t only)
{
	return scan(kind, only, (struct wire_bytes){ 0, NULL }, SCAN_MAX);
}

/* Writes a row to the database, between two transactions of the writer. */
static void put_row(enum table t, struct key k, const void *p, size_t n)
{
	MDB_txn *txn;

	reader_reset(f.m);
	CHECK_EQ(mdb_txn_begin(f.m->db.env, NULL, 0, &txn), 0);
	if (p)
		CHECK_EQ(row_put(&f.m->db, txn, t, &k, p, n), 0);
	else
		CHECK_EQ(row_del(&f.m->db, txn, t, &k), 0);
	CHECK_EQ(mdb_txn_commit(txn), 0);
}

static struct node node_of(struct wire_handle h)
{
	struct node n;

	CHECK_EQ(read_begin(f.m), 0);
	CHECK_EQ(read_end(f.m, node_get(&f.m->db, f.m->reader, h.ino, &n)), 0);
	return n;
}

/* ---- pages ---- */

static void pages_show_every_row_once(void)
{
	struct wire_scan_res res = { 0 };
	struct wire_bytes after = { 0, NULL };
	unsigned n = 0;
	char name[16];

	start();
	for (int i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "f%02d", i);
		metadb_make(&f, REC_CREATE, dir, name);
	}
	for (; !res.end; n += res.n_rows) {
		res = scan(SCAN_ENTRY, 0, after, 7);
		CHECK(res.n_rows <= 7 && (res.n_rows || res.end));
		CHECK_EQ(res.total, 52);
		if (res.n_rows)
			after = res.rows[res.n_rows - 1].key;
	}
	CHECK_EQ(n, 52);
	CHECK_EQ(scan_all(SCAN_ENTRY, dir.ino).n_rows, 51);
	CHECK_EQ(scan_all(SCAN_ENTRY, file.ino).n_rows, 0);
	CHECK_EQ(scan_all(SCAN_INDEX, dir.ino).n_rows, 51);
	CHECK_EQ(scan_all(SCAN_INODE, 0).n_rows, 53);
	res = scan_all(SCAN_INODE, file.ino);
	CHECK_EQ(res.n_rows, 1);
	CHECK_EQ(res.rows[0].h.ino, file.ino);
	CHECK_EQ(res.rows[0].layout.n_targets, 3);
	CHECK(scan_all(SCAN_NEXT, 0).rows[0].h.ino > file.ino + 50);
	metadb_end(&f);
}

static void what_cannot_be_read_is_a_row_too(void)
{
	struct wire_scan_args a = { .kind = 99, .max = 1 };
	struct wire_scan_res res;

	start();
	put_row(T_INODE, key_u64(file.ino), "short", 5);
	put_row(T_UNSETTLED, key_u64(file.ino), "x", 1);
	put_row(T_PREPARED, key_pair32(7, 0), "12345678 no record", 18);
	res = scan_all(SCAN_INODE, file.ino);
	CHECK(res.n_rows == 1 && res.rows[0].bad);
	res = scan_all(SCAN_UNSETTLED, 0);
	CHECK(res.n_rows == 1 && res.rows[0].bad);
	CHECK_EQ(res.rows[0].h.ino, file.ino);
	res = scan_all(SCAN_PREPARED, 0);
	CHECK(res.n_rows == 1 && res.rows[0].bad);
	CHECK_EQ(meta_scan(f.m, &a, 100, &res, &f.arena), -EINVAL);
	a.kind = 0;
	CHECK_EQ(meta_scan(f.m, &a, 100, &res, &f.arena), -EINVAL);
	a.kind = SCAN_OBJECT;
	CHECK_EQ(meta_scan(f.m, &a, 100, &res, &f.arena), -EINVAL);
	metadb_end(&f);
}

/* ---- repairs ---- */

static void a_field_is_set_only_while_the_inode_is_as_it_was(void)
{
	static const uint32_t kinds[] = { REPAIR_NLINK, REPAIR_EPOCH, REPAIR_LAYOUT };
	uint32_t targets[] = { 2, 0 };

	start();
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct wire_record r = rec_repair(kinds[i], file);

		r.epoch = 9;
		r.layout = (struct wire_layout_rec){
			.version = 1, .unit = 4096, .obj_gen = 1, .n_targets = 2, .targets = targets
		};
		r.size--;
		CHECK_EQ(repair(&r), EAGAIN);
		r.size++;
		CHECK_EQ(repair(&r), 0);
		CHECK_EQ(repair(&r), EAGAIN); /* the inode has just changed */
	}
	CHECK_EQ(node_of(file).i.nlink, 9);
	CHECK_EQ(node_of(file).i.epoch, 9);
	CHECK_EQ(node_of(file).l.n_targets, 2);
	CHECK_EQ(node_of(file).targets[0], 2);
	metadb_end(&f);
}

static void repairs_are_for_root_and_refuse_nonsense(void)
{
	struct wire_record r;

	start();
	r = rec_repair(REPAIR_NLINK, file);
	r.uid = 1000;
	r.epoch = 3;
	CHECK_EQ(repair(&r), EPERM);
	r.uid = 0;
	r.epoch = 0; /* that would remove it */
	CHECK_EQ(repair(&r), EINVAL);
	r = rec_repair(REPAIR_LAYOUT, file);
	CHECK_EQ(repair(&r), EINVAL);
	r = rec_repair(REPAIR_PARENT, file);
	CHECK_EQ(repair(&r), ENOTDIR);
	r = rec_repair(REPAIR_TEXT, file);
	CHECK_EQ(repair(&r), EINVAL);
	r = rec_repair(REPAIR_DIRECTORY, file);
	CHECK_EQ(repair(&r), ENOTDIR);
	r = rec_repair(77, file);
	CHECK_EQ(repair(&r), EINVAL);
	r = rec_repair(REPAIR_MAKE, file);
	r.mode = S_IFDIR;
	CHECK_EQ(repair(&r), EAGAIN); /* the row exists */
	r = rec_repair(REPAIR_MAKE, (struct wire_handle){ 1000, 1 });
	r.mode = S_IFLNK; /* there is no text for a symbolic link */
	CHECK_EQ(repair(&r), ENOENT);
	r.mode = S_IFIFO;
	CHECK_EQ(repair(&r), EINVAL);
	metadb_end(&f);
}

static void an_entry_is_dropped_only_while_it_names_what_it_named(void)
{
	struct wire_record r;
	struct wire_handle at;

	start();
	r = rec_repair(REPAIR_ENTRY_DROP, file);
	r.dir = dir;
	r.name = wire_text("file");
	r.h.ino++;
	CHECK_EQ(repair(&r), EAGAIN);
	r.h.ino--;
	CHECK_EQ(repair(&r), 0);
	CHECK_EQ(repair(&r), ENOENT);
	CHECK_EQ(metadb_lookup(&f, dir, "file", &at), -ENOENT);
	CHECK_EQ(scan_all(SCAN_INDEX, dir.ino).n_rows, 0);
	CHECK_EQ(node_of(dir).i.entries, 0);
	CHECK_EQ(node_of(file).i.nlink, 1); /* the next check finds that it has no name */
	r = rec_repair(REPAIR_ENTRY_SET, file);
	r.dir = metadb_root;
	r.name = wire_text("dir");
	r.mode = S_IFREG;
	CHECK_EQ(repair(&r), EEXIST);
	r.name = wire_text("found");
	r.mode = S_IFDIR;
	CHECK_EQ(repair(&r), EAGAIN); /* the file is not a directory */
	r.mode = S_IFREG;
	CHECK_EQ(repair(&r), 0);
	CHECK_EQ(metadb_lookup(&f, metadb_root, "found", &at), 0);
	CHECK_EQ(at.ino, file.ino);
	CHECK_EQ(scan_all(SCAN_INDEX, metadb_root.ino).n_rows, 2);
	CHECK_EQ(node_of(metadb_root).i.entries, 2);
	metadb_end(&f);
}

static void an_entry_that_a_change_over_two_servers_holds_is_left_alone(void)
{
	uint64_t pair = 5;
	struct wire_bytes name = wire_text("file");
	struct key k = key_entry(0, &name);
	struct wire_record r;

	start();
	k = key_entry(dir.ino, &name);
	put_row(T_LOCK, k, &pair, sizeof(pair));
	put_row(T_PREPARED, key_pair32(pair, 0), "12345678", 8);
	metadb_reopen(&f); /* reopening counts the locks */
	r = rec_repair(REPAIR_ENTRY_DROP, file);
	r.dir = dir;
	r.name = name;
	CHECK_EQ(repair(&r), EINPROGRESS);
	r = rec_repair(REPAIR_ROW_DROP, file);
	r.epoch = SCAN_LOCK;
	r.data = (struct wire_bytes){ (uint32_t)k.n, k.b };
	CHECK_EQ(repair(&r), EAGAIN);
	put_row(T_PREPARED, key_pair32(pair, 0), NULL, 0);
	CHECK_EQ(repair(&r), 0); /* the lock has no owner now */
	CHECK_EQ(f.m->n_locks, 0);
	r = rec_repair(REPAIR_ENTRY_DROP, file);
	r.dir = dir;
	r.name = name;
	CHECK_EQ(repair(&r), 0);
	metadb_end(&f);
}

static void only_rows_of_missing_inodes_are_dropped(void)
{
	struct disk_unsettled unsettled = { .epoch = 1, .gen = 1 };
	struct disk_remove gone = { .gen = 1 };
	struct key k = key_u64(file.ino);
	struct wire_record r;

	start();
	k = key_u64(file.ino);
	put_row(T_UNSETTLED, k, &unsettled, sizeof(unsettled));
	r = rec_repair(REPAIR_ROW_DROP, file);
	r.data = (struct wire_bytes){ (uint32_t)k.n, k.b };
	r.epoch = SCAN_UNSETTLED;
	CHECK_EQ(repair(&r), EAGAIN);
	r.epoch = SCAN_INODE;
	CHECK_EQ(repair(&r), EAGAIN);
	r.epoch = SCAN_SYMLINK;
	CHECK_EQ(repair(&r), ENOENT);
	r.epoch = SCAN_NEXT;
	CHECK_EQ(repair(&r), EINVAL);
	k = key_pair32(file.ino, 1);
	put_row(T_REMOVE, k, &gone, sizeof(gone));
	r.epoch = SCAN_REMOVE;
	r.data.len = (uint32_t)k.n;
	CHECK_EQ(repair(&r), 0); /* the file has a name */
	k = key_u64(file.ino + 5);
	put_row(T_UNSETTLED, k, &unsettled, sizeof(unsettled));
	r.epoch = SCAN_UNSETTLED;
	r.data.len = (uint32_t)k.n;
	CHECK_EQ(repair(&r), 0); /* there is no such inode */
	CHECK_EQ(metadb_rows(&f, ROWS_REMOVE), 0);
	CHECK_EQ(metadb_rows(&f, ROWS_UNSETTLED), 1);
	metadb_end(&f);
}

static void a_directory_is_made_right_from_its_entries(void)
{
	struct wire_scan_res res;
	struct wire_record r;
	struct disk_entry e;
	struct wire_bytes a = wire_text("a"), b = wire_text("b");
	struct node n;

	start();
	metadb_make(&f, REC_MKDIR, dir, "a");
	metadb_make(&f, REC_CREATE, dir, "b");
	CHECK_EQ(read_begin(f.m), 0);
	CHECK_EQ(read_end(f.m, entry_get(&f.m->db, f.m->reader, dir.ino, &a, &e)), 0);
	e.type = S_IFREG;
	e.ino = file.ino;
	put_row(T_DIRENT, key_entry(dir.ino, &b), &e, sizeof(e)); /* the cookie of "a" */
	put_row(T_DIRINDEX, key_pair(dir.ino, 99), "no index row at all", 19);
	n = node_of(dir);
	n.i.entries = 50;
	n.i.nlink = 50;
	n.i.next_cookie = UINT64_MAX;
	put_row(T_INODE, key_u64(dir.ino), &n.i, sizeof(n.i));
	r = rec_repair(REPAIR_DIRECTORY, dir);
	CHECK_EQ(repair(&r), 0);
	n = node_of(dir);
	CHECK_EQ(n.i.entries, 3);
	CHECK_EQ(n.i.nlink, 3);
	res = scan_all(SCAN_INDEX, dir.ino);
	CHECK_EQ(res.n_rows, 3);
	for (uint32_t i = 0; i < res.n_rows; i++)
		CHECK(res.rows[i].second < n.i.next_cookie && !res.rows[i].bad);
	metadb_make(&f, REC_CREATE, dir, "c");
	CHECK_EQ(metadb_name(&f, REC_UNLINK, dir, "c").status, 0);
	metadb_end(&f);
}

static void numbers_that_are_taken_are_not_given(void)
{
	struct wire_handle far = { 5000, 1 };
	struct wire_record r;

	start();
	r = rec_repair(REPAIR_MAKE, far);
	r.mode = S_IFDIR;
	r.dir = metadb_root;
	r.epoch = 1;
	CHECK_EQ(repair(&r), 0);
	CHECK_EQ(scan_all(SCAN_NEXT, 0).rows[0].h.ino, 5001 + NUMBERS_AHEAD);
	meta_raise_ino(f.m, far.ino);
	CHECK_EQ(meta_new_ino(f.m), 5001);
	r = rec_repair(REPAIR_NEXT, (struct wire_handle){ 60000, 0 });
	CHECK_EQ(repair(&r), 0);
	CHECK_EQ(scan_all(SCAN_NEXT, 0).rows[0].h.ino, 60001 + NUMBERS_AHEAD);
	r.h.ino = 100; /* the counter never goes back */
	CHECK_EQ(repair(&r), 0);
	CHECK_EQ(scan_all(SCAN_NEXT, 0).rows[0].h.ino, 60001 + NUMBERS_AHEAD);
	r.h.ino = UINT64_C(1) << 48;
	CHECK_EQ(repair(&r), EXDEV);
	metadb_end(&f);
}

TEST_MAIN(TEST(pages_show_every_row_once), TEST(what_cannot_be_read_is_a_row_too),
	  TEST(a_field_is_set_only_while_the_inode_is_as_it_was),
	  TEST(repairs_are_for_root_and_refuse_nonsense),
	  TEST(an_entry_is_dropped_only_while_it_names_what_it_named),
	  TEST(an_entry_that_a_change_over_two_servers_holds_is_left_alone),
	  TEST(only_rows_of_missing_inodes_are_dropped),
	  TEST(a_directory_is_made_right_from_its_entries),
	  TEST(numbers_that_are_taken_are_not_given))
