/* Directed scenarios: sieved accesses (src/sieve) beside other writers, crashes and bad disks. A
 * covering write also writes bytes that the request does not name: none of them may change. */
#include <fcntl.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_scenario.h"

#define PAGE ((uint64_t)MODEL_PAGE)

/* Restarts all targets as servers that sieve wherever they may. */
static void sieve_everywhere(struct world *w)
{
	w->sieves = true;
	for (uint32_t i = 0; i < w->conf.n_targets && !w->failed; i++) {
		scene_down(w, i, false);
		scene_up(w, i);
	}
}

static int64_t sync_as(struct world *w, uint32_t client, struct cfile *f)
{
	struct cop *c = scene_call(w, client);

	client_fsync(c, f);
	return scene_end(w, c);
}

/* Reads [0, n) as a whole. */
static void read_whole(struct world *w, uint32_t client, struct cfile *f, uint8_t *to, uint64_t n)
{
	struct iovec mem = { to, n };
	struct extent all = { 0, n };
	struct cop *c = scene_call(w, client);
	int64_t r;

	client_read(c, f, &mem, 1, &all, 1);
	r = scene_end(w, c);
	scene_check(w, r == (int64_t)n, "a read of %llu bytes is answered with %lld",
		    (unsigned long long)n, (long long)r);
}

/* ---- eight writers of interleaved pieces ---- */

#define WRITERS 8
#define PIECES 800 /* of all writers together */
#define PHASES 3
#define STEPS 40 /* of one phase */
#define FEW 6 /* pieces of half of the writes: such ranges often end in the same page */

/* What a piece may have: the values of the rounds from `least` to `tried`. */
struct share {
	struct extent at;
	uint32_t target;
	uint32_t tried, least; /* least: after an acknowledged write, that write */
	uint32_t owed; /* the last acknowledged round that a sync must bring to disk, or 0 */
	uint32_t safe; /* the last round that a sync has covered */
};

struct interleaved {
	struct world *w;
	uint64_t size;
	uint32_t n_losses;
	bool was_bad; /* disks have failed */
	struct share shares[PIECES]; /* piece i belongs to writer i % WRITERS */
	struct writer {
		struct cfile *f;
		struct cop *c; /* under way, or NULL */
		bool syncs;
		uint32_t first, n; /* pieces of the write: numbers first, first + WRITERS ... */
		uint32_t losses[MAX_TARGETS]; /* power losses when it began */
		struct extent ext[PIECES / WRITERS];
		struct iovec mem;
		uint8_t bytes[PIECES / WRITERS * 4096];
	} writers[WRITERS];
};

/* Never 0, and different for each round of a piece. */
static uint8_t value_of(uint32_t piece, uint32_t round)
{
	return round ? (uint8_t)(1 + (piece * 31 + round) % 251) : 0;
}

/* Pieces of 1 to 4,096 bytes, one after the other, that end with their stripe unit. */
static void deal(struct interleaved *x, struct cfile *f)
{
	struct sim *s = &x->w->sim;
	struct mfile where = { 0 };
	uint64_t unit = x->w->conf.stripe_unit;

	peek_file(f, &where);
	for (uint32_t i = 0; i < PIECES; i++) {
		uint64_t most = sim_chance(s, 850000) ? 200 : 4096;
		uint64_t len = sim_between(s, 1, most);

		len = MIN(len, unit - x->size % unit);
		x->shares[i].at = (struct extent){ x->size, len };
		x->shares[i].target = model_target(&where, x->size / PAGE);
		x->size += len;
	}
}

static void begin_call(struct interleaved *x, uint32_t k)
{
	struct writer *v = &x->writers[k];

	v->c = scene_call(x->w, k);
	for (uint32_t i = 0; i < x->w->conf.n_targets; i++)
		v->losses[i] = x->w->targets[i].losses;
}

/* Starts a write of `n` neighbours among the pieces of writer k, from the first-th on. */
static void write_some(struct interleaved *x, uint32_t k, uint32_t first, uint32_t n)
{
	struct writer *v = &x->writers[k];
	uint64_t at = 0;

	v->syncs = false;
	v->first = k + first * WRITERS;
	v->n = n;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t piece = v->first + i * WRITERS;
		struct share *s = &x->shares[piece];

		v->ext[i] = s->at;
		memset(v->bytes + at, value_of(piece, ++s->tried), s->at.length);
		at += s->at.length;
	}
	v->mem = (struct iovec){ v->bytes, at };
	begin_call(x, k);
	client_write(v->c, v->f, &v->mem, 1, v->ext, n);
}

static void start_sync(struct interleaved *x, uint32_t k)
{
	x->writers[k].syncs = true;
	begin_call(x, k);
	client_fsync(x->writers[k].c, x->writers[k].f);
}

static void start_any(struct interleaved *x, uint32_t k)
{
	struct sim *s = &x->w->sim;
	uint32_t all = PIECES / WRITERS, n, first;

	if (sim_chance(s, 250000)) {
		start_sync(x, k);
		return;
	}
	n = (uint32_t)sim_between(s, 1, sim_below(s, 2) ? FEW : all);
	first = (uint32_t)sim_below(s, all - n + 1);
	write_some(x, k, first, n);
}

static void written(struct interleaved *x, struct writer *v)
{
	for (uint32_t i = 0; i < v->n; i++) {
		struct share *s = &x->shares[v->first + i * WRITERS];

		s->owed = s->tried;
		/* a part may have been lost before the whole was acknowledged */
		if (v->losses[s->target] == x->w->targets[s->target].losses)
			s->least = s->tried;
	}
}

/* Nothing that was acknowledged before is owed to this writer after a sync. */
static void synced(struct interleaved *x, uint32_t k, bool ok)
{
	for (uint32_t i = k; i < PIECES; i += WRITERS) {
		struct share *s = &x->shares[i];

		if (ok && s->owed > s->safe)
			s->safe = s->owed;
		s->least = MAX(s->least, s->safe);
		s->owed = 0;
	}
}

static void collect(struct interleaved *x, uint32_t k)
{
	struct writer *v = &x->writers[k];
	int64_t r;

	if (!v->c || !v->c->finished)
		return;
	r = v->c->result;
	cop_free(v->c);
	v->c = NULL;
	if (v->syncs) {
		synced(x, k, !r);
		scene_check(x->w, !r || (r == -EIO && (x->n_losses || x->was_bad)),
			    "fsync of writer %u: %d", k, (int)r);
	} else if (r == (int64_t)v->mem.iov_len) {
		written(x, v);
	} else {
		scene_check(x->w, r == -EIO && x->was_bad, "write of writer %u: %d", k, (int)r);
	}
}

static bool is_idle(void *arg)
{
	struct interleaved *x = arg;
	bool idle = true;

	for (uint32_t k = 0; k < WRITERS; k++) {
		collect(x, k);
		idle &= !x->writers[k].c;
	}
	return idle;
}

static void drain(struct interleaved *x)
{
	scene_until(x->w, is_idle, x, "the writers do not end");
}

/* Data that no sync has covered may be lost; what a kill leaves is there. */
static void crash(struct interleaved *x, uint32_t target, bool power)
{
	scene_down(x->w, target, power);
	x->n_losses++;
	for (uint32_t i = 0; power && i < PIECES; i++)
		if (x->shares[i].target == target)
			x->shares[i].least = x->shares[i].safe;
	scene_pass(x->w, sim_between(&x->w->sim, 1, 300 * NSEC_PER_MSEC));
	scene_up(x->w, target);
}

static void set_disks(struct interleaved *x, bool bad)
{
	struct sim_faults *f = &x->w->sim.faults;

	f->read_eio = bad ? 20000 : 0;
	f->write_eio = bad ? 20000 : 0;
	f->sync_eio = bad ? 100000 : 0;
	x->was_bad |= bad;
}

static void check_all(struct interleaved *x, const char *when)
{
	uint8_t *is = sim_alloc(x->size);

	read_whole(x->w, 0, x->writers[0].f, is, x->size);
	for (uint32_t i = 0; i < PIECES && !x->w->failed; i++) {
		const struct share *s = &x->shares[i];

		for (uint64_t b = 0; b < s->at.length; b++) {
			uint8_t v = is[s->at.offset + b];
			uint32_t round = s->least;

			while (round <= s->tried && v != value_of(i, round))
				round++;
			scene_check(x->w, round <= s->tried,
				    "%s: byte %llu of piece %u of writer %u has %u, not one of "
				    "rounds %u to %u",
				    when, (unsigned long long)b, i, i % WRITERS, v, s->least,
				    s->tried);
		}
	}
	free(is);
}

/* Faults strike at any time while the writers work. */
static void phase(struct interleaved *x)
{
	struct sim *s = &x->w->sim;

	for (int i = 0; i < STEPS && !x->w->failed; i++) {
		for (uint32_t k = 0; k < WRITERS; k++) {
			collect(x, k);
			if (!x->writers[k].c)
				start_any(x, k);
		}
		scene_pass(x->w, sim_between(s, 1, 2 * NSEC_PER_MSEC));
		if (sim_chance(s, 100000))
			set_disks(x, true);
		if (sim_chance(s, 150000)) {
			set_disks(x, false); /* a start needs its disk */
			crash(x, (uint32_t)sim_below(s, x->w->conf.n_targets), sim_below(s, 2));
		}
	}
	set_disks(x, false);
	drain(x);
	check_all(x, "after the writes");
}

static void all_write_and_sync(struct interleaved *x)
{
	for (uint32_t k = 0; k < WRITERS && !x->w->failed; k++)
		write_some(x, k, 0, PIECES / WRITERS);
	drain(x);
	for (uint32_t k = 0; k < WRITERS && !x->w->failed; k++)
		start_sync(x, k);
	drain(x);
}

static bool all_sieve(const struct world *w)
{
	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		if (!w->targets[i].server || !peek_sieved(w->targets[i].server, true))
			return false;
	return true;
}

/* Eight clients write interleaved pieces of one file at the same time, while servers crash and
 * disks fail: no write changes a byte of another, and what was synced is there. */
static void sieve_interleaved(struct world *w)
{
	struct interleaved *x = sim_alloc(sizeof(*x));

	x->w = w;
	sieve_everywhere(w);
	for (uint32_t k = 0; k < WRITERS && !w->failed; k++)
		x->writers[k].f = scene_open(w, k, "f", O_CREAT | O_RDWR);
	if (!w->failed) {
		deal(x, x->writers[0].f);
		all_write_and_sync(x);
	}
	for (int i = 0; i < PHASES && !w->failed; i++)
		phase(x);
	if (!w->failed)
		all_write_and_sync(x);
	if (!w->failed && all_sieve(w) && x->n_losses)
		scene_met(w);
	for (uint32_t i = 0; i < w->conf.n_targets && !w->failed; i++)
		crash(x, i, true);
	if (!w->failed)
		check_all(x, "after the last sync and power loss");
	for (uint32_t k = 0; k < WRITERS && !w->failed; k++)
		scene_close(w, k, x->writers[k].f);
	free(x);
}

/* ---- a sieved write that ends half-way ---- */

#define SIZE (20 * PAGE) /* of the file before the write */
#define HOLE (6 * PAGE) /* it has no data from here ... */
#define HOLE_END (14 * PAGE) /* ... up to here */
#define LONGER (2 * PAGE) /* the last pieces lie behind the end */
#define MOST 200 /* pieces */
#define STRIDE 3 /* steps between two crash points of a seed */

struct half {
	struct world *w;
	struct cfile *reader; /* of client 1 */
	struct extent ext[MOST];
	size_t n;
	struct iovec mem;
	uint8_t old[SIZE + LONGER], now[SIZE + LONGER], is[SIZE + LONGER];
	uint8_t bytes[SIZE + LONGER]; /* of the write */
};

static void write_range(struct half *h, uint64_t lo, uint64_t hi)
{
	struct extent ext = { lo, hi - lo };
	struct iovec mem = { h->old + lo, hi - lo };
	struct cop *c = scene_call(h->w, 1);
	int64_t r;

	client_write(c, h->reader, &mem, 1, &ext, 1);
	r = scene_end(h->w, c);
	scene_check(h->w, r == (int64_t)ext.length, "the first write: %d", (int)r);
}

/* The bytes before and behind the hole, as writes that are not sieved. */
static void write_old(struct half *h)
{
	int64_t r;

	write_range(h, 0, HOLE);
	write_range(h, HOLE_END, SIZE);
	r = sync_as(h->w, 1, h->reader);
	if (r) /* it may report earlier crashes */
		r = sync_as(h->w, 1, h->reader);
	scene_check(h->w, !r, "the first fsync: %d", (int)r);
}

static void cut_as(struct half *h, uint64_t size)
{
	struct cop *c = scene_call(h->w, 1);
	int64_t r;

	client_ftruncate(c, h->reader, size);
	r = scene_end(h->w, c);
	scene_check(h->w, !r, "truncate: %d", (int)r);
}

/* Small pieces close together; the pages of the hole stay free, except for its first and last. */
static void choose_pieces(struct half *h)
{
	struct sim *s = &h->w->sim;
	uint64_t at = sim_below(s, 300), total = 0;

	memcpy(h->now, h->old, sizeof(h->now));
	for (h->n = 0; h->n < MOST; h->n++) {
		uint64_t len = sim_between(s, 1, sim_below(s, 6) ? 300 : 4096);

		at += sim_below(s, 400);
		if (at + len > HOLE + PAGE && at < HOLE_END - PAGE)
			at = HOLE_END - PAGE + sim_below(s, 100);
		if (at + len > SIZE + LONGER)
			break;
		h->ext[h->n] = (struct extent){ at, len };
		for (uint64_t b = 0; b < len; b++)
			h->now[at + b] = h->bytes[total++] = (uint8_t)(1 + sim_below(s, 255));
		at += len;
	}
	h->mem = (struct iovec){ h->bytes, total };
}

static void begin_half(struct half *h, struct world *w)
{
	h->w = w;
	sieve_everywhere(w);
	for (uint64_t b = 0; b < SIZE; b++)
		if (b < HOLE || b >= HOLE_END)
			h->old[b] = (uint8_t)(1 + sim_below(&w->sim, 255));
	h->reader = scene_open(w, 1, "f", O_CREAT | O_RDWR);
	if (!w->failed)
		write_old(h);
}

/* Back to the state before the write. */
static void restore_half(struct half *h)
{
	cut_as(h, 0);
	write_old(h);
}

static bool is_piece(const struct half *h, uint64_t off)
{
	for (size_t i = 0; i < h->n; i++)
		if (off - h->ext[i].offset < h->ext[i].length)
			return true;
	return false;
}

/* The file's size. The pages within the hole must have no blocks. */
static uint64_t size_of(struct half *h, const char *when)
{
	struct cop *c = scene_call(h->w, 1);
	uint64_t size, blocks, most = SIZE + LONGER - (HOLE_END - HOLE - 2 * PAGE);
	int64_t r;

	client_getattr(c, cfile_handle(h->reader));
	r = scene_wait(h->w, c);
	size = c->attr.size;
	blocks = c->attr.blocks;
	scene_check(h->w, !r, "fstat: %d", (int)r);
	scene_check(h->w, blocks * 512 <= most, "%s: the file has %llu blocks: a hole is filled",
		    when, (unsigned long long)blocks);
	scene_end(h->w, c);
	return size;
}

/* Each byte of a piece is old, or new; all others are old. whole: all pieces must be new. */
static void check_half(struct half *h, bool whole, const char *when)
{
	const struct extent *last = &h->ext[h->n - 1];
	uint64_t size = size_of(h, when), end = MAX(SIZE, last->offset + last->length);
	struct world *w = h->w;

	scene_check(w, size >= SIZE && size <= end && (!whole || size == end),
		    "%s: the file is %llu bytes long", when, (unsigned long long)size);
	if (w->failed)
		return;
	read_whole(w, 1, h->reader, h->is, size);
	for (uint64_t b = 0; b < size && !w->failed; b++) {
		bool in = is_piece(h, b);

		if (h->is[b] == (whole ? h->now[b] : h->old[b]))
			continue;
		scene_check(w, in && !whole && h->is[b] == h->now[b],
			    "%s: byte %llu %s has %u, not %u or %u", when, (unsigned long long)b,
			    in ? "of a piece" : "between pieces", h->is[b], h->old[b], h->now[b]);
	}
}

static struct cop *start_half(struct half *h, struct cfile **f)
{
	struct cop *c;

	choose_pieces(h);
	*f = scene_open(h->w, 0, "f", O_RDWR);
	if (h->w->failed)
		return NULL;
	c = scene_call(h->w, 0);
	client_write(c, *f, &h->mem, 1, h->ext, h->n);
	return c;
}

/* Steps the world `n` times, or until the call has ended. */
static bool steps_within(struct world *w, const struct cop *c, uint32_t n)
{
	for (uint32_t i = 0; i < n && !c->finished; i++)
		sim_step(&w->sim);
	return !c->finished;
}

/* The server goes down at each step of a sieved write, and its client with it. */
static void crash_at_each_step(struct world *w, bool power)
{
	struct half *h = sim_alloc(sizeof(*h));
	bool within = true, sieved = false;
	struct cfile *f;

	begin_half(h, w);
	for (uint32_t at = 1 + (uint32_t)(w->sim.seed % STRIDE); within && !w->failed;
	     at += STRIDE) {
		struct cop *c = start_half(h, &f);

		if (!c)
			break;
		within = steps_within(w, c, at);
		sieved |= peek_sieved(w->targets[0].server, true) > 0;
		scene_die(w, 0);
		scene_down(w, 0, power);
		scene_up(w, 0);
		check_half(h, !within && !power, "after the crash");
		if (w->failed)
			break;
		restore_half(h);
		scene_revive(w, 0);
	}
	if (sieved)
		scene_met(w);
	if (!w->failed)
		scene_close(w, 1, h->reader);
	free(h);
}

static void sieve_killed(struct world *w)
{
	crash_at_each_step(w, false);
}

static void sieve_power_lost(struct world *w)
{
	crash_at_each_step(w, true);
}

/* From each step of a sieved write on, the disk has no room or fails. The writer is told, or all is
 * there, also after a power loss that follows a sync. */
static void fail_at_each_step(struct world *w, bool full)
{
	struct half *h = sim_alloc(sizeof(*h));
	struct sim_faults *bad = &w->sim.faults;
	struct sim_node *node = w->targets[0].node;
	bool within = true;
	int64_t r;

	begin_half(h, w);
	for (uint32_t at = (uint32_t)(w->sim.seed % STRIDE); within && !w->failed; at += STRIDE) {
		struct cfile *f;
		struct cop *c = start_half(h, &f);

		if (!c)
			break;
		within = steps_within(w, c, at);
		bad->read_eio = bad->write_eio = full ? 0 : 300000;
		node->capacity = full ? 1 : 0;
		r = scene_end(w, c);
		bad->read_eio = bad->write_eio = 0;
		node->capacity = 0;
		if (r < 0) {
			scene_check(w, r == (full ? -ENOSPC : -EIO), "the write: %d", (int)r);
			scene_met(w);
		}
		check_half(h, r >= 0, "after the write");
		if (r >= 0 && !w->failed) {
			r = sync_as(w, 0, f);
			scene_check(w, !r, "fsync: %d", (int)r);
			scene_down(w, 0, true);
			scene_up(w, 0);
			check_half(h, true, "after the sync and a power loss");
		}
		if (w->failed)
			break;
		scene_close(w, 0, f);
		restore_half(h);
	}
	if (!w->failed)
		scene_close(w, 1, h->reader);
	free(h);
}

static void sieve_disk_full(struct world *w)
{
	fail_at_each_step(w, true);
}

static void sieve_disk_fails(struct world *w)
{
	fail_at_each_step(w, false);
}

/* ---- bytes that the disk cannot read ---- */

#define BAD_AT (256 * KIB) /* behind the end of all files but the one here */
#define BAD_LEN 600
#define AREA (32 * KIB) /* pieces are within this distance of the bad bytes */

static void fill(uint8_t *p, const struct extent *e, uint8_t round)
{
	for (uint64_t b = 0; b < e->length; b++)
		p[b] = (uint8_t)((e->offset + b) * 7 + (e->offset + b) / 251 + round);
}

/* Pieces on both sides of the bad bytes, close together. needs: one of them has a bad byte. */
static size_t around_bad(struct sim *s, struct extent *ext, bool needs)
{
	uint64_t at = BAD_AT - AREA + sim_below(s, 1000);
	size_t n = 0;

	while (n < MOST) {
		uint64_t len = sim_between(s, 1, 300);

		at += sim_below(s, 200);
		if (at + len > BAD_AT && at < BAD_AT + BAD_LEN) {
			at = needs ? BAD_AT + sim_below(s, BAD_LEN) : BAD_AT + BAD_LEN;
			needs = false;
		}
		if (at + len > BAD_AT + AREA)
			break;
		ext[n++] = (struct extent){ at, len };
		at += len;
	}
	return n;
}

/* Reads or writes the pieces; a read is compared with what was written in `rounds`. */
static int64_t access_pieces(struct world *w, struct cfile *f, const struct extent *ext, size_t n,
			     uint8_t *rounds, uint8_t write)
{
	static uint8_t bytes[MOST * 300];
	struct iovec mem = { bytes, 0 };
	struct cop *c = scene_call(w, 0);
	uint8_t want[300];
	int64_t r;

	for (size_t i = 0; i < n; mem.iov_len += ext[i++].length)
		fill(bytes + mem.iov_len, &ext[i], write);
	if (write)
		client_write(c, f, &mem, 1, ext, n);
	else
		client_read(c, f, &mem, 1, ext, n);
	r = scene_end(w, c);
	for (size_t i = 0, at = 0; i < n && r >= 0; at += ext[i++].length)
		for (uint64_t b = 0; b < ext[i].length; b++) {
			uint8_t *round = &rounds[ext[i].offset + b - (BAD_AT - AREA)];

			if (write)
				*round = write;
			fill(want, &(struct extent){ ext[i].offset + b, 1 }, *round);
			scene_check(w, bytes[at + b] == want[0], "byte %llu is wrong",
				    (unsigned long long)(ext[i].offset + b));
		}
	return r < 0 || r == (int64_t)mem.iov_len ? r : -EPROTO;
}

/* The disk cannot read some bytes. Pieces around them may be covered by one access: only requests
 * that need the bad bytes fail. */
static void sieve_bad_bytes(struct world *w)
{
	uint8_t *rounds = sim_alloc(2 * AREA);
	struct extent whole = { BAD_AT - AREA, 2 * AREA }, ext[MOST];
	struct sim_node *node = w->targets[0].node;
	struct cfile *f;

	w->conf.stripe_unit = 4 * MIB; /* all in one object, at the same offsets */
	sieve_everywhere(w);
	f = scene_open(w, 0, "f", O_CREAT | O_RDWR);
	memset(rounds, 1, 2 * AREA);
	for (uint64_t at = 0; at < whole.length && !w->failed; at += 300) {
		struct extent e = { whole.offset + at, MIN(300, whole.length - at) };

		scene_check(w, access_pieces(w, f, &e, 1, rounds, 1) > 0, "the first write");
	}
	if (!w->failed) /* the same accesses as below are sieved */
		access_pieces(w, f, ext, around_bad(&w->sim, ext, false), rounds, 2);
	if (!w->failed && peek_sieved(w->targets[0].server, true))
		scene_met(w);
	node->bad_lo = BAD_AT;
	node->bad_hi = BAD_AT + BAD_LEN;
	for (uint8_t i = 3; i < 30 && !w->failed; i++) {
		bool needs = sim_below(&w->sim, 2), write = !needs && sim_below(&w->sim, 2);
		size_t n = around_bad(&w->sim, ext, needs);
		int64_t r = access_pieces(w, f, ext, n, rounds, write ? i : 0);

		scene_check(w, needs ? r == -EIO : r > 0, "a %s that %s the bad bytes: %d",
			    write ? "write" : "read", needs ? "needs" : "avoids", (int)r);
	}
	node->bad_lo = node->bad_hi = 0;
	for (uint64_t at = 0; at < whole.length && !w->failed; at += 300) {
		struct extent e = { whole.offset + at, MIN(300, whole.length - at) };

		scene_check(w, access_pieces(w, f, &e, 1, rounds, 0) > 0, "the last read");
	}
	if (!w->failed)
		scene_close(w, 0, f);
	free(rounds);
}

const struct scenario scenes_sieve[] = {
	{ "sieve-interleaved", sieve_interleaved, 2, 1, WRITERS, false },
	{ "sieve-killed", sieve_killed, 1, 1, 2, false },
	{ "sieve-power-lost", sieve_power_lost, 1, 1, 2, false },
	{ "sieve-disk-full", sieve_disk_full, 1, 1, 2, false },
	{ "sieve-disk-fails", sieve_disk_fails, 1, 1, 2, false },
	{ "sieve-bad-bytes", sieve_bad_bytes, 1, 1, 1, false },
	{ 0 },
};
