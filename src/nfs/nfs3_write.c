/* WRITE, COMMIT. Data are written from the buffer in which the call was received. */
#include "nfs/nfs_priv.h"

static ssize_t write_file(struct nfs_call *c, const struct sheaf_handle *h,
			  const struct wire_write3_args *a)
{
	struct nfs_file *f;
	ssize_t done = -ESTALE;

	for (int i = 0; i < 2 && (done == -ESTALE || done == -EBADF); i++) {
		int r = nfs_file_get(c, h, true, &f);

		if (r)
			return r;
		f->unsynced = true;
		done = sheaf_pwrite(f->f, a->data.p, a->data.len, (off_t)a->offset);
		if (done == -ESTALE || done == -EBADF)
			nfs_file_drop(c->g, f);
		nfs_file_put(c->g, f);
	}
	return done;
}

void nfs3_write(struct nfs_call *c)
{
	const struct wire_write3_args *a = c->args;
	struct wire_write3_res *r = c->res;
	struct sheaf_handle h;
	ssize_t n = 0;

	r->status = handle_enter(c, &a->file, &h);
	if (r->status == NFS3_OK && c->export->ro)
		r->status = NFS3_EROFS;
	if (r->status == NFS3_OK && (a->count != a->data.len))
		r->status = NFS3_EINVAL;
	if (r->status == NFS3_OK && a->offset > OFFSET_MAX - a->data.len)
		r->status = NFS3_EFBIG;
	if (r->status == NFS3_OK && a->data.len) {
		n = write_file(c, &h, a);
		if (n >= 0 && a->stable != STABLE3_NOT)
			n = MIN(nfs_files_sync(c, &h), 0) ? -EIO : n;
		r->status = nfs3_status_of((int)MIN(n, 0));
	}
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	r->written.count = (uint32_t)n;
	r->written.stable = a->stable == STABLE3_NOT ? STABLE3_NOT : STABLE3_FILE;
	memcpy(r->written.verifier, c->g->boot_verifier, sizeof(r->written.verifier));
	r->written.change.after = attr3_get(c, &h);
}

void nfs3_commit(struct nfs_call *c)
{
	const struct wire_commit3_args *a = c->args;
	struct wire_commit3_res *r = c->res;
	struct sheaf_handle h;

	r->status = handle_enter(c, &a->file, &h);
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(nfs_files_sync(c, &h));
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	memcpy(r->committed.verifier, c->g->boot_verifier, sizeof(r->committed.verifier));
	r->committed.change.after = attr3_get(c, &h);
}
