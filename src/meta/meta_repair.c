/* Repairs: records that `sheaf check` sends for an administrator. Each corrects one thing.
 *
 * What a repair was decided on may have changed since, so each checks again inside its transaction:
 * the inode's `change` (every link, rename, write or chmod increases it), what an entry names,
 * whether a row is still stale. If anything differs, the answer is EAGAIN and nothing is changed. A
 * repair never deletes what could still be data: at worst it removes a name, and the next check
 * finds the inode without one.
 *
 * Threads: the writer. Errors: as for all kinds of records (meta_state.h). */
#include "meta/meta_state.h"

#define COOKIE_SANE (UINT64_C(1) << 62) /* no valid cookie is that high */
#define LOST_TEXT "?" /* target of a symbolic link whose text is lost */

/* ---- directories from their entries ---- */

struct census {
	struct apply *ap;
	uint64_t entries, top; /* top: the highest cookie */
	uint32_t subdirs;
};

static bool cookie_sane(uint64_t cookie)
{
	return cookie >= COOKIE_FIRST && cookie < COOKIE_SANE;
}

/* Can the entry be decoded? */
static bool entry_load(const MDB_val *k, const MDB_val *v, struct disk_entry *e)
{
	if (v->mv_size != sizeof(*e) || k->mv_size > sizeof(((struct key *)NULL)->b))
		return false;
	memcpy(e, v->mv_data, sizeof(*e));
	return true;
}

static int count_entry(void *arg, MDB_cursor *cur, const MDB_val *k, const MDB_val *v)
{
	struct census *c = arg;
	struct disk_entry e;

	(void)cur;
	if (!entry_load(k, v, &e))
		return 0;
	c->entries++;
	c->subdirs += e.type == S_IFDIR;
	if (cookie_sane(e.cookie))
		c->top = MAX(c->top, e.cookie);
	return 0;
}

/* Puts the index row of an entry. A cookie that is invalid or another entry's is replaced by a new
 * one. */
static int index_entry(void *arg, MDB_cursor *cur, const MDB_val *k, const MDB_val *row)
{
	struct census *c = arg;
	MDB_txn *txn = c->ap->txn;
	const struct db *d = &c->ap->m->db;
	struct disk_entry e;
	struct disk_index x;
	struct key name = { .n = k->mv_size }, by_cookie;
	MDB_val v, key = { name.n, name.b };
	int rc;

	if (!entry_load(k, row, &e))
		return 0;
	memcpy(name.b, k->mv_data, name.n); /* a put may move the page */
	x = (struct disk_index){ .ino = e.ino, .gen = e.gen, .type = e.type };
	by_cookie = key_pair(be64_load(name.b), e.cookie);
	rc = row_get(d, txn, T_DIRINDEX, &by_cookie, &v);
	if (rc && rc != -ENOENT)
		return rc;
	if (rc == 0 || !cookie_sane(e.cookie)) {
		e.cookie = ++c->top;
		by_cookie = key_pair(be64_load(name.b), e.cookie);
		v = (MDB_val){ sizeof(e), &e };
		rc = db_error(mdb_cursor_put(cur, &key, &v, MDB_CURRENT));
		if (rc)
			return rc;
	}
	return row_put2(d, txn, T_DIRINDEX, &by_cookie, &x, sizeof(x), name.b + 8, name.n - 8);
}

/* Counts the entries into the inode and rebuilds the index. The caller puts n. */
static int directory_rebuild(struct apply *ap, uint64_t ino, struct node *n)
{
	struct census c = { .ap = ap, .top = COOKIE_FIRST - 1 };
	int rc = rows_each(&ap->m->db, ap->txn, T_DIRENT, ino, count_entry, &c);

	if (cookie_sane(n->i.next_cookie)) /* cookies of removed entries are not reused */
		c.top = MAX(c.top, n->i.next_cookie - 1);
	if (!rc)
		rc = rows_forget(ap, T_DIRINDEX, ino);
	if (!rc)
		rc = rows_each(&ap->m->db, ap->txn, T_DIRENT, ino, index_entry, &c);
	n->i.entries = c.entries;
	n->i.nlink = 2 + c.subdirs;
	n->i.next_cookie = c.top + 1;
	return rc;
}

/* ---- entries ---- */

/* Checks that the inode that an entry will name, if it is in this partition, is unchanged since the
 * check. */
static int named_check(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node n;
	int rc;

	if (INO_PARTITION(r->h.ino) != ap->m->partition)
		return 0;
	rc = apply_get(ap, &r->h, &n);
	if (rc)
		return rc;
	return n.i.change != r->size || (n.i.mode & S_IFMT) != r->mode ? EAGAIN : 0;
}

static int get_repair_dir(struct apply *ap, struct node *dir)
{
	int rc = apply_get(ap, &ap->rec->dir, dir);

	return rc || S_ISDIR(dir->i.mode) ? rc : ENOTDIR;
}

static int put_repair_dir(struct apply *ap, struct node *dir)
{
	dir_touch(dir, ap->rec->time);
	return node_put(&ap->m->db, ap->txn, ap->rec->dir.ino, dir);
}

static int repair_entry_set(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	const struct db *d = &ap->m->db;
	struct disk_entry e = { .ino = r->h.ino, .gen = r->h.gen, .type = r->mode }, old;
	struct node dir;
	int rc = get_repair_dir(ap, &dir), seen;

	if (!rc)
		rc = name_check(&r->name);
	if (!rc)
		rc = named_check(ap);
	if (rc)
		return rc;
	seen = get_entry(ap, r->dir.ino, &r->name, &old);
	if (seen && seen != ENOENT)
		return seen;
	if (!seen && old.ino != r->h.ino)
		return EEXIST;
	e.cookie = seen ? dir.i.next_cookie++ : old.cookie;
	dir.i.entries += seen ? 1 : 0;
	if (r->mode == S_IFDIR && (seen || old.type != S_IFDIR))
		dir.i.nlink++;
	else if (!seen && old.type == S_IFDIR && r->mode != S_IFDIR)
		dir.i.nlink -= dir.i.nlink > 2;
	rc = entry_put(d, ap->txn, r->dir.ino, &r->name, &e);
	return rc ? rc : put_repair_dir(ap, &dir);
}

/* Removes only the entry and its index row; the next check corrects the inode that loses the
 * name. */
static int repair_entry_drop(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	const struct db *d = &ap->m->db;
	struct key by_name = key_entry(r->dir.ino, &r->name), by_cookie;
	struct disk_entry e;
	struct node dir;
	MDB_val v;
	int rc = get_repair_dir(ap, &dir);

	if (!rc)
		rc = get_entry(ap, r->dir.ino, &r->name, &e);
	if (rc)
		return rc;
	if (e.ino != r->h.ino || e.gen != r->h.gen)
		return EAGAIN;
	by_cookie = key_pair(r->dir.ino, e.cookie);
	rc = row_get(d, ap->txn, T_DIRINDEX, &by_cookie, &v);
	if (!rc && v.mv_size == sizeof(struct disk_index) + r->name.len &&
	    memcmp((uint8_t *)v.mv_data + sizeof(struct disk_index), r->name.p, r->name.len) == 0)
		rc = row_del(d, ap->txn, T_DIRINDEX, &by_cookie);
	if (rc && rc != -ENOENT)
		return rc;
	rc = row_del(d, ap->txn, T_DIRENT, &by_name);
	if (rc)
		return rc;
	dir.i.entries -= dir.i.entries > 0;
	if (e.type == S_IFDIR)
		dir.i.nlink -= dir.i.nlink > 2;
	return put_repair_dir(ap, &dir);
}

/* ---- fields of an inode ---- */

static int set_text(struct apply *ap, struct node *n)
{
	struct key k = key_u64(ap->rec->h.ino);
	MDB_val v = { 0 };
	int rc = row_get(&ap->m->db, ap->txn, T_SYMLINK, &k, &v);

	if (!S_ISLNK(n->i.mode))
		return EINVAL;
	if (rc && rc != -ENOENT)
		return rc;
	n->i.size = v.mv_size;
	if (v.mv_size)
		return 0;
	n->i.size = strlen(LOST_TEXT);
	return row_put(&ap->m->db, ap->txn, T_SYMLINK, &k, LOST_TEXT, strlen(LOST_TEXT));
}

/* Sets `has` and the mode from the rows that exist. If an access ACL is lost, the owner and
 * others keep their permissions; the group bits were the mask of all entries of the list, and
 * are cleared. */
static int set_acls(struct apply *ap, struct node *n)
{
	static const uint32_t marks[] = { HAS_ACL, HAS_DEFAULT_ACL, HAS_CAPABILITY };
	struct acl a;
	MDB_val v;

	for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
		uint32_t had = n->i.has & marks[i];
		int rc = marked_get(&ap->m->db, ap->txn, n->ino, marks[i], &v);

		n->i.has |= marks[i];
		if (!rc && marks[i] != HAS_CAPABILITY)
			rc = acl_load(v.mv_data, v.mv_size, &a);
		if (!rc && marks[i] == HAS_ACL)
			n->i.mode = (n->i.mode & ~0777u) | acl_mode(&a);
		if (rc == -EIO) {
			rc = marked_drop(ap, n, marks[i]);
			n->i.mode &= had & HAS_ACL ? ~070u : ~0u;
		}
		if (rc)
			return rc;
	}
	return 0;
}

/* Keeps what is recorded of the objects if the new layout leaves the object indexes their
 * meaning. */
static void set_layout(struct node *n, const struct wire_layout_rec *l)
{
	struct disk_note old[TARGETS_MAX];
	bool same = n->l.unit == l->unit && n->l.n_targets == l->n_targets &&
		    n->l.obj_gen == l->obj_gen && n->l.start == l->start;

	memcpy(old, n->objects, sizeof(old));
	node_set_layout(n, l);
	if (same)
		memcpy(n->objects, old, l->n_targets * sizeof(*old));
	n->i.objects_within_size = 0;
}

static int repair_field(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node n;
	int rc = apply_get(ap, &r->h, &n);

	if (rc)
		return rc;
	if (n.i.change != r->size && r->which != REPAIR_DIRECTORY)
		return EAGAIN;
	switch (r->which) {
	case REPAIR_DIRECTORY:
		if (!S_ISDIR(n.i.mode))
			return ENOTDIR;
		rc = directory_rebuild(ap, r->h.ino, &n);
		break;
	case REPAIR_NLINK:
		if (S_ISDIR(n.i.mode) || !r->epoch || r->epoch > UINT32_MAX)
			return EINVAL;
		n.i.nlink = (uint32_t)r->epoch;
		break;
	case REPAIR_PARENT:
		if (!S_ISDIR(n.i.mode))
			return ENOTDIR;
		n.i.parent_ino = r->dir.ino;
		n.i.parent_gen = r->dir.gen;
		break;
	case REPAIR_EPOCH:
		n.i.epoch = MAX(n.i.epoch, r->epoch);
		break;
	case REPAIR_LAYOUT:
		if (!S_ISREG(n.i.mode) || !r->layout.n_targets || !r->layout.unit)
			return EINVAL;
		set_layout(&n, &r->layout);
		break;
	case REPAIR_TEXT:
		rc = set_text(ap, &n);
		break;
	case REPAIR_ACL:
		rc = set_acls(ap, &n);
		break;
	}
	node_touch(&n, r->time);
	return rc ? rc : node_put(&ap->m->db, ap->txn, r->h.ino, &n);
}

/* ---- a new inode for rows or objects that have none ---- */

static int make_rest(struct apply *ap, struct node *n)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_u64(r->h.ino);
	MDB_val v;
	int rc;

	switch (r->mode) {
	case S_IFREG:
		if (!r->layout.n_targets || !r->layout.unit)
			return EINVAL;
		node_set_layout(n, &r->layout);
		return apply_unsettle(ap, r->h.ino, n);
	case S_IFDIR:
		n->i.parent_ino = r->dir.ino;
		n->i.parent_gen = r->dir.gen;
		return directory_rebuild(ap, r->h.ino, n);
	case S_IFLNK:
		rc = row_get(&ap->m->db, ap->txn, T_SYMLINK, &k, &v);
		n->i.size = rc ? 0 : v.mv_size;
		return rc == -ENOENT ? ENOENT : rc;
	default:
		return EINVAL;
	}
}

/* The inode belongs to root, and only root has access until root has looked at it. */
static int repair_make(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	int64_t t = r->time;
	struct node n = { .i = { .nlink = 1, .gen = r->h.gen, .change = 1, .epoch = r->epoch } };
	int rc = new_ino_check(ap, r->h.ino);

	if (rc)
		return rc == EINVAL ? EAGAIN : rc;
	n.i.mode = r->mode | (r->mode == S_IFDIR ? 0700 : r->mode == S_IFLNK ? 0777 : 0600);
	n.i.atime = n.i.mtime = n.i.ctime = n.i.btime = t;
	rc = make_rest(ap, &n);
	if (rc)
		return rc;
	ap->next_ino = MAX(ap->next_ino, INO_COUNTER(r->h.ino) + 1);
	return node_put(&ap->m->db, ap->txn, r->h.ino, &n);
}

/* ---- stale rows ---- */

/* Is this a row of unfinished work that no task will ever finish? */
static bool work_is_stale(const struct wire_scan_row *row, uint32_t kind, const struct node *n)
{
	if (!S_ISREG(n->i.mode) || row->h.gen != n->i.gen)
		return true;
	if (kind == SCAN_REMOVE)
		return n->i.nlink && row->second == n->l.obj_gen;
	return kind == SCAN_TRUNCATE && row->epoch > n->i.epoch;
}

/* Removes a lock if no part of its change is stored here any more: then no finish will remove
 * it. */
static int lock_drop(struct apply *ap, const struct key *k, uint64_t pair)
{
	MDB_val v;
	int rc = -ENOENT;

	for (uint32_t i = 0; i < PARTS_MAX && rc == -ENOENT; i++) {
		struct key part = key_pair32(pair, i);

		rc = row_get(&ap->m->db, ap->txn, T_PREPARED, &part, &v);
	}
	if (rc != -ENOENT)
		return rc ? rc : EAGAIN;
	ap->n_locks--;
	return row_del(&ap->m->db, ap->txn, T_LOCK, k);
}

static int repair_row_drop(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct wire_scan_row row = { 0 };
	struct key k = { .n = r->data.len };
	struct node n;
	enum table t;
	bool stale;
	int rc;

	if (k.n == 0 || k.n > sizeof(k.b))
		return EINVAL;
	memcpy(k.b, r->data.p, k.n);
	rc = scan_row_get(ap, (uint32_t)r->epoch, &k, &t, &row); /* decoded as for the check */
	if (rc)
		return rc;
	if (t == T_LOCK)
		return lock_drop(ap, &k, row.second);
	rc = node_get(&ap->m->db, ap->txn, row.h.ino, &n);
	if (rc && rc != -ENOENT && rc != -EIO)
		return rc;
	if (row.bad)
		stale = true;
	else if (t == T_INODE || t == T_DIRENT || t == T_DIRINDEX || t == T_PREPARED)
		stale = false;
	else if (rc)
		stale = rc == -ENOENT;
	else if (t == T_SYMLINK)
		stale = !S_ISLNK(n.i.mode);
	else
		stale = t != T_XATTR && work_is_stale(&row, (uint32_t)r->epoch, &n);
	return stale ? row_del(&ap->m->db, ap->txn, t, &k) : EAGAIN;
}

/* ---- all of them ---- */

static int repair_unsettle(struct apply *ap)
{
	struct node n;
	int rc = apply_get_contents(ap, &ap->rec->h, &n);

	if (rc)
		return rc;
	return S_ISREG(n.i.mode) ? apply_unsettle(ap, ap->rec->h.ino, &n) : EINVAL;
}

static int repair_next(struct apply *ap)
{
	uint64_t ino = ap->rec->h.ino;

	if (INO_PARTITION(ino) != ap->m->partition || INO_COUNTER(ino + 1) == 0)
		return EXDEV;
	ap->next_ino = MAX(ap->next_ino, INO_COUNTER(ino) + 1);
	return 0;
}

static apply_fn *const repairs[] = {
	[REPAIR_ENTRY_SET] = repair_entry_set, [REPAIR_ENTRY_DROP] = repair_entry_drop,
	[REPAIR_DIRECTORY] = repair_field,     [REPAIR_NLINK] = repair_field,
	[REPAIR_PARENT] = repair_field,	       [REPAIR_EPOCH] = repair_field,
	[REPAIR_LAYOUT] = repair_field,	       [REPAIR_TEXT] = repair_field,
	[REPAIR_ACL] = repair_field,	       [REPAIR_MAKE] = repair_make,
	[REPAIR_ROW_DROP] = repair_row_drop,   [REPAIR_UNSETTLE] = repair_unsettle,
	[REPAIR_NEXT] = repair_next,
};

int apply_repair(struct apply *ap)
{
	uint32_t which = ap->rec->which;

	if (ap->cred.uid != 0)
		return EPERM;
	return which < ARRAY_LEN(repairs) && repairs[which] ? repairs[which](ap) : EINVAL;
}
