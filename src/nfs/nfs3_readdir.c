/* READDIR, READDIRPLUS. Cookies are the file system's own, which are stable and begin with 3; 1 and
 * 2 are "." and "..". So the verifier is always zero. */
#include "nfs/nfs_priv.h"

#define COOKIE_DOTS 2
#define PAGE 128 /* entries in one request to a server */
#define HEAD 108 /* bytes of a result without entries */
#define ENTRY 24 /* bytes of an entry without its name */
#define PLUS (88 + 8 + HANDLE_BYTES) /* more of an entry with attributes */

/* A listing under construction. `plus`: with attributes. */
struct listing {
	struct nfs_call *c;
	struct sheaf_handle dir;
	bool plus, eof, full;
	size_t room; /* bytes of the reply that are left */
	uint32_t n, max;
	struct wire_entryplus3 *v;
};

/* False: no room. */
static bool add(struct listing *l, uint64_t ino, uint64_t cookie, const char *name,
		const struct sheaf_handle *h, const struct stat *st)
{
	size_t len = strlen(name), bytes = ENTRY + ((len + 3) & ~(size_t)3) + (l->plus ? PLUS : 0);
	struct wire_entryplus3 *e = &l->v[l->n];
	struct wire_handle3_there *there;

	l->full = bytes > l->room || l->n == l->max;
	if (l->full)
		return false;
	l->room -= bytes;
	l->n++;
	*e = (struct wire_entryplus3){ .fileid = ino,
				       .cookie = cookie,
				       .name = { (uint32_t)len, (const uint8_t *)name } };
	if (!l->plus || !st)
		return true;
	e->attributes = attr3_copy(l->c, st);
	there = call_alloc(l->c, sizeof(*there));
	if (there && handle_make(l->c, h, &there->object))
		e->object = there;
	return true;
}

static int add_dots(struct listing *l, uint64_t cookie)
{
	struct sheaf_handle up;
	struct stat st;
	int r = sheaf_h_getattr(l->c->fs, &l->c->cred, l->dir, &st);

	if (r)
		return r;
	if (cookie == 0)
		add(l, l->dir.ino, 1, ".", &l->dir, &st);
	if (!l->full && find_up(l->c, l->dir, &up, &st) == 0)
		add(l, up.ino, 2, "..", &up, &st);
	return 0;
}

/* Attributes of files that are being written may be outdated in listings. */
static bool may_show(struct listing *l, const struct sheaf_handle *h, const struct stat *st)
{
	return st->st_nlink && !nfs_files_is_written(l->c->g, h);
}

/* One page of entries behind *cookie. */
static int add_page(struct listing *l, uint64_t *cookie)
{
	int max = (int)MIN(l->room / (ENTRY + (l->plus ? PLUS : 0)) + 1, PAGE), n;
	struct sheaf_dirent *d = call_alloc(l->c, (size_t)max * sizeof(*d));
	struct stat *st = call_alloc(l->c, (size_t)max * sizeof(*st));

	if (!d || !st)
		return -ENOMEM;
	n = l->plus ? sheaf_h_readdir_stat(l->c->fs, &l->c->cred, l->dir, *cookie, d, st, max) :
		      sheaf_h_readdir(l->c->fs, &l->c->cred, l->dir, *cookie, d, max);
	for (int i = 0; i < n; i++) {
		struct sheaf_handle h = { d[i].ino, d[i].gen };

		if (!add(l, d[i].ino, d[i].cookie, d[i].name, &h,
			 l->plus && may_show(l, &h, &st[i]) ? &st[i] : NULL))
			return 0;
		*cookie = d[i].cookie;
	}
	l->eof = n == 0;
	return MIN(n, 0);
}

/* Fills l from the cookie on; an nfs3_status. */
static uint32_t list(struct listing *l, uint64_t cookie, uint32_t bytes)
{
	int r = 0;

	bytes = MIN(bytes, LISTING_MAX);
	if (bytes < HEAD + ENTRY)
		return NFS3_ETOOSMALL;
	l->room = bytes - HEAD;
	l->max = MIN(NFS3_ENTRIES_MAX, (uint32_t)(l->room / (ENTRY + 4)) + 1);
	l->v = call_alloc(l->c, l->max * sizeof(*l->v));
	l->c->reply_room = bytes + REPLY_SMALL - RECORD_MARK;
	if (!l->v)
		return NFS3_EJUKEBOX;
	if (cookie < COOKIE_DOTS)
		r = add_dots(l, cookie);
	cookie = cookie <= COOKIE_DOTS ? 0 : cookie;
	while (!r && !l->full && !l->eof)
		r = add_page(l, &cookie);
	if (!r && l->full && l->n == 0)
		return NFS3_ETOOSMALL;
	return l->n ? NFS3_OK : nfs3_status_of(r);
}

void nfs3_readdir(struct nfs_call *c)
{
	const struct wire_readdir3_args *a = c->args;
	struct wire_readdir3_res *r = c->res;
	struct listing l = { .c = c };
	struct wire_entry3 *v;

	r->status = handle_enter(c, &a->dir, &l.dir);
	if (r->status == NFS3_OK)
		r->status = list(&l, a->cookie, a->count);
	v = call_alloc(c, MAX(l.n, 1) * sizeof(*v));
	if (!v && r->status == NFS3_OK)
		r->status = NFS3_EJUKEBOX;
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	for (uint32_t i = 0; i < l.n; i++)
		v[i] = (struct wire_entry3){ l.v[i].fileid, l.v[i].name, l.v[i].cookie };
	r->listing.dir = attr3_get(c, &l.dir);
	r->listing.n_entries = l.n;
	r->listing.entries = v;
	r->listing.eof = l.eof;
}

void nfs3_readdirplus(struct nfs_call *c)
{
	const struct wire_readdirplus3_args *a = c->args;
	struct wire_readdirplus3_res *r = c->res;
	struct listing l = { .c = c, .plus = true };

	r->status = handle_enter(c, &a->dir, &l.dir);
	if (r->status == NFS3_OK)
		r->status = list(&l, a->cookie, a->max_bytes);
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	r->listing.dir = attr3_get(c, &l.dir);
	r->listing.n_entries = l.n;
	r->listing.entries = l.v;
	r->listing.eof = l.eof;
}
