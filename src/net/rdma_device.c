/* The card of a net: a server opens it at its start and, if none works, from a timer while clients
 * are connected; a client when its first link wants it. It is closed with the net. It registers the
 * slabs of messages and the memory of bulk transfers once, keeps as many shared receives posted as
 * links have been promised, and gives completions to their links.
 *
 * Threads: the loop's. Buffers: receives are messages of the net; each is replaced when it is
 * filled. Errors: without a card links stay on TCP; net->rdma.why has the reason. */
#include <stdio.h>
#include <stdlib.h>

#include "net/rdma.h"

#define POLL_BATCH 64
#define BATCHES 4 /* in one turn of the loop */
#define RETRY_NS (60 * NSEC_PER_SEC)
#define RECEIVE_BYTES (FRAME_HEAD + MSG_SHORT)
#define LOST_SHARE 4 /* at most a quarter of the receives may be lost */
#define WORK_REQUEST_NS 150 /* typical of a card, until it is measured */

/* ---- completions ---- */

static struct msg *take_receive(struct rdma_device *d, uint64_t id)
{
	struct msg *m = d->receives[id];

	d->receives[id] = NULL;
	d->n_receives--;
	return m;
}

/* The queue pair executes nothing any more. */
static void failed(struct rdma_link *r, int error)
{
	rdma_failed(r->l, error == -ETIMEDOUT ? "the server did not answer by RDMA" :
			  error == -EACCES    ? "a key was refused" :
						"the queue pair failed");
	link_close(r->l, error == -ETIMEDOUT ? -ETIMEDOUT : -ECONNRESET);
}

static void completed(struct rdma_device *d, const struct fabric_completion *c)
{
	struct rdma_link *r = c->owner;
	struct msg *m = c->event == FABRIC_SENT ? NULL : take_receive(d, c->id);

	if (!r || r->is_closing || c->error || c->event == FABRIC_RECEIVED_IMM)
		msg_free(m); /* another one is posted in its place */
	if (!r)
		return;
	if (c->event == FABRIC_SENT)
		r->n_completed = MAX(r->n_completed, c->id);
	if (r->is_closing)
		rdma_closing(r);
	else if (c->error)
		failed(r, c->error);
	else if (c->event == FABRIC_SENT)
		rdma_sent(r);
	else if (c->event == FABRIC_RECEIVED_IMM)
		rdma_filled(r, c->imm);
	else
		rdma_received(r, m, c->len);
}

/* A link may be closed by a completion of the same batch: references keep it until the end. */
static size_t take_batch(struct rdma_device *d)
{
	struct fabric_completion c[POLL_BATCH];
	size_t n = d->ops->poll(d->fabric, c, POLL_BATCH);

	for (size_t i = 0; i < n; i++)
		if (c[i].owner)
			link_ref(((struct rdma_link *)c[i].owner)->l);
	for (size_t i = 0; i < n; i++)
		completed(d, &c[i]);
	rdma_receives_post(d); /* an error shows when a link needs them */
	for (size_t i = 0; i < n; i++)
		if (c[i].owner)
			link_unref(((struct rdma_link *)c[i].owner)->l);
	return n;
}

static void poll_device(struct rdma_device *d)
{
	for (int i = 0; i < BATCHES; i++)
		if (take_batch(d) < POLL_BATCH && !d->ops->arm(d->fabric))
			return;
	loop_defer_last(d->net->loop, &d->again);
	loop_wake(d->net->loop);
}

/* The card has failed for good: no completion comes any more. */
static void close_links(struct rdma_device *d)
{
	struct rdma_link *r;

	while ((r = list_first(&d->links, struct rdma_link, in_device))) {
		rdma_failed(r->l, d->ops->trouble(d->fabric));
		link_close_now(r->l, -ECONNRESET); /* one that waits for its flush, too */
	}
}

static void check_card(struct rdma_device *d)
{
	if (d->ops->is_dead(d->fabric))
		close_links(d);
}

static void device_ready(void *arg)
{
	struct rdma_device *d = arg;
	const char *trouble = d->ops->trouble(d->fabric);

	if (trouble && !d->is_troubled)
		log_warn("net", "no RDMA: %s", trouble);
	else if (!trouble && d->is_troubled)
		log_info("net", "RDMA: %s", d->caps->name);
	d->is_troubled = trouble;
	poll_device(d);
	check_card(d);
}

static void poll_again(struct deferred *it)
{
	struct rdma_device *d = container_of(it, struct rdma_device, again);

	poll_device(d);
	check_card(d);
}

/* ---- memory ---- */

int rdma_make(struct rdma_device *d, void *addr, size_t len, unsigned rights,
	      struct fabric_mem *out)
{
	int e = d->ops->mem_make(d->fabric, addr, len, rights, out);

	if (e == -ENOMEM && d->reg) {
		reg_flush(d->reg);
		e = d->ops->mem_make(d->fabric, addr, len, rights, out);
	}
	return e;
}

const struct fabric_mem *rdma_message_mem(struct rdma_device *d, struct msg *m)
{
	struct msg_slab *s = m->slab;
	bool is_offered = s && s->is_long && !d->net->server;

	if (!s || s->net != d->net)
		return NULL;
	if (!s->is_registered) {
		s->is_registered = !rdma_make(d, s->mem, s->bytes,
					      is_offered ? FABRIC_REMOTE_READ : FABRIC_LOCAL_WRITE,
					      &s->registered);
		d->net->account.registrations += s->is_registered;
	}
	return s->is_registered ? &s->registered : NULL;
}

bool rdma_local_key(struct rdma_device *d, const void *addr, uint64_t len, uint32_t *key)
{
	const struct iovec *b = &d->net->rdma.bulk;
	uintptr_t at = (uintptr_t)addr, from = (uintptr_t)b->iov_base;

	*key = d->bulk.lkey;
	return d->has_bulk && at >= from && len <= b->iov_len && at - from <= b->iov_len - len;
}

uint32_t rdma_sends(const struct rdma_device *d)
{
	return MIN((uint32_t)RDMA_SENDS, d->caps->send_depth);
}

void rdma_promise(struct rdma_link *r)
{
	const struct credits *c = &r->credits;
	uint32_t now = MAX(c->depth, c->granted - c->received) + 1, spare;

	if (r->is_closing)
		now = 0;
	r->dev->n_wanted += now - r->promised;
	r->promised = now;
	spare = r->dev->caps->receive_depth - MIN(r->dev->n_wanted, r->dev->caps->receive_depth);
	r->credits.depth_max = MIN(c->depth + spare, (uint32_t)CREDIT_MAX);
}

void rdma_note_lost(struct rdma_link *r)
{
	struct rdma_device *d = r->dev;

	if (r->l->had_sessions && d->n_lost < d->caps->receive_depth / LOST_SHARE)
		d->n_lost++;
}

int rdma_receives_post(struct rdma_device *d)
{
	while (d->n_receives < MIN(d->n_wanted + d->n_lost, d->caps->receive_depth)) {
		struct msg *m = msg_new(d->net, MSG_SHORT);
		const struct fabric_mem *mem = m ? rdma_message_mem(d, m) : NULL;
		struct fabric_receive r = { .len = RECEIVE_BYTES };
		uint32_t id = d->next_receive;

		while (d->receives[id])
			id = (id + 1) % d->caps->receive_depth;
		if (!mem) {
			msg_free(m);
			return -ENOMEM;
		}
		r.id = id;
		r.lkey = mem->lkey;
		r.addr = m->head;
		if (d->ops->receive(d->fabric, &r, 1)) {
			msg_free(m);
			return -EIO;
		}
		d->receives[id] = m;
		d->next_receive = (id + 1) % d->caps->receive_depth;
		d->n_receives++;
	}
	return 0;
}

/* ---- life ---- */

static void drop_memory(struct rdma_device *d)
{
	struct list *slabs = &d->net->slabs;

	/* not list_for_each(): the head of the list is not aligned as a slab is */
	for (struct list *it = slabs->next; it != slabs; it = it->next) {
		struct msg_slab *s = list_entry(it, struct msg_slab, link);

		if (s->is_registered)
			d->ops->mem_drop(d->fabric, &s->registered);
		s->is_registered = false;
	}
	if (d->has_bulk)
		d->ops->mem_drop(d->fabric, &d->bulk);
}

void rdma_device_close(struct net *n)
{
	struct rdma_device *d = n->rdma.device;
	uint32_t n_receives;

	if (!d)
		return;
	n_receives = d->caps->receive_depth; /* of the device, which is closed first */
	list_del(&d->again.link);
	drop_memory(d);
	rdma_bounces_free(d);
	if (d->reg)
		reg_close(d->reg);
	d->ops->close(d->fabric);
	for (uint32_t i = 0; d->receives && i < n_receives; i++)
		msg_free(d->receives[i]);
	free(d->receives);
	free(d);
	n->rdma.device = NULL;
}

static int open_device(struct rdma_device *d)
{
	struct net *n = d->net;
	struct net_rdma *r = &n->rdma;
	int e = d->ops->open(n->loop->env, n->loop, &r->want, device_ready, d, &d->fabric, r->why,
			     sizeof(r->why));

	if (e)
		return e;
	d->caps = d->ops->caps(d->fabric);
	n->rdma.device = d;
	n->longs_max = MSG_LONGS;
	d->receives = calloc(d->caps->receive_depth, sizeof(struct msg *));
	if (!d->receives)
		return -ENOMEM;
	if (r->bulk.iov_len) {
		e = d->ops->mem_make(d->fabric, r->bulk.iov_base, r->bulk.iov_len,
				     FABRIC_LOCAL_WRITE, &d->bulk);
		d->has_bulk = !e;
		n->account.registrations += !e;
	}
	if (e)
		snprintf(r->why, sizeof(r->why),
			 "cannot register %llu MiB of buffers: raise the limit of locked memory "
			 "(ulimit -l, LimitMEMLOCK)",
			 (unsigned long long)(r->bulk.iov_len / MIB));
	if (!e)
		poll_device(d); /* also asks for ready() */
	return e;
}

void net_set_rdma(struct net *n, const struct conf_rdma *c)
{
	struct fabric_want *w = &n->rdma.want;

	n->rdma.is_off |= strcmp(c->device, "none") == 0;
	n->rdma.never_driven = c->never_driven;
	n->rdma.pinned_max = c->pinned_max;
	*w = (struct fabric_want){ .port = c->port,
				   .gid_index = c->gid_index == CONF_AUTO ? -1 : (int)c->gid_index,
				   .traffic_class = (uint8_t)c->traffic_class,
				   .service_level = (uint8_t)c->service_level,
				   .pkey = c->pkey };
	strcpy(w->device, c->device);
}

bool rdma_is_offered(const struct net *n)
{
	const struct net_rdma *r = &n->rdma;

	if (r->device)
		return true;
	return !r->is_off && r->error && (r->error != -ENODEV || r->want.device[0]);
}

void net_open_card(struct net *n)
{
	struct rdma_device *d = rdma_device_get(n);

	if (d)
		log_info("net", "RDMA: %s", d->caps->name);
	else if (n->rdma.error && n->rdma.error != -ENODEV)
		log_warn("net", "no RDMA: %s", n->rdma.why);
	else if (n->rdma.want.device[0] && !n->rdma.is_off)
		log_warn("net", "no RDMA, although the cluster file names %s: %s",
			 n->rdma.want.device, n->rdma.why);
}

/* A card that has failed for good is opened again once nothing uses it. */
static struct rdma_device *usable(struct rdma_device *d)
{
	struct net *n = d->net;
	const char *trouble = d->ops->trouble(d->fabric);

	/* no link uses the card now: close it, and open it with a full receive queue */
	if (!trouble && d->n_lost && list_empty(&d->links))
		trouble = "the card is opened again, since clients died while they sent";
	else if (!trouble)
		return d;
	snprintf(n->rdma.why, sizeof(n->rdma.why), "%s", trouble);
	if (list_empty(&d->links) && (d->n_lost || n->loop->now >= n->rdma.retry_at)) {
		n->rdma.retry_at = 0;
		rdma_device_close(n);
	}
	return NULL;
}

struct rdma_device *rdma_device_get(struct net *n)
{
	const struct fabric_ops *ops = n->loop->env->fabric;
	struct net_rdma *r = &n->rdma;
	struct rdma_device *d;

	if (!ops || r->is_off)
		return NULL;
	d = r->device ? usable(r->device) : NULL;
	if (d || r->device)
		return d;
	if (n->loop->now < r->retry_at)
		return NULL;
	r->retry_at = n->loop->now + RETRY_NS;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->net = n;
	d->ops = ops;
	list_init(&d->bounces);
	list_init(&d->links);
	d->again.run = poll_again;
	list_init(&d->again.link);
	d->costs = n->costs[MEDIUM_LOCAL];
	d->costs.gather = d->costs.scatter = 0; /* of sockets */
	d->costs.work_request = WORK_REQUEST_NS;
	r->error = open_device(d);
	if (r->error) {
		if (d->fabric)
			rdma_device_close(n);
		else
			free(d);
		return NULL;
	}
	return d;
}

bool rdma_is_ready(const struct net *n)
{
	const struct rdma_device *d = n->rdma.device;

	return d && !n->rdma.is_off && !d->ops->trouble(d->fabric);
}

static void look_again(struct timer *t)
{
	struct net_rdma *r = container_of(t, struct net_rdma, look);
	struct net *n = container_of(r, struct net, rdma);
	struct rdma_device *d;

	d = rdma_device_get(n);
	if (d)
		log_info("net", "RDMA: %s", d->caps->name);
	else if (n->n_links)
		timer_set(n->loop, t, n->loop->now + RETRY_NS);
}

void rdma_look(struct net *n)
{
	struct net_rdma *r = &n->rdma;

	if (!n->loop->env->fabric || r->is_off || r->look.when || rdma_is_ready(n))
		return;
	r->look.fire = look_again;
	timer_set(n->loop, &r->look, MAX(n->loop->now, r->retry_at)); /* or with the next link */
}
