/* The core of the simulated environment: generator, trace, event queue, steps, and the starts and
 * crashes of nodes.
 *
 * sim_net.c has the sockets and loops, sim_fs.c the files, sim_exec.c the accesses and jobs
 * outside of the loop, sim_fabric.c the network cards. */
#include "sim_env.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim_priv.h"

#define WALL_BASE UINT64_C(1700000000000000000)
#define RATE_BITS 20
#define MAX_EVENTS 20000000 /* limits; a correct run of usual length has about 200,000 events, */
#define MAX_BUSY 100000 /* 30 consecutive turns without a wait, */
#define MAX_WORK 1000000 /* and 130 calls in a turn */

const char *const sim_injected_names[] = {
	"short reads and writes of sockets",
	"deliveries and accesses up to 100 times as slow",
	"connections cut within a message",
	"connections refused",
	"pieces held back by a partition",
	"reads of objects failed (EIO)",
	"writes of objects failed (EIO)",
	"... of those: half-way",
	"syncs of files and directories failed (EIO)",
	"pages written while a sync of them was under way",
	"writes to full data disks (ENOSPC)",
	"writes and syncs of the database failed (EIO)",
	"writes of the database on full disks (ENOSPC)",
	"powers lost within a commit",
	"pages lost with the power",
	"file sizes lost with the power",
	"directory changes lost with the power",
	"database pages lost with the power",
	"Unix sockets answered by another server",
	"stores of sockets into mappings failed (EFAULT)",
	"connections by Unix sockets",
	"direct reads",
	"sends out of mappings",
	"pages copied into mappings",
	"stores of sockets into mappings",
	"queue pairs that were connected",
	"writes by cards",
	"reads by cards",
	"writes by cards into granted memory that ended it",
	"writes by cards that were late",
	"messages by cards that overtook data",
	"messages by cards that waited for a receive",
	"ports of cards that went down",
};

void *sim_alloc(size_t n)
{
	void *p = calloc(1, n ? n : 1);

	if (!p) {
		fprintf(stderr, "sim: out of memory\n");
		abort();
	}
	return p;
}

/* ---------------------------------------------------------------- generator and trace */

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

/* xoshiro256** */
uint64_t sim_random(struct sim *s)
{
	uint64_t *r = s->rng;
	uint64_t result = rotl(r[1] * 5, 7) * 9, t = r[1] << 17;

	r[2] ^= r[0];
	r[3] ^= r[1];
	r[1] ^= r[2];
	r[0] ^= r[3];
	r[2] ^= t;
	r[3] = rotl(r[3], 45);
	return result;
}

static void seed_generator(struct sim *s, uint64_t seed)
{
	for (int i = 0; i < 4; i++) { /* splitmix64 */
		uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);

		z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
		s->rng[i] = z ^ (z >> 31);
	}
}

uint64_t sim_below(struct sim *s, uint64_t n)
{
	return n ? sim_random(s) % n : 0;
}

uint64_t sim_between(struct sim *s, uint64_t lo, uint64_t hi)
{
	return hi > lo ? lo + sim_below(s, hi - lo + 1) : lo;
}

bool sim_chance(struct sim *s, uint32_t per_million)
{
	return per_million && sim_below(s, 1000000) < per_million;
}

bool sim_inject(struct sim *s, enum sim_injected what, uint32_t per_million)
{
	bool yes = sim_chance(s, per_million);

	s->injected[what] += yes;
	return yes;
}

uint64_t sim_second_below(struct sim *s, uint64_t n)
{
	return n ? hash_u64(hash_u64(s->seed) + ++s->n_second) % n : 0;
}

uint64_t sim_delay(struct sim *s, uint64_t lo, uint64_t hi)
{
	uint64_t d = sim_between(s, lo, hi);

	if (sim_inject(s, SIM_SLOW, s->faults.slow))
		d *= sim_between(s, 2, 100);
	return d ? d : 1;
}

static void fold_u64(uint64_t *h, uint64_t x)
{
	for (int i = 0; i < 8; i++) {
		*h ^= (x >> (8 * i)) & 0xff;
		*h *= UINT64_C(0x100000001b3);
	}
}

void sim_trace(struct sim *s, uint32_t kind, uint32_t node, uint64_t size)
{
	sim_count_work();
	s->n_events++;
	fold_u64(&s->hash, s->now);
	fold_u64(&s->hash, (uint64_t)kind << 32 | node);
	fold_u64(&s->hash, size);
}

/* ---------------------------------------------------------------- event queue: a binary heap */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
	return a->time != b->time ? a->time < b->time : a->seq < b->seq;
}

static void heap_swap(struct sim *s, size_t i, size_t j)
{
	struct sim_event *t = s->heap[i];

	s->heap[i] = s->heap[j];
	s->heap[j] = t;
}

static void heap_push(struct sim *s, struct sim_event *e)
{
	size_t i = s->n_heap;

	if (s->n_heap == s->cap_heap) {
		s->cap_heap = s->cap_heap ? 2 * s->cap_heap : 256;
		s->heap = realloc(s->heap, s->cap_heap * sizeof(struct sim_event *));
		if (!s->heap)
			abort();
	}
	s->heap[s->n_heap++] = e;
	for (; i && earlier(s->heap[i], s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap_swap(s, i, (i - 1) / 2);
}

static struct sim_event *heap_pop(struct sim *s)
{
	struct sim_event *top = s->heap[0];

	s->heap[0] = s->heap[--s->n_heap];
	for (size_t i = 0;;) {
		size_t c = 2 * i + 1;

		if (c >= s->n_heap)
			break;
		if (c + 1 < s->n_heap && earlier(s->heap[c + 1], s->heap[c]))
			c++;
		if (!earlier(s->heap[c], s->heap[i]))
			break;
		heap_swap(s, i, c);
		i = c;
	}
	return top;
}

struct sim_event *sim_schedule(struct sim *s, enum sim_kind kind, struct sim_node *n,
			       uint64_t delay, void (*fire)(struct sim *s, struct sim_event *e),
			       void *arg)
{
	struct sim_event *e = sim_alloc(sizeof(*e));

	e->time = s->now + (delay ? delay : 1);
	e->seq = ++s->seq;
	e->kind = kind;
	e->node = n;
	e->fire = fire;
	e->arg = arg;
	heap_push(s, e);
	return e;
}

static void fire_user(struct sim *s, struct sim_event *e)
{
	(void)s;
	e->fn(e->arg);
}

void sim_after(struct sim *s, uint64_t delay, void (*fn)(void *arg), void *arg)
{
	sim_schedule(s, SIM_USER, NULL, delay, fire_user, arg)->fn = fn;
}

/* Returns the earliest event that was not cancelled, or NULL. */
static struct sim_event *next_event(struct sim *s)
{
	while (s->n_heap && !s->heap[0]->fire)
		free(heap_pop(s));
	return s->n_heap ? s->heap[0] : NULL;
}

static void fire_due(struct sim *s)
{
	struct sim_event *e;

	while ((e = next_event(s)) && e->time <= s->now) {
		heap_pop(s);
		sim_trace(s, e->kind, e->node ? e->node->id : 0, e->n);
		e->fire(s, e);
		free(e);
	}
}

/* ---------------------------------------------------------------- clocks */

/* The time on a node's clock now. */
static uint64_t clock_of(const struct sim_node *n)
{
	return n->rate_from + ((n->sim->now - n->rate_at) * n->rate >> RATE_BITS);
}

/* The time when a node's clock will show `says`. */
static uint64_t clock_when(const struct sim_node *n, uint64_t says)
{
	if (says <= n->rate_from)
		return n->rate_at;
	return n->rate_at + (((says - n->rate_from) << RATE_BITS) + n->rate - 1) / n->rate;
}

static uint64_t clock_now(struct env *e)
{
	sim_count_work();
	return clock_of(sim_node_of(e));
}

static uint64_t clock_wall(struct env *e)
{
	struct sim_node *n = sim_node_of(e);

	return WALL_BASE + clock_of(n) + (uint64_t)n->wall_offset;
}

void sim_drift(struct sim_node *n, int32_t ppm)
{
	n->rate_from = clock_of(n);
	n->rate_at = n->sim->now;
	n->rate = (uint64_t)((INT64_C(1) << RATE_BITS) + ppm * (INT64_C(1) << RATE_BITS) / 1000000);
	sim_trace(n->sim, SIM_CLOCKS, n->id, n->rate);
}

static void clock_random(struct env *e, void *p, size_t n)
{
	struct sim *s = sim_node_of(e)->sim;
	uint8_t *b = p;
	uint64_t x = 0;

	for (size_t i = 0; i < n; i++) {
		if (i % 8 == 0)
			x = sim_random(s);
		b[i] = (uint8_t)(x >> (8 * (i % 8)));
	}
}

static uint64_t clock_host_start(struct env *e)
{
	return 1 + sim_node_of(e)->n_crashes;
}

static const struct clock_ops clock_table = { clock_now, clock_wall, clock_random,
					      clock_host_start };

/* ---------------------------------------------------------------- bounds */

static struct sim_node *turning; /* the node whose loop has its turn */

static void pass_bound(struct sim *s, bool within, const char *what, uint64_t n)
{
	char why[160];

	snprintf(why, sizeof(why), "does not end: %s%s: %llu", within ? turning->name : "", what,
		 (unsigned long long)n);
	s->endless = true;
	if (s->on_endless)
		s->on_endless(s, why, within);
	else
		printf("%s\n", why);
	if (within)
		abort();
}

/* An endless turn is detected by the calls it makes; a turn that makes no calls is not detected. */
void sim_count_work(void)
{
	struct sim *s = turning ? turning->sim : NULL;

	if (s && ++s->n_work > s->bounds.work && !s->endless)
		pass_bound(s, true, " has called so much within one turn", s->n_work);
}

static void check_bounds(struct sim *s)
{
	if (s->n_events > s->bounds.events)
		pass_bound(s, false, "events in all", s->n_events);
	else if (s->n_busy > s->bounds.busy)
		pass_bound(s, false, "turns in a row and no loop waits", s->n_busy);
}

static void print_loop(const struct sim *s, struct sim_loop *l)
{
	const struct loop *p = l->loop;
	size_t n_runnable = 0;
	struct list *it;

	for (it = p->runnable.next; it != &p->runnable; it = it->next)
		n_runnable++;
	printf("  %s: %llu of %llu turns; requests %zu, of them runnable %zu; timers %zu",
	       l->node->name, (unsigned long long)l->n_turns, (unsigned long long)s->n_busy,
	       (size_t)p->n_reqs, n_runnable, (size_t)p->n_heap);
	if (p->n_heap)
		printf(", the next at %.6f", (double)clock_when(l->node, p->heap[0]->when) / 1e9);
	printf("%s%s\n", sim_loop_poll(l) ? ", something is ready" : "",
	       l->node == turning ? ", its turn" : "");
}

void sim_print_loops(const struct sim *s)
{
	struct sim_loop *l;

	for (uint32_t i = 0; i < s->n_nodes; i++)
		list_for_each(l, &s->nodes[i]->loops, link)
			if (s->nodes[i]->up)
				print_loop(s, l);
}

/* ---------------------------------------------------------------- steps */

static bool loop_busy(struct sim_loop *l)
{
	return loop_wait_ns(l->loop) == 0 || sim_loop_poll(l);
}

/* Chooses at random one of the loops that have work: reservoir sampling, oldest loop first. */
static struct sim_loop *pick_loop(struct sim *s)
{
	struct sim_loop *l, *chosen = NULL;
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		if (!s->nodes[i]->up || s->nodes[i]->stopped)
			continue;
		list_for_each(l, &s->nodes[i]->loops, link)
			if (loop_busy(l) && sim_below(s, ++n) == 0)
				chosen = l;
	}
	return chosen;
}

/* The time of the next event or timer; UINT64_MAX: none. */
static uint64_t next_time(struct sim *s)
{
	struct sim_event *e = next_event(s);
	uint64_t t = e ? e->time : UINT64_MAX;
	struct sim_loop *l;

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		if (!s->nodes[i]->up || s->nodes[i]->stopped)
			continue;
		list_for_each(l, &s->nodes[i]->loops, link) {
			l->n_turns = 0;
			if (l->loop->n_heap)
				t = MIN(t, clock_when(s->nodes[i], l->loop->heap[0]->when));
		}
	}
	return t;
}

bool sim_step(struct sim *s)
{
	struct sim_loop *l;
	uint64_t t;

	if (s->endless)
		return false;
	fire_due(s);
	l = pick_loop(s);
	if (l) {
		s->n_turns++;
		l->n_turns++;
		s->n_busy++;
		s->n_work = 0;
		sim_trace(s, SIM_TURN, l->node->id, 0);
		turning = l->node;
		loop_turn(l->loop, 0); /* l may have been freed */
		turning = NULL;
		s->now += s->faults.turn_ns;
		check_bounds(s);
		return true;
	}
	s->n_busy = 0;
	t = next_time(s);
	if (t == UINT64_MAX)
		return false;
	s->now = MAX(t, s->now);
	return true;
}

bool sim_run(struct sim *s, bool (*cond)(void *arg), void *arg, uint64_t ns)
{
	uint64_t end = ns > UINT64_MAX - s->now ? UINT64_MAX : s->now + ns;

	while (!cond(arg)) {
		if (s->now > end || !sim_step(s))
			return cond(arg);
	}
	return true;
}

/* ---------------------------------------------------------------- starts and crashes */

void sim_init(struct sim *s, uint64_t seed)
{
	memset(s, 0, sizeof(*s));
	turning = NULL;
	s->seed = seed;
	seed_generator(s, seed);
	s->now = NSEC_PER_SEC;
	s->hash = UINT64_C(0xcbf29ce484222325);
	list_init(&s->conns);
	sim_fabric_init(s);
	s->bounds = (struct sim_bounds){ MAX_EVENTS, MAX_BUSY, MAX_WORK };
	s->faults = (struct sim_faults){
		.partial = 200000,
		.one_byte = 50000,
		.slow = 1000,
		.net_min = 5000,
		.net_max = 200000,
		.io_min = 2000,
		.io_max = 500000,
		.sync_min = 100000,
		.sync_max = 8 * NSEC_PER_MSEC,
		.job_min = 1000,
		.job_max = 200000,
		.turn_ns = 200,
		.stall_ns = 5 * NSEC_PER_SEC,
		.buffer_min = 64 * KIB,
		.buffer_max = 64 * KIB,
	};
}

struct sim_node *sim_node_add(struct sim *s, const char *name)
{
	struct sim_node *n = sim_alloc(sizeof(*n));

	assert(s->n_nodes < SIM_MAX_NODES && strlen(name) < sizeof(n->name));
	n->env = (struct env){ .clock = &clock_table,
			       .sock = &sim_sock_ops,
			       .file = &sim_file_ops,
			       .exec = &sim_exec_ops };
	n->sim = s;
	n->id = n->host = s->n_nodes;
	strcpy(n->name, name);
	n->up = true;
	list_init(&n->loops);
	list_init(&n->workers);
	n->wall_offset = (int64_t)sim_below(s, 20 * NSEC_PER_MSEC) - (int64_t)(10 * NSEC_PER_MSEC);
	n->rate = UINT64_C(1) << RATE_BITS;
	n->fs = sim_fs_new(n);
	s->nodes[s->n_nodes++] = n;
	return n;
}

void sim_fini(struct sim *s)
{
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		sim_net_crash(s->nodes[i]);
		sim_net_restart(s->nodes[i]);
	}
	sim_net_fini(s);
	sim_fabric_fini(s);
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		assert(list_empty(&s->nodes[i]->loops) && list_empty(&s->nodes[i]->workers));
		sim_fs_free(s->nodes[i]->fs);
		sim_db_free(s->nodes[i]);
		free(s->nodes[i]);
	}
	while (s->n_heap)
		free(heap_pop(s));
	free(s->heap);
	memset(s, 0, sizeof(*s));
}

/* Drops accesses and jobs under way without touching what they point to. */
static void drop_work(struct sim_node *n)
{
	struct sim *s = n->sim;
	struct sim_loop *l;

	for (size_t i = 0; i < s->n_heap; i++) {
		struct sim_event *e = s->heap[i];

		if (e->node == n &&
		    (e->kind == SIM_IO || e->kind == SIM_JOB_RUN || e->kind == SIM_JOB_DONE))
			e->fire = NULL;
	}
	list_for_each(l, &n->loops, link) {
		struct list *it;

		while ((it = list_pop(&l->finished)))
			free(list_entry(it, struct sim_done, link));
	}
	sim_exec_crash(n);
}

static void node_down(struct sim_node *n, bool power)
{
	if (!n->up)
		return;
	sim_trace(n->sim, power ? SIM_CRASH : SIM_KILL, n->id, 0);
	n->up = false;
	n->n_crashes += power;
	drop_work(n);
	sim_fabric_crash(n);
	sim_net_crash(n);
	sim_fs_crash(n->fs, power);
}

void sim_node_crash(struct sim_node *n)
{
	node_down(n, true);
}

void sim_node_kill(struct sim_node *n)
{
	node_down(n, false);
}

void sim_node_restart(struct sim_node *n)
{
	assert(!n->up && list_empty(&n->loops) && list_empty(&n->workers));
	sim_trace(n->sim, SIM_RESTART, n->id, 0);
	sim_net_restart(n);
	n->up = true;
}
