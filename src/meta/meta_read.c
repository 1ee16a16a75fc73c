/* Inline reads: attributes, names, readdir, and the rows of unfinished work.
 *
 * Threads: the loop's only. All calls between two changes share one read transaction. It ends
 * before the next change begins, so that the writer can reuse pages, and after each call while the
 * worker has a batch. Buffers: everything returned is copied out, into the caller's arena if it has
 * no fixed size. Errors: -errno; damage that LMDB reports is -EIO. A call that took over a
 * millisecond blocked the loop and is counted. */
#include <assert.h>

#include "meta/meta_state.h"

int read_begin(struct meta *m)
{
	int rc = m->reading ? 0 : db_error(mdb_txn_renew(m->reader));

	m->read_began = m->loop->env->clock->now(m->loop->env);
	m->inside = !rc;
	return rc;
}

void reader_reset(struct meta *m)
{
	assert(!m->inside); /* no change may begin inside a read call */
	if (m->reading)
		mdb_txn_reset(m->reader);
	m->reading = false;
}

int read_end(struct meta *m, int rc)
{
	m->reading = true;
	m->inside = false;
	if (m->batches[0].began || m->batches[1].began || rc == -EIO)
		reader_reset(m);
	if (m->loop->env->clock->now(m->loop->env) - m->read_began > NSEC_PER_MSEC)
		m->slow_reads++;
	return rc;
}

uint64_t meta_slow_reads(const struct meta *m)
{
	return m->slow_reads;
}

bool meta_owns(const struct meta *m, uint64_t ino)
{
	return INO_PARTITION(ino) == m->partition;
}

bool name_is_dots(const struct wire_bytes *n)
{
	return (n->len == 1 || n->len == 2) && n->p[0] == '.' && n->p[n->len - 1] == '.';
}

int read_locked(struct meta *m, const struct key *k)
{
	MDB_val v;
	int rc;

	if (!m->n_locks)
		return 0;
	rc = row_get(&m->db, m->reader, T_LOCK, k, &v);
	return rc == -ENOENT ? 0 : rc ? rc : -EINPROGRESS;
}

int read_handle(struct meta *m, const struct wire_handle *h, struct node *n)
{
	int rc;

	if (!meta_owns(m, h->ino))
		return -EREMOTE;
	rc = node_get(&m->db, m->reader, h->ino, n);
	if (rc == -ENOENT) {
		struct key k = key_u64(h->ino);

		rc = read_locked(m, &k); /* a change may be creating it */
		return rc ? rc : -ESTALE;
	}
	return !rc && n->i.gen != h->gen ? -ESTALE : rc;
}

int read_unlocked(struct meta *m, const struct wire_handle *h, struct node *n)
{
	struct key k = key_u64(h->ino);
	int rc = read_handle(m, h, n);

	return rc ? rc : read_locked(m, &k);
}

/* 0: the row exists; -ENOENT; or -errno. */
static int row_seen(struct meta *m, enum table t, uint64_t ino)
{
	struct key k = key_u64(ino);
	MDB_val v;

	return row_get(&m->db, m->reader, t, &k, &v);
}

int bytes_copy(struct wire_bytes *out, const void *p, size_t n, struct arena *a)
{
	uint8_t *copy = arena_alloc(a, MAX(n, (size_t)1));

	if (!copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, p, n);
	*out = (struct wire_bytes){ (uint32_t)n, copy };
	return 0;
}

/* Copies an ACL of an inode in the same transaction; most inodes have none. */
static int read_acl(struct meta *m, const struct node *n, uint32_t which, struct wire_bytes *out,
		    struct arena *a)
{
	MDB_val v;
	int rc;

	*out = (struct wire_bytes){ 0 };
	if (!(n->i.has & which))
		return 0;
	rc = marked_get(&m->db, m->reader, n->ino, which, &v);
	if (!rc && !v.mv_size)
		return -EIO; /* damaged: it must not grant access */
	return rc ? rc : bytes_copy(out, v.mv_data, v.mv_size, a);
}

static int read_unsynced(const struct node *n, const struct meta_unsynced **out, struct arena *a)
{
	struct meta_unsynced *v;
	uint64_t any = 0;

	*out = NULL;
	for (uint32_t i = 0; i < n->l.n_targets; i++)
		any |= n->objects[i].unsynced;
	if (!any)
		return 0;
	v = arena_alloc(a, n->l.n_targets * sizeof(*v));
	for (uint32_t i = 0; v && i < n->l.n_targets; i++)
		v[i] = (struct meta_unsynced){ n->objects[i].unsynced, n->objects[i].last_write };
	*out = v;
	return v ? 0 : -ENOMEM;
}

static int read_attr(struct meta *m, const struct wire_handle *h, struct node *n,
		     struct wire_attr *out)
{
	int rc = read_handle(m, h, n), seen;

	if (rc)
		return rc;
	seen = row_seen(m, T_UNSETTLED, h->ino);
	if (seen && seen != -ENOENT)
		return seen;
	node_attr(n, h->ino, seen == 0, out);
	return 0;
}

static int read_node(struct meta *m, const struct wire_handle *h, struct meta_node *out,
		     struct arena *a)
{
	struct node n;
	int rc = read_attr(m, h, &n, &out->attr);

	if (rc)
		return rc;
	out->epoch = n.i.epoch;
	out->objects_within_size = S_ISREG(n.i.mode) && n.l.unit && n.i.objects_within_size &&
				   n.i.epoch == EPOCH_FIRST;
	out->parent = (struct wire_handle){ .ino = n.i.parent_ino, .gen = n.i.parent_gen };
	out->cache = (n.i.has & HAS_CACHE) >> HAS_CACHE_SHIFT;
	out->privileged = (n.i.mode & (S_ISUID | S_ISGID)) || (n.i.has & HAS_CAPABILITY);
	rc = read_acl(m, &n, HAS_ACL, &out->acl, a);
	if (!rc)
		rc = read_acl(m, &n, HAS_DEFAULT_ACL, &out->default_acl, a);
	if (!rc)
		rc = read_unsynced(&n, &out->unsynced, a);
	return rc ? rc : node_layout(&n, &out->layout, a);
}

int meta_get(struct meta *m, const struct wire_handle *h, struct meta_node *out, struct arena *a)
{
	int rc = read_begin(m);

	return rc ? rc : read_end(m, read_node(m, h, out, a));
}

int meta_check_unlocked(struct meta *m, uint64_t ino)
{
	struct key k = key_u64(ino);
	int rc = read_begin(m);

	return rc ? rc : read_end(m, read_locked(m, &k));
}

/* ---- names ---- */

int read_entry(struct meta *m, uint64_t dir, const struct node *n, const struct wire_bytes *name,
	       struct wire_handle *out, uint32_t *type)
{
	struct disk_entry e;
	struct key k;
	int rc;

	if (!S_ISDIR(n->i.mode))
		return -ENOTDIR;
	if (name->len > NAME_MAX_LEN)
		return -ENAMETOOLONG;
	*type = S_IFDIR;
	if (name_is_dots(name)) {
		k = key_u64(dir);
		*out = (struct wire_handle){ .ino = dir, .gen = n->i.gen };
		if (name->len == 1)
			return 0;
		*out = (struct wire_handle){ n->i.parent_ino, n->i.parent_gen };
		return read_locked(m, &k); /* the directory may be about to move */
	}
	k = key_entry(dir, name);
	rc = read_locked(m, &k);
	if (rc)
		return rc;
	rc = entry_get(&m->db, m->reader, dir, name, &e);
	if (rc == -ENOENT) { /* the directory may be about to be removed */
		k = key_u64(dir);
		rc = read_locked(m, &k);
		return rc ? rc : -ENOENT;
	}
	if (rc)
		return rc;
	*out = (struct wire_handle){ .ino = e.ino, .gen = e.gen };
	*type = e.type;
	return 0;
}

int meta_lookup(struct meta *m, const struct wire_handle *dir, const struct wire_bytes *name,
		struct wire_handle *out, uint32_t *type)
{
	struct node n;
	int rc = read_begin(m);

	if (rc)
		return rc;
	rc = read_handle(m, dir, &n);
	if (!rc)
		rc = read_entry(m, dir->ino, &n, name, out, type);
	return read_end(m, rc);
}

/* ---- readdir ---- */

#define ENTRY_WIRE 28 /* bytes of a dir_entry without its name */
#define ATTR_WIRE 84
#define READDIR_WIRE 12 /* bytes of the counts and `end` */

/* Decodes the entry of an index row: 0, -ENOMEM or -EIO. */
static int take_entry(const MDB_val *k, const MDB_val *v, struct wire_dir_entry *e, struct arena *a)
{
	struct disk_index x;

	if (k->mv_size != 16 || v->mv_size <= sizeof(x) || v->mv_size > sizeof(x) + NAME_MAX_LEN)
		return -EIO;
	memcpy(&x, v->mv_data, sizeof(x));
	e->cookie = be64_load((uint8_t *)k->mv_data + 8);
	e->h = (struct wire_handle){ .ino = x.ino, .gen = x.gen };
	e->type = x.type;
	return bytes_copy(&e->name, (uint8_t *)v->mv_data + sizeof(x), v->mv_size - sizeof(x), a);
}

/* The attributes of an entry's inode, if this server has it; all zero if not, or if it was removed
 * meanwhile. */
static int take_attr(struct meta *m, const struct wire_handle *h, struct wire_attr *out)
{
	struct node n;
	int rc = read_attr(m, h, &n, out);

	return rc == -EREMOTE || rc == -ESTALE || rc == -EINPROGRESS ? 0 : rc;
}

/* Moves to the entry before ask->cookie, or to the newest. 0 or LMDB's code; the row may be another
 * directory's. */
static int seek_older(MDB_cursor *cur, const struct wire_readdir_args *ask, MDB_val *k, MDB_val *v)
{
	struct key from = key_pair(ask->dir.ino, ask->cookie ? ask->cookie : UINT64_MAX);
	int rc;

	*k = (MDB_val){ from.n, from.b };
	rc = mdb_cursor_get(cur, k, v, MDB_SET_RANGE);
	if (rc && rc != MDB_NOTFOUND)
		return rc;
	return mdb_cursor_get(cur, k, v, rc ? MDB_LAST : MDB_PREV);
}

/* Newest first: an entry that is made or renamed during a listing has a higher cookie, so the
 * listing never meets it. */
static int collect(struct meta *m, MDB_cursor *cur, const struct wire_readdir_args *ask,
		   size_t max_bytes, struct wire_readdir_res *res, struct arena *a)
{
	uint64_t dir = ask->dir.ino;
	size_t used = READDIR_WIRE;
	MDB_val k, v;
	int rc = seek_older(cur, ask, &k, &v);

	for (; !rc && be64_load(k.mv_data) == dir; rc = mdb_cursor_get(cur, &k, &v, MDB_PREV)) {
		size_t name_len = v.mv_size - MIN(v.mv_size, sizeof(struct disk_index));

		used += ENTRY_WIRE + (name_len + 3) / 4 * 4 + (ask->attrs ? ATTR_WIRE : 0);
		if (res->n_entries == ask->max || used > max_bytes)
			return res->n_entries ? 0 : -EINVAL;
		rc = take_entry(&k, &v, &res->entries[res->n_entries], a);
		if (!rc && ask->attrs)
			rc = take_attr(m, &res->entries[res->n_entries].h,
				       &res->attrs[res->n_attrs++]);
		if (rc)
			return rc;
		res->n_entries++;
	}
	if (rc && rc != MDB_NOTFOUND)
		return db_error(rc);
	res->end = true;
	return 0;
}

/* Does this lock keep a directory from being listed? That of a name does; that of the directory
 * itself if it has no entries (arg), and so may be about to be replaced. */
static int keeps_listing(void *arg, MDB_cursor *cur, const MDB_val *k, const MDB_val *v)
{
	const struct node *dir = arg;

	(void)cur, (void)v;
	return k->mv_size == 8 && dir->i.entries ? 0 : -EINPROGRESS;
}

static int read_entries(struct meta *m, const struct wire_readdir_args *ask, size_t max_bytes,
			struct wire_readdir_res *res, struct arena *a)
{
	MDB_cursor *cur;
	struct node n;
	int rc = read_handle(m, &ask->dir, &n);

	if (rc)
		return rc;
	if (!S_ISDIR(n.i.mode))
		return -ENOTDIR;
	if (m->n_locks)
		rc = rows_each(&m->db, m->reader, T_LOCK, ask->dir.ino, keeps_listing, &n);
	if (!rc)
		rc = db_error(mdb_cursor_open(m->reader, m->db.t[T_DIRINDEX], &cur));
	if (rc)
		return rc;
	rc = collect(m, cur, ask, max_bytes, res, a);
	mdb_cursor_close(cur);
	return rc;
}

int meta_readdir(struct meta *m, const struct wire_readdir_args *ask, size_t max_bytes,
		 struct wire_readdir_res *res, struct arena *a)
{
	struct wire_readdir_args fit = *ask;
	size_t each = ENTRY_WIRE + (ask->attrs ? ATTR_WIRE : 0);
	int rc;

	fit.max = (uint32_t)MIN(MIN(ask->max, 1024u), max_bytes / each + 1);
	*res = (struct wire_readdir_res){ 0 };
	res->entries = arena_alloc(a, MAX(fit.max, 1u) * sizeof(*res->entries));
	if (ask->attrs)
		res->attrs = arena_alloc(a, MAX(fit.max, 1u) * sizeof(*res->attrs));
	if (!res->entries || (ask->attrs && !res->attrs))
		return -ENOMEM;
	rc = read_begin(m);
	return rc ? rc : read_end(m, read_entries(m, &fit, max_bytes, res, a));
}

/* ---- rows ---- */

static const enum table rows_table[] = {
	[ROWS_UNSETTLED] = T_UNSETTLED,
	[ROWS_REMOVE] = T_REMOVE,
	[ROWS_TRUNCATE] = T_INTENT,
};

static int row_decode(enum meta_rows which, const MDB_val *k, const MDB_val *v, struct meta_row *r)
{
	struct disk_unsettled unsettled;
	struct disk_remove gone;
	struct disk_intent intent;

	memset(r, 0, sizeof(*r));
	if (k->mv_size < 8)
		return -EIO;
	r->h.ino = be64_load(k->mv_data);
	switch (which) {
	case ROWS_UNSETTLED:
		if (v->mv_size < sizeof(unsettled))
			return -EIO;
		memcpy(&unsettled, v->mv_data, sizeof(unsettled));
		r->h.gen = unsettled.gen;
		return 0;
	case ROWS_REMOVE:
		if (v->mv_size < sizeof(gone) || k->mv_size != 12)
			return -EIO;
		memcpy(&gone, v->mv_data, sizeof(gone));
		r->h.gen = gone.gen;
		r->obj_gen = be32_load((uint8_t *)k->mv_data + 8);
		return 0;
	case ROWS_TRUNCATE:
		if (v->mv_size < sizeof(intent))
			return -EIO;
		memcpy(&intent, v->mv_data, sizeof(intent));
		r->h.gen = intent.gen;
		r->epoch = intent.epoch;
		r->size = intent.size;
		return 0;
	}
	return -EINVAL;
}

int meta_each_row(struct meta *m, enum meta_rows which,
		  bool (*fn)(void *arg, const struct meta_row *r), void *arg)
{
	MDB_cursor *cur;
	MDB_val k, v;
	struct meta_row row;
	int rc = read_begin(m);

	if (rc)
		return rc;
	rc = db_error(mdb_cursor_open(m->reader, m->db.t[rows_table[which]], &cur));
	if (rc)
		return read_end(m, rc);
	while (!(rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_NEXT)))) {
		rc = row_decode(which, &k, &v, &row);
		if (rc || !fn(arg, &row))
			break;
	}
	mdb_cursor_close(cur);
	return read_end(m, rc == -ENOENT ? 0 : rc);
}

bool meta_unsettled(struct meta *m, uint64_t ino)
{
	int rc = read_begin(m);

	/* After an error, assume unsettled: the objects are then asked. */
	return rc ? true : read_end(m, row_seen(m, T_UNSETTLED, ino)) != -ENOENT;
}

int meta_each_session(struct meta *m, void (*fn)(void *arg, const struct meta_session *s),
		      void *arg)
{
	struct disk_session row;
	struct meta_session s;
	MDB_cursor *cur;
	MDB_val k, v;
	int rc = read_begin(m);

	if (rc)
		return rc;
	rc = db_error(mdb_cursor_open(m->reader, m->db.t[T_SESSION], &cur));
	if (rc)
		return read_end(m, rc);
	while (!(rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_NEXT)))) {
		if (k.mv_size != 8 || v.mv_size < sizeof(row)) {
			rc = -EIO;
			break;
		}
		memcpy(&row, v.mv_data, sizeof(row));
		memset(&s, 0, sizeof(s));
		s.id = be64_load(k.mv_data);
		memcpy(s.secret, row.secret, sizeof(s.secret));
		memcpy(s.client, row.client, sizeof(s.client) - 1);
		fn(arg, &s);
	}
	mdb_cursor_close(cur);
	return read_end(m, rc == -ENOENT ? 0 : rc);
}

int meta_replay(struct meta *m, const struct slot_key *k, struct wire_record_res *res,
		struct arena *a)
{
	struct xdr x;
	MDB_val v;
	int rc;

	if (k->session == 0)
		return -ENOENT;
	rc = read_begin(m);
	if (rc)
		return rc;
	rc = slot_find(&m->db, m->reader, k, &v);
	if (!rc) {
		xdr_decoder(&x, v.mv_data, v.mv_size, a);
		rc = xdr_wire_record_res(&x, res) ? 0 : -EIO;
	}
	return read_end(m, rc);
}

static int read_map(struct meta *m, uint32_t *version, struct wire_bytes *blob, struct arena *a)
{
	struct key k = key_text("map");
	struct disk_map map;
	MDB_val v;
	int rc = row_get(&m->db, m->reader, T_SYS, &k, &v);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (v.mv_size < sizeof(map))
		return -EIO;
	memcpy(&map, v.mv_data, sizeof(map));
	*version = map.version;
	return bytes_copy(blob, (uint8_t *)v.mv_data + sizeof(map), v.mv_size - sizeof(map), a);
}

int meta_map(struct meta *m, uint32_t *version, struct wire_bytes *blob, struct arena *a)
{
	int rc = read_begin(m);

	*version = 0;
	*blob = (struct wire_bytes){ 0, NULL };
	return rc ? rc : read_end(m, read_map(m, version, blob, a));
}
