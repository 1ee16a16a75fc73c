/* Data accesses: from the arguments of a call to transfers of libsheaf.
 *
 * An access is one typed request for each server, whatever its datatypes are; two contiguous sides
 * are a plain read or write. Data of an external32 view pass through a buffer in which they are
 * converted.
 *
 * Threads: the caller's. Buffers: the caller's, borrowed until the access ends. Errors: an MPI
 * class, or -errno where bytes are counted. */
#include <fcntl.h>
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

/* ---- one access ---- */

static int check_mode(const struct mfile *f, bool write)
{
	if (write && (f->amode & MPI_MODE_RDONLY))
		return MPI_ERR_READ_ONLY;
	if (!write && (f->amode & MPI_MODE_WRONLY))
		return MPI_ERR_ACCESS;
	return MPI_SUCCESS;
}

int maccess_begin(struct maccess *a, struct mfile *f, bool write, MPI_Offset offset, void *buf,
		  MPI_Count count, MPI_Datatype type)
{
	const struct mview *v = &f->view;
	struct sheaf_extent last;
	int r = check_mode(f, write);

	*a = (struct maccess){ .f = f,
			       .file = mtype_keep(v->file),
			       .disp = (uint64_t)v->disp,
			       .write = write,
			       .buf = buf,
			       .count = count,
			       .type = type,
			       .method = f->is_atomic ? M_TYPED : f->hints.method };
	if (r)
		return r;
	if (count < 0)
		return MPI_ERR_COUNT;
	if (offset < 0 || (uint64_t)offset > INT64_MAX / MAX(v->etype_bytes, (uint64_t)1))
		return MPI_ERR_ARG;
	a->skip = (uint64_t)offset * v->etype_bytes;
	r = mtype_get(type, v->rep, &a->mem);
	if (!r && a->mem->size && (uint64_t)count > INT64_MAX / a->mem->size)
		r = MPI_ERR_COUNT;
	if (r)
		return r;
	a->bytes = (uint64_t)count * a->mem->size;
	if (a->bytes % v->etype_bytes)
		return MPI_ERR_IO; /* the standard wants whole etypes */
	if (a->bytes && !v->file->size)
		return MPI_ERR_IO;
	if (a->bytes && !buf && !mcontents_is_derived(type)) /* else it may be MPI_BOTTOM */
		return MPI_ERR_BUFFER;
	if (a->bytes && sheaf_type_pieces(v->file->t, (uint64_t)v->disp, a->skip + a->bytes - 1, 1,
					  &last, 1) != 1)
		return MPI_ERR_ARG; /* it would end behind the largest offset */
	return v->rep == REP_EXTERNAL32 ? mexternal_begin(a) : MPI_SUCCESS;
}

void maccess_end(struct maccess *a)
{
	mtype_put(a->mem);
	mtype_put(a->file);
	a->mem = a->file = NULL;
	free(a->packed);
	a->packed = NULL;
	sheaf_type_free(a->packed_type);
	a->packed_type = NULL;
}

/* Where a dense side begins; NULL: it is not dense. */
static char *dense_memory(const struct maccess *a)
{
	if (a->packed)
		return a->packed;
	return a->mem->is_dense ? (char *)a->buf + a->mem->lower : NULL;
}

/* The file offset of a dense side; -1: it is not dense. */
static int64_t dense_offset(const struct maccess *a)
{
	return a->file->is_dense ? (int64_t)a->disp + a->file->lower + (int64_t)a->skip : -1;
}

const struct sheaf_type *maccess_memory(const struct maccess *a, void **base, uint64_t *count)
{
	*base = a->packed ? a->packed : a->buf;
	*count = a->packed ? 1 : (uint64_t)a->count;
	return a->packed ? a->packed_type : a->mem->t;
}

static ssize_t move_typed(const struct maccess *a)
{
	uint64_t count;
	void *base;
	const struct sheaf_type *t = maccess_memory(a, &base, &count);

	return a->write ? sheaf_write_view(a->f->f, base, t, count, a->disp, a->file->t, a->skip) :
			  sheaf_read_view(a->f->f, base, t, count, a->disp, a->file->t, a->skip);
}

static ssize_t move(struct maccess *a)
{
	char *mem = dense_memory(a);
	int64_t off = dense_offset(a);
	ssize_t r;

	if (!a->bytes)
		return 0;
	if (a->method == M_MULTIPLE)
		return mmethod_multiple(a);
	if (a->method == M_SIEVE)
		return mmethod_sieve(a);
	if (a->method == M_LIST)
		return mmethod_list(a);
	if (mem && off >= 0)
		r = a->write ? sheaf_pwrite(a->f->f, mem, a->bytes, off) :
			       sheaf_pread(a->f->f, mem, a->bytes, off);
	else
		r = move_typed(a);
	if (r >= 0)
		mstats_count(a, M_TYPED, 1, (uint64_t)r);
	return r;
}

/* ---- atomic accesses ---- */

/* The range of the file from the first to the last byte. */
static int range_of(const struct maccess *a, struct sheaf_extent *e)
{
	struct sheaf_extent last;

	if (sheaf_type_pieces(a->file->t, a->disp, a->skip, 1, e, 1) != 1 ||
	    sheaf_type_pieces(a->file->t, a->disp, a->skip + a->bytes - 1, 1, &last, 1) != 1)
		return -EINVAL;
	e->length = last.offset + 1 - e->offset;
	return 0;
}

static ssize_t move_locked(struct maccess *a)
{
	struct sheaf_lock l = { .size = sizeof(l),
				.type = a->write ? F_WRLCK : F_RDLCK,
				.owner = (uint64_t)(uintptr_t)a }; /* one may be under way */
	struct sheaf_extent e;
	ssize_t r = range_of(a, &e);
	int unlocked;

	if (r)
		return r;
	l.start = e.offset;
	l.length = e.length;
	r = sheaf_lock(a->f->f, &l, 1);
	if (r)
		return r;
	r = move(a);
	l.type = F_UNLCK;
	unlocked = sheaf_lock(a->f->f, &l, 0);
	return r < 0 || !unlocked ? r : unlocked;
}

ssize_t maccess_move(struct maccess *a)
{
	return a->f->is_atomic && a->bytes ? move_locked(a) : move(a);
}

int maccess_start(struct maccess *a, struct sheaf_op **op)
{
	const struct sheaf_type *t;
	char *mem = dense_memory(a);
	int64_t off = dense_offset(a);
	uint64_t count;
	void *base;

	mstats_count(a, M_TYPED, 1, a->bytes);
	if (mem && off >= 0)
		return a->write ? sheaf_pwrite_start(a->f->f, mem, a->bytes, off, op) :
				  sheaf_pread_start(a->f->f, mem, a->bytes, off, op);
	t = maccess_memory(a, &base, &count);
	return a->write ? sheaf_write_view_start(a->f->f, base, t, count, a->disp, a->file->t,
						 a->skip, op) :
			  sheaf_read_view_start(a->f->f, base, t, count, a->disp, a->file->t,
						a->skip, op);
}

int maccess_finish(struct maccess *a, ssize_t moved)
{
	if (moved < 0)
		return merror_class((int)moved);
	return a->packed ? mexternal_finish(a, (uint64_t)moved) : MPI_SUCCESS;
}

void mstatus_set(MPI_Status *st, const struct maccess *a, ssize_t bytes)
{
	MPI_Count native;

	if (st == MPI_STATUS_IGNORE)
		return;
	if (a->packed && a->mem->size && !PMPI_Type_size_x(a->type, &native) &&
	    (uint64_t)native != a->mem->size)
		bytes = (ssize_t)((uint64_t)MAX(bytes, 0) / a->mem->size * (uint64_t)native);
	PMPI_Status_set_elements_x(st, MPI_BYTE, MAX(bytes, 0));
	PMPI_Status_set_cancelled(st, 0);
}

/* ---- calls ---- */

/* By how many etypes an access moves its pointer. */
static int etypes_of(struct mfile *f, const struct mcall *c, MPI_Offset *etypes)
{
	struct mtype *t;
	uint64_t bytes;
	int r = c->count < 0 ? MPI_ERR_COUNT : mtype_get(c->type, f->view.rep, &t);

	if (r)
		return r;
	if (__builtin_mul_overflow((uint64_t)c->count, t->size, &bytes) || bytes > INT64_MAX)
		r = MPI_ERR_COUNT;
	else if (bytes % f->view.etype_bytes)
		r = MPI_ERR_IO;
	*etypes = (MPI_Offset)(bytes / f->view.etype_bytes);
	mtype_put(t);
	return r;
}

/* The offset of a call. That of the shared pointer moves behind it. */
static int place(struct mfile *f, const struct mcall *c, MPI_Offset *offset)
{
	MPI_Offset etypes;
	int r;

	if ((f->amode & MPI_MODE_SEQUENTIAL) && c->where != AT_SHARED && !c->is_ordered)
		return MPI_ERR_UNSUPPORTED_OPERATION;
	if (c->where == AT_OFFSET) {
		*offset = c->offset;
		return c->offset < 0 ? MPI_ERR_ARG : MPI_SUCCESS;
	}
	r = etypes_of(f, c, &etypes);
	if (r)
		return r;
	if (c->where == AT_SHARED)
		return mshared_add(f, etypes, offset);
	*offset = f->pos;
	return MPI_SUCCESS;
}

/* The pointer moves by what was asked for, or up to the end of the file in a read. */
static void advance(struct mfile *f, const struct mcall *c, ssize_t bytes)
{
	if (c->where == AT_POINTER && bytes > 0)
		f->pos += (MPI_Offset)((uint64_t)bytes / f->view.etype_bytes);
}

/* Prepares the access of a call. */
static int begin(struct mfile *f, const struct mcall *c, struct maccess *a)
{
	MPI_Offset offset = 0;
	int r = check_mode(f, c->write);

	r = r ? r : mtype_check(c->type, f->comm);
	r = r ? r : place(f, c, &offset);
	memset(a, 0, sizeof(*a));
	a->f = f;
	return r ? r : maccess_begin(a, f, c->write, offset, c->buf, c->count, c->type);
}

static ssize_t move_chosen(struct maccess *a, int kind, int *class)
{
	struct mchoice c;
	ssize_t r = 0;

	*class = mchoice_begin(a, &c, kind, *class);
	if (*class && c.is_agreed)
		return 0;
	if (!*class) {
		r = c.two_phase ? mtwophase(a) : maccess_move(a);
		*class = merror_class((int)MIN(r, 0));
	}
	*class = mchoice_end(a, &c, *class);
	return r;
}

/* Which of the collective calls that move data: all processes must be in the same one. */
static int kind_of(const struct mcall *c, int split)
{
	return MKIND_DATA + (c->write | c->where << 1 | split << 3);
}

/* An error of one process is an error of all: none is left waiting, and each one knows that the
 * file does not have all data. With a hint for a method in which no process waits for another,
 * each has its own errors. */
static ssize_t move_collective(struct maccess *a, int kind, int *class)
{
	struct mfile *f = a->f;
	enum mmethod how = f->hints.method;
	ssize_t r;

	if (f->n_ranks == 1 || (how != M_AUTO && how != M_TWO_PHASE))
		return *class ? 0 : maccess_move(a);
	if (how == M_AUTO && !f->is_atomic)
		return move_chosen(a, kind, class);
	*class = msame(f, kind, *class, NULL);
	if (*class)
		return 0;
	if (!f->is_atomic)
		return mtwophase(a);
	r = maccess_move(a);
	*class = merror_all(f->comm, merror_class((int)MIN(r, 0)));
	return r;
}

int mcall_run(struct mfile *f, const struct mcall *c, MPI_Status *st)
{
	struct maccess a;
	ssize_t moved = 0;
	int r = begin(f, c, &a);

	if (c->collective)
		moved = move_collective(&a, kind_of(c, 0), &r);
	else if (!r)
		moved = maccess_move(&a);
	if (!r)
		r = maccess_finish(&a, moved);
	if (!r) {
		advance(f, c, moved);
		mstatus_set(st, &a, moved);
	}
	maccess_end(&a);
	return r;
}

int mcall_start(struct mfile *f, const struct mcall *c, MPI_Request *req)
{
	struct maccess *a = malloc(sizeof(*a));
	int r = a ? begin(f, c, a) : MPI_ERR_NO_MEM;

	if (r) {
		if (a)
			maccess_end(a);
		free(a);
		return r;
	}
	advance(f, c, (ssize_t)a->bytes);
	return mrequest_start(a, req);
}

int mcall_begin(struct mfile *f, const struct mcall *c, int which)
{
	struct maccess *a;
	int r;

	if (f->split_call)
		return MPI_ERR_OTHER;
	a = malloc(sizeof(*a));
	r = a ? begin(f, c, a) : MPI_ERR_NO_MEM;
	if (r) {
		if (a)
			maccess_end(a);
		free(a);
		return r;
	}
	advance(f, c, (ssize_t)a->bytes);
	f->split = mrequest_split(a, &r);
	if (r)
		return r;
	f->split_buf = c->buf;
	f->split_call = which;
	return MPI_SUCCESS;
}

int mcall_end(struct mfile *f, const void *buf, int which, MPI_Status *st)
{
	int r;

	if (f->split_call != which || f->split_buf != buf)
		return MPI_ERR_OTHER;
	r = mrequest_wait(f->split, st);
	f->split = NULL;
	f->split_call = 0;
	return r;
}

/* Gives each process the range of the shared pointer behind those of the lower ranks. */
static int place_ordered(struct mfile *f, const struct mcall *c, int split, struct mcall *at)
{
	int64_t mine = 0, before = 0, all = 0;
	MPI_Offset start = 0, etypes = 0;
	int r = split && f->split_call ? MPI_ERR_OTHER : check_mode(f, c->write);

	r = r ? r : mtype_check(c->type, f->comm);
	r = r ? r : etypes_of(f, c, &etypes);
	mine = etypes;
	r = msame(f, kind_of(c, split), r, NULL);
	if (r)
		return r;
	PMPI_Exscan(&mine, &before, 1, MPI_INT64_T, MPI_SUM, f->comm);
	PMPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, f->comm);
	if (f->rank == 0) {
		before = 0;
		r = mshared_add(f, all, &start);
	}
	PMPI_Bcast(&start, 1, MPI_OFFSET, 0, f->comm);
	*at = *c;
	at->where = AT_OFFSET;
	at->offset = start + before;
	at->is_ordered = true;
	return merror_all(f->comm, r);
}

int mcall_ordered(struct mfile *f, const struct mcall *c, MPI_Status *st)
{
	struct mcall at;
	int r = place_ordered(f, c, 0, &at);

	return r ? r : merror_all(f->comm, mcall_run(f, &at, st));
}

int mcall_ordered_begin(struct mfile *f, const struct mcall *c, int which)
{
	struct mcall at;
	int r = place_ordered(f, c, which, &at);

	return r ? r : mcall_begin(f, &at, which);
}
