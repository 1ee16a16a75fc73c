/* The schema of the metadata database: tables, keys and on-disk records (docs/metadata.md).
 *
 * Keys are big-endian, so that LMDB's byte order is numeric order. An inode number begins with its
 * 16-bit partition, and so does every key that begins with an inode number. Records have fixed
 * little-endian layouts. LMDB aligns values to 2 bytes only: copy records out, never cast.
 *
 * Functions return 0, -ENOENT (no such row) or the -errno of the database. Every change of a layout
 * here needs a new SCHEMA_VERSION. */
#ifndef SHEAF_META_SCHEMA_H
#define SHEAF_META_SCHEMA_H

#include <lmdb.h>

#include "meta/meta.h"

#define SCHEMA_VERSION 8
#define SCHEMA_OLDEST 1 /* upgraded when it is opened (schema_upgrade) */
#define SCHEMA_MAGIC "SHEAFMD" /* 8 bytes with its NUL */

enum table {
	T_INODE, /* ino -> disk_inode [+ disk_layout + targets: regular files] */
	T_DIRENT, /* directory, name -> disk_entry */
	T_DIRINDEX, /* directory, cookie -> disk_index + name */
	T_UNSETTLED, /* ino -> disk_unsettled */
	T_REMOVE, /* ino, object generation -> disk_remove */
	T_INTENT, /* ino -> disk_intent: a truncate under way */
	T_SESSION, /* session -> disk_session */
	T_SLOT, /* session, slot -> disk_slot + encoded record_res */
	T_SYS, /* "head", "map", "stamp", "next" + partition */
	T_SYMLINK, /* ino -> target of the link, as text */
	T_XATTR, /* ino, name -> value */
	T_PREPARED, /* id of a change over several servers, index -> disk_prepared + its record */
	T_LOCK, /* ino, or directory and name, that a prepared part holds -> id of the change */
	T_DECIDED, /* id of a change -> targets that may not have finished it */
	T_ANSWER, /* id of a gateway's call -> disk_answer + encoded record_res */
	T_ANSWERED, /* number -> id of the call: the oldest first */
	N_TABLES
};
extern const char *const table_names[N_TABLES];

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "on-disk records are little-endian and are not converted yet");

struct disk_head {
	char magic[8];
	uint32_t version, target;
	uint8_t fs[16];
	uint32_t partition, zero;
};
_Static_assert(sizeof(struct disk_head) == 40, "schema");

struct disk_inode {
	uint32_t mode, nlink, uid, gid, rdev, gen;
	uint64_t size, change;
	int64_t atime, mtime, ctime, btime;
	uint64_t epoch;
	/* directories only, except `has` */
	uint64_t parent_ino;
	uint32_t parent_gen;
	uint32_t has; /* HAS_ACL etc.: this inode has such rows in T_XATTR; above: CACHE_ bits */
	union {
		uint64_t entries;
		/* files: 1: no object beyond `size` while the epoch is EPOCH_FIRST; 0: unknown */
		uint64_t objects_within_size;
	};
	union {
		uint64_t next_cookie;
		int64_t written; /* files: time of the latest write that mtime takes into account */
	};
};
_Static_assert(sizeof(struct disk_inode) == 112, "schema");

#define EPOCH_FIRST 1 /* of a new inode: no fence was sent for it */

struct disk_layout { /* followed by n_targets 32-bit ids, then n_targets disk_notes */
	uint32_t version, type, unit, start, obj_gen, redundancy, n_targets;
};
_Static_assert(sizeof(struct disk_layout) == 28, "schema");

struct disk_note { /* what is recorded of an object; all zero in rows from before schema 6 */
	uint64_t end; /* recorded end; 0: never written */
	uint64_t blocks; /* allocated, of 512 bytes */
	uint64_t unsynced; /* verifier of its server under which data were left unsynced; 0: none */
	int64_t last_write; /* time of the latest unsynced write */
};
_Static_assert(sizeof(struct disk_note) == 32, "schema");

struct disk_entry {
	uint64_t ino, cookie;
	uint32_t gen, type; /* S_IFMT bits */
};
_Static_assert(sizeof(struct disk_entry) == 24, "schema");

struct disk_index { /* followed by the name */
	uint64_t ino;
	uint32_t gen, type;
};
_Static_assert(sizeof(struct disk_index) == 16, "schema");

struct disk_unsettled {
	uint64_t epoch; /* of the file at the latest open for writing */
	uint32_t gen, zero;
};
_Static_assert(sizeof(struct disk_unsettled) == 16, "schema");

struct disk_remove {
	uint32_t gen, zero;
};
_Static_assert(sizeof(struct disk_remove) == 8, "schema");

struct disk_intent {
	uint64_t epoch, size;
	uint32_t gen, zero;
};
_Static_assert(sizeof(struct disk_intent) == 24, "schema");

struct disk_session {
	uint8_t secret[16];
	char client[72]; /* NUL-padded */
};
_Static_assert(sizeof(struct disk_session) == 88, "schema");

struct disk_slot { /* followed by the encoded answer */
	uint32_t sequence, zero;
	uint8_t digest[DIGEST_BYTES]; /* of the answered request */
};
_Static_assert(sizeof(struct disk_slot) == 40, "schema");

struct disk_prepared { /* followed by the encoded part */
	uint32_t coordinator, zero;
};
_Static_assert(sizeof(struct disk_prepared) == 8, "schema");

struct disk_stamp_row { /* as struct stamp */
	uint64_t incarnation, count;
};
_Static_assert(sizeof(struct disk_stamp_row) == 16, "schema");

struct disk_map { /* followed by the encoded map */
	uint32_t version, zero;
};
_Static_assert(sizeof(struct disk_map) == 8, "schema");

#define COOKIE_FIRST 3 /* 0 starts a listing; 1 and 2 are reserved for "." and ".." */
#define INO_COUNTER(ino) ((ino) & ((UINT64_C(1) << 48) - 1))
#define INO_MAKE(partition, counter) ((uint64_t)(partition) << 48 | (counter))

#define HAS_CACHE ((uint32_t)7 << HAS_CACHE_SHIFT)

struct db {
	MDB_env *env;
	MDB_dbi t[N_TABLES];
	struct touched *touched; /* writer: what the transaction under way changes; or NULL */
};

/* Inodes that a transaction changes; of very many, some. */
#define TOUCHED_MAX 256
struct touched {
	uint32_t n, n_more;
	struct meta_touched list[TOUCHED_MAX];
};
void db_touch(const struct db *d, uint64_t ino, uint64_t change);
struct node;
void db_touch_settled(const struct db *d, const struct node *n); /* no writer is left */

struct key {
	size_t n;
	uint8_t b[8 + NAME_MAX_LEN + 1];
};

/* An inode in memory. */
struct node {
	uint64_t ino; /* set by node_get() */
	struct disk_inode i;
	struct disk_layout l; /* files */
	uint32_t targets[TARGETS_MAX];
	struct disk_note objects[TARGETS_MAX];
};

int db_error(int rc); /* converts LMDB's code to -errno */
uint64_t be64_load(const void *p);
uint32_t be32_load(const void *p);

struct key key_u64(uint64_t id); /* an inode or a session */
/* Of a name in a directory, or of an attribute of an inode; the name's length must be valid. */
struct key key_entry(uint64_t dir, const struct wire_bytes *name);
struct key key_pair(uint64_t id, uint64_t second); /* directory and cookie */
struct key key_pair32(uint64_t id, uint32_t second); /* inode and generation, session and slot */
struct key key_text(const char *s);
struct key key_next(uint16_t partition);

/* *v points into the database until the transaction ends or writes. */
int row_get(const struct db *d, MDB_txn *txn, enum table t, const struct key *k, MDB_val *v);
/* Copies a record of fixed size; a shorter row is -EIO. */
int row_read(const struct db *d, MDB_txn *txn, enum table t, const struct key *k, void *rec,
	     size_t n);
int row_put(const struct db *d, MDB_txn *txn, enum table t, const struct key *k, const void *rec,
	    size_t n);
/* Writes a fixed record followed by a tail. */
int row_put2(const struct db *d, MDB_txn *txn, enum table t, const struct key *k, const void *rec,
	     size_t n, const void *tail, size_t n_tail);
int row_del(const struct db *d, MDB_txn *txn, enum table t, const struct key *k);
/* Calls fn for each row whose key begins with `id`; cur points to the row. fn returns 0 to
 * continue; any other value ends the iteration and is returned. */
typedef int row_fn(void *arg, MDB_cursor *cur, const MDB_val *k, const MDB_val *v);
int rows_each(const struct db *d, MDB_txn *txn, enum table t, uint64_t id, row_fn *fn, void *arg);

int node_unpack(const MDB_val *v, struct node *n); /* 0 or -EIO */
int node_get(const struct db *d, MDB_txn *txn, uint64_t ino, struct node *n);
int node_put(const struct db *d, MDB_txn *txn, uint64_t ino, const struct node *n);
void node_attr(const struct node *n, uint64_t ino, bool unsettled, struct wire_attr *a);
int unsettled_put(const struct db *d, MDB_txn *txn, uint64_t ino, const struct node *n);
int node_layout(const struct node *n, struct wire_layout_rec *l, struct arena *a); /* or -ENOMEM */

int entry_get(const struct db *d, MDB_txn *txn, uint64_t dir, const struct wire_bytes *name,
	      struct disk_entry *e);
int entry_put(const struct db *d, MDB_txn *txn, uint64_t dir, const struct wire_bytes *name,
	      const struct disk_entry *e); /* and its index row */
int entry_del(const struct db *d, MDB_txn *txn, uint64_t dir, const struct wire_bytes *name,
	      uint64_t cookie);

/* How many answers to calls of gateways are kept, and for how long. */
#define ANSWERS_MAX 131072
#define ANSWER_AGE (600 * (int64_t)NSEC_PER_SEC)
struct disk_answer { /* followed by the encoded answer */
	uint64_t number;
	int64_t time;
};
_Static_assert(sizeof(struct disk_answer) == 16, "schema");
struct key key_call(const uint8_t id[CALL_ID_BYTES]);
/* The stored answer of a request: 0, -ENOENT (the request is new), -EBADMSG (the slot has a later
 * sequence; sequences wrap around), -EKEYREJECTED (the answer belongs to another request). */
int slot_find(const struct db *d, MDB_txn *txn, const struct slot_key *s, MDB_val *answer);
/* Keeps the answer to the call of a record; the oldest ones go. */
int answer_put(const struct db *d, MDB_txn *txn, const struct wire_record *r, const uint8_t *answer,
	       uint32_t n);

#endif
