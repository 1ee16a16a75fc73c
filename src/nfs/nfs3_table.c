/* The procedures of NFSv3. */
#include "nfs/nfs_priv.h"

static const struct rpc_proc procs[] = {
	[NFS3_NULL] = { .name = "null" },
	[NFS3_GETATTR] = RPC_PROC("getattr", handle3_args, getattr3_res, nfs3_getattr, false),
	[NFS3_SETATTR] = RPC_PROC("setattr", setattr3_args, change3_res, nfs3_setattr, true),
	[NFS3_LOOKUP] = RPC_PROC("lookup", lookup3_args, lookup3_res, nfs3_lookup, false),
	[NFS3_ACCESS] = RPC_PROC("access", access3_args, access3_res, nfs3_access, false),
	[NFS3_READLINK] = RPC_PROC("readlink", handle3_args, readlink3_res, nfs3_readlink, false),
	[NFS3_READ] = RPC_PROC("read", read3_args, read3_res, nfs3_read, false),
	[NFS3_WRITE] = RPC_PROC("write", write3_args, write3_res, nfs3_write, false),
	[NFS3_CREATE] = RPC_PROC("create", create3_args, create3_res, nfs3_create, true),
	[NFS3_MKDIR] = RPC_PROC("mkdir", mkdir3_args, create3_res, nfs3_mkdir, true),
	[NFS3_SYMLINK] = RPC_PROC("symlink", symlink3_args, create3_res, nfs3_symlink, true),
	[NFS3_MKNOD] = RPC_PROC("mknod", mknod3_args, create3_res, nfs3_mknod, true),
	[NFS3_REMOVE] = RPC_PROC("remove", remove3_args, change3_res, nfs3_remove, true),
	[NFS3_RMDIR] = RPC_PROC("rmdir", remove3_args, change3_res, nfs3_rmdir, true),
	[NFS3_RENAME] = RPC_PROC("rename", rename3_args, rename3_res, nfs3_rename, true),
	[NFS3_LINK] = RPC_PROC("link", link3_args, link3_res, nfs3_link, true),
	[NFS3_READDIR] = RPC_PROC("readdir", readdir3_args, readdir3_res, nfs3_readdir, false),
	[NFS3_READDIRPLUS] = RPC_PROC("readdirplus", readdirplus3_args, readdirplus3_res,
				      nfs3_readdirplus, false),
	[NFS3_FSSTAT] = RPC_PROC("fsstat", handle3_args, fsstat3_res, nfs3_fsstat, false),
	[NFS3_FSINFO] = RPC_PROC("fsinfo", handle3_args, fsinfo3_res, nfs3_fsinfo, false),
	[NFS3_PATHCONF] = RPC_PROC("pathconf", handle3_args, pathconf3_res, nfs3_pathconf, false),
	[NFS3_COMMIT] = RPC_PROC("commit", commit3_args, commit3_res, nfs3_commit, false),
};

const struct rpc_program nfs3_program = { "nfs", NFS3_PROGRAM,	   NFS3_VERSION,
					  procs, ARRAY_LEN(procs), true };
