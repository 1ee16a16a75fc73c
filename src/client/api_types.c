/* The public interface: types, and transfers that are described by them.
 *
 * Threads: any; types are immutable. Buffers: what a started transfer borrows (memory, types) stays the caller's until
 * it has ended. Errors: -errno. */
#include "client/api_priv.h"

/* ---- types: a constructor that fails leaves NULL, and NULL is nothing to make another one of ---- */

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

void sheaf_type_free(struct sheaf_type *t)
{
	type_free((struct type *)t);
}

/* ---- transfers ---- */

static int describe(struct typed *t, const void *mem, const struct sheaf_type *mem_type,
		    uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type)
{
	int r = file_off > INT64_MAX || !mem_type || !file_type ? -EINVAL : 0;

	if (!r)
		r = pattern_init(&t->mem, inner(mem_type), (int64_t)(uintptr_t)mem, mem_count);
	t->base = (int64_t)file_off;
	return r ? r : pattern_tile(&t->file, inner(file_type), t->base, t->mem.total);
}

/* Begun, with the connection's lock; or NULL and *r. */
static struct cop *begin(struct sheaf_file *f, const void *mem, const struct sheaf_type *mem_type,
			 uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type,
			 bool write, struct sheaf_op **started, int *r)
{
	struct typed typed, *t;
	struct cop *op = NULL;

	*r = describe(&typed, mem, mem_type, mem_count, file_off, file_type);
	if (!*r)
		op = started ? api_begin_op(f->fs, started) : api_begin(f->fs, &api_nobody);
	if (!op) {
		*r = *r ? *r : -ENOMEM;
		return NULL;
	}
	t = arena_alloc(&op->arena, sizeof(*t));
	if (!t) {
		api_leave(f->fs, op);
		*r = -ENOMEM;
		return NULL;
	}
	*t = typed;
	client_typed(op, f->f, t, write);
	return op;
}

ssize_t sheaf_read_typed(struct sheaf_file *f, void *mem, const struct sheaf_type *mem_type,
			 uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type)
{
	int r;
	struct cop *op = begin(f, mem, mem_type, mem_count, file_off, file_type, false, NULL, &r);

	return op ? api_end(f->fs, op) : r;
}

ssize_t sheaf_write_typed(struct sheaf_file *f, const void *mem, const struct sheaf_type *mem_type,
			  uint64_t mem_count, uint64_t file_off, const struct sheaf_type *file_type)
{
	int r;
	struct cop *op = begin(f, mem, mem_type, mem_count, file_off, file_type, true, NULL, &r);

	return op ? api_end(f->fs, op) : r;
}

int sheaf_read_typed_start(struct sheaf_file *f, void *mem, const struct sheaf_type *mem_type,
			   uint64_t mem_count, uint64_t file_off,
			   const struct sheaf_type *file_type, struct sheaf_op **op)
{
	int r;

	return begin(f, mem, mem_type, mem_count, file_off, file_type, false, op, &r) ?
		       api_give(f->fs) :
		       r;
}

int sheaf_write_typed_start(struct sheaf_file *f, const void *mem,
			    const struct sheaf_type *mem_type, uint64_t mem_count,
			    uint64_t file_off, const struct sheaf_type *file_type,
			    struct sheaf_op **op)
{
	int r;

	return begin(f, mem, mem_type, mem_count, file_off, file_type, true, op, &r) ?
		       api_give(f->fs) :
		       r;
}
