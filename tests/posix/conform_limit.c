/* The result of every operation for a path that does not exist, is a loop of links, leads through a
 * file, or is too long; and limits of names, paths and depth. */
#include <dirent.h>
#include <limits.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "conform.h"

/* An operation on one path. Operations that need another path use "file", which exists. */
#define OP(name, call) \
	static long name(const char *p) \
	{ \
		return (long)(call); \
	}
OP(do_open, open(p, O_RDONLY))
OP(do_open_rw, open(p, O_RDWR))
OP(do_creat, open(p, O_RDWR | O_CREAT, 0644))
OP(do_excl, open(p, O_RDWR | O_CREAT | O_EXCL, 0644))
OP(do_opath, open(p, O_PATH))
OP(do_truncate, truncate(p, 0))
OP(do_stat, stat(p, &(struct stat){ 0 }))
OP(do_lstat, lstat(p, &(struct stat){ 0 }))
OP(do_statx, statx(AT_FDCWD, p, 0, STATX_BASIC_STATS, &(struct statx){ 0 }))
OP(do_statvfs, statvfs(p, &(struct statvfs){ 0 }))
OP(do_access, access(p, F_OK))
OP(do_chmod, chmod(p, 0644))
OP(do_chown, chown(p, (uid_t)-1, (gid_t)-1))
OP(do_lchown, lchown(p, (uid_t)-1, (gid_t)-1))
OP(do_utimes, utimensat(AT_FDCWD, p, NULL, 0))
OP(do_lutimes, utimensat(AT_FDCWD, p, NULL, AT_SYMLINK_NOFOLLOW))
OP(do_mkdir, mkdir(p, 0755))
OP(do_rmdir, rmdir(p))
OP(do_unlink, unlink(p))
OP(do_mknod, mknod(p, S_IFREG | 0644, 0))
OP(do_mkfifo, mkfifo(p, 0644))
OP(do_symlink, symlink("x", p))
OP(do_readlink, readlink(p, (char[8]){ 0 }, 8))
OP(do_link_from, link(p, "never"))
OP(do_link_to, link("file", p))
OP(do_rename_from, rename(p, "never"))
OP(do_rename_to, rename("file", p))
OP(do_exchange, renameat2(AT_FDCWD, p, AT_FDCWD, "file", RENAME_EXCHANGE))
OP(do_setxattr, setxattr(p, "user.a", "1", 1, 0))
OP(do_getxattr, getxattr(p, "user.a", NULL, 0))
OP(do_listxattr, listxattr(p, NULL, 0))
OP(do_removexattr, removexattr(p, "user.a"))
OP(do_chdir, chdir(p))
OP(do_opendir, opendir(p) ? 0 : -1)
OP(do_execv, execv(p, (char *[]){ NULL }))

static const struct {
	const char *name;
	long (*run)(const char *path);
	bool makes; /* the last name need not exist */
} ops[] = {
	{ "open", do_open, false },	      { "open for both", do_open_rw, false },
	{ "open O_CREAT", do_creat, true },   { "open O_EXCL", do_excl, true },
	{ "open O_PATH", do_opath, false },   { "truncate", do_truncate, false },
	{ "stat", do_stat, false },	      { "lstat", do_lstat, false },
	{ "statx", do_statx, false },	      { "statvfs", do_statvfs, false },
	{ "access", do_access, false },	      { "chmod", do_chmod, false },
	{ "chown", do_chown, false },	      { "lchown", do_lchown, false },
	{ "utimensat", do_utimes, false },    { "utimensat of a link", do_lutimes, false },
	{ "mkdir", do_mkdir, true },	      { "rmdir", do_rmdir, false },
	{ "unlink", do_unlink, false },	      { "mknod", do_mknod, true },
	{ "mkfifo", do_mkfifo, true },	      { "symlink", do_symlink, true },
	{ "readlink", do_readlink, false },   { "link from", do_link_from, false },
	{ "link to", do_link_to, true },      { "rename from", do_rename_from, false },
	{ "rename to", do_rename_to, true },  { "exchange", do_exchange, false },
	{ "setxattr", do_setxattr, false },   { "getxattr", do_getxattr, false },
	{ "listxattr", do_listxattr, false }, { "removexattr", do_removexattr, false },
	{ "chdir", do_chdir, false },	      { "opendir", do_opendir, false },
	{ "execve", do_execv, false },
};

static char long_name[NAME_MAX + 2], long_path[PATH_MAX + 1], nested[NAME_MAX + 16];

static void every_op(const char *path, const char *what, int want)
{
	for (size_t i = 0; i < N_OF(ops); i++)
		expect(want, ops[i].run(path), "%s of %s", ops[i].name, what);
}

static void path_errors(void)
{
	put("file", "x");
	OK(mkdir("dir", 0755));
	OK(symlink("loop", "loop"));
	OK(symlink("nowhere", "dangling"));
	memset(long_name, 'n', NAME_MAX + 1);
	memset(long_path, '/', PATH_MAX);
	memcpy(long_path, "dir", 3);
	snprintf(nested, sizeof(nested), "%s/x", long_name);
	every_op("none/x", "a name below nothing", ENOENT);
	every_op("dangling/x", "a name below a dangling link", ENOENT);
	every_op("file/x", "a name below a file", ENOTDIR);
	every_op("file/../dir/x", "a path through a file", ENOTDIR);
	every_op("loop/x", "a name below a loop", ELOOP);
	every_op(long_name, "a name of 256 bytes", ENAMETOOLONG);
	every_op(nested, "a name below one of 256 bytes", ENAMETOOLONG);
	every_op(long_path, "a path of 4096 bytes", ENAMETOOLONG);
	every_op("", "an empty path", ENOENT);
	for (size_t i = 0; i < N_OF(ops); i++)
		if (!ops[i].makes)
			expect(ENOENT, ops[i].run("none"), "%s of nothing", ops[i].name);
	TRUE(has("file", "x"));
	FAILS(ENOENT, lstat("never", &(struct stat){ 0 }));
}

static void path_unsearchable(void)
{
	OK(mkdir("closed", 0700));
	put("closed/x", "x");
	put("file", "x");
	OK(chmod(".", 0777));
	AS(USER)
	every_op("closed/x", "a name below a closed directory", EACCES);
	OK(chmod("closed", 0766)); /* r and w do not permit to search */
	AS(USER)
	every_op("closed/x", "a name below a directory without x", EACCES);
	TRUE(has("closed/x", "x") && has("file", "x"));
}

static void names_of_255(void)
{
	char name[NAME_MAX + 1] = "", second[NAME_MAX + 1] = "";

	memset(name, 'a', NAME_MAX);
	memset(second, 'b', NAME_MAX);
	put(name, "longest");
	TRUE(has(name, "longest"));
	OK(link(name, second));
	OK(unlink(name));
	OK(rename(second, name));
	OK(symlink(name, second));
	TRUE(has(second, "longest"));
	OK(unlink(second));
	OK(mkdir(second, 0755));
	OK(rmdir(second));
	OK(mkfifo(second, 0600));
	OK(unlink(second));
	OK(unlink(name));
}

static void paths_of_4095(void)
{
	char path[PATH_MAX + 1];

	OK(mkdir("d", 0755));
	put("d/f", "x");
	memset(path, '/', sizeof(path));
	memcpy(path, "d", 1);
	path[PATH_MAX - 2] = 'f';
	path[PATH_MAX - 1] = 0; /* 4095 bytes and the terminator: the longest path */
	TRUE(has(path, "x"));
	path[PATH_MAX - 1] = 'f';
	path[PATH_MAX] = 0;
	FAILS(ENAMETOOLONG, open(path, O_RDONLY));
}

/* A tree that is deeper than the longest path. */
static void deep_trees(void)
{
	char name[NAME_MAX + 1] = "", here[PATH_MAX * 4];
	int depth = 0;

	memset(name, 'd', 200);
	for (; depth < 40; depth++)
		if (mkdir(name, 0755) || chdir(name))
			break;
	EQ(depth, 40);
	put("f", "deep");
	TRUE(has("f", "deep"));
	FAILS(ENAMETOOLONG, syscall(SYS_getcwd, here, sizeof(here)));
	OK(unlink("f"));
	for (; depth > 0; depth--)
		if (chdir("..") || rmdir(name))
			break;
	EQ(depth, 0);
}

static void deep_dots(void)
{
	char path[2048] = "";

	OK(mkdir("d", 0755));
	put("f", "x");
	for (int i = 0; i < 200; i++)
		strcat(path, "d/./../");
	strcat(path, "f");
	TRUE(has(path, "x"));
}

const struct test_group limit_groups[] = {
	{ .name = "path_errors", .run = path_errors },
	{ .name = "path_unsearchable", .run = path_unsearchable, .needs = NEEDS_ROOT },
	{ .name = "names_of_255", .run = names_of_255 },
	{ .name = "paths_of_4095", .run = paths_of_4095 },
	{ .name = "deep_trees", .run = deep_trees },
	{ .name = "deep_dots", .run = deep_dots },
	{ 0 },
};
