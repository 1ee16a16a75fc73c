/* For tests of the XDR filters: random content, and the types of the generated tables. Include this
 * file after xdr/xdr.h and before xdr/gen/FILE_test.h. */
#ifndef SHEAF_XDR_FILL_H
#define SHEAF_XDR_FILL_H

#include "test.h"
#include "xdr/xdr.h"

/* A source of random content. Its arena owns the memory that it returns. */
struct fill {
	uint64_t state;
	bool large; /* fill arrays and byte strings up to their bounds */
	struct arena arena;
};

struct wire_case {
	const char *name;
	size_t size, min_wire;
	bool (*xdr)(struct xdr *x, void *v);
	void (*fill)(struct fill *f, void *v);
	bool (*same)(const void *a, const void *b);
};

/* A bounded member: its count is at byte `at` of an otherwise empty message. */
struct wire_bound {
	const char *name;
	bool (*xdr)(struct xdr *x, void *v);
	size_t size, at, min_wire, bound, elem_wire;
	bool text;
};

#define WIRE_CASE(s) \
	static inline bool case_xdr_##s(struct xdr *x, void *v) \
	{ \
		return xdr_wire_##s(x, v); \
	} \
	static inline void case_fill_##s(struct fill *f, void *v) \
	{ \
		fill_##s(f, v); \
	} \
	static inline bool case_same_##s(const void *a, const void *b) \
	{ \
		return same_##s(a, b); \
	}

static inline uint64_t fill_u64(struct fill *f)
{
	return test_random(&f->state);
}

static inline uint32_t fill_len(struct fill *f, uint32_t bound)
{
	uint64_t r = fill_u64(f);

	if (f->large)
		return r % 4 ? bound : (uint32_t)(r >> 8) % (bound + 1);
	return (uint32_t)((r >> 8) % (MIN(bound, 9) + 1));
}

static inline void *fill_alloc(struct fill *f, size_t n)
{
	void *p = arena_alloc(&f->arena, n);

	CHECK(p);
	return p;
}

static inline void fill_raw(struct fill *f, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)fill_u64(f);
}

static inline void fill_bytes(struct fill *f, struct wire_bytes *b, uint32_t bound)
{
	uint8_t *p;

	b->len = fill_len(f, bound);
	p = fill_alloc(f, b->len);
	fill_raw(f, p, b->len);
	b->p = p;
}

static inline void fill_text(struct fill *f, struct wire_bytes *b, uint32_t bound)
{
	uint8_t *p;

	b->len = fill_len(f, bound);
	p = fill_alloc(f, b->len);
	for (uint32_t i = 0; i < b->len; i++)
		p[i] = (uint8_t)(1 + fill_u64(f) % 255);
	b->p = p;
}

static inline bool same_bytes(const struct wire_bytes *a, const struct wire_bytes *b)
{
	return a->len == b->len && (a->len == 0 || memcmp(a->p, b->p, a->len) == 0);
}

#endif
