/* Shared by the files of this folder; private. docs/checkpoint.md describes the format. */
#ifndef SHEAF_CKPT_IMPL_H
#define SHEAF_CKPT_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "sheaf_ckpt.h"
#include "sheaf_handle.h"

#define CKPT_DIR "/ckpt"
#define CKPT_NAME_MAX 64 /* of a piece, with its NUL */
#define CKPT_JOB_MAX 128
#define CKPT_PATH 4096
#define CKPT_WHY 384
#define CKPT_BLOCK (256 * KIB) /* of data with one checksum */
#define CKPT_CHUNK MIB /* of one transfer: still in the cache when its checksum is made */
#define CKPT_IOV 1024 /* pieces of memory of one transfer */
#define CKPT_ALIGN (64 * KIB) /* of the images in one file */
#define CKPT_CHAIN_MAX 64

/* ---- ckpt_why.c: explanations of failures, of this thread ---- */
int ckpt_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ckpt_say(const struct sheaf_ckpt *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- ckpt_pieces.c: registered memory as one stream of bytes, piece after piece ---- */

/* `count` runs of `length` bytes, `stride` apart, of a global array. */
struct ckpt_group {
	uint64_t offset, length, stride, count;
};
struct ckpt_piece {
	char name[CKPT_NAME_MAX];
	char *mem; /* NULL: as read from a checkpoint */
	struct sheaf_type *type; /* NULL: contiguous */
	uint64_t start, bytes; /* in the stream */
	uint64_t shape; /* hash of where the bytes are in memory, relative to mem */
	uint64_t global; /* bytes of the global array; 0: not global */
	struct ckpt_group *groups; /* where in it, in the order of the stream */
	size_t n_groups;
};
struct ckpt_pieces {
	struct ckpt_piece *v;
	size_t n;
	uint64_t bytes;
};
int ckpt_pieces_add(struct ckpt_pieces *p, const char *name, void *mem,
		    const struct sheaf_type *type, uint64_t count, const struct sheaf_type *where);
void ckpt_pieces_free(struct ckpt_pieces *p);
uint64_t ckpt_pieces_digest(const struct ckpt_pieces *p); /* of names and global sizes */
/* The memory of at most `len` bytes of the stream from `at` on: sets *n entries of at most max, and
 * returns how many bytes they are; or -errno. -EINVAL: the stream ends before. */
ssize_t ckpt_stream_memory(const struct ckpt_pieces *p, uint64_t at, uint64_t len,
			   struct iovec *iov, size_t max, size_t *n);
/* Copies bytes of the stream from memory. 0 or -errno. */
int ckpt_stream_copy(const struct ckpt_pieces *p, uint64_t at, uint64_t len, char *out);
/* Reads all groups of a piece as runs of the global array: fn gets each with its stream offset. */
int ckpt_piece_runs(const struct ckpt_piece *p,
		    int (*fn)(void *arg, uint64_t global, uint64_t stream, uint64_t len),
		    void *arg);

/* ckpt_areas.c: whole pages that have registered bytes, ascending, to be freed; the longest `most`
 * areas of them. */
struct ckpt_span {
	uintptr_t begin, end;
};
int ckpt_areas(const struct ckpt_pieces *p, uintptr_t page, size_t most, struct ckpt_span **out,
	       size_t *n);
/* -EOPNOTSUPP, explained with `advice`: registered memory is in a shared mapping. */
int ckpt_check_private(const struct ckpt_pieces *p, const char *advice);

/* ---- ckpt_table.c: what is in the image of a process ---- */

/* Bytes of the stream that are in an image, in order, without gaps in the image. */
struct ckpt_run {
	uint64_t at, len;
};
struct ckpt_table {
	uint32_t rank, n;
	uint64_t number, stream; /* bytes of the whole stream */
	uint64_t data; /* bytes of all runs */
	struct ckpt_pieces pieces;
	struct ckpt_run *runs;
	size_t n_runs;
	uint32_t *sums; /* of each CKPT_BLOCK of the data */
	size_t n_sums;
};
size_t ckpt_sums_of(uint64_t data);
/* The length of the encoded table, from its number of runs and bytes of data. */
size_t ckpt_table_room(const struct ckpt_pieces *p, size_t n_runs, uint64_t data);
int ckpt_table_encode(const struct ckpt_table *t, void **out, size_t *len);
int ckpt_table_decode(const void *buf, size_t len, struct ckpt_table *t); /* -EUCLEAN */
void ckpt_table_free(struct ckpt_table *t);

/* ---- ckpt_manifest.c: the file that makes a checkpoint complete ---- */

struct ckpt_image {
	uint64_t base, data, table; /* in its file; lengths of data and of the table behind them */
	uint32_t table_sum;
};
struct ckpt_manifest {
	uint64_t number, since;
	uint32_t n;
	bool one_file;
	int64_t taken;
	double seconds;
	double rate[2]; /* bytes per second measured with a file each, with one file; 0: not yet */
	struct ckpt_image *images;
};
int ckpt_manifest_text(const struct ckpt_manifest *m, char **text, size_t *len);
int ckpt_manifest_parse(const char *text, size_t len, struct ckpt_manifest *m); /* -EUCLEAN */
void ckpt_manifest_free(struct ckpt_manifest *m);

/* ---- ckpt_store.c: the directory of a job ---- */

/* Is this error a property of the checkpoint, and not of the moment? */
static inline bool ckpt_is_damage(int r)
{
	return r == -ENOENT || r == -EUCLEAN;
}

struct ckpt_store {
	struct sheaf *fs;
	char job[CKPT_JOB_MAX];
	char path[CKPT_PATH / 2]; /* DIR/JOB */
};
int ckpt_store_init(struct ckpt_store *s, struct sheaf *fs, const char *dir, const char *job);
void ckpt_store_path(const struct ckpt_store *s, uint64_t number, const char *name,
		     char out[CKPT_PATH]);
void ckpt_image_path(const struct ckpt_store *s, uint64_t number, bool one_file, uint32_t rank,
		     char out[CKPT_PATH]);
uint64_t ckpt_number_of(const char *name); /* 0: not the name of a checkpoint */
/* The numbers of all, the newest first, to be freed; how many, or -errno. */
int ckpt_store_numbers(const struct ckpt_store *s, uint64_t **out);
/* A whole small file, to be freed, with a NUL behind it. -EUCLEAN: larger than `most`. */
int ckpt_read_file(struct sheaf *fs, const char *path, size_t most, char **text, size_t *len);
/* Text that is on disk when this returns; replaces the file in one step. */
int ckpt_write_file(struct sheaf *fs, const char *path, const void *text, size_t len);
int ckpt_store_manifest(const struct ckpt_store *s, uint64_t number, struct ckpt_manifest *m);
int ckpt_store_commit(const struct ckpt_store *s, const struct ckpt_manifest *m);
int ckpt_store_drop(const struct ckpt_store *s, uint64_t number); /* with all its files */
/* Numbers are never used twice, even after their checkpoints were removed. Returns the next free
 * one; numbers: of all, the newest first. */
uint64_t ckpt_store_next(const struct ckpt_store *s, const uint64_t *numbers, int n);
int ckpt_store_reserve(const struct ckpt_store *s, uint64_t number); /* 0 or -errno */
/* Removes what killed runs left: those above the newest complete one that have no manifest. The
 * caller holds the lock of the job. */
int ckpt_store_sweep(const struct ckpt_store *s, const uint64_t *numbers, int n);
/* Can the manifests of this one and of all that it depends on be read? Number 0: yes. */
int ckpt_store_chain(const struct ckpt_store *s, uint64_t number);
/* What pruning knows of one checkpoint. */
struct ckpt_known {
	uint64_t number, since;
	bool is_complete; /* in: has a manifest; out: and so have all that it depends on */
	bool stays; /* out */
};
void ckpt_known_choose(struct ckpt_known *v, int n, uint32_t keep); /* v: the newest first */
/* Removes complete ones beyond the newest `keep` and those they depend on, and incomplete ones that
 * are older than the newest complete one. Returns how many complete ones. */
int ckpt_store_prune(const struct ckpt_store *s, uint32_t keep);
uint32_t ckpt_store_kept(const struct ckpt_store *s); /* by `sheaf ckpt keep`; 0: not set */
int ckpt_store_table(const struct ckpt_store *s, const struct ckpt_manifest *m, uint32_t rank,
		     struct ckpt_table *t);

/* ---- ckpt_image.c: the data of one process ---- */

/* ckpt_sums.c: the checksums of four blocks that follow each other */
void ckpt_sum_four(uint32_t out[4], const char *p);

/* Writes the runs of the stream from `base` of the file on, at most `rate` bytes per second (0: no
 * limit); fills sums. */
int ckpt_image_write(struct sheaf_file *f, uint64_t base, const struct ckpt_pieces *p,
		     const struct ckpt_run *runs, size_t n_runs, uint64_t rate, uint32_t *sums);
/* The same of what ckpt_track_begin() kept. */
struct ckpt_track;
int ckpt_image_write_kept(struct sheaf_file *f, uint64_t base, struct ckpt_track *track,
			  const struct ckpt_run *runs, size_t n_runs, bool keeps, uint64_t rate,
			  uint32_t *sums);
/* Reads the data of an image into the memory of the stream; -EUCLEAN if a checksum is wrong. */
int ckpt_image_read(struct sheaf_file *f, uint64_t base, const struct ckpt_table *t,
		    const struct ckpt_pieces *p);
/* Only compares the checksums. */
int ckpt_image_check(struct sheaf_file *f, uint64_t base, const struct ckpt_table *t);

/* ---- ckpt_exchange.c: small messages between process 0 and all others ---- */

struct ckpt_exchange {
	struct sheaf_ckpt_comm comm;
	uint64_t call; /* counts the collective calls of this process */
	uint32_t step; /* within the call */
	void **early; /* by process: a message of a later call, or NULL */
	size_t *early_len;
};
int ckpt_exchange_init(struct ckpt_exchange *x, const struct sheaf_ckpt_comm *comm);
void ckpt_exchange_free(struct ckpt_exchange *x);
void ckpt_exchange_call(struct ckpt_exchange *x); /* a collective call begins */
/* Process 0 gets `len` bytes of each in `all`. -ETIMEDOUT: `who` names those that did not come, and
 * all others get -ETIMEDOUT, with that text, from ckpt_down(). */
int ckpt_up(struct ckpt_exchange *x, const void *mine, size_t len, void *all, int timeout_ms);
/* Every process gets `len` bytes of process 0: the same, or its own of n * len with `each`. */
int ckpt_down(struct ckpt_exchange *x, void *buf, size_t len, bool each, int timeout_ms);
/* The same for bytes whose number only process 0 knows; *buf is to be freed elsewhere. */
int ckpt_down_any(struct ckpt_exchange *x, void **buf, size_t *len, int timeout_ms);

/* ---- ckpt_pool.c: memory for copied pages, of a bounded size ---- */

/* Memory that shares no page with the program's, filled with zeros; NULL: there is none. */
void *ckpt_own_alloc(size_t bytes);
void ckpt_own_free(void *p, size_t bytes); /* p may be NULL */

struct ckpt_pool {
	char *mem;
	uint32_t *unused; /* stack of slots */
	size_t n_slots, n_unused, slot_bytes;
	size_t reserve; /* this many of the unused ones are beyond the bound */
	atomic_flag lock;
};
int ckpt_pool_make(struct ckpt_pool *p, uint64_t bound, size_t slot_bytes);
void ckpt_pool_free(struct ckpt_pool *p); /* also a half-built one */
/* false: the bound is reached. beyond: takes from the reserve then, which is whole again when all
 * slots are back. */
bool ckpt_pool_get(struct ckpt_pool *p, bool beyond, uint32_t *slot);
void ckpt_pool_put(struct ckpt_pool *p, uint32_t slot);
char *ckpt_pool_slot(const struct ckpt_pool *p, uint32_t slot);

/* ---- ckpt_track.c: changes of memory, and what it was when a checkpoint began ---- */

struct ckpt_track;
/* bound: memory for copies. fine: page by page, to write only changes; else 64 KiB at a time, which
 * takes fewer faults. Without by_mprotect, userfaultfd where it is permitted. */
int ckpt_track_new(const struct ckpt_pieces *p, uint64_t bound, bool fine, bool by_mprotect,
		   struct ckpt_track **out);
void ckpt_track_free(struct ckpt_track *t); /* nothing stays protected */
/* The bytes of the stream that may have changed since the last begin, or all; to be freed. */
int ckpt_track_runs(struct ckpt_track *t, bool all, struct ckpt_run **runs, size_t *n,
		    uint64_t *bytes);
/* Changes from now on count as new. copies: ckpt_track_copy() will read those runs as they are now.
 * No other thread changes registered memory meanwhile. */
int ckpt_track_begin(struct ckpt_track *t, bool all, bool copies);
/* Each byte of the runs is copied once. keeps: pages stay protected, to see changes. */
int ckpt_track_copy(struct ckpt_track *t, uint64_t at, uint64_t len, char *out, bool keeps);
void ckpt_track_end(struct ckpt_track *t, bool keeps);
void ckpt_track_cost(const struct ckpt_track *t, struct sheaf_ckpt_cost *cost);

/* ckpt_uffd.c: a descriptor of userfaultfd(2) that protects pages, also those without contents if
 * `unpopulated`; -1: the kernel has or permits none. is_user_only: without rights, so system calls
 * that write there fail, as with mprotect. */
int ckpt_uffd_open(bool unpopulated, bool *is_user_only);

/* ---- a running job ---- */

struct ckpt_trigger {
	int seen_now, seen_end; /* signals of this kind that were answered */
	bool is_warned, is_ending; /* all processes: signal_end has come; its checkpoint is taken */
	/* a later poll takes the request again: the last checkpoint was still being written, or the
	 * one that it caused failed */
	bool is_deferred;
	uint64_t again; /* process 0: a deferred request is answered from then on */
	uint64_t last; /* process 0: when the last checkpoint was taken */
	uint64_t asked; /* process 0: when the request file was looked for */
	double announced; /* process 0: the interval that was printed */
};

struct ckpt_background;

struct sheaf_ckpt {
	struct sheaf *fs;
	struct sheaf_ckpt_options o;
	struct ckpt_store store;
	struct ckpt_exchange x;
	struct ckpt_pieces pieces;
	struct sheaf_file *lock; /* process 0 */
	uint64_t next; /* process 0: number of the next checkpoint */
	uint64_t newest; /* process 0: the last complete one of this run; 0: none */
	double rate[2]; /* process 0: measured, as in the manifest */
	unsigned fulls; /* process 0: full checkpoints of this run */
	bool is_fixed; /* a checkpoint or restore has begun: no piece can be added */
	struct sheaf_ckpt_cost cost;
	/* ---- changes of memory, and writing in the background ---- */
	struct ckpt_track *track; /* NULL: not needed, or not yet */
	uint64_t baseline; /* the checkpoint since whose begin changes are known; 0: none */
	unsigned depth; /* process 0: incremental ones since the last full one */
	struct ckpt_background *back; /* NULL: its thread has been joined */
	bool is_pending; /* in all processes: no sheaf_ckpt_wait() has told its result */
	int result; /* of the last one in the background */
	char result_why[CKPT_WHY];
	/* ---- triggers ---- */
	struct ckpt_trigger trigger;
};

/* What process 0 decides about a checkpoint; the same for all, except base. */
struct ckpt_plan {
	int32_t status;
	bool one_file;
	uint64_t number, since, base;
	char why[CKPT_WHY];
};
/* What a process has written. */
struct ckpt_done {
	int32_t status;
	struct ckpt_image image;
	char why[CKPT_WHY];
};

#define CKPT_WRITING 10 /* times as long as for a message processes wait for each other's data */
static inline int ckpt_long_ms(const struct sheaf_ckpt *c)
{
	return (int)MIN(c->o.timeout_ms * (uint64_t)CKPT_WRITING, INT32_MAX / 4);
}

/* A thread that gets no signal of the program. 0 or -errno. */
int ckpt_thread_start(pthread_t *t, void *(*fn)(void *), void *arg);

/* Are changed pages copied while a checkpoint is written? */
static inline bool ckpt_copies(const struct sheaf_ckpt *c)
{
	return (c->o.flags & (SHEAF_CKPT_ASYNC | SHEAF_CKPT_FORK)) == SHEAF_CKPT_ASYNC;
}

/* ckpt_fork.c: a child writes what the memory was when it was forked */
struct ckpt_child;
/* 0 or -errno, explained. */
int ckpt_child_start(struct sheaf_ckpt *c, const struct ckpt_plan *p, const struct ckpt_run *runs,
		     size_t n_runs, struct ckpt_child **out);
/* Waits for its end and frees it. Returns the status of the image, explained. */
int ckpt_child_wait(struct ckpt_child *v, struct ckpt_image *out);

/* ckpt_background.c: writes what ckpt_track_begin() kept, with a thread */
/* Takes over runs. status: why this process has nothing to write; all learn of it. */
void ckpt_background_start(struct sheaf_ckpt *c, const struct ckpt_plan *p, struct ckpt_run *runs,
			   size_t n, uint64_t bytes, int status, uint64_t begun);
bool ckpt_background_is_busy(const struct sheaf_ckpt *c);
/* Waits for the thread of this process. The result of the last one: of all in process 0, which
 * prints failures. */
int ckpt_background_join(struct sheaf_ckpt *c);

/* ckpt_trigger.c */
int ckpt_trigger_init(struct sheaf_ckpt *c);
void ckpt_trigger_taken(struct sheaf_ckpt *c);

/* ckpt_form.c: one file or one for each process, by what was measured */
bool ckpt_form_choose(struct sheaf_ckpt *c);
void ckpt_form_measured(struct sheaf_ckpt *c, bool one_file, uint64_t bytes, double seconds);

/* ckpt_take.c */
/* Writes data and table, and syncs them. kept: as the memory was at ckpt_track_begin(). */
int ckpt_write(struct sheaf_ckpt *c, const struct ckpt_plan *p, const struct ckpt_run *runs,
	       size_t n_runs, bool kept, struct ckpt_image *out);
/* Process 0: makes the checkpoint complete, or removes it if a process failed. */
int ckpt_finish(struct sheaf_ckpt *c, const struct ckpt_plan *p, const struct ckpt_done *all,
		double seconds);

/* ckpt_lock.c: one job of a name at a time; process 0 */
int ckpt_lock(struct sheaf_ckpt *c);
int ckpt_lock_check(struct sheaf_ckpt *c); /* is it still ours? */
void ckpt_unlock(struct sheaf_ckpt *c);

/* ---- restore: a checkpoint with those it depends on, the full one first ---- */

struct ckpt_chain {
	struct ckpt_manifest *m;
	struct ckpt_table *t; /* of this process; NULL: not loaded */
	size_t n;
};
/* ckpt_match.c: are these the registered pieces? 0: yes, each at its place; 1: global arrays are
 * divided in another way; -EINVAL, explained. */
int ckpt_match(const struct ckpt_pieces *p, const struct ckpt_table *t, bool same_n);
/* Are the runs of both bytes of one stream? */
bool ckpt_same_pieces(const struct ckpt_table *a, const struct ckpt_table *b);
/* ckpt_remap.c: restores from images of processes that had other parts of the global arrays. A plan
 * changes no memory. */
struct ckpt_remap;
int ckpt_remap_plan(struct sheaf_ckpt *c, const struct ckpt_chain *chain, struct ckpt_remap **out);
int ckpt_remap_read(struct sheaf_ckpt *c, const struct ckpt_chain *chain, struct ckpt_remap *p);
void ckpt_remap_free(struct ckpt_remap *p);
/* ckpt_store.c */
int ckpt_verify_image(const struct ckpt_store *s, const struct ckpt_manifest *m, uint32_t rank);

#endif
