/* Errors: from errno to the classes of MPI, and to the error handlers of files.
 *
 * Threads: any. */
#include "mpiio/mpi_impl.h"

static const struct {
	int err, class;
} classes[] = {
	{ ENOENT, MPI_ERR_NO_SUCH_FILE },   { ENOTDIR, MPI_ERR_BAD_FILE },
	{ ENAMETOOLONG, MPI_ERR_BAD_FILE }, { ELOOP, MPI_ERR_BAD_FILE },
	{ EISDIR, MPI_ERR_BAD_FILE },	    { EEXIST, MPI_ERR_FILE_EXISTS },
	{ EACCES, MPI_ERR_ACCESS },	    { EPERM, MPI_ERR_ACCESS },
	{ ENOSPC, MPI_ERR_NO_SPACE },	    { EFBIG, MPI_ERR_NO_SPACE },
	{ EDQUOT, MPI_ERR_QUOTA },	    { EROFS, MPI_ERR_READ_ONLY },
	{ EBUSY, MPI_ERR_FILE_IN_USE },	    { ETXTBSY, MPI_ERR_FILE_IN_USE },
	{ ENOMEM, MPI_ERR_NO_MEM },	    { EINVAL, MPI_ERR_ARG },
	{ EBADF, MPI_ERR_AMODE },	    { EFAULT, MPI_ERR_BUFFER },
};

int merror_class(int err)
{
	if (err >= 0)
		return MPI_SUCCESS;
	for (size_t i = 0; i < ARRAY_LEN(classes); i++)
		if (classes[i].err == -err)
			return classes[i].class;
	return MPI_ERR_IO;
}

#ifdef MPICH_VERSION

static void raise_default(int class)
{
	PMPI_File_call_errhandler(MPI_FILE_NULL, class);
}

#else

/* Open MPI does not accept MPI_FILE_NULL in MPI_File_call_errhandler(): a file with the same
 * handler takes its place. */
static void raise_default(int class)
{
	MPI_Errhandler handler;
	MPI_File f;

	if (PMPI_File_get_errhandler(MPI_FILE_NULL, &handler))
		return;
	if (handler != MPI_ERRORS_RETURN &&
	    NEXT(File_open)(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL, &f) ==
		    MPI_SUCCESS) {
		PMPI_File_set_errhandler(f, handler);
		PMPI_File_call_errhandler(f, class);
		NEXT(File_close)(&f);
	}
	PMPI_Errhandler_free(&handler);
}

#endif

int merror_raise(MPI_File handle, int class)
{
	if (class != MPI_SUCCESS && handle == MPI_FILE_NULL)
		raise_default(class);
	else if (class != MPI_SUCCESS)
		PMPI_File_call_errhandler(handle, class);
	return class;
}

int msame(const struct mfile *f, int kind, int class, int64_t most[MSAME_VALUES])
{
	enum { KIND, MINUS_KIND, CLASS, VALUES };
	int64_t mine[VALUES + MSAME_VALUES] = { kind, -kind, class }, all[ARRAY_LEN(mine)];
	size_t size = MSAME_VALUES * sizeof(*most);

	if (most)
		memcpy(mine + VALUES, most, size);
	if (PMPI_Allreduce(mine, all, (int)ARRAY_LEN(mine), MPI_INT64_T, MPI_MAX, f->comm))
		return MPI_ERR_INTERN;
	if (all[KIND] != -all[MINUS_KIND])
		return MPI_ERR_NOT_SAME;
	if (most)
		memcpy(most, all + VALUES, size);
	return (int)all[CLASS];
}

int merror_all(MPI_Comm comm, int class)
{
	int all = class, r = PMPI_Allreduce(&class, &all, 1, MPI_INT, MPI_MAX, comm);

	return r ? MPI_ERR_OTHER : all;
}
