/* The rows of `sheaf bench` and what is derived from them: ratios, bars, plots, and their texts. */
#include <stdlib.h>

#include "bench/bench_impl.h"

/* Grows an array by one element. */
static void *grow(struct bench *b, void *array, size_t n, size_t size)
{
	void *p = realloc(array, (n + 1) * size);

	if (!p)
		b->no_memory = true;
	return p;
}

static struct bench_row *row_add(struct bench *b, const struct bench_row *like)
{
	struct bench_row **rows = grow(b, b->rows, b->n_rows, sizeof(struct bench_row *));
	struct bench_row *r = rows ? malloc(sizeof(*r)) : NULL;

	if (rows)
		b->rows = rows;
	if (!r) {
		b->no_memory = true;
		return NULL;
	}
	*r = *like;
	r->bench = b->kind->name;
	b->rows[b->n_rows++] = r;
	return r;
}

void bench_case_add(struct bench *b, struct bench_case c, const char *what, ...)
{
	static const char *const units[] = { "1/s", "GB/s", "us", "us" };
	struct bench_case *cases = grow(b, b->cases, b->n_cases, sizeof(*cases));
	struct bench_row row = { .unit = c.unit ? c.unit : units[c.figure],
				 .bytes = c.bytes,
				 .pieces = c.pieces };
	va_list ap;

	va_start(ap, what);
	vsnprintf(row.what, sizeof(row.what), what, ap);
	va_end(ap);
	c.workers = MAX(c.workers, 1);
	row.clients = (uint32_t)c.workers;
	c.row = row_add(b, &row);
	if (cases)
		b->cases = cases;
	if (c.row && cases)
		b->cases[b->n_cases++] = c;
}

const struct bench_row *bench_find(struct bench *b, const char *what, uint32_t clients,
				   uint64_t bytes, uint32_t pieces)
{
	for (size_t i = 0; i < b->n_rows; i++) {
		const struct bench_row *r = b->rows[i];

		if (r->bench == b->kind->name && strcmp(r->what, what) == 0 &&
		    r->clients == clients && r->bytes == bytes && r->pieces == pieces)
			return r;
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void bench_row_sum_up(struct bench_row *r)
{
	double v[BENCH_MAX_ROUNDS];
	int n = r->runs;

	if (!n)
		return;
	memcpy(v, r->values, (size_t)n * sizeof(*v));
	qsort(v, (size_t)n, sizeof(*v), by_value);
	r->min = v[0];
	r->max = v[n - 1];
	r->median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

const struct bench_row *bench_ratio(struct bench *b, const char *name, const struct bench_row *a,
				    const struct bench_row *c)
{
	struct bench_row like = { .unit = "ratio", .derived = true }, *r;

	if (!a || !c)
		return NULL;
	snprintf(like.what, sizeof(like.what), "%s", name);
	bench_row_text(like.of, sizeof(like.of), a);
	bench_row_text(like.to, sizeof(like.to), c);
	r = row_add(b, &like);
	if (!r)
		return NULL;
	r->runs = MIN(a->runs, c->runs);
	for (int i = 0; i < r->runs; i++)
		r->values[i] = c->values[i] > 0 ? a->values[i] / c->values[i] : 0;
	bench_row_sum_up(r);
	return r;
}

const struct bench_row *bench_scaled(struct bench *b, const char *name, const struct bench_row *a,
				     double n, const char *unit)
{
	struct bench_row like = { .unit = unit, .derived = true }, *r;

	snprintf(like.what, sizeof(like.what), "%s", name);
	bench_row_text(like.of, sizeof(like.of), a);
	snprintf(like.to, sizeof(like.to), "1/%.0f", n);
	r = row_add(b, &like);
	if (!r)
		return NULL;
	r->runs = a->runs;
	for (int i = 0; i < r->runs; i++)
		r->values[i] = a->values[i] * n;
	bench_row_sum_up(r);
	return r;
}

const struct bench_row *bench_worst(struct bench *b, const char *name,
				    const struct bench_row *const *rows, int n, bool highest)
{
	struct bench_row like = { .derived = true }, *r;

	for (int i = 0; i < n; i++)
		if (!rows[i])
			return NULL;
	like.unit = rows[0]->unit;
	snprintf(like.what, sizeof(like.what), "%s", name);
	snprintf(like.of, sizeof(like.of), "the %s of %d rows", highest ? "highest" : "lowest", n);
	r = row_add(b, &like);
	if (!r)
		return NULL;
	r->runs = rows[0]->runs;
	for (int k = 0; k < r->runs; k++) {
		r->values[k] = rows[0]->values[k];
		for (int i = 1; i < n; i++) {
			double v = rows[i]->values[k];

			r->values[k] = highest ? MAX(r->values[k], v) : MIN(r->values[k], v);
		}
	}
	bench_row_sum_up(r);
	return r;
}

const struct bench_row *bench_worst_point(struct bench *b, const char *name,
					  const struct bench_row *const *rows, int n, bool highest)
{
	const struct bench_row *worst = n ? rows[0] : NULL;
	struct bench_row like;

	for (int i = 1; worst && i < n; i++) {
		if (!rows[i])
			return NULL;
		if (highest ? rows[i]->median > worst->median : rows[i]->median < worst->median)
			worst = rows[i];
	}
	if (!worst)
		return NULL;
	like = *worst;
	snprintf(like.what, sizeof(like.what), "%s", name);
	return row_add(b, &like);
}

void bench_bar(struct bench *b, const char *name, const struct bench_row *row,
	       enum bench_sense sense, double need)
{
	struct bench_bar *bars = row ? grow(b, b->bars, b->n_bars, sizeof(*bars)) : NULL;

	if (!bars)
		return;
	b->bars = bars;
	b->bars[b->n_bars++] = (struct bench_bar){ name, row, sense, need };
}

void bench_bar_ratio(struct bench *b, const char *name, const struct bench_row *a,
		     const struct bench_row *c, enum bench_sense sense, double need)
{
	bench_bar(b, name, bench_ratio(b, name, a, c), sense, need);
}

bool bench_bar_ok(const struct bench_bar *bar)
{
	double v = bar->row->median;

	switch (bar->sense) {
	case BENCH_AT_LEAST:
		return v >= bar->need;
	case BENCH_AT_MOST:
		return v <= bar->need;
	default:
		return v == bar->need;
	}
}

struct bench_plot *bench_plot_add(struct bench *b, const char *name, const char *title)
{
	struct bench_plot **plots = grow(b, b->plots, b->n_plots, sizeof(struct bench_plot *));
	struct bench_plot *p = plots ? calloc(1, sizeof(*p)) : NULL;

	if (plots)
		b->plots = plots;
	if (!p) {
		b->no_memory = true;
		return NULL;
	}
	p->bench = b->kind->name;
	p->name = name;
	p->title = title;
	b->plots[b->n_plots++] = p;
	return p;
}

int bench_plot_group(struct bench_plot *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->groups[p->n_groups], sizeof(p->groups[0]), fmt, ap);
	va_end(ap);
	return p->n_groups++;
}

int bench_plot_series(struct bench_plot *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->series[p->n_series], sizeof(p->series[0]), fmt, ap);
	va_end(ap);
	return p->n_series++;
}

/* ---- text ---- */

void bench_size_text(char *out, size_t n, uint64_t bytes)
{
	if (bytes >= MIB && bytes % MIB == 0)
		snprintf(out, n, "%u MiB", (unsigned)(bytes / MIB));
	else if (bytes >= KIB && bytes % KIB == 0)
		snprintf(out, n, "%u KiB", (unsigned)(bytes / KIB));
	else
		snprintf(out, n, "%llu B", (unsigned long long)bytes);
}

void bench_number_text(char *out, size_t n, double v)
{
	int digits = v >= 1000 ? 0 : v >= 100 ? 1 : v >= 10 ? 2 : 3;

	snprintf(out, n, "%.*f", digits, v);
}

void bench_row_text(char *out, size_t n, const struct bench_row *r)
{
	char size[32];
	int k = snprintf(out, n, "%s", r->what);

	bench_size_text(size, sizeof(size), r->bytes);
	if (r->pieces && k >= 0 && (size_t)k < n)
		k += snprintf(out + k, n - (size_t)k, ", %u x %s", r->pieces, size);
	else if (r->bytes && k >= 0 && (size_t)k < n)
		k += snprintf(out + k, n - (size_t)k, ", %s", size);
	if (r->clients && k >= 0 && (size_t)k < n)
		snprintf(out + k, n - (size_t)k, ", %u client%s", BENCH_CLIENTS(r->clients));
}
