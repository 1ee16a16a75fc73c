/* The batch job that a process belongs to, as its environment tells; and labels that are safe in
 * tables, logs and metrics.
 *
 * Threads: any, while none changes the environment. Buffers: the caller's. Errors: none. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

/* The variables of one batch system. The first one says whether it runs the process. */
struct batch {
	const char *system, *id[2], *part[2], *name;
	bool is_number; /* the id must be one: its variable has a common name */
};

static const struct batch batches[] = {
	{ "slurm",
	  { "SLURM_JOB_ID", "SLURM_JOBID" },
	  { "SLURM_STEP_ID", "SLURM_STEPID" },
	  "SLURM_JOB_NAME",
	  false },
	{ "pbs", { "PBS_JOBID" }, { NULL }, "PBS_JOBNAME", false },
	{ "lsf", { "LSB_JOBID" }, { "LSB_JOBINDEX" }, "LSB_JOBNAME", false },
	{ "sge", { "JOB_ID" }, { "SGE_TASK_ID" }, "JOB_NAME", true },
};

void label_clean(char *text)
{
	if (*text == '(')
		*text = '_';
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '_';
}

/* The value of the first variable that is set, or NULL. */
static const char *value_of(const char *const names[2])
{
	const char *v = NULL;

	for (int i = 0; i < 2 && names[i] && !v; i++) {
		v = getenv(names[i]);
		v = v && *v ? v : NULL;
	}
	return v;
}

/* False: this system does not run the process. A part of an array job is missing, 0 or "undefined"
 * if the job is no array; the step of Slurm counts from 0. */
static bool describe(const struct batch *b, char out[JOB_MAX])
{
	const char *id = value_of(b->id), *part = value_of(b->part), *name = getenv(b->name);
	bool is_slurm = b == &batches[0];

	if (!id || (b->is_number && id[strspn(id, "0123456789")]))
		return false;
	if (part && !is_slurm && (strcmp(part, "0") == 0 || strcmp(part, "undefined") == 0))
		part = NULL;
	snprintf(out, JOB_MAX, "%s %.24s%s%.12s%s%s", b->system, id, part ? "." : "",
		 part ? part : "", name && *name ? " " : "", name ? name : "");
	return true;
}

void job_of_process(char out[JOB_MAX])
{
	const char *own = getenv("SHEAF_JOB");
	bool done = own != NULL;

	out[0] = 0;
	if (own)
		snprintf(out, JOB_MAX, "%s", own);
	for (size_t i = 0; i < ARRAY_LEN(batches) && !done; i++)
		done = describe(&batches[i], out);
	label_clean(out);
}
