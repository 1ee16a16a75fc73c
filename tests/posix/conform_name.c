/* Names: mkdir, rmdir, unlink, link, symlink, readlink, mknod; and that all calls see a change of
 * names. */
#include <limits.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "conform.h"

static void scene(void)
{
	put("file", "hello");
	OK(mkdir("dir", 0755));
	OK(mkdir("full", 0755));
	put("full/inner", "x");
	OK(symlink("file", "link"));
	OK(symlink("dir", "dirlink"));
	OK(symlink("nowhere", "dangling"));
	OK(symlink("loop", "loop"));
}

struct row {
	const char *path;
	int want;
};

static void mkdir_errors(void)
{
	static const struct row rows[] = {
		{ "file", EEXIST },	  { "dir", EEXIST },	  { "dir/", EEXIST },
		{ "link", EEXIST },	  { "dangling", EEXIST }, { "dirlink", EEXIST },
		{ "loop", EEXIST },	  { ".", EEXIST },	  { "..", EEXIST },
		{ "dir/.", EEXIST },	  { "dir/..", EEXIST },	  { "/", EEXIST },
		{ "file/x", ENOTDIR },	  { "link/x", ENOTDIR },  { "none/x", ENOENT },
		{ "dangling/x", ENOENT }, { "loop/x", ELOOP },	  { "", ENOENT },
		{ "new/.", ENOENT },	  { "new", 0 },		  { "new2/", 0 },
		{ "dirlink/a", 0 },	  { "dir/a", EEXIST },	  { "dir//b///", 0 },
	};

	scene();
	for (size_t i = 0; i < N_OF(rows); i++)
		expect(rows[i].want, mkdir(rows[i].path, 0755), "mkdir(\"%s\")", rows[i].path);
	FAILS(ENOENT, stat("nowhere", &(struct stat){ 0 }));
}

static void mkdir_modes(void)
{
	static const struct {
		mode_t mask, mode, want;
	} rows[] = {
		{ 0, 0777, 0777 }, { 022, 0777, 0755 }, { 077, 0755, 0700 },   { 0, 01777, 01777 },
		{ 0, 0, 0 },	   { 0777, 0777, 0 },	{ 022, 01777, 01755 },
	};
	char path[16];

	for (size_t i = 0; i < N_OF(rows); i++) {
		snprintf(path, sizeof(path), "d%zu", i);
		umask(rows[i].mask);
		OK(mkdir(path, rows[i].mode));
		EQ(mode_of(path), rows[i].want);
		TRUE(S_ISDIR(stat_of(path).st_mode));
		EQ(stat_of(path).st_uid, geteuid());
	}
}

static void dir_links(void)
{
	nlink_t before = stat_of(".").st_nlink;

	OK(mkdir("d", 0755));
	EQ(stat_of("d").st_nlink, 2);
	EQ(stat_of(".").st_nlink, before + 1);
	OK(mkdir("d/sub", 0755));
	EQ(stat_of("d").st_nlink, 3);
	put("d/file", "x");
	EQ(stat_of("d").st_nlink, 3);
	OK(rename("d/sub", "sub"));
	EQ(stat_of("d").st_nlink, 2);
	EQ(stat_of(".").st_nlink, before + 2);
	OK(rmdir("sub"));
	OK(unlink("d/file"));
	OK(rmdir("d"));
	EQ(stat_of(".").st_nlink, before);
}

static void rmdir_errors(void)
{
	static const struct row rows[] = {
		{ "full", ENOTEMPTY },	{ "file", ENOTDIR },	 { "link", ENOTDIR },
		{ "dirlink", ENOTDIR }, { "dirlink/", ENOTDIR }, { "dangling", ENOTDIR },
		{ "none", ENOENT },	{ "none/x", ENOENT },	 { "file/x", ENOTDIR },
		{ "dir/.", EINVAL },	{ ".", EINVAL },	 { "dir/..", ENOTEMPTY },
		{ "..", ENOTEMPTY },	{ "/", EBUSY },		 { "", ENOENT },
		{ "loop", ENOTDIR },	{ "loop/x", ELOOP },	 { "file/", ENOTDIR },
		{ "dir/", 0 },		{ "dir", ENOENT },
	};

	scene();
	for (size_t i = 0; i < N_OF(rows); i++)
		expect(rows[i].want, rmdir(rows[i].path), "rmdir(\"%s\")", rows[i].path);
	OK(unlink("full/inner"));
	OK(rmdir("full"));
	FAILS(ENOENT, stat("full", &(struct stat){ 0 }));
}

static void unlink_errors(void)
{
	static const struct row rows[] = {
		{ "dir", EISDIR },	 { "full", EISDIR },   { "dir/", EISDIR },
		{ ".", EISDIR },	 { "dir/..", EISDIR }, { "none", ENOENT },
		{ "none/x", ENOENT },	 { "file/", ENOTDIR }, { "file/x", ENOTDIR },
		{ "dirlink/", ENOTDIR }, { "", ENOENT },       { "loop/x", ELOOP },
		{ "link", 0 },		 { "dirlink", 0 },     { "dangling", 0 },
		{ "loop", 0 },		 { "full/inner", 0 },  { "file", 0 },
		{ "file", ENOENT },
	};

	scene();
	for (size_t i = 0; i < N_OF(rows); i++) {
		if (!strcmp(rows[i].path, "full/inner"))
			/* only the links were removed, not their target */
			TRUE(has("file", "hello"));
		expect(rows[i].want, unlink(rows[i].path), "unlink(\"%s\")", rows[i].path);
	}
	OK(rmdir("full"));
	FAILS(EISDIR, unlinkat(AT_FDCWD, "dir", 0));
	FAILS(ENOTDIR, (put("f", ""), unlinkat(AT_FDCWD, "f", AT_REMOVEDIR)));
	OK(unlinkat(AT_FDCWD, "dir", AT_REMOVEDIR));
}

static void link_errors(void)
{
	static const struct {
		const char *from, *to;
		int want;
	} rows[] = {
		{ "none", "new", ENOENT },
		{ "none/x", "new", ENOENT },
		{ "file", "none/x", ENOENT },
		{ "file", "dir", EEXIST },
		{ "file", "file", EEXIST },
		{ "file", "link", EEXIST },
		{ "file", "dangling", EEXIST },
		{ "file", "file/x", ENOTDIR },
		{ "file/x", "new", ENOTDIR },
		{ "dir", "new", EPERM },
		{ ".", "new", EPERM },
		{ "loop/x", "new", ELOOP },
		{ "file", "loop/x", ELOOP },
		{ "", "new", ENOENT },
		{ "file", "", ENOENT },
		{ "file/", "new", ENOTDIR },
		{ "file", "new/", ENOENT },
		{ "file", ".", EEXIST },
		{ "file", "new", 0 },
		{ "link", "newlink", 0 },
		{ "dangling", "newdangling", 0 },
		{ "file", "dirlink/new", 0 },
	};

	scene();
	for (size_t i = 0; i < N_OF(rows); i++)
		expect(rows[i].want, link(rows[i].from, rows[i].to), "link(\"%s\", \"%s\")",
		       rows[i].from, rows[i].to);
	EQ(stat_of("file").st_nlink, 3);
	TRUE(S_ISLNK(stat_of("newlink").st_mode)); /* the link itself, not its target */
	EQ(stat_of("newlink").st_ino, stat_of("link").st_ino);
	OK(linkat(AT_FDCWD, "link", AT_FDCWD, "followed", AT_SYMLINK_FOLLOW));
	EQ(stat_of("followed").st_ino, stat_of("file").st_ino);
	FAILS(EINVAL, linkat(AT_FDCWD, "file", AT_FDCWD, "never", 0x8000));
}

static void links_are_one_file(void)
{
	struct stat a, b;
	int fd;

	put("a", "one");
	OK(mkdir("d", 0755));
	OK(link("a", "d/b"));
	OK(link("d/b", "c"));
	a = stat_of("a"), b = stat_of("d/b");
	EQ(a.st_ino, b.st_ino);
	EQ(a.st_dev, b.st_dev);
	EQ(b.st_nlink, 3);
	put("d/b", "changed");
	TRUE(has("a", "changed"));
	EQ(stat_of("a").st_size, 7);
	OK(chmod("c", 0600));
	EQ(mode_of("a"), 0600);
	OK(truncate("a", 3));
	EQ(stat_of("c").st_size, 3);
	OK(unlink("a"));
	EQ(stat_of("c").st_nlink, 2);
	TRUE(has("d/b", "cha"));
	fd = (int)OK(open("c", O_RDONLY));
	OK(unlink("c"));
	OK(unlink("d/b"));
	OK(fstat(fd, &a));
	EQ(a.st_nlink, 0);
	OK(mkfifo("fifo", 0644));
	OK(link("fifo", "fifo2"));
	EQ(stat_of("fifo2").st_nlink, 2);
}

static void link_max(void)
{
	char path[32];
	int i, e = 0;

	put("f", "");
	for (i = 1; i < 70000 && !e; i++) {
		snprintf(path, sizeof(path), "l%d", i);
		e = link("f", path) ? errno : 0;
	}
	EQ(e, EMLINK);
	EQ(stat_of("f").st_nlink, i - 1);
	OK(unlink("l1"));
	OK(link("f", "again"));
}

static void symlink_errors(void)
{
	static char long_text[4200];
	static const struct row rows[] = {
		{ "file", EEXIST },	{ "dir", EEXIST },     { "link", EEXIST },
		{ "dangling", EEXIST }, { "file/x", ENOTDIR }, { "none/x", ENOENT },
		{ "loop/x", ELOOP },	{ "", ENOENT },	       { "new/", ENOENT },
		{ ".", EEXIST },	{ "dir/new", 0 },
	};

	scene();
	for (size_t i = 0; i < N_OF(rows); i++)
		expect(rows[i].want, symlink("target", rows[i].path), "symlink(\"%s\")",
		       rows[i].path);
	FAILS(ENOENT, symlink("", "empty"));
	memset(long_text, 'x', 4095);
	OK(symlink(long_text, "longest"));
	EQ(stat_of("longest").st_size, 4095);
	FAILS(ENAMETOOLONG, stat("longest", &(struct stat){ 0 }));
	long_text[4095] = 'x';
	FAILS(ENAMETOOLONG, symlink(long_text, "too-long"));
}

static void readlink_all(void)
{
	static const char *texts[] = { "x", "a/b/../c", "/",	      "//etc//",
				       " ", "\xff\xfe", "with\nline", "." };
	char b[64], path[16];

	for (size_t i = 0; i < N_OF(texts); i++) {
		snprintf(path, sizeof(path), "l%zu", i);
		OK(symlink(texts[i], path));
		EQ(readlink(path, b, sizeof(b)), strlen(texts[i]));
		EQ(memcmp(b, texts[i], strlen(texts[i])), 0);
		EQ(stat_of(path).st_size, strlen(texts[i]));
		EQ(stat_of(path).st_mode, S_IFLNK | 0777);
	}
	b[3] = '#';
	EQ(readlink("l1", b, 3), 3); /* as much as fits, without a terminator */
	EQ(memcmp(b, "a/b#", 4), 0);
	FAILS(EINVAL, readlink("l1", b, 0));
	put("file", "x");
	FAILS(EINVAL, readlink("file", b, sizeof(b)));
	FAILS(EINVAL, readlink(".", b, sizeof(b)));
	FAILS(ENOENT, readlink("none", b, sizeof(b)));
	FAILS(ENOENT, readlink("", b, sizeof(b)));
	FAILS(ENOTDIR, readlink("file/x", b, sizeof(b)));
	OK(mkdir("d", 0755));
	OK(symlink("d", "dl"));
	FAILS(EINVAL, readlink("dl/", b, sizeof(b)));
	FAILS(EFAULT, syscall(SYS_readlinkat, AT_FDCWD, "l1", no_memory, 10));
}

static void symlinks_are_followed(void)
{
	char path[16], text[16], here[PATH_MAX];

	OK(mkdir("a", 0755));
	OK(mkdir("a/b", 0755));
	put("a/f", "far");
	put("a/b/f", "deep");
	OK(symlink("a/b", "short"));
	TRUE(has("short/f", "deep"));
	TRUE(has("short/../f", "far")); /* .. is the parent of the link's target */
	OK(chdir("short"));
	OK(getcwd(here, sizeof(here)) ? 0 : -1);
	EQ(strcmp(here + strlen(here) - 4, "/a/b"), 0);
	OK(chdir("../.."));
	OK(symlink(here, "absolute"));
	TRUE(has("absolute/f", "deep"));
	OK(chmod("short", 0700));
	EQ(mode_of("a/b"), 0700);
	EQ(mode_of("short"), 0777);
	put("n0", "end");
	for (int i = 1; i <= 41; i++) {
		snprintf(path, sizeof(path), "n%d", i);
		snprintf(text, sizeof(text), "n%d", i - 1);
		OK(symlink(text, path));
	}
	OK(close((int)OK(open("n40", O_RDONLY))));
	FAILS(ELOOP, open("n41", O_RDONLY));
	FAILS(ELOOP, stat("n41", &(struct stat){ 0 }));
	OK(lstat("n41", &(struct stat){ 0 }));
}

static void mknod_kinds(void)
{
	umask(027);
	OK(mknod("reg", S_IFREG | 0666, 0));
	EQ(stat_of("reg").st_mode, S_IFREG | 0640);
	OK(mknod("plain", 0666, 0));
	EQ(stat_of("plain").st_mode, S_IFREG | 0640);
	OK(mkfifo("fifo", 0666));
	EQ(stat_of("fifo").st_mode, S_IFIFO | 0640);
	OK(mknod("fifo2", S_IFIFO | 0600, 0));
	OK(mknod("sock", S_IFSOCK | 0777, 0));
	EQ(stat_of("sock").st_mode, S_IFSOCK | 0750);
	EQ(stat_of("sock").st_size, 0);
	FAILS(EEXIST, mknod("reg", S_IFREG | 0666, 0));
	FAILS(EEXIST, mkfifo("fifo", 0666));
	FAILS(EPERM, mknod("d", S_IFDIR | 0755, 0));
	FAILS(EINVAL, mknod("l", S_IFLNK | 0777, 0));
	FAILS(ENOENT, mkfifo("none/x", 0600));
	FAILS(ENOTDIR, mkfifo("reg/x", 0600));
	FAILS(ENOENT, mkfifo("new/", 0600));
	FAILS(ENOENT, mkfifo("", 0600));
	OK(unlink("fifo"));
	OK(rename("sock", "sock2"));
	TRUE(S_ISSOCK(stat_of("sock2").st_mode));
}

static void mknod_devices(void)
{
	static const struct {
		unsigned major, minor;
	} rows[] = { { 1, 3 }, { 0, 0 }, { 259, 65537 }, { 4095, 1048575 } };
	char path[16];

	for (size_t i = 0; i < N_OF(rows); i++) {
		dev_t dev = makedev(rows[i].major, rows[i].minor);

		snprintf(path, sizeof(path), "c%zu", i);
		OK(mknod(path, S_IFCHR | 0600, dev));
		EQ(stat_of(path).st_rdev, dev);
		EQ(stat_of(path).st_mode, S_IFCHR | 0600);
		path[0] = 'b';
		OK(mknod(path, S_IFBLK | 0640, dev));
		EQ(stat_of(path).st_rdev, dev);
		EQ(stat_of(path).st_mode, S_IFBLK | 0640);
	}
	OK(chmod(".", 0777));
	AS(USER)
	{
		FAILS(EPERM, mknod("mine", S_IFCHR | 0600, makedev(1, 3)));
		FAILS(EPERM, mknod("mine", S_IFBLK | 0600, makedev(1, 3)));
		OK(mknod("mine", S_IFIFO | 0600, 0));
	}
}

static void fifo_passes(void)
{
	char b[16];
	pid_t p;
	int fd;

	OK(mkfifo("fifo", 0600));
	p = fork();
	if (p == 0) {
		fd = open("fifo", O_WRONLY); /* waits for the reader */
		_exit(write(fd, "through", 7) == 7 ? 0 : 1);
	}
	fd = (int)OK(open("fifo", O_RDONLY));
	EQ(read(fd, b, sizeof(b)), 7);
	EQ(memcmp(b, "through", 7), 0);
	EQ(reap(p), 0);
	EQ(read(fd, b, sizeof(b)), 0);
	EQ(stat_of("fifo").st_size, 0);
}

static void sockets_meet(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "sock" };
	int s = (int)OK(socket(AF_UNIX, SOCK_STREAM, 0)),
	    c = (int)OK(socket(AF_UNIX, SOCK_STREAM, 0));
	char b[8];
	int got;

	OK(bind(s, (void *)&a, sizeof(a)));
	TRUE(S_ISSOCK(stat_of("sock").st_mode));
	FAILS(EADDRINUSE, bind(c, (void *)&a, sizeof(a)));
	FAILS(ECONNREFUSED, connect(c, (void *)&a, sizeof(a)));
	OK(listen(s, 1));
	OK(connect(c, (void *)&a, sizeof(a)));
	got = (int)OK(accept(s, NULL, NULL));
	EQ(write(c, "hi", 2), 2);
	EQ(read(got, b, 8), 2);
	OK(unlink("sock"));
	c = (int)OK(socket(AF_UNIX, SOCK_STREAM, 0));
	FAILS(ENOENT, connect(c, (void *)&a, sizeof(a)));
}

const struct test_group name_groups[] = {
	{ .name = "mkdir_errors", .run = mkdir_errors },
	{ .name = "mkdir_modes", .run = mkdir_modes },
	{ .name = "dir_links", .run = dir_links, .feature = "dir-nlink" },
	{ .name = "rmdir_errors", .run = rmdir_errors },
	{ .name = "unlink_errors", .run = unlink_errors },
	{ .name = "link_errors", .run = link_errors },
	{ .name = "links_are_one_file", .run = links_are_one_file },
	{ .name = "link_max", .run = link_max, .needs = NEEDS_LONG, .feature = "link-max" },
	{ .name = "symlink_errors", .run = symlink_errors },
	{ .name = "readlink_all", .run = readlink_all },
	{ .name = "symlinks_are_followed", .run = symlinks_are_followed },
	{ .name = "mknod_kinds", .run = mknod_kinds },
	{ .name = "mknod_devices", .run = mknod_devices, .needs = NEEDS_ROOT },
	{ .name = "fifo_passes", .run = fifo_passes },
	{ .name = "sockets_meet", .run = sockets_meet },
	{ 0 },
};
