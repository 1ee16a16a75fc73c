/* READ: from the servers into the buffer that is sent behind the reply's head. The reply has no
 * attributes, which would take another request to a server; clients ask at their opens. A READ is
 * executed when there is room for its data: see submit() in rpc_stream.c. */
#include "nfs/nfs_priv.h"

/* Reads, with a fresh open if the servers no longer know the one at hand. */
static ssize_t read_file(struct nfs_call *c, const struct sheaf_handle *h, uint64_t at, size_t n)
{
	struct nfs_file *f;
	ssize_t got = -ESTALE;

	for (int i = 0; i < 2 && (got == -ESTALE || got == -EBADF); i++) {
		int r = nfs_file_get(c, h, false, &f);

		if (r)
			return r;
		got = sheaf_pread(f->f, c->data->p, n, (off_t)at);
		if (got == -ESTALE || got == -EBADF)
			nfs_file_drop(c->g, f);
		nfs_file_put(c->g, f);
	}
	return got;
}

size_t nfs3_read_wants(struct nfs_call *c)
{
	struct wire_rpc_call head;
	struct wire_read3_args a;
	struct xdr x;

	xdr_decoder(&x, c->in->p, c->in_len, &c->arena);
	if (!xdr_wire_rpc_call(&x, &head) || head.program != NFS3_PROGRAM ||
	    head.procedure != NFS3_READ || !xdr_wire_read3_args(&x, &a))
		return 0;
	return MIN(a.count, NFS3_DATA_MAX);
}

void nfs3_read(struct nfs_call *c)
{
	const struct wire_read3_args *a = c->args;
	struct wire_read3_res *r = c->res;
	uint32_t count = MIN(a->count, NFS3_DATA_MAX);
	struct sheaf_handle h;
	ssize_t n = 0;

	r->status = handle_enter(c, &a->file, &h);
	if (r->status == NFS3_OK && a->offset <= OFFSET_MAX - count && count) {
		c->data = count <= c->data_room ? data_take(c->g, count) : NULL;
		n = c->data ? read_file(c, &h, a->offset, count) : -ENOMEM;
		r->status = nfs3_status_of((int)MIN(n, 0));
	}
	c->failed = r->status;
	if (r->status != NFS3_OK)
		return;
	c->data_len = (size_t)n;
	r->read.count = r->read.length = (uint32_t)n;
	r->read.eof = n < (ssize_t)count || a->offset > OFFSET_MAX - count;
}
