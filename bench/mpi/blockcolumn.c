/* Block columns: an array of size x size integers is stored by rows, and each rank accesses its
 * share of the columns: one piece in every row (after figures 5 to 7 of the InfiniBand paper in
 * docs/performance.md).
 *
 *     mpiexec -n 4 blockcolumn [--size 2048] [--collective 0|1] [--rounds 5] [--drop 0|1] FILE
 *
 * The first round makes the file and is not counted. The time of a write includes the close. */
#include "mpi_bench.h"

static struct mpi_bench b = { .program = "blockcolumn", .rounds = 5 };
static double size = 2048;

static int rows, columns; /* of this rank's share; the array has as many rows */
static uint64_t piece, row_bytes; /* of the share, of the array */
static MPI_Datatype in_file;

static void lay_out(void)
{
	rows = (int)size;
	columns = rows / b.ranks;
	if (columns < 1)
		mpi_fail(&b, "--size", "fewer columns than processes");
	piece = (uint64_t)columns * sizeof(int32_t);
	row_bytes = piece * (uint64_t)b.ranks;
	b.bytes = row_bytes * (uint64_t)rows;
	MPI_Type_vector(rows, columns, columns * b.ranks, MPI_INT32_T, &in_file);
	MPI_Type_commit(&in_file);
}

static uint64_t piece_at(int row)
{
	return (uint64_t)row * row_bytes + (uint64_t)b.rank * piece;
}

static MPI_File open_view(int mode)
{
	MPI_File f = mpi_open(&b, mode);

	mpi_must(&b, "view",
		 MPI_File_set_view(f, (MPI_Offset)((uint64_t)b.rank * piece), MPI_INT32_T, in_file,
				   "native", b.info));
	return f;
}

static double write_once(const unsigned char *mem)
{
	MPI_File f = open_view(MPI_MODE_CREATE | MPI_MODE_RDWR);
	double start = mpi_start();

	mpi_must(&b, "write",
		 (b.collective > 0 ? MPI_File_write_all : MPI_File_write)(
			 f, mem, rows * columns, MPI_INT32_T, MPI_STATUS_IGNORE));
	mpi_must(&b, "close", MPI_File_close(&f));
	return mpi_slowest(start);
}

static double read_once(unsigned char *mem)
{
	MPI_File f;
	double start, s;

	mpi_drop_cache(&b);
	f = open_view(MPI_MODE_RDONLY);
	start = mpi_start();
	mpi_must(&b, "read",
		 (b.collective > 0 ? MPI_File_read_all : MPI_File_read)(
			 f, mem, rows * columns, MPI_INT32_T, MPI_STATUS_IGNORE));
	s = mpi_slowest(start);
	mpi_must(&b, "close", MPI_File_close(&f));
	return s;
}

static void run_round(unsigned char *mem, int round)
{
	double write_s, read_s;
	uint64_t wrong = 0;

	for (int i = 0; i < rows; i++)
		mpi_fill(mem + (uint64_t)i * piece, piece, piece_at(i), (unsigned)round + 1);
	write_s = write_once(mem);
	memset(mem, 0, (uint64_t)rows * piece);
	read_s = read_once(mem);
	for (int i = 0; i < rows; i++)
		wrong += mpi_compare(mem + (uint64_t)i * piece, piece, piece_at(i),
				     (unsigned)round + 1);
	mpi_check(&b, wrong);
	if (round < 0)
		return;
	mpi_note(&b, "write", write_s);
	mpi_note(&b, "read", read_s);
}

int main(int argc, char **argv)
{
	struct mpi_param params[] = { { "size", &size }, { NULL, NULL } };
	unsigned char *mem;

	mpi_begin(&b, params, argc, argv);
	lay_out();
	mem = malloc((uint64_t)rows * piece);
	if (!mem)
		mpi_fail(&b, "memory", "out of memory");
	for (int i = -1; i < (int)b.rounds; i++)
		run_round(mem, i);
	free(mem);
	MPI_Type_free(&in_file);
	return mpi_end(&b);
}
