/* Phases of a random program: accesses of all processes to parts of their own, or to one view. */
#include "lib_program.h"

/* Collective: ends everything that is under way on all processes. */
static void wait_for_all(struct program *p)
{
	end_split(p);
	wait_for_pending(p);
	p->collective_under_way = false;
}

static void collective_access(struct program *p, enum kind kind)
{
	end_split(p);
	/* nonblocking and blocking collectives at a time block MPICH and Open MPI */
	if (kind_info[kind].when != LATER && p->collective_under_way)
		wait_for_all(p);
	p->collective_under_way |= kind_info[kind].when == LATER;
	private_access(p, kind);
}

static void independent_steps(struct program *p, bool may_read, bool may_write)
{
	for (int n = rng_below(&p->mine, 4); n; n--) {
		if (rng_one_in(&p->mine, 6))
			wait_for_pending(p);
		else if (rng_one_in(&p->mine, 6))
			seek_own(p, random_place(&p->mine, p, 0));
		else
			private_access(p, random_kind(&p->mine, false, false, may_read, may_write));
	}
}

static void private_steps(struct program *p, bool may_read, bool may_write)
{
	for (int n = 2 + rng_below(&p->common, 8); n; n--) {
		if (rng_one_in(&p->common, 2))
			collective_access(p, random_kind(&p->common, true, false, may_read,
							 may_write));
		else if (rng_one_in(&p->common, 6))
			wait_for_all(p);
		else
			independent_steps(p, may_read, may_write);
	}
	wait_for_all(p);
}

/* While several processes write, the end of the file is known to none of them. So either nobody
 * reads, or the file is large enough for all that may be read. */
void private_phase(struct program *p)
{
	uint32_t which = rng_below(&p->common, 3);
	bool may_read = p->may_read && (which != 0 || !p->may_write);
	bool may_write = p->may_write && (which != 1 || !p->may_read);

	note(p, "private phase%s%s", may_read ? ", reads" : "", may_write ? ", writes" : "");
	if (p->ranks > 1 && may_read && may_write)
		program_set_size(p, LIMIT);
	p->size_is_known = p->ranks == 1 || !may_write || may_read;
	private_view(p);
	private_steps(p, may_read, may_write);
	model_settle(p);
	p->size_is_known = true;
	check_sizes(p);
}

static void seek_shared(struct program *p, int64_t to)
{
	int64_t end = bytes_before_end(p, 0, LIMIT), unit = p->view.esize;
	uint32_t how = rng_below(&p->common, end % unit == 0 ? 3 : 2);
	int whence = how == 0 ? MPI_SEEK_SET : how == 1 ? MPI_SEEK_CUR : MPI_SEEK_END;
	int64_t from = how == 0 ? 0 : how == 1 ? p->shared : end;

	note(p, "seek_shared to byte %lld of the data, %s", (long long)to, whence_name[how]);
	BOTH(p, common, "seek_shared", MPI_File_seek_shared(f, (to - from) / unit, whence));
	p->shared = to;
	check_shared_position(p);
}

/* The processes whose accesses are collective take places one after the other, in order of rank.
 * Returns what comes before this process. */
static int64_t before_mine(struct program *p, int64_t length, int64_t *all)
{
	int64_t lengths[64], before = 0;

	MPI_Allgather(&length, 1, MPI_INT64_T, lengths, 1, MPI_INT64_T, p->comm);
	*all = 0;
	for (int i = 0; i < p->ranks; i++) {
		before += i < p->rank ? lengths[i] : 0;
		*all += lengths[i];
	}
	return before;
}

/* An access by one process or by all, and everything has ended when this returns. */
static void common_access(struct program *p, enum kind kind)
{
	const struct kind_info *k = &kind_info[kind];
	bool active = (int)rng_below(&p->common, p->ranks) == p->rank || k->all;
	struct access *a = make_access(p, kind, active ? p->view.end / p->ranks : 0);
	int64_t all, before = before_mine(p, a->length, &all);

	if (k->where == SHARED && p->shared + all > p->view.end)
		seek_shared(p, random_place(&p->common, p, all));
	a->first = (k->where == SHARED ? p->shared : random_place(&p->common, p, all)) + before;
	if (k->where == OWN && active && p->own != a->first)
		seek_own(p, a->first);
	MPI_Barrier(p->comm); /* a seek from the end comes before another process writes */
	p->shared += k->where == SHARED ? all : 0;
	if (active)
		access_and_check(p, a);
	else
		access_free(a);
	wait_for_all(p);
	model_settle(p);
	check_shared_position(p);
}

void common_phase(struct program *p)
{
	note(p, "common phase");
	common_view(p);
	for (int n = 2 + rng_below(&p->common, 8); n; n--) {
		if (rng_one_in(&p->common, 8))
			seek_shared(p, random_place(&p->common, p, 0));
		else
			common_access(p, random_kind(&p->common, rng_one_in(&p->common, 2), true,
						     p->may_read, p->may_write));
	}
	check_sizes(p);
}
