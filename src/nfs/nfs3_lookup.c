/* LOOKUP, READLINK */
#include "nfs/nfs_priv.h"

static int find(struct nfs_call *c, struct sheaf_handle dir, const char *name,
		struct sheaf_handle *out, struct stat *st)
{
	if (strcmp(name, "..") == 0)
		return find_up(c, dir, out, st);
	if (strcmp(name, ".") == 0) {
		*out = dir;
		return sheaf_h_getattr(c->fs, &c->cred, dir, st);
	}
	return sheaf_h_lookup(c->fs, &c->cred, dir, name, out, st);
}

void nfs3_lookup(struct nfs_call *c)
{
	const struct wire_lookup3_args *a = c->args;
	struct wire_lookup3_res *r = c->res;
	struct sheaf_handle dir, h;
	char name[NAME_BUF];
	struct stat st;

	r->status = handle_enter(c, &a->what.dir, &dir);
	if (r->status == NFS3_OK)
		r->status = name3_copy(&a->what.name, name);
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(find(c, dir, name, &h, &st));
	if (r->status == NFS3_OK && !handle_make(c, &h, &r->found.object))
		r->status = NFS3_EJUKEBOX;
	if (r->status == NFS3_OK)
		r->found.attributes = attr3_copy(c, &st);
	c->failed = r->status && r->status != NFS3_ENOENT;
}

void nfs3_readlink(struct nfs_call *c)
{
	const struct wire_handle3_args *a = c->args;
	struct wire_readlink3_res *r = c->res;
	char *text = call_alloc(c, NFS3_PATH_MAX);
	struct sheaf_handle h;
	ssize_t n = -ENOMEM;

	r->status = handle_enter(c, &a->object, &h);
	if (r->status == NFS3_OK) {
		if (text)
			n = sheaf_h_readlink(c->fs, &c->cred, h, text, NFS3_PATH_MAX);
		r->status = nfs3_status_of((int)MIN(n, 0));
	}
	c->failed = r->status;
	if (r->status == NFS3_OK)
		r->link.target = (struct wire_bytes){ (uint32_t)n, (const uint8_t *)text };
}
