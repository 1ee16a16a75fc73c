/* Upcalls from a link into its peer, and the interface between the parts of a peer: its links and
 * session (peer.c), and its calls (calls.c). Private to net. */
#ifndef SHEAF_PEER_PRIVATE_H
#define SHEAF_PEER_PRIVATE_H

#include "net/link.h"
#include "net/peer.h"

static inline struct loop *loop_of(struct peer *p)
{
	return p->net->loop;
}

/* ---- peer.c ---- */

void peer_dial(struct peer *p);
/* The peer with this channel that uses the link of `owner`, or NULL. */
struct peer *peer_on(struct peer *owner, uint32_t channel);
void peer_link_up(struct peer *p, struct link *l);
void peer_link_down(struct peer *p, struct link *l, int error);

/* ---- calls.c ---- */

void peer_map(struct peer *p, uint32_t version); /* the server told the version of its map */
/* `owner` has the link; takes m. */
int peer_reply(struct peer *owner, uint64_t tag, struct msg *m);
void call_timeout(struct timer *t);
/* Sends a call, which has its slot and sequence. May break the link and free the call. */
void call_transmit(struct peer *p, struct call *c);
/* Ends a call: its request continues. The peer can no longer reach its memory. */
void call_finish(struct call *c, int error);
/* Assigns free slots to queued calls, in order, and sends them. */
void peer_pump(struct peer *p);
/* Retransmits the calls that have a slot and were not sent over this link. */
void peer_resend(struct peer *p);
void peer_fail_queued(struct peer *p, int error);
/* Ends all calls, with a slot or queued. */
void peer_fail_all(struct peer *p, int error);
/* The session was lost: calls in flight start over; changes fail, since they may have executed. */
void peer_forget_session(struct peer *p);
/* The link is new: the server has ended the calls that were cancelled over the old one. */
void peer_release_cancelled(struct peer *p);
/* The link is gone: calls in flight will be retransmitted over another one. */
void peer_unsend(struct peer *p);
void peer_calls_init(struct peer *p);

#endif
