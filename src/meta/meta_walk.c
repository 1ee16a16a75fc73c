/* Path walks: from a directory along a path, through symbolic links, as far as this server owns the
 * inodes.
 *
 * Threads: the loop's. Buffers: a path with the text of a symbolic link put in is in the caller's
 * arena. Errors: -errno; a symbolic link without its text is damage, -EIO. */
#include "meta/meta_state.h"

#define FOLLOW_MAX 40 /* symbolic links in one walk, as in Linux */

struct walk {
	struct meta *m;
	const struct cred *cred;
	struct arena *arena;
	struct wire_bytes path;
	uint32_t pos; /* offset behind the component last taken */
	struct wire_handle at;
	uint32_t type; /* of at; 0: unknown without its inode */
	bool follow; /* follow a link at the end of the path, too */
	unsigned links; /* links followed; above 0 the path is not the one that was given */
	struct meta_leaf *leaf; /* result of a walk that stops before the last component, or NULL */
};

/* The component at or behind pos; false if there is none. *end is the offset behind it. */
static bool walk_peek(const struct walk *w, struct wire_bytes *name, uint32_t *end)
{
	uint32_t from = w->pos, to;

	while (from < w->path.len && w->path.p[from] == '/')
		from++;
	for (to = from; to < w->path.len && w->path.p[to] != '/'; to++)
		;
	*name = (struct wire_bytes){ to - from, w->path.p + from };
	*end = to;
	return to > from;
}

static bool walk_is_last(const struct walk *w, uint32_t end)
{
	while (end < w->path.len && w->path.p[end] == '/')
		end++;
	return end == w->path.len;
}

/* The directory that the walk has reached; checks x permission. */
static int walk_dir(const struct walk *w, struct node *n)
{
	int rc = read_handle(w->m, &w->at, n);

	if (rc)
		return rc;
	if (!S_ISDIR(n->i.mode))
		return -ENOTDIR;
	rc = node_may(&w->m->db, w->m->reader, n, w->cred, MAY_EXEC);
	return rc > 0 ? -rc : rc;
}

/* Stores the leaf: 1, or -errno if the name is invalid. */
static int walk_leaf(struct walk *w, const struct wire_bytes *name, uint32_t end)
{
	*w->leaf = (struct meta_leaf){ *name, end < w->path.len };
	if (name->len > NAME_MAX_LEN)
		return -ENAMETOOLONG;
	return name_is_dots(name) ? -EINVAL : 1;
}

static int link_text(struct meta *m, uint64_t ino, MDB_val *v)
{
	struct key k = key_u64(ino);
	int rc = row_get(&m->db, m->reader, T_SYMLINK, &k, v);

	if (rc == -ENOENT || (!rc && (!v->mv_size || v->mv_size > LINK_MAX_LEN)))
		return -EIO;
	return rc;
}

/* Replaces the part of the path before `end`, which ends with the name of a link, by the link's
 * target. */
static int walk_link(struct walk *w, uint64_t ino, uint32_t end)
{
	uint32_t rest = w->path.len - end, len;
	uint8_t *p;
	MDB_val v;
	int rc = link_text(w->m, ino, &v);

	if (rc)
		return rc;
	len = (uint32_t)v.mv_size + rest;
	if (++w->links > FOLLOW_MAX)
		return -ELOOP;
	if (len > PATH_MAX_LEN)
		return -ENAMETOOLONG;
	p = arena_alloc(w->arena, len);
	if (!p)
		return -ENOMEM;
	memcpy(p, v.mv_data, v.mv_size);
	memcpy(p + v.mv_size, w->path.p + end, rest);
	if (p[0] == '/')
		w->at = (struct wire_handle){ META_ROOT_INO, META_ROOT_GEN };
	w->path = (struct wire_bytes){ len, p };
	w->pos = 0;
	w->type = S_IFDIR;
	return 0;
}

/* Walks one component. 1: it was the leaf. */
static int walk_one(struct walk *w, const struct wire_bytes *name, uint32_t end)
{
	bool leaf = w->leaf && walk_is_last(w, end);
	bool follow = w->follow || end < w->path.len; /* or a '/' is behind it */
	struct wire_handle next;
	struct node n;
	uint32_t type;
	int rc = walk_dir(w, &n);

	if (rc)
		return rc;
	if (leaf && !follow)
		return walk_leaf(w, name, end);
	rc = read_entry(w->m, w->at.ino, &n, name, &next, &type);
	if (leaf && (rc == -ENOENT || (!rc && type != S_IFLNK)))
		return walk_leaf(w, name, end);
	if (rc)
		return rc;
	if (type == S_IFLNK && follow)
		return walk_link(w, next.ino, end);
	w->at = next;
	w->type = type;
	w->pos = end;
	return 0;
}

static int walk_path(struct walk *w)
{
	struct wire_bytes name;
	struct node n;
	uint32_t end;
	int rc;

	while (walk_peek(w, &name, &end)) {
		rc = walk_one(w, &name, end);
		if (rc)
			return rc > 0 ? 0 : rc;
	}
	if (w->leaf)
		return -EINVAL;
	if (w->pos && w->pos < w->path.len && w->type != S_IFDIR) /* "file/" */
		return -ENOTDIR;
	if (w->pos && meta_owns(w->m, w->at.ino))
		return 0;
	rc = read_handle(w->m, &w->at, &n); /* the given handle, or -EREMOTE */
	return rc || S_ISREG(n.i.mode) ? rc : read_unlocked(w->m, &w->at, &n);
}

int meta_walk(struct meta *m, const struct cred *c, const struct wire_place *p,
	      struct meta_leaf *leaf, struct wire_referral *end, struct arena *a)
{
	struct walk w = { .m = m,
			  .cred = c,
			  .arena = a,
			  .path = p->path,
			  .at = p->dir,
			  .follow = p->follow,
			  .leaf = leaf };
	int rc = read_begin(m);

	*end = (struct wire_referral){ .at = p->dir };
	if (rc)
		return rc;
	rc = walk_path(&w);
	*end = (struct wire_referral){ .at = w.at, .consumed = w.pos, .linked = w.links > 0 };
	if (end->linked) {
		end->consumed = p->path.len;
		end->rest = (struct wire_bytes){ w.path.len - w.pos, w.path.p + w.pos };
	}
	return read_end(m, rc);
}

static int read_link(struct meta *m, const struct wire_handle *h, struct wire_bytes *target,
		     struct arena *a)
{
	struct node n;
	MDB_val v;
	int rc = read_unlocked(m, h, &n);

	if (!rc && !S_ISLNK(n.i.mode))
		rc = -EINVAL;
	if (!rc)
		rc = link_text(m, h->ino, &v);
	return rc ? rc : bytes_copy(target, v.mv_data, v.mv_size, a);
}

int meta_readlink(struct meta *m, const struct wire_handle *h, struct wire_bytes *target,
		  struct arena *a)
{
	int rc = read_begin(m);

	return rc ? rc : read_end(m, read_link(m, h, target, a));
}
