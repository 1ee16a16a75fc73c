/* A small server that answers, holds or forgets requests as the test says. */
#ifndef SHEAF_TEST_TOY_SERVER_H
#define SHEAF_TEST_TOY_SERVER_H

#include "net/frame.h"
#include "net_world.h"

/* ---- identities ---- */

/* An identity whose keys consist of these bytes; server_key 0: it has none. */
struct net_identity net_id(uint8_t key, uint8_t server_key);

/* ---- the server ---- */

#define TOY_SERVER_SEEN 256

struct seen {
	struct link *link; /* holds a reference while `held` */
	uint64_t tag;
	struct wire_req_head head;
	bool held;
};

struct toy_server {
	struct net_world *w;
	struct net net;
	struct seen seen[TOY_SERVER_SEEN]; /* all requests except OP_SESSION, in order */
	unsigned n_seen, n_sessions, n_cancels, n_downs;
	uint64_t cancelled; /* tag of the last cancelled request */
	struct link *link; /* the last link that got a session */
	bool hold; /* answer only OP_SESSION */
	bool mute; /* answer nothing, not even OP_SESSION */
	bool forget; /* sessions cannot be resumed */
	bool deny; /* refuse the secrets of sessions */
	int status;
	uint32_t load; /* the `load` in replies */
	uint64_t session, boot;
	size_t reply_bytes; /* pad replies to OP_STATUS to this size */
	struct list xfers; /* struct moving: active READs and WRITEs */
};

/* Received data may go directly to this memory of MOVING_DIRECT bytes, from the first byte on. It
 * accepts `may` times, then refuses. */
#define MOVING_DIRECT (4 * MIB)
extern uint8_t *moving_direct;
extern uint64_t moving_direct_len; /* most bytes to place there */
extern int moving_direct_may;
extern uint64_t moving_direct_done;

extern size_t moving_piece; /* size of the server's buffers */
extern int moving_file; /* READ puts straight from this file */
extern const char *moving_map; /* and from this mapping of the file */
extern int moving_result; /* result of the last transfer */
extern bool moving_over;
extern uint64_t moving_sum; /* received bytes that differ from the pattern */
extern uint64_t moving_strange; /* bytes in that memory that no peer sent */

/* The byte at this offset of the data that READ and WRITE move. */
uint8_t pattern_byte(uint64_t at);

/* Sends a reply; `filter` encodes `res` if the status is 0. */
void toy_server_reply(struct toy_server *f, struct link *l, uint64_t tag, int status,
		      uint32_t slots, xdr_any filter, void *res);

/* The result has zeros only. */
void toy_server_zeros(struct toy_server *f, struct link *l, uint64_t tag, uint32_t op, int status);

/* Starts the transfer of a READ or WRITE; its end sends the reply. */
void toy_server_move(struct toy_server *f, struct link *l, uint64_t tag,
		     const struct wire_mem_desc *mem, bool write);

/* Answers all held requests whose links are still open. */
void toy_server_release(struct toy_server *f, int status);

/* Forgets all requests seen so far. */
void toy_server_drop(struct toy_server *f);

/* Starts a server in the world; it listens unless the address is NULL. */
void toy_server_start(struct toy_server *f, struct net_world *w, const char *address,
		      struct net_identity id);

/* Closes all links and frees what the server holds. */
void toy_server_stop(struct toy_server *f);

#endif
