/* sheaf map: the servers that the metadata servers know; --update adds those to the cluster file
 * that it has not.
 *
 * Errors: a cluster file whose servers have other names than the map is left alone. */
#include <json-c/json.h>
#include <stdlib.h>

#include "commands/commands.h"

enum { OPT_UPDATE, OPT_JSON };

static const char *roles_of(const struct sheaf_server *s)
{
	static const char *const texts[] = { "-", "meta", "data", "meta data" };

	return texts[s->roles & 3];
}

static int print_table(struct cli *c, const struct sheaf_server *s, int n, uint32_t n_conf)
{
	static const char *const heads[] = { ">ID", "SERVER", "ADDRESS", "ROLES", "CLUSTER FILE" };
	struct cli_table t;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (int i = 0; i < n; i++)
		cli_table_add(&t, "%d\t%s\t%s\t%s\t%s", i, s[i].name, s[i].address, roles_of(&s[i]),
			      (uint32_t)i < n_conf ? "yes" : "missing");
	return cli_table_print(&t, stdout) ? cli_error(c, "out of memory") : CLI_OK;
}

static void print_json(const struct sheaf_server *s, int n, uint32_t n_conf)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array(), *row;

	for (int i = 0; i < n; i++) {
		row = json_object_new_object();
		cli_json_int(row, "id", i);
		cli_json_text(row, "name", s[i].name);
		cli_json_text(row, "address", s[i].address);
		cli_json_text(row, "roles", roles_of(&s[i]));
		cli_json_bool(row, "in_cluster_file", (uint32_t)i < n_conf);
		json_object_array_add(list, row);
	}
	json_object_object_add(o, "servers", list);
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
}

static int run_map(struct cli *c)
{
	struct sheaf_server *s = calloc(SHEAF_MAX_SERVERS, sizeof(*s));
	struct conf *conf = NULL;
	uint32_t n_conf;
	int status, n;

	status = s ? cli_load_conf(c, &conf) : cli_error(c, "out of memory");
	if (!status)
		status = cli_connect(c);
	if (status) {
		conf_free(conf);
		free(s);
		return status;
	}
	n_conf = conf->n_targets;
	n = sheaf_map(c->fs, 5 * CLI_STATUS_MS, s, SHEAF_MAX_SERVERS);
	if (n < 0) {
		status = cli_fail(c, "the servers' map", n);
	} else if (c->opt[OPT_UPDATE]) {
		status = cli_conf_update(c, &conf, s, n);
		c->n_conf = status ? c->n_conf : n; /* the file is not outdated any more */
		n_conf = conf->n_targets;
	}
	if (!status && c->opt[OPT_JSON])
		print_json(s, n, n_conf);
	else if (!status)
		status = print_table(c, s, n, n_conf);
	conf_free(conf);
	free(s);
	return status;
}

const struct cli_command cmd_map = {
	.name = "map",
	.usage = "[--update] [--json]",
	.summary = "show the servers that the metadata servers know",
	.run = run_map,
	.options = { { 0, "update", NULL, "add those to the cluster file that it has not" },
		     { 0, "json", NULL, "for programs: {\"servers\": [...]}" } },
	.more = "A server that was added on another host is in the map at once, and in the cluster file of this\n"
		"host after --update. The storage directory of such a server is known only on its own host.\n",
	.examples = "  sheaf map --update\n",
};
