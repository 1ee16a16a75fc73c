/* conform DIR: checks whether a file system behaves as POSIX and Linux specify.
 *
 *     conform DIR [--dir2 OTHER] [--user UID:GID] [--lacks A,B] [--only PART] [--long] [--list]
 *
 * DIR is any directory; OTHER is the same directory through another mount. When run by root,
 * permissions are tested as UID:GID (and the two numbers after them); when run by another user
 * those groups are skipped and listed. --lacks names optional features that are known to be
 * missing; checks that need them are skipped.
 *
 * Threads: none; each group is a child process with a time limit. Memory: counters and the list of
 * lacks are shared with the children. Errors: one line for each case that failed, a summary, exit
 * status 1; 2 for wrong usage. */
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "conform.h"

#define GROUP_SECONDS 240

static struct {
	long checks, failed;
} * tally;

static struct {
	const char *dir, *dir2, *lacks, *only;
	bool longer;
	uid_t uid;
	gid_t gid;
	char base[PATH_MAX], base2[PATH_MAX];
} conf = { .uid = 54321, .gid = 54321 };

static const struct test_group *group; /* the group that is running */

char *no_memory = (char *)16;

/* ---- checks ---- */

static void failed(const char *what, const char *want, const char *got)
{
	char line[1024];
	int n = snprintf(line, sizeof(line) - 1, "%s: %s: expected %s, got %s\n", group->name, what,
			 want, got);

	if (n >= (int)sizeof(line) - 1) {
		n = sizeof(line) - 1;
		line[n - 1] = '\n';
	}
	__atomic_fetch_add(&tally->failed, 1, __ATOMIC_RELAXED);
	if (write(STDOUT_FILENO, line, (size_t)n) < 0)
		_exit(1);
}

static const char *error_name(int e)
{
	return e ? strerrorname_np(e) ? strerrorname_np(e) : "an unknown errno" : "success";
}

long expect(int want, long got, const char *fmt, ...)
{
	int e = got == -1 ? errno : 0;
	char what[512];
	va_list ap;

	__atomic_fetch_add(&tally->checks, 1, __ATOMIC_RELAXED);
	if (e != want) {
		va_start(ap, fmt);
		vsnprintf(what, sizeof(what), fmt, ap);
		va_end(ap);
		failed(what, error_name(want), error_name(e));
	}
	errno = e;
	return got;
}

void expect_value(intmax_t want, intmax_t got, const char *what, const char *file, int line)
{
	char text[512], w[32], g[32];

	__atomic_fetch_add(&tally->checks, 1, __ATOMIC_RELAXED);
	if (want == got)
		return;
	snprintf(text, sizeof(text), "%s (%s:%d)", what, file, line);
	snprintf(w, sizeof(w), "%jd", want);
	snprintf(g, sizeof(g), "%jd", got);
	failed(text, w, g);
}

/* True if the comma-separated list contains the name. */
static bool listed(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = list; at && (at = strstr(at, name)); at++)
		if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ','))
			return true;
	return false;
}

bool feature(const char *name)
{
	return !listed(conf.lacks, name);
}

bool is_root(void)
{
	return geteuid() == 0;
}

const char *other(const char *name)
{
	static char names[8][PATH_MAX];
	static unsigned turn;
	char *to = names[turn++ % 8];

	snprintf(to, PATH_MAX, "%.*s/%s/%s", PATH_MAX - 600, conf.base2, group->name, name);
	return to;
}

/* ---- users ---- */

uid_t uid_of(enum who w)
{
	return w == SELF ? geteuid() : conf.uid + (uid_t)(w - USER);
}

gid_t gid_of(enum who w)
{
	return w == SELF ? getegid() : conf.gid + (gid_t)(w - USER);
}

static int drop(enum who w)
{
	gid_t extra = conf.gid;

	if (w == SELF)
		return 0;
	if (setgroups(w == MEMBER, &extra) || setresgid(gid_of(w), gid_of(w), gid_of(w)))
		return -1;
	return setresuid(uid_of(w), uid_of(w), uid_of(w));
}

int reap(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return status;
}

pid_t become(enum who w)
{
	pid_t p = fork();
	int status;

	if (p == 0) {
		alarm(GROUP_SECONDS);
		if (drop(w))
			_exit(3);
		return 0;
	}
	status = reap(p);
	if (status)
		failed("a child", "exit status 0", WIFSIGNALED(status) ? "a signal" : "another");
	return 1;
}

void until_asleep(pid_t pid)
{
	char path[64], text[512];
	struct timespec ms = { .tv_nsec = 1000000 };

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	for (int i = 0; i < 60000; i++) {
		FILE *f = fopen(path, "r");
		char *state = f && fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;

		if (f)
			fclose(f);
		if (state && (state[2] == 'S' || state[2] == 'D'))
			return;
		nanosleep(&ms, NULL);
	}
}

/* ---- files ---- */

void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	expect(0, fd, "making %s", path);
	expect(0, write(fd, text, strlen(text)), "writing %s", path);
	expect(0, close(fd), "closing %s", path);
}

bool has(const char *path, const char *text)
{
	char b[512];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, b, sizeof(b));

	close(fd);
	return n == (ssize_t)strlen(text) && memcmp(b, text, (size_t)n) == 0;
}

uint8_t pattern_at(uint64_t seed, uint64_t offset)
{
	uint64_t z = (seed * 1000003 + (offset >> 3) + 1) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint8_t)((z ^ z >> 29) >> (offset & 7) * 4) | 1; /* never 0 */
}

void pattern_fill(void *to, size_t len, uint64_t seed, uint64_t offset)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = pattern_at(seed, offset + i);
}

size_t pattern_match(const void *b, size_t len, uint64_t seed, uint64_t offset)
{
	size_t i = 0;

	while (i < len && ((const uint8_t *)b)[i] == pattern_at(seed, offset + i))
		i++;
	return i;
}

size_t zeros_match(const void *b, size_t len)
{
	size_t i = 0;

	while (i < len && ((const uint8_t *)b)[i] == 0)
		i++;
	return i;
}

int filled(const char *path, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	char *b = malloc(size + 1);

	expect(0, fd, "making %s", path);
	pattern_fill(b, size, 0, 0);
	expect_value((intmax_t)size, pwrite(fd, b, size, 0), "bytes written", path, 0);
	free(b);
	return fd;
}

off_t size_of(int fd)
{
	struct stat st = { 0 };

	expect(0, fstat(fd, &st), "fstat");
	return st.st_size;
}

struct stat stat_of(const char *path)
{
	struct stat st = { 0 };

	expect(0, lstat(path, &st), "lstat %s", path);
	return st;
}

mode_t mode_of(const char *path)
{
	return stat_of(path).st_mode & 07777;
}

int times_set(const char *path, time_t atime, time_t mtime)
{
	struct timespec ts[2] = { { .tv_sec = atime }, { .tv_sec = mtime } };

	return utimensat(AT_FDCWD, path, ts, AT_SYMLINK_NOFOLLOW);
}

/* ---- times ---- */

static struct {
	int fd;
	const char *path, *changes;
	struct stat before;
} watched[8];
static int n_watched;

/* The times of an open inode; its name may have changed. */
static struct stat times_of(int fd, const char *path)
{
	struct stat st = { 0 };

	expect(0, fstatat(fd, "", &st, AT_EMPTY_PATH), "fstat %s", path);
	return st;
}

void watch(const char *path, const char *changes)
{
	int fd = open(path, O_PATH | O_NOFOLLOW);

	expect(0, fd, "open O_PATH %s", path);
	watched[n_watched].fd = fd;
	watched[n_watched].path = path;
	watched[n_watched].changes = changes;
	watched[n_watched++].before = times_of(fd, path);
}

static int later(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

void tick(void)
{
	struct timespec ms = { .tv_nsec = 1000000 };
	struct stat first, st;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "../clock.%d", (int)getpid());
	fd = open(path, O_RDWR | O_CREAT, 0600);
	expect(0, futimens(fd, NULL), "futimens");
	expect(0, fstat(fd, &first), "fstat");
	for (int i = 0; i < 60000; i++) {
		nanosleep(&ms, NULL);
		if (futimens(fd, NULL) || fstat(fd, &st) || later(st.st_ctim, first.st_ctim))
			break;
	}
	close(fd);
	unlink(path);
}

static void seen_one(const char *what, const char *path, char name, const char *changes,
		     struct timespec before, struct timespec after)
{
	bool change = strchr(changes, name) != NULL;
	bool same = before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec;
	char text[256];

	snprintf(text, sizeof(text), "%s: %ctime of %s", what, name, path);
	__atomic_fetch_add(&tally->checks, 1, __ATOMIC_RELAXED);
	if (change && !later(after, before))
		failed(text, "a later one", same ? "the same" : "an earlier one");
	else if (!change && !same)
		failed(text, "the same", "another");
}

void seen(const char *what)
{
	for (int i = 0; i < n_watched; i++) {
		const struct stat *a = &watched[i].before;
		struct stat b = times_of(watched[i].fd, watched[i].path);
		const char *changes = watched[i].changes;

		close(watched[i].fd);
		seen_one(what, watched[i].path, 'm', changes, a->st_mtim, b.st_mtim);
		seen_one(what, watched[i].path, 'c', changes, a->st_ctim, b.st_ctim);
		if (!strchr(changes, 'a') || feature("atime"))
			seen_one(what, watched[i].path, 'a', changes, a->st_atim, b.st_atim);
	}
	n_watched = 0;
}

/* ---- running ---- */

static const struct test_group *const parts[] = {
	open_groups,   io_groups,   range_groups, blocks_groups, map_groups, name_groups,
	rename_groups, attr_groups, time_groups,  perm_groups,	 acl_groups, xattr_groups,
	dir_groups,    lock_groups, limit_groups, self_groups,	 two_groups,
};

/* rm(1) goes down by descriptors. Paths of 2,000 directories would be looked up from their root
 * each time: a million requests over a network. */
static int remove_tree(const char *path)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		execlp("rm", "rm", "-rf", "--", path, NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static const char *why_not(const struct test_group *g)
{
	if (g->needs & NEEDS_ROOT && !is_root())
		return "needs root";
	if (g->needs & NEEDS_TWO && !conf.dir2)
		return "needs --dir2";
	if (g->needs & NEEDS_LONG && !conf.longer)
		return "needs --long";
	if (g->feature && !feature(g->feature))
		return "lacks it";
	return NULL;
}

static void run_here(const struct test_group *g)
{
	char path[PATH_MAX + 64];

	alarm(GROUP_SECONDS);
	umask(022);
	snprintf(path, sizeof(path), "%s/%s", conf.base, g->name);
	if (OK(mkdir(path, 0755)) || OK(chdir(path)))
		_exit(1);
	g->run();
	_exit(0);
}

static void run_group(const struct test_group *g)
{
	pid_t p;
	int status;

	group = g;
	p = fork();
	if (p == 0)
		run_here(g);
	status = reap(p);
	if (WIFSIGNALED(status))
		failed("the group", "its end", strsignal(WTERMSIG(status)));
	else if (status)
		failed("the group", "exit status 0", "another");
}

/* Returns the number of groups that were skipped. */
static int run_all(void)
{
	int n = 0;

	for (size_t i = 0; i < N_OF(parts); i++)
		for (const struct test_group *g = parts[i]; g->name; g++) {
			const char *why = why_not(g);

			if (conf.only && !strstr(g->name, conf.only))
				continue;
			if (why)
				printf("not run: %s: %s\n", g->name, why);
			else
				run_group(g);
			n += why != NULL;
			fflush(stdout);
		}
	return n;
}

static int list(void)
{
	for (size_t i = 0; i < N_OF(parts); i++)
		for (const struct test_group *g = parts[i]; g->name; g++)
			printf("%s%s%s\n", g->name, g->feature ? " " : "",
			       g->feature ? g->feature : "");
	return 0;
}

static int usage(void)
{
	fputs("usage: conform DIR [--dir2 OTHER] [--user UID:GID] [--lacks A,B] [--only PART] "
	      "[--long] [--list]\n",
	      stderr);
	return 2;
}

static int parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *v = argv[i + 1];

		if (!strcmp(a, "--long"))
			conf.longer = true;
		else if (a[0] != '-' && !conf.dir)
			conf.dir = a;
		else if (!v)
			return -1;
		else if (!strcmp(a, "--dir2"))
			conf.dir2 = argv[++i];
		else if (!strcmp(a, "--lacks"))
			conf.lacks = argv[++i];
		else if (!strcmp(a, "--only"))
			conf.only = argv[++i];
		else if (strcmp(a, "--user") ||
			 sscanf(argv[++i], "%u:%u", &conf.uid, &conf.gid) != 2)
			return -1;
	}
	return conf.dir && conf.uid && conf.gid ? 0 : -1;
}

/* Makes the directory of all groups, as seen through both mounts. */
static int prepare(void)
{
	char real[PATH_MAX];

	if (!realpath(conf.dir, real))
		return -1;
	snprintf(conf.base, sizeof(conf.base), "%.*s/conform.%d", PATH_MAX - 64, real,
		 (int)getpid());
	if (conf.dir2 && !realpath(conf.dir2, real))
		return -1;
	snprintf(conf.base2, sizeof(conf.base2), "%.*s/conform.%d", PATH_MAX - 64, real,
		 (int)getpid());
	return mkdir(conf.base, 0755) || chmod(conf.base, 0755);
}

int main(int argc, char **argv)
{
	static const struct test_group whole = { .name = "conform" };
	int missed;

	if (argc == 2 && !strcmp(argv[1], "--list"))
		return list();
	if (parse(argc, argv))
		return usage();
	tally = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	group = &whole;
	if (tally == MAP_FAILED || prepare()) {
		fprintf(stderr, "conform: %s: %s\n", conf.dir, strerror(errno));
		return 1;
	}
	missed = run_all();
	group = &whole;
	OK(remove_tree(conf.base));
	printf("conform: %ld checks, %ld failed, %d groups not run\n", tally->checks, tally->failed,
	       missed);
	return tally->failed ? 1 : 0;
}
