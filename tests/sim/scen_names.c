/* Scenarios about names: changes over two servers that meet other changes of the same names, and requests that outlive
 * their client. */
#include <stdio.h>

#include "sim_scenario.h"

/* A directory below `parent` that a target keeps, and its path from the root. */
static struct sheaf_handle below(struct world *w, const char *parent, uint32_t target,
				 char path[32])
{
	struct sheaf_handle h = { 0 };

	for (int i = 0; i < 100 && !w->failed; i++) {
		snprintf(path, 32, "%.15s/e%u-%d", parent, target, i);
		h = scene_mkdir(w, 0, path);
		if (!w->failed && client_keeper(w->actors[0].client, h.ino) == target)
			return h;
	}
	world_fail(w, 0, "no directory of target %u below %s", target, parent);
	return h;
}

/* ---- the judge ---- */

/* A client dies while a server waits for another one with its request: while the server has the request, whoever asks for
 * old requests sees it, also when the server's loop has nothing to do. */
static void old_request_seen(struct world *w)
{
	char a[16], path[32];
	struct sheaf_handle da = scene_dir_at(w, 0, 0, a);
	const struct target *t = &w->targets[0];
	struct cop *c;
	uint64_t since;

	below(w, a, 1, path);
	scene_hold_calls(w, 0, 1, true);
	c = scene_call(w, 0);
	client_rmdir(c, da, path + strlen(a) + 1);
	scene_check(w, scene_reaches(w, 0, "rmdir", "answer"), "it is not split");
	since = w->sim.now;
	for (int i = 0; i < 100 && !w->failed; i++) {
		scene_pass(w, 20 * NSEC_PER_MSEC);
		if (w->sim.now > since + 50 * NSEC_PER_MSEC)
			scene_check(w, peek_serves(t->server, w->sim.now - since - NSEC_PER_MSEC),
				    "a request of %.3f s is not seen",
				    (double)(w->sim.now - since) / 1e9);
	}
	scene_met(w);
	scene_hold_calls(w, 0, 1, false);
	scene_check(w, !scene_end(w, c), "rmdir fails");
}

const struct scenario scenes_names[] = {
	{ "old-request-seen", old_request_seen, 2, 2, 1, false },
	{ 0 },
};
