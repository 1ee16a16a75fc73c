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

static int find_user(const char *name, uint64_t *uid, uint64_t *login_gid)
{
	struct passwd *pw = getpwnam(name);

	if (!pw)
		return cli_number(name, 0, UINT32_MAX - 1, uid);
	*uid = pw->pw_uid;
	*login_gid = pw->pw_gid;
	return 0;
}

static int find_group(const char *name, uint64_t *gid)
{
	struct group *gr = getgrnam(name);

	if (!gr)
		return cli_number(name, 0, UINT32_MAX - 1, gid);
	*gid = gr->gr_gid;
	return 0;
}

/* Parses USER, USER:GROUP, :GROUP, or USER: for the login group of USER. */
static int parse_owner(struct cli *c, const char *arg, struct owner *o)
{
	char user[256];
	const char *colon = strchrnul(arg, ':');
	uint64_t login = UINT32_MAX;

	*o = (struct owner){ UINT32_MAX, UINT32_MAX };
	if ((size_t)(colon - arg) >= sizeof(user) || !*arg || strcmp(arg, ":") == 0)
		return cli_usage(c, "'%s' is no owner; USER, USER:GROUP or :GROUP", arg);
	memcpy(user, arg, (size_t)(colon - arg));
	user[colon - arg] = 0;
	if (user[0] && find_user(user, &o->uid, &login))
		return cli_error(c, "%s: no such user on this host; a number is fine", user);
	if (*colon && colon[1] && find_group(colon + 1, &o->gid))
		return cli_error(c, "%s: no such group on this host; a number is fine", colon + 1);
	if (*colon && !colon[1])
		o->gid = login;
	if (*colon && !colon[1] && login == UINT32_MAX)
		return cli_error(c, "%s: no such user on this host, so no group of its own", user);
	return CLI_OK;
}

static int change_one(struct cli *c, const char *path, const struct stat *st, void *arg)
{
	const struct owner *o = arg;
	unsigned which = (o->uid == UINT32_MAX ? 0 : SHEAF_SET_UID) |
			 (o->gid == UINT32_MAX ? 0 : SHEAF_SET_GID);
	struct stat new = { .st_uid = (uid_t)o->uid, .st_gid = (gid_t)o->gid };
	struct sheaf_handle h;
	int r;

	if (!S_ISLNK(st->st_mode)) {
		r = sheaf_chown(c->fs, path, (uid_t)o->uid, (gid_t)o->gid);
	} else {
		r = sheaf_h_lookup(c->fs, NULL, sheaf_root(c->fs), path, &h, NULL);
		if (!r)
			r = sheaf_h_setattr(c->fs, NULL, h, which, &new, NULL);
	}
	return r ? cli_fail(c, path, r) : CLI_OK;
}

static int run_chown(struct cli *c)
{
	struct owner o;
	int status = parse_owner(c, c->args[0], &o);

	if (!status)
		status = cli_connect(c);
	cli_catch_signals();
	for (int i = 1; i < c->n_args && c->fs && !c->lost && !cli_signal; i++)
		status |= cli_each(c, c->args[i], c->opt[OPT_RECURSIVE], change_one, &o);
	return status;
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
