/* Bulk transfer between an object and a client's memory, in windows.
 *
 *   read:   TAKE -> BUFFERED -> ACCESS -> DISK -> MOVED -> TAKE ...  buffers, turn, disk, network
 *           cached data: straight from the file; small pieces: out of a mapping (mapped.c)
 *   write:  TAKE -> BUFFERED -> ACCESS -> DISK -> TAKE ...           buffers, network, turn, disk
 *           file in memory: small pieces are copied into a mapping, large ones received into it
 *           (net_direct)
 *   sieve:  ... ACCESS -> DISK -> MERGE -> MOVED ...                 many small pieces, as one hull
 *   copy:   as a write, with the bytes of another object instead of the client's memory (fetch.c)
 *
 * A few windows of one request work side by side, and each takes the next range when it is done. So
 * network and disk overlap, and memory stays bounded. No window holds a turn while it waits for the
 * network: a read ends its turn before it sends, a write begins its turn after it has received.
 * Data are received straight into a mapping only while no other request holds or awaits a turn at
 * the range. As soon as one does, the rest of the window goes through the buffer.
 *
 * Where many small pieces lie close together, one access to their hull costs less than one to each
 * (sieves()). A read takes its pieces out of the hull; a write reads the hull, puts its pieces into
 * it and writes it back, in one turn. The buffer has the hull, then the data.
 * Buffers: from the session's share of the target's pool (copies: of a small pool of their own),
 * given back between two ranges. A window that sends straight from the file has buffers as well,
 * unused, so that the pool bounds the bytes in flight, of each client and of all. Data in a message
 * stay there.
 * Errors: the first one stops the request. */
#include <stdlib.h>

#include "server/window.h"

#define FILE_PIECE (8 * KIB) /* pieces of at least this size are sent straight from the file */
/* limit for hull plus data of a sieved write, so that they stay in the processor's cache */
#define SIEVE_BYTES (256 * KIB)
#define WINDOW_NS 30000 /* cost of one more window, including its messages */
#define SPARE_WINDOWS 16
/* of a write to a file in memory, instead of WINDOWS: mostly bound by the network only */
#define STORED_WINDOWS 4

enum { TAKE, BUFFERED, ACCESS, DISK, MERGE, MOVED, END };
static const char *const names[] = {
	[TAKE] = "take",   [BUFFERED] = "buffer", [ACCESS] = "turn", [DISK] = "disk",
	[MERGE] = "merge", [MOVED] = "move",	  [END] = "end"
};

struct window {
	struct req q;
	struct list spare;
	struct bulk *bulk;
	struct buf buf;
	struct turn turn;
	struct fetch *fetch; /* source of a copy, or NULL */
	uint64_t at, len; /* range in the stream */
	uint64_t lo, hi; /* range in the object */
	bool gaps; /* some pages between the pieces are touched by none of them */
	bool sent; /* of a read: net_put() or net_put_file() was called */
	bool file; /* sends straight from the file */
	bool mapped; /* iov has the pieces as mapped memory */
	bool sieve;
	bool copies; /* a read: copies the pieces out of a mapping, if they are cached */
	bool stores; /* a write: copies the pieces into a mapping */
	bool directly; /* a write: receives straight into the mapping */
	struct net_direct direct;
	struct iovec data[BUF_MAX_UNITS + 1]; /* the data, in buf or in the message */
	size_t n_data;
	uint32_t n;
	uint32_t asked; /* pieces handed to the disk so far ... */
	uint64_t asked_len; /* ... and their bytes */
	struct io ios[WINDOW_IOS];
	/* slices of the data, or of a mapping, piece by piece */
	struct iovec iov[WINDOW_PIECES + BUF_MAX_UNITS];
	struct extent pieces[WINDOW_PIECES];
};

/* Expands the next part of the pattern into the list. False: there is no further extent for now. */
static bool refill(struct bulk *b)
{
	struct pattern_list *p = b->pattern;

	if (!p || p->portion.c.pos == p->tiled.total)
		return false;
	b->n_list =
		(uint32_t)portion_next(&p->portion, p->batch, NULL, PATTERN_BATCH, WINDOW_BYTES);
	b->i = 0;
	return b->n_list;
}

/* The limit for hull plus data of a sieved window. */
static uint64_t sieve_most(const struct window *w)
{
	return w->bulk->write ? SIEVE_BYTES : HULL_MAX;
}

/* Is one access to the hull cheaper, by `gain` ns, than one access to each piece? Includes the cost
 * of copying the pieces. */
static bool sieves(const struct window *w, double gain)
{
	const struct file_costs *f = &w->q.loop->file_costs;
	const struct net_costs *c = &w->bulk->s->srv->net.costs;
	uint64_t hull = w->hi - w->lo;
	double each = w->n * (w->bulk->write ? f->write : f->read) + (double)w->len * f->byte;
	double once = f->read + (double)hull * f->byte + w->n * c->pack + (double)w->len * c->copy;

	if (w->bulk->write)
		once += f->write + (double)hull * f->byte;
	return w->n > 2 && !w->bulk->from && hull + w->len <= sieve_most(w) &&
	       !(w->bulk->write && w->gaps) && once + gain < each;
}

/* Does this piece leave untouched pages between it and the others? A sieved write must touch only
 * pages that its pieces touch. */
static bool leaps(const struct window *w, uint64_t off, uint64_t n)
{
	return w->n && (off / LEAST_PAGE > (w->hi - 1) / LEAST_PAGE + 1 ||
			(off + n - 1) / LEAST_PAGE + 1 < w->lo / LEAST_PAGE);
}

/* Would this piece prevent sieving of a window that is sieved without it, so that it pays to end
 * the window here? */
static bool too_far(const struct window *w, uint64_t off, uint64_t n)
{
	uint64_t hull = MAX(w->hi, off + n) - MIN(w->lo, off);

	return w->n &&
	       (hull + w->len + n > sieve_most(w) || (w->bulk->write && leaps(w, off, n))) &&
	       sieves(w, WINDOW_NS);
}

static bool full(const struct bulk *b, const struct window *w)
{
	return w->len >= WINDOW_BYTES || w->n == (b->from ? WINDOW_IOS : WINDOW_PIECES);
}

static void add(struct window *w, uint64_t off, uint64_t n)
{
	w->gaps |= leaps(w, off, n);
	w->lo = MIN(w->lo, off);
	w->hi = MAX(w->hi, off + n);
	w->pieces[w->n++] = (struct extent){ off, n };
	w->len += n;
}

/* Expands more of the pattern for a window that has pieces already, within PORTION_STEPS. */
static bool more_of_list(struct bulk *b, const struct window *w, int *steps)
{
	bool found = w->n && b->n_list == PATTERN_BATCH && *steps < PORTION_STEPS && refill(b);

	if (found)
		*steps += b->pattern->portion.steps;
	return found;
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
	w->gaps = false;
	if (b->i == b->n_list && !refill(b))
		return false;
	while (!full(b, w) && (b->i < b->n_list || more_of_list(b, w, &steps))) {
		const struct wire_extent *e = &b->list[b->i];
		uint64_t limit = b->write ? UINT64_MAX : b->end;
		uint64_t off = e->offset + b->o, left = e->length - b->o;
		uint64_t usable = off < limit ? MIN(left, limit - off) : 0;
		uint64_t n = MIN(usable, WINDOW_BYTES - w->len);

		if (n && too_far(w, off, n))
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
		}
	}
	return w->n > 0;
}

static void disk_access(struct window *w, size_t n, bool write)
{
	struct env *e = w->q.loop->env;

	if (write)
		object_write(w->bulk->object, w->ios, n, (int64_t)e->clock->wall(e), &w->q);
	else
		object_read(w->bulk->object, w->ios, n, &w->q);
}

/* Submits the next pieces of the window to the disk. */
static void disk(struct window *w)
{
	uint32_t i = 0;
	size_t used = 0;

	for (; i < WINDOW_IOS && w->asked < w->n; i++) {
		const struct extent *p = &w->pieces[w->asked++];
		struct iovec *iov = w->iov + used;
		size_t got, n = iov_slice(w->data, w->n_data, w->asked_len, p->length, iov,
					  ARRAY_LEN(w->iov) - used, &got);

		w->ios[i] = (struct io){ .off = p->offset, .iov = iov, .n = (int)n };
		w->asked_len += p->length;
		used += n;
	}
	disk_access(w, i, w->bulk->write);
}

/* Length of the hull, which precedes the data in the buffer. */
static size_t hull_of(const struct window *w)
{
	return w->sieve ? w->hi - w->lo : 0;
}

static void disk_hull(struct window *w, bool write)
{
	size_t got,
		n = iov_slice(w->buf.iov, w->buf.n, 0, hull_of(w), w->iov, ARRAY_LEN(w->iov), &got);

	w->ios[0] = (struct io){ .off = w->lo, .iov = w->iov, .n = (int)n };
	disk_access(w, 1, write);
}

/* Copies the pieces between the hull, which was read, and the data. */
static void merge(struct window *w)
{
	size_t data = hull_of(w);

	for (uint32_t i = 0; i < w->n; i++) {
		size_t hull = w->pieces[i].offset - w->lo, len = w->pieces[i].length;

		if (w->bulk->write)
			buf_copy(&w->buf, hull, data, len);
		else
			buf_copy(&w->buf, data, hull, len);
		data += len;
	}
}

/* Sets w->data. Data of a message stay there, unless a hull must precede them. */
static void find_data(struct window *w)
{
	const uint8_t *p = w->bulk->data ? w->bulk->data + w->at : NULL;
	size_t got;

	if (p && !w->sieve) {
		w->data[0] = (struct iovec){ (void *)(uintptr_t)p, w->len };
		w->n_data = 1;
		return;
	}
	w->n_data = iov_slice(w->buf.iov, w->buf.n, hull_of(w), w->len, w->data, ARRAY_LEN(w->data),
			      &got);
	for (size_t i = 0; p && i < w->n_data; p += w->data[i++].iov_len)
		memcpy(w->data[i].iov_base, p, w->data[i].iov_len);
}

/* May the window be sent straight from the file, without blocking? Such a read may mix with
 * concurrent writes. So a small read is copied within its turn: it sees all of a small write or
 * nothing. */
static bool from_file(struct window *w)
{
	const struct bulk *b = w->bulk;
	bool large = w->len >= FILE_PIECE * w->n;

	if (!net_can_put_file(b->s->link) || w->len < FILE_PIECE ||
	    w->hi - w->lo > MAX(HULL_MAX, w->len) ||
	    !object_cached(b->object, w->lo, w->hi - w->lo))
		return false;
	/* one call sends many mapped pieces, and copies them */
	w->mapped = !(large && net_lends_pages(b->s->link)) &&
		    map_pieces(b->object, w->pieces, w->n, w->lo, w->hi, w->iov);
	return w->mapped || large;
}

static bool may_store(struct net_direct *d)
{
	struct window *w = container_of(d, struct window, direct);
	struct env *e = w->q.loop->env;

	return object_may_store(w->bulk->object, w->bulk->epoch, w->lo, w->hi,
				(int64_t)e->clock->wall(e));
}

/* May the data be received straight into the mapping? Only where that is cheaper than a copy. The
 * end of the last piece goes through the buffer and is written. A write of less than a window is
 * atomic to readers, so it is received into the buffer first. */
static bool stores_directly(struct window *w)
{
	const struct bulk *b = w->bulk;
	uint64_t len = w->len - MIN(w->pieces[w->n - 1].length, (uint64_t)LEAST_PAGE);

	w->direct = (struct net_direct){ .may = may_store, .iov = w->iov, .n = w->n, .len = len };
	if (b->data || w->len < WINDOW_BYTES ||
	    net_choose(&b->s->srv->net.costs, false, w->n, w->len, 0) == MOVER_PACK)
		return false;
	w->mapped = map_pieces(b->object, w->pieces, w->n, w->lo, w->hi, w->iov);
	return w->mapped;
}

/* Chooses how the window moves between the file and the network. */
static void choose(struct window *w)
{
	const struct bulk *b = w->bulk;
	bool store = b->write && !b->from && mapped_can_write(w->q.loop, b->object, w->lo, w->hi);

	w->asked = 0;
	w->asked_len = 0;
	/* cached pieces are copied where that costs less than sending each from the mapping */
	w->copies = !b->write &&
		    net_choose(&b->s->srv->net.costs, true, w->n, w->len, 0) == MOVER_PACK;
	w->file = !b->write && !w->copies && from_file(w);
	w->directly = store && stores_directly(w);
	w->stores = store && w->n > 2; /* saves one system call per piece */
	w->sieve = !w->file && !store && sieves(w, 0);
}

/* Copies between the data and a mapping of the file. False: not possible without waiting. */
static bool copied(struct window *w)
{
	struct object *o = w->bulk->object;

	if (w->copies)
		return mapped_read(o, w->pieces, w->n, w->lo, w->hi, w->iov, w->data, w->n_data);
	return mapped_write(o, w->pieces, w->n, w->lo, w->hi, w->iov, w->data, w->n_data);
}

/* Skips what was received straight into the mapping: it is not written again. */
static void skip_stored(struct window *w)
{
	struct extent *p = w->pieces;
	uint64_t left = w->direct.done;

	for (; left >= p->length; p++)
		left -= p->length;
	p->offset += left;
	p->length -= left;
	w->asked = (uint32_t)(p - w->pieces);
	w->asked_len = w->direct.done;
}

/* The last piece is written by system call all the same: that records the change in the file's
 * state, above all its mtime. */
static void write_last(struct window *w)
{
	w->asked = w->n - 1;
	w->asked_len = w->len - w->pieces[w->asked].length;
}

/* True after an error, after a cancel, or when the deadline passed before any byte moved. */
static bool stop(const struct window *w)
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
	bool yes = !stop(w) && p && p->portion.c.pos < p->tiled.total;

	if (yes)
		req_yield(&w->q);
	return yes;
}

static void unmap(struct window *w)
{
	if (w->mapped)
		object_unmap(w->bulk->object);
	w->mapped = false;
}

static bool finish(struct window *w)
{
	struct server *srv = w->bulk->s->srv;
	struct req *parent = &w->bulk->s->q;
	int error = w->q.error;

	turn_end(&w->turn);
	buf_put(&w->buf);
	unmap(w);
	if (!error && w->bulk->s->cancelled)
		error = -ECANCELED;
	req_fini(&w->q);
	if (srv->n_spare_windows < SPARE_WINDOWS) {
		list_push_front(&srv->spare_windows, &w->spare);
		srv->n_spare_windows++;
	} else {
		free(w);
	}
	if (error && !parent->error)
		parent->error = error; /* stops the other windows at once */
	req_done(parent, error, 0);
	return false;
}

static bool step(struct req *q)
{
	struct window *w = container_of(q, struct window, q);
	struct bulk *b = w->bulk;
	struct sreq *s = b->s;

	switch (q->state) {
	case TAKE:
		req_goto(q, BUFFERED);
		if (stop(w) || !take(b, w)) {
			req_goto(q, more(w) ? TAKE : END);
			break;
		}
		/* the pattern has more bytes than the request declared */
		if (b->pattern && w->at + w->len > b->mem->length) {
			q->error = -EINVAL;
			req_goto(q, END);
			break;
		}
		choose(w);
		if (b->from)
			buf_get(&s->srv->copies, session_share(s->session, true), &w->buf, w->len,
				q);
		else if (!b->data || w->sieve)
			buf_get(&s->srv->pool, session_share(s->session, false), &w->buf,
				hull_of(w) + w->len, q);
		break;
	case BUFFERED:
		req_goto(q, ACCESS);
		find_data(w);
		if (b->from)
			fetch_start(w->fetch, w->n, &w->buf, q);
		else if (b->write && !b->data)
			net_get(s->link, b->mem, w->at, w->data, w->n_data,
				w->directly ? &w->direct : NULL, q);
		break;
	case ACCESS:
		req_goto(q, DISK);
		if (w->directly)
			skip_stored(w);
		/* a cancelled copy must not write any more: its client regards it as ended */
		if (b->from && stop(w)) {
			req_goto(q, END);
			break;
		}
		turn_begin(b->object, &w->turn, b->epoch, w->lo, w->hi, b->write, q);
		break;
	case DISK:
		req_goto(q, MOVED);
		if (w->copies && !w->asked && copied(w))
			break;
		if (w->stores && !w->asked_len && copied(w))
			write_last(w);
		if (w->sieve) {
			req_goto(q, MERGE);
			disk_hull(w, false);
			break;
		}
		if (!w->file) {
			disk(w);
			if (w->asked < w->n) { /* the rest after a yield to other requests */
				req_goto(q, DISK);
				req_yield(q);
			}
			break;
		}
		turn_end(&w->turn); /* it was only for the fences: such reads may mix with writes */
		w->sent = true;
		net_put_file(s->link, b->mem, w->at, object_file(b->object), w->pieces,
			     w->mapped ? w->iov : NULL, w->n, q);
		break;
	case MERGE:
		req_goto(q, MOVED);
		merge(w);
		if (b->write)
			disk_hull(w, true);
		break;
	case MOVED:
		turn_end(&w->turn);
		if (!b->write && !w->sent) {
			w->sent = true;
			net_put(s->link, b->mem, w->at, w->data, w->n_data, q);
			break;
		}
		req_goto(q, TAKE);
		w->sent = false;
		b->moved += w->len;
		*(b->write ? &s->srv->bytes_written : &s->srv->bytes_read) += w->len;
		buf_put(&w->buf);
		unmap(w);
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
		w->sent = false;
		w->mapped = false;
		w->turn = (struct turn){ 0 };
		w->buf.pool = NULL;
	}
	return w;
}

void bulk_start(struct bulk *b)
{
	struct sreq *s = b->s;
	uint64_t total = b->pattern ? b->mem->length : 0;
	uint64_t most = b->write && !b->from && s->srv->loop->in_memory ? STORED_WINDOWS : WINDOWS;

	for (uint32_t i = 0; i < b->n_list; i++)
		total += b->list[i].length;
	for (uint64_t i = 0; i < most && i * WINDOW_BYTES < total; i++) {
		bool may = i ? sreq_charge_spare(s, sizeof(struct window)) :
			       sreq_charge(s, sizeof(struct window));
		struct window *w = may ? window_new(s->srv) : NULL;

		if (!w) {
			if (i == 0) {
				req_hold(&s->q);
				req_done(&s->q, -ENOMEM, 0);
			}
			return;
		}
		w->bulk = b;
		w->fetch = b->fetches ? &b->fetches[i] : NULL;
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
	return q->ops == &window_ops && container_of(q, struct window, q)->bulk->s->srv == srv;
}

void window_abandon(struct req *q)
{
	list_del(&q->all);
	list_del(&q->link);
	q->loop->n_reqs--;
	free(container_of(q, struct window, q));
}
