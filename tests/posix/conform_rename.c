/* rename in all its forms: what can replace what, what is refused, and what open files and other
 * names see. */
#include "conform.h"

static void scene(void)
{
	put("file", "file");
	put("file2", "file2");
	OK(link("file", "hard"));
	OK(mkdir("dir", 0755));
	OK(mkdir("empty", 0755));
	OK(mkdir("full", 0755));
	OK(mkdir("full/sub", 0755));
	put("full/inner", "inner");
	OK(symlink("file", "link"));
	OK(symlink("dir", "dirlink"));
	OK(symlink("nowhere", "dangling"));
	OK(symlink("loop", "loop"));
	OK(mkfifo("fifo", 0600));
}

static const struct {
	const char *from, *to;
	unsigned flags;
	int want;
} renames[] = {
	{ "file", "new", 0, 0 },
	{ "file", "file2", 0, 0 },
	{ "file", "file", 0, 0 },
	{ "file", "hard", 0, 0 },
	{ "file", "link", 0, 0 },
	{ "file", "dangling", 0, 0 },
	{ "file", "fifo", 0, 0 },
	{ "fifo", "file", 0, 0 },
	{ "link", "new", 0, 0 },
	{ "link", "file", 0, 0 },
	{ "dangling", "file", 0, 0 },
	{ "loop", "new", 0, 0 },
	{ "dir", "new", 0, 0 },
	{ "dir", "new/", 0, 0 },
	{ "dir/", "new", 0, 0 },
	{ "dir", "dir", 0, 0 },
	{ "dir", "empty", 0, 0 },
	{ "full", "empty", 0, 0 },
	{ "full", "empty/moved", 0, 0 },
	{ "full/sub", "sub", 0, 0 },
	{ "file", "dirlink/new", 0, 0 },
	{ "dirlink", "new", 0, 0 },
	{ "file", "dir", 0, EISDIR },
	{ "link", "dir", 0, EISDIR },
	{ "file", "full", 0, EISDIR },
	{ "dir", "file", 0, ENOTDIR },
	{ "dir", "link", 0, ENOTDIR },
	{ "dir", "dirlink", 0, ENOTDIR },
	{ "dir", "full", 0, ENOTEMPTY },
	{ "full/sub", "full", 0, ENOTEMPTY },
	{ "full", "full/sub", 0, EINVAL },
	{ "full", "full/new", 0, EINVAL },
	{ "full", "full/sub/new", 0, EINVAL },
	{ "none", "new", 0, ENOENT },
	{ "none", "file", 0, ENOENT },
	{ "none/x", "new", 0, ENOENT },
	{ "file", "none/x", 0, ENOENT },
	{ "file/x", "new", 0, ENOTDIR },
	{ "file", "file2/x", 0, ENOTDIR },
	{ "file/", "new", 0, ENOTDIR },
	{ "file", "new/", 0, ENOTDIR },
	{ "file", "dir/", 0, ENOTDIR },
	{ "dir", "file/", 0, ENOTDIR },
	{ "dirlink/", "new", 0, ENOTDIR },
	{ "", "new", 0, ENOENT },
	{ "file", "", 0, ENOENT },
	{ ".", "new", 0, EBUSY },
	{ "dir/.", "new", 0, EBUSY },
	{ "dir/..", "new", 0, EBUSY },
	{ "dir", ".", 0, EBUSY },
	{ "dir", "empty/..", 0, EBUSY },
	{ "loop/x", "new", 0, ELOOP },
	{ "file", "loop/x", 0, ELOOP },
	{ "file", "new", RENAME_NOREPLACE, 0 },
	{ "dir", "new", RENAME_NOREPLACE, 0 },
	{ "file", "file2", RENAME_NOREPLACE, EEXIST },
	{ "file", "file", RENAME_NOREPLACE, EEXIST },
	{ "file", "hard", RENAME_NOREPLACE, EEXIST },
	{ "file", "dir", RENAME_NOREPLACE, EEXIST },
	{ "dir", "empty", RENAME_NOREPLACE, EEXIST },
	{ "file", "dangling", RENAME_NOREPLACE, EEXIST },
	{ "none", "new", RENAME_NOREPLACE, ENOENT },
	{ "file", ".", RENAME_NOREPLACE, EEXIST },
	{ "file", "file2", RENAME_EXCHANGE, 0 },
	{ "file", "dir", RENAME_EXCHANGE, 0 },
	{ "full", "file", RENAME_EXCHANGE, 0 },
	{ "full", "dir", RENAME_EXCHANGE, 0 },
	{ "link", "full", RENAME_EXCHANGE, 0 },
	{ "full/sub", "empty", RENAME_EXCHANGE, 0 },
	{ "full/inner", "file", RENAME_EXCHANGE, 0 },
	{ "full/inner", "dir", RENAME_EXCHANGE, 0 },
	{ "file", "none", RENAME_EXCHANGE, ENOENT },
	{ "none", "file", RENAME_EXCHANGE, ENOENT },
	{ "full", "full/sub", RENAME_EXCHANGE, EINVAL },
	{ "full/sub", "full", RENAME_EXCHANGE, EINVAL },
	{ "file", "new", RENAME_EXCHANGE | RENAME_NOREPLACE, EINVAL },
	{ "file", "new", 0x100, EINVAL },
};

/* Checks a success: the new name has the old inode, and the old name is gone or, for an exchange,
 * has the other inode. */
static void judge(const char *from, const char *to, unsigned flags, struct stat a, struct stat b)
{
	struct stat st;
	bool same = a.st_ino == b.st_ino;

	OK(lstat(to, &st));
	EQ(st.st_ino, a.st_ino);
	EQ(st.st_mode, a.st_mode);
	if (flags & RENAME_EXCHANGE) {
		OK(lstat(from, &st));
		EQ(st.st_ino, b.st_ino);
		EQ(st.st_mode, b.st_mode);
	} else if (same) {
		OK(lstat(from, &st)); /* two names of one file, or one name: no change */
	} else {
		FAILS(ENOENT, lstat(from, &st));
	}
}

static void rename_kinds(void)
{
	char dir[16];

	for (size_t i = 0; i < N_OF(renames); i++) {
		const char *from = renames[i].from, *to = renames[i].to;
		struct stat a = { 0 }, b = { 0 };
		long got;

		snprintf(dir, sizeof(dir), "r%zu", i);
		OK(mkdir(dir, 0755));
		OK(chdir(dir));
		scene();
		lstat(from, &a);
		lstat(to, &b);
		got = expect(renames[i].want,
			     renameat2(AT_FDCWD, from, AT_FDCWD, to, renames[i].flags),
			     "rename(\"%s\", \"%s\", flags %u)", from, to, renames[i].flags);
		if (got == 0 && from[strlen(from) - 1] != '/')
			judge(from, to, renames[i].flags, a, b);
		else if (got < 0)
			TRUE(has("hard", "file") && has("full/inner", "inner"));
		OK(chdir(".."));
	}
}

static void rename_moves_trees(void)
{
	struct stat up, now;

	OK(mkdir("a", 0755));
	OK(mkdir("a/t", 0755));
	OK(mkdir("a/t/u", 0755));
	put("a/t/u/f", "deep");
	OK(mkdir("b", 0755));
	OK(rename("a/t", "b/t2"));
	TRUE(has("b/t2/u/f", "deep"));
	up = stat_of("b");
	now = stat_of("b/t2/..");
	EQ(now.st_ino, up.st_ino);
	OK(rmdir("a"));
	OK(chdir("b/t2/u"));
	OK(rename("../../../b", "../../../c")); /* a directory above the working directory */
	TRUE(has("f", "deep"));
	TRUE(has("../../../c/t2/u/f", "deep"));
	OK(rename("../u", "../v")); /* the working directory itself */
	TRUE(has("f", "deep"));
	TRUE(has("../v/f", "deep"));
}

static void rename_over_open(void)
{
	struct stat st;
	char b[8];
	int old, moved;

	put("old", "old");
	put("new", "new");
	old = (int)OK(open("new", O_RDWR)); /* will be replaced */
	moved = (int)OK(open("old", O_RDWR));
	OK(rename("old", "new"));
	TRUE(has("new", "old"));
	OK(fstat(old, &st));
	EQ(st.st_nlink, 0);
	EQ(read(old, b, 8), 3);
	EQ(memcmp(b, "new", 3), 0);
	EQ(pwrite(moved, "X", 1, 0), 1);
	TRUE(has("new", "Xld"));
	OK(link("new", "second"));
	put("other", "other");
	OK(rename("other", "new"));
	EQ(stat_of("second").st_nlink, 1);
	OK(fstat(moved, &st));
	EQ(st.st_nlink, 1);
}

static void rename_whiteout(void)
{
	put("f", "x");
	OK(renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_WHITEOUT));
	TRUE(has("g", "x"));
	EQ(stat_of("f").st_mode & S_IFMT, S_IFCHR);
	EQ(stat_of("f").st_rdev, 0);
	FAILS(EINVAL, renameat2(AT_FDCWD, "g", AT_FDCWD, "h", RENAME_WHITEOUT | RENAME_EXCHANGE));
	OK(unlink("f"));
}

/* A path on another file system. */
static const char *elsewhere(void)
{
	static const char *dirs[] = { "/dev/shm", "/tmp", "/var/tmp", "/dev", "/" };
	struct stat here = stat_of("."), st;

	for (size_t i = 0; i < N_OF(dirs); i++)
		if (stat(dirs[i], &st) == 0 && st.st_dev != here.st_dev)
			return dirs[i];
	return NULL;
}

static void rename_elsewhere(void)
{
	const char *dir = elsewhere();
	char path[64];

	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/sheaf-conform-%d", dir, (int)getpid());
	put("f", "x");
	OK(mkdir("d", 0755));
	FAILS(EXDEV, rename("f", path));
	FAILS(EXDEV, rename("d", path));
	FAILS(EXDEV, link("f", path));
	TRUE(has("f", "x"));
}

/* Replaces "a" repeatedly: a reader sees the old or the new file, and never a missing name. */
static pid_t keep_replacing(const char *name)
{
	pid_t p = fork();

	if (p)
		return p;
	for (int i = 0; i < 500; i++) {
		put(name, "content");
		if (rename(name, "a"))
			_exit(1);
	}
	_exit(0);
}

/* Every open of the name finds one of the files, even while two processes replace it. */
static void rename_is_atomic(void)
{
	pid_t p[2];
	int status, fd;
	char b[16];

	put("a", "content");
	put("b", "content");
	p[0] = keep_replacing("new");
	p[1] = keep_replacing("newer");
	for (int i = 0; i < 1000; i++) {
		fd = (int)OK(open("a", O_RDONLY));
		EQ(read(fd, b, sizeof(b)), 7);
		OK(close(fd));
	}
	for (int i = 0; i < 2; i++) {
		status = reap(p[i]);
		EQ(status, 0);
	}
}

const struct test_group rename_groups[] = {
	{ .name = "rename_kinds", .run = rename_kinds },
	{ .name = "rename_moves_trees", .run = rename_moves_trees },
	{ .name = "rename_over_open", .run = rename_over_open },
	{ .name = "rename_whiteout",
	  .run = rename_whiteout,
	  .needs = NEEDS_ROOT,
	  .feature = "whiteout" },
	{ .name = "rename_elsewhere", .run = rename_elsewhere },
	{ .name = "rename_is_atomic", .run = rename_is_atomic },
	{ 0 },
};
