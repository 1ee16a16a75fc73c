/* RDMA over libibverbs: memory, queue pairs, work requests and completions.
 *
 *     post -> send queue of the QP -> CQ of its sends  \
 *     receive -> SRQ of the device -> CQ of receives   -> taken -> poll
 *
 * Completions are first taken from the CQs into a list, then reported. So qp_drop() can empty the
 * CQs before and after it destroys a QP, and remove what belongs to it: no CQ holds a completion of
 * a QP that is gone, and a number that is used again means the new QP only. arm() empties the CQs
 * to find what arrived before they were armed.
 *
 * Threads: the loop's. Buffers: the caller's; post() and receive() copy the descriptions. Only a
 * receive that a SEND of several packets had taken when its QP was dropped never completes.
 * Errors: -errno. A CQ that cannot be read makes the device unusable (trouble()). */
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/env_real.h"
#include "core/fabric_verbs.h"

#define CQ_ENTRIES 4096 /* of a CQ for sends, unless one QP needs more */

/* A silent peer is noticed after (RETRIES + 1) * 4.096 us * 2^ACK_TIMEOUT = 3.8 s; some cards take
 * up to four times as long. Soft-RoCE takes 7 retries as endless. */
#define ACK_TIMEOUT 17
#define RETRIES 6
/* A message that finds no receive is sent again after 164 ms. For 7 retries, "for ever" holds. */
#define RNR_TIMER 28
#define RNR_RETRIES 6

#define QPN_MASK 0xffffffu /* of queue pair numbers and sequence numbers of packets */

/* Pieces of memory are passed on as they are. */
_Static_assert(sizeof(struct fabric_sge) == sizeof(struct ibv_sge), "a piece");
_Static_assert(offsetof(struct fabric_sge, addr) == offsetof(struct ibv_sge, addr), "addr");
_Static_assert(sizeof(((struct fabric_sge *)0)->addr) == sizeof(((struct ibv_sge *)0)->addr),
	       "a pointer has 64 bits");
_Static_assert(offsetof(struct fabric_sge, len) == offsetof(struct ibv_sge, length), "len");
_Static_assert(offsetof(struct fabric_sge, lkey) == offsetof(struct ibv_sge, lkey), "lkey");

/* ---- memory ---- */

static int verbs_mem_make(struct fabric *f, void *addr, size_t len, unsigned rights,
			  struct fabric_mem *out)
{
	struct ibv_mr *mr;
	int access = 0;

	if (rights & (FABRIC_LOCAL_WRITE | FABRIC_REMOTE_WRITE))
		access |= IBV_ACCESS_LOCAL_WRITE;
	if (rights & FABRIC_REMOTE_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (rights & FABRIC_REMOTE_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	mr = f->api->reg_mr(f->pd, addr, len, access);
	if (!mr) /* EOPNOTSUPP: a mapped file whose pages cannot stay where they are */
		return errno == EOPNOTSUPP ? -EFAULT : errno ? -errno : -ENOMEM;
	*out = (struct fabric_mem){ .lkey = mr->lkey, .rkey = mr->rkey, .impl = mr };
	return 0;
}

static void verbs_mem_drop(struct fabric *f, struct fabric_mem *m)
{
	int r = m->impl ? f->api->dereg_mr(m->impl) : 0;

	if (r) { /* peers could still access it */
		log_error("rdma", "%s: cannot unregister memory: %s", f->device, strerror(r));
		verbs_die(f, "it kept memory registered");
	}
	*m = (struct fabric_mem){ 0 };
}

/* ---- completion queues ---- */

int verbs_cq_init(struct fabric *f, struct verbs_cq *c, uint32_t entries)
{
	*c = (struct verbs_cq){ .entries = entries };
	list_init(&c->link);
	c->cq = f->api->create_cq(f->ctx, (int)entries, c, f->channel, 0);
	return c->cq ? 0 : errno ? -errno : -ENOMEM;
}

void verbs_cq_fini(struct fabric *f, struct verbs_cq *c)
{
	if (c->cq)
		f->api->destroy_cq(c->cq);
	c->cq = NULL;
}

/* A CQ that is armed already reports its next completion, or its event waits in the channel. */
static void cq_arm(struct fabric *f, struct verbs_cq *c)
{
	if (c->is_armed)
		return;
	if (ibv_req_notify_cq(c->cq, 0))
		verbs_die(f, "it does not report completions");
	c->is_armed = true;
}

/* A CQ with room for the sends of one more QP. A new one is armed: arm() may have been called
 * before, and the caller then waits for ready(). */
static int send_cq_get(struct fabric *f, uint32_t sends, struct verbs_cq **out)
{
	uint32_t entries = MAX(MIN(CQ_ENTRIES, (uint32_t)f->attr.max_cqe), sends);
	struct verbs_cq *c;
	int r;

	list_for_each(c, &f->send_cqs, link)
		if (c->entries - c->reserved >= sends)
			goto found;
	c = malloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	r = verbs_cq_init(f, c, entries);
	if (r) {
		free(c);
		return r;
	}
	list_push(&f->send_cqs, &c->link);
	cq_arm(f, c);
found:
	c->reserved += sends;
	*out = c;
	return 0;
}

/* Keeps an empty CQ if it is the only one. */
static void send_cq_put(struct fabric *f, struct verbs_cq *c, uint32_t sends)
{
	c->reserved -= sends;
	if (c->reserved || f->send_cqs.next == f->send_cqs.prev)
		return;
	list_del(&c->link);
	verbs_cq_fini(f, c);
	free(c);
}

/* ---- taking completions ---- */

int verbs_taken_reserve(struct fabric *f, uint64_t n)
{
	struct verbs_taken *more;

	if (n <= f->taken_room)
		return 0;
	more = realloc(f->taken, n * sizeof(*more));
	if (!more)
		return -ENOMEM;
	f->taken = more;
	f->taken_room = n;
	return 0;
}

static void taken_push(struct fabric *f, const struct verbs_taken *t)
{
	if (f->taken_end == f->taken_room && f->taken_first) {
		f->taken_end -= f->taken_first;
		memmove(f->taken, f->taken + f->taken_first, f->taken_end * sizeof(*t));
		f->taken_first = 0;
	}
	assert(f->taken_end < f->taken_room);
	f->taken[f->taken_end++] = *t;
}

static bool taken_pop(struct fabric *f, struct verbs_taken *t)
{
	if (f->taken_first == f->taken_end)
		return false;
	*t = f->taken[f->taken_first++];
	if (f->taken_first == f->taken_end)
		f->taken_first = f->taken_end = 0;
	return true;
}

/* The QP is going: its sends have no completions, its receives have no owner. */
static void taken_forget(struct fabric *f, const struct fabric_qp *q)
{
	size_t to = f->taken_first;

	for (size_t i = f->taken_first; i < f->taken_end; i++) {
		struct verbs_taken *t = &f->taken[i];

		if (t->qp == q) {
			if (t->c.event == FABRIC_SENT)
				continue;
			t->qp = NULL;
			t->c.owner = NULL;
		}
		f->taken[to++] = *t;
	}
	f->taken_end = to;
}

static struct fabric_qp *qp_find(const struct fabric *f, uint32_t number)
{
	struct hnode *n = htab_first(&f->qps, number);

	return n ? container_of(n, struct fabric_qp, node) : NULL;
}

static int status_error(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_WR_FLUSH_ERR:
		return -ECANCELED;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_LOC_QP_OP_ERR: /* Soft-RoCE: no memory has the local key */
		return -EACCES;
	case IBV_WC_RETRY_EXC_ERR:
		return -ETIMEDOUT;
	default:
		return -ECONNABORTED;
	}
}

/* The fields other than wr_id, qp_num and status are valid only without an error. */
static void take_send(struct fabric *f, const struct ibv_wc *wc)
{
	struct fabric_qp *q = qp_find(f, wc->qp_num);
	struct verbs_taken t = {
		.c = { .event = FABRIC_SENT, .error = status_error(wc->status) },
		.qp = q,
		.sequence = wc->wr_id,
	};

	if (!q || wc->wr_id >= q->hidden)
		return;
	t.c.id = q->ids[wc->wr_id % q->sends];
	t.c.owner = q->owner;
	if (t.c.error)
		q->has_failed = true;
	taken_push(f, &t);
}

static void take_receive(struct fabric *f, const struct ibv_wc *wc)
{
	struct fabric_qp *q = qp_find(f, wc->qp_num);
	struct verbs_taken t = {
		.c = { .event = FABRIC_RECEIVED,
		       .error = status_error(wc->status),
		       .id = wc->wr_id,
		       .owner = q ? q->owner : NULL },
		.qp = q,
	};

	if (t.c.error && q)
		q->has_failed = true;
	if (!t.c.error) {
		t.c.len = wc->byte_len;
		if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
			t.c.event = FABRIC_RECEIVED_IMM;
			t.c.imm = ntohl(wc->imm_data);
		}
	}
	taken_push(f, &t);
}

/* Takes one batch of a CQ; returns how many there were. */
static size_t cq_take(struct fabric *f, struct verbs_cq *c)
{
	struct ibv_wc wc[VERBS_BATCH];
	int n = ibv_poll_cq(c->cq, VERBS_BATCH, wc);

	if (n < 0) {
		verbs_die(f, "its completions cannot be read");
		return 0;
	}
	for (int i = 0; i < n; i++) {
		if (c == &f->receive_cq)
			take_receive(f, &wc[i]);
		else
			take_send(f, &wc[i]);
	}
	return (size_t)n;
}

/* Takes a batch of each CQ. False: they are empty. */
static bool take_some(struct fabric *f)
{
	size_t n = cq_take(f, &f->receive_cq);
	struct verbs_cq *c;

	list_for_each(c, &f->send_cqs, link)
		n += cq_take(f, c);
	return n > 0;
}

/* ---- reporting completions ---- */

static size_t verbs_poll(struct fabric *f, struct fabric_completion *out, size_t max)
{
	struct verbs_taken t;
	size_t n = 0;

	while (n < max) {
		if (!taken_pop(f, &t)) {
			if (!take_some(f))
				break;
			continue;
		}
		if (t.c.event != FABRIC_SENT)
			f->n_receives--;
		else
			t.qp->done = MAX(t.qp->done, t.sequence + 1);
		out[n++] = t.c;
	}
	return n;
}

static bool verbs_arm(struct fabric *f)
{
	struct verbs_cq *c;

	cq_arm(f, &f->receive_cq);
	list_for_each(c, &f->send_cqs, link)
		cq_arm(f, c);
	while (take_some(f))
		;
	return f->taken_first < f->taken_end;
}

/* ---- queue pairs ---- */

struct ibv_qp *verbs_qp_create(struct fabric *f, struct ibv_cq *sent, uint32_t sends)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = sent,
		.recv_cq = f->receive_cq.cq,
		.srq = f->srq,
		.cap = { .max_send_wr = sends, .max_send_sge = f->caps.sge_max },
		.qp_type = IBV_QPT_RC,
	};

	errno = 0;
	return f->api->create_qp(f->pd, &attr);
}

static int qp_to_init(struct fabric_qp *q)
{
	const struct fabric *f = q->fabric;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = f->pkey_index,
		.port_num = f->port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};

	return -f->api->modify_qp(
		q->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void qp_to_error(struct fabric_qp *q)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	q->has_failed = true;
	q->fabric->api->modify_qp(q->qp, &attr, IBV_QP_STATE);
}

/* Takes all completions before the QP is destroyed, because some libraries remove them then, with
 * the receives; and after it, when there can be no more. Accepts a half-made QP. */
static void verbs_qp_drop(struct fabric_qp *q)
{
	struct fabric *f = q->fabric;
	int r;

	if (q->qp) {
		qp_to_error(q);
		while (take_some(f))
			;
		r = f->api->destroy_qp(q->qp);
		if (r)
			log_error("rdma", "%s: cannot destroy a queue pair: %s", f->device,
				  strerror(r));
		while (take_some(f))
			;
		taken_forget(f, q);
	}
	if (q->is_listed)
		htab_remove(&f->qps, &q->node);
	if (q->cq) {
		f->n_sends -= q->sends;
		send_cq_put(f, q->cq, q->sends);
	}
	free(q);
}

/* The parts of a QP; verbs_qp_drop() frees them. */
static int qp_build(struct fabric *f, struct fabric_qp *q)
{
	int r = verbs_taken_reserve(f, f->caps.receive_depth + f->n_sends + q->sends);

	if (!r)
		r = send_cq_get(f, q->sends, &q->cq);
	if (r)
		return r;
	f->n_sends += q->sends;
	q->qp = verbs_qp_create(f, q->cq->cq, q->sends);
	if (!q->qp)
		return errno ? -errno : -ENOMEM;
	r = htab_insert(&f->qps, &q->node, q->qp->qp_num);
	if (r)
		return r;
	q->is_listed = true;
	return qp_to_init(q);
}

static int verbs_qp_make(struct fabric *f, uint32_t sends, void *owner, struct fabric_qp **out,
			 struct fabric_addr *ours)
{
	struct fabric_qp *q;
	int r;

	if (!sends || sends > f->caps.send_depth)
		return -EINVAL;
	q = calloc(1, sizeof(*q) + sends * sizeof(q->ids[0]));
	if (!q)
		return -ENOMEM;
	q->fabric = f;
	q->owner = owner;
	q->sends = sends;
	q->hidden = UINT64_MAX;
	q->psn = (uint32_t)env_random_u64(f->env) & QPN_MASK;
	r = qp_build(f, q);
	if (r) {
		verbs_qp_drop(q);
		return r;
	}
	*ours = (struct fabric_addr){
		.lid = f->lid,
		.qpn = q->qp->qp_num,
		.psn = q->psn,
		.mtu = 128u << f->mtu,
		.read_depth = f->caps.read_depth,
	};
	memcpy(ours->gid, f->gid.raw, sizeof(ours->gid));
	*out = q;
	return 0;
}

/* ---- connecting ---- */

/* The path to the peer. On InfiniBand a global header is needed only between subnets. */
static void set_path(const struct fabric *f, const struct fabric_addr *peer,
		     struct ibv_ah_attr *path)
{
	path->port_num = f->port;
	path->sl = f->service_level;
	path->dlid = (uint16_t)peer->lid;
	path->is_global = f->needs_gid || memcmp(peer->gid, f->gid.raw, 8) != 0;
	if (!path->is_global)
		return;
	memcpy(path->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	path->grh.sgid_index = (uint8_t)f->gid_index;
	path->grh.hop_limit = 64;
	path->grh.traffic_class = f->traffic_class;
}

static int qp_to_rtr(struct fabric_qp *q, const struct fabric_addr *peer)
{
	const struct fabric *f = q->fabric;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = f->mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = (uint8_t)f->caps.read_depth,
		.min_rnr_timer = RNR_TIMER,
	};

	while (attr.path_mtu > IBV_MTU_256 && 128u << attr.path_mtu > peer->mtu)
		attr.path_mtu--;
	set_path(f, peer, &attr.ah_attr);
	return -f->api->modify_qp(q->qp, &attr,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					  IBV_QP_MIN_RNR_TIMER);
}

static int qp_to_rts(struct fabric_qp *q, const struct fabric_addr *peer)
{
	const struct fabric *f = q->fabric;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_RETRIES,
		.sq_psn = q->psn,
		.max_rd_atomic = (uint8_t)MIN(f->caps.read_depth, peer->read_depth),
	};

	return -f->api->modify_qp(q->qp, &attr,
				  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					  IBV_QP_MAX_QP_RD_ATOMIC);
}

static int verbs_qp_connect(struct fabric_qp *q, const struct fabric_addr *peer)
{
	int r;

	if (peer->qpn > QPN_MASK || peer->psn > QPN_MASK || peer->lid > UINT16_MAX ||
	    peer->mtu < 256)
		return -EINVAL;
	r = qp_to_rtr(q, peer);
	return r ? r : qp_to_rts(q, peer);
}

/* ---- work requests ---- */

static enum ibv_wr_opcode send_opcode(enum fabric_op op)
{
	switch (op) {
	case FABRIC_SEND:
		return IBV_WR_SEND;
	case FABRIC_WRITE:
		return IBV_WR_RDMA_WRITE;
	case FABRIC_WRITE_IMM:
		return IBV_WR_RDMA_WRITE_WITH_IMM;
	case FABRIC_READ:
		return IBV_WR_RDMA_READ;
	}
	return IBV_WR_DRIVER1; /* refused by post_send */
}

/* Describes n work requests, at most VERBS_CHAIN, in f->send_wrs. */
static void chain_build(struct fabric_qp *q, const struct fabric_wr *wr, size_t n)
{
	struct ibv_send_wr *to = q->fabric->send_wrs;

	for (size_t i = 0; i < n; i++, wr++, to++) {
		*to = (struct ibv_send_wr){
			.wr_id = q->posted,
			.next = i + 1 < n ? to + 1 : NULL,
			.sg_list = (struct ibv_sge *)wr->sge,
			.num_sge = (int)wr->n_sge,
			.opcode = send_opcode(wr->op),
			.send_flags = wr->is_signalled ? IBV_SEND_SIGNALED : 0,
			.imm_data = htonl(wr->imm),
			.wr.rdma = { .remote_addr = wr->remote, .rkey = wr->rkey },
		};
		q->ids[q->posted++ % q->sends] = wr->id;
	}
}

/* If the card takes only a part of the chain, the QP stops, and what it took has no completions. */
static int verbs_post(struct fabric_qp *q, const struct fabric_wr *wr, size_t n)
{
	uint64_t first = q->posted;
	struct ibv_send_wr *bad;
	size_t count;

	if (q->has_failed)
		return -EIO;
	for (; n; wr += count, n -= count) {
		count = MIN(n, (size_t)VERBS_CHAIN);
		if (n > q->sends - (q->posted - q->done))
			goto fail;
		chain_build(q, wr, count);
		if (ibv_post_send(q->qp, q->fabric->send_wrs, &bad))
			goto fail;
	}
	return 0;
fail:
	q->hidden = first;
	qp_to_error(q);
	return -EIO;
}

static void verbs_qp_abort(struct fabric_qp *q)
{
	qp_to_error(q);
}

static int verbs_receive(struct fabric *f, const struct fabric_receive *r, size_t n)
{
	struct ibv_sge pieces[VERBS_CHAIN];
	struct ibv_recv_wr *bad;
	size_t count;

	if (n > f->caps.receive_depth - f->n_receives)
		return -ENOBUFS;
	for (; n; r += count, n -= count) {
		count = MIN(n, (size_t)VERBS_CHAIN);
		for (size_t i = 0; i < count; i++) {
			pieces[i] = (struct ibv_sge){
				.addr = (uintptr_t)r[i].addr,
				.length = r[i].len,
				.lkey = r[i].lkey,
			};
			f->receive_wrs[i] = (struct ibv_recv_wr){
				.wr_id = r[i].id,
				.next = i + 1 < count ? &f->receive_wrs[i + 1] : NULL,
				.sg_list = &pieces[i],
				.num_sge = r[i].len ? 1 : 0,
			};
		}
		if (ibv_post_srq_recv(f->srq, f->receive_wrs, &bad)) {
			verbs_die(f, "it takes no receives");
			return -EIO;
		}
		f->n_receives += (uint32_t)count;
	}
	return 0;
}

/* ---- the table ---- */

static const struct fabric_caps *verbs_caps(const struct fabric *f)
{
	return &f->caps;
}

static bool verbs_is_dead(const struct fabric *f)
{
	return f->is_dead;
}

static const char *verbs_trouble(struct fabric *f)
{
	return *f->trouble ? f->trouble : NULL;
}

const struct fabric_ops fabric_verbs_ops = {
	.open = verbs_open,
	.close = verbs_close,
	.caps = verbs_caps,
	.trouble = verbs_trouble,
	.is_dead = verbs_is_dead,
	.mem_make = verbs_mem_make,
	.mem_drop = verbs_mem_drop,
	.qp_make = verbs_qp_make,
	.qp_connect = verbs_qp_connect,
	.post = verbs_post,
	.qp_abort = verbs_qp_abort,
	.qp_drop = verbs_qp_drop,
	.receive = verbs_receive,
	.poll = verbs_poll,
	.arm = verbs_arm,
};
