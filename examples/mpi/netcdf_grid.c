/* Parallel NetCDF-4: a chunked variable, written by boxes, read by planes.
 *
 *     mpicc.openmpi -o netcdf_grid netcdf_grid.c $(pkg-config --cflags --libs netcdf-mpi)
 *     mpiexec.openmpi -n 4 env LD_PRELOAD=libsheaf-mpiio-openmpi.so ./netcdf_grid sheaf:/grid.nc */
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <stdlib.h>

#define PLANES 16
#define N 128

static int rank, ranks;

static void must(const char *what, int r)
{
	if (r == NC_NOERR)
		return;
	fprintf(stderr, "netcdf_grid: rank %d: %s: %s\n", rank, what, nc_strerror(r));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static double value_at(int plane, int row, int column)
{
	return (double)((plane * N + row) * N + column);
}

/* Each rank has some rows of all planes. */
static void write_boxes(const char *name)
{
	int file, dims[3], var, rows = N / ranks, n = PLANES * rows * N;
	size_t chunk[] = { 4, 32, 32 }, count[] = { PLANES, (size_t)rows, N };
	size_t start[] = { 0, (size_t)(rank * rows), 0 };
	double *mem = malloc(sizeof(double) * (size_t)n);

	for (int i = 0; i < n; i++)
		mem[i] = value_at(i / N / rows, rank * rows + i / N % rows, i % N);
	must("create",
	     nc_create_par(name, NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
	must("define", nc_def_dim(file, "z", PLANES, &dims[0]));
	must("define", nc_def_dim(file, "y", N, &dims[1]));
	must("define", nc_def_dim(file, "x", N, &dims[2]));
	must("define", nc_def_var(file, "density", NC_DOUBLE, 3, dims, &var));
	must("define", nc_def_var_chunking(file, var, NC_CHUNKED, chunk));
	must("define", nc_enddef(file));
	must("access", nc_var_par_access(file, var, NC_COLLECTIVE));
	must("write", nc_put_vara_double(file, var, start, count, mem));
	must("close", nc_close(file));
	free(mem);
}

static int read_planes(const char *name)
{
	int file, var, planes = PLANES / ranks, n = planes * N * N, wrong = 0;
	size_t start[] = { (size_t)(rank * planes), 0, 0 }, count[] = { (size_t)planes, N, N };
	double *mem = calloc((size_t)n, sizeof(double));

	must("open", nc_open_par(name, NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
	must("variable", nc_inq_varid(file, "density", &var));
	must("access", nc_var_par_access(file, var, NC_INDEPENDENT));
	must("read", nc_get_vara_double(file, var, start, count, mem));
	for (int i = 0; i < n; i++)
		wrong += mem[i] != value_at(rank * planes + i / N / N, i / N % N, i % N);
	must("close", nc_close(file));
	free(mem);
	return wrong;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "sheaf:/grid.nc";
	int wrong, all;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	write_boxes(name);
	wrong = read_planes(name);
	MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("a grid of %d x %d x %d: %s\n", PLANES, N, N, all ? "WRONG" : "as written");
	MPI_Finalize();
	return wrong ? 1 : 0;
}
