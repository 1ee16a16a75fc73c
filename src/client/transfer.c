/* List reads and writes, allocation and copies of ranges: requests to all objects in parallel.
 *
 *   MEASURE -> START -> SIZED -> END
 *
 * START gives each touched object one or two lanes (lanes.c). Before space is allocated beyond the
 * size, the metadata server is told (MEASURE). The parts of a copy go to the objects that are
 * written, each with bytes of one object of the source file; the data never reach the client. All
 * memory of a transfer except its lanes is in the arena of its operation.
 *
 * End of file: replies say where each object ends. When a part of the access lies behind an end,
 * the true size decides what is a hole (zeros) and what is behind the end of the file (a short
 * count). */
#include "client/append.h"
#include "client/banked.h"
#include "client/transfer.h"

#define COPY_STRIPES 16384 /* in one call; longer copies return a short count */
#define LANES 2 /* per object */

enum { MEASURE, START, SIZED, END };
static const char *const names[] = {
	[MEASURE] = "measure", [START] = "move", [SIZED] = "size", [END] = "end"
};

static void start_lanes(struct cop *op)
{
	struct cfile *f = op->file;
	uint32_t width = f->layout.width, first = 0;
	uint64_t off;

	op->transfer->objects = arena_alloc(&op->arena, width * sizeof(struct transfer_object));
	if (!op->transfer->objects) {
		op->q.error = -ENOMEM;
		return;
	}
	for (uint32_t i = 0; i < width; i++)
		op->transfer->objects[i].end = UINT64_MAX;
	if (!op->access.total)
		return;
	if (op->access.n_file == 1 && op->access.file[0].length <= f->layout.unit) {
		layout_locate(&f->layout, op->access.file[0].offset, &first, &off);
		width = op->access.file[0].length + off % f->layout.unit > f->layout.unit ?
				MIN(width, 2u) :
				1;
	}
	for (int k = 0; k < LANES; k++)
		for (uint32_t i = 0; i < width; i++)
			lane_start(op, (first + i) % f->layout.width);
}

/* Zeroes what is behind the end of the object and before the end of the file. */
static int fill_holes(struct cop *op, uint32_t index)
{
	struct client *c = op->c;
	struct cfile *f = op->file;
	struct transfer_object *s = &op->transfer->objects[index];
	struct cursor from = { 0 };
	struct pattern_view pattern_view;
	struct view v = { .pattern_view = &pattern_view };
	uint64_t size = layout_object_size(&f->layout, index, op->attr.size);
	size_t n;
	int r = 0;

	while ((n = view_plan(&v, &op->access, &f->layout, index, &from, c->scratch, LIST_MAX,
			      PART_BYTES)) ||
	       (op->transfer->typed && from.pos < op->access.total)) {
		uint64_t at = 0;

		for (size_t i = 0; i < n; at += c->scratch[i++].length) {
			uint64_t lo = c->scratch[i].offset, hi = lo + c->scratch[i].length;
			uint64_t from_off = MAX(lo, s->end), to = MIN(hi, size);

			if (from_off < to && !r)
				r = view_zero(&v, at + from_off - lo, to - from_off);
		}
	}
	return r;
}

/* Does the size reach behind the end of an object? Its bytes may have been written since. */
static bool any_hole(struct cop *op)
{
	const struct layout *l = &op->file->layout;

	for (uint32_t i = 0; i < l->width; i++)
		if (op->transfer->objects[i].end < layout_object_size(l, i, op->attr.size))
			return true;
	return false;
}

static bool any_short(struct cop *op)
{
	for (uint32_t i = 0; i < op->file->layout.width; i++)
		if (op->transfer->objects[i].shortened)
			return true;
	return false;
}

/* Limits a copy to the size of its source, which is known now. -EINVAL: the ranges overlap. */
static int clip_copy(struct cop *op)
{
	struct transfer *t = op->transfer;
	struct copy *k = &t->copy;
	uint64_t size = op->attr.size;

	k->length = MIN(t->want, size > k->from ? size - k->from : 0);
	op->one_ext.length = op->access.total = k->length;
	if (t->source->h.ino == op->file->h.ino && k->from < k->to + k->length &&
	    k->to < k->from + k->length)
		return -EINVAL;
	return 0;
}

/* Space beyond the size: the metadata server must know that objects may exist before they do. */
static bool allocates_beyond(const struct transfer *t)
{
	return t->kind == ALLOCATE &&
	       (t->mode & (ALLOC_KEEP_SIZE | ALLOC_PUNCH)) == ALLOC_KEEP_SIZE;
}

static void record_beyond(struct cop *op)
{
	op->args.RECORD = (struct wire_record_args){ op->file->h, { .doubt = true } };
	op->call = call_make(op, OP_RECORD, &op->args, &op->res);
	peer_call(meta_peer(op->c, op->file->h.ino), &op->call, &op->q);
}

static bool spans_epochs(const struct transfer *t)
{
	return t->kind != READ && (t->epochs.oldest < t->epochs.newest ||
				   t->source_epochs.oldest < t->source_epochs.newest);
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct transfer *t = op->transfer;
	uint64_t count = op->access.total;

	switch (q->state) {
	case MEASURE:
		req_goto(q, START);
		if (t->kind == COPY)
			sizing_start(op, &t->source->h);
		else if (allocates_beyond(t) && !op->file->beyond_recorded)
			record_beyond(op);
		break;
	case START:
		req_goto(q, SIZED);
		op->file->beyond_recorded |= allocates_beyond(t);
		t->epochs = t->source_epochs = (struct epochs){ UINT64_MAX, 0 };
		if (t->kind == COPY)
			req_fail(q, clip_copy(op));
		if (!q->error)
			start_lanes(op);
		break;
	case SIZED:
		req_goto(q, END);
		if (t->sized)
			break;
		if (t->kind == READ && any_short(op))
			sizing_start(op, &op->file->h);
		else
			op->attr.size = UINT64_MAX;
		break;
	case END:
		call_fini(&op->call);
		if (q->error == -EBADF && op->call.op) /* the session was lost, with the open */
			q->error = -EIO;
		if (q->error)
			return cop_end(op, q->error);
		if (t->placed && spans_epochs(t))
			return cop_end(op, -EAGAIN);
		if (spans_epochs(t) &&
		    ++t->tries < MAX_REFRESH) { /* a truncate came between its parts */
			req_goto(q, MEASURE); /* repeat all of them after it */
			break;
		}
		if (op->attr.size != UINT64_MAX && !t->sized && any_hole(op)) {
			t->sized = true; /* what is missing after this pass is a hole */
			req_goto(q, START);
			break;
		}
		if (op->attr.size != UINT64_MAX) {
			for (uint32_t i = 0; i < op->file->layout.width; i++)
				if (t->objects[i].shortened && !q->error)
					q->error = fill_holes(op, i);
			count = access_before(&op->access, op->attr.size);
		}
		return cop_end(op, q->error ? q->error : (int64_t)count);
	}
	return true;
}

static const struct req_ops transfer_ops = REQ_OPS("transfer", step, END, names);

/* op->access is set, or e says why not. */
static void start_access(struct cop *op, struct cfile *f, struct transfer how, int e)
{
	struct transfer *t = arena_alloc(&op->arena, sizeof(*t));
	uint32_t need = how.kind == READ ? OPEN_READ : OPEN_WRITE;

	op->file = f;
	op->transfer = t;
	if (!t)
		e = -ENOMEM;
	else if (!f->unsynced || (how.source && !how.source->unsynced))
		e = -EISDIR;
	else if (!(f->flags & need) ||
		 (how.source && (!(how.source->flags & OPEN_READ) || f->flags & OPEN_APPEND)))
		e = -EBADF;
	if (t) {
		*t = how;
		t->mover = op->c->mover;
	}
	cop_start(op, &transfer_ops, e);
}

void read_plain(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		const struct extent *ext, size_t n_ext)
{
	struct transfer how = { .kind = READ };
	int e = access_init(&op->access, mem, n_mem, ext, n_ext);

	if (!e)
		shape_of_list(op, &how.shape);
	start_access(op, f, how, e);
}

void client_read(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		 const struct extent *ext, size_t n_ext)
{
	if (!banked_read(op, f, mem, n_mem, ext, n_ext))
		read_plain(op, f, mem, n_mem, ext, n_ext);
}

static void write_list(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		       const struct extent *ext, size_t n_ext, struct transfer how)
{
	int e = access_init(&op->access, mem, n_mem, ext, n_ext);

	if (!e)
		shape_of_list(op, &how.shape);
	start_access(op, f, how, e);
}

static struct transfer by_type(struct cop *op, const struct typed *typed, bool write)
{
	struct transfer how = { .kind = write ? WRITE : READ, .typed = typed };

	shape_of_type(op, typed->file.type, &how.shape);
	how.shape.base = typed->base;
	how.shape.end = typed->file.end;
	return how;
}

void client_typed(struct cop *op, struct cfile *f, const struct typed *typed, bool write)
{
	start_access(op, f, by_type(op, typed, write),
		     write && (f->flags & OPEN_APPEND) ?
			     -EINVAL :
			     access_typed(&op->access, &typed->mem, &typed->file, typed->skip));
}

/* Takes all parts of an object and sends none. */
static int plan_object(struct cop *op, uint32_t index, struct parts *out)
{
	struct lane *l = lane_new(op, index);
	int r = l ? 0 : -ENOMEM;

	while (!r && !(r = part_take(l))) {
		out->requests++;
		out->inlined += l->small ? l->view.length : 0;
	}
	if (l)
		lane_free(l);
	return MIN(r, 0);
}

int client_plan(struct cop *op, struct cfile *f, const struct typed *typed, bool write,
		enum net_method how, struct parts *out)
{
	struct transfer t = { .kind = write ? WRITE : READ };
	uint32_t width = f->layout.width;
	int r = 0;

	if (typed)
		t = by_type(op, typed, write);
	else
		shape_of_list(op, &t.shape);
	t.mover = how;
	t.objects = arena_alloc(&op->arena, width * sizeof(*t.objects));
	if (!t.objects)
		return -ENOMEM;
	op->file = f;
	op->transfer = &t;
	for (uint32_t i = 0; !r && i < width; i++)
		r = plan_object(op, i, &out[i]);
	op->transfer = NULL;
	return r;
}

/* A range without memory: only its length is used. */
static void start_range(struct cop *op, struct cfile *f, uint64_t off, uint64_t len,
			struct transfer how)
{
	op->one_mem = (struct iovec){ NULL, len };
	op->one_ext = (struct extent){ off, len };
	start_access(op, f, how, access_init(&op->access, &op->one_mem, 1, &op->one_ext, 1));
}

static void append(struct cop *op, struct cfile *f, struct append what)
{
	struct append *a = arena_alloc(&op->arena, sizeof(*a));

	if (!a) {
		cop_start(op, &transfer_ops, -ENOMEM);
		return;
	}
	*a = what;
	append_start(op, a, f);
}

void client_append(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		   const struct extent *ext, size_t n_ext)
{
	if (!(f->flags & OPEN_WRITE) || access_init(&op->access, mem, n_mem, ext, n_ext) ||
	    !op->access.total)
		write_list(op, f, mem, n_mem, ext, n_ext, (struct transfer){ .kind = WRITE });
	else
		append(op, f,
		       (struct append){ .mem = mem, .n_mem = n_mem, .length = op->access.total });
}

void client_write(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		  const struct extent *ext, size_t n_ext)
{
	if (f->flags & OPEN_APPEND)
		client_append(op, f, mem, n_mem, ext, n_ext);
	else
		write_list(op, f, mem, n_mem, ext, n_ext, (struct transfer){ .kind = WRITE });
}

void append_there(struct cop *op, struct cfile *f, const struct append *a)
{
	struct transfer t = { .kind = a->allocates ? ALLOCATE : WRITE,
			      .mode = a->mode,
			      .placed = true,
			      .place_epoch = a->epoch };

	if (a->allocates)
		start_range(op, f, a->ext.offset, a->ext.length, t);
	else
		write_list(op, f, a->mem, a->n_mem, &a->ext, 1, t);
}

void client_allocate(struct cop *op, struct cfile *f, uint32_t mode, uint64_t off, uint64_t len)
{
	if ((f->flags & OPEN_APPEND) && !(mode & ALLOC_KEEP_SIZE))
		append(op, f,
		       (struct append){ .allocates = true, .mode = mode, .ext = { off, len } });
	else
		start_range(op, f, off, len, (struct transfer){ .kind = ALLOCATE, .mode = mode });
}

void client_copy(struct cop *op, struct cfile *in, uint64_t off_in, struct cfile *out,
		 uint64_t off_out, uint64_t len)
{
	uint64_t most = (uint64_t)COPY_STRIPES * MIN(in->layout.unit, out->layout.unit);

	len = MIN(len, MAX(most, UINT64_C(1)));
	start_range(op, out, off_out, len,
		    (struct transfer){ .kind = COPY,
				       .source = in,
				       .copy = { in->layout, out->layout, off_in, off_out, 0 },
				       .want = len });
}
