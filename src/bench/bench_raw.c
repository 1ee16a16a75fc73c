/* The raw baselines of `sheaf bench`: what the same machine does without Sheaf, in the same run.
 *
 *   raw stream       one TCP connection: 256 KiB writes, read in blocks of 4 MiB
 *   raw ping-pong    64 bytes each way, blocking; one pair, or several at once
 *   appender         one process that appends 4 KiB and calls fdatasync, beside the storage
 *
 * Connections are over the loopback or, with --hosts, from the clients' host to a server's.
 * Processes: the near ends run in the client processes, each far end is its own process. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define WRITE_SIZE (256 * KIB)
#define AHEAD 2 /* blocks requested ahead of reading, so that the far end never waits */
#define AHEAD_RATE 4 /* bytes/ns for which this is enough with a delay, too */
#define MAX_AHEAD 64
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

static int listen_at(struct sockaddr_in *at)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), e;
	socklen_t len = sizeof(*at);

	if (s < 0)
		return -errno;
	if (bind(s, (struct sockaddr *)at, len) || listen(s, 1) ||
	    getsockname(s, (struct sockaddr *)at, &len)) {
		e = -errno;
		close(s);
		return e;
	}
	return s;
}

pid_t bench_raw_peer(struct bench *b, struct sockaddr_in *at)
{
	int s = listen_at(at), fd, one = 1;
	pid_t pid;

	if (s < 0)
		return s;
	pid = fork();
	if (pid) {
		pid = pid < 0 ? -errno : pid;
		close(s);
		return pid;
	}
	bench_clients_forked(b);
	fd = accept(s, NULL, NULL);
	if (fd >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		serve(fd);
	}
	_exit(0);
}

int bench_raw_connect(const struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, e;

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)at, sizeof(*at))) {
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
	/* the clock starts when the stream is flowing */
	return stream(w, (int)w->job->ahead + 1, 1);
}

static int stream_once(struct bench_worker *w)
{
	return stream(w, 1, 1);
}

static int stream_finish(struct bench_worker *w)
{
	return stream(w, 0, (int)w->job->ahead);
}

struct bench_case bench_stream_case(uint64_t delay_ns)
{
	uint64_t ahead = AHEAD + delay_ns * AHEAD_RATE / BENCH_BLOCK;

	return (struct bench_case){ .job = { .prepare = stream_prepare,
					     .once = stream_once,
					     .finish = stream_finish,
					     .size = BENCH_BLOCK,
					     .ahead = (uint32_t)MIN(ahead, MAX_AHEAD) },
				    .bytes = BENCH_BLOCK,
				    .figure = BENCH_BANDWIDTH };
}

void bench_add_stream(struct bench *b)
{
	bench_case_add(b, bench_stream_case(b->delay_ns), BENCH_STREAM);
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

struct bench_case bench_ping_case(int pairs)
{
	return (struct bench_case){ .job = { .once = bench_do_ping, .size = BENCH_PING },
				    .workers = pairs,
				    .bytes = BENCH_PING,
				    .figure = pairs > 1 ? BENCH_RATE : BENCH_LATENCY };
}

void bench_add_ping(struct bench *b, int pairs)
{
	bench_case_add(b, bench_ping_case(pairs), BENCH_PINGPONG);
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
