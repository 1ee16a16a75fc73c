/* The net of one loop: its identity, and the backend of an address. */
#include <stdio.h>
#include <stdlib.h>

#include "net/backend.h"
#include "net/rdma.h"

void net_init(struct net *n, struct loop *l, const struct net_identity *id)
{
	memset(n, 0, sizeof(*n));
	n->loop = l;
	n->id = *id;
	net_costs_usual(n->costs);
	n->rdma.want.gid_index = -1;
	n->slab_msgs_max = MSG_SLABS_FIRST * MSG_PER_SLAB;
	limits_init(&n->limits);
	list_init(&n->links);
	list_init(&n->unproven_links);
	list_init(&n->closing_links);
	list_init(&n->slabs);
	list_init(&n->spare_msgs);
	list_init(&n->spare_longs);
	list_init(&n->spare_xfers);
	list_init(&n->acceptors);
}

uint8_t *net_scratch(struct net *n)
{
	if (!n->scratch)
		n->scratch = malloc(NET_SCRATCH);
	return n->scratch;
}

static void close_links(struct list *links)
{
	struct link *l;

	while ((l = list_first(links, struct link, in_net)))
		link_close_now(l, -ESHUTDOWN);
}

void net_fini(struct net *n)
{
	struct list *it;

	net_stop_listening(n);
	close_links(&n->unproven_links);
	close_links(&n->links);
	close_links(&n->closing_links);
	timer_del(n->loop, &n->rdma.look);
	rdma_device_close(n);
	msg_slabs_end(n);
	while ((it = list_pop(&n->spare_xfers)))
		free(list_entry(it, struct xfer, link));
	free(n->scratch);
	n->scratch = NULL;
	limits_fini(&n->limits);
}

bool net_is_loopback(const char *address)
{
	return strncmp(address, "loop:", 5) == 0;
}

int net_listen(struct net *n, const char *address, char *err, size_t err_len)
{
	if (sock_is_local(address)) {
		snprintf(err, err_len, "address %s is not of the form HOST:PORT", address);
		return -EINVAL;
	}
	return net_is_loopback(address) ? loopback_listen(n, address, err, err_len) :
					  tcp_listen(n, address, err, err_len);
}

/* The name of the Unix socket of an address (core.h). False: there is none. */
static bool local_of(const struct net *n, const char *address, char local[CONF_ADDR_MAX + 1])
{
	snprintf(local, CONF_ADDR_MAX + 1, "@%s", address);
	return n->loop->env->sock->origin_local && !net_is_loopback(address);
}

int net_listen_local(struct net *n, const char *address)
{
	char local[CONF_ADDR_MAX + 1], err[1];

	return local_of(n, address, local) ? tcp_listen(n, local, err, sizeof(err)) : 0;
}

void net_stop_listening(struct net *n)
{
	struct acceptor *a, *t;

	list_for_each_safe(a, t, &n->acceptors, in_net) {
		list_del(&a->in_net);
		a->close(a);
	}
}

int link_dial_local(struct net *n, struct peer *p, const char *address, uint32_t target,
		    struct link **out)
{
	char local[CONF_ADDR_MAX + 1];

	return local_of(n, address, local) ? tcp_dial(n, p, local, target, out) : -EOPNOTSUPP;
}
