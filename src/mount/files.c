/* Open files. The kernel knows each by a number that this daemon chose and that a successor keeps.
 *
 * Coherence: what was written and closed on one mount is seen by later opens on another. At an open
 * the kernel drops the pages of the file, unless nothing has changed since the last open, and
 * attributes that it has from a listing. Files opened with O_APPEND are not cached: each write is
 * appended at the end that the servers know. */
#include <fcntl.h>
#include <stdlib.h>

#include "mount/mount_priv.h"

#define COPY_MOST (64 * MIB) /* in one request: it holds a thread, and the answer has 32 bits */
#define SMALL (128 * KIB) /* largest transfer that the reactor does itself */
#define FMODE_EXEC 0x20 /* in the kernel: opened for execution */

/* ---- the table ---- */

int files_init(struct mount *m)
{
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->closed, NULL);
	list_init(&m->closing);
	m->next_fh = 1;
	if (htab_init(&m->files) || htab_init(&m->dirs) || htab_init(&m->holders))
		return -ENOMEM;
	return 0;
}

static struct mfile *find(struct mount *m, uint64_t fh)
{
	struct hnode *n = htab_first(&m->files, hash_u64(fh));

	while (n && container_of(n, struct mfile, node)->fh != fh)
		n = htab_next(n);
	return n ? container_of(n, struct mfile, node) : NULL;
}

struct mfile *file_get(struct mount *m, uint64_t fh)
{
	struct mfile *f;

	pthread_mutex_lock(&m->lock);
	f = find(m, fh);
	if (f)
		f->refs++;
	pthread_mutex_unlock(&m->lock);
	return f;
}

/* A file that may have been written and is being closed. The kernel does not wait for that, but a
 * time that is set meanwhile must persist. */
struct closing {
	struct list link;
	uint64_t ino;
};

static bool is_closing(const struct mount *m, uint64_t ino)
{
	const struct closing *c;

	list_for_each(c, &m->closing, link)
		if (c->ino == ino)
			return true;
	return false;
}

void files_await_close(struct worker *w, uint64_t ino)
{
	struct mount *m = w->m;

	pthread_mutex_lock(&m->lock);
	while (is_closing(m, ino))
		worker_await(w, &m->closed, &m->lock);
	pthread_mutex_unlock(&m->lock);
}

void file_put(struct mount *m, struct mfile *f)
{
	struct closing c = { .ino = f->ino };
	unsigned left;
	int r;

	list_init(&c.link);
	pthread_mutex_lock(&m->lock);
	left = --f->refs;
	if (!left && (f->flags & O_ACCMODE) != O_RDONLY)
		list_push(&m->closing, &c.link);
	pthread_mutex_unlock(&m->lock);
	if (left)
		return;
	if (f->plain)
		sheaf_close(f->plain);
	r = sheaf_close_later(f->f);
	if (r)
		log_warn("mount", "inode %llx: close failed: %s", (unsigned long long)f->ino,
			 error_text(r));
	pthread_mutex_lock(&m->lock);
	list_del(&c.link);
	worker_changed(m, &m->closed);
	pthread_mutex_unlock(&m->lock);
	free(f);
}

/* Removes the file from the table; it is closed when its last user is done. */
static void drop(struct mount *m, uint64_t fh)
{
	struct mfile *f;

	pthread_mutex_lock(&m->lock);
	f = find(m, fh);
	if (f)
		htab_remove(&m->files, &f->node);
	pthread_mutex_unlock(&m->lock);
	if (f)
		file_put(m, f);
}

int file_add(struct mount *m, struct sheaf_file *sf, int flags, uint64_t fh, struct mfile **out)
{
	struct mfile *f = calloc(1, sizeof(*f));
	int r;

	if (!f) {
		sheaf_close(sf);
		return -ENOMEM;
	}
	f->f = sf;
	f->ino = sheaf_file_handle(sf).ino;
	f->flags = flags;
	f->refs = 1;
	pthread_mutex_lock(&m->lock);
	f->fh = fh ? fh : m->next_fh;
	m->next_fh = MAX(m->next_fh, f->fh + 1);
	r = htab_insert(&m->files, &f->node, hash_u64(f->fh));
	pthread_mutex_unlock(&m->lock);
	if (r) {
		file_put(m, f);
		return r;
	}
	*out = f;
	return 0;
}

/* ---- open and create ---- */

#define OPEN_KEPT (O_ACCMODE | O_APPEND | O_TRUNC)

/* The flags with which to open a file that the kernel opens with `flags`. */
static int open_flags(const struct mount *m, int flags)
{
	int f = flags & OPEN_KEPT;

	if (!m->o.writeback)
		return f;
	if ((f & O_ACCMODE) == O_WRONLY) /* the kernel reads to complete partial pages */
		f = (f & ~O_ACCMODE) | O_RDWR;
	return f & ~O_APPEND; /* the kernel knows the end */
}

/* After a refusal: asks for no more than the caller did, if open_flags() added the right to read.
 * True: try again. */
static bool open_as_asked(const struct fuse_file_info *fi, int r, int *flags)
{
	int asked = fi->flags & O_ACCMODE;

	if (r != -EACCES || (*flags & O_ACCMODE) == asked)
		return false;
	*flags = (*flags & ~O_ACCMODE) | asked;
	return true;
}

static bool is_later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

bool wants_atime(const struct mount *m, const struct stat *st, int flags)
{
	struct timespec now;

	if (m->read_only || m->o.atime == ATIME_NEVER || (flags & O_ACCMODE) == O_WRONLY ||
	    (flags & O_NOATIME))
		return false;
	if (m->o.no_dir_atime && S_ISDIR(st->st_mode))
		return false;
	if (m->o.atime == ATIME_ALWAYS)
		return true;
	clock_gettime(CLOCK_REALTIME, &now);
	return !is_later(st->st_atim, st->st_mtim) || !is_later(st->st_atim, st->st_ctim) ||
	       now.tv_sec - st->st_atim.tv_sec >= 24 * 3600;
}

/* True if every read sets the access time, not only the first one after an open. */
bool sets_atime_always(const struct mount *m)
{
	return m->o.atime == ATIME_ALWAYS;
}

/* Makes an open file for the kernel, opened with these flags; takes over sf. */
static int opened(struct mount *m, struct sheaf_file *sf, const struct stat *st, int flags,
		  bool growing, struct fuse_file_info *fi)
{
	bool stuck = hint_stuck(m, st->st_ino);
	struct mfile *f;
	int r = file_add(m, sf, flags & OPEN_KEPT, 0, &f);

	if (r)
		return r;
	f->sets_atime = wants_atime(m, st, fi->flags);
	fi->fh = f->fh;
	fi->direct_io = (fi->flags & O_DIRECT) || (f->flags & O_APPEND) ||
			(m->o.writeback && (f->flags & O_ACCMODE) == O_WRONLY); /* cannot read */
	/* Dropping pages would wait uninterruptibly for a read-ahead at a dead server. */
	fi->keep_cache = hint_opened(m, st->st_ino, sheaf_file_change(sf), growing || stuck) ||
			 stuck;
	return 0;
}

/* Opens by inode number, and tries again where the first answer is not the one that the kernel
 * should get. *flags: in and out. */
static int open_inode(struct worker *w, fuse_ino_t ino, const struct fuse_file_info *fi, int *flags,
		      struct sheaf_file **sf, struct stat *st, unsigned *what)
{
	struct mount *m = w->m;
	struct caller c;
	int r;

	caller_init(&c, w);
	do
		r = sheaf_h_open_stat(m->fs, &c.cred, handle_of(ino), NULL, *flags, 0, NULL, sf, st,
				      what);
	while (caller_should_retry(&c, r) || open_as_asked(fi, r, flags));
	/* The name was renamed over since the lookup, and the kernel would not look up twice: opens
	 * the inode without a name. Not if there may have been no lookup at all. */
	while (r == -ESTALE && lookup_memo_is_recent(w, ino)) {
		r = sheaf_h_open_stat(m->fs, &c.cred, handle_of(ino), NULL,
				      *flags | SHEAF_O_NAMELESS, 0, NULL, sf, st, what);
		if (!caller_should_retry(&c, r) && !open_as_asked(fi, r, flags))
			break;
		r = -ESTALE;
	}
	if (r == -ENOENT) /* the name has another inode now: makes the kernel look it up */
		r = -ESTALE;
	if (r == -EACCES && (fi->flags & FMODE_EXEC)) /* x is enough, and checked */
		r = sheaf_h_open_stat(m->fs, &cred_root, handle_of(ino), NULL, *flags, 0, NULL, sf,
				      st, what);
	return r;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mount *m = w->m;
	int flags = open_flags(m, fi->flags), r;
	unsigned what = 0;
	struct sheaf_file *sf;
	struct stat st;

	if (!worker_begin_change(w, ino, flags & O_TRUNC)) {
		req_answer(w, -EINTR);
		return;
	}
	r = open_inode(w, ino, fi, &flags, &sf, &st, &what);
	if (!r)
		r = opened(m, sf, &st, flags, what == SHEAF_OPEN_GROWING, fi);
	if (r) {
		req_answer(w, r);
		return;
	}
	/* The kernel may have cached attributes that are older than this open. */
	if (hint_was_listed(m, ino))
		fuse_lowlevel_notify_inval_inode(m->se, ino, -1, 0);
	req = req_take(w);
	if (!req || fuse_reply_open(req, fi))
		drop(m, fi->fh);
}

void op_create(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mount *m = w->m;
	struct dir_change d = dirs_begin(m, dir, 0, false);
	int flags = open_flags(m, fi->flags) | O_CREAT | O_NOFOLLOW | (fi->flags & O_EXCL);
	uint64_t sets = m->n_xattr_sets;
	struct fuse_entry_param e;
	struct sheaf_file *sf;
	struct caller c;
	struct stat st;
	unsigned what = 0;
	int r;

	caller_init(&c, w);
	if (mode & S_ISGID)
		caller_groups(&c); /* without them the server silently drops the bit */
	do
		r = sheaf_h_open_stat(m->fs, &c.cred, handle_of(dir), name, flags, mode, NULL, &sf,
				      &st, &what);
	while (caller_should_retry(&c, r) || open_as_asked(fi, r, &flags));
	dirs_end(m, &d, !r);
	if (!r && what == SHEAF_OPEN_GROWING) {
		r = sheaf_fstat(sf, &st);
		if (r)
			sheaf_close(sf);
	}
	if (!r)
		r = opened(m, sf, &st, flags, what == SHEAF_OPEN_GROWING, fi);
	if (r) {
		req_answer(w, r);
		return;
	}
	if (what == SHEAF_OPEN_CREATED)
		hint_set_lacks(m, st.st_ino, "security.capability", sets);
	entry_of(m, &st, &e);
	req = req_take(w);
	if (!req || fuse_reply_create(req, &e, fi))
		drop(m, fi->fh);
}

void inode_set_atime(struct mount *m, fuse_ino_t ino)
{
	sheaf_h_setattr(m->fs, NULL, handle_of(ino), SHEAF_SET_ATIME_READ, &(struct stat){ 0 },
			NULL);
}

/* ---- data ---- */

/* The open file of a request; NULL: none, and the request is answered. */
static struct mfile *file_of(struct worker *w, const struct fuse_file_info *fi)
{
	struct mfile *f = file_get(w->m, fi->fh);

	if (!f)
		req_answer(w, -EBADF);
	return f;
}

/* The kernel repeats a failed read-ahead page by page. After a timeout, reads fail at once for a
 * second, so that the pages do not take a timeout each. */
static ssize_t read_until_answered(struct mount *m, struct mfile *f, char *buf, size_t size,
				   off_t off)
{
	ssize_t n;

	if (f->fails_until > time_now())
		return -ETIMEDOUT;
	hint_reading(m, f->ino, true);
	n = sheaf_pread(f->f, buf, size, off);
	hint_reading(m, f->ino, false);
	if (is_network_error((int)n))
		f->fails_until = time_now() + NSEC_PER_SEC;
	return n;
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mfile *f = size > SMALL && !runs_on_thread(w) ? NULL : file_of(w, fi);
	char *buf = worker_out(w);
	ssize_t n;

	if (!f)
		return;
	n = read_until_answered(w->m, f, buf, MIN(size, REQUEST_MAX), off);
	if (n >= 0 && f->sets_atime && !w->m->read_only &&
	    (sets_atime_always(w->m) || atomic_exchange(&f->sets_atime, false)))
		inode_set_atime(w->m, ino);
	file_put(w->m, f);
	req_answer_bytes(w, n, buf);
}

/* fcntl() may clear O_APPEND: later writes have an offset and need an open without O_APPEND. */
static struct sheaf_file *plain_of(struct mount *m, struct mfile *f)
{
	struct sheaf_file *sf = f->plain, *other = NULL;

	if (sf || sheaf_h_open(m->fs, &cred_root, handle_of(f->ino), NULL, O_WRONLY, 0, NULL, &sf))
		return sf;
	if (atomic_compare_exchange_strong(&f->plain, &other, sf))
		return sf;
	sheaf_close(sf); /* another write opened it first */
	return other;
}

/* The kernel tells with each write whether it is an append. */
static ssize_t write_as_opened(struct mount *m, struct mfile *f, const char *buf, size_t size,
			       off_t off, const struct fuse_file_info *fi)
{
	bool append = (fi->flags & O_APPEND) && !m->o.writeback && !fi->writepage;
	struct sheaf_file *sf = f->f;

	if (append)
		return sheaf_append(sf, buf, size);
	if (f->flags & O_APPEND)
		sf = plain_of(m, f);
	return sf ? sheaf_pwrite(sf, buf, size, off) : -EIO;
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mfile *f = size > SMALL && !runs_on_thread(w) ? NULL : file_of(w, fi);
	ssize_t n;

	(void)ino;
	if (!f)
		return;
	n = worker_begin_change(w, f->ino, true) ? write_as_opened(w->m, f, buf, size, off, fi) :
						   -EINTR;
	file_put(w->m, f);
	req_answer_written(w, n);
}

/* Called at every close of a descriptor: reports data lost since the last fsync. */
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mfile *f = file_of(w, fi);
	int r;

	(void)ino;
	if (!f)
		return;
	if (!locks_close(w, f, fi->lock_owner)) {
		file_put(w->m, f);
		return;
	}
	r = (f->flags & O_ACCMODE) == O_RDONLY ? 0 : sheaf_flush(f->f);
	if (!r && f->plain)
		r = sheaf_flush(f->plain);
	file_put(w->m, f);
	req_answer(w, r);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);

	(void)ino;
	drop(w->m, fi->fh);
	req_answer(w, 0);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mfile *f = file_of(w, fi);
	int r;

	(void)ino;
	(void)datasync;
	if (!f)
		return;
	r = sheaf_fsync(f->f);
	if (!r && f->plain)
		r = sheaf_fsync(f->plain);
	file_put(w->m, f);
	req_answer(w, r);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mfile *f = file_of(w, fi);
	int r;

	(void)ino;
	if (!f)
		return;
	r = worker_begin_change(w, f->ino, true) ? sheaf_fallocate(f->f, mode, off, len) : -EINTR;
	file_put(w->m, f);
	req_answer(w, r);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mfile *f = file_of(w, fi);
	off_t at;

	(void)ino;
	if (!f)
		return;
	at = sheaf_seek(f->f, off, whence);
	file_put(w->m, f);
	req = req_take_result(w, at);
	if (req)
		fuse_reply_lseek(req, at);
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t off_in, struct fuse_file_info *fi_in,
			fuse_ino_t out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
			int flags)
{
	struct worker *w = req_begin(req);
	struct mfile *from = file_get(w->m, fi_in->fh), *to = file_get(w->m, fi_out->fh);
	ssize_t n = -EBADF;

	(void)in;
	(void)out;
	if (from && to)
		n = flags ? -EINVAL :
		    !worker_begin_change(w, to->ino, true) ?
			    -EINTR :
			    sheaf_copy_range(from->f, off_in, to->f, off_out, MIN(len, COPY_MOST));
	if (from)
		file_put(w->m, from);
	if (to)
		file_put(w->m, to);
	req_answer_written(w, n);
}
