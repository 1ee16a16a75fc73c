/* WRITE, COMMIT. Data are written from the buffer in which the call was received. */
#include "nfs/nfs_priv.h"

/* Writes through an open. *verifier: the file's before the write, so that a client never takes for
 * written what a server lost meanwhile. Servers refuse to write behind data that they have lost.
 * The client has such data still, and writes them again in their order when a COMMIT has another
 * verifier than their WRITEs. So such a WRITE is answered like one whose data were lost, too: its
 * verifier is none that a COMMIT has. A stable one is tried again meanwhile (JUKEBOX). */
static ssize_t write_through(struct nfs_file *f, const struct wire_write3_args *a,
			     uint64_t *verifier)
{
	uint64_t before = f->verifier;
	int r = sheaf_file_verifier(f->f, verifier);
	ssize_t n;

	if (r)
		return r;
	if (!f->verifier)
		f->verifier = *verifier;
	f->unsynced = true;
	n = sheaf_pwrite(f->f, a->data.p, a->data.len, (off_t)a->offset);
	if (n > 0)
		nfs_file_wrote(f, a->offset, (uint64_t)n);
	/* the answer has told whether a server has restarted */
	if (n != -EIO || sheaf_file_verifier(f->f, verifier) ||
	    !nfs_file_has_lost(f, before, *verifier, a->offset))
		return n;
	f->verifier = before;
	if (a->stable != STABLE3_NOT)
		return -ETIMEDOUT;
	*verifier = (*verifier | NO_VERIFIER) ^ 1;
	return a->data.len;
}

static ssize_t write_file(struct nfs_call *c, const struct sheaf_handle *h,
			  const struct wire_write3_args *a, uint64_t *verifier)
{
	struct nfs_file *f;
	ssize_t done = -ESTALE;

	for (int i = 0; i < 2 && (done == -ESTALE || done == -EBADF); i++) {
		int r = nfs_file_get(c, h, true, &f);

		if (r)
			return r;
		done = write_through(f, a, verifier);
		if (done == -ESTALE || done == -EBADF)
			nfs_file_drop(c->g, f);
		nfs_file_put(c->g, f);
	}
	return done;
}

/* A stable write whose data were lost between writing and syncing is an error that ends with the
 * client's next attempt. */
static ssize_t sync_stable(struct nfs_call *c, const struct sheaf_handle *h, ssize_t n,
			   uint64_t before)
{
	uint64_t after;
	int r = nfs_files_sync(c, h, &after);

	if (r)
		return r;
	return before == after ? n : -ETIMEDOUT; /* JUKEBOX */
}

void nfs3_write(struct nfs_call *c)
{
	const struct wire_write3_args *a = c->args;
	struct wire_write3_res *r = c->res;
	struct sheaf_handle h;
	uint64_t verifier = 0;
	ssize_t n = 0;

	r->status = handle_enter(c, &a->file, &h);
	if (r->status == NFS3_OK && c->export->ro)
		r->status = NFS3_EROFS;
	if (r->status == NFS3_OK && (a->count != a->data.len))
		r->status = NFS3_EINVAL;
	if (r->status == NFS3_OK && a->offset > OFFSET_MAX - a->data.len)
		r->status = NFS3_EFBIG;
	if (r->status == NFS3_OK && a->data.len) {
		n = write_file(c, &h, a, &verifier);
		if (n >= 0 && a->stable != STABLE3_NOT)
			n = sync_stable(c, &h, n, verifier);
		r->status = nfs3_status_of((int)MIN(n, 0));
	}
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	r->written.count = (uint32_t)n;
	r->written.stable = a->stable == STABLE3_NOT ? STABLE3_NOT : STABLE3_FILE;
	memcpy(r->written.verifier, &verifier, sizeof(r->written.verifier));
	r->written.change.after = attr3_get(c, &h);
}

void nfs3_commit(struct nfs_call *c)
{
	const struct wire_commit3_args *a = c->args;
	struct wire_commit3_res *r = c->res;
	struct sheaf_handle h;
	uint64_t verifier = 0;

	r->status = handle_enter(c, &a->file, &h);
	if (r->status == NFS3_OK)
		r->status = nfs3_status_of(nfs_files_sync(c, &h, &verifier));
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	memcpy(r->committed.verifier, &verifier, sizeof(r->committed.verifier));
	r->committed.change.after = attr3_get(c, &h);
}
