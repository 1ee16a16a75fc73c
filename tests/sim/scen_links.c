/* Directed scenarios: transfers that end early, while their memory is in use again at once. A
 * transfer is cancelled, or its link breaks, at a random moment. From the moment its call has
 * ended, nothing may write into its memory, and no byte of the memory's next use may reach the
 * file. The simulated card, as a real one, closes a link whose peer accesses memory that has been
 * withdrawn; that must not happen, either. Rounds are many: SCENE_SEEDS times ROUNDS. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/client_impl.h"
#include "net/link.h"
#include "sim_priv.h"
#include "sim_scenario.h"

#define ROUNDS 500
#define BYTES (1 * MIB)
#define REUSED 0xee /* the memory's next use; the file never has it */

static uint8_t memory[BYTES];

/* Ends what the client has in flight with memory: its calls, or the links below them. */
static void end_transfers(struct world *w, bool cut)
{
	struct client *c = w->actors[0].client;

	for (uint32_t i = 0; i < c->n_peers; i++) {
		struct peer *p = &c->peers[i];

		for (uint32_t k = 0; k < SESSION_SLOTS; k++) {
			struct call *call = p->slots[k].call;

			if (call && call->mem && !cut)
				peer_cancel(call, -EINTR);
		}
		if (cut && p->link && sim_chance(&w->sim, 500000))
			link_close(p->link, -ECONNRESET);
	}
}

static void check_accesses(struct world *w)
{
	scene_check(w, !peek_bad_links(w->actors[0].client),
		    "a transfer found its memory withdrawn: its call ended before it");
	for (uint32_t i = 0; i < w->sim.n_nodes; i++)
		scene_check(w, !sim_fabric_counts(w->sim.nodes[i])->refused,
			    "%s's card refused a key: its memory was withdrawn too early",
			    w->sim.nodes[i]->name);
}

/* One transfer that is disturbed. Returns whether it ended early. */
static bool disturb(struct world *w, struct cfile *f)
{
	struct sim *s = &w->sim;
	uint64_t len = sim_between(s, 1, BYTES), off = sim_between(s, 0, BYTES - len);
	bool write = sim_chance(s, 500000);
	const struct iovec iov = { memory, len };
	const struct extent ext = { off, len };
	struct cop *c = scene_call(w, 0);
	int64_t r;

	memset(memory, (int)sim_between(s, 1, 200), len);
	if (write)
		client_write(c, f, &iov, 1, &ext, 1);
	else
		client_read(c, f, &iov, 1, &ext, 1);
	scene_pass(w, sim_between(s, 0, 4 * NSEC_PER_MSEC));
	end_transfers(w, sim_chance(s, 250000));
	r = scene_end(w, c);
	for (uint64_t i = 0; r > 0 && !write && i < (uint64_t)r && !w->failed; i++)
		scene_check(w, memory[i] != REUSED, "a read returns a byte of reused memory");
	memset(memory, REUSED, len);
	scene_pass(w, sim_between(s, 0, 10 * NSEC_PER_MSEC));
	check_accesses(w);
	for (uint64_t i = 0; i < len && !w->failed; i++)
		scene_check(w, memory[i] == REUSED, "memory is written after its call ended: %d",
			    memory[i]);
	return r == -EINTR;
}

static void memory_is_reused(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	const struct iovec iov = { memory, BYTES };
	const struct extent all = { 0, BYTES };
	uint32_t early = 0;
	struct cop *c;
	int64_t r;

	for (int i = 0; i < ROUNDS && !w->failed; i++)
		early += disturb(w, f);
	if (w->failed)
		return;
	if (early > ROUNDS / 20)
		scene_met(w);
	c = scene_call(w, 0);
	client_read(c, f, &iov, 1, &all, 1);
	r = scene_end(w, c);
	scene_check(w, r > 0, "the file cannot be read: %lld", (long long)r);
	for (uint64_t i = 0; r > 0 && i < (uint64_t)r && !w->failed; i++)
		scene_check(w, memory[i] != REUSED, "byte %llu of the file is of reused memory",
			    (unsigned long long)i);
	scene_close(w, 0, f);
}

static void memory_is_reused_by_rdma(struct world *w)
{
	uint64_t moved = 0;

	scene_cards(w);
	memory_is_reused(w);
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		moved += sim_fabric_counts(w->targets[i].node)->requests;
	w->met = w->met && moved > ROUNDS;
}

/* ---- long messages ---- */

#define NAMES 150
#define NAME_BYTES 200
#define SHORT_PIECE 100
#define DEPTH 24 /* receives of a card: fewer than the parts of the messages of two links */

/* The messages of client 0 and of the server, in both directions. */
struct traffic {
	uint64_t requests, replies;
};

static struct traffic traffic(struct world *w)
{
	const struct net_account *a = &w->actors[0].client->peers[0].account;

	return (struct traffic){ a->messages_sent, a->messages_received };
}

static void check_traffic(struct world *w, struct traffic before, const char *what)
{
	struct traffic now = traffic(w);

	scene_check(w, now.requests == before.requests + 1 && now.replies == before.replies + 1,
		    "%s: %llu requests and %llu replies", what,
		    (unsigned long long)(now.requests - before.requests),
		    (unsigned long long)(now.replies - before.replies));
}

static void list_many_names(struct world *w)
{
	struct sheaf_handle d = scene_mkdir(w, 0, "d");
	struct traffic before;
	struct cop *c;
	int64_t r;

	for (int i = 0; i < NAMES && !w->failed; i++) {
		char name[NAME_BYTES + 8];

		snprintf(name, sizeof(name), "d/%0*d", NAME_BYTES, i);
		scene_mkdir(w, 0, name);
	}
	c = scene_call(w, 0);
	before = traffic(w);
	client_readdir(c, d, 0, 2 * NAMES, false);
	r = scene_wait(w, c);
	scene_check(w, !r && c->res.readdir.n_entries == NAMES, "%u of %u names are listed: %d",
		    c->res.readdir.n_entries, NAMES, (int)r);
	check_traffic(w, before, "the list of many names");
	scene_end(w, c);
	scene_sweep(w, d); /* removes 100 of them; the rest goes in the end */
}

/* An access with a descriptor of as many segments as there may be. */
static void move_many_pieces(struct world *w, struct cfile *f, bool write)
{
	static struct iovec iov[SEGMENTS_MAX];
	const struct extent all = { 0, SEGMENTS_MAX * SHORT_PIECE };
	struct traffic before = traffic(w);
	struct cop *c = scene_call(w, 0);
	int64_t r;

	for (size_t i = 0; i < SEGMENTS_MAX; i++)
		iov[i] = (struct iovec){ memory + (i ^ 1) * SHORT_PIECE, SHORT_PIECE };
	memset(memory, write ? 7 : 0, all.length);
	if (write)
		client_write(c, f, iov, SEGMENTS_MAX, &all, 1);
	else
		client_read(c, f, iov, SEGMENTS_MAX, &all, 1);
	r = scene_end(w, c);
	scene_check(w, r == (int64_t)all.length, "an access of many pieces: %d", (int)r);
	for (size_t i = 0; i < all.length && !w->failed; i++)
		scene_check(w, memory[i] == 7, "byte %zu is %d", i, memory[i]);
	if (!write) /* invitations are messages, too */
		check_traffic(w, before, "a read into many pieces");
}

/* Messages of many parts, on cards with few receives. */
static void long_messages(struct world *w)
{
	struct cfile *f;

	scene_cards(w);
	w->sim.fabric.receive_depth = DEPTH;
	w->conf.stripe_unit = 1 * MIB;
	for (uint32_t i = 0; i < 2; i++) {
		scene_close(w, i, scene_open(w, i, i ? "g" : "h", O_CREAT | O_RDWR));
		client_set_mover(w->actors[i].client, METHOD_GATHER);
	}
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	list_many_names(w);
	for (int i = 0; i < 5 && !w->failed; i++) {
		move_many_pieces(w, f, true);
		move_many_pieces(w, f, false);
	}
	if (w->failed)
		return;
	scene_check(w, link_has_rdma(w->actors[0].client->peers[0].link), "no RDMA");
	scene_close(w, 0, f);
	scene_met(w);
}

const struct scenario scenes_links[] = {
	{ "rdma-long-messages", long_messages, 1, 1, 2, false },
	{ "memory-reused", memory_is_reused, 2, 1, 1, false },
	{ "memory-reused-by-card", memory_is_reused, 2, 1, 1, true },
	{ "memory-reused-by-rdma", memory_is_reused_by_rdma, 2, 1, 1, false },
	{ 0 },
};
