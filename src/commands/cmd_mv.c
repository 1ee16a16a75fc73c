/* sheaf mv: renames inside the file system. */
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
	.more = "Both are inside the file system. Where DST is a directory, SRC moves into it.\n",
	.examples = "  sheaf mv /results/a.dat /results/b.dat\n"
		    "  sheaf mv /a /b /old\n",
};
