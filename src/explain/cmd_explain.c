/* sheaf explain: how a scattered access is transferred: for each server and mover the messages,
 * copies and system calls, the predicted and the measured time, and a picture of the bytes.
 *
 * Threads: one. Buffers: the access and its memory, bounded unless --force.
 * Errors: a message and the exit status. */
#include <json-c/json.h>
#include <stdlib.h>

#include "explain/explain.h"
#include "explain/explain_impl.h"

#define MEASURE_MAX GIB
#define PINGS 8
#define SVG_COLUMNS 400

enum {
	OPT_VECTOR,
	OPT_OFFSET,
	OPT_MEM_STRIDE,
	OPT_READ,
	OPT_WRITE,
	OPT_UNIT,
	OPT_WIDTH,
	OPT_NTH,
	OPT_PLAN,
	OPT_FORCE,
	OPT_SVG,
	OPT_JSON,
};

/* ---- arguments ---- */

static int option_size(struct cli *c, int opt, uint64_t max, uint64_t *out)
{
	const char *text = c->opt[opt];

	if (!text)
		return CLI_OK;
	if (parse_size(text, out) || *out > max)
		return cli_usage(c, "--%s %s: not a number from 0 to %llu",
				 c->cmd->options[opt].name, text, (unsigned long long)max);
	return CLI_OK;
}

static int read_access(struct explain *e)
{
	struct cli *c = e->c;
	uint64_t offset = 0, stride = 0, nth = 0, unit = 0, width = 0;
	int status;

	if (!c->n_args == !c->opt[OPT_VECTOR])
		return cli_usage(c, "give either --vector or a FILE with an access");
	if ((c->opt[OPT_READ] && c->opt[OPT_WRITE]) ||
	    (c->n_args && (c->opt[OPT_OFFSET] || c->opt[OPT_MEM_STRIDE])) ||
	    (!c->n_args && c->opt[OPT_NTH]))
		return cli_usage(c, "--read and --write exclude each other; --offset and "
				    "--mem-stride go with --vector, --nth with a FILE");
	status = option_size(c, OPT_OFFSET, INT64_MAX, &offset);
	status = status ? status : option_size(c, OPT_MEM_STRIDE, INT64_MAX, &stride);
	status = status ? status : option_size(c, OPT_UNIT, UINT32_MAX, &unit);
	status = status ? status : option_size(c, OPT_WIDTH, SHEAF_MAX_TARGETS, &width);
	if (!status && unit % 4096)
		status = cli_usage(c, "--unit %s: not a multiple of 4K", c->opt[OPT_UNIT]);
	if (!status && c->opt[OPT_NTH] && cli_number(c->opt[OPT_NTH], 1, UINT32_MAX, &nth))
		status = cli_usage(c, "--nth %s: not a number from 1 on", c->opt[OPT_NTH]);
	if (status)
		return status;
	if (c->n_args && explain_read(&e->x, c->args[0], nth))
		return cli_error(c, "%s: %s", c->args[0], e->x.err);
	if (!c->n_args && explain_vector(&e->x, c->opt[OPT_VECTOR], offset, stride))
		return cli_usage(c, "%s", e->x.err);
	e->x.unit = unit ? (uint32_t)unit : e->x.unit;
	e->x.width = width ? (uint32_t)width : e->x.width;
	if (c->opt[OPT_READ] || c->opt[OPT_WRITE])
		e->x.a.write = c->opt[OPT_WRITE] != NULL;
	return CLI_OK;
}

/* ---- planning and measuring ---- */

struct drawing {
	struct explain *e;
	struct explain_picture screen, svg;
};

static void touched(void *arg, uint32_t object, const struct sheaf_extent *ext, size_t n)
{
	struct drawing *d = arg;

	sieve_touch(d->e, object, ext, n);
	for (size_t i = 0; i < n; i++) {
		picture_touch(&d->screen, object, ext[i].offset, ext[i].length);
		if (d->svg.touched)
			picture_touch(&d->svg, object, ext[i].offset, ext[i].length);
	}
}

static int plan(struct explain *e, struct drawing *d, uint32_t label)
{
	const struct sheaf_plan *p = &e->way[0].plan;
	uint32_t cols = picture_columns();
	int r = sieve_begin(e);

	cols = cols > label + 24 ? cols - label - 14 : 10; /* less the names and percentages */
	for (int m = 0; !r && m < e->n_ways; m++) {
		r = sheaf_plan(e->c->fs, &e->where, (enum sheaf_mover)m, &e->x.a,
			       m == 1 ? touched : NULL, d, &e->way[m].plan);
		if (m || r)
			continue; /* the first plan gives the range for the picture */
		r = picture_init(&d->screen, &e->where, p->begin, p->end, cols);
		if (!r && e->c->opt[OPT_SVG])
			r = picture_init(&d->svg, &e->where, p->begin, p->end, SVG_COLUMNS);
	}
	sieve_end(e);
	if (r == -E2BIG)
		return cli_error(e->c, "the access has more than 64 million pieces: too many to "
				       "look at each; explain a part of it");
	if (r == -EINVAL || r == -EFBIG)
		return cli_error(e->c, "the access reaches below 0 or beyond 2^63 - 1");
	return r ? cli_error(e->c, "%s", sheaf_strerror(r)) : CLI_OK;
}

/* Measures the round trip to each server, and that it is up. */
static int reach(struct explain *e)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < e->where.n_targets; i++)
		for (int k = 0; !r && k < PINGS; k++)
			r = sheaf_ping(e->c->fs, (int)e->where.targets[i]);
	return r ? cli_fail(e->c, "a round trip", r) : CLI_OK;
}

static int choose_stripes(struct explain *e)
{
	if (!e->c->opt[OPT_PLAN])
		return explain_scratch(e);
	sheaf_default_stripes(e->c->fs, 1, e->x.unit, e->x.width, &e->where);
	return e->where.n_targets ? CLI_OK : cli_error(e->c, "there are no data servers");
}

static int check_size(struct explain *e)
{
	char most[32];

	if (e->c->opt[OPT_PLAN] || e->c->opt[OPT_FORCE] ||
	    (e->x.bytes <= MEASURE_MAX && e->x.span <= MEASURE_MAX))
		return CLI_OK;
	format_size(most, sizeof(most), MAX(e->x.bytes, e->x.span));
	return cli_error(e->c,
			 "this takes %s of memory to measure; --plan only predicts it, --force "
			 "measures it nevertheless",
			 most);
}

/* ---- output: text ---- */

static void describe(const struct explain *e, char *out, size_t n)
{
	const struct sheaf_plan *p = &e->way[0].plan;
	uint64_t segments = 0, extents = 0;
	char bytes[32], unit[32];

	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		segments += p->shares[i].segments;
		extents += p->shares[i].extents;
	}
	format_size(bytes, sizeof(bytes), p->bytes);
	format_size(unit, sizeof(unit), e->where.unit);
	snprintf(out, n,
		 "%s of %s: %llu %s of memory, %llu %s of objects; stripes of %s over %u %s",
		 e->x.a.write ? "write" : "read", bytes, (unsigned long long)segments,
		 segments == 1 ? "piece" : "pieces", (unsigned long long)extents,
		 extents == 1 ? "piece" : "pieces", unit, e->where.n_targets,
		 e->where.n_targets == 1 ? "server" : "servers");
}

/* The mover that carried most bytes, or the planned one. */
static const char *used(const struct explain *e, const struct explain_cost *k,
			enum sheaf_mover planned)
{
	int most = 0;

	for (int m = 1; e->rounds && m < SHEAF_MOVERS; m++)
		if (k->did.bytes[m] > k->did.bytes[most])
			most = m;
	return sheaf_mover_name(most ? (enum sheaf_mover)most : planned);
}

static void add_row(struct cli_table *t, const struct explain *e, const char *way,
		    const char *server, const struct sheaf_share *s, const struct explain_cost *k)
{
	char text[32];

	cli_table_add(t, "%s", way);
	cli_table_add(t, "%s", server);
	cli_table_add(t, "%s", used(e, k, s->mover));
	if (e->rounds)
		cli_table_add(t, "%s", k->strategy[0] ? k->strategy : "-");
	cli_table_add(t, "%llu", (unsigned long long)s->bytes);
	cli_table_add(t, "%llu", (unsigned long long)s->segments);
	cli_table_add(t, "%llu", (unsigned long long)(e->rounds ? k->did.requests : s->requests));
	if (e->rounds) {
		cli_table_add(t, "%llu", (unsigned long long)k->did.frames);
		cli_table_add(t, "%llu", (unsigned long long)k->did.calls);
		cli_table_add(t, "%llu", (unsigned long long)k->did.copied);
	}
	cli_time(text, sizeof(text), k->predicted_ns);
	cli_table_add(t, "%s", text);
	if (e->rounds) {
		cli_time(text, sizeof(text), (double)k->did.busy_ns);
		cli_table_add(t, "%s", text);
	}
}

/* Sums over all servers; the mover is that of most bytes. */
static struct sheaf_share sum_up(const struct explain *e, const struct sheaf_plan *p)
{
	struct sheaf_share sum = { 0 };
	uint64_t bytes[SHEAF_MOVERS] = { 0 };

	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		const struct sheaf_share *s = &p->shares[i];

		sum.bytes += s->bytes;
		sum.extents += s->extents;
		sum.segments += s->segments;
		sum.requests += s->requests;
		bytes[s->mover] += s->bytes;
	}
	for (int m = 1; m < SHEAF_MOVERS; m++)
		if (bytes[m] > bytes[sum.mover])
			sum.mover = (enum sheaf_mover)m;
	return sum;
}

static int print_table(const struct explain *e, const char *const *names)
{
	static const char *const measured[] = { "WAY",	  "SERVER",    "MOVER",	     "STRATEGY",
						">BYTES", ">SEGMENTS", ">REQUESTS",  ">MESSAGES",
						">CALLS", ">COPIED",   ">PREDICTED", ">MEASURED" };
	static const char *const planned[] = { "WAY",	    "SERVER",	 "MOVER",     ">BYTES",
					       ">SEGMENTS", ">REQUESTS", ">PREDICTED" };
	struct cli_table t;

	if (e->rounds)
		cli_table_init(&t, measured, ARRAY_LEN(measured));
	else
		cli_table_init(&t, planned, ARRAY_LEN(planned));
	for (int m = 0; m < e->n_ways; m++) {
		const struct explain_way *w = &e->way[m];
		struct sheaf_share sum = sum_up(e, &w->plan);

		add_row(&t, e, sheaf_mover_name((enum sheaf_mover)m), "all", &sum, &w->all);
		for (uint32_t i = 0; i < e->where.n_targets; i++)
			if (w->plan.shares[i].bytes)
				add_row(&t, e, "", names[i], &w->plan.shares[i], &w->at[i]);
	}
	return cli_table_print(&t, stdout);
}

static int print_text(struct explain *e, const struct drawing *d, const char *const *names)
{
	char text[256], took[32];

	if (e->c->n_args && e->x.of > 1)
		printf("transfer %zu of %zu in %s\n", e->x.nth, e->x.of, e->c->args[0]);
	describe(e, text, sizeof(text));
	puts(text);
	if (e->x.cut)
		printf("recorded in part: the first %llu bytes of %llu pieces\n",
		       (unsigned long long)e->x.bytes, (unsigned long long)e->x.cut);
	if (e->x.width > e->where.n_targets)
		printf("the access asks for %u servers, but there are %u\n", e->x.width,
		       e->where.n_targets);
	cli_time(took, sizeof(took), (double)e->x.took_ns);
	if (e->x.took_ns)
		printf("in the program that was recorded it took %s\n", took);
	putchar('\n');
	picture_print(&d->screen, names);
	putchar('\n');
	if (print_table(e, names) || links_print(e, names) || sieve_print(e, names))
		return cli_error(e->c, "out of memory");
	bank_print(e);
	if (e->rounds)
		printf("\nMeasured: the median of %u round%s, in a file of its own. "
		       "COPIED is bytes copied in user space.\n",
		       e->rounds, e->rounds == 1 ? "" : "s");
	return CLI_OK;
}

/* ---- output: JSON ---- */

static void add_number(struct json_object *o, const char *key, bool known, uint64_t v)
{
	json_object_object_add(o, key, known ? json_object_new_uint64(v) : NULL);
}

static struct json_object *cost_json(const struct explain *e, const struct sheaf_share *s,
				     const struct explain_cost *k)
{
	struct json_object *o = json_object_new_object();
	bool known = e->rounds;

	cli_json_text(o, "mover", used(e, k, s->mover));
	cli_json_text(o, "planned_mover", sheaf_mover_name(s->mover));
	json_object_object_add(o, "strategy",
			       k->strategy[0] ? json_object_new_string(k->strategy) : NULL);
	add_number(o, "bytes", true, s->bytes);
	add_number(o, "segments", true, s->segments);
	add_number(o, "extents", true, s->extents);
	add_number(o, "planned_requests", true, s->requests);
	add_number(o, "requests", known, k->did.requests);
	add_number(o, "messages", known, k->did.frames);
	add_number(o, "messages_sent", known, k->net.messages_sent);
	add_number(o, "messages_received", known, k->net.messages_received);
	add_number(o, "work_requests", known, k->net.work_requests);
	add_number(o, "doorbells", known, k->net.doorbells);
	add_number(o, "registrations", known, k->net.registrations);
	add_number(o, "calls", known, k->did.calls);
	add_number(o, "copied", known, k->did.copied);
	add_number(o, "predicted_ns", true, (uint64_t)k->predicted_ns);
	add_number(o, "measured_ns", known, k->did.busy_ns);
	return o;
}

static struct json_object *ways_json(const struct explain *e, const char *const *names)
{
	struct json_object *list = json_object_new_array(), *servers, *o, *s;

	for (int m = 0; m < e->n_ways; m++) {
		const struct explain_way *w = &e->way[m];
		struct sheaf_share sum = sum_up(e, &w->plan);

		o = cost_json(e, &sum, &w->all);
		cli_json_text(o, "way", sheaf_mover_name((enum sheaf_mover)m));
		servers = json_object_new_array();
		for (uint32_t i = 0; i < e->where.n_targets; i++) {
			s = cost_json(e, &w->plan.shares[i], &w->at[i]);
			cli_json_text(s, "server", names[i]);
			json_object_array_add(servers, s);
		}
		json_object_object_add(o, "servers", servers);
		json_object_array_add(list, o);
	}
	return list;
}

static struct json_object *picture_json(const struct explain_picture *p, const char *const *names)
{
	struct json_object *o = json_object_new_object(), *rows = json_object_new_array();

	add_number(o, "from", true, p->from);
	add_number(o, "cell_bytes", true, p->cell);
	for (uint32_t r = 0; r < p->rows; r++) {
		struct json_object *row = json_object_new_object(),
				   *cells = json_object_new_array();

		for (uint32_t i = 0; i < p->cols; i++) {
			char text[16];
			double v = picture_cell(p, r, i);

			snprintf(text, sizeof(text), "%.3f", v);
			json_object_array_add(cells, json_object_new_double_s(v, text));
		}
		cli_json_text(row, "server", names[r]);
		json_object_object_add(row, "cells", cells);
		json_object_array_add(rows, row);
	}
	json_object_object_add(o, "rows", rows);
	return o;
}

static int print_json(struct explain *e, const struct drawing *d, const char *const *names)
{
	const struct sheaf_plan *p = &e->way[0].plan;
	struct json_object *o = json_object_new_object();

	cli_json_text(o, "op", e->x.a.write ? "write" : "read");
	add_number(o, "bytes", true, p->bytes);
	add_number(o, "begin", true, p->begin);
	add_number(o, "end", true, p->end);
	add_number(o, "unit", true, e->where.unit);
	add_number(o, "width", true, e->where.n_targets);
	add_number(o, "rounds", true, e->rounds);
	add_number(o, "recorded_ns", e->x.took_ns, e->x.took_ns);
	add_number(o, "cut", e->x.cut, e->x.cut);
	json_object_object_add(o, "ways", ways_json(e, names));
	json_object_object_add(o, "links", links_json(e, names));
	json_object_object_add(o, "bank", bank_json(e));
	json_object_object_add(o, "sieve", sieve_json(e, names));
	json_object_object_add(o, "picture", picture_json(&d->screen, names));
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
	return CLI_OK;
}

/* ---- the command ---- */

/* The names of the servers involved, and the length of the longest. */
static uint32_t find_names(const struct explain *e, struct sheaf_server *s, int n,
			   const char **names)
{
	size_t most = 0;

	cli_servers_ask(e->c->fs, s, NULL, n);
	for (uint32_t i = 0; i < e->where.n_targets; i++) {
		names[i] = (int)e->where.targets[i] < n ? s[e->where.targets[i]].name : "?";
		most = MAX(most, strlen(names[i]));
	}
	return (uint32_t)most;
}

static bool has_rdma(const struct explain *e)
{
	struct sheaf_link_costs l = { .size = sizeof(l) };

	for (uint32_t i = 0; i < e->where.n_targets; i++)
		if (!sheaf_link_costs(e->c->fs, (int)e->where.targets[i], &l) && l.work_request > 0)
			return true;
	return false;
}

static int find_out(struct explain *e, struct drawing *d, uint32_t label)
{
	int status = reach(e);

	e->n_ways = e->x.a.write && has_rdma(e) ? SHEAF_ALL_MOVERS : SHEAF_MOVER_DRIVEN;
	status = status ? status : plan(e, d, label);
	if (status)
		return status;
	explain_predict(e);
	return e->f ? explain_measure(e) : CLI_OK;
}

static int explain(struct explain *e, struct drawing *d)
{
	struct cli *c = e->c;
	int n = sheaf_server_count(c->fs), status = choose_stripes(e), r;
	struct sheaf_server *s = calloc((size_t)n + 1, sizeof(*s));
	const char *names[SHEAF_MAX_TARGETS];
	char title[256];

	if (!status && !s)
		status = cli_error(c, "out of memory");
	if (!status)
		status = find_out(e, d, find_names(e, s, n, names));
	if (!status && c->opt[OPT_SVG]) {
		describe(e, title, sizeof(title));
		r = picture_svg(&d->svg, names, title, c->opt[OPT_SVG]);
		status = r ? cli_fail_host(c, c->opt[OPT_SVG], r) : CLI_OK;
	}
	if (!status)
		status = c->opt[OPT_JSON] ? print_json(e, d, names) : print_text(e, d, names);
	free(s);
	return status;
}

static int run_explain(struct cli *c)
{
	struct explain *e = calloc(1, sizeof(*e));
	struct drawing d = { .e = e };
	int status, r;

	if (!e)
		return cli_error(c, "out of memory");
	e->c = c;
	unsetenv("SHEAF_TRACE"); /* do not trace the accesses of this command */
	status = read_access(e);
	status = status ? status : check_size(e);
	status = status ? status : cli_connect(c);
	status = status ? status : explain(e, &d);
	r = e->f ? sheaf_close(e->f) : 0;
	if (r && !status)
		status = cli_fail(c, "the file it was measured in", r);
	picture_free(&d.screen);
	picture_free(&d.svg);
	explain_free(&e->x);
	free(e);
	return status;
}

const struct cli_command cmd_explain = {
	.name = "explain",
	.usage = "--vector COUNT,BLOCK,STRIDE | FILE [--nth K] [--plan] [--json] [--svg FILE]",
	.summary = "show how a scattered access is transferred, and what each way costs",
	.run = run_explain,
	.max_args = 1,
	.options = { { 0, "vector", "LIST", "COUNT blocks of BLOCK bytes, STRIDE bytes apart" },
		     { 0, "offset", "N", "offset of the first block in the file (0)" },
		     { 0, "mem-stride", "N", "distance of the blocks in memory (contiguous)" },
		     { 'r', "read", NULL, "a read, whatever FILE says" },
		     { 'w', "write", NULL, "a write, whatever FILE says" },
		     { 0, "unit", "SIZE", "stripe unit of the file" },
		     { 0, "width", "N", "number of servers of the file" },
		     { 'n', "nth", "K", "which transfer of FILE (the last)" },
		     { 0, "plan", NULL, "predict only: nothing is read or written" },
		     { 0, "force", NULL, "measure also what takes more than 1 GiB of memory" },
		     { 0, "svg", "FILE", "also draw the picture into FILE" },
		     { 0, "json", NULL,
		       "for programs: {\"ways\": [...], \"sieve\": [...], ...}" } },
	.more = "FILE holds accesses as JSON, sheaf-explain(1) has the form; a program that runs with\n"
		"SHEAF_TRACE=FILE in its environment writes one for each of its transfers.\n",
	.examples = "  sheaf explain --vector 1024,64,4096\n"
		    "  SHEAF_TRACE=/tmp/trace ./program; sheaf explain /tmp/trace --nth 3\n"
		    "  echo '{\"op\": \"write\", \"file\": [[0, 8], [4096, 8]]}' > a.json; "
		    "sheaf explain a.json --svg a.svg\n",
};
