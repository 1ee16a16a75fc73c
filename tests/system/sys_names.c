/* Hard links, symbolic links, extended attributes and statfs through the public interface, with
 * servers and embedded; they survive kill -9. */
#include <pthread.h>
#include <sys/xattr.h>

#include "cluster.h"

static struct sheaf *fs;

static void check_link(const char *path, const char *target)
{
	char b[5000];
	ssize_t n = sheaf_readlink(fs, path, b, sizeof(b));

	CHECK_EQ(n, (ssize_t)strlen(target));
	CHECK(!memcmp(b, target, strlen(target)));
}

/* ---- hard links ---- */

static void all_names_of_a_file_are_the_file(void)
{
	const char *d = fresh_dir(fs);
	const char *a = path_in(d, "a"), *b = path_in(d, "b");
	struct stat before, st;
	struct sheaf_file *f;

	make_file(fs, a, 200000, 1);
	before = stat_of(fs, a);
	CHECK_EQ(sheaf_link(fs, a, b), 0);
	st = stat_of(fs, b);
	CHECK_EQ(st.st_ino, before.st_ino);
	CHECK_EQ(st.st_nlink, 2);
	CHECK(st.st_ctim.tv_sec > before.st_ctim.tv_sec ||
	      st.st_ctim.tv_nsec > before.st_ctim.tv_nsec);
	CHECK_EQ(sheaf_truncate(fs, b, 100000), 0);
	check_file(fs, a, 100000, 1);
	CHECK_EQ(sheaf_link(fs, a, b), -EEXIST);
	CHECK_EQ(sheaf_link(fs, path_in(d, "none"), path_in(d, "c")), -ENOENT);
	CHECK_EQ(sheaf_link(fs, d, path_in(d, "c")), -EPERM);
	CHECK_EQ(sheaf_link(fs, a, path_in(d, "none/c")), -ENOENT);
	CHECK_EQ(sheaf_unlink(fs, a), 0);
	CHECK_EQ(stat_of(fs, b).st_nlink, 1);
	check_file(fs, b, 100000, 1);
	f = open_file(fs, b, O_RDONLY);
	CHECK_EQ(sheaf_unlink(fs, b), 0);
	CHECK_EQ(sheaf_fstat(f, &st), 0);
	CHECK_EQ(st.st_nlink, 0);
	CHECK_EQ(sheaf_h_link(fs, NULL, sheaf_file_handle(f), sheaf_root(fs), "back", NULL),
		 -ENOENT);
	CHECK_EQ(sheaf_close(f), 0);
}

static void a_link_follows_the_permissions_of_its_directory(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_cred c = { .uid = 1234, .gid = 1234 };
	struct sheaf_handle dir, file;

	if (geteuid() != 0)
		return;
	make_file(fs, path_in(d, "f"), 10, 1);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), d + 1, &dir, NULL), 0);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, dir, "f", &file, NULL), 0);
	CHECK_EQ(sheaf_h_link(fs, &c, file, dir, "g", NULL), -EACCES);
	CHECK_EQ(sheaf_h_symlink(fs, &c, "f", dir, "g", NULL, NULL), -EACCES);
	CHECK_EQ(sheaf_chmod(fs, d, 0777), 0);
	CHECK_EQ(sheaf_h_link(fs, &c, file, dir, "g", NULL), 0);
	CHECK_EQ(sheaf_h_symlink(fs, &c, "f", dir, "s", NULL, NULL), 0);
	CHECK_EQ(stat_of(fs, path_in(d, "s")).st_uid, 1234);
}

static void a_rename_does_what_its_flags_say(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_handle dir;
	uint64_t x, y;

	make_file(fs, path_in(d, "x"), 10, 1);
	make_file(fs, path_in(d, "y"), 20, 2);
	x = stat_of(fs, path_in(d, "x")).st_ino;
	y = stat_of(fs, path_in(d, "y")).st_ino;
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), d + 1, &dir, NULL), 0);
	CHECK_EQ(sheaf_h_rename(fs, NULL, dir, "x", dir, "y", RENAME_NOREPLACE), -EEXIST);
	CHECK_EQ(sheaf_h_rename(fs, NULL, dir, "x", dir, "y", RENAME_EXCHANGE), 0);
	CHECK_EQ(stat_of(fs, path_in(d, "x")).st_ino, y);
	CHECK_EQ(stat_of(fs, path_in(d, "y")).st_ino, x);
	CHECK_EQ(sheaf_h_rename(fs, NULL, dir, "x", dir, "z", RENAME_EXCHANGE), -ENOENT);
	CHECK_EQ(sheaf_h_rename(fs, NULL, dir, "x", dir, "z", RENAME_EXCHANGE | RENAME_NOREPLACE),
		 -EINVAL);
	CHECK_EQ(sheaf_h_rename(fs, NULL, dir, "x", dir, "z", 8), -EINVAL);
	CHECK_EQ(stat_of(fs, path_in(d, "x")).st_size, 20);
}

/* ---- symbolic links ---- */

static void symbolic_links_lead_to_what_they_say(void)
{
	const char *d = fresh_dir(fs);
	char target[64], small[3];
	struct sheaf_handle h, dir;
	struct stat st;

	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "sub"), 0755), 0);
	make_file(fs, path_in(d, "sub/f"), 5000, 3);
	snprintf(target, sizeof(target), "%s/sub", d);
	CHECK_EQ(sheaf_symlink(fs, "sub/f", path_in(d, "rel")), 0);
	CHECK_EQ(sheaf_symlink(fs, target, path_in(d, "abs")), 0);
	CHECK_EQ(sheaf_symlink(fs, "../abs/f", path_in(d, "sub/up")), 0);
	check_file(fs, path_in(d, "rel"), 5000, 3);
	check_file(fs, path_in(d, "abs/f"), 5000, 3);
	check_file(fs, path_in(d, "sub/up"), 5000, 3);
	check_file(fs, path_in(d, "abs/up"), 5000, 3);
	check_link(path_in(d, "rel"), "sub/f");
	check_link(path_in(d, "abs"), target);
	CHECK_EQ(sheaf_readlink(fs, path_in(d, "rel"), small, 3), 3);
	CHECK(!memcmp(small, "sub", 3));
	CHECK_EQ(sheaf_readlink(fs, path_in(d, "rel"), small, 0), -EINVAL);
	CHECK_EQ(sheaf_readlink(fs, path_in(d, "sub"), small, 3), -EINVAL);
	st = stat_of(fs, path_in(d, "rel"));
	CHECK(S_ISLNK(st.st_mode));
	CHECK_EQ(st.st_mode & 07777, 0777);
	CHECK_EQ(st.st_size, 5);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "rel"), &st), 0);
	CHECK(S_ISREG(st.st_mode));
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), d + 1, &dir, NULL), 0);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, dir, "rel", &h, &st), 0);
	CHECK(S_ISLNK(st.st_mode));
	CHECK_EQ(sheaf_h_readlink(fs, NULL, h, target, sizeof(target)), 5);
	CHECK_EQ(sheaf_chmod(fs, path_in(d, "rel"), 0640), 0); /* changes the target */
	CHECK_EQ(stat_of(fs, path_in(d, "sub/f")).st_mode & 07777, 0640);
	CHECK_EQ(sheaf_truncate(fs, path_in(d, "abs/up"), 100), 0);
	check_file(fs, path_in(d, "rel"), 100, 3);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "rel"), path_in(d, "moved")), 0);
	check_link(path_in(d, "moved"), "sub/f");
	/* links the symbolic link, not its target */
	CHECK_EQ(sheaf_link(fs, path_in(d, "moved"), path_in(d, "again")), 0);
	CHECK_EQ(stat_of(fs, path_in(d, "again")).st_nlink, 2);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "moved")), 0);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "again")), 0);
	CHECK_EQ(stat_of(fs, path_in(d, "sub/f")).st_nlink, 1);
	CHECK_EQ(sheaf_rmdir(fs, path_in(d, "abs")), -ENOTDIR);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "abs")), 0);
}

static void opens_follow_as_open_does(void)
{
	const char *d = fresh_dir(fs);
	const char *link = path_in(d, "link");
	struct sheaf_file *f;
	struct stat st;

	CHECK_EQ(sheaf_symlink(fs, "target", link), 0);
	CHECK_EQ(open_error(fs, link, O_RDWR), -ENOENT);
	CHECK_EQ(open_error(fs, link, O_RDWR | O_CREAT | O_EXCL), -EEXIST);
	CHECK_EQ(open_error(fs, link, O_RDWR | O_NOFOLLOW), -ELOOP);
	CHECK_EQ(open_error(fs, link, O_RDWR | O_CREAT | O_NOFOLLOW), -ELOOP);
	CHECK_EQ(sheaf_lstat(fs, path_in(d, "target"), &st), -ENOENT);
	f = open_file(fs, link, O_RDWR | O_CREAT); /* creates the target */
	CHECK_EQ(sheaf_pwrite(f, "abc", 3, 0), 3);
	CHECK_EQ(sheaf_close(f), 0);
	CHECK_EQ(stat_of(fs, path_in(d, "target")).st_size, 3);
	CHECK_EQ(open_error(fs, link, O_RDWR | O_TRUNC), 0);
	CHECK_EQ(stat_of(fs, path_in(d, "target")).st_size, 0);
	CHECK(S_ISLNK(stat_of(fs, link).st_mode));
	CHECK_EQ(sheaf_symlink(fs, "nowhere/x", path_in(d, "lost")), 0);
	CHECK_EQ(open_error(fs, path_in(d, "lost"), O_RDWR | O_CREAT), -ENOENT);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "lost"), 0755), -EEXIST);
	CHECK_EQ(sheaf_symlink(fs, ".", path_in(d, "here")), 0);
	CHECK_EQ(open_error(fs, path_in(d, "here"), O_RDONLY | O_DIRECTORY), 0);
	CHECK_EQ(open_error(fs, path_in(d, "here"), O_RDONLY | O_DIRECTORY | O_NOFOLLOW), -ENOTDIR);
	CHECK_EQ(open_error(fs, path_in(d, "here/here/here/target"), O_RDONLY), 0);
}

static void circles_are_an_error(void)
{
	const char *d = fresh_dir(fs);
	char longest[5000];
	struct stat st;

	CHECK_EQ(sheaf_symlink(fs, "b", path_in(d, "a")), 0);
	CHECK_EQ(sheaf_symlink(fs, "a", path_in(d, "b")), 0);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "a"), &st), -ELOOP);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "a/x"), &st), -ELOOP);
	CHECK_EQ(open_error(fs, path_in(d, "a"), O_RDWR | O_CREAT), -ELOOP);
	CHECK_EQ(sheaf_lstat(fs, path_in(d, "a"), &st), 0);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "a")), 0);
	memset(longest, 'x', sizeof(longest));
	longest[4096] = 0;
	CHECK_EQ(sheaf_symlink(fs, longest, path_in(d, "long")), -ENAMETOOLONG);
	longest[4095] = 0;
	CHECK_EQ(sheaf_symlink(fs, longest, path_in(d, "long")), 0);
	check_link(path_in(d, "long"), longest);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "long"), &st), -ENAMETOOLONG);
	CHECK_EQ(sheaf_symlink(fs, "", path_in(d, "none")), -ENOENT);
}

/* A name with a '/' at its end is, or becomes, the name of a directory. */
static void a_slash_behind_a_name_asks_for_a_directory(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_handle dir;
	struct stat st;

	make_file(fs, path_in(d, "f"), 10, 1);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "f/")), -ENOTDIR);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "none/")), -ENOENT);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "f/"), path_in(d, "g")), -ENOTDIR);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "f"), path_in(d, "g/")), -ENOTDIR);
	CHECK_EQ(open_error(fs, path_in(d, "new/"), O_RDWR | O_CREAT), -EISDIR);
	CHECK_EQ(open_error(fs, path_in(d, "f/"), O_RDWR | O_CREAT), -EISDIR);
	CHECK_EQ(open_error(fs, path_in(d, "f/"), O_RDONLY), -ENOTDIR);
	CHECK_EQ(sheaf_stat(fs, path_in(d, "f/"), &st), -ENOTDIR);
	CHECK_EQ(sheaf_link(fs, path_in(d, "f"), path_in(d, "g/")), -ENOENT);
	CHECK_EQ(sheaf_symlink(fs, "f", path_in(d, "g/")), -ENOENT);
	CHECK_EQ(sheaf_mknod(fs, path_in(d, "g/"), S_IFIFO | 0600, 0), -ENOENT);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "f/"), 0755), -EEXIST);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "a/"), 0755), 0);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "a/"), path_in(d, "b//")), 0);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "b"), path_in(d, "f/")), -ENOTDIR);
	CHECK_EQ(sheaf_rename(fs, path_in(d, "f"), path_in(d, "b/")), -ENOTDIR);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "b/")), -EISDIR);
	CHECK_EQ(sheaf_rmdir(fs, path_in(d, "f/")), -ENOTDIR);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), d + 1, &dir, NULL), 0);
	CHECK_EQ(sheaf_h_rename(fs, NULL, dir, "b", dir, "f/", RENAME_EXCHANGE), -ENOTDIR);
	CHECK_EQ(sheaf_h_rename(fs, NULL, dir, "b/", dir, "f", RENAME_EXCHANGE), 0);
	CHECK(S_ISDIR(stat_of(fs, path_in(d, "f")).st_mode));
	CHECK_EQ(sheaf_symlink(fs, "f", path_in(d, "to_dir")),
		 0); /* followed when a '/' is appended */
	CHECK_EQ(sheaf_symlink(fs, "b", path_in(d, "to_file")), 0);
	CHECK_EQ(sheaf_symlink(fs, "made", path_in(d, "to_none")), 0);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "to_file/")), -ENOTDIR);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "to_dir/")), -EISDIR);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "to_none/"), 0755), 0);
	CHECK(S_ISDIR(stat_of(fs, path_in(d, "made")).st_mode));
	CHECK_EQ(sheaf_rename(fs, path_in(d, "to_dir/"), path_in(d, "moved")), 0);
	CHECK(S_ISLNK(stat_of(fs, path_in(d, "to_dir")).st_mode));
	CHECK_EQ(sheaf_rmdir(fs, path_in(d, "moved/")), 0);
	CHECK_EQ(stat_of(fs, path_in(d, "b")).st_size, 10);
}

static void listings_tell_links_apart(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_dirent e;
	struct sheaf_dir *dd;
	int links = 0, n = 0;

	make_file(fs, path_in(d, "f"), 1, 1);
	CHECK_EQ(sheaf_symlink(fs, "f", path_in(d, "s")), 0);
	CHECK_EQ(sheaf_link(fs, path_in(d, "f"), path_in(d, "h")), 0);
	CHECK_EQ(sheaf_symlink(fs, d, "/to_dir"), 0);
	CHECK_EQ(sheaf_opendir(fs, "/to_dir", &dd), 0);
	while (sheaf_readdir(dd, &e) > 0) {
		links += S_ISLNK(e.type);
		n++;
	}
	CHECK_EQ(n, 3);
	CHECK_EQ(links, 1);
	sheaf_closedir(dd);
	CHECK_EQ(sheaf_unlink(fs, "/to_dir"), 0);
}

/* ---- extended attributes ---- */

static void listings_come_with_attributes(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_file *writing;
	struct sheaf_dirent e;
	struct sheaf_dir *dir;
	struct stat st, alone;
	const int n_files = scaled(1500);
	char name[16];
	int n = 0;

	for (int i = 0; i < n_files; i++) { /* several READDIR pages */
		snprintf(name, sizeof(name), "f%d", i);
		make_file(fs, path_in(d, name), (size_t)(i % 7), 1);
	}
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "dir"), 0700), 0); /* may be on another server */
	writing = open_file(fs, path_in(d, "writing"), O_CREAT | O_WRONLY);
	CHECK_EQ(sheaf_pwrite(writing, "abc", 3, 0), 3); /* its size is not recorded yet */
	CHECK_EQ(sheaf_opendir(fs, d, &dir), 0);
	while (sheaf_readdir_stat(dir, &e, &st) == 1) {
		CHECK_EQ(sheaf_lstat(fs, path_in(d, e.name), &alone), 0);
		CHECK(st.st_ino == alone.st_ino && st.st_size == alone.st_size &&
		      st.st_mode == alone.st_mode && st.st_nlink == alone.st_nlink &&
		      st.st_mtim.tv_nsec == alone.st_mtim.tv_nsec);
		n++;
	}
	CHECK_EQ(n, n_files + 2);
	sheaf_closedir(dir);
	CHECK_EQ(sheaf_close(writing), 0);
}

/* Without x on a directory, a listing has names and types only, as on any file system. */
static void a_directory_that_may_not_be_passed_lists_names_only(void)
{
	const char *d = fresh_dir(fs);
	struct sheaf_cred c = { .uid = 1234, .gid = 1234 };
	struct sheaf_dirent e[4];
	struct sheaf_handle dir;
	struct stat st[4];

	make_file(fs, path_in(d, "f"), 10, 1);
	CHECK_EQ(sheaf_mkdir(fs, path_in(d, "sub"), 0755), 0); /* may be on another server */
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), d + 1, &dir, NULL), 0);
	CHECK_EQ(sheaf_chmod(fs, d, 0744), 0);
	CHECK_EQ(sheaf_h_readdir_stat(fs, &c, dir, 0, e, st, 4), 2);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(st[i].st_mode, e[i].type);
		CHECK_EQ(st[i].st_ino, e[i].ino);
		CHECK_EQ(st[i].st_nlink + st[i].st_size + st[i].st_mtim.tv_sec, 0);
	}
	CHECK_EQ(sheaf_h_readdir(fs, &c, dir, 0, e, 4), 2);
	CHECK_EQ(sheaf_h_lookup(fs, &c, dir, "f", NULL, st), -EACCES);
	CHECK_EQ(sheaf_chmod(fs, d, 0755), 0);
	CHECK_EQ(sheaf_h_readdir_stat(fs, &c, dir, 0, e, st, 4), 2);
	CHECK(st[0].st_nlink && st[1].st_nlink);
	CHECK_EQ(st[strcmp(e[0].name, "f") != 0].st_size, 10);
	CHECK_EQ(sheaf_chmod(fs, d, 0711), 0);
	CHECK_EQ(sheaf_h_readdir_stat(fs, &c, dir, 0, e, st, 4), -EACCES);
}

static void attributes_come_back_as_they_were_set(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	static char big[65536], b[65536];
	struct stat before, st;

	make_file(fs, p, 10, 1);
	before = stat_of(fs, p);
	CHECK_EQ(sheaf_listxattr(fs, p, NULL, 0), 0);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.a", "v\0w", 3, 0), 0);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.empty", NULL, 0, 0), 0);
	CHECK_EQ(sheaf_getxattr(fs, p, "user.a", NULL, 0), 3);
	CHECK_EQ(sheaf_getxattr(fs, p, "user.a", b, 2), -ERANGE);
	CHECK_EQ(sheaf_getxattr(fs, p, "user.a", b, 3), 3);
	CHECK(!memcmp(b, "v\0w", 3));
	CHECK_EQ(sheaf_getxattr(fs, p, "user.empty", b, 3), 0);
	CHECK_EQ(sheaf_listxattr(fs, p, NULL, 0), 18);
	CHECK_EQ(sheaf_listxattr(fs, p, b, 17), -ERANGE);
	CHECK_EQ(sheaf_listxattr(fs, p, b, sizeof(b)), 18);
	CHECK(!memcmp(b, "user.a\0user.empty", 18));
	st = stat_of(fs, p);
	CHECK(st.st_ctim.tv_sec > before.st_ctim.tv_sec ||
	      st.st_ctim.tv_nsec > before.st_ctim.tv_nsec);
	CHECK_EQ(st.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 7);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.big", big, sizeof(big), 0), 0);
	CHECK_EQ(sheaf_getxattr(fs, p, "user.big", b, sizeof(b)), 65536);
	CHECK(!memcmp(b, big, sizeof(big)));
	CHECK_EQ(sheaf_removexattr(fs, p, "user.big"), 0);
	CHECK_EQ(sheaf_removexattr(fs, p, "user.big"), -ENODATA);
	CHECK_EQ(sheaf_getxattr(fs, p, "user.big", b, sizeof(b)), -ENODATA);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.a", "x", 1, XATTR_CREATE), -EEXIST);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.n", "x", 1, XATTR_REPLACE), -ENODATA);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.n", "x", 1, XATTR_CREATE), 0);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.n", "y", 1, XATTR_REPLACE), 0);
}

static void attributes_have_limits(void)
{
	const char *d = fresh_dir(fs);
	const char *p = path_in(d, "f");
	static char big[65537];
	char name[300];
	int n = 0;

	make_file(fs, p, 10, 1);
	memset(name, 'n', sizeof(name));
	memcpy(name, "user.", 5);
	name[256] = 0;
	CHECK_EQ(sheaf_setxattr(fs, p, name, "x", 1, 0), -ERANGE);
	CHECK_EQ(sheaf_getxattr(fs, p, name, big, 1), -ERANGE);
	name[255] = 0;
	CHECK_EQ(sheaf_setxattr(fs, p, name, "x", 1, 0), 0);
	CHECK_EQ(sheaf_setxattr(fs, p, "", "x", 1, 0), -ERANGE);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.x", big, sizeof(big), 0), -E2BIG);
	CHECK_EQ(sheaf_setxattr(fs, p, "user.x", "x", 1, 4), -EINVAL);
	CHECK_EQ(sheaf_setxattr(fs, p, "nonsense.x", "x", 1, 0), -EOPNOTSUPP);
	CHECK_EQ(sheaf_setxattr(fs, p, "system.x", "x", 1, 0), -EOPNOTSUPP);
	CHECK_EQ(sheaf_setxattr(fs, path_in(d, "none"), "user.x", "x", 1, 0), -ENOENT);
	for (int i = 0; i < 20 && !n; i++) {
		snprintf(name, sizeof(name), "user.v%d", i);
		n = sheaf_setxattr(fs, p, name, big, 65536, 0);
	}
	CHECK_EQ(n, -ENOSPC);
}

static void attributes_follow_permissions(void)
{
	const char *p = path_in(fresh_dir(fs), "f");
	struct sheaf_cred c = { .uid = 1234, .gid = 1234 };
	struct sheaf_handle h;
	char b[100];

	if (geteuid() != 0)
		return;
	make_file(fs, p, 10, 1);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), p + 1, &h, NULL), 0);
	CHECK_EQ(sheaf_h_setxattr(fs, NULL, h, "trusted.t", "t", 1, 0), 0);
	CHECK_EQ(sheaf_h_setxattr(fs, NULL, h, "user.u", "u", 1, 0), 0);
	CHECK_EQ(sheaf_h_setxattr(fs, &c, h, "user.u", "x", 1, 0), -EACCES);
	CHECK_EQ(sheaf_h_setxattr(fs, &c, h, "trusted.t", "x", 1, 0), -EPERM);
	CHECK_EQ(sheaf_h_getxattr(fs, &c, h, "trusted.t", b, sizeof(b)), -ENODATA);
	CHECK_EQ(sheaf_h_getxattr(fs, &c, h, "user.u", b, sizeof(b)), 1);
	CHECK_EQ(sheaf_h_listxattr(fs, &c, h, b, sizeof(b)), 7);
	CHECK_EQ(sheaf_h_listxattr(fs, NULL, h, b, sizeof(b)), 17);
	CHECK_EQ(sheaf_h_removexattr(fs, &c, h, "user.u"), -EACCES);
}

/* The last change reported n directories; the first is `dir`, with the attributes it has now. */
static void check_told(int n, struct sheaf_handle dir, uint64_t *change)
{
	struct sheaf_dir_after after[2];
	struct stat st;

	CHECK_EQ(sheaf_h_dir_after(after), n);
	CHECK_EQ(after[0].dir.ino, dir.ino);
	CHECK_EQ(after[0].dir.gen, dir.gen);
	CHECK_EQ(sheaf_h_getattr(fs, NULL, dir, &st), 0);
	CHECK_EQ(sheaf_h_dir_after(after), n); /* valid until the next change */
	CHECK_EQ(after[0].st.st_ino, st.st_ino);
	CHECK_EQ(after[0].st.st_nlink, st.st_nlink);
	CHECK_EQ(after[0].st.st_size, st.st_size);
	CHECK_EQ(after[0].st.st_mode, st.st_mode);
	CHECK_EQ(after[0].st.st_mtim.tv_nsec, st.st_mtim.tv_nsec);
	CHECK_EQ(after[0].st.st_ctim.tv_sec, st.st_ctim.tv_sec);
	CHECK(after[0].change > *change);
	*change = after[0].change;
}

static void *ask_elsewhere(void *arg)
{
	struct sheaf_dir_after after[2];

	*(int *)arg = sheaf_h_dir_after(after);
	return NULL;
}

static void a_change_tells_what_its_directories_have(void)
{
	const char *x = "/told/x"; /* everything below is on one server */
	struct sheaf_handle h, sub, f;
	struct sheaf_dir_after after[2];
	struct sheaf_file *file;
	uint64_t n = 0, other = 0;
	pthread_t t;
	int elsewhere = -1;

	CHECK_EQ(sheaf_mkdir(fs, "/told", 0755), 0);
	CHECK_EQ(sheaf_mkdir(fs, x, 0755), 0);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), x, &h, NULL), 0);
	CHECK_EQ(sheaf_h_mkdir(fs, NULL, h, "sub", 0755, &sub, NULL), 0);
	check_told(1, h, &n);
	CHECK_EQ(sheaf_h_open(fs, NULL, h, "f", O_RDWR | O_CREAT, 0644, NULL, &file), 0);
	check_told(1, h, &n);
	f = sheaf_file_handle(file);
	CHECK_EQ(sheaf_close(file), 0);
	check_told(1, h, (uint64_t[]){ n - 1 }); /* a close changes no directory */
	CHECK_EQ(sheaf_h_open(fs, NULL, h, "f", O_RDONLY | O_CREAT, 0644, NULL, &file), 0);
	CHECK_EQ(sheaf_h_dir_after(after), 0); /* no entry was created */
	CHECK_EQ(sheaf_close(file), 0);
	CHECK_EQ(sheaf_h_mknod(fs, NULL, h, "g", S_IFREG | 0644, 0, NULL, NULL), 0);
	check_told(1, h, &n);
	CHECK_EQ(sheaf_h_mknod(fs, NULL, h, "fifo", S_IFIFO | 0644, 0, NULL, NULL), 0);
	check_told(1, h, &n);
	CHECK_EQ(sheaf_h_symlink(fs, NULL, "f", h, "l", NULL, NULL), 0);
	check_told(1, h, &n);
	CHECK_EQ(sheaf_h_link(fs, NULL, f, h, "f2", NULL), 0);
	check_told(1, h, &n);
	CHECK_EQ(sheaf_h_rename(fs, NULL, h, "f2", h, "f3", 0), 0);
	check_told(1, h, &n);
	CHECK_EQ(sheaf_h_rename(fs, NULL, sub, "none", h, "f3", 0), -ENOENT);
	CHECK_EQ(sheaf_h_dir_after(after), 0);
	CHECK_EQ(sheaf_h_rename(fs, NULL, h, "f3", sub, "f3", 0), 0);
	check_told(2, h, &n);
	CHECK_EQ(sheaf_h_dir_after(after), 2);
	CHECK_EQ(after[1].dir.ino, sub.ino);
	CHECK_EQ(after[1].st.st_size, 1);
	CHECK_EQ(pthread_create(&t, NULL, ask_elsewhere, &elsewhere), 0);
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK_EQ(elsewhere, 0); /* another thread sees no change of its own */
	CHECK_EQ(sheaf_h_unlink(fs, NULL, sub, "f3"), 0);
	check_told(1, sub, &other);
	CHECK_EQ(sheaf_h_rmdir(fs, NULL, h, "sub"), 0);
	check_told(1, h, &n);
	CHECK_EQ(sheaf_unlink(fs, path_in(x, "f")), 0); /* by path */
	check_told(1, h, &n);
	CHECK_EQ(sheaf_h_unlink(fs, NULL, h, "f"), -ENOENT);
	CHECK_EQ(sheaf_h_dir_after(after), 0);
}

static uint64_t requests(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < sheaf_server_count(fs); i++)
		sum += server_status(fs, i).requests;
	return sum;
}

/* Also where the directory is on another server than its name. */
static void new_inodes_get_their_attributes_in_one_request(void)
{
	static const mode_t types[] = { S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO };
	struct stat in = { .st_uid = 7, .st_gid = 8, .st_atim = { 3, 4 }, .st_mtim = { 5, 6 } }, st;
	unsigned which = SHEAF_SET_UID | SHEAF_SET_GID | SHEAF_SET_ATIME | SHEAF_SET_MTIME;
	struct sheaf_handle made, found;
	uint64_t before = requests();
	char name[32];

	for (unsigned i = 0; i < 40; i++) {
		mode_t type = types[i % 4];

		in.st_mode = type | 0640;
		in.st_size = S_ISREG(type) ? 1234 : 0;
		snprintf(name, sizeof(name), "whole-%u", i);
		CHECK_EQ(sheaf_h_create(fs, NULL, sheaf_root(fs), name, "target",
					which | (S_ISREG(type) ? SHEAF_SET_SIZE : 0), &in, &made,
					&st),
			 0);
		CHECK((st.st_mode & S_IFMT) == type && st.st_uid == 7 && st.st_gid == 8);
		CHECK(st.st_atim.tv_sec == 3 && st.st_mtim.tv_nsec == 6);
		CHECK(!S_ISREG(type) || st.st_size == 1234);
	}
	CHECK(requests() - before < 40 + 30); /* leases are renewed, servers ask each other */
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "whole-%u", i);
		CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), name, &found, &st), 0);
		CHECK(st.st_uid == 7 && st.st_gid == 8 && st.st_mtim.tv_sec == 5);
	}
	CHECK_EQ(sheaf_h_create(fs, NULL, sheaf_root(fs), "odd", NULL, SHEAF_SET_MODE, &in, NULL,
				NULL),
		 -EINVAL);
	in.st_mode = S_IFDIR | 0755;
	CHECK_EQ(sheaf_h_create(fs, NULL, sheaf_root(fs), "odd", NULL, SHEAF_SET_SIZE, &in, NULL,
				NULL),
		 -EINVAL);
	in.st_mode = S_IFLNK;
	CHECK_EQ(sheaf_h_create(fs, NULL, sheaf_root(fs), "odd", NULL, 0, &in, NULL, NULL),
		 -ENOENT);
	in.st_mode = S_IFREG;
	in.st_size = -1;
	CHECK_EQ(sheaf_h_create(fs, NULL, sheaf_root(fs), "odd", NULL, SHEAF_SET_SIZE, &in, NULL,
				NULL),
		 -EFBIG);
	CHECK_EQ(sheaf_h_lookup(fs, NULL, sheaf_root(fs), "odd", &found, &st), -ENOENT);
}

static void statfs_counts_a_disk_once(void)
{
	struct statvfs st;
	struct sheaf_server first = server_status(fs, 0);
	uint64_t total = first.space_total;

	CHECK(first.storage);
	/* all servers have their storage on one file system */
	for (int i = 1; i < sheaf_server_count(fs); i++)
		CHECK_EQ(server_status(fs, i).storage, first.storage);
	CHECK_EQ(sheaf_statfs(fs, &st), 0);
	CHECK(st.f_blocks > 0 && st.f_bavail > 0 && st.f_bavail <= st.f_blocks);
	CHECK_EQ(st.f_namemax, 255);
	CHECK(st.f_blocks * st.f_frsize <= total && st.f_blocks * st.f_frsize + 65536 > total);
}

/* ---- restarts ---- */

static void what_was_acknowledged_survives_a_kill(struct cluster *c)
{
	const char *d = fresh_dir(fs);
	char b[100];

	make_file(fs, path_in(d, "f"), 1000, 7);
	CHECK_EQ(sheaf_link(fs, path_in(d, "f"), path_in(d, "h")), 0);
	CHECK_EQ(sheaf_symlink(fs, "h", path_in(d, "s")), 0);
	CHECK_EQ(sheaf_setxattr(fs, path_in(d, "s"), "user.a", "kept", 4, 0), 0);
	CHECK_EQ(sheaf_unlink(fs, path_in(d, "f")), 0);
	server_kill(c, 0);
	CHECK_EQ(server_up(c, 0), 0);
	CHECK_EQ(stat_of(fs, path_in(d, "h")).st_nlink, 1);
	check_link(path_in(d, "s"), "h");
	CHECK_EQ(sheaf_getxattr(fs, path_in(d, "s"), "user.a", b, sizeof(b)), 4);
	CHECK(!memcmp(b, "kept", 4));
}

static void statfs_waits_for_all(struct cluster *c)
{
	struct statvfs st;

	server_kill(c, 1);
	CHECK(sheaf_statfs(fs, &st) < 0);
	CHECK_EQ(server_up(c, 1), 0);
	CHECK(WITHIN(PATIENCE_S, sheaf_statfs(fs, &st) == 0));
}

static const struct test both[] = {
	TEST(all_names_of_a_file_are_the_file),
	TEST(a_link_follows_the_permissions_of_its_directory),
	TEST(a_rename_does_what_its_flags_say),
	TEST(symbolic_links_lead_to_what_they_say),
	TEST(opens_follow_as_open_does),
	TEST(circles_are_an_error),
	TEST(a_slash_behind_a_name_asks_for_a_directory),
	TEST(listings_tell_links_apart),
	TEST(listings_come_with_attributes),
	TEST(a_directory_that_may_not_be_passed_lists_names_only),
	TEST(attributes_come_back_as_they_were_set),
	TEST(attributes_have_limits),
	TEST(attributes_follow_permissions),
	TEST(a_change_tells_what_its_directories_have),
	TEST(new_inodes_get_their_attributes_in_one_request),
	TEST(statfs_counts_a_disk_once),
};

int main(int argc, char **argv)
{
	size_t n = sizeof(both) / sizeof(both[0]);
	char dir[CLUSTER_PATH - 16], conf[CLUSTER_PATH];
	struct cluster c;

	puts("servers:");
	cluster_create(&c, &(struct cluster_opts){ .timeout = 3 });
	cluster_start(&c);
	fs = client_connect(c.conf);
	test_run(both, n, argc, argv);
	if (argc < 2) {
		what_was_acknowledged_survives_a_kill(&c);
		statfs_waits_for_all(&c);
	}
	sheaf_disconnect(fs);
	cluster_stop(&c);

	puts("embedded:");
	temp_dir(dir, sizeof(dir));
	snprintf(conf, sizeof(conf), "local:%s", dir);
	fs = client_connect(conf);
	test_run(both, n, argc, argv);
	sheaf_disconnect(fs);
	return 0;
}
