/* What the files of meta share: the open database with its writer, the inline reader, and the context in
 * which one record is applied. Private to this folder. */
#ifndef SHEAF_META_STATE_H
#define SHEAF_META_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "meta/meta_schema.h"

/* One transaction's worth of changes on its way to the writer and back. Two take turns: while one is being
 * reported on the loop the other is applied already. */
struct batch {
	struct job job;
	struct meta *m;
	struct list changes; /* the worker's from run() to done(), then the loop's */
	struct arena arena; /* answers */
	uint64_t began; /* loop: when it was submitted; 0: it is free */
	uint64_t ran_ns; /* what its transaction took */
};

/* What the database may use (meta_room.c). */
struct room {
	uint64_t bytes; /* allocated; 0: not known */
	uint64_t limit, page;
	uint64_t again; /* little or none was to be had: not tried before */
	bool refused; /* none was, and that was said */
	bool mapped; /* it is written through its mapping, which is as large */
	uint64_t changed; /* when, by the wall clock, if its file does not say so yet: stores leave no time of change */
	uint64_t dated; /* when it was last written there */
	bool starved; /* writer: the latest change that takes room went to the last of it, and none was given back since */
};
#define NUMBERS_AHEAD 4096 /* inode numbers, that are reserved at once */
#define ROOM_CHANGES 32 /* in a transaction of a mapped one, */
#define ROOM_BYTES (512 * KIB) /* and what their records may have */

struct meta {
	struct loop *loop;
	uint16_t partition;
	struct db db;
	struct room room;
	/* loop */
	MDB_txn *reader;
	bool reading; /* it is in its transaction, between calls too */
	bool inside; /* of a call */
	bool stamped; /* this start is counted */
	uint32_t copies; /* under way, which read as well */
	uint64_t read_began, slow_reads;
	uint64_t next_ino; /* counter of the next inode */
	_Atomic uint64_t n_locks; /* rows of T_LOCK: never fewer than a reader can see */
	struct worker *worker;
	struct batch batches[2];
	bool closing; /* no new jobs */
	uint64_t commit_ns; /* how long the last batch took */
	uint32_t company; /* changes that were under way when it was done */
	uint64_t gather_until; /* a slow disk's next transaction waits for as many, until then */
	struct timer gather;
	uint32_t n_fast; /* transactions that took less than a hand-over is worth, of late */
	struct timer here; /* the next one is done on the loop, at the end of this turn */
	/* writer */
	uint64_t stored_next; /* the counter as the database has it */
	uint64_t stored_locks; /* rows of T_LOCK, as those who put and take them count */
	struct arena scratch; /* one record, decoded */
	/* both, under lock */
	pthread_mutex_t lock;
	bool has_lock;
	struct list queue;
	uint32_t n_queued;
	bool armed; /* a job is submitted that has not looked at the queue yet */
	bool abandoned;
};

/* ---- meta_room.c ---- */
uint64_t room_first(const char *dir, uint64_t limit); /* what to open a mapped one with */
int room_open(struct meta *m, uint64_t limit, bool mapped); /* nobody has written yet */
bool room_tight(const struct meta *m); /* for more than some changes at once */
bool room_short(const struct meta *m); /* and more may be had */
int room_grow(struct meta *m); /* outside of all transactions if it is mapped */
void room_changed(struct meta *m); /* by a transaction that has ended, on the loop */
void room_date(struct meta *m); /* its file tells when it was changed last */
uint64_t room_used(const struct meta *m); /* bytes */
bool room_left(const struct meta *m); /* for changes that take some */
void room_was_used(struct meta *m, uint64_t before, bool taken, bool given); /* by a transaction */

/* ---- one record in its transaction (writer) ---- */

struct apply {
	const struct meta *m; /* db and partition only */
	MDB_txn *txn;
	struct arena *arena; /* scratch */
	const struct wire_record *rec;
	struct cred cred;
	struct wire_record_res *res;
	uint64_t next_ino; /* above every inode that this transaction made */
	uint64_t n_locks; /* rows of T_LOCK now */
	bool room_left; /* for changes that take some */
	bool taken, given; /* room, by changes so far */
	uint64_t pair; /* the change over two servers that this record is part of, or 0 */
	struct wire_attr dirs[2]; /* directories changed, as they are now; not by its parts */
	uint32_t n_dirs;
};

/* Applies one encoded record; the encoded answer comes from `answers`. 0, -EBADMSG (no record; nothing was
 * touched), or the database's -errno: then the transaction must be aborted. */
int apply_bytes(struct apply *ap, const void *rec, size_t len, struct arena *answers,
		uint8_t **answer, uint32_t *n_answer);

/* A kind of record: validates fully, then puts. 0; a positive errno, which is the answer (nothing was
 * put); or a negative one: the database failed. */
typedef int apply_fn(struct apply *ap);
apply_fn apply_create, apply_mkdir, apply_unlink, apply_rmdir, apply_rename, apply_link,
	apply_symlink, apply_mknod; /* meta_names.c */
apply_fn apply_prepare, apply_finish, apply_decide, apply_told; /* meta_pair.c */
apply_fn apply_setattr; /* meta_perm.c */
apply_fn apply_setxattr, apply_removexattr; /* meta_xattr.c */
apply_fn apply_repair; /* meta_repair.c */

/* Does a change over two servers hold this inode or entry? 0, EINPROGRESS (wait for its end; such an answer is not
 * stored), or negative. */
int apply_locked(struct apply *ap, const struct key *k);
int apply_locked_within(struct apply *ap, uint64_t dir); /* itself, or any name in it */
/* The inode of a handle: 0, ESTALE, EXDEV (not of our partition), EINPROGRESS (a change over two
 * servers holds it), or negative. */
int apply_get(struct apply *ap, const struct wire_handle *h, struct node *n);
/* The same for what is about the content of files alone, which no such change touches:
 * EINPROGRESS only when it is coming. */
int apply_get_held(struct apply *ap, const struct wire_handle *h, struct node *n);
/* Fills the answer from the inode as it is now. */
int apply_answer(struct apply *ap, uint64_t ino, const struct node *n);
int apply_unsettle(struct apply *ap, uint64_t ino, const struct node *n); /* its row */
int apply_writer(struct apply *ap, uint64_t ino,
		 struct node *n); /* set-id bits and capabilities go, unless he is root */
int apply_forget(struct apply *ap, uint64_t ino); /* the inode and all that hangs on it */
int rows_forget(struct apply *ap, enum table t, uint64_t id); /* all whose keys begin with it */
/* One row as a scan shows it (meta_scan.c), and its table: 0, EINVAL, ENOENT, or negative. */
int scan_row_get(struct apply *ap, uint32_t kind, const struct key *k, enum table *t,
		 struct wire_scan_row *row);
void node_touch(struct node *n, int64_t time); /* change and ctime */
int node_may(const struct db *d, MDB_txn *txn, const struct node *n, const struct cred *c,
	     int may); /* 0, EACCES, or negative */
int apply_may(struct apply *ap, const struct node *n, int may); /* the caller of the record */
bool cred_in_group(const struct cred *c, uint32_t gid);
/* Set-id bits go; set-gid stays where the group cannot run it, unless the caller is not in it. */
uint32_t mode_drop_ids(uint32_t mode, uint32_t gid, const struct cred *c);

/* ---- meta_acl.c ---- */
#define ACL_MAX 512 /* entries, as on ext4; encoded it fits into a part (PART_MAX) */
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
int acl_check(const struct acl *a); /* 0 or EINVAL; the next six are for those that passed */
uint32_t acl_mode(struct acl *a); /* the permissions that it stands for */
bool acl_is_mode(const struct acl *a); /* it says no more than these */
void acl_chmod(struct acl *a, uint32_t mode);
void acl_inherit(struct acl *a, uint32_t *mode); /* by what is made with this mode */
bool acl_grants(const struct acl *a, uint32_t gid, const struct cred *c,
		int may); /* not the owner */
int acl_put(struct apply *ap, struct node *n, uint32_t which, const struct acl *a);
int acl_load(const void *p, size_t len, struct acl *a); /* what was stored: 0 or -EIO */
int acl_read(const struct db *d, MDB_txn *txn, uint64_t ino, uint32_t which, struct acl *a);
/* Attributes that the inode knows of: the HAS_ bit of a name, or 0; their rows. The caller puts n. */
uint32_t xattr_mark(const struct wire_bytes *name);
int marked_get(const struct db *d, MDB_txn *txn, uint64_t ino, uint32_t mark, MDB_val *v);
int marked_drop(struct apply *ap, struct node *n, uint32_t mark);
/* What a new inode of this type gets from its directory: the mode after umask or default ACL, and `has`; then, with
 * these in n, its rows. */
int inherit_mode(struct apply *ap, const struct node *dir, uint32_t type, uint32_t *mode,
		 uint32_t *has);
int inherit_put(struct apply *ap, const struct node *dir, struct node *n);

/* ---- meta_names.c: the pieces of a change ---- */
#define LINKS_MAX 65000 /* names of one file, as on ext4 */
int name_check(const struct wire_bytes *n); /* 0 or a positive errno, as all of these */
int get_dir(struct apply *ap, const struct wire_handle *h, int may, struct node *n);
int get_entry(struct apply *ap, uint64_t dir, const struct wire_bytes *name, struct disk_entry *e);
int new_ino_check(struct apply *ap, uint64_t ino);
int node_new(struct apply *ap, const struct node *dir, uint32_t type, struct node *n);
void node_set_layout(struct node *n, const struct wire_layout_rec *l);
int link_check(const struct node *n); /* may it get one more name? */
int drop_name(struct apply *ap, uint64_t ino, struct node *n);
void dir_touch(struct node *dir, int64_t time);

/* ---- meta.c ---- */
/* A database that must be there already, without a loop and a writer. */
int meta_open_copy(const struct meta_opts *o, struct meta **out, char *err, size_t err_len);
void meta_free(struct meta *m);

/* ---- meta_writer.c ---- */
int writer_init(struct meta *m);
void writer_look(struct meta *m); /* changes may have waited for what has ended now */
void writer_stop(struct meta *m, bool abandon);
void writer_fini(struct meta *m);

/* ---- meta_read.c: every read is between these two ---- */
int read_begin(struct meta *m);
int read_end(struct meta *m, int rc); /* returns rc */
void reads_end(struct meta *m); /* before the database changes */
/* Is this inode or entry held by a change over two servers? 0, -EINPROGRESS, or -errno. */
int read_locked(struct meta *m, const struct key *k);
int read_handle(struct meta *m, const struct wire_handle *h, struct node *n);
/* The same, and -EINPROGRESS while such a change holds it: it may be gone already, elsewhere. */
int read_at_rest(struct meta *m, const struct wire_handle *h, struct node *n);
/* One name in a directory that was read already. */
int read_entry(struct meta *m, uint64_t dir, const struct node *n, const struct wire_bytes *name,
	       struct wire_handle *out, uint32_t *type);
bool name_is_dots(const struct wire_bytes *n); /* "." or ".." */
int bytes_copy(struct wire_bytes *out, const void *p, size_t n, struct arena *a); /* or -ENOMEM */

#endif
