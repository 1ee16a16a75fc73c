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

/* st: NULL, or the attributes; without a mode if the entry was removed meanwhile */
static int add_entry(struct cli_names *l, const struct sheaf_dirent *e, const struct stat *st)
{
	int r;

	if (is_dots(e->name) || (st && !st->st_mode))
		return 0;
	r = cli_names_add(l, e->name, e->type);
	if (!r && st)
		r = names_stat(l, st);
	if (!r) {
		l->v[l->n - 1].ino = e->ino;
		l->v[l->n - 1].gen = e->gen;
	}
	return r;
}

#define PAGE 512 /* entries a request, as libsheaf reads them by path */

struct page {
	struct sheaf_dirent entry[PAGE];
	struct stat st[PAGE];
};

int cli_names_of(struct cli *c, struct sheaf_handle dir, bool with_stat, struct cli_names *out)
{
	struct page *p = malloc(sizeof(*p));
	uint64_t cookie = 0;
	int n = 0, r = p ? 0 : -ENOMEM;

	*out = (struct cli_names){ 0 };
	do {
		if (!r)
			n = with_stat ? sheaf_h_readdir_stat(c->fs, NULL, dir, cookie, p->entry,
							     p->st, PAGE) :
					sheaf_h_readdir(c->fs, NULL, dir, cookie, p->entry, PAGE);
		if (!r && n < 0)
			r = n;
		for (int i = 0; i < n && !r; i++)
			r = add_entry(out, &p->entry[i], with_stat ? &p->st[i] : NULL);
		if (n > 0)
			cookie = p->entry[n - 1].cookie;
	} while (!r && n > 0);
	free(p);
	cli_names_sort(out);
	return r;
}

int cli_names_inside(struct cli *c, const char *path, bool with_stat, struct cli_names *out)
{
	struct sheaf_handle dir = { .gen = SHEAF_GEN };
	struct stat st;
	int r = sheaf_stat(c->fs, path, &st);

	*out = (struct cli_names){ 0 };
	if (r || !S_ISDIR(st.st_mode))
		return r ? r : -ENOTDIR;
	dir.ino = st.st_ino;
	return cli_names_of(c, dir, with_stat, out);
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
	cli_file_fn *fn;
	void *data;
};

static int each_below(struct cli *c, char path[CLI_PATH_MAX], struct sheaf_handle dir,
		      const struct each *e);

/* A file in the directory `dir`, and all beneath it. */
static int each_in(struct cli *c, char path[CLI_PATH_MAX], struct sheaf_handle dir,
		   const char *name, const struct each *e)
{
	struct sheaf_handle h;
	struct stat st;
	int status, r = sheaf_h_lookup(c->fs, NULL, dir, name, &h, &st);

	if (r == -ENOENT || r == -ESTALE) /* removed meanwhile */
		return CLI_OK;
	if (r)
		return cli_fail(c, path, r);
	status = e->fn(c, path, h, &st, e->data);
	return S_ISDIR(st.st_mode) ? status | each_below(c, path, h, e) : status;
}

static int each_below(struct cli *c, char path[CLI_PATH_MAX], struct sheaf_handle dir,
		      const struct each *e)
{
	size_t len = strlen(path);
	struct cli_names names;
	int status = CLI_OK, r = cli_names_of(c, dir, false, &names);

	if (r && r != -ENOENT && r != -ESTALE)
		status = cli_fail(c, path, r);
	for (size_t i = 0; !r && i < names.n && !c->lost && !cli_signal; i++) {
		if (cli_path_add(path, names.v[i].name))
			status |= cli_fail(c, path, -ENAMETOOLONG);
		else
			status |= each_in(c, path, dir, names.v[i].name, e);
		path[len] = 0;
	}
	cli_names_free(&names);
	return status;
}

static int each_file(struct cli *c, const char *arg, char *path, void *data)
{
	struct sheaf_handle h = { .gen = SHEAF_GEN };
	struct each *e = data;
	struct stat st;
	int status, r = e->recursive ? sheaf_lstat(c->fs, path, &st) : sheaf_stat(c->fs, path, &st);

	if (!e->catches) /* not earlier: a signal ends the attempt to connect */
		cli_catch_signals();
	e->catches = true;
	if (r)
		return cli_fail(c, arg, r);
	h.ino = st.st_ino;
	status = e->fn(c, path, h, &st, e->data);
	if (e->recursive && S_ISDIR(st.st_mode))
		status |= each_below(c, path, h, e);
	return status;
}

int cli_each_file(struct cli *c, int first, bool recursive, cli_file_fn *fn, void *data)
{
	struct each e = { .recursive = recursive, .fn = fn, .data = data };

	return cli_each_arg(c, first, each_file, &e);
}
