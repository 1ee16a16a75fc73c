/* Random derived datatypes. Each constructor is applied to a smaller random type or to the basic
 * one; a result that does not fit its purpose is thrown away. The MPI library itself says where
 * the bytes of a type are: it packs a buffer in which each byte states its own position. */
#include "lib_types.h"

#include <stdlib.h>
#include <string.h>

#define PARTS 5

uint32_t rng_below(struct rng *r, uint64_t n)
{
	uint64_t x = r->state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return n ? (x ^ x >> 31) % n : 0;
}

bool rng_one_in(struct rng *r, uint32_t n)
{
	return rng_below(r, n) == 0;
}

bool map_of(MPI_Datatype type, struct map *m)
{
	MPI_Aint lb, extent, true_lb, true_extent;
	uint8_t *from, *to;

	MPI_Type_size(type, &m->size);
	MPI_Type_get_extent(type, &lb, &extent);
	MPI_Type_get_true_extent(type, &true_lb, &true_extent);
	if (m->size <= 0 || m->size > MAP_SIZE || true_extent > MAP_EXTENT || extent < 0 ||
	    extent > MAP_EXTENT || true_lb < -MAP_EXTENT || true_lb > MAP_EXTENT) {
		MPI_Type_free(&type);
		return false;
	}
	*m = (struct map){ .type = type, .size = m->size };
	m->extent = extent;
	m->at = calloc(m->size, sizeof(*m->at));
	from = malloc(true_extent);
	to = malloc(m->size);
	for (int digit = 0; digit < 2; digit++) {
		int used = 0;

		for (MPI_Aint i = 0; i < true_extent; i++)
			from[i] = i >> 8 * digit;
		MPI_Pack(from - true_lb, 1, type, to, m->size, &used, MPI_COMM_SELF);
		for (int i = 0; i < m->size; i++)
			m->at[i] += to[i] << 8 * digit;
	}
	for (int i = 0; i < m->size; i++)
		m->at[i] += true_lb;
	free(from);
	free(to);
	return true;
}

void map_free(struct map *m)
{
	if (m->at)
		MPI_Type_free(&m->type);
	free(m->at);
	*m = (struct map){ 0 };
}

int64_t map_at(const struct map *m, int64_t i)
{
	return i / m->size * m->extent + m->at[i % m->size];
}

void map_span(const struct map *m, int copies, int64_t *first, int64_t *last)
{
	int64_t n = (int64_t)m->size * copies;

	*first = *last = 0;
	for (int64_t i = 0; i < n; i++) {
		int64_t at = map_at(m, i);

		*first = at < *first ? at : *first;
		*last = at > *last ? at : *last;
	}
}

bool map_tiles(const struct map *m)
{
	if (m->at[0] < 0 || m->at[m->size - 1] >= m->extent + m->at[0])
		return false;
	for (int i = 1; i < m->size; i++)
		if (m->at[i] <= m->at[i - 1])
			return false;
	return true;
}

bool map_is_injective(const struct map *m, int copies)
{
	int64_t n = (int64_t)m->size * copies, min, max;
	uint8_t *seen;
	bool yes = true;

	map_span(m, copies, &min, &max);
	seen = calloc(1, max - min + 1);
	for (int64_t i = 0; i < n && yes; i++) {
		uint8_t *place = &seen[map_at(m, i) - min];

		yes = !*place;
		*place = 1;
	}
	free(seen);
	return yes;
}

MPI_Datatype map_plain_tile(const struct map *m)
{
	int *length = calloc(m->size, sizeof(*length)), n = 0;
	MPI_Aint *at = calloc(m->size, sizeof(*at));
	MPI_Datatype blocks, t;

	for (int i = 0; i < m->size; i++) {
		if (i && m->at[i] == m->at[i - 1] + 1) {
			length[n - 1]++;
			continue;
		}
		at[n] = m->at[i];
		length[n++] = 1;
	}
	MPI_Type_create_hindexed(n, length, at, MPI_BYTE, &blocks);
	MPI_Type_create_resized(blocks, 0, m->extent, &t);
	MPI_Type_commit(&t);
	MPI_Type_free(&blocks);
	free(length);
	free(at);
	return t;
}

/* ---- constructors: each makes a type of `of`, whose extent is e ---- */

/* The type being made is more than one vector, subarray or indexed type whose parts are in
 * order. */
static bool made_difficult;

/* The places of up to PARTS blocks. */
struct blocks {
	int n;
	int length[PARTS], unit[PARTS];
	MPI_Aint byte[PARTS];
};

static struct blocks random_blocks(struct rng *r, MPI_Aint e, bool equal, bool in_order)
{
	struct blocks b = { .n = 1 + rng_below(r, PARTS) };
	int at = 0, length = 1 + rng_below(r, 3);

	for (int i = 0; i < b.n; i++) {
		b.length[i] = equal ? length : (int)rng_below(r, 4);
		made_difficult |= b.length[i] == 0;
		at += rng_below(r, 3);
		b.unit[i] = at;
		at += b.length[i];
	}
	if (!in_order)
		for (int i = 0; i < b.n; i++)
			b.unit[i] = (int)rng_below(r, 2 * at + 2) - at / 2;
	for (int i = 0; i < b.n; i++)
		b.byte[i] = b.unit[i] * e + (in_order ? 0 : (MPI_Aint)rng_below(r, 2));
	return b;
}

static void make_blocks(struct rng *r, int which, MPI_Datatype of, MPI_Aint e, bool in_order,
			MPI_Datatype *t)
{
	struct blocks b = random_blocks(r, e, which >= 2, in_order);

	if (which == 0)
		MPI_Type_indexed(b.n, b.length, b.unit, of, t);
	else if (which == 1)
		MPI_Type_create_hindexed(b.n, b.length, b.byte, of, t);
	else if (which == 2)
		MPI_Type_create_indexed_block(b.n, b.length[0], b.unit, of, t);
	else
		MPI_Type_create_hindexed_block(b.n, b.length[0], b.byte, of, t);
}

static void make_vector(struct rng *r, bool bytes, MPI_Datatype of, MPI_Aint e, bool in_order,
			MPI_Datatype *t)
{
	int count = 1 + rng_below(r, 4), length = 1 + rng_below(r, 3);
	int stride = length + rng_below(r, 4);

	/* Open MPI 4.1 takes a stride of minus one block for plus one */
	if (!in_order && rng_one_in(r, 3))
		stride = -stride - (stride == length);
	if (bytes)
		MPI_Type_create_hvector(count, length, stride * e, of, t);
	else
		MPI_Type_vector(count, length, stride, of, t);
}

static void make_struct(struct rng *r, MPI_Datatype base, MPI_Datatype of, MPI_Aint e,
			bool in_order, MPI_Datatype *t)
{
	struct blocks b = random_blocks(r, e, false, in_order);
	MPI_Datatype types[PARTS];

	for (int i = 0; i < b.n; i++)
		types[i] = rng_one_in(r, 2) ? of : base;
	MPI_Type_create_struct(b.n, b.length, b.byte, types, t);
}

static void make_subarray(struct rng *r, MPI_Datatype of, MPI_Datatype *t)
{
	int dims = 1 + rng_below(r, 3), size[3], part[3], start[3];

	for (int i = 0; i < dims; i++) {
		size[i] = 1 + rng_below(r, 5);
		part[i] = 1 + rng_below(r, size[i]);
		start[i] = rng_below(r, size[i] - part[i] + 1);
	}
	MPI_Type_create_subarray(dims, size, part, start,
				 rng_one_in(r, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, of, t);
}

static void make_darray(struct rng *r, MPI_Datatype of, MPI_Datatype *t)
{
	int dims = 1 + rng_below(r, 3), size[3], how[3], arg[3], procs[3], all = 1, order;

	for (int i = 0; i < dims; i++) {
		size[i] = 1 + rng_below(r, 7);
		how[i] = rng_one_in(r, 3) ? MPI_DISTRIBUTE_NONE :
			 rng_one_in(r, 2) ? MPI_DISTRIBUTE_BLOCK :
					    MPI_DISTRIBUTE_CYCLIC;
		procs[i] = how[i] == MPI_DISTRIBUTE_NONE ? 1 : 1 + (int)rng_below(r, 3);
		arg[i] = MPI_DISTRIBUTE_DFLT_DARG;
		if (how[i] == MPI_DISTRIBUTE_CYCLIC && rng_one_in(r, 2))
			arg[i] = 1 + rng_below(r, 3);
		all *= procs[i];
	}
	order = rng_one_in(r, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
	/* Open MPI refuses arrays of which the process has no element */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (MPI_Type_create_darray(all, rng_below(r, all), dims, size, how, arg, procs, order, of,
				   t))
		MPI_Type_dup(of, t);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void make_resized(struct rng *r, MPI_Datatype of, MPI_Aint e, bool in_order, MPI_Datatype *t)
{
	MPI_Aint lb, extent, step = e ? e : 1;

	MPI_Type_get_extent(of, &lb, &extent);
	if (!in_order)
		lb -= step * rng_below(r, 3);
	MPI_Type_create_resized(of, lb, extent + step * (MPI_Aint)rng_below(r, 4), t);
}

static void make_any(struct rng *r, MPI_Datatype base, MPI_Datatype of, bool in_order,
		     MPI_Datatype *t)
{
	uint32_t which = rng_below(r, 13);
	MPI_Aint lb, e;

	made_difficult |= which == 6 || which == 7 || which >= 10;
	MPI_Type_get_extent(of, &lb, &e);
	if (which == 0)
		MPI_Type_contiguous(1 + rng_below(r, 4), of, t);
	else if (which <= 2)
		make_vector(r, which == 1, of, e, in_order, t);
	else if (which <= 6)
		make_blocks(r, which - 3, of, e, in_order, t);
	else if (which <= 7)
		make_struct(r, base, of, e, in_order, t);
	else if (which <= 9)
		make_subarray(r, of, t);
	else if (which <= 10)
		make_darray(r, of, t);
	else if (which <= 11)
		make_resized(r, of, e, in_order, t);
	else
		MPI_Type_dup(of, t);
}

static MPI_Datatype random_type(struct rng *r, MPI_Datatype base, bool in_order, int depth)
{
	MPI_Datatype of = base, t;

	made_difficult |= depth > 1 || !in_order;
	if (depth > 1)
		of = random_type(r, base, in_order, depth - 1);
	make_any(r, base, of, in_order, &t);
	if (of != base)
		MPI_Type_free(&of);
	MPI_Type_commit(&t);
	return t;
}

void map_random_tile(struct rng *r, MPI_Datatype etype, struct map *m)
{
	for (;;) {
		made_difficult = false;
		if (!map_of(random_type(r, etype, true, 1 + rng_below(r, 3)), m))
			continue;
		m->is_difficult = made_difficult;
		if (map_tiles(m))
			return;
		map_free(m);
	}
}

void map_random_memory(struct rng *r, MPI_Datatype of, bool may_overlap, struct map *m)
{
	for (;;) {
		made_difficult = false;
		if (!map_of(random_type(r, of, rng_one_in(r, 2), 1 + rng_below(r, 3)), m))
			continue;
		m->is_difficult = made_difficult;
		if (may_overlap || map_is_injective(m, 1))
			return;
		map_free(m);
	}
}
