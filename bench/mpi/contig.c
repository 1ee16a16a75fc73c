/* Contiguous transfers: each rank writes and reads a region of its own, block by block.
 *
 *     mpiexec -n 4 contig [--block 4194304] [--blocks 8] [--collective 0|1] [--rounds 5]
 *                         [--drop 0|1] FILE
 *
 * The first round makes the file and is not counted. The time of a write includes the close. */
#include "mpi_bench.h"

static struct mpi_bench b = { .program = "contig", .rounds = 5 };
static double block = 4 << 20, blocks = 8;

static uint64_t block_at(int i)
{
	return ((uint64_t)b.rank * (uint64_t)blocks + (uint64_t)i) * (uint64_t)block;
}

static double write_once(const unsigned char *mem)
{
	MPI_File f = mpi_open(&b, MPI_MODE_CREATE | MPI_MODE_RDWR);
	double start = mpi_start();

	for (int i = 0; i < (int)blocks; i++)
		mpi_must(&b, "write",
			 (b.collective > 0 ? MPI_File_write_at_all : MPI_File_write_at)(
				 f, (MPI_Offset)block_at(i), mem + (uint64_t)i * (uint64_t)block,
				 (int)block, MPI_BYTE, MPI_STATUS_IGNORE));
	mpi_must(&b, "close", MPI_File_close(&f));
	return mpi_slowest(start);
}

static double read_once(unsigned char *mem)
{
	MPI_File f;
	double start, s;

	mpi_drop_cache(&b);
	f = mpi_open(&b, MPI_MODE_RDONLY);
	start = mpi_start();
	for (int i = 0; i < (int)blocks; i++)
		mpi_must(&b, "read",
			 (b.collective > 0 ? MPI_File_read_at_all : MPI_File_read_at)(
				 f, (MPI_Offset)block_at(i), mem + (uint64_t)i * (uint64_t)block,
				 (int)block, MPI_BYTE, MPI_STATUS_IGNORE));
	s = mpi_slowest(start);
	mpi_must(&b, "close", MPI_File_close(&f));
	return s;
}

int main(int argc, char **argv)
{
	struct mpi_param params[] = { { "block", &block }, { "blocks", &blocks }, { NULL, NULL } };
	uint64_t bytes;
	unsigned char *mem;

	mpi_begin(&b, params, argc, argv);
	bytes = (uint64_t)block * (uint64_t)blocks;
	b.bytes = bytes * (uint64_t)b.ranks;
	mem = malloc(bytes ? bytes : 1);
	if (!mem)
		mpi_fail(&b, "memory", "out of memory");
	for (int i = -1; i < (int)b.rounds; i++) {
		double write_s, read_s;

		mpi_fill(mem, bytes, block_at(0), (unsigned)i + 1);
		write_s = write_once(mem);
		memset(mem, 0, bytes);
		read_s = read_once(mem);
		mpi_check(&b, mpi_compare(mem, bytes, block_at(0), (unsigned)i + 1));
		if (i < 0)
			continue;
		mpi_note(&b, "write", write_s);
		mpi_note(&b, "read", read_s);
	}
	free(mem);
	return mpi_end(&b);
}
