/* The rows of `sheaf bench` and what is derived from them: ratios, bars, plots, and their texts. */
#include <assert.h>
#include <stdlib.h>

#include "bench/bench_impl.h"

static struct bench_row *row_add(struct bench *b, const struct bench_row *like)
{
	struct bench_row *r = &b->rows[b->n_rows++];

	assert(b->n_rows <= BENCH_MAX_ROWS);
	*r = *like;
	r->bench = b->kind->name;
	return r;
}

void bench_case_add(struct bench *b, struct bench_case c, const char *what, ...)
{
	static const char *const units[] = { "1/s", "GB/s", "us", "us" };
	struct bench_row row = { .unit = c.unit ? c.unit : units[c.figure],
				 .bytes = c.bytes,
				 .pieces = c.pieces };
	va_list ap;

	va_start(ap, what);
	vsnprintf(row.what, sizeof(row.what), what, ap);
	va_end(ap);
	c.workers = MAX(c.workers, 1);
	if (!c.job.path[0])
		snprintf(c.job.path, sizeof(c.job.path), "%s", b->place.scratch);
	row.clients = (uint32_t)c.workers;
	c.row = row_add(b, &row);
	assert(b->n_cases < BENCH_MAX_CASES);
	b->cases[b->n_cases++] = c;
}

const struct bench_row *bench_find(struct bench *b, const char *what, uint32_t clients,
				   uint64_t bytes, uint32_t pieces)
{
	for (size_t i = 0; i < b->n_rows; i++) {
		const struct bench_row *r = &b->rows[i];

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

static struct bench_row *derive(struct bench *b, const char *name, const char *unit, int runs)
{
	struct bench_row *r =
		row_add(b, &(struct bench_row){ .unit = unit, .derived = true, .runs = runs });

	snprintf(r->what, sizeof(r->what), "%s", name);
	return r;
}

const struct bench_row *bench_ratio(struct bench *b, const char *name, const struct bench_row *a,
				    const struct bench_row *c)
{
	struct bench_row *r;

	if (!a || !c)
		return NULL;
	r = derive(b, name, "ratio", MIN(a->runs, c->runs));
	bench_row_text(r->of, sizeof(r->of), a);
	bench_row_text(r->to, sizeof(r->to), c);
	for (int i = 0; i < r->runs; i++)
		r->values[i] = c->values[i] > 0 ? a->values[i] / c->values[i] : 0;
	bench_row_sum_up(r);
	return r;
}

const struct bench_row *bench_growth(struct bench *b, const char *name, const struct bench_row *a,
				     const struct bench_row *c, double by)
{
	struct bench_row *r;

	if (!a || !c)
		return NULL;
	r = derive(b, name, "ratio", MIN(a->runs, c->runs));
	snprintf(r->of, sizeof(r->of), "(%.40s - %.40s)", a->what, c->what);
	snprintf(r->to, sizeof(r->to), "%.0f %s", by, a->unit);
	for (int i = 0; i < r->runs; i++)
		r->values[i] = (a->values[i] - c->values[i]) / by;
	bench_row_sum_up(r);
	return r;
}

const struct bench_row *bench_scaled(struct bench *b, const char *name, const struct bench_row *a,
				     double n, const char *unit)
{
	struct bench_row *r = derive(b, name, unit, a->runs);

	bench_row_text(r->of, sizeof(r->of), a);
	if (n > 1)
		snprintf(r->to, sizeof(r->to), "1/%.0f", n);
	else if (n < 1)
		snprintf(r->to, sizeof(r->to), "%.0f", 1 / n);
	for (int i = 0; i < r->runs; i++)
		r->values[i] = a->values[i] * n;
	bench_row_sum_up(r);
	return r;
}

const struct bench_row *bench_worst(struct bench *b, const char *name,
				    const struct bench_row *const *rows, int n, bool highest)
{
	struct bench_row *r;

	for (int i = 0; i < n; i++)
		if (!rows[i])
			return NULL;
	r = derive(b, name, rows[0]->unit, rows[0]->runs);
	snprintf(r->of, sizeof(r->of), "the %s of %d rows", highest ? "highest" : "lowest", n);
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
	struct bench_row *r;

	for (int i = 1; worst && i < n; i++) {
		if (!rows[i])
			return NULL;
		if (highest ? rows[i]->median > worst->median : rows[i]->median < worst->median)
			worst = rows[i];
	}
	if (!worst)
		return NULL;
	r = row_add(b, worst);
	snprintf(r->what, sizeof(r->what), "%s", name);
	return r;
}

void bench_paper(struct bench *b, const struct bench_row *row, const char *paper)
{
	if (row)
		b->rows[row - b->rows].paper = paper;
}

const char *const bench_senses[] = { "at least", "at most", "exactly" };

void bench_bar(struct bench *b, const struct bench_row *row, enum bench_sense sense, double need)
{
	if (!row)
		return;
	assert(b->n_bars < BENCH_MAX_BARS);
	b->bars[b->n_bars++] = (struct bench_bar){ row, sense, need };
}

void bench_bar_ratio(struct bench *b, const char *name, const struct bench_row *a,
		     const struct bench_row *c, enum bench_sense sense, double need)
{
	bench_bar(b, bench_ratio(b, name, a, c), sense, need);
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
	struct bench_plot *p = &b->plots[b->n_plots++];

	assert(b->n_plots <= BENCH_MAX_PLOTS);
	*p = (struct bench_plot){ .bench = b->kind->name, .name = name, .title = title };
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
