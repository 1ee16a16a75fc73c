/* Every generated filter: the first byte chooses the struct, the rest is the message. A decoded
 * message must encode to the same bytes. */
#include "xdr/xdr.h"

#include "xdr_fill.h"

#include "xdr/gen/record_test.h"

#include "xdr/gen/export_test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct wire_case *choose(unsigned n)
{
	n %= ARRAY_LEN(cases_sheaf) + ARRAY_LEN(cases_record) + ARRAY_LEN(cases_export);
	if (n < ARRAY_LEN(cases_record))
		return &cases_record[n];
	n -= ARRAY_LEN(cases_record);
	if (n < ARRAY_LEN(cases_sheaf))
		return &cases_sheaf[n];
	return &cases_export[n - ARRAY_LEN(cases_sheaf)];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct wire_case *c;
	struct arena a;
	struct xdr x;
	uint8_t *out;
	void *v;

	if (size < 1)
		return 0;
	c = choose(data[0]);
	v = calloc(1, c->size);
	CHECK(v);
	arena_init(&a, 4 * MIB);
	xdr_decoder(&x, data + 1, size - 1, &a);
	if (c->xdr(&x, v)) {
		size_t used = xdr_used(&x);

		out = malloc(used);
		CHECK(out);
		xdr_encoder(&x, out, used);
		if (!c->xdr(&x, v) || xdr_left(&x) != 0 || memcmp(out, data + 1, used) != 0)
			abort();
		free(out);
	}
	arena_destroy(&a);
	free(v);
	return 0;
}
