/* When the loop may write to a file on ext4 itself. ext4 has no RWF_NOWAIT for writes, and handing
 * each write to a thread costs more than the write. A buffered write blocks
 *
 *   while the system throttles writers      not while dirty memory is well below the background
 *                                           threshold and little is on its way to the disks
 *   to read a page that it changes in part  not if the page is cached, or new
 *   for a file that a thread writes to      such writes are queued (io_queue.c)
 *   for the journal                         rarely: a write that took long is counted as a stall,
 *                                           and for a while all writes are handed over
 *
 * The limits of a memory cgroup are not seen: there only the pause after a stall helps.
 *
 * Threads: the loop's. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/inline_write.h"

#define EXT4_MAGIC 0xef53
#define CHECK_NS (10 * NSEC_PER_MSEC) /* dirty memory is read this often at most */
/* a write that takes longer has waited for a disk; a shorter one may have lost the processor */
#define STALL_NS (10 * NSEC_PER_MSEC)
#define PAUSE_FACTOR 100 /* of a stall: the time for which writes are handed over after it */
#define LENGTH_MAX MIB /* a longer batch is handed over: it takes too long even if cached */
#define HULL_PAGES 1024 /* a batch that spans more is not asked for as a whole */
#define WRITEBACK_MAX 2048 /* pages on their way to the disks; more mean that a disk is busy */
#define DIRTY_SHARE 4 /* uses up to this part of the free dirty memory until it is read again */

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

void inline_writes_add(struct inline_writes *w, int dir)
{
	struct statfs s;
	bool ext4 = fstatfs(dir, &s) == 0 && s.f_type == EXT4_MAGIC;

	if (ext4 && !w->vmstat)
		w->vmstat = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
	w->on = ext4 && w->vmstat > 0 && !w->never;
	w->never = !w->on;
}

void inline_writes_fini(struct inline_writes *w)
{
	if (w->vmstat > 0)
		close(w->vmstat);
}

/* The value after "\nNAME " in the text; UINT64_MAX: it is missing. */
static uint64_t value_of(const char *text, const char *name)
{
	const char *p = strstr(text, name);

	return p ? strtoull(p + strlen(name), NULL, 10) : UINT64_MAX;
}

static void read_dirty(struct inline_writes *w, struct loop *l, uint64_t now)
{
	char text[16 * KIB];
	ssize_t n = pread(w->vmstat, text, sizeof(text) - 1, 0);
	uint64_t dirty, limit, moving;

	l->calls++;
	w->checked = now;
	w->left = 0;
	if (n <= 0)
		return;
	text[n] = 0;
	dirty = value_of(text, "\nnr_dirty ");
	limit = value_of(text, "\nnr_dirty_background_threshold ");
	moving = value_of(text, "\nnr_writeback ");
	if (dirty < limit && limit != UINT64_MAX && moving < WRITEBACK_MAX)
		w->left = (limit - dirty) / DIRTY_SHARE * page_size();
}

static bool is_cached(const struct inline_writes *w, struct env *e, struct loop *l, int fd,
		      uint64_t page)
{
	uint64_t size = page_size(), off = page * size;

	return (off >= w->lo && off + size <= w->hi) || e->file->cached(e, l, fd, off, size);
}

/* True: the pages that the write changes only in part are cached, or lie behind the end. */
static bool edges_are_ready(const struct inline_writes *w, struct env *e, struct loop *l,
			    const struct io *io, uint64_t end)
{
	uint64_t size = page_size(), first = io->off / size, last = (end - 1) / size;
	bool ready = (io->off % size == 0 || is_cached(w, e, l, io->fd, first)) &&
		     (end % size == 0 || is_cached(w, e, l, io->fd, last));
	struct stat st;

	if (!ready && fstat(io->fd, &st) == 0) {
		l->calls++;
		ready = first * size >= (uint64_t)st.st_size;
	}
	return ready;
}

/* Asks once for the pages of the whole batch. */
static void find_pages(struct inline_writes *w, struct env *e, struct loop *l, const struct io *ios,
		       size_t n)
{
	uint64_t size = page_size(), lo = UINT64_MAX, hi = 0;

	w->lo = w->hi = 0;
	for (size_t i = 0; i < n; i++) {
		lo = MIN(lo, ios[i].off / size * size);
		hi = MAX(hi, ios[i].off + ios[i].len);
	}
	hi = (hi + size - 1) / size * size;
	if (n < 2 || hi - lo > HULL_PAGES * size || !e->file->cached(e, l, ios[0].fd, lo, hi - lo))
		return;
	w->lo = lo;
	w->hi = hi;
}

bool inline_writes_begin(struct inline_writes *w, struct env *e, struct loop *l,
			 const struct io *ios, size_t n)
{
	uint64_t len = 0, dirty, now = e->clock->now(e);

	if (!w->on || now < w->paused_until)
		return false;
	for (size_t i = 0; i < n; i++)
		len += ios[i].len;
	dirty = len + n * page_size(); /* pages become dirty as a whole */
	if (now - w->checked >= CHECK_NS)
		read_dirty(w, l, now);
	if (len > LENGTH_MAX || dirty > w->left)
		return false;
	w->left -= dirty;
	w->began = now;
	w->stalled = false;
	find_pages(w, e, l, ios, n);
	return true;
}

bool inline_writes_may(const struct inline_writes *w, struct env *e, struct loop *l,
		       const struct io *io)
{
	return !io->len || edges_are_ready(w, e, l, io, io->off + io->len);
}

void inline_writes_performed(struct inline_writes *w, struct loop *l)
{
	uint64_t now = l->env->clock->now(l->env), took = now - w->began;

	w->began = now;
	if (took < STALL_NS)
		return;
	l->io_stalls++;
	l->io_longest_stall = MAX(l->io_longest_stall, took);
	w->stalled = true;
	w->paused_until = now + PAUSE_FACTOR * took;
}
