/* Changes over several metadata servers, and leases on names. Private to src/server. */
#ifndef SHEAF_SERVER_PAIR_H
#define SHEAF_SERVER_PAIR_H

#include "server/fan.h"

/* ---- op_pair.c: changes that may need several servers ---- */
struct pair_state {
	struct list link; /* in srv->pairs after the split */
	uint64_t id;
	uint32_t place; /* the server of a new directory */
	struct durable_call durable; /* the flush of a file before it replaces another */
	struct split *x; /* NULL: not split */
};
uint32_t meta_owner(const struct server *srv, uint64_t ino); /* the target that owns it */

/* ---- pairs.c: the participants' side of these changes, and their recovery ---- */
bool sreq_park(struct sreq *s); /* until the change that it met is over; false: reply now */
void requests_unpark(struct server *srv);
/* Tells the participants of a decision until all have finished. told: they have. */
void pair_tell(struct server *srv, const struct meta_pair *p, bool told);
void pairs_recover(struct server *srv);
void pairs_abandon(struct server *srv);

/* ---- lease.c ---- */
/* Grants a lease on the name. Returns its length in ms; 0: none. */
uint32_t lease_grant(struct server *srv, uint64_t session, uint64_t dir,
		     const struct wire_bytes *name);
/* 0: no other session has a lease on the name (NULL: on any name in dir), and none will get one
 * before the request has ended; else -EINPROGRESS. At most two names per request. */
int lease_block(struct sreq *s, uint64_t session, uint64_t dir, const struct wire_bytes *name);
void lease_unblock(struct sreq *s); /* the request has ended, or begins again */

#endif
