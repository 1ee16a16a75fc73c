/* The table of proto/ops.def: what the two ends of a link must agree on. */
#include "xdr/xdr.h"

const struct wire_op_row wire_op_rows[N_OPS] = {
#define OP(number, NAME, text, args_, res_, flags_, how) \
	[number] = { .name = text, \
		     .flags = flags_, \
		     .args = XDR_ANY(xdr_wire_##args_), \
		     .res = XDR_ANY(xdr_wire_##res_), \
		     .args_size = sizeof(struct wire_##args_), \
		     .res_size = sizeof(struct wire_##res_) },
#include "proto/ops.def"
#undef OP
};
