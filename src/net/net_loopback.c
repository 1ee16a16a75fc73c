/* Both ends of a link in one process. Messages are handed over by pointer, bulk is one
 * copy between the pool and the user's memory. Used by embedded mode (one loop) and by the
 * simulation (one loop per node, delays and cuts from the hub).
 *
 * Everything that crosses the link is a parcel: a timer on the receiver's loop. Parcels of one
 * direction arrive in order, so a reply arrives behind the data of its request. Cutting a link
 * frees the parcels in flight in both directions; transfers end with -ECONNRESET on the side that
 * started them.
 *
 * A put or get in flight accesses the memory of both sides, as a network card would, and closes the
 * link if that memory is not exposed. The hub may say that closing or withdrawing memory takes
 * time: until then it still may do so. */
#include <stdio.h>
#include <stdlib.h>

#include "net/backend.h"
#include "net/frame.h"

enum parcel_kind {
	PARCEL_CONNECT,
	PARCEL_MESSAGE,
	PARCEL_PUT,
	PARCEL_GET,
	PARCEL_DONE,
	PARCEL_CUT
};

struct loopback_link {
	struct link l;
	struct loopback_link *other; /* NULL: closed */
	struct loopback_link *partner; /* the other end, until one of them has closed */
	struct timer closing; /* its device stops then */
	struct list keys, withdrawing; /* net_desc.key: exposed memory; what is being withdrawn */
	struct timer withdraw; /* that ends then */
	struct list inbound; /* parcels in flight to this end */
	struct list xfers; /* puts and gets of this end in progress */
	uint64_t last_arrival; /* arrival time of the last parcel sent */
	int close_error; /* of its transfers, while it closes */
};

struct parcel {
	struct timer timer;
	struct list link;
	struct loopback_link *to;
	enum parcel_kind kind;
	struct msg *m;
	struct xfer *x; /* of the sender */
	int error;
};

struct loopback_acceptor {
	struct acceptor a;
	struct list in_hub;
	char name[CONF_ADDR_MAX];
};

static struct loopback_link *loopback_of(struct link *l)
{
	return container_of(l, struct loopback_link, l);
}

static uint64_t lingers(struct loopback_link *t)
{
	struct loopback_hub *h = t->l.net->hub;

	return h->lingers ? h->lingers(h, t->l.net) : 0;
}

static struct parcel *parcel_new(enum parcel_kind kind)
{
	struct parcel *p = calloc(1, sizeof(*p));

	if (!p)
		abort(); /* a lost parcel would be a silent hang */
	p->kind = kind;
	list_init(&p->link);
	return p;
}

static void parcel_free(struct parcel *p)
{
	timer_del(p->to->l.net->loop, &p->timer);
	list_del(&p->link);
	msg_free(p->m);
	free(p);
}

static void deliver(struct timer *t);

/* Sends a parcel to the other end. If the hub cuts the link here, frees it and closes the link. */
static void post(struct loopback_link *from, struct parcel *p, size_t bytes)
{
	struct loopback_link *to = from->other;
	struct loopback_hub *h = from->l.net->hub;
	uint64_t delay = to && h->delay ? h->delay(h, from->l.net, to->l.net, bytes) : 0;
	uint64_t now = from->l.net->loop->env->clock->now(from->l.net->loop->env);
	bool may_break = p->kind != PARCEL_CUT && p->kind != PARCEL_CONNECT;

	if (!to || (delay == UINT64_MAX && may_break)) { /* !to: a PARCEL_CUT is in flight */
		msg_free(p->m);
		free(p);
		if (to)
			link_close(&from->l, -ECONNRESET);
		return;
	}
	if (delay == UINT64_MAX)
		delay = 0;
	p->to = to;
	if (p->m)
		p->m->net = to->l.net;
	from->last_arrival = MAX(from->last_arrival, now + delay);
	p->timer.fire = deliver;
	list_push(&to->inbound, &p->link);
	timer_set(to->l.net->loop, &p->timer, from->last_arrival);
}

static const struct net_ops loopback_ops;

static void end_xfer(struct loopback_link *l, struct xfer *x, int error)
{
	struct xfer *y;

	list_for_each(y, &l->xfers, link) {
		if (y == x) {
			link_note_delay(&l->l, x);
			xfer_end(x, error);
			return;
		}
	}
}

static struct net_desc *find_key(struct loopback_link *t, uint64_t tag)
{
	struct list *lists[] = { &t->keys, &t->withdrawing };
	struct net_desc *d;

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		list_for_each(d, lists[i], key)
			if (d->tag == tag)
				return d;
	return NULL;
}

static int loopback_expose(struct link *l, struct net_desc *d)
{
	list_push(&loopback_of(l)->keys, &d->key);
	return 0;
}

static void withdrawn(struct timer *tm)
{
	struct loopback_link *t = container_of(tm, struct loopback_link, withdraw);
	struct net_desc *d;

	link_ref(&t->l);
	while ((d = list_first(&t->withdrawing, struct net_desc, key))) {
		list_del(&d->key);
		link_desc_end(d);
	}
	link_unref(&t->l);
}

static bool loopback_retract(struct link *l, struct net_desc *d)
{
	struct loopback_link *t = loopback_of(l);
	uint64_t ns = l->state == LINK_UP ? lingers(t) : 0;

	list_del(&d->key);
	if (!ns)
		return true;
	t->withdraw.fire = withdrawn;
	if (!t->withdraw.when && timer_set(l->net->loop, &t->withdraw, l->net->loop->now + ns))
		return true;
	list_push(&t->withdrawing, &d->key);
	return false;
}

/* A transfer of the other end accesses memory exposed by this end. -EPROTO: there is no such
 * memory, or not any more although the request has not been answered. */
static int move(struct loopback_link *l, struct xfer *x, enum parcel_kind kind)
{
	struct net_desc *d = find_key(l, x->tag);
	int need = kind == PARCEL_PUT ? CAP_WRITE : CAP_READ;
	uint64_t at = x->at;
	int r = 0;

	if (!d || d->access != need || at > d->view->length || x->len > d->view->length - at) {
		l->l.reason = "a transfer to or from memory that is not exposed";
		return -EPROTO;
	}
	d->moved = l->l.net->loop->now;
	l->l.account->bytes[METHOD_PACK] += x->len;
	l->l.account->copied += x->len;
	for (size_t i = 0; i < x->n && !r; at += x->iov[i++].iov_len) {
		if (kind == PARCEL_PUT)
			r = view_copy_in(d->view, at, x->iov[i].iov_base, x->iov[i].iov_len);
		else
			r = view_copy_out(d->view, at, x->iov[i].iov_base, x->iov[i].iov_len);
	}
	if (r)
		d->error = -EFAULT;
	return r;
}

static void deliver_message(struct loopback_link *to, struct msg *m)
{
	struct wire_frame_head h;
	struct xdr x;

	xdr_decoder(&x, m->head, FRAME_HEAD, NULL);
	if (!xdr_wire_frame_head(&x, &h) || link_check_head(&to->l, &h)) {
		msg_free(m);
		link_close(&to->l, -EPROTO);
		return;
	}
	to->l.account->frames++;
	link_message(&to->l, h.kind, h.tag, m);
}

static void deliver(struct timer *t)
{
	struct parcel *p = container_of(t, struct parcel, timer), *back;
	struct loopback_link *to = p->to;
	struct msg *m = p->m;
	struct xfer *x = p->x;
	enum parcel_kind kind = p->kind;
	int error = p->error;

	p->m = NULL;
	parcel_free(p);
	link_ref(&to->l);
	switch (kind) {
	case PARCEL_CONNECT:
		link_connected(&to->l);
		break;
	case PARCEL_MESSAGE:
		deliver_message(to, m);
		break;
	case PARCEL_PUT:
	case PARCEL_GET:
		error = move(to, x, kind);
		if (error == -EPROTO)
			link_close(&to->l, error);
		if (to->l.state >= LINK_CLOSING) /* the transfer ends when the other end closes */
			break;
		back = parcel_new(PARCEL_DONE);
		back->x = x;
		back->error = error;
		post(to, back, kind == PARCEL_GET ? x->len : 0);
		break;
	case PARCEL_DONE:
		end_xfer(to, x, error);
		break;
	case PARCEL_CUT:
		link_close(&to->l, -ECONNRESET);
		break;
	}
	link_unref(&to->l);
}

static void loopback_send(struct link *l, struct msg *m)
{
	struct loopback_link *t = loopback_of(l);
	struct parcel *p = parcel_new(PARCEL_MESSAGE);

	p->m = m;
	post(t, p, m->len);
}

static void transfer(struct link *l, enum parcel_kind kind, const struct wire_mem_desc *d,
		     uint64_t at, const struct iovec *iov, size_t n, struct req *q)
{
	struct loopback_link *t = loopback_of(l);
	struct xfer *x = xfer_new(l->net, d->tag, at, iov, n, q);
	struct parcel *p;

	if (!x) {
		req_done(q, -ENOMEM, 0);
		return;
	}
	x->asked = kind == PARCEL_GET ? l->net->loop->now : 0;
	x->is_alone = list_empty(&t->xfers);
	list_push(&t->xfers, &x->link);
	p = parcel_new(kind);
	p->x = x;
	post(t, p, kind == PARCEL_PUT ? x->len : 0);
}

static void loopback_put(struct link *l, const struct wire_mem_desc *d, uint64_t at,
			 const struct iovec *src, size_t n, struct req *q)
{
	transfer(l, PARCEL_PUT, d, at, src, n, q);
}

static void loopback_get(struct link *l, const struct wire_mem_desc *d, uint64_t at,
			 const struct iovec *dst, size_t n, struct net_direct *direct,
			 struct req *q)
{
	(void)direct;
	transfer(l, PARCEL_GET, d, at, dst, n, q);
}

static bool is_transfer(const struct parcel *p)
{
	return p->kind == PARCEL_PUT || p->kind == PARCEL_GET;
}

/* Frees the parcels in flight to this end; `transfers`: those, too. */
static void drop_inbound(struct loopback_link *t, bool messages, bool transfers)
{
	struct parcel *p, *tmp;

	list_for_each_safe(p, tmp, &t->inbound, link)
		if (is_transfer(p) ? transfers : messages || p->kind != PARCEL_MESSAGE)
			parcel_free(p);
}

/* No parcel accesses the memory of this end from now on: its transfers end. */
static void finish_close(struct loopback_link *t)
{
	struct loopback_link *partner = t->partner;
	struct parcel *p, *tmp;
	struct xfer *x;

	timer_del(t->l.net->loop, &t->closing);
	timer_del(t->l.net->loop, &t->withdraw);
	drop_inbound(t, true, true);
	if (partner) {
		list_for_each_safe(p, tmp, &partner->inbound, link)
			if (is_transfer(p))
				parcel_free(p);
		t->partner = partner->partner = NULL;
	}
	while ((x = list_first(&t->xfers, struct xfer, link)))
		xfer_end(x, t->close_error);
	link_shut(&t->l);
}

static void closing_over(struct timer *tm)
{
	finish_close(container_of(tm, struct loopback_link, closing));
}

static void loopback_shut(struct link *l, int error, bool now)
{
	struct loopback_link *t = loopback_of(l);
	uint64_t ns = now ? 0 : lingers(t);

	t->close_error = error;
	if (t->other) {
		drop_inbound(t, true, false);
		drop_inbound(t->other, false, false);
		post(t, parcel_new(PARCEL_CUT), 0);
		t->other->other = NULL;
		t->other = NULL;
	}
	t->closing.fire = closing_over;
	if (!ns || timer_set(l->net->loop, &t->closing, l->net->loop->now + ns))
		finish_close(t);
}

static void loopback_destroy(struct link *l)
{
	free(loopback_of(l));
}

static const struct net_ops loopback_ops = {
	.name = "loop",
	.send = loopback_send,
	.expose = loopback_expose,
	.retract = loopback_retract,
	.put = loopback_put,
	.get = loopback_get,
	.shut = loopback_shut,
	.destroy = loopback_destroy,
	.peer_moves = true,
};

static struct loopback_link *loopback_new(struct net *n, struct peer *p, uint32_t target)
{
	struct loopback_link *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	list_init(&t->inbound);
	list_init(&t->xfers);
	list_init(&t->keys);
	list_init(&t->withdrawing);
	link_init(&t->l, n, &loopback_ops, p, target);
	return t;
}

int loopback_dial(struct net *n, struct peer *p, const char *address, uint32_t target,
		  struct link **out)
{
	struct loopback_acceptor *a;
	struct loopback_link *ours, *theirs;

	if (!n->hub)
		return -EADDRNOTAVAIL;
	list_for_each(a, &n->hub->acceptors, in_hub)
		if (strcmp(a->name, address) == 0)
			goto found;
	return -ECONNREFUSED;
found:
	ours = loopback_new(n, p, target);
	theirs = ours ? loopback_new(a->a.net, NULL, 0) : NULL;
	if (!theirs) {
		if (ours)
			link_close_now(&ours->l, -ENOMEM);
		return -ENOMEM;
	}
	ours->other = ours->partner = theirs;
	theirs->other = theirs->partner = ours;
	*out = &ours->l;
	post(theirs, parcel_new(PARCEL_CONNECT), 0);
	link_admit(&theirs->l);
	return 0;
}

static void acceptor_close(struct acceptor *base)
{
	struct loopback_acceptor *a = container_of(base, struct loopback_acceptor, a);

	list_del(&a->in_hub);
	free(a);
}

int loopback_listen(struct net *n, const char *address, char *err, size_t err_len)
{
	struct loopback_acceptor *a;

	if (!n->hub || strlen(address) >= sizeof(a->name)) {
		snprintf(err, err_len, "no in-process network for address %s", address);
		return -EADDRNOTAVAIL;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	strcpy(a->name, address);
	a->a.net = n;
	a->a.close = acceptor_close;
	list_push(&n->acceptors, &a->a.in_net);
	list_push(&n->hub->acceptors, &a->in_hub);
	return 0;
}
