/* sheaf mkdir: creates directories. */
#include <limits.h>
#include <unistd.h>

#include "commands/commands.h"
#include "sheaf_handle.h"

enum { OPT_PARENTS };

/* As the calling user; the servers apply the umask unless the parent has a default ACL. */
static int make(struct cli *c, const char *path)
{
	static gid_t groups[NGROUPS_MAX];
	int n = getgroups(NGROUPS_MAX, groups);
	struct sheaf_cred me = { .uid = geteuid(),
				 .gid = getegid(),
				 .n_gids = n > 0 ? (uint32_t)n : 0,
				 .gids = groups,
				 .umask = umask(0) };

	umask(me.umask);
	return sheaf_h_mkdir(c->fs, &me, sheaf_root(c->fs), path, 0777, NULL, NULL);
}

/* Creates the missing parents of the path; `path` is unchanged on return. */
static int make_parents(struct cli *c, char *path)
{
	int r = 0;

	for (char *p = path + 1; !r; p++) {
		char old = *p;

		if (old && old != '/')
			continue;
		*p = 0;
		r = make(c, path);
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

	for (int i = 0; i < c->n_args && c->fs && !c->lost; i++) {
		int r = cli_inside_path(c->args[i], path);

		if (!r && c->opt[OPT_PARENTS])
			r = path[1] ? make_parents(c, path) : 0;
		else if (!r)
			r = make(c, path);
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
	.options = { { 'p', "parents", NULL,
		       "make missing parents too; accept directories that exist" } },
	.examples = "  sheaf mkdir -p /results/2026/june\n",
};
