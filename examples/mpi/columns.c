/* Columns of a matrix by plain MPI-IO: written by rows, read by columns.
 *
 *     mpicc -o columns columns.c
 *     mpiexec.mpich -n 4 env LD_PRELOAD=libsheaf-mpiio-mpich.so ./columns sheaf:/matrix */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define N 1024 /* rows and columns */

static void must(const char *what, int r)
{
	char why[MPI_MAX_ERROR_STRING] = "";
	int n;

	if (r == MPI_SUCCESS)
		return;
	MPI_Error_string(r, why, &n);
	fprintf(stderr, "columns: %s: %s\n", what, why);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void write_rows(MPI_File f, int rank, int ranks)
{
	int rows = N / ranks, first = rank * rows;
	double *mem = malloc(sizeof(double) * (size_t)rows * N);

	for (int i = 0; i < rows * N; i++)
		mem[i] = first * N + i;
	must("write", MPI_File_write_at_all(f, (MPI_Offset)first * N * (MPI_Offset)sizeof(double),
					    mem, rows * N, MPI_DOUBLE, MPI_STATUS_IGNORE));
	free(mem);
}

/* Every rank reads its columns in one call: the view describes their pieces. */
static int read_columns(MPI_File f, int rank, int ranks)
{
	int columns = N / ranks, first = rank * columns, wrong = 0;
	int sizes[] = { N, N }, subsizes[] = { N, columns }, starts[] = { 0, first };
	double *mem = malloc(sizeof(double) * (size_t)columns * N);
	MPI_Datatype mine;

	MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &mine);
	MPI_Type_commit(&mine);
	must("view", MPI_File_set_view(f, 0, MPI_DOUBLE, mine, "native", MPI_INFO_NULL));
	must("read", MPI_File_read(f, mem, columns * N, MPI_DOUBLE, MPI_STATUS_IGNORE));
	for (int i = 0; i < columns * N; i++)
		wrong += mem[i] != (double)(i / columns * N + first + i % columns);
	MPI_Type_free(&mine);
	free(mem);
	return wrong;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "sheaf:/matrix";
	int rank, ranks, wrong, all;
	MPI_File f;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	must("open", MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR,
				   MPI_INFO_NULL, &f));
	write_rows(f, rank, ranks);
	must("sync", MPI_File_sync(f));
	MPI_Barrier(MPI_COMM_WORLD);
	must("sync", MPI_File_sync(f));
	wrong = read_columns(f, rank, ranks);
	must("close", MPI_File_close(&f));
	MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("columns of a %d x %d matrix: %s\n", N, N, all ? "WRONG" : "as written");
	MPI_Finalize();
	return wrong ? 1 : 0;
}
