/* The 28 data accesses of MPI-IO behind one call. */
#include "lib_access.h"

#include <stdlib.h>
#include <string.h>

#define ROW(name, where, all, when, is_write) \
	{ \
		name, where, all, when, is_write \
	}

const struct kind_info kind_info[KINDS] = {
	[READ_AT] = ROW("read_at", AT, false, NOW, false),
	[IREAD_AT] = ROW("iread_at", AT, false, LATER, false),
	[READ_AT_ALL] = ROW("read_at_all", AT, true, NOW, false),
	[IREAD_AT_ALL] = ROW("iread_at_all", AT, true, LATER, false),
	[READ_AT_ALL_SPLIT] = ROW("read_at_all_begin", AT, true, IN_SPLIT, false),
	[READ] = ROW("read", OWN, false, NOW, false),
	[IREAD] = ROW("iread", OWN, false, LATER, false),
	[READ_ALL] = ROW("read_all", OWN, true, NOW, false),
	[IREAD_ALL] = ROW("iread_all", OWN, true, LATER, false),
	[READ_ALL_SPLIT] = ROW("read_all_begin", OWN, true, IN_SPLIT, false),
	[READ_SHARED] = ROW("read_shared", SHARED, false, NOW, false),
	[IREAD_SHARED] = ROW("iread_shared", SHARED, false, LATER, false),
	[READ_ORDERED] = ROW("read_ordered", SHARED, true, NOW, false),
	[READ_ORDERED_SPLIT] = ROW("read_ordered_begin", SHARED, true, IN_SPLIT, false),
	[WRITE_AT] = ROW("write_at", AT, false, NOW, true),
	[IWRITE_AT] = ROW("iwrite_at", AT, false, LATER, true),
	[WRITE_AT_ALL] = ROW("write_at_all", AT, true, NOW, true),
	[IWRITE_AT_ALL] = ROW("iwrite_at_all", AT, true, LATER, true),
	[WRITE_AT_ALL_SPLIT] = ROW("write_at_all_begin", AT, true, IN_SPLIT, true),
	[WRITE] = ROW("write", OWN, false, NOW, true),
	[IWRITE] = ROW("iwrite", OWN, false, LATER, true),
	[WRITE_ALL] = ROW("write_all", OWN, true, NOW, true),
	[IWRITE_ALL] = ROW("iwrite_all", OWN, true, LATER, true),
	[WRITE_ALL_SPLIT] = ROW("write_all_begin", OWN, true, IN_SPLIT, true),
	[WRITE_SHARED] = ROW("write_shared", SHARED, false, NOW, true),
	[IWRITE_SHARED] = ROW("iwrite_shared", SHARED, false, LATER, true),
	[WRITE_ORDERED] = ROW("write_ordered", SHARED, true, NOW, true),
	[WRITE_ORDERED_SPLIT] = ROW("write_ordered_begin", SHARED, true, IN_SPLIT, true),
};

void access_memory(struct access *a, struct rng *r)
{
	int64_t min, max;

	map_span(&a->map, a->count, &min, &max);
	a->origin = -min;
	a->span = max - min + 1;
	a->image = malloc(a->span);
	for (int64_t i = 0; i < a->span; i++)
		a->image[i] = (char)rng_below(r, 256);
	for (int s = 0; s < SIDES; s++) {
		a->side[s].memory = malloc(a->span);
		memcpy(a->side[s].memory, a->image, a->span);
		a->side[s].start = a->side[s].memory + a->origin;
		a->side[s].type = a->map.type;
		a->side[s].count = a->count;
		a->side[s].request = MPI_REQUEST_NULL;
	}
}

void access_pack(struct access *a, int side, MPI_Datatype element)
{
	struct side *s = &a->side[side];
	char *packed = malloc(a->length + 1);
	int unit;

	for (int64_t i = 0; i < a->length; i++)
		packed[i] = *access_byte(a, i);
	MPI_Type_size(element, &unit);
	s->start = packed;
	s->type = element;
	s->count = (int)(a->length / unit);
	s->is_packed = true;
}

void access_unpack(struct access *a, int side)
{
	struct side *s = &a->side[side];

	for (int64_t i = 0; i < a->length && s->is_packed; i++)
		s->memory[access_byte(a, i) - a->image] = ((char *)s->start)[i];
}

void access_free(struct access *a)
{
	for (int s = 0; s < SIDES; s++) {
		free(a->side[s].memory);
		if (a->side[s].is_packed)
			free(a->side[s].start);
	}
	free(a->image);
	map_free(&a->map);
	free(a);
}

char *access_byte(struct access *a, int64_t i)
{
	int64_t in_memory = i - i % a->swap + (a->swap - 1 - i % a->swap);

	return a->image + a->origin + map_at(&a->map, in_memory);
}

#if MPI_VERSION >= 4
#define CALL(name, ...) (a->large ? MPI_File_##name##_c(__VA_ARGS__) : MPI_File_##name(__VA_ARGS__))
#else
#define CALL(name, ...) MPI_File_##name(__VA_ARGS__)
#endif
#define BY_POINTER(name, last) CALL(name, f, s->start, s->count, s->type, last)
#define BY_OFFSET(name, last) CALL(name, f, a->offset, s->start, s->count, s->type, last)
#define BEGIN(name) CALL(name, f, s->start, s->count, s->type)
#define BEGIN_AT(name) CALL(name, f, a->offset, s->start, s->count, s->type)

static int start_read(struct access *a, MPI_File f, struct side *s, enum kind kind)
{
	switch (kind) {
	case READ_AT:
		return BY_OFFSET(read_at, &s->status);
	case IREAD_AT:
		return BY_OFFSET(iread_at, &s->request);
	case READ_AT_ALL:
		return BY_OFFSET(read_at_all, &s->status);
	case IREAD_AT_ALL:
		return BY_OFFSET(iread_at_all, &s->request);
	case READ_AT_ALL_SPLIT:
		return BEGIN_AT(read_at_all_begin);
	case READ:
		return BY_POINTER(read, &s->status);
	case IREAD:
		return BY_POINTER(iread, &s->request);
	case READ_ALL:
		return BY_POINTER(read_all, &s->status);
	case IREAD_ALL:
		return BY_POINTER(iread_all, &s->request);
	case READ_ALL_SPLIT:
		return BEGIN(read_all_begin);
	case READ_SHARED:
		return BY_POINTER(read_shared, &s->status);
	case IREAD_SHARED:
		return BY_POINTER(iread_shared, &s->request);
	case READ_ORDERED:
		return BY_POINTER(read_ordered, &s->status);
	case READ_ORDERED_SPLIT:
		return BEGIN(read_ordered_begin);
	default:
		abort();
	}
}

static int start_write(struct access *a, MPI_File f, struct side *s, enum kind kind)
{
	switch (kind) {
	case WRITE_AT:
		return BY_OFFSET(write_at, &s->status);
	case IWRITE_AT:
		return BY_OFFSET(iwrite_at, &s->request);
	case WRITE_AT_ALL:
		return BY_OFFSET(write_at_all, &s->status);
	case IWRITE_AT_ALL:
		return BY_OFFSET(iwrite_at_all, &s->request);
	case WRITE_AT_ALL_SPLIT:
		return BEGIN_AT(write_at_all_begin);
	case WRITE:
		return BY_POINTER(write, &s->status);
	case IWRITE:
		return BY_POINTER(iwrite, &s->request);
	case WRITE_ALL:
		return BY_POINTER(write_all, &s->status);
	case IWRITE_ALL:
		return BY_POINTER(iwrite_all, &s->request);
	case WRITE_ALL_SPLIT:
		return BEGIN(write_all_begin);
	case WRITE_SHARED:
		return BY_POINTER(write_shared, &s->status);
	case IWRITE_SHARED:
		return BY_POINTER(iwrite_shared, &s->request);
	case WRITE_ORDERED:
		return BY_POINTER(write_ordered, &s->status);
	case WRITE_ORDERED_SPLIT:
		return BEGIN(write_ordered_begin);
	default:
		abort();
	}
}

/* Nonblocking collectives of MPICH's own MPI-IO hang, or run out of memory, where processes wait
 * for different ones: the reference does the blocking one. */
static enum kind kind_on(int side, enum kind kind)
{
	static const enum kind blocking[KINDS] = { [IREAD_AT_ALL] = READ_AT_ALL,
						   [IREAD_ALL] = READ_ALL,
						   [IWRITE_AT_ALL] = WRITE_AT_ALL,
						   [IWRITE_ALL] = WRITE_ALL };

	return side == REFERENCE && blocking[kind] ? blocking[kind] : kind;
}

void access_start(struct access *a, MPI_File f, int side)
{
	struct side *s = &a->side[side];
	enum kind kind = kind_on(side, a->kind);

	s->result = kind_info[kind].is_write ? start_write(a, f, s, kind) :
					       start_read(a, f, s, kind);
}

void access_end(struct access *a, MPI_File f, int side)
{
	struct side *s = &a->side[side];

	switch (a->kind) {
	case READ_AT_ALL_SPLIT:
		s->result = MPI_File_read_at_all_end(f, s->start, &s->status);
		break;
	case READ_ALL_SPLIT:
		s->result = MPI_File_read_all_end(f, s->start, &s->status);
		break;
	case READ_ORDERED_SPLIT:
		s->result = MPI_File_read_ordered_end(f, s->start, &s->status);
		break;
	case WRITE_AT_ALL_SPLIT:
		s->result = MPI_File_write_at_all_end(f, s->start, &s->status);
		break;
	case WRITE_ALL_SPLIT:
		s->result = MPI_File_write_all_end(f, s->start, &s->status);
		break;
	case WRITE_ORDERED_SPLIT:
		s->result = MPI_File_write_ordered_end(f, s->start, &s->status);
		break;
	default:
		abort();
	}
}
