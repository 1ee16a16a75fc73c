/* Permissions: the bits of owner, group and others, supplementary groups, directories, sticky and
 * set-id rules. All groups need root, to act as other users. */
#include <dirent.h>
#include <sys/xattr.h>

#include "conform.h"

/* A file owned by USER and its group. */
static void make(const char *path, mode_t mode)
{
	put(path, "content");
	OK(chown(path, uid_of(USER), gid_of(USER)));
	OK(chmod(path, mode));
}

static void make_dir(const char *path, mode_t mode)
{
	OK(mkdir(path, 0755));
	OK(chown(path, uid_of(USER), gid_of(USER)));
	OK(chmod(path, mode));
}

static const struct {
	enum who who;
	const char *name;
	int shift;
} classes[] = { { USER, "owner", 6 }, { MEMBER, "group", 3 }, { STRANGER, "others", 0 } };

static void close_if(long fd)
{
	if (fd >= 0)
		close((int)fd);
}

/* Only the bits of the caller's own class count: the bits of the other classes are inverted. */
static void perm_files(void)
{
	make("f", 0);
	for (size_t i = 0; i < N_OF(classes); i++)
		for (mode_t bits = 0; bits < 8; bits++) {
			mode_t mode = (~bits & 7) * 0111;

			mode ^= 7u << classes[i].shift; /* not inverted for this class */
			OK(chmod("f", mode));
			AS(classes[i].who)
			{
				const char *n = classes[i].name;
				int r = bits & 4 ? 0 : EACCES, w = bits & 2 ? 0 : EACCES;
				int x = bits & 1 ? 0 : EACCES;

				expect(r, access("f", R_OK), "%s reads %04o", n, mode);
				expect(w, access("f", W_OK), "%s writes %04o", n, mode);
				expect(x, access("f", X_OK), "%s executes %04o", n, mode);
				close_if(
					expect(r, open("f", O_RDONLY), "%s opens r %04o", n, mode));
				close_if(
					expect(w, open("f", O_WRONLY), "%s opens w %04o", n, mode));
				close_if(expect(r ? r : w, open("f", O_RDWR), "%s opens rw %04o", n,
						mode));
				expect(w, truncate("f", 3), "%s truncates %04o", n, mode);
			}
		}
}

/* r permits to list, x to search, w and x together to change. */
static void perm_dirs(void)
{
	make_dir("d", 0777);
	make("d/f", 0666);
	OK(link("d/f", "keep"));
	for (size_t i = 0; i < N_OF(classes); i++)
		for (mode_t bits = 0; bits < 8; bits++) {
			mode_t mode = bits << classes[i].shift;
			int r = bits & 4 ? 0 : EACCES, x = bits & 1 ? 0 : EACCES;
			int wx = (bits & 3) == 3 ? 0 : EACCES;

			OK(chmod("d", mode));
			AS(classes[i].who)
			{
				const char *n = classes[i].name;
				DIR *dir = opendir("d");

				expect(r, dir ? 0 : -1, "%s lists %04o", n, mode);
				expect(x, chdir("d"), "%s enters %04o", n, mode);
				if (x == 0)
					OK(chdir(".."));
				expect(x, lstat("d/f", &(struct stat){ 0 }), "%s looks at %04o", n,
				       mode);
				close_if(expect(x, open("d/f", O_RDONLY), "%s opens in %04o", n,
						mode));
				expect(wx, mkdir("d/s", 0755), "%s makes in %04o", n, mode);
				expect(wx, wx ? rmdir("d/f") : rmdir("d/s"), "%s removes in %04o",
				       n, mode);
				expect(wx, link("d/f", "d/h"), "%s links in %04o", n, mode);
				expect(wx, unlink(wx ? "d/f" : "d/h"), "%s unlinks in %04o", n,
				       mode);
				expect(wx, rename("d/f", "d/g"), "%s renames in %04o", n, mode);
				if (wx == 0)
					OK(rename("d/g", "d/f"));
			}
		}
}

struct deed {
	const char *what;
	int (*run)(void);
	int want;
};

#define DEED(name, call) \
	static int name(void) \
	{ \
		return (int)(call); \
	}
DEED(creat_in, open("closed/new", O_RDWR | O_CREAT, 0644))
DEED(mkdir_in, mkdir("closed/new", 0755))
DEED(symlink_in, symlink("x", "closed/new"))
DEED(mkfifo_in, mkfifo("closed/new", 0644))
DEED(link_in, link("open/mine", "closed/new"))
DEED(unlink_in, unlink("closed/f"))
DEED(rmdir_in, rmdir("closed/d"))
DEED(rename_out, rename("closed/f", "open/new"))
DEED(rename_in, rename("open/mine", "closed/new"))
DEED(rename_over, rename("open/mine", "closed/f"))
DEED(exchange, renameat2(AT_FDCWD, "open/mine", AT_FDCWD, "closed/f", RENAME_EXCHANGE))
DEED(chmod_theirs, chmod("closed/f", 0777))
DEED(chmod_dir, chmod("closed", 0777))
DEED(chown_theirs, chown("closed/f", uid_of(STRANGER), (gid_t)-1))
DEED(chown_mine, chown("open/mine", uid_of(USER), (gid_t)-1))
DEED(chgrp_mine, chown("open/mine", (uid_t)-1, gid_of(USER)))
DEED(chgrp_same, chown("open/mine", uid_of(STRANGER), gid_of(STRANGER)))
DEED(utimes_now, utimensat(AT_FDCWD, "closed/f", NULL, 0))
DEED(utimes_set, times_set("closed/f", 1, 1))
DEED(utimes_writable, utimensat(AT_FDCWD, "closed/w", NULL, 0))
DEED(utimes_set_writable, times_set("closed/w", 1, 1))
DEED(truncate_theirs, truncate("closed/f", 0))
DEED(open_write, open("closed/f", O_WRONLY))
DEED(open_trunc, open("closed/f", O_RDONLY | O_TRUNC))
DEED(open_noatime, open("closed/f", O_RDONLY | O_NOATIME))
DEED(open_creat, open("closed/f", O_RDONLY | O_CREAT, 0644))
DEED(open_hidden, open("hidden/f", O_RDONLY))
DEED(stat_hidden, stat("hidden/f", &(struct stat){ 0 }))
DEED(stat_none_hidden, stat("hidden/none", &(struct stat){ 0 }))
DEED(readlink_hidden, readlink("hidden/l", (char[8]){ 0 }, 8))
DEED(chmod_hidden, chmod("hidden/f", 0777))
DEED(unlink_hidden, unlink("hidden/f"))
DEED(chdir_hidden, chdir("hidden"))
DEED(through_hidden, open("hidden/../open/mine", O_RDONLY))
DEED(access_hidden, access("hidden/f", F_OK))
DEED(setxattr_theirs, setxattr("closed/f", "user.a", "1", 1, 0))
DEED(getxattr_secret, getxattr("closed/secret", "user.a", NULL, 0))
DEED(mkdir_exists, mkdir("closed/d", 0755))
DEED(creat_exists, open("closed/f", O_RDWR | O_CREAT | O_EXCL, 0644))

static const struct deed deeds[] = {
	{ "creat in a closed directory", creat_in, EACCES },
	{ "mkdir in a closed directory", mkdir_in, EACCES },
	{ "symlink in a closed directory", symlink_in, EACCES },
	{ "mkfifo in a closed directory", mkfifo_in, EACCES },
	{ "link into a closed directory", link_in, EACCES },
	{ "unlink in a closed directory", unlink_in, EACCES },
	{ "rmdir in a closed directory", rmdir_in, EACCES },
	{ "rename out of a closed directory", rename_out, EACCES },
	{ "rename into a closed directory", rename_in, EACCES },
	{ "rename over in a closed directory", rename_over, EACCES },
	{ "exchange with a closed directory", exchange, EACCES },
	{ "chmod of another's file", chmod_theirs, EPERM },
	{ "chmod of another's directory", chmod_dir, EPERM },
	{ "taking a file", chown_theirs, EPERM },
	{ "giving a file away", chown_mine, EPERM },
	{ "giving a file to another group", chgrp_mine, EPERM },
	{ "chown to what it is", chgrp_same, 0 },
	{ "touch without write permission", utimes_now, EACCES },
	{ "setting another's times", utimes_set, EPERM },
	{ "touch with write permission", utimes_writable, 0 },
	{ "setting times with write permission", utimes_set_writable, EPERM },
	{ "truncate without write permission", truncate_theirs, EACCES },
	{ "open for writing", open_write, EACCES },
	{ "open O_RDONLY|O_TRUNC", open_trunc, EACCES },
	{ "open O_NOATIME of another's file", open_noatime, EPERM },
	{ "open O_CREAT of a readable file", open_creat, 0 },
	{ "open below a hidden directory", open_hidden, EACCES },
	{ "stat below a hidden directory", stat_hidden, EACCES },
	{ "stat of nothing below a hidden directory", stat_none_hidden, EACCES },
	{ "readlink below a hidden directory", readlink_hidden, EACCES },
	{ "chmod below a hidden directory", chmod_hidden, EACCES },
	{ "unlink below a hidden directory", unlink_hidden, EACCES },
	{ "chdir to a hidden directory", chdir_hidden, EACCES },
	{ "a path through a hidden directory", through_hidden, EACCES },
	{ "access below a hidden directory", access_hidden, EACCES },
	{ "setxattr without write permission", setxattr_theirs, EACCES },
	{ "getxattr without read permission", getxattr_secret, EACCES },
	{ "mkdir over what is there", mkdir_exists, EEXIST },
	{ "creat O_EXCL over what is there", creat_exists, EEXIST },
};

static void perm_deeds(void)
{
	make_dir("closed", 0755);
	make("closed/f", 0644);
	make("closed/w", 0666);
	make("closed/secret", 0600);
	make_dir("closed/d", 0755);
	make_dir("open", 0777);
	make_dir("hidden", 0700);
	make("hidden/f", 0666);
	OK(symlink("f", "hidden/l"));
	put("open/mine", "x");
	OK(chown("open/mine", uid_of(STRANGER), gid_of(STRANGER)));
	AS(STRANGER)
	for (size_t i = 0; i < N_OF(deeds); i++)
		expect(deeds[i].want, deeds[i].run(), "%s", deeds[i].what);
	TRUE(has("closed/f", "content"));
	EQ(mode_of("closed/f"), 0644);
}

static void perm_owner(void)
{
	OK(chmod(".", 0777));
	AS(USER)
	{
		put("f", "mine");
		EQ(stat_of("f").st_uid, uid_of(USER));
		EQ(stat_of("f").st_gid, gid_of(USER));
		OK(chmod("f", 0));
		FAILS(EACCES, open("f", O_RDONLY));
		OK(chmod("f", 0400)); /* the caller still owns it */
		OK(times_set("f", 1, 1));
		OK(chmod("f", 0444));
		FAILS(EACCES, truncate("f", 0));
		OK(utimensat(AT_FDCWD, "f", NULL, 0));
		OK(mkdir("d", 0700));
		EQ(stat_of("d").st_uid, uid_of(USER));
	}
	AS(STRANGER)
	{
		FAILS(EACCES, opendir("d") ? 0 : -1);
		/* the permissions of the directory count, not those of the file */
		OK(rename("f", "g"));
		OK(unlink("g"));
		FAILS(ENOTEMPTY, (mkdir("s", 0755), put("s/x", ""), rmdir("s")));
	}
	AS(MEMBER)
	{
		put("m", "member");
		EQ(stat_of("m").st_gid, gid_of(MEMBER));
		OK(chown("m", (uid_t)-1, gid_of(USER))); /* a group of the caller */
		EQ(stat_of("m").st_gid, gid_of(USER));
		FAILS(EPERM, chown("m", (uid_t)-1, gid_of(STRANGER)));
		FAILS(EPERM, chown("m", uid_of(USER), gid_of(USER)));
		OK(chown("m", uid_of(MEMBER), gid_of(MEMBER)));
	}
}

/* Root may read and write all files, list and search all directories, but run only files with an x
 * bit. */
static void perm_root(void)
{
	make("f", 0);
	make_dir("d", 0);
	OK(access("f", R_OK | W_OK));
	FAILS(EACCES, access("f", X_OK));
	OK(close((int)OK(open("f", O_RDWR))));
	put("d/x", "x");
	OK(chmod("f", 0001));
	OK(access("f", X_OK));
	OK(chdir("d"));
	OK(chdir(".."));
	OK(times_set("f", 1, 1));
	OK(chmod("f", 04711));
	EQ(mode_of("f"), 04711);
}

static void sticky_dirs(void)
{
	make_dir("t", 01777);
	OK(chown("t", 0, 0));
	make("t/f", 0666);
	make("t/g", 0666);
	make_dir("t/d", 0777);
	make("t/x", 0666);
	AS(STRANGER)
	{
		put("t/mine", "x");
		FAILS(EPERM, unlink("t/f"));
		FAILS(EPERM, rmdir("t/d"));
		FAILS(EPERM, rename("t/f", "t/h"));
		FAILS(EPERM, rename("t/mine", "t/f"));
		FAILS(EPERM, renameat2(AT_FDCWD, "t/mine", AT_FDCWD, "t/f", RENAME_EXCHANGE));
		OK(rename("t/mine", "t/mine2"));
		OK(unlink("t/mine2"));
		OK(truncate("t/f", 0)); /* only names are protected */
	}
	AS(USER)
	{
		OK(rename("t/f", "t/h"));
		OK(unlink("t/h"));
		OK(rmdir("t/d"));
	}
	OK(chown("t", uid_of(MEMBER), gid_of(MEMBER)));
	AS(MEMBER)
	OK(unlink("t/g")); /* by the owner of the directory */
	OK(unlink("t/x"));
	OK(chown("t", 0, 0));
	AS(USER)
	FAILS(EPERM, chmod("t", 0777));
}

static void write_as(enum who who, const char *path)
{
	AS(who)
	{
		int fd = (int)OK(open(path, O_RDWR));

		EQ(pwrite(fd, "x", 1, 0), 1);
		OK(close(fd));
	}
}

static void set_id_bits(void)
{
	static const struct {
		mode_t before, after;
	} rows[] = {
		{ 06777, 0777 }, { 04777, 0777 }, { 02777, 0777 }, { 0777, 0777 }, { 01777, 01777 }
	};

	make("f", 0777);
	for (size_t i = 0; i < N_OF(rows); i++) {
		OK(chmod("f", rows[i].before));
		write_as(STRANGER, "f"); /* a write clears the bits */
		EQ(mode_of("f"), rows[i].after);
		OK(chmod("f", rows[i].before));
		write_as(USER, "f"); /* also a write by the owner */
		EQ(mode_of("f"), rows[i].after);
		OK(chmod("f", rows[i].before));
		write_as(SELF, "f"); /* but not a write by root */
		EQ(mode_of("f"), rows[i].before);
		AS(STRANGER)
		OK(truncate("f", 1));
		EQ(mode_of("f"), rows[i].after);
		OK(chmod("f", rows[i].before));
		AS(USER)
		OK(close((int)OK(open("f", O_WRONLY | O_TRUNC))));
		EQ(mode_of("f"), rows[i].after);
	}
	AS(USER)
	{
		OK(chmod("f", 06755));
		EQ(mode_of("f"), 06755);
		OK(chown("f", (uid_t)-1, gid_of(USER)));
		EQ(mode_of("f"), 0755);
	}
	OK(chown("f", uid_of(USER), gid_of(STRANGER)));
	AS(USER)
	{
		/* the caller is not in that group: the bit is silently dropped */
		OK(chmod("f", 02755));
		EQ(mode_of("f"), 0755);
		OK(chmod("f", 04755));
		EQ(mode_of("f"), 04755);
	}
}

static void set_gid_dirs(void)
{
	umask(0);
	make_dir("d", 02777);
	AS(STRANGER)
	{
		put("d/f", "x");
		EQ(stat_of("d/f").st_gid, gid_of(USER)); /* the group of the directory */
		EQ(stat_of("d/f").st_uid, uid_of(STRANGER));
		OK(mkdir("d/sub", 0755));
		EQ(stat_of("d/sub").st_gid, gid_of(USER));
		EQ(mode_of("d/sub"), 02755);
		OK(mkdir("d/sub/deep", 0700));
		EQ(mode_of("d/sub/deep"), 02700);
		OK(symlink("x", "d/l"));
		EQ(stat_of("d/l").st_gid, gid_of(USER));
		OK(mkfifo("d/fifo", 0600));
		EQ(stat_of("d/fifo").st_gid, gid_of(USER));
		/* the caller is not in that group */
		OK(close((int)OK(open("d/g", O_RDWR | O_CREAT, 02775))));
		EQ(mode_of("d/g"), 0775);
	}
	AS(MEMBER)
	{
		OK(close((int)OK(open("d/h", O_RDWR | O_CREAT, 02775))));
		EQ(mode_of("d/h"), 02775);
	}
	OK(rename("d/f", "f")); /* a move keeps the group */
	EQ(stat_of("f").st_gid, gid_of(USER));
}

/* A move to another parent changes the ".." of a directory, which needs write permission on it. */
static void rename_of_a_closed_dir(void)
{
	make_dir("a", 0777);
	make_dir("b", 0777);
	make_dir("a/d", 0755);
	AS(STRANGER)
	{
		FAILS(EACCES, rename("a/d", "b/d"));
		OK(rename("a/d", "a/e"));
		OK(rename("a/e", "a/d"));
	}
	AS(USER)
	OK(rename("a/d", "b/d"));
}

/* An open file stays usable when its mode changes. */
static void perm_open_files(void)
{
	char b[8];

	make("f", 0666);
	AS(STRANGER)
	{
		int fd = (int)OK(open("f", O_RDWR));

		EQ(pread(fd, b, 8, 0), 7);
		EQ(pwrite(fd, "C", 1, 0), 1);
		FAILS(EPERM, fchmod(fd, 0));
		OK(ftruncate(fd, 3));
	}
	TRUE(has("f", "Con"));
	AS(USER)
	{
		int fd = (int)OK(open("f", O_RDWR));

		OK(fchmod(fd, 0));
		EQ(pread(fd, b, 8, 0), 3);
		EQ(pwrite(fd, "K", 1, 0), 1);
		OK(ftruncate(fd, 2));
		FAILS(EACCES, open("f", O_RDONLY));
		OK(close(fd));
	}
	TRUE(has("f", "Ko"));
}

const struct test_group perm_groups[] = {
	{ .name = "perm_files", .run = perm_files, .needs = NEEDS_ROOT },
	{ .name = "perm_dirs", .run = perm_dirs, .needs = NEEDS_ROOT },
	{ .name = "perm_deeds", .run = perm_deeds, .needs = NEEDS_ROOT },
	{ .name = "perm_owner", .run = perm_owner, .needs = NEEDS_ROOT },
	{ .name = "perm_root", .run = perm_root, .needs = NEEDS_ROOT },
	{ .name = "sticky_dirs", .run = sticky_dirs, .needs = NEEDS_ROOT },
	{ .name = "set_id_bits", .run = set_id_bits, .needs = NEEDS_ROOT },
	{ .name = "set_gid_dirs", .run = set_gid_dirs, .needs = NEEDS_ROOT },
	{ .name = "rename_of_a_closed_dir", .run = rename_of_a_closed_dir, .needs = NEEDS_ROOT },
	{ .name = "perm_open_files", .run = perm_open_files, .needs = NEEDS_ROOT },
	{ 0 },
};
