/* The table of operations: one row each. */
#include "server/srv.h"

#define ROW(n, f, a, r) \
	.name = n, .flags = f, .args_filter = XDR_ANY(xdr_wire_##a), \
	.args_size = sizeof(struct wire_##a), .res_filter = XDR_ANY(xdr_wire_##r), \
	.res_size = sizeof(struct wire_##r)
#define HANDLE(h) .ops = &handle_ops, .handle = h
#define CHANGE(p, f) .ops = &change_ops, .prepare = p, .finish = f
#define NAMES(p, f, sp) \
	.ops = &pair_ops, .prepare = p, .finish = f, .split = sp, \
	.state_size = sizeof(struct pair_state)
#define STEPS(o, state) .ops = &o, .state_size = sizeof(struct state)
#define META OP_NEEDS_META
#define DATA OP_NEEDS_DATA

const struct op_row op_rows[] = {
	[OP_PING] = { ROW("ping", 0, void_args, void_res), HANDLE(do_ping) },
	[OP_SESSION] = { ROW("session", OP_NO_SESSION, session_args, session_res),
			 STEPS(session_open_ops, session_state) },
	[OP_BYE] = { ROW("bye", 0, void_args, void_res), HANDLE(do_bye) },
	[OP_STATUS] = { ROW("status", OP_NO_SESSION, void_args, status_res), HANDLE(do_status) },
	[OP_REQUESTS] = { ROW("requests", OP_NO_SESSION, void_args, requests_res),
			  HANDLE(do_requests) },
	[OP_MAP] = { ROW("map", META, void_args, map_res), HANDLE(do_map) },
	[OP_BACKUP] = { ROW("backup", META | OP_ADMIN, backup_args, backup_res),
			STEPS(backup_ops, backup_state) },
	[OP_ADD_TARGET] = { ROW("add-target", META | OP_ADMIN, add_target_args, void_res),
			    STEPS(add_target_ops, object_state) },
	[OP_SCAN] = { ROW("scan", META | OP_ADMIN, scan_args, scan_res), HANDLE(do_scan) },
	[OP_REPAIR] = { ROW("repair", META | OP_ADMIN, repair_args, void_res),
			CHANGE(prepare_repair, finish_repair) },
	[OP_LOOKUP] = { ROW("lookup", META, lookup_args, lookup_res), HANDLE(do_lookup) },
	[OP_GETATTR] = { ROW("getattr", META, getattr_args, getattr_res), HANDLE(do_getattr) },
	[OP_READDIR] = { ROW("readdir", META, readdir_args, readdir_res), HANDLE(do_readdir) },
	[OP_READLINK] = { ROW("readlink", META, readlink_args, readlink_res), HANDLE(do_readlink) },
	[OP_GETXATTR] = { ROW("getxattr", META, getxattr_args, xattr_res), HANDLE(do_getxattr) },
	[OP_LISTXATTR] = { ROW("listxattr", META, listxattr_args, xattr_res),
			   HANDLE(do_listxattr) },
	[OP_SETATTR] = { ROW("setattr", META, setattr_args, attr_res),
			 CHANGE(prepare_setattr, finish_attr) },
	[OP_MKDIR] = { ROW("mkdir", META, mkdir_args, made_res),
		       NAMES(prepare_mkdir, finish_made, split_mkdir) },
	[OP_MKNOD] = { ROW("mknod", META, mknod_args, made_res),
		       CHANGE(prepare_mknod, finish_made) },
	[OP_APPEND] = { ROW("append", META, append_args, append_res), STEPS(append_ops, trunc) },
	[OP_APPENDED] = { ROW("appended", META, appended_args, void_res), HANDLE(do_appended) },
	[OP_UNLINK] = { ROW("unlink", META, unlink_args, dirs_after),
			NAMES(prepare_unlink, finish_removed, split_remove) },
	[OP_RMDIR] = { ROW("rmdir", META, unlink_args, dirs_after),
		       NAMES(prepare_rmdir, finish_removed, split_remove) },
	[OP_RENAME] = { ROW("rename", META, rename_args, dirs_after),
			NAMES(prepare_rename, finish_removed, split_rename) },
	[OP_LINK] = { ROW("link", META, link_args, made_res),
		      NAMES(prepare_link, finish_made, split_link) },
	[OP_SYMLINK] = { ROW("symlink", META, symlink_args, made_res),
			 CHANGE(prepare_symlink, finish_made) },
	[OP_SETXATTR] = { ROW("setxattr", META, setxattr_args, void_res),
			  CHANGE(prepare_setxattr, finish_void) },
	[OP_REMOVEXATTR] = { ROW("removexattr", META, removexattr_args, void_res),
			     CHANGE(prepare_removexattr, finish_void) },
	[OP_RECORD] = { ROW("record", META, record_args, recorded_res),
			CHANGE(prepare_record, finish_recorded) },
	[OP_OPEN] = { ROW("open", META, open_args, open_res), STEPS(open_ops, open_state) },
	[OP_CLOSE] = { ROW("close", META, close_args, void_res), STEPS(close_ops, close_state) },
	[OP_TRUNCATE] = { ROW("truncate", META, truncate_args, attr_res),
			  STEPS(truncate_ops, trunc) },
	[OP_CAP] = { ROW("cap", META, cap_args, cap_res), STEPS(cap_ops, close_state) },
	[OP_RECLAIM] = { ROW("reclaim", META, reclaim_args, void_res),
			 STEPS(reclaim_ops, claim_state) },
	[OP_LOCK] = { ROW("lock", META, lock_args, lock_res), STEPS(lock_ops, lock_state) },
	[OP_LOCK_TEST] = { ROW("lock-test", META, lock_args, lock_res),
			   STEPS(lock_ops, lock_state) },
	[OP_READ] = { ROW("read", DATA, read_args, read_res), STEPS(read_ops, data_state) },
	[OP_WRITE] = { ROW("write", DATA | OP_WRITES, write_args, write_res),
		       STEPS(write_ops, data_state) },
	[OP_ALLOCATE] = { ROW("allocate", DATA | OP_WRITES, allocate_args, write_res),
			  STEPS(allocate_ops, data_state) },
	[OP_COPY] = { ROW("copy", DATA | OP_WRITES, copy_args, write_res),
		      STEPS(copy_ops, data_state) },
	[OP_SEEK] = { ROW("seek", DATA, seek_args, seek_res), STEPS(seek_ops, object_state) },
	[OP_SYNC] = { ROW("sync", DATA, sync_args, object_res), STEPS(sync_ops, object_state) },
	[OP_OBJSTAT] = { ROW("objstat", DATA, objstat_args, object_res),
			 STEPS(objstat_ops, object_state) },
	[OP_FENCE] = { ROW("fence", DATA | OP_FROM_SERVERS, fence_args, object_res),
		       STEPS(fence_ops, object_state) },
	[OP_REMOVE] = { ROW("remove", DATA | OP_FROM_SERVERS, remove_args, remove_res),
			STEPS(remove_ops, object_state) },
	[OP_PREPARE] = { ROW("prepare", META | OP_FROM_SERVERS, prepare_args, prepare_res),
			 CHANGE(prepare_part, finish_prepared) },
	[OP_FINISH] = { ROW("finish", META | OP_FROM_SERVERS, finish_args, void_res),
			CHANGE(prepare_finish, finish_finish) },
	[OP_DURABLE] = { ROW("durable", META | OP_FROM_SERVERS, durable_args, void_res),
			 STEPS(durable_ops, durable_state) },
	[OP_FSYNC] = { ROW("fsync", META, durable_args, void_res),
		       STEPS(durable_ops, durable_state) },
	[OP_OUTCOME] = { ROW("outcome", META | OP_FROM_SERVERS, outcome_args, outcome_res),
			 HANDLE(do_outcome) },
	[OP_CLIMB] = { ROW("climb", META | OP_FROM_SERVERS, climb_args, climb_res),
		       HANDLE(do_climb) },
	[OP_OBJECTS] = { ROW("objects", DATA | OP_ADMIN, scan_args, scan_res),
			 STEPS(objects_ops, disk_scan) },
};
const unsigned n_op_rows = ARRAY_LEN(op_rows);

const struct op_row *op_row(uint32_t op)
{
	return op < n_op_rows && op_rows[op].ops ? &op_rows[op] : NULL;
}
