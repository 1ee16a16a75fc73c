/* Refusals: why a server closed a link or refused a request; counters and a bounded log. */
#ifndef SHEAF_REFUSAL_H
#define SHEAF_REFUSAL_H

#include "base/base.h"

struct link;

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
struct refusal_log {
	uint64_t since;
	uint32_t n_logged, n_suppressed; /* lines logged and suppressed in this period */
};

/* Counts a refusal on an accepted link. Logs it once per link and reason, and at most a few lines a
 * minute per reason. */
void link_refused(struct link *l, enum refusal why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
