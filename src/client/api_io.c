/* The public interface: reads and writes of ranges and lists, blocking or started.
 *
 * Threads: any; see api.c. Buffers: memory and lists are borrowed until the transfer has ended.
 * Errors: -errno. */
#include <assert.h>

#include "client/api_impl.h"

struct sheaf_op { /* in the arena of its cop */
	struct sheaf *fs;
	struct cop *op;
};

static_assert(sizeof(struct sheaf_extent) == sizeof(struct extent), "an extent is an extent");

static void start_list(struct cop *op, struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
		       const struct sheaf_extent *ext, size_t n_ext, bool write)
{
	const struct extent *e = (const struct extent *)ext;

	if (write)
		client_write(op, f->f, mem, n_mem, e, n_ext);
	else
		client_read(op, f->f, mem, n_mem, e, n_ext);
}

static void start_plain(struct cop *op, struct sheaf_file *f, void *buf, size_t len, off_t off,
			bool write)
{
	op->one_mem = (struct iovec){ buf, len };
	op->one_ext = (struct extent){ off < 0 ? UINT64_MAX : (uint64_t)off, len };
	if (write)
		client_write(op, f->f, &op->one_mem, 1, &op->one_ext, 1);
	else
		client_read(op, f->f, &op->one_mem, 1, &op->one_ext, 1);
}

static void trace_plain(struct sheaf_file *f, struct traced how, const void *buf, size_t len,
			off_t off)
{
	struct iovec mem = { (void *)(uintptr_t)buf, len };
	struct sheaf_extent ext = { (uint64_t)off, len };

	trace_list(f, &how, &mem, 1, &ext, 1);
}

static ssize_t ask_plain(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write)
{
	struct cop *op = api_begin(f->fs, &api_nobody);

	if (!op)
		return -ENOMEM;
	start_plain(op, f, buf, len, off, write);
	return api_end(f->fs, op);
}

static ssize_t plain(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write)
{
	uint64_t began = trace_begin(f->fs);
	ssize_t r;

	if (off < 0)
		return -EINVAL;
	r = write ? -EAGAIN : api_read_direct(f, buf, len, (uint64_t)off);
	if (r == -EAGAIN)
		r = ask_plain(f, buf, len, off, write);
	if (began)
		trace_plain(f, (struct traced){ write, false, began, r }, buf, len, off);
	return r;
}

ssize_t sheaf_pread(struct sheaf_file *f, void *buf, size_t len, off_t off)
{
	return plain(f, buf, len, off, false);
}

ssize_t sheaf_pwrite(struct sheaf_file *f, const void *buf, size_t len, off_t off)
{
	return plain(f, (void *)(uintptr_t)buf, len, off, true);
}

ssize_t sheaf_append(struct sheaf_file *f, const void *buf, size_t len)
{
	uint64_t began = trace_begin(f->fs);
	struct cop *op = api_begin(f->fs, &api_nobody);
	ssize_t r;

	if (!op)
		return -ENOMEM;
	op->one_mem = (struct iovec){ (void *)(uintptr_t)buf, len };
	op->one_ext = (struct extent){ 0, len };
	client_append(op, f->f, &op->one_mem, 1, &op->one_ext, 1);
	r = api_end(f->fs, op);
	if (began)
		trace_plain(f, (struct traced){ true, true, began, r }, buf, len, 0);
	return r;
}

static ssize_t list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
		    const struct sheaf_extent *ext, size_t n_ext, bool write)
{
	struct traced how = { write, false, trace_begin(f->fs), 0 };
	struct cop *op = api_begin(f->fs, &api_nobody);

	if (!op)
		return -ENOMEM;
	start_list(op, f, mem, n_mem, ext, n_ext, write);
	how.result = api_end(f->fs, op);
	if (how.began)
		trace_list(f, &how, mem, n_mem, ext, n_ext);
	return how.result;
}

ssize_t sheaf_read_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			const struct sheaf_extent *ext, size_t n_ext)
{
	return list(f, mem, n_mem, ext, n_ext, false);
}

ssize_t sheaf_write_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			 const struct sheaf_extent *ext, size_t n_ext)
{
	return list(f, mem, n_mem, ext, n_ext, true);
}

struct cop *api_begin_op(struct sheaf *fs, struct sheaf_op **out)
{
	struct cop *op = api_begin(fs, &api_nobody);

	if (!op)
		return NULL;
	*out = arena_alloc(&op->arena, sizeof(**out));
	if (!*out) {
		api_leave(fs, op);
		return NULL;
	}
	**out = (struct sheaf_op){ fs, op };
	return op;
}

static int plain_start(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write,
		       struct sheaf_op **out)
{
	struct cop *op = off < 0 ? NULL : api_begin_op(f->fs, out);

	if (!op)
		return off < 0 ? -EINVAL : -ENOMEM;
	start_plain(op, f, buf, len, off, write);
	api_give(f->fs);
	if (f->fs->tracer)
		trace_plain(f, (struct traced){ .write = write }, buf, len, off);
	return 0;
}

int sheaf_pread_start(struct sheaf_file *f, void *buf, size_t len, off_t off, struct sheaf_op **op)
{
	return plain_start(f, buf, len, off, false, op);
}

int sheaf_pwrite_start(struct sheaf_file *f, const void *buf, size_t len, off_t off,
		       struct sheaf_op **op)
{
	return plain_start(f, (void *)(uintptr_t)buf, len, off, true, op);
}

static int list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
		      const struct sheaf_extent *ext, size_t n_ext, bool write,
		      struct sheaf_op **out)
{
	struct cop *op = api_begin_op(f->fs, out);

	if (!op)
		return -ENOMEM;
	start_list(op, f, mem, n_mem, ext, n_ext, write);
	api_give(f->fs);
	if (f->fs->tracer)
		trace_list(f, &(struct traced){ .write = write }, mem, n_mem, ext, n_ext);
	return 0;
}

int sheaf_read_list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			  const struct sheaf_extent *ext, size_t n_ext, struct sheaf_op **op)
{
	return list_start(f, mem, n_mem, ext, n_ext, false, op);
}

int sheaf_write_list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			   const struct sheaf_extent *ext, size_t n_ext, struct sheaf_op **op)
{
	return list_start(f, mem, n_mem, ext, n_ext, true, op);
}

ssize_t sheaf_wait(struct sheaf_op *o)
{
	struct sheaf *fs = o->fs;
	struct cop *op = o->op;

	pthread_mutex_lock(&fs->lock);
	return api_end(fs, op);
}

int sheaf_test(struct sheaf_op *o, ssize_t *result)
{
	struct sheaf *fs = o->fs;
	struct cop *op = o->op;

	pthread_mutex_lock(&fs->lock);
	if (!op->finished)
		api_poll_links(fs);
	if (op->finished) {
		*result = op->result;
		api_leave(fs, op);
		return 1;
	}
	return api_give(fs);
}
