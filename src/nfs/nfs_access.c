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

/* The bits rwx of the mode for the caller; root may execute only a file that has an x bit. */
static mode_t mode_bits(const struct nfs_call *c, const struct stat *st)
{
	if (c->uid == 0)
		return S_ISDIR(st->st_mode) || st->st_mode & 0111 ? 7 : 6;
	if (st->st_uid == c->uid)
		return st->st_mode >> 6 & 7;
	return (in_group(c, st->st_gid) ? st->st_mode >> 3 : st->st_mode) & 7;
}

uint32_t access_of_mode(const struct nfs_call *c, const struct stat *st)
{
	mode_t bits = mode_bits(c, st);
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

	return sheaf_h_getattr(c->g->fs, &c->cred, *h, &st) == 0 && st.st_uid == c->uid;
}

bool caller_executes(struct nfs_call *c, const struct sheaf_handle *h)
{
	struct stat st;

	return sheaf_h_getattr(c->g->fs, &c->cred, *h, &st) == 0 && S_ISREG(st.st_mode) &&
	       mode_bits(c, &st) & 1;
}
