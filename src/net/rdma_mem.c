/* A client's memory that servers access by RDMA, for one request: the user's pieces, registered
 * (src/reg), or a registered buffer into which they are packed. The descriptor has the ranges of
 * memory with their keys, in the order of the stream. Where neither can be registered, the request
 * moves over TCP instead (TAG_STREAM).
 *
 * Threads: the loop's. Buffers: bounce buffers are kept for later requests, up to a limit. Errors:
 * -EFAULT: a part of the memory is not mapped. */
#include <stdlib.h>

#include "net/net_tcp.h"
#include "net/rdma.h"

#define BOUNCE_LEAST (64 * KIB)
#define BOUNCE_SPARE_MAX (16 * MIB) /* bytes of unused bounce buffers */

/* ---- bounce buffers ---- */

static struct rdma_bounce *bounce_get(struct rdma_device *d, uint64_t len)
{
	struct rdma_bounce *b;
	uint64_t size = BOUNCE_LEAST;

	while (size < len)
		size *= 2;
	list_for_each(b, &d->bounces, link) {
		if (b->size != size)
			continue;
		list_del(&b->link);
		d->bounce_spare -= size;
		return b;
	}
	b = malloc(sizeof(*b) + size);
	if (!b)
		return NULL;
	b->size = size;
	list_init(&b->link);
	if (rdma_make(d, b->mem, size,
		      FABRIC_LOCAL_WRITE | FABRIC_REMOTE_READ | FABRIC_REMOTE_WRITE,
		      &b->registered)) {
		free(b);
		return NULL;
	}
	d->net->account.registrations++;
	return b;
}

static void bounce_free(struct rdma_device *d, struct rdma_bounce *b)
{
	d->ops->mem_drop(d->fabric, &b->registered);
	free(b);
}

static void bounce_put(struct rdma_device *d, struct rdma_bounce *b)
{
	if (d->bounce_spare + b->size > BOUNCE_SPARE_MAX) {
		bounce_free(d, b);
		return;
	}
	d->bounce_spare += b->size;
	list_push_front(&d->bounces, &b->link);
}

void rdma_bounces_free(struct rdma_device *d)
{
	struct rdma_bounce *b;

	while ((b = list_first(&d->bounces, struct rdma_bounce, link))) {
		list_del(&b->link);
		bounce_free(d, b);
	}
	d->bounce_spare = 0;
}

/* ---- the user's memory ---- */

static int make_memory(void *device, void *addr, size_t len, bool writable, struct reg_memory *out)
{
	struct rdma_device *d = device;
	struct fabric_mem m = { 0 };
	int r = d->ops->mem_make(d->fabric, addr, len,
				 writable ? FABRIC_LOCAL_WRITE | FABRIC_REMOTE_READ |
						    FABRIC_REMOTE_WRITE :
					    FABRIC_REMOTE_READ,
				 &m);

	*out = (struct reg_memory){ .addr = addr,
				    .len = len,
				    .lkey = m.lkey,
				    .rkey = m.rkey,
				    .handle = (uintptr_t)m.impl };
	return r;
}

static void drop_memory(void *device, struct reg_memory *m)
{
	struct rdma_device *d = device;
	struct fabric_mem f = { m->lkey, m->rkey, (void *)(uintptr_t)m->handle };

	d->ops->mem_drop(d->fabric, &f);
}

static const struct reg_ops user_memory = { .name = "fabric",
					    .make = make_memory,
					    .drop = drop_memory };

void rdma_reg_open(struct rdma_device *d)
{
	/* The simulation must not depend on addresses, and finds accesses beside the pieces. */
	bool is_real = d->net->rdma.caches;
	struct reg_counts costs;

	if (d->reg || reg_open(&d->reg, &user_memory, d, d->net->rdma.pinned_max,
			       is_real ? 0 : REG_NO_CACHE | REG_EXACT))
		return;
	if (is_real)
		rdma_costs_measure(d);
	reg_get_counts(d->reg, &costs);
	d->costs.registration = costs.is_caching ? 0 : costs.call_ns;
	d->costs.page = costs.is_caching ? 0 : costs.page_ns;
}

/* ---- exposing ---- */

static struct rdma_exposed *exposed_new(struct rdma_device *dev, struct net_desc *d, size_t n,
					uint64_t len)
{
	struct rdma_exposed *e = calloc(1, sizeof(*e) + n * sizeof(e->ranges[0]));

	if (e) {
		e->dev = dev;
		e->desc = d;
		dev->load++;
		e->n_ranges = (uint32_t)n;
		e->length = len;
	}
	return e;
}

static void exposed_free(struct rdma_exposed *e)
{
	if (e->bounce)
		bounce_put(e->dev, e->bounce);
	reg_release(e->dev->reg, &e->use);
	e->dev->load--;
	free((void *)(uintptr_t)e->desc->keys.p);
	e->desc->keys = (struct wire_bytes){ 0 };
	e->desc->impl = NULL;
	free(e);
}

/* Writes the keys of the ranges into the descriptor. */
static int describe(struct rdma_exposed *e, const uint32_t *remote_keys)
{
	bool asks = e->desc->method == METHOD_DRIVEN && e->desc->access == CAP_READ;
	uint32_t bytes = 4 + e->n_ranges * SEGMENT_BYTES, n = e->n_ranges;
	uint32_t count = n | (asks ? KEYS_DRIVEN : 0);
	uint8_t *keys = malloc(bytes);
	struct xdr x;

	if (!keys)
		return -ENOMEM;
	xdr_encoder(&x, keys, bytes);
	xdr_u32(&x, &count);
	for (uint32_t i = 0; i < n; i++) {
		struct wire_rdma_segment s = { e->ranges[i].addr, e->ranges[i].len,
					       remote_keys[i] };

		xdr_wire_rdma_segment(&x, &s);
	}
	e->desc->keys = (struct wire_bytes){ .p = keys, .len = bytes };
	e->desc->impl = e;
	return 0;
}

/* Registers the user's pieces themselves. -ENOBUFS: pack them. */
static int expose_pieces(struct link *l, struct net_desc *d, size_t n, uint64_t len)
{
	struct rdma_device *dev = l->rdma->dev;
	struct rdma_exposed *e = exposed_new(dev, d, n, len);
	uint32_t remote_keys[SEGMENTS_MAX];
	int r;

	if (!e)
		return -ENOMEM;
	r = reg_acquire(dev->reg, dev->pieces, n, d->access == CAP_WRITE, &e->use);
	l->account->registrations += e->use.n_made;
	for (size_t i = 0; !r && i < n; i++) {
		const struct reg_memory *m = e->use.regions[e->use.region_of[i]];

		e->ranges[i] = (struct rdma_range){ (uintptr_t)dev->pieces[i].iov_base,
						    dev->pieces[i].iov_len, m->lkey };
		remote_keys[i] = m->rkey;
	}
	if (!r)
		r = describe(e, remote_keys);
	if (r)
		exposed_free(e);
	return r;
}

/* Copies the stream of `len` bytes into a registered buffer. Before a read this is needed only if
 * the caller cannot tell whether the server has written all bytes: the buffer still has data of
 * earlier requests. */
static int expose_packed(struct link *l, struct net_desc *d, uint64_t len)
{
	struct rdma_exposed *e = exposed_new(l->rdma->dev, d, 1, len);
	bool fills = d->access == CAP_READ || !d->tells;
	int r;

	if (!e)
		return -ENOMEM;
	e->bounce = bounce_get(e->dev, len);
	r = e->bounce ? 0 : -ENOBUFS;
	if (!r && fills)
		r = view_copy_out(d->view, 0, e->bounce->mem, len);
	if (!r) {
		l->account->copied += fills ? len : 0;
		e->ranges[0] = (struct rdma_range){ (uintptr_t)e->bounce->mem, len,
						    e->bounce->registered.lkey };
		r = describe(e, &e->bounce->registered.rkey);
	}
	if (r)
		exposed_free(e);
	return r;
}

/* The bytes of the view's stream, of which the first `got` were looked up: the length of a view of
 * patterns is a bound. */
static uint64_t stream_length(struct view *v, uint64_t got, struct iovec *scratch)
{
	uint64_t more;

	if (!v->pattern_view)
		return v->length;
	while (got < v->length && view_iov(v, got, v->length - got, scratch, SEGMENTS_MAX, &more))
		got += more;
	return got;
}

/* Finds the pieces of the view, and its length; 0: too many, or packing them is cheaper. */
static size_t find_pieces(struct link *l, struct net_desc *d, uint64_t *len)
{
	struct rdma_device *dev = l->rdma->dev;
	uint64_t got;
	size_t n = view_iov(d->view, 0, d->view->length, dev->pieces, SEGMENTS_MAX, &got);

	*len = stream_length(d->view, got, dev->pieces);
	if (got != *len || d->method == METHOD_PACK || !dev->reg)
		return 0;
	if (d->method == METHOD_AUTO &&
	    net_choose(l->costs, d->access == CAP_READ, n, got, 0) == METHOD_PACK)
		return 0;
	return n;
}

int rdma_expose(struct link *l, struct net_desc *d)
{
	uint64_t len;
	size_t n = find_pieces(l, d, &len);
	int r = n ? expose_pieces(l, d, n, len) : -ENOBUFS;

	if (r)
		r = expose_packed(l, d, len);
	if (!r || r == -EFAULT)
		return r;
	d->tag |= TAG_STREAM;
	return 0;
}

/* ---- ends ---- */

/* The server decides which end moves the bytes, so they are counted at the end. */
static void count_bytes(const struct rdma_exposed *e, struct link *l)
{
	uint64_t all = e->length, driven = MIN(e->driven, all);

	l->account->bytes[METHOD_DRIVEN] += driven;
	l->account->bytes[e->bounce ? METHOD_PACK : METHOD_GATHER] += all - driven;
}

/* The peer has written into the buffer. */
static void unpack(struct rdma_exposed *e, struct link *l)
{
	struct net_desc *d = e->desc;

	if (d->tells && !d->is_whole) {
		d->error = -ENODATA;
		return;
	}
	if (view_copy_in(d->view, 0, e->bounce->mem, e->length))
		d->error = -EFAULT;
	l->account->copied += e->length;
}

/* Nothing accesses the memory any more. */
static void finish(struct rdma_exposed *e, struct link *l)
{
	struct net_desc *d = e->desc;

	if (l->state == LINK_UP)
		count_bytes(e, l);
	if (e->bounce && d->access == CAP_WRITE && l->state == LINK_UP)
		unpack(e, l);
	exposed_free(e);
}

bool rdma_retract(struct link *l, struct net_desc *d)
{
	struct rdma_exposed *e = d->impl;

	if (d->tag & TAG_STREAM)
		return tcp_retract(l, d);
	if (!e)
		return true;
	e->link = l;
	e->is_ending = e->n_fills > 0;
	if (e->is_ending)
		return false;
	finish(e, l);
	return true;
}

void rdma_fill_ended(struct rdma_exposed *e)
{
	struct net_desc *d = e->desc;

	if (!e->is_ending)
		return;
	finish(e, e->link);
	link_desc_end(d);
}
