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
#include "net/rdma.h"
#include "sim_card.h"
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

#define PARTS 8

/* The memory of a transfer: one piece, or several that are not in order. Returns their number. */
static size_t choose_pieces(struct world *w, uint64_t len, struct iovec iov[PARTS])
{
	size_t n = len >= PARTS && sim_chance(&w->sim, 500000) ? PARTS : 1;
	uint64_t part = len / n;

	for (size_t i = 0; i < n; i++) {
		size_t at = n - 1 - i;

		iov[i] = (struct iovec){ memory + at * part, at == n - 1 ? len - at * part : part };
	}
	return n;
}

/* One transfer that is disturbed. Returns whether it ended early. */
static bool disturb(struct world *w, struct cfile *f)
{
	struct sim *s = &w->sim;
	uint64_t len = sim_between(s, 1, BYTES), off = sim_between(s, 0, BYTES - len);
	bool write = sim_chance(s, 500000);
	struct iovec iov[PARTS];
	size_t n = choose_pieces(w, len, iov);
	const struct extent ext = { off, len };
	struct cop *c = scene_call(w, 0);
	int64_t r;

	memset(memory, (int)sim_between(s, 1, 200), len);
	if (write)
		client_write(c, f, iov, n, &ext, 1);
	else
		client_read(c, f, iov, n, &ext, 1);
	scene_pass(w, sim_between(s, 0, 4 * NSEC_PER_MSEC));
	end_transfers(w, sim_chance(s, 250000));
	r = scene_end(w, c);
	for (uint64_t i = 0; n == 1 && r > 0 && !write && i < (uint64_t)r && !w->failed; i++)
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
	client_set_mover(w->actors[0].client, METHOD_GATHER);
	memory_is_reused(w);
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		moved += sim_fabric_counts(w->targets[i].node)->requests;
	w->met = w->met && moved > ROUNDS;
}

/* ---- buffers of a server ---- */

#define CUTS 200 /* links that the server closes */
#define MOVES 4 /* of each client at once: together more than the pool has */
#define MOVE_BYTES (250 * KIB)

static uint8_t moved[2][MOVES][MOVE_BYTES]; /* memory of client 0 and 1 */

static void begin_moves(struct world *w, uint32_t client, struct cfile *f, bool write, int value,
			struct cop *out[MOVES])
{
	static struct iovec iov[2][MOVES];
	static struct extent ext[MOVES];

	for (int i = 0; i < MOVES; i++) {
		memset(moved[client][i], value, MOVE_BYTES);
		iov[client][i] = (struct iovec){ moved[client][i], MOVE_BYTES };
		ext[i] = (struct extent){ (uint64_t)i * MOVE_BYTES, MOVE_BYTES };
		out[i] = scene_call(w, client);
		if (write)
			client_write(out[i], f, &iov[client][i], 1, &ext[i], 1);
		else
			client_read(out[i], f, &iov[client][i], 1, &ext[i], 1);
	}
}

static void end_moves(struct world *w, struct cop *c[MOVES])
{
	for (int i = 0; i < MOVES; i++) {
		int64_t r = scene_end(w, c[i]);

		scene_check(w, r == MOVE_BYTES, "a call is answered with %d", (int)r);
	}
}

/* The server's link with client 1, while its card reads that client's memory; or NULL. */
static struct link *reading_link(struct world *w)
{
	struct net *n = peek_net(w->targets[0].server);
	struct rdma_unit *u;
	struct link *l;

	list_for_each(l, &n->links, in_net) {
		if (strcmp(l->host, w->actors[1].node->name) || !l->rdma)
			continue;
		list_for_each(u, &l->rdma->posted, link)
			if (u->kind == RDMA_READ)
				return l;
	}
	return NULL;
}

static bool reads_memory(void *arg)
{
	return reading_link(arg);
}

/* Closes that link at a random moment. */
static bool close_reading_link(struct world *w)
{
	struct link *l;

	w->actors[1].client->peers[0].rdma_retry_at = 0;
	sim_run(&w->sim, reads_memory, w, 10 * NSEC_PER_MSEC);
	scene_pass(w, sim_between(&w->sim, 0, 20000));
	l = reading_link(w);
	if (l)
		link_close(l, -ECONNRESET);
	return l;
}

static void check_moved(struct world *w, int value)
{
	const uint8_t *bytes = moved[0][0];

	for (size_t i = 0; i < MOVES * MOVE_BYTES && !w->failed; i++)
		scene_check(w, bytes[i] == value, "byte %zu is %d, not %d", i, bytes[i], value);
}

/* The disk is as fast as memory: buffers have what a client reads as soon as they are free. */
static void use_memory(struct world *w)
{
	w->targets[0].node->on_tmpfs = true;
	scene_down(w, 0, false);
	scene_up(w, 0);
}

/* A link closes, and its buffers serve another client at once: nothing of the first client's data
 * may land in them any more. */
static void buffers_are_reused(struct world *w)
{
	struct cop *calls[2][MOVES];
	struct cfile *files[2];
	uint32_t n_closed = 0;

	scene_cards(w);
	w->sim.fabric.step_max = 50000; /* reads that were under way land late */
	use_memory(w);
	for (uint32_t i = 0; i < 2; i++)
		files[i] = scene_open(w, i, i ? "f1" : "f0", O_CREAT | O_RDWR);
	for (int k = 0; k < CUTS && !w->failed; k++) {
		bool write = k % 10 == 0;

		begin_moves(w, 1, files[1], true, 200 + k % 50, calls[1]);
		begin_moves(w, 0, files[0], write, write ? k / 10 : 255, calls[0]);
		n_closed += close_reading_link(w);
		end_moves(w, calls[0]);
		end_moves(w, calls[1]);
		check_moved(w, k / 10);
	}
	for (uint32_t i = 0; i < 2 && !w->failed; i++)
		scene_close(w, i, files[i]);
	if (n_closed > CUTS / 20)
		scene_met(w);
}

/* ---- few queue pairs ---- */

/* Moves bytes of clients 0 and 1, and checks them. */
static void move_both(struct world *w, struct cfile *files[2], int value)
{
	const uint8_t *bytes[] = { moved[0][0], moved[1][0] };
	struct cop *calls[2][MOVES];

	for (int write = 1; write >= 0; write--) {
		for (uint32_t i = 0; i < 2; i++)
			begin_moves(w, i, files[i], write, write ? value + (int)i : 0, calls[i]);
		for (uint32_t i = 0; i < 2; i++)
			end_moves(w, calls[i]);
	}
	for (size_t i = 0; i < MOVES * MOVE_BYTES && !w->failed; i++)
		scene_check(w, bytes[0][i] == value && bytes[1][i] == value + 1,
			    "byte %zu is %d and %d", i, bytes[0][i], bytes[1][i]);
}

static bool has_no_queue_pair(void *arg)
{
	struct world *w = arg;

	return !sim_fabric_counts(w->targets[0].node)->qps;
}

/* The card of the server has one queue pair: the first client gets it, the other one stays on TCP
 * and has the reason. When the first has gone, a new link of the other gets it. */
static void queue_pairs_run_out(struct world *w)
{
	struct cfile *files[2];
	struct peer *p;

	scene_cards(w);
	w->sim.fabric.qps_max = 1;
	use_memory(w);
	for (uint32_t i = 0; i < 2; i++) {
		client_set_mover(w->actors[i].client, METHOD_GATHER);
		files[i] = scene_open(w, i, i ? "f1" : "f0", O_CREAT | O_RDWR);
	}
	if (w->failed)
		return;
	p = &w->actors[1].client->peers[0];
	move_both(w, files, 7);
	scene_check(w, link_has_rdma(w->actors[0].client->peers[0].link), "no RDMA");
	scene_check(w, !link_has_rdma(p->link) && strstr(p->rdma_why, "no further queue pair"),
		    "no reason: %s", p->rdma_why);
	scene_die(w, 0);
	scene_until(w, has_no_queue_pair, w, "the server keeps the queue pair of a dead client");
	link_close(p->link, -ECONNRESET);
	scene_lookup(w, 1, "none", NULL);
	scene_check(w, p->link && link_has_rdma(p->link), "still no RDMA: %s", p->rdma_why);
	scene_close(w, 1, files[1]);
	scene_met(w);
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
	for (int i = 0; i < 6 && !w->failed; i++) { /* a server may not know FETCH */
		w->actors[0].client->peers[0].link->peer_fetches = i % 2;
		move_many_pieces(w, f, true);
		move_many_pieces(w, f, false);
	}
	if (w->failed)
		return;
	scene_check(w, link_has_rdma(w->actors[0].client->peers[0].link), "no RDMA");
	scene_close(w, 0, f);
	scene_met(w);
}

/* ---- requests that the server reads ---- */

#define AT_ONCE 4
#define FETCHED_BYTES (SEGMENTS_MAX * SHORT_PIECE)

/* A read into as many pieces as there may be: their descriptor makes the request long. */
static struct cop *read_many_pieces(struct world *w, struct cfile *f, uint32_t i)
{
	static struct iovec iov[AT_ONCE][SEGMENTS_MAX];
	static const struct extent all = { 0, FETCHED_BYTES };
	struct cop *c = scene_call(w, 0);

	memset(memory + i * FETCHED_BYTES, 0, FETCHED_BYTES);
	for (size_t k = 0; k < SEGMENTS_MAX; k++)
		iov[i][k] = (struct iovec){ memory + i * FETCHED_BYTES + (k ^ 1) * SHORT_PIECE,
					    SHORT_PIECE };
	client_read(c, f, iov[i], SEGMENTS_MAX, &all, 1);
	return c;
}

static void end_reads(struct world *w, struct cop *calls[AT_ONCE])
{
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		int64_t r = scene_end(w, calls[i]);

		scene_check(w, r == FETCHED_BYTES, "a read of many pieces: %d", (int)r);
	}
	for (size_t i = 0; i < AT_ONCE * FETCHED_BYTES && !w->failed; i++)
		scene_check(w, memory[i] == 7, "byte %zu is %d", i, memory[i]);
}

/* Long requests are read by the server, one RDMA READ for each, also when several leave at once or
 * their link breaks meanwhile. Their memory is not used for anything else before that. */
static void requests_are_fetched(struct world *w)
{
	struct client *c = w->actors[0].client;
	struct cop *calls[AT_ONCE];
	uint64_t reads;
	struct cfile *f;

	scene_cards(w);
	w->conf.stripe_unit = 1 * MIB;
	client_set_mover(c, METHOD_GATHER);
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	move_many_pieces(w, f, true);
	for (int k = 0; k < 20 && !w->failed; k++) {
		struct link *l = c->peers[0].link;
		bool cuts = k % 4 == 3;

		c->peers[0].parts_until = 0; /* of the last cut */
		c->peers[0].round = 1; /* parts never pay off */
		reads = w->sim.injected[SIM_CARD_READ];
		for (uint32_t i = 0; i < AT_ONCE; i++)
			calls[i] = read_many_pieces(w, f, i);
		if (cuts) {
			scene_pass(w, sim_between(&w->sim, 0, 200000));
			link_close(l, -ECONNRESET);
		}
		end_reads(w, calls);
		reads = w->sim.injected[SIM_CARD_READ] - reads;
		scene_check(w, cuts || (l == c->peers[0].link && reads == AT_ONCE),
			    "%d requests: %d of them were read", AT_ONCE, (int)reads);
	}
	check_accesses(w);
	if (w->failed)
		return;
	scene_close(w, 0, f);
	scene_met(w);
}

/* A CANCEL that leaves in the same turn as its request, which travels in parts, arrives behind it:
 * the server stops before it has moved all of its data. */
static void cancels_follow_parts(struct world *w)
{
	static struct iovec iov[SEGMENTS_MAX];
	const struct extent all = { 0, BYTES };
	struct client *c = w->actors[0].client;
	uint64_t wrote, rounds = 20;
	struct cfile *f;
	struct cop *call;
	int64_t r;

	scene_cards(w);
	w->conf.stripe_unit = BYTES;
	client_set_mover(c, METHOD_GATHER);
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	for (size_t i = 0; i < SEGMENTS_MAX; i++)
		iov[i] = (struct iovec){ memory + (i ^ 1) * (BYTES / SEGMENTS_MAX),
					 BYTES / SEGMENTS_MAX };
	memset(memory, 7, BYTES);
	call = scene_call(w, 0);
	client_write(call, f, iov, SEGMENTS_MAX, &all, 1);
	r = scene_end(w, call);
	scene_check(w, r == BYTES, "a write of many pieces: %d", (int)r);
	wrote = w->sim.injected[SIM_CARD_WROTE];
	for (uint64_t i = 0; i < rounds && !w->failed; i++) {
		c->peers[0].link->peer_fetches = false;
		call = scene_call(w, 0);
		client_read(call, f, iov, SEGMENTS_MAX, &all, 1);
		end_transfers(w, false);
		r = scene_end(w, call);
		scene_check(w, r == -EINTR, "a read that was cancelled: %d", (int)r);
	}
	wrote = w->sim.injected[SIM_CARD_WROTE] - wrote;
	scene_check(w, wrote < rounds * SEGMENTS_MAX, "every read went on to its end");
	check_accesses(w);
	if (w->failed)
		return;
	scene_close(w, 0, f);
	scene_met(w);
}

/* ---- the limit of registered memory ---- */

#define PINNED_MAX (600 * KIB) /* two transfers of MOVE_BYTES */

struct pinned {
	struct rdma_device *card;
	struct cop **calls;
	uint64_t most;
};

static bool all_ended(void *arg)
{
	struct pinned *p = arg;
	struct reg_counts counts;

	reg_get_counts(p->card->reg, &counts);
	p->most = MAX(p->most, counts.pinned_bytes);
	for (int i = 0; i < MOVES; i++)
		if (!p->calls[i]->finished)
			return false;
	return true;
}

/* A client registers no more of its user's memory than the cluster file permits, and packs the
 * rest. */
static void registered_memory_is_limited(struct world *w)
{
	struct client *c = w->actors[0].client;
	const uint64_t *bytes = c->peers[0].account.bytes;
	struct cop *calls[MOVES];
	struct pinned p = { .calls = calls };
	struct cfile *f;

	scene_cards(w);
	c->net->rdma.pinned_max = PINNED_MAX;
	client_set_mover(c, METHOD_GATHER);
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	p.card = c->net->rdma.device;
	for (int write = 1; write >= 0 && !w->failed; write--) {
		begin_moves(w, 0, f, write, write ? 7 : 0, calls);
		scene_until(w, all_ended, &p, "the calls do not end");
		end_moves(w, calls);
		check_moved(w, 7);
		scene_check(w, p.most && p.most <= PINNED_MAX, "%llu bytes are registered",
			    (unsigned long long)p.most);
	}
	scene_check(w, bytes[METHOD_PACK] && bytes[METHOD_GATHER] + bytes[METHOD_DRIVEN],
		    "all is packed, or nothing");
	scene_close(w, 0, f);
	scene_met(w);
}

/* A long request without other memory: its reply must be a success. Returns how many READs were
 * posted. */
static uint64_t set_long_xattr(struct world *w, struct sheaf_handle h)
{
	static uint8_t value[60000];
	uint64_t reads = w->sim.injected[SIM_CARD_READ];
	struct cop *c = scene_call(w, 0);
	int64_t r;

	client_setxattr(c, h, "user.a", value, sizeof(value), 0);
	r = scene_end(w, c);
	scene_check(w, !r, "a long request: %d", (int)r);
	return w->sim.injected[SIM_CARD_READ] - reads;
}

/* A server that cannot register memory for a long request gets it in parts. */
static void fetch_without_memory(struct world *w)
{
	struct sheaf_handle d;
	struct fabric *f;
	uint64_t n;

	scene_cards(w);
	peek_net(w->targets[0].server)->longs_max = 0;
	d = scene_mkdir(w, 0, "d");
	w->actors[0].client->peers[0].round = 1; /* parts never pay off */
	n = set_long_xattr(w, d);
	if (w->failed)
		return;
	scene_check(w, n == 1, "%d READs of one request", (int)n);
	list_for_each(f, &w->targets[0].node->card->fabrics, link)
		w->sim.fabric.memory_max = f->bytes;
	n = set_long_xattr(w, d);
	scene_check(w, !n, "the server has registered memory");
	w->sim.fabric.memory_max = 0;
	scene_pass(w, 61 * NSEC_PER_SEC);
	n = set_long_xattr(w, d);
	scene_check(w, n == 1, "%d READs of one request, later", (int)n);
	scene_met(w);
}

/* ---- requests that take longer than the timeout ---- */

#define SLOW_TIMEOUT_MS 4000
#define SLOW_BYTES (8 * MIB)

/* An access of pieces of this many bytes. True: it has taken longer than the timeout. */
static bool move_slowly(struct world *w, struct cfile *f, bool write, size_t piece)
{
	static struct iovec iov[SLOW_BYTES / (16 * KIB)];
	static uint8_t bytes[SLOW_BYTES];
	const struct extent all = { 0, SLOW_BYTES };
	uint64_t began = w->sim.now;
	struct cop *c = scene_call(w, 0);
	size_t n = SLOW_BYTES / piece;
	uint64_t took;
	int64_t r;

	for (size_t i = 0; i < n; i++)
		iov[i] = (struct iovec){ bytes + (n == 1 ? i : i ^ 1) * piece, piece };
	memset(bytes, write ? 7 : 0, SLOW_BYTES);
	if (write)
		client_write(c, f, iov, n, &all, 1);
	else
		client_read(c, f, iov, n, &all, 1);
	r = scene_end(w, c);
	took = w->sim.now - began;
	scene_check(w, r == SLOW_BYTES, "%s of pieces of %zu bytes: %d",
		    write ? "a write" : "a read", piece, (int)r);
	for (size_t i = 0; i < SLOW_BYTES && !w->failed; i++)
		scene_check(w, bytes[i] == 7, "byte %zu is %d", i, bytes[i]);
	return took > SLOW_TIMEOUT_MS * NSEC_PER_MSEC;
}

/* As over TCP, a request does not time out while its data move. */
static void slow_requests_end(struct world *w)
{
	static const struct {
		size_t piece;
		uint64_t step_ms;
	} rows[] = { { SLOW_BYTES, 40 }, { 256 * KIB, 40 }, { 16 * KIB, 10 } };
	uint32_t n_slow = 0;
	struct client *c = w->actors[0].client;
	struct cfile *f;

	scene_cards(w);
	w->conf.stripe_unit = SLOW_BYTES;
	client_set_mover(c, METHOD_GATHER);
	c->net->id.timeout_ms = SLOW_TIMEOUT_MS;
	c->timeout_ns = SLOW_TIMEOUT_MS * NSEC_PER_MSEC;
	peek_net(w->targets[0].server)->id.timeout_ms = SLOW_TIMEOUT_MS;
	w->sim.faults.slow = 0; /* no single delay is as long as the timeout */
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	for (size_t i = 0; i < ARRAY_LEN(rows) && !w->failed; i++) {
		w->sim.fabric.step_min = rows[i].step_ms * NSEC_PER_MSEC;
		w->sim.fabric.step_max = 2 * w->sim.fabric.step_min;
		n_slow += move_slowly(w, f, true, rows[i].piece);
		n_slow += move_slowly(w, f, false, rows[i].piece);
	}
	if (w->failed)
		return;
	scene_close(w, 0, f);
	if (n_slow == 2 * ARRAY_LEN(rows))
		scene_met(w);
}

/* ---- writes that the client moves because it is forced to ---- */

static void one_move(struct world *w, struct cfile *f, bool write, enum net_method by)
{
	const uint64_t *bytes = w->actors[0].client->peers[0].account.bytes;
	uint64_t before = bytes[by];
	const struct iovec iov = { moved[0][0], MOVE_BYTES };
	const struct extent ext = { 0, MOVE_BYTES };
	struct cop *c = scene_call(w, 0);

	memset(moved[0][0], write ? 9 : 0, MOVE_BYTES);
	if (write)
		client_write(c, f, &iov, 1, &ext, 1);
	else
		client_read(c, f, &iov, 1, &ext, 1);
	scene_check(w, scene_end(w, c) == MOVE_BYTES, "a call fails");
	scene_check(w, bytes[by] == before + MOVE_BYTES, "%s: %llu bytes", net_method_name(by),
		    (unsigned long long)(bytes[by] - before));
	for (size_t i = 0; i < MOVE_BYTES && !w->failed; i++)
		scene_check(w, moved[0][0][i] == 9, "byte %zu is %d", i, moved[0][0][i]);
}

/* A server would read one piece by itself. Forced, the client writes it, unless the server must
 * not grant anything. */
static void writes_are_driven(struct world *w)
{
	struct cfile *f;

	scene_cards(w);
	w->conf.stripe_unit = 1 * MIB;
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	client_set_mover(w->actors[0].client, METHOD_GATHER);
	one_move(w, f, true, METHOD_GATHER);
	client_set_mover(w->actors[0].client, METHOD_DRIVEN);
	one_move(w, f, true, METHOD_DRIVEN);
	one_move(w, f, false, METHOD_GATHER);
	peek_net(w->targets[0].server)->rdma.never_driven = true;
	one_move(w, f, true, METHOD_GATHER);
	scene_close(w, 0, f);
	scene_met(w);
}

/* ---- reads through a buffer ---- */

#define SHORT_BYTES (100 * KIB)

static int64_t access_packed(struct world *w, struct cfile *f, uint64_t len, bool write, int value)
{
	const struct iovec iov = { moved[0][0], len };
	const struct extent ext = { 0, len };
	struct cop *c = scene_call(w, 0);

	memset(moved[0][0], value, MOVE_BYTES);
	if (write)
		client_write(c, f, &iov, 1, &ext, 1);
	else
		client_read(c, f, &iov, 1, &ext, 1);
	return scene_end(w, c);
}

/* A read of len bytes returns all of a short file, and changes no byte behind its end. */
static void read_short_file(struct world *w, struct cfile *f, uint64_t len, uint64_t copies)
{
	const struct net_account *a = &w->actors[0].client->peers[0].account;
	uint64_t copied = a->copied;
	int64_t r = access_packed(w, f, len, false, 5);

	scene_check(w, r == SHORT_BYTES, "a read of %llu returns %lld", (unsigned long long)len,
		    (long long)r);
	for (size_t i = 0; i < MOVE_BYTES && !w->failed; i++)
		scene_check(w, moved[0][0][i] == (i < SHORT_BYTES ? 9 : 5), "byte %zu is %d", i,
			    moved[0][0][i]);
	copied = a->copied - copied;
	scene_check(w, copied == copies * len, "%llu bytes are copied", (unsigned long long)copied);
}

/* The buffer has data of another file. A read within the file copies each byte once; one beyond
 * its end is sent again, with the user's bytes in the buffer. */
static void packed_reads_are_exact(struct world *w)
{
	struct cfile *f, *g;

	scene_cards(w);
	w->conf.stripe_unit = 1 * MIB;
	client_set_mover(w->actors[0].client, METHOD_PACK);
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	g = scene_open(w, 0, "g", O_CREAT | O_RDWR);
	access_packed(w, f, SHORT_BYTES, true, 9);
	access_packed(w, g, SHORT_BYTES, true, 200);
	read_short_file(w, f, SHORT_BYTES, 1);
	access_packed(w, g, MOVE_BYTES, true, 200);
	read_short_file(w, f, MOVE_BYTES, 2);
	scene_close(w, 0, f);
	scene_close(w, 0, g);
	scene_met(w);
}

/* ---- a server whose card cannot be used ---- */

/* The server may not register its pool: clients use TCP and know why. */
static void reason_is_told(struct world *w)
{
	const struct peer *p = &w->actors[0].client->peers[0];

	scene_cards(w);
	w->conf.pool_bytes = 64 * MIB;
	w->sim.fabric.memory_max = 4 * MIB;
	scene_down(w, 0, false);
	scene_up(w, 0);
	scene_close(w, 0, scene_open(w, 0, "f", O_CREAT | O_RDWR));
	scene_check(w, !strncmp(p->rdma_why, "the server: cannot register 64 MiB", 34),
		    "the client knows as the reason: %s", p->rdma_why);
	scene_check(w, p->link && !link_has_rdma(p->link), "the link has RDMA");
	scene_met(w);
}

/* ---- a server that cannot reach a client's card ---- */

#define TRIES_S 190 /* attempts at 0, 1, 3, 7, 15, 31, 63, 123 and 183 s */
#define TRIES_MIN 8
#define TRIES_MAX 10

/* Dials again, and asks for RDMA at once. Returns whether the link has it. */
static bool dial_for_rdma(struct world *w, uint32_t client)
{
	struct peer *p = &w->actors[client].client->peers[0];

	p->rdma_retry_at = 0;
	if (p->link)
		link_close(p->link, -ECONNRESET);
	scene_lookup(w, client, "none", NULL);
	return p->link && link_has_rdma(p->link);
}

/* For TRIES_S a client asks again and again: the attempts of the server become rare. */
static void ask_all_the_time(struct world *w)
{
	const struct sim_fabric_counts *server = sim_fabric_counts(w->targets[0].node);
	uint64_t before = server->connects, end = w->sim.now + TRIES_S * NSEC_PER_SEC, n;

	w->sim.fabric.no_path = UINT32_MAX;
	while (w->sim.now < end && !w->failed) {
		scene_check(w, !dial_for_rdma(w, 1), "RDMA without a path");
		scene_pass(w, NSEC_PER_SEC / 4);
	}
	n = server->connects - before;
	scene_check(w, n >= TRIES_MIN && n <= TRIES_MAX, "%llu attempts", (unsigned long long)n);
	w->sim.fabric.no_path = 0;
}

/* An attempt to connect to a client's card gets no answer, which holds up a server. All clients
 * have the same address here. They stay on TCP for a second; the client itself asks again later. */
static void cards_out_of_reach(struct world *w)
{
	struct peer *p[] = { &w->actors[0].client->peers[0], &w->actors[1].client->peers[0] };

	scene_cards(w);
	w->sim.fabric.no_path = 1;
	scene_lookup(w, 0, "none", NULL);
	scene_check(w, strstr(p[0]->rdma_why, "cannot reach the client's queue pair"),
		    "no reason: %s", p[0]->rdma_why);
	scene_lookup(w, 1, "none", NULL);
	scene_check(w, strstr(p[1]->rdma_why, "it could not reach this host's RDMA address"),
		    "no reason: %s", p[1]->rdma_why);
	scene_pass(w, NSEC_PER_SEC);
	scene_check(w, dial_for_rdma(w, 1), "no RDMA after a second: %s", p[1]->rdma_why);
	scene_pass(w, 60 * NSEC_PER_SEC);
	scene_check(w, p[0]->link && link_has_rdma(p[0]->link), "not asked again: %s",
		    p[0]->rdma_why);
	scene_pass(w, 60 * NSEC_PER_SEC); /* the server forgets the failure */
	ask_all_the_time(w);
	scene_pass(w, 60 * NSEC_PER_SEC);
	scene_check(w, dial_for_rdma(w, 1), "no RDMA after a minute: %s", p[1]->rdma_why);
	scene_met(w);
}

const struct scenario scenes_links[] = {
	{ "rdma-slow-requests", slow_requests_end, 1, 1, 1, false },
	{ "rdma-fetch-without-memory", fetch_without_memory, 1, 1, 1, false },
	{ "rdma-requests-fetched", requests_are_fetched, 1, 1, 2, false },
	{ "rdma-cancel-behind-parts", cancels_follow_parts, 1, 1, 1, false },
	{ "rdma-packed-reads", packed_reads_are_exact, 1, 1, 1, false },
	{ "rdma-driven", writes_are_driven, 1, 1, 1, false },
	{ "rdma-out-of-reach", cards_out_of_reach, 1, 1, 2, false },
	{ "rdma-reason-told", reason_is_told, 1, 1, 1, false },
	{ "rdma-pinned-max", registered_memory_is_limited, 1, 1, 1, false },
	{ "rdma-buffers-reused", buffers_are_reused, 1, 1, 2, false },
	{ "rdma-long-messages", long_messages, 1, 1, 2, false },
	{ "rdma-queue-pairs-run-out", queue_pairs_run_out, 1, 1, 2, false },
	{ "memory-reused", memory_is_reused, 2, 1, 1, false },
	{ "memory-reused-by-card", memory_is_reused, 2, 1, 1, true },
	{ "memory-reused-by-rdma", memory_is_reused_by_rdma, 2, 1, 1, false },
	{ 0 },
};
