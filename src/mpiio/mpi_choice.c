/* Typed requests or two-phase, for collective accesses.
 *
 * Which one is faster depends on the network, the storage, the number of processes and the pieces,
 * so both are measured, for each class of size and piece. Typed requests begin, because each
 * process can do them alone; later the way that was faster in its last accesses is used, and the
 * other one is tried again when that costs little beside the time spent since. The time of an
 * access is that of the slowest process, without the wait for it. Large pieces are never exchanged:
 * every process moves them as fast as an aggregator could.
 *
 * Every process has the same times, so all choose alike. A file begins with those that process 0
 * has of the files that were closed before. While typed requests are chosen for accesses like the
 * last one, a process begins its access before the others are there; they exchange errors and times
 * afterwards.
 *
 * Threads: the caller's; the times of closed files have a lock. Errors: those of all processes come
 * with the numbers. */
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

#define LARGE_PIECE (int64_t)(16 * KIB)
#define LARGE_ACCESS (int64_t)(64 * MIB) /* of a process */
#define TYPED_FIRST 4 /* accesses by typed requests before two-phase is tried */
#define SHARE 16 /* a try may cost this part of the time since the last change */

enum { TYPED, TWO_PHASE };

/* ---- one class ---- */

static unsigned log2_of(uint64_t n)
{
	return n ? 63 - (unsigned)__builtin_clzll(n) : 0;
}

/* By mean piece (1 B to 16 KiB, in steps of 16) and bytes of a process (in steps of 4). */
static unsigned class_of(uint64_t piece, uint64_t bytes)
{
	return MIN(log2_of(piece) / 4, 3u) * 16 + MIN(log2_of(bytes) / 2, 15u);
}

/* The median of the last three times, so that a process that was held up once does not change it;
 * the lower one of two. */
static uint64_t usual(const struct mtrial *t, int way)
{
	const uint64_t *us = t->us_per_mib[way];
	uint64_t low = MIN(us[0], us[1]), high = MAX(us[0], us[1]);

	if (t->n[way] < 3)
		return t->n[way] == 2 ? low : us[0];
	return MIN(MAX(low, us[2]), high);
}

static bool try_two_phase(const struct mtrial *t)
{
	uint64_t typed = usual(t, TYPED), two = usual(t, TWO_PHASE);
	uint64_t loss = MAX(typed, two) - MIN(typed, two);

	if (!t->n[TWO_PHASE])
		return t->n[TYPED] >= TYPED_FIRST;
	if (t->in_turn * MIN(typed, two) >= SHARE * loss)
		return !t->way;
	return two < typed;
}

static void add_time(struct mtrial *t, bool way, double us)
{
	t->us_per_mib[way][t->n[way]++ % MTRIAL_TIMES] = (uint64_t)us;
	t->in_turn = t->way == way ? t->in_turn + 1 : 1;
	t->way = way;
}

/* ---- what files before this one took ---- */

struct costs {
	struct costs *next;
	const struct sheaf *fs;
	int n_ranks;
	struct mtrial trials[2][MTRIALS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct costs *all_costs; /* until the process ends */

static struct costs *find(const struct mfile *f)
{
	struct costs *c = all_costs;

	while (c && (c->fs != f->fs || c->n_ranks != f->n_ranks))
		c = c->next;
	return c;
}

void mchoice_recall(const struct mfile *f, struct mtrial trials[2][MTRIALS])
{
	const struct costs *c;

	pthread_mutex_lock(&lock);
	c = find(f);
	if (c)
		memcpy(trials, c->trials, sizeof(c->trials));
	pthread_mutex_unlock(&lock);
}

void mchoice_keep(const struct mfile *f)
{
	struct costs *c;

	pthread_mutex_lock(&lock);
	c = find(f);
	if (!c) {
		c = calloc(1, sizeof(*c));
		if (c) {
			*c = (struct costs){ .next = all_costs,
					     .fs = f->fs,
					     .n_ranks = f->n_ranks };
			all_costs = c;
		}
	}
	for (int i = 0; c && i < 2 * MTRIALS; i++) { /* another file may have learned more */
		struct mtrial *kept = &c->trials[i / MTRIALS][i % MTRIALS];
		const struct mtrial *ours = &f->trials[i / MTRIALS][i % MTRIALS];

		if (ours->n[TYPED] + ours->n[TWO_PHASE] > kept->n[TYPED] + kept->n[TWO_PHASE])
			*kept = *ours;
	}
	pthread_mutex_unlock(&lock);
}

/* ---- around an access ---- */

enum { PIECE, BYTES, US }; /* what processes tell each other */

static void measure(const struct maccess *a, int64_t most[MSAME_VALUES])
{
	if (a->bytes)
		most[PIECE] = a->file->is_dense ? (int64_t)a->bytes : (int64_t)a->file->piece_bytes;
	most[BYTES] = (int64_t)a->bytes;
}

/* NULL: of large pieces, or without data. */
static struct mtrial *trial_of(const struct maccess *a, const int64_t most[MSAME_VALUES])
{
	if (most[PIECE] >= LARGE_PIECE || most[BYTES] >= LARGE_ACCESS || !most[BYTES])
		return NULL;
	return &a->f->trials[a->write][class_of((uint64_t)most[PIECE], (uint64_t)most[BYTES])];
}

int mchoice_begin(struct maccess *a, struct mchoice *c, int kind, int class)
{
	int64_t most[MSAME_VALUES] = { 0 };
	const struct mtrial *t = a->f->last[a->write];

	*c = (struct mchoice){ .kind = kind };
	if (t && try_two_phase(t)) {
		measure(a, most);
		class = msame(a->f, kind, class, most);
		t = trial_of(a, most);
		c->two_phase = t && try_two_phase(t);
		c->is_agreed = true;
	}
	c->begin = time_now();
	return class;
}

int mchoice_end(struct maccess *a, const struct mchoice *c, int class)
{
	int64_t most[MSAME_VALUES] = { [US] = (int64_t)((time_now() - c->begin) / 1000) };
	struct mtrial *t;

	measure(a, most);
	class = msame(a->f, c->kind, class, most);
	t = class ? NULL : trial_of(a, most);
	if (t) /* of a MiB, because the accesses of a class differ */
		add_time(t, c->two_phase, (double)most[US] / (double)most[BYTES] * MIB);
	a->f->last[a->write] = t;
	return class;
}
