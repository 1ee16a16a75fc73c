/* The simulated cards, shared by sim_fabric.c (devices, memory, queue pairs, completions) and
 * sim_wire.c (what travels between two cards). */
#ifndef SHEAF_SIM_CARD_H
#define SHEAF_SIM_CARD_H

#include "core/fabric.h"
#include "sim_priv.h"

struct flow;

struct sim_card {
	struct sim_node *node;
	bool has_device;
	uint64_t down_until; /* the port is down until then */
	struct list fabrics; /* open devices, oldest first */
	struct sim_fabric_counts counts;
};

/* An open device. */
struct fabric {
	struct list link;
	struct sim_card *card;
	struct sim_loop *loop;
	void (*ready)(void *arg);
	void *arg;
	struct fabric_caps caps;
	struct htab lkeys, rkeys; /* struct region */
	struct list regions, qps;
	struct list receives; /* posted: struct receive */
	uint32_t n_receives;
	struct list cq; /* struct entry */
	uint64_t bytes; /* registered, whole pages */
	bool is_armed;
	bool is_dead; /* its node went down: waits for close() */
};

struct region {
	struct list link;
	struct hnode by_lkey, by_rkey;
	struct fabric *fabric;
	uint8_t *addr;
	uint64_t len, charged;
	uint32_t lkey, rkey;
	unsigned rights;
};

struct receive {
	struct list link;
	struct fabric_receive r;
};

/* A completion in the queue of its device. */
struct entry {
	struct list link;
	struct fabric_completion c;
	struct fabric_qp *qp; /* NULL: dropped */
	uint32_t slots; /* of the QP's send queue: free again when this has been polled */
};

/* A work request between its post and its completion. */
struct work {
	struct list link;
	struct fabric_wr wr;
	struct fabric_sge sge[FABRIC_SGES];
	uint64_t seq; /* within its QP, from 1 */
	uint64_t total; /* bytes */
	uint64_t due; /* when the shared wire has moved them */
	uint64_t left; /* bytes of a READ that have not landed */
	bool has_landed; /* all bytes of a READ */
	int error; /* of its flush */
};

enum qp_state { QP_NEW, QP_READY, QP_FAILED };

struct fabric_qp {
	struct list link;
	struct fabric *fabric;
	void *owner;
	enum qp_state state;
	struct fabric_addr self, peer;
	uint32_t sends; /* slots of its send queue */
	uint32_t used, silent; /* in use; of them, of unsignalled requests that completed */
	uint32_t reads_max, n_reads;
	uint64_t n_posted;
	struct list works; /* outstanding, in order */
	struct flow *flow; /* what it sends; NULL before qp_connect() */
	struct receive *rx; /* of the message that arrives */
	uint32_t lands; /* pieces of WRITEs that still land after it failed */
	struct sim_event *flush;
};

/* sim_fabric.c */
struct region *card_find_local(struct fabric *f, uint32_t lkey, const void *p, uint64_t len,
			       unsigned rights);
struct region *card_find_remote(struct fabric *f, uint32_t rkey, uint64_t at, uint64_t len,
				unsigned rights);
struct sim_card *card_of_gid(struct sim *s, const uint8_t gid[16]);
bool card_passes(const struct sim_card *from, const struct sim_card *to);
void card_refused(struct sim_card *c, uint32_t key);
/* Stops a QP. The work request `seq` (0: none) completes with `error`, all others are flushed. */
void qp_stop(struct fabric_qp *q, uint64_t seq, int error);
/* Completes work requests in order, up to `seq`, and ends before a READ that has not landed. */
void qp_ack(struct fabric_qp *q, uint64_t seq);
struct work *qp_find_work(struct fabric_qp *q, uint64_t seq);
struct work *qp_oldest(struct fabric_qp *q); /* or NULL */
struct receive *card_take_receive(struct fabric *f); /* or NULL */
/* Completes a receive and frees it. */
void qp_received(struct fabric_qp *q, struct receive *r, struct fabric_completion c);

/* sim_wire.c: a flow belongs to the QP that sends. After flow_stop() it reads no memory of the
 * sender any more, but copies of what was on its way still arrive. */
struct flow *flow_new(struct fabric_qp *q);
void flow_add(struct flow *f, struct work *w); /* the work request follows all earlier ones */
void flow_run(struct flow *f); /* after flow_add() */
void flow_stop(struct flow *f);
void flow_leave(struct flow *f); /* the QP is gone: also stops */
void flow_fini(struct sim *s); /* frees all */

#endif
