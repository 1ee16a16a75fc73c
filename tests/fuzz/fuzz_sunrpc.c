/* The filters of ONC RPC, MOUNT and NFS: the first byte chooses the struct, the rest is the
 * message. A decoded message must encode to the same bytes. */
#include "xdr/sunrpc.h"

#include "xdr_fill.h"

#include "xdr/gen/mount3_test.h"

#include "xdr/gen/nfs3_test.h"

#include "xdr/gen/nlm4_test.h"

#include "xdr/gen/rpc_test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct wire_case *choose(unsigned n)
{
	n %= ARRAY_LEN(cases_rpc) + ARRAY_LEN(cases_mount3) + ARRAY_LEN(cases_nlm4) +
	     ARRAY_LEN(cases_nfs3);
	if (n < ARRAY_LEN(cases_rpc))
		return &cases_rpc[n];
	n -= ARRAY_LEN(cases_rpc);
	if (n < ARRAY_LEN(cases_mount3))
		return &cases_mount3[n];
	n -= ARRAY_LEN(cases_mount3);
	if (n < ARRAY_LEN(cases_nlm4))
		return &cases_nlm4[n];
	return &cases_nfs3[n - ARRAY_LEN(cases_nlm4)];
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
	(void)bounds_rpc;
	(void)bounds_mount3;
	(void)bounds_nfs3;
	(void)bounds_nlm4;
	arena_init(&a, 4 * MIB);
	xdr_decoder(&x, data + 1, size - 1, &a);
	if (c->xdr(&x, v)) {
		size_t used = xdr_used(&x);

		out = malloc(used ? used : 1);
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
