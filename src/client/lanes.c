/* Lanes of a transfer: each sends the parts of one object, one request at a time.
 *
 *   TAKE -> CALL -> ANSWER (-> REFRESHED or WAIT_SPACE -> CALL) -> TAKE ... -> DONE
 *
 * The user's memory is never copied: the part's view is exposed to the server, except that small
 * parts travel inside the message. When a capability was fenced or has expired, the lane fetches a
 * new one and sends the part again. A read that goes through a buffer and reaches
 * beyond the end of the object is sent again, with the user's bytes in the buffer first.
 *
 * Threads: the loop's. Buffers: ended lanes are kept for reuse, with their buffer for small writes.
 * Errors: the first one ends the transfer; its other lanes stop at their next part. */
#include <assert.h>
#include <stdlib.h>

#include "client/transfer.h"

#define MAX_LATE 8 /* replies to one read that may come too late to be trusted */

#define SPARE_LANES 256
#define SMALL_LEAST (1 * KIB) /* least buffer for the data of a small write */
#define SPARE_SMALL (8 * KIB) /* most buffer that a spare lane keeps */

enum { TAKE, CALL, ANSWER, REFRESHED, WAIT_SPACE, DONE };
static const char *const lane_names[] = { [TAKE] = "take",
					  [CALL] = "call",
					  [ANSWER] = "answer",
					  [REFRESHED] = "capability",
					  [WAIT_SPACE] = "wait-space",
					  [DONE] = "done" };

static_assert(sizeof(struct extent) == sizeof(struct wire_extent) &&
		      offsetof(struct extent, length) == offsetof(struct wire_extent, length) &&
		      sizeof(struct copy_piece) == sizeof(struct wire_copy_piece) &&
		      offsetof(struct copy_piece, to) == offsetof(struct wire_copy_piece, to),
	      "an extent is an extent");

static void epochs_add(struct epochs *e, uint64_t epoch)
{
	e->oldest = MIN(e->oldest, epoch);
	e->newest = MAX(e->newest, epoch);
}

/* ---- memory ---- */

struct lane *lane_new(struct cop *op, uint32_t index)
{
	struct list *it = list_pop(&op->c->spare_lanes);
	struct lane *l = it ? list_entry(it, struct lane, spare) : calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	op->c->n_spare_lanes -= it != NULL;
	memset(l, 0, offsetof(struct lane, small_data));
	list_init(&l->spare);
	l->op = op;
	l->index = index;
	l->object = &op->transfer->objects[index];
	return l;
}

static void drop_small(struct lane *l)
{
	free(l->small_data);
	l->small_data = NULL;
	l->small_capacity = 0;
}

void lane_free(struct lane *l)
{
	struct client *c = l->op->c;

	if (l->small_capacity > SPARE_SMALL)
		drop_small(l);
	if (c->n_spare_lanes >= SPARE_LANES) {
		drop_small(l);
		free(l);
		return;
	}
	c->n_spare_lanes++;
	list_push_front(&c->spare_lanes, &l->spare);
}

void lanes_free(struct client *c)
{
	struct list *it;

	while ((it = list_pop(&c->spare_lanes))) {
		drop_small(list_entry(it, struct lane, spare));
		free(list_entry(it, struct lane, spare));
	}
}

/* ---- requests ---- */

/* The reply says that no byte of the part is behind the end of the object. */
static bool read_is_whole(const struct call *c)
{
	const struct lane *l = container_of(c, struct lane, call);
	const struct wire_read_res *r = &l->res.read;

	for (size_t i = 0; i < l->n; i++)
		if (l->ext[i].offset + l->ext[i].length > r->end)
			return false;
	return !r->beyond;
}

static void prepare_read(struct lane *l)
{
	struct wire_read_args *a = &l->args.READ;

	*a = (struct wire_read_args){ .at = file_access(l->op->file, l->index),
				      .n_list = (uint32_t)l->n,
				      .list = (struct wire_extent *)l->ext,
				      .n_part = l->typed,
				      .part = &l->pattern };
	l->call = call_make(l->op, OP_READ, a, &l->res.read);
	l->call.mem = l->small ? NULL : &l->view;
	l->call.mem_wire = &a->mem;
	l->call.mem_access = CAP_WRITE; /* the server writes into the memory */
	l->call.method = l->op->transfer->mover;
	l->call.is_whole = l->may_be_short ? NULL : read_is_whole;
}

/* Counts data that travel inside a message. */
static void moved_inline(struct lane *l, uint64_t bytes, unsigned copies)
{
	struct net_account *a = &l->op->c->peers[l->op->file->targets[l->index]].account;

	a->bytes[METHOD_INLINE] += bytes;
	a->copied += copies * bytes;
}

static void prepare_write(struct lane *l)
{
	struct wire_write_args *a = &l->args.WRITE;

	*a = (struct wire_write_args){ .at = file_access(l->op->file, l->index),
				       .n_list = (uint32_t)l->n,
				       .list = (struct wire_extent *)l->ext,
				       .n_part = l->typed,
				       .part = &l->pattern };
	l->call = call_make(l->op, OP_WRITE, a, &l->res.write);
	l->call.mem = l->small ? NULL : &l->view;
	l->call.mem_wire = &a->mem;
	l->call.mem_access = CAP_READ;
	l->call.method = l->op->transfer->mover;
	if (!l->small)
		return;
	if (l->small_capacity < l->view.length) {
		drop_small(l);
		l->small_capacity = MAX(l->view.length, (uint64_t)SMALL_LEAST);
		l->small_data = malloc(l->small_capacity);
	}
	l->q.error = l->small_data ? view_copy_out(&l->view, 0, l->small_data, l->view.length) :
				     -ENOMEM;
	if (!l->small_data)
		l->small_capacity = 0;
	a->data = (struct wire_bytes){ (uint32_t)l->view.length, l->small_data };
	moved_inline(l, l->view.length, 2); /* into the buffer, and into the message */
}

static void prepare_allocate(struct lane *l)
{
	struct wire_allocate_args *a = &l->args.ALLOCATE;

	*a = (struct wire_allocate_args){ .at = file_access(l->op->file, l->index),
					  .mode = l->op->transfer->mode,
					  .n_list = (uint32_t)l->n,
					  .list = (struct wire_extent *)l->ext };
	l->call = call_make(l->op, OP_ALLOCATE, a, &l->res.write);
}

static void prepare_copy(struct lane *l)
{
	struct wire_copy_args *a = &l->args.COPY;
	struct cfile *source = l->op->transfer->source;

	*a = (struct wire_copy_args){ .at = file_access(l->op->file, l->index),
				      .from = file_access(source, l->source_index),
				      .source = source->targets[l->source_index],
				      .n_list = (uint32_t)l->n,
				      .list = (struct wire_copy_piece *)l->pieces };
	l->source_epoch = source->cap.epoch;
	l->call = call_make(l->op, OP_COPY, a, &l->res.write);
}

static void call(struct lane *l)
{
	static void (*const prepare[])(struct lane * l) = { [READ] = prepare_read,
							    [WRITE] = prepare_write,
							    [ALLOCATE] = prepare_allocate,
							    [COPY] = prepare_copy };
	struct cfile *f = l->op->file;

	prepare[l->op->transfer->kind](l);
	l->epoch = f->cap.epoch;
	l->sent_at = l->q.loop->now;
	l->call.trace = l->op->q.trace;
	if (l->q.error) /* no buffer, or the caller's memory is not mapped */
		return;
	peer_call(&f->c->peers[f->targets[l->index]], &l->call, &l->q);
}

/* ---- replies ---- */

/* Notes that a part of the access lies behind the end of the object. */
static void shorten(struct lane *l, uint64_t end)
{
	l->object->shortened = true;
	l->object->end = MIN(l->object->end, end);
}

static void answered_read(struct lane *l)
{
	const struct wire_read_res *r = &l->res.read;
	uint64_t at = 0;

	if (r->beyond)
		shorten(l, r->end);
	if (l->small)
		moved_inline(l, r->data.len, 1);
	for (size_t i = 0; i < l->n; at += l->ext[i++].length) {
		const struct extent *e = &l->ext[i];
		uint64_t there = e->offset < r->end ? MIN(e->length, r->end - e->offset) : 0;

		if (l->small && there && at + there > r->data.len) {
			l->q.error = -EIO; /* the reply claims bytes that it does not have */
			return;
		}
		if (l->small && there && !l->q.error)
			l->q.error = view_copy_in(&l->view, at, r->data.p + at, there);
		if (there < e->length)
			shorten(l, r->end);
	}
}

/* The least size of the file after this part was written. */
static uint64_t written_end(const struct lane *l)
{
	const struct transfer *t = l->op->transfer;
	const struct layout *lay = &l->op->file->layout;
	uint64_t end = 0;

	if (t->mode & ALLOC_KEEP_SIZE)
		return 0;
	if (l->typed) /* an end that another client wrote is not ours to report */
		end = MIN(l->res.write.end, layout_object_size(lay, l->index, t->shape.end));
	for (size_t i = 0; i < l->n; i++)
		end = MAX(end, t->kind == COPY ? l->pieces[i].to + l->pieces[i].length :
						 l->ext[i].offset + l->ext[i].length);
	return layout_file_end(lay, l->index, end);
}

/* Only allocates blocks: neither data nor sizes change. */
static bool only_allocates(const struct transfer *t)
{
	return t->kind == ALLOCATE && t->mode == ALLOC_KEEP_SIZE;
}

static void answered_write(struct lane *l)
{
	struct cfile *f = l->op->file;
	struct transfer *t = l->op->transfer;

	epochs_add(&t->epochs, l->epoch);
	epochs_add(&t->source_epochs, l->source_epoch);
	/* Comes before file_wrote(): it forgets ends after a loss, but must not forget this one.
	 * Allocated space alone holds no data that could be lost. */
	if (!only_allocates(t) || f->unsynced[l->index])
		file_unsynced(f, l->index, l->call.verifier);
	file_wrote(f, l->index, l->epoch, written_end(l), &l->res.write);
	f->punched |= t->kind == ALLOCATE && (t->mode & (ALLOC_PUNCH | ALLOC_ZERO));
}

/* Did the reply come too late to be trusted? Bulk from a server on this host may be pages of its
 * file until the client reads the socket. A client that was stopped meanwhile for a part of its
 * lease may have lost its locks, and would read what their next owner wrote. */
static bool reply_is_late(const struct lane *l)
{
	const struct cfile *f = l->op->file;
	const struct peer *p = &f->c->peers[f->targets[l->index]];
	struct env *e = l->q.loop->env;

	return l->op->transfer->kind == READ && !l->small && peer_is_local(p) &&
	       l->refreshes < MAX_LATE &&
	       e->clock->now(e) > l->sent_at + p->lease_ms * NSEC_PER_MSEC / 2;
}

static void answer(struct lane *l)
{
	struct req *q = &l->q;

	req_goto(q, TAKE);
	if (!q->error && reply_is_late(l))
		q->error = -EKEYEXPIRED;
	if (q->error == -EKEYEXPIRED && ++l->refreshes < MAX_REFRESH) {
		call_fini(&l->call);
		q->error = 0;
		l->refreshes_source = false;
		req_goto(q, REFRESHED);
		cap_ask(l->op, l->op->file, &l->call, q);
		return;
	}
	if (q->error == -ENODATA && !l->may_be_short) { /* none of it is in the user's memory */
		call_fini(&l->call);
		q->error = 0;
		l->may_be_short = true;
		req_goto(q, CALL);
		return;
	}
	if (q->error == -ENOSPC && space_wait_begin(l->op->c, &l->space_wait, q)) {
		call_fini(&l->call);
		q->error = 0;
		req_goto(q, WAIT_SPACE);
		return;
	}
	if (!q->error && l->op->transfer->kind == READ)
		answered_read(l);
	else if (!q->error)
		answered_write(l);
	call_fini(&l->call);
	if (q->error) {
		l->op->file->wrote.doubt |= l->op->transfer->kind != READ;
		req_goto(q, DONE);
	}
}

/* A fresh capability has come, or not. A copy refreshes both, as either may be the one refused. */
static void refreshed(struct lane *l)
{
	struct transfer *t = l->op->transfer;

	cap_take(l->refreshes_source ? t->source : l->op->file, &l->call);
	if (l->q.error) { /* an earlier attempt may have written, and only a repetition failed */
		l->op->file->wrote.doubt |= t->kind != READ;
		req_goto(&l->q, DONE);
	} else if (t->kind == COPY && !l->refreshes_source) {
		l->refreshes_source = true;
		cap_ask(l->op, t->source, &l->call, &l->q);
	} else {
		req_goto(&l->q, CALL);
	}
}

static bool locks_lost(const struct lane *l)
{
	const struct cfile *source = l->op->transfer->source;

	return file_locks_lost(l->op->file) || (source && file_locks_lost(source));
}

/* Did the epoch grow since the append got its place? A truncate may be the reason. */
static bool place_gone(const struct lane *l)
{
	const struct transfer *t = l->op->transfer;

	return t->placed && l->op->file->cap.epoch > t->place_epoch;
}

static bool lane_step(struct req *q)
{
	struct lane *l = container_of(q, struct lane, q);
	struct req *parent = &l->op->q;
	int r;

	switch (q->state) {
	case TAKE:
		r = parent->error ? 1 : part_take(l);
		req_goto(q, r ? DONE : CALL);
		if (r < 0)
			q->error = r;
		break;
	case CALL:
		req_goto(q, ANSWER);
		if (locks_lost(l)) { /* also after a fence that took our locks */
			q->error = -EIO;
		} else if (place_gone(l)) {
			q->error = -EAGAIN;
			req_goto(q, DONE);
		} else {
			call(l);
		}
		break;
	case ANSWER:
		answer(l);
		break;
	case REFRESHED:
		refreshed(l);
		break;
	case WAIT_SPACE:
		space_wait_end(&l->space_wait);
		req_goto(q, CALL);
		break;
	case DONE:
		r = q->error == -EBADF ? -EIO : q->error;
		req_fini(q);
		lane_free(l);
		if (r && !parent->error)
			parent->error = r; /* the other lanes stop at their next part */
		req_done(parent, r, 0);
		return false;
	}
	return true;
}

static const struct req_ops lane_ops = REQ_OPS("lane", lane_step, ANSWER, lane_names);

void lane_start(struct cop *op, uint32_t index)
{
	struct lane *l = lane_new(op, index);
	int r;

	if (!l) {
		req_hold(&op->q);
		req_done(&op->q, -ENOMEM, 0);
		return;
	}
	r = part_take(l);
	if (r == 1) {
		lane_free(l);
		return;
	}
	req_init(&l->q, op->c->loop, &lane_ops, CALL);
	l->q.trace = op->q.trace;
	l->q.error = r;
	req_hold(&op->q);
	req_run(&l->q);
}
