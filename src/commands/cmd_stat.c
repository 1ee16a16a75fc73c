/* sheaf stat: shows the attributes of files. */
#include <json-c/json.h>
#include <time.h>

#include "commands/commands.h"

enum { OPT_JSON };

static void put_time(const char *label, const struct timespec *t)
{
	char date[64], zone[16];
	struct tm tm;

	if (!localtime_r(&t->tv_sec, &tm) ||
	    !strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm) ||
	    !strftime(zone, sizeof(zone), "%z", &tm))
		return;
	printf("%9s: %s.%09ld %s\n", label, date, t->tv_nsec, zone);
}

static void stat_text(const char *path, const struct stat *st, const char *target)
{
	char mode[11], size[32];

	cli_mode_string(mode, st->st_mode);
	format_size(size, sizeof(size), (uint64_t)st->st_size);
	printf("%9s: ", "path");
	cli_put_name(stdout, path);
	if (target[0]) {
		fputs(" -> ", stdout);
		cli_put_name(stdout, target);
	}
	printf("\n%9s: %s\n", "type", cli_type_name(st->st_mode));
	printf("%9s: %lld (%s)\n", "size", (long long)st->st_size, size);
	printf("%9s: %04o (%s)\n", "mode", st->st_mode & 07777, mode);
	printf("%9s: uid %u, gid %u\n", "owner", st->st_uid, st->st_gid);
	printf("%9s: %llu, links %lu\n", "inode", (unsigned long long)st->st_ino,
	       (unsigned long)st->st_nlink);
	put_time("accessed", &st->st_atim);
	put_time("modified", &st->st_mtim);
	put_time("changed", &st->st_ctim);
}

static int stat_one(struct cli *c, const char *arg, char *path, void *data)
{
	char target[CLI_PATH_MAX] = "";
	struct stat st;
	int r = sheaf_lstat(c->fs, path, &st);

	(void)data;
	if (!r && S_ISLNK(st.st_mode))
		r = cli_read_link(c, path, target);
	if (r)
		return cli_fail(c, arg, r);
	if (c->opt[OPT_JSON])
		cli_json_print(cli_stat_json(path, &st, target), JSON_C_TO_STRING_PLAIN);
	else
		stat_text(path, &st, target);
	return CLI_OK;
}

static int run_stat(struct cli *c)
{
	return cli_each_arg(c, 0, stat_one, NULL);
}

const struct cli_command cmd_stat = {
	.name = "stat",
	.usage = "[--json] PATH...",
	.summary = "show the attributes of files",
	.run = run_stat,
	.min_args = 1,
	.max_args = -1,
	.options = { { 0, "json", NULL, "one JSON object a line" } },
	.examples = "  sheaf stat --json /results/b.dat | jq .size\n",
};
