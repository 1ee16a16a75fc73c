/* Capabilities: made by metadata servers at open, checked by data targets at every access.
 *
 * A capability is valid for the objects of its file at every target, for clients with the same key
 * as the client it was issued to: the signature covers that key. The session in it is one of the
 * metadata server, unknown to data targets. */
#include "server/cap.h"

static void sign(const struct server *srv, const char *key, const struct wire_capability *c,
		 uint8_t mac[MAC_BYTES])
{
	struct wire_capability copy = *c;
	uint8_t text[128];
	struct xdr x;

	memset(copy.mac, 0, sizeof(copy.mac));
	xdr_encoder(&x, text, sizeof(text));
	xdr_wire_capability(&x, &copy);
	mac_make_with(mac, srv->signer,
		      (struct mac_part[]){ { "capability", 10 },
					   { text, xdr_used(&x) },
					   { key, strlen(key) },
					   { NULL, 0 } });
}

void cap_sign(const struct server *srv, const char *key, struct wire_capability *c)
{
	sign(srv, key, c, c->mac);
}

void cap_make(const struct sreq *s, struct wire_capability *c, const struct meta_node *n,
	      uint32_t rights)
{
	struct env *e = s->srv->loop->env;

	*c = (struct wire_capability){ .ino = n->attr.ino,
				       .obj_gen = n->layout.obj_gen,
				       .rights = rights,
				       .epoch = n->epoch,
				       .client = s->head.session,
				       .expires = e->clock->wall(e) + CAP_LIFE_NS };
	cap_sign(s->srv, s->link->key, c);
}

struct wire_capability cap_own(const struct server *srv, const struct meta_node *n, uint32_t rights)
{
	struct env *e = srv->loop->env;
	struct wire_capability c = { .ino = n->attr.ino,
				     .obj_gen = n->layout.obj_gen,
				     .rights = rights,
				     .epoch = n->epoch,
				     .expires = e->clock->wall(e) + CAP_LIFE_NS };

	cap_sign(srv, "", &c);
	return c;
}

/* The cache entry for this capability. */
static struct known_cap *cached(struct server *srv, const struct wire_capability *c)
{
	uint64_t key;

	memcpy(&key, c->mac, sizeof(key));
	return &srv->cap_cache[key % CAP_CACHE];
}

static bool same(const struct wire_capability *a, const struct wire_capability *b)
{
	return a->ino == b->ino && a->obj_gen == b->obj_gen && a->rights == b->rights &&
	       a->epoch == b->epoch && a->client == b->client && a->expires == b->expires &&
	       mac_equal(a->mac, b->mac);
}

/* Was it issued by a metadata server to a client with this key? */
static bool genuine(struct server *srv, const char *key, const struct wire_capability *c)
{
	struct known_cap *known = cached(srv, c);
	uint8_t mac[MAC_BYTES];

	if (!c->ino)
		return false;
	if (same(&known->cap, c) && strcmp(known->key, key) == 0)
		return true;
	sign(srv, key, c, mac);
	if (!mac_equal(mac, c->mac))
		return false;
	known->cap = *c;
	strcpy(known->key, key);
	return true;
}

static int refuse_stale(struct sreq *s, uint64_t ino)
{
	link_refused(s->link, REFUSED_STALE, "%s of inode %llu", s->row->wire->name,
		     (unsigned long long)ino);
	return -EKEYEXPIRED;
}

int access_check(struct sreq *s, const struct wire_access *a, uint32_t rights)
{
	return a->index >= TARGETS_MAX ? -EINVAL : cap_check(s, &a->cap, rights);
}

int cap_check(struct sreq *s, const struct wire_capability *c, uint32_t rights)
{
	struct server *srv = s->srv;
	struct env *e = srv->loop->env;
	const char *op = s->row->wire->name;
	unsigned long long ino = c->ino;

	if (!genuine(srv, s->link->key, c)) {
		link_refused(s->link, REFUSED_FORGED, "%s of inode %llu", op, ino);
		return -EKEYREJECTED;
	}
	if ((c->rights & rights) != rights) {
		link_refused(s->link, REFUSED_RIGHTS, "%s of inode %llu", op, ino);
		return -EACCES;
	}
	if (c->expires < e->clock->wall(e) || c->epoch < disk_floor(srv->disk, c->ino))
		return refuse_stale(s, c->ino);
	return 0;
}

void cap_refused(struct sreq *s)
{
	if (s->q.error == -ESTALE)
		s->q.error = refuse_stale(s, s->ino);
}
