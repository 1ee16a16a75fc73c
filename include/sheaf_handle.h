/* libsheaf, the layer below paths: directory handle, name, credential. The mount, NFS and MPI's
 * broadcast open use it. Handles mean the same in every process and survive restarts. */
#ifndef SHEAF_HANDLE_H
#define SHEAF_HANDLE_H

#include "sheaf.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sheaf_handle {
	uint64_t ino;
	uint32_t gen;
};
#define SHEAF_GEN 1 /* of every inode so far: inode numbers are never reused */

struct sheaf_cred {
	uint32_t uid, gid;
	uint32_t n_gids; /* at most 32 */
	const uint32_t *gids;
	mode_t umask; /* for new inodes; servers apply it, unless the directory has a default ACL */
	/* Names the call of another protocol that these calls execute, for gateways that may act
	 * for any user: 16 bytes that others cannot guess, or NULL. The same call with the same id
	 * is executed once, whichever process repeats it within 10 minutes: of each kind of call
	 * the first one that succeeds counts. Servers keep the last 131,072 answers. */
	const unsigned char *call_id;
};

SHEAF_API struct sheaf_handle sheaf_root(struct sheaf *fs);
/* Another connection to the same file system, by the cluster file of the first one. Takes no locks
 * of fs, so that a forked child may call it. -EOPNOTSUPP: fs is a file system in a process. */
SHEAF_API int sheaf_connect_again(const struct sheaf *fs, struct sheaf **out);
/* c NULL, in all calls: the effective credential of the process, and modes are taken as they are
 * (umask 0), as by the calls with paths. To apply a umask, set it in a cred or mask the mode. name:
 * one component. Only sheaf_h_open() follows a symbolic link (unless O_NOFOLLOW). */
SHEAF_API int sheaf_h_lookup(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			     const char *name, struct sheaf_handle *out, struct stat *st);
SHEAF_API int sheaf_h_getattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			      struct stat *st);

/* The same with what struct stat lacks. */
struct sheaf_attr {
	uint32_t size; /* in: sizeof(struct sheaf_attr) */
	int growing; /* the file has writers: `change` may be older than size and times */
	uint64_t change; /* as sheaf_file_change(), and as in struct sheaf_dir_after */
	struct timespec btime; /* when it was created */
	struct stat st;
};
SHEAF_API int sheaf_h_attr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			   struct sheaf_attr *a);

SHEAF_API int sheaf_h_layout(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			     struct sheaf_layout_info *l);

#define SHEAF_SET_MODE 1
#define SHEAF_SET_UID 2
#define SHEAF_SET_GID 4
#define SHEAF_SET_ATIME 8
#define SHEAF_SET_MTIME 16
#define SHEAF_SET_ATIME_NOW 32
#define SHEAF_SET_MTIME_NOW 64
#define SHEAF_SET_ATIME_READ \
	128 /* alone: sets atime as a read does; needs only read permission, ctime stays */
#define SHEAF_SET_SIZE 256 /* of sheaf_h_create() */
SHEAF_API int sheaf_h_setattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			      unsigned which, const struct stat *in, struct stat *out);
/* name NULL: opens `dir` itself. */
SHEAF_API int sheaf_h_open(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			   const char *name, int flags, mode_t mode,
			   const struct sheaf_layout *layout, struct sheaf_file **f);
/* Additional flag for opens by handle: also opens a file that has just lost its last name, for a
 * moment, e.g. directly after a lookup of that name. Without the flag this is -ESTALE. */
#define SHEAF_O_NAMELESS 0x40000000
/* The same, with the attributes at the open. *what: SHEAF_OPEN_CREATED, or SHEAF_OPEN_GROWING: the
 * file has writers, so size and times may be outdated; sheaf_fstat() returns the true ones. */
#define SHEAF_OPEN_CREATED 1
#define SHEAF_OPEN_GROWING 2
SHEAF_API int sheaf_h_open_stat(struct sheaf *fs, const struct sheaf_cred *c,
				struct sheaf_handle dir, const char *name, int flags, mode_t mode,
				const struct sheaf_layout *layout, struct sheaf_file **f,
				struct stat *st, unsigned *what);
SHEAF_API struct sheaf_handle sheaf_file_handle(struct sheaf_file *f);
/* The file's `change` at the open: grows with every change of data or attributes, never repeats and
 * never decreases. What was read from a file without writers is valid while the number stays. */
SHEAF_API uint64_t sheaf_file_change(struct sheaf_file *f);
/* Returns what sheaf_close() would, without closing. -EIO: data written since the last fsync were
 * lost; repeated until an fsync or close has returned it. Asks a server only if its link has been
 * down since the write. */
SHEAF_API int sheaf_flush(struct sheaf_file *f);
/* The write verifier: while it stays, no data server of the file may have lost data that were
 * written to it and not synced. It is made of the servers' own, so all clients get the same. Take
 * it before a write, and compare it with that after an fsync: if they differ, write again. */
SHEAF_API int sheaf_file_verifier(struct sheaf_file *f, uint64_t *verifier);
/* sheaf_close() that nothing waits for: if nothing was written and no lock is held through the
 * file, the server is told with the next request, or half a millisecond later. */
SHEAF_API int sheaf_close_later(struct sheaf_file *f);

/* Writes at the end, as if the file had been opened with O_APPEND. */
SHEAF_API ssize_t sheaf_append(struct sheaf_file *f, const void *buf, size_t len);
/* As fallocate(2). mode: 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
 * FALLOC_FL_ZERO_RANGE with or without FALLOC_FL_KEEP_SIZE; others are -EOPNOTSUPP, and so are
 * holes if the servers' file systems have none. -ENOSPC: a part of the range may have been
 * allocated. */
SHEAF_API int sheaf_fallocate(struct sheaf_file *f, int mode, off_t off, off_t len);
/* As lseek(2) with SEEK_DATA or SEEK_HOLE, without a file position: the offset, or -ENXIO behind
 * the end of the file or if no data follow. The end counts as a hole. */
SHEAF_API off_t sheaf_seek(struct sheaf_file *f, off_t off, int whence);
/* As copy_file_range(2): data go from server to server. Returns the number of bytes, which may be
 * smaller than len (0: off_in is at or behind the end); holes may become zeros. -EINVAL: the ranges
 * are of one file and overlap; -EXDEV: two connections. */
SHEAF_API ssize_t sheaf_copy_range(struct sheaf_file *in, off_t off_in, struct sheaf_file *out,
				   off_t off_out, size_t len);
/* out and st describe the new or linked inode; both may be NULL. */
SHEAF_API int sheaf_h_mkdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			    const char *name, mode_t mode, struct sheaf_handle *out,
			    struct stat *st);
/* Creates an inode of the type and mode of in->st_mode, a regular file if it has no type, in one
 * request, and opens nothing. target: of a symbolic link, else NULL. which: SHEAF_SET_UID, _GID,
 * _SIZE (of a file), _ATIME and _MTIME give it these attributes of `in` in the same transaction. */
SHEAF_API int sheaf_h_create(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			     const char *name, const char *target, unsigned which,
			     const struct stat *in, struct sheaf_handle *out, struct stat *st);
SHEAF_API int sheaf_h_mknod(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			    const char *name, mode_t mode, dev_t dev, struct sheaf_handle *out,
			    struct stat *st);
SHEAF_API int sheaf_h_symlink(struct sheaf *fs, const struct sheaf_cred *c, const char *target,
			      struct sheaf_handle dir, const char *name, struct sheaf_handle *out,
			      struct stat *st);
SHEAF_API ssize_t sheaf_h_readlink(struct sheaf *fs, const struct sheaf_cred *c,
				   struct sheaf_handle h, char *buf, size_t len);
SHEAF_API int sheaf_h_link(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			   struct sheaf_handle dir, const char *name, struct stat *st);
SHEAF_API int sheaf_h_unlink(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			     const char *name);
SHEAF_API int sheaf_h_rmdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			    const char *name);
SHEAF_API int sheaf_h_rename(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			     const char *name, struct sheaf_handle dir2, const char *name2,
			     unsigned flags);
/* The state of one or two directories right after this thread's last change of names in them:
 * sheaf_h_mkdir(), _mknod(), _symlink(), _link(), _unlink(), _rmdir(), _rename(), an open that
 * created the file, or a call with paths that does the same; the directory of the old name comes
 * first. Returns how many: 0 if the call failed, changed nothing, or the state is not known (the
 * change took several servers, or its first answer was lost). Sends nothing. */
struct sheaf_dir_after {
	struct sheaf_handle dir;
	uint64_t change; /* grows with each change of the directory: the greater number is newer */
	struct stat st;
};
SHEAF_API int sheaf_h_dir_after(struct sheaf_dir_after out[2]);
SHEAF_API int sheaf_h_truncate(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			       off_t size);
SHEAF_API int sheaf_h_setxattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			       const char *name, const void *value, size_t size, int flags);
SHEAF_API ssize_t sheaf_h_getxattr(struct sheaf *fs, const struct sheaf_cred *c,
				   struct sheaf_handle h, const char *name, void *value,
				   size_t size);
SHEAF_API ssize_t sheaf_h_listxattr(struct sheaf *fs, const struct sheaf_cred *c,
				    struct sheaf_handle h, char *list, size_t size);
SHEAF_API int sheaf_h_removexattr(struct sheaf *fs, const struct sheaf_cred *c,
				  struct sheaf_handle h, const char *name);
/* Reads entries behind cookie; returns how many were filled, 0 at the end. */
SHEAF_API int sheaf_h_readdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			      uint64_t cookie, struct sheaf_dirent *out, int max);
/* The same with attributes, as sheaf_readdir_stat(). */
SHEAF_API int sheaf_h_readdir_stat(struct sheaf *fs, const struct sheaf_cred *c,
				   struct sheaf_handle dir, uint64_t cookie,
				   struct sheaf_dirent *out, struct stat *st, int max);

/* ---- advisory locks, across all clients ---- */

struct sheaf_lock {
	uint32_t size; /* sizeof(struct sheaf_lock) */
	uint32_t type; /* F_RDLCK, F_WRLCK, F_UNLCK */
	uint64_t start, length; /* length 0: to the end, wherever that will be */
	uint64_t owner; /* chosen by the caller: a process, an open file; of this connection only */
	uint32_t pid; /* returned by sheaf_lock_test() of others */
};
/* As fcntl(F_SETLK), or F_SETLKW with `wait`: locks of an owner replace each other, split and
 * merge, through any sheaf_file of that file. -EAGAIN: another owner has the lock, and `wait` is
 * not set; -EDEADLK; -ENOLCK: too many; -EINTR: cancelled. Closing a sheaf_file releases what was
 * last taken through it. After -ETIMEDOUT etc. the outcome is unknown: unlock, or close. -EIO, also
 * from reads and writes: the lock was lost with the connection; see libsheaf(3). */
SHEAF_API int sheaf_lock(struct sheaf_file *f, const struct sheaf_lock *l, int wait);
/* As F_GETLK: a conflicting lock replaces *l; if there is none, its type becomes F_UNLCK. */
SHEAF_API int sheaf_lock_test(struct sheaf_file *f, struct sheaf_lock *l);
/* As flock(2): LOCK_SH, LOCK_EX, LOCK_UN, optionally with LOCK_NB. Independent of sheaf_lock(). */
SHEAF_API int sheaf_flock(struct sheaf_file *f, int op, uint64_t owner);
/* Waits of this owner end with -EINTR, unless the lock was granted just before. */
SHEAF_API void sheaf_lock_cancel(struct sheaf *fs, uint64_t owner);

/* ---- one open for many processes ---- */

/* Makes a ticket with which processes of the same client key open the same file as guests, without
 * a request to the metadata server. It lets them access the file until the owner of the open closes
 * it or for an hour, whichever is sooner; then a guest opens the file for itself, if it may. fresh:
 * gets a new capability first, as after a truncation. Returns the length; -ERANGE: size is below
 * it (SHEAF_TICKET_MAX is enough); -EINVAL: a directory, O_APPEND, or a guest. */
#define SHEAF_TICKET_MAX 8192
SHEAF_API ssize_t sheaf_share(struct sheaf_file *f, int fresh, void *ticket, size_t size);
/* Opens a guest. It reads, writes and syncs data like any open file; locks and appends are -EBADF.
 * The owner closes last. -ESTALE: open the file by its name instead. */
SHEAF_API int sheaf_open_shared(struct sheaf *fs, const void *ticket, size_t len,
				struct sheaf_file **f);
/* Gives a guest the owner's later ticket. */
SHEAF_API int sheaf_share_renew(struct sheaf_file *f, const void *ticket, size_t len);

/* ---- one thread for many requests ----
 *
 * A program that serves requests of others, as the mount does, may work on many of them in one
 * thread, each in a task of its own (a coroutine): a call that has to wait parks its task, not the
 * thread. This thread drives the connection; other threads make calls as usual. */
struct sheaf_tasks {
	void *(*current)(void); /* the task that runs in this thread; NULL: calls block */
	void (*park)(void *task); /* stops the current task; returns when it was resumed */
	void (*resume)(void *task); /* any thread, even before park() stopped it; makes no calls */
};
/* From now on one thread drives fs: it calls sheaf_drive() again and again. fd: what the thread
 * waits for besides the servers, or -1. Calls without a credential use the one that the process has
 * now. */
SHEAF_API int sheaf_drive_begin(struct sheaf *fs, const struct sheaf_tasks *t, int fd);
/* Waits for events, at most `ms` (-1: for ever); handles replies of servers and resumes tasks. 1:
 * fd is readable or broken, which is checked only with want_fd; 0: it is not. */
SHEAF_API int sheaf_drive(struct sheaf *fs, int want_fd, int ms);
SHEAF_API void sheaf_drive_wake(struct sheaf *fs); /* ends the wait; from any thread */
SHEAF_API void sheaf_drive_end(struct sheaf *fs); /* no task may be parked */

/* Another connection, driven with fs by the same threads: for a gateway that serves many clients,
 * each with sessions, locks and limits of its own. It ends before fs. */
struct sheaf_more {
	uint32_t size; /* in: sizeof(struct sheaf_more) */
	const char *host; /* names the client to servers, for `sheaf requests`, and its job */
	/* 16 bytes that others cannot guess. The servers keep locks of a process that has died for
	 * the lease (30 s); a connection of the same name that is made meanwhile, also by a process
	 * on another host, gets them: their owners may take them again, or end them. It ends older
	 * connections of this name. */
	const unsigned char *name;
};
SHEAF_API int sheaf_connect_more(struct sheaf *fs, const struct sheaf_more *m, struct sheaf **out);
/* How many locks it got in this way and has still, without those that their owners took again. */
#define SHEAF_INHERITED_KNOWN 0 /* asks no server: the number at first; -EAGAIN: not known yet */
#define SHEAF_INHERITED_NOW 1
#define SHEAF_INHERITED_DROP 2 /* ends them: 0 */
SHEAF_API int64_t sheaf_inherited(struct sheaf *fs, int what);
/* A metadata server does not know its sessions any more: another connection of the name has come,
 * or the lease has ended. Its locks are lost. */
SHEAF_API int sheaf_was_lost(struct sheaf *fs);

/* ---- takeover: another process continues the sessions, open files and locks ---- */

/* The number of this open: unique in its connection, and the same after an import. */
SHEAF_API uint64_t sheaf_file_id(struct sheaf_file *f);
/* Writes all that another process needs to fd, from its offset on. The data contain SECRETS: use a
 * memfd, or a file that no other user can read. -EBUSY: an operation is under way, or was not
 * waited for. On success the servers keep everything for their lease, and fs is good for
 * sheaf_abandon() and sheaf_resume() only: other calls return -ESHUTDOWN. -EOPNOTSUPP:
 * local:DIR. */
SHEAF_API int sheaf_export(struct sheaf *fs, int fd);
/* As sheaf_connect(), with an export, read from fd's offset on; each export is for one import. */
SHEAF_API int sheaf_import(const char *conf, int fd, struct sheaf **fs);
/* Returns an open file of the exporting process, each once; else -ENOENT. */
SHEAF_API int sheaf_import_file(struct sheaf *fs, uint64_t id, struct sheaf_file **f);
/* Makes fs usable again after an export that was not imported, or whose importer ended before it
 * made calls of its own. Returns 0. */
SHEAF_API int sheaf_resume(struct sheaf *fs);
/* Frees fs and its files without telling the servers, which keep opens and locks for their lease.
 * No operation may be under way. */
SHEAF_API void sheaf_abandon(struct sheaf *fs);

#ifdef __cplusplus
}
#endif
#endif
