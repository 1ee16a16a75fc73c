/* Which whole pages of the memory are tracked: every one of them has registered bytes, so that
 * memory between the runs of a typed piece, which may be foreign or not mapped, stays as it is.
 *
 * Threads: any. Buffers: one entry for runs with less than a page between them. Errors: -ENOMEM;
 * -EOPNOTSUPP: shared mappings. */
#include "ckpt/ckpt_impl.h"

#define LISTED 256

struct spans {
	struct ckpt_span *v;
	size_t n, cap;
};

static int by_address(const void *a, const void *b)
{
	const struct ckpt_span *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int longest_first(const void *a, const void *b)
{
	const struct ckpt_span *x = a, *y = b;
	uintptr_t n = x->end - x->begin, m = y->end - y->begin;

	return n < m ? 1 : -(n > m);
}

/* Ascending, and joined where at most `slack` bytes are between two. */
static void join(struct spans *s, uintptr_t slack)
{
	size_t n = 0;

	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), by_address);
	for (size_t i = 0; i < s->n; i++) {
		if (n && s->v[i].begin <= s->v[n - 1].end + slack)
			s->v[n - 1].end = MAX(s->v[n - 1].end, s->v[i].end);
		else
			s->v[n++] = s->v[i];
	}
	s->n = n;
}

static int add(struct spans *s, uintptr_t begin, uintptr_t end, uintptr_t slack)
{
	struct ckpt_span *last = s->n ? &s->v[s->n - 1] : NULL, *v;

	if (last && begin <= last->end + slack && last->begin <= end + slack) {
		last->begin = MIN(last->begin, begin);
		last->end = MAX(last->end, end);
		return 0;
	}
	if (s->n == s->cap)
		join(s, slack);
	if (!s->cap || s->n > s->cap / 2) {
		size_t cap = s->cap ? 2 * s->cap : 64;

		v = realloc(s->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = (struct ckpt_span){ begin, end };
	return 0;
}

static int add_piece(const struct ckpt_pieces *p, const struct ckpt_piece *piece, struct spans *s,
		     uintptr_t slack)
{
	struct iovec iov[LISTED];
	int r = 0;

	for (uint64_t done = 0; !r && done < piece->bytes;) {
		size_t n = 0;
		ssize_t got = ckpt_stream_memory(p, piece->start + done, piece->bytes - done, iov,
						 LISTED, &n);

		if (got <= 0)
			return got ? (int)got : -EINVAL;
		for (size_t i = 0; !r && i < n; i++) {
			uintptr_t begin = (uintptr_t)iov[i].iov_base;

			r = add(s, begin, begin + iov[i].iov_len, slack);
		}
		done += (uint64_t)got;
	}
	join(s, slack);
	return r;
}

int ckpt_areas(const struct ckpt_pieces *p, uintptr_t page, size_t most, struct ckpt_span **out,
	       size_t *n)
{
	struct spans all = { .n = 0 };
	int r = 0;

	for (size_t i = 0; !r && i < p->n; i++) {
		struct spans runs = { .n = 0 };

		r = add_piece(p, &p->v[i], &runs, page - 1);
		for (size_t k = 0; !r && k < runs.n; k++) {
			uintptr_t begin = (runs.v[k].begin + page - 1) & ~(page - 1);
			uintptr_t end = runs.v[k].end & ~(page - 1);

			r = begin < end ? add(&all, begin, end, 0) : 0;
		}
		free(runs.v);
	}
	join(&all, 0);
	if (all.n > most) {
		qsort(all.v, all.n, sizeof(*all.v), longest_first);
		all.n = most;
		join(&all, 0);
	}
	*out = all.v;
	*n = all.n;
	return r;
}

static bool is_in(const struct ckpt_span *v, size_t n, uintptr_t begin, uintptr_t end)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].begin < end && begin < v[i].end)
			return true;
	return false;
}

int ckpt_check_private(const struct ckpt_pieces *p, const char *advice)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	struct ckpt_span *spans = NULL;
	unsigned long begin, end;
	char line[4608], mode[5];
	size_t n = 0;
	int r = maps ? ckpt_areas(p, 1, SIZE_MAX, &spans, &n) :
		       ckpt_fail(-errno, "/proc/self/maps: %s", strerror(errno));

	while (!r && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &begin, &end, mode) == 3 && mode[3] == 's' &&
		    is_in(spans, n, begin, end))
			r = ckpt_fail(-EOPNOTSUPP,
				      "registered memory at %lx is shared with other processes, "
				      "and %s",
				      begin, advice);
	if (!r && ferror(maps))
		r = ckpt_fail(-EIO, "/proc/self/maps cannot be read");
	if (maps)
		fclose(maps);
	free(spans);
	return r;
}
