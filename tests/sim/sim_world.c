/* One seed from beginning to end: builds the cluster, runs the clients under faults, heals,
 * verifies, removes everything, and checks what is left. Also the history that a failure prints. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim_priv.h"
#include "sim_world.h"

#define RUN_NS (3000 * NSEC_PER_SEC)
#define QUIET_NS (600 * NSEC_PER_SEC)

struct note {
	uint64_t when;
	uint32_t file;
	char text[228];
};

/* ---- history ---- */

static void print_note(const struct note *n)
{
	char file[16] = "";

	if (n->file && n->file != NO_FILE)
		snprintf(file, sizeof(file), "f%u", n->file);
	printf("%12.6f %-4s %s\n", (double)n->when / 1e9, file, n->text);
}

void world_note(struct world *w, uint32_t file, const char *fmt, ...)
{
	struct note *n;
	va_list ap;

	if (w->n_notes == w->cap_notes) {
		w->cap_notes = w->cap_notes ? 2 * w->cap_notes : 1024;
		w->notes = realloc(w->notes, w->cap_notes * sizeof(*w->notes));
		if (!w->notes)
			abort();
	}
	n = &w->notes[w->n_notes++];
	n->when = w->sim.now;
	n->file = file;
	va_start(ap, fmt);
	vsnprintf(n->text, sizeof(n->text), fmt, ap);
	va_end(ap);
	if (w->verbose)
		print_note(n);
}

static void print_in_flight(struct world *w)
{
	for (uint32_t i = 0; i <= w->n_actors; i++)
		for (int k = 0; k < N_LANES; k++) {
			const struct op *op = &w->actors[i].lanes[k];

			if (op->busy)
				printf("  under way: c%u #%u %s %s (file %u, from %.6f)\n", i,
				       op->number, do_names[op->kind], op->path,
				       op->f ? op->f->id : 0, (double)op->began / 1e9);
		}
}

void world_fail(struct world *w, uint32_t file, const char *fmt, ...)
{
	va_list ap;

	if (w->failed)
		return;
	w->failed = true;
	if (w->scenario)
		printf("scenario %s, ", w->scenario);
	printf("seed %llu failed at %.6f: ", (unsigned long long)w->sim.seed,
	       (double)w->sim.now / 1e9);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n  %u targets (%s), %u clients, stripe unit %u, width %u; again: sheaf-sim %s%s --seed %llu "
	       "--verbose\n",
	       w->conf.n_targets, w->on_hub ? "loop" : "tcp", w->n_actors, w->conf.stripe_unit,
	       w->conf.width, w->scenario ? "--scenario " : "", w->scenario ? w->scenario : "",
	       (unsigned long long)w->sim.seed);
	for (size_t i = w->n_notes > 4000 ? w->n_notes - 4000 : 0; i < w->n_notes && !w->verbose;
	     i++)
		if (!file || !w->notes[i].file || w->notes[i].file == file)
			print_note(&w->notes[i]);
	print_in_flight(w);
}

static void print_loop(const char *name, const struct loop *l)
{
	const struct req *q;

	list_for_each(q, &l->all, all)
		printf("  %s: %s is in state %s since %.6f, born %.6f, pending %u, error %d\n",
		       name, q->ops->name, q->ops->state_names[q->state], (double)q->since / 1e9,
		       (double)q->born / 1e9, q->pending, q->error);
}

void world_requests(struct world *w)
{
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		if (w->targets[i].server)
			print_loop(w->targets[i].node->name, &w->targets[i].loop);
	for (uint32_t i = 0; i <= w->n_actors; i++)
		if (w->actors[i].client)
			print_loop(w->actors[i].node->name, &w->actors[i].loop);
}

struct actor *caretaker(struct world *w)
{
	return &w->actors[w->n_actors];
}

bool world_spread(const struct world *w)
{
	return w->conf.n_targets > 1 && (w->conf.targets[1].roles & ROLE_META);
}

/* ---- building ---- */

static void finish_conf(struct world *w, uint32_t n_meta)
{
	struct conf *c = &w->conf;

	memset(c->fs_id.b, 7, sizeof(c->fs_id.b));
	memset(w->key, 1, sizeof(w->key));
	memset(w->server_key, 2, sizeof(w->server_key));
	for (uint32_t i = 0; i < MAX_TARGETS; i++) {
		struct conf_target *t = &c->targets[i];

		t->id = i;
		t->roles = ROLE_DATA | (i < MIN(n_meta, c->n_targets) ? ROLE_META : 0);
		snprintf(t->name, sizeof(t->name), "server%u", i);
		snprintf(t->address, sizeof(t->address), w->on_hub ? "loop:t%u" : "t%u:7000", i);
		strcpy(t->storage, "/store");
	}
}

static void make_conf(struct world *w)
{
	struct sim *s = &w->sim;
	struct conf *c = &w->conf;
	bool all_meta = sim_chance(s, 500000);

	c->targets = w->conf_targets;
	c->n_targets = (uint32_t)sim_between(s, 1, FIRST_TARGETS);
	c->stripe_unit = 4096u << sim_below(s, 5);
	c->width = sim_chance(s, 700000) ? 0 : (uint32_t)sim_between(s, 1, c->n_targets);
	c->timeout_s = 30;
	c->lease_s = sim_chance(s, 300000) ? 12 : 30;
	c->pool_bytes = (512 * KIB) << sim_below(s, 3);
	finish_conf(w, all_meta ? c->n_targets : 1);
}

static void plain_conf(struct world *w, const struct world_plain *p)
{
	w->conf = (struct conf){ .targets = w->conf_targets,
				 .n_targets = p->targets,
				 .stripe_unit = 64 * KIB,
				 .timeout_s = 30,
				 .lease_s = 30,
				 .pool_bytes = MIB };
	finish_conf(w, p->metas);
}

/* Puts a node on its own host or on one of a few. Takes no number from the generator, so that
 * other runs do not change. */
static struct sim_node *node_add(struct world *w, const char *name)
{
	struct sim_node *n = sim_node_add(&w->sim, name);

	if (w->n_hosts)
		n->host = SIM_MAX_NODES +
			  (uint32_t)(hash_u64(hash_u64(w->sim.seed) + n->id) % w->n_hosts);
	if (w->has_cards)
		sim_fabric_add(n);
	return n;
}

void target_make(struct world *w, uint32_t i)
{
	struct target *t = &w->targets[i];
	char name[16], file[160];

	t->w = w;
	t->id = i;
	snprintf(name, sizeof(name), "t%u", i);
	t->node = node_add(w, name);
	t->node->on_tmpfs = w->bulk || (!w->scenario && hash_u64(w->sim.seed + 4 + i) % 2);
	snprintf(t->meta_dir, sizeof(t->meta_dir), "%s/%u", w->dir, i);
	snprintf(file, sizeof(file), "%s/data.mdb", t->meta_dir);
	sim_db_add(t->node, file);
	t->node->torn = target_torn;
	t->node->torn_arg = t;
	t->node->synced = target_synced;
	t->node->synced_arg = t;
	t->node->crashed = target_crashed;
	t->node->may_crash = target_may_crash;
	t->node->crashed_arg = t;
	t->crash_kind = FAULT_JOB;
}

static void make_targets(struct world *w)
{
	char err[512];

	for (uint32_t i = 0; i < w->conf.n_targets; i++) {
		struct target *t = &w->targets[i];

		target_make(w, i);
		if (server_format(&t->node->env, &w->conf, i, err, sizeof(err)) || target_start(t))
			world_fail(w, 0, "target %u does not start", i);
	}
}

void actor_connect(struct actor *a)
{
	struct world *w = a->w;
	struct client_opts o = { .loop = &a->loop,
				 .conf = join_file(w, MAX_TARGETS + a->id),
				 .hub = w->on_hub ? &w->hub : NULL,
				 .name = a->node->name };

	memcpy(o.key, w->key, KEY_BYTES);
	if (client_new(&o, &a->client))
		abort();
	client_set_direct(a->client, true);
	if (a->id % 2) /* even short accesses travel as patterns */
		client_set_max_list_extents(a->client, 1);
}

static void make_actor(struct world *w, uint32_t i)
{
	struct actor *a = &w->actors[i];
	char name[16];

	a->w = w;
	a->id = i;
	snprintf(name, sizeof(name), "c%u", i);
	a->node = node_add(w, name);
	if (loop_init(&a->loop, &a->node->env))
		abort();
	actor_connect(a);
	for (int k = 0; k < N_LANES; k++)
		a->lanes[k].a = a;
	for (int k = 0; k < RACE_LANES; k++)
		a->race_lanes[k].a = a;
	duel_init(a);
	appends_init(a);
	a->walker.a = a;
}

static void make_nodes(struct world *w)
{
	make_targets(w);
	for (uint32_t i = 0; i <= w->n_actors; i++)
		make_actor(w, i);
}

static void build(struct world *w)
{
	struct sim *s = &w->sim;

	w->on_hub = sim_chance(s, 300000);
	w->small = sim_chance(s, 300000);
	if (sim_chance(s, 700000)) /* else as on tmpfs: so fast that the loop commits */
		s->faults.commit_ns = sim_between(s, 70000, 400000);
	s->faults.wrong_server = 50000;
	s->faults.store_fault = 10000;
	w->span = (16 * KIB) << sim_below(s, 5);
	if (sim_chance(s, 150000))
		w->span = sim_chance(s, 200000) ? 3 * MIB : 700 * KIB;
	w->n_actors = (uint32_t)sim_between(s, 1, SEED_CLIENTS);
	if (hash_u64(s->seed + 2) % 2)
		w->n_hosts = 1 + (uint32_t)(hash_u64(s->seed + 3) % 3);
	w->bulk = hash_u64(s->seed + 9) % 10 == 0;
	if (w->bulk)
		w->span = 700 * KIB;
	w->has_cards = !w->on_hub && hash_u64(s->seed + 12) % 3 == 0;
	if (w->has_cards)
		sim_fabric_choose(s, true);
	if (sim_chance(s, 400000)) /* most floors are in files */
		w->max_floors = (uint32_t)sim_between(s, 1, 8);
	make_conf(w);
	if (w->bulk)
		w->conf.width = 1;
	join_choose(w);
	make_nodes(w);
	faults_choose(w);
}

static void build_plain(struct world *w, const struct world_plain *p)
{
	w->scenario = p->name;
	w->healing = true;
	w->on_hub = p->hub;
	w->n_actors = p->clients;
	w->sim.faults.commit_ns = sim_between(&w->sim, 70000, 400000);
	plain_conf(w, p);
	make_nodes(w);
}

/* ---- the run ---- */

static bool all_idle(void *arg)
{
	struct world *w = arg;

	for (uint32_t i = 0; i < w->n_actors; i++)
		if (w->actors[i].dead || !actor_idle(&w->actors[i]) || !locker_idle(&w->actors[i]))
			return w->failed;
	return join_idle(w) || w->failed;
}

static bool all_up(void *arg)
{
	struct world *w = arg;

	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		if (!w->targets[i].server || w->targets[i].stopping) {
			if (!w->targets[i].server)
				faults_heal(w);
			return w->failed;
		}
	return true;
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

/* The leases of dead clients are over: the files that they wrote must be settled. */
static void check_settled(struct world *w)
{
	uint64_t ino;

	sim_run(&w->sim, never, w, 2 * w->conf.lease_s * NSEC_PER_SEC);
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		if (w->targets[i].server && (ino = peek_neglected(w->targets[i].server)))
			world_fail(w, 0, "target %u: nobody settles inode %llx", i,
				   (unsigned long long)ino);
}

static void work(struct world *w, uint32_t scale)
{
	faults_start(w);
	join_start(w);
	for (uint32_t i = 0; i < w->n_actors; i++) {
		w->actors[i].ops_left = (uint32_t)(sim_between(&w->sim, 20, 200) * scale / 100);
		actor_start(&w->actors[i]);
		race_start(&w->actors[i]);
		duel_start(&w->actors[i]);
		appends_start(&w->actors[i]);
		paths_start(&w->actors[i]);
		copies_start(&w->actors[i]);
		acls_start(&w->actors[i]);
		if (!w->enabled[FAULT_META]) /* there a failed claim may lose the lock */
			locker_start(&w->actors[i],
				     (uint32_t)(sim_below(&w->sim, 12) * scale / 100));
	}
	if (!sim_run(&w->sim, all_idle, w, RUN_NS)) {
		world_fail(w, 0, "the clients do not come to an end");
		world_requests(w);
	}
	faults_heal(w);
	if (!w->failed && !sim_run(&w->sim, all_up, w, QUIET_NS))
		world_fail(w, 0, "a target does not come back");
	if (!w->failed) /* lets decisions reach all servers */
		sim_run(&w->sim, never, w, 5 * NSEC_PER_SEC);
	if (!w->failed && !w->enabled[FAULT_META])
		check_settled(w);
	if (!w->failed)
		join_check(w);
}

/* ---- what is left ---- */

static bool all_quiet(void *arg)
{
	struct world *w = arg;

	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		if (!peek_idle(w->targets[i].server))
			return false;
	return true;
}

struct leak {
	struct target *t;
	int dir;
	char which[8];
};

static void leaked(void *arg, const char *name)
{
	struct leak *l = arg;

	world_fail(l->t->w, 0, "target %u still has object %s/%s", l->t->id, l->which, name);
}

static void look_into(void *arg, const char *name)
{
	struct leak *l = arg;
	struct env *e = &l->t->node->env;
	int fd = e->file->openat(e, l->dir, name, O_RDONLY | O_DIRECTORY, 0);

	snprintf(l->which, sizeof(l->which), "%s", name);
	if (fd < 0)
		return;
	e->file->list(e, fd, leaked, l);
	e->file->close(e, fd);
}

static void check_objects(struct target *t)
{
	struct env *e = &t->node->env;
	struct leak l = { .t = t };

	l.dir = e->file->openat(e, -1, "/store/objects", O_RDONLY | O_DIRECTORY, 0);
	if (l.dir < 0) {
		world_fail(t->w, 0, "target %u has no objects directory: %d", t->id, l.dir);
		return;
	}
	e->file->list(e, l.dir, look_into, &l);
	e->file->close(e, l.dir);
}

/* Clients are gone and leases run out: nothing may be left in the servers. */
static void check_rest(struct world *w)
{
	char why[200];

	for (uint32_t i = 0; i <= w->n_actors; i++) {
		struct actor *a = &w->actors[i];

		w->count->resent += peek_resent(a->client);
		if (w->on_hub && peek_bad_links(a->client))
			world_fail(w, 0, "c%u closed %llu links whose peer broke the protocol", i,
				   (unsigned long long)peek_bad_links(a->client));
		client_free(a->client);
		a->client = NULL;
		if (a->loop.n_reqs)
			world_fail(w, 0, "c%u still has %zu requests", i, a->loop.n_reqs);
	}
	/* the end of a session may not have been stored: start once more */
	if (w->enabled[FAULT_META])
		for (uint32_t i = 0; i < w->conf.n_targets; i++)
			target_down(&w->targets[i], false);
	faults_heal(w);
	sim_run(&w->sim, never, w, 2 * w->conf.lease_s * NSEC_PER_SEC);
	if (!sim_run(&w->sim, all_quiet, w, QUIET_NS)) {
		world_fail(w, 0, "the servers do not come to rest");
		world_requests(w);
		return;
	}
	for (uint32_t i = 0; i < w->conf.n_targets; i++) {
		if (peek_check(w->targets[i].server, w->conf.n_targets, why, sizeof(why)))
			world_fail(w, 0, "target %u: %s", i, why);
		check_objects(&w->targets[i]);
	}
}

static void tear_down(struct world *w)
{
	join_fini(w);
	for (uint32_t i = 0; i < w->conf.n_targets; i++) {
		struct target *t = &w->targets[i];

		if (!t->server)
			continue;
		peek_counters(t->server, w->count);
		sim_node_kill(t->node);
		server_abandon(t->server);
		loop_fini(&t->loop);
	}
	for (uint32_t i = 0; i <= w->n_actors; i++) {
		struct actor *a = &w->actors[i];

		if (a->client) /* after a failure calls may be under way */
			peek_cut(a->client);
		loop_fini(&a->loop);
	}
	sim_fini(&w->sim);
	model_free(w);
	free(w->notes);
	free(w->race.ops);
	free(w->appends.v);
	free(w->acl);
}

static void remove_meta(struct world *w)
{
	static const char *const names[] = { "data.mdb", "lock.mdb", "" };
	char path[256];

	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		for (int k = 0; k < 3; k++) {
			snprintf(path, sizeof(path), "%s/%s", w->targets[i].meta_dir, names[k]);
			remove(path);
		}
}

/* Called when the run does not end. Between two turns it ends as after any failure; within a
 * turn only exit() ends it. */
static void does_not_end(struct sim *s, const char *why, bool within)
{
	struct world *w = container_of(s, struct world, sim);

	world_fail(w, 0, "%s", why);
	sim_print_loops(s);
	world_requests(w);
	if (!within)
		return;
	fflush(stdout);
	remove_meta(w);
	exit(1);
}

static struct world *world_new(uint64_t seed, const struct world_opts *o, struct counters *count)
{
	struct world *w = sim_alloc(sizeof(*w));

	w->verbose = o->verbose;
	w->count = count;
	w->dir = o->dir;
	list_init(&w->files);
	list_init(&w->hub.acceptors);
	w->hub.delay = hub_delay;
	w->hub.lingers = hub_lingers;
	sim_init(&w->sim, seed);
	w->sim.on_endless = does_not_end;
	w->sim.bounds.events = w->sim.bounds.events * MAX(o->scale, 100u) / 100;
	return w;
}

static int world_free(struct world *w)
{
	int r = w->failed;

	remove_meta(w);
	tear_down(w);
	free(w);
	return r;
}

int world_run_plain(uint64_t seed, const struct world_opts *o, const struct world_plain *p,
		    bool *met)
{
	struct counters count = { 0 };
	struct world *w = world_new(seed, o, &count);

	build_plain(w, p);
	if (!w->failed)
		p->run(w, p->arg);
	if (!w->failed)
		check_rest(w);
	*met = w->met;
	return world_free(w);
}

int world_run(uint64_t seed, const struct world_opts *o, struct counters *count, uint64_t *hash)
{
	struct world *w = world_new(seed, o, count);

	build(w);
	if (!w->failed)
		world_setup(w);
	if (!w->failed && sim_chance(&w->sim, 700000))
		race_setup(w);
	if (!w->failed && w->n_actors > 1 && sim_chance(&w->sim, 500000))
		duel_setup(w);
	if (!w->failed && sim_chance(&w->sim, 400000))
		appends_setup(w);
	if (!w->failed && sim_chance(&w->sim, 400000))
		paths_setup(w);
	if (!w->failed && hash_u64(seed + 11) % 4 == 0) /* other runs do not change */
		acls_setup(w);
	if (!w->failed)
		work(w, o->scale);
	if (!w->failed)
		world_verify(w);
	if (!w->failed)
		race_judge(w);
	if (!w->failed)
		race_cleanup(w);
	if (!w->failed)
		duel_cleanup(w);
	if (!w->failed)
		appends_cleanup(w);
	if (!w->failed)
		paths_cleanup(w);
	if (!w->failed)
		acls_cleanup(w);
	if (!w->failed)
		world_cleanup(w);
	if (!w->failed)
		check_rest(w);
	*hash = w->sim.hash;
	count->events += w->sim.n_events;
	for (int i = 0; i < SIM_INJECTED; i++)
		count->injected[i] += w->sim.injected[i];
	return world_free(w);
}
