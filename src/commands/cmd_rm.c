/* sheaf rm: removes files, and directories with their contents, several at a time.
 *
 * Threads: those of tree_walk.c; a directory is removed after its contents. The walk goes by
 * handle: a directory that others replace by a symbolic link meanwhile leads nowhere else. Errors:
 * one line each; a directory in which nothing can be removed is reported once. */
#include "commands/commands.h"

enum { OPT_RECURSIVE, OPT_FORCE, OPT_JOBS };

/* A name that is gone already is no error. */
static int gone_is_fine(struct tree_walk *w, const char *path, int r)
{
	return r == 0 || r == -ENOENT ? CLI_OK : tree_fail(w, path, false, r);
}

static int leave(struct tree_walk *w, struct cli_dir *d)
{
	if (!d->parent)
		return CLI_OK;
	if (d->failed || w->progress->stop)
		return CLI_FAILED;
	if (!d->parent->parent)
		return gone_is_fine(w, d->path, sheaf_rmdir(w->c->fs, d->path));
	return gone_is_fine(w, d->path,
			    sheaf_h_rmdir(w->c->fs, NULL, d->parent->handle,
					  cli_basename(d->path)));
}

static int remove_arg(struct tree_walk *w, struct cli_dir *top, const char *arg)
{
	char path[CLI_PATH_MAX];
	struct sheaf_handle h;
	struct stat st = { 0 };
	bool dir;
	int r = cli_inside_path(arg, path);

	if (r)
		return tree_fail(w, arg, false, r);
	if (strcmp(path, "/") == 0)
		return tree_error(w, "/: the root cannot be removed; name what is in it");
	/* remove a symbolic link, not its target */
	r = sheaf_h_lookup(w->c->fs, NULL, sheaf_root(w->c->fs), path, &h, &st);
	dir = !r && S_ISDIR(st.st_mode);
	if (dir && w->c->opt[OPT_RECURSIVE])
		return tree_enter_inside(w, top, path, h);
	if (dir)
		return tree_error(
			w, "%s: it is a directory; 'sheaf rm -r' removes it and all it holds",
			path);
	if (r == 0)
		r = sheaf_unlink(w->c->fs, path);
	if (r == -ENOENT && w->c->opt[OPT_FORCE])
		return CLI_OK;
	return r ? tree_fail(w, path, false, r) : CLI_OK;
}

static int child(struct tree_walk *w, unsigned worker, struct cli_dir *d, const struct cli_name *n)
{
	char path[CLI_PATH_MAX];
	int r;

	(void)worker;
	if (!d->parent)
		return remove_arg(w, d, n->name);
	r = cli_join(path, d->path, n->name);
	if (r)
		return tree_fail(w, d->path, false, r);
	if (S_ISDIR(n->type))
		return tree_enter_name(w, d, path, n->name);
	r = sheaf_h_unlink(w->c->fs, NULL, d->handle, n->name);
	return r == -EACCES ? tree_fail_dir(w, d, d->path, false, r) : gone_is_fine(w, path, r);
}

static int run_rm(struct cli *c)
{
	struct cli_progress quiet = { 0 };
	struct tree_walk w = { .c = c, .progress = &quiet, .child = child, .leave = leave };
	struct cli_dir *top;

	if (tree_set_jobs(&w, c->opt[OPT_JOBS]))
		return CLI_USAGE;
	if (cli_connect(c) || !(top = tree_root(c, sizeof(*top), c->args, c->n_args)))
		return CLI_FAILED;
	cli_catch_signals();
	return tree_run(&w, top);
}

const struct cli_command cmd_rm = {
	.name = "rm",
	.usage = "[-r] [-f] [--jobs N] PATH...",
	.summary = "remove files and directories",
	.run = run_rm,
	.min_args = 1,
	.max_args = -1,
	.options = { { 'r', "recursive", NULL, "directories and all they hold" },
		     { 'f', "force", NULL, "ignore names that do not exist" },
		     { 'j', "jobs", "N", "how many files at a time, 1 to 64; 16" } },
	.examples = "  sheaf rm -r /results/old\n",
};
