/* Records that change names: create, mkdir, symlink, link, unlink, rmdir, rename.
 *
 * Each reads and checks everything first and writes only when it can no longer be refused, so a
 * refused record changes nothing. Threads: the writer. Errors: positive errno are answers, negative
 * ones mean that the database failed (meta_state.h). */
#include "meta/meta_state.h"

int name_check(const struct wire_bytes *n)
{
	if (n->len == 0 || name_is_dots(n))
		return EINVAL;
	if (n->len > NAME_MAX_LEN)
		return ENAMETOOLONG;
	return memchr(n->p, '/', n->len) || memchr(n->p, 0, n->len) ? EINVAL : 0;
}

int get_dir(struct apply *ap, const struct wire_handle *h, int may, struct node *n)
{
	int rc = apply_get(ap, h, n);

	if (rc)
		return rc;
	if (!S_ISDIR(n->i.mode))
		return ENOTDIR;
	if (n->i.nlink == 0)
		return ENOENT;
	return apply_may(ap, n, may);
}

/* 0, ENOENT, EINPROGRESS, or negative. */
int get_entry(struct apply *ap, uint64_t dir, const struct wire_bytes *name, struct disk_entry *e)
{
	struct key k = key_entry(dir, name);
	int rc = apply_locked(ap, &k);

	if (!rc)
		rc = entry_get(&ap->m->db, ap->txn, dir, name, e);
	return rc == -ENOENT ? ENOENT : rc;
}

/* The inode that an entry names: 0, EXDEV (in another partition), EINPROGRESS, or negative. */
static int get_child(struct apply *ap, const struct disk_entry *e, struct node *n)
{
	struct wire_handle h = { .ino = e->ino, .gen = e->gen };
	int rc = apply_get(ap, &h, n);

	return rc == ESTALE ? -EIO : rc; /* an entry without its inode is damage */
}

/* In a sticky directory only root and the owners of the entry and of the directory may remove an
 * entry. */
static int sticky_check(const struct node *dir, const struct node *child, const struct cred *c)
{
	if (!(dir->i.mode & S_ISVTX) || c->uid == 0 || c->uid == dir->i.uid ||
	    c->uid == child->i.uid)
		return 0;
	return EPERM;
}

void node_touch(struct node *n, int64_t time)
{
	n->i.change++;
	n->i.ctime = time;
}

void dir_touch(struct node *dir, int64_t time)
{
	node_touch(dir, time);
	dir->i.mtime = time;
}

/* Puts a directory in which this record changed a name; the answer contains its new attributes. */
static int put_dir(struct apply *ap, uint64_t ino, struct node *dir)
{
	dir_touch(dir, ap->rec->time);
	node_attr(dir, ino, false, &ap->dirs[ap->n_dirs++]);
	return node_put(&ap->m->db, ap->txn, ino, dir);
}

/* ---- create, mkdir ---- */

/* Checks a new inode number: 0, EINVAL (out of range or in use: the server's mistake), EXDEV, or
 * negative. */
int new_ino_check(struct apply *ap, uint64_t ino)
{
	struct key k = key_u64(ino);
	MDB_val v;
	int rc;

	if (INO_PARTITION(ino) != ap->m->partition)
		return EXDEV;
	if (INO_COUNTER(ino) == 0 || INO_COUNTER(ino) == INO_COUNTER(UINT64_MAX))
		return EINVAL;
	rc = row_get(&ap->m->db, ap->txn, T_INODE, &k, &v);
	if (rc == -ENOENT)
		return 0;
	return rc ? rc : EINVAL;
}

/* The attributes that the caller chose for a new inode. Only root gives it to another user. */
static int new_attr_set(struct apply *ap, const struct wire_new_attr *a, struct disk_inode *i)
{
	const struct cred *c = &ap->cred;

	if (c->uid != 0 && (a->which & SET_UID) && a->uid != i->uid)
		return EPERM;
	if (c->uid != 0 && (a->which & SET_GID) && a->gid != i->gid && !cred_in_group(c, a->gid))
		return EPERM;
	if (a->which & SET_UID)
		i->uid = a->uid;
	if (a->which & SET_GID)
		i->gid = a->gid;
	if (a->which & SET_SIZE)
		i->size = a->size;
	if (a->which & SET_ATIME)
		i->atime = a->atime;
	if (a->which & SET_MTIME)
		i->mtime = a->mtime;
	return 0;
}

int node_new(struct apply *ap, const struct node *dir, uint32_t type, struct node *n)
{
	const struct wire_record *r = ap->rec;
	uint32_t mode = type | (r->mode & 07777), gid = ap->cred.gid, has;
	int rc = inherit_mode(ap, dir, type, &mode, &has);

	if (rc)
		return rc;
	if (dir->i.mode & S_ISGID) {
		gid = dir->i.gid;
		if (type == S_IFDIR)
			mode |= S_ISGID;
	}
	memset(n, 0, offsetof(struct node, targets));
	n->ino = r->new_ino;
	n->i = (struct disk_inode){
		.mode = mode,
		.nlink = type == S_IFDIR ? 2 : 1,
		.uid = ap->cred.uid,
		.gid = gid,
		.gen = 1, /* inode numbers are never reused */
		.change = 1,
		.atime = r->time,
		.mtime = r->time,
		.ctime = r->time,
		.btime = r->time,
		.epoch = EPOCH_FIRST,
		.has = has | (dir->i.has & HAS_CACHE),
		.next_cookie = type == S_IFDIR ? COOKIE_FIRST : 0,
	};
	if (r->n_set)
		rc = new_attr_set(ap, r->set, &n->i);
	if (type != S_IFDIR && ap->cred.uid != 0 && !cred_in_group(&ap->cred, n->i.gid))
		n->i.mode &= ~(uint32_t)S_ISGID;
	return rc;
}

void node_set_layout(struct node *n, const struct wire_layout_rec *l)
{
	n->l = (struct disk_layout){
		.version = l->version,
		.type = l->type,
		.unit = l->unit,
		.start = l->start,
		.obj_gen = l->obj_gen,
		.redundancy = l->redundancy,
		.n_targets = l->n_targets,
	};
	if (l->n_targets)
		memcpy(n->targets, l->targets, l->n_targets * sizeof(uint32_t));
	for (uint32_t i = 0; i < l->n_targets; i++)
		n->objects[i] = (struct disk_note){ .end = i < l->n_ends ? l->ends[i] : 0 };
}

/* Puts an inode that got a name, its entry and its directory. */
static int put_named(struct apply *ap, struct node *dir, uint64_t ino, const struct node *n)
{
	const struct wire_record *r = ap->rec;
	const struct db *d = &ap->m->db;
	struct disk_entry e = {
		.ino = ino,
		.cookie = dir->i.next_cookie++,
		.gen = n->i.gen,
		.type = n->i.mode & S_IFMT,
	};
	int rc = node_put(d, ap->txn, ino, n);

	if (!rc)
		rc = entry_put(d, ap->txn, r->dir.ino, &r->name, &e);
	if (rc)
		return rc;
	dir->i.entries++;
	return put_dir(ap, r->dir.ino, dir);
}

/* Also answers with the new inode. */
static int put_new(struct apply *ap, struct node *dir, struct node *n)
{
	uint64_t ino = ap->rec->new_ino;
	int rc = inherit_put(ap, dir, n);

	if (rc)
		return rc;
	ap->next_ino = MAX(ap->next_ino, INO_COUNTER(ino) + 1);
	ap->res->created = true;
	rc = put_named(ap, dir, ino, n);
	if (!rc && (ap->rec->flags & REC_WRITER))
		rc = apply_unsettle(ap, ino, n);
	return rc ? rc : apply_answer(ap, ino, n);
}

/* The name exists: the create opens it, unless REC_EXCL is set. */
static int create_existing(struct apply *ap, const struct disk_entry *e)
{
	struct node n;
	int rc;

	if (ap->rec->flags & REC_EXCL)
		return EEXIST;
	if (e->type == S_IFDIR)
		return EISDIR;
	if (e->type == S_IFLNK) /* the link was made after the walk, which must be repeated */
		return ELOOP;
	rc = get_child(ap, e, &n);
	if (!rc && (ap->rec->flags & REC_WRITER))
		rc = apply_may(ap, &n, MAY_WRITE);
	if (!rc && (ap->rec->flags & REC_WRITER))
		rc = apply_open_writer(ap, e->ino, &n);
	if (!rc && (ap->rec->flags & REC_WRITER) && e->type == S_IFREG)
		rc = apply_unsettle(ap, e->ino, &n);
	return rc ? rc : apply_answer(ap, e->ino, &n);
}

int apply_create(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node dir, n;
	struct disk_entry e;
	int rc = name_check(&r->name);

	if (!rc)
		rc = get_dir(ap, &r->dir, MAY_EXEC, &dir);
	if (rc)
		return rc;
	rc = get_entry(ap, r->dir.ino, &r->name, &e);
	if (rc != ENOENT)
		return rc ? rc : create_existing(ap, &e);
	rc = apply_may(ap, &dir, MAY_WRITE | MAY_EXEC);
	if (!rc)
		rc = new_ino_check(ap, r->new_ino);
	if (!rc)
		rc = node_new(ap, &dir, S_IFREG, &n);
	if (rc)
		return rc;
	node_set_layout(&n, &r->layout);
	n.i.objects_within_size = 1;
	return put_new(ap, &dir, &n);
}

/* The directory of a name that must not exist yet. */
static int get_vacancy(struct apply *ap, struct node *dir)
{
	const struct wire_record *r = ap->rec;
	struct disk_entry e;
	int rc = name_check(&r->name);

	if (!rc)
		rc = get_dir(ap, &r->dir, MAY_EXEC, dir);
	if (rc)
		return rc;
	rc = get_entry(ap, r->dir.ino, &r->name, &e);
	if (rc != ENOENT)
		return rc ? rc : EEXIST;
	if ((r->flags & REC_SLASH) && r->kind != REC_MKDIR)
		return ENOENT;
	return apply_may(ap, dir, MAY_WRITE | MAY_EXEC);
}

/* The same, and a new inode for the name. */
static int get_new(struct apply *ap, uint32_t type, struct node *dir, struct node *n)
{
	int rc = get_vacancy(ap, dir);

	if (!rc)
		rc = new_ino_check(ap, ap->rec->new_ino);
	if (!rc && type == S_IFDIR && dir->i.nlink == UINT32_MAX)
		rc = EMLINK;
	return rc ? rc : node_new(ap, dir, type, n);
}

int apply_mkdir(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node dir, n;
	int rc = get_new(ap, S_IFDIR, &dir, &n);

	if (rc)
		return rc;
	n.i.parent_ino = r->dir.ino;
	n.i.parent_gen = r->dir.gen;
	dir.i.nlink++;
	return put_new(ap, &dir, &n);
}

/* An inode without data and without an open: device, pipe, socket, or an empty file. */
int apply_mknod(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	uint32_t type = r->mode & S_IFMT;
	struct node dir, n;
	int rc;

	if (type != S_IFCHR && type != S_IFBLK && type != S_IFIFO && type != S_IFSOCK &&
	    type != S_IFREG)
		return EINVAL;
	if ((type == S_IFCHR || type == S_IFBLK) && ap->cred.uid != 0)
		return EPERM;
	rc = get_new(ap, type, &dir, &n);
	if (rc)
		return rc;
	if (type == S_IFREG) {
		node_set_layout(&n, &r->layout);
		n.i.objects_within_size = 1;
	} else {
		n.i.rdev = r->which;
	}
	return put_new(ap, &dir, &n);
}

/* ---- symlink, link ---- */

static int target_check(const struct wire_bytes *t)
{
	if (t->len == 0)
		return ENOENT;
	if (t->len > LINK_MAX_LEN)
		return ENAMETOOLONG;
	return memchr(t->p, 0, t->len) ? EINVAL : 0;
}

int apply_symlink(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct key k = key_u64(r->new_ino);
	struct node dir, n;
	int rc = target_check(&r->data);

	if (!rc)
		rc = get_new(ap, S_IFLNK, &dir, &n);
	if (rc)
		return rc;
	n.i.mode = S_IFLNK | 0777;
	n.i.size = r->data.len;
	rc = put_new(ap, &dir, &n);
	return rc ? rc : row_put(&ap->m->db, ap->txn, T_SYMLINK, &k, r->data.p, r->data.len);
}

int link_check(const struct node *n)
{
	if (S_ISDIR(n->i.mode))
		return EPERM;
	if (n->i.nlink == 0)
		return ENOENT;
	return n->i.nlink >= LINKS_MAX ? EMLINK : 0;
}

int apply_link(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node dir, n;
	int rc = get_vacancy(ap, &dir);

	if (!rc)
		rc = apply_get(ap, &r->h, &n);
	if (!rc)
		rc = link_check(&n);
	if (rc)
		return rc;
	n.i.nlink++;
	node_touch(&n, r->time);
	rc = put_named(ap, &dir, r->h.ino, &n);
	return rc ? rc : apply_answer(ap, r->h.ino, &n);
}

/* ---- unlink, rmdir ---- */

/* Removes one name from an inode. A file without names is put on the remove list and stays until
 * its objects are removed; a symbolic link, special file or (empty) directory has no objects and is
 * removed at once. */
int drop_name(struct apply *ap, uint64_t ino, struct node *n)
{
	struct disk_remove row = { .gen = n->i.gen };
	struct key k = key_pair32(ino, n->l.obj_gen);
	int rc = 0;

	node_touch(n, ap->rec->time);
	n->i.nlink = S_ISDIR(n->i.mode) ? 0 : n->i.nlink - 1;
	if (n->i.nlink == 0 && !S_ISREG(n->i.mode))
		return apply_forget(ap, ino);
	if (n->i.nlink == 0) {
		rc = row_put(&ap->m->db, ap->txn, T_REMOVE, &k, &row, sizeof(row));
		ap->res->removed = (struct wire_handle){ .ino = ino, .gen = n->i.gen };
	}
	return rc ? rc : node_put(&ap->m->db, ap->txn, ino, n);
}

/* The directory, the entry and its inode, and the check of permissions. */
static int get_doomed(struct apply *ap, struct node *dir, struct disk_entry *e, struct node *n)
{
	const struct wire_record *r = ap->rec;
	int rc = name_check(&r->name);

	if (!rc)
		rc = get_dir(ap, &r->dir, MAY_EXEC, dir);
	if (!rc)
		rc = get_entry(ap, r->dir.ino, &r->name, e);
	if (!rc)
		rc = apply_may(ap, dir, MAY_WRITE | MAY_EXEC);
	if (!rc)
		rc = get_child(ap, e, n);
	return rc ? rc : sticky_check(dir, n, &ap->cred);
}

/* Unlink and rmdir. */
int apply_remove(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node dir, n;
	struct disk_entry e;
	int rc = get_doomed(ap, &dir, &e, &n);

	if (rc)
		return rc;
	if (r->kind == REC_UNLINK && S_ISDIR(n.i.mode))
		return EISDIR;
	if (r->kind == REC_UNLINK ? r->flags & REC_SLASH : !S_ISDIR(n.i.mode))
		return ENOTDIR;
	if (S_ISDIR(n.i.mode)) {
		rc = n.i.entries ? ENOTEMPTY : apply_locked_within(ap, e.ino);
		dir.i.nlink--;
	}
	if (!rc)
		rc = entry_del(&ap->m->db, ap->txn, r->dir.ino, &r->name, e.cookie);
	if (!rc)
		rc = drop_name(ap, e.ino, &n);
	if (rc)
		return rc;
	dir.i.entries--;
	rc = put_dir(ap, r->dir.ino, &dir);
	return rc ? rc : apply_answer(ap, e.ino, &n);
}

/* ---- rename ---- */

struct rename {
	struct node from_node, to_node;
	struct node *from, *to; /* directories; equal pointers if it is one directory */
	struct disk_entry e, old_e; /* the moved entry, the replaced entry */
	struct node child, old;
	bool replaces;
	bool moves_dir; /* a directory gets another parent */
};

/* Would directory `ino` become its own ancestor? Climbs from its new parent. The climb may stop at
 * the old parent: `ino` is that one's child and was not met below it. 0, EINVAL, EXDEV (this server
 * alone cannot tell), or negative. */
static int loop_check(struct apply *ap, uint64_t ino, struct wire_handle at, uint64_t old_parent)
{
	struct node n;

	if (ap->rec->flags & REC_CLIMBED)
		return 0;
	if (ap->rec->flags & REC_SPREAD) /* another server may be moving a parent */
		return EXDEV;
	for (unsigned depth = 0; depth < 1U << 20; depth++) {
		int rc;

		if (at.ino == ino)
			return EINVAL;
		if (at.ino == META_ROOT_INO || at.ino == old_parent)
			return 0;
		rc = apply_get(ap, &at, &n);
		if (rc)
			return rc == ESTALE ? -EIO : rc;
		at = (struct wire_handle){ .ino = n.i.parent_ino, .gen = n.i.parent_gen };
	}
	return ELOOP;
}

/* Gets the directories and the moved entry; checks only x permission on the directories. */
static int rename_find(struct apply *ap, struct rename *x)
{
	const struct wire_record *r = ap->rec;
	int rc = name_check(&r->name);

	if (!rc)
		rc = name_check(&r->name2);
	if (!rc)
		rc = get_dir(ap, &r->dir, MAY_EXEC, &x->from_node);
	x->from = x->to = &x->from_node;
	if (!rc && (r->dir2.ino != r->dir.ino || r->dir2.gen != r->dir.gen)) {
		x->to = &x->to_node;
		rc = get_dir(ap, &r->dir2, MAY_EXEC, x->to);
	}
	if (!rc)
		rc = get_entry(ap, r->dir.ino, &r->name, &x->e);
	if (!rc && rename_needs_dir(r->flags) && x->e.type != S_IFDIR)
		rc = ENOTDIR;
	return rc;
}

/* Are both names links to one inode, or the same name? Then nothing happens, even if the inode is
 * on another server. 0, -1 (they are), or an errno. */
static int rename_same(struct apply *ap, const struct rename *x)
{
	const struct wire_record *r = ap->rec;
	struct disk_entry e;
	int rc = get_entry(ap, r->dir2.ino, &r->name2, &e);

	if (rc)
		return rc == ENOENT ? 0 : rc;
	if (r->flags & REC_NOREPLACE)
		return EEXIST;
	return e.ino == x->e.ino ? -1 : 0;
}

/* The climb examined two inodes: do the names still name them? 0, EAGAIN, another errno, or
 * negative. */
static int climbed_check(struct apply *ap, const struct rename *x)
{
	const struct wire_record *r = ap->rec;
	struct disk_entry e = { 0 };
	int rc;

	if (!(r->flags & REC_CLIMBED))
		return 0;
	rc = get_entry(ap, r->dir2.ino, &r->name2, &e);
	if (rc && rc != ENOENT)
		return rc;
	return x->e.ino == r->h.ino && e.ino == r->new_ino ? 0 : EAGAIN;
}

static int rename_source(struct apply *ap, struct rename *x)
{
	int rc = apply_may(ap, x->from, MAY_WRITE | MAY_EXEC);

	if (!rc)
		rc = apply_may(ap, x->to, MAY_WRITE | MAY_EXEC);
	if (!rc)
		rc = sticky_check(x->from, &x->child, &ap->cred);
	if (rc)
		return rc;
	x->moves_dir = S_ISDIR(x->child.i.mode) && x->from != x->to;
	if (x->moves_dir)
		rc = apply_may(ap, &x->child, MAY_WRITE); /* because its ".." changes */
	return rc;
}

/* Gets the entry at the new name. x->replaces: there is one; an exchange needs it. */
static int rename_target(struct apply *ap, struct rename *x)
{
	const struct wire_record *r = ap->rec;
	int rc = get_entry(ap, r->dir2.ino, &r->name2, &x->old_e);

	if (rc == ENOENT && !(r->flags & REC_EXCHANGE))
		return 0;
	if (rc)
		return rc;
	if (r->flags & REC_NOREPLACE)
		return EEXIST;
	x->replaces = true;
	if ((r->flags & REC_SLASH2) && x->old_e.type != S_IFDIR)
		return ENOTDIR;
	rc = get_child(ap, &x->old_e, &x->old);
	if (!rc)
		rc = sticky_check(x->to, &x->old, &ap->cred);
	if (rc || (r->flags & REC_EXCHANGE))
		return rc;
	if (S_ISDIR(x->child.i.mode) != S_ISDIR(x->old.i.mode))
		return S_ISDIR(x->old.i.mode) ? EISDIR : ENOTDIR;
	if (!S_ISDIR(x->old.i.mode))
		return 0;
	return x->old.i.entries ? ENOTEMPTY : apply_locked_within(ap, x->old_e.ino);
}

/* Puts the entry at the new name with the cookie of the entry it replaces, or with its own if the
 * directory stays the same, so that a concurrent listing shows it once; else with a new cookie. */
static int rename_entries(struct apply *ap, struct rename *x)
{
	const struct wire_record *r = ap->rec;
	const struct db *d = &ap->m->db;
	struct disk_entry e = x->e;
	int rc = entry_del(d, ap->txn, r->dir.ino, &r->name, x->e.cookie);

	x->from->i.entries--;
	if (x->replaces) {
		e.cookie = x->old_e.cookie;
		if (!rc)
			rc = drop_name(ap, x->old_e.ino, &x->old);
		if (S_ISDIR(x->old.i.mode))
			x->to->i.nlink--;
	} else {
		if (x->to != x->from)
			e.cookie = x->to->i.next_cookie++;
		x->to->i.entries++;
	}
	return rc ? rc : entry_put(d, ap->txn, r->dir2.ino, &r->name2, &e);
}

static int rename_dirs(struct apply *ap, struct rename *x)
{
	const struct wire_record *r = ap->rec;
	int rc = put_dir(ap, r->dir.ino, x->from);

	return rc || x->to == x->from ? rc : put_dir(ap, r->dir2.ino, x->to);
}

static int rename_put(struct apply *ap, struct rename *x)
{
	const struct wire_record *r = ap->rec;
	const struct db *d = &ap->m->db;
	int rc = rename_entries(ap, x);

	if (rc)
		return rc;
	node_touch(&x->child, r->time);
	if (x->moves_dir) {
		x->child.i.parent_ino = r->dir2.ino;
		x->child.i.parent_gen = r->dir2.gen;
		x->from->i.nlink--;
		x->to->i.nlink++;
	}
	rc = rename_dirs(ap, x);
	return rc ? rc : node_put(d, ap->txn, x->e.ino, &x->child);
}

/* ---- exchange: both names stay ---- */

/* The entry at the new name moves, too, perhaps to another parent. */
static int exchange_check(struct apply *ap, struct rename *x)
{
	const struct wire_record *r = ap->rec;
	int rc;

	if (x->from == x->to || !S_ISDIR(x->old.i.mode))
		return 0;
	rc = apply_may(ap, &x->old, MAY_WRITE);
	return rc ? rc : loop_check(ap, x->old_e.ino, r->dir, r->dir2.ino);
}

/* An inode moves to another directory: sets its parent, and adjusts the link counts of both
 * directories. */
static int exchange_move(struct node *n, struct node *from, struct node *to, struct wire_handle dir)
{
	if (!S_ISDIR(n->i.mode))
		return 0;
	n->i.parent_ino = dir.ino;
	n->i.parent_gen = dir.gen;
	from->i.nlink--;
	return to->i.nlink++ == UINT32_MAX ? EMLINK : 0;
}

static int exchange_put(struct apply *ap, struct rename *x)
{
	const struct wire_record *r = ap->rec;
	const struct db *d = &ap->m->db;
	uint64_t cookie = x->e.cookie;
	int rc;

	x->e.cookie = x->old_e.cookie; /* a name keeps its cookie */
	x->old_e.cookie = cookie;
	rc = entry_put(d, ap->txn, r->dir.ino, &r->name, &x->old_e);
	if (!rc)
		rc = entry_put(d, ap->txn, r->dir2.ino, &r->name2, &x->e);
	if (!rc)
		rc = rename_dirs(ap, x);
	node_touch(&x->child, r->time);
	node_touch(&x->old, r->time);
	if (!rc)
		rc = node_put(d, ap->txn, x->e.ino, &x->child);
	return rc ? rc : node_put(d, ap->txn, x->old_e.ino, &x->old);
}

static int exchange(struct apply *ap, struct rename *x)
{
	const struct wire_record *r = ap->rec;
	int rc = exchange_check(ap, x);

	if (!rc && x->from != x->to) {
		rc = exchange_move(&x->child, x->from, x->to, r->dir2);
		if (!rc)
			rc = exchange_move(&x->old, x->to, x->from, r->dir);
	}
	return rc ? rc : exchange_put(ap, x);
}

int apply_rename(struct apply *ap)
{
	struct rename x = { .replaces = false };
	int rc = rename_find(ap, &x), same;

	if (!rc)
		rc = climbed_check(ap, &x);
	same = rc ? rc : rename_same(ap, &x);
	if (same > 0 || same < -1)
		return same;
	rc = get_child(ap, &x.e, &x.child);
	if (same)
		return rc == EXDEV ? 0 : rc ? rc : apply_answer(ap, x.e.ino, &x.child);
	if (!rc)
		rc = rename_source(ap, &x);
	if (!rc && x.moves_dir)
		rc = loop_check(ap, x.e.ino, ap->rec->dir2, ap->rec->dir.ino);
	if (!rc)
		rc = rename_target(ap, &x);
	if (!rc && x.moves_dir && !x.replaces && x.to->i.nlink == UINT32_MAX)
		rc = EMLINK;
	if (rc)
		return rc;
	rc = ap->rec->flags & REC_EXCHANGE ? exchange(ap, &x) : rename_put(ap, &x);
	return rc ? rc : apply_answer(ap, x.e.ino, &x.child);
}
