/* net: links (connections), their bulk transfers, sessions and slots; client and server side.
 *
 *   link     a connection that both ends have authenticated. When a link breaks, its transfers end
 *            with an error and their buffers are free; sessions and requests are not affected.
 *   session  the state of one client at one server: slots, and what the server's operations attach
 *            to it. A session lives until its lease ends and is resumed over a new link.
 *   peer     the client side of one session: dials, resumes, sends calls and retransmits them.
 *
 * The bulk primitive is "move these local buffers to or from that stream of the peer's memory". A
 * client exposes a view of the user's memory for one request; the server puts into it and gets from
 * it by stream position; only the backend knows how. The interface also fits media that are not
 * written yet: shared memory packs pieces; RDMA registers the view's pieces, sends their keys in
 * the descriptor, and posts all RMAs of a put or get as one batch with one completion (SEAMUR). The
 * caller's step machine orders the reply after that batch. Nothing above this header has to change
 * for them.
 *
 * Everything runs on the loop of the struct net. */
#ifndef SHEAF_NET_H
#define SHEAF_NET_H

#include "core/core.h"
#include "layout/layout.h"
#include "net/limits.h"
#include "xdr/xdr.h"

struct net;
struct link;
struct session;
struct peer;
struct call;

/* ---------------------------------------------------------------- messages */

/* One message, with space for its frame head in front; from a bounded free list of the net. */
struct msg {
	struct list link;
	struct net *net;
	uint32_t len, cap; /* bytes of the body */
	uint32_t sent; /* bytes of head and body sent so far */
	uint8_t head[FRAME_HEAD];
	uint8_t body[];
};
struct msg *msg_new(struct net *n, uint32_t cap); /* NULL: out of memory */
void msg_free(struct msg *m); /* accepts NULL */
/* Encodes one or two values into a message. NULL: too long, or out of memory. */
struct msg *msg_encode(struct net *n, xdr_any f1, void *v1, xdr_any f2, void *v2);

/* ---------------------------------------------------------------- movers */

/* How the bytes of a transfer move between the pieces of a client's memory and the stream. */
enum net_mover { MOVER_AUTO, MOVER_INLINE, MOVER_PACK, MOVER_GATHER, N_MOVERS };
const char *net_mover_name(enum net_mover how); /* "pack" */
int net_mover_parse(const char *name, enum net_mover *how); /* -EINVAL */

/* Nanoseconds: of a system call, a byte through a socket, a copied byte, a segment. */
struct net_costs {
	double call, byte, copy, gather, scatter, pack, unpack;
};
void net_costs_usual(struct net_costs *c);
void net_costs_measure(struct net_costs *c); /* once per process: takes half a millisecond */
/* The cheapest mover, if a message has room for inline_room bytes of data. */
enum net_mover net_choose(const struct net_costs *c, bool write, uint64_t segments, uint64_t bytes,
			  uint64_t inline_room);
/* What the transfer costs the client besides the round trip of its request. */
double net_cost(const struct net_costs *c, enum net_mover how, bool write, uint64_t segments,
		uint64_t bytes);

/* Counters of one client at one server, since the client started. */
struct net_account {
	uint64_t frames; /* messages and bulk frames, both directions */
	uint64_t sent; /* bytes of sent messages, without bulk */
	uint64_t calls; /* system calls on sockets */
	uint64_t bytes[N_MOVERS]; /* bytes of data, by mover */
	uint64_t copied; /* bytes of data copied in user space; a byte copied twice counts twice */
	uint64_t busy; /* ns with calls in flight, if the server answers in order */
};

/* ---------------------------------------------------------------- net */

enum { BACKEND_TCP = 1, BACKEND_LOOP = 2, BACKEND_SHM = 4, BACKEND_OFI = 8 };
#define MAC_BYTES 32
#define NET_SCRATCH (64 * KIB)
#define LINK_HOST_MAX 65

/* The identity of this process and its keys. A server has all keys, a client only its own. */
struct net_identity {
	struct uuid fs;
	uint32_t target; /* server only */
	uint64_t verifier; /* server only */
	uint64_t incarnation; /* server only: of its storage */
	uint32_t lease_ms, timeout_ms, map_version;
	uint8_t client_key[KEY_BYTES], server_key[KEY_BYTES];
	bool has_server_key;
	char key_name[CONF_NAME_MAX]; /* client only: the name of its key; "": the default key */
	const struct conf *doors; /* server only: its named keys, borrowed; or NULL */
	char host[LINK_HOST_MAX];
};

/* Callbacks of a server for accepted links. Each of them may close the link. */
struct net_server_ops {
	void (*request)(void *owner, struct link *l, uint64_t tag, struct msg *m); /* takes m */
	void (*cancel)(void *owner, struct link *l, uint64_t tag);
	void (*down)(void *owner, struct link *l); /* the link's transfers have ended */
};

/* Why a link or a request was refused, for counters and the log. */
enum refusal {
	REFUSED_PROTOCOL, /* the peer broke the protocol */
	REFUSED_CLUSTER, /* another file system, target or version */
	REFUSED_KEY, /* no such key, or a wrong proof; also a replayed proof */
	REFUSED_HANDSHAKE, /* no proof in time, or displaced as the oldest of too many */
	REFUSED_STALLED, /* bytes are due in either direction and do not move */
	REFUSED_REVOKED, /* the key was revoked, or its role changed */
	REFUSED_SESSION, /* a session of another client */
	REFUSED_CREDENTIAL, /* a user that the key may not act for */
	REFUSED_SERVERS_ONLY, /* an operation that only servers may request */
	REFUSED_FORGED, /* a capability that was never issued to a client with this key */
	REFUSED_STALE, /* a capability that has expired or was fenced */
	REFUSED_RIGHTS, /* a capability for another object or access */
	REFUSED_REPLAY, /* a sequence number that a different request has used */
	REFUSED_LIMIT, /* a limit of limits.h, or too many unread replies */
	N_REFUSALS
};
const char *refusal_name(enum refusal why); /* "key" */
struct told {
	uint64_t since;
	uint32_t said, left_out; /* lines logged and suppressed in this period */
};

/* Where net_loop finds the other end: one per process with embedded targets, or per simulation. */
struct loop_hub {
	struct list acceptors;
	/* Nanoseconds until a parcel arrives; 0 if NULL. UINT64_MAX: the link breaks instead. */
	uint64_t (*delay)(struct loop_hub *h, struct net *from, struct net *to, size_t bytes);
};

struct net {
	struct loop *loop;
	struct loop_hub *hub; /* NULL: no "loop:" addresses */
	uint8_t *scratch; /* NET_SCRATCH bytes: for dropped bytes, and for bytes to be unpacked */
	struct net_costs costs;
	struct net_account account; /* accepted links */
	struct limits limits; /* for accepted links and sessions */
	struct net_identity id;
	const struct net_server_ops *server;
	void *owner;
	struct list links,
		strangers; /* strangers: accepted links without a proof yet, oldest first */
	uint32_t n_links, n_unproven, n_dialling;
	uint64_t source_seed; /* seed of the hash of unproven links' addresses; 0: not chosen yet */
	const struct link *asker; /* last link without bulk that had work; only compared */
	uint64_t asked_at;
	uint64_t mover_turn; /* turn of the loop in which accepted links last moved bulk */
	uint32_t movers,
		movers_before; /* number of such links in that turn, and in the one before */
	size_t queued; /* bytes of queued messages, over all links */
	struct list spare_msgs, spare_xfers;
	uint32_t n_spare_msgs;
	struct list acceptors;
	uint64_t bad_links; /* links refused or closed because of what they sent */
	uint64_t refused[N_REFUSALS];
	struct told told[N_REFUSALS]; /* by reason */
};

void net_init(struct net *n, struct loop *l, const struct net_identity *id);
void net_fini(struct net *n); /* closes links and acceptors */
uint8_t *net_scratch(struct net *n); /* allocates n->scratch; NULL: out of memory */
/* Listens at "HOST:PORT", or "loop:NAME" in this process. `err` says what is wrong. */
int net_listen(struct net *n, const char *address, char *err, size_t err_len);
/* Listens at the Unix socket for clients of this host that dial `address`. 0 also if this
 * environment has no Unix sockets; -EOPNOTSUPP: they are switched off. */
int net_listen_local(struct net *n, const char *address);
void net_stop_listening(struct net *n);

/* HMAC-SHA-256 over the parts; a part with p == NULL ends the list. */
struct mac_part {
	const void *p;
	size_t n;
};
void mac_make(uint8_t out[MAC_BYTES], const uint8_t key[KEY_BYTES], const struct mac_part *parts);
/* For a key that is used often: six times as fast. One thread at a time. NULL: out of memory. */
struct evp_mac_ctx_st *mac_key(const uint8_t key[KEY_BYTES]);
void mac_key_free(struct evp_mac_ctx_st *k);
void mac_make_with(uint8_t out[MAC_BYTES], struct evp_mac_ctx_st *k, const struct mac_part *parts);
bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES]); /* in constant time */

/* ---------------------------------------------------------------- links */

/* Local memory that the peer may access for one request. Embedded in the call. */
struct net_desc {
	struct list link;
	uint64_t tag; /* 0: not exposed */
	struct view *view;
	int access; /* CAP_READ: the peer reads it; CAP_WRITE: the peer writes into it */
	enum net_mover mover; /* the caller's choice */
	bool packs; /* the next pieces will probably be packed: a look at a few of them is enough */
	bool bad; /* a part of this memory is not mapped */
	uint64_t moved; /* when its bytes last moved or were pulled */
	struct wire_bytes keys; /* of the backend; sent in the request */
};

/* A preferred destination for the first bytes of a get: they go there instead of to the buffers
 * while may() returns true. may() is called before each such read. A backend may ignore this. */
struct net_direct {
	bool (*may)(struct net_direct *d);
	const struct iovec *iov;
	size_t n;
	uint64_t len; /* of iov and of the transfer: no more bytes than these go there */
	uint64_t done; /* bytes stored there, the rest is in the buffers; -EFAULT also ends it */
};

struct net_ops {
	const char *name;
	void (*send)(struct link *l, struct msg *m); /* the head is encoded; takes m */
	int (*expose)(struct link *l, struct net_desc *d);
	void (*retract)(struct link *l, struct net_desc *d, struct req *q);
	void (*put)(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		    const struct iovec *src, size_t n, struct req *q);
	/* NULL: not supported by this backend */
	void (*put_file)(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
			 const struct extent *ext, const struct iovec *mapped, size_t n,
			 struct req *q);
	void (*get)(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		    const struct iovec *dst, size_t n, struct net_direct *direct, struct req *q);
	void (*shut)(struct link *l, int error); /* ends all transfers */
	void (*destroy)(struct link *l);
};

enum link_state {
	LINK_CONNECTING,
	LINK_WAIT_CHALLENGE,
	LINK_WAIT_WELCOME, /* last state of the dialling side */
	LINK_WAIT_HELLO,
	LINK_WAIT_RESPONSE, /* last state of the accepting side */
	LINK_UP,
	LINK_CLOSED
};

struct link {
	const struct net_ops *ops;
	struct net *net;
	struct list in_net;
	enum link_state state;
	uint32_t refs;
	bool dialled;
	uint32_t role; /* LINK_CLIENT or LINK_SERVER, as the dialler proved */
	char key[CONF_NAME_MAX]; /* name of the key of the proof */
	uint8_t secret[KEY_BYTES]; /* that key */
	struct key_role speaks; /* accepted client: the users its key may act for */
	struct origin from; /* accepted link: the remote address */
	struct usage held; /* accepted link: limits in use, from its proof on */
	char way[24]; /* Unix socket: a label with the dialler's uid, part of the proofs; "": TCP */
	const char *reason; /* why it is refused, or NULL */
	uint32_t told; /* bit set of the refusals already logged */
	bool joining; /* is asking for a session */
	uint32_t want_target;
	struct peer *peer; /* dialled link */
	struct session *session; /* accepted link, once it has a session */
	uint64_t verifier; /* of the remote server */
	uint64_t incarnation; /* of the remote server's storage */
	uint8_t nonce[32]; /* of this side */
	struct list descs; /* exposed memory */
	struct net_account *account;
	struct msg *hello; /* kept until the proofs are made */
	struct timer patience; /* for the handshake, then for stalls */
	uint64_t progress; /* when bytes last moved */
	char host[LINK_HOST_MAX];
};

int link_dial(struct net *n, struct peer *p, const char *address, uint32_t target,
	      struct link **out);
/* Dials a server of this host over its Unix socket. Fails at once if there is none, if Unix sockets
 * are switched off, or if the server cannot accept now. */
int link_dial_local(struct net *n, struct peer *p, const char *address, uint32_t target,
		    struct link **out);
void link_close(struct link *l, int error); /* acts once; safe inside callbacks */
/* Counts a refusal on an accepted link. Logs it once per link and reason, and at most a few lines a
 * minute per reason. */
void link_refused(struct link *l, enum refusal why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The server's keys (net.id) have changed: closes links whose key is gone, or has changed its
 * secret or role. */
void net_recheck_keys(struct net *n);
/* The account of the key that the link proved, with a reference; NULL: out of memory. */
struct key_account *link_key_account(struct link *l);
void link_ref(struct link *l);
void link_unref(struct link *l);
/* Encodes the frame head in front of m and sends it; takes m. On a closed link it only frees m. */
void link_send(struct link *l, uint32_t kind, uint64_t tag, struct msg *m);

/* Client: makes a view of user memory reachable for one request. The view and d must live until the
 * retract has completed. */
int net_expose(struct link *l, struct view *mem, int access, enum net_mover mover, uint64_t tag,
	       struct net_desc *d);
/* Completes when the peer can no longer access that memory. */
void net_retract(struct link *l, struct net_desc *d, struct req *q);
/* Server: moves bytes [at, at + sum(iov)) of the stream that d describes to or from local buffers.
 * The iovecs are lent until q continues with req_done(q, error, bytes). A broken link ends the
 * transfer with -ECONNRESET. */
void net_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	     size_t n, struct req *q);
void net_get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
	     size_t n, struct net_direct *direct, struct req *q); /* direct may be NULL */
/* Sends straight from a file whose pages are in the page cache, if the backend supports it
 * (net_can_put_file). What the file no longer holds arrives as zeros. `mapped` (or NULL) has the
 * same pieces as memory, from object_map(): then many of them leave in one system call. */
bool net_can_put_file(const struct link *l);
/* True: without `mapped`, pages are not copied until the peer reads them. */
bool net_lends_pages(const struct link *l);
void net_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
		  const struct extent *ext, const struct iovec *mapped, size_t n, struct req *q);

/* ---------------------------------------------------------------- server side of sessions */

#define SESSION_SLOTS 64
#define BUSY_SLOTS 8 /* granted while the server is short of buffers or of request memory */

struct slot {
	uint32_t sequence; /* last one seen */
	uint32_t op; /* the operation of that request; 0: none yet */
	void *request; /* in service, or NULL */
};

struct session {
	struct hnode node;
	struct list all;
	struct sessions *table;
	uint64_t id;
	uint8_t secret[16];
	char client[LINK_HOST_MAX];
	struct link *link; /* NULL: waiting to be resumed */
	struct slot slots[SESSION_SLOTS];
	uint32_t in_service;
	struct list ending; /* session_quiesce() calls that wait until in_service is 0 */
	struct timer lease;
	uint64_t renewed;
	bool reclaimed; /* has claimed its opens since this server started */
	bool doomed; /* being ended: cannot be resumed */
	struct list opens; /* used by the server */
	struct list parked; /* used by the server: requests that wait for locks */
	struct usage held; /* limits in use, charged to the key that last created or resumed it */
	struct pool_share share,
		copy_share; /* buffers for its transfers and for copies: see session_share() */
};

struct sessions {
	struct htab by_id;
	struct list all;
	struct loop *loop;
	uint64_t lease_ns;
	uint32_t count;
	void *owner;
	/* The lease has ended. The owner cleans up and then frees the session. */
	void (*expired)(void *owner, struct session *s);
};

int sessions_init(struct sessions *t, struct loop *l, uint64_t lease_ns);
void sessions_fini(struct sessions *t); /* frees them all, without callbacks */
int session_new(struct sessions *t, uint64_t id, const uint8_t secret[16], const char *client,
		struct session **out);
struct session *session_find(struct sessions *t, uint64_t id);
void session_attach(struct session *s, struct link *l);
void session_detach(struct session *s); /* the link is gone; the lease keeps running */
/* The session's share of the pool (copies: of the copy pool). All sessions of a key that acts for
 * one user have one share together. */
struct pool_share *session_share(struct session *s, bool copies);
void session_free(struct session *s);
/* Checks the slot of a request that arrives and takes it. 0; -EBADMSG: impossible slot or sequence,
 * close the link; -EKEYREJECTED: a different operation was sent under this sequence. */
int session_enter(struct session *s, uint32_t slot, uint32_t sequence, uint32_t op, void *request);
void session_leave(struct session *s, uint32_t slot);
/* Holds q until no request of this session is in service. */
struct session_wait {
	struct list link;
	struct req *q;
};
void session_quiesce(struct session *s, struct session_wait *w, struct req *q);

/* ---------------------------------------------------------------- client side of sessions */

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
	enum net_mover mover; /* for mem */
	struct wire_mem_desc *mem_wire; /* where its descriptor goes in args */
	uint64_t trace;
	uint64_t deadline; /* loop time */
	bool later; /* deferred: leaves with the next call, or after COMPANY_NS */
	int status; /* of the reply: 0 or -errno, also passed to q */
	struct wire_rep_head head;
	struct wire_referral referral; /* if status is -EREMOTE */
	struct msg *in;
	uint64_t verifier; /* of the server that answered */
	/* private to peer.c */
	struct net_desc desc;
	uint32_t slot, sequence;
	uint32_t map_version; /* sent with the request */
	uint64_t sent_at;
	bool sent;
	uint64_t counts; /* bytes of mem counted in peer->outstanding */
	bool front; /* goes before all other calls of this peer */
	struct timer timer;
};

struct cred_wire {
	uint32_t uid, gid, n_gids;
	uint32_t gids[32];
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
	bool shun_local; /* the Unix socket led to no usable server: dial TCP next time */
	struct peer_slot slots[SESSION_SLOTS];
	uint32_t n_slots; /* granted by the server */
	struct list queue; /* calls without a slot, in order */
	struct list bulk; /* calls with memory that wait until fewer bytes are outstanding */
	uint64_t outstanding; /* bytes of memory exposed by calls with a slot */
	uint32_t load; /* clients that share the server, as in its last reply */
	uint32_t n_front; /* number of calls with `front`: all others wait for them */
	uint64_t session; /* 0: none */
	uint8_t secret[16];
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
	struct timer company; /* flushes deferred calls */
	struct timer breather; /* retransmits calls that the server had no room for */
	uint32_t breather_ms;
	struct call session_call; /* establishes the session; has no slot */
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
	bool keep_alive; /* renew the lease when idle */
	bool unclaimed; /* claims ended without an answer: the owner has to claim again */
	void *owner;
	/* The server restarted, or the session was lost: the client must claim its opens and locks
	 * again. Called when the session exists, before queued calls are sent. */
	void (*restarted)(struct peer *p, bool session_lost);
	/* The session is up over a new link, with this answer; the link is gone. Or NULL. */
	void (*session_up)(struct peer *p, const struct wire_session_res *r);
	void (*link_down)(struct peer *p);
	/* The server has a newer map. Calls made here with peer_call_front() go before all others.
	 * May be NULL. */
	void (*map_changed)(struct peer *p);
	void (*storage_told)(struct peer *p); /* a link is up and `incarnation` is set */
	uint64_t n_sent, n_resent; /* calls sent and retransmitted */
	uint64_t round; /* ns: the fastest reply to a call without memory; 0: none yet */
	uint64_t answered_at; /* when the last reply came */
	struct net_account account;
};

void peer_init(struct peer *p, struct net *n, uint32_t role, uint32_t target, const char *address);
/* Sends nothing: closes the link and ends queued calls with -ESHUTDOWN. */
void peer_fini(struct peer *p);
bool peer_is_local(const struct peer *p); /* its link uses the Unix socket */
const char *peer_medium(const struct peer *p); /* "unix", or the backend's name; NULL: no link */
void peer_call(struct peer *p, struct call *c, struct req *q);
/* For claims: goes before all queued or retransmitted calls, which wait for its reply. */
void peer_call_front(struct peer *p, struct call *c, struct req *q);
/* Closes the link and ends all calls with -ESHUTDOWN, later ones too. The session stays as it is,
 * for peer_go_on() or for another process. */
void peer_halt(struct peer *p);
/* Resumes the session at once, not with the next call; also one taken over from another process. */
void peer_go_on(struct peer *p);
/* How many bytes may be outstanding at once: fewer if many clients share the server. A call with
 * more goes alone. */
uint64_t peer_room(const struct peer *p);
/* True: a call was cancelled over this link and its reply is still due. */
bool peer_silent(const struct peer *p);
/* Asks the server to answer soon, with whatever result. */
void peer_hurry(struct call *c);
/* Ends a call early: q continues with `error` once its memory is safe. */
void peer_cancel(struct call *c, int error);
void call_fini(struct call *c);

#endif
