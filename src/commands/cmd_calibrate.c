/* sheaf calibrate: makes the running data servers measure again what accesses to their files cost,
 * one after another, because servers may share a disk.
 *
 * Threads: those of cli_servers_get(). Errors: a server that is down or fails is named, and the
 * others are measured. */
#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#include "commands/commands.h"

enum { OPT_JSON };

/* A server, and what it measured. */
struct measured {
	const struct sheaf_server *s;
	bool stored;
	struct sheaf_costs costs;
};

/* ---- output ---- */

static void add_times(struct json_object *o, const char *key, const double *ns)
{
	struct json_object *list = json_object_new_array();

	for (int i = 0; i < SHEAF_COST_SIZES; i++)
		json_object_array_add(list, json_object_new_int64((int64_t)(ns[i] + 0.5)));
	json_object_object_add(o, key, list);
}

static struct json_object *server_json(const struct measured *m)
{
	struct json_object *o = json_object_new_object(), *sizes = json_object_new_array();

	cli_json_text(o, "name", m->s->name);
	cli_json_text(o, "address", m->s->address);
	cli_json_bool(o, "stored", m->stored);
	for (int i = 0; i < SHEAF_COST_SIZES; i++)
		json_object_array_add(sizes, json_object_new_int64(m->costs.sizes[i]));
	json_object_object_add(o, "sizes", sizes);
	add_times(o, "read_ns", m->costs.read);
	add_times(o, "write_ns", m->costs.write);
	add_times(o, "cold_read_ns", m->costs.cold);
	cli_json_double(o, "parallel", m->costs.parallel);
	cli_json_double(o, "copy_ns_per_byte", m->costs.copy);
	cli_json_double(o, "copy_ns_per_piece", m->costs.piece);
	return o;
}

static void print_json(const struct measured *m, int n)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (int i = 0; i < n; i++)
		json_object_array_add(list, server_json(&m[i]));
	json_object_object_add(o, "servers", list);
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
}

static void add_rows(struct cli_table *t, const struct measured *m)
{
	const struct sheaf_costs *k = &m->costs;
	char size[32], read[32], write[32], cold[32];

	for (int i = 0; i < SHEAF_COST_SIZES; i++) {
		format_size(size, sizeof(size), k->sizes[i]);
		cli_time(read, sizeof(read), k->read[i]);
		cli_time(write, sizeof(write), k->write[i]);
		cli_time(cold, sizeof(cold), k->cold[i]);
		cli_table_add(t, "%s\t%s\t%s\t%s\t%s", i ? "" : m->s->name, size, read, write,
			      cold);
	}
}

static int print_table(const struct measured *m, int n)
{
	static const char *const heads[] = { "SERVER", ">SIZE", ">CACHED READ", ">CACHED WRITE",
					     ">COLD READ" };
	struct cli_table t;
	int r;

	if (!n)
		return 0;
	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (int i = 0; i < n; i++)
		add_rows(&t, &m[i]);
	r = cli_table_print(&t, stdout);
	putchar('\n');
	for (int i = 0; i < n; i++)
		printf("%s: %.1f cold reads at a time; a copy takes %.3f ns for a byte and %.1f ns "
		       "for a piece\n",
		       m[i].s->name, m[i].costs.parallel, m[i].costs.copy, m[i].costs.piece);
	return r;
}

/* ---- the command ---- */

/* Marks the servers that the arguments name; without arguments all data servers. */
static int choose(struct cli *c, const struct sheaf_server *s, int n, bool *chosen)
{
	for (int i = 0; !c->n_args && i < n; i++)
		chosen[i] = s[i].roles & ROLE_DATA;
	for (int k = 0; k < c->n_args; k++) {
		int i = 0;

		while (i < n && strcmp(s[i].name, c->args[k]) != 0)
			i++;
		if (i == n)
			return cli_error(c, "there is no server '%s'; 'sheaf status' lists them",
					 c->args[k]);
		if (!(s[i].roles & ROLE_DATA))
			return cli_error(c, "%s has no data: there is nothing to measure",
					 s[i].name);
		chosen[i] = true;
	}
	return CLI_OK;
}

static int measure_one(struct cli *c, const struct sheaf_server *s, int i, struct measured *m)
{
	int r;

	if (!s->up)
		return cli_error(c, "%s (%s) does not answer and is not measured", s->name,
				 s->address);
	r = sheaf_calibrate(c->fs, i);
	m->s = s;
	m->stored = r == 0;
	if (r >= 0)
		r = sheaf_server_costs(c->fs, i, CLI_STATUS_MS, &m->costs);
	return r ? cli_fail_why(c, NULL, r) : CLI_OK;
}

/* Measures all chosen servers, with the progress on a terminal; sets *done to their number. */
static int measure(struct cli *c, const struct sheaf_server *s, int n, const bool *chosen,
		   struct measured *m, int *done)
{
	bool draw = isatty(STDERR_FILENO);
	int status = CLI_OK, total = 0, at = 0;

	for (int i = 0; i < n; i++)
		total += chosen[i];
	for (int i = 0; i < n; i++) {
		if (!chosen[i])
			continue;
		at++;
		if (draw && s[i].up)
			fprintf(stderr, "\rmeasuring %s, %d of %d\033[K", s[i].name, at, total);
		if (measure_one(c, &s[i], i, &m[*done]))
			status = CLI_FAILED;
		else
			(*done)++;
		if (draw)
			fputs("\r\033[K", stderr);
	}
	return status;
}

static int run_calibrate(struct cli *c)
{
	struct sheaf_server *s;
	struct measured *m;
	bool *chosen;
	int n, done = 0, status;

	if (cli_connect(c) || !(s = cli_servers_get(c, &n)))
		return CLI_FAILED;
	m = calloc((size_t)n + 1, sizeof(*m));
	chosen = calloc((size_t)n + 1, sizeof(*chosen));
	status = m && chosen ? choose(c, s, n, chosen) : cli_error(c, "out of memory");
	if (!status) {
		status = measure(c, s, n, chosen, m, &done);
		if (c->opt[OPT_JSON])
			print_json(m, done);
		else if (print_table(m, done))
			status = cli_error(c, "out of memory");
		for (int i = 0; i < done; i++)
			if (!m[i].stored)
				status = cli_error(c,
						   "%s uses these costs but cannot store them; its "
						   "log has the reason",
						   m[i].s->name);
	}
	free(m);
	free(chosen);
	free(s);
	return status;
}

const struct cli_command cmd_calibrate = {
	.name = "calibrate",
	.usage = "[SERVER...] [--json]",
	.summary = "measure what accesses to the files of the servers cost",
	.run = run_calibrate,
	.max_args = -1,
	.options = { { 0, "json", NULL, "for programs: {\"servers\": [...]}" } },
	.more = "A server measures these costs at its first start; they decide whether it joins accesses to small\n"
		"pieces into covering ones. Repeat it after the disk was exchanged, while the servers are idle. Without\n"
		"names, all data servers are measured, one after another. Each needs 256 MiB of free space and about a\n"
		"second, and goes on serving meanwhile.\n",
	.examples = "  sheaf calibrate\n"
		    "  sheaf calibrate server0 --json | jq '.servers[0].cold_read_ns'\n",
};
