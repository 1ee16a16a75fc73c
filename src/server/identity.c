/* Whom a request speaks for: what the key of its link allows, and what is left of root that comes from afar.
 * And what ties a session to the key that it was opened with, and how many of them there may be. */
#include "server/srv.h"

static uint32_t gid_of(uint32_t gid)
{
	return gid ? gid : NOBODY;
}

/* Root, its group too, becomes nobody; a root that was squashed has no other groups. */
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
	       (s->link->speaks.any && !conf_squashes(s->srv->doors, &s->link->from));
}

int sreq_identify(struct sreq *s)
{
	struct wire_req_head *h = &s->head;
	struct link *l = s->link;

	if (!key_allows(&l->speaks, h->uid, h->gid, h->gids, &h->n_gids)) {
		link_refused(l, REFUSED_CREDENTIAL, "%s for uid %u, gid %u; the key is for uid %u",
			     s->row->name, h->uid, h->gid, l->speaks.uid);
		return -EPERM;
	}
	if (l->role != LINK_SERVER && conf_squashes(s->srv->doors, &l->from))
		squash(h);
	s->cred = (struct cred){ h->uid, h->gid, h->n_gids, h->gids };
	return 0;
}

void session_proof(const struct sreq *s, const uint8_t secret[16], uint8_t out[16])
{
	uint8_t mac[MAC_BYTES];

	mac_make_with(mac, s->srv->signer,
		      (struct mac_part[]){ { "session", 7 },
					   { secret, 16 },
					   { s->link->key, strlen(s->link->key) },
					   { NULL, 0 } });
	memcpy(out, mac, 16);
}

/* A key for one user gets an eighth of all. */
int session_room(const struct sreq *s)
{
	const struct sessions *t = &s->srv->sessions;
	uint32_t most = s->srv->max_sessions, n = t->count;
	struct session *ss;

	if (s->link->role == LINK_SERVER)
		return 0;
	if (n < most && !s->link->speaks.any) {
		most /= 8;
		n = 0;
		list_for_each(ss, &t->all, all)
			n += strcmp(ss->key, s->link->key) == 0;
	}
	if (n < most)
		return 0;
	link_refused(s->link, REFUSED_LIMIT, "a session more than %u", most);
	return -EUSERS;
}
