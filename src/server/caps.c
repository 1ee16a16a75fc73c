/* Capabilities: made by metadata servers at open, checked by data targets at every access. */
#include "server/srv.h"

static void sign(const struct server *srv, const struct wire_capability *c, uint8_t mac[MAC_BYTES])
{
	struct wire_capability copy = *c;
	uint8_t text[128];
	struct xdr x;

	memset(copy.mac, 0, sizeof(copy.mac));
	xdr_encoder(&x, text, sizeof(text));
	xdr_wire_capability(&x, &copy);
	mac_make(mac, srv->server_key,
		 (struct mac_part[]){ { "capability", 10 }, { text, xdr_used(&x) }, { NULL, 0 } });
}

void cap_make(struct server *srv, struct wire_capability *c, const struct meta_node *n,
	      uint32_t rights, uint64_t client)
{
	struct env *e = srv->loop->env;

	*c = (struct wire_capability){ .ino = n->attr.ino,
				       .obj_gen = n->layout.obj_gen,
				       .rights = rights,
				       .epoch = n->epoch,
				       .client = client,
				       .expires = e->clock->wall(e) + CAP_LIFE_NS };
	sign(srv, c, c->mac);
}

/* Has this very capability been verified before? */
static struct wire_capability *cached(struct server *srv, const struct wire_capability *c)
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

int cap_check(struct server *srv, const struct wire_capability *c, uint32_t rights)
{
	struct env *e = srv->loop->env;
	struct wire_capability *known = cached(srv, c);
	uint8_t mac[MAC_BYTES];

	if (!c->ino)
		return -EKEYREJECTED;
	if (!same(known, c)) {
		sign(srv, c, mac);
		if (!mac_equal(mac, c->mac))
			return -EKEYREJECTED;
		*known = *c;
	}
	if ((c->rights & rights) != rights)
		return -EACCES;
	if (c->expires < e->clock->wall(e) || c->epoch < disk_floor(srv->disk, c->ino))
		return -EKEYEXPIRED;
	return 0;
}
