/* Extended attributes: reads answer at once, changes are one record each. Who may do what is meta's. */
#include "server/srv.h"

int do_getxattr(struct sreq *s)
{
	struct wire_getxattr_args *a = s->args;

	s->ino = a->h.ino;
	return meta_getxattr(s->srv->meta, &s->cred, &a->h, &a->name, a->max, s->res, &s->arena);
}

int do_listxattr(struct sreq *s)
{
	struct wire_listxattr_args *a = s->args;

	s->ino = a->h.ino;
	return meta_listxattr(s->srv->meta, &s->cred, &a->h, a->max, s->res, &s->arena);
}

int prepare_setxattr(struct sreq *s)
{
	struct wire_setxattr_args *a = s->args;
	struct wire_record *r = &s->change.rec;

	s->ino = a->h.ino;
	sreq_record(s, REC_SETXATTR);
	r->h = a->h;
	r->name = a->name;
	r->data = a->value;
	r->flags = (a->flags & XATTR_MUST_CREATE ? REC_EXCL : 0) |
		   (a->flags & XATTR_MUST_REPLACE ? REC_REPLACE : 0);
	return 0;
}

int prepare_removexattr(struct sreq *s)
{
	struct wire_removexattr_args *a = s->args;
	struct wire_record *r = &s->change.rec;

	s->ino = a->h.ino;
	sreq_record(s, REC_REMOVEXATTR);
	r->h = a->h;
	r->name = a->name;
	return 0;
}
