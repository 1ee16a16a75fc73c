/* Counters by client. A bounded number of clients is kept; the one whose last call is the oldest
 * goes first. */
#include <stdlib.h>

#include "nfs/nfs_priv.h"

#define CLIENTS_MAX 1024

int clients_init(struct gateway *g)
{
	list_init(&g->clients_by_use);
	return htab_init(&g->clients);
}

static struct nfs_client *find(struct gateway *g, const struct origin *from)
{
	struct hnode *n = htab_first(&g->clients, hash_bytes(from->addr, 16, 1));

	for (; n; n = htab_next(n)) {
		struct nfs_client *k = container_of(n, struct nfs_client, node);

		if (memcmp(k->from.addr, from->addr, 16) == 0)
			return k;
	}
	return NULL;
}

static void forget(struct gateway *g, struct nfs_client *k)
{
	htab_remove(&g->clients, &k->node);
	list_del(&k->link);
	free(k);
}

static struct nfs_client *add(struct gateway *g, const struct origin *from)
{
	struct nfs_client *k;

	if (g->clients.count >= CLIENTS_MAX)
		forget(g, list_first(&g->clients_by_use, struct nfs_client, link));
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->from = *from;
	list_init(&k->link);
	if (htab_insert(&g->clients, &k->node, hash_bytes(from->addr, 16, 1))) {
		free(k);
		return NULL;
	}
	return k;
}

void clients_count(struct nfs_call *c, uint64_t ns)
{
	struct nfs_client *k = find(c->g, &c->from);

	if (!k)
		k = add(c->g, &c->from);
	if (!k)
		return;
	counts_add(&k->counts, c, ns);
	k->received += c->in_len;
	k->sent += c->out_len + c->data_len;
	list_del(&k->link);
	list_push(&c->g->clients_by_use, &k->link);
}

void clients_end(struct gateway *g)
{
	while (!list_empty(&g->clients_by_use))
		forget(g, list_first(&g->clients_by_use, struct nfs_client, link));
	htab_destroy(&g->clients);
}
