/* Processes directory trees with several threads, for cp, rm and find.
 *
 * A directory in process is a struct cli_dir with its names. Directories with names left are on one
 * stack; a thread takes a name from the topmost one and processes it; if it is a directory, its
 * names are pushed on top. So the walk is depth first: memory holds the names of the directories on
 * the way down and a few more per thread, never the whole tree. A directory is referenced by its
 * place on the stack, by each child in process and by each directory in it; when the last reference
 * is dropped, leave() finishes it, after everything in it.
 *
 * Threads: the caller draws the progress and handles signals, which are
 * blocked in the workers. Workers are started while there are names to take. One lock guards the
 * stack and the reference counts; child() and leave() run without it.
 * Errors: one line each, until something makes the rest pointless (a signal, a server that does not
 * answer, no space); then all workers end soon, and the caller prints the reason in one line. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

#define TICK_NS (100 * NSEC_PER_MSEC)

struct tree_worker {
	struct tree_walk *w;
	pthread_t thread;
	unsigned index;
};

/* ---- directories ---- */

static void dir_push(struct tree_walk *w, struct cli_dir *d)
{
	d->holds = 1;
	d->below = w->top;
	w->top = d;
	pthread_cond_broadcast(&w->more);
}

static int dir_finish(struct tree_walk *w, struct cli_dir *d)
{
	int status;

	cli_names_free(&d->names);
	status = w->leave ? w->leave(w, d) : CLI_OK;
	free(d);
	return status;
}

/* Called with the lock held; drops it while leave() runs. */
static void dir_release(struct tree_walk *w, struct cli_dir *d)
{
	while (--d->holds == 0) {
		struct cli_dir *parent = d->parent;
		int status;

		pthread_mutex_unlock(&w->lock);
		status = dir_finish(w, d);
		pthread_mutex_lock(&w->lock);
		w->status |= status;
		if (!parent) {
			w->done = true;
			pthread_cond_broadcast(&w->more);
			return;
		}
		parent->failed |= status != CLI_OK;
		d = parent;
	}
}

int tree_set_jobs(struct tree_walk *w, const char *value)
{
	uint64_t jobs = TREE_JOBS;

	if (value && cli_number(value, 1, TREE_JOBS_MAX, &jobs))
		return cli_usage(w->c, "--jobs is a number from 1 to %d", TREE_JOBS_MAX);
	w->jobs = (unsigned)jobs;
	return CLI_OK;
}

struct cli_dir *tree_root(struct cli *c, size_t size, char **args, int n)
{
	struct cli_dir *root = calloc(1, size);

	for (int i = 0; i < n && root; i++)
		if (cli_names_add(&root->names, args[i], 0)) {
			cli_names_free(&root->names);
			free(root);
			root = NULL;
		}
	if (!root)
		cli_error(c, "out of memory");
	return root;
}

void tree_enter(struct tree_walk *w, struct cli_dir *parent, struct cli_dir *d)
{
	pthread_mutex_lock(&w->lock);
	d->parent = parent;
	parent->holds++;
	dir_push(w, d);
	pthread_mutex_unlock(&w->lock);
}

int tree_enter_inside(struct tree_walk *w, struct cli_dir *parent, const char *path,
		      struct sheaf_handle dir)
{
	struct cli_dir *d = calloc(1, sizeof(*d));
	int r = d ? cli_names_of(w->c, dir, false, &d->names) : -ENOMEM;

	if (!r) {
		d->handle = dir;
		strcpy(d->path, path);
		tree_enter(w, parent, d);
		return CLI_OK;
	}
	if (d)
		cli_names_free(&d->names);
	free(d);
	return r == -ENOENT || r == -ESTALE ? CLI_OK : tree_fail(w, path, false, r);
}

int tree_enter_name(struct tree_walk *w, struct cli_dir *parent, const char *path, const char *name)
{
	struct sheaf_handle dir;
	struct stat st;
	int r = sheaf_h_lookup(w->c->fs, NULL, parent->handle, name, &dir, &st);

	if (!r && !S_ISDIR(st.st_mode))
		return tree_error(w, "%s: it was replaced while this command ran, and is left",
				  path);
	if (!r)
		return tree_enter_inside(w, parent, path, dir);
	return r == -ENOENT || r == -ESTALE ? CLI_OK : tree_fail(w, path, false, r);
}

/* Called with the lock held. */
static void see_signal(struct tree_walk *w)
{
	if (cli_signal && !w->progress->stop) {
		w->interrupted = true;
		w->progress->stop = true;
	}
}

/* Takes the next name and a reference to its directory; NULL: none at the moment. */
static struct cli_name *take(struct tree_walk *w, struct cli_dir **in)
{
	struct cli_dir *d;

	see_signal(w);
	while ((d = w->top)) {
		if (d->next < d->names.n && !d->skip && !w->progress->stop) {
			d->holds++;
			*in = d;
			return &d->names.v[d->next++];
		}
		if (d->next < d->names.n) /* names are left unprocessed */
			w->status |= CLI_FAILED;
		w->top = d->below;
		dir_release(w, d);
	}
	return NULL;
}

/* ---- threads ---- */

static void *work(void *arg);

/* Called with the lock held. */
static int add_worker(struct tree_walk *w)
{
	struct tree_worker *k = &w->workers[w->n_workers];
	int r;

	k->w = w;
	k->index = w->n_workers;
	r = pthread_create(&k->thread, NULL, work, k);
	if (r == 0)
		w->n_workers++;
	return -r;
}

static void *work(void *arg)
{
	struct tree_worker *k = arg;
	struct tree_walk *w = k->w;
	struct cli_name *name;
	struct cli_dir *d;
	int status;

	pthread_mutex_lock(&w->lock);
	while (!w->done) {
		name = take(w, &d);
		if (!name) {
			if (!w->done)
				pthread_cond_wait(&w->more, &w->lock);
			continue;
		}
		if (d->next < d->names.n && w->n_workers < w->jobs)
			add_worker(w); /* on failure the running workers do everything */
		pthread_mutex_unlock(&w->lock);
		status = w->child(w, k->index, d, name);
		pthread_mutex_lock(&w->lock);
		w->status |= status;
		d->failed |= status != CLI_OK;
		dir_release(w, d);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void on_poke(int sig)
{
	(void)sig;
}

/* Starts the first worker; the others are started by workers and inherit its signal mask. */
static int start(struct tree_walk *w)
{
	struct sigaction sa = { .sa_handler = on_poke };
	sigset_t mask, old;
	int r;

	sigaction(CLI_INTERRUPT_SIGNAL, &sa, NULL);
	sigfillset(&mask);
	sigdelset(&mask, CLI_INTERRUPT_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &mask, &old);
	pthread_mutex_lock(&w->lock);
	r = add_worker(w);
	pthread_mutex_unlock(&w->lock);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

/* Runs until all is done. CLI_INTERRUPT_SIGNAL is repeated, since it may arrive before the call
 * blocks. */
static void conduct(struct tree_walk *w)
{
	struct timespec t;

	pthread_mutex_lock(&w->lock);
	while (!w->done) {
		uint64_t until = time_now() + TICK_NS;

		t = (struct timespec){ (time_t)(until / NSEC_PER_SEC),
				       (long)(until % NSEC_PER_SEC) };
		pthread_cond_timedwait(&w->more, &w->lock, &t);
		see_signal(w);
		for (unsigned i = 0; i < w->n_workers && w->progress->stop; i++)
			pthread_kill(w->workers[i].thread, CLI_INTERRUPT_SIGNAL);
		pthread_mutex_unlock(&w->lock);
		pthread_mutex_lock(&w->tell);
		cli_progress_draw(w->progress);
		pthread_mutex_unlock(&w->tell);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->n_workers; i++)
		pthread_join(w->workers[i].thread, NULL);
	cli_progress_clear(w->progress);
}

/* ---- errors ---- */

bool tree_server_lost(struct tree_walk *w)
{
	bool lost;

	pthread_mutex_lock(&w->tell);
	lost = w->lost != 0;
	pthread_mutex_unlock(&w->tell);
	return lost;
}

void tree_count_left(struct tree_walk *w, int err)
{
	pthread_mutex_lock(&w->tell);
	w->n_left++;
	w->unsure |= cli_no_answer(err);
	pthread_mutex_unlock(&w->tell);
}

void tree_check(struct tree_walk *w, const char *shown, int err)
{
	if (!cli_no_answer(err))
		return;
	pthread_mutex_lock(&w->tell);
	if (!w->lost) {
		w->lost = err;
		sheaf_set_timeout(w->c->fs, CLI_STATUS_MS);
		snprintf(w->lost_at, sizeof(w->lost_at), "%s", shown);
		w->progress->stop = true;
	}
	pthread_mutex_unlock(&w->tell);
}

int tree_fail(struct tree_walk *w, const char *shown, bool host, int err)
{
	bool full = err == -ENOSPC || err == -EDQUOT;
	char why[CLI_WHY_MAX] = "no room left on this host";

	if (!host)
		tree_check(w, shown, err);
	pthread_mutex_lock(&w->tell);
	if (!w->progress->stop) { /* otherwise the error is a consequence of stopping */
		cli_progress_clear(w->progress);
		if (full && !host)
			cli_error_text(w->c, err, why);
		if (full)
			cli_error(w->c, "%s: %s; nothing more is done", shown, why);
		else if (host)
			cli_fail_host(w->c, shown, err);
		else
			cli_fail(w->c, shown, err);
		if (full)
			w->progress->stop = true;
	}
	pthread_mutex_unlock(&w->tell);
	return CLI_FAILED;
}

int tree_fail_dir(struct tree_walk *w, struct cli_dir *d, const char *shown, bool host, int err)
{
	bool first;

	pthread_mutex_lock(&w->lock);
	first = !d->skip;
	d->skip = true;
	pthread_mutex_unlock(&w->lock);
	return first ? tree_fail(w, shown, host, err) : CLI_FAILED;
}

int tree_error(struct tree_walk *w, const char *fmt, ...)
{
	char line[2 * TREE_SHOWN];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&w->tell);
	if (!w->progress->stop) {
		cli_progress_clear(w->progress);
		cli_error(w->c, "%s", line);
	}
	pthread_mutex_unlock(&w->tell);
	return CLI_FAILED;
}

/* Prints in one line why the walk stopped early, if not printed yet, and what it left behind. */
static void say_end(struct tree_walk *w)
{
	char left[64] = "", what[TREE_SHOWN + sizeof(left)];

	if (w->n_left)
		snprintf(left, sizeof(left), " (%u .sheaf-cp-%d-* %sleft behind)", w->n_left,
			 getpid(), w->unsure ? "may be " : "");
	snprintf(what, sizeof(what), "%s%s", w->lost_at, left);
	if (w->interrupted && w->status)
		cli_error(w->c, "interrupted, not all is done%s", left);
	else if (w->lost)
		cli_fail(w->c, what, w->lost);
	else if (w->n_left)
		cli_error(w->c, "not all temporary files could be removed%s", left);
}

/* ---- entry point ---- */

int tree_run(struct tree_walk *w, struct cli_dir *root)
{
	pthread_condattr_t monotonic;
	int r;

	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->tell, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->more, &monotonic);
	pthread_condattr_destroy(&monotonic);
	w->workers = calloc(w->jobs, sizeof(*w->workers));
	w->progress->started = time_now();
	dir_push(w, root);
	r = w->workers ? start(w) : -ENOMEM;
	if (r) {
		w->status = cli_fail_host(w->c, "a thread", r);
		dir_finish(w, root);
	} else {
		conduct(w);
		say_end(w);
	}
	free(w->workers);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->tell);
	pthread_cond_destroy(&w->more);
	return cli_signal ? CLI_FAILED : w->status;
}
