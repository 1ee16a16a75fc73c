/* What the procedures of NFSv3 share: status codes, attributes, names. */
#include <sys/sysmacros.h>

#include "nfs/nfs_priv.h"

uint32_t nfs3_status_of(int r)
{
	static const struct {
		int err;
		uint32_t status;
	} table[] = {
		{ 0, NFS3_OK },
		{ EPERM, NFS3_EPERM },
		{ ENOENT, NFS3_ENOENT },
		{ EIO, NFS3_EIO },
		{ ENXIO, NFS3_ENXIO },
		{ EACCES, NFS3_EACCES },
		{ EEXIST, NFS3_EEXIST },
		{ EXDEV, NFS3_EXDEV },
		{ ENODEV, NFS3_ENODEV },
		{ ENOTDIR, NFS3_ENOTDIR },
		{ EISDIR, NFS3_EISDIR },
		{ EINVAL, NFS3_EINVAL },
		{ EFBIG, NFS3_EFBIG },
		{ EOVERFLOW, NFS3_EFBIG },
		{ ENOSPC, NFS3_ENOSPC },
		{ EROFS, NFS3_EROFS },
		{ EMLINK, NFS3_EMLINK },
		{ ENAMETOOLONG, NFS3_ENAMETOOLONG },
		{ ENOTEMPTY, NFS3_ENOTEMPTY },
		{ EDQUOT, NFS3_EDQUOT },
		{ ESTALE, NFS3_ESTALE },
		{ ELOOP, NFS3_EINVAL },
		{ EOPNOTSUPP, NFS3_ENOTSUPP },
	};

	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].err == -r)
			return table[i].status;
	/* no server answered, or there was no memory: the client tries again */
	return NFS3_EJUKEBOX;
}

static uint32_t type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return NFS3_DIR;
	case S_IFLNK:
		return NFS3_LNK;
	case S_IFBLK:
		return NFS3_BLK;
	case S_IFCHR:
		return NFS3_CHR;
	case S_IFSOCK:
		return NFS3_SOCK;
	case S_IFIFO:
		return NFS3_FIFO;
	default:
		return NFS3_REG;
	}
}

static struct wire_time3 time_of(const struct timespec *t)
{
	return (struct wire_time3){ (uint32_t)t->tv_sec, (uint32_t)t->tv_nsec };
}

void attr3_of(const struct gateway *g, const struct stat *st, struct wire_attr3 *a)
{
	*a = (struct wire_attr3){
		.type = type_of(st->st_mode),
		.mode = st->st_mode & 07777,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.used = (uint64_t)st->st_blocks * 512,
		.device = { major(st->st_rdev), minor(st->st_rdev) },
		.fsid = g->fsid,
		.fileid = st->st_ino,
		.atime = time_of(&st->st_atim),
		.mtime = time_of(&st->st_mtim),
		.ctime = time_of(&st->st_ctim),
	};
}

struct wire_attr3 *attr3_copy(struct nfs_call *c, const struct stat *st)
{
	struct wire_attr3 *a = call_alloc(c, sizeof(*a));

	if (a)
		attr3_of(c->g, st, a);
	return a;
}

int attr3_ask(struct nfs_call *c, const struct sheaf_handle *h, struct stat *st)
{
	struct sheaf_attr a = { .size = sizeof(a) };
	int r = sheaf_h_attr(c->fs, &c->cred, *h, &a);

	if (!r)
		*st = a.st;
	if (!r && S_ISDIR(a.st.st_mode))
		dir3_seen(c->g, h->ino, a.change, &a.st);
	return r;
}

struct wire_attr3 *attr3_get(struct nfs_call *c, const struct sheaf_handle *h)
{
	struct stat st;

	return attr3_ask(c, h, &st) ? NULL : attr3_copy(c, &st);
}

uint32_t name3_copy(const struct wire_bytes *n, char out[NAME_BUF])
{
	if (n->len > NFS3_NAME_MAX)
		return NFS3_ENAMETOOLONG;
	if (n->len == 0 || memchr(n->p, '/', n->len) || memchr(n->p, 0, n->len))
		return NFS3_EACCES;
	memcpy(out, n->p, n->len);
	out[n->len] = 0;
	return NFS3_OK;
}

/* ---- new attributes ---- */

static unsigned set_time(const struct wire_new_time3 *t, struct timespec *out, unsigned given,
			 unsigned now)
{
	if (t->how == TIME3_CLIENT)
		*out = (struct timespec){ t->time.seconds, (long)t->time.nanoseconds };
	return t->how == TIME3_CLIENT ? given : t->how == TIME3_SERVER ? now : 0;
}

unsigned set3_of(const struct wire_new_attr3 *a, struct stat *st)
{
	unsigned which = 0;

	memset(st, 0, sizeof(*st));
	if (a->mode) {
		which |= SHEAF_SET_MODE;
		st->st_mode = *a->mode & 07777;
	}
	if (a->uid) {
		which |= SHEAF_SET_UID;
		st->st_uid = *a->uid;
	}
	if (a->gid) {
		which |= SHEAF_SET_GID;
		st->st_gid = *a->gid;
	}
	which |= set_time(&a->atime, &st->st_atim, SHEAF_SET_ATIME, SHEAF_SET_ATIME_NOW);
	return which | set_time(&a->mtime, &st->st_mtim, SHEAF_SET_MTIME, SHEAF_SET_MTIME_NOW);
}

static int truncate_for(struct nfs_call *c, const struct sheaf_handle *h, uint64_t size)
{
	struct sheaf_cred root = cred_gateway;
	int r;

	root.call_id = c->cred.call_id;
	if (size > INT64_MAX)
		return -EFBIG;
	r = sheaf_h_truncate(c->fs, &c->cred, *h, (off_t)size);
	if (r == -EACCES && caller_owns(c, h))
		r = sheaf_h_truncate(c->fs, &root, *h, (off_t)size);
	return r;
}

int set3_apply(struct nfs_call *c, const struct sheaf_handle *h, const struct wire_new_attr3 *a,
	       struct stat *out)
{
	struct stat in;
	unsigned which = set3_of(a, &in);
	int r = a->size ? truncate_for(c, h, *a->size) : 0;

	/* A new size sets mtime itself; to set it alone, the caller would have to be the owner. */
	if (a->size)
		which &= ~(unsigned)SHEAF_SET_MTIME_NOW;
	if (!r && which)
		r = sheaf_h_setattr(c->fs, &c->cred, *h, which, &in, out);
	if (!r && !which)
		r = sheaf_h_getattr(c->fs, &c->cred, *h, out);
	return r;
}
