/* READ, WRITE, ALLOCATE and COPY of object extents.
 *
 *   BEGIN -> OPEN -> BUFFER -> TURN -> DISK -> MOVE -> REPLY  small: in the message, one turn
 *   BEGIN -> OPEN -> MOVE -> REPLY                            in windows; every COPY
 *   BEGIN -> OPEN -> TURN -> DISK -> REPLY                    ALLOCATE: no bytes move, one turn
 *
 * The buffer is taken before the turn, as in windows: no request holds a turn while it waits for
 * the pool. Larger transfers use windows (windows.c); those of a COPY fetch their bytes from
 * another target (fetch.c). */
#include <assert.h>
#include <fcntl.h>

#include "server/cap.h"
#include "server/window.h"

static_assert(INLINE_MAX <= BUF_UNIT, "what is inside a message has room in one unit");
static_assert(INLINE_MAX + LIST_MAX * 16 + 4 * KIB <= MSG_MAX, "with the longest list, too");

#define MAX_AGAIN 8 /* retries of a read while the file keeps growing */

enum { BEGIN, OPEN, BUFFER, TURN, DISK, MOVE, REPLY, SENT };
static const char *const names[] = { "begin", "open", "buffer", "turn",
				     "disk",  "move", "reply",	"sent" };

static_assert(sizeof(struct extent) == sizeof(struct wire_extent) &&
		      offsetof(struct extent, length) == offsetof(struct wire_extent, length),
	      "an extent is an extent");

static uint64_t total_of(const struct wire_extent *e, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += e[i].length;
	return sum;
}

/* Checks offsets and lengths of untrusted extents for overflow. */
static int check_extents(const struct wire_extent *e, uint32_t n, uint64_t *total)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (e[i].offset > INT64_MAX || e[i].length > INT64_MAX - e[i].offset)
			return -EFBIG;
		if (e[i].length > INT64_MAX - sum)
			return -EINVAL;
		sum += e[i].length;
	}
	*total = sum;
	return 0;
}

static int check_list(const struct wire_extent *e, uint32_t n, const struct wire_mem_desc *mem,
		      uint64_t inline_bytes, bool write)
{
	uint64_t sum;
	int r = check_extents(e, n, &sum);

	if (r)
		return r;
	if (mem->tag)
		return sum == mem->length ? 0 : -EINVAL;
	if (write)
		return sum == inline_bytes ? 0 : -EINVAL;
	return sum <= INLINE_MAX ? 0 : -EINVAL;
}

/* Decodes and checks a pattern that was sent instead of a list. */
static int open_pattern(struct sreq *s, struct data_state *d, const struct wire_pattern *p,
			const struct wire_mem_desc *mem)
{
	const struct layout l = { p->unit, p->width, p->start };
	struct pattern_list *list;
	int r;

	if (!l.unit || !l.width || l.width > TARGETS_MAX || l.start >= l.width ||
	    p->index >= l.width || !mem->tag || p->begin > p->upto || p->upto > INT64_MAX ||
	    mem->length > p->upto - p->begin)
		return -EINVAL;
	list = arena_alloc(&s->arena, sizeof(*list));
	if (!list)
		return -ENOMEM;
	r = type_decode(p->type.p, p->type.len, &list->type);
	if (r)
		return r;
	d->pattern = list;
	r = pattern_tile(&list->tiled, list->type, p->base, p->upto);
	if (!r)
		extent_iter_init(&list->iter, &list->tiled, &l, p->index, p->begin);
	return r;
}

static int open_list(struct sreq *s, struct data_state *d, const struct wire_extent *e, uint32_t n,
		     const struct wire_pattern *p, uint32_t n_part, const struct wire_mem_desc *mem,
		     uint64_t inline_bytes, bool write)
{
	if (!n_part)
		return check_list(e, n, mem, inline_bytes, write);
	return n ? -EINVAL : open_pattern(s, d, p, mem);
}

/* Does the pattern have bytes in this object? Also true when a short search did not tell. */
static bool pattern_finds(struct pattern_list *p)
{
	struct extent e;

	return extent_iter_next(&p->iter, &e, NULL, 1, 1) || p->iter.c.pos < p->tiled.total;
}

static void pattern_free(struct data_state *d)
{
	if (d->pattern)
		type_free(d->pattern->type);
	d->pattern = NULL;
}

static void data_abandon(struct req *q)
{
	pattern_free(sreq_of(q)->op);
}

static void range_of(const struct wire_extent *e, uint32_t n, uint64_t *lo, uint64_t *hi)
{
	*lo = UINT64_MAX;
	*hi = 0;
	for (uint32_t i = 0; i < n; i++) {
		*lo = MIN(*lo, e[i].offset);
		*hi = MAX(*hi, e[i].offset + e[i].length);
	}
}

/* Copies several cached pieces out of a mapping, instead of one disk access each. */
static bool read_inline_mapped(struct sreq *s, struct data_state *d, const struct wire_extent *list,
			       uint32_t n)
{
	bool may = n > 2 && !s->srv->auth_conf->never_sieve;
	struct iovec *src = may ? arena_alloc(&s->arena, n * sizeof(*src)) : NULL;

	return src && object_mapped_read(d->object, (const struct extent *)list, n, d->turn.lo,
					 d->turn.hi, src, d->buf.iov, d->buf.n);
}

/* Copies the data of the message into a mapping. The caller still writes the last piece by system
 * call (strategy.c, store_pieces()). */
static bool write_inline_mapped(struct sreq *s, struct data_state *d,
				const struct wire_write_args *a)
{
	struct iovec data = { (void *)(uintptr_t)a->data.p, a->data.len };
	struct iovec *dst = a->n_list > 2 ? arena_alloc(&s->arena, a->n_list * sizeof(*dst)) : NULL;

	return dst && object_mapped_write(d->object, (const struct extent *)a->list, a->n_list,
					  d->turn.lo, d->turn.hi, dst, &data, 1);
}

/* The inline data lie one after another at `base`. */
static struct iovec *inline_iov(struct sreq *s, const struct wire_extent *e, uint32_t n, void *base)
{
	struct iovec *iov = arena_alloc(&s->arena, n * sizeof(*iov));
	char *p = base;

	for (uint32_t i = 0; iov && i < n; p += e[i++].length)
		iov[i] = (struct iovec){ p, e[i].length };
	return iov;
}

/* Can the pieces of a message be copied into a mapping? */
static bool can_store_list(const struct sreq *s, const struct data_state *d,
			   const struct wire_extent *list, uint32_t n)
{
	uint64_t lo, hi;

	range_of(list, n, &lo, &hi);
	return !s->srv->auth_conf->never_sieve &&
	       object_mapped_can_write(s->srv->loop, d->object, lo, hi);
}

/* data: of a write that has its data in the message, or NULL. A write of several inline pieces that
 * cannot be copied into a mapping goes through windows as well. */
static void plan(struct sreq *s, struct data_state *d, const struct wire_capability *cap,
		 const struct wire_extent *list, uint32_t n, const struct wire_mem_desc *mem,
		 bool write, const uint8_t *data)
{
	uint64_t total = d->pattern ? mem->length : total_of(list, n);

	if (!d->object || !total) { /* no object: nothing to read */
		req_goto(&s->q, MOVE);
		return;
	}
	if (!mem->tag && !(write && n > 2 && !can_store_list(s, d, list, n))) {
		if (!write)
			buf_get(&s->srv->pool, NULL, &d->buf, total, &s->q);
		return;
	}
	req_goto(&s->q, MOVE);
	d->bulk =
		(struct bulk){ .s = s,
			       .object = d->object,
			       .mem = mem,
			       .list = d->pattern ? (struct wire_extent *)d->pattern->batch : list,
			       .n_list = n,
			       .pattern = d->pattern,
			       .data = mem->tag ? NULL : data,
			       .epoch = cap->epoch,
			       .end = object_end(d->object),
			       .write = write };
	bulk_start(&d->bulk);
}

static void take_turn(struct sreq *s, struct data_state *d, const struct wire_capability *cap,
		      const struct wire_extent *list, uint32_t n, bool write)
{
	uint64_t lo, hi;

	range_of(list, n, &lo, &hi);
	turn_begin(d->object, &d->turn, cap->epoch, lo, hi, write, &s->q);
}

static int access_inline(struct sreq *s, struct data_state *d, const struct wire_extent *list,
			 uint32_t n, void *base, bool write)
{
	struct env *e = s->srv->loop->env;
	struct io *ios = n <= ARRAY_LEN(d->ios) ? d->ios : arena_alloc(&s->arena, n * sizeof(*ios));
	struct iovec *iov = inline_iov(s, list, n, base);
	size_t used = 0;

	if (!ios || !iov)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (list[i].length)
			ios[used++] = (struct io){ .off = list[i].offset, .iov = &iov[i], .n = 1 };
	if (write)
		object_write(d->object, ios, used, (int64_t)e->clock->wall(e), &s->q);
	else
		object_read(d->object, ios, used, &s->q);
	return 0;
}

static int write_inline(struct sreq *s, struct data_state *d, const struct wire_write_args *a)
{
	uint32_t last = a->n_list - 1;
	uint8_t *data = (uint8_t *)(uintptr_t)a->data.p;

	while (last && !a->list[last].length)
		last--;
	object_count(d->object, a->n_list, 0);
	if (write_inline_mapped(s, d, a))
		return access_inline(s, d, a->list + last, 1,
				     data + a->data.len - a->list[last].length, true);
	return access_inline(s, d, a->list, a->n_list, data, true);
}

static bool finish(struct sreq *s, struct data_state *d)
{
	turn_end(&d->turn);
	cap_refused(s);
	object_put(d->object);
	d->object = NULL;
	pattern_free(s->op);
	return true;
}

/* 0, or an error if the read reaches into lost data. A pattern that reaches beyond the end always
 * does. */
static int read_whole(struct sreq *s, const struct wire_read_args *a, const struct wire_read_res *r)
{
	if (r->end >= a->at.recorded)
		return 0;
	return r->beyond ? object_damaged(s, &a->at, r->end) :
			   read_damaged(s, &a->at, a->list, a->n_list, r->end);
}

/* The read was clipped at an end that a write moved before the window had its turn, so it saw only
 * part of that write. Reads longer than a window may mix with writes anyway. */
static bool has_grown(struct data_state *d, const struct wire_read_args *a, uint64_t end)
{
	uint64_t total = d->pattern ? a->mem.length : total_of(a->list, a->n_list);

	return d->bulk.clipped && total <= WINDOW_BYTES && object_end(d->object) > end &&
	       d->tries++ < MAX_AGAIN;
}

static int open_again(struct sreq *s, struct data_state *d, const struct wire_read_args *a)
{
	pattern_free(s->op);
	return open_list(s, d, a->list, a->n_list, a->part, a->n_part, &a->mem, 0, false);
}

static bool read_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_read_args *a = s->args;
	struct wire_read_res *r = s->res;
	struct data_state *d = s->op;

	switch (q->state) {
	case BEGIN:
		req_goto(q, OPEN);
		s->ino = a->at.cap.ino;
		req_fail(q, access_check(s, &a->at, CAP_READ));
		if (!q->error)
			req_fail(q, open_list(s, d, a->list, a->n_list, a->part, a->n_part, &a->mem,
					      0, false));
		if (!q->error)
			object_get(s->srv->disk, object_of(&a->at), a->at.cap.epoch, false,
				   &d->object, q);
		break;
	case OPEN:
		req_goto(q, BUFFER);
		plan(s, d, &a->at.cap, a->list, a->n_list, &a->mem, false, NULL);
		r->end = d->object ? object_end(d->object) : 0;
		break;
	case BUFFER:
		req_goto(q, TURN);
		take_turn(s, d, &a->at.cap, a->list, a->n_list, false);
		break;
	case TURN: /* a write that this request waited for may have moved the end */
		req_goto(q, DISK);
		r->end = object_end(d->object);
		object_count(d->object, a->n_list, 0);
		if (!read_inline_mapped(s, d, a->list, a->n_list))
			req_fail(q, access_inline(s, d, a->list, a->n_list, d->buf.iov[0].iov_base,
						  false));
		break;
	case DISK:
		req_goto(q, MOVE);
		r->data = (struct wire_bytes){ (uint32_t)d->buf.len, d->buf.iov[0].iov_base };
		sreq_count_read(s, d->buf.len);
		break;
	case MOVE:
		req_goto(q, REPLY);
		r->beyond = d->pattern && d->bulk.clipped;
		if (has_grown(d, a, r->end)) {
			req_goto(q, OPEN);
			req_fail(q, open_again(s, d, a));
		}
		break;
	case REPLY: /* sreq_reply() copies inline data out of the buffer */
		if (q->error == -ENOENT && !d->object) {
			q->error = 0;
			r->beyond = d->pattern && pattern_finds(d->pattern);
		}
		if (!q->error)
			q->error = read_whole(s, a, r);
		if (d->bulk.n_posted) { /* after an error, the reply waits for them */
			if (!q->error) {
				req_goto(q, SENT);
				sreq_answer(s);
			}
			bulk_hold_until_sent(&d->bulk);
			break;
		}
		finish(s, d);
		if (d->buf.pool) {
			struct buf keep = d->buf;

			list_init(&keep.link);
			sreq_reply(s);
			buf_put(&keep);
			return false;
		}
		return sreq_reply(s);
	case SENT:
		finish(s, d);
		return sreq_end(s);
	}
	return true;
}

const struct req_ops read_ops = REQ_OPS("read", read_step, REPLY, names, .abandon = data_abandon);

/* Fills in what the writer must know of the changed object. */
static void written(struct object *o, struct wire_write_res *r)
{
	*r = (struct wire_write_res){ object_end(o), object_blocks(o), object_mtime(o) };
}

static bool write_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_write_args *a = s->args;
	struct wire_write_res *r = s->res;
	struct data_state *d = s->op;

	switch (q->state) {
	case BEGIN:
		req_goto(q, OPEN);
		s->ino = a->at.cap.ino;
		req_fail(q, access_check(s, &a->at, CAP_WRITE));
		if (!q->error)
			req_fail(q, open_list(s, d, a->list, a->n_list, a->part, a->n_part, &a->mem,
					      a->data.len, true));
		if (!q->error)
			object_get(s->srv->disk, object_of(&a->at), a->at.cap.epoch, true,
				   &d->object, q);
		break;
	case OPEN:
		req_goto(q, BUFFER);
		req_fail(q, write_damaged(s, &a->at, a->list, a->n_list, object_end(d->object)));
		if (!q->error)
			plan(s, d, &a->at.cap, a->list, a->n_list, &a->mem, true, a->data.p);
		break;
	case BUFFER:
		req_goto(q, TURN);
		take_turn(s, d, &a->at.cap, a->list, a->n_list, true);
		break;
	case TURN:
		req_goto(q, DISK);
		req_fail(q, write_inline(s, d, a));
		break;
	case DISK:
	case MOVE:
		req_goto(q, REPLY);
		if (!d->bulk.s) /* windows count their bytes themselves */
			sreq_count_written(s, a->data.len);
		written(d->object, r);
		break;
	case REPLY:
		finish(s, d);
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops write_ops =
	REQ_OPS("write", write_step, REPLY, names, .abandon = data_abandon);

/* ---- ALLOCATE ---- */

static_assert(ALLOC_KEEP_SIZE == FALLOC_FL_KEEP_SIZE && ALLOC_PUNCH == FALLOC_FL_PUNCH_HOLE &&
		      ALLOC_ZERO == FALLOC_FL_ZERO_RANGE,
	      "modes go to the system as they are");

static int check_allocate(const struct wire_allocate_args *a)
{
	uint64_t total;
	int r;

	switch (a->mode) {
	case 0:
	case ALLOC_KEEP_SIZE:
	case ALLOC_PUNCH | ALLOC_KEEP_SIZE:
	case ALLOC_ZERO:
	case ALLOC_ZERO | ALLOC_KEEP_SIZE:
		r = check_extents(a->list, a->n_list, &total);
		return !r && total > ALLOC_MAX && !(a->mode & ALLOC_PUNCH) ? -EINVAL : r;
	default:
		return -EOPNOTSUPP;
	}
}

static int allocate(struct sreq *s, struct data_state *d, const struct wire_allocate_args *a)
{
	struct env *e = s->srv->loop->env;
	struct io *ios = arena_alloc(&s->arena, a->n_list * sizeof(*ios));
	struct iovec *iov = arena_alloc(&s->arena, a->n_list * sizeof(*iov));

	if (!ios || !iov)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->n_list; i++) {
		iov[i].iov_len = a->list[i].length;
		ios[i] = (struct io){ .off = a->list[i].offset, .iov = &iov[i], .n = 1 };
	}
	object_allocate(d->object, ios, a->n_list, (int)a->mode, (int64_t)e->clock->wall(e), &s->q);
	return 0;
}

static bool allocate_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_allocate_args *a = s->args;
	struct wire_write_res *r = s->res;
	struct data_state *d = s->op;
	struct env *e = s->srv->loop->env;

	switch (q->state) {
	case BEGIN:
		req_goto(q, OPEN);
		s->ino = a->at.cap.ino;
		req_fail(q, access_check(s, &a->at, CAP_WRITE));
		if (!q->error)
			req_fail(q, check_allocate(a));
		if (!q->error)
			object_get(s->srv->disk, object_of(&a->at), a->at.cap.epoch,
				   !(a->mode & ALLOC_PUNCH), &d->object, q);
		break;
	case OPEN:
		req_goto(q, a->n_list ? TURN : DISK);
		if (!(a->mode & ALLOC_PUNCH)) /* allocated room would hide lost data */
			req_fail(q, read_damaged(s, &a->at, a->list, a->n_list,
						 object_end(d->object)));
		if (a->n_list && !q->error)
			take_turn(s, d, &a->at.cap, a->list, a->n_list, true);
		break;
	case TURN:
		req_goto(q, DISK);
		req_fail(q, allocate(s, d, a));
		break;
	case DISK:
		req_goto(q, REPLY);
		written(d->object, r);
		break;
	case REPLY:
		if (q->error == -ENOENT && !d->object) { /* no object: nothing to punch */
			q->error = 0;
			r->mtime = (int64_t)e->clock->wall(e);
		}
		finish(s, d);
		return sreq_reply(s);
	}
	return true;
}

const struct req_ops allocate_ops = REQ_OPS("allocate", allocate_step, REPLY, names);

/* ---- COPY ---- */

/* Splits the list into two of equal lengths: of the destination and of the source. */
static int copy_lists(struct sreq *s, struct data_state *d, const struct wire_copy_args *a)
{
	struct wire_extent *to = arena_alloc(&s->arena, a->n_list * sizeof(*to));
	struct wire_extent *from = arena_alloc(&s->arena, a->n_list * sizeof(*from));
	struct fetch *f = arena_alloc(&s->arena, WINDOWS * sizeof(*f));
	uint64_t total;
	int r;

	if (!to || !from || !f)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->n_list; i++) {
		to[i] = (struct wire_extent){ a->list[i].to, a->list[i].length };
		from[i] = (struct wire_extent){ a->list[i].from, a->list[i].length };
	}
	r = check_extents(to, a->n_list, &total);
	if (!r)
		r = check_extents(from, a->n_list, &total);
	if (!r && total > COPY_MAX)
		r = -EINVAL;
	if (!r)
		r = map_knows(s->srv, a->source, a->from.cap.ino);
	d->bulk = (struct bulk){ .s = s,
				 .list = to,
				 .n_list = a->n_list,
				 .epoch = a->at.cap.epoch,
				 .write = true,
				 .from = from,
				 .fetches = f };
	return r;
}

static bool copy_step(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct wire_copy_args *a = s->args;
	struct wire_write_res *r = s->res;
	struct data_state *d = s->op;

	switch (q->state) {
	case BEGIN:
		req_goto(q, OPEN);
		s->ino = a->at.cap.ino;
		req_fail(q, access_check(s, &a->at, CAP_WRITE));
		if (!q->error)
			req_fail(q, access_check(s, &a->from, CAP_READ));
		if (!q->error)
			req_fail(q, copy_lists(s, d, a));
		if (!q->error)
			object_get(s->srv->disk, object_of(&a->at), a->at.cap.epoch, true,
				   &d->object, q);
		break;
	case OPEN:
		req_goto(q, MOVE);
		d->bulk.object = d->object;
		req_fail(q, write_damaged(s, &a->at, d->bulk.list, d->bulk.n_list,
					  object_end(d->object)));
		if (q->error)
			break;
		for (int i = 0; i < WINDOWS; i++)
			fetch_init(&d->bulk.fetches[i], s, &a->from, a->source);
		bulk_start(&d->bulk);
		break;
	case MOVE:
		req_goto(q, REPLY);
		written(d->object, r);
		break;
	case REPLY:
		finish(s, d);
		/* no reply: the client retransmits after the restart */
		if (q->error && s->srv->stopping)
			link_close(s->link, -ESHUTDOWN);
		return sreq_reply(s);
	}
	return true;
}

/* Cancels fetches from other targets. Fetches from this target end with their windows. */
static void copy_cancel(struct req *q)
{
	struct sreq *s = sreq_of(q);
	struct data_state *d = s->op;

	s->cancelled = true;
	for (int i = 0; d->bulk.fetches && i < WINDOWS; i++)
		fetch_cancel(&d->bulk.fetches[i]);
}

const struct req_ops copy_ops = REQ_OPS("copy", copy_step, REPLY, names, .cancel = copy_cancel);
