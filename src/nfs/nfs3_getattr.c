/* GETATTR, SETATTR, ACCESS */
#include "nfs/nfs_priv.h"

void nfs3_getattr(struct nfs_call *c)
{
	const struct wire_handle3_args *a = c->args;
	struct wire_getattr3_res *r = c->res;
	struct sheaf_handle h;
	struct stat st;

	r->status = handle_enter(c, &a->object, &h);
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(attr3_ask(c, &h, &st));
	if (r->status == NFS3_OK)
		attr3_of(c->g, &st, &r->attributes);
	c->failed = r->status;
}

static uint32_t check_guard(struct nfs_call *c, const struct sheaf_handle *h,
			    const struct wire_time3 *guard)
{
	struct wire_attr3 *now;

	if (!guard)
		return NFS3_OK;
	now = attr3_get(c, h);
	if (!now)
		return NFS3_EJUKEBOX;
	return now->ctime.seconds == guard->seconds &&
			       now->ctime.nanoseconds == guard->nanoseconds ?
		       NFS3_OK :
		       NFS3_ENOTSYNC;
}

void nfs3_setattr(struct nfs_call *c)
{
	const struct wire_setattr3_args *a = c->args;
	struct wire_change3_res *r = c->res;
	struct sheaf_handle h;
	struct stat st;

	r->status = handle_enter(c, &a->object, &h);
	if (r->status == NFS3_OK && c->export->ro)
		r->status = NFS3_EROFS;
	if (r->status == NFS3_OK)
		r->status = check_guard(c, &h, a->guard);
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(set3_apply(c, &h, &a->attributes, &st));
	if (r->status == NFS3_OK)
		r->change.after = attr3_copy(c, &st);
	c->failed = r->status;
}

void nfs3_access(struct nfs_call *c)
{
	const struct wire_access3_args *a = c->args;
	struct wire_access3_res *r = c->res;
	struct sheaf_handle h;
	struct stat st;

	r->status = handle_enter(c, &a->object, &h);
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(attr3_ask(c, &h, &st));
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	r->allowed.attributes = attr3_copy(c, &st);
	r->allowed.rights = access_of(c, &h, &st) & a->rights;
}
