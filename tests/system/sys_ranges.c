/* Ranges of files: allocation, holes, zeros, seeks and copies from server to server, against a
 * model in memory; with small stripes over several servers, with killed servers and clients, and
 * concurrent with truncates. */
#include <pthread.h>

#include "cluster.h"

#define FILES 4
#define FILE_MAX 400000
#define OPS (SANITIZED ? 400 : 2000)

static struct cluster c;
static struct sheaf *fs;
static uint64_t rng = 4711;

static uint64_t below(uint64_t n)
{
	return test_random(&rng) % n;
}

/* ---- the model ---- */

/* Bytes past the size of a model are zeros. */
static struct model {
	struct sheaf_file *f[2]; /* one for each of two connections */
	uint64_t size;
	uint8_t b[FILE_MAX];
} models[FILES];

static uint8_t bytes[FILE_MAX + 1];

static void model_grow(struct model *m, uint64_t end)
{
	m->size = end > m->size ? end : m->size;
}

/* A random offset, often at a stripe boundary. */
static uint64_t some_offset(void)
{
	uint64_t at = below(FILE_MAX / 4096) * 4096;

	return below(2) ? at : below(FILE_MAX - 1);
}

static uint64_t some_length(uint64_t off)
{
	uint64_t most = below(3) ? 30000 : FILE_MAX, n = below(most) + 1;

	n = below(3) ? n : (n + 4095) / 4096 * 4096;
	return n < FILE_MAX - off ? n : FILE_MAX - off;
}

static void check_all(struct model *m, struct sheaf_file *f)
{
	struct stat st;

	CHECK_EQ(sheaf_fstat(f, &st), 0);
	CHECK_EQ(st.st_size, m->size);
	CHECK_EQ(sheaf_pread(f, bytes, sizeof(bytes), 0), m->size);
	CHECK_EQ(memcmp(bytes, m->b, m->size), 0);
}

static bool zeros(const struct model *m, uint64_t from, uint64_t to)
{
	for (; from < to; from++)
		if (m->b[from])
			return false;
	return true;
}

/* A range reported as data may be zeros; a hole must be. */
static void check_seek(struct model *m, struct sheaf_file *f, uint64_t off)
{
	off_t data = sheaf_seek(f, (off_t)off, SEEK_DATA),
	      hole = sheaf_seek(f, (off_t)off, SEEK_HOLE);

	if (off >= m->size) {
		CHECK_EQ(data, -ENXIO);
		CHECK_EQ(hole, -ENXIO);
		return;
	}
	CHECK(data == -ENXIO || (data >= (off_t)off && data < (off_t)m->size));
	CHECK(zeros(m, off, data < 0 ? m->size : (uint64_t)data));
	CHECK(hole >= (off_t)off && hole <= (off_t)m->size);
	CHECK(hole == (off_t)m->size || m->b[hole] == 0);
	CHECK((data == (off_t)off) == (hole > (off_t)off));
}

static void do_write(struct model *m, struct sheaf_file *f, uint64_t off, uint64_t len)
{
	fill_pattern(m->b + off, len, below(1000), off);
	CHECK_EQ(sheaf_pwrite(f, m->b + off, len, (off_t)off), len);
	model_grow(m, off + len);
}

static void do_fallocate(struct model *m, struct sheaf_file *f, uint64_t off, uint64_t len)
{
	static const int modes[] = { 0,
				     FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE,
				     FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE };
	int mode = modes[below(6)];

	CHECK_EQ(sheaf_fallocate(f, mode, (off_t)off, (off_t)len), 0);
	if (mode & ~FALLOC_FL_KEEP_SIZE)
		memset(m->b + off, 0, len);
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		model_grow(m, off + len);
}

static void do_truncate(struct model *m, struct sheaf_file *f, uint64_t size)
{
	CHECK_EQ(sheaf_ftruncate(f, (off_t)size), 0);
	if (size < m->size)
		memset(m->b + size, 0, m->size - size);
	m->size = size;
}

static void do_copy(struct model *in, struct model *out, int k, uint64_t off, uint64_t len)
{
	uint64_t to = below(FILE_MAX - len + 1), n;
	ssize_t r = sheaf_copy_range(in->f[k], (off_t)off, out->f[k], (off_t)to, len);

	n = off < in->size ? in->size - off : 0;
	n = n < len ? n : len;
	if (in == out && n && off < to + n && to < off + n) {
		CHECK_EQ(r, -EINVAL);
		return;
	}
	CHECK_EQ(r, n);
	memcpy(out->b + to, in->b + off, n);
	if (n)
		model_grow(out, to + n);
}

static void one_op(void)
{
	int k = (int)below(2);
	struct model *m = &models[below(FILES)];
	uint64_t off = some_offset(), len = some_length(off);

	switch (below(10)) {
	case 0:
	case 1:
		do_write(m, m->f[k], off, len);
		break;
	case 2:
	case 3:
	case 4:
		do_fallocate(m, m->f[k], off, len);
		break;
	case 5:
	case 6:
		do_copy(m, &models[below(FILES)], k, off, len);
		break;
	case 7:
		do_truncate(m, m->f[k], below(2) ? off : m->size / 2);
		break;
	case 8:
		check_seek(m, m->f[k], off);
		if (below(4) == 0)
			CHECK_EQ(sheaf_fsync(m->f[k]), 0);
		break;
	default:
		check_all(m, m->f[k]);
	}
}

/* Changes the same files through two connections, which may be identical. */
static void run_model(struct sheaf *a, struct sheaf *b, uint32_t max_width)
{
	static const uint32_t units[FILES] = { 4096, 4096, 12288, 65536 };

	for (int i = 0; i < FILES; i++) {
		struct sheaf_layout l = { sizeof(l), units[i],
					  max_width - (uint32_t)i % max_width };
		struct model *m = &models[i];
		char path[16];

		memset(m, 0, sizeof(*m));
		snprintf(path, sizeof(path), "/model%d", i);
		CHECK_EQ(sheaf_open(a, path, O_CREAT | O_RDWR, 0644, &l, &m->f[0]), 0);
		m->f[1] = open_file(b, path, O_RDWR);
	}
	for (int i = 0; i < OPS; i++)
		one_op();
	for (int i = 0; i < FILES; i++) {
		check_all(&models[i], models[i].f[0]);
		CHECK_EQ(sheaf_close(models[i].f[0]), 0);
		check_all(&models[i], models[i].f[1]);
		CHECK_EQ(sheaf_close(models[i].f[1]), 0);
	}
}

static void random_changes_of_ranges_match_a_model(void)
{
	struct sheaf *other = client_connect(c.conf);

	run_model(fs, other, 3);
	sheaf_disconnect(other);
}

static void they_do_inside_one_process_too(void)
{
	char dir[CLUSTER_PATH], conf[CLUSTER_PATH + 16];
	struct sheaf *local;

	temp_dir(dir, sizeof(dir));
	snprintf(conf, sizeof(conf), "local:%s/fs", dir);
	local = client_connect(conf);
	run_model(local, local, 1);
	sheaf_disconnect(local);
}

/* ---- single operations ---- */

static struct sheaf_file *open_striped(const char *path, uint32_t unit, uint32_t width)
{
	struct sheaf_layout l = { sizeof(l), unit, width };
	struct sheaf_file *f;

	CHECK_EQ(sheaf_open(fs, path, O_CREAT | O_RDWR, 0644, &l, &f), 0);
	return f;
}

static void fill(struct sheaf_file *f, uint64_t len, uint64_t seed)
{
	uint8_t *b = malloc(len);

	CHECK(b);
	fill_pattern(b, len, seed, 0);
	CHECK_EQ(sheaf_pwrite(f, b, len, 0), len);
	free(b);
}

static void a_punched_range_is_a_hole(void)
{
	const char *dir = fresh_dir(fs);
	struct sheaf_file *f = open_striped(path_in(dir, "f"), 64 << 10, 3);
	const off_t mib = 1 << 20;

	fill(f, 4 << 20, 1);
	CHECK_EQ(sheaf_seek(f, 0, SEEK_HOLE), 4 * mib);
	CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, mib, mib), 0);
	CHECK_EQ(sheaf_seek(f, 0, SEEK_HOLE), mib);
	CHECK_EQ(sheaf_seek(f, mib, SEEK_DATA), 2 * mib);
	CHECK_EQ(sheaf_seek(f, 2 * mib, SEEK_HOLE), 4 * mib);
	CHECK_EQ(sheaf_seek(f, 4 * mib, SEEK_HOLE), -ENXIO);
	CHECK_EQ(sheaf_ftruncate(f, 9 * mib), 0); /* a tail without objects */
	CHECK_EQ(sheaf_seek(f, 2 * mib, SEEK_HOLE), 4 * mib);
	CHECK_EQ(sheaf_seek(f, 5 * mib, SEEK_HOLE), 5 * mib);
	CHECK_EQ(sheaf_seek(f, 5 * mib, SEEK_DATA), -ENXIO);
	CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, INT64_MAX), 0);
	CHECK_EQ(sheaf_seek(f, 0, SEEK_DATA), -ENXIO);
	CHECK_EQ(sheaf_close(f), 0);
}

static void what_cannot_be_done_is_said(void)
{
	const char *dir = fresh_dir(fs);
	struct sheaf_file *f = open_striped(path_in(dir, "f"), 4096, 2), *r, *d, *far, *app;
	struct sheaf *other = client_connect(c.conf);

	fill(f, 100000, 1);
	r = open_file(fs, path_in(dir, "f"), O_RDONLY);
	d = open_file(fs, dir, O_RDONLY | O_DIRECTORY);
	far = open_file(other, path_in(dir, "f"), O_RDWR);
	app = open_file(fs, path_in(dir, "f"), O_RDWR | O_APPEND);
	CHECK_EQ(sheaf_fallocate(f, 0, -1, 10), -EINVAL);
	CHECK_EQ(sheaf_fallocate(f, 0, 0, 0), -EINVAL);
	CHECK_EQ(sheaf_fallocate(f, 0, INT64_MAX, 10), -EFBIG);
	CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_PUNCH_HOLE, 0, 10), -EOPNOTSUPP);
	CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);
	CHECK_EQ(sheaf_fallocate(r, 0, 0, 10), -EBADF);
	CHECK_EQ(sheaf_fallocate(d, 0, 0, 10), -EISDIR);
	CHECK_EQ(sheaf_seek(f, 0, SEEK_SET), -EINVAL);
	CHECK_EQ(sheaf_seek(f, -1, SEEK_DATA), -ENXIO);
	CHECK_EQ(sheaf_seek(f, INT64_MAX, SEEK_HOLE), -ENXIO);
	CHECK_EQ(sheaf_seek(d, 0, SEEK_DATA), -EISDIR);
	CHECK_EQ(sheaf_copy_range(f, 0, r, 0, 10), -EBADF);
	CHECK_EQ(sheaf_copy_range(r, 0, app, 0, 10), -EBADF);
	CHECK_EQ(sheaf_copy_range(d, 0, f, 0, 10), -EISDIR);
	CHECK_EQ(sheaf_copy_range(f, -1, f, 0, 10), -EINVAL);
	CHECK_EQ(sheaf_copy_range(r, 0, f, 5000, 5001), -EINVAL);
	CHECK_EQ(sheaf_copy_range(f, 0, far, 0, 10), -EXDEV);
	CHECK_EQ(sheaf_copy_range(r, 100000, f, 0, 10), 0);
	CHECK_EQ(sheaf_copy_range(r, 99990, f, 0, SIZE_MAX / 4), 10);
	CHECK_EQ(sheaf_copy_range(f, 0, f, 50000, 0), 0);
	CHECK_EQ(sheaf_close(f) | sheaf_close(r) | sheaf_close(d) | sheaf_close(far), 0);
	CHECK_EQ(sheaf_close(app), 0);
	sheaf_disconnect(other);
}

static void changes_of_ranges_move_mtime(void)
{
	static const struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };
	const char *dir = fresh_dir(fs), *path = path_in(dir, "f");
	struct sheaf_file *f = open_striped(path, 4096, 3);
	struct stat st;

	fill(f, 50000, 1);
	CHECK_EQ(sheaf_fsync(f), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(sheaf_utimens(fs, path, old), 0);
		CHECK_EQ(sheaf_fallocate(f,
					 i == 0 ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE :
					 i == 1 ? FALLOC_FL_ZERO_RANGE :
						  FALLOC_FL_KEEP_SIZE,
					 5000, 10),
			 0);
		CHECK_EQ(sheaf_fsync(f), 0);
		CHECK_EQ(sheaf_stat(fs, path, &st), 0);
		CHECK(st.st_mtim.tv_sec > 1000);
	}
	CHECK_EQ(sheaf_close(f), 0);
}

/* ---- clients that die ---- */

static int child(const char *name, char **arg)
{
	struct sheaf *mine = client_connect(arg[0]);
	struct sheaf_file *f = open_file(mine, arg[1], O_CREAT | O_RDWR);

	(void)name;
	CHECK_EQ(sheaf_fallocate(f, 0, 0, 1234567), 0);
	make_file(mine, arg[2], 1, 1); /* tells the test that the file has grown */
	pause_ms(60000);
	return 1;
}

static bool sized(const char *path, off_t size)
{
	struct stat st;

	return sheaf_stat(fs, path, &st) == 0 && st.st_size == size;
}

static void a_file_that_grew_by_fallocate_keeps_its_size_when_its_writer_dies(void)
{
	const char *dir = fresh_dir(fs), *path = path_in(dir, "f"), *sign = path_in(dir, "sign");
	uint32_t sessions;
	pid_t pid;

	make_file(fs, sign, 100000, 1);
	/* opens the sessions between servers, so that they are counted */
	CHECK_EQ(sheaf_truncate(fs, sign, 0), 0);
	sessions = server_status(fs, 1).sessions;
	pid = child_start("grow", c.conf, path, sign, NULL);
	CHECK(WITHIN(PATIENCE_S, sized(sign, 1)));
	CHECK_EQ(server_status(fs, 1).sessions, sessions + 1);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(process_wait(pid), 256 + SIGKILL);
	CHECK(sized(path, 1234567));
	/* its lease has ended */
	CHECK(WITHIN(PATIENCE_S, server_status(fs, 1).sessions == sessions));
	CHECK(sized(path, 1234567));
}

/* ---- concurrent operations ---- */

struct job {
	pthread_t thread;
	struct sheaf *fs;
	const char *path, *to;
	int rounds;
	bool stop;
};

static void jobs_run(struct job *j, int n, void *(*fn)(void *arg))
{
	for (int i = 0; i < n; i++)
		CHECK_EQ(pthread_create(&j[i].thread, NULL, fn, &j[i]), 0);
}

static void jobs_end(struct job *j, int n)
{
	for (int i = 0; i < n; i++)
		CHECK_EQ(pthread_join(j[i].thread, NULL), 0);
}

#define COPY_SIZE (5 << 20)

static void *copy_again(void *arg)
{
	struct job *j = arg;
	struct sheaf_file *a = open_file(j->fs, j->path, O_RDONLY);
	struct sheaf_file *b = open_file(j->fs, j->to, O_CREAT | O_RDWR);

	for (int i = 0; i < j->rounds; i++)
		CHECK_EQ(sheaf_copy_range(a, 0, b, 0, COPY_SIZE + 1), COPY_SIZE);
	CHECK_EQ(sheaf_close(a), 0);
	sheaf_close(b); /* -EIO if a server was killed: not tested here */
	return NULL;
}

#define HOLE (4 << 20)

/* Checks pattern bytes of which the first were punched: a read of a hole needs a pool buffer. */
static void check_punched(const char *path, uint64_t seed)
{
	struct sheaf_file *f = open_file(fs, path, O_RDONLY);
	uint8_t *b = malloc(COPY_SIZE + 1);

	CHECK(b);
	CHECK_EQ(sheaf_pread(f, b, COPY_SIZE + 1, 0), COPY_SIZE);
	for (int i = 0; i < HOLE; i++)
		CHECK_EQ(b[i], 0);
	CHECK(is_pattern(b + HOLE, COPY_SIZE - HOLE, seed, HOLE));
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

/* Every server fetches from every other, with almost no free buffers. */
static void servers_that_copy_from_each_other_do_not_wait_for_each_other(void)
{
	const char *dir = fresh_dir(fs);
	struct job j[8] = { 0 };

	for (int i = 0; i < 8; i++) {
		char name[16];
		struct sheaf_file *f;

		snprintf(name, sizeof(name), "in%d", i);
		j[i] = (struct job){ .fs = fs, .path = path_in(dir, name), .rounds = 6 };
		snprintf(name, sizeof(name), "out%d", i);
		j[i].to = path_in(dir, name);
		f = open_striped(j[i].path, 8192, 1 + (uint32_t)i % 3);
		fill(f, COPY_SIZE, (uint64_t)i);
		CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HOLE),
			 0);
		CHECK_EQ(sheaf_close(f), 0);
	}
	jobs_run(j, 8, copy_again);
	jobs_end(j, 8);
	for (int i = 0; i < 8; i++)
		check_punched(j[i].to, (uint64_t)i);
}

static void a_server_may_die_in_the_middle_of_a_copy(void)
{
	const char *dir = fresh_dir(fs);
	struct job j = { .fs = client_connect(c.conf),
			 .path = path_in(dir, "in"),
			 .to = path_in(dir, "out"),
			 .rounds = 60 };
	struct sheaf_file *f = open_striped(j.path, 4096, 3);

	fill(f, COPY_SIZE, 7);
	CHECK_EQ(sheaf_fsync(f), 0);
	CHECK_EQ(sheaf_close(f), 0);
	jobs_run(&j, 1, copy_again);
	for (int i = 0; i < 3; i++) {
		pause_ms(100); /* not for synchronisation: lets the copies begin */
		server_kill(&c, 1 + i % 2);
		CHECK_EQ(server_up(&c, 1 + i % 2), 0);
	}
	jobs_end(&j, 1);
	check_file(fs, j.to, COPY_SIZE, 7);
	sheaf_disconnect(j.fs);
}

/* Restarts all servers during copies; returns how long they took to stop. */
static double restart_among_copies(void)
{
	const char *dir = fresh_dir(fs);
	struct job j[3] = { 0 };
	double t;

	for (int i = 0; i < 3; i++) {
		char name[2][8] = { "in0", "out0" };
		struct sheaf_file *f;

		name[0][2] = name[1][3] = (char)('0' + i);
		j[i] = (struct job){ .fs = client_connect(c.conf), .rounds = 30 };
		j[i].path = path_in(dir, name[0]);
		j[i].to = path_in(dir, name[1]);
		f = open_striped(j[i].path, 4096u << i, 3);
		fill(f, COPY_SIZE, (uint64_t)i);
		CHECK_EQ(sheaf_close(f), 0);
	}
	jobs_run(j, 3, copy_again);
	pause_ms(100); /* not for synchronisation: lets the copies begin */
	t = now_s();
	for (int i = 0; i < c.n; i++)
		CHECK_EQ(kill(c.pid[i], SIGTERM), 0);
	for (int i = 0; i < c.n; i++) {
		CHECK_EQ(process_wait(c.pid[i]), 0);
		c.pid[i] = 0;
	}
	t = now_s() - t;
	cluster_start(&c);
	jobs_end(j, 3);
	for (int i = 0; i < 3; i++) {
		check_file(fs, j[i].to, COPY_SIZE, (uint64_t)i);
		sheaf_disconnect(j[i].fs);
	}
	return t;
}

/* No server uses up its 10 s limit for a clean stop. A slow stop is tried again: the machine may be
 * busy. */
static void a_clean_restart_of_all_servers_is_invisible_to_copies(void)
{
	int tries = 0;

	while (restart_among_copies() >= 8)
		CHECK(++tries < 5);
}

/* Truncates the file past the range that the others change, in a loop: each truncate is a fence. */
static void *cut_again(void *arg)
{
	struct job *j = arg;

	for (int i = 0; !__atomic_load_n(&j->stop, __ATOMIC_RELAXED); i++) {
		CHECK_EQ(sheaf_truncate(j->fs, j->path, (1 << 20) + i % 2 * 5000), 0);
		/* on tmpfs, fences would otherwise follow faster than new capabilities arrive */
		pause_ms(2);
	}
	return NULL;
}

static void fences_do_not_disturb_changes_of_ranges(void)
{
	const char *dir = fresh_dir(fs);
	struct job j = { .fs = client_connect(c.conf), .path = path_in(dir, "f") };
	struct sheaf_file *f = open_striped(j.path, 4096, 3),
			  *g = open_striped(path_in(dir, "g"), 8192, 2);
	const int n = SANITIZED ? 30 : 150;

	fill(f, 1 << 20, 3);
	jobs_run(&j, 1, cut_again);
	for (int i = 0; i < n; i++) {
		off_t at = i * 5000;

		CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 2500),
			 0);
		CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_ZERO_RANGE, at + 2500, 1000), 0);
		CHECK_EQ(sheaf_copy_range(f, 0, g, 0, 1 << 20), 1 << 20);
		CHECK_EQ(sheaf_copy_range(f, at + 3500, f, at, 1500), 1500);
		CHECK(sheaf_seek(f, 0, SEEK_HOLE) > 0);
	}
	__atomic_store_n(&j.stop, true, __ATOMIC_RELAXED);
	jobs_end(&j, 1);
	for (int i = 0; i < n; i++) {
		uint8_t b[5000];

		CHECK_EQ(sheaf_pread(f, b, 5000, i * 5000), 5000);
		CHECK(is_pattern(b, 1500, 3, (uint64_t)i * 5000 + 3500));
		CHECK(is_pattern(b + 3500, 1500, 3, (uint64_t)i * 5000 + 3500));
		for (int k = 1500; k < 3500; k++)
			CHECK_EQ(b[k], 0);
	}
	CHECK_EQ(sheaf_close(f) | sheaf_close(g), 0);
	sheaf_disconnect(j.fs);
}

#define STORED (2 << 20)

/* Another client truncates or punches once, during a write. */
static void *cut_or_punch(void *arg)
{
	struct job *j = arg;
	uint64_t seed = (uint64_t)j->rounds, at = test_random(&seed) % STORED;
	struct sheaf_file *f;

	CHECK_EQ(sheaf_open(j->fs, j->path, O_RDWR, 0, NULL, &f), 0);
	pause_ms((int)(test_random(&seed) % 3));
	if (test_random(&seed) % 2)
		CHECK_EQ(sheaf_ftruncate(f, (off_t)at), 0);
	else
		CHECK_EQ(sheaf_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
					 100000),
			 0);
	CHECK_EQ(sheaf_close(f), 0);
	return NULL;
}

/* Each byte is the write's or zero, in whichever order the write and the other change happen; never
 * a byte of an earlier write. Data stored past the end do not reappear when the file grows. */
static void writes_beside_cuts_and_holes_leave_nothing_of_before(void)
{
	static uint8_t b[STORED + 8192];
	const char *dir = fresh_dir(fs);
	struct job j = { .fs = client_connect(c.conf), .path = path_in(dir, "f") };
	struct sheaf_file *f = open_striped(j.path, 262144, 3);
	const int rounds = SANITIZED ? 20 : 150;

	for (int r = 1; r <= rounds; r++) {
		uint8_t mark = (uint8_t)(r % 255 + 1);

		memset(b, mark, STORED);
		j.rounds = r;
		jobs_run(&j, 1, cut_or_punch);
		CHECK_EQ(sheaf_pwrite(f, b, STORED, 0), STORED);
		jobs_end(&j, 1);
		CHECK_EQ(sheaf_ftruncate(f, STORED + 8192), 0);
		CHECK_EQ(sheaf_pread(f, b, sizeof(b), 0), (ssize_t)sizeof(b));
		for (size_t i = 0; i < sizeof(b); i++)
			CHECK(b[i] == 0 || (b[i] == mark && i < STORED));
		/* fills all pages, so that the next write has pages to store into */
		if (r % 3)
			CHECK_EQ(sheaf_pwrite(f, memset(b, 0, STORED), STORED, 0), STORED);
	}
	CHECK_EQ(sheaf_close(f), 0);
	sheaf_disconnect(j.fs);
}

/* The source's server is dead: the copy fails after the timeout, and other requests do not wait. */
static void a_copy_from_a_dead_server_fails_in_time(void)
{
	const char *dir = fresh_dir(fs);
	struct sheaf_file *a, *b, *d;
	struct cluster k;
	struct sheaf *old = fs;
	double t;

	cluster_create(&k, &(struct cluster_opts){ .servers = 2, .timeout = 2, .lease = 10 });
	cluster_start(&k);
	fs = client_connect(k.conf);
	CHECK_EQ(sheaf_mkdir(fs, dir, 0755), 0);
	a = open_striped(path_in(dir, "a"), 4096, 2);
	fill(a, 1 << 20, 1);
	b = open_striped(path_in(dir, "b"), 65536, 1);
	/* targets alternate: one of the two files is on server 0 */
	d = open_striped(path_in(dir, "d"), 65536, 1);
	server_kill(&k, 1);
	t = now_s();
	CHECK(sheaf_copy_range(a, 0, b, 0, 1 << 20) < 0);
	CHECK(sheaf_copy_range(a, 0, d, 0, 1 << 20) < 0);
	CHECK(now_s() - t < PATIENCE_S);
	CHECK_EQ(server_up(&k, 1), 0);
	CHECK_EQ(sheaf_copy_range(a, 0, b, 0, 1 << 20), 1 << 20);
	CHECK_EQ(sheaf_copy_range(a, 0, d, 0, 1 << 20), 1 << 20);
	sheaf_close(a); /* -EIO: the killed server may have lost unsynced data */
	sheaf_close(b);
	sheaf_close(d);
	check_file(fs, path_in(dir, "b"), 1 << 20, 1);
	check_file(fs, path_in(dir, "d"), 1 << 20, 1);
	sheaf_disconnect(fs);
	fs = old;
	cluster_stop(&k);
}

static void begin(void)
{
	cluster_create(
		&c, &(struct cluster_opts){ .servers = 3, .timeout = 20, .more = "pool = 1M\n" });
	cluster_start(&c);
	fs = client_connect(c.conf);
}

static void end(void)
{
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(child, begin, end, TEST(random_changes_of_ranges_match_a_model),
	 TEST(they_do_inside_one_process_too), TEST(a_punched_range_is_a_hole),
	 TEST(what_cannot_be_done_is_said), TEST(changes_of_ranges_move_mtime),
	 TEST(a_file_that_grew_by_fallocate_keeps_its_size_when_its_writer_dies),
	 TEST(servers_that_copy_from_each_other_do_not_wait_for_each_other),
	 TEST(a_server_may_die_in_the_middle_of_a_copy),
	 TEST(a_clean_restart_of_all_servers_is_invisible_to_copies),
	 TEST(fences_do_not_disturb_changes_of_ranges),
	 TEST(writes_beside_cuts_and_holes_leave_nothing_of_before),
	 TEST(a_copy_from_a_dead_server_fails_in_time))
