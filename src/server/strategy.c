/* How a window moves its bytes between the file and the network. strategy_choose() decides, once
 * for each range; a row of the table has the functions that the window calls in each state.
 *
 *   read    disk          reads each piece into the buffer, then sends the buffer
 *           sieve         reads the hull of many small pieces, and takes the pieces out of it
 *           mapped-copy   copies cached pieces out of a mapping; else as disk or sieve
 *           file          sends cached data straight from the file
 *           mapped-file   sends cached data straight from a mapping
 *   write   disk          receives into the buffer, then writes each piece
 *           sieve         reads the hull, puts the pieces into it and writes it back, in one turn
 *           mapped-store  copies the pieces into a mapping; else as disk
 *           direct        receives straight into a mapping; else as mapped-store or disk
 *   copy    fetch         as write, disk, with the bytes of another object (fetch.c)
 *
 * A write whose data came in the message receives nothing. Where many small pieces lie close
 * together, one access to their hull costs less than one to each; the buffer then has the hull
 * before the data. Data are received straight into a mapping only while no other request holds or
 * awaits a turn at the range. As soon as one does, the rest of the window goes through the buffer.
 *
 * Threads: the loop's. Buffers: the window's. Errors: those of the operations, in w->q. */
#include "server/window.h"

#define FILE_PIECE (8 * KIB) /* pieces of at least this size are sent straight from the file */
/* limit for hull plus data of a sieved write, so that they stay in the processor's cache */
#define SIEVE_BYTES (256 * KIB)
#define WINDOW_NS 30000 /* cost of one more window, including its messages */

/* ---- the choice ---- */

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
	       !(w->bulk->write && w->has_gaps) && once + gain < each;
}

bool sieve_leaps(const struct window *w, uint64_t off, uint64_t n)
{
	return w->n && (off / LEAST_PAGE > (w->hi - 1) / LEAST_PAGE + 1 ||
			(off + n - 1) / LEAST_PAGE + 1 < w->lo / LEAST_PAGE);
}

bool sieve_ends(const struct window *w, uint64_t off, uint64_t n)
{
	uint64_t hull = MAX(w->hi, off + n) - MIN(w->lo, off);

	return w->n &&
	       (hull + w->len + n > sieve_most(w) || (w->bulk->write && sieve_leaps(w, off, n))) &&
	       sieves(w, WINDOW_NS);
}

/* Maps the pieces, until the window has ended its range. */
static bool map(struct window *w)
{
	w->is_mapped = object_map_pieces(w->bulk->object, w->pieces, w->n, w->lo, w->hi, w->iov);
	return w->is_mapped;
}

/* Can all of the window be sent without blocking, straight from the file? Such a read may mix with
 * concurrent writes. So a small read is copied within its turn: it sees all of a small write or
 * nothing. */
static bool may_send_file(const struct window *w)
{
	const struct bulk *b = w->bulk;

	return net_can_put_file(b->s->link) && w->len >= FILE_PIECE &&
	       w->hi - w->lo <= MAX(HULL_MAX, w->len) &&
	       object_cached(b->object, w->lo, w->hi - w->lo);
}

static enum strategy choose_read(struct window *w)
{
	const struct bulk *b = w->bulk;

	/* cached pieces are copied where that costs less than sending each from the mapping */
	if (net_choose(&b->s->srv->net.costs, true, w->n, w->len, 0) == METHOD_PACK)
		return READ_MAPPED_COPY;
	if (may_send_file(w)) {
		if (w->len >= FILE_PIECE * w->n && net_lends_pages(b->s->link))
			return READ_FILE;
		/* one call sends many mapped pieces, and copies them */
		if (map(w))
			return READ_MAPPED_FILE;
	}
	return sieves(w, 0) ? READ_SIEVE : READ_DISK;
}

/* May the data be received straight into the mapping? Only where that is cheaper than a copy. A
 * write of less than a window is atomic to readers, so it is received into the buffer first. */
static bool may_receive_directly(const struct window *w)
{
	const struct bulk *b = w->bulk;

	return !b->data && w->len >= WINDOW_BYTES &&
	       net_choose(&b->s->srv->net.costs, false, w->n, w->len, 0) != METHOD_PACK;
}

/* The pages of the file are in memory: writes through a mapping, where that saves a copy or system
 * calls. */
static enum strategy choose_store(struct window *w)
{
	if (may_receive_directly(w) && map(w))
		return WRITE_DIRECT;
	return w->n > 2 ? WRITE_MAPPED_STORE : WRITE_DISK; /* saves one system call per piece */
}

static enum strategy choose_write(struct window *w)
{
	const struct bulk *b = w->bulk;

	if (b->from)
		return COPY_FETCH;
	if (object_mapped_can_write(w->q.loop, b->object, w->lo, w->hi))
		return choose_store(w);
	return sieves(w, 0) ? WRITE_SIEVE : WRITE_DISK;
}

void strategy_choose(struct window *w)
{
	bool sieve;

	w->strategy = w->bulk->write ? choose_write(w) : choose_read(w);
	sieve = w->strategy == READ_SIEVE || w->strategy == WRITE_SIEVE ||
		(w->strategy == READ_MAPPED_COPY && sieves(w, 0)); /* it may fall back to that */
	w->hull = sieve ? w->hi - w->lo : 0;
}

/* ---- buffers, and receiving ---- */

/* Data in the message stay there, unless they are sieved. */
static void get_buffer(struct window *w)
{
	struct sreq *s = w->bulk->s;

	if (!w->bulk->data || w->hull)
		buf_get(&s->srv->pool, session_share(s->session, false), &w->buf, w->hull + w->len,
			&w->q);
}

static void get_copy_buffer(struct window *w)
{
	struct sreq *s = w->bulk->s;

	buf_get(&s->srv->copies, session_share(s->session, true), &w->buf, w->len, &w->q);
}

static void receive(struct window *w)
{
	struct bulk *b = w->bulk;

	if (!b->data)
		net_get(b->s->link, b->mem, w->at, w->data, w->n_data, NULL, &w->q);
}

static bool may_store(struct net_direct *d)
{
	struct window *w = container_of(d, struct window, direct);
	struct env *e = w->q.loop->env;

	return object_may_store(w->bulk->object, w->bulk->epoch, w->lo, w->hi,
				(int64_t)e->clock->wall(e));
}

/* The end of the last piece goes through the buffer and is written by system call. */
static void receive_directly(struct window *w)
{
	struct bulk *b = w->bulk;
	uint64_t len = w->len - MIN(w->pieces[w->n - 1].length, (uint64_t)LEAST_PAGE);

	w->direct = (struct net_direct){ .may = may_store, .iov = w->iov, .n = w->n, .len = len };
	net_get(b->s->link, b->mem, w->at, w->data, w->n_data, &w->direct, &w->q);
}

static void receive_copy(struct window *w)
{
	fetch_start(w->fetch, w->n, &w->buf, &w->q);
}

/* A cancelled copy must not write any more: its client regards it as ended. */
static bool copy_is_wanted(struct window *w)
{
	return !window_stops(w);
}

/* ---- access to the file, within the turn ---- */

static bool fall_back(struct window *w, enum strategy to)
{
	w->strategy = to;
	return strategies[to].access(w);
}

static void submit(struct window *w, size_t n, bool write)
{
	struct env *e = w->q.loop->env;

	if (write)
		object_write(w->bulk->object, w->ios, n, (int64_t)e->clock->wall(e), &w->q);
	else
		object_read(w->bulk->object, w->ios, n, &w->q);
}

/* Submits the next pieces; after a yield to other requests if more are left. */
static bool access_pieces(struct window *w)
{
	uint32_t i = 0;
	size_t used = 0;

	if (w->asked == w->n)
		return false;
	for (; i < WINDOW_IOS && w->asked < w->n; i++) {
		const struct extent *p = &w->pieces[w->asked++];
		struct iovec *iov = w->iov + used;
		size_t got, n = iov_slice(w->data, w->n_data, w->asked_len, p->length, iov,
					  ARRAY_LEN(w->iov) - used, &got);

		w->ios[i] = (struct io){ .off = p->offset, .iov = iov, .n = (int)n };
		w->asked_len += p->length;
		used += n;
	}
	submit(w, i, w->bulk->write);
	if (w->asked < w->n)
		req_yield(&w->q);
	return true;
}

static void access_hull(struct window *w, bool write)
{
	size_t got,
		n = iov_slice(w->buf.iov, w->buf.n, 0, w->hull, w->iov, ARRAY_LEN(w->iov), &got);

	w->ios[0] = (struct io){ .off = w->lo, .iov = w->iov, .n = (int)n };
	submit(w, 1, write);
}

/* Copies the pieces between the hull, which was read, and the data. */
static void merge(struct window *w)
{
	size_t data = w->hull;

	for (uint32_t i = 0; i < w->n; i++) {
		size_t hull = w->pieces[i].offset - w->lo, len = w->pieces[i].length;

		if (w->bulk->write)
			buf_copy(&w->buf, hull, data, len);
		else
			buf_copy(&w->buf, data, hull, len);
		data += len;
	}
}

/* The first access reads the hull; a write has a second one. */
static bool access_sieve(struct window *w)
{
	if (!w->asked) {
		w->asked = w->n;
		access_hull(w, false);
		return true;
	}
	if (w->asked_len)
		return false;
	w->asked_len = w->len;
	merge(w);
	if (w->bulk->write)
		access_hull(w, true);
	return w->bulk->write;
}

static bool copy_mapped(struct window *w)
{
	if (object_mapped_read(w->bulk->object, w->pieces, w->n, w->lo, w->hi, w->iov, w->data,
			       w->n_data))
		return false;
	return fall_back(w, w->hull ? READ_SIEVE : READ_DISK);
}

/* Copies the pieces into the mapping. The last one is written by system call all the same: that
 * records the change in the file's state, above all its mtime. False: all must be written. */
static bool store_pieces(struct window *w)
{
	if (!object_mapped_write(w->bulk->object, w->pieces, w->n, w->lo, w->hi, w->iov, w->data,
				 w->n_data))
		return false;
	w->asked = w->n - 1;
	w->asked_len = w->len - w->pieces[w->asked].length;
	return true;
}

static bool store_mapped(struct window *w)
{
	if (!w->asked_len && !store_pieces(w))
		return fall_back(w, WRITE_DISK);
	return access_pieces(w);
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

static bool write_rest(struct window *w)
{
	if (!w->direct.done)
		return fall_back(w, w->n > 2 ? WRITE_MAPPED_STORE : WRITE_DISK);
	if (!w->asked_len)
		skip_stored(w);
	return access_pieces(w);
}

/* ---- sending, after the turn ---- */

static void send_buffer(struct window *w)
{
	struct bulk *b = w->bulk;

	net_put(b->s->link, b->mem, w->at, w->data, w->n_data, &w->q);
}

/* The turn was only for the fences: such reads may mix with writes. */
static void send_file(struct window *w)
{
	struct bulk *b = w->bulk;

	net_put_file(b->s->link, b->mem, w->at, object_file(b->object), w->pieces, NULL, w->n,
		     &w->q);
}

static void send_mapped(struct window *w)
{
	struct bulk *b = w->bulk;

	net_put_file(b->s->link, b->mem, w->at, object_file(b->object), w->pieces, w->iov, w->n,
		     &w->q);
}

#define READ(how, access_, send_) \
	{ \
		.op = "read", .name = how, .get_buffer = get_buffer, .access = access_, \
		.send = send_ \
	}
#define WRITE(how, receive_, access_) \
	{ \
		.op = "write", .name = how, .get_buffer = get_buffer, .receive = receive_, \
		.access = access_ \
	}

const struct strategy_row strategies[N_STRATEGIES] = {
	[READ_DISK] = READ("disk", access_pieces, send_buffer),
	[READ_SIEVE] = READ("sieve", access_sieve, send_buffer),
	[READ_MAPPED_COPY] = READ("mapped-copy", copy_mapped, send_buffer),
	[READ_FILE] = READ("file", NULL, send_file),
	[READ_MAPPED_FILE] = READ("mapped-file", NULL, send_mapped),
	[WRITE_DISK] = WRITE("disk", receive, access_pieces),
	[WRITE_SIEVE] = WRITE("sieve", receive, access_sieve),
	[WRITE_MAPPED_STORE] = WRITE("mapped-store", receive, store_mapped),
	[WRITE_DIRECT] = WRITE("direct", receive_directly, write_rest),
	[COPY_FETCH] = { .op = "copy",
			 .name = "fetch",
			 .get_buffer = get_copy_buffer,
			 .receive = receive_copy,
			 .is_wanted = copy_is_wanted,
			 .access = access_pieces },
};
