#include "disk_fixture.h"

struct faulty faulty;

struct loop loop;
struct disk *disk;
char disk_path[512];
uint32_t disk_max_floors;
const struct uuid test_fs = { .b = { 1, 2, 3 } };
char disk_err[512];

/* Counts one change of a file. Returns 0, or -EIO after the simulated kill. */
static int faulty_change(void)
{
	return faulty.mortal && atomic_fetch_sub(&faulty.steps, 1) <= 0 ? -EIO : 0;
}

/* Submits one access at a time, so that each one may fail. */
static void faulty_submit(struct env *e, struct loop *l, struct io *io)
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

static int faulty_fsync(struct env *e, int fd)
{
	struct stat st;

	if (faulty_change())
		return -EIO;
	if (faulty.fail_fsync)
		return faulty.fail_fsync;
	faulty.n_watched += fstat(fd, &st) == 0 && st.st_ino == faulty.watched;
	return env_real()->file->fsync(e, fd);
}

static ssize_t faulty_pwritev(struct env *e, int fd, const struct iovec *iov, int n, off_t off)
{
	return faulty_change() ? -EIO : env_real()->file->pwritev(e, fd, iov, n, off);
}

static int faulty_renameat(struct env *e, int dir, const char *from, const char *to)
{
	return faulty_change() ? -EIO : env_real()->file->renameat(e, dir, from, to);
}

static int faulty_unlinkat(struct env *e, int dir, const char *path, int flags)
{
	return faulty_change() ? -EIO : env_real()->file->unlinkat(e, dir, path, flags);
}

static uint64_t faulty_wall(struct env *e)
{
	return env_real()->clock->wall(e) + faulty.skew;
}

static struct env *faulty_env(void)
{
	memset(&faulty, 0, sizeof(faulty));
	faulty.env = *env_real();
	faulty.file = *env_real()->file;
	faulty.clock = *env_real()->clock;
	faulty.file.perform_now = NULL;
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

int disk_fixture_open(const struct uuid *fs, uint32_t target)
{
	disk_err[0] = 0;
	return disk_open(&loop, disk_path, fs, target, false, disk_max_floors, &disk, disk_err,
			 sizeof(disk_err));
}

void disk_fixture_start(const char *parent)
{
	log_set_level(LOG_ERROR - 1); /* faults are expected, do not log them */
	snprintf(disk_path, sizeof(disk_path), "%s", scratch_dir_make(parent));
	CHECK_EQ(loop_init(&loop, faulty_env()), 0);
	CHECK_EQ(disk_format(loop.env, disk_path, &test_fs, 3, disk_err, sizeof(disk_err)), 0);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
}

void disk_fixture_reopen(bool clean)
{
	CHECK_EQ(disk_close(disk, clean), 0);
	CHECK_EQ(disk_fixture_open(&test_fs, 3), 0);
}

void disk_fixture_end(void)
{
	if (disk)
		CHECK_EQ(disk_close(disk, true), 0);
	disk = NULL;
	CHECK_EQ(loop.n_reqs, 0);
	loop_fini(&loop);
	scratch_dir_remove(disk_path);
}

/* ---- blocking forms ---- */

void start_get(struct test_req *t, struct req *q)
{
	struct disk_args *a = t->arg;

	object_get(disk, (struct object_id){ a->ino, a->gen, 0 }, a->epoch, a->create, &a->object,
		   q);
}

int get_object(uint64_t ino, uint32_t gen, bool create, struct object **out)
{
	struct disk_args a = { .ino = ino, .gen = gen, .epoch = EPOCH_ANY, .create = create };
	int r = test_req_run(&loop, start_get, &a);

	*out = a.object;
	return r;
}

int get_object_with(uint64_t ino, uint64_t epoch, bool create)
{
	struct disk_args a = { .ino = ino, .gen = 1, .epoch = epoch, .create = create };
	int r = test_req_run(&loop, start_get, &a);

	object_put(a.object);
	return r;
}

struct object *get_object_ok(uint64_t ino, uint32_t gen)
{
	struct object *o;

	CHECK_EQ(get_object(ino, gen, true, &o), 0);
	return o;
}

static void start_write(struct test_req *t, struct req *q)
{
	struct disk_args *a = t->arg;

	a->io = (struct io){ .off = a->off, .iov = &a->iov, .n = 1 };
	object_write(a->object, &a->io, 1, a->mtime, q);
}

int write_bytes(struct object *o, uint64_t off, const void *p, size_t n)
{
	struct disk_args a = { .object = o, .off = off, .iov = { (void *)p, n }, .mtime = 77 };

	return test_req_run(&loop, start_write, &a);
}

static void start_read(struct test_req *t, struct req *q)
{
	struct disk_args *a = t->arg;

	a->io = (struct io){ .off = a->off, .iov = &a->iov, .n = 1 };
	object_read(a->object, &a->io, 1, q);
}

int read_bytes(struct object *o, uint64_t off, void *p, size_t n)
{
	struct disk_args a = { .object = o, .off = off, .iov = { p, n } };
	int r = test_req_run(&loop, start_read, &a);

	if (r == 0)
		CHECK_EQ(a.io.bytes, n);
	return r;
}

void start_sync(struct test_req *t, struct req *q)
{
	object_sync(t->arg, q);
}

int sync_object(struct object *o)
{
	return test_req_run(&loop, start_sync, o);
}

void start_fence(struct test_req *t, struct req *q)
{
	struct disk_args *a = t->arg;

	disk_fence(disk, (struct object_id){ a->ino, a->gen, 0 }, a->epoch, a->off, &a->st, q);
}

int fence_object(uint64_t ino, uint64_t epoch, uint64_t cut, uint64_t *end)
{
	struct disk_args a = { .ino = ino, .gen = 1, .epoch = epoch, .off = cut };
	int r = test_req_run(&loop, start_fence, &a);

	if (end)
		*end = a.st.end;
	return r;
}

void start_remove(struct test_req *t, struct req *q)
{
	struct disk_args *a = t->arg;

	disk_remove(disk, (struct object_id){ a->ino, a->gen, 0 }, a->epoch, &a->error, q);
}

int remove_object(uint64_t ino, uint64_t epoch)
{
	struct disk_args a = { .ino = ino, .gen = 1, .epoch = epoch };
	int r = test_req_run(&loop, start_remove, &a);

	return r ? r : a.error;
}

/* ---- turns ---- */

static void start_turn(struct test_req *t, struct req *q)
{
	struct turn_req *x = container_of(t, struct turn_req, req);

	turn_begin(x->object, &x->turn, x->epoch, x->lo, x->hi, x->write, q);
}

void turn_ask(struct turn_req *x, struct object *o, uint64_t epoch, uint64_t lo, uint64_t hi,
	      bool write)
{
	*x = (struct turn_req){ .object = o, .epoch = epoch, .lo = lo, .hi = hi, .write = write };
	test_req_start(&x->req, &loop, start_turn, NULL);
}

void disk_fixture_settle(void)
{
	struct object *o;

	for (int i = 0; i < 3; i++) {
		get_object(UINT64_C(0xdeadbeef), 9, false, &o); /* through the worker and back */
		loop_turn(&loop, 0);
	}
}
