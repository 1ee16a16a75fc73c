/* The shared file pointer: a number in a small hidden file beside the data, changed under a lock.
 *
 * No process has to serve the others, so a pointer moves also while they compute. The first use
 * creates the file; the close of the data removes it. A job that is killed may leave it behind.
 *
 * Threads: the caller's. Errors: an MPI class. */
#include <fcntl.h>
#include <unistd.h>

#include "mpiio/mpi_impl.h"

static struct sheaf_lock whole(const struct mfile *f, uint32_t type)
{
	return (struct sheaf_lock){ .size = sizeof(struct sheaf_lock),
				    .type = type,
				    .owner = (uint64_t)(uintptr_t)f,
				    .pid = (uint32_t)getpid() };
}

static int begin(struct mfile *f)
{
	struct sheaf_lock l = whole(f, F_WRLCK);
	int r = 0;

	if (!f->pointer)
		r = sheaf_open(f->fs, f->pointer_path, O_RDWR | O_CREAT, 0600, NULL, &f->pointer);
	f->pointer_used = true;
	return r ? r : sheaf_lock(f->pointer, &l, 1);
}

static int end(struct mfile *f, int r)
{
	struct sheaf_lock l = whole(f, F_UNLCK);
	int unlocked = sheaf_lock(f->pointer, &l, 0);

	return r ? r : unlocked;
}

static int read_value(struct mfile *f, int64_t *value)
{
	uint64_t wire = 0;
	ssize_t n = sheaf_pread(f->pointer, &wire, sizeof(wire), 0);

	if (n < 0)
		return (int)n;
	*value = n == sizeof(wire) ? (int64_t)le64toh(wire) : f->pointer_start;
	return 0;
}

static int write_value(struct mfile *f, int64_t value)
{
	uint64_t wire = htole64((uint64_t)value);
	ssize_t n = sheaf_pwrite(f->pointer, &wire, sizeof(wire), 0);

	return n < 0 ? (int)n : 0;
}

int mshared_add(struct mfile *f, MPI_Offset etypes, MPI_Offset *before)
{
	int64_t value = 0;
	int r = begin(f);

	if (r)
		return merror_class(r);
	r = read_value(f, &value);
	*before = value;
	if (!r && etypes)
		r = __builtin_add_overflow(value, etypes, &value) ? -EINVAL : write_value(f, value);
	return merror_class(end(f, r));
}

int mshared_get(struct mfile *f, MPI_Offset *value)
{
	return mshared_add(f, 0, value);
}

/* Collective. Before the first use the value is kept in memory. */
int mshared_set(struct mfile *f, MPI_Offset value)
{
	int mine = f->pointer_used, used = 0, r = 0;

	if (PMPI_Allreduce(&mine, &used, 1, MPI_INT, MPI_LOR, f->comm))
		return MPI_ERR_OTHER;
	if (!used) {
		f->pointer_start = value;
		return MPI_SUCCESS;
	}
	if (f->rank == 0) {
		r = begin(f);
		if (!r)
			r = end(f, write_value(f, value));
	}
	return merror_all(f->comm, merror_class(r));
}

int mshared_seek(struct mfile *f, MPI_Offset offset, int whence)
{
	int64_t most[MSAME_VALUES] = { offset, -offset, whence, -(int64_t)whence };
	MPI_Offset pos = 0, to = 0;
	int r = f->amode & MPI_MODE_SEQUENTIAL ? MPI_ERR_UNSUPPORTED_OPERATION : MPI_SUCCESS;

	r = msame(f, MKIND_SEEK_SHARED, r, most);
	if (!r && (most[0] != -most[1] || most[2] != -most[3]))
		r = MPI_ERR_NOT_SAME;
	if (r) /* in all processes */
		return r;
	if (f->rank == 0 && whence == MPI_SEEK_CUR)
		r = mshared_get(f, &pos);
	if (!r && f->rank == 0)
		r = mview_seek(f, offset, whence, pos, &to);
	r = merror_all(f->comm, r);
	if (!r && PMPI_Bcast(&to, 1, MPI_OFFSET, 0, f->comm))
		r = MPI_ERR_OTHER;
	return r ? r : mshared_set(f, to);
}

void mshared_close(struct mfile *f, bool any_used)
{
	if (f->pointer)
		sheaf_close(f->pointer);
	f->pointer = NULL;
	if (any_used && f->rank == 0)
		sheaf_unlink(f->fs, f->pointer_path);
}
