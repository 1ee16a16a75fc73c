/* Extended attributes by handle: one call each to the server that owns the inode. */
#include "client/names_impl.h"

/* Checks a name before it is put into a message. */
static int name_check(const char *name)
{
	size_t n = strlen(name);

	return n == 0 || n > XATTR_NAME_LEN ? -ERANGE : 0;
}

/* ACLs: after a change of one, cached referrals may lead where their user may no longer go. */
static bool is_system(const char *name)
{
	return strncmp(name, "system.", 7) == 0;
}

void client_getxattr(struct cop *op, struct sheaf_handle h, const char *name, size_t max)
{
	op->args.GETXATTR = (struct wire_getxattr_args){ { h.ino, h.gen },
							 wire_text(name),
							 (uint32_t)MIN(max, XATTR_VALUE_LEN) };
	inode_start(op, OP_GETXATTR, &op->args.GETXATTR.h, name_check(name));
}

void client_listxattr(struct cop *op, struct sheaf_handle h, size_t max)
{
	op->args.LISTXATTR = (struct wire_listxattr_args){ { h.ino, h.gen },
							   (uint32_t)MIN(max, XATTR_VALUE_LEN) };
	inode_start(op, OP_LISTXATTR, &op->args.LISTXATTR.h, 0);
}

void client_setxattr(struct cop *op, struct sheaf_handle h, const char *name, const void *value,
		     size_t size, int flags)
{
	int e = name_check(name);

	if (!e && (flags & ~(XATTR_MUST_CREATE | XATTR_MUST_REPLACE)))
		e = -EINVAL;
	if (!e && size > XATTR_VALUE_LEN)
		e = -E2BIG;
	op->args.SETXATTR = (struct wire_setxattr_args){ .h = { h.ino, h.gen },
							 .name = wire_text(name),
							 .value = { (uint32_t)size, value },
							 .flags = (uint32_t)flags };
	op->moves = is_system(name);
	inode_start(op, OP_SETXATTR, &op->args.SETXATTR.h, e);
}

void client_removexattr(struct cop *op, struct sheaf_handle h, const char *name)
{
	op->args.REMOVEXATTR = (struct wire_removexattr_args){ { h.ino, h.gen }, wire_text(name) };
	op->moves = is_system(name);
	inode_start(op, OP_REMOVEXATTR, &op->args.REMOVEXATTR.h, name_check(name));
}
