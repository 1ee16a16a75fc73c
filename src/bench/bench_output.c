/* The results of `sheaf bench` as JSON and as tables. */
#include <stdlib.h>

#include "bench/bench_impl.h"

/* ---- JSON output ---- */

/* Rounds to a few digits: 0.8123 instead of 0.81229999999999. */
static struct json_object *json_number(double v)
{
	char text[32];

	snprintf(text, sizeof(text), "%.5g", v);
	return json_object_new_double_s(strtod(text, NULL), text);
}

static void put_text(struct json_object *o, const char *key, const char *text)
{
	if (text && text[0])
		cli_json_text(o, key, text);
}

/* The better direction of a judged row, or NULL. */
static const char *better(struct bench *b, const struct bench_row *r)
{
	static const char *const ways[] = { "higher", "lower", "exact" };

	for (size_t i = 0; i < b->n_bars; i++)
		if (b->bars[i].row == r)
			return ways[b->bars[i].sense];
	return NULL;
}

/* System calls per operation: by the client, and by all servers. NULL: no servers involved. */
static struct json_object *calls_json(const struct bench_row *r)
{
	struct json_object *o;

	if (!r->ops || !r->client_calls)
		return NULL;
	o = json_object_new_object();
	json_object_object_add(o, "client", json_number((double)r->client_calls / (double)r->ops));
	json_object_object_add(o, "servers", json_number((double)r->server_calls / (double)r->ops));
	return o;
}

static struct json_object *row_json(struct bench *b, const struct bench_row *r)
{
	struct json_object *o = json_object_new_object(), *values = json_object_new_array();

	put_text(o, "bench", r->bench);
	put_text(o, "case", r->what);
	if (r->clients)
		cli_json_int(o, "clients", r->clients);
	if (r->pieces)
		cli_json_int(o, "pieces", r->pieces);
	if (r->bytes)
		cli_json_int(o, "bytes", r->bytes);
	put_text(o, "of", r->of);
	put_text(o, "to", r->to);
	put_text(o, "paper", r->paper);
	put_text(o, "better", better(b, r));
	put_text(o, "unit", r->unit);
	json_object_object_add(o, "median", json_number(r->median));
	json_object_object_add(o, "min", json_number(r->min));
	json_object_object_add(o, "max", json_number(r->max));
	cli_json_int(o, "runs", r->runs);
	for (int i = 0; i < r->runs; i++)
		json_object_array_add(values, json_number(r->values[i]));
	json_object_object_add(o, "values", values);
	if (!r->derived)
		json_object_object_add(o, "syscalls_per_op", calls_json(r));
	return o;
}

struct json_object *bench_json(struct bench *b)
{
	struct json_object *o = json_object_new_object(), *rows = json_object_new_array(),
			   *bars = json_object_new_object();

	put_text(o, "bench", b->name);
	json_object_object_add(o, "conditions", bench_conditions(b));
	for (size_t i = 0; i < b->n_rows; i++)
		json_object_array_add(rows, row_json(b, &b->rows[i]));
	json_object_object_add(o, "rows", rows);
	for (size_t i = 0; i < b->n_bars; i++) {
		struct json_object *bar = json_object_new_object();

		json_object_object_add(bar, "value", json_number(b->bars[i].row->median));
		json_object_object_add(bar, "need", json_number(b->bars[i].need));
		cli_json_bool(bar, "ok", bench_bar_ok(&b->bars[i]));
		json_object_object_add(bars, b->bars[i].row->what, bar);
	}
	json_object_object_add(o, "bars", bars);
	return o;
}

/* ---- text output ---- */

static void add_numbers(struct cli_table *t, const struct bench_row *r)
{
	const double v[] = { r->median, r->min, r->max };
	char text[32];

	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		bench_number_text(text, sizeof(text), v[i]);
		cli_table_add(t, "%s", text);
	}
}

static bool has_paper(struct bench *b, const struct bench_kind *k)
{
	for (size_t i = 0; i < b->n_rows; i++)
		if (b->rows[i].bench == k->name && b->rows[i].paper)
			return true;
	return false;
}

static int print_measured(struct bench *b, const struct bench_kind *k)
{
	static const char *const heads[] = { "CASE", ">MEDIAN", ">MIN", ">MAX", "UNIT" };
	struct cli_table t;
	char what[256];
	size_t n = 0;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (size_t i = 0; i < b->n_rows; i++) {
		const struct bench_row *r = &b->rows[i];

		if (r->bench != k->name || r->derived)
			continue;
		if (n++ == 0)
			printf("%s: %s\n%s%s", k->name, k->summary, k->about ? k->about : "",
			       k->about ? "\n" : "");
		bench_row_text(what, sizeof(what), r);
		cli_table_add(&t, "%s", what);
		add_numbers(&t, r);
		cli_table_add(&t, "%s", r->unit);
	}
	return n ? cli_table_print(&t, stdout) || puts("") < 0 : 0;
}

/* The column PAPER appears if a row of this benchmark has a figure for it. */
static int print_derived(struct bench *b, const struct bench_kind *k)
{
	static const char *const heads[] = { "RATIO", ">MEDIAN", ">MIN", ">MAX", "OF WHAT" };
	static const char *const more[] = {
		"RATIO", ">MEDIAN", ">MIN", ">MAX", ">PAPER", "OF WHAT"
	};
	bool paper = has_paper(b, k);
	struct cli_table t;
	size_t n = 0;

	cli_table_init(&t, paper ? more : heads, paper ? ARRAY_LEN(more) : ARRAY_LEN(heads));
	for (size_t i = 0; i < b->n_rows; i++) {
		const struct bench_row *r = &b->rows[i];

		if (r->bench != k->name || !r->derived)
			continue;
		n++;
		cli_table_add(&t, "%s", r->what);
		add_numbers(&t, r);
		if (paper)
			cli_table_add(&t, "%s", r->paper ? r->paper : "-");
		cli_table_add(&t, "%s%s%s", r->of, r->to[0] ? " / " : "", r->to);
	}
	return n ? cli_table_print(&t, stdout) || puts("") < 0 : 0;
}

static int print_bars(struct bench *b)
{
	static const char *const heads[] = { "BAR", ">VALUE", "NEED", "" };
	struct cli_table t;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (size_t i = 0; i < b->n_bars; i++) {
		const struct bench_bar *bar = &b->bars[i];

		cli_table_add(&t, "%s", bar->row->what);
		cli_table_add(&t, "%.3g", bar->row->median);
		cli_table_add(&t, "%s %g", bench_senses[bar->sense], bar->need);
		cli_table_add(&t, "%s", bench_bar_ok(bar) ? "ok" : "MISSED");
	}
	return cli_table_print(&t, stdout);
}

int bench_print(struct bench *b)
{
	const struct bench_place *p = &b->place;
	const struct bench_shown *s = &b->shown;
	char hosts[128];
	int r = 0;

	bench_hosts_text(b, hosts, sizeof(hosts));
	printf("%d server%s (%d with metadata) on %s%s%s, over %s%s, %d round%s; medians over the rounds\n\n",
	       s->servers, s->servers == 1 ? "" : "s", s->metas, p->fs_type,
	       p->storage[0] ? " at " : "", p->storage, s->medium, hosts, s->rounds,
	       s->rounds == 1 ? "" : "s");
	for (const struct bench_kind *const *k = bench_kinds; *k; k++)
		r |= print_measured(b, *k) | print_derived(b, *k);
	if (b->n_bars)
		r |= print_bars(b);
	return r ? cli_error(b->c, "out of memory") : CLI_OK;
}
