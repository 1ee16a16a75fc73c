/* sheaf requests: shows the requests in service at each server, their age and their state; and the
 * calls of NFS clients at the gateway of this host. */
#include <ctype.h>
#include <json-c/json.h>
#include <stdlib.h>

#include "commands/commands.h"

#define MAX_ROWS 1024

enum { OPT_JSON };

static struct json_object *row_json(const char *server, const struct sheaf_request *q)
{
	struct json_object *o = json_object_new_object();
	char trace[24], session[24];

	snprintf(trace, sizeof(trace), "%llx", (unsigned long long)q->trace);
	snprintf(session, sizeof(session), "%llx", (unsigned long long)q->session);
	cli_json_text(o, "server", server);
	cli_json_text(o, "op", q->op);
	cli_json_text(o, "state", q->state);
	cli_json_text(o, "client", q->client);
	cli_json_uint(o, "age_ns", q->age_ns);
	cli_json_uint(o, "state_ns", q->state_ns);
	cli_json_uint(o, "ino", q->ino);
	cli_json_int(o, "uid", q->uid);
	cli_json_text(o, "trace", trace);
	cli_json_text(o, "session", session);
	return o;
}

static void row_text(struct cli_table *t, const char *server, const struct sheaf_request *q)
{
	char age[32], in_state[32], client[sizeof(q->client)];

	/* the client chose its name, and a table has tabs between its cells */
	snprintf(client, sizeof(client), "%s", q->client);
	for (char *p = client; *p; p++)
		if (iscntrl((unsigned char)*p))
			*p = '?';
	cli_duration(age, sizeof(age), q->age_ns);
	cli_duration(in_state, sizeof(in_state), q->state_ns);
	cli_table_add(t, "%s\t%s\t%s\t%s\t%s\t%s\t%u\t%llu\t%llx", server, q->op, q->state, age,
		      in_state, client, q->uid, (unsigned long long)q->ino,
		      (unsigned long long)q->trace);
}

/* Adds the requests of one server to the table or the JSON. */
static int ask_one(struct cli *c, int i, const char *name, struct sheaf_request *rows,
		   struct cli_table *t, struct json_object *list)
{
	int n = sheaf_server_requests(c->fs, i, CLI_STATUS_MS, rows, MAX_ROWS);

	if (n < 0)
		return cli_error(c, "%s: %s", name, sheaf_strerror(n));
	for (int k = 0; k < n; k++)
		if (list)
			json_object_array_add(list, row_json(name, &rows[k]));
		else
			row_text(t, name, &rows[k]);
	return CLI_OK;
}

/* Adds the requests of all servers that are up; prints one line about the others. */
static int ask_all(struct cli *c, struct sheaf_request *rows, struct cli_table *t,
		   struct json_object *list)
{
	int n, status = CLI_OK;
	struct sheaf_server *s = cli_servers_get(c, &n);

	if (!s)
		return CLI_FAILED;
	for (int i = 0; i < n; i++)
		if (s[i].up)
			status |= ask_one(c, i, s[i].name, rows, t, list);
	status |= cli_servers_check(c, s, n, 0, "");
	free(s);
	return status;
}

/* The number of a key, or 0. */
static uint64_t number_of(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_uint64(v) : 0;
}

static void copy_text(struct json_object *o, const char *key, char *out, size_t n)
{
	struct json_object *v;

	if (json_object_object_get_ex(o, key, &v))
		snprintf(out, n, "%s", json_object_get_string(v));
}

/* Adds a call at the gateway; its trace is its xid. */
static void add_call(struct json_object *call, struct cli_table *t, struct json_object *list)
{
	struct sheaf_request q = { .age_ns = number_of(call, "age_ns"),
				   .state_ns = number_of(call, "age_ns"),
				   .ino = number_of(call, "ino"),
				   .uid = (uint32_t)number_of(call, "uid") };
	char xid[16] = "";

	copy_text(call, "op", q.op, sizeof(q.op));
	copy_text(call, "state", q.state, sizeof(q.state));
	copy_text(call, "client", q.client, sizeof(q.client));
	copy_text(call, "xid", xid, sizeof(xid));
	q.trace = strtoull(xid, NULL, 16);
	if (list)
		json_object_array_add(list, row_json("nfs", &q));
	else
		row_text(t, "nfs", &q);
}

/* Adds the calls in progress at the NFS gateway of this host, if one serves this file system. */
static void ask_gateway(struct cli *c, struct cli_table *t, struct json_object *list)
{
	struct json_object *status, *calls;
	char err[512], id[UUID_TEXT], other[UUID_TEXT] = "";
	struct conf *conf;

	if (cli_find_conf(c, &conf, err, sizeof(err)))
		return;
	status = nfs_gateway_status(conf);
	uuid_format(id, &conf->fs_id);
	conf_free(conf);
	if (status)
		copy_text(status, "file_system", other, sizeof(other));
	if (strcmp(id, other) == 0 && json_object_object_get_ex(status, "requests", &calls))
		for (size_t i = 0; i < json_object_array_length(calls); i++)
			add_call(json_object_array_get_idx(calls, i), t, list);
	json_object_put(status);
}

static int run_requests(struct cli *c)
{
	static const char *const heads[] = { "SERVER", "OPERATION", "STATE",  ">AGE", ">IN STATE",
					     "CLIENT", ">UID",	    ">INODE", "TRACE" };
	struct json_object *list = c->opt[OPT_JSON] ? json_object_new_array() : NULL, *all;
	struct sheaf_request *rows = calloc(MAX_ROWS, sizeof(*rows));
	int status = rows ? cli_connect(c) : cli_error(c, "out of memory");
	struct cli_table t;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	if (c->fs)
		status = ask_all(c, rows, &t, list);
	ask_gateway(c, &t, list);
	if (list) {
		all = json_object_new_object();
		json_object_object_add(all, "requests", list);
		cli_json_print(all, JSON_C_TO_STRING_PRETTY);
	} else if (c->fs && cli_table_print(&t, stdout)) {
		status = cli_error(c, "out of memory");
	}
	free(rows);
	return status;
}

const struct cli_command cmd_requests = {
	.name = "requests",
	.usage = "[--json]",
	.summary = "show what each server, and the NFS gateway of this host, is working on",
	.run = run_requests,
	.options = { { 0, "json", NULL, "for programs: {\"requests\": [...]}" } },
	.examples = "  sheaf requests\n"
		    "  sheaf requests --json | jq '.requests[] | select(.age_ns > 1e9)'\n",
};
