/* client: libsheaf without threads. Operations are step machines on a loop that the caller drives.
 *
 * A cop is one operation. The caller takes one with cop_new(), fills in its arguments and starts
 * it. done() runs on the loop when the operation has ended, with `result` set; then the caller
 * calls cop_free(). The blocking interface (api.c) starts an operation and drives the loop; the
 * simulation starts many cops at once. */
#ifndef SHEAF_CLIENT_H
#define SHEAF_CLIENT_H

#include "direct/direct.h"
#include "layout/layout.h"
#include "net/net.h"
#include "net/peer.h"
#include "sheaf_handle.h"

struct client;
struct cfile;
struct cop;
struct bank_call;

struct client_opts {
	struct loop *loop;
	const struct conf *conf; /* borrowed until client_free() */
	uint8_t key[KEY_BYTES];
	char key_name[CONF_NAME_MAX]; /* "": the default key */
	struct loopback_hub *hub; /* connects to servers of this process; or NULL */
	const char *const *addresses; /* used instead of those in conf, or NULL */
	const char *name; /* names this client to servers; NULL: host name and pid */
	/* NULL, or the first client of this loop: the new one uses its net, and ends before it */
	struct client *of;
	const uint8_t *session_name; /* SESSION_NAME bytes; NULL: none */
};
int client_new(const struct client_opts *o, struct client **out);
/* Another client on the same loop and net, with sessions of this name (see OP_SESSION); `host`
 * names it to servers. It ends before `of`. */
int client_fork(struct client *of, const uint8_t name[SESSION_NAME], const char *host,
		struct client **out);
/* Outside the simulation: measures costs, makes bad memory an error, reads $SHEAF_MOVER. */
int movers_init(struct client *c);
/* Asks it for as many bytes of nothing; the result is the time in ns, or -EIO. It must be open. */
void client_bank_ask(struct cop *op, uint64_t bytes);
/* Opens the cache bank of the cluster file, once. -errno: reads do without it. */
int client_bank_open(struct client *c);
/* The same: direct reads on or off, by $SHEAF_DIRECT. */
int direct_switch(struct client *c);
void client_set_mover(struct client *c, enum net_method how); /* for transfers that start later */
/* Up to n extents for one server cost no more as a list than as a pattern; n is at least 1. */
void client_set_max_list_extents(struct client *c, size_t n);
/* No operation may be under way. Closes links; sessions end with their lease or by client_bye(). */
void client_free(struct client *c);

/* Halts the client and encodes all that another process needs to continue it (proto/export.x,
 * without the head). The caller frees *out. -EBUSY: an operation is under way or was not freed.
 * Afterwards there are no links, and all operations end with -ESHUTDOWN until client_resume(). */
int client_export(struct client *c, struct wire_bytes *out);
/* Gives a new client the state of an exported one; it does nothing before client_resume(). After an
 * error the client can only be freed. */
int client_import(struct client *c, const struct wire_bytes *in);
void client_resume(struct client *c);
/* Returns an imported file, once. NULL: no file has this id, or it was returned before. */
struct cfile *client_imported(struct client *c, uint64_t id);

/* ---- share.c: opens that several processes use ---- */
void client_renew(struct cop *op, struct cfile *f); /* gets a fresh capability */
/* Returns the length. -ERANGE: size is too small; -EINVAL: not a file that can be shared. */
ssize_t client_ticket(struct cfile *f, uint8_t *out, size_t size);
#define TICKET_BYTES_MAX 8192
/* Opens a guest. -EBADMSG, -EPROTONOSUPPORT, -EXDEV: not a ticket for this; -ESTALE: open it. */
int client_open_ticket(struct client *c, const struct cred_wire *cred, const void *p, size_t len,
		       struct cfile **out);
int client_take_ticket(struct cfile *f, const void *p, size_t len); /* the same file, later */

/* ---- operations ---- */

/* The wait for space after a request was refused with -ENOSPC (space.c). */
struct space_wait {
	struct cop *ask; /* the question to the metadata servers, or NULL */
	uint64_t until; /* when the wait gives up; 0: no refusal yet */
	bool is_last; /* nothing was being removed: the next refusal is final */
};

struct transfer; /* a list read or write; transfer.c */

struct cop {
	struct req q;
	struct client *c;
	struct list spare;
	struct arena arena;
	void (*done)(struct cop *op);
	void *user; /* private to the caller */
	void *handle; /* of a started operation, private to the caller; or NULL */
	void *state; /* private to the operation */
	int64_t result; /* 0, a count or -errno */
	bool finished;
	bool refused; /* see cop_refuse() */
	struct cred_wire cred;
	uint32_t umask; /* for what the operation creates */
	struct wire_new_attr set; /* of what client_mkdir() etc. create */
	struct call call;
	uint32_t hops; /* referrals followed; client_ask(): the target */
	uint64_t sent_at; /* when the last request was sent */
	bool may_defer; /* of a close: nothing waits for it, the call may be deferred */
	/* cached referrals may be wrong after it; set by the table, or before its start */
	bool moves;
	bool repeatable; /* an OPEN that changes nothing, in spite of OPF_ONCE */
	bool recorded_only; /* recorded attributes suffice: the objects are not asked */
	bool map_asked; /* the cluster map was asked for already */
	uint64_t ino; /* of operations on an inode, whose owner gets the request */
	struct wire_place *place, *place2; /* in args: what is left of the paths, or NULL */
	struct wire_place start, start2; /* the paths at the start */
	int64_t upto; /* SETATTR of mtime: replaces the mtime of writes up to this one */
	uint32_t tries; /* restarts because a name vanished during the walk */
	struct space_wait space_wait; /* of operations on names */
	union wire_op_args args;
	union {
		struct wire_void_res none;
		struct wire_attr_res attr; /* also of lookup */
		struct wire_made_res made; /* valid until cop_free(), as `after` */
		struct wire_dirs_after after;
		struct wire_lookup_res lookup;
		struct wire_getattr_res getattr;
		struct wire_recorded_res recorded;
		struct wire_open_res open;
		struct wire_readdir_res readdir; /* valid until cop_free() */
		struct wire_status_res status;
		struct wire_calibrate_res calibrate;
		struct wire_requests_res requests;
		struct wire_tally_res tally;
		struct wire_readlink_res readlink; /* valid until cop_free(), as xattr */
		struct wire_xattr_res xattr;
		struct wire_scan_res scan;
		struct wire_lock_res lock;
		struct wire_map_res map;
		struct wire_backup_res backup;
		struct wire_kept_res kept;
	} res;
	struct wire_attr attr; /* of stat-like operations: with the true size and mtime */
	struct cfile *file; /* argument, or the result of an open */
	struct access access; /* of a transfer */
	struct transfer *transfer;
	uint64_t plain_began; /* of an access that is measured for the cache bank; or 0 */
	unsigned plain_class; /* its class (cache.h) */
	struct bank_call *probe; /* to be made after it, or NULL */
	struct bank_call *look; /* of attributes in the bank; NULL: none, or it took too long */
	bool has_looked, is_found;
	uint64_t look_began, look_stamp; /* by the clock and the wall clock; look_began 0: none */
	uint64_t look_talk_ns; /* how long the bank took */
	struct iovec one_mem; /* plain reads and writes are lists of one entry */
	struct extent one_ext;
	uint64_t space_total, space_avail; /* of client_statfs() */
};

void client_cache_cred(struct client *c, bool on); /* uid and groups are constant: cache them */
struct cop *cop_new(struct client *c, const struct sheaf_cred *cred); /* NULL: out of memory */
/* Makes *op an operation for which there is no memory: it ends with -ENOMEM when it starts. */
void cop_refuse(struct cop *op, struct client *c);
void cop_free(struct cop *op);

/* Names: path is borrowed until done(). An empty path means dir itself where that makes sense. Only
 * client_stat() and client_open() follow a symbolic link at the end of the path. */
void client_stat(struct cop *op, struct sheaf_handle dir, const char *path);
void client_lookup(struct cop *op, struct sheaf_handle dir, const char *path);
void client_getattr(struct cop *op, struct sheaf_handle h);
/* Recorded attributes and layout: in res.getattr until cop_free(). Asks no data target. */
void client_layout(struct cop *op, struct sheaf_handle h);
void client_setattr(struct cop *op, struct sheaf_handle h, unsigned which, const struct stat *st);
void client_open(struct cop *op, struct sheaf_handle dir, const char *path, int flags, mode_t mode,
		 const struct sheaf_layout *layout); /* sets op->file */
void client_mkdir(struct cop *op, struct sheaf_handle dir, const char *path, mode_t mode);
/* A pipe, a socket or a device; client_open() creates regular files. */
void client_mknod(struct cop *op, struct sheaf_handle dir, const char *path, mode_t mode,
		  dev_t dev);
void client_unlink(struct cop *op, struct sheaf_handle dir, const char *path);
void client_rmdir(struct cop *op, struct sheaf_handle dir, const char *path);
void client_rename(struct cop *op, struct sheaf_handle dir, const char *from,
		   struct sheaf_handle dir2, const char *to, unsigned flags);
void client_link(struct cop *op, struct sheaf_handle h, struct sheaf_handle dir, const char *path);
void client_symlink(struct cop *op, const char *target, struct sheaf_handle dir, const char *path);
void client_readlink(struct cop *op, struct sheaf_handle dir, const char *path);
void client_truncate(struct cop *op, struct sheaf_handle h, uint64_t size);
void client_ftruncate(struct cop *op, struct cfile *f, uint64_t size);
/* Extended attributes: name and value are borrowed until done(). res.xattr has the size, and the
 * data if they are not longer than max. */
void client_getxattr(struct cop *op, struct sheaf_handle h, const char *name, size_t max);
void client_listxattr(struct cop *op, struct sheaf_handle h, size_t max);
void client_setxattr(struct cop *op, struct sheaf_handle h, const char *name, const void *value,
		     size_t size, int flags);
void client_removexattr(struct cop *op, struct sheaf_handle h, const char *name);
/* attrs: also return attributes of inodes of this server; unsettled sizes stay lower bounds. */
void client_readdir(struct cop *op, struct sheaf_handle dir, uint64_t cookie, uint32_t max,
		    bool attrs);

/* Files. client_close() frees the cfile, whatever its result. */
void client_close(struct cop *op, struct cfile *f);
void client_flush(struct cop *op, struct cfile *f); /* the error of a close, without the report */
void client_fsync(struct cop *op, struct cfile *f);
/* mem and ext are borrowed until done(). */
void client_read(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		 const struct extent *ext, size_t n_ext);
void client_write(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		  const struct extent *ext, size_t n_ext);
/* Direct reads (direct/direct.h): as direct_read_begin() and direct_read_end(), with what the
 * client knows of the file. Between them the read counts as an operation. */
int client_direct_begin(struct cfile *f, uint64_t off, uint64_t len,
			struct direct_piece out[DIRECT_PIECES]);
bool client_direct_end(struct cfile *f, const struct direct_piece *p, int n, int error);
void client_set_direct(struct client *c, bool on);
/* Both sides of an access as patterns with equal totals; borrowed until done(). -EINVAL: a write to
 * a file that was opened with O_APPEND. */
struct typed {
	struct pattern mem, file;
	int64_t base; /* file offset of the file pattern */
	uint64_t skip; /* bytes of the file pattern before the access */
};
void client_typed(struct cop *op, struct cfile *f, const struct typed *t, bool write);
/* How the access in op->access, a list or patterns, would be cut into requests for each object of
 * f. Sends nothing and moves nothing; op is not started. 0 or -ENOMEM. */
struct parts {
	uint64_t requests;
	uint64_t inlined; /* bytes of data inside the requests */
};
int client_plan(struct cop *op, struct cfile *f, const struct typed *t, bool write,
		enum net_method how, struct parts *out /* one per object */);
/* Writes at the end of the file, as client_write() with O_APPEND; only the total of ext counts. */
void client_append(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		   const struct extent *ext, size_t n_ext);
/* Allocates, zeroes or punches a range. mode: ALLOC_KEEP_SIZE etc., as in OP_ALLOCATE. */
void client_allocate(struct cop *op, struct cfile *f, uint32_t mode, uint64_t off, uint64_t len);
/* Copies from server to server. result: the bytes copied, which may be fewer than len. */
void client_copy(struct cop *op, struct cfile *in, uint64_t off_in, struct cfile *out,
		 uint64_t off_out, uint64_t len);
/* Finds the next data or hole from off on. -ENXIO: off is at or behind the end, or no data. */
void client_seek(struct cop *op, struct cfile *f, uint64_t off, bool hole);
/* The write verifier of the file; false: a server was not reached yet, client_verifier() asks. */
bool cfile_verifier(const struct cfile *f, uint64_t *v);
void client_verifier(struct cop *op, struct cfile *f);
/* Locks. A wait ends with -EINTR after client_lock_cancel(), unless the lock was granted before. */
void client_lock(struct cop *op, struct cfile *f, const struct wire_lock *want, bool wait);
void client_lock_test(struct cop *op, struct cfile *f,
		      const struct wire_lock *want); /* sets res.lock.found */
void client_lock_cancel(struct client *c, uint64_t owner);
/* Locks of the file were lost with the session, and their owners have not been told yet. */
bool file_locks_lost(const struct cfile *f);
struct sheaf_handle cfile_handle(const struct cfile *f);
uint64_t cfile_id(const struct cfile *f); /* of the open */
bool cfile_clean(const struct cfile *f); /* client_flush() would send nothing and return 0 */

/* Administration. */
/* Sends any operation to one server, with op->args and op->res. */
void client_ask(struct cop *op, uint32_t number, uint32_t target, uint64_t timeout_ns);
uint32_t client_meta_of(const struct client *c, uint64_t ino); /* the metadata server of ino */
/* The space of all data targets together; a disk that several targets share counts once. A target
 * that does not answer is an error. */
void client_statfs(struct cop *op);
void client_bye(struct cop *op); /* ends our sessions at the servers that have a link */

void attr_to_stat(const struct wire_attr *a, struct stat *st);

/* ---- the blocking interface (api.c): what its creator provides ---- */

struct sheaf_backing {
	struct loop *loop;
	struct client *client;
	void *owner;
	void (*teardown)(void *owner); /* called after the client was freed */
	/* connects to the same file system from nothing; NULL: it is inside this process */
	int (*again)(const void *owner, struct sheaf **out);
	bool is_turned; /* the creator turns the loop, and sheaf_drive_begin() follows */
};
int sheaf_wrap(const struct sheaf_backing *b, struct sheaf **out);
/* Reads what sheaf_export() wrote, for client_import(); the caller frees it. */
int export_read(int fd, struct wire_bytes *out);
/* Reads a chunk of a server's backup; id 0 begins one. `data` has room for BACKUP_CHUNK bytes;
 * res->data points to it. */
int api_backup(struct sheaf *fs, uint32_t target, uint64_t id, uint64_t offset,
	       struct wire_backup_res *res, uint8_t *data);
bool api_is_meta(struct sheaf *fs, uint32_t target);
/* Sets the message of sheaf_why(). */
void why_set(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
