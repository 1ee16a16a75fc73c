/* Extended attributes: reads answer at once, changes are one record each. Permissions are checked
 * in meta/. sheaf.layout is not stored but made on request, for people; like stat(2) it needs no
 * permission. */
#include <stdio.h>

#include "server/pair.h"

static const char layout_name[] = "sheaf.layout";

/* "unit=65536 start=0 servers=server0,server1" */
static int layout_text(struct sreq *s, const struct wire_layout_rec *l, struct wire_bytes *out)
{
	const struct wire_map_res *m = &s->srv->map;
	size_t cap = 64 + l->n_targets * sizeof(((struct conf_target *)0)->name), n;
	char *text = arena_alloc(&s->arena, cap);

	if (!text)
		return -ENOMEM;
	n = (size_t)snprintf(text, cap, "unit=%u start=%u servers=", l->unit, l->start);
	for (uint32_t i = 0; i < l->n_targets; i++) {
		uint32_t id = l->targets[i];

		if (id < m->n_targets)
			n += (size_t)snprintf(text + n, cap - n, "%s%.*s", i ? "," : "",
					      (int)m->targets[id].name.len,
					      (const char *)m->targets[id].name.p);
		else
			n += (size_t)snprintf(text + n, cap - n, "%s%u", i ? "," : "", id);
	}
	*out = (struct wire_bytes){ (uint32_t)n, (uint8_t *)text };
	return 0;
}

static int get_layout(struct sreq *s, const struct wire_getxattr_args *a)
{
	struct wire_xattr_res *r = s->res;
	struct meta_node n;
	int e = meta_get(s->srv->meta, &a->h, &n, &s->arena);

	if (!e && !n.layout.n_targets)
		e = -ENODATA;
	if (!e)
		e = layout_text(s, &n.layout, &r->data);
	r->size = r->data.len;
	if (r->size > a->max)
		r->data.len = 0;
	return e;
}

int do_getxattr(struct sreq *s)
{
	struct wire_getxattr_args *a = s->args;

	s->ino = a->h.ino;
	if (a->name.len == strlen(layout_name) && memcmp(a->name.p, layout_name, a->name.len) == 0)
		return get_layout(s, a);
	return meta_getxattr(s->srv->meta, &s->cred, &a->h, &a->name, a->max, s->res, &s->arena);
}

int do_listxattr(struct sreq *s)
{
	struct wire_listxattr_args *a = s->args;

	s->ino = a->h.ino;
	return meta_listxattr(s->srv->meta, &s->cred, &a->h, a->max, s->res, &s->arena);
}

/* A change of permissions on a directory waits for leases on names in it. */
static int passers_gone(struct sreq *s, const struct wire_bytes *name)
{
	static const char system[] = "system."; /* of these, only ACLs exist */

	if (name->len < strlen(system) || memcmp(name->p, system, strlen(system)) != 0)
		return 0;
	return lease_block(s, s->head.session, s->ino, NULL);
}

static int prepare_xattr(struct sreq *s, uint32_t kind, const struct wire_handle *h,
			 const struct wire_bytes *name)
{
	int e;

	s->ino = h->ino;
	e = passers_gone(s, name);
	sreq_record(s, kind);
	s->change.rec.h = *h;
	s->change.rec.name = *name;
	return e;
}

int prepare_setxattr(struct sreq *s)
{
	struct wire_setxattr_args *a = s->args;
	int e = prepare_xattr(s, REC_SETXATTR, &a->h, &a->name);

	s->change.rec.data = a->value;
	s->change.rec.flags = (a->flags & XATTR_MUST_CREATE ? REC_EXCL : 0) |
			      (a->flags & XATTR_MUST_REPLACE ? REC_REPLACE : 0);
	return e;
}

int prepare_removexattr(struct sreq *s)
{
	struct wire_removexattr_args *a = s->args;

	return prepare_xattr(s, REC_REMOVEXATTR, &a->h, &a->name);
}
