/* The access pattern of BT-IO: a simulation on a grid of grid^3 points with 5 numbers each, which
 * writes the whole array every few steps and reads everything back at the end.
 *
 *     mpiexec -n 4 bt [--grid 64] [--dumps 40] [--sleep MS] [--work SWEEPS] [--io 0|1]
 *                     [--collective 0|1] [--drop 0|1] FILE
 *
 * n^2 processes divide the grid into n^3 cells, n for each process: one in each layer, along a
 * diagonal (multi-partitioning). In memory a cell has two layers of ghost points around it, so both
 * sides are noncontiguous. The file has one array behind the other, rows of numbers first.
 * Between two dumps every rank sleeps, or sweeps over an array of its own, or both. With --io 0 it
 * does that only. Times: of the writes with the close, of the reads, and of everything. */
#include <math.h>

#include "mpi_bench.h"

#define NUMBERS 5
#define GHOST 2
#define MAX_CELLS 16

static struct mpi_bench b = { .program = "bt", .rounds = 1, .collective = 1 };
static double grid = 64, dumps = 40, sleep_ms, sweeps, io = 1;

static struct cells {
	int n, edge, wide; /* cells of this rank; points along an edge, without and with ghosts */
	int at[MAX_CELLS][3]; /* first point in the grid: z, y, x */
	uint64_t numbers; /* of one cell in memory */
	double *mem, *scratch;
	MPI_Datatype in_file, in_memory;
} c;

/* ---- the partition ---- */

/* Cell k of a process lies in layer k; from layer to layer it moves along the diagonal. */
static void place_cells(void)
{
	int row, column;

	c.n = (int)lround(sqrt(b.ranks));
	if (c.n * c.n != b.ranks || c.n > MAX_CELLS || (int)grid % c.n)
		mpi_fail(&b, "processes", "need a square number whose root divides --grid");
	c.edge = (int)grid / c.n;
	c.wide = c.edge + 2 * GHOST;
	c.numbers = (uint64_t)NUMBERS * (uint64_t)(c.wide * c.wide * c.wide);
	row = b.rank / c.n;
	column = b.rank % c.n;
	for (int k = 0; k < c.n; k++) {
		c.at[k][0] = k * c.edge;
		c.at[k][1] = (row + c.n - k) % c.n * c.edge;
		c.at[k][2] = (column + k) % c.n * c.edge;
	}
}

static MPI_Datatype box(int edge, const int *start)
{
	int sizes[] = { edge, edge, edge, NUMBERS }, starts[] = { start[0], start[1], start[2], 0 };
	int subsizes[] = { c.edge, c.edge, c.edge, NUMBERS };
	MPI_Datatype t;

	MPI_Type_create_subarray(4, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &t);
	return t;
}

/* All cells of this rank as one type, whose cells begin `apart` bytes from each other. */
static MPI_Datatype join_cells(MPI_Datatype *cells, MPI_Aint apart)
{
	MPI_Aint where[MAX_CELLS];
	int ones[MAX_CELLS];
	MPI_Datatype t;

	for (int k = 0; k < c.n; k++) {
		where[k] = k * apart;
		ones[k] = 1;
	}
	MPI_Type_create_struct(c.n, ones, where, cells, &t);
	MPI_Type_commit(&t);
	for (int k = 0; k < c.n; k++)
		MPI_Type_free(&cells[k]);
	return t;
}

static void make_types(void)
{
	const int inside[] = { GHOST, GHOST, GHOST };
	MPI_Datatype file[MAX_CELLS], memory[MAX_CELLS];

	for (int k = 0; k < c.n; k++) {
		file[k] = box((int)grid, c.at[k]);
		memory[k] = box(c.wide, inside);
	}
	c.in_file = join_cells(file, 0);
	c.in_memory = join_cells(memory, (MPI_Aint)(c.numbers * sizeof(double)));
	c.mem = calloc((uint64_t)c.n * c.numbers, sizeof(double));
	c.scratch = calloc(c.numbers, sizeof(double));
	if (!c.mem || !c.scratch)
		mpi_fail(&b, "memory", "out of memory");
}

/* ---- data ---- */

static uint64_t array_bytes(void)
{
	return (uint64_t)(grid * grid * grid) * NUMBERS * sizeof(double);
}

/* Fills this rank's points of one dump, or counts the bytes that differ. */
static uint64_t each_row(int dump, bool fill)
{
	uint64_t row = (uint64_t)c.edge * NUMBERS * sizeof(double), wrong = 0;

	for (int i = 0; i < c.n * c.edge * c.edge; i++) {
		int k = i / (c.edge * c.edge), z = i / c.edge % c.edge, y = i % c.edge;
		uint64_t line = (uint64_t)((c.at[k][0] + z) * (int)grid + c.at[k][1] + y);
		uint64_t at =
			(line * (uint64_t)grid + (uint64_t)c.at[k][2]) * NUMBERS * sizeof(double);
		double *mem =
			c.mem + (uint64_t)k * c.numbers +
			(uint64_t)(((z + GHOST) * c.wide + y + GHOST) * c.wide + GHOST) * NUMBERS;

		at += (uint64_t)dump * array_bytes();
		if (fill)
			mpi_fill(mem, row, at, 1);
		else
			wrong += mpi_compare(mem, row, at, 1);
	}
	return wrong;
}

/* What a simulation does between two dumps. */
static void compute(void)
{
	long ns = (long)(sleep_ms * 1e6);
	struct timespec t = { ns / 1000000000, ns % 1000000000 };
	uint64_t plane = (uint64_t)c.wide * (uint64_t)c.wide * NUMBERS;

	if (ns)
		nanosleep(&t, NULL);
	for (int k = 0; k < (int)sweeps; k++)
		for (uint64_t i = plane; i < c.numbers - plane; i++)
			c.scratch[i] = 0.25 * (c.scratch[i - plane] + c.scratch[i + plane] +
					       c.scratch[i - NUMBERS] + c.scratch[i + NUMBERS]) +
				       1;
}

/* ---- the run ---- */

static MPI_File open_view(int mode)
{
	MPI_File f = mpi_open(&b, mode);

	mpi_must(&b, "view", MPI_File_set_view(f, 0, MPI_DOUBLE, c.in_file, "native", b.info));
	return f;
}

/* Where a dump begins in the view of this rank, in numbers. */
static MPI_Offset dump_at(int dump)
{
	return (MPI_Offset)dump * c.n * c.edge * c.edge * c.edge * NUMBERS;
}

static double write_all_dumps(void)
{
	MPI_File f = io > 0 ? open_view(MPI_MODE_CREATE | MPI_MODE_RDWR) : MPI_FILE_NULL;
	double spent = 0, start;

	for (int i = 0; i < (int)dumps; i++) {
		compute();
		each_row(i, true);
		start = mpi_start();
		if (f == MPI_FILE_NULL)
			continue;
		mpi_must(&b, "write",
			 (b.collective > 0 ? MPI_File_write_at_all : MPI_File_write_at)(
				 f, dump_at(i), c.mem, 1, c.in_memory, MPI_STATUS_IGNORE));
		spent += MPI_Wtime() - start;
	}
	start = mpi_start();
	if (f != MPI_FILE_NULL)
		mpi_must(&b, "close", MPI_File_close(&f));
	return spent + MPI_Wtime() - start;
}

static double read_all_dumps(void)
{
	MPI_File f;
	uint64_t wrong = 0;
	double spent = 0, start;

	mpi_drop_cache(&b);
	f = open_view(MPI_MODE_RDONLY);
	for (int i = 0; i < (int)dumps; i++) {
		memset(c.mem, 0, (uint64_t)c.n * c.numbers * sizeof(double));
		start = mpi_start();
		mpi_must(&b, "read",
			 (b.collective > 0 ? MPI_File_read_at_all : MPI_File_read_at)(
				 f, dump_at(i), c.mem, 1, c.in_memory, MPI_STATUS_IGNORE));
		spent += MPI_Wtime() - start;
		wrong += each_row(i, false);
	}
	mpi_must(&b, "close", MPI_File_close(&f));
	mpi_check(&b, wrong);
	return spent;
}

static void note_slowest(const char *name, double mine)
{
	double all;

	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	mpi_note(&b, name, all);
}

int main(int argc, char **argv)
{
	struct mpi_param params[] = { { "grid", &grid },      { "dumps", &dumps },
				      { "sleep", &sleep_ms }, { "work", &sweeps },
				      { "io", &io },	      { NULL, NULL } };
	double start;

	mpi_begin(&b, params, argc, argv);
	place_cells();
	make_types();
	b.bytes = array_bytes() * (uint64_t)dumps;
	for (int i = 0; i < (int)b.rounds; i++) {
		start = mpi_start();
		note_slowest("write", write_all_dumps());
		if (io > 0)
			note_slowest("read", read_all_dumps());
		note_slowest("total", MPI_Wtime() - start);
	}
	free(c.mem);
	free(c.scratch);
	MPI_Type_free(&c.in_file);
	MPI_Type_free(&c.in_memory);
	return mpi_end(&b);
}
