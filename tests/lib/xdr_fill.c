#include "xdr_fill.h"

uint64_t fill_u64(struct fill *f)
{
	return test_random(&f->state);
}

uint32_t fill_len(struct fill *f, uint32_t bound)
{
	uint64_t r = fill_u64(f);

	if (f->large)
		return r % 4 ? bound : (uint32_t)(r >> 8) % (bound + 1);
	return (uint32_t)((r >> 8) % (MIN(bound, 9) + 1));
}

void *fill_alloc(struct fill *f, size_t n)
{
	void *p = arena_alloc(&f->arena, n);

	CHECK(p);
	return p;
}

void fill_raw(struct fill *f, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)fill_u64(f);
}

void fill_bytes(struct fill *f, struct wire_bytes *b, uint32_t bound)
{
	uint8_t *p;

	b->len = fill_len(f, bound);
	p = fill_alloc(f, b->len);
	fill_raw(f, p, b->len);
	b->p = p;
}

void fill_text(struct fill *f, struct wire_bytes *b, uint32_t bound)
{
	uint8_t *p;

	b->len = fill_len(f, bound);
	p = fill_alloc(f, b->len);
	for (uint32_t i = 0; i < b->len; i++)
		p[i] = (uint8_t)(1 + fill_u64(f) % 255);
	b->p = p;
}

bool same_bytes(const struct wire_bytes *a, const struct wire_bytes *b)
{
	return a->len == b->len && (a->len == 0 || memcmp(a->p, b->p, a->len) == 0);
}
