/* Jobs: the label that the environment gives a process, and what becomes of hostile text. */
#include <stdlib.h>

#include "base/base.h"
#include "test.h"

static const char *const variables[] = { "SHEAF_JOB",	  "SLURM_JOB_ID", "SLURM_JOBID",
					 "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_JOB_NAME",
					 "PBS_JOBID",	  "PBS_JOBNAME",  "LSB_JOBID",
					 "LSB_JOBINDEX",  "LSB_JOBNAME",  "JOB_ID",
					 "SGE_TASK_ID",	  "JOB_NAME" };
static char job[JOB_MAX];

static void begin(void)
{
	for (size_t i = 0; i < ARRAY_LEN(variables); i++)
		unsetenv(variables[i]);
}

/* The label of a process with the variables that were set since begin(). */
static const char *label(void)
{
	memset(job, 'x', sizeof(job));
	job_of_process(job);
	return job;
}

static void without_a_batch_system_there_is_no_job(void)
{
	begin();
	CHECK_STR(label(), "");
	setenv("JOB_ID", "nightly-build", 1); /* of another program */
	CHECK_STR(label(), "");
}

static void the_own_variable_comes_first(void)
{
	begin();
	setenv("SLURM_JOB_ID", "7", 1);
	setenv("SHEAF_JOB", "climate run 3", 1);
	CHECK_STR(label(), "climate run 3");
	setenv("SHEAF_JOB", "", 1);
	CHECK_STR(label(), "");
}

static void each_batch_system_names_its_job(void)
{
	begin();
	setenv("SLURM_JOBID", "12", 1);
	CHECK_STR(label(), "slurm 12");
	setenv("SLURM_JOB_ID", "1234", 1);
	setenv("SLURM_STEP_ID", "0", 1);
	setenv("SLURM_JOB_NAME", "wave", 1);
	CHECK_STR(label(), "slurm 1234.0 wave");
	begin();
	setenv("PBS_JOBID", "55.head", 1);
	setenv("PBS_JOBNAME", "ocean", 1);
	CHECK_STR(label(), "pbs 55.head ocean");
	begin();
	setenv("LSB_JOBID", "8", 1);
	setenv("LSB_JOBINDEX", "0", 1);
	CHECK_STR(label(), "lsf 8");
	setenv("LSB_JOBINDEX", "3", 1);
	CHECK_STR(label(), "lsf 8.3");
	begin();
	setenv("JOB_ID", "99", 1);
	setenv("SGE_TASK_ID", "undefined", 1);
	CHECK_STR(label(), "sge 99");
	setenv("SGE_TASK_ID", "2", 1);
	setenv("JOB_NAME", "fold", 1);
	CHECK_STR(label(), "sge 99.2 fold");
}

static void long_and_unprintable_text_is_made_harmless(void)
{
	char text[300];

	begin();
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	setenv("SHEAF_JOB", text, 1);
	CHECK_EQ(strlen(label()), JOB_MAX - 1);
	begin();
	setenv("SLURM_JOB_ID", text, 1);
	setenv("SLURM_STEP_ID", text, 1);
	setenv("SLURM_JOB_NAME", text, 1);
	CHECK_EQ(strlen(label()), JOB_MAX - 1);
	begin();
	setenv("SHEAF_JOB", "\033[2J\n\t\"\\\x7f\xc3\xa4", 1);
	CHECK_STR(label(), "_[2J__\"\\___");
	setenv("SHEAF_JOB", "(other)", 1);
	CHECK_STR(label(), "_other)");
}

TEST_MAIN(TEST(without_a_batch_system_there_is_no_job), TEST(the_own_variable_comes_first),
	  TEST(each_batch_system_names_its_job), TEST(long_and_unprintable_text_is_made_harmless))
