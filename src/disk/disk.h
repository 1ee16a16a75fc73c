/* disk: the object files of one target, its storage directory, its boot verifier and its fences.
 *
 * A storage directory belongs to one file system and one target:
 *   sheaf.id      its owner, the format version and the count of starts (storage_id.c)
 *   clean         only after a clean stop: the verifier to keep
 *   lives         the latest verifiers, and which of their data survived (verifier_history.c)
 *   fences        log of (inode, epoch) records, compacted at start
 *   fences.base   older fence records, sorted; made when the log has many floors
 *   objects/XX/   object files INO.GEN.INDEX (hex); XX: hash of the inode; made on first use
 *   objects/stamp the same count of starts, to detect a lost or exchanged directory
 *   meta/         LMDB, owned by the folder meta
 * All functions run on the loop's thread; accesses that may block go through io_submit(). */
#ifndef SHEAF_DISK_H
#define SHEAF_DISK_H

#include "core/core.h"
#include "layout/layout.h"
#include "sieve/sieve.h"

struct disk;
struct fence_base;

/* An object in use. After the last object_put() its descriptor stays open in a bounded cache. */
struct object;

/* Makes the storage directory; -EEXIST if it already is one. */
int disk_format(struct env *e, const char *path, const struct uuid *fs, uint32_t target, char *err,
		size_t err_len);
/* Makes an empty objects/ for storage that has lost it with all its contents: 1. 0: objects/
 * exists; -ENOENT: there is no storage; -EBUSY: a server uses it. */
int disk_format_lost(struct env *e, const char *path, const struct uuid *fs, uint32_t target,
		     char *err, size_t err_len);
/* max_floors: limit of fence floors in memory, the others are on disk; 0: the default. */
int disk_open(struct loop *l, const char *path, const struct uuid *fs, uint32_t target, bool nosync,
	      uint32_t max_floors, struct disk **out, char *err, size_t err_len);
/* What accesses cost here. Tests may change it. */
struct sieve_costs *disk_costs(struct disk *d);
/* Measures it and stores it in the directory, unless the directory has it. Blocks, for a second on
 * a slow disk. */
void disk_find_costs(struct disk *d);
/* Measures it again, on a thread of its own, and stores it; it is used at once. Holds q. Calls that
 * come meanwhile wait for the same measurement. -ENOSPC: too little space is free. */
struct disk_calibration {
	struct list link;
	struct req *q;
	bool is_stored; /* out; false: it is used until the disk is closed */
};
void disk_calibrate(struct disk *d, struct disk_calibration *c, struct req *q);
struct stamp disk_stamp(const struct disk *d); /* as in sheaf.id */
bool disk_has_meta(const struct disk *d); /* the storage has metadata as a part */
/* Writes the new count of starts to sheaf.id. Called once after disk_open(), when all parts already
 * have it. Blocks. */
int disk_stamp_end(struct disk *d, bool with_meta);
/* Locks the storage of this target against all other processes until close(), for offline work.
 * Returns the descriptor, or -errno: -EBUSY: a server uses it; -ENOENT: there is none. */
int disk_hold(struct env *e, const char *path, const struct uuid *fs, uint32_t target,
	      struct stamp *stamp, char *err, size_t err_len);
/* Clean: syncs everything and keeps the verifier for the next start; blocks. Returns 0 or the error
 * of the sync (then the next start has a new verifier). Not clean: only frees, as a crash would. */
int disk_close(struct disk *d, bool clean);

bool disk_idle(const struct disk *d); /* no internal operation in flight: closing does not wait */
/* Changes when unsynced data may have been lost: after an unclean stop and after a failed sync. */
uint64_t disk_verifier(const struct disk *d);
/* True if data written under this verifier up to `written` (ns, this server's wall clock) still
 * exist: data of a server that was killed, and data that a flush has brought to disk
 * (verifier_history.c). */
bool disk_data_survived(const struct disk *d, uint64_t verifier, int64_t written);
uint64_t disk_boot(const struct disk *d); /* random, new at every start */
/* Path, device and inode of objects/, for direct reads of this host. Returns the length of the
 * path, or -errno. */
ssize_t disk_objects_dir(struct disk *d, char *path, size_t n, uint64_t *dev, uint64_t *ino);
/* As statfs of struct env. */
int disk_space(struct disk *d, uint64_t *total, uint64_t *avail, uint64_t *id);

/* Called before the first access. open: limit of cached descriptors of unused objects; slack:
 * superfluous records in the fence log before it is rewritten. 0: the default. */
void disk_set_limits(struct disk *d, size_t open, uint64_t slack);

struct disk_counters {
	uint64_t reads, writes, syncs, opens; /* accesses */
	uint64_t latched; /* writeback errors seen */
	uint64_t refused; /* accesses that a fence refused while they waited for a turn */
	uint64_t evicted, compacted; /* objects closed to make room; rewrites of the fence log */
	uint64_t requested; /* pieces of objects that requests read or wrote */
	/* accesses for them: to the file, covering ones too; a piece that is copied from or to a
	 * mapping, or sent from the file, is one */
	uint64_t performed;
	uint64_t merged; /* accesses that were joined with another one before they were performed */
	uint64_t vain_bytes; /* of covering ranges that were read, outside of the pieces */
	uint64_t read_modify_writes; /* covering ranges that were read, changed and written */
};
void disk_counters(const struct disk *d, struct disk_counters *c);
/* Adds to `requested` and `performed`. object_read(), object_write() and the copies from and to
 * mappings count what they perform themselves. */
void object_count(struct object *o, uint64_t requested, uint64_t performed);
/* Counts the pieces of a covering range that was read, in order to be written back or not. */
void object_count_cover(struct object *o, const struct extent *pieces, const struct sieve_part *p,
			bool write);

/* Finds or opens an object and lends it until object_put(). With create, makes it if it does not
 * exist; without, -ENOENT. -ESTALE if a fence is above `epoch`, whether the object exists or not;
 * then no object is made. Holds q; *out is set when q continues without error. */
void object_get(struct disk *d, struct object_id id, uint64_t epoch, bool create,
		struct object **out, struct req *q);
#define EPOCH_ANY UINT64_MAX /* no fence refuses it */
void object_put(struct object *o); /* NULL is harmless */
/* The descriptor, for sendfile. Reads outside of turns may see partial writes. */
int object_file(const struct object *o);
/* Maps the object from `off` on, until object_unmap(); NULL if it cannot be mapped. Only system
 * calls and guarded copies (pieces_pack, pieces_unpack) may touch the mapping: they return -EFAULT
 * if the object was truncated meanwhile. Stores are allowed only if loop->on_tmpfs. */
const char *object_map(struct object *o, uint64_t off, uint64_t len);
void object_unmap(struct object *o);
/* True if reading this range does not block and the range has no hole. */
bool object_cached(struct object *o, uint64_t off, uint64_t len);
uint64_t object_end(const struct object *o); /* current size; this thread makes all changes */
int64_t object_mtime(const struct object *o); /* ns; of the last write here, else the file's */
uint64_t object_blocks(struct object *o); /* 512-byte blocks allocated to the file */

/* A turn (range lock) at a byte range of an object: writers exclude all other accesses to their
 * range, in order of arrival. Holds q until the turn is granted; -ESTALE if a fence is above
 * `epoch`, also if it comes while the turn waits. From turn_begin to turn_end the access is in
 * flight for fences. */
struct turn {
	struct list link;
	struct object *object;
	uint64_t lo, hi, epoch;
	bool write, granted;
	struct req *q;
};
void turn_begin(struct object *o, struct turn *t, uint64_t epoch, uint64_t lo, uint64_t hi,
		bool write, struct req *q);
void turn_end(struct turn *t); /* no effect if never begun (zeroed) or refused */
/* True if a write turn at this range would be granted at once and the range ends within the object.
 * The caller may then store into object_map() without a turn, before the loop does anything else.
 * Advances object_mtime() but not the file's mtime: a write with a turn must follow. If the writer
 * dies before that, the new mtime is lost when the object is closed. */
bool object_may_store(struct object *o, uint64_t epoch, uint64_t lo, uint64_t hi, int64_t now);

/* Read or write n ranges, each given by off, iov and n of ios[], in any order. ios are borrowed
 * until q continues. Reads past the end return zeros. Writes advance object_end() and
 * object_mtime(). */
void object_read(struct object *o, struct io *ios, size_t n, struct req *q);
/* The same, but an error is only in io->error: q does not fail. */
void object_try_read(struct object *o, struct io *ios, size_t n, struct req *q);
void object_write(struct object *o, struct io *ios, size_t n, int64_t now, struct req *q);
/* As object_write(), but allocates or zeroes the ranges; of the iovecs only the lengths count. mode
 * is one of fallocate(2): 0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE with or without
 * KEEP_SIZE. If the file system cannot preallocate, no space is reserved; if it cannot punch:
 * -EOPNOTSUPP. */
void object_allocate(struct object *o, struct io *ios, size_t n, int mode, int64_t now,
		     struct req *q);
/* Sets io->bytes to the start of the next data (SEEK_DATA) or hole (SEEK_HOLE) at or after io->off;
 * UINT64_MAX: there are no more data. Everything past the end is a hole. */
void object_seek(struct object *o, struct io *io, int whence, struct req *q);
/* Syncs the file and its directory entries. -EIO if a writeback error was latched before or occurs
 * now; it stays latched until an object_sync() has reported it once. */
void object_sync(struct object *o, struct req *q);

/* The floor as far as it is in memory. Exact while the caller has an object of the inode; otherwise
 * it may be too low, and object_get() decides. */
uint64_t disk_floor(const struct disk *d, uint64_t ino);
struct object_stat {
	uint64_t end, blocks;
	int64_t mtime;
};
/* Raises the floor of an inode: at once in memory (new turns below it are refused), then on disk.
 * Waits for turns in flight, then truncates the object to truncate_to (UINT64_MAX: keeps its size).
 * *st is the result (all 0 if there is no object). An epoch that is not above the floor leaves the
 * floor but does the rest, so a fence can be repeated. */
void disk_fence(struct disk *d, struct object_id id, uint64_t epoch, uint64_t truncate_to,
		struct object_stat *st, struct req *q);
/* Fences, then unlinks the object file; the floor stays as a tombstone. Epoch 0: no capability can
 * exist any more, so there is no fence. A missing object is no error. The result, 0 or -errno, goes
 * to *error and not to q, because q may wait for many removals. */
void disk_remove(struct disk *d, struct object_id id, uint64_t epoch, int *error, struct req *q);

/* ---- listing of objects, for checks ---- */

struct disk_object {
	unsigned dir;
	struct object_id id; /* index OBJECT_NO_INDEX: has a name of storage format 1 */
	uint64_t end, floor;
};
#define OBJECT_NO_INDEX UINT32_MAX

/* One page of a listing. Input: `begun` and the position (dir, last) of the last object of the
 * previous page; only: list this inode only, 0: all. */
struct disk_scan {
	bool begun;
	unsigned dir;
	struct object_id last;
	uint64_t only;
	struct disk_object *rows; /* array of max */
	uint32_t n, max;
	bool end;
	/* private to disk */
	struct disk *disk;
	struct fence_base *base;
	struct req *q;
	struct io io;
};
void disk_scan(struct disk *d, struct disk_scan *s, struct req *q); /* holds q */

/* Copies between buffers and the mapping of a cached file (object_mapped.c). */
/* Larger ranges are not checked for being cached as a whole. */
#define HULL_MAX (1 * MIB)
/* The pieces, within [lo, hi), as memory until object_unmap(). False: cannot be mapped. */
bool object_map_pieces(struct object *o, const struct extent *pieces, size_t n, uint64_t lo,
		       uint64_t hi, struct iovec *out);
/* Copies the pieces, within [lo, hi), to dst. The caller has a turn. src: room for n entries.
 * False: some are not in memory; the contents of dst are undefined. */
bool object_mapped_read(struct object *o, const struct extent *pieces, size_t n, uint64_t lo,
			uint64_t hi, struct iovec *src, const struct iovec *dst, size_t n_dst);
/* Is it a file in memory with all pages of the range present? Neither makes pages nor waits. */
bool object_mapped_can_write(const struct loop *l, struct object *o, uint64_t lo, uint64_t hi);
/* The reverse of object_mapped_read(), where all files are in memory. False: all pieces must be
 * written. */
bool object_mapped_write(struct object *o, const struct extent *pieces, size_t n, uint64_t lo,
			 uint64_t hi, struct iovec *dst, const struct iovec *src, size_t n_src);

#endif
