/* Operations on names and attributes: lookup, getattr, readdir, readlink, setattr, mkdir, symlink,
 * link, unlink, rmdir, rename, and the report of a writer. Reads answer at once; changes are one
 * record each. */
#include <stdio.h>

#include "server/cap.h"
#include "server/inode.h"
#include "server/pair.h"
#include "server/task.h"

#define READDIR_BYTES (64 * KIB) /* per page */

/* Leases one name on the way to a directory of another server. Returns ms, or 0: no lease. */
static uint32_t promise_name(struct sreq *s, struct wire_handle *at, const struct wire_bytes *name)
{
	uint64_t dir = at->ino;
	uint32_t type;

	if (name->len <= 2 && name->p[0] == '.' && name->p[name->len - 1] == '.')
		return 0;
	if (meta_lookup(s->srv->meta, at, name, at, &type) || type != S_IFDIR)
		return 0;
	return lease_grant(s->srv, s->head.session, dir, name);
}

/* A referral in the middle of a path: leases every name on the way, so that the client may reuse
 * it. */
static void promise(struct sreq *s, const struct wire_place *p)
{
	struct wire_referral *r = &s->referral;
	const uint8_t *at = p->path.p, *end = at + r->consumed;
	struct wire_handle h = p->dir;
	uint32_t ms = 1;

	if (r->linked || !r->consumed || r->consumed == p->path.len)
		return;
	while (ms && at < end) {
		const uint8_t *slash = memchr(at, '/', (size_t)(end - at));
		struct wire_bytes name = { (uint32_t)((slash ? slash : end) - at), at };

		ms = name.len ? promise_name(s, &h, &name) : 0;
		at += name.len + (slash != NULL);
	}
	r->lease_ms = h.ino == r->at.ino ? ms : 0;
}

int walk_place(struct sreq *s, const struct wire_place *p, struct meta_leaf *leaf,
	       struct wire_handle *at)
{
	int r = meta_walk(s->srv->meta, &s->cred, p, leaf, &s->referral, &s->arena);

	*at = s->referral.at;
	s->ino = at->ino;
	if (r == -EREMOTE)
		promise(s, p);
	return r;
}

int may_access(struct sreq *s, const struct meta_node *n, int what)
{
	return meta_may(n, &s->cred, what);
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
	if (!e) {
		r->at = n.attr;
		r->cache = n.cache;
		notices_asked(s->srv, at.ino);
	}
	return e;
}

int do_getattr(struct sreq *s)
{
	struct wire_getattr_args *a = s->args;
	struct wire_getattr_res *r = s->res;
	const struct inode *i;
	struct meta_node n;
	int e = meta_get(s->srv->meta, &a->h, &n, &s->arena);

	s->ino = a->h.ino;
	if (!e) /* a client that saw the name removed must not see the old link count */
		e = meta_check_unlocked(s->srv->meta, a->h.ino);
	if (!e && inode_is_gone(s->srv, &n)) /* its objects are fenced for good, or will be */
		e = -ESTALE;
	if (e)
		return e;
	r->at = n.attr;
	r->cache = n.cache;
	notices_asked(s->srv, a->h.ino);
	if (a->with_layout && n.layout.n_targets) {
		r->layout = n.layout;
		cap_make(s, &r->cap, &n, 0);
		i = inode_find(s->srv, a->h.ino);
		r->limit = i ? append_limit(i) : UINT64_MAX;
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
		e = may_access(s, &n, MAY_READ);
	if (!e && a->attrs)
		e = may_access(s, &n, MAY_EXEC);
	if (e == -EACCES && a->attrs && may_access(s, &n, MAY_READ) == 0) { /* names only */
		a->attrs = false;
		e = 0;
	}
	if (!e)
		e = meta_readdir(s->srv->meta, a, READDIR_BYTES, s->res, &s->arena);
	return e;
}

/* Nothing is set: answers with the present attributes, as GETATTR does. */
static int unchanged(struct sreq *s, const struct wire_handle *h)
{
	struct wire_attr_res *r = s->res;
	struct meta_node n;
	int e = meta_get(s->srv->meta, h, &n, &s->arena);

	if (e)
		return e;
	r->at = n.attr;
	return CHANGES_NOTHING;
}

/* A client knows which of its own writes came before the time that it sets. Unreported writes of
 * others are told apart by the clock. */
static void touch(struct sreq *s, struct wire_record *r)
{
	struct inode *i = inode_find(s->srv, r->h.ino);

	if (!i || !others_write(s->session, i))
		return;
	i->touched = r->time;
	r->written = MAX(r->written, r->time);
}

int64_t reported_mtime(const struct inode *i, const struct wire_wrote *w)
{
	return i && w->mtime <= i->touched ? 0 : w->mtime;
}

int prepare_setattr(struct sreq *s)
{
	struct wire_setattr_args *a = s->args;
	struct wire_record *r = &s->change.rec;

	s->ino = a->h.ino;
	if ((a->which & ~(uint32_t)SET_ALL) && a->which != SET_ATIME_READ)
		return -EINVAL;
	if (!a->which)
		return unchanged(s, &a->h);
	/* leases on ways through this directory must expire */
	if (a->which & (SET_MODE | SET_UID | SET_GID)) {
		int e = lease_block(s, s->head.session, a->h.ino, NULL);

		if (e)
			return e;
	}
	sreq_record(s, REC_SETATTR);
	r->h = a->h;
	r->which = a->which;
	r->mode = a->mode;
	r->owner = a->uid;
	r->group = a->gid;
	r->atime = a->atime;
	r->mtime = a->mtime;
	r->written = a->written;
	if (a->which & (SET_MTIME | SET_MTIME_NOW))
		touch(s, r);
	return 0;
}

/* The error, as on Linux, for a path that ends in "." or ".." or is the root: it has no name to
 * change. */
static int no_name(uint32_t kind)
{
	switch (kind) {
	case REC_UNLINK:
		return -EISDIR;
	case REC_RENAME:
		return -EBUSY;
	case REC_RMDIR:
		return -EINVAL;
	default:
		return -EEXIST;
	}
}

static int prepare_at(struct sreq *s, uint32_t kind, const struct wire_place *p)
{
	struct wire_handle dir = { 0 };
	struct meta_leaf leaf;
	int e = walk_place(s, p, &leaf, &dir);

	if (e)
		return e == -EINVAL ? no_name(kind) : e;
	sreq_record(s, kind);
	s->change.rec.dir = dir;
	s->change.rec.name = leaf.name;
	s->change.rec.flags = leaf.slash ? REC_SLASH : 0;
	return 0;
}

/* Chooses the server of a new directory: the two top levels are spread over the metadata servers by
 * their names; deeper directories stay with their parents. */
static int choose_server(struct sreq *s, uint32_t *target)
{
	const struct wire_record *r = &s->change.rec;
	const struct wire_map_res *map = &s->srv->map;
	struct meta_node dir;
	int e;

	*target = s->srv->target;
	if (map->n_meta == 1)
		return 0;
	e = meta_get(s->srv->meta, &r->dir, &dir, &s->arena);
	if (!e && dir.parent.ino == META_ROOT_INO) /* the root is its own parent */
		*target = map->meta[hash_u64(r->dir.ino ^ crc32c(0, r->name.p, r->name.len)) %
				    map->n_meta];
	return e;
}

/* Attributes of a new inode of this type. */
static int new_attr(struct sreq *s, uint32_t n, struct wire_new_attr *set, uint32_t type)
{
	uint32_t may = SET_UID | SET_GID | SET_ATIME | SET_MTIME;

	if (type == S_IFREG)
		may |= SET_SIZE;
	if (n && (set->which & ~may))
		return -EINVAL;
	if (n && (set->which & SET_SIZE) && set->size > INT64_MAX)
		return -EFBIG;
	s->change.rec.n_set = n;
	s->change.rec.set = set;
	return 0;
}

int prepare_mkdir(struct sreq *s)
{
	struct wire_mkdir_args *a = s->args;
	struct pair_state *st = s->op;
	int e = prepare_at(s, REC_MKDIR, &a->where);

	if (!e)
		e = new_attr(s, a->n_set, a->set, S_IFDIR);
	if (!e)
		e = choose_server(s, &st->place);
	if (e)
		return e;
	s->change.rec.mode = a->mode & 01777;
	s->change.rec.owner = a->umask;
	if (st->place != s->srv->target)
		return -EXDEV;
	s->change.rec.new_ino = meta_new_ino(s->srv->meta);
	return 0;
}

int prepare_mknod(struct sreq *s)
{
	struct wire_mknod_args *a = s->args;
	struct wire_record *r = &s->change.rec;
	int e = prepare_at(s, REC_MKNOD, &a->where);

	if (!e)
		e = new_attr(s, a->n_set, a->set, a->mode & S_IFMT);
	if (e)
		return e;
	r->mode = a->mode;
	r->owner = a->umask;
	r->which = a->rdev;
	r->new_ino = meta_new_ino(s->srv->meta);
	return S_ISREG(a->mode) ? layout_choose(s, r->new_ino, 0, 0, &r->layout) : 0;
}

int prepare_symlink(struct sreq *s)
{
	struct wire_symlink_args *a = s->args;
	int e = prepare_at(s, REC_SYMLINK, &a->where);

	if (!e)
		e = new_attr(s, a->n_set, a->set, S_IFLNK);
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

/* No other session may have a lease on the names that this record changes. */
static int names_free(struct sreq *s)
{
	const struct wire_record *r = &s->change.rec;
	int e = lease_block(s, s->head.session, r->dir.ino, &r->name);

	if (!e && r->name2.len && meta_owns(s->srv->meta, r->dir2.ino))
		e = lease_block(s, s->head.session, r->dir2.ino, &r->name2);
	return e;
}

int prepare_unlink(struct sreq *s)
{
	return prepare_at(s, REC_UNLINK, &((struct wire_unlink_args *)s->args)->where);
}

int prepare_rmdir(struct sreq *s)
{
	int e = prepare_at(s, REC_RMDIR, &((struct wire_unlink_args *)s->args)->where);

	return e ? e : names_free(s);
}

/* The new name is in a directory of another server. If only the last name of the path is left, that
 * is enough: it is not followed even if it is a symbolic link. Else the client must look the
 * directory up first. */
static bool remote_leaf(struct sreq *s, const struct wire_place *p, struct meta_leaf *leaf)
{
	const struct wire_referral *r = &s->referral;
	struct wire_bytes rest = r->linked ? r->rest : p->path;

	if (!r->linked) {
		rest.p += r->consumed;
		rest.len -= r->consumed;
	}
	for (; rest.len && *rest.p == '/'; rest.len--)
		rest.p++;
	leaf->slash = rest.len && rest.p[rest.len - 1] == '/';
	while (rest.len && rest.p[rest.len - 1] == '/')
		rest.len--;
	leaf->name = rest;
	s->referral.second = !rest.len || memchr(rest.p, '/', rest.len);
	return !s->referral.second;
}

int prepare_rename(struct sreq *s)
{
	struct wire_rename_args *a = s->args;
	struct wire_record *r = &s->change.rec;
	struct meta_leaf leaf;
	int e, to;

	if (a->flags > RENAME_EXCHANGE) /* unknown, or both flags */
		return -EINVAL;
	e = prepare_at(s, REC_RENAME, &a->from);
	if (e)
		return e;
	to = walk_place(s, &a->to, &leaf, &r->dir2);
	if (to == -EREMOTE && !remote_leaf(s, &a->to, &leaf))
		return to;
	if (to && to != -EREMOTE)
		return to == -EINVAL ? -EBUSY : to;
	if (leaf.name.len > NAME_MAX_LEN)
		return -ENAMETOOLONG;
	r->name2 = leaf.name;
	r->flags |= a->flags == RENAME_NOREPLACE ? REC_NOREPLACE :
		    a->flags == RENAME_EXCHANGE	 ? REC_EXCHANGE :
						   0;
	if (leaf.slash)
		r->flags |= REC_SLASH2;
	if (s->srv->map.n_meta > 1)
		r->flags |= REC_SPREAD;
	e = names_free(s);
	return e ? e : to ? -EXDEV : 0;
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
	r->mtime = reported_mtime(inode_find(s->srv, a->h.ino), &a->w);
	r->n_objects = a->w.n_objects;
	r->objects = a->w.objects;
	r->flags = a->w.doubt ? REC_BEYOND : 0;
	return 0;
}

int finish_attr(struct sreq *s)
{
	struct wire_attr_res *r = s->res;

	r->at = s->change.res.at;
	return 0;
}

int finish_recorded(struct sreq *s)
{
	const struct wire_record_args *a = s->args;
	struct wire_recorded_res *r = s->res;
	struct meta_node n;

	r->at = s->change.res.at;
	r->epoch = s->change.res.epoch;
	r->unsynced = meta_get(s->srv->meta, &a->h, &n, &s->arena) == 0 && n.unsynced;
	return 0;
}

int finish_made(struct sreq *s)
{
	struct wire_made_res *r = s->res;

	r->at = s->change.res.at;
	r->after = s->change.after;
	return 0;
}

int finish_void(struct sreq *s)
{
	(void)s;
	return 0;
}

void file_removed(struct server *srv, const struct wire_handle *h)
{
	struct inode *i = inode_find(srv, h->ino);

	if (i && i->opens)
		i->removed = true;
	else
		task_start(srv, TASK_REMOVE, h, 0, 0);
}

/* Starts the removal if a file lost its last name (the named file, or the target of a rename). */
int finish_removed(struct sreq *s)
{
	struct wire_dirs_after *r = s->res;

	*r = s->change.after;
	if (s->change.res.removed.ino)
		file_removed(s->srv, &s->change.res.removed);
	return 0;
}
