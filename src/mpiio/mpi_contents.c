/* What a derived datatype was made of: the arguments of its constructor.
 *
 * The arguments have one form, whether the constructor took int, MPI_Aint or (MPI 4) MPI_Count:
 * counts and numbers of elements in `ints`, bytes in `aints`, both as 64-bit numbers.
 *
 * Threads: any. Errors: an MPI class. */
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

/* As MPI returns them. */
struct raw {
	MPI_Count n_ints, n_aints, n_counts, n_types;
	int *ints;
	MPI_Aint *aints;
	MPI_Count *counts;
};

#if MPI_VERSION >= 4

static int envelope(MPI_Datatype type, struct raw *r, int *combiner)
{
	return PMPI_Type_get_envelope_c(type, &r->n_ints, &r->n_aints, &r->n_counts, &r->n_types,
					combiner);
}

static int arguments(MPI_Datatype type, const struct raw *r, MPI_Datatype *types)
{
	return PMPI_Type_get_contents_c(type, r->n_ints, r->n_aints, r->n_counts, r->n_types,
					r->ints, r->aints, r->counts, types);
}

#else

static int envelope(MPI_Datatype type, struct raw *r, int *combiner)
{
	int i, a, t, e = PMPI_Type_get_envelope(type, &i, &a, &t, combiner);

	if (!e) {
		r->n_ints = i;
		r->n_aints = a;
		r->n_types = t;
	}
	return e;
}

static int arguments(MPI_Datatype type, const struct raw *r, MPI_Datatype *types)
{
	return PMPI_Type_get_contents(type, (int)r->n_ints, (int)r->n_aints, (int)r->n_types,
				      r->ints, r->aints, types);
}

#endif

static void put_ints(struct mcontents *c, size_t *at, const int *from, MPI_Count n)
{
	for (MPI_Count i = 0; i < n; i++)
		c->ints[(*at)++] = from[i];
}

static void put_counts(int64_t *to, size_t *at, const MPI_Count *from, MPI_Count n)
{
	for (MPI_Count i = 0; i < n; i++)
		to[(*at)++] = from[i];
}

/* How many counts of a constructor with MPI_Count belong to `ints`; the others are bytes. */
static MPI_Count counts_of_elements(const struct mcontents *c, const struct raw *r)
{
	switch (c->combiner) {
	case MPI_COMBINER_HVECTOR:
	case MPI_COMBINER_HINDEXED_BLOCK:
		return 2;
	case MPI_COMBINER_HINDEXED:
	case MPI_COMBINER_STRUCT:
		return r->counts[0] + 1;
	case MPI_COMBINER_RESIZED:
		return 0;
	default:
		return r->n_counts;
	}
}

static void convert(struct mcontents *c, const struct raw *r)
{
	/* the ints of a subarray or a darray begin before its counts and go on behind them */
	MPI_Count before = c->combiner == MPI_COMBINER_SUBARRAY ? 1 :
			   c->combiner == MPI_COMBINER_DARRAY	? 3 :
								  r->n_ints;
	MPI_Count elements = r->n_counts ? counts_of_elements(c, r) : 0;
	size_t i = 0, a = 0;

	before = MIN(before, r->n_ints);
	put_ints(c, &i, r->ints, before);
	put_counts(c->ints, &i, r->counts, elements);
	put_ints(c, &i, r->ints + before, r->n_ints - before);
	for (MPI_Count k = 0; k < r->n_aints; k++)
		c->aints[a++] = r->aints[k];
	put_counts(c->aints, &a, r->counts + elements, r->n_counts - elements);
}

/* Types like that of MPI_Type_create_f90_real() are predefined, too, and must not be freed. */
static bool is_predefined(int combiner)
{
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
	       combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

bool mcontents_is_derived(MPI_Datatype t)
{
	struct raw r = { 0 };
	int combiner = MPI_COMBINER_NAMED;

	return !envelope(t, &r, &combiner) && !is_predefined(combiner);
}

void mcontents_free(struct mcontents *c)
{
	for (size_t i = 0; i < c->n_types; i++)
		if (mcontents_is_derived(c->types[i]))
			PMPI_Type_free(&c->types[i]);
	free(c->ints);
	free(c->aints);
	free(c->types);
}

int mcontents_get(MPI_Datatype type, struct mcontents *c)
{
	struct raw r = { 0 };
	size_t n;
	int e = MPI_ERR_NO_MEM;

	memset(c, 0, sizeof(*c));
	if (envelope(type, &r, &c->combiner))
		return MPI_ERR_TYPE;
	if (is_predefined(c->combiner))
		return MPI_SUCCESS;
	n = (size_t)(r.n_ints + r.n_aints + r.n_counts + 1);
	r.ints = calloc((size_t)r.n_ints + 1, sizeof(*r.ints));
	r.aints = calloc((size_t)r.n_aints + 1, sizeof(*r.aints));
	r.counts = calloc((size_t)r.n_counts + 1, sizeof(*r.counts));
	c->ints = calloc(n, sizeof(*c->ints));
	c->aints = calloc(n, sizeof(*c->aints));
	c->types = calloc((size_t)r.n_types + 1, sizeof(MPI_Datatype));
	if (r.ints && r.aints && r.counts && c->ints && c->aints && c->types)
		e = arguments(type, &r, c->types) ? MPI_ERR_TYPE : MPI_SUCCESS;
	if (!e) {
		c->n_types = (size_t)r.n_types;
		convert(c, &r);
	}
	free(r.ints);
	free(r.aints);
	free(r.counts);
	if (e)
		mcontents_free(c);
	return e;
}
