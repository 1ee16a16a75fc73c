/* sheaf find: lists files by name, type, size and time, by the servers that have their data, which
 * may be down, or files that lost data (find_damaged.c).
 *
 * Several threads walk the tree; only metadata servers are asked. A test of a name or a type uses
 * what the directory tells, others ask for the attributes. Threads: those of tree_walk.c;
 * results are printed or collected under a lock. */
#include <fnmatch.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <time.h>

#include "check/check.h"
#include "commands/commands.h"
#include "sheaf_handle.h"

enum {
	OPT_ON,
	OPT_DAMAGED,
	OPT_JSON,
	OPT_JOBS,
	OPT_NAME,
	OPT_TYPE,
	OPT_SIZE,
	OPT_MTIME,
	OPT_NEWER
};

/* "+N", "N" or "-N" of -size and -mtime. */
struct bound {
	bool is_set;
	char sign; /* '+', '-' or 0 */
	uint64_t n;
	uint64_t unit; /* bytes of -size, rounded up to; ns of -mtime, rounded down to */
};

struct search {
	struct tree_walk walk;
	pthread_mutex_t lock; /* guards the fields below */
	struct json_object *files; /* NULL: text output */
	struct sheaf_server *servers;
	int n_servers;
	bool on[SHEAF_MAX_SERVERS];
	unsigned hidden[SHEAF_MAX_SERVERS]; /* names skipped, by metadata server that is down */
	const char *name; /* pattern of -name, or NULL */
	uint32_t type; /* S_IF..., or 0 */
	struct bound size, mtime;
	struct timespec newer, now;
	bool has_newer;
};

/* ---- tests of names and attributes ---- */

static bool is_within(const struct bound *b, uint64_t v)
{
	return !b->is_set || (b->sign == '+' ? v > b->n : b->sign == '-' ? v < b->n : v == b->n);
}

static bool name_fits(const struct search *f, const char *path, uint32_t type)
{
	const char *name = strcmp(path, "/") == 0 ? path : cli_basename(path);

	return (!f->type || f->type == (type & S_IFMT)) &&
	       (!f->name || fnmatch(f->name, name, 0) == 0);
}

static bool needs_stat(const struct search *f)
{
	return f->size.is_set || f->mtime.is_set || f->has_newer;
}

static bool is_after(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

static bool stat_fits(const struct search *f, const struct stat *st)
{
	int64_t age = f->now.tv_sec - st->st_mtim.tv_sec;

	return is_within(&f->size, ((uint64_t)st->st_size + f->size.unit - 1) / f->size.unit) &&
	       is_within(&f->mtime, (uint64_t)MAX(age, 0) / (24 * 3600)) &&
	       (!f->has_newer || is_after(&st->st_mtim, &f->newer));
}

/* +N, N or -N, and after it one of the letters of `units`. */
static int parse_bound(const char *text, const char *letters, const uint64_t *units,
		       struct bound *out)
{
	char number[24];
	size_t n;
	const char *unit;

	*out = (struct bound){ .is_set = true, .unit = units[0] };
	if (*text == '+' || *text == '-')
		out->sign = *text++;
	n = strspn(text, "0123456789");
	if (!n || n >= sizeof(number))
		return -EINVAL;
	memcpy(number, text, n);
	number[n] = 0;
	unit = text[n] ? strchr(letters, text[n]) : letters;
	if (!unit || (text[n] && text[n + 1]))
		return -EINVAL;
	out->unit = units[unit - letters];
	return cli_number(number, 0, UINT64_MAX / 2, &out->n);
}

static int parse_type(const char *text, uint32_t *out)
{
	static const struct {
		char letter;
		uint32_t type;
	} types[] = { { 'f', S_IFREG },	 { 'd', S_IFDIR }, { 'l', S_IFLNK }, { 'p', S_IFIFO },
		      { 's', S_IFSOCK }, { 'b', S_IFBLK }, { 'c', S_IFCHR } };

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (text[0] == types[i].letter && !text[1]) {
			*out = types[i].type;
			return 0;
		}
	return -EINVAL;
}

static int parse_tests(struct search *f, struct cli *c)
{
	static const uint64_t sizes[] = { 512, 1, KIB, MIB, GIB }, days[] = { 1 };

	f->name = c->opt[OPT_NAME];
	f->size.unit = 1;
	clock_gettime(CLOCK_REALTIME, &f->now);
	if (c->opt[OPT_TYPE] && parse_type(c->opt[OPT_TYPE], &f->type))
		return cli_usage(c, "-type %s is none of f, d, l, p, s, b, c", c->opt[OPT_TYPE]);
	if (c->opt[OPT_SIZE] && parse_bound(c->opt[OPT_SIZE], "bckMG", sizes, &f->size))
		return cli_usage(c, "-size %s is not N, +N or -N with one of c, k, M, G",
				 c->opt[OPT_SIZE]);
	if (c->opt[OPT_MTIME] && parse_bound(c->opt[OPT_MTIME], "", days, &f->mtime))
		return cli_usage(c, "-mtime %s is not a number of days: N, +N or -N",
				 c->opt[OPT_MTIME]);
	return CLI_OK;
}

static int take_newer(struct search *f, struct cli *c)
{
	char path[CLI_PATH_MAX];
	struct stat st;
	int r;

	if (!c->opt[OPT_NEWER])
		return CLI_OK;
	r = cli_inside_path(c->opt[OPT_NEWER], path);
	if (!r)
		r = sheaf_stat(c->fs, path, &st);
	if (r)
		return cli_fail(c, c->opt[OPT_NEWER], r);
	f->newer = st.st_mtim;
	f->has_newer = true;
	return CLI_OK;
}

/* ---- the walk ---- */

/* Has the file a byte in a stripe on one of these servers? A growing file may have. */
static bool is_on(const struct search *f, const struct sheaf_layout_info *l)
{
	for (uint32_t i = 0; i < l->width; i++) {
		uint64_t first = (uint64_t)((i + l->width - l->start) % l->width) * l->stripe_unit;

		if (l->servers[i] < SHEAF_MAX_SERVERS && f->on[l->servers[i]] &&
		    (l->growing || l->bytes > first))
			return true;
	}
	return false;
}

static struct json_object *file_json(const struct search *f, const char *path,
				     const struct sheaf_layout_info *l)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	char id[16];

	for (uint32_t i = 0; i < l->width; i++) {
		uint32_t s = l->servers[(l->start + i) % l->width];

		snprintf(id, sizeof(id), "%u", s);
		json_object_array_add(list, json_object_new_string((int)s < f->n_servers ?
									   f->servers[s].name :
									   id));
	}
	json_object_object_add(o, "path", cli_json_name(path));
	cli_json_uint(o, "size", l->bytes);
	cli_json_bool(o, "growing", l->growing);
	cli_json_int(o, "stripe_unit", l->stripe_unit);
	json_object_object_add(o, "servers", list);
	return o;
}

/* Is the inode's metadata server up? If not, the name is counted and skipped without waiting. */
static bool is_kept(struct search *f, uint64_t ino)
{
	int keeper = sheaf_keeper(f->walk.c->fs, ino);

	if (keeper >= f->n_servers || f->servers[keeper].up)
		return true;
	pthread_mutex_lock(&f->lock);
	f->hidden[keeper]++;
	pthread_mutex_unlock(&f->lock);
	return false;
}

/* Prints a name if it passes all tests. */
static int look(struct tree_walk *w, const char *path, struct sheaf_handle h, uint32_t type)
{
	struct search *f = container_of(w, struct search, walk);
	struct sheaf_layout_info l = { .size = sizeof(l) };
	bool by_server = w->c->n_many > 0, fits;
	struct stat st = { 0 };
	int r = 0;

	if (!name_fits(f, path, type) || (by_server && !S_ISREG(type)))
		return CLI_OK;
	if (needs_stat(f) || (f->files && !by_server))
		r = sheaf_h_getattr(w->c->fs, NULL, h, &st);
	fits = !r && (!needs_stat(f) || stat_fits(f, &st));
	if (fits && by_server)
		r = sheaf_h_layout(w->c->fs, NULL, h, &l);
	if (r == -ENOENT || r == -ESTALE) /* removed meanwhile */
		return CLI_OK;
	if (r)
		return tree_fail(w, path, false, r);
	if (!fits || (by_server && !is_on(f, &l)))
		return CLI_OK;
	pthread_mutex_lock(&f->lock);
	if (f->files) {
		json_object_array_add(f->files, by_server ? file_json(f, path, &l) :
							    cli_stat_json(path, &st, ""));
	} else {
		cli_put_name(stdout, path);
		putchar('\n');
	}
	pthread_mutex_unlock(&f->lock);
	return CLI_OK;
}

static int look_arg(struct tree_walk *w, struct cli_dir *top, const char *arg)
{
	struct sheaf_handle h;
	char path[CLI_PATH_MAX];
	struct stat st;
	int r = cli_inside_path(arg, path), status;

	if (!r)
		r = sheaf_h_lookup(w->c->fs, NULL, sheaf_root(w->c->fs), path, &h, &st);
	if (r)
		return tree_fail(w, arg, false, r);
	status = look(w, path, h, st.st_mode);
	if (S_ISLNK(st.st_mode) && sheaf_stat(w->c->fs, path, &st) == 0)
		h = (struct sheaf_handle){ st.st_ino, SHEAF_GEN };
	return S_ISDIR(st.st_mode) ? status | tree_enter_inside(w, top, path, h) : status;
}

static int child(struct tree_walk *w, unsigned worker, struct cli_dir *d, const struct cli_name *n)
{
	char path[CLI_PATH_MAX];
	int r;

	(void)worker;
	if (!d->parent)
		return look_arg(w, d, n->name);
	r = cli_join(path, d->path, n->name);
	if (r)
		return tree_fail(w, d->path, false, r);
	if (w->c->n_many && !S_ISDIR(n->type) && !S_ISREG(n->type))
		return CLI_OK;
	if (!is_kept(container_of(w, struct search, walk), n->ino))
		return CLI_FAILED;
	r = look(w, path, (struct sheaf_handle){ n->ino, n->gen }, n->type);
	return S_ISDIR(n->type) ? r | tree_enter_name(w, d, path, n->name) : r;
}

/* Selects the servers by name or number. */
static int choose(struct search *f, struct cli *c)
{
	int n = sheaf_map(c->fs, 5 * CLI_STATUS_MS, f->servers, SHEAF_MAX_SERVERS);

	if (n < 0)
		return cli_error(c, "%s", sheaf_why());
	f->n_servers = n;
	for (int i = 0; i < c->n_many; i++) {
		uint64_t id = UINT64_MAX;
		bool found = cli_number(c->many[i], 0, (uint64_t)n - 1, &id) == 0;

		for (int k = 0; k < n && !found; k++)
			if (strcmp(f->servers[k].name, c->many[i]) == 0) {
				id = (uint64_t)k;
				found = true;
			}
		if (!found)
			return cli_error(c, "there is no server '%s'; 'sheaf status' lists them",
					 c->many[i]);
		f->on[id] = true;
	}
	return CLI_OK;
}

static void print_json(struct search *f)
{
	struct json_object *o = json_object_new_object(), *on = json_object_new_array();

	for (int i = 0; i < f->n_servers; i++)
		if (f->on[i])
			json_object_array_add(on, json_object_new_string(f->servers[i].name));
	json_object_object_add(o, "on", on);
	json_object_object_add(o, "files", f->files);
	cli_json_print(o, JSON_C_TO_STRING_PRETTY);
}

static int walk(struct search *f, struct cli *c)
{
	static char root[] = "/", *whole[] = { root };
	struct cli_dir *top =
		tree_root(c, sizeof(*top), c->n_args ? c->args : whole, c->n_args ? c->n_args : 1);
	int status;

	if (!top)
		return CLI_FAILED;
	if (c->opt[OPT_JSON])
		f->files = json_object_new_array();
	cli_catch_signals();
	status = tree_run(&f->walk, top);
	if (f->files)
		print_json(f);
	for (int i = 0; i < f->n_servers; i++)
		if (f->hidden[i])
			cli_error(
				c,
				"%s (%s) does not answer: %u of the names found are kept by it, and it alone "
				"knows where those are and what is beneath",
				f->servers[i].name, f->servers[i].address, f->hidden[i]);
	return status;
}

static int run_find(struct cli *c)
{
	struct cli_progress quiet = { 0 };
	struct search f = { .walk = { .c = c, .progress = &quiet, .child = child } };
	int status;

	if (c->opt[OPT_DAMAGED] && c->n_many)
		return cli_usage(c, "--on and --damaged exclude each other");
	if (c->opt[OPT_DAMAGED])
		return check_find_damaged(c, c->opt[OPT_JSON]);
	if (parse_tests(&f, c))
		return CLI_USAGE;
	if (tree_set_jobs(&f.walk, c->opt[OPT_JOBS]))
		return CLI_USAGE;
	if (cli_connect(c))
		return CLI_FAILED;
	f.servers = calloc(SHEAF_MAX_SERVERS, sizeof(*f.servers));
	pthread_mutex_init(&f.lock, NULL);
	status = f.servers ? choose(&f, c) : cli_error(c, "out of memory");
	if (!status)
		status = take_newer(&f, c);
	if (!status)
		status = walk(&f, c);
	pthread_mutex_destroy(&f.lock);
	free(f.servers);
	return status;
}

const struct cli_command cmd_find = {
	.name = "find",
	.usage = "[-name PATTERN] [-type T] [-size N] [-mtime N] [-newer FILE] [--on SERVER]... | "
		 "--damaged [--json] [--jobs N] [PATH...]",
	.summary = "list files by name, size, time and server, or those that have lost data",
	.single_dash = true,
	.run = run_find,
	.max_args = -1,
	.options = { { 0, "on", "SERVER...", "its name or number; may be given several times" },
		     { 0, "damaged", NULL, "files that have lost data, on which server, how much" },
		     { 0, "json", NULL,
		       "for programs: {\"on\": [...], \"files\": [{\"path\", ...}]}, or {\"damaged\": [...]}" },
		     { 'j', "jobs", "N", "how many files at a time, 1 to 64; 16" },
		     { 0, "name", "PATTERN", "the last component matches, as in the shell" },
		     { 0, "type", "T", "f file, d directory, l symbolic link, p, s, b, c" },
		     { 0, "size", "N",
		       "N blocks of 512 bytes, or with c bytes, k, M, G; +N more, -N less" },
		     { 0, "mtime", "N", "changed N days ago; +N longer ago, -N later" },
		     { 0, "newer", "FILE", "changed after this file inside" } },
	.more = "A name is listed if it passes all tests, as with find(1); one dash is enough. Order is not sorted.\n"
		"--on asks the metadata servers only. Names of a metadata server that is down cannot be listed; their\n"
		"number is printed at the end. --damaged compares all objects with what was recorded of\n"
		"them, so it needs root and all metadata servers. It prints a line for each object and name, unsorted.\n",
	.examples =
		"  sheaf find -name '*.tmp' -mtime +7 /results\n"
		"  sheaf find --on server2\n"
		"  sheaf find --on server2 --on server3 --json /results | jq -r '.files[].path'\n",
};
