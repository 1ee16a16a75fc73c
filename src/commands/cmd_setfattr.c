/* sheaf setfattr: sets and removes extended attributes. */
#include <stdlib.h>

#include "commands/commands.h"

enum { OPT_NAME, OPT_VALUE, OPT_REMOVE };

/* The bytes of a value on the command line: 0x and hex digits, "quoted", or literal. */
static int value_bytes(const char *text, char *out, size_t *n)
{
	size_t len = strlen(text);

	*n = 0;
	if (strncmp(text, "0x", 2) == 0 || strncmp(text, "0X", 2) == 0) {
		*n = (len - 2) / 2;
		return len % 2 ? -EINVAL : hex_decode(out, *n, text + 2);
	}
	if (len >= 2 && text[0] == '"' && text[len - 1] == '"') {
		for (const char *p = text + 1; p < text + len - 1; p++) {
			if (*p == '\\' && p + 1 < text + len - 1)
				p++;
			out[(*n)++] = *p;
		}
		return 0;
	}
	memcpy(out, text, len);
	*n = len;
	return 0;
}

static int set_one(struct cli *c, const char *arg, char *path, void *data)
{
	const struct iovec *v = data;
	int r;

	if (c->opt[OPT_REMOVE])
		r = sheaf_removexattr(c->fs, path, c->opt[OPT_REMOVE]);
	else
		r = sheaf_setxattr(c->fs, path, c->opt[OPT_NAME], v->iov_base, v->iov_len, 0);
	if (r == -EOPNOTSUPP)
		return cli_error(
			c,
			"%s: only names that begin with user. (for root also trusted. and "
			"security.), system.posix_acl_access and _default, and sheaf.cache are supported",
			arg);
	if (r == -ENOSPC)
		return cli_error(
			c,
			"%s: no room for this attribute: those of one file may have 64 KiB of names "
			"and 1 MiB in all, and an ACL 512 entries; or the metadata server is full, "
			"then so says its sheafd.log",
			arg);
	return r ? cli_fail(c, arg, r) : CLI_OK;
}

static int run_setfattr(struct cli *c)
{
	const char *text = c->opt[OPT_VALUE] ? c->opt[OPT_VALUE] : "";
	struct iovec value;
	int status;

	if (!c->opt[OPT_NAME] == !c->opt[OPT_REMOVE])
		return cli_usage(c, "either -n NAME, to set it, or -x NAME, to remove it");
	if (c->opt[OPT_REMOVE] && c->opt[OPT_VALUE])
		return cli_usage(c, "what is removed has no value");
	value.iov_base = malloc(strlen(text) + 1);
	if (!value.iov_base)
		return cli_error(c, "out of memory");
	if (value_bytes(text, value.iov_base, &value.iov_len))
		status = cli_usage(c, "'%s' is no hexadecimal value", text);
	else
		status = cli_each_arg(c, 0, set_one, &value);
	free(value.iov_base);
	return status;
}

const struct cli_command cmd_setfattr = {
	.name = "setfattr",
	.usage = "-n NAME [-v VALUE] PATH... | -x NAME PATH...",
	.summary = "set or remove extended attributes of files",
	.run = run_setfattr,
	.min_args = 1,
	.max_args = -1,
	.options = { { 'n', "name", "NAME", "set this one, for example user.origin" },
		     { 'v', "value", "VALUE", "text, or 0x and hexadecimal digits" },
		     { 'x', "remove", "NAME", "remove this one" } },
	.examples = "  sheaf setfattr -n user.origin -v detector /results/b.dat\n",
};
