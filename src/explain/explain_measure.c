/* The cost of an access: predicted from its plan, and measured by executing it with each mover.
 *
 * Measurements use a scratch file that is unlinked at once, so that it vanishes however the command
 * ends. For reads the data are written first. The movers alternate, round by round; the round with
 * the median time is reported, with the counters of the connection for that round.
 * Threads: one. Errors: CLI_FAILED after a message. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "explain/explain_impl.h"

#define ROUNDS_MIN 3
#define ROUNDS_MAX 15
#define ENOUGH_NS NSEC_PER_SEC
#define PATIENCE_NS (5 * NSEC_PER_SEC) /* time limit for the minimum number of rounds */
#define AT_ONCE 2 /* concurrent requests to a server; determines the number of round trips */
#define BLOCK (2 * MIB)
#define BLOCK_ROUNDS 5

/* ---- the scratch file ---- */

int explain_scratch(struct explain *e)
{
	const struct sheaf_layout want = { sizeof(want), e->x.unit, e->x.width };
	struct sheaf_layout_info is = { .size = sizeof(is) };
	struct sheaf *fs = e->c->fs;
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/.sheaf-explain-%d-%llx", (int)getpid(),
		 (unsigned long long)time_now());
	r = sheaf_open(fs, path, O_RDWR | O_CREAT | O_EXCL, 0600, &want, &e->f);
	if (r == -EACCES || r == -EPERM || r == -EROFS)
		return cli_error(e->c, "a file to measure in, %s: %s; --plan predicts without one",
				 path, sheaf_strerror(r));
	if (r)
		return cli_fail(e->c, path, r);
	r = sheaf_unlink(fs, path);
	if (!r)
		r = sheaf_h_layout(fs, NULL, sheaf_file_handle(e->f), &is);
	if (r)
		return cli_fail(e->c, path, r);
	e->where = (struct sheaf_stripes){ .unit = is.stripe_unit,
					   .start = is.start,
					   .n_targets = is.width };
	memcpy(e->where.targets, is.servers, is.width * sizeof(is.servers[0]));
	return CLI_OK;
}

/* ---- predictions ---- */

/* Time per byte beyond the client's own cost: of a contiguous block in the same direction, in the
 * first stripes of the file, which are written anyway. 0: plan only, or the block failed. */
static double byte_beyond(struct explain *e)
{
	bool write = e->x.a.write;
	char *block = e->f ? calloc(1, BLOCK) : NULL;
	uint64_t best = UINT64_MAX;
	double ours = sheaf_mover_cost_at(e->c->fs, (int)e->where.targets[0], SHEAF_MOVER_GATHER,
					  write, 1, BLOCK);
	ssize_t r = block ? sheaf_pwrite(e->f, block, BLOCK, 0) : 0;

	for (int i = 0; i < BLOCK_ROUNDS && r == (ssize_t)BLOCK; i++) {
		uint64_t t = time_now();

		r = write ? sheaf_pwrite(e->f, block, BLOCK, 0) :
			    sheaf_pread(e->f, block, BLOCK, 0);
		t = time_now() - t;
		best = MIN(best, t);
	}
	free(block);
	if (r != (ssize_t)BLOCK || (double)best < ours)
		return 0;
	return ((double)best - ours) / (double)BLOCK;
}

/* Round trips, plus the server's cost per extent, modelled like the client's cost per segment. */
static double server_time(struct explain *e, uint32_t i, const struct sheaf_share *s)
{
	struct sheaf_account a = { 0 };

	sheaf_account(e->c->fs, (int)e->where.targets[i], &a);
	return (double)((s->requests + AT_ONCE - 1) / AT_ONCE * a.round_ns) +
	       sheaf_mover_cost_at(e->c->fs, (int)e->where.targets[i], SHEAF_MOVER_GATHER,
				   !e->x.a.write, s->extents, 0);
}

void explain_predict(struct explain *e)
{
	double beyond = byte_beyond(e);

	for (int m = 0; m < e->n_ways; m++) {
		struct explain_way *w = &e->way[m];
		double slowest = 0;

		for (uint32_t i = 0; i < e->where.n_targets; i++) {
			const struct sheaf_share *s = &w->plan.shares[i];
			double there, here;

			if (!s->requests)
				continue;
			there = server_time(e, i, s);
			here = sheaf_mover_cost_at(e->c->fs, (int)e->where.targets[i], s->mover,
						   e->x.a.write, s->segments, s->bytes) +
			       (double)s->bytes * beyond;
			w->at[i].predicted_ns = there + here;
			slowest = MAX(slowest, there);
			w->all.predicted_ns += here;
		}
		w->all.predicted_ns += slowest; /* servers work in parallel, the client does not */
	}
}

/* ---- measuring ---- */

/* The counters of the connection to one server. */
struct counters {
	struct sheaf_account did;
	struct sheaf_net_counts net;
};

struct round {
	uint64_t ns;
	struct counters at[]; /* one element per object */
};

int explain_transfer(struct explain *e, bool write)
{
	const struct sheaf_access *a = &e->x.a;
	ssize_t r;

	if (a->file_type)
		r = write ? sheaf_write_typed(e->f, a->base, a->mem_type, a->mem_count, a->file_off,
					      a->file_type) :
			    sheaf_read_typed(e->f, a->base, a->mem_type, a->mem_count, a->file_off,
					     a->file_type);
	else
		r = write ? sheaf_write_list(e->f, a->mem, a->n_mem, a->ext, a->n_ext) :
			    sheaf_read_list(e->f, a->mem, a->n_mem, a->ext, a->n_ext);
	if (r >= 0 && (uint64_t)r != e->x.bytes)
		r = -EIO;
	return r < 0 ? (int)r : 0;
}

static void accounts(struct explain *e, struct counters *out)
{
	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		sheaf_account(e->c->fs, (int)e->where.targets[i], &out[i].did);
		sheaf_net_counts(e->c->fs, (int)e->where.targets[i], &out[i].net);
	}
}

/* Adds the counters of b to those of a, or subtracts them. */
static void add(struct sheaf_account *a, const struct sheaf_account *b, bool subtract)
{
	uint64_t n = subtract ? UINT64_MAX : 1; /* -1, as unsigned numbers wrap around */

	a->requests += n * b->requests;
	a->frames += n * b->frames;
	a->calls += n * b->calls;
	a->copied += n * b->copied;
	a->busy_ns += n * b->busy_ns;
	for (int k = 0; k < SHEAF_MOVERS; k++)
		a->bytes[k] += n * b->bytes[k];
}

static void add_net(struct sheaf_net_counts *a, const struct sheaf_net_counts *b, bool subtract)
{
	uint64_t n = subtract ? UINT64_MAX : 1;

	a->messages_sent += n * b->messages_sent;
	a->messages_received += n * b->messages_received;
	a->work_requests += n * b->work_requests;
	a->doorbells += n * b->doorbells;
	a->registrations += n * b->registrations;
}

static int run_round(struct explain *e, enum sheaf_mover how, struct round *out)
{
	struct counters before[SHEAF_MAX_TARGETS];
	int r;

	sheaf_set_mover(e->c->fs, how);
	accounts(e, before);
	out->ns = time_now();
	r = explain_transfer(e, e->x.a.write);
	out->ns = time_now() - out->ns;
	accounts(e, out->at);
	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		add(&out->at[i].did, &before[i].did, true);
		add_net(&out->at[i].net, &before[i].net, true);
	}
	return r;
}

static int by_time(const void *a, const void *b)
{
	const struct round *x = *(struct round *const *)a, *y = *(struct round *const *)b;

	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

/* Reports the round with the median time for this mover. */
static void settle(struct explain *e, struct explain_way *w, struct round **rounds)
{
	const struct round *m;

	qsort(rounds, e->rounds, sizeof(struct round *), by_time);
	m = rounds[e->rounds / 2];
	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		w->at[i].did = m->at[i].did;
		w->at[i].net = m->at[i].net;
		add(&w->all.did, &m->at[i].did, false);
		add_net(&w->all.net, &m->at[i].net, false);
	}
	w->all.did.busy_ns = m->ns;
}

static bool enough(unsigned rounds, uint64_t ns)
{
	return rounds >= ROUNDS_MIN ? ns > ENOUGH_NS : rounds && ns > PATIENCE_NS;
}

/* Runs all movers, round by round; the first round is a warm-up. */
static int run_rounds(struct explain *e, struct round *rounds[SHEAF_ALL_MOVERS][ROUNDS_MAX])
{
	uint64_t start = time_now();
	int r = 0;

	for (int warm = 1; !r && warm < e->n_ways + 1; warm++)
		r = run_round(e, (enum sheaf_mover)(warm % e->n_ways), rounds[0][0]);
	for (e->rounds = 0; !r && e->rounds < ROUNDS_MAX; e->rounds++) {
		if (enough(e->rounds, time_now() - start))
			break;
		for (int m = 0; !r && m < e->n_ways; m++)
			r = run_round(e, (enum sheaf_mover)m, rounds[m][e->rounds]);
	}
	sheaf_set_mover(e->c->fs, SHEAF_MOVER_AUTO);
	return r;
}

int explain_measure(struct explain *e)
{
	size_t size = sizeof(struct round) + e->where.n_targets * sizeof(struct counters);
	struct round *rounds[SHEAF_ALL_MOVERS][ROUNDS_MAX];
	char *all = calloc(SHEAF_ALL_MOVERS * ROUNDS_MAX, size);
	void *mem =
		mmap(NULL, e->x.span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (!all || mem == MAP_FAILED) {
		free(all);
		return cli_error(e->c, "out of memory");
	}
	for (int i = 0; i < SHEAF_ALL_MOVERS * ROUNDS_MAX; i++)
		rounds[i / ROUNDS_MAX][i % ROUNDS_MAX] = (struct round *)(all + (size_t)i * size);
	memset(mem, 's', e->x.span);
	explain_place(&e->x, mem);
	r = explain_transfer(e, true);
	if (!r)
		r = run_rounds(e, rounds);
	if (!r)
		r = explain_strategies(e);
	for (int m = 0; !r && m < e->n_ways; m++)
		settle(e, &e->way[m], rounds[m]);
	munmap(mem, e->x.span);
	free(all);
	return r ? cli_fail(e->c, "measuring", r) : CLI_OK;
}
