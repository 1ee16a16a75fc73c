/* Requests about names, attributes and extended attributes. Each is one call of the handle layer
 * and one answer.
 *
 * The kernel uses the file system's own inode numbers. They are never reused, so there is nothing
 * to look up and nothing to forget, and they mean the same to a successor of this daemon. */
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "mount/mount_priv.h"

void entry_of(struct mount *m, const struct stat *st, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){
		.ino = st->st_ino, .generation = SHEAF_GEN, .attr = *st, .attr_timeout = m->o.attr_s
	};
	/* Other entries get no timeout: the last component of a path is looked up each time, so
	 * that changes by other clients are seen at once. */
	if (S_ISDIR(st->st_mode)) {
		e->entry_timeout = m->o.entry_s;
		if (dir_is_changing(m, st->st_ino))
			e->attr_timeout = 0;
		dir_forget(m, st->st_ino);
		dir_note_asked(m, st->st_ino);
	}
}

/* Answers with r, or with the entry for an inode. grows: its attributes are not cached. */
static void answer_entry(struct worker *w, int r, const struct stat *st, bool grows)
{
	struct fuse_entry_param e;
	fuse_req_t req;

	if (!r)
		entry_of(w->m, st, &e);
	if (grows)
		e.attr_timeout = 0;
	req = req_take_result(w, r);
	if (req)
		fuse_reply_entry(req, &e);
}

void op_lookup(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	struct worker *w = req_begin(req);
	uint64_t n_answered = w->m->n_answered;
	struct sheaf_handle h;
	struct caller c;
	struct stat st;
	int r;

	w->is_lookup = true;
	caller_init(&c, w);
	do
		r = sheaf_h_lookup(w->m->fs, &c.cred, handle_of(dir), name, &h, &st);
	while (caller_should_retry(&c, r));
	if (!r && h.gen != SHEAF_GEN)
		r = -ESTALE;
	if (!r)
		lookup_memo_put(w, n_answered, &st);
	answer_entry(w, r, &st, false);
}

static void answer_attr(struct worker *w, int r, const struct stat *st, double timeout)
{
	fuse_req_t req = req_take_result(w, r);

	if (req)
		fuse_reply_attr(req, st, timeout);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	double timeout = w->m->o.attr_s;
	struct stat st;
	int r = 0;

	(void)fi;
	w->is_lookup = true;
	dir_note_asked(w->m, ino);
	if (!lookup_memo_take(w, ino, &st) && !dir_known(w->m, ino, &st, &timeout)) {
		r = sheaf_h_getattr(w->m->fs, NULL, handle_of(ino), &st);
		if (r == -ENOENT) /* the inode is gone, not the name */
			r = -ESTALE;
		if (r == -ESTALE && dir_last_known(w->m, ino, &st))
			r = 0;
		if (!r && S_ISDIR(st.st_mode))
			dir_forget(w->m, ino);
	}
	answer_attr(w, r, &st, timeout);
}

/* ---- setattr ---- */

static unsigned which_of(int set)
{
	static const struct {
		int fuse;
		unsigned ours;
	} table[] = {
		{ FUSE_SET_ATTR_MODE, SHEAF_SET_MODE },
		{ FUSE_SET_ATTR_UID, SHEAF_SET_UID },
		{ FUSE_SET_ATTR_GID, SHEAF_SET_GID },
	};
	unsigned which = 0;

	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (set & table[i].fuse)
			which |= table[i].ours;
	if (set & FUSE_SET_ATTR_ATIME_NOW)
		which |= SHEAF_SET_ATIME_NOW;
	else if (set & FUSE_SET_ATTR_ATIME)
		which |= SHEAF_SET_ATIME;
	if (set & FUSE_SET_ATTR_MTIME_NOW)
		which |= SHEAF_SET_MTIME_NOW;
	else if (set & FUSE_SET_ATTR_MTIME)
		which |= SHEAF_SET_MTIME;
	return which;
}

/* True if the request only clears set-id bits: the kernel does it for any writer, owner or not. */
static bool only_drops_setid(struct mount *m, fuse_ino_t ino, unsigned which, mode_t mode)
{
	struct stat st;

	if (which != SHEAF_SET_MODE || sheaf_h_getattr(m->fs, NULL, handle_of(ino), &st))
		return false;
	return ((st.st_mode ^ mode) & 07777 & ~(mode_t)(S_ISUID | S_ISGID)) == 0 &&
	       (mode & ~st.st_mode & (S_ISUID | S_ISGID)) == 0;
}

static int set_size(struct worker *w, struct caller *c, fuse_ino_t ino, off_t size,
		    struct fuse_file_info *fi)
{
	struct mfile *f = fi ? file_get(w->m, fi->fh) : NULL;
	int r;

	if (f && (f->flags & O_ACCMODE) != O_RDONLY) {
		r = sheaf_ftruncate(f->f, size);
	} else {
		do
			r = sheaf_h_truncate(w->m->fs, &c->cred, handle_of(ino), size);
		while (caller_should_retry(c, r));
	}
	if (f)
		file_put(w->m, f);
	return r;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *in, int set, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct dir_change d = dirs_begin(w->m, ino, 0, false);
	unsigned which = which_of(set);
	struct caller c;
	struct stat st;
	int r = 0;

	caller_init(&c, w);
	if ((set & FUSE_SET_ATTR_MODE) && (in->st_mode & S_ISGID))
		caller_groups(&c); /* without them the server silently drops the bit */
	if (set & FUSE_SET_ATTR_SIZE) {
		r = worker_begin_change(w, ino, true) ? set_size(w, &c, ino, in->st_size, fi) :
							-EINTR;
	}
	if (which & SHEAF_SET_MTIME)
		files_await_close(w, ino);
	if (!r && which) {
		do
			r = sheaf_h_setattr(w->m->fs, &c.cred, handle_of(ino), which, in, NULL);
		while (caller_should_retry(&c, r));
		if (r == -EPERM && w->m->o.writeback && fi &&
		    which == SHEAF_SET_MTIME) /* by the kernel, for a writer */
			r = sheaf_h_setattr(w->m->fs, NULL, handle_of(ino), which, in, NULL);
		if (r == -EPERM && only_drops_setid(w->m, ino, which, in->st_mode))
			r = sheaf_h_setattr(w->m->fs, &cred_root, handle_of(ino), which, in, NULL);
	}
	if (!r)
		r = sheaf_h_getattr(w->m->fs, NULL, handle_of(ino), &st);
	dirs_end(w->m, &d, false);
	answer_attr(w, r, &st, w->m->o.attr_s);
}

/* ---- names ---- */

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct worker *w = req_begin(req);
	char text[PATH_MAX + 1];
	struct stat st;
	ssize_t n = sheaf_h_readlink(w->m->fs, NULL, handle_of(ino), text, PATH_MAX);

	text[MAX(n, 0)] = 0;
	if (n >= 0 && w->m->o.atime != ATIME_NEVER &&
	    sheaf_h_getattr(w->m->fs, NULL, handle_of(ino), &st) == 0 &&
	    wants_atime(w->m, &st, O_RDONLY))
		inode_set_atime(w->m, ino); /* not often: the kernel caches the text */
	req = req_take_result(w, n);
	if (req)
		fuse_reply_readlink(req, text);
}

/* Creates what the mode says. target: of a symbolic link. */
static void make(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t rdev,
		 const char *target)
{
	struct worker *w = req_begin(req);
	struct dir_change d = dirs_begin(w->m, dir, 0, false);
	struct sheaf_handle h = handle_of(dir);
	struct sheaf *fs = w->m->fs;
	struct caller c;
	struct stat st;
	int r;

	caller_init(&c, w);
	if (mode & S_ISGID)
		caller_groups(&c);
	do
		r = S_ISDIR(mode) ? sheaf_h_mkdir(fs, &c.cred, h, name, mode, NULL, &st) :
		    S_ISLNK(mode) ? sheaf_h_symlink(fs, &c.cred, target, h, name, NULL, &st) :
				    sheaf_h_mknod(fs, &c.cred, h, name, mode, rdev, NULL, &st);
	while (caller_should_retry(&c, r));
	dirs_end(w->m, &d, !r);
	answer_entry(w, r, &st, false);
}

void op_mknod(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t rdev)
{
	make(req, dir, name, mode, rdev, NULL);
}

void op_mkdir(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode)
{
	make(req, dir, name, S_IFDIR | mode, 0, NULL);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t dir, const char *name)
{
	make(req, dir, name, S_IFLNK, 0, target);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t dir, const char *name)
{
	struct worker *w = req_begin(req);
	struct dir_change d = dirs_begin(w->m, dir, 0, false);
	struct caller c;
	struct stat st;
	int r;

	caller_init(&c, w);
	do
		r = sheaf_h_link(w->m->fs, &c.cred, handle_of(ino), handle_of(dir), name, &st);
	while (caller_should_retry(&c, r));
	dirs_end(w->m, &d, !r);
	answer_entry(w, r, &st, true);
}

static void remove_name(fuse_req_t req, fuse_ino_t dir, const char *name, bool is_dir)
{
	struct worker *w = req_begin(req);
	struct dir_change d = dirs_begin(w->m, dir, 0, is_dir);
	struct sheaf_handle h = handle_of(dir);
	struct caller c;
	int r;

	caller_init(&c, w);
	do
		r = is_dir ? sheaf_h_rmdir(w->m->fs, &c.cred, h, name) :
			     sheaf_h_unlink(w->m->fs, &c.cred, h, name);
	while (caller_should_retry(&c, r));
	dirs_end(w->m, &d, !r);
	req_answer(w, r);
}

void op_unlink(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	remove_name(req, dir, name, false);
}

void op_rmdir(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	remove_name(req, dir, name, true);
}

void op_rename(fuse_req_t req, fuse_ino_t dir, const char *name, fuse_ino_t dir2, const char *name2,
	       unsigned flags)
{
	struct worker *w = req_begin(req);
	struct dir_change d = dirs_begin(w->m, dir, dir2, true);
	struct caller c;
	int r;

	caller_init(&c, w);
	do
		r = sheaf_h_rename(w->m->fs, &c.cred, handle_of(dir), name, handle_of(dir2), name2,
				   flags);
	while (caller_should_retry(&c, r));
	dirs_end(w->m, &d, !r);
	req_answer(w, r);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct worker *w = req_begin(req);
	struct statvfs st;
	int r = sheaf_statfs(w->m->fs, &st);

	(void)ino;
	req = req_take_result(w, r);
	if (req)
		fuse_reply_statfs(req, &st);
}

/* ---- extended attributes ---- */

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct worker *w = req_begin(req);
	struct dir_change d = dirs_begin(w->m, ino, 0, false);
	struct caller c;
	int r;

	caller_init(&c, w);
	if (strcmp(name, "system.posix_acl_access") == 0)
		caller_groups(&c); /* without them the server silently drops set-gid */
	do
		r = sheaf_h_setxattr(w->m->fs, &c.cred, handle_of(ino), name, value, size, flags);
	while (caller_should_retry(&c, r));
	hint_has(w->m, ino, name); /* also if the outcome is unknown */
	dirs_end(w->m, &d, false);
	req_answer(w, r);
}

/* Answers with n bytes of buf, or with the size if the caller asked only for that. */
static void answer_xattr(struct worker *w, ssize_t n, const char *buf, size_t size)
{
	fuse_req_t req = req_take_result(w, n);

	if (req && size)
		fuse_reply_buf(req, buf, (size_t)n);
	else if (req)
		fuse_reply_xattr(req, (size_t)n);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct worker *w = req_begin(req);
	uint64_t sets = w->m->n_xattr_sets;
	char *buf = worker_out(w);
	struct caller c;
	ssize_t n;

	if (hint_lacks(w->m, ino, name)) {
		req_answer(w, -ENODATA);
		return;
	}
	caller_init(&c, w);
	do
		n = sheaf_h_getxattr(w->m->fs, &c.cred, handle_of(ino), name, buf,
				     MIN(size, REQUEST_MAX));
	while (caller_should_retry(&c, (int)n));
	if (n == -ENODATA)
		hint_set_lacks(w->m, ino, name, sets);
	answer_xattr(w, n, buf, size);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct worker *w = req_begin(req);
	char *buf = worker_out(w);
	struct caller c;
	ssize_t n;

	caller_init(&c, w);
	n = sheaf_h_listxattr(w->m->fs, &c.cred, handle_of(ino), buf, MIN(size, REQUEST_MAX));
	answer_xattr(w, n, buf, size);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct worker *w = req_begin(req);
	struct dir_change d = dirs_begin(w->m, ino, 0, false);
	struct caller c;
	int r;

	caller_init(&c, w);
	do
		r = sheaf_h_removexattr(w->m->fs, &c.cred, handle_of(ino), name);
	while (caller_should_retry(&c, r));
	dirs_end(w->m, &d, false);
	req_answer(w, r);
}
