/* Requests of administrators to one server: its map, adding a target, a copy of its metadata. One
 * call each.
 *
 * A client whose key may speak for all users is the administrator: the calls are made as root. */
#include "client/client_impl.h"

static void as_root(struct cop *op)
{
	op->cred = (struct cred_wire){ 0 };
}

void client_map(struct cop *op, uint32_t target, uint64_t timeout_ns)
{
	as_root(op);
	client_ask(op, OP_MAP, target, timeout_ns);
}

void client_add_target(struct cop *op, uint32_t target, const struct wire_map_target *t,
		       bool emptied)
{
	as_root(op);
	op->args.add_target = (struct wire_add_target_args){ *t, emptied };
	client_ask(op, OP_ADD_TARGET, target, op->c->timeout_ns);
}

void client_backup(struct cop *op, uint32_t target, uint64_t id, uint64_t offset)
{
	as_root(op);
	op->args.backup = (struct wire_backup_args){ id, offset };
	client_ask(op, OP_BACKUP, target, op->c->timeout_ns);
}
