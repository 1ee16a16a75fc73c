/* sheaf ls: lists directories. Ends early when the reader of its output is gone. */
#include <grp.h>
#include <json-c/json.h>
#include <pwd.h>
#include <stdlib.h>
#include <time.h>

#include "commands/commands.h"
#include "sheaf_handle.h"

enum { OPT_LONG, OPT_RECURSIVE, OPT_ALL, OPT_DIRECTORY, OPT_HUMAN, OPT_JSON };

/* Caches the last names: most directories have one owner, and each lookup reads a file. */
static void owner_names(const struct stat *st, char *user, char *group, size_t n)
{
	static char last_user[64], last_group[64];
	static struct stat last;
	struct passwd *pw;
	struct group *gr;

	if (!last_user[0] || last.st_uid != st->st_uid) {
		pw = getpwuid(st->st_uid);
		snprintf(last_user, sizeof(last_user), "%u", st->st_uid);
		if (pw)
			snprintf(last_user, sizeof(last_user), "%s", pw->pw_name);
	}
	if (!last_group[0] || last.st_gid != st->st_gid) {
		gr = getgrgid(st->st_gid);
		snprintf(last_group, sizeof(last_group), "%u", st->st_gid);
		if (gr)
			snprintf(last_group, sizeof(last_group), "%s", gr->gr_name);
	}
	last = *st;
	snprintf(user, n, "%s", last_user);
	snprintf(group, n, "%s", last_group);
}

static void size_text(struct cli *c, const struct stat *st, char out[32])
{
	if (c->opt[OPT_HUMAN])
		format_size(out, 32, (uint64_t)st->st_size);
	else
		snprintf(out, 32, "%lld", (long long)st->st_size);
}

/* Column widths of a long listing. */
struct widths {
	int links, user, group, size;
	bool acl; /* a file has an access control list: add a column for the '+' */
};

static bool has_acl(struct cli *c, uint64_t ino, uint32_t gen, mode_t mode)
{
	struct sheaf_handle h = { ino, gen };

	if (S_ISLNK(mode))
		return false;
	return sheaf_h_getxattr(c->fs, NULL, h, "system.posix_acl_access", NULL, 0) > 0 ||
	       (S_ISDIR(mode) &&
		sheaf_h_getxattr(c->fs, NULL, h, "system.posix_acl_default", NULL, 0) > 0);
}

/* True if only the name is known: the directory is readable but not searchable. */
static bool unseen(const struct stat *st)
{
	return !st->st_nlink;
}

static void measure(struct cli *c, struct widths *w, const struct stat *st)
{
	char user[64], group[64], num[32];

	if (unseen(st))
		return;
	owner_names(st, user, group, sizeof(user));
	w->user = MAX(w->user, (int)strlen(user));
	w->group = MAX(w->group, (int)strlen(group));
	w->links = MAX(w->links, snprintf(num, sizeof(num), "%lu", (unsigned long)st->st_nlink));
	size_text(c, st, num);
	w->size = MAX(w->size, (int)strlen(num));
}

/* path: of `name`, to read the text of a symbolic link */
static void put_long(struct cli *c, const struct widths *w, const struct stat *st, bool acl,
		     const char *path, const char *name)
{
	const char *plus = acl ? "+" : w->acl ? " " : "";
	char mode[11], user[64], group[64], date[64], size[32], target[CLI_PATH_MAX];

	cli_mode_string(mode, st->st_mode);
	if (unseen(st)) {
		printf("%c?????????%s %*s %-*s %-*s %*s %12s ", mode[0], plus, w->links, "?",
		       w->user, "?", w->group, "?", w->size, "?", "?");
		cli_put_name(stdout, name);
		putchar('\n');
		return;
	}
	owner_names(st, user, group, sizeof(user));
	cli_date(date, sizeof(date), &st->st_mtim, time(NULL));
	size_text(c, st, size);
	printf("%s%s %*lu %-*s %-*s %*s %s ", mode, plus, w->links, (unsigned long)st->st_nlink,
	       w->user, user, w->group, group, w->size, size, date);
	cli_put_name(stdout, name);
	if (S_ISLNK(st->st_mode) && cli_read_link(c, path, target) == 0) {
		fputs(" -> ", stdout);
		cli_put_name(stdout, target);
	}
	putchar('\n');
}

/* path: of the directory; is extended meanwhile */
static int list_long(struct cli *c, char path[CLI_PATH_MAX], struct cli_names *names)
{
	size_t len = strlen(path);
	struct widths w = { 0 };
	int status = CLI_OK;
	bool all = true;

	for (size_t i = 0; i < names->n; i++) {
		struct cli_name *n = &names->v[i];

		measure(c, &w, n->st);
		n->acl = !unseen(n->st) && has_acl(c, n->ino, n->gen, n->st->st_mode);
		w.acl |= n->acl;
	}
	for (size_t i = 0; i < names->n; i++) {
		all &= !unseen(names->v[i].st);
		if (cli_path_add(path, names->v[i].name))
			status = cli_fail(c, path, -ENAMETOOLONG);
		else
			put_long(c, &w, names->v[i].st, names->v[i].acl, path, names->v[i].name);
		path[len] = 0;
	}
	return all ? status : cli_fail(c, path, -EACCES);
}

static void put_heading(const char *path, bool *first)
{
	if (!*first)
		putchar('\n');
	*first = false;
	cli_put_name(stdout, path);
	puts(":");
}

/* Without -a: names that begin with a dot are not listed. */
static void drop_hidden(struct cli_names *names)
{
	size_t kept = 0;

	for (size_t i = 0; i < names->n; i++) {
		struct cli_name drop = names->v[i];

		if (drop.name[0] != '.') {
			names->v[kept++] = drop;
			continue;
		}
		free(drop.name);
		free(drop.st);
	}
	names->n = kept;
}

static void put_json(struct cli *c, const char *path, const struct stat *st)
{
	char target[CLI_PATH_MAX] = "";

	if (S_ISLNK(st->st_mode) && cli_read_link(c, path, target))
		target[0] = 0;
	cli_json_print(cli_stat_json(path, st, target), JSON_C_TO_STRING_PLAIN);
}

/* path: of the directory; is extended meanwhile */
static int list_json(struct cli *c, char path[CLI_PATH_MAX], struct cli_names *names)
{
	size_t len = strlen(path);
	int status = CLI_OK;

	for (size_t i = 0; i < names->n; i++) {
		if (cli_path_add(path, names->v[i].name))
			status = cli_fail(c, path, -ENAMETOOLONG);
		else if (unseen(names->v[i].st))
			status = cli_fail(c, path, -EACCES);
		else
			put_json(c, path, names->v[i].st);
		path[len] = 0;
	}
	return status;
}

/* Lists one directory and, with -R, everything beneath it. `path` is extended meanwhile. */
static int list_dir(struct cli *c, char path[CLI_PATH_MAX], bool heading, bool *first)
{
	bool plain = !c->opt[OPT_LONG] && !c->opt[OPT_JSON];
	size_t len = strlen(path);
	struct cli_names names;
	int status = CLI_OK, r = cli_names_inside(c, path, !plain, &names);

	if (r) {
		cli_names_free(&names);
		return cli_fail(c, path, r);
	}
	if (!c->opt[OPT_ALL])
		drop_hidden(&names);
	if (heading && !c->opt[OPT_JSON])
		put_heading(path, first);
	if (c->opt[OPT_JSON])
		status = list_json(c, path, &names);
	else if (!plain)
		status = list_long(c, path, &names);
	for (size_t i = 0; i < names.n && plain; i++) {
		cli_put_name(stdout, names.v[i].name);
		putchar('\n');
	}
	if (ferror(stdout))
		c->lost = true;
	for (size_t i = 0; i < names.n && c->opt[OPT_RECURSIVE] && !c->lost; i++) {
		if (!S_ISDIR(names.v[i].type))
			continue;
		r = cli_path_add(path, names.v[i].name);
		if (!r)
			status |= list_dir(c, path, true, first);
		else if (plain) /* otherwise it was reported above */
			status |= cli_fail(c, path, r);
		path[len] = 0;
	}
	cli_names_free(&names);
	return status;
}

static int list_one(struct cli *c, const char *arg, char *path, void *data)
{
	bool heading = c->n_args > 1 || c->opt[OPT_RECURSIVE], *first = data;
	struct sheaf_handle h = { 0 };
	struct widths w = { 0 };
	struct stat st;
	int r = c->opt[OPT_LONG] || c->opt[OPT_JSON] ? -ENOENT : sheaf_stat(c->fs, path, &st);

	(void)arg;
	if (r == -ENOENT || r == -ELOOP) /* list a dangling symbolic link as well */
		r = sheaf_h_lookup(c->fs, NULL, sheaf_root(c->fs), path, &h, &st);
	if (r)
		return cli_fail(c, path, r);
	if (S_ISDIR(st.st_mode) && !c->opt[OPT_DIRECTORY])
		return list_dir(c, path, heading, first);
	*first = false;
	if (c->opt[OPT_JSON]) {
		put_json(c, path, &st);
	} else if (c->opt[OPT_LONG]) {
		measure(c, &w, &st);
		put_long(c, &w, &st, has_acl(c, h.ino, h.gen, st.st_mode), path, path);
	} else {
		cli_put_name(stdout, path);
		putchar('\n');
	}
	return CLI_OK;
}

static int run_ls(struct cli *c)
{
	static char root[] = "/", *whole[] = { root };
	bool first = true;

	if (!c->n_args) {
		c->args = whole;
		c->n_args = 1;
	}
	return cli_each_arg(c, 0, list_one, &first);
}

const struct cli_command cmd_ls = {
	.name = "ls",
	.usage = "[-adhlR] [--json] [PATH...]",
	.summary = "list directories",
	.run = run_ls,
	.max_args = -1,
	.options = { { 'l', "long", NULL, "with mode, links, owner, size and time" },
		     { 'R', "recursive", NULL, "and all directories beneath" },
		     { 'a', "all", NULL, "names that begin with a dot, too" },
		     { 'd', "directory", NULL, "directories themselves, not what is in them" },
		     { 'h', "human", NULL, "with -l: sizes like 1.5 GiB" },
		     { 0, "json", NULL, "one JSON object a line, as of sheaf stat --json" } },
	.examples = "  sheaf ls -l /results\n"
		    "  sheaf ls -R / | less\n",
};
