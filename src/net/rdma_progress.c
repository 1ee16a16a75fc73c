/* Progress of requests whose data move by RDMA. A client sees neither what the server's card writes
 * into its memory nor what it reads there. So the server says in a WORKING frame how many bytes of
 * a request it has moved, about four times per timeout; the timeout of a call begins again with
 * each frame that says more, as it does over TCP with each byte. A request that ends before the
 * first frame is due has none. The frames go by TCP: in the queue pair they would wait behind work
 * that is posted already.
 *
 * Threads: the loop's. Errors: a frame that says nothing new, or comes behind the reply of its
 * request, is ignored. */
#include "net/frame.h"
#include "net/net_tcp.h"
#include "net/rdma.h"

#define FRAMES_PER_TIMEOUT 4

/* ---- server ---- */

static uint64_t period_of(const struct rdma_link *r)
{
	return r->l->net->id.timeout_ms / FRAMES_PER_TIMEOUT * NSEC_PER_MSEC;
}

/* Several slots share an entry. A request takes it if its last user was the same slot, or moved
 * nothing for a period. */
static struct rdma_moved *moved_of(struct rdma_link *r, uint64_t tag)
{
	struct rdma_moved *m = &r->moved[(tag_slot(tag) + tag_channel(tag)) % SESSION_SLOTS];
	uint64_t now = r->l->net->loop->now;
	bool is_over = !m->tag || tag_same_slot(m->tag, tag); /* a slot has one request at a time */

	if (m->tag != tag && !is_over && now < m->at + period_of(r))
		return NULL;
	if (m->tag != tag)
		*m = (struct rdma_moved){ .tag = tag, .told_at = now };
	m->at = now;
	return m;
}

void rdma_begin_moved(struct rdma_link *r, uint64_t tag)
{
	(void)moved_of(r, tag);
}

static void tell(struct rdma_link *r, const struct rdma_moved *moved)
{
	struct wire_frame_head h = { .kind = FRAME_WORKING, .tag = moved->tag, .at = moved->bytes };
	struct msg *m = msg_new(r->l->net, 0);

	if (!m) /* the next transfer tells */
		return;
	frame_head_encode(m->head, &h);
	r->l->account->messages_sent++;
	tcp_send(r->l, m);
}

void rdma_add_moved(struct rdma_link *r, uint64_t tag, uint64_t bytes)
{
	struct rdma_moved *m = moved_of(r, tag);
	uint64_t now = r->l->net->loop->now;

	r->l->progress = now; /* for the lease */
	if (!m)
		return;
	m->bytes += bytes;
	if (!r->l->peer_fetches || r->is_closing || now < m->told_at + period_of(r))
		return;
	m->told_at = now;
	tell(r, m);
}

/* ---- client ---- */

static void note_progress(struct link *l, struct net_desc *d)
{
	d->moved = l->progress = l->net->loop->now;
}

void rdma_working(struct link *l, const struct wire_frame_head *h)
{
	struct net_desc *d = l->rdma ? link_desc(l, h->tag) : NULL;
	struct rdma_exposed *e = d && !(d->tag & TAG_STREAM) ? d->impl : NULL;

	if (!e || h->at > e->length ||
	    h->at < e->told + MIN((uint64_t)CHUNK_MAX, MAX(e->length - e->told, (uint64_t)1)))
		return;
	e->told = h->at;
	note_progress(l, d);
}

void rdma_note_fill(struct rdma_link *r, struct rdma_exposed *e)
{
	note_progress(r->l, e->desc);
}
