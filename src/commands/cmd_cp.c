/* sheaf cp: copies files and trees into, out of and within the file system, several at a time.
 *
 * A file is written under a temporary name beside its final one and renamed when it is complete. So
 * readers see the old file or the new one, and an interrupted copy can simply be repeated. A small
 * file costs, inside, an open with its final mode, a write, a close and a rename. The close reports
 * whether the servers have received everything; when it reaches the disk is up to them, as with
 * cp(1).
 *
 * Threads: those of tree_walk.c; each handles one file or directory at a time (struct task) and has
 * its own copier. On a terminal another thread computes the total size; until it is known, the
 * progress has no percentage. Buffers: those of the copiers; copies within the file system go from
 * server to server. Errors: each is printed and the copy continues; an error of a whole target
 * directory is printed once and its other files are skipped. After a signal, when a server does not
 * answer or when the target is full, every thread removes its temporary file. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/cp_made.h"
#include "commands/cp_place.h"
#include "sheaf_handle.h"

enum { OPT_RECURSIVE, OPT_JOBS, OPT_PRESERVE };

#define LINKS_MAX 40 /* symbolic links followed in a row, as in the servers */
#define TEMP_TRIES 100
#define INSIDE_STEP (64 * MIB) /* bytes between two checks for signals */

struct job {
	struct tree_walk walk;
	struct cli_progress progress;
	struct cli_copier *copiers[TREE_JOBS_MAX];
	struct made_dirs targets; /* one for each argument that is a directory */
	atomic_uint n_temps, n_still_open;
};

/* A directory that is being filled; the top one is the target of all arguments. */
struct filling {
	struct cli_dir dir;
	struct place src, dst;
	mode_t mode;
	struct stat st; /* of the source */
	bool made; /* created by this command, so it was empty */
	bool ours; /* the source is in the file system inside: inode numbers can be compared */
	bool into; /* top only: dst is an existing directory, the arguments go into it */
};

/* The copy of one file, link or directory, on one thread. */
struct task {
	struct job *j;
	unsigned worker;
	struct filling *in;
	struct place src, dst;
	struct stat st; /* of the source */
	enum { SOURCE, TARGET, TARGET_DIR } blame; /* where an error occurred */
};

/* Files left open because a server does not answer: a source and a target per thread. Nothing reads
 * this; with pointers to them here, leak checkers know that the files are not lost. */
static struct sheaf_file *still_open[2 * TREE_JOBS_MAX];

/* ---- attributes, removal, open files ---- */

/* With --preserve: the times, and the bits of the mode that a copy does not have yet. Set-id bits
 * are for the owner of the source alone. */
static int preserve(struct job *j, const struct place *p, const struct stat *st)
{
	int r = 0;

	if (!j->walk.c->opt[OPT_PRESERVE])
		return 0;
	if (st->st_mode & S_ISVTX)
		r = place_chmod(j->walk.c, p, st->st_mode & 01777);
	return r ? r : place_set_times(j->walk.c, p, st);
}

#define ROOM_TRIES 20
#define ROOM_NS (50 * NSEC_PER_MSEC)

/* Retries while the servers are full: space of removed files is freed with a delay. */
static int remove_inside(struct sheaf *fs, const char *path)
{
	const struct timespec pause = { 0, ROOM_NS };
	int r = sheaf_unlink(fs, path);

	for (int i = 0; i < ROOM_TRIES && r == -ENOSPC; i++) {
		nanosleep(&pause, NULL);
		r = sheaf_unlink(fs, path);
	}
	return r;
}

static void place_remove(struct job *j, const struct place *p)
{
	int r;

	if (!p->inside)
		r = unlink(p->path) < 0 ? -errno : 0;
	else
		r = remove_inside(j->walk.c->fs, p->path);
	if (r && r != -ENOENT)
		tree_count_left(&j->walk, r);
}

static int place_open(struct job *j, const struct place *p, int flags, mode_t mode,
		      struct cli_stream *s)
{
	s->f = NULL;
	if (p->standard) {
		s->fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 3);
		return s->fd < 0 ? -errno : 0;
	}
	if (p->inside)
		return sheaf_open(j->walk.c->fs, p->path, flags, mode, NULL, &s->f);
	s->fd = open(p->path, flags | O_CLOEXEC, mode);
	return s->fd < 0 ? -errno : 0;
}

/* After a server was lost, the end of the session closes the file, and whether all data were
 * written stays unknown: -ETIMEDOUT. */
static int place_close(struct job *j, struct cli_stream *s)
{
	if (!s->f)
		return close(s->fd) < 0 ? -errno : 0;
	if (!tree_server_lost(&j->walk))
		return sheaf_close(s->f);
	still_open[j->n_still_open++ % ARRAY_LEN(still_open)] = s->f;
	return -ETIMEDOUT;
}

/* ---- one file ---- */

static const struct place *blamed(const struct task *t)
{
	return t->blame == SOURCE ? &t->src : &t->dst;
}

/* Stops the walk if err means "no answer". Must precede closing and removing files. */
static void check(struct task *t, int err)
{
	if (err && blamed(t)->inside)
		tree_check(&t->j->walk, blamed(t)->shown, err);
}

static int task_fail(struct task *t, int err)
{
	const struct place *p = blamed(t);
	struct filling *in = t->in;
	bool alone = !in->dir.parent && !in->into; /* the target is this one file */

	if (t->blame == TARGET_DIR && !alone)
		return tree_fail_dir(&t->j->walk, &in->dir, in->dst.shown, !p->inside, err);
	return tree_fail(&t->j->walk, p->shown, !p->inside, err);
}

static int blame(struct task *t, int whose, int err)
{
	t->blame = whose;
	return err ? task_fail(t, err) : CLI_OK;
}

/* A temporary name beside dst. */
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
	temp->standard = false;
	return cli_join(temp->path, slash ? dir : ".", name);
}

/* Copies from server to server; the data do not pass this process. */
static int copy_inside(struct task *t, struct cli_stream *from, struct cli_stream *to)
{
	struct cli_progress *p = &t->j->progress;
	uint64_t size = (uint64_t)t->st.st_size, at = 0;
	ssize_t n = 1;

	while (n > 0 && at < size) { /* the source may have become shorter */
		if (p->stop)
			return -EINTR;
		n = sheaf_copy_range(from->f, (off_t)at, to->f, (off_t)at,
				     (size_t)MIN(size - at, INSIDE_STEP));
		if (n < 0)
			return (int)n;
		at += (uint64_t)n;
		p->done += (uint64_t)n;
	}
	return 0;
}

static int copy_bytes(struct task *t, struct cli_stream *from, struct cli_stream *to)
{
	struct cli_copier **k = &t->j->copiers[t->worker];
	bool source = false;
	int r;

	if (from->f && to->f) {
		t->blame = TARGET;
		r = copy_inside(t, from, to);
		check(t, r);
		return r;
	}
	if (!*k)
		*k = cli_copier_new();
	r = *k ? cli_copier_run(*k, from, to, (uint64_t)t->st.st_size, &t->j->progress, &source) :
		 -ENOMEM;
	t->blame = source ? SOURCE : TARGET;
	check(t, r);
	return r;
}

/* Closes the target; an earlier error takes precedence. */
static int end_target(struct task *t, struct cli_stream *to, int r)
{
	int r2 = place_close(t->j, to);

	if (t->dst.inside)
		tree_check(&t->j->walk, t->dst.shown, r2);
	if (!r && r2)
		t->blame = TARGET;
	return r ? r : r2;
}

/* Creates a file, opened as `to`, or, if `to` is NULL, a symbolic link to `target`, under an unused
 * temporary name. Names may collide, since a process on another host may have the same pid. Leaves
 * no file after an error. */
static int make_temp(struct task *t, struct place *temp, struct cli_stream *to, const char *target)
{
	int r, tries = 0;

	do {
		r = temp_beside(t->j, &t->dst, temp);
		if (r)
			return r;
		r = to ? place_open(t->j, temp, O_WRONLY | O_CREAT | O_EXCL, t->st.st_mode & 0777,
				    to) :
			 place_symlink(t->j->walk.c, target, temp);
	} while (r == -EEXIST && ++tries < TEMP_TRIES);
	check(t, r);
	if (cli_no_answer(r)) /* the file may exist */
		place_remove(t->j, temp);
	return r;
}

/* Renames the temporary file, unless r is an error; removes it after any error. */
static int end_temp(struct task *t, const struct place *temp, int r)
{
	if (!r) {
		t->blame = TARGET;
		r = place_rename(t->j->walk.c, temp, &t->dst);
		check(t, r);
	}
	if (r)
		place_remove(t->j, temp);
	return r;
}

/* elsewhere: the target is not in the directory that is being filled. */
static int copy_to_temp(struct task *t, struct cli_stream *from, bool elsewhere)
{
	struct cli_stream to;
	struct place temp;
	int r;

	t->blame = elsewhere ? TARGET : TARGET_DIR;
	r = make_temp(t, &temp, &to, NULL);
	if (r)
		return r;
	t->blame = TARGET;
	if (!to.f) /* override the umask */
		r = place_host_chmod(fchmod(to.fd, t->st.st_mode & 0777));
	if (!r)
		r = copy_bytes(t, from, &to);
	r = end_target(t, &to, r);
	if (!r && !t->src.standard) /* after the close, which sets the time of the last write */
		r = preserve(t->j, &temp, &t->st);
	return end_temp(t, &temp, r);
}

/* Are symbolic links at the target followed? Where the last argument is one, and, as cp(1) does it,
 * in that directory without -r. Any other link was copied from a source, whose owner chose its
 * text: data written through it would replace foreign files. */
static bool follows_target(const struct task *t)
{
	const struct filling *in = t->in;

	return !in->dir.parent &&
	       (!t->j->walk.c->opt[OPT_RECURSIVE] || strcmp(t->dst.path, in->dst.path) == 0);
}

/* Copies into a device or pipe, which cannot be replaced by a rename. */
static int copy_straight(struct task *t, struct cli_stream *from)
{
	struct cli_stream to;
	int r;

	t->blame = TARGET;
	r = place_open(t->j, &t->dst, O_WRONLY | (follows_target(t) ? 0 : O_NOFOLLOW), 0, &to);
	return r ? r : end_target(t, &to, copy_bytes(t, from, &to));
}

/* Follows one symbolic link inside. The servers resolve the ".." components of its text. */
static int step_link(struct job *j, struct place *dst)
{
	char target[CLI_PATH_MAX], dir[CLI_PATH_MAX];
	int r = cli_read_link(j->walk.c, dst->path, target);

	if (r)
		return r;
	strcpy(dir, dst->path);
	*(strrchr(dir, '/') + 1) = 0;
	return cli_join(dst->path, target[0] == '/' ? "" : dir, target + (target[0] == '/'));
}

/* Follows symbolic links, so that their target is replaced. 1: dst was a link; 0; -errno. */
static int resolve_link(struct job *j, struct place *dst)
{
	char real[PATH_MAX];
	struct stat st;
	int r = 0;

	for (int i = 0; i < LINKS_MAX && !r; i++) {
		r = place_stat(j->walk.c, dst, false, &st);
		if (!r && !S_ISLNK(st.st_mode))
			return i > 0;
		if (!r && dst->inside)
			r = step_link(j, dst);
		else if (!r && !realpath(dst->path, real))
			r = -errno;
		else if (!r)
			snprintf(dst->path, sizeof(dst->path), "%s", real);
	}
	return r ? r : -ELOOP;
}

/* Examines an existing target: CLI_OK, or CLI_FAILED and a message: it cannot be replaced. */
static int look_at_target(struct task *t, bool *straight, bool *elsewhere)
{
	bool follow = follows_target(t);
	struct stat old;
	int r = t->in->made ? -ENOENT : place_stat(t->j->walk.c, &t->dst, follow, &old);

	*straight = *elsewhere = false;
	if (t->dst.standard) {
		*straight = true;
		return CLI_OK;
	}
	if (r == -ENOENT)
		return CLI_OK;
	if (!r && S_ISDIR(old.st_mode))
		r = -EISDIR;
	if (r)
		return blame(t, TARGET, r);
	if (t->src.inside && t->dst.inside && old.st_ino == t->st.st_ino)
		return tree_error(&t->j->walk, "%s and %s are the same file", t->src.shown,
				  t->dst.shown);
	*straight = !S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode);
	r = *straight || !follow ? 0 : resolve_link(t->j, &t->dst);
	*elsewhere = r > 0;
	return r < 0 ? blame(t, TARGET, r) : CLI_OK;
}

/* Size, mode and times of the open source: since they were looked up by name, another file may have
 * got the name. */
static int stat_source(struct task *t, struct cli_stream *from)
{
	int r = 0;

	if (t->src.standard) /* place_stat() has chosen its mode */
		return 0;
	if (from->f)
		r = sheaf_fstat(from->f, &t->st);
	else if (fstat(from->fd, &t->st) < 0)
		r = -errno;
	if (!r && S_ISDIR(t->st.st_mode))
		r = -EISDIR;
	check(t, r);
	return r;
}

static int copy_file(struct task *t)
{
	int links = t->j->walk.c->opt[OPT_RECURSIVE] ? O_NOFOLLOW : 0;
	struct cli_stream from;
	bool straight, elsewhere;
	int r = look_at_target(t, &straight, &elsewhere);

	if (r)
		return r;
	t->blame = SOURCE;
	r = place_open(t->j, &t->src, O_RDONLY | links, 0, &from);
	if (r)
		return task_fail(t, r);
	r = stat_source(t, &from);
	if (!r)
		r = straight ? copy_straight(t, &from) : copy_to_temp(t, &from, elsewhere);
	place_close(t->j, &from);
	if (r)
		return task_fail(t, r);
	t->j->progress.files++;
	return CLI_OK;
}

/* Copies a symbolic link as a link, under a temporary name first. */
static int copy_link(struct task *t)
{
	char target[CLI_PATH_MAX];
	struct place temp;
	struct stat old;
	int r = place_readlink(t->j->walk.c, &t->src, target);

	if (r)
		return blame(t, SOURCE, r);
	r = t->in->made ? -ENOENT : place_stat(t->j->walk.c, &t->dst, false, &old);
	if (r == 0 && S_ISDIR(old.st_mode))
		r = -EISDIR;
	if (r && r != -ENOENT)
		return blame(t, TARGET, r);
	t->blame = TARGET_DIR;
	r = make_temp(t, &temp, NULL, target);
	if (!r && !temp.inside && t->j->walk.c->opt[OPT_PRESERVE])
		place_set_times(t->j->walk.c, &temp, &t->st); /* not all file systems can */
	if (!r)
		r = end_temp(t, &temp, 0);
	return r ? task_fail(t, r) : CLI_OK;
}

/* ---- trees ---- */

static int fail_itself(struct task *t)
{
	return tree_error(&t->j->walk, "%s: cannot be copied into itself, %s", t->src.shown,
			  t->dst.shown);
}

/* Makes the target directory, or takes the one that is there. It is writable while it is filled;
 * leave() sets a mode without u+rwx at the end. */
static int make_dir(struct task *t, struct filling *d)
{
	struct job *j = t->j;
	struct stat old;
	int r = place_mkdir(j->walk.c, &t->dst, d->mode | 0700);

	d->made = r == 0;
	if ((r && r != -EEXIST) || (!r && t->in->dir.parent))
		return blame(t, TARGET_DIR, r);
	r = place_stat(j->walk.c, &t->dst, follows_target(t), &old);
	if (!r && S_ISLNK(old.st_mode))
		return tree_error(&j->walk,
				  "%s: a symbolic link is where a directory is to be, and is not "
				  "followed: remove it",
				  t->dst.shown);
	if (!r && !S_ISDIR(old.st_mode))
		r = -ENOTDIR;
	if (!r && !t->in->dir.parent && made_is_ours(j->walk.c, &t->dst, &old))
		r = made_add(&j->targets, old.st_ino);
	if (!r && d->ours && made_has(&j->targets, t->st.st_ino))
		return fail_itself(t);
	return blame(t, TARGET, r);
}

/* Asks only where a mount may begin. */
static bool is_source_ours(const struct task *t)
{
	const struct filling *in = t->in;

	if (in->dir.parent && in->st.st_dev == t->st.st_dev)
		return in->ours;
	return made_is_ours(t->j->walk.c, &t->src, &t->st);
}

static int copy_dir(struct task *t)
{
	struct job *j = t->j;
	struct filling *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return tree_error(&j->walk, "out of memory");
	d->mode = t->st.st_mode & 0777;
	d->st = t->st;
	d->ours = is_source_ours(t);
	r = d->ours && made_has(&j->targets, t->st.st_ino) ? fail_itself(t) : make_dir(t, d);
	if (r) {
		free(d);
		return r;
	}
	d->src = t->src;
	d->dst = t->dst;
	r = t->src.inside ? cli_names_inside(j->walk.c, t->src.path, false, &d->dir.names) :
			    cli_names_host(t->src.path, &d->dir.names);
	d->dir.skip = r != 0;
	tree_enter(&j->walk, &t->in->dir, &d->dir);
	return blame(t, SOURCE, r);
}

static int leave(struct tree_walk *w, struct cli_dir *dir)
{
	struct filling *d = container_of(dir, struct filling, dir);
	struct job *j = container_of(w, struct job, walk);
	int r = 0;

	if (d->made && d->mode != (d->mode | 0700) && !tree_server_lost(w))
		r = place_chmod(j->walk.c, &d->dst, d->mode);
	if (!r && d->made && !tree_server_lost(w))
		r = preserve(j, &d->dst, &d->st);
	return r ? tree_fail(w, d->dst.shown, !d->dst.inside, r) : CLI_OK;
}

/* With -r symbolic links are copied as links, without it they are followed. */
static int copy_any(struct task *t)
{
	struct tree_walk *w = &t->j->walk;
	bool recursive = w->c->opt[OPT_RECURSIVE], top = !t->in->dir.parent;
	int r = place_stat(t->j->walk.c, &t->src, !recursive, &t->st);

	if (r)
		return blame(t, SOURCE, r);
	if (S_ISLNK(t->st.st_mode))
		return copy_link(t);
	if (S_ISDIR(t->st.st_mode) && !recursive)
		return tree_error(w,
				  "%s: it is a directory; 'sheaf cp -r' copies it and all it holds",
				  t->src.shown);
	if (S_ISDIR(t->st.st_mode))
		return copy_dir(t);
	if (!top && !S_ISREG(t->st.st_mode))
		return tree_error(w, "%s: skipped, a %s", t->src.shown,
				  cli_type_name(t->st.st_mode));
	return copy_file(t);
}

/* ---- the command ---- */

/* Parses one source argument; `name` is its name in the target directory. */
static int parse_arg(const char *arg, struct place *src, char name[CLI_PATH_MAX])
{
	char real[PATH_MAX];
	const char *base;
	int r = place_parse(src, arg, STDIN_FILENO);

	if (r)
		return r;
	base = cli_basename(src->path);
	if (!src->inside && (!strcmp(base, ".") || !strcmp(base, "..")) &&
	    realpath(src->path, real))
		base = cli_basename(real);
	snprintf(name, CLI_PATH_MAX, "%s", base);
	return 0;
}

static int copy_arg(struct task *t, const char *arg)
{
	struct tree_walk *w = &t->j->walk;
	char name[CLI_PATH_MAX];
	int r;

	t->dst = t->in->dst;
	r = parse_arg(arg, &t->src, name);
	if (!r && t->in->into && name[0]) /* the root has no name: copy its contents */
		r = place_child(&t->dst, &t->in->dst, name);
	if (r)
		return tree_fail(w, t->src.shown, !t->src.inside, r);
	if (t->src.inside && t->dst.inside && cli_beneath(t->src.path, t->dst.path) &&
	    strcmp(t->src.path, t->dst.path) && cli_is_dir(w->c, t->src.path) > 0)
		return fail_itself(t);
	return copy_any(t);
}

static int child(struct tree_walk *w, unsigned worker, struct cli_dir *dir,
		 const struct cli_name *n)
{
	struct task t = { .j = container_of(w, struct job, walk),
			  .worker = worker,
			  .in = container_of(dir, struct filling, dir) };
	int r;

	if (!dir->parent)
		return copy_arg(&t, n->name);
	r = place_child(&t.src, &t.in->src, n->name);
	if (!r)
		r = place_child(&t.dst, &t.in->dst, n->name);
	if (r)
		return tree_fail(w, t.in->src.shown, !t.in->src.inside, r);
	return copy_any(&t);
}

/* Finds the target, and whether it is a directory. */
static int find_target(struct job *j, struct filling *top)
{
	struct cli *c = j->walk.c;
	const char *last = c->args[c->n_args - 1];
	struct place *dst = &top->dst;
	struct stat st = { 0 };
	int r = place_parse(dst, last, STDOUT_FILENO);

	if (!r)
		r = place_stat(j->walk.c, dst, true, &st);
	if (r && r != -ENOENT)
		return dst->inside ? cli_fail(c, dst->shown, r) : cli_fail_host(c, dst->shown, r);
	top->into = r == 0 && S_ISDIR(st.st_mode);
	if (top->into && strcmp(c->args[0], "-") == 0)
		return cli_error(c, "%s: it is a directory; give what standard input holds a name",
				 dst->shown);
	if (!top->into && c->n_args > 2)
		return cli_error(c, "%s: not a directory, and there are several to copy",
				 dst->shown);
	if (!top->into && last[strlen(last) - 1] == '/' && !c->opt[OPT_RECURSIVE])
		return cli_error(c, "%s: not a directory", dst->shown);
	return CLI_OK;
}

/* Arguments with the same name are copied in order, one at a time: the last one remains. */
static bool names_twice(struct cli *c)
{
	struct cli_names names = { 0 };
	char name[CLI_PATH_MAX];
	struct place src;
	bool twice = false;

	for (int i = 0; i < c->n_args - 1 && !twice; i++)
		twice = parse_arg(c->args[i], &src, name) || cli_names_add(&names, name, 0);
	twice = twice || cli_names_twice(&names);
	cli_names_free(&names);
	return twice;
}

/* ---- total size, for the progress; computed in parallel with the copies ---- */

static void measure(struct job *j, const struct place *p, struct stat *st, uint64_t *total);

/* Adds the sizes in a directory; read errors are left to the copies to report. */
static void measure_dir(struct job *j, const struct place *dir, uint64_t *total)
{
	struct cli_names names;
	struct place *child = malloc(sizeof(*child));
	int r = dir->inside ? cli_names_inside(j->walk.c, dir->path, true, &names) :
			      cli_names_host(dir->path, &names);

	for (size_t i = 0; child && !r && i < names.n && !j->progress.stop; i++) {
		struct stat *known = names.v[i].st, st;

		if (place_child(child, dir, names.v[i].name) == 0 &&
		    (known || place_stat(j->walk.c, child, false, &st) == 0))
			measure(j, child, known ? known : &st, total);
	}
	cli_names_free(&names);
	free(child);
}

static void measure(struct job *j, const struct place *p, struct stat *st, uint64_t *total)
{
	if (S_ISREG(st->st_mode))
		*total += (uint64_t)st->st_size;
	else if (S_ISDIR(st->st_mode) && j->walk.c->opt[OPT_RECURSIVE])
		measure_dir(j, p, total);
}

/* Runs on its own thread. */
static void *measure_all(void *arg)
{
	struct job *j = arg;
	struct cli *c = j->walk.c;
	struct place src;
	struct stat st;
	uint64_t total = 0;

	for (int i = 0; i + 1 < c->n_args && !j->progress.stop; i++)
		if (place_parse(&src, c->args[i], STDIN_FILENO) == 0 &&
		    place_stat(j->walk.c, &src, true, &st) == 0)
			measure(j, &src, &st, &total);
	if (!j->progress.stop)
		j->progress.total = total;
	return NULL;
}

static int check_args(struct job *j)
{
	struct cli *c = j->walk.c;
	const char *last = c->args[c->n_args - 1];

	for (int i = 0; i + 1 < c->n_args; i++)
		if (!place_is_inside(c->args[i]) && !place_is_inside(last))
			return cli_usage(c, "%s and %s are both outside (inside is sheaf:/path)",
					 c->args[i], last);
	for (int i = 0; i < c->n_args; i++) {
		if (!c->args[i][0])
			return cli_usage(c, "an empty name");
		if (strcmp(c->args[i], "-") == 0 && (c->n_args > 2 || c->opt[OPT_RECURSIVE]))
			return cli_usage(c,
					 "- is one file: it goes with one other name, without -r");
	}
	if (tree_set_jobs(&j->walk, c->opt[OPT_JOBS]))
		return CLI_USAGE;
	return CLI_OK;
}

static int copy_all(struct job *j)
{
	struct cli *c = j->walk.c;
	struct filling target = { 0 }, *top;
	struct cli_dir *root;
	pthread_t measurer;
	bool measured;
	int status = find_target(j, &target);

	if (status || !(root = tree_root(c, sizeof(*top), c->args, c->n_args - 1)))
		return CLI_FAILED;
	top = container_of(root, struct filling, dir);
	top->dst = target.dst;
	top->into = target.into;
	if (c->n_args > 2 && names_twice(c))
		j->walk.jobs = 1;
	measured = j->progress.draw && pthread_create(&measurer, NULL, measure_all, j) == 0;
	status = tree_run(&j->walk, root);
	j->progress.stop = true;
	if (measured)
		pthread_join(measurer, NULL);
	return status;
}

static int run_cp(struct cli *c)
{
	struct job j = { .walk = { .c = c, .child = child, .leave = leave } };
	int status = check_args(&j);

	if (status)
		return status;
	j.walk.progress = &j.progress;
	j.progress.draw = isatty(STDERR_FILENO);
	place_init();
	if (made_init(&j.targets))
		return cli_error(c, "out of memory");
	status = cli_connect(c);
	if (!status) {
		cli_catch_signals();
		status = copy_all(&j);
	}
	for (unsigned i = 0; i < TREE_JOBS_MAX; i++)
		cli_copier_free(j.copiers[i]);
	made_destroy(&j.targets);
	return status;
}

const struct cli_command cmd_cp = {
	.name = "cp",
	.usage = "[-pr] [--jobs N] SRC... DST",
	.summary = "copy files into, out of and within the file system",
	.run = run_cp,
	.min_args = 2,
	.max_args = -1,
	.options = { { 'r', "recursive", NULL, "directories and all they hold" },
		     { 'j', "jobs", "N", "how many files at a time, 1 to 64; 16" },
		     { 'p', "preserve", NULL, "keep the times, too" } },
	.more = "sheaf:/path is inside the file system, anything else is outside:\n"
		"  sheaf cp -r results sheaf:/results\n"
		"  sheaf cp sheaf:/results/a.dat .\n"
		"  mysqldump db | sheaf cp - sheaf:/backup/db.sql\n"
		"A - is standard input or output. Files appear complete or not at all; modes are kept, without set-id\n"
		"bits, and times with -p (not those of symbolic links inside). Symbolic links are copied as links with -r and\n"
		"followed without.\n",
};
