/* sheaf ln: creates hard links and symbolic links inside the file system. */
#include "commands/commands.h"

enum { OPT_SYMBOLIC, OPT_FORCE };

static int make_link(struct cli *c, const char *target, const char *link)
{
	char path[CLI_PATH_MAX];
	int r;

	if (c->opt[OPT_SYMBOLIC])
		return sheaf_symlink(c->fs, target, link);
	r = cli_inside_path(target, path);
	return r ? r : sheaf_link(c->fs, path, link);
}

/* Are both names the same file? Then removing `link` could remove the file. */
static bool is_itself(struct cli *c, const char *target, const char *link)
{
	char path[CLI_PATH_MAX];
	struct stat a, b;

	return !c->opt[OPT_SYMBOLIC] && cli_inside_path(target, path) == 0 &&
	       sheaf_lstat(c->fs, path, &a) == 0 && sheaf_lstat(c->fs, link, &b) == 0 &&
	       a.st_ino == b.st_ino;
}

static int link_one(struct cli *c, const char *target, const char *link)
{
	int r = make_link(c, target, link);

	if (r == -EEXIST && c->opt[OPT_FORCE]) {
		if (is_itself(c, target, link))
			return cli_error(c, "%s and %s are the same file", target, link);
		r = sheaf_unlink(c->fs, link);
		if (!r)
			r = make_link(c, target, link);
	}
	if (r == -EPERM && !c->opt[OPT_SYMBOLIC] && cli_is_dir(c, target) > 0)
		return cli_error(
			c, "%s: a directory has one name; 'sheaf ln -s' makes a symbolic link",
			target);
	return r ? cli_fail(c, r == -ENOENT && !c->opt[OPT_SYMBOLIC] ? target : link, r) : CLI_OK;
}

static int run_ln(struct cli *c)
{
	const char *target = c->args[0];
	char link[CLI_PATH_MAX], child[CLI_PATH_MAX], name[CLI_PATH_MAX];
	int status = cli_connect(c), r, into;

	if (status)
		return status;
	if (strncmp(target, "sheaf:", 6) == 0)
		target += 6;
	r = cli_inside_path(c->args[1], link);
	into = r ? r : cli_is_dir(c, link);
	if (into > 0) {
		r = cli_inside_path(target, name);
		if (!r)
			r = cli_join(child, link, cli_basename(name));
	}
	if (into < 0 || r)
		return cli_fail(c, c->args[1], into < 0 ? into : r);
	return link_one(c, target, into ? child : link);
}

const struct cli_command cmd_ln = {
	.name = "ln",
	.usage = "[-s] [-f] TARGET PATH",
	.summary = "give a file another name, or make a symbolic link",
	.run = run_ln,
	.min_args = 2,
	.max_args = 2,
	.options = { { 's', "symbolic", NULL, "a symbolic link; TARGET is kept as it is written" },
		     { 'f', "force", NULL, "remove an existing file of that name first" } },
	.more = "Both are inside the file system. Where PATH is a directory, the link is made in it.\n",
	.examples = "  sheaf ln -s ../results/b.dat /home/latest\n",
};
