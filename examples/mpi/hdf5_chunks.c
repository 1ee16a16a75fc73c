/* Parallel HDF5: a chunked dataset, written by rows (collective) and read by columns (independent).
 *
 *     h5pcc.mpich -o hdf5_chunks hdf5_chunks.c        # or h5pcc.openmpi
 *     mpiexec.mpich -n 4 env LD_PRELOAD=libsheaf-mpiio-mpich.so ./hdf5_chunks sheaf:/grid.h5 */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define N 512
#define CHUNK 64

static int rank, ranks;

static hid_t must(const char *what, hid_t r)
{
	if (r < 0) {
		fprintf(stderr, "hdf5_chunks: rank %d: %s failed\n", rank, what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return r;
}

/* Moves one box of the dataset between the file and contiguous memory. */
static void move(hid_t set, const hsize_t start[2], const hsize_t count[2], int *mem, int write)
{
	hid_t in_file = must("space", H5Dget_space(set));
	hid_t in_memory = must("space", H5Screate_simple(2, count, NULL));
	hid_t how = must("list", H5Pcreate(H5P_DATASET_XFER));

	must("box", H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start, NULL, count, NULL));
	H5Pset_dxpl_mpio(how, write ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
	if (write)
		must("write", H5Dwrite(set, H5T_NATIVE_INT, in_memory, in_file, how, mem));
	else
		must("read", H5Dread(set, H5T_NATIVE_INT, in_memory, in_file, how, mem));
	H5Pclose(how);
	H5Sclose(in_memory);
	H5Sclose(in_file);
}

static void write_rows(hid_t file)
{
	hsize_t sizes[] = { N, N }, chunk[] = { CHUNK, CHUNK };
	hsize_t count[] = { (hsize_t)(N / ranks), N }, start[] = { (hsize_t)rank * count[0], 0 };
	int n = (int)count[0] * N, *mem = malloc(sizeof(int) * (size_t)n);
	hid_t space = must("space", H5Screate_simple(2, sizes, NULL));
	hid_t how = must("list", H5Pcreate(H5P_DATASET_CREATE));
	hid_t set;

	for (int i = 0; i < n; i++)
		mem[i] = (int)start[0] * N + i;
	H5Pset_chunk(how, 2, chunk);
	set = must("dataset",
		   H5Dcreate2(file, "grid", H5T_NATIVE_INT, space, H5P_DEFAULT, how, H5P_DEFAULT));
	move(set, start, count, mem, 1);
	must("close", H5Dclose(set));
	H5Pclose(how);
	H5Sclose(space);
	free(mem);
}

static int read_columns(hid_t file)
{
	hsize_t count[] = { N, (hsize_t)(N / ranks) }, start[] = { 0, (hsize_t)rank * count[1] };
	int columns = (int)count[1], n = columns * N, wrong = 0;
	int *mem = calloc((size_t)n, sizeof(int));
	hid_t set = must("dataset", H5Dopen2(file, "grid", H5P_DEFAULT));

	move(set, start, count, mem, 0);
	for (int i = 0; i < n; i++)
		wrong += mem[i] != i / columns * N + (int)start[1] + i % columns;
	H5Dclose(set);
	free(mem);
	return wrong;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "sheaf:/grid.h5";
	int wrong, all;
	hid_t file, access;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	access = must("list", H5Pcreate(H5P_FILE_ACCESS));
	H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
	file = must("create", H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access));
	write_rows(file);
	must("close", H5Fclose(file));
	file = must("open", H5Fopen(name, H5F_ACC_RDONLY, access));
	wrong = read_columns(file);
	H5Fclose(file);
	H5Pclose(access);
	MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("a dataset of %d x %d in chunks of %d x %d: %s\n", N, N, CHUNK, CHUNK,
		       all ? "WRONG" : "as written");
	MPI_Finalize();
	return wrong ? 1 : 0;
}
