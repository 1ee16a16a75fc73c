/* Methods to move the bytes of a transfer (public: movers), their costs on this host, counters. */
#ifndef SHEAF_COSTS_H
#define SHEAF_COSTS_H

#include "base/base.h"

/* How the bytes of a transfer move between the pieces of a client's memory and the stream. */
enum net_method { METHOD_AUTO, METHOD_INLINE, METHOD_PACK, METHOD_GATHER, N_METHODS };
const char *net_method_name(enum net_method how); /* "pack" */
int net_method_parse(const char *name, enum net_method *how); /* -EINVAL */

/* Nanoseconds: of a system call, a byte through a socket, a copied byte, a segment; and the round
 * trip of a far link (else 0). */
struct net_costs {
	double call, byte, copy, gather, scatter, pack, unpack, far;
};
#define NET_FAR_NS (200 * NSEC_PER_MSEC / 1000) /* the least round trip of a far link */
void net_costs_usual(struct net_costs *c);
void net_costs_measure(struct net_costs *c); /* once per process: takes half a millisecond */
/* The cheapest method, if a message has room for inline_room bytes of data. */
enum net_method net_choose(const struct net_costs *c, bool write, uint64_t segments, uint64_t bytes,
			   uint64_t inline_room);
/* What the transfer costs the client besides the round trip of its request. */
double net_cost(const struct net_costs *c, enum net_method how, bool write, uint64_t segments,
		uint64_t bytes);

/* Counters of one client at one server, since the client started; or of all links that a server has
 * accepted. */
struct net_account {
	uint64_t messages_sent, messages_received; /* without PULLs: they are frames alone */
	uint64_t frames; /* messages and bulk frames, both directions */
	uint64_t sent; /* bytes of sent messages, without bulk */
	uint64_t calls; /* system calls on sockets */
	uint64_t bytes[N_METHODS]; /* bytes of data, by method */
	uint64_t copied; /* bytes of data copied in user space; a byte copied twice counts twice */
	/* of network cards; 0 over other media */
	uint64_t work_requests, registrations;
	uint64_t busy; /* ns with calls in flight, if the server answers in order */
};

#endif
