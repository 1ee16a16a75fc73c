/* The model of file contents: for each byte the values that it may have, now and after a power
 * loss.
 *
 *   a write begins          its value is possible
 *   a write is acknowledged only its value is possible, unless its target lost power meanwhile;
 *                           until a sync covers it, a power loss makes the old values possible
 *   a power loss            every value since the last sync is possible
 *   a sync succeeds         what was acknowledged to this client is there, for good: if it was
 *                           lost, that is the silent loss that the simulation looks for
 *   a read                  must see a possible value, which becomes the only one
 *   a copy                  is a write of the values that the bytes of its source may have
 *
 * A stripe unit is a multiple of a model page, so a page is on one target. */
#include <stdio.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

struct mfile *model_file(struct world *w)
{
	struct mfile *f = sim_alloc(sizeof(*f));

	f->id = ++w->n_files;
	if (htab_init(&f->pages))
		abort();
	list_push(&w->files, &f->all);
	return f;
}

static void free_page(struct hnode *n, void *arg)
{
	htab_remove(arg, n);
	free(container_of(n, struct mpage, node));
}

void model_free(struct world *w)
{
	struct list *it;

	while ((it = list_pop(&w->files))) {
		struct mfile *f = list_entry(it, struct mfile, all);

		htab_walk(&f->pages, free_page, &f->pages);
		htab_destroy(&f->pages);
		free(f);
	}
}

static struct mpage *page_find(struct mfile *f, uint64_t index)
{
	for (struct hnode *n = htab_first(&f->pages, hash_u64(index)); n; n = htab_next(n)) {
		struct mpage *p = container_of(n, struct mpage, node);

		if (p->index == index)
			return p;
	}
	return NULL;
}

static struct mpage *page_get(struct mfile *f, uint64_t index)
{
	struct mpage *p = page_find(f, index);

	if (p)
		return p;
	p = sim_alloc(sizeof(*p));
	p->index = index;
	if (htab_insert(&f->pages, &p->node, hash_u64(index)))
		abort();
	return p;
}

/* ---- one byte ---- */

static void byte_fill(struct mbyte *b)
{
	if (!b->n)
		b->n = b->n_now = 1; /* zero */
}

static int byte_find(const struct mbyte *b, uint8_t v)
{
	for (int i = 0; i < b->n; i++)
		if (b->v[i] == v)
			return i;
	return -1;
}

static void byte_swap(struct mbyte *b, int i, int j)
{
	uint8_t t = b->v[i];

	b->v[i] = b->v[j];
	b->v[j] = t;
}

/* Adds v to the values that are possible now. */
static void byte_add(struct mbyte *b, uint8_t v)
{
	int i;

	byte_fill(b);
	i = byte_find(b, v);
	if (i < 0 && b->n == BYTE_VALUES) {
		b->any = true;
		return;
	}
	if (i < 0) {
		i = b->n++;
		b->v[i] = v;
	}
	if (i >= b->n_now)
		byte_swap(b, i, b->n_now++);
}

/* Makes v the only value that is possible now. */
static void byte_only(struct mbyte *b, uint8_t v)
{
	byte_add(b, v);
	if (b->any)
		return;
	byte_swap(b, byte_find(b, v), 0);
	b->n_now = 1;
}

static bool byte_may(const struct mbyte *b, uint8_t v)
{
	int i;

	if (b->any)
		return true;
	if (!b->n)
		return v == 0;
	i = byte_find(b, v);
	return i >= 0 && i < b->n_now;
}

/* Makes v the only possible value, also after a power loss. */
static void byte_settle(struct mbyte *b, uint8_t v)
{
	b->n = b->n_now = 1;
	b->v[0] = v;
	b->any = b->owed = false;
}

/* ---- walking ---- */

uint32_t model_target(const struct mfile *f, uint64_t index)
{
	uint32_t i;
	uint64_t off;

	layout_locate(&f->layout, index * MODEL_PAGE, &i, &off);
	return f->targets[i];
}

static bool lost_since(const struct op *op, uint64_t page)
{
	uint32_t t = model_target(op->f, page);

	return op->a->w->targets[t].losses != op->losses[t];
}

static bool owns(const struct mfile *f, const struct actor *a, uint64_t off)
{
	return !f->n_owners || off / f->block % f->n_owners == a->id;
}

bool model_zeroes(uint32_t op)
{
	return op % 8 == 5;
}

uint8_t model_value(uint32_t op, uint64_t off)
{
	uint64_t x = (op * UINT64_C(0x9e3779b97f4a7c15)) ^ (off * UINT64_C(0xc2b2ae3d27d4eb4f));

	x ^= x >> 29;
	if (model_zeroes(op))
		return 0;
	return (uint8_t)(x * 31 >> 13) | 1; /* never zero, which would look like a hole */
}

/* Walks over the extents of an access, page by page. */
struct span {
	size_t i; /* index of the extent */
	uint64_t at; /* offset within it */
	uint64_t off, n; /* n 0: no more pieces */
};

static void span_next(const struct op *op, struct span *s)
{
	s->at += s->n;
	s->n = 0;
	while (s->i < op->n_ext && s->at == op->ext[s->i].length) {
		s->i++;
		s->at = 0;
	}
	if (s->i == op->n_ext)
		return;
	s->off = op->ext[s->i].offset + s->at;
	s->n = MIN(op->ext[s->i].length - s->at, MODEL_PAGE - s->off % MODEL_PAGE);
}

static struct span span_first(const struct op *op)
{
	struct span s = { 0 };

	span_next(op, &s);
	return s;
}

/* ---- writes ---- */

static uint64_t access_end(const struct op *op)
{
	uint64_t end = 0;

	for (size_t i = 0; i < op->n_ext; i++)
		if (op->ext[i].length)
			end = MAX(end, op->ext[i].offset + op->ext[i].length);
	return end;
}

static bool keeps_size(const struct op *op)
{
	return op->kind == DO_ALLOCATE && op->mode & ALLOC_KEEP_SIZE;
}

/* Does an allocation leave the existing bytes as they are? */
static bool keeps_bytes(const struct op *op)
{
	return op->kind == DO_ALLOCATE && !(op->mode & (ALLOC_PUNCH | ALLOC_ZERO));
}

static uint8_t value_of(const struct op *op, uint64_t off)
{
	return op->kind == DO_ALLOCATE ? 0 : model_value(op->number, off);
}

static void end_moves(struct op *op)
{
	struct mfile *f = op->f;

	f->size_hi = MAX(f->size_hi, access_end(op));
	f->wrote_end[op->a->id] = MAX(f->wrote_end[op->a->id], access_end(op));
}

/* The values that the operation writes are possible from now on. */
static void bytes_change(struct op *op)
{
	for (struct span s = span_first(op); s.n; span_next(op, &s)) {
		struct mpage *p = page_get(op->f, s.off / MODEL_PAGE);
		struct mbyte *b = &p->b[s.off % MODEL_PAGE];

		p->dirty = true;
		for (uint64_t k = 0; k < s.n && !keeps_bytes(op); k++)
			byte_add(&b[k], value_of(op, s.off + k));
	}
}

void model_write_begin(struct op *op)
{
	op->f->changed = ++op->a->w->seq;
	if (!keeps_size(op))
		end_moves(op);
	if (!keeps_size(op) || !keeps_bytes(op))
		bytes_change(op);
}

static void byte_written(struct mbyte *b, uint8_t v, uint32_t seq, bool acknowledged, bool lost)
{
	b->seq = seq;
	b->owed = acknowledged;
	b->last = v;
	if (acknowledged && !lost && !b->any)
		byte_only(b, v);
}

/* An acknowledged change makes the file at least this long. */
static void end_moved(struct op *op, uint64_t end)
{
	struct mfile *f = op->f;
	struct world *w = op->a->w;
	bool any_loss = false;

	for (uint32_t t = 0; t < w->conf.n_targets; t++)
		any_loss |= w->targets[t].losses != op->losses[t];
	f->owed_end[op->a->id] = MAX(f->owed_end[op->a->id], end);
	if (!any_loss)
		f->size_lo = MAX(f->size_lo, end);
}

void model_write_end(struct op *op, bool acknowledged)
{
	struct mfile *f = op->f;
	uint32_t seq = ++op->a->w->seq;
	/* overlaps a truncate: either may have come first */
	bool beside = f->n_cutting || f->cut > op->seq;

	if (beside)
		f->cut_race_end = MAX(f->cut_race_end, access_end(op));
	f->changed = seq;
	for (struct span s = span_first(op); s.n && !keeps_bytes(op); span_next(op, &s)) {
		struct mpage *p = page_get(f, s.off / MODEL_PAGE);
		struct mbyte *b = &p->b[s.off % MODEL_PAGE];
		bool lost = lost_since(op, p->index);

		for (uint64_t k = 0; k < s.n; k++)
			byte_written(&b[k], value_of(op, s.off + k), seq,
				     acknowledged && !(beside && s.off + k >= f->cut_to), lost);
	}
	if (acknowledged && !beside && !keeps_size(op))
		end_moved(op, access_end(op));
}

/* ---- copies ---- */

/* Returns the source's byte for this place. Since the copy began only a power loss can have
 * changed it. *p: its page, kept for the next byte. */
static const struct mbyte *source_byte(const struct op *op, uint64_t to, struct mpage **p)
{
	static const struct mbyte zero;
	uint64_t off = op->at + (to - op->ext[0].offset);

	if (!*p || (*p)->index != off / MODEL_PAGE)
		*p = page_find(op->source, off / MODEL_PAGE);
	return *p ? &(*p)->b[off % MODEL_PAGE] : &zero;
}

static void byte_add_all(struct mbyte *b, const struct mbyte *s)
{
	byte_fill(b);
	b->any |= s->any;
	if (!s->n)
		byte_add(b, 0);
	for (int i = 0; i < s->n_now; i++)
		byte_add(b, s->v[i]);
}

/* Leaves only values that s may have as possible now. */
static void byte_among(struct mbyte *b, const struct mbyte *s)
{
	for (int i = b->n_now - 1; i >= 0 && !b->any; i--)
		if (!byte_may(s, b->v[i]))
			byte_swap(b, i, --b->n_now);
}

static void byte_copied(struct mbyte *b, const struct mbyte *s, uint32_t seq, bool acknowledged,
			bool lost)
{
	byte_add_all(b, s);
	if (!s->any && s->n_now <= 1) {
		byte_written(b, s->n ? s->v[0] : 0, seq, acknowledged, lost);
		return;
	}
	b->seq = seq;
	b->owed = false;
	if (acknowledged && !lost)
		byte_among(b, s);
}

void model_copy_begin(struct op *op)
{
	uint64_t size = op->source->size_hi;
	struct mpage *from = NULL;

	op->ext[0].length = MIN(op->total, size > op->at ? size - op->at : 0);
	op->f->changed = ++op->a->w->seq;
	end_moves(op);
	for (struct span s = span_first(op); s.n; span_next(op, &s)) {
		struct mpage *p = page_get(op->f, s.off / MODEL_PAGE);
		struct mbyte *b = &p->b[s.off % MODEL_PAGE];

		p->dirty = true;
		for (uint64_t k = 0; k < s.n; k++)
			byte_add_all(&b[k], source_byte(op, s.off + k, &from));
	}
}

void model_copy_end(struct op *op, bool acknowledged, uint64_t count)
{
	uint64_t end = op->ext[0].offset + count;
	uint32_t seq = ++op->a->w->seq;
	struct mpage *from = NULL;

	op->f->changed = seq;
	for (struct span s = span_first(op); s.n; span_next(op, &s)) {
		struct mpage *p = page_get(op->f, s.off / MODEL_PAGE);
		struct mbyte *b = &p->b[s.off % MODEL_PAGE];
		bool lost = lost_since(op, p->index);

		for (uint64_t k = 0; k < s.n; k++)
			byte_copied(&b[k], source_byte(op, s.off + k, &from), seq,
				    acknowledged && s.off + k < end, lost);
	}
	if (acknowledged && count)
		end_moved(op, end);
}

/* ---- holes ---- */

struct data_walk {
	uint64_t lo, hi, first;
};

static void find_data(struct hnode *n, void *arg)
{
	struct data_walk *d = arg;
	const struct mpage *p = container_of(n, struct mpage, node);
	uint64_t start = p->index * MODEL_PAGE;

	for (uint64_t k = d->lo > start ? d->lo - start : 0; k < MODEL_PAGE; k++) {
		if (start + k >= MIN(d->hi, d->first))
			return;
		if (!byte_may(&p->b[k], 0))
			d->first = start + k;
	}
}

uint64_t model_data(struct mfile *f, uint64_t lo, uint64_t hi)
{
	struct data_walk d = { lo, hi, UINT64_MAX };

	htab_walk(&f->pages, find_data, &d);
	return d.first;
}

/* ---- reads ---- */

static void misread(struct op *op, const struct mbyte *b, uint64_t o, uint8_t seen)
{
	char list[64] = "";
	int at = 0;

	for (int i = 0; i < b->n_now && at < 50; i++)
		at += snprintf(list + at, sizeof(list) - (size_t)at, " %02x", b->v[i]);
	world_fail(op->a->w, op->f->id, "byte %llu of file %u reads %02x; possible:%s%s",
		   (unsigned long long)o, op->f->id, seen, b->n ? list : " 00",
		   b->any ? " any" : "");
}

/* Position of the next byte of the stream in memory. */
struct mem_cursor {
	const struct op *op;
	size_t i, o;
};

static uint8_t next_byte(struct mem_cursor *c)
{
	while (c->o == c->op->iov[c->i].iov_len) {
		c->i++;
		c->o = 0;
	}
	return ((uint8_t *)c->op->iov[c->i].iov_base)[c->o++];
}

static uint64_t before(const struct op *op, uint64_t size)
{
	struct access a;

	if (access_init(&a, op->iov, op->n_iov, op->ext, op->n_ext))
		abort();
	return access_before(&a, size);
}

/* Checks the bytes of one page. */
static bool read_span(struct op *op, uint64_t off, uint64_t n, struct mem_cursor *c)
{
	static struct mbyte zeros[MODEL_PAGE];
	struct mfile *f = op->f;
	struct mpage *p = page_find(f, off / MODEL_PAGE);
	struct mbyte *b = p ? &p->b[off % MODEL_PAGE] : zeros;
	bool lost = p && lost_since(op, p->index);

	for (uint64_t k = 0; k < n; k++, b++) {
		uint8_t seen = next_byte(c);

		if (b->n <= 1 && b->v[0] == seen) /* true for most bytes */
			continue;
		if (f->n_owners && !owns(f, op->a, off + k))
			continue;
		if (!byte_may(b, seen)) {
			misread(op, b, off + k, seen);
			return false;
		}
		if (!b->any && b->n_now > 1 && !lost)
			byte_only(b, seen);
	}
	return true;
}

void model_read_end(struct op *op, uint64_t count)
{
	struct mfile *f = op->f;
	struct mem_cursor c = { op, 0, 0 };
	uint64_t lo = before(op, MIN(op->size_lo, f->size_lo)), hi = before(op, f->size_hi);

	if (count < lo || count > hi) {
		world_fail(op->a->w, f->id, "a read gives %llu bytes, not %llu to %llu",
			   (unsigned long long)count, (unsigned long long)lo,
			   (unsigned long long)hi);
		return;
	}
	for (struct span s = span_first(op); s.n && count; span_next(op, &s)) {
		uint64_t n = MIN(s.n, count);

		if (!read_span(op, s.off, n, &c))
			return;
		count -= n;
	}
}

/* ---- syncs and losses ---- */

struct sync_walk {
	struct op *op;
	bool unsure; /* a failed sync may have lost data that this one does not guarantee */
	bool failed;
};

static void vouch(struct sync_walk *s, struct mbyte *b, uint64_t o, bool safe)
{
	struct op *op = s->op;

	if (!byte_may(b, b->last)) {
		s->failed = true;
		world_fail(op->a->w, op->f->id,
			   "%s of file %u succeeded, but byte %llu is lost (%02x was acknowledged)",
			   do_names[op->kind], op->f->id, (unsigned long long)o, b->last);
		return;
	}
	if (safe)
		byte_settle(b, b->last);
	else if (!b->any)
		byte_only(b, b->last);
}

static void sync_page(struct hnode *n, void *arg)
{
	struct sync_walk *s = arg;
	struct mpage *p = container_of(n, struct mpage, node);
	struct mfile *f = s->op->f;
	bool still = false;

	if (!p->dirty)
		return;
	for (uint64_t k = 0; k < MODEL_PAGE && !s->failed; k++) {
		struct mbyte *b = &p->b[k];
		uint64_t o = p->index * MODEL_PAGE + k;

		if (b->n && b->seq < s->op->seq) {
			if (b->owed && owns(f, s->op->a, o))
				vouch(s, b, o, true);
			else if (!b->any && !s->unsure)
				b->n = b->n_now;
		}
		still |= b->n > 1 || b->owed || b->any;
	}
	p->dirty = still;
}

void model_synced(struct op *op)
{
	struct sync_walk s = { .op = op, .unsure = op->a->w->enabled[FAULT_DISK] };
	struct mfile *f = op->f;
	uint64_t *owed = &f->owed_end[op->a->id];

	if (f->unchecked)
		return;
	htab_walk(&f->pages, sync_page, &s);
	f->size_lo = MAX(f->size_lo, *owed);
	if (!f->n_owners)
		f->size_safe = f->size_lo;
	else
		f->size_safe = MAX(f->size_safe, *owed);
	*owed = 0;
}

static void forgive_page(struct hnode *n, void *arg)
{
	struct mpage *p = container_of(n, struct mpage, node);
	struct op *op = arg;

	for (uint64_t k = 0; p->dirty && k < MODEL_PAGE; k++)
		if (p->b[k].owed && owns(op->f, op->a, p->index * MODEL_PAGE + k))
			p->b[k].owed = false;
}

void model_forgiven(struct mfile *f, const struct actor *a)
{
	struct op op = { .f = f, .a = (struct actor *)(uintptr_t)a };

	htab_walk(&f->pages, forgive_page, &op);
	f->size_hi = MAX(f->size_hi, f->wrote_end[a->id]);
	f->owed_end[a->id] = 0;
}

void model_opened(struct op *op)
{
	op->f->wrote_end[op->a->id] = 0;
}

/* A successful close guarantees the same as a sync, but only for losses that are so old that the
 * client knows of them, and nothing about later losses. */
static void close_page(struct hnode *n, void *arg)
{
	struct sync_walk *s = arg;
	struct mpage *p = container_of(n, struct mpage, node);
	struct op *op = s->op;
	struct target *t = &op->a->w->targets[model_target(op->f, p->index)];

	if (!p->dirty || (t->last_loss && t->last_loss + 10 * NSEC_PER_SEC > op->began))
		return;
	for (uint64_t k = 0; k < MODEL_PAGE && !s->failed; k++)
		if (p->b[k].owed && owns(op->f, op->a, p->index * MODEL_PAGE + k))
			vouch(s, &p->b[k], p->index * MODEL_PAGE + k, false);
}

static bool lost_lately(const struct op *op)
{
	const struct world *w = op->a->w;

	for (uint32_t t = 0; t < w->conf.n_targets; t++)
		if (w->targets[t].last_loss &&
		    w->targets[t].last_loss + 10 * NSEC_PER_SEC > op->began)
			return true;
	return false;
}

void model_closed(struct op *op)
{
	struct sync_walk s = { .op = op };

	if (op->f->unchecked)
		return;
	if (op->f->known)
		htab_walk(&op->f->pages, close_page, &s);
	if (!op->f->n_owners && !lost_lately(op))
		op->f->size_safe = op->f->size_lo;
	model_forgiven(op->f, op->a);
}

static void lose_page(struct hnode *n, void *arg)
{
	struct mpage *p = container_of(n, struct mpage, node);

	(void)arg;
	for (int k = 0; p->dirty && k < MODEL_PAGE; k++)
		p->b[k].n_now = p->b[k].n;
}

struct loss {
	struct mfile *f;
	uint32_t target;
};

static void lose_if_there(struct hnode *n, void *arg)
{
	struct loss *l = arg;

	struct mpage *p = container_of(n, struct mpage, node);

	if (model_target(l->f, p->index) != l->target)
		return;
	l->f->damaged |= p->dirty;
	lose_page(n, NULL);
}

/* Operations under way may have seen the size after a power loss, whatever was written later. */
static void lower_sizes(struct world *w)
{
	for (uint32_t i = 0; i <= w->n_actors; i++)
		for (int k = 0; k < N_LANES; k++) {
			struct op *op = &w->actors[i].lanes[k];

			if (op->busy && op->f)
				op->size_lo = MIN(op->size_lo, op->f->size_lo);
			if (op->busy && op->source)
				op->source_lo = MIN(op->source_lo, op->source->size_lo);
		}
}

void model_power_loss(struct world *w, uint32_t target)
{
	struct mfile *f;

	list_for_each(f, &w->files, all) {
		struct loss l = { f, target };

		if (!f->known) {
			f->damaged = true;
			continue;
		}
		htab_walk(&f->pages, lose_if_there, &l);
		f->size_lo = MIN(f->size_lo, f->size_safe);
	}
	lower_sizes(w);
}

/* ---- size ---- */

struct cut {
	struct op *op;
	uint64_t size, was; /* was: lower bound of the size before */
};

/* A write that ended during the truncate comes before it or after it. Where the file grows, the
 * bytes are zero or have a value that may have been written there. */
static void cut_page(struct hnode *n, void *arg)
{
	struct cut *c = arg;
	struct mpage *p = container_of(n, struct mpage, node);
	uint64_t first = p->index * MODEL_PAGE;

	for (uint64_t k = 0; k < MODEL_PAGE; k++) {
		struct mbyte *b = &p->b[k];
		bool beside = b->seq > c->op->seq;

		if (!b->n || (first + k < c->size && first + k < c->was))
			continue;
		if (first + k >= c->size && !beside) {
			*b = (struct mbyte){ 0 };
			continue;
		}
		byte_add(b, 0);
		b->owed = false;
		b->n_now = b->n;
	}
}

/* For a write that is still under way. */
static void write_goes_on(struct op *op, struct mfile *f)
{
	bytes_change(op);
	f->size_hi = MAX(f->size_hi, access_end(op));
	f->wrote_end[op->a->id] = access_end(op);
}

void model_truncated(struct op *op, uint64_t size)
{
	struct mfile *f = op->f;
	struct world *w = op->a->w;
	struct cut c = { op, size, f->size_lo };

	htab_walk(&f->pages, cut_page, &c);
	f->size_lo = f->size_safe = size;
	f->damaged &= size > 0;
	f->size_hi = MAX(size, f->cut_race_end);
	f->changed = f->cut = ++w->seq;
	for (uint32_t i = 0; i <= MAX_CLIENTS; i++)
		f->owed_end[i] = f->wrote_end[i] = 0;
	for (uint32_t i = 0; i < w->n_actors && f->n_writing; i++)
		for (int k = 0; k < N_LANES; k++) {
			struct op *o = &w->actors[i].lanes[k];

			if (o->busy && o->kind == DO_WRITE && o->f == f)
				write_goes_on(o, f);
		}
}

static void find_end(struct hnode *n, void *arg)
{
	uint64_t *end = arg;

	*end = MAX(*end, (container_of(n, struct mpage, node)->index + 1) * MODEL_PAGE);
}

uint64_t model_end(const struct mfile *f)
{
	uint64_t end = 0;

	htab_walk((struct htab *)(uintptr_t)&f->pages, find_end, &end);
	return end;
}

void model_size_seen(struct op *op, uint64_t size)
{
	struct mfile *f = op->f;
	struct world *w = op->a->w;
	bool lost = false;

	if (f->unchecked)
		return;
	if (size < MIN(op->size_lo, f->size_lo) || size > f->size_hi) {
		world_fail(w, f->id, "file %u has size %llu, not %llu to %llu", f->id,
			   (unsigned long long)size,
			   (unsigned long long)MIN(op->size_lo, f->size_lo),
			   (unsigned long long)f->size_hi);
		return;
	}
	for (uint32_t t = 0; t < w->conf.n_targets; t++)
		lost |= w->targets[t].losses != op->losses[t];
	if (!f->n_busy && !f->n_owners && !lost && f->changed <= op->seq) {
		struct cut c = { op, size, size };

		f->size_lo = f->size_hi = size;
		htab_walk(&f->pages, cut_page, &c); /* no byte behind the end can come back */
	}
}
