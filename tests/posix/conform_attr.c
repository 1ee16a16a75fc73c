/* Attributes: chmod, chown, utimensat, access, stat and statx, statvfs, pathconf. */
#include <limits.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <time.h>

#include "conform.h"

static void chmod_bits(void)
{
	static const mode_t modes[] = { 0,    0777, 0644, 0400,	 0200,	0100,  0040,  0020,  0010,
					0004, 0002, 0001, 01000, 04755, 06711, 07777, 02755, 04000 };
	int fd;

	put("f", "x");
	OK(mkdir("d", 0755));
	fd = (int)OK(open("f", O_RDONLY));
	for (size_t i = 0; i < N_OF(modes); i++) {
		OK(chmod("f", modes[i]));
		EQ(stat_of("f").st_mode, S_IFREG | modes[i]);
		OK(chmod("d", modes[i]));
		EQ(stat_of("d").st_mode, S_IFDIR | modes[i]);
		OK(fchmod(fd, modes[i] ^ 0111));
		EQ(mode_of("f"), modes[i] ^ 0111);
	}
	OK(chmod("f", S_IFDIR | 0640)); /* the file type cannot be changed */
	EQ(stat_of("f").st_mode, S_IFREG | 0640);
	OK(symlink("f", "l"));
	OK(chmod("l", 0600));
	EQ(mode_of("f"), 0600);
	EQ(mode_of("l"), 0777);
	FAILS(EOPNOTSUPP, fchmodat(AT_FDCWD, "l", 0644, AT_SYMLINK_NOFOLLOW));
	OK(fchmodat(AT_FDCWD, "f", 0644, AT_SYMLINK_NOFOLLOW));
	FAILS(EINVAL, fchmodat(AT_FDCWD, "f", 0644, 0x8000));
	OK(mkfifo("fifo", 0600));
	OK(chmod("fifo", 0644));
	EQ(mode_of("fifo"), 0644);
}

static void chown_ids(void)
{
	struct stat st;
	int fd;

	put("f", "x");
	OK(mkdir("d", 02755));
	OK(symlink("f", "l"));
	OK(chown("f", 12, 34));
	EQ(stat_of("f").st_uid, 12);
	EQ(stat_of("f").st_gid, 34);
	OK(chown("f", (uid_t)-1, 56));
	EQ(stat_of("f").st_uid, 12);
	EQ(stat_of("f").st_gid, 56);
	OK(chown("f", 78, (gid_t)-1));
	EQ(stat_of("f").st_uid, 78);
	EQ(stat_of("f").st_gid, 56);
	OK(chown("l", 1, 2));
	EQ(stat_of("f").st_uid, 1);
	EQ(stat_of("l").st_uid, 0);
	OK(lchown("l", 3, 4));
	EQ(stat_of("l").st_uid, 3);
	EQ(stat_of("l").st_gid, 4);
	EQ(stat_of("f").st_uid, 1);
	fd = (int)OK(open("f", O_RDONLY));
	OK(fchown(fd, 5, 6));
	OK(fstat(fd, &st));
	EQ(st.st_uid, 5);
	OK(fchownat(fd, "", 7, 8, AT_EMPTY_PATH));
	EQ(stat_of("f").st_gid, 8);
	OK(chown("f", 4294967294u - 1, 4294967294u - 1)); /* the largest ids */
	EQ(stat_of("f").st_uid, 4294967293u);
	OK(chown("d", 1, 1));
	EQ(mode_of("d") & 0777, 0755);
	FAILS(EINVAL, fchownat(AT_FDCWD, "f", 1, 1, 0x8000));
}

/* A change of owner clears the set-id bits of an executable file, even when root makes it. */
static void chown_clears_set_id(void)
{
	static const struct {
		mode_t before, after;
	} rows[] = {
		{ 04755, 0755 }, { 06755, 0755 },  { 02755, 0755 }, { 02745, 02745 },
		{ 0755, 0755 },	 { 01755, 01755 }, { 04644, 0644 },
	};

	put("f", "x");
	OK(mkdir("d", 0755));
	for (size_t i = 0; i < N_OF(rows); i++) {
		OK(chmod("f", rows[i].before));
		OK(chown("f", 1, 1));
		EQ(mode_of("f"), rows[i].after);
		OK(chmod("d", rows[i].before));
		OK(chown("d", 1, 1));
		EQ(mode_of("d"), rows[i].before);
	}
}

static bool times_are(const char *path, time_t as, long an, time_t ms, long mn)
{
	struct stat st = stat_of(path);

	return st.st_atim.tv_sec == as && st.st_atim.tv_nsec == an && st.st_mtim.tv_sec == ms &&
	       st.st_mtim.tv_nsec == mn;
}

static void utimes_exact(void)
{
	static const struct {
		time_t sec;
		long nsec;
	} rows[] = {
		{ 0, 0 },	   { 0, 1 },
		{ 1, 999999999 },  { 1000000000, 123456789 },
		{ 2147483647, 5 }, { 2147483648, 7 },
		{ 4294967296, 0 }, { 7258118400, 42 },
		{ -1, 0 },	   { -1000000, 500000000 },
	};
	int fd;

	put("f", "x");
	OK(mkdir("d", 0755));
	OK(symlink("f", "l"));
	fd = (int)OK(open("f", O_RDONLY));
	for (size_t i = 0; i < N_OF(rows); i++) {
		struct timespec t[2] = { { rows[i].sec, rows[i].nsec }, { 1234567890, 1 } };
		struct timespec u[2] = { { 1234567890, 1 }, { rows[i].sec, rows[i].nsec } };

		OK(utimensat(AT_FDCWD, "f", t, 0));
		TRUE(times_are("f", rows[i].sec, rows[i].nsec, 1234567890, 1));
		OK(futimens(fd, u));
		TRUE(times_are("f", 1234567890, 1, rows[i].sec, rows[i].nsec));
		OK(utimensat(AT_FDCWD, "d", u, 0));
		TRUE(times_are("d", 1234567890, 1, rows[i].sec, rows[i].nsec));
		OK(utimensat(AT_FDCWD, "l", t, AT_SYMLINK_NOFOLLOW));
		TRUE(times_are("l", rows[i].sec, rows[i].nsec, 1234567890, 1));
	}
}

static void utimes_now_and_omit(void)
{
	struct timespec t[2] = { { 111, 222 }, { 333, 444 } }, before;
	struct timeval v[2] = { { 5, 6 }, { 7, 8 } };

	put("f", "x");
	OK(symlink("f", "l"));
	clock_gettime(CLOCK_REALTIME, &before);
	OK(utimensat(AT_FDCWD, "f", t, 0));
	t[0].tv_nsec = UTIME_OMIT, t[1].tv_sec = 555;
	OK(utimensat(AT_FDCWD, "f", t, 0));
	TRUE(times_are("f", 111, 222, 555, 444));
	t[0].tv_nsec = UTIME_NOW, t[1].tv_nsec = UTIME_OMIT;
	OK(utimensat(AT_FDCWD, "f", t, 0));
	TRUE(stat_of("f").st_atim.tv_sec >= before.tv_sec - 2);
	EQ(stat_of("f").st_mtim.tv_sec, 555);
	t[0].tv_sec = 1, t[0].tv_nsec = 2, t[1].tv_nsec = UTIME_NOW;
	OK(utimensat(AT_FDCWD, "f", t, 0));
	EQ(stat_of("f").st_atim.tv_nsec, 2);
	TRUE(stat_of("f").st_mtim.tv_sec >= before.tv_sec - 2);
	t[0].tv_nsec = t[1].tv_nsec = UTIME_OMIT;
	OK(utimensat(AT_FDCWD, "f", t, 0));
	EQ(stat_of("f").st_atim.tv_nsec, 2);
	OK(utimensat(AT_FDCWD, "f", NULL, 0));
	TRUE(stat_of("f").st_atim.tv_sec >= before.tv_sec - 2);
	OK(utimes("l", v)); /* follows the link */
	TRUE(times_are("f", 5, 6000, 7, 8000));
	t[0].tv_nsec = 1000000000;
	FAILS(EINVAL, utimensat(AT_FDCWD, "f", t, 0));
	t[0].tv_nsec = -1;
	FAILS(EINVAL, utimensat(AT_FDCWD, "f", t, 0));
	FAILS(EINVAL, utimensat(AT_FDCWD, "f", NULL, 0x8000));
	TRUE(times_are("f", 5, 6000, 7, 8000));
	FAILS(EFAULT, syscall(SYS_utimensat, AT_FDCWD, "f", no_memory, 0));
}

static void access_as_owner(void)
{
	static const mode_t modes[] = { 0, 0100, 0200, 0300, 0400, 0500, 0600, 0700 };

	put("f", "x");
	OK(mkdir("d", 0755));
	for (size_t i = 0; i < N_OF(modes); i++) {
		bool all = is_root();

		OK(chmod("f", modes[i]));
		expect(modes[i] & 0400 || all ? 0 : EACCES, access("f", R_OK), "read %o", modes[i]);
		expect(modes[i] & 0200 || all ? 0 : EACCES, access("f", W_OK), "write %o",
		       modes[i]);
		/* root needs at least one x bit */
		expect(modes[i] & 0100 ? 0 : EACCES, access("f", X_OK), "execute %o", modes[i]);
	}
	OK(access("f", F_OK));
	FAILS(ENOENT, access("none", F_OK));
	FAILS(EINVAL, access("f", 64));
	OK(access("d", R_OK | W_OK | X_OK));
	OK(symlink("nowhere", "dangling"));
	FAILS(ENOENT, access("dangling", F_OK));
	OK(faccessat(AT_FDCWD, "dangling", F_OK, AT_SYMLINK_NOFOLLOW));
	OK(faccessat(AT_FDCWD, "d", W_OK, AT_EACCESS));
	FAILS(EINVAL, faccessat(AT_FDCWD, "d", W_OK, 0x8000));
}

/* access() checks the real user, all other calls the effective user. */
static void access_real_user(void)
{
	put("f", "x");
	OK(chmod("f", 0600));
	AS(SELF)
	{
		OK(setresuid(uid_of(USER), 0, 0));
		FAILS(EACCES, access("f", R_OK));
		OK(faccessat(AT_FDCWD, "f", R_OK, AT_EACCESS));
		OK(close((int)OK(open("f", O_RDONLY))));
	}
}

static void stat_fields(void)
{
	struct stat f, d, st;
	int fd;

	put("f", "12345");
	OK(mkdir("d", 0755));
	put("d/g", "x");
	OK(symlink("f", "l"));
	f = stat_of("f"), d = stat_of("d");
	EQ(f.st_size, 5);
	EQ(f.st_nlink, 1);
	EQ(f.st_dev, d.st_dev);
	TRUE(f.st_ino != d.st_ino && f.st_ino && d.st_ino);
	TRUE(f.st_blksize >= 512);
	EQ(f.st_rdev, 0);
	OK(stat("l", &st));
	EQ(st.st_ino, f.st_ino);
	OK(lstat("l", &st));
	TRUE(st.st_ino != f.st_ino && S_ISLNK(st.st_mode));
	fd = (int)OK(open("f", O_RDONLY));
	OK(fstat(fd, &st));
	EQ(st.st_ino, f.st_ino);
	OK(fstatat(fd, "", &st, AT_EMPTY_PATH));
	EQ(st.st_ino, f.st_ino);
	OK(stat("d/..", &st));
	EQ(st.st_ino, stat_of(".").st_ino);
	OK(lstat("d/", &st));
	EQ(st.st_ino, d.st_ino);
	FAILS(ENOTDIR, stat("f/", &st));
	FAILS(ENOTDIR, stat("f/.", &st));
	FAILS(ENOENT, stat("", &st));
	FAILS(EFAULT, syscall(SYS_newfstatat, AT_FDCWD, "f", no_memory, 0));
	FAILS(EINVAL, fstatat(AT_FDCWD, "f", &st, 0x8000));
	OK(rename("f", "moved"));
	EQ(stat_of("moved").st_ino, f.st_ino); /* open files keep the inode number */
	OK(fstat(fd, &st));
	EQ(st.st_ino, f.st_ino);
}

static void statx_fields(void)
{
	struct statx x, y;
	struct stat st;

	put("f", "12345");
	OK(symlink("f", "l"));
	st = stat_of("f");
	OK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS | STATX_BTIME, &x));
	EQ(x.stx_mask & STATX_BASIC_STATS, STATX_BASIC_STATS);
	EQ(x.stx_ino, st.st_ino);
	EQ(x.stx_size, 5);
	EQ(x.stx_mode, st.st_mode);
	EQ(x.stx_nlink, 1);
	EQ(x.stx_mtime.tv_nsec, st.st_mtim.tv_nsec);
	EQ(x.stx_ctime.tv_sec, st.st_ctim.tv_sec);
	OK(statx(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, STATX_SIZE, &y));
	EQ(y.stx_size, 5);
	OK(statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC, STATX_SIZE, &y));
	EQ(y.stx_size, 5);
	OK(statx(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &y));
	TRUE(S_ISLNK(y.stx_mode));
	FAILS(EINVAL, statx(AT_FDCWD, "f", 0x8000000, STATX_SIZE, &y));
	FAILS(EINVAL, statx(AT_FDCWD, "f", AT_STATX_SYNC_TYPE, STATX_SIZE, &y));
	FAILS(ENOENT, statx(AT_FDCWD, "none", 0, STATX_SIZE, &y));
	if (!feature("btime"))
		return;
	EQ(x.stx_mask & STATX_BTIME, STATX_BTIME);
	tick();
	put("f", "changed");
	OK(chmod("f", 0600));
	OK(times_set("f", 1, 1));
	OK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS | STATX_BTIME, &y));
	EQ(y.stx_btime.tv_sec, x.stx_btime.tv_sec);
	EQ(y.stx_btime.tv_nsec, x.stx_btime.tv_nsec);
}

static void statvfs_fields(void)
{
	struct statvfs v, w;
	int fd;

	put("f", "x");
	OK(statvfs(".", &v));
	TRUE(v.f_bsize >= 512 && v.f_frsize >= 512);
	TRUE(v.f_blocks > 0 && v.f_bfree <= v.f_blocks && v.f_bavail <= v.f_bfree);
	TRUE(v.f_ffree <= v.f_files);
	EQ(v.f_namemax, 255);
	EQ(v.f_flag & ST_RDONLY, 0);
	OK(statvfs("f", &w));
	EQ(w.f_blocks, v.f_blocks);
	EQ(w.f_fsid, v.f_fsid);
	fd = (int)OK(open("f", O_RDONLY));
	OK(fstatvfs(fd, &w));
	EQ(w.f_fsid, v.f_fsid);
	FAILS(EBADF, fstatvfs(-1, &w));
	FAILS(ENOENT, statvfs("none", &w));
	FAILS(ENOTDIR, statvfs("f/x", &w));
	EQ(pathconf(".", _PC_NAME_MAX), 255);
	EQ(pathconf(".", _PC_PATH_MAX), PATH_MAX);
	EQ(pathconf(".", _PC_NO_TRUNC), 1);
	EQ(pathconf(".", _PC_CHOWN_RESTRICTED), 1);
	TRUE(pathconf(".", _PC_LINK_MAX) > 1);
	EQ(fpathconf(fd, _PC_PIPE_BUF), PIPE_BUF);
}

const struct test_group attr_groups[] = {
	{ .name = "chmod_bits", .run = chmod_bits },
	{ .name = "chown_ids", .run = chown_ids, .needs = NEEDS_ROOT },
	{ .name = "chown_clears_set_id", .run = chown_clears_set_id, .needs = NEEDS_ROOT },
	{ .name = "utimes_exact", .run = utimes_exact },
	{ .name = "utimes_now_and_omit", .run = utimes_now_and_omit },
	{ .name = "access_as_owner", .run = access_as_owner },
	{ .name = "access_real_user", .run = access_real_user, .needs = NEEDS_ROOT },
	{ .name = "stat_fields", .run = stat_fields },
	{ .name = "statx_fields", .run = statx_fields },
	{ .name = "statvfs_fields", .run = statvfs_fields },
	{ 0 },
};
