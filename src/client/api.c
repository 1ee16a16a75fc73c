/* The public interface: blocking calls and started operations over the client's step machines.
 *
 * Threads: one lock guards the loop and all that hangs on it; it is given up only while the driver waits for
 * sockets. Whoever waits for an operation drives the loop for everybody (leader); others that wait sleep
 * until their own operation is done or the lead is free (followers). So a blocking call of a single thread
 * costs no hand-over. A helper thread, asleep otherwise, drives when operations are under way and nobody
 * waits for them, and when a timer is due (leases). */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/cli_priv.h"

#define HELPER_GRACE_NS 1000000 /* an application that comes back within this drives itself */

struct sheaf {
	struct sheaf_backing b;
	pthread_mutex_t lock;
	pthread_cond_t help;
	pthread_t helper;
	struct list waiters; /* threads in a blocking call that do not lead */
	bool driving; /* somebody is the leader */
	bool helping; /* and it is the helper */
	uint64_t lead_until; /* when its wait ends by itself */
	bool stop;
};

struct waiter {
	struct list link;
	pthread_cond_t cond;
};

struct sheaf_file {
	struct sheaf *fs;
	struct cfile *f;
};

#define DIR_PAGE 128

struct sheaf_dir {
	struct sheaf *fs;
	struct sheaf_handle h;
	uint64_t cookie;
	int n, at;
	bool end;
	struct sheaf_dirent page[DIR_PAGE];
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

/* One turn of the loop as its leader. The lock is held before and after, not while waiting. */
static void lead(struct sheaf *fs, uint64_t max_ns)
{
	struct loop *l = fs->b.loop;
	struct env *e = l->env;
	uint64_t ns = MIN(loop_wait_ns(l), max_ns);
	int n;

	fs->driving = true;
	fs->lead_until = ns == UINT64_MAX ? ns : now_of(fs) + ns;
	pthread_mutex_unlock(&fs->lock);
	n = e->sock->poll(e, l, ns);
	pthread_mutex_lock(&fs->lock);
	l->now = e->clock->now(e);
	if (n > 0)
		e->sock->dispatch(e, l);
	loop_run_ready(l);
	fs->driving = false;
}

/* The lead is free: somebody who waits takes it, or the helper when nobody does and there is work. */
static void hand_over(struct sheaf *fs)
{
	struct waiter *w = list_first(&fs->waiters, struct waiter, link);

	if (w)
		pthread_cond_signal(&w->cond);
	else if (fs->b.loop->n_reqs)
		pthread_cond_signal(&fs->help);
}

/* An operation was started: what it made runnable runs, and a leader that would sleep too long wakes. */
static void started(struct sheaf *fs)
{
	struct loop *l = fs->b.loop;
	uint64_t ns;

	while (!list_empty(&l->runnable))
		loop_run_ready(l);
	ns = loop_wait_ns(l);
	if (fs->driving && ns != UINT64_MAX && now_of(fs) + ns < fs->lead_until)
		loop_wake(l);
}

static void op_done(struct cop *op)
{
	struct waiter *w = op->user;

	if (w)
		pthread_cond_signal(&w->cond);
}

/* Waits for an operation: leads, or follows who does. */
static int64_t finish(struct sheaf *fs, struct cop *op)
{
	struct waiter w;

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
		if (fs->helping)
			loop_wake(fs->b.loop); /* the helper steps back */
		list_push(&fs->waiters, &w.link);
		pthread_cond_wait(&w.cond, &fs->lock);
		list_del(&w.link);
	}
	op->user = NULL;
	pthread_cond_destroy(&w.cond);
	if (!fs->driving)
		hand_over(fs);
	return op->result;
}

static void abs_time(struct timespec *ts, uint64_t ns)
{
	ts->tv_sec = (time_t)(ns / NSEC_PER_SEC);
	ts->tv_nsec = (long)(ns % NSEC_PER_SEC);
}

static bool work(struct sheaf *fs)
{
	return fs->b.loop->n_reqs > 0 || loop_wait_ns(fs->b.loop) == 0;
}

static void *helper(void *arg)
{
	struct sheaf *fs = arg;
	struct timespec ts;

	pthread_mutex_lock(&fs->lock);
	while (!fs->stop) {
		uint64_t ns = work(fs) ? HELPER_GRACE_NS : loop_wait_ns(fs->b.loop);

		if (fs->driving || ns == UINT64_MAX) {
			pthread_cond_wait(&fs->help, &fs->lock);
			continue;
		}
		abs_time(&ts, now_of(fs) + ns);
		if (pthread_cond_timedwait(&fs->help, &fs->lock, &ts) == 0)
			continue; /* something changed: look again */
		fs->helping = true;
		while (!fs->stop && !fs->driving && list_empty(&fs->waiters) && work(fs))
			lead(fs, NSEC_PER_SEC);
		fs->helping = false;
		if (!fs->driving)
			hand_over(fs);
	}
	pthread_mutex_unlock(&fs->lock);
	return NULL;
}

/* ---- life ---- */

int sheaf_wrap(const struct sheaf_backing *b, struct sheaf **out)
{
	struct sheaf *fs = calloc(1, sizeof(*fs));
	pthread_condattr_t monotonic;
	int r;

	if (!fs)
		return -ENOMEM;
	fs->b = *b;
	list_init(&fs->waiters);
	pthread_mutex_init(&fs->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&fs->help, &monotonic);
	pthread_condattr_destroy(&monotonic);
	r = pthread_create(&fs->helper, NULL, helper, fs);
	if (r) {
		free(fs);
		return -r;
	}
	*out = fs;
	return 0;
}

static struct cop *begin(struct sheaf *fs, const struct sheaf_cred *c)
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

/* Waits, frees the operation, lets go of the lock. */
static int64_t end(struct sheaf *fs, struct cop *op)
{
	int64_t r;

	started(fs);
	r = finish(fs, op);
	cop_free(op);
	pthread_mutex_unlock(&fs->lock);
	return r;
}

void sheaf_disconnect(struct sheaf *fs)
{
	struct cop *op;

	if (!fs)
		return;
	op = begin(fs, NULL);
	if (op) {
		client_bye(op);
		end(fs, op);
	}
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
	free(fs);
}

/* ---- transfers ---- */

/* Data are guarded by the capability of the open file, not by who asks now. */
static const struct sheaf_cred nobody = { 65534, 65534, 0, NULL };

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

static ssize_t plain(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write)
{
	struct cop *op;

	if (off < 0)
		return -EINVAL;
	op = begin(f->fs, &nobody);
	if (!op)
		return -ENOMEM;
	start_plain(op, f, buf, len, off, write);
	return end(f->fs, op);
}

ssize_t sheaf_pread(struct sheaf_file *f, void *buf, size_t len, off_t off)
{
	return plain(f, buf, len, off, false);
}

ssize_t sheaf_pwrite(struct sheaf_file *f, const void *buf, size_t len, off_t off)
{
	return plain(f, (void *)(uintptr_t)buf, len, off, true);
}

static ssize_t list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
		    const struct sheaf_extent *ext, size_t n_ext, bool write)
{
	struct cop *op = begin(f->fs, &nobody);

	if (!op)
		return -ENOMEM;
	start_list(op, f, mem, n_mem, ext, n_ext, write);
	return end(f->fs, op);
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

/* Begins an operation that somebody will wait for later; the lock is held until give(). */
static struct cop *begin_op(struct sheaf *fs, struct sheaf_op **out)
{
	struct cop *op = begin(fs, &nobody);

	if (!op)
		return NULL;
	*out = arena_alloc(&op->arena, sizeof(**out));
	if (!*out) {
		cop_free(op);
		pthread_mutex_unlock(&fs->lock);
		return NULL;
	}
	**out = (struct sheaf_op){ fs, op };
	return op;
}

static int give(struct sheaf *fs)
{
	started(fs);
	if (!fs->driving)
		hand_over(fs);
	pthread_mutex_unlock(&fs->lock);
	return 0;
}

static int plain_start(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write,
		       struct sheaf_op **out)
{
	struct cop *op = off < 0 ? NULL : begin_op(f->fs, out);

	if (!op)
		return off < 0 ? -EINVAL : -ENOMEM;
	start_plain(op, f, buf, len, off, write);
	return give(f->fs);
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
	struct cop *op = begin_op(f->fs, out);

	if (!op)
		return -ENOMEM;
	start_list(op, f, mem, n_mem, ext, n_ext, write);
	return give(f->fs);
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
	return end(fs, op);
}

int sheaf_test(struct sheaf_op *o, ssize_t *result)
{
	struct sheaf *fs = o->fs;
	struct cop *op = o->op;
	bool finished;

	pthread_mutex_lock(&fs->lock);
	if (!op->finished && !fs->driving)
		lead(fs, 0);
	if (!fs->driving)
		hand_over(fs);
	finished = op->finished;
	if (finished) {
		*result = op->result;
		cop_free(op);
	}
	pthread_mutex_unlock(&fs->lock);
	return finished;
}

/* ---- files ---- */

struct sheaf_handle sheaf_root(struct sheaf *fs)
{
	(void)fs;
	return (struct sheaf_handle){ 1, 1 };
}

int sheaf_h_open(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		 const char *name, int flags, mode_t mode, const struct sheaf_layout *layout,
		 struct sheaf_file **out)
{
	struct sheaf_file *f = calloc(1, sizeof(*f));
	struct cop *op = f ? begin(fs, c) : NULL;
	int r;

	if (!op) {
		free(f);
		return -ENOMEM;
	}
	client_open(op, dir, name ? name : "", flags, mode, layout);
	started(fs);
	r = (int)finish(fs, op);
	f->fs = fs;
	f->f = op->file;
	cop_free(op);
	pthread_mutex_unlock(&fs->lock);
	if (r)
		free(f);
	else
		*out = f;
	return r;
}

int sheaf_open(struct sheaf *fs, const char *path, int flags, mode_t mode,
	       const struct sheaf_layout *layout, struct sheaf_file **f)
{
	return sheaf_h_open(fs, NULL, sheaf_root(fs), path, flags, mode, layout, f);
}

int sheaf_close(struct sheaf_file *f)
{
	struct sheaf *fs = f->fs;
	struct cop *op = begin(fs, NULL);
	int r;

	if (!op)
		return -ENOMEM;
	if (!fs->driving)
		lead(fs, 0); /* nobody looked at the links since: one may have broken */
	client_close(op, f->f);
	r = (int)end(fs, op);
	free(f);
	return r;
}

struct sheaf_handle sheaf_file_handle(struct sheaf_file *f)
{
	return cfile_handle(f->f);
}

int sheaf_fsync(struct sheaf_file *f)
{
	struct cop *op = begin(f->fs, NULL);

	if (!op)
		return -ENOMEM;
	client_fsync(op, f->f);
	return (int)end(f->fs, op);
}

/* Ends a stat-like operation. */
static int end_stat(struct sheaf *fs, struct cop *op, struct sheaf_handle *h, struct stat *st)
{
	int r;

	started(fs);
	r = (int)finish(fs, op);
	if (!r && st)
		attr_to_stat(&op->attr, st);
	if (!r && h)
		*h = (struct sheaf_handle){ op->attr.ino, op->attr.gen };
	cop_free(op);
	pthread_mutex_unlock(&fs->lock);
	return r;
}

int sheaf_fstat(struct sheaf_file *f, struct stat *st)
{
	return sheaf_h_getattr(f->fs, NULL, cfile_handle(f->f), st);
}

int sheaf_ftruncate(struct sheaf_file *f, off_t size)
{
	return sheaf_h_truncate(f->fs, NULL, cfile_handle(f->f), size);
}

/* ---- names: the handle layer ---- */

int sheaf_h_lookup(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		   const char *name, struct sheaf_handle *out, struct stat *st)
{
	struct cop *op = begin(fs, c);

	if (!op)
		return -ENOMEM;
	client_stat(op, dir, name);
	return end_stat(fs, op, out, st);
}

int sheaf_h_getattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		    struct stat *st)
{
	struct cop *op = begin(fs, c);

	if (!op)
		return -ENOMEM;
	client_getattr(op, h);
	return end_stat(fs, op, NULL, st);
}

int sheaf_h_setattr(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		    unsigned which, const struct stat *in, struct stat *out)
{
	struct cop *op = begin(fs, c);
	int r;

	if (!op)
		return -ENOMEM;
	client_setattr(op, h, which, in);
	r = (int)end(fs, op);
	return r || !out ? r : sheaf_h_getattr(fs, c, h, out);
}

int sheaf_h_mkdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		  const char *name, mode_t mode, struct sheaf_handle *out)
{
	struct cop *op = begin(fs, c);
	int r;

	if (!op)
		return -ENOMEM;
	client_mkdir(op, dir, name, mode);
	started(fs);
	r = (int)finish(fs, op);
	if (!r && out)
		*out = (struct sheaf_handle){ op->res.attr.at.ino, op->res.attr.at.gen };
	cop_free(op);
	pthread_mutex_unlock(&fs->lock);
	return r;
}

int sheaf_h_unlink(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		   const char *name)
{
	struct cop *op = begin(fs, c);

	if (!op)
		return -ENOMEM;
	client_unlink(op, dir, name);
	return (int)end(fs, op);
}

int sheaf_h_rmdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		  const char *name)
{
	struct cop *op = begin(fs, c);

	if (!op)
		return -ENOMEM;
	client_rmdir(op, dir, name);
	return (int)end(fs, op);
}

int sheaf_h_rename(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		   const char *name, struct sheaf_handle dir2, const char *name2, unsigned flags)
{
	struct cop *op = begin(fs, c);

	if (!op)
		return -ENOMEM;
	client_rename(op, dir, name, dir2, name2, flags);
	return (int)end(fs, op);
}

int sheaf_h_truncate(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle h,
		     off_t size)
{
	struct cop *op = size < 0 ? NULL : begin(fs, c);

	if (!op)
		return size < 0 ? -EINVAL : -ENOMEM;
	client_truncate(op, h, (uint64_t)size);
	return (int)end(fs, op);
}

int sheaf_h_readdir(struct sheaf *fs, const struct sheaf_cred *c, struct sheaf_handle dir,
		    uint64_t cookie, struct sheaf_dirent *out, int max)
{
	struct cop *op = max < 1 ? NULL : begin(fs, c);
	int r;

	if (!op)
		return max < 1 ? -EINVAL : -ENOMEM;
	client_readdir(op, dir, cookie, (uint32_t)max);
	started(fs);
	r = (int)finish(fs, op);
	for (uint32_t i = 0; !r && i < op->res.readdir.n_entries && i < (uint32_t)max; i++) {
		const struct wire_dir_entry *e = &op->res.readdir.entries[i];

		out[i] = (struct sheaf_dirent){ .ino = e->h.ino,
						.cookie = e->cookie,
						.type = e->type };
		memcpy(out[i].name, e->name.p, e->name.len);
	}
	if (!r)
		r = (int)MIN(op->res.readdir.n_entries, (uint32_t)max);
	cop_free(op);
	pthread_mutex_unlock(&fs->lock);
	return r;
}

/* ---- names: paths ---- */

int sheaf_stat(struct sheaf *fs, const char *path, struct stat *st)
{
	return sheaf_h_lookup(fs, NULL, sheaf_root(fs), path, NULL, st);
}

int sheaf_unlink(struct sheaf *fs, const char *path)
{
	return sheaf_h_unlink(fs, NULL, sheaf_root(fs), path);
}

int sheaf_mkdir(struct sheaf *fs, const char *path, mode_t mode)
{
	return sheaf_h_mkdir(fs, NULL, sheaf_root(fs), path, mode, NULL);
}

int sheaf_rmdir(struct sheaf *fs, const char *path)
{
	return sheaf_h_rmdir(fs, NULL, sheaf_root(fs), path);
}

int sheaf_rename(struct sheaf *fs, const char *from, const char *to)
{
	return sheaf_h_rename(fs, NULL, sheaf_root(fs), from, sheaf_root(fs), to, 0);
}

static int at_path(struct sheaf *fs, const char *path, struct sheaf_handle *h)
{
	return sheaf_h_lookup(fs, NULL, sheaf_root(fs), path, h, NULL);
}

int sheaf_truncate(struct sheaf *fs, const char *path, off_t size)
{
	struct sheaf_handle h;
	int r = at_path(fs, path, &h);

	return r ? r : sheaf_h_truncate(fs, NULL, h, size);
}

static int set_at(struct sheaf *fs, const char *path, unsigned which, const struct stat *st)
{
	struct sheaf_handle h;
	int r = at_path(fs, path, &h);

	return r ? r : sheaf_h_setattr(fs, NULL, h, which, st, NULL);
}

int sheaf_chmod(struct sheaf *fs, const char *path, mode_t mode)
{
	return set_at(fs, path, SHEAF_SET_MODE, &(struct stat){ .st_mode = mode });
}

int sheaf_chown(struct sheaf *fs, const char *path, uid_t uid, gid_t gid)
{
	unsigned which = (uid == (uid_t)-1 ? 0 : SHEAF_SET_UID) |
			 (gid == (gid_t)-1 ? 0 : SHEAF_SET_GID);

	return set_at(fs, path, which, &(struct stat){ .st_uid = uid, .st_gid = gid });
}

int sheaf_utimens(struct sheaf *fs, const char *path, const struct timespec ts[2])
{
	static const unsigned set[2] = { SHEAF_SET_ATIME, SHEAF_SET_MTIME };
	static const unsigned now[2] = { SHEAF_SET_ATIME_NOW, SHEAF_SET_MTIME_NOW };
	struct stat st = { 0 };
	unsigned which = 0;

	for (int i = 0; i < 2; i++) {
		if (!ts || ts[i].tv_nsec == UTIME_NOW)
			which |= now[i];
		else if (ts[i].tv_nsec != UTIME_OMIT)
			which |= set[i];
	}
	if (ts) {
		st.st_atim = ts[0];
		st.st_mtim = ts[1];
	}
	return which ? set_at(fs, path, which, &st) : 0;
}

/* ---- directories ---- */

int sheaf_opendir(struct sheaf *fs, const char *path, struct sheaf_dir **out)
{
	struct sheaf_dir *d = calloc(1, sizeof(*d));
	struct stat st;
	int r = d ? sheaf_h_lookup(fs, NULL, sheaf_root(fs), path, &d->h, &st) : -ENOMEM;

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

int sheaf_readdir(struct sheaf_dir *d, struct sheaf_dirent *e)
{
	if (d->at == d->n) {
		int n = d->end ? 0 :
				 sheaf_h_readdir(d->fs, NULL, d->h, d->cookie, d->page, DIR_PAGE);

		if (n <= 0) {
			d->end = n == 0;
			return n;
		}
		d->n = n;
		d->at = 0;
	}
	*e = d->page[d->at++];
	d->cookie = e->cookie;
	return 1;
}

void sheaf_seekdir(struct sheaf_dir *d, uint64_t cookie)
{
	d->cookie = cookie;
	d->at = d->n = 0;
	d->end = false;
}

void sheaf_closedir(struct sheaf_dir *d)
{
	free(d);
}

/* ---- servers ---- */

int sheaf_server_count(struct sheaf *fs)
{
	return (int)client_targets(fs->b.client);
}

int sheaf_server_status(struct sheaf *fs, int i, int timeout_ms, struct sheaf_server *s)
{
	const struct conf_target *t;
	const struct wire_status_res *r;
	struct cop *op;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = begin(fs, NULL);
	if (!op)
		return -ENOMEM;
	t = client_target(fs->b.client, (uint32_t)i);
	*s = (struct sheaf_server){ .id = t->id, .roles = t->roles };
	snprintf(s->name, sizeof(s->name), "%s", t->name);
	snprintf(s->address, sizeof(s->address), "%s", t->address);
	client_status(op, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	started(fs);
	r = &op->res.status;
	if (finish(fs, op) == 0) {
		s->up = 1;
		s->pid = r->pid;
		s->links = r->links;
		s->sessions = r->sessions;
		s->in_service = r->in_service;
		s->uptime_ns = r->uptime_ns;
		s->rss_bytes = r->rss_bytes;
		s->anon_bytes = r->anon_bytes;
		s->requests = r->requests;
		s->space_total = r->space_total;
		s->space_avail = r->space_avail;
		s->pool_bytes = r->pool_bytes;
		s->pool_free = r->pool_free;
		s->pool_waits = r->pool_waits;
		s->bad_links = r->bad_links;
		s->slow_inline = r->slow_inline;
		s->disk_inline = r->disk_inline;
		s->disk_handed = r->disk_handed;
	}
	cop_free(op);
	pthread_mutex_unlock(&fs->lock);
	return 0;
}

int sheaf_ping(struct sheaf *fs, int i)
{
	struct cop *op;

	if (i < 0 || i >= sheaf_server_count(fs))
		return -EINVAL;
	op = begin(fs, NULL);
	if (!op)
		return -ENOMEM;
	client_ping(op, (uint32_t)i);
	return (int)end(fs, op);
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
	op = begin(fs, NULL);
	if (!op)
		return -ENOMEM;
	client_requests(op, (uint32_t)i, (uint64_t)timeout_ms * NSEC_PER_MSEC);
	started(fs);
	n = (int)finish(fs, op);
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
	cop_free(op);
	pthread_mutex_unlock(&fs->lock);
	return n;
}
