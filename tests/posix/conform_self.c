/* A directory's own attributes after changes in it: visible at once, however they are read, and
 * never older than before. */
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#include "conform.h"

static struct statx asked(const char *path, int how)
{
	struct statx st = { 0 };

	OK(statx(AT_FDCWD, path, how, STATX_BASIC_STATS, &st));
	return st;
}

static int64_t ns(struct statx_timestamp t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Reads the attributes in two ways, which must agree. */
static struct statx self(const char *path)
{
	static unsigned turn;
	int ways[] = { AT_STATX_SYNC_AS_STAT, AT_STATX_FORCE_SYNC };
	struct statx a = asked(path, ways[turn++ % 2]), b = asked(path, ways[turn % 2]);

	EQ(a.stx_ino, b.stx_ino);
	EQ(a.stx_mode, b.stx_mode);
	EQ(a.stx_nlink, b.stx_nlink);
	EQ(a.stx_size, b.stx_size);
	EQ(a.stx_uid, b.stx_uid);
	EQ(ns(a.stx_mtime), ns(b.stx_mtime));
	EQ(ns(a.stx_ctime), ns(b.stx_ctime));
	return a;
}

/* ---- single changes in d and e ---- */

#define OP(name, call) \
	static void name(void) \
	{ \
		OK(call); \
	}
OP(op_creat, close(open("d/f", O_RDWR | O_CREAT | O_EXCL, 0644)))
OP(op_mknod, mknod("d/n", S_IFREG | 0644, 0))
OP(op_mkfifo, mkfifo("d/p", 0644))
OP(op_mkdir, mkdir("d/s", 0755))
OP(op_symlink, symlink("f", "d/l"))
OP(op_link, link("d/f", "d/g"))
OP(op_rename, rename("d/g", "d/h"))
OP(op_rename_away, rename("d/h", "e/h"))
OP(op_rename_over, rename("e/h", "d/n"))
OP(op_rename_dir, rename("d/s", "e/s"))
OP(op_mkdir_again, mkdir("d/s", 0755))
OP(op_rename_over_dir, rename("d/s", "e/s"))
OP(op_exchange, renameat2(AT_FDCWD, "d/f", AT_FDCWD, "e/s", RENAME_EXCHANGE))
OP(op_unlink, unlink("d/n"))
OP(op_unlink_link, unlink("d/l"))
OP(op_unlink_far, unlink("e/s"))
OP(op_chmod, chmod("d", 0700))
OP(op_chown, chown("d", getuid(), getgid()))
OP(op_utimes, times_set("d", 1000000000, 1000000000))
OP(op_rmdir, rmdir("d/f"))
OP(op_setxattr, setxattr("d", "user.a", "1", 1, 0))
OP(op_unlink_fifo, unlink("d/p"))

static const struct {
	const char *what;
	void (*run)(void);
	int links[2]; /* change of the link counts of d and e */
	const char *changes[2]; /* the times of each that become later */
} rows[] = {
	{ "creat", op_creat, { 0, 0 }, { "mc", "" } },
	{ "mknod", op_mknod, { 0, 0 }, { "mc", "" } },
	{ "mkfifo", op_mkfifo, { 0, 0 }, { "mc", "" } },
	{ "mkdir", op_mkdir, { 1, 0 }, { "mc", "" } },
	{ "symlink", op_symlink, { 0, 0 }, { "mc", "" } },
	{ "link", op_link, { 0, 0 }, { "mc", "" } },
	{ "rename", op_rename, { 0, 0 }, { "mc", "" } },
	{ "rename elsewhere", op_rename_away, { 0, 0 }, { "mc", "mc" } },
	{ "rename over a file", op_rename_over, { 0, 0 }, { "mc", "mc" } },
	{ "rename of a directory", op_rename_dir, { -1, 1 }, { "mc", "mc" } },
	{ "mkdir again", op_mkdir_again, { 1, 0 }, { "mc", "" } },
	{ "rename over a directory", op_rename_over_dir, { -1, 0 }, { "mc", "mc" } },
	{ "exchange", op_exchange, { 1, -1 }, { "mc", "mc" } },
	{ "chmod", op_chmod, { 0, 0 }, { "c", "" } },
	{ "unlink", op_unlink, { 0, 0 }, { "mc", "" } },
	{ "chown", op_chown, { 0, 0 }, { "c", "" } },
	{ "unlink of a link", op_unlink_link, { 0, 0 }, { "mc", "" } },
	{ "unlink elsewhere", op_unlink_far, { 0, 0 }, { "", "mc" } },
	{ "utimensat", op_utimes, { 0, 0 }, { "c", "" } },
	{ "rmdir", op_rmdir, { -1, 0 }, { "mc", "" } },
	{ "setxattr", op_setxattr, { 0, 0 }, { "c", "" } },
	{ "unlink of a fifo", op_unlink_fifo, { 0, 0 }, { "mc", "" } },
};

static void compare(size_t row, int i, const struct statx *was, const struct statx *is)
{
	const char *changes = rows[row].changes[i], *what = rows[row].what;
	bool m = ns(is->stx_mtime) > ns(was->stx_mtime), c = ns(is->stx_ctime) > ns(was->stx_ctime);
	int links = (int)is->stx_nlink - (int)was->stx_nlink;

	if (rows[row].run != op_utimes || i)
		expect(0, m == !!strchr(changes, 'm') ? 0 : -1, "%s: mtime of %c", what, "de"[i]);
	expect(0, c == !!strchr(changes, 'c') ? 0 : -1, "%s: ctime of %c", what, "de"[i]);
	if (feature("dir-nlink"))
		expect(0, links == rows[row].links[i] ? 0 : -1, "%s: links of %c", what, "de"[i]);
}

static void self_at_once(void)
{
	struct statx was[2], is[2];

	OK(mkdir("d", 0755));
	OK(mkdir("e", 0755));
	for (size_t i = 0; i < N_OF(rows); i++) {
		if (rows[i].run == op_setxattr && !feature("xattr"))
			continue;
		was[0] = self("d");
		was[1] = self("e");
		tick();
		rows[i].run();
		is[0] = self("d");
		is[1] = self("e");
		compare(i, 0, &was[0], &is[0]);
		compare(i, 1, &was[1], &is[1]);
	}
	EQ(asked("d", 0).stx_mode & 07777, 0700);
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* A directory is removed or moved right after a change in it. */
static void self_removed(void)
{
	struct stat st, later;
	int fd, moved;

	OK(mkdir("d", 0755));
	OK(mkdir("e", 0755));
	OK(mkdir("m", 0755));
	for (int i = 0; i < 10; i++) {
		fd = (int)OK(open("d", O_RDONLY | O_DIRECTORY));
		moved = (int)OK(open("m", O_RDONLY | O_DIRECTORY));
		put("d/f", "x");
		OK(unlink("d/f"));
		put("m/f", "x");
		OK(unlink("m/f"));
		OK(fstat(moved, &st));
		tick();
		OK(rename("m", "e/m"));
		OK(fstat(moved, &later));
		EQ(same_time(later.st_ctim, st.st_ctim), 0);
		if (i % 2)
			OK(rename("e/m", "d"));
		else
			OK(rmdir("d"));
		OK(fstat(fd, &st));
		EQ(st.st_nlink, 0);
		OK(i % 2 ? mkdir("m", 0755) : rename("e/m", "m"));
		if (i % 2 == 0)
			OK(mkdir("d", 0755));
		OK(close(fd));
		OK(close(moved));
	}
}

/* ---- concurrent changes ---- */

#define ROUNDS 150

static void make_and_remove(int who)
{
	char name[32];
	int bad = 0;

	for (int i = 0; i < ROUNDS; i++) {
		snprintf(name, sizeof(name), "d/%d.%d", who, i);
		bad |= close(open(name, O_RDWR | O_CREAT | O_EXCL, 0644));
		if (i + 1 < ROUNDS)
			bad |= unlink(name);
	}
	_exit(bad ? 1 : 0);
}

/* Two processes change a directory while a third process reads its attributes. */
static struct statx crowd(void)
{
	pid_t p[2];
	int64_t last = 0, status[2] = { -1, -1 };
	unsigned looks = 0, back = 0;
	struct statx st;

	OK(mkdir("d", 0755));
	for (int i = 0; i < 2; i++) {
		p[i] = fork();
		if (p[i] == 0)
			make_and_remove(i);
	}
	while (status[0] < 0 || status[1] < 0) {
		for (int i = 0, s; i < 2; i++)
			if (status[i] < 0 && waitpid(p[i], &s, WNOHANG) == p[i])
				status[i] = s;
		st = asked("d", looks++ % 2 ? AT_STATX_FORCE_SYNC : AT_STATX_SYNC_AS_STAT);
		back += ns(st.stx_mtime) < last;
		last = ns(st.stx_mtime);
	}
	EQ(status[0], 0);
	EQ(status[1], 0);
	EQ(back, 0);
	st = self("d");
	TRUE(ns(st.stx_mtime) >= last);
	for (int i = 0; i < 2; i++) {
		char name[32];

		snprintf(name, sizeof(name), "d/%d.%d", i, ROUNDS - 1);
		TRUE(ns(st.stx_mtime) >= ns(asked(name, 0).stx_ctime));
	}
	return st;
}

static void self_crowd(void)
{
	crowd();
}

/* ---- through two mounts ---- */

static void self_two_crowd(void)
{
	struct statx here = crowd(), there = asked(other("d"), AT_STATX_FORCE_SYNC);

	EQ(ns(there.stx_mtime), ns(here.stx_mtime));
	EQ(ns(there.stx_ctime), ns(here.stx_ctime));
	EQ(there.stx_nlink, here.stx_nlink);
	EQ(there.stx_size, here.stx_size);
}

/* Changes through another mount become visible in time, even if this mount changes the directory
 * and reads it often. */
static void self_two_in_time(void)
{
	struct timespec began, now, nap = { .tv_nsec = 5000000 };
	struct statx was;
	char name[16];

	OK(mkdir("d", 0755));
	OK(access(other("d"), F_OK));
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "d/f%d", i);
		put(name, "x");
		was = self("d");
		tick();
		if (i % 2)
			OK(chmod(other("d"), i == 1 ? 0700 : 0755));
		else
			put(other(i ? "d/h" : "d/g"), "x");
		clock_gettime(CLOCK_MONOTONIC, &began);
		do {
			nanosleep(&nap, NULL);
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while (ns(asked("d", i < 2 ? AT_STATX_FORCE_SYNC : 0).stx_ctime) ==
				 ns(was.stx_ctime) &&
			 now.tv_sec - began.tv_sec < 60);
		TRUE(now.tv_sec - began.tv_sec < (getenv("SHEAF_JUDGE_SPEED") ? 5 : 60));
		EQ(ns(self("d").stx_ctime), ns(asked(other("d"), AT_STATX_FORCE_SYNC).stx_ctime));
	}
}

const struct test_group self_groups[] = {
	{ .name = "self_at_once", .run = self_at_once },
	{ .name = "self_removed", .run = self_removed },
	{ .name = "self_crowd", .run = self_crowd },
	{ .name = "self_two_crowd", .run = self_two_crowd, .needs = NEEDS_TWO },
	{ .name = "self_two_in_time", .run = self_two_in_time, .needs = NEEDS_TWO },
	{ 0 },
};
