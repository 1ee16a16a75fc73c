/* Directed scenarios: sizes of files whose data were lost, files without a name whose client was
 * cut off, and fences that do not fit into memory. */
#include <fcntl.h>
#include <stdio.h>

#include "sim_scenario.h"

#define FAR 100000
#define LENGTH 1000

static const struct extent near_and_far[] = { { 0, LENGTH }, { FAR, LENGTH } };

static void write_as(struct world *w, uint32_t client, struct cfile *f, const struct extent *ext,
		     size_t n)
{
	static char bytes[2 * LENGTH];
	struct iovec mem = { bytes, n * LENGTH };
	struct cop *c = scene_call(w, client);
	int64_t r;

	memset(bytes, 1, sizeof(bytes));
	client_write(c, f, &mem, 1, ext, n);
	r = scene_end(w, c);
	scene_check(w, r == (int64_t)mem.iov_len, "a write is answered with %d", (int)r);
}

static void write_extents(struct world *w, struct cfile *f, const struct extent *ext, size_t n)
{
	write_as(w, 0, f, ext, n);
}

static uint64_t size_seen(struct world *w, uint32_t client, const char *path)
{
	struct cop *c = scene_call(w, client);
	uint64_t size;
	int64_t r;

	client_lookup(c, scene_root, path);
	r = scene_wait(w, c);
	size = c->attr.size;
	scene_check(w, !r, "stat %s: %d", path, (int)r);
	scene_end(w, c);
	return size;
}

static int64_t sync_file(struct world *w, struct cfile *f)
{
	struct cop *c = scene_call(w, 0);

	client_fsync(c, f);
	return scene_end(w, c);
}

static int64_t stat_file(struct world *w, struct cfile *f)
{
	struct cop *c = scene_call(w, 0);

	client_getattr(c, cfile_handle(f));
	return scene_end(w, c);
}

static void unlink_name(struct world *w, const char *path)
{
	struct cop *c = scene_call(w, 0);
	int64_t r;

	client_unlink(c, scene_root, path);
	r = scene_end(w, c);
	scene_check(w, !r, "unlink %s: %d", path, (int)r);
}

/* ---- lost data do not count in the size ---- */

static void lose_power(struct world *w)
{
	scene_down(w, 0, true);
	scene_up(w, 0);
	scene_pass(w, 5 * NSEC_PER_SEC);
}

/* Other clients have seen the size of a file after a power loss: no report of its writer may
 * raise it again. */
static void check_stays(struct world *w, struct cfile *f, int64_t expected)
{
	uint64_t before = size_seen(w, 1, "f"), after;
	int64_t r;

	if (before < FAR + LENGTH)
		scene_met(w);
	r = sync_file(w, f);
	scene_check(w, r == expected || r == 0, "fsync is answered with %d", (int)r);
	after = size_seen(w, 1, "f");
	scene_check(w, after == before, "fsync makes a file of %llu bytes %llu long",
		    (unsigned long long)before, (unsigned long long)after);
	scene_close(w, 0, f);
	scene_pass(w, 5 * NSEC_PER_SEC);
	after = size_seen(w, 1, "f");
	scene_check(w, after == before, "close makes a file of %llu bytes %llu long",
		    (unsigned long long)before, (unsigned long long)after);
}

static void lost_end_reported(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);

	write_extents(w, f, near_and_far, 2);
	lose_power(w);
	check_stays(w, f, -EIO);
}

/* The writer notices the loss with its next write, which is shorter. */
static void lost_end_noticed(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);

	write_extents(w, f, near_and_far, 2);
	lose_power(w);
	write_extents(w, f, near_and_far, 1);
	check_stays(w, f, -EIO);
}

/* An fsync and its report failed: the client does not notice the power loss that follows. */
static void lost_end_forgiven(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	int64_t r;

	write_extents(w, f, near_and_far, 2);
	w->sim.faults.sync_eio = w->sim.faults.meta_eio = 1000000;
	r = sync_file(w, f);
	w->sim.faults.sync_eio = w->sim.faults.meta_eio = 0;
	scene_check(w, r == -EIO, "fsync with a bad disk is answered with %d", (int)r);
	lose_power(w);
	check_stays(w, f, 0);
}

/* ---- files without a name ---- */

/* A file of client 0 has no name any more and the client has lost its session. Target 0 is
 * removing the file but cannot reach the other target. Returns NULL if that state is not
 * reached. */
static struct cfile *half_removed(struct world *w)
{
	struct sim_node *t0 = w->targets[0].node, *c0 = w->actors[0].node;
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);

	/* client 1 needs a session, too */
	scene_close(w, 1, scene_open(w, 1, "g", O_CREAT | O_RDWR));
	write_extents(w, f, near_and_far, 2);
	unlink_name(w, "f");
	scene_apart(w, t0, w->targets[1].node, true);
	scene_apart(w, t0, c0, true);
	scene_pass(w, 25 * NSEC_PER_SEC);
	if (!scene_reaches(w, 0, "remove-objects", "commit"))
		return NULL;
	scene_pass(w, NSEC_PER_SEC);
	return f;
}

static void is_gone(struct world *w, struct cfile *f)
{
	int64_t r = stat_file(w, f);

	scene_check(w, r == -ESTALE, "fstat of a removed file is answered with %d", (int)r);
	r = sync_file(w, f);
	scene_check(w, r == -EIO, "fsync of a removed file is answered with %d", (int)r);
	scene_close(w, 0, f);
}

static void removal_begun(struct world *w)
{
	struct cfile *f = half_removed(w);

	if (!f)
		return;
	scene_met(w);
	scene_apart(w, w->targets[0].node, w->actors[0].node, false);
	is_gone(w, f);
}

/* The name is removed between the two calls of a stat: the result is ENOENT, not ESTALE. */
static void stat_beside_unlink(struct world *w)
{
	struct sim_node *t0 = w->targets[0].node, *c1 = w->actors[1].node;
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	struct cop *c = scene_call(w, 1);
	int64_t r;

	size_seen(w, 1, "f"); /* connects client 1 */
	scene_hold(w, t0, c1, true);
	client_lookup(c, scene_root, "f");
	scene_pass(w, 100 * NSEC_PER_MSEC); /* the answer of its first call is on the way */
	unlink_name(w, "f");
	scene_close(w, 0, f);
	scene_hold(w, t0, c1, false);
	r = scene_wait(w, c);
	if (c->tries)
		scene_met(w);
	scene_end(w, c);
	scene_check(w, r == -ENOENT, "stat is answered with %d", (int)r);
}

/* The writer closes the file between the two calls of a stat: then the inode's row has its
 * blocks on disk. */
static void stat_beside_close(struct world *w)
{
	struct sim_node *t0 = w->targets[0].node, *c1 = w->actors[1].node;
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	struct cop *c = scene_call(w, 1);
	int64_t r;

	write_extents(w, f, near_and_far, 2);
	size_seen(w, 1, "f"); /* connects client 1 */
	scene_hold(w, t0, c1, true);
	client_lookup(c, scene_root, "f");
	/* the first answer, on its way, says that the file has a writer */
	scene_pass(w, 100 * NSEC_PER_MSEC);
	r = scene_close(w, 0, f);
	scene_check(w, !r, "close: %d", (int)r);
	if (!c->finished)
		scene_met(w);
	scene_hold(w, t0, c1, false);
	r = scene_wait(w, c);
	scene_check(w, !r && c->attr.size == FAR + LENGTH, "stat: %d", (int)r);
	scene_check(w, c->attr.blocks * 512 >= 2 * LENGTH, "it takes %llu blocks",
		    (unsigned long long)c->attr.blocks);
	scene_end(w, c);
}

/* As in removal_begun(), but the server restarts and waits for claims. */
static void claim_of_removed(struct world *w)
{
	struct sim_node *t0 = w->targets[0].node;
	struct cfile *f = half_removed(w);

	if (!f)
		return;
	scene_met(w);
	/* client 1 claims late, so the grace period lasts */
	scene_apart(w, t0, w->actors[1].node, true);
	scene_down(w, 0, sim_chance(&w->sim, 500000));
	scene_up(w, 0);
	scene_apart(w, t0, w->actors[0].node, false);
	is_gone(w, f);
}

/* The end of the session cannot be recorded, so the session may be resumed: it must not have
 * lost anything. */
static void end_not_durable(struct world *w)
{
	struct sim_node *t0 = w->targets[0].node, *c0 = w->actors[0].node;
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	int64_t r;

	write_extents(w, f, near_and_far, 2);
	unlink_name(w, "f");
	scene_pass(w, NSEC_PER_SEC);
	scene_apart(w, t0, c0, true);
	w->sim.faults.meta_eio = 1000000;
	scene_pass(w, 40 * NSEC_PER_SEC);
	w->sim.faults.meta_eio = 0;
	if (w->sim.injected[SIM_META_EIO])
		scene_met(w);
	scene_down(w, 0, false);
	scene_up(w, 0);
	scene_apart(w, t0, c0, false);
	r = stat_file(w, f);
	scene_check(w, !r, "fstat is answered with %d", (int)r);
	r = sync_file(w, f);
	scene_check(w, !r || r == -EIO, "fsync is answered with %d", (int)r);
	scene_close(w, 0, f);
}

/* ---- partitions ---- */

/* Neither direction is interrupted for longer than a session lasts, and both together are not,
 * either. */
static void partitions_overlap(struct world *w)
{
	struct sim_node *t0 = w->targets[0].node, *c0 = w->actors[0].node;
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	int64_t r;

	unlink_name(w, "f");
	scene_pass(w, 8 * NSEC_PER_SEC); /* the client has not renewed its session yet */
	faults_partition(w, c0, t0, 17 * NSEC_PER_SEC);
	scene_pass(w, 10 * NSEC_PER_SEC);
	faults_partition(w, t0, c0, 17 * NSEC_PER_SEC);
	if (w->sim.apart[c0->id][t0->id] && w->sim.apart[t0->id][c0->id])
		scene_met(w);
	scene_pass(w, 30 * NSEC_PER_SEC);
	r = stat_file(w, f);
	scene_check(w, !r, "fstat is answered with %d", (int)r);
	scene_close(w, 0, f);
}

/* ---- a read waits for a write that extends the file ---- */

#define ROUNDS 20
#define LONGEST 120000

static void fill(struct world *w, struct cfile *f, char *mem, char value, uint64_t n)
{
	struct iovec iov = { mem, n };
	struct extent e = { 0, n };
	struct cop *c = scene_call(w, 0);
	int64_t r;

	memset(mem, value, n);
	client_write(c, f, &iov, 1, &e, 1);
	r = scene_end(w, c);
	scene_check(w, r == (int64_t)n, "a write is answered with %d", (int)r);
}

static void cut_as(struct world *w, uint32_t client, struct cfile *f, uint64_t size)
{
	struct cop *c = scene_call(w, client);
	int64_t r;

	client_ftruncate(c, f, size);
	r = scene_end(w, c);
	scene_check(w, !r, "truncate: %d", (int)r);
}

static void cut_to(struct world *w, struct cfile *f, uint64_t size)
{
	cut_as(w, 0, f, size);
}

static bool is_all(const char *p, char value, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (p[i] != value)
			return false;
	return true;
}

/* The file has n bytes and a hole of 2n after them. A read of the whole file runs beside a write
 * that fills it: the read must see the file before the write or after it. */
static void read_beside_growth(struct world *w, struct cfile *f, struct cfile *g, uint64_t n)
{
	static char mem[LONGEST], back[LONGEST];
	struct iovec to = { back, 3 * n }, from = { mem, 3 * n };
	struct extent e = { 0, 3 * n };
	struct cop *read, *write;
	bool is_new;

	cut_to(w, f, 0);
	fill(w, f, mem, 1, n);
	cut_to(w, f, 3 * n);
	read = scene_call(w, 1);
	client_read(read, g, &to, 1, &e, 1);
	scene_pass(w, sim_below(&w->sim, 2 * NSEC_PER_MSEC));
	memset(mem, 2, sizeof(mem));
	write = scene_call(w, 0);
	client_write(write, f, &from, 1, &e, 1);
	scene_check(w, scene_end(w, read) == (int64_t)to.iov_len, "a read is short");
	scene_check(w, scene_end(w, write) == (int64_t)to.iov_len, "a write is short");
	is_new = back[0] == 2;
	if (is_new)
		scene_met(w);
	scene_check(w,
		    is_new ? is_all(back, 2, 3 * n) :
			     is_all(back, 1, n) && is_all(back + n, 0, 2 * n),
		    "a read sees a part of a write");
}

static void growth_is_whole(struct world *w)
{
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	struct cfile *g = scene_open(w, 1, "f", O_RDONLY);

	for (int i = 0; i < ROUNDS && !w->failed; i++)
		read_beside_growth(w, f, g, i % 2 ? LENGTH : LONGEST / 3);
	scene_close(w, 0, f);
	scene_close(w, 1, g);
}

/* ---- fences ---- */

#define FENCED 12
#define FEW_FLOORS 3

static struct sheaf_handle cut_file(struct world *w, const char *name)
{
	struct sheaf_handle h = { 0 };
	struct cop *c;
	int64_t r;

	scene_lookup(w, 0, name, &h);
	c = scene_call(w, 0);
	client_truncate(c, h, LENGTH / 2);
	r = scene_end(w, c);
	scene_check(w, !r, "truncate %s: %d", name, (int)r);
	return h;
}

/* Truncates more files than a target has memory for floors. */
static void make_fenced(struct world *w, struct sheaf_handle h[FENCED])
{
	for (int i = 0; i < FENCED && !w->failed; i++) {
		struct cfile *f;
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		f = scene_open(w, 0, name, O_CREAT | O_RDWR);
		if (w->failed)
			return;
		write_extents(w, f, near_and_far, 2);
		scene_close(w, 0, f);
		h[i] = cut_file(w, name);
		scene_pass(w, sim_between(&w->sim, 0, 20 * NSEC_PER_MSEC));
	}
}

static void start_with_few(struct world *w, uint32_t target)
{
	w->max_floors = FEW_FLOORS;
	scene_down(w, target, false);
	scene_up(w, target);
}

/* Most floors are on disk when the power fails: all of them must hold as before. */
static void floors_survive(struct world *w)
{
	struct target *t = &w->targets[0];
	struct sheaf_handle h[FENCED] = { 0 };
	uint64_t floors[FENCED];
	size_t n_loaded = 0;

	start_with_few(w, 0);
	make_fenced(w, h);
	for (int i = 0; i < FENCED && !w->failed; i++)
		floors[i] = peek_floor(peek_disk(t->server), h[i].ino, &n_loaded);
	if (w->failed)
		return;
	if (n_loaded < FENCED)
		scene_met(w);
	lose_power(w);
	for (int i = 0; i < FENCED && !w->failed; i++) {
		uint64_t now = peek_floor(peek_disk(t->server), h[i].ino, &n_loaded);

		scene_check(w, floors[i] && now >= floors[i],
			    "the floor of file %d was %llu and is %llu", i,
			    (unsigned long long)floors[i], (unsigned long long)now);
	}
}

/* A client has a capability from before a truncate, and its floor is only on disk when the
 * client writes again: the target was down, and the object has not been opened since. */
static void floor_on_disk_refuses(struct world *w)
{
	struct target *t = &w->targets[1];
	struct sheaf_handle h[FENCED] = { 0 }, cut;
	struct cfile *f;
	size_t n_loaded = 0;

	start_with_few(w, 1);
	f = scene_open(w, 1, "f", O_CREAT | O_RDWR);
	if (w->failed)
		return;
	write_as(w, 1, f, near_and_far, 2);
	cut = cut_file(w, "f");
	make_fenced(w, h);
	scene_down(w, 1, sim_chance(&w->sim, 500000));
	scene_up(w, 1);
	if (w->failed || !peek_floor(peek_disk(t->server), cut.ino, &n_loaded))
		return;
	if (n_loaded < FENCED && !peek_stale(t->server))
		scene_met(w);
	write_as(w, 1, f, near_and_far + 1, 1);
	scene_check(w, peek_stale(t->server), "a capability from before a truncate is good again");
	scene_close(w, 1, f);
	scene_check(w, size_seen(w, 0, "f") == FAR + LENGTH, "the file ends elsewhere");
}

/* ---- the data that a sync covers ---- */

/* An fsync starts during another one, after data were written that the other does not cover:
 * they must be durable when the later one has succeeded. */
static void sync_beside_sync(struct world *w)
{
	static char mem[LENGTH], back[LENGTH];
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	struct cfile *g = scene_open(w, 1, "f", O_RDWR);
	struct iovec to = { back, LENGTH }, from = { mem, LENGTH };
	struct cop *first = scene_call(w, 0), *c = scene_call(w, 1);
	int64_t r;

	w->sim.faults.sync_min = w->sim.faults.sync_max = 50 * NSEC_PER_MSEC;
	fill(w, f, mem, 1, LENGTH);
	client_fsync(first, f);
	scene_reaches(w, 0, "sync", "reply");
	client_write(c, g, &from, 1, near_and_far + 1, 1);
	r = scene_end(w, c);
	scene_check(w, r == LENGTH, "a write is answered with %d", (int)r);
	if (!first->finished)
		scene_met(w);
	c = scene_call(w, 1);
	client_fsync(c, g);
	r = scene_end(w, c);
	scene_check(w, !r, "fsync is answered with %d", (int)r);
	lose_power(w);
	r = scene_end(w, first);
	scene_check(w, !r, "the first fsync is answered with %d", (int)r);
	c = scene_call(w, 1);
	client_read(c, g, &to, 1, near_and_far + 1, 1);
	r = scene_end(w, c);
	scene_check(w, r == LENGTH && is_all(back, 1, LENGTH), "what was synced is lost: %d",
		    (int)r);
	scene_close(w, 0, f);
	scene_close(w, 1, g);
}

/* ---- a write that fails after a part ---- */

/* The write has extended the file on disk: a truncate must cut that part, too. */
static void half_write_cut(struct world *w)
{
	static char mem[LONGEST], back[LONGEST];
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	struct iovec from = { mem, LONGEST }, to = { back, LONGEST };
	struct extent e = { 0, LONGEST };
	struct cop *c = scene_call(w, 0);
	int64_t r;

	fill(w, f, mem, 1, 1);
	memset(mem, 1, sizeof(mem));
	w->sim.faults.write_eio = 1000000;
	client_write(c, f, &from, 1, &e, 1);
	r = scene_end(w, c);
	w->sim.faults.write_eio = 0;
	scene_check(w, r == -EIO, "a write to a bad disk is answered with %d", (int)r);
	if (w->sim.injected[SIM_WRITE_HALF])
		scene_met(w);
	cut_to(w, f, 1);
	cut_to(w, f, LONGEST);
	scene_down(w, 0, false); /* the next start reads the object's end from disk */
	scene_up(w, 0);
	c = scene_call(w, 0);
	client_read(c, f, &to, 1, &e, 1);
	r = scene_end(w, c);
	scene_check(w, r == LONGEST && is_all(back + 1, 0, LONGEST - 1),
		    "what was cut off is back: %d", (int)r);
	scene_close(w, 0, f);
}

/* ---- a truncate that continues after its answer ---- */

static bool is_refused(void *arg)
{
	const struct cop *c = arg;

	return c->finished || c->space_wait.until;
}

/* A full server refuses a truncate after it has begun. The truncate continues, then another client
 * truncates the file as well: the first truncate must not happen once more. Nor must its answer be
 * that there is no space, which would make the client repeat it. */
static void truncate_continues(struct world *w)
{
	struct sim_node *c0 = w->actors[0].node, *t0 = w->targets[0].node;
	struct cfile *f = scene_open(w, 1, "f", O_CREAT | O_RDWR);
	struct cop *c;
	int64_t r;

	if (w->failed)
		return;
	write_as(w, 1, f, near_and_far, 1);
	c = scene_call(w, 0);
	client_truncate(c, cfile_handle(f), 7);
	if (scene_reaches(w, 0, "truncate", "fence"))
		scene_met(w);
	w->sim.faults.meta_full = 1000000;
	scene_until(w, is_refused, c, "the truncate is not refused");
	scene_hold(w, c0, t0, true);
	w->sim.faults.meta_full = 0;
	scene_pass(w, 3 * NSEC_PER_SEC);
	scene_check(w, size_seen(w, 1, "f") == 7, "the truncate does not continue");
	cut_as(w, 1, f, 9);
	scene_hold(w, c0, t0, false);
	r = scene_end(w, c);
	scene_check(w, r == -EIO, "the truncate is answered with %d", (int)r);
	scene_check(w, size_seen(w, 1, "f") == 9, "the truncate happened twice");
	scene_close(w, 1, f);
}

static bool is_idle(void *arg)
{
	return server_idle(arg);
}

/* A server stops while it waits for fences, some of them its own: they must be answered, so that
 * it does not wait for the timeout of its calls. */
static void stop_beside_truncate(struct world *w)
{
	struct target *t = &w->targets[0];
	struct cfile *f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	struct cop *c;
	uint64_t begun;

	if (w->failed)
		return;
	write_as(w, 0, f, near_and_far, 2);
	cut_to(w, f, LENGTH); /* gives the server links to all targets, itself included */
	c = scene_call(w, 0);
	client_ftruncate(c, f, 7);
	if (scene_reaches(w, 0, "truncate", "begin"))
		scene_met(w);
	begun = w->sim.now;
	server_drain(t->server);
	scene_until(w, is_idle, t->server, "the server does not become idle");
	scene_check(w, w->sim.now - begun < NSEC_PER_SEC, "the stop waits for a timeout");
	scene_down(w, 0, false);
	scene_up(w, 0);
	scene_end(w, c);
	scene_close(w, 0, f);
}

/* ---- starts that fail after a part ---- */

static int start_once(struct target *t)
{
	if (!t->node->up)
		sim_node_restart(t->node);
	return target_start(t);
}

/* A start fails to sync its count, the next one has no room for a metadata row, then the power
 * fails: the parts of the storage must still match. */
static void start_not_synced(struct world *w)
{
	struct target *t = &w->targets[0];
	struct sim_faults *f = &w->sim.faults;
	struct sim_faults none = *f;

	for (int i = 0; i < 16; i++) {
		scene_down(w, 0, false);
		f->sync_eio = 400000;
		if (start_once(t))
			scene_met(w);
		*f = none;
		if (t->server)
			scene_down(w, 0, false);
		f->meta_full = 1000000;
		scene_check(w, !start_once(t), "a server with a full database does not start");
		*f = none;
		scene_down(w, 0, true);
		scene_up(w, 0);
	}
}

const struct scenario scenes_data[] = {
	{ "truncate-continues", truncate_continues, 1, 1, 2, false },
	{ "stop-beside-truncate", stop_beside_truncate, 2, 1, 1, false },
	{ "start-not-synced", start_not_synced, 1, 1, 1, false },
	{ "half-write-cut", half_write_cut, 1, 1, 1, false },
	{ "sync-beside-sync", sync_beside_sync, 1, 1, 2, false },
	{ "growth-is-whole", growth_is_whole, 1, 1, 2, false },
	{ "lost-end-reported", lost_end_reported, 1, 1, 2, false },
	{ "lost-end-noticed", lost_end_noticed, 1, 1, 2, false },
	{ "lost-end-forgiven", lost_end_forgiven, 1, 1, 2, false },
	{ "removal-begun", removal_begun, 2, 1, 2, false },
	{ "stat-beside-unlink", stat_beside_unlink, 1, 1, 2, false },
	{ "stat-beside-close", stat_beside_close, 1, 1, 2, false },
	{ "claim-of-removed", claim_of_removed, 2, 1, 2, false },
	{ "end-not-durable", end_not_durable, 1, 1, 1, false },
	{ "floors-survive", floors_survive, 1, 1, 1, false },
	{ "floor-on-disk-refuses", floor_on_disk_refuses, 2, 1, 2, false },
	{ "partitions-overlap", partitions_overlap, 1, 1, 1, true },
	{ 0 },
};
