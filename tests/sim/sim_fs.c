/* A simulated disk: an in-memory file system that models what a power loss may take away.
 *
 * A file consists of pages of 4 KiB; a page that was written keeps its durable contents beside the
 * cached ones until a sync. A directory has its names, its durable names, and the changes between
 * them. A power loss decides at random for each page, for the size, and for each change of a
 * directory whether it is kept; kept changes are applied in order where they are still possible (a
 * rename is one change). A failed sync reports its error once: afterwards its pages count as clean,
 * and some of them are not on the disk.
 *
 * Processes of one host may open each other's files; after a power loss such a descriptor refers to
 * an empty file.
 *
 * A submitted sync takes some time: it covers what was written before it began, and nothing is
 * durable before it ends.
 *
 * One thread. Unreachable inodes are freed now and then. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim_fs.h"

#define JOB_OPS 6 /* file operations of a job, roughly */

/* ---------------------------------------------------------------- names */

static size_t names_place(const struct names *t, const char *s, bool *found)
{
	size_t lo = 0, hi = t->n;

	*found = false;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int c = strcmp(t->v[mid].text, s);

		if (c == 0) {
			*found = true;
			return mid;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct inode *names_find(const struct names *t, const char *s)
{
	bool found;
	size_t i = names_place(t, s, &found);

	return found ? t->v[i].inode : NULL;
}

static char *text_copy(const char *s)
{
	char *p = sim_alloc(strlen(s) + 1);

	return strcpy(p, s);
}

static void names_set(struct names *t, const char *s, struct inode *ino)
{
	bool found;
	size_t i = names_place(t, s, &found);

	if (!found) {
		t->v = realloc(t->v, (t->n + 1) * sizeof(*t->v));
		if (!t->v)
			abort();
		memmove(t->v + i + 1, t->v + i, (t->n - i) * sizeof(*t->v));
		t->n++;
		t->v[i].text = text_copy(s);
	}
	t->v[i].inode = ino;
}

static void names_del(struct names *t, const char *s)
{
	bool found;
	size_t i = names_place(t, s, &found);

	if (!found)
		return;
	free(t->v[i].text);
	memmove(t->v + i, t->v + i + 1, (t->n - i - 1) * sizeof(*t->v));
	t->n--;
}

static void names_clear(struct names *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i].text);
	free(t->v);
	*t = (struct names){ NULL, 0 };
}

static void names_copy(struct names *to, const struct names *from)
{
	names_clear(to);
	for (size_t i = 0; i < from->n; i++)
		names_set(to, from->v[i].text, from->v[i].inode);
}

/* ---------------------------------------------------------------- changes of directories */

static void change_apply(struct names *t, const struct change *c)
{
	if (c->kind == CHANGE_SET) {
		names_set(t, c->a, c->inode);
	} else if (names_find(t, c->a) == c->inode) {
		names_del(t, c->a);
		if (c->kind == CHANGE_RENAME)
			names_set(t, c->b, c->inode);
	}
}

static void change_add(struct sim_fs *fs, struct inode *dir, enum change_kind kind, const char *a,
		       const char *b, struct inode *ino)
{
	struct change *c = sim_alloc(sizeof(*c));

	c->seq = ++fs->seq;
	c->kind = kind;
	c->a = text_copy(a);
	c->b = b ? text_copy(b) : NULL;
	c->inode = ino;
	list_push(&dir->changes, &c->link);
	change_apply(&dir->cur, c);
}

/* Frees the changes up to `seq`. */
static void changes_clear(struct inode *dir, uint64_t seq)
{
	struct change *c;

	while ((c = list_first(&dir->changes, struct change, link)) && c->seq <= seq) {
		list_del(&c->link);
		free(c->a);
		free(c->b);
		free(c);
	}
}

/* ---------------------------------------------------------------- pages */

static size_t page_place(const struct inode *i, uint64_t no)
{
	size_t lo = 0, hi = i->n_pages;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (i->pages[mid]->no < no)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct page *sim_page_find(const struct inode *i, uint64_t no)
{
	size_t at = page_place(i, no);

	return at < i->n_pages && i->pages[at]->no == no ? i->pages[at] : NULL;
}

static void page_drop(struct sim_fs *fs, struct inode *i, size_t at)
{
	if (i->pages[at]->cur != i->pages[at]->own)
		memset(i->pages[at]->cur, 0, PAGE);
	free(i->pages[at]->old);
	free(i->pages[at]);
	memmove(i->pages + at, i->pages + at + 1, (i->n_pages - at - 1) * sizeof(struct page *));
	i->n_pages--;
	fs->used--;
}

static void page_clean(struct page *p)
{
	free(p->old);
	p->old = NULL;
	p->dirty = p->lost = false;
}

void sim_page_dirty(struct sim_fs *fs, struct page *p)
{
	p->seq = ++fs->seq;
	if (!p->dirty && !p->lost) {
		p->old = sim_alloc(PAGE);
		memcpy(p->old, p->own, PAGE);
	}
	p->dirty = true;
	p->lost = false;
}

/* The page is about to change: keeps the contents that the disk has. */
static void page_touch(struct sim_fs *fs, struct page *p)
{
	sim_page_look(fs, p);
	sim_page_dirty(fs, p);
	p->touched = p->cur != p->own;
}

static bool is_full(struct sim_fs *fs)
{
	bool full = fs->node->capacity && (fs->used + 1) * PAGE > fs->node->capacity;

	fs->node->sim->injected[SIM_NO_SPACE] += full;
	return full;
}

struct page *sim_page_for_write(struct sim_fs *fs, struct inode *i, uint64_t no)
{
	size_t at = page_place(i, no);
	struct page *p;

	if (at < i->n_pages && i->pages[at]->no == no) {
		page_touch(fs, i->pages[at]);
		return i->pages[at];
	}
	if (is_full(fs))
		return NULL;
	if (i->n_pages == i->cap_pages) {
		i->cap_pages = i->cap_pages ? 2 * i->cap_pages : 8;
		i->pages = realloc(i->pages, i->cap_pages * sizeof(struct page *));
		if (!i->pages)
			abort();
	}
	p = sim_alloc(sizeof(*p));
	p->no = no;
	p->seq = ++fs->seq;
	p->dirty = true;
	sim_page_settle(i, p);
	p->touched = p->cur != p->own;
	memmove(i->pages + at + 1, i->pages + at, (i->n_pages - at) * sizeof(struct page *));
	i->pages[at] = p;
	i->n_pages++;
	fs->used++;
	return p;
}

/* Zeroes everything after `size`. keep: the disk still has the old contents. */
static void zero_behind(struct sim_fs *fs, struct inode *i, uint64_t size, bool keep)
{
	for (size_t at = i->n_pages; at > 0 && (i->pages[at - 1]->no + 1) * PAGE > size; at--) {
		struct page *p = i->pages[at - 1];
		size_t from = p->no * PAGE >= size ? 0 : (size_t)(size % PAGE);

		if (from == 0 && !i->n_syncs && (!keep || (p->dirty && !p->old))) {
			page_drop(fs, i, at - 1);
			continue;
		}
		if (keep)
			page_touch(fs, p);
		memset(p->cur + from, 0, PAGE - from);
	}
}

/* ---------------------------------------------------------------- inodes */

static struct inode *inode_new(struct sim_fs *fs, mode_t mode)
{
	struct inode *i = sim_alloc(sizeof(*i));

	i->fs = fs;
	i->ino = ++fs->next_ino;
	i->mode = mode;
	i->lock = -1;
	i->mtime = fs->node->env.clock->wall(&fs->node->env);
	list_init(&i->changes);
	list_push(&fs->inodes, &i->all);
	fs->n_inodes++;
	return i;
}

static void inode_free(struct sim_fs *fs, struct inode *i)
{
	while (i->n_pages)
		page_drop(fs, i, i->n_pages - 1);
	free(i->pages);
	names_clear(&i->cur);
	names_clear(&i->durable);
	changes_clear(i, UINT64_MAX);
	list_del(&i->all);
	fs->n_inodes--;
	free(i);
}

static void mark(struct inode *i)
{
	struct change *c;

	if (i->marked)
		return;
	i->marked = true;
	for (size_t k = 0; k < i->cur.n; k++)
		mark(i->cur.v[k].inode);
	for (size_t k = 0; k < i->durable.n; k++)
		mark(i->durable.v[k].inode);
	list_for_each(c, &i->changes, link)
		mark(c->inode);
}

/* Marks the inodes that descriptors of any node refer to. */
static void mark_open(const struct sim_fs *fs)
{
	const struct sim *s = fs->node->sim;

	for (uint32_t n = 0; n < s->n_nodes; n++) {
		const struct sim_fs *of = s->nodes[n]->fs;

		for (size_t k = 0; k < of->n_files; k++)
			if (of->files[k].inode && of->files[k].inode->fs == fs)
				mark(of->files[k].inode);
	}
}

static void sweep(struct sim_fs *fs)
{
	struct inode *i, *next;
	struct sync *y;

	list_for_each(i, &fs->inodes, all)
		i->marked = i->map != NULL;
	mark(fs->root);
	mark(fs->nothing);
	list_for_each(y, &fs->syncs, link)
		mark(y->inode);
	mark_open(fs);
	list_for_each_safe(i, next, &fs->inodes, all)
		if (!i->marked)
			inode_free(fs, i);
	fs->sweep_at = 2 * fs->n_inodes + 64;
}

/* ---------------------------------------------------------------- descriptors and paths */

int sim_fd_new(struct sim_fs *fs, struct inode *i, int flags)
{
	size_t k = 0;

	while (k < fs->n_files && fs->files[k].inode)
		k++;
	if (k == fs->n_files) {
		fs->n_files = fs->n_files ? 2 * fs->n_files : 64;
		fs->files = realloc(fs->files, fs->n_files * sizeof(*fs->files));
		if (!fs->files)
			abort();
		memset(fs->files + k, 0, (fs->n_files - k) * sizeof(*fs->files));
	}
	fs->files[k] = (struct file){ i, flags };
	return FIRST_FD + (int)k;
}

struct file *sim_fd_get(struct sim_fs *fs, int fd)
{
	size_t k = (size_t)(fd - FIRST_FD);

	if (fd < FIRST_FD || k >= fs->n_files || !fs->files[k].inode)
		return NULL;
	return &fs->files[k];
}

/* Walks to the last component: its directory in *dir, its name in `last` (empty: the directory
 * itself). */
static int walk_path(struct sim_fs *fs, int fd, const char *path, struct inode **dir,
		     char last[256])
{
	struct file *f = sim_fd_get(fs, fd);
	struct inode *at = fd == AT_FDCWD || path[0] == '/' ? fs->root : f ? f->inode : NULL;

	if (!at)
		return -EBADF;
	last[0] = 0;
	for (;;) {
		size_t n = strcspn(path, "/");

		if (last[0] && path[0]) { /* more components follow: it must be a directory */
			at = names_find(&at->cur, last);
			if (!at)
				return -ENOENT;
			last[0] = 0;
		}
		if (!S_ISDIR(at->mode))
			return -ENOTDIR;
		if (n > 255)
			return -ENAMETOOLONG;
		if (n && !(n == 1 && path[0] == '.'))
			snprintf(last, 256, "%.*s", (int)n, path);
		path += n;
		path += strspn(path, "/");
		if (!*path)
			break;
	}
	*dir = at;
	return 0;
}

struct sim_fs *sim_fs_of(struct env *e)
{
	struct sim_node *n = sim_node_of(e);

	if (n->up && n->crash_in_ops && !--n->crash_in_ops) {
		sim_db_stop(n);
		n->crashed(n->crashed_arg, sim_second_below(n->sim, 2));
	}
	return n->up ? n->fs : NULL;
}

int sim_openat(struct env *e, int dfd, const char *path, int flags, mode_t mode)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct inode *dir, *i;
	char last[256];
	int r;

	if (!fs)
		return -EIO;
	r = walk_path(fs, dfd, path, &dir, last);
	if (r)
		return r;
	i = last[0] ? names_find(&dir->cur, last) : dir;
	if (i && (flags & O_CREAT) && (flags & O_EXCL))
		return -EEXIST;
	if (i && (flags & O_DIRECTORY) && !S_ISDIR(i->mode))
		return -ENOTDIR;
	if (i && S_ISDIR(i->mode) && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT)))
		return -EISDIR;
	if (!i) {
		if (!(flags & O_CREAT))
			return -ENOENT;
		if (is_full(fs))
			return -ENOSPC;
		i = inode_new(fs, S_IFREG | (mode & 07777));
		change_add(fs, dir, CHANGE_SET, last, NULL, i);
	} else if ((flags & O_TRUNC) && S_ISREG(i->mode)) {
		zero_behind(fs, i, 0, true);
		i->size = 0;
	}
	r = sim_fd_new(fs, i, flags);
	if (fs->n_inodes > fs->sweep_at)
		sweep(fs);
	return r;
}

static void fs_close(struct env *e, int fd)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;

	if (!f)
		return;
	if (f->inode->lock == fd)
		f->inode->lock = -1;
	f->inode = NULL;
}

/* ---------------------------------------------------------------- contents */

/* Has the disk bytes in this range that it cannot read? */
static bool is_bad(const struct sim_node *n, uint64_t off, uint64_t len)
{
	return off < n->bad_hi && off + len > n->bad_lo;
}

ssize_t sim_preadv(struct env *e, int fd, const struct iovec *iov, int n, off_t off)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;
	uint64_t at = (uint64_t)off, done = 0;

	if (!f || off < 0)
		return !fs ? -EIO : f ? -EINVAL : -EBADF;
	if (S_ISDIR(f->inode->mode))
		return -EISDIR;
	if ((f->flags & O_ACCMODE) == O_WRONLY)
		return -EBADF;
	if (sim_inject(fs->node->sim, SIM_READ_EIO, fs->node->sim->faults.read_eio))
		return -EIO;
	if (is_bad(fs->node, at, iov_total(iov, (size_t)n)))
		return -EIO;
	for (int k = 0; k < n; k++) {
		uint8_t *to = iov[k].iov_base;

		for (size_t left = iov[k].iov_len; left && at < f->inode->size;) {
			const struct page *p = sim_page_find(f->inode, at / PAGE);
			size_t part = MIN(MIN(left, PAGE - at % PAGE), f->inode->size - at);

			if (p)
				memcpy(to, p->cur + at % PAGE, part);
			else
				memset(to, 0, part);
			to += part;
			left -= part;
			at += part;
			done += part;
		}
	}
	return (ssize_t)done;
}

static uint64_t write_some(struct sim_fs *fs, struct inode *i, const uint8_t *from, uint64_t n,
			   uint64_t at)
{
	uint64_t done = 0;

	while (done < n) {
		size_t part = MIN(n - done, PAGE - (at + done) % PAGE);
		struct page *p = sim_page_for_write(fs, i, (at + done) / PAGE);

		if (!p)
			break;
		memcpy(p->cur + (at + done) % PAGE, from + done, part);
		done += part;
		i->size = MAX(i->size, at + done);
	}
	return done;
}

/* Returns how many bytes of a write reach the file. If they are fewer than `total`, they are
 * whole pages and the write fails. */
static uint64_t write_reach(struct sim *s, uint64_t at, uint64_t total)
{
	uint64_t end;

	if (!sim_inject(s, SIM_WRITE_EIO, s->faults.write_eio))
		return total;
	end = (at + sim_below(s, MAX(total, (uint64_t)1))) / PAGE * PAGE;
	s->injected[SIM_WRITE_HALF] += end > at;
	return end > at ? end - at : 0;
}

static ssize_t fs_pwritev(struct env *e, int fd, const struct iovec *iov, int n, off_t off)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;
	uint64_t at = (uint64_t)off, done = 0, reach, total = iov_total(iov, (size_t)n);

	if (!f || off < 0)
		return !fs ? -EIO : f ? -EINVAL : -EBADF;
	if ((f->flags & O_ACCMODE) == O_RDONLY || S_ISDIR(f->inode->mode))
		return -EBADF;
	if (total > (uint64_t)INT64_MAX - at)
		return -EFBIG;
	if (f->flags & O_APPEND)
		at = f->inode->size;
	reach = write_reach(fs->node->sim, at, total);
	if (!reach && total)
		return -EIO;
	for (int k = 0; k < n; k++) {
		uint64_t want = MIN(iov[k].iov_len, reach - done);
		uint64_t part = write_some(fs, f->inode, iov[k].iov_base, want, at);

		at += part;
		done += part;
		if (part < iov[k].iov_len)
			break;
	}
	f->inode->mtime = e->clock->wall(e);
	sim_trace(fs->node->sim, SIM_FILE, fs->node->id, done);
	if (reach < total)
		return -EIO;
	return done || !total ? (ssize_t)done : -ENOSPC;
}

/* ---------------------------------------------------------------- syncs */

static struct sync *sync_begin(struct sim_fs *fs, struct inode *i)
{
	struct sync *y = sim_alloc(sizeof(*y));

	sim_inode_look(fs, i);
	y->inode = i;
	y->seq = ++fs->seq;
	y->size = i->size;
	list_push(&fs->syncs, &y->link);
	i->n_syncs++;
	if (S_ISDIR(i->mode)) {
		names_copy(&y->names, &i->cur);
		return y;
	}
	for (size_t k = 0; k < i->n_pages; k++)
		y->n_pages += i->pages[k]->dirty;
	y->pages = sim_alloc(MAX(y->n_pages, (size_t)1) * sizeof(*y->pages));
	for (size_t k = 0, n = 0; k < i->n_pages; k++)
		if (i->pages[k]->dirty)
			y->pages[n++] = *i->pages[k];
	return y;
}

static void sync_free(struct sync *y)
{
	y->inode->n_syncs--;
	list_del(&y->link);
	names_clear(&y->names);
	free(y->pages);
	free(y);
}

/* The sync has written a page as it was when the sync began. */
static void page_synced(struct sim *s, struct page *p, const struct page *copy, uint64_t seq)
{
	if (p->seq <= seq) {
		page_clean(p);
		return;
	}
	if (p->old_seq > seq || !p->dirty)
		return; /* a sync that began later has ended earlier */
	s->injected[SIM_SYNC_OVERTAKEN]++;
	if (!p->old)
		p->old = sim_alloc(PAGE);
	memcpy(p->old, copy->own, PAGE);
	p->old_seq = seq;
}

/* The sync fails: some pages were written, the others never will be. All pages that have not
 * changed since are clean. */
static void sync_fails(struct sim_fs *fs, struct sync *y)
{
	for (size_t k = 0; k < y->n_pages; k++) {
		struct page *p = sim_page_find(y->inode, y->pages[k].no);

		if (!p || !p->dirty)
			continue;
		if (sim_below(fs->node->sim, 2)) {
			page_synced(fs->node->sim, p, &y->pages[k], y->seq);
		} else if (p->seq <= y->seq) {
			p->dirty = false;
			p->lost = true;
		}
	}
}

static void sync_file(struct sim_fs *fs, struct sync *y)
{
	struct inode *i = y->inode;

	for (size_t k = 0; k < y->n_pages; k++) {
		struct page *p = sim_page_find(i, y->pages[k].no);

		if (p && (p->dirty || p->seq > y->seq))
			page_synced(fs->node->sim, p, &y->pages[k], y->seq);
	}
	while (i->n_syncs == 1 && i->n_pages && i->pages[i->n_pages - 1]->no * PAGE >= i->size &&
	       !i->pages[i->n_pages - 1]->lost && !i->pages[i->n_pages - 1]->dirty)
		page_drop(fs, i, i->n_pages - 1);
	if (y->seq > i->synced)
		i->durable_size = y->size;
}

static int sync_end(struct sim_fs *fs, struct sync *y)
{
	struct inode *i = y->inode;
	int r = 0;

	sim_trace(fs->node->sim, SIM_FILE, fs->node->id, i->ino);
	if (sim_inject(fs->node->sim, SIM_SYNC_EIO, fs->node->sim->faults.sync_eio)) {
		sync_fails(fs, y);
		r = -EIO;
	} else if (!S_ISDIR(i->mode)) {
		sync_file(fs, y);
	} else if (y->seq > i->synced) {
		names_copy(&i->durable, &y->names);
		changes_clear(i, y->seq);
	}
	if (!r)
		i->synced = MAX(i->synced, y->seq);
	sync_free(y);
	return r;
}

static int fs_syncfs(struct env *e, int fd)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct inode *i;
	int r = 0;

	(void)fd;
	if (!fs)
		return -EIO;
	list_for_each(i, &fs->inodes, all)
		if (sync_end(fs, sync_begin(fs, i)))
			r = -EIO;
	return r;
}

static int fs_fsync(struct env *e, int fd)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;

	if (!f)
		return fs ? -EBADF : -EIO;
	return sync_end(fs, sync_begin(fs, f->inode));
}

static int fs_ftruncate(struct env *e, int fd, off_t size)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;

	if (!f || size < 0)
		return !fs ? -EIO : f ? -EINVAL : -EBADF;
	if ((f->flags & O_ACCMODE) == O_RDONLY || S_ISDIR(f->inode->mode))
		return -EINVAL;
	if ((uint64_t)size < f->inode->size)
		zero_behind(fs, f->inode, (uint64_t)size, true);
	f->inode->size = (uint64_t)size;
	f->inode->mtime = e->clock->wall(e);
	sim_trace(fs->node->sim, SIM_FILE, fs->node->id, (uint64_t)size);
	return 0;
}

/* Zeroes the existing pages of a range; the disk still has the old contents. */
static void zero_range(struct sim_fs *fs, struct inode *i, uint64_t lo, uint64_t hi)
{
	for (size_t at = page_place(i, lo / PAGE); at < i->n_pages; at++) {
		struct page *p = i->pages[at];
		uint64_t from = MAX(lo, p->no * PAGE), to = MIN(hi, (p->no + 1) * PAGE);

		if (from >= to)
			break;
		page_touch(fs, p);
		memset(p->cur + from % PAGE, 0, to - from);
	}
}

static int fs_fallocate(struct env *e, int fd, int mode, off_t off, off_t len)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;
	uint64_t lo = (uint64_t)off, hi = lo + (uint64_t)len;

	if (!f || off < 0 || len <= 0)
		return !fs ? -EIO : f ? -EINVAL : -EBADF;
	if ((f->flags & O_ACCMODE) == O_RDONLY || S_ISDIR(f->inode->mode))
		return -EBADF;
	if (sim_inject(fs->node->sim, SIM_WRITE_EIO, fs->node->sim->faults.write_eio))
		return -EIO;
	f->inode->mtime = e->clock->wall(e);
	sim_trace(fs->node->sim, SIM_FILE, fs->node->id, hi);
	if (mode & FALLOC_FL_PUNCH_HOLE) {
		zero_range(fs, f->inode, lo, hi);
		return 0;
	}
	for (uint64_t no = lo / PAGE; no * PAGE < hi; no++)
		if (!sim_page_find(f->inode, no) && !sim_page_for_write(fs, f->inode, no))
			return -ENOSPC;
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		f->inode->size = MAX(f->inode->size, hi);
	return 0;
}

static int fs_fstat(struct env *e, int fd, struct stat *st)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;

	if (!f)
		return fs ? -EBADF : -EIO;
	memset(st, 0, sizeof(*st));
	st->st_dev = f->inode->fs->node->id + 1;
	st->st_ino = f->inode->ino;
	st->st_mode = f->inode->mode;
	st->st_nlink = 1;
	st->st_size = (off_t)f->inode->size;
	st->st_blksize = PAGE;
	st->st_blocks = (blkcnt_t)(f->inode->n_pages * (PAGE / 512));
	st->st_mtim.tv_sec = (time_t)(f->inode->mtime / NSEC_PER_SEC);
	st->st_mtim.tv_nsec = (long)(f->inode->mtime % NSEC_PER_SEC);
	st->st_atim = st->st_ctim = st->st_mtim;
	return 0;
}

/* ---------------------------------------------------------------- directories */

static int fs_unlinkat(struct env *e, int dfd, const char *path, int flags)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct inode *dir, *i;
	char last[256];
	int r;

	if (!fs)
		return -EIO;
	r = walk_path(fs, dfd, path, &dir, last);
	if (r)
		return r;
	i = last[0] ? names_find(&dir->cur, last) : NULL;
	if (!i)
		return last[0] ? -ENOENT : -EBUSY;
	if (S_ISDIR(i->mode) != !!(flags & AT_REMOVEDIR))
		return S_ISDIR(i->mode) ? -EISDIR : -ENOTDIR;
	if (i->cur.n)
		return -ENOTEMPTY;
	change_add(fs, dir, CHANGE_DEL, last, NULL, i);
	return 0;
}

static int fs_mkdirat(struct env *e, int dfd, const char *path, mode_t mode)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct inode *dir;
	char last[256];
	int r;

	if (!fs)
		return -EIO;
	r = walk_path(fs, dfd, path, &dir, last);
	if (r)
		return r;
	if (!last[0] || names_find(&dir->cur, last))
		return -EEXIST;
	change_add(fs, dir, CHANGE_SET, last, NULL, inode_new(fs, S_IFDIR | (mode & 07777)));
	return 0;
}

/* Only within one directory: no code under test renames between directories, so the outcome of a
 * crash is not modelled. */
static int fs_renameat(struct env *e, int dfd, const char *from, const char *to)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct inode *dir, *dir2, *i, *over;
	char last[256], last2[256];
	int r;

	if (!fs)
		return -EIO;
	r = walk_path(fs, dfd, from, &dir, last);
	if (!r)
		r = walk_path(fs, dfd, to, &dir2, last2);
	if (r)
		return r;
	if (dir != dir2)
		return -EXDEV;
	i = names_find(&dir->cur, last);
	over = names_find(&dir->cur, last2);
	if (!i || !last2[0])
		return -ENOENT;
	if (over == i)
		return 0;
	if (over && S_ISDIR(over->mode) != S_ISDIR(i->mode))
		return S_ISDIR(over->mode) ? -EISDIR : -ENOTDIR;
	if (over && over->cur.n)
		return -ENOTEMPTY;
	change_add(fs, dir, CHANGE_RENAME, last, last2, i);
	return 0;
}

static int fs_list(struct env *e, int fd, void (*fn)(void *arg, const char *name), void *arg)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;
	struct names copy = { NULL, 0 }; /* a copy, since fn may change the directory */

	if (!f)
		return fs ? -EBADF : -EIO;
	if (!S_ISDIR(f->inode->mode))
		return -ENOTDIR;
	names_copy(&copy, &f->inode->cur);
	for (size_t k = 0; k < copy.n; k++)
		fn(arg, copy.v[k].text);
	names_clear(&copy);
	return 0;
}

static int fs_statfs(struct env *e, int fd, uint64_t *total, uint64_t *avail, uint64_t *id)
{
	struct sim_fs *fs = sim_fs_of(e);

	if (!fs || !sim_fd_get(fs, fd))
		return fs ? -EBADF : -EIO;
	*total = fs->node->capacity ? fs->node->capacity : TOTAL_SPACE;
	*avail = *total > fs->used * PAGE ? *total - fs->used * PAGE : 0;
	*id = 0;
	return 0;
}

static int fs_lock(struct env *e, int fd)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;

	if (!f)
		return fs ? -EBADF : -EIO;
	if (f->inode->lock >= 0 && f->inode->lock != fd)
		return -EWOULDBLOCK;
	f->inode->lock = fd;
	return 0;
}

/* ---------------------------------------------------------------- accesses outside of the loop */

static void report_io(void *arg)
{
	io_finish(arg);
}

static void fire_io(struct sim *s, struct sim_event *e)
{
	struct io *io = e->arg;
	struct sim_node *n = e->node;

	if (io->kind == IO_CALL && s->faults.job_crash && n->may_crash &&
	    sim_second_below(s, 1000000) < s->faults.job_crash && n->may_crash(n->crashed_arg))
		n->crash_in_ops = 2 + (uint32_t)sim_second_below(s, JOB_OPS);
	io_perform(&n->env, io);
	n->crash_in_ops = 0;
	if (!n->up) /* it went down within the job: no report */
		return;
	sim_loop_finished(io->loop->impl, report_io, io);
}

static void fire_sync(struct sim *s, struct sim_event *e)
{
	struct sync *y = e->arg;
	struct io *io = y->io;
	struct sim_node *n = e->node;
	bool is_file = !S_ISDIR(y->inode->mode);

	(void)s;
	io->error = sync_end(n->fs, y);
	if (is_file && !io->error && n->synced)
		n->synced(n->synced_arg);
	sim_loop_finished(io->loop->impl, report_io, io);
}

/* The sync covers what was written until now, though it takes effect later. */
static struct sim_event *submit_sync(struct sim_node *n, struct file *f, struct io *io)
{
	uint64_t delay = sim_delay(n->sim, n->sim->faults.sync_min, n->sim->faults.sync_max);
	struct sync *y = sync_begin(n->fs, f->inode);

	y->io = io;
	return sim_schedule(n->sim, SIM_IO, n, delay, fire_sync, y);
}

/* In memory, some accesses are performed at once. */
static void fs_perform_now(struct env *e, struct loop *l, struct io *ios, size_t n)
{
	struct sim_node *node = sim_node_of(e);

	(void)l;
	for (size_t i = 0; i < n && node->up && node->on_tmpfs; i++) {
		ios[i].is_done = sim_below(node->sim, 2);
		if (ios[i].is_done)
			io_perform(e, &ios[i]);
	}
}

/* Accesses of a node that is down never end. */
static void fs_submit(struct env *e, struct loop *l, struct io *io)
{
	struct sim_node *n = sim_node_of(e);

	for (struct io *next; io && n->up; io = next) {
		next = io->next;
		struct file *f = io->kind == IO_SYNC ? sim_fd_get(n->fs, io->fd) : NULL;
		uint64_t delay = sim_delay(n->sim, n->sim->faults.io_min, n->sim->faults.io_max);
		struct sim_event *ev = f ? submit_sync(n, f, io) :
					   sim_schedule(n->sim, SIM_IO, n, delay, fire_io, io);

		ev->loop = l;
		ev->n = io->kind;
	}
}

static int fs_probe(struct env *e, struct loop *l, int dir, char *text, size_t n)
{
	struct sim_node *node = sim_node_of(e);

	(void)dir;
	l->on_tmpfs = l->sends_files = node->on_tmpfs;
	snprintf(text, n, "simulated %s", node->on_tmpfs ? "memory" : "disk");
	return node->up ? 0 : -EIO;
}

/* On a disk, half of the queries find everything cached; in memory all do. Holes are never
 * cached, nor are bytes that the disk cannot read. */
static bool fs_cached(struct env *e, struct loop *l, int fd, uint64_t off, uint64_t len)
{
	struct sim_fs *fs = sim_fs_of(e);
	struct file *f = fs ? sim_fd_get(fs, fd) : NULL;
	struct sim_node *n = sim_node_of(e);
	bool there = f && (n->on_tmpfs || sim_chance(n->sim, 500000)) && !is_bad(n, off, len);

	(void)l;
	for (uint64_t no = off / PAGE; there && no * PAGE < off + len; no++)
		there = sim_page_find(f->inode, no) != NULL;
	return there;
}

const struct file_ops sim_file_ops = {
	.openat = sim_openat,
	.close = fs_close,
	.preadv = sim_preadv,
	.pwritev = fs_pwritev,
	.fsync = fs_fsync,
	.syncfs = fs_syncfs,
	.ftruncate = fs_ftruncate,
	.fstat = fs_fstat,
	.fallocate = fs_fallocate,
	.seek = sim_seek,
	.unlinkat = fs_unlinkat,
	.mkdirat = fs_mkdirat,
	.renameat = fs_renameat,
	.list = fs_list,
	.statfs = fs_statfs,
	.lock = fs_lock,
	.perform_now = fs_perform_now,
	.submit = fs_submit,
	.cached = fs_cached,
	.map = sim_map,
	.unmap = sim_unmap,
	.dir_path = sim_dir_path,
	.open_dir_cached = sim_open_dir_cached,
	.open_cached = sim_open_cached,
	.read_cached = sim_read_cached,
	.probe = fs_probe,
};

/* ---------------------------------------------------------------- setup and crashes */

struct sim_fs *sim_fs_new(struct sim_node *n)
{
	struct sim_fs *fs = sim_alloc(sizeof(*fs));

	fs->node = n;
	fs->sweep_at = 64;
	list_init(&fs->inodes);
	list_init(&fs->syncs);
	list_init(&fs->maps);
	fs->root = inode_new(fs, S_IFDIR | 0755);
	fs->nothing = inode_new(fs, S_IFREG);
	return fs;
}

static void syncs_forget(struct sim_fs *fs)
{
	struct sync *y, *next;

	list_for_each_safe(y, next, &fs->syncs, link)
		sync_free(y);
}

void sim_fs_free(struct sim_fs *fs)
{
	struct inode *i, *next;

	syncs_forget(fs);
	sim_maps_free(fs);
	list_for_each_safe(i, next, &fs->inodes, all)
		inode_free(fs, i);
	free(fs->files);
	free(fs);
}

static void crash_file(struct sim_fs *fs, struct inode *i)
{
	struct sim *s = fs->node->sim;

	for (size_t k = 0; k < i->n_pages; k++) {
		struct page *p = i->pages[k];

		if (p->lost || (p->dirty && sim_below(s, 2))) {
			s->injected[SIM_PAGES_LOST]++;
			if (p->old)
				memcpy(p->cur, p->old, PAGE);
			else
				memset(p->cur, 0, PAGE);
		}
		page_clean(p);
	}
	if (i->size != i->durable_size && sim_below(s, 2)) {
		i->size = i->durable_size;
		s->injected[SIM_SIZES_LOST]++;
	}
	i->durable_size = i->size;
	zero_behind(fs, i, i->size, false);
}

static void crash_dir(struct sim_fs *fs, struct inode *i)
{
	struct change *c;

	list_for_each(c, &i->changes, link)
		if (sim_below(fs->node->sim, 2))
			change_apply(&i->durable, c);
		else
			fs->node->sim->injected[SIM_CHANGES_LOST]++;
	changes_clear(i, UINT64_MAX);
	names_copy(&i->cur, &i->durable);
}

/* Makes the files of this node that other nodes have open refer to an empty file. */
static void close_to_others(struct sim_fs *fs)
{
	const struct sim *s = fs->node->sim;

	for (uint32_t n = 0; n < s->n_nodes; n++) {
		struct sim_fs *of = s->nodes[n]->fs;

		for (size_t k = 0; of != fs && k < of->n_files; k++)
			if (of->files[k].inode && of->files[k].inode->fs == fs)
				of->files[k].inode = of->nothing;
	}
}

void sim_fs_crash(struct sim_fs *fs, bool power)
{
	struct inode *i;

	for (size_t k = 0; k < fs->n_files; k++)
		fs->files[k].inode = NULL;
	syncs_forget(fs);
	sim_maps_leave(fs);
	if (power)
		close_to_others(fs);
	list_for_each(i, &fs->inodes, all) {
		i->lock = -1;
		if (!power)
			continue;
		if (S_ISDIR(i->mode))
			crash_dir(fs, i);
		else
			crash_file(fs, i);
	}
	sweep(fs);
}
