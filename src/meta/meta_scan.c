/* Pages of rows as they are stored, for `sheaf check`: rows that cannot be decoded are returned,
 * too.
 *
 * Threads: the loop's. A page is one short read of at most SCAN_MAX rows, so that other requests do
 * not wait long. Buffers: everything is copied into the caller's arena. Errors: -EINVAL (no such
 * kind), -ENOMEM, -EIO. */
#include "meta/meta_state.h"

#define ROW_WIRE 144 /* bytes of a scan_row without key, name, targets and ends */

static const struct scan_table {
	enum table table;
	size_t key, value; /* minimal bytes */
	bool named; /* a name follows the inode in the key */
} scan_tables[] = {
	[SCAN_INODE] = { T_INODE, 8, sizeof(struct disk_inode), false },
	[SCAN_ENTRY] = { T_DIRENT, 8, sizeof(struct disk_entry), true },
	[SCAN_INDEX] = { T_DIRINDEX, 16, sizeof(struct disk_index), false },
	[SCAN_UNSETTLED] = { T_UNSETTLED, 8, sizeof(struct disk_unsettled), false },
	[SCAN_REMOVE] = { T_REMOVE, 12, sizeof(struct disk_remove), false },
	[SCAN_TRUNCATE] = { T_INTENT, 8, sizeof(struct disk_intent), false },
	[SCAN_SYMLINK] = { T_SYMLINK, 8, 0, false },
	[SCAN_XATTR] = { T_XATTR, 8, 0, true },
	[SCAN_PREPARED] = { T_PREPARED, 12, sizeof(struct disk_prepared), false },
	[SCAN_LOCK] = { T_LOCK, 8, sizeof(uint64_t), true },
};

static const struct scan_table *table_of(uint32_t kind)
{
	return kind < ARRAY_LEN(scan_tables) && scan_tables[kind].key ? &scan_tables[kind] : NULL;
}

static int inode_row(const MDB_val *v, struct wire_scan_row *r, struct arena *a)
{
	struct node n;

	if (node_unpack(v, &n)) {
		r->bad = true;
		return 0;
	}
	r->h.gen = n.i.gen;
	r->to = (struct wire_handle){ n.i.parent_ino, n.i.parent_gen };
	r->second = n.i.next_cookie;
	r->mode = n.i.mode;
	r->nlink = n.i.nlink;
	r->has = n.i.has & HAS_ROWS;
	r->size = S_ISDIR(n.i.mode) ? n.i.entries : n.i.size;
	r->epoch = n.i.epoch;
	r->change = n.i.change;
	return node_layout(&n, &r->layout, a);
}

static void entry_row(const MDB_val *v, struct wire_scan_row *r)
{
	struct disk_entry e;

	memcpy(&e, v->mv_data, sizeof(e));
	r->to = (struct wire_handle){ e.ino, e.gen };
	r->second = e.cookie;
	r->mode = e.type;
}

static int index_row(const MDB_val *k, const MDB_val *v, struct wire_scan_row *r, struct arena *a)
{
	struct disk_index x;
	size_t n = v->mv_size - sizeof(x);

	memcpy(&x, v->mv_data, sizeof(x));
	r->to = (struct wire_handle){ x.ino, x.gen };
	r->second = be64_load((uint8_t *)k->mv_data + 8);
	r->mode = x.type;
	if (n > NAME_MAX_LEN) {
		r->bad = true;
		return 0;
	}
	return bytes_copy(&r->name, (uint8_t *)v->mv_data + sizeof(x), n, a);
}

/* Rows of unfinished work. */
static void work_row(enum wire_scan_kind kind, const MDB_val *k, const MDB_val *v,
		     struct wire_scan_row *r)
{
	struct disk_unsettled unsettled;
	struct disk_intent intent;
	struct disk_remove gone;

	if (kind == SCAN_UNSETTLED) {
		memcpy(&unsettled, v->mv_data, sizeof(unsettled));
		r->h.gen = unsettled.gen;
		r->epoch = unsettled.epoch;
	} else if (kind == SCAN_TRUNCATE) {
		memcpy(&intent, v->mv_data, sizeof(intent));
		r->h.gen = intent.gen;
		r->epoch = intent.epoch;
		r->size = intent.size;
	} else {
		memcpy(&gone, v->mv_data, sizeof(gone));
		r->h.gen = gone.gen;
		r->second = be32_load((uint8_t *)k->mv_data + 8);
	}
}

/* A prepared part of a change over several servers: what it will touch. */
static int prepared_row(const MDB_val *k, const MDB_val *v, struct wire_scan_row *r,
			struct arena *a)
{
	size_t head = sizeof(struct disk_prepared);
	struct wire_record part = { 0 };
	struct xdr x;

	xdr_decoder(&x, (uint8_t *)v->mv_data + head, v->mv_size - head, a);
	r->bad = !xdr_wire_record(&x, &part);
	if (r->bad)
		return 0;
	r->second = be64_load(k->mv_data);
	r->h = part.h;
	if (part.kind == PART_NEW)
		r->h.ino = part.new_ino;
	r->to = part.dir;
	r->size = part.dir2.ino;
	return bytes_copy(&r->name, part.name.p, part.name.len, a);
}

/* An attribute: its HAS_ bit, and the permission bits that an access ACL stands for. */
static void xattr_row(const MDB_val *v, struct wire_scan_row *r)
{
	struct acl a;

	r->size = v->mv_size;
	r->has = xattr_mark(&r->name);
	if (!(r->has & (HAS_ACL | HAS_DEFAULT_ACL)))
		return;
	r->bad = acl_load(v->mv_data, v->mv_size, &a);
	if (!r->bad && r->has == HAS_ACL)
		r->mode = acl_mode(&a);
}

/* 0 or -ENOMEM. */
static int row_fill(uint32_t kind, const MDB_val *k, const MDB_val *v, struct wire_scan_row *r,
		    struct arena *a)
{
	const struct scan_table *t = table_of(kind);
	int rc = bytes_copy(&r->key, k->mv_data, MIN(k->mv_size, (size_t)SCAN_KEY), a);

	r->bad = k->mv_size < t->key || (!t->named && k->mv_size > t->key) ||
		 v->mv_size < t->value || k->mv_size > SCAN_KEY - 1;
	if (k->mv_size >= 8)
		r->h.ino = be64_load(k->mv_data);
	if (rc || r->bad)
		return rc;
	if (t->named)
		rc = bytes_copy(&r->name, (uint8_t *)k->mv_data + 8, k->mv_size - 8, a);
	switch (kind) {
	case SCAN_INODE:
		return inode_row(v, r, a);
	case SCAN_ENTRY:
		entry_row(v, r);
		break;
	case SCAN_INDEX:
		return index_row(k, v, r, a);
	case SCAN_SYMLINK:
		r->size = v->mv_size;
		break;
	case SCAN_XATTR:
		xattr_row(v, r);
		break;
	case SCAN_PREPARED:
		return prepared_row(k, v, r, a);
	case SCAN_LOCK:
		memcpy(&r->second, v->mv_data, sizeof(r->second));
		break;
	default:
		work_row(kind, k, v, r);
	}
	return rc;
}

int scan_row_get(struct apply *ap, uint32_t kind, const struct key *k, enum table *t,
		 struct wire_scan_row *row)
{
	MDB_val kv = { k->n, (void *)(uintptr_t)k->b }, v;
	int rc;

	if (!table_of(kind))
		return EINVAL;
	*t = table_of(kind)->table;
	rc = row_get(&ap->m->db, ap->txn, *t, k, &v);
	if (rc)
		return rc == -ENOENT ? ENOENT : rc;
	return row_fill(kind, &kv, &v, row, ap->arena);
}

/* The first row after q->after, or the first of q->only. */
static int cursor_start(MDB_cursor *cur, const struct wire_scan_args *q, MDB_val *k, MDB_val *v)
{
	struct key first = key_u64(q->only);
	MDB_val from = { first.n, first.b };
	int rc;

	if (q->after.len)
		from = (MDB_val){ q->after.len, (void *)(uintptr_t)q->after.p };
	*k = from;
	rc = mdb_cursor_get(cur, k, v, MDB_SET_RANGE);
	if (!rc && q->after.len && k->mv_size == from.mv_size &&
	    memcmp(k->mv_data, q->after.p, q->after.len) == 0)
		rc = mdb_cursor_get(cur, k, v, MDB_NEXT);
	return rc;
}

static bool of_interest(const struct wire_scan_args *q, const MDB_val *k)
{
	return !q->only || (k->mv_size >= 8 && be64_load(k->mv_data) == q->only);
}

static int page_fill(MDB_cursor *cur, const struct wire_scan_args *q, size_t max_bytes,
		     struct wire_scan_res *res, struct arena *a)
{
	uint32_t max = MIN(MAX(q->max, 1u), (uint32_t)SCAN_MAX);
	size_t used = 0;
	MDB_val k, v;
	int rc = cursor_start(cur, q, &k, &v);

	res->rows = arena_alloc(a, max * sizeof(*res->rows));
	if (!res->rows)
		return -ENOMEM;
	for (; !rc && of_interest(q, &k); rc = mdb_cursor_get(cur, &k, &v, MDB_NEXT)) {
		struct wire_scan_row *r = &res->rows[res->n_rows];

		if (res->n_rows == max || used >= max_bytes)
			return 0;
		rc = row_fill(q->kind, &k, &v, r, a);
		if (rc)
			return rc;
		used += ROW_WIRE + r->key.len + r->name.len + 4 * r->layout.n_targets +
			8 * r->layout.n_ends;
		res->n_rows++;
	}
	if (rc && rc != MDB_NOTFOUND)
		return db_error(rc);
	res->end = true;
	return 0;
}

static int read_next(struct meta *m, struct wire_scan_res *res, struct arena *a)
{
	struct key k = key_next(m->partition);
	uint64_t next = 0;
	int rc = row_read(&m->db, m->reader, T_SYS, &k, &next, sizeof(next));

	if (rc && rc != -ENOENT && rc != -EIO)
		return rc;
	res->rows = arena_alloc(a, sizeof(*res->rows));
	if (!res->rows)
		return -ENOMEM;
	res->rows[0].h.ino = INO_MAKE(m->partition, rc == -ENOENT ? META_ROOT_INO + 1 : next);
	res->n_rows = 1;
	res->total = 1;
	res->end = true;
	return 0;
}

static int read_page(struct meta *m, const struct wire_scan_args *q, size_t max_bytes,
		     struct wire_scan_res *res, struct arena *a)
{
	MDB_dbi dbi = m->db.t[table_of(q->kind)->table];
	MDB_cursor *cur;
	MDB_stat st;
	int rc = mdb_stat(m->reader, dbi, &st);

	if (!rc)
		rc = mdb_cursor_open(m->reader, dbi, &cur);
	if (rc)
		return db_error(rc);
	res->total = st.ms_entries;
	rc = page_fill(cur, q, max_bytes, res, a);
	mdb_cursor_close(cur);
	return rc;
}

int meta_scan(struct meta *m, const struct wire_scan_args *q, size_t max_bytes,
	      struct wire_scan_res *res, struct arena *a)
{
	int rc;

	*res = (struct wire_scan_res){ 0 };
	if (q->kind != SCAN_NEXT && !table_of(q->kind))
		return -EINVAL;
	rc = read_begin(m);
	if (rc)
		return rc;
	return read_end(m, q->kind == SCAN_NEXT ? read_next(m, res, a) :
						  read_page(m, q, max_bytes, res, a));
}
