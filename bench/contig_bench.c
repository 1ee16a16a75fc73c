/* Contiguous 4 MiB reads and overwrites through libsheaf against one raw TCP stream, round by round in
 * one run; and a 1-byte read against a blocking TCP ping-pong. What counts is the median of the paired ratios.
 *
 *     contig_bench [cluster file] [rounds] */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sheaf.h"

#define BLOCK ((size_t)4 << 20)
#define FILE_BYTES ((size_t)64 << 20)
#define PING_PONGS 2000
#define MAX_ROUNDS 64

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(long long r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "contig_bench: %s: %s %s\n", what, sheaf_strerror((int)r), sheaf_why());
	exit(1);
}

static void all(int fd, char *buf, size_t n, int out)
{
	while (n) {
		ssize_t r = out ? write(fd, buf, n) : read(fd, buf, n);

		if (r <= 0)
			exit(1);
		buf += r;
		n -= (size_t)r;
	}
}

/* The other end: sends as many bytes as a request asks for; asked for none, it answers with one. */
static void serve(int fd, char *buf)
{
	uint64_t n;

	for (;;) {
		if (read(fd, &n, sizeof(n)) != sizeof(n))
			_exit(0);
		for (uint64_t left = n ? n : 1; left;) {
			size_t k = left < 256 * 1024 ? left : 256 * 1024;

			all(fd, buf, k, 1);
			left -= k;
		}
	}
}

static int raw_peer(char *buf, pid_t *child)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int s = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, 1) ||
	    getsockname(s, (struct sockaddr *)&a, &len))
		exit(1);
	*child = fork();
	if (*child == 0) {
		int fd = accept(s, NULL, NULL);

		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		serve(fd, buf);
	}
	if (connect(c, (struct sockaddr *)&a, sizeof(a)))
		exit(1);
	setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(s);
	return c;
}

static double raw_stream(int fd, char *buf)
{
	double t = now();

	for (size_t done = 0; done < FILE_BYTES; done += BLOCK) {
		uint64_t n = BLOCK;

		all(fd, (char *)&n, sizeof(n), 1);
		all(fd, buf, BLOCK, 0);
	}
	return (double)FILE_BYTES / (now() - t) / 1e9;
}

static double raw_ping(int fd, char *buf)
{
	double t = now();

	for (int i = 0; i < PING_PONGS; i++) {
		uint64_t n = 0;

		all(fd, (char *)&n, sizeof(n), 1);
		all(fd, buf, 1, 0);
	}
	return (now() - t) / PING_PONGS * 1e6;
}

static double blocks(struct sheaf_file *f, char *buf, int out)
{
	double t = now();

	for (size_t off = 0; off < FILE_BYTES; off += BLOCK)
		must(out ? sheaf_pwrite(f, buf, BLOCK, (off_t)off) :
			   sheaf_pread(f, buf, BLOCK, (off_t)off),
		     out ? "write" : "read");
	return (double)FILE_BYTES / (now() - t) / 1e9;
}

static double bytes(struct sheaf_file *f, char *buf)
{
	double t = now();

	for (int i = 0; i < PING_PONGS; i++)
		must(sheaf_pread(f, buf, 1, i * 4099), "read");
	return (now() - t) / PING_PONGS * 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const char *what, double *ratio, int n, double abs, const char *unit)
{
	qsort(ratio, (size_t)n, sizeof(*ratio), by_value);
	printf("%-34s %.2f  (%.2f .. %.2f)   last %.2f %s\n", what, ratio[n / 2], ratio[0],
	       ratio[n - 1], abs, unit);
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 9, fd;
	double rd[MAX_ROUNDS], wr[MAX_ROUNDS], one[MAX_ROUNDS], r = 0, w = 0, o = 0;
	char *buf = malloc(BLOCK);
	struct sheaf_file *f;
	struct sheaf *fs;
	pid_t child;

	if (!buf || rounds < 1 || rounds > MAX_ROUNDS)
		return 2;
	memset(buf, 7, BLOCK);
	fd = raw_peer(buf, &child);
	must(sheaf_connect(argc > 1 ? argv[1] : NULL, &fs), "connect");
	must(sheaf_open(fs, "/.contig_bench", O_RDWR | O_CREAT | O_TRUNC, 0600, NULL, &f), "open");
	blocks(f, buf, 1);
	blocks(f, buf, 0);
	for (int i = 0; i < rounds; i++) {
		double raw = raw_stream(fd, buf), ping = raw_ping(fd, buf);

		rd[i] = (r = blocks(f, buf, 0)) / raw;
		wr[i] = (w = blocks(f, buf, 1)) / raw;
		one[i] = (o = bytes(f, buf)) / ping;
	}
	report("4 MiB reads / raw stream", rd, rounds, r, "GB/s");
	report("4 MiB overwrites / raw stream", wr, rounds, w, "GB/s");
	report("1-byte read / ping-pong", one, rounds, o, "us");
	must(sheaf_close(f), "close");
	must(sheaf_unlink(fs, "/.contig_bench"), "unlink");
	sheaf_disconnect(fs);
	kill(child, SIGTERM);
	waitpid(child, NULL, 0);
	return 0;
}
