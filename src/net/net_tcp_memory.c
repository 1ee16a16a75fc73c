/* net_tcp, the shorter way of a host: a server reads what a client of its own user writes out of that process's memory. The
 * request is the only message, and nothing is copied into a socket.
 *
 * The client, if it was told to (net.near), tells with the request where its memory is (mem_desc.keys) and where a number stands
 * that is there as long as the memory may be read, and gone before its owner gets it back. The server copies to its buffers and
 * looks for the number afterwards: what it read counts only if it finds it, and only then goes on to a better place. So
 * nothing of memory that was given up, or of another process, is ever written. Where the system does not let us, and where memory
 * cannot be read from outside, the data are asked for as ever.
 *
 * Reading waits for nobody, if the memory is there: a page that is not would be waited for by the server's loop. So it is for
 * clients who know that theirs is ordinary memory, as the mount does.
 *
 * Threads: the loop's. Buffers: as of any transfer. Errors: of a transfer. */
#include <assert.h>
#include <stdatomic.h>

#include "net/net_tcp.h"

#define SEGMENTS 64
#define SEGMENT_LEAST (4 * KIB) /* smaller ones are packed, on average */
#define MEMORY_LEAST (32 * KIB)
/* of one request, and of all that are under way: while it is read the client sees nothing move */
#define MEMORY_MOST MIB
#define MEMORY_ALL (8 * MIB)

static_assert(16 + 16 * SEGMENTS <= NET_KEYS, "all have room");

/* ---- the client ---- */

int tcp_expose(struct link *l, struct net_desc *d)
{
	uint64_t len = d->view->length, at = (uintptr_t)&d->proof, proof, got;
	struct iovec iov[SEGMENTS];
	struct net *n = l->net;
	struct xdr x;
	size_t k;

	if (!l->reads || !n->near || d->access != CAP_READ || d->mover != MOVER_AUTO ||
	    len < MEMORY_LEAST || len > MEMORY_MOST || l->peer->outstanding > MEMORY_ALL)
		return 0;
	k = view_iov(d->view, 0, len, iov, SEGMENTS, &got);
	if (got < len || len / k < SEGMENT_LEAST)
		return 0;
	if (!n->proofs)
		n->proofs = env_random_u64(n->loop->env);
	proof = hash_u64(++n->proofs) | 1;
	d->proof = proof;
	xdr_encoder(&x, n->keys, sizeof(n->keys));
	xdr_u64(&x, &at);
	xdr_u64(&x, &proof);
	for (size_t i = 0; i < k; i++) {
		uint64_t base = (uintptr_t)iov[i].iov_base, size = iov[i].iov_len;

		xdr_u64(&x, &base);
		xdr_u64(&x, &size);
	}
	d->keys = (struct wire_bytes){ (uint32_t)(16 + 16 * k), n->keys };
	return 0;
}

/* ---- the server ---- */

struct memory {
	uint64_t proof_at, proof;
	struct iovec iov[SEGMENTS];
	size_t n;
};

static bool decode(const struct wire_bytes *keys, struct memory *m)
{
	uint64_t base, size;
	struct xdr x;

	xdr_decoder(&x, keys->p, keys->len, NULL);
	if (!xdr_u64(&x, &m->proof_at) || !xdr_u64(&x, &m->proof))
		return false;
	for (m->n = 0; xdr_left(&x); m->n++) {
		if (m->n == SEGMENTS || !xdr_u64(&x, &base) || !xdr_u64(&x, &size))
			return false;
		m->iov[m->n] = (struct iovec){ (void *)(uintptr_t)base, size };
	}
	return true;
}

static ssize_t read_memory(struct tcp_link *t, const struct iovec *dst, size_t n,
			   const struct iovec *src, size_t m)
{
	struct env *e = env_of(t);

	count_calls(t, 1);
	return e->sock->read_memory(e, &t->l.process, dst, (int)n, src, (int)m);
}

/* 0, -ECANCELED, or why nobody can tell. */
static int still_there(struct tcp_link *t, const struct memory *m)
{
	struct env *e = env_of(t);
	uint64_t found = 0;
	struct iovec dst = { &found, sizeof(found) };
	struct iovec src = { (void *)(uintptr_t)m->proof_at, sizeof(found) };
	ssize_t r;

	atomic_thread_fence(memory_order_seq_cst);
	r = read_memory(t, &dst, 1, &src, 1);
	if (r < 0 && r != -EFAULT)
		return (int)r;
	if (r != sizeof(found) || found != m->proof)
		return -ECANCELED;
	count_calls(t, 1);
	return e->sock->lives(e, &t->l.process) ? 0 : -ESRCH; /* so all that was its memory */
}

/* `len` bytes have come into our buffers: on to the better place, as far as they may. */
static void place(struct xfer *x, uint64_t len)
{
	struct net_direct *d = x->direct;
	struct iovec from, to[IOV_CALL];
	size_t n, got, want;

	if (!d || d->done != x->done || d->done == d->len || !d->may(d))
		return;
	len = MIN(x->done + len, d->len);
	while (d->done < len) { /* piece by piece of ours */
		iov_slice(x->iov, x->n, d->done, len - d->done, &from, 1, &want);
		n = iov_slice(d->iov, d->n, d->done, want, to, IOV_CALL, &got);
		if (pieces_unpack(to, n, from.iov_base)) {
			x->direct = NULL; /* the file may have been cut */
			return;
		}
		d->done += got;
	}
}

/* Bytes that came, or -errno. */
static ssize_t read_chunk(struct tcp_link *t, struct xfer *x)
{
	struct iovec src[SEGMENTS], dst[IOV_CALL];
	struct memory m;
	size_t n, k, got, len;
	ssize_t r;
	int gone;

	if (!decode(x->keys, &m))
		return -EINVAL;
	n = iov_slice(x->iov, x->n, x->done, MIN(x->len - x->done, pace_chunk(&t->l)), dst,
		      IOV_CALL, &len);
	k = iov_slice(m.iov, m.n, x->at + x->done, len, src, SEGMENTS, &got);
	if (got < len) /* it has told of less than it writes */
		return -EINVAL;
	r = read_memory(t, dst, n, src, k);
	if (r <= 0)
		return r ? r : -EFAULT;
	gone = still_there(t, &m);
	if (gone)
		return gone;
	place(x, (uint64_t)r);
	return r;
}

static void read_some(struct tcp_link *t, struct xfer *x)
{
	ssize_t r = read_chunk(t, x);

	if (r == -ECANCELED || r == -EINVAL) {
		xfer_end(x, (int)r);
		return;
	}
	if (r < 0) { /* this memory is not for us, or none is */
		if (r != -EFAULT)
			link_forget_process(&t->l);
		list_del(&x->link);
		tcp_pull(t, x);
		return;
	}
	pace_use(&t->l, &t->pace, &t->pace.read, (size_t)r);
	x->done += (uint64_t)r;
	if (x->done == x->len)
		xfer_end(x, 0);
}

void tcp_read_late(struct late *late)
{
	struct tcp_link *t = container_of(late, struct tcp_link, reading);
	struct loop *lp = t->l.net->loop;
	struct xfer *x;

	link_ref(&t->l);
	while ((x = list_first(&t->reads, struct xfer, link))) {
		if (!pace_over(&t->l, &t->pace.read))
			read_some(t, x);
		else if (timer_set(lp, &t->read_on, lp->now) == 0) /* in the next turn */
			break;
		else
			xfer_end(x, -ENOMEM);
	}
	link_unref(&t->l);
}

void tcp_read_on(struct timer *tm)
{
	struct tcp_link *t = container_of(tm, struct tcp_link, read_on);

	loop_last(t->l.net->loop, &t->reading);
}

void tcp_read_memory(struct tcp_link *t, struct xfer *x)
{
	list_push(&t->reads, &x->link);
	loop_last(t->l.net->loop, &t->reading);
}
