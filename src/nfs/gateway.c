/* The gateway's thread: waits for clients, servers and signals at once (sheaf_drive), and runs what
 * became ready. Its own descriptors are on a loop of its own, whose descriptor wakes the wait.
 * Without open files and calls it sleeps without a timeout. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "net/http.h"
#include "nfs/nfs_priv.h"

#define SWEEP_MS 1000
#define DRAIN_NS (5 * NSEC_PER_SEC) /* that calls in progress get when the gateway stops */

static void on_ready(struct source *on, unsigned events)
{
	struct nfs_source *s = container_of(on, struct nfs_source, on);

	s->ready(s, events);
}

int source_add(struct gateway *g, struct nfs_source *s, int fd, unsigned events,
	       void (*ready)(struct nfs_source *s, unsigned events))
{
	struct env *e = g->loop->env;
	int r;

	*s = (struct nfs_source){ .on = { .fd = fd, .ready = on_ready },
				  .fd = fd,
				  .events = events,
				  .ready = ready,
				  .g = g };
	r = e->sock->watch(e, g->loop, &s->on, events);
	if (r)
		s->fd = -1;
	return r;
}

int source_want(struct nfs_source *s, unsigned events)
{
	struct env *e = s->g->loop->env;

	if (s->fd < 0 || s->events == events)
		return 0;
	s->events = events;
	return e->sock->watch(e, s->g->loop, &s->on, events);
}

void source_close(struct nfs_source *s)
{
	struct env *e = s->g->loop->env;

	if (s->fd < 0)
		return;
	e->sock->watch(e, s->g->loop, &s->on, 0);
	e->sock->close(e, s->fd);
	s->fd = -1;
}

static void sweep(struct gateway *g)
{
	uint64_t now = gateway_now(g);

	if (now - g->swept < SWEEP_MS * NSEC_PER_MSEC)
		return;
	g->swept = now;
	nfs_files_sweep(g, now);
	nfs_sessions_sweep(g, now);
	streams_sweep(g, now);
	rpc_ask_sweep(g);
	if (g->http_waits)
		nfs_metrics_run(g);
}

static int wait_ms(struct gateway *g)
{
	if (nfs_tasks_are_ready(g))
		return 0;
	return g->n_tasks > g->n_idle || g->n_calls || g->n_receiving || g->files.count ||
			       g->http_waits || !list_empty(&g->paused) ?
		       SWEEP_MS :
		       -1;
}

void gateway_turn(struct gateway *g)
{
	nfs_tasks_run_ready(g);
	do { /* replies that left make room for calls, which may be answered at once */
		streams_flush(g);
		streams_resume(g);
	} while (!list_empty(&g->unsent));
	sweep(g);
}

static void turn(struct gateway *g)
{
	if (sheaf_drive(g->fs, 1, wait_ms(g)))
		loop_turn(g->loop, 0);
	gateway_turn(g);
}

void gateway_run(struct gateway *g)
{
	uint64_t end;

	while (!g->stopping)
		turn(g);
	nlm_cancel_all(g);
	end = gateway_now(g) + DRAIN_NS;
	while (g->n_calls && gateway_now(g) < end)
		turn(g);
	nfs_files_close(g);
	while (g->n_tasks > g->n_idle && gateway_now(g) < end)
		turn(g);
}

/* ---- the cluster file ---- */

struct nfs_conf *conf_take(struct gateway *g)
{
	g->conf_now->refs++;
	return g->conf_now;
}

void conf_give(struct nfs_conf *c)
{
	if (!c || --c->refs)
		return;
	conf_free(c->conf);
	free(c);
}

int gateway_use(struct gateway *g, struct conf *c)
{
	struct nfs_conf *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	*n = (struct nfs_conf){ c, 1 };
	conf_give(g->conf_now);
	g->conf_now = n;
	g->conf = c;
	return 0;
}

/* ---- start and end ---- */

/* "HOST:PORT" or "[HOST]:PORT" to its two parts. */
static void split_address(const char *address, char host[CONF_ADDR_MAX], char port[CONF_ADDR_MAX])
{
	const char *colon = strrchr(address, ':');
	bool bracketed = address[0] == '[';

	snprintf(host, CONF_ADDR_MAX, "%.*s", (int)(colon - address) - 2 * bracketed,
		 address + bracketed);
	snprintf(port, CONF_ADDR_MAX, "%s", colon + 1);
}

static int listen_at(struct gateway *g, const char *address)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	char host[CONF_ADDR_MAX], port[CONF_ADDR_MAX];
	struct addrinfo *found;
	int r = -ENOENT;

	split_address(address, host, port);
	g->port = (uint16_t)atoi(port);
	g->has_ipv6 = strchr(host, ':') != NULL;
	g->has_ipv4 = !g->has_ipv6 || strcmp(host, "::") == 0;
	if (getaddrinfo(host, port, &hints, &found))
		return -EADDRNOTAVAIL;
	for (struct addrinfo *a = found; a && r; a = a->ai_next) {
		r = rpc_tcp_listen(g, a->ai_addr, a->ai_addrlen);
		if (!r)
			r = rpc_udp_listen(g, a->ai_addr, a->ai_addrlen);
		if (!r && !g->no_portmap)
			portmap_start(g, a->ai_addr, a->ai_addrlen);
	}
	if (!r && strcmp(host, "::") && strcmp(host, "0.0.0.0")) {
		struct sockaddr_storage a = { 0 };
		uint16_t unused;

		memcpy(&a, found->ai_addr, found->ai_addrlen);
		origin_of(&a, &g->listens, &unused);
		g->only = true;
	}
	freeaddrinfo(found);
	return r;
}

int gateway_init(struct gateway *g, int fd)
{
	int r;

	list_init(&g->listeners);
	list_init(&g->conns);
	list_init(&g->paused);
	list_init(&g->unsent);
	list_init(&g->dead_conns);
	list_init(&g->lock_waits);
	list_init(&g->asking);
	list_init(&g->executing);
	r = nfs_files_init(g);
	if (!r)
		r = htab_init(&g->locked_files);
	if (!r)
		r = replay_init(g);
	if (!r)
		r = nfs_sessions_init(g);
	if (!r)
		r = clients_init(g);
	if (!r)
		r = nfs_tasks_init(g, fd);
	return r;
}

int gateway_listen(struct gateway *g)
{
	int r = listen_at(g, g->conf->nfs.address);

	/* Without IPv6 in the kernel the default address is IPv4's. */
	if (r == -EAFNOSUPPORT && strncmp(g->conf->nfs.address, "[::]:", 5) == 0) {
		char v4[CONF_ADDR_MAX];

		snprintf(v4, sizeof(v4), "0.0.0.0:%.100s", g->conf->nfs.address + 5);
		r = listen_at(g, v4);
	}
	return r;
}

void gateway_end(struct gateway *g)
{
	rpc_tcp_end(g);
	streams_end(g);
	nfs_files_end(g);
	replay_end(g);
	clients_end(g);
	http_stop(g->http);
	nfs_tasks_end(g);
	memory_end(g);
	htab_destroy(&g->locked_files);
}
