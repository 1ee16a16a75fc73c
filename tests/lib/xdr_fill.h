/* For tests of the XDR filters: random content, and the types of the generated tables. Include this
 * file after xdr/xdr.h and before xdr/gen/FILE_test.h. */
#ifndef SHEAF_TEST_XDR_FILL_H
#define SHEAF_TEST_XDR_FILL_H

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

/* A random number. */
uint64_t fill_u64(struct fill *f);

/* A random length up to the bound; often the bound itself if f->large. */
uint32_t fill_len(struct fill *f, uint32_t bound);

/* Memory of the arena. */
void *fill_alloc(struct fill *f, size_t n);

/* Random bytes. */
void fill_raw(struct fill *f, uint8_t *p, size_t n);

/* A random byte string. */
void fill_bytes(struct fill *f, struct wire_bytes *b, uint32_t bound);

/* A random byte string without zeros. */
void fill_text(struct fill *f, struct wire_bytes *b, uint32_t bound);

/* Are the byte strings equal? */
bool same_bytes(const struct wire_bytes *a, const struct wire_bytes *b);

#endif
