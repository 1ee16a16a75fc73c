/* The public interface: types, and transfers that are described by them.
 *
 * Threads: any; types are immutable. Buffers: memory and types that a started transfer borrows stay
 * the caller's until it has ended. Errors: -errno. */
#include "client/api_impl.h"

/* ---- types: a constructor that fails sets *t to NULL, and NULL is no valid element type ---- */

static const struct type *inner(const struct sheaf_type *t)
{
	return (const struct type *)t;
}

static struct type **out(struct sheaf_type **t)
{
	*t = NULL;
	return (struct type **)t;
}

int sheaf_type_bytes(uint64_t n, struct sheaf_type **t)
{
	return type_bytes(n, out(t));
}

int sheaf_type_vector(uint64_t count, uint64_t block, int64_t stride, const struct sheaf_type *of,
		      struct sheaf_type **t)
{
	struct type **new = out(t);

	return of ? type_vector(count, block, stride, inner(of), new) : -EINVAL;
}

int sheaf_type_indexed(size_t n, const uint64_t *blocks, const int64_t *displ,
		       const struct sheaf_type *of, struct sheaf_type **t)
{
	struct type **new = out(t);

	return of ? type_indexed(n, blocks, displ, inner(of), new) : -EINVAL;
}

int sheaf_type_struct(size_t n, const uint64_t *blocks, const int64_t *displ,
		      const struct sheaf_type *const *of, struct sheaf_type **t)
{
	struct type **new = out(t);

	for (size_t i = 0; i < n; i++)
		if (!of[i])
			return -EINVAL;
	return type_struct(n, blocks, displ, (const struct type *const *)of, new);
}

int sheaf_type_subarray(int nd, const uint64_t *sizes, const uint64_t *subsizes,
			const uint64_t *starts, const struct sheaf_type *of, struct sheaf_type **t)
{
	struct type **new = out(t);

	return of ? type_subarray(nd, sizes, subsizes, starts, inner(of), new) : -EINVAL;
}

uint64_t sheaf_type_size(const struct sheaf_type *t)
{
	return type_size(inner(t));
}

void sheaf_type_bounds(const struct sheaf_type *t, int64_t *lower, int64_t *upper)
{
	*lower = type_lower(inner(t));
	*upper = type_upper(inner(t));
}

/* Whole copies of the file type are no part of the pattern. -EINVAL: the view would begin behind
 * 2^63 - 1. */
static int skip_copies(struct typed *t, const struct type *file_type, uint64_t file_off,
		       uint64_t skip)
{
	uint64_t size = type_size(file_type), copies = size ? skip / size : 0;
	__int128 at = (__int128)file_off + (__int128)copies * type_extent(file_type);

	if (at > INT64_MAX || (skip && !size))
		return -EINVAL;
	t->base = (int64_t)at;
	t->skip = size ? skip % size : 0;
	return 0;
}

ssize_t sheaf_type_pieces(const struct sheaf_type *t, uint64_t base, uint64_t skip, uint64_t len,
			  struct sheaf_extent *out_pieces, size_t max)
{
	struct typed w = { .base = 0 };
	struct pattern_cursor c;
	int r = t && base <= INT64_MAX && len <= INT64_MAX ? 0 : -EINVAL;

	if (!r)
		r = skip_copies(&w, inner(t), base, skip);
	if (!r && len > INT64_MAX - w.skip)
		r = -EINVAL;
	if (!r)
		r = pattern_tile(&w.file, inner(t), w.base, w.skip + len);
	if (r || !len || !max)
		return r;
	pattern_seek(&c, &w.file, w.skip);
	return (ssize_t)pattern_runs(&c, (struct extent *)out_pieces, max, len);
}

int64_t sheaf_type_before(const struct sheaf_type *t, uint64_t base, uint64_t offset)
{
	uint64_t size = t ? type_size(inner(t)) : 0, extent = t ? type_extent(inner(t)) : 0;
	uint64_t copies, rest, first;
	struct pattern p;

	if (!size || base > INT64_MAX || pattern_tile(&p, inner(t), (int64_t)base, size) ||
	    !p.ascends || !extent)
		return -EINVAL;
	first = p.begin; /* the data of a copy may reach into the bounds of the next one */
	if (offset <= first)
		return 0;
	copies = (offset - first) / extent;
	rest = (offset - first) % extent;
	if (copies > INT64_MAX / size - 1)
		return -EINVAL;
	rest = first + rest >= p.end ? size : pattern_position(&p, first + rest);
	return (int64_t)(copies * size + rest);
}

void sheaf_type_free(struct sheaf_type *t)
{
	type_free((struct type *)t);
}

/* ---- transfers ---- */

int api_describe(struct typed *t, const void *mem, const struct sheaf_type *mem_type,
		 uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type,
		 uint64_t skip)
{
	int r = file_off > INT64_MAX || !mem_type || !file_type ? -EINVAL : 0;

	if (!r)
		r = pattern_init(&t->mem, inner(mem_type), (int64_t)(uintptr_t)mem, mem_count);
	if (!r)
		r = skip_copies(t, inner(file_type), file_off, skip);
	if (!r && t->mem.total > INT64_MAX - t->skip)
		r = -EINVAL;
	return r ? r :
		   pattern_tile(&t->file, inner(file_type), t->base,
				t->mem.total ? t->mem.total + t->skip : t->skip);
}

/* Transfers, or only starts it if `started` is set. */
static ssize_t move(struct sheaf_file *f, const struct typed *what, bool write,
		    struct sheaf_op **started)
{
	struct traced how = { write, false, started ? 0 : trace_begin(f->fs), 0 };
	struct cop *op = started ? api_begin_op(f->fs, started) : api_begin(f->fs, &api_no_cred);
	struct typed *t = op ? arena_alloc(&op->arena, sizeof(*t)) : NULL;

	if (!t) {
		if (op)
			api_release(f->fs, op);
		return -ENOMEM;
	}
	*t = *what;
	client_typed(op, f->f, t, write);
	if (started)
		api_unlock(f->fs);
	else
		how.result = api_finish(f->fs, op);
	if (f->fs->tracer)
		trace_typed(f, &how, what);
	return how.result;
}

int sheaf_type_resized(const struct sheaf_type *of, int64_t lower, int64_t upper,
		       struct sheaf_type **t)
{
	struct type **new = out(t);

	return of ? type_resized(inner(of), lower, upper, new) : -EINVAL;
}

ssize_t sheaf_read_view(struct sheaf_file *f, void *mem, const struct sheaf_type *mem_type,
			uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type,
			uint64_t skip)
{
	struct typed t;
	int r = api_describe(&t, mem, mem_type, mem_count, file_off, file_type, skip);

	return r ? r : move(f, &t, false, NULL);
}

ssize_t sheaf_write_view(struct sheaf_file *f, const void *mem, const struct sheaf_type *mem_type,
			 uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type,
			 uint64_t skip)
{
	struct typed t;
	int r = api_describe(&t, mem, mem_type, mem_count, file_off, file_type, skip);

	return r ? r : move(f, &t, true, NULL);
}

int sheaf_read_view_start(struct sheaf_file *f, void *mem, const struct sheaf_type *mem_type,
			  uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type,
			  uint64_t skip, struct sheaf_op **op)
{
	struct typed t;
	int r = api_describe(&t, mem, mem_type, mem_count, file_off, file_type, skip);

	return r ? r : (int)move(f, &t, false, op);
}

int sheaf_write_view_start(struct sheaf_file *f, const void *mem, const struct sheaf_type *mem_type,
			   uint64_t mem_count, uint64_t file_off,
			   const struct sheaf_type *file_type, uint64_t skip, struct sheaf_op **op)
{
	struct typed t;
	int r = api_describe(&t, mem, mem_type, mem_count, file_off, file_type, skip);

	return r ? r : (int)move(f, &t, true, op);
}

ssize_t sheaf_read_typed(struct sheaf_file *f, void *mem, const struct sheaf_type *mem_type,
			 uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type)
{
	return sheaf_read_view(f, mem, mem_type, mem_count, file_off, file_type, 0);
}

ssize_t sheaf_write_typed(struct sheaf_file *f, const void *mem, const struct sheaf_type *mem_type,
			  uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type)
{
	return sheaf_write_view(f, mem, mem_type, mem_count, file_off, file_type, 0);
}

int sheaf_read_typed_start(struct sheaf_file *f, void *mem, const struct sheaf_type *mem_type,
			   uint64_t mem_count, uint64_t file_off,
			   const struct sheaf_type *file_type, struct sheaf_op **op)
{
	return sheaf_read_view_start(f, mem, mem_type, mem_count, file_off, file_type, 0, op);
}

int sheaf_write_typed_start(struct sheaf_file *f, const void *mem,
			    const struct sheaf_type *mem_type, uint64_t mem_count,
			    uint64_t file_off, const struct sheaf_type *file_type,
			    struct sheaf_op **op)
{
	return sheaf_write_view_start(f, mem, mem_type, mem_count, file_off, file_type, 0, op);
}
