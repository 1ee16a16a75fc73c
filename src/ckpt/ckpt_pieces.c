/* Registered memory as one stream of bytes: piece after piece, each in the order of its type.
 *
 * Threads: pieces do not change once the first checkpoint has begun; then any thread reads. */
#include <sys/uio.h>

#include "ckpt/ckpt_impl.h"

#define LISTED 256

/* Calls fn for each run of the first `bytes` bytes of t, tiled from 0 on. */
static int each_run(const struct sheaf_type *t, uint64_t base, uint64_t bytes,
		    int (*fn)(void *arg, uint64_t at, uint64_t len), void *arg)
{
	struct sheaf_extent e[LISTED];

	for (uint64_t skip = 0; skip < bytes;) {
		ssize_t n = sheaf_type_pieces(t, base, skip, bytes - skip, e, LISTED);

		if (n <= 0)
			return n ? (int)n : -EINVAL;
		for (ssize_t i = 0; i < n; i++) {
			int r = fn(arg, e[i].offset, e[i].length);

			if (r)
				return r;
			skip += e[i].length;
		}
	}
	return 0;
}

/* ---- a type's shape, and where a piece is in the global array ---- */

struct shape {
	uint64_t hash, at, len; /* the run that may still grow */
};

static void shape_add(struct shape *s)
{
	if (s->len)
		s->hash = hash_u64(hash_u64(s->hash ^ s->at) ^ s->len);
}

static int shape_run(void *arg, uint64_t at, uint64_t len)
{
	struct shape *s = arg;

	if (s->len && s->at + s->len == at) {
		s->len += len;
		return 0;
	}
	shape_add(s);
	s->at = at;
	s->len = len;
	return 0;
}

struct groups {
	struct ckpt_group *v;
	size_t n, cap;
	uint64_t end;
};

/* Does the run continue the last group? */
static bool extends(const struct ckpt_group *g, uint64_t at, uint64_t len)
{
	if (g->length != len)
		return false;
	if (g->count == 1)
		return at > g->offset;
	return at == g->offset + g->count * g->stride;
}

static int group_run(void *arg, uint64_t at, uint64_t len)
{
	struct groups *s = arg;
	struct ckpt_group *g = s->n ? &s->v[s->n - 1] : NULL;

	s->end = MAX(s->end, at + len);
	if (g && g->count == 1 && g->offset + g->length == at) {
		g->length += len;
		return 0;
	}
	if (g && extends(g, at, len)) {
		g->stride = g->count == 1 ? at - g->offset : g->stride;
		g->count++;
		return 0;
	}
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 8;
		struct ckpt_group *v = realloc(s->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = (struct ckpt_group){ .offset = at, .length = len, .count = 1 };
	return 0;
}

int ckpt_piece_runs(const struct ckpt_piece *p,
		    int (*fn)(void *arg, uint64_t global, uint64_t stream, uint64_t len), void *arg)
{
	uint64_t at = p->start;

	for (size_t i = 0; i < p->n_groups; i++)
		for (uint64_t k = 0; k < p->groups[i].count; k++) {
			const struct ckpt_group *g = &p->groups[i];
			int r = fn(arg, g->offset + k * g->stride, at, g->length);

			if (r)
				return r;
			at += g->length;
		}
	return 0;
}

/* ---- registration ---- */

static int set_global(struct ckpt_piece *p, const struct sheaf_type *where)
{
	struct groups g = { .n = 0 };
	int64_t lower, upper;
	int r;

	if (sheaf_type_size(where) != p->bytes)
		return ckpt_fail(-EINVAL,
				 "piece '%s': its memory has %llu bytes, its place in the global "
				 "array %llu",
				 p->name, (unsigned long long)p->bytes,
				 (unsigned long long)sheaf_type_size(where));
	sheaf_type_bounds(where, &lower, &upper);
	if (lower < 0)
		return ckpt_fail(-EINVAL, "piece '%s': its place begins before the global array",
				 p->name);
	r = each_run(where, 0, p->bytes, group_run, &g);
	p->groups = g.v;
	p->n_groups = g.n;
	p->global = MAX((uint64_t)upper, g.end);
	return r ? ckpt_fail(r, "piece '%s': %s", p->name, sheaf_strerror(r)) : 0;
}

/* Keeps a type of its own; none where the memory is contiguous. */
static int set_type(struct ckpt_piece *p, const struct sheaf_type *type, uint64_t count)
{
	struct shape s = { .hash = p->bytes };
	int64_t lower, upper;
	int r;

	sheaf_type_bounds(type, &lower, &upper);
	r = each_run(type, (uint64_t)MAX(-lower, 0), p->bytes, shape_run, &s);
	if (!r && s.len == p->bytes && s.at == (uint64_t)MAX(-lower, 0))
		return 0;
	shape_add(&s);
	p->shape = s.hash | 1;
	if (!r)
		r = sheaf_type_resized(type, lower, upper, &p->type);
	if (!r) {
		uint64_t extent = (uint64_t)(upper - lower), base = (uint64_t)(uintptr_t)p->mem;

		/* what the walk refuses is refused now */
		if (lower < 0 && base < (uint64_t)-lower)
			r = -EINVAL;
		else if (extent && count > (uint64_t)INT64_MAX / extent)
			r = -EINVAL;
	}
	return r ? ckpt_fail(r, "piece '%s': %s", p->name, sheaf_strerror(r)) : 0;
}

static void piece_free(struct ckpt_piece *p)
{
	sheaf_type_free(p->type);
	free(p->groups);
}

static int check_name(const struct ckpt_pieces *p, const char *name)
{
	if (!name || !*name || strlen(name) >= CKPT_NAME_MAX)
		return ckpt_fail(-EINVAL, "a piece needs a name of 1 to %d characters",
				 CKPT_NAME_MAX - 1);
	for (const char *s = name; *s; s++)
		if ((unsigned char)*s < ' ')
			return ckpt_fail(-EINVAL, "the name of a piece has a control character");
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->v[i].name, name) == 0)
			return ckpt_fail(-EEXIST, "there is a piece '%s' already", name);
	return 0;
}

int ckpt_pieces_add(struct ckpt_pieces *p, const char *name, void *mem,
		    const struct sheaf_type *type, uint64_t count, const struct sheaf_type *where)
{
	struct ckpt_piece add = { .mem = mem, .start = p->bytes }, *v;
	uint64_t size = type ? sheaf_type_size(type) : 1;
	int r = check_name(p, name);

	if (r)
		return r;
	snprintf(add.name, sizeof(add.name), "%s", name);
	if ((size && count > (uint64_t)INT64_MAX / size) ||
	    p->bytes + size * count > (uint64_t)INT64_MAX)
		return ckpt_fail(-EINVAL, "piece '%s' is too large", name);
	add.bytes = size * count;
	if (!mem && add.bytes)
		return ckpt_fail(-EINVAL, "piece '%s' has no memory", name);
	if (type && add.bytes)
		r = set_type(&add, type, count);
	if (!r && where)
		r = set_global(&add, where);
	v = r ? NULL : realloc(p->v, (p->n + 1) * sizeof(*v));
	if (!v) {
		piece_free(&add);
		return r ? r : ckpt_fail(-ENOMEM, "out of memory");
	}
	p->v = v;
	p->v[p->n++] = add;
	p->bytes += add.bytes;
	return 0;
}

void ckpt_pieces_free(struct ckpt_pieces *p)
{
	for (size_t i = 0; i < p->n; i++)
		piece_free(&p->v[i]);
	free(p->v);
	*p = (struct ckpt_pieces){ .v = NULL };
}

uint64_t ckpt_pieces_digest(const struct ckpt_pieces *p)
{
	uint64_t h = p->n;

	for (size_t i = 0; i < p->n; i++)
		h = hash_bytes(p->v[i].name, strlen(p->v[i].name), h + p->v[i].global);
	return h;
}

/* ---- the stream ---- */

/* Adds memory, joined with the entry before where it continues it; false: there is no room. */
static bool add_memory(struct iovec *iov, size_t max, size_t *n, char *mem, uint64_t len)
{
	struct iovec *last = *n ? &iov[*n - 1] : NULL;

	if (last && (char *)last->iov_base + last->iov_len == mem) {
		last->iov_len += len;
		return true;
	}
	if (*n == max)
		return false;
	iov[(*n)++] = (struct iovec){ mem, len };
	return true;
}

/* Adds `len` bytes of a piece from `skip` on; returns how many were added, or -errno. */
static ssize_t piece_memory(const struct ckpt_piece *p, uint64_t skip, uint64_t len,
			    struct iovec *iov, size_t max, size_t *n)
{
	struct sheaf_extent e[LISTED];
	uint64_t done = 0;

	if (!p->type)
		return add_memory(iov, max, n, p->mem + skip, len) ? (ssize_t)len : 0;
	while (done < len) {
		ssize_t k = sheaf_type_pieces(p->type, (uint64_t)(uintptr_t)p->mem, skip + done,
					      len - done, e, LISTED);

		if (k <= 0)
			return k ? k : -EINVAL;
		for (ssize_t i = 0; i < k; i++) {
			if (!add_memory(iov, max, n, (char *)(uintptr_t)e[i].offset, e[i].length))
				return (ssize_t)done;
			done += e[i].length;
		}
	}
	return (ssize_t)done;
}

/* The piece that has byte `at` of the stream. */
static size_t piece_at(const struct ckpt_pieces *p, uint64_t at)
{
	size_t low = 0, high = p->n;

	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (p->v[mid].start <= at)
			low = mid;
		else
			high = mid;
	}
	return low;
}

ssize_t ckpt_stream_memory(const struct ckpt_pieces *p, uint64_t at, uint64_t len,
			   struct iovec *iov, size_t max, size_t *n)
{
	uint64_t done = 0;

	if (at > p->bytes || len > p->bytes - at)
		return -EINVAL;
	for (size_t i = piece_at(p, at); i < p->n && done < len; i++) {
		const struct ckpt_piece *v = &p->v[i];
		uint64_t skip = at + done - v->start, want = MIN(len - done, v->bytes - skip);
		ssize_t got = want ? piece_memory(v, skip, want, iov, max, n) : 0;

		if (got < 0)
			return got;
		done += (uint64_t)got;
		if ((uint64_t)got < want)
			break;
	}
	return (ssize_t)done;
}

int ckpt_stream_copy(const struct ckpt_pieces *p, uint64_t at, uint64_t len, char *out)
{
	struct iovec iov[LISTED];

	while (len) {
		size_t n = 0;
		ssize_t got = ckpt_stream_memory(p, at, len, iov, LISTED, &n);

		if (got <= 0)
			return got ? (int)got : -EINVAL;
		for (size_t i = 0; i < n; i++) {
			memcpy(out, iov[i].iov_base, iov[i].iov_len);
			out += iov[i].iov_len;
		}
		at += (uint64_t)got;
		len -= (uint64_t)got;
	}
	return 0;
}
