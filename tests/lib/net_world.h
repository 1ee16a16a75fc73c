/* A network inside one test: an event loop with a virtual clock for net_loop, or with the kernel's
 * clock and sockets. */
#ifndef SHEAF_TEST_NET_WORLD_H
#define SHEAF_TEST_NET_WORLD_H

#include "net/backend.h"
#include "net/peer.h"
#include "net/session.h"
#include "test.h"

/* ---- a world ---- */

struct net_world {
	struct env env;
	struct clock_ops clock;
	struct loop loop;
	struct loopback_hub hub;
	uint64_t now, rng;
	bool real; /* use the kernel's clock and sockets */
};

/* Starts a loop; `real`: with the clock and the sockets of the kernel. */
void net_world_start(struct net_world *w, bool real);

/* Ends the loop; no request may be left. */
void net_world_end(struct net_world *w);

/* Runs all requests that are ready. */
void net_world_turn(struct net_world *w);

/* Runs the loop for `ns`. A virtual clock skips idle time. */
void net_world_pass(struct net_world *w, uint64_t ns);

/* Runs the loop until *flag is set. Fails after 60 s. */
void net_world_until(struct net_world *w, const bool *flag);

#endif
