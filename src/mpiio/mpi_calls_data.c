/* The calls of MPI-IO that move data. See mpi_calls.c.
 *
 * Threads: as MPI allows. Buffers: the program's. Errors: raised at the handler of the file. */
#include "mpiio/mpi_calls.h"

/* The split calls, of which a file has at most one under way. */
enum {
	SPLIT_READ_AT_ALL = 1,
	SPLIT_READ_ALL,
	SPLIT_READ_ORDERED,
	SPLIT_WRITE_AT_ALL,
	SPLIT_WRITE_ALL,
	SPLIT_WRITE_ORDERED,
};

#define COUNT int
#define NAME(x) x
#include "mpiio/mpi_data_calls.h"
#undef COUNT
#undef NAME

#if MPI_VERSION >= 4
#define COUNT MPI_Count
#define NAME(x) x##_c
#include "mpiio/mpi_data_calls.h"
#undef COUNT
#undef NAME
#endif

EXPORT int PMPI_File_read_at_all_end(MPI_File fh, void *buf, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mcall_end(f, buf, SPLIT_READ_AT_ALL, st)) :
		   NEXT(File_read_at_all_end)(fh, buf, st);
}
ALIAS(MPI_File_read_at_all_end, PMPI_File_read_at_all_end);

EXPORT int PMPI_File_read_all_end(MPI_File fh, void *buf, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mcall_end(f, buf, SPLIT_READ_ALL, st)) :
		   NEXT(File_read_all_end)(fh, buf, st);
}
ALIAS(MPI_File_read_all_end, PMPI_File_read_all_end);

EXPORT int PMPI_File_read_ordered_end(MPI_File fh, void *buf, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mcall_end(f, buf, SPLIT_READ_ORDERED, st)) :
		   NEXT(File_read_ordered_end)(fh, buf, st);
}
ALIAS(MPI_File_read_ordered_end, PMPI_File_read_ordered_end);

EXPORT int PMPI_File_write_at_all_end(MPI_File fh, const void *buf, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mcall_end(f, buf, SPLIT_WRITE_AT_ALL, st)) :
		   NEXT(File_write_at_all_end)(fh, buf, st);
}
ALIAS(MPI_File_write_at_all_end, PMPI_File_write_at_all_end);

EXPORT int PMPI_File_write_all_end(MPI_File fh, const void *buf, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mcall_end(f, buf, SPLIT_WRITE_ALL, st)) :
		   NEXT(File_write_all_end)(fh, buf, st);
}
ALIAS(MPI_File_write_all_end, PMPI_File_write_all_end);

EXPORT int PMPI_File_write_ordered_end(MPI_File fh, const void *buf, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mcall_end(f, buf, SPLIT_WRITE_ORDERED, st)) :
		   NEXT(File_write_ordered_end)(fh, buf, st);
}
ALIAS(MPI_File_write_ordered_end, PMPI_File_write_ordered_end);
