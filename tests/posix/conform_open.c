/* open(2) and open files: flags and errors by file type, modes, appending, truncating, descriptors
 * without rights, O_PATH, O_TMPFILE, and names that are removed while open. */
#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include "conform.h"

/* One name of each file type. */
static void scene(void)
{
	put("file", "hello");
	OK(mkdir("dir", 0755));
	put("dir/inner", "x");
	OK(symlink("file", "link"));
	OK(symlink("dir", "dirlink"));
	OK(symlink("nowhere", "dangling"));
	OK(symlink("loop", "loop"));
	OK(symlink("ring2", "ring1"));
	OK(symlink("ring1", "ring2"));
	OK(mkfifo("fifo", 0644));
	OK(mknod("sock", S_IFSOCK | 0644, 0));
}

static const struct {
	const char *path;
	int flags, want;
	const char *text;
} opens[] = {
#define ROW(path, flags, want) \
	{ \
		path, flags, want, #flags \
	}
	ROW("file", O_RDONLY, 0),
	ROW("file", O_WRONLY, 0),
	ROW("file", O_RDWR, 0),
	ROW("file", O_RDWR | O_APPEND, 0),
	ROW("file", O_RDONLY | O_CREAT, 0),
	ROW("file", O_RDWR | O_CREAT | O_EXCL, EEXIST),
	ROW("file", O_RDONLY | O_DIRECTORY, ENOTDIR),
	ROW("file", O_RDONLY | O_NOFOLLOW, 0),
	ROW("file", O_RDWR | O_SYNC, 0),
	ROW("file", O_RDWR | O_DSYNC, 0),
	ROW("file", O_RDONLY | O_NOATIME, 0),
	ROW("file", O_RDONLY | O_NONBLOCK, 0),
	ROW("file", O_PATH, 0),
	ROW("file/", O_RDONLY, ENOTDIR),
	ROW("file/.", O_RDONLY, ENOTDIR),
	ROW("file/..", O_RDONLY, ENOTDIR),
	ROW("file/x", O_RDONLY, ENOTDIR),
	ROW("file/x", O_RDWR | O_CREAT, ENOTDIR),
	ROW("dir", O_RDONLY, 0),
	ROW("dir", O_RDONLY | O_DIRECTORY, 0),
	ROW("dir", O_WRONLY, EISDIR),
	ROW("dir", O_RDWR, EISDIR),
	ROW("dir", O_RDONLY | O_TRUNC, EISDIR),
	ROW("dir", O_RDONLY | O_CREAT, EISDIR),
	ROW("dir", O_RDWR | O_CREAT, EISDIR),
	ROW("dir", O_RDWR | O_CREAT | O_EXCL, EEXIST),
	ROW("dir", O_WRONLY | O_DIRECTORY, EISDIR),
	ROW("dir/", O_RDONLY, 0),
	ROW("dir/.", O_RDONLY, 0),
	ROW("dir/..", O_RDONLY, 0),
	ROW("dir/.", O_RDWR | O_CREAT, EISDIR),
	ROW("dir//inner", O_RDONLY, 0),
	ROW("./dir/../dir/./inner", O_RDONLY, 0),
	ROW("none", O_RDONLY, ENOENT),
	ROW("none", O_RDWR | O_TRUNC, ENOENT),
	ROW("none", O_RDONLY | O_DIRECTORY, ENOENT),
	ROW("none/", O_RDONLY, ENOENT),
	ROW("none/", O_RDWR | O_CREAT, EISDIR),
	ROW("none/x", O_RDONLY, ENOENT),
	ROW("none/x", O_RDWR | O_CREAT, ENOENT),
	ROW("", O_RDONLY, ENOENT),
	ROW("", O_RDWR | O_CREAT, ENOENT),
	ROW("link", O_RDONLY, 0),
	ROW("link", O_RDWR, 0),
	ROW("link", O_RDONLY | O_NOFOLLOW, ELOOP),
	ROW("link", O_RDWR | O_CREAT | O_EXCL, EEXIST),
	ROW("link", O_RDWR | O_CREAT, 0),
	ROW("link", O_RDONLY | O_DIRECTORY, ENOTDIR),
	ROW("link", O_PATH | O_NOFOLLOW, 0),
	ROW("link/", O_RDONLY, ENOTDIR),
	ROW("link/x", O_RDONLY, ENOTDIR),
	ROW("dirlink", O_RDONLY | O_DIRECTORY, 0),
	ROW("dirlink", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, ENOTDIR),
	ROW("dirlink", O_RDONLY | O_NOFOLLOW, ELOOP),
	ROW("dirlink", O_WRONLY, EISDIR),
	ROW("dirlink/", O_RDONLY | O_NOFOLLOW, 0),
	ROW("dirlink/inner", O_RDONLY | O_NOFOLLOW, 0),
	ROW("dangling", O_RDONLY, ENOENT),
	ROW("dangling", O_RDWR | O_CREAT | O_EXCL, EEXIST),
	ROW("dangling", O_RDWR | O_CREAT | O_NOFOLLOW, ELOOP),
	ROW("dangling", O_RDWR | O_CREAT, 0),
	ROW("dangling", O_RDONLY, 0),
	ROW("loop", O_RDONLY, ELOOP),
	ROW("loop", O_RDWR | O_CREAT, ELOOP),
	ROW("loop", O_RDWR | O_CREAT | O_EXCL, EEXIST),
	ROW("loop/x", O_RDONLY, ELOOP),
	ROW("ring1", O_RDONLY, ELOOP),
	ROW("ring1/x", O_RDWR | O_CREAT, ELOOP),
	ROW("fifo", O_RDONLY | O_NONBLOCK, 0),
	ROW("fifo", O_WRONLY | O_NONBLOCK, ENXIO),
	ROW("fifo", O_RDWR, 0),
	ROW("fifo", O_RDONLY | O_DIRECTORY, ENOTDIR),
	ROW("fifo/x", O_RDONLY, ENOTDIR),
	ROW("sock", O_RDONLY, ENXIO),
	ROW("sock", O_RDWR, ENXIO),
	ROW("sock", O_PATH, 0),
	ROW("new", O_RDWR | O_CREAT | O_EXCL, 0),
	ROW("new", O_RDWR | O_CREAT | O_EXCL, EEXIST),
#undef ROW
};

static void open_kinds(void)
{
	scene();
	for (size_t i = 0; i < N_OF(opens); i++) {
		int fd = open(opens[i].path, opens[i].flags, 0644);

		expect(opens[i].want, fd, "open(\"%s\", %s)", opens[i].path, opens[i].text);
		if (fd >= 0)
			close(fd);
	}
	TRUE(has("file", "hello"));
	TRUE(S_ISREG(stat_of("nowhere").st_mode));
	FAILS(EFAULT, syscall(SYS_openat, AT_FDCWD, no_memory, O_RDONLY));
	FAILS(EISDIR, creat("dir/../dir", 0644));
}

static void open_modes(void)
{
	static const struct {
		mode_t mask, mode, want;
	} rows[] = {
		{ 0, 0777, 0777 },   { 022, 0777, 0755 },   { 022, 0666, 0644 },
		{ 077, 0777, 0700 }, { 027, 0666, 0640 },   { 0777, 0777, 0 },
		{ 0, 0, 0 },	     { 0, 0400, 0400 },	    { 0, 04755, 04755 },
		{ 0, 01644, 01644 }, { 022, 04777, 04755 }, { 0, 02755, 02755 },
		{ 0, 0200, 0200 },   { 0, 0111, 0111 },	    { 0577, 0666, 0200 },
	};
	char path[16];

	for (size_t i = 0; i < N_OF(rows); i++) {
		int fd;

		snprintf(path, sizeof(path), "f%zu", i);
		umask(rows[i].mask);
		fd = (int)OK(open(path, O_RDWR | O_CREAT | O_EXCL, rows[i].mode));
		EQ(mode_of(path), rows[i].want);
		EQ(write(fd, "x", 1), 1); /* the mode does not apply to the creating open */
		OK(close(fd));
		EQ(stat_of(path).st_uid, geteuid());
		EQ(stat_of(path).st_gid, getegid());
	}
	umask(022);
	OK(close((int)OK(creat("c", 0666))));
	EQ(mode_of("c"), 0644);
	OK(close((int)OK(open("c", O_RDWR | O_CREAT, 0777)))); /* already exists */
	EQ(mode_of("c"), 0644);
}

static void open_append(void)
{
	int a, b;
	char buf[16] = "";

	put("f", "12345");
	a = (int)OK(open("f", O_RDWR | O_APPEND));
	b = (int)OK(open("f", O_RDWR));
	EQ(lseek(a, 0, SEEK_CUR), 0);
	EQ(write(a, "67", 2), 2);
	EQ(lseek(a, 0, SEEK_CUR), 7);
	EQ(lseek(a, 1, SEEK_SET), 1);
	EQ(read(a, buf, 2), 2);
	EQ(memcmp(buf, "23", 2), 0);
	EQ(write(a, "8", 1), 1);
	TRUE(has("f", "12345678"));
	EQ(pwrite(b, "xyz", 3, 8), 3); /* extends the file through another descriptor */
	EQ(write(a, "9", 1), 1);
	TRUE(has("f", "12345678xyz9"));
	EQ(pwrite(a, "P", 1, 0), 1); /* Linux: O_APPEND appends even with pwrite */
	TRUE(has("f", "12345678xyz9P"));
	OK(ftruncate(b, 2));
	EQ(write(a, "!", 1), 1);
	TRUE(has("f", "12!"));
	OK(fcntl(a, F_SETFL, 0));
	EQ(pwrite(a, "Q", 1, 0), 1);
	TRUE(has("f", "Q2!"));
	OK(fcntl(b, F_SETFL, O_APPEND));
	EQ(write(b, "+", 1), 1);
	TRUE(has("f", "Q2!+"));
	EQ(fcntl(b, F_GETFL) & (O_APPEND | O_ACCMODE), O_APPEND | O_RDWR);
}

static void open_trunc(void)
{
	struct stat before;
	int fd, keep;

	put("f", "content");
	OK(chmod("f", 0640));
	before = stat_of("f");
	keep = (int)OK(open("f", O_RDWR));
	fd = (int)OK(open("f", O_WRONLY | O_TRUNC));
	EQ(stat_of("f").st_size, 0);
	EQ(stat_of("f").st_ino, before.st_ino);
	EQ(mode_of("f"), 0640);
	EQ(pread(keep, &(char){ 0 }, 1, 0), 0);
	EQ(write(fd, "new", 3), 3);
	OK(close((int)OK(open("f", O_WRONLY | O_CREAT | O_TRUNC, 0777))));
	EQ(stat_of("f").st_size, 0);
	EQ(mode_of("f"), 0640);
	put("f", "content");
	FAILS(EEXIST, open("f", O_WRONLY | O_CREAT | O_EXCL | O_TRUNC, 0644));
	TRUE(has("f", "content"));
	OK(symlink("f", "l"));
	FAILS(ELOOP, open("l", O_WRONLY | O_TRUNC | O_NOFOLLOW));
	TRUE(has("f", "content"));
	OK(close((int)OK(open("l", O_WRONLY | O_TRUNC))));
	EQ(stat_of("f").st_size, 0);
}

/* Operations that a descriptor of the wrong kind does not permit. */
static void fd_rights(void)
{
	int r, w, d, p;
	char b[8];

	put("f", "hello");
	OK(mkdir("d", 0755));
	r = (int)OK(open("f", O_RDONLY));
	w = (int)OK(open("f", O_WRONLY));
	d = (int)OK(open("d", O_RDONLY));
	p = (int)OK(open("f", O_PATH));
	FAILS(EBADF, write(r, "x", 1));
	FAILS(EBADF, pwrite(r, "x", 1, 0));
	FAILS(EINVAL, ftruncate(r, 0));
	FAILS(EBADF, fallocate(r, 0, 0, 1));
	FAILS(EACCES, mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, r, 0));
	OK(fsync(r));
	OK(fchmod(r, 0600));
	FAILS(EBADF, read(w, b, 1));
	FAILS(EBADF, pread(w, b, 1, 0));
	FAILS(EACCES, mmap(NULL, 1, PROT_READ, MAP_PRIVATE, w, 0));
	FAILS(EISDIR, read(d, b, 1));
	FAILS(EISDIR, pread(d, b, 1, 0));
	FAILS(EBADF, write(d, "x", 1));
	FAILS(EINVAL, ftruncate(d, 0));
	FAILS(ENODEV, mmap(NULL, 1, PROT_READ, MAP_PRIVATE, d, 0));
	OK(fsync(d));
	OK(fdatasync(d));
	FAILS(EBADF, read(p, b, 1));
	FAILS(EBADF, write(p, "x", 1));
	FAILS(EBADF, fchmod(p, 0644));
	FAILS(EBADF, fchown(p, (uid_t)-1, (gid_t)-1));
	FAILS(EBADF, ftruncate(p, 0));
	FAILS(EBADF, fsync(p));
	FAILS(EBADF, flock(p, LOCK_SH));
	FAILS(EBADF, fgetxattr(p, "user.a", b, 1));
	FAILS(EBADF, mmap(NULL, 1, PROT_READ, MAP_PRIVATE, p, 0));
	TRUE(has("f", "hello"));
}

static void fd_closed(void)
{
	struct flock fl = { .l_type = F_RDLCK };
	struct iovec v = { .iov_base = &fl, .iov_len = 1 };
	struct stat st;
	int fd = (int)OK(open(".", O_RDONLY));
	char b[8];

	OK(close(fd));
	FAILS(EBADF, close(fd));
	FAILS(EBADF, read(fd, b, 1));
	FAILS(EBADF, write(fd, "x", 1));
	FAILS(EBADF, pread(fd, b, 1, 0));
	FAILS(EBADF, pwrite(fd, "x", 1, 0));
	FAILS(EBADF, readv(fd, &v, 1));
	FAILS(EBADF, writev(fd, &v, 1));
	FAILS(EBADF, lseek(fd, 0, SEEK_SET));
	FAILS(EBADF, fstat(fd, &st));
	FAILS(EBADF, ftruncate(fd, 0));
	FAILS(EBADF, fchmod(fd, 0644));
	FAILS(EBADF, fchown(fd, 1, 1));
	FAILS(EBADF, futimens(fd, NULL));
	FAILS(EBADF, fsync(fd));
	FAILS(EBADF, fdatasync(fd));
	FAILS(EBADF, syncfs(fd));
	FAILS(EBADF, fallocate(fd, 0, 0, 1));
	FAILS(EBADF, fchdir(fd));
	FAILS(EBADF, flock(fd, LOCK_SH));
	FAILS(EBADF, fcntl(fd, F_SETLK, &fl));
	FAILS(EBADF, fsetxattr(fd, "user.a", b, 1, 0));
	FAILS(EBADF, fremovexattr(fd, "user.a"));
	FAILS(EBADF, flistxattr(fd, b, 1));
	FAILS(EBADF, copy_file_range(fd, NULL, fd, NULL, 1, 0));
	FAILS(EBADF, openat(fd, "x", O_RDONLY));
	FAILS(EBADF, mkdirat(fd, "x", 0755));
	FAILS(EBADF, unlinkat(fd, "x", 0));
	FAILS(EBADF, dup(fd));
}

static void open_path(void)
{
	struct stat st;
	char b[8] = "", proc[64];
	int p, d;

	put("f", "hello");
	OK(mkdir("d", 0755));
	put("d/g", "inner");
	OK(symlink("f", "l"));
	p = (int)OK(open("l", O_PATH | O_NOFOLLOW));
	OK(fstat(p, &st));
	TRUE(S_ISLNK(st.st_mode));
	EQ(readlinkat(p, "", b, sizeof(b)), 1);
	EQ(b[0], 'f');
	d = (int)OK(open("d", O_PATH | O_DIRECTORY));
	OK(close((int)OK(openat(d, "g", O_RDONLY))));
	FAILS(ENOENT, openat(d, "none", O_RDONLY));
	OK(fchdir(d));
	TRUE(has("g", "inner"));
	OK(chdir(".."));
	p = (int)OK(open("f", O_PATH));
	OK(rename("f", "moved")); /* the inode, whatever its name */
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", p);
	TRUE(has(proc, "hello"));
	OK(fstat(p, &st));
	EQ(st.st_size, 5);
	EQ(fcntl(p, F_GETFL) & O_PATH, O_PATH);
}

static void open_at(void)
{
	int d, f;
	char here[4096], path[4200];

	OK(mkdir("d", 0755));
	put("d/f", "inner");
	d = (int)OK(open("d", O_RDONLY | O_DIRECTORY));
	f = (int)OK(open("d/f", O_RDONLY));
	OK(close((int)OK(openat(d, "f", O_RDONLY))));
	OK(close((int)OK(openat(d, "new", O_RDWR | O_CREAT | O_EXCL, 0600))));
	EQ(mode_of("d/new"), 0600);
	FAILS(ENOTDIR, openat(f, "x", O_RDONLY));
	FAILS(ENOTDIR, mkdirat(f, "x", 0755));
	FAILS(ENOENT, openat(d, "", O_RDONLY));
	FAILS(EBADF, openat(-1, "x", O_RDONLY));
	OK(getcwd(here, sizeof(here)) ? 0 : -1);
	snprintf(path, sizeof(path), "%s/d/f", here);
	OK(close((int)OK(
		openat(-1, path, O_RDONLY)))); /* an absolute path: the descriptor is ignored */
	OK(mkdirat(d, "sub", 0700));
	OK(symlinkat("f", d, "l"));
	OK(linkat(d, "f", AT_FDCWD, "hard", 0));
	OK(renameat(d, "new", AT_FDCWD, "out"));
	OK(mkfifoat(d, "fifo", 0600));
	OK(faccessat(d, "fifo", W_OK, 0));
	OK(fchmodat(d, "f", 0640, 0));
	EQ(mode_of("hard"), 0640);
	OK(rename("d", "moved")); /* the descriptor follows the directory */
	OK(close((int)OK(openat(d, "f", O_RDONLY))));
	OK(unlinkat(d, "sub", AT_REMOVEDIR));
	FAILS(EISDIR, unlinkat(AT_FDCWD, "moved", 0));
	FAILS(EINVAL, unlinkat(d, "f", 0x8000));
}

static void open_unlinked(void)
{
	struct stat st;
	int fd, again;
	char b[16];

	put("f", "old content");
	fd = (int)OK(open("f", O_RDWR));
	OK(unlink("f"));
	OK(fstat(fd, &st));
	EQ(st.st_nlink, 0);
	EQ(st.st_size, 11);
	put("f", "new");
	EQ(pread(fd, b, sizeof(b), 0), 11);
	EQ(memcmp(b, "old content", 11), 0);
	EQ(pwrite(fd, "xx", 2, 11), 2);
	OK(fstat(fd, &st));
	EQ(st.st_size, 13);
	TRUE(has("f", "new"));
	OK(ftruncate(fd, 4));
	OK(fstat(fd, &st));
	EQ(st.st_size, 4);
	OK(fchmod(fd, 0600));
	OK(futimens(fd, NULL));
	OK(fsync(fd));
	again = (int)OK(dup(fd));
	OK(close(fd));
	EQ(read(again, b, sizeof(b)), 4);
	OK(close(again));
	TRUE(has("f", "new"));
}

static void open_removed_dir(void)
{
	struct dirent *e;
	struct stat st;
	char b[64];
	DIR *dir;
	int d, n = 0;

	OK(mkdir("d", 0755));
	d = (int)OK(open("d", O_RDONLY));
	OK(rmdir("d"));
	OK(fstat(d, &st));
	FAILS(ENOENT, openat(d, "f", O_RDWR | O_CREAT, 0644));
	FAILS(ENOENT, mkdirat(d, "s", 0755));
	FAILS(ENOENT, symlinkat("x", d, "l"));
	dir = fdopendir(dup(d));
	while (dir && (e = readdir(dir)))
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	EQ(n, 0);
	TRUE(dir && closedir(dir) == 0);
	OK(fchdir(d));
	FAILS(ENOENT, getcwd(b, sizeof(b)) ? 0 : -1);
	FAILS(ENOENT, open("f", O_RDWR | O_CREAT, 0644));
}

static void open_tmpfile(void)
{
	struct stat st;
	char proc[64];
	int fd = (int)OK(open(".", O_TMPFILE | O_RDWR, 0640));

	OK(fstat(fd, &st));
	EQ(st.st_nlink, 0);
	EQ(st.st_mode, S_IFREG | 0640);
	EQ(write(fd, "temp", 4), 4);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	OK(linkat(AT_FDCWD, proc, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	TRUE(has("named", "temp"));
	EQ(stat_of("named").st_nlink, 1);
	FAILS(EEXIST, linkat(AT_FDCWD, proc, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	OK(close(fd));
	fd = (int)OK(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0640));
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	FAILS(ENOENT, linkat(AT_FDCWD, proc, AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
	OK(close(fd));
	FAILS(EINVAL, open(".", O_TMPFILE | O_RDONLY, 0640));
	FAILS(ENOTDIR, open("named", O_TMPFILE | O_RDWR, 0640));
	FAILS(ENOENT, open("none", O_TMPFILE | O_RDWR, 0640));
}

static void open_descriptors(void)
{
	int a, b, many[200], opened = 0;
	char c;

	put("f", "abcdef");
	a = (int)OK(open("f", O_RDONLY | O_CLOEXEC));
	EQ(fcntl(a, F_GETFD), FD_CLOEXEC);
	b = (int)OK(dup(a));
	EQ(fcntl(b, F_GETFD), 0);
	EQ(read(a, &c, 1), 1);
	EQ(read(b, &c, 1), 1); /* a shared position */
	EQ(c, 'b');
	b = (int)OK(open("f", O_RDONLY));
	EQ(read(b, &c, 1), 1); /* a separate position */
	EQ(c, 'a');
	AS(SELF)
	EQ(read(a, &c, 1), 1);
	EQ(read(a, &c, 1), 1);
	EQ(c, 'd'); /* the child read one from the same position */
	for (size_t i = 0; i < N_OF(many); i++)
		opened += (many[i] = open("f", O_RDWR)) >= 0;
	EQ(opened, N_OF(many));
	for (size_t i = 0; i < N_OF(many); i++)
		close(many[i]);
}

static void open_direct(void)
{
	int fd = (int)OK(open("f", O_RDWR | O_CREAT | O_DIRECT, 0644));
	size_t len = 1 << 18;
	char *b = aligned_alloc(4096, len), *c = aligned_alloc(4096, len);

	pattern_fill(b, len, 1, 0);
	EQ(pwrite(fd, b, len, 0), len);
	EQ(pwrite(fd, b, 4096, (off_t)len + 8192), 4096);
	EQ(pread(fd, c, len, 0), len);
	EQ(pattern_match(c, len, 1, 0), len);
	EQ(pread(fd, c, len, (off_t)len), 3 * 4096);
	EQ(zeros_match(c, 8192), 8192);
	EQ(pattern_match(c + 8192, 4096, 1, 0), 4096);
	OK(close(fd));
	fd = (int)OK(open("f", O_RDONLY)); /* as other opens see it */
	EQ(pread(fd, c, len, 0), len);
	EQ(pattern_match(c, len, 1, 0), len);
	free(b);
	free(c);
}

const struct test_group open_groups[] = {
	{ .name = "open_kinds", .run = open_kinds },
	{ .name = "open_modes", .run = open_modes },
	{ .name = "open_append", .run = open_append },
	{ .name = "open_trunc", .run = open_trunc },
	{ .name = "fd_rights", .run = fd_rights },
	{ .name = "fd_closed", .run = fd_closed },
	{ .name = "open_path", .run = open_path },
	{ .name = "open_at", .run = open_at },
	{ .name = "open_unlinked", .run = open_unlinked },
	{ .name = "open_removed_dir", .run = open_removed_dir },
	{ .name = "open_tmpfile", .run = open_tmpfile, .feature = "tmpfile" },
	{ .name = "open_descriptors", .run = open_descriptors },
	{ .name = "open_direct", .run = open_direct, .feature = "direct" },
	{ 0 },
};
