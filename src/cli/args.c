/* Arguments and paths of the command. Pure functions. */
#include <getopt.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

enum { VAL_CONF = 1000, VAL_HELP, VAL_VERSION, VAL_LONG };

#define N_GLOBAL 3
static const struct option global_options[N_GLOBAL] = {
	{ "conf", required_argument, NULL, VAL_CONF },
	{ "help", no_argument, NULL, VAL_HELP },
	{ "version", no_argument, NULL, VAL_VERSION },
};

static int takes(const struct cli_option *o)
{
	if (!o->value)
		return no_argument;
	return o->value[0] == '[' ? optional_argument : required_argument;
}

/* Builds getopt's tables; values are the letters, or VAL_LONG + index. */
static size_t make_tables(const struct cli_option *options, bool first_arg_ends, char *letters,
			  struct option *longs)
{
	size_t n_options = 0, n_longs = N_GLOBAL;
	bool has_h = false;

	memcpy(longs, global_options, sizeof(global_options));
	if (first_arg_ends)
		*letters++ = '+';
	*letters++ = ':';
	for (; n_options < CLI_MAX_OPTIONS; n_options++) {
		const struct cli_option *o = &options[n_options];

		if (!o->letter && !o->name)
			break;
		if (o->letter) {
			has_h |= o->letter == 'h';
			*letters++ = o->letter;
			for (int i = takes(o); i > 0; i--) /* getopt: 0 to 2 colons */
				*letters++ = ':';
		}
		if (o->name)
			longs[n_longs++] = (struct option){ o->name, takes(o), NULL,
							    VAL_LONG + (int)n_options };
	}
	*letters++ = 'V';
	if (!has_h)
		*letters++ = 'h';
	*letters = 0;
	longs[n_longs] = (struct option){ 0 };
	return n_options;
}

static int option_index(const struct cli_option *options, size_t n, int val)
{
	if (val >= VAL_LONG)
		return val - VAL_LONG;
	for (size_t i = 0; i < n; i++)
		if (options[i].letter == val)
			return (int)i;
	return -1;
}

/* The option that getopt rejected is argv[optind - 1], or a letter in it. */
static int complain(int what, char **argv, char *err, size_t err_len)
{
	char name[64];
	const char *text = argv[optind - 1];

	if (optopt && optopt < VAL_CONF)
		snprintf(name, sizeof(name), "-%c", optopt);
	else
		snprintf(name, sizeof(name), "%.*s", (int)MIN(strcspn(text, "="), sizeof(name) - 1),
			 text);
	if (what == ':')
		snprintf(err, err_len, "option '%s' needs a value", name);
	else if (optopt >= VAL_CONF)
		snprintf(err, err_len, "option '%s' takes no value", name);
	else
		snprintf(err, err_len, "unknown option '%s'", name);
	return -EINVAL;
}

static bool is_many(const struct cli_option *o)
{
	return o->value && strchr(o->value, '.');
}

static int keep_value(struct cli_parsed *out, char *err, size_t err_len)
{
	if (out->n_many == CLI_MAX_MANY) {
		snprintf(err, err_len, "an option is given more than %d times", CLI_MAX_MANY);
		return -EINVAL;
	}
	out->many[out->n_many++] = optarg;
	return 0;
}

int cli_parse(const struct cli_option *options, bool first_arg_ends, int argc, char **argv,
	      struct cli_parsed *out, char *err, size_t err_len)
{
	char letters[3 * CLI_MAX_OPTIONS + 5];
	struct option longs[CLI_MAX_OPTIONS + N_GLOBAL + 1];
	size_t n = make_tables(options, first_arg_ends, letters, longs);
	int val, i;

	optind = 0;
	opterr = 0;
	while ((val = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		if (val == '?' || val == ':')
			return complain(val, argv, err, err_len);
		i = option_index(options, n, val);
		if (val == VAL_CONF) {
			out->conf = optarg;
		} else if (val == VAL_HELP || (val == 'h' && i < 0)) {
			out->help = true;
		} else if (val == VAL_VERSION || (val == 'V' && i < 0)) {
			out->version = true;
		} else {
			out->opt[i] = optarg ? optarg : "";
			if (is_many(&options[i]) && keep_value(out, err, err_len))
				return -EINVAL;
		}
	}
	out->args = argv + optind;
	out->n_args = argc - optind;
	return 0;
}

/* One per two processors: with more, each commits fewer changes at once, and all are slower. */
uint32_t cli_metas(uint32_t servers)
{
	long half = sysconf(_SC_NPROCESSORS_ONLN) / 2;

	return half < 1 ? 1 : MIN((uint32_t)half, servers);
}

int cli_number(const char *s, uint64_t min, uint64_t max, uint64_t *out)
{
	unsigned long long v;
	char *end;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno || *end || v < min || v > max)
		return -EINVAL;
	*out = v;
	return 0;
}

/* ---- paths ---- */

int cli_inside_path(const char *arg, char out[CLI_PATH_MAX])
{
	size_t len = 0, n;

	if (strncmp(arg, "sheaf:", 6) == 0)
		arg += 6;
	for (;; arg += n) {
		arg += strspn(arg, "/");
		n = strcspn(arg, "/");
		if (n == 0)
			break;
		if (n == 1 && arg[0] == '.')
			continue;
		if (n == 2 && arg[0] == '.' && arg[1] == '.') {
			while (len && out[--len] != '/') {
				/* remove the last component */
			}
			continue;
		}
		if (len + 1 + n >= CLI_PATH_MAX)
			return -ENAMETOOLONG;
		out[len++] = '/';
		memcpy(out + len, arg, n);
		len += n;
	}
	if (!len)
		out[len++] = '/';
	out[len] = 0;
	return 0;
}

int cli_join(char out[CLI_PATH_MAX], const char *dir, const char *name)
{
	size_t n = strlen(dir);
	const char *slash = n && dir[n - 1] == '/' ? "" : "/";

	if (snprintf(out, CLI_PATH_MAX, "%s%s%s", dir, slash, name) >= CLI_PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

int cli_path_add(char path[CLI_PATH_MAX], const char *name)
{
	size_t n = strlen(path), len = strlen(name);
	bool slash = !n || path[n - 1] != '/';

	if (n + slash + len >= CLI_PATH_MAX)
		return -ENAMETOOLONG;
	if (slash)
		path[n++] = '/';
	memcpy(path + n, name, len + 1);
	return 0;
}

const char *cli_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool cli_beneath(const char *dir, const char *path)
{
	size_t n = strlen(dir);

	if (strcmp(dir, "/") == 0)
		return true;
	return strncmp(dir, path, n) == 0 && (path[n] == 0 || path[n] == '/');
}
