/* Bulk transfer between an object and a client's memory, in windows.
 *
 *   read:   TAKE -> ACCESS -> DISK -> MOVED -> TAKE ...     buffers, turn, disk, network
 *   read:   TAKE -> ACCESS -> FILE -> MOVED -> TAKE ...     turn, network: cached, straight from the file
 *   write:  TAKE -> BUFFERED -> ACCESS -> DISK -> TAKE ... buffers, network, turn, disk
 *   copy:   as a write, with the bytes of another object instead of the client's memory (fetch.c)
 *
 * A few windows of one request work side by side, each taking the next range when it is done, so that
 * network and disk overlap and memory stays bounded. Nobody holds a turn at a range while it waits for a
 * network: reads give theirs back before the data go out, writes ask for theirs when the data are here.
 * Buffers: from the session's share of the target's pool (copies: of a small pool of their own), given back between
 * two ranges. Errors: the first one stops the request. */
#include <stdlib.h>

#include "server/srv.h"

#define FILE_PIECE (16 * KIB) /* pieces of at least this size leave straight from the file */
#define HULL_MAX \
	(1 * MIB) /* pieces further apart are not asked for at once whether they are in memory */

enum { TAKE, BUFFERED, ACCESS, DISK, MOVED, END };
static_assert(END + 1 == WINDOW_STATES, "a histogram for each state");
static const char *const names[] = { "take", "buffer", "turn", "disk", "move", "end" };

struct window {
	struct req q;
	struct list spare;
	struct mover *m;
	struct buf buf;
	struct turn turn;
	struct fetch *fetch; /* of a copy, or NULL */
	uint64_t at, len; /* in the stream */
	uint64_t lo, hi; /* in the object */
	bool sent; /* a read whose data went out */
	bool file; /* straight from the file */
	bool mapped; /* iov has its pieces as memory */
	uint32_t n;
	struct extent pieces[WINDOW_PIECES];
	struct io ios[WINDOW_PIECES];
	struct iovec iov[WINDOW_PIECES + BUF_MAX_UNITS]; /* slices of buf, piece by piece */
};

/* More of the list, from a pattern. False: for now there is none. */
static bool refill(struct mover *m)
{
	struct part_list *p = m->part;

	if (!p || p->portion.c.pos == p->pattern.total)
		return false;
	m->n_list = (uint32_t)portion_next(&p->portion, p->batch, NULL, PART_BATCH, WINDOW_BYTES);
	m->i = 0;
	return m->n_list;
}

/* The next run of the stream: contiguous in it, at most a window. False: nothing is left, or found yet. */
static bool take(struct mover *m, struct window *w)
{
	w->n = 0;
	w->len = 0;
	w->lo = UINT64_MAX;
	w->hi = 0;
	if (m->i == m->n_list && !refill(m))
		return false;
	while (m->i < m->n_list && w->len < WINDOW_BYTES && w->n < WINDOW_PIECES) {
		const struct wire_extent *e = &m->list[m->i];
		uint64_t limit = m->write ? UINT64_MAX : m->end;
		uint64_t off = e->offset + m->o, left = e->length - m->o;
		uint64_t usable = off < limit ? MIN(left, limit - off) : 0;
		uint64_t n = MIN(usable, WINDOW_BYTES - w->len);

		if (n) {
			if (!w->n)
				w->at = m->at;
			if (m->from)
				w->fetch->ext[w->n] =
					(struct extent){ m->from[m->i].offset + m->o, n };
			w->pieces[w->n++] = (struct extent){ off, n };
			w->len += n;
			w->lo = MIN(w->lo, off);
			w->hi = MAX(w->hi, off + n);
			m->o += n;
			m->at += n;
		}
		if (n == left || n == usable) { /* done with it, or the rest is behind the end */
			bool gap = n < left;

			m->clipped |= gap;
			m->at += e->length - m->o;
			m->o = 0;
			m->i++;
			if (gap && w->n)
				break;
		}
	}
	return w->n > 0;
}

static void disk(struct window *w)
{
	struct mover *m = w->m;
	struct env *e = w->q.loop->env;
	int64_t now = (int64_t)e->clock->wall(e);
	size_t skip = 0, used = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		const struct extent *p = &w->pieces[i];
		struct iovec *iov = w->iov + used;
		size_t got, n = iov_slice(w->buf.iov, w->buf.n, skip, p->length, iov,
					  ARRAY_LEN(w->iov) - used, &got);

		w->ios[i] = (struct io){ .off = p->offset, .iov = iov, .n = (int)n };
		skip += p->length;
		used += n;
	}
	if (m->write)
		object_write(m->object, w->ios, w->n, now, &w->q);
	else
		object_read(m->object, w->ios, w->n, &w->q);
}

/* The file's pages as pieces of memory: many of them leave in one call. */
static bool map(struct window *w)
{
	const char *p = object_map(w->m->object, w->lo, w->hi - w->lo);

	for (uint32_t i = 0; p && i < w->n; i++)
		w->iov[i] = (struct iovec){ (void *)(uintptr_t)(p + (w->pieces[i].offset - w->lo)),
					    w->pieces[i].length };
	return p;
}

/* Straight from the file, when nothing of it would block. A small piece alone is read sooner than that is
 * found out. */
static bool from_file(struct window *w)
{
	const struct mover *m = w->m;

	if (!net_can_put_file(m->s->link) || (w->n == 1 && w->len < FILE_PIECE) ||
	    w->hi - w->lo > MAX(HULL_MAX, w->len) ||
	    !object_cached(m->object, w->lo, w->hi - w->lo))
		return false;
	w->mapped = map(w);
	return w->mapped || w->len >= FILE_PIECE * w->n;
}

/* An error, a client that gave up, or one that must have: nothing has moved by its deadline. */
static bool stop(const struct window *w)
{
	struct sreq *s = w->m->s;

	if (s->deadline && s->deadline < s->srv->loop->now && !w->m->moved)
		s->cancelled = true;
	if (w->m->part && s->link->state != LINK_UP) /* nobody is there to find it for */
		s->cancelled = true;
	return s->q.error || s->cancelled;
}

/* A pattern was looked through for a while without a find: after others had their turn it goes on. */
static bool more(struct window *w)
{
	const struct part_list *p = w->m->part;
	bool yes = !stop(w) && p && p->portion.c.pos < p->pattern.total;

	if (yes)
		req_yield(&w->q);
	return yes;
}

static void unmap(struct window *w)
{
	if (w->mapped)
		object_unmap(w->m->object);
	w->mapped = false;
}

static bool finish(struct window *w)
{
	struct server *srv = w->m->s->srv;
	struct req *parent = &w->m->s->q;
	int error = w->q.error;

	turn_end(&w->turn);
	buf_put(&w->buf);
	unmap(w);
	if (!error && w->m->s->cancelled)
		error = -ECANCELED;
	req_fini(&w->q);
	list_push_front(&srv->spare_windows, &w->spare);
	if (error && !parent->error)
		parent->error = error; /* the others stop at once */
	req_done(parent, error, 0);
	return false;
}

static bool step(struct req *q)
{
	struct window *w = container_of(q, struct window, q);
	struct mover *m = w->m;
	struct sreq *s = m->s;

	switch (q->state) {
	case TAKE:
		req_goto(q, BUFFERED);
		if (stop(w) || !take(m, w)) {
			req_goto(q, more(w) ? TAKE : END);
			break;
		}
		if (m->part && w->at + w->len > m->mem->length) { /* it has more than was said */
			q->error = -EINVAL;
			req_goto(q, END);
			break;
		}
		w->file = !m->write && from_file(w);
		if (w->file)
			break;
		if (m->from)
			buf_get(&s->srv->copies, &s->session->copy_share, &w->buf, w->len, q);
		else
			buf_get(&s->srv->pool, &s->session->share, &w->buf, w->len, q);
		break;
	case BUFFERED:
		req_goto(q, ACCESS);
		if (m->from)
			fetch_start(w->fetch, w->n, &w->buf, q);
		else if (m->write)
			net_get(s->link, m->mem, w->at, w->buf.iov, w->buf.n, q);
		break;
	case ACCESS:
		req_goto(q, DISK);
		if (m->from && stop(w)) { /* it must not be written later than its client thinks */
			req_goto(q, END);
			break;
		}
		turn_begin(m->object, &w->turn, m->epoch, w->lo, w->hi, m->write, q);
		break;
	case DISK:
		req_goto(q, MOVED);
		if (!w->file) {
			disk(w);
			break;
		}
		turn_end(&w->turn); /* it was for the fences: such reads may mix with writes */
		w->sent = true;
		net_put_file(s->link, m->mem, w->at, object_file(m->object), w->pieces,
			     w->mapped ? w->iov : NULL, w->n, q);
		break;
	case MOVED:
		turn_end(&w->turn);
		if (!m->write && !w->sent) {
			w->sent = true;
			net_put(s->link, m->mem, w->at, w->buf.iov, w->buf.n, q);
			break;
		}
		req_goto(q, TAKE);
		w->sent = false;
		m->moved += w->len;
		*(m->write ? &s->srv->bytes_written : &s->srv->bytes_read) += w->len;
		buf_put(&w->buf);
		unmap(w);
		break;
	case END:
		return finish(w);
	}
	return true;
}

static const struct req_ops window_ops = { "window", step, END, 6, names };

static struct window *window_new(struct server *srv)
{
	struct list *it = list_pop(&srv->spare_windows);
	struct window *w = it ? list_entry(it, struct window, spare) : calloc(1, sizeof(*w));

	if (w) {
		list_init(&w->spare);
		w->sent = false;
		w->mapped = false;
		w->turn = (struct turn){ 0 };
		w->buf.pool = NULL;
	}
	return w;
}

void mover_start(struct mover *m)
{
	struct sreq *s = m->s;
	uint64_t total = m->part ? m->mem->length : 0;

	for (uint32_t i = 0; i < m->n_list; i++)
		total += m->list[i].length;
	for (uint64_t i = 0; i < WINDOWS && i * WINDOW_BYTES < total; i++) {
		struct window *w = window_new(s->srv);

		if (!w) {
			if (i == 0) {
				req_hold(&s->q);
				req_done(&s->q, -ENOMEM, 0);
			}
			return;
		}
		w->m = m;
		w->fetch = m->fetches ? &m->fetches[i] : NULL;
		req_init(&w->q, s->srv->loop, &window_ops, TAKE);
		w->q.trace = s->q.trace;
		w->q.hists = s->srv->window_times;
		req_hold(&s->q);
		req_start(&w->q);
	}
}

void spare_windows_free(struct server *srv)
{
	struct list *it;

	while ((it = list_pop(&srv->spare_windows)))
		free(list_entry(it, struct window, spare));
}

bool is_window(const struct server *srv, const struct req *q)
{
	return q->ops == &window_ops && container_of(q, struct window, q)->m->s->srv == srv;
}

void window_abandon(struct req *q)
{
	list_del(&q->all);
	list_del(&q->link);
	q->loop->n_reqs--;
	free(container_of(q, struct window, q));
}

const char *window_state_name(unsigned state)
{
	return names[state];
}
