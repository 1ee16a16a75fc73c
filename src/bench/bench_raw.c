/* The raw baselines of `sheaf bench`: what the same machine does without Sheaf, in the same run.
 *
 *   raw stream       one TCP connection over the loopback: 256 KiB writes, read in blocks of 4 MiB
 *   raw ping-pong    64 bytes each way, blocking; one pair, or several at once
 *   appender         one process that appends 4 KiB and calls fdatasync, beside the storage
 *
 * Processes: the near ends run in the client processes, each far end is its own process. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define WRITE_SIZE (256 * KIB)
#define AHEAD 2 /* blocks requested ahead of reading, so that the far end never waits */
#define APPEND_SIZE (4 * KIB)

struct ask { /* request; the reply is `send` bytes, or the request itself if send is 0 */
	uint64_t send;
	char rest[BENCH_PING - 8];
};

static int move_all(int fd, void *p, size_t n, bool out)
{
	char *at = p;

	while (n) {
		ssize_t r = out ? write(fd, at, n) : read(fd, at, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r ? -errno : -ECONNRESET;
		at += r;
		n -= (size_t)r;
	}
	return 0;
}

/* ---- the far end ---- */

static void serve(int fd)
{
	char *buf = malloc(WRITE_SIZE);
	struct ask a;

	if (!buf)
		return;
	memset(buf, 7, WRITE_SIZE);
	while (move_all(fd, &a, sizeof(a), false) == 0) {
		if (!a.send && move_all(fd, &a, sizeof(a), true))
			return;
		for (uint64_t left = a.send; left; left -= MIN(left, WRITE_SIZE))
			if (move_all(fd, buf, MIN(left, WRITE_SIZE), true))
				return;
	}
}

static int listen_here(int *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), e;
	socklen_t len = sizeof(a);

	if (s < 0)
		return -errno;
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, 1) ||
	    getsockname(s, (struct sockaddr *)&a, &len)) {
		e = -errno;
		close(s);
		return e;
	}
	*port = ntohs(a.sin_port);
	return s;
}

pid_t bench_raw_peer(int *port, void (*in_child)(void *arg), void *arg)
{
	int s = listen_here(port), fd, one = 1;
	pid_t pid;

	if (s < 0)
		return s;
	pid = fork();
	if (pid) {
		pid = pid < 0 ? -errno : pid;
		close(s);
		return pid;
	}
	in_child(arg);
	fd = accept(s, NULL, NULL);
	if (fd >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		serve(fd);
	}
	_exit(0);
}

int bench_raw_connect(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, e;

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		e = -errno;
		close(fd);
		return e;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* ---- one stream ---- */

/* Requests `asked` blocks, then reads `read` blocks. */
static int stream(struct bench_worker *w, int asked, int read)
{
	struct ask a = { .send = BENCH_BLOCK };
	int r = 0;

	for (int i = 0; !r && i < asked; i++)
		r = move_all(w->raw, &a, sizeof(a), true);
	for (int i = 0; !r && i < read; i++)
		r = move_all(w->raw, w->buf, BENCH_BLOCK, false);
	return bench_why(w, BENCH_STREAM, r);
}

static int stream_prepare(struct bench_worker *w)
{
	return stream(w, AHEAD + 1, 1); /* the clock starts when the stream is flowing */
}

static int stream_once(struct bench_worker *w)
{
	return stream(w, 1, 1);
}

static int stream_finish(struct bench_worker *w)
{
	return stream(w, 0, AHEAD);
}

void bench_add_stream(struct bench *b)
{
	bench_case_add(b,
		       (struct bench_case){ .job = { .prepare = stream_prepare,
						     .once = stream_once,
						     .finish = stream_finish,
						     .size = BENCH_BLOCK },
					    .bytes = BENCH_BLOCK,
					    .figure = BENCH_BANDWIDTH },
		       BENCH_STREAM);
}

/* ---- ping-pong ---- */

int bench_do_ping(struct bench_worker *w)
{
	struct ask a = { .send = 0 };
	int r = move_all(w->raw, &a, sizeof(a), true);

	if (!r)
		r = move_all(w->raw, &a, sizeof(a), false);
	return bench_why(w, BENCH_PINGPONG, r);
}

/* Measures the latency of one pair, the rate of several. */
void bench_add_ping(struct bench *b, int pairs)
{
	bench_case_add(b,
		       (struct bench_case){ .job = { .once = bench_do_ping, .size = BENCH_PING },
					    .workers = pairs,
					    .bytes = BENCH_PING,
					    .figure = pairs > 1 ? BENCH_RATE : BENCH_LATENCY },
		       BENCH_PINGPONG);
}

/* ---- the appender ---- */

static int append_prepare(struct bench_worker *w)
{
	bench_path(w, ".sheaf-append-XXXXXX");
	w->fd = mkostemp(w->path, O_CLOEXEC);
	if (w->fd < 0)
		return bench_why(w, w->path, -errno);
	unlink(w->path);
	return 0;
}

static int append_once(struct bench_worker *w)
{
	int r = move_all(w->fd, w->buf, APPEND_SIZE, true);

	if (!r && fdatasync(w->fd))
		r = -errno;
	return bench_why(w, BENCH_APPENDER, r);
}

static int append_finish(struct bench_worker *w)
{
	close(w->fd);
	w->fd = -1;
	return 0;
}

void bench_add_appender(struct bench *b)
{
	struct bench_case c = { .job = { .prepare = append_prepare,
					 .once = append_once,
					 .finish = append_finish,
					 .size = APPEND_SIZE },
				.bytes = APPEND_SIZE,
				.figure = BENCH_RATE,
				.wait_idle = true };

	if (!b->place.storage[0])
		return;
	snprintf(c.job.path, sizeof(c.job.path), "%s", b->place.storage);
	bench_case_add(b, c, BENCH_APPENDER);
}
