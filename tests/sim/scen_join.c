/* Directed scenarios: the storage of a joining target. */
#include <stdio.h>

#include "sim_priv.h"
#include "sim_scenario.h"

#define FORMAT_OPS 24 /* file operations of a format, roughly */
#define TRIES 100

/* Formats as `sheaf add-server` does, until it succeeds. Returns false if a format was
 * interrupted. */
static bool format(struct world *w, struct target *t, bool kill)
{
	char err[512];
	int r = -EIO;

	for (int i = 0; i < TRIES; i++) {
		if (kill && i == 0)
			t->node->crash_in_ops = 1 + (uint32_t)sim_below(&w->sim, FORMAT_OPS);
		r = server_format_again(&t->node->env, &w->conf, t->id, err, sizeof(err));
		t->node->crash_in_ops = 0;
		if (!r && t->node->up)
			return i == 0;
		if (!t->node->up)
			sim_node_restart(t->node);
	}
	world_fail(w, 0, "the target is not formatted: %d", r);
	return true;
}

static void just_killed(void *arg, bool power)
{
	struct target *t = arg;

	(void)power;
	sim_node_kill(t->node);
}

static void just_crashed(void *arg, bool power)
{
	struct target *t = arg;

	(void)power;
	sim_node_crash(t->node);
}

/* A format was interrupted and its repetition succeeded: a power loss must not take any of it. */
static void format_again(struct world *w, void (*crashed)(void *arg, bool power))
{
	struct target *t = &w->targets[1];

	w->conf.n_targets = 2;
	target_make(w, 1);
	t->node->crashed = crashed;
	w->sim.faults.sync_eio = crashed ? 0 : 300000;
	if (!format(w, t, crashed))
		scene_met(w);
	w->sim.faults.sync_eio = 0;
	t->node->crashed = target_crashed;
	sim_node_crash(t->node);
	scene_up(w, 1);
}

static void format_sync_fails(struct world *w)
{
	format_again(w, NULL);
}

static void format_killed(struct world *w)
{
	format_again(w, just_killed);
}

static void format_loses_power(struct world *w)
{
	format_again(w, just_crashed);
}

const struct scenario scenes_join[] = {
	{ "format-loses-power", format_loses_power, 1, 1, 1, false },
	{ "format-sync-fails", format_sync_fails, 1, 1, 1, false },
	{ "format-killed", format_killed, 1, 1, 1, false },
	{ 0 },
};
