/* sheaf bench mount: ordinary programs on `sheaf mount` and on a passthrough file system over the
 * same storage (bench_fuse.c), which shows the cost of FUSE itself; large reads also on a
 * passthrough that does not copy the data.
 *
 * Every job uses its own files below either mount, through system calls. Data to read are dropped
 * from the page cache of the mount, which is verified, or read with O_DIRECT; a write is a whole
 * file from open to close, so that no data stay in a cache; a stat is not answered from a cache. A
 * listing starts after the kernel's cached names have expired. "untar and compile" runs tar and
 * make in a shell. The memory of the mount process is sampled before and after some thousand mixed
 * operations; with --long: after a million. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define FILE_SIZE (128 * MIB) /* read or written by one job */
#define BLOCK MIB
#define PAGE (4 * KIB)
#define LISTED 10000 /* names; a tenth for a single round, as for the counts below */
#define EXPIRED_NS (1100 * NSEC_PER_MSEC) /* longer than the kernel caches names (1 s) */
#define UNITS 49 /* source and header pairs in the project, beside main.c and Makefile */
#define STEPS 20 /* functions per unit */
#define CHURNED 5 /* operations per step of the churn */
#define CHURN (10 * 1000) /* operations per round */
#define CHURN_LONG (1000 * 1000) /* operations in all rounds */

#define LIST "list with attributes"
#define COMPILE "untar and compile"
#define BEFORE "memory before"
#define AFTER "memory after operations"

/* ---- what a job does ---- */

static int failed(struct bench_worker *w, const char *what)
{
	return bench_why(w, what, errno ? -errno : -EIO);
}

/* A page-aligned address in the buffer. */
static char *aligned(struct bench_worker *w)
{
	return (char *)(((uintptr_t)w->buf + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
}

static int open_file(struct bench_worker *w, int flags)
{
	w->fd = open(bench_path(w, "file.%d", w->index), flags | O_CLOEXEC, 0600);
	return w->fd < 0 ? failed(w, "open") : 0;
}

static int close_file(struct bench_worker *w)
{
	int r = w->fd >= 0 && close(w->fd) ? failed(w, "close") : 0;

	w->fd = -1;
	return r;
}

/* Writes a whole file, from open to close. */
static int write_once(struct bench_worker *w)
{
	int r = open_file(w, O_WRONLY | O_CREAT), e;

	errno = 0;
	for (uint64_t at = 0; !r && at < FILE_SIZE; at += BLOCK)
		if (pwrite(w->fd, aligned(w), BLOCK, (off_t)at) != (ssize_t)BLOCK)
			r = failed(w, "write");
	e = close_file(w);
	return r ? r : e;
}

/* Drops the file from the page cache of the mount, so that reads go through FUSE. */
static int drop_cache(struct bench_worker *w)
{
	unsigned char *there = (unsigned char *)w->buf;
	size_t n = FILE_SIZE / PAGE, resident = 0;
	void *map;

	posix_fadvise(w->fd, 0, 0, POSIX_FADV_DONTNEED);
	map = mmap(NULL, FILE_SIZE, PROT_READ, MAP_PRIVATE, w->fd, 0);
	if (map == MAP_FAILED || mincore(map, FILE_SIZE, there))
		return failed(w, "mincore");
	munmap(map, FILE_SIZE);
	for (size_t i = 0; i < n; i++)
		resident += there[i] & 1;
	return resident > n / 100 ? bench_why(w, "the page cache keeps the file", -EBUSY) : 0;
}

static int read_prepare(struct bench_worker *w)
{
	int r = open_file(w, O_RDONLY);

	return r ? r : drop_cache(w);
}

static int direct_prepare(struct bench_worker *w)
{
	return open_file(w, O_RDONLY | O_DIRECT);
}

/* Reads the next block; with job.count, a random block. */
static int read_once(struct bench_worker *w)
{
	const uint64_t size = w->job->size, n = FILE_SIZE / size;
	uint64_t k = w->job->count ? hash_u64(w->i << 8 | (uint64_t)w->index) % n : w->i % n;

	errno = 0;
	if (pread(w->fd, aligned(w), size, (off_t)(k * size)) != (ssize_t)size)
		return failed(w, "read");
	return 0;
}

static int create_once(struct bench_worker *w)
{
	int fd = open(bench_made_path(w, w->made), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return failed(w, "create");
	w->made++;
	return close(fd) ? failed(w, "close") : 0;
}

static int stat_once(struct bench_worker *w)
{
	struct statx st;

	if (statx(AT_FDCWD, bench_made_path(w, w->i % w->made), AT_STATX_FORCE_SYNC,
		  STATX_BASIC_STATS, &st))
		return failed(w, "stat");
	return 0;
}

static int unlink_once(struct bench_worker *w)
{
	return unlink(bench_made_path(w, w->i)) ? failed(w, "unlink") : 0;
}

static int wait_expired(struct bench_worker *w)
{
	const struct timespec t = { EXPIRED_NS / NSEC_PER_SEC, EXPIRED_NS % NSEC_PER_SEC };

	(void)w;
	nanosleep(&t, NULL);
	return 0;
}

/* Lists with attributes, as ls -l does. */
static int list_once(struct bench_worker *w)
{
	DIR *d = opendir(bench_path(w, "shown"));
	struct dirent *e;
	struct stat st;
	int n = 0, r = 0;

	if (!d)
		return failed(w, "opendir");
	errno = 0;
	while (!r && (e = readdir(d))) {
		r = fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW);
		n += e->d_name[0] != '.';
	}
	r = r || errno || n != (int)w->job->size ? failed(w, "list") : 0;
	closedir(d);
	return r;
}

/* The life of a file: create and write, stat, read, rename, remove. */
static int churn_once(struct bench_worker *w)
{
	char path[CLI_PATH_MAX];
	const char *other;
	struct stat st;
	int fd, r = 0;

	strcpy(path, bench_made_path(w, w->i));
	other = bench_made_path(w, w->i + UINT32_MAX);
	errno = 0;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed(w, "create");
	r |= pwrite(fd, aligned(w), PAGE, 0) != (ssize_t)PAGE;
	r |= close(fd) || stat(path, &st);
	fd = r ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	r |= fd < 0 || pread(fd, aligned(w), PAGE, 0) != (ssize_t)PAGE || close(fd);
	r |= r || rename(path, other) || unlink(other);
	return r ? failed(w, "operations of all sorts") : 0;
}

/* ---- preparing ---- */

static int make_dirs(struct bench_worker *w)
{
	bool shared = w->index == 0;

	if ((shared &&
	     (mkdir(bench_path(w, "all"), 0700) || mkdir(bench_path(w, "shown"), 0700))) ||
	    mkdir(bench_path(w, "c%d", w->index), 0700))
		return failed(w, "mkdir");
	return 0;
}

/* Creates this job's share of the listed names; width: the number of jobs. */
static int make_listed(struct bench_worker *w)
{
	int fd;

	for (uint32_t k = (uint32_t)w->index; k < w->job->size; k += w->job->width) {
		fd = open(bench_path(w, "shown/name-%05u", k),
			  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || close(fd))
			return failed(w, "make names");
	}
	return 0;
}

static uint64_t tenth_of(const struct bench *b, uint64_t n)
{
	return b->rounds == 1 ? n / 10 : n;
}

static int on_sides(struct bench *b, int sides, bench_fn *once)
{
	int r = 0;

	for (int s = 0; !r && s < sides; s++)
		r = bench_once_in(b, b->sides[s].dir, b->most_clients, once, tenth_of(b, LISTED),
				  (uint32_t)b->most_clients);
	return r;
}

/* ---- the project to compile ---- */

static FILE *source(const char *dir, const char *name)
{
	char path[CLI_PATH_MAX];

	return cli_join(path, dir, name) ? NULL : fopen(path, "we");
}

static int put_unit(const char *dir, int k, int units)
{
	char name[32];
	FILE *f;

	snprintf(name, sizeof(name), "unit%02d.h", k);
	f = source(dir, name);
	if (!f)
		return -errno;
	fprintf(f,
		"#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
		"#define UNIT%02d %d\nint unit%02d(int n);\n",
		k, k, k);
	if (fclose(f))
		return -errno;
	snprintf(name, sizeof(name), "unit%02d.c", k);
	f = source(dir, name);
	if (!f)
		return -errno;
	fprintf(f, "#include \"unit%02d.h\"\n#include \"unit%02d.h\"\n", k, (k + 1) % units);
	for (int i = 0; i < STEPS; i++)
		fprintf(f,
			"static int step%d(int n)\n{\n\tchar text[32];\n\n"
			"\tsnprintf(text, sizeof(text), \"%%d\", n * %d + UNIT%02d);\n"
			"\treturn (int)strlen(text) + atoi(text);\n}\n\n",
			i, i + 3, k);
	fprintf(f, "int unit%02d(int n)\n{\n", k);
	for (int i = 0; i < STEPS; i++)
		fprintf(f, "\tn ^= step%d(n);\n", i);
	fprintf(f, "\treturn n;\n}\n");
	return fclose(f) ? -errno : 0;
}

static int put_program(const char *dir, int units)
{
	FILE *f = source(dir, "Makefile");

	if (!f)
		return -errno;
	fputs("program: $(patsubst %.c,%.o,$(wildcard *.c))\n\tcc -o $@ $^\n"
	      "%.o: %.c\n\tcc -O0 -c -o $@ $<\n",
	      f);
	if (fclose(f))
		return -errno;
	f = source(dir, "main.c");
	if (!f)
		return -errno;
	for (int k = 0; k < units; k++)
		fprintf(f, "#include \"unit%02d.h\"\n", k);
	fprintf(f, "int main(void)\n{\n\tint n = 1;\n\n");
	for (int k = 0; k < units; k++)
		fprintf(f, "\tn ^= unit%02d(n);\n", k);
	fprintf(f, "\treturn 0;\n}\n");
	return fclose(f) ? -errno : 0;
}

/* Creates the project beside the servers, as a tar file. 1: compiler, make or tar is missing. */
static int make_project(struct bench *b)
{
	int units = (int)tenth_of(b, UNITS);
	char dir[CLI_PATH_MAX];
	int r = bench_shell(b, NULL, "command -v cc && command -v make && command -v tar", NULL,
			    NULL);

	if (r == -EIO)
		return 1;
	snprintf(dir, sizeof(dir), "%s/project", b->place.dir);
	if (!r && mkdir(dir, 0700))
		r = -errno;
	for (int k = 0; !r && k < units; k++)
		r = put_unit(dir, k, units);
	if (!r)
		r = put_program(dir, units);
	if (r && r != -EINTR)
		cli_fail_host(b->c, dir, r);
	return r ? r :
		   bench_shell(b, "tar", "tar -C \"$1\" -cf \"$1\"/project.tar project",
			       b->place.dir, NULL);
}

static int compile(struct bench *b, struct bench_case *c, double *value)
{
	uint64_t start = time_now();
	int r = bench_shell(b, COMPILE,
			    "tar -C \"$1\" -xf \"$2\"/project.tar && "
			    "make -s -j2 -C \"$1\"/project && \"$1\"/project/program",
			    c->job.path, b->place.dir);

	*value = (double)(time_now() - start) / 1e9;
	return r ? r : bench_shell(b, "rm", "rm -r \"$1\"/project", c->job.path, NULL);
}

/* ---- memory ---- */

static int memory_now(struct bench *b, struct bench_case *c, double *value)
{
	(void)c;
	*value = bench_fuse_memory(&b->sides[BENCH_SHEAF]);
	return 0;
}

static int memory_after(struct bench *b, struct bench_case *c, double *value)
{
	struct bench_result result[BENCH_MAX_CLIENTS];
	int r = bench_clients_run(b, &c->job, c->workers, result);

	return r ? r : memory_now(b, c, value);
}

/* ---- the benchmark ---- */

/* Adds one case of one side; its row is named "SIDE: what". */
static void add(struct bench *b, int side, const char *what, int jobs, struct bench_case c)
{
	c.workers = jobs;
	snprintf(c.job.path, sizeof(c.job.path), "%s", b->sides[side].dir);
	bench_case_add(b, c, "%s: %s", b->sides[side].name, what);
}

static const struct {
	const char *what;
	int sides;
	struct bench_case c;
} data_cases[] = {
	{ "read",
	  BENCH_SIDES,
	  { .job = { .prepare = read_prepare,
		     .once = read_once,
		     .finish = close_file,
		     .size = BLOCK,
		     .max_ops = FILE_SIZE / BLOCK },
	    .bytes = BLOCK,
	    .figure = BENCH_BANDWIDTH,
	    .wait_idle = true } },
	{ "write",
	  BENCH_WHOLE_SIDES,
	  { .job = { .once = write_once, .size = FILE_SIZE },
	    .bytes = BLOCK,
	    .figure = BENCH_BANDWIDTH,
	    .wait_idle = true } },
	{ "random read",
	  BENCH_WHOLE_SIDES,
	  { .job = { .prepare = direct_prepare,
		     .once = read_once,
		     .finish = close_file,
		     .size = PAGE,
		     .count = 1 },
	    .bytes = PAGE,
	    .wait_idle = true } },
};

static void add_data(struct bench *b, int jobs)
{
	for (size_t i = 0; i < ARRAY_LEN(data_cases); i++)
		for (int s = 0; s < data_cases[i].sides; s++)
			add(b, s, data_cases[i].what, jobs, data_cases[i].c);
}

static void add_names(struct bench *b, int side, int jobs, uint32_t shared)
{
	static const char *const names[][2] = { { "create", "create, one directory" },
						{ "stat", "stat, one directory" },
						{ "unlink", "unlink, one directory" } };
	const struct bench_job steps[] = {
		{ .once = create_once, .max_ops = BENCH_MAX_FILES, .count = shared },
		{ .once = stat_once, .count = shared },
		{ .once = unlink_once, .all_made = true, .count = shared },
	};

	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		add(b, side, names[i][shared], jobs,
		    (struct bench_case){ .job = steps[i], .wait_idle = true });
}

static void add_others(struct bench *b, int side, bool project)
{
	const struct bench_job list = { .prepare = wait_expired,
					.once = list_once,
					.max_ops = 1,
					.size = tenth_of(b, LISTED) };

	add(b, side, LIST, 1, (struct bench_case){ .job = list, .wait_idle = true });
	if (project)
		add(b, side, COMPILE, 1,
		    (struct bench_case){ .custom = compile, .unit = "s", .wait_idle = true });
}

static void add_memory(struct bench *b)
{
	uint64_t ops = b->long_form ? CHURN_LONG / (uint64_t)b->rounds : tenth_of(b, CHURN);
	int jobs = b->most_clients;
	const struct bench_job churn = { .once = churn_once,
					 .max_ops = ops / CHURNED / (uint64_t)jobs + 1 };

	add(b, BENCH_SHEAF, BEFORE, 1, (struct bench_case){ .custom = memory_now, .unit = "MiB" });
	add(b, BENCH_SHEAF, AFTER, jobs,
	    (struct bench_case){ .job = churn, .custom = memory_after, .unit = "MiB" });
}

/* Sides alternate, so that compared cases are measured one after the other. */
static int setup(struct bench *b)
{
	int r = bench_fuse_open(b), project;

	if (!r)
		r = on_sides(b, BENCH_WHOLE_SIDES, make_dirs);
	if (!r)
		r = on_sides(b, BENCH_WHOLE_SIDES, make_listed);
	if (!r)
		r = on_sides(b, BENCH_SIDES, write_once);
	project = r ? r : make_project(b);
	if (project < 0)
		return project;
	for (int i = 0; i < b->n_clients; i++) {
		add_data(b, b->clients[i]);
		for (uint32_t shared = 0; shared < 2; shared++)
			for (int s = 0; s < BENCH_WHOLE_SIDES; s++)
				add_names(b, s, b->clients[i], shared);
	}
	for (int s = 0; s < BENCH_WHOLE_SIDES; s++)
		add_others(b, s, project == 0);
	add_memory(b);
	return 0;
}

/* ---- judging ---- */

static const struct bench_row *row_of(struct bench *b, int side, const char *what, int jobs,
				      uint64_t bytes)
{
	char name[64];

	snprintf(name, sizeof(name), "%s: %s", b->sides[side].name, what);
	return bench_find(b, name, (uint32_t)jobs, bytes, 0);
}

/* Judged in memory only: on disk only Sheaf makes names durable. need 0: shown, not judged. */
static const struct mount_ratio {
	const char *name, *what;
	int jobs;
	uint64_t bytes;
	enum bench_sense sense;
	double need;
} ratios[] = {
	{ "mount_read1", "read", 1, BLOCK, BENCH_AT_LEAST, 0.7 },
	{ "mount_read4", "read", 4, BLOCK, BENCH_AT_LEAST, 0.7 },
	{ "mount_write1", "write", 1, BLOCK, BENCH_AT_LEAST, 0.5 },
	{ "mount_write4", "write", 4, BLOCK, BENCH_AT_LEAST, 0.5 },
	{ "mount_random1", "random read", 1, PAGE, BENCH_AT_LEAST, 0.35 },
	{ "mount_random4", "random read", 4, PAGE, BENCH_AT_LEAST, 0.35 },
	{ "mount_create1", "create", 1, 0, BENCH_AT_LEAST, 0 },
	{ "mount_create4", "create", 4, 0, BENCH_AT_LEAST, 0.3 },
	{ "mount_create4_one_directory", "create, one directory", 4, 0, BENCH_AT_LEAST, 0 },
	{ "mount_stat1", "stat", 1, 0, BENCH_AT_LEAST, 0 },
	{ "mount_stat4", "stat", 4, 0, BENCH_AT_LEAST, 0.27 },
	{ "mount_stat4_one_directory", "stat, one directory", 4, 0, BENCH_AT_LEAST, 0 },
	{ "mount_unlink1", "unlink", 1, 0, BENCH_AT_LEAST, 0 },
	{ "mount_unlink4", "unlink", 4, 0, BENCH_AT_LEAST, 0.14 },
	{ "mount_unlink4_one_directory", "unlink, one directory", 4, 0, BENCH_AT_LEAST, 0 },
	{ "mount_list", LIST, 1, 0, BENCH_AT_LEAST, 0 },
	{ "mount_compile", COMPILE, 1, 0, BENCH_AT_MOST, 2 },
};

struct cell {
	const char *what;
	uint64_t bytes;
};

/* Plots both sides by operation and number of jobs. */
static void plot(struct bench *b, const char *name, const char *title, const struct cell *cells,
		 int n)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	for (int s = 0; s < BENCH_WHOLE_SIDES; s++)
		bench_plot_series(p, "%s", b->sides[s].name);
	for (int k = 0; k < n; k++)
		for (int i = 0; i < b->n_clients && p->n_groups < BENCH_PLOT_MAX; i++) {
			int jobs = b->clients[i];
			int g = bench_plot_group(p, "%s, %d", cells[k].what, jobs);

			for (int s = 0; s < BENCH_WHOLE_SIDES; s++)
				p->cell[g][s] = row_of(b, s, cells[k].what, jobs, cells[k].bytes);
		}
}

static void compare(struct bench *b, const struct mount_ratio *k, int side, const char *suffix)
{
	const struct bench_row *r;
	char name[64];

	snprintf(name, sizeof(name), "%s%s", k->name, suffix);
	r = bench_ratio(b, name, row_of(b, BENCH_SHEAF, k->what, k->jobs, k->bytes),
			row_of(b, side, k->what, k->jobs, k->bytes));
	if (r && k->need > 0 && b->place.in_memory)
		bench_bar(b, r, k->sense, k->need);
}

static void judge(struct bench *b)
{
	static const struct cell data[] = { { "read", BLOCK }, { "write", BLOCK } };
	static const struct cell small[] = { { "random read", PAGE }, { "stat", 0 } };
	static const struct cell changes[] = { { "create", 0 }, { "unlink", 0 } };

	for (size_t i = 0; i < ARRAY_LEN(ratios); i++) {
		compare(b, &ratios[i], BENCH_PASSTHROUGH, "");
		if (row_of(b, BENCH_SPLICED, ratios[i].what, ratios[i].jobs, ratios[i].bytes))
			compare(b, &ratios[i], BENCH_SPLICED, "_spliced");
	}
	bench_ratio(b, "mount_memory", row_of(b, BENCH_SHEAF, AFTER, b->most_clients, 0),
		    row_of(b, BENCH_SHEAF, BEFORE, 1, 0));
	plot(b, "mount-data", "Through a mount: 1 MiB blocks, by number of jobs", data, 2);
	plot(b, "mount-small", "Through a mount: 4 KiB reads and stat, by number of jobs", small,
	     2);
	plot(b, "mount-changes", "Through a mount: names, by number of jobs", changes, 2);
}

const struct bench_kind bench_mount = {
	.name = "mount",
	.summary = "programs on a mount against the same on a passthrough through FUSE",
	.clients = { 1, 4 },
	.missing = bench_fuse_missing,
	.setup = setup,
	.judge = judge,
	.end = bench_fuse_close,
};
