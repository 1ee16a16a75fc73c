/* Statistics of a file, for SHEAF_MPIIO_STATS=1: accesses and bytes by method, summed over all
 * processes and printed at the close by process 0.
 *
 * Threads: the caller's. Errors: none; a table is not printed. */
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

void mstats_count(struct maccess *a, enum mmethod how, uint64_t accesses, uint64_t bytes)
{
	struct mstats *s = &a->f->stats;

	s->by[a->write][how].calls++;
	s->by[a->write][how].accesses += accesses;
	s->by[a->write][how].bytes += bytes;
}

static bool wanted(void)
{
	const char *v = getenv("SHEAF_MPIIO_STATS");

	return v && strcmp(v, "0") != 0;
}

static void print(const struct mfile *f, const uint64_t *sum)
{
	static const char *const ways[2] = { "read", "write" };
	const uint64_t *p = sum + 2;

	fprintf(stderr, "sheaf:%s, %d processes: %llu requests to servers, %llu bytes exchanged\n",
		f->name.path, f->n_ranks, (unsigned long long)sum[0], (unsigned long long)sum[1]);
	fprintf(stderr, "%-10s %-6s %10s %10s %16s\n", "METHOD", "", "CALLS", "ACCESSES", "BYTES");
	for (int w = 0; w < 2; w++)
		for (int i = 0; i < N_METHODS_OF_MPIIO; i++, p += 3)
			if (p[0])
				fprintf(stderr, "%-10s %-6s %10llu %10llu %16llu\n",
					mmethod_names[i], ways[w], (unsigned long long)p[0],
					(unsigned long long)p[1], (unsigned long long)p[2]);
}

void mstats_print(struct mfile *f)
{
	uint64_t mine[2 + 2 * N_METHODS_OF_MPIIO * 3], sum[ARRAY_LEN(mine)];
	int all = wanted(), any = 0;
	size_t n = 0;

	if (PMPI_Allreduce(&all, &any, 1, MPI_INT, MPI_LAND, f->comm) || !any)
		return;
	mine[n++] = mconnect_requests(f->fs) - f->stats.requests_before;
	mine[n++] = f->stats.exchanged;
	for (int w = 0; w < 2; w++)
		for (int i = 0; i < N_METHODS_OF_MPIIO; i++) {
			mine[n++] = f->stats.by[w][i].calls;
			mine[n++] = f->stats.by[w][i].accesses;
			mine[n++] = f->stats.by[w][i].bytes;
		}
	if (!PMPI_Reduce(mine, sum, (int)n, MPI_UINT64_T, MPI_SUM, 0, f->comm) && f->rank == 0)
		print(f, sum);
}
