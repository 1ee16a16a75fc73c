/* The expected result of an operation on names. It is known beforehand, down to the errno, since
 * the operations of one client in its own directories do not overlap. */
#include <fcntl.h>
#include <sys/xattr.h>

#include "sim_world.h"

static bool empty(const struct mdir *d)
{
	for (int i = 0; i < N_NAMES; i++)
		if (d->files[i])
			return false;
	return !d->link;
}

static int expect_open(const struct op *op)
{
	const struct mdir *d = &op->a->dirs[op->dir];
	const struct mfile *f = d->files[op->name];

	if (!d->there || (!f && !(op->flags & O_CREAT)))
		return -ENOENT;
	return f && (op->flags & O_CREAT) && (op->flags & O_EXCL) ? -EEXIST : 0;
}

static int expect_rename_dir(const struct op *op)
{
	const struct mdir *from = &op->a->dirs[op->dir], *to = &op->a->dirs[op->dir2];

	if (!from->there)
		return -ENOENT;
	if (op->name2 >= 0) { /* over a file, or to a name for files */
		if (!to->there)
			return -ENOENT;
		if (op->dir2 == op->dir)
			return -EINVAL;
		/* the case of EPERM is never tried */
		return to->files[op->name2] ? -ENOTDIR : -EPERM;
	}
	if (from == to)
		return op->flags ? -EEXIST : 0;
	if (to->there && op->flags)
		return -EEXIST;
	return to->there && !empty(to) ? -ENOTEMPTY : 0;
}

static int expect_rename(const struct op *op)
{
	const struct mdir *from = &op->a->dirs[op->dir], *to = &op->a->dirs[op->dir2];

	if (op->name < 0)
		return expect_rename_dir(op);
	if (!from->there || !to->there || !from->files[op->name])
		return -ENOENT;
	if (op->name2 < 0) /* a file over a directory */
		return op->flags ? -EEXIST : -EISDIR;
	return op->flags && to->files[op->name2] ? -EEXIST : 0;
}

static int expect_xattr(const struct op *op)
{
	const struct mfile *f = op->f;

	if (f->xattr_unsure)
		return 0;
	if (op->kind == DO_SETXATTR)
		return f->xattr && op->flags == XATTR_CREATE   ? -EEXIST :
		       !f->xattr && op->flags == XATTR_REPLACE ? -ENODATA :
								 0;
	return f->xattr ? 0 : -ENODATA;
}

static bool is_there(const struct op *op)
{
	const struct mdir *d = &op->a->dirs[op->dir];

	if (op->name < 0 || !d->there)
		return d->there;
	return op->name == NAME_LINK ? d->link : d->files[op->name] != NULL;
}

int op_expect(const struct op *op)
{
	const struct mdir *d = &op->a->dirs[op->dir];
	bool there = is_there(op);

	switch (op->kind) {
	case DO_LINK:
	case DO_SYMLINK:
		return !d->there ? -ENOENT : there ? -EEXIST : 0;
	case DO_READLINK:
		return there ? 0 : -ENOENT;
	case DO_SETXATTR:
	case DO_GETXATTR:
	case DO_REMOVEXATTR:
		return expect_xattr(op);
	case DO_OPEN:
		return expect_open(op);
	case DO_STAT:
		return there ? 0 : -ENOENT;
	case DO_READDIR:
		return d->there ? 0 : -ENOENT;
	case DO_UNLINK:
		return !there ? -ENOENT : op->name < 0 ? -EISDIR : 0;
	case DO_MKDIR:
		if (op->name >= 0 && !d->there)
			return -ENOENT;
		return there ? -EEXIST : 0;
	case DO_RMDIR:
		return !there ? -ENOENT : op->name >= 0 ? -ENOTDIR : empty(d) ? 0 : -ENOTEMPTY;
	case DO_RENAME:
		return expect_rename(op);
	case DO_COPY:
		return copies_expect(op);
	default:
		return 0;
	}
}

bool fault_explains(const struct actor *a, uint64_t started, int64_t e)
{
	const struct world *w = a->w;

	if (is_network_error(e))
		return w->sim.now - started >= (w->conf.timeout_s - 1) * NSEC_PER_SEC;
	if (e == -EIO || e == -ESTALE)
		return a->isolations || w->enabled[FAULT_META] || w->n_unclean;
	return e == -ENOSPC && (w->enabled[FAULT_META] || w->enabled[FAULT_FULL]);
}

bool period_allows(const struct period *step, const struct period *next, const struct period *call)
{
	return step->began < call->ended && (!next || !next->ended || next->ended > call->began);
}

/* With several servers, the reason that is reported depends on which server is asked first. */
bool op_expected(const struct op *op, int64_t result)
{
	if (op->kind == DO_RENAME && op->expect == -EINVAL && op->flags && result == -EEXIST)
		return op->a->dirs[op->dir2].files[op->name2];
	return result == op->expect;
}
