/* The net of one loop: its identity, message memory, proofs, and the backend of an address. */
#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "net/backend.h"
#include "net/net.h"

#define SPARE_CAP (9 * KIB) /* messages up to this size are reused: includes a little inline data */
#define SPARE_MAX 256

void net_init(struct net *n, struct loop *l, const struct net_identity *id)
{
	memset(n, 0, sizeof(*n));
	n->loop = l;
	n->id = *id;
	net_costs_usual(&n->costs);
	limits_init(&n->limits);
	list_init(&n->links);
	list_init(&n->strangers);
	list_init(&n->spare_msgs);
	list_init(&n->spare_xfers);
	list_init(&n->acceptors);
}

uint8_t *net_scratch(struct net *n)
{
	if (!n->scratch)
		n->scratch = malloc(NET_SCRATCH);
	return n->scratch;
}

void net_fini(struct net *n)
{
	struct list *it;

	net_stop_listening(n);
	while (!list_empty(&n->strangers))
		link_close(list_first(&n->strangers, struct link, in_net), -ESHUTDOWN);
	while (!list_empty(&n->links))
		link_close(list_first(&n->links, struct link, in_net), -ESHUTDOWN);
	while ((it = list_pop(&n->spare_msgs)))
		free(list_entry(it, struct msg, link));
	n->n_spare_msgs = SPARE_MAX; /* messages still held by calls are then freed, not reused */
	while ((it = list_pop(&n->spare_xfers)))
		free(list_entry(it, struct xfer, link));
	free(n->scratch);
	n->scratch = NULL;
	limits_fini(&n->limits);
}

static bool is_loop(const char *address)
{
	return strncmp(address, "loop:", 5) == 0;
}

int net_listen(struct net *n, const char *address, char *err, size_t err_len)
{
	if (sock_is_local(address)) {
		snprintf(err, err_len, "address %s is not of the form HOST:PORT", address);
		return -EINVAL;
	}
	return is_loop(address) ? loop_listen(n, address, err, err_len) :
				  tcp_listen(n, address, err, err_len);
}

/* The name of the Unix socket of an address (core.h). False: there is none. */
static bool local_of(const struct net *n, const char *address, char local[CONF_ADDR_MAX + 1])
{
	snprintf(local, CONF_ADDR_MAX + 1, "@%s", address);
	return n->loop->env->sock->origin_local && !is_loop(address);
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

int link_dial(struct net *n, struct peer *p, const char *address, uint32_t target,
	      struct link **out)
{
	return is_loop(address) ? loop_dial(n, p, address, target, out) :
				  tcp_dial(n, p, address, target, out);
}

int link_dial_local(struct net *n, struct peer *p, const char *address, uint32_t target,
		    struct link **out)
{
	char local[CONF_ADDR_MAX + 1];

	return local_of(n, address, local) ? tcp_dial(n, p, local, target, out) : -ECONNREFUSED;
}

/* ---- messages ---- */

struct msg *msg_new(struct net *n, uint32_t cap)
{
	struct msg *m;

	if (cap <= SPARE_CAP && !list_empty(&n->spare_msgs)) {
		m = list_entry(list_pop(&n->spare_msgs), struct msg, link);
		n->n_spare_msgs--;
	} else {
		cap = MAX(cap, (uint32_t)SPARE_CAP);
		m = malloc(sizeof(*m) + cap);
		if (!m)
			return NULL;
		m->cap = cap;
		m->net = n;
	}
	list_init(&m->link);
	m->len = m->sent = 0;
	return m;
}

void msg_free(struct msg *m)
{
	if (!m)
		return;
	if (m->cap == SPARE_CAP && m->net->n_spare_msgs < SPARE_MAX) {
		list_push_front(&m->net->spare_msgs, &m->link);
		m->net->n_spare_msgs++;
		return;
	}
	free(m);
}

static bool encode_into(struct msg *m, xdr_any f1, void *v1, xdr_any f2, void *v2)
{
	struct xdr x;

	xdr_encoder(&x, m->body, MIN(m->cap, (uint32_t)MSG_MAX));
	if (!f1(&x, v1) || (f2 && !f2(&x, v2)))
		return false;
	m->len = (uint32_t)xdr_used(&x);
	return true;
}

struct msg *msg_encode(struct net *n, xdr_any f1, void *v1, xdr_any f2, void *v2)
{
	struct msg *m = msg_new(n, SPARE_CAP);

	if (m && encode_into(m, f1, v1, f2, v2))
		return m;
	msg_free(m);
	m = msg_new(n, MSG_MAX);
	if (m && encode_into(m, f1, v1, f2, v2))
		return m;
	msg_free(m);
	return NULL;
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

/* ---- proofs ---- */

struct evp_mac_ctx_st *mac_key(const uint8_t key[KEY_BYTES])
{
	OSSL_PARAM how[] = { OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, "SHA256", 0),
			     OSSL_PARAM_construct_end() };
	EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *k = hmac ? EVP_MAC_CTX_new(hmac) : NULL;

	EVP_MAC_free(hmac); /* k holds a reference */
	if (k && EVP_MAC_init(k, key, KEY_BYTES, how))
		return k;
	EVP_MAC_CTX_free(k);
	return NULL;
}

void mac_key_free(struct evp_mac_ctx_st *k)
{
	EVP_MAC_CTX_free(k);
}

void mac_make_with(uint8_t out[MAC_BYTES], struct evp_mac_ctx_st *k, const struct mac_part *parts)
{
	size_t n;
	int ok = EVP_MAC_init(k, NULL, 0, NULL);

	for (; parts->p; parts++)
		ok = ok && EVP_MAC_update(k, parts->p, parts->n);
	if (!ok || !EVP_MAC_final(k, out, &n, MAC_BYTES))
		abort();
}

void mac_make(uint8_t out[MAC_BYTES], const uint8_t key[KEY_BYTES], const struct mac_part *parts)
{
	struct evp_mac_ctx_st *k = mac_key(key);

	if (!k)
		abort();
	mac_make_with(out, k, parts);
	mac_key_free(k);
}

bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES])
{
	return CRYPTO_memcmp(a, b, MAC_BYTES) == 0;
}
