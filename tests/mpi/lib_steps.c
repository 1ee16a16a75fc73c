/* One random access, on both files and the model. */
#include "lib_program.h"

#include <stdlib.h>

const char *const whence_name[] = { "SET", "CUR", "END" };
long accesses;

static int greatest_divisor(int a, int b)
{
	return b ? greatest_divisor(b, a % b) : a;
}

/* A random amount of random memory for at most `room` bytes. */
struct access *make_access(struct program *p, enum kind kind, int64_t room)
{
	struct access *a = calloc(1, sizeof(*a));
	bool is_write = kind_info[kind].is_write;
	int unit, most;

	a->kind = kind;
	a->large = rng_one_in(&p->mine, 4);
	a->swap = 1;
	if (p->view.is_external)
		MPI_Type_size(p->view.element, &a->swap);
	map_random_memory(&p->mine, p->view.element, is_write, &a->map);
	unit = p->view.esize / greatest_divisor(p->view.esize, a->map.size);
	if (rng_one_in(&p->mine, 2))
		room = room < 400 ? room : 400;
	most = room / ((int64_t)unit * a->map.size);
	a->count = unit * (int)rng_below(&p->mine, most + 1);
	if (!is_write && !map_is_injective(&a->map, a->count))
		a->count = map_is_injective(&a->map, unit) && most ? unit : 0;
	a->length = (int64_t)a->count * a->map.size;
	access_memory(a, &p->mine);
	return a;
}

static void make_empty(struct access *a)
{
	a->count = 0;
	a->length = 0;
	for (int s = 0; s < n_sides; s++)
		a->side[s].count = 0;
}

/* The MPI libraries' own MPI-IO misreads, and dies or hangs with, many datatypes. It gets
 * contiguous memory and filetypes of blocks instead of all but the simplest, and it does not get
 * external32: its data are converted here. */
static void avoid_faults(struct program *p, struct access *a)
{
	for (int s = 0; s < n_sides; s++) {
		if (side_is_strict(s))
			continue;
		if (a->map.is_difficult || a->swap > 1)
			access_pack(a, s, p->view.element);
	}
}

/* The access is complete but for being done: a->first is set. Takes it over. */
static void do_access(struct program *p, struct access *a)
{
	const struct kind_info *k = &kind_info[a->kind];
	int first = rng_below(k->all ? &p->common : &p->mine, 2);

	a->offset = a->first / p->view.esize;
	note(p, "%s%s: %d of a type of %d bytes (extent %ld) at byte %lld of the data, place %lld",
	     k->name, a->large ? "_c" : "", a->count, a->map.size, (long)a->map.extent,
	     (long long)a->first, (long long)view_place(p, a->first));
	note(p, "memory from displacement %d to %d, in order %d", a->map.at[0],
	     a->map.at[a->map.size - 1], map_tiles(&a->map));
	if (k->is_write)
		model_write(p, a);
	else
		model_read(p, a);
	avoid_faults(p, a);
	if (k->where == OWN)
		p->own += a->length;
	for (int i = 0; i < n_sides; i++)
		access_start(a, p->file[(first + i) % n_sides], (first + i) % n_sides);
	p->last = a->kind;
	p->last_first = a->first;
	accesses++;
	if (k->when == LATER)
		p->pending[p->n_pending++] = a;
	else if (k->when == IN_SPLIT)
		p->split = a;
	else
		access_judge(p, a);
}

void access_and_check(struct program *p, struct access *a)
{
	const struct kind_info *k = &kind_info[a->kind];
	MPI_Offset cut = (a->first + bytes_before_end(p, a->first, a->length)) / p->view.esize;

	do_access(p, a);
	if (k->where == OWN)
		check_positions(p, k->is_write ? -1 : cut);
}

/* Moves the process's pointer to byte `to` of the data. */
void seek_own(struct program *p, int64_t to)
{
	int64_t end = bytes_before_end(p, 0, LIMIT), unit = p->view.esize;
	bool has_end = p->size_is_known && end % unit == 0 && !p->n_pending && !p->split;
	uint32_t how = rng_below(&p->mine, has_end ? 3 : p->position_is_known ? 2 : 1);
	int whence = how == 0 ? MPI_SEEK_SET : how == 1 ? MPI_SEEK_CUR : MPI_SEEK_END;
	int64_t from = how == 0 ? 0 : how == 1 ? p->own : end;

	note(p, "seek to byte %lld of the data, %s", (long long)to, whence_name[how]);
	BOTH(p, mine, "seek", MPI_File_seek(f, (to - from) / unit, whence));
	p->own = to;
	check_positions(p, -1);
}

int64_t random_place(struct rng *r, struct program *p, int64_t length)
{
	return (int64_t)rng_below(r, (p->view.end - length) / p->view.esize + 1) * p->view.esize;
}

enum kind random_kind(struct rng *r, bool all, bool with_shared, bool may_read, bool may_write)
{
	for (;;) {
		enum kind kind = rng_below(r, KINDS);
		const struct kind_info *k = &kind_info[kind];

		if (k->all == all && (with_shared || k->where != SHARED) &&
		    (k->is_write ? may_write : may_read))
			return kind;
	}
}

void private_access(struct program *p, enum kind kind)
{
	const struct kind_info *k = &kind_info[kind];
	struct access *a = make_access(p, kind, p->view.end);

	a->first = k->where == AT ? random_place(&p->mine, p, a->length) : p->own;
	if (k->where == OWN && a->first + a->length > p->view.end) {
		seek_own(p, random_place(&p->mine, p, a->length));
		a->first = p->own;
	}
	if (p->split && accesses_overlap(p, a, p->split))
		make_empty(a);
	if (p->n_pending == PENDING || conflicts_with_pending(p, a))
		wait_for_pending(p);
	access_and_check(p, a);
}
