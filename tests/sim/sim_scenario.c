/* The harness of directed scenarios (sim_scenario.h), and the simplest of them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_scenario.h"

#define PATIENCE (600 * NSEC_PER_SEC)
#define REACH_NS (10 * NSEC_PER_SEC)
#define PAGE 100 /* names read from a directory at a time */

static const struct scenario *const tables[] = {
	scenes_basic,  scenes_names, scenes_data,    scenes_ends,  scenes_rename, scenes_host,
	scenes_acl,    scenes_join,  scenes_sieve,   scenes_links, scenes_shares, scenes_hostile,
	scenes_guests, scenes_bank,  scenes_gateway, scenes_nfs
};

const struct sheaf_handle scene_root = { 1, 1 };
static const struct sheaf_cred root_cred = { 0 };

void scene_met(struct world *w)
{
	w->met = true;
}

/* ---- calls ---- */

static void ended(struct cop *c)
{
	(void)c; /* the caller polls c->finished */
}

struct cop *scene_call(struct world *w, uint32_t client)
{
	struct cop *c = cop_new(w->actors[client].client, &root_cred);

	c->done = ended;
	return c;
}

static bool has_ended(void *arg)
{
	return ((const struct cop *)arg)->finished;
}

int64_t scene_wait(struct world *w, struct cop *c)
{
	if (w->failed || !scene_until(w, has_ended, c, "a call does not end"))
		return -EIO;
	return c->result;
}

int64_t scene_end(struct world *w, struct cop *c)
{
	int64_t r = scene_wait(w, c);

	if (c->finished)
		cop_free(c);
	return r;
}

void scene_cards(struct world *w)
{
	w->has_cards = true;
	sim_fabric_choose(&w->sim, false);
	for (uint32_t i = 0; i < w->sim.n_nodes; i++)
		sim_fabric_add(w->sim.nodes[i]);
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		net_open_card(peek_net(w->targets[i].server));
}

struct sheaf_handle scene_mkdir(struct world *w, uint32_t client, const char *path)
{
	struct cop *c = scene_call(w, client);
	struct sheaf_handle h = { 0 };
	int64_t r;

	client_mkdir(c, scene_root, path, 0755);
	r = scene_wait(w, c);
	if (!r)
		h = (struct sheaf_handle){ c->res.made.at.ino, c->res.made.at.gen };
	scene_check(w, !r, "mkdir %s: %d", path, (int)r);
	scene_end(w, c);
	return h;
}

int64_t scene_lookup(struct world *w, uint32_t client, const char *path, struct sheaf_handle *out)
{
	struct cop *c = scene_call(w, client);
	int64_t r;

	client_lookup(c, scene_root, path);
	r = scene_wait(w, c);
	if (!r && out)
		*out = (struct sheaf_handle){ c->attr.ino, c->attr.gen };
	scene_end(w, c);
	return r;
}

struct cfile *scene_open(struct world *w, uint32_t client, const char *path, int flags)
{
	struct cop *c = scene_call(w, client);
	struct cfile *f;
	int64_t r;

	client_open(c, scene_root, path, flags, 0644, NULL);
	r = scene_wait(w, c);
	f = r ? NULL : c->file;
	scene_check(w, !r, "open %s: %d", path, (int)r);
	scene_end(w, c);
	return f;
}

int64_t scene_close(struct world *w, uint32_t client, struct cfile *f)
{
	struct cop *c = scene_call(w, client);

	client_close(c, f);
	return scene_end(w, c);
}

struct sheaf_handle scene_dir_at(struct world *w, uint32_t client, uint32_t target, char name[16])
{
	struct sheaf_handle h = { 0 };

	for (int i = 0; i < 100 && !w->failed; i++) {
		snprintf(name, 16, "d%u-%d", target, i);
		h = scene_mkdir(w, client, name);
		if (!w->failed && client_meta_of(w->actors[client].client, h.ino) == target)
			return h;
	}
	world_fail(w, 0, "no directory of target %u", target);
	return h;
}

/* ---- time ---- */

struct wait {
	struct world *w;
	bool (*so)(void *arg);
	void *arg;
};

static bool waited(void *arg)
{
	const struct wait *x = arg;

	return x->w->failed || x->so(x->arg);
}

bool scene_until(struct world *w, bool (*so)(void *arg), void *arg, const char *what)
{
	struct wait x = { w, so, arg };

	if (!w->failed && !sim_run(&w->sim, waited, &x, PATIENCE)) {
		world_fail(w, 0, "%s", what);
		world_requests(w);
	}
	return !w->failed;
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

void scene_pass(struct world *w, uint64_t ns)
{
	struct wait x = { w, never, NULL };

	sim_run(&w->sim, waited, &x, ns);
}

struct reach {
	const struct target *t;
	const char *name, *state;
};

static bool reached(void *arg)
{
	const struct reach *r = arg;

	return r->t->server && peek_state(r->t->server, r->name, r->state);
}

bool scene_reaches(struct world *w, uint32_t target, const char *name, const char *state)
{
	struct reach r = { &w->targets[target], name, state };
	struct wait x = { w, reached, &r };

	return sim_run(&w->sim, waited, &x, REACH_NS) && !w->failed;
}

/* ---- faults ---- */

void scene_hold(struct world *w, struct sim_node *from, struct sim_node *to, bool on)
{
	world_note(w, 0, "%s %s %s", to->name, on ? "does not hear" : "hears", from->name);
	sim_one_way(&w->sim, from, to, on);
	w->heal_at[from->id][to->id] = on ? UINT64_MAX : 0; /* the hub loses messages until then */
}

void scene_hold_calls(struct world *w, uint32_t from, uint32_t to, bool on)
{
	world_note(w, 0, "calls of t%u to t%u are %s", from, to, on ? "held" : "passed on");
	sim_hold_calls(&w->sim, w->targets[from].node, w->targets[to].node, on);
}

void scene_apart(struct world *w, struct sim_node *a, struct sim_node *b, bool on)
{
	scene_hold(w, a, b, on);
	scene_hold(w, b, a, on);
}

void scene_cut(struct world *w, struct sim_node *a, struct sim_node *b)
{
	world_note(w, 0, "%s and %s lose their links", a->name, b->name);
	sim_cut(&w->sim, a, b);
}

void scene_down(struct world *w, uint32_t target, bool power)
{
	target_down(&w->targets[target], power);
}

void scene_up(struct world *w, uint32_t target)
{
	target_restart(&w->targets[target]);
}

void scene_die(struct world *w, uint32_t client)
{
	actor_die(&w->actors[client]);
}

void scene_revive(struct world *w, uint32_t client)
{
	actor_revive(&w->actors[client]);
}

/* ---- one run ---- */

/* Removes everything below a directory, as the caretaker. */
static void sweep(struct world *w, struct sheaf_handle dir, int depth)
{
	struct cop *list = scene_call(w, w->n_actors);
	int64_t r;

	client_readdir(list, dir, 0, PAGE, false);
	r = scene_wait(w, list);
	scene_check(w, !r, "a directory cannot be read: %d", (int)r);
	for (uint32_t i = 0; !w->failed && i < list->res.readdir.n_entries; i++) {
		const struct wire_dir_entry *e = &list->res.readdir.entries[i];
		struct cop *c = scene_call(w, w->n_actors);
		char name[256];

		snprintf(name, sizeof(name), "%.*s", (int)e->name.len, (const char *)e->name.p);
		if (e->type == S_IFDIR && depth < 10)
			sweep(w, (struct sheaf_handle){ e->h.ino, e->h.gen }, depth + 1);
		if (e->type == S_IFDIR)
			client_rmdir(c, dir, name);
		else
			client_unlink(c, dir, name);
		r = scene_end(w, c);
		scene_check(w, !r, "%s cannot be removed: %d", name, (int)r);
	}
	if (list->finished)
		cop_free(list);
}

void scene_sweep(struct world *w, struct sheaf_handle dir)
{
	sweep(w, dir, 0);
}

/* Everything starts again, and gets time to learn what it missed. */
static void heal(struct world *w)
{
	struct sim *s = &w->sim;

	for (uint32_t i = 0; i < s->n_nodes; i++)
		for (uint32_t k = 0; k < s->n_nodes; k++) {
			if (s->apart[i][k])
				scene_hold(w, s->nodes[i], s->nodes[k], false);
			s->calls_held[i][k] = false;
		}
	faults_heal(w);
	scene_pass(w, 5 * NSEC_PER_SEC);
}

struct performance {
	const struct scenario *sc;
	bool hash;
};

static void perform(struct world *w, const void *arg)
{
	const struct performance *p = arg;

	p->sc->run(w);
	if (p->hash)
		printf("%s, seed %llu hash %016llx\n", p->sc->name, (unsigned long long)w->sim.seed,
		       (unsigned long long)w->sim.hash);
	if (!w->failed)
		heal(w);
	if (!w->failed)
		scene_sweep(w, scene_root);
}

static int run_scenario(const struct scenario *sc, uint64_t first, uint64_t end,
			const struct world_opts *o)
{
	const struct performance how = { sc, o->hash };
	struct world_plain p = { sc->name, sc->targets, sc->metas, sc->clients,
				 sc->hub,  perform,	&how };
	uint64_t n_met = 0;

	for (uint64_t i = first; i < end; i++) {
		bool met = false;

		if (world_run_plain(i, o, &p, &met))
			return 1;
		n_met += met;
	}
	printf("scenario %s: in %llu of %llu seeds\n", sc->name, (unsigned long long)n_met,
	       (unsigned long long)(end - first));
	if (2 * n_met >= end - first)
		return 0;
	printf("scenario %s failed: its situation came about too rarely\n", sc->name);
	return 1;
}

int scenarios_run(const char *name, uint64_t first, uint64_t end, const struct world_opts *o)
{
	uint32_t n = 0;
	int failed = 0;

	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		for (const struct scenario *sc = tables[i]; sc->name; sc++)
			if (!name || !strcmp(name, sc->name)) {
				failed |= run_scenario(sc, first, end, o);
				n++;
			}
	if (!n)
		printf("there is no scenario %s\n", name ? name : "");
	return failed || !n;
}

/* ---- the simplest scenarios ---- */

struct there {
	const struct target *t;
	struct sheaf_handle dir;
	const char *name;
};

static bool is_there(void *arg)
{
	const struct there *x = arg;

	return peek_name(x->t->server, x->dir.ino, x->name) != 0;
}

/* A rename is committed and its answer is lost with the server: the retransmission must get the
 * stored answer. */
static void rename_answer_lost(struct world *w)
{
	struct target *t = &w->targets[0];
	struct sim_node *c0 = w->actors[0].node;
	struct sheaf_handle d = scene_mkdir(w, 0, "d");
	struct cop *c = scene_call(w, 0);
	struct there to = { t, d, "b" };
	int64_t r;

	scene_close(w, 0, scene_open(w, 0, "d/a", O_CREAT | O_RDONLY));
	scene_hold(w, t->node, c0, true);
	client_rename(c, d, "a", d, "b", 0);
	if (scene_until(w, is_there, &to, "the name does not come"))
		scene_met(w);
	scene_down(w, 0, sim_chance(&w->sim, 500000));
	scene_up(w, 0);
	scene_hold(w, t->node, c0, false);
	r = scene_end(w, c);
	scene_check(w, !r, "the rename is answered with %d", (int)r);
}

const struct scenario scenes_basic[] = {
	{ "rename-answer-lost", rename_answer_lost, 1, 1, 1, false },
	{ 0 },
};
