/* Views: which bytes of the file a process sees, and where it is in them.
 *
 * Positions of MPI count etypes of the view's data. Threads: the caller's; a file is used by one
 * thread at a time for these calls. Errors: an MPI class. */
#include <stdlib.h>
#include <sys/stat.h>

#include "mpiio/mpi_impl.h"

int mtype_copy(MPI_Datatype t, MPI_Datatype *out)
{
	*out = t;
	if (!mcontents_is_derived(t))
		return MPI_SUCCESS;
	return PMPI_Type_dup(t, out) ? MPI_ERR_TYPE : MPI_SUCCESS;
}

static void free_type(MPI_Datatype *t)
{
	if (*t != MPI_DATATYPE_NULL && mcontents_is_derived(*t))
		PMPI_Type_free(t);
	*t = MPI_DATATYPE_NULL;
}

void mview_free(struct mview *v)
{
	mtype_put(v->file);
	v->file = NULL;
	free_type(&v->etype);
	free_type(&v->filetype);
}

int mview_default(struct mview *v)
{
	*v = (struct mview){ .etype = MPI_BYTE, .filetype = MPI_BYTE, .etype_bytes = 1 };
	return mtype_get(MPI_BYTE, REP_NATIVE, &v->file);
}

static int parse_rep(const char *name, enum mrep *rep)
{
	if (strcasecmp(name, "native") == 0 || strcasecmp(name, "internal") == 0)
		*rep = REP_NATIVE;
	else if (strcasecmp(name, "external32") == 0)
		*rep = REP_EXTERNAL32;
	else
		return MPI_ERR_UNSUPPORTED_DATAREP;
	return MPI_SUCCESS;
}

/* Decodes both types of a view. */
static int decode(struct mview *v, MPI_Datatype etype, MPI_Datatype filetype)
{
	struct mtype *e = NULL;
	int r = mtype_get(etype, v->rep, &e);

	if (!r)
		r = mtype_get(filetype, v->rep, &v->file);
	if (!r && (!e->size || !v->file->is_file_type || v->file->size % e->size))
		r = MPI_ERR_ARG;
	if (!r)
		v->etype_bytes = e->size;
	mtype_put(e);
	return r;
}

/* All processes need the same etype size; displacements and filetypes may differ. */
static int check_same(struct mfile *f, uint64_t etype_bytes, int r)
{
	int64_t most[MSAME_VALUES] = { (int64_t)etype_bytes, -(int64_t)etype_bytes };

	r = msame(f, MKIND_SET_VIEW, r, most);
	return r || most[0] == -most[1] ? r : MPI_ERR_NOT_SAME;
}

/* Where in the file this position of the view is. */
static int byte_at(struct mfile *f, MPI_Offset offset, MPI_Offset *out)
{
	const struct mview *v = &f->view;
	struct sheaf_extent e;

	if ((uint64_t)offset > INT64_MAX / v->etype_bytes ||
	    sheaf_type_pieces(v->file->t, (uint64_t)v->disp, (uint64_t)offset * v->etype_bytes, 1,
			      &e, 1) != 1)
		return MPI_ERR_ARG;
	*out = (MPI_Offset)e.offset;
	return MPI_SUCCESS;
}

int mview_set(struct mfile *f, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
	      const char *datarep, MPI_Info info)
{
	struct mview v = { .etype = MPI_DATATYPE_NULL, .filetype = MPI_DATATYPE_NULL };
	MPI_Offset shared = 0;
	int r = MPI_SUCCESS;

	if (f->split_call)
		r = MPI_ERR_OTHER;
	else if (disp == MPI_DISPLACEMENT_CURRENT && (f->amode & MPI_MODE_SEQUENTIAL))
		r = mshared_get(f, &shared);
	else if (disp < 0 || (f->amode & MPI_MODE_SEQUENTIAL))
		r = MPI_ERR_ARG;
	v.disp = disp;
	if (!r && disp == MPI_DISPLACEMENT_CURRENT)
		r = byte_at(f, shared, &v.disp);
	r = r ? r : mtype_check(etype, f->comm);
	r = r ? r : mtype_check(filetype, f->comm);
	r = r ? r : parse_rep(datarep, &v.rep);
	r = r ? r : decode(&v, etype, filetype); /* before the copies, which share the result */
	r = r ? r : mtype_copy(etype, &v.etype);
	r = r ? r : mtype_copy(filetype, &v.filetype);
	r = check_same(f, v.etype_bytes, r);
	r = r ? r : mhints_take(f, info);
	if (r) {
		mview_free(&v);
		return r;
	}
	mview_free(&f->view);
	f->view = v;
	f->pos = 0;
	return mshared_set(f, 0);
}

int mview_end(struct mfile *f, uint64_t *bytes)
{
	struct stat st;
	int64_t n;
	int r = sheaf_fstat(f->f, &st);

	if (r)
		return r;
	n = f->view.file->size ? sheaf_type_before(f->view.file->t, (uint64_t)f->view.disp,
						   (uint64_t)st.st_size) :
				 0;
	*bytes = (uint64_t)MAX(n, 0);
	return n < 0 ? (int)n : 0;
}

int mview_seek(struct mfile *f, MPI_Offset offset, int whence, MPI_Offset pos, MPI_Offset *out)
{
	MPI_Offset from = 0;
	uint64_t end;
	int r;

	if (whence == MPI_SEEK_CUR) {
		from = pos;
	} else if (whence == MPI_SEEK_END) {
		r = mview_end(f, &end);
		if (r)
			return merror_class(r);
		from = (MPI_Offset)((end + f->view.etype_bytes - 1) / f->view.etype_bytes);
	} else if (whence != MPI_SEEK_SET) {
		return MPI_ERR_ARG;
	}
	if (__builtin_add_overflow(from, offset, &offset) || offset < 0)
		return MPI_ERR_ARG;
	*out = offset;
	return MPI_SUCCESS;
}

int mview_byte_offset(struct mfile *f, MPI_Offset offset, MPI_Offset *out)
{
	if (offset < 0 || (f->amode & MPI_MODE_SEQUENTIAL))
		return offset < 0 ? MPI_ERR_ARG : MPI_ERR_UNSUPPORTED_OPERATION;
	return byte_at(f, offset, out);
}
