/* sheaf find: lists files that have data on given servers, which may be down, or files that lost
 * data (find_damaged.c).
 *
 * Several threads walk the tree; only metadata servers are asked. Threads: those of tree_walk.c;
 * results are printed or collected under a lock. */
#include <json-c/json.h>
#include <stdlib.h>

#include "check/check.h"
#include "commands/commands.h"
#include "sheaf_handle.h"

enum { OPT_ON, OPT_DAMAGED, OPT_JSON, OPT_JOBS };

struct search {
	struct tree_walk walk;
	pthread_mutex_t lock; /* guards the fields below */
	struct json_object *files; /* NULL: text output */
	struct sheaf_server *servers;
	int n_servers;
	bool on[SHEAF_MAX_SERVERS];
	unsigned hidden[SHEAF_MAX_SERVERS]; /* names skipped, by metadata server that is down */
};

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

static int look(struct tree_walk *w, const char *path, struct sheaf_handle h)
{
	struct search *f = container_of(w, struct search, walk);
	struct sheaf_layout_info l = { .size = sizeof(l) };
	int r = sheaf_h_layout(w->c->fs, NULL, h, &l);

	if (r == -ENOENT || r == -ESTALE) /* removed meanwhile */
		return CLI_OK;
	if (r)
		return tree_fail(w, path, false, r);
	if (!is_on(f, &l))
		return CLI_OK;
	pthread_mutex_lock(&f->lock);
	if (f->files) {
		json_object_array_add(f->files, file_json(f, path, &l));
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
	int r = cli_inside_path(arg, path);

	if (!r)
		r = cli_is_dir(w->c, path);
	if (r > 0)
		return tree_enter_inside(w, top, path);
	if (!r)
		r = sheaf_h_lookup(w->c->fs, NULL, sheaf_root(w->c->fs), path, &h, NULL);
	return r ? tree_fail(w, arg, false, r) : look(w, path, h);
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
	if (!S_ISDIR(n->type) && !S_ISREG(n->type))
		return CLI_OK;
	if (!is_kept(container_of(w, struct search, walk), n->ino))
		return CLI_FAILED;
	if (S_ISDIR(n->type))
		return tree_enter_inside(w, d, path);
	return look(w, path, (struct sheaf_handle){ n->ino, n->gen });
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
	if (!c->n_many)
		return cli_usage(c, "--on SERVER or --damaged is missing");
	if (tree_set_jobs(&f.walk, c->opt[OPT_JOBS]))
		return CLI_USAGE;
	if (cli_connect(c))
		return CLI_FAILED;
	f.servers = calloc(SHEAF_MAX_SERVERS, sizeof(*f.servers));
	pthread_mutex_init(&f.lock, NULL);
	status = f.servers ? choose(&f, c) : cli_error(c, "out of memory");
	if (!status)
		status = walk(&f, c);
	pthread_mutex_destroy(&f.lock);
	free(f.servers);
	return status;
}

const struct cli_command cmd_find = {
	.name = "find",
	.usage = "--on SERVER [--on SERVER]... | --damaged [--json] [--jobs N] [PATH...]",
	.summary = "list files that have data on a server, or that have lost data",
	.run = run_find,
	.max_args = -1,
	.options = { { 0, "on", "SERVER...", "its name or number; may be given several times" },
		     { 0, "damaged", NULL, "files that have lost data, on which server, how much" },
		     { 0, "json", NULL,
		       "for programs: {\"on\": [...], \"files\": [{\"path\", ...}]}, or {\"damaged\": [...]}" },
		     { 'j', "jobs", "N", "how many files at a time, 1 to 64; 16" } },
	.more = "--on asks the metadata servers only. Names of a metadata server that is down cannot be listed; their\n"
		"number is printed at the end. --damaged compares all objects with what was recorded of\n"
		"them, so it needs root and all metadata servers. It prints a line for each object and name, unsorted.\n",
	.examples =
		"  sheaf find --on server2\n"
		"  sheaf find --on server2 --on server3 --json /results | jq -r '.files[].path'\n",
};
