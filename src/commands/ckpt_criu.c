/* Calls of criu(8): images of a process and all below it, and back. The log of CRIU explains
 * failures: its lines with "Error" are printed.
 *
 * Threads: that of the command; no other one holds locks that a child needs. Errors: printed. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/ckpt_run.h"

#define JOB_FILE "sheaf-run.txt"
#define LINES 6 /* of a log that are printed */
/* Removed files that are open, as memory shared by MPI, are part of the images up to this size. */
#define GHOSTS "--ghost-limit=1073741824"
#define TCP_KEPT "--tcp-established"
#define TCP_CLOSED "--tcp-close"
#define TIME_WAIT_NS \
	(70 * NSEC_PER_SEC) /* the kernel keeps the port of a closed connection for 60 s */

/* CRIU is in a directory that users do not search. 0 or its exit status; -errno: not started. */
static int call(const char *const *argv, const char *log)
{
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid) {
		int fd = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

		if (fd >= 0) {
			dup2(fd, 1);
			dup2(fd, 2);
		}
		execvp("criu", (char **)(uintptr_t)argv);
		if (errno == ENOENT)
			execv("/usr/sbin/criu", (char **)(uintptr_t)argv);
		_exit(errno == ENOENT ? 127 : 126);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool is_known(const char *line)
{
	/* only jobs with such a device need it */
	return strstr(line, "Unable to create tun") || strstr(line, "FAILED.");
}

/* What CRIU says about a failure, after one line of the command itself. */
static int explain(struct cli *c, const char *what, int r, const char *log)
{
	FILE *f = fopen(log, "re");
	char line[512];
	int n = 0;

	cli_error(c, "%s (criu: exit status %d)%s", what, r, f ? ":" : "");
	while (f && n < LINES && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, "Error");

		if (!at || is_known(at))
			continue;
		fprintf(stderr, "    %s%s", at, strchr(at, '\n') ? "" : "\n");
		n++;
	}
	if (f)
		fclose(f);
	return CLI_FAILED;
}

static int missing(struct cli *c, int r)
{
	if (r == 127)
		return cli_error(c, "CRIU is not installed on this host: apt-get install criu");
	if (r < 0)
		return cli_fail_host(c, "criu", r);
	return CLI_OK;
}

int criu_check(struct cli *c)
{
	const char *const argv[] = { "criu", "check", NULL };
	char log[] = "/tmp/sheaf-criu-XXXXXX";
	int fd = mkstemp(log), r, status;

	if (fd < 0)
		return cli_fail_host(c, log, -errno);
	close(fd);
	r = call(argv, log);
	status = missing(c, r);
	if (!status && r)
		status = explain(c,
				 "CRIU cannot work here: it needs root and a kernel that it knows; "
				 "a program that calls sheaf_ckpt_take() needs neither",
				 r, log);
	unlink(log);
	return status;
}

/* ---- what CRIU does not keep ---- */

static int write_job(struct cli *c, const char *images, const struct criu_job *job)
{
	char path[CLI_PATH_MAX];
	FILE *f;
	int r;

	snprintf(path, sizeof(path), "%s/" JOB_FILE, images);
	f = fopen(path, "we");
	r = f ? fprintf(f, "%d %s %s %s\n", (int)job->pid, job->pipe[0], job->pipe[1], job->tcp) :
		-1;
	if (f && fclose(f))
		r = -1;
	return r < 0 ? cli_fail_host(c, path, -errno) : CLI_OK;
}

static int read_job(struct cli *c, const char *images, struct criu_job *job)
{
	char path[CLI_PATH_MAX];
	FILE *f;
	int pid = 0, n = 0;

	snprintf(path, sizeof(path), "%s/" JOB_FILE, images);
	f = fopen(path, "re");
	if (f) {
		n = fscanf(f, "%d %31s %31s %31s", &pid, job->pipe[0], job->pipe[1], job->tcp);
		fclose(f);
	}
	job->pid = pid;
	if (n == 4 && pid > 0 &&
	    (strcmp(job->tcp, TCP_KEPT) == 0 || strcmp(job->tcp, TCP_CLOSED) == 0))
		return CLI_OK;
	return cli_error(c, "the checkpoint was not made by 'sheaf ckpt run': its program restores "
			    "it by itself");
}

/* ---- images ---- */

void criu_empty(const char *images)
{
	DIR *d = opendir(images);
	struct dirent *e;

	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

static int dump(const char *images, pid_t job, const char *tcp)
{
	char pid[16];
	const char *const argv[] = { "criu",
				     "dump",
				     "-t",
				     pid,
				     "-D",
				     images,
				     "-o",
				     "dump.log",
				     "-v1",
				     tcp,
				     "--network-lock",
				     "nftables",
				     "--leave-running",
				     "--file-locks",
				     GHOSTS,
				     NULL };

	snprintf(pid, sizeof(pid), "%d", (int)job);
	return call(argv, NULL);
}

/* Processes of an MPI job talk over TCP with each other, and with their launcher: such connections
 * are kept. That needs a kernel with nftables; otherwise they are closed. */
int criu_dump(struct cli *c, const char *images, struct criu_job *job)
{
	static const char *const ways[] = { TCP_KEPT, TCP_CLOSED };
	char log[CLI_PATH_MAX];
	int r = 1;

	snprintf(log, sizeof(log), "%s/dump.log", images);
	for (size_t i = 0; i < ARRAY_LEN(ways) && r > 0 && r != 127; i++) {
		criu_empty(images);
		r = dump(images, job->pid, ways[i]);
		snprintf(job->tcp, sizeof(job->tcp), "%s", ways[i]);
	}
	if (missing(c, r))
		return CLI_FAILED;
	if (r)
		return explain(c, "no image of the job; it goes on", r, log);
	unlink(log);
	if (strcmp(job->tcp, TCP_CLOSED) == 0)
		cli_error(c,
			  "CRIU cannot keep the TCP connections of the job: after a restart from "
			  "this checkpoint they are closed");
	return write_job(c, images, job);
}

static int read_pid(struct cli *c, const char *path, pid_t *pid)
{
	FILE *f = fopen(path, "re");
	int n = 0, v = 0;

	if (f) {
		n = fscanf(f, "%d", &v);
		fclose(f);
	}
	*pid = v;
	return n == 1 && v > 0 ? CLI_OK : cli_error(c, "criu did not say which process it made");
}

static bool log_has(const char *log, const char *text)
{
	FILE *f = fopen(log, "re");
	char line[512];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return found;
}

/* After a kill the connections of the former job may hold their ports: tries again until they are
 * free. The result is that of call(). */
static int call_when_ports_are_free(struct cli *c, const char *const *argv, const char *log)
{
	uint64_t end = time_now() + TIME_WAIT_NS;
	bool told = false;
	int r;

	while ((r = call(argv, NULL)) > 0 && log_has(log, "Address already in use") &&
	       time_now() < end && !cli_signal) {
		if (!told)
			cli_error(c, "waiting for the kernel to free the TCP ports of the killed "
				     "job, for up to 70 s");
		told = true;
		sleep(2);
	}
	return r;
}

int criu_restore(struct cli *c, const char *images, const int out[2], struct criu_job *job)
{
	char log[CLI_PATH_MAX], pid[CLI_PATH_MAX], fd[2][64];
	const char *const argv[] = {
		"criu",		  "restore",  "-D",	      images,	   "-o",
		"restore.log",	  "-v1",      "-d",	      "-S",	   job->tcp,
		"--network-lock", "nftables", "--file-locks", "--pidfile", pid,
		"--inherit-fd",	  fd[0],      "--inherit-fd", fd[1],	   NULL
	};
	int r;

	if (read_job(c, images, job))
		return CLI_FAILED;
	snprintf(log, sizeof(log), "%s/restore.log", images);
	snprintf(pid, sizeof(pid), "%s/restored.pid", images);
	for (int i = 0; i < 2; i++) {
		snprintf(fd[i], sizeof(fd[i]), "fd[%d]:%s", out[i], job->pipe[i]);
		fcntl(out[i], F_SETFD, 0); /* criu inherits it */
	}
	r = call_when_ports_are_free(c, argv, log);
	if (missing(c, r))
		return CLI_FAILED;
	if (r)
		return explain(c,
			       "CRIU cannot make the job anew: its process numbers must be free, "
			       "and its files as they were",
			       r, log);
	return read_pid(c, pid, &job->pid);
}
