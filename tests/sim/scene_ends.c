/* Scenarios: what must come to an end, and what must be gone then. */
#include <fcntl.h>
#include <stdio.h>

#include "sim_scenario.h"

/* ---- removal ---- */

struct failures {
	const struct sim *s;
	uint64_t n;
};

static bool have_failed(void *arg)
{
	const struct failures *f = arg;

	return f->s->injected[SIM_SYNC_EIO] >= f->n;
}

static void write_synced(struct world *w, const char *path)
{
	static char byte = 1;
	static const struct extent at = { 0, 1 };
	struct iovec mem = { &byte, 1 };
	struct cfile *f = scene_open(w, 0, path, O_CREAT | O_RDWR);
	struct cop *c = w->failed ? NULL : scene_call(w, 0);
	int64_t r;

	if (!c)
		return;
	client_write(c, f, &mem, 1, &at, 1);
	r = scene_end(w, c);
	scene_check(w, r == 1, "write: %d", (int)r);
	if (w->failed)
		return;
	c = scene_call(w, 0);
	client_fsync(c, f);
	r = scene_end(w, c);
	scene_check(w, !r, "fsync: %d", (int)r);
	scene_close(w, 0, f);
}

/* The sync behind the removal of an object fails, and so does that of the second try, which finds no object any more.
 * Then the power goes: the object may be there again, and must still be known. */
static void removal_not_synced(struct world *w)
{
	struct sim *s = &w->sim;
	struct failures f = { s, s->injected[SIM_SYNC_EIO] + 1 };
	struct cop *c;
	uint64_t first;
	int64_t r;

	write_synced(w, "f");
	s->faults.sync_eio = 1000000;
	c = scene_call(w, 0);
	client_unlink(c, scene_root, "f");
	r = scene_end(w, c);
	scene_check(w, !r, "unlink: %d", (int)r);
	scene_until(w, have_failed, &f, "no removal is synced");
	first = s->now;
	f.n++;
	scene_until(w, have_failed, &f, "a removal that failed is not repeated");
	scene_check(w, s->now - first < 3 * NSEC_PER_SEC / 2, "the second try comes after %llu ms",
		    (unsigned long long)((s->now - first) / NSEC_PER_MSEC));
	s->faults.sync_eio = 0;
	scene_met(w);
	scene_pass(w, 200 * NSEC_PER_MSEC);
	scene_down(w, 0, true);
	scene_up(w, 0);
}

const struct scenario scenes_ends[] = {
	{ "removal-not-synced", removal_not_synced, 1, 1, 1, false },
	{ 0 },
};
