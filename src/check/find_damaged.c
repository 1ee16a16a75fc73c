/* sheaf find --damaged: lists the paths of files that have lost data, as `sheaf check` finds them.
 *
 * Inodes and objects of the whole file system are compared (check_impl.h), since objects do not
 * know their paths; PATHs select what is printed. A data server that is down is left out and
 * reported.
 * Threads: one. */
#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#include "check/check.h"
#include "check/check_impl.h"

struct output {
	char (*under)[CLI_PATH_MAX]; /* the n PATHs; none: everything */
	int n;
	struct json_object *files; /* NULL: text output */
};

static bool is_under(const struct output *t, const char *path)
{
	for (int i = 0; i < t->n; i++)
		if (cli_beneath(t->under[i], path))
			return true;
	return t->n == 0;
}

static struct json_object *file_json(const struct check *k, const struct finding *f,
				     const char *path)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "path", path[0] ? cli_json_name(path) : NULL);
	cli_json_uint(o, "inode", f->ino);
	cli_json_text(o, "server", k->servers[f->server].name);
	cli_json_int(o, "object", f->index);
	cli_json_uint(o, "bytes", f->bytes);
	return o;
}

static void print_file(const struct check *k, const struct finding *f, const char *path,
		       struct output *t)
{
	if (t->files) {
		json_object_array_add(t->files, file_json(k, f, path));
		return;
	}
	if (path[0])
		cli_put_name(stdout, path);
	else
		printf("(inode %llu)", (unsigned long long)f->ino);
	printf("  %s  %llu bytes lost\n", k->servers[f->server].name, (unsigned long long)f->bytes);
}

/* Prints each of the file's names. */
static int print_names(struct check *k, const struct finding *f, struct output *t)
{
	char path[CLI_PATH_MAX] = "";
	int r = 0;

	if (!f->names && !t->n)
		print_file(k, f, path, t);
	for (const struct note *n = f->names; n && !r; n = n->next) {
		r = check_path_of(k, n, path);
		if (!r && is_under(t, path))
			print_file(k, f, path, t);
	}
	return r;
}

static int search(struct check *k, struct output *t)
{
	int r = check_round(k);

	for (struct finding *f = k->findings; f && !r; f = f->next)
		r = print_names(k, f, t);
	if (!r && (k->busy || k->skipped))
		cli_error(k->c, "%llu files changed all the time or were too many: search again",
			  (unsigned long long)(k->busy + k->skipped));
	check_pass_free(k);
	return r;
}

static int print_end(struct check *k, struct output *t)
{
	int status = k->busy || k->skipped ? CLI_FAILED : CLI_OK;

	if (t->files) {
		struct json_object *o = json_object_new_object();

		json_object_object_add(o, "damaged", t->files);
		cli_json_print(o, JSON_C_TO_STRING_PRETTY);
		t->files = NULL;
	}
	for (int i = 0; i < k->n_servers; i++)
		if (k->down[i])
			status = cli_error(k->c,
					   "%s (%s) does not answer: whether its data are lost is "
					   "not known; 'sheaf find --on %s' lists its files",
					   k->servers[i].name, k->servers[i].address,
					   k->servers[i].name);
	return status;
}

int check_find_damaged(struct cli *c, bool json)
{
	struct check k = { .only_damage = true, .progress.draw = !json && isatty(STDERR_FILENO) };
	struct output t = { .n = c->n_args };
	int status = check_open(&k, c), r;

	t.under = calloc((size_t)t.n + 1, sizeof(*t.under));
	if (!status && !t.under)
		status = cli_error(c, "out of memory");
	for (int i = 0; i < t.n && !status; i++) {
		r = cli_inside_path(c->args[i], t.under[i]);
		if (r)
			status = cli_fail(c, c->args[i], r);
	}
	if (json && !status)
		t.files = json_object_new_array();
	if (!status)
		status = search(&k, &t) ? CLI_FAILED : print_end(&k, &t);
	json_object_put(t.files);
	free(t.under);
	check_close(&k);
	return status;
}
