/* sheaf backup: saves the metadata of all metadata servers to one file, while they run. */
#include <json-c/json.h>
#include <time.h>

#include "commands/commands.h"

enum { OPT_JSON };

/* If arg is a directory, the name of the file contains the time. */
static void choose_name(const char *arg, char out[CLI_PATH_MAX])
{
	char name[64];
	struct stat st;
	struct tm tm;
	time_t now = time(NULL);

	if (stat(arg, &st) < 0 || !S_ISDIR(st.st_mode)) {
		snprintf(out, CLI_PATH_MAX, "%s", arg);
		return;
	}
	localtime_r(&now, &tm);
	strftime(name, sizeof(name), "sheaf-%Y%m%d-%H%M%S.backup", &tm);
	snprintf(out, CLI_PATH_MAX, "%s/%s", arg, name);
}

static int run_backup(struct cli *c)
{
	struct sheaf_backup b = { .size = sizeof(b) };
	char file[CLI_PATH_MAX], size[32];
	struct json_object *o;
	int r;

	choose_name(c->args[0], file);
	if (cli_connect(c))
		return CLI_FAILED;
	r = sheaf_backup(c->fs, file, &b);
	if (r)
		return cli_fail_why(c, NULL, r);
	if (!c->opt[OPT_JSON]) {
		format_size(size, sizeof(size), b.bytes);
		printf("the metadata of %u server%s in %s, %s\n", b.servers,
		       b.servers == 1 ? "" : "s", file, size);
		return CLI_OK;
	}
	o = json_object_new_object();
	json_object_object_add(o, "file", cli_json_name(file));
	cli_json_int(o, "servers", b.servers);
	cli_json_uint(o, "bytes", b.bytes);
	cli_json_int(o, "time_ns", b.time);
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
	return CLI_OK;
}

const struct cli_command cmd_backup = {
	.name = "backup",
	.usage = "FILE|DIR [--json]",
	.summary = "copy the metadata of all servers, while they work, to a file of this host",
	.run = run_backup,
	.min_args = 1,
	.max_args = 1,
	.options = { { 0, "json", NULL, "for programs: {\"file\": ..., \"bytes\": ...}" } },
	.more = "Names, attributes and where the data are; not the data. In a DIR the name of the file contains the\n"
		"time. An existing file is never replaced. 'sheaf restore' puts the metadata back.\n",
	.examples = "  sheaf backup /var/backups/sheaf-$(date +%F)\n",
};
