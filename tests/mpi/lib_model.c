/* The model: the bytes and the size of the file, as a process knows them. */
#include "lib_program.h"

/* The place in the file of byte i of the view's data. */
int64_t view_place(struct program *p, int64_t i)
{
	return p->view.displacement + map_at(&p->view.tile, i);
}

/* How many of the `length` bytes of data from `first` on are before the end of the file? */
int64_t bytes_before_end(struct program *p, int64_t first, int64_t length)
{
	int64_t low = 0, high = length;

	while (low < high) {
		int64_t middle = (low + high) / 2;

		if (view_place(p, first + middle) < p->size)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void model_write(struct program *p, struct access *a)
{
	for (int64_t i = 0; i < a->length; i++) {
		int64_t at = view_place(p, a->first + i);

		p->bytes[at] = *access_byte(a, i);
		p->size = at + 1 > p->size ? at + 1 : p->size;
	}
	a->got = a->length;
}

void model_read(struct program *p, struct access *a)
{
	a->got = bytes_before_end(p, a->first, a->length);
	for (int64_t i = 0; i < a->got; i++)
		*access_byte(a, i) = p->bytes[view_place(p, a->first + i)];
}

/* Merges what the processes wrote. All processes call it when nothing is under way. */
void model_settle(struct program *p)
{
	char change[LIMIT], all[LIMIT];

	if (p->may_write) {
		BOTH(p, common, "sync", MPI_File_sync(f));
		MPI_Barrier(p->comm);
		BOTH(p, common, "sync", MPI_File_sync(f));
	}
	for (int i = 0; i < LIMIT; i++)
		change[i] = p->bytes[i] ^ p->settled[i];
	MPI_Allreduce(change, all, LIMIT, MPI_BYTE, MPI_BXOR, p->comm);
	for (int i = 0; i < LIMIT; i++)
		p->bytes[i] = p->settled[i] ^= all[i];
	MPI_Allreduce(MPI_IN_PLACE, &p->size, 1, MPI_INT64_T, MPI_MAX, p->comm);
}
