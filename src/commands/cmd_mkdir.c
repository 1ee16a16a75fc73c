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

static int make_arg(struct cli *c, const char *arg, char *path, void *data)
{
	int r = 0;

	(void)data;
	if (!c->opt[OPT_PARENTS])
		r = make(c, path);
	else if (path[1])
		r = make_parents(c, path);
	return r ? cli_fail(c, arg, r) : CLI_OK;
}

static int run_mkdir(struct cli *c)
{
	return cli_each_arg(c, 0, make_arg, NULL);
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
