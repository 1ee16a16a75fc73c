/* Checkpoints of long computations: the memory of all processes of a job becomes one complete
 * checkpoint in Sheaf, or none. docs/checkpoint.md is a tutorial.
 *
 *     sheaf_ckpt_open(fs, "wave", NULL, NULL, &c);
 *     sheaf_ckpt_add(c, "step", &step, NULL, sizeof(step));
 *     sheaf_ckpt_add(c, "field", field, NULL, bytes);
 *     r = sheaf_ckpt_restore(c, NULL);
 *     if (r == -ENOENT)
 *             start_from_the_beginning();
 *     else if (r)
 *             die(sheaf_ckpt_why());
 *     for (; step < end; step++) {
 *             compute();
 *             sheaf_ckpt_poll(c);
 *     }
 *     sheaf_ckpt_close(c);
 *
 * Calls with a struct sheaf_ckpt are collective unless they say otherwise: all processes of the job
 * make the same calls in the same order, and all get the same answer. Every call returns 0 or a
 * count, or -errno; sheaf_ckpt_why() explains a failure. One thread at a time uses a struct
 * sheaf_ckpt. */
#ifndef SHEAF_CKPT_H
#define SHEAF_CKPT_H

#include "sheaf.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sheaf_ckpt; /* the checkpoints of a running job */

/* How the processes of a job reach each other. MPI programs use sheaf_ckpt_open_mpi() instead. The
 * messages from one process to another arrive in order. */
struct sheaf_ckpt_comm {
	uint32_t size; /* sizeof(struct sheaf_ckpt_comm) */
	int rank, n; /* this process, and how many there are */
	void *arg; /* for the functions */
	/* Sends without waiting for the receiver; buf may be used again at once. 0 or -errno. */
	int (*send)(void *arg, int to, const void *buf, size_t len);
	/* Waits at most timeout_ms (0: does not wait) for the next message of `from`. Returns its
	 * length; *buf is memory of malloc() that the caller frees. -ETIMEDOUT. */
	ssize_t (*recv)(void *arg, int from, void **buf, int timeout_ms);
	void (*free)(void *arg); /* called by sheaf_ckpt_close(), or NULL */
};

#define SHEAF_CKPT_ASYNC 1 /* the program continues while a checkpoint is written */
#define SHEAF_CKPT_INCREMENTAL 2 /* writes only pages that changed */
#define SHEAF_CKPT_REFUSE 4 /* -EBUSY while a checkpoint is written; else the call waits for it */
#define SHEAF_CKPT_ONE_FILE 8 /* all processes write one file: not measured */
#define SHEAF_CKPT_FILE_EACH 16 /* each process writes a file of its own: not measured */
#define SHEAF_CKPT_MPROTECT 32 /* tracks changes by mprotect(2) even where userfaultfd works */
#define SHEAF_CKPT_FORK 64 /* as SHEAF_CKPT_ASYNC, but a forked child writes the checkpoint */

/* 0 or NULL in any member: the default. */
struct sheaf_ckpt_options {
	uint32_t size; /* sizeof(struct sheaf_ckpt_options) */
	uint32_t flags; /* SHEAF_CKPT_... */
	const char *dir; /* the directory of all jobs; "/ckpt" */
	uint32_t keep; /* number of complete checkpoints that are kept; 2 */
	uint32_t chain; /* incremental checkpoints after a full one, at most; 8 */
	uint32_t timeout_ms; /* how long processes wait for each other; 60,000 */
	int signal_now; /* this signal requests a checkpoint, as sheaf_ckpt_now() */
	int signal_end; /* the batch system's warning: the same, and sheaf_ckpt_ending() is 1 */
	uint64_t copy_bytes; /* memory for copied pages of a process while one is written; 64 MiB */
	uint64_t rate; /* bytes per second that a process writes in the background; no limit */
	double interval_s; /* sheaf_ckpt_poll() takes one that often; SHEAF_CKPT_BEST */
	double mtbf_s; /* seconds between failures of the job: needed for SHEAF_CKPT_BEST */
};
/* The interval that loses least time, by Young and Daly, from the measured cost and mtbf_s; it is
 * printed by process 0. */
#define SHEAF_CKPT_BEST (-1.0)

/* Begins a job, whose name is that of a directory, without '/'. comm NULL: this process is all of
 * it. -EBUSY: a job of this name runs. */
SHEAF_API int sheaf_ckpt_open(struct sheaf *fs, const char *job, const struct sheaf_ckpt_comm *comm,
			      const struct sheaf_ckpt_options *options, struct sheaf_ckpt **c);
#ifdef MPI_VERSION /* include mpi.h first; link libsheaf-ckpt-mpich or libsheaf-ckpt-openmpi */
SHEAF_API int sheaf_ckpt_open_mpi(struct sheaf *fs, const char *job, MPI_Comm comm,
				  const struct sheaf_ckpt_options *options, struct sheaf_ckpt **c);
#endif
/* Waits for a checkpoint that is being written. Returns its result, and frees c in any case. */
SHEAF_API int sheaf_ckpt_close(struct sheaf_ckpt *c);

/* Registers a piece of memory: `count` copies of `type` (NULL: bytes) from mem on, which stays in
 * place until sheaf_ckpt_close(). Not collective, but before the first checkpoint or restore all
 * processes register pieces of the same names in the same order. `type` may be freed at once. */
SHEAF_API int sheaf_ckpt_add(struct sheaf_ckpt *c, const char *name, void *mem,
			     const struct sheaf_type *type, uint64_t count);
/* The same for a part of a global array: one copy of `where` from 0 on says where in the array
 * these bytes are, in order. A job with another number of processes restores such pieces. Where
 * parts overlap they have the same contents: a number that all processes share is a global array of
 * its own, and everyone's part is all of it. -EINVAL: the sizes of memory and `where` differ. */
SHEAF_API int sheaf_ckpt_add_global(struct sheaf_ckpt *c, const char *name, void *mem,
				    const struct sheaf_type *type, uint64_t count,
				    const struct sheaf_type *where);

/* Makes a checkpoint. Returns when it is complete or, with SHEAF_CKPT_ASYNC, when the memory may
 * change again. -ETIMEDOUT: a process did not come, and sheaf_ckpt_why() names it. -ESTALE: another
 * job of this name has begun, because the servers did not hear of this one. On any failure the
 * previous checkpoint is the newest. */
SHEAF_API int sheaf_ckpt_take(struct sheaf_ckpt *c);
/* Waits for the checkpoint that is being written and returns its result; 0 if there is none. */
SHEAF_API int sheaf_ckpt_wait(struct sheaf_ckpt *c);
/* Takes a checkpoint if its time has come or one was requested: 1 if so. With SHEAF_CKPT_REFUSE a
 * request waits for a later call while the last one is written. To be called where the
 * state of the program is consistent, e.g. after each step; one small message per process. */
SHEAF_API int sheaf_ckpt_poll(struct sheaf_ckpt *c);
/* 1: signal_end has come to a process, and the checkpoint that it requested was taken: the program
 * should end. Not collective; all get the same answer after a poll. */
SHEAF_API int sheaf_ckpt_ending(struct sheaf_ckpt *c);
/* Reads the newest complete checkpoint into the registered memory. Damaged ones are skipped, with a
 * message on stderr. *number: of the checkpoint, or NULL. -ENOENT: there is none. -EINVAL: pieces
 * or types are not those of the checkpoint. After these two the memory is unchanged. Other errors:
 * the contents of the memory are undefined. -EUCLEAN: damage was found after some was read, and no
 * other checkpoint could be restored. */
SHEAF_API int sheaf_ckpt_restore(struct sheaf_ckpt *c, uint64_t *number);
/* The same for the files of a local directory (without those in directories of it, and names of at
 * most 63 characters), in a job of one process without pieces: `sheaf ckpt run` does so. The second
 * one writes them into an empty directory. */
SHEAF_API int sheaf_ckpt_save_dir(struct sheaf_ckpt *c, const char *dir);
SHEAF_API int sheaf_ckpt_load_dir(struct sheaf_ckpt *c, const char *dir, uint64_t *number);
/* Explains the last failure of a sheaf_ckpt_ call of this thread. */
SHEAF_API const char *sheaf_ckpt_why(void);

/* What the last checkpoint of this process cost. Not collective. */
struct sheaf_ckpt_cost {
	uint32_t size; /* in: sizeof(struct sheaf_ckpt_cost) */
	uint32_t one_file; /* it is in one file of all processes */
	uint64_t number, bytes; /* of data written by this process */
	uint64_t copied_pages, waits; /* copies on write; writes that waited for memory for one */
	uint64_t mprotect_bytes; /* of memory into which system calls may not write meanwhile */
	double blocked_s, total_s; /* time in the call; until it was complete */
	double interval_s; /* between checkpoints, as chosen by sheaf_ckpt_poll(); 0: none */
};
SHEAF_API int sheaf_ckpt_cost(struct sheaf_ckpt *c, struct sheaf_ckpt_cost *cost);

/* ---- the checkpoints of any job; not collective. dir NULL: "/ckpt" ---- */

struct sheaf_ckpt_info {
	uint32_t size; /* in: sizeof(struct sheaf_ckpt_info), of each element */
	uint32_t processes;
	uint64_t number;
	uint64_t since; /* has only changes since that one; 0: full */
	uint64_t bytes; /* of data */
	int64_t taken; /* seconds since 1970 */
	double seconds; /* that it took */
	int one_file;
	int complete; /* 0: not complete, or its manifest is damaged; only `number` is valid */
};
/* The checkpoints of a job, the newest first: fills at most max and returns how many there are. */
SHEAF_API int sheaf_ckpt_list(struct sheaf *fs, const char *dir, const char *job,
			      struct sheaf_ckpt_info *out, int max);
struct sheaf_ckpt_piece {
	char name[64];
	uint64_t bytes; /* of this process */
	uint64_t global; /* bytes of the global array; 0: not global */
};
/* The pieces of a process of a checkpoint, as sheaf_ckpt_list(). */
SHEAF_API int sheaf_ckpt_pieces(struct sheaf *fs, const char *dir, const char *job, uint64_t number,
				uint32_t process, struct sheaf_ckpt_piece *out, int max);
/* Reads all of a checkpoint, and of those it depends on. -EUCLEAN: damaged. */
SHEAF_API int sheaf_ckpt_verify(struct sheaf *fs, const char *dir, const char *job,
				uint64_t number);
/* -EBUSY: others depend on it. */
SHEAF_API int sheaf_ckpt_remove(struct sheaf *fs, const char *dir, const char *job,
				uint64_t number);
/* Keeps the newest n complete ones, now and from now on, whatever the program says; 0: as the
 * program says. Returns how many were removed. */
SHEAF_API int sheaf_ckpt_keep(struct sheaf *fs, const char *dir, const char *job, uint32_t n);
/* Requests a checkpoint of a running job: it takes it in its next sheaf_ckpt_poll(). */
SHEAF_API int sheaf_ckpt_now(struct sheaf *fs, const char *dir, const char *job);

#ifdef __cplusplus
}
#endif
#endif
