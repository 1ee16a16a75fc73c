/* What travels between two simulated cards.
 *
 * A flow is what one queue pair (QP) sends. Its work requests become pieces, which arrive one after
 * the other. The bytes of a piece are copied from the sender's memory when it leaves or when it
 * arrives. A WRITE's pieces land in any order, a SEND's in order. An acknowledgement returns when
 * all pieces have landed; a READ completes when its answers have landed, which were read at the
 * peer when the request came, or again later: a READ may read its source after the peer has
 * received a later SEND.
 *
 * Unordered (is_ordered is off): any piece of a WRITE may land after later work requests of the
 * flow have landed and were received. All have landed before the sender gets a completion that
 * covers them. The bytes of a SEND or WRITE_IMM have always landed when it is received.
 *
 * Failures: what cannot arrive (no path, no such QP, not connected, no receive) is repeated, until
 * the work request fails with -ETIMEDOUT. A refusal comes back like an acknowledgement. When the
 * sender stops, up to IN_FLIGHT pieces are on their way: copies of them arrive within late_max.
 * When the receiver's QP has failed, some pieces of WRITEs still land, without an answer; after it
 * or the region was dropped, none.
 *
 * One thread. Events hold a reference to their flow; the rest is looked up when they fire. */
#include <stdlib.h>

#include "sim_card.h"

#define IN_FLIGHT 16
#define PIECES 4 /* most pieces of a message */

struct flow {
	struct list link; /* in sim->flows */
	struct sim *sim;
	unsigned refs; /* events, and the QP */
	struct sim_card *from;
	struct fabric_addr self, peer;
	struct fabric_qp *qp; /* NULL: dropped */
	struct list pieces; /* on their way, in order */
	struct list unplaced; /* arrived, but their bytes have not landed */
	struct list answers; /* to READs */
	uint64_t arrived; /* all work requests up to this one have arrived */
	uint64_t stall_end, ack_end; /* when repeating ends; 0: not repeating */
	bool is_rnr; /* the peer has no receive */
	uint64_t nak_seq; /* refused work request, or 0 */
	int nak_error;
	uint64_t lost_seq; /* work request that is never acknowledged, or 0 */
	bool is_stopped; /* the QP failed or is gone */
	uint64_t dies; /* copies arrive no later than this */
	bool is_halted; /* nothing arrives any more */
	bool is_pending, is_ack_pending; /* an event is scheduled */
};

/* A part of a work request. */
struct piece {
	struct list link;
	struct flow *flow;
	struct work *work; /* NULL: the flow has stopped */
	enum fabric_op op;
	uint64_t seq, at, len, total;
	uint64_t remote;
	uint32_t rkey, imm;
	bool is_first, is_last; /* of its message, in order of travel */
	bool is_early; /* copied when it leaves */
	bool is_counted; /* among the READs in progress */
	uint8_t *data; /* NULL: not copied yet */
};

struct part {
	uint64_t at, len;
};

/* ---------------------------------------------------------------- flows and pieces */

static void piece_free(struct piece *p)
{
	list_del(&p->link);
	free(p->data);
	free(p);
}

static void pieces_free(struct list *pieces)
{
	struct piece *p, *next;

	list_for_each_safe(p, next, pieces, link)
		piece_free(p);
}

static void flow_free(struct flow *f)
{
	pieces_free(&f->pieces);
	pieces_free(&f->unplaced);
	pieces_free(&f->answers);
	list_del(&f->link);
	free(f);
}

static void flow_unref(struct flow *f)
{
	if (--f->refs == 0)
		flow_free(f);
}

struct flow *flow_new(struct fabric_qp *q)
{
	struct flow *f = sim_alloc(sizeof(*f));

	f->from = q->fabric->card;
	f->sim = f->from->node->sim;
	f->refs = 1;
	f->self = q->self;
	f->peer = q->peer;
	f->qp = q;
	list_init(&f->pieces);
	list_init(&f->unplaced);
	list_init(&f->answers);
	list_push(&f->sim->flows, &f->link);
	return f;
}

void flow_fini(struct sim *s)
{
	struct flow *f, *next;

	list_for_each_safe(f, next, &s->flows, link)
		flow_free(f);
}

static uint64_t step(struct sim *s)
{
	return sim_delay(s, s->fabric.step_min, s->fabric.step_max);
}

/* The time until the next attempt where nothing passes. */
static uint64_t pause(struct sim *s)
{
	return sim_between(s, NSEC_PER_MSEC, 20 * NSEC_PER_MSEC);
}

static struct sim_card *peer_card(const struct flow *f)
{
	return card_of_gid(f->sim, f->peer.gid);
}

static void count_wait(struct flow *f)
{
	peer_card(f)->counts.waits++;
	f->sim->injected[SIM_CARD_WAITED]++;
}

static void flow_schedule(struct flow *f, enum sim_kind kind, bool at_peer, uint64_t delay,
			  void (*fire)(struct sim *s, struct sim_event *e), void *arg)
{
	struct sim_card *to = at_peer ? peer_card(f) : f->from;
	struct sim_event *e = sim_schedule(f->sim, kind, to ? to->node : NULL, delay, fire, arg);

	e->n = f->self.qpn;
	f->refs++;
}

/* The QP at the other end of this flow, or NULL. */
static struct fabric_qp *find_target(const struct flow *f)
{
	struct sim_card *c = peer_card(f);
	struct fabric *d;
	struct fabric_qp *q;

	if (!c)
		return NULL;
	list_for_each(d, &c->fabrics, link)
		list_for_each(q, &d->qps, link)
			if (!d->is_dead && q->self.qpn == f->peer.qpn && q->state != QP_NEW &&
			    q->flow && q->self.psn == f->peer.psn && q->peer.psn == f->self.psn &&
			    q->peer.qpn == f->self.qpn &&
			    !memcmp(q->peer.gid, f->self.gid, sizeof(q->peer.gid)))
				return q;
	return NULL;
}

static bool answers_pass(const struct flow *f)
{
	const struct sim_card *c = peer_card(f);

	return c && card_passes(c, f->from);
}

/* Divides a message into pieces, at random places. */
static unsigned split(struct sim *s, uint64_t total, struct part out[PIECES])
{
	uint64_t most = total < 64 ? 1 : total < 4096 ? 2 : PIECES;
	uint64_t left = 1 + sim_below(s, most), at = 0;
	unsigned n = 0;

	for (; left > 1 && total - at > 1; left--) {
		uint64_t len = sim_between(s, 1, 2 * (total - at) / left - 1);

		out[n++] = (struct part){ at, MIN(len, total - at - 1) };
		at += out[n - 1].len;
	}
	out[n++] = (struct part){ at, total - at };
	return n;
}

static void shuffle(struct sim *s, struct part *p, unsigned n)
{
	for (unsigned i = n; i > 1; i--) {
		unsigned j = (unsigned)sim_below(s, i);
		struct part t = p[i - 1];

		p[i - 1] = p[j];
		p[j] = t;
	}
}

static struct piece *piece_new(struct flow *f, struct work *w, struct part part)
{
	struct piece *p = sim_alloc(sizeof(*p));

	*p = (struct piece){
		.flow = f,
		.work = w,
		.op = w->wr.op,
		.seq = w->seq,
		.at = part.at,
		.len = part.len,
		.total = w->total,
		.remote = w->wr.remote,
		.rkey = w->wr.rkey,
		.imm = w->wr.imm,
	};
	list_init(&p->link);
	return p;
}

void flow_add(struct flow *f, struct work *w)
{
	struct part parts[PIECES] = { { 0, w->total } };
	unsigned n = w->wr.op == FABRIC_READ ? 1 : split(f->sim, w->total, parts);

	if (w->wr.op == FABRIC_WRITE || w->wr.op == FABRIC_WRITE_IMM)
		shuffle(f->sim, parts, n);
	for (unsigned i = 0; i < n; i++) {
		struct piece *p = piece_new(f, w, parts[i]);

		p->is_first = i == 0;
		p->is_last = i + 1 == n;
		p->is_early = p->op != FABRIC_READ && sim_below(f->sim, 2);
		list_push(&f->pieces, &p->link);
	}
}

/* ---------------------------------------------------------------- answers of the peer */

/* All work requests up to this one have arrived and landed. */
static uint64_t settled(const struct flow *f)
{
	const struct piece *p = list_first(&f->unplaced, struct piece, link);
	uint64_t seq = f->arrived;

	if (p)
		seq = MIN(seq, p->seq - 1);
	if (f->nak_seq)
		seq = MIN(seq, f->nak_seq - 1);
	if (f->lost_seq)
		seq = MIN(seq, f->lost_seq - 1);
	return seq;
}

static void time_out(struct flow *f)
{
	struct work *w = qp_oldest(f->qp);

	qp_stop(f->qp, w ? w->seq : 0, -ETIMEDOUT);
}

/* Sets the end of repeated attempts. Returns whether it is reached. */
static bool has_ended(struct sim *s, uint64_t *end)
{
	if (!*end)
		*end = s->now + sim_between(s, s->fabric.retry_min, s->fabric.retry_max);
	return s->now >= *end;
}

static void fire_ack(struct sim *s, struct sim_event *e)
{
	struct flow *f = e->arg;

	f->is_ack_pending = false;
	if (f->is_stopped)
		goto out;
	if (answers_pass(f)) {
		f->ack_end = 0;
		qp_ack(f->qp, settled(f));
	} else if (has_ended(s, &f->ack_end)) {
		time_out(f);
	} else {
		f->is_ack_pending = true;
		flow_schedule(f, SIM_CARD_ACK, false, pause(s), fire_ack, f);
	}
out:
	flow_unref(f);
}

static void send_ack(struct flow *f)
{
	if (f->is_stopped || f->is_ack_pending)
		return;
	f->is_ack_pending = true;
	flow_schedule(f, SIM_CARD_ACK, false, step(f->sim), fire_ack, f);
}

/* What is before the refused work request completes first. */
static void fire_nak(struct sim *s, struct sim_event *e)
{
	struct flow *f = e->arg;
	struct work *w;

	if (f->is_stopped)
		goto out;
	if (!answers_pass(f)) {
		if (has_ended(s, &f->ack_end))
			time_out(f);
		else
			flow_schedule(f, SIM_CARD_NAK, false, pause(s), fire_nak, f);
		goto out;
	}
	qp_ack(f->qp, settled(f));
	w = qp_oldest(f->qp);
	if (w && w->seq == f->nak_seq)
		qp_stop(f->qp, w->seq, f->nak_error);
	else if (f->lost_seq)
		time_out(f);
	else
		flow_schedule(f, SIM_CARD_NAK, false, 10 * step(s), fire_nak, f);
out:
	flow_unref(f);
}

/* A work request fails, after all before it have completed. */
static void reject(struct flow *f, uint64_t seq, int error)
{
	bool is_new = !f->nak_seq;

	if (f->is_stopped || (f->nak_seq && f->nak_seq <= seq))
		return;
	f->is_halted = true;
	f->nak_seq = seq;
	f->nak_error = error;
	if (is_new)
		flow_schedule(f, SIM_CARD_NAK, false, step(f->sim), fire_nak, f);
}

/* The receiver refuses a work request: both ends fail. */
static void refuse(struct flow *f, struct fabric_qp *d, uint64_t seq, int error)
{
	qp_stop(d, 0, 0);
	d->lands = 0;
	f->is_halted = true;
	reject(f, seq, error);
}

static void refuse_key(struct flow *f, struct fabric_qp *d, uint64_t seq, uint32_t key)
{
	card_refused(d->fabric->card, key);
	refuse(f, d, seq, -EACCES);
}

static void fire_time_out(struct sim *s, struct sim_event *e)
{
	struct flow *f = e->arg;

	(void)s;
	if (!f->is_stopped)
		time_out(f);
	flow_unref(f);
}

/* This work request is never acknowledged. */
static void lose(struct flow *f, uint64_t seq)
{
	struct sim *s = f->sim;
	bool is_new = !f->lost_seq;

	f->lost_seq = is_new ? seq : MIN(seq, f->lost_seq);
	if (is_new && !f->is_stopped)
		flow_schedule(f, SIM_CARD_TIME_OUT, false,
			      sim_between(s, s->fabric.retry_min, s->fabric.retry_max),
			      fire_time_out, f);
}

/* ---------------------------------------------------------------- memory of the sender */

/* Copies the part [at, at + len) of a work request's memory to `data`, or back. 0 or -EACCES. */
static int copy_local(struct fabric_qp *q, const struct work *w, uint64_t at, uint64_t len,
		      uint8_t *data, bool is_store)
{
	unsigned rights = is_store ? FABRIC_LOCAL_WRITE : 0;

	for (uint32_t i = 0; i < w->wr.n_sge && len; i++) {
		const struct fabric_sge *g = w->sge + i;
		uint64_t n = at < g->len ? MIN(len, g->len - at) : 0;

		if (n && !card_find_local(q->fabric, g->lkey, g->addr, g->len, rights)) {
			card_refused(q->fabric->card, g->lkey);
			return -EACCES;
		}
		if (n && is_store)
			memcpy((uint8_t *)g->addr + at, data, n);
		else if (n)
			memcpy(data, (uint8_t *)g->addr + at, n);
		data += n;
		len -= n;
		at -= n ? at : g->len;
	}
	return 0;
}

/* Copies a piece's bytes from the sender's memory. Returns whether that worked. */
static bool capture(struct flow *f, struct piece *p)
{
	if (p->data)
		return true;
	p->data = sim_alloc(p->len);
	if (!copy_local(f->qp, p->work, p->at, p->len, p->data, false))
		return true;
	free(p->data);
	p->data = NULL;
	reject(f, p->seq, -EACCES);
	return false;
}

void flow_stop(struct flow *f)
{
	struct sim *s = f->sim;
	struct piece *p, *next;
	uint64_t n = 0;

	if (f->is_stopped)
		return;
	if (!f->is_halted && !f->stall_end)
		n = sim_below(s, IN_FLIGHT + 1);
	f->is_stopped = true;
	f->dies = s->now + s->fabric.late_max;
	list_for_each_safe(p, next, &f->pieces, link) {
		bool is_kept = n && p->op != FABRIC_READ && capture(f, p);

		p->work = NULL;
		n -= n > 0;
		if (!is_kept)
			piece_free(p);
	}
	list_for_each(p, &f->unplaced, link)
		p->work = NULL;
}

void flow_leave(struct flow *f)
{
	flow_stop(f);
	f->qp = NULL;
	flow_unref(f);
}

/* ---------------------------------------------------------------- arrivals */

/* The head of the flow has to be repeated. */
static void stall(struct flow *f, struct piece *p, bool is_rnr)
{
	if (f->is_stopped) {
		pieces_free(&f->pieces);
		return;
	}
	if (is_rnr && !f->is_rnr)
		count_wait(f);
	f->is_rnr = is_rnr;
	free(p->data); /* a repeated piece is read again */
	p->data = NULL;
	p->is_early = false;
	if (has_ended(f->sim, &f->stall_end))
		time_out(f);
}

/* Stores a piece of a WRITE into the receiver's memory. Returns whether the key permits it. */
static bool place(struct flow *f, struct fabric_qp *d, struct piece *p)
{
	struct sim_card *c = d->fabric->card;

	if (p->total &&
	    !card_find_remote(d->fabric, p->rkey, p->remote, p->total, FABRIC_REMOTE_WRITE)) {
		refuse_key(f, d, p->seq, p->rkey);
		return false;
	}
	if (p->len)
		memcpy((uint8_t *)(uintptr_t)p->remote + p->at, p->data, p->len);
	c->counts.late += f->is_stopped;
	f->sim->injected[SIM_CARD_LATE] += f->is_stopped;
	return true;
}

static void fire_place(struct sim *s, struct sim_event *e)
{
	struct piece *p = e->arg;
	struct flow *f = p->flow;
	struct fabric_qp *d = find_target(f);

	(void)s;
	if (d) {
		place(f, d, p);
	} else {
		f->is_halted = true;
		lose(f, p->seq);
	}
	piece_free(p);
	if (list_empty(&f->unplaced))
		send_ack(f);
	flow_unref(f);
}

/* The head of the flow has arrived. It is freed, unless its bytes land later. */
static void arrived(struct flow *f, struct fabric_qp *d, struct piece *p)
{
	f->stall_end = 0;
	f->is_rnr = false;
	if (p->is_last)
		f->arrived = p->seq;
	if (d->state != QP_READY)
		lose(f, p->seq);
	else if (p->is_last)
		send_ack(f);
}

static void count_overtaking(struct flow *f, struct fabric_qp *d)
{
	d->fabric->card->counts.overtaken += !list_empty(&f->unplaced);
	f->sim->injected[SIM_CARD_OVERTAKEN] += !list_empty(&f->unplaced);
}

static void arrive_write(struct flow *f, struct fabric_qp *d, struct piece *p)
{
	struct sim *s = f->sim;
	bool is_ready = d->state == QP_READY;
	bool tells = is_ready && p->op == FABRIC_WRITE_IMM && p->is_last;

	if (tells && list_empty(&d->fabric->receives)) {
		stall(f, p, true);
		return;
	}
	d->lands -= !is_ready;
	if (is_ready && p->op == FABRIC_WRITE && !s->fabric.is_ordered && sim_below(s, 2)) {
		arrived(f, d, p);
		list_del(&p->link);
		list_push(&f->unplaced, &p->link);
		flow_schedule(f, SIM_CARD_PLACE, true, 8 * step(s), fire_place, p);
		return;
	}
	if (!place(f, d, p))
		return;
	arrived(f, d, p);
	if (tells) {
		count_overtaking(f, d);
		qp_received(d, card_take_receive(d->fabric),
			    (struct fabric_completion){ .event = FABRIC_RECEIVED_IMM,
							.len = (uint32_t)p->total,
							.imm = p->imm });
	}
	piece_free(p);
}

/* The message does not fit, or the receive's key does not permit it. */
static void fail_receive(struct flow *f, struct fabric_qp *d, struct piece *p, int error)
{
	struct receive *r = d->rx;

	d->rx = NULL;
	qp_received(d, r, (struct fabric_completion){ .error = error });
	refuse(f, d, p->seq, -ECONNABORTED);
}

static void arrive_send(struct flow *f, struct fabric_qp *d, struct piece *p)
{
	struct fabric_receive *r;
	struct receive *done;

	if (p->is_first && !d->rx)
		d->rx = card_take_receive(d->fabric);
	if (!d->rx) {
		stall(f, p, true);
		return;
	}
	r = &d->rx->r;
	if (p->total > r->len) {
		fail_receive(f, d, p, -ECONNABORTED);
		return;
	}
	if (p->len && !card_find_local(d->fabric, r->lkey, r->addr, r->len, FABRIC_LOCAL_WRITE)) {
		card_refused(d->fabric->card, r->lkey);
		fail_receive(f, d, p, -EACCES);
		return;
	}
	if (p->len)
		memcpy((uint8_t *)r->addr + p->at, p->data, p->len);
	arrived(f, d, p);
	if (p->is_last) {
		count_overtaking(f, d);
		done = d->rx;
		d->rx = NULL;
		qp_received(d, done, (struct fabric_completion){ .len = (uint32_t)p->total });
	}
	piece_free(p);
}

/* ---------------------------------------------------------------- READs */

/* Reads a piece of an answer once more, as after a loss. Returns whether it can be sent. */
static bool read_again(struct flow *f, struct piece *p)
{
	struct fabric_qp *d = find_target(f);

	if (!d || d->state != QP_READY) {
		lose(f, p->seq);
		return false;
	}
	if (!card_find_remote(d->fabric, p->rkey, p->remote, p->total, FABRIC_REMOTE_READ)) {
		refuse_key(f, d, p->seq, p->rkey);
		return false;
	}
	d->fabric->card->counts.reread++;
	memcpy(p->data, (uint8_t *)(uintptr_t)p->remote + p->at, p->len);
	return true;
}

/* Bytes of a READ land in the requester's memory. */
static void land_read(struct flow *f, struct work *w, struct piece *p)
{
	if (copy_local(f->qp, w, p->at, p->len, p->data, true)) {
		reject(f, p->seq, -EACCES);
		return;
	}
	w->left -= p->len;
	if (w->left)
		return;
	w->has_landed = true;
	f->qp->n_reads--;
	if (f->is_stopped)
		return;
	qp_ack(f->qp, settled(f));
	flow_run(f);
}

/* Until the work request has been flushed, bytes may land although the QP has failed. */
static void fire_answer(struct sim *s, struct sim_event *e)
{
	struct piece *p = e->arg;
	struct flow *f = p->flow;
	struct work *w = f->qp ? qp_find_work(f->qp, p->seq) : NULL;

	if (w && !f->is_stopped && !answers_pass(f)) {
		if (!has_ended(s, &f->ack_end)) {
			flow_schedule(f, SIM_CARD_ANSWER, false, pause(s), fire_answer, p);
			flow_unref(f);
			return;
		}
		time_out(f);
	} else if (w && (p->is_early || (!f->is_stopped && read_again(f, p)))) {
		land_read(f, w, p);
	}
	piece_free(p);
	flow_unref(f);
}

static void arrive_read(struct flow *f, struct fabric_qp *d, struct piece *p)
{
	struct sim *s = f->sim;
	struct part parts[PIECES];
	unsigned n = p->total ? split(s, p->total, parts) : 0;

	if (p->total &&
	    !card_find_remote(d->fabric, p->rkey, p->remote, p->total, FABRIC_REMOTE_READ)) {
		refuse_key(f, d, p->seq, p->rkey);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		struct piece *a = piece_new(f, p->work, parts[i]);

		a->work = NULL;
		a->is_early = sim_below(s, 4) != 0;
		a->data = sim_alloc(a->len);
		memcpy(a->data, (uint8_t *)(uintptr_t)a->remote + a->at, a->len);
		list_push(&f->answers, &a->link);
		flow_schedule(f, SIM_CARD_ANSWER, false, 3 * step(s), fire_answer, a);
	}
	arrived(f, d, p);
	piece_free(p);
}

/* ---------------------------------------------------------------- steps of a flow */

static bool accepts(const struct fabric_qp *d, const struct piece *p)
{
	if (d->state == QP_READY)
		return true;
	return d->lands && (p->op == FABRIC_WRITE || p->op == FABRIC_WRITE_IMM);
}

static void arrive(struct flow *f, struct piece *p)
{
	const struct sim_card *to = peer_card(f);
	struct fabric_qp *d = to && card_passes(f->from, to) ? find_target(f) : NULL;

	if (f->is_stopped && f->sim->now > f->dies)
		d = NULL;
	if (!d || !accepts(d, p)) {
		stall(f, p, false);
		return;
	}
	if (p->op != FABRIC_READ && !capture(f, p))
		return;
	switch (p->op) {
	case FABRIC_SEND:
		arrive_send(f, d, p);
		break;
	case FABRIC_WRITE:
	case FABRIC_WRITE_IMM:
		arrive_write(f, d, p);
		break;
	case FABRIC_READ:
		arrive_read(f, d, p);
		break;
	}
}

static void fire_arrive(struct sim *s, struct sim_event *e)
{
	struct flow *f = e->arg;
	struct piece *p = list_first(&f->pieces, struct piece, link);

	(void)s;
	f->is_pending = false;
	if (p && !f->is_halted)
		arrive(f, p);
	flow_run(f);
	flow_unref(f);
}

/* A READ waits while as many as possible are in progress, and all behind it. */
static bool may_leave(struct flow *f, struct piece *p)
{
	if (p->op != FABRIC_READ || !p->total || p->is_counted)
		return true;
	if (f->qp->n_reads >= f->qp->reads_max)
		return false;
	f->qp->n_reads++;
	p->is_counted = true;
	return true;
}

static uint64_t until_arrival(struct flow *f, const struct piece *p)
{
	struct sim *s = f->sim;

	if (p->work && p->is_last && p->work->due > s->now)
		return p->work->due - s->now;
	if (f->is_stopped)
		return sim_between(s, s->fabric.step_min, s->fabric.late_max / 4);
	if (f->stall_end && f->is_rnr)
		return sim_between(s, 10000, NSEC_PER_MSEC);
	return f->stall_end ? pause(s) : step(s);
}

void flow_run(struct flow *f)
{
	struct piece *p = list_first(&f->pieces, struct piece, link);

	if (!p || f->is_pending || f->is_halted || !may_leave(f, p))
		return;
	if (p->is_early && !capture(f, p))
		return;
	f->is_pending = true;
	flow_schedule(f, SIM_CARD_ARRIVE, true, until_arrival(f, p), fire_arrive, f);
}
