/* Directory listings, inside and on the host, complete and sorted. */
#include <dirent.h>
#include <stdlib.h>

#include "cli/cli.h"

int cli_names_add(struct cli_names *l, const char *name, uint32_t type)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct cli_name *v = realloc(l->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n] = (struct cli_name){ .name = strdup(name), .type = type };
	if (!l->v[l->n].name)
		return -ENOMEM;
	l->n++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct cli_name *)a)->name, ((const struct cli_name *)b)->name);
}

void cli_names_sort(struct cli_names *l)
{
	if (l->n)
		qsort(l->v, l->n, sizeof(*l->v), by_name);
}

const char *cli_names_twice(struct cli_names *l)
{
	cli_names_sort(l);
	for (size_t i = 1; i < l->n; i++)
		if (strcmp(l->v[i - 1].name, l->v[i].name) == 0)
			return l->v[i].name;
	return NULL;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int names_stat(struct cli_names *l, const struct stat *st)
{
	struct cli_name *last = &l->v[l->n - 1];

	last->st = malloc(sizeof(*st));
	if (!last->st)
		return -ENOMEM;
	*last->st = *st;
	return 0;
}

int cli_names_inside(struct cli *c, const char *path, bool with_stat, struct cli_names *out)
{
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	struct stat st;
	int r = sheaf_opendir(c->fs, path, &d);

	*out = (struct cli_names){ 0 };
	if (r)
		return r;
	while ((r = with_stat ? sheaf_readdir_stat(d, &e, &st) : sheaf_readdir(d, &e)) > 0) {
		if (is_dots(e.name) || (with_stat && !st.st_mode))
			continue;
		r = cli_names_add(out, e.name, e.type);
		if (!r && with_stat)
			r = names_stat(out, &st);
		if (r)
			break;
		out->v[out->n - 1].ino = e.ino;
		out->v[out->n - 1].gen = e.gen;
	}
	sheaf_closedir(d);
	cli_names_sort(out);
	return r;
}

int cli_names_host(const char *path, struct cli_names *out)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int r = 0;

	*out = (struct cli_names){ 0 };
	if (!d)
		return -errno;
	while (!r && (errno = 0, e = readdir(d)))
		if (!is_dots(e->d_name))
			r = cli_names_add(out, e->d_name, DTTOIF(e->d_type));
	if (!r)
		r = -errno;
	closedir(d);
	cli_names_sort(out);
	return r;
}

void cli_names_free(struct cli_names *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].name);
		free(l->v[i].st);
	}
	free(l->v);
	*l = (struct cli_names){ 0 };
}

int cli_is_dir(struct cli *c, const char *path)
{
	struct stat st;
	int r = sheaf_stat(c->fs, path, &st);

	if (r == -ENOENT)
		return 0;
	return r ? r : S_ISDIR(st.st_mode);
}

int cli_read_link(struct cli *c, const char *path, char out[CLI_PATH_MAX])
{
	ssize_t n = sheaf_readlink(c->fs, path, out, CLI_PATH_MAX - 1);

	if (n < 0)
		return (int)n;
	out[n] = 0;
	return 0;
}

/* ---- arguments and trees ---- */

int cli_each_arg(struct cli *c, int first,
		 int (*fn)(struct cli *c, const char *arg, char *path, void *data), void *data)
{
	char path[CLI_PATH_MAX];
	int status = cli_connect(c), r;

	for (int i = first; i < c->n_args && c->fs && !c->lost && !cli_signal; i++) {
		r = cli_inside_path(c->args[i], path);
		status |= r ? cli_fail(c, c->args[i], r) : fn(c, c->args[i], path, data);
	}
	return status;
}

struct each {
	bool recursive, catches;
	int (*fn)(struct cli *c, const char *path, const struct stat *st, void *data);
	void *data;
};

static int each_below(struct cli *c, const char *path, const struct each *e)
{
	char child[CLI_PATH_MAX];
	struct cli_names names;
	struct stat st;
	int status = CLI_OK, r = cli_names_inside(c, path, false, &names);

	if (r)
		status = cli_fail(c, path, r);
	for (size_t i = 0; !r && i < names.n && !c->lost && !cli_signal; i++) {
		int r2 = cli_join(child, path, names.v[i].name);

		if (!r2)
			r2 = sheaf_lstat(c->fs, child, &st);
		if (r2 == -ENOENT) /* removed meanwhile */
			continue;
		status |= r2 ? cli_fail(c, child, r2) : e->fn(c, child, &st, e->data);
		if (!r2 && S_ISDIR(st.st_mode))
			status |= each_below(c, child, e);
	}
	cli_names_free(&names);
	return status;
}

static int each_file(struct cli *c, const char *arg, char *path, void *data)
{
	struct each *e = data;
	struct stat st;
	int status, r = e->recursive ? sheaf_lstat(c->fs, path, &st) : sheaf_stat(c->fs, path, &st);

	if (!e->catches) /* not earlier: a signal ends the attempt to connect */
		cli_catch_signals();
	e->catches = true;
	if (r)
		return cli_fail(c, arg, r);
	status = e->fn(c, path, &st, e->data);
	if (e->recursive && S_ISDIR(st.st_mode))
		status |= each_below(c, path, e);
	return status;
}

int cli_each_file(struct cli *c, int first, bool recursive,
		  int (*fn)(struct cli *c, const char *path, const struct stat *st, void *data),
		  void *data)
{
	struct each e = { .recursive = recursive, .fn = fn, .data = data };

	return cli_each_arg(c, first, each_file, &e);
}
