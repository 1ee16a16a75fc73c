/* Programs and shell commands that benchmarks run beside the temporary servers.
 *
 * Processes: each program is in its own session, so that signals of the terminal do not reach it,
 * and dies with the command. One that is run to its end has a process of ours above it, which ends
 * all that the program has started.
 * Errors: the output of all programs is in programs.log; messages quote its last line. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define END_NS (5 * NSEC_PER_SEC) /* time limit to end by a signal */

static const struct timespec poll_time = { 0, 2000000 };

static void log_path(struct bench *b, char out[CLI_PATH_MAX])
{
	snprintf(out, CLI_PATH_MAX, "%s/programs.log", b->place.dir);
}

pid_t bench_program_start(struct bench *b, const char *program, const char *const *argv)
{
	char log[CLI_PATH_MAX];
	pid_t parent = getpid(), pid;
	int fd;

	log_path(b, log);
	pid = fork();
	if (pid)
		return pid < 0 ? -errno : pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	setsid();
	fd = open("/dev/null", O_RDONLY);
	dup2(fd, STDIN_FILENO);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execvp(program, (char **)(uintptr_t)argv);
	_exit(127);
}

void bench_program_why(struct bench *b, int err, char *out, size_t n)
{
	char path[CLI_PATH_MAX], line[512] = "";
	FILE *f;

	log_path(b, path);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		line[strcspn(line, "\n")] = 0;
	if (f)
		fclose(f);
	snprintf(out, n, "%s", line[0] ? line : error_text(err));
}

int bench_program_fail(struct bench *b, const char *what, int err)
{
	char why[512];

	bench_program_why(b, err, why, sizeof(why));
	cli_error(b->c, "%s: %s: %s", b->kind->name, what, why);
	return err;
}

/* Kills the children of this process. */
static void kill_children(void)
{
	struct dirent *e;
	DIR *d = opendir("/proc");

	while (d && (e = readdir(d))) {
		int pid = atoi(e->d_name), parent = 0;
		char path[64];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/stat", pid);
		f = pid > 0 ? fopen(path, "re") : NULL;
		if (!f)
			continue;
		if (fscanf(f, "%*d (%*[^)]) %*c %d", &parent) == 1 && parent == getpid())
			kill(pid, SIGKILL);
		fclose(f);
	}
	if (d)
		closedir(d);
}

/* Runs the program to its end and adopts what it leaves behind: ranks of an mpiexec that was ended
 * have sessions of their own. Nothing of the program is there when this process exits. */
static void guard(struct bench *b, const char *const *argv)
{
	pid_t pid = bench_program_start(b, argv[0], argv);
	uint64_t end;
	int status;

	while (pid > 0 && waitpid(pid, &status, WNOHANG) == 0) {
		if (cli_signal) {
			kill(-pid, SIGTERM);
			bench_end_process(&pid, time_now() + END_NS);
			status = 1;
			break;
		}
		nanosleep(&poll_time, NULL);
	}
	end = time_now() + END_NS;
	while (waitpid(-1, NULL, WNOHANG) >= 0 && time_now() < end) {
		kill_children();
		nanosleep(&poll_time, NULL);
	}
	_exit(pid < 0 || status ? 1 : 0);
}

static pid_t start_guarded(struct bench *b, const char *const *argv)
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid < 0 ? -errno : pid;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setsid();
	if (getppid() == parent)
		guard(b, argv);
	_exit(1);
}

int bench_program_run(struct bench *b, const char *what, const char *const *argv)
{
	pid_t pid = start_guarded(b, argv);
	int status;

	if (pid < 0)
		return (int)pid;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (cli_signal) {
			kill(pid, SIGTERM);
			bench_end_process(&pid, time_now() + 3 * END_NS);
			return -EINTR;
		}
		nanosleep(&poll_time, NULL);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return what ? bench_program_fail(b, what, -EIO) : -EIO;
}

int bench_shell(struct bench *b, const char *what, const char *script, const char *a1,
		const char *a2)
{
	const char *const argv[] = { "sh", "-c", script, "sh", a1, a2, NULL };

	return bench_program_run(b, what, argv);
}
