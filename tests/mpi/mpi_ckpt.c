/* Checkpoints of an MPI program: a global array in blocks of rows, and a value of each process.
 *
 *     mpi_ckpt JOB first|again STEP [FLAGS]: takes checkpoints of STEP and the next one, or
 *         restores that one
 *     mpi_ckpt JOB late RANK: a process comes too late to a checkpoint, and is there at the next
 *         one */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sheaf_ckpt.h"

#define ROWS 240
#define COLUMNS 1000

static int rank, n;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "process %d: %s: %s\n", rank, what, sheaf_ckpt_why());
	MPI_Abort(MPI_COMM_WORLD, 1);
}

struct state {
	uint64_t step;
	double *rows;
	int n_rows;
	struct sheaf_type *where, *all;
};

static void state_begin(struct state *s, struct sheaf_ckpt *c)
{
	struct sheaf_type *cell;
	uint64_t sizes[2] = { ROWS, COLUMNS }, part[2], starts[2] = { 0, 0 };

	memset(s, 0, sizeof(*s));
	starts[0] = (uint64_t)(ROWS * rank / n);
	part[0] = (uint64_t)(ROWS * (rank + 1) / n) - starts[0];
	part[1] = COLUMNS;
	s->n_rows = (int)part[0];
	s->rows = calloc(part[0] * COLUMNS, sizeof(double));
	sheaf_type_bytes(sizeof(double), &cell);
	check(sheaf_type_subarray(2, sizes, part, starts, cell, &s->where) == 0, "subarray");
	sheaf_type_bytes(sizeof(s->step), &s->all);
	sheaf_type_free(cell);
	check(!sheaf_ckpt_add_global(c, "step", &s->step, NULL, sizeof(s->step), s->all), "step");
	check(!sheaf_ckpt_add_global(c, "field", s->rows, NULL, part[0] * COLUMNS * sizeof(double),
				     s->where),
	      "field");
}

static double value_of(const struct state *s, int i)
{
	return (double)s->step * 1e6 + ROWS * rank / n * COLUMNS + i;
}

static void compute(struct state *s)
{
	for (int i = 0; i < s->n_rows * COLUMNS; i++)
		s->rows[i] = value_of(s, i);
}

static void first(struct sheaf_ckpt *c, struct state *s, uint64_t step)
{
	check(sheaf_ckpt_restore(c, NULL) == -ENOENT, "restore of nothing");
	for (s->step = step; s->step < step + 2; s->step++) {
		compute(s);
		check(sheaf_ckpt_take(c) == 0, "take");
		check(sheaf_ckpt_wait(c) == 0, "wait");
	}
}

static void again(struct sheaf_ckpt *c, struct state *s, uint64_t step)
{
	uint64_t number;

	check(sheaf_ckpt_restore(c, &number) == 0, "restore");
	check(s->step == step + 1, "the step");
	for (int i = 0; i < s->n_rows * COLUMNS; i++)
		check(s->rows[i] == value_of(s, i), "the field");
}

static void late(struct sheaf_ckpt *c, struct state *s, int who)
{
	compute(s);
	check(sheaf_ckpt_take(c) == 0, "the first one");
	if (rank == who)
		sleep(5);
	check(sheaf_ckpt_take(c) == -ETIMEDOUT, "all know that one was late");
	if (!rank)
		printf("%s\n", sheaf_ckpt_why());
	MPI_Barrier(MPI_COMM_WORLD);
	check(sheaf_ckpt_take(c) == 0, "the next one");
}

int main(int argc, char **argv)
{
	struct sheaf_ckpt_options o = { .size = sizeof(o) };
	struct sheaf_ckpt *c;
	struct sheaf *fs;
	struct state s;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	if (argc < 4)
		return 2;
	o.flags = argc > 4 ? (uint32_t)atoi(argv[4]) : 0;
	if (!strcmp(argv[2], "late"))
		o.timeout_ms = 1500;
	check(sheaf_connect(NULL, &fs) == 0, "connect");
	check(sheaf_ckpt_open_mpi(fs, argv[1], MPI_COMM_WORLD, &o, &c) == 0, "open");
	state_begin(&s, c);
	if (!strcmp(argv[2], "first"))
		first(c, &s, strtoull(argv[3], NULL, 10));
	else if (!strcmp(argv[2], "again"))
		again(c, &s, strtoull(argv[3], NULL, 10));
	else
		late(c, &s, atoi(argv[3]));
	check(sheaf_ckpt_close(c) == 0, "close");
	sheaf_disconnect(fs);
	free(s.rows);
	sheaf_type_free(s.where);
	sheaf_type_free(s.all);
	MPI_Finalize();
	return 0;
}
