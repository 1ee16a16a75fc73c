/* List reads and writes, allocation and copies of ranges: requests to all objects in parallel.
 *
 *   transfer:  MEASURE -> START -> SIZED -> END
 *   lane:      TAKE -> CALL -> ANSWER (-> REFRESHED or ROOM -> CALL) -> TAKE ... -> DONE
 *
 * Each touched object has one or two lanes. A lane takes the next part of the access that belongs
 * to its object (as much as fits one message), sends it and waits for the reply. The user's memory
 * is never copied: the part's view is exposed to the server, except that small parts travel inside
 * the message. Before space is allocated beyond the size, the metadata server is told (MEASURE).
 * The parts of a copy go to the objects that are written, each with bytes of one object of the
 * source file; the data never reach the client. When a capability was fenced or has expired, the
 * lane fetches a new one and sends the part again. Lanes are kept for reuse; all other memory of a
 * transfer is in the arena of its operation.
 *
 * End of file: replies say where each object ends. When a part of the access lies behind an end,
 * the true size decides what is a hole (zeros) and what is behind the end of the file (a short
 * count). */
#include <assert.h>
#include <stdlib.h>

#include "client/client_impl.h"

#define PART_BYTES (64 * MIB) /* in one request */
#define COPY_STRIPES 16384 /* in one call; longer copies return a short count */
#define LANES 2 /* per object */
/* to encode and decode an extent of a list; measured with 1,024 x 64 B as list and as pattern */
#define LISTED_NS 25
#define MAX_REFRESH 1000
#define MAX_SLOW 8 /* replies to one read that may come too late to be trusted */

enum { MEASURE, START, SIZED, END };
static const char *const names[] = {
	[MEASURE] = "measure", [START] = "move", [SIZED] = "size", [END] = "end"
};
enum { TAKE, CALL, ANSWER, REFRESHED, ROOM, DONE };
static const char *const lane_names[] = {
	[TAKE] = "take", [CALL] = "call", [ANSWER] = "answer", [REFRESHED] = "capability",
	[ROOM] = "room", [DONE] = "done"
};

/* What the lanes of one object share. */
struct strand {
	struct cursor next;
	struct copy_cursor next_copy;
	uint64_t end; /* the lowest end of the object in any reply */
	bool shortened; /* a part of the access lies behind that end */
};

struct lane {
	struct req q;
	struct list spare;
	struct cop *op;
	struct strand *strand;
	uint32_t index;
	struct view view;
	union { /* n entries */
		void *list;
		struct extent *ext;
		struct copy_piece *pieces; /* of a copy */
	};
	size_t n, cap_list; /* cap_list: bytes allocated for list */
	bool typed; /* sent as a pattern, not as the list */
	struct wire_pattern pattern;
	uint32_t source; /* object of the other file that the pieces of a copy come from */
	uint32_t refreshes;
	struct room room;
	bool small; /* data travel inside the message */
	bool other; /* the capability of the copy's source is being refreshed */
	uint64_t epoch, other_epoch; /* of the capabilities sent */
	uint64_t asked; /* when the part was sent */
	struct call call;
	union {
		struct wire_read_args read;
		struct wire_write_args write;
		struct wire_allocate_args allocate;
		struct wire_copy_args copy;
	} args;
	union {
		struct wire_read_res read;
		struct wire_write_res write;
	} res;
	/* lane_new() zeroes all fields above */
	uint8_t *small_data; /* of a small write: small_room bytes, or NULL */
	size_t small_room;
};

enum kind { READ, WRITE, ALLOCATE, COPY };

struct epochs {
	uint64_t oldest, newest;
};

struct transfer {
	enum kind kind;
	enum net_mover mover;
	uint32_t mode; /* of ALLOCATE */
	struct cfile *other; /* of COPY: the source */
	struct copy copy;
	uint64_t want; /* of COPY: bytes asked for, before the source's size was known */
	bool placed; /* of an append: its place is valid under place_epoch only */
	uint64_t place_epoch;
	bool sized; /* second pass of a read, after the size was asked for */
	struct epochs epochs, other_epochs; /* of the parts written, and of the source of a copy */
	uint32_t tries;
	struct strand *strands; /* one per object */
	const struct typed *typed; /* or NULL */
	struct shape shape; /* of its file side; empty: too long, or the list is irregular */
};

static_assert(sizeof(struct extent) == sizeof(struct wire_extent) &&
		      offsetof(struct extent, length) == offsetof(struct wire_extent, length) &&
		      sizeof(struct copy_piece) == sizeof(struct wire_copy_piece) &&
		      offsetof(struct copy_piece, to) == offsetof(struct wire_copy_piece, to),
	      "an extent is an extent");
static_assert(PART_BYTES <= ALLOC_MAX, "a part is a request");

static void epochs_add(struct epochs *e, uint64_t epoch)
{
	e->oldest = MIN(e->oldest, epoch);
	e->newest = MAX(e->newest, epoch);
}

/* ---- lanes ---- */

#define SPARE_LANES 256
#define SMALL_LEAST (1 * KIB) /* least buffer for the data of a small write */
#define SPARE_SMALL (8 * KIB) /* most buffer that a spare lane keeps */

static struct lane *lane_new(struct cop *op, uint32_t index)
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
	l->strand = &op->transfer->strands[index];
	return l;
}

static void drop_small(struct lane *l)
{
	free(l->small_data);
	l->small_data = NULL;
	l->small_room = 0;
}

static void lane_free(struct lane *l)
{
	struct client *c = l->op->c;

	if (l->small_room > SPARE_SMALL)
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

/* Copies n items of this size, planned in the client's scratch memory, into the lane. */
static int keep(struct lane *l, size_t n, size_t size)
{
	if (n * size > l->cap_list) {
		l->list = arena_alloc(&l->op->arena, n * size);
		l->cap_list = l->list ? n * size : 0;
		if (!l->list)
			return -ENOMEM;
	}
	memcpy(l->list, l->op->c->scratch, n * size);
	l->n = n;
	return 0;
}

static int take_copy(struct lane *l)
{
	struct cop *op = l->op;
	struct copy_cursor *next = &l->strand->next_copy;
	size_t n = copy_plan(&op->transfer->copy, l->index, next, op->c->scratch_copy, LIST_MAX,
			     COPY_MAX);

	l->source = next->source;
	return n ? keep(l, n, sizeof(*l->pieces)) : 1;
}

/* ---- the next part: its mover, and its form (list or pattern) ---- */

/* Bytes of data that a message to this lane's server may carry. */
static uint64_t inline_room(const struct lane *l)
{
	const struct cfile *f = l->op->file;

	return MIN(f->c->peers[f->targets[l->index]].eager_bytes, (uint32_t)INLINE_MAX);
}

static bool inlines(const struct lane *l, uint64_t bytes)
{
	const struct transfer *t = l->op->transfer;

	if (t->mover != MOVER_AUTO)
		return t->mover == MOVER_INLINE && bytes <= inline_room(l);
	return net_choose(&l->op->c->net.costs, t->kind == WRITE, 1, bytes, inline_room(l)) ==
	       MOVER_INLINE;
}

/* Bytes of one request; fewer when many clients share the server. */
static uint64_t part_bytes(const struct lane *l)
{
	const struct cfile *f = l->op->file;

	return MIN(PART_BYTES, peer_room(&f->c->peers[f->targets[l->index]]));
}

/* The same, within the limits of the mover. */
static uint64_t most_bytes(const struct lane *l)
{
	const struct transfer *t = l->op->transfer;
	uint64_t room = inline_room(l);

	if (t->kind == ALLOCATE)
		return t->mode & ALLOC_PUNCH ? INT64_MAX : PART_BYTES;
	return t->mover == MOVER_INLINE && room ? room : part_bytes(l);
}

/* Takes the n planned extents as the part; l->view is their memory. */
static int take_list(struct lane *l, size_t n)
{
	l->small = inlines(l, l->view.length);
	return keep(l, n, sizeof(*l->ext));
}

/* Takes all that is left, or as much as a request may have, as a pattern; sets no view. */
static void take_pattern(struct lane *l)
{
	struct cop *op = l->op;
	const struct transfer *t = op->transfer;
	const struct layout *lay = &op->file->layout;
	uint64_t next = l->strand->next.pos, left = op->access.total - next;

	l->pattern = (struct wire_pattern){
		.type = t->shape.type,
		.base = t->shape.base,
		.unit = lay->unit,
		.width = lay->width,
		.start = lay->start,
		.index = l->index,
		.begin = next,
		.upto = next + MIN(left, part_bytes(l) * lay->width),
	};
	l->typed = true;
	l->n = 0;
	l->small = false;
}

/* Most extents of a part that are sent as a list although there is a pattern. Data inside a message
 * need a list, so a longer list pays while its extents take less time than that saves. */
static size_t list_most(const struct lane *l)
{
	const struct cop *op = l->op;
	const struct transfer *t = op->transfer;
	const struct net_costs *c = &op->c->net.costs;
	uint64_t bytes = op->access.total / op->file->layout.width;
	double saved;

	if (t->mover != MOVER_AUTO || bytes > inline_room(l))
		return op->c->list_most;
	saved = net_cost(c, MOVER_GATHER, t->kind == WRITE, 1, bytes) -
		net_cost(c, MOVER_INLINE, t->kind == WRITE, 1, bytes);
	return MIN(MAX(op->c->list_most, (size_t)(MAX(saved, 0) / LISTED_NS)), (size_t)LIST_MAX);
}

/* Takes a part of a typed access: as a list when that is short or the type is too long, else as a
 * pattern, which may have no bytes of this object. */
static int take_typed(struct lane *l)
{
	struct cop *op = l->op;
	const struct transfer *t = op->transfer;
	const struct layout *lay = &op->file->layout;
	struct cursor from = l->strand->next;
	uint64_t total = op->access.total;
	bool list = !t->shape.type.len || t->mover == MOVER_INLINE;
	size_t n;

	if (!l->view.trail)
		l->view.trail = arena_alloc(&op->arena, sizeof(*l->view.trail));
	if (!l->view.trail)
		return -ENOMEM;
	do {
		n = view_plan(&l->view, &op->access, lay, l->index, &from, op->c->scratch,
			      list ? LIST_MAX : list_most(l), most_bytes(l));
	} while (!n && list && from.pos < total);
	l->typed = false;
	if (!list && from.pos < total) {
		take_pattern(l);
		view_trail(&l->view, &op->access, lay, l->index, l->pattern.begin, l->pattern.upto);
		l->strand->next.pos = l->pattern.upto;
		return 0;
	}
	l->strand->next = from;
	return n ? take_list(l, n) : 1;
}

/* Takes a part of a regular list, in the same way. */
static int take_regular(struct lane *l)
{
	struct cop *op = l->op;
	const struct layout *lay = &op->file->layout;
	struct cursor *next = &l->strand->next, from = *next;
	size_t n = view_plan(&l->view, &op->access, lay, l->index, &from, op->c->scratch,
			     list_most(l), PART_BYTES);

	l->typed = false;
	if (from.pos == op->access.total) {
		*next = from;
		return n ? take_list(l, n) : 1;
	}
	do {
		take_pattern(l);
		view_span(&l->view, &op->access, lay, l->index, next, l->pattern.upto);
	} while (!l->view.length && next->pos < op->access.total);
	return l->view.length ? 0 : 1;
}

/* Takes the next part of the lane's object. 0: there is one; 1: none is left; or -errno. */
static int take(struct lane *l)
{
	struct cop *op = l->op;
	const struct transfer *t = op->transfer;
	size_t n;

	if (t->kind == COPY)
		return take_copy(l);
	if (t->typed)
		return take_typed(l);
	if (t->shape.type.len && t->mover != MOVER_INLINE)
		return take_regular(l);
	n = view_plan(&l->view, &op->access, &op->file->layout, l->index, &l->strand->next,
		      op->c->scratch, LIST_MAX, most_bytes(l));
	return n ? take_list(l, n) : 1;
}

static void prepare_read(struct lane *l)
{
	struct wire_read_args *a = &l->args.read;

	*a = (struct wire_read_args){ .at = file_access(l->op->file, l->index),
				      .n_list = (uint32_t)l->n,
				      .list = (struct wire_extent *)l->ext,
				      .n_part = l->typed,
				      .part = &l->pattern };
	l->call = call_make(l->op, OP_READ, a, &l->res.read);
	l->call.mem = l->small ? NULL : &l->view;
	l->call.mem_wire = &a->mem;
	l->call.mem_access = CAP_WRITE; /* the server writes into the memory */
	l->call.mover = l->op->transfer->mover;
}

/* Counts data that travel inside a message. */
static void moved_inline(struct lane *l, uint64_t bytes, unsigned copies)
{
	struct net_account *a = &l->op->c->peers[l->op->file->targets[l->index]].account;

	a->bytes[MOVER_INLINE] += bytes;
	a->copied += copies * bytes;
}

static void prepare_write(struct lane *l)
{
	struct wire_write_args *a = &l->args.write;

	*a = (struct wire_write_args){ .at = file_access(l->op->file, l->index),
				       .n_list = (uint32_t)l->n,
				       .list = (struct wire_extent *)l->ext,
				       .n_part = l->typed,
				       .part = &l->pattern };
	l->call = call_make(l->op, OP_WRITE, a, &l->res.write);
	l->call.mem = l->small ? NULL : &l->view;
	l->call.mem_wire = &a->mem;
	l->call.mem_access = CAP_READ;
	l->call.mover = l->op->transfer->mover;
	if (!l->small)
		return;
	if (l->small_room < l->view.length) {
		drop_small(l);
		l->small_room = MAX(l->view.length, (uint64_t)SMALL_LEAST);
		l->small_data = malloc(l->small_room);
	}
	l->q.error = l->small_data ? view_copy_out(&l->view, 0, l->small_data, l->view.length) :
				     -ENOMEM;
	if (!l->small_data)
		l->small_room = 0;
	a->data = (struct wire_bytes){ (uint32_t)l->view.length, l->small_data };
	moved_inline(l, l->view.length, 2); /* into the buffer, and into the message */
}

static void prepare_allocate(struct lane *l)
{
	struct wire_allocate_args *a = &l->args.allocate;

	*a = (struct wire_allocate_args){ .at = file_access(l->op->file, l->index),
					  .mode = l->op->transfer->mode,
					  .n_list = (uint32_t)l->n,
					  .list = (struct wire_extent *)l->ext };
	l->call = call_make(l->op, OP_ALLOCATE, a, &l->res.write);
}

static void prepare_copy(struct lane *l)
{
	struct wire_copy_args *a = &l->args.copy;
	struct cfile *other = l->op->transfer->other;

	*a = (struct wire_copy_args){ .at = file_access(l->op->file, l->index),
				      .from = file_access(other, l->source),
				      .source = other->targets[l->source],
				      .n_list = (uint32_t)l->n,
				      .list = (struct wire_copy_piece *)l->pieces };
	l->other_epoch = other->cap.epoch;
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
	l->asked = l->q.loop->now;
	l->call.trace = l->op->q.trace;
	if (l->q.error) /* no buffer, or the caller's memory is not mapped */
		return;
	peer_call(&f->c->peers[f->targets[l->index]], &l->call, &l->q);
}

/* Notes that a part of the access lies behind the end of the object. */
static void shorten(struct lane *l, uint64_t end)
{
	l->strand->shortened = true;
	l->strand->end = MIN(l->strand->end, end);
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
static uint64_t reached(const struct lane *l)
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
static bool is_room(const struct transfer *t)
{
	return t->kind == ALLOCATE && t->mode == ALLOC_KEEP_SIZE;
}

static void answered_write(struct lane *l)
{
	struct cfile *f = l->op->file;
	struct transfer *t = l->op->transfer;

	epochs_add(&t->epochs, l->epoch);
	epochs_add(&t->other_epochs, l->other_epoch);
	/* Comes before file_wrote(): it forgets ends after a loss, but must not forget this one.
	 * Allocated space alone holds no data that could be lost. */
	if (!is_room(t) || f->unsynced[l->index])
		file_unsynced(f, l->index, l->call.verifier);
	file_wrote(f, l->index, l->epoch, reached(l), &l->res.write);
	f->punched |= t->kind == ALLOCATE && (t->mode & (ALLOC_PUNCH | ALLOC_ZERO));
}

/* Did the reply come too late to be trusted? Bulk from a server on this host may be pages of its
 * file until the client reads the socket. A client that was stopped meanwhile for a part of its
 * lease may have lost its locks, and would read what their next owner wrote. */
static bool outlived(const struct lane *l)
{
	const struct cfile *f = l->op->file;
	const struct peer *p = &f->c->peers[f->targets[l->index]];
	struct env *e = l->q.loop->env;

	return l->op->transfer->kind == READ && !l->small && peer_is_local(p) &&
	       l->refreshes < MAX_SLOW &&
	       e->clock->now(e) > l->asked + p->lease_ms * NSEC_PER_MSEC / 2;
}

static void answer(struct lane *l)
{
	struct req *q = &l->q;

	req_goto(q, TAKE);
	if (!q->error && outlived(l))
		q->error = -EKEYEXPIRED;
	if (q->error == -EKEYEXPIRED && ++l->refreshes < MAX_REFRESH) {
		call_fini(&l->call);
		q->error = 0;
		l->other = false;
		req_goto(q, REFRESHED);
		cap_ask(l->op, l->op->file, &l->call, q);
		return;
	}
	if (q->error == -ENOSPC && room_wait(l->op->c, &l->room, q)) {
		call_fini(&l->call);
		q->error = 0;
		req_goto(q, ROOM);
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

	cap_take(l->other ? t->other : l->op->file, &l->call);
	if (l->q.error) { /* an earlier attempt may have written, and only a repetition failed */
		l->op->file->wrote.doubt |= t->kind != READ;
		req_goto(&l->q, DONE);
	} else if (t->kind == COPY && !l->other) {
		l->other = true;
		cap_ask(l->op, t->other, &l->call, &l->q);
	} else {
		req_goto(&l->q, CALL);
	}
}

static bool locks_lost(const struct lane *l)
{
	const struct cfile *other = l->op->transfer->other;

	return file_locks_lost(l->op->file) || (other && file_locks_lost(other));
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
		r = parent->error ? 1 : take(l);
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
	case ROOM:
		room_waited(&l->room);
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

/* ---- the transfer ---- */

/* Starts a lane for an object. False: no part of the access is left for it, or no memory. */
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

/* Zeroes what is behind the end of the object and before the end of the file. */
static int fill_holes(struct cop *op, uint32_t index)
{
	struct client *c = op->c;
	struct cfile *f = op->file;
	struct strand *s = &op->transfer->strands[index];
	struct cursor from = { 0 };
	struct trail trail;
	struct view v = { .trail = &trail };
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

/* Limits a copy to the size of its source, which is known now. -EINVAL: the ranges overlap. */
static int clip_copy(struct cop *op)
{
	struct transfer *t = op->transfer;
	struct copy *k = &t->copy;
	uint64_t size = op->attr.size;

	k->length = MIN(t->want, size > k->from ? size - k->from : 0);
	op->one_ext.length = op->access.total = k->length;
	if (t->other->h.ino == op->file->h.ino && k->from < k->to + k->length &&
	    k->to < k->from + k->length)
		return -EINVAL;
	return 0;
}

/* Space beyond the size: the metadata server must know that objects may exist before they do. */
static bool leads_beyond(const struct transfer *t)
{
	return t->kind == ALLOCATE &&
	       (t->mode & (ALLOC_KEEP_SIZE | ALLOC_PUNCH)) == ALLOC_KEEP_SIZE;
}

static void tell_beyond(struct cop *op)
{
	op->args.record = (struct wire_record_args){ op->file->h, { .doubt = true } };
	op->call = call_make(op, OP_RECORD, &op->args, &op->res);
	peer_call(peer_of(op->c, op->file->h.ino), &op->call, &op->q);
}

static bool mixed(const struct transfer *t)
{
	return t->kind != READ && (t->epochs.oldest < t->epochs.newest ||
				   t->other_epochs.oldest < t->other_epochs.newest);
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
			sizing_start(op, &t->other->h);
		else if (leads_beyond(t) && !op->file->told_beyond)
			tell_beyond(op);
		break;
	case START:
		req_goto(q, SIZED);
		op->file->told_beyond |= leads_beyond(t);
		t->epochs = t->other_epochs = (struct epochs){ UINT64_MAX, 0 };
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
		if (t->placed && mixed(t))
			return cop_end(op, -EAGAIN);
		if (mixed(t) && ++t->tries < MAX_REFRESH) { /* a truncate came between its parts */
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
				if (t->strands[i].shortened && !q->error)
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
	else if (!f->unsynced || (how.other && !how.other->unsynced))
		e = -EISDIR;
	else if (!(f->flags & need) ||
		 (how.other && (!(how.other->flags & OPEN_READ) || f->flags & OPEN_APPEND)))
		e = -EBADF;
	if (t) {
		*t = how;
		t->mover = op->c->mover;
	}
	cop_start(op, &transfer_ops, e);
}

static void start(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		  const struct extent *ext, size_t n_ext, struct transfer how)
{
	int e = access_init(&op->access, mem, n_mem, ext, n_ext);

	if (!e && (how.kind == READ || how.kind == WRITE))
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
			     access_typed(&op->access, &typed->mem, &typed->file));
}

/* Takes all parts of an object and sends none. */
static int plan_object(struct cop *op, uint32_t index, struct parts *out)
{
	struct lane *l = lane_new(op, index);
	int r = l ? 0 : -ENOMEM;

	while (!r && !(r = take(l))) {
		out->requests++;
		out->inlined += l->small ? l->view.length : 0;
	}
	if (l)
		lane_free(l);
	return MIN(r, 0);
}

int client_plan(struct cop *op, struct cfile *f, const struct typed *typed, bool write,
		enum net_mover how, struct parts *out)
{
	struct transfer t = { .kind = write ? WRITE : READ };
	uint32_t width = f->layout.width;
	int r = 0;

	if (typed)
		t = by_type(op, typed, write);
	else
		shape_of_list(op, &t.shape);
	t.mover = how;
	t.strands = arena_alloc(&op->arena, width * sizeof(*t.strands));
	if (!t.strands)
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
	start(op, f, &op->one_mem, 1, &op->one_ext, 1, how);
}

void client_read(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		 const struct extent *ext, size_t n_ext)
{
	start(op, f, mem, n_mem, ext, n_ext, (struct transfer){ .kind = READ });
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
		start(op, f, mem, n_mem, ext, n_ext, (struct transfer){ .kind = WRITE });
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
		start(op, f, mem, n_mem, ext, n_ext, (struct transfer){ .kind = WRITE });
}

void append_there(struct cop *op, struct cfile *f, const struct append *a)
{
	struct transfer t = { .kind = a->room ? ALLOCATE : WRITE,
			      .mode = a->mode,
			      .placed = true,
			      .place_epoch = a->epoch };

	if (a->room)
		start_range(op, f, a->ext.offset, a->ext.length, t);
	else
		start(op, f, a->mem, a->n_mem, &a->ext, 1, t);
}

void client_allocate(struct cop *op, struct cfile *f, uint32_t mode, uint64_t off, uint64_t len)
{
	if ((f->flags & OPEN_APPEND) && !(mode & ALLOC_KEEP_SIZE))
		append(op, f, (struct append){ .room = true, .mode = mode, .ext = { off, len } });
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
				       .other = in,
				       .copy = { in->layout, out->layout, off_in, off_out, 0 },
				       .want = len });
}
