/* Links: connections that both ends have authenticated.
 *
 * When a link breaks, its transfers end with an error and their buffers are free; sessions and
 * requests are not affected. Closing takes time where a device must stop first: nothing is sent or
 * received meanwhile. The server hears of it at the beginning, a peer at the end. Threads: the
 * loop's. */
#ifndef SHEAF_LINK_H
#define SHEAF_LINK_H

#include "net/limits.h"
#include "net/msg.h"
#include "net/net.h"

struct net_ops;
struct peer;
struct rdma_link;
struct session;

enum link_state {
	LINK_CONNECTING,
	LINK_WAIT_CHALLENGE,
	LINK_WAIT_WELCOME, /* last state of the dialling side */
	LINK_WAIT_HELLO,
	LINK_WAIT_RESPONSE, /* last state of the accepting side */
	LINK_UP,
	LINK_CLOSING, /* transfers and exposed memory are not free yet */
	LINK_CLOSED
};

/* See depth.c. */
struct link_depth {
	uint64_t shortest, before; /* ns: the shortest delays of this period and of the last one */
	uint64_t period_end;
	uint32_t windows;
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
	struct key_role acts_for; /* accepted client: the users its key may act for */
	struct origin from; /* accepted link: the remote address */
	struct usage held; /* accepted link: limits in use, from its proof on */
	char local_label[24]; /* with the dialler's uid, in the proofs; "": no Unix socket */
	const char *reason; /* why it is refused or closed, or NULL */
	int error; /* why it was closed */
	uint32_t logged; /* bit set of the refusals already logged */
	struct list joining; /* used by the server: requests for sessions */
	uint32_t want_target;
	struct peer *peer; /* dialled link */
	struct list sessions; /* accepted link: each has a channel */
	bool had_sessions; /* when it began to close: the client said no goodbye */
	struct htab by_channel; /* the same */
	uint64_t verifier; /* of the remote server */
	uint64_t incarnation; /* of the remote server's storage */
	uint8_t nonce[32]; /* of this side */
	struct list descs; /* exposed memory */
	struct net_account *account;
	const struct net_costs *costs; /* of its medium */
	struct msg *hello; /* kept until the proofs are made */
	struct timer timeout; /* for the handshake, then for stalls */
	uint64_t progress; /* when bytes last moved */
	struct link_depth depth;
	struct rdma_link *rdma; /* attached, or being attached; NULL: not */
	bool peer_has_rdma; /* dialled link: as the server said */
	bool peer_fetches; /* the other end knows FETCH and WORKING */
	bool peer_knows_rdma; /* accepted link: as the dialler said */
	bool asked_rdma; /* accepted link: the client may ask once */
	char host[LINK_HOST_MAX];
};

/* What the peer did wrong, for the log; returns -EPROTO, with which the link is to be closed. */
int link_fault(struct link *l, const char *what);
/* Begins to close the link, or closes it. Acts once; safe inside callbacks. */
void link_close(struct link *l, int error);
/* The same, and waits for a device: nothing of the link is in use afterwards. */
void link_close_now(struct link *l, int error);
/* The account of the key that the link proved, with a reference; NULL: out of memory. */
struct key_account *link_key_account(struct link *l);
/* Accepted link: the round trip, in ns, as pulls of data have shown; 0: not known. */
uint64_t link_round_trip(const struct link *l);
bool link_has_rdma(const struct link *l); /* its requests go by a network card */
bool link_is_far(const struct link *l); /* its round trip is much longer than within a host */
/* "unix", or the name of its backend. */
const char *link_route(const struct link *l);
void link_ref(struct link *l);
void link_unref(struct link *l);
/* Encodes the frame head in front of m and sends it; takes m. On a closed link it only frees m. */
void link_send(struct link *l, uint32_t kind, uint64_t tag, struct msg *m);

#endif
