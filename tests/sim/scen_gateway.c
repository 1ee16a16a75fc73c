/* Directed scenarios: two gateways, one of which has the address that NFS clients call. It dies, or
 * is cut off, and the other one goes on, with sessions of the same names. Clients repeat the call
 * that was not answered.
 *
 * Each call succeeds, since it is executed once: a name that is made did not exist, a name that is
 * removed or renamed did. What is made has the owner and the time that the call gave it. A lock of
 * an NFS client keeps all others out until it is given back. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/client_impl.h"
#include "sim_priv.h"
#include "sim_scenario.h"

#define GATEWAYS 2 /* clients 0 and 1; client 2 competes for the locks */
#define RIVAL GATEWAYS
#define CLIENTS 3 /* of the gateway */
#define PHASES 6 /* each has a gateway that fails */
#define CALLS 60 /* of each client in a phase */
#define FILES 2 /* names of files of a client */
#define DIRECTORY FILES /* one more name */
#define PATIENCE_NS (3 * NSEC_PER_SEC) /* of an NFS client, then it repeats its call */

struct scene;

/* What a client has at a gateway. */
struct hold {
	struct client *fork;
	struct cop *c; /* the call under way, or NULL */
	struct cfile *file; /* open, for its lock */
};

/* An NFS client. */
struct caller {
	struct scene *s;
	uint8_t name[SESSION_NAME];
	char dir[8];
	struct hold now, old; /* at the gateway in use; at one that was cut off */
	bool there[FILES + 1];
	uint32_t left; /* calls of this phase */
	/* the call: */
	uint64_t number; /* 0: there is none */
	enum { MAKE, REMOVE, MOVE } kind;
	uint32_t from, to;
	char path[16], path2[16];
};

struct scene {
	struct world *w;
	uint32_t gateway; /* which one has the address */
	bool no_locks; /* a server that restarts while a gateway does loses them */
	struct caller callers[CLIENTS];
	uint64_t n_calls, n_repeated;
};

static void polled(struct cop *c)
{
	(void)c;
}

static struct cop *call_of(struct caller *a, bool with_id)
{
	uint8_t id[CALL_ID_BYTES] = { 0 };
	struct sheaf_cred cred = { .call_id = with_id ? id : NULL };
	struct cop *c;

	memcpy(id + 1, &a->number, sizeof(a->number));
	c = cop_new(a->now.fork, &cred);
	c->done = polled;
	return c;
}

/* The address is at this gateway from now on. */
static void use_gateway(struct scene *s, uint32_t gateway)
{
	s->gateway = gateway;
	scene_revive(s->w, gateway);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct caller *a = &s->callers[i];

		a->now = (struct hold){ 0 };
		if (client_fork(s->w->actors[gateway].client, a->name, "nfs", &a->now.fork))
			abort();
	}
}

/* ---- calls ---- */

static void choose(struct caller *a)
{
	struct sim *sim = &a->s->w->sim;

	a->number = ++a->s->n_calls;
	a->from = (uint32_t)sim_below(sim, FILES + 1);
	a->to = 1 - a->from % FILES;
	if (!a->there[a->from])
		a->kind = MAKE;
	else if (a->from == DIRECTORY || a->there[a->to] || sim_below(sim, 2))
		a->kind = REMOVE;
	else
		a->kind = MOVE;
	snprintf(a->path, sizeof(a->path), "%s/%u", a->dir, a->from);
	snprintf(a->path2, sizeof(a->path2), "%s/%u", a->dir, a->to);
}

static void send_call(struct caller *a)
{
	struct cop *c = a->now.c = call_of(a, true);

	if (a->kind == MAKE)
		c->set = (struct wire_new_attr){ .which = SET_UID | SET_MTIME,
						 .uid = (uint32_t)a->number,
						 .mtime = (int64_t)a->number };
	if (a->kind == MAKE && a->from == DIRECTORY)
		client_mkdir(c, scene_root, a->path, 0755);
	else if (a->kind == MAKE)
		client_mknod(c, scene_root, a->path, S_IFREG | 0644, 0);
	else if (a->kind == MOVE)
		client_rename(c, scene_root, a->path, scene_root, a->path2, 0);
	else if (a->from == DIRECTORY)
		client_rmdir(c, scene_root, a->path);
	else
		client_unlink(c, scene_root, a->path);
}

/* The answer has come. */
static void answered(struct caller *a)
{
	struct cop *c = a->now.c;
	const struct wire_attr *made = &c->res.made.at;

	scene_check(a->s->w, c->result == 0, "call %llu (%d of %s): %d",
		    (unsigned long long)a->number, a->kind, a->path, (int)c->result);
	if (c->result == 0)
		a->there[a->from] = a->kind == MAKE;
	if (c->result == 0 && a->kind == MAKE)
		scene_check(a->s->w,
			    made->uid == a->number && made->mtime == (int64_t)a->number &&
				    !made->unsettled,
			    "%s has uid %u, mtime %lld", a->path, made->uid,
			    (long long)made->mtime);
	if (c->result == 0 && a->kind == MOVE)
		a->there[a->to] = true;
	cop_free(c);
	a->now.c = NULL;
	a->number = 0;
	a->left--;
}

/* One step of all callers; true: those of this phase are done. */
static bool go_on(void *arg)
{
	struct scene *s = arg;
	bool done = true;

	for (uint32_t i = 0; i < CLIENTS && !s->w->failed; i++) {
		struct caller *a = &s->callers[i];

		if (a->now.c && a->now.c->finished)
			answered(a);
		if (!a->now.c && a->left) {
			if (a->number)
				s->n_repeated++;
			else
				choose(a);
			send_call(a);
		}
		done &= !a->left;
	}
	return done || s->w->failed;
}

/* ---- locks ---- */

static int64_t lock(struct client *c, struct cfile *f, uint64_t owner, uint32_t kind)
{
	const struct wire_lock want = { .owner = owner, .last = 9, .kind = kind };
	struct world *w = container_of(c->loop, struct actor, loop)->w;
	struct cop *op = cop_new(c, &(struct sheaf_cred){ 0 });

	op->done = polled;
	client_lock(op, f, &want, false);
	return scene_end(w, op);
}

static void open_file(struct caller *a)
{
	struct cop *c = call_of(a, false);
	char path[16];

	if (a->now.file)
		return;
	snprintf(path, sizeof(path), "%s/lock", a->dir);
	client_open(c, scene_root, path, O_RDWR | O_CREAT, 0644, NULL);
	scene_check(a->s->w, scene_wait(a->s->w, c) == 0, "an open fails: %d", (int)c->result);
	a->now.file = c->finished ? c->file : NULL;
	if (c->finished)
		cop_free(c);
}

/* Can a client of Sheaf take the lock? It gives it back. */
static bool is_free(struct caller *a)
{
	struct world *w = a->s->w;
	struct client *rival = w->actors[RIVAL].client;
	struct cfile *f;
	char path[16];
	int64_t r;

	snprintf(path, sizeof(path), "%s/lock", a->dir);
	f = scene_open(w, RIVAL, path, O_RDWR);
	r = w->failed ? -EIO : lock(rival, f, 99, LOCK_EXCLUSIVE);
	scene_check(w, r == 0 || r == -EAGAIN, "a lock fails: %d", (int)r);
	if (!r)
		lock(rival, f, 99, LOCK_NOTHING);
	if (!w->failed)
		scene_close(w, RIVAL, f);
	return r == 0;
}

static void take_locks(struct scene *s)
{
	for (uint32_t i = 0; i < CLIENTS && !s->w->failed && !s->no_locks; i++) {
		struct caller *a = &s->callers[i];
		int64_t r;

		open_file(a);
		r = s->w->failed ? 0 : lock(a->now.fork, a->now.file, i, LOCK_EXCLUSIVE);
		scene_check(s->w, r == 0, "client %u does not get its lock: %d", i, (int)r);
	}
}

static void check_held(struct scene *s, const char *when)
{
	for (uint32_t i = 0; i < CLIENTS && !s->w->failed && !s->no_locks; i++)
		scene_check(s->w, !is_free(&s->callers[i]), "the lock of client %u is free %s", i,
			    when);
}

/* One of them ends its lock, of which its gateway may not know. */
static void end_lock(struct scene *s)
{
	struct caller *a = &s->callers[sim_below(&s->w->sim, CLIENTS)];
	int64_t r;

	open_file(a);
	r = s->w->failed ? 0 :
			   lock(a->now.fork, a->now.file, (uint64_t)(a - s->callers), LOCK_NOTHING);
	scene_check(s->w, r == 0, "an unlock fails: %d", (int)r);
	scene_check(s->w, s->w->failed || is_free(a), "a lock is there after its end");
}

/* ---- faults ---- */

static void cut_off(struct scene *s, uint32_t gateway, bool on)
{
	struct world *w = s->w;

	for (uint32_t t = 0; t < 2; t++)
		scene_apart(w, w->actors[gateway].node, w->targets[t].node, on);
}

static bool old_calls_ended(void *arg)
{
	struct scene *s = arg;

	for (uint32_t i = 0; i < CLIENTS; i++)
		if (s->callers[i].old.c && !s->callers[i].old.c->finished)
			return false;
	return true;
}

static void drop(struct world *w, struct hold *h)
{
	struct cop *c;

	if (!h->fork || w->failed)
		return;
	if (h->c)
		cop_free(h->c);
	if (h->file) {
		c = cop_new(h->fork, &(struct sheaf_cred){ 0 });
		c->done = polled;
		client_close(c, h->file);
		scene_end(w, c);
	}
	c = cop_new(h->fork, &(struct sheaf_cred){ 0 });
	c->done = polled;
	client_bye(c);
	scene_end(w, c);
	if (!w->failed)
		client_free(h->fork);
	*h = (struct hold){ 0 };
}

/* The gateway dies at some moment of a call; the same, or the other one, goes on. */
static void die(struct scene *s)
{
	uint32_t gateway = s->gateway;

	scene_die(s->w, gateway);
	check_held(s, "before another gateway starts");
	use_gateway(s, sim_below(&s->w->sim, 2) ? gateway : 1 - gateway);
}

/* The gateway is cut off, and comes back when the other one has its address: what it still sends
 * does no harm. */
static void be_cut(struct scene *s)
{
	uint32_t gateway = s->gateway;

	cut_off(s, gateway, true);
	scene_pass(s->w, sim_below(&s->w->sim, PATIENCE_NS));
	for (uint32_t i = 0; i < CLIENTS; i++)
		s->callers[i].old = s->callers[i].now;
	use_gateway(s, 1 - gateway);
	for (uint32_t i = 0; i < CLIENTS; i++)
		s->callers[i].left += 2;
	scene_until(s->w, go_on, s, "the calls do not end");
	cut_off(s, gateway, false);
}

/* A server loses its power in the middle of changes, and the gateway dies: answers that came, and
 * changes that are durable, are not made again. */
static void die_with_server(struct scene *s)
{
	uint32_t target = (uint32_t)sim_below(&s->w->sim, 2), gateway = s->gateway;

	scene_down(s->w, target, true);
	scene_die(s->w, gateway);
	scene_pass(s->w, sim_below(&s->w->sim, NSEC_PER_SEC));
	scene_up(s->w, target);
	use_gateway(s, 1 - gateway);
}

/* ---- scenarios ---- */

static void run(struct world *w, void (*fail)(struct scene *s), bool no_locks)
{
	struct scene *s = calloc(1, sizeof(*s));

	s->w = w;
	s->no_locks = no_locks;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct caller *a = &s->callers[i];

		a->s = s;
		a->name[0] = (uint8_t)(1 + i);
		snprintf(a->dir, sizeof(a->dir), "k%u", i);
		scene_mkdir(w, RIVAL, a->dir);
	}
	use_gateway(s, 0);
	for (uint32_t p = 0; p < PHASES && !w->failed; p++) {
		take_locks(s);
		check_held(s, "while its owner has it");
		for (uint32_t i = 0; i < CLIENTS; i++)
			s->callers[i].left = CALLS;
		for (uint64_t n = sim_below(&w->sim, 200); n && !go_on(s); n--)
			scene_pass(w, 200000);
		if (!w->failed)
			fail(s);
		check_held(s, "after another gateway has started");
		scene_until(w, go_on, s, "the calls do not end");
		check_held(s, "after the calls");
		if (!s->no_locks)
			end_lock(s);
		scene_until(w, old_calls_ended, s, "calls of the old gateway do not end");
		for (uint32_t i = 0; i < CLIENTS; i++)
			drop(w, &s->callers[i].old);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		drop(w, &s->callers[i].now);
	if (!w->failed && s->n_repeated > PHASES / 2)
		scene_met(w);
	free(s);
}

static void gateways_die(struct world *w)
{
	run(w, die, false);
}

static void gateways_are_cut_off(struct world *w)
{
	run(w, be_cut, false);
}

static void servers_and_gateways_die(struct world *w)
{
	run(w, die_with_server, true);
}

const struct scenario scenes_gateway[] = {
	{ "gateway-dies", gateways_die, 2, 2, GATEWAYS + 1, false },
	{ "gateway-is-cut-off", gateways_are_cut_off, 2, 2, GATEWAYS + 1, false },
	{ "gateway-and-server-die", servers_and_gateways_die, 2, 2, GATEWAYS + 1, false },
	{ 0 },
};
