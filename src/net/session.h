/* The server side of sessions.
 *
 * A session is the state of one client at one server: slots, and what the server's operations
 * attach to it. It lives until its lease ends and is resumed over a new link. */
#ifndef SHEAF_SESSION_H
#define SHEAF_SESSION_H

#include "net/limits.h"
#include "net/net.h"
#include "net/tally.h"

struct link;

struct slot {
	uint32_t sequence; /* last one seen */
	uint32_t op; /* the operation of that request; 0: none yet */
	void *request; /* in service and not answered, or NULL */
};

struct session {
	struct hnode node;
	struct list all;
	struct sessions *table;
	uint64_t id;
	uint8_t secret[16];
	char client[LINK_HOST_MAX];
	struct hnode by_name; /* if it has one: */
	bool is_named;
	uint8_t name[SESSION_NAME];
	struct link *link; /* NULL: waiting to be resumed */
	struct list in_link;
	struct hnode on_channel; /* in link->by_channel */
	uint32_t channel; /* on that link */
	struct slot slots[SESSION_SLOTS];
	uint32_t in_service;
	struct list ending; /* session_quiesce() calls that wait until in_service is 0 */
	struct timer lease;
	uint64_t renewed;
	bool reclaimed; /* has claimed its opens since this server started */
	bool doomed; /* being ended: cannot be resumed */
	struct list opens; /* used by the server */
	struct list kept; /* used by the server: locks of an older session */
	struct list parked; /* used by the server: requests that wait for locks */
	struct usage held; /* limits in use, charged to the key that last created or resumed it */
	struct tally_row *as_client, *job; /* where its requests are counted; or NULL */
	struct pool_share share,
		copy_share; /* buffers for its transfers and for copies: see session_share() */
};

struct sessions {
	struct htab by_id, by_name;
	struct list all;
	struct loop *loop;
	uint64_t lease_ns;
	uint32_t count;
	void *owner;
	/* The lease has ended. The owner cleans up and then frees the session. */
	void (*expired)(void *owner, struct session *s);
};

int sessions_init(struct sessions *t, struct loop *l, uint64_t lease_ns);
void sessions_fini(struct sessions *t); /* frees them all, without callbacks */
int session_new(struct sessions *t, uint64_t id, const uint8_t secret[16], const char *client,
		struct session **out);
struct session *session_find(struct sessions *t, uint64_t id);
/* Does nothing if it, or another session that is not being ended, has a name or this name. */
void session_set_name(struct session *s, const uint8_t name[SESSION_NAME]);
struct session *session_named(struct sessions *t, const uint8_t name[SESSION_NAME]);
/* The session of this channel, or NULL. */
struct session *session_on(const struct link *l, uint32_t channel);
/* The session that had the channel before is detached. 0 or -ENOMEM. */
int session_attach(struct session *s, struct link *l, uint32_t channel);
void session_detach(struct session *s); /* the lease keeps running */
/* The session's share of the pool (copies: of the copy pool). All sessions of a key that acts for
 * one user have one share together. */
struct pool_share *session_share(struct session *s, bool copies);
void session_free(struct session *s);
/* Checks the slot of a request that arrives and takes it. 0; -EBADMSG: impossible slot or sequence,
 * close the link; -EKEYREJECTED: a different operation was sent under this sequence. */
int session_enter(struct session *s, uint32_t slot, uint32_t sequence, uint32_t op, void *request);
/* The request is answered: the client may use the slot again. */
void session_answered(struct session *s, uint32_t slot);
/* A request, which was answered, is no longer in service. */
void session_leave(struct session *s);
/* Holds q until no request of this session is in service. */
struct session_wait {
	struct list link;
	struct req *q;
};
void session_quiesce(struct session *s, struct session_wait *w, struct req *q);

#endif
