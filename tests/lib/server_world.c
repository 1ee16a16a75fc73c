#include "server_world.h"
#include "core/env_real.h"

static struct world *world_of(struct env *e)
{
	return container_of(e, struct world, env);
}

static uint64_t world_now(struct env *e)
{
	return world_of(e)->now;
}

uint64_t world_wall(struct env *e)
{
	return world_of(e)->now + UINT64_C(1700000000) * NSEC_PER_SEC;
}

static void world_random(struct env *e, void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)test_random(&world_of(e)->rng);
}

static int world_worker_start(struct env *e, struct loop *l, const char *name, struct worker **w)
{
	(void)l;
	(void)name;
	*w = &world_of(e)->worker;
	return 0;
}

static void world_worker_submit(struct worker *w, struct job *j)
{
	list_push(w->jobs, &j->link);
}

static void world_worker_stop(struct worker *w)
{
	struct list *it;

	while (w && (it = list_pop(w->jobs))) {
		struct job *j = list_entry(it, struct job, link);

		j->run(j);
		j->done(j);
	}
}

/* ---- turning ---- */

void world_turn(struct world *w)
{
	w->now += 1000;
	world_worker_stop(&w->worker);
	loop_run_ready(&w->loop);
}

bool world_idle(const struct world *w)
{
	return list_empty(&w->jobs) && list_empty(&w->loop.runnable) &&
	       !(w->loop.n_heap && w->loop.heap[0]->when <= w->now + 1000);
}

void world_settle(struct world *w)
{
	for (int i = 0; !world_idle(w); i++) {
		CHECK(i < WORLD_TURNS);
		world_turn(w);
	}
}

void world_pass(struct world *w, uint64_t ns)
{
	uint64_t end = w->now + ns;

	for (int i = 0; w->now < end; i++) {
		CHECK(i < WORLD_TURNS);
		if (world_idle(w))
			w->now = w->loop.n_heap ? MIN(end, w->loop.heap[0]->when) : end;
		world_turn(w);
	}
}

bool world_quiet(struct world *w)
{
	uint64_t end = w->now + 600 * NSEC_PER_SEC;

	world_settle(w);
	for (int i = 0; w->srv->in_service && w->now < end; i++) {
		CHECK(i < WORLD_TURNS);
		if (world_idle(w))
			w->now = w->loop.n_heap ? MAX(w->now, w->loop.heap[0]->when) : end;
		world_turn(w);
	}
	world_settle(w);
	return !w->srv->in_service;
}

/* ---- start and end ---- */

const char *world_parent(void)
{
	return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

static void world_conf(struct world *w)
{
	static const char text[] =
		"[cluster]\nid = 00000000-0000-4000-8000-000000000001\nkey = key\n"
		"server_key = server.key\nstripe_unit = 65536\ntimeout = 5\nlease = 30\n"
		"[server.0]\nname = server0\naddress = 127.0.0.1:1\nroles = meta data\nstorage = s0\n";
	char path[128], err[256];

	snprintf(path, sizeof(path), "%s/sheaf.conf", w->dir);
	if (conf_parse(text, sizeof(text) - 1, path, &w->conf, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	strcpy(w->conf->targets[0].address, "loop:0");
	w->conf->nosync = true;
	w->conf->pool_bytes = 2 * MIB;
}

void world_start_server(struct world *w)
{
	struct server_opts o = { .loop = &w->loop, .conf = w->conf, .hub = &w->hub };
	char err[512];
	int r;

	o.meta_map_bytes = 64 * MIB;
	memcpy(o.client_key, w->client_key, KEY_BYTES);
	memcpy(o.server_key, w->server_key, KEY_BYTES);
	r = server_start(&o, &w->srv, err, sizeof(err));
	if (r)
		fprintf(stderr, "%s\n", err);
	CHECK_EQ(r, 0);
}

void world_start(struct world *w)
{
	char err[512];

	memset(w, 0, sizeof(*w));
	w->env = *env_real();
	w->clock =
		(struct clock_ops){ .now = world_now, .wall = world_wall, .random = world_random };
	w->exec = (struct exec_ops){ world_worker_start, world_worker_submit, world_worker_stop };
	w->env.clock = &w->clock;
	w->env.exec = &w->exec;
	w->now = NSEC_PER_SEC;
	list_init(&w->jobs);
	list_init(&w->hub.acceptors);
	w->worker.jobs = &w->jobs;
	memset(w->client_key, 1, KEY_BYTES);
	memset(w->server_key, 2, KEY_BYTES);
	snprintf(w->dir, sizeof(w->dir), "%s/sheaf-test-XXXXXX", world_parent());
	CHECK(mkdtemp(w->dir));
	CHECK_EQ(loop_init(&w->loop, &w->env), 0);
	CHECK_EQ(engine_forbid(&w->loop, ENGINE_NO_RING), 0);
	world_conf(w);
	CHECK_EQ(server_format(&w->env, w->conf, 0, err, sizeof(err)), 0);
	world_start_server(w);
	world_settle(w);
}

void world_end(struct world *w)
{
	char cmd[128];

	if (w->srv)
		CHECK_EQ(server_stop(w->srv), 0);
	w->srv = NULL;
	loop_fini(&w->loop);
	conf_free(w->conf);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", w->dir);
	CHECK_EQ(system(cmd), 0);
}
