/* Extended attributes: the records that change them, the reads, and who may.
 *
 * user.* needs the permissions of the file and is for files and directories only; trusted.* is root's;
 * everything else is not supported. Values and names of one inode are bounded together.
 *
 * Threads: records on the writer, reads on the loop. Buffers: what a read returns is in the caller's arena.
 * Errors: positive errno are answers of records (meta_state.h); reads return -errno. */
#include "meta/meta_state.h"

#define XATTR_TOTAL_MAX (1 * MIB) /* names and values of one inode */

static bool begins(const struct wire_bytes *name, const char *prefix)
{
	size_t n = strlen(prefix);

	return name->len >= n && memcmp(name->p, prefix, n) == 0;
}

static bool is_trusted(const struct wire_bytes *name)
{
	return begins(name, "trusted.");
}

static int user_may(const struct node *n, const struct cred *c, int may)
{
	bool owner = c->uid == 0 || c->uid == n->i.uid;

	if (!S_ISREG(n->i.mode) && !S_ISDIR(n->i.mode))
		return may & MAY_WRITE ? EPERM : ENODATA;
	if (S_ISDIR(n->i.mode) && (n->i.mode & S_ISVTX) && (may & MAY_WRITE) && !owner)
		return EPERM;
	return node_may(n, c, may);
}

/* Is it a name, and may this caller read or write it? 0 or a positive errno. */
static int xattr_may(const struct node *n, const struct cred *c, const struct wire_bytes *name,
		     int may)
{
	if (name->len == 0 || name->len > XATTR_NAME_LEN)
		return ERANGE;
	if (memchr(name->p, 0, name->len))
		return EINVAL;
	if (is_trusted(name)) {
		if (name->len == strlen("trusted."))
			return EINVAL;
		return c->uid == 0 ? 0 : may & MAY_WRITE ? EPERM : ENODATA;
	}
	if (!begins(name, "user."))
		return EOPNOTSUPP;
	return name->len == strlen("user.") ? EINVAL : user_may(n, c, may);
}

/* ---- all attributes of one inode ---- */

/* fn returns 0 to go on, or what ends it. */
static int xattr_each(const struct db *d, MDB_txn *txn, uint64_t ino,
		      int (*fn)(void *arg, const struct wire_bytes *name, size_t value), void *arg)
{
	struct key from = key_u64(ino);
	MDB_val k = { from.n, from.b }, v;
	MDB_cursor *cur;
	int rc = db_error(mdb_cursor_open(txn, d->t[T_XATTR], &cur));

	if (rc)
		return rc;
	rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_SET_RANGE));
	while (!rc && be64_load(k.mv_data) == ino) {
		struct wire_bytes name = { (uint32_t)k.mv_size - 8, (uint8_t *)k.mv_data + 8 };

		rc = fn(arg, &name, v.mv_size);
		if (!rc)
			rc = db_error(mdb_cursor_get(cur, &k, &v, MDB_NEXT));
	}
	mdb_cursor_close(cur);
	return rc == -ENOENT ? 0 : rc;
}

struct totals {
	size_t names, values;
};

static int add_up(void *arg, const struct wire_bytes *name, size_t value)
{
	struct totals *t = arg;

	t->names += name->len + 1;
	t->values += value;
	return 0;
}

/* ---- records ---- */

/* The inode, and the size of the attribute's value now: 0, ENODATA, another errno, or negative. */
static int get_old(struct apply *ap, struct node *n, size_t *old)
{
	const struct wire_record *r = ap->rec;
	struct key k;
	MDB_val v;
	int rc = apply_get(ap, &r->h, n);

	if (!rc)
		rc = xattr_may(n, &ap->cred, &r->name, MAY_WRITE);
	if (rc)
		return rc;
	k = key_entry(r->h.ino, &r->name);
	rc = row_get(&ap->m->db, ap->txn, T_XATTR, &k, &v);
	*old = rc ? 0 : v.mv_size;
	return rc == -ENOENT ? ENODATA : rc;
}

static int put_touched(struct apply *ap, struct node *n)
{
	int rc;

	node_touch(n, ap->rec->time);
	rc = node_put(&ap->m->db, ap->txn, ap->rec->h.ino, n);
	return rc ? rc : apply_answer(ap, ap->rec->h.ino, n);
}

static int space_check(struct apply *ap, bool there, size_t old)
{
	const struct wire_record *r = ap->rec;
	struct totals t = { 0 };
	int rc = xattr_each(&ap->m->db, ap->txn, r->h.ino, add_up, &t);

	if (rc)
		return rc;
	t.names += there ? 0 : r->name.len + 1;
	t.values += r->data.len - old;
	return t.names > XATTR_VALUE_LEN || t.names + t.values > XATTR_TOTAL_MAX ? ENOSPC : 0;
}

int apply_setxattr(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node n;
	struct key k;
	size_t old;
	int rc = get_old(ap, &n, &old);
	bool there = rc == 0;

	if (rc && rc != ENODATA)
		return rc;
	if (there && (r->flags & REC_EXCL))
		return EEXIST;
	if (!there && (r->flags & REC_REPLACE))
		return ENODATA;
	rc = space_check(ap, there, old);
	if (rc)
		return rc;
	k = key_entry(r->h.ino, &r->name);
	rc = row_put(&ap->m->db, ap->txn, T_XATTR, &k, r->data.p, r->data.len);
	return rc ? rc : put_touched(ap, &n);
}

int apply_removexattr(struct apply *ap)
{
	struct node n;
	struct key k;
	size_t old;
	int rc = get_old(ap, &n, &old);

	if (rc)
		return rc;
	k = key_entry(ap->rec->h.ino, &ap->rec->name);
	rc = row_del(&ap->m->db, ap->txn, T_XATTR, &k);
	return rc ? rc : put_touched(ap, &n);
}

/* ---- reads ---- */

static int read_value(struct meta *m, const struct cred *c, const struct wire_handle *h,
		      const struct wire_bytes *name, uint32_t max, struct wire_xattr_res *res,
		      struct arena *a)
{
	struct node n;
	struct key k;
	uint8_t *p;
	MDB_val v;
	int rc = read_handle(m, h, &n);

	if (!rc)
		rc = -xattr_may(&n, c, name, MAY_READ);
	if (rc)
		return rc;
	k = key_entry(h->ino, name);
	rc = row_get(&m->db, m->reader, T_XATTR, &k, &v);
	if (rc)
		return rc == -ENOENT ? -ENODATA : rc;
	res->size = (uint32_t)v.mv_size;
	if (v.mv_size > max || !v.mv_size)
		return 0;
	p = arena_alloc(a, v.mv_size);
	if (!p)
		return -ENOMEM;
	memcpy(p, v.mv_data, v.mv_size);
	res->data = (struct wire_bytes){ res->size, p };
	return 0;
}

int meta_getxattr(struct meta *m, const struct cred *c, const struct wire_handle *h,
		  const struct wire_bytes *name, uint32_t max, struct wire_xattr_res *res,
		  struct arena *a)
{
	int rc = read_begin(m);

	*res = (struct wire_xattr_res){ 0 };
	return rc ? rc : read_end(m, read_value(m, c, h, name, max, res, a));
}

struct listing {
	bool all; /* for root: trusted ones too */
	uint8_t *out; /* NULL: only count */
	size_t n;
};

static int list_one(void *arg, const struct wire_bytes *name, size_t value)
{
	struct listing *l = arg;

	(void)value;
	if (!l->all && is_trusted(name))
		return 0;
	if (l->out) {
		memcpy(l->out + l->n, name->p, name->len);
		l->out[l->n + name->len] = 0;
	}
	l->n += name->len + 1;
	return 0;
}

static int read_names(struct meta *m, const struct cred *c, const struct wire_handle *h,
		      uint32_t max, struct wire_xattr_res *res, struct arena *a)
{
	struct listing l = { .all = c->uid == 0 };
	struct node n;
	int rc = read_handle(m, h, &n);

	if (!rc)
		rc = xattr_each(&m->db, m->reader, h->ino, list_one, &l);
	if (rc)
		return rc;
	res->size = (uint32_t)l.n;
	if (l.n > max || !l.n)
		return 0;
	l.out = arena_alloc(a, l.n);
	if (!l.out)
		return -ENOMEM;
	l.n = 0;
	rc = xattr_each(&m->db, m->reader, h->ino, list_one, &l);
	res->data = (struct wire_bytes){ (uint32_t)l.n, l.out };
	return rc;
}

int meta_listxattr(struct meta *m, const struct cred *c, const struct wire_handle *h, uint32_t max,
		   struct wire_xattr_res *res, struct arena *a)
{
	int rc = read_begin(m);

	*res = (struct wire_xattr_res){ 0 };
	return rc ? rc : read_end(m, read_names(m, c, h, max, res, a));
}
