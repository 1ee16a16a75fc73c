/* Simulated network cards with RDMA: devices, memory, queue pairs and completions, behind the table
 * of core/fabric.h. sim_wire.c moves the bytes. sim_fabric_add() gives a node a card.
 *
 * Threads: one. Errors of calls: as in fabric.h; -EIO while the node is down, where all other calls
 * have no effect. Buffers: the memory of users is read and written by events at random times, as
 * long as fabric.h lends it, so that its early reuse destroys data or is found by ASan. When a
 * node goes down, its cards touch none of its memory any more.
 *
 * Where fabric.h leaves a choice, the seed takes it: after qp_drop() the completions of its work
 * requests are dropped, or have the owner NULL; arm() may return true without need, and if it
 * returns true it may or may not have armed. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim_card.h"

#define PAGE 4096
#define PROBES 256 /* pages per system call */
#define LANDS 16 /* most pieces that land after a failure of the receiver's QP */

void sim_fabric_init(struct sim *s)
{
	list_init(&s->flows);
	s->fabric = (struct sim_fabric){
		.is_ordered = true,
		.sge_max = 30,
		.send_depth = 1024,
		.receive_depth = 4096,
		.read_depth = 16,
		.message_max = UINT64_C(1) << 30,
		.step_min = 200,
		.step_max = 5000,
		.retry_min = NSEC_PER_SEC,
		.retry_max = 4 * NSEC_PER_SEC,
		.late_max = 50 * NSEC_PER_MSEC,
		.down_min = 10 * NSEC_PER_MSEC,
		.down_max = 10 * NSEC_PER_SEC,
	};
}

/* The i-th choice of this seed: takes nothing from the generators. */
static uint64_t pick(const struct sim *s, uint64_t i, uint64_t n)
{
	return hash_u64(hash_u64(s->seed ^ UINT64_C(0xfab51c)) + i) % n;
}

void sim_fabric_choose(struct sim *s, bool with_faults)
{
	static const uint32_t sges[] = { 1, 2, 4, 13, 27, 30, 32, 32 };
	static const uint32_t depths[] = { 16, 64, 256, 4096 };
	static const uint32_t receives[] = { 64, 512, 4096 };
	static const uint32_t reads[] = { 1, 2, 16, 128 };
	static const uint64_t messages[] = { 64 * KIB, 1024 * KIB, 8192 * KIB, 1024 * 1024 * KIB };
	struct sim_fabric *c = &s->fabric;

	c->is_ordered = pick(s, 1, 3) != 0;
	c->sge_max = sges[pick(s, 3, ARRAY_LEN(sges))];
	c->send_depth = depths[pick(s, 4, ARRAY_LEN(depths))];
	c->receive_depth = receives[pick(s, 5, ARRAY_LEN(receives))];
	c->read_depth = reads[pick(s, 6, ARRAY_LEN(reads))];
	c->message_max = messages[pick(s, 7, ARRAY_LEN(messages))];
	if (!with_faults)
		return;
	if (pick(s, 8, 4) == 0)
		c->no_device = 300000;
	if (pick(s, 9, 4) == 0)
		c->port_down = 300;
	if (pick(s, 10, 4) == 0)
		c->memory_max = (4 + pick(s, 11, 60)) * 1024 * KIB;
	if (pick(s, 12, 4) == 0)
		c->late_max = 2 * NSEC_PER_SEC;
}

void sim_fabric_add(struct sim_node *n)
{
	struct sim_card *c = n->card ? n->card : sim_alloc(sizeof(*c));

	if (n->card)
		return;
	c->node = n;
	c->has_device = !sim_chance(n->sim, n->sim->fabric.no_device);
	list_init(&c->fabrics);
	n->card = c;
	n->env.fabric = &sim_fabric_ops;
}

const struct sim_fabric_counts *sim_fabric_counts(const struct sim_node *n)
{
	static const struct sim_fabric_counts none;

	return n->card ? &n->card->counts : &none;
}

void sim_fabric_port_down(struct sim_node *n, uint64_t ns)
{
	if (!n->card)
		return;
	n->card->counts.port_downs++;
	n->sim->injected[SIM_CARD_DOWN]++;
	n->card->down_until = n->sim->now + ns;
	sim_trace(n->sim, SIM_CARD_PORT, n->id, ns);
}

/* ---------------------------------------------------------------- addresses and keys */

/* A permutation of 1 .. 2^bits - 1 that the seed chooses: no number comes again soon. */
static uint32_t number(const struct sim *s, uint32_t *count, unsigned bits)
{
	uint32_t mask = bits == 32 ? UINT32_MAX : (UINT32_C(1) << bits) - 1;
	uint32_t odd = (uint32_t)hash_u64(s->seed + bits) | 1, x;

	do
		x = (++*count * odd + (uint32_t)hash_u64(s->seed ^ bits)) & mask;
	while (!x);
	return x;
}

/* ::ffff:10.0.0.(1 + id) */
static void gid_of(const struct sim_node *n, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	gid[12] = 10;
	gid[15] = (uint8_t)(1 + n->id);
}

struct sim_card *card_of_gid(struct sim *s, const uint8_t gid[16])
{
	uint32_t id = gid[15] - UINT32_C(1);
	uint8_t right[16];

	if (id >= s->n_nodes)
		return NULL;
	gid_of(s->nodes[id], right);
	return memcmp(gid, right, 16) ? NULL : s->nodes[id]->card;
}

bool card_passes(const struct sim_card *from, const struct sim_card *to)
{
	const struct sim *s = from->node->sim;

	return !s->apart[from->node->id][to->node->id] && s->now >= from->down_until &&
	       s->now >= to->down_until && to->node->up;
}

static struct region *region_by_lkey(struct fabric *f, uint32_t key)
{
	struct hnode *h = htab_first(&f->lkeys, hash_u64(key));

	return h ? container_of(h, struct region, by_lkey) : NULL;
}

static struct region *region_by_rkey(struct fabric *f, uint32_t key)
{
	struct hnode *h = htab_first(&f->rkeys, hash_u64(key));

	return h ? container_of(h, struct region, by_rkey) : NULL;
}

static bool region_gives(const struct region *m, uint64_t at, uint64_t len, unsigned rights)
{
	uint64_t base = (uintptr_t)m->addr;

	return at >= base && at - base <= m->len && len <= m->len - (at - base) &&
	       (m->rights & rights) == rights;
}

/* hash_u64() maps different keys to different hashes. */
struct region *card_find_local(struct fabric *f, uint32_t lkey, const void *p, uint64_t len,
			       unsigned rights)
{
	struct region *m = region_by_lkey(f, lkey);

	return m && region_gives(m, (uintptr_t)p, len, rights) ? m : NULL;
}

struct region *card_find_remote(struct fabric *f, uint32_t rkey, uint64_t at, uint64_t len,
				unsigned rights)
{
	struct region *m = region_by_rkey(f, rkey);

	return m && region_gives(m, at, len, rights) ? m : NULL;
}

void card_refused(struct sim_card *c, uint32_t key)
{
	c->counts.refused++;
	sim_trace(c->node->sim, SIM_CARD_REFUSED, c->node->id, key);
}

/* ---------------------------------------------------------------- devices */

static int open_refuse(char *why, size_t n, int rc, const char *text)
{
	snprintf(why, n, "%s", text);
	return rc;
}

static int fabric_open(struct env *e, struct loop *l, const struct fabric_want *want,
		       void (*ready)(void *arg), void *arg, struct fabric **out, char *why,
		       size_t why_len)
{
	struct sim_card *c = sim_node_of(e)->card;
	const struct sim_fabric *conf = &c->node->sim->fabric;
	struct fabric *f;

	if (!c->node->up)
		return open_refuse(why, why_len, -EIO, "the node is down");
	if (!c->has_device || (*want->device && strcmp(want->device, "sim0")) || want->port > 1)
		return open_refuse(why, why_len, -ENODEV, "no such device");
	if (c->node->sim->now < c->down_until)
		return open_refuse(why, why_len, -ENETDOWN, "sim0: the port is down");
	f = sim_alloc(sizeof(*f));
	f->card = c;
	f->loop = l->impl;
	f->ready = ready;
	f->arg = arg;
	f->caps = (struct fabric_caps){
		.name = "sim0 port 1, simulated",
		.sge_max = MIN(conf->sge_max, FABRIC_SGES),
		.send_depth = conf->send_depth,
		.receive_depth = conf->receive_depth,
		.read_depth = conf->read_depth,
		.message_max = conf->message_max,
		.is_ordered = conf->is_ordered,
	};
	if (htab_init(&f->lkeys) || htab_init(&f->rkeys))
		abort();
	list_init(&f->regions);
	list_init(&f->qps);
	list_init(&f->receives);
	list_init(&f->cq);
	list_push(&c->fabrics, &f->link);
	c->counts.opens++;
	*out = f;
	return 0;
}

static void region_free(struct region *m)
{
	struct fabric *f = m->fabric;

	htab_remove(&f->lkeys, &m->by_lkey);
	htab_remove(&f->rkeys, &m->by_rkey);
	f->bytes -= m->charged;
	f->card->counts.mems--;
	list_del(&m->link);
	free(m);
}

static void qp_free(struct fabric_qp *q)
{
	struct list *it;

	if (q->flush)
		q->flush->fire = NULL;
	if (q->flow)
		flow_leave(q->flow);
	while ((it = list_pop(&q->works)))
		free(list_entry(it, struct work, link));
	free(q->rx);
	list_del(&q->link);
	q->fabric->card->counts.qps--;
	free(q);
}

/* Frees all but its QPs and regions. */
static void fabric_empty(struct fabric *f)
{
	struct list *it;

	while ((it = list_pop(&f->receives)))
		free(list_entry(it, struct receive, link));
	while ((it = list_pop(&f->cq)))
		free(list_entry(it, struct entry, link));
	f->n_receives = 0;
	f->is_armed = false;
}

static void fabric_free(struct fabric *f)
{
	struct fabric_qp *q, *next_q;
	struct region *m, *next_m;

	list_for_each_safe(q, next_q, &f->qps, link)
		qp_free(q);
	list_for_each_safe(m, next_m, &f->regions, link)
		region_free(m);
	fabric_empty(f);
	htab_destroy(&f->lkeys);
	htab_destroy(&f->rkeys);
	list_del(&f->link);
	free(f);
}

static void fabric_close(struct fabric *f)
{
	assert(f->is_dead || (list_empty(&f->qps) && list_empty(&f->regions)));
	sim_loop_forget(f->card->node, f->loop, f);
	fabric_free(f);
}

static const struct fabric_caps *fabric_caps_of(const struct fabric *f)
{
	return &f->caps;
}

static bool fabric_is_dead(const struct fabric *f)
{
	(void)f;
	return false; /* cards of this simulation do not fail for good while their node is up */
}

static const char *fabric_trouble(struct fabric *f)
{
	if (f->is_dead)
		return "the node is down";
	return f->card->node->sim->now < f->card->down_until ? "sim0: the port is down" : NULL;
}

/* ---------------------------------------------------------------- memory */

/* Reads a byte of each page, and writes it back if `writes`. 0 or -EFAULT. */
static int probe(uint8_t *addr, size_t len, bool writes)
{
	struct iovec at[PROBES], bytes;
	uint8_t buf[PROBES];
	size_t n = 0;

	for (size_t off = 0; off < len; off += PAGE - ((uintptr_t)addr + off) % PAGE) {
		bool is_last = len - off <= PAGE - ((uintptr_t)addr + off) % PAGE;

		at[n++] = (struct iovec){ addr + off, 1 };
		if (n < PROBES && !is_last)
			continue;
		bytes = (struct iovec){ buf, n };
		if (process_vm_readv(getpid(), &bytes, 1, at, n, 0) != (ssize_t)n)
			return -EFAULT;
		if (writes && process_vm_writev(getpid(), &bytes, 1, at, n, 0) != (ssize_t)n)
			return -EFAULT;
		n = 0;
	}
	return 0;
}

static int mem_make(struct fabric *f, void *addr, size_t len, unsigned rights,
		    struct fabric_mem *out)
{
	struct sim *s = f->card->node->sim;
	bool writes = rights & (FABRIC_LOCAL_WRITE | FABRIC_REMOTE_WRITE);
	uint64_t charged = (len + PAGE - 1) / PAGE * PAGE; /* does not depend on the address */
	struct region *m;

	if (f->is_dead)
		return -EIO;
	if (!len)
		return -EINVAL;
	if (s->fabric.memory_max && f->bytes + charged > s->fabric.memory_max)
		return -ENOMEM;
	if (sim_fs_is_map(f->card->node, addr) || probe(addr, len, writes))
		return -EFAULT;
	m = sim_alloc(sizeof(*m));
	*m = (struct region){ .fabric = f, .addr = addr, .len = len, .rights = rights };
	m->charged = charged;
	m->lkey = number(s, &s->n_keys, 32);
	m->rkey = number(s, &s->n_keys, 32);
	if (htab_insert(&f->lkeys, &m->by_lkey, hash_u64(m->lkey)) ||
	    htab_insert(&f->rkeys, &m->by_rkey, hash_u64(m->rkey)))
		abort();
	list_push(&f->regions, &m->link);
	f->bytes += charged;
	f->card->counts.mems++;
	f->card->counts.registrations++;
	sim_trace(s, SIM_CARD_MEMORY, f->card->node->id, len);
	*out = (struct fabric_mem){ m->lkey, m->rkey, m };
	return 0;
}

static void mem_drop(struct fabric *f, struct fabric_mem *m)
{
	struct region *r = m->impl;

	if (!f->is_dead)
		sim_trace(f->card->node->sim, SIM_CARD_MEMORY, f->card->node->id, 0);
	region_free(r);
	m->impl = NULL;
}

/* ---------------------------------------------------------------- completions */

static bool loop_is_alive(const struct fabric *f)
{
	struct sim_loop *l;

	list_for_each(l, &f->card->node->loops, link)
		if (l == f->loop)
			return true;
	return false;
}

static void ring(void *arg)
{
	struct fabric *f = arg;

	f->ready(f->arg);
}

static void complete(struct fabric *f, struct fabric_qp *q, struct fabric_completion c,
		     uint32_t slots)
{
	struct entry *e = sim_alloc(sizeof(*e));

	e->c = c;
	e->c.owner = q ? q->owner : NULL;
	e->qp = q;
	e->slots = slots;
	list_push(&f->cq, &e->link);
	f->card->counts.completions++;
	sim_trace(f->card->node->sim, SIM_CARD_COMPLETION, f->card->node->id,
		  (uint64_t)c.len << 16 | (uint64_t)-c.error << 4 | c.event);
	if (f->is_armed && loop_is_alive(f))
		sim_loop_finished(f->loop, ring, f);
	f->is_armed = false;
}

/* Memory is lent until the completion: until then a card may have to send it again. */
static void check_lent(const struct fabric_qp *q, const struct work *w)
{
	for (uint32_t i = 0; i < w->wr.n_sge; i++)
		if (w->sge[i].len &&
		    !card_find_local(q->fabric, w->sge[i].lkey, w->sge[i].addr, w->sge[i].len, 0))
			card_refused(q->fabric->card, w->sge[i].lkey);
}

static void work_complete(struct fabric_qp *q, struct work *w, int error)
{
	struct fabric_completion c = { .event = FABRIC_SENT, .error = error, .id = w->wr.id };

	if (!error)
		check_lent(q, w);
	list_del(&w->link);
	if (w->wr.is_signalled || error) {
		complete(q->fabric, q, c, q->silent + 1);
		q->silent = 0;
	} else {
		q->silent++;
	}
	free(w);
}

void qp_ack(struct fabric_qp *q, uint64_t seq)
{
	struct work *w;

	while ((w = qp_oldest(q)) && w->seq <= seq && (w->wr.op != FABRIC_READ || w->has_landed))
		work_complete(q, w, 0);
}

struct work *qp_find_work(struct fabric_qp *q, uint64_t seq)
{
	struct work *w;

	list_for_each(w, &q->works, link)
		if (w->seq == seq)
			return w;
	return NULL;
}

struct work *qp_oldest(struct fabric_qp *q)
{
	return list_first(&q->works, struct work, link);
}

struct receive *card_take_receive(struct fabric *f)
{
	struct list *it = list_pop(&f->receives);

	if (!it)
		return NULL;
	f->n_receives--;
	return list_entry(it, struct receive, link);
}

void qp_received(struct fabric_qp *q, struct receive *r, struct fabric_completion c)
{
	if (!c.event)
		c.event = FABRIC_RECEIVED;
	c.id = r->r.id;
	complete(q->fabric, q, c, 0);
	free(r);
}

static size_t fabric_poll(struct fabric *f, struct fabric_completion *out, size_t max)
{
	struct list *it;
	size_t n = 0;

	while (n < max && (it = list_pop(&f->cq))) {
		struct entry *e = list_entry(it, struct entry, link);

		if (e->qp)
			e->qp->used -= e->slots;
		out[n++] = e->c;
		free(e);
	}
	if (n)
		sim_trace(f->card->node->sim, SIM_CARD_POLL, f->card->node->id, n);
	return n;
}

static bool fabric_arm(struct fabric *f)
{
	struct sim *s = f->card->node->sim;

	if (f->is_dead)
		return false;
	sim_count_work();
	if (!list_empty(&f->cq)) {
		f->is_armed = sim_below(s, 2);
		return true;
	}
	f->is_armed = sim_below(s, 8) != 0;
	return !f->is_armed;
}

/* ---------------------------------------------------------------- queue pairs */

static int qp_make(struct fabric *f, uint32_t sends, void *owner, struct fabric_qp **out,
		   struct fabric_addr *ours)
{
	struct sim *s = f->card->node->sim;
	struct fabric_qp *q;

	if (f->is_dead)
		return -EIO;
	if (!sends || sends > f->caps.send_depth)
		return -EINVAL;
	if (s->fabric.qps_max && f->card->counts.qps >= s->fabric.qps_max)
		return -ENOMEM;
	q = sim_alloc(sizeof(*q));
	q->fabric = f;
	q->owner = owner;
	q->sends = sends;
	list_init(&q->works);
	gid_of(f->card->node, q->self.gid);
	q->self.qpn = number(s, &s->n_qpns, 24);
	q->self.psn = (uint32_t)hash_u64(s->seed ^ q->self.qpn) & 0xffffff;
	q->self.mtu = 4096;
	q->self.read_depth = f->caps.read_depth;
	list_push(&f->qps, &q->link);
	f->card->counts.qps++;
	sim_trace(s, SIM_CARD_QP, f->card->node->id, q->self.qpn);
	*ours = q->self;
	*out = q;
	return 0;
}

static int qp_connect(struct fabric_qp *q, const struct fabric_addr *peer)
{
	struct sim *s = q->fabric->card->node->sim;

	if (q->fabric->is_dead)
		return -EIO;
	if (q->state != QP_NEW || peer->qpn == q->self.qpn)
		return -EINVAL;
	q->fabric->card->counts.connects++;
	if (s->fabric.no_path) {
		s->fabric.no_path--;
		return -ETIMEDOUT;
	}
	q->state = QP_READY;
	q->peer = *peer;
	q->reads_max = MIN(q->fabric->caps.read_depth, peer->read_depth);
	q->flow = flow_new(q);
	s->injected[SIM_CARD_JOINED]++;
	return 0;
}

static void fire_flush(struct sim *s, struct sim_event *e);

/* Flushes what is outstanding, one work request after the other. */
static void qp_flush(struct fabric_qp *q)
{
	struct sim_card *c = q->fabric->card;
	struct sim *s = c->node->sim;

	if (q->flush || list_empty(&q->works))
		return;
	q->flush = sim_schedule(s, SIM_CARD_FLUSH, c->node,
				sim_delay(s, s->fabric.step_min, s->fabric.step_max), fire_flush,
				q);
}

static void fire_flush(struct sim *s, struct sim_event *e)
{
	struct fabric_qp *q = e->arg;
	struct work *w = qp_oldest(q);

	(void)s;
	q->flush = NULL;
	work_complete(q, w, w->error);
	qp_flush(q);
}

static void drop_rx(struct fabric_qp *q)
{
	struct receive *r = q->rx;

	q->rx = NULL;
	if (r)
		qp_received(q, r, (struct fabric_completion){ .error = -ECANCELED });
}

void qp_stop(struct fabric_qp *q, uint64_t seq, int error)
{
	struct work *w;

	if (q->state == QP_FAILED)
		return;
	q->state = QP_FAILED;
	q->lands = (uint32_t)sim_below(q->fabric->card->node->sim, LANDS + 1);
	if (q->flow)
		flow_stop(q->flow);
	list_for_each(w, &q->works, link)
		w->error = w->seq == seq ? error : -ECANCELED;
	drop_rx(q);
	qp_flush(q);
}

static void qp_abort(struct fabric_qp *q)
{
	struct sim_card *c = q->fabric->card;

	if (q->fabric->is_dead)
		return;
	sim_trace(c->node->sim, SIM_CARD_QP, c->node->id, q->self.qpn);
	qp_stop(q, 0, 0);
}

/* Receives have completions in any case: else their buffers were lost. */
static void qp_drop(struct fabric_qp *q)
{
	struct fabric *f = q->fabric;
	struct sim *s = f->card->node->sim;
	struct entry *e, *next;
	bool is_kept;

	if (f->is_dead) {
		qp_free(q);
		return;
	}
	sim_trace(s, SIM_CARD_QP, f->card->node->id, q->self.qpn);
	drop_rx(q);
	is_kept = sim_below(s, 2);
	list_for_each_safe(e, next, &f->cq, link) {
		if (e->qp != q)
			continue;
		e->qp = NULL;
		e->c.owner = NULL;
		if (is_kept || e->c.event != FABRIC_SENT)
			continue;
		list_del(&e->link);
		free(e);
	}
	qp_free(q);
}

/* ---------------------------------------------------------------- posting */

static uint64_t wr_bytes(const struct fabric_wr *wr)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < wr->n_sge; i++)
		sum += wr->sge[i].len;
	return sum;
}

static int wr_check(const struct fabric_qp *q, const struct fabric_wr *wr)
{
	const struct fabric_caps *c = &q->fabric->caps;

	if (wr->n_sge > c->sge_max || wr_bytes(wr) > c->message_max)
		return -EINVAL;
	if (wr->op == FABRIC_READ && !q->reads_max)
		return -EINVAL;
	return 0;
}

static int post_check(const struct fabric_qp *q, const struct fabric_wr *wr, size_t n)
{
	int r = 0;

	if (q->state == QP_NEW)
		return -ENOTCONN;
	if (n > q->sends - q->used)
		return -ENOMEM;
	for (size_t i = 0; i < n && !r; i++)
		r = wr_check(q, wr + i);
	return r;
}

/* The work request takes its place on the shared wire. Returns when its data have passed. */
static uint64_t take_wire(struct sim *s, const struct work *w)
{
	struct sim_fabric *c = &s->fabric;

	if (!c->kib_ns || w->wr.op == FABRIC_SEND)
		return 0;
	c->wire_until = MAX(c->wire_until, s->now) + w->total * c->kib_ns / KIB;
	return c->wire_until;
}

static struct work *work_new(struct fabric_qp *q, const struct fabric_wr *wr)
{
	struct work *w = sim_alloc(sizeof(*w));

	w->wr = *wr;
	w->wr.sge = w->sge;
	for (uint32_t i = 0; i < wr->n_sge; i++)
		w->sge[i] = wr->sge[i];
	w->seq = ++q->n_posted;
	w->total = w->left = wr_bytes(wr);
	w->due = take_wire(q->fabric->card->node->sim, w);
	w->has_landed = !w->total;
	w->error = -ECANCELED;
	list_push(&q->works, &w->link);
	q->used++;
	return w;
}

static void count_work(struct sim *s, const struct fabric_wr *wr)
{
	static const enum sim_injected as[] = { [FABRIC_WRITE] = SIM_CARD_WROTE,
						[FABRIC_WRITE_IMM] = SIM_CARD_GRANTED,
						[FABRIC_READ] = SIM_CARD_READ };

	if (wr->op != FABRIC_SEND)
		s->injected[as[wr->op]]++;
}

/* A QP that has failed accepts work requests and flushes them, like those of verbs. */
static int qp_post(struct fabric_qp *q, const struct fabric_wr *wr, size_t n)
{
	struct sim_card *c = q->fabric->card;
	struct sim *s = c->node->sim;
	int r;

	if (q->fabric->is_dead)
		return -EIO;
	r = post_check(q, wr, n);
	sim_trace(s, SIM_CARD_POST, c->node->id, n);
	if (r) {
		qp_stop(q, 0, 0);
		return r;
	}
	c->counts.doorbells++;
	c->counts.requests += n;
	for (size_t i = 0; i < n; i++) {
		struct work *w = work_new(q, wr + i);

		count_work(s, wr + i);
		if (q->state == QP_READY)
			flow_add(q->flow, w);
	}
	if (sim_chance(s, s->fabric.port_down))
		sim_fabric_port_down(c->node,
				     sim_between(s, s->fabric.down_min, s->fabric.down_max));
	if (q->state == QP_READY)
		flow_run(q->flow);
	else
		qp_flush(q);
	return 0;
}

static int fabric_receive(struct fabric *f, const struct fabric_receive *r, size_t n)
{
	if (f->is_dead)
		return -EIO;
	if (n > f->caps.receive_depth - f->n_receives)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct receive *x = sim_alloc(sizeof(*x));

		x->r = r[i];
		list_push(&f->receives, &x->link);
	}
	f->n_receives += (uint32_t)n;
	f->card->counts.receives += n;
	sim_count_work();
	return 0;
}

const struct fabric_ops sim_fabric_ops = {
	.open = fabric_open,
	.close = fabric_close,
	.caps = fabric_caps_of,
	.trouble = fabric_trouble,
	.is_dead = fabric_is_dead,
	.mem_make = mem_make,
	.mem_drop = mem_drop,
	.qp_make = qp_make,
	.qp_connect = qp_connect,
	.post = qp_post,
	.qp_abort = qp_abort,
	.qp_drop = qp_drop,
	.receive = fabric_receive,
	.poll = fabric_poll,
	.arm = fabric_arm,
};

/* ---------------------------------------------------------------- crashes and cleanup */

/* Copies of what is on its way may still arrive elsewhere. The objects wait for their owners, who
 * free them in any order. */
void sim_fabric_crash(struct sim_node *n)
{
	struct fabric *f;
	struct fabric_qp *q;

	if (!n->card)
		return;
	list_for_each(f, &n->card->fabrics, link) {
		if (f->is_dead)
			continue;
		list_for_each(q, &f->qps, link) {
			if (q->flush)
				q->flush->fire = NULL;
			if (q->flow)
				flow_leave(q->flow);
			q->flush = NULL;
			q->flow = NULL;
		}
		f->is_dead = true;
		fabric_empty(f);
	}
}

void sim_fabric_fini(struct sim *s)
{
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct sim_card *c = s->nodes[i]->card;
		struct fabric *f, *next;

		if (!c)
			continue;
		list_for_each_safe(f, next, &c->fabrics, link)
			fabric_free(f);
	}
	flow_fini(s);
	for (uint32_t i = 0; i < s->n_nodes; i++)
		free(s->nodes[i]->card);
}
