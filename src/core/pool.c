/* The buffer pool: equal units of one mapping, granted all or nothing, shared between clients. */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/core.h"

int pool_init(struct pool *p, struct loop *l, size_t bytes)
{
	memset(p, 0, sizeof(*p));
	p->loop = l;
	list_init(&p->waiting);
	pool_share_init(&p->common);
	p->n_units = MAX(bytes / BUF_UNIT, (size_t)BUF_MAX_UNITS);
	p->free = malloc(p->n_units * sizeof(*p->free));
	p->base = mmap(NULL, p->n_units * BUF_UNIT, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->base == MAP_FAILED)
		p->base = NULL;
	if (!p->free || !p->base) {
		pool_fini(p);
		return -ENOMEM;
	}
	for (size_t i = 0; i < p->n_units; i++) /* lowest on top: few pages are ever touched */
		p->free[p->n_free++] = (uint32_t)(p->n_units - 1 - i);
	return 0;
}

void pool_fini(struct pool *p)
{
	if (p->base)
		munmap(p->base, p->n_units * BUF_UNIT);
	free(p->free);
	memset(p, 0, sizeof(*p));
}

void pool_share_init(struct pool_share *s)
{
	list_init(&s->line);
	list_init(&s->turn);
	s->held = 0;
	s->is_wide = false;
}

static size_t units(size_t len)
{
	return (len + BUF_UNIT - 1) / BUF_UNIT;
}

/* True: the share is at its limit. A share that holds nothing may get one grant of any size. */
static bool share_full(const struct pool *p, const struct pool_share *s, size_t n)
{
	return s != &p->common && s->held && s->held + n > p->n_units / (s->is_wide ? 4 : 8);
}

static bool available(const struct pool *p, const struct pool_share *s, size_t n)
{
	size_t reserve = s != &p->common && s->held ? p->n_units / 4 : 0;

	return p->n_free >= n + reserve;
}

static void grant(struct pool *p, struct buf *b)
{
	size_t left = b->len;

	p->n_holders += !b->share->held && b->share != &p->common;
	b->share->held += units(b->len);
	for (b->n = 0; left; b->n++) {
		size_t take = MIN(left, BUF_UNIT);

		b->iov[b->n].iov_base = (char *)p->base + (size_t)p->free[--p->n_free] * BUF_UNIT;
		b->iov[b->n].iov_len = take;
		left -= take;
	}
}

/* Keeps the share in the pool's queue while a request of it waits and it is below its limit. */
static void share_queue(struct pool *p, struct pool_share *s)
{
	struct buf *first = list_first(&s->line, struct buf, link);
	bool wants = first && !share_full(p, s, units(first->len));

	if (!wants)
		list_del(&s->turn);
	else if (list_empty(&s->turn))
		list_push(&p->waiting, &s->turn);
}

/* The next grant: to the first share in the queue that may have it. A share that is kept from the
 * reserve may be passed, a share that holds nothing may not. */
static struct buf *next_grant(struct pool *p)
{
	struct pool_share *s;

	list_for_each(s, &p->waiting, turn) {
		struct buf *b = list_first(&s->line, struct buf, link);

		if (available(p, s, units(b->len)))
			return b;
		if (!s->held || s == &p->common)
			return NULL;
	}
	return NULL;
}

static void serve(struct pool *p)
{
	struct buf *b;

	while ((b = next_grant(p))) {
		struct req *q = b->q;

		list_del(&b->link);
		list_del(&b->share->turn); /* now the turn of other shares */
		b->q = NULL;
		grant(p, b);
		share_queue(p, b->share);
		req_done(q, 0, 0);
	}
}

void pool_share_widen(struct pool *p, struct pool_share *s, bool is_wide)
{
	if (s->is_wide == is_wide)
		return;
	s->is_wide = is_wide;
	share_queue(p, s);
	serve(p);
}

void buf_get(struct pool *p, struct pool_share *s, struct buf *b, size_t len, struct req *q)
{
	size_t n = units(len);

	assert(n <= BUF_MAX_UNITS);
	list_init(&b->link);
	b->pool = p;
	b->share = s ? s : &p->common;
	b->q = NULL;
	b->len = len;
	b->n = 0;
	if (list_empty(&b->share->line) && list_empty(&p->waiting) && !share_full(p, b->share, n) &&
	    available(p, b->share, n)) {
		grant(p, b);
		return;
	}
	b->q = q;
	req_hold(q);
	list_push(&b->share->line, &b->link);
	share_queue(p, b->share);
	serve(p);
	p->n_waits += b->q && !list_empty(&b->share->turn); /* waits for memory, not its share */
}

void buf_put(struct buf *b)
{
	struct pool *p = b->pool;

	if (!p)
		return;
	list_del(&b->link);
	for (uint32_t i = 0; i < b->n; i++)
		p->free[p->n_free++] =
			(uint32_t)(((char *)b->iov[i].iov_base - (char *)p->base) / BUF_UNIT);
	b->share->held -= b->n;
	p->n_holders -= b->n && !b->share->held && b->share != &p->common;
	b->n = 0;
	b->pool = NULL;
	b->q = NULL;
	share_queue(p, b->share);
	serve(p);
}

void buf_copy(struct buf *b, size_t to, size_t from, size_t len)
{
	while (len) {
		size_t t = to % BUF_UNIT, f = from % BUF_UNIT;
		size_t n = MIN(len, BUF_UNIT - MAX(t, f));

		memcpy((char *)b->iov[to / BUF_UNIT].iov_base + t,
		       (char *)b->iov[from / BUF_UNIT].iov_base + f, n);
		to += n;
		from += n;
		len -= n;
	}
}
