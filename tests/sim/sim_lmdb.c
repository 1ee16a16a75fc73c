/* The disk below a node's database. LMDB writes and syncs a real file. This file intercepts those
 * calls: a program's own definition of a function takes precedence over the C library's.
 *
 * A write is kept together with the old contents until a sync of the file covers it (a write
 * through a synchronous descriptor is covered at once); a power loss undoes any of the others. A
 * write may fail, find no room, or be the last one before the power fails.
 *
 * Other files are passed through. One thread. */
#include <dlfcn.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sim_priv.h"

#define MAX_FD 1024
#define EXPORTED __attribute__((visibility("default")))

struct undo {
	struct list link;
	uint64_t off;
	size_t len;
	uint8_t old[];
};

struct sim_db {
	struct list all;
	struct sim_node *node;
	bool off; /* the power has failed */
	struct list undo; /* latest write first */
	char file[];
};

static struct list all_dbs = LIST_INIT(all_dbs);
static struct {
	struct sim_db *db;
	bool synced; /* every write is synchronous */
} fds[MAX_FD];

void sim_db_add(struct sim_node *n, const char *file)
{
	struct sim_db *d = sim_alloc(sizeof(*d) + strlen(file) + 1);

	d->node = n;
	strcpy(d->file, file);
	list_init(&d->undo);
	list_push(&all_dbs, &d->all);
	n->db = d;
}

static void undo_free(struct sim_db *d)
{
	struct list *it;

	while ((it = list_pop(&d->undo)))
		free(list_entry(it, struct undo, link));
}

static void forget_fds(struct sim_db *d)
{
	for (int i = 0; i < MAX_FD; i++)
		if (fds[i].db == d)
			fds[i].db = NULL;
}

void sim_db_free(struct sim_node *n)
{
	if (!n->db)
		return;
	forget_fds(n->db);
	undo_free(n->db);
	list_del(&n->db->all);
	free(n->db);
	n->db = NULL;
}

void sim_db_stop(struct sim_node *n)
{
	if (n->db)
		n->db->off = true;
}

void sim_db_crash(struct sim_node *n, bool power)
{
	struct sim_db *d = n->db;
	struct undo *u;
	int fd;

	if (!d)
		return;
	d->off = false;
	forget_fds(d);
	if (!power || list_empty(&d->undo))
		return;
	fd = (int)syscall(SYS_openat, AT_FDCWD, d->file, O_WRONLY | O_CLOEXEC, 0);
	list_for_each(u, &d->undo, link) {
		if (!sim_below(n->sim, 2))
			continue;
		n->sim->injected[SIM_META_LOST]++;
		if (syscall(SYS_pwrite64, fd, u->old, u->len, u->off) != (long)u->len)
			abort();
	}
	syscall(SYS_close, fd);
	undo_free(d);
}

/* ---- calls of the code under test ---- */

typedef int get_fn(MDB_txn *txn, MDB_dbi dbi, MDB_val *k, MDB_val *v);
typedef int cursor_fn(MDB_cursor *c, MDB_val *k, MDB_val *v, MDB_cursor_op op);

static void *next_of(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p)
		abort();
	return p;
}

EXPORTED int mdb_get(MDB_txn *txn, MDB_dbi dbi, MDB_val *k, MDB_val *v)
{
	static get_fn *real;

	if (!real)
		real = (get_fn *)next_of("mdb_get");
	sim_count_work();
	return real(txn, dbi, k, v);
}

EXPORTED int mdb_cursor_get(MDB_cursor *c, MDB_val *k, MDB_val *v, MDB_cursor_op op)
{
	static cursor_fn *real;

	if (!real)
		real = (cursor_fn *)next_of("mdb_cursor_get");
	sim_count_work();
	return real(c, k, v, op);
}

/* ---- calls of LMDB ---- */

static struct sim_db *db_of(int fd)
{
	return fd >= 0 && fd < MAX_FD ? fds[fd].db : NULL;
}

/* Returns 0, or the errno of a write that fails. */
static int write_fails(struct sim_db *d, bool synced)
{
	struct sim *s = d->node->sim;
	const struct sim_faults *f = &s->faults;

	if (d->off)
		return EIO;
	if (sim_inject(s, SIM_META_TORN, f->meta_torn)) {
		d->off = true;
		d->node->torn(d->node->torn_arg);
		return EIO;
	}
	if (synced) /* the page that makes a commit valid: an error there disables LMDB for good */
		return 0;
	if (sim_inject(s, SIM_META_FULL, f->meta_full))
		return ENOSPC;
	return sim_inject(s, SIM_META_EIO, f->meta_eio) ? EIO : 0;
}

static void keep_old(struct sim_db *d, int fd, size_t len, uint64_t off)
{
	struct undo *u = sim_alloc(sizeof(*u) + len);

	u->off = off;
	u->len = len;
	if (syscall(SYS_pread64, fd, u->old, len, off) < 0)
		abort();
	list_push_front(&d->undo, &u->link);
}

/* Called before a write. Returns 0, or -1 with errno. */
static int before_write(int fd, size_t len, uint64_t off)
{
	struct sim_db *d = db_of(fd);
	int e = d ? write_fails(d, fds[fd].synced) : 0;

	if (e) {
		errno = e;
		return -1;
	}
	if (d && !fds[fd].synced)
		keep_old(d, fd, len, off);
	return 0;
}

EXPORTED ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
	return before_write(fd, n, (uint64_t)off) ? -1 : syscall(SYS_pwrite64, fd, p, n, off);
}

EXPORTED ssize_t writev(int fd, const struct iovec *iov, int n)
{
	uint64_t off = db_of(fd) ? (uint64_t)lseek(fd, 0, SEEK_CUR) : 0;

	if (db_of(fd) && before_write(fd, iov_total(iov, (size_t)n), off))
		return -1;
	return syscall(SYS_writev, fd, iov, n);
}

EXPORTED int fdatasync(int fd)
{
	struct sim_db *d = db_of(fd);

	if (d &&
	    (d->off || sim_inject(d->node->sim, SIM_META_EIO, d->node->sim->faults.meta_eio))) {
		errno = EIO;
		return -1;
	}
	if (d) {
		undo_free(d);
		d->node->sim->now += d->node->sim->faults.commit_ns;
	}
	return d ? 0 : (int)syscall(SYS_fdatasync, fd);
}

/* Reports a disk, wherever the file is: otherwise LMDB writes through a mapping, which cannot be
 * intercepted. */
EXPORTED int statfs(const char *path, struct statfs *s)
{
	struct sim_db *d;
	int r = (int)syscall(SYS_statfs, path, s);

	list_for_each(d, &all_dbs, all)
		if (!r && !strncmp(d->file, path, strlen(path)))
			s->f_type = 0;
	return r;
}

EXPORTED int open(const char *path, int flags, ...)
{
	struct sim_db *d;
	va_list ap;
	mode_t mode;
	int fd;

	va_start(ap, flags);
	mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if (fd < 0 || fd >= MAX_FD)
		return fd;
	fds[fd].db = NULL;
	list_for_each(d, &all_dbs, all)
		if (!strcmp(d->file, path)) {
			fds[fd].db = d;
			fds[fd].synced = flags & O_DSYNC;
		}
	return fd;
}
