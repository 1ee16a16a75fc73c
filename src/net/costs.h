/* Methods to move the bytes of a transfer (public: movers), their costs on a link, counters. */
#ifndef SHEAF_COSTS_H
#define SHEAF_COSTS_H

#include "base/base.h"

/* How the bytes of a transfer move between the pieces of a client's memory and the stream. DRIVEN:
 * the client writes what it sends into the server's buffers (RDMA); else as GATHER. */
enum net_method {
	METHOD_AUTO,
	METHOD_INLINE,
	METHOD_PACK,
	METHOD_GATHER,
	METHOD_DRIVEN,
	N_METHODS
};
const char *net_method_name(enum net_method how); /* "pack" */
int net_method_parse(const char *name, enum net_method *how); /* -EINVAL */

/* Costs of a link in nanoseconds: of a system call, a byte through it, a copied byte, a segment;
 * the round trip of a far link (else 0). Of network cards, 0 over other media: of a work request
 * (one for each segment that is gathered), a registration of memory, and each page of it. */
struct net_costs {
	double call, byte, copy, gather, scatter, pack, unpack, far;
	double work_request, registration, page;
};
/* The media whose costs differ. */
enum net_medium { MEDIUM_LOCAL, MEDIUM_TCP, N_MEDIA };
#define NET_FAR_NS (200 * NSEC_PER_MSEC / 1000) /* the least round trip of a far link */
void net_costs_usual(struct net_costs c[N_MEDIA]);
void net_costs_measure(struct net_costs c[N_MEDIA]); /* once per process: takes a millisecond */
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
	uint64_t work_requests, doorbells, registrations;
	uint64_t busy; /* ns with calls in flight, if the server answers in order */
};

#endif
