/* sheaf chown: changes owners and groups. A symbolic link on the command line is followed; with -R
 * the links themselves are changed. */
#include <grp.h>
#include <pwd.h>

#include "commands/commands.h"
#include "sheaf_handle.h"

enum { OPT_RECURSIVE };

struct owner {
	uint64_t uid, gid; /* UINT32_MAX: unchanged */
};

/* Parses USER, USER:GROUP, :GROUP, or USER: for the login group of USER. */
static int parse_owner(struct cli *c, const char *arg, struct owner *o)
{
	char user[256];
	const char *colon = strchrnul(arg, ':');
	struct passwd *pw;
	struct group *gr;

	*o = (struct owner){ UINT32_MAX, UINT32_MAX };
	if ((size_t)(colon - arg) >= sizeof(user) || !*arg || strcmp(arg, ":") == 0)
		return cli_usage(c, "'%s' is no owner; USER, USER:GROUP or :GROUP", arg);
	memcpy(user, arg, (size_t)(colon - arg));
	user[colon - arg] = 0;
	pw = user[0] ? getpwnam(user) : NULL;
	gr = *colon && colon[1] ? getgrnam(colon + 1) : NULL;
	if (pw)
		o->uid = pw->pw_uid;
	else if (user[0] && cli_number(user, 0, UINT32_MAX - 1, &o->uid))
		return cli_error(c, "%s: no such user on this host; a number is fine", user);
	if (gr)
		o->gid = gr->gr_gid;
	else if (*colon && colon[1] && cli_number(colon + 1, 0, UINT32_MAX - 1, &o->gid))
		return cli_error(c, "%s: no such group on this host; a number is fine", colon + 1);
	if (*colon && !colon[1] && pw)
		o->gid = pw->pw_gid;
	else if (*colon && !colon[1])
		return cli_error(c, "%s: no such user on this host, so no group of its own", user);
	return CLI_OK;
}

static int change_one(struct cli *c, const char *path, struct sheaf_handle h, const struct stat *st,
		      void *arg)
{
	const struct owner *o = arg;
	unsigned which = (o->uid == UINT32_MAX ? 0 : SHEAF_SET_UID) |
			 (o->gid == UINT32_MAX ? 0 : SHEAF_SET_GID);
	struct stat new = { .st_uid = (uid_t)o->uid, .st_gid = (gid_t)o->gid };
	int r = sheaf_h_setattr(c->fs, NULL, h, which, &new, NULL);

	(void)st;
	return r ? cli_fail(c, path, r) : CLI_OK;
}

static int run_chown(struct cli *c)
{
	struct owner o;
	int status = parse_owner(c, c->args[0], &o);

	return status ? status : cli_each_file(c, 1, c->opt[OPT_RECURSIVE], change_one, &o);
}

const struct cli_command cmd_chown = {
	.name = "chown",
	.usage = "[-R] [USER][:GROUP] PATH...",
	.summary = "change the owners and groups of files",
	.run = run_chown,
	.min_args = 2,
	.max_args = -1,
	.options = { { 'R', "recursive", NULL, "directories and all they hold" } },
	.more = "Names are those of this host; numbers work too. 'USER:' means the group of that user.\n",
	.examples = "  sheaf chown -R ada:physics /results\n",
};
