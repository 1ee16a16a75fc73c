/* Bulk transfer between an object and a client's memory, in windows.
 *
 *   read:   TAKE -> BUFFER -> RECEIVE -> TURN -> DISK -> SEND -> TAKE ...
 *   write:  the same: it receives from the client, or from another object (fetch.c); sends nothing
 *
 * What a window does in each state is its strategy (strategy.c). This file expands the pieces and
 * calls the stages.
 *
 * A few windows of one request work side by side, more of a distant client (net/depth.c), and each
 * takes the next range when it is done. So network and disk overlap, and memory stays bounded. No
 * window holds a turn while it waits for the network: a read ends its turn before it sends, a write
 * begins its turn after it has received. While the last data of a read leave, its request is
 * answered: the reply follows them.
 *
 * Buffers: from the session's share of the target's pool (copies: of a small pool of their own),
 * given back between two ranges. A window that sends straight from the file has buffers as well,
 * unused, so that the pool bounds the bytes in flight, of each client and of all. Data in a message
 * stay there.
 * Errors: the first one stops the request. */
#include <stdlib.h>

#include "server/window.h"

#define SPARE_WINDOWS 64
/* of a write to a file in memory, instead of WINDOWS: mostly bound by the network only */
#define STORED_WINDOWS 4

enum { TAKE, BUFFER, RECEIVE, TURN, DISK, SEND, END };
static const char *const names[] = { "take", "buffer", "receive", "turn", "disk", "send", "end" };

/* Expands the next part of the pattern into the list. False: there is no further extent for now. */
static bool refill(struct bulk *b)
{
	struct pattern_list *p = b->pattern;

	if (!p || p->iter.c.pos == p->tiled.total)
		return false;
	b->n_list =
		(uint32_t)extent_iter_next(&p->iter, p->batch, NULL, PATTERN_BATCH, WINDOW_BYTES);
	b->i = 0;
	return b->n_list;
}

static bool full(const struct bulk *b, const struct window *w)
{
	return w->len >= WINDOW_BYTES || w->n == (b->from ? WINDOW_IOS : WINDOW_PIECES);
}

static void add(struct window *w, uint64_t off, uint64_t n)
{
	w->is_sorted &= !w->n || off >= w->hi;
	w->skips_pages |= w->n && w->bulk->write && sieve_skips_page(w->hi, off);
	w->lo = MIN(w->lo, off);
	w->hi = MAX(w->hi, off + n);
	w->pieces[w->n++] = (struct extent){ off, n };
	w->len += n;
}

/* Expands more of the pattern for a window that has pieces already, within EXTENT_ITER_STEPS. */
static bool more_of_list(struct bulk *b, const struct window *w, int *steps)
{
	bool found = w->n && b->n_list == PATTERN_BATCH && *steps < EXTENT_ITER_STEPS && refill(b);

	if (found)
		*steps += b->pattern->iter.steps;
	return found;
}

/* Adds the next extents as long as they are whole, in ascending order and close together: the
 * common case of many small ones, without the cases of take(). */
static void take_whole(struct bulk *b, struct window *w)
{
	uint64_t limit = b->write ? UINT64_MAX : b->end, most = sieve_most(w), lo = w->lo;
	uint64_t hi = w->hi, len = w->len;
	uint32_t i = b->i, n = w->n;

	for (; i < b->n_list && n < WINDOW_PIECES; i++, n++) {
		const struct wire_extent e = b->list[i];
		uint64_t end = e.offset + e.length, all = len + e.length;

		if (!e.length || all > WINDOW_BYTES || e.offset < hi || end > limit ||
		    end - lo + all > most)
			break;
		w->skips_pages |= b->write && sieve_skips_page(hi, e.offset);
		w->pieces[n] = (struct extent){ e.offset, e.length };
		len = all;
		hi = end;
	}
	b->at += len - w->len;
	b->i = i;
	w->n = n;
	w->len = len;
	w->hi = hi;
}

/* Gives the window the next run of the stream: contiguous there, at most WINDOW_BYTES. False:
 * nothing is left, or nothing was found yet. */
static bool take(struct bulk *b, struct window *w)
{
	int steps = 0;

	w->n = 0;
	w->len = 0;
	w->lo = UINT64_MAX;
	w->hi = 0;
	w->is_sorted = true;
	w->skips_pages = false;
	if (b->i == b->n_list && !refill(b))
		return false;
	while (!full(b, w) && (b->i < b->n_list || more_of_list(b, w, &steps))) {
		const struct wire_extent *e = &b->list[b->i];
		uint64_t limit = b->write ? UINT64_MAX : b->end;
		uint64_t off = e->offset + b->o, left = e->length - b->o;
		uint64_t usable = off < limit ? MIN(left, limit - off) : 0;
		uint64_t n = MIN(usable, WINDOW_BYTES - w->len);

		if (n && sieve_ends(w, off, n))
			break;
		if (n) {
			if (!w->n)
				w->at = b->at;
			if (b->from)
				w->fetch->ext[w->n] =
					(struct extent){ b->from[b->i].offset + b->o, n };
			add(w, off, n);
			b->o += n;
			b->at += n;
		}
		if (n == left || n == usable) { /* used up, or the rest lies beyond the end */
			bool gap = n < left;

			b->clipped |= gap;
			b->at += e->length - b->o;
			b->o = 0;
			b->i++;
			if (gap && w->n)
				break;
			if (n && w->is_sorted && !b->from)
				take_whole(b, w);
		}
	}
	return w->n > 0;
}

/* Sets w->data. Data of a message stay there, unless a hull must precede them. */
static void find_data(struct window *w)
{
	const uint8_t *p = w->bulk->data ? w->bulk->data + w->at : NULL;
	size_t got;

	if (p && !w->hull) {
		w->data[0] = (struct iovec){ (void *)(uintptr_t)p, w->len };
		w->n_data = 1;
		return;
	}
	w->n_data =
		iov_slice(w->buf.iov, w->buf.n, w->hull, w->len, w->data, ARRAY_LEN(w->data), &got);
	for (size_t i = 0; p && i < w->n_data; p += w->data[i++].iov_len)
		memcpy(w->data[i].iov_base, p, w->data[i].iov_len);
}

bool window_stops(const struct window *w)
{
	struct sreq *s = w->bulk->s;

	if (s->deadline && s->deadline < s->srv->loop->now && !w->bulk->moved)
		s->cancelled = true;
	/* the link is down: stop searching the pattern */
	if (w->bulk->pattern && s->link->state != LINK_UP)
		s->cancelled = true;
	return s->q.error || s->cancelled;
}

/* The pattern may have more, but nothing was found for a while: yields to other requests first. */
static bool more(struct window *w)
{
	const struct pattern_list *p = w->bulk->pattern;
	bool yes = !window_stops(w) && p && p->iter.c.pos < p->tiled.total;

	if (yes)
		req_yield(&w->q);
	return yes;
}

static void unmap(struct window *w)
{
	if (w->is_mapped)
		object_unmap(w->bulk->object);
	w->is_mapped = false;
}

static bool finish(struct window *w)
{
	struct bulk *b = w->bulk;
	struct server *srv = b->s->srv;
	struct req *parent = &b->s->q;
	bool is_posted = w->is_posted;
	int error = w->q.error;

	turn_end(&w->turn);
	buf_put(&w->buf);
	unmap(w);
	if (!error && !is_posted && b->s->cancelled)
		error = -ECANCELED;
	req_fini(&w->q);
	if (srv->n_spare_windows < SPARE_WINDOWS) {
		list_push_front(&srv->spare_windows, &w->spare);
		srv->n_spare_windows++;
	} else {
		free(w);
	}
	if (error && !b->awaits_sent && !parent->error)
		parent->error = error; /* stops the other windows at once */
	if (!is_posted)
		req_done(parent, error, 0);
	else if (!--b->n_posted && b->awaits_sent)
		req_done(parent, 0, 0);
	return false;
}

static bool has_more(const struct bulk *b)
{
	const struct pattern_list *p = b->pattern;

	return b->i < b->n_list || (p && p->iter.c.pos < p->tiled.total);
}

/* The window has posted its last data: the request may be answered. A read that was clipped may be
 * repeated, so its data must arrive before. */
static void post(struct window *w)
{
	struct bulk *b = w->bulk;

	if (has_more(b) || b->clipped || !w->q.pending)
		return;
	w->is_posted = true;
	b->n_posted++;
	req_done(&b->s->q, 0, 0);
}

void bulk_hold_until_sent(struct bulk *b)
{
	b->awaits_sent = true;
	req_hold(&b->s->q);
}

/* The next range, with its strategy. False: there is none, or not yet. */
static bool begin(struct window *w)
{
	const struct bulk *b = w->bulk;

	if (window_stops(w) || !take(w->bulk, w))
		return false;
	/* the pattern has more bytes than the request declared */
	if (b->pattern && w->at + w->len > b->mem->length) {
		w->q.error = -EINVAL;
		return false;
	}
	w->asked = 0;
	w->asked_len = 0;
	w->is_merged = false;
	w->n_ios = 0;
	w->sieve = (struct sieve_at){ 0 };
	strategy_choose(w);
	return true;
}

/* The range is done. */
static void account(struct window *w)
{
	struct bulk *b = w->bulk;
	struct server *srv = b->s->srv;

	b->moved += w->len;
	object_count(b->object, w->n, 0);
	srv->window_counts[w->strategy]++;
	if (b->write)
		sreq_count_written(b->s, w->len);
	else
		sreq_count_read(b->s, w->len);
	buf_put(&w->buf);
	unmap(w);
}

static void deepen(struct bulk *b);

static bool step(struct req *q)
{
	struct window *w = container_of(q, struct window, q);
	const struct bulk *b = w->bulk;
	const struct strategy_row *row = &strategies[w->strategy];

	switch (q->state) {
	case TAKE:
		req_goto(q, BUFFER);
		if (begin(w))
			strategies[w->strategy].get_buffer(w);
		else
			req_goto(q, !q->error && more(w) ? TAKE : END);
		break;
	case BUFFER:
		req_goto(q, RECEIVE);
		find_data(w);
		if (row->receive)
			row->receive(w);
		break;
	case RECEIVE:
		req_goto(q, TURN);
		if (row->is_wanted && !row->is_wanted(w))
			req_goto(q, END);
		else
			turn_begin(b->object, &w->turn, b->epoch, w->lo, w->hi, b->write, q);
		break;
	case TURN:
		req_goto(q, DISK);
		break;
	case DISK:
		if (row->access && row->access(w))
			break; /* comes back when these accesses have ended */
		turn_end(&w->turn);
		req_goto(q, SEND);
		row = &strategies[w->strategy]; /* it may have fallen back */
		if (row->send) {
			row->send(w);
			post(w);
		}
		break;
	case SEND:
		req_goto(q, w->is_posted ? END : TAKE);
		account(w);
		if (!w->is_posted)
			deepen(w->bulk);
		break;
	case END:
		return finish(w);
	}
	return true;
}

const struct req_ops window_ops = REQ_OPS("window", step, END, names);

static struct window *window_new(struct server *srv)
{
	struct list *it = list_pop(&srv->spare_windows);
	struct window *w = it ? list_entry(it, struct window, spare) : calloc(1, sizeof(*w));

	srv->n_spare_windows -= it != NULL;
	if (w) {
		list_init(&w->spare);
		w->is_mapped = w->is_posted = false;
		w->turn = (struct turn){ 0 };
		w->buf.pool = NULL;
	}
	return w;
}

/* Starts one more window; false: no memory. */
static bool start_window(struct bulk *b)
{
	struct sreq *s = b->s;
	uint32_t i = b->n_windows;
	bool may = i ? sreq_charge_spare(s, sizeof(struct window)) :
		       sreq_charge(s, sizeof(struct window));
	struct window *w = may ? window_new(s->srv) : NULL;

	if (!w)
		return false;
	b->n_windows++;
	w->bulk = b;
	w->fetch = b->fetches ? &b->fetches[i] : NULL;
	req_init(&w->q, s->srv->loop, &window_ops, TAKE);
	w->q.trace = s->q.trace;
	w->q.hists = s->srv->window_times;
	req_hold(&s->q);
	req_run(&w->q);
	return true;
}

/* Windows of the request at a time. Those of a far client are more: its link tells how many. */
static uint32_t depth(const struct bulk *b)
{
	bool stores = b->write && !b->from && b->s->srv->loop->on_tmpfs;
	uint32_t most = stores ? STORED_WINDOWS : WINDOWS;

	return b->from ? most : MAX(most, b->s->link->depth.windows);
}

/* The link of the client may have shown meanwhile that it needs more windows. */
static void deepen(struct bulk *b)
{
	if (b->n_windows < depth(b) && has_more(b) && !b->s->q.error)
		start_window(b);
}

void bulk_start(struct bulk *b)
{
	struct sreq *s = b->s;
	uint64_t total = b->pattern ? b->mem->length : 0;

	for (uint32_t i = 0; i < b->n_list; i++)
		total += b->list[i].length;
	/* a window that does not wait may have started the next one */
	while (b->n_windows < depth(b) && b->n_windows * (uint64_t)WINDOW_BYTES < total) {
		if (start_window(b))
			continue;
		if (!b->n_windows) {
			req_hold(&s->q);
			req_done(&s->q, -ENOMEM, 0);
		}
		return;
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
	return q->ops == &window_ops && container_of(q, struct window, q)->bulk->s->srv == srv;
}

void window_abandon(struct req *q)
{
	list_del(&q->all);
	list_del(&q->link);
	q->loop->n_reqs--;
	free(container_of(q, struct window, q));
}
