/* The calls of MPI-IO that programs make, except for those that move data (mpi_calls_data.c).
 *
 * A handle that is not Sheaf's goes to the MPI library. Threads: as MPI allows. Errors: raised at
 * the handler of the file; those of an open or a delete at that of MPI_FILE_NULL. */
#include "mpiio/mpi_calls.h"

EXPORT int PMPI_File_open(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *fh)
{
	struct mname m;
	int r;

	if (!mname_parse(name, &m)) {
		r = NEXT(File_open)(comm, name, amode, info, fh);
		if (!r)
			mfile_is_foreign(*fh);
		return r;
	}
	*fh = MPI_FILE_NULL;
	return merror_raise(MPI_FILE_NULL, mfile_open(comm, &m, amode, info, fh));
}
ALIAS(MPI_File_open, PMPI_File_open);

EXPORT int PMPI_File_close(MPI_File *fh)
{
	struct mfile *f = fh ? mfile_find(fh) : NULL;
	int r;

	if (!f)
		return NEXT(File_close)(fh);
	r = merror_raise(*fh, mfile_close(f));
	if (!f->is_closed)
		return r;
	mfile_free(f);
	*fh = MPI_FILE_NULL;
	return r;
}
ALIAS(MPI_File_close, PMPI_File_close);

EXPORT int PMPI_File_delete(const char *name, MPI_Info info)
{
	struct mname m;

	if (!mname_parse(name, &m))
		return NEXT(File_delete)(name, info);
	return merror_raise(MPI_FILE_NULL, mfile_delete(&m));
}
ALIAS(MPI_File_delete, PMPI_File_delete);

/* ---- sizes ---- */

EXPORT int PMPI_File_set_size(MPI_File fh, MPI_Offset size)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mfile_set_size(f, size)) : NEXT(File_set_size)(fh, size);
}
ALIAS(MPI_File_set_size, PMPI_File_set_size);

EXPORT int PMPI_File_preallocate(MPI_File fh, MPI_Offset size)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mfile_preallocate(f, size)) : NEXT(File_preallocate)(fh, size);
}
ALIAS(MPI_File_preallocate, PMPI_File_preallocate);

EXPORT int PMPI_File_get_size(MPI_File fh, MPI_Offset *size)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mfile_get_size(f, size)) : NEXT(File_get_size)(fh, size);
}
ALIAS(MPI_File_get_size, PMPI_File_get_size);

/* ---- what a file is ---- */

EXPORT int PMPI_File_get_group(MPI_File fh, MPI_Group *group)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, PMPI_Comm_group(f->comm, group)) :
		   NEXT(File_get_group)(fh, group);
}
ALIAS(MPI_File_get_group, PMPI_File_get_group);

EXPORT int PMPI_File_get_amode(MPI_File fh, int *amode)
{
	struct mfile *f = mfile_find(&fh);

	if (!f)
		return NEXT(File_get_amode)(fh, amode);
	*amode = f->amode;
	return MPI_SUCCESS;
}
ALIAS(MPI_File_get_amode, PMPI_File_get_amode);

EXPORT int PMPI_File_set_info(MPI_File fh, MPI_Info info)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mhints_set(f, info)) : NEXT(File_set_info)(fh, info);
}
ALIAS(MPI_File_set_info, PMPI_File_set_info);

EXPORT int PMPI_File_get_info(MPI_File fh, MPI_Info *info)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mhints_get(f, info)) : NEXT(File_get_info)(fh, info);
}
ALIAS(MPI_File_get_info, PMPI_File_get_info);

/* ---- views and positions ---- */

EXPORT int PMPI_File_set_view(MPI_File fh, MPI_Offset disp, MPI_Datatype etype,
			      MPI_Datatype filetype, const char *datarep, MPI_Info info)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mview_set(f, disp, etype, filetype, datarep, info)) :
		   NEXT(File_set_view)(fh, disp, etype, filetype, datarep, info);
}
ALIAS(MPI_File_set_view, PMPI_File_set_view);

static int get_view(struct mfile *f, MPI_Offset *disp, MPI_Datatype *etype, MPI_Datatype *filetype,
		    char *datarep)
{
	static const char *const reps[N_REPS] = { "native", "external32" };

	*disp = f->view.disp;
	strcpy(datarep, reps[f->view.rep]);
	return mtype_copy(f->view.etype, etype) || mtype_copy(f->view.filetype, filetype) ?
		       MPI_ERR_TYPE :
		       MPI_SUCCESS;
}

EXPORT int PMPI_File_get_view(MPI_File fh, MPI_Offset *disp, MPI_Datatype *etype,
			      MPI_Datatype *filetype, char *datarep)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, get_view(f, disp, etype, filetype, datarep)) :
		   NEXT(File_get_view)(fh, disp, etype, filetype, datarep);
}
ALIAS(MPI_File_get_view, PMPI_File_get_view);

static int seek(struct mfile *f, MPI_Offset offset, int whence)
{
	if (f->amode & MPI_MODE_SEQUENTIAL)
		return MPI_ERR_UNSUPPORTED_OPERATION;
	return mview_seek(f, offset, whence, f->pos, &f->pos);
}

EXPORT int PMPI_File_seek(MPI_File fh, MPI_Offset offset, int whence)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, seek(f, offset, whence)) : NEXT(File_seek)(fh, offset, whence);
}
ALIAS(MPI_File_seek, PMPI_File_seek);

EXPORT int PMPI_File_get_position(MPI_File fh, MPI_Offset *offset)
{
	struct mfile *f = mfile_find(&fh);

	if (!f)
		return NEXT(File_get_position)(fh, offset);
	if (f->amode & MPI_MODE_SEQUENTIAL)
		return merror_raise(fh, MPI_ERR_UNSUPPORTED_OPERATION);
	*offset = f->pos;
	return MPI_SUCCESS;
}
ALIAS(MPI_File_get_position, PMPI_File_get_position);

EXPORT int PMPI_File_get_byte_offset(MPI_File fh, MPI_Offset offset, MPI_Offset *disp)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mview_byte_offset(f, offset, disp)) :
		   NEXT(File_get_byte_offset)(fh, offset, disp);
}
ALIAS(MPI_File_get_byte_offset, PMPI_File_get_byte_offset);

EXPORT int PMPI_File_seek_shared(MPI_File fh, MPI_Offset offset, int whence)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mshared_seek(f, offset, whence)) :
		   NEXT(File_seek_shared)(fh, offset, whence);
}
ALIAS(MPI_File_seek_shared, PMPI_File_seek_shared);

EXPORT int PMPI_File_get_position_shared(MPI_File fh, MPI_Offset *offset)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mshared_get(f, offset)) :
		   NEXT(File_get_position_shared)(fh, offset);
}
ALIAS(MPI_File_get_position_shared, PMPI_File_get_position_shared);

EXPORT int PMPI_File_get_type_extent(MPI_File fh, MPI_Datatype type, MPI_Aint *extent)
{
	struct mfile *f = mfile_find(&fh);
	struct mtype *t;
	int r;

	if (!f)
		return NEXT(File_get_type_extent)(fh, type, extent);
	r = mtype_get(type, f->view.rep, &t);
	if (!r) {
		*extent = (MPI_Aint)t->extent;
		mtype_put(t);
	}
	return merror_raise(fh, r);
}
ALIAS(MPI_File_get_type_extent, PMPI_File_get_type_extent);

#if MPI_VERSION >= 4
EXPORT int PMPI_File_get_type_extent_c(MPI_File fh, MPI_Datatype type, MPI_Count *extent)
{
	struct mfile *f = mfile_find(&fh);
	struct mtype *t;
	int r;

	if (!f)
		return NEXT(File_get_type_extent_c)(fh, type, extent);
	r = mtype_get(type, f->view.rep, &t);
	if (!r) {
		*extent = t->extent;
		mtype_put(t);
	}
	return merror_raise(fh, r);
}
ALIAS(MPI_File_get_type_extent_c, PMPI_File_get_type_extent_c);
#endif

/* ---- consistency ---- */

EXPORT int PMPI_File_set_atomicity(MPI_File fh, int flag)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mfile_set_atomicity(f, flag)) :
		   NEXT(File_set_atomicity)(fh, flag);
}
ALIAS(MPI_File_set_atomicity, PMPI_File_set_atomicity);

EXPORT int PMPI_File_get_atomicity(MPI_File fh, int *flag)
{
	struct mfile *f = mfile_find(&fh);

	if (!f)
		return NEXT(File_get_atomicity)(fh, flag);
	*flag = f->is_atomic;
	return MPI_SUCCESS;
}
ALIAS(MPI_File_get_atomicity, PMPI_File_get_atomicity);

EXPORT int PMPI_File_sync(MPI_File fh)
{
	struct mfile *f = mfile_find(&fh);

	return f ? merror_raise(fh, mfile_sync(f)) : NEXT(File_sync)(fh);
}
ALIAS(MPI_File_sync, PMPI_File_sync);

/* ---- start ---- */

#ifndef MPICH_VERSION

/* A thread of this library completes requests (mpi_requests.c). */
EXPORT int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	(void)required;
	return NEXT(Init_thread)(argc, argv, MPI_THREAD_MULTIPLE, provided);
}
ALIAS(MPI_Init_thread, PMPI_Init_thread);

EXPORT int PMPI_Init(int *argc, char ***argv)
{
	int provided;

	return PMPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &provided);
}
ALIAS(MPI_Init, PMPI_Init);

#endif
