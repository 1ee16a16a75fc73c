/* ckpt_run.c, ckpt_criu.c: `sheaf ckpt run`: checkpoints of unmodified programs by CRIU. */
#ifndef SHEAF_CKPT_RUN_H
#define SHEAF_CKPT_RUN_H

#include "commands/commands.h"

struct ckpt_run_options {
	const char *job; /* NULL: the command's name */
	const char *dir; /* of all jobs, or NULL */
	uint64_t interval_s; /* 0: none */
	uint32_t keep;
	bool restart;
	char **argv; /* NULL: only to restart */
};
/* Runs until the job ends. The exit status: that of the job, or CLI_... after a message. */
int ckpt_run(struct cli *c, const struct ckpt_run_options *o);

/* ---- ckpt_criu.c: calls of the program criu ---- */

/* What a restarted job needs besides the images of CRIU. */
struct criu_job {
	pid_t pid;
	char pipe[2][32]; /* standard output and error, as "pipe:[77]" */
	char tcp[32]; /* how CRIU saved its TCP connections: an option */
};
int criu_check(struct cli *c); /* CLI_OK, or CLI_FAILED after a message */
/* Writes the images of a process and all below it into a directory; it goes on. */
int criu_dump(struct cli *c, const char *images, struct criu_job *job);
void criu_empty(const char *images); /* removes them */
/* Makes the processes anew, as children of this one, with these descriptors as their output. */
int criu_restore(struct cli *c, const char *images, const int out[2], struct criu_job *job);

#endif
