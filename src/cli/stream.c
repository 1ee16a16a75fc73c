/* Moving bytes between two ends: blocks of 1 MiB, read ahead and written behind.
 *
 * Threads: any, each with a copier of its own; they share the progress. The host's files are read and written
 * in order, so pipes work: at once, or for a large file by a second thread, which lives as long as the copy of
 * that file, while the first one drives the links. Never two that write: they would spin for the inode's lock.
 * Buffers: SLOTS blocks used in turn; a block is read, then written, then used again. Between giving a slot to
 * the second thread (todo) and seeing it back (ready) it is that thread's alone.
 * Errors: -errno; nothing is under way any more when cli_copier_run() returns. */
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

#define SLOTS 8
#define AHEAD 4
#define BLOCK MIB /* larger ones leave the caches: a third slower */
#define LARGE (AHEAD * BLOCK) /* a file for two threads */
#define DRAW_NS (200 * NSEC_PER_MSEC)

struct slot {
	char *buf;
	struct sheaf_op *op; /* under way inside, or NULL */
	uint64_t turn; /* among the host's operations */
	bool busy; /* something was begun and its result not taken */
	bool reading; /* else it writes */
	size_t want;
	ssize_t result; /* of the host's operation */
};

struct cli_copier {
	struct slot slots[SLOTS];
	struct cli_stream *from, *to;
	struct cli_progress *progress;
	/* the host's end */
	atomic_bool over; /* a read was short, or something failed: nothing more is done there */
	int why; /* then: 0 or -errno */
	uint64_t given, seen; /* operations; the first is that of block 0, and none is left out */
	bool helped; /* by the second thread, and then: */
	bool done; /* it ends at the next post */
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

/* How many files, how much of how much, how fast, how long still; less than 80 columns. */
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

/* ---- the host's side ---- */

static ssize_t read_full(struct cli_progress *pr, int fd, char *p, size_t n)
{
	size_t have = 0;
	ssize_t r;

	while (have < n) {
		r = read(fd, p + have, n - have);
		if (r < 0 && errno == EINTR && !pr->stop)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		have += (size_t)r;
	}
	return (ssize_t)have;
}

static ssize_t write_full(struct cli_progress *pr, int fd, const char *p, size_t n)
{
	size_t left = n;
	ssize_t r;

	while (left) {
		r = write(fd, p, left);
		if (r < 0 && errno == EINTR && !pr->stop)
			continue;
		if (r < 0)
			return -errno;
		p += r;
		left -= (size_t)r;
	}
	return (ssize_t)n;
}

/* On either thread. */
static void host_do(struct cli_copier *k, struct slot *t)
{
	if (k->over) {
		t->result = k->why;
		return;
	}
	t->result = t->reading ? read_full(k->progress, k->from->fd, t->buf, t->want) :
				 write_full(k->progress, k->to->fd, t->buf, t->want);
	k->why = (int)MIN(t->result, 0);
	k->over = t->result < (ssize_t)t->want;
}

/* The second thread: an operation for each post. */
static void *help(void *arg)
{
	struct cli_copier *k = arg;

	for (uint64_t turn = 0;; turn++) {
		while (sem_wait(&k->todo) < 0)
			; /* poked */
		if (k->done)
			return NULL;
		host_do(k, &k->slots[turn % SLOTS]);
		sem_post(&k->ready);
	}
}

/* Without it, where none can be had, we do it all. */
static void helper_start(struct cli_copier *k)
{
	k->done = false;
	sem_init(&k->todo, 0, 0);
	sem_init(&k->ready, 0, 0);
	k->helped = pthread_create(&k->helper, NULL, help, k) == 0;
}

/* Nothing is given to it any more, and all it did was seen. */
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

/* Who ends a command pokes us, and the call that blocks may be the other thread's. */
static ssize_t host_wait(struct cli_copier *k, struct slot *t)
{
	while (k->seen <= t->turn) {
		if (sem_wait(&k->ready) == 0)
			k->seen++;
		else if (k->progress->stop)
			pthread_kill(k->helper, CLI_POKE);
	}
	return t->result;
}

/* ---- one block ---- */

/* The result of what was begun. */
static ssize_t slot_wait(struct cli_copier *k, struct slot *t)
{
	struct sheaf_op *op = t->op;

	t->op = NULL;
	t->busy = false;
	return op ? sheaf_wait(op) : host_wait(k, t);
}

/* Ends what used this block last: a write; at the end maybe a read, whose bytes nobody wants any more. */
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

static int slot_read(struct cli_copier *k, struct slot *t, uint64_t off, uint64_t size)
{
	int r;

	if (!t->buf)
		t->buf = malloc(BLOCK);
	if (!t->buf)
		return -ENOMEM;
	t->reading = true;
	t->want = BLOCK;
	if (!k->from->f) {
		host_start(k, t);
		return 0;
	}
	t->want = (size_t)MIN(size - off, BLOCK);
	r = sheaf_pread_start(k->from->f, t->buf, t->want, (off_t)off, &t->op);
	t->busy = r == 0;
	return r;
}

static int slot_write(struct cli_copier *k, struct slot *t, uint64_t off, size_t n)
{
	int r;

	t->reading = false;
	t->want = n;
	if (!n)
		return 0;
	if (!k->to->f) {
		host_start(k, t);
		return 0;
	}
	r = sheaf_pwrite_start(k->to->f, t->buf, n, (off_t)off, &t->op);
	t->busy = r == 0;
	return r;
}

/* Reads and writes until the end, which is the first block that is short, or an error; may leave operations
 * under way. */
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
			r = slot_read(k, t, reads++ * BLOCK, size);
			continue;
		}
		t = &k->slots[writes % SLOTS];
		*source = true;
		n = slot_wait(k, t);
		if (n < 0)
			return (int)n;
		*source = false;
		end = (size_t)n < t->want || (inside && (writes + 1) * BLOCK >= size);
		r = slot_write(k, t, writes++ * BLOCK, (size_t)n);
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
		if (r2 && (!r || r == -EINTR)) { /* a lost server matters more than a signal */
			r = r2;
			*source = k->slots[i].reading;
		}
	}
	if (k->helped)
		helper_end(k);
	return r;
}
