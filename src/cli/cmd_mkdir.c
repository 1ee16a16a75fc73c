/* sheaf mkdir: make directories. */
#include "cli/commands.h"

enum { OPT_PARENTS };

/* Every part of the path that is missing; `path` is put back as it was. */
static int make_parents(struct cli *c, char *path, mode_t mode)
{
	int r = 0;

	for (char *p = path + 1; !r; p++) {
		char old = *p;

		if (old && old != '/')
			continue;
		*p = 0;
		r = sheaf_mkdir(c->fs, path, mode);
		if (r == -EEXIST) {
			r = cli_is_dir(c, path);
			r = r < 0 ? r : r ? 0 : -ENOTDIR;
		}
		*p = old;
		if (!old)
			break;
	}
	return r;
}

static int run_mkdir(struct cli *c)
{
	int status = cli_connect(c);
	char path[CLI_PATH_MAX];
	mode_t mask = umask(0);

	umask(mask);
	for (int i = 0; i < c->n_args && c->fs && !c->lost; i++) {
		int r = cli_inside_path(c->args[i], path);

		if (!r && c->opt[OPT_PARENTS])
			r = path[1] ? make_parents(c, path, 0777 & ~mask) : 0;
		else if (!r)
			r = sheaf_mkdir(c->fs, path, 0777 & ~mask);
		if (r)
			status = cli_fail(c, c->args[i], r);
	}
	return status;
}

const struct cli_command cmd_mkdir = {
	.name = "mkdir",
	.usage = "[-p] PATH...",
	.summary = "make directories",
	.run = run_mkdir,
	.min_args = 1,
	.max_args = -1,
	.options = { { 'p', "parents", NULL, "make missing parents too; what exists is fine" } },
};
