/* sheaf chmod: changes modes. With -R symbolic links in the tree are skipped. */
#include "commands/commands.h"

enum { OPT_RECURSIVE };

struct change {
	const char *text;
	mode_t mask;
};

static int change_one(struct cli *c, const char *path, struct sheaf_handle h, const struct stat *st,
		      void *arg)
{
	struct change *x = arg;
	struct stat new = { 0 };
	int r;

	if (S_ISLNK(st->st_mode))
		return CLI_OK;
	r = cli_mode_parse(x->text, st->st_mode, x->mask, &new.st_mode);
	if (!r)
		r = sheaf_h_setattr(c->fs, NULL, h, SHEAF_SET_MODE, &new, NULL);
	return r ? cli_fail(c, path, r) : CLI_OK;
}

static int run_chmod(struct cli *c)
{
	struct change x = { .text = c->args[0], .mask = umask(0) };
	mode_t mode;

	umask(x.mask);
	if (cli_mode_parse(x.text, 0, x.mask, &mode))
		return cli_usage(c, "'%s' is no mode; for example 644, u+x, a=rX", x.text);
	return cli_each_file(c, 1, c->opt[OPT_RECURSIVE], change_one, &x);
}

const struct cli_command cmd_chmod = {
	.name = "chmod",
	.usage = "[-R] MODE PATH...",
	.summary = "change the modes of files",
	.run = run_chmod,
	.min_args = 2,
	.max_args = -1,
	.options = { { 'R', "recursive", NULL, "directories and all they hold" } },
	.more = "MODE is octal (644) or symbolic (u+x,g-w,a=rX); one that begins with '-' follows '--'.\n",
	.examples = "  sheaf chmod -R go-w,a+X /results\n",
};
