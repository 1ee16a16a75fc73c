/* Shared by the files of `sheaf bench checkpoint`. */
#ifndef SHEAF_BENCH_CHECKPOINT_H
#define SHEAF_BENCH_CHECKPOINT_H

#include "bench/bench_impl.h"

/* ---------------------------------------------------------- bench_checkpoint_run.c: its runs */

enum bench_ckpt_storage {
	BENCH_CKPT_NONE,
	BENCH_CKPT_SHEAF,
	BENCH_CKPT_SHEAF1, /* servers of its own: one, */
	BENCH_CKPT_SHEAF2, /* and two */
	BENCH_CKPT_SLOW, /* the servers of the benchmark behind a limit of the rate */
	BENCH_CKPT_MOUNT,
	BENCH_CKPT_LOCAL,
	BENCH_CKPT_NFS,
	BENCH_CKPT_GANESHA, /* a directory beside the storage, by NFS-Ganesha */
	BENCH_CKPT_STORAGES,
};
extern const char *const bench_ckpt_names[BENCH_CKPT_STORAGES]; /* of a row */

/* One run of bench/ckpt; numbers as its options. */
struct bench_ckpt_run {
	enum bench_ckpt_storage storage;
	int processes, grid, steps, every, compare, active; /* active 0: all */
	bool async, incremental;
};

struct bench_ckpt_result {
	double image; /* bytes of all processes */
	double total_s, blocked_s, checkpoints; /* of the run without what is compared */
	double take_s, take_bytes; /* medians */
	double later_s, later_bytes; /* the same without the first one */
	double raw_write_s, restore_s, raw_read_s; /* medians; 0: not measured */
	bool overlapped; /* a checkpoint was written while the program continued */
	int depend; /* checkpoints that need an older one */
};

const char *bench_ckpt_missing(struct bench *b);
int bench_ckpt_choose(struct bench *b); /* for bench_kind.open */
/* Starts what the storages need; prints which are left out, and why. 0, or -errno after a
 * message. */
int bench_ckpt_open(struct bench *b);
void bench_ckpt_end(struct bench *b); /* may be called at any time */
bool bench_ckpt_there(enum bench_ckpt_storage s);
int bench_ckpt_most(void); /* how many processes there may be: 1 without MPI */
/* 0, or -errno after a message (-EINTR: without one). */
int bench_ckpt_run(struct bench *b, const struct bench_ckpt_run *run,
		   struct bench_ckpt_result *out);

#endif
