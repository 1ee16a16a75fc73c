/* meta: the metadata of one target: an LMDB schema, reads that run inline on the loop, and a state
 * machine that applies records (proto/record.x) on a writer thread.
 *
 * A read sees every change that was answered before it. A change is one record: it is encoded,
 * queued, validated and applied inside a write transaction, together with the reply for its session
 * slot. All records that are queued when the writer looks are one transaction (group commit). A
 * record that fails leaves nothing but its stored answer and does not affect the other records of
 * its transaction. */
#ifndef SHEAF_META_H
#define SHEAF_META_H

#include "core/core.h"
#include "xdr/xdr.h"

struct meta;

#define META_ROOT_INO UINT64_C(1) /* partition 0, counter 1 */
#define META_ROOT_GEN 1
#define INO_PARTITION(ino) ((uint16_t)((ino) >> 48))

struct cred {
	uint32_t uid, gid;
	uint32_t n_gids;
	const uint32_t *gids;
};

struct meta_opts {
	const char *dir; /* created if it does not exist */
	struct uuid fs;
	uint32_t target;
	uint16_t partition; /* new inodes of this server get numbers in this partition */
	bool root; /* create the root directory (owner: root, mode 1777) in a new database */
	bool nosync;
	uint64_t map_bytes; /* upper bound of the database's size; 0: 64 GiB */
	struct stamp stamp; /* of the storage that contains the database; incarnation 0: none */
	bool expected; /* the storage had metadata: an empty directory has lost them */
};

/* Also reads the database into the page cache. On failure `err` names the directory, the fault and
 * the cure (newer schema, another file system's database, damage). Without a loop, an existing
 * database is opened without a writer, for meta_restore(). */
int meta_open(struct loop *l, const struct meta_opts *o, struct meta **out, char *err,
	      size_t err_len);
bool meta_stamped(const struct meta *m); /* the database has stored the count of this start */
void meta_close(struct meta *m); /* applies queued changes first */
/* Stops as a crash would: frees everything, runs no queued change, calls no req_done. The caller
 * discards its changes under way. A job that the worker has begun is waited for: its commit counts,
 * its answers do not. */
void meta_abandon(struct meta *m);
uint64_t meta_slow_reads(const struct meta *m); /* inline reads that took over 1 ms */

/* ---- reads: inline, on the loop; 0 or -errno (-ESTALE: the handle names no inode any more;
 * -EINPROGRESS: a change over several servers holds this inode or name: retry when that change has
 * ended) ---- */

#define MARK_LOST 1 /* replaces a verifier: unsynced data are lost until the object is emptied */
/* Data of an object that no sync covers: the verifier of its server, and the time of the latest
 * write. */
struct meta_unsynced {
	uint64_t verifier; /* 0: none */
	int64_t last_write;
};
struct meta_node {
	struct wire_attr attr;
	struct wire_layout_rec layout; /* targets in the arena; n_targets 0: no regular file */
	uint64_t epoch;
	const struct meta_unsynced
		*unsynced; /* in the arena, one per object; NULL: no unsynced data */
	/* once settled, the file has objects only for stripes below its size */
	bool objects_within_size;
	struct wire_handle parent; /* of directories */
	struct wire_bytes acl, default_acl; /* in the arena; empty: none */
	/* running the file grants rights (set-id bits, capabilities); a writer removes them */
	bool privileged;
	uint32_t cache; /* CACHE_: what the cache bank may have */
};
/* -EINPROGRESS: a change over several servers will touch the inode, or has already done so on
 * another server. */
int meta_check_unlocked(struct meta *m, uint64_t ino);
int meta_get(struct meta *m, const struct wire_handle *h, struct meta_node *n, struct arena *a);

/* Walks a path (components between '/', "." and ".." included) and checks x permission on every
 * directory. end->at is the inode that the walk reached. Symbolic links are followed; one at the
 * end of the path only if p->follow is set or a '/' follows it. An absolute link continues at the
 * root. More than 40 links are -ELOOP. With leaf != NULL the walk stops before the last component,
 * which *leaf gets, and end->at is its directory; an empty path or a trailing "." or ".." is then
 * -EINVAL. If the last component is a link that is followed, the link's target takes its place,
 * which need not exist. -EREMOTE: end->at is in another server's partition; all of *end is set
 * then. Also -ENOTDIR, -ENAMETOOLONG, -EACCES, -ENOENT. */
struct meta_leaf {
	struct wire_bytes name; /* points into the path or the arena */
	bool slash; /* a '/' follows the name: it names, or will name, a directory */
};
int meta_walk(struct meta *m, const struct cred *c, const struct wire_place *p,
	      struct meta_leaf *leaf, struct wire_referral *end, struct arena *a);
/* The target of a symbolic link; -EINVAL: the inode is no symbolic link. */
int meta_readlink(struct meta *m, const struct wire_handle *h, struct wire_bytes *target,
		  struct arena *a);
/* Extended attributes, visible by Linux's rules. res->size is the full size of the value (of the
 * list of names, each with its NUL); res->data has it if that size is at most max. -ENODATA,
 * -EOPNOTSUPP. */
int meta_getxattr(struct meta *m, const struct cred *c, const struct wire_handle *h,
		  const struct wire_bytes *name, uint32_t max, struct wire_xattr_res *res,
		  struct arena *a);
int meta_listxattr(struct meta *m, const struct cred *c, const struct wire_handle *h, uint32_t max,
		   struct wire_xattr_res *res, struct arena *a);
int meta_lookup(struct meta *m, const struct wire_handle *dir, const struct wire_bytes *name,
		struct wire_handle *out, uint32_t *type);
/* Entries with a cookie below ask->cookie (0: all), newest first, until ask->max entries or
 * max_bytes on the wire. */
int meta_readdir(struct meta *m, const struct wire_readdir_args *ask, size_t max_bytes,
		 struct wire_readdir_res *res, struct arena *a);
enum { MAY_EXEC = 1, MAY_WRITE = 2, MAY_READ = 4 };
int meta_may(const struct meta_node *n, const struct cred *c, int may); /* 0, -EACCES, -EIO */
bool meta_owns(const struct meta *m, uint64_t ino); /* does this server own its partition? */

/* Rows of unfinished work that a server resumes after a start. fn is called in key order, must not
 * call meta, and returns whether to continue. */
enum meta_rows { ROWS_UNSETTLED, ROWS_REMOVE, ROWS_TRUNCATE };
struct meta_row {
	struct wire_handle h;
	uint64_t epoch, size; /* of ROWS_TRUNCATE */
	uint32_t obj_gen;
};
int meta_each_row(struct meta *m, enum meta_rows which,
		  bool (*fn)(void *arg, const struct meta_row *r), void *arg);
bool meta_unsettled(struct meta *m, uint64_t ino);
struct meta_session {
	uint64_t id;
	uint8_t secret[16];
	char client[65];
};
/* Identifies one request of a session, as its slot stores it. */
struct slot_key {
	uint64_t session; /* 0: none */
	uint32_t slot, sequence;
	const uint8_t *digest; /* DIGEST_BYTES */
	const uint8_t *call; /* CALL_ID_BYTES: the answer may also be kept under this; or NULL */
	int64_t now; /* wall clock */
};
/* The stored answer of a request that was executed before: 0, -ENOENT (not executed), -EBADMSG (the
 * slot has a later sequence), or -EKEYREJECTED (the stored answer belongs to another request). The
 * writer repeats this check. */
int meta_replay(struct meta *m, const struct slot_key *k, struct wire_record_res *res,
		struct arena *a);
int meta_each_session(struct meta *m, void (*fn)(void *arg, const struct meta_session *s),
		      void *arg);

/* Changes over several servers that have not ended: those that another server coordinates
 * (`targets` is that one coordinator), and those that this server has decided (`targets` may not
 * have heard the decision). */
struct meta_pair {
	uint64_t id;
	uint32_t n, targets[PARTS_MAX];
};
int meta_each_prepared(struct meta *m, void (*fn)(void *arg, const struct meta_pair *p), void *arg);
int meta_each_decided(struct meta *m, void (*fn)(void *arg, const struct meta_pair *p), void *arg);
/* 0: this server has decided to commit; -ENOENT: it has not; or -errno. */
int meta_decided(struct meta *m, uint64_t id);
/* Climbs from directory *at towards the root while this server owns the directories, at most 1,024
 * levels: CLIMB_MET (`ino` is on the way), CLIMB_ROOT, or CLIMB_ON (continue at *at); or -errno. */
int meta_climb(struct meta *m, uint64_t ino, struct wire_handle *at);

/* A page of rows as they are stored, in key order, of at most about max_bytes on the wire. For
 * `sheaf check`. */
int meta_scan(struct meta *m, const struct wire_scan_args *q, size_t max_bytes,
	      struct wire_scan_res *res, struct arena *a);

/* ---- changes ---- */

uint64_t meta_new_ino(struct meta *m); /* a new number in this partition, never used before */
void meta_raise_ino(struct meta *m, uint64_t ino); /* `ino` is used: new numbers are above it */

/* A change under way. The caller fills rec (its pointers must stay valid only until meta_submit
 * returns). res is decoded into `arena` before q continues. q gets the errno of the database itself
 * (-EIO, -ENOSPC); res.status is the answer of the operation. */
struct change {
	struct wire_record rec;
	struct wire_record_res res;
	struct wire_dirs_after after; /* directories of changed names; empty after meta_replay() */
	struct arena *arena;
	/* private to meta */
	struct list link;
	struct req *q;
	uint8_t *bytes;
	uint32_t n_bytes;
	uint8_t *answer;
	uint32_t n_answer;
	int error;
};
void meta_submit(struct meta *m, struct change *c, struct req *q);

/* Inodes that were changed, with `change` as it is now (UINT64_MAX: gone). fn is called on the
 * loop, before the changes are answered, and must not call meta. Of very many changes in one
 * transaction n_more are missing. */
struct meta_touched {
	uint64_t ino, change;
	uint32_t gen; /* if its last writer has gone: */
	bool is_settled;
};
typedef void meta_watch_fn(void *arg, const struct meta_touched *t, size_t n, size_t n_more);
void meta_watch(struct meta *m, meta_watch_fn *fn, void *arg);

/* Of REC_RENAME: must the moved inode be a directory, because a '/' follows a name? */
static inline bool rename_needs_dir(uint32_t flags)
{
	return flags & (flags & REC_EXCHANGE ? REC_SLASH : REC_SLASH | REC_SLASH2);
}

/* Applies an encoded record in a transaction of its own and aborts the transaction: for fuzzing and
 * dry runs. 0 (also when the answer is a failure), -EBADMSG (not a record), or the database's
 * -errno. */
int meta_apply_bytes(struct meta *m, const void *rec, size_t len);

/* ---- copies ---- */

/* A copy of the database as it is now, made by its own thread into an unnamed file in the same
 * directory. Neither the loop nor the writer waits for it. */
struct meta_copy;
int meta_copy_start(struct meta *m, struct meta_copy **out);
/* The descriptor of the complete copy; -EAGAIN: not complete yet; or why the copy failed
 * (-ENOSPC). */
int meta_copy_file(const struct meta_copy *c, uint64_t *size);
void meta_copy_cancel(struct meta_copy *c); /* the copy ends soon, with -ECANCELED */
void meta_copy_end(struct meta_copy *c); /* waits for the thread; accepts NULL */
uint32_t meta_schema(void);
uint16_t meta_partition(const struct meta *m);

/* Replaces the database of a server that is not running by a copy: the `size` bytes at `off` of a
 * file. Numbers that must never be used twice (inode numbers, epochs, map versions) continue above
 * all that were used since the copy was made. Every file becomes unsettled, so that its objects are
 * asked for its size. All or nothing; the old database is kept as data.mdb.replaced. `err` as in
 * meta_open(). */
struct meta_part {
	int fd;
	uint64_t off, size;
	uint32_t crc; /* crc32c */
	int64_t time; /* when the copy was made: becomes the mtime of the database file */
};
int meta_restore(const struct meta_opts *o, const struct meta_part *p, char *err, size_t err_len);

/* The cluster map: its version (0: none stored yet) and its encoded form. */
int meta_map(struct meta *m, uint32_t *version, struct wire_bytes *blob, struct arena *a);

#endif
