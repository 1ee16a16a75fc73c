/* sheaf mv: renames inside the file system. Refuses to move two files to one name: the second would
 * replace the first. */
#include "commands/commands.h"

static int move_one(struct cli *c, const char *from, const char *to, bool into)
{
	char path[CLI_PATH_MAX];
	int r = 0;

	if (into)
		r = cli_join(path, to, cli_basename(from));
	if (!r)
		r = sheaf_rename(c->fs, from, into ? path : to);
	return r ? cli_fail(c, from, r) : CLI_OK;
}

/* CLI_OK, or CLI_FAILED after a message: two of the files would get the same name. */
static int check_names(struct cli *c)
{
	struct cli_names names = { 0 };
	char from[CLI_PATH_MAX];
	const char *twice;
	int r = 0, status = CLI_OK;

	/* a path that cannot be parsed is reported when its turn comes */
	for (int i = 0; i + 1 < c->n_args && !r; i++)
		if (!cli_inside_path(c->args[i], from))
			r = cli_names_add(&names, cli_basename(from), 0);
	twice = r ? NULL : cli_names_twice(&names);
	if (r)
		status = cli_error(c, "out of memory");
	else if (twice)
		status = cli_error(c,
				   "%s: several of the names end in it, and one would replace the "
				   "other; nothing was moved",
				   twice);
	cli_names_free(&names);
	return status;
}

static int run_mv(struct cli *c)
{
	char from[CLI_PATH_MAX], to[CLI_PATH_MAX];
	const char *last = c->args[c->n_args - 1];
	int status = cli_connect(c), r, into;

	if (status)
		return status;
	r = cli_inside_path(last, to);
	into = r ? r : cli_is_dir(c, to);
	if (into < 0)
		return cli_fail(c, last, into);
	if (!into && (c->n_args > 2 || (last[0] && last[strlen(last) - 1] == '/')))
		return cli_error(c, "%s: not a directory", last);
	if (check_names(c))
		return CLI_FAILED;
	for (int i = 0; i + 1 < c->n_args && !c->lost; i++) {
		r = cli_inside_path(c->args[i], from);
		status |= r ? cli_fail(c, c->args[i], r) : move_one(c, from, to, into);
	}
	return status;
}

const struct cli_command cmd_mv = {
	.name = "mv",
	.usage = "SRC... DST",
	.summary = "move or rename files and directories",
	.run = run_mv,
	.min_args = 2,
	.max_args = -1,
	.more = "Both are inside the file system. Where DST is a directory, SRC moves into it. If two SRC have the same\n"
		"last component, nothing is moved.\n",
	.examples = "  sheaf mv /results/a.dat /results/b.dat\n"
		    "  sheaf mv /a /b /old\n",
};
