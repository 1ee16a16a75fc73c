/* A session of libsheaf for each client: its opens, locks and limits are its own. A client is known
 * by its address and by that of the gateway which it uses, so a gateway that takes over the address
 * has sessions of the same names, and the servers give them the locks of the dead one. A client
 * that uses two gateways has two sessions. A session without locks ends when it was not used for
 * IDLE_NS. */
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

#define IDLE_NS (60 * NSEC_PER_SEC)
#define SESSIONS_MAX 4096 /* further clients share the gateway's own */

/* ---- addresses ---- */

/* A number of this host. */
static uint64_t host_number(void)
{
	char id[64] = "";
	FILE *f = fopen("/etc/machine-id", "r");

	if (!f || !fgets(id, sizeof(id), f))
		gethostname(id, sizeof(id) - 1);
	if (f)
		fclose(f);
	return hash_bytes(id, strlen(id), 3);
}

uint64_t address_place(const struct gateway *g, const struct origin *o)
{
	static const struct origin loop6 = { .addr = { [15] = 1 } };
	const struct in6_addr *a = (const struct in6_addr *)o->addr;
	bool is_local = memcmp(o->addr, loop6.addr, 16) == 0 || IN6_IS_ADDR_LINKLOCAL(a);

	if (IN6_IS_ADDR_V4MAPPED(a))
		is_local = o->addr[12] == 127 || (o->addr[12] == 169 && o->addr[13] == 254);
	return is_local ? g->host_number : 0;
}

bool address_is_ours(const struct gateway *g, const struct origin *o)
{
	struct ifaddrs *all, *i;
	bool found = false;

	if (g->only && memcmp(g->listens.addr, o->addr, 16))
		return false;
	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)o->addr) && o->addr[12] == 127)
		return true;
	if (getifaddrs(&all))
		return false;
	for (i = all; i && !found; i = i->ifa_next) {
		struct sockaddr_storage a = { 0 };
		struct origin at;
		uint16_t port;

		if (!i->ifa_addr ||
		    (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		memcpy(&a, i->ifa_addr,
		       i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) :
							   sizeof(struct sockaddr_in6));
		origin_of(&a, &at, &port);
		found = memcmp(at.addr, o->addr, 16) == 0;
	}
	freeifaddrs(all);
	return found;
}

/* ---- sessions ---- */

int nfs_sessions_init(struct gateway *g)
{
	list_init(&g->sessions_by_use);
	list_init(&g->lost_sessions);
	g->own = (struct nfs_session){ .g = g, .fs = g->fs, .refs = 1 };
	list_init(&g->own.link);
	g->host_number = host_number();
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

bool nfs_session_exists(struct gateway *g, const struct origin *from, const struct origin *to)
{
	return find(g, from, to) != NULL;
}

static int connect_as(struct nfs_session *s)
{
	static const char purpose[] = "session";
	char host[ORIGIN_TEXT + 8], from[ORIGIN_TEXT];
	struct gateway *g = s->g;
	uint64_t place = address_place(g, &s->to);
	uint8_t name[MAC_BYTES];

	origin_format(from, &s->from);
	snprintf(host, sizeof(host), "nfs %s", from);
	mac_make_with(name, g->handle_key,
		      (struct mac_part[]){ { purpose, sizeof(purpose) },
					   { s->from.addr, 16 },
					   { s->to.addr, 16 },
					   { &place, sizeof(place) },
					   { &g->port, sizeof(g->port) },
					   { NULL, 0 } });
	return sheaf_connect_more(g->fs,
				  &(struct sheaf_more){ .size = sizeof(struct sheaf_more),
							.host = host,
							.name = name },
				  &s->fs);
}

/* Takes it out of the table; it ends with its last use. */
static void forget(struct nfs_session *s)
{
	htab_remove(&s->g->sessions, &s->node);
	list_del(&s->link);
	s->is_forgotten = true;
	nlm_forget_session(s);
	if (!s->refs)
		list_push(&s->g->lost_sessions, &s->link);
}

static struct nfs_session *make(struct gateway *g, const struct origin *from,
				const struct origin *to)
{
	struct nfs_session *s = g->sessions.count < SESSIONS_MAX ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return &g->own;
	*s = (struct nfs_session){ .g = g, .from = *from, .to = *to };
	list_init(&s->link);
	if (connect_as(s) || htab_insert(&g->sessions, &s->node, hash_of(from, to))) {
		sheaf_abandon(s->fs);
		free(s);
		return &g->own;
	}
	return s;
}

struct nfs_session *nfs_session_get(struct gateway *g, const struct origin *from,
				    const struct origin *to)
{
	struct nfs_session *s = find(g, from, to);

	if (s && sheaf_was_lost(s->fs)) { /* another gateway had the address meanwhile */
		forget(s);
		s = NULL;
	}
	if (!s)
		s = make(g, from, to);
	s->refs++;
	list_del(&s->link);
	return s;
}

void nfs_session_put(struct nfs_session *s)
{
	if (--s->refs)
		return;
	s->used = gateway_now(s->g);
	list_push(s->is_forgotten ? &s->g->lost_sessions : &s->g->sessions_by_use, &s->link);
}

/* ---- their end ---- */

/* On a task. */
static void end_lost(void *arg)
{
	struct nfs_session *s = arg;

	sheaf_disconnect(s->fs);
	free(s);
}

/* On a task, which has a reference: ends an idle session, unless it has locks. */
static void end_idle(void *arg)
{
	struct nfs_session *s = arg;
	bool has_locks = s->locked_files || sheaf_inherited(s->fs, SHEAF_INHERITED_NOW);

	if (s->refs == 1 && !s->is_forgotten && !has_locks && !s->locked_files)
		forget(s);
	nfs_session_put(s);
}

static bool start_end(struct gateway *g, struct nfs_session *s, void (*end)(void *arg))
{
	if (!nfs_task_is_free(g))
		return false;
	list_del(&s->link);
	if (end == end_idle)
		s->refs++;
	if (nfs_task_start(g, end, s)) { /* later */
		s->refs -= end == end_idle;
		list_push(end == end_idle ? &g->sessions_by_use : &g->lost_sessions, &s->link);
		return false;
	}
	return true;
}

void nfs_sessions_sweep(struct gateway *g, uint64_t now)
{
	struct nfs_session *s;

	while ((s = list_first(&g->lost_sessions, struct nfs_session, link)))
		if (!start_end(g, s, end_lost))
			return;
	while ((s = list_first(&g->sessions_by_use, struct nfs_session, link)))
		if (now - s->used < IDLE_NS || !start_end(g, s, end_idle))
			return;
}

static void collect(struct hnode *n, void *arg)
{
	struct list *others = arg;
	struct nfs_session *s = container_of(n, struct nfs_session, node);

	if (!address_is_ours(s->g, &s->to)) {
		list_del(&s->link);
		list_push(others, &s->link);
	}
}

void nfs_sessions_leave(struct gateway *g)
{
	struct list others = LIST_INIT(others);
	struct nfs_session *s;

	htab_walk(&g->sessions, collect, &others);
	while ((s = list_first(&others, struct nfs_session, link)))
		forget(s);
}

static void free_one(struct hnode *n, void *arg)
{
	struct nfs_session *s = container_of(n, struct nfs_session, node);
	struct gateway *g = arg;

	htab_remove(&g->sessions, n);
	list_del(&s->link);
	if (s->locked_files || sheaf_inherited(s->fs, SHEAF_INHERITED_KNOWN))
		sheaf_abandon(s->fs); /* its locks are for the next gateway */
	else
		sheaf_disconnect(s->fs);
	free(s);
}

void nfs_sessions_end(struct gateway *g)
{
	struct nfs_session *s;

	htab_walk(&g->sessions, free_one, g);
	while ((s = list_first(&g->lost_sessions, struct nfs_session, link))) {
		list_del(&s->link);
		end_lost(s);
	}
	htab_destroy(&g->sessions);
}
