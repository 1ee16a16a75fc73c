/* The faults of a run and their ends: targets that are killed, lose power or stop, and start
 * again, also during recovery or a commit; clients that die and start again, or are replaced by
 * another process; partitions and cuts; bad and full disks; clocks. */
#include <stdio.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define JUMP_MAX (20 * 60 * NSEC_PER_SEC)
#define DRIFT_MAX 20000 /* ppm */
#define START_OPS 40 /* file operations of a start or a stop, roughly */
#define JOB_CRASH 20000
/* a client has a link again within this time after a partition */
#define COME_BACK_NS (2 * NSEC_PER_SEC)

const char *const fault_names[] = {
	[FAULT_CUT] = "cuts",
	[FAULT_PARTITION] = "partitions",
	[FAULT_ONE_WAY] = "one-way partitions",
	[FAULT_KILL] = "kills",
	[FAULT_POWER] = "power losses",
	[FAULT_RECOVERY] = "crashes in recovery",
	[FAULT_TORN] = "torn commits",
	[FAULT_SYNCED] = "power losses right after a sync",
	[FAULT_STOP] = "clean stops",
	[FAULT_DISK] = "disk errors",
	[FAULT_FULL] = "full disks",
	[FAULT_META] = "database errors",
	[FAULT_DEATH] = "dead clients",
	[FAULT_ISOLATED] = "isolations",
	[FAULT_JUMP] = "clock jumps",
	[FAULT_DRIFT] = "drifting clocks",
	[FAULT_REPLACED] = "replaced clients",
	[FAULT_JOB] = "crashes within a job of file operations",
	[FAULT_START] = "crashes within a start",
	[FAULT_HALT] = "crashes within a clean stop",
};

/* ---- targets ---- */

/* Makes a server sieve whenever it may: an access takes a second, and its bytes nothing. */
static const struct sieve_costs sieve_always = {
	.read = { .ns = { 1e9, 1e9, 1e9, 1e9, 1e9, 1e9 } },
	.write = { .ns = { 1e9, 1e9, 1e9, 1e9, 1e9, 1e9 } },
	.cold = { .ns = { 1e9, 1e9, 1e9, 1e9, 1e9, 1e9 } },
	.parallel = 1,
};

int target_start(struct target *t)
{
	struct world *w = t->w;
	struct server_opts o = { .loop = &t->loop,
				 .conf = join_file(w, t->id),
				 .target = t->id,
				 .hub = w->on_hub ? &w->hub : NULL,
				 .meta_map_bytes = 64 * MIB,
				 .meta_dir = t->meta_dir,
				 .max_floors = w->max_floors };
	char err[512];
	int r;

	w->n_starts++;
	if (w->small) {
		o.limits.open_objects = 2;
		o.limits.fence_slack = 4;
		o.limits.removing = 1;
	}
	memcpy(o.client_key, w->key, KEY_BYTES);
	memcpy(o.server_key, w->server_key, KEY_BYTES);
	if (loop_init(&t->loop, &t->node->env))
		abort();
	if (t->id % 2 || w->sieves)
		o.costs = &sieve_always;
	r = server_start(&o, &t->server, err, sizeof(err));
	if (r) {
		loop_fini(&t->loop);
		t->server = NULL;
		world_note(w, 0, "target %u does not start: %s", t->id, err);
	}
	return r;
}

static void crash_in_recovery(void *arg)
{
	struct target *t = arg;

	if (!t->server || t->w->healing)
		return;
	t->w->count->faults[FAULT_RECOVERY]++;
	target_down(t, sim_chance(&t->w->sim, 500000));
}

/* With bad disks a start may fail, and a later one succeed. */
static bool may_fail(const struct world *w, int e)
{
	if (w->healing)
		return false;
	return (e == -EIO && w->enabled[FAULT_DISK]) || (e == -ENOSPC && w->enabled[FAULT_FULL]) ||
	       ((e == -EIO || e == -ENOSPC) && w->enabled[FAULT_META]);
}

/* ---- crashes within an operation ---- */

static void torn(void *arg)
{
	struct target *t = arg;

	if (t->server)
		target_down(t, t->lost_power);
}

/* From now on the target's calls have no effect; its objects are destroyed in the next event. */
static void go_down(struct target *t, bool power)
{
	t->lost_power = power;
	if (power)
		sim_node_crash(t->node);
	else
		sim_node_kill(t->node);
	sim_after(&t->w->sim, 1, torn, t);
}

void target_crashed(void *arg, bool power)
{
	struct target *t = arg;

	world_note(t->w, 0, "target %u goes down between two file operations", t->id);
	t->w->count->faults[t->crash_kind]++;
	go_down(t, power);
}

bool target_may_crash(void *arg)
{
	struct target *t = arg;
	struct world *w = t->w;

	if (!w->enabled[FAULT_JOB] || !w->armed || w->healing || !w->jobs_left)
		return false;
	w->jobs_left--;
	return true;
}

/* Sometimes makes the target go down in the middle of the start or stop that follows. */
static void plan_crash(struct target *t, enum fault f)
{
	struct sim *s = &t->w->sim;

	t->crash_kind = f;
	if (t->w->enabled[FAULT_JOB] && sim_second_below(s, 3) == 0 && target_may_crash(t))
		t->node->crash_in_ops = 1 + (uint32_t)sim_second_below(s, START_OPS);
}

/* Within a write of the target's database: mostly a power loss, sometimes a kill. */
void target_torn(void *arg)
{
	struct target *t = arg;

	t->w->count->faults[FAULT_TORN]++;
	go_down(t, sim_second_below(&t->w->sim, 4) != 0);
}

static void cancel_crash(struct target *t)
{
	t->node->crash_in_ops = 0;
	t->crash_kind = FAULT_JOB;
}

static void plan_reclaim_cuts(struct world *w);

static void note_power_loss(struct target *t)
{
	t->losses++;
	t->last_loss = t->w->sim.now;
	model_power_loss(t->w, t->id);
}

/* The target went down within its start, or within a commit of the start. */
static void start_torn(struct target *t)
{
	t->w->n_unclean++;
	sim_db_crash(t->node, t->lost_power);
	if (t->lost_power)
		note_power_loss(t);
	sim_after(&t->w->sim, NSEC_PER_SEC, target_restart, t);
}

void target_restart(void *arg)
{
	struct target *t = arg;
	struct world *w = t->w;
	int r;

	if (t->server)
		return;
	if (!t->node->up)
		sim_node_restart(t->node);
	world_note(w, 0, "target %u starts", t->id);
	plan_crash(t, FAULT_START);
	r = target_start(t);
	cancel_crash(t);
	if (!r && t->node->up)
		join_look(t);
	if (!r) {
		plan_reclaim_cuts(w);
		if (w->enabled[FAULT_RECOVERY] && !w->healing && sim_chance(&w->sim, 300000))
			sim_after(&w->sim, sim_between(&w->sim, 1, 60 * NSEC_PER_MSEC),
				  crash_in_recovery, t);
		return;
	}
	if (!t->node->up)
		start_torn(t);
	else if (may_fail(w, r))
		sim_after(&w->sim, NSEC_PER_SEC, target_restart, t);
	else
		world_fail(w, 0, "target %u does not start: %d", t->id, r);
}

/* Mostly short, so that most calls survive it. */
static uint64_t outage(struct world *w)
{
	struct sim *s = &w->sim;
	uint64_t how = sim_below(s, 10);

	if (w->long_outages && how == 9)
		return sim_between(s, 20 * NSEC_PER_SEC, 60 * NSEC_PER_SEC);

	if (how < 5)
		return sim_between(s, NSEC_PER_MSEC, 500 * NSEC_PER_MSEC);
	return sim_between(s, NSEC_PER_MSEC, how < 9 ? 8 * NSEC_PER_SEC : 25 * NSEC_PER_SEC);
}

void target_down(struct target *t, bool power)
{
	struct world *w = t->w;

	if (!t->server)
		return;
	join_look(t);
	world_note(w, 0, "target %u %s", t->id, power ? "loses power" : "is killed");
	peek_counters(t->server, w->count);
	if (power)
		sim_node_crash(t->node);
	else
		sim_node_kill(t->node);
	server_abandon(t->server);
	sim_db_crash(t->node, power);
	t->server = NULL;
	t->stopping = false;
	loop_fini(&t->loop);
	w->n_unclean++;
	if (power)
		note_power_loss(t);
	if (!w->healing)
		sim_after(&w->sim, outage(w), target_restart, t);
}

/* A clean stop: the requests in service end first. */
static void target_stop(void *arg)
{
	struct target *t = arg;
	struct world *w = t->w;
	bool crashed;
	int r;

	if (!t->server || !t->stopping || w->failed)
		return;
	if (!server_idle(t->server)) {
		sim_after(&w->sim, NSEC_PER_MSEC, target_stop, t);
		return;
	}
	peek_counters(t->server, w->count);
	join_look(t);
	plan_crash(t, FAULT_HALT);
	r = server_stop(t->server);
	cancel_crash(t);
	crashed = !t->node->up;
	world_note(w, 0, "target %u has stopped: %d", t->id, r);
	if (r && !crashed && !w->enabled[FAULT_DISK] && !w->enabled[FAULT_FULL])
		world_fail(w, 0, "target %u does not stop cleanly: %d", t->id, r);
	if (r || crashed) /* the next start has a new verifier */
		w->n_unclean++;
	t->server = NULL;
	t->stopping = false;
	loop_fini(&t->loop);
	sim_node_kill(t->node);
	sim_db_crash(t->node, crashed && t->lost_power);
	if (crashed && t->lost_power)
		note_power_loss(t);
	if (!w->healing)
		sim_after(&w->sim, outage(w), target_restart, t);
}

static void lose_synced(void *arg)
{
	struct target *t = arg;

	if (!t->server || t->w->healing || t->w->failed)
		return;
	t->w->count->faults[FAULT_SYNCED]++;
	target_down(t, true);
}

/* Synced data are durable, data written during the sync are not: often loses power right then. */
void target_synced(void *arg)
{
	struct target *t = arg;
	struct world *w = t->w;
	struct sim *s = &w->sim;

	if (!w->enabled[FAULT_SYNCED] || !w->armed || w->healing || !w->faults_left ||
	    !sim_chance(s, 120000))
		return;
	w->faults_left--;
	sim_after(s, sim_between(s, 1, 2 * NSEC_PER_MSEC), lose_synced, t);
}

/* ---- clients ---- */

void actor_revive(void *arg)
{
	struct actor *a = arg;
	struct world *w = a->w;

	if (!a->dead)
		return;
	world_note(w, 0, "c%u is back", a->id);
	sim_node_restart(a->node);
	a->dead = false;
	if (loop_init(&a->loop, &a->node->env))
		abort();
	actor_connect(a);
	for (int i = 0; i < N_LANES; i++)
		if (a->lanes[i].busy)
			op_resolve(&a->lanes[i]);
	locker_revived(a);
}

void actor_die(struct actor *a)
{
	struct world *w = a->w;

	if (!a->client)
		return;
	world_note(w, 0, "c%u dies", a->id);
	w->count->resent += peek_resent(a->client);
	a->dead = true;
	sim_node_kill(a->node);
	peek_cut(a->client);
	loop_fini(&a->loop);
	a->client = NULL; /* as in a crash, its memory is not freed */
	a->name_busy = false;
	a->follow = NULL;
	for (int i = 0; i < N_LANES; i++)
		op_abandon(&a->lanes[i]);
	race_abandon(a);
	duel_abandon(a);
	appends_abandon(a);
	paths_abandon(a);
	acls_abandon(a);
	locker_died(a);
	for (int i = 0; i < N_HANDLES; i++) {
		if (a->handles[i].cf)
			model_forgiven(a->handles[i].f, a);
		a->handles[i] = (struct handle){ 0 };
	}
	if (!w->healing)
		sim_after(&w->sim, sim_between(&w->sim, NSEC_PER_SEC, 50 * NSEC_PER_SEC),
			  actor_revive, a);
}

/* ---- the network ---- */

static struct sim_node *node_of(const struct net *n)
{
	return container_of(n->loop->env, struct sim_node, env);
}

uint64_t hub_delay(struct loopback_hub *h, struct net *from, struct net *to, size_t bytes)
{
	struct world *w = container_of(h, struct world, hub);
	struct sim *s = &w->sim;
	struct sim_node *a = node_of(from), *b = node_of(to);
	uint64_t d = sim_delay(s, s->faults.net_min, s->faults.net_max) + bytes / 8;

	if (!a->up || !b->up || sim_chance(s, s->faults.cut))
		return UINT64_MAX;
	if (!s->apart[a->id][b->id])
		return d;
	if (w->heal_at[a->id][b->id] > s->now + s->faults.stall_ns)
		return UINT64_MAX;
	return d + w->heal_at[a->id][b->id] - s->now;
}

/* Half of the links close at once, the others when a network card would have stopped. */
uint64_t hub_lingers(struct loopback_hub *h, struct net *n)
{
	struct sim *s = &container_of(h, struct world, hub)->sim;

	(void)n;
	return sim_chance(s, 500000) ? sim_between(s, 1, 20 * NSEC_PER_MSEC) : 0;
}

struct split {
	struct world *w;
	struct sim_node *a, *b;
};

static void rejoin(void *arg)
{
	struct split *p = arg;

	sim_one_way(&p->w->sim, p->a, p->b, false);
	world_note(p->w, 0, "%s hears %s again", p->b->name, p->a->name);
	free(p);
}

/* One record for both directions of a pair: a client needs both to renew its session. */
static struct outage *outage_of(struct world *w, const struct sim_node *a, const struct sim_node *b)
{
	return &w->outages[MIN(a->id, b->id)][MAX(a->id, b->id)];
}

/* Nothing that a sends reaches b. */
static void hold_messages(struct world *w, struct sim_node *a, struct sim_node *b, uint64_t d)
{
	struct sim *s = &w->sim;
	struct split *p;

	if (a == b || s->apart[a->id][b->id])
		return;
	p = sim_alloc(sizeof(*p));
	*p = (struct split){ w, a, b };
	world_note(w, 0, "%s does not hear %s for %.3f s", b->name, a->name, (double)d / 1e9);
	sim_one_way(s, a, b, true);
	w->heal_at[a->id][b->id] = s->now + d;
	outage_of(w, a, b)->end = MAX(outage_of(w, a, b)->end, s->now + d);
	sim_after(s, d, rejoin, p);
}

/* The longest outage that a session survives: it was renewed at most a third of its lease
 * earlier. */
static uint64_t longest_outage(const struct world *w)
{
	return w->conf.lease_s * NSEC_PER_SEC * 2 / 3 - COME_BACK_NS;
}

void faults_partition(struct world *w, struct sim_node *a, struct sim_node *b, uint64_t d)
{
	struct outage *o = outage_of(w, a, b);
	uint64_t now = w->sim.now, end;

	if (now > o->end + COME_BACK_NS)
		o->began = now;
	end = MIN(now + d, o->began + longest_outage(w));
	if (end > now)
		hold_messages(w, a, b, end - now);
}

static void partition(struct world *w, bool one_way)
{
	struct sim *s = &w->sim;
	struct sim_node *a = w->targets[sim_below(s, w->conf.n_targets)].node;
	struct sim_node *b = s->nodes[sim_below(s, s->n_nodes)];
	uint64_t d = sim_between(s, NSEC_PER_MSEC, longest_outage(w));

	if (!one_way || sim_chance(s, 500000))
		faults_partition(w, a, b, d);
	if (!one_way || !s->apart[a->id][b->id])
		faults_partition(w, b, a, d);
}

/* Cuts a client off for longer than its lease: its sessions end, its files are settled without
 * it. Some calls last longer than the lease. If only the answers are lost, the calls have been
 * executed. */
void faults_isolate(struct actor *a, const struct target *from)
{
	struct world *w = a->w;
	struct sim *s = &w->sim;
	uint64_t lease = w->conf.lease_s, longest = sim_chance(s, 500000) ? lease + 50 : lease + 14;
	uint64_t d = sim_between(s, (lease - 3) * NSEC_PER_SEC, longest * NSEC_PER_SEC);
	bool deaf = sim_chance(s, 500000);

	a->isolations++;
	for (uint32_t i = 0; i < w->conf.n_targets; i++) {
		if (from ? from != &w->targets[i] : i && sim_chance(s, 500000))
			continue;
		hold_messages(w, w->targets[i].node, a->node, d);
		if (!deaf)
			hold_messages(w, a->node, w->targets[i].node, d);
	}
}

/* ---- clocks ---- */

static void jump(struct world *w)
{
	struct sim *s = &w->sim;
	struct sim_node *n = s->nodes[sim_below(s, s->n_nodes)];
	uint64_t far = sim_chance(s, 500000) ? JUMP_MAX : NSEC_PER_SEC;

	n->wall_offset = (int64_t)sim_below(s, 2 * far) - (int64_t)far;
	world_note(w, 0, "the clock of %s is %.3f s off", n->name, (double)n->wall_offset / 1e9);
}

/* With net_loopback all nodes are one process and have one clock. */
static void drift(struct world *w)
{
	struct sim *s = &w->sim;

	for (uint32_t i = 0; i < s->n_nodes && !w->on_hub; i++) {
		sim_drift(s->nodes[i], (int32_t)sim_below(s, 2 * DRIFT_MAX) - DRIFT_MAX);
		w->count->faults[FAULT_DRIFT]++;
	}
}

/* ---- choosing faults ---- */

void faults_choose(struct world *w)
{
	static const uint32_t chance[] = {
		[FAULT_CUT] = 600000,	   [FAULT_PARTITION] = 250000, [FAULT_ONE_WAY] = 150000,
		[FAULT_KILL] = 350000,	   [FAULT_POWER] = 400000,     [FAULT_RECOVERY] = 300000,
		[FAULT_TORN] = 100000,	   [FAULT_STOP] = 250000,      [FAULT_DISK] = 150000,
		[FAULT_FULL] = 100000,	   [FAULT_META] = 100000,      [FAULT_DEATH] = 150000,
		[FAULT_ISOLATED] = 120000, [FAULT_JUMP] = 150000,      [FAULT_DRIFT] = 150000,
		[FAULT_SYNCED] = 250000,
	};
	struct sim *s = &w->sim;

	/* also in calm runs; takes no number from the generator, so that other runs do not
	 * change */
	w->enabled[FAULT_REPLACED] = hash_u64(s->seed + 1) % 4 == 0;
	w->enabled[FAULT_JOB] = hash_u64(s->seed + 21) % 5 == 0;
	w->jobs_left = 1 + (uint32_t)sim_second_below(s, 8);
	if (sim_chance(s, 100000))
		return; /* a calm run */
	for (size_t i = 0; i < ARRAY_LEN(chance); i++)
		w->enabled[i] = sim_chance(s, chance[i]);
	w->faults_left = (uint32_t)sim_between(s, 1, 12);
	w->long_outages = sim_chance(s, 100000);
}

static void strike(struct world *w, enum fault f)
{
	struct sim *s = &w->sim;
	struct target *t = &w->targets[sim_below(s, w->conf.n_targets)];
	bool all = sim_chance(s, 150000);

	switch (f) {
	case FAULT_CUT:
		if (!w->on_hub) /* mostly of one client, so that the others continue */
			sim_cut(s, t->node, all ? NULL : w->actors[sim_below(s, w->n_actors)].node);
		break;
	case FAULT_PARTITION:
	case FAULT_ONE_WAY:
		partition(w, f == FAULT_ONE_WAY);
		break;
	case FAULT_JUMP:
		jump(w);
		break;
	case FAULT_ISOLATED:
		faults_isolate(&w->actors[sim_below(s, w->n_actors)], NULL);
		break;
	case FAULT_KILL:
	case FAULT_POWER:
		for (uint32_t i = 0; i < w->conf.n_targets; i++)
			if (all || &w->targets[i] == t)
				target_down(&w->targets[i], f == FAULT_POWER);
		break;
	case FAULT_STOP:
		if (!t->server || t->stopping)
			return;
		world_note(w, 0, "target %u stops", t->id);
		t->stopping = true;
		server_drain(t->server);
		target_stop(t);
		break;
	case FAULT_DEATH:
		actor_die(&w->actors[sim_below(s, w->n_actors)]);
		break;
	default:
		return;
	}
	w->count->faults[f]++;
}

static void crash_after_sync(void *arg)
{
	struct world *w = arg;

	if (!w->healing && !w->failed)
		strike(w, FAULT_POWER);
}

void faults_after_sync(struct world *w, enum do_kind kind)
{
	struct sim *s = &w->sim;

	if (!w->enabled[FAULT_POWER] || !w->armed || w->healing || !w->faults_left)
		return;
	if (!sim_chance(s, kind == DO_TRUNCATE ? 200000 : 40000))
		return;
	w->faults_left--;
	sim_after(s, sim_between(s, 1, NSEC_PER_MSEC), crash_after_sync, w);
}

static void cut_off(void *arg)
{
	struct actor *a = arg;
	struct world *w = a->w;

	if (a->dead || w->healing)
		return;
	world_note(w, NO_FILE, "c%u loses its links", a->id);
	w->count->faults[FAULT_CUT]++;
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		sim_cut(&w->sim, w->targets[i].node, a->node);
}

/* Cuts links, sometimes repeatedly, while a server that has just started receives claims. */
static void cut_reclaims(void *arg)
{
	struct world *w = arg;
	struct sim *s = &w->sim;
	struct actor *a = &w->actors[sim_below(s, w->n_actors)];

	if (w->failed || w->healing)
		return;
	w->count->reclaim_cuts += !a->dead;
	cut_off(a);
	if (sim_chance(s, 500000))
		sim_after(s, sim_between(s, 1, 2 * NSEC_PER_MSEC), cut_reclaims, w);
}

static void plan_reclaim_cuts(struct world *w)
{
	struct sim *s = &w->sim;

	if (w->enabled[FAULT_CUT] && w->armed && !w->healing && !w->on_hub && sim_chance(s, 500000))
		sim_after(s, sim_between(s, 1, 60 * NSEC_PER_MSEC), cut_reclaims, w);
}

static void part_servers(void *arg)
{
	struct world *w = arg;
	uint32_t i = (uint32_t)sim_below(&w->sim, w->conf.n_targets);
	uint32_t k = (uint32_t)sim_below(&w->sim, w->conf.n_targets);

	if (w->failed || w->healing || i == k)
		return;
	w->count->pair_cuts++;
	world_note(w, NO_FILE, "t%u and t%u lose their links", i, k);
	sim_cut(&w->sim, w->targets[i].node, w->targets[k].node);
}

void faults_part_servers(struct world *w)
{
	struct sim *s = &w->sim;

	if (w->enabled[FAULT_CUT] && w->armed && !w->healing && !w->on_hub && world_spread(w) &&
	    sim_chance(s, 100000))
		sim_after(s, sim_between(s, 1, 1000000), part_servers, w);
}

void faults_lose_answer(struct actor *a)
{
	struct world *w = a->w;
	struct sim *s = &w->sim;

	if (w->enabled[FAULT_CUT] && w->armed && !w->healing && !w->on_hub && sim_chance(s, 500000))
		sim_after(s, sim_between(s, 1, 400000), cut_off, a);
}

static void tick(void *arg)
{
	struct world *w = arg;
	struct sim *s = &w->sim;
	enum fault f = (enum fault)sim_below(s, FAULT_REPLACED);

	for (int i = 0; i < 20 && !w->enabled[f]; i++)
		f = (enum fault)sim_below(s, FAULT_REPLACED);
	if (w->failed || w->healing || !w->faults_left)
		return;
	if (w->enabled[f]) {
		strike(w, f);
		w->faults_left--;
	}
	sim_after(s,
		  sim_between(s, NSEC_PER_MSEC,
			      sim_chance(s, 500000) ? 100 * NSEC_PER_MSEC : 6 * NSEC_PER_SEC),
		  tick, w);
}

/* ---- replacing a client by another process ---- */

#define TRIES 3000

/* The places of a client's open files: those of the script, the lock's, the duel's and the
 * append's. */
static struct cfile **file_at(struct actor *a, int i)
{
	return i < N_HANDLES	  ? &a->handles[i].cf :
	       i == N_HANDLES	  ? &a->locker.f :
	       i == N_HANDLES + 1 ? &a->duelist.file :
				    &a->appender.file;
}

static void actor_succeed(void *arg)
{
	struct actor *a = arg;
	struct takeover *t = &a->takeover;
	int r = 0;

	if (!t->between)
		return;
	t->between = false;
	world_note(a->w, 0, "c%u goes on%s", a->id, t->old ? " itself" : "");
	if (t->old) {
		a->client = t->old;
	} else {
		actor_connect(a);
		r = client_import(a->client, &t->state);
	}
	if (r)
		world_fail(a->w, 0, "c%u does not take over: %d", a->id, r);
	for (int i = 0; i < N_HANDLES + 3 && !r && !t->old; i++) {
		*file_at(a, i) = t->ids[i] ? client_imported(a->client, t->ids[i]) : NULL;
		if (t->ids[i] && !*file_at(a, i))
			world_fail(a->w, 0, "c%u misses an open file", a->id);
	}
	free((void *)(uintptr_t)t->state.p);
	client_resume(a->client);
}

/* Waits until the client has nothing under way; it starts nothing meanwhile. */
static void actor_replace(void *arg)
{
	struct actor *a = arg;
	struct world *w = a->w;
	struct takeover *t = &a->takeover;
	/* short: after a partition not more may be left of the lease */
	uint64_t gap = sim_between(&w->sim, 1000, 500 * NSEC_PER_MSEC);

	if (w->failed || w->healing || !a->client)
		return;
	a->rest_until = MAX(a->rest_until, w->sim.now + 2 * NSEC_PER_MSEC);
	if (client_export(a->client, &t->state)) {
		if (++t->tries < TRIES)
			sim_after(&w->sim, NSEC_PER_MSEC, actor_replace, a);
		return;
	}
	w->count->faults[FAULT_REPLACED]++;
	world_note(w, 0, "c%u ends, and another will be it", a->id);
	for (int i = 0; i < N_HANDLES + 3; i++)
		t->ids[i] = *file_at(a, i) ? cfile_id(*file_at(a, i)) : 0;
	t->between = true;
	t->old = sim_chance(&w->sim, 250000) ? a->client : NULL;
	w->count->resent += t->old ? 0 : peek_resent(a->client);
	if (!t->old)
		client_free(a->client);
	a->client = NULL;
	a->rest_until = MAX(a->rest_until, w->sim.now + gap + 1);
	sim_after(&w->sim, gap, actor_succeed, a);
	if (w->enabled[FAULT_KILL] && w->faults_left && sim_chance(&w->sim, 300000)) {
		w->faults_left--;
		strike(w, FAULT_KILL);
	}
}

static void replace_some(void *arg)
{
	struct world *w = arg;
	struct actor *a = &w->actors[sim_below(&w->sim, w->n_actors)];

	if (w->failed || w->healing || !w->replacements_left)
		return;
	if (!a->takeover.between) {
		w->replacements_left--;
		a->takeover.tries = 0;
		actor_replace(a);
	}
	sim_after(&w->sim, sim_between(&w->sim, NSEC_PER_MSEC, 2 * NSEC_PER_SEC), replace_some, w);
}

void faults_start(struct world *w)
{
	struct sim_faults *f = &w->sim.faults;

	w->armed = true;
	if (w->enabled[FAULT_JOB])
		f->job_crash = JOB_CRASH;
	if (w->enabled[FAULT_CUT]) {
		f->cut = (uint32_t)sim_between(&w->sim, 100, 5000);
		f->refuse = 50000;
	}
	if (w->enabled[FAULT_DISK]) {
		f->read_eio = 5000;
		f->write_eio = (uint32_t)sim_between(&w->sim, 2000, 20000);
		f->sync_eio = (uint32_t)sim_between(&w->sim, 5000, 80000);
		w->count->faults[FAULT_DISK]++;
	}
	if (w->enabled[FAULT_META]) {
		f->meta_eio = (uint32_t)sim_between(&w->sim, 500, 20000);
		f->meta_full = (uint32_t)sim_between(&w->sim, 500, 20000);
		w->count->faults[FAULT_META]++;
	}
	if (w->enabled[FAULT_TORN])
		f->meta_torn = (uint32_t)sim_between(&w->sim, 200, 3000);
	if (w->enabled[FAULT_DRIFT])
		drift(w);
	if (w->enabled[FAULT_FULL]) {
		for (uint32_t i = 0; i < w->conf.n_targets; i++)
			w->targets[i].node->capacity = 700 * KIB + sim_below(&w->sim, 512 * KIB);
		w->count->faults[FAULT_FULL]++;
	}
	sim_after(&w->sim, sim_between(&w->sim, NSEC_PER_MSEC, 200 * NSEC_PER_MSEC), tick, w);
	if (!w->enabled[FAULT_REPLACED])
		return;
	w->replacements_left = (uint32_t)sim_between(&w->sim, 1, 60);
	replace_some(w);
}

void faults_heal(struct world *w)
{
	struct sim_faults *f = &w->sim.faults;

	w->healing = true;
	f->cut = f->refuse = f->read_eio = f->write_eio = f->sync_eio = 0;
	f->meta_eio = f->meta_full = f->meta_torn = f->job_crash = 0;
	for (uint32_t i = 0; i < w->conf.n_targets; i++) {
		w->targets[i].node->capacity = 0;
		w->targets[i].stopping = w->targets[i].stopping && w->targets[i].server;
		if (!w->targets[i].server)
			target_restart(&w->targets[i]);
	}
	for (uint32_t i = 0; i < w->n_actors; i++) {
		actor_revive(&w->actors[i]);
		actor_succeed(&w->actors[i]);
	}
}
