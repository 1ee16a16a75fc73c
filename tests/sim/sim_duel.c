/* Clients that write the same pieces of one file at the same time, and read them.
 *
 * All pieces are in one window of one object, so a write is one thing: a read sees one write, whole, and not one that
 * was overwritten before the read began. Each write fills everything with a value of its own. A crash may leave half
 * of a write that nobody acknowledged, so from then on nothing is checked; so does a write that failed. */
#include <fcntl.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define PATIENCE (400 * NSEC_PER_SEC)
#define PATH "shared/duel"

static const struct sheaf_cred root_cred = { 0 };
static const struct sheaf_handle root = { 1, 1 };

/* ---- the judgement ---- */

static void judge_read(struct duelist *d)
{
	struct world *w = d->a->w;
	struct duel *all = &w->duel;
	uint8_t v = d->mem[0];

	for (size_t i = 0; i < all->total; i++)
		if (d->mem[i] != v || v > all->n) {
			world_fail(w, NO_FILE, "a read of c%u sees write %u beside write %u of %u",
				   d->a->id, v, d->mem[i], all->n);
			return;
		}
	for (uint32_t i = 1; i <= all->n; i++)
		if (all->writes[i].ended && all->writes[i].ended < d->began &&
		    (!v || all->writes[v].ended) && all->writes[i].began > all->writes[v].ended)
			world_fail(w, NO_FILE,
				   "a read of c%u sees write %u, and write %u came after it",
				   d->a->id, v, i);
	w->count->duels++;
}

static void done(struct cop *c)
{
	struct duelist *d = c->user;
	struct world *w = d->a->w;
	struct duel *all = &w->duel;
	bool clean = !w->n_unclean && !all->spoilt && !w->enabled[FAULT_DISK];

	sim_trace(&w->sim, SIM_TEST + 5 * DO_KINDS, d->a->node->id, (uint64_t)c->result);
	if (c->result < 0)
		all->spoilt |= d->value != 0;
	else if (c->file && !d->file)
		d->file = c->file;
	else if (d->value)
		all->writes[d->value].ended = ++w->seq;
	else if (c->result == (int64_t)all->total && clean)
		judge_read(d);
	cop_free(c);
	d->busy = false;
}

/* ---- what they do ---- */

static struct cop *begin(struct duelist *d)
{
	struct cop *c = cop_new(d->a->client, &root_cred);

	c->done = done;
	c->user = d;
	d->busy = true;
	d->value = 0;
	d->began = ++d->a->w->seq;
	return c;
}

static void go(struct duelist *d)
{
	struct duel *all = &d->a->w->duel;
	struct cop *c = begin(d);

	if (!d->file) {
		client_open(c, root, PATH, O_RDWR, 0, NULL);
		return;
	}
	d->iov = (struct iovec){ d->mem, all->total };
	if (all->n == DUEL_WRITES || sim_chance(&d->a->w->sim, 400000)) {
		client_read(c, d->file, &d->iov, 1, all->ext, all->n_ext);
		return;
	}
	d->value = (uint8_t)++all->n;
	all->writes[d->value].began = d->began;
	memset(d->mem, d->value, all->total);
	client_write(c, d->file, &d->iov, 1, all->ext, all->n_ext);
}

static void think(void *arg)
{
	struct duelist *d = arg;
	struct actor *a = d->a;
	struct world *w = a->w;

	if (w->failed || !d->left)
		return;
	sim_after(&w->sim, sim_between(&w->sim, 1, 1500000), think, d);
	if (d->busy || !a->client || a->rest_until > w->sim.now)
		return;
	d->left--;
	go(d);
}

bool duel_idle(const struct actor *a)
{
	return !a->duelist.busy && !a->duelist.left;
}

void duel_abandon(struct actor *a)
{
	a->w->duel.spoilt |= a->duelist.busy;
	a->duelist.busy = false;
	a->duelist.file = NULL;
}

void duel_start(struct actor *a)
{
	if (!a->w->duel.n_ext)
		return;
	a->duelist.left = (uint32_t)sim_between(&a->w->sim, 5, 40);
	think(&a->duelist);
}

/* ---- before and after ---- */

static bool ended(void *arg)
{
	const struct duelist *d = arg;

	return !d->busy || d->a->w->failed;
}

static bool wait_for(struct duelist *d)
{
	if (!sim_run(&d->a->w->sim, ended, d, PATIENCE))
		world_fail(d->a->w, NO_FILE, "an operation on " PATH " does not end");
	return !d->a->w->failed;
}

static void close_file(struct duelist *d)
{
	struct cop *c;

	if (!d->file)
		return;
	c = begin(d);
	client_close(c, d->file);
	wait_for(d);
	d->file = NULL;
}

void duel_setup(struct world *w)
{
	struct duel *all = &w->duel;
	struct duelist *d = &caretaker(w)->duelist;
	uint64_t at = 0;

	client_open(begin(d), root, PATH, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
	if (!wait_for(d))
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
	client_unlink(begin(d), root, PATH);
	wait_for(d);
}
