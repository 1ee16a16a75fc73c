/* Clients that write, read, truncate and sync the same pieces of one file at the same time, several
 * operations at a time through one open file.
 *
 * All pieces are in one window of one object, so a write is atomic: a read sees one write,
 * complete up to where a truncate cut it off and zeros after that, and not one that was
 * overwritten or cut off before the read began. Each write fills all pieces with its own value.
 * A crash may leave half of an unacknowledged write and take what was not synced: reads are
 * checked again once a complete write has succeeded since. On bad and on full disks a write may
 * end half-way at any time, so nothing is checked there. */
#include <fcntl.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define PATIENCE (400 * NSEC_PER_SEC)
#define PATH "shared/duel"

static const struct sheaf_cred root_cred = { 0 };
static const struct sheaf_handle root = { 1, 1 };

/* ---- the judgement ---- */

/* Did change x end before `seq` and begin after change v had ended? */
static bool is_between(const struct duel_change *x, const struct duel_change *v, uint64_t seq)
{
	return x->ended && x->ended < seq && (!v || (v->ended && x->began > v->ended));
}

/* May a truncate have come after v (NULL: after all writes before `seq`) and left `lo` to `hi`
 * bytes? */
static bool is_cut_at(const struct duel *all, const struct duel_change *v, uint64_t lo, uint64_t hi,
		      uint64_t seq)
{
	for (uint32_t i = 1; i <= all->n_cuts; i++) {
		const struct duel_change *cut = &all->cuts[i];
		bool before = v && cut->ended && cut->ended < v->began;

		for (uint32_t k = 1; !v && !before && k <= all->n; k++)
			before = cut->ended && is_between(&all->writes[k], cut, seq);
		if (cut->keep >= lo && cut->keep <= hi && !before)
			return true;
	}
	return false;
}

static bool any_write_before(const struct duel *all, uint64_t seq)
{
	for (uint32_t i = 1; i <= all->n; i++)
		if (is_between(&all->writes[i], NULL, seq))
			return true;
	return false;
}

/* May the file have been this short at an instant of the read? Then the read may have ended
 * there: sizes show parts of writes. */
static bool is_short(const struct duel *all, uint64_t count, uint64_t began)
{
	return !any_write_before(all, began) || is_cut_at(all, NULL, 0, count, began);
}

/* A read of `count` bytes saw write v up to byte `keep`. */
static const char *judge_seen(const struct duel *all, uint8_t v, uint64_t keep, uint64_t count,
			      uint64_t began)
{
	const struct duel_change *seen = &all->writes[v];
	bool ends_early = keep == count && is_short(all, count, began);

	if (keep < all->total && !ends_early && !is_cut_at(all, seen, keep, keep, began))
		return "a part of a write";
	for (uint32_t i = 1; i <= all->n; i++)
		if (is_between(&all->writes[i], seen, began))
			return "a write that was overwritten before";
	for (uint32_t i = 1; i <= all->n_cuts; i++)
		if (all->cuts[i].keep < keep && is_between(&all->cuts[i], seen, began))
			return "what was cut off before";
	return NULL;
}

static void judge_read(struct duel_lane *l, uint64_t count)
{
	struct actor *a = l->d->a;
	struct world *w = a->w;
	struct duel *all = &w->duel;
	const char *wrong = NULL;
	uint8_t v = count ? l->mem[0] : 0;
	uint64_t keep = 0, i;

	while (v && keep < count && l->mem[keep] == v)
		keep++;
	for (i = keep; i < count && !l->mem[i]; i++)
		;
	if (v > all->n || i < count)
		wrong = "two writes";
	else if (v)
		wrong = judge_seen(all, v, keep, count, l->began);
	else if (!is_short(all, 0, l->began))
		wrong = "nothing of what was written";
	if (wrong)
		world_fail(w, NO_FILE,
			   "a read of c%u sees %s: %llu bytes, %llu of them of write %u", a->id,
			   wrong, (unsigned long long)count, (unsigned long long)keep, v);
	w->count->duels++;
	w->count->duel_cut_reads += v && keep < all->total;
}

/* Do faults explain this error? */
static bool is_allowed(const struct duel_lane *l, int64_t e)
{
	const struct actor *a = l->d->a;
	const struct world *w = a->w;
	uint64_t took = w->sim.now - l->started;

	if (is_network_error(e))
		return took >= (w->conf.timeout_s - 1) * NSEC_PER_SEC;
	if (e == -ESTALE || e == -EIO)
		if (a->isolations != l->isolations)
			return true;
	if (e == -EIO)
		return w->enabled[FAULT_DISK] || w->enabled[FAULT_META] || w->n_unclean;
	return e == -ENOSPC && (w->enabled[FAULT_FULL] || w->enabled[FAULT_META]);
}

/* Nothing has crashed since the lane's operation began, nor since a complete write before it. */
static bool is_clean(const struct duel_lane *l)
{
	const struct world *w = l->d->a->w;

	return l->unclean == w->n_unclean && (!w->n_unclean || w->duel.healed == w->n_unclean) &&
	       !w->enabled[FAULT_DISK] && !w->enabled[FAULT_FULL];
}

static void succeeded(struct duel_lane *l, int64_t result)
{
	struct world *w = l->d->a->w;
	struct duel *all = &w->duel;

	switch (l->kind) {
	case DUEL_WRITE:
		all->writes[l->value].ended = ++w->seq;
		if (l->unclean == w->n_unclean)
			all->healed = w->n_unclean;
		break;
	case DUEL_CUT:
		all->cuts[l->value].ended = ++w->seq;
		break;
	case DUEL_READ:
		if (is_clean(l) && l->healed)
			judge_read(l, (uint64_t)result);
		break;
	default:
		break;
	}
}

static void done(struct cop *c)
{
	struct duel_lane *l = c->user;
	struct world *w = l->d->a->w;

	sim_trace(&w->sim, SIM_TEST + 5 * DO_KINDS, l->d->a->node->id, (uint64_t)c->result);
	world_note(w, NO_FILE, "c%u duel %d %u/%llu = %lld (from %llu to %llu)", l->d->a->id,
		   l->kind, l->value,
		   (unsigned long long)(l->kind == DUEL_CUT ? w->duel.cuts[l->value].keep : 0),
		   (long long)c->result, (unsigned long long)l->began,
		   (unsigned long long)w->seq + 1);
	l->busy = false;
	if (l->kind == DUEL_OPEN && c->result >= 0)
		l->d->file = c->file;
	else if (c->result >= 0)
		succeeded(l, c->result);
	else if (!is_allowed(l, c->result))
		world_fail(w, NO_FILE, "c%u: an operation on " PATH " (%d): %s (%lld)", l->d->a->id,
			   l->kind, error_text((int)c->result), (long long)c->result);
	cop_free(c);
}

/* ---- operations ---- */

static struct cop *begin(struct duel_lane *l, enum duel_kind kind)
{
	struct actor *a = l->d->a;
	struct world *w = a->w;
	struct cop *c = cop_new(a->client, &root_cred);

	c->done = done;
	c->user = l;
	l->busy = true;
	l->kind = kind;
	l->value = 0;
	l->began = ++w->seq;
	l->started = w->sim.now;
	l->unclean = w->n_unclean;
	l->healed = !w->n_unclean || w->duel.healed == w->n_unclean;
	if (kind == DUEL_OPEN)
		l->d->isolations = a->isolations;
	l->isolations = l->d->isolations;
	return c;
}

static void start_cut(struct duel_lane *l)
{
	struct world *w = l->d->a->w;
	struct duel *all = &w->duel;
	struct cop *c = begin(l, DUEL_CUT);
	uint64_t end = all->ext[all->n_ext - 1].offset + all->ext[all->n_ext - 1].length;
	uint64_t to = sim_chance(&w->sim, 400000) ? 0 : sim_below(&w->sim, end);
	struct duel_change *cut = &all->cuts[++all->n_cuts];

	l->value = (uint8_t)all->n_cuts;
	*cut = (struct duel_change){ .began = l->began };
	for (size_t i = 0; i < all->n_ext; i++)
		if (all->ext[i].offset < to)
			cut->keep += MIN(all->ext[i].length, to - all->ext[i].offset);
	if (sim_chance(&w->sim, 500000))
		client_ftruncate(c, l->d->file, to);
	else
		client_truncate(c, cfile_handle(l->d->file), to);
}

static void start_write(struct duel_lane *l)
{
	struct duel *all = &l->d->a->w->duel;
	struct cop *c = begin(l, DUEL_WRITE);

	l->value = (uint8_t)++all->n;
	all->writes[l->value] = (struct duel_change){ .began = l->began, .keep = all->total };
	memset(l->mem, l->value, all->total);
	client_write(c, l->d->file, &l->iov, 1, all->ext, all->n_ext);
}

static uint32_t n_busy(const struct duelist *d)
{
	uint32_t n = 0;

	for (int i = 0; i < DUEL_LANES; i++)
		n += d->lanes[i].busy;
	return n;
}

static void go(struct duel_lane *l)
{
	struct world *w = l->d->a->w;
	struct duel *all = &w->duel;
	uint64_t what = sim_below(&w->sim, 100);

	if (!l->d->file) {
		if (n_busy(l->d) == 0)
			client_open(begin(l, DUEL_OPEN), root, PATH, O_RDWR, 0, NULL);
		return;
	}
	w->count->duel_overlaps += n_busy(l->d) > 0;
	l->iov = (struct iovec){ l->mem, all->total };
	if (what < 8 && all->n_cuts < DUEL_WRITES)
		start_cut(l);
	else if (what < 12)
		client_fsync(begin(l, DUEL_SYNC), l->d->file);
	else if (what < 50 || all->n == DUEL_WRITES)
		client_read(begin(l, DUEL_READ), l->d->file, &l->iov, 1, all->ext, all->n_ext);
	else
		start_write(l);
}

static void think(void *arg)
{
	struct duelist *d = arg;
	struct actor *a = d->a;
	struct world *w = a->w;
	struct duel_lane *l = NULL;

	if (w->failed || !d->left)
		return;
	sim_after(&w->sim, sim_between(&w->sim, 1, 1000000), think, d);
	for (int i = 0; i < DUEL_LANES && !l; i++)
		if (!d->lanes[i].busy)
			l = &d->lanes[i];
	if (!l || !a->client || a->rest_until > w->sim.now)
		return;
	d->left--;
	go(l);
}

bool duel_idle(const struct actor *a)
{
	return !n_busy(&a->duelist) && !a->duelist.left;
}

/* The operations under way may still take effect, or never. */
void duel_abandon(struct actor *a)
{
	for (int i = 0; i < DUEL_LANES; i++)
		a->duelist.lanes[i].busy = false;
	a->duelist.file = NULL;
}

void duel_init(struct actor *a)
{
	a->duelist.a = a;
	for (int i = 0; i < DUEL_LANES; i++)
		a->duelist.lanes[i].d = &a->duelist;
}

void duel_start(struct actor *a)
{
	if (!a->w->duel.n_ext)
		return;
	a->duelist.left = (uint32_t)sim_between(&a->w->sim, 5, 60);
	think(&a->duelist);
}

/* ---- setup and cleanup ---- */

static bool ended(void *arg)
{
	const struct duel_lane *l = arg;

	return !l->busy || l->d->a->w->failed;
}

static bool wait_for(struct duel_lane *l)
{
	if (!sim_run(&l->d->a->w->sim, ended, l, PATIENCE))
		world_fail(l->d->a->w, NO_FILE, "an operation on " PATH " does not end");
	return !l->d->a->w->failed;
}

static void close_file(struct duelist *d)
{
	struct duel_lane *l = &d->lanes[0];

	if (!d->file)
		return;
	client_close(begin(l, DUEL_CLOSE), d->file);
	wait_for(l);
	d->file = NULL;
}

void duel_setup(struct world *w)
{
	struct duel *all = &w->duel;
	struct duelist *d = &caretaker(w)->duelist;
	uint64_t at = 0;

	client_open(begin(&d->lanes[0], DUEL_OPEN), root, PATH, O_RDWR | O_CREAT | O_EXCL, 0600,
		    NULL);
	if (!wait_for(&d->lanes[0]))
		return;
	close_file(d);
	all->n_ext = sim_between(&w->sim, 2, MAX_EXT);
	for (size_t i = 0; i < all->n_ext; i++) {
		uint64_t skip = sim_below(&w->sim, 100), len = sim_between(&w->sim, 1, 200);

		all->ext[i] = (struct extent){ at + skip, len };
		at += skip + len;
		all->total += len;
	}
}

void duel_cleanup(struct world *w)
{
	struct duelist *d = &caretaker(w)->duelist;

	if (!w->duel.n_ext)
		return;
	for (uint32_t i = 0; i < w->n_actors && !w->failed; i++)
		close_file(&w->actors[i].duelist);
	if (w->failed)
		return;
	client_unlink(begin(&d->lanes[0], DUEL_CLOSE), root, PATH);
	wait_for(&d->lanes[0]);
}
