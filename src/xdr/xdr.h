/* xdr: a bounded cursor over an XDR message, and the filters generated from proto/ by
 * tools/xdrgen.py.
 *
 * A filter works in both directions: it encodes *v or decodes into it. It returns false if the
 * message is too short, a bound is exceeded, a bool is not 0 or 1, padding is not zero, or the
 * arena is full; then *v must not be used. opaque<> and string<> decode to references into the
 * message; arrays T name<N> decode into the arena. Encoding needs no arena. */
#ifndef SHEAF_XDR_H
#define SHEAF_XDR_H

#include "base/base.h"

struct xdr {
	bool decoding;
	bool failed; /* a list was refused */
	uint8_t *p, *end;
	uint8_t *start;
	struct arena *arena; /* for decoded arrays */
};

/* opaque<> and string<> (without NUL bytes) */
struct wire_bytes {
	uint32_t len;
	const uint8_t *p;
};

void xdr_encoder(struct xdr *x, void *buf, size_t len);
void xdr_decoder(struct xdr *x, const void *buf, size_t len, struct arena *a);
static inline size_t xdr_used(const struct xdr *x)
{
	return (size_t)(x->p - x->start);
}
static inline size_t xdr_left(const struct xdr *x)
{
	return (size_t)(x->end - x->p);
}

bool xdr_u32(struct xdr *x, uint32_t *v);
bool xdr_i32(struct xdr *x, int32_t *v);
bool xdr_u64(struct xdr *x, uint64_t *v);
bool xdr_i64(struct xdr *x, int64_t *v);
bool xdr_bool(struct xdr *x, bool *v);
bool xdr_fixed(struct xdr *x, void *p, uint32_t n); /* opaque[n] */
bool xdr_bytes(struct xdr *x, struct wire_bytes *b, uint32_t max); /* opaque<max> */
bool xdr_text(struct xdr *x, struct wire_bytes *b, uint32_t max); /* string<max> */
/* Count of an array<max> whose elements take at least min_size bytes each on the wire. Decoding
 * refuses a count that the message cannot hold, and takes n * elem_size zeroed bytes from the
 * arena. */
bool xdr_array(struct xdr *x, uint32_t *n, void **items, uint32_t max, size_t min_size,
	       size_t elem_size);

/* T *name: decoding takes elem_size zeroed bytes from the arena if the item is there. */
bool xdr_optional(struct xdr *x, void **item, size_t elem_size);
/* list<max>: true if element i is there, which the caller filters next; *items may have moved.
 * False at the end, or after setting x->failed. Call it for i = 0, 1, ... */
bool xdr_list(struct xdr *x, uint32_t i, uint32_t *n, void **items, uint32_t max, size_t elem_size);

static inline struct wire_bytes wire_text(const char *s)
{
	return (struct wire_bytes){ (uint32_t)strlen(s), (const uint8_t *)s };
}

/* For struct s of proto/file.x the generator emits struct wire_s and
 *     bool xdr_wire_s(struct xdr *x, struct wire_s *v);
 * for enum e its constants, for const c an enum constant, or a #define if it needs 64 bits. */
#include "xdr/gen/export.h"
#include "xdr/gen/record.h"
#include "xdr/gen/sheaf.h"

/* Any generated filter without its type: xdr_any f = XDR_ANY(xdr_wire_attr). */
typedef bool (*xdr_any)(struct xdr *x, void *v);
#define XDR_ANY(f) ((xdr_any)(void (*)(void))(f))

#include "xdr/ops.h"

#endif
