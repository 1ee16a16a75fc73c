/* Private to disk: the structs behind disk.h. Not included outside of this folder. */
#ifndef SHEAF_DISK_IMPL_H
#define SHEAF_DISK_IMPL_H

#include <stdatomic.h>

#include "disk/disk.h"

#define DISK_VERSION 2
#define ID_NAME "sheaf.id"
/* largest mapping of an object; bytes beyond it are not mapped */
#define OBJECT_MAP_MAX (UINT64_C(4) << 40)
#define OBJECT_MAP (64 * MIB) /* smallest mapping, so that a growing object is rarely remapped */
#define DISK_MAX_OPEN 512 /* limit of cached descriptors of unused objects */
#define DISK_MAX_FLOORS 65536 /* in memory; above it they are merged into fences.base */
#define TOMBSTONE_NS (UINT64_C(7) * 24 * 3600 * NSEC_PER_SEC)

/* ---- on disk: little endian, fixed layouts, each with a crc32c over all fields before it ---- */

struct disk_id { /* sheaf.id */
	uint8_t magic[8];
	uint32_t version, target;
	uint8_t fs[16];
	uint64_t created; /* wall clock, ns */
	/* the next three are 0 in storage format 1 */
	uint64_t incarnation; /* random, chosen when the storage is formatted */
	uint64_t count; /* of starts */
	uint32_t flags;
	uint32_t crc;
};
_Static_assert(sizeof(struct disk_id) == 64, "sheaf.id is a format");
enum {
	ID_STAMPED = 1, /* its parts have stamps */
	ID_HAS_META = 2, /* metadata are one of the parts */
	ID_OLD_NAMES = 4, /* formatted as storage format 1: objects may have names without index */
};

#define HISTORY_ENTRIES 14
struct history_entry { /* the time under one verifier; times: wall clock, ns */
	uint64_t verifier; /* 0: none */
	uint64_t host; /* host boot whose page cache has its data (host_start()); 0: none */
	uint64_t durable; /* its writes up to this time are on disk */
	uint64_t began;
};
struct disk_history { /* lives; at most one sector, so that it is written atomically */
	uint8_t magic[8];
	struct history_entry entries[HISTORY_ENTRIES]; /* latest first */
	uint64_t lost_from, lost_to; /* of dropped lives: writes in this time range may be lost */
	uint32_t zero, crc;
};
_Static_assert(sizeof(struct disk_history) == 480, "lives is a format");

struct disk_stamp_file { /* objects/stamp */
	uint8_t magic[8];
	uint64_t incarnation, count;
	uint32_t zero, crc;
};
_Static_assert(sizeof(struct disk_stamp_file) == 32, "stamp is a format");

struct disk_clean { /* clean */
	uint8_t magic[8];
	uint64_t verifier;
	uint32_t synced; /* 0: stopped in mode nosync */
	uint32_t crc;
};
_Static_assert(sizeof(struct disk_clean) == 24, "clean is a format");

struct disk_costs { /* costs */
	uint8_t magic[8];
	uint64_t values[SIEVE_VALUES]; /* of sieve_costs_pack() */
	uint32_t zero, crc;
};
_Static_assert(sizeof(struct disk_costs) == 208, "costs is a format");

struct fence_rec { /* in fences and fences.base; all zero: reserved space */
	uint64_t ino, epoch; /* ino 0 (in fences): epoch is the generation of the base it needs */
	uint64_t time; /* wall clock, ns */
	uint32_t magic;
	uint32_t crc;
};
_Static_assert(sizeof(struct fence_rec) == 32, "fences is a format");

struct base_head { /* header of fences.base; the records follow */
	uint8_t magic[8];
	uint32_t version, zero;
	uint64_t generation; /* incremented by every merge */
	uint64_t count; /* of records */
	uint64_t swept; /* wall clock, ns: last sweep for expired records */
	uint32_t zeros[5];
	uint32_t crc;
};
_Static_assert(sizeof(struct base_head) == 64, "fences.base is a format");

/* ---- group sync: one fsync of a descriptor serves all requests that waited for it ----
 *
 * Counters of changes instead of a flag: a running sync does not cover a change that is made
 * meanwhile. */

struct group_sync {
	struct disk *disk;
	int fd;
	bool busy;
	uint64_t changed, synced, covers; /* so far; on disk; with the running sync */
	struct list now, next; /* struct sync_wait: served by the running sync; by the next one */
	struct io io;
	void (*ended)(struct group_sync *g, int error);
};

void group_sync_init(struct group_sync *g, struct disk *d);
/* Holds q until all data written before this call are on disk. */
void group_sync_add(struct group_sync *g, struct req *q);

/* A directory in which this server makes and removes entries. */
struct disk_dir {
	int fd; /* -1: not open */
	struct group_sync gs;
};

/* ---- objects ---- */

enum object_state {
	OBJECT_CLOSED, /* no descriptor: kept for its latched error, or about to be opened */
	OBJECT_OPENING,
	OBJECT_OPEN,
	OBJECT_REMOVING, /* being unlinked; requests for it wait */
	OBJECT_GONE, /* unlinked and not in the table, but still referenced */
};

/* Input and output of an open on a worker; the worker touches nothing else. */
struct object_open {
	bool create;
	uint64_t epoch; /* highest epoch of the waiters that create */
	uint64_t ino;
	uint64_t floor; /* of the inode: the one in memory, raised to that in the base */
	struct fence_base *base; /* referenced, or NULL */
	int objects_fd, dir_fd; /* dir_fd -1: the worker opens it too */
	char dir_name[3];
	char old_name[OBJECT_NAME]; /* name in storage format 1; "": storage has no such names */
	bool renames; /* rename old_name to the new name; else open the file under old_name */
	bool made_dir, made_file;
	int fd;
	struct stat st;
};

struct object {
	struct hnode node; /* by inode: all objects of an inode have the same hash */
	struct list lru; /* in disk->lru while open and unused */
	struct disk *disk;
	struct object_id id;
	enum object_state state;
	unsigned refs;
	int fd;
	const char *map; /* map_len bytes, or NULL */
	uint64_t map_len;
	unsigned map_users;
	bool no_map; /* mapping failed: do not try again */
	/* pages known to be in memory, if the file system is in memory (tmpfs) */
	uint64_t resident_lo, resident_hi;
	uint64_t end;
	uint64_t blocks; /* as of the last fstat; blocks_stale: later writes may have added some */
	bool blocks_stale;
	int64_t mtime;
	bool sync_succeeded; /* the latest sync through this descriptor */
	uint64_t entry; /* value of the directory's `changed` that covers this entry */
	uint64_t floor; /* of the inode; exact if OPEN, else at least that in disk->floors */
	bool latched; /* a writeback error that no object_sync() has reported yet */
	struct list turns; /* struct turn, granted and waiting, in order of arrival */
	unsigned n_waiting;
	struct list waiters; /* struct get_wait */
	struct group_sync gs;
	struct object_open open;
	struct io io;
	struct io_queue queue; /* reads and writes */
	char name[OBJECT_NAME];
};

/* ---- fences ---- */

struct floor {
	struct hnode node;
	uint64_t ino, epoch;
	uint64_t durable; /* highest epoch known to be on disk */
	uint64_t merged; /* epoch that the last merge included */
	uint64_t time;
	unsigned waits; /* number of struct log_wait that point here */
	struct list expiring; /* in disk->expiring if the inode was removed */
	bool has_objects; /* at start only: the inode has objects */
};

struct log_wait {
	struct list link;
	struct floor *floor;
	uint64_t epoch;
	struct req *q;
};

#define LOG_BATCH 64
#define LOG_SLACK 8192 /* rewrite the log at this many records above twice the floors */
#define LOG_RESERVE \
	(256 * KIB) /* zeros after the end, so that fences and removals work on a full disk */

/* A rewrite of the log into a new file. The thread that writes it (a worker, or the loop's at
 * start) touches nothing else. */
struct log_rewrite {
	int dir; /* borrowed from struct disk */
	bool nosync;
	struct fence_rec *recs;
	size_t n;
	int fd; /* on success the new log, already renamed */
	uint64_t reserved;
};

struct fence_log {
	int fd;
	uint64_t size, reserved; /* bytes in use; bytes of the file */
	bool busy; /* a batch or a rewrite is in flight */
	/* its rename may not be on disk: the next batch syncs the directory */
	bool rename_unsynced;
	bool needs_rewrite; /* floors moved from memory to the base: rewrite the log without them */
	uint64_t retry_size; /* after a failed rewrite: the size at which to try again */
	struct log_rewrite rewrite;
	struct list waiting, running; /* struct log_wait */
	struct io io;
	struct iovec iov[4];
	struct fence_rec batch[LOG_BATCH];
};

/* An open fences.base. The file never changes; a merge replaces it. */
struct fence_base {
	int fd;
	uint64_t generation, count, swept;
	unsigned refs; /* the disk's, and one per worker that reads it; counted on the loop */
};

/* A merge into a new base. While `busy`, a worker owns the fields before `stop`. */
struct fence_merge {
	int dir, objects_fd; /* borrowed from struct disk */
	uint64_t now;
	const struct fence_base *old; /* or NULL */
	struct fence_rec *recs;
	size_t n;
	struct fence_base *made;
	uint64_t damaged, forgotten;
	atomic_bool stop; /* the disk is closing: the worker ends with -ECANCELED */
	bool busy;
	size_t retry_count; /* after a failed merge: the number of floors at which to try again */
	struct list waiting; /* struct log_wait: no room for new floors before the merge ends */
	struct io io;
};

/* A measurement of the costs. The worker sees only this, while `waiting` is not empty. */
struct disk_measure {
	struct env *env;
	int dir; /* borrowed from struct disk */
	bool on_tmpfs;
	struct sieve_costs costs;
	int error, store_error;
	struct job job;
	struct worker *worker; /* NULL: nothing was measured yet */
	struct list waiting; /* struct disk_calibration */
};

struct disk {
	struct loop *loop;
	struct env *env;
	char path[CONF_PATH_MAX];
	int dir, id_fd;
	struct disk_id id; /* as read at start */
	struct stamp stamp;
	uint32_t id_flags;
	bool nosync;
	uint64_t verifier, boot;
	struct disk_history history;
	struct disk_flush {
		struct timer timer;
		struct io io;
		struct disk_history history; /* the version that the worker writes */
		uint64_t began, writes;
		bool busy;
		bool recorded; /* the file `lives` was written */
		bool failed; /* a flush has failed: no later one counts */
		bool outdated; /* data were lost since the flush began */
	} flush;
	struct disk_dir objects, dirs[OBJECT_DIRS];
	struct htab table; /* struct object by inode */
	struct list lru;
	size_t n_open, n_evicting, max_open;
	uint64_t log_slack;
	struct htab floors; /* struct floor by inode: those in the log that the base may lack */
	uint32_t max_floors; /* at this many a merge starts; at twice as many, new ones wait */
	struct fence_base *base; /* NULL: there is none yet */
	struct fence_merge merge;
	struct list expiring; /* struct floor of removed inodes, oldest first */
	struct fence_log log;
	unsigned busy; /* internal operations in flight */
	struct disk_counters counters;
	struct sieve_costs costs;
	bool costs_known; /* measured, now or at an earlier start */
	struct disk_measure measure;
};

/* calibrate.c; these block */
/* -ENOENT: there are none, or no valid ones; *out has the defaults. */
int disk_load_costs(struct env *e, int dir, struct sieve_costs *out);
/* Measures what accesses cost in the directory; *out keeps its times of copies, and on an error all
 * of it. -ENOSPC: too little space is free. Any thread. */
int disk_measure_costs(struct env *e, int dir, bool on_tmpfs, struct sieve_costs *out);
int disk_store_costs(struct env *e, int dir, const struct sieve_costs *c);
/* object.c */
struct disk_dir *object_dir(const struct object *o);
void object_shrink(struct disk *d);
void object_remove_begin(struct object *o);
void object_remove_end(struct object *o, int error);
void object_free_all(struct disk *d);
/* object_io.c */
/* Forgets which pages are resident: the object was truncated or punched. */
void object_forget_resident(struct object *o);
/* sync.c */
void object_gs_init(struct object *o);
void disk_dir_init(struct disk *d, struct disk_dir *dir, bool synced);
bool object_dirty(const struct object *o);
void object_sync_quietly(struct object *o); /* before closing it; errors stay latched */
void object_evicted(struct object *o); /* object.c: called when that sync has ended */
/* turn.c */
void turn_begin_whole(struct object *o, struct turn *t, struct req *q);
void turn_refuse(struct object *o, uint64_t floor);
/* verifier_history.c */
void history_begin(struct disk *d); /* records this start and its verifier; blocks */
/* A sync failed and the verifier has changed: page caches prove nothing any more. */
void history_note_loss(struct disk *d);
void history_end(struct disk *d); /* starts no more flushes */
/* fence.c */
uint64_t floor_known(const struct disk *d, uint64_t ino); /* floor in disk->floors, or 0 */
struct floor *floor_raise(struct disk *d, uint64_t ino, uint64_t epoch);
void floor_free(struct disk *d, struct floor *f);
bool fence_time_is_old(uint64_t time, uint64_t now); /* older than any capability */
/* fence_base.c */
int base_open(struct disk *d, char *err, size_t n); /* blocks; a missing base is no error */
struct fence_base *base_hold(struct disk *d); /* reference for a worker, until base_put() */
void base_put(struct disk *d, struct fence_base *b); /* NULL is harmless */
/* Raises *epoch to the floor in the base; b may be NULL. Blocks; 0 or -errno. */
int base_find(struct env *e, const struct fence_base *b, uint64_t ino, uint64_t *epoch);
void merge_start(struct disk *d); /* if there are enough floors */
void merge_now(struct disk *d); /* the same, at start; blocks */
/* True: holds q, because there is no room for a new floor until the running merge ends. */
bool merge_wait(struct disk *d, struct log_wait *w, struct req *q);
/* fence_log.c */
void fence_rec_encode(struct fence_rec *r, const struct floor *f);
void fence_rec_seal(struct fence_rec *r); /* sets magic and crc */
bool fence_rec_ok(const struct fence_rec *r);
void fence_log_cut(struct disk *d); /* floors have left memory: rewrite the log */
int fence_log_load(struct disk *d, char *err, size_t err_len); /* blocks */
void fence_log_add(struct disk *d, struct log_wait *w, struct req *q);

/* disk_open.c; these block */
void disk_fd_close(struct env *e, int fd); /* a negative fd is harmless */
int disk_dir_open(struct env *e, int objects, unsigned index); /* a directory of objects */
int disk_write_all(struct env *e, int fd, const void *p, size_t n, uint64_t off);
int disk_write_file(struct env *e, int dir, const char *name, const void *p, size_t n, bool sync);
ssize_t disk_read_at(struct env *e, int fd, void *p, size_t n, uint64_t off); /* short at the end */
/* Small files begin with a magic and end with a crc32c over all fields before it. */
void disk_seal(void *p, size_t n, const uint8_t magic[8]);
bool disk_is_sealed(const void *p, size_t n, const uint8_t magic[8]);
/* -ENOENT: there is no such file, or no valid one. */
int disk_read_file(struct env *e, int dir, const char *name, void *p, size_t n,
		   const uint8_t magic[8]);
/* storage_id.c; these block */
/* Writes this stamp to objects/ if it has none: 1. 0: it has one; or -errno. */
int disk_stamp_lost(struct env *e, int objects, const struct stamp *s);
int disk_id_format(struct env *e, int dir, int objects, const struct uuid *fs, uint32_t target);
int disk_id_check(struct disk *d, const struct uuid *fs, uint32_t target, char *err, size_t n);
/* Checks objects/stamp and writes the count of this start to it. */
int disk_stamp_begin(struct disk *d, char *err, size_t n);

#endif
