/* How a window moves its bytes between the file and the network. strategy_choose() decides, once
 * for each range; a row of the table has the functions that the window calls in each state.
 *
 *   read    disk          reads each piece into the buffer, then sends the buffer
 *           sieve         reads ranges that cover many small pieces, and takes the pieces out
 *           mapped-copy   copies cached pieces out of a mapping; else as disk
 *           file          sends cached data straight from the file
 *           mapped-file   sends cached data straight from a mapping
 *   write   disk          receives into the buffer, then writes each piece
 *           sieve         reads such ranges, puts the pieces in and writes them back, in one turn
 *           mapped-store  copies the pieces into a mapping; else as disk
 *           direct        receives straight into a mapping; else as mapped-store or disk
 *   copy    fetch         as write, disk, with the bytes of another object (fetch.c)
 *
 * A write whose data came in the message receives nothing. Where small pieces lie close together,
 * one access to a range that covers them costs less than one to each (sieve/sieve.h); the buffer
 * then has the covering ranges before the data. Data are received straight into a mapping only
 * while no other request holds or awaits a turn at the range. As soon as one does, the rest of the
 * window goes through the buffer.
 *
 * Threads: the loop's. Buffers: the window's. Errors: those of the operations, in w->q. */
#include "server/window.h"

#define FILE_PIECE (8 * KIB) /* pieces of at least this size are sent straight from the file */

static_assert(WINDOW_BYTES == SIEVE_WINDOW_BYTES, "sheaf explain has the same windows");

/* ---- the choice ---- */

uint64_t sieve_most(const struct window *w)
{
	return w->bulk->write ? SIEVE_WRITE_MOST : SIEVE_READ_MOST;
}

static struct sieve_want sieve_want(const struct window *w, bool cached)
{
	return (struct sieve_want){ .costs = disk_costs(w->bulk->s->srv->disk),
				    .write = w->bulk->write,
				    .cached = cached,
				    .most = sieve_most(w),
				    .room = sieve_most(w) - MIN(sieve_most(w), w->len) };
}

bool sieve_ends(const struct window *w, uint64_t off, uint64_t n)
{
	uint64_t hull = MAX(w->hi, off + n) - MIN(w->lo, off);
	struct sieve_want want;

	if (hull + w->len + n <= sieve_most(w) || w->n <= 2 || !w->is_sorted || w->skips_pages ||
	    w->bulk->from || w->bulk->s->srv->auth_conf->never_sieve)
		return false;
	want = sieve_want(w, true);
	return sieve_gain(&want, w->n, w->len, w->hi - w->lo) > SIEVE_WINDOW_NS;
}

/* Are the data in memory? What lies beyond the end, or far apart, does not count: asking takes time
 * for each page. */
static bool is_cached(const struct window *w)
{
	uint64_t hi = MIN(w->hi, object_end(w->bulk->object));

	if (hi <= w->lo || w->q.loop->no_cachestat)
		return true;
	return hi - w->lo <= HULL_MAX && object_cached(w->bulk->object, w->lo, hi - w->lo);
}

/* Plans the accesses of a window. False: all pieces are accessed separately. */
static bool sieves(struct window *w)
{
	struct sieve_want want;
	double ns;

	if (w->n < 2 || !w->is_sorted)
		return false;
	want = sieve_want(w, is_cached(w));
	w->n_parts = sieve_plan(&want, w->pieces, w->n, w->parts, &ns);
	for (uint32_t i = 0; i < w->n_parts; i++)
		w->hull += w->parts[i].covers ? w->parts[i].hi - w->parts[i].lo : 0;
	return w->hull;
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
	if (net_choose(b->s->link->costs, true, w->n, w->len, 0) == METHOD_PACK &&
	    w->hi - w->lo <= HULL_MAX && object_cached(b->object, w->lo, w->hi - w->lo))
		return READ_MAPPED_COPY;
	if (may_send_file(w)) {
		if (w->len >= FILE_PIECE * w->n && net_lends_pages(b->s->link))
			return READ_FILE;
		/* one call sends many mapped pieces, and copies them */
		if (map(w))
			return READ_MAPPED_FILE;
	}
	return sieves(w) ? READ_SIEVE : READ_DISK;
}

/* May the data be received straight into the mapping? Only where that is cheaper than a copy. A
 * write of less than a window is atomic to readers, so it is received into the buffer first. */
static bool may_receive_directly(const struct window *w)
{
	const struct bulk *b = w->bulk;

	return !b->data && w->len >= WINDOW_BYTES &&
	       net_choose(b->s->link->costs, false, w->n, w->len, 0) != METHOD_PACK;
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
	return sieves(w) ? WRITE_SIEVE : WRITE_DISK;
}

void strategy_choose(struct window *w)
{
	w->hull = 0;
	w->strategy = w->bulk->write ? WRITE_DISK : READ_DISK;
	if (w->n < 2 || w->bulk->from || !w->bulk->s->srv->auth_conf->never_sieve)
		w->strategy = w->bulk->write ? choose_write(w) : choose_read(w);
}

/* ---- buffers, and receiving ---- */

/* Data in the message stay there, unless they are sieved. */
static void get_buffer(struct window *w)
{
	struct sreq *s = w->bulk->s;
	struct pool_share *share = session_share(s->session, false);

	if (share == &s->session->share)
		pool_share_widen(&s->srv->pool, share, link_is_far(s->link));
	if (!w->bulk->data || w->hull)
		buf_get(&s->srv->pool, share, &w->buf, w->hull + w->len, &w->q);
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

/* The next access of a sieved window: to a covering range, which is in the buffer in front of the
 * data, or to a separate piece. A write reads the covering ranges first. False: there is none. */
static bool sieve_next(struct window *w, struct io *io, struct iovec *iov, size_t room)
{
	struct sieve_at *at = &w->sieve;
	bool covers_only = w->bulk->write && !w->is_merged;
	uint64_t from, len;
	size_t got;

	for (; at->part < w->n_parts; at->part++) {
		const struct sieve_part *p = &w->parts[at->part];

		if (p->covers) {
			from = at->hull;
			len = p->hi - p->lo;
			io->off = p->lo;
			at->hull += len;
			for (; at->piece < p->first + p->n; at->piece++)
				at->data += w->pieces[at->piece].length;
			at->part++;
		} else if (at->piece < p->first + p->n && !covers_only) {
			from = w->hull + at->data;
			len = w->pieces[at->piece].length;
			io->off = w->pieces[at->piece++].offset;
			at->data += len;
		} else {
			at->piece = p->first + p->n;
			continue;
		}
		io->iov = iov;
		io->n = (int)iov_slice(w->buf.iov, w->buf.n, from, len, iov, room, &got);
		return true;
	}
	return false;
}

/* Submits the next accesses of the pass; false: there are none. */
static bool sieve_submit(struct window *w)
{
	uint32_t n = 0;
	size_t used = 0;

	for (; n < WINDOW_IOS && sieve_next(w, &w->ios[n], w->iov + used, ARRAY_LEN(w->iov) - used);
	     n++)
		used += (size_t)w->ios[n].n;
	if (n && w->is_merged)
		submit(w, n, true);
	else if (n)
		object_try_read(w->bulk->object, w->ios, n, &w->q);
	if (n == WINDOW_IOS)
		req_yield(&w->q);
	w->n_ios = n;
	return n;
}

static bool sieve_failed(const struct window *w)
{
	bool failed = false;

	for (uint32_t i = 0; i < w->n_ios && !w->is_merged; i++)
		failed |= w->ios[i].error != 0;
	return failed;
}

/* Copies the pieces between the covering ranges, which were read, and the data. */
static void merge(struct window *w)
{
	size_t hull = 0, data = w->hull;

	for (uint32_t k = 0; k < w->n_parts; k++) {
		const struct sieve_part *p = &w->parts[k];

		object_count_cover(w->bulk->object, w->pieces, p, w->bulk->write);
		for (uint32_t i = p->first; i < p->first + p->n; i++) {
			size_t at = hull + w->pieces[i].offset - p->lo, len = w->pieces[i].length;

			if (p->covers && w->bulk->write)
				buf_copy(&w->buf, at, data, len);
			else if (p->covers)
				buf_copy(&w->buf, data, at, len);
			data += len;
		}
		hull += p->covers ? p->hi - p->lo : 0;
	}
}

/* Reads, then merges; a write has a second pass, which writes. A covering read may fail at bytes
 * that no piece needs: then each piece is accessed separately. */
static bool access_sieve(struct window *w)
{
	if (sieve_failed(w))
		return fall_back(w, w->bulk->write ? WRITE_DISK : READ_DISK);
	if (sieve_submit(w))
		return true;
	if (w->is_merged)
		return false;
	merge(w);
	w->is_merged = true;
	w->sieve = (struct sieve_at){ 0 };
	return w->bulk->write && sieve_submit(w);
}

static bool copy_mapped(struct window *w)
{
	if (object_mapped_read(w->bulk->object, w->pieces, w->n, w->lo, w->hi, w->iov, w->data,
			       w->n_data))
		return false;
	return fall_back(w, READ_DISK);
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
	object_count(w->bulk->object, 0, w->asked);
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
static void send_cached(struct window *w)
{
	struct bulk *b = w->bulk;

	object_count(b->object, 0, w->n);
	net_put_file(b->s->link, b->mem, w->at, object_file(b->object), w->pieces,
		     w->is_mapped ? w->iov : NULL, w->n, &w->q);
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
	[READ_FILE] = READ("file", NULL, send_cached),
	[READ_MAPPED_FILE] = READ("mapped-file", NULL, send_cached),
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
