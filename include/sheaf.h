/* libsheaf: a parallel file system for scattered data. Public interface.
 *
 * Every call returns 0 or a count, or -errno. All calls are thread-safe. A short read at the end of
 * the file is a short count; a hole reads as zeros. */
#ifndef SHEAF_H
#define SHEAF_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHEAF_API __attribute__((visibility("default")))

struct sheaf; /* a connection to a file system */
struct sheaf_file; /* an open file */
struct sheaf_dir; /* an open directory */
struct sheaf_op; /* a transfer that was started */
struct sheaf_type; /* which bytes, as a nested pattern */

/* conf: a cluster file, NULL for the default search ($SHEAF_CONF, ./sheaf.conf, /etc/sheaf/sheaf.conf),
 * or "local:DIR" for a file system inside this process. sheaf_why() says what went wrong. */
SHEAF_API int sheaf_connect(const char *conf, struct sheaf **fs);
SHEAF_API void sheaf_disconnect(struct sheaf *fs);
/* How long calls that begin from now on wait for a server that does not answer; until then it is the `timeout` of the
 * cluster file. What such a call was to change may happen when the server goes on. */
SHEAF_API void sheaf_set_timeout(struct sheaf *fs, int timeout_ms);
/* Why this thread's last sheaf_connect() or administrative call failed, for people. */
SHEAF_API const char *sheaf_why(void);
/* What a (negative) errno means here, for people. */
SHEAF_API const char *sheaf_strerror(int err);

struct sheaf_layout {
	uint32_t size; /* sizeof(struct sheaf_layout) */
	uint32_t stripe_unit, width; /* 0: the default */
};

/* flags: O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW. Symbolic links
 * are followed as open(2) does; O_CREAT through one that points nowhere makes what it points to. With O_APPEND
 * every write, whatever its offsets, goes behind the end as one piece, also against other clients. */
SHEAF_API int sheaf_open(struct sheaf *fs, const char *path, int flags, mode_t mode,
			 const struct sheaf_layout *layout, struct sheaf_file **f);
/* -EIO: data written since the last fsync were lost */
SHEAF_API int sheaf_close(struct sheaf_file *f);
SHEAF_API ssize_t sheaf_pread(struct sheaf_file *f, void *buf, size_t len, off_t off);
SHEAF_API ssize_t sheaf_pwrite(struct sheaf_file *f, const void *buf, size_t len, off_t off);

struct sheaf_extent {
	uint64_t offset, length;
};

/* The native form: the bytes of mem, in order, from or to the extents, in order. Both sides may have any
 * number of entries of any size; their totals must be equal (-EINVAL before anything is sent). */
SHEAF_API ssize_t sheaf_read_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
				  const struct sheaf_extent *ext, size_t n_ext);
SHEAF_API ssize_t sheaf_write_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
				   const struct sheaf_extent *ext, size_t n_ext);

/* Types describe scattered bytes as nested patterns; an access of ten million pieces is a message of some hundred bytes.
 * Counts, blocks, sizes, subsizes and starts count elements of `of`, which may be freed at once; strides and displacements
 * are bytes. A type's extent, by which copies of it follow each other, is the upper minus the lower bound of the
 * elements it places; a subarray's (C order) is the whole array's. -EINVAL: sizes that overflow, a subarray out of its
 * array, `of` is NULL; -E2BIG: nested deeper than 32, or longer than 1 MiB when encoded. *t is then NULL, so that a chain
 * of constructors may be checked at its end. docs/scattered.md is a tutorial. */
SHEAF_API int sheaf_type_bytes(uint64_t n, struct sheaf_type **t);
SHEAF_API int sheaf_type_vector(uint64_t count, uint64_t block, int64_t stride,
				const struct sheaf_type *of, struct sheaf_type **t);
SHEAF_API int sheaf_type_indexed(size_t n, const uint64_t *blocks, const int64_t *displ,
				 const struct sheaf_type *of, struct sheaf_type **t);
SHEAF_API int sheaf_type_struct(size_t n, const uint64_t *blocks, const int64_t *displ,
				const struct sheaf_type *const *of, struct sheaf_type **t);
SHEAF_API int sheaf_type_subarray(int nd, const uint64_t *sizes, const uint64_t *subsizes,
				  const uint64_t *starts, const struct sheaf_type *of,
				  struct sheaf_type **t);
SHEAF_API void sheaf_type_free(struct sheaf_type *t);
SHEAF_API uint64_t sheaf_type_size(const struct sheaf_type *t); /* bytes of data */
SHEAF_API void sheaf_type_bounds(const struct sheaf_type *t, int64_t *lower, int64_t *upper);
/* mem_count copies of mem_type from mem on, in order, are what file_type, tiled from file_off on for as long as there are
 * data, says, in order. The totals need not agree: it is memory that says how many bytes move. -EINVAL: a type is NULL, an
 * offset below 0 or an end beyond 2^63 - 1, a file side without data, a write to a file that was opened with O_APPEND. */
SHEAF_API ssize_t sheaf_read_typed(struct sheaf_file *f, void *mem,
				   const struct sheaf_type *mem_type, uint64_t mem_count,
				   uint64_t file_off, const struct sheaf_type *file_type);
SHEAF_API ssize_t sheaf_write_typed(struct sheaf_file *f, const void *mem,
				    const struct sheaf_type *mem_type, uint64_t mem_count,
				    uint64_t file_off, const struct sheaf_type *file_type);

/* The same without waiting. Memory, lists and types must stay until sheaf_wait() or a successful sheaf_test().
 * sheaf_test: 1 done (the op is freed, *result set), 0 not yet. sheaf_wait: the result; frees the op. */
SHEAF_API int sheaf_pread_start(struct sheaf_file *f, void *buf, size_t len, off_t off,
				struct sheaf_op **op);
SHEAF_API int sheaf_pwrite_start(struct sheaf_file *f, const void *buf, size_t len, off_t off,
				 struct sheaf_op **op);
SHEAF_API int sheaf_read_list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
				    const struct sheaf_extent *ext, size_t n_ext,
				    struct sheaf_op **op);
SHEAF_API int sheaf_write_list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
				     const struct sheaf_extent *ext, size_t n_ext,
				     struct sheaf_op **op);
SHEAF_API int sheaf_read_typed_start(struct sheaf_file *f, void *mem,
				     const struct sheaf_type *mem_type, uint64_t mem_count,
				     uint64_t file_off, const struct sheaf_type *file_type,
				     struct sheaf_op **op);
SHEAF_API int sheaf_write_typed_start(struct sheaf_file *f, const void *mem,
				      const struct sheaf_type *mem_type, uint64_t mem_count,
				      uint64_t file_off, const struct sheaf_type *file_type,
				      struct sheaf_op **op);
SHEAF_API int sheaf_test(struct sheaf_op *op, ssize_t *result);
SHEAF_API ssize_t sheaf_wait(struct sheaf_op *op);

SHEAF_API int sheaf_fsync(struct sheaf_file *f);
SHEAF_API int sheaf_fstat(struct sheaf_file *f, struct stat *st);
SHEAF_API int sheaf_ftruncate(struct sheaf_file *f, off_t size);
SHEAF_API int sheaf_truncate(struct sheaf *fs, const char *path, off_t size);
SHEAF_API int sheaf_stat(struct sheaf *fs, const char *path, struct stat *st);
SHEAF_API int sheaf_lstat(struct sheaf *fs, const char *path, struct stat *st);
SHEAF_API int sheaf_unlink(struct sheaf *fs, const char *path);
SHEAF_API int sheaf_mkdir(struct sheaf *fs, const char *path, mode_t mode);
SHEAF_API int sheaf_rmdir(struct sheaf *fs, const char *path);
/* A pipe, a socket, or (for root) a device, which a mount gives a meaning; or an empty file. */
SHEAF_API int sheaf_mknod(struct sheaf *fs, const char *path, mode_t mode, dev_t dev);
SHEAF_API int sheaf_rename(struct sheaf *fs, const char *from, const char *to);
/* Another name for the file `old`; not for directories (-EPERM). A symbolic link is linked, not followed. */
SHEAF_API int sheaf_link(struct sheaf *fs, const char *old, const char *path);
/* target: any text of 1 to 4,095 bytes; an absolute one begins at the root of this file system. */
SHEAF_API int sheaf_symlink(struct sheaf *fs, const char *target, const char *path);
/* As readlink(2): the number of bytes, cut at len, no NUL behind them. */
SHEAF_API ssize_t sheaf_readlink(struct sheaf *fs, const char *path, char *buf, size_t len);
SHEAF_API int sheaf_chmod(struct sheaf *fs, const char *path, mode_t mode);
SHEAF_API int sheaf_chown(struct sheaf *fs, const char *path, uid_t uid, gid_t gid);
SHEAF_API int sheaf_utimens(struct sheaf *fs, const char *path, const struct timespec ts[2]);

/* Extended attributes as in xattr(7): user.* and, for root, trusted.*; values of at most 64 KiB, 1 MiB together
 * (-ENOSPC). flags: XATTR_CREATE, XATTR_REPLACE. size 0: how large it is; too small: -ERANGE. */
SHEAF_API int sheaf_setxattr(struct sheaf *fs, const char *path, const char *name,
			     const void *value, size_t size, int flags);
SHEAF_API ssize_t sheaf_getxattr(struct sheaf *fs, const char *path, const char *name, void *value,
				 size_t size);
SHEAF_API ssize_t sheaf_listxattr(struct sheaf *fs, const char *path, char *list, size_t size);
SHEAF_API int sheaf_removexattr(struct sheaf *fs, const char *path, const char *name);

/* Where a file is. Byte b is in stripe b / stripe_unit; stripe k is on servers[(start + k) % width]. */
#define SHEAF_MAX_SERVERS 256
struct sheaf_layout_info {
	uint32_t size; /* in: sizeof(struct sheaf_layout_info) */
	uint32_t stripe_unit, width, start;
	uint64_t bytes; /* size of the file as recorded */
	int growing; /* somebody writes: it may be larger by now */
	uint32_t servers[SHEAF_MAX_SERVERS]; /* ids, width of them */
};
/* Asks the metadata server only: works when the servers that hold the data are down. A symbolic link is not followed;
 * -EINVAL for what is no regular file. The same as text: sheaf_getxattr(fs, path, "sheaf.layout", ...). */
SHEAF_API int sheaf_get_layout(struct sheaf *fs, const char *path, struct sheaf_layout_info *l);

/* Room on the data servers, all together; -ETIMEDOUT and its like when one does not answer. Numbers of
 * inodes are 0: there is no limit to tell. */
SHEAF_API int sheaf_statfs(struct sheaf *fs, struct statvfs *st);

struct sheaf_dirent {
	uint64_t ino;
	uint64_t cookie; /* continue behind this entry */
	uint32_t type; /* S_IFDIR, S_IFREG, ... */
	uint32_t gen; /* with ino: its handle (sheaf_handle.h) */
	char name[256];
};
SHEAF_API int sheaf_opendir(struct sheaf *fs, const char *path, struct sheaf_dir **d);
/* 1, 0 at the end, -errno */
SHEAF_API int sheaf_readdir(struct sheaf_dir *d, struct sheaf_dirent *e);
/* The same with its attributes. Where st_nlink is 0 there are none: st_mode is 0 for one that went away meanwhile,
 * and its type in a directory that may be read but not passed (no x). */
SHEAF_API int sheaf_readdir_stat(struct sheaf_dir *d, struct sheaf_dirent *e, struct stat *st);
SHEAF_API void sheaf_seekdir(struct sheaf_dir *d, uint64_t cookie); /* 0: the beginning */
SHEAF_API void sheaf_closedir(struct sheaf_dir *d);

/* ---- for administrators: make a file system ---- */

struct sheaf_init {
	uint32_t size; /* sizeof(struct sheaf_init) */
	uint32_t servers; /* 0: 4 */
	uint32_t port; /* of the first server, the others follow; 0: 7430 */
	uint32_t stripe_unit; /* 0: 256 KiB */
	const char *listen; /* address without port; NULL: 127.0.0.1 */
	uint32_t metas; /* servers that keep names, the first ones; 0: all */
};
/* Writes DIR/sheaf.conf, DIR/key, DIR/server.key and formats DIR/server0, ... DIR must be missing or
 * empty. sheaf_why() explains a failure. */
SHEAF_API int sheaf_init(const char *dir, const struct sheaf_init *o);

/* ---- for administrators: what `sheaf add-server`, `backup` and `restore` are made of; sheaf_why() explains a
 * failure ---- */

struct sheaf_server;
/* The servers that the metadata servers know of, which may be more than our cluster file has:
 * fills id, roles, name, address and incarnation of at most max, and `up` of the metadata
 * servers that answered within timeout_ms; returns their number, or -errno when none did. */
SHEAF_API int sheaf_map(struct sheaf *fs, int timeout_ms, struct sheaf_server *s, int max);
/* The metadata server that keeps an inode. */
SHEAF_API int sheaf_keeper(struct sheaf *fs, uint64_t ino);
/* Makes the storage directory of server `id` of a cluster file; fine when it was made for it before. */
SHEAF_API int sheaf_server_format(const char *conf, int id);
/* Of one that lost its storage directory, or all objects in it: makes what is missing, empty. 1:
 * that was needed; 0: not, or it runs. */
SHEAF_API int sheaf_server_format_lost(const char *conf, int id);
/* Tells all metadata servers of one more data server, which must have the next id; the same
 * again is fine. -ESTALE: it is known, with other storage. */
SHEAF_API int sheaf_server_add(struct sheaf *fs, int id, const char *name, const char *address);
/* Tells all metadata servers that the storage which this server has now is its own: what files
 * had on the storage before it is lost. The server must be up. */
SHEAF_API int sheaf_server_emptied(struct sheaf *fs, int id);

struct sheaf_backup {
	uint32_t size; /* in: sizeof(struct sheaf_backup) */
	uint32_t servers; /* metadata servers in it */
	uint64_t bytes; /* of the file */
	int64_t time; /* ns since 1970: when it was begun */
	uint32_t ids[SHEAF_MAX_SERVERS]; /* of those servers */
};
/* Copies the metadata of all metadata servers, while they work, into a new file. */
SHEAF_API int sheaf_backup(struct sheaf *fs, const char *file, struct sheaf_backup *b);
/* Reads all of a backup and verifies it. */
SHEAF_API int sheaf_backup_check(const char *file, struct sheaf_backup *b);
/* Puts the metadata of one server back; it must not run. Metadata that changed after the backup are replaced only
 * with `force`: -EEXIST. */
SHEAF_API int sheaf_restore(const char *conf, const char *file, int id, int force);

/* ---- for administrators: what `sheaf status` and `sheaf requests` show ---- */

struct sheaf_server {
	uint32_t id, roles; /* 1 meta, 2 data */
	char name[32], address[128];
	int up; /* 1: answered; else 0, and only the fields above are set */
	uint32_t pid, links, sessions, in_service;
	uint64_t uptime_ns, rss_bytes, anon_bytes, requests;
	uint64_t space_total, space_avail, pool_bytes, pool_free, pool_waits;
	uint64_t bad_links, slow_inline, disk_inline, disk_handed;
	uint64_t calls; /* of the system, by its loop */
	uint64_t refused; /* requests and links, for any reason */
	uint64_t bytes_read, bytes_written; /* of data, since it started */
	uint64_t storage; /* servers with the same number share their space; 0: not known */
	uint32_t load; /* clients whose bulk it moves; pool_bytes - pool_free of it are on their way */
	uint64_t incarnation; /* of its storage: another one after each format; from sheaf_map(): as the map knows it, or 0 */
};
/* System calls that this connection has made so far. */
SHEAF_API uint64_t sheaf_calls(struct sheaf *fs);
SHEAF_API int sheaf_server_count(struct sheaf *fs);
/* Asks one server, for at most timeout_ms. 0 also when it is down (see up). */
SHEAF_API int sheaf_server_status(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s);

/* A round trip to server i and nothing else; waits as long as any operation does. */
SHEAF_API int sheaf_ping(struct sheaf *fs, int i);

struct sheaf_request {
	char op[33], state[33], client[65];
	uint64_t age_ns, state_ns, trace, session, ino;
	uint32_t uid;
};
/* What server i is working on, oldest first: fills at most max rows, returns their number. */
SHEAF_API int sheaf_server_requests(struct sheaf *fs, int i, int timeout_ms,
				    struct sheaf_request *rows, int max);

#ifdef __cplusplus
}
#endif
#endif
