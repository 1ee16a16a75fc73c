/* $SHEAF_TRACE=FILE: every read and write of this process becomes a line of that file, which `sheaf
 * explain` reads: what was moved, the file's layout, and how long it took.
 *
 *   {"op":"read","bytes":4096,"unit":262144,"width":4,"start":0,
 *    "file":[[56,8,512,4096]],"result":4096,"ns":81253,...}	(in one line)
 *
 * A side of a list access has entries [offset,length] or, if they are regular,
 * [offset,length,count,stride]; a side of a typed access is its pattern. Memory offsets count from
 * its lowest address; memory of one piece is left out. Lists of more than ENTRIES entries are cut
 * ("cut" has the number of pieces); a pattern that is too long is written as such a list.
 *
 * Threads: any, also of several processes: a line is one write(2) that appends. Buffers: each line
 * has memory of its own. Errors: a file that cannot be opened makes the connect fail. Later errors,
 * and a file of TRACE_MAX, end the trace, which is logged once; transfers are not affected. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/api_impl.h"

#define TRACE_MAX (64 * MIB)
#define ENTRIES 4096
#define LINE_MAX_BYTES (1 * MIB) /* two lists of ENTRIES entries fit */

struct tracer {
	int fd;
	atomic_bool ended;
};

struct line {
	size_t len;
	bool cut; /* a list was cut */
	char text[LINE_MAX_BYTES];
};

int tracer_open(struct tracer **out)
{
	const char *path = secure_getenv("SHEAF_TRACE");
	struct tracer *t;
	struct stat st;
	int fd, e = 0;

	*out = NULL;
	if (!path || !path[0])
		return 0;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
	if (fd < 0 || fstat(fd, &st))
		e = errno;
	else if (!S_ISREG(st.st_mode))
		e = EINVAL;
	t = e ? NULL : calloc(1, sizeof(*t));
	if (!t) {
		e = e ? e : ENOMEM;
		why_set("$SHEAF_TRACE: cannot write to '%s': %s; unset it, or name a file", path,
			e == EINVAL ? "it is no regular file" : strerror(e));
		if (fd >= 0)
			close(fd);
		return -e;
	}
	t->fd = fd;
	*out = t;
	return 0;
}

void tracer_close(struct tracer *t)
{
	if (t)
		close(t->fd);
	free(t);
}

/* ---- a line ---- */

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	l->len = MIN(l->len + (size_t)MAX(r, 0), sizeof(l->text));
}

/* A list as it grows; regular pieces are one entry. */
struct entries {
	struct line *l;
	size_t n; /* entries written or begun */
	uint64_t offset, length, count;
	int64_t stride;
};

static void entry_put(struct entries *e)
{
	if (!e->count || e->n > ENTRIES)
		return;
	add(e->l, "%s[%llu,%llu", e->n > 1 ? "," : "", (unsigned long long)e->offset,
	    (unsigned long long)e->length);
	if (e->count > 1)
		add(e->l, ",%llu,%lld", (unsigned long long)e->count, (long long)e->stride);
	add(e->l, "]");
}

static void entry_add(struct entries *e, uint64_t offset, uint64_t length)
{
	bool same = e->count && e->length == length;

	if (!length || e->n > ENTRIES)
		return;
	if (same && e->count == 1)
		e->stride = (int64_t)(offset - e->offset);
	if (same && offset == e->offset + e->count * (uint64_t)e->stride) {
		e->count++;
		return;
	}
	entry_put(e);
	e->n++;
	e->offset = offset;
	e->length = length;
	e->count = 1;
}

static struct entries entries_begin(struct line *l, const char *name)
{
	add(l, "\"%s\":[", name);
	return (struct entries){ .l = l };
}

static void entries_end(struct entries *e)
{
	entry_put(e);
	add(e->l, "],");
	e->l->cut |= e->n > ENTRIES;
}

static void add_runs(struct line *l, const char *name, const struct pattern *p, uint64_t skip,
		     uint64_t base)
{
	struct entries e = entries_begin(l, name);
	struct pattern_cursor c;
	struct extent runs[64];
	size_t n;

	pattern_seek(&c, p, skip);
	while (e.n <= ENTRIES && (n = pattern_runs(&c, runs, ARRAY_LEN(runs), UINT64_MAX)))
		for (size_t i = 0; i < n; i++)
			entry_add(&e, runs[i].offset - base, runs[i].length);
	entries_end(&e);
}

/* Begins a line with the fields that all have; NULL: no line is to be written. */
static struct line *begin(struct sheaf_file *f, const struct traced *how, uint64_t bytes)
{
	const struct layout *lay = &f->f->layout;
	struct line *l;

	if (!bytes || !lay->width || atomic_load(&f->fs->tracer->ended))
		return NULL;
	l = malloc(sizeof(*l));
	if (!l)
		return NULL;
	l->len = 0;
	l->cut = false;
	add(l, "{\"op\":\"%s\",\"bytes\":%llu,\"unit\":%u,\"width\":%u,\"start\":%u,",
	    how->write ? "write" : "read", (unsigned long long)bytes, lay->unit, lay->width,
	    lay->start);
	return l;
}

static void say_ended(struct tracer *t, const char *why)
{
	static atomic_bool said;

	atomic_store(&t->ended, true);
	if (!atomic_exchange(&said, true))
		log_error("trace", "$SHEAF_TRACE: %s; no more transfers are written down", why);
}

/* Completes a line and writes it. pieces: how many there were, if the list was cut. */
static void end(struct sheaf_file *f, const struct traced *how, struct line *l, uint64_t pieces)
{
	struct tracer *t = f->fs->tracer;
	struct stat st;
	ssize_t r;

	if (l->cut)
		add(l, "\"cut\":%llu,", (unsigned long long)pieces);
	if (how->append)
		add(l, "\"append\":true,");
	if (how->began)
		add(l, "\"result\":%lld,\"ns\":%llu,", (long long)how->result,
		    (unsigned long long)(time_now() - how->began));
	add(l, "\"inode\":%llu,\"pid\":%d}\n", (unsigned long long)f->f->h.ino, (int)getpid());
	if (fstat(t->fd, &st) == 0 && (uint64_t)st.st_size + l->len > TRACE_MAX) {
		say_ended(t, "the file has 64 MiB");
	} else {
		r = write(t->fd, l->text, l->len);
		if (r != (ssize_t)l->len)
			say_ended(t, r < 0 ? strerror(errno) : "no room for a whole line");
	}
	free(l);
}

/* ---- transfers ---- */

void trace_list(struct sheaf_file *f, const struct traced *how, const struct iovec *mem,
		size_t n_mem, const struct sheaf_extent *ext, size_t n_ext)
{
	struct entries e;
	uintptr_t lowest = UINTPTR_MAX;
	uint64_t bytes = 0;
	struct line *l;

	for (size_t i = 0; i < n_mem; i++) {
		if (mem[i].iov_len)
			lowest = MIN(lowest, (uintptr_t)mem[i].iov_base);
		bytes += mem[i].iov_len;
	}
	l = begin(f, how, bytes);
	if (!l)
		return;
	e = entries_begin(l, "file");
	for (size_t i = 0; i < n_ext && e.n <= ENTRIES; i++)
		entry_add(&e, ext[i].offset, ext[i].length);
	entries_end(&e);
	if (n_mem > 1) {
		e = entries_begin(l, "mem");
		for (size_t i = 0; i < n_mem && e.n <= ENTRIES; i++)
			entry_add(&e, (uintptr_t)mem[i].iov_base - lowest, mem[i].iov_len);
		entries_end(&e);
	}
	end(f, how, l, MAX(n_ext, n_mem));
}

static void add_pattern(struct line *l, const char *name, uint64_t offset, const struct pattern *p)
{
	int n;

	add(l, "\"%s\":{\"offset\":%llu,\"type\":", name, (unsigned long long)offset);
	n = pattern_text(p, l->text + l->len, LINE_MAX_BYTES / 4);
	l->cut |= n < 0;
	l->len += (size_t)MAX(n, 0);
	add(l, "},");
}

void trace_typed(struct sheaf_file *f, const struct traced *how, const struct typed *t)
{
	struct line *l = begin(f, how, t->mem.total);
	size_t head;

	if (!l)
		return;
	head = l->len;
	add_pattern(l, "file", t->file.first, &t->file);
	add_pattern(l, "mem", 0, &t->mem);
	if (l->cut || t->skip) {
		l->len = head;
		l->cut = false;
		add_runs(l, "file", &t->file, t->skip, 0);
		add_runs(l, "mem", &t->mem, 0, t->mem.begin);
	}
	end(f, how, l, MAX(t->file.segs, t->mem.segs));
}
