/* The table of FUSE operations, and what is negotiated with the kernel at the start. */
#include "mount/mount_priv.h"

void op_init(void *arg, struct fuse_conn_info *conn)
{
	struct mount *m = arg;

	conn->max_write = REQUEST_MAX;
	conn->max_readahead = READ_AHEAD;
	/* Read-ahead alone must not use all workers: an interrupt must still be received. */
	conn->max_background = m->crew.max / 2;
	conn->congestion_threshold = m->crew.max * 3 / 8;
	conn->time_gran = 1;
	conn->want |= conn->capable &
		      (FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK | FUSE_CAP_CACHE_SYMLINKS);
	/* The kernel clears set-id bits itself: it knows which writes are writes of a program. */
	conn->want &= ~(unsigned)(FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_SPLICE_READ);
	if (m->o.writeback)
		conn->want |= conn->capable & FUSE_CAP_WRITEBACK_CACHE;
}

/* No state is kept for an inode, so there is nothing to forget. */
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	(void)ino;
	(void)n;
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *all)
{
	(void)n;
	(void)all;
	fuse_reply_none(req);
}

#define OP_ROW(name) .name = op_##name,
const struct fuse_lowlevel_ops mount_ops = { MOUNT_OPS(OP_ROW) };
