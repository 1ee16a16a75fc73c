/* Access control lists as in acl(5): which are valid, what a list grants, how it follows a change
 * of the mode, what a new inode inherits from its directory's default ACL. Also their rows:
 * extended attributes in the kernel's form (version 2; then tag, permissions and id of each entry,
 * little-endian). The inode's own row tells which of them exist (`has`), so that most inodes need
 * no further lookup.
 *
 * An access ACL is stored only if it says more than the mode; the mode's group bits are then its
 * mask.
 *
 * Threads: pure functions, and rows in the caller's transaction. Buffers: lists are decoded to the
 * stack. Errors: positive errno are answers, negative ones the database's; a stored list that
 * cannot be decoded is -EIO. */
#include <endian.h>

#include "meta/meta_state.h"

#define ACL_VERSION 2
#define ACL_HEAD 4
#define ACL_ENTRY 8
#define ACL_NOBODY UINT32_MAX /* id of entries without an id; no valid user id */

enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

/* ---- attributes with a HAS_ bit ---- */

static const struct mark {
	const char *name;
	uint32_t bit;
} marks[] = {
	{ "system.posix_acl_access", HAS_ACL },
	{ "system.posix_acl_default", HAS_DEFAULT_ACL },
	{ "security.capability", HAS_CAPABILITY },
};

uint32_t xattr_mark(const struct wire_bytes *name)
{
	for (size_t i = 0; i < ARRAY_LEN(marks); i++)
		if (name->len == strlen(marks[i].name) &&
		    memcmp(name->p, marks[i].name, name->len) == 0)
			return marks[i].bit;
	return 0;
}

static struct key marked_key(uint64_t ino, uint32_t mark)
{
	struct wire_bytes name = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(marks); i++)
		if (marks[i].bit == mark)
			name = wire_text(marks[i].name);
	return key_entry(ino, &name);
}

int marked_get(const struct db *d, MDB_txn *txn, uint64_t ino, uint32_t mark, MDB_val *v)
{
	struct key k = marked_key(ino, mark);
	int rc = row_get(d, txn, T_XATTR, &k, v);

	return rc == -ENOENT ? -EIO : rc;
}

int marked_drop(struct apply *ap, struct node *n, uint32_t mark)
{
	struct key k = marked_key(n->ino, mark);

	if (!(n->i.has & mark))
		return 0;
	n->i.has &= ~mark;
	return row_forget(ap, T_XATTR, &k);
}

/* ---- encoding ---- */

int acl_decode(const struct wire_bytes *b, struct acl *a)
{
	const uint8_t *p = b->p;
	uint32_t version, id;
	uint16_t v[2];

	a->n = 0;
	if (b->len == 0)
		return 0;
	if (b->len < ACL_HEAD || (b->len - ACL_HEAD) % ACL_ENTRY)
		return EINVAL;
	memcpy(&version, p, sizeof(version));
	if (le32toh(version) != ACL_VERSION)
		return EOPNOTSUPP;
	if ((b->len - ACL_HEAD) / ACL_ENTRY > ACL_MAX)
		return ENOSPC;
	for (p += ACL_HEAD; p < b->p + b->len; p += ACL_ENTRY) {
		memcpy(v, p, sizeof(v));
		memcpy(&id, p + sizeof(v), sizeof(id));
		a->e[a->n++] = (struct acl_entry){ le16toh(v[0]), le16toh(v[1]), le32toh(id) };
	}
	return 0;
}

static size_t acl_encode(const struct acl *a, uint8_t out[ACL_BYTES])
{
	uint32_t version = htole32(ACL_VERSION);
	uint8_t *p = out + ACL_HEAD;

	memcpy(out, &version, sizeof(version));
	for (uint32_t i = 0; i < a->n; i++, p += ACL_ENTRY) {
		const struct acl_entry *e = &a->e[i];
		bool named = e->tag == USER || e->tag == GROUP;
		uint16_t v[2] = { htole16(e->tag), htole16(e->perm) };
		uint32_t id = htole32(named ? e->id : ACL_NOBODY);

		memcpy(p, v, sizeof(v));
		memcpy(p + sizeof(v), &id, sizeof(id));
	}
	return (size_t)(p - out);
}

/* Valid lists have, in this order: the owner, named users, the group, named groups, a mask
 * (required if there are named entries), others. */
int acl_check(const struct acl *a)
{
	uint32_t next = USER_OBJ; /* OTHER << 1: the list is complete */
	bool named = false;

	for (uint32_t i = 0; i < a->n; i++) {
		const struct acl_entry *e = &a->e[i];
		bool in_turn = e->tag == next;

		if (e->perm & ~7u)
			return EINVAL;
		if (e->tag == USER || e->tag == GROUP) {
			named = true;
			if (!in_turn || e->id == ACL_NOBODY)
				return EINVAL;
			continue;
		}
		if (next == USER) /* any number of named users may come before */
			in_turn = e->tag == GROUP_OBJ;
		else if (next == GROUP)
			in_turn = e->tag == MASK || (e->tag == OTHER && !named);
		if (!in_turn)
			return EINVAL;
		next = (uint32_t)e->tag << 1;
	}
	return next == OTHER << 1 ? 0 : EINVAL;
}

/* ---- meaning ---- */

static struct acl_entry *acl_find(struct acl *a, uint16_t tag)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (a->e[i].tag == tag)
			return &a->e[i];
	return NULL;
}

/* The entry that the mode's group bits stand for. */
static struct acl_entry *acl_class(struct acl *a)
{
	struct acl_entry *mask = acl_find(a, MASK);

	return mask ? mask : acl_find(a, GROUP_OBJ);
}

uint32_t acl_mode(struct acl *a)
{
	return (uint32_t)acl_find(a, USER_OBJ)->perm << 6 | (uint32_t)acl_class(a)->perm << 3 |
	       acl_find(a, OTHER)->perm;
}

bool acl_is_mode(const struct acl *a)
{
	return a->n == 3;
}

void acl_chmod(struct acl *a, uint32_t mode)
{
	acl_find(a, USER_OBJ)->perm = mode >> 6 & 7;
	acl_class(a)->perm = mode >> 3 & 7;
	acl_find(a, OTHER)->perm = mode & 7;
}

void acl_inherit(struct acl *a, uint32_t *mode)
{
	*mode &= acl_mode(a) | ~0777u;
	acl_chmod(a, *mode);
}

/* The mask limits all entries but those of the owner and of others. An entry for the caller's uid
 * decides. Else, of the entries for the caller's groups one must grant all wanted permissions. A
 * caller without such an entry is one of the others. */
bool acl_grants(const struct acl *a, uint32_t gid, const struct cred *c, int may)
{
	uint32_t want = (uint32_t)may & 7, mask = 7, others = 0;
	bool member = false, granted = false;

	for (uint32_t i = 0; i < a->n; i++) {
		if (a->e[i].tag == MASK)
			mask = a->e[i].perm;
		if (a->e[i].tag == OTHER)
			others = a->e[i].perm;
	}
	for (uint32_t i = 0; i < a->n; i++) {
		const struct acl_entry *e = &a->e[i];

		if (e->tag == USER && e->id == c->uid)
			return (want & ~(e->perm & mask)) == 0;
		if ((e->tag == GROUP_OBJ && cred_in_group(c, gid)) ||
		    (e->tag == GROUP && cred_in_group(c, e->id))) {
			member = true;
			granted |= (want & ~(e->perm & mask)) == 0;
		}
	}
	return member ? granted : (want & ~others) == 0;
}

/* ---- rows ---- */

int acl_load(const void *p, size_t len, struct acl *a)
{
	struct wire_bytes b = { (uint32_t)len, p };

	return acl_decode(&b, a) || acl_check(a) ? -EIO : 0;
}

int acl_read(const struct db *d, MDB_txn *txn, uint64_t ino, uint32_t which, struct acl *a)
{
	MDB_val v;
	int rc = marked_get(d, txn, ino, which, &v);

	return rc ? rc : acl_load(v.mv_data, v.mv_size, a);
}

int acl_put(struct apply *ap, struct node *n, uint32_t which, const struct acl *a)
{
	struct key k = marked_key(n->ino, which);
	uint8_t bytes[ACL_BYTES];

	n->i.has |= which;
	return row_put(&ap->m->db, ap->txn, T_XATTR, &k, bytes, acl_encode(a, bytes));
}

/* ---- inheritance ---- */

/* The default ACL of the directory in which this record creates an inode; a->n 0: none. A directory
 * on another server has sent its default ACL in the record. */
static int acl_of_parent(struct apply *ap, const struct node *dir, struct acl *a)
{
	int rc;

	a->n = 0;
	if (ap->rec->kind == PART_NEW) {
		rc = acl_decode(&ap->rec->data, a);
		return rc || !a->n ? rc : acl_check(a);
	}
	if (!(dir->i.has & HAS_DEFAULT_ACL))
		return 0;
	return acl_read(&ap->m->db, ap->txn, dir->ino, HAS_DEFAULT_ACL, a);
}

int inherit_mode(struct apply *ap, const struct node *dir, uint32_t type, uint32_t *mode,
		 uint32_t *has)
{
	struct acl a;
	int rc;

	*has = 0;
	if (type == S_IFLNK)
		return 0;
	rc = acl_of_parent(ap, dir, &a);
	if (rc)
		return rc;
	if (!a.n) {
		*mode &= ~(ap->rec->owner & 0777);
		return 0;
	}
	acl_inherit(&a, mode);
	*has = (acl_is_mode(&a) ? 0 : HAS_ACL) | (type == S_IFDIR ? HAS_DEFAULT_ACL : 0);
	return 0;
}

int inherit_put(struct apply *ap, const struct node *dir, struct node *n)
{
	uint32_t mode = n->i.mode;
	struct acl a;
	int rc;

	if (!n->i.has)
		return 0;
	rc = acl_of_parent(ap, dir, &a);
	if (!rc && (n->i.has & HAS_DEFAULT_ACL))
		rc = acl_put(ap, n, HAS_DEFAULT_ACL, &a);
	if (rc || !(n->i.has & HAS_ACL))
		return rc;
	acl_inherit(&a, &mode);
	return acl_put(ap, n, HAS_ACL, &a);
}
