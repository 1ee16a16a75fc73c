/* client: libsheaf without threads: operations as step machines on a loop that somebody turns.
 *
 * A cop is one operation: take it with cop_new(), fill its arguments, start it; done() is called on the
 * loop when it has ended, with `result` set; then cop_free(). The blocking interface (api.c) is "start, then
 * drive"; the simulation starts cops by the dozen. */
#ifndef SHEAF_CLIENT_H
#define SHEAF_CLIENT_H

#include "layout/layout.h"
#include "net/net.h"
#include "sheaf_handle.h"

struct client;
struct cfile;
struct cop;

struct client_opts {
	struct loop *loop;
	const struct conf *conf; /* borrowed until client_free() */
	uint8_t key[KEY_BYTES];
	char key_name[CONF_NAME_MAX]; /* "": the default one */
	struct loop_hub *hub; /* or NULL */
	const char *const *addresses; /* instead of those in conf, or NULL */
	const char *name; /* what servers know us by; NULL: host and process */
};
int client_new(const struct client_opts *o, struct client **out);
/* For a client of the real world: constants are measured, bad memory is an error, $SHEAF_MOVER counts. */
int movers_init(struct client *c);
void client_set_mover(struct client *c, enum net_mover how); /* of transfers from now on */
/* So many extents for one server cost no more as a list than as a pattern; at least 1. */
void client_set_list_most(struct client *c, size_t n);
void client_set_timeout(struct client *c,
			uint64_t ns); /* of calls from now on; else the cluster file's */
/* No operation may be under way. Links close; sessions end with their lease unless client_bye() ran. */
void client_free(struct client *c);

/* Another process goes on: all that it needs (proto/export.x, without the head), to be freed. -EBUSY: an operation is under
 * way, or was not given back. Then the client has no links, and all operations end with -ESHUTDOWN until client_go_on(). */
int client_export(struct client *c, struct wire_bytes *out);
/* A new client becomes what another one was; it does nothing before client_go_on(). After an error it can only be freed. */
int client_import(struct client *c, const struct wire_bytes *in);
void client_go_on(struct client *c);
/* An imported file, once; NULL: there is none of this id, or it was asked for before. */
struct cfile *client_imported(struct client *c, uint64_t id);

/* ---- operations ---- */

/* Room that a request was refused for want of (full.c). */
struct room {
	struct cop *ask; /* the question under way, or NULL */
	uint64_t until; /* when it gives up; 0: nothing was refused yet */
	bool none; /* nothing was being removed: the next refusal is final */
};

struct transfer; /* of list reads and writes; in transfer.c */
struct sizing; /* the size of a file that is being written; in sizing.c */

struct cop {
	struct req q;
	struct client *c;
	struct list spare;
	struct arena arena;
	void (*done)(struct cop *op);
	void *user; /* of whoever waits */
	void *state; /* of the operation */
	int64_t result; /* 0 or a count, or -errno */
	bool finished;
	struct cred_wire cred;
	uint32_t umask; /* of what it makes */
	struct call call;
	uint32_t hops; /* referrals followed */
	uint64_t asked; /* when the last question left */
	bool later; /* of a close: nobody waits for it */
	bool plain; /* attributes as recorded will do: nobody asks the objects */
	bool learned; /* asked for the map already */
	struct wire_place *place, *place2; /* into args: where the walk is */
	struct wire_place start, start2; /* where it began */
	int64_t upto; /* of setting a time by hand: writes that it outlives */
	uint32_t tries; /* what was found on the way went away before it was used */
	struct room room; /* of an operation on names */
	union {
		struct wire_void_args none;
		struct wire_lookup_args lookup;
		struct wire_getattr_args getattr;
		struct wire_setattr_args setattr;
		struct wire_open_args open;
		struct wire_close_args close;
		struct wire_record_args record;
		struct wire_durable_args durable;
		struct wire_mkdir_args mkdir;
		struct wire_mknod_args mknod;
		struct wire_unlink_args unlink;
		struct wire_rename_args rename;
		struct wire_truncate_args truncate;
		struct wire_readdir_args readdir;
		struct wire_link_args link;
		struct wire_symlink_args symlink;
		struct wire_readlink_args readlink;
		struct wire_getxattr_args getxattr;
		struct wire_setxattr_args setxattr;
		struct wire_listxattr_args listxattr;
		struct wire_removexattr_args removexattr;
		struct wire_scan_args scan;
		struct wire_repair_args repair;
		struct wire_lock_args lock;
		struct wire_add_target_args add_target;
		struct wire_backup_args backup;
	} args;
	union {
		struct wire_void_res none;
		struct wire_attr_res attr; /* also lookup */
		struct wire_made_res made; /* until cop_free(), as the next one */
		struct wire_dirs_after after;
		struct wire_lookup_res lookup;
		struct wire_getattr_res getattr;
		struct wire_recorded_res recorded;
		struct wire_open_res open;
		struct wire_readdir_res readdir; /* until cop_free() */
		struct wire_status_res status;
		struct wire_requests_res requests;
		struct wire_readlink_res readlink; /* until cop_free(), as the next one */
		struct wire_xattr_res xattr;
		struct wire_scan_res scan;
		struct wire_lock_res lock;
		struct wire_map_res map;
		struct wire_backup_res backup;
	} res;
	struct wire_attr attr; /* of stat-like operations: size and mtime made right */
	struct cfile *file; /* in, or the result of an open */
	struct access access; /* of a transfer */
	struct transfer *transfer;
	struct sizing *sizing;
	struct iovec one_mem; /* plain reads and writes are lists of one */
	struct extent one_ext;
	uint64_t space_total, space_avail; /* of client_statfs() */
};

void client_stays(struct client *c, bool as_it_is); /* our user and groups do not change */
struct cop *cop_new(struct client *c, const struct sheaf_cred *cred); /* NULL: out of memory */
void cop_free(struct cop *op);

/* Names: path is borrowed until done. An empty path means dir itself where that makes sense. A symbolic link
 * at the end is followed by client_stat() and client_open() only. */
void client_stat(struct cop *op, struct sheaf_handle dir, const char *path);
void client_lookup(struct cop *op, struct sheaf_handle dir, const char *path);
void client_getattr(struct cop *op, struct sheaf_handle h);
/* As recorded, with the layout: res.getattr until cop_free(). Asks no data target. */
void client_layout(struct cop *op, struct sheaf_handle h);
void client_setattr(struct cop *op, struct sheaf_handle h, unsigned which, const struct stat *st);
void client_open(struct cop *op, struct sheaf_handle dir, const char *path, int flags, mode_t mode,
		 const struct sheaf_layout *layout); /* op->file */
void client_mkdir(struct cop *op, struct sheaf_handle dir, const char *path, mode_t mode);
/* A pipe, a socket or a device; regular files are made by client_open(). */
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
/* Extended attributes: name and value are borrowed until done. res.xattr has the size, and with it what is
 * not longer than max. */
void client_getxattr(struct cop *op, struct sheaf_handle h, const char *name, size_t max);
void client_listxattr(struct cop *op, struct sheaf_handle h, size_t max);
void client_setxattr(struct cop *op, struct sheaf_handle h, const char *name, const void *value,
		     size_t size, int flags);
void client_removexattr(struct cop *op, struct sheaf_handle h, const char *name);
/* attrs: also those that this server has; a size that is unsettled is not made right. */
void client_readdir(struct cop *op, struct sheaf_handle dir, uint64_t cookie, uint32_t max,
		    bool attrs);

/* Files. A cfile is freed by client_close(), whatever its result. */
void client_close(struct cop *op, struct cfile *f);
void client_flush(struct cop *op, struct cfile *f); /* what a close would report, and no more */
void client_fsync(struct cop *op, struct cfile *f);
void client_fstat(struct cop *op, struct cfile *f);
/* mem and ext are borrowed until done. */
void client_read(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		 const struct extent *ext, size_t n_ext);
void client_write(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		  const struct extent *ext, size_t n_ext);
/* Reads past servers of this host (near.c). A range of the file as pieces of files there, in its order; 0: ask the servers.
 * What was read of them counts only if near_return() says so, which is told what went wrong. Until then it is an
 * operation. */
struct lent {
	int fd;
	uint32_t index; /* of the object */
	uint64_t offset, length;
	bool memory; /* of read_now() */
};
int near_lend(struct cfile *f, uint64_t off, uint64_t len, struct lent *out, int max);
bool near_return(struct cfile *f, const struct lent *lent, int n, int error);
void client_set_near(struct client *c, bool on);
/* Both sides as patterns, of equal totals; borrowed until done. Not for a file that was opened to append. */
struct typed {
	struct pattern mem, file;
	int64_t base; /* of the file's */
};
void client_typed(struct cop *op, struct cfile *f, const struct typed *t, bool write);
/* How an access, which is in op->access and may have patterns, would be cut for each object of f: no one is asked and
 * nothing moves. op is not started. 0, or -ENOMEM. */
struct parts {
	uint64_t requests;
	uint64_t inlined; /* bytes inside them */
};
int client_plan(struct cop *op, struct cfile *f, const struct typed *t, bool write,
		enum net_mover how, struct parts *out /* one an object */);
/* Behind the end, whatever the extents say but for their total; client_write() does so with O_APPEND. */
void client_append(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		   const struct extent *ext, size_t n_ext);
/* Room for a range, or zeros in it. mode: ALLOC_KEEP_SIZE and its like, as OP_ALLOCATE takes them. */
void client_allocate(struct cop *op, struct cfile *f, uint32_t mode, uint64_t off, uint64_t len);
/* From server to server; result: how many bytes, which may be fewer. */
void client_copy(struct cop *op, struct cfile *in, uint64_t off_in, struct cfile *out,
		 uint64_t off_out, uint64_t len);
/* Where the next data or hole at or behind off begins; -ENXIO: off is behind the end, or there are no data. */
void client_seek(struct cop *op, struct cfile *f, uint64_t off, bool hole);
/* Locks. A wait ends with -EINTR after client_lock_cancel(), unless it was granted before. */
void client_lock(struct cop *op, struct cfile *f, const struct wire_lock *want, bool wait);
void client_lock_test(struct cop *op, struct cfile *f,
		      const struct wire_lock *want); /* res.lock.found */
void client_lock_cancel(struct client *c, uint64_t owner);
/* Locks of the file were lost with the session, and their owners have not heard of it. */
bool file_locks_lost(const struct cfile *f);
struct sheaf_handle cfile_handle(const struct cfile *f);
uint64_t cfile_id(const struct cfile *f); /* of the open */
uint64_t cfile_change(const struct cfile *f); /* when it was opened */
bool cfile_writable(const struct cfile *f);
bool cfile_clean(const struct cfile *f); /* client_flush() would ask nobody and find nothing */

/* Administration. */
uint32_t client_targets(const struct client *c);
const struct conf_target *client_target(const struct client *c, uint32_t i);
void client_status(struct cop *op, uint32_t target, uint64_t timeout_ns);
void client_requests(struct cop *op, uint32_t target, uint64_t timeout_ns);
void client_ping(struct cop *op, uint32_t target);
/* Any operation of one server, with op->args and op->res. */
void client_ask(struct cop *op, uint32_t number, uint32_t target, uint64_t timeout_ns, xdr_any put,
		xdr_any get);
bool client_is_meta(const struct client *c, uint32_t target);
uint32_t client_keeper(const struct client *c, uint64_t ino); /* the metadata server of it */
void client_map(struct cop *op, uint32_t target,
		uint64_t timeout_ns); /* res.map until cop_free(), as the others */
void client_add_target(struct cop *op, uint32_t target, const struct wire_map_target *t,
		       bool emptied);
void client_backup(struct cop *op, uint32_t target, uint64_t id, uint64_t offset);
/* What the data targets have room for, all of them together, a disk that several share once; one that does not answer is
 * an error. */
void client_statfs(struct cop *op);
void client_bye(struct cop *op); /* ends our sessions with the servers we have links to */

void attr_to_stat(const struct wire_attr *a, struct stat *st);

/* ---- the blocking interface's other half: who made it and what goes with it ---- */

struct sheaf_backing {
	struct loop *loop;
	struct client *client;
	void *owner;
	void (*teardown)(void *owner); /* after the client is gone */
};
int sheaf_wrap(const struct sheaf_backing *b, struct sheaf **out);
/* What sheaf_export() wrote, for client_import(); to be freed. */
int export_read(int fd, struct wire_bytes *out);
/* A part of a server's backup: id 0 begins one. `data` is for BACKUP_CHUNK bytes; res->data refers to it. */
int api_backup(struct sheaf *fs, uint32_t target, uint64_t id, uint64_t offset,
	       struct wire_backup_res *res, uint8_t *data);
bool api_is_meta(struct sheaf *fs, uint32_t target);
/* For messages of sheaf_why(). */
void why_set(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
