/* List reads and writes: one request to each object that is touched, all targets side by side.
 *
 *   transfer:  START -> LANES -> SIZE -> END
 *   lane:      TAKE -> CALL -> ANSWER (-> REFRESH -> CALL) -> TAKE ... -> DONE
 *
 * Each touched object has a lane or two; a lane takes the next part of the access that belongs to its
 * object (as much as fits one message), sends it and waits for the reply. The user's memory is never copied:
 * the part's view is exposed to the server, except that small parts travel inside the message.
 * A capability that was fenced or has expired is fetched anew and the part sent again. Lanes are kept for
 * reuse; all else that a transfer needs is in the arena of its operation.
 *
 * End of file: replies say where each object ends. When anything lay behind an end, the true size decides
 * what is a hole (zeros) and what is behind the end of the file (a short count). */
#include <assert.h>
#include <stdlib.h>

#include "client/cli_priv.h"

#define PART_BYTES (64 * MIB) /* of one request */
#define LANES 2 /* of one object */
#define MAX_REFRESH 1000

enum { START, SIZED, END };
static const char *const names[] = { "move", "size", "end" };
enum { TAKE, CALL, ANSWER, REFRESHED, DONE };
static const char *const lane_names[] = { "take", "call", "answer", "capability", "done" };

/* All that belongs to one object. */
struct strand {
	struct cursor next;
	uint64_t end; /* of the object, the lowest that was answered */
	bool shortened; /* something lay behind it */
};

struct lane {
	struct req q;
	struct list spare;
	struct cop *op;
	struct strand *strand;
	uint32_t index;
	struct view view;
	struct extent *ext;
	uint32_t n_ext, cap_ext;
	uint32_t refreshes;
	bool small;
	struct call call;
	union {
		struct wire_read_args read;
		struct wire_write_args write;
	} args;
	union {
		struct wire_read_res read;
		struct wire_write_res write;
	} res;
	uint8_t small_data[INLINE_MAX]; /* of a small write; the rest is zero in a new lane */
};

struct transfer {
	bool write;
	bool placed; /* an append: when it was fenced its place may be gone */
	bool sized; /* it reads once more, now that the size is known */
	uint64_t oldest, newest; /* epochs under which parts were written */
	uint32_t tries;
	struct strand *strands; /* one per object */
};

static_assert(sizeof(struct extent) == sizeof(struct wire_extent) &&
		      offsetof(struct extent, length) == offsetof(struct wire_extent, length),
	      "an extent is an extent");

/* ---- fresh capabilities ---- */

struct refresh {
	struct wire_cap_args args;
	struct wire_cap_res res;
};

void cap_ask(struct cop *op, struct cfile *f, struct call *c, struct req *q)
{
	struct refresh *r = arena_alloc(&op->arena, sizeof(*r));

	req_hold(q);
	if (r) {
		r->args = (struct wire_cap_args){ f->h, f->flags & (OPEN_READ | OPEN_WRITE) };
		*c = call_make(op, OP_CAP, XDR_ANY(xdr_wire_cap_args), &r->args,
			       XDR_ANY(xdr_wire_cap_res), &r->res);
		peer_call(peer_of(op->c, f->h.ino), c, q);
	}
	req_done(q, r ? 0 : -ENOMEM, 0);
}

void cap_take(struct cfile *f, struct call *c)
{
	const struct wire_cap_res *r = c->res;

	if (c->op == OP_CAP && !c->status && r->cap.epoch >= f->cap.epoch)
		f->cap = r->cap;
	call_fini(c);
}

/* ---- lanes ---- */

#define SPARE_LANES 256

static struct lane *lane_new(struct cop *op, uint32_t index)
{
	struct list *it = list_pop(&op->c->spare_lanes);
	struct lane *l = it ? list_entry(it, struct lane, spare) : malloc(sizeof(*l));

	if (!l)
		return NULL;
	op->c->n_spare_lanes -= it != NULL;
	memset(l, 0, offsetof(struct lane, small_data));
	list_init(&l->spare);
	l->op = op;
	l->index = index;
	l->strand = &op->transfer->strands[index];
	return l;
}

static void lane_free(struct lane *l)
{
	struct client *c = l->op->c;

	if (c->n_spare_lanes >= SPARE_LANES) {
		free(l);
		return;
	}
	c->n_spare_lanes++;
	list_push_front(&c->spare_lanes, &l->spare);
}

void lanes_free(struct client *c)
{
	struct list *it;

	while ((it = list_pop(&c->spare_lanes)))
		free(list_entry(it, struct lane, spare));
}

static int keep_extents(struct lane *l, size_t n)
{
	if (n > l->cap_ext) {
		l->ext = arena_alloc(&l->op->arena, n * sizeof(*l->ext));
		l->cap_ext = l->ext ? (uint32_t)n : 0;
		if (!l->ext)
			return -ENOMEM;
	}
	memcpy(l->ext, l->op->c->scratch, n * sizeof(*l->ext));
	l->n_ext = (uint32_t)n;
	return 0;
}

/* The next part of our object; 0: there is one, 1: none. */
static int take(struct lane *l)
{
	struct cop *op = l->op;
	struct cfile *f = op->file;
	size_t n = view_plan(&l->view, &op->access, &f->layout, l->index, &l->strand->next,
			     op->c->scratch, LIST_MAX, PART_BYTES);

	if (!n)
		return 1;
	l->small = l->view.length <=
		   MIN(f->c->peers[f->targets[l->index]].eager_bytes, (uint32_t)INLINE_MAX);
	return keep_extents(l, n);
}

static void prepare_read(struct lane *l)
{
	struct wire_read_args *a = &l->args.read;

	*a = (struct wire_read_args){ .cap = l->op->file->cap,
				      .n_list = l->n_ext,
				      .list = (struct wire_extent *)l->ext };
	l->call = call_make(l->op, OP_READ, XDR_ANY(xdr_wire_read_args), a,
			    XDR_ANY(xdr_wire_read_res), &l->res.read);
	l->call.mem_wire = &a->mem;
	l->call.mem_access = CAP_WRITE; /* the server writes into it */
}

static void prepare_write(struct lane *l)
{
	struct wire_write_args *a = &l->args.write;

	*a = (struct wire_write_args){ .cap = l->op->file->cap,
				       .n_list = l->n_ext,
				       .list = (struct wire_extent *)l->ext };
	l->call = call_make(l->op, OP_WRITE, XDR_ANY(xdr_wire_write_args), a,
			    XDR_ANY(xdr_wire_write_res), &l->res.write);
	l->call.mem_wire = &a->mem;
	l->call.mem_access = CAP_READ;
	if (!l->small)
		return;
	view_copy_out(&l->view, 0, l->small_data, l->view.length);
	a->data = (struct wire_bytes){ (uint32_t)l->view.length, l->small_data };
}

static void call(struct lane *l)
{
	struct cfile *f = l->op->file;

	if (l->op->transfer->write)
		prepare_write(l);
	else
		prepare_read(l);
	l->call.trace = l->op->q.trace;
	l->call.mem = l->small ? NULL : &l->view;
	peer_call(&f->c->peers[f->targets[l->index]], &l->call, &l->q);
}

static void answered_read(struct lane *l)
{
	const struct wire_read_res *r = &l->res.read;
	uint64_t at = 0;

	for (uint32_t i = 0; i < l->n_ext; at += l->ext[i++].length) {
		const struct extent *e = &l->ext[i];
		uint64_t there = e->offset < r->end ? MIN(e->length, r->end - e->offset) : 0;

		if (l->small && there && at + there > r->data.len) {
			l->q.error = -EIO; /* it says that there are bytes and does not send them */
			return;
		}
		if (l->small && there)
			view_copy_in(&l->view, at, r->data.p + at, there);
		if (there < e->length) {
			l->strand->shortened = true;
			l->strand->end = MIN(l->strand->end, r->end);
		}
	}
}

static void answered_write(struct lane *l)
{
	struct cfile *f = l->op->file;
	uint64_t end = 0;

	for (uint32_t i = 0; i < l->n_ext; i++)
		end = MAX(end, layout_file_end(&f->layout, l->index,
					       l->ext[i].offset + l->ext[i].length));
	l->op->transfer->oldest = MIN(l->op->transfer->oldest, l->args.write.cap.epoch);
	l->op->transfer->newest = MAX(l->op->transfer->newest, l->args.write.cap.epoch);
	file_wrote(f, l->args.write.cap.epoch, end, l->res.write.mtime);
	file_unsynced(f, l->index, l->call.verifier);
}

static void answer(struct lane *l)
{
	struct req *q = &l->q;

	req_goto(q, TAKE);
	if (q->error == -EKEYEXPIRED && ++l->refreshes < MAX_REFRESH) {
		call_fini(&l->call);
		q->error = 0;
		req_goto(q, REFRESHED);
		cap_ask(l->op, l->op->file, &l->call, q);
		return;
	}
	if (!q->error && l->op->transfer->write)
		answered_write(l);
	else if (!q->error)
		answered_read(l);
	call_fini(&l->call);
	if (q->error) {
		l->op->file->wrote.doubt |= l->op->transfer->write;
		req_goto(q, DONE);
	}
}

static bool lane_step(struct req *q)
{
	struct lane *l = container_of(q, struct lane, q);
	struct req *parent = &l->op->q;
	int r;

	switch (q->state) {
	case TAKE:
		r = parent->error ? 1 : take(l);
		req_goto(q, r ? DONE : CALL);
		if (r < 0)
			q->error = r;
		break;
	case CALL:
		req_goto(q, ANSWER);
		call(l);
		break;
	case ANSWER:
		answer(l);
		break;
	case REFRESHED:
		req_goto(q, q->error ? DONE : CALL);
		cap_take(l->op->file, &l->call);
		if (!q->error && l->op->transfer->placed) {
			q->error = -EAGAIN;
			req_goto(q, DONE);
		}
		break;
	case DONE:
		r = q->error == -EBADF ? -EIO : q->error;
		req_fini(q);
		lane_free(l);
		if (r && !parent->error)
			parent->error = r; /* the others stop at their next part */
		req_done(parent, r, 0);
		return false;
	}
	return true;
}

static const struct req_ops lane_ops = { "lane", lane_step, ANSWER, 5, lane_names };

/* ---- the transfer ---- */

/* Starts a lane for an object if it has a part of the access. False: it has none (left). */
static bool start_lane(struct cop *op, uint32_t index)
{
	struct lane *l = lane_new(op, index);
	int r;

	if (!l) {
		req_hold(&op->q);
		req_done(&op->q, -ENOMEM, 0);
		return false;
	}
	r = take(l);
	if (r == 1) {
		lane_free(l);
		return false;
	}
	req_init(&l->q, op->c->loop, &lane_ops, CALL);
	l->q.trace = op->q.trace;
	l->q.error = r;
	req_hold(&op->q);
	req_start(&l->q);
	return true;
}

static void start_lanes(struct cop *op)
{
	struct cfile *f = op->file;
	uint32_t width = f->layout.width, first = 0, index;
	uint64_t off;

	op->transfer->strands = arena_alloc(&op->arena, width * sizeof(struct strand));
	if (!op->transfer->strands) {
		op->q.error = -ENOMEM;
		return;
	}
	for (uint32_t i = 0; i < width; i++)
		op->transfer->strands[i].end = UINT64_MAX;
	if (!op->access.total)
		return;
	if (op->access.n_file == 1 && op->access.file[0].length <= f->layout.unit) {
		layout_locate(&f->layout, op->access.file[0].offset, &first, &off);
		width = op->access.file[0].length + off % f->layout.unit > f->layout.unit ?
				MIN(width, 2u) :
				1;
	}
	for (int k = 0; k < LANES; k++)
		for (uint32_t i = 0; i < width; i++) {
			index = (first + i) % f->layout.width;
			start_lane(op, index);
		}
}

/* Zeros for what is behind the end of its object and before the end of the file. */
static void fill_holes(struct cop *op, uint32_t index)
{
	struct client *c = op->c;
	struct cfile *f = op->file;
	struct strand *s = &op->transfer->strands[index];
	struct cursor from = { 0 };
	struct view v;
	uint64_t size = layout_object_size(&f->layout, index, op->attr.size);
	size_t n;

	while ((n = view_plan(&v, &op->access, &f->layout, index, &from, c->scratch, LIST_MAX,
			      PART_BYTES))) {
		uint64_t at = 0;

		for (size_t i = 0; i < n; at += c->scratch[i++].length) {
			uint64_t lo = c->scratch[i].offset, hi = lo + c->scratch[i].length;
			uint64_t from_off = MAX(lo, s->end), to = MIN(hi, size);

			if (from_off < to)
				view_zero(&v, at + from_off - lo, to - from_off);
		}
	}
}

/* Does the size say that there are bytes behind the end of an object? They may have come since. */
static bool any_hole(struct cop *op)
{
	const struct layout *l = &op->file->layout;

	for (uint32_t i = 0; i < l->width; i++)
		if (op->transfer->strands[i].end < layout_object_size(l, i, op->attr.size))
			return true;
	return false;
}

static bool any_short(struct cop *op)
{
	for (uint32_t i = 0; i < op->file->layout.width; i++)
		if (op->transfer->strands[i].shortened)
			return true;
	return false;
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct transfer *t = op->transfer;
	uint64_t count = op->access.total;

	switch (q->state) {
	case START:
		req_goto(q, SIZED);
		t->oldest = UINT64_MAX;
		t->newest = 0;
		start_lanes(op);
		break;
	case SIZED:
		req_goto(q, END);
		if (t->sized)
			break;
		if (!t->write && any_short(op))
			sizing_start(op, &op->file->h);
		else
			op->attr.size = UINT64_MAX;
		break;
	case END:
		if (q->error)
			return cop_end(op, q->error);
		if (t->placed && t->oldest < t->newest)
			return cop_end(op, -EAGAIN);
		if (t->write && t->oldest < t->newest && ++t->tries < MAX_REFRESH) {
			req_goto(
				q,
				START); /* a truncate came between its parts: all of it comes after */
			break;
		}
		if (op->attr.size != UINT64_MAX && !t->sized && any_hole(op)) {
			t->sized = true; /* what is missing after this is a hole */
			req_goto(q, START);
			break;
		}
		if (op->attr.size != UINT64_MAX) {
			for (uint32_t i = 0; i < op->file->layout.width; i++)
				if (t->strands[i].shortened)
					fill_holes(op, i);
			count = access_before(&op->access, op->attr.size);
		}
		return cop_end(op, (int64_t)count);
	}
	return true;
}

static const struct req_ops transfer_ops = { "transfer", step, END, 3, names };

enum { READS, WRITES, APPENDS };

static void start(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		  const struct extent *ext, size_t n_ext, int what)
{
	struct transfer *t = arena_alloc(&op->arena, sizeof(*t));
	uint32_t need = what == READS ? OPEN_READ : OPEN_WRITE;
	int e = access_init(&op->access, mem, n_mem, ext, n_ext);

	op->file = f;
	op->transfer = t;
	if (!t)
		e = -ENOMEM;
	else if (!f->unsynced)
		e = -EISDIR;
	else if (!(f->flags & need))
		e = -EBADF;
	if (t)
		t->write = what != READS;
	if (t)
		t->placed = what == APPENDS;
	cop_start(op, &transfer_ops, e);
}

void client_read(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		 const struct extent *ext, size_t n_ext)
{
	start(op, f, mem, n_mem, ext, n_ext, READS);
}

void client_write(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		  const struct extent *ext, size_t n_ext)
{
	struct append *a;

	if (!(f->flags & OPEN_APPEND) || access_init(&op->access, mem, n_mem, ext, n_ext) ||
	    !op->access.total) {
		start(op, f, mem, n_mem, ext, n_ext, WRITES);
		return;
	}
	a = arena_alloc(&op->arena, sizeof(*a));
	if (a)
		append_start(op, a, f, mem, n_mem, op->access.total);
	else
		cop_start(op, &transfer_ops, -ENOMEM);
}

void write_placed(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		  const struct extent *ext)
{
	start(op, f, mem, n_mem, ext, 1, APPENDS);
}
