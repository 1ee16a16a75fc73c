/* Bulk transfers of a link: exposed memory, calls of its backend, memory of transfers in progress.
 * Each descriptor that was exposed ends in the backend's retract(), also when the link has closed.
 * Then it must end at once: nothing can reach the memory any more.
 *
 * Threads: the loop's. */
#include <stdlib.h>

#include "net/backend.h"

/* ---- exposed memory ---- */

struct net_desc *link_desc(struct link *l, uint64_t tag)
{
	struct net_desc *d;

	list_for_each(d, &l->descs, link)
		if (d->tag == tag)
			return d;
	return NULL;
}

int net_expose(struct link *l, struct view *mem, int access, enum net_method method, bool tells,
	       uint64_t tag, struct net_desc *d)
{
	int r;

	*d = (struct net_desc){ .tag = tag,
				.view = mem,
				.access = access,
				.method = method,
				.tells = tells,
				.packs = method == METHOD_PACK || method == METHOD_AUTO,
				.moved = l->net->loop->now };
	list_init(&d->link);
	list_init(&d->key);
	if (l->state >= LINK_CLOSING)
		return -ECONNRESET;
	r = l->ops->expose ? l->ops->expose(l, d) : 0;
	if (r)
		d->tag = 0;
	else
		list_push(&l->descs, &d->link);
	return r;
}

bool net_retract(struct link *l, struct net_desc *d, void (*retracted)(struct net_desc *d))
{
	d->retracted = retracted;
	if (l->state == LINK_CLOSING || (l->ops->retract && !l->ops->retract(l, d)))
		return false;
	list_del(&d->link);
	d->tag = 0;
	return true;
}

void link_desc_end(struct net_desc *d)
{
	list_del(&d->link);
	d->tag = 0;
	if (d->retracted)
		d->retracted(d);
}

bool net_peer_moves(const struct link *l)
{
	return l->ops->peer_moves;
}

/* ---- bulk ---- */

void net_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	     size_t n, struct req *q)
{
	req_hold(q);
	if (l->state == LINK_UP)
		l->ops->put(l, d, at, src, n, q);
	else
		req_done(q, -ECONNRESET, 0);
}

bool net_can_put_file(const struct link *l)
{
	return l->ops->put_file && l->net->loop->env->sock->send_file;
}

/* A Unix socket takes references to pages. So does TCP, but its short fragments cost more than that
 * saves, unless the page cache has large pages. Data in the socket shows later writes, so only keys
 * that may read everything get it. */
bool net_lends_pages(const struct link *l)
{
	return l->local_label[0] && l->acts_for.any && l->net->loop->sends_files;
}

void net_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
		  const struct extent *ext, const struct iovec *mapped, size_t n, struct req *q)
{
	req_hold(q);
	if (l->state == LINK_UP)
		l->ops->put_file(l, d, at, file, ext, mapped, n, q);
	else
		req_done(q, -ECONNRESET, 0);
}

void net_get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
	     size_t n, struct net_direct *direct, struct req *q)
{
	req_hold(q);
	if (l->state == LINK_UP)
		l->ops->get(l, d, at, dst, n, direct, q);
	else
		req_done(q, -ECONNRESET, 0);
}

/* ---- transfers of the backends ---- */

struct xfer *xfer_new(struct net *n, uint64_t tag, uint64_t at, const struct iovec *iov,
		      size_t n_iov, struct req *q)
{
	struct list *it = list_pop(&n->spare_xfers);
	struct xfer *x = it ? list_entry(it, struct xfer, link) : malloc(sizeof(*x));

	if (!x)
		return NULL;
	memset(x, 0, sizeof(*x));
	list_init(&x->link);
	x->net = n;
	x->q = q;
	x->tag = tag;
	x->at = at;
	x->iov = iov;
	x->n = n_iov;
	x->len = iov_total(iov, n_iov);
	return x;
}

/* Ends the transfer: its request continues. */
void xfer_end(struct xfer *x, int error)
{
	struct req *q = x->q;
	uint64_t len = x->len;

	list_del(&x->link);
	list_push_front(&x->net->spare_xfers, &x->link);
	if (q)
		req_done(q, error, error ? 0 : len);
}
