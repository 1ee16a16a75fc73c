/* Learning of targets that were added after our cluster file was written.
 *
 *   ASK -> TAKE
 *
 * A server with a newer map says so in its welcome and in every reply, and refuses requests of
 * clients that do not know it; net then calls on_map_change(). The map is asked for before any
 * other call to that server. Targets are never removed and keep their ids: those of the cluster
 * file stay as they are there, the others are taken from the map.
 *
 * Threads: the loop's. Errors: without a map nothing changes, and the waiting request gets the
 * error. */
#include <stdlib.h>

#include "client/client_impl.h"

enum { ASK, TAKE };
static const char *const names[] = { [ASK] = "ask", [TAKE] = "take" };

struct learning {
	struct req q;
	struct client *c;
	struct peer *peer;
	struct req *waiter; /* or NULL */
	struct call call;
	struct wire_void_args args;
	struct wire_map_res res;
	struct arena arena;
};

void target_learn(struct client *c, const struct wire_map_target *t)
{
	struct conf_target ct = { .id = t->id, .roles = t->roles };

	if (t->id != c->n_peers || c->n_peers == CONF_MAX_TARGETS)
		return;
	text_copy(ct.name, sizeof(ct.name), t->name);
	text_copy(ct.address, sizeof(ct.address), t->address);
	log_info("client", "learned of %s (%s)", ct.name, ct.address);
	client_add(c, &ct, ct.address);
}

static bool step(struct req *q)
{
	struct learning *l = container_of(q, struct learning, q);
	struct req *waiter = l->waiter;
	int error = q->error;

	if (q->state == ASK) {
		req_goto(q, TAKE);
		l->call.front = true;
		peer_call(l->peer, &l->call, q);
		return true;
	}
	for (uint32_t i = 0; !error && i < l->res.n_targets; i++)
		target_learn(l->c, &l->res.targets[i]);
	if (error && error != -ESHUTDOWN)
		log_warn("client", "%s does not tell the map: %s", l->peer->address,
			 error_text(error));
	call_fini(&l->call);
	arena_destroy(&l->arena);
	req_fini(q);
	free(l);
	if (waiter)
		req_done(waiter, error, 0);
	return false;
}

static const struct req_ops learn_ops = REQ_OPS("learn-map", step, TAKE, names);

/* Asks the server for its map and adds the targets that are new; holds q (or NULL) until then. */
static void map_learn(struct client *c, struct peer *p, struct req *q)
{
	static const struct cred_wire root = { 0 };
	struct learning *l = calloc(1, sizeof(*l));

	if (q)
		req_hold(q);
	if (!l) {
		if (q)
			req_done(q, -ENOMEM, 0);
		return;
	}
	arena_init(&l->arena, MIB);
	l->c = c;
	l->peer = p;
	l->waiter = q;
	l->call = (struct call){ .op = OP_MAP,
				 .args = &l->args,
				 .res = &l->res,
				 .cred = &root,
				 .arena = &l->arena,
				 .trace = trace_new(c),
				 .deadline = c->loop->now + c->timeout_ns };
	req_init(&l->q, c->loop, &learn_ops, ASK);
	l->q.trace = l->call.trace;
	req_run(&l->q);
}

void map_changed(struct peer *p)
{
	map_learn(p->owner, p, NULL);
}

bool layout_learn(struct cop *op, const struct wire_layout_rec *l, uint64_t ino, struct req *q)
{
	bool known = true;

	for (uint32_t i = 0; i < l->n_targets; i++)
		known = known && l->targets[i] < op->c->n_peers;
	if (known || op->map_asked)
		return false;
	op->map_asked = true;
	map_learn(op->c, meta_peer(op->c, ino), q);
	return true;
}
