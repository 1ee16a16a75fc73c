/* The code around a subcommand: lookup in the table of commands, help, connection, errors.
 *
 * Errors go to stderr, one line each, "sheaf NAME: what: why"; exit status 1: failed, 2: wrong
 * usage. Output that could not be written is an error as well. */
#include "cli/cli.h"

#include <ctype.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define WORD_MAX 24 /* letters of a word for which a similar one is looked for */
#define SHOWN_MAX 60 /* bytes of an overlong name that a message shows */

atomic_int cli_signal;

static void on_signal(int sig)
{
	cli_signal = sig;
}

void cli_catch_signals(void)
{
	static const int which[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND }, old;

	for (size_t i = 0; i < ARRAY_LEN(which); i++)
		if (which[i] != SIGHUP || sigaction(SIGHUP, NULL, &old) ||
		    old.sa_handler != SIG_IGN) /* nohup: keep ignoring it */
			sigaction(which[i], &sa, NULL);
}

/* ---- errors ---- */

/* Prints one line, whatever its names contain. cmd NULL: the command line itself is wrong. */
static void complain(const struct cli_command *cmd, const char *fmt, va_list ap, const char *tail)
{
	char *text;

	fflush(stdout);
	if (vasprintf(&text, fmt, ap) < 0)
		return;
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	fprintf(stderr, "sheaf%s%s: %s%s\n", cmd ? " " : "", cmd ? cmd->name : "", text, tail);
	free(text);
}

int cli_error(struct cli *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(c->cmd, fmt, ap, "");
	va_end(ap);
	return CLI_FAILED;
}

int cli_usage(struct cli *c, const char *fmt, ...)
{
	char hint[96] = "; 'sheaf --help' lists the commands";
	va_list ap;

	if (c->cmd)
		snprintf(hint, sizeof(hint), "; 'sheaf %s --help' shows what it takes",
			 c->cmd->name);
	va_start(ap, fmt);
	complain(c->cmd, fmt, ap, hint);
	va_end(ap);
	return CLI_USAGE;
}

bool cli_no_answer(int err)
{
	static const int errors[] = { ETIMEDOUT, ECONNREFUSED, ECONNRESET,     ENOTCONN,
				      EHOSTDOWN, EHOSTUNREACH, ENETUNREACH,    EKEYREJECTED,
				      EREMCHG,	 EDESTADDRREQ, EPROTONOSUPPORT };

	for (size_t i = 0; i < ARRAY_LEN(errors); i++)
		if (err == -errors[i])
			return true;
	return false;
}

/* Finds the first server that is down, also of those that have other roles; false: none. */
static bool find_silent(struct cli *c, struct sheaf_server *out)
{
	int n = c->fs ? sheaf_server_count(c->fs) : 0, i = 0;
	struct sheaf_server *s = calloc((size_t)n + 1, sizeof(*s));
	bool found;

	if (!s)
		return false;
	cli_servers_ask(c->fs, s, NULL, n);
	while (i < n && s[i].up)
		i++;
	found = i < n;
	if (found)
		*out = s[i];
	free(s);
	return found;
}

static bool is_other_host(struct cli *c)
{
	char err[CLI_PATH_MAX + 512];
	struct conf *conf = NULL;
	bool is = false;

	if (cli_find_conf(c, &conf, err, sizeof(err)))
		return false;
	for (uint32_t i = 0; !is && i < conf->n_targets; i++)
		is = !cli_address_is_local(conf->targets[i].address);
	conf_free(conf);
	return is;
}

/* Root that is refused: the servers treat it as another user. */
static const char *squashed_text(struct cli *c, int err)
{
	if (geteuid() || !c->fs)
		return "";
	if (err == -EACCES)
		return ": the servers do not treat root of this host as root; name its address in "
		       "'trust' of their cluster file, or use a key that acts for any user";
	if (err == -EPERM && is_other_host(c))
		return ": to the servers, root of another host is nobody unless 'trust' in their "
		       "cluster file names its address";
	return "";
}

void cli_error_text(struct cli *c, int err, char out[CLI_WHY_MAX])
{
	static const struct {
		int error;
		const char *before, *after; /* the server's name */
	} texts[] = {
		{ ENOSPC, "no space left on ", ": remove files or add a server, then repeat this" },
		{ EDQUOT, "the quota is used up on ", ": remove files there, then repeat this" },
		{ EROFS, "read-only storage on ", ": see its sheafd.log" },
		{ EIO, "",
		  " could not read or write its disk, or lost data: see its sheafd.log, then "
		  "repeat this" },
	};
	struct sheaf_server s;

	snprintf(out, CLI_WHY_MAX, "%s%s", sheaf_strerror(err), squashed_text(c, err));
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (err == -texts[i].error && c->fs && sheaf_failed_server(c->fs, err, &s) == 0)
			snprintf(out, CLI_WHY_MAX, "%s%s (%s)%s", texts[i].before, s.name,
				 s.address, texts[i].after);
}

int cli_fail(struct cli *c, const char *what, int err)
{
	char server_why[CLI_WHY_MAX];
	struct sheaf_server s;

	if (err == -ENAMETOOLONG && strlen(what) > SHOWN_MAX)
		return cli_error(c, "%.*s... (%zu bytes): %s", SHOWN_MAX, what, strlen(what),
				 sheaf_strerror(err));
	if (!cli_no_answer(err)) {
		cli_error_text(c, err, server_why);
		return cli_error(c, "%s: %s", what, server_why);
	}
	c->lost = true;
	if (!find_silent(c, &s))
		return cli_error(c, "%s: %s", what, sheaf_strerror(err));
	cli_server_why(&s, server_why);
	return cli_error(c, "%s: %s; 'sheaf status' shows all servers", what, server_why);
}

int cli_fail_why(struct cli *c, const char *what, int err)
{
	const char *why = sheaf_why()[0] ? sheaf_why() : sheaf_strerror(err);

	return cli_error(c, "%s%s%s", what ? what : "", what ? ": " : "", why);
}

int cli_fail_host(struct cli *c, const char *what, int err)
{
	char text[128];

	snprintf(text, sizeof(text), "%s", strerror(-err));
	text[0] = (char)tolower((unsigned char)text[0]);
	return cli_error(c, "%s: %s", what, text);
}

/* ---- connecting, cluster file ---- */

/* True: the file system is local:DIR, and DIR has none yet; a connection makes one. */
static bool makes_new(struct cli *c, char dir[CLI_PATH_MAX])
{
	char found[CLI_PATH_MAX], conf[CLI_PATH_MAX], err[512];

	if (conf_find(c->conf, found, sizeof(found), err, sizeof(err)) ||
	    strncmp(found, "local:", 6) != 0 || cli_join(conf, found + 6, "sheaf.conf"))
		return false;
	strcpy(dir, found + 6);
	return access(conf, F_OK) < 0;
}

int cli_connect(struct cli *c)
{
	char dir[CLI_PATH_MAX];
	bool is_new = makes_new(c, dir);
	int r = sheaf_connect(c->conf, &c->fs);
	const char *why;

	if (r == 0 && is_new)
		fprintf(stderr, "sheaf %s: made a new file system in %s\n", c->cmd->name, dir);

	if (r == 0) {
		c->n_conf = sheaf_server_count(c->fs);
		c->waits = cli_waits_start(c->fs, c->cmd->name);
		return CLI_OK;
	}
	c->fs = NULL;
	why = sheaf_why();
	return cli_error(c, "%s", why && why[0] ? why : sheaf_strerror(r));
}

/* The servers' map may have servers that the cluster file has not. */
static void tell_outdated(struct cli *c)
{
	int more = sheaf_server_count(c->fs) - c->n_conf;

	if (more > 0)
		fprintf(stderr,
			"sheaf %s: the cluster file is outdated: the servers' map has %d more "
			"server%s, which this command used; 'sheaf map --update' adds %s to the "
			"file\n",
			c->cmd->name, more, more == 1 ? "" : "s", more == 1 ? "it" : "them");
}

void cli_disconnect(struct cli *c)
{
	if (!c->fs)
		return;
	tell_outdated(c);
	cli_waits_end(c->waits);
	sheaf_disconnect(c->fs);
	c->waits = NULL;
	c->fs = NULL;
}

int cli_find_conf(struct cli *c, struct conf **out, char *err, size_t err_len)
{
	char path[CLI_PATH_MAX];
	int r = conf_find(c->conf, path, sizeof(path), err, err_len);

	if (r)
		return r;
	if (strncmp(path, "local:", 6) == 0) {
		snprintf(err, err_len,
			 "%s runs inside each command and has no servers of its own; to serve it: "
			 "sheaf --conf %s/sheaf.conf start",
			 path, path + 6);
		return -EINVAL;
	}
	return conf_load(path, out, err, err_len);
}

int cli_load_conf(struct cli *c, struct conf **out)
{
	char err[CLI_PATH_MAX + 512];

	if (cli_find_conf(c, out, err, sizeof(err)))
		return cli_error(c, "%s", err);
	return CLI_OK;
}

/* ---- help ---- */

static void help_all(const struct cli_command *const *commands, FILE *f)
{
	fputs("usage: sheaf [--conf FILE|local:DIR] COMMAND ...\n\n", f);
	for (; *commands; commands++)
		fprintf(f, "  %-10s %s\n", (*commands)->name, (*commands)->summary);
	fputs("\n'sheaf COMMAND --help' says more. The cluster file is found by --conf, $SHEAF_CONF,\n"
	      "./sheaf.conf, /etc/sheaf/sheaf.conf, in this order; local:DIR is a file system inside\n"
	      "the command itself, without servers.\n",
	      f);
}

static void help_option(const struct cli_option *o)
{
	char letter[8] = "    ", text[64];

	if (o->letter)
		snprintf(letter, sizeof(letter), "-%c%s", o->letter, o->name ? ", " : "");
	snprintf(text, sizeof(text), "%s%s%s%s%s", letter, o->name ? "--" : "",
		 o->name ? o->name : "", o->value && o->value[0] != '[' ? " " : "",
		 o->value ? o->value : "");
	printf("  %-24s %s\n", text, o->help);
}

static void help_one(const struct cli_command *m)
{
	static const struct cli_option common[] = {
		{ 0, "conf", "FILE", "the cluster file, or local:DIR" },
		{ 0, "help", NULL, "this text" },
	};

	printf("usage: sheaf %s%s%s\n%s\n\n", m->name, m->usage[0] ? " " : "", m->usage,
	       m->summary);
	for (size_t i = 0; i < CLI_MAX_OPTIONS && (m->options[i].letter || m->options[i].name); i++)
		help_option(&m->options[i]);
	for (size_t i = 0; i < ARRAY_LEN(common); i++)
		help_option(&common[i]);
	if (m->more)
		printf("\n%s", m->more);
	if (m->examples)
		printf("\nFor example:\n%s", m->examples);
	puts("\nExit status: 0 done, 1 failed (standard error says why), 2 wrong usage.");
}

/* ---- running a subcommand ---- */

static const struct cli_command *find_command(const struct cli_command *const *commands,
					      const char *name)
{
	while (*commands && strcmp((*commands)->name, name) != 0)
		commands++;
	return *commands;
}

static int check_count(struct cli *c)
{
	if (c->n_args < c->cmd->min_args)
		return cli_usage(c, "too few arguments: sheaf %s %s", c->cmd->name, c->cmd->usage);
	if (c->cmd->max_args >= 0 && c->n_args > c->cmd->max_args)
		return cli_usage(c, "'%s' is one argument too many", c->args[c->cmd->max_args]);
	for (int i = 0; i < c->n_args; i++) /* mostly an unset shell variable */
		if (!c->args[i][0])
			return cli_usage(c, "argument %d is empty", i + 1);
	if (c->conf && (!c->conf[0] || strcmp(c->conf, "local:") == 0))
		return cli_usage(c, "--conf '%s' names no file; give FILE or local:DIR", c->conf);
	return CLI_OK;
}

/* Verifies that the output was written. If the reader is gone, no message is printed. */
static int finish_output(struct cli *c, int status)
{
	int err = fflush(stdout) ? errno : 0;

	if (!err && !ferror(stdout))
		return status;
	if (!err) /* an earlier write failed, and errno has been overwritten since: write again */
		err = putchar('\n') == EOF || fflush(stdout) ? errno : EIO;
	if (err != EPIPE)
		cli_fail_host(c, "standard output", -err);
	return CLI_FAILED;
}

/* "-name" becomes "--name" where that is a long option of the command. */
static void double_dashes(const struct cli_command *m, int argc, char **argv)
{
	char *text;

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		for (size_t k = 0; k < CLI_MAX_OPTIONS && argv[i][0] == '-'; k++)
			if (m->options[k].name && strcmp(m->options[k].name, argv[i] + 1) == 0 &&
			    asprintf(&text, "-%s", argv[i]) > 0) {
				argv[i] = text; /* for the life of the process */
				break;
			}
}

static int run_command(const struct cli_command *m, int argc, char **argv, struct cli_parsed *p)
{
	struct cli c = { .cmd = m };
	char err[256];
	int status;

	if (m->single_dash)
		double_dashes(m, argc, argv);
	if (cli_parse(m->options, m->ends_at_argument, argc, argv, p, err, sizeof(err)))
		return cli_usage(&c, "%s", err);
	if (p->help || p->version) {
		if (p->help)
			help_one(m);
		else
			puts("sheaf " CLI_VERSION);
		return finish_output(&c, CLI_OK);
	}
	c.conf = p->conf;
	c.opt = p->opt;
	c.many = p->many;
	c.n_many = p->n_many;
	c.args = p->args;
	c.n_args = p->n_args;
	status = check_count(&c);
	if (!status) {
		status = m->run(&c);
		status = finish_output(&c, status);
	}
	cli_disconnect(&c);
	return status;
}

/* How many letters differ between two short words: inserted, missing, other or exchanged ones. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][WORD_MAX + 1], n = strlen(b);

	if (strlen(a) > WORD_MAX || n > WORD_MAX)
		return WORD_MAX;
	for (size_t k = 0; k <= n; k++)
		rows[0][k] = k;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t *row = rows[i % 3], *above = rows[(i - 1) % 3];

		row[0] = i;
		for (size_t k = 1; k <= n; k++) {
			row[k] = MIN(MIN(row[k - 1], above[k]) + 1,
				     above[k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				row[k] = MIN(row[k], rows[(i - 2) % 3][k - 2] + 1);
		}
	}
	return rows[strlen(a) % 3][n];
}

static int no_command(struct cli *c, const struct cli_command *const *commands, const char *name)
{
	const char *best = NULL;
	size_t limit = strlen(name) / 3 + 2;

	for (; *commands; commands++) {
		size_t d = distance(name, (*commands)->name);

		if (d >= limit)
			continue;
		limit = d;
		best = (*commands)->name;
	}
	if (best)
		return cli_usage(c, "there is no command '%s' (did you mean '%s'?)", name, best);
	return cli_usage(c, "there is no command '%s'", name);
}

/* sheaf, sheaf help, sheaf help COMMAND, sheaf --help */
static int run_help(const struct cli_command *const *commands, const struct cli_parsed *p)
{
	const struct cli_command *m = p->n_args > 1 ? find_command(commands, p->args[1]) : NULL;
	struct cli c = { 0 };

	if (p->n_args > 1 && !m)
		return no_command(&c, commands, p->args[1]);
	if (m)
		help_one(m);
	else
		help_all(commands, p->n_args || p->help ? stdout : stderr);
	return finish_output(&c, p->n_args || p->help ? CLI_OK : CLI_USAGE);
}

/* Opens closed standard descriptors, so that no socket gets their numbers. Writes to them fail. */
static void keep_standard_files(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			return;
}

int cli_main(const struct cli_command *const *commands, int argc, char **argv)
{
	static const struct cli_option none[CLI_MAX_OPTIONS];
	const struct cli_command *m;
	struct cli_parsed p = { 0 };
	struct cli c = { 0 };
	char err[256];
	int status;

	keep_standard_files();
	setlocale(LC_TIME, "");
	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_ERROR);
	if (cli_parse(none, true, argc, argv, &p, err, sizeof(err)))
		return cli_usage(&c, "%s", err);
	if (p.version || (p.n_args && strcmp(p.args[0], "version") == 0)) {
		puts("sheaf " CLI_VERSION);
		return finish_output(&c, CLI_OK);
	}
	if (p.n_args == 0 || strcmp(p.args[0], "help") == 0)
		return run_help(commands, &p);
	m = find_command(commands, p.args[0]);
	if (!m)
		return no_command(&c, commands, p.args[0]);
	status = run_command(m, p.n_args, p.args, &p);
	if (cli_signal) { /* cleanup is done: die by the signal */
		signal(cli_signal, SIG_DFL);
		raise(cli_signal);
	}
	return status;
}
