/* The accesses to one file that may block. While some are in progress the others wait; then all
 * that wait are sorted, and adjacent ones become one access, whatever request or client they come
 * from. An access that finds no other in progress starts at once: none waits for a clock.
 *
 * One chain of writes is in progress at a time: a file system locks the file for a write, so a
 * second one would only wait there. Reads are many, to keep the queue of the disk full.
 *
 * If a joined access fails, each of its parts is repeated alone, a write too: an error fails only
 * the requests that need the bad bytes. Threads: the loop's. Memory: none of its own; the accesses
 * are linked. Fair: by order of arrival, a batch at a time. */
#include <stdlib.h>

#include "core/core.h"

#define BATCH 256 /* accesses sorted at a time */
#define READS_MAX 64 /* reads of one file in progress */
#define JOINED_MAX (1 * MIB) /* bytes of a joined access */
#define BATCH_BYTES (4 * MIB) /* a batch ends with the access that reaches this */

void io_queue_init(struct io_queue *f, uint64_t *joined)
{
	*f = (struct io_queue){ .joined = joined };
	list_init(&f->reads);
	list_init(&f->writes);
}

static int by_offset(const void *a, const void *b)
{
	const struct io *x = *(struct io *const *)a, *y = *(struct io *const *)b;

	return (x->off > y->off) - (x->off < y->off);
}

/* Links adjacent accesses. Returns the number of accesses that are left in `ios`. */
static size_t join(struct io_queue *f, struct io **ios, size_t n)
{
	struct io *last = NULL;
	size_t left = 0;

	qsort(ios, n, sizeof(ios[0]), by_offset);
	for (size_t i = 0; i < n; i++) {
		struct io *io = ios[i], *head = left ? ios[left - 1] : NULL;

		if (head && !head->is_alone && !io->is_alone &&
		    head->off + head->total == io->off && head->total + io->len <= JOINED_MAX) {
			io->so_far = 0;
			last->joined = io;
			head->total += io->len;
			(*f->joined)++;
		} else {
			ios[left++] = io;
		}
		last = io;
	}
	return left;
}

/* Starts those that wait, as far as allowed. */
static void start(struct io_queue *f, struct loop *l, struct list *waiting, uint32_t *away,
		  uint32_t most)
{
	struct io *ios[BATCH];
	struct list *it;
	uint64_t bytes = 0;
	size_t n = 0;

	while (*away + n < most && n < BATCH && bytes < BATCH_BYTES && (it = list_pop(waiting))) {
		ios[n] = list_entry(it, struct io, link);
		bytes += ios[n++]->len;
	}
	if (!n)
		return;
	n = join(f, ios, n);
	*away += (uint32_t)n;
	for (size_t i = 0; i < n; i++)
		ios[i]->next = i + 1 < n ? ios[i + 1] : NULL;
	l->env->file->submit(l->env, l, ios[0]);
}

static void start_all(struct io_queue *f, struct loop *l)
{
	start(f, l, &f->reads, &f->reads_away, READS_MAX);
	if (!f->writes_away)
		start(f, l, &f->writes, &f->writes_away, BATCH);
}

static void push(struct io_queue *f, struct io *io)
{
	list_push(io->kind == IO_READ ? &f->reads : &f->writes, &io->link);
}

void io_queue_submit(struct io_queue *f, struct loop *l, struct io *ios, size_t n)
{
	struct env *e = l->env;

	for (size_t i = 0; i < n; i++)
		io_begin(l, &ios[i]);
	/* a write would wait for those in progress, and for an allocation */
	if (n && e->file->perform_now &&
	    !(ios[0].kind == IO_WRITE && (f->writes_away || f->allocations)))
		e->file->perform_now(e, l, ios, n);
	for (size_t i = 0; i < n; i++) {
		if (ios[i].is_done) {
			io_finish(&ios[i]);
		} else {
			ios[i].queue = f;
			push(f, &ios[i]);
		}
	}
	start_all(f, l);
}

static void repeat_alone(struct io_queue *f, struct io *io)
{
	for (struct io *next; io; io = next) {
		next = io->joined;
		io_reset(io);
		io->is_alone = true;
		push(f, io);
		*f->joined -= next != NULL;
	}
}

void io_queue_ended(struct io *io)
{
	struct io_queue *f = io->queue;
	struct loop *l = io->loop;
	uint64_t left = io->bytes;
	int error = io->error;

	if (io->kind == IO_READ)
		f->reads_away--;
	else
		f->writes_away--;
	if (error && io->joined) {
		repeat_alone(f, io);
		io = NULL;
	}
	start_all(f, l); /* before the file may go */
	for (struct io *next; io; io = next) {
		next = io->joined;
		io->queue = NULL;
		io->error = error;
		io->bytes = MIN(left, io->len);
		left -= io->bytes;
		io_finish(io);
	}
}
