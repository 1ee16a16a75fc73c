/* The table behind the data of an image: which pieces the process had, which bytes of them are in
 * this image, and the checksums. A fixed little-endian layout, decoded with every bound checked.
 *
 * Threads: any. Errors: -EUCLEAN: not a table that this code wrote. */
#include "ckpt/ckpt_impl.h"

#define MAGIC UINT64_C(0x31656c6261747370) /* "pstable1" */
#define PIECES_MAX (1U << 20)

struct writer {
	char *at, *end; /* at NULL: only counts */
	size_t len;
};

static void put(struct writer *w, const void *p, size_t n)
{
	w->len += n;
	if (!w->at)
		return;
	memcpy(w->at, p, n);
	w->at += n;
}

static void put_u64(struct writer *w, uint64_t v)
{
	unsigned char b[8];

	for (int i = 0; i < 8; i++)
		b[i] = (unsigned char)(v >> (8 * i));
	put(w, b, 8);
}

static void put_u32(struct writer *w, uint32_t v)
{
	unsigned char b[4];

	for (int i = 0; i < 4; i++)
		b[i] = (unsigned char)(v >> (8 * i));
	put(w, b, 4);
}

static void put_piece(struct writer *w, const struct ckpt_piece *p)
{
	char name[CKPT_NAME_MAX] = "";

	memcpy(name, p->name, strlen(p->name));
	put(w, name, sizeof(name));
	put_u64(w, p->start);
	put_u64(w, p->bytes);
	put_u64(w, p->shape);
	put_u64(w, p->global);
	put_u64(w, p->n_groups);
	for (size_t i = 0; i < p->n_groups; i++) {
		put_u64(w, p->groups[i].offset);
		put_u64(w, p->groups[i].length);
		put_u64(w, p->groups[i].stride);
		put_u64(w, p->groups[i].count);
	}
}

static void put_table(struct writer *w, const struct ckpt_table *t)
{
	put_u64(w, MAGIC);
	put_u32(w, t->rank);
	put_u32(w, t->n);
	put_u64(w, t->number);
	put_u64(w, t->stream);
	put_u64(w, t->data);
	put_u64(w, t->pieces.n);
	put_u64(w, t->n_runs);
	put_u64(w, t->n_sums);
	for (size_t i = 0; i < t->pieces.n; i++)
		put_piece(w, &t->pieces.v[i]);
	for (size_t i = 0; i < t->n_runs; i++) {
		put_u64(w, t->runs[i].at);
		put_u64(w, t->runs[i].len);
	}
	for (size_t i = 0; i < t->n_sums; i++)
		put_u32(w, t->sums[i]);
}

size_t ckpt_sums_of(uint64_t data)
{
	return (size_t)((data + CKPT_BLOCK - 1) / CKPT_BLOCK);
}

size_t ckpt_table_room(const struct ckpt_pieces *p, size_t n_runs, uint64_t data)
{
	struct ckpt_table t = { .pieces = *p };
	struct writer w = { .len = 0 };

	put_table(&w, &t);
	return w.len + 16 * n_runs + 4 * ckpt_sums_of(data);
}

int ckpt_table_encode(const struct ckpt_table *t, void **out, size_t *len)
{
	struct writer w = { .len = 0 };

	put_table(&w, t);
	*len = w.len;
	*out = w.at = malloc(w.len);
	if (!*out)
		return ckpt_fail(-ENOMEM, "out of memory");
	put_table(&w, t);
	return 0;
}

/* ---- decoding ---- */

struct reader {
	const unsigned char *at;
	size_t left;
	bool bad;
};

static uint64_t get(struct reader *r, unsigned n)
{
	uint64_t v = 0;

	if (r->left < n) {
		r->bad = true;
		r->left = 0;
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)r->at[i] << (8 * i);
	r->at += n;
	r->left -= n;
	return v;
}

/* Memory for n elements that take `each` bytes in the text, so n is bounded by it. */
static void *get_array(struct reader *r, uint64_t n, size_t each, size_t size)
{
	if (n > r->left / each) {
		r->bad = true;
		return NULL;
	}
	return calloc(n ? (size_t)n : 1, size);
}

/* All runs are within the array; no sum or product wraps. */
static bool is_within(const struct ckpt_group *g, uint64_t global)
{
	uint64_t room;

	if (g->offset > global || g->length > global - g->offset)
		return false;
	room = global - g->offset - g->length;
	return g->count == 1 || (g->stride && g->stride <= room / (g->count - 1));
}

static bool get_groups(struct reader *r, struct ckpt_piece *p)
{
	uint64_t sum = 0;

	p->groups = get_array(r, p->n_groups, 32, sizeof(*p->groups));
	for (size_t i = 0; p->groups && i < p->n_groups; i++) {
		struct ckpt_group *g = &p->groups[i];

		g->offset = get(r, 8);
		g->length = get(r, 8);
		g->stride = get(r, 8);
		g->count = get(r, 8);
		if (!g->length || !g->count || g->count > p->bytes / g->length ||
		    !is_within(g, p->global))
			return false;
		sum += g->length * g->count;
		if (sum > p->bytes)
			return false;
	}
	return p->groups && (!p->n_groups || sum == p->bytes);
}

static bool get_piece(struct reader *r, struct ckpt_piece *p, uint64_t start)
{
	if (r->left < CKPT_NAME_MAX)
		return false;
	memcpy(p->name, r->at, CKPT_NAME_MAX);
	r->at += CKPT_NAME_MAX;
	r->left -= CKPT_NAME_MAX;
	p->start = get(r, 8);
	p->bytes = get(r, 8);
	p->shape = get(r, 8);
	p->global = get(r, 8);
	p->n_groups = get(r, 8);
	return !p->name[CKPT_NAME_MAX - 1] && p->start == start && p->bytes <= INT64_MAX - start &&
	       p->global <= INT64_MAX && get_groups(r, p);
}

static bool get_runs(struct reader *r, struct ckpt_table *t)
{
	uint64_t end = 0, sum = 0;

	t->runs = get_array(r, t->n_runs, 16, sizeof(*t->runs));
	for (size_t i = 0; t->runs && i < t->n_runs; i++) {
		t->runs[i].at = get(r, 8);
		t->runs[i].len = get(r, 8);
		if (t->runs[i].at < end || t->runs[i].at > t->stream ||
		    t->runs[i].len > t->stream - t->runs[i].at)
			return false;
		end = t->runs[i].at + t->runs[i].len;
		sum += t->runs[i].len;
	}
	return t->runs && sum == t->data;
}

static bool get_table(struct reader *r, struct ckpt_table *t)
{
	if (get(r, 8) != MAGIC)
		return false;
	t->rank = (uint32_t)get(r, 4);
	t->n = (uint32_t)get(r, 4);
	t->number = get(r, 8);
	t->stream = get(r, 8);
	t->data = get(r, 8);
	t->pieces.n = get(r, 8);
	t->n_runs = get(r, 8);
	t->n_sums = get(r, 8);
	if (t->stream > INT64_MAX || t->data > t->stream || t->pieces.n > PIECES_MAX ||
	    t->n_sums != ckpt_sums_of(t->data))
		t->pieces.n = 0, r->bad = true;
	t->pieces.v = get_array(r, t->pieces.n, CKPT_NAME_MAX + 40, sizeof(*t->pieces.v));
	if (!t->pieces.v) {
		t->pieces.n = 0;
		return false;
	}
	for (size_t i = 0; i < t->pieces.n; i++) {
		if (!get_piece(r, &t->pieces.v[i], t->pieces.bytes))
			return false;
		t->pieces.bytes += t->pieces.v[i].bytes;
	}
	if (t->pieces.bytes != t->stream || !get_runs(r, t))
		return false;
	t->sums = get_array(r, t->n_sums, 4, sizeof(*t->sums));
	for (size_t i = 0; t->sums && i < t->n_sums; i++)
		t->sums[i] = (uint32_t)get(r, 4);
	return t->sums && !r->bad && !r->left;
}

int ckpt_table_decode(const void *buf, size_t len, struct ckpt_table *t)
{
	struct reader r = { .at = buf, .left = len };

	memset(t, 0, sizeof(*t));
	if (get_table(&r, t))
		return 0;
	ckpt_table_free(t);
	return ckpt_fail(-EUCLEAN, "the table of an image is damaged");
}

void ckpt_table_free(struct ckpt_table *t)
{
	ckpt_pieces_free(&t->pieces);
	free(t->runs);
	free(t->sums);
	t->runs = NULL;
	t->sums = NULL;
}
