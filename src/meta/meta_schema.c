/* Keys, rows and records of the metadata database; see meta_schema.h.
 *
 * Threads: none of its own; a transaction belongs to the caller that began it. Buffers: what
 * row_get() returns is LMDB's. Errors: LMDB's codes become -errno here and nowhere else. */
#include "meta/meta_schema.h"

#include <endian.h>

const char *const table_names[N_TABLES] = {
	[T_INODE] = "inode",	     [T_DIRENT] = "dirent",   [T_DIRINDEX] = "dirindex",
	[T_UNSETTLED] = "unsettled", [T_REMOVE] = "remove",   [T_INTENT] = "intent",
	[T_SESSION] = "session",     [T_SLOT] = "slot",	      [T_SYS] = "sys",
	[T_SYMLINK] = "symlink",     [T_XATTR] = "xattr",     [T_PREPARED] = "prepared",
	[T_LOCK] = "lock",	     [T_DECIDED] = "decided", [T_ANSWER] = "answer",
	[T_ANSWERED] = "answered",
};

int db_error(int rc)
{
	switch (rc) {
	case 0:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_MAP_FULL:
	case MDB_TXN_FULL:
		return -ENOSPC;
	default:
		return rc > 0 ? -rc : -EIO;
	}
}

static void be64_store(void *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

uint64_t be64_load(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

uint32_t be32_load(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

/* ---- keys ---- */

struct key key_u64(uint64_t id)
{
	struct key k = { .n = 8 };

	be64_store(k.b, id);
	return k;
}

struct key key_entry(uint64_t dir, const struct wire_bytes *name)
{
	struct key k = key_u64(dir);

	memcpy(k.b + 8, name->p, name->len);
	k.n = 8 + name->len;
	return k;
}

struct key key_pair(uint64_t id, uint64_t second)
{
	struct key k = key_u64(id);

	be64_store(k.b + 8, second);
	k.n = 16;
	return k;
}

struct key key_pair32(uint64_t id, uint32_t second)
{
	struct key k = key_u64(id);
	uint32_t be = htobe32(second);

	memcpy(k.b + 8, &be, sizeof(be));
	k.n = 12;
	return k;
}

struct key key_call(const uint8_t id[CALL_ID_BYTES])
{
	struct key k = { .n = CALL_ID_BYTES };

	memcpy(k.b, id, CALL_ID_BYTES);
	return k;
}

struct key key_text(const char *s)
{
	struct key k = { .n = strlen(s) };

	memcpy(k.b, s, k.n);
	return k;
}

struct key key_next(uint16_t partition)
{
	struct key k = key_text("next");
	uint16_t be = htobe16(partition);

	memcpy(k.b + k.n, &be, sizeof(be));
	k.n += sizeof(be);
	return k;
}

/* ---- rows ---- */

static MDB_val key_val(const struct key *k)
{
	return (MDB_val){ k->n, (void *)k->b };
}

int row_get(const struct db *d, MDB_txn *txn, enum table t, const struct key *k, MDB_val *v)
{
	MDB_val kv = key_val(k);

	return db_error(mdb_get(txn, d->t[t], &kv, v));
}

int row_read(const struct db *d, MDB_txn *txn, enum table t, const struct key *k, void *rec,
	     size_t n)
{
	MDB_val v;
	int rc = row_get(d, txn, t, k, &v);

	if (rc)
		return rc;
	if (v.mv_size < n)
		return -EIO;
	memcpy(rec, v.mv_data, n);
	return 0;
}

int row_put(const struct db *d, MDB_txn *txn, enum table t, const struct key *k, const void *rec,
	    size_t n)
{
	MDB_val kv = key_val(k), v = { n, (void *)rec };

	return db_error(mdb_put(txn, d->t[t], &kv, &v, 0));
}

int row_put2(const struct db *d, MDB_txn *txn, enum table t, const struct key *k, const void *rec,
	     size_t n, const void *tail, size_t n_tail)
{
	MDB_val kv = key_val(k), v = { n + n_tail, NULL };
	int rc = mdb_put(txn, d->t[t], &kv, &v, MDB_RESERVE);

	if (rc)
		return db_error(rc);
	memcpy(v.mv_data, rec, n);
	if (n_tail)
		memcpy((uint8_t *)v.mv_data + n, tail, n_tail);
	return 0;
}

int row_del(const struct db *d, MDB_txn *txn, enum table t, const struct key *k)
{
	MDB_val kv = key_val(k);

	return db_error(mdb_del(txn, d->t[t], &kv, NULL));
}

int rows_each(const struct db *d, MDB_txn *txn, enum table t, uint64_t id, row_fn *fn, void *arg)
{
	struct key from = key_u64(id);
	MDB_val k = { from.n, from.b }, v;
	MDB_cursor *cur;
	int rc = db_error(mdb_cursor_open(txn, d->t[t], &cur));

	if (rc)
		return rc;
	rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_SET_RANGE));
	while (!rc && k.mv_size >= 8 && be64_load(k.mv_data) == id) {
		rc = fn(arg, cur, &k, &v);
		if (!rc)
			rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_NEXT));
	}
	mdb_cursor_close(cur);
	return rc == -ENOENT ? 0 : rc;
}

/* ---- inodes ---- */

int node_unpack(const MDB_val *v, struct node *n)
{
	const uint8_t *p = v->mv_data;
	size_t left = v->mv_size, len;

	if (left < sizeof(n->i))
		return -EIO;
	memcpy(&n->i, p, sizeof(n->i));
	p += sizeof(n->i);
	left -= sizeof(n->i);
	memset(&n->l, 0, sizeof(n->l));
	if (!S_ISREG(n->i.mode))
		return 0;
	if (left < sizeof(n->l))
		return -EIO;
	memcpy(&n->l, p, sizeof(n->l));
	p += sizeof(n->l);
	left -= sizeof(n->l);
	len = n->l.n_targets * sizeof(n->targets[0]);
	if (n->l.n_targets > TARGETS_MAX || left < len)
		return -EIO;
	memcpy(n->targets, p, len);
	p += len;
	left -= len;
	len = n->l.n_targets * sizeof(n->objects[0]);
	if (left >= len)
		memcpy(n->objects, p, len);
	else
		memset(n->objects, 0, len);
	return 0;
}

int node_get(const struct db *d, MDB_txn *txn, uint64_t ino, struct node *n)
{
	struct key k = key_u64(ino);
	MDB_val v;
	int rc = row_get(d, txn, T_INODE, &k, &v);

	n->ino = ino;
	return rc ? rc : node_unpack(&v, n);
}

void db_touch(const struct db *d, uint64_t ino, uint64_t change)
{
	struct touched *t = d->touched;

	if (t && t->n < TOUCHED_MAX)
		t->list[t->n++] = (struct meta_touched){ .ino = ino, .change = change };
	else if (t)
		t->n_more++;
}

void db_touch_settled(const struct db *d, const struct node *n)
{
	struct touched *t = d->touched;

	if (t && t->n < TOUCHED_MAX)
		t->list[t->n++] = (struct meta_touched){ n->ino, n->i.change, n->i.gen, true };
	else if (t)
		t->n_more++;
}

int node_put(const struct db *d, MDB_txn *txn, uint64_t ino, const struct node *n)
{
	uint8_t tail[sizeof(n->l) + sizeof(n->targets) + sizeof(n->objects)];
	struct key k = key_u64(ino);
	size_t targets = n->l.n_targets * sizeof(n->targets[0]);
	size_t objects = n->l.n_targets * sizeof(n->objects[0]);
	size_t len = sizeof(n->l);

	db_touch(d, ino, n->i.change);
	if (!S_ISREG(n->i.mode))
		return row_put(d, txn, T_INODE, &k, &n->i, sizeof(n->i));
	memcpy(tail, &n->l, len);
	memcpy(tail + len, n->targets, targets);
	len += targets;
	memcpy(tail + len, n->objects, objects);
	len += objects;
	return row_put2(d, txn, T_INODE, &k, &n->i, sizeof(n->i), tail, len);
}

static uint64_t node_blocks(const struct node *n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n->l.n_targets; i++)
		sum += n->objects[i].blocks;
	return sum;
}

void node_attr(const struct node *n, uint64_t ino, bool unsettled, struct wire_attr *a)
{
	const struct disk_inode *i = &n->i;

	*a = (struct wire_attr){
		.ino = ino,
		.gen = i->gen,
		.mode = i->mode,
		.nlink = i->nlink,
		.uid = i->uid,
		.gid = i->gid,
		.rdev = i->rdev,
		.size = S_ISDIR(i->mode) ? i->entries : i->size,
		.change = i->change,
		.atime = i->atime,
		.mtime = i->mtime,
		.ctime = i->ctime,
		.btime = i->btime,
		.written = S_ISREG(i->mode) ? i->written : 0,
		.blocks = S_ISREG(i->mode) ? node_blocks(n) : 0,
		.unsettled = unsettled,
	};
}

int node_layout(const struct node *n, struct wire_layout_rec *l, struct arena *a)
{
	*l = (struct wire_layout_rec){
		.version = n->l.version,
		.type = n->l.type,
		.unit = n->l.unit,
		.start = n->l.start,
		.obj_gen = n->l.obj_gen,
		.redundancy = n->l.redundancy,
	};
	if (!n->l.n_targets)
		return 0;
	l->targets = arena_alloc(a, n->l.n_targets * sizeof(*l->targets));
	l->ends = arena_alloc(a, n->l.n_targets * sizeof(*l->ends));
	if (!l->targets || !l->ends)
		return -ENOMEM;
	l->n_targets = l->n_ends = n->l.n_targets;
	memcpy(l->targets, n->targets, n->l.n_targets * sizeof(*l->targets));
	for (uint32_t i = 0; i < n->l.n_targets; i++)
		l->ends[i] = n->objects[i].end;
	return 0;
}

int unsettled_put(const struct db *d, MDB_txn *txn, uint64_t ino, const struct node *n)
{
	struct disk_unsettled row = { .epoch = n->i.epoch, .gen = n->i.gen };
	struct key k = key_u64(ino);

	return row_put(d, txn, T_UNSETTLED, &k, &row, sizeof(row));
}

/* ---- directory entries ---- */

int entry_get(const struct db *d, MDB_txn *txn, uint64_t dir, const struct wire_bytes *name,
	      struct disk_entry *e)
{
	struct key k = key_entry(dir, name);

	return row_read(d, txn, T_DIRENT, &k, e, sizeof(*e));
}

int entry_put(const struct db *d, MDB_txn *txn, uint64_t dir, const struct wire_bytes *name,
	      const struct disk_entry *e)
{
	struct disk_index x = { .ino = e->ino, .gen = e->gen, .type = e->type };
	struct key by_name = key_entry(dir, name), by_cookie = key_pair(dir, e->cookie);
	int rc = row_put(d, txn, T_DIRENT, &by_name, e, sizeof(*e));

	return rc ? rc :
		    row_put2(d, txn, T_DIRINDEX, &by_cookie, &x, sizeof(x), name->p, name->len);
}

int entry_del(const struct db *d, MDB_txn *txn, uint64_t dir, const struct wire_bytes *name,
	      uint64_t cookie)
{
	struct key by_name = key_entry(dir, name), by_cookie = key_pair(dir, cookie);
	int rc = row_del(d, txn, T_DIRENT, &by_name);

	if (!rc)
		rc = row_del(d, txn, T_DIRINDEX, &by_cookie);
	return rc == -ENOENT ? -EIO : rc; /* the caller has just read it: the two tables differ */
}

/* ---- answers ---- */

static int answer_find(const struct db *d, MDB_txn *txn, const struct slot_key *key,
		       MDB_val *answer)
{
	struct key k = key_call(key->call);
	struct disk_answer a;
	int rc = row_get(d, txn, T_ANSWER, &k, answer);

	if (rc)
		return rc;
	if (answer->mv_size < sizeof(a))
		return -EIO;
	memcpy(&a, answer->mv_data, sizeof(a));
	answer->mv_data = (uint8_t *)answer->mv_data + sizeof(a);
	answer->mv_size -= sizeof(a);
	/* a client that restarts may use the numbers of its calls again */
	return key->now - a.time > ANSWER_AGE ? -ENOENT : 0;
}

static int find_in_slot(const struct db *d, MDB_txn *txn, const struct slot_key *key,
			MDB_val *answer)
{
	struct key k = key_pair32(key->session, key->slot);
	struct disk_slot s;
	int rc = row_get(d, txn, T_SLOT, &k, answer);

	if (rc)
		return rc;
	if (answer->mv_size < sizeof(s))
		return -EIO;
	memcpy(&s, answer->mv_data, sizeof(s));
	if (s.sequence != key->sequence)
		return (int32_t)(s.sequence - key->sequence) > 0 ? -EBADMSG : -ENOENT;
	if (memcmp(s.digest, key->digest, sizeof(s.digest)) != 0)
		return -EKEYREJECTED;
	answer->mv_data = (uint8_t *)answer->mv_data + sizeof(s);
	answer->mv_size -= sizeof(s);
	return 0;
}

int slot_find(const struct db *d, MDB_txn *txn, const struct slot_key *key, MDB_val *answer)
{
	int rc = find_in_slot(d, txn, key, answer);

	return rc == -ENOENT && key->call ? answer_find(d, txn, key, answer) : rc;
}

/* Removes the oldest answer if there are too many. *next: the number for a new one. */
static int answers_make_room(const struct db *d, MDB_txn *txn, uint64_t *next)
{
	MDB_val k, v;
	MDB_cursor *cur;
	MDB_stat st;
	int rc = db_error(mdb_stat(txn, d->t[T_ANSWERED], &st));

	*next = 1;
	if (rc || !st.ms_entries)
		return rc;
	rc = db_error(mdb_cursor_open(txn, d->t[T_ANSWERED], &cur));
	if (rc)
		return rc;
	rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_LAST));
	if (!rc && k.mv_size == sizeof(uint64_t))
		*next = be64_load(k.mv_data) + 1;
	if (!rc && st.ms_entries >= ANSWERS_MAX)
		rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_FIRST));
	if (!rc && st.ms_entries >= ANSWERS_MAX && v.mv_size == CALL_ID_BYTES) {
		struct key old = key_call(v.mv_data);

		rc = row_del(d, txn, T_ANSWER, &old);
		if (!rc || rc == -ENOENT)
			rc = db_error(mdb_cursor_del(cur, 0));
	}
	mdb_cursor_close(cur);
	return rc;
}

int answer_put(const struct db *d, MDB_txn *txn, const struct wire_record *r, const uint8_t *answer,
	       uint32_t n)
{
	struct key by_id = key_call(r->token), by_number;
	struct disk_answer a;
	int rc = row_read(d, txn, T_ANSWER, &by_id, &a, sizeof(a));

	if (rc && rc != -ENOENT)
		return rc;
	if (!rc) { /* of an old call */
		by_number = key_u64(a.number);
		rc = row_del(d, txn, T_ANSWERED, &by_number);
		if (rc && rc != -ENOENT)
			return rc;
	}
	a.time = r->time;
	rc = answers_make_room(d, txn, &a.number);
	by_number = key_u64(a.number);
	if (!rc)
		rc = row_put(d, txn, T_ANSWERED, &by_number, r->token, CALL_ID_BYTES);
	return rc ? rc : row_put2(d, txn, T_ANSWER, &by_id, &a, sizeof(a), answer, n);
}
