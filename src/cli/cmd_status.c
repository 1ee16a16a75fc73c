/* sheaf status: every server of the cluster, up or down.
 *
 * Threads: the servers are asked at once, one thread each (at most BATCH), so that several dead ones
 * cost one time limit, not several. */
#include <json-c/json.h>
#include <pthread.h>
#include <stdlib.h>

#include "cli/commands.h"

#define BATCH 32

enum { OPT_JSON };

struct question {
	struct sheaf *fs;
	int i;
	struct sheaf_server *s;
	pthread_t thread;
	bool threaded;
};

static void *ask(void *arg)
{
	struct question *q = arg;

	if (sheaf_server_status(q->fs, q->i, CLI_STATUS_MS, q->s))
		q->s->up = 0;
	return NULL;
}

void cli_servers_ask(struct sheaf *fs, struct sheaf_server *s, int n)
{
	struct question q[BATCH];

	for (int at = 0; at < n; at += BATCH) {
		int m = MIN(n - at, BATCH);

		for (int i = 0; i < m; i++) {
			q[i] = (struct question){ .fs = fs, .i = at + i, .s = &s[at + i] };
			q[i].threaded = pthread_create(&q[i].thread, NULL, ask, &q[i]) == 0;
			if (!q[i].threaded)
				ask(&q[i]);
		}
		for (int i = 0; i < m; i++)
			if (q[i].threaded)
				pthread_join(q[i].thread, NULL);
	}
}

/* ---- the two forms ---- */

static void add_number(struct json_object *o, const char *key, bool known, uint64_t v)
{
	json_object_object_add(o, key, known ? json_object_new_uint64(v) : NULL);
}

/* What a server that is down does not tell is null. */
static struct json_object *server_json(const struct sheaf_server *s)
{
	struct json_object *o = json_object_new_object(), *roles = json_object_new_array();
	bool up = s->up;

	if (s->roles & ROLE_META)
		json_object_array_add(roles, json_object_new_string("meta"));
	if (s->roles & ROLE_DATA)
		json_object_array_add(roles, json_object_new_string("data"));
	json_object_object_add(o, "name", json_object_new_string(s->name));
	json_object_object_add(o, "address", json_object_new_string(s->address));
	json_object_object_add(o, "up", json_object_new_boolean(up));
	add_number(o, "pid", up, s->pid);
	json_object_object_add(o, "roles", roles);
	json_object_object_add(
		o, "uptime_s",
		up ? json_object_new_double((double)s->uptime_ns / (double)NSEC_PER_SEC) : NULL);
	add_number(o, "rss_bytes", up, s->rss_bytes);
	add_number(o, "anon_bytes", up, s->anon_bytes);
	add_number(o, "requests", up, s->requests);
	add_number(o, "in_service", up, s->in_service);
	add_number(o, "clients", up, s->links);
	add_number(o, "sessions", up, s->sessions);
	add_number(o, "space_total", up, s->space_total);
	add_number(o, "space_avail", up, s->space_avail);
	add_number(o, "pool_bytes", up, s->pool_bytes);
	add_number(o, "pool_free", up, s->pool_free);
	add_number(o, "pool_waits", up, s->pool_waits);
	add_number(o, "bad_links", up, s->bad_links);
	add_number(o, "slow_inline", up, s->slow_inline);
	add_number(o, "disk_inline", up, s->disk_inline);
	add_number(o, "disk_handed", up, s->disk_handed);
	return o;
}

static void print_json(const struct sheaf_server *s, int n, const char *conf)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (int i = 0; i < n; i++)
		json_object_array_add(list, server_json(&s[i]));
	json_object_object_add(o, "servers", list);
	json_object_object_add(o, "conf", conf ? json_object_new_string(conf) : NULL);
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
						       JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static void add_row(struct cli_table *t, const struct sheaf_server *s)
{
	static const char *const roles[] = { "-", "meta", "data", "meta,data" };
	char uptime[32], memory[32], avail[32], total[32];

	cli_table_add(t, "%s", s->name);
	cli_table_add(t, "%s", s->address);
	cli_table_add(t, "%s", s->up ? "up" : "down");
	if (!s->up) {
		cli_table_add(t, "-");
		cli_table_add(t, "%s", roles[s->roles & 3]);
		for (int i = 0; i < 5; i++)
			cli_table_add(t, "-");
		return;
	}
	cli_duration(uptime, sizeof(uptime), s->uptime_ns);
	format_size(memory, sizeof(memory), s->rss_bytes);
	format_size(avail, sizeof(avail), s->space_avail);
	format_size(total, sizeof(total), s->space_total);
	cli_table_add(t, "%u", s->pid);
	cli_table_add(t, "%s", roles[s->roles & 3]);
	cli_table_add(t, "%s", uptime);
	cli_table_add(t, "%s", memory);
	cli_table_add(t, "%llu", (unsigned long long)s->requests);
	cli_table_add(t, "%u", s->links);
	cli_table_add(t, "%s of %s", avail, total);
}

static int print_table(const struct sheaf_server *s, int n)
{
	static const char *const heads[] = {
		"SERVER",  "ADDRESS", "STATE",	   ">PID",     "ROLES",
		">UPTIME", ">MEMORY", ">REQUESTS", ">CLIENTS", ">FREE"
	};
	struct cli_table t;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (int i = 0; i < n; i++)
		add_row(&t, &s[i]);
	return cli_table_print(&t, stdout);
}

/* ---- the command ---- */

/* The servers as the cluster file has them, all down. */
static struct sheaf_server *servers_from_conf(const struct conf *conf, int *n)
{
	struct sheaf_server *s = calloc(conf->n_targets, sizeof(*s));

	for (uint32_t i = 0; s && i < conf->n_targets; i++) {
		const struct conf_target *t = &conf->targets[i];

		s[i].id = t->id;
		s[i].roles = t->roles;
		snprintf(s[i].name, sizeof(s[i].name), "%s", t->name);
		snprintf(s[i].address, sizeof(s[i].address), "%s", t->address);
	}
	*n = (int)conf->n_targets;
	return s;
}

static int show(struct cli *c, const struct sheaf_server *s, int n, const char *conf, int status)
{
	for (int i = 0; i < n; i++)
		if (!s[i].up)
			status = CLI_FAILED;
	if (c->opt[OPT_JSON])
		print_json(s, n, conf);
	else if (print_table(s, n))
		status = cli_error(c, "out of memory");
	return status;
}

static int run_status(struct cli *c)
{
	char err[CLI_PATH_MAX + 512], path[CLI_PATH_MAX];
	struct sheaf_server *s = NULL;
	struct conf *conf = NULL;
	int n = 0, status;
	bool local;

	local = conf_find(c->conf, path, sizeof(path), err, sizeof(err)) == 0 &&
		strncmp(path, "local:", 6) == 0;
	if (!local && cli_find_conf(c, &conf, err, sizeof(err))) {
		cli_error(c, "%s", err);
		return show(c, NULL, 0, NULL, CLI_FAILED);
	}
	status = cli_connect(c);
	if (conf)
		s = servers_from_conf(conf, &n);
	if (c->fs && (!conf || sheaf_server_count(c->fs) != n)) {
		free(s);
		n = sheaf_server_count(c->fs);
		s = calloc((size_t)n, sizeof(*s));
	}
	if (!s) {
		status = cli_error(c, "out of memory");
		n = 0;
	} else if (c->fs) {
		cli_servers_ask(c->fs, s, n);
	}
	status = show(c, s, n, conf ? conf->path : path, status);
	free(s);
	conf_free(conf);
	return status;
}

const struct cli_command cmd_status = {
	.name = "status",
	.usage = "[--json]",
	.summary = "show every server, up or down",
	.run = run_status,
	.options = { { 0, "json", NULL, "for programs: {\"servers\": [...], \"conf\": PATH}" } },
	.more = "Exit status 0: all are up; 1: not all.\n",
};
