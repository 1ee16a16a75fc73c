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
		struct json_object *row = room_json(s[i].name, &m, s[i].up);

		cli_json_text(row, "address", s[i].address);
		cli_json_bool(row, "up", s[i].up);
		if (s[i].roles & ROLE_DATA)
			json_object_array_add(list, row);
		else
			json_object_put(row);
	}
	json_object_object_add(o, "servers", list);
	json_object_object_add(o, "total", room_json("total", sum, true));
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
}

static void add_size(struct cli_table *t, bool human, uint64_t bytes)
{
	char text[32];

	format_size(text, sizeof(text), bytes);
	if (human)
		cli_table_add(t, "%s", text);
	else
		cli_table_add(t, "%llu", (unsigned long long)(bytes / KIB));
}

static void add_row(struct cli_table *t, bool human, const char *name, const char *address,
		    const struct room *m)
{
	uint64_t used = m->total - m->avail;

	cli_table_add(t, "%s", name);
	add_size(t, human, m->total);
	add_size(t, human, used);
	add_size(t, human, m->avail);
	cli_table_add(t, "%u%%", m->total ? (unsigned)((used * 100 + m->total - 1) / m->total) : 0);
	cli_table_add(t, "%s", address);
}

static int print_table(struct cli *c, const struct sheaf_server *s, int n, const struct room *sum)
{
	static const char *const heads[] = { "SERVER", ">KIB", ">USED", ">FREE", ">USE", "ADDRESS" };
	static const char *const human[] = {
		"SERVER", ">SIZE", ">USED", ">FREE", ">USE", "ADDRESS"
	};
	bool h = c->opt[OPT_HUMAN];
	struct cli_table t;

	cli_table_init(&t, h ? human : heads, ARRAY_LEN(heads));
	for (int i = 0; i < n; i++) {
		struct room m = { s[i].space_total, s[i].space_avail };

		if (!(s[i].roles & ROLE_DATA))
			continue;
		if (s[i].up) {
			add_row(&t, h, s[i].name, s[i].address, &m);
			continue;
		}
		cli_table_add(&t, "%s", s[i].name);
		for (int k = 0; k < 4; k++)
			cli_table_add(&t, "-");
		cli_table_add(&t, "%s (down)", s[i].address);
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
	int status = cli_connect(c), n = c->fs ? sheaf_server_count(c->fs) : 0;
	struct sheaf_server *s = calloc((size_t)n + 1, sizeof(*s));
	const struct sheaf_server *silent = NULL;
	struct room sum = { 0 };
	int down = 0;

	if (!s)
		return cli_error(c, "out of memory");
	if (!status)
		cli_servers_ask(c->fs, s, n);
	for (int i = 0; i < n; i++) {
		if (!(s[i].roles & ROLE_DATA))
			continue;
		if (!counted(s, i)) {
			sum.total += s[i].space_total;
			sum.avail += s[i].space_avail;
		}
		if (s[i].up)
			continue;
		silent = silent ? silent : &s[i];
		down++;
	}
	if (down)
		status = cli_error(c,
				   "%s (%s) does not answer and is not counted; %d of %d are down, "
				   "'sheaf start' starts those of this host",
				   silent->name, silent->address, down, n);
	if (c->fs && c->opt[OPT_JSON])
		print_json(s, n, &sum);
	else if (c->fs && print_table(c, s, n, &sum))
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
