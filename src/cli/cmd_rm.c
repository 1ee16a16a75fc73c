/* sheaf rm: remove files, and directories with all they hold. */
#include "cli/commands.h"

enum { OPT_RECURSIVE, OPT_FORCE };

/* A name that is gone already is what we wanted. */
static int gone_is_fine(struct cli *c, const char *path, int r)
{
	return r == 0 || r == -ENOENT ? CLI_OK : cli_fail(c, path, r);
}

static int remove_tree(struct cli *c, const char *path)
{
	char child[CLI_PATH_MAX];
	struct cli_names names;
	int status = CLI_OK, r = cli_names_inside(c, path, &names);

	if (r) {
		cli_names_free(&names);
		return gone_is_fine(c, path, r);
	}
	for (size_t i = 0; i < names.n && !c->lost && !cli_signal; i++) {
		r = cli_join(child, path, names.v[i].name);
		if (r)
			status |= cli_fail(c, path, r);
		else if (S_ISDIR(names.v[i].type))
			status |= remove_tree(c, child);
		else
			status |= gone_is_fine(c, child, sheaf_unlink(c->fs, child));
	}
	cli_names_free(&names);
	if (status || c->lost || cli_signal)
		return CLI_FAILED;
	return gone_is_fine(c, path, sheaf_rmdir(c->fs, path));
}

static int remove_one(struct cli *c, const char *path)
{
	struct stat st = { 0 };
	bool dir;
	int r;

	if (strcmp(path, "/") == 0)
		return cli_error(c, "/: the root cannot be removed; name what is in it");
	r = sheaf_lstat(c->fs, path, &st); /* a symbolic link goes, not what it points to */
	dir = !r && S_ISDIR(st.st_mode);
	if (dir && c->opt[OPT_RECURSIVE])
		return remove_tree(c, path);
	if (dir)
		return cli_error(c,
				 "%s: it is a directory; 'sheaf rm -r' removes it and all it holds",
				 path);
	if (r == 0)
		r = sheaf_unlink(c->fs, path);
	if (r == -ENOENT && c->opt[OPT_FORCE])
		return CLI_OK;
	return r ? cli_fail(c, path, r) : CLI_OK;
}

static int run_rm(struct cli *c)
{
	int status = cli_connect(c);
	char path[CLI_PATH_MAX];

	cli_catch_signals();
	for (int i = 0; i < c->n_args && c->fs && !c->lost && !cli_signal; i++) {
		int r = cli_inside_path(c->args[i], path);

		status |= r ? cli_fail(c, c->args[i], r) : remove_one(c, path);
	}
	return status;
}

const struct cli_command cmd_rm = {
	.name = "rm",
	.usage = "[-r] [-f] PATH...",
	.summary = "remove files and directories",
	.run = run_rm,
	.min_args = 1,
	.max_args = -1,
	.options = { { 'r', "recursive", NULL, "directories and all they hold" },
		     { 'f', "force", NULL, "what does not exist is fine" } },
};
