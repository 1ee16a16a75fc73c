/* MPI datatypes as Sheaf types.
 *
 * A derived datatype is taken apart by its constructors (envelope and contents), so ten million
 * pieces stay a pattern of a few numbers. The result is kept as an attribute of the datatype, for
 * each data representation, until the program frees the datatype.
 *
 * Threads: any. Errors: an MPI class. Datatypes of MPI-1 with explicit bounds do not exist in MPI 3
 * and are MPI_ERR_TYPE. */
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

static int class_of(int err)
{
	return !err ? MPI_SUCCESS : err == -ENOMEM ? MPI_ERR_NO_MEM : MPI_ERR_TYPE;
}

/* ---- construction ---- */

static int build(MPI_Datatype type, enum mrep rep, struct sheaf_type **out);

/* A named datatype: a range of bytes. */
static int build_named(MPI_Datatype type, enum mrep rep, struct sheaf_type **out)
{
	struct sheaf_type *bytes;
	MPI_Count lower, extent, size;
	int r;

	if (rep == REP_EXTERNAL32) {
		MPI_Aint n;

		if (PMPI_Pack_external_size("external32", 1, type, &n))
			return MPI_ERR_UNSUPPORTED_DATAREP;
		return class_of(sheaf_type_bytes((uint64_t)n, out));
	}
	if (PMPI_Type_size_x(type, &size) || PMPI_Type_get_extent_x(type, &lower, &extent))
		return MPI_ERR_TYPE;
	if (size == extent && !lower)
		return class_of(sheaf_type_bytes((uint64_t)size, out));
	/* MPI_DOUBLE_INT and its kind: their data have a gap or an end that is not used */
	r = sheaf_type_bytes((uint64_t)size, &bytes);
	if (!r)
		r = sheaf_type_resized(bytes, lower, lower + extent, out);
	sheaf_type_free(bytes);
	return class_of(r);
}

/* The pair types of MPI_MINLOC: two members, the second of which is an int. */
static int build_pair(MPI_Datatype type, enum mrep rep, struct sheaf_type **out)
{
	static const struct {
		MPI_Datatype pair, first;
	} pairs[] = { { MPI_FLOAT_INT, MPI_FLOAT },
		      { MPI_DOUBLE_INT, MPI_DOUBLE },
		      { MPI_LONG_INT, MPI_LONG },
		      { MPI_SHORT_INT, MPI_SHORT },
		      { MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE } };
	struct sheaf_type *of[2] = { NULL, NULL }, *both = NULL;
	MPI_Aint lower, extent;
	int first_bytes, r;

	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		if (type != pairs[i].pair)
			continue;
		if (rep != REP_NATIVE)
			return MPI_ERR_UNSUPPORTED_DATAREP;
		PMPI_Type_size(pairs[i].first, &first_bytes);
		PMPI_Type_get_extent(type, &lower, &extent);
		/* the int is aligned as in a C struct, whose first member needs no padding */
		r = sheaf_type_bytes((uint64_t)first_bytes, &of[0]);
		r = r ? r : sheaf_type_bytes(sizeof(int), &of[1]);
		r = r ? r :
			sheaf_type_struct(2, (uint64_t[]){ 1, 1 },
					  (int64_t[]){ 0, (first_bytes + 3) / 4 * 4 },
					  (const struct sheaf_type *const *)of, &both);
		r = r ? r : sheaf_type_resized(both, 0, extent, out);
		sheaf_type_free(of[0]);
		sheaf_type_free(of[1]);
		sheaf_type_free(both);
		return class_of(r);
	}
	return -1;
}

static int64_t extent_of(const struct sheaf_type *t)
{
	int64_t lower, upper;

	sheaf_type_bounds(t, &lower, &upper);
	return upper - lower;
}

/* n blocks; block lengths from `blocks` (or all `block`), displacements in bytes. */
static int build_indexed(size_t n, const int64_t *blocks, int64_t block, const int64_t *bytes,
			 const int64_t *elements, const struct sheaf_type *of,
			 struct sheaf_type **out)
{
	uint64_t *len = calloc(n + 1, sizeof(*len));
	int64_t *displ = calloc(n + 1, sizeof(*displ)), extent = extent_of(of);
	int r = len && displ ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < n; i++) {
		len[i] = (uint64_t)(blocks ? blocks[i] : block);
		displ[i] = bytes ? bytes[i] : elements[i] * extent;
	}
	if (!r)
		r = sheaf_type_indexed(n, len, displ, of, out);
	free(len);
	free(displ);
	return class_of(r);
}

static int build_struct(const struct mcontents *c, enum mrep rep, struct sheaf_type **out)
{
	size_t n = (size_t)c->ints[0];
	struct sheaf_type **of = calloc(n + 1, sizeof(struct sheaf_type *));
	uint64_t *len = calloc(n + 1, sizeof(*len));
	int64_t *displ = calloc(n + 1, sizeof(*displ));
	int r = of && len && displ ? MPI_SUCCESS : MPI_ERR_NO_MEM;

	for (size_t i = 0; !r && i < n; i++) {
		len[i] = (uint64_t)c->ints[1 + i];
		displ[i] = c->aints[i];
		r = build(c->types[i], rep, &of[i]);
	}
	if (!r)
		r = class_of(sheaf_type_struct(n, len, displ, (const struct sheaf_type *const *)of,
					       out));
	for (size_t i = 0; of && i < n; i++)
		sheaf_type_free(of[i]);
	free(of);
	free(len);
	free(displ);
	return r;
}

/* ints: the number of dimensions, sizes, subsizes, starts, order. */
static int build_subarray(const struct mcontents *c, const struct sheaf_type *of,
			  struct sheaf_type **out)
{
	int n = (int)c->ints[0];
	bool fortran = c->ints[1 + 3 * n] == MPI_ORDER_FORTRAN;
	uint64_t *sides = calloc(3 * (size_t)n + 1, sizeof(*sides));
	int r;

	if (!sides)
		return MPI_ERR_NO_MEM;
	for (int k = 0; k < 3; k++)
		for (int d = 0; d < n; d++)
			sides[k * n + d] = (uint64_t)c->ints[1 + k * n + (fortran ? n - 1 - d : d)];
	r = sheaf_type_subarray(n, sides, sides + n, sides + 2 * n, of, out);
	free(sides);
	return class_of(r);
}

/* How many elements a block of one dimension has; all of them: it is not distributed. */
static int64_t block_of(int64_t size, int64_t how, int64_t arg, int64_t procs)
{
	if (how == MPI_DISTRIBUTE_NONE)
		return size;
	if (arg != MPI_DISTRIBUTE_DFLT_DARG)
		return arg;
	return how == MPI_DISTRIBUTE_CYCLIC ? 1 : (size + procs - 1) / procs;
}

/* One dimension of a distributed array, of `size` elements `stride` bytes apart: the part of the
 * process with this coordinate. Blocks are dealt out in turn; without MPI_DISTRIBUTE_CYCLIC each
 * process gets one. The bounds are those of the whole dimension. */
static int build_dimension(int64_t size, int64_t block, int64_t procs, int64_t coord,
			   const struct sheaf_type *of, int64_t stride, struct sheaf_type **out)
{
	int64_t first = coord * block, round = MAX(block * procs, 1);
	int64_t mine = size > first ? size - first : 0;
	int64_t full = mine / round + (block && mine % round >= block);
	int64_t tail = mine % round < block ? mine % round : 0;
	struct sheaf_type *one = NULL, *all = NULL, *rest = NULL, *at = NULL;
	int r = sheaf_type_vector((uint64_t)block, 1, stride, of, &one);

	r = r ? r : sheaf_type_vector((uint64_t)full, 1, round * stride, one, &all);
	r = r ? r : sheaf_type_vector((uint64_t)tail, 1, stride, of, &rest);
	r = r ? r :
		sheaf_type_struct(2, (uint64_t[]){ full > 0, tail > 0 },
				  (int64_t[]){ first * stride, (first + full * round) * stride },
				  (const struct sheaf_type *const[]){ all, rest }, &at);
	r = r ? r : sheaf_type_resized(at, 0, size * stride, out);
	sheaf_type_free(one);
	sheaf_type_free(all);
	sheaf_type_free(rest);
	sheaf_type_free(at);
	return class_of(r);
}

/* ints: size, rank, n dimensions, sizes, distributions, arguments, processes, order. */
static int build_darray(const struct mcontents *c, const struct sheaf_type *of,
			struct sheaf_type **out)
{
	int n = (int)c->ints[2], r = MPI_SUCCESS;
	int64_t rank = c->ints[1];
	const int64_t *sizes = c->ints + 3, *how = sizes + n, *arg = how + n, *procs = arg + n;
	bool fortran = procs[n] == MPI_ORDER_FORTRAN;
	int64_t coords[n];
	int64_t stride = extent_of(of);
	struct sheaf_type *t = NULL, *next;

	for (int d = n - 1; d >= 0; d--) { /* processes are in C order */
		coords[d] = rank % procs[d];
		rank /= procs[d];
	}
	for (int i = 0; !r && i < n; i++) {
		int d = fortran ? i : n - 1 - i; /* the fastest dimension first */

		r = build_dimension(sizes[d], block_of(sizes[d], how[d], arg[d], procs[d]),
				    procs[d], coords[d], t ? t : of, stride, &next);
		sheaf_type_free(t);
		t = r ? NULL : next;
		stride *= sizes[d];
	}
	*out = t;
	return r;
}

/* Constructors with one element type. */
static int build_from(const struct mcontents *c, const struct sheaf_type *of,
		      struct sheaf_type **out)
{
	const int64_t *i = c->ints;
	int64_t extent = extent_of(of);

	switch (c->combiner) {
	case MPI_COMBINER_DUP:
		return class_of(sheaf_type_vector(1, 1, 0, of, out));
	case MPI_COMBINER_CONTIGUOUS:
		return class_of(sheaf_type_vector(1, (uint64_t)i[0], 0, of, out));
	case MPI_COMBINER_VECTOR:
		return class_of(
			sheaf_type_vector((uint64_t)i[0], (uint64_t)i[1], i[2] * extent, of, out));
	case MPI_COMBINER_HVECTOR:
		return class_of(
			sheaf_type_vector((uint64_t)i[0], (uint64_t)i[1], c->aints[0], of, out));
	case MPI_COMBINER_INDEXED:
		return build_indexed((size_t)i[0], i + 1, 0, NULL, i + 1 + i[0], of, out);
	case MPI_COMBINER_HINDEXED:
		return build_indexed((size_t)i[0], i + 1, 0, c->aints, NULL, of, out);
	case MPI_COMBINER_INDEXED_BLOCK:
		return build_indexed((size_t)i[0], NULL, i[1], NULL, i + 2, of, out);
	case MPI_COMBINER_HINDEXED_BLOCK:
		return build_indexed((size_t)i[0], NULL, i[1], c->aints, NULL, of, out);
	case MPI_COMBINER_SUBARRAY:
		return build_subarray(c, of, out);
	case MPI_COMBINER_DARRAY:
		return build_darray(c, of, out);
	case MPI_COMBINER_RESIZED:
		return class_of(
			sheaf_type_resized(of, c->aints[0], c->aints[0] + c->aints[1], out));
	default:
		return MPI_ERR_TYPE;
	}
}

/* MPI may round an extent up: Open MPI does so to the alignment of what a type consists of. And
 * bounds that a part was given may be those of the whole: in Open MPI they are, as MPI 3.1 says in
 * 4.1.7, in MPICH they are not. Data in external32 have no alignment, but the same bounds where
 * they are as long as in memory. */
static int take_bounds(MPI_Datatype type, enum mrep rep, struct sheaf_type **t)
{
	struct sheaf_type *made = *t;
	MPI_Count lower, extent, size;
	int64_t own_lower, own_upper;
	int r;

	if (PMPI_Type_get_extent_x(type, &lower, &extent) || PMPI_Type_size_x(type, &size))
		return MPI_ERR_TYPE;
	sheaf_type_bounds(made, &own_lower, &own_upper);
	if (rep == REP_EXTERNAL32 && ((uint64_t)size != sheaf_type_size(made) ||
				      lower < own_lower || lower + extent > own_upper))
		return MPI_SUCCESS;
	if (own_lower == lower && own_upper == lower + extent)
		return MPI_SUCCESS;
	r = sheaf_type_resized(made, lower, lower + extent, t);
	sheaf_type_free(made);
	if (r)
		*t = NULL;
	return class_of(r);
}

static int build(MPI_Datatype type, enum mrep rep, struct sheaf_type **out)
{
	struct sheaf_type *of = NULL;
	struct mcontents c;
	int r = mcontents_get(type, &c);

	*out = NULL;
	if (r)
		return r;
	switch (c.combiner) {
	case MPI_COMBINER_NAMED:
		r = build_pair(type, rep, out);
		r = r < 0 ? build_named(type, rep, out) : r;
		break;
	case MPI_COMBINER_F90_REAL:
	case MPI_COMBINER_F90_COMPLEX:
	case MPI_COMBINER_F90_INTEGER:
		r = build_named(type, rep, out);
		break;
	case MPI_COMBINER_STRUCT:
		r = build_struct(&c, rep, out);
		break;
	default:
		r = c.n_types == 1 ? build(c.types[0], rep, &of) : MPI_ERR_TYPE;
		r = r ? r : build_from(&c, of, out);
		sheaf_type_free(of);
	}
	if (!r)
		r = take_bounds(type, rep, out);
	mcontents_free(&c);
	return r;
}

/* ---- the attribute ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for the keys */
static int keys[N_REPS] = { MPI_KEYVAL_INVALID, MPI_KEYVAL_INVALID };

void mtype_put(struct mtype *t)
{
	if (!t || atomic_fetch_sub(&t->refs, 1) > 1)
		return;
	sheaf_type_free(t->t);
	free(t);
}

struct mtype *mtype_keep(struct mtype *t)
{
	atomic_fetch_add(&t->refs, 1);
	return t;
}

static int attribute_gone(MPI_Datatype type, int key, void *value, void *extra)
{
	(void)type;
	(void)key;
	(void)extra;
	mtype_put(value);
	return MPI_SUCCESS;
}

/* A duplicate of a datatype is not decoded again. */
static int attribute_copied(MPI_Datatype type, int key, void *extra, void *in, void *out, int *flag)
{
	struct mtype *t = in;

	(void)type;
	(void)key;
	(void)extra;
	mtype_keep(t);
	memcpy(out, &t, sizeof(t));
	*flag = 1;
	return MPI_SUCCESS;
}

static int make_key(enum mrep rep)
{
	int r = MPI_SUCCESS;

	pthread_mutex_lock(&lock);
	if (keys[rep] == MPI_KEYVAL_INVALID)
		r = PMPI_Type_create_keyval(attribute_copied, attribute_gone, &keys[rep], NULL);
	pthread_mutex_unlock(&lock);
	return r;
}

/* Data of a file type ascend and do not begin below 0. */
static bool file_type_ok(const struct sheaf_type *t)
{
	struct sheaf_extent e;

	if (!sheaf_type_size(t))
		return true;
	return sheaf_type_before(t, 0, 0) == 0 && sheaf_type_pieces(t, 0, 0, 1, &e, 1) == 1;
}

#define SAMPLE 64

static uint64_t mean_piece(const struct sheaf_type *t)
{
	struct sheaf_extent e[SAMPLE];
	uint64_t size = sheaf_type_size(t), all = 0;
	ssize_t n = size ? sheaf_type_pieces(t, 0, 0, size, e, SAMPLE) : 0;

	for (ssize_t i = 0; i < n; i++)
		all += e[i].length;
	return n > 0 ? all / (uint64_t)n : 0;
}

static int decode(MPI_Datatype type, enum mrep rep, struct mtype **out)
{
	struct mtype *t = calloc(1, sizeof(*t));
	struct sheaf_extent e[2];
	int64_t upper;
	int r = t ? build(type, rep, &t->t) : MPI_ERR_NO_MEM;

	if (r) {
		free(t);
		return r;
	}
	sheaf_type_bounds(t->t, &t->lower, &upper);
	t->extent = upper - t->lower;
	t->size = sheaf_type_size(t->t);
	t->is_file_type = t->lower >= 0 && file_type_ok(t->t);
	t->unit = rep == REP_EXTERNAL32 ? mexternal_unit(type) : 0;
	t->piece_bytes = t->is_file_type ? mean_piece(t->t) : 0;
	/* one piece of two copies: they follow each other without a gap */
	t->is_dense = t->size && (uint64_t)t->extent == t->size && t->lower >= 0 &&
		      sheaf_type_pieces(t->t, 0, 0, 2 * t->size, e, 2) == 1 &&
		      e[0].offset == (uint64_t)t->lower;
	*out = t;
	return MPI_SUCCESS;
}

/* MPI has no call for this, but it checks the arguments of one that does nothing. */
int mtype_check(MPI_Datatype type, MPI_Comm comm)
{
	char none[1] = { 0 };
	int at = 0;

	return PMPI_Pack(none, 0, type, none, sizeof(none), &at, comm) ? MPI_ERR_TYPE : MPI_SUCCESS;
}

int mtype_get(MPI_Datatype type, enum mrep rep, struct mtype **out)
{
	int found = 0, r = MPI_SUCCESS;

	if (type == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	if (keys[rep] == MPI_KEYVAL_INVALID)
		r = make_key(rep);
	if (!r)
		r = PMPI_Type_get_attr(type, keys[rep], out, &found);
	if (!r && found)
		mtype_keep(*out);
	if (r || found)
		return r ? MPI_ERR_TYPE : MPI_SUCCESS;
	r = decode(type, rep, out);
	if (r)
		return r;
	atomic_init(&(*out)->refs, 2); /* the attribute's and the caller's */
	if (PMPI_Type_set_attr(type, keys[rep], *out))
		atomic_init(&(*out)->refs, 1);
	return MPI_SUCCESS;
}
