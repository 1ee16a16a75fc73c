/* PnetCDF: a variable over time, each step written by rows, read back by columns.
 *
 *     mpicc.openmpi -o pnetcdf_steps pnetcdf_steps.c -lpnetcdf
 *     mpiexec -n 4 env LD_PRELOAD=libsheaf-mpiio-openmpi.so ./pnetcdf_steps /mnt/sheaf/s.nc
 *
 * PnetCDF itself looks at the file before MPI-IO does, so it takes a path on a mount. */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS 4
#define N 256

static int rank, ranks;

static void must(const char *what, int r)
{
	if (r == NC_NOERR)
		return;
	fprintf(stderr, "pnetcdf_steps: rank %d: %s: %s\n", rank, what, ncmpi_strerror(r));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static float value_at(int step, int row, int column)
{
	return (float)((step * N + row) * N + column);
}

static void write_rows(const char *name)
{
	int file, dims[3], var, rows = N / ranks;
	float *mem = malloc(sizeof(float) * (size_t)rows * N);

	must("create",
	     ncmpi_create(MPI_COMM_WORLD, name, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
	must("define", ncmpi_def_dim(file, "time", NC_UNLIMITED, &dims[0]));
	must("define", ncmpi_def_dim(file, "y", N, &dims[1]));
	must("define", ncmpi_def_dim(file, "x", N, &dims[2]));
	must("define", ncmpi_def_var(file, "heat", NC_FLOAT, 3, dims, &var));
	must("define", ncmpi_enddef(file));
	for (int step = 0; step < STEPS; step++) {
		MPI_Offset start[] = { step, rank * rows, 0 }, count[] = { 1, rows, N };

		for (int i = 0; i < rows * N; i++)
			mem[i] = value_at(step, rank * rows + i / N, i % N);
		must("write", ncmpi_put_vara_float_all(file, var, start, count, mem));
	}
	must("close", ncmpi_close(file));
	free(mem);
}

static int read_columns(const char *name)
{
	int file, var, columns = N / ranks, wrong = 0;
	MPI_Offset start[] = { 0, 0, rank * columns }, count[] = { STEPS, N, columns };
	float *mem = calloc((size_t)STEPS * N * (size_t)columns, sizeof(float));

	must("open", ncmpi_open(MPI_COMM_WORLD, name, NC_NOWRITE, MPI_INFO_NULL, &file));
	must("variable", ncmpi_inq_varid(file, "heat", &var));
	must("read", ncmpi_get_vara_float_all(file, var, start, count, mem));
	for (int i = 0; i < STEPS * N * columns; i++)
		wrong += mem[i] !=
			 value_at(i / columns / N, i / columns % N, rank * columns + i % columns);
	must("close", ncmpi_close(file));
	free(mem);
	return wrong;
}

int main(int argc, char **argv)
{
	int wrong, all;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 2) {
		fprintf(stderr, "usage: pnetcdf_steps FILE\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	write_rows(argv[1]);
	wrong = read_columns(argv[1]);
	MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d steps of %d x %d: %s\n", STEPS, N, N, all ? "WRONG" : "as written");
	MPI_Finalize();
	return wrong ? 1 : 0;
}
