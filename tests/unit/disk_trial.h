/* A disk to test: a scratch directory, an environment that injects faults, and blocking forms of
 * the calls of disk.h. */
#ifndef SHEAF_DISK_TRIAL_H
#define SHEAF_DISK_TRIAL_H

#include <stdatomic.h>

#include "disk/disk.h"

#include "core_trial.h"

/* The real environment with injected faults and counters. */
static struct faulty {
	struct env env;
	struct file_ops file;
	struct clock_ops clock;
	int fail_sync, fail_write; /* -errno for every such access while not 0 */
	int fail_fsync; /* the same for the blocking call */
	bool half_write; /* a failing write stores half of its data */
	atomic_int
		steps; /* if `mortal`: this many changes succeed, later ones fail as after a kill */
	bool mortal;
	uint64_t skew; /* added to the wall clock */
	unsigned n_sync, n_open;
	ino_t watched; /* n_watched counts successful blocking syncs of this file */
	unsigned n_watched;
} faulty;

static struct loop loop;
static struct disk *disk;
static char disk_path[512];
static uint32_t disk_max_floors; /* for disk_try(); 0 means the default */
static const struct uuid test_fs = { .b = { 1, 2, 3 } };
static char disk_err[512];

/* Counts one change of a file. Returns 0, or -EIO after the simulated kill. */
static inline int faulty_change(void)
{
	return faulty.mortal && atomic_fetch_sub(&faulty.steps, 1) <= 0 ? -EIO : 0;
}

/* Submits one access at a time, so that each one may fail. */
static inline void faulty_submit(struct env *e, struct loop *l, struct io *io)
{
	if (io->next) {
		struct io *next = io->next;

		io->next = NULL;
		faulty_submit(e, l, io);
		faulty_submit(e, l, next);
		return;
	}
	if (io->kind == IO_SYNC)
		faulty.n_sync++;
	if ((io->kind == IO_SYNC || io->kind == IO_WRITE) && faulty_change()) {
		io->error = -EIO;
		io_finish(io);
	} else if (io->kind == IO_SYNC && faulty.fail_sync) {
		io->error = faulty.fail_sync;
		io_finish(io);
	} else if (io->kind == IO_WRITE && faulty.fail_write) {
		if (faulty.half_write)
			CHECK(pwrite(io->fd, io->iov[0].iov_base, io->iov[0].iov_len / 2,
				     (off_t)io->off) > 0);
		io->error = faulty.fail_write;
		io_finish(io);
	} else {
		env_real()->file->submit(e, l, io);
	}
}

static inline int faulty_fsync(struct env *e, int fd)
{
	struct stat st;

	if (faulty_change())
		return -EIO;
	if (faulty.fail_fsync)
		return faulty.fail_fsync;
	faulty.n_watched += fstat(fd, &st) == 0 && st.st_ino == faulty.watched;
	return env_real()->file->fsync(e, fd);
}

static inline ssize_t faulty_pwritev(struct env *e, int fd, const struct iovec *iov, int n,
				     off_t off)
{
	return faulty_change() ? -EIO : env_real()->file->pwritev(e, fd, iov, n, off);
}

static inline int faulty_renameat(struct env *e, int dir, const char *from, const char *to)
{
	return faulty_change() ? -EIO : env_real()->file->renameat(e, dir, from, to);
}

static inline int faulty_unlinkat(struct env *e, int dir, const char *path, int flags)
{
	return faulty_change() ? -EIO : env_real()->file->unlinkat(e, dir, path, flags);
}

static inline uint64_t faulty_wall(struct env *e)
{
	return env_real()->clock->wall(e) + faulty.skew;
}

static inline struct env *faulty_env(void)
{
	memset(&faulty, 0, sizeof(faulty));
	faulty.env = *env_real();
	faulty.file = *env_real()->file;
	faulty.clock = *env_real()->clock;
	faulty.file.submit = faulty_submit;
	faulty.file.fsync = faulty_fsync;
	faulty.file.pwritev = faulty_pwritev;
	faulty.file.renameat = faulty_renameat;
	faulty.file.unlinkat = faulty_unlinkat;
	faulty.clock.wall = faulty_wall;
	faulty.env.file = &faulty.file;
	faulty.env.clock = &faulty.clock;
	return &faulty.env;
}

static inline int disk_try(const struct uuid *fs, uint32_t target)
{
	disk_err[0] = 0;
	return disk_open(&loop, disk_path, fs, target, false, disk_max_floors, &disk, disk_err,
			 sizeof(disk_err));
}

/* Opens a newly formatted disk under `parent`. */
static inline void disk_begin(const char *parent)
{
	log_set_level(LOG_ERROR - 1); /* faults are expected, do not log them */
	snprintf(disk_path, sizeof(disk_path), "%s", scratch_make(parent));
	CHECK_EQ(loop_init(&loop, faulty_env()), 0);
	CHECK_EQ(disk_format(loop.env, disk_path, &test_fs, 3, disk_err, sizeof(disk_err)), 0);
	CHECK_EQ(disk_try(&test_fs, 3), 0);
}

static inline void disk_again(bool clean)
{
	CHECK_EQ(disk_close(disk, clean), 0);
	CHECK_EQ(disk_try(&test_fs, 3), 0);
}

static inline void disk_end(void)
{
	if (disk)
		CHECK_EQ(disk_close(disk, true), 0);
	disk = NULL;
	CHECK_EQ(loop.n_reqs, 0);
	loop_fini(&loop);
	scratch_remove(disk_path);
}

/* ---- blocking forms ---- */

struct args {
	uint64_t ino, epoch, off;
	struct object_stat st;
	uint32_t gen;
	bool create;
	int error;
	int64_t mtime;
	struct object *object;
	struct io io;
	struct iovec iov;
};

static inline void start_get(struct trial *t, struct req *q)
{
	struct args *a = t->arg;

	object_get(disk, (struct object_id){ a->ino, a->gen, 0 }, a->epoch, a->create, &a->object,
		   q);
}

static inline int get(uint64_t ino, uint32_t gen, bool create, struct object **out)
{
	struct args a = { .ino = ino, .gen = gen, .epoch = EPOCH_ANY, .create = create };
	int r = trial_run(&loop, start_get, &a);

	*out = a.object;
	return r;
}

/* Gets the object with a capability of this epoch. */
static inline int get_with(uint64_t ino, uint64_t epoch, bool create)
{
	struct args a = { .ino = ino, .gen = 1, .epoch = epoch, .create = create };
	int r = trial_run(&loop, start_get, &a);

	object_put(a.object);
	return r;
}

static inline struct object *get_ok(uint64_t ino, uint32_t gen)
{
	struct object *o;

	CHECK_EQ(get(ino, gen, true, &o), 0);
	return o;
}

static inline void start_write(struct trial *t, struct req *q)
{
	struct args *a = t->arg;

	a->io = (struct io){ .off = a->off, .iov = &a->iov, .n = 1 };
	object_write(a->object, &a->io, 1, a->mtime, q);
}

static inline int put_bytes(struct object *o, uint64_t off, const void *p, size_t n)
{
	struct args a = { .object = o, .off = off, .iov = { (void *)p, n }, .mtime = 77 };

	return trial_run(&loop, start_write, &a);
}

static inline void start_read(struct trial *t, struct req *q)
{
	struct args *a = t->arg;

	a->io = (struct io){ .off = a->off, .iov = &a->iov, .n = 1 };
	object_read(a->object, &a->io, 1, q);
}

static inline int read_bytes(struct object *o, uint64_t off, void *p, size_t n)
{
	struct args a = { .object = o, .off = off, .iov = { p, n } };
	int r = trial_run(&loop, start_read, &a);

	if (r == 0)
		CHECK_EQ(a.io.bytes, n);
	return r;
}

static inline void start_sync(struct trial *t, struct req *q)
{
	object_sync(t->arg, q);
}

static inline int sync_object(struct object *o)
{
	return trial_run(&loop, start_sync, o);
}

static inline void start_fence(struct trial *t, struct req *q)
{
	struct args *a = t->arg;

	disk_fence(disk, (struct object_id){ a->ino, a->gen, 0 }, a->epoch, a->off, &a->st, q);
}

static inline int fence(uint64_t ino, uint64_t epoch, uint64_t cut, uint64_t *end)
{
	struct args a = { .ino = ino, .gen = 1, .epoch = epoch, .off = cut };
	int r = trial_run(&loop, start_fence, &a);

	if (end)
		*end = a.st.end;
	return r;
}

static inline void start_remove(struct trial *t, struct req *q)
{
	struct args *a = t->arg;

	disk_remove(disk, (struct object_id){ a->ino, a->gen, 0 }, a->epoch, &a->error, q);
}

static inline int remove_object(uint64_t ino, uint64_t epoch)
{
	struct args a = { .ino = ino, .gen = 1, .epoch = epoch };
	int r = trial_run(&loop, start_remove, &a);

	return r ? r : a.error;
}

/* ---- turns ---- */

struct turn_trial {
	struct trial trial;
	struct turn turn;
	struct object *object;
	uint64_t epoch, lo, hi;
	bool write;
};

static inline void start_turn(struct trial *t, struct req *q)
{
	struct turn_trial *x = container_of(t, struct turn_trial, trial);

	turn_begin(x->object, &x->turn, x->epoch, x->lo, x->hi, x->write, q);
}

static inline void turn_ask(struct turn_trial *x, struct object *o, uint64_t epoch, uint64_t lo,
			    uint64_t hi, bool write)
{
	*x = (struct turn_trial){ .object = o, .epoch = epoch, .lo = lo, .hi = hi, .write = write };
	trial_start(&x->trial, &loop, start_turn, NULL);
}

/* Runs everything that can complete without a long wait. */
static inline void settle(void)
{
	struct object *o;

	for (int i = 0; i < 3; i++) {
		get(UINT64_C(0xdeadbeef), 9, false, &o); /* through the worker and back */
		loop_turn(&loop, 0);
	}
}

#endif
