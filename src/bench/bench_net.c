/* sheaf bench net: the transport alone: an empty request to a server compared with a raw ping-pong,
 * and the stream of one server with a raw stream; memcpy and a Unix socket ping-pong for scale. */
#include <sys/socket.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define UNIX_PING "raw ping-pong by Unix socket"

static int ping_once(struct bench_worker *w)
{
	return bench_why(w, "ping", sheaf_ping(w->fs, (int)w->job->server));
}

/* Forks a process that echoes what it receives until this process exits; descriptor or -errno. */
static int start_echo(void)
{
	char b[BENCH_PING];
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		return -errno;
	switch (fork()) {
	case -1:
		close(fd[0]);
		close(fd[1]);
		return -EAGAIN;
	case 0:
		close(fd[0]);
		dup2(fd[1], 0); /* the child keeps no other descriptor */
		close_range(1, ~0U, 0);
		for (ssize_t n; (n = read(0, b, sizeof(b))) > 0;)
			if (write(0, b, (size_t)n) != n)
				break;
		_exit(0);
	}
	close(fd[1]);
	return fd[0];
}

static int unix_once(struct bench_worker *w)
{
	static int echo = -1;
	char b[BENCH_PING] = { 0 };

	if (echo < 0)
		echo = start_echo();
	if (echo < 0)
		return bench_why(w, UNIX_PING, echo);
	if (write(echo, b, sizeof(b)) != sizeof(b) || read(echo, b, sizeof(b)) != sizeof(b))
		return bench_why(w, UNIX_PING, -EIO);
	return 0;
}

static int copy_once(struct bench_worker *w)
{
	size_t half = w->job->size / 2, to = w->i % 2 ? half : 0;

	memcpy(w->buf + to, w->buf + half - to, half);
	memcpy(w->buf + half - to, w->buf + to, half);
	return 0;
}

static int setup(struct bench *b)
{
	const struct bench_case ping = { .job = { .once = ping_once }, .figure = BENCH_LATENCY };
	const struct bench_case unix_ping = { .job = { .once = unix_once },
					      .bytes = BENCH_PING,
					      .figure = BENCH_LATENCY };
	struct bench_case block = {
		.job = { .once = bench_do_transfer, .size = BENCH_BLOCK, .stride = BENCH_BLOCK },
		.bytes = BENCH_BLOCK,
		.figure = BENCH_BANDWIDTH
	};
	int r = bench_once(b, 1, bench_do_make, BENCH_FILE, 1);

	bench_add_ping(b, 1);
	bench_case_add(b, unix_ping, UNIX_PING);
	bench_case_add(b, ping, "ping");
	bench_add_stream(b);
	bench_case_add(b, block, "read from one server");
	block.job.out = true;
	bench_case_add(b, block, "overwrite on one server");
	block.job.once = copy_once;
	bench_case_add(b, block, "memcpy");
	return r;
}

static void plot(struct bench *b, const struct bench_row *const *rows, int n, const char *name,
		 const char *title)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	p->n_series = 1;
	for (int i = 0; i < n; i++)
		p->cell[bench_plot_group(p, "%.31s", rows[i] ? rows[i]->what : "")][0] = rows[i];
}

static void judge(struct bench *b)
{
	const struct bench_row *raw = bench_find(b, BENCH_PINGPONG, 1, BENCH_PING, 0);
	const struct bench_row *stream = bench_find(b, BENCH_STREAM, 1, BENCH_BLOCK, 0);
	const struct bench_row *by_unix = bench_find(b, UNIX_PING, 1, BENCH_PING, 0);
	const struct bench_row *ping = bench_find(b, "ping", 1, 0, 0);
	const struct bench_row *rd = bench_find(b, "read from one server", 1, BENCH_BLOCK, 0);
	const struct bench_row *wr = bench_find(b, "overwrite on one server", 1, BENCH_BLOCK, 0);
	const struct bench_row *copy = bench_find(b, "memcpy", 1, BENCH_BLOCK, 0);

	bench_bar_ratio(b, "net_ping", ping, raw, BENCH_AT_MOST, 1.4);
	bench_ratio(b, "net_unix", ping, by_unix);
	bench_ratio(b, "net_read", rd, stream);
	bench_ratio(b, "net_write", wr, stream);
	plot(b, (const struct bench_row *const[]){ raw, by_unix, ping }, 3, "net-ping",
	     "An empty request against raw ping-pongs");
	plot(b, (const struct bench_row *const[]){ stream, rd, wr, copy }, 4, "net-stream",
	     "4 MiB blocks to and from one server");
}

const struct bench_kind bench_net = {
	.name = "net",
	.summary = "the transport: an empty request and one server's stream against raw TCP",
	.clients = { 1 },
	.setup = setup,
	.judge = judge,
	.cleanup = bench_drop_files,
};
