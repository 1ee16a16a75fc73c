/* A forked child that writes the image of its process: its memory stays what it was at the fork,
 * and the kernel copies the pages that the program changes. It connects to the servers by itself,
 * shares no descriptor with its parent, and never calls the functions of the job's processes (an
 * MPI library does not survive a fork).
 *
 * Threads: the one that writes in the background forks, and waits for the child. The child is
 * killed with its parent, because an image without its record is of no use. Errors: as those of
 * ckpt_write(); -EIO: the child was ended; -EOPNOTSUPP: memory that fork() shares. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define BYE_S 10 /* for the end of the child's session; then the servers end it */

struct ckpt_child {
	pid_t pid;
	/* what the child tells, in shared memory */
	struct {
		atomic_bool is_told;
		struct ckpt_done done;
	} * told;
};

/* ---- the child ---- */

static void close_files(void)
{
	/* an older kernel keeps them open until the child ends */
	syscall(SYS_close_range, 3U, ~0U, 0U);
}

/* A lock of the process that a thread held at the fork stays locked here: a child that waits for
 * one is ended. */
static void limit(unsigned seconds)
{
	sigset_t set;

	signal(SIGALRM, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	alarm(seconds);
}

static int connect_anew(struct sheaf_ckpt *c)
{
	struct sheaf *fs = NULL;
	int r;

	limit((unsigned)(c->o.timeout_ms / 1000 + 1));
	r = sheaf_connect_again(c->fs, &fs);
	limit(0);
	if (r)
		return ckpt_fail(r, "the forked child cannot connect: %s", sheaf_strerror(r));
	c->fs = c->store.fs = fs; /* in its copy */
	return 0;
}

static void child_main(struct ckpt_child *v, pid_t parent, struct sheaf_ckpt *c,
		       const struct ckpt_plan *p, const struct ckpt_run *runs, size_t n_runs)
{
	struct ckpt_done *done = &v->told->done;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	close_files();
	r = connect_anew(c);
	done->status = r ? r : ckpt_write(c, p, runs, n_runs, false, &done->image);
	if (done->status)
		snprintf(done->why, sizeof(done->why), "%s", sheaf_ckpt_why());
	atomic_store(&v->told->is_told, true);
	limit(BYE_S);
	if (!r)
		sheaf_disconnect(c->fs);
	_exit(0);
}

/* ---- the parent ---- */

static void child_free(struct ckpt_child *v)
{
	if (v->told != MAP_FAILED)
		munmap(v->told, sizeof(*v->told));
	free(v);
}

int ckpt_child_start(struct sheaf_ckpt *c, const struct ckpt_plan *p, const struct ckpt_run *runs,
		     size_t n_runs, struct ckpt_child **out)
{
	struct ckpt_child *v = calloc(1, sizeof(*v));
	pid_t parent = getpid();
	int r = v ? ckpt_check_private(&c->pieces, "a forked child sees their changes: leave "
						   "SHEAF_CKPT_FORK away") :
		    ckpt_fail(-ENOMEM, "out of memory");

	*out = NULL;
	if (!v)
		return r;
	v->told = MAP_FAILED;
	if (!r) {
		v->told = mmap(NULL, sizeof(*v->told), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		r = v->told == MAP_FAILED ? ckpt_fail(-ENOMEM, "out of memory") : 0;
	}
	if (!r) {
		v->pid = fork();
		if (!v->pid)
			child_main(v, parent, c, p, runs, n_runs);
		if (v->pid < 0)
			r = ckpt_fail(-errno,
				      "fork: %s; SHEAF_CKPT_ASYNC without SHEAF_CKPT_FORK needs no "
				      "other process, and less memory",
				      strerror(errno));
	}
	if (r)
		child_free(v);
	else
		*out = v;
	return r;
}

int ckpt_child_wait(struct ckpt_child *v, struct ckpt_image *out)
{
	int status = 0, r;
	pid_t got;

	/* the program may reap any child, or have the kernel do so */
	while ((got = waitpid(v->pid, &status, 0)) < 0 && errno == EINTR)
		;
	if (atomic_load(&v->told->is_told)) {
		r = v->told->done.status;
		*out = v->told->done.image;
		if (r)
			ckpt_fail(r, "%s", v->told->done.why);
	} else if (got == v->pid && WIFSIGNALED(status)) {
		r = ckpt_fail(
			-EIO, "the forked child was ended by signal %d%s", WTERMSIG(status),
			WTERMSIG(status) != SIGSEGV ?
				"" :
				": memory that fork does not copy (MADV_DONTFORK, RDMA) needs "
				"SHEAF_CKPT_ASYNC without SHEAF_CKPT_FORK");
	} else {
		r = ckpt_fail(-EIO, "the forked child has ended before its image was written");
	}
	child_free(v);
	return r;
}
