/* The public interface: names, attributes, layouts and extended attributes, by handle and by path.
 *
 * Threads: any; each call takes the connection's lock through api_begin() (api.c). Buffers: results
 * are copied out before the operation is freed. Errors: -errno. */
#include <assert.h>
#include <fcntl.h>
#include <sys/xattr.h>

#include "client/api_impl.h"

/* Ends a stat-like operation. */
static int end_stat(struct sheaf *fs, struct cop *op, struct sheaf_handle *h, struct stat *st)
{
	int r;

	r = (int)api_wait(fs, op);
	if (!r && st)
		attr_to_stat(&op->attr, st);
	if (!r && h)
		*h = (struct sheaf_handle){ op->attr.ino, op->attr.gen };
	api_release(fs, op);
	return r;
}

/* ---- the handle layer ---- */

int sheaf_h_lookup(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		   const char *name, struct sheaf_handle *out, struct stat *st)
{
	struct cop *op = api_begin(fs, c);

	op->recorded_only = !st;
	client_lookup(op, dir, name);
	return end_stat(fs, op, out, st);
}

int api_stat(struct sheaf *fs, const char *path, struct sheaf_handle *h, struct stat *st)
{
	struct cop *op = api_begin(fs, NULL);

	op->recorded_only = !st;
	client_stat(op, sheaf_root(fs), path);
	return end_stat(fs, op, h, st);
}

int sheaf_h_getattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		    struct stat *st)
{
	struct cop *op = api_begin(fs, c);

	client_getattr(op, h);
	return end_stat(fs, op, NULL, st);
}

int sheaf_h_attr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		 struct sheaf_attr *a)
{
	struct cop *op;
	int r;

	if (a->size < sizeof(*a))
		return -EINVAL;
	op = api_begin(fs, c);
	client_getattr(op, h);
	r = (int)api_wait(fs, op);
	if (!r) {
		a->growing = op->attr.unsettled;
		a->change = op->attr.change;
		a->btime.tv_sec = op->attr.btime / (int64_t)NSEC_PER_SEC;
		a->btime.tv_nsec = op->attr.btime % (int64_t)NSEC_PER_SEC;
		attr_to_stat(&op->attr, &a->st);
	}
	api_release(fs, op);
	return r;
}

int sheaf_h_setattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		    unsigned which, const struct stat *in, struct stat *out)
{
	struct cop *op = api_begin(fs, c);
	int r;

	client_setattr(op, h, which, in);
	r = (int)api_finish(fs, op);
	return r || !out ? r : sheaf_h_getattr(fs, c, h, out);
}

/* ---- changes, and the directories after them ---- */

static __thread struct sheaf_dir_after after[2]; /* of this thread's last change */
static __thread int n_after;

void api_set_dirs_after(const struct wire_dirs_after *a)
{
	n_after = a ? (int)a->n_dirs : 0;
	for (int i = 0; i < n_after; i++) {
		after[i].dir = (struct sheaf_handle){ a->dirs[i].ino, a->dirs[i].gen };
		after[i].change = a->dirs[i].change;
		attr_to_stat(&a->dirs[i], &after[i].st);
	}
}

int sheaf_h_dir_after(struct sheaf_dir_after out[2])
{
	memcpy(out, after, (size_t)n_after * sizeof(*out));
	return n_after;
}

/* As api_begin(), for a change of names. */
static struct cop *begin_change(struct sheaf *fs, const struct sheaf_cred *c)
{
	api_set_dirs_after(NULL);
	return api_begin(fs, c);
}

static int end_change(struct sheaf *fs, struct cop *op)
{
	int r;

	r = (int)api_wait(fs, op);
	if (!r)
		api_set_dirs_after(&op->res.after);
	api_release(fs, op);
	return r;
}

/* Ends an operation that created an inode. */
static int end_made(struct sheaf *fs, struct cop *op, struct sheaf_handle *out, struct stat *st)
{
	int r;

	r = (int)api_wait(fs, op);
	if (!r && out)
		*out = (struct sheaf_handle){ op->res.made.at.ino, op->res.made.at.gen };
	if (!r && st)
		attr_to_stat(&op->res.made.at, st);
	if (!r)
		api_set_dirs_after(&op->res.made.after);
	api_release(fs, op);
	return r;
}

int sheaf_h_mkdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		  const char *name, mode_t mode, struct sheaf_handle *out, struct stat *st)
{
	struct cop *op = begin_change(fs, c);

	client_mkdir(op, dir, name, mode);
	return end_made(fs, op, out, st);
}

int sheaf_h_mknod(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		  const char *name, mode_t mode, dev_t dev, struct sheaf_handle *out,
		  struct stat *st)
{
	if (S_ISDIR(mode) || S_ISLNK(mode))
		return -EINVAL;
	return sheaf_h_create(fs, c, dir, name, NULL, 0,
			      &(struct stat){ .st_mode = mode, .st_rdev = dev }, out, st);
}

int sheaf_h_create(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		   const char *name, const char *target, unsigned which, const struct stat *in,
		   struct sheaf_handle *out, struct stat *st)
{
	mode_t mode = in->st_mode & S_IFMT ? in->st_mode : in->st_mode | S_IFREG;
	struct cop *op = begin_change(fs, c);

	op->set = (struct wire_new_attr){ .which = which,
					  .uid = in->st_uid,
					  .gid = in->st_gid,
					  .size = (uint64_t)in->st_size,
					  .atime = ns_of(in->st_atim),
					  .mtime = ns_of(in->st_mtim) };
	if (S_ISDIR(mode))
		client_mkdir(op, dir, name, mode);
	else if (S_ISLNK(mode))
		client_symlink(op, target ? target : "", dir, name);
	else
		client_mknod(op, dir, name, mode, S_ISREG(mode) ? 0 : in->st_rdev);
	return end_made(fs, op, out, st);
}

int sheaf_mknod(struct sheaf *fs, const char *path, mode_t mode, dev_t dev)
{
	return sheaf_h_mknod(fs, NULL, sheaf_root(fs), path, mode, dev, NULL, NULL);
}

int sheaf_h_symlink(struct sheaf *fs, const struct sheaf_cred *c, const char *target,
		    struct sheaf_handle dir, const char *name, struct sheaf_handle *out,
		    struct stat *st)
{
	struct cop *op = begin_change(fs, c);

	client_symlink(op, target, dir, name);
	return end_made(fs, op, out, st);
}

int sheaf_h_link(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		 struct sheaf_handle dir, const char *name, struct stat *st)
{
	struct cop *op = begin_change(fs, c);

	client_link(op, h, dir, name);
	return end_made(fs, op, NULL, st);
}

static ssize_t read_link(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			 const char *name, char *buf, size_t len)
{
	struct cop *op;
	ssize_t r;

	if (len == 0)
		return -EINVAL;
	op = api_begin(fs, c);
	client_readlink(op, dir, name);
	r = (ssize_t)api_wait(fs, op);
	if (!r) {
		r = (ssize_t)MIN(op->res.readlink.target.len, len);
		memcpy(buf, op->res.readlink.target.p, (size_t)r);
	}
	api_release(fs, op);
	return r;
}

ssize_t sheaf_h_readlink(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			 char *buf, size_t len)
{
	return read_link(fs, c, h, "", buf, len);
}

int sheaf_h_unlink(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		   const char *name)
{
	struct cop *op = begin_change(fs, c);

	client_unlink(op, dir, name);
	return end_change(fs, op);
}

int sheaf_h_rmdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		  const char *name)
{
	struct cop *op = begin_change(fs, c);

	client_rmdir(op, dir, name);
	return end_change(fs, op);
}

int sheaf_h_rename(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		   const char *name, struct sheaf_handle dir2, const char *name2, unsigned flags)
{
	struct cop *op = begin_change(fs, c);

	client_rename(op, dir, name, dir2, name2, flags);
	return end_change(fs, op);
}

int sheaf_h_truncate(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		     off_t size)
{
	struct cop *op;

	if (size < 0)
		return -EINVAL;
	op = api_begin(fs, c);
	client_truncate(op, h, (uint64_t)size);
	return (int)api_finish(fs, op);
}

/* ---- paths ---- */

int sheaf_stat(struct sheaf *fs, const char *path, struct stat *st)
{
	return api_stat(fs, path, NULL, st);
}

int sheaf_lstat(struct sheaf *fs, const char *path, struct stat *st)
{
	return sheaf_h_lookup(fs, NULL, sheaf_root(fs), path, NULL, st);
}

int sheaf_unlink(struct sheaf *fs, const char *path)
{
	return sheaf_h_unlink(fs, NULL, sheaf_root(fs), path);
}

int sheaf_mkdir(struct sheaf *fs, const char *path, mode_t mode)
{
	return sheaf_h_mkdir(fs, NULL, sheaf_root(fs), path, mode, NULL, NULL);
}

int sheaf_rmdir(struct sheaf *fs, const char *path)
{
	return sheaf_h_rmdir(fs, NULL, sheaf_root(fs), path);
}

int sheaf_rename(struct sheaf *fs, const char *from, const char *to)
{
	return sheaf_h_rename(fs, NULL, sheaf_root(fs), from, sheaf_root(fs), to, 0);
}

int sheaf_link(struct sheaf *fs, const char *old, const char *new)
{
	struct sheaf_handle h;
	int r = sheaf_h_lookup(fs, NULL, sheaf_root(fs), old, &h, NULL);

	return r ? r : sheaf_h_link(fs, NULL, h, sheaf_root(fs), new, NULL);
}

int sheaf_symlink(struct sheaf *fs, const char *target, const char *path)
{
	return sheaf_h_symlink(fs, NULL, target, sheaf_root(fs), path, NULL, NULL);
}

ssize_t sheaf_readlink(struct sheaf *fs, const char *path, char *buf, size_t len)
{
	return read_link(fs, NULL, sheaf_root(fs), path, buf, len);
}

int sheaf_truncate(struct sheaf *fs, const char *path, off_t size)
{
	struct sheaf_handle h;
	int r = api_stat(fs, path, &h, NULL);

	return r ? r : sheaf_h_truncate(fs, NULL, h, size);
}

static int set_at(struct sheaf *fs, const char *path, unsigned which, const struct stat *st)
{
	struct sheaf_handle h;
	int r = api_stat(fs, path, &h, NULL);

	return r ? r : sheaf_h_setattr(fs, NULL, h, which, st, NULL);
}

int sheaf_chmod(struct sheaf *fs, const char *path, mode_t mode)
{
	return set_at(fs, path, SHEAF_SET_MODE, &(struct stat){ .st_mode = mode });
}

int sheaf_chown(struct sheaf *fs, const char *path, uid_t uid, gid_t gid)
{
	unsigned which = (uid == (uid_t)-1 ? 0 : SHEAF_SET_UID) |
			 (gid == (gid_t)-1 ? 0 : SHEAF_SET_GID);

	return set_at(fs, path, which, &(struct stat){ .st_uid = uid, .st_gid = gid });
}

int sheaf_utimens(struct sheaf *fs, const char *path, const struct timespec ts[2])
{
	static const unsigned set[2] = { SHEAF_SET_ATIME, SHEAF_SET_MTIME };
	static const unsigned now[2] = { SHEAF_SET_ATIME_NOW, SHEAF_SET_MTIME_NOW };
	struct stat st = { 0 };
	unsigned which = 0;

	for (int i = 0; i < 2; i++) {
		if (!ts || ts[i].tv_nsec == UTIME_NOW)
			which |= now[i];
		else if (ts[i].tv_nsec != UTIME_OMIT)
			which |= set[i];
	}
	if (ts) {
		st.st_atim = ts[0];
		st.st_mtim = ts[1];
	}
	return which ? set_at(fs, path, which, &st) : 0;
}

/* ---- layouts ---- */

static void layout_info(const struct wire_getattr_res *r, struct sheaf_layout_info *l)
{
	l->stripe_unit = r->layout.unit;
	l->width = r->layout.n_targets;
	l->start = r->layout.start;
	l->bytes = r->at.size;
	l->growing = r->at.unsettled;
	memcpy(l->servers, r->layout.targets, l->width * sizeof(l->servers[0]));
}

int sheaf_h_layout(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		   struct sheaf_layout_info *l)
{
	struct cop *op;
	int r;

	if (l->size < sizeof(*l))
		return -EINVAL;
	op = api_begin(fs, c);
	client_layout(op, h);
	r = (int)api_wait(fs, op);
	if (!r && !op->res.getattr.layout.n_targets)
		r = -EINVAL;
	if (!r)
		layout_info(&op->res.getattr, l);
	api_release(fs, op);
	return r;
}

int sheaf_get_layout(struct sheaf *fs, const char *path, struct sheaf_layout_info *l)
{
	struct sheaf_handle h;
	int r = sheaf_h_lookup(fs, NULL, sheaf_root(fs), path, &h, NULL);

	return r ? r : sheaf_h_layout(fs, NULL, h, l);
}

/* ---- extended attributes ---- */

static_assert((int)XATTR_MUST_CREATE == XATTR_CREATE && (int)XATTR_MUST_REPLACE == XATTR_REPLACE,
	      "flags are those of setxattr(2)");

/* Ends an operation that asked for at most `size` bytes (0: only for their number). */
static ssize_t end_xattr(struct sheaf *fs, struct cop *op, void *out, size_t size)
{
	const struct wire_xattr_res *x = &op->res.xattr;
	ssize_t r;

	r = (ssize_t)api_wait(fs, op);
	if (!r && size && x->size > size)
		r = -ERANGE;
	else if (!r && size && x->data.len != x->size)
		r = -EBADMSG;
	if (!r) {
		r = (ssize_t)x->size;
		if (size && r)
			memcpy(out, x->data.p, x->size);
	}
	api_release(fs, op);
	return r;
}

ssize_t sheaf_h_getxattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			 const char *name, void *value, size_t size)
{
	struct cop *op;

	if (!strcmp(name, "sheaf.bank")) /* of this connection */
		return api_bank_text(fs, value, size);
	op = api_begin(fs, c);
	client_getxattr(op, h, name, size);
	return end_xattr(fs, op, value, size);
}

ssize_t sheaf_h_listxattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			  char *list, size_t size)
{
	struct cop *op = api_begin(fs, c);

	client_listxattr(op, h, size);
	return end_xattr(fs, op, list, size);
}

int sheaf_h_setxattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		     const char *name, const void *value, size_t size, int flags)
{
	struct cop *op = api_begin(fs, c);

	client_setxattr(op, h, name, value, size, flags);
	return (int)api_finish(fs, op);
}

int sheaf_h_removexattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			const char *name)
{
	struct cop *op = api_begin(fs, c);

	client_removexattr(op, h, name);
	return (int)api_finish(fs, op);
}

ssize_t sheaf_getxattr(struct sheaf *fs, const char *path, const char *name, void *value,
		       size_t size)
{
	struct sheaf_handle h;
	int r = api_stat(fs, path, &h, NULL);

	return r ? r : sheaf_h_getxattr(fs, NULL, h, name, value, size);
}

ssize_t sheaf_listxattr(struct sheaf *fs, const char *path, char *list, size_t size)
{
	struct sheaf_handle h;
	int r = api_stat(fs, path, &h, NULL);

	return r ? r : sheaf_h_listxattr(fs, NULL, h, list, size);
}

int sheaf_setxattr(struct sheaf *fs, const char *path, const char *name, const void *value,
		   size_t size, int flags)
{
	struct sheaf_handle h;
	int r = api_stat(fs, path, &h, NULL);

	return r ? r : sheaf_h_setxattr(fs, NULL, h, name, value, size, flags);
}

int sheaf_removexattr(struct sheaf *fs, const char *path, const char *name)
{
	struct sheaf_handle h;
	int r = api_stat(fs, path, &h, NULL);

	return r ? r : sheaf_h_removexattr(fs, NULL, h, name);
}
