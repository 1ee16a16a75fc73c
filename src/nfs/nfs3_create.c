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

/* Only root chooses an owner, and others one of their groups: a client sends those of its root also
 * when that is squashed here. Other ones are ignored, as by the NFS server of Linux. */
static unsigned owner_of(const struct nfs_call *c, const struct stat *in)
{
	bool is_member = in->st_gid == c->gid;

	if (c->uid == 0)
		return SHEAF_SET_UID | SHEAF_SET_GID;
	for (uint32_t i = 0; i < c->n_gids && !is_member; i++)
		is_member = in->st_gid == c->gids[i];
	return is_member ? SHEAF_SET_GID : 0;
}

/* Makes an inode of this type, with all attributes that the client chose, in one transaction. Times
 * of the server are those that it has anyway. */
static int make(struct nfs_call *c, struct making *m, mode_t type, const struct wire_new_attr3 *a,
		dev_t dev, const char *target)
{
	struct stat in;
	unsigned which = set3_of(a, &in);

	which &= owner_of(c, &in) | SHEAF_SET_ATIME | SHEAF_SET_MTIME;
	in.st_mode = type | mode_of(a, S_ISDIR(type) ? 0755 : 0644);
	in.st_rdev = dev;
	if (S_ISREG(type) && a->size) {
		if (*a->size > INT64_MAX)
			return -EFBIG;
		which |= SHEAF_SET_SIZE;
		in.st_size = (off_t)*a->size;
	}
	return sheaf_h_create(c->fs, &c->cred, m->dir, m->name, target, which, &in, &m->made,
			      &m->st);
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
static struct wire_new_time3 time_of(const uint8_t half[4])
{
	uint32_t n;

	memcpy(&n, half, sizeof(n));
	return (struct wire_new_time3){ .how = TIME3_CLIENT, .time = { n & 0x7fffffff, 0 } };
}

static bool is_time(const struct timespec *t, const struct wire_new_time3 *of)
{
	return t->tv_sec == (time_t)of->time.seconds && !t->tv_nsec;
}

static int make_exclusive(struct nfs_call *c, struct making *m, const uint8_t verifier[8])
{
	const struct wire_new_attr3 times = { .atime = time_of(verifier),
					      .mtime = time_of(verifier + 4) };
	int r = make(c, m, S_IFREG, &times, 0, NULL);

	if (r != -EEXIST)
		return r;
	r = sheaf_h_lookup(c->fs, &c->cred, m->dir, m->name, &m->made, &m->st);
	if (r)
		return r;
	return S_ISREG(m->st.st_mode) && is_time(&m->st.st_atim, &times.atime) &&
			       is_time(&m->st.st_mtim, &times.mtime) ?
		       0 :
		       -EEXIST;
}

void nfs3_create(struct nfs_call *c)
{
	const struct wire_create3_args *a = c->args;
	const struct wire_new_attr3 *new = &a->how.unchecked; /* of both ways that have them */
	struct making m;
	int r = 0;

	begin(c, &a->where, &m);
	if (m.status == NFS3_OK && a->how.mode == CREATE3_EXCLUSIVE) {
		r = make_exclusive(c, &m, a->how.verifier);
	} else if (m.status == NFS3_OK) {
		r = make(c, &m, S_IFREG, new, 0, NULL);
		if (r == -EEXIST && a->how.mode == CREATE3_UNCHECKED)
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
		r = make(c, &m, S_IFDIR, &a->attributes, 0, NULL);
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
		r = make(c, &m, S_IFLNK, &a->attributes, 0, target);
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
		r = make(c, &m, types[a->what.type], new, dev, NULL);
	end(c, &m, r);
}
