/* net_tcp, the shorter way of a host: a server reads what a client of its own user writes out of that process's memory. That is
 * one copy instead of two, and the request is the only message.
 *
 * The client tells with the request where its memory is (mem_desc.keys) and where a number stands that is there as long as the
 * memory may be read, and gone before its owner gets it back. The server looks for the number after each copy, and does not use
 * what it read when it is gone: the process may be another one by now, or the memory used for other things. Where a
 * copy goes straight into a file it looks before, too; what went there all the same in that moment becomes zeros, and the
 * request, which nobody waits for, ends. Where the system does not let us, the data are asked for as ever.
 *
 * Threads: the loop's. Buffers: as of any transfer. Errors: of a transfer. */
#include <assert.h>
#include <stdatomic.h>

#include "net/net_tcp.h"

#define SEGMENTS 64
#define SEGMENT_LEAST (4 * KIB) /* smaller ones are packed, on average */
#define MEMORY_LEAST (32 * KIB)
#define MEMORY_MOST (8 * MIB) /* of one request: while it is read the client sees nothing move */

static_assert(16 + 16 * SEGMENTS <= NET_KEYS, "all have room");

/* ---- the client ---- */

int tcp_expose(struct link *l, struct net_desc *d)
{
	uint64_t len = d->view->length, at = (uintptr_t)&d->proof, proof, got;
	struct iovec iov[SEGMENTS];
	struct net *n = l->net;
	struct xdr x;
	size_t k;

	if (!l->reads || d->access != CAP_READ || d->mover != MOVER_AUTO || len < MEMORY_LEAST ||
	    len > MEMORY_MOST)
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
	return e->sock->read_memory(e, t->l.pid, dst, (int)n, src, (int)m);
}

static bool still_there(struct tcp_link *t, const struct memory *m)
{
	uint64_t found = 0;
	struct iovec dst = { &found, sizeof(found) };
	struct iovec src = { (void *)(uintptr_t)m->proof_at, sizeof(found) };

	atomic_thread_fence(memory_order_seq_cst);
	return read_memory(t, &dst, 1, &src, 1) == sizeof(found) && found == m->proof;
}

/* Bytes that came, or -errno. */
static ssize_t read_chunk(struct tcp_link *t, struct xfer *x)
{
	struct net_direct *d = x->direct;
	bool directly = d && d->done == x->done && d->done < d->len && d->may(d);
	uint64_t len = MIN(x->len - x->done, pace_chunk(&t->l));
	struct iovec src[SEGMENTS], dst[IOV_CALL];
	struct memory m;
	size_t n, k, got;
	ssize_t r;

	if (!decode(x->keys, &m))
		return -EINVAL;
	if (directly)
		n = iov_slice(d->iov, d->n, d->done, MIN(len, d->len - d->done), dst, IOV_CALL,
			      &got);
	else
		n = iov_slice(x->iov, x->n, x->done, len, dst, IOV_CALL, &got);
	len = got;
	k = iov_slice(m.iov, m.n, x->at + x->done, len, src, SEGMENTS, &got);
	if (got < len) /* it has told of less than it writes */
		return -EINVAL;
	if (directly && !still_there(t, &m))
		return -ECANCELED;
	r = read_memory(t, dst, n, src, k);
	if (r == -EFAULT && directly) { /* the file may have been cut */
		x->direct = NULL;
		return 0;
	}
	if (r <= 0)
		return r ? r : -EFAULT;
	if (!still_there(t, &m)) {
		if (directly)
			pieces_zero(dst, n);
		return -ECANCELED;
	}
	if (directly)
		d->done += (uint64_t)r;
	return r;
}

/* It is not for us: the ordinary way from now on. */
static bool refused(ssize_t r)
{
	return r == -EPERM || r == -ENOSYS || r == -ESRCH;
}

static void read_some(struct tcp_link *t, struct xfer *x)
{
	ssize_t r = read_chunk(t, x);

	if (refused(r) && !x->done) {
		t->l.pid = 0;
		list_del(&x->link);
		tcp_pull(t, x);
		return;
	}
	if (r < 0) {
		xfer_end(x, (int)r);
		return;
	}
	pace_use(&t->l, &t->pace, &t->pace.receive, (size_t)r);
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
		if (pace_over(&t->l, &t->pace.receive)) { /* in the next turn */
			timer_set(lp, &t->read_on, lp->now);
			break;
		}
		read_some(t, x);
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
