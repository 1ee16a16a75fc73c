/* Shared by the files of meta: the open database with its writer, the inline reader, and the
 * context in which one record is applied. Private to this folder. */
#ifndef SHEAF_META_STATE_H
#define SHEAF_META_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "meta/meta_schema.h"

/* The changes of one transaction on their way to the writer and back. There are two batches: while
 * the loop reports one, the worker applies the other. */
struct batch {
	struct job job;
	struct meta *m;
	struct list changes; /* owned by the worker from run() to done(), then by the loop */
	struct arena arena; /* encoded answers */
	uint64_t began; /* loop: when it was submitted; 0: the batch is free */
	uint64_t ran_ns; /* duration of its transaction */
	struct touched touched; /* as the changes */
};

/* Space of the database file (meta_space.c). */
struct db_space {
	uint64_t bytes; /* allocated; 0: unknown */
	uint64_t limit, page;
	uint64_t retry_at; /* the last growth got little or nothing: no retry before this time */
	bool growth_failed; /* the last growth failed, which was logged */
	bool mapped; /* LMDB writes through its map, whose size is `bytes` */
	uint64_t changed; /* wall clock of the latest change; 0: the file's mtime is up to date */
	uint64_t mtime_set_at; /* when the mtime was last set */
	bool at_reserve; /* writer: the reserve was reached, and no change has freed space since */
};
#define NUMBERS_AHEAD 4096 /* inode numbers reserved in one write */
#define MAPPED_CHANGES 32 /* changes in a transaction of a mapped database ... */
#define MAPPED_BYTES (512 * KIB) /* ... and bytes of their records */

struct meta {
	struct loop *loop;
	uint16_t partition;
	struct db db;
	struct db_space space;
	/* loop */
	MDB_txn *reader;
	bool reading; /* `reader` has an open transaction, which outlasts a call */
	bool inside; /* a read call is running */
	bool stamped; /* the count of this start is stored */
	uint32_t copies; /* copies under way: they are readers, too */
	uint64_t read_began, slow_reads;
	uint64_t next_ino; /* counter of the next inode number */
	_Atomic uint64_t n_locks; /* rows of T_LOCK: at least as many as any reader can see */
	struct worker *worker;
	struct batch batches[2];
	meta_watch_fn *watch; /* or NULL */
	void *watch_arg;
	bool closing; /* submit no more jobs */
	uint64_t commit_ns; /* duration of the last batch */
	uint32_t expected_changes; /* changes under way when the last batch ended */
	uint64_t gather_until; /* ... for which a slow disk's next transaction waits until then */
	struct timer gather;
	/* score of recent transactions that were cheaper than waking the worker */
	uint32_t speed_score;
	struct timer
		inline_timer; /* runs the next transaction on the loop, at the end of this turn */
	/* writer */
	uint64_t stored_next; /* the inode counter in the database */
	uint64_t stored_locks; /* committed rows of T_LOCK */
	struct arena scratch; /* the record being applied, decoded */
	/* shared by loop and writer, under the lock */
	pthread_mutex_t lock;
	bool has_lock;
	struct list queue;
	uint32_t n_queued;
	bool job_submitted; /* a job was submitted that has not taken from the queue yet */
	bool abandoned;
};

/* ---- meta_space.c ---- */
uint64_t space_initial_bytes(const char *dir,
			     uint64_t limit); /* initial map size of a mapped database */
int space_open(struct meta *m, uint64_t limit, bool mapped); /* before the first transaction */
bool space_is_tight(const struct meta *m); /* only a few changes fit into a transaction */
bool space_should_grow(const struct meta *m); /* tight, and it is time to try to grow */
int space_grow(struct meta *m); /* mapped: not during any transaction */
void space_note_change(struct meta *m); /* a transaction has ended; on the loop */
void space_set_mtime(struct meta *m); /* sets the file's mtime to the latest change */
uint64_t space_used(const struct meta *m); /* bytes */
bool space_is_left(const struct meta *m); /* for changes that take space */
/* After a transaction. */
void space_note_use(struct meta *m, uint64_t before, bool took, bool freed);

/* ---- one record in its transaction (writer) ---- */

struct apply {
	const struct meta *m; /* uses only db and partition */
	MDB_txn *txn;
	struct arena *arena; /* for decoded values */
	const struct wire_record *rec;
	struct cred cred;
	struct wire_record_res *res;
	uint64_t next_ino; /* inode counter, above all that this transaction created */
	uint64_t n_locks; /* rows of T_LOCK, with this transaction */
	bool may_take_space; /* changes that take space are allowed */
	bool took_space, freed_space; /* some change so far took, or freed, space */
	uint64_t pair; /* the change over several servers that this record belongs to, or 0 */
	struct wire_attr dirs[2]; /* directories changed, as they are now; not those of parts */
	uint32_t n_dirs;
};

/* Applies one encoded record; the encoded answer is allocated from `answers`. 0, -EBADMSG (not a
 * record; nothing was changed), or the database's -errno: then the transaction must be aborted. */
int apply_bytes(struct apply *ap, const void *rec, size_t len, struct arena *answers,
		uint8_t **answer, uint32_t *n_answer);

/* Applies one kind of record: validates everything, then writes. 0; a positive errno, which is the
 * answer (nothing was written); or a negative errno: the database failed. */
typedef int apply_fn(struct apply *ap);
apply_fn apply_create, apply_mkdir, apply_remove, apply_rename, apply_link, apply_symlink,
	apply_mknod; /* meta_names.c */
apply_fn apply_prepare, apply_finish, apply_decide, apply_told; /* meta_pair.c */
apply_fn apply_setattr; /* meta_perm.c */
apply_fn apply_setxattr, apply_removexattr; /* meta_xattr.c */
apply_fn apply_repair; /* meta_repair.c */

/* Does a change over several servers hold this inode or entry? 0, EINPROGRESS (retry when that
 * change has ended; this answer is not stored in the slot), or negative. */
int apply_locked(struct apply *ap, const struct key *k);
int apply_locked_within(struct apply *ap, uint64_t dir); /* the directory or a name in it */
/* The inode of a handle: 0, ESTALE, EXDEV (in another partition), EINPROGRESS (a change over
 * several servers holds the inode), or negative. */
int apply_get(struct apply *ap, const struct wire_handle *h, struct node *n);
/* The same for records that concern only a file's contents, which changes over several servers
 * never touch: EINPROGRESS only when such a change will create the inode. */
int apply_get_contents(struct apply *ap, const struct wire_handle *h, struct node *n);
int apply_answer(struct apply *ap, uint64_t ino, const struct node *n);
int apply_put(struct apply *ap, const struct node *n); /* puts the record's inode, and answers */
/* Adds the unsettled row. */
int apply_unsettle(struct apply *ap, uint64_t ino, const struct node *n);
int apply_open_writer(struct apply *ap, uint64_t ino,
		      struct node *n); /* removes set-id bits and capabilities; not for root */
int apply_forget(struct apply *ap, uint64_t ino); /* the inode and its rows */
int row_forget(struct apply *ap, enum table t, const struct key *k); /* if it exists */
int rows_forget(struct apply *ap, enum table t, uint64_t id); /* all with this id */
/* One row as a scan returns it (meta_scan.c), and its table: 0, EINVAL, ENOENT, or negative. */
int scan_row_get(struct apply *ap, uint32_t kind, const struct key *k, enum table *t,
		 struct wire_scan_row *row);
void node_touch(struct node *n, int64_t time); /* sets `change` and ctime */
int node_may(const struct db *d, MDB_txn *txn, const struct node *n, const struct cred *c,
	     int may); /* 0, EACCES, or negative */
int apply_may(struct apply *ap, const struct node *n, int may); /* with the record's credential */
bool cred_in_group(const struct cred *c, uint32_t gid);
/* Clears set-uid, and set-gid if the group may execute or a caller other than root is not in the
 * group. */
uint32_t mode_drop_ids(uint32_t mode, uint32_t gid, const struct cred *c);

/* ---- meta_acl.c ---- */
#define ACL_MAX 512 /* entries, as on ext4; the encoded list fits into a part (PART_MAX) */
#define ACL_BYTES (4 + 8 * ACL_MAX)
struct acl_entry {
	uint16_t tag, perm;
	uint32_t id;
};
struct acl {
	uint32_t n; /* 0: none */
	struct acl_entry e[ACL_MAX];
};
int acl_decode(const struct wire_bytes *b, struct acl *a); /* EINVAL, EOPNOTSUPP, ENOSPC */
int acl_check(const struct acl *a); /* 0 or EINVAL; the next six functions need a checked list */
uint32_t acl_mode(struct acl *a); /* the permission bits that the list stands for */
bool acl_is_mode(const struct acl *a); /* the list is equivalent to its permission bits */
void acl_chmod(struct acl *a, uint32_t mode);
void acl_inherit(struct acl *a, uint32_t *mode); /* the access ACL and mode of a new inode */
bool acl_grants(const struct acl *a, uint32_t gid, const struct cred *c,
		int may); /* the caller is not the owner */
int acl_put(struct apply *ap, struct node *n, uint32_t which, const struct acl *a);
int acl_load(const void *p, size_t len, struct acl *a); /* a stored list: 0 or -EIO */
int acl_read(const struct db *d, MDB_txn *txn, uint64_t ino, uint32_t which, struct acl *a);
/* Attributes that the inode has a HAS_ bit for: the bit of a name, or 0; their rows. The caller
 * puts n. */
uint32_t xattr_mark(const struct wire_bytes *name);
int marked_get(const struct db *d, MDB_txn *txn, uint64_t ino, uint32_t mark, MDB_val *v);
int marked_drop(struct apply *ap, struct node *n, uint32_t mark);
/* What a new inode of this type inherits from its directory: inherit_mode() gives the mode (after
 * umask or default ACL) and `has`; inherit_put() writes the ACL rows, with both set in n. */
int inherit_mode(struct apply *ap, const struct node *dir, uint32_t type, uint32_t *mode,
		 uint32_t *has);
int inherit_put(struct apply *ap, const struct node *dir, struct node *n);

/* ---- meta_names.c: steps of a change of names ---- */
#define LINKS_MAX 65000 /* hard links of one file, as on ext4 */
int name_check(const struct wire_bytes *n); /* 0 or a positive errno, like all of these */
int get_dir(struct apply *ap, const struct wire_handle *h, int may, struct node *n);
int get_entry(struct apply *ap, uint64_t dir, const struct wire_bytes *name, struct disk_entry *e);
int new_ino_check(struct apply *ap, uint64_t ino);
int node_new(struct apply *ap, const struct node *dir, uint32_t type, struct node *n);
void node_set_layout(struct node *n, const struct wire_layout_rec *l);
int link_check(const struct node *n); /* may the inode get another name? */
int drop_name(struct apply *ap, uint64_t ino, struct node *n);
void dir_touch(struct node *dir, int64_t time);

/* ---- meta.c ---- */
void meta_free(struct meta *m);

/* ---- meta_writer.c ---- */
int writer_init(struct meta *m);
void writer_try_start(
	struct meta *m); /* starts a transaction if changes wait and nothing prevents it */
void writer_stop(struct meta *m, bool abandon);
void writer_fini(struct meta *m);

/* ---- meta_read.c: every read runs between read_begin and read_end ---- */
int read_begin(struct meta *m);
int read_end(struct meta *m, int rc); /* returns rc */
void reader_reset(struct meta *m); /* before a write transaction begins */
/* Does a change over several servers hold this inode or entry? 0, -EINPROGRESS, or -errno. */
int read_locked(struct meta *m, const struct key *k);
int read_handle(struct meta *m, const struct wire_handle *h, struct node *n);
/* The same, and -EINPROGRESS while such a change holds the inode: it may be removed on another
 * server already. */
int read_unlocked(struct meta *m, const struct wire_handle *h, struct node *n);
/* Looks up a name in a directory whose inode was read. */
int read_entry(struct meta *m, uint64_t dir, const struct node *n, const struct wire_bytes *name,
	       struct wire_handle *out, uint32_t *type);
bool name_is_dots(const struct wire_bytes *n); /* "." or ".." */
int bytes_copy(struct wire_bytes *out, const void *p, size_t n, struct arena *a); /* or -ENOMEM */

#endif
