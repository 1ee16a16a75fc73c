/* Typed requests or two-phase, for collective accesses.
 *
 * Which one is faster depends on the network, the storage, the number of processes and the pieces,
 * so both are measured: for each class of size and piece a file tries either way, then uses the
 * faster one, and tries the other one again from time to time. Large pieces are never exchanged:
 * every process moves them as fast as an aggregator could.
 *
 * Threads: the caller's. Errors: those of all processes come with the numbers. */
#include "mpiio/mpi_impl.h"

#define LARGE_PIECE (int64_t)(16 * KIB)
#define LARGE_ACCESS (int64_t)(64 * MIB) /* of a process */
#define TRY_AGAIN 64 /* accesses until the slower way is tried again */

enum { TYPED, TWO_PHASE };

static unsigned log2_of(uint64_t n)
{
	return n ? 63 - (unsigned)__builtin_clzll(n) : 0;
}

/* By mean piece (1 B to 16 KiB, in steps of 16) and bytes of a process (in steps of 64). */
static unsigned class_of(uint64_t piece, uint64_t bytes)
{
	return MIN(log2_of(piece) / 4, 3u) * 16 + MIN(log2_of(bytes) / 6, 15u);
}

static bool try_two_phase(const struct mtrial *t)
{
	if (!t->n[TYPED])
		return false;
	if (!t->n[TWO_PHASE])
		return true;
	if ((t->n[TYPED] + t->n[TWO_PHASE]) % TRY_AGAIN == 0) /* the slower one */
		return t->ns[TWO_PHASE] > t->ns[TYPED];
	return t->ns[TWO_PHASE] < t->ns[TYPED];
}

int mchoice_begin(struct maccess *a, struct mchoice *c, int class)
{
	int64_t mine[3] = { a->bytes ? (int64_t)a->file->piece_bytes : 0, (int64_t)a->bytes,
			    class },
		most[3];

	*c = (struct mchoice){ .begin = time_now() };
	if (a->bytes && a->file->is_dense)
		mine[0] = (int64_t)a->bytes;
	if (PMPI_Allreduce(mine, most, 3, MPI_INT64_T, MPI_MAX, a->f->comm))
		return MPI_ERR_OTHER;
	if (most[0] >= LARGE_PIECE || most[1] >= LARGE_ACCESS || !most[1])
		return (int)most[2];
	c->trial = &a->f->trials[a->write][class_of((uint64_t)most[0], (uint64_t)most[1])];
	c->two_phase = try_two_phase(c->trial);
	return (int)most[2];
}

int mchoice_end(struct maccess *a, struct mchoice *c, int class)
{
	int64_t mine[2] = { (int64_t)(time_now() - c->begin), class }, most[2];
	struct mtrial *t = c->trial;

	if (PMPI_Allreduce(mine, most, 2, MPI_INT64_T, MPI_MAX, a->f->comm))
		return MPI_ERR_OTHER;
	if (!t || most[1])
		return (int)most[1];
	if (!t->n[c->two_phase] || (uint64_t)most[0] < t->ns[c->two_phase])
		t->ns[c->two_phase] = (uint64_t)most[0];
	t->n[c->two_phase]++;
	return MPI_SUCCESS;
}
