/* A cluster of real sheafd processes for one test program. The cluster has its own temporary
 * directory and free ports; a test kills and starts its servers at will. Servers and directory are
 * removed when the program ends, however it ends (on_exit, and PR_SET_PDEATHSIG for a program that
 * is killed).
 *
 * Client processes are this program, executed again: `child_start(NAME, ...)` runs the function
 * that the test's child() selects by NAME. A process that has threads never forks without exec.
 *
 * Threads: the main thread only. Errors: every error is a failed check. */
#ifndef SHEAF_SYS_CLUSTER_H
#define SHEAF_SYS_CLUSTER_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../unit/test.h"
#include "sheaf.h"
#include "sheaf_admin.h"
#include "sheaf_handle.h"

#define CLUSTER_MAX 8
#define CLUSTER_PATH 512
#define METRICS_OFFSET 1000 /* added to a server's port, as 'sheaf init' does */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

struct cluster {
	char dir[CLUSTER_PATH - 64]; /* holds the cluster file, the storage and the logs */
	char conf[CLUSTER_PATH];
	int n;
	uint32_t port; /* port of server 0 */
	pid_t pid[CLUSTER_MAX]; /* 0: not running */
};

struct cluster_opts {
	uint32_t servers; /* 0 means 2 */
	uint32_t stripe_unit; /* bytes; 0 means 64 KiB */
	uint32_t timeout, lease; /* seconds; 0 means 30 and 3 */
	const char *more; /* more lines for the section [cluster], or NULL */
};

/* ---- cleanup at exit ---- */

static struct {
	pid_t owner;
	pid_t pids[64];
	char dirs[16][CLUSTER_PATH];
	int n_dirs;
	bool keep; /* keep the directories of a program that fails */
} cluster_trash;

static inline int cluster_rm_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void cluster_rm(const char *dir)
{
	nftw(dir, cluster_rm_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Prints the last lines of a server's log, to explain a failure. */
static inline void cluster_show_log(const char *dir, int i)
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
static inline void cluster_keep(const char *dir)
{
	char path[CLUSTER_PATH + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/KEEP", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	fprintf(stderr, "kept: %s\n", dir);
}

static inline void cluster_clean(int status, void *arg)
{
	(void)arg;
	if (getpid() != cluster_trash.owner)
		return;
	for (size_t i = 0; i < sizeof(cluster_trash.pids) / sizeof(cluster_trash.pids[0]); i++) {
		if (cluster_trash.pids[i] <= 0)
			continue;
		kill(cluster_trash.pids[i], SIGKILL);
		waitpid(cluster_trash.pids[i], NULL, 0);
	}
	for (int i = 0; i < cluster_trash.n_dirs; i++) {
		for (int k = 0; status && status != 77 && k < CLUSTER_MAX; k++)
			cluster_show_log(cluster_trash.dirs[i], k);
		if (status && status != 77 && cluster_trash.keep)
			cluster_keep(cluster_trash.dirs[i]);
		else
			cluster_rm(cluster_trash.dirs[i]);
	}
}

static inline void trash_pid(pid_t old, pid_t new)
{
	for (size_t i = 0; i < sizeof(cluster_trash.pids) / sizeof(cluster_trash.pids[0]); i++)
		if (cluster_trash.pids[i] == old) {
			cluster_trash.pids[i] = new;
			return;
		}
	CHECK(!"too many processes");
}

static inline void trash_dir(const char *dir)
{
	if (!cluster_trash.owner) {
		cluster_trash.owner = getpid();
		on_exit(cluster_clean, NULL);
	}
	CHECK(cluster_trash.n_dirs < 16);
	snprintf(cluster_trash.dirs[cluster_trash.n_dirs++], CLUSTER_PATH, "%s", dir);
}

/* Creates a directory that is removed when the program ends. */
static inline void temp_dir(char *out, size_t n)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(out, n, "%s/sheaf-sys-XXXXXX", tmp ? tmp : "/tmp");
	CHECK(mkdtemp(out) != NULL);
	trash_dir(out);
}

/* ---- time ---- */

static inline double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static inline void pause_ms(int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* A busy machine may delay any process by seconds. Tests therefore judge speed only when
 * SHEAF_JUDGE_SPEED=1 says that the machine is otherwise idle. */
static inline bool judges_speed(void)
{
	const char *judge = getenv("SHEAF_JUDGE_SPEED");

	return !SANITIZED && judge && strcmp(judge, "1") == 0;
}

/* Checks the condition every 20 ms for at most `s` seconds and returns whether it became true.
 * Conditions that must become true get PATIENCE_S; a passing test does not wait that long. */
#define PATIENCE_S 60
#define WITHIN(s, cond) \
	({ \
		double within_end_ = now_s() + (s); \
		bool within_ok_; \
		while (!(within_ok_ = (cond)) && now_s() < within_end_) \
			pause_ms(20); \
		within_ok_; \
	})

/* ---- processes ---- */

/* Starts argv with `fd` (or -1) kept open. The child is killed when this process dies. */
static inline pid_t spawn(const char *const *argv, int fd)
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
	if (!cluster_trash.owner) {
		cluster_trash.owner = me;
		on_exit(cluster_clean, NULL);
	}
	trash_pid(0, pid);
	return pid;
}

/* Waits for the process and returns its exit status, or 256 + the signal that killed it. */
static inline int reap(pid_t pid)
{
	int st = 0;

	CHECK_EQ(waitpid(pid, &st, 0), pid);
	trash_pid(pid, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 256 + WTERMSIG(st);
}

/* Waits until the process has stopped itself. */
static inline void await_stop(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status));
}

/* Executes this program again as a client: --child NAME ARG... */
static inline pid_t child_start(const char *name, ...)
{
	const char *argv[16] = { "/proc/self/exe", "--child", name };
	va_list ap;
	int n = 3;

	va_start(ap, name);
	while ((argv[n] = va_arg(ap, const char *)) && n < 14)
		n++;
	va_end(ap);
	return spawn(argv, -1);
}

/* ---- a cluster ---- */

static inline bool port_free(uint32_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, r;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	r = bind(fd, (struct sockaddr *)&a, sizeof(a));
	close(fd);
	return r == 0;
}

/* Finds n consecutive ports that are free together with their metrics ports; returns the first. */
static inline uint32_t free_ports(int n)
{
	for (int tries = 0; tries < 1000; tries++) {
		uint32_t base;
		int i = 0;

		CHECK_EQ(getrandom(&base, sizeof(base), 0), (ssize_t)sizeof(base));
		base = 20000 + base % 11000; /* the metrics ports are not ephemeral ports, either */
		while (i < n && port_free(base + (uint32_t)i) &&
		       port_free(base + METRICS_OFFSET + (uint32_t)i))
			i++;
		if (i == n)
			return base;
	}
	CHECK(!"no free ports");
	return 0;
}

/* Returns the whole file as text; the caller frees it. */
static inline char *slurp(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = calloc(1, 65536);

	CHECK(f && text);
	CHECK(fread(text, 1, 65535, f) > 0);
	fclose(f);
	return text;
}

static inline void spill(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	CHECK(f);
	CHECK(fputs(text, f) >= 0 && fclose(f) == 0);
}

/* Replaces the first occurrence of `old` in a file. */
static inline void edit_file(const char *path, const char *old, const char *new)
{
	char *text = slurp(path), *at = strstr(text, old), *out = calloc(1, 131072);

	CHECK(at && out);
	*at = 0;
	snprintf(out, 131072, "%s%s%s", text, new, at + strlen(old));
	spill(path, out);
	free(text);
	free(out);
}

static inline void cluster_make(struct cluster *c, const struct cluster_opts *given)
{
	struct cluster_opts o = given ? *given : (struct cluster_opts){ 0 };
	struct sheaf_init in = { .size = sizeof(in), .stripe_unit = 65536 };
	char line[256];

	memset(c, 0, sizeof(*c));
	in.servers = o.servers ? o.servers : 2;
	if (o.stripe_unit)
		in.stripe_unit = o.stripe_unit;
	c->n = (int)in.servers;
	c->port = in.port = free_ports(c->n + 2); /* spare ports for servers added later */
	temp_dir(c->dir, sizeof(c->dir));
	if (sheaf_init(c->dir, &in)) {
		fprintf(stderr, "sheaf_init: %s\n", sheaf_why());
		CHECK(!"sheaf_init");
	}
	snprintf(c->conf, sizeof(c->conf), "%s/sheaf.conf", c->dir);
	snprintf(line, sizeof(line), "timeout = %u", o.timeout ? o.timeout : 30);
	edit_file(c->conf, "timeout = 30", line);
	snprintf(line, sizeof(line), "lease = %u\n%s", o.lease ? o.lease : 3, o.more ? o.more : "");
	edit_file(c->conf, "lease = 30\n", line);
}

/* Starts server i. Returns the descriptor on which it reports that it is ready. */
static inline int server_spawn(struct cluster *c, int i)
{
	char exe[CLUSTER_PATH], log[CLUSTER_PATH], id[16], fd[16];
	const char *build = getenv("SHEAF_BUILD");
	const char *argv[] = { exe,	"--conf", c->conf,	 "--server", id,
			       "--log", log,	  "--notify-fd", fd,	     NULL };
	int p[2];

	CHECK(build || !"SHEAF_BUILD must name the build directory");
	CHECK_EQ(c->pid[i], 0);
	CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
	snprintf(exe, sizeof(exe), "%s/bin/sheafd", build);
	snprintf(log, sizeof(log), "%s/server%d.log", c->dir, i);
	snprintf(id, sizeof(id), "%d", i);
	snprintf(fd, sizeof(fd), "%d", p[1]);
	c->pid[i] = spawn(argv, p[1]);
	close(p[1]);
	return p[0];
}

/* Waits until server i is ready and closes fd. Returns 0, or its exit status. */
static inline int server_ready(struct cluster *c, int i, int fd)
{
	char line[256] = "";
	int r = 0;

	if (read(fd, line, sizeof(line) - 1) < 5 || strncmp(line, "ready", 5) != 0) {
		fprintf(stderr, "server %d: %s\n", i, line);
		r = reap(c->pid[i]);
		c->pid[i] = 0;
		r = r ? r : -1;
	}
	close(fd);
	return r;
}

/* Starts server i and waits until it is ready. Returns 0, or its exit status. */
static inline int server_up(struct cluster *c, int i)
{
	return server_ready(c, i, server_spawn(c, i));
}

static inline void cluster_up(struct cluster *c)
{
	for (int i = 0; i < c->n; i++)
		if (!c->pid[i])
			CHECK_EQ(server_up(c, i), 0);
}

/* Kills server i with SIGKILL; the process is reaped when this returns. */
static inline void server_kill(struct cluster *c, int i)
{
	CHECK(c->pid[i] > 0);
	CHECK_EQ(kill(c->pid[i], SIGKILL), 0);
	CHECK_EQ(reap(c->pid[i]), 256 + SIGKILL);
	c->pid[i] = 0;
}

/* Stops server i with SIGTERM; it must exit with status 0. */
static inline void server_down(struct cluster *c, int i)
{
	CHECK(c->pid[i] > 0);
	CHECK_EQ(kill(c->pid[i], SIGTERM), 0);
	CHECK_EQ(reap(c->pid[i]), 0);
	c->pid[i] = 0;
}

static inline void cluster_down(struct cluster *c)
{
	for (int i = 0; i < c->n; i++)
		if (c->pid[i])
			server_down(c, i);
}

static inline struct sheaf *client(const char *conf)
{
	struct sheaf *fs = NULL;
	int r = sheaf_connect(conf, &fs);

	if (r)
		fprintf(stderr, "%s: %s: %s\n", conf, sheaf_strerror(r), sheaf_why());
	CHECK_EQ(r, 0);
	return fs;
}

/* A client with direct reads. */
static inline struct sheaf *direct_client(const char *conf)
{
	struct sheaf *fs;

	setenv("SHEAF_DIRECT", "on", 1);
	fs = client(conf);
	unsetenv("SHEAF_DIRECT");
	return fs;
}

static inline struct sheaf_server server_status(struct sheaf *fs, int i)
{
	struct sheaf_server s;

	CHECK_EQ(sheaf_server_status(fs, i, PATIENCE_S * 1000, &s), 0);
	CHECK(s.up);
	return s;
}

/* ---- helpers of many tests ---- */

static inline struct sheaf_file *open_file(struct sheaf *fs, const char *path, int flags)
{
	struct sheaf_file *f = NULL;
	int r = sheaf_open(fs, path, flags, 0644, NULL, &f);

	if (r)
		fprintf(stderr, "open %s: %s\n", path, sheaf_strerror(r));
	CHECK_EQ(r, 0);
	return f;
}

/* Fills p with bytes that depend on seed and offset, so that misplaced data are recognized. */
static inline void pattern(void *p, size_t n, uint64_t seed, uint64_t off)
{
	uint8_t *b = p;

	for (size_t i = 0; i < n; i++) {
		uint64_t x = (off + i) >> 3, s = seed * 1000003 + x;

		b[i] = (uint8_t)(test_random(&s) >> (8 * ((off + i) & 7)));
	}
}

static inline bool is_pattern(const void *p, size_t n, uint64_t seed, uint64_t off)
{
	uint8_t *want = malloc(n ? n : 1);
	bool same;

	CHECK(want);
	pattern(want, n, seed, off);
	same = memcmp(want, p, n) == 0;
	free(want);
	return same;
}

/* Creates a file of n pattern bytes and closes it. */
static inline void make_file(struct sheaf *fs, const char *path, size_t n, uint64_t seed)
{
	struct sheaf_file *f = open_file(fs, path, O_CREAT | O_RDWR | O_TRUNC);
	uint8_t *b = malloc(n ? n : 1);

	CHECK(b);
	pattern(b, n, seed, 0);
	CHECK_EQ(sheaf_pwrite(f, b, n, 0), (ssize_t)n);
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

static inline void check_file(struct sheaf *fs, const char *path, size_t n, uint64_t seed)
{
	struct sheaf_file *f = open_file(fs, path, O_RDONLY);
	uint8_t *b = malloc(n + 1);

	CHECK(b);
	CHECK_EQ(sheaf_pread(f, b, n + 1, 0), (ssize_t)n);
	CHECK(is_pattern(b, n, seed, 0));
	CHECK_EQ(sheaf_close(f), 0);
	free(b);
}

/* ---- main ---- */

/* Runs the tests between begin and end, or one child of a test. child, begin and end may be
 * NULL. */
static inline int sys_run(int (*child)(const char *name, char **arg), void (*begin)(void),
			  void (*end)(void), const struct test *tests, size_t n, int argc,
			  char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--child") == 0)
		return child ? child(argv[2], argv + 3) : 2;
	signal(SIGPIPE, SIG_IGN);
	if (begin)
		begin();
	test_run(tests, n, argc, argv);
	if (end)
		end();
	return 0;
}

#define SYS_MAIN(child, begin, end, ...) \
	int main(int argc, char **argv) \
	{ \
		static const struct test tests[] = { __VA_ARGS__ }; \
		return sys_run(child, begin, end, tests, sizeof(tests) / sizeof(tests[0]), argc, \
			       argv); \
	}

#endif
