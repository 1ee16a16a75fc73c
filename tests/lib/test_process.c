#include <sys/prctl.h>

#include "test_process.h"
#include "cluster.h"

/* ---- cleanup at exit ---- */

static struct {
	pid_t owner;
	pid_t pids[64];
	char dirs[16][CLUSTER_PATH];
	int n_dirs;
	bool keep; /* keep the directories of a program that fails */
} trash;

static int trash_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void trash_remove(const char *dir)
{
	nftw(dir, trash_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Prints the last lines of a server's log, to explain a failure. */
static void cluster_show_log(const char *dir, int i)
{
	char path[CLUSTER_PATH + 32], text[4096];
	ssize_t n;
	off_t end;
	int fd;

	snprintf(path, sizeof(path), "%s/server%d.log", dir, i);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	end = lseek(fd, 0, SEEK_END);
	n = pread(fd, text, sizeof(text),
		  end > (off_t)sizeof(text) ? end - (off_t)sizeof(text) : 0);
	if (n > 0)
		fprintf(stderr, "---- the end of the log of server %d\n%.*s", i, (int)n, text);
	close(fd);
}

/* The test runner does not remove a directory that contains the file KEEP. */
static void cluster_keep(const char *dir)
{
	char path[CLUSTER_PATH + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/KEEP", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	fprintf(stderr, "kept: %s\n", dir);
}

static void cluster_clean(int status, void *arg)
{
	(void)arg;
	if (getpid() != trash.owner)
		return;
	for (size_t i = 0; i < sizeof(trash.pids) / sizeof(trash.pids[0]); i++) {
		if (trash.pids[i] <= 0)
			continue;
		kill(trash.pids[i], SIGKILL);
		waitpid(trash.pids[i], NULL, 0);
	}
	for (int i = 0; i < trash.n_dirs; i++) {
		for (int k = 0; status && status != 77 && k < CLUSTER_MAX; k++)
			cluster_show_log(trash.dirs[i], k);
		if (status && status != 77 && trash.keep)
			cluster_keep(trash.dirs[i]);
		else
			trash_remove(trash.dirs[i]);
	}
}

static void trash_pid(pid_t old, pid_t new)
{
	for (size_t i = 0; i < sizeof(trash.pids) / sizeof(trash.pids[0]); i++)
		if (trash.pids[i] == old) {
			trash.pids[i] = new;
			return;
		}
	CHECK(!"too many processes");
}

static void trash_dir(const char *dir)
{
	if (!trash.owner) {
		trash.owner = getpid();
		on_exit(cluster_clean, NULL);
	}
	CHECK(trash.n_dirs < 16);
	snprintf(trash.dirs[trash.n_dirs++], CLUSTER_PATH, "%s", dir);
}

void temp_dir(char *out, size_t n)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(out, n, "%s/sheaf-sys-XXXXXX", tmp ? tmp : "/tmp");
	CHECK(mkdtemp(out) != NULL);
	trash_dir(out);
}

/* ---- time ---- */

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void pause_ms(int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

bool judges_speed(void)
{
	const char *judge = getenv("SHEAF_JUDGE_SPEED");

	return !SANITIZED && judge && strcmp(judge, "1") == 0;
}

static bool is_slow(void)
{
	const char *slow = getenv("SHEAF_TEST_SLOW");

	return slow && strcmp(slow, "1") == 0;
}

int scaled(int n)
{
	return is_slow() ? (n + 9) / 10 : n;
}

int patient(int n)
{
	return is_slow() ? 5 * n : n;
}

void keep_failed_dirs(void)
{
	trash.keep = true;
}

/* ---- processes ---- */

pid_t process_start(const char *const *argv, int fd)
{
	pid_t me = getpid(), pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != me)
			_exit(1);
		if (fd >= 0)
			fcntl(fd, F_SETFD, 0);
		execv(argv[0], (char *const *)(uintptr_t)argv);
		fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (!trash.owner) {
		trash.owner = me;
		on_exit(cluster_clean, NULL);
	}
	trash_pid(0, pid);
	return pid;
}

int process_wait(pid_t pid)
{
	int st = 0;

	CHECK_EQ(waitpid(pid, &st, 0), pid);
	trash_pid(pid, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 256 + WTERMSIG(st);
}

void process_await_stop(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status));
}

pid_t child_start(const char *name, ...)
{
	const char *argv[16] = { "/proc/self/exe", "--child", name };
	va_list ap;
	int n = 3;

	va_start(ap, name);
	while ((argv[n] = va_arg(ap, const char *)) && n < 14)
		n++;
	va_end(ap);
	return process_start(argv, -1);
}
