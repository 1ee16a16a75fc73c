/* libsheaf, the layer beneath paths: (directory handle, name, credential). What the mount, NFS and
 * MPI's broadcast open stand on. Handles mean the same in every process and survive restarts. */
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
#define SHEAF_GEN 1 /* of every inode so far: their numbers are not used again */

struct sheaf_cred {
	uint32_t uid, gid;
	uint32_t n_gids; /* at most 32 */
	const uint32_t *gids;
	mode_t umask; /* of what is made with it: the servers apply it, unless the directory has a default ACL */
};

SHEAF_API struct sheaf_handle sheaf_root(struct sheaf *fs);
/* cred NULL everywhere: the process's own effective one, and modes are taken as they are (umask 0), as by the calls
 * with paths: who wants the umask of the process says so in a cred, or masks the mode himself. name: one component. A
 * symbolic link is followed by sheaf_h_open() (unless O_NOFOLLOW) and by nothing else here. */
SHEAF_API int sheaf_h_lookup(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			     const char *name, struct sheaf_handle *out, struct stat *st);
SHEAF_API int sheaf_h_getattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			      struct stat *st);

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
	128 /* alone: as a read sets it, for whoever may read; the ctime stays */
SHEAF_API int sheaf_h_setattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
			      unsigned which, const struct stat *in, struct stat *out);
/* name NULL: the handle itself. */
SHEAF_API int sheaf_h_open(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			   const char *name, int flags, mode_t mode,
			   const struct sheaf_layout *layout, struct sheaf_file **f);
/* Beside the flags, by handle alone: also a file that has just lost its last name, for a moment. Who has looked it up by that
 * name in the same breath may mean it; for all others it is -ESTALE. */
#define SHEAF_O_NAMELESS 0x40000000
/* And its attributes at that moment. *what: SHEAF_OPEN_CREATED, or SHEAF_OPEN_GROWING: others write to it, so that size
 * and times may be older than the truth, which sheaf_fstat() tells. */
#define SHEAF_OPEN_CREATED 1
#define SHEAF_OPEN_GROWING 2
SHEAF_API int sheaf_h_open_stat(struct sheaf *fs, const struct sheaf_cred *c,
				struct sheaf_handle dir, const char *name, int flags, mode_t mode,
				const struct sheaf_layout *layout, struct sheaf_file **f,
				struct stat *st, unsigned *what);
SHEAF_API struct sheaf_handle sheaf_file_handle(struct sheaf_file *f);
/* The number of the file's latest change when it was opened: it grows with every change of data
 * or attributes, never comes again and never goes back. What was read under a number, of a file
 * without writers, is good while it stays. */
SHEAF_API uint64_t sheaf_file_change(struct sheaf_file *f);
/* What sheaf_close() would report, without closing: -EIO: data written since the last fsync were lost; said
 * again until an fsync or close has said it. No server is asked unless a link has been down since the write. */
SHEAF_API int sheaf_flush(struct sheaf_file *f);
/* sheaf_close() by somebody for whom nobody waits: where nothing was written and no lock is held through the file, the server
 * hears of it with the next request, or half a millisecond later. */
SHEAF_API int sheaf_close_later(struct sheaf_file *f);

/* A write behind the end, as if the file had been opened with O_APPEND. */
SHEAF_API ssize_t sheaf_append(struct sheaf_file *f, const void *buf, size_t len);
/* As fallocate(2). mode: 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE
 * with or without FALLOC_FL_KEEP_SIZE; others are -EOPNOTSUPP, and so are holes where the servers' file systems
 * have none. -ENOSPC: a part of the range may have got its room. */
SHEAF_API int sheaf_fallocate(struct sheaf_file *f, int mode, off_t off, off_t len);
/* As lseek(2) with SEEK_DATA or SEEK_HOLE, but nothing moves: the offset, or -ENXIO behind the end of the file or
 * when there are no more data. The end is a hole. */
SHEAF_API off_t sheaf_seek(struct sheaf_file *f, off_t off, int whence);
/* As copy_file_range(2): the data go from server to server. The number of bytes, which may be smaller than len
 * (0: off_in is at the end or behind it); holes may become zeros. -EINVAL: the ranges are of one file and
 * overlap; -EXDEV: two connections. */
SHEAF_API ssize_t sheaf_copy_range(struct sheaf_file *in, off_t off_in, struct sheaf_file *out,
				   off_t off_out, size_t len);
/* out and st, of what was made or linked, may be NULL. */
SHEAF_API int sheaf_h_mkdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			    const char *name, mode_t mode, struct sheaf_handle *out,
			    struct stat *st);
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
/* What the one or two directories had right after this thread's last change of a name in them: sheaf_h_mkdir(), _mknod(),
 * _symlink(), _link(), _unlink(), _rmdir(), _rename(), an open that made the file, or a call with paths that does the same;
 * that of the old name first. Returns how many: 0 when the call failed, changed nothing, or it is not known (the change
 * took several servers, or its first answer was lost). Asks nobody. */
struct sheaf_dir_after {
	struct sheaf_handle dir;
	uint64_t change; /* grows with each change of the directory: of two answers the greater one is the newer */
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
/* Entries behind cookie; returns how many were filled, 0 at the end. */
SHEAF_API int sheaf_h_readdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
			      uint64_t cookie, struct sheaf_dirent *out, int max);
/* With their attributes, as sheaf_readdir_stat() has them. */
SHEAF_API int sheaf_h_readdir_stat(struct sheaf *fs, const struct sheaf_cred *c,
				   struct sheaf_handle dir, uint64_t cookie,
				   struct sheaf_dirent *out, struct stat *st, int max);

/* ---- advisory locks, across all clients ---- */

struct sheaf_lock {
	uint32_t size; /* sizeof(struct sheaf_lock) */
	uint32_t type; /* F_RDLCK, F_WRLCK, F_UNLCK */
	uint64_t start, length; /* length 0: to the end, wherever it will be */
	uint64_t owner; /* chosen by the caller: a process, an open file. Of this connection only */
	uint32_t pid; /* what sheaf_lock_test() tells others */
};
/* As fcntl(F_SETLK), or with `wait` F_SETLKW: locks of an owner replace each other, split and merge, through whichever
 * sheaf_file of that file. -EAGAIN: held by another, and not to wait; -EDEADLK; -ENOLCK: too many; -EINTR: cancelled.
 * Closing a sheaf_file lets go of what was last taken through it. After -ETIMEDOUT and its like nobody knows: unlock, or close. -EIO from here, from reads
 * and from writes: the lock was lost with the connection; see libsheaf(3). */
SHEAF_API int sheaf_lock(struct sheaf_file *f, const struct sheaf_lock *l, int wait);
/* As F_GETLK: what would be in the way replaces *l; nothing: its type becomes F_UNLCK. */
SHEAF_API int sheaf_lock_test(struct sheaf_file *f, struct sheaf_lock *l);
/* As flock(2): LOCK_SH, LOCK_EX, LOCK_UN, with LOCK_NB perhaps. Independent of sheaf_lock(). */
SHEAF_API int sheaf_flock(struct sheaf_file *f, int op, uint64_t owner);
/* Whatever this owner waits for ends with -EINTR, unless it was granted just before. */
SHEAF_API void sheaf_lock_cancel(struct sheaf *fs, uint64_t owner);

/* ---- one thread that serves many ----
 *
 * A program that takes requests from others, as the mount does, may work on many of them in one thread, each in a task of
 * its own (a coroutine): a call that has to wait parks its task, not the thread. That thread drives the connection; others
 * make calls as ever. */
struct sheaf_tasks {
	void *(*current)(
		void); /* the task of this thread that runs now; NULL: a call blocks the thread */
	void (*park)(
		void *task); /* the current one stops; returns when it was resumed and runs again */
	void (*resume)(
		void *task); /* any thread; must not make calls. May come before park() has stopped it. */
};
/* From now on one thread drives fs: it calls sheaf_drive() again and again. fd: what it waits for beside the servers.
 * Calls without credentials are made as whom the process is now. */
SHEAF_API int sheaf_drive_begin(struct sheaf *fs, const struct sheaf_tasks *t, int fd);
/* Waits until something happens, `ms` at most (-1: for ever): answers of servers are dealt with and tasks resumed. 1: the
 * descriptor is readable or broken, which is looked at only if want_fd; 0: it is not. */
SHEAF_API int sheaf_drive(struct sheaf *fs, int want_fd, int ms);
SHEAF_API void sheaf_drive_wake(struct sheaf *fs); /* ends the wait; any thread */
SHEAF_API void sheaf_drive_end(struct sheaf *fs); /* no task may be parked */

/* ---- files of servers on this host ----
 *
 * From now on sheaf_pread() reads what it may open of their files, and what is in memory of it,
 * itself, past the server. It takes up to 256 descriptors, and one for each server. */
SHEAF_API void sheaf_set_near(struct sheaf *fs, int on);

/* ---- another process goes on with a connection: its sessions, open files and locks ---- */

/* The number of this open: unique in its connection, and the same after an import. */
SHEAF_API uint64_t sheaf_file_id(struct sheaf_file *f);
/* Writes all that another process needs to fd, from its offset on; SECRETS are in it: a memfd, or a file that nobody else
 * reads. -EBUSY: an operation is under way, or was not waited for. On success the servers keep everything for their lease,
 * and fs is good for sheaf_abandon() and sheaf_resume() only: other calls are -ESHUTDOWN. -EOPNOTSUPP for local:DIR. */
SHEAF_API int sheaf_export(struct sheaf *fs, int fd);
/* As sheaf_connect(), with what was exported, from fd's offset on; each export is for one import. */
SHEAF_API int sheaf_import(const char *conf, int fd, struct sheaf **fs);
/* An open file of the other process, each once: -ENOENT. */
SHEAF_API int sheaf_import_file(struct sheaf *fs, uint64_t id, struct sheaf_file **f);
/* After an export that nobody imported, or whose importer ended before it made calls of its own: fs can be used again. 0. */
SHEAF_API int sheaf_resume(struct sheaf *fs);
/* Frees fs and its files without a word to the servers, which keep what is open and locked for their lease. No operation
 * may be under way. */
SHEAF_API void sheaf_abandon(struct sheaf *fs);

#ifdef __cplusplus
}
#endif
#endif
