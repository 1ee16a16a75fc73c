/* sheaf bench: measures Sheaf and what the same machine does without it, in the same run.
 *
 * This file has the command, the rounds, rows, ratios and bars, and the output as JSON and tables.
 * Every round runs every case once, so alternatives are interleaved; a ratio is computed within a
 * round; bars judge the median of the ratios. The first round is a short warm-up, not counted. */
#include "bench/bench_impl.h"

#include <stdlib.h>
#include <unistd.h>

#include "bench/bench.h"

#define DEFAULT_ROUNDS 9
#define DEFAULT_SERVERS 4
#define SLICE_NS (200 * NSEC_PER_MSEC)
#define WARM_NS (20 * NSEC_PER_MSEC)

enum { OPT_DIR, OPT_SERVERS, OPT_META, OPT_CLIENTS, OPT_ROUNDS, OPT_LONG, OPT_JSON, OPT_REPORT };

static const struct bench_kind *const kinds[] = { &bench_net,  &bench_contig, &bench_latency,
						  &bench_meta, &bench_lists,  &bench_transfer,
						  &bench_mount };

/* ---- rows ---- */

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

struct bench_row *bench_case_add(struct bench *b, const struct bench_case *c,
				 const struct bench_row *row)
{
	static const char *const units[] = { "1/s", "GB/s", "us", "us" };
	struct bench_row *r = row_add(b, row);
	struct bench_case *cases = grow(b, b->cases, b->n_cases, sizeof(*cases));

	if (cases)
		b->cases = cases;
	if (!r || !cases)
		return NULL;
	if (!r->unit)
		r->unit = units[c->figure];
	b->cases[b->n_cases] = *c;
	b->cases[b->n_cases++].row = r;
	return r;
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

static void row_sum_up(struct bench_row *r)
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
	row_sum_up(r);
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
	row_sum_up(r);
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
	row_sum_up(r);
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
		snprintf(out + k, n - (size_t)k, ", %u client%s", r->clients,
			 r->clients == 1 ? "" : "s");
}

static void progress(struct bench *b, const char *what, int round)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (!what)
		fputs("\r\033[K", stderr);
	else if (round < 0)
		fprintf(stderr, "\r\033[Kbench %s: %s", b->kind->name, what);
	else
		fprintf(stderr, "\r\033[Kbench %s: round %d of %d: %s", b->kind->name, round + 1,
			b->rounds, what);
}

/* ---- measuring ---- */

int bench_once(struct bench *b, int n,
	       int (*once)(struct bench_worker *w, const struct bench_job *j, uint64_t i),
	       uint64_t size, uint32_t width)
{
	struct bench_result r[BENCH_MAX_CLIENTS];
	struct bench_job j = { .once = once, .max_ops = 1, .size = size, .width = width };

	snprintf(j.path, sizeof(j.path), "%s", b->place.scratch);
	return bench_crew_run(b, &j, n, r);
}

/* The clients run at the same time for about as long: rates are summed, times are not. */
static double figure_of(const struct bench_case *c, const struct bench_result *r)
{
	double sum = 0;

	if (c->figure == BENCH_P99)
		return (double)r[0].p99_ns / 1e3;
	for (int i = 0; i < c->workers; i++) {
		if (!r[i].ops)
			continue;
		if (c->figure == BENCH_LATENCY)
			sum += (double)r[i].ns / (double)r[i].ops / 1e3 / c->workers;
		else
			sum += (double)r[i].ops * 1e9 / (double)r[i].ns;
	}
	if (c->figure == BENCH_BANDWIDTH)
		sum *= (double)c->job.size * MAX(c->job.count, 1) / 1e9;
	return sum;
}

/* System calls so far of all servers that answer. */
static uint64_t server_calls(struct bench *b)
{
	struct sheaf_server s;
	uint64_t sum = 0;

	for (int i = 0; i < b->servers; i++)
		if (sheaf_server_status(b->c->fs, i, CLI_STATUS_MS, &s) == 0 && s.up)
			sum += s.calls;
	return sum;
}

static int count_requests(struct bench *b, uint64_t *out)
{
	struct sheaf_server s;
	int r;

	for (int i = 0; i < b->servers; i++) {
		r = sheaf_server_status(b->c->fs, i, 5 * CLI_STATUS_MS, &s);
		if (!r && !s.up)
			r = -ETIMEDOUT;
		if (r) {
			cli_fail(b->c, "status", r);
			return r;
		}
		out[i] = s.requests;
	}
	return 0;
}

int bench_count_requests(struct bench *b, const struct bench_job *j, double *most, double *all)
{
	uint64_t n[3][CONF_MAX_TARGETS];
	struct bench_result result;
	int r = count_requests(b, n[0]);

	if (!r)
		r = count_requests(b, n[1]);
	if (!r)
		r = bench_crew_run(b, j, 1, &result);
	if (!r)
		r = count_requests(b, n[2]);
	*most = *all = 0;
	for (int i = 0; !r && i < b->servers; i++) {
		double more = (double)(n[2][i] - n[1][i]) - (double)(n[1][i] - n[0][i]);

		*most = MAX(*most, more);
		*all += more;
	}
	return r;
}

static int run_case(struct bench *b, struct bench_case *c, bool warm, double *value)
{
	struct bench_result r[BENCH_MAX_CLIENTS];
	uint64_t calls;
	struct bench_job j = c->job;
	uint64_t ns = c->ns ? c->ns : b->slice_ns;
	int e;

	if (c->settle)
		bench_settle(b);
	if (c->custom)
		return c->custom(b, c, value);
	if (!j.all_made)
		j.ns = !warm ? ns : c->ns ? 1 : WARM_NS;
	calls = server_calls(b);
	e = bench_crew_run(b, &j, c->workers, r);
	if (e)
		return e;
	*value = figure_of(c, r);
	c->row->server_calls += server_calls(b) - calls;
	for (int i = 0; i < c->workers; i++) {
		c->row->ops += r[i].ops;
		c->row->client_calls += r[i].calls;
	}
	return 0;
}

static int run_round(struct bench *b, int round)
{
	char what[128];
	double v = 0;
	int r;

	for (size_t i = 0; i < b->n_cases; i++) {
		struct bench_case *c = &b->cases[i];

		if (cli_signal)
			return -EINTR;
		bench_row_text(what, sizeof(what), c->row);
		progress(b, round < 0 ? "warming up" : what, round);
		r = run_case(b, c, round < 0, &v);
		if (r)
			return r;
		if (round >= 0)
			c->row->values[c->row->runs++] = v;
	}
	return 0;
}

static void choose_clients(struct bench *b)
{
	b->n_clients = b->n_given;
	memcpy(b->clients, b->given, sizeof(b->clients));
	for (int i = 0; !b->n_given && i < BENCH_MAX_LIST && b->kind->clients[i]; i++)
		b->clients[b->n_clients++] = b->kind->clients[i];
	b->most_clients = 1;
	for (int i = 0; i < b->n_clients; i++)
		b->most_clients = MAX(b->most_clients, b->clients[i]);
}

static int run_kind(struct bench *b)
{
	const struct bench_kind *k = b->kind;
	int r;

	b->n_cases = 0;
	progress(b, "preparing", -1);
	r = k->setup(b);
	for (int i = -1; !r && !b->no_memory && i < b->rounds; i++)
		r = run_round(b, i);
	if (!r && k->cleanup)
		r = k->cleanup(b);
	if (k->end)
		k->end(b);
	progress(b, NULL, 0);
	if (r || b->no_memory)
		return r ? r : cli_error(b->c, "out of memory");
	for (size_t i = 0; i < b->n_rows; i++)
		row_sum_up(b->rows[i]);
	k->judge(b);
	return 0;
}

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
		json_object_object_add(o, key, json_object_new_string(text));
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
		json_object_object_add(o, "clients", json_object_new_int((int)r->clients));
	if (r->pieces)
		json_object_object_add(o, "pieces", json_object_new_int((int)r->pieces));
	if (r->bytes)
		json_object_object_add(o, "bytes", json_object_new_int64((int64_t)r->bytes));
	put_text(o, "of", r->of);
	put_text(o, "to", r->to);
	put_text(o, "better", better(b, r));
	put_text(o, "unit", r->unit);
	json_object_object_add(o, "median", json_number(r->median));
	json_object_object_add(o, "min", json_number(r->min));
	json_object_object_add(o, "max", json_number(r->max));
	json_object_object_add(o, "runs", json_object_new_int(r->runs));
	for (int i = 0; i < r->runs; i++)
		json_object_array_add(values, json_number(r->values[i]));
	json_object_object_add(o, "values", values);
	if (!r->derived)
		json_object_object_add(o, "syscalls_per_op", calls_json(r));
	return o;
}

static struct json_object *bench_json(struct bench *b)
{
	struct json_object *o = json_object_new_object(), *rows = json_object_new_array(),
			   *bars = json_object_new_object();

	put_text(o, "bench", b->name);
	json_object_object_add(o, "conditions", bench_conditions(b));
	for (size_t i = 0; i < b->n_rows; i++)
		json_object_array_add(rows, row_json(b, b->rows[i]));
	json_object_object_add(o, "rows", rows);
	for (size_t i = 0; i < b->n_bars; i++) {
		struct json_object *bar = json_object_new_object();

		json_object_object_add(bar, "value", json_number(b->bars[i].row->median));
		json_object_object_add(bar, "need", json_number(b->bars[i].need));
		json_object_object_add(bar, "ok",
				       json_object_new_boolean(bench_bar_ok(&b->bars[i])));
		json_object_object_add(bars, b->bars[i].name, bar);
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

/* Prints the measured rows, or the derived ones. */
static int print_rows(struct bench *b, const struct bench_kind *k, bool derived)
{
	static const char *const heads[] = { "CASE", ">MEDIAN", ">MIN", ">MAX", "UNIT" };
	static const char *const ratio_heads[] = { "RATIO", ">MEDIAN", ">MIN", ">MAX", "OF WHAT" };
	struct cli_table t;
	char what[256];
	size_t n = 0;

	cli_table_init(&t, derived ? ratio_heads : heads, ARRAY_LEN(heads));
	for (size_t i = 0; i < b->n_rows; i++) {
		const struct bench_row *r = b->rows[i];

		if (r->bench != k->name || r->derived != derived)
			continue;
		if (n++ == 0 && !derived)
			printf("%s: %s\n", k->name, k->summary);
		bench_row_text(what, sizeof(what), r);
		cli_table_add(&t, "%s", what);
		add_numbers(&t, r);
		if (derived)
			cli_table_add(&t, "%s%s%s", r->of, r->to[0] ? " / " : "", r->to);
		else
			cli_table_add(&t, "%s", r->unit);
	}
	return n ? cli_table_print(&t, stdout) || puts("") < 0 : 0;
}

static int print_bars(struct bench *b)
{
	static const char *const heads[] = { "BAR", ">VALUE", "NEED", "" };
	static const char *const senses[] = { "at least", "at most", "exactly" };
	struct cli_table t;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (size_t i = 0; i < b->n_bars; i++) {
		const struct bench_bar *bar = &b->bars[i];

		cli_table_add(&t, "%s", bar->name);
		cli_table_add(&t, "%.3g", bar->row->median);
		cli_table_add(&t, "%s %g", senses[bar->sense], bar->need);
		cli_table_add(&t, "%s", bench_bar_ok(bar) ? "ok" : "MISSED");
	}
	return cli_table_print(&t, stdout);
}

static int print_text(struct bench *b)
{
	const struct bench_place *p = &b->place;
	int r = 0;

	printf("%d server%s (%d with metadata) on %s%s%s, over %s, %d round%s; medians over the rounds\n\n",
	       b->servers, b->servers == 1 ? "" : "s", b->metas, p->fs_type,
	       p->storage[0] ? " at " : "", p->storage, p->medium, b->rounds,
	       b->rounds == 1 ? "" : "s");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		r |= print_rows(b, kinds[i], false) | print_rows(b, kinds[i], true);
	if (b->n_bars)
		r |= print_bars(b);
	return r ? cli_error(b->c, "out of memory") : CLI_OK;
}

static int output(struct bench *b)
{
	const char *dir = b->c->opt[OPT_REPORT];
	struct json_object *json = bench_json(b);
	int status = CLI_OK, r;

	if (dir) {
		r = bench_report(b, dir, json);
		if (r)
			status = cli_fail_host(b->c, dir, r);
	}
	if (b->c->opt[OPT_JSON])
		puts(json_object_to_json_string_ext(json, JSON_C_TO_STRING_PRETTY |
								  JSON_C_TO_STRING_NOSLASHESCAPE));
	else
		status |= print_text(b);
	if (dir && !status && !b->c->opt[OPT_JSON])
		printf("\nthe report is %s/index.html\n", dir);
	json_object_put(json);
	return status;
}

/* ---- the command ---- */

static int take_clients(struct bench *b, const char *list)
{
	char text[128], *save, *word;
	uint64_t v;

	snprintf(text, sizeof(text), "%s", list);
	for (word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (b->n_given == BENCH_MAX_LIST || cli_number(word, 1, BENCH_MAX_CLIENTS, &v))
			b->n_given = -1;
		if (b->n_given < 0)
			break;
		b->given[b->n_given++] = (int)v;
	}
	if (b->n_given > 0 && strlen(list) < sizeof(text))
		return CLI_OK;
	return cli_usage(b->c, "--clients %s: not a list of at most %d numbers from 1 to %d", list,
			 BENCH_MAX_LIST, BENCH_MAX_CLIENTS);
}

static int take_options(struct bench *b, uint64_t *servers)
{
	struct cli *c = b->c;
	uint64_t v = DEFAULT_ROUNDS, metas = 0;

	*servers = DEFAULT_SERVERS;
	if (c->opt[OPT_SERVERS] && !c->opt[OPT_DIR])
		return cli_usage(c, "--servers goes with --dir: a running file system has its own");
	if (c->opt[OPT_META] && (!c->opt[OPT_DIR] || cli_number(c->opt[OPT_META], 1, 64, &metas)))
		return cli_usage(c, "--meta goes with --dir and a number of servers");
	if (c->opt[OPT_SERVERS] && cli_number(c->opt[OPT_SERVERS], 1, 64, servers))
		return cli_usage(c, "--servers %s: not a number from 1 to 64", c->opt[OPT_SERVERS]);
	b->metas = metas ? (int)metas : (int)cli_metas((uint32_t)*servers);
	if (c->opt[OPT_ROUNDS] && cli_number(c->opt[OPT_ROUNDS], 1, BENCH_MAX_ROUNDS, &v))
		return cli_usage(c, "--rounds %s: not a number from 1 to %d", c->opt[OPT_ROUNDS],
				 BENCH_MAX_ROUNDS);
	b->rounds = (int)v;
	b->long_form = c->opt[OPT_LONG] != NULL;
	return c->opt[OPT_CLIENTS] ? take_clients(b, c->opt[OPT_CLIENTS]) : CLI_OK;
}

/* "all" leaves out benchmarks that this machine cannot run. */
static bool wanted(struct bench *b, const struct bench_kind *k, const struct bench_kind *only)
{
	const char *why;

	if (only)
		return only == k;
	why = k->missing ? k->missing(b) : NULL;
	if (why)
		fprintf(stderr, "sheaf bench: %s is left out: %s\n", k->name, why);
	return !why;
}

/* Runs one benchmark, from the first process to the last. With --dir each starts with an empty file
 * system, so that its results do not depend on the others. */
static int run_apart(struct bench *b, const struct bench_kind *k, uint32_t servers)
{
	int status, crew;

	b->kind = k;
	choose_clients(b);
	crew = MAX(BENCH_PAIRS, b->most_clients);
	progress(b, "starting", -1);
	status = bench_place_open(b, b->dir, servers);
	if (!status)
		status = bench_crew_start(b, crew);
	if (!status)
		status = bench_place_connect(b);
	if (!status && bench_once(b, crew, bench_do_connect, 0, 0))
		status = CLI_FAILED;
	if (!status && run_kind(b))
		status = CLI_FAILED;
	progress(b, NULL, 0);
	bench_crew_stop(b);
	bench_place_close(b);
	return status;
}

static int run_all(struct bench *b, const struct bench_kind *only, uint32_t servers)
{
	int status = CLI_OK;

	for (size_t i = 0; !status && i < ARRAY_LEN(kinds); i++)
		if (wanted(b, kinds[i], only))
			status = run_apart(b, kinds[i], servers);
	return status;
}

static void bench_free(struct bench *b)
{
	for (size_t i = 0; i < b->n_rows; i++)
		free(b->rows[i]);
	for (size_t i = 0; i < b->n_plots; i++)
		free(b->plots[i]);
	free(b->rows);
	free(b->plots);
	free(b->bars);
	free(b->cases);
	free(b);
}

static const struct bench_kind *find_kind(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	return NULL;
}

static int run_bench(struct cli *c)
{
	const char *name = c->n_args ? c->args[0] : c->opt[OPT_REPORT] ? "all" : NULL;
	const struct bench_kind *only = name ? find_kind(name) : NULL;
	const char *why;
	struct bench *b;
	uint64_t servers;
	int status;

	if (!only && (!name || strcmp(name, "all") != 0))
		return cli_usage(
			c,
			"%s%s: there are net, contig, latency, meta, lists, transfer, mount and all",
			name ? "no benchmark " : "which benchmark", name ? name : "");
	b = calloc(1, sizeof(*b));
	if (!b)
		return cli_error(c, "out of memory");
	b->c = c;
	b->name = name;
	b->dir = c->opt[OPT_DIR];
	b->slice_ns = SLICE_NS;
	status = take_options(b, &servers);
	why = !status && only && only->missing ? only->missing(b) : NULL;
	if (why)
		status = cli_error(c, "%s: %s", only->name, why);
	if (!status) {
		cli_catch_signals();
		status = run_all(b, only, (uint32_t)servers);
		if (!status)
			status = output(b);
	}
	bench_free(b);
	return status;
}

const struct cli_command cmd_bench = {
	.name = "bench",
	.usage =
		"net|contig|latency|meta|lists|transfer|mount|all [--dir DIR] [--servers N] [--meta N]\n"
		"                   [--clients LIST] [--rounds N] [--long] [--json] [--report DIR]",
	.summary = "measure against what this machine does without Sheaf, in the same run",
	.run = run_bench,
	.max_args = 1,
	.options = { { 0, "dir", "DIR", "on temporary servers below DIR, removed afterwards" },
		     { 0, "servers", "N", "how many of them (4)" },
		     { 0, "meta", "N", "how many of these keep names (one for two processors)" },
		     { 0, "clients", "LIST", "numbers of clients to compare, for example 1,4,16" },
		     { 0, "rounds", "N", "how often everything is measured (9)" },
		     { 0, "long", NULL,
		       "mount: a million operations before its memory is looked at again" },
		     { 0, "json", NULL,
		       "for programs: {\"bench\", \"conditions\", \"rows\", \"bars\"}" },
		     { 0, "report", "DIR",
		       "also write DIR/index.html with plots, and bench.json" } },
	.more = "Without --dir it measures the running file system, in a directory of its own there that is\n"
		"removed afterwards. Exit status 0 means that it ran, whatever the bars say.\n",
	.examples = "  sheaf bench contig --clients 1,4\n"
		    "  sheaf bench all --dir /mnt/fast --report report\n",
};
