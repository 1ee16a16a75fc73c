/* The operations of proto/ops.def: their numbers, filters and flags. Included by xdr.h. */
#ifndef SHEAF_OPS_H
#define SHEAF_OPS_H

enum wire_op {
#define OP(number, NAME, name, args, res, flags, how) OP_##NAME = number,
#include "proto/ops.def"
#undef OP
	N_OPS /* above all numbers */
};

/* The arguments of an operation. */
union wire_op_args {
#define OP(number, NAME, name, args, res, flags, how) struct wire_##args NAME;
#include "proto/ops.def"
#undef OP
};

enum op_flag {
	OPF_META = 1, /* needs a server with metadata */
	OPF_DATA = 2, /* needs a server with data */
	OPF_SERVERS = 4, /* only over links that proved the server key */
	OPF_ADMIN = 8, /* only for uid 0 */
	OPF_NO_SESSION = 16,
	OPF_UNSYNCED = 32, /* a crash may undo its effect until the next sync */
	OPF_ONCE = 64, /* never executed again after an unknown outcome */
	OPF_ANY_MAP = 128, /* also served to a client with an older map */
	OPF_CLAIM = 256, /* may precede the claims of a client after a restart */
	OPF_MOVES = 512, /* cached referrals may be wrong after it */
};

struct wire_op_row {
	const char *name; /* NULL: no operation has this number */
	unsigned flags;
	xdr_any args, res; /* the filters ... */
	uint16_t args_size, res_size; /* ... and the sizes of their structs */
};
extern const struct wire_op_row wire_op_rows[N_OPS];

/* NULL: there is no such operation. */
static inline const struct wire_op_row *wire_op_row(uint32_t op)
{
	return op < N_OPS && wire_op_rows[op].name ? &wire_op_rows[op] : NULL;
}

#endif
