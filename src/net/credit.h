/* Credits: how many messages each end of a link may send, so that the receiver always has a buffer
 * for them. All numbers count messages since the link began and may wrap around.
 *
 * The receiver keeps `depth` buffers for the peer: more when the peer uses them up, fewer when it
 * leaves most of them free. The last credit is for a message that only carries credits, so both
 * ends can always tell each other. */
#ifndef SHEAF_CREDIT_H
#define SHEAF_CREDIT_H

#include "base/base.h"

#define CREDIT_FIRST 4
#define CREDIT_MAX 16 /* buffers of 9 KiB: 144 KiB for each peer */

struct credits {
	uint32_t sent, may_send; /* may_send: as the peer told last */
	uint32_t received, granted; /* granted: as told to the peer */
	uint32_t depth; /* messages that the peer may send before it hears of more */
	uint32_t depth_max; /* to which it may grow */
	uint32_t spare_least, n_seen; /* fewest unused of the last messages, and their number */
};

void credits_init(struct credits *c);
/* is_credit: a message that only carries credits. */
bool credits_may_send(const struct credits *c, bool is_credit);
uint32_t credits_left(const struct credits *c); /* messages that may be sent now */
/* A message is sent; returns the number to put into it. */
uint32_t credits_send(struct credits *c);
/* A buffer of the peer is used without a message (immediate data). */
void credits_use(struct credits *c);
/* A message, or immediate data, has arrived. -EPROTO: more than were granted. */
int credits_receive(struct credits *c);
void credits_told(struct credits *c, uint32_t may_send); /* by a message of the peer */
/* So many credits are due that they need a message of their own. */
bool credits_are_due(const struct credits *c);

#endif
