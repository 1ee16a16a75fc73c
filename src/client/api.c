/* The public interface: blocking calls and started operations on top of the client's step machines.
 * Names and attributes are in api_names.c.
 *
 * Threads: one lock guards the loop and all that belongs to it; it is released only while the
 * leader waits for sockets. A thread that waits for an operation drives the loop for all waiters
 * (leader); other waiting threads sleep until their operation is done or the lead is free
 * (followers). So a blocking call of a single thread costs no hand-over. A helper thread, otherwise
 * asleep, drives when operations are under way and no thread waits for them, and when a timer is
 * due (leases). A thread that drives permanently (api_drive.c) always leads: all others follow, and
 * its own calls park the task that makes them. */
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/api_impl.h"
#include "sheaf_admin.h"

#define HELPER_GRACE_NS NSEC_PER_MSEC /* the application may take the lead within this */
#define HELPER_NAP_NS (100 * NSEC_PER_MSEC) /* until the helper checks a loop that has a leader */

struct waiter {
	struct list link;
	pthread_cond_t cond;
	const struct sheaf_tasks *tasks; /* of `task` */
	void *task; /* the waiting task; NULL: a thread waits */
};

#define DIR_PAGE 512

struct sheaf_dir {
	struct sheaf *fs;
	struct sheaf_handle h;
	uint64_t cookie;
	int n, at;
	bool end;
	struct sheaf_dirent page[DIR_PAGE];
	struct stat *st; /* attributes of the page, or NULL */
};

struct sheaf_op { /* in the arena of its cop */
	struct sheaf *fs;
	struct cop *op;
};

static __thread char why[512];

void why_set(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
}

const char *sheaf_why(void)
{
	return why;
}

const char *sheaf_strerror(int err)
{
	return error_text(err);
}

/* ---- driving ---- */

static uint64_t now_of(struct sheaf *fs)
{
	struct env *e = fs->b.loop->env;

	return e->clock->now(e);
}

/* When the loop's next timer is due. */
static uint64_t next_timer(const struct loop *l)
{
	return l->n_heap ? l->heap[0]->when : UINT64_MAX;
}

void api_turn(struct sheaf *fs, uint64_t max_ns)
{
	struct loop *l = fs->b.loop;
	struct env *e = l->env;
	uint64_t ns;
	int n;

	loop_run_late(l); /* flushes what tasks have started */
	ns = MIN(loop_wait_ns(l), max_ns);
	fs->lead_until = MIN(next_timer(l), max_ns == UINT64_MAX ? max_ns : now_of(fs) + max_ns);
	pthread_mutex_unlock(&fs->lock);
	n = e->sock->poll(e, l, ns);
	pthread_mutex_lock(&fs->lock);
	l->calls++;
	l->now = e->clock->now(e);
	if (n > 0)
		e->sock->dispatch(e, l);
	loop_run_ready(l);
}

/* Runs one turn of the loop as its leader. */
static void lead(struct sheaf *fs, uint64_t max_ns)
{
	fs->driving = true;
	api_turn(fs, max_ns);
	fs->driving = false;
}

static bool work(struct sheaf *fs)
{
	return fs->b.loop->n_reqs > 0 || fs->b.client->net.n_dialling > 0 ||
	       loop_wait_ns(fs->b.loop) == 0;
}

/* When the helper must drive if no other thread does. */
static uint64_t help_due(struct sheaf *fs)
{
	return work(fs) ? now_of(fs) + HELPER_GRACE_NS : next_timer(fs->b.loop);
}

/* The lead may be free: wakes a waiting thread to take it, or the helper if none waits and there is
 * work. A helper that will check in time by itself is not woken: that would cost every blocking
 * call two context switches. */
static void hand_over(struct sheaf *fs)
{
	struct waiter *w = list_first(&fs->waiters, struct waiter, link);

	if (fs->driving)
		return;
	if (w)
		pthread_cond_signal(&w->cond);
	else if (help_due(fs) < fs->help_until)
		pthread_cond_signal(&fs->help);
}

void api_started(struct sheaf *fs)
{
	struct loop *l = fs->b.loop;

	do {
		while (!list_empty(&l->runnable))
			loop_run_reqs(l);
		if (fs->tasks && fs->tasks->current())
			return; /* sent before the next turn, together with what other tasks send */
		loop_run_late(l);
	} while (!list_empty(&l->runnable)); /* sending may find a link broken */
	if (fs->driving && next_timer(l) < fs->lead_until)
		loop_wake(l);
}

static void op_done(struct cop *op)
{
	struct waiter *w = op->user;

	if (w && w->task)
		w->tasks->resume(w->task);
	else if (w)
		pthread_cond_signal(&w->cond);
}

/* Parks the task, which belongs to the driving thread, until op is done. */
static void park(struct sheaf *fs, struct cop *op, void *task)
{
	struct waiter w = { .tasks = fs->tasks, .task = task };

	op->user = &w;
	pthread_mutex_unlock(&fs->lock);
	w.tasks->park(task);
	pthread_mutex_lock(&fs->lock);
	assert(op->finished);
	op->user = NULL;
}

/* Sleeps until the lead may be free, or the operation of this waiter is done. */
static void follow(struct sheaf *fs, struct waiter *w)
{
	if (fs->helping)
		loop_wake(fs->b.loop); /* the helper gives up the lead */
	list_push(&fs->waiters, &w->link);
	pthread_cond_wait(&w->cond, &fs->lock);
	list_del(&w->link);
}

void api_follow(struct sheaf *fs)
{
	struct waiter w = { .task = NULL };

	list_init(&w.link);
	pthread_cond_init(&w.cond, NULL);
	follow(fs, &w);
	pthread_cond_destroy(&w.cond);
}

int64_t api_finish(struct sheaf *fs, struct cop *op)
{
	void *task = fs->tasks ? fs->tasks->current() : NULL;
	struct waiter w = { .task = NULL };

	if (!op->finished && task)
		park(fs, op, task);
	if (op->finished)
		return op->result;
	list_init(&w.link);
	pthread_cond_init(&w.cond, NULL);
	op->user = &w;
	while (!op->finished) {
		if (!fs->driving) {
			lead(fs, UINT64_MAX);
			continue;
		}
		follow(fs, &w);
	}
	op->user = NULL;
	pthread_cond_destroy(&w.cond);
	return op->result;
}

void api_leave(struct sheaf *fs, struct cop *op)
{
	cop_free(op);
	hand_over(fs);
	pthread_mutex_unlock(&fs->lock);
}

static void abs_time(struct timespec *ts, uint64_t ns)
{
	ts->tv_sec = (time_t)(ns / NSEC_PER_SEC);
	ts->tv_nsec = (long)(ns % NSEC_PER_SEC);
}

static void *helper(void *arg)
{
	struct sheaf *fs = arg;
	struct timespec ts;

	pthread_mutex_lock(&fs->lock);
	while (!fs->stop) {
		fs->help_until = help_due(fs);
		if (fs->driving) /* hand_over() wakes the helper earlier if needed */
			fs->help_until = MAX(fs->help_until, now_of(fs) + HELPER_NAP_NS);
		abs_time(&ts, fs->help_until);
		if (pthread_cond_timedwait(&fs->help, &fs->lock, &ts) == 0 || fs->driving)
			continue; /* something changed: check again */
		fs->helping = true;
		while (!fs->stop && !fs->driving && list_empty(&fs->waiters) && work(fs))
			lead(fs, NSEC_PER_SEC);
		fs->helping = false;
		hand_over(fs);
	}
	pthread_mutex_unlock(&fs->lock);
	return NULL;
}

/* ---- connections ---- */

int sheaf_wrap(const struct sheaf_backing *b, struct sheaf **out)
{
	struct sheaf *fs = calloc(1, sizeof(*fs));
	pthread_condattr_t monotonic;
	sigset_t all, old;
	int r;

	if (!fs)
		return -ENOMEM;
	r = tracer_open(&fs->tracer);
	if (r) {
		free(fs);
		return r;
	}
	fs->b = *b;
	list_init(&fs->waiters);
	pthread_mutex_init(&fs->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&fs->help, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sigfillset(&all); /* signals are for the application's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&fs->helper, NULL, helper, fs);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		tracer_close(fs->tracer);
		free(fs);
		return -r;
	}
	*out = fs;
	return 0;
}

struct cop *api_begin(struct sheaf *fs, const struct sheaf_cred *c)
{
	struct cop *op;

	pthread_mutex_lock(&fs->lock);
	op = cop_new(fs->b.client, c);
	if (op)
		op->done = op_done;
	else
		pthread_mutex_unlock(&fs->lock);
	return op;
}

int64_t api_end(struct sheaf *fs, struct cop *op)
{
	int64_t r;

	api_started(fs);
	r = api_finish(fs, op);
	api_leave(fs, op);
	return r;
}

void sheaf_set_timeout(struct sheaf *fs, int timeout_ms)
{
	pthread_mutex_lock(&fs->lock);
	client_set_timeout(fs->b.client, (uint64_t)MAX(timeout_ms, 1) * NSEC_PER_MSEC);
	pthread_mutex_unlock(&fs->lock);
}

void sheaf_disconnect(struct sheaf *fs)
{
	struct cop *op;

	if (!fs)
		return;
	op = api_begin(fs, NULL);
	if (op) {
		client_bye(op);
		api_end(fs, op);
	}
	api_free(fs);
}

void api_free(struct sheaf *fs)
{
	pthread_mutex_lock(&fs->lock);
	fs->stop = true;
	pthread_cond_signal(&fs->help);
	loop_wake(fs->b.loop);
	pthread_mutex_unlock(&fs->lock);
	pthread_join(fs->helper, NULL);
	client_free(fs->b.client);
	fs->b.teardown(fs->b.owner);
	pthread_mutex_destroy(&fs->lock);
	pthread_cond_destroy(&fs->help);
	tracer_close(fs->tracer);
	free(fs);
}

/* ---- transfers ---- */

const struct sheaf_cred api_nobody = { .uid = 65534, .gid = 65534 };

static_assert(sizeof(struct sheaf_extent) == sizeof(struct extent), "an extent is an extent");

static void start_list(struct cop *op, struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
		       const struct sheaf_extent *ext, size_t n_ext, bool write)
{
	const struct extent *e = (const struct extent *)ext;

	if (write)
		client_write(op, f->f, mem, n_mem, e, n_ext);
	else
		client_read(op, f->f, mem, n_mem, e, n_ext);
}

static void start_plain(struct cop *op, struct sheaf_file *f, void *buf, size_t len, off_t off,
			bool write)
{
	op->one_mem = (struct iovec){ buf, len };
	op->one_ext = (struct extent){ off < 0 ? UINT64_MAX : (uint64_t)off, len };
	if (write)
		client_write(op, f->f, &op->one_mem, 1, &op->one_ext, 1);
	else
		client_read(op, f->f, &op->one_mem, 1, &op->one_ext, 1);
}

static void trace_plain(struct sheaf_file *f, struct traced how, const void *buf, size_t len,
			off_t off)
{
	struct iovec mem = { (void *)(uintptr_t)buf, len };
	struct sheaf_extent ext = { (uint64_t)off, len };

	trace_list(f, &how, &mem, 1, &ext, 1);
}

static ssize_t ask_plain(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write)
{
	struct cop *op = api_begin(f->fs, &api_nobody);

	if (!op)
		return -ENOMEM;
	start_plain(op, f, buf, len, off, write);
	return api_end(f->fs, op);
}

static ssize_t plain(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write)
{
	uint64_t began = trace_begin(f->fs);
	ssize_t r;

	if (off < 0)
		return -EINVAL;
	r = write ? -EAGAIN : api_read_direct(f, buf, len, (uint64_t)off);
	if (r == -EAGAIN)
		r = ask_plain(f, buf, len, off, write);
	if (began)
		trace_plain(f, (struct traced){ write, false, began, r }, buf, len, off);
	return r;
}

ssize_t sheaf_pread(struct sheaf_file *f, void *buf, size_t len, off_t off)
{
	return plain(f, buf, len, off, false);
}

ssize_t sheaf_pwrite(struct sheaf_file *f, const void *buf, size_t len, off_t off)
{
	return plain(f, (void *)(uintptr_t)buf, len, off, true);
}

ssize_t sheaf_append(struct sheaf_file *f, const void *buf, size_t len)
{
	uint64_t began = trace_begin(f->fs);
	struct cop *op = api_begin(f->fs, &api_nobody);
	ssize_t r;

	if (!op)
		return -ENOMEM;
	op->one_mem = (struct iovec){ (void *)(uintptr_t)buf, len };
	op->one_ext = (struct extent){ 0, len };
	client_append(op, f->f, &op->one_mem, 1, &op->one_ext, 1);
	r = api_end(f->fs, op);
	if (began)
		trace_plain(f, (struct traced){ true, true, began, r }, buf, len, 0);
	return r;
}

static ssize_t list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
		    const struct sheaf_extent *ext, size_t n_ext, bool write)
{
	struct traced how = { write, false, trace_begin(f->fs), 0 };
	struct cop *op = api_begin(f->fs, &api_nobody);

	if (!op)
		return -ENOMEM;
	start_list(op, f, mem, n_mem, ext, n_ext, write);
	how.result = api_end(f->fs, op);
	if (how.began)
		trace_list(f, &how, mem, n_mem, ext, n_ext);
	return how.result;
}

ssize_t sheaf_read_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			const struct sheaf_extent *ext, size_t n_ext)
{
	return list(f, mem, n_mem, ext, n_ext, false);
}

ssize_t sheaf_write_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			 const struct sheaf_extent *ext, size_t n_ext)
{
	return list(f, mem, n_mem, ext, n_ext, true);
}

struct cop *api_begin_op(struct sheaf *fs, struct sheaf_op **out)
{
	struct cop *op = api_begin(fs, &api_nobody);

	if (!op)
		return NULL;
	*out = arena_alloc(&op->arena, sizeof(**out));
	if (!*out) {
		api_leave(fs, op);
		return NULL;
	}
	**out = (struct sheaf_op){ fs, op };
	return op;
}

int api_give(struct sheaf *fs)
{
	api_started(fs);
	hand_over(fs);
	pthread_mutex_unlock(&fs->lock);
	return 0;
}

static int plain_start(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write,
		       struct sheaf_op **out)
{
	struct cop *op = off < 0 ? NULL : api_begin_op(f->fs, out);

	if (!op)
		return off < 0 ? -EINVAL : -ENOMEM;
	start_plain(op, f, buf, len, off, write);
	api_give(f->fs);
	if (f->fs->tracer)
		trace_plain(f, (struct traced){ .write = write }, buf, len, off);
	return 0;
}

int sheaf_pread_start(struct sheaf_file *f, void *buf, size_t len, off_t off, struct sheaf_op **op)
{
	return plain_start(f, buf, len, off, false, op);
}

int sheaf_pwrite_start(struct sheaf_file *f, const void *buf, size_t len, off_t off,
		       struct sheaf_op **op)
{
	return plain_start(f, (void *)(uintptr_t)buf, len, off, true, op);
}

static int list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
		      const struct sheaf_extent *ext, size_t n_ext, bool write,
		      struct sheaf_op **out)
{
	struct cop *op = api_begin_op(f->fs, out);

	if (!op)
		return -ENOMEM;
	start_list(op, f, mem, n_mem, ext, n_ext, write);
	api_give(f->fs);
	if (f->fs->tracer)
		trace_list(f, &(struct traced){ .write = write }, mem, n_mem, ext, n_ext);
	return 0;
}

int sheaf_read_list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			  const struct sheaf_extent *ext, size_t n_ext, struct sheaf_op **op)
{
	return list_start(f, mem, n_mem, ext, n_ext, false, op);
}

int sheaf_write_list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			   const struct sheaf_extent *ext, size_t n_ext, struct sheaf_op **op)
{
	return list_start(f, mem, n_mem, ext, n_ext, true, op);
}

ssize_t sheaf_wait(struct sheaf_op *o)
{
	struct sheaf *fs = o->fs;
	struct cop *op = o->op;

	pthread_mutex_lock(&fs->lock);
	return api_end(fs, op);
}

int sheaf_test(struct sheaf_op *o, ssize_t *result)
{
	struct sheaf *fs = o->fs;
	struct cop *op = o->op;

	pthread_mutex_lock(&fs->lock);
	if (!op->finished && !fs->driving)
		lead(fs, 0);
	if (op->finished) {
		*result = op->result;
		api_leave(fs, op);
		return 1;
	}
	hand_over(fs);
	pthread_mutex_unlock(&fs->lock);
	return 0;
}

/* ---- files ---- */

struct sheaf_handle sheaf_root(struct sheaf *fs)
{
	(void)fs;
	return (struct sheaf_handle){ 1, 1 };
}

int sheaf_h_open_stat(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		      const char *name, int flags, mode_t mode, const struct sheaf_layout *layout,
		      struct sheaf_file **out, struct stat *st, unsigned *what)
{
	struct sheaf_file *f = calloc(1, sizeof(*f));
	struct cop *op = f ? api_begin(fs, c) : NULL;
	int r;

	api_after(NULL);
	if (!op) {
		free(f);
		return -ENOMEM;
	}
	client_open(op, dir, name ? name : "", flags, mode, layout);
	api_started(fs);
	r = (int)api_finish(fs, op);
	f->fs = fs;
	f->f = op->file;
	if (!r) {
		f->f->user = f;
		attr_to_stat(&op->res.open.at, st);
		api_after(&op->res.open.after);
		*what = op->res.open.created	  ? SHEAF_OPEN_CREATED :
			op->res.open.at.unsettled ? SHEAF_OPEN_GROWING :
						    0;
	}
	api_leave(fs, op);
	if (r)
		free(f);
	else
		*out = f;
	return r;
}

int sheaf_h_open(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		 const char *name, int flags, mode_t mode, const struct sheaf_layout *layout,
		 struct sheaf_file **f)
{
	struct stat st;
	unsigned what;

	return sheaf_h_open_stat(fs, c, dir, name, flags, mode, layout, f, &st, &what);
}

int sheaf_open(struct sheaf *fs, const char *path, int flags, mode_t mode,
	       const struct sheaf_layout *layout, struct sheaf_file **f)
{
	return sheaf_h_open(fs, NULL, sheaf_root(fs), path, flags, mode, layout, f);
}

/* Detects links that broke since the last turn of the loop. */
static void look(struct sheaf *fs)
{
	if (!fs->driving)
		lead(fs, 0);
}

static int close_file(struct sheaf_file *f, bool later)
{
	struct sheaf *fs = f->fs;
	struct cop *op = api_begin(fs, NULL);
	int r;

	if (!op)
		return -ENOMEM;
	look(fs);
	op->later = later;
	client_close(op, f->f);
	r = (int)api_end(fs, op);
	free(f);
	return r;
}

int sheaf_close(struct sheaf_file *f)
{
	return close_file(f, false);
}

int sheaf_close_later(struct sheaf_file *f)
{
	return close_file(f, true);
}

int sheaf_flush(struct sheaf_file *f)
{
	struct sheaf *fs = f->fs;
	struct cop *op;
	bool clean;

	pthread_mutex_lock(&fs->lock);
	look(fs);
	clean = cfile_clean(f->f);
	api_give(fs);
	if (clean)
		return 0;
	op = api_begin(fs, NULL);
	if (!op)
		return -ENOMEM;
	client_flush(op, f->f);
	return (int)api_end(fs, op);
}

struct sheaf_handle sheaf_file_handle(struct sheaf_file *f)
{
	return cfile_handle(f->f);
}

uint64_t sheaf_file_change(struct sheaf_file *f)
{
	return cfile_change(f->f);
}

int sheaf_fsync(struct sheaf_file *f)
{
	struct cop *op = api_begin(f->fs, NULL);

	if (!op)
		return -ENOMEM;
	client_fsync(op, f->f);
	return (int)api_end(f->fs, op);
}

int sheaf_fstat(struct sheaf_file *f, struct stat *st)
{
	return sheaf_h_getattr(f->fs, NULL, cfile_handle(f->f), st);
}

int sheaf_ftruncate(struct sheaf_file *f, off_t size)
{
	struct cop *op;

	if (size < 0 || !cfile_writable(f->f))
		return -EINVAL;
	op = api_begin(f->fs, NULL);
	if (!op)
		return -ENOMEM;
	client_ftruncate(op, f->f, (uint64_t)size);
	return (int)api_end(f->fs, op);
}

static int allocate_mode(int mode, uint32_t *out)
{
	switch (mode) {
	case 0:
	case FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
		*out = (uint32_t)mode; /* the wire uses the same values */
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

int sheaf_fallocate(struct sheaf_file *f, int mode, off_t off, off_t len)
{
	uint32_t how;
	int64_t r = off < 0 || len <= 0 ? -EINVAL : allocate_mode(mode, &how);
	struct cop *op = r ? NULL : api_begin(f->fs, &api_nobody);

	if (!op)
		return r ? (int)r : -ENOMEM;
	client_allocate(op, f->f, how, (uint64_t)off, (uint64_t)len);
	r = api_end(f->fs, op);
	return r < 0 ? (int)r : 0;
}

off_t sheaf_seek(struct sheaf_file *f, off_t off, int whence)
{
	struct cop *op;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (off < 0)
		return -ENXIO;
	op = api_begin(f->fs, &api_nobody);
	if (!op)
		return -ENOMEM;
	client_seek(op, f->f, (uint64_t)off, whence == SEEK_HOLE);
	return api_end(f->fs, op);
}

ssize_t sheaf_copy_range(struct sheaf_file *in, off_t off_in, struct sheaf_file *out, off_t off_out,
			 size_t len)
{
	struct cop *op;

	if (in->fs != out->fs)
		return -EXDEV;
	if (off_in < 0 || off_out < 0)
		return -EINVAL;
	op = api_begin(out->fs, &api_nobody);
	if (!op)
		return -ENOMEM;
	client_copy(op, in->f, (uint64_t)off_in, out->f, (uint64_t)off_out, len);
	return api_end(out->fs, op);
}

/* ---- directories ---- */

int sheaf_opendir(struct sheaf *fs, const char *path, struct sheaf_dir **out)
{
	struct sheaf_dir *d = calloc(1, sizeof(*d));
	struct stat st;
	int r = d ? api_stat(fs, path, &d->h, &st) : -ENOMEM;

	if (!r && !S_ISDIR(st.st_mode))
		r = -ENOTDIR;
	if (r) {
		free(d);
		return r;
	}
	d->fs = fs;
	*out = d;
	return 0;
}

/* Reads the next page: the number of entries, 0 at the end, or -errno. */
static int turn_page(struct sheaf_dir *d)
{
	int n = 0;

	if (!d->end && d->st)
		n = sheaf_h_readdir_stat(d->fs, NULL, d->h, d->cookie, d->page, d->st, DIR_PAGE);
	else if (!d->end)
		n = sheaf_h_readdir(d->fs, NULL, d->h, d->cookie, d->page, DIR_PAGE);
	d->end |= n == 0;
	d->n = MAX(n, 0);
	d->at = 0;
	return n;
}

int sheaf_readdir(struct sheaf_dir *d, struct sheaf_dirent *e)
{
	int n = d->at == d->n ? turn_page(d) : 1;

	if (n <= 0)
		return n;
	*e = d->page[d->at++];
	d->cookie = e->cookie;
	return 1;
}

int sheaf_readdir_stat(struct sheaf_dir *d, struct sheaf_dirent *e, struct stat *st)
{
	int r;

	if (!d->st) { /* the current page has none: read its rest again */
		d->st = calloc(DIR_PAGE, sizeof(*d->st));
		if (!d->st)
			return -ENOMEM;
		d->at = d->n = 0;
	}
	r = sheaf_readdir(d, e);
	if (r > 0)
		*st = d->st[d->at - 1];
	return r;
}

void sheaf_seekdir(struct sheaf_dir *d, uint64_t cookie)
{
	d->cookie = cookie;
	d->at = d->n = 0;
	d->end = false;
}

void sheaf_closedir(struct sheaf_dir *d)
{
	free(d->st);
	free(d);
}

/* ---- servers ---- */

uint64_t sheaf_calls(struct sheaf *fs)
{
	uint64_t n;

	pthread_mutex_lock(&fs->lock);
	n = fs->b.loop->calls;
	pthread_mutex_unlock(&fs->lock);
	return n;
}

int sheaf_server_count(struct sheaf *fs)
{
	int n;

	pthread_mutex_lock(&fs->lock);
	n = (int)client_targets(fs->b.client);
	pthread_mutex_unlock(&fs->lock);
	return n;
}

int sheaf_server_status(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s)
{
	const struct conf_target *t;
	const struct wire_status_res *r;
	struct cop *op;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = api_begin(fs, NULL);
	if (!op)
		return -ENOMEM;
	t = client_target(fs->b.client, (uint32_t)i);
	*s = (struct sheaf_server){ .id = t->id, .roles = t->roles };
	snprintf(s->name, sizeof(s->name), "%s", t->name);
	snprintf(s->address, sizeof(s->address), "%s", t->address);
	client_status(op, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	api_started(fs);
	r = &op->res.status;
	if (api_finish(fs, op) == 0) {
		s->up = 1;
		s->pid = r->pid;
		s->links = r->links;
		s->sessions = r->sessions;
		s->load = r->load;
		s->in_service = r->in_service;
		s->uptime_ns = r->uptime_ns;
		s->rss_bytes = r->rss_bytes;
		s->anon_bytes = r->anon_bytes;
		s->requests = r->requests;
		s->calls = r->calls;
		s->space_total = r->space_total;
		s->space_avail = r->space_avail;
		s->pool_bytes = r->pool_bytes;
		s->pool_free = r->pool_free;
		s->pool_waits = r->pool_waits;
		s->bad_links = r->bad_links;
		s->refused = r->refused;
		s->slow_inline = r->slow_inline;
		s->disk_inline = r->disk_inline;
		s->disk_handed = r->disk_handed;
		s->bytes_read = r->bytes_read;
		s->bytes_written = r->bytes_written;
		s->storage = r->storage;
		s->incarnation = r->incarnation;
	}
	api_leave(fs, op);
	return 0;
}

int sheaf_statfs(struct sheaf *fs, struct statvfs *st)
{
	struct cop *op = api_begin(fs, NULL);
	int r;

	if (!op)
		return -ENOMEM;
	client_statfs(op);
	api_started(fs);
	r = (int)api_finish(fs, op);
	*st = (struct statvfs){ .f_bsize = 256 * KIB, .f_frsize = 4096, .f_namemax = 255 };
	st->f_blocks = op->space_total / st->f_frsize;
	st->f_bfree = st->f_bavail = op->space_avail / st->f_frsize;
	api_leave(fs, op);
	return r;
}

int sheaf_ping(struct sheaf *fs, int i)
{
	struct cop *op;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = api_begin(fs, NULL);
	if (!op)
		return -ENOMEM;
	client_ping(op, (uint32_t)i);
	return (int)api_end(fs, op);
}

static void text(char *out, size_t n, struct wire_bytes b)
{
	snprintf(out, n, "%.*s", (int)b.len, (const char *)b.p);
}

int sheaf_server_requests(struct sheaf *fs, int i, int timeout_ms, struct sheaf_request *rows,
			  int max)
{
	const struct wire_requests_res *r;
	struct cop *op;
	int n = 0;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = api_begin(fs, NULL);
	if (!op)
		return -ENOMEM;
	client_requests(op, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	api_started(fs);
	n = (int)api_finish(fs, op);
	r = &op->res.requests;
	for (; n >= 0 && n < max && n < (int)r->n_rows; n++) {
		const struct wire_request_info *q = &r->rows[n];

		rows[n] = (struct sheaf_request){ .age_ns = q->age_ns,
						  .state_ns = q->state_ns,
						  .trace = q->trace,
						  .session = q->session,
						  .ino = q->ino,
						  .uid = q->uid };
		text(rows[n].op, sizeof(rows[n].op), q->op);
		text(rows[n].state, sizeof(rows[n].state), q->state);
		text(rows[n].client, sizeof(rows[n].client), q->client);
	}
	api_leave(fs, op);
	return n;
}
