/* The public interface: reads and writes of ranges and lists, blocking or started.
 *
 * Threads: any; see api.c. Buffers: memory and lists are borrowed until the transfer has ended.
 * Errors: -errno. */
#include <assert.h>

#include "client/api_impl.h"

static_assert(sizeof(struct sheaf_extent) == sizeof(struct extent), "an extent is an extent");

/* ---- blocking ---- */

/* Waits for the transfer, frees it and releases the lock; returns the result. */
static ssize_t finish_list(struct sheaf_file *f, struct cop *op, struct traced how,
			   const struct iovec *mem, size_t n_mem, const struct sheaf_extent *ext,
			   size_t n_ext)
{
	how.result = api_finish(f->fs, op);
	if (how.began)
		trace_list(f, &how, mem, n_mem, ext, n_ext);
	return how.result;
}

ssize_t sheaf_read_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			const struct sheaf_extent *ext, size_t n_ext)
{
	struct traced how = { .began = trace_begin(f->fs) };
	struct cop *op = api_begin(f->fs, &api_no_cred);

	client_read(op, f->f, mem, n_mem, (const struct extent *)ext, n_ext);
	return finish_list(f, op, how, mem, n_mem, ext, n_ext);
}

ssize_t sheaf_write_list(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			 const struct sheaf_extent *ext, size_t n_ext)
{
	struct traced how = { .write = true, .began = trace_begin(f->fs) };
	struct cop *op = api_begin(f->fs, &api_no_cred);

	client_write(op, f->f, mem, n_mem, (const struct extent *)ext, n_ext);
	return finish_list(f, op, how, mem, n_mem, ext, n_ext);
}

ssize_t sheaf_pread(struct sheaf_file *f, void *buf, size_t len, off_t off)
{
	struct traced how = { .began = trace_begin(f->fs) };
	struct iovec mem = { buf, len };
	struct sheaf_extent ext = { (uint64_t)off, len };

	if (off < 0)
		return -EINVAL;
	how.result = api_read_direct(f, buf, len, (uint64_t)off);
	if (how.result == -EAGAIN)
		return sheaf_read_list(f, &mem, 1, &ext, 1);
	if (how.began)
		trace_list(f, &how, &mem, 1, &ext, 1);
	return how.result;
}

ssize_t sheaf_pwrite(struct sheaf_file *f, const void *buf, size_t len, off_t off)
{
	struct iovec mem = { (void *)(uintptr_t)buf, len };
	struct sheaf_extent ext = { (uint64_t)off, len };

	return off < 0 ? -EINVAL : sheaf_write_list(f, &mem, 1, &ext, 1);
}

ssize_t sheaf_append(struct sheaf_file *f, const void *buf, size_t len)
{
	struct traced how = { .write = true, .append = true, .began = trace_begin(f->fs) };
	struct iovec mem = { (void *)(uintptr_t)buf, len };
	struct sheaf_extent ext = { 0, len };
	struct cop *op = api_begin(f->fs, &api_no_cred);

	client_append(op, f->f, &mem, 1, (const struct extent *)&ext, 1);
	return finish_list(f, op, how, &mem, 1, &ext, 1);
}

/* ---- started ---- */

struct cop *api_begin_op(struct sheaf *fs, struct sheaf_op **out)
{
	struct cop *op = api_begin(fs, &api_no_cred);

	*out = arena_alloc(&op->arena, sizeof(**out));
	if (!*out) {
		api_release(fs, op);
		return NULL;
	}
	**out = (struct sheaf_op){ .fs = fs, .op = op };
	list_init(&(*out)->link);
	op->handle = *out;
	return op;
}

/* Starts a transfer, leaves it to the loop and releases the lock. */
static int start_list(struct sheaf_file *f, struct cop *op, bool write, const struct iovec *mem,
		      size_t n_mem, const struct sheaf_extent *ext, size_t n_ext)
{
	if (!op)
		return -ENOMEM;
	if (write)
		client_write(op, f->f, mem, n_mem, (const struct extent *)ext, n_ext);
	else
		client_read(op, f->f, mem, n_mem, (const struct extent *)ext, n_ext);
	api_unlock(f->fs);
	if (f->fs->tracer)
		trace_list(f, &(struct traced){ .write = write }, mem, n_mem, ext, n_ext);
	return 0;
}

int sheaf_read_list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			  const struct sheaf_extent *ext, size_t n_ext, struct sheaf_op **out)
{
	return start_list(f, api_begin_op(f->fs, out), false, mem, n_mem, ext, n_ext);
}

int sheaf_write_list_start(struct sheaf_file *f, const struct iovec *mem, size_t n_mem,
			   const struct sheaf_extent *ext, size_t n_ext, struct sheaf_op **out)
{
	return start_list(f, api_begin_op(f->fs, out), true, mem, n_mem, ext, n_ext);
}

static int plain_start(struct sheaf_file *f, void *buf, size_t len, off_t off, bool write,
		       struct sheaf_op **out)
{
	struct cop *op = off < 0 ? NULL : api_begin_op(f->fs, out);

	if (!op)
		return off < 0 ? -EINVAL : -ENOMEM;
	op->one_mem = (struct iovec){ buf, len };
	op->one_ext = (struct extent){ (uint64_t)off, len };
	return start_list(f, op, write, &op->one_mem, 1, (struct sheaf_extent *)&op->one_ext, 1);
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

ssize_t sheaf_wait(struct sheaf_op *o)
{
	struct sheaf *fs = o->fs;
	struct cop *op = o->op;

	pthread_mutex_lock(&fs->d->lock);
	api_unlist(o);
	return api_finish(fs, op);
}

int sheaf_test(struct sheaf_op *o, ssize_t *result)
{
	struct sheaf *fs = o->fs;
	struct cop *op = o->op;

	pthread_mutex_lock(&fs->d->lock);
	if (!op->finished)
		api_poll_links(fs);
	if (op->finished) {
		*result = op->result;
		api_unlist(o);
		api_release(fs, op);
		return 1;
	}
	api_unlock(fs);
	return 0;
}
