/* libsheaf: a parallel file system for scattered data. Public interface.
 *
 * Every call returns 0 or a count, or -errno. All calls are thread-safe. A read that reaches the
 * end of the file returns a short count; holes read as zeros. */
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
struct sheaf_op; /* a started transfer */
struct sheaf_type; /* describes scattered bytes as a nested pattern */

/* conf: a cluster file; NULL: the default search ($SHEAF_CONF, ./sheaf.conf,
 * /etc/sheaf/sheaf.conf); "local:DIR": a file system inside this process. sheaf_why()
 * explains a failure. */
SHEAF_API int sheaf_connect(const char *conf, struct sheaf **fs);
SHEAF_API void sheaf_disconnect(struct sheaf *fs);
/* How long later calls wait for a server that does not answer; the default is the `timeout` of the
 * cluster file. A change whose call timed out may still happen when the server continues. */
SHEAF_API void sheaf_set_timeout(struct sheaf *fs, int timeout_ms);
/* Tells users why this thread's last sheaf_connect() or administrative call failed. */
SHEAF_API const char *sheaf_why(void);
/* Tells users what a (negative) errno means here. */
SHEAF_API const char *sheaf_strerror(int err);

struct sheaf_layout {
	uint32_t size; /* sizeof(struct sheaf_layout) */
	uint32_t stripe_unit, width; /* 0: the default */
};

/* flags: O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW.
 * Symbolic links are followed as by open(2); O_CREAT through a dangling link creates its target.
 * With O_APPEND every write, whatever its offsets, goes to the end of the file as one piece, also
 * when other clients append. */
SHEAF_API int sheaf_open(struct sheaf *fs, const char *path, int flags, mode_t mode,
			 const struct sheaf_layout *layout, struct sheaf_file **f);
/* -EIO: data written since the last fsync were lost. Frees f whatever it returns. */
SHEAF_API int sheaf_close(struct sheaf_file *f);
SHEAF_API ssize_t sheaf_pread(struct sheaf_file *f, void *buf, size_t len, off_t off);
SHEAF_API ssize_t sheaf_pwrite(struct sheaf_file *f, const void *buf, size_t len, off_t off);

struct sheaf_extent {
	uint64_t offset, length;
};

/* The native form: moves the bytes of mem, in order, from or to the extents, in order. Both sides
 * may have any number of entries of any size; their totals must be equal (-EINVAL before anything
 * is sent). */
SHEAF_API ssize_t sheaf_read_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
				  const struct sheaf_extent *ext, size_t n_ext);
SHEAF_API ssize_t sheaf_write_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
				   const struct sheaf_extent *ext, size_t n_ext);

/* Types describe scattered bytes as nested patterns: an access of ten million pieces is a message
 * of some hundred bytes. Counts, blocks, sizes, subsizes and starts are in elements of `of`, which
 * may be freed at once; strides and displacements are in bytes. The extent of a type, the distance
 * between its copies, is the upper minus the lower bound of its elements; that of a subarray (C
 * order) is the whole array's. -EINVAL: sizes overflow, a subarray exceeds its array, or `of` is
 * NULL; -E2BIG: nested deeper than 32, or longer than 1 MiB when encoded. *t is then NULL, so that
 * a chain of constructors may be checked at its end. docs/scattered.md is a tutorial. */
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
/* The same data with other bounds, and so another extent. */
SHEAF_API int sheaf_type_resized(const struct sheaf_type *of, int64_t lower, int64_t upper,
				 struct sheaf_type **t);
/* The pieces of t, tiled from `base` on, that hold the `len` bytes of data from byte `skip` on, in
 * order: fills at most max and returns how many. -EINVAL as for transfers. */
SHEAF_API ssize_t sheaf_type_pieces(const struct sheaf_type *t, uint64_t base, uint64_t skip,
				    uint64_t len, struct sheaf_extent *out, size_t max);
/* How many bytes of data lie before `offset`, if t is tiled from `base` on. -EINVAL: the data of t
 * are not in ascending order. */
SHEAF_API int64_t sheaf_type_before(const struct sheaf_type *t, uint64_t base, uint64_t offset);
SHEAF_API void sheaf_type_free(struct sheaf_type *t);
SHEAF_API uint64_t sheaf_type_size(const struct sheaf_type *t); /* bytes of data */
SHEAF_API void sheaf_type_bounds(const struct sheaf_type *t, int64_t *lower, int64_t *upper);
/* Moves data between memory, mem_count copies of mem_type from mem on, and the file, file_type
 * tiled from file_off on; both in order. The totals need not agree: memory determines how many
 * bytes move. -EINVAL: a type is NULL, an offset is below 0 or an end beyond 2^63 - 1, the file
 * side has no data, or the file of a write was opened with O_APPEND. */
SHEAF_API ssize_t sheaf_read_typed(struct sheaf_file *f, void *mem,
				   const struct sheaf_type *mem_type, uint64_t mem_count,
				   uint64_t file_off, const struct sheaf_type *file_type);
SHEAF_API ssize_t sheaf_write_typed(struct sheaf_file *f, const void *mem,
				    const struct sheaf_type *mem_type, uint64_t mem_count,
				    uint64_t file_off, const struct sheaf_type *file_type);

/* The same from byte `skip` of the file side's data on: a view of the file, used in parts. */
SHEAF_API ssize_t sheaf_read_view(struct sheaf_file *f, void *mem,
				  const struct sheaf_type *mem_type, uint64_t mem_count,
				  uint64_t file_off, const struct sheaf_type *file_type,
				  uint64_t skip);
SHEAF_API ssize_t sheaf_write_view(struct sheaf_file *f, const void *mem,
				   const struct sheaf_type *mem_type, uint64_t mem_count,
				   uint64_t file_off, const struct sheaf_type *file_type,
				   uint64_t skip);

/* The same without waiting. Memory, lists and types must stay valid until sheaf_wait() or a
 * successful sheaf_test(). sheaf_test: 1: done (the op is freed, *result is set); 0: not yet.
 * sheaf_wait: returns the result and frees the op. */
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
SHEAF_API int sheaf_read_view_start(struct sheaf_file *f, void *mem,
				    const struct sheaf_type *mem_type, uint64_t mem_count,
				    uint64_t file_off, const struct sheaf_type *file_type,
				    uint64_t skip, struct sheaf_op **op);
SHEAF_API int sheaf_write_view_start(struct sheaf_file *f, const void *mem,
				     const struct sheaf_type *mem_type, uint64_t mem_count,
				     uint64_t file_off, const struct sheaf_type *file_type,
				     uint64_t skip, struct sheaf_op **op);
SHEAF_API int sheaf_test(struct sheaf_op *op, ssize_t *result);
SHEAF_API ssize_t sheaf_wait(struct sheaf_op *op);
/* For event loops: a descriptor of this connection that is readable (poll, epoll) while operations
 * that were started after the first call of sheaf_fd() have ended and were not listed; or -errno.
 * Only poll it; sheaf_disconnect() closes it. sheaf_completed: lists such operations, each once, at
 * most max, and returns their number; sheaf_wait() and sheaf_test() then return at once. */
SHEAF_API int sheaf_fd(struct sheaf *fs);
SHEAF_API int sheaf_completed(struct sheaf *fs, struct sheaf_op **ops, int max);

SHEAF_API int sheaf_fsync(struct sheaf_file *f);
SHEAF_API int sheaf_fstat(struct sheaf_file *f, struct stat *st);
SHEAF_API int sheaf_ftruncate(struct sheaf_file *f, off_t size);
SHEAF_API int sheaf_truncate(struct sheaf *fs, const char *path, off_t size);
SHEAF_API int sheaf_stat(struct sheaf *fs, const char *path, struct stat *st);
SHEAF_API int sheaf_lstat(struct sheaf *fs, const char *path, struct stat *st);
SHEAF_API int sheaf_unlink(struct sheaf *fs, const char *path);
SHEAF_API int sheaf_mkdir(struct sheaf *fs, const char *path, mode_t mode);
SHEAF_API int sheaf_rmdir(struct sheaf *fs, const char *path);
/* Creates a pipe, a socket or (for root) a device, which work through a mount; or an empty file. */
SHEAF_API int sheaf_mknod(struct sheaf *fs, const char *path, mode_t mode, dev_t dev);
SHEAF_API int sheaf_rename(struct sheaf *fs, const char *from, const char *to);
/* Adds a name for the file `old`; -EPERM: a directory. A symbolic link is linked, not followed. */
SHEAF_API int sheaf_link(struct sheaf *fs, const char *old, const char *path);
/* target: any text of 1 to 4,095 bytes; an absolute path begins at the root of this file system. */
SHEAF_API int sheaf_symlink(struct sheaf *fs, const char *target, const char *path);
/* As readlink(2): returns the number of bytes, cut at len, without a terminating NUL. */
SHEAF_API ssize_t sheaf_readlink(struct sheaf *fs, const char *path, char *buf, size_t len);
SHEAF_API int sheaf_chmod(struct sheaf *fs, const char *path, mode_t mode);
SHEAF_API int sheaf_chown(struct sheaf *fs, const char *path, uid_t uid, gid_t gid);
SHEAF_API int sheaf_utimens(struct sheaf *fs, const char *path, const struct timespec ts[2]);

/* Extended attributes as in xattr(7): user.* and, for root, trusted.*; values of at most 64 KiB,
 * 1 MiB in total (-ENOSPC). flags: XATTR_CREATE, XATTR_REPLACE. size 0: returns the length;
 * -ERANGE: size is too small. */
SHEAF_API int sheaf_setxattr(struct sheaf *fs, const char *path, const char *name,
			     const void *value, size_t size, int flags);
SHEAF_API ssize_t sheaf_getxattr(struct sheaf *fs, const char *path, const char *name, void *value,
				 size_t size);
SHEAF_API ssize_t sheaf_listxattr(struct sheaf *fs, const char *path, char *list, size_t size);
SHEAF_API int sheaf_removexattr(struct sheaf *fs, const char *path, const char *name);

/* Byte b of a file is in stripe b / stripe_unit; stripe k is on servers[(start + k) % width]. */
#define SHEAF_MAX_SERVERS 256
struct sheaf_layout_info {
	uint32_t size; /* in: sizeof(struct sheaf_layout_info) */
	uint32_t stripe_unit, width, start;
	uint64_t bytes; /* size of the file as recorded */
	int growing; /* the file has writers: it may be larger by now */
	uint32_t servers[SHEAF_MAX_SERVERS]; /* `width` ids */
};
/* Asks only the metadata server: works while data servers are down. Does not follow a symbolic
 * link; -EINVAL: not a regular file. The same as text: sheaf_getxattr(fs, path, "sheaf.layout",
 * ...). */
SHEAF_API int sheaf_get_layout(struct sheaf *fs, const char *path, struct sheaf_layout_info *l);

/* Space of all data servers together; -ETIMEDOUT etc. if one does not answer. Counts of inodes are
 * 0: they have no limit. */
SHEAF_API int sheaf_statfs(struct sheaf *fs, struct statvfs *st);

struct sheaf_dirent {
	uint64_t ino;
	uint64_t cookie; /* to continue behind this entry */
	uint32_t type; /* S_IFDIR, S_IFREG, ... */
	uint32_t gen; /* with ino: its handle (sheaf_handle.h) */
	char name[256];
};
SHEAF_API int sheaf_opendir(struct sheaf *fs, const char *path, struct sheaf_dir **d);
/* 1: an entry; 0: the end; or -errno. */
SHEAF_API int sheaf_readdir(struct sheaf_dir *d, struct sheaf_dirent *e);
/* The same with attributes. st_nlink 0: there are none; then st_mode is 0 if the entry was removed
 * meanwhile, or its type if the directory may be read but not searched (no x). */
SHEAF_API int sheaf_readdir_stat(struct sheaf_dir *d, struct sheaf_dirent *e, struct stat *st);
SHEAF_API void sheaf_seekdir(struct sheaf_dir *d, uint64_t cookie); /* 0: the beginning */
SHEAF_API void sheaf_closedir(struct sheaf_dir *d);

#ifdef __cplusplus
}
#endif
#endif
