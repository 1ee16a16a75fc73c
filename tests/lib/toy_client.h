/* Calls to the server of toy_server.h, and scattered memory for their data. */
#ifndef SHEAF_TEST_TOY_CLIENT_H
#define SHEAF_TEST_TOY_CLIENT_H

#include "toy_server.h"

/* ---- the client ---- */

/* One call and its result. */
struct toy_call {
	struct req q;
	struct call call;
	uint64_t args[512], res[512]; /* zeros, and a result, of any operation */
	struct wire_read_args read;
	struct wire_read_res read_res;
	struct wire_write_args write;
	struct wire_write_res write_res;
	struct access access;
	struct extent file, plan[4];
	struct view view;
	bool over;
	int error;
	unsigned order; /* position among all completed calls */
};

/* Prepares a call without arguments, with a deadline `patience` ns from now. */
void toy_call_init(struct toy_call *a, struct peer *p, uint32_t op, uint64_t timeout_ns);

extern uint64_t toy_call_ns; /* of the calls below, until their deadline; double for transfers */

/* Sends a call without arguments; `change`: it must be executed once. */
void toy_call_start(struct toy_call *a, struct peer *p, uint32_t op, bool change);

/* Starts a READ into this memory, or a WRITE from it. */
void toy_call_move(struct toy_call *a, struct peer *p, const struct iovec *mem, size_t n,
		   bool write);

struct toy_client {
	struct net_world *w;
	struct net net;
	struct peer peer;
};

/* Prepares a client of the server at this address; it connects when it is used. */
void toy_client_start(struct toy_client *c, struct net_world *w, const char *address,
		      struct net_identity id, uint32_t role);

/* Closes the link and ends all calls. */
void toy_client_stop(struct toy_client *c);

/* Scattered memory: n pieces whose sizes cycle through a list, with a guard byte behind each
 * piece. */
struct scatter {
	uint8_t *base;
	size_t bytes; /* size of base */
	struct iovec *iov;
	size_t n, total;
};

#define SCATTER_GUARD 0xee

/* Allocates n pieces with these sizes in turn. */
void scatter_make(struct scatter *s, size_t n, const size_t *sizes, size_t n_sizes);

/* Fills the pieces with the pattern. */
void scatter_fill(struct scatter *s);

/* Checks that all data are in place and no guard byte changed. */
void scatter_check(const struct scatter *s);

/* Frees the pieces. */
void scatter_free(struct scatter *s);

#endif
