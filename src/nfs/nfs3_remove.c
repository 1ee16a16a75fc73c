/* REMOVE, RMDIR */
#include "nfs/nfs_priv.h"

static void remove_name(struct nfs_call *c, bool dir)
{
	const struct wire_remove3_args *a = c->args;
	struct wire_change3_res *r = c->res;
	struct sheaf_handle h;
	char name[NAME_BUF];

	r->status = handle_enter(c, &a->what.dir, &h);
	if (r->status == NFS3_OK && c->export->ro)
		r->status = NFS3_EROFS;
	if (r->status == NFS3_OK)
		r->status = name3_copy(&a->what.name, name);
	if (r->status == NFS3_OK && strcmp(name, ".") == 0)
		r->status = NFS3_EINVAL;
	if (r->status == NFS3_OK && strcmp(name, "..") == 0)
		r->status = NFS3_EEXIST;
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(dir ? sheaf_h_rmdir(c->fs, &c->cred, h, name) :
						 sheaf_h_unlink(c->fs, &c->cred, h, name));
	c->failed = r->status;
	if (r->status == NFS3_OK)
		dir3_changed(c, &h, &r->change);
}

void nfs3_remove(struct nfs_call *c)
{
	remove_name(c, false);
}

void nfs3_rmdir(struct nfs_call *c)
{
	remove_name(c, true);
}
