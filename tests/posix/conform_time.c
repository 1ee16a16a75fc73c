/* Which operation changes which times of a file and of its directory, and which operation changes
 * none. */
#include <dirent.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <time.h>

#include "conform.h"

/* The initial state of every case: a directory and its files, all with old times. */
static void scene(void)
{
	static const char *names[] = { "d/f", "d/g", "d/l", "d/fifo", "d/sub", "d", "e/x", "e" };

	OK(mkdir("d", 0755));
	OK(mkdir("e", 0755));
	put("d/f", "content");
	OK(link("d/f", "d/g"));
	put("e/x", "other");
	OK(symlink("f", "d/l"));
	OK(mkfifo("d/fifo", 0644));
	OK(mkdir("d/sub", 0755));
	for (size_t i = 0; i < N_OF(names); i++)
		OK(times_set(names[i], 1000000000, 1000000000));
}

static int fd; /* of d/f, opened before the watch begins */

/* Operations whose return values were checked before; one line each. */
#define OP(name, call) \
	static void name(void) \
	{ \
		OK(call); \
	}
#define NO(name, err, call) \
	static void name(void) \
	{ \
		FAILS(err, call); \
	}

OP(op_write, write(fd, "x", 1))
OP(op_write_nothing, write(fd, "x", 0))
OP(op_pwrite, pwrite(fd, "x", 1, 100000))
OP(op_ftruncate, ftruncate(fd, 3))
OP(op_truncate, truncate("d/f", 3))
OP(op_truncate_up, truncate("d/f", 100))
OP(op_trunc_open, close(open("d/f", O_WRONLY | O_TRUNC)))
OP(op_open, close(open("d/f", O_RDWR)))
OP(op_open_creat, close(open("d/f", O_RDWR | O_CREAT, 0600)))
OP(op_creat, close(open("d/new", O_RDWR | O_CREAT | O_EXCL, 0600)))
OP(op_mkdir, mkdir("d/new", 0755))
OP(op_rmdir, rmdir("d/sub"))
OP(op_symlink, symlink("x", "d/new"))
OP(op_mkfifo, mkfifo("d/new", 0600))
OP(op_link, link("d/f", "d/new"))
OP(op_link_far, link("d/f", "e/new"))
OP(op_unlink, unlink("d/g"))
OP(op_unlink_link, unlink("d/l"))
OP(op_rename, rename("d/f", "d/new"))
OP(op_rename_far, rename("d/f", "e/new"))
OP(op_rename_over, rename("e/x", "d/g"))
OP(op_rename_same, rename("d/f", "d/g"))
OP(op_rename_dir, rename("d/sub", "e/sub"))
OP(op_exchange, renameat2(AT_FDCWD, "d/f", AT_FDCWD, "e/x", RENAME_EXCHANGE))
OP(op_chmod, chmod("d/f", 0600))
OP(op_fchmod, fchmod(fd, 0600))
OP(op_chmod_dir, chmod("d", 0700))
OP(op_chown, chown("d/f", getuid(), getgid()))
OP(op_lchown, lchown("d/l", getuid(), getgid()))
OP(op_stat, stat("d/f", &(struct stat){ 0 }))
OP(op_access, access("d/f", R_OK))
OP(op_chdir, chdir("d") || chdir(".."))
OP(op_fsync, fsync(fd))
OP(op_seek, lseek(fd, 3, SEEK_SET))
OP(op_setxattr, setxattr("d/f", "user.a", "1", 1, 0))
OP(op_getxattr, listxattr("d/f", NULL, 0))
OP(op_allocate, fallocate(fd, 0, 0, 100000))
OP(op_punch, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3))
OP(op_read, pread(fd, (char[8]){ 0 }, 8, 0))
OP(op_readlink, readlink("d/l", (char[8]){ 0 }, 8))
NO(no_unlink, ENOENT, unlink("d/none"))
NO(no_creat, EEXIST, open("d/f", O_RDWR | O_CREAT | O_EXCL, 0600))
NO(no_mkdir, EEXIST, mkdir("d/sub", 0755))
NO(no_rmdir, ENOTEMPTY, rmdir("d"))
NO(no_rename, EISDIR, rename("d/f", "d/sub"))
NO(no_link, EEXIST, link("d/f", "d/g"))
NO(no_truncate, EINVAL, truncate("d/f", -1))
NO(no_chmod, ENOENT, chmod("d/none", 0600))

static void op_utimes_now(void)
{
	OK(utimensat(AT_FDCWD, "d/f", NULL, 0));
}

static void op_utimes_set(void)
{
	OK(times_set("d/f", 1000000000, 1000000000));
}

static void op_utimes_omit(void)
{
	struct timespec t[2] = { { 0, UTIME_OMIT }, { 0, UTIME_OMIT } };

	OK(utimensat(AT_FDCWD, "d/f", t, 0));
}

static void op_readdir(void)
{
	DIR *d = opendir("d");

	while (readdir(d))
		;
	closedir(d);
}

static void op_copy(void)
{
	int from = (int)OK(open("e/x", O_RDONLY));

	EQ(copy_file_range(from, NULL, fd, NULL, 5, 0), 5);
	OK(close(from));
}

static void op_map(void)
{
	char *m = mmap(NULL, 7, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	OK((long)m);
	m[0] = 'M';
	OK(msync(m, 7, MS_SYNC));
	OK(munmap(m, 7));
}

static void op_fifo(void)
{
	int f = (int)OK(open("d/fifo", O_RDWR));

	EQ(write(f, "x", 1), 1);
	EQ(read(f, (char[1]){ 0 }, 1), 1);
	OK(close(f));
}

/* Up to three watched names and the times of each that must change; all others must not. */
static const struct {
	const char *what;
	void (*run)(void);
	struct {
		const char *path, *changes;
	} see[3];
	const char *feature;
} rows[] = {
	{ "write", op_write, { { "d/f", "mc" }, { "d", "" } }, NULL },
	{ "write of nothing", op_write_nothing, { { "d/f", "" } }, NULL },
	{ "pwrite behind the end", op_pwrite, { { "d/f", "mc" } }, NULL },
	{ "ftruncate", op_ftruncate, { { "d/f", "mc" } }, NULL },
	{ "truncate", op_truncate, { { "d/f", "mc" }, { "d", "" } }, NULL },
	{ "truncate up", op_truncate_up, { { "d/f", "mc" } }, NULL },
	{ "open O_TRUNC", op_trunc_open, { { "d/f", "mc" }, { "d", "" } }, NULL },
	{ "open", op_open, { { "d/f", "" }, { "d", "" } }, NULL },
	{ "open O_CREAT of a file", op_open_creat, { { "d/f", "" }, { "d", "" } }, NULL },
	{ "creat", op_creat, { { "d", "mc" }, { "d/f", "" } }, NULL },
	{ "mkdir", op_mkdir, { { "d", "mc" } }, NULL },
	{ "rmdir", op_rmdir, { { "d", "mc" } }, NULL },
	{ "symlink", op_symlink, { { "d", "mc" } }, NULL },
	{ "mkfifo", op_mkfifo, { { "d", "mc" } }, NULL },
	{ "link", op_link, { { "d", "mc" }, { "d/f", "c" } }, NULL },
	{ "link elsewhere", op_link_far, { { "e", "mc" }, { "d", "" }, { "d/f", "c" } }, NULL },
	{ "unlink", op_unlink, { { "d", "mc" }, { "d/f", "c" } }, NULL },
	{ "unlink of a link", op_unlink_link, { { "d", "mc" }, { "d/f", "" } }, NULL },
	{ "rename", op_rename, { { "d", "mc" }, { "d/f", "c" } }, NULL },
	{ "rename elsewhere",
	  op_rename_far,
	  { { "d", "mc" }, { "e", "mc" }, { "d/f", "c" } },
	  NULL },
	{ "rename over", op_rename_over, { { "d", "mc" }, { "e", "mc" }, { "d/f", "c" } }, NULL },
	{ "rename to itself", op_rename_same, { { "d", "" }, { "d/f", "" } }, NULL },
	{ "rename of a directory",
	  op_rename_dir,
	  { { "d", "mc" }, { "e", "mc" }, { "d/sub", "c" } },
	  NULL },
	{ "exchange", op_exchange, { { "d", "mc" }, { "e", "mc" }, { "d/f", "c" } }, NULL },
	{ "chmod", op_chmod, { { "d/f", "c" }, { "d", "" } }, NULL },
	{ "fchmod", op_fchmod, { { "d/f", "c" } }, NULL },
	{ "chmod of a directory", op_chmod_dir, { { "d", "c" }, { "d/f", "" } }, NULL },
	{ "chown", op_chown, { { "d/f", "c" }, { "d", "" } }, NULL },
	{ "lchown", op_lchown, { { "d/l", "c" }, { "d/f", "" } }, NULL },
	{ "stat", op_stat, { { "d/f", "" }, { "d", "" } }, NULL },
	{ "access", op_access, { { "d/f", "" } }, NULL },
	{ "chdir", op_chdir, { { "d", "" } }, NULL },
	{ "fsync", op_fsync, { { "d/f", "" } }, NULL },
	{ "lseek", op_seek, { { "d/f", "" } }, NULL },
	{ "utimensat now", op_utimes_now, { { "d/f", "amc" } }, NULL },
	{ "utimensat", op_utimes_set, { { "d/f", "c" } }, NULL },
	{ "utimensat of nothing", op_utimes_omit, { { "d/f", "" } }, NULL },
	{ "setxattr", op_setxattr, { { "d/f", "c" }, { "d", "" } }, "xattr" },
	{ "listxattr", op_getxattr, { { "d/f", "" } }, "xattr" },
	{ "fallocate", op_allocate, { { "d/f", "mc" } }, "fallocate" },
	{ "punch", op_punch, { { "d/f", "mc" } }, "punch" },
	{ "copy_file_range", op_copy, { { "d/f", "mc" }, { "d", "" } }, NULL },
	{ "write to a mapping", op_map, { { "d/f", "amc" } }, "mmap-shared" },
	{ "read", op_read, { { "d/f", "a" }, { "d", "" } }, "atime" },
	{ "readlink", op_readlink, { { "d/l", "a" }, { "d", "" } }, "atime" },
	{ "readdir", op_readdir, { { "d", "a" } }, "atime" },
	{ "unlink of no file", no_unlink, { { "d", "" } }, NULL },
	{ "creat of a file", no_creat, { { "d", "" }, { "d/f", "" } }, NULL },
	{ "mkdir of a directory", no_mkdir, { { "d", "" }, { "d/sub", "" } }, NULL },
	{ "rmdir of a full one", no_rmdir, { { "d", "" }, { ".", "" } }, NULL },
	{ "rename onto a directory", no_rename, { { "d", "" }, { "d/f", "" } }, NULL },
	{ "link onto a file", no_link, { { "d", "" }, { "d/f", "" } }, NULL },
	{ "truncate to less than nothing", no_truncate, { { "d/f", "" } }, NULL },
	{ "chmod of no file", no_chmod, { { "d", "" } }, NULL },
	{ "a FIFO", op_fifo, { { "d", "" } }, NULL },
};

static void times_change(void)
{
	char dir[16];

	for (size_t i = 0; i < N_OF(rows); i++) {
		if (rows[i].feature && !feature(rows[i].feature))
			continue;
		snprintf(dir, sizeof(dir), "t%zu", i);
		OK(mkdir(dir, 0755));
		OK(chdir(dir));
		scene();
		fd = (int)OK(open("d/f", O_RDWR));
		for (size_t k = 0; k < 3 && rows[i].see[k].path; k++)
			watch(rows[i].see[k].path, rows[i].see[k].changes);
		tick();
		rows[i].run();
		seen(rows[i].what);
		OK(close(fd));
		OK(chdir(".."));
	}
}

/* All times of a new file are current, by the same clock as all other times in this file system. */
static void times_of_new(void)
{
	static const char *names[] = { "new/f", "new/d", "new/l", "new/p" };
	struct stat before, st;

	OK(mkdir("new", 0755));
	before = stat_of("new");
	tick();
	put("new/f", "");
	OK(mkdir("new/d", 0755));
	OK(symlink("x", "new/l"));
	OK(mkfifo("new/p", 0600));
	for (size_t i = 0; i < N_OF(names); i++) {
		st = stat_of(names[i]);
		TRUE(st.st_mtim.tv_sec >= before.st_mtim.tv_sec);
		TRUE(st.st_ctim.tv_sec - before.st_ctim.tv_sec < 60);
		EQ(st.st_atim.tv_sec / 60, st.st_mtim.tv_sec / 60);
		TRUE(st.st_atim.tv_sec >= before.st_mtim.tv_sec);
	}
	st = stat_of("new/f");
	TRUE(labs(time(NULL) - st.st_mtim.tv_sec) < 60);
}

/* relatime: a second read soon after the first does not change atime. */
static void times_relatime(void)
{
	int f;

	put("f", "content");
	OK(times_set("f", 1000000000, 1000000001));
	f = (int)OK(open("f", O_RDONLY));
	watch("f", "a");
	tick();
	EQ(pread(f, (char[4]){ 0 }, 4, 0), 4);
	seen("first read");
	watch("f", "");
	tick();
	EQ(pread(f, (char[4]){ 0 }, 4, 0), 4);
	seen("second read");
	OK(close(f));
	OK(times_set("f", 1000000000, 1000000001));
	f = (int)OK(open("f", O_RDONLY | O_NOATIME));
	watch("f", "");
	EQ(pread(f, (char[4]){ 0 }, 4, 0), 4);
	seen("read O_NOATIME");
}

/* The times that a write has set stay the same after a close and a new stat. */
static void times_stay(void)
{
	struct stat a, b;
	int f = (int)OK(open("f", O_RDWR | O_CREAT, 0644));
	struct timespec t[2] = { { 1234, 5678 }, { 8765, 4321 } };

	EQ(write(f, "x", 1), 1);
	OK(fstat(f, &a));
	tick();
	OK(close(f));
	b = stat_of("f");
	EQ(b.st_mtim.tv_sec, a.st_mtim.tv_sec);
	EQ(b.st_mtim.tv_nsec, a.st_mtim.tv_nsec);
	f = (int)OK(open("f", O_RDWR));
	EQ(write(f, "yz", 2), 2);
	OK(futimens(f, t)); /* explicitly set times win over an earlier write */
	EQ(stat_of("f").st_mtim.tv_sec, 8765);
	OK(fsync(f));
	OK(close(f));
	b = stat_of("f");
	EQ(b.st_mtim.tv_sec, 8765);
	EQ(b.st_mtim.tv_nsec, 4321);
	EQ(b.st_size, 2);
}

const struct test_group time_groups[] = {
	{ .name = "times_change", .run = times_change },
	{ .name = "times_of_new", .run = times_of_new },
	{ .name = "times_relatime", .run = times_relatime, .feature = "atime" },
	{ .name = "times_stay", .run = times_stay },
	{ 0 },
};
