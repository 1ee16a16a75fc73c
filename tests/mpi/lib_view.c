/* Random views of the file, and changes of its size. */
#include "lib_program.h"

#include <string.h>

void program_set_view(struct program *p)
{
	struct view *v = &p->view;
	MPI_Datatype plain = map_plain_tile(&v->tile), tile[SIDES];

	MPI_Type_size(v->etype, &v->esize);
	for (int s = 0; s < n_sides; s++)
		tile[s] = v->tile.is_difficult && !side_is_strict(s) ? plain : v->tile.type;
	BOTH(p, common, "set_view",
	     MPI_File_set_view(f, v->displacement, v->etype, tile[s],
			       v->is_external && side_is_strict(s) ? "external32" : "native",
			       MPI_INFO_NULL));
	MPI_Type_free(&plain);
	p->own = p->shared = 0;
	p->position_is_known = true;
}

void program_free_view(struct program *p)
{
	if (p->view.etype != p->view.element)
		MPI_Type_free(&p->view.etype);
	map_free(&p->view.tile);
}

static void random_etype(struct program *p)
{
	static const MPI_Datatype element[] = { MPI_BYTE, MPI_INT, MPI_DOUBLE, MPI_SHORT };
	struct view *v = &p->view;
	MPI_Datatype t = v->element = element[rng_below(&p->common, 4)];
	uint32_t which = rng_below(&p->common, 6);

	if (which == 0)
		MPI_Type_contiguous(3, v->element, &t);
	else if (which == 1)
		MPI_Type_vector(2, 1, 2, v->element, &t);
	if (t != v->element)
		MPI_Type_commit(&t);
	v->etype = t;
	v->is_external = rng_one_in(&p->common, 4);
}

/* The tile with another extent. */
static void resize_tile(struct map *tile, MPI_Aint extent)
{
	MPI_Datatype old = tile->type;

	MPI_Type_create_resized(old, 0, extent, &tile->type);
	MPI_Type_commit(&tile->type);
	MPI_Type_free(&old);
	tile->extent = extent;
}

/* Bytes of data of the view whose places are below `limit`, in whole tiles. */
static int64_t view_end(struct view *v, int64_t limit)
{
	int64_t last = v->tile.at[v->tile.size - 1] + 1;

	if (v->displacement + last > limit)
		return 0;
	return ((limit - v->displacement - last) / v->tile.extent + 1) * v->tile.size;
}

/* Views that share no byte: tiles that alternate, or regions of the file. */
void private_view(struct program *p)
{
	struct view *v = &p->view;
	MPI_Aint lb, unit, step;
	int64_t limit = LIMIT;

	random_etype(p);
	map_random_tile(&p->mine, v->etype, &v->tile);
	MPI_Type_get_extent(v->etype, &lb, &unit);
	step = v->tile.at[v->tile.size - 1] + 1;
	step = (step > v->tile.extent ? step : v->tile.extent) + unit - 1;
	step -= step % unit;
	MPI_Allreduce(MPI_IN_PLACE, &step, 1, MPI_AINT, MPI_MAX, p->comm);
	v->displacement = rng_below(&p->common, 3000);
	if (p->ranks > 1 && rng_one_in(&p->common, 2)) {
		v->displacement += p->rank * step;
		resize_tile(&v->tile, step * p->ranks);
	} else if (p->ranks > 1) {
		limit = (int64_t)LIMIT / p->ranks * (p->rank + 1);
		v->displacement += LIMIT / p->ranks * p->rank;
	}
	program_set_view(p);
	v->end = view_end(v, limit);
	note(p, "view: displacement %lld, tile of %d bytes, extent %ld, end %lld",
	     (long long)v->displacement, v->tile.size, (long)v->tile.extent, (long long)v->end);
}

/* Collective, when nothing is under way: the file as it is after set_size or preallocate. */
static void new_size(struct program *p, int64_t size)
{
	if (size < LIMIT) {
		memset(p->bytes + size, 0, LIMIT - size);
		memset(p->settled + size, 0, LIMIT - size);
	}
	p->size = size;
	model_settle(p);
	check_sizes(p);
}

void program_set_size(struct program *p, int64_t size)
{
	note(p, "set_size %lld", (long long)size);
	BOTH(p, common, "set_size", MPI_File_set_size(f, size));
	new_size(p, size);
}

void program_preallocate(struct program *p, int64_t size)
{
	note(p, "preallocate %lld", (long long)size);
	BOTH(p, common, "preallocate", MPI_File_preallocate(f, size));
	new_size(p, size > p->size ? size : p->size);
}

/* One view for all processes. */
void common_view(struct program *p)
{
	struct view *v = &p->view;

	random_etype(p);
	map_random_tile(&p->common, v->etype, &v->tile);
	v->displacement = rng_below(&p->common, 3000);
	program_set_view(p);
	v->end = view_end(v, LIMIT);
	note(p, "view: displacement %lld, tile of %d bytes, extent %ld, end %lld",
	     (long long)v->displacement, v->tile.size, (long)v->tile.extent, (long long)v->end);
}
