/* passthrough [-f] [-s] SOURCE MOUNTPOINT: shows a directory through FUSE, without other functions.
 * It is the baseline of `sheaf bench mount`: what a file system in user space can reach on this
 * machine.
 *
 * An inode is an O_PATH descriptor, found by (device, number); the kernel's lookups count its
 * references. Entries and attributes are valid for a second, requests carry up to 1 MiB, writes are
 * not gathered (no writeback cache). Reads copy the data, which is libfuse's default, or with -s
 * splice them, which is possible only for a file system whose data are in files of this host. The
 * kernel's read-ahead keeps its default of 128 KiB: larger reads do not fit into libfuse's pipe
 * together with their header and would be copied, at twice the cost. O_DIRECT is not passed on: the
 * directory below is in memory.
 *
 * Threads: libfuse's own; the table of inodes has a lock. Errors: those of the system calls. */
#define FUSE_USE_VERSION 312

#include <dirent.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"

#define VALID 1.0 /* seconds */
#define MAX_REQUEST (1 * MIB)
#define MAX_FILES 1000000 /* descriptors; fewer if the system allows fewer */
#define PROC_NAME 64

struct inode {
	struct hnode node;
	int fd;
	dev_t dev;
	ino_t ino;
	uint64_t lookups; /* protected by the lock */
};

struct listing {
	DIR *d;
	struct dirent *next; /* read, but did not fit into the reply */
	off_t at;
};

static struct inode root = { .fd = -1 };
static bool splices;
static struct htab inodes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct inode *inode_of(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? &root : (struct inode *)(uintptr_t)ino;
}

static int fd_of(fuse_ino_t ino)
{
	return inode_of(ino)->fd;
}

/* The path of an inode in /proc, for system calls that take no O_PATH descriptor. */
static void proc_name(char out[PROC_NAME], fuse_ino_t ino)
{
	snprintf(out, PROC_NAME, "/proc/self/fd/%d", fd_of(ino));
}

/* Replies with the result of a system call that returns no data. */
static void answer(fuse_req_t req, int r)
{
	fuse_reply_err(req, r < 0 ? errno : 0);
}

/* ---- inodes ---- */

static struct inode *find_locked(uint64_t hash, const struct stat *st)
{
	for (struct hnode *n = htab_first(&inodes, hash); n; n = htab_next(n)) {
		struct inode *i = container_of(n, struct inode, node);

		if (i->ino == st->st_ino && i->dev == st->st_dev)
			return i;
	}
	return NULL;
}

/* Counts one more lookup of the inode that fd names. Takes the descriptor in any case. NULL: out of
 * memory. */
static struct inode *inode_get(int fd, const struct stat *st)
{
	uint64_t hash = hash_u64(st->st_ino ^ (uint64_t)st->st_dev << 48);
	struct inode *i, *made = NULL;

	pthread_mutex_lock(&lock);
	i = find_locked(hash, st);
	if (!i) {
		i = made = calloc(1, sizeof(*i));
		if (i && htab_insert(&inodes, &i->node, hash)) {
			free(i);
			i = made = NULL;
		}
	}
	if (made) {
		made->fd = fd;
		made->dev = st->st_dev;
		made->ino = st->st_ino;
	}
	if (i)
		i->lookups++;
	pthread_mutex_unlock(&lock);
	if (!made)
		close(fd);
	return i;
}

static void inode_put(fuse_ino_t ino, uint64_t n)
{
	struct inode *i = inode_of(ino);
	bool last;

	if (i == &root)
		return;
	pthread_mutex_lock(&lock);
	i->lookups -= n;
	last = i->lookups == 0;
	if (last)
		htab_remove(&inodes, &i->node);
	pthread_mutex_unlock(&lock);
	if (last) {
		close(i->fd);
		free(i);
	}
}

static int attributes(int fd, struct stat *st)
{
	return fstatat(fd, "", st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

/* Returns 0 or an errno. */
static int look_up(fuse_ino_t parent, const char *name, struct fuse_entry_param *e)
{
	int fd = openat(fd_of(parent), name, O_PATH | O_NOFOLLOW | O_CLOEXEC), err;
	struct inode *i;

	if (fd < 0)
		return errno;
	memset(e, 0, sizeof(*e));
	if (attributes(fd, &e->attr) < 0) {
		err = errno;
		close(fd);
		return err;
	}
	i = inode_get(fd, &e->attr);
	e->ino = (uintptr_t)i;
	e->attr_timeout = e->entry_timeout = VALID;
	return i ? 0 : ENOMEM;
}

static void answer_entry(fuse_req_t req, fuse_ino_t parent, const char *name, int r)
{
	struct fuse_entry_param e;
	int err = r < 0 ? errno : look_up(parent, name, &e);

	if (err)
		fuse_reply_err(req, err);
	else
		fuse_reply_entry(req, &e);
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	answer_entry(req, parent, name, 0);
}

static void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	inode_put(ino, n);
	fuse_reply_none(req);
}

static void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *all)
{
	for (size_t i = 0; i < count; i++)
		inode_put(all[i].ino, all[i].nlookup);
	fuse_reply_none(req);
}

/* ---- attributes ---- */

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (attributes(fd_of(ino), &st) < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_attr(req, &st, VALID);
}

static struct timespec time_of(struct timespec t, int to_set, int set, int now)
{
	if (to_set & now)
		return (struct timespec){ 0, UTIME_NOW };
	return to_set & set ? t : (struct timespec){ 0, UTIME_OMIT };
}

static int set_times(const char *path, const struct stat *st, int to_set)
{
	const struct timespec t[2] = {
		time_of(st->st_atim, to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW),
		time_of(st->st_mtim, to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW),
	};

	return utimensat(AT_FDCWD, path, t, 0);
}

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		       struct fuse_file_info *fi)
{
	uid_t uid = to_set & FUSE_SET_ATTR_UID ? st->st_uid : (uid_t)-1;
	gid_t gid = to_set & FUSE_SET_ATTR_GID ? st->st_gid : (gid_t)-1;
	char path[PROC_NAME];
	int r = 0;

	proc_name(path, ino);
	if (to_set & FUSE_SET_ATTR_MODE)
		r = chmod(path, st->st_mode);
	if (r == 0 && to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		r = fchownat(fd_of(ino), "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
	if (r == 0 && to_set & FUSE_SET_ATTR_SIZE)
		r = fi ? ftruncate((int)fi->fh, st->st_size) : truncate(path, st->st_size);
	if (r == 0 && to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME))
		r = set_times(path, st, to_set);
	if (r < 0)
		fuse_reply_err(req, errno);
	else
		do_getattr(req, ino, fi);
}

static void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs s;

	if (fstatvfs(fd_of(ino), &s) < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_statfs(req, &s);
}

/* ---- names ---- */

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	answer_entry(req, parent, name, mkdirat(fd_of(parent), name, mode));
}

static void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	answer_entry(req, parent, name, mknodat(fd_of(parent), name, mode, rdev));
}

static void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	answer_entry(req, parent, name, symlinkat(target, fd_of(parent), name));
}

static void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	char path[PROC_NAME];

	proc_name(path, ino);
	answer_entry(req, parent, name,
		     linkat(AT_FDCWD, path, fd_of(parent), name, AT_SYMLINK_FOLLOW));
}

static void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(fd_of(ino), "", target, PATH_MAX);

	if (n < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	target[n] = 0;
	fuse_reply_readlink(req, target);
}

static void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	answer(req, unlinkat(fd_of(parent), name, 0));
}

static void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	answer(req, unlinkat(fd_of(parent), name, AT_REMOVEDIR));
}

static void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
		      const char *new_name, unsigned flags)
{
	answer(req, renameat2(fd_of(parent), name, fd_of(to), new_name, flags));
}

/* ---- files ---- */

/* Without O_NOFOLLOW, which would refuse the link in /proc, and without O_APPEND: the kernel has
 * chosen the offset. */
static int flags_below(int flags)
{
	return (flags & ~(O_NOFOLLOW | O_DIRECT | O_APPEND)) | O_CLOEXEC;
}

static void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	int fd = openat(fd_of(parent), name, flags_below(fi->flags) | O_CREAT, mode), err;
	struct fuse_entry_param e;

	err = fd < 0 ? errno : look_up(parent, name, &e);
	fi->fh = (uint64_t)fd;
	if (err)
		fuse_reply_err(req, err);
	else if (fuse_reply_create(req, &e, fi) == 0)
		return;
	else
		inode_put(e.ino, 1);
	if (fd >= 0)
		close(fd);
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	char path[PROC_NAME];
	int fd;

	proc_name(path, ino);
	fd = open(path, flags_below(fi->flags));
	if (fd < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	fi->fh = (uint64_t)fd;
	if (fuse_reply_open(req, fi)) /* interrupted: the kernel will not send RELEASE */
		close(fd);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	close((int)fi->fh);
	fuse_reply_err(req, 0);
}

/* One descriptor of the file is closed; the file system below may report an error. */
static void do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	answer(req, close(dup((int)fi->fh)));
}

static void do_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	(void)ino;
	answer(req, data_only ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}

static struct fuse_bufvec part_of_file(const struct fuse_file_info *fi, size_t size, off_t at)
{
	struct fuse_bufvec v = FUSE_BUFVEC_INIT(size);

	v.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	v.buf[0].fd = (int)fi->fh;
	v.buf[0].pos = at;
	return v;
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t at,
		    struct fuse_file_info *fi)
{
	struct fuse_bufvec from = part_of_file(fi, size, at);

	(void)ino;
	fuse_reply_data(req, &from, FUSE_BUF_SPLICE_MOVE);
}

static void do_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t at,
			 struct fuse_file_info *fi)
{
	struct fuse_bufvec to = part_of_file(fi, fuse_buf_size(in), at);
	ssize_t n = fuse_buf_copy(&to, in, 0);

	(void)ino;
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_write(req, (size_t)n);
}

static void do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t at, off_t length,
			 struct fuse_file_info *fi)
{
	(void)ino;
	answer(req, fallocate((int)fi->fh, mode, at, length));
}

static void do_lseek(fuse_req_t req, fuse_ino_t ino, off_t at, int whence,
		     struct fuse_file_info *fi)
{
	off_t r = lseek((int)fi->fh, at, whence);

	(void)ino;
	if (r < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_lseek(req, r);
}

/* ---- directories ---- */

static struct listing *listing_of(const struct fuse_file_info *fi)
{
	return (struct listing *)(uintptr_t)fi->fh;
}

static void listing_free(struct listing *l)
{
	if (l && l->d)
		closedir(l->d);
	free(l);
}

static void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct listing *l = calloc(1, sizeof(*l));
	int fd = l ? openat(fd_of(ino), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (l && fd >= 0)
		l->d = fdopendir(fd);
	if (!l || !l->d) {
		fuse_reply_err(req, l ? errno : ENOMEM);
		if (fd >= 0)
			close(fd);
		listing_free(l);
		return;
	}
	fi->fh = (uintptr_t)l;
	if (fuse_reply_open(req, fi))
		listing_free(l);
}

static void do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	listing_free(listing_of(fi));
	fuse_reply_err(req, 0);
}

/* Adds an entry to the reply; returns its length, which may be more than `room`. 0 with *err:
 * failed. */
static size_t add_entry(fuse_req_t req, fuse_ino_t ino, struct dirent *d, char *to, size_t room,
			bool plus, int *err)
{
	bool itself = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0;
	struct fuse_entry_param e = { .attr = { .st_ino = d->d_ino,
						.st_mode = (mode_t)d->d_type << 12 } };
	size_t n;

	if (!plus)
		return fuse_add_direntry(req, to, room, d->d_name, &e.attr, d->d_off);
	*err = itself ? 0 : look_up(ino, d->d_name, &e);
	if (*err)
		return 0;
	n = fuse_add_direntry_plus(req, to, room, d->d_name, &e, d->d_off);
	if (n > room && !itself) /* the entry does not reach the kernel */
		inode_put(e.ino, 1);
	return n;
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t at, struct listing *l,
		 bool plus)
{
	char *buf = malloc(size);
	size_t used = 0, n;
	int err = buf ? 0 : ENOMEM;

	if (at != l->at) {
		seekdir(l->d, at);
		l->next = NULL;
		l->at = at;
	}
	while (!err) {
		errno = 0;
		if (!l->next)
			l->next = readdir(l->d);
		if (!l->next) {
			err = errno;
			break;
		}
		n = add_entry(req, ino, l->next, buf + used, size - used, plus, &err);
		if (n > size - used)
			break;
		if (err == ENOENT) /* removed meanwhile */
			err = 0;
		if (err)
			break;
		used += n;
		l->at = l->next->d_off;
		l->next = NULL;
	}
	if (err && !used)
		fuse_reply_err(req, err);
	else
		fuse_reply_buf(req, buf, used);
	free(buf);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t at,
		       struct fuse_file_info *fi)
{
	list(req, ino, size, at, listing_of(fi), false);
}

static void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t at,
			   struct fuse_file_info *fi)
{
	list(req, ino, size, at, listing_of(fi), true);
}

/* ---- main ---- */

static void do_init(void *arg, struct fuse_conn_info *conn)
{
	(void)arg;
	conn->max_write = MAX_REQUEST;
	if (splices)
		conn->want |= conn->capable & (FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	conn->want &= ~(unsigned)FUSE_CAP_WRITEBACK_CACHE;
}

static const struct fuse_lowlevel_ops ops = {
	.init = do_init,
	.lookup = do_lookup,
	.forget = do_forget,
	.forget_multi = do_forget_multi,
	.getattr = do_getattr,
	.setattr = do_setattr,
	.statfs = do_statfs,
	.mkdir = do_mkdir,
	.mknod = do_mknod,
	.symlink = do_symlink,
	.link = do_link,
	.readlink = do_readlink,
	.unlink = do_unlink,
	.rmdir = do_rmdir,
	.rename = do_rename,
	.create = do_create,
	.open = do_open,
	.release = do_release,
	.flush = do_flush,
	.fsync = do_fsync,
	.read = do_read,
	.write_buf = do_write_buf,
	.fallocate = do_fallocate,
	.lseek = do_lseek,
	.opendir = do_opendir,
	.releasedir = do_releasedir,
	.readdir = do_readdir,
	.readdirplus = do_readdirplus,
};

/* Every inode that the kernel knows has a descriptor. */
static void raise_limit(void)
{
	struct rlimit l = { MAX_FILES, MAX_FILES };

	if (setrlimit(RLIMIT_NOFILE, &l) == 0 || getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

static int serve(struct fuse_session *se, const char *mountpoint, bool foreground)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r = config ? 0 : -1;

	if (!r)
		r = fuse_set_signal_handlers(se);
	if (!r) {
		r = fuse_session_mount(se, mountpoint);
		if (!r) {
			r = fuse_daemonize(foreground);
			if (!r)
				r = fuse_session_loop_mt(se, config);
			fuse_session_unmount(se);
		}
		fuse_remove_signal_handlers(se);
	}
	if (config)
		fuse_loop_cfg_destroy(config);
	return r;
}

static void drop(struct hnode *n, void *arg)
{
	struct inode *i = container_of(n, struct inode, node);

	(void)arg;
	close(i->fd);
	free(i);
}

int main(int argc, char **argv)
{
	bool foreground = false, known = true;
	char *fuse_argv[] = { argv[0], "-o", "fsname=passthrough,subtype=passthrough", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, fuse_argv);
	struct fuse_session *se;
	int c, r;

	while ((c = getopt(argc, argv, "fs")) >= 0) {
		foreground |= c == 'f';
		splices |= c == 's';
		known &= c != '?';
	}
	if (!known || argc - optind != 2) {
		fprintf(stderr, "usage: passthrough [-f] [-s] SOURCE MOUNTPOINT\n");
		return 2;
	}
	umask(0);
	raise_limit();
	root.fd = open(argv[optind], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root.fd < 0) {
		fprintf(stderr, "passthrough: %s: %s\n", argv[optind], strerror(errno));
		return 1;
	}
	if (htab_init(&inodes))
		return 1;
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	r = se ? serve(se, argv[optind + 1], foreground) : -1;
	if (se)
		fuse_session_destroy(se);
	htab_walk(&inodes, drop, NULL);
	htab_destroy(&inodes);
	return r ? 1 : 0;
}
