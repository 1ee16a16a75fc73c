/* Replaces the database by a copy.
 *
 *	write DIR/restore/data.mdb -> open it: ours? -> jump -> rename to DIR/data.mdb
 *
 * The data targets have continued since the copy was made: they have fences above the epochs in it,
 * objects of inodes that it does not contain, and objects that are longer or shorter than it says.
 * Numbers that were used since must not be used again: the inode counter, every epoch and the map
 * version jump. No size in the copy can be trusted: every regular file gets an unsettled row, and
 * the server settles all of them after its start. A truncate that was under way counts as done; the
 * objects' ends decide.
 *
 * Threads: none; blocks, for a server that is not running. Errors: 0 or -errno with a message;
 * nothing has changed before the last rename. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "meta/meta_state.h"

#define BATCH 4096 /* inodes per transaction */
#define COUNTER_JUMP (UINT64_C(1) << 32) /* more than are used between a backup and its restore */
#define MAP_JUMP (UINT32_C(1) << 16)

struct restoring {
	const struct meta_opts *o;
	char dir[CONF_PATH_MAX + 16]; /* directory where the copy is prepared */
	char *err;
	size_t err_len;
};

static int fail(struct restoring *r, int rc, const char *what)
{
	snprintf(r->err, r->err_len, "metadata in %s: %s: %s", r->o->dir, what, error_text(rc));
	return rc;
}

/* ---- the file ---- */

static int write_all(int fd, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w <= 0)
			return w ? -errno : -ENOSPC;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

static int copy_bytes(const struct meta_part *p, int to, uint32_t *crc)
{
	uint8_t *buf = malloc(MIB);
	int rc = buf ? 0 : -ENOMEM;
	uint64_t at = 0;

	while (!rc && at < p->size) {
		ssize_t n = pread(p->fd, buf, MIN(p->size - at, MIB), (off_t)(p->off + at));

		if (n <= 0) {
			rc = n ? -errno : -EIO;
			break;
		}
		*crc = crc32c(*crc, buf, (size_t)n);
		at += (uint64_t)n;
		rc = write_all(to, buf, (size_t)n);
	}
	free(buf);
	return rc;
}

static int write_copy(struct restoring *r, const struct meta_part *p)
{
	char path[sizeof(r->dir) + 16];
	uint32_t crc = 0;
	int fd, rc;

	if (mkdir(r->o->dir, 0700) < 0 && errno != EEXIST)
		return fail(r, -errno, "cannot make the directory");
	if (mkdir(r->dir, 0700) < 0 && errno != EEXIST)
		return fail(r, -errno, "cannot make a directory in it");
	snprintf(path, sizeof(path), "%s/lock.mdb", r->dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/data.mdb", r->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(r, -errno, "cannot write the copy");
	rc = copy_bytes(p, fd, &crc);
	if (!rc && fsync(fd) < 0)
		rc = -errno;
	close(fd);
	if (rc)
		return fail(r, rc, "cannot write the copy");
	if (crc != p->crc) {
		snprintf(r->err, r->err_len,
			 "metadata in %s: the backup is damaged (checksum); use another one",
			 r->o->dir);
		return -EBADMSG;
	}
	return 0;
}

/* ---- jumps ---- */

/* Reads up to BATCH keys of a table from *from on, and moves *from behind them. */
static int next_keys(const struct db *d, MDB_txn *txn, enum table t, uint64_t *from, uint64_t *keys,
		     size_t *n)
{
	struct key start = key_u64(*from);
	MDB_val k = { start.n, start.b }, v;
	MDB_cursor *cur;
	int rc = db_error(mdb_cursor_open(txn, d->t[t], &cur));

	*n = 0;
	if (rc)
		return rc;
	rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_SET_RANGE));
	while (!rc && *n < BATCH) {
		keys[(*n)++] = be64_load(k.mv_data);
		rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_NEXT));
	}
	mdb_cursor_close(cur);
	if (*n)
		*from = keys[*n - 1] + 1;
	return rc == -ENOENT ? 0 : rc;
}

static int jump_inode(const struct db *d, MDB_txn *txn, uint64_t ino)
{
	struct key k = key_u64(ino);
	struct disk_unsettled row;
	struct disk_intent intent;
	struct node n;
	int rc = node_get(d, txn, ino, &n);

	if (rc)
		return rc;
	n.i.change += COUNTER_JUMP;
	if (!S_ISREG(n.i.mode))
		return node_put(d, txn, ino, &n);
	row = (struct disk_unsettled){ .epoch = n.i.epoch, .gen = n.i.gen };
	n.i.epoch += COUNTER_JUMP;
	rc = row_read(d, txn, T_INTENT, &k, &intent, sizeof(intent));
	if (!rc) { /* objects may be truncated already: only they know their ends */
		n.i.size = intent.size;
		memset(n.objects, 0, sizeof(n.objects));
		rc = row_del(d, txn, T_INTENT, &k);
	}
	if (rc && rc != -ENOENT)
		return rc;
	rc = node_put(d, txn, ino, &n);
	return rc ? rc : row_put(d, txn, T_UNSETTLED, &k, &row, sizeof(row));
}

/* All inodes, in several transactions: the copy is not in use before it is complete. */
static int jump_inodes(const struct db *d)
{
	uint64_t *keys = malloc(BATCH * sizeof(*keys)), from = 0;
	size_t n = 1;
	int rc = keys ? 0 : -ENOMEM;

	while (!rc && n) {
		MDB_txn *txn;

		rc = db_error(mdb_txn_begin(d->env, NULL, 0, &txn));
		if (rc)
			break;
		rc = next_keys(d, txn, T_INODE, &from, keys, &n);
		for (size_t i = 0; !rc && i < n; i++)
			rc = jump_inode(d, txn, keys[i]);
		if (rc)
			mdb_txn_abort(txn);
		else
			rc = db_error(mdb_txn_commit(txn));
	}
	free(keys);
	return rc;
}

/* The copy gets the stamp of the storage into which it is restored. */
static int take_stamp(const struct restoring *r, const struct meta *m, MDB_txn *txn)
{
	struct disk_stamp_row row = { r->o->stamp.incarnation, r->o->stamp.count };
	struct key k = key_text("stamp");

	return row_put(&m->db, txn, T_SYS, &k, &row, sizeof(row));
}

static int jump_counters(const struct meta *m, MDB_txn *txn)
{
	struct key next = key_next(m->partition), map = key_text("map");
	uint64_t counter = m->stored_next + COUNTER_JUMP;
	struct disk_map version;
	MDB_val v;
	uint8_t *copy;
	int rc;

	if (INO_COUNTER(counter) != counter)
		return -EOVERFLOW;
	rc = row_put(&m->db, txn, T_SYS, &next, &counter, sizeof(counter));
	if (!rc)
		rc = row_get(&m->db, txn, T_SYS, &map, &v);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (v.mv_size < sizeof(version))
		return -EIO;
	copy = malloc(v.mv_size);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, v.mv_data, v.mv_size);
	memcpy(&version, copy, sizeof(version));
	version.version += MAP_JUMP;
	memcpy(copy, &version, sizeof(version));
	rc = row_put(&m->db, txn, T_SYS, &map, copy, v.mv_size);
	free(copy);
	return rc;
}

/* Opens the copy, which checks that it belongs to this target and has a known schema. */
static int prepare(struct restoring *r)
{
	struct meta_opts o = *r->o;
	struct meta *m;
	MDB_txn *txn;
	int rc;

	o.dir = r->dir;
	o.root = false;
	o.stamp.incarnation = 0; /* the copy has the stamp of the storage where it was made */
	rc = meta_open(NULL, &o, &m, r->err, r->err_len);
	if (rc)
		return rc;
	rc = db_error(mdb_txn_begin(m->db.env, NULL, 0, &txn));
	if (!rc) {
		rc = jump_counters(m, txn);
		if (!rc)
			rc = take_stamp(r, m, txn);
		if (rc)
			mdb_txn_abort(txn);
		else
			rc = db_error(mdb_txn_commit(txn));
	}
	if (!rc)
		rc = jump_inodes(&m->db);
	if (!rc)
		rc = db_error(mdb_env_sync(m->db.env, 1));
	meta_free(m);
	return rc ? fail(r, rc, "cannot prepare the copy") : 0;
}

/* ---- the exchange ---- */

static int sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0 || fsync(fd) < 0)
		rc = -errno;
	if (fd >= 0)
		close(fd);
	return rc;
}

static int exchange(struct restoring *r, int64_t time)
{
	const struct timespec at = { time / (int64_t)NSEC_PER_SEC, time % (int64_t)NSEC_PER_SEC };
	const struct timespec when[2] = { at, at };
	char now[CONF_PATH_MAX + 32], kept[sizeof(now)], new[sizeof(r->dir) + 16];
	int rc;

	snprintf(now, sizeof(now), "%s/data.mdb", r->o->dir);
	snprintf(kept, sizeof(kept), "%s/data.mdb.replaced", r->o->dir);
	snprintf(new, sizeof(new), "%s/data.mdb", r->dir);
	if (unlink(kept) < 0 && errno != ENOENT)
		return fail(r, -errno, "cannot remove data.mdb.replaced");
	if (link(now, kept) < 0 && errno != ENOENT)
		return fail(r, -errno, "cannot keep the old database");
	utimensat(AT_FDCWD, new, when, 0); /* a second restore of this backup is allowed */
	if (rename(new, now) < 0)
		return fail(r, -errno, "cannot put the copy in its place");
	rc = sync_dir(r->o->dir);
	snprintf(new, sizeof(new), "%s/lock.mdb", r->dir);
	unlink(new);
	rmdir(r->dir);
	return rc ? fail(r, rc, "cannot sync the directory") : 0;
}

int meta_restore(const struct meta_opts *o, const struct meta_part *p, char *err, size_t err_len)
{
	struct restoring r = { .o = o, .err = err, .err_len = err_len };
	int rc;

	snprintf(r.dir, sizeof(r.dir), "%s/restore", o->dir);
	rc = write_copy(&r, p);
	if (!rc)
		rc = prepare(&r);
	return rc ? rc : exchange(&r, p->time);
}
