/* Exports: which clients may use them, and as whom. */
#include <stdio.h>

#include "nfs/nfs_priv.h"

#define PRIVILEGED_PORTS 1024 /* only root of a client may use those below */
#define NO_ID UINT32_MAX /* no user or group has this number: chown(2) */

const struct conf_export *export_by_name(const struct conf *c, const char *name, size_t len)
{
	for (uint32_t i = 0; i < c->n_exports; i++)
		if (strlen(c->exports[i].name) == len && memcmp(c->exports[i].name, name, len) == 0)
			return &c->exports[i];
	return NULL;
}

bool export_admits(const struct conf_export *e, const struct origin *from)
{
	for (uint32_t i = 0; i < e->n_nets; i++)
		if (ip_net_holds(&e->nets[i], from))
			return true;
	return e->n_nets == 0;
}

bool exports_admit(const struct conf *c, const struct origin *from)
{
	for (uint32_t i = 0; i < c->n_exports; i++)
		if (export_admits(&c->exports[i], from))
			return true;
	return false;
}

static bool allows_port(const struct conf_export *e, uint16_t port)
{
	return e->insecure || port < PRIVILEGED_PORTS;
}

bool exports_trust(const struct conf *c, const struct origin *from, uint16_t port)
{
	for (uint32_t i = 0; i < c->n_exports; i++)
		if (export_admits(&c->exports[i], from) && allows_port(&c->exports[i], port))
			return true;
	return false;
}

static void become_anonymous(struct nfs_call *c, const struct conf_export *e)
{
	c->uid = e->anon_uid;
	c->gid = e->anon_gid;
	c->n_gids = 0;
}

static void squash(struct nfs_call *c, const struct conf_export *e)
{
	if (e->squash == SQUASH_NONE)
		return;
	if (e->squash == SQUASH_ALL || c->uid == 0) {
		become_anonymous(c, e);
		return;
	}
	if (c->gid == 0)
		c->gid = e->anon_gid;
	for (uint32_t i = 0; i < c->n_gids; i++)
		if (c->gids[i] == 0)
			c->gids[i] = e->anon_gid;
}

uint32_t export_enter(struct nfs_call *c, const struct conf_export *e)
{
	if (c->export == e)
		return NFS3_OK;
	if (!export_admits(e, &c->from))
		return NFS3_EACCES;
	if (!allows_port(e, c->port))
		return NFS3_EPERM;
	if (c->head.credential.flavor == AUTH_NONE || c->uid == NO_ID)
		become_anonymous(c, e);
	if (c->gid == NO_ID)
		c->gid = e->anon_gid;
	if (e->manage_gids)
		groups_look_up(c);
	squash(c, e);
	c->cred = (struct sheaf_cred){ .uid = c->uid,
				       .gid = c->gid,
				       .n_gids = c->n_gids,
				       .gids = c->gids,
				       .call_id = c->proc->once ? c->call_id : NULL };
	c->export = e;
	if (c->program->in_session && !c->session) {
		c->session = nfs_session_get(c->g, &c->from, &c->to);
		c->fs = c->session->fs;
	}
	return NFS3_OK;
}

int export_walk(struct nfs_call *c, const struct conf_export *e, const char *path,
		struct sheaf_handle *out)
{
	struct sheaf_handle h = sheaf_root(c->fs);
	char all[CONF_PATH_MAX + MOUNT_PATH_MAX + 2], *at = all, *name;
	struct stat st;
	int r;

	snprintf(all, sizeof(all), "%s/%s", e->path, path);
	while ((name = strsep(&at, "/"))) {
		bool below = name - all > (ptrdiff_t)strlen(e->path);

		if (!name[0] || strcmp(name, ".") == 0)
			continue;
		if (strcmp(name, "..") == 0)
			return -EACCES;
		/* the administrator chose the path of the export, the client what is below */
		r = sheaf_h_lookup(c->fs, below ? &c->cred : &cred_gateway, h, name, &h, &st);
		if (r)
			return r;
		if (!S_ISDIR(st.st_mode))
			return -ENOTDIR;
	}
	*out = h;
	return 0;
}

/* Is the directory at or below `root`? One that was moved out of its export is not. */
static bool is_below(struct nfs_call *c, struct sheaf_handle dir, struct sheaf_handle root)
{
	struct sheaf_handle top = sheaf_root(c->fs), up;
	struct stat st;

	while (dir.ino != root.ino) {
		if (dir.ino == top.ino || sheaf_h_lookup(c->fs, &cred_gateway, dir, "..", &up, &st))
			return false;
		dir = up;
	}
	return true;
}

int find_up(struct nfs_call *c, struct sheaf_handle dir, struct sheaf_handle *up, struct stat *st)
{
	struct sheaf_handle root;
	int r = export_walk(c, c->export, "", &root);

	if (r)
		return r;
	if (root.ino == dir.ino) {
		*up = dir;
		return sheaf_h_getattr(c->fs, &c->cred, dir, st);
	}
	if (!is_below(c, dir, root))
		return -ESTALE;
	return sheaf_h_lookup(c->fs, &c->cred, dir, "..", up, st);
}
