/* Directed scenarios: the shortcuts of one host, and clients that use them after losing a lock. */
#include <fcntl.h>
#include <stdio.h>

#include "sim_scenario.h"

#define BYTES (512 * KIB)
#define OWNER 1

/* Puts all nodes on one host with storage in memory. */
static void share_host(struct world *w)
{
	for (uint32_t i = 0; i < w->sim.n_nodes; i++) {
		w->sim.nodes[i]->host = SIM_MAX_NODES;
		w->sim.nodes[i]->on_tmpfs = true;
	}
	for (uint32_t i = 0; i < w->conf.n_targets; i++) { /* a restart makes the servers notice */
		scene_down(w, i, false);
		scene_up(w, i);
	}
	scene_pass(w, NSEC_PER_SEC);
}

static struct cop *begin_lock(struct world *w, uint32_t client, struct cfile *f)
{
	struct wire_lock want = { .owner = OWNER, .last = UINT64_MAX, .kind = LOCK_EXCLUSIVE };
	struct cop *c = scene_call(w, client);

	client_lock(c, f, &want, true);
	return c;
}

static void end_lock(struct world *w, struct cop *c)
{
	int64_t r = scene_end(w, c);

	scene_check(w, !r, "a lock is answered with %d", (int)r);
}

static struct cop *begin_write(struct world *w, uint32_t client, struct cfile *f, char *mem,
			       char value)
{
	static const struct extent all = { 0, BYTES };
	static struct iovec iov[2];
	struct cop *c = scene_call(w, client);

	memset(mem, value, BYTES);
	iov[client] = (struct iovec){ mem, BYTES };
	client_write(c, f, &iov[client], 1, &all, 1);
	return c;
}

static void end_write(struct world *w, struct cop *c)
{
	int64_t r = scene_end(w, c);

	scene_check(w, r == BYTES, "a write is answered with %d", (int)r);
}

static void check_content(struct world *w, uint32_t client, struct cfile *f, char *mem, char value)
{
	static const struct extent all = { 0, BYTES };
	struct iovec iov = { mem, BYTES };
	struct cop *c = scene_call(w, client);
	int64_t r;

	client_read(c, f, &iov, 1, &all, 1);
	r = scene_end(w, c);
	scene_check(w, r == BYTES, "a read is answered with %d", (int)r);
	for (size_t i = 0; i < BYTES && !w->failed; i++)
		scene_check(w, mem[i] == value, "byte %zu is %d, not %d", i, mem[i], value);
}

/* ---- direct reads ---- */

/* A client reads an object file of its server and is stopped before it checks its lease. Meanwhile
 * it has lost its lock, so it may have read what the next owner wrote: the read must not count. */
static void direct_read_too_late(struct world *w)
{
	struct sim_node *c0 = w->actors[0].node;
	static char mem[BYTES];
	struct cfile *f, *g;
	struct direct_piece pieces[DIRECT_PIECES];
	int n;

	share_host(w);
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	g = scene_open(w, 1, "f", O_RDWR);
	if (w->failed)
		return;
	end_lock(w, begin_lock(w, 0, f));
	end_write(w, begin_write(w, 0, f, mem, 1));
	n = w->failed ? 0 : client_direct_begin(f, 0, 8, pieces);
	if (n) {
		scene_met(w);
		c0->stopped = true;
		end_lock(w, begin_lock(w, 1, g));
		end_write(w, begin_write(w, 1, g, mem, 2));
		scene_check(w, !client_direct_end(f, pieces, n, 0),
			    "a read without the lock counts");
		c0->stopped = false;
	}
	scene_close(w, 1, g);
	scene_close(w, 0, f);
}

/* ---- stores from the socket into mappings ---- */

/* Opens a file whose only object is on target 1. */
static struct cfile *file_on_1(struct world *w, char name[16])
{
	struct mfile where = { 0 };
	struct cfile *f = NULL;

	w->conf.width = 1;
	for (int i = 0; i < 20 && !w->failed; i++) {
		snprintf(name, 16, "f%d", i);
		f = scene_open(w, 0, name, O_CREAT | O_RDWR);
		if (w->failed)
			break;
		peek_file(f, &where);
		if (where.targets[0] == 1)
			return f;
		scene_close(w, 0, f);
	}
	world_fail(w, 0, "no file has its object on target 1");
	return f;
}

static bool has_stored(void *arg)
{
	const struct world *w = arg;

	return w->sim.injected[SIM_DIRECT_STORE] > 0;
}

/* A write of which a part was stored continues after its client has lost the lock: the rest must
 * not reach the file. */
static void direct_store_too_late(struct world *w)
{
	struct sim_node *c0 = w->actors[0].node, *t1 = w->targets[1].node;
	static char mem[2][BYTES];
	char name[16];
	struct cfile *f, *g;
	struct cop *write, *lock;
	int64_t r;

	share_host(w);
	f = file_on_1(w, name);
	g = scene_open(w, 1, name, O_RDWR);
	if (w->failed)
		return;
	end_write(w, begin_write(w, 1, g, mem[1], 1));
	end_lock(w, begin_lock(w, 0, f));
	scene_apart(w, c0, w->targets[0].node, true);
	lock = begin_lock(w, 1, g);
	scene_pass(w, 15 * NSEC_PER_SEC);
	w->sim.injected[SIM_DIRECT_STORE] = 0;
	w->sim.faults.stall_ns = 600 * NSEC_PER_SEC;
	write = begin_write(w, 0, f, mem[0], 2);
	scene_until(w, has_stored, w, "nothing is stored into a mapping");
	scene_hold(w, c0, t1, true);
	end_lock(w, lock);
	end_write(w, begin_write(w, 1, g, mem[1], 3));
	if (peek_state(w->targets[1].server, "window", "receive"))
		scene_met(w);
	scene_hold(w, c0, t1, false);
	r = scene_end(w, write);
	scene_check(w, r < 0, "a write without the lock is answered with %d", (int)r);
	check_content(w, 1, g, mem[1], 3);
	scene_apart(w, c0, w->targets[0].node, false);
	scene_close(w, 1, g);
	scene_close(w, 0, f);
}

/* ---- copies into mappings ---- */

#define PIECE 300
#define N_NEAR 3
#define ROUNDS 20

/* The last piece is behind a hole: an access to all pieces cannot use the mapping. */
static const struct extent pieces[] = {
	{ 0, PIECE }, { 5000, PIECE }, { 10000, PIECE }, { 3 * MIB, PIECE }
};

static void check_uniform(struct world *w, const char *mem, size_t n)
{
	for (size_t i = 1; i < n * PIECE; i++)
		scene_check(w, mem[i] == mem[0], "a read sees write %d beside write %d", mem[0],
			    mem[i]);
}

/* Runs a write of the near pieces beside a read of the first `n`, ROUNDS times: each read must
 * see one write. */
static void write_beside_reads(struct world *w, uint32_t n)
{
	static char mem[2][BYTES];
	struct iovec written = { mem[0], N_NEAR * PIECE }, read = { mem[1], n * PIECE };
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	struct cfile *g = scene_open(w, 1, "f", O_RDWR);
	struct cop *c[2];

	if (w->failed)
		return;
	end_write(w, begin_write(w, 0, f, mem[0], 1));
	c[0] = scene_call(w, 0);
	client_write(c[0], f, &(struct iovec){ mem[0], PIECE }, 1, &pieces[N_NEAR], 1);
	scene_end(w, c[0]);
	for (int i = 0; i < ROUNDS && !w->failed; i++) {
		memset(mem[0], 2 + i, written.iov_len);
		c[0] = scene_call(w, 0);
		c[1] = scene_call(w, 1);
		client_read(c[1], g, &read, 1, pieces, n);
		client_write(c[0], f, &written, 1, pieces, N_NEAR);
		scene_end(w, c[0]);
		scene_end(w, c[1]);
		check_uniform(w, mem[1], MIN(n, (uint32_t)N_NEAR));
	}
	scene_close(w, 1, g);
	scene_close(w, 0, f);
}

/* Pieces are copied into the mapping while another client reads them from the file one by one:
 * the read must see one write. */
static void mapped_store_beside_read(struct world *w)
{
	share_host(w);
	w->sim.faults.io_max = 10 * NSEC_PER_MSEC;
	write_beside_reads(w, ARRAY_LEN(pieces));
	if (w->sim.injected[SIM_MAPPED_STORE])
		scene_met(w);
}

/* A server short of buffers accepts no data inside messages: a small read in pieces uses a
 * window. It must see one write, though its data are sent byte by byte. */
static void small_read_beside_write(struct world *w)
{
	share_host(w);
	client_set_direct(w->actors[1].client, false);
	w->sim.faults.buffer_min = w->sim.faults.buffer_max = 64;
	client_set_mover(w->actors[1].client, METHOD_GATHER);
	write_beside_reads(w, 2);
	scene_met(w);
}

/* ---- Unix sockets ---- */

/* Another server answers at the Unix sockets: the client must reach the right ones by TCP. */
static void wrong_server_on_unix(struct world *w)
{
	struct cfile *f;

	share_host(w);
	w->sim.faults.wrong_server = 1000000;
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	if (w->sim.injected[SIM_WRONG_SERVER])
		scene_met(w);
	if (!w->failed)
		scene_close(w, 0, f);
}

/* ... and the right one cannot be reached by TCP: the call must report the error of TCP. */
static void wrong_server_then_none(struct world *w)
{
	struct sim_node *c0 = w->actors[0].node, *t0 = w->targets[0].node;
	struct cop *c;
	int64_t r;

	share_host(w);
	w->sim.faults.wrong_server = 1000000;
	scene_apart(w, c0, t0, true);
	c = scene_call(w, 0);
	client_lookup(c, scene_root, "f");
	r = scene_end(w, c);
	if (w->sim.injected[SIM_WRONG_SERVER])
		scene_met(w);
	scene_check(w, is_network_error(r), "a lookup without a server is answered with %d",
		    (int)r);
}

/* ---- copies ---- */

#define COPIED (4 * MIB) /* many windows */

/* No window of the copy has to wait: each starts the next one itself. */
static void copy_without_waiting(struct world *w)
{
	static char mem[COPIED];
	const struct iovec iov = { mem, COPIED };
	const struct extent all = { 0, COPIED };
	struct cfile *from, *to;
	struct cop *c;
	int64_t r;

	share_host(w);
	from = scene_open(w, 0, "from", O_CREAT | O_RDWR);
	to = scene_open(w, 0, "to", O_CREAT | O_RDWR);
	for (int i = 1; i < 4 && !w->failed; i++) {
		memset(mem, i, COPIED);
		c = scene_call(w, 0);
		client_write(c, from, &iov, 1, &all, 1);
		scene_end(w, c);
		c = scene_call(w, 0);
		client_copy(c, from, 0, to, 0, COPIED);
		r = scene_end(w, c);
		scene_check(w, r > 0, "a copy is answered with %d", (int)r);
		memset(mem, 0, COPIED);
		c = scene_call(w, 0);
		client_read(c, to, &iov, 1, &all, 1);
		scene_end(w, c);
		for (int64_t k = 0; k < r && !w->failed; k++)
			scene_check(w, mem[k] == i, "byte %lld is %d", (long long)k, mem[k]);
	}
	if (w->failed)
		return;
	scene_close(w, 0, from);
	scene_close(w, 0, to);
	scene_met(w);
}

const struct scenario scenes_host[] = {
	{ "copy-without-waiting", copy_without_waiting, 1, 1, 1, false },
	{ "direct-read-too-late", direct_read_too_late, 1, 1, 2, false },
	{ "direct-store-too-late", direct_store_too_late, 2, 1, 2, false },
	{ "mapped-store-beside-read", mapped_store_beside_read, 1, 1, 2, false },
	{ "small-read-beside-write", small_read_beside_write, 1, 1, 2, false },
	{ "wrong-server-on-unix", wrong_server_on_unix, 2, 2, 1, false },
	{ "wrong-server-then-none", wrong_server_then_none, 2, 2, 1, false },
	{ 0 },
};
