/* See ckpt_ranks.h. */
#include "ckpt_ranks.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

struct links {
	int fd[CKPT_RANKS_MAX][CKPT_RANKS_MAX]; /* from the first to the second and back */
	int rank, n;
};

static int move(int fd, void *buf, size_t len, int out)
{
	for (size_t at = 0; at < len;) {
		ssize_t k = out ? send(fd, (char *)buf + at, len - at, MSG_NOSIGNAL) :
				  recv(fd, (char *)buf + at, len - at, 0);

		if (k <= 0)
			return -EPIPE;
		at += (size_t)k;
	}
	return 0;
}

static int link_send(void *arg, int to, const void *buf, size_t len)
{
	struct links *l = arg;
	uint64_t n = len;

	/* a process that has died is one that does not come */
	if (move(l->fd[l->rank][to], &n, sizeof(n), 1) == 0)
		move(l->fd[l->rank][to], (void *)(uintptr_t)buf, len, 1);
	return 0;
}

static ssize_t link_recv(void *arg, int from, void **buf, int timeout_ms)
{
	struct links *l = arg;
	struct pollfd p = { .fd = l->fd[l->rank][from], .events = POLLIN };
	int ready;
	uint64_t n;

	*buf = NULL;
	do
		ready = poll(&p, 1, timeout_ms);
	while (ready < 0 && errno == EINTR); /* a signal that requests a checkpoint */
	if (ready != 1 || move(p.fd, &n, sizeof(n), 0))
		return -ETIMEDOUT;
	*buf = malloc(n + 1);
	if (*buf && move(p.fd, *buf, n, 0) == 0)
		return (ssize_t)n;
	free(*buf);
	return -ETIMEDOUT;
}

static void child(struct links *l, int (*program)(const struct sheaf_ckpt_comm *, void *),
		  void *arg)
{
	struct sheaf_ckpt_comm comm = { .size = sizeof(comm),
					.rank = l->rank,
					.n = l->n,
					.arg = l,
					.send = link_send,
					.recv = link_recv };
	int status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int a = 0; a < l->n; a++)
		for (int b = 0; b < l->n; b++)
			if (a != b && a != l->rank)
				close(l->fd[a][b]);
	status = program(&comm, arg);
	fflush(stdout);
	_exit(status);
}

void ckpt_ranks_start(struct ckpt_ranks *r, int n,
		      int (*program)(const struct sheaf_ckpt_comm *comm, void *arg), void *arg)
{
	struct links l = { .n = n };

	CHECK(n >= 1 && n <= CKPT_RANKS_MAX);
	for (int a = 0; a < n; a++)
		for (int b = a + 1; b < n; b++) {
			int pair[2];

			CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
			l.fd[a][b] = pair[0];
			l.fd[b][a] = pair[1];
		}
	fflush(stdout);
	r->n = n;
	for (l.rank = 0; l.rank < n; l.rank++) {
		r->pid[l.rank] = fork();
		CHECK(r->pid[l.rank] >= 0);
		if (!r->pid[l.rank])
			child(&l, program, arg);
	}
	for (int a = 0; a < n; a++)
		for (int b = 0; b < n; b++)
			if (a != b)
				close(l.fd[a][b]);
}

int ckpt_ranks_wait(struct ckpt_ranks *r)
{
	int result = 0;

	for (int i = 0; i < r->n; i++) {
		int s;

		if (!r->pid[i])
			continue;
		CHECK_EQ(waitpid(r->pid[i], &s, 0), r->pid[i]);
		r->pid[i] = 0;
		s = WIFEXITED(s) ? WEXITSTATUS(s) : 128 + WTERMSIG(s);
		result = result ? result : s;
	}
	return result;
}

int ckpt_ranks_run(int n, int (*program)(const struct sheaf_ckpt_comm *comm, void *arg), void *arg)
{
	struct ckpt_ranks r;

	ckpt_ranks_start(&r, n, program, arg);
	return ckpt_ranks_wait(&r);
}
