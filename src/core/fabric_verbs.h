/* Private to core: the table of RDMA over libibverbs. fabric_verbs_open.c loads the library, opens
 * a device and watches it; fabric_verbs.c has memory, queue pairs, work requests and completions.
 *
 * Threads: as core/fabric.h. */
#ifndef SHEAF_FABRIC_VERBS_H
#define SHEAF_FABRIC_VERBS_H

#include <infiniband/verbs.h>

#include "core/fabric.h"

#define VERBS_CHAIN 256 /* most work requests of one doorbell */
#define VERBS_BATCH 32 /* completions taken by one call */

/* The functions of libibverbs that are not inline in its header. They are looked up at run time: a
 * host without RDMA needs no libibverbs. */
struct verbs_api {
	struct ibv_device **(*get_device_list)(int *n);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *ctx);
	int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *out);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *out);
	int (*query_gid)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *out);
	int (*query_pkey)(struct ibv_context *ctx, uint8_t port, int index, uint16_t *out);
	ssize_t (*query_gid_table)(struct ibv_context *ctx, struct ibv_gid_entry *out, size_t n,
				   uint32_t flags, size_t entry_size);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_channel)(struct ibv_context *ctx);
	int (*destroy_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int n, void *arg,
				    struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **arg);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned n);
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
	int (*destroy_srq)(struct ibv_srq *srq);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
	int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *out);
	void (*ack_async_event)(struct ibv_async_event *event);
	int (*fork_init)(void);
};

/* All CQs share one completion channel. One has the completions of receives. Those of sends have
 * as many as the QPs need: every QP reserves an entry for each send, so that none overflows. */
struct verbs_cq {
	struct list link; /* in send_cqs */
	struct ibv_cq *cq;
	uint32_t entries, reserved;
	bool is_armed; /* has not reported an event since arm() */
};

/* A completion that was taken from its CQ and not yet reported. */
struct verbs_taken {
	struct fabric_completion c;
	struct fabric_qp *qp; /* NULL: dropped */
	uint64_t sequence; /* of a send */
};

struct fabric_qp {
	struct hnode node; /* its hash is the number of the QP */
	bool is_listed; /* in fabric->qps */
	struct fabric *fabric;
	struct ibv_qp *qp;
	struct verbs_cq *cq;
	void *owner;
	uint32_t sends, psn;
	bool has_failed;
	/* The numbers of the next work request to post, and of the first that was not reported as
	 * executed. wr_id is this number; the caller's id is in ids[number % sends]. */
	uint64_t posted, done;
	uint64_t hidden; /* post() failed from this one on: they have no completions */
	uint64_t ids[];
};

struct fabric {
	const struct verbs_api *api;
	struct env *env;
	struct loop *loop;
	void (*ready)(void *arg);
	void *arg;
	struct fabric_caps caps;

	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	char device[64];
	uint8_t port, traffic_class, service_level;
	uint16_t lid, pkey_index;
	int gid_index;
	union ibv_gid gid;
	enum ibv_mtu mtu;
	bool needs_gid; /* RoCE, or a subnet whose packets always have a global header */

	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct verbs_cq receive_cq;
	struct list send_cqs;
	struct htab qps;
	uint32_t n_receives; /* posted, and not reported */

	/* Taken completions, oldest first: [taken_first, taken_end). There is room for all that can
	 * be outstanding. */
	struct verbs_taken *taken;
	size_t taken_first, taken_end, taken_room;
	uint64_t n_sends; /* that all QPs may have outstanding */

	struct source channel_source, async_source;
	bool is_dead; /* no event makes the device usable again */
	char trouble[256]; /* "": none */

	struct ibv_send_wr send_wrs[VERBS_CHAIN];
	struct ibv_recv_wr receive_wrs[VERBS_CHAIN];
};

/* ---- fabric_verbs_open.c ---- */

int verbs_open(struct env *e, struct loop *l, const struct fabric_want *want,
	       void (*ready)(void *arg), void *arg, struct fabric **out, char *why, size_t why_len);
void verbs_close(struct fabric *f);
/* The device cannot be used any more. Keeps the first reason. */
void verbs_die(struct fabric *f, const char *reason);

/* ---- fabric_verbs.c ---- */

/* NULL, with errno. */
struct ibv_qp *verbs_qp_create(struct fabric *f, struct ibv_cq *sent, uint32_t sends);
int verbs_cq_init(struct fabric *f, struct verbs_cq *c, uint32_t entries); /* 0 or -errno */
void verbs_cq_fini(struct fabric *f, struct verbs_cq *c);
/* Makes room for `n` taken completions. 0 or -ENOMEM. */
int verbs_taken_reserve(struct fabric *f, uint64_t n);

#endif
