/* The bounded XDR cursor. Every access is checked against the end of the message first; a failed
 * filter leaves the cursor anywhere within the message. No I/O; allocates only from the caller's
 * arena. */
#include "xdr/xdr.h"

#include <endian.h>

void xdr_encoder(struct xdr *x, void *buf, size_t len)
{
	*x = (struct xdr){ .decoding = false, .p = buf, .end = (uint8_t *)buf + len, .start = buf };
}

void xdr_decoder(struct xdr *x, const void *buf, size_t len, struct arena *a)
{
	uint8_t *p = (uint8_t *)(uintptr_t)buf; /* a decoder never writes through it */

	*x = (struct xdr){ .decoding = true, .p = p, .start = p, .arena = a };
	x->end = len ? p + len : p; /* an empty message may be NULL */
}

/* Advances by n bytes, or returns NULL if fewer are left. */
static uint8_t *xdr_take(struct xdr *x, size_t n)
{
	uint8_t *p = x->p;

	if (n > xdr_left(x))
		return NULL;
	x->p += n;
	return p;
}

bool xdr_u32(struct xdr *x, uint32_t *v)
{
	uint8_t *p = xdr_take(x, 4);
	uint32_t be;

	if (!p)
		return false;
	if (x->decoding) {
		memcpy(&be, p, 4);
		*v = be32toh(be);
	} else {
		be = htobe32(*v);
		memcpy(p, &be, 4);
	}
	return true;
}

bool xdr_u64(struct xdr *x, uint64_t *v)
{
	uint8_t *p = xdr_take(x, 8);
	uint64_t be;

	if (!p)
		return false;
	if (x->decoding) {
		memcpy(&be, p, 8);
		*v = be64toh(be);
	} else {
		be = htobe64(*v);
		memcpy(p, &be, 8);
	}
	return true;
}

bool xdr_i32(struct xdr *x, int32_t *v)
{
	return xdr_u32(x, (uint32_t *)v);
}

bool xdr_i64(struct xdr *x, int64_t *v)
{
	return xdr_u64(x, (uint64_t *)v);
}

bool xdr_bool(struct xdr *x, bool *v)
{
	uint32_t u = x->decoding ? 0 : *v;

	if (!xdr_u32(x, &u) || u > 1)
		return false;
	*v = u == 1;
	return true;
}

/* The zero bytes that pad n to a multiple of four. */
static bool xdr_pad(struct xdr *x, uint32_t n)
{
	static const uint8_t zero[4];
	size_t pad = -n & 3;
	uint8_t *p = xdr_take(x, pad);

	if (!p)
		return false;
	if (x->decoding)
		return memcmp(p, zero, pad) == 0;
	memcpy(p, zero, pad);
	return true;
}

bool xdr_fixed(struct xdr *x, void *v, uint32_t n)
{
	uint8_t *p = xdr_take(x, n);

	if (!p)
		return false;
	if (x->decoding)
		memcpy(v, p, n);
	else
		memcpy(p, v, n);
	return xdr_pad(x, n);
}

bool xdr_bytes(struct xdr *x, struct wire_bytes *b, uint32_t max)
{
	uint8_t *p;

	if (!xdr_u32(x, &b->len) || b->len > max)
		return false;
	p = xdr_take(x, b->len);
	if (!p)
		return false;
	if (x->decoding)
		b->p = p;
	else if (b->len > 0)
		memcpy(p, b->p, b->len);
	return xdr_pad(x, b->len);
}

bool xdr_text(struct xdr *x, struct wire_bytes *b, uint32_t max)
{
	if (!xdr_bytes(x, b, max))
		return false;
	return b->len == 0 || !memchr(b->p, 0, b->len);
}

bool xdr_array(struct xdr *x, uint32_t *n, void **items, uint32_t max, size_t min_size,
	       size_t elem_size)
{
	if (!xdr_u32(x, n) || *n > max)
		return false;
	if (!x->decoding)
		return true;
	*items = NULL;
	if (*n == 0)
		return true;
	if (!x->arena || *n > xdr_left(x) / min_size || *n > SIZE_MAX / elem_size)
		return false;
	*items = arena_alloc(x->arena, *n * elem_size);
	return *items != NULL;
}

bool xdr_optional(struct xdr *x, void **item, size_t elem_size)
{
	bool there = *item != NULL;

	if (!xdr_bool(x, &there))
		return false;
	if (!x->decoding)
		return true;
	*item = NULL;
	if (!there)
		return true;
	*item = x->arena ? arena_alloc(x->arena, elem_size) : NULL;
	return *item != NULL;
}

/* Doubles the room of a list when element i is the first behind it. */
static bool list_grow(struct xdr *x, uint32_t i, void **items, uint32_t max, size_t elem_size)
{
	const uint32_t least = 4;
	void *more;

	if (i != 0 && (i < least || i & (i - 1)))
		return true;
	if (!x->arena)
		return false;
	more = arena_alloc(x->arena, MIN((size_t)MAX(least, 2 * (size_t)i), max) * elem_size);
	if (more && i)
		memcpy(more, *items, i * elem_size);
	*items = more;
	return more != NULL;
}

bool xdr_list(struct xdr *x, uint32_t i, uint32_t *n, void **items, uint32_t max, size_t elem_size)
{
	bool more = !x->decoding && i < *n;

	if (x->decoding && i == 0) {
		*n = 0;
		*items = NULL;
	}
	if (!xdr_bool(x, &more) || (more && i == max)) {
		x->failed = true;
		return false;
	}
	if (!more || !x->decoding)
		return more;
	x->failed = !list_grow(x, i, items, max, elem_size);
	*n = i + 1;
	return !x->failed;
}
