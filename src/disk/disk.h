/* disk: the object files of one target, its storage directory, its boot verifier and its fences.
 *
 * A storage directory belongs to one file system and one target:
 *   sheaf.id      who it belongs to, the format version and the count of starts (storage_id.c)
 *   clean         only after a clean stop: the verifier to keep
 *   lives         the latest verifiers, and what of their data is kept (lives.c)
 *   fences        log of (inode, epoch) records, compacted at start
 *   fences.base   older ones, sorted; from when there were many
 *   objects/XX/   object files INO.GEN.INDEX (hex), XX a hash of the inode, made on first use
 *   objects/stamp the same count, so that a lost or exchanged directory is noticed
 *   meta/         LMDB, not ours
 * Everything runs on the loop's thread; accesses that may block go through io_submit(). */
#ifndef SHEAF_DISK_H
#define SHEAF_DISK_H

#include "core/core.h"

struct disk;
struct fence_base;

/* One object that somebody uses; the descriptor is kept open in a bounded cache afterwards. */
struct object;

int disk_format(struct env *e, const char *path, const struct uuid *fs, uint32_t target, char *err,
		size_t err_len); /* makes the directory; -EEXIST when it is already somebody's */
/* Storage whose objects/ is gone, with all that was in it, gets an empty one: 1; 0: objects/ is
 * there; -ENOENT: there is no storage; -EBUSY: it is served. */
int disk_format_lost(struct env *e, const char *path, const struct uuid *fs, uint32_t target,
		     char *err, size_t err_len);
/* max_floors: of fences in memory, the rest is on disk; 0: the default. */
int disk_open(struct loop *l, const char *path, const struct uuid *fs, uint32_t target, bool nosync,
	      uint32_t max_floors, struct disk **out, char *err, size_t err_len);
struct stamp disk_stamp(const struct disk *d); /* of sheaf.id */
bool disk_has_meta(const struct disk *d); /* the metadata are one of its parts */
/* Once, after disk_open(), when all parts have a count of one more: sheaf.id gets it, too.
 * Blocks. */
int disk_stamp_end(struct disk *d, bool with_meta);
/* Storage that is this target's, kept from every other process until close(): for work while nobody serves it.
 * The descriptor, or -errno: -EBUSY somebody serves it, -ENOENT there is none. */
int disk_hold(struct env *e, const char *path, const struct uuid *fs, uint32_t target,
	      struct stamp *stamp, char *err, size_t err_len);
/* Clean: syncs everything and keeps the verifier for the next start; blocks. 0 or what sync said
 * (then the next start has a new verifier). Not clean: just frees, as a crash would. */
int disk_close(struct disk *d, bool clean);

bool disk_idle(const struct disk *d); /* nothing of our own is in flight: closing does not wait */
/* Changes when unsynced data may have been lost: with a start that was not clean, with a failed sync. */
uint64_t disk_verifier(const struct disk *d);
/* Are data that were written under this verifier until then (ns, by our wall clock) still there?
 * Those of a server that was killed are, and those that a flush has brought to disk since
 * (lives.c). */
bool disk_kept(const struct disk *d, uint64_t verifier, int64_t written);
uint64_t disk_boot(const struct disk *d); /* random, new at every start */
/* Where the files of objects are, and which directory that is, for others of this host; the length of the path, or
 * -errno. */
ssize_t disk_home(struct disk *d, char *path, size_t n, uint64_t *dev, uint64_t *ino);
int disk_space(struct disk *d, uint64_t *total, uint64_t *avail,
	       uint64_t *id); /* as statfs of struct env */

/* Before the first access. open: descriptors of objects that nobody uses; slack: records of the
 * log of fences that are of no use before it is written anew. 0: the default. */
void disk_set_limits(struct disk *d, size_t open, uint64_t slack);

struct disk_counters {
	uint64_t reads, writes, syncs, opens; /* accesses */
	uint64_t latched; /* writeback errors seen */
	uint64_t refused; /* accesses that a fence refused while they waited for their turn */
	uint64_t evicted, compacted; /* objects closed to make room; logs of fences written anew */
};
void disk_counters(const struct disk *d, struct disk_counters *c);

/* Finds or opens an object and lends it until object_put(). With create it exists afterwards;
 * without, -ENOENT. -ESTALE when a fence stands above `epoch`, whether there is an object or
 * not; none is made then. Holds q; *out is set when q goes on without error. */
void object_get(struct disk *d, struct object_id id, uint64_t epoch, bool create,
		struct object **out, struct req *q);
#define EPOCH_ANY UINT64_MAX /* no fence refuses it */
void object_put(struct object *o); /* NULL is harmless */
/* For sending it as a file: reads of it outside of turns may mix with writes. */
int object_file(const struct object *o);
/* Its bytes from `off` on as memory that only system calls and guarded copies (pieces_pack, pieces_unpack) may touch (-EFAULT:
 * cut meanwhile), until object_unmap(); NULL when there is no such thing. It may be stored into where the loop's files are in
 * memory. */
const char *object_map(struct object *o, uint64_t off, uint64_t len);
void object_unmap(struct object *o);
/* Would reading this range not block, and is it no hole? */
bool object_cached(struct object *o, uint64_t off, uint64_t len);
uint64_t object_end(const struct object *o); /* current size; this thread orders all changes */
int64_t object_mtime(const struct object *o); /* ns; of the last write that we did, or the file's */
uint64_t object_blocks(struct object *o); /* of 512 bytes, allocated to the file */

/* A turn at a byte range of an object: writers exclude everybody else in their range, in order of
 * asking. Holds q until it is granted; -ESTALE when a fence stands above `epoch`, also when that happens
 * while it waits. Between turn_begin and turn_end the access is "in flight" for fences. */
struct turn {
	struct list link;
	struct object *object;
	uint64_t lo, hi, epoch;
	bool write, granted;
	struct req *q;
};
void turn_begin(struct object *o, struct turn *t, uint64_t epoch, uint64_t lo, uint64_t hi,
		bool write, struct req *q);
void turn_end(struct turn *t); /* harmless when it was never begun (zeroed) or refused */
/* Would one who writes get its turn at once, in a range before the end? Then it may store into object_map() without one, before
 * anything else happens; object_mtime() has moved. The file's own time has not: a write with a turn is to follow, and where it does
 * not, because the writer died, the time is lost when the object is let go. */
bool object_may_store(struct object *o, uint64_t epoch, uint64_t lo, uint64_t hi, int64_t now);

/* Accesses to the places that ios[].off, iov and n say, in any order; ios are lent until q goes on. Reads
 * behind the end give zeros in the buffers. Writes move object_end() and object_mtime(). */
void object_read(struct object *o, struct io *ios, size_t n, struct req *q);
void object_write(struct object *o, struct io *ios, size_t n, int64_t now, struct req *q);
/* As object_write(), but only the lengths of the iovecs count: room for these places, or zeros in them. mode is
 * one of fallocate(2): 0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE with or without KEEP_SIZE. A file
 * system that cannot keep room free lets it be; one that cannot punch: -EOPNOTSUPP. */
void object_allocate(struct object *o, struct io *ios, size_t n, int mode, int64_t now,
		     struct req *q);
/* Where the next data (SEEK_DATA) or hole (SEEK_HOLE) at or behind io->off begins, in io->bytes; UINT64_MAX:
 * there are no more data. What is behind the end is a hole. */
void object_seek(struct object *o, struct io *io, int whence, struct req *q);
/* File, then directory entries; -EIO when a writeback error was latched before or now (it stays latched
 * until an fsync has reported it once). */
void object_sync(struct object *o, struct req *q);

/* Fences. The floor of an inode rises at once (new turns below it are refused), is made durable,
 * waits for turns in flight, then cuts the object to truncate_to (UINT64_MAX: keeps it). What
 * the object is then in *st (all 0 when there is no object). A lower or equal epoch than the
 * floor changes no floor but still does the rest, so a fence can be repeated. */
/* The floor as far as it is known at once: while the caller has an object of the inode it is the
 * whole truth. Otherwise it may be lower: object_get() decides. */
uint64_t disk_floor(const struct disk *d, uint64_t ino);
struct object_stat {
	uint64_t end, blocks;
	int64_t mtime;
};
void disk_fence(struct disk *d, struct object_id id, uint64_t epoch, uint64_t truncate_to,
		struct object_stat *st, struct req *q);
/* Fence, then the object file goes; the fence stays as a tombstone. Epoch 0: nobody can have a capability any
 * more, there is no fence. No object: fine. *error, 0 or -errno, is this one's own: q may wait for many, and goes on
 * without. */
void disk_remove(struct disk *d, struct object_id id, uint64_t epoch, int *error, struct req *q);

/* ---- what is there, for checks ---- */

struct disk_object {
	unsigned dir;
	struct object_id id; /* index OBJECT_NO_INDEX: its name is of storage format 1 */
	uint64_t end, floor;
};
#define OBJECT_NO_INDEX UINT32_MAX

/* One page: `begun` and the place of the last object of the page before; only: of this inode, or 0. */
struct disk_scan {
	bool begun;
	unsigned dir;
	struct object_id last;
	uint64_t only;
	struct disk_object *rows; /* room for max */
	uint32_t n, max;
	bool end;
	/* of disk */
	struct disk *disk;
	struct fence_base *base;
	struct req *q;
	struct io io;
};
void disk_scan(struct disk *d, struct disk_scan *s, struct req *q); /* holds q */

#endif
