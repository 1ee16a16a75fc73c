/* Opens and closes the metadata of a target: the LMDB environment, the check whose database it is,
 * the root directory.
 *
 * Threads: the loop's; it may block (start and stop only). Buffers: none kept. Errors: 0 or -errno,
 * with a message that names the directory, what is wrong with it and what to do. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "meta/meta_state.h"

#ifdef __SANITIZE_THREAD__ /* leaves little address space on aarch64 */
#define MAP_BYTES_DEFAULT (UINT64_C(4) << 30)
#define NEVER_MAPPED true /* and does not see how LMDB orders its stores */
#else
#define NEVER_MAPPED false
#define MAP_BYTES_DEFAULT (UINT64_C(64) << 30)
#endif
#define PREFETCH_MAX (UINT64_C(1) << 30)

/* State of meta_open(), also for its messages. */
struct opening {
	struct meta *m;
	const struct meta_opts *o;
	bool fresh; /* the database had no head */
	uint32_t old; /* an earlier schema, to be upgraded, or 0 */
	char *err;
	size_t err_len;
};

static int refuse(struct opening *op, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(struct opening *op, int rc, const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(op->err, op->err_len, "metadata in %s: ", op->o->dir);

	va_start(ap, fmt);
	if (n >= 0 && (size_t)n < op->err_len)
		vsnprintf(op->err + n, op->err_len - (size_t)n, fmt, ap);
	va_end(ap);
	return rc;
}

static int refuse_lmdb(struct opening *op, const char *doing, int rc)
{
	switch (rc) {
	case MDB_INVALID:
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_PANIC:
		return refuse(op, -EIO,
			      "the database is damaged (%s: %s); restore it from a backup, or from "
			      "another copy of this directory",
			      doing, mdb_strerror(rc));
	case MDB_VERSION_MISMATCH:
		return refuse(
			op, -EIO,
			"the database was written by another version of LMDB than %s; use that "
			"one, or restore a backup",
			mdb_version(NULL, NULL, NULL));
	case MDB_MAP_FULL:
		return refuse(op, -ENOSPC,
			      "the database is larger than its limit of address space");
	default:
		return refuse(op, db_error(rc), "cannot %s: %s", doing, mdb_strerror(rc));
	}
}

static int env_open_as(struct opening *op, unsigned flags, uint64_t map_bytes)
{
	const struct meta_opts *o = op->o;
	struct db *d = &op->m->db;
	int dead, rc = mdb_env_create(&d->env);

	if (!rc)
		rc = mdb_env_set_mapsize(d->env, map_bytes);
	if (!rc)
		rc = mdb_env_set_maxdbs(d->env, N_TABLES);
	if (!rc)
		rc = mdb_env_open(d->env, o->dir, flags | MDB_NOTLS, 0600);
	if (!rc)
		rc = mdb_reader_check(d->env, &dead); /* frees reader slots of killed processes */
	return rc ? refuse_lmdb(op, "open", rc) : 0;
}

static int refuse_gone(struct opening *op)
{
	return refuse(op, -EUCLEAN,
		      "the database is gone: is a disk not mounted? If it is lost, `sheaf restore` "
		      "puts a backup back");
}

/* Checked before the database is created: an empty new one would look newer than a backup. */
static bool is_gone(const char *dir)
{
	char path[CONF_PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/data.mdb", dir);
	return access(path, F_OK) < 0 && errno == ENOENT;
}

/* LMDB writes through its map if the directory is on a tmpfs that has space for the whole map. The
 * database may be on another file system than the objects, which l->on_tmpfs is about. */
static int env_open(struct opening *op)
{
	const unsigned nosync = MDB_NOSYNC | MDB_NOMETASYNC;
	const struct meta_opts *o = op->o;
	const struct loop *l = op->m->loop;
	uint64_t limit = o->map_bytes ? o->map_bytes : MAP_BYTES_DEFAULT;
	int rc;

	if (o->expected && is_gone(o->dir))
		return refuse_gone(op);
	if (mkdir(o->dir, 0700) < 0 && errno != EEXIST)
		return refuse(op, -errno, "cannot make the directory: %s", strerror(errno));
	if (l && l->on_tmpfs && !NEVER_MAPPED && is_on_tmpfs(-1, o->dir)) {
		rc = env_open_as(op, nosync | MDB_WRITEMAP, space_initial_bytes(o->dir, limit));
		if (rc || space_open(op->m, limit, true) == 0)
			return rc;
		mdb_env_close(op->m->db.env);
		op->m->db.env = NULL;
	}
	rc = env_open_as(op, o->nosync ? nosync : 0, limit);
	if (!rc && l)
		rc = space_open(op->m, limit, false);
	return rc;
}

/* A database file that ends before its last page raises SIGBUS when that page is touched. LMDB
 * leaves such a file when the last pages were never needed; a truncated copy looks the same. Zeros
 * in their place are harmless in the first case and reported as damage in the second. */
static int cover_last_page(struct opening *op)
{
	MDB_envinfo info;
	MDB_stat st;
	struct stat file;
	off_t need;
	int fd, rc = mdb_env_info(op->m->db.env, &info);

	if (!rc)
		rc = mdb_env_stat(op->m->db.env, &st);
	if (!rc)
		rc = mdb_env_get_fd(op->m->db.env, &fd);
	if (rc)
		return refuse_lmdb(op, "examine the file", rc);
	need = (off_t)((info.me_last_pgno + 1) * st.ms_psize);
	if (fstat(fd, &file) < 0 || (file.st_size < need && ftruncate(fd, need) < 0))
		return refuse(op, -errno, "cannot examine the file: %s", strerror(errno));
	return 0;
}

/* Reads the file once, so that inline reads find it in the page cache. */
static void prefetch(struct meta *m)
{
	uint8_t *buf = malloc(MIB);
	struct stat st;
	off_t at = 0;
	ssize_t n;
	int fd;

	if (buf && !mdb_env_get_fd(m->db.env, &fd) && !fstat(fd, &st) &&
	    (uint64_t)st.st_size < PREFETCH_MAX)
		while ((n = pread(fd, buf, MIB, at)) > 0)
			at += n;
	free(buf);
}

/* ---- the head: whose database is it? ---- */

static int head_check(struct opening *op, const struct disk_head *h)
{
	char ours[UUID_TEXT], theirs[UUID_TEXT];
	const struct meta_opts *o = op->o;
	struct uuid fs;

	if (memcmp(h->magic, SCHEMA_MAGIC, sizeof(h->magic)))
		return refuse(op, -EIO, "this is no metadata of Sheaf; choose another directory");
	if (h->version > SCHEMA_VERSION)
		return refuse(
			op, -EPROTONOSUPPORT,
			"written by a newer Sheaf (schema %u, this one reads up to %u); install that version",
			h->version, SCHEMA_VERSION);
	if (h->version < SCHEMA_OLDEST)
		return refuse(op, -EPROTONOSUPPORT, "schema %u is too old for this Sheaf (%u)",
			      h->version, SCHEMA_VERSION);
	op->old = h->version < SCHEMA_VERSION ? h->version : 0;
	memcpy(fs.b, h->fs, sizeof(fs.b));
	uuid_format(theirs, &fs);
	uuid_format(ours, &o->fs);
	if (memcmp(h->fs, o->fs.b, sizeof(h->fs)))
		return refuse(op, -EINVAL,
			      "belongs to file system %s, not %s; correct the storage path in the "
			      "cluster file",
			      theirs, ours);
	if (h->target != o->target)
		return refuse(
			op, -EINVAL,
			"belongs to server %u, not %u; correct the storage path in the cluster "
			"file",
			h->target, o->target);
	if (h->partition != o->partition)
		return refuse(
			op, -EINVAL,
			"holds partition %u, not %u; correct the order of the metadata servers "
			"in the cluster file",
			h->partition, o->partition);
	return 0;
}

static int head_put(struct opening *op, MDB_txn *txn)
{
	struct disk_head h = {
		.version = SCHEMA_VERSION,
		.target = op->o->target,
		.partition = op->o->partition,
	};
	struct key k = key_text("head");

	memcpy(h.magic, SCHEMA_MAGIC, sizeof(h.magic));
	memcpy(h.fs, op->o->fs.b, sizeof(h.fs));
	return row_put(&op->m->db, txn, T_SYS, &k, &h, sizeof(h));
}

static int root_put(struct opening *op, MDB_txn *txn)
{
	struct env *e = op->m->loop->env;
	int64_t now = (int64_t)e->clock->wall(e);
	struct node n = {
		.i = {
			.mode = S_IFDIR | 01777,
			.nlink = 2,
			.gen = META_ROOT_GEN,
			.change = 1,
			.atime = now,
			.mtime = now,
			.ctime = now,
			.btime = now,
			.epoch = EPOCH_FIRST,
			.parent_ino = META_ROOT_INO,
			.parent_gen = META_ROOT_GEN,
			.next_cookie = COOKIE_FIRST,
		},
	};

	return node_put(&op->m->db, txn, META_ROOT_INO, &n);
}

/* 0: the database has no tables, so it is new. */
static int empty_check(struct opening *op, MDB_txn *txn)
{
	MDB_stat st;
	MDB_dbi all;
	int rc = mdb_dbi_open(txn, NULL, 0, &all);

	if (!rc)
		rc = mdb_stat(txn, all, &st);
	if (rc)
		return refuse_lmdb(op, "open its tables", rc);
	if (st.ms_entries)
		return refuse(op, -EIO, "this is no metadata of Sheaf; choose another directory");
	if (op->o->expected)
		return refuse_gone(op);
	op->fresh = true;
	return 0;
}

/* Reads the head before anything is written, so that a refused database stays unchanged. */
static int head_read(struct opening *op, MDB_txn *txn)
{
	struct db *d = &op->m->db;
	struct disk_head h;
	struct key k = key_text("head");
	int rc = mdb_dbi_open(txn, table_names[T_SYS], 0, &d->t[T_SYS]);

	if (rc == MDB_NOTFOUND)
		return empty_check(op, txn);
	if (rc)
		return refuse_lmdb(op, "open its tables", rc);
	rc = row_read(d, txn, T_SYS, &k, &h, sizeof(h));
	if (rc == -ENOENT || rc == -EIO)
		return refuse(op, -EIO, "this is no metadata of Sheaf; choose another directory");
	if (rc)
		return refuse(op, rc, "cannot read its head: %s", strerror(-rc));
	return head_check(op, &h);
}

/* Sets `written` to now, so that the times of the objects do not change the file's, and makes the
 * file unsettled. A file that is unsettled already had writers and stays as it is. */
static int upgrade_file(struct opening *op, MDB_txn *txn, uint64_t ino, struct node *n)
{
	const struct db *d = &op->m->db;
	struct key k = key_u64(ino);
	struct timespec now;
	MDB_val v;
	int rc = row_get(d, txn, T_UNSETTLED, &k, &v);

	if (rc != -ENOENT)
		return rc;
	clock_gettime(CLOCK_REALTIME, &now);
	n->i.written = (int64_t)now.tv_sec * (int64_t)NSEC_PER_SEC + now.tv_nsec;
	rc = node_put(d, txn, ino, n);
	return rc ? rc : unsettled_put(d, txn, ino, n);
}

/* Parts of changes over several servers are stored as records, whose form has changed. */
static int refuse_pairs(struct opening *op, MDB_txn *txn)
{
	const struct db *d = &op->m->db;
	MDB_stat prepared, decided;
	int rc = mdb_stat(txn, d->t[T_PREPARED], &prepared);

	if (!rc)
		rc = mdb_stat(txn, d->t[T_DECIDED], &decided);
	if (rc)
		return refuse_lmdb(op, "examine its tables", rc);
	if (prepared.ms_entries || decided.ms_entries)
		return refuse(
			op, -EUCLEAN,
			"changes over two servers are not finished: start all servers with the "
			"version that wrote it, stop them with `sheaf stop`, then upgrade");
	return 0;
}

/* Before schema 6 no row had the ends of objects: every file becomes unsettled, so that its objects
 * are asked. Stored answers had no digest of their request: they are dropped with their sessions,
 * whose clients use an older protocol anyway. Before schema 8 records had another form, and so had
 * prepared parts. Everything else that earlier schemas lack are tables, and fields that are 0. */
static int schema_upgrade(struct opening *op, MDB_txn *txn)
{
	const struct db *d = &op->m->db;
	MDB_cursor *cur;
	MDB_val k, v;
	int rc;

	rc = refuse_pairs(op, txn);
	if (rc || op->old >= 6)
		return rc;
	rc = mdb_drop(txn, d->t[T_SESSION], 0);
	if (!rc)
		rc = mdb_drop(txn, d->t[T_SLOT], 0);
	if (!rc)
		rc = mdb_cursor_open(txn, d->t[T_INODE], &cur);
	if (rc)
		return db_error(rc);
	for (rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_FIRST)); !rc;
	     rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_NEXT))) {
		uint64_t ino = be64_load(k.mv_data);
		struct node n;

		if (node_unpack(&v, &n) || !S_ISREG(n.i.mode)) /* `sheaf check` reports damage */
			continue;
		rc = upgrade_file(op, txn, ino, &n);
		if (rc)
			break;
	}
	mdb_cursor_close(cur);
	return rc == -ENOENT ? 0 : rc;
}

/* A database without a stamp is new or of an earlier schema. */
static int check_stamp(struct opening *op, MDB_txn *txn)
{
	struct disk_stamp_row row;
	struct key k = key_text("stamp");
	int rc = op->o->stamp.incarnation ?
			 row_read(&op->m->db, txn, T_SYS, &k, &row, sizeof(row)) :
			 -ENOENT;

	if (rc)
		return rc == -ENOENT ? 0 :
				       refuse(op, rc, "cannot read its stamp: %s", strerror(-rc));
	return stamp_check(&op->o->stamp, &(struct stamp){ row.incarnation, row.count }, op->o->dir,
			   op->err, op->err_len);
}

/* Stores the count of this start. On a full disk the count stays as it is, and the storage's count
 * must stay, too. */
static int put_stamp(struct opening *op)
{
	const struct stamp *id = &op->o->stamp;
	struct disk_stamp_row row = { id->incarnation, id->count + 1 };
	struct key k = key_text("stamp");
	struct meta *m = op->m;
	MDB_txn *txn;
	int rc = id->incarnation ? mdb_txn_begin(m->db.env, NULL, 0, &txn) : 0;

	if (rc || !id->incarnation)
		return rc ? refuse_lmdb(op, "begin", rc) : 0;
	rc = row_put(&m->db, txn, T_SYS, &k, &row, sizeof(row));
	if (rc)
		mdb_txn_abort(txn);
	else
		rc = db_error(mdb_txn_commit(txn));
	m->stamped = !rc;
	if (rc == -ENOSPC)
		log_warn("meta", "metadata in %s: the disk is full, this start is not counted",
			 op->o->dir);
	return rc && rc != -ENOSPC ? refuse(op, rc, "cannot write its stamp: %s", strerror(-rc)) :
				     0;
}

static int tables_open(struct opening *op, MDB_txn *txn)
{
	struct meta *m = op->m;
	struct key k = key_next(m->partition);
	MDB_stat st = { 0 };
	int rc = head_read(op, txn);

	if (rc)
		return rc;
	for (int t = 0; !rc && t < N_TABLES; t++)
		rc = mdb_dbi_open(txn, table_names[t], op->fresh || op->old ? MDB_CREATE : 0,
				  &m->db.t[t]);
	if (rc)
		return refuse_lmdb(op, "open its tables", rc);
	if (op->old)
		rc = schema_upgrade(op, txn);
	if (!rc && (op->fresh || op->old))
		rc = head_put(op, txn);
	if (!rc && op->fresh && op->o->root)
		rc = root_put(op, txn);
	m->stored_next = INO_COUNTER(META_ROOT_INO) + 1;
	if (!rc)
		rc = row_read(&m->db, txn, T_SYS, &k, &m->stored_next, sizeof(m->stored_next));
	m->next_ino = m->stored_next;
	if (!rc || rc == -ENOENT)
		rc = db_error(mdb_stat(txn, m->db.t[T_LOCK], &st));
	m->n_locks = m->stored_locks = st.ms_entries;
	if (rc && rc != -ENOENT)
		return refuse(op, rc, "cannot set up its tables: %s", strerror(-rc));
	return check_stamp(op, txn);
}

static int database_open(struct opening *op)
{
	struct meta *m = op->m;
	MDB_txn *txn;
	int rc = env_open(op);

	if (!rc)
		rc = cover_last_page(op);
	if (rc)
		return rc;
	prefetch(m);
	rc = mdb_txn_begin(m->db.env, NULL, 0, &txn);
	if (rc)
		return refuse_lmdb(op, "begin", rc);
	rc = tables_open(op, txn);
	if (rc) {
		mdb_txn_abort(txn);
		return rc;
	}
	rc = mdb_txn_commit(txn);
	if (!rc && op->old)
		log_info("meta", "metadata in %s: brought up to schema %u", op->o->dir,
			 SCHEMA_VERSION);
	if (!rc)
		rc = mdb_txn_begin(m->db.env, NULL, MDB_RDONLY, &m->reader);
	if (rc)
		return refuse_lmdb(op, "commit", rc);
	mdb_txn_reset(m->reader);
	return put_stamp(op);
}

/* ---- open, close ---- */

void meta_free(struct meta *m)
{
	writer_fini(m);
	if (m->reader)
		mdb_txn_abort(m->reader);
	if (m->db.env)
		mdb_env_close(m->db.env);
	free(m);
}

int meta_open(struct loop *l, const struct meta_opts *o, struct meta **out, char *err,
	      size_t err_len)
{
	struct opening op = {
		.m = calloc(1, sizeof(*op.m)), .o = o, .err = err, .err_len = err_len
	};
	int rc;

	if (!op.m)
		return refuse(&op, -ENOMEM, "out of memory");
	op.m->loop = l;
	op.m->partition = o->partition;
	if (o->root && o->partition != INO_PARTITION(META_ROOT_INO))
		rc = refuse(&op, -EINVAL, "the root directory is in partition %u, not %u",
			    INO_PARTITION(META_ROOT_INO), o->partition);
	else
		rc = database_open(&op);
	if (!rc && !l && op.fresh)
		rc = refuse(&op, -EIO, "this is no metadata of Sheaf");
	if (!rc && l) {
		rc = writer_init(op.m);
		if (rc)
			refuse(&op, rc, "cannot start its writer: %s", strerror(-rc));
	}
	if (rc) {
		meta_free(op.m);
		return rc;
	}
	*out = op.m;
	return 0;
}

bool meta_stamped(const struct meta *m)
{
	return m->stamped;
}

void meta_close(struct meta *m)
{
	if (!m)
		return;
	writer_stop(m, false);
	space_set_mtime(m);
	mdb_env_sync(m->db.env, 1); /* a clean stop is durable even with nosync */
	meta_free(m);
}

void meta_abandon(struct meta *m)
{
	if (!m)
		return;
	writer_stop(m, true);
	meta_free(m);
}
