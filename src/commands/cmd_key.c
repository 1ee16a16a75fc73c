/* sheaf key: creates a client key, adds it to the cluster file, and has this host's servers reload.
 *
 * The key file exists before the cluster file names it, and the cluster file is replaced atomically
 * (a new file is renamed over it): readers see the old or the new state, whatever fails. */
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "commands/commands.h"

enum { OPT_UID, OPT_GID };

/* Builds "uid N gid M ..." from the options; missing groups come from this host's user database. */
static int take_role(struct cli *c, struct key_role *r)
{
	gid_t groups[256];
	int n = ARRAY_LEN(groups);
	struct passwd *pw;
	uint64_t v;

	if (cli_number(c->opt[OPT_UID], 0, UINT32_MAX - 1, &v))
		return cli_usage(c, "--uid %s: not a number of a user", c->opt[OPT_UID]);
	r->uid = (uint32_t)v;
	if (c->opt[OPT_GID]) {
		char *list = strdupa(c->opt[OPT_GID]), *at, *word;

		for (word = strtok_r(list, ",", &at); word; word = strtok_r(NULL, ",", &at)) {
			if (cli_number(word, 0, UINT32_MAX - 1, &v) || r->n_gids == CONF_KEY_GIDS)
				return cli_usage(c,
						 "--gid %s: not 1 to %d numbers of groups: 100,200",
						 c->opt[OPT_GID], CONF_KEY_GIDS);
			r->gids[r->n_gids++] = (uint32_t)v;
		}
		if (r->n_gids)
			return CLI_OK;
		return cli_usage(c, "--gid is empty");
	}
	pw = getpwuid(r->uid);
	if (!pw)
		return cli_usage(c, "this host has no user %u; name the groups with --gid LIST",
				 r->uid);
	if (getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) < 0)
		n = ARRAY_LEN(groups);
	if (n > CONF_KEY_GIDS)
		fprintf(stderr,
			"sheaf key: %s is in %d groups; the key has the first %d, choose others "
			"with --gid\n",
			pw->pw_name, n, CONF_KEY_GIDS);
	for (; r->n_gids < (uint32_t)MIN(n, CONF_KEY_GIDS); r->n_gids++)
		r->gids[r->n_gids] = groups[r->n_gids];
	return CLI_OK;
}

/* The path of the key file, beside the default key; and its form in the cluster file. */
static int place_key(const struct conf *conf, const char *name, char path[CLI_PATH_MAX],
		     char named[CLI_PATH_MAX])
{
	size_t folder = (size_t)(strrchr(conf->key_file, '/') - conf->key_file);
	bool beside = strncmp(conf->path, conf->key_file, folder + 1) == 0 &&
		      !strchr(conf->path + folder + 1, '/');

	if (folder + strlen(name) + 6 > CONF_PATH_MAX)
		return -ENAMETOOLONG;
	snprintf(path, CLI_PATH_MAX, "%.*s/%s.key", (int)folder, conf->key_file, name);
	snprintf(named, CLI_PATH_MAX, "%s", beside ? path + folder + 1 : path);
	return 0;
}

static char *section_text(const char *name, const char *file, const struct key_role *r)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "\n[key.%s]\nfile = %s\nrole = ", name, file);
	if (r->any)
		fputs("any", f);
	else
		fprintf(f, "uid %u gid", r->uid);
	for (uint32_t i = 0; i < r->n_gids; i++)
		fprintf(f, " %u", r->gids[i]);
	fputc('\n', f);
	return fclose(f) ? NULL : text;
}

/* Gives the key the owner of the default key: root may create keys for servers of another user. */
static void give_away(const char *path, const char *like)
{
	struct stat st;

	if (geteuid() == 0 && stat(like, &st) == 0 && chown(path, st.st_uid, st.st_gid) < 0)
		fprintf(stderr, "sheaf key: %s still belongs to root: %s\n", path,
			error_text(errno));
}

static int make_key(struct cli *c, struct conf **loaded, const char *name)
{
	char path[CLI_PATH_MAX], named[CLI_PATH_MAX], err[CLI_PATH_MAX + 256], *text;
	const struct conf *conf = *loaded;
	struct key_role role = { .any = !c->opt[OPT_UID] };
	int r = role.any ? CLI_OK : take_role(c, &role);

	if (r)
		return r;
	if (role.any && c->opt[OPT_GID])
		return cli_usage(c, "--gid goes with --uid");
	if (conf_key_find(conf, name))
		return cli_error(c, "%s has a [key.%s] already; choose another name", conf->path,
				 name);
	if (place_key(conf, name, path, named))
		return cli_error(c, "the path of the key is too long");
	if (key_create(path, err, sizeof(err)))
		return cli_error(c, "%s", err);
	give_away(path, conf->key_file);
	text = section_text(name, named, &role);
	snprintf(err, sizeof(err), "out of memory");
	r = text ? conf_append(loaded, text, err, sizeof(err)) : -ENOMEM;
	free(text);
	if (r) {
		unlink(path);
		return cli_error(c, "%s", err);
	}
	printf("made %s and [key.%s] in %s\n"
	       "a client needs a copy of both, the key with mode 600, and picks it with SHEAF_KEY=%s\n",
	       path, name, (*loaded)->path, name);
	return CLI_OK;
}

int servers_reread(struct cli *c, const struct conf *conf, const char *what)
{
	struct cli_daemon *d = cli_daemons_find(conf);
	int status = CLI_OK, elsewhere = 0;

	if (!d)
		return cli_error(c, "out of memory");
	for (uint32_t i = 0; i < conf->n_targets; i++) {
		elsewhere += !d[i].here;
		if (!d[i].pid)
			continue;
		if (pidfd_send_signal(d[i].pidfd, SIGHUP, NULL, 0) == 0)
			printf("%s reads %s again\n", d[i].target->name, what);
		else if (errno != ESRCH)
			status = cli_error(c, "%s: cannot signal pid %d: %s", d[i].target->name,
					   d[i].pid, error_text(errno));
	}
	if (elsewhere)
		printf("%d servers are on other hosts: copy the cluster file and the key files there, "
		       "and run 'sheaf key'\n",
		       elsewhere);
	cli_daemons_free(d, conf->n_targets);
	return status;
}

/* The cluster file's rule for names: its parser would report a violation too late. */
static bool good_name(const char *s)
{
	return strlen(s) < CONF_NAME_MAX && s[0] && !strchr("._-", s[0]) &&
	       !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")];
}

static int run_key(struct cli *c)
{
	struct conf *conf;
	int status;

	if (c->n_args && !good_name(c->args[0]))
		return cli_usage(c,
				 "'%s' is not 1 to 31 letters, digits, '.', '_' or '-', the first "
				 "a letter or digit",
				 c->args[0]);
	if (!c->n_args && (c->opt[OPT_UID] || c->opt[OPT_GID]))
		return cli_usage(c, "which key? give a NAME");
	status = cli_load_conf(c, &conf);
	if (status)
		return status;
	if (c->n_args)
		status = make_key(c, &conf, c->args[0]);
	if (!status)
		status = servers_reread(c, conf, "the keys");
	conf_free(conf);
	return status;
}

const struct cli_command cmd_key = {
	.name = "key",
	.usage = "[NAME [--uid N [--gid LIST]]]",
	.summary = "make a client key; without NAME have the servers read the keys again",
	.run = run_key,
	.max_args = 1,
	.options = { { 0, "uid", "N", "valid for this user only (for all users)" },
		     { 0, "gid", "LIST",
		       "and these groups, as 100,200 (those the user has on this host)" } },
	.more = "Writes NAME.key beside the default key and a section [key.NAME] into the cluster file, then has the\n"
		"running servers of this host read keys and networks again. To take a key back, remove its section\n"
		"and run 'sheaf key': connections that use it are closed.\n",
	.examples = "  sheaf key login7\n"
		    "  sheaf key ada --uid 1000\n",
};
