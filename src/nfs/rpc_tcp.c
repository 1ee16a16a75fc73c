/* RPC over TCP: listens, and starts a stream (rpc_stream.c) for each connection of a client that
 * any export admits. */
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

#define CONNS_MAX 4096

void origin_of(const struct sockaddr_storage *a, struct origin *o, uint16_t *port)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;

	memset(o, 0, sizeof(*o));
	if (a->ss_family == AF_INET6) {
		memcpy(o->addr, &v6->sin6_addr, 16);
		*port = ntohs(v6->sin6_port);
		return;
	}
	o->addr[10] = o->addr[11] = 0xff;
	memcpy(o->addr + 12, &v4->sin_addr, 4);
	*port = ntohs(v4->sin_port);
}

static void start(struct gateway *g, int fd, const struct origin *from, uint16_t port)
{
	struct sockaddr_storage own = { 0 };
	socklen_t len = sizeof(own);
	int one = 1, idle = 60;
	struct origin to;
	uint16_t unused;

	getsockname(fd, (struct sockaddr *)&own, &len);
	origin_of(&own, &to, &unused);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	stream_start(g, fd, from, &to, port);
}

static void listener_ready(struct nfs_source *s, unsigned events)
{
	struct sockaddr_storage a;
	struct origin from;
	uint16_t port;
	int fd;

	(void)events;
	for (;;) {
		socklen_t len = sizeof(a);

		fd = accept4(s->fd, (struct sockaddr *)&a, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		origin_of(&a, &from, &port);
		if (s->g->n_conns < CONNS_MAX && exports_admit(s->g->conf, &from))
			start(s->g, fd, &from, port);
		else
			close(fd);
	}
}

struct listener {
	struct nfs_source source;
	struct list link;
};

static int listener_start(struct gateway *g, int fd)
{
	struct listener *l = calloc(1, sizeof(*l));
	int r = l ? source_add(g, &l->source, fd, EV_IN, listener_ready) : -ENOMEM;

	if (r)
		free(l);
	else
		list_push(&g->listeners, &l->link);
	return r;
}

int rpc_tcp_listen(struct gateway *g, const struct sockaddr *a, socklen_t len)
{
	int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, zero = 0, r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	r = bind(fd, a, len) || listen(fd, 1024) ? -errno : listener_start(g, fd);
	if (r)
		close(fd);
	return r;
}

void rpc_tcp_end(struct gateway *g)
{
	struct list *it;

	while ((it = list_pop(&g->listeners))) {
		struct listener *l = list_entry(it, struct listener, link);

		source_close(&l->source);
		free(l);
	}
}
