/* sheaf cat: writes files inside to standard output. */
#include <fcntl.h>
#include <unistd.h>

#include "commands/commands.h"

static int cat_one(struct cli *c, const char *arg, char *path, void *data)
{
	struct cli_stream from = { 0 }, to = { .fd = STDOUT_FILENO };
	struct cli_progress p = { 0 };
	bool source = true;
	struct stat st;
	int r = sheaf_open(c->fs, path, O_RDONLY, 0, NULL, &from.f);

	(void)arg;
	if (r)
		return cli_fail(c, path, r);
	r = sheaf_fstat(from.f, &st);
	if (!r && S_ISDIR(st.st_mode))
		r = -EISDIR;
	if (!r)
		r = cli_copier_run(data, &from, &to, (uint64_t)st.st_size, &p, &source);
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
	int status = k ? cli_each_arg(c, 0, cat_one, k) : cli_error(c, "out of memory");

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
