/* A link to the server of server_world.h whose other end is the test: it answers transfers as it
 * is told and counts replies. */
#ifndef SHEAF_TEST_PIPE_LINK_H
#define SHEAF_TEST_PIPE_LINK_H

#include "net/backend.h"
#include "server_world.h"

/* ---- the link whose other end is the test ---- */

enum pipe_mode { PIPE_ANSWER, PIPE_REFUSE, PIPE_DEFER };

struct pipe_link {
	struct link l;
	enum pipe_mode mode;
	struct list deferred;
	unsigned sent, replies; /* requests to the server, replies from it */
	bool closed;
	uint32_t channel; /* of the requests */
	uint32_t uid, gid, n_gids; /* identity in requests; root unless set */
	uint32_t *gids;
	/* the client's memory for all transfers, and how often each byte was moved; may be NULL */
	uint8_t *mem, *moved;
	/* the last reply: */
	uint64_t tag;
	struct wire_rep_head head;
	uint8_t body[MSG_MAX];
	uint32_t body_at, body_len; /* position and length of the body behind the head */
	struct arena arena; /* for results, if the caller passes no arena */
};

/* Ends all deferred transfers with this result. */
void pipe_release(struct pipe_link *p, int error);

extern const struct net_ops pipe_ops;

extern const struct net_ops pipe_ops_file;

/* Makes an authenticated link. The caller gets its own reference. */
struct pipe_link *pipe_new(struct world *w, uint32_t role);

/* Closes the link and drops the reference of pipe_new(). */
void pipe_free(struct pipe_link *p);

/* Passes a message to the server as if it came from the wire. */
void pipe_message(struct world *w, struct pipe_link *p, uint64_t tag, const void *body, size_t len);

/* Sends a well-formed request on a slot in the session of the link. */
void pipe_call(struct world *w, struct pipe_link *p, uint32_t op, uint32_t slot, uint32_t sequence,
	       xdr_any filter, void *args);

/* Sends a request with the next sequence of slot 63 and runs it to its end. Returns 0 or -errno,
 * the result is in *res. Without an arena, the memory of the result is valid until the next
 * call. */
int pipe_do(struct world *w, struct pipe_link *p, uint32_t op, xdr_any put, void *args, xdr_any get,
	    void *res, struct arena *a);

/* Makes a new session on a link. */
void pipe_session(struct world *w, struct pipe_link *p);

/* A path from the root. */
struct wire_place pipe_place(const char *path);

/* Opens a file below the root. The layout is in the arena. */
int pipe_open(struct world *w, struct pipe_link *p, const char *path, uint64_t id, uint32_t flags,
	      struct wire_open_res *r, struct arena *a);

#endif
