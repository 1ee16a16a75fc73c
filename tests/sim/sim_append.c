/* Clients that append to one file, each two appends at a time, and sync it.
 *
 * An append is a sequence of 8-byte words, each with the number of the append and its index. At
 * the end the file is read back: each acknowledged append is there, complete, at one place, and
 * an append that ended before another began lies before it. An append that was not acknowledged
 * may be there in part: its place stays. A power loss may take what no fsync has covered. After
 * a restart of a server, or when its client lost its session, an append may have got a second
 * place; what it wrote to the first one stays. */
#include <fcntl.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define PATIENCE (400 * NSEC_PER_SEC)
#define PATH "shared/log"
#define CHUNK 4096

static const struct sheaf_cred root_cred = { 0 };
static const struct sheaf_handle root = { 1, 1 };

/* ---- one append ---- */

static uint32_t losses(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->conf.n_targets; i++)
		n += w->targets[i].losses;
	return n;
}

static struct append_rec *rec_new(struct world *w, struct actor *a)
{
	struct append_log *log = &w->appends;
	struct append_rec *r;

	if (log->n == log->cap) {
		log->cap = log->cap ? 2 * log->cap : 64;
		log->v = realloc(log->v, log->cap * sizeof(*log->v));
		if (!log->v)
			abort();
	}
	r = &log->v[log->n++];
	*r = (struct append_rec){ .client = a->id,
				  .words = (uint32_t)sim_between(&w->sim, 1, APPEND_WORDS),
				  .losses = losses(w),
				  .base = UINT64_MAX };
	return r;
}

static uint64_t word_of(uint32_t rec, uint32_t i)
{
	return (uint64_t)(rec + 1) << 32 | i;
}

/* What this client appended before `began` is durable. */
static void synced(struct appender *p, uint64_t began)
{
	struct world *w = p->a->w;

	for (uint32_t i = 0; i < w->appends.n && !w->enabled[FAULT_DISK]; i++) {
		struct append_rec *r = &w->appends.v[i];

		if (r->client == p->a->id && r->ended && r->ended < began && r->losses == losses(w))
			r->safe = true;
	}
}

static bool is_allowed(const struct append_lane *l, int64_t e)
{
	const struct world *w = l->p->a->w;

	if (is_network_error(e))
		return w->sim.now - l->started >= (w->conf.timeout_s - 1) * NSEC_PER_SEC;
	if ((e == -ESTALE || e == -EIO) && l->p->a->isolations != l->p->isolations)
		return true;
	if (e == -EIO)
		return w->enabled[FAULT_DISK] || w->enabled[FAULT_META] || w->n_unclean;
	return e == -ENOSPC && (w->enabled[FAULT_FULL] || w->enabled[FAULT_META]);
}

static void succeeded(struct append_lane *l, struct cop *c)
{
	struct appender *p = l->p;
	struct world *w = p->a->w;
	struct append_rec *r = &w->appends.v[l->rec];

	switch (l->kind) {
	case APPEND_OPEN:
		p->file = c->file;
		break;
	case APPEND_WRITE:
		r->ended = ++w->seq;
		w->count->appends++;
		if (c->result != r->words * 8)
			world_fail(w, NO_FILE, "append %u of %u bytes is answered with %lld",
				   l->rec, r->words * 8, (long long)c->result);
		break;
	case APPEND_SYNC:
		synced(p, l->began);
		break;
	default:
		break;
	}
}

static void done(struct cop *c)
{
	struct append_lane *l = c->user;
	struct appender *p = l->p;
	struct world *w = p->a->w;

	sim_trace(&w->sim, SIM_TEST + 6 * DO_KINDS + l->kind, p->a->node->id, (uint64_t)c->result);
	world_note(w, NO_FILE, "c%u append %d %u = %lld (from %llu to %llu)", p->a->id, l->kind,
		   l->rec, (long long)c->result, (unsigned long long)l->began,
		   (unsigned long long)w->seq + 1);
	l->busy = false;
	if (c->result >= 0)
		succeeded(l, c);
	else if (!is_allowed(l, c->result))
		world_fail(w, NO_FILE, "c%u: an operation on " PATH " (%d): %s (%lld)", p->a->id,
			   l->kind, error_text((int)c->result), (long long)c->result);
	p->reopen |= c->result < 0 && p->file;
	cop_free(c);
}

/* ---- operations ---- */

static struct cop *begin(struct append_lane *l, enum append_kind kind)
{
	struct actor *a = l->p->a;
	struct cop *c = cop_new(a->client, &root_cred);

	c->done = done;
	c->user = l;
	l->busy = true;
	l->kind = kind;
	l->began = ++a->w->seq;
	l->started = a->w->sim.now;
	if (kind == APPEND_OPEN)
		l->p->isolations = a->isolations;
	return c;
}

static uint32_t n_busy(const struct appender *p)
{
	return p->lanes[0].busy + p->lanes[1].busy;
}

static void start_close(struct append_lane *l)
{
	struct cfile *f = l->p->file;

	l->p->file = NULL;
	client_close(begin(l, APPEND_CLOSE), f);
}

static void start_append(struct append_lane *l)
{
	struct world *w = l->p->a->w;
	struct append_rec *r = rec_new(w, l->p->a);
	struct cop *c = begin(l, APPEND_WRITE);

	l->rec = w->appends.n - 1;
	r->began = l->began;
	for (uint32_t i = 0; i < r->words; i++)
		l->mem[i] = word_of(l->rec, i);
	l->iov = (struct iovec){ l->mem, r->words * 8 };
	l->ext = (struct extent){ 0, r->words * 8 };
	client_write(c, l->p->file, &l->iov, 1, &l->ext, 1);
}

static void go(struct append_lane *l)
{
	struct appender *p = l->p;

	if (p->reopen || !p->file) {
		if (n_busy(p))
			return;
		p->reopen = false;
		if (p->file)
			start_close(l);
		else
			client_open(begin(l, APPEND_OPEN), root, PATH, O_WRONLY | O_APPEND, 0,
				    NULL);
	} else if (sim_chance(&p->a->w->sim, 150000)) {
		client_fsync(begin(l, APPEND_SYNC), p->file);
	} else {
		start_append(l);
	}
}

static void think(void *arg)
{
	struct appender *p = arg;
	struct world *w = p->a->w;
	struct append_lane *l = !p->lanes[0].busy ? &p->lanes[0] : &p->lanes[1];

	if (w->failed || !p->left)
		return;
	sim_after(&w->sim, sim_between(&w->sim, 1, 20 * NSEC_PER_MSEC), think, p);
	if (l->busy || !p->a->client || p->a->rest_until > w->sim.now)
		return;
	p->left--;
	go(l);
}

void appends_init(struct actor *a)
{
	a->appender.a = a;
	a->appender.lanes[0].p = a->appender.lanes[1].p = &a->appender;
}

bool appends_idle(const struct actor *a)
{
	return !n_busy(&a->appender) && !a->appender.left;
}

void appends_abandon(struct actor *a)
{
	a->appender.lanes[0].busy = a->appender.lanes[1].busy = false;
	a->appender.file = NULL;
	a->appender.reopen = false;
}

void appends_start(struct actor *a)
{
	if (!a->w->appends.on)
		return;
	a->appender.left = (uint32_t)sim_between(&a->w->sim, 5, 50);
	think(&a->appender);
}

/* ---- the judgement ---- */

static bool ended(void *arg)
{
	const struct append_lane *l = arg;

	return !l->busy || l->p->a->w->failed;
}

static bool wait_for(struct append_lane *l)
{
	if (!sim_run(&l->p->a->w->sim, ended, l, PATIENCE))
		world_fail(l->p->a->w, NO_FILE, "an operation on " PATH " does not end");
	return !l->p->a->w->failed;
}

static void see_word(struct world *w, uint64_t off, uint64_t word)
{
	uint32_t rec = (uint32_t)(word >> 32) - 1, i = (uint32_t)word;
	struct append_rec *r = rec < w->appends.n ? &w->appends.v[rec] : NULL;
	uint64_t base = off - 8 * (uint64_t)i;

	if (!word)
		return;
	if (!r || i >= r->words || 8 * (uint64_t)i > off) {
		world_fail(w, NO_FILE, "byte %llu of " PATH " has %llx, which was never appended",
			   (unsigned long long)off, (unsigned long long)word);
		return;
	}
	if (r->base != UINT64_MAX && r->base != base && w->n_starts == w->conf.n_targets &&
	    !w->actors[r->client].isolations)
		world_fail(w, NO_FILE, "append %u is at %llu and at %llu", rec,
			   (unsigned long long)r->base, (unsigned long long)base);
	if (base != r->base)
		r->n_seen = 0; /* the later place counts: the abandoned one lies before it */
	r->base = base;
	r->n_seen++;
}

struct reader {
	bool ended;
	int64_t result;
	uint64_t mem[CHUNK / 8];
};

static void was_read(struct cop *c)
{
	struct reader *r = c->user;

	r->ended = true;
	r->result = c->result;
	cop_free(c);
}

static bool has_read(void *arg)
{
	return ((struct reader *)arg)->ended;
}

/* Reads the whole file. Returns false if a part cannot be read because its data are lost. */
static bool read_back(struct world *w, struct cfile *f)
{
	struct reader r = { .result = CHUNK };

	for (uint64_t off = 0; r.result == CHUNK && !w->failed; off += CHUNK) {
		struct iovec iov = { r.mem, CHUNK };
		struct extent ext = { off, CHUNK };
		struct cop *c = cop_new(caretaker(w)->client, &root_cred);

		r.ended = false;
		c->done = was_read;
		c->user = &r;
		client_read(c, f, &iov, 1, &ext, 1);
		if (!sim_run(&w->sim, has_read, &r, PATIENCE))
			abort();
		for (int64_t i = 0; i < r.result / 8; i++)
			see_word(w, off + 8 * (uint64_t)i, r.mem[i]);
	}
	if (r.result < 0 && !losses(w))
		world_fail(w, NO_FILE, PATH " cannot be read: %d", (int)r.result);
	return r.result >= 0;
}

static bool must_be_there(const struct world *w, const struct append_rec *r)
{
	return r->safe || (r->ended && r->losses == losses(w));
}

static int by_place(const void *a, const void *b)
{
	const struct append_rec *x = a, *y = b;

	return x->base < y->base ? -1 : x->base > y->base;
}

/* An append that ended before another began must lie before it. */
static void judge_order(struct world *w)
{
	struct append_log *log = &w->appends;
	uint64_t first_end = UINT64_MAX;

	if (log->n)
		qsort(log->v, log->n, sizeof(*log->v), by_place);
	for (uint32_t i = log->n; i > 0 && !w->failed; i--) {
		const struct append_rec *r = &log->v[i - 1];

		if (r->base == UINT64_MAX || !must_be_there(w, r))
			continue;
		if (r->began > first_end)
			world_fail(w, NO_FILE,
				   "an append at %llu lies before one that ended before it began",
				   (unsigned long long)r->base);
		first_end = MIN(first_end, r->ended);
	}
}

static void judge(struct world *w, struct cfile *f)
{
	struct append_log *log = &w->appends;

	if (!read_back(w, f) || w->failed)
		return;
	for (uint32_t i = 0; i < log->n; i++)
		if (must_be_there(w, &log->v[i]) && log->v[i].n_seen != log->v[i].words)
			world_fail(w, NO_FILE,
				   "append %u of c%u was acknowledged; %u of its %u words are "
				   "there",
				   i, log->v[i].client, log->v[i].n_seen, log->v[i].words);
	judge_order(w);
	w->count->append_files++;
}

/* ---- setup and cleanup ---- */

static void close_file(struct appender *p)
{
	if (!p->file)
		return;
	start_close(&p->lanes[0]);
	wait_for(&p->lanes[0]);
}

void appends_setup(struct world *w)
{
	struct appender *p = &caretaker(w)->appender;

	client_open(begin(&p->lanes[0], APPEND_OPEN), root, PATH, O_RDWR | O_CREAT | O_EXCL, 0600,
		    NULL);
	if (!wait_for(&p->lanes[0]))
		return;
	close_file(p);
	w->appends.on = true;
}

void appends_cleanup(struct world *w)
{
	struct appender *p = &caretaker(w)->appender;

	if (!w->appends.on)
		return;
	for (uint32_t i = 0; i < w->n_actors && !w->failed; i++)
		close_file(&w->actors[i].appender);
	client_open(begin(&p->lanes[0], APPEND_OPEN), root, PATH, O_RDWR, 0, NULL);
	if (!wait_for(&p->lanes[0]))
		return;
	judge(w, p->file);
	close_file(p);
	if (w->failed)
		return;
	client_unlink(begin(&p->lanes[0], APPEND_CLOSE), root, PATH);
	wait_for(&p->lanes[0]);
}
