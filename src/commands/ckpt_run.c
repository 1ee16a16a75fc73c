/* sheaf ckpt run: runs a program, saves it and all processes below it by CRIU, and starts it again
 * from the newest complete checkpoint.
 *
 * CRIU stops all processes of the job while it writes their images into a local directory; then
 * they go on, and this process writes the images as one checkpoint of libsheaf. The job's output
 * goes through pipes to this process, so that a restarted job has one as well.
 *
 * Threads: one for each pipe, which copies output. Errors: printed. */
#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/ckpt_run.h"
#include "sheaf_ckpt.h"

#define TICK_MS 100
#define FROM_START (-1)
#define ASK_NS NSEC_PER_SEC

struct copier {
	pthread_t thread;
	int from, to;
};

struct run {
	struct cli *c;
	const struct ckpt_run_options *o;
	struct sheaf_ckpt *k;
	char job[128];
	char request[CLI_PATH_MAX]; /* of `sheaf ckpt now` */
	char spool[CLI_PATH_MAX]; /* for images */
	struct criu_job criu;
	int out[2]; /* the job's ends of the pipes */
	struct copier copier[2];
	int n_copiers;
	uint64_t last, asked;
	bool has_ended, ends;
	int status; /* of waitpid() */
};

static atomic_int asks, warnings;

static void on_signal(int sig)
{
	atomic_fetch_add(sig == SIGUSR1 ? &asks : &warnings, 1);
}

/* ---- output ---- */

static void *copy_output(void *arg)
{
	struct copier *p = arg;
	char buf[65536];
	ssize_t n;

	while ((n = read(p->from, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))
		for (ssize_t at = 0, put = 0; at < n; at += put) {
			put = write(p->to, buf + at, (size_t)(n - at));
			if (put < 0 && errno != EINTR)
				at = n; /* the reader is gone: the job goes on */
			put = put < 0 ? 0 : put;
		}
	return NULL;
}

static int make_pipes(struct run *r)
{
	for (int i = 0; i < 2; i++) {
		struct copier *p = &r->copier[i];
		int fd[2], err;

		if (pipe2(fd, O_CLOEXEC))
			return cli_fail_host(r->c, "a pipe", -errno);
		r->out[i] = fd[1];
		p->from = fd[0];
		p->to = i + 1;
		err = pthread_create(&p->thread, NULL, copy_output, p);
		if (err)
			return cli_fail_host(r->c, "a thread", -err);
		r->n_copiers++;
	}
	return CLI_OK;
}

/* This process keeps no end, so that the copiers see the end of the output. */
static void close_ends(struct run *r)
{
	for (int i = 0; i < 2; i++) {
		if (r->out[i] >= 0)
			close(r->out[i]);
		r->out[i] = -1;
	}
}

/* ---- the directory for images ---- */

static int make_spool(struct run *r)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(r->spool, sizeof(r->spool), "%s/sheaf-ckpt-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (mkdtemp(r->spool))
		return CLI_OK;
	cli_fail_host(r->c, r->spool, -errno);
	*r->spool = '\0';
	return CLI_FAILED;
}

/* ---- begin ---- */

static int begin_command(struct run *r)
{
	pid_t pid = fork();

	if (pid < 0)
		return cli_fail_host(r->c, r->o->argv[0], -errno);
	if (!pid) {
		int null = open("/dev/null", O_RDONLY);

		setsid(); /* CRIU does not save terminals */
		if (null > 0)
			dup2(null, 0);
		dup2(r->out[0], 1);
		dup2(r->out[1], 2);
		signal(SIGPIPE, SIG_DFL);
		signal(SIGUSR1, SIG_DFL);
		signal(SIGUSR2, SIG_DFL);
		execvp(r->o->argv[0], r->o->argv);
		dprintf(2, "sheaf ckpt: %s: %s\n", r->o->argv[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	r->criu.pid = pid;
	return CLI_OK;
}

/* FROM_START: there is no checkpoint. */
static int begin_again(struct run *r)
{
	uint64_t number;
	int err = sheaf_ckpt_load_dir(r->k, r->spool, &number), status;

	if (err == -ENOENT && r->o->argv)
		return FROM_START;
	if (err)
		return cli_error(r->c, "%s", sheaf_ckpt_why());
	status = criu_restore(r->c, r->spool, r->out, &r->criu);
	criu_empty(r->spool);
	if (!status)
		fprintf(stderr, "sheaf ckpt: %s continues from checkpoint %llu\n", r->job,
			(unsigned long long)number);
	return status;
}

/* The pipes of a restored job are new ones, which the next images name. */
static void name_pipes(struct run *r)
{
	for (int i = 0; i < 2; i++) {
		char path[64];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", r->out[i]);
		n = readlink(path, r->criu.pipe[i], sizeof(r->criu.pipe[i]) - 1);
		r->criu.pipe[i][MAX(n, 0)] = '\0';
	}
}

static int begin_job(struct run *r)
{
	int status = r->o->restart ? begin_again(r) : FROM_START;

	if (status == FROM_START)
		status = begin_command(r);
	name_pipes(r);
	close_ends(r);
	return status;
}

/* ---- while it runs ---- */

/* Reaps the job, and processes that it has left behind. */
static void look_for_end(struct run *r)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == r->criu.pid) {
			r->has_ended = true;
			r->status = status;
		}
	if (pid < 0 && errno == ECHILD)
		r->has_ended = true;
}

/* A failure is printed; the job goes on. */
static bool save(struct run *r)
{
	int status = criu_dump(r->c, r->spool, &r->criu), err = 0;

	if (!status)
		err = sheaf_ckpt_save_dir(r->k, r->spool);
	if (err)
		cli_error(r->c, "no checkpoint of %s: %s", r->job, sheaf_ckpt_why());
	criu_empty(r->spool);
	r->last = time_now();
	return !status && !err;
}

static bool is_time(struct run *r)
{
	static int seen;
	bool asked = atomic_load(&asks) != seen;
	uint64_t now = time_now();

	seen = atomic_load(&asks);
	if (!asked && now - r->asked >= ASK_NS) {
		r->asked = now;
		asked = sheaf_unlink(r->c->fs, r->request) == 0;
	}
	return asked || (r->o->interval_s && now - r->last >= r->o->interval_s * NSEC_PER_SEC);
}

static void supervise(struct run *r)
{
	int told = 0;

	r->last = time_now();
	for (look_for_end(r); !r->has_ended; look_for_end(r)) {
		if (cli_signal && told != cli_signal) {
			told = cli_signal;
			kill(-r->criu.pid, told);
		} else if (atomic_load(&warnings) && !r->ends) {
			/* the job ends even without a checkpoint: it would be killed */
			save(r);
			kill(-r->criu.pid, SIGTERM);
			r->ends = true;
		} else if (!r->ends && !told && is_time(r)) {
			save(r);
		}
		poll(NULL, 0, TICK_MS);
	}
}

/* ---- the whole ---- */

static int open_job(struct run *r)
{
	const struct sheaf_ckpt_options o = { .size = sizeof(o),
					      .dir = r->o->dir,
					      .keep = r->o->keep };
	int err;

	snprintf(r->request, sizeof(r->request), "%s/%s/request", r->o->dir ? r->o->dir : "/ckpt",
		 r->job);
	err = sheaf_ckpt_open(r->c->fs, r->job, NULL, &o, &r->k);
	return err ? cli_error(r->c, "%s", sheaf_ckpt_why()) : CLI_OK;
}

static void name_job(struct run *r)
{
	char text[CLI_PATH_MAX];

	snprintf(text, sizeof(text), "%s", r->o->argv ? r->o->argv[0] : "");
	snprintf(r->job, sizeof(r->job), "%s", r->o->job ? r->o->job : basename(text));
}

static int finish(struct run *r, int status)
{
	close_ends(r);
	for (int i = 0; i < r->n_copiers; i++) {
		pthread_join(r->copier[i].thread, NULL);
		close(r->copier[i].from);
	}
	sheaf_ckpt_close(r->k);
	if (*r->spool) {
		criu_empty(r->spool);
		rmdir(r->spool);
	}
	if (cli_signal && WIFEXITED(r->status))
		cli_signal = 0; /* the job has had it, and ended by itself */
	if (status)
		return status;
	return WIFEXITED(r->status) ? WEXITSTATUS(r->status) : 128 + WTERMSIG(r->status);
}

int ckpt_run(struct cli *c, const struct ckpt_run_options *o)
{
	struct run r = { .c = c, .o = o, .out = { -1, -1 } };
	struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	int status = criu_check(c);

	if (!status)
		status = cli_connect(c);
	if (status)
		return status;
	name_job(&r);
	sigemptyset(&a.sa_mask);
	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGUSR2, &a, NULL);
	signal(SIGPIPE, SIG_IGN); /* the job goes on without a reader of its output */
	cli_catch_signals();
	prctl(PR_SET_CHILD_SUBREAPER, 1); /* a restored job becomes a child */
	status = open_job(&r);
	if (!status)
		status = make_spool(&r);
	if (!status)
		status = make_pipes(&r);
	if (!status)
		status = begin_job(&r);
	if (!status)
		supervise(&r);
	return finish(&r, status);
}
