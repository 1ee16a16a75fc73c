/* The buffer pool: equal units of one mapping, granted all or nothing, first come first served. */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/core.h"

int pool_init(struct pool *p, struct loop *l, size_t bytes)
{
	memset(p, 0, sizeof(*p));
	p->loop = l;
	list_init(&p->waiting);
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

static void grant(struct pool *p, struct buf *b)
{
	size_t left = b->len;

	for (b->n = 0; left; b->n++) {
		size_t take = MIN(left, BUF_UNIT);

		b->iov[b->n].iov_base = (char *)p->base + (size_t)p->free[--p->n_free] * BUF_UNIT;
		b->iov[b->n].iov_len = take;
		left -= take;
	}
}

static size_t units(size_t len)
{
	return (len + BUF_UNIT - 1) / BUF_UNIT;
}

void buf_get(struct pool *p, struct buf *b, size_t len, struct req *q)
{
	assert(units(len) <= BUF_MAX_UNITS);
	list_init(&b->link);
	b->pool = p;
	b->q = NULL;
	b->len = len;
	b->n = 0;
	if (list_empty(&p->waiting) && p->n_free >= units(len)) {
		grant(p, b);
		return;
	}
	p->n_waits++;
	b->q = q;
	req_hold(q);
	list_push(&p->waiting, &b->link);
}

void buf_put(struct buf *b)
{
	struct pool *p = b->pool;
	struct buf *w;

	if (!p)
		return;
	list_del(&b->link);
	for (uint32_t i = 0; i < b->n; i++)
		p->free[p->n_free++] =
			(uint32_t)(((char *)b->iov[i].iov_base - (char *)p->base) / BUF_UNIT);
	b->n = 0;
	b->pool = NULL;
	b->q = NULL;
	while ((w = list_first(&p->waiting, struct buf, link)) && p->n_free >= units(w->len)) {
		struct req *q = w->q;

		list_del(&w->link);
		grant(p, w);
		w->q = NULL;
		req_done(q, 0, 0);
	}
}
