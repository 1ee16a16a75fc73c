/* An event loop that serves transfers beside other descriptors: blocks of a file are written and
 * read back, 16 of them under way, while a timer ticks. No call of the loop blocks but
 * epoll_wait().
 *
 *     epoll [CLUSTER-FILE | local:DIR] */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <sheaf.h>

enum { BLOCKS = 256, UNDER_WAY = 16 };

static uint64_t block[UNDER_WAY][8192]; /* 64 KiB each */
static struct sheaf_op *op[UNDER_WAY];
static int number[UNDER_WAY]; /* of the block that it moves */

struct loop {
	int epoll, timer;
	struct sheaf *fs;
	struct sheaf_file *file;
	int next, ended; /* blocks */
	unsigned long ticks;
};

static void must(const char *what, ssize_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_strerror((int)r));
	exit(1);
}

static void add(struct loop *l, int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
		perror("epoll");
		exit(1);
	}
}

/* Starts the transfer of the next block in place i. */
static void start(struct loop *l, int i, int write)
{
	off_t at = (off_t)l->next * (off_t)sizeof(block[i]);

	op[i] = NULL;
	if (l->next == BLOCKS)
		return;
	number[i] = l->next++;
	for (size_t k = 0; write && k < sizeof(block[i]) / 8; k++)
		block[i][k] = (uint64_t)number[i] << 32 | k;
	must("start", write ? sheaf_pwrite_start(l->file, block[i], sizeof(block[i]), at, &op[i]) :
			      sheaf_pread_start(l->file, block[i], sizeof(block[i]), at, &op[i]));
}

static void check(int i)
{
	for (size_t k = 0; k < sizeof(block[i]) / 8; k++)
		if (block[i][k] != ((uint64_t)number[i] << 32 | k)) {
			fprintf(stderr, "block %d has wrong data\n", number[i]);
			exit(1);
		}
}

/* The descriptor of the connection is readable: operations have ended. */
static void serve_transfers(struct loop *l, int write)
{
	struct sheaf_op *done[UNDER_WAY];
	int n = sheaf_completed(l->fs, done, UNDER_WAY);

	for (int k = 0; k < n; k++) {
		int i = 0;

		while (op[i] != done[k])
			i++;
		must("transfer", sheaf_wait(op[i])); /* returns at once */
		if (!write)
			check(i);
		l->ended++;
		start(l, i, write);
	}
}

static void run(struct loop *l, int write)
{
	struct epoll_event e[4];
	uint64_t expirations;

	l->next = l->ended = 0;
	for (int i = 0; i < UNDER_WAY; i++)
		start(l, i, write);
	while (l->ended < BLOCKS) {
		int n = epoll_wait(l->epoll, e, 4, -1);

		for (int k = 0; k < n; k++) {
			if (e[k].data.fd != l->timer)
				serve_transfers(l, write);
			else if (read(l->timer, &expirations, sizeof(expirations)) > 0)
				l->ticks += expirations;
		}
	}
}

int main(int argc, char **argv)
{
	struct itimerspec every = { .it_interval.tv_nsec = 1000000, .it_value.tv_nsec = 1000000 };
	struct loop l = { .epoll = epoll_create1(EPOLL_CLOEXEC),
			  .timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC) };

	if (sheaf_connect(argc > 1 ? argv[1] : NULL, &l.fs)) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	timerfd_settime(l.timer, 0, &every, NULL);
	add(&l, l.timer);
	must("sheaf_fd", sheaf_fd(l.fs));
	add(&l, sheaf_fd(l.fs));
	must("open", sheaf_open(l.fs, "/blocks", O_CREAT | O_RDWR, 0644, NULL, &l.file));
	run(&l, 1);
	run(&l, 0);
	must("close", sheaf_close(l.file));
	sheaf_unlink(l.fs, "/blocks");
	sheaf_disconnect(l.fs);
	close(l.timer);
	close(l.epoll);
	printf("%d blocks written and read back by events, none waited for\n", BLOCKS);
	return 0;
}
