/* The disk usage of a file (st_blocks) after writes, allocation, punched holes and truncation:
 * through the open file and by its name, while it is open for writing and after it is closed. */
#include <linux/falloc.h>

#include "conform.h"

#define MIB (1 << 20)
#define SLACK (256 << 10) /* for file system overhead */
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

static intmax_t bytes_of(const struct stat *st)
{
	return (intmax_t)st->st_blocks * 512;
}

/* Checks that the file uses `want` bytes and not much more: through the open file, by its name, and
 * after a close. */
static void takes(int fd, intmax_t want)
{
	struct stat st;

	OK(fstat(fd, &st));
	TRUE(bytes_of(&st) >= want);
	TRUE(bytes_of(&st) <= want + SLACK);
	st = stat_of("f");
	TRUE(bytes_of(&st) >= want);
	TRUE(bytes_of(&st) <= want + SLACK);
}

static void close_takes(int fd, intmax_t want)
{
	struct stat st;

	takes(fd, want);
	OK(fsync(fd));
	takes(fd, want);
	OK(close(fd));
	st = stat_of("f");
	TRUE(bytes_of(&st) >= want);
	TRUE(bytes_of(&st) <= want + SLACK);
	fd = (int)OK(open("f", O_RDONLY));
	takes(fd, want);
	OK(close(fd));
}

static int made(void)
{
	return (int)OK(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
}

static void put_bytes(int fd, size_t n, off_t at)
{
	char *b = malloc(n);

	memset(b, 1, n);
	EQ(pwrite(fd, b, n, at), (ssize_t)n);
	free(b);
}

static void blocks_written(void)
{
	int fd = made();

	takes(fd, 0);
	put_bytes(fd, 3 * MIB, 0);
	close_takes(fd, 3 * MIB);
	fd = (int)OK(open("f", O_RDWR));
	put_bytes(fd, 1000, 5000); /* overwrites: no more blocks */
	close_takes(fd, 3 * MIB);
	fd = (int)OK(open("f", O_RDWR | O_TRUNC));
	close_takes(fd, 0);
}

static void blocks_holes(void)
{
	int fd = made();

	OK(ftruncate(fd, 64 * MIB));
	close_takes(fd, 0);
	fd = (int)OK(open("f", O_RDWR));
	put_bytes(fd, 4096, 0);
	put_bytes(fd, 4096, 30 * MIB);
	close_takes(fd, 8192);
	EQ(stat_of("f").st_size, 64 * MIB);
}

static void blocks_cut(void)
{
	int fd = made();

	put_bytes(fd, 4 * MIB, 0);
	OK(ftruncate(fd, MIB));
	close_takes(fd, MIB);
	OK(truncate("f", 10 * MIB));
	EQ(stat_of("f").st_size, 10 * MIB);
	fd = (int)OK(open("f", O_RDWR));
	close_takes(fd, MIB);
}

static void blocks_punched(void)
{
	int fd = made();

	put_bytes(fd, 4 * MIB, 0);
	OK(fallocate(fd, PUNCH, MIB, 2 * MIB));
	close_takes(fd, 2 * MIB);
	fd = (int)OK(open("f", O_RDWR));
	OK(fallocate(fd, PUNCH, 0, 4 * MIB));
	close_takes(fd, 0);
	EQ(stat_of("f").st_size, 4 * MIB);
	fd = (int)OK(open("f", O_RDWR));
	put_bytes(fd, 2 * MIB, MIB); /* fills a hole again */
	close_takes(fd, 2 * MIB);
}

static void blocks_allocated(void)
{
	int fd = made();

	OK(fallocate(fd, 0, 0, 2 * MIB));
	close_takes(fd, 2 * MIB);
	fd = (int)OK(open("f", O_RDWR));
	put_bytes(fd, MIB, 0); /* into allocated space */
	close_takes(fd, 2 * MIB);
}

/* fallocate -n: allocates space behind the end. */
static void blocks_kept_size(void)
{
	int fd = made();

	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 2 * MIB));
	EQ(size_of(fd), 0);
	close_takes(fd, 2 * MIB);
	fd = (int)OK(open("f", O_RDWR));
	put_bytes(fd, MIB, 0);
	close_takes(fd, 2 * MIB);
	EQ(stat_of("f").st_size, MIB);
	fd = (int)OK(open("f", O_RDWR));
	OK(ftruncate(fd, 0));
	close_takes(fd, 0);
	fd = (int)OK(open("f", O_RDWR));
	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 2 * MIB));
	OK(close(fd));
	/* the file is empty: releases the space behind its end */
	fd = (int)OK(open("f", O_RDWR | O_TRUNC));
	close_takes(fd, 0);
}

static void blocks_elsewhere(void)
{
	struct stat st;
	int fd = made(), fd2;

	put_bytes(fd, 2 * MIB, 8 * MIB);
	OK(fsync(fd));
	fd2 = (int)OK(open(other("f"), O_RDONLY)); /* while it is open for writing */
	OK(fstat(fd2, &st));
	EQ(st.st_size, 10 * MIB);
	TRUE(bytes_of(&st) >= 2 * MIB && bytes_of(&st) <= 2 * MIB + SLACK);
	OK(close(fd2));
	OK(close(fd));
	fd2 = (int)OK(open(other("f"), O_RDONLY));
	OK(fstat(fd2, &st));
	TRUE(bytes_of(&st) >= 2 * MIB && bytes_of(&st) <= 2 * MIB + SLACK);
	OK(close(fd2));
}

const struct test_group blocks_groups[] = {
	{ .name = "blocks_written", .run = blocks_written, .feature = "blocks" },
	{ .name = "blocks_holes", .run = blocks_holes, .feature = "blocks" },
	{ .name = "blocks_cut", .run = blocks_cut, .feature = "blocks" },
	{ .name = "blocks_punched", .run = blocks_punched, .feature = "blocks" },
	{ .name = "blocks_allocated", .run = blocks_allocated, .feature = "blocks" },
	{ .name = "blocks_kept_size", .run = blocks_kept_size, .feature = "blocks" },
	{ .name = "blocks_elsewhere",
	  .run = blocks_elsewhere,
	  .needs = NEEDS_TWO,
	  .feature = "blocks" },
	{ 0 },
};
