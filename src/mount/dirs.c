/* Open directories. The kernel asks for some entries at a time; a page of them is read ahead from
 * the server.
 *
 * An offset is the server's cookie plus two, for "." and "..", so a successor of this daemon can
 * use it. The page is only a cache, and read again when it is missing. A listing also returns
 * attributes, which the kernel caches for a while. */
#include <stdlib.h>

#include "mount/mount_priv.h"

#define DOTS 2

static struct mdir *dir_find(struct mount *m, uint64_t fh)
{
	struct hnode *n = htab_first(&m->dirs, hash_u64(fh));

	while (n && container_of(n, struct mdir, node)->fh != fh)
		n = htab_next(n);
	return n ? container_of(n, struct mdir, node) : NULL;
}

/* References the directory with this number (0: a new one); NULL: out of memory. */
static struct mdir *dir_get(struct mount *m, fuse_ino_t ino, uint64_t fh)
{
	struct mdir *d;

	pthread_mutex_lock(&m->lock);
	d = fh ? dir_find(m, fh) : NULL;
	if (!d) {
		d = calloc(1, sizeof(*d));
		if (d && htab_insert(&m->dirs, &d->node, hash_u64(fh ? fh : m->next_fh))) {
			free(d);
			d = NULL;
		}
		if (d) {
			d->fh = fh ? fh : m->next_fh++;
			d->h = handle_of(ino);
			d->refs = 1; /* the table's */
			pthread_mutex_init(&d->lock, NULL);
		}
	}
	if (d)
		d->refs++;
	pthread_mutex_unlock(&m->lock);
	return d;
}

static void page_free(struct mdir *d)
{
	free(d->page);
	free(d->st);
	d->page = NULL;
	d->st = NULL;
	d->n = d->at = 0;
}

static void dir_put(struct mount *m, struct mdir *d)
{
	bool last;

	pthread_mutex_lock(&m->lock);
	last = --d->refs == 0;
	pthread_mutex_unlock(&m->lock);
	if (last) {
		page_free(d);
		pthread_mutex_destroy(&d->lock);
		free(d);
	}
}

static void dir_drop(struct mount *m, uint64_t fh)
{
	struct mdir *d;

	pthread_mutex_lock(&m->lock);
	d = dir_find(m, fh);
	if (d)
		htab_remove(&m->dirs, &d->node);
	pthread_mutex_unlock(&m->lock);
	if (d)
		dir_put(m, d);
}

struct last_known {
	uint64_t ino;
	struct stat *st;
	bool found;
};

static void look_known(struct hnode *n, void *arg)
{
	struct mdir *d = container_of(n, struct mdir, node);
	struct last_known *k = arg;

	if (d->h.ino != k->ino || !d->self.st_mode)
		return;
	*k->st = d->self;
	k->found = true;
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);
	struct mdir *d = NULL;
	struct stat st;
	int r = sheaf_h_getattr(w->m->fs, NULL, handle_of(ino), &st);

	if (!r)
		d = dir_get(w->m, ino, 0);
	if (!d) {
		req_answer(w, r ? r : -ENOMEM);
		return;
	}
	pthread_mutex_lock(&w->m->lock);
	d->self = st;
	pthread_mutex_unlock(&w->m->lock);
	d->sets_atime = wants_atime(w->m, &st, O_RDONLY);
	fi->fh = d->fh;
	dir_put(w->m, d);
	req = req_take(w);
	if (!req || fuse_reply_open(req, fi))
		dir_drop(w->m, fi->fh);
}

bool dir_last_known(struct mount *m, uint64_t ino, struct stat *st)
{
	struct last_known k = { ino, st, false };

	pthread_mutex_lock(&m->lock);
	htab_walk(&m->dirs, look_known, &k);
	pthread_mutex_unlock(&m->lock);
	if (k.found)
		st->st_nlink = 0;
	return k.found;
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct worker *w = req_begin(req);

	(void)ino;
	dir_drop(w->m, fi->fh);
	req_answer(w, 0);
}

/* Names are durable when they are acknowledged. */
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	req_answer(req_begin(req), 0);
}

static int read_entries(struct mount *m, struct mdir *d, const struct sheaf_cred *c,
			uint64_t cookie, bool plus, int max)
{
	return plus ? sheaf_h_readdir_stat(m->fs, c, d->h, cookie, d->page, d->st, max) :
		      sheaf_h_readdir(m->fs, c, d->h, cookie, d->page, max);
}

/* Reads the entries after the cookie; their number, 0 at the end (then no page is kept), -errno. */
static int page_read(struct mount *m, struct mdir *d, struct caller *c, uint64_t cookie, bool plus)
{
	int n, max = cookie ? DIR_PAGE : DIR_FIRST;

	page_free(d);
	d->page = malloc((size_t)max * sizeof(*d->page));
	d->st = malloc((size_t)max * sizeof(*d->st));
	if (!d->page || !d->st)
		return -ENOMEM;
	do
		n = read_entries(m, d, &c->cred, cookie, plus, max);
	while (caller_should_retry(c, n));
	if (n == -EACCES) /* it was readable when it was opened */
		n = read_entries(m, d, NULL, cookie, plus, max);
	if (n <= 0)
		page_free(d);
	d->n = MAX(n, 0);
	d->start = cookie;
	d->plus = plus;
	return n;
}

/* Gets the entry after the cookie; 1, 0 at the end, -errno. */
static int dir_next(struct mount *m, struct mdir *d, struct caller *c, uint64_t cookie, bool plus,
		    const struct sheaf_dirent **e, const struct stat **st)
{
	if (d->at >= d->n || d->next != cookie || (plus && !d->plus)) {
		int n = page_read(m, d, c, cookie, plus);

		if (n <= 0)
			return n;
	}
	*e = &d->page[d->at];
	*st = &d->st[d->at];
	d->at++;
	d->next = (*e)->cookie;
	return 1;
}

/* Adds one entry; false: it does not fit. */
static bool add(fuse_req_t req, struct mount *m, bool plus, char **p, size_t *room,
		const char *name, const struct stat *st, bool named, off_t next)
{
	struct fuse_entry_param e = { 0 };
	size_t n;

	if (plus && named) {
		entry_of(m, st, &e);
		e.entry_timeout = m->o.entry_s; /* else the kernel would look each one up again */
	} else {
		e.attr = *st; /* inode 0: the kernel does not cache it */
	}
	n = plus ? fuse_add_direntry_plus(req, *p, *room, name, &e, next) :
		   fuse_add_direntry(req, *p, *room, name, st, next);
	if (n > *room)
		return false;
	*p += n;
	*room -= n;
	if (plus && named && S_ISREG(st->st_mode))
		hint_listed(m, st->st_ino);
	return true;
}

/* Fills the buffer with entries from the offset on; number of bytes, or -errno. */
static ssize_t fill(fuse_req_t req, struct mount *m, struct mdir *d, struct caller *c, char *buf,
		    size_t size, off_t off, bool plus)
{
	struct stat dot = { .st_ino = d->h.ino, .st_mode = S_IFDIR };
	struct sheaf_handle up;
	const struct sheaf_dirent *e;
	const struct stat *st;
	size_t room = size;
	char *p = buf;
	int r = 1;

	for (; off < DOTS; off++) {
		if (off && sheaf_h_lookup(m->fs, NULL, d->h, "..", &up, NULL) == 0)
			dot.st_ino = up.ino;
		if (!add(req, m, plus, &p, &room, off ? ".." : ".", &dot, false, off + 1))
			return p - buf;
	}
	if (d->sets_atime && !m->read_only) {
		inode_set_atime(m, d->h.ino);
		dir_forget(m, d->h.ino);
	}
	d->sets_atime &= sets_atime_always(m);
	while (r > 0) {
		struct stat plain;

		r = dir_next(m, d, c, (uint64_t)off - DOTS, plus, &e, &st);
		if (r <= 0)
			break;
		plain = (struct stat){ .st_ino = e->ino, .st_mode = e->type };
		off = (off_t)e->cookie + DOTS;
		if (!add(req, m, plus, &p, &room, e->name, plus ? st : &plain,
			 plus && st->st_nlink && e->gen == SHEAF_GEN, off)) {
			d->at--; /* the next request starts with it */
			d->next = d->at ? d->page[d->at - 1].cookie : d->start;
			break;
		}
	}
	return r < 0 && p == buf ? r : p - buf;
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi,
		 bool plus)
{
	struct worker *w = req_begin(req);
	struct mdir *d;
	struct caller c;
	char *buf = worker_out(w);
	ssize_t n;

	if (!runs_on_thread(w)) /* it blocks while another request reads this directory */
		return;
	d = dir_get(w->m, ino, fi->fh);
	if (!d || off < 0) {
		if (d)
			dir_put(w->m, d);
		req_answer(w, off < 0 ? -EINVAL : -ENOMEM);
		return;
	}
	caller_init(&c, w);
	pthread_mutex_lock(&d->lock);
	n = fill(req, w->m, d, &c, buf, MIN(size, REQUEST_MAX), off, plus);
	pthread_mutex_unlock(&d->lock);
	dir_put(w->m, d);
	req_answer_bytes(w, n, buf);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, true);
}
