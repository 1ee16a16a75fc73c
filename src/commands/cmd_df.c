/* sheaf df: space on the data servers, each and in total. */
#include <json-c/json.h>
#include <stdlib.h>

#include "commands/commands.h"

enum { OPT_HUMAN, OPT_JSON };

struct room {
	uint64_t total, avail;
};

static struct json_object *room_json(const char *name, const struct room *m, bool known)
{
	struct json_object *o = json_object_new_object();

	cli_json_text(o, "name", name);
	json_object_object_add(o, "total_bytes", known ? json_object_new_uint64(m->total) : NULL);
	json_object_object_add(o, "used_bytes",
			       known ? json_object_new_uint64(m->total - m->avail) : NULL);
	json_object_object_add(o, "avail_bytes", known ? json_object_new_uint64(m->avail) : NULL);
	return o;
}

static void print_json(const struct sheaf_server *s, int n, const struct room *sum)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (int i = 0; i < n; i++) {
		struct room m = { s[i].space_total, s[i].space_avail };
		struct json_object *row;

		if (!(s[i].roles & ROLE_DATA))
			continue;
		row = room_json(s[i].name, &m, s[i].up);
		cli_json_text(row, "address", s[i].address);
		cli_json_bool(row, "up", s[i].up);
		json_object_array_add(list, row);
	}
	json_object_object_add(o, "servers", list);
	json_object_object_add(o, "total", room_json("total", sum, true));
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
}

static void add_row(struct cli_table *t, bool human, const char *name, const char *address,
		    const struct room *m)
{
	uint64_t used = m->total - m->avail, bytes[] = { m->total, used, m->avail };
	char size[ARRAY_LEN(bytes)][32];

	for (size_t i = 0; i < ARRAY_LEN(bytes); i++)
		if (human)
			format_size(size[i], sizeof(size[i]), bytes[i]);
		else
			snprintf(size[i], sizeof(size[i]), "%llu",
				 (unsigned long long)(bytes[i] / KIB));
	cli_table_add(t, "%s\t%s\t%s\t%s\t%u%%\t%s", name, size[0], size[1], size[2],
		      m->total ? (unsigned)((used * 100 + m->total - 1) / m->total) : 0, address);
}

static int print_table(struct cli *c, const struct sheaf_server *s, int n, const struct room *sum)
{
	bool h = c->opt[OPT_HUMAN];
	const char *const heads[] = { "SERVER", h ? ">SIZE" : ">KIB", ">USED", ">FREE", ">USE",
				      "ADDRESS" };
	struct cli_table t;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (int i = 0; i < n; i++) {
		struct room m = { s[i].space_total, s[i].space_avail };

		if (!(s[i].roles & ROLE_DATA))
			continue;
		if (s[i].up)
			add_row(&t, h, s[i].name, s[i].address, &m);
		else
			cli_table_add(&t, "%s\t-\t-\t-\t-\t%s (down)", s[i].name, s[i].address);
	}
	add_row(&t, h, "total", "", sum);
	return cli_table_print(&t, stdout);
}

/* Does an earlier server have its storage on the same disk? */
static bool counted(const struct sheaf_server *s, int i)
{
	for (int k = 0; k < i; k++)
		if (s[i].storage && s[k].storage == s[i].storage && s[k].roles & ROLE_DATA)
			return true;
	return false;
}

static int run_df(struct cli *c)
{
	struct sheaf_server *s;
	struct room sum = { 0 };
	int status, n;

	if (cli_connect(c) || !(s = cli_servers_get(c, &n)))
		return CLI_FAILED;
	for (int i = 0; i < n; i++)
		if ((s[i].roles & ROLE_DATA) && !counted(s, i)) {
			sum.total += s[i].space_total;
			sum.avail += s[i].space_avail;
		}
	status = cli_servers_check(c, s, n, ROLE_DATA, " and is not counted");
	if (c->opt[OPT_JSON])
		print_json(s, n, &sum);
	else if (print_table(c, s, n, &sum))
		status = cli_error(c, "out of memory");
	free(s);
	return status;
}

const struct cli_command cmd_df = {
	.name = "df",
	.usage = "[-h] [--json]",
	.summary = "show the space on the servers",
	.run = run_df,
	.options = { { 'h', "human", NULL, "sizes like 1.5 GiB instead of KiB" },
		     { 0, "json", NULL, "for programs: {\"servers\": [...], \"total\": {...}}" } },
	.more = "Servers that share a disk each show all of it; the total counts it once.\n",
	.examples = "  sheaf df -h\n",
};
