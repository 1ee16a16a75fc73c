/* The server's table of operations: how each row of proto/ops.def is executed. */
#include "server/op_state.h"
#include "server/pair.h"
#include "server/window.h"

#define HANDLE(h) .ops = &handle_ops, .handle = h
#define CHANGE(p, f) .ops = &change_ops, .prepare = p, .finish = f
#define NAMES(p, f, sp) \
	.ops = &pair_ops, .prepare = p, .finish = f, .split = sp, \
	.state_size = sizeof(struct pair_state)
#define STEPS(o, state) .ops = &o, .state_size = sizeof(struct state)
#define OP(number, NAME, name, args, res, flags, how) \
	[number] = { .wire = &wire_op_rows[number], how },

const struct op_row op_rows[N_OPS] = {
#include "proto/ops.def"
};

const struct op_row *op_row(uint32_t op)
{
	return op < N_OPS && op_rows[op].wire ? &op_rows[op] : NULL;
}
