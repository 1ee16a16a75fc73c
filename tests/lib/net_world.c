#include "net_world.h"

/* ---- a world ---- */

static uint64_t net_world_now(struct env *e)
{
	return container_of(e, struct net_world, env)->now;
}

static void net_world_random(struct env *e, void *p, size_t n)
{
	struct net_world *w = container_of(e, struct net_world, env);

	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)test_random(&w->rng);
}

void net_world_start(struct net_world *w, bool real)
{
	memset(w, 0, sizeof(*w));
	w->env = *env_real();
	w->real = real;
	w->now = NSEC_PER_SEC;
	w->clock = (struct clock_ops){ .now = net_world_now,
				       .wall = net_world_now,
				       .random = net_world_random };
	if (!real)
		w->env.clock = &w->clock;
	list_init(&w->hub.acceptors);
	log_set_level(LOG_ERROR);
	CHECK_EQ(loop_init(&w->loop, &w->env), 0);
}

void net_world_end(struct net_world *w)
{
	CHECK_EQ(w->loop.n_reqs, 0);
	loop_fini(&w->loop);
}

void net_world_turn(struct net_world *w)
{
	if (w->real) {
		loop_turn(&w->loop, NSEC_PER_SEC / 100);
		return;
	}
	w->now += 1000;
	loop_run_ready(&w->loop);
}

static bool net_world_idle(const struct net_world *w)
{
	return list_empty(&w->loop.runnable) &&
	       !(w->loop.n_heap && w->loop.heap[0]->when <= w->now + 1000);
}

void net_world_pass(struct net_world *w, uint64_t ns)
{
	uint64_t end = w->env.clock->now(&w->env) + ns;

	while (w->env.clock->now(&w->env) < end) {
		if (!w->real && net_world_idle(w))
			w->now = w->loop.n_heap ? MIN(end, w->loop.heap[0]->when) : end;
		net_world_turn(w);
	}
}

void net_world_until(struct net_world *w, const bool *flag)
{
	uint64_t end = w->env.clock->now(&w->env) + 60 * NSEC_PER_SEC;

	while (!*flag) {
		CHECK(w->env.clock->now(&w->env) < end);
		if (!w->real && net_world_idle(w))
			w->now = w->loop.n_heap ? MIN(end, w->loop.heap[0]->when) : end;
		net_world_turn(w);
	}
}
