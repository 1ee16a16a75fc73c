/* The client side of one session: a peer dials, resumes the session, sends calls and retransmits
 * them. Servers use peers, too, to call each other. */
#ifndef SHEAF_PEER_H
#define SHEAF_PEER_H

#include "net/bulk.h"
#include "net/msg.h"
#include "net/net.h"
#include "net/route.h"

struct peer;

/* One remote procedure call. The caller owns the memory and lends it, with args and what they point
 * to, until q continues. The reply's references point into `in`, which call_fini() frees. */
struct call {
	struct list link;
	struct peer *peer;
	struct req *q;
	uint32_t op;
	bool once; /* never executed again after an unknown outcome, which is an error */
	const struct cred_wire *cred;
	void *args, *res; /* the structs of the operation's row in proto/ops.def */
	struct arena *arena; /* for arrays in the result */
	struct view *mem; /* user memory for bulk, or NULL */
	int mem_access;
	enum net_method method; /* for mem */
	/* The reply says that all bytes of mem were written. Without this function, bytes that were
	 * not written keep their values; with it, such a reply may end the call with -ENODATA. */
	bool (*is_whole)(const struct call *c);
	struct wire_mem_desc *mem_wire; /* where its descriptor goes in args */
	uint64_t trace;
	uint64_t deadline; /* loop time */
	bool is_deferred; /* leaves with the next call, or after DEFER_NS */
	bool front; /* for claims: goes before all other calls, which wait for its reply */
	int status; /* of the reply: 0 or -errno, also passed to q */
	struct wire_rep_head head;
	struct wire_referral referral; /* if status is -EREMOTE */
	struct msg *in;
	uint64_t verifier; /* of the server that answered */
	/* private to calls.c */
	struct net_desc desc;
	uint32_t slot, sequence;
	uint32_t map_version; /* sent with the request */
	uint64_t queued_at; /* loop time of peer_call() */
	uint64_t sent_at;
	bool sent;
	bool is_cancelled; /* ends with `status` when the peer confirms */
	bool is_retracting; /* its memory is being withdrawn */
	bool sends_again; /* after that, the call is sent again */
	uint64_t counted_bytes; /* bytes of mem counted in peer->outstanding */
	struct timer timer;
};

struct cred_wire {
	uint32_t uid, gid, n_gids;
	uint32_t gids[32];
	bool has_call_id;
	uint8_t call_id[CALL_ID_BYTES]; /* of a gateway's client; the operation is added to it */
};

struct peer_slot {
	struct call *call; /* NULL and busy: the call was cancelled, its reply is still due */
	uint32_t sequence;
	bool busy;
};

enum peer_state { PEER_IDLE, PEER_DIALLING, PEER_SESSION, PEER_UP, PEER_WAITING, PEER_HALTED };

struct peer {
	struct net *net;
	uint32_t target;
	uint32_t role;
	char address[CONF_ADDR_MAX];
	enum peer_state state;
	struct link *link;
	struct peer *through; /* the peer whose link this one uses; NULL: it has its own */
	struct list users; /* the peers that use its link */
	struct list in_users;
	struct htab by_channel; /* the users */
	struct hnode on_channel;
	uint32_t channel; /* on the link */
	uint32_t last_channel; /* that a user got */
	struct routes routes;
	struct peer_slot slots[SESSION_SLOTS];
	uint32_t n_slots; /* granted by the server */
	struct list queue; /* calls without a slot, in order */
	struct list bulk; /* calls with memory that wait until fewer bytes are outstanding */
	uint64_t outstanding; /* bytes of memory exposed by calls with a slot */
	uint32_t load; /* clients that share the server, as in its last reply */
	uint32_t n_front; /* number of calls with `front`: all others wait for them */
	uint64_t session; /* 0: none */
	uint8_t secret[16];
	const char *host; /* names the client to servers; NULL: the net's */
	const char *job; /* that its sessions belong to; NULL: none */
	const uint8_t *name; /* SESSION_NAME bytes, of its sessions; or NULL */
	uint64_t inherits_until; /* loop time; a session made before gets the locks of older ones */
	uint32_t inherited; /* locks that it got */
	bool was_lost; /* the server does not know its first session any more */
	uint64_t boot; /* of the server, from its last reply to OP_SESSION */
	uint64_t verifier;
	uint64_t incarnation; /* of the server's storage, as last told; 0: not known */
	uint32_t lease_ms;
	uint32_t map_version; /* the newest map version that the server has told */
	uint32_t eager_bytes; /* credit: how much data a request may carry inline */
	uint64_t last_traffic;
	uint64_t renewed; /* when the last answered call was sent: the lease is at least as young */
	uint32_t backoff_ms;
	struct timer timer; /* redials, or renews the lease */
	struct timer defer_timer; /* flushes deferred calls */
	struct timer retry_timer; /* retransmits calls that the server had no room for */
	uint32_t retry_ms;
	struct call session_call; /* establishes the session; has no slot */
	uint32_t n_session_calls;
	struct req session_req;
	struct wire_session_args session_args;
	struct wire_session_res session_res;
	struct arena arena;
	struct call ping;
	struct req ping_req;
	bool ping_busy, session_busy; /* their requests are on the loop */
	struct wire_void_args ping_args;
	struct wire_void_res ping_res;
	int last_error; /* why the peer is not up */
	int failed; /* the last error of its disk or space that it answered with, or 0 */
	uint64_t failed_time; /* loop time of that */
	uint32_t failed_at; /* enum link_state: how far the last link came that failed */
	char refusal[128]; /* the server's words for last_error, or "" */
	bool keep_alive; /* renew the lease when idle */
	bool unclaimed; /* claims ended without an answer: the owner has to claim again */
	void *owner;
	/* The server restarted, or the session was lost: the client must claim its opens and locks
	 * again. Called when the session exists, before queued calls are sent. */
	void (*on_restart)(struct peer *p, bool session_lost);
	/* The session is up over a new link, with this answer; the link is gone. Or NULL. */
	void (*on_session_up)(struct peer *p, const struct wire_session_res *r);
	void (*on_link_down)(struct peer *p);
	/* The server has a newer map. Calls made here with `front` go before all others.
	 * May be NULL. */
	void (*on_map_change)(struct peer *p);
	void (*on_incarnation)(struct peer *p); /* a link is up and `incarnation` is set */
	char rdma_why[RDMA_WHY_MAX]; /* why its link does not use RDMA, or "" */
	uint64_t rdma_retry_at; /* loop time; links before it do not ask for RDMA */
	uint64_t rdma_pause; /* the last one after the server could not reach this end's card */
	uint64_t parts_until; /* loop time; long requests before it travel in parts */
	uint64_t n_sent, n_resent; /* calls sent and retransmitted */
	uint64_t round; /* ns: the fastest reply to a call without memory; 0: none yet */
	double byte_ns; /* per byte, of the fastest call with much data; 0: none yet */
	uint64_t bytes_before; /* bytes of data in `account` when the last such call ended */
	uint64_t answered_at; /* when the last reply came */
	struct net_account account;
};

void peer_init(struct peer *p, struct net *n, uint32_t role, uint32_t target, const char *address);
/* Before its first call: it sends its calls over the link of `owner`, a peer of the same server
 * that ends after it. 0, or -errno: it dials its own. */
int peer_use_link(struct peer *p, struct peer *owner);
/* Sends nothing: closes the link and ends queued calls with -ESHUTDOWN. */
void peer_fini(struct peer *p);
/* The costs of its link: those of the medium, and its own round trip and rate. */
struct net_costs peer_costs(const struct peer *p);
bool peer_is_local(const struct peer *p); /* its link uses the Unix socket */
const char *peer_medium(const struct peer *p); /* the name of its route; NULL: no link */
void peer_call(struct peer *p, struct call *c, struct req *q);
/* Ends all calls with -ESHUTDOWN, later ones too, and closes the link, unless others use it. The
 * session stays as it is, for peer_resume() or for another process. */
void peer_halt(struct peer *p);
/* Notes an error for sheaf_failed_server(): the disk or the space of this server is the cause. */
void peer_note_failure(struct peer *p, int error);
void peer_connect(struct peer *p); /* makes its session at once, not with the first call */
/* Resumes the session at once, not with the next call; also one taken over from another process. */
void peer_resume(struct peer *p);
/* How many bytes may be outstanding at once: fewer if many clients share the server. A call with
 * more goes alone. */
uint64_t peer_outstanding_max(const struct peer *p);
/* True: a call was cancelled over this link and its reply is still due. */
bool peer_awaits_cancelled(const struct peer *p);
/* Asks the server to answer soon, with whatever result. */
void peer_cancel_remote(struct call *c);
/* Ends a call early: q continues with `error` once its memory is safe. */
void peer_cancel(struct call *c, int error);
void call_fini(struct call *c);

#endif
