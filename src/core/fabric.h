/* Fabric: what a network card with RDMA can do, as one table. Providers: verbs, and the simulated
 * card of the tests. Users rely only on what the capabilities promise.
 *
 * A queue pair (QP) is reliable and connected; addresses travel over another connection. Receives
 * come from one shared queue of the device. Work requests of a QP execute in order, so when one
 * with is_signalled completes, all before it have.
 *
 * Threads: everything belongs to the thread of the loop. Buffers are lent until their completion,
 * or until qp_drop() has returned. Errors: -errno. */
#ifndef SHEAF_FABRIC_H
#define SHEAF_FABRIC_H

#include "core/core.h"

struct fabric; /* an open device and port */
struct fabric_qp;

#define FABRIC_SGES 32 /* most pieces of a work request */

/* What to open; the defaults of [rdma] in the cluster file are chosen by the provider. */
struct fabric_want {
	char device[64]; /* "": the first one with an active port */
	uint32_t port; /* 0: the first active one */
	int gid_index; /* -1: the best one: RoCE v2 with an IPv4 address, then IPv6 */
	uint8_t traffic_class, service_level;
	uint32_t pkey; /* 0: the default key of the port */
};

struct fabric_caps {
	char name[96]; /* for people: device, port, medium */
	uint32_t sge_max; /* pieces of local memory in a work request; at most FABRIC_SGES */
	uint32_t send_depth; /* most work requests that a QP may have outstanding */
	uint32_t receive_depth; /* most receives posted on the device */
	uint32_t read_depth; /* RDMA READs in progress of a QP, at each end */
	uint64_t message_max; /* bytes of a work request */
	bool is_ordered; /* when a SEND has arrived, so have all WRITEs of its QP before it */
	bool is_link_local; /* needs LIDs: InfiniBand */
};

/* Where a QP can be reached: sent to the other end. */
struct fabric_addr {
	uint8_t gid[16];
	uint32_t lid, qpn, psn, mtu; /* mtu in bytes */
	uint32_t read_depth; /* READs that this end serves at once */
};

/* Rights to registered memory beside local reads. */
enum { FABRIC_LOCAL_WRITE = 1, FABRIC_REMOTE_READ = 2, FABRIC_REMOTE_WRITE = 4 };

struct fabric_mem {
	uint32_t lkey, rkey;
	void *impl;
};

struct fabric_sge {
	void *addr;
	uint32_t len, lkey;
};

enum fabric_op { FABRIC_SEND, FABRIC_WRITE, FABRIC_WRITE_IMM, FABRIC_READ };

struct fabric_wr {
	enum fabric_op op;
	bool is_signalled; /* has a completion of its own; others have one only if they fail */
	uint64_t id;
	const struct fabric_sge *sge; /* lent during the call; what it points to, longer */
	uint32_t n_sge;
	uint64_t remote; /* address at the peer; not for SEND */
	uint32_t rkey, imm;
};

struct fabric_receive {
	uint64_t id;
	void *addr;
	uint32_t len, lkey;
};

enum fabric_event { FABRIC_SENT, FABRIC_RECEIVED, FABRIC_RECEIVED_IMM };

/* error: -ECANCELED: flushed, the QP had failed before. -EACCES: the peer refused the key, or this
 * end the local one. -ETIMEDOUT: the peer does not answer. -ECONNABORTED: any other failure. After
 * an error the QP executes nothing any more, and everything outstanding is flushed. */
struct fabric_completion {
	enum fabric_event event;
	int error;
	uint64_t id; /* of the work request or receive */
	void *owner; /* of the QP; NULL: a QP that was dropped meanwhile */
	uint32_t len, imm; /* of a receive */
};

struct fabric_ops {
	/* Opens a device. ready() is called from the loop when there may be completions. Fails with
	 * the reason in `why`, for people. May block for some ms. */
	int (*open)(struct env *e, struct loop *l, const struct fabric_want *want,
		    void (*ready)(void *arg), void *arg, struct fabric **out, char *why,
		    size_t why_len);
	void (*close)(struct fabric *f); /* all QPs were dropped and all memory unregistered */
	const struct fabric_caps *(*caps)(const struct fabric *f);
	/* NULL, or why the device cannot be used now: port down, removed, its address is gone. */
	const char *(*trouble)(struct fabric *f);
	bool (*is_dead)(const struct fabric *f); /* it has failed for good: nothing completes */
	/* Makes memory reachable. -EFAULT: not mapped, or the rights are missing; -ENOMEM: a limit.
	 * mem_drop: the peer can no longer access it afterwards. */
	int (*mem_make)(struct fabric *f, void *addr, size_t len, unsigned rights,
			struct fabric_mem *out);
	void (*mem_drop)(struct fabric *f, struct fabric_mem *m);
	/* A QP, not connected yet. `sends`: most work requests outstanding. */
	int (*qp_make)(struct fabric *f, uint32_t sends, void *owner, struct fabric_qp **out,
		       struct fabric_addr *ours);
	/* Afterwards it can receive and send. The peer must do the same before it can receive. */
	int (*qp_connect)(struct fabric_qp *q, const struct fabric_addr *peer);
	/* Posts a chain with one doorbell. An error: nothing of it is posted, the QP has failed. */
	int (*post)(struct fabric_qp *q, const struct fabric_wr *wr, size_t n);
	/* Stops the QP: what is outstanding is flushed, with completions. */
	void (*qp_abort)(struct fabric_qp *q);
	/* Frees it. Nothing can reach memory through it afterwards; no further completions. */
	void (*qp_drop)(struct fabric_qp *q);
	/* Posts receives on the shared queue. */
	int (*receive)(struct fabric *f, const struct fabric_receive *r, size_t n);
	/* Takes completions; fewer than max: there were no more. */
	size_t (*poll)(struct fabric *f, struct fabric_completion *out, size_t max);
	/* Asks for ready() at the next completion. True: poll again first, there may be some. */
	bool (*arm)(struct fabric *f);
};

#endif
