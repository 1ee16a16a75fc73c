/* The mounts of `sheaf bench mount`: Sheaf on the temporary servers, and a directory beside them
 * through bench/passthrough, which shows the cost of FUSE alone. `sheaf bench mpi` has the first.
 *
 * Processes: `sheaf mount -f` and `passthrough -f`; they die with the command. bench_fuse_close()
 * ends and unmounts them, also after a failure or a signal. */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define PASSTHROUGH "../bench/passthrough" /* relative to the directory of this program */
#define MOUNT_NS (15 * NSEC_PER_SEC) /* time limit for a mount to answer */
#define END_NS (5 * NSEC_PER_SEC) /* time limit for its process to exit */

static const struct timespec pause_2ms = { 0, 2000000 };

const char *bench_mount_missing(struct bench *b)
{
	if (!b->dir)
		return "it needs --dir, for servers and mount points of its own";
	if (access("/dev/fuse", R_OK | W_OK) < 0)
		return "there is no /dev/fuse that this user may open: load the module fuse, or run where "
		       "FUSE is allowed";
	return NULL;
}

const char *bench_fuse_missing(struct bench *b)
{
	const char *why = bench_mount_missing(b);
	char program[CLI_PATH_MAX];

	if (why)
		return why;
	cli_find_program(PASSTHROUGH, program);
	if (access(program, X_OK) < 0)
		return "bench/passthrough is not there: it comes with a build from source";
	return NULL;
}

/* ---- processes ---- */

double bench_fuse_memory(const struct bench_side *s)
{
	char path[64], line[128];
	double kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", s->pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "RssAnon:", 8) == 0)
			kib = strtod(line + 8, NULL);
	if (f)
		fclose(f);
	return kib / 1024;
}

/* ---- mounts ---- */

/* Is another file system than before mounted there? */
static bool answers(const struct bench_side *s)
{
	struct stat st;

	return stat(s->point, &st) == 0 && st.st_dev != s->below;
}

static int wait_mounted(struct bench *b, struct bench_side *s)
{
	uint64_t end = time_now() + MOUNT_NS;

	while (!answers(s)) {
		if (waitpid(s->pid, NULL, WNOHANG) != 0) {
			s->pid = 0;
			return bench_program_fail(b, s->name, -EIO);
		}
		if (cli_signal)
			return -EINTR;
		if (time_now() > end)
			return bench_program_fail(b, s->name, -ETIMEDOUT);
		nanosleep(&pause_2ms, NULL);
	}
	return 0;
}

static int mount_side(struct bench *b, struct bench_side *s, const char *program,
		      const char *const *argv)
{
	int r = bench_make_dir(b, s->point);
	struct stat st;

	if (!r && stat(s->point, &st))
		r = -errno;
	if (r)
		return r;
	s->below = st.st_dev;
	s->pid = bench_program_start(b, program, argv);
	if (s->pid < 0) {
		r = (int)s->pid;
		s->pid = 0;
		cli_fail_host(b->c, program, r);
		return r;
	}
	return wait_mounted(b, s);
}

static void name_side(struct bench *b, struct bench_side *s, const char *name)
{
	s->name = name;
	snprintf(s->point, sizeof(s->point), "%.1000s/%s", b->place.dir, name);
}

static int mount_passthrough(struct bench *b, struct bench_side *s, const char *name,
			     const char *flags)
{
	char program[CLI_PATH_MAX], source[CLI_PATH_MAX];
	const char *const argv[] = { "passthrough", flags, source, s->point, NULL };
	int r;

	name_side(b, s, name);
	memcpy(s->dir, s->point, sizeof(s->dir));
	snprintf(source, sizeof(source), "%s/source-%s", b->place.dir, s->name);
	cli_find_program(PASSTHROUGH, program);
	r = bench_make_dir(b, source);
	return r ? r : mount_side(b, s, program, argv);
}

int bench_mount_open(struct bench *b)
{
	struct bench_side *s = &b->sides[BENCH_SHEAF];
	const struct bench_place *p = &b->place;
	char program[CLI_PATH_MAX];
	const char *const argv[] = {
		"sheaf", "--conf", p->conf_path, "mount", "-f", s->point, NULL
	};

	name_side(b, s, "mount");
	snprintf(s->dir, sizeof(s->dir), "%.990s%.32s", s->point, p->scratch);
	cli_find_program("sheaf", program);
	return mount_side(b, s, program, argv);
}

int bench_fuse_open(struct bench *b)
{
	int r = mount_passthrough(b, &b->sides[BENCH_PASSTHROUGH], "passthrough", "-f");

	if (!r)
		r = mount_passthrough(b, &b->sides[BENCH_SPLICED], "spliced", "-fs");
	return r ? r : bench_mount_open(b);
}

void bench_fuse_close(struct bench *b)
{
	for (int i = 0; i < BENCH_SIDES; i++) /* a daemon exits when the last file is closed */
		if (b->sides[i].point[0])
			mount_remove(b->sides[i].point, true, true);
	for (int i = 0; i < BENCH_SIDES; i++)
		bench_end_process(&b->sides[i].pid, time_now() + END_NS);
}
