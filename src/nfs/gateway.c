/* The gateway's thread: waits for clients, servers and signals at once (sheaf_drive), and runs what
 * became ready. Without open files and calls it sleeps without a timeout. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/http.h"
#include "nfs/nfs_priv.h"

#define EVENTS 64
#define SWEEP_MS 1000
#define DRAIN_NS (5 * NSEC_PER_SEC) /* that calls in progress get when the gateway stops */

int source_add(struct gateway *g, struct source *s, int fd, uint32_t events,
	       void (*ready)(struct source *s, uint32_t events))
{
	struct epoll_event e = { .events = events, .data.ptr = s };

	*s = (struct source){ .fd = fd, .events = events, .ready = ready, .g = g };
	return epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

void source_want(struct source *s, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = s };

	if (s->fd < 0 || s->events == events)
		return;
	s->events = events;
	if (epoll_ctl(s->g->epoll, EPOLL_CTL_MOD, s->fd, &e))
		log_error("nfs", "epoll: %s", error_text(errno));
}

void source_close(struct source *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

/* Handles events of descriptors. A source that an earlier event of the batch has closed has fd -1;
 * its memory stays until the end of the turn. */
static void dispatch_events(struct gateway *g)
{
	struct epoll_event e[EVENTS];
	int n = epoll_wait(g->epoll, e, EVENTS, 0);

	for (int i = 0; i < n; i++) {
		struct source *s = e[i].data.ptr;

		if (s->fd >= 0)
			s->ready(s, e[i].events);
	}
}

static void sweep(struct gateway *g)
{
	uint64_t now = time_now();

	if (now - g->swept < SWEEP_MS * NSEC_PER_MSEC)
		return;
	g->swept = now;
	nfs_files_sweep(g, now);
	nfs_sessions_sweep(g, now);
	tcp_sweep(g, now);
	rpc_ask_sweep(g);
	if (g->http_waits)
		nfs_metrics_run(g);
}

static int wait_ms(struct gateway *g)
{
	if (nfs_tasks_are_ready(g))
		return 0;
	return g->n_tasks > g->n_idle || g->n_calls || g->n_receiving || g->files.count ||
			       g->http_waits ?
		       SWEEP_MS :
		       -1;
}

static void turn(struct gateway *g)
{
	if (sheaf_drive(g->fs, 1, wait_ms(g)))
		dispatch_events(g);
	nfs_tasks_run_ready(g);
	do { /* replies that left make room for calls, which may be answered at once */
		tcp_flush_all(g);
		tcp_resume_all(g);
	} while (!list_empty(&g->unsent));
	sweep(g);
}

void gateway_run(struct gateway *g)
{
	uint64_t end;

	while (!g->stopping)
		turn(g);
	nlm_cancel_all(g);
	end = time_now() + DRAIN_NS;
	while (g->n_calls && time_now() < end)
		turn(g);
	nfs_files_close(g);
	while (g->n_tasks > g->n_idle && time_now() < end)
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

int gateway_start(struct gateway *g)
{
	int r;

	list_init(&g->listeners);
	list_init(&g->conns);
	list_init(&g->paused);
	list_init(&g->unsent);
	list_init(&g->lock_waits);
	list_init(&g->asking);
	list_init(&g->executing);
	g->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (g->epoll < 0)
		return -errno;
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
		r = nfs_tasks_init(g);
	if (!r)
		r = listen_at(g, g->conf->nfs.address);
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
	tcp_end(g);
	nfs_files_end(g);
	replay_end(g);
	clients_end(g);
	http_stop(g->http);
	nfs_tasks_end(g);
	memory_end(g);
	htab_destroy(&g->locked_files);
	close(g->epoll);
}
