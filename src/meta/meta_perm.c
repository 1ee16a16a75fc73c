/* Permissions: mode bits and access ACLs, and the rules of chmod, chown and utimens.
 *
 * Threads: pure functions, and REC_SETATTR on the writer. Errors: positive errno are answers; see
 * meta_state.h. */
#include "meta/meta_state.h"

bool cred_in_group(const struct cred *c, uint32_t gid)
{
	if (c->gid == gid)
		return true;
	for (uint32_t i = 0; i < c->n_gids; i++)
		if (c->gids[i] == gid)
			return true;
	return false;
}

static bool mode_grants(uint32_t mode, uint32_t uid, uint32_t gid, const struct cred *c, int may)
{
	unsigned bits = mode; /* of others */

	if (c->uid == 0)
		return true;
	if (c->uid == uid)
		bits = mode >> 6;
	else if (cred_in_group(c, gid))
		bits = mode >> 3;
	return ((unsigned)may & ~bits & 7) == 0;
}

/* For root and the owner the mode decides alone. */
static bool needs_acl(uint32_t uid, const struct cred *c)
{
	return c->uid != 0 && c->uid != uid;
}

int meta_may(const struct meta_node *n, const struct cred *c, int may)
{
	const struct wire_attr *a = &n->attr;
	struct acl acl;

	if (!n->acl.len || !needs_acl(a->uid, c))
		return mode_grants(a->mode, a->uid, a->gid, c, may) ? 0 : -EACCES;
	if (acl_load(n->acl.p, n->acl.len, &acl))
		return -EIO;
	return acl_grants(&acl, a->gid, c, may) ? 0 : -EACCES;
}

int node_may(const struct db *d, MDB_txn *txn, const struct node *n, const struct cred *c, int may)
{
	struct acl acl;
	int rc;

	if (!(n->i.has & HAS_ACL) || !needs_acl(n->i.uid, c))
		return mode_grants(n->i.mode, n->i.uid, n->i.gid, c, may) ? 0 : EACCES;
	rc = acl_read(d, txn, n->ino, HAS_ACL, &acl);
	if (rc)
		return rc;
	return acl_grants(&acl, n->i.gid, c, may) ? 0 : EACCES;
}

int apply_may(struct apply *ap, const struct node *n, int may)
{
	return node_may(&ap->m->db, ap->txn, n, &ap->cred, may);
}

/* chown: root may set anything, an owner only the uid it has and a group of the caller. */
static int may_chown(const struct wire_record *r, const struct node *n, const struct cred *c)
{
	if (c->uid == 0)
		return 0;
	if (c->uid != n->i.uid)
		return EPERM;
	if ((r->which & SET_UID) && r->owner != n->i.uid)
		return EPERM;
	if ((r->which & SET_GID) && r->group != n->i.gid && !cred_in_group(c, r->group))
		return EPERM;
	return 0;
}

/* utimens: setting both times to now needs write permission, everything else ownership. */
static int may_set_times(struct apply *ap, const struct node *n)
{
	const struct wire_record *r = ap->rec;
	const uint32_t now = SET_ATIME_NOW | SET_MTIME_NOW;
	uint32_t which = r->which & (SET_ATIME | SET_MTIME | now);

	if (ap->cred.uid == 0 || ap->cred.uid == n->i.uid)
		return 0;
	return which == now ? apply_may(ap, n, MAY_WRITE) : EPERM;
}

static int may_setattr(struct apply *ap, const struct node *n)
{
	const struct wire_record *r = ap->rec;
	const struct cred *c = &ap->cred;
	int st = 0;

	if ((r->which & SET_MODE) && S_ISLNK(n->i.mode)) /* symbolic links have no mode */
		return EOPNOTSUPP;
	if ((r->which & SET_MODE) && c->uid != 0 && c->uid != n->i.uid)
		return EPERM;
	if (r->which & (SET_UID | SET_GID))
		st = may_chown(r, n, c);
	if (!st && (r->which & (SET_ATIME | SET_MTIME | SET_ATIME_NOW | SET_MTIME_NOW)))
		st = may_set_times(ap, n);
	return st;
}

uint32_t mode_drop_ids(uint32_t mode, uint32_t gid, const struct cred *c)
{
	mode &= ~(uint32_t)S_ISUID;
	if ((mode & S_IXGRP) || (c->uid != 0 && !cred_in_group(c, gid)))
		mode &= ~(uint32_t)S_ISGID;
	return mode;
}

static void set_owner_and_mode(const struct wire_record *r, struct node *n, const struct cred *c)
{
	uint32_t mode = n->i.mode;

	if ((r->which & (SET_UID | SET_GID)) && !S_ISDIR(mode))
		mode = mode_drop_ids(mode, n->i.gid, c);
	if (r->which & SET_UID)
		n->i.uid = r->owner;
	if (r->which & SET_GID)
		n->i.gid = r->group;
	if (r->which & SET_MODE) { /* an explicit mode overrides the cleared bits */
		mode = (mode & S_IFMT) | (r->mode & 07777);
		if (c->uid != 0 && !cred_in_group(c, n->i.gid))
			mode &= ~(uint32_t)S_ISGID;
	}
	n->i.mode = mode;
}

/* The file was read: sets only atime, so `change` stays and no cache is invalidated. */
static int set_read(struct apply *ap, struct node *n)
{
	int rc = apply_may(ap, n, MAY_READ);

	n->i.atime = MAX(n->i.atime, ap->rec->time);
	return rc ? rc : apply_put(ap, n);
}

/* A new mode changes the ACL. A new owner or group removes file capabilities, which were granted
 * for the old owner. */
static int set_attributes(struct apply *ap, struct node *n)
{
	const struct wire_record *r = ap->rec;
	struct acl a;
	int rc = 0;

	if ((r->which & SET_MODE) && (n->i.has & HAS_ACL)) {
		rc = acl_read(&ap->m->db, ap->txn, n->ino, HAS_ACL, &a);
		if (rc)
			return rc;
		acl_chmod(&a, n->i.mode);
		rc = acl_put(ap, n, HAS_ACL, &a);
	}
	if (!rc && (r->which & (SET_UID | SET_GID)) && !S_ISDIR(n->i.mode))
		rc = marked_drop(ap, n, HAS_CAPABILITY);
	return rc;
}

int apply_setattr(struct apply *ap)
{
	const struct wire_record *r = ap->rec;
	struct node n;
	int rc = apply_get(ap, &r->h, &n);

	if (!rc && r->which == SET_ATIME_READ)
		return set_read(ap, &n);
	if (!rc)
		rc = may_setattr(ap, &n);
	if (rc)
		return rc;
	set_owner_and_mode(r, &n, &ap->cred);
	rc = set_attributes(ap, &n);
	if (rc)
		return rc;
	if (r->which & SET_ATIME_NOW)
		n.i.atime = r->time;
	else if (r->which & SET_ATIME)
		n.i.atime = r->atime;
	if (r->which & SET_MTIME_NOW)
		n.i.mtime = r->time;
	else if (r->which & SET_MTIME)
		n.i.mtime = r->mtime;
	if ((r->which & (SET_MTIME | SET_MTIME_NOW)) && S_ISREG(n.i.mode))
		n.i.written = MAX(n.i.written, r->written);
	node_touch(&n, r->time);
	return apply_put(ap, &n);
}
