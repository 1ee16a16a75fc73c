/* RPC over UDP: a datagram is a call, and so is its reply. NFS itself is served over TCP; what asks
 * by UDP is MOUNT. Datagrams of strangers are dropped. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

#define BATCH 16

static void udp_send(struct nfs_call *c)
{
	const struct source *s = c->conn;
	socklen_t len = c->peer.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
							sizeof(struct sockaddr_in);

	/* A reply that does not leave is asked for again. */
	if (!c->data && sendto(s->fd, c->out->p + RECORD_MARK, c->out_len - RECORD_MARK,
			       MSG_DONTWAIT, (struct sockaddr *)&c->peer, len) < 0)
		log_debug("nfs", "a reply by UDP was not sent: %s", error_text(errno));
	call_free(c);
}

static void udp_drop(struct nfs_call *c)
{
	call_free(c);
}

static void udp_forget(struct nfs_call *c)
{
	(void)c;
}

static const struct rpc_transport udp = { "udp", udp_send, udp_drop, udp_forget };

/* Takes one datagram; false: there is none. */
static bool receive(struct source *s)
{
	struct nfs_call *c = call_new(s->g, &udp, s);
	socklen_t len = sizeof(c->peer);
	ssize_t n;

	if (!c)
		return false;
	c->in = buf_take(s->g, REPLY_SMALL);
	if (!c->in) {
		call_free(c);
		return false;
	}
	n = recvfrom(s->fd, c->in->p, c->in->size, MSG_DONTWAIT | MSG_TRUNC,
		     (struct sockaddr *)&c->peer, &len);
	if (n >= 0)
		origin_of(&c->peer, &c->from, &c->port);
	if (n < 0 || (size_t)n > c->in->size || !exports_admit(s->g->conf, &c->from)) {
		call_free(c);
		return n >= 0;
	}
	c->in_len = (size_t)n;
	nfs_task_submit(c);
	return true;
}

static void udp_ready(struct source *s, uint32_t events)
{
	(void)events;
	for (int i = 0; i < BATCH && receive(s); i++)
		;
}

struct listener {
	struct source source;
	struct list link;
};

int rpc_udp_listen(struct gateway *g, const struct sockaddr *a, socklen_t len)
{
	int fd = socket(a->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), zero = 0, r;
	struct listener *l = calloc(1, sizeof(*l));

	if (fd < 0 || !l) {
		free(l);
		return fd < 0 ? -errno : -ENOMEM;
	}
	if (a->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	r = bind(fd, a, len) ? -errno : source_add(g, &l->source, fd, EPOLLIN, udp_ready);
	if (r) {
		close(fd);
		free(l);
		return r;
	}
	list_push(&g->listeners, &l->link);
	return 0;
}
