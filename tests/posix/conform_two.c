/* One file system through two mounts: changes through one are seen through the other, and locks
 * hold on both. */
#include <dirent.h>
#include <sys/file.h>
#include <sys/xattr.h>

#include "conform.h"

static bool there(const char *name)
{
	return access(other(name), F_OK) == 0;
}

static int listed(const char *dir, const char *name)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		n += !strcmp(e->d_name, name);
	if (d)
		closedir(d);
	return n;
}

static void two_names(void)
{
	struct stat st;

	TRUE(!there("f"));
	put("f", "here");
	TRUE(there("f"));
	TRUE(has(other("f"), "here"));
	EQ(listed(other("."), "f"), 1);
	FAILS(EEXIST, open(other("f"), O_RDWR | O_CREAT | O_EXCL, 0644));
	OK(stat(other("f"), &st));
	EQ(st.st_ino, stat_of("f").st_ino);
	OK(rename("f", "g"));
	TRUE(!there("f"));
	TRUE(there("g"));
	OK(link(other("g"), other("h")));
	EQ(stat_of("g").st_nlink, 2);
	OK(unlink(other("g")));
	FAILS(ENOENT, open("g", O_RDONLY));
	EQ(stat_of("h").st_nlink, 1);
	OK(mkdir("d", 0755));
	put(other("d/x"), "there");
	TRUE(has("d/x", "there"));
	FAILS(ENOTEMPTY, rmdir("d"));
	OK(unlink("d/x"));
	OK(rmdir(other("d")));
	TRUE(mkdir("d/s", 0755) == -1 && (errno == ENOENT || errno == ESTALE));
	OK(symlink("h", other("l")));
	TRUE(has("l", "here"));
	OK(unlink("l"));
	OK(symlink("nowhere", "l")); /* the same name with another type */
	FAILS(ENOENT, open(other("l"), O_RDONLY));
}

static void two_attributes(void)
{
	struct stat st;

	put("f", "x");
	OK(stat(other("f"), &st));
	OK(chmod("f", 0600));
	OK(stat(other("f"), &st));
	EQ(st.st_mode & 07777, 0600);
	OK(chmod(other("f"), 0640));
	EQ(mode_of("f"), 0640);
	OK(times_set("f", 1, 2));
	OK(stat(other("f"), &st));
	EQ(st.st_mtim.tv_sec, 2);
	OK(truncate(other("f"), 100));
	EQ(stat_of("f").st_size, 100);
	if (feature("xattr")) {
		OK(setxattr("f", "user.a", "1", 1, 0));
		EQ(getxattr(other("f"), "user.a", (char[4]){ 0 }, 4), 1);
		OK(removexattr(other("f"), "user.a"));
		FAILS(ENODATA, getxattr("f", "user.a", (char[4]){ 0 }, 4));
	}
	if (is_root()) {
		OK(chown("f", 7, 8));
		OK(stat(other("f"), &st));
		EQ(st.st_uid, 7);
	}
}

/* Written and closed on one mount, opened on the other. */
static void two_close_to_open(void)
{
	char b[64], text[64];

	for (int i = 0; i < 50; i++) {
		const char *to = i % 2 ? "f" : other("f"), *from = i % 2 ? other("f") : "f";

		snprintf(text, sizeof(text), "round %d%.*s", i, i % 7, "xxxxxxx");
		put(to, text);
		expect(0, has(from, text) ? 0 : -1, "round %d of two_close_to_open", i);
	}
	for (int i = 0; i < 20; i++) { /* a file that stays open on the other mount */
		int fd = (int)OK(open("g", O_RDWR | O_CREAT, 0644)), second;

		snprintf(text, sizeof(text), "%063d", i);
		EQ(pwrite(fd, text, 64, i * 64), 64);
		OK(close(fd));
		second = (int)OK(open(other("g"), O_RDWR));
		EQ(pread(second, b, 64, i * 64), 64);
		EQ(memcmp(b, text, 64), 0);
		OK(close(second));
	}
}

static void two_unlinked(void)
{
	char b[8];
	int fd;

	put("f", "content");
	fd = (int)OK(open("f", O_RDWR));
	OK(unlink(other("f"))); /* removed through the other mount, open on this one */
	EQ(pread(fd, b, 8, 0), 7);
	EQ(pwrite(fd, "C", 1, 0), 1);
	OK(fsync(fd));
	OK(close(fd));
	put("f", "first");
	fd = (int)OK(open(other("f"), O_RDONLY));
	put("n", "second");
	OK(rename("n", "f"));
	EQ(pread(fd, b, 8, 0), 5);
	OK(close(fd));
	TRUE(has(other("f"), "second"));
}

static int set_lock(int fd, int how, short type, off_t start, off_t len)
{
	struct flock fl = { .l_type = type, .l_start = start, .l_len = len };

	return fcntl(fd, how, &fl);
}

static void two_locks(void)
{
	int a = filled("f", 100), b = (int)OK(open(other("f"), O_RDWR));

	OK(flock(a, LOCK_EX));
	FAILS(EAGAIN, flock(b, LOCK_SH | LOCK_NB));
	OK(flock(a, LOCK_SH));
	OK(flock(b, LOCK_SH | LOCK_NB));
	FAILS(EAGAIN, flock(b, LOCK_EX | LOCK_NB));
	OK(flock(a, LOCK_UN));
	OK(flock(b, LOCK_EX | LOCK_NB));
	OK(set_lock(a, F_SETLK, F_WRLCK, 10, 10));
	AS(SELF)
	{
		int c = (int)OK(open(other("f"), O_RDWR));

		FAILS(EAGAIN, set_lock(c, F_SETLK, F_RDLCK, 15, 1));
		OK(set_lock(c, F_SETLK, F_WRLCK, 20, 10));
	}
	OK(close(a));
	AS(SELF)
	{
		int c = (int)OK(open(other("f"), O_RDWR));

		OK(set_lock(c, F_SETLKW, F_WRLCK, 10, 10));
	}
}

/* Four processes on each mount add one under a lock; no increment is lost. */
static void two_counters(void)
{
	int fd = filled("f", 0), n = 0;
	pid_t p[4];

	EQ(pwrite(fd, &n, sizeof(n), 0), sizeof(n));
	OK(close(fd));
	for (int i = 0; i < 4; i++) {
		p[i] = fork();
		for (int k = 0; p[i] == 0 && k < 60; k++) {
			int mine = open(i % 2 ? other("f") : "f", O_RDWR), v = 0, e;

			alarm(200);
			e = set_lock(mine, F_SETLKW, F_WRLCK, 0, 0);
			e |= pread(mine, &v, sizeof(v), 0) != sizeof(v);
			v++;
			e |= pwrite(mine, &v, sizeof(v), 0) != sizeof(v);
			e |= close(mine); /* releases the lock */
			if (e)
				_exit(1);
		}
		if (p[i] == 0)
			_exit(0);
	}
	for (int i = 0; i < 4; i++)
		EQ(reap(p[i]), 0);
	fd = (int)OK(open(other("f"), O_RDONLY));
	EQ(pread(fd, &n, sizeof(n), 0), sizeof(n));
	EQ(n, 240);
}

/* Of many processes that create the same name, exactly one succeeds. */
static void two_exclusive(void)
{
	char name[16];
	int wins = 0;

	for (int i = 0; i < 30; i++) {
		pid_t p[4];

		snprintf(name, sizeof(name), "x%d", i);
		for (int k = 0; k < 4; k++) {
			p[k] = fork();
			if (p[k] == 0)
				_exit(open(k % 2 ? other(name) : name, O_RDWR | O_CREAT | O_EXCL,
					   0644) >= 0);
		}
		for (int k = 0; k < 4; k++)
			wins += reap(p[k]) == 1 << 8;
	}
	EQ(wins, 30);
}

const struct test_group two_groups[] = {
	{ .name = "two_names", .run = two_names, .needs = NEEDS_TWO },
	{ .name = "two_attributes", .run = two_attributes, .needs = NEEDS_TWO },
	{ .name = "two_close_to_open", .run = two_close_to_open, .needs = NEEDS_TWO },
	{ .name = "two_unlinked", .run = two_unlinked, .needs = NEEDS_TWO },
	{ .name = "two_locks", .run = two_locks, .needs = NEEDS_TWO },
	{ .name = "two_counters", .run = two_counters, .needs = NEEDS_TWO },
	{ .name = "two_exclusive", .run = two_exclusive, .needs = NEEDS_TWO },
	{ 0 },
};
