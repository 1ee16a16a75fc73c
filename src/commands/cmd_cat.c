/* sheaf cat: writes files inside to standard output. */
#include <fcntl.h>
#include <unistd.h>

#include "commands/commands.h"

static int cat_one(struct cli *c, struct cli_copier *k, const char *path)
{
	struct cli_stream from = { 0 }, to = { .fd = STDOUT_FILENO };
	struct cli_progress p = { 0 };
	bool source = true;
	struct stat st;
	int r = sheaf_open(c->fs, path, O_RDONLY, 0, NULL, &from.f);

	if (r)
		return cli_fail(c, path, r);
	r = sheaf_fstat(from.f, &st);
	if (!r && S_ISDIR(st.st_mode))
		r = -EISDIR;
	if (!r)
		r = cli_copier_run(k, &from, &to, (uint64_t)st.st_size, &p, &source);
	sheaf_close(from.f);
	if (!r)
		return CLI_OK;
	if (source)
		return cli_fail(c, path, r);
	c->lost = true; /* the reader is gone */
	return r == -EPIPE ? CLI_FAILED : cli_fail_host(c, "standard output", r);
}

static int run_cat(struct cli *c)
{
	struct cli_copier *k = cli_copier_new();
	char path[CLI_PATH_MAX];
	int status = k ? cli_connect(c) : cli_error(c, "out of memory");

	for (int i = 0; i < c->n_args && c->fs && !c->lost; i++) {
		int r = cli_inside_path(c->args[i], path);

		status |= r ? cli_fail(c, c->args[i], r) : cat_one(c, k, path);
	}
	cli_copier_free(k);
	return status;
}

const struct cli_command cmd_cat = {
	.name = "cat",
	.usage = "PATH...",
	.summary = "print files",
	.run = run_cat,
	.min_args = 1,
	.max_args = -1,
	.examples = "  sheaf cat /results/log | grep error\n",
};
