/* Operations on ranges: fallocate in its modes, SEEK_DATA and SEEK_HOLE, copy_file_range. */
#include <limits.h>
#include <linux/falloc.h>

#include "conform.h"

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define FILE_SIZE 300000

/* True if [at, at+len) is zero and the rest of the first `size` bytes is the pattern. */
static bool zero_only(int fd, size_t size, size_t at, size_t len)
{
	char *b = malloc(size + 1);
	ssize_t n = pread(fd, b, size + 1, 0);
	size_t to = at + len < size ? at + len : size;
	bool right = n == (ssize_t)size &&
		     (at >= size || zeros_match(b + at, to - at) == to - at) &&
		     pattern_match(b, at < size ? at : size, 0, 0) == (at < size ? at : size) &&
		     (to >= size || pattern_match(b + to, size - to, 0, to) == size - to);

	free(b);
	return right;
}

static const struct {
	size_t at, len;
} ranges[] = {
	{ 0, 1 },	   { 0, 4096 },	     { 1, 4095 },	 { 4095, 2 },	   { 5000, 100 },
	{ 4096, 65536 },   { 65535, 2 },     { 65536, 65536 },	 { 1000, 200000 }, { 299999, 1 },
	{ 299000, 50000 }, { 0, FILE_SIZE }, { 131071, 131073 },
};

static void range_allocate(void)
{
	int fd = filled("f", 1000);

	OK(fallocate(fd, 0, 0, 500));
	EQ(size_of(fd), 1000);
	TRUE(zero_only(fd, 1000, 0, 0));
	OK(fallocate(fd, 0, 500, 9500));
	EQ(size_of(fd), 10000);
	TRUE(zero_only(fd, 10000, 1000, 9000));
	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 10000, 100000));
	EQ(size_of(fd), 10000);
	OK(ftruncate(fd, 20000));
	TRUE(zero_only(fd, 20000, 1000, 19000));
	EQ(posix_fallocate(fd, 0, 30000), 0);
	EQ(size_of(fd), 30000);
	if (feature("blocks"))
		TRUE(stat_of("f").st_blocks * 512 >= 30000);
}

static void range_punch(void)
{
	int fd;

	for (size_t i = 0; i < N_OF(ranges); i++) {
		fd = filled("f", FILE_SIZE);
		OK(fallocate(fd, PUNCH, (off_t)ranges[i].at, (off_t)ranges[i].len));
		TRUE(zero_only(fd, FILE_SIZE, ranges[i].at, ranges[i].len));
		OK(close(fd));
		fd = (int)OK(open("f", O_RDWR)); /* reopened, so not only cached data are checked */
		TRUE(zero_only(fd, FILE_SIZE, ranges[i].at, ranges[i].len));
		OK(close(fd));
	}
	fd = filled("f", FILE_SIZE);
	OK(fallocate(fd, PUNCH, FILE_SIZE + 10, 5000)); /* behind the end: no change */
	TRUE(zero_only(fd, FILE_SIZE, 0, 0));
	OK(fsync(fd));
	if (feature("blocks")) {
		OK(fallocate(fd, PUNCH, 0, FILE_SIZE));
		OK(fsync(fd));
		TRUE(stat_of("f").st_blocks * 512 < FILE_SIZE / 2);
	}
}

static void range_zero(void)
{
	int fd;

	for (size_t i = 0; i < N_OF(ranges); i++) {
		size_t end = ranges[i].at + ranges[i].len;

		fd = filled("f", FILE_SIZE);
		OK(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)ranges[i].at,
			     (off_t)ranges[i].len));
		TRUE(zero_only(fd, FILE_SIZE, ranges[i].at, ranges[i].len));
		OK(fallocate(fd, FALLOC_FL_ZERO_RANGE, (off_t)ranges[i].at, (off_t)ranges[i].len));
		EQ(size_of(fd), end > FILE_SIZE ? end : FILE_SIZE);
		TRUE(zero_only(fd, (size_t)size_of(fd), ranges[i].at, ranges[i].len));
		OK(close(fd));
	}
}

static void range_collapse(void)
{
	int fd = filled("f", 65536);
	char b[65536];

	OK(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 16384, 16384));
	EQ(size_of(fd), 49152);
	EQ(pread(fd, b, sizeof(b), 0), 49152);
	EQ(pattern_match(b, 16384, 0, 0), 16384);
	EQ(pattern_match(b + 16384, 32768, 0, 32768), 32768);
	OK(fallocate(fd, FALLOC_FL_INSERT_RANGE, 16384, 16384));
	EQ(pread(fd, b, sizeof(b), 0), 65536);
	EQ(zeros_match(b + 16384, 16384), 16384);
	EQ(pattern_match(b + 32768, 32768, 0, 32768), 32768);
	FAILS(EINVAL, fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 1, 16384));
	FAILS(EINVAL, fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 65536));
	FAILS(EINVAL, fallocate(fd, FALLOC_FL_INSERT_RANGE, 65536, 16384));
}

static void range_errors(void)
{
	int fd = filled("f", 1000), pipe_fd;

	FAILS(EINVAL, fallocate(fd, 0, 0, 0));
	FAILS(EINVAL, fallocate(fd, 0, 0, -1));
	FAILS(EINVAL, fallocate(fd, 0, -1, 10));
	FAILS(EINVAL, fallocate(fd, PUNCH, 0, 0));
	FAILS(EFBIG, fallocate(fd, 0, LLONG_MAX - 10, 100));
	FAILS(EOPNOTSUPP, fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 100));
	FAILS(EOPNOTSUPP, fallocate(fd, 0x4000, 0, 100));
	FAILS(EOPNOTSUPP, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE, 0, 100));
	EQ(posix_fallocate(fd, 0, 0), EINVAL);
	EQ(size_of(fd), 1000);
	OK(mkfifo("fifo", 0644));
	pipe_fd = (int)OK(open("fifo", O_RDWR));
	FAILS(ESPIPE, fallocate(pipe_fd, 0, 0, 100));
	FAILS(ESPIPE, lseek(pipe_fd, 0, SEEK_CUR));
	FAILS(ESPIPE, pread(pipe_fd, (char[1]){ 0 }, 1, 0));
	FAILS(ESPIPE, pwrite(pipe_fd, "x", 1, 0));
	FAILS(EINVAL, ftruncate(pipe_fd, 0));
}

static void seek_any(void)
{
	int fd = filled("f", 1000);

	/* true wherever the holes are */
	EQ(lseek(fd, 0, SEEK_DATA), 0);
	EQ(lseek(fd, 999, SEEK_DATA), 999);
	EQ(lseek(fd, 0, SEEK_HOLE), 1000);
	EQ(lseek(fd, 0, SEEK_CUR), 1000);
	FAILS(ENXIO, lseek(fd, 1000, SEEK_DATA));
	FAILS(ENXIO, lseek(fd, 1000, SEEK_HOLE));
	FAILS(ENXIO, lseek(fd, 5000, SEEK_HOLE));
	FAILS(ENXIO, lseek(fd, -1, SEEK_DATA));
	EQ(lseek(fd, 0, SEEK_CUR), 1000);
	OK(ftruncate(fd, 0));
	FAILS(ENXIO, lseek(fd, 0, SEEK_DATA));
	FAILS(ENXIO, lseek(fd, 0, SEEK_HOLE));
}

/* For a file system that stores holes of 64 KiB. */
static void seek_sparse(void)
{
	int fd = (int)OK(open("f", O_RDWR | O_CREAT, 0644));
	char *b = malloc(65536);

	pattern_fill(b, 65536, 0, 0);
	OK(ftruncate(fd, 4 << 20));
	FAILS(ENXIO, lseek(fd, 0, SEEK_DATA));
	EQ(lseek(fd, 0, SEEK_HOLE), 0);
	EQ(pwrite(fd, b, 65536, 1 << 20), 65536);
	EQ(pwrite(fd, b, 65536, 3 << 20), 65536);
	OK(fsync(fd));
	EQ(lseek(fd, 0, SEEK_DATA), 1 << 20);
	EQ(lseek(fd, 0, SEEK_HOLE), 0);
	EQ(lseek(fd, 1 << 20, SEEK_HOLE), (1 << 20) + 65536);
	EQ(lseek(fd, (1 << 20) + 70, SEEK_DATA), (1 << 20) + 70);
	EQ(lseek(fd, (1 << 20) + 65536, SEEK_DATA), 3 << 20);
	EQ(lseek(fd, 3 << 20, SEEK_HOLE), (3 << 20) + 65536);
	FAILS(ENXIO, lseek(fd, (3 << 20) + 65536, SEEK_DATA));
	EQ(lseek(fd, (4 << 20) - 1, SEEK_HOLE), (4 << 20) - 1);
	OK(fallocate(fd, PUNCH, 1 << 20, 65536));
	EQ(lseek(fd, 0, SEEK_DATA), 3 << 20);
	if (feature("blocks"))
		TRUE(stat_of("f").st_blocks * 512 < 1 << 20);
	free(b);
}

static void copy_ranges(void)
{
	static const struct {
		off_t from, to;
		size_t len;
	} rows[] = {
		{ 0, 0, FILE_SIZE },	{ 0, 1, 1 },	    { 1, 0, 4096 },
		{ 4096, 8192, 65536 },	{ 77, 99, 200000 }, { 299990, 5, 10 },
		{ 1000, 500000, 3000 },
	};
	char *b = malloc(600000);
	int in = filled("in", FILE_SIZE);

	for (size_t i = 0; i < N_OF(rows); i++) {
		int out = (int)OK(open("out", O_RDWR | O_CREAT | O_TRUNC, 0644));
		off_t from = rows[i].from, to = rows[i].to, end = rows[i].to + (off_t)rows[i].len;
		size_t len = rows[i].len;

		while (len) {
			ssize_t n = copy_file_range(in, &from, out, &to, len, 0);

			if (n <= 0)
				break;
			len -= (size_t)n;
		}
		EQ(len, 0);
		EQ(to, end);
		EQ(lseek(out, 0, SEEK_CUR), 0);
		EQ(pread(out, b, 600000, 0), end);
		EQ(zeros_match(b, (size_t)rows[i].to), rows[i].to);
		EQ(pattern_match(b + rows[i].to, rows[i].len, 0, (uint64_t)rows[i].from),
		   rows[i].len);
		OK(close(out));
	}
	free(b);
}

static void copy_positions(void)
{
	int in = filled("in", 10000), out = (int)OK(open("out", O_RDWR | O_CREAT, 0644));
	off_t from = 20000, to;
	char b[10000];

	EQ(lseek(in, 100, SEEK_SET), 100);
	EQ(copy_file_range(in, NULL, out, NULL, 50, 0), 50);
	EQ(lseek(in, 0, SEEK_CUR), 150);
	EQ(lseek(out, 0, SEEK_CUR), 50);
	EQ(copy_file_range(in, NULL, out, NULL, 1 << 20, 0), 9850);
	EQ(copy_file_range(in, NULL, out, NULL, 10, 0), 0);
	EQ(size_of(out), 9900);
	EQ(copy_file_range(in, &from, out, NULL, 10, 0), 0);
	EQ(copy_file_range(in, NULL, out, NULL, 0, 0), 0);
	from = 0, to = 5000; /* within one file */
	EQ(copy_file_range(in, &from, in, &to, 5000, 0), 5000);
	EQ(pread(in, b, 10000, 0), 10000);
	EQ(pattern_match(b + 5000, 5000, 0, 0), 5000);
	from = 0, to = 100;
	FAILS(EINVAL, copy_file_range(in, &from, in, &to, 200, 0));
}

static void copy_errors(void)
{
	int in = filled("in", 100), out = (int)OK(open("out", O_RDWR | O_CREAT, 0644));
	int r = (int)OK(open("in", O_RDONLY)), w = (int)OK(open("out", O_WRONLY));
	int app = (int)OK(open("out", O_WRONLY | O_APPEND)), d = (int)OK(open(".", O_RDONLY)), fifo;

	OK(mkfifo("fifo", 0644));
	fifo = (int)OK(open("fifo", O_RDWR));
	FAILS(EBADF, copy_file_range(w, NULL, out, NULL, 10, 0));
	FAILS(EBADF, copy_file_range(in, NULL, r, NULL, 10, 0));
	FAILS(EBADF, copy_file_range(in, NULL, app, NULL, 10, 0));
	FAILS(EISDIR, copy_file_range(d, NULL, out, NULL, 10, 0));
	FAILS(EISDIR, copy_file_range(in, NULL, d, NULL, 10, 0));
	FAILS(EINVAL, copy_file_range(fifo, NULL, out, NULL, 10, 0));
	FAILS(EINVAL, copy_file_range(in, NULL, fifo, NULL, 10, 0));
	FAILS(EINVAL, copy_file_range(in, NULL, out, NULL, 10, 1));
	EQ(size_of(out), 0);
}

const struct test_group range_groups[] = {
	{ .name = "range_allocate", .run = range_allocate, .feature = "fallocate" },
	{ .name = "range_punch", .run = range_punch, .feature = "punch" },
	{ .name = "range_zero", .run = range_zero, .feature = "zero-range" },
	{ .name = "range_collapse", .run = range_collapse, .feature = "collapse" },
	{ .name = "range_errors", .run = range_errors },
	{ .name = "seek_any", .run = seek_any },
	{ .name = "seek_sparse", .run = seek_sparse, .feature = "sparse" },
	{ .name = "copy_ranges", .run = copy_ranges },
	{ .name = "copy_positions", .run = copy_positions },
	{ .name = "copy_errors", .run = copy_errors },
	{ 0 },
};
