/* Copies bytes between two ends: blocks of 1 MiB, read ahead and written behind.
 *
 * Threads: any, each with its own copier; they share the progress. Host files are read and written
 * sequentially, so pipes work: by the caller, or for a large file by a second thread, which lives
 * as long as the copy, while the first thread drives the links. Two writing threads would contend
 * for the inode lock.
 * Buffers: SLOTS blocks in a ring; a block is read, then written, then reused. A slot belongs to
 * the second thread from the post of `todo` until its `ready` is consumed.
 * Errors: -errno; no operation is in flight when cli_copier_run() returns. */
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

#define SLOTS 8
#define AHEAD 4
#define BLOCK MIB /* larger blocks exceed the CPU caches: a third slower */
#define LARGE (AHEAD * BLOCK) /* larger files are copied with two threads */
#define DRAW_NS (200 * NSEC_PER_MSEC)

struct slot {
	char *buf;
	struct sheaf_op *op; /* operation in flight inside, or NULL */
	uint64_t turn; /* sequence number of the host operation */
	bool busy; /* an operation was started and its result not taken */
	bool reading; /* otherwise writing */
	size_t want;
	ssize_t result; /* result of the host operation */
};

struct cli_copier {
	struct slot slots[SLOTS];
	struct cli_stream *from, *to;
	struct cli_progress *progress;
	/* host operations */
	atomic_bool over; /* short read or error: no further host operations */
	int why; /* valid once `over` is set: 0 or -errno */
	uint64_t given, seen; /* operations started, completed; operation i is that of block i */
	bool helped; /* a second thread runs; only then the next fields are valid */
	bool done; /* the second thread exits at the next post of todo */
	pthread_t helper;
	sem_t todo, ready;
};

struct cli_copier *cli_copier_new(void)
{
	return calloc(1, sizeof(struct cli_copier));
}

void cli_copier_free(struct cli_copier *k)
{
	for (int i = 0; k && i < SLOTS; i++)
		free(k->slots[i].buf);
	free(k);
}

/* ---- progress ---- */

void cli_progress_clear(struct cli_progress *p)
{
	if (!p->drawn)
		return;
	p->drawn = 0;
	fputs("\r\033[K", stderr);
	fflush(stderr);
}

/* Prints files, bytes of total, speed and remaining time in less than 80 columns. */
void cli_progress_draw(struct cli_progress *p)
{
	uint64_t now = time_now(), done = p->done, total = p->total, ns = now - p->started;
	char size[32], all[32], speed[40], left[32];

	if (!p->draw || now - MAX(p->drawn, p->started) < DRAW_NS)
		return;
	p->drawn = now;
	format_size(size, sizeof(size), done);
	cli_speed(speed, sizeof(speed), done, ns);
	fprintf(stderr, "\r%u files  %s", (unsigned)p->files, size);
	if (total) {
		format_size(all, sizeof(all), total);
		fprintf(stderr, " of %s  %u %%", all, (unsigned)MIN(100, done * 100 / total));
	}
	fprintf(stderr, "  %s", speed);
	if (done && done < total) {
		cli_duration(left, sizeof(left),
			     (uint64_t)((double)ns / (double)done * (double)(total - done)));
		fprintf(stderr, "  %s left", left);
	}
	fputs("\033[K", stderr);
	fflush(stderr);
}

/* ---- host operations ---- */

/* Reads or writes the whole block; less at the end of the file. */
static ssize_t move_full(struct cli_copier *k, struct slot *t)
{
	size_t n = 0;
	ssize_t r;

	while (n < t->want) {
		r = t->reading ? read(k->from->fd, t->buf + n, t->want - n) :
				 write(k->to->fd, t->buf + n, t->want - n);
		if (r < 0 && errno == EINTR && !k->progress->stop)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		n += (size_t)r;
	}
	return (ssize_t)n;
}

/* Runs on either thread. */
static void host_do(struct cli_copier *k, struct slot *t)
{
	if (k->over) {
		t->result = k->why;
		return;
	}
	t->result = move_full(k, t);
	k->why = (int)MIN(t->result, 0);
	k->over = t->result < (ssize_t)t->want;
}

/* The second thread: one operation per post of todo. */
static void *help(void *arg)
{
	struct cli_copier *k = arg;

	for (uint64_t turn = 0;; turn++) {
		while (sem_wait(&k->todo) < 0)
			; /* interrupted by CLI_INTERRUPT_SIGNAL */
		if (k->done)
			return NULL;
		host_do(k, &k->slots[turn % SLOTS]);
		sem_post(&k->ready);
	}
}

/* If no thread can be created, the caller does all operations. */
static void helper_start(struct cli_copier *k)
{
	k->done = false;
	sem_init(&k->todo, 0, 0);
	sem_init(&k->ready, 0, 0);
	k->helped = pthread_create(&k->helper, NULL, help, k) == 0;
}

/* No operation may be outstanding. */
static void helper_end(struct cli_copier *k)
{
	k->done = true;
	sem_post(&k->todo);
	pthread_join(k->helper, NULL);
	sem_destroy(&k->todo);
	sem_destroy(&k->ready);
}

static void host_start(struct cli_copier *k, struct slot *t)
{
	t->turn = k->given++;
	t->busy = true;
	if (k->helped) {
		sem_post(&k->todo);
	} else {
		host_do(k, t);
		k->seen++;
	}
}

/* Passes CLI_INTERRUPT_SIGNAL on to the second thread, whose system call may be the one that
 * blocks. */
static ssize_t host_wait(struct cli_copier *k, struct slot *t)
{
	while (k->seen <= t->turn) {
		if (sem_wait(&k->ready) == 0)
			k->seen++;
		else if (k->progress->stop)
			pthread_kill(k->helper, CLI_INTERRUPT_SIGNAL);
	}
	return t->result;
}

/* ---- one block ---- */

/* Waits for the operation of this slot and returns its result. */
static ssize_t slot_wait(struct cli_copier *k, struct slot *t)
{
	struct sheaf_op *op = t->op;

	t->op = NULL;
	t->busy = false;
	return op ? sheaf_wait(op) : host_wait(k, t);
}

/* Completes the last operation of this slot: a write, or a read-ahead that is not needed. */
static int slot_end(struct cli_copier *k, struct slot *t)
{
	ssize_t r;

	if (!t->busy)
		return 0;
	r = slot_wait(k, t);
	if (r < 0)
		return (int)r;
	return t->reading || (size_t)r == t->want ? 0 : -EIO;
}

/* Starts to read or write t->want bytes. */
static int slot_start(struct cli_copier *k, struct slot *t, uint64_t off)
{
	struct sheaf_file *f = t->reading ? k->from->f : k->to->f;
	int r;

	if (!t->buf)
		t->buf = malloc(BLOCK);
	if (!t->buf)
		return -ENOMEM;
	if (!f) {
		host_start(k, t);
		return 0;
	}
	r = t->reading ? sheaf_pread_start(f, t->buf, t->want, (off_t)off, &t->op) :
			 sheaf_pwrite_start(f, t->buf, t->want, (off_t)off, &t->op);
	t->busy = r == 0;
	return r;
}

/* Reads and writes until the first short block or an error; may leave operations in flight. */
static int pump(struct cli_copier *k, uint64_t size, bool *source)
{
	bool inside = k->from->f, end = inside && !size, more;
	uint64_t reads = 0, writes = 0;
	struct slot *t;
	ssize_t n;
	int r = 0;

	while (!r && !end) {
		if (k->progress->stop)
			return -EINTR;
		more = inside ? reads * BLOCK < size : !k->over;
		if (more && reads < writes + AHEAD) {
			t = &k->slots[reads % SLOTS];
			*source = false;
			r = slot_end(k, t);
			if (r)
				return r;
			*source = true;
			t->reading = true;
			t->want = inside ? (size_t)MIN(size - reads * BLOCK, BLOCK) : BLOCK;
			r = slot_start(k, t, reads++ * BLOCK);
			continue;
		}
		t = &k->slots[writes % SLOTS];
		*source = true;
		n = slot_wait(k, t);
		if (n < 0)
			return (int)n;
		*source = false;
		end = (size_t)n < t->want || (inside && (writes + 1) * BLOCK >= size);
		t->reading = false;
		t->want = (size_t)n;
		r = n ? slot_start(k, t, writes * BLOCK) : 0;
		writes++;
		k->progress->done += (uint64_t)n;
	}
	return r;
}

int cli_copier_run(struct cli_copier *k, struct cli_stream *from, struct cli_stream *to,
		   uint64_t size, struct cli_progress *p, bool *source)
{
	int r, r2;

	k->from = from;
	k->to = to;
	k->progress = p;
	k->over = false;
	k->given = k->seen = 0;
	k->helped = false;
	if (size > LARGE && !(from->f && to->f))
		helper_start(k);
	r = pump(k, size, source);
	for (int i = 0; i < SLOTS; i++) {
		r2 = slot_end(k, &k->slots[i]);
		if (r2 && (!r || r == -EINTR)) { /* a lost server takes precedence over a signal */
			r = r2;
			*source = k->slots[i].reading;
		}
	}
	if (k->helped)
		helper_end(k);
	return r;
}
