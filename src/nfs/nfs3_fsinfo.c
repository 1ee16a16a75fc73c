/* FSSTAT, FSINFO, PATHCONF */
#include "nfs/nfs_priv.h"

#define LINKS_MAX 65000
#define STEADY_SECONDS 0

void nfs3_fsstat(struct nfs_call *c)
{
	const struct wire_handle3_args *a = c->args;
	struct wire_fsstat3_res *r = c->res;
	struct sheaf_handle h;
	struct statvfs s;

	r->status = handle_enter(c, &a->object, &h);
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(sheaf_statfs(c->fs, &s));
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	r->space = (struct wire_fsstat3_ok){
		.attributes = attr3_get(c, &h),
		.total_bytes = s.f_blocks * s.f_frsize,
		.free_bytes = s.f_bfree * s.f_frsize,
		.available_bytes = s.f_bavail * s.f_frsize,
		.total_files = s.f_files,
		.free_files = s.f_ffree,
		.available_files = s.f_favail,
		.steady_seconds = STEADY_SECONDS,
	};
}

void nfs3_fsinfo(struct nfs_call *c)
{
	const struct wire_handle3_args *a = c->args;
	struct wire_fsinfo3_res *r = c->res;
	struct sheaf_handle h;

	r->status = handle_enter(c, &a->object, &h);
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	r->info = (struct wire_fsinfo3_ok){
		.attributes = attr3_get(c, &h),
		.read_max = NFS3_DATA_MAX,
		.read_preferred = NFS3_DATA_MAX,
		.read_multiple = LEAST_PAGE,
		.write_max = NFS3_DATA_MAX,
		.write_preferred = NFS3_DATA_MAX,
		.write_multiple = LEAST_PAGE,
		.listing_preferred = LISTING_MAX,
		.file_bytes_max = INT64_MAX,
		.time_step = { 0, 1 },
		.properties = FSINFO3_LINK | FSINFO3_SYMLINK | FSINFO3_HOMOGENEOUS |
			      FSINFO3_CAN_SET_TIME,
	};
}

void nfs3_pathconf(struct nfs_call *c)
{
	const struct wire_handle3_args *a = c->args;
	struct wire_pathconf3_res *r = c->res;
	struct sheaf_handle h;

	r->status = handle_enter(c, &a->object, &h);
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	r->limits = (struct wire_pathconf3_ok){
		.attributes = attr3_get(c, &h),
		.link_max = LINKS_MAX,
		.name_max = NFS3_NAME_MAX,
		.no_trunc = true,
		.chown_restricted = true,
		.case_preserving = true,
	};
}
