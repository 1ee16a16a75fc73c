/* Moving bytes between two ends: blocks of 4 MiB, read ahead and written behind.
 *
 * Buffers: SLOTS blocks used in turn; a block is read, then written, then used again. Operations inside
 * the file system run while we go on; those of the host's files are done at once and in order, so pipes
 * work. Errors: -errno; nothing is under way any more when cli_copier_run() returns. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

#define SLOTS 8
#define AHEAD 4
#define DRAW_NS (200 * NSEC_PER_MSEC)

struct slot {
	char *buf;
	struct sheaf_op *op; /* under way, or NULL */
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

static void progress_draw(struct cli_progress *p, bool last)
{
	uint64_t now = cli_now();
	char size[32], speed[40];

	if (!p->label || (!last && now - p->drawn < DRAW_NS))
		return;
	p->drawn = now;
	format_size(size, sizeof(size), p->done);
	cli_speed(speed, sizeof(speed), p->done, now - p->started);
	fprintf(stderr, "\r");
	cli_put_name(stderr, p->label);
	if (p->total)
		fprintf(stderr, "  %3u %%", (unsigned)MIN(100, p->done * 100 / p->total));
	fprintf(stderr, "  %s  %s\033[K%s", size, speed, last ? "\r\033[K" : "");
	fflush(stderr);
}

/* ---- the host's side ---- */

static ssize_t read_full(int fd, char *p, size_t n)
{
	size_t have = 0;
	ssize_t r;

	while (have < n) {
		r = read(fd, p + have, n - have);
		if (r < 0 && errno == EINTR && !cli_signal)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		have += (size_t)r;
	}
	return (ssize_t)have;
}

static int write_full(int fd, const char *p, size_t n)
{
	ssize_t r;

	while (n) {
		r = write(fd, p, n);
		if (r < 0 && errno == EINTR && !cli_signal)
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

/* Ends the write that used this block last. */
static int slot_reuse(struct slot *t)
{
	ssize_t r;

	if (!t->op)
		return 0;
	r = slot_wait(t);
	if (r < 0)
		return (int)r;
	return (size_t)r == t->want ? 0 : -EIO;
}

/* Begins to read a block; *end: there is nothing behind it. */
static int slot_read(struct slot *t, struct cli_stream *from, uint64_t off, uint64_t size,
		     bool *end)
{
	if (!t->buf)
		t->buf = malloc(CLI_BLOCK);
	if (!t->buf)
		return -ENOMEM;
	t->off = off;
	if (!from->f) {
		t->got = read_full(from->fd, t->buf, CLI_BLOCK);
		*end = t->got < (ssize_t)CLI_BLOCK;
		return t->got < 0 ? (int)t->got : 0;
	}
	*end = size - off <= CLI_BLOCK;
	t->got = 0;
	t->want = (size_t)MIN(size - off, CLI_BLOCK);
	return t->want ? sheaf_pread_start(from->f, t->buf, t->want, (off_t)off, &t->op) : 0;
}

static int slot_write(struct slot *t, struct cli_stream *to, size_t n)
{
	t->want = n;
	if (!n)
		return 0;
	if (to->f)
		return sheaf_pwrite_start(to->f, t->buf, n, (off_t)t->off, &t->op);
	return write_full(to->fd, t->buf, n);
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

		if (cli_signal)
			return -EINTR;
		if (!end && reads < writes + AHEAD) {
			t = &k->slots[reads % SLOTS];
			*source = false;
			r = slot_reuse(t);
			if (r)
				return r;
			*source = true;
			r = slot_read(t, from, reads++ * CLI_BLOCK, size, &end);
			continue;
		}
		t = &k->slots[writes++ % SLOTS];
		*source = true;
		n = t->op ? slot_wait(t) : t->got;
		if (n < 0)
			return (int)n;
		*source = false;
		r = slot_write(t, to, (size_t)n);
		p->done += (uint64_t)n;
		progress_draw(p, false);
	}
	return r;
}

int cli_copier_run(struct cli_copier *k, struct cli_stream *from, struct cli_stream *to,
		   uint64_t size, struct cli_progress *p, bool *source)
{
	int r, r2;

	p->started = p->drawn = cli_now();
	for (int i = 0; i < SLOTS; i++)
		k->slots[i].op = NULL;
	r = pump(k, from, to, size, p, source);
	for (int i = 0; i < SLOTS; i++) { /* after an error these may be reads as well */
		r2 = slot_reuse(&k->slots[i]);
		if (!r && r2) {
			r = r2;
			*source = false;
		}
	}
	if (p->drawn != p->started)
		progress_draw(p, true);
	return r;
}
