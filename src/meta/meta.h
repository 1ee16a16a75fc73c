/* meta: the metadata of one target: an LMDB schema, inline reads on the loop, and a state machine that
 * is fed with operation records (proto/record.x) on a writer.
 *
 * Reads see everything that was answered before them. A change is one record: encoded, queued,
 * validated and applied inside a write transaction together with the reply for its session slot.
 * Everything that is queued when the writer comes round is one transaction (group commit); a record that
 * fails leaves no trace but its stored answer and does not hurt its neighbours. */
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
	const char *dir; /* made when missing */
	struct uuid fs;
	uint32_t target;
	uint16_t partition; /* where new inodes of this server go */
	bool root; /* make the root directory (owner: root, mode 1777) when the database is new */
	bool nosync;
	uint64_t map_bytes; /* it never grows beyond; 0: 64 GiB */
	struct stamp stamp; /* of the storage that it is a part of; incarnation 0: none */
	bool expected; /* the storage has had metadata: an empty directory has lost them */
};

/* Also prefetches. On failure `err` names the directory, what is wrong and the cure (newer schema,
 * another file system's, damaged). */
int meta_open(struct loop *l, const struct meta_opts *o, struct meta **out, char *err,
	      size_t err_len);
bool meta_stamped(const struct meta *m); /* it has the count of this start */
void meta_close(struct meta *m); /* finishes what is queued */
/* A crash: frees everything, runs nothing that is queued, calls no req_done. Changes under way are the
 * caller's to forget; a job the worker has begun is waited for (its commit counts, its answers do not). */
void meta_abandon(struct meta *m);
uint64_t meta_slow_reads(const struct meta *m); /* inline reads that took over 1 ms */

/* ---- reads: inline, on the loop; 0 or -errno (-ESTALE: no such handle any more; -EINPROGRESS: a change over
 * two servers is at this inode or name: try again when it is over) ---- */

#define MARK_LOST 1 /* instead of a verifier: unsynced data are lost, until the object is emptied */
/* Data of an object that no sync covers: the verifier of its server, and when they were written. */
struct meta_unsynced {
	uint64_t verifier; /* 0: none */
	int64_t left;
};
struct meta_node {
	struct wire_attr attr;
	struct wire_layout_rec layout; /* targets in the arena; n_targets 0 for all but files */
	uint64_t epoch;
	const struct meta_unsynced
		*unsynced; /* in the arena, one an object; NULL: there is nothing */
	bool within; /* its objects are those of the stripes below its size, once it is settled */
	struct wire_handle parent; /* of directories */
	struct wire_bytes acl, default_acl; /* in the arena; empty: it has none */
	bool privileged; /* who runs it gets rights by it: set-id bits, capabilities; a writer ends that */
};
/* -EINPROGRESS: a change over several servers is about to touch the inode, or has elsewhere already. */
int meta_at_rest(struct meta *m, uint64_t ino);
int meta_get(struct meta *m, const struct wire_handle *h, struct meta_node *n, struct arena *a);

/* Walks a path (components between '/', "." and ".." included) with x permission on the way; end->at is
 * where it came to. Symbolic links are followed, at the end of the path when p->follow says so or a '/' is
 * behind it; an absolute one goes on from the root; more than 40 are -ELOOP. Full walk: end->at is the
 * node. With leaf != NULL it stops before the last component, which is left in *leaf; end->at is its
 * directory; an empty path or a trailing "." or ".." is -EINVAL then. A last component that is a link and is
 * followed is replaced by what it points to, which need not be there. -EREMOTE: end->at is in a partition
 * that is not ours; all of *end is set then. -ENOTDIR, -ENAMETOOLONG, -EACCES, -ENOENT as usual. */
struct meta_leaf {
	struct wire_bytes name; /* a reference into the path or the arena */
	bool slash; /* one is behind it: the name is, or becomes, that of a directory */
};
int meta_walk(struct meta *m, const struct cred *c, const struct wire_place *p,
	      struct meta_leaf *leaf, struct wire_referral *end, struct arena *a);
/* Where a symbolic link points; -EINVAL: it is none. */
int meta_readlink(struct meta *m, const struct wire_handle *h, struct wire_bytes *target,
		  struct arena *a);
/* Extended attributes with Linux's rules of who may see what. res->size is the whole size; the value (all
 * names, each with a NUL behind it) is there when it is not above max. -ENODATA, -EOPNOTSUPP. */
int meta_getxattr(struct meta *m, const struct cred *c, const struct wire_handle *h,
		  const struct wire_bytes *name, uint32_t max, struct wire_xattr_res *res,
		  struct arena *a);
int meta_listxattr(struct meta *m, const struct cred *c, const struct wire_handle *h, uint32_t max,
		   struct wire_xattr_res *res, struct arena *a);
int meta_lookup(struct meta *m, const struct wire_handle *dir, const struct wire_bytes *name,
		struct wire_handle *out, uint32_t *type);
/* Entries with a lower cookie than ask->cookie (0: all), newest first, until ask->max entries or
 * max_bytes on the wire. */
int meta_readdir(struct meta *m, const struct wire_readdir_args *ask, size_t max_bytes,
		 struct wire_readdir_res *res, struct arena *a);
enum { MAY_EXEC = 1, MAY_WRITE = 2, MAY_READ = 4 };
int meta_may(const struct meta_node *n, const struct cred *c, int may); /* 0, -EACCES, -EIO */
bool meta_owns(const struct meta *m, uint64_t ino); /* is its partition ours? */

/* Rows that a server works on by itself after a start; fn is called in key order, may not call meta, and returns
 * whether it wants more. */
enum meta_rows { ROWS_UNSETTLED, ROWS_REMOVE, ROWS_TRUNCATE };
struct meta_row {
	struct wire_handle h;
	uint64_t epoch, size; /* of a truncate intent */
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
/* One request of a session, as a slot remembers it. */
struct slot_key {
	uint64_t session; /* 0: none */
	uint32_t slot, sequence;
	const uint8_t *digest; /* DIGEST_BYTES */
};
/* The stored answer of a request that was executed before: 0, -ENOENT (not executed), -EBADMSG
 * (the slot has moved on), or -EKEYREJECTED (the stored answer is another request's). The writer
 * checks the same again. */
int meta_replay(struct meta *m, const struct slot_key *k, struct wire_record_res *res,
		struct arena *a);
int meta_each_session(struct meta *m, void (*fn)(void *arg, const struct meta_session *s),
		      void *arg);

/* Changes over two servers that are not over yet: those that others coordinate (their coordinator is the
 * one target), and those that we have decided (the targets that may not have heard of it). */
struct meta_pair {
	uint64_t id;
	uint32_t n, targets[PARTS_MAX];
};
int meta_each_prepared(struct meta *m, void (*fn)(void *arg, const struct meta_pair *p), void *arg);
int meta_each_decided(struct meta *m, void (*fn)(void *arg, const struct meta_pair *p), void *arg);
int meta_decided(struct meta *m, uint64_t id); /* 0: we did; -ENOENT; or -errno */
/* Climbs from directory *at as far as we own the way, at most 1,024 levels: CLIMB_MET (ino is on
 * it), CLIMB_ROOT, or CLIMB_ON with the rest beginning at *at; or -errno. */
int meta_climb(struct meta *m, uint64_t ino, struct wire_handle *at);

/* A page of rows as they are stored, in key order, of at most about max_bytes on the wire: for checks. */
int meta_scan(struct meta *m, const struct wire_scan_args *q, size_t max_bytes,
	      struct wire_scan_res *res, struct arena *a);

/* ---- changes ---- */

uint64_t meta_new_ino(struct meta *m); /* never given before, in our partition */
void meta_raise_ino(struct meta *m, uint64_t ino); /* it is taken: those to be given are above it */

/* A change under way. The caller fills rec (its pointers need to live only until meta_submit returns);
 * res is decoded into `arena` before q goes on. q gets the errno of the database itself (-EIO, -ENOSPC);
 * the answer of the operation is res.status. */
struct change {
	struct wire_record rec;
	struct wire_record_res res;
	struct wire_dirs_after after; /* of a change of names; none after meta_replay() */
	struct arena *arena;
	/* of meta */
	struct list link;
	struct req *q;
	uint8_t *bytes;
	uint32_t n_bytes;
	uint8_t *answer;
	uint32_t n_answer;
	int error;
};
void meta_submit(struct meta *m, struct change *c, struct req *q);

/* Of REC_RENAME: is what moves a directory? A '/' behind a name says so. */
static inline bool rename_needs_dir(uint32_t flags)
{
	return flags & (flags & REC_EXCHANGE ? REC_SLASH : REC_SLASH | REC_SLASH2);
}

/* Applies an encoded record in a transaction of its own and aborts it: for fuzzing and dry runs. 0 (also
 * when the answer is a failure), -EBADMSG when it is no record, or the database's -errno. */
int meta_apply_bytes(struct meta *m, const void *rec, size_t len);

/* ---- copies ---- */

/* A copy of the database as it is now, made by a thread of its own into a file without a name beside it; neither the
 * loop nor the writer waits for it. */
struct meta_copy;
int meta_copy_start(struct meta *m, struct meta_copy **out);
/* The descriptor of the complete copy; -EAGAIN: not yet; or why there is none (-ENOSPC). */
int meta_copy_file(const struct meta_copy *c, uint64_t *size);
void meta_copy_cancel(struct meta_copy *c); /* it ends soon, with -ECANCELED */
void meta_copy_end(struct meta_copy *c); /* waits for the thread; NULL is harmless */
uint32_t meta_schema(void);
uint16_t meta_partition(const struct meta *m);

/* Puts a copy, the `size` bytes from `off` of a file, in the place of the database of a server that does not run. What
 * must never be given twice begins beyond everything that was given since the copy: inode numbers, epochs, versions of
 * the map; and every file is unsettled, so that its objects are asked for its size. All or nothing; the old
 * database stays beside it as data.mdb.replaced. `err` as of meta_open(). */
struct meta_part {
	int fd;
	uint64_t off, size;
	uint32_t crc; /* crc32c */
	int64_t time; /* when it was made: becomes the time of the database's file */
};
int meta_restore(const struct meta_opts *o, const struct meta_part *p, char *err, size_t err_len);

/* The map: version and an opaque blob (0 when there is none yet). */
int meta_map(struct meta *m, uint32_t *version, struct wire_bytes *blob, struct arena *a);

#endif
