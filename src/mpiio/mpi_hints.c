/* Hints: info keys that this library knows, and those in use as an info for the program.
 *
 * Threads: the caller's. Errors: an MPI class; a hint that makes no sense is ignored, as MPI
 * asks. */
#include <ctype.h>
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

const char *const mmethod_names[N_METHODS_OF_MPIIO] = {
	[M_AUTO] = "auto", [M_MULTIPLE] = "multiple", [M_SIEVE] = "sieve",
	[M_LIST] = "list", [M_TYPED] = "typed",	      [M_TWO_PHASE] = "twophase"
};

#define CB_BUFFER (16 * MIB)
#define STRIPE_STEP 4096 /* a stripe unit is a multiple of it */

static bool get(MPI_Info info, const char *key, char value[MPI_MAX_INFO_VAL + 1])
{
	int there = 0;

	if (info == MPI_INFO_NULL || PMPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &there) ||
	    !there)
		return false;
	return true;
}

static bool get_number(MPI_Info info, const char *key, uint64_t max, uint64_t *out)
{
	char value[MPI_MAX_INFO_VAL + 1], *end;
	unsigned long long n;

	if (!get(info, key, value) || !isdigit((unsigned char)*value))
		return false;
	n = strtoull(value, &end, 10);
	if (*end || !n || n > max)
		return false;
	*out = n;
	return true;
}

static void get_method(MPI_Info info, struct mhints *h)
{
	char value[MPI_MAX_INFO_VAL + 1];

	if (!get(info, "sheaf_method", value))
		return;
	for (int i = 0; i < N_METHODS_OF_MPIIO; i++)
		if (strcmp(value, mmethod_names[i]) == 0)
			h->method = (enum mmethod)i;
}

static void set_number(MPI_Info info, const char *key, uint64_t n)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	PMPI_Info_set(info, key, text);
}

/* The hints in use, which a program may ask for. */
static int publish(struct mfile *f)
{
	const struct mhints *h = &f->hints;

	if (f->info == MPI_INFO_NULL && PMPI_Info_create(&f->info))
		return MPI_ERR_INFO;
	PMPI_Info_set(f->info, "sheaf_method", mmethod_names[h->method]);
	set_number(f->info, "cb_nodes", (uint64_t)h->cb_nodes);
	set_number(f->info, "cb_buffer_size", h->cb_buffer_size);
	set_number(f->info, "striping_unit", h->striping_unit);
	set_number(f->info, "striping_factor", h->striping_factor);
	return MPI_SUCCESS;
}

/* How the file is striped is known after the open; nothing else needs it. */
int mhints_get(struct mfile *f, MPI_Info *out)
{
	struct sheaf_layout_info l = { .size = sizeof(l) };

	if (!f->has_layout && !sheaf_h_layout(f->fs, NULL, sheaf_file_handle(f->f), &l)) {
		f->hints.striping_unit = l.stripe_unit;
		f->hints.striping_factor = l.width;
		f->has_layout = true;
		if (publish(f))
			return MPI_ERR_INFO;
	}
	return PMPI_Info_dup(f->info, out) ? MPI_ERR_INFO : MPI_SUCCESS;
}

int mhints_take(struct mfile *f, MPI_Info info)
{
	struct mhints *h = &f->hints;
	struct mhints first;
	uint64_t n;

	if (!h->cb_buffer_size)
		h->cb_buffer_size = CB_BUFFER;
	get_method(info, h);
	if (get_number(info, "cb_nodes", (uint64_t)f->n_ranks, &n))
		h->cb_nodes = (int)n;
	if (get_number(info, "cb_buffer_size", 1024 * MIB, &n))
		h->cb_buffer_size = n;
	if (!f->f && get_number(info, "striping_unit", 1024 * MIB, &n) && n % STRIPE_STEP == 0)
		h->striping_unit = (uint32_t)n;
	if (!f->f && get_number(info, "striping_factor", SHEAF_MAX_SERVERS, &n))
		h->striping_factor = (uint32_t)n;
	/* collective accesses need the same hints in every process */
	first = *h;
	if (PMPI_Bcast(&first, sizeof(first), MPI_BYTE, 0, f->comm))
		return MPI_ERR_OTHER;
	*h = first;
	f->has_layout = false;
	return merror_all(f->comm, publish(f));
}

int mhints_set(struct mfile *f, MPI_Info info)
{
	int r = msame(f, MKIND_SET_INFO, MPI_SUCCESS, NULL);

	return r ? r : mhints_take(f, info);
}
