/* Self-checks of the simulated environment: streams keep their order and deliver a prefix,
 * faults have the right effects, a power loss leaves only what the syncs allow, and a seed names
 * a run. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim_env.h"
#include "sim_priv.h"

#define CHECK(cond) check(!!(cond), #cond, __LINE__)
#define SEEDS 60
#define STREAM (200 * KIB)
#define PAGE 4096

static uint64_t current_seed;

static void check(int ok, const char *what, int line)
{
	if (ok)
		return;
	fprintf(stderr, "sim_selftest.c:%d: seed %llu: not true: %s\n", line,
		(unsigned long long)current_seed, what);
	exit(1);
}

static uint8_t pattern(uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 8) * 13 + (i >> 16));
}

/* ---------------------------------------------------------------- two nodes and a stream */

struct party {
	struct sim_node *node;
	struct loop loop;
	struct source listener, stream;
	uint64_t moved, total;
	bool ended;
	int error;
};

struct pair {
	struct sim sim;
	struct party from, to;
};

static void end_stream(struct party *p, int error)
{
	struct env *e = &p->node->env;

	p->ended = true;
	p->error = error;
	e->sock->watch(e, &p->loop, &p->stream, 0);
	e->sock->close(e, p->stream.fd);
	p->stream.fd = -1;
}

static void on_send(struct source *src, unsigned ev)
{
	struct party *p = container_of(src, struct party, stream);
	struct env *e = &p->node->env;
	uint8_t buf[3000];
	struct iovec iov[2] = { { buf, 1000 }, { buf + 1000, 2000 } };
	uint64_t left = p->total - p->moved;
	ssize_t r;

	if (ev & EV_ERR) {
		r = e->sock->connect_result(e, src->fd);
		end_stream(p, r ? (int)r : -ECONNRESET);
		return;
	}
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = pattern(p->moved + i);
	iov[0].iov_len = MIN(left, 1000);
	iov[1].iov_len = MIN(left - iov[0].iov_len, 2000);
	r = e->sock->writev(e, src->fd, iov, 2);
	if (r < 0 && r != -EAGAIN)
		end_stream(p, (int)r);
	if (r > 0)
		p->moved += (uint64_t)r;
	if (!p->ended && p->moved == p->total)
		end_stream(p, 0);
}

static void on_receive(struct source *src, unsigned ev)
{
	struct party *p = container_of(src, struct party, stream);
	struct env *e = &p->node->env;
	uint8_t buf[5000];
	struct iovec iov[3] = { { buf, 1 }, { buf, 0 }, { buf + 1, sizeof(buf) - 1 } };
	ssize_t r;

	(void)ev;
	r = e->sock->readv(e, src->fd, iov, 3);
	if (r == -EAGAIN)
		return;
	for (ssize_t i = 0; i < r; i++)
		CHECK(buf[i] == pattern(p->moved + (uint64_t)i));
	if (r > 0)
		p->moved += (uint64_t)r;
	else
		end_stream(p, (int)r);
}

static void on_accept(struct source *src, unsigned ev)
{
	struct party *p = container_of(src, struct party, listener);
	struct env *e = &p->node->env;
	int fd = e->sock->accept(e, src->fd);

	(void)ev;
	CHECK(fd >= 0);
	p->stream = (struct source){ .fd = fd, .ready = on_receive };
	CHECK(e->sock->watch(e, &p->loop, &p->stream, EV_IN) == 0);
}

static void pair_dial(struct pair *p)
{
	struct env *e = &p->from.node->env;

	p->from.ended = false;
	p->from.stream = (struct source){ .ready = on_send };
	p->from.stream.fd = e->sock->connect(e, "to:1");
	CHECK(p->from.stream.fd >= 0);
	CHECK(e->sock->watch(e, &p->from.loop, &p->from.stream, EV_OUT) == 0);
}

static void pair_listen(struct pair *p)
{
	struct env *e = &p->to.node->env;
	char err[200];

	p->to.stream.fd = -1;
	p->to.listener = (struct source){ .ready = on_accept };
	p->to.listener.fd = e->sock->listen(e, "to:1", err, sizeof(err));
	CHECK(p->to.listener.fd >= 0);
	CHECK(e->sock->listen(e, "to:1", err, sizeof(err)) == -EADDRINUSE);
	CHECK(e->sock->watch(e, &p->to.loop, &p->to.listener, EV_IN) == 0);
}

static void pair_init(struct pair *p, uint64_t seed)
{
	memset(p, 0, sizeof(*p));
	current_seed = seed;
	sim_init(&p->sim, seed);
	p->sim.faults.buffer_min = 1000;
	p->from.node = sim_node_add(&p->sim, "from");
	p->to.node = sim_node_add(&p->sim, "to");
	CHECK(loop_init(&p->from.loop, &p->from.node->env) == 0);
	CHECK(loop_init(&p->to.loop, &p->to.node->env) == 0);
	p->from.total = STREAM;
	p->from.stream.fd = -1;
	pair_listen(p);
}

static void pair_fini(struct pair *p)
{
	loop_fini(&p->from.loop);
	loop_fini(&p->to.loop);
	sim_fini(&p->sim);
}

static bool both_ended(void *arg)
{
	struct pair *p = arg;

	return p->from.ended && p->to.ended;
}

static bool dialler_ended(void *arg)
{
	return ((struct pair *)arg)->from.ended;
}

static bool some_arrived(void *arg)
{
	return ((struct pair *)arg)->to.moved > 0;
}

static void streams_arrive_whole_and_in_order(void)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct pair p;

		pair_init(&p, seed);
		pair_dial(&p);
		CHECK(sim_run(&p.sim, both_ended, &p, 60 * NSEC_PER_SEC));
		CHECK(p.from.error == 0 && p.to.error == 0 && p.to.moved == STREAM);
		pair_fini(&p);
	}
}

static void cut_streams_are_prefixes(void)
{
	unsigned cut = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct pair p;

		pair_init(&p, seed);
		p.sim.faults.cut = 20000;
		pair_dial(&p);
		CHECK(sim_run(&p.sim, both_ended, &p, 60 * NSEC_PER_SEC));
		CHECK(p.to.moved <= p.from.moved);
		cut += p.to.moved < STREAM;
		pair_fini(&p);
	}
	CHECK(cut > SEEDS / 4);
}

static void a_node_that_is_down_refuses(void)
{
	struct pair p;

	pair_init(&p, 5);
	pair_dial(&p);
	CHECK(sim_run(&p.sim, some_arrived, &p, NSEC_PER_SEC));
	sim_node_crash(p.to.node);
	CHECK(p.to.node->env.sock->connect(&p.to.node->env, "from:1") == -ENETDOWN);
	loop_fini(&p.to.loop);
	CHECK(sim_run(&p.sim, dialler_ended, &p, 60 * NSEC_PER_SEC));
	CHECK(p.from.error != 0);
	pair_dial(&p);
	CHECK(sim_run(&p.sim, dialler_ended, &p, 60 * NSEC_PER_SEC));
	CHECK(p.from.error == -ECONNREFUSED);
	sim_node_restart(p.to.node);
	CHECK(loop_init(&p.to.loop, &p.to.node->env) == 0);
	pair_listen(&p);
	p.from.moved = p.to.moved = 0;
	pair_dial(&p);
	CHECK(sim_run(&p.sim, both_ended, &p, 60 * NSEC_PER_SEC));
	CHECK(p.to.moved == STREAM);
	pair_fini(&p);
}

static void heal(void *arg)
{
	struct pair *p = arg;

	sim_partition(&p->sim, p->from.node, p->to.node, false);
}

static void partitions_stall_then_break(void)
{
	for (int lasting = 0; lasting < 2; lasting++) {
		struct pair p;

		pair_init(&p, 8);
		pair_dial(&p);
		CHECK(sim_run(&p.sim, some_arrived, &p, NSEC_PER_SEC));
		sim_partition(&p.sim, p.from.node, p.to.node, true);
		if (!lasting)
			sim_after(&p.sim, 2 * NSEC_PER_SEC, heal, &p);
		CHECK(sim_run(&p.sim, both_ended, &p, 60 * NSEC_PER_SEC));
		CHECK((p.to.moved == STREAM) == !lasting);
		CHECK(p.sim.now > (lasting ? 6 : 3) * NSEC_PER_SEC);
		if (lasting) {
			pair_dial(&p);
			CHECK(sim_run(&p.sim, dialler_ended, &p, 60 * NSEC_PER_SEC));
			CHECK(p.from.error == -ETIMEDOUT);
		}
		pair_fini(&p);
	}
}

static void one_way_and_clocks(void)
{
	struct pair p;
	uint64_t t;

	pair_init(&p, 9);
	sim_one_way(&p.sim, p.to.node, p.from.node,
		    true); /* the answer to the connect does not arrive */
	pair_dial(&p);
	CHECK(sim_run(&p.sim, dialler_ended, &p, 60 * NSEC_PER_SEC));
	CHECK(p.from.error == -ETIMEDOUT);
	sim_one_way(&p.sim, p.to.node, p.from.node, false);
	pair_dial(&p);
	CHECK(sim_run(&p.sim, some_arrived, &p, NSEC_PER_SEC));
	t = p.from.node->env.clock->now(&p.from.node->env);
	sim_drift(p.from.node, 10000);
	CHECK(p.from.node->env.clock->now(&p.from.node->env) == t);
	p.sim.now += NSEC_PER_SEC;
	t = p.from.node->env.clock->now(&p.from.node->env) - t;
	CHECK(t > NSEC_PER_SEC + 9 * NSEC_PER_MSEC && t < NSEC_PER_SEC + 11 * NSEC_PER_MSEC);
	pair_fini(&p);
}

/* ---------------------------------------------------------------- files and power loss */

static void put(struct env *e, int fd, uint8_t fill, uint64_t off, size_t len)
{
	uint8_t buf[3 * PAGE];
	struct iovec iov = { buf, len };

	memset(buf, fill, len);
	CHECK(e->file->pwritev(e, fd, &iov, 1, (off_t)off) == (ssize_t)len);
}

static uint8_t byte_at(struct env *e, int fd, uint64_t off)
{
	uint8_t b = 0;
	struct iovec iov = { &b, 1 };

	CHECK(e->file->preadv(e, fd, &iov, 1, (off_t)off) >= 0);
	return b;
}

static int make(struct env *e, int dir, const char *name)
{
	int fd = e->file->openat(e, dir, name, O_RDWR | O_CREAT | O_EXCL, 0600);

	CHECK(fd >= 0);
	return fd;
}

static int look(struct env *e, const char *path)
{
	return e->file->openat(e, AT_FDCWD, path, O_RDWR, 0);
}

/* A restart after a power loss; no code of the node is running here. */
static void power_loss(struct sim_node *n)
{
	sim_node_crash(n);
	CHECK(look(&n->env, "/d/f") == -EIO);
	sim_node_restart(n);
}

/* Makes /d with the file f: two synced pages of 'a'. */
static int prepare(struct env *e, int *dir)
{
	int fd, root = e->file->openat(e, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY, 0);

	CHECK(root >= 0);
	CHECK(e->file->mkdirat(e, AT_FDCWD, "/d", 0700) == 0);
	CHECK(e->file->fsync(e, root) == 0);
	*dir = e->file->openat(e, root, "d", O_RDONLY | O_DIRECTORY, 0);
	CHECK(*dir >= 0);
	e->file->close(e, root);
	fd = make(e, *dir, "f");
	put(e, fd, 'a', 0, 2 * PAGE);
	CHECK(e->file->fsync(e, fd) == 0);
	CHECK(e->file->fsync(e, *dir) == 0);
	return fd;
}

/* Starts a simulation of one node with the synced file /d/f of two pages. */
static struct sim_node *start_node(struct sim *sim, uint64_t seed, int *dir, int *fd)
{
	struct sim_node *n;

	current_seed = seed;
	sim_init(sim, seed);
	n = sim_node_add(sim, "n");
	*fd = prepare(&n->env, dir);
	return n;
}

static void a_power_loss_takes_only_what_was_not_synced(void)
{
	unsigned lost[4] = { 0 };

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim sim;
		struct sim_node *n;
		struct stat st;
		int dir, fd;

		n = start_node(&sim, seed, &dir, &fd);
		put(&n->env, fd, 'b', PAGE, 2 * PAGE); /* one page overwritten, one new */
		make(&n->env, dir, "new");
		power_loss(n);
		fd = look(&n->env, "/d/f");
		CHECK(fd >= 0 && n->env.file->fstat(&n->env, fd, &st) == 0);
		CHECK(byte_at(&n->env, fd, 0) == 'a');
		CHECK(byte_at(&n->env, fd, PAGE) == 'a' || byte_at(&n->env, fd, PAGE) == 'b');
		CHECK(st.st_size == 2 * PAGE || st.st_size == 3 * PAGE);
		lost[0] += byte_at(&n->env, fd, PAGE) == 'a';
		lost[1] += st.st_size == 2 * PAGE;
		lost[2] += st.st_size == 3 * PAGE && byte_at(&n->env, fd, 2 * PAGE) == 0;
		lost[3] += look(&n->env, "/d/new") == -ENOENT;
		sim_fini(&sim);
	}
	for (int i = 0; i < 4; i++)
		CHECK(lost[i] > SEEDS / 12 && lost[i] < SEEDS);
}

static void renames_are_whole_and_durable_with_their_directory(void)
{
	unsigned old = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		bool sync_dir = seed % 2;
		struct sim sim;
		struct sim_node *n;
		int dir, fd;

		current_seed = seed;
		sim_init(&sim, seed);
		n = sim_node_add(&sim, "n");
		prepare(&n->env, &dir);
		fd = make(&n->env, dir, "f.new");
		put(&n->env, fd, 'c', 0, PAGE);
		CHECK(n->env.file->fsync(&n->env, fd) == 0);
		CHECK(n->env.file->renameat(&n->env, dir, "f.new", "f") == 0);
		if (sync_dir)
			CHECK(n->env.file->fsync(&n->env, dir) == 0);
		power_loss(n);
		fd = look(&n->env, "/d/f");
		CHECK(fd >= 0);
		CHECK(byte_at(&n->env, fd, 0) == 'c' ||
		      (!sync_dir && byte_at(&n->env, fd, 0) == 'a'));
		old += byte_at(&n->env, fd, 0) == 'a';
		CHECK(!sync_dir || look(&n->env, "/d/f.new") == -ENOENT);
		sim_fini(&sim);
	}
	CHECK(old > 0 && old < SEEDS / 2);
}

static void a_failed_sync_loses_pages_and_tells_once(void)
{
	unsigned lost = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim sim;
		struct sim_node *n;
		int dir, fd;

		n = start_node(&sim, seed, &dir, &fd);
		put(&n->env, fd, 'b', 0, PAGE);
		sim.faults.sync_eio = 1000000;
		CHECK(n->env.file->fsync(&n->env, fd) == -EIO);
		sim.faults.sync_eio = 0;
		CHECK(n->env.file->fsync(&n->env, fd) == 0);
		CHECK(byte_at(&n->env, fd, 0) == 'b'); /* the cache still has it */
		power_loss(n);
		fd = look(&n->env, "/d/f");
		lost += byte_at(&n->env, fd, 0) == 'a';
		sim_fini(&sim);
	}
	CHECK(lost > SEEDS / 6 && lost < SEEDS);
}

static void io_over(struct io *io)
{
	*(bool *)io->arg = true;
}

static bool is_over(void *arg)
{
	return *(bool *)arg;
}

/* What is written during a sync may be lost; what was written before it may not, once the sync
 * has ended. */
static void a_sync_covers_what_was_written_before_it_began(void)
{
	unsigned seen[3] = { 0 };

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		bool over = false, wait = seed % 2;
		struct sim sim;
		struct loop loop;
		struct sim_node *n;
		struct io io;
		int dir, fd;
		char c;

		current_seed = seed;
		sim_init(&sim, seed);
		n = sim_node_add(&sim, "n");
		CHECK(loop_init(&loop, &n->env) == 0);
		fd = prepare(&n->env, &dir);
		put(&n->env, fd, 'b', 0, PAGE);
		io = (struct io){ .kind = IO_SYNC, .fd = fd, .done = io_over, .arg = &over };
		io_submit(&loop, &io);
		put(&n->env, fd, 'c', 0, 2 * PAGE);
		CHECK(!wait || sim_run(&sim, is_over, &over, NSEC_PER_SEC));
		sim_node_crash(n);
		loop_fini(&loop);
		sim_node_restart(n);
		fd = look(&n->env, "/d/f");
		c = (char)byte_at(&n->env, fd, 0);
		CHECK(c == 'c' || c == (wait ? 'b' : 'a'));
		seen[c - 'a']++;
		c = (char)byte_at(&n->env, fd, PAGE);
		CHECK(c == 'a' || c == 'c');
		sim_fini(&sim);
	}
	for (int i = 0; i < 3; i++)
		CHECK(seen[i] > SEEDS / 8);
}

static void stores_into_a_mapping_are_writes(void)
{
	unsigned lost = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		bool sync = seed % 2;
		struct sim sim;
		struct sim_node *n;
		int dir, fd;
		char *map;

		n = start_node(&sim, seed, &dir, &fd);
		map = (char *)(uintptr_t)n->env.file->map(&n->env, fd, 16 * PAGE, true);
		CHECK(map && map[PAGE] == 'a');
		put(&n->env, fd, 'b', 0, PAGE);
		CHECK(map[0] == 'b');
		memset(map + PAGE, 'c', PAGE);
		CHECK(byte_at(&n->env, fd, PAGE) == 'c');
		CHECK(sim_fs_usable(n, map, 3 * PAGE) == 2 * PAGE);
		CHECK(sim_fs_store(n, map + PAGE, PAGE) == 0);
		CHECK(sim_fs_store(n, map + PAGE, PAGE + 1) == -EFAULT); /* behind the end */
		CHECK(!sync || n->env.file->fsync(&n->env, fd) == 0);
		power_loss(n);
		n->env.file->unmap(&n->env, map, 16 * PAGE);
		fd = look(&n->env, "/d/f");
		CHECK(byte_at(&n->env, fd, PAGE) == 'c' ||
		      (!sync && byte_at(&n->env, fd, PAGE) == 'a'));
		lost += byte_at(&n->env, fd, PAGE) == 'a';
		sim_fini(&sim);
	}
	CHECK(lost > SEEDS / 6 && lost < SEEDS / 2);
}

/* Data in pages 0, 1 and 4, of which page 1 becomes a hole, and room in page 6. */
static void find_holes(struct env *e, int fd)
{
	off_t (*seek)(struct env * env, int f, off_t off, int whence) = e->file->seek;

	put(e, fd, 'b', 4 * PAGE, 10);
	CHECK(e->file->fallocate(e, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE) ==
	      0);
	CHECK(e->file->fallocate(e, fd, 0, 6 * PAGE, 100) == 0);
	CHECK(seek(e, fd, 7, SEEK_DATA) == 7 && seek(e, fd, 7, SEEK_HOLE) == PAGE);
	CHECK(seek(e, fd, PAGE + 7, SEEK_DATA) == 4 * PAGE);
	CHECK(seek(e, fd, PAGE + 7, SEEK_HOLE) == PAGE + 7);
	CHECK(seek(e, fd, 4 * PAGE, SEEK_HOLE) == 5 * PAGE);
	CHECK(seek(e, fd, 5 * PAGE, SEEK_DATA) == -ENXIO);
	CHECK(seek(e, fd, 6 * PAGE + 100, SEEK_HOLE) == -ENXIO);
	put(e, fd, 'b', 5 * PAGE, PAGE + 100);
	CHECK(seek(e, fd, 4 * PAGE, SEEK_HOLE) == 6 * PAGE + 100);
}

static void most_disks_find_holes(void)
{
	unsigned found = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim sim;
		struct sim_node *n;
		int dir, fd;

		n = start_node(&sim, seed, &dir, &fd);
		if (n->env.file->seek(&n->env, fd, 0, SEEK_DATA) != -EINVAL) {
			find_holes(&n->env, fd);
			found++;
		}
		sim_fini(&sim);
	}
	CHECK(found > SEEDS / 2 && found < SEEDS);
}

static void processes_of_one_host_share_files(void)
{
	char path[64] = "", err[64], byte = 0;
	struct iovec iov = { &byte, 1 };
	struct sim sim;
	struct sim_node *n, *m;
	struct stat st;
	bool memory;
	int dir, fd;

	sim_init(&sim, 5);
	n = sim_node_add(&sim, "n");
	m = sim_node_add(&sim, "m");
	n->on_tmpfs = true;
	prepare(&n->env, &dir);
	CHECK(n->env.file->dir_path(&n->env, dir, path, sizeof(path)) > 0);
	CHECK(n->env.file->fstat(&n->env, dir, &st) == 0);
	CHECK(n->env.sock->listen(&n->env, "@n:1", err, sizeof(err)) >= 0);
	CHECK(m->env.file->open_dir_cached(&m->env, path, st.st_dev, st.st_ino, &memory) ==
	      -ENOENT);
	CHECK(m->env.sock->connect(&m->env, "@n:1") == -ECONNREFUSED);
	m->host = n->host;
	CHECK(m->env.sock->connect(&m->env, "@n:1") >= 0);
	dir = m->env.file->open_dir_cached(&m->env, path, st.st_dev, st.st_ino, &memory);
	CHECK(dir >= 0 && memory);
	while ((fd = m->env.file->open_cached(&m->env, dir, "f")) == -EAGAIN)
		;
	CHECK(m->env.file->read_cached(&m->env, fd, &iov, 1, 0, memory) == 1 && byte == 'a');
	power_loss(n);
	CHECK(m->env.file->read_cached(&m->env, fd, &iov, 1, 0, memory) == 0);
	sim_fini(&sim);
}

static void a_full_disk_and_a_killed_process(void)
{
	struct sim sim;
	struct sim_node *n;
	struct env *e;
	struct iovec iov = { &sim, 1 };
	struct stat st;
	int dir, fd;

	sim_init(&sim, 3);
	n = sim_node_add(&sim, "n");
	e = &n->env;
	fd = prepare(e, &dir);
	n->capacity = 3 * PAGE;
	put(e, fd, 'x', 2 * PAGE, PAGE);
	CHECK(e->file->pwritev(e, fd, &iov, 1, 3 * PAGE) == -ENOSPC);
	put(e, fd, 'y', 2 * PAGE, 10); /* room that is allocated already */
	CHECK(e->file->lock(e, fd) == 0);
	CHECK(e->file->lock(e, look(e, "/d/f")) == -EWOULDBLOCK);
	CHECK(e->file->ftruncate(e, fd, PAGE + 5) == 0);
	CHECK(e->file->ftruncate(e, fd, 2 * PAGE) == 0);
	CHECK(byte_at(e, fd, PAGE + 4) == 'a' && byte_at(e, fd, PAGE + 5) == 0);
	sim_node_kill(n);
	sim_node_restart(n);
	fd = look(e, "/d/f");
	CHECK(fd >= 0 && e->file->lock(e, fd) == 0);
	CHECK(e->file->fstat(e, fd, &st) == 0 && st.st_size == 2 * PAGE);
	CHECK(e->file->unlinkat(e, AT_FDCWD, "/d", AT_REMOVEDIR) == -ENOTEMPTY);
	CHECK(e->file->unlinkat(e, AT_FDCWD, "/d/f", 0) == 0);
	CHECK(e->file->unlinkat(e, AT_FDCWD, "/d", AT_REMOVEDIR) == 0);
	CHECK(byte_at(e, fd, 0) == 'a'); /* open, so the file still exists */
	sim_fini(&sim);
}

/* ---------------------------------------------------------------- work outside of the loop */

#define ACCESSES 20

struct access_test {
	struct req q;
	struct io io[ACCESSES];
	struct iovec iov[ACCESSES];
	uint8_t bytes[ACCESSES];
	int order[ACCESSES];
	int n_done;
	bool finished;
	struct job jobs[ACCESSES];
	int n_ran;
	struct worker *worker;
};

static bool access_step(struct req *q)
{
	struct access_test *t = container_of(q, struct access_test, q);

	if (q->state == 0) {
		req_goto(q, 1);
		for (int i = 0; i < ACCESSES; i++)
			io_submit(q->loop, &t->io[i]);
		return true;
	}
	t->finished = true;
	CHECK(q->error == 0 && t->n_done == ACCESSES);
	req_fini(q);
	return false;
}

static const char *const state_names[] = { "start", "end" };
static const struct req_ops access_ops = REQ_OPS("access", access_step, 1, state_names);

static void access_done(struct io *io)
{
	struct access_test *t = container_of(io->q, struct access_test, q);

	CHECK(io->error == 0 && io->bytes == 1);
	t->order[t->n_done++] = (int)(io - t->io);
	req_done(io->q, io->error, io->bytes);
}

static void job_run(struct job *j)
{
	(void)j;
}

static struct access_test *job_owner;

static void job_done(struct job *j)
{
	CHECK(j == &job_owner->jobs[job_owner->n_ran]); /* in order */
	job_owner->n_ran++;
}

static void start_work(struct access_test *t, struct loop *l, int fd)
{
	struct env *e = l->env;

	memset(t, 0, sizeof(*t));
	job_owner = t;
	req_init(&t->q, l, &access_ops, 0);
	for (int i = 0; i < ACCESSES; i++) {
		t->iov[i] = (struct iovec){ &t->bytes[i], 1 };
		t->io[i] = (struct io){ .kind = IO_WRITE,
					.fd = fd,
					.iov = &t->iov[i],
					.n = 1,
					.off = (uint64_t)i,
					.q = &t->q,
					.done = access_done };
	}
	req_run(&t->q);
	CHECK(e->exec->worker_start(e, l, "w", &t->worker) == 0);
	for (int i = 0; i < ACCESSES; i++) {
		t->jobs[i].run = job_run;
		t->jobs[i].done = job_done;
		e->exec->worker_submit(t->worker, &t->jobs[i]);
	}
}

static bool work_finished(void *arg)
{
	struct access_test *t = arg;

	return t->finished && t->n_ran == ACCESSES / 2;
}

static void accesses_are_reordered_and_jobs_are_not(void)
{
	struct access_test t;
	struct sim sim;
	struct sim_node *n;
	struct loop l;
	bool reordered = false;

	current_seed = 4;
	sim_init(&sim, 4);
	n = sim_node_add(&sim, "n");
	CHECK(loop_init(&l, &n->env) == 0);
	start_work(&t, &l, make(&n->env, AT_FDCWD, "x"));
	CHECK(sim_run(&sim, work_finished, &t, NSEC_PER_SEC));
	n->env.exec->worker_stop(t.worker);
	CHECK(t.n_ran == ACCESSES); /* stopping ran the others */
	for (int i = 0; i < ACCESSES; i++)
		reordered |= t.order[i] != i;
	CHECK(reordered);
	while (sim_step(&sim))
		;
	start_work(&t, &l, look(&n->env, "x"));
	sim_node_crash(n);
	while (sim_step(&sim))
		;
	CHECK(t.n_done == 0 && t.n_ran == 0 && !t.finished);
	n->env.exec->worker_stop(t.worker);
	loop_fini(&l);
	sim_node_restart(n);
	sim_fini(&sim);
}

/* ---------------------------------------------------------------- determinism */

static uint64_t eventful_run(uint64_t seed)
{
	struct pair p;
	struct access_test t;
	uint64_t hash;
	int dir;

	pair_init(&p, seed);
	p.sim.faults.cut = 1000;
	p.sim.faults.slow = 20000;
	prepare(&p.to.node->env, &dir);
	pair_dial(&p);
	start_work(&t, &p.to.loop, make(&p.to.node->env, dir, "w"));
	sim_run(&p.sim, some_arrived, &p, 10 * NSEC_PER_SEC);
	sim_partition(&p.sim, p.from.node, p.to.node, true);
	sim_after(&p.sim, NSEC_PER_SEC, heal, &p);
	sim_run(&p.sim, dialler_ended, &p, 60 * NSEC_PER_SEC);
	sim_node_crash(p.to.node);
	p.to.node->env.exec->worker_stop(t.worker);
	loop_fini(&p.to.loop);
	sim_node_restart(p.to.node);
	while (sim_step(&p.sim))
		;
	sim_trace(&p.sim, 1, 0, (uint64_t)look(&p.to.node->env, "/d/w"));
	hash = p.sim.hash;
	pair_fini(&p);
	return hash;
}

/* A request that never ends: one step per turn, or all steps in one turn. */
struct spin {
	struct sim sim;
	struct loop loop;
	struct req q;
	bool within;
	jmp_buf out;
};

static bool spin_step(struct req *q)
{
	struct spin *p = container_of(q, struct spin, q);

	while (p->within)
		p->loop.env->clock->now(p->loop.env);
	req_yield(q);
	return true;
}

static void spin_noticed(struct sim *s, const char *why, bool within)
{
	struct spin *p = container_of(s, struct spin, sim);

	CHECK(!strncmp(why, "does not end", 12));
	CHECK(within == p->within);
	if (within)
		longjmp(p->out, 1);
}

static void spin_run(bool within, struct sim_bounds bounds)
{
	static const char *const states[] = { "spin" };
	static const struct req_ops ops = REQ_OPS("spin", spin_step, 0, states);
	struct spin *p = sim_alloc(sizeof(*p));

	sim_init(&p->sim, 1);
	p->sim.bounds = bounds;
	p->sim.on_endless = spin_noticed;
	p->within = within;
	CHECK(loop_init(&p->loop, &sim_node_add(&p->sim, "a")->env) == 0);
	req_init(&p->q, &p->loop, &ops, 0);
	list_push(&p->loop.runnable, &p->q.link);
	if (!setjmp(p->out))
		while (sim_step(&p->sim))
			;
	CHECK(p->sim.endless);
	/* p is leaked: a turn that was left by longjmp() cannot be cleaned up */
	CHECK(!sim_step(&p->sim));
}

static void a_run_that_does_not_end_is_noticed(void)
{
	spin_run(false, (struct sim_bounds){ 1000, UINT64_MAX, 100 });
	spin_run(false, (struct sim_bounds){ UINT64_MAX, 1000, 100 });
	spin_run(true, (struct sim_bounds){ UINT64_MAX, UINT64_MAX, 1000 });
}

static void a_seed_names_a_run(void)
{
	uint64_t all = 0;

	for (uint64_t seed = 1; seed <= 5; seed++) {
		uint64_t h = eventful_run(seed);

		CHECK(h == eventful_run(seed));
		CHECK(h != eventful_run(seed + 100));
		all = all * 31 + h;
	}
	/* must be the same with every compiler */
	printf("trace %016llx\n", (unsigned long long)all);
}

int sim_selftest(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} tests[] = {
		{ "streams_arrive_whole_and_in_order", streams_arrive_whole_and_in_order },
		{ "cut_streams_are_prefixes", cut_streams_are_prefixes },
		{ "a_node_that_is_down_refuses", a_node_that_is_down_refuses },
		{ "partitions_stall_then_break", partitions_stall_then_break },
		{ "a_power_loss_takes_only_what_was_not_synced",
		  a_power_loss_takes_only_what_was_not_synced },
		{ "renames_are_whole_and_durable_with_their_directory",
		  renames_are_whole_and_durable_with_their_directory },
		{ "a_sync_covers_what_was_written_before_it_began",
		  a_sync_covers_what_was_written_before_it_began },
		{ "a_failed_sync_loses_pages_and_tells_once",
		  a_failed_sync_loses_pages_and_tells_once },
		{ "stores_into_a_mapping_are_writes", stores_into_a_mapping_are_writes },
		{ "most_disks_find_holes", most_disks_find_holes },
		{ "processes_of_one_host_share_files", processes_of_one_host_share_files },
		{ "a_full_disk_and_a_killed_process", a_full_disk_and_a_killed_process },
		{ "accesses_are_reordered_and_jobs_are_not",
		  accesses_are_reordered_and_jobs_are_not },
		{ "one_way_and_clocks", one_way_and_clocks },
		{ "the judges", sim_lintest },
		{ "network cards", sim_selfabric },
		{ "a_run_that_does_not_end_is_noticed", a_run_that_does_not_end_is_noticed },
		{ "a_seed_names_a_run", a_seed_names_a_run },
	};

	for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
		printf("%s\n", tests[i].name);
		fflush(stdout);
		tests[i].fn();
	}
	return 0;
}
