/* Listening for connections on TCP and on Unix sockets; net_tcp.c handles accepted ones.
 *
 * Errors: after a failed accept, the socket is tried again after a pause. */
#include <stdlib.h>

#include "net/backend.h"

#define ACCEPTS_PER_TURN 16

struct tcp_acceptor {
	struct acceptor a;
	struct source src;
	bool local; /* a Unix socket */
	struct origin from; /* if local: the origin of all its connections */
	struct timer pause; /* after an error, so that the loop does not spin */
};

static void accept_one(struct tcp_acceptor *a, int fd)
{
	struct env *e = a->a.net->loop->env;
	struct link *l = tcp_accepted(a->a.net, fd);

	if (!l) {
		e->sock->close(e, fd);
		return;
	}
	if (a->local) {
		l->from = a->from;
		link_set_local(l, e->sock->user(e, fd));
	} else if (e->sock->origin) {
		e->sock->origin(e, fd, &l->from);
	}
	link_admit(l);
}

/* Further connections wait in the kernel until the next turn: handshakes progress in between. */
static void accept_ready(struct source *s, unsigned events)
{
	struct tcp_acceptor *a = container_of(s, struct tcp_acceptor, src);
	struct env *e = a->a.net->loop->env;
	int fd = 0;

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		fd = e->sock->accept(e, s->fd);
		if (fd < 0)
			break;
		accept_one(a, fd);
	}
	if (fd >= 0 || fd == -EAGAIN || fd == -ECONNABORTED)
		return;
	log_warn("net", "cannot accept connections, next attempt in 0.1 s: %s", error_text(fd));
	e->sock->watch(e, a->a.net->loop, s, 0);
	timer_set(a->a.net->loop, &a->pause, a->a.net->loop->now + NSEC_PER_SEC / 10);
}

static void accept_again(struct timer *t)
{
	struct tcp_acceptor *a = container_of(t, struct tcp_acceptor, pause);
	struct env *e = a->a.net->loop->env;

	e->sock->watch(e, a->a.net->loop, &a->src, EV_IN);
}

static void acceptor_close(struct acceptor *base)
{
	struct tcp_acceptor *a = container_of(base, struct tcp_acceptor, a);
	struct env *e = base->net->loop->env;

	timer_del(base->net->loop, &a->pause);
	e->sock->watch(e, base->net->loop, &a->src, 0);
	e->sock->close(e, a->src.fd);
	free(a);
}

int tcp_listen(struct net *n, const char *address, char *err, size_t err_len)
{
	struct env *e = n->loop->env;
	struct tcp_acceptor *a = calloc(1, sizeof(*a));
	int fd;

	if (!a)
		return -ENOMEM;
	fd = e->sock->listen(e, address, err, err_len);
	if (fd < 0) {
		free(a);
		return fd;
	}
	a->local = sock_is_local(address);
	if (a->local)
		e->sock->origin_local(e, address, &a->from);
	a->a.net = n;
	a->a.close = acceptor_close;
	a->src.fd = fd;
	a->src.ready = accept_ready;
	a->pause.fire = accept_again;
	list_push(&n->acceptors, &a->a.in_net);
	return e->sock->watch(e, n->loop, &a->src, EV_IN);
}
