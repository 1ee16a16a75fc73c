/* fsrandom DIR: random operations on files, compared byte by byte with a model in memory.
 *
 *     fsrandom DIR [--dir2 OTHER] [--ops N] [--seed S] [--files N] [--lacks A,B]
 *
 * OTHER is the same directory through another mount. With it, every second file is open on both
 * mounts, and each operation on such a file runs under a lock, on either mount. The other files
 * change from one mount to the other when they are closed and opened again. The seed determines all
 * choices. --lacks: punch, zero-range, mmap-shared, copy.
 *
 * Threads: none. Memory: the models. Errors: at the first difference the file's last operations are
 * printed; exit status 1, 2 for wrong usage. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#define SIZE_LIMIT (1 << 20)
#define LENGTH_LIMIT (1 << 16)
#define HISTORY 50
#define FILES_MAX 64
#define PAGE_LIMIT 65536

struct file {
	char name[16];
	bool shared; /* open on both mounts, used under locks */
	bool there; /* the name exists */
	int fd[2]; /* one per mount, or -1 */
	int mount; /* mount of the current operation */
	uint8_t *data; /* expected content; zeros behind size */
	size_t size;
	char history[HISTORY][96];
	unsigned long n_history;
};

static struct {
	const char *dir[2];
	const char *lacks;
	int mounts, n_files;
	unsigned long ops, seed;
	char base[2][PATH_MAX];
} conf = { .mounts = 1, .n_files = 6, .ops = 10000, .seed = 1 };

static struct file files[FILES_MAX];
static uint8_t buf[SIZE_LIMIT + LENGTH_LIMIT + PAGE_LIMIT];
static uint64_t state;
static unsigned long op_number;
static size_t page; /* page size of memory */

static size_t below(size_t n)
{
	return n ? (size_t)(test_random(&state) % n) : 0;
}

static bool lacks(const char *what)
{
	return conf.lacks && strstr(conf.lacks, what);
}

/* ---- the history of a file ---- */

static void note(struct file *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct file *f, const char *fmt, ...)
{
	char *line = f->history[f->n_history++ % HISTORY];
	int n = snprintf(line, sizeof(f->history[0]), "%8lu mount %d: ", op_number, f->mount);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(f->history[0]) - (size_t)n, fmt, ap);
	va_end(ap);
}

static void give_up(struct file *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
static void give_up(struct file *f, const char *fmt, ...)
{
	unsigned long first = f->n_history > HISTORY ? f->n_history - HISTORY : 0;
	va_list ap;

	printf("the last operations on %s (%s):\n", f->name, f->shared ? "shared" : "moving");
	for (unsigned long i = first; i < f->n_history; i++)
		printf("  %s\n", f->history[i % HISTORY]);
	printf("fsrandom: seed %lu, operation %lu, file %s of %zu bytes: ", conf.seed, op_number,
	       f->name, f->size);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	exit(1);
}

/* Ends the program if a system call failed. */
static ssize_t must(struct file *f, ssize_t got, const char *what)
{
	if (got < 0)
		give_up(f, "%s: %s", what, strerror(errno));
	return got;
}

static void must_be(struct file *f, ssize_t got, size_t want, const char *what)
{
	must(f, got, what);
	if ((size_t)got != want)
		give_up(f, "%s: expected %zu, got %zd", what, want, got);
}

static void compare(struct file *f, const uint8_t *got, size_t at, size_t len, const char *what)
{
	size_t i = 0, wrong = 0;

	if (memcmp(got, f->data + at, len) == 0)
		return;
	while (got[i] == f->data[at + i])
		i++;
	for (size_t k = i; k < len; k++)
		wrong += got[k] != f->data[at + k];
	give_up(f, "%s of %zu at %zu: at %zu expected %02x, got %02x; %zu bytes differ", what, len,
		at, at + i, f->data[at + i], got[i], wrong);
}

/* ---- the model ---- */

static void model_resize(struct file *f, size_t size)
{
	if (size < f->size)
		memset(f->data + size, 0, f->size - size);
	f->size = size;
}

static void model_write(struct file *f, const uint8_t *from, size_t at, size_t len)
{
	memcpy(f->data + at, from, len);
	if (len && at + len > f->size)
		f->size = at + len;
}

/* A random offset; often one at a multiple of a page, block or stripe size. */
static size_t place(size_t limit)
{
	static const size_t units[] = { 512, 4096, 16384, 65536, 262144 };
	size_t at = below(limit), unit = units[below(5)];

	if (below(3) == 0)
		at = at / unit * unit;
	if (below(8) == 0 && at)
		at--;
	return at;
}

static size_t length(size_t at)
{
	size_t n = below(4) == 0 ? 1 + below(100) : 1 + below(below(3) ? 5000 : LENGTH_LIMIT);

	if (below(4) == 0)
		n = (n + page - 1) / page * page;
	return at + n > SIZE_LIMIT ? SIZE_LIMIT - at : n;
}

static void random_bytes(uint8_t *to, size_t len)
{
	uint64_t word = 0;

	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0)
			word = test_random(&state);
		to[i] = (uint8_t)(word >> i % 8 * 8);
	}
}

/* ---- open and close ---- */

static const char *path_of(const struct file *f, int mount)
{
	static char path[2][PATH_MAX + 32];

	snprintf(path[mount], sizeof(path[0]), "%s/%.15s", conf.base[mount], f->name);
	return path[mount];
}

static bool is_open(const struct file *f)
{
	return f->fd[0] >= 0 || f->fd[1] >= 0;
}

static void open_on(struct file *f, int mount, int flags)
{
	f->mount = mount;
	note(f, "open%s", flags & O_CREAT ? " O_CREAT" : flags & O_TRUNC ? " O_TRUNC" : "");
	f->fd[mount] = (int)must(f, open(path_of(f, mount), O_RDWR | flags, 0644), "open");
}

static void close_on(struct file *f, int mount)
{
	if (f->fd[mount] < 0)
		return;
	f->mount = mount;
	note(f, "close");
	must(f, close(f->fd[mount]), "close");
	f->fd[mount] = -1;
}

static void create(struct file *f)
{
	f->there = true;
	model_resize(f, 0);
	open_on(f, (int)below((size_t)conf.mounts), O_CREAT | O_EXCL);
	if (f->shared)
		open_on(f, !f->mount, 0);
}

static void lock(struct file *f, short type)
{
	struct flock fl = { .l_type = type };

	if (f->shared)
		must(f, fcntl(f->fd[f->mount], F_SETLKW, &fl), "lock");
}

/* ---- operations; f->fd[f->mount] is open and, where it must be, locked ---- */

static void check_range(struct file *f, int fd, size_t at, size_t len)
{
	size_t want = at >= f->size ? 0 : len < f->size - at ? len : f->size - at;

	must_be(f, pread(fd, buf, len, (off_t)at), want, "pread");
	compare(f, buf, at, want, "pread");
}

static void check_all(struct file *f, int fd)
{
	struct stat st;

	must(f, fstat(fd, &st), "fstat");
	if ((size_t)st.st_size != f->size)
		give_up(f, "fstat: expected %zu bytes, got %jd", f->size, (intmax_t)st.st_size);
	check_range(f, fd, 0, SIZE_LIMIT + 1);
}

static void op_read(struct file *f, int fd)
{
	/* may be behind the end, also in a file of the largest size */
	size_t at = place(f->size + page);
	size_t len = length(at < SIZE_LIMIT ? at : 0);

	note(f, "read %zu at %zu", len, at);
	check_range(f, fd, at, len);
}

static void op_check(struct file *f, int fd)
{
	note(f, "read all %zu", f->size);
	check_all(f, fd);
}

/* May begin behind the end, which leaves a hole. */
static void op_write(struct file *f, int fd)
{
	size_t beyond = below(10) ? 1 : 200000, at = place(f->size + beyond), len;

	if (at > SIZE_LIMIT - LENGTH_LIMIT)
		at = below(SIZE_LIMIT - LENGTH_LIMIT);
	len = length(at);
	note(f, "write %zu at %zu", len, at);
	random_bytes(buf, len);
	must_be(f, pwrite(fd, buf, len, (off_t)at), len, "pwrite");
	model_write(f, buf, at, len);
}

static void op_append(struct file *f, int fd)
{
	int a;
	size_t len = length(f->size);

	(void)fd;
	if (f->shared || !len)
		return; /* closing a second descriptor would release the lock */
	note(f, "append %zu at %zu", len, f->size);
	random_bytes(buf, len);
	a = (int)must(f, open(path_of(f, f->mount), O_WRONLY | O_APPEND), "open O_APPEND");
	must_be(f, write(a, buf, len), len, "append");
	must(f, close(a), "close");
	model_write(f, buf, f->size, len);
}

static void op_truncate(struct file *f, int fd)
{
	size_t size = below(5) == 0 ? 0 : place(below(3) ? f->size + 1 : SIZE_LIMIT);

	note(f, "truncate %zu to %zu", f->size, size);
	must(f, ftruncate(fd, (off_t)size), "ftruncate");
	model_resize(f, size);
}

/* Maps the part of [at, at + *len) that is within the file. */
static uint8_t *map(struct file *f, int fd, size_t at, size_t *len, int prot)
{
	size_t start = at / page * page;
	uint8_t *m;

	if (at + *len > f->size)
		*len = f->size - at;
	m = mmap(NULL, at - start + *len, prot, MAP_SHARED, fd, (off_t)start);
	if (m == MAP_FAILED)
		give_up(f, "mmap: %s", strerror(errno));
	return m;
}

static void op_map_write(struct file *f, int fd)
{
	size_t at = place(f->size), len = length(at), skip = at % page;
	bool sync = below(2);
	uint8_t *m;

	if (f->shared || f->size == 0 || lacks("mmap-shared"))
		return;
	m = map(f, fd, at, &len, PROT_READ | PROT_WRITE);
	note(f, "write %zu at %zu in memory%s", len, at, sync ? ", msync" : "");
	random_bytes(buf, len);
	memcpy(m + skip, buf, len);
	if (sync)
		must(f, msync(m, skip + len, MS_SYNC), "msync");
	must(f, munmap(m, skip + len), "munmap");
	model_write(f, buf, at, len);
}

static void op_map_read(struct file *f, int fd)
{
	size_t at = place(f->size), len = length(at), skip = at % page, end;
	uint8_t *m;

	if (f->shared || f->size == 0 || lacks("mmap-shared"))
		return;
	m = map(f, fd, at, &len, PROT_READ);
	note(f, "read %zu at %zu in memory", len, at);
	compare(f, m + skip, at, len, "mapped read");
	for (end = skip + len; at + len == f->size && end % page; end++)
		if (m[end])
			give_up(f, "mapped read: a byte behind the end is not zero");
	must(f, munmap(m, skip + len), "munmap");
}

static void zero(struct file *f, int fd, int mode, const char *what)
{
	size_t at = place(f->size + 1), len = length(at);

	if (!len || lacks(mode & FALLOC_FL_PUNCH_HOLE ? "punch" : "zero-range"))
		return;
	note(f, "%s %zu at %zu", what, len, at);
	must(f, fallocate(fd, mode, (off_t)at, (off_t)len), what);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && at + len > f->size)
		f->size = at + len;
	if (at < f->size)
		memset(f->data + at, 0, len < f->size - at ? len : f->size - at);
}

static void op_punch(struct file *f, int fd)
{
	zero(f, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "punch");
}

static void op_zero(struct file *f, int fd)
{
	if (below(2))
		zero(f, fd, FALLOC_FL_ZERO_RANGE, "zero");
	else
		zero(f, fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, "zero, keep size,");
}

static void op_seek(struct file *f, int fd)
{
	size_t at = place(f->size + 1);
	off_t got = lseek(fd, (off_t)at, SEEK_DATA);
	size_t end = got < 0 ? f->size : (size_t)got;

	note(f, "SEEK_DATA from %zu: %jd", at, (intmax_t)got);
	if (got < 0 && errno != ENXIO)
		give_up(f, "SEEK_DATA: %s", strerror(errno));
	if (got >= 0 && (end < at || end >= f->size))
		give_up(f, "SEEK_DATA from %zu: %zu", at, end);
	for (size_t i = at; i < end; i++)
		if (f->data[i])
			give_up(f, "SEEK_DATA from %zu: %zu, but there are data at %zu", at, end,
				i);
	got = lseek(fd, (off_t)at, SEEK_HOLE);
	if (at < f->size && (got < (off_t)at || got > (off_t)f->size))
		give_up(f, "SEEK_HOLE from %zu: %jd", at, (intmax_t)got);
}

/* Copies from another file that is not shared, or within this file. Like cp, it calls fstat first:
 * the kernel copies up to the end that it last saw, and over FUSE only a GETATTR tells it of a new
 * end. */
static void op_copy(struct file *f, int fd)
{
	struct file *from = &files[below((size_t)conf.n_files)];
	size_t at = place(from->size + 1), len, to;
	off_t in = (off_t)at, out;
	struct stat st;
	int source = from->fd[f->mount];

	len = from->size > at ? from->size - at : 0;
	if (len > LENGTH_LIMIT)
		len = LENGTH_LIMIT;
	to = place(SIZE_LIMIT - LENGTH_LIMIT);
	out = (off_t)to;
	if (lacks("copy") || !len || source < 0 || (from != f && from->shared) ||
	    (from == f && at < to + len && to < at + len))
		return;
	note(f, "copy %zu from %zu of %s to %zu", len, at, from->name, to);
	memcpy(buf, from->data + at, len);
	must(f, fstat(source, &st), "fstat");
	for (size_t left = len; left;) {
		size_t n = (size_t)must(f, copy_file_range(source, &in, fd, &out, left, 0), "copy");

		if (n == 0)
			give_up(f, "copy_file_range: an end with %zu bytes left", left);
		left -= n;
	}
	model_write(f, buf, to, len);
}

static void op_sync(struct file *f, int fd)
{
	note(f, "sync");
	must(f, below(2) ? fsync(fd) : fdatasync(fd), "sync");
}

/* ---- operations on the name; nothing is locked ---- */

/* Descriptors opened before must still see the old content; then they are closed. */
static void check_old(struct file *f)
{
	for (int m = 0; m < 2; m++)
		if (f->fd[m] >= 0) {
			f->mount = m;
			lock(f, F_WRLCK);
			check_all(f, f->fd[m]);
			op_write(f, f->fd[m]);
			check_all(f, f->fd[m]);
			lock(f, F_UNLCK);
		}
	close_on(f, 0);
	close_on(f, 1);
}

static void op_unlink(struct file *f)
{
	note(f, "unlink while open");
	must(f, unlink(path_of(f, f->mount)), "unlink");
	f->there = false;
	check_old(f);
}

static void op_replace(struct file *f)
{
	char temp[PATH_MAX + 32];
	size_t len = below(LENGTH_LIMIT);
	int fd, mount = f->mount;

	snprintf(temp, sizeof(temp), "%s/temp", conf.base[mount]);
	fd = (int)must(f, open(temp, O_RDWR | O_CREAT | O_EXCL, 0644), "making temp");
	note(f, "rename over it, a file of %zu", len);
	must(f, rename(temp, path_of(f, mount)), "rename");
	check_old(f);
	f->mount = mount;
	model_resize(f, 0);
	random_bytes(buf, len);
	must_be(f, write(fd, buf, len), len, "write");
	must(f, close(fd), "close");
	model_write(f, buf, 0, len);
}

static void op_reopen(struct file *f)
{
	if (f->shared) {
		close_on(f, f->mount);
		open_on(f, f->mount, 0);
		return;
	}
	close_on(f, f->mount);
	open_on(f, (int)below((size_t)conf.mounts), 0);
	if (below(4) == 0)
		check_all(f, f->fd[f->mount]);
}

static void op_open_trunc(struct file *f)
{
	if (f->shared)
		return;
	close_on(f, f->mount);
	model_resize(f, 0);
	open_on(f, (int)below((size_t)conf.mounts), O_TRUNC);
}

static const struct {
	void (*run)(struct file *f, int fd);
	unsigned weight;
} ops[] = {
	{ op_read, 24 },     { op_write, 24 },	 { op_append, 6 }, { op_truncate, 6 },
	{ op_map_write, 6 }, { op_map_read, 6 }, { op_punch, 4 },  { op_zero, 4 },
	{ op_seek, 3 },	     { op_copy, 4 },	 { op_sync, 1 },   { op_check, 2 },
};

static const struct {
	void (*run)(struct file *f);
	unsigned weight;
} name_ops[] = { { op_reopen, 8 }, { op_unlink, 1 }, { op_replace, 1 }, { op_open_trunc, 1 } };

static void step(void)
{
	struct file *f = &files[below((size_t)conf.n_files)];
	unsigned at = (unsigned)below(101);

	if (!f->there)
		create(f);
	if (!is_open(f))
		for (int m = 0; m < 1 + f->shared; m++)
			open_on(f, f->shared ? m : (int)below((size_t)conf.mounts), 0);
	f->mount = f->shared ? (int)below(2) : f->fd[1] >= 0;
	for (size_t i = 0; i < sizeof(name_ops) / sizeof(name_ops[0]); at -= name_ops[i++].weight)
		if (at < name_ops[i].weight) {
			name_ops[i].run(f);
			return;
		}
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); at -= ops[i++].weight)
		if (at < ops[i].weight) {
			lock(f, F_WRLCK);
			ops[i].run(f, f->fd[f->mount]);
			lock(f, F_UNLCK);
			return;
		}
}

static void prepare(void)
{
	for (int m = 0; m < conf.mounts; m++)
		snprintf(conf.base[m], PATH_MAX, "%.*s/fsrandom.%d", PATH_MAX - 64, conf.dir[m],
			 (int)getpid());
	if (mkdir(conf.base[0], 0755)) {
		fprintf(stderr, "fsrandom: %s: %s\n", conf.base[0], strerror(errno));
		exit(1);
	}
	for (int i = 0; i < conf.n_files; i++) {
		struct file *f = &files[i];

		snprintf(f->name, sizeof(f->name), "file%d", i);
		f->shared = conf.mounts == 2 && i % 2;
		f->fd[0] = f->fd[1] = -1;
		f->data = calloc(1, SIZE_LIMIT + LENGTH_LIMIT);
	}
}

static void finish(void)
{
	for (int i = 0; i < conf.n_files; i++) {
		struct file *f = &files[i];

		close_on(f, 0);
		close_on(f, 1);
		if (!f->there)
			continue;
		for (int m = 0; m < conf.mounts; m++) {
			open_on(f, m, 0);
			check_all(f, f->fd[m]);
			close_on(f, m);
		}
		must(f, unlink(path_of(f, 0)), "unlink");
	}
	must(&files[0], rmdir(conf.base[0]), "rmdir at the end");
}

static int parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *v = argv[i + 1];

		if (a[0] != '-' && !conf.dir[0]) {
			conf.dir[0] = a;
			continue;
		}
		if (!v)
			return -1;
		if (!strcmp(a, "--dir2"))
			conf.dir[1] = v, conf.mounts = 2;
		else if (!strcmp(a, "--ops"))
			conf.ops = strtoul(v, NULL, 0);
		else if (!strcmp(a, "--seed"))
			conf.seed = strtoul(v, NULL, 0);
		else if (!strcmp(a, "--files"))
			conf.n_files = atoi(v);
		else if (!strcmp(a, "--lacks"))
			conf.lacks = v;
		else
			return -1;
		i++;
	}
	return conf.dir[0] && conf.n_files > 0 && conf.n_files <= FILES_MAX ? 0 : -1;
}

int main(int argc, char **argv)
{
	if (parse(argc, argv)) {
		fputs("usage: fsrandom DIR [--dir2 OTHER] [--ops N] [--seed S] [--files N] "
		      "[--lacks A,B]\n",
		      stderr);
		return 2;
	}
	state = conf.seed;
	page = (size_t)sysconf(_SC_PAGESIZE);
	prepare();
	for (op_number = 1; op_number <= conf.ops; op_number++)
		step();
	finish();
	printf("fsrandom: seed %lu: %lu operations on %d files, no difference\n", conf.seed,
	       conf.ops, conf.n_files);
	return 0;
}
