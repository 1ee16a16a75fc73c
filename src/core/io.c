/* File accesses: submission, the blocking form (for workers and the simulation), and completion. */
#include "core/core.h"

void io_reset(struct io *io)
{
	io->bytes = 0;
	io->so_far = 0;
	io->error = 0;
	io->next = io->joined = NULL;
	io->len = io->total = io->iov ? iov_total(io->iov, (size_t)io->n) : 0;
	list_init(&io->link);
}

void io_begin(struct loop *l, struct io *io)
{
	io_reset(io);
	io->loop = l;
	io->queue = NULL;
	io->is_alone = io->is_done = false;
	if (io->q)
		req_hold(io->q);
}

void io_submit_all(struct loop *l, struct io *ios, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		io_begin(l, &ios[i]);
		if (i)
			ios[i - 1].next = &ios[i];
	}
	if (n)
		l->env->file->submit(l->env, l, ios);
}

void io_submit(struct loop *l, struct io *io)
{
	io_submit_all(l, io, 1);
}

void io_finish(struct io *io)
{
	struct req *q = io->q;

	if (io->queue)
		io_queue_ended(io);
	else if (io->done)
		io->done(io);
	else if (q)
		req_done(q, io->error, io->error ? 0 : io->bytes);
}

size_t io_slice(const struct io *io, struct iovec *out, size_t max)
{
	size_t skip = io->so_far, got = 0, n = 0;

	for (; io && n < max; io = io->joined) {
		if (skip < io->len)
			n += iov_slice(io->iov, (size_t)io->n, skip, io->len - skip, out + n,
				       max - n, &got);
		skip -= MIN(skip, io->len);
	}
	return n;
}

/* Moves all bytes; a read is short only at the end of the file. */
static int transfer(struct env *e, struct io *io)
{
	struct iovec part[64];

	while (io->so_far < io->total) {
		size_t k = io_slice(io, part, ARRAY_LEN(part));
		off_t off = (off_t)(io->off + io->so_far);
		ssize_t r = io->kind == IO_READ ? e->file->preadv(e, io->fd, part, (int)k, off) :
						  e->file->pwritev(e, io->fd, part, (int)k, off);

		if (r == -EINTR)
			continue;
		if (r < 0)
			return (int)r;
		if (r == 0 && io->kind == IO_WRITE)
			return -ENOSPC;
		if (r == 0)
			break;
		io->so_far += (uint64_t)r;
	}
	io->bytes = io->so_far;
	return 0;
}

void io_perform(struct env *e, struct io *io)
{
	int r = 0;

	switch (io->kind) {
	case IO_READ:
	case IO_WRITE:
		r = transfer(e, io);
		break;
	case IO_SYNC:
		r = e->file->fsync(e, io->fd);
		break;
	case IO_OPEN:
		r = e->file->openat(e, io->fd, io->path, io->flags, 0600);
		if (r >= 0) {
			io->bytes = (uint64_t)r;
			r = 0;
		}
		break;
	case IO_TRUNCATE:
		r = e->file->ftruncate(e, io->fd, (off_t)io->off);
		break;
	case IO_UNLINK:
		r = e->file->unlinkat(e, io->fd, io->path, 0);
		break;
	case IO_CALL:
		r = io->call(e, io);
		break;
	}
	io->error = r;
}
