/* A session of libsheaf for each client: its opens, locks and limits are its own. A client is known
 * by its address and by that of the gateway which it uses, so a gateway that takes over the address
 * has sessions of the same names, and the servers give them the locks of the dead one. A client
 * that uses two gateways has two sessions. A session without locks ends when it was not used for
 * IDLE_NS. */
#include <stdio.h>
#include <stdlib.h>

#include "nfs/nfs_priv.h"

#define IDLE_NS (60 * NSEC_PER_SEC)

int nfs_sessions_init(struct gateway *g)
{
	list_init(&g->sessions_by_use);
	return htab_init(&g->sessions);
}

static uint64_t hash_of(const struct origin *from, const struct origin *to)
{
	return hash_bytes(from->addr, 16, hash_bytes(to->addr, 16, 2));
}

static struct nfs_session *find(struct gateway *g, const struct origin *from,
				const struct origin *to)
{
	struct hnode *n = htab_first(&g->sessions, hash_of(from, to));

	for (; n; n = htab_next(n)) {
		struct nfs_session *s = container_of(n, struct nfs_session, node);

		if (memcmp(s->from.addr, from->addr, 16) == 0 &&
		    memcmp(s->to.addr, to->addr, 16) == 0)
			return s;
	}
	return NULL;
}

static int connect_as(struct nfs_session *s)
{
	static const char purpose[] = "session";
	char host[ORIGIN_TEXT + 8], from[ORIGIN_TEXT];
	struct gateway *g = s->g;
	uint8_t name[MAC_BYTES];

	origin_format(from, &s->from);
	snprintf(host, sizeof(host), "nfs %s", from);
	mac_make_with(name, g->handle_key,
		      (struct mac_part[]){ { purpose, sizeof(purpose) },
					   { s->from.addr, 16 },
					   { s->to.addr, 16 },
					   { &g->port, sizeof(g->port) },
					   { NULL, 0 } });
	return sheaf_connect_more(g->fs, &(struct sheaf_more){ .host = host, .name = name },
				  &s->fs);
}

struct nfs_session *nfs_session_get(struct gateway *g, const struct origin *from,
				    const struct origin *to)
{
	struct nfs_session *s = find(g, from, to);

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		*s = (struct nfs_session){ .g = g, .from = *from, .to = *to };
		list_init(&s->link);
		if (connect_as(s) || htab_insert(&g->sessions, &s->node, hash_of(from, to))) {
			sheaf_abandon(s->fs);
			free(s);
			return NULL;
		}
	}
	s->refs++;
	list_del(&s->link);
	return s;
}

void nfs_session_put(struct nfs_session *s)
{
	if (--s->refs)
		return;
	s->used = time_now();
	list_push(&s->g->sessions_by_use, &s->link);
}

/* Has it locks, as far as is known? */
static bool has_locks(struct nfs_session *s)
{
	return s->locked_files || sheaf_inherited(s->fs, false);
}

static void end_one(void *arg)
{
	struct nfs_session *s = arg;

	if (s->is_listed)
		holders_remove(s);
	sheaf_disconnect(s->fs);
	free(s);
}

void nfs_sessions_sweep(struct gateway *g, uint64_t now)
{
	struct nfs_session *s, *tmp;

	list_for_each_safe(s, tmp, &g->sessions_by_use, link) {
		if (now - s->used < IDLE_NS || !nfs_task_is_free(g))
			return;
		if (has_locks(s)) {
			s->used = now;
			list_del(&s->link);
			list_push(&g->sessions_by_use, &s->link);
			continue;
		}
		htab_remove(&g->sessions, &s->node);
		list_del(&s->link);
		if (nfs_task_start(g, end_one, s))
			end_one(s);
	}
}

static void free_one(struct hnode *n, void *arg)
{
	struct nfs_session *s = container_of(n, struct nfs_session, node);
	struct gateway *g = arg;

	htab_remove(&g->sessions, n);
	list_del(&s->link);
	if (has_locks(s)) /* they are for the next gateway, if it comes within the lease */
		sheaf_abandon(s->fs);
	else
		sheaf_disconnect(s->fs);
	free(s);
}

void nfs_sessions_end(struct gateway *g)
{
	htab_walk(&g->sessions, free_one, g);
	htab_destroy(&g->sessions);
}
