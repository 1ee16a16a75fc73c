/* Operations on names and attributes: lookup, getattr, readdir, readlink, setattr, mkdir, symlink, link, unlink,
 * rmdir, rename, and the report of a writer. Reads answer at once; changes are one record each. */
#include <stdio.h>

#include "server/srv.h"

int walk_place(struct sreq *s, const struct wire_place *p, struct wire_bytes *leaf,
	       struct wire_handle *at)
{
	int r = meta_walk(s->srv->meta, &s->cred, p, leaf, &s->referral, &s->arena);

	*at = s->referral.at;
	s->ino = at->ino;
	return r;
}

int may(struct sreq *s, const struct wire_attr *a, int what)
{
	return meta_may(a, &s->cred, what);
}

int do_lookup(struct sreq *s)
{
	struct wire_lookup_args *a = s->args;
	struct wire_lookup_res *r = s->res;
	struct wire_handle at = { 0 };
	struct meta_node n;
	int e = walk_place(s, &a->where, NULL, &at);

	if (!e)
		e = meta_get(s->srv->meta, &at, &n, &s->arena);
	if (!e)
		r->at = n.attr;
	return e;
}

int do_getattr(struct sreq *s)
{
	struct wire_getattr_args *a = s->args;
	struct wire_getattr_res *r = s->res;
	struct meta_node n;
	int e = meta_get(s->srv->meta, &a->h, &n, &s->arena);

	s->ino = a->h.ino;
	if (e)
		return e;
	r->at = n.attr;
	if (a->with_layout && n.layout.n_targets) {
		r->layout = n.layout;
		cap_make(s->srv, &r->cap, &n, 0, s->head.session);
	}
	return 0;
}

int do_readlink(struct sreq *s)
{
	struct wire_readlink_args *a = s->args;
	struct wire_readlink_res *r = s->res;
	struct wire_handle at = { 0 };
	int e = walk_place(s, &a->where, NULL, &at);

	return e ? e : meta_readlink(s->srv->meta, &at, &r->target, &s->arena);
}

int do_readdir(struct sreq *s)
{
	struct wire_readdir_args *a = s->args;
	struct meta_node n;
	int e = meta_get(s->srv->meta, &a->dir, &n, &s->arena);

	s->ino = a->dir.ino;
	if (!e && (n.attr.mode & S_IFMT) != S_IFDIR)
		e = -ENOTDIR;
	if (!e)
		e = may(s, &n.attr, MAY_READ);
	if (!e)
		e = meta_readdir(s->srv->meta, &a->dir, a->cookie, MIN(a->max, 1024u), 48 * KIB,
				 s->res, &s->arena);
	return e;
}

int prepare_setattr(struct sreq *s)
{
	struct wire_setattr_args *a = s->args;
	struct wire_record *r = &s->change.rec;

	s->ino = a->h.ino;
	sreq_record(s, REC_SETATTR);
	r->h = a->h;
	r->which = a->which;
	r->mode = a->mode;
	r->owner = a->uid;
	r->group = a->gid;
	r->atime = a->atime;
	r->mtime = a->mtime;
	return 0;
}

static int prepare_at(struct sreq *s, uint32_t kind, const struct wire_place *p)
{
	struct wire_handle dir = { 0 };
	struct wire_bytes leaf;
	int e = walk_place(s, p, &leaf, &dir);

	if (e)
		return e;
	sreq_record(s, kind);
	s->change.rec.dir = dir;
	s->change.rec.name = leaf;
	return 0;
}

int prepare_mkdir(struct sreq *s)
{
	struct wire_mkdir_args *a = s->args;
	int e = prepare_at(s, REC_MKDIR, &a->where);

	s->change.rec.mode = a->mode & 07777;
	s->change.rec.new_ino = meta_new_ino(s->srv->meta);
	return e;
}

int prepare_symlink(struct sreq *s)
{
	struct wire_symlink_args *a = s->args;
	int e = prepare_at(s, REC_SYMLINK, &a->where);

	s->change.rec.data = a->target;
	s->change.rec.new_ino = meta_new_ino(s->srv->meta);
	return e;
}

int prepare_link(struct sreq *s)
{
	struct wire_link_args *a = s->args;
	int e = prepare_at(s, REC_LINK, &a->where);

	s->change.rec.h = a->h;
	return e;
}

int prepare_unlink(struct sreq *s)
{
	return prepare_at(s, REC_UNLINK, &((struct wire_unlink_args *)s->args)->where);
}

int prepare_rmdir(struct sreq *s)
{
	return prepare_at(s, REC_RMDIR, &((struct wire_unlink_args *)s->args)->where);
}

int prepare_rename(struct sreq *s)
{
	struct wire_rename_args *a = s->args;
	struct wire_handle dir2 = { 0 };
	struct wire_bytes leaf2;
	int e = walk_place(s, &a->to, &leaf2, &dir2);

	if (a->flags > RENAME_EXCHANGE) /* an unknown wish, or both at once */
		return -EINVAL;
	if (!e)
		e = prepare_at(s, REC_RENAME, &a->from);
	if (e) /* the client walks both sides itself before it asks across servers */
		return e == -EREMOTE ? -EXDEV : e;
	s->change.rec.dir2 = dir2;
	s->change.rec.name2 = leaf2;
	s->change.rec.flags = a->flags == RENAME_NOREPLACE ? REC_NOREPLACE :
			      a->flags == RENAME_EXCHANGE  ? REC_EXCHANGE :
							     0;
	return 0;
}

int prepare_record(struct sreq *s)
{
	struct wire_record_args *a = s->args;
	struct wire_record *r = &s->change.rec;

	s->ino = a->h.ino;
	if (!session_writes(s->session, a->h.ino))
		return -EBADF;
	if (a->w.end > INT64_MAX)
		return -EFBIG;
	sreq_record(s, REC_RECORD);
	r->h = a->h;
	r->epoch = a->w.epoch;
	r->size = a->w.end;
	r->mtime = a->w.mtime;
	return 0;
}

int finish_attr(struct sreq *s)
{
	struct wire_attr_res *r = s->res;

	r->at = s->change.res.at;
	return 0;
}

int finish_void(struct sreq *s)
{
	(void)s;
	return 0;
}

/* A file that lost its last name (its own, or as the target of a rename): its objects go. */
int finish_removed(struct sreq *s)
{
	const struct wire_handle *h = &s->change.res.removed;
	struct inode *i = inode_find(s->srv, h->ino);

	if (!h->ino)
		return 0;
	if (i && i->opens)
		i->removed = true;
	else
		task_start(s->srv, TASK_REMOVE, h, 0, 0);
	return 0;
}
