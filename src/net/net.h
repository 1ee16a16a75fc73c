/* net: links (connections), their bulk transfers, sessions and slots; both sides.
 *
 *   link     a connection that was authenticated both ways. When it breaks, its transfers end with an
 *            error and its buffers are free; nothing else happens.
 *   session  a client's standing with a server: slots, and whatever the server hangs on it. Lives by a
 *            lease and is resumed over a new link.
 *   peer     the client's side of one session: dials, resumes, sends calls, repeats them after a break.
 *
 * The bulk primitive is "move these buffers of mine to or from that stream of the peer's
 * memory". A client exposes a view of the user's memory for one request; the server puts into it
 * and gets from it by stream position; only the backend knows how. Checked against the media to
 * come: shared memory packs pieces; RDMA registers the view's pieces, sends their keys in the
 * descriptor, and posts all RMAs of a put or get as one batch with one completion (SEAMUR), the
 * reply being ordered behind it by the caller's step machine. Nothing above this header changes.
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

/* One message with room for its frame head before it; from a bounded free list of the net. */
struct msg {
	struct list link;
	struct net *net;
	uint32_t len, cap; /* of the body */
	uint32_t sent; /* of head and body, while it is being sent */
	uint8_t head[FRAME_HEAD];
	uint8_t body[];
};
struct msg *msg_new(struct net *n, uint32_t cap); /* NULL: out of memory */
void msg_free(struct msg *m); /* NULL is harmless */
/* A message made of two things in a row (second may be NULL); NULL: too long, or out of memory. */
struct msg *msg_encode(struct net *n, xdr_any f1, void *v1, xdr_any f2, void *v2);

/* ---------------------------------------------------------------- movers */

/* How the bytes of a transfer get between the pieces of a client's memory and the stream. */
enum net_mover { MOVER_AUTO, MOVER_INLINE, MOVER_PACK, MOVER_GATHER, N_MOVERS };
const char *net_mover_name(enum net_mover how); /* "pack" */
int net_mover_parse(const char *name, enum net_mover *how); /* -EINVAL */

/* Nanoseconds: of a system call, of a byte through a socket and of one that is copied, of a segment. */
struct net_costs {
	double call, byte, copy, gather, scatter, pack, unpack;
};
void net_costs_usual(struct net_costs *c);
void net_costs_measure(struct net_costs *c); /* once a process: takes half a millisecond */
/* The cheapest one, where so many bytes may be inside a message. */
enum net_mover net_choose(const struct net_costs *c, bool write, uint64_t segments, uint64_t bytes,
			  uint64_t inline_room);
/* What moving costs the client besides the round trip of its request. */
double net_cost(const struct net_costs *c, enum net_mover how, bool write, uint64_t segments,
		uint64_t bytes);

/* What a client has done at one server, since it began. */
struct net_account {
	uint64_t frames; /* messages and bulk, both ways */
	uint64_t sent; /* bytes of our messages, without bulk */
	uint64_t calls; /* of the system, on sockets */
	uint64_t bytes[N_MOVERS]; /* of data, by mover */
	uint64_t copied; /* bytes of data, in user space; twice: counted twice */
	uint64_t busy; /* ns with calls under way, where they are answered in order */
};

/* ---------------------------------------------------------------- net */

enum { BACKEND_TCP = 1, BACKEND_LOOP = 2, BACKEND_SHM = 4, BACKEND_OFI = 8 };
#define MAC_BYTES 32
#define NET_SCRATCH (64 * KIB)
#define LINK_HOST_MAX 65

/* Who we are, and what proves it. A server has all keys, a client one of its own. */
struct net_identity {
	struct uuid fs;
	uint32_t target; /* of a server */
	uint64_t verifier; /* of a server */
	uint64_t incarnation; /* of a server's storage */
	uint32_t lease_ms, timeout_ms, map_version;
	uint8_t client_key[KEY_BYTES], server_key[KEY_BYTES];
	bool has_server_key;
	char key_name[CONF_NAME_MAX]; /* of a client: which one its key is; "": the default one */
	const struct conf *doors; /* of a server: its named keys, borrowed; or NULL */
	char host[LINK_HOST_MAX];
};

/* What a server's owner is told of links that were accepted. All may close the link. */
struct net_server_ops {
	void (*request)(void *owner, struct link *l, uint64_t tag, struct msg *m); /* takes m */
	void (*cancel)(void *owner, struct link *l, uint64_t tag);
	void (*down)(void *owner, struct link *l); /* its transfers have ended */
};

/* Why somebody was turned away, for counters and the log. */
enum refusal {
	REFUSED_PROTOCOL, /* what it sent breaks the rules */
	REFUSED_CLUSTER, /* another file system, target or version */
	REFUSED_KEY, /* no such key, or a wrong proof: also one that was recorded and played again */
	REFUSED_HANDSHAKE, /* no proof in time, or the oldest of too many without one */
	REFUSED_STALLED, /* owes or is owed bytes that do not move */
	REFUSED_REVOKED, /* its key was taken back, or speaks for others now */
	REFUSED_SESSION, /* another's session */
	REFUSED_CREDENTIAL, /* a user whom its key does not speak for */
	REFUSED_SERVERS_ONLY, /* what only servers may do */
	REFUSED_FORGED, /* a capability that nobody gave to a client with its key */
	REFUSED_STALE, /* one that has expired or was fenced */
	REFUSED_RIGHTS, /* one for something else */
	REFUSED_REPLAY, /* a request under the sequence of another one */
	REFUSED_LIMIT, /* a limit of limits.h, or unread answers */
	N_REFUSALS
};
const char *refusal_name(enum refusal why); /* "key" */
struct told {
	uint64_t since;
	uint32_t said, left_out; /* lines of the log in this period */
};

/* Where net_loop finds its other half: one per process that has targets inside, or per simulation. */
struct loop_hub {
	struct list acceptors;
	/* Nanoseconds that a parcel takes, 0 without one; UINT64_MAX: the link breaks instead. */
	uint64_t (*delay)(struct loop_hub *h, struct net *from, struct net *to, size_t bytes);
};

struct net {
	struct loop *loop;
	struct loop_hub *hub; /* or NULL: no "loop:" addresses */
	uint8_t *scratch; /* NET_SCRATCH bytes: where unwanted bytes go, and those to be unpacked */
	struct net_costs costs;
	struct net_account account; /* of accepted links */
	struct limits limits; /* of accepted links and sessions */
	struct net_identity id;
	const struct net_server_ops *server;
	void *owner;
	struct list links,
		strangers; /* strangers: accepted and not yet authenticated, oldest first */
	uint32_t n_links, n_unproven, n_dialling;
	uint64_t source_seed; /* of the hash of addresses of strangers; 0: none yet */
	const struct link *asker; /* who moves no bulk and had work for us last; to compare only */
	uint64_t asked_at;
	uint64_t mover_turn; /* turn of the loop in which links last moved bulk ... */
	uint32_t movers,
		movers_before; /* ... so many of those that we accepted, and in the one before */
	size_t queued; /* bytes of messages that wait to be sent, on all links */
	struct list spare_msgs, spare_xfers;
	uint32_t n_spare_msgs;
	struct list acceptors;
	uint64_t bad_links; /* refused or closed for what they sent */
	uint64_t refused[N_REFUSALS];
	struct told told[N_REFUSALS]; /* by reason */
};

void net_init(struct net *n, struct loop *l, const struct net_identity *id);
void net_fini(struct net *n); /* closes links and acceptors */
uint8_t *net_scratch(struct net *n); /* n->scratch; NULL: out of memory */
/* "HOST:PORT", or "loop:NAME" inside the process. `err` names the address and the cure. */
int net_listen(struct net *n, const char *address, char *err, size_t err_len);
/* Listens for those of this host who dial that address, by a shorter way; 0 also where there is none. -EOPNOTSUPP:
 * it is not used here. */
int net_listen_local(struct net *n, const char *address);
void net_stop_listening(struct net *n);

/* HMAC-SHA-256 over the parts, which end with a NULL. */
struct mac_part {
	const void *p;
	size_t n;
};
void mac_make(uint8_t out[MAC_BYTES], const uint8_t key[KEY_BYTES], const struct mac_part *parts);
/* With a key that is used often: a sixth of the time. One thread at a time. NULL: out of memory. */
struct evp_mac_ctx_st *mac_key(const uint8_t key[KEY_BYTES]);
void mac_key_free(struct evp_mac_ctx_st *k);
void mac_make_with(uint8_t out[MAC_BYTES], struct evp_mac_ctx_st *k, const struct mac_part *parts);
bool mac_equal(const uint8_t a[MAC_BYTES], const uint8_t b[MAC_BYTES]); /* in constant time */

/* ---------------------------------------------------------------- links */

/* Memory of ours that the peer may touch for one request; lives in the call. */
struct net_desc {
	struct list link;
	uint64_t tag; /* 0: not exposed */
	struct view *view;
	int access; /* CAP_READ: the peer reads it; CAP_WRITE: it writes into it */
	enum net_mover mover; /* the caller's choice */
	bool packs; /* the next pieces are likely to be packed: to see some of them will do */
	bool bad; /* some of that memory is not there */
	uint64_t moved; /* when bytes of it last did, or were asked for */
	struct wire_bytes keys; /* of the backend; goes into the message */
};

/* A better place for the first bytes of a get: they go there, and not to the buffers, as long as may() says so. It is
 * asked each time right before some are put there. A medium need not use it. */
struct net_direct {
	bool (*may)(struct net_direct *d);
	const struct iovec *iov;
	size_t n;
	uint64_t len; /* of iov, and of the transfer: no more than these go there */
	uint64_t done; /* so many are there, the others in the buffers; -EFAULT ends it, too */
};

struct net_ops {
	const char *name;
	void (*send)(struct link *l, struct msg *m); /* head is encoded; takes m */
	int (*expose)(struct link *l, struct net_desc *d);
	void (*retract)(struct link *l, struct net_desc *d, struct req *q);
	void (*put)(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		    const struct iovec *src, size_t n, struct req *q);
	/* NULL: not on this medium */
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
	LINK_WAIT_WELCOME, /* we dialled */
	LINK_WAIT_HELLO,
	LINK_WAIT_RESPONSE, /* we accepted */
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
	uint32_t role; /* LINK_CLIENT or LINK_SERVER: what the dialler proved */
	char key[CONF_NAME_MAX]; /* the name of the key that proves it */
	uint8_t secret[KEY_BYTES]; /* and the key */
	struct key_role speaks; /* for whom, of an accepted client */
	struct origin from; /* of an accepted link */
	struct usage held; /* by an accepted link, from its proof on */
	char way[24]; /* the shorter one, by which it goes, for the proofs; "": the ordinary one */
	const char *reason; /* why it is refused, or NULL */
	uint32_t told; /* bit set of refusals that the log has */
	bool joining; /* asks for a session */
	uint32_t want_target;
	struct peer *peer; /* of a dialled link */
	struct session *session; /* of an accepted link, once it has one */
	uint64_t verifier; /* of the server at the other end */
	uint64_t incarnation; /* of its storage */
	uint8_t nonce[32]; /* ours */
	struct list descs; /* exposed memory */
	struct net_account *account;
	struct msg *hello; /* kept while proofs are made */
	struct timer patience; /* handshake, then stalls */
	uint64_t progress; /* when bytes last moved */
	char host[LINK_HOST_MAX];
};

int link_dial(struct net *n, struct peer *p, const char *address, uint32_t target,
	      struct link **out);
/* By the shorter way to a server of this host. An error comes at once: there is none, it is not used, or it cannot be
 * now. */
int link_dial_local(struct net *n, struct peer *p, const char *address, uint32_t target,
		    struct link **out);
void link_close(struct link *l, int error); /* once; safe inside callbacks */
/* Something of an accepted link was refused: counts it, and logs it once a link and reason, and not more than
 * some lines a minute for each reason. */
void link_refused(struct link *l, enum refusal why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The server's keys have changed (net.id): closes links whose key is gone, another, or of another role. */
void net_recheck_keys(struct net *n);
/* The account of the key that it proved, with a reference; NULL: out of memory. */
struct key_account *link_key_account(struct link *l);
void link_ref(struct link *l);
void link_unref(struct link *l);
/* Encodes the frame head in front of m and sends it; takes m. Harmless on a closed link. */
void link_send(struct link *l, uint32_t kind, uint64_t tag, struct msg *m);

/* Client: make a view of user memory reachable for one request. The view and d stay until the retract has
 * completed. */
int net_expose(struct link *l, struct view *mem, int access, enum net_mover mover, uint64_t tag,
	       struct net_desc *d);
/* Completes when the peer can no longer touch that memory. */
void net_retract(struct link *l, struct net_desc *d, struct req *q);
/* Server: bytes [at, at + sum(iov)) of the stream that d describes <-> local buffers. The iovecs are lent
 * until q goes on; req_done(q, error, bytes). A link that breaks ends them with -ECONNRESET. */
void net_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	     size_t n, struct req *q);
void net_get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
	     size_t n, struct net_direct *direct, struct req *q); /* direct: or NULL */
/* Straight from a file whose pages are in memory, where the medium can (net_can_put_file). What the file
 * turns out not to hold any more arrives as zeros. `mapped` (or NULL) has the same pieces as memory, from
 * object_map(): then many of them leave in one call. */
bool net_can_put_file(const struct link *l);
/* Is nothing of it copied without `mapped`, until the peer reads it? */
bool net_lends_pages(const struct link *l);
void net_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
		  const struct extent *ext, const struct iovec *mapped, size_t n, struct req *q);

/* ---------------------------------------------------------------- server side of sessions */

#define SESSION_SLOTS 64
#define BUSY_SLOTS 8 /* of them while the server is short of buffers or of memory for requests */

struct slot {
	uint32_t sequence; /* last one seen */
	uint32_t op; /* that came under it; 0: none yet */
	void *request; /* in service, or NULL */
};

struct session {
	struct hnode node;
	struct list all;
	struct sessions *table;
	uint64_t id;
	uint8_t secret[16];
	char client[LINK_HOST_MAX];
	struct link *link; /* or NULL: waiting to be resumed */
	struct slot slots[SESSION_SLOTS];
	uint32_t in_service;
	struct list ending; /* requests that wait until in_service is 0 */
	struct timer lease;
	uint64_t renewed;
	bool reclaimed; /* has claimed its opens since our start */
	bool doomed; /* being ended: cannot be resumed */
	struct list opens; /* of the owner */
	struct list parked; /* of the owner: requests that wait for locks */
	struct usage held; /* with the key that it was made with or resumed with last */
	struct pool_share share,
		copy_share; /* buffers of its transfers, and of copies: see session_share() */
};

struct sessions {
	struct htab by_id;
	struct list all;
	struct loop *loop;
	uint64_t lease_ns;
	uint32_t count;
	void *owner;
	/* The owner ends it when it has cleaned up. */
	void (*expired)(void *owner, struct session *s);
};

int sessions_init(struct sessions *t, struct loop *l, uint64_t lease_ns);
void sessions_fini(struct sessions *t); /* frees them all without a word to anybody */
int session_new(struct sessions *t, uint64_t id, const uint8_t secret[16], const char *client,
		struct session **out);
struct session *session_find(struct sessions *t, uint64_t id);
void session_attach(struct session *s, struct link *l);
void session_detach(struct session *s); /* its link is gone; the lease runs on */
/* Its share of the pool (copies: of their pool). All sessions of a key of one user have one
 * together. */
struct pool_share *session_share(struct session *s, bool copies);
void session_free(struct session *s);
/* A request comes: checks and takes its slot. 0, -EBADMSG (lies about the slot: close the link),
 * -EKEYREJECTED (another operation came under this sequence). */
int session_enter(struct session *s, uint32_t slot, uint32_t sequence, uint32_t op, void *request);
void session_leave(struct session *s, uint32_t slot);
/* Holds q until no request of this session is in service. */
struct session_wait {
	struct list link;
	struct req *q;
};
void session_quiesce(struct session *s, struct session_wait *w, struct req *q);

/* ---------------------------------------------------------------- client side of sessions */

/* One remote procedure call; memory of the caller, lent until q goes on. args and its pointers too. The
 * reply's references point into `in`, which call_fini() frees. */
struct call {
	struct list link;
	struct peer *peer;
	struct req *q;
	uint32_t op;
	bool change; /* exactly once: an unknown outcome is an error, not a repetition */
	const struct cred_wire *cred;
	xdr_any put_args;
	void *args;
	xdr_any get_res;
	void *res;
	struct arena *arena; /* for arrays in the result */
	struct view *mem; /* or NULL */
	int mem_access;
	enum net_mover mover; /* of it */
	struct wire_mem_desc *mem_wire; /* where in args its descriptor is to be put */
	uint64_t trace;
	uint64_t deadline; /* loop time */
	bool later; /* nobody waits for it: it goes with the next call, or a moment later */
	int status; /* of the reply: 0 or -errno, also given to q */
	struct wire_rep_head head;
	struct wire_referral referral; /* when status is -EREMOTE */
	struct msg *in;
	uint64_t verifier; /* of the server that answered */
	/* of the peer */
	struct net_desc desc;
	uint32_t slot, sequence;
	uint32_t map_version; /* it was sent with */
	uint64_t sent_at;
	bool sent;
	uint64_t counts; /* bytes of mem, while they are outstanding */
	bool front; /* before everything else of this peer */
	struct timer timer;
};

struct cred_wire {
	uint32_t uid, gid, n_gids;
	uint32_t gids[32];
};

struct peer_slot {
	struct call *call; /* NULL and busy: given up, its reply is still to come */
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
	bool shun_local; /* the shorter way was not answered by who we look for: not so the next time */
	struct peer_slot slots[SESSION_SLOTS];
	uint32_t n_slots; /* granted */
	struct list queue; /* calls without a slot, in order */
	struct list bulk; /* of those: with memory, until less is outstanding */
	uint64_t outstanding; /* bytes of memory that calls with a slot have exposed */
	uint32_t load; /* of the server, as it told last: clients that share it */
	uint32_t n_front; /* calls that all others wait for */
	uint64_t session; /* 0: none */
	uint8_t secret[16];
	uint64_t boot; /* of the server, as it told with the session */
	uint64_t verifier;
	uint64_t incarnation; /* of the server's storage, as it told last; 0: never */
	uint32_t lease_ms;
	uint32_t map_version; /* of the server's map, as far as it was told of */
	uint32_t eager_bytes; /* credit: what a message may carry unasked */
	uint64_t last_traffic;
	uint64_t renewed; /* when that was asked which was answered last: the lease is not older */
	uint32_t backoff_ms;
	struct timer timer; /* redial, or renew the lease */
	struct timer company; /* calls that go later go now */
	struct timer breather; /* calls that the server had no room for go again */
	uint32_t breather_ms;
	struct call session_call; /* establishes the session, slot-less */
	struct req session_req;
	struct wire_session_args session_args;
	struct wire_session_res session_res;
	struct arena arena;
	struct call ping;
	struct req ping_req;
	bool ping_busy, session_busy; /* their requests are on the loop */
	struct wire_void_args ping_args;
	struct wire_void_res ping_res;
	int last_error; /* why it is not up */
	bool keep_alive; /* renew the lease when idle */
	bool unclaimed; /* claims of the owner ended without an answer: it is told to claim again */
	void *owner;
	/* The server restarted, or our session was lost: what the client had there must be claimed again.
	 * Called when the session is up, before queued calls are sent. */
	void (*restarted)(struct peer *p, bool session_lost);
	/* A session is up over a new link, with this answer; and the link is gone. Or NULL. */
	void (*met)(struct peer *p, const struct wire_session_res *r);
	void (*parted)(struct peer *p);
	/* The server has a newer map; what it queues with peer_call_front() goes before all else. Or NULL. */
	void (*map_changed)(struct peer *p);
	void (*storage_told)(struct peer *p); /* a link is up: `incarnation` is news */
	uint64_t n_sent, n_resent; /* calls */
	uint64_t round; /* ns: the quickest answer to a call without memory; 0: none yet */
	uint64_t answered_at; /* when the last answer came */
	struct net_account account;
};

void peer_init(struct peer *p, struct net *n, uint32_t role, uint32_t target, const char *address);
/* Says goodbye to nobody: links close, queued calls end with -ESHUTDOWN. */
void peer_fini(struct peer *p);
bool peer_is_local(const struct peer *p); /* by the shorter way of this host */
const char *peer_medium(const struct peer *p); /* "unix", or that of the backend; NULL: no link */
void peer_call(struct peer *p, struct call *c, struct req *q);
/* Before all that is queued or to be sent again, which waits until it is answered: for claims. */
void peer_call_front(struct peer *p, struct call *c, struct req *q);
/* The link closes and all calls end with -ESHUTDOWN, also those that are made from now on; the session stays as it is,
 * for peer_go_on() or for another process. */
void peer_halt(struct peer *p);
void peer_go_on(
	struct peer *
		p); /* also with what another's peer was: resumes the session now, not with a call */
/* Bytes that may be outstanding there at once: one client of many asks a server for less. A call with more goes
 * alone. */
uint64_t peer_room(const struct peer *p);
/* A call over this link was given up and has not been answered since. */
bool peer_silent(const struct peer *p);
/* Asks the server to answer soon, whatever the answer is. */
void peer_hurry(struct call *c);
/* Ends a call early: q goes on with `error` when its memory is safe. */
void peer_cancel(struct call *c, int error);
void call_fini(struct call *c);

#endif
