/* Routes: the ways to dial a server, the best first.
 *
 * A dial tries the routes in order. A route that fails is skipped until its retry time, unless it
 * is the last one. When all have failed, all are tried at the next dial. A link stays on its route:
 * a better one is tried when the peer dials again. Threads: the loop's. */
#ifndef SHEAF_ROUTE_H
#define SHEAF_ROUTE_H

#include "base/base.h"

struct link;
struct net;
struct peer;

#define ROUTES_MAX 4 /* of one address */
#define ROUTE_PAUSE_NS (30 * NSEC_PER_SEC) /* after a failure; doubles with each further one */
#define ROUTE_PAUSE_MAX_NS (240 * NSEC_PER_SEC)

struct route_kind {
	const char *name;
	/* 0 and a link whose handshake has begun, or -errno. */
	int (*dial)(struct net *n, struct peer *p, const char *address, uint32_t target,
		    struct link **out);
};

struct route {
	const struct route_kind *kind;
	int error; /* why it is not used: -errno; 0: it is used, or was not needed */
	uint64_t retry_at; /* loop time; dials before it skip the route */
	uint64_t pause_ns; /* between the last failure and retry_at */
};

struct routes {
	struct route row[ROUTES_MAX]; /* the best first */
	uint32_t n;
	uint32_t at; /* the route that is dialled, or that the link uses */
};

void routes_init(struct routes *r, const char *address);
/* A dial begins: selects the best route that is not skipped. */
void routes_begin(struct routes *r, uint64_t now);
/* The selected route failed: selects the next one. False: all have failed. */
bool routes_failed(struct routes *r, int error, uint64_t now);
/* The link over the selected route is up. */
void routes_succeeded(struct routes *r);
/* A route follows that is dialled if the selected one fails. */
static inline bool routes_has_next(const struct routes *r)
{
	return r->at + 1 < r->n;
}
/* Why a route is not used, in a few words; "": error is 0. */
const char *route_reason(int error);

/* Number of links of a net over each route. Returns the number of rows. */
struct route_count {
	const char *name;
	uint32_t links;
};
size_t routes_count(const struct net *n, struct route_count out[ROUTES_MAX]);

#endif
