/* sheaf getfattr: shows extended attributes, in the format of getfattr(1). */
#include <ctype.h>

#include "commands/commands.h"

enum { OPT_DUMP, OPT_NAME };

#define VALUE_MAX 65536

static bool is_text(const char *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isprint((unsigned char)v[i]))
			return false;
	return true;
}

static void put_value(const char *v, size_t n)
{
	if (!is_text(v, n)) {
		fputs("0x", stdout);
		for (size_t i = 0; i < n; i++)
			printf("%02x", (unsigned char)v[i]);
		return;
	}
	putchar('"');
	for (size_t i = 0; i < n; i++) {
		if (v[i] == '"' || v[i] == '\\')
			putchar('\\');
		putchar(v[i]);
	}
	putchar('"');
}

static int show_value(struct cli *c, const char *path, const char *name)
{
	static char buf[VALUE_MAX];
	ssize_t n = sheaf_getxattr(c->fs, path, name, buf, VALUE_MAX);
	char what[CLI_PATH_MAX + 300];

	snprintf(what, sizeof(what), "%s: %s", path, name);
	if (n < 0)
		return cli_fail(c, what, (int)n);
	fputs(name, stdout);
	putchar('=');
	put_value(buf, (size_t)n);
	putchar('\n');
	return CLI_OK;
}

static int show_all(struct cli *c, const char *path, const char *list, size_t n)
{
	int status = CLI_OK;

	for (const char *p = list; p < list + n && !c->lost; p += strlen(p) + 1) {
		if (c->opt[OPT_DUMP])
			status |= show_value(c, path, p);
		else
			puts(p);
	}
	return status;
}

static int show_file(struct cli *c, const char *arg, char *path, void *data)
{
	static char list[VALUE_MAX];
	ssize_t n = c->opt[OPT_NAME] ? 0 : sheaf_listxattr(c->fs, path, list, sizeof(list));
	int status;

	(void)data;
	if (n < 0)
		return cli_fail(c, arg, (int)n);
	if (!c->opt[OPT_NAME] && !n)
		return CLI_OK;
	fputs("# file: ", stdout);
	cli_put_name(stdout, path);
	putchar('\n');
	status = c->opt[OPT_NAME] ? show_value(c, path, c->opt[OPT_NAME]) :
				    show_all(c, path, list, (size_t)n);
	putchar('\n');
	return status;
}

static int run_getfattr(struct cli *c)
{
	return cli_each_arg(c, 0, show_file, NULL);
}

const struct cli_command cmd_getfattr = {
	.name = "getfattr",
	.usage = "[-d] [-n NAME] PATH...",
	.summary = "show the extended attributes of files",
	.run = run_getfattr,
	.min_args = 1,
	.max_args = -1,
	.options = { { 'd', "dump", NULL, "values too" },
		     { 'n', "name", "NAME", "this one and its value" } },
	.more = "Values that are no text are shown as 0x and hexadecimal digits.\n",
	.examples = "  sheaf getfattr -d /results/b.dat\n",
};
