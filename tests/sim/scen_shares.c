/* Directed scenarios: clients of one server share a wire that serves whoever has posted more. Three
 * of them have many requests in flight, one has a single one. Shares are counted in requests of
 * equal length while all clients are busy. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/client_impl.h"
#include "net/link.h"
#include "net/rdma.h"
#include "sim_priv.h"
#include "sim_scenario.h"

#define CLIENTS 4 /* the last one has a single request in flight */
#define DEPTH 16 /* of the others */
#define BLOCK (256 * KIB)
#define PARTS 8 /* pieces of a block that the client writes by itself */
#define WARM_UP 50 /* requests before shares count */
#define MOVES 200
#define KIB_NS 1000 /* a GiB takes a second */

static uint8_t memory[CLIENTS][BLOCK];

struct mover {
	struct cfile *f;
	struct iovec iov[PARTS];
	size_t n_iov;
	bool write;
	uint32_t n_moved;
	struct cop *calls[DEPTH];
};

struct shares {
	struct world *w;
	struct mover movers[CLIENTS];
	uint32_t n_moved; /* of all */
};

static void move(struct world *w, struct mover *m, uint32_t client, struct cop **out)
{
	static const struct extent all = { 0, BLOCK };

	*out = scene_call(w, client);
	(m->write ? client_write : client_read)(*out, m->f, m->iov, m->n_iov, &all, 1);
}

static uint32_t depth_of(uint32_t client)
{
	return client == CLIENTS - 1 ? 1 : DEPTH;
}

/* Begins a call in place of each one that has ended. True: enough have. */
static bool continue_all(void *arg)
{
	struct shares *x = arg;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct mover *m = &x->movers[i];

		for (uint32_t k = 0; k < depth_of(i); k++) {
			if (!m->calls[k]->finished)
				continue;
			scene_check(x->w, m->calls[k]->result == BLOCK, "a call fails: %d",
				    (int)m->calls[k]->result);
			cop_free(m->calls[k]);
			m->n_moved++;
			x->n_moved++;
			move(x->w, m, i, &m->calls[k]);
		}
	}
	return x->n_moved >= MOVES;
}

static void begin_all(struct shares *x, bool write, size_t n_iov)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct mover *m = &x->movers[i];

		m->write = write;
		m->n_iov = n_iov;
		for (size_t k = 0; k < n_iov; k++) /* not in order: they stay separate ranges */
			m->iov[k ^ (n_iov > 1)] =
				(struct iovec){ memory[i] + k * BLOCK / n_iov, BLOCK / n_iov };
		for (uint32_t k = 0; k < depth_of(i); k++)
			move(x->w, m, i, &m->calls[k]);
	}
}

static void end_all(struct shares *x)
{
	for (uint32_t i = 0; i < CLIENTS; i++)
		for (uint32_t k = 0; k < depth_of(i); k++)
			scene_end(x->w, x->movers[i].calls[k]);
}

static bool is_warm(void *arg)
{
	continue_all(arg);
	return ((const struct shares *)arg)->n_moved >= WARM_UP;
}

/* The client with a single request moves at least half of a quarter. */
static void share(struct world *w, const char *what, struct cfile *files[CLIENTS], bool write,
		  size_t n_iov)
{
	struct shares x = { .w = w };
	uint32_t least;

	for (uint32_t i = 0; i < CLIENTS; i++)
		x.movers[i].f = files[i];
	begin_all(&x, write, n_iov);
	scene_until(w, is_warm, &x, "the clients do not begin");
	x.n_moved = 0;
	least = x.movers[CLIENTS - 1].n_moved;
	scene_until(w, continue_all, &x, "the clients do not continue");
	least = x.movers[CLIENTS - 1].n_moved - least;
	world_note(w, 0, "%s: %u of %u requests of %u clients", what, least, x.n_moved, CLIENTS);
	scene_check(w, least * CLIENTS * 2 >= x.n_moved, "%s: %u of %u requests of %u clients",
		    what, least, x.n_moved, CLIENTS);
	end_all(&x);
}

/* Bytes of the transfers that are posted or granted on the server's links, the most of one. */
static uint64_t most_outstanding(struct world *w)
{
	struct net *n = peek_net(w->targets[0].server);
	uint64_t most = 0;
	struct link *l;

	list_for_each(l, &n->links, in_net) {
		struct rdma_unit *u;
		struct rdma_grant *g;
		uint64_t sum = 0;

		if (!l->rdma)
			continue;
		list_for_each(u, &l->rdma->posted, link)
			sum += u->x ? u->x->len : 0;
		list_for_each(g, &l->rdma->grants, link)
			sum += g->x->len;
		most = MAX(most, sum);
	}
	return most;
}

struct alone {
	struct shares *x;
	uint64_t most;
};

static bool alone_ends(void *arg)
{
	struct alone *a = arg;

	a->most = MAX(a->most, most_outstanding(a->x->w));
	for (uint32_t k = 0; k < DEPTH; k++)
		if (!a->x->movers[0].calls[k]->finished)
			return false;
	return true;
}

/* A client that is alone has more than one window under way. */
static void use_alone(struct world *w, struct cfile *f)
{
	struct shares x = { .w = w };
	struct mover *m = &x.movers[0];
	struct alone a = { .x = &x };

	*m = (struct mover){ .f = f, .iov = { { memory[0], BLOCK } }, .n_iov = 1 };
	scene_pass(w, NSEC_PER_SEC);
	for (uint32_t k = 0; k < DEPTH; k++)
		move(w, m, 0, &m->calls[k]);
	scene_until(w, alone_ends, &a, "the reads do not end");
	scene_check(w, a.most > 2 * BLOCK, "a client that is alone has %llu bytes under way",
		    (unsigned long long)a.most);
	for (uint32_t k = 0; k < DEPTH; k++)
		scene_end(w, m->calls[k]);
}

static void clients_share_a_card(struct world *w)
{
	struct cfile *files[CLIENTS];
	struct cop *c;
	char name[8];

	scene_cards(w);
	w->conf.stripe_unit = 1 * MIB;
	w->conf.pool_bytes = 64 * MIB; /* so that it does not bound what is under way */
	w->sim.fabric.receive_depth = w->sim.fabric.send_depth = 4096;
	w->sim.fabric.message_max = 1 * MIB;
	w->targets[0].node->on_tmpfs = true;
	scene_down(w, 0, false);
	scene_up(w, 0);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		client_set_mover(w->actors[i].client, METHOD_GATHER);
		files[i] = scene_open(w, i, name, O_CREAT | O_RDWR);
		memset(memory[i], 1, BLOCK);
		c = scene_call(w, i);
		client_write(c, files[i], &(struct iovec){ memory[i], BLOCK }, 1,
			     &(struct extent){ 0, BLOCK }, 1);
		scene_check(w, scene_end(w, c) == BLOCK, "a write fails");
	}
	w->sim.fabric.kib_ns = KIB_NS;
	if (w->sim.fabric.is_ordered) /* else each window waits for the reply before it */
		use_alone(w, files[0]);
	share(w, "reads", files, false, 1);
	share(w, "writes", files, true, 1);
	share(w, "writes by the clients themselves", files, true, PARTS);
	for (uint32_t i = 0; i < CLIENTS && !w->failed; i++)
		scene_close(w, i, files[i]);
	scene_met(w);
}

const struct scenario scenes_shares[] = {
	{ "rdma-shares", clients_share_a_card, 1, 1, CLIENTS, false },
	{ 0 },
};
