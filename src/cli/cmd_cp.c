/* sheaf cp: files and trees into, out of and within the file system.
 *
 * A file arrives under a temporary name beside its final one and is renamed when it is complete and has
 * its mode: whoever looks sees the old file or the new one, and a copy that was interrupted can simply be
 * repeated. Signals remove the temporary file. Errors: told one by one, the rest is copied. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/commands.h"

enum { OPT_RECURSIVE };

#define LINKS_MAX 40 /* in a row, as the servers have it */

struct place {
	bool inside;
	char path[CLI_PATH_MAX];
	char shown[CLI_PATH_MAX + 8]; /* for messages */
};

struct job {
	struct cli *c;
	struct cli_copier *copier;
	unsigned n_temps;
	bool draw; /* progress */
};

/* ---- places: the same few calls inside and outside ---- */

static bool is_inside(const char *arg)
{
	return strncmp(arg, "sheaf:", 6) == 0;
}

static void place_name(struct place *p)
{
	snprintf(p->shown, sizeof(p->shown), "%s%s", p->inside ? "sheaf:" : "", p->path);
}

static int place_parse(struct place *p, const char *arg)
{
	size_t n = strlen(arg);
	int r = 0;

	p->inside = is_inside(arg);
	if (p->inside) {
		r = cli_inside_path(arg, p->path);
	} else {
		while (n > 1 && arg[n - 1] == '/')
			n--;
		if (n >= CLI_PATH_MAX)
			return -ENAMETOOLONG;
		memcpy(p->path, arg, n);
		p->path[n] = 0;
	}
	place_name(p);
	return r;
}

static int place_child(struct place *out, const struct place *dir, const char *name)
{
	int r = cli_join(out->path, dir->path, name);

	out->inside = dir->inside;
	if (!r)
		place_name(out);
	return r;
}

static int place_fail(struct job *j, const struct place *p, int err)
{
	if (err == -EINTR && cli_signal)
		return cli_error(j->c, "%s: interrupted", p->shown);
	return p->inside ? cli_fail(j->c, p->shown, err) : cli_fail_host(j->c, p->shown, err);
}

static int place_stat(struct job *j, const struct place *p, struct stat *st)
{
	if (p->inside)
		return sheaf_stat(j->c->fs, p->path, st);
	return stat(p->path, st) < 0 ? -errno : 0;
}

static int place_lstat(struct job *j, const struct place *p, struct stat *st)
{
	if (p->inside)
		return sheaf_lstat(j->c->fs, p->path, st);
	return lstat(p->path, st) < 0 ? -errno : 0;
}

static int place_readlink(struct job *j, const struct place *p, char out[CLI_PATH_MAX])
{
	ssize_t n;

	if (p->inside)
		return cli_read_link(j->c, p->path, out);
	n = readlink(p->path, out, CLI_PATH_MAX - 1);
	if (n < 0)
		return -errno;
	out[n] = 0;
	return 0;
}

static int place_symlink(struct job *j, const char *target, const struct place *p)
{
	if (p->inside)
		return sheaf_symlink(j->c->fs, target, p->path);
	return symlink(target, p->path) < 0 ? -errno : 0;
}

static int place_mkdir(struct job *j, const struct place *p, mode_t mode)
{
	if (p->inside)
		return sheaf_mkdir(j->c->fs, p->path, mode);
	return mkdir(p->path, mode) < 0 ? -errno : 0;
}

static int place_chmod(struct job *j, const struct place *p, mode_t mode)
{
	if (p->inside)
		return sheaf_chmod(j->c->fs, p->path, mode);
	return chmod(p->path, mode) < 0 ? -errno : 0;
}

static int place_rename(struct job *j, const struct place *from, const struct place *to)
{
	if (to->inside)
		return sheaf_rename(j->c->fs, from->path, to->path);
	return rename(from->path, to->path) < 0 ? -errno : 0;
}

static void place_remove(struct job *j, const struct place *p)
{
	if (p->inside)
		sheaf_unlink(j->c->fs, p->path);
	else
		unlink(p->path);
}

static int place_open(struct job *j, const struct place *p, int flags, mode_t mode,
		      struct cli_stream *s)
{
	s->f = NULL;
	if (p->inside)
		return sheaf_open(j->c->fs, p->path, flags, mode, NULL, &s->f);
	s->fd = open(p->path, flags | O_CLOEXEC, mode);
	return s->fd < 0 ? -errno : 0;
}

static int place_close(struct cli_stream *s)
{
	if (s->f)
		return sheaf_close(s->f);
	return close(s->fd) < 0 ? -errno : 0;
}

/* ---- one file ---- */

/* A name of ours beside dst. */
static int temp_beside(struct job *j, const struct place *dst, struct place *temp)
{
	char dir[CLI_PATH_MAX], name[64], *slash;

	strcpy(dir, dst->path);
	slash = strrchr(dir, '/');
	if (slash == dir)
		slash[1] = 0;
	else if (slash)
		*slash = 0;
	snprintf(name, sizeof(name), ".sheaf-cp-%d-%u.tmp", getpid(), j->n_temps++);
	temp->inside = dst->inside;
	return cli_join(temp->path, slash ? dir : ".", name);
}

static int copy_bytes(struct job *j, const struct place *src, struct cli_stream *from,
		      struct cli_stream *to, const struct stat *st, bool *source)
{
	struct cli_progress p = { .label = j->draw ? src->shown : NULL };

	if (S_ISREG(st->st_mode))
		p.total = (uint64_t)st->st_size;
	return cli_copier_run(j->copier, from, to, (uint64_t)st->st_size, &p, source);
}

/* From an open source to a file that did not exist; *source: the error is the source's. */
static int copy_to_temp(struct job *j, const struct place *src, struct cli_stream *from,
			const struct stat *st, const struct place *temp, const struct place *dst,
			bool *source)
{
	struct cli_stream to;
	int r, r2;

	*source = false;
	r = place_open(j, temp, O_WRONLY | O_CREAT | O_EXCL, 0600, &to);
	if (r)
		return r;
	r = copy_bytes(j, src, from, &to, st, source);
	r2 = place_close(&to);
	if (!r) {
		*source = false;
		r = r2;
	}
	if (!r)
		r = place_chmod(j, temp, st->st_mode & 0777);
	if (!r)
		r = place_rename(j, temp, dst);
	if (r)
		place_remove(j, temp);
	return r;
}

/* Into a device, a pipe: there is nothing to rename. */
static int copy_straight(struct job *j, const struct place *src, struct cli_stream *from,
			 const struct stat *st, const struct place *dst, bool *source)
{
	struct cli_stream to;
	int r, r2;

	*source = false;
	r = place_open(j, dst, O_WRONLY, 0, &to);
	if (r)
		return r;
	r = copy_bytes(j, src, from, &to, st, source);
	r2 = place_close(&to);
	if (!r) {
		*source = false;
		r = r2;
	}
	return r;
}

/* Where a link inside points, from the directory it is in. Its ".." are left to the servers. */
static int step_link(struct job *j, struct place *dst)
{
	char target[CLI_PATH_MAX], dir[CLI_PATH_MAX];
	int r = cli_read_link(j->c, dst->path, target);

	if (r)
		return r;
	strcpy(dir, dst->path);
	*(strrchr(dir, '/') + 1) = 0;
	return cli_join(dst->path, target[0] == '/' ? "" : dir, target + (target[0] == '/'));
}

/* A symbolic link stays one: what it points to is replaced. */
static int resolve_link(struct job *j, struct place *dst)
{
	char real[PATH_MAX];
	struct stat st;
	int r = 0;

	if (!dst->inside) {
		if (realpath(dst->path, real))
			snprintf(dst->path, sizeof(dst->path), "%s", real);
		return 0;
	}
	for (int i = 0; i < LINKS_MAX && !r; i++) {
		r = sheaf_lstat(j->c->fs, dst->path, &st);
		if (!r && !S_ISLNK(st.st_mode))
			return 0;
		if (!r)
			r = step_link(j, dst);
	}
	return r ? r : -ELOOP;
}

static int copy_file(struct job *j, const struct place *src, const struct stat *st,
		     struct place *dst)
{
	struct place temp;
	struct cli_stream from;
	bool source = true, there;
	struct stat old;
	int r = place_stat(j, dst, &old);

	there = r == 0;
	if (r && r != -ENOENT)
		return place_fail(j, dst, r);
	if (there && S_ISDIR(old.st_mode))
		return place_fail(j, dst, -EISDIR);
	if (there && src->inside && dst->inside && old.st_ino == st->st_ino)
		return cli_error(j->c, "%s and %s are the same file", src->shown, dst->shown);
	r = place_open(j, src, O_RDONLY, 0, &from);
	if (r)
		return place_fail(j, src, r);
	if (there && !S_ISREG(old.st_mode)) {
		r = copy_straight(j, src, &from, st, dst, &source);
	} else {
		source = false;
		r = there ? resolve_link(j, dst) : 0;
		if (!r)
			r = temp_beside(j, dst, &temp);
		if (!r)
			r = copy_to_temp(j, src, &from, st, &temp, dst, &source);
	}
	place_close(&from);
	return r ? place_fail(j, source ? src : dst, r) : CLI_OK;
}

/* A symbolic link as it is, under a temporary name first. */
static int copy_link(struct job *j, const struct place *src, const struct place *dst)
{
	char target[CLI_PATH_MAX];
	struct place temp;
	struct stat old;
	int r = place_readlink(j, src, target);

	if (r)
		return place_fail(j, src, r);
	r = place_lstat(j, dst, &old);
	if (r == 0 && S_ISDIR(old.st_mode))
		r = -EISDIR;
	else if (r == 0 || r == -ENOENT)
		r = temp_beside(j, dst, &temp);
	if (!r)
		r = place_symlink(j, target, &temp);
	if (!r) {
		r = place_rename(j, &temp, dst);
		if (r)
			place_remove(j, &temp);
	}
	return r ? place_fail(j, dst, r) : CLI_OK;
}

/* ---- trees ---- */

static int copy_any(struct job *j, const struct place *src, struct place *dst, bool top);

static int copy_children(struct job *j, const struct place *src, const struct place *dst)
{
	struct place *at = malloc(2 * sizeof(*at)); /* too large for a deep stack */
	struct cli_names names;
	int status = CLI_OK, r;

	if (!at)
		return cli_error(j->c, "out of memory");
	r = src->inside ? cli_names_inside(j->c, src->path, &names) :
			  cli_names_host(src->path, &names);
	if (r)
		status = place_fail(j, src, r);
	for (size_t i = 0; !r && i < names.n && !j->c->lost && !cli_signal; i++) {
		int r2 = place_child(&at[0], src, names.v[i].name);

		if (!r2)
			r2 = place_child(&at[1], dst, names.v[i].name);
		status |= r2 ? place_fail(j, src, r2) : copy_any(j, &at[0], &at[1], false);
	}
	cli_names_free(&names);
	free(at);
	return status;
}

/* The directory is ours to write while it is filled; its mode comes last. */
static int copy_dir(struct job *j, const struct place *src, const struct stat *st,
		    const struct place *dst)
{
	struct stat old;
	int status, r = place_mkdir(j, dst, 0700);
	bool made = r == 0;

	if (r == -EEXIST) {
		r = place_stat(j, dst, &old);
		if (!r && !S_ISDIR(old.st_mode))
			r = -ENOTDIR;
	}
	if (r)
		return place_fail(j, dst, r);
	status = copy_children(j, src, dst);
	if (made && !j->c->lost) {
		r = place_chmod(j, dst, st->st_mode & 0777);
		if (r)
			status = place_fail(j, dst, r);
	}
	return status;
}

/* top: named on the command line. Symbolic links are copied as such with -r and followed without. */
static int copy_any(struct job *j, const struct place *src, struct place *dst, bool top)
{
	struct stat st;
	int r = j->c->opt[OPT_RECURSIVE] ? place_lstat(j, src, &st) : place_stat(j, src, &st);

	if (r)
		return place_fail(j, src, r);
	if (S_ISLNK(st.st_mode))
		return copy_link(j, src, dst);
	if (S_ISDIR(st.st_mode) && !j->c->opt[OPT_RECURSIVE])
		return cli_error(j->c,
				 "%s: it is a directory; 'sheaf cp -r' copies it and all it holds",
				 src->shown);
	if (S_ISDIR(st.st_mode))
		return copy_dir(j, src, &st, dst);
	if (!top && !S_ISREG(st.st_mode))
		return cli_error(j->c, "%s: skipped, a %s", src->shown, cli_type_name(st.st_mode));
	return copy_file(j, src, &st, dst);
}

/* ---- the command ---- */

static int copy_arg(struct job *j, const char *arg, const struct place *dst, bool into)
{
	struct place src, to = *dst;
	char real[PATH_MAX];
	const char *name;
	int r = place_parse(&src, arg);

	if (r)
		return cli_fail(j->c, arg, r);
	if (!src.inside && !dst->inside)
		return cli_usage(j->c,
				 "%s and %s are both outside; a path inside is written sheaf:/path",
				 arg, dst->shown);
	if (into) {
		name = cli_basename(src.path);
		if (!src.inside && (!strcmp(name, ".") || !strcmp(name, "..")) &&
		    realpath(src.path, real))
			name = cli_basename(real);
		r = name[0] ? place_child(&to, dst, name) :
			      0; /* the root has no name: what is in it */
		if (r)
			return place_fail(j, dst, r);
	}
	if (src.inside && dst->inside && cli_beneath(src.path, to.path) &&
	    strcmp(src.path, to.path) && cli_is_dir(j->c, src.path) > 0)
		return cli_error(j->c, "%s: cannot be copied into itself, %s", src.shown, to.shown);
	return copy_any(j, &src, &to, true);
}

static int copy_all(struct job *j)
{
	struct cli *c = j->c;
	const char *last = c->args[c->n_args - 1];
	struct stat st = { 0 };
	struct place dst;
	int status = CLI_OK, r = place_parse(&dst, last);
	bool into;

	if (!r)
		r = place_stat(j, &dst, &st);
	if (r && r != -ENOENT)
		return place_fail(j, &dst, r);
	into = r == 0 && S_ISDIR(st.st_mode);
	if (!into && c->n_args > 2)
		return cli_error(c, "%s: not a directory, and there are several to copy", last);
	if (!into && last[strlen(last) - 1] == '/' && !c->opt[OPT_RECURSIVE])
		return cli_error(c, "%s: not a directory", last);
	for (int i = 0; i + 1 < c->n_args && !c->lost && !cli_signal; i++)
		status |= copy_arg(j, c->args[i], &dst, into);
	return status;
}

static int check_args(struct cli *c)
{
	const char *last = c->args[c->n_args - 1];

	for (int i = 0; i + 1 < c->n_args; i++)
		if (!is_inside(c->args[i]) && !is_inside(last))
			return cli_usage(c, "%s and %s are both outside (inside is sheaf:/path)",
					 c->args[i], last);
	for (int i = 0; i < c->n_args; i++)
		if (!c->args[i][0])
			return cli_usage(c, "an empty name");
	return CLI_OK;
}

static int run_cp(struct cli *c)
{
	struct job j = { .c = c, .draw = isatty(STDERR_FILENO) };
	int status = check_args(c);

	if (status)
		return status;
	j.copier = cli_copier_new();
	status = j.copier ? cli_connect(c) : cli_error(c, "out of memory");
	if (!status) {
		cli_catch_signals();
		status = copy_all(&j);
	}
	cli_copier_free(j.copier);
	return status;
}

const struct cli_command cmd_cp = {
	.name = "cp",
	.usage = "[-r] SRC... DST",
	.summary = "copy files into, out of and within the file system",
	.run = run_cp,
	.min_args = 2,
	.max_args = -1,
	.options = { { 'r', "recursive", NULL, "directories and all they hold" } },
	.more = "sheaf:/path is inside the file system, anything else is outside:\n"
		"  sheaf cp -r results sheaf:/results\n"
		"  sheaf cp sheaf:/results/a.dat .\n"
		"Files appear complete or not at all; modes are kept. Symbolic links are copied as links with -r and\n"
		"followed without.\n",
};
