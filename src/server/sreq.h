/* A request in service: its operation, its user, the memory and limits that it uses. Private to
 * src/server. */
#ifndef SHEAF_SERVER_SREQ_H
#define SHEAF_SERVER_SREQ_H

#include "server/srv.h"

struct split;

/* How one operation is executed: by a handler that answers at once, by a prepare/finish pair around
 * one metadata record, or by a step function of its own. */
struct op_row {
	const struct wire_op_row *wire;
	uint16_t state_size; /* of sreq->op */
	int (*handle)(struct sreq *s);
	/* Fills s->change.rec; or returns CHANGES_NOTHING after it has filled s->res. */
	int (*prepare)(struct sreq *s);
	int (*finish)(struct sreq *s); /* called if s->change.res.status is 0 */
	int (*split)(struct sreq *s,
		     struct split *x); /* splits the change into parts for several servers */
	const struct req_ops *ops;
};
#define CHANGES_NOTHING 1
extern const struct op_row op_rows[N_OPS];
const struct op_row *op_row(uint32_t op); /* NULL: there is no such operation */

/* The functions that proto/ops.def names. */
#define HANDLE(h) int h(struct sreq *s)
#define CHANGE(p, f) int p(struct sreq *s), f(struct sreq *s)
#define NAMES(p, f, sp) \
	int p(struct sreq *s), f(struct sreq *s), sp(struct sreq *s, struct split *x)
#define STEPS(o, state) extern const struct req_ops o
#define OP(number, NAME, name, args, res, flags, how) how;
#include "proto/ops.def"
#undef HANDLE
#undef CHANGE
#undef NAMES
#undef STEPS
#undef OP

/* A request in service. */
struct sreq {
	struct req q;
	struct server *srv;
	struct list node; /* in srv->spare_reqs, or in srv->parked */
	struct link *link;
	struct session *session; /* NULL for OPF_NO_SESSION */
	const struct op_row *row;
	struct wire_req_head head;
	struct cred cred;
	bool has_cred; /* the key of its link allows cred */
	struct msg *in;
	uint64_t tag;
	uint64_t verifier; /* the disk's, when the request arrived */
	uint8_t digest[DIGEST_BYTES]; /* of the request, made when it is needed */
	bool has_digest;
	struct arena arena;
	uint64_t charged; /* bytes charged to the link */
	size_t arena_bytes; /* part of charged: the largest size of the arena so far */
	bool no_room; /* a charge was refused: the client is told to retry */
	struct usage *reserved_by; /* holds the reserved unit, or NULL */
	enum limit reserved; /* the limit of this unit */
	bool cancelled;
	uint64_t deadline; /* then the client has given up; 0: none */
	uint64_t ino; /* the inode that it accesses, also for REQUESTS and the log */
	void *args, *res, *op; /* in the arena */
	struct change change;
	struct wire_referral referral; /* set when the error is -EREMOTE */
	struct lease *leases[2]; /* buckets of the names that it changes */
};

/* ---- dispatch.c ---- */
void srv_request(void *owner, struct link *l, uint64_t tag, struct msg *m);
void srv_cancel(void *owner, struct link *l, uint64_t tag);
void srv_session_down(struct session *ss); /* detaches it; requests that wait for others end */
void srv_link_down(void *owner, struct link *l);
/* The last state of every step function: replies with q->error or the result, frees s, returns
 * false. On -EINPROGRESS it parks the request instead, to begin again when the change that it met
 * is over. */
bool sreq_reply(struct sreq *s);
/* The two halves, for a request that is in service until its data have left. */
void sreq_answer(struct sreq *s);
bool sreq_end(struct sreq *s);
/* Fills in a record with the caller's credential, slot and time. */
void sreq_record(struct sreq *s, uint32_t kind);
/* The stored answer of an earlier execution, in s->change.res: 0, -ENOENT (there is none), or
 * -errno. An answer that belongs to another request is refused (-EBADMSG) and counted. */
int sreq_replay(struct sreq *s);
int sreq_decode(struct sreq *s); /* decodes its message: 0, -EPROTO or -ENOMEM */
bool is_sreq(const struct req *q); /* else a task, a window or a fetch */
static inline struct sreq *sreq_of(struct req *q)
{
	return container_of(q, struct sreq, q);
}
/* Step functions of HANDLE, CHANGE and NAMES. */
extern const struct req_ops handle_ops, change_ops, pair_ops;
void spare_requests_free(struct server *srv);
void sreq_abandon(struct sreq *s); /* frees it, as a crash would */

/* ---- identity.c: the user that a request acts for ---- */
/* 0, or -EPERM: the key of the link does not allow this user. Root of untrusted networks becomes
 * nobody, in s->head and s->cred. */
int sreq_identify(struct sreq *s);
/* May requests of this link act as root? Then permissions protect nothing from it. */
bool sreq_may_be_root(const struct sreq *s);
/* The proof of a session: a HMAC of the client's secret and its key. */
void session_mac(const struct sreq *s, const uint8_t secret[16], uint8_t out[16]);

/* ---- tallies.c: counts by client, user and job ---- */
void sreq_count(const struct sreq *s); /* it is answered */
void sreq_count_read(const struct sreq *s, uint64_t bytes); /* also for the server */
void sreq_count_written(const struct sreq *s, uint64_t bytes);

/* ---- room.c: limits ---- */
/* Takes n units: 0, or the error for the client. A refusal is counted and logged. */
int sreq_take(struct sreq *s, struct usage *h, enum limit what, uint64_t n);
/* Takes one unit, reserved until sreq_use(), sreq_unreserve() or the reply. A request has at most
 * one. */
int sreq_reserve(struct sreq *s, struct usage *h, enum limit what);
int sreq_use(struct sreq *s, struct usage *h, enum limit what); /* the reserved one, or takes one */
void sreq_unreserve(struct sreq *s); /* no-op without a reservation */
/* The account that pays for the memory of this request: of its session, or of its link while it has
 * none. */
struct usage *sreq_payer(const struct sreq *s);
/* Charges memory of the request. False: sreq_reply() will tell the client to retry. */
bool sreq_charge(struct sreq *s, uint64_t bytes);
bool sreq_charge_spare(struct sreq *s, uint64_t bytes); /* optional memory */
bool sreq_may_grow(struct arena *a, size_t bytes); /* callback of sreq.arena */
void sreq_release(struct sreq *s); /* gives back its reservation and its charges */

/* ---- op_open.c ---- */
/* Of a new file; unit and width 0: the defaults of the map. 0 or -errno. */
int layout_choose(struct sreq *s, uint64_t ino, uint32_t unit, uint32_t width,
		  struct wire_layout_rec *l);

/* ---- op_names.c ---- */
/* Fills s->referral on -EREMOTE. leaf NULL: *at is the last component itself. */
int walk_place(struct sreq *s, const struct wire_place *p, struct meta_leaf *leaf,
	       struct wire_handle *at);
int may_access(struct sreq *s, const struct meta_node *n, int what);
/* The mtime of a writer's report; 0: it has none, or none newer than an mtime set by SETATTR. */
int64_t reported_mtime(const struct inode *i, const struct wire_wrote *w);
/* The file has no name left: starts its removal, or leaves that to the last close. */
void file_removed(struct server *srv, const struct wire_handle *h);

#endif
