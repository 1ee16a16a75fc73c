/* Data: read and write in all their forms, positions, holes, truncation, sizes and limits. */
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "conform.h"

static void io_positions(void)
{
	int fd = filled("f", 1000);
	char b[2000];

	EQ(lseek(fd, 0, SEEK_CUR), 0); /* pwrite did not move the position */
	EQ(read(fd, b, 100), 100);
	EQ(lseek(fd, 0, SEEK_CUR), 100);
	EQ(pread(fd, b, 10, 500), 10);
	EQ(pattern_match(b, 10, 0, 500), 10);
	EQ(lseek(fd, 0, SEEK_CUR), 100);
	EQ(read(fd, b, sizeof(b)), 900);
	EQ(pattern_match(b, 900, 0, 100), 900);
	EQ(read(fd, b, 1), 0);
	EQ(pread(fd, b, 10, 1000), 0);
	EQ(pread(fd, b, 10, 5000), 0);
	EQ(pread(fd, b, 10, 995), 5);
	EQ(lseek(fd, -10, SEEK_END), 990);
	EQ(lseek(fd, 5, SEEK_CUR), 995);
	EQ(lseek(fd, 5000, SEEK_SET), 5000); /* beyond the end: no change yet */
	EQ(size_of(fd), 1000);
	EQ(read(fd, b, 1), 0);
	FAILS(EINVAL, lseek(fd, -1, SEEK_SET));
	FAILS(EINVAL, lseek(fd, -1001, SEEK_END));
	FAILS(EINVAL, lseek(fd, 0, 99));
	EQ(lseek(fd, 0, SEEK_CUR), 5000);
	FAILS(EINVAL, pread(fd, b, 1, -1));
	FAILS(EINVAL, pwrite(fd, b, 1, -1));
	EQ(read(fd, b, 0), 0);
	EQ(write(fd, b, 0), 0);
	EQ(size_of(fd), 1000);
}

static void io_holes(void)
{
	int fd = (int)OK(open("f", O_RDWR | O_CREAT, 0644));
	char b[8192];

	EQ(pwrite(fd, "end", 3, 5000), 3);
	EQ(size_of(fd), 5003);
	EQ(pread(fd, b, sizeof(b), 0), 5003);
	EQ(zeros_match(b, 5000), 5000);
	EQ(memcmp(b + 5000, "end", 3), 0);
	EQ(pwrite(fd, "far", 3, (off_t)1 << 40), 3);
	EQ(size_of(fd), ((off_t)1 << 40) + 3);
	EQ(pread(fd, b, 100, ((off_t)1 << 40) - 50), 53);
	EQ(zeros_match(b, 50), 50);
	EQ(memcmp(b + 50, "far", 3), 0);
	EQ(pread(fd, b, sizeof(b), (off_t)1 << 39), sizeof(b));
	EQ(zeros_match(b, sizeof(b)), sizeof(b));
	if (feature("blocks"))
		TRUE(stat_of("f").st_blocks < 1 << 20); /* the zeros use no space */
	OK(ftruncate(fd, 4));
	EQ(pread(fd, b, sizeof(b), 0), 4);
}

/* Lengths and offsets around powers of two that an implementation may use as a unit. */
static void io_boundaries(void)
{
	static const size_t edges[] = { 512, 4096, 16384, 65536, 131072, 262144, 1 << 20 };
	size_t room = (1 << 20) + 3 * 4096, n;
	char *b = malloc(room), *model = calloc(1, room);
	int fd = (int)OK(open("f", O_RDWR | O_CREAT, 0644));

	for (size_t i = 0; i < N_OF(edges); i++)
		for (int d = -1; d <= 1; d++)
			for (size_t len = 1; len <= 4097; len = len * 2 + 1) {
				size_t at = edges[i] + (size_t)d;

				pattern_fill(model + at, len, i + len, at);
				EQ(pwrite(fd, model + at, len, (off_t)at), len);
			}
	n = (size_t)size_of(fd);
	EQ(pread(fd, b, room, 0), n);
	EQ(memcmp(b, model, n), 0);
	for (size_t i = 0; i < N_OF(edges); i++)
		for (size_t len = 1; len < 9000; len = len * 3 + 2) {
			size_t at = edges[i] > len ? edges[i] - len / 2 : 0;

			EQ(pread(fd, b, len, (off_t)at), at + len > n ? n - at : len);
			EQ(memcmp(b, model + at, at + len > n ? n - at : len), 0);
		}
	free(b);
	free(model);
}

static void io_large(void)
{
	size_t len = (5 << 20) + 17, at = 0;
	char *b = malloc(len);
	int fd = filled("f", len);

	EQ(pread(fd, b, len, 0), len);
	EQ(pattern_match(b, len, 0, 0), len);
	memset(b, 0, len);
	while (at < len) { /* in pieces of odd size */
		ssize_t n = read(fd, b + at, 77777);

		if (n <= 0)
			break;
		at += (size_t)n;
	}
	EQ(at, len);
	EQ(pattern_match(b, len, 0, 0), len);
	OK(close(fd));
	fd = (int)OK(open("f", O_RDONLY));
	EQ(pread(fd, b, 1 << 20, 3333333), 1 << 20);
	EQ(pattern_match(b, 1 << 20, 0, 3333333), 1 << 20);
	free(b);
}

static void io_vectors(void)
{
	char a[3], b[5000], c[1], r[6000], s[100];
	struct iovec w[4] = { { a, 3 }, { b, 0 }, { b, 5000 }, { c, 1 } };
	struct iovec v[2] = { { r, 100 }, { s, 50 } };
	int fd = (int)OK(open("f", O_RDWR | O_CREAT, 0644));

	pattern_fill(a, 3, 1, 0);
	pattern_fill(b, 5000, 1, 3);
	pattern_fill(c, 1, 1, 5003);
	EQ(writev(fd, w, 4), 5004);
	EQ(lseek(fd, 0, SEEK_CUR), 5004);
	EQ(preadv(fd, v, 2, 0), 150);
	EQ(pattern_match(r, 100, 1, 0), 100);
	EQ(pattern_match(s, 50, 1, 100), 50);
	EQ(preadv(fd, v, 2, 5000), 4);
	EQ(readv(fd, v, 2), 0);
	EQ(lseek(fd, 4900, SEEK_SET), 4900);
	EQ(readv(fd, v, 2), 104);
	EQ(pwritev(fd, w, 1, 10000), 3);
	EQ(size_of(fd), 10003);
	EQ(pread(fd, r, 6000, 5004), 4999);
	EQ(zeros_match(r, 4996), 4996);
	EQ(readv(fd, v, 0), 0);
	FAILS(EINVAL, syscall(SYS_readv, fd, v, -1));
	FAILS(EINVAL, syscall(SYS_writev, fd, v, IOV_MAX + 1));
	FAILS(EINVAL, preadv(fd, v, 2, -1));
	EQ(pwritev2(fd, w, 1, 0, RWF_APPEND), 3);
	EQ(size_of(fd), 10006);
	EQ(pwritev2(fd, w, 1, 0, RWF_DSYNC), 3);
	v[0].iov_len = SIZE_MAX;
	FAILS(EINVAL, syscall(SYS_readv, fd, v, 1));
}

static void io_bad_memory(void)
{
	int fd = filled("f", 100);

	FAILS(EFAULT, syscall(SYS_read, fd, no_memory, 10));
	FAILS(EFAULT, syscall(SYS_pread64, fd, no_memory, 10, 5));
	FAILS(EFAULT, syscall(SYS_write, fd, no_memory, 10));
	FAILS(EFAULT, syscall(SYS_pwrite64, fd, no_memory, 10, 50));
	EQ(size_of(fd), 100);
	EQ(pread(fd, (char[1]){ 0 }, 1, 99), 1);
}

/* Truncates down and up again: data that were cut off read as zeros from then on. */
static void io_truncate_zeros(void)
{
	static const struct {
		size_t from, cut, to;
	} rows[] = {
		{ 10, 5, 10 },
		{ 10, 0, 10 },
		{ 5000, 4096, 5000 },
		{ 5000, 4095, 5000 },
		{ 5000, 1, 9000 },
		{ 70000, 65536, 70000 },
		{ 70000, 65535, 200000 },
		{ 200000, 131073, 200000 },
		{ 1 << 20, 77777, 1 << 20 },
		{ 3 << 19, 1 << 20, 3 << 19 },
		{ 100, 100, 100 },
		{ 4096, 4096, 8192 },
	};
	char *b = malloc(2 << 20);

	for (size_t i = 0; i < N_OF(rows); i++) {
		int fd = filled("f", rows[i].from);

		if (i % 2)
			OK(ftruncate(fd, (off_t)rows[i].cut));
		else
			OK(truncate("f", (off_t)rows[i].cut));
		EQ(size_of(fd), rows[i].cut);
		EQ(pread(fd, b, 2 << 20, 0), rows[i].cut);
		EQ(pattern_match(b, rows[i].cut, 0, 0), rows[i].cut);
		OK(ftruncate(fd, (off_t)rows[i].to));
		EQ(pread(fd, b, 2 << 20, 0), rows[i].to);
		EQ(pattern_match(b, rows[i].cut, 0, 0), rows[i].cut);
		EQ(zeros_match(b + rows[i].cut, rows[i].to - rows[i].cut),
		   rows[i].to - rows[i].cut);
		OK(close(fd));
	}
	free(b);
}

static void io_truncate_errors(void)
{
	int fd;

	put("f", "12345");
	OK(mkdir("d", 0755));
	OK(symlink("f", "l"));
	OK(symlink("nowhere", "dangling"));
	OK(mkfifo("fifo", 0644));
	FAILS(EINVAL, truncate("f", -1));
	FAILS(EISDIR, truncate("d", 0));
	FAILS(EINVAL, truncate("fifo", 0));
	FAILS(ENOENT, truncate("dangling", 0));
	FAILS(ENOENT, truncate("none", 0));
	FAILS(ENOTDIR, truncate("f/x", 0));
	OK(truncate("l", 2));
	TRUE(has("f", "12"));
	fd = (int)OK(open("f", O_RDWR));
	FAILS(EINVAL, ftruncate(fd, -1));
	EQ(lseek(fd, 2, SEEK_SET), 2);
	OK(ftruncate(fd, 0));
	EQ(lseek(fd, 0, SEEK_CUR), 2); /* the position stays */
	EQ(write(fd, "x", 1), 1);
	EQ(size_of(fd), 3);
	OK(ftruncate(fd, (off_t)1 << 40));
	EQ(size_of(fd), (off_t)1 << 40);
	OK(ftruncate(fd, 0));
}

static void io_limits(void)
{
	struct rlimit limit = { .rlim_cur = 1000, .rlim_max = RLIM_INFINITY };
	int fd = (int)OK(open("f", O_RDWR | O_CREAT, 0644));
	char b[600] = "";

	FAILS(EINVAL, pwrite(fd, "x", 1, LLONG_MAX));
	EQ(size_of(fd), 0);
	AS(SELF)
	{
		signal(SIGXFSZ, SIG_IGN);
		OK(getrlimit(RLIMIT_FSIZE, &limit));
		limit.rlim_cur = 1000;
		OK(setrlimit(RLIMIT_FSIZE, &limit));
		EQ(write(fd, b, 600), 600);
		EQ(write(fd, b, 600), 400); /* a short write up to the limit */
		FAILS(EFBIG, write(fd, b, 600));
		FAILS(EFBIG, ftruncate(fd, 1001));
		FAILS(EFBIG, truncate("f", 1001));
		OK(ftruncate(fd, 1000));
		FAILS(EFBIG, pwrite(fd, b, 1, 5000));
	}
	EQ(size_of(fd), 1000);
}

/* All processes of one host see a write at once. */
static void io_coherent(void)
{
	int a = filled("f", 10000), b = (int)OK(open("f", O_RDWR));
	char c[16];

	EQ(pwrite(a, "first", 5, 100), 5);
	EQ(pread(b, c, 5, 100), 5);
	EQ(memcmp(c, "first", 5), 0);
	AS(SELF)
	{
		int fd = (int)OK(open("f", O_RDWR));

		EQ(pwrite(fd, "second", 6, 9998), 6);
	}
	EQ(size_of(a), 10004);
	EQ(pread(a, c, 16, 9998), 6);
	EQ(memcmp(c, "second", 6), 0);
	OK(ftruncate(b, 3));
	EQ(pread(a, c, 16, 0), 3);
	OK(fsync(a));
	OK(fdatasync(b));
	OK(sync_file_range(a, 0, 3, SYNC_FILE_RANGE_WRITE));
	OK(syncfs(a));
	EQ(posix_fadvise(a, 0, 0, POSIX_FADV_DONTNEED), 0);
	EQ(pread(a, c, 16, 0), 3);
	EQ(posix_fadvise(a, 0, 0, 99), EINVAL);
}

static void io_sendfile(void)
{
	int a = filled("f", 100000), b = (int)OK(open("g", O_RDWR | O_CREAT, 0644)), p[2];
	off_t at = 1000;
	loff_t to = 10;
	char c[2000];

	EQ(sendfile(b, a, &at, 99000), 99000);
	EQ(at, 100000);
	EQ(size_of(b), 99000);
	EQ(pread(b, c, 2000, 50000), 2000);
	EQ(pattern_match(c, 2000, 0, 51000), 2000);
	OK(pipe(p));
	at = 0;
	EQ(splice(a, &at, p[1], NULL, 1000, 0), 1000);
	EQ(splice(p[0], NULL, b, &to, 1000, 0), 1000);
	EQ(pread(b, c, 1000, 10), 1000);
	EQ(pattern_match(c, 1000, 0, 0), 1000);
}

const struct test_group io_groups[] = {
	{ .name = "io_positions", .run = io_positions },
	{ .name = "io_holes", .run = io_holes },
	{ .name = "io_boundaries", .run = io_boundaries },
	{ .name = "io_large", .run = io_large },
	{ .name = "io_vectors", .run = io_vectors },
	{ .name = "io_bad_memory", .run = io_bad_memory },
	{ .name = "io_truncate_zeros", .run = io_truncate_zeros },
	{ .name = "io_truncate_errors", .run = io_truncate_errors },
	{ .name = "io_limits", .run = io_limits },
	{ .name = "io_coherent", .run = io_coherent },
	{ .name = "io_sendfile", .run = io_sendfile },
	{ 0 },
};
