/* Results of both files against the model: sizes, positions, counts, memory. */
#include "lib_program.h"

#include <string.h>

void check_sizes(struct program *p)
{
	MPI_Offset size[SIDES];

	BOTH(p, mine, "get_size", MPI_File_get_size(f, &size[s]));
	for (int s = 0; s < n_sides; s++)
		must_equal(p, s, "the size", size[s], p->size);
}

/* cut: where the pointer may be too, because a read ended at the end of the file. MPI says that it
 * moves by what was asked for; MPICH moves it by what a blocking read got. */
void check_positions(struct program *p, MPI_Offset cut)
{
	MPI_Offset expected = p->own / p->view.esize, at[SIDES], byte[SIDES];

	BOTH(p, mine, "get_position", MPI_File_get_position(f, &at[s]));
	BOTH(p, mine, "get_byte_offset", MPI_File_get_byte_offset(f, expected, &byte[s]));
	p->position_is_known = true;
	for (int s = 0; s < n_sides; s++) {
		if (at[s] != expected && at[s] == cut) {
			MPI_File_seek(p->file[s], expected, MPI_SEEK_SET);
			continue;
		}
		if (at[s] != expected && is_known_fault(p, s, POSITION)) {
			p->position_is_known = false;
			MPI_File_seek(p->file[s], expected, MPI_SEEK_SET);
			continue;
		}
		must_equal(p, s, "the position", at[s], expected);
		must_equal(p, s, "the byte offset", byte[s], view_place(p, p->own));
	}
}

void check_shared_position(struct program *p)
{
	MPI_Offset at[SIDES];

	BOTH(p, mine, "get_position_shared", MPI_File_get_position_shared(f, &at[s]));
	for (int s = 0; s < n_sides; s++)
		must_equal(p, s, "the shared position", at[s], p->shared / p->view.esize);
	MPI_Barrier(p->comm); /* before it moves again */
}

static void check_counts(struct program *p, struct access *a, int side)
{
	struct side *s = &a->side[side];
	int count, elements, unit, size;

	MPI_Type_size(p->view.element, &unit);
	MPI_Type_size(s->type, &size);
	MPI_Get_count(&s->status, s->type, &count);
	/* of the type itself, MPICH counts wrong for some types, and aborts for parts of others */
	MPI_Get_elements(&s->status, p->view.element, &elements);
	if (a->got < a->length && elements != a->got / unit &&
	    is_known_fault(p, side, COUNT_AT_END))
		return;
	must_equal(p, side, "Get_count", count, a->got % size ? MPI_UNDEFINED : a->got / size);
	if (a->got % unit == 0)
		must_equal(p, side, "Get_elements", elements, a->got / unit);
}

/* Does memory have the bytes of the file that the access transferred? */
static bool has_data(struct access *a, int side)
{
	for (int64_t i = 0; i < a->got; i++) {
		char *byte = access_byte(a, i);

		if (a->side[side].memory[byte - a->image] != *byte)
			return false;
	}
	return true;
}

static void check_memory(struct program *p, struct access *a, int side)
{
	char *memory = a->side[side].memory;

	if (!memcmp(memory, a->image, a->span))
		return;
	if (a->got < a->length && has_data(a, side) &&
	    (kind_info[a->kind].all || is_known_fault(p, side, MEMORY_AT_END)))
		return; /* a collective read may bring zeros from behind the end */
	for (int64_t i = 0; i < a->got; i++)
		if (memory[access_byte(a, i) - a->image] != *access_byte(a, i))
			report_wrong(p, side, "byte %lld of %lld (place %lld) is %d instead of %d",
				     (long long)i, (long long)a->got,
				     (long long)view_place(p, a->first + i),
				     memory[access_byte(a, i) - a->image], *access_byte(a, i));
	for (int64_t i = 0; i < a->span; i++)
		if (memory[i] != a->image[i])
			report_wrong(p, side, "memory has %d instead of %d at displacement %lld",
				     memory[i], a->image[i], (long long)(i - a->origin));
}

void access_judge(struct program *p, struct access *a)
{
	note(p, "judging %s of bytes %lld+%lld", kind_info[a->kind].name, (long long)a->first,
	     (long long)a->length);
	for (int s = 0; s < n_sides; s++) {
		if (p->is_lost[s])
			continue;
		must_succeed(p, s, kind_info[a->kind].name, a->side[s].result);
		check_counts(p, a, s);
		access_unpack(a, s);
		check_memory(p, a, s);
	}
	access_free(a);
}
