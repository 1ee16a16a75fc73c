/* Mapped files: mmap shared and private, msync, ends of files, SIGBUS; and execution of
 * programs. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "conform.h"

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

static char *map(int fd, size_t len, int prot, int flags)
{
	char *m = mmap(NULL, len, prot, flags, fd, 0);

	expect(0, (long)m, "mmap of %zu bytes", len);
	if (m == MAP_FAILED)
		_exit(1);
	return m;
}

static void map_shared(void)
{
	size_t len = 5 * 65536;
	int fd = filled("f", len);
	char *m = map(fd, len, PROT_READ | PROT_WRITE, MAP_SHARED), b[100];

	EQ(pattern_match(m, len, 0, 0), len);
	memcpy(m + 70000, "mapped", 6);
	EQ(pread(fd, b, 6, 70000), 6);
	EQ(memcmp(b, "mapped", 6), 0);
	EQ(pwrite(fd, "written", 7, 4093), 7);
	EQ(memcmp(m + 4093, "written", 7), 0);
	OK(msync(m, len, MS_ASYNC));
	OK(msync(m, len, MS_SYNC));
	OK(msync(m, PAGE, MS_SYNC | MS_INVALIDATE));
	FAILS(EINVAL, msync(m, len, MS_SYNC | MS_ASYNC));
	FAILS(EINVAL, msync(m + 1, PAGE, MS_SYNC));
	memcpy(m + len - 4, "tail", 4);
	OK(munmap(m, len));
	FAILS(ENOMEM, msync(m, PAGE, MS_SYNC));
	OK(close(fd));
	fd = (int)OK(open("f", O_RDONLY));
	EQ(pread(fd, b, 100, (off_t)len - 4), 4);
	EQ(memcmp(b, "tail", 4), 0);
	EQ(pread(fd, b, 6, 70000), 6);
	EQ(memcmp(b, "mapped", 6), 0);
}

static void map_private(void)
{
	int fd = filled("f", 2 * PAGE);
	char *m = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE), b[8];

	memcpy(m, "mine", 4);
	EQ(pread(fd, b, 4, 0), 4);
	EQ(pattern_match(b, 4, 0, 0), 4);
	EQ(pwrite(fd, "new", 3, PAGE), 3);
	EQ(pread(fd, b, 3, PAGE), 3);
	EQ(memcmp(m, "mine", 4), 0);
	OK(munmap(m, 2 * PAGE));
	/* a private writable mapping needs no write permission */
	fd = (int)OK(open("f", O_RDONLY));
	m = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	EQ(memcmp(m + PAGE, "new", 3), 0);
	EQ(pattern_match(m, PAGE, 0, 0), PAGE);
}

static void map_readonly(void)
{
	size_t len = 100000;
	int fd = filled("f", len);
	char *m;

	OK(close(fd));
	fd = (int)OK(open("f", O_RDONLY));
	m = map(fd, len, PROT_READ, MAP_SHARED);
	OK(close(fd)); /* the mapping stays without the descriptor */
	EQ(pattern_match(m, len, 0, 0), len);
	EQ(zeros_match(m + len, 2400), 2400); /* the rest of the last page */
	FAILS(EACCES, mprotect(m, PAGE, PROT_READ | PROT_WRITE));
	OK(unlink("f"));
	EQ(pattern_match(m, len, 0, 0), len);
}

static void map_unlinked(void)
{
	int fd = filled("f", PAGE);
	char *m = map(fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);

	OK(close(fd));
	OK(unlink("f"));
	memset(m, 'z', PAGE);
	OK(msync(m, PAGE, MS_SYNC));
	EQ(m[17], 'z');
	OK(munmap(m, PAGE));
}

static void map_processes(void)
{
	int fd = filled("f", 3 * PAGE);
	char *m = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED), b[8];

	AS(SELF)
	{
		int mine = (int)OK(open("f", O_RDWR));
		char *n = map(mine, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);

		memcpy(n + PAGE, "child", 5);
		memcpy(m + 2 * PAGE, "kept", 4);
	}
	EQ(memcmp(m + PAGE, "child", 5), 0);
	EQ(memcmp(m + 2 * PAGE, "kept", 4), 0);
	EQ(pread(fd, b, 5, PAGE), 5);
	EQ(memcmp(b, "child", 5), 0);
}

static int touch_in_child(const char *at)
{
	pid_t p = fork();

	if (p == 0) {
		signal(SIGBUS, SIG_DFL);
		_exit(*(const volatile char *)at == 0 ? 0 : 1);
	}
	return reap(p);
}

static void map_ends(void)
{
	int fd = filled("f", 100), status;
	char *m = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);

	EQ(touch_in_child(m + 101), 0);
	status = touch_in_child(m + PAGE);
	TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	memcpy(m + 98, "abcd", 4); /* two bytes are behind the end and are lost */
	EQ(stat_of("f").st_size, 100);
	OK(ftruncate(fd, 3 * PAGE));
	EQ(zeros_match(m + PAGE, 2 * PAGE), 2 * PAGE);
	m[2 * PAGE] = 'x';
	OK(ftruncate(fd, 50));
	status = touch_in_child(m + 2 * PAGE);
	TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	OK(ftruncate(fd, 3 * PAGE));
	EQ(m[2 * PAGE], 0);
	EQ(pattern_match(m, 50, 0, 0), 50);
	EQ(zeros_match(m + 50, PAGE - 50), PAGE - 50);
}

static void map_errors(void)
{
	int fd = filled("f", PAGE);

	FAILS(EINVAL, mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, 0, fd, 0));
	FAILS(EBADF, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, -1, 0));
	OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1 << 20)); /* only an access would fail */
}

static int run_program(const char *path)
{
	pid_t p = fork();

	if (p == 0) {
		execl(path, path, (char *)NULL);
		_exit(errno);
	}
	return WEXITSTATUS(reap(p));
}

static void exec_here(void)
{
	int in = (int)OK(open("/bin/true", O_RDONLY)), fd;
	int out = (int)OK(open("true", O_WRONLY | O_CREAT, 0755));
	char b[65536];
	ssize_t n;

	while ((n = read(in, b, sizeof(b))) > 0)
		EQ(write(out, b, (size_t)n), n);
	EQ(run_program("./true"), ETXTBSY); /* the file is open for writing */
	OK(close(out));
	EQ(run_program("./true"), 0);
	put("script", "#!/bin/sh\nexit 7\n");
	EQ(run_program("./script"), EACCES);
	OK(chmod("script", 0755));
	EQ(run_program("./script"), 7);
	EQ(run_program("./none"), ENOENT);
	EQ(run_program("."), EACCES);
	EQ(run_program("./script/x"), ENOTDIR);
	fd = (int)OK(open("script", O_RDWR | O_APPEND));
	OK(close(fd));
}

const struct test_group map_groups[] = {
	{ .name = "map_shared", .run = map_shared, .feature = "mmap-shared" },
	{ .name = "map_private", .run = map_private },
	{ .name = "map_readonly", .run = map_readonly },
	{ .name = "map_unlinked", .run = map_unlinked, .feature = "mmap-shared" },
	{ .name = "map_processes", .run = map_processes, .feature = "mmap-shared" },
	{ .name = "map_ends", .run = map_ends, .feature = "mmap-shared" },
	{ .name = "map_errors", .run = map_errors, .feature = "mmap-shared" },
	{ .name = "exec_here", .run = exec_here, .feature = "exec" },
	{ 0 },
};
