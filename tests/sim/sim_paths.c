/* Paths of several components through directories that are renamed and closed to users meanwhile,
 * for root and for other users.
 *
 * Each client has a directory that only it renames, from ways/cN_0 to ways/cN_1 and so on, or
 * whose mode only it changes, one change at a time. All clients look up ways/cN_I/d/f. The
 * states that the directory may have had during a lookup are known, so one of them must explain
 * the answer: a cached referral must not outlive the change. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define PATIENCE (400 * NSEC_PER_SEC)
#define TOP "ways"

static const struct sheaf_handle root = { 1, 1 };
static const struct sheaf_cred creds[] = { { 0 }, { .uid = 1000, .gid = 1000 } };

static void path_of(char out[48], uint32_t client, uint32_t name, const char *below)
{
	snprintf(out, 48, TOP "/c%u_%u%s", client, name, below);
}

/* ---- the judgement ---- */

/* May the directory have been in the state after step s during this lookup? */
static bool possible(const struct paths *route, uint32_t s, const struct period *look)
{
	return period_allows(&route->steps[s].when,
			     s + 1 < route->n ? &route->steps[s + 1].when : NULL, look);
}

/* One state has the name; the mode is that of the same state or a later one. */
static bool explained(const struct paths *route, const struct walker *k, uint64_t ended,
		      int64_t result)
{
	const struct period look = { k->began, ended };

	for (uint32_t s = 0; s < route->n; s++) {
		bool there = route->steps[s].name == k->name;

		if (!possible(route, s, &look))
			continue;
		if (!there && result == -ENOENT)
			return true;
		for (uint32_t u = s; there && u < route->n; u++)
			if (possible(route, u, &look) &&
			    result == (!k->user || route->steps[u].open ? 0 : -EACCES))
				return true;
	}
	return false;
}

static void looked(struct walker *k, int64_t result)
{
	struct world *w = k->a->w;

	if (result && result != -ENOENT && result != -EACCES)
		return;
	w->count->paths++;
	w->count->paths_moved += w->routes[k->of].n > 1;
	if (!explained(&w->routes[k->of], k, ++w->seq, result))
		world_fail(w, NO_FILE, "c%u as user %u: " TOP "/c%u_%u/d/f = %lld, at no instant",
			   k->a->id, creds[k->user].uid, k->of, k->name, (long long)result);
}

static void done(struct cop *c)
{
	struct walker *k = c->user;
	struct world *w = k->a->w;
	struct paths *route = &w->routes[k->a->id];
	int64_t r = c->result;

	sim_trace(&w->sim, SIM_TEST + 7 * DO_KINDS + k->kind, k->a->node->id, (uint64_t)r);
	world_note(w, NO_FILE, "c%u way %d of c%u_%u by %u = %lld (from %llu to %llu)", k->a->id,
		   k->kind, k->of, k->name, creds[k->user].uid, (long long)r,
		   (unsigned long long)k->began, (unsigned long long)w->seq + 1);
	cop_free(c);
	k->busy = false;
	k->result = r;
	if (k->kind == PATH_LOOK)
		looked(k, r);
	else if (k->kind == PATH_CHANGE && !r)
		route->steps[route->n - 1].when.ended = ++w->seq;
	else if (k->kind == PATH_CHANGE)
		route->in_doubt = true;
	if (r < 0 && r != -ENOENT && r != -EACCES && !fault_explains(k->a, k->started, r))
		world_fail(w, NO_FILE, "c%u: an operation on " TOP " (%d): %s (%lld)", k->a->id,
			   k->kind, error_text((int)r), (long long)r);
}

/* ---- operations ---- */

static struct cop *begin(struct walker *k, enum path_kind kind, uint32_t user)
{
	struct cop *c = cop_new(k->a->client, &creds[user]);

	c->done = done;
	c->user = k;
	k->busy = true;
	k->kind = kind;
	k->user = user;
	k->began = ++k->a->w->seq;
	k->started = k->a->w->sim.now;
	return c;
}

static void start_change(struct walker *k)
{
	struct world *w = k->a->w;
	struct paths *route = &w->routes[k->a->id];
	struct route_step *last = &route->steps[route->n - 1], *next = &route->steps[route->n++];
	struct cop *c = begin(k, PATH_CHANGE, 0);
	struct stat st = { 0 };

	*next = *last;
	next->when = (struct period){ k->began, 0 };
	k->of = k->a->id;
	k->name = last->name;
	if (sim_chance(&w->sim, 300000)) {
		next->open = !last->open;
		st.st_mode = next->open ? 0755 : 0700;
		client_setattr(c, route->h, SHEAF_SET_MODE, &st);
		return;
	}
	next->name++;
	path_of(k->path, k->a->id, last->name, "");
	path_of(k->path2, k->a->id, next->name, "");
	client_rename(c, root, k->path, root, k->path2, 0);
}

static void start_look(struct walker *k)
{
	struct world *w = k->a->w;
	uint32_t of = (uint32_t)sim_below(&w->sim, w->n_actors), back;
	const struct paths *route = &w->routes[of];
	struct cop *c = begin(k, PATH_LOOK, (uint32_t)sim_below(&w->sim, 2));

	back = (uint32_t)sim_below(&w->sim, 2);
	k->of = of;
	k->name = route->steps[route->n - 1].name;
	k->name -= MIN(k->name, back);
	path_of(k->path, of, k->name, "/d/f");
	client_stat(c, root, k->path);
}

static void think(void *arg)
{
	struct walker *k = arg;
	struct world *w = k->a->w;
	const struct paths *route = &w->routes[k->a->id];

	if (w->failed || !k->left)
		return;
	sim_after(&w->sim, sim_between(&w->sim, 1, 60 * NSEC_PER_MSEC), think, k);
	if (k->busy || !k->a->client || k->a->rest_until > w->sim.now)
		return;
	k->left--;
	if (!route->in_doubt && route->n < PATH_STEPS && sim_chance(&w->sim, 150000))
		start_change(k);
	else
		start_look(k);
}

void paths_start(struct actor *a)
{
	if (!a->w->routes[0].n)
		return;
	a->walker.left = (uint32_t)sim_between(&a->w->sim, 10, 80);
	think(&a->walker);
}

bool paths_idle(const struct actor *a)
{
	return !a->walker.busy && !a->walker.left;
}

void paths_abandon(struct actor *a)
{
	a->w->routes[a->id].in_doubt |= a->walker.busy && a->walker.kind == PATH_CHANGE;
	a->walker.busy = false;
}

/* ---- setup and cleanup ---- */

static bool ended(void *arg)
{
	const struct walker *k = arg;

	return !k->busy || k->a->w->failed;
}

static int64_t wait_for(struct walker *k)
{
	if (!sim_run(&k->a->w->sim, ended, k, PATIENCE))
		world_fail(k->a->w, NO_FILE, "an operation on " TOP " does not end");
	return k->a->w->failed ? -EIO : k->result;
}

static void make_dir(struct walker *k, const char *path)
{
	client_mkdir(begin(k, PATH_OTHER, 0), root, path, 0755);
	if (wait_for(k))
		world_fail(k->a->w, NO_FILE, "mkdir %s: %lld", path, (long long)k->result);
}

struct found {
	bool ended;
	struct sheaf_handle h;
};

static void was_found(struct cop *c)
{
	struct found *f = c->user;

	f->h = (struct sheaf_handle){ c->attr.ino, c->attr.gen };
	f->ended = true;
	cop_free(c);
}

static bool has_found(void *arg)
{
	return ((struct found *)arg)->ended;
}

static struct sheaf_handle find_handle(struct world *w, const char *path)
{
	struct cop *c = cop_new(caretaker(w)->client, &creds[0]);
	struct found f = { 0 };

	c->done = was_found;
	c->user = &f;
	client_lookup(c, root, path);
	if (!sim_run(&w->sim, has_found, &f, PATIENCE))
		abort();
	return f.h;
}

static void make_route(struct world *w, uint32_t client)
{
	struct walker *k = &caretaker(w)->walker;
	struct paths *route = &w->routes[client];
	char path[48];

	path_of(path, client, 0, "");
	make_dir(k, path);
	path_of(path, client, 0, "/d");
	if (!w->failed)
		make_dir(k, path);
	path_of(path, client, 0, "/d/f");
	if (w->failed)
		return;
	client_mknod(begin(k, PATH_OTHER, 0), root, path, S_IFIFO | 0644, 0);
	if (wait_for(k))
		world_fail(w, NO_FILE, "mknod %s: %lld", path, (long long)k->result);
	path_of(path, client, 0, "");
	route->h = find_handle(w, path);
	route->n = 1;
	route->steps[0] = (struct route_step){ .when = { 0, 1 }, .open = true };
}

void paths_setup(struct world *w)
{
	make_dir(&caretaker(w)->walker, TOP);
	for (uint32_t i = 0; i < w->n_actors && !w->failed; i++)
		make_route(w, i);
}

/* The directory is at its last name, or at the one before if the last change is in doubt. */
static void remove_route(struct world *w, uint32_t client)
{
	struct walker *k = &caretaker(w)->walker;
	const struct paths *route = &w->routes[client];
	uint32_t name = route->steps[route->n - 1].name;
	char path[48];

	path_of(path, client, name, "/d/f");
	client_unlink(begin(k, PATH_OTHER, 0), root, path);
	if (wait_for(k) == -ENOENT && route->in_doubt && name) {
		path_of(path, client, --name, "/d/f");
		client_unlink(begin(k, PATH_OTHER, 0), root, path);
		wait_for(k);
	}
	path_of(path, client, name, "/d");
	client_rmdir(begin(k, PATH_OTHER, 0), root, path);
	wait_for(k);
	path_of(path, client, name, "");
	client_rmdir(begin(k, PATH_OTHER, 0), root, path);
	if (wait_for(k))
		world_fail(w, NO_FILE, "rmdir %s: %lld", path, (long long)k->result);
}

void paths_cleanup(struct world *w)
{
	struct walker *k = &caretaker(w)->walker;

	if (!w->routes[0].n)
		return;
	for (uint32_t i = 0; i < w->n_actors && !w->failed; i++)
		remove_route(w, i);
	if (w->failed)
		return;
	client_rmdir(begin(k, PATH_OTHER, 0), root, TOP);
	if (wait_for(k))
		world_fail(w, NO_FILE, "rmdir " TOP ": %lld", (long long)k->result);
}
