/* The table of FUSE operations, and what is negotiated with the kernel at the start. */
#include "mount/mount_priv.h"

static void op_init(void *arg, struct fuse_conn_info *conn)
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
static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	(void)ino;
	(void)n;
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *all)
{
	(void)n;
	(void)all;
	fuse_reply_none(req);
}

const struct fuse_lowlevel_ops mount_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.symlink = op_symlink,
	.link = op_link,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.rename = op_rename,
	.statfs = op_statfs,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.create = op_create,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.fallocate = op_fallocate,
	.lseek = op_lseek,
	.copy_file_range = op_copy_file_range,
	.getlk = op_getlk,
	.setlk = op_setlk,
	.flock = op_flock,
};
