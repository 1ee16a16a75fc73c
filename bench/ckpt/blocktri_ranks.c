/* The processes of the solver: the ranks of MPI, or one process without it. */
#ifdef BLOCKTRI_MPI
#include <mpi.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blocktri.h"

int rank, ranks = 1;

double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void must(const char *what, long r)
{
	if (r < 0)
		fail(what, sheaf_strerror((int)r));
}

#ifdef BLOCKTRI_MPI

void fail(const char *what, const char *why)
{
	fprintf(stderr, "blocktri: process %d: %s: %s\n", rank, what, why);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

void ranks_begin(int *argc, char ***argv)
{
	MPI_Init(argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

void ranks_end(void)
{
	MPI_Finalize();
}

void ranks_wait(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
}

double ranks_most(double mine)
{
	double all;

	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all;
}

uint64_t ranks_sum(uint64_t mine)
{
	uint64_t all;

	MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

void ranks_exchange(const double *first, const double *last, double *below, double *above, size_t n)
{
	int down = rank ? rank - 1 : MPI_PROC_NULL,
	    up = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;

	MPI_Sendrecv(first, (int)n, MPI_DOUBLE, down, 1, above, (int)n, MPI_DOUBLE, up, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Sendrecv(last, (int)n, MPI_DOUBLE, up, 2, below, (int)n, MPI_DOUBLE, down, 2,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int ranks_open(struct sheaf *fs, const char *job, const struct sheaf_ckpt_options *o,
	       struct sheaf_ckpt **c)
{
	return sheaf_ckpt_open_mpi(fs, job, MPI_COMM_WORLD, o, c);
}

#else

void fail(const char *what, const char *why)
{
	fprintf(stderr, "blocktri: %s: %s\n", what, why);
	exit(1);
}

void ranks_begin(int *argc, char ***argv)
{
	(void)argc, (void)argv;
}

void ranks_end(void)
{
}

void ranks_wait(void)
{
}

double ranks_most(double mine)
{
	return mine;
}

uint64_t ranks_sum(uint64_t mine)
{
	return mine;
}

void ranks_exchange(const double *first, const double *last, double *below, double *above, size_t n)
{
	(void)first, (void)last, (void)below, (void)above, (void)n;
}

int ranks_open(struct sheaf *fs, const char *job, const struct sheaf_ckpt_options *o,
	       struct sheaf_ckpt **c)
{
	return sheaf_ckpt_open(fs, job, NULL, o, c);
}

#endif
