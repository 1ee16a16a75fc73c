/* Locks: flock, fcntl by process and by open file, ranges, ownership, waiting, deadlocks, and
 * process exit. */
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "conform.h"

static int lock(int fd, int how, short type, off_t start, off_t len)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };

	return fcntl(fd, how, &fl);
}

/* The lock that conflicts with the given one; type F_UNLCK if there is none. */
static struct flock in_the_way(int fd, int how, short type, off_t start, off_t len)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };

	OK(fcntl(fd, how, &fl));
	return fl;
}

static void lock_whole_files(void)
{
	int a = filled("f", 10), b = (int)OK(open("f", O_RDONLY)), c;

	OK(flock(a, LOCK_SH));
	OK(flock(b, LOCK_SH | LOCK_NB));
	FAILS(EAGAIN, flock(b, LOCK_EX | LOCK_NB)); /* b keeps or loses its shared lock */
	OK(flock(b, LOCK_UN));
	OK(flock(a, LOCK_EX | LOCK_NB)); /* no other holder: the upgrade succeeds */
	FAILS(EAGAIN, flock(b, LOCK_SH | LOCK_NB));
	AS(SELF)
	{
		int d = (int)OK(open("f", O_RDWR));

		FAILS(EAGAIN, flock(d, LOCK_SH | LOCK_NB));
		OK(flock(a, LOCK_EX | LOCK_NB)); /* inherited: the same open file */
	}
	FAILS(EAGAIN, flock(b, LOCK_SH | LOCK_NB));
	c = (int)OK(dup(a));
	OK(close(a));
	FAILS(EAGAIN, flock(b, LOCK_SH | LOCK_NB)); /* c still holds the lock */
	OK(close(c));
	/* even if open for reading; the last close released the other lock, maybe with a delay */
	OK(flock(b, LOCK_EX));
	OK(flock(b, LOCK_UN));
	FAILS(EINVAL, flock(b, 0));
	FAILS(EINVAL, flock(b, LOCK_SH | LOCK_EX | 0x100));
	FAILS(EBADF, flock(-1, LOCK_SH));
	OK(mkdir("d", 0755));
	/* directories can be locked, too */
	OK(flock((int)OK(open("d", O_RDONLY)), LOCK_EX | LOCK_NB));
	FAILS(EAGAIN, flock((int)OK(open("d", O_RDONLY)), LOCK_EX | LOCK_NB));
}

static void lock_ranges(void)
{
	int fd = filled("f", 1000);

	OK(lock(fd, F_SETLK, F_WRLCK, 100, 100));
	OK(lock(fd, F_SETLK, F_RDLCK, 300, 100));
	AS(SELF)
	{
		int mine = (int)OK(open("f", O_RDWR));

		FAILS(EAGAIN, lock(mine, F_SETLK, F_RDLCK, 100, 1));
		FAILS(EAGAIN, lock(mine, F_SETLK, F_WRLCK, 199, 1));
		FAILS(EAGAIN, lock(mine, F_SETLK, F_WRLCK, 50, 51));
		FAILS(EAGAIN, lock(mine, F_SETLK, F_RDLCK, 0, 0));
		OK(lock(mine, F_SETLK, F_WRLCK, 0, 100));
		OK(lock(mine, F_SETLK, F_WRLCK, 200, 100));
		OK(lock(mine, F_SETLK, F_RDLCK, 300, 100));
		FAILS(EAGAIN, lock(mine, F_SETLK, F_WRLCK, 350, 1));
		OK(lock(mine, F_SETLK, F_WRLCK, 400, 0)); /* to the largest offset */
		EQ(in_the_way(mine, F_GETLK, F_WRLCK, 0, 0).l_type, F_WRLCK);
		EQ(in_the_way(mine, F_GETLK, F_WRLCK, 0, 0).l_start, 100);
		EQ(in_the_way(mine, F_GETLK, F_WRLCK, 0, 0).l_len, 100);
		EQ(in_the_way(mine, F_GETLK, F_WRLCK, 0, 0).l_pid, getppid());
		EQ(in_the_way(mine, F_GETLK, F_RDLCK, 300, 100).l_type, F_UNLCK);
		EQ(in_the_way(mine, F_GETLK, F_WRLCK, 350, 1).l_type, F_RDLCK);
	}
	OK(lock(fd, F_SETLK, F_WRLCK, 400, 10)); /* the locks of the child ended with it */
	OK(lock(fd, F_SETLK, F_UNLCK, 120, 20)); /* unlocks the middle of an own lock */
	OK(lock(fd, F_SETLK, F_RDLCK, 150, 10)); /* converts a part to a read lock */
	AS(SELF)
	{
		int mine = (int)OK(open("f", O_RDWR));

		OK(lock(mine, F_SETLK, F_WRLCK, 120, 20));
		FAILS(EAGAIN, lock(mine, F_SETLK, F_RDLCK, 119, 1));
		FAILS(EAGAIN, lock(mine, F_SETLK, F_RDLCK, 140, 1));
		OK(lock(mine, F_SETLK, F_RDLCK, 150, 10));
		FAILS(EAGAIN, lock(mine, F_SETLK, F_RDLCK, 160, 1));
	}
}

static void lock_owners(void)
{
	int a = filled("f", 100), b = (int)OK(open("f", O_RDWR)), r = (int)OK(open("f", O_RDONLY));
	int w = (int)OK(open("f", O_WRONLY));

	OK(lock(a, F_SETLK, F_WRLCK, 0, 0));
	OK(lock(b, F_SETLK, F_WRLCK, 0, 0)); /* the same process: no conflict */
	AS(SELF)
	{
		FAILS(EAGAIN, lock(a, F_SETLK, F_RDLCK, 0, 1)); /* a child does not inherit locks */
		OK(close(a));
	}
	/* the child's close released only its own locks */
	AS(SELF)
	FAILS(EAGAIN, lock(b, F_SETLK, F_RDLCK, 0, 1));
	OK(close(b)); /* any close by this process releases its locks */
	AS(SELF)
	OK(lock(a, F_SETLK, F_WRLCK, 0, 1));
	FAILS(EBADF, lock(r, F_SETLK, F_WRLCK, 0, 1));
	FAILS(EBADF, lock(w, F_SETLK, F_RDLCK, 0, 1));
	OK(lock(r, F_SETLK, F_RDLCK, 0, 1));
	FAILS(EINVAL, lock(a, F_SETLK, 77, 0, 1));
	FAILS(EINVAL, lock(a, F_SETLK, F_RDLCK, -1, 1));
	OK(lock(a, F_SETLK, F_WRLCK, 50, -10)); /* bytes 40 to 49 */
	AS(SELF)
	{
		OK(lock(a, F_SETLK, F_WRLCK, 50, 1));
		FAILS(EAGAIN, lock(a, F_SETLK, F_WRLCK, 49, 1));
		FAILS(EAGAIN, lock(a, F_SETLK, F_WRLCK, 40, 1));
		OK(lock(a, F_SETLK, F_WRLCK, 39, 1));
	}
}

static void lock_by_open_file(void)
{
	int a = filled("f", 100), b = (int)OK(open("f", O_RDWR));

	OK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 10));
	FAILS(EAGAIN, lock(b, F_OFD_SETLK, F_RDLCK, 5, 1)); /* conflicts within one process, too */
	FAILS(EAGAIN, lock(b, F_SETLK, F_RDLCK, 5, 1));
	EQ(in_the_way(b, F_OFD_GETLK, F_WRLCK, 0, 0).l_pid, -1);
	OK(lock(b, F_OFD_SETLK, F_WRLCK, 10, 10));
	AS(SELF)
	{
		OK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 10)); /* released with the open file */
		FAILS(EAGAIN, lock(a, F_OFD_SETLK, F_WRLCK, 10, 1));
		OK(close(a));
	}
	FAILS(EAGAIN, lock(b, F_OFD_SETLK, F_WRLCK, 0, 1));
	OK(close(a));
	/* the last close releases it, maybe with a delay */
	OK(lock(b, F_OFD_SETLKW, F_WRLCK, 0, 1));
}

/* The child waits for a lock of the parent, which sets `released` before it unlocks. */
static void lock_waits(void)
{
	int *released = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = filled("f", 100);
	pid_t p;

	OK(lock(fd, F_SETLK, F_WRLCK, 0, 10));
	p = fork();
	if (p == 0) {
		alarm(120);
		OK(lock(fd, F_SETLKW, F_WRLCK, 5, 1));
		_exit(__atomic_load_n(released, __ATOMIC_ACQUIRE) ? 0 : 1);
	}
	until_asleep(p);
	__atomic_store_n(released, 1, __ATOMIC_RELEASE);
	OK(lock(fd, F_SETLK, F_UNLCK, 0, 10));
	EQ(reap(p), 0);
	*released = 0;
	OK(flock(fd, LOCK_EX));
	p = fork();
	if (p == 0) {
		int mine = open("f", O_RDWR);

		alarm(120);
		close(fd);
		OK(flock(mine, LOCK_SH));
		_exit(__atomic_load_n(released, __ATOMIC_ACQUIRE) ? 0 : 1);
	}
	until_asleep(p);
	__atomic_store_n(released, 1, __ATOMIC_RELEASE);
	OK(flock(fd, LOCK_UN));
	EQ(reap(p), 0);
}

/* Each process holds one lock and waits for the other's: one of them gets an error, the other gets
 * both locks. */
static void lock_deadlock(void)
{
	int fd = filled("f", 100), ready[2], here, status;
	char c;
	pid_t p;

	OK(pipe(ready));
	OK(lock(fd, F_SETLK, F_WRLCK, 0, 1));
	p = fork();
	if (p == 0) {
		int e;

		alarm(120);
		OK(lock(fd, F_SETLK, F_WRLCK, 1, 1));
		EQ(write(ready[1], "x", 1), 1);
		e = lock(fd, F_SETLKW, F_WRLCK, 0, 1) ? errno : 0;
		_exit(e == EDEADLK ? 2 : e ? 3 : 0);
	}
	EQ(read(ready[0], &c, 1), 1);
	until_asleep(p);
	here = lock(fd, F_SETLKW, F_WRLCK, 1, 1) ? errno : 0;
	OK(lock(fd, F_SETLK, F_UNLCK, 0, 0));
	status = reap(p);
	TRUE((here == EDEADLK && status == 0) || (here == 0 && status == 2 << 8));
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void lock_interrupted(void)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	int fd = filled("f", 100);
	pid_t p;

	OK(lock(fd, F_SETLK, F_WRLCK, 0, 1));
	OK(flock(fd, LOCK_EX));
	for (int i = 0; i < 2; i++) {
		p = fork();
		if (p == 0) {
			int mine = open("f", O_RDWR);

			close(fd);
			sigaction(SIGUSR1, &sa, NULL);
			alarm(120);
			if (i)
				FAILS(EINTR, flock(mine, LOCK_EX));
			else
				FAILS(EINTR, lock(mine, F_SETLKW, F_WRLCK, 0, 1));
			_exit(0);
		}
		until_asleep(p);
		/* a signal before the wait does not interrupt it: repeat until the child has
		 * exited */
		while (waitpid(p, NULL, WNOHANG) == 0) {
			kill(p, SIGUSR1);
			usleep(20000);
		}
	}
}

static void lock_killed_holder(void)
{
	int fd = filled("f", 100), ready[2];
	char c;
	pid_t p;

	OK(pipe(ready));
	p = fork();
	if (p == 0) {
		int mine = open("f", O_RDWR);

		alarm(120);
		OK(lock(mine, F_SETLK, F_WRLCK, 0, 0));
		OK(flock(mine, LOCK_EX));
		EQ(write(ready[1], "x", 1), 1);
		pause();
	}
	EQ(read(ready[0], &c, 1), 1);
	FAILS(EAGAIN, lock(fd, F_SETLK, F_WRLCK, 0, 1));
	FAILS(EAGAIN, flock(fd, LOCK_EX | LOCK_NB));
	OK(kill(p, SIGKILL));
	reap(p);
	OK(lock(fd, F_SETLKW, F_WRLCK, 0, 1));
	OK(flock(fd, LOCK_EX));
}

/* Four processes read, add one, and write under a lock. */
static void lock_counts(void)
{
	int fd = filled("f", 0), n = 0;
	pid_t p[4];

	EQ(pwrite(fd, &n, sizeof(n), 0), sizeof(n));
	for (int i = 0; i < 4; i++) {
		p[i] = fork();
		if (p[i] == 0) {
			int mine = open("f", O_RDWR);

			alarm(200);
			for (int k = 0; k < 100; k++) {
				int v, e = i % 2 ? flock(mine, LOCK_EX) : 0;

				/* the two kinds do not conflict with each other, so every process
				 * takes the second one, too */
				e |= lock(mine, F_SETLKW, F_WRLCK, 0, 0);
				e |= pread(mine, &v, sizeof(v), 0) != sizeof(v);
				v++;
				e |= pwrite(mine, &v, sizeof(v), 0) != sizeof(v);
				e |= lock(mine, F_SETLK, F_UNLCK, 0, 0);
				e |= i % 2 ? flock(mine, LOCK_UN) : 0;
				if (e)
					_exit(1);
			}
			_exit(0);
		}
	}
	for (int i = 0; i < 4; i++)
		EQ(reap(p[i]), 0);
	EQ(pread(fd, &n, sizeof(n), 0), sizeof(n));
	EQ(n, 400);
}

const struct test_group lock_groups[] = {
	{ .name = "lock_whole_files", .run = lock_whole_files },
	{ .name = "lock_ranges", .run = lock_ranges },
	{ .name = "lock_owners", .run = lock_owners },
	{ .name = "lock_by_open_file", .run = lock_by_open_file, .feature = "ofd-locks" },
	{ .name = "lock_waits", .run = lock_waits },
	{ .name = "lock_deadlock", .run = lock_deadlock },
	{ .name = "lock_interrupted", .run = lock_interrupted },
	{ .name = "lock_killed_holder", .run = lock_killed_holder },
	{ .name = "lock_counts", .run = lock_counts },
	{ 0 },
};
