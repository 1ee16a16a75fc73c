/* The user that a request acts for: checks what the key of its link allows, and squashes root of
 * untrusted networks. Also ties a session to the key that it was opened with. */
#include "server/sreq.h"

static uint32_t gid_of(uint32_t gid)
{
	return gid ? gid : NOBODY;
}

/* Turns root and its group into nobody; a squashed root loses its other groups. */
static void squash(struct wire_req_head *h)
{
	uint32_t n = 0;

	if (h->uid == 0) {
		h->uid = h->gid = NOBODY;
		h->n_gids = 0;
	}
	h->gid = gid_of(h->gid);
	for (uint32_t i = 0; i < h->n_gids; i++)
		if (h->gids[i])
			h->gids[n++] = h->gids[i];
	h->n_gids = n;
}

bool sreq_may_be_root(const struct sreq *s)
{
	return s->link->role == LINK_SERVER ||
	       (s->link->acts_for.any && !conf_squashes(s->srv->auth_conf, &s->link->from));
}

int sreq_identify(struct sreq *s)
{
	struct wire_req_head *h = &s->head;
	struct link *l = s->link;

	if (!key_allows(&l->acts_for, h->uid, h->gid, h->gids, &h->n_gids)) {
		link_refused(l, REFUSED_CREDENTIAL, "%s for uid %u, gid %u; the key is for uid %u",
			     s->row->wire->name, h->uid, h->gid, l->acts_for.uid);
		return -EPERM;
	}
	if (h->call_id.len && (h->call_id.len != CALL_ID_BYTES || !l->acts_for.any)) {
		link_refused(l, REFUSED_CREDENTIAL, "%s with a call's id, which are for gateways",
			     s->row->wire->name);
		return -EPERM;
	}
	if (l->role != LINK_SERVER && conf_squashes(s->srv->auth_conf, &l->from))
		squash(h);
	s->cred = (struct cred){ h->uid, h->gid, h->n_gids, h->gids };
	s->has_cred = true;
	return 0;
}

void session_mac(const struct sreq *s, const uint8_t secret[16], uint8_t out[16])
{
	uint8_t mac[MAC_BYTES];

	mac_make_with(mac, s->srv->signer,
		      (struct mac_part[]){ { "session", 7 },
					   { secret, 16 },
					   { s->link->key, strlen(s->link->key) },
					   { NULL, 0 } });
	memcpy(out, mac, 16);
}
