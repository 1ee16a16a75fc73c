/* Inside disk: the structs behind disk.h. Nobody outside the folder includes this. */
#ifndef SHEAF_DISK_IMPL_H
#define SHEAF_DISK_IMPL_H

#include <stdatomic.h>

#include "disk/disk.h"

#define DISK_VERSION 2
#define ID_NAME "sheaf.id"
/* of the address space; what is behind it is not mapped */
#define OBJECT_MAP_MAX (UINT64_C(4) << 40)
#define OBJECT_MAP (64 * MIB) /* at least, so that a growing object is not mapped again and again */
#define DISK_MAX_OPEN 512 /* descriptors of objects nobody uses are closed beyond it */
#define DISK_MAX_FLOORS 65536 /* in memory; then they are merged into fences.base */
#define TOMBSTONE_NS (UINT64_C(7) * 24 * 3600 * NSEC_PER_SEC)

/* ---- on disk: little endian, fixed, each with a crc32c over what stands before it ---- */

struct disk_id { /* sheaf.id */
	uint8_t magic[8];
	uint32_t version, target;
	uint8_t fs[16];
	uint64_t created; /* wall clock, ns */
	/* 0 in format 1 */
	uint64_t incarnation; /* random, of this format */
	uint64_t count; /* of starts */
	uint32_t flags;
	uint32_t crc;
};
_Static_assert(sizeof(struct disk_id) == 64, "sheaf.id is a format");
enum {
	ID_STAMPED = 1, /* its parts have stamps */
	ID_HAS_META = 2, /* the metadata are one of them */
	ID_OLD_NAMES = 4, /* it was made as format 1 */
};

#define DISK_LIVES 14
struct life { /* times: wall clock, ns */
	uint64_t verifier; /* 0: none */
	uint64_t host; /* start of the host in whose page cache its data are; 0: in none */
	uint64_t durable; /* what it wrote until then is on disk */
	uint64_t began;
};
struct disk_lives { /* lives; no more than a sector, which is written whole or not at all */
	uint8_t magic[8];
	struct life lives[DISK_LIVES]; /* the latest first */
	uint64_t lost_from, lost_to; /* of older ones: what they wrote between may be lost */
	uint32_t zero, crc;
};
_Static_assert(sizeof(struct disk_lives) == 480, "lives is a format");

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

struct fence_rec { /* one of fences or fences.base; all zero: room not used yet */
	uint64_t ino, epoch; /* fences, inode 0: the generation of the base that it counts on */
	uint64_t time; /* wall clock, ns */
	uint32_t magic;
	uint32_t crc;
};
_Static_assert(sizeof(struct fence_rec) == 32, "fences is a format");

struct base_head { /* of fences.base; its records follow */
	uint8_t magic[8];
	uint32_t version, zero;
	uint64_t generation; /* one more with every merge */
	uint64_t count; /* of records */
	uint64_t swept; /* wall clock, ns: when it was last looked for what may go */
	uint32_t zeros[5];
	uint32_t crc;
};
_Static_assert(sizeof(struct base_head) == 64, "fences.base is a format");

/* ---- syncs of one descriptor, shared by all who ask while one runs ---- */

struct group_sync {
	struct disk *disk;
	int fd;
	bool busy;
	struct list now, next; /* struct sync_wait: of the running one, of the one after it */
	struct io io;
	void (*began)(struct group_sync *g);
	void (*ended)(struct group_sync *g, int error);
};

void group_sync_init(struct group_sync *g, struct disk *d);
/* Holds q until everything that was written before this call is on disk. */
void group_sync_add(struct group_sync *g, struct req *q);

/* A directory whose entries we make and remove. Counters instead of flags: an entry made while a sync
 * runs is not covered by it. */
struct disk_dir {
	int fd; /* -1: not open */
	uint64_t changed, synced, covers;
	struct group_sync gs;
};

/* ---- objects ---- */

enum object_state {
	OBJECT_CLOSED, /* no descriptor; kept for its latched error, or about to be opened */
	OBJECT_OPENING,
	OBJECT_OPEN,
	OBJECT_REMOVING, /* being unlinked; who asks for it waits */
	OBJECT_GONE, /* unlinked and off the table, somebody still has it */
};

/* What the open, done on a worker, needs and finds; the worker touches nothing else. */
struct object_open {
	bool create;
	uint64_t epoch; /* the highest of those that would create it */
	uint64_t ino;
	uint64_t floor; /* of its inode: what was known, and what the base says */
	struct fence_base *base; /* held, or NULL */
	int objects_fd, dir_fd; /* dir_fd -1: to be opened too */
	char dir_name[3];
	char old_name[OBJECT_NAME]; /* by which format 1 called it; "": it has the name it needs */
	bool renames; /* a file with that name gets the new one; else it is opened as it is */
	bool made_dir, made_file;
	int fd;
	struct stat st;
};

struct object {
	struct hnode node; /* by inode: all generations of one are neighbours */
	struct list lru; /* open and nobody has it */
	struct disk *disk;
	struct object_id id;
	enum object_state state;
	unsigned refs;
	int fd;
	const char *map; /* map_len bytes, or NULL */
	uint64_t map_len;
	unsigned map_users;
	bool no_map; /* it cannot be had */
	uint64_t there_lo,
		there_hi; /* where files are in memory: these pages are known to be there */
	uint64_t end;
	uint64_t blocks; /* as the file said last; what was written since may have added some: */
	bool blocks_stale;
	int64_t mtime;
	uint64_t writes, synced, covers; /* as in disk_dir, for the data */
	uint64_t entry; /* value of its directory's `changed` that covers its entry */
	uint64_t floor; /* of its inode; OPEN: the whole truth, before: at least that of disk->floors */
	bool latched; /* a writeback error that no sync has reported yet */
	struct list turns; /* struct turn, granted and waiting, in order of asking */
	unsigned n_waiting;
	struct list waiters; /* struct get_wait */
	struct group_sync gs;
	struct object_open open;
	struct io io;
	char name[OBJECT_NAME];
};

/* ---- fences ---- */

struct floor {
	struct hnode node;
	uint64_t ino, epoch;
	uint64_t durable; /* the highest epoch known to be on disk */
	uint64_t merged; /* the epoch that the last merge has seen */
	uint64_t time;
	unsigned waits; /* struct log_wait that point to it */
	struct list gone; /* in disk->gone: its inode was removed */
	bool alive; /* start: its inode has objects */
};

struct log_wait {
	struct list link;
	struct floor *floor;
	uint64_t epoch;
	struct req *q;
};

#define LOG_BATCH 64
#define LOG_SLACK 8192 /* records more than twice the floors: then it is written anew */
#define LOG_RESERVE \
	(256 * KIB) /* zeros ahead, so that a full disk can still be fenced and emptied */

/* The log anew, as a file of its own. Whoever writes it, a worker while we run, touches nothing else. */
struct log_rewrite {
	int dir; /* of the disk */
	bool nosync;
	struct fence_rec *recs;
	size_t n;
	int fd; /* it has the name, when that was successful */
	uint64_t reserved;
};

struct fence_log {
	int fd;
	uint64_t size, reserved; /* bytes in use, bytes the file has */
	bool busy; /* with a batch, or being written anew */
	bool unnamed; /* its name may not be on disk yet: the next batch sees to that */
	bool cut; /* the base has what it says of floors that left memory: write it anew */
	uint64_t retry; /* it could not be written anew: not before it has this size */
	struct log_rewrite rewrite;
	struct list waiting, running; /* struct log_wait */
	struct io io;
	struct iovec iov[4];
	struct fence_rec batch[LOG_BATCH];
};

/* fences.base as it was opened: never changed, replaced by the next one. */
struct fence_base {
	int fd;
	uint64_t generation, count, swept;
	unsigned refs; /* the disk, and workers that read it; counted on the loop */
};

/* A new base. While it is busy a worker has what stands before `stop`. */
struct fence_merge {
	int dir, objects_fd; /* of the disk */
	uint64_t now;
	const struct fence_base *old; /* or NULL */
	struct fence_rec *recs;
	size_t n;
	struct fence_base *made;
	uint64_t damaged, forgotten;
	atomic_bool stop; /* the disk is about to be closed: end with -ECANCELED */
	bool busy;
	size_t retry; /* it failed: not before there are so many floors */
	struct list waiting; /* struct log_wait: there is no room for new floors */
	struct io io;
};

struct disk {
	struct loop *loop;
	struct env *env;
	char path[CONF_PATH_MAX];
	int dir, id_fd;
	struct disk_id id; /* as it was read */
	struct stamp stamp;
	uint32_t id_flags;
	bool nosync;
	uint64_t verifier, boot;
	struct disk_lives lives;
	struct disk_flush {
		struct timer timer;
		struct io io;
		struct disk_lives lives; /* as it is written */
		uint64_t began, writes;
		bool busy;
		bool told; /* its file was written */
		bool failed; /* one has: from then on none counts */
		bool outdated; /* data were lost since it began */
	} flush;
	struct disk_dir objects, dirs[OBJECT_DIRS];
	struct htab table; /* struct object by inode */
	struct list lru;
	size_t n_open, n_evicting, max_open;
	uint64_t log_slack;
	struct htab floors; /* struct floor by inode: what the log has and the base may not have */
	uint32_t max_floors; /* so many are merged into the base; twice as many wait for that */
	struct fence_base *base; /* or NULL: there is none yet */
	struct fence_merge merge;
	struct list gone; /* those of removed inodes, the oldest first */
	struct fence_log log;
	unsigned busy; /* things of our own in flight */
	struct disk_counters counters;
};

/* One clear line into err, and r. */
int disk_refuse(char *err, size_t n, int r, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* object.c */
struct disk_dir *object_dir(const struct object *o);
void object_shrink(struct disk *d);
void object_remove_begin(struct object *o);
/* Some may not be there any more: it was cut, or punched. */
void object_lose_pages(struct object *o);
void object_remove_end(struct object *o, int error);
void object_free_all(struct disk *d);
/* sync.c */
void object_gs_init(struct object *o);
void disk_dir_init(struct disk *d, struct disk_dir *dir, bool synced);
bool object_dirty(const struct object *o);
void object_sync_quietly(struct object *o); /* before its descriptor goes; errors stay latched */
void object_evicted(struct object *o); /* object.c: it is over */
/* turn.c */
void turn_begin_whole(struct object *o, struct turn *t, struct req *q);
void turn_refuse(struct object *o, uint64_t floor);
/* lives.c */
void lives_begin(struct disk *d); /* this start, whose verifier is known; blocks */
void lives_lost(
	struct disk
		*d); /* a sync has failed, and the verifier is another: page caches count no more */
void lives_end(struct disk *d); /* no flush begins any more */
/* fence.c */
uint64_t floor_known(const struct disk *d, uint64_t ino); /* of disk->floors; 0: it has none */
struct floor *floor_raise(struct disk *d, uint64_t ino, uint64_t epoch);
bool floor_is_old(const struct floor *f, uint64_t now); /* no capability is as old */
void floor_free(struct disk *d, struct floor *f);
bool fence_time_is_old(uint64_t time, uint64_t now);
/* fence_base.c */
int base_open(struct disk *d, char *err, size_t n); /* blocks; none is fine */
struct fence_base *base_hold(struct disk *d); /* for a worker, until base_put() */
void base_put(struct disk *d, struct fence_base *b); /* NULL is harmless */
/* Raises *epoch to the floor that the base has; b may be NULL. Blocks; 0 or -errno. */
int base_find(struct env *e, const struct fence_base *b, uint64_t ino, uint64_t *epoch);
void merge_start(struct disk *d); /* if there are enough floors for that */
void merge_now(struct disk *d); /* the same, and blocks: at start */
/* True: it holds q, since there is no room for a new floor before a merge has ended. */
bool merge_wait(struct disk *d, struct log_wait *w, struct req *q);
/* fence_log.c */
void fence_rec_encode(struct fence_rec *r, const struct floor *f);
void fence_rec_seal(struct fence_rec *r); /* its crc */
bool fence_rec_ok(const struct fence_rec *r);
void fence_log_cut(struct disk *d); /* some floors have left memory: it is written anew */
int fence_log_load(struct disk *d, char *err, size_t err_len); /* blocks */
void fence_log_add(struct disk *d, struct log_wait *w, struct req *q);

/* disk_open.c; these block */
int disk_write_all(struct env *e, int fd, const void *p, size_t n, uint64_t off);
int disk_write_file(struct env *e, int dir, const char *name, const void *p, size_t n, bool sync);
ssize_t disk_read_fd(struct env *e, int fd, void *p, size_t n);
ssize_t disk_read_at(struct env *e, int fd, void *p, size_t n, uint64_t off); /* less: the end */
/* storage_id.c; these block, too */
/* objects/ without a stamp gets this one: 1; 0: it has one; or -errno. */
int disk_stamp_lost(struct env *e, int objects, const struct stamp *s);
int disk_id_format(struct env *e, int dir, int objects, const struct uuid *fs, uint32_t target);
int disk_id_check(struct disk *d, const struct uuid *fs, uint32_t target, char *err, size_t n);
int disk_stamp_begin(struct disk *d, char *err,
		     size_t n); /* the objects have the count of this start */

#endif
