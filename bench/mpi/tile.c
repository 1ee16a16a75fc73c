/* Tiles: each rank accesses one tile of an image that is stored by rows, as the processes of a wall
 * of displays do (after the tiled access test of the papers in docs/performance.md). Contiguous in
 * memory, one piece per row of the tile in the file.
 *
 *     mpiexec -n 4 tile [--columns 2] [--width 1024] [--height 768] [--element 24] [--overlap-x 0]
 *                       [--overlap-y 0] [--collective 0|1] [--rounds 5] [--drop 0|1] FILE
 *
 * The first round makes the file and is not counted. The time of a write includes the close. */
#include "mpi_bench.h"

static struct mpi_bench b = { .program = "tile", .rounds = 5, .collective = 0 };
static double columns = 2, width = 1024, height = 768, element = 24, overlap_x, overlap_y;

static struct tile {
	int across, down; /* elements between the beginnings of adjacent tiles */
	int sizes[3], subsizes[3], starts[3]; /* rows, columns, bytes */
	uint64_t bytes;
	MPI_Datatype in_file;
} t;

static void lay_out(void)
{
	int n = (int)columns, rows = (b.ranks + n - 1) / n;

	t.across = (int)(width - overlap_x);
	t.down = (int)(height - overlap_y);
	t.sizes[0] = t.down * (rows - 1) + (int)height;
	t.sizes[1] = t.across * (n - 1) + (int)width;
	t.subsizes[0] = (int)height;
	t.subsizes[1] = (int)width;
	t.starts[0] = b.rank / n * t.down;
	t.starts[1] = b.rank % n * t.across;
	t.sizes[2] = t.subsizes[2] = (int)element;
	t.bytes = (uint64_t)(width * height * element);
	b.bytes = t.bytes * (uint64_t)b.ranks;
	MPI_Type_create_subarray(3, t.sizes, t.subsizes, t.starts, MPI_ORDER_C, MPI_BYTE,
				 &t.in_file);
	MPI_Type_commit(&t.in_file);
}

/* Where row `i` of this tile begins in the file. */
static uint64_t row_at(int i)
{
	uint64_t row = (uint64_t)(t.starts[0] + i), column = (uint64_t)t.starts[1];

	return (row * (uint64_t)t.sizes[1] + column) * (uint64_t)t.sizes[2];
}

static void set_view(MPI_File f)
{
	mpi_must(&b, "view", MPI_File_set_view(f, 0, MPI_BYTE, t.in_file, "native", b.info));
}

static double write_once(unsigned char *mem)
{
	MPI_File f = mpi_open(&b, MPI_MODE_CREATE | MPI_MODE_RDWR);
	double start;

	set_view(f);
	start = mpi_start();
	mpi_must(&b, "write",
		 (b.collective > 0 ? MPI_File_write_all : MPI_File_write)(
			 f, mem, (int)t.bytes, MPI_BYTE, MPI_STATUS_IGNORE));
	mpi_must(&b, "close", MPI_File_close(&f));
	return mpi_slowest(start);
}

static double read_once(unsigned char *mem)
{
	MPI_File f;
	double start, s;

	mpi_drop_cache(&b);
	f = mpi_open(&b, MPI_MODE_RDONLY);
	set_view(f);
	start = mpi_start();
	mpi_must(&b, "read",
		 (b.collective > 0 ? MPI_File_read_all : MPI_File_read)(
			 f, mem, (int)t.bytes, MPI_BYTE, MPI_STATUS_IGNORE));
	s = mpi_slowest(start);
	mpi_must(&b, "close", MPI_File_close(&f));
	return s;
}

static void fill(unsigned char *mem, unsigned seed)
{
	uint64_t row = (uint64_t)(width * element);

	for (int i = 0; i < t.subsizes[0]; i++)
		mpi_fill(mem + (uint64_t)i * row, row, row_at(i), seed);
}

static uint64_t compare(const unsigned char *mem, unsigned seed)
{
	uint64_t row = (uint64_t)(width * element), wrong = 0;

	for (int i = 0; i < t.subsizes[0]; i++)
		wrong += mpi_compare(mem + (uint64_t)i * row, row, row_at(i), seed);
	return wrong;
}

int main(int argc, char **argv)
{
	struct mpi_param params[] = {
		{ "columns", &columns }, { "width", &width },	      { "height", &height },
		{ "element", &element }, { "overlap-x", &overlap_x }, { "overlap-y", &overlap_y },
		{ NULL, NULL }
	};
	unsigned char *mem;

	mpi_begin(&b, params, argc, argv);
	lay_out();
	mem = malloc(t.bytes);
	if (!mem)
		mpi_fail(&b, "memory", "out of memory");
	for (int i = -1; i < (int)b.rounds; i++) {
		double write_s, read_s;

		fill(mem, (unsigned)i + 1);
		write_s = write_once(mem);
		memset(mem, 0, t.bytes);
		read_s = read_once(mem);
		mpi_check(&b, compare(mem, (unsigned)i + 1));
		if (i < 0)
			continue;
		mpi_note(&b, "write", write_s);
		mpi_note(&b, "read", read_s);
	}
	free(mem);
	MPI_Type_free(&t.in_file);
	return mpi_end(&b);
}
