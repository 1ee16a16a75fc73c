/* Moving bytes between two ends: blocks of 1 MiB, read ahead and written behind.
 *
 * Threads: any, each with a copier of its own; they share the progress.
 * Buffers: SLOTS blocks used in turn; a block is read, then written, then used again. Operations inside
 * the file system run while we go on; those of the host's files are done at once and in order, so pipes
 * work. Errors: -errno; nothing is under way any more when cli_copier_run() returns. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

#define SLOTS 8
#define AHEAD 4
#define BLOCK MIB /* larger ones leave the caches: a third slower */
#define DRAW_NS (200 * NSEC_PER_MSEC)

struct slot {
	char *buf;
	struct sheaf_op *op; /* under way, or NULL */
	bool reading; /* else it writes */
	uint64_t off;
	size_t want;
	ssize_t got; /* of a read that was done at once */
};

struct cli_copier {
	struct slot slots[SLOTS];
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
	uint64_t now = cli_now(), done = p->done, total = p->total, ns = now - p->started;
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

static int write_full(struct cli_progress *pr, int fd, const char *p, size_t n)
{
	ssize_t r;

	while (n) {
		r = write(fd, p, n);
		if (r < 0 && errno == EINTR && !pr->stop)
			continue;
		if (r < 0)
			return -errno;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

/* ---- one block ---- */

static ssize_t slot_wait(struct slot *t)
{
	struct sheaf_op *op = t->op;

	t->op = NULL;
	return sheaf_wait(op);
}

/* Ends what used this block last: a write; after an error maybe a read, which nobody wants any more. */
static int slot_reuse(struct slot *t)
{
	ssize_t r;

	if (!t->op)
		return 0;
	r = slot_wait(t);
	if (r < 0)
		return (int)r;
	return t->reading || (size_t)r == t->want ? 0 : -EIO;
}

/* Begins to read a block; *end: there is nothing behind it. */
static int slot_read(struct slot *t, struct cli_stream *from, uint64_t off, uint64_t size,
		     struct cli_progress *p, bool *end)
{
	if (!t->buf)
		t->buf = malloc(BLOCK);
	if (!t->buf)
		return -ENOMEM;
	t->off = off;
	t->reading = true;
	if (!from->f) {
		t->got = read_full(p, from->fd, t->buf, BLOCK);
		*end = t->got < (ssize_t)BLOCK;
		return t->got < 0 ? (int)t->got : 0;
	}
	*end = size - off <= BLOCK;
	t->got = 0;
	t->want = (size_t)MIN(size - off, BLOCK);
	return t->want ? sheaf_pread_start(from->f, t->buf, t->want, (off_t)off, &t->op) : 0;
}

static int slot_write(struct slot *t, struct cli_stream *to, size_t n, struct cli_progress *p)
{
	t->want = n;
	t->reading = false;
	if (!n)
		return 0;
	if (to->f)
		return sheaf_pwrite_start(to->f, t->buf, n, (off_t)t->off, &t->op);
	return write_full(p, to->fd, t->buf, n);
}

/* Reads and writes until the end or an error; may leave operations under way. */
static int pump(struct cli_copier *k, struct cli_stream *from, struct cli_stream *to, uint64_t size,
		struct cli_progress *p, bool *source)
{
	uint64_t reads = 0, writes = 0;
	bool end = false;
	ssize_t n;
	int r = 0;

	while (!r && (!end || writes < reads)) {
		struct slot *t;

		if (p->stop)
			return -EINTR;
		if (!end && reads < writes + AHEAD) {
			t = &k->slots[reads % SLOTS];
			*source = false;
			r = slot_reuse(t);
			if (r)
				return r;
			*source = true;
			r = slot_read(t, from, reads++ * BLOCK, size, p, &end);
			continue;
		}
		t = &k->slots[writes++ % SLOTS];
		*source = true;
		n = t->op ? slot_wait(t) : t->got;
		if (n < 0)
			return (int)n;
		*source = false;
		r = slot_write(t, to, (size_t)n, p);
		p->done += (uint64_t)n;
	}
	return r;
}

int cli_copier_run(struct cli_copier *k, struct cli_stream *from, struct cli_stream *to,
		   uint64_t size, struct cli_progress *p, bool *source)
{
	int r, r2;

	for (int i = 0; i < SLOTS; i++)
		k->slots[i].op = NULL;
	r = pump(k, from, to, size, p, source);
	for (int i = 0; i < SLOTS; i++) {
		r2 = slot_reuse(&k->slots[i]);
		if (r2 && (!r || r == -EINTR)) { /* a lost server matters more than a signal */
			r = r2;
			*source = k->slots[i].reading;
		}
	}
	return r;
}
