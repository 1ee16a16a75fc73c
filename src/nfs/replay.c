/* Retransmissions of calls that are not idempotent. A call is the same if client, xid, procedure,
 * user and arguments are; the rest of the message may differ, since some clients write the time
 * into their credential. Its id, a HMAC of these, goes with its changes to the servers, which keep
 * their answers: a gateway that does not know the call executes it again and gets those. A bounded
 * number of replies is kept here, too, the oldest go first. */
#include <stdlib.h>

#include "nfs/nfs_priv.h"

#define REPLAYS_MAX 4096
#define REPLY_MAX 1024 /* longer ones are not kept: such calls have none */

struct replay {
	struct hnode node;
	struct list link;
	uint8_t call_id[16];
	uint32_t len; /* 0: in progress */
	struct nfs_call *waiter; /* a retransmission that waits for the reply, or NULL */
	uint8_t reply[REPLY_MAX];
};

int replay_init(struct gateway *g)
{
	list_init(&g->replays_by_age);
	return htab_init(&g->replays);
}

void replay_name(struct nfs_call *c)
{
	static const char purpose[] = "call";
	const uint32_t what[] = { c->head.xid, c->head.program, c->head.procedure, c->uid, c->gid };
	uint64_t place = address_place(c->g, &c->from);
	uint8_t mac[MAC_BYTES];

	mac_make_with(mac, c->g->handle_key,
		      (struct mac_part[]){ { purpose, sizeof(purpose) },
					   { c->from.addr, 16 },
					   { &place, sizeof(place) },
					   { what, sizeof(what) },
					   { c->in->p + c->args_at, c->in_len - c->args_at },
					   { NULL, 0 } });
	memcpy(c->call_id, mac, sizeof(c->call_id));
}

static uint64_t hash_of(const struct nfs_call *c)
{
	return hash_bytes(c->call_id, sizeof(c->call_id), 1);
}

static struct replay *find(const struct nfs_call *c)
{
	struct hnode *n = htab_first(&c->g->replays, hash_of(c));

	for (; n; n = htab_next(n)) {
		struct replay *r = container_of(n, struct replay, node);

		if (memcmp(r->call_id, c->call_id, sizeof(r->call_id)) == 0)
			return r;
	}
	return NULL;
}

static void forget(struct gateway *g, struct replay *r)
{
	if (r->waiter)
		call_free(r->waiter);
	htab_remove(&g->replays, &r->node);
	list_del(&r->link);
	g->n_replays--;
	free(r);
}

/* Answers c with the stored reply. */
static void answer(struct nfs_call *c, const struct replay *r)
{
	c->out = buf_take(c->g, r->len);
	if (!c->out) {
		c->transport->drop(c);
		return;
	}
	memcpy(c->out->p, r->reply, r->len);
	c->out_len = r->len;
	c->transport->send(c);
}

bool replay_find(struct nfs_call *c)
{
	struct gateway *g = c->g;
	struct replay *r = find(c);

	if (r && r->len)
		answer(c, r);
	if (r && !r->len) {
		if (r->waiter)
			call_free(r->waiter);
		r->waiter = c;
	}
	g->n_replayed += r != NULL;
	if (r)
		return true;
	if (g->n_replays == REPLAYS_MAX)
		forget(g, list_first(&g->replays_by_age, struct replay, link));
	r = malloc(sizeof(*r));
	if (!r)
		return false;
	r->len = 0;
	r->waiter = NULL;
	memcpy(r->call_id, c->call_id, sizeof(r->call_id));
	if (htab_insert(&g->replays, &r->node, hash_of(c))) {
		free(r);
		return false;
	}
	list_push(&g->replays_by_age, &r->link);
	g->n_replays++;
	return false;
}

void replay_store(struct nfs_call *c)
{
	struct replay *r = find(c);

	if (!r)
		return;
	if (c->out_len > REPLY_MAX) {
		forget(c->g, r);
		return;
	}
	memcpy(r->reply, c->out->p, c->out_len);
	r->len = (uint32_t)c->out_len;
	if (r->waiter)
		answer(r->waiter, r);
	r->waiter = NULL;
}

void replay_fail(struct nfs_call *c)
{
	struct replay *r = find(c);
	struct nfs_call *waiter = r ? r->waiter : NULL;

	if (!r || r->len)
		return;
	r->waiter = NULL;
	forget(c->g, r);
	if (waiter)
		waiter->transport->drop(waiter);
}

void replay_end(struct gateway *g)
{
	while (!list_empty(&g->replays_by_age))
		forget(g, list_first(&g->replays_by_age, struct replay, link));
	htab_destroy(&g->replays);
}
