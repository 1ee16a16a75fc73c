/* CREATE, MKDIR, SYMLINK, MKNOD.
 *
 * An exclusive CREATE keeps its verifier in the times of the new file, as other servers do: a
 * repeated call finds them and succeeds. The client sets real times afterwards. */
#include <sys/sysmacros.h>

#include "nfs/nfs_priv.h"

struct making {
	struct sheaf_handle dir, made;
	char name[NAME_BUF];
	struct stat st;
	uint32_t status;
};

static void begin(struct nfs_call *c, const struct wire_place3 *where, struct making *m)
{
	m->status = handle_enter(c, &where->dir, &m->dir);
	if (m->status == NFS3_OK && c->export->ro)
		m->status = NFS3_EROFS;
	if (m->status == NFS3_OK)
		m->status = name3_copy(&where->name, m->name);
	if (m->status == NFS3_OK && (strcmp(m->name, ".") == 0 || strcmp(m->name, "..") == 0))
		m->status = NFS3_EEXIST;
}

/* Fills the result; `r` is that of the change, 0 or -errno. */
static void end(struct nfs_call *c, struct making *m, int r)
{
	struct wire_create3_res *res = c->res;
	struct wire_handle3_there *there = call_alloc(c, sizeof(*there));

	if (m->status == NFS3_OK)
		m->status = nfs3_status_of(r);
	res->status = m->status;
	c->failed = m->status;
	if (m->status != NFS3_OK)
		return;
	dir3_changed(c, &m->dir, &res->created.dir);
	res->created.attributes = attr3_copy(c, &m->st);
	if (there && handle_make(c, &m->made, &there->object))
		res->created.object = there;
}

static mode_t mode_of(const struct wire_new_attr3 *a, mode_t otherwise)
{
	return a->mode ? *a->mode & 07777 : otherwise;
}

/* What a new inode gets besides its mode and what it has already (SHEAF_SET_ATIME, _MTIME). The
 * directory's state is remembered first. */
static int finish(struct nfs_call *c, struct making *m, const struct wire_new_attr3 *a,
		  unsigned has)
{
	struct wire_new_attr3 rest = *a;
	struct stat unused;

	rest.mode = NULL;
	if (rest.size && *rest.size == 0)
		rest.size = NULL;
	if (rest.uid && *rest.uid == m->st.st_uid)
		rest.uid = NULL;
	if (rest.gid && *rest.gid == m->st.st_gid)
		rest.gid = NULL;
	if (has & SHEAF_SET_ATIME)
		rest.atime.how = TIME3_KEEP;
	if (has & SHEAF_SET_MTIME)
		rest.mtime.how = TIME3_KEEP;
	return rest.size || set3_of(&rest, &unused) ? set3_apply(c, &m->made, &rest, &m->st) : 0;
}

/* A regular file, with its mode and the times that a client sets. */
static int make_file(struct nfs_call *c, struct making *m, unsigned which, const struct stat *in)
{
	return sheaf_h_create(c->fs, &c->cred, m->dir, m->name, which, in, &m->made, &m->st);
}

/* ---- CREATE ---- */

/* The name exists: that is no error, and a size is set. */
static int take_existing(struct nfs_call *c, struct making *m, const struct wire_new_attr3 *a)
{
	struct wire_new_attr3 size = { .size = a->size };
	int r = sheaf_h_lookup(c->fs, &c->cred, m->dir, m->name, &m->made, &m->st);

	if (r)
		return r;
	if (!S_ISREG(m->st.st_mode))
		return -EEXIST;
	return a->size ? set3_apply(c, &m->made, &size, &m->st) : 0;
}

/* Times hold 31 bits of each half of the verifier for certain. */
static void times_of(const uint8_t verifier[8], struct stat *st)
{
	uint32_t half[2];

	memcpy(half, verifier, sizeof(half));
	st->st_atim = (struct timespec){ half[0] & 0x7fffffff, 0 };
	st->st_mtim = (struct timespec){ half[1] & 0x7fffffff, 0 };
}

static int make_exclusive(struct nfs_call *c, struct making *m, const uint8_t verifier[8])
{
	struct stat times = { 0 };
	int r;

	times_of(verifier, &times);
	r = make_file(c, m, SHEAF_SET_ATIME | SHEAF_SET_MTIME, &times);
	if (r != -EEXIST)
		return r;
	r = sheaf_h_lookup(c->fs, &c->cred, m->dir, m->name, &m->made, &m->st);
	if (r)
		return r;
	return S_ISREG(m->st.st_mode) && m->st.st_atim.tv_sec == times.st_atim.tv_sec &&
			       m->st.st_mtim.tv_sec == times.st_mtim.tv_sec &&
			       !m->st.st_atim.tv_nsec && !m->st.st_mtim.tv_nsec ?
		       0 :
		       -EEXIST;
}

void nfs3_create(struct nfs_call *c)
{
	const struct wire_create3_args *a = c->args;
	const struct wire_new_attr3 *new = &a->how.unchecked; /* of both ways that have them */
	struct making m;
	struct stat in;
	unsigned which;
	int r = 0;

	begin(c, &a->where, &m);
	if (m.status == NFS3_OK && a->how.mode == CREATE3_EXCLUSIVE) {
		r = make_exclusive(c, &m, a->how.verifier);
	} else if (m.status == NFS3_OK) {
		which = set3_of(new, &in);
		in.st_mode = mode_of(new, 0644);
		r = make_file(c, &m, which, &in);
		if (!r)
			r = finish(c, &m, new, which);
		else if (r == -EEXIST && a->how.mode == CREATE3_UNCHECKED)
			r = take_existing(c, &m, new);
	}
	end(c, &m, r);
}

/* ---- the others ---- */

void nfs3_mkdir(struct nfs_call *c)
{
	const struct wire_mkdir3_args *a = c->args;
	struct making m;
	int r = 0;

	begin(c, &a->where, &m);
	if (m.status == NFS3_OK)
		r = sheaf_h_mkdir(c->fs, &c->cred, m.dir, m.name, mode_of(&a->attributes, 0755),
				  &m.made, &m.st);
	if (m.status == NFS3_OK && !r)
		r = finish(c, &m, &a->attributes, 0);
	end(c, &m, r);
}

void nfs3_symlink(struct nfs_call *c)
{
	const struct wire_symlink3_args *a = c->args;
	char *target = call_alloc(c, a->target.len + 1);
	struct making m;
	int r = target ? 0 : -ENOMEM;

	begin(c, &a->where, &m);
	if (m.status == NFS3_OK && (a->target.len == 0 || memchr(a->target.p, 0, a->target.len)))
		m.status = NFS3_EINVAL;
	if (m.status == NFS3_OK && !r) {
		memcpy(target, a->target.p, a->target.len);
		r = sheaf_h_symlink(c->fs, &c->cred, target, m.dir, m.name, &m.made, &m.st);
	}
	end(c, &m, r);
}

void nfs3_mknod(struct nfs_call *c)
{
	static const mode_t types[] = {
		[NFS3_BLK] = S_IFBLK, [NFS3_CHR] = S_IFCHR, [NFS3_SOCK] = S_IFSOCK, [NFS3_FIFO] = S_IFIFO
	};
	const struct wire_mknod3_args *a = c->args;
	const struct wire_new_attr3 *new = &a->what.special.attributes;
	struct making m;
	dev_t dev = 0;
	int r = 0;

	begin(c, &a->where, &m);
	if (a->what.type == NFS3_CHR || a->what.type == NFS3_BLK) {
		new = &a->what.device.attributes;
		dev = makedev(a->what.device.device.major, a->what.device.device.minor);
	}
	if (m.status == NFS3_OK && (a->what.type >= ARRAY_LEN(types) || !types[a->what.type]))
		m.status = NFS3_EBADTYPE;
	if (m.status == NFS3_OK)
		r = sheaf_h_mknod(c->fs, &c->cred, m.dir, m.name,
				  types[a->what.type] | mode_of(new, 0644), dev, &m.made, &m.st);
	if (m.status == NFS3_OK && !r)
		r = finish(c, &m, new, 0);
	end(c, &m, r);
}
