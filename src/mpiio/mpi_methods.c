/* The ways of accessing scattered data that the hint sheaf_method compares with typed requests: a
 * call for each piece, sieving by the client as in ROMIO, and lists.
 *
 * Threads: the caller's. Buffers: one window of a sieving access. Errors: bytes moved, or
 * -errno. */
#include <fcntl.h>
#include <stdlib.h>

#include "mpiio/mpi_impl.h"

#define SIEVE_READ (4 * MIB)
#define SIEVE_WRITE (512 * KIB)
#define LIST_ENTRIES 1024

ssize_t mmethod_multiple(struct maccess *a)
{
	struct mwalk *w = malloc(sizeof(*w));
	struct mpiece p;
	ssize_t n, all = 0;
	uint64_t calls = 0;
	int r = 0;

	if (!w)
		return -ENOMEM;
	mwalk_begin(w, a);
	while (!r && mwalk_next(w, UINT64_MAX, &p)) {
		n = a->write ? sheaf_pwrite(a->f->f, p.mem, p.length, (off_t)p.offset) :
			       sheaf_pread(a->f->f, p.mem, p.length, (off_t)p.offset);
		calls++;
		r = (int)MIN(n, 0);
		all += MAX(n, 0);
		if (n < (ssize_t)p.length)
			break;
	}
	if (!r)
		r = w->error;
	free(w);
	mstats_count(a, M_MULTIPLE, calls, (uint64_t)all);
	return r ? r : all;
}

struct batch {
	struct iovec mem[LIST_ENTRIES];
	struct sheaf_extent file[LIST_ENTRIES];
	struct mwalk w;
};

ssize_t mmethod_list(struct maccess *a)
{
	struct batch *l = malloc(sizeof(*l));
	struct mpiece p;
	ssize_t n, all = 0;
	uint64_t calls = 0, bytes;
	int r = 0;

	if (!l)
		return -ENOMEM;
	mwalk_begin(&l->w, a);
	while (!r && !l->w.error && l->w.pos < l->w.bytes) {
		size_t k = 0;

		for (bytes = 0; k < LIST_ENTRIES && mwalk_next(&l->w, UINT64_MAX, &p); k++) {
			l->mem[k] = (struct iovec){ p.mem, p.length };
			l->file[k] = (struct sheaf_extent){ p.offset, p.length };
			bytes += p.length;
		}
		r = l->w.error;
		if (r)
			break;
		n = a->write ? sheaf_write_list(a->f->f, l->mem, k, l->file, k) :
			       sheaf_read_list(a->f->f, l->mem, k, l->file, k);
		calls++;
		r = (int)MIN(n, 0);
		all += MAX(n, 0);
		if (n < (ssize_t)bytes)
			break;
	}
	free(l);
	mstats_count(a, M_LIST, calls, (uint64_t)all);
	return r ? r : all;
}

/* ---- sieving ---- */

struct window {
	char *buf;
	uint64_t at, have; /* in the file; bytes read */
	uint64_t room;
};

/* Reads the window that begins at `at`. */
static int window_read(struct maccess *a, struct window *w, uint64_t at, uint64_t *calls)
{
	ssize_t n = sheaf_pread(a->f->f, w->buf, w->room, (off_t)at);

	++*calls;
	w->at = at;
	w->have = (uint64_t)MAX(n, 0);
	return (int)MIN(n, 0);
}

static ssize_t sieve_read(struct maccess *a, struct mwalk *w, struct window *win, uint64_t *calls)
{
	struct mpiece p;
	uint64_t done = 0;

	while (mwalk_next(w, SIEVE_READ, &p)) {
		uint64_t got;

		if (!*calls || p.offset < win->at || p.offset + p.length > win->at + win->room) {
			int r = window_read(a, win, p.offset, calls);

			if (r)
				return r;
		}
		if (p.offset >= win->at + win->have)
			break;
		got = MIN(p.length, win->at + win->have - p.offset);
		memcpy(p.mem, win->buf + (p.offset - win->at), got);
		done += got;
		if (got < p.length)
			break;
	}
	return (ssize_t)done;
}

/* Reads, modifies and writes one window under a lock; *next: a piece beyond it, or length 0. */
static int sieve_window(struct maccess *a, struct mwalk *w, struct window *win, struct mpiece *next,
			uint64_t *done, uint64_t *calls)
{
	struct sheaf_lock l = { .size = sizeof(l),
				.type = F_WRLCK,
				.start = next->offset,
				.length = win->room,
				.owner = (uint64_t)(uintptr_t)a };
	uint64_t end = 0;
	ssize_t n;
	int r = sheaf_lock(a->f->f, &l, 1), unlocked;

	if (r)
		return r;
	r = window_read(a, win, next->offset, calls);
	memset(win->buf + win->have, 0, win->room - win->have);
	while (!r && next->length && next->offset >= win->at &&
	       next->offset + next->length <= win->at + win->room) {
		memcpy(win->buf + (next->offset - win->at), next->mem, next->length);
		end = MAX(end, next->offset + next->length - win->at);
		*done += next->length;
		next->length = 0;
		mwalk_next(w, SIEVE_WRITE, next);
	}
	if (!r) {
		n = sheaf_pwrite(a->f->f, win->buf, end, (off_t)win->at);
		++*calls;
		r = (int)MIN(n, 0);
	}
	l.type = F_UNLCK;
	unlocked = sheaf_lock(a->f->f, &l, 0);
	return r ? r : unlocked;
}

static ssize_t sieve_write(struct maccess *a, struct mwalk *w, struct window *win, uint64_t *calls)
{
	struct mpiece next = { 0 };
	uint64_t done = 0;
	int r = mfile_open_own(a->f);

	if (!r)
		mwalk_next(w, SIEVE_WRITE, &next);
	while (!r && next.length)
		r = sieve_window(a, w, win, &next, &done, calls);
	return r ? r : (ssize_t)done;
}

/* A file that cannot be read is written in pieces. */
ssize_t mmethod_sieve(struct maccess *a)
{
	struct window win = { .room = a->write ? SIEVE_WRITE : SIEVE_READ };
	struct mwalk *w;
	uint64_t calls = 0;
	ssize_t r = -ENOMEM;

	if (a->write && (a->f->amode & MPI_MODE_WRONLY))
		return mmethod_multiple(a);
	w = malloc(sizeof(*w));
	win.buf = malloc(win.room);
	if (w && win.buf) {
		mwalk_begin(w, a);
		r = a->write ? sieve_write(a, w, &win, &calls) : sieve_read(a, w, &win, &calls);
		r = w->error ? w->error : r;
	}
	free(w);
	free(win.buf);
	mstats_count(a, M_SIEVE, calls, (uint64_t)MAX(r, 0));
	return r;
}
