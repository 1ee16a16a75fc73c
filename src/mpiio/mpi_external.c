/* Data of external32 views: memory of the program, converted in a buffer.
 *
 * Elements of one size, which is the same in memory and in the file, are reversed here. For all
 * other types MPI converts, as well as it can: MPICH 4.0 ends the process for some derived ones.
 *
 * Threads: the caller's. Buffers: all data of an access, until it ends. Errors: an MPI class. */
#include <limits.h>
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

#define BATCH 64

/* What a type is made of: bytes of its parts, which are reversed one by one. */
static const struct {
	MPI_Datatype type;
	unsigned unit;
} units[] = {
	{ MPI_BYTE, 1 },
	{ MPI_PACKED, 1 },
	{ MPI_CHAR, 1 },
	{ MPI_SIGNED_CHAR, 1 },
	{ MPI_UNSIGNED_CHAR, 1 },
	{ MPI_CHARACTER, 1 },
	{ MPI_C_BOOL, sizeof(bool) },
	{ MPI_SHORT, sizeof(short) },
	{ MPI_UNSIGNED_SHORT, sizeof(short) },
	{ MPI_INT, sizeof(int) },
	{ MPI_UNSIGNED, sizeof(int) },
	{ MPI_LONG, sizeof(long) },
	{ MPI_UNSIGNED_LONG, sizeof(long) },
	{ MPI_LONG_LONG, sizeof(long long) },
	{ MPI_UNSIGNED_LONG_LONG, sizeof(long long) },
	{ MPI_INT8_T, 1 },
	{ MPI_INT16_T, 2 },
	{ MPI_INT32_T, 4 },
	{ MPI_INT64_T, 8 },
	{ MPI_UINT8_T, 1 },
	{ MPI_UINT16_T, 2 },
	{ MPI_UINT32_T, 4 },
	{ MPI_UINT64_T, 8 },
	{ MPI_FLOAT, sizeof(float) },
	{ MPI_DOUBLE, sizeof(double) },
	{ MPI_C_FLOAT_COMPLEX, sizeof(float) },
	{ MPI_C_DOUBLE_COMPLEX, sizeof(double) },
	{ MPI_AINT, sizeof(MPI_Aint) },
	{ MPI_OFFSET, sizeof(MPI_Offset) },
	{ MPI_COUNT, sizeof(MPI_Count) },
	{ MPI_INTEGER, 4 },
	{ MPI_LOGICAL, 4 },
	{ MPI_REAL, 4 },
	{ MPI_DOUBLE_PRECISION, 8 },
	{ MPI_COMPLEX, 4 },
	{ MPI_DOUBLE_COMPLEX, 8 },
};

static unsigned unit_of_named(MPI_Datatype type)
{
	MPI_Count native;
	MPI_Aint external;

	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (units[i].type == type)
			return !PMPI_Type_size_x(type, &native) &&
					       !PMPI_Pack_external_size("external32", 1, type,
									&external) &&
					       native == external && native % units[i].unit == 0 ?
				       units[i].unit :
				       0;
	return 0;
}

unsigned mexternal_unit(MPI_Datatype type)
{
	struct mcontents c;
	unsigned unit = 0, next;

	if (mcontents_get(type, &c))
		return 0;
	if (c.combiner == MPI_COMBINER_NAMED)
		unit = unit_of_named(type);
	for (size_t i = 0; i < c.n_types; i++) {
		next = mexternal_unit(c.types[i]);
		unit = !i || next == unit ? next : 0;
		if (!unit)
			break;
	}
	mcontents_free(&c);
	return unit;
}

/* Bytes of whole units; the last one may be cut off in the file. */
static void reverse(char *mem, char *file, uint64_t file_bytes, unsigned unit, bool to_file)
{
	for (uint64_t i = 0; i < file_bytes; i++) {
		char *at = mem + i / unit * unit + (unit - 1 - i % unit);

		if (to_file)
			file[i] = *at;
		else
			*at = file[i];
	}
}

/* Between memory and the first bytes of the buffer. */
static int convert(struct maccess *a, uint64_t bytes, bool to_file)
{
	struct sheaf_extent e[BATCH];
	uint64_t done = 0;
	struct mtype *t;
	ssize_t n = 1;
	int r = mtype_get(a->type, REP_NATIVE, &t);

	while (!r && n > 0 && done < bytes) {
		n = sheaf_type_pieces(t->t, (uint64_t)(uintptr_t)a->buf, done, a->bytes - done, e,
				      BATCH);
		for (ssize_t i = 0; i < n && done < bytes; i++) {
			uint64_t length = MIN(e[i].length, bytes - done);

			reverse((char *)(uintptr_t)e[i].offset, a->packed + done, length,
				a->mem->unit, to_file);
			done += length;
		}
	}
	if (!r)
		mtype_put(t);
	return r ? r : n > 0 ? MPI_SUCCESS : MPI_ERR_CONVERSION;
}

int mexternal_begin(struct maccess *a)
{
	MPI_Aint at = 0;

	if (!a->mem->unit && a->count > INT_MAX)
		return MPI_ERR_COUNT;
	a->packed = malloc(a->bytes ? a->bytes : 1);
	if (!a->packed || sheaf_type_bytes(a->bytes, &a->packed_type))
		return MPI_ERR_NO_MEM;
	if (!a->write)
		return MPI_SUCCESS;
	if (a->mem->unit)
		return convert(a, a->bytes, true);
	return PMPI_Pack_external("external32", a->buf, (int)a->count, a->type, a->packed,
				  (MPI_Aint)a->bytes, &at) ?
		       MPI_ERR_UNSUPPORTED_DATAREP :
		       MPI_SUCCESS;
}

/* Of data that MPI converts, only whole copies of the type are taken from the end of the file. */
int mexternal_finish(struct maccess *a, uint64_t moved)
{
	MPI_Aint at = 0;
	uint64_t whole;

	if (a->write || !moved)
		return MPI_SUCCESS;
	if (a->mem->unit)
		return convert(a, moved, false);
	whole = moved / a->mem->size;
	if (whole && PMPI_Unpack_external("external32", a->packed, (MPI_Aint)moved, &at, a->buf,
					  (int)whole, a->type))
		return MPI_ERR_CONVERSION;
	return MPI_SUCCESS;
}
