/* A further target joins the running file system, as with `sheaf add-server`
 * (cli/cmd_add_server.c):
 *
 *   MAPS -> STORAGE -> STATUS -> PUBLISH
 *
 * The command runs on its own node. It asks the metadata servers for their maps, makes the storage,
 * starts the target, waits until the target answers, asks for its incarnation, and tells one
 * metadata server after the other. Any error ends the command; it is run again later, from the
 * beginning. It may also die at any step. The target and the metadata servers that it talks to are
 * killed, or lose power, at every step.
 *
 * Targets and clients that start before the join have the cluster file without the target. Those
 * that start later have either file; a target that had the newer file once keeps it.
 *
 * Invariants: the clients notice nothing (the judges of their operations, locks and data know
 * nothing of a join). No map loses a target or gets a lower version, whatever went down. A map has
 * the right incarnation of each target's storage.
 *
 * All numbers come from sim_second_below(): seeds without a join do not change. */
#include <stdio.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define ASK_NS (5 * NSEC_PER_SEC)
#define FORMAT_OPS 24 /* file operations of a format, roughly */

enum { MAPS, STORAGE, STATUS, INCARNATION, PUBLISH };
static const char *const step_names[] = { [MAPS] = "maps",
					  [STORAGE] = "storage",
					  [STATUS] = "status",
					  [INCARNATION] = "incarnation",
					  [PUBLISH] = "publish" };

static const struct sheaf_cred root_cred = { 0 };

static void begin(void *arg);
static void next(struct world *w);

void join_choose(struct world *w)
{
	struct join *j = &w->join;

	j->on = hash_u64(w->sim.seed + 20) % 3 == 0;
	j->crashes = hash_u64(w->sim.seed + 22) % 2;
	j->id = w->conf.n_targets;
	j->older = w->conf;
}

bool join_idle(const struct world *w)
{
	return !w->join.on || w->join.over;
}

const struct conf *join_file(struct world *w, uint32_t target)
{
	struct join *j = &w->join;
	bool is_client = target >= MAX_TARGETS;

	if (!j->on || target == j->id)
		return &w->conf;
	if (j->started && !is_client && !j->newer[target])
		j->newer[target] = sim_second_below(&w->sim, 2);
	if (is_client ? j->started && sim_second_below(&w->sim, 2) : j->newer[target])
		return &w->conf;
	return &j->older;
}

/* ---- the command ---- */

static void client_make(struct world *w, const struct conf *c)
{
	struct join *j = &w->join;
	struct client_opts o = {
		.loop = &j->loop, .conf = c, .hub = w->on_hub ? &w->hub : NULL, .name = "join"
	};

	memcpy(o.key, w->key, KEY_BYTES);
	if (client_new(&o, &j->client))
		abort();
}

static bool command_runs(const struct world *w)
{
	return w->join.client && !w->failed;
}

static void command_end(struct join *j)
{
	client_free(j->client);
	j->client = NULL;
	loop_fini(&j->loop);
}

static void again_later(struct world *w)
{
	sim_after(&w->sim, NSEC_PER_MSEC + sim_second_below(&w->sim, 3 * NSEC_PER_SEC), begin, w);
}

/* The command ends with an error. Its last call is still on the stack, so it is run again later. */
static void break_off(void *arg)
{
	struct world *w = arg;

	if (!w->join.client)
		return;
	w->count->joins_again++;
	command_end(&w->join);
	again_later(w);
}

static void die(void *arg)
{
	struct world *w = arg;
	struct join *j = &w->join;

	if (!command_runs(w))
		return;
	world_note(w, 0, "the command dies at step %s", step_names[j->step]);
	w->count->join_admins++;
	sim_node_kill(j->node);
	peek_cut(j->client);
	loop_fini(&j->loop);
	j->client = NULL; /* as in a crash, its memory is not freed */
	again_later(w);
}

/* ---- faults ---- */

struct blow {
	struct world *w;
	uint32_t target;
	bool power;
};

static void strike(void *arg)
{
	struct blow *b = arg;
	struct world *w = b->w;
	struct target *t = &w->targets[b->target];

	if (!w->healing && !w->failed && t->server && !t->stopping) {
		if (b->target == w->join.id)
			w->count->join_downs++;
		else
			w->count->join_publishers++;
		w->count->join_commits += peek_state(t->server, "add-target", "commit");
		target_down(t, b->power);
	}
	free(b);
}

static void plan_blow(struct world *w, uint32_t target)
{
	struct blow *b = sim_alloc(sizeof(*b));

	*b = (struct blow){ w, target, sim_second_below(&w->sim, 2) };
	sim_after(&w->sim, 1 + sim_second_below(&w->sim, 2 * NSEC_PER_MSEC), strike, b);
}

/* At the start of each step. */
static void plan_faults(struct world *w)
{
	struct join *j = &w->join;

	if (!j->crashes || w->healing || j->tries > 20)
		return;
	if (j->started && sim_second_below(&w->sim, 6) == 0)
		plan_blow(w, j->id);
	if ((j->step == MAPS || j->step == PUBLISH) && sim_second_below(&w->sim, 4) == 0)
		plan_blow(w, j->meta);
	if (sim_second_below(&w->sim, 12) == 0)
		sim_after(&w->sim, 1 + sim_second_below(&w->sim, 2 * NSEC_PER_MSEC), die, w);
}

/* ---- steps ---- */

/* Errors that a call of the command may return: it is run again. */
static bool may_fail(const struct world *w, int64_t e)
{
	return is_network_error(e) || e == -EAGAIN ||
	       ((e == -EIO || e == -ENOSPC) && w->enabled[FAULT_META]);
}

static bool knows(const struct target *t, uint32_t id)
{
	return t->server && peek_map(t->server)->n_targets > id;
}

/* The metadata server has acknowledged the target and its incarnation. */
static void acked(struct world *w)
{
	struct join *j = &w->join;

	j->acked[j->meta] = true;
	if (j->incarnation)
		j->published[j->meta] = j->incarnation;
	join_look(&w->targets[j->meta]);
	for (uint32_t i = j->meta + 1; i < j->id; i++)
		if ((w->conf.targets[i].roles & ROLE_META) && !knows(&w->targets[i], j->id)) {
			w->count->joins_partial++;
			return;
		}
}

/* Continues with the next metadata server, or with the next step. */
static void go_on(struct world *w)
{
	struct join *j = &w->join;

	if (j->step == MAPS || j->step == PUBLISH)
		for (j->meta++; j->meta < j->id; j->meta++)
			if (w->conf.targets[j->meta].roles & ROLE_META)
				return;
	j->step++;
	j->meta = 0;
}

static void done(struct cop *c)
{
	struct world *w = c->user;
	struct join *j = &w->join;
	int64_t r = c->result;

	world_note(w, 0, "join, step %s, target %u: %d", step_names[j->step],
		   j->step == MAPS || j->step == PUBLISH ? j->meta : j->id, (int)r);
	if (j->step == INCARNATION)
		j->incarnation = r ? 0 : c->res.status.incarnation;
	cop_free(c);
	if (j->step == INCARNATION)
		r = 0; /* not an error: the metadata servers learn it later */
	if (r && !may_fail(w, r))
		world_fail(w, 0, "the target cannot join: step %s is answered with %d",
			   step_names[j->step], (int)r);
	if (w->failed)
		return;
	if (r) {
		sim_after(&w->sim, 1, break_off, w);
		return;
	}
	if (j->step == PUBLISH)
		acked(w);
	go_on(w);
	next(w);
}

/* The target is in the cluster file. Formats its storage unless that is done, and starts it. */
static void make_storage(struct world *w)
{
	struct join *j = &w->join;
	struct target *t = &w->targets[j->id];
	char err[512] = "";
	struct conf with = w->conf;
	int r;

	if (!t->node)
		target_make(w, j->id);
	if (!t->node->up)
		sim_node_restart(t->node);
	if (j->crashes && sim_second_below(&w->sim, 3) == 0)
		t->node->crash_in_ops = 1 + (uint32_t)sim_second_below(&w->sim, FORMAT_OPS);
	t->crash_kind = FAULT_START;
	with.n_targets = j->id + 1;
	r = server_format_again(&t->node->env, &with, j->id, err, sizeof(err));
	t->node->crash_in_ops = 0;
	t->crash_kind = FAULT_JOB;
	world_note(w, 0, "target %u is formatted: %d", j->id, r);
	w->count->join_formats += !t->node->up;
	if (!t->node->up || r) {
		if (t->node->up && r != -EIO)
			world_fail(w, 0, "target %u is not formatted: %s", j->id, err);
		return;
	}
	if (w->enabled[FAULT_FULL] && !w->healing)
		t->node->capacity = 700 * KIB + sim_second_below(&w->sim, 512 * KIB);
	w->conf.n_targets = j->id + 1;
	j->started = true;
	target_restart(t);
}

static void storage_step(void *arg)
{
	struct world *w = arg;
	struct join *j = &w->join;

	if (!command_runs(w))
		return;
	if (!j->started)
		make_storage(w);
	else
		target_restart(&w->targets[j->id]); /* not started by the command itself */
	if (!j->started) {
		break_off(w);
		return;
	}
	client_free(j->client); /* this client does not know the target */
	client_make(w, &w->conf);
	go_on(w);
	next(w);
}

static void over(void *arg)
{
	struct world *w = arg;

	if (!w->join.client)
		return;
	world_note(w, 0, "target %u has joined", w->join.id);
	w->count->joins++;
	w->join.over = true;
	command_end(&w->join);
}

static struct cop *call(struct world *w)
{
	struct cop *c = cop_new(w->join.client, &root_cred);

	c->done = done;
	c->user = w;
	return c;
}

static void publish(struct world *w)
{
	const struct conf_target *t = &w->conf.targets[w->join.id];
	struct wire_map_target m = { .id = t->id,
				     .roles = ROLE_DATA,
				     .name = wire_text(t->name),
				     .address = wire_text(t->address),
				     .incarnation = w->join.incarnation };
	struct cop *c = call(w);

	c->args.ADD_TARGET = (struct wire_add_target_args){ m, false };
	client_ask(c, OP_ADD_TARGET, w->join.meta, w->conf.timeout_s * NSEC_PER_SEC);
}

static void next(struct world *w)
{
	struct join *j = &w->join;

	plan_faults(w);
	switch (j->step) {
	case MAPS:
		client_ask(call(w), OP_MAP, j->meta, ASK_NS);
		break;
	case STORAGE: /* later: the previous call is still on the stack */
		sim_after(&w->sim, 1, storage_step, w);
		break;
	case STATUS:
	case INCARNATION:
		client_ask(call(w), OP_STATUS, j->id, ASK_NS);
		break;
	case PUBLISH:
		publish(w);
		break;
	default:
		sim_after(&w->sim, 1, over, w);
	}
}

static void begin(void *arg)
{
	struct world *w = arg;
	struct join *j = &w->join;

	if (w->failed || j->client)
		return;
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		join_look(&w->targets[i]);
	j->tries++;
	j->step = MAPS;
	j->meta = 0;
	if (!j->node)
		j->node = sim_node_add(&w->sim, "join");
	if (!j->node->up)
		sim_node_restart(j->node);
	if (loop_init(&j->loop, &j->node->env))
		abort();
	client_make(w, j->started ? &w->conf : &j->older);
	next(w);
}

void join_start(struct world *w)
{
	if (w->join.on)
		sim_after(&w->sim, NSEC_PER_MSEC + sim_second_below(&w->sim, NSEC_PER_SEC), begin,
			  w);
}

void join_fini(struct world *w)
{
	struct join *j = &w->join;

	if (!j->client) /* after a failure calls may be under way */
		return;
	peek_cut(j->client);
	loop_fini(&j->loop);
}

/* ---- invariants ---- */

static bool is_text(const struct wire_bytes *b, const char *text)
{
	return b->len == strlen(text) && memcmp(b->p, text, b->len) == 0;
}

void join_look(const struct target *t)
{
	struct world *w = t->w;
	struct join *j = &w->join;
	const struct wire_map_res *m = t->server ? peek_map(t->server) : NULL;

	if (!m || !j->on)
		return;
	if (m->version < j->version[t->id])
		world_fail(w, 0, "target %u: the map had number %u and has %u", t->id,
			   j->version[t->id], m->version);
	if (m->n_targets > j->id && j->id >= j->n_known[t->id] && m->version == j->version[t->id])
		world_fail(w, 0, "target %u: the map with a new target has the old number %u",
			   t->id, m->version);
	j->version[t->id] = m->version;
	j->n_known[t->id] = m->n_targets;
	if (m->n_targets < j->id + j->acked[t->id] || m->n_targets > w->conf.n_targets)
		world_fail(w, 0, "target %u: the map has %u targets", t->id, m->n_targets);
	else if (j->published[t->id] && m->targets[j->id].incarnation != j->published[t->id])
		world_fail(w, 0, "target %u: the map has lost the incarnation of %u", t->id, j->id);
	for (uint32_t i = 0; i < m->n_targets && !w->failed; i++)
		if (m->targets[i].id != i || m->targets[i].roles != w->conf.targets[i].roles ||
		    !is_text(&m->targets[i].name, w->conf.targets[i].name) ||
		    !is_text(&m->targets[i].address, w->conf.targets[i].address))
			world_fail(w, 0, "target %u: row %u of the map is wrong", t->id, i);
}

/* Called when all targets are up. */
void join_check(struct world *w)
{
	struct join *j = &w->join;

	for (uint32_t i = 0; i < w->conf.n_targets && j->on && !w->failed; i++) {
		const struct wire_map_res *m = peek_map(w->targets[i].server);

		join_look(&w->targets[i]);
		for (uint32_t k = 0; m && k < m->n_targets; k++) {
			uint64_t is = peek_incarnation(w->targets[k].server);
			uint64_t said = m->targets[k].incarnation;

			if (said != is && (said || (k == j->id && j->incarnation)))
				world_fail(w, 0,
					   "target %u: the map has incarnation %llx of %u, "
					   "its storage has %llx",
					   i, (unsigned long long)said, k, (unsigned long long)is);
		}
	}
	for (uint32_t i = 0; i < w->n_actors && j->on; i++)
		w->count->join_learned += peek_peers(w->actors[i].client) > j->id;
}

void join_opened(struct world *w, const struct mfile *f)
{
	for (uint32_t i = 0; i < f->layout.width && w->join.on; i++)
		w->count->join_files += f->targets[i] == w->join.id;
}
