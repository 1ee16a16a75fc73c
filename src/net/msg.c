/* Memory of messages. Up to slab_msgs_max messages of a net come from slabs, which a network card
 * can register as a whole, and up to longs_max long ones from slabs of one message each. Further
 * ones have memory of their own.
 *
 * Threads: the loop's. A slab lives until its net has ended and its last message is free: a message
 * may pass to another net of the process, and calls may hold it for longer. */
#include <stdlib.h>

#include "net/msg.h"
#include "net/net.h"

static size_t msg_bytes(void)
{
	return sizeof(struct msg) + MSG_SHORT;
}

/* Adds a slab; its pages are not touched before they are used. */
static void add_slab(struct net *n)
{
	struct msg_slab *s = malloc(sizeof(*s) + MSG_PER_SLAB * msg_bytes());

	if (!s)
		return;
	*s = (struct msg_slab){ .net = n, .bytes = MSG_PER_SLAB * msg_bytes() };
	list_push(&n->slabs, &s->link);
	n->n_slab_msgs += MSG_PER_SLAB;
	for (size_t i = 0; i < MSG_PER_SLAB; i++) {
		struct msg *m = (struct msg *)(s->mem + i * msg_bytes());

		m->slab = s;
		list_push(&n->spare_msgs, &m->link);
	}
}

/* Adds a slab of one long message; nothing, if there are as many as there may be. */
static void add_long(struct net *n)
{
	size_t bytes = sizeof(struct msg) + MSG_MAX;
	struct msg_slab *s = n->n_longs < n->longs_max ? malloc(sizeof(*s) + bytes) : NULL;
	struct msg *m;

	if (!s)
		return;
	*s = (struct msg_slab){ .net = n, .bytes = bytes, .is_long = true };
	list_push(&n->slabs, &s->link);
	n->n_longs++;
	m = (struct msg *)s->mem;
	m->slab = s;
	list_push(&n->spare_longs, &m->link);
}

static void msg_init(struct msg *m, struct net *n)
{
	list_init(&m->link);
	m->net = n;
	m->len = m->sent = 0;
	m->behind = 0;
}

struct msg *msg_own(struct net *n, uint32_t cap)
{
	struct msg *m;

	cap = MAX(cap, (uint32_t)MSG_SHORT);
	m = malloc(sizeof(*m) + cap);
	if (!m)
		return NULL;
	m->cap = cap;
	m->slab = NULL;
	msg_init(m, n);
	return m;
}

struct msg *msg_new(struct net *n, uint32_t cap)
{
	bool is_long = cap > MSG_SHORT;
	struct list *spare = is_long ? &n->spare_longs : &n->spare_msgs;
	struct msg *m;

	if (list_empty(spare) && is_long)
		add_long(n);
	else if (list_empty(spare) && n->n_slab_msgs < n->slab_msgs_max)
		add_slab(n);
	if (list_empty(spare) || cap > MSG_MAX)
		return msg_own(n, cap);
	m = list_entry(list_pop(spare), struct msg, link);
	m->cap = is_long ? cap : MSG_SHORT;
	m->slab->n_used++;
	msg_init(m, n);
	return m;
}

struct msg *msg_spare_slab(struct msg *m)
{
	struct net *n = m->net;
	bool is_short = list_empty(&n->spare_msgs) && n->n_slab_msgs >= n->slab_msgs_max;
	struct msg *own = m->slab && is_short ? msg_own(n, MSG_SHORT) : NULL;

	if (!own)
		return m;
	memcpy(own->head, m->head, FRAME_HEAD + MSG_SHORT);
	msg_free(m);
	return own;
}

void msg_free(struct msg *m)
{
	struct msg_slab *s = m ? m->slab : NULL;

	if (!s) {
		free(m);
		return;
	}
	s->n_used--;
	if (s->net)
		list_push_front(s->is_long ? &s->net->spare_longs : &s->net->spare_msgs, &m->link);
	else if (!s->n_used)
		free(s);
}

void msg_slabs_end(struct net *n)
{
	struct list *it;

	list_init(&n->spare_msgs);
	list_init(&n->spare_longs);
	while ((it = list_pop(&n->slabs))) {
		struct msg_slab *s = list_entry(it, struct msg_slab, link);

		s->net = NULL;
		if (!s->n_used)
			free(s);
	}
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
	struct msg *m = msg_new(n, MSG_SHORT);

	if (m && encode_into(m, f1, v1, f2, v2))
		return m;
	msg_free(m);
	m = msg_new(n, MSG_MAX);
	if (m && encode_into(m, f1, v1, f2, v2))
		return m;
	msg_free(m);
	return NULL;
}
