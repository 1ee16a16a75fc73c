/* RPC over UDP: a datagram is a call, and so is its reply. NFS itself is served over TCP; what asks
 * by UDP is MOUNT. Datagrams of strangers are dropped. */
#include <stdlib.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

#define BATCH 16
#define CONTROL_BYTES 64
_Static_assert(CMSG_SPACE(sizeof(struct in6_pktinfo)) <= CONTROL_BYTES, "the larger of both");

/* The message's source is the address to which the call came: clients with several servers at one
 * host, or an address that moves between hosts, know no other. */
static void set_source(struct msghdr *m, const struct nfs_call *c)
{
	bool v6 = c->peer.ss_family == AF_INET6;
	struct in6_pktinfo info6 = { 0 };
	struct in_pktinfo info4 = { 0 };
	struct cmsghdr *h;

	memcpy(&info6.ipi6_addr, c->to.addr, 16);
	memcpy(&info4.ipi_spec_dst, c->to.addr + 12, 4);
	m->msg_controllen = CMSG_SPACE(v6 ? sizeof(info6) : sizeof(info4));
	memset(m->msg_control, 0, m->msg_controllen);
	h = CMSG_FIRSTHDR(m);
	h->cmsg_level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
	h->cmsg_type = v6 ? IPV6_PKTINFO : IP_PKTINFO;
	h->cmsg_len = CMSG_LEN(v6 ? sizeof(info6) : sizeof(info4));
	memcpy(CMSG_DATA(h), v6 ? (void *)&info6 : (void *)&info4,
	       v6 ? sizeof(info6) : sizeof(info4));
}

static void udp_send(struct nfs_call *c)
{
	static const struct origin unknown;
	const struct nfs_source *s = c->conn;
	_Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
	struct iovec iov = { c->out->p + RECORD_MARK, c->out_len - RECORD_MARK };
	struct msghdr m = { .msg_name = &c->peer,
			    .msg_namelen = c->peer.ss_family == AF_INET6 ?
						   sizeof(struct sockaddr_in6) :
						   sizeof(struct sockaddr_in),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control };

	if (memcmp(c->to.addr, unknown.addr, 16))
		set_source(&m, c);
	/* A reply that does not leave is asked for again. */
	if (!c->data && sendmsg(s->fd, &m, MSG_DONTWAIT) < 0)
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

/* Also says to which of our addresses the datagram came. */
static ssize_t receive_from(int fd, struct nfs_call *c)
{
	_Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
	struct iovec iov = { c->in->p, c->in->size };
	struct msghdr m = { .msg_name = &c->peer,
			    .msg_namelen = sizeof(c->peer),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_TRUNC);
	struct sockaddr_storage to = { 0 };
	uint16_t port;

	for (struct cmsghdr *h = n < 0 ? NULL : CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
		struct in6_pktinfo v6;
		struct in_pktinfo v4;

		if (h->cmsg_level == IPPROTO_IPV6 && h->cmsg_type == IPV6_PKTINFO) {
			memcpy(&v6, CMSG_DATA(h), sizeof(v6));
			to.ss_family = AF_INET6;
			((struct sockaddr_in6 *)&to)->sin6_addr = v6.ipi6_addr;
		} else if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_PKTINFO) {
			memcpy(&v4, CMSG_DATA(h), sizeof(v4));
			to.ss_family = AF_INET;
			((struct sockaddr_in *)&to)->sin_addr = v4.ipi_spec_dst;
		}
	}
	if (to.ss_family)
		origin_of(&to, &c->to, &port);
	return n;
}

static bool drop_datagram(struct nfs_source *s)
{
	char byte;

	return recv(s->fd, &byte, sizeof(byte), MSG_DONTWAIT) >= 0;
}

/* Takes one datagram; false: there is none. Without memory for calls it is dropped: the client
 * sends it again. */
static bool receive(struct nfs_source *s)
{
	struct nfs_call *c;
	ssize_t n;

	if (s->g->stopping || !memory_has_room(s->g))
		return drop_datagram(s);
	c = call_new(s->g, &udp, s);
	if (!c)
		return false;
	c->in = buf_take(s->g, REPLY_SMALL);
	if (!c->in) {
		call_free(c);
		return false;
	}
	n = receive_from(s->fd, c);
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

static void udp_ready(struct nfs_source *s, unsigned events)
{
	(void)events;
	for (int i = 0; i < BATCH && receive(s); i++)
		;
}

struct listener {
	struct nfs_source source;
	struct list link;
};

int rpc_udp_listen(struct gateway *g, const struct sockaddr *a, socklen_t len)
{
	int fd = socket(a->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), r;
	int zero = 0, one = 1;
	struct listener *l = calloc(1, sizeof(*l));

	if (fd < 0 || !l) {
		free(l);
		return fd < 0 ? -errno : -ENOMEM;
	}
	if (a->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (a->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof(one));
	else
		setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one));
	r = bind(fd, a, len) ? -errno : source_add(g, &l->source, fd, EV_IN, udp_ready);
	if (r) {
		close(fd);
		free(l);
		return r;
	}
	list_push(&g->listeners, &l->link);
	return 0;
}
