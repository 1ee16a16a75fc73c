/* Extended attributes: the records that change them, the reads, and the permission rules.
 *
 * user.* needs the permissions of the file and exists on files and directories only. trusted.* is
 * for root only. security.* can be read by every user and set by root. ACLs can be read by every
 * user and set by the owner (meta_acl.c has their meaning), and so can sheaf.cache. Other names are
 * not supported. Names and values of one inode are bounded together.
 *
 * Threads: records on the writer, reads on the loop. Buffers: what a read returns is in the
 * caller's arena. Errors: positive errno are answers of records (meta_state.h); reads return
 * -errno. */
#include "meta/meta_state.h"

#define XATTR_TOTAL_MAX (1 * MIB) /* names and values of one inode */
#define ACLS (HAS_ACL | HAS_DEFAULT_ACL)

static bool begins(const struct wire_bytes *name, const char *prefix)
{
	size_t n = strlen(prefix);

	return name->len >= n && memcmp(name->p, prefix, n) == 0;
}

static bool is_trusted(const struct wire_bytes *name)
{
	return begins(name, "trusted.");
}

/* A request for attributes: the transaction, the caller and the inode. */
struct asker {
	const struct db *d;
	MDB_txn *txn;
	const struct cred *c;
	const struct node *n;
};

static int user_may(const struct asker *q, int may)
{
	const struct node *n = q->n;
	const struct cred *c = q->c;
	bool owner = c->uid == 0 || c->uid == n->i.uid;

	if (!S_ISREG(n->i.mode) && !S_ISDIR(n->i.mode))
		return may & MAY_WRITE ? EPERM : ENODATA;
	if (S_ISDIR(n->i.mode) && (n->i.mode & S_ISVTX) && (may & MAY_WRITE) && !owner)
		return EPERM;
	return node_may(q->d, q->txn, n, c, may);
}

/* Only root and the owner may set an ACL. set_acl() refuses a default ACL on anything but a
 * directory. */
static int acl_may(const struct asker *q, uint32_t which, int may)
{
	const struct disk_inode *i = &q->n->i;

	if (S_ISLNK(i->mode))
		return EOPNOTSUPP;
	if (!(may & MAY_WRITE) || (which == HAS_DEFAULT_ACL && !S_ISDIR(i->mode)))
		return 0;
	return q->c->uid == 0 || q->c->uid == i->uid ? 0 : EPERM;
}

/* Is the name valid, and may this caller read or write it? 0, a positive errno, or negative. */
static int xattr_may(const struct asker *q, const struct wire_bytes *name, int may)
{
	bool root = q->c->uid == 0;

	if (name->len == 0 || name->len > XATTR_NAME_LEN)
		return ERANGE;
	if (memchr(name->p, 0, name->len))
		return EINVAL;
	if (is_trusted(name)) {
		if (name->len == strlen("trusted."))
			return EINVAL;
		return root ? 0 : may & MAY_WRITE ? EPERM : ENODATA;
	}
	if (begins(name, "security.")) {
		if (name->len == strlen("security."))
			return EINVAL;
		return root || !(may & MAY_WRITE) ? 0 : EPERM;
	}
	if (xattr_mark(name) & ACLS)
		return acl_may(q, xattr_mark(name), may);
	if (!begins(name, "user."))
		return EOPNOTSUPP;
	return name->len == strlen("user.") ? EINVAL : user_may(q, may);
}

/* ---- all attributes of one inode ---- */

static struct wire_bytes name_of(const MDB_val *k)
{
	return (struct wire_bytes){ (uint32_t)k->mv_size - 8, (uint8_t *)k->mv_data + 8 };
}

struct totals {
	size_t names, values;
};

static int add_up(void *arg, MDB_cursor *cur, const MDB_val *k, const MDB_val *v)
{
	struct totals *t = arg;

	(void)cur;
	t->names += name_of(k).len + 1;
	t->values += v->mv_size;
	return 0;
}

/* ---- records ---- */

/* The inode, and the current size of the attribute's value: 0, ENODATA, another errno, or
 * negative. */
static int get_old(struct apply *ap, struct node *n, size_t *old)
{
	const struct wire_record *r = ap->rec;
	struct asker q = { &ap->m->db, ap->txn, &ap->cred, n };
	struct key k;
	MDB_val v;
	int rc = apply_get(ap, &r->h, n);

	if (!rc)
		rc = xattr_may(&q, &r->name, MAY_WRITE);
	if (rc)
		return rc;
	k = key_entry(r->h.ino, &r->name);
	rc = row_get(&ap->m->db, ap->txn, T_XATTR, &k, &v);
	*old = rc ? 0 : v.mv_size;
	return rc == -ENOENT ? ENODATA : rc;
}

static int put_touched(struct apply *ap, struct node *n)
{
	node_touch(n, ap->rec->time);
	return apply_put(ap, n);
}

/* ---- sheaf.cache: what the cache bank may have of this file, and of what is made in it ---- */

/* It is no row but bits of the inode, which are sent with every open and stat. */
static const char cache_name[] = "sheaf.cache";
static const char *const cache_texts[] = {
	[CACHE_CHOSEN] = "none",
	[CACHE_CHOSEN | CACHE_BLOCKS] = "blocks",
	[CACHE_CHOSEN | CACHE_ATTRIBUTES] = "attributes",
	[CACHE_CHOSEN | CACHE_BLOCKS | CACHE_ATTRIBUTES] = "all",
};

static bool is_cache(const struct wire_bytes *name)
{
	return name->len == strlen(cache_name) && memcmp(name->p, cache_name, name->len) == 0;
}

static const char *cache_text(uint32_t has)
{
	return cache_texts[(has & HAS_CACHE) >> HAS_CACHE_SHIFT];
}

/* The bits; 0: no such value. */
static uint32_t cache_parse(const struct wire_bytes *value)
{
	for (uint32_t i = 0; i < ARRAY_LEN(cache_texts); i++)
		if (cache_texts[i] && value->len == strlen(cache_texts[i]) &&
		    memcmp(value->p, cache_texts[i], value->len) == 0)
			return i << HAS_CACHE_SHIFT;
	return 0;
}

static int cache_set(struct apply *ap, uint32_t bits)
{
	const struct wire_record *r = ap->rec;
	struct node n;
	int rc = apply_get(ap, &r->h, &n);

	if (rc)
		return rc;
	if ((!S_ISREG(n.i.mode) && !S_ISDIR(n.i.mode)) ||
	    (ap->cred.uid != 0 && ap->cred.uid != n.i.uid))
		return EPERM;
	if ((n.i.has & HAS_CACHE) && (r->flags & REC_EXCL))
		return EEXIST;
	if (!(n.i.has & HAS_CACHE) && (!bits || (r->flags & REC_REPLACE)))
		return ENODATA;
	n.i.has = (n.i.has & ~HAS_CACHE) | bits;
	return put_touched(ap, &n);
}

static int cache_read(struct meta *m, const struct wire_handle *h, uint32_t max,
		      struct wire_xattr_res *res, struct arena *a)
{
	const char *text;
	struct node n;
	int rc = read_unlocked(m, h, &n);

	if (rc)
		return rc;
	text = cache_text(n.i.has);
	if (!text)
		return -ENODATA;
	res->size = (uint32_t)strlen(text);
	return res->size > max ? 0 : bytes_copy(&res->data, text, res->size, a);
}

static int space_check(struct apply *ap, bool there, size_t old)
{
	const struct wire_record *r = ap->rec;
	struct totals t = { 0 };
	int rc = rows_each(&ap->m->db, ap->txn, T_XATTR, r->h.ino, add_up, &t);

	if (rc)
		return rc;
	t.names += there ? 0 : r->name.len + 1;
	t.values += r->data.len - old;
	return t.names > XATTR_VALUE_LEN || t.names + t.values > XATTR_TOTAL_MAX ? ENOSPC : 0;
}

/* An access ACL sets the mode. A list that is empty or equivalent to the mode is not stored. */
static int set_access(struct apply *ap, struct node *n, struct acl *a)
{
	if (a->n) {
		n->i.mode = (n->i.mode & ~0777u) | acl_mode(a);
		if (ap->cred.uid != 0 && !cred_in_group(&ap->cred, n->i.gid))
			n->i.mode &= ~(uint32_t)S_ISGID;
	}
	if (a->n && !acl_is_mode(a))
		return acl_put(ap, n, HAS_ACL, a);
	return marked_drop(ap, n, HAS_ACL);
}

/* As in Linux, creating, replacing and removing (also of a missing ACL) are all allowed, whatever
 * the flags. */
static int set_acl(struct apply *ap, uint32_t which, const struct wire_bytes *value)
{
	struct acl a;
	struct node n;
	size_t old = 0;
	int rc = acl_decode(value, &a), had;

	if (rc)
		return rc;
	had = get_old(ap, &n, &old);
	if (had && had != ENODATA)
		return had;
	if (which == HAS_DEFAULT_ACL && !S_ISDIR(n.i.mode))
		return a.n ? EACCES : apply_answer(ap, ap->rec->h.ino, &n);
	if (a.n)
		rc = acl_check(&a);
	if (!rc && a.n)
		rc = space_check(ap, had == 0, old);
	if (rc)
		return rc;
	if (which == HAS_ACL)
		rc = set_access(ap, &n, &a);
	else
		rc = a.n ? acl_put(ap, &n, which, &a) : marked_drop(ap, &n, which);
	return rc ? rc : put_touched(ap, &n);
}

int apply_setxattr(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node n;
	struct key k;
	uint32_t mark = xattr_mark(&r->name);
	size_t old;
	bool there;
	int rc;

	if (is_cache(&r->name))
		return cache_parse(&r->data) ? cache_set(ap, cache_parse(&r->data)) : EINVAL;
	if (mark & ACLS)
		return set_acl(ap, mark, &r->data);
	rc = get_old(ap, &n, &old);
	there = rc == 0;
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
	n.i.has |= mark;
	rc = row_put(&ap->m->db, ap->txn, T_XATTR, &k, r->data.p, r->data.len);
	return rc ? rc : put_touched(ap, &n);
}

int apply_removexattr(struct apply *ap)
{
	uint32_t mark = xattr_mark(&ap->rec->name);
	struct node n;
	struct key k;
	size_t old;
	int rc;

	if (is_cache(&ap->rec->name))
		return cache_set(ap, 0);
	if (mark & ACLS)
		return set_acl(ap, mark, &(struct wire_bytes){ 0 });
	rc = get_old(ap, &n, &old);
	if (rc)
		return rc;
	n.i.has &= ~mark;
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
	struct asker q = { &m->db, m->reader, c, &n };
	struct key k;
	MDB_val v;
	int rc = read_unlocked(m, h, &n);

	if (rc)
		return rc;
	rc = xattr_may(&q, name, MAY_READ);
	if (rc)
		return rc > 0 ? -rc : rc;
	k = key_entry(h->ino, name);
	rc = row_get(&m->db, m->reader, T_XATTR, &k, &v);
	if (rc)
		return rc == -ENOENT ? -ENODATA : rc;
	res->size = (uint32_t)v.mv_size;
	if (v.mv_size > max || !v.mv_size)
		return 0;
	return bytes_copy(&res->data, v.mv_data, v.mv_size, a);
}

int meta_getxattr(struct meta *m, const struct cred *c, const struct wire_handle *h,
		  const struct wire_bytes *name, uint32_t max, struct wire_xattr_res *res,
		  struct arena *a)
{
	int rc = read_begin(m);

	*res = (struct wire_xattr_res){ 0 };
	if (rc)
		return rc;
	return read_end(m, is_cache(name) ? cache_read(m, h, max, res, a) :
					    read_value(m, c, h, name, max, res, a));
}

struct listing {
	bool all; /* for root: with trusted.* */
	uint8_t *out; /* NULL: only count */
	size_t n;
};

static int list_one(void *arg, MDB_cursor *cur, const MDB_val *k, const MDB_val *v)
{
	struct listing *l = arg;
	struct wire_bytes name = name_of(k);

	(void)cur, (void)v;
	if (!l->all && is_trusted(&name))
		return 0;
	if (l->out) {
		memcpy(l->out + l->n, name.p, name.len);
		l->out[l->n + name.len] = 0;
	}
	l->n += name.len + 1;
	return 0;
}

static int read_names(struct meta *m, const struct cred *c, const struct wire_handle *h,
		      uint32_t max, struct wire_xattr_res *res, struct arena *a)
{
	struct listing l = { .all = c->uid == 0 };
	struct node n;
	int rc = read_unlocked(m, h, &n);

	if (!rc)
		rc = rows_each(&m->db, m->reader, T_XATTR, h->ino, list_one, &l);
	if (rc)
		return rc;
	res->size = (uint32_t)l.n;
	if (l.n > max || !l.n)
		return 0;
	l.out = arena_alloc(a, l.n);
	if (!l.out)
		return -ENOMEM;
	l.n = 0;
	rc = rows_each(&m->db, m->reader, T_XATTR, h->ino, list_one, &l);
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
