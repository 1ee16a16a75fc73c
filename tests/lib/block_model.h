/* A writer of the crash rounds and its model: files of self-describing blocks.
 *
 * Each block holds the worker, the file, its position, the version of the write that stored it, and
 * a checksum; a version names its round. Version 0 is a hole: zeros, or past the end of the file.
 * The model keeps three versions for each block:
 *
 *   begun      the version of the last write to it
 *   answered   the same once the write was answered: the server's kernel has it, and kill -9 does
 *              not lose it
 *   synced     the version when fsync or close last returned 0; only this one survives a power loss
 *
 * A block is right when its version is the answered one, or one that was begun and not answered. An
 * fsync or close that returns EIO guarantees nothing that was written before it. A truncate that
 * was answered leaves holes and its size.
 *
 * All writers share one file for an era, which is some rounds. Each has a lane of the shared file:
 * every DATA_LANES-th block. */
#ifndef SHEAF_TEST_BLOCK_MODEL_H
#define SHEAF_TEST_BLOCK_MODEL_H

#include <assert.h>

#include "base/base.h"
#include "op_log.h"

#define DATA_FILES 6 /* private files of a worker; the shared one follows */
#define DATA_SHARED DATA_FILES
#define DATA_BLOCK 512 /* divides a page, so a write of one block is atomic */
#define DATA_BLOCKS 320
#define DATA_LANES 32 /* in the shared file */
#define DATA_LANE_BLOCKS 16

enum {
	DATA_CREATE,
	DATA_JOIN, /* opens the shared file of the era */
	DATA_OPEN,
	DATA_WRITE,
	DATA_READ,
	DATA_FSYNC,
	DATA_CLOSE,
	DATA_TRUNCATE,
	DATA_UNLINK,
	DATA_RENAME,
	DATA_VERBS
};

extern const char *const data_verbs[];

struct data_block {
	uint32_t synced, answered, begun;
	bool fresh; /* written since the last fsync or close */
};

struct data_file {
	uint32_t id; /* 0: the file does not exist */
	uint32_t size; /* in blocks, after the last answered change */
	struct data_block block[DATA_BLOCKS];
};

struct data {
	struct sheaf *fs;
	char dir[32];
	uint64_t rnd;
	uint32_t worker; /* unique in a run of the test */
	uint32_t round, era, lane; /* set at the start of each round */
	uint32_t n_writes; /* makes versions, together with the round */
	uint32_t next_id;
	struct data_file file[DATA_FILES + 1];
	struct sheaf_file *open[DATA_FILES + 1]; /* in the worker's process only */
	uint64_t eio; /* fsyncs and closes that reported a loss */
	uint8_t buf[(DATA_LANES * DATA_LANE_BLOCKS + 1) * DATA_BLOCK];
};

/* ---- blocks ---- */

/* The position in the file of block k of this worker's part. */
uint32_t data_place(const struct data *m, uint32_t file, uint32_t k);

/* Has this worker opened the shared file of this era? */
bool data_joined(const struct data *m);

/* ---- the model ---- */

/* The end of the last block that may exist. */
uint32_t data_most(const struct data_file *f);

struct data_block *data_block(struct data_file *f, const struct logged_op *d, uint32_t i);

/* For op_log_replay(): the operation has begun. */
void data_begin(void *arg, const struct logged_op *d);

/* For op_log_replay(): the operation has this result. */
void data_end(void *arg, const struct logged_op *d, int result);

/* A new model of a worker whose files are in this directory; the caller frees it. */
void *data_make(const char *dir, uint32_t worker, uint64_t seed);

/* ---- choosing an operation ---- */

/* Chooses a random operation. */
void data_pick(void *arg, struct logged_op *d);

/* ---- executing an operation ---- */

/* Closes a file that was unlinked or belongs to an earlier era. */
int data_let_go(struct data *m, uint32_t file);

/* Executes the operation. Returns 0 or -errno. */
int data_do(void *arg, const struct logged_op *d);

/* Is this result allowed for the operation? */
bool data_right(void *arg, const struct logged_op *d, int result);

/* ---- comparing ---- */

/* Do all files of the worker match the model? If not, why[n] says which does not. */
bool data_same(void *arg, char *why, size_t n);

#endif
