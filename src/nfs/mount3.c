/* MOUNT: the handle of a directory from its path, /NAME or /NAME/SUB, and the list of exports. The
 * gateway keeps no list of mounts: it would be wrong after a restart. */
#include <stdio.h>

#include "nfs/nfs_priv.h"

static uint32_t mount_status_of(int r)
{
	switch (-r) {
	case 0:
		return MOUNT_OK;
	case ENOENT:
	case ESTALE:
		return MOUNT_ENOENT;
	case EACCES:
	case EPERM:
		return MOUNT_EACCES;
	case ENOTDIR:
		return MOUNT_ENOTDIR;
	case ENAMETOOLONG:
		return MOUNT_ENAMETOOLONG;
	default:
		return MOUNT_ESERVERFAULT;
	}
}

/* The export that a path begins with, and the rest of the path; NULL: none. */
static const struct conf_export *find(const struct conf *c, const char *path, const char **rest)
{
	size_t n;

	path += strspn(path, "/");
	n = strcspn(path, "/");
	*rest = path + n;
	return export_by_name(c, path, n);
}

static void tell(const struct nfs_call *c, const char *path, const char *what)
{
	char from[ORIGIN_TEXT];

	origin_format(from, &c->from);
	log_info("nfs", "mount of %.200s by %s: %s", path, from, what);
}

static void mount_mnt(struct nfs_call *c)
{
	static uint32_t flavors[] = { AUTH_SYS };
	const struct wire_mount_path *a = c->args;
	struct wire_mount_result *r = c->res;
	char *path = arena_strndup(&c->arena, (const char *)a->path.p, a->path.len);
	const struct conf_export *e;
	struct sheaf_handle h;
	const char *rest;

	r->status = MOUNT_ESERVERFAULT;
	if (!path)
		return;
	e = find(c->conf->conf, path, &rest);
	if (!e)
		r->status = MOUNT_ENOENT;
	else if (export_enter(c, e) != NFS3_OK)
		r->status = MOUNT_EACCES;
	else
		r->status = mount_status_of(export_walk(c, e, rest, &h));
	c->failed = r->status;
	if (r->status == MOUNT_OK && handle_make(c, &h, &r->root.handle)) {
		r->root.n_flavors = ARRAY_LEN(flavors);
		r->root.flavors = flavors;
	} else if (r->status == MOUNT_OK) {
		r->status = MOUNT_ESERVERFAULT;
	}
	tell(c, path, wire_mount_status_name(r->status));
}

static struct wire_bytes text_of(struct nfs_call *c, const char *text)
{
	char *copy = arena_strndup(&c->arena, text, strlen(text));

	return wire_text(copy ? copy : "?");
}

static struct wire_bytes net_text(struct nfs_call *c, const struct ip_net *n)
{
	struct origin o = { 0 };
	char host[ORIGIN_TEXT], text[ORIGIN_TEXT + 8];
	bool v4;

	memcpy(o.addr, n->addr, sizeof(o.addr));
	origin_format(host, &o);
	v4 = !strchr(host, ':');
	snprintf(text, sizeof(text), "%s/%d", host, v4 ? n->bits - 96 : n->bits);
	return text_of(c, text);
}

static void mount_export(struct nfs_call *c)
{
	const struct conf *conf = c->conf->conf;
	struct wire_mount_exports *r = c->res;
	char path[CONF_NAME_MAX + 1];

	r->entries = call_alloc(c, MAX(conf->n_exports, 1) * sizeof(*r->entries));
	c->reply_room = LISTING_MAX;
	for (uint32_t i = 0; r->entries && i < conf->n_exports; i++) {
		const struct conf_export *e = &conf->exports[i];
		struct wire_mount_export *out = &r->entries[r->n_entries++];

		snprintf(path, sizeof(path), "/%s", e->name);
		out->path = text_of(c, path);
		out->groups = call_alloc(c, MAX(e->n_nets, 1) * sizeof(*out->groups));
		for (uint32_t k = 0; out->groups && k < e->n_nets; k++)
			out->groups[out->n_groups++].name = net_text(c, &e->nets[k]);
	}
}

static const struct rpc_proc procs[] = {
	[MOUNT_NULL] = { .name = "null" },
	[MOUNT_MNT] = RPC_PROC("mnt", mount_path, mount_result, mount_mnt, false),
	[MOUNT_DUMP] = { .name = "dump",
			 .res = XDR_ANY(xdr_wire_mount_dump),
			 .res_size = sizeof(struct wire_mount_dump) },
	[MOUNT_UMNT] = { .name = "umnt",
			 .args = XDR_ANY(xdr_wire_mount_path),
			 .args_size = sizeof(struct wire_mount_path) },
	[MOUNT_UMNTALL] = { .name = "umntall" },
	[MOUNT_EXPORT] = { .name = "export",
			   .res = XDR_ANY(xdr_wire_mount_exports),
			   .res_size = sizeof(struct wire_mount_exports),
			   .run = mount_export },
};

const struct rpc_program mount3_program = { "mount", MOUNT_PROGRAM,    MOUNT_VERSION,
					    procs,   ARRAY_LEN(procs), false };
