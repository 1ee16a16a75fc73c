/* Copies, allocation, holes and seeks: a second script of a client, beside the one of sim_ops.c, on
 * the files that the client has open.
 *
 * Two of five runs have it. The model (sim_model.c) knows what the bytes must be afterwards, also
 * after a power loss: a copy has the bytes of its source, allocation changes none, holes and zeros
 * are zeros. Reads, stats and syncs of both scripts, and the reading back at the end, check the
 * files against it.
 *
 * A copy whose client died or gave up may still run while its source changes. From then on the
 * file that it writes is not checked. */
#include <fcntl.h>
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define FAR_AWAY (UINT64_C(4) << 30)

/* The seed's hash, not the generator, chooses the runs: the others stay as they are. */
static bool is_on(const struct world *w)
{
	return hash_u64(w->sim.seed + 11) % 5 < 2;
}

bool copies_kind(enum do_kind k)
{
	return k == DO_COPY || k == DO_ALLOCATE || k == DO_SEEK;
}

/* ---- the expected result of a copy within one file ---- */

/* How much can be copied from a source of this size. */
static uint64_t clipped(const struct op *op, uint64_t size)
{
	return MIN(op->total, size > op->at ? size - op->at : 0);
}

/* Would the ranges overlap if the file had this size? */
static bool overlaps(const struct op *op, uint64_t size)
{
	uint64_t to = op->ext[0].offset, n = clipped(op, size);

	return op->from == op->h && op->at < to + n && to < op->at + n;
}

int copies_expect(const struct op *op)
{
	const struct mfile *f = op->from->f;

	return overlaps(op, MIN(f->size_safe, f->size_lo)) ? -EINVAL : 0;
}

/* Is the size too uncertain to tell whether the ranges overlap? */
static bool is_unsure(const struct op *op)
{
	return overlaps(op, op->from->f->size_hi) && !copies_expect(op);
}

/* ---- choices ---- */

static bool is_usable(const struct handle *h, int flags)
{
	return h->cf && !h->busy && !h->f->unchecked && !h->f->n_busy &&
	       (flags < 0 || h->flags == O_RDWR || h->flags == flags);
}

/* Chooses a file, if possible another one than `other` and not an empty one. */
static struct handle *any_handle(struct op *op, int flags, const struct handle *other)
{
	struct actor *a = op->a;
	uint64_t first = sim_below(&a->w->sim, SHARED_HANDLE);
	struct handle *best = NULL;

	for (uint64_t i = 0; i < SHARED_HANDLE; i++) {
		struct handle *h = &a->handles[(first + i) % SHARED_HANDLE];

		if (!is_usable(h, flags))
			continue;
		if (!best || best == other || (h != other && !best->f->size_hi))
			best = h;
	}
	return best;
}

/* Chooses a place within the file, near its end, or anywhere. */
static uint64_t any_place(struct op *op, const struct mfile *f)
{
	struct sim *s = &op->a->w->sim;
	uint64_t how = sim_below(s, 100), at = sim_below(s, op->a->w->span);

	if (how < 50)
		at %= MAX(f->size_hi, UINT64_C(1));
	else if (how < 75)
		at = f->size_hi > at % 9000 ? f->size_hi - at % 9000 : 0;
	else if (how < 78)
		at += FAR_AWAY;
	return sim_chance(s, 300000) ? at & ~(uint64_t)(MODEL_PAGE - 1) : at;
}

static uint64_t any_length(struct op *op)
{
	struct sim *s = &op->a->w->sim;
	uint64_t most = sim_chance(s, 700000) ? 20000 : op->a->w->span;

	return sim_between(s, 1, most);
}

static bool choose_copy(struct op *op)
{
	struct sim *s = &op->a->w->sim;

	op->kind = DO_COPY;
	op->h = any_handle(op, O_WRONLY, NULL);
	op->from = any_handle(op, O_RDONLY, op->h);
	if (op->h && op->h->flags == O_RDWR && sim_chance(s, 150000))
		op->from = op->h;
	if (!op->h || !op->from)
		return false;
	op->at = any_place(op, op->from->f);
	op->total = any_length(op);
	op->ext[0].offset = any_place(op, op->h->f);
	if (sim_chance(s, 300000)) /* a copy of a whole file */
		op->ext[0].offset = op->at;
	op->n_ext = 1;
	return !is_unsure(op);
}

static bool choose_allocate(struct op *op)
{
	static const uint32_t modes[] = { 0,
					  0,
					  ALLOC_KEEP_SIZE,
					  ALLOC_PUNCH | ALLOC_KEEP_SIZE,
					  ALLOC_PUNCH | ALLOC_KEEP_SIZE,
					  ALLOC_ZERO,
					  ALLOC_ZERO | ALLOC_KEEP_SIZE };

	op->kind = DO_ALLOCATE;
	op->h = any_handle(op, O_WRONLY, NULL);
	if (!op->h)
		return false;
	op->mode = modes[sim_below(&op->a->w->sim, ARRAY_LEN(modes))];
	op->ext[0].offset = any_place(op, op->h->f);
	op->ext[0].length = op->total = any_length(op);
	op->n_ext = 1;
	return true;
}

static bool choose_seek(struct op *op)
{
	op->kind = DO_SEEK;
	op->h = any_handle(op, -1, NULL);
	if (!op->h)
		return false;
	op->at = any_place(op, op->h->f);
	op->flags = sim_chance(&op->a->w->sim, 500000);
	return true;
}

/* Writes data that later copies and seeks use. */
static bool choose_write(struct op *op)
{
	uint64_t at, len = any_length(op);

	op->h = any_handle(op, O_WRONLY, NULL);
	if (!op->h)
		return false;
	at = any_place(op, op->h->f);
	op_extents_whole(op, at, len, true);
	return true;
}

/* Reads, stats or syncs what the last change of this script left. */
static bool choose_look(struct op *op)
{
	struct actor *a = op->a;
	uint64_t what = sim_below(&a->w->sim, 100);

	op->h = a->changed.h;
	a->changed.h = NULL;
	if (!is_usable(op->h, O_RDONLY))
		return false;
	if (what < 50)
		op_extents_whole(op, a->changed.at, a->changed.len, false);
	else
		op->kind = what < 70 ? DO_FSTAT : DO_FSYNC;
	return op->kind != DO_FSTAT || !op->h->f->n_looking;
}

static bool choose(struct op *op)
{
	uint64_t what = sim_below(&op->a->w->sim, 100);

	op->name = -1;
	if (op->a->changed.h && what < 60)
		return choose_look(op);
	what = sim_below(&op->a->w->sim, 100);
	return what < 35 ? choose_copy(op) :
	       what < 65 ? choose_allocate(op) :
	       what < 90 ? choose_seek(op) :
			   choose_write(op);
}

/* ---- the script ---- */

void copies_launch(struct op *op, struct cop *c)
{
	const struct extent *to = &op->ext[0];

	if (op->kind == DO_SEEK)
		client_seek(c, op->h->cf, op->at, op->flags);
	else if (op->kind == DO_ALLOCATE)
		client_allocate(c, op->h->cf, op->mode, to->offset, to->length);
	else
		client_copy(c, op->from->cf, op->at, op->h->cf, to->offset, op->total);
}

static void think(void *arg)
{
	struct actor *a = arg;
	struct world *w = a->w;
	struct op *op;

	if (w->failed || !a->copies_left)
		return;
	sim_after(&w->sim, sim_between(&w->sim, 50000, 30 * NSEC_PER_MSEC), think, a);
	if (!a->client || a->rest_until > w->sim.now)
		return;
	if (!a->ops_left) /* perhaps no file is open, and none will be opened any more */
		a->copies_left--;
	op = a->copies_left ? actor_lane(a) : NULL;
	if (!op)
		return;
	if (!choose(op)) {
		*op = (struct op){ .a = a };
		return;
	}
	a->copies_left -= a->ops_left > 0;
	if (op->kind == DO_COPY || op->kind == DO_ALLOCATE)
		a->changed = (struct changed){ op->h, op->ext[0].offset, op->total };
	op_begin(op);
	if (op->kind == DO_COPY)
		faults_after_sync(w, DO_COPY);
	if (sim_chance(&w->sim, 100000))
		faults_lose_answer(a);
}

void copies_start(struct actor *a)
{
	if (!is_on(a->w))
		return;
	a->copies_left = (uint32_t)sim_between(&a->w->sim, 10, 100);
	think(a);
}

bool copies_idle(const struct actor *a)
{
	return !a->copies_left;
}

/* ---- the judges ---- */

/* Does a part of the data come from another server? */
static bool is_far(const struct op *op, uint64_t count)
{
	for (uint64_t k = 0; k < count; k += MODEL_PAGE)
		if (model_target(op->source, (op->at + k) / MODEL_PAGE) !=
		    model_target(op->f, (op->ext[0].offset + k) / MODEL_PAGE))
			return true;
	return false;
}

static bool any_crash(const struct op *op)
{
	const struct world *w = op->a->w;

	for (uint32_t t = 0; t < w->conf.n_targets; t++)
		if (w->targets[t].losses != op->losses[t])
			return true;
	return false;
}

static void copied(struct op *op, uint64_t count)
{
	struct counters *n = op->a->w->count;
	uint64_t lo = clipped(op, MIN(op->source_lo, op->source->size_lo));
	uint64_t hi = clipped(op, op->source->size_hi);

	if (count < lo || count > hi) {
		world_fail(op->a->w, op->f->id,
			   "a copy of file %u gives %llu bytes, not %llu to %llu", op->source->id,
			   (unsigned long long)count, (unsigned long long)lo,
			   (unsigned long long)hi);
		return;
	}
	model_copy_end(op, true, count);
	n->copies++;
	n->copies_far += is_far(op, count);
	n->copies_within += op->source == op->f && count;
	n->copies_short += count < op->total;
	n->copies_crash += any_crash(op);
}

static void allocated(struct op *op)
{
	struct counters *n = op->a->w->count;
	bool longer = op->ext[0].offset + op->ext[0].length > op->f->size_lo;

	model_write_end(op, true);
	if (op->mode & ALLOC_PUNCH) {
		n->holes++;
		n->holes_behind += longer;
	} else if (op->mode & ALLOC_ZERO) {
		n->zeros++;
		n->zeros_longer += longer && !(op->mode & ALLOC_KEEP_SIZE);
	} else {
		n->rooms++;
		n->rooms_longer += longer && !op->mode;
		n->rooms_kept += longer && op->mode;
	}
}

static void wrong_seek(struct op *op, int64_t result, const char *why, uint64_t where)
{
	world_fail(op->a->w, op->f->id, "a seek for %s from %llu in file %u says %lld: %s at %llu",
		   op->flags ? "a hole" : "data", (unsigned long long)op->at, op->f->id,
		   (long long)result, why, (unsigned long long)where);
}

/* There must be no data between the start of the seek and its answer, or the end of the file. */
static void judge_data(struct op *op, int64_t result)
{
	uint64_t size = MIN(op->size_lo, op->f->size_lo), at = (uint64_t)result;
	uint64_t missed = model_data(op->f, op->at, result < 0 ? size : MIN(at, size));

	if (missed != UINT64_MAX)
		wrong_seek(op, result, "there are data", missed);
	else if (result >= 0 && (at < op->at || at >= op->f->size_hi))
		wrong_seek(op, result, "the file ends", op->f->size_hi);
	op->a->w->count->seeks_data += result >= 0;
	op->a->w->count->seeks_none += result < 0 && op->at < size;
}

/* There must be no data between the start of a hole and the end of its page. */
static void judge_hole(struct op *op, int64_t result)
{
	uint64_t size = MIN(op->size_lo, op->f->size_lo), at = (uint64_t)result, data;

	if (result < 0 ? op->at < size : at < op->at || at > op->f->size_hi) {
		wrong_seek(op, result, "the file ends", op->f->size_hi);
		return;
	}
	if (result < 0)
		return;
	data = model_data(op->f, at, MIN((at / MODEL_PAGE + 1) * MODEL_PAGE, size));
	if (data != UINT64_MAX)
		wrong_seek(op, result, "there are data", data);
	op->a->w->count->seeks_hole += at < size;
	op->a->w->count->seeks_end += at >= size;
}

void copies_judge(struct op *op, int64_t result)
{
	if (op->kind == DO_COPY)
		copied(op, (uint64_t)result);
	else if (op->kind == DO_ALLOCATE)
		allocated(op);
	else if (op->flags)
		judge_hole(op, result);
	else
		judge_data(op, result);
}

bool copies_excused(const struct op *op)
{
	return op->a->w->enabled[FAULT_DISK] || op->f->damaged ||
	       (op->source && op->source->damaged);
}

bool copies_failed(struct op *op)
{
	op->a->w->count->copies_failed++;
	if (op->kind == DO_ALLOCATE)
		model_write_end(op, false);
	if (op->kind != DO_COPY || op->expect)
		return false;
	model_copy_end(op, false, 0);
	return !op->result || is_network_error(op->result) ||
	       op->a->isolations != op->h->isolations || op->a->isolations != op->from->isolations;
}
