/* RENAME, LINK */
#include "nfs/nfs_priv.h"

/* Directory and name of a change; an nfs3_status. */
static uint32_t place_enter(struct nfs_call *c, const struct wire_place3 *p,
			    struct sheaf_handle *dir, char name[NAME_BUF])
{
	uint32_t status = handle_enter(c, &p->dir, dir);

	if (status == NFS3_OK && c->export->ro)
		status = NFS3_EROFS;
	if (status == NFS3_OK)
		status = name3_copy(&p->name, name);
	if (status == NFS3_OK && (strcmp(name, ".") == 0 || strcmp(name, "..") == 0))
		status = NFS3_EINVAL;
	return status;
}

void nfs3_rename(struct nfs_call *c)
{
	const struct wire_rename3_args *a = c->args;
	struct wire_rename3_res *r = c->res;
	char from[NAME_BUF], to[NAME_BUF];
	struct sheaf_handle dir, dir2;
	const struct conf_export *export;

	r->status = place_enter(c, &a->from, &dir, from);
	export = c->export;
	if (r->status == NFS3_OK)
		r->status = place_enter(c, &a->to, &dir2, to);
	if (r->status == NFS3_OK && c->export != export)
		r->status = NFS3_EXDEV;
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(sheaf_h_rename(c->fs, &c->cred, dir, from, dir2, to, 0));
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	dir3_changed(c, &dir, &r->from);
	if (dir2.ino == dir.ino)
		r->to = r->from;
	else
		dir3_changed(c, &dir2, &r->to);
}

void nfs3_link(struct nfs_call *c)
{
	const struct wire_link3_args *a = c->args;
	struct wire_link3_res *r = c->res;
	const struct conf_export *export;
	struct sheaf_handle h, dir;
	char name[NAME_BUF];
	struct stat st;

	r->status = handle_enter(c, &a->file, &h);
	export = c->export;
	if (r->status == NFS3_OK)
		r->status = place_enter(c, &a->where, &dir, name);
	if (r->status == NFS3_OK && c->export != export)
		r->status = NFS3_EXDEV;
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(sheaf_h_link(c->fs, &c->cred, h, dir, name, &st));
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	dir3_changed(c, &dir, &r->dir);
	r->attributes = attr3_copy(c, &st);
}
