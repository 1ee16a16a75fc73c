/* The processes of a job without MPI: forked children that reach each other through sockets.
 *
 *     static int program(const struct sheaf_ckpt_comm *comm, void *arg)
 *     ckpt_ranks_run(4, program, NULL);
 *
 * The caller has no connection to a file system while children begin. */
#ifndef SHEAF_TEST_CKPT_RANKS_H
#define SHEAF_TEST_CKPT_RANKS_H

#include <sys/types.h>

#include "sheaf_ckpt.h"

#define CKPT_RANKS_MAX 16

struct ckpt_ranks {
	int n;
	pid_t pid[CKPT_RANKS_MAX]; /* 0: reaped */
};

void ckpt_ranks_start(struct ckpt_ranks *r, int n,
		      int (*program)(const struct sheaf_ckpt_comm *comm, void *arg), void *arg);
/* Waits for all: 0, or the first exit status that is not 0; 128 + the signal if one was killed. */
int ckpt_ranks_wait(struct ckpt_ranks *r);
int ckpt_ranks_run(int n, int (*program)(const struct sheaf_ckpt_comm *comm, void *arg), void *arg);

#endif
