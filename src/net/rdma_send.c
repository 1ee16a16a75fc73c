/* What a link has to do over its queue pair: messages, data put into and taken from the client's
 * memory, and invited writes. Each is a unit. At the end of a turn of the loop the work requests of
 * all units become chains; a chain is posted with one doorbell and has one completion, that of its
 * last work request. So the data of a read and its reply are one chain.
 *
 * Messages leave before data, except replies, which follow the data of their request, and a CANCEL,
 * which follows its request. Where the card does not keep the order, replies wait until the data
 * have arrived.
 *
 * Threads: the loop's. Buffers: lent until the unit has completed. Errors: a failed work request
 * closes the link; all units end when the queue pair is gone. */
#include <stdlib.h>

#include "net/frame.h"
#include "net/rdma.h"

#define ALONE_BYTES (64 * KIB) /* a get of more does not tell the round trip */
#define FILLS_MAX 1024 /* invitations for one descriptor that wait */

/* ---- units ---- */

struct rdma_unit *rdma_unit_new(enum rdma_kind kind, size_t n_local, size_t n_remote)
{
	struct rdma_unit *u =
		calloc(1, sizeof(*u) + (n_local + n_remote) * sizeof(struct rdma_range));

	if (!u)
		return NULL;
	u->kind = kind;
	u->local = u->ranges;
	u->remote = u->ranges + n_local;
	list_init(&u->link);
	return u;
}

/* A message is in a unit now ... */
static void message_queued(struct rdma_link *r, const struct msg *m)
{
	size_t bytes = msg_memory(m);

	usage_add(&r->l->held, LIMIT_REPLY_BYTES, bytes);
	r->n_messages++;
	r->queued += bytes;
	r->l->net->queued += bytes;
}

/* ... and no longer. */
static void message_left(struct rdma_link *r, const struct msg *m)
{
	size_t bytes = msg_memory(m);

	usage_give(&r->l->held, LIMIT_REPLY_BYTES, bytes);
	r->n_messages--;
	r->queued -= bytes;
	r->l->net->queued -= bytes;
}

static void unit_end(struct rdma_link *r, struct rdma_unit *u, int error)
{
	struct msg *fetched = u->kind == RDMA_FETCH && !error ? u->m : NULL;
	bool is_cancelled = u->is_cancelled;
	uint64_t tag = u->x && !error ? u->x->tag : 0, moved = u->len;

	list_del(&u->link);
	if (u->kind == RDMA_MESSAGE)
		message_left(r, u->m);
	if (u->is_registered)
		r->dev->ops->mem_drop(r->dev->fabric, &u->message_mem);
	if (!fetched)
		msg_free(u->m);
	if (u->x && u->kind == RDMA_READ && !error)
		link_note_delay(r->l, u->x);
	if (u->x) {
		r->dev->load--;
		if (u->done)
			rdma_note_end(r, u->len);
		xfer_end(u->x, error);
	}
	if (u->exposed && !error)
		rdma_note_fill(r, u->exposed);
	if (u->exposed && !--u->exposed->n_fills)
		rdma_fill_ended(u->exposed);
	free(u);
	if (fetched)
		rdma_fetched(r, fetched, is_cancelled); /* may close the link */
	if (tag)
		rdma_add_moved(r, tag, moved);
}

static void queue_unit(struct rdma_link *r, struct list *where, struct rdma_unit *u)
{
	rdma_watch(r);
	list_push(where, &u->link);
	loop_defer_last(r->l->net->loop, &r->deferred);
}

void rdma_queue_control(struct rdma_link *r, struct rdma_unit *u)
{
	queue_unit(r, &r->control, u);
}

/* ---- messages ---- */

/* Gives the message a key when it is posted: that of its slab, or one for this message alone. */
static int register_message(struct rdma_link *r, struct rdma_unit *u)
{
	const struct fabric_mem *slab = rdma_message_mem(r->dev, u->m);
	int e;

	if (slab)
		u->message_key = slab->lkey;
	if (slab || u->is_registered)
		return 0;
	e = rdma_make(r->dev, u->m->head, FRAME_HEAD + u->m->len,
		      u->kind == RDMA_FETCH ? FABRIC_LOCAL_WRITE : 0, &u->message_mem);
	r->l->account->registrations += !e;
	u->is_registered = !e;
	u->message_key = u->message_mem.lkey;
	return e;
}

static int queue_message(struct rdma_link *r, struct list *where, struct msg *m)
{
	struct rdma_unit *u = rdma_unit_new(RDMA_MESSAGE, 0, 0);

	if (!u) {
		msg_free(m);
		return -ENOMEM;
	}
	u->m = m;
	message_queued(r, m);
	queue_unit(r, where, u);
	return 0;
}

/* Cuts a long message into several, which the receiver joins again. */
static int queue_long(struct rdma_link *r, struct msg *m)
{
	struct wire_frame_head more = { .kind = FRAME_MORE, .tag = m->tag };
	int e = 0;

	for (uint32_t at = 0; at < m->len && !e; at += MSG_SHORT) {
		struct msg *part = msg_new(m->net, MSG_SHORT);

		if (!part)
			return -ENOMEM;
		part->len = MIN(m->len - at, (uint32_t)MSG_SHORT);
		part->behind = m->behind;
		part->tag = m->tag;
		memcpy(part->body, m->body + at, part->len);
		r->l->account->copied += part->len;
		more.length = part->len;
		if (at)
			frame_head_encode(part->head, &more);
		else
			memcpy(part->head, m->head, FRAME_HEAD); /* with the whole length */
		e = queue_message(r, &r->bulk, part);
	}
	return e;
}

static bool has_data_of(const struct list *units, uint64_t tag)
{
	const struct rdma_unit *u;

	list_for_each(u, units, link)
		if (u->kind == RDMA_PUT && u->x->tag == tag)
			return true;
	return false;
}

/* Client: does the request of this tag wait, in parts? Its CANCEL must not overtake it. */
static bool has_parts_of(const struct list *units, uint64_t tag)
{
	const struct rdma_unit *u;

	list_for_each(u, units, link)
		if (u->kind == RDMA_MESSAGE && u->m->tag == tag)
			return true;
	return false;
}

void rdma_message(struct rdma_link *r, struct msg *m)
{
	bool follows = r->l->dialled ? has_parts_of(&r->bulk, m->tag) :
				       m->behind && has_data_of(&r->bulk, m->behind);
	int e;

	if (m->len > MSG_SHORT && rdma_offer(r, m))
		return;
	if (m->len > MSG_SHORT) {
		e = queue_long(r, m);
		msg_free(m);
	} else {
		e = queue_message(r, follows ? &r->bulk : &r->control, m);
	}
	if (!e && link_queue_is_over(r->l, r->n_messages, r->queued))
		e = -ENOBUFS;
	if (e)
		link_close(r->l, e);
}

/* ---- transfers ---- */

/* The peer's ranges of stream bytes [at, at + len), from a descriptor, go to dev->remote. Their
 * number, or -EPROTO: the descriptor has less. */
static ssize_t find_remote(struct rdma_device *dev, const struct wire_bytes *keys, uint64_t at,
			   uint64_t len)
{
	struct xdr x;
	uint32_t n_list;
	ssize_t n = 0;

	xdr_decoder(&x, (void *)(uintptr_t)keys->p, keys->len, NULL);
	if (!xdr_u32(&x, &n_list))
		return -EPROTO;
	n_list &= ~KEYS_DRIVEN;
	if (n_list > SEGMENTS_MAX)
		return -EPROTO;
	for (uint32_t i = 0; i < n_list && len; i++) {
		struct wire_rdma_segment s;
		uint64_t skip, take;

		if (!xdr_wire_rdma_segment(&x, &s) || s.addr + s.length < s.addr)
			return -EPROTO;
		skip = MIN(at, s.length);
		take = MIN(s.length - skip, len);
		at -= skip;
		len -= take;
		if (take)
			dev->remote[n++] = (struct rdma_range){ s.addr + skip, take, s.key };
	}
	return len ? -EPROTO : n;
}

static void end_early(struct xfer *x, struct req *q, int error)
{
	if (x)
		xfer_end(x, error);
	else
		req_done(q, error, 0);
}

/* A unit that moves the transfer's buffers to or from the first n ranges of dev->remote. */
static struct rdma_unit *transfer_unit(struct rdma_link *r, enum rdma_kind kind, struct xfer *x,
				       size_t n)
{
	struct rdma_unit *u = rdma_unit_new(kind, x->n, n);

	for (size_t i = 0; u && i < x->n; i++) {
		u->local[i].addr = (uintptr_t)x->iov[i].iov_base;
		u->local[i].len = x->iov[i].iov_len;
		if (rdma_local_key(r->dev, x->iov[i].iov_base, x->iov[i].iov_len, &u->local[i].key))
			continue;
		free(u);
		return NULL;
	}
	if (!u)
		return NULL;
	memcpy(u->remote, r->dev->remote, n * sizeof(u->remote[0]));
	r->dev->load++;
	u->x = x;
	u->len = x->len;
	return u;
}

void rdma_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	      size_t n, struct req *q)
{
	struct rdma_link *r = l->rdma;
	struct xfer *x = xfer_new(l->net, d->tag, at, src, n, q);
	ssize_t found = x ? find_remote(r->dev, &d->keys, at, x->len) : -ENOMEM;
	struct rdma_unit *u;

	if (found < 0) {
		end_early(x, q, (int)found);
		return;
	}
	u = transfer_unit(r, RDMA_PUT, x, (size_t)found);
	if (!u) {
		end_early(x, q, -ENOMEM);
		return;
	}
	queue_unit(r, &r->bulk, u);
}

/* ---- gets that the client writes ---- */

static void grant_end(struct rdma_link *r, struct rdma_grant *g, int error)
{
	if (g == list_first(&r->grants, struct rdma_grant, link))
		r->granted_at = r->l->net->loop->now;
	list_del(&g->link);
	r->dev->load--;
	rdma_note_end(r, g->x->len);
	for (uint32_t i = 0; i < g->n_mems; i++)
		r->dev->ops->mem_drop(r->dev->fabric, &g->mems[i]);
	xfer_end(g->x, error);
	free(g);
}

/* Grants the transfer's buffers, and only those, to the client. */
static struct rdma_grant *grant_new(struct rdma_link *r, struct xfer *x,
				    struct wire_rdma_segments *segs)
{
	struct rdma_grant *g = calloc(1, sizeof(*g) + x->n * sizeof(g->mems[0]));

	for (size_t i = 0; g && i < x->n; i++) {
		const struct iovec *v = &x->iov[i];

		/* The client may write less than it says: others' bytes must not be there. */
		memset(v->iov_base, 0, v->iov_len);
		if (rdma_make(r->dev, v->iov_base, v->iov_len,
			      FABRIC_LOCAL_WRITE | FABRIC_REMOTE_WRITE, &g->mems[i])) {
			while (g->n_mems)
				r->dev->ops->mem_drop(r->dev->fabric, &g->mems[--g->n_mems]);
			free(g);
			return NULL;
		}
		g->n_mems++;
		segs->list[i] = (struct wire_rdma_segment){ (uintptr_t)v->iov_base, v->iov_len,
							    g->mems[i].rkey };
	}
	r->l->account->registrations += g ? g->n_mems : 0;
	return g;
}

/* 0: the client is invited, or x has ended. Else nothing has changed. */
static int invite(struct rdma_link *r, struct xfer *x)
{
	struct wire_rdma_segment list[BUF_MAX_UNITS * 2];
	struct wire_rdma_segments segs = { .n_list = (uint32_t)x->n, .list = list };
	struct wire_frame_head h = { .kind = FRAME_INVITE, .tag = x->tag, .at = x->at };
	struct rdma_grant *g = x->n <= ARRAY_LEN(list) ? grant_new(r, x, &segs) : NULL;
	struct msg *m =
		g ? msg_encode(r->l->net, XDR_ANY(xdr_wire_rdma_segments), &segs, NULL, NULL) :
		    NULL;

	if (!g)
		return -ENOBUFS;
	g->x = x;
	g->id = ++r->next_grant;
	r->dev->load++;
	rdma_watch(r);
	rdma_note_begin(r, x->len);
	if (list_empty(&r->grants))
		r->granted_at = r->l->net->loop->now;
	list_push(&r->grants, &g->link);
	if (!m) {
		grant_end(r, g, -ENOMEM); /* ends x, too */
		if (!list_empty(&r->bulk))
			loop_defer_last(r->l->net->loop, &r->deferred);
		return 0;
	}
	h.id = g->id;
	h.length = m->len;
	frame_head_encode(m->head, &h);
	r->l->account->messages_sent++;
	rdma_message(r, m);
	return 0;
}

void rdma_filled(struct rdma_link *r, uint32_t imm)
{
	struct rdma_grant *g;
	uint64_t tag, len;

	rdma_promise(r); /* other links may have taken what was spare */
	if (credits_receive(&r->credits)) {
		link_close(r->l, link_fault(r->l, "written data without a credit"));
		return;
	}
	rdma_promise(r);
	list_for_each(g, &r->grants, link) {
		if (g->id != imm)
			continue;
		tag = g->x->tag;
		len = g->x->len;
		link_note_delay(r->l, g->x);
		grant_end(r, g, 0);
		rdma_add_moved(r, tag, len);
		/* another one may begin, unless telling the client has closed the link */
		if (!r->is_closing && !list_empty(&r->bulk))
			loop_defer_last(r->l->net->loop, &r->deferred);
		return;
	}
	link_close(r->l, link_fault(r->l, "written data that were not asked for"));
}

static bool asks_to_write(const struct wire_bytes *keys)
{
	struct xdr x;
	uint32_t count;

	xdr_decoder(&x, (void *)(uintptr_t)keys->p, keys->len, NULL);
	return xdr_u32(&x, &count) && (count & KEYS_DRIVEN);
}

/* Is a get of so many remote ranges written by the client? */
static bool is_client_driven(const struct rdma_link *r, const struct wire_bytes *keys,
			     size_t ranges)
{
	bool is_loaded = r->dev->load > r->peer_load;

	if (asks_to_write(keys))
		return !r->l->net->rdma.never_driven;
	return ranges > (is_loaded ? RDMA_READS_LOADED : RDMA_READS) &&
	       !r->l->net->rdma.never_driven;
}

void rdma_get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
	      size_t n, struct net_direct *direct, struct req *q)
{
	struct rdma_link *r = l->rdma;
	struct xfer *x = xfer_new(l->net, d->tag, at, dst, n, q);
	ssize_t found = x ? find_remote(r->dev, &d->keys, at, x->len) : -ENOMEM;
	struct rdma_unit *u = NULL;
	bool offers;

	(void)direct;
	if (found < 0) {
		end_early(x, q, (int)found);
		return;
	}
	x->asked = l->net->loop->now;
	/* a longer one would show the time of its transfer */
	x->is_alone = x->len <= ALONE_BYTES && list_empty(&r->grants) && list_empty(&r->posted) &&
		      list_empty(&r->bulk);
	offers = is_client_driven(r, &d->keys, (size_t)found);
	if (offers && list_empty(&r->bulk) && rdma_may_begin(r)) {
		if (!invite(r, x))
			return;
		offers = false;
	}
	u = transfer_unit(r, RDMA_READ, x, (size_t)found);
	if (!u) {
		end_early(x, q, -ENOMEM);
		return;
	}
	u->is_offer = offers;
	queue_unit(r, &r->bulk, u);
}

/* Client: the unit that writes stream bytes [at, at + len) of exposed memory into its grant. */
static struct rdma_unit *fill_unit(struct rdma_exposed *e, uint64_t at, uint64_t len,
				   const struct wire_rdma_segments *segs)
{
	struct rdma_unit *u = rdma_unit_new(RDMA_FILL, e->n_ranges, segs->n_list);
	uint32_t n = 0;

	if (!u)
		return NULL;
	u->len = len;
	for (uint32_t i = 0; i < e->n_ranges && len; i++) {
		uint64_t skip = MIN(at, e->ranges[i].len), take = MIN(e->ranges[i].len - skip, len);

		at -= skip;
		len -= take;
		if (take)
			u->local[n++] = (struct rdma_range){ e->ranges[i].addr + skip, take,
							     e->ranges[i].key };
	}
	for (uint32_t i = 0; i < segs->n_list; i++)
		u->remote[i] = (struct rdma_range){ segs->list[i].addr, segs->list[i].length,
						    segs->list[i].key };
	u->exposed = e;
	e->n_fills++;
	e->driven += u->len;
	return u;
}

int rdma_invited(struct rdma_link *r, const struct wire_frame_head *h, struct msg *m)
{
	struct net_desc *d = link_desc(r->l, h->tag);
	struct rdma_exposed *e = d ? d->impl : NULL;
	struct wire_rdma_segment list[BUF_MAX_UNITS * 2];
	struct wire_rdma_segments segs = { .list = list };
	struct rdma_unit *u;
	uint64_t len = 0;
	struct xdr x;

	xdr_decoder(&x, m->body, m->len, NULL);
	if (!xdr_u32(&x, &segs.n_list) || segs.n_list > ARRAY_LEN(list))
		return link_fault(r->l, "an invitation with too many ranges");
	for (uint32_t i = 0; i < segs.n_list; i++) {
		if (!xdr_wire_rdma_segment(&x, &list[i]) || list[i].length > MAX_INVITED ||
		    !list[i].length)
			return link_fault(r->l, "an invitation with a wrong range");
		len += list[i].length;
	}
	if (xdr_left(&x))
		return link_fault(r->l, "an invitation with bytes behind its ranges");
	if (e && e->n_fills >= FILLS_MAX)
		return -EBADMSG;
	if (!e || d->access != CAP_READ)
		return link_fault(r->l, "an invitation for memory that it may not read");
	if (h->id > UINT32_MAX || !len || h->at > e->length || len > e->length - h->at)
		return link_fault(r->l, "an invitation for more than there is");
	u = fill_unit(e, h->at, len, &segs);
	if (!u)
		return -ENOMEM;
	d->moved = r->l->net->loop->now;
	u->imm = (uint32_t)h->id;
	queue_unit(r, &r->bulk, u);
	return 0;
}

/* ---- posting ---- */

/* Invites the client to write the data of the first units, as far as they may begin. A unit whose
 * buffers cannot be granted stays, to be read. */
static void send_offers(struct rdma_link *r)
{
	struct rdma_unit *u;

	while (!r->is_closing && (u = list_first(&r->bulk, struct rdma_unit, link)) &&
	       u->is_offer && rdma_may_begin(r)) {
		list_del(&u->link);
		if (invite(r, u->x)) {
			u->is_offer = false;
			list_push_front(&r->bulk, &u->link);
			return;
		}
		r->dev->load--; /* the grant counts now */
		free(u);
	}
}

/* May the first work request of this unit, or its next, be posted now? */
static bool may_post(struct rdma_link *r, const struct rdma_unit *u)
{
	bool ordered = r->dev->caps->is_ordered;

	if (u->kind == RDMA_MESSAGE)
		return credits_may_send(&r->credits, false) &&
		       (ordered || !u->m->behind || !has_data_of(&r->posted, u->m->behind));
	if (u->kind == RDMA_FILL)
		return credits_may_send(&r->credits, false) &&
		       (ordered || u->done < u->len || r->n_completed >= u->last);
	if (u->kind == RDMA_FETCH) /* short, one at a time, and messages wait behind it */
		return true;
	return u->done || (!u->is_offer && rdma_may_begin(r));
}

static struct rdma_unit *next_unit(struct rdma_link *r)
{
	struct rdma_unit *u = list_first(&r->control, struct rdma_unit, link);

	if (!u || !may_post(r, u))
		u = list_first(&r->bulk, struct rdma_unit, link);
	return u && may_post(r, u) ? u : NULL;
}

static void message_wr(struct rdma_link *r, struct rdma_unit *u, struct fabric_wr *wr,
		       struct fabric_sge *sge)
{
	frame_head_tell(u->m->head, credits_send(&r->credits), r->dev->load);
	sge[0] = (struct fabric_sge){ u->m->head, FRAME_HEAD + u->m->len, u->message_key };
	*wr = (struct fabric_wr){ .op = FABRIC_SEND, .sge = sge, .n_sge = 1 };
}

/* Local pieces of at most `most` bytes; returns their bytes. */
static uint64_t take_local(struct rdma_unit *u, uint64_t most, struct fabric_sge *sge, uint32_t max,
			   uint32_t *n)
{
	uint64_t sum = 0;

	for (*n = 0; *n < max && sum < most; ++*n) {
		struct rdma_range *from = u->local;
		uint64_t take = MIN(from->len - u->local_at, most - sum);

		sge[*n] = (struct fabric_sge){ (void *)(uintptr_t)(from->addr + u->local_at),
					       (uint32_t)take, from->key };
		sum += take;
		u->local_at += take;
		if (u->local_at == from->len) {
			u->local++;
			u->local_at = 0;
		}
	}
	return sum;
}

/* The first work request of a transfer follows. */
static void begin_transfer(struct rdma_link *r, const struct rdma_unit *u)
{
	rdma_note_begin(r, u->len);
	r->l->account->bytes[METHOD_GATHER] += u->len;
}

/* The next work request with data: one range of the peer, as many pieces of ours as fit. */
static void data_wr(struct rdma_link *r, struct rdma_unit *u, struct fabric_wr *wr,
		    struct fabric_sge *sge)
{
	struct rdma_range *to = u->remote;
	uint64_t most =
		MIN(MIN(to->len - u->remote_at, u->len - u->done), r->dev->caps->message_max);

	bool reads = u->kind == RDMA_READ || u->kind == RDMA_FETCH;

	*wr = (struct fabric_wr){ .op = reads ? FABRIC_READ : FABRIC_WRITE,
				  .sge = sge,
				  .remote = to->addr + u->remote_at,
				  .rkey = to->key };
	most = take_local(u, most, sge, r->dev->caps->sge_max, &wr->n_sge);
	u->done += most;
	u->remote_at += most;
	if (u->remote_at == to->len) {
		u->remote++;
		u->remote_at = 0;
	}
}

/* Makes the next work request of the unit. True: it is the last one. */
static bool make_wr(struct rdma_link *r, struct rdma_unit *u, struct fabric_wr *wr,
		    struct fabric_sge *sge)
{
	bool ordered = r->dev->caps->is_ordered;

	if (u->kind == RDMA_MESSAGE) {
		message_wr(r, u, wr, sge);
		return true;
	}
	if (u->x && !u->done)
		begin_transfer(r, u);
	if (u->done < u->len)
		data_wr(r, u, wr, sge);
	else /* a fill without order: the data have arrived */
		*wr = (struct fabric_wr){ .op = FABRIC_WRITE };
	if (u->done < u->len || u->kind != RDMA_FILL)
		return u->done == u->len;
	if (!ordered && wr->n_sge)
		return false;
	wr->op = FABRIC_WRITE_IMM;
	wr->imm = u->imm;
	credits_use(&r->credits);
	return true;
}

/* A message that cannot be registered waits for others to complete. */
static bool is_ready(struct rdma_link *r, struct rdma_unit *u)
{
	if (!u->m)
		return true;
	if (!register_message(r, u)) {
		if (u->kind == RDMA_FETCH)
			u->ranges[0].key = u->message_key;
		return true;
	}
	r->is_starved = list_empty(&r->posted);
	return false;
}

/* Work requests that the queue pair takes now. */
static size_t send_room(const struct rdma_link *r)
{
	return rdma_sends(r->dev) - (size_t)(r->n_posted - r->n_completed);
}

/* Makes a chain; returns its length. */
static size_t make_chain(struct rdma_link *r)
{
	struct rdma_device *d = r->dev;
	size_t room = MIN((size_t)RDMA_CHAIN, send_room(r));
	struct rdma_unit *u;
	size_t n = 0;

	while (n < room && (u = next_unit(r)) && is_ready(r, u)) {
		struct fabric_wr *wr = &d->wr[n];
		bool is_last = make_wr(r, u, wr, &d->sge[n * FABRIC_SGES]);

		wr->id = u->last = r->n_posted + ++n;
		if (is_last) {
			list_del(&u->link);
			list_push(&r->posted, &u->link);
		}
	}
	return n;
}

/* Posts the chain of n work requests in dev->wr. */
static void post_chain(struct rdma_link *r, size_t n)
{
	struct rdma_device *d = r->dev;
	int e;

	d->wr[n - 1].is_signalled = true;
	e = d->ops->post(r->qp, d->wr, n);
	if (!e) /* else they have no completions; their units end with the queue pair */
		r->n_posted += n;
	r->l->account->work_requests += n;
	r->l->account->doorbells++;
	if (e)
		link_close(r->l, -ECONNRESET);
}

/* Sends credits that no message will carry. */
static void send_credits(struct rdma_link *r)
{
	struct wire_frame_head h = { .kind = FRAME_CREDIT };
	struct rdma_unit *u;
	struct msg *m;

	if (!credits_are_due(&r->credits) || !credits_may_send(&r->credits, true) || !send_room(r))
		return;
	m = msg_new(r->l->net, 0);
	u = m ? rdma_unit_new(RDMA_MESSAGE, 0, 0) : NULL;
	if (!u) {
		msg_free(m);
		return;
	}
	frame_head_encode(m->head, &h);
	u->m = m;
	u->is_credit = true;
	message_queued(r, m);
	if (register_message(r, u)) {
		unit_end(r, u, 0);
		return;
	}
	message_wr(r, u, r->dev->wr, r->dev->sge);
	r->dev->wr[0].id = u->last = r->n_posted + 1;
	list_push(&r->posted, &u->link);
	post_chain(r, 1);
}

void rdma_flush(struct rdma_link *r)
{
	size_t n;

	while (r->is_connected && !r->is_closing) {
		send_offers(r);
		n = r->is_closing ? 0 : make_chain(r);
		if (!n)
			break;
		post_chain(r, n);
	}
	if (r->is_connected && !r->is_closing)
		send_credits(r);
	if (r->is_starved && !r->is_closing) {
		rdma_failed(r->l, "messages cannot be registered: raise the limit of locked memory "
				  "(ulimit -l)");
		link_close(r->l, -ECONNRESET);
	}
}

void rdma_flush_deferred(struct deferred *d)
{
	struct rdma_link *r = container_of(d, struct rdma_link, deferred);
	struct link *l = r->l;

	link_ref(l);
	rdma_flush(r);
	link_unref(l);
}

void rdma_sent(struct rdma_link *r)
{
	struct rdma_unit *u = list_first(&r->posted, struct rdma_unit, link);

	if (!u || !u->is_credit) /* a peer that lets only credits pass does not move */
		r->moved_at = r->l->net->loop->now;
	while (u && u->last <= r->n_completed && !r->is_closing) {
		unit_end(r, u, 0);
		u = list_first(&r->posted, struct rdma_unit, link);
	}
	if (r->is_closing)
		return;
	if (!list_empty(&r->control) || !list_empty(&r->bulk) || credits_are_due(&r->credits))
		loop_defer_last(r->l->net->loop, &r->deferred);
}

static void end_list(struct rdma_link *r, struct list *units, int error)
{
	struct rdma_unit *u;

	while ((u = list_first(units, struct rdma_unit, link)))
		unit_end(r, u, error);
}

void rdma_end_units(struct rdma_link *r, int error)
{
	struct rdma_grant *g;

	end_list(r, &r->posted, error);
	end_list(r, &r->control, error);
	end_list(r, &r->bulk, error);
	end_list(r, &r->fetches, error);
	rdma_end_offers(r);
	while ((g = list_first(&r->grants, struct rdma_grant, link)))
		grant_end(r, g, error);
}
