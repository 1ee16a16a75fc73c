/* What a caller may do, as far as the gateway decides it: the answers of ACCESS, and the cases in
 * which NFS permits more than POSIX. Everything else the servers decide. */
#include "nfs/nfs_priv.h"

static bool in_group(const struct nfs_call *c, uint32_t gid)
{
	for (uint32_t i = 0; i < c->n_gids; i++)
		if (c->gids[i] == gid)
			return true;
	return c->gid == gid;
}

/* ---- access control lists, as system.posix_acl_access has them (acl(5)) ---- */

#define ACL_HEAD 4
#define ACL_SIZE_MAX (64 * KIB)
enum { ACL_USER = 2, ACL_GROUP_OBJ = 4, ACL_GROUP = 8, ACL_MASK = 16, ACL_OTHER = 32 };

struct acl_entry { /* little-endian */
	uint16_t tag, bits;
	uint32_t id;
};

/* Reads the list of an inode to the call's arena: the number of entries, or -errno. */
static ssize_t acl_read(struct nfs_call *c, const struct sheaf_handle *h,
			const struct acl_entry **out)
{
	uint8_t *list = call_alloc(c, ACL_SIZE_MAX);
	ssize_t n = list ? sheaf_h_getxattr(c->fs, &cred_gateway, *h, "system.posix_acl_access",
					    list, ACL_SIZE_MAX) :
			   -ENOMEM;

	if (n < ACL_HEAD)
		return n < 0 ? n : -EIO;
	*out = (const struct acl_entry *)(const void *)(list + ACL_HEAD);
	return (n - ACL_HEAD) / (ssize_t)sizeof(**out);
}

/* The permission bits of a user that does not own the file: those of the entry for that user, else
 * those of all entries for the user's groups, both limited by the mask, else those for others. */
static mode_t acl_bits(const struct nfs_call *c, const struct stat *st, const struct acl_entry *e,
		       size_t n)
{
	mode_t user = 0, group = 0, mask = 7, other = 0;
	bool is_user = false, is_group = false;

	for (size_t i = 0; i < n; i++) {
		unsigned tag = le16toh(e[i].tag);
		mode_t bits = le16toh(e[i].bits) & 7;
		uint32_t id = le32toh(e[i].id);

		if (tag == ACL_USER && id == c->uid) {
			is_user = true;
			user = bits;
		} else if ((tag == ACL_GROUP_OBJ && in_group(c, st->st_gid)) ||
			   (tag == ACL_GROUP && in_group(c, id))) {
			is_group = true;
			group |= bits;
		} else if (tag == ACL_MASK) {
			mask = bits;
		} else if (tag == ACL_OTHER) {
			other = bits;
		}
	}
	return is_user ? user & mask : is_group ? group & mask : other;
}

/* ---- the caller ---- */

/* The bits rwx of an inode for the caller; root may execute only a file that has an x bit. */
static mode_t bits_of(struct nfs_call *c, const struct sheaf_handle *h, const struct stat *st)
{
	const struct acl_entry *e;
	ssize_t n;

	if (c->uid == 0)
		return S_ISDIR(st->st_mode) || st->st_mode & 0111 ? 7 : 6;
	if (st->st_uid == c->uid)
		return st->st_mode >> 6 & 7;
	n = S_ISLNK(st->st_mode) ? -ENODATA : acl_read(c, h, &e);
	if (n > 0)
		return acl_bits(c, st, e, (size_t)n);
	return (in_group(c, st->st_gid) ? st->st_mode >> 3 : st->st_mode) & 7;
}

uint32_t access_of(struct nfs_call *c, const struct sheaf_handle *h, const struct stat *st)
{
	mode_t bits = bits_of(c, h, st);
	bool dir = S_ISDIR(st->st_mode);
	uint32_t may = 0;

	if (bits & 4)
		may |= ACCESS3_READ;
	if (bits & 2)
		may |= ACCESS3_MODIFY | ACCESS3_EXTEND | (dir ? ACCESS3_DELETE : 0);
	if (bits & 1)
		may |= dir ? ACCESS3_LOOKUP : ACCESS3_EXECUTE;
	if (c->export->ro)
		may &= ~(uint32_t)(ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE);
	return may;
}

bool caller_owns(struct nfs_call *c, const struct sheaf_handle *h)
{
	struct stat st;

	return sheaf_h_getattr(c->fs, &c->cred, *h, &st) == 0 && st.st_uid == c->uid;
}

bool caller_executes(struct nfs_call *c, const struct sheaf_handle *h)
{
	struct stat st;

	return sheaf_h_getattr(c->fs, &c->cred, *h, &st) == 0 && S_ISREG(st.st_mode) &&
	       bits_of(c, h, &st) & 1;
}
